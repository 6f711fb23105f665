"""Which replicas each deployment has, as Ray Serve pushes it to this process.

The request router class is pickled by value, so that its module's globals are copies in every process.
What it learns must be kept here, in a module that it imports.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Members = tuple["ReplicaInfo", ...]
Watcher = Callable[[Members], None]


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A running replica and what it published about itself."""

    replica_id: str
    metadata: Mapping[str, Any] = field(repr=False)  # has the replica's token


class Membership:
    """Members of deployments. Safe to use from any thread; watchers run on the thread that records."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # held while watchers run, so that they see changes in order
        self._members: dict[str, Members] = {}
        self._watchers: dict[str, list[Watcher]] = {}

    def replicas(self, deployment: str) -> Members:
        """Members at this moment; empty for an unknown deployment."""
        with self._lock:
            return self._members.get(deployment, ())

    def record(self, deployment: str, replicas: Sequence[ReplicaInfo]) -> None:
        """Replace a deployment's members; watchers hear of it if anything changed."""
        members = tuple(sorted(replicas, key=lambda replica: replica.replica_id))
        with self._lock:
            if members == self._members.get(deployment):
                return
            self._members[deployment] = members
            for watcher in self._watchers.get(deployment, ()):
                watcher(members)

    def watch(self, deployment: str, watcher: Watcher) -> Callable[[], None]:
        """Call ``watcher`` now and after every change. It must not block or raise. Returns what ends this."""
        with self._lock:
            watchers = self._watchers.setdefault(deployment, [])
            watchers.append(watcher)
            watcher(self._members.get(deployment, ()))

        def end() -> None:
            with self._lock:
                watchers.remove(watcher)

        return end


MEMBERSHIP = Membership()
"""The one registry of this process: Ray Serve builds the routers, so nothing can be passed to them."""
