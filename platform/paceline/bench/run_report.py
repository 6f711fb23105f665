"""From the block runs of `bench run` to a result: the headline, what was left out of it, and the comparisons."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from paceline.bench.compare import BlockPair, Comparison, compare
from paceline.bench.measure import (
    Distribution,
    LoadFigures,
    SampleShare,
    Slo,
    Speed,
    load_figures,
    looping,
    shared_time,
    speed,
    tpot_s,
    ttft_s,
)
from paceline.bench.provenance import Provenance
from paceline.bench.records import BlockRun
from paceline.bench.report import Result, Table
from paceline.bench.variants import Variant
from paceline.errors import ConfigError

_NONE = "-"
_SHOWN_LEVELS = 6  # of a_i; the data has all
_ESTIMATED = "The endpoint does not say how many tokens a chunk has: ITL shares its total out by characters."
_LOOPS = "Looping answers (any 8 words in a row three times) stand in a row of their own and nowhere else here."

Runs = Mapping[str, Sequence[BlockRun]]  # by variant


def run_result(
    variants: Sequence[Variant], runs: Sequence[BlockRun], *, slo: Slo, provenance: Provenance, setup: Mapping[str, Any]
) -> Result:
    """The result of a whole run."""
    by_variant = {variant.name: [run for run in runs if run.variant == variant.name] for variant in variants}
    shares = {name: [share for run in own for share in shared_time(run)] for name, own in by_variant.items()}
    left_out = {name: _loops(shares[name]) for name in shares}
    loads = {name: load_figures(own, slo) for name, own in by_variant.items()}
    figures = {name: _figures(own, left_out[name], slo) for name, own in shares.items()}
    compared = _compare(by_variant, shares, left_out)
    tables = [
        _speed_table(variants, figures),
        _latency_table(variants, figures),
        _load_table(variants, loads),
        *_comparison_tables(compared),
    ]
    data = {
        "setup": dict(setup),
        "variants": {
            variant.name: {
                "options": variant.text,
                "load": asdict(loads[variant.name]),
                "speed": {name: asdict(found) for name, found in figures[variant.name].items()},
                "requests": [_request(share) for share in shares[variant.name]],
            }
            for variant in variants
        },
        "comparisons": {
            name: asdict(found.comparison) if found.comparison else None for name, found in compared.items()
        },
    }
    return Result("run", provenance, tables, data)


def _loops(shares: Sequence[SampleShare]) -> set[int]:
    """Places of looping answers in a variant's list."""
    return {index for index, share in enumerate(shares) if looping(share)}


def _figures(shares: Sequence[SampleShare], loops: set[int], slo: Slo) -> dict[str, Speed]:
    """Speed of the headline, of each category, and of the looping answers."""
    kept = [share for index, share in enumerate(shares) if index not in loops]
    by_category: defaultdict[str, list[SampleShare]] = defaultdict(list)
    for share in kept:
        by_category[share.sample.question.category].append(share)
    figures = {"headline": speed(kept, slo)}
    figures |= {category: speed(own, slo) for category, own in sorted(by_category.items())}
    return figures | {"looping": speed([shares[index] for index in sorted(loops)], slo)}


class _Compared(NamedTuple):
    """A comparison, or why there is none."""

    comparison: Comparison | None
    why_not: str = ""


def _compare(
    runs: Runs, shares: Mapping[str, Sequence[SampleShare]], loops: Mapping[str, set[int]]
) -> dict[str, _Compared]:
    """Compare each other side with the first, over the requests that finished without looping on both."""
    base, *others = shares
    blocks = sorted({run.block for own in runs.values() for run in own})
    return {
        other: _compare_two(shares[base], shares[other], blocks, left_out=loops[base] | loops[other])
        for other in others
    }


def _compare_two(
    a: Sequence[SampleShare], b: Sequence[SampleShare], blocks: Sequence[int], *, left_out: set[int]
) -> _Compared:
    both = [
        index
        for index, (one, other) in enumerate(zip(a, b, strict=True))
        if index not in left_out and one.sample.recording and other.sample.recording
    ]
    pairs = []
    for block in blocks:
        mine = [index for index in both if a[index].block == block]
        sides = [(_tokens(side, mine), sum(side[index].share_s for index in mine)) for side in (a, b)]
        pairs.append(BlockPair(*sides[0], *sides[1]))
    try:
        return _Compared(compare(pairs))
    except ConfigError as error:  # too many failures or loops; the rest of the result is still worth having
        return _Compared(None, str(error))


def _tokens(shares: Sequence[SampleShare], places: Sequence[int]) -> int:
    recordings = (shares[index].sample.recording for index in places)
    return sum(recording.completion_tokens for recording in recordings if recording)


