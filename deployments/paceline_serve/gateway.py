"""A gateway replica: both public doors, the router between plain and speculative, the relay of tokens."""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import unquote

from fastapi import FastAPI
from ray.serve.grpc_util import RayServegRPCContext
from ray.serve.handle import DeploymentHandle

from paceline.config.load import config_from_mapping
from paceline.config.schema import DeploymentConfig, Tunables
from paceline.core.model_identity import ModelIdentity, VocabularyIdentity
from paceline.errors import PacelineError
from paceline.gateway.grpc_service import generate
from paceline.gateway.http_app import build_app
from paceline.gateway.peer_rule import check_peer
from paceline.gateway.service import GatewayService
from paceline.modeling.resolve import resolve_model
from paceline.routing.policy import SpeculateWhenLive
from paceline.rpc.auth import new_token
from paceline.rpc.loopback import host_of
from paceline.rpc.peer_server import PeerServer
from paceline.rpc.protocol import spoken
from paceline.rpc.replica_server import ReplicaServicer
from paceline.rpc.status import status_of
from paceline.telemetry.metrics import Metrics
from paceline.text.tokenizer import TextTokenizer
from paceline.v1 import generation_pb2
from paceline_serve.iterators import close_iterator
from paceline_serve.membership import MEMBERSHIP
from paceline_serve.own_status import OwnStatus, gateway_status
from paceline_serve.peer_metadata import peer_metadata
from paceline_serve.process_setup import node_address, start_logging
from paceline_serve.router_start import start_router
from paceline_serve.serve_target_pool import ServeTargetPool

logger = logging.getLogger(__name__)

_WARM_UP_RETRY_S = 0.5
_FIRST_TOKEN_WITHIN_S = 10.0
_INTERNAL = "The gateway failed; its log has the details."


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
            target.hold,
            MEMBERSHIP,
            peer=settings.peer,
            max_taken=settings.gateway.max_ongoing,
            max_wait_s=settings.tunables.max_queue_wait_s,
            metrics=metrics,
            serves=functools.partial(_is_own_model, settings.model.served_name, tokenizer.vocabulary),
            migrate_after_s=settings.target.migrate_after_s,
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
        self._loopback_only = not settings.gateway.allow_remote_clients
        self._status = OwnStatus(
            lambda: gateway_status(metrics),
            release=settings.release,
            versions=spoken(settings.peer.protocol_max),
            tunables=settings.tunables,
        )
        self._server = PeerServer(
            settings.peer,
            node_ip=node_address(),
            token=new_token(),
            servicers=(ReplicaServicer(metrics.render, self._status),),
        )
        await self._server.start()
        self._warming = asyncio.create_task(self._warm_up())
        # Ray Serve sends no requests before the constructor has returned. A gateway that joins others should not get
        # any until it knows a target; the first one of all tells that it waits.
        await asyncio.wait({self._warming}, timeout=_FIRST_TOKEN_WITHIN_S)

    def __serve_build_asgi_app__(self) -> FastAPI:
        """The HTTP app; Ray Serve calls this after the constructor."""
        # Ray Serve's proxy sets x-request-id itself, from the request's own where there is one.
        return build_app(lambda: self._service, loopback_only=self._loopback_only, echo_request_id=False)

    async def Generate(  # noqa: N802  # name from the proto
        self, request: generation_pb2.GenerateRequest, grpc_context: RayServegRPCContext
    ) -> AsyncIterator[generation_pb2.GenerateResponse]:
        """Answer one call of GenerationService/Generate."""
        try:
            messages = self._start(request, grpc_context)
            try:
                async for message in messages:
                    yield message
            finally:
                await close_iterator(messages)
        except PacelineError as error:
            _set_status(grpc_context, error)
            raise
        except Exception:  # the client must get a status that says nothing about the inside
            logger.exception("a gRPC call failed")
            internal = PacelineError(_INTERNAL)
            _set_status(grpc_context, internal)
            raise internal from None

    def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Use new tunables for requests that arrive from now on; called by Ray Serve."""
        tunables = Tunables.model_validate(user_config)
        start_logging(tunables.log_level)
        self._service.apply_tunables(tunables)
        self._status.tunables = tunables
        self._pool.apply_tunables(tunables)

    def record_replica_metadata(self) -> dict[str, Any]:
        """Where this replica's metrics can be read; called by Ray Serve once, after start."""
        return peer_metadata(self._server.address, self._server.token)

    async def __del__(self) -> None:
        # A constructor that failed may have got to any point.
        if warming := getattr(self, "_warming", None):
            warming.cancel()
        if pool := getattr(self, "_pool", None):
            await pool.close()
        if service := getattr(self, "_service", None):
            service.close()
        if server := getattr(self, "_server", None):
            await server.stop(0.0)

    def _start(
        self, request: generation_pb2.GenerateRequest, grpc_context: RayServegRPCContext
    ) -> AsyncIterator[generation_pb2.GenerateResponse]:
        if self._loopback_only:
            # Ray Serve's gRPC proxy binds every address of the machine.
            check_peer(_host_of_peer(grpc_context.peer()))
        metadata = dict(grpc_context.invocation_metadata() or ())
        return generate(request, self._service, traceparent=str(metadata.get("traceparent", "")))

    async def _warm_up(self) -> None:
        """Generate one token as soon as there is a target; until then /health answers 503."""
        while True:
            try:
                await self._service.warm_up()
            except PacelineError as error:
                logger.info("not ready yet: %s", error)
            except Exception:  # the task's border: without it the gateway would never be ready
                logger.exception("warming up failed")
            else:
                logger.info("ready: a target replica has generated a token")
                return
            await asyncio.sleep(_WARM_UP_RETRY_S)


def _load_tokenizer(settings: DeploymentConfig) -> TextTokenizer:
    return TextTokenizer.load(resolve_model(settings.model.source, settings.model.revision))


def _is_own_model(name: str, vocabulary: VocabularyIdentity, identity: ModelIdentity) -> bool:
    """Whether what this gateway's tokenizer makes of a request means the same to a target."""
    return identity.name == name and identity.vocabulary.fingerprint == vocabulary.fingerprint


def _set_status(grpc_context: RayServegRPCContext, error: PacelineError) -> None:
    code, details = status_of(error)
    grpc_context.set_code(code)
    grpc_context.set_details(details)


def _host_of_peer(peer: str) -> str:
    """Host of a gRPC peer such as ``ipv4:127.0.0.1:4711`` or ``ipv6:%5B::1%5D:4711``."""
    return host_of(unquote(peer).partition(":")[2])
