"""From the blocks of `bench pass` to tables and data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from paceline.bench.compare import BlockPair, Comparison, compare
from paceline.bench.pass_candidates import Timing, seconds_of, speed_of, tokens_of
from paceline.bench.pass_matmuls import MATMUL_ROWS
from paceline.bench.pass_records import Chosen, PassBlock, PassSetup
from paceline.bench.report import Table


def pass_tables(setup: PassSetup, chosen: Chosen, blocks: Sequence[PassBlock]) -> tuple[list[Table], dict[str, Any]]:
    """Tables for people and data for programs."""
    stock = _compared([(block.stock, block.engine) for block in blocks])
    matmuls = {
        rows: _compared([(_as_timings(block.matmul_s[rows], block.engine), _decode(block.engine)) for block in blocks])
        for rows in MATMUL_ROWS
    }
    parallel = _compared([(block.engine, block.together) for block in blocks])
    sizes = _size_rows(setup, blocks)
    tables = [
        _batch_one_table(chosen, blocks, stock, matmuls),
        _parallel_table(setup, chosen, blocks, parallel),
        Table(
            "v(n): one target pass over n tokens of one sequence",
            ["n", "ms", "v(n)", "v(n) by block", "ms a token"],
            sizes,
            [_median_note(setup, chosen)],
        ),
    ]
    data = {
        "chosen": {role: {"kind": kind, "threads": threads} for role, (kind, threads) in chosen.items()},
        "engine_over_stock": asdict(stock),
        "engine_decode_over_matmuls": {str(rows): asdict(found) for rows, found in matmuls.items()},
        "parallel_over_one": asdict(parallel),
        "v": {str(size): _ratios(blocks, size, setup.sizes[0]) for size in setup.sizes},
        "blocks": [asdict(block) for block in blocks],
    }
    return tables, data


def _median_note(setup: PassSetup, chosen: Chosen) -> str:
    threads = chosen["engine"][1]
    return f"Median of {setup.repeats} passes in each block, behind {setup.context} tokens, {threads} threads."


def _batch_one_table(
    chosen: Chosen,
    blocks: Sequence[PassBlock],
    stock: Comparison,
    matmuls: Mapping[int, Comparison],
) -> Table:
    engine_speed = speed_of([timing for block in blocks for timing in block.engine])
    decode_speed = speed_of([timing for block in blocks for timing in _decode(block.engine)])
    stock_speed = speed_of([timing for block in blocks for timing in block.stock])
    rows = [
        [f"engine, plain ({chosen['engine'][1]} threads)", f"{engine_speed:.1f}", "", ""],
        [f"generate, {chosen['stock'][0]} ({chosen['stock'][1]} threads)", f"{stock_speed:.1f}", *_ratio_cells(stock)],
        [f"engine after the first token ({chosen['engine'][1]} threads)", f"{decode_speed:.1f}", "", ""],
    ]
    for num_rows, found in matmuls.items():
        speed = len(blocks) / sum(block.matmul_s[num_rows] for block in blocks)
        name = f"{chosen['matmuls'][0]} matmuls alone, {num_rows} rows ({chosen['matmuls'][1]} threads)"
        rows.append([name, f"{speed:.1f} passes/s", *_ratio_cells(found)])
    notes = [
        "Ratios: engine over the row, sum of tokens over sum of time; over matmuls after the first token.",
        "Greedy, end of text ignored, prefill included; each candidate with its fastest number of threads.",
    ]
    return Table("Batch 1", ["candidate", "tokens/s", "engine over it", "95 % interval"], rows, notes)


def _parallel_table(setup: PassSetup, chosen: Chosen, blocks: Sequence[PassBlock], found: Comparison) -> Table:
    alone = speed_of([timing for block in blocks for timing in block.engine])
    together = speed_of([timing for block in blocks for timing in block.together])
    rows = [
        ["1", f"{alone:.1f}", "", ""],
        [str(setup.parallel), f"{together:.1f}", *_ratio_cells(found)],
    ]
    title = f"Requests at a time ({chosen['parallel'][1]} threads)"
    return Table(title, ["requests", "tokens/s", "ratio", "95 % interval"], rows)


def _size_rows(setup: PassSetup, blocks: Sequence[PassBlock]) -> list[list[str]]:
    rows = []
    for size in setup.sizes:
        ratios = _ratios(blocks, size, setup.sizes[0])
        ms = median(median(block.pass_s[size]) for block in blocks) * 1e3
        by_block = " ".join(f"{ratio:.2f}" for ratio in ratios)
        rows.append([str(size), f"{ms:.1f}", f"{median(ratios):.3f}", by_block, f"{ms / size:.2f}"])
    return rows


def _ratios(blocks: Sequence[PassBlock], size: int, base: int) -> list[float]:
    """V of one size in each block."""
    return [median(block.pass_s[size]) / median(block.pass_s[base]) for block in blocks]


def _compared(sides: Sequence[tuple[Sequence[Timing], Sequence[Timing]]]) -> Comparison:
    """Speed of the second sides over that of the first ones."""
    return compare([BlockPair(tokens_of(a), seconds_of(a), tokens_of(b), seconds_of(b)) for a, b in sides])


def _as_timings(pass_s: float, engine: Sequence[Timing]) -> list[Timing]:
    """Bare matrix products for as many tokens as the engine decoded after the first ones."""
    tokens = tokens_of(_decode(engine))
    return [Timing(pass_s * tokens, 0.0, tokens)]


def _decode(timings: Sequence[Timing]) -> list[Timing]:
    """The part after the first token of single answers."""
    return [Timing(timing.seconds - timing.first_s, 0.0, timing.tokens - 1) for timing in timings]


def _ratio_cells(found: Comparison) -> list[str]:
    return [f"{found.ratio:.3f}", f"{found.low:.3f} to {found.high:.3f}"]