def _speed_table(variants: Sequence[Variant], figures: Mapping[str, Mapping[str, Speed]]) -> Table:
    columns = ["answers", "n", "tokens", "tokens/s", "tau", "alpha", "a_i"]
    rows = [
        [f"{variant.name}: {name}", *_speed_cells(found)]
        for variant in variants
        for name, found in figures[variant.name].items()
        if found.answers
    ]
    return Table("Speed", columns, rows, [*(f"{variant.name} is {variant.text}." for variant in variants), _LOOPS])


def _speed_cells(found: Speed) -> list[str]:
    acceptance = " ".join(f"{entry.rate:.2f}" for entry in found.acceptance[:_SHOWN_LEVELS])
    rates = [_number(found.tokens_per_s, 1), _number(found.tau, 2), _number(found.alpha, 2)]
    return [str(found.answers), str(found.tokens), *rates, acceptance or _NONE]


def _latency_table(variants: Sequence[Variant], figures: Mapping[str, Mapping[str, Speed]]) -> Table:
    columns = ["ms, without looping answers", "mean", "p50", "p90", "p99"]
    rows, notes = [], []
    for variant in variants:
        found = figures[variant.name]["headline"]
        shown = {"TTFT": found.ttft_s, "TPOT": found.tpot_s, "ITL": found.itl_s, "gap of chunks": found.chunk_gap_s}
        rows += [[f"{variant.name}: {name}", *_milliseconds(values)] for name, values in shown.items()]
        if found.within_slo is not None:
            notes.append(f"{variant.name}: {found.within_slo:.0%} of these answers kept the SLO.")
        if not found.exact_counts:
            notes.append(f"{variant.name}: {_ESTIMATED}")
    return Table("Latency", columns, rows, notes)


def _load_table(variants: Sequence[Variant], loads: Mapping[str, LoadFigures]) -> Table:
    columns = ["load", "sent", "done", "failed", "tokens/wall s", "done/s", "goodput/s", "lag ms p99"]
    rows, notes = [], ["All requests, looping ones too. Lag: how late the client sent what was due."]
    for variant in variants:
        load = loads[variant.name]
        failed = ", ".join(f"{count} {reason}" for reason, count in load.errors.items()) or "0"
        cells = [str(load.requests), str(load.completed), failed, f"{load.tokens_per_wall_s:.1f}"]
        cells += [f"{load.requests_per_s:.2f}", _number(load.goodput_per_s, 2), _milliseconds(load.lag_s)[-1]]
        rows.append([variant.name, *cells])
        notes += [f"{variant.name}: {reason}: {text}" for reason, text in load.error_examples.items()]
        notes.append(f"{variant.name}: {load.cached_tokens} of {load.prompt_tokens} prompt tokens were cached.")
        if load.client_behind:
            notes.append(f"{variant.name}: the CLIENT FELL BEHIND its schedule; its latencies say so too.")
    return Table("Load", columns, rows, notes)


def _comparison_tables(compared: Mapping[str, _Compared]) -> list[Table]:
    if not compared:
        return []
    rows = [[f"{name} over a", *_comparison_cells(found.comparison)] for name, found in compared.items()]
    notes = ["Sum of tokens over sum of time, over requests that finished without looping on both sides."]
    notes += [f"{name}: {found.why_not}" for name, found in compared.items() if found.why_not]
    return [Table("Comparison", ["tokens/s", "ratio", "95 % interval", "by block"], rows, notes)]


def _comparison_cells(found: Comparison | None) -> list[str]:
    if found is None:
        return [_NONE] * 3
    by_block = " ".join(f"{ratio:.3f}" for ratio in found.block_ratios)
    return [f"{found.ratio:.3f}", f"{found.low:.3f} to {found.high:.3f}", by_block]


def _request(share: SampleShare) -> dict[str, Any]:
    sample, recording = share.sample, share.sample.recording
    return {
        "block": share.block,
        "category": sample.question.category,
        "seed": sample.question.seed,
        "share_s": share.share_s,
        "seconds": sample.ended_s - sample.sent_s,
        "ttft_s": ttft_s(sample),
        "tpot_s": tpot_s(recording) if recording else None,
        "prompt_tokens": recording.prompt_tokens if recording else None,
        "tokens": recording.completion_tokens if recording else None,
        "looping": looping(share),
        "error": sample.error or None,
    }


def _milliseconds(found: Distribution | None) -> list[str]:
    """Mean and percentiles as text."""
    if found is None:
        return [_NONE] * 4
    return [f"{value * 1e3:.1f}" for value in (found.mean, found.p50, found.p90, found.p99)]


def _number(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:.{digits}f}"
