"""A deployment's configuration as Ray Serve's own schema: the one form in which it is ever applied."""

from typing import Any

from ray.serve.schema import ServeDeploySchema

from paceline.config.schema import DeploymentConfig
from paceline_serve.names import APP_NAME, GATEWAY, TARGET, deployed_groups, drafter_deployment

_SERVICERS = ("paceline_serve.grpc_door.add_generation_service",)


def render(config: DeploymentConfig, *, proxy_location: str = "HeadOnly") -> ServeDeploySchema:
    """Render the schema. Identity goes into ``args``, tunables into every deployment's ``user_config``."""
    gateway = config.gateway
    return ServeDeploySchema.model_validate(
        {
            "proxy_location": proxy_location,
            "http_options": {"host": gateway.host, "port": gateway.http_port},
            "grpc_options": {"port": gateway.grpc_port, "grpc_servicer_functions": list(_SERVICERS)},
            "logging_config": {"log_level": config.tunables.log_level, "enable_access_log": False},
            "applications": [_application(config)],
        }
    )


def _application(config: DeploymentConfig) -> dict[str, Any]:
    tunables = config.tunables.model_dump()
    return {
        "name": APP_NAME,
        "import_path": "paceline_serve.app:build",
        "route_prefix": "/",
        "args": {"config": config.model_dump(exclude={"tunables"})},
        "deployments": [{"name": name, "user_config": tunables} for name in deployment_names(config)],
    }


def deployment_names(config: DeploymentConfig) -> list[str]:
    """Names of all deployments of the application."""
    return [GATEWAY, TARGET, *map(drafter_deployment, deployed_groups(config))]
