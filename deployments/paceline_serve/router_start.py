"""Starts a handle's router without sending a request, so that membership is pushed to this process."""

from typing import Any

from ray.serve.handle import DeploymentHandle


def start_router(handle: DeploymentHandle[Any]) -> None:
    """Start the router if it does not run yet; replicas reach `membership` soon after.

    Naming any option of a handle starts its router: documented behaviour of ``options``, kept by a test.
    """
    handle.options(stream=False)
