"""A whole platform on a real Ray, started once for all tests that need one."""

import time

import grpc
import httpx
import pytest

from paceline.config.load import load_config
from paceline.config.locate import find_config
from paceline.config.schema import DrafterConfig
from paceline.rpc.auth import call_metadata
from paceline.rpc.codec_target import decode_report
from paceline.rpc.codec_versions import encode_versions
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.protocol import OURS
from paceline.v1 import target_pb2, target_pb2_grpc
from paceline_serve.local_platform import LocalPlatform
from paceline_serve.local_ray import set_ray_environment
from paceline_serve.model_files import fetch_models
from paceline_serve.names import APP_NAME, TARGET
from paceline_serve.ports import free_port
from paceline_serve.serve_flags import ServeFlags, with_flags

set_ray_environment()  # before a test module imports Ray


class RunningPlatform:
    """What tests ask a running platform, from outside its processes."""

    def __init__(self, platform: LocalPlatform) -> None:
        self.local = platform
        self.url = platform.url
        self.grpc_address = platform.grpc_address

    def chat(self, content: str, **fields) -> dict:
        body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 32} | fields
        response = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=120)
        response.raise_for_status()
        return response.json()

    def pid(self, deployment: str) -> int:
        return self.eventually(
            lambda: self.local.serve.replica_pids().get(deployment), f"a replica of {deployment}", within_s=90
        )[0]

    def metrics(self, deployment: str) -> str:
        return self.local.metrics(deployment)[0]

    def endpoint(self, deployment: str) -> Endpoint:
        return self.local.serve.endpoints(deployment)[0]

    def target_slots(self) -> int:
        """Requests that Ray Serve counts on the target: what drain, limits and autoscaling go by."""
        import ray  # noqa: PLC0415  # reads its environment at import

        name = f"SERVE_REPLICA::{APP_NAME}#{TARGET}#{self.endpoint(TARGET).replica_id}"
        return ray.get(ray.get_actor(name, namespace="serve").get_num_ongoing_requests.remote(), timeout=5)

    def target_report(self):
        """The target's own load report."""
        endpoint = self.endpoint(TARGET)
        with grpc.insecure_channel(endpoint.address) as channel:
            stub = target_pb2_grpc.TargetServiceStub(channel)
            request = target_pb2.WatchLoadRequest(protocol=encode_versions(OURS))
            return decode_report(next(iter(stub.WatchLoad(request, metadata=call_metadata(endpoint.token), timeout=5))))

    def wait_ready(self) -> None:
        def healthy():
            try:
                return httpx.get(f"{self.url}/health", timeout=2).status_code == 200
            except httpx.HTTPError:
                return False

        self.eventually(healthy, "a ready gateway", within_s=90)

    def wait_drafter(self, *, live: bool) -> None:
        def as_wanted():
            (model,) = httpx.get(f"{self.url}/v1/models", timeout=5).json()["data"]
            groups = model["paceline"]["drafter_groups"]
            return groups and groups[0]["live"] is live

        self.eventually(as_wanted, f"drafter group live: {live}", within_s=60)

    @staticmethod
    def eventually(probe, what: str, *, within_s: float = 10.0):
        give_up_at = time.monotonic() + within_s
        while not (found := probe()):
            assert time.monotonic() < give_up_at, f"not within {within_s} s: {what}"
            time.sleep(0.1)
        return found


@pytest.fixture(scope="session")
def platform():
    config = load_config(find_config("local-cpu"))
    # Drafts that no training changes.
    config = config.model_copy(update={"drafters": {"ngram": DrafterConfig(method="ngram", threads=1)}})
    host = config.gateway.host
    config = with_flags(config, ServeFlags(http_port=free_port(host), grpc_port=free_port(host)))
    fetch_models(config, lambda *_: None)
    with LocalPlatform(config) as local:
        running = RunningPlatform(local)
        running.wait_drafter(live=True)
        yield running
