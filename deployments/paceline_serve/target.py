"""A replica of the target group."""

import asyncio
from collections.abc import Mapping
from typing import Any

from paceline.backends.native import NativeBackend
from paceline.config.load import config_from_mapping
from paceline.config.schema import DeploymentConfig
from paceline.config.timeouts import derive_timeouts
from paceline.errors import TargetUnavailableError
from paceline.modeling.resolve import resolve_model
from paceline.rpc.auth import new_token
from paceline.rpc.drain_flag import DrainFlag
from paceline.rpc.holds import HoldRegistry
from paceline.rpc.peer_server import PeerServer
from paceline.rpc.protocol import spoken
from paceline.rpc.replica_server import ReplicaServicer
from paceline.rpc.target_server import TargetServicer
from paceline.telemetry.metrics import Metrics
from paceline_serve.live_settings import split_target_settings
from paceline_serve.membership import MEMBERSHIP
from paceline_serve.own_status import OwnStatus, target_status
from paceline_serve.peer_metadata import encode_identity, peer_metadata
from paceline_serve.process_setup import node_address, start_logging
from paceline_serve.target_drafters import DrafterLinks

_STOP_GRACE_S = 1.0  # Ray Serve has waited for the holds by then


class TargetReplica:
    """Owns one engine. Through Ray Serve come only holds; requests and tokens travel over its own gRPC server."""

    async def __init__(self, config: Mapping[str, Any]) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        """Load the model, open the port. ``config`` is a `DeploymentConfig` as a plain mapping.

        It says nothing of remote drafter groups: those come with `reconfigure`, so that they may change without
        a restart.
        """
        settings = config_from_mapping(config)
        start_logging(settings.tunables.log_level)
        metrics = Metrics()
        loop = asyncio.get_running_loop()
        self._backend = await loop.run_in_executor(None, _start_engine, settings, metrics)
        self._links = DrafterLinks(
            self._backend, self._backend.facts, peer=settings.peer, membership=MEMBERSHIP, metrics=metrics
        )
        self._versions = spoken(settings.peer.protocol_max)
        self._draining = DrainFlag()
        self._holds = HoldRegistry(derive_timeouts(settings.gateway, settings.target).hold_open_s, self._draining)
        servicer = TargetServicer(self._backend, self._holds, versions=self._versions)
        self._status = OwnStatus(
            lambda: target_status(self._backend, servicer, self._links, metrics),
            release=settings.release,
            versions=self._versions,
            is_draining=lambda: self._draining.is_raised,
            tunables=settings.tunables,
        )
        self._server = PeerServer(
            settings.peer,
            node_ip=node_address(),
            token=new_token(),
            servicers=(servicer, ReplicaServicer(metrics.render, self._status, drain=self._draining.start)),
        )
        await self._server.start()

    async def hold(self, key: str) -> bool:
        """Return when the stream of attempt ``key`` has ended: Ray Serve counts a request for exactly as long."""
        return await self._holds.hold(key)

    def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Use new tunables, for running answers too; called by Ray Serve after start and on every change."""
        tunables, remote_groups = split_target_settings(user_config)
        start_logging(tunables.log_level)
        self._backend.apply_tunables(tunables)
        self._status.tunables = tunables
        self._links.apply(remote_groups)

    def record_replica_metadata(self) -> dict[str, Any]:
        """What gateways learn about this replica; called by Ray Serve once, after start."""
        identity = encode_identity(self._backend.identity)
        return peer_metadata(self._server.address, self._server.token, versions=self._versions, identity=identity)

    def check_health(self) -> None:
        """Raise EngineFailedError if the engine is dead or stuck, TargetUnavailableError once it has drained.

        Ray Serve replaces the replica then.
        """
        self._backend.check_health()
        if self._draining.is_raised and not self._holds.num_held:
            raise TargetUnavailableError("the replica has drained")

    async def __del__(self) -> None:
        if server := getattr(self, "_server", None):  # absent where the start failed
            await server.stop(_STOP_GRACE_S)
            self._links.close()
            await self._backend.close()


def _start_engine(settings: DeploymentConfig, metrics: Metrics) -> NativeBackend:
    folder = resolve_model(settings.model.source, settings.model.revision)
    return NativeBackend.start(folder, config=settings, drafters={}, metrics=metrics)
