"""A replica of a remote drafter group."""

import asyncio
from collections.abc import Mapping
from typing import Any

from paceline.config.schema import DrafterConfig, ModelConfig, PeerConfig, Tunables, is_outside_class
from paceline.drafting.host import DrafterHost
from paceline.drafting.registry import BuiltDrafter, build_drafter
from paceline.rpc.auth import new_token
from paceline.rpc.link_server import DrafterServicer
from paceline.rpc.peer_server import PeerServer
from paceline.rpc.protocol import spoken
from paceline.rpc.replica_server import ReplicaServicer
from paceline.telemetry.metrics import Metrics
from paceline_serve.own_status import OwnStatus, drafter_status
from paceline_serve.peer_metadata import peer_metadata
from paceline_serve.process_setup import node_address, start_logging

_STOP_GRACE_S = 0.5  # soft state: targets go on without it


class DrafterReplica:
    """Drafts for all targets that link to it. It serves no Ray Serve request; its work comes over gRPC."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self,
        group: str,
        drafter: Mapping[str, Any],
        peer: Mapping[str, Any],
        device: str,
        *,
        release: str = "",
        target: Mapping[str, Any] | None = None,
    ) -> None:
        """Load the drafter and open its port. The sections are plain mappings because they cross processes.

        ``target`` is the model section of the deployment, for methods that take tensors of the target.
        """
        start_logging(Tunables().log_level)
        config, peer_config = DrafterConfig.model_validate(drafter), PeerConfig.model_validate(peer)
        metrics = Metrics()
        self._versions = spoken(peer_config.protocol_max)
        model = None if target is None else ModelConfig.model_validate(target)
        loop = asyncio.get_running_loop()
        built = await loop.run_in_executor(None, lambda: _build(group, config, model, device=device, metrics=metrics))
        self._facts = built.facts
        self._servicer = DrafterServicer(
            built.drafter,
            built.facts,
            ttl_s=config.session_ttl_s,
            metrics=metrics,
            max_message_bytes=peer_config.max_message_bytes,
            versions=self._versions,
        )
        status = OwnStatus(
            lambda: drafter_status(self._servicer),
            release=release,
            versions=self._versions,
            is_draining=lambda: self._servicer.draining,
        )
        self._server = PeerServer(
            peer_config,
            node_ip=node_address(),
            token=new_token(),
            servicers=(self._servicer, ReplicaServicer(metrics.render, status, drain=self._servicer.drain)),
        )
        await self._server.start()

    def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Use new tunables; called by Ray Serve after start and on every change."""
        start_logging(Tunables.model_validate(user_config).log_level)

    def record_replica_metadata(self) -> dict[str, Any]:
        """What targets learn about this replica; called by Ray Serve once, after start."""
        facts = self._facts
        return peer_metadata(
            self._server.address,
            self._server.token,
            versions=self._versions,
            group=facts.group,
            method=facts.method,
            weights_version=facts.weights_version,
        )

    def check_health(self) -> None:
        """Raise if the drafter's thread has died, or once it has drained; Ray Serve replaces the replica then."""
        self._servicer.check_health()

    async def __del__(self) -> None:
        if server := getattr(self, "_server", None):  # absent where the start failed
            await server.stop(_STOP_GRACE_S)
            await asyncio.get_running_loop().run_in_executor(None, self._servicer.close)  # it joins a thread


def _build(
    group: str, config: DrafterConfig, target: ModelConfig | None, *, device: str, metrics: Metrics
) -> BuiltDrafter:
    host = DrafterHost(device, metrics)
    if config.method != "ngram" and not is_outside_class(config.method):
        # Lazy: an n-gram replica never needs torch.
        import torch  # noqa: PLC0415

        torch.set_num_threads(config.threads)
    if target is not None:
        from paceline.modeling.resolve import resolve_model  # noqa: PLC0415  # lazy, as above

        folder = resolve_model(target.source, target.revision)
        host = DrafterHost(device, metrics, folder, target.dtype)
    return build_drafter(group, config, host)
