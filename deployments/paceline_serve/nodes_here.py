"""Nodes of Ray clusters that run on this machine, as their own processes show them."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import psutil

from paceline.rpc.loopback import is_loopback

_RAYLET = "raylet"


@dataclass(frozen=True, slots=True)
class RayNode:
    """One node."""

    gcs: str  # HOST:PORT of the cluster's GCS, as the node reaches it
    address: str  # its own


def nodes_here() -> list[RayNode]:
    """All nodes that this user can see, one for each of Ray's node processes."""
    nodes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.name() == _RAYLET and (node := parse(process.cmdline())):
                nodes.append(node)
    return nodes


def parse(command: Iterable[str]) -> RayNode | None:
    """What the command line of a node process says."""
    options = dict(_options(command))
    gcs, address = options.get("--gcs-address"), options.get("--node_ip_address")
    return RayNode(gcs, address) if gcs and address else None


def node_for(gcs: str, nodes: Iterable[RayNode]) -> RayNode | None:
    """A node of the cluster whose GCS is called ``gcs``, HOST:PORT. A loopback host stands for this machine."""
    host, _, port = gcs.rpartition(":")
    exact = [node for node in nodes if node.gcs == gcs]
    here = [node for node in nodes if is_loopback(host) and node.gcs.rpartition(":")[2] == port]
    return next(iter([*exact, *here]), None)


def _options(command: Iterable[str]) -> Iterator[tuple[str, str]]:
    for argument in command:
        name, separator, value = argument.partition("=")
        if separator:
            yield name, value
