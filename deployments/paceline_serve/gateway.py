"""A gateway replica: both public doors, the router between plain and speculative, the relay of tokens."""

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import unquote

from fastapi import FastAPI
from ray.serve.grpc_util import RayServegRPCContext
from ray.serve.handle import DeploymentHandle

from paceline.config.load import config_from_mapping
from paceline.config.schema import DeploymentConfig, Tunables
from paceline.errors import PacelineError, UnauthenticatedError
from paceline.gateway.grpc_service import generate
from paceline.gateway.http_app import build_app
from paceline.gateway.service import GatewayService
from paceline.modeling.resolve import resolve_model
from paceline.routing.policy import SpeculateWhenLive
from paceline.rpc.auth import new_token
from paceline.rpc.peer_server import PeerServer
from paceline.rpc.replica_server import ReplicaServicer
from paceline.rpc.status import status_of
from paceline.telemetry.metrics import Metrics
from paceline.text.tokenizer import TextTokenizer
from paceline.v1 import generation_pb2
from paceline_serve.iterators import close_iterator
from paceline_serve.membership import MEMBERSHIP
from paceline_serve.peer_metadata import peer_metadata
from paceline_serve.process_setup import node_address, start_logging
from paceline_serve.router_start import start_router
from paceline_serve.serve_target_pool import ServeTargetPool

logger = logging.getLogger(__name__)

_WARM_UP_RETRY_S = 0.5


class GatewayReplica:
    """Ingress of the application: Ray Serve's proxies bring HTTP to its app and gRPC to `Generate`."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self, config: Mapping[str, Any], target: DeploymentHandle[Any]
    ) -> None:
        """Build the service. ``config`` is a `DeploymentConfig` as a plain mapping."""
        settings = config_from_mapping(config)
        start_logging(settings.tunables.log_level)
        start_router(target)
        metrics = Metrics()
        tokenizer = await asyncio.get_running_loop().run_in_executor(None, _load_tokenizer, settings)
        pool = ServeTargetPool(
            target.hold, MEMBERSHIP, peer=settings.peer, max_taken=settings.gateway.max_ongoing, metrics=metrics
        )
        self._pool = pool
        self._service = GatewayService(
            pool,
            tokenizer,
            policy=SpeculateWhenLive(),
            gateway=settings.gateway,
            engine=settings.engine,
            verifier=settings.verifier,
            tunables=settings.tunables,
            metrics=metrics,
        )
        self._loopback_only = _is_loopback(settings.gateway.host)
        self._server = PeerServer(
            settings.peer,
            node_ip=node_address(),
            token=new_token(),
            servicers=(ReplicaServicer(metrics.render),),
        )
        await self._server.start()
        self._warming = asyncio.create_task(self._warm_up())

    def __serve_build_asgi_app__(self) -> FastAPI:
        """The HTTP app; Ray Serve calls this after the constructor."""
        return build_app(lambda: self._service)

    async def Generate(  # noqa: N802  # name from the proto
        self, request: generation_pb2.GenerateRequest, grpc_context: RayServegRPCContext
    ) -> AsyncIterator[generation_pb2.GenerateResponse]:
        """Answer one call of GenerationService/Generate."""
        metadata = dict(grpc_context.invocation_metadata() or ())
        messages = generate(request, self._service, traceparent=str(metadata.get("traceparent", "")))
        try:
            self._check_caller(grpc_context)
            async for message in messages:
                yield message
        except PacelineError as error:
            code, details = status_of(error)
            grpc_context.set_code(code)
            grpc_context.set_details(details)
            raise
        finally:
            await close_iterator(messages)

    def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Use new tunables for requests that arrive from now on; called by Ray Serve."""
        tunables = Tunables.model_validate(user_config)
        start_logging(tunables.log_level)
        self._service.apply_tunables(tunables)

    def record_replica_metadata(self) -> dict[str, Any]:
        """Where this replica's metrics can be read; called by Ray Serve once, after start."""
        return peer_metadata(self._server.address, self._server.token)

    async def __del__(self) -> None:
        if server := getattr(self, "_server", None):  # absent where the start failed
            self._warming.cancel()
            await self._pool.close()
            self._service.close()
            await server.stop(0.0)

    def _check_caller(self, grpc_context: RayServegRPCContext) -> None:
        """Ray Serve's gRPC proxy binds every address of the machine; the configured one must hold all the same."""
        if self._loopback_only and not _is_loopback(_host_of(grpc_context.peer())):
            raise UnauthenticatedError("a client on the same machine; set gateway.host to serve other machines")

    async def _warm_up(self) -> None:
        """Generate one token as soon as there is a target; until then /health answers 503."""
        while True:
            try:
                await self._service.warm_up()
            except PacelineError as error:
                logger.info("not ready yet: %s", error)
                await asyncio.sleep(_WARM_UP_RETRY_S)
            else:
                logger.info("ready: a target replica has generated a token")
                return


def _load_tokenizer(settings: DeploymentConfig) -> TextTokenizer:
    return TextTokenizer.load(resolve_model(settings.model.source, settings.model.revision))


def _host_of(peer: str) -> str:
    """Host of a gRPC peer such as ``ipv4:127.0.0.1:4711`` or ``ipv6:%5B::1%5D:4711``."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
