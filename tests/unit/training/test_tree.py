"""Static trees, from accuracies that are known."""

import itertools

import pytest
import torch

from paceline.drafting.static_tree import read_static_tree
from paceline.errors import ConfigError
from paceline.training.corpus import Dialogue
from paceline.training.tree import best_tree, rank_accuracies, write_tree

VOCAB = 7


class Counting:
    """The feature of a token is the token: the target writes 0, 1, ..., 6, 0, 1, ..."""

    def hidden(self, token_ids):
        return token_ids[..., None].float()


class KnowingHeads:
    """Head k puts the token that comes at rank k."""

    num_heads = 3

    def __call__(self, features):
        logits = torch.zeros(self.num_heads, len(features), VOCAB)
        for head in range(self.num_heads):
            came = (features[:, 0].long() + head + 2) % VOCAB
            for rank in range(head + 1):
                logits[head, torch.arange(len(features)), (came + head - rank) % VOCAB] = 10.0 - rank
        return logits


def dialogue(start, length):
    text = [index % VOCAB for index in range(start, start + length)]
    return Dialogue(tuple(text[:3]), tuple(text[3:]), 0.0, "a")


def test_the_tree_is_the_best_of_all_trees():
    """Against every tree of that many nodes, by enumeration."""
    accuracies = [(0.5, 0.2, 0.1), (0.4, 0.3, 0.05)]
    nodes = {(a,): p for a, p in enumerate(accuracies[0])}
    nodes |= {(a, b): p * q for a, p in enumerate(accuracies[0]) for b, q in enumerate(accuracies[1])}

    for size in range(1, 7):
        trees = [
            chosen
            for chosen in itertools.combinations(nodes, size)
            if all(len(path) == 1 or path[:1] in chosen for path in chosen)
        ]
        best = max(sum(nodes[path] for path in chosen) for chosen in trees)

        assert best_tree(accuracies, nodes=size).expected == pytest.approx(best)


def test_any_first_paths_are_a_tree():
    """A smaller budget cuts the list, so a path comes after its beginning."""
    paths = best_tree([(0.6, 0.3), (0.9, 0.05), (0.9, 0.5)], nodes=14).paths

    assert all(len(path) == 1 or path[:-1] in paths[:place] for place, path in enumerate(paths))


def test_two_choices_of_two_heads_make_six_nodes():
    """2 + 2 x 2; there is nothing more to add."""
    tree = best_tree([(0.5, 0.4), (0.5, 0.4)], nodes=64)

    assert len(tree.paths) == 6
    assert set(tree.paths) == {(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)}


def test_choices_that_were_never_right_are_left_out():
    """They cost a node and bring nothing."""
    assert best_tree([(0.5, 0.0)], nodes=8).paths == ((0,),)


def test_what_is_no_share_is_refused():
    """Counts instead of shares, say."""
    with pytest.raises(ConfigError, match="shares from 0 to 1"):
        best_tree([(12.0,)], nodes=8)
    with pytest.raises(ConfigError, match="one head at least"):
        best_tree([], nodes=8)


@pytest.mark.parametrize("reduced", [False, True])
def test_accuracies_are_those_of_the_heads_own_offsets(reduced):
    """Head k is asked for token i + k + 2, on answers alone; each head is right at its own rank and no other."""
    ids = tuple(range(VOCAB)) if reduced else None
    shares = rank_accuracies(
        KnowingHeads(), Counting(), [dialogue(0, 20), dialogue(2, 9)], num_ranks=3, draft_token_ids=ids
    )

    assert shares == ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def test_a_token_that_cannot_be_drafted_is_never_right():
    """Ids of a reduced vocabulary are places in it."""

    class FirstAlways:
        def __call__(self, features):
            return torch.tensor([1.0, 0.0]).expand(1, len(features), 2)

    shares = rank_accuracies(FirstAlways(), Counting(), [dialogue(0, 3 + 7 + 1)], num_ranks=2, draft_token_ids=(3, 5))

    assert shares[0] == pytest.approx((1 / 7, 1 / 7))


def test_answers_too_short_to_measure_a_head_are_refused():
    """Rather than an accuracy of nothing."""
    with pytest.raises(ConfigError, match="too short"):
        rank_accuracies(KnowingHeads(), Counting(), [dialogue(0, 5)], num_ranks=3, draft_token_ids=None)


def test_a_tree_lies_beside_its_heads(tmp_path):
    """Where the drafter finds it; a measurement in which a worse choice was right more often makes a tree too."""
    made = best_tree([(0.3, 0.1, 0.2), (0.5, 0.25)], nodes=9)
    write_tree(made, tmp_path)
    found = read_static_tree(tmp_path, 2)

    assert len(made.paths) == 9
    assert found.shape(1, 9, 3) == {(): 3}
    assert sum(found.shape(2, 9, 3).values()) == 9
