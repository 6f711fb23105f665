"""The composition roots: they turn an application's arguments into deployments.

``args`` hold what a replica *is*: a change restarts every replica of that application. What may change while
replicas run (tunables, which groups there are, how many replicas) stands beside them in the schema.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import BackpressureConfig

from paceline.config.load import config_from_mapping
from paceline.config.schema import DeploymentConfig, DrafterConfig
from paceline_serve.drafter import DrafterReplica
from paceline_serve.gateway import GatewayReplica
from paceline_serve.names import GATEWAY, LIGHT_CPUS, TARGET, drafter_deployment
from paceline_serve.process_setup import actor_options
from paceline_serve.target import TargetReplica

_SPARE_REQUESTS = 32  # of a gateway, for health checks and refusals while it is full
_QUEUED_REQUESTS = 64  # at a proxy, while every gateway is full; the gateways' own queues are the long ones
_RETRY_AFTER_S = 1.0  # said by a proxy that turns requests away
_DRAFTER_REQUESTS = 5  # drafters serve none; Ray Serve wants a number above 0

_COMMON: Mapping[str, Any] = MappingProxyType(
    {
        "request_router_config": {
            "request_router_class": "paceline_serve.request_router.PeerRouter",
            # While all places are taken, this is how late a free one may be noticed.
            "initial_backoff_s": 0.02,
            "max_backoff_s": 0.1,
        },
        "graceful_shutdown_wait_loop_s": 0.1,
        "max_constructor_retry_count": 3,
    }
)


def build(args: Mapping[str, Any]) -> Application:
    """Gateways and targets, from ``{"config": ...}``: a `DeploymentConfig` as `deploy_schema.identity` dumps it."""
    config = config_from_mapping(args["config"])
    return _gateway(config).bind(args["config"], _target(config).bind(args["config"]))


def build_drafter(args: Mapping[str, Any]) -> Application:
    """One remote drafter group, from its name and its sections: ``group``, ``drafter``, ``peer``, maybe ``target``."""
    section = DrafterConfig.model_validate(args["drafter"])
    deployment = serve.deployment(
        name=drafter_deployment(args["group"]),
        max_ongoing_requests=_DRAFTER_REQUESTS,
        ray_actor_options=actor_options(num_cpus=LIGHT_CPUS, threads=section.threads, resources=section.resources),
        **_COMMON,
    )(DrafterReplica)
    return deployment.bind(
        args["group"], args["drafter"], args["peer"], "cpu", release=args["release"], target=args.get("target")
    )


def _target(config: DeploymentConfig) -> serve.Deployment:
    section = config.target
    return serve.deployment(
        name=TARGET,
        max_ongoing_requests=section.max_held,
        ray_actor_options=actor_options(
            num_cpus=section.num_cpus,
            num_gpus=section.num_gpus,
            threads=config.engine.threads,
            resources=section.resources,
        ),
        **_COMMON,
    )(TargetReplica)


def _gateway(config: DeploymentConfig) -> serve.Deployment:
    section = config.gateway
    return serve.deployment(
        name=GATEWAY,
        max_ongoing_requests=section.max_ongoing + _SPARE_REQUESTS,
        max_queued_requests=_QUEUED_REQUESTS,
        backpressure_config=BackpressureConfig(retry_after_s=_RETRY_AFTER_S),
        ray_actor_options=actor_options(num_cpus=LIGHT_CPUS, threads=1, resources=section.resources),
        **_COMMON,
    )(serve.ingress()(GatewayReplica))
