"""Trees of Medusa checkpoints."""

import json
from pathlib import Path

import pytest

from paceline.drafting.static_tree import FILE, StaticTree, read_static_tree
from paceline.errors import ModelRefusedError

PATHS = [(0,), (1,), (0, 0), (0, 1), (2,), (1, 0), (1, 1), (0, 0, 0)]


def test_a_tree_of_two_by_two_has_six_nodes() -> None:
    """Two choices of each of two heads: 2 + 4 nodes, and the last committed token is none of them."""
    shape = StaticTree(PATHS).shape(2, 64, 2)
    assert shape == {(): 2, (0,): 2, (1,): 2}
    assert sum(shape.values()) == 6


@pytest.mark.parametrize("max_nodes", range(1, 9))
def test_a_budget_takes_the_first_paths(max_nodes: int) -> None:
    """Fewer nodes are the better part of more."""
    shape = StaticTree(PATHS).shape(3, max_nodes, 8)
    assert sum(shape.values()) == max_nodes
    bigger = StaticTree(PATHS).shape(3, max_nodes + 1, 8)
    assert all(bigger[node] >= count for node, count in shape.items())


def test_one_choice_a_node_is_a_chain_of_the_whole_depth() -> None:
    """Also where the tree itself is not as deep."""
    assert StaticTree(PATHS).shape(4, 4, 1) == {(): 1, (0,): 1, (0, 0): 1, (0, 0, 0): 1}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """A folder without the file has no tree."""
    assert read_static_tree(tmp_path, 3) is None
    (tmp_path / FILE).write_text(json.dumps({"paths": PATHS}))
    tree = read_static_tree(tmp_path, 3)
    assert tree is not None
    assert tree.shape(3, 8, 8) == StaticTree(PATHS).shape(3, 8, 8)


@pytest.mark.parametrize(
    "paths",
    [[], [[0], [0]], [[0, 0], [0]], [[1], [0]], [[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]], [[0], [-1]], [["a"]], 3],
)
def test_what_is_no_tree_is_refused(tmp_path: Path, paths: object) -> None:
    """The sentence names the file."""
    (tmp_path / FILE).write_text(json.dumps({"paths": paths}))
    with pytest.raises(ModelRefusedError, match=FILE):
        read_static_tree(tmp_path, 3)
