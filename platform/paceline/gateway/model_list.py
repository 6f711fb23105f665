"""Bodies of GET /v1/models."""

from typing import Any

from paceline.errors import ModelNotFoundError
from paceline.gateway.service import GatewayService


def model_list(service: GatewayService, created: int) -> dict[str, Any]:
    """All served models. Raises TargetUnavailableError before the first target is up."""
    return {"object": "list", "data": [_model(service, created)]}


def model_entry(service: GatewayService, name: str, created: int) -> dict[str, Any]:
    """One served model. Raises ModelNotFoundError."""
    served = service.identity().name
    if name != served:
        raise ModelNotFoundError(name[:200], (served,))
    return _model(service, created)


def _model(service: GatewayService, created: int) -> dict[str, Any]:
    identity = service.identity()
    groups = [
        {"name": group.name, "method": group.method, "live": group.live, "detail": group.detail}
        for group in service.snapshot().drafter_groups
    ]
    return {
        "id": identity.name,
        "object": "model",
        "created": created,
        "owned_by": "paceline",
        "paceline": {
            "drafter_groups": groups,
            "verifier": service.verifier,
            "context_length": identity.context_length,
            "system_fingerprint": identity.system_fingerprint,
        },
    }
