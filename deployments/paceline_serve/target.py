"""A replica of the target group."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ray.serve.handle import DeploymentHandle

from paceline.backends.native import NativeBackend
from paceline.config.load import config_from_mapping
from paceline.config.schema import DeploymentConfig, Tunables
from paceline.drafting.drafter import Drafter
from paceline.modeling.resolve import resolve_model
from paceline.rpc.auth import new_token
from paceline.rpc.holds import HoldRegistry
from paceline.rpc.peer_server import PeerServer
from paceline.rpc.replica_server import ReplicaServicer
from paceline.rpc.target_server import TargetServicer
from paceline.telemetry.metrics import Metrics
from paceline_serve.membership import MEMBERSHIP
from paceline_serve.peer_metadata import encode_identity, peer_metadata
from paceline_serve.process_setup import node_address, start_logging
from paceline_serve.router_start import start_router
from paceline_serve.target_drafters import build_drafters, close_links, target_facts

_STOP_GRACE_S = 1.0  # Ray Serve has waited for the holds by then


class TargetReplica:
    """Owns one engine. Through Ray Serve come only holds; requests and tokens travel over its own gRPC server."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self, config: Mapping[str, Any], drafters: Mapping[str, DeploymentHandle[Any]]
    ) -> None:
        """Load the model, link to the drafter groups, open the port.

        ``config`` is a `DeploymentConfig` as a plain mapping; ``drafters`` has a handle per remote group, used
        for membership only.
        """
        settings = config_from_mapping(config)
        start_logging(settings.tunables.log_level)
        for handle in drafters.values():
            start_router(handle)
        self._drafters: Mapping[str, Drafter] = {}
        metrics = Metrics()
        loop = asyncio.get_running_loop()
        self._backend = await loop.run_in_executor(None, self._start_engine, settings, loop, metrics)
        self._holds = HoldRegistry(settings.peer.hold_open_s)
        self._server = PeerServer(
            settings.peer,
            node_ip=node_address(),
            token=new_token(),
            servicers=(TargetServicer(self._backend, self._holds), ReplicaServicer(metrics.render)),
        )
        await self._server.start()

    async def hold(self, key: str) -> bool:
        """Return when the stream of attempt ``key`` has ended: Ray Serve counts a request for exactly as long."""
        return await self._holds.hold(key)

    def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Use new tunables, for running answers too; called by Ray Serve after start and on every change."""
        tunables = Tunables.model_validate(user_config)
        start_logging(tunables.log_level)
        self._backend.apply_tunables(tunables)

    def record_replica_metadata(self) -> dict[str, Any]:
        """What gateways learn about this replica; called by Ray Serve once, after start."""
        identity = encode_identity(self._backend.identity)
        return peer_metadata(self._server.address, self._server.token, identity=identity)

    def check_health(self) -> None:
        """Raise EngineFailedError if the engine is dead or stuck."""
        self._backend.check_health()

    async def __del__(self) -> None:
        if server := getattr(self, "_server", None):  # absent where the start failed
            await server.stop(_STOP_GRACE_S)
            close_links(self._drafters)
            await self._backend.close()

    def _start_engine(
        self, settings: DeploymentConfig, loop: asyncio.AbstractEventLoop, metrics: Metrics
    ) -> NativeBackend:
        folder = resolve_model(settings.model.source, settings.model.revision)
        facts = target_facts(folder, settings.model)
        self._drafters = build_drafters(settings, facts, membership=MEMBERSHIP, loop=loop, metrics=metrics)
        return NativeBackend.start(folder, config=settings, drafters=self._drafters, metrics=metrics)
