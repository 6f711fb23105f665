"""A pass over two layers behind different contexts: attention is what grows from one to the other."""

import pytest

from paceline.kvcache.page_pool import PageTable
from paceline.modeling.forward_row import ForwardRow

# (sequences, tokens of each, context of each)
POINTS = {
    "decode-short": (1, 1, 64),
    "decode-long": (1, 1, 1024),
    "verify-long": (1, 8, 1024),
    "batch": (16, 1, 256),
    "batch-verify": (16, 5, 256),
    "prefill": (1, 256, 0),
}
TREE = (-1, -1, 0, 0, 1, 1, 2, 2)


@pytest.mark.parametrize("point", POINTS)
def test_pass(benchmark, runner, point):
    """All K/V and all logits of the pass."""
    sequences, tokens, context = POINTS[point]
    tables = [PageTable(runner.pool, context + tokens) for _ in range(sequences)]
    for table in tables:
        table.extend_to(context + tokens)
        if context:
            runner.forward([ForwardRow([i % 4096 for i in range(context)], 0, table, 0)])
    rows = [ForwardRow(list(range(tokens)), context, table, min(tokens, 8)) for table in tables]

    result = benchmark(runner.forward, rows)
    for table in tables:
        table.free()
    assert len(result) == sequences * min(tokens, 8)


def test_tree_pass(benchmark, runner):
    """A tree of eight nodes behind 1024 tokens, beside the token that it follows."""
    table = PageTable(runner.pool, 1024 + 9)
    table.extend_to(1024 + 9)
    runner.forward([ForwardRow([i % 4096 for i in range(1024)], 0, table, 0)])

    result = benchmark(runner.forward, [ForwardRow(list(range(9)), 1024, table, 9, parents=TREE)])
    table.free()
    assert len(result) == 9
