"""A process that looks at the replicas of a fleet from inside its Ray: one JSON line for each line it is sent.

It is a process of its own because Ray would make whoever connects to it a part of the cluster.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from paceline.config.schema import PeerConfig
from paceline.errors import PacelineError
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.replica_client import read_metrics
from paceline.telemetry import catalogue
from paceline_serve.local_ray import set_ray_environment
from paceline_serve.metric_values import metric_value
from paceline_serve.names import TARGET, app_of

_GAUGES = {
    "queued": catalogue.QUEUED_REQUESTS,
    "streams": catalogue.OPEN_STREAMS,
    "running": catalogue.RUNNING,
    "waiting": catalogue.WAITING,
    "sessions": catalogue.DRAFTER_SESSIONS,
    "pending": catalogue.DRAFTER_PENDING,
}
_COUNTS = {
    "drafted": catalogue.DRAFTED_TOKENS,
    "accepted": catalogue.ACCEPTED_TOKENS,
    "committed": catalogue.COMMITTED_TOKENS,
    "preempted": catalogue.PREEMPTIONS,
    "evicted": catalogue.EVICTED_PAGES,
    "link failures": catalogue.LINK_FAILURES,
    "rerooted": catalogue.REROOTED_DRAFTS,
    "forwards": catalogue.TARGET_FORWARDS,
}


class Probe:
    """The other end of the process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lock = threading.Lock()

    def look(self) -> dict[str, list[dict[str, Any]]]:
        """What every replica says about itself, by deployment; one that does not answer has "error"."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            print("look", file=self._process.stdin, flush=True)
            while not (line := self._process.stdout.readline()).startswith("{"):
                assert line, "the probe has ended"
        return json.loads(line)


@contextlib.contextmanager
def probing(gcs: str, deployments: list[str]) -> Iterator[Probe]:
    """A probe for as long as the block lasts."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-m", "soak.probe", gcs, *deployments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        try:
            yield Probe(process)
        finally:
            process.communicate("", timeout=60)


def main(gcs: str, deployments: list[str]) -> None:
    """Answer until the input ends."""
    set_ray_environment()
    import ray  # noqa: PLC0415  # reads its environment at import

    from paceline_serve.local_serve import LocalServe  # noqa: PLC0415

    ray.init(address=gcs, log_to_driver=False, logging_level="ERROR")
    serve = LocalServe()
    for _ in sys.stdin:
        look = {name: [_look(name, one) for one in _replicas(serve, name)] for name in deployments}
        sys.stdout.write(json.dumps(look) + "\n")
        sys.stdout.flush()
    ray.shutdown()


def _replicas(serve: Any, deployment: str) -> list[Endpoint]:
    try:
        return serve.endpoints(deployment)
    except PacelineError:
        return []


def _look(deployment: str, endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {"replica": endpoint.replica_id}
    try:
        text = read_metrics(endpoint, PeerConfig())
        found |= {name: metric_value(text, gauge) for name, gauge in _GAUGES.items()}
        found |= {name: metric_value(text, counter) for name, counter in _COUNTS.items()}
        found["slots"] = _slots(deployment, endpoint)
        if deployment == TARGET:
            found |= _report(endpoint)
    except Exception as error:  # noqa: BLE001  # whatever is wrong with a replica is what was asked for
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def _slots(deployment: str, endpoint: Endpoint) -> int:
    """Requests that Ray Serve counts on a replica: what drain, limits and autoscaling go by."""
    import ray  # noqa: PLC0415

    actor = ray.get_actor(f"SERVE_REPLICA::{app_of(deployment)}#{deployment}#{endpoint.replica_id}", namespace="serve")
    return ray.get(actor.get_num_ongoing_requests.remote(), timeout=5)


def _report(endpoint: Endpoint) -> dict[str, Any]:
    import grpc  # noqa: PLC0415

    from paceline.rpc.auth import call_metadata  # noqa: PLC0415
    from paceline.rpc.codec_target import decode_report  # noqa: PLC0415
    from paceline.rpc.codec_versions import encode_versions  # noqa: PLC0415
    from paceline.rpc.protocol import OURS  # noqa: PLC0415
    from paceline.v1 import target_pb2, target_pb2_grpc  # noqa: PLC0415

    with grpc.insecure_channel(endpoint.address) as channel:
        stub = target_pb2_grpc.TargetServiceStub(channel)
        request = target_pb2.WatchLoadRequest(protocol=encode_versions(OURS))
        stream = stub.WatchLoad(request, metadata=call_metadata(endpoint.token), timeout=5)
        report = decode_report(next(iter(stream)))
        stream.cancel()
    load = report.load
    groups = {group.name: group.live for group in load.drafter_groups}
    return {"held": report.num_held, "missing_pages": load.total_pages - load.free_pages, "groups": groups}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
