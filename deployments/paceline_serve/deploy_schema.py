"""A deployment's configuration as Ray Serve's own schema: the one form in which it is ever applied.

Gateways and targets are one application, each remote drafter group another: Ray Serve restarts a whole
application when its ``args`` change, so a group can be swapped without touching a target.
"""

from typing import Any

from ray.serve.schema import ServeDeploySchema

from paceline.config.schema import AutoscalingConfig, DeploymentConfig, DrafterConfig
from paceline.config.timeouts import derive_timeouts
from paceline.drafting.wanted_features import BORROWING_METHODS, wanted_features
from paceline_serve.live_settings import target_settings
from paceline_serve.names import APP_NAME, GATEWAY, TARGET, deployed_groups, drafter_app, drafter_deployment

_SERVICERS = ("paceline_serve.grpc_door.add_generation_service",)
_FULL_SURGE = 100
# Load is looked at this often; Ray Serve's environment variables for it have no effect in 2.60.
_METRICS_INTERVAL_S = 1.0
_LOOK_BACK_S = 5.0  # a mean of several looks


def render(config: DeploymentConfig, *, proxy_location: str = "HeadOnly") -> ServeDeploySchema:
    """Render the schema. Identity goes into ``args``; what reaches running replicas stands with each deployment."""
    gateway = config.gateway
    return ServeDeploySchema.model_validate(
        {
            "proxy_location": proxy_location,
            "http_options": {"host": gateway.host, "port": gateway.http_port},
            "grpc_options": {"port": gateway.grpc_port, "grpc_servicer_functions": list(_SERVICERS)},
            "logging_config": {"log_level": config.tunables.log_level, "enable_access_log": False},
            "applications": [_main(config), *(_drafter(config, group) for group in deployed_groups(config))],
        }
    )


def identity(config: DeploymentConfig) -> dict[str, Any]:
    """What gateways and targets are: the configuration without what may change while they run."""
    remote = {group for group, section in config.drafters.items() if section.place == "remote"}
    # Targets are not told of remote groups, yet keep features for them. Where no group needs any, nothing is said.
    if features := wanted_features(config):
        config = config.model_copy(update={"engine": config.engine.model_copy(update={"features": features})})
    return config.model_dump(
        mode="json",
        exclude={
            "tunables": True,
            "target": {"replicas", "autoscaling", "max_surge_percent"},
            "gateway": {"replicas"},
            "drafters": remote,
        },
    )


def deployment_names(config: DeploymentConfig) -> list[str]:
    """Names of all deployments of all applications."""
    return [GATEWAY, TARGET, *map(drafter_deployment, deployed_groups(config))]


def _main(config: DeploymentConfig) -> dict[str, Any]:
    timeouts = derive_timeouts(config.gateway, config.target)
    gateway = {
        "name": GATEWAY,
        "user_config": config.tunables.model_dump(mode="json"),
        "num_replicas": config.gateway.replicas,
        "max_surge_percent": _FULL_SURGE,
        "graceful_shutdown_timeout_s": timeouts.gateway_stop_s,
    }
    target = {
        "name": TARGET,
        "user_config": target_settings(config),
        **_target_count(config),
        "max_surge_percent": target_surge_percent(config),
        "graceful_shutdown_timeout_s": timeouts.target_stop_s,
    }
    return {
        "name": APP_NAME,
        "import_path": "paceline_serve.app:build",
        "route_prefix": "/",
        "args": {"config": identity(config)},
        "deployments": [{**deployment, **_health(config)} for deployment in (gateway, target)],
    }


def _drafter(config: DeploymentConfig, group: str) -> dict[str, Any]:
    section = config.drafters[group]
    deployment = {
        "name": drafter_deployment(group),
        "user_config": config.tunables.model_dump(mode="json"),
        "num_replicas": section.replicas,
        "max_surge_percent": _FULL_SURGE,
        "graceful_shutdown_timeout_s": derive_timeouts(config.gateway, config.target).drafter_stop_s,
        **_health(config),
    }
    return {
        "name": drafter_app(group),
        "import_path": "paceline_serve.app:build_drafter",
        "route_prefix": None,  # no door leads to it
        "args": {
            "group": group,
            "drafter": section.model_dump(exclude={"replicas"}),
            "peer": config.peer.model_dump(),
            "release": config.release,
            **_target_of(config, section),
        },
        "deployments": [deployment],
    }


def _target_of(config: DeploymentConfig, section: DrafterConfig) -> dict[str, Any]:
    """What drafters must know of a target that they borrow from; other groups live on when that changes."""
    if section.method not in BORROWING_METHODS:
        return {}
    return {"target": config.model.model_dump(include={"source", "revision", "dtype"})}


def target_surge_percent(config: DeploymentConfig) -> int:
    """Share of targets that may start before old ones stop: all, unless each needs a GPU that is not there twice."""
    section = config.target
    if section.max_surge_percent is not None:
        return section.max_surge_percent
    return 0 if section.num_gpus else _FULL_SURGE


def _target_count(config: DeploymentConfig) -> dict[str, Any]:
    section = config.target
    if section.autoscaling is None:
        return {"num_replicas": section.replicas}
    return {"autoscaling_config": _autoscaling(section.autoscaling)}


def _autoscaling(scaling: AutoscalingConfig) -> dict[str, Any]:
    # Without initial_replicas: Ray Serve would go back to that number at every change of any setting.
    return {
        "min_replicas": scaling.min_replicas,
        "max_replicas": scaling.max_replicas,
        "target_ongoing_requests": scaling.target_ongoing_requests,
        "upscale_delay_s": scaling.upscale_delay_s,
        "downscale_delay_s": scaling.downscale_delay_s,
        "metrics_interval_s": _METRICS_INTERVAL_S,
        "look_back_period_s": _LOOK_BACK_S,
    }


def _health(config: DeploymentConfig) -> dict[str, Any]:
    timeouts = derive_timeouts(config.gateway, config.target)
    return {
        "health_check_period_s": timeouts.health_period_s,
        "health_check_timeout_s": timeouts.health_timeout_s,
    }
