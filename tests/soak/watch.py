"""What a fleet still holds when nobody asks anything, and how its processes grow meanwhile."""

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import psutil

from fleet import Fleet

_MUST_BE_ZERO = (
    "queued",
    "streams",
    "running",
    "waiting",
    "sessions",
    "pending",
    "slots",
    "held",
    "missing_pages",
)
_KINDS = {"Gateway": ":Gateway", "Target": ":Target", "drafter": ":drafter-", "proxy": "ProxyActor"}
_WARM_UP_SHARE = 0.3

Look = Mapping[str, Sequence[Mapping[str, Any]]]
"""What every replica says about itself, by deployment; see `probe`."""


def leaks_in(look: Look) -> list[str]:
    """What replicas hold that they must not hold while nothing is asked; one that does not answer is named too."""
    found = []
    for deployment, replicas in look.items():
        for replica in replicas:
            name = f"{deployment} {replica['replica']}"
            if "error" in replica:
                found.append(f"{name} does not answer: {replica['error']}")
            found += [f"{name} holds {what}: {replica[what]:g}" for what in _MUST_BE_ZERO if replica.get(what)]
    return found


def lacks_in(look: Look, expected: Mapping[str, int]) -> list[str]:
    """What a fleet lacks: replicas, answers of replicas, links."""
    found = [
        f"{deployment} has {len(look.get(deployment, ()))} of {count} replicas"
        for deployment, count in expected.items()
        if len(look.get(deployment, ())) < count
    ]
    for deployment, replicas in look.items():
        for replica in replicas:
            name = f"{deployment} {replica['replica']}"
            if "error" in replica:
                found.append(f"{name} does not answer: {replica['error']}")
            found += [f"{name} has no link to {group}" for group, live in replica.get("groups", {}).items() if not live]
    return found


class Growth(NamedTuple):
    """How one process grew after its warm-up."""

    kind: str
    pid: int
    rss_mib: float  # at the end
    bytes_per_request: float | None  # None: it has not lived through enough of the load
    num_files: int  # at the end
    files_grown: int


class Vitals:
    """Memory and open files of a fleet's processes, sampled while the load runs."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._samples: defaultdict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)

    def sample(self, num_done: int) -> None:
        """Note memory and files of every process; ``num_done`` requests have ended so far."""
        for process in self._fleet.head.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                title = " ".join(process.cmdline())
                kind = next((kind for kind, mark in _KINDS.items() if mark in title), None)
                if kind is not None:
                    self._samples[kind, process.pid].append((num_done, process.memory_info().rss, process.num_fds()))

    def growth(self, num_requests: int) -> list[Growth]:
        """Of the processes that are there at the end, by kind."""
        present = {process.pid for process in self._fleet.head.children(recursive=True)}
        return sorted(
            _growth(kind, pid, samples, num_requests)
            for (kind, pid), samples in self._samples.items()
            if pid in present
        )


def _growth(kind: str, pid: int, samples: list[tuple[int, int, int]], num_requests: int) -> Growth:
    done, rss, files = (np.array(column, dtype=np.float64) for column in zip(*samples, strict=True))
    warm = done >= done[0] + _WARM_UP_SHARE * (done[-1] - done[0])
    lived = done[-1] - done[0] >= 0.5 * num_requests and warm.sum() >= 5
    slope = float(np.polyfit(done[warm], rss[warm], 1)[0]) if lived else None
    return Growth(kind, pid, rss[-1] / 2**20, slope, int(files[-1]), int(files[-1] - files[0]))
