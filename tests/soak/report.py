"""What a soak found, as text and as a result with provenance."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paceline.bench.provenance import Provenance
from paceline.bench.report import Result, Table
from soak.faults import Fault
from soak.load import Fate
from soak.run import Outcome
from soak.verdict import Kind

_MAX_EXAMPLES = 20
_MAX_BYTES_PER_REQUEST = 1024  # of a gateway or a proxy, after its warm-up: more is a leak
_MAX_FILES_GROWN = 64
_JUDGED_FROM = 10_000  # requests: below this, growth is the allocator's own
_LASTING = {"Gateway", "proxy"}
_COUNTS = ("drafted", "accepted", "committed", "forwards", "preempted", "evicted", "rerooted", "link failures")


def faults_found(outcome: Outcome) -> list[str]:
    """Everything that must not be, in words; empty after a clean run."""
    found = [f"{_name(fate, outcome)}: {fate.verdict.kind.value}: {fate.verdict.detail}" for fate in _at_fault(outcome)]
    found += [f"leaked: {leak}" for leak in outcome.leaks]
    found += [f"leaked: {grown}" for grown in _grown(outcome)]
    return found + ([f"the faults could not all be done: {outcome.trouble}"] if outcome.trouble else [])


def make_result(outcome: Outcome, provenance: Provenance | None) -> Result:
    """Tables for people and data for programs."""
    tables = [_fates(outcome), _by_manner(outcome), _incidents(outcome), _times(outcome), _growth(outcome)]
    return Result("soak", provenance, tables, _data(outcome))


def _at_fault(outcome: Outcome) -> list[Fate]:
    return [fate for fate in outcome.fates if fate.verdict.kind.is_fault]


def _name(fate: Fate, outcome: Outcome) -> str:
    """Which request, when, and what was done to the fleet meanwhile."""
    heard = fate.hearing
    span = heard.started_s, heard.started_s + heard.total_s
    times = " to ".join(f"{moment - outcome.started_s:.1f}" for moment in span)
    faults = ", ".join(incident.fault.value for incident in outcome.incidents if incident.overlaps(*span)) or "no fault"
    return f"request {fate.job.number} ({fate.job.door.value}, {fate.job.manner.value}; {times} s; {faults})"


def _grown(outcome: Outcome) -> list[str]:
    if outcome.settings.num_requests < _JUDGED_FROM:
        return []
    found = []
    for growth in outcome.growth:
        slope = growth.bytes_per_request
        if growth.kind in _LASTING and slope is not None and slope > _MAX_BYTES_PER_REQUEST:
            found.append(f"{growth.kind} {growth.pid} grows by {slope:.0f} bytes a request")
        if growth.files_grown > _MAX_FILES_GROWN:
            found.append(f"{growth.kind} {growth.pid} opened {growth.files_grown} files")
    return found


def _fates(outcome: Outcome) -> Table:
    counts = Counter(fate.verdict.kind for fate in outcome.fates)
    leaked = len(outcome.leaks) + len(_grown(outcome))
    rows = [[kind.value, str(counts[kind])] for kind in Kind] + [["leaked", str(leaked)]]
    resumed = [fate.hearing.resumed for fate in outcome.fates if fate.hearing.resumed]
    tokens = sum(fate.hearing.completion_tokens or 0 for fate in outcome.fates)
    quiet = "not in time" if outcome.quiet_s is None else f"within {outcome.quiet_s:.1f} s"
    rate, token_rate = len(outcome.fates) / outcome.load_s, tokens / outcome.load_s
    notes = [
        f"{outcome.load_s:.0f} s of load, {outcome.settings.at_a_time} clients.",
        f"{rate:.1f} requests and {token_rate:.0f} tokens of whole answers a second.",
        _drafting(outcome),
        f"{len(resumed)} whole answers were moved to another target, {sum(resumed)} times in all.",
        f"Refused because the fleet was full, and sent again: {sum(fate.hearing.retries for fate in outcome.fates)}.",
        f"Nothing was held any more: {quiet} of the last answer, or of the last recovery.",
    ]
    return Table(f"Fates of {len(outcome.fates)} requests", ("fate", "requests"), rows, notes)


def _drafting(outcome: Outcome) -> str:
    whole = [fate.hearing for fate in outcome.fates if fate.verdict.kind is Kind.RIGHT]
    groups = Counter(heard.drafter for heard in whole if heard.drafter)
    told = ", ".join(f"{count} by {group}" for group, count in sorted(groups.items())) or "none"
    return f"Right answers with drafts: {told}; {sum(heard.accepted for heard in whole)} drafts were accepted."


def _by_manner(outcome: Outcome) -> Table:
    counts = Counter((fate.job.manner, fate.job.door, fate.verdict.kind) for fate in outcome.fates)
    kinds = [kind for kind in Kind if any(found is kind for _, _, found in counts)]
    pairs = sorted({(manner, door) for manner, door, _ in counts}, key=lambda pair: (pair[0].value, pair[1].value))
    rows = [
        [manner.value, door.value, *(str(counts[manner, door, kind] or "") for kind in kinds)] for manner, door in pairs
    ]
    return Table("By client and door", ("client", "door", *(kind.value for kind in kinds)), rows)


def _incidents(outcome: Outcome) -> Table:
    rows = []
    for fault in Fault:
        spans = [incident.whole_s - incident.started_s for incident in outcome.incidents if incident.fault is fault]
        if spans:
            known = [span for span in spans if np.isfinite(span)]
            rows.append([fault.value, str(len(spans)), f"{np.median(known):.1f}" if known else ""])
    note = "Whole again: every replica answers and every link is up; for faults that others overlap, after those too."
    return Table("Faults put in", ("fault", "times", "median seconds until whole"), rows, [note])


def _times(outcome: Outcome) -> Table:
    rows = [
        [name, str(len(times)), *(f"{1000 * np.percentile(times, share):.0f}" for share in (50, 95, 99))]
        for name, times in _first_times(outcome).items()
        if times
    ]
    return Table("Milliseconds to the first token", ("while", "answers", "p50", "p95", "p99"), rows)


def _first_times(outcome: Outcome) -> dict[str, list[float]]:
    """Of streams: a whole body has no first token that a client could see."""
    times: dict[str, list[float]] = {"the fleet was whole": [], "a fault was on": []}
    for fate in outcome.fates:
        heard = fate.hearing
        if heard.first_s is None or fate.job.door.value == "rest":
            continue
        span = heard.started_s, heard.started_s + heard.first_s
        disturbed = any(incident.overlaps(*span) for incident in outcome.incidents)
        times["a fault was on" if disturbed else "the fleet was whole"].append(heard.first_s)
    return times


def _growth(outcome: Outcome) -> Table:
    rows = [
        [
            growth.kind,
            f"{growth.rss_mib:.0f}",
            "" if growth.bytes_per_request is None else f"{growth.bytes_per_request:.0f}",
            str(growth.num_files),
            str(growth.files_grown),
        ]
        for growth in outcome.growth
    ]
    notes = [
        "Bytes per request: slope of resident memory over ended requests, without the first 30 % of a process's life.",
        "It is empty for processes that were started in the second half.",
    ]
    columns = ("process", "MiB at the end", "bytes per request", "open files", "more than at first")
    return Table("Processes", columns, rows, notes)


def _data(outcome: Outcome) -> Mapping[str, Any]:
    totals = {name: sum(replica.get(name, 0) for replica in outcome.last_look.get("Target", ())) for name in _COUNTS}
    return {
        "fates": dict(Counter(fate.verdict.kind.value for fate in outcome.fates)),
        "found": faults_found(outcome)[:_MAX_EXAMPLES],
        "incidents": [
            {
                "fault": incident.fault.value,
                "note": incident.note,
                "seconds": _finite(incident.whole_s - incident.started_s),
            }
            for incident in outcome.incidents
        ],
        "counts of the targets that were there at the end": totals,
        "resumed": sum(fate.hearing.resumed for fate in outcome.fates),
        "load_s": outcome.load_s,
        "quiet_s": outcome.quiet_s,
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def examples(found: Sequence[str]) -> Sequence[str]:
    """The first few of many."""
    more = [f"and {len(found) - _MAX_EXAMPLES} more"] if len(found) > _MAX_EXAMPLES else []
    return [*found[:_MAX_EXAMPLES], *more]
