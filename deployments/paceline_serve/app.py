"""The composition root: turns the application's arguments into deployments.

``args`` hold what a replica *is* (a change restarts it); what may change while it runs, the tunables, comes
as ``user_config`` and is not part of them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ray import serve
from ray.serve import Application

from paceline.config.load import config_from_mapping
from paceline.config.schema import DeploymentConfig
from paceline_serve.drafter import DrafterReplica
from paceline_serve.gateway import GatewayReplica
from paceline_serve.names import GATEWAY, LIGHT_CPUS, TARGET, deployed_groups, drafter_deployment
from paceline_serve.process_setup import actor_options
from paceline_serve.target import TargetReplica

_SPARE_REQUESTS = 32  # of a gateway, for health checks and refusals while it is full
_QUEUED_REQUESTS = 64  # at a proxy, while every gateway is full; the gateways' own queues are the long ones
_DRAFTER_REQUESTS = 5  # drafters serve none; Ray Serve wants a number above 0


def build(args: Mapping[str, Any]) -> Application:
    """Build the application from ``{"config": ...}``, a `DeploymentConfig` without its tunables."""
    config = config_from_mapping(args["config"])
    drafters = {group: _drafter(config, group) for group in deployed_groups(config)}
    target = _target(config).bind(args["config"], drafters)
    return _gateway(config).bind(args["config"], target)


_COMMON: Mapping[str, Any] = MappingProxyType(
    {
        "request_router_config": {
            "request_router_class": "paceline_serve.request_router.PeerRouter",
            # While all places are taken, this is how late a free one may be noticed.
            "initial_backoff_s": 0.02,
            "max_backoff_s": 0.1,
        },
        "health_check_period_s": 2,
        "graceful_shutdown_wait_loop_s": 0.1,
        "max_constructor_retry_count": 3,
    }
)


def _drafter(config: DeploymentConfig, group: str) -> Application:
    section = config.drafters[group]
    deployment = serve.deployment(
        name=drafter_deployment(group),
        num_replicas=section.replicas,
        max_ongoing_requests=_DRAFTER_REQUESTS,
        ray_actor_options=actor_options(num_cpus=LIGHT_CPUS, threads=section.threads, resources=section.resources),
        **_COMMON,
    )(DrafterReplica)
    return deployment.bind(group, section.model_dump(), config.peer.model_dump(), "cpu")


def _target(config: DeploymentConfig) -> serve.Deployment:
    section = config.target
    return serve.deployment(
        name=TARGET,
        num_replicas=section.replicas,
        max_ongoing_requests=section.max_held,
        graceful_shutdown_timeout_s=config.gateway.request_timeout_s,
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
        num_replicas=section.replicas,
        max_ongoing_requests=section.max_ongoing + _SPARE_REQUESTS,
        max_queued_requests=_QUEUED_REQUESTS,
        graceful_shutdown_timeout_s=section.request_timeout_s,
        ray_actor_options=actor_options(num_cpus=LIGHT_CPUS, threads=1, resources=section.resources),
        **_COMMON,
    )(serve.ingress()(GatewayReplica))
