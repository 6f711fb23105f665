"""Draft trees through the engine, on a target whose law is known."""

import random

import pytest

from engine_harness import Harness
from paceline.core.drafts import DraftTree
from paceline.core.generation import FinishReason
from toy_target import ToyRunner, hashed_law
from tree_scripts import TreeScriptDrafter, continuing, hidden_truth, wrong_everywhere

VOCAB = 12
PROMPT = (1, 2, 3)
LAW = hashed_law(VOCAB, scale=2.0)
TWO_BY_TWO = (-1, -1, 0, 0, 1, 1)


def plain(**options):
    harness = Harness(ToyRunner(LAW, VOCAB))
    harness.submit("r/1", PROMPT, **options)
    harness.run()
    return harness


def with_trees(script, *, page_size=4, runner=ToyRunner, max_draft_tokens=8, eos=(), verifier="coupled", **options):
    harness = Harness(
        runner(LAW, VOCAB, page_size=page_size),
        {"trees": TreeScriptDrafter(script)},
        verifier=verifier,
        max_draft_tokens=max_draft_tokens,
        eos_token_ids=eos,
    )
    harness.submit("r/1", PROMPT, drafter="trees", max_draft_tokens=max_draft_tokens, **options)
    harness.run()
    return harness


def hidden(ids, seed=0, **options):
    return hidden_truth(continuing([PROMPT + ids]), VOCAB, random.Random(seed), **options)


class WatchedRunner(ToyRunner):
    """Notes at every pass how many slots are held, and for how many tokens and nodes."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.slots_in_pass: list[tuple[int, int]] = []  # (held, tokens with the nodes of the pass)
        self.widths: list[int] = []

    def forward(self, rows):
        logits = super().forward(rows)
        (row,) = rows
        self.slots_in_pass.append((self.pool.num_held, row.start + len(row.token_ids)))
        self.widths.append(len(row.parents))
        return logits


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_trees_give_the_plain_tokens_in_fewer_passes(temperature, page_size):
    """The accepted path is kept wherever it runs in the tree, across page borders too."""
    for seed in range(6):
        reference = plain(temperature=temperature, seed=seed, max_tokens=40)
        script = hidden(reference.ids("r/1"), seed)
        harness = with_trees(script, page_size=page_size, temperature=temperature, seed=seed, max_tokens=40)
        stats = harness.last("r/1").stats

        assert harness.ids("r/1") == reference.ids("r/1")
        assert harness.text("r/1") == reference.text("r/1")
        assert stats.rounds == harness.runner.num_forwards < 40
        assert stats.drafted > stats.tested > stats.accepted > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_tree_that_is_wrong_in_every_node_costs_nothing_but_drafts(temperature):
    """tau is exactly 1: the target's own token comes from the same pass."""
    reference = plain(temperature=temperature).ids("r/1")
    harness = with_trees(wrong_everywhere(continuing([PROMPT + reference]), VOCAB, TWO_BY_TWO), temperature=temperature)
    stats = harness.last("r/1").stats

    assert harness.ids("r/1") == reference
    assert (stats.tau, stats.alpha) == (1.0, 0.0)
    assert stats.drafted > 3 * stats.tested > 0
    assert harness.runner.num_forwards == stats.rounds == len(reference)


@pytest.mark.parametrize("verifier", ["coupled", "rejection"])
def test_a_tree_of_banned_tokens_leaves_the_targets_law(verifier):
    """No node can be accepted: each pass commits one token of its own, the residual being the law itself."""
    banned = (7, 8, 9, 10, 7, 8)
    harness = with_trees(
        lambda context, budget: DraftTree(banned, TWO_BY_TWO) if budget.max_nodes >= 6 else DraftTree((), ()),
        verifier=verifier,
        temperature=1.0,
        bad_words=tuple((token_id,) for token_id in set(banned)),
    )
    stats = harness.last("r/1").stats

    assert (stats.tau, stats.alpha, stats.accepted) == (1.0, 0.0, 0)
    assert stats.drafted == 6 * stats.tested > 100
    assert not set(harness.ids("r/1")) & set(banned)


def test_a_pass_takes_one_slot_for_each_node_and_gives_back_all_but_the_accepted():
    """A 2 x 2 tree holds 6 slots and not 8; after the step only the committed path is held."""
    reference = plain(temperature=1.0, max_tokens=40).ids("r/1")
    harness = Harness(
        WatchedRunner(LAW, VOCAB, page_size=1),
        {"trees": TreeScriptDrafter(wrong_everywhere(continuing([PROMPT + reference]), VOCAB, TWO_BY_TWO))},
    )
    harness.submit("r/1", PROMPT, drafter="trees", max_draft_tokens=6, temperature=1.0, max_tokens=40)
    while harness.engine.has_work:
        harness.engine.step()
        (sequence,) = harness.scheduler.running or (None,)
        if sequence is not None:
            assert harness.runner.pool.num_held == sequence.num_computed == len(sequence.tokens) - 1
    nodes = harness.runner.widths

    assert max(nodes) == 6
    assert nodes.count(6) > 20
    assert all(held == tokens for held, tokens in harness.runner.slots_in_pass)


def test_pages_hold_the_committed_tokens_after_every_round():
    """K/V after any number of rounds is what a fresh prefill would write; one-token pages copy none of it."""
    for page_size in (1, 3, 16):
        ids = plain(temperature=1.0, max_tokens=60).ids("r/1")
        runner = ToyRunner(LAW, VOCAB, page_size=page_size)
        harness = Harness(runner, {"trees": TreeScriptDrafter(hidden(ids, page_size))})
        harness.submit("r/1", PROMPT, drafter="trees", max_draft_tokens=8, temperature=1.0, max_tokens=60)
        while harness.engine.has_work:
            harness.engine.step()
            for sequence in harness.scheduler.running:
                slots = sequence.table.slots(0, sequence.num_computed)
                assert [runner._slots[slot] for slot in slots] == list(sequence.tokens.slice(0, sequence.num_computed))
        assert harness.ids("r/1") == ids
        assert (runner.num_moved == 0) == (page_size == 1)


def test_logprobs_of_a_path_are_those_of_plain_decoding():
    """Each token's logprob comes from the row of its own parent in the tree."""
    reference = plain(temperature=1.0, logprobs=3)
    harness = with_trees(hidden(reference.ids("r/1")), temperature=1.0, logprobs=3)

    assert [entry for chunk in harness.of("r/1") for entry in chunk.logprobs] == [
        entry for chunk in reference.of("r/1") for entry in chunk.logprobs
    ]


@pytest.mark.parametrize(
    "params",
    [
        {"presence_penalty": 1.5, "frequency_penalty": 1.0},
        {"repetition_penalty": 1.4},
        {"bad_words": ((4, 5), (7,))},
        {"top_k": 3, "top_p": 0.9},
        {"min_p": 0.2},
    ],
    ids=lambda params: next(iter(params)),
)
def test_the_law_of_a_node_sees_the_nodes_own_path(params):
    """Penalties and bad words count the ancestors of a node and no other branch."""
    for seed in range(4):
        reference = plain(temperature=1.0, seed=seed, **params).ids("r/1")
        harness = with_trees(hidden(reference, seed), temperature=1.0, seed=seed, **params)

        assert harness.ids("r/1") == reference
        assert harness.last("r/1").stats.accepted > 0


def test_an_answer_ends_inside_a_path_where_plain_decoding_ends():
    """End of sequence and length limit cut a path at the token, and what lies behind counts for nothing."""
    free = plain(temperature=0.0, max_tokens=16).ids("r/1")
    for place in range(1, 12):
        eos = (free[place],)
        harness = with_trees(hidden(free, share=1.0), eos=eos, temperature=0.0, max_tokens=16)
        assert harness.ids("r/1") == free[: free.index(free[place]) + 1]
        assert harness.last("r/1").finish is FinishReason.STOP
        assert harness.last("r/1").stats.alpha in (None, 1.0)  # the first token ends it: nothing was drafted
    for max_tokens in range(1, 9):
        ids = with_trees(hidden(free, share=1.0), temperature=0.0, max_tokens=max_tokens).ids("r/1")
        assert ids == free[:max_tokens]


def test_counts_are_by_level_and_drafts_by_node():
    """a_i of a level: rounds that reached it and drafted it, against those that accepted there."""
    ids = plain(temperature=1.0, max_tokens=60).ids("r/1")
    harness = with_trees(hidden(ids), temperature=1.0, max_tokens=60, explain=True)
    rounds = [trace for chunk in harness.of("r/1") for trace in chunk.rounds if trace.drafted]
    stats = harness.last("r/1").stats

    def levels_below(trace):
        tree = DraftTree(trace.drafted, trace.parents or DraftTree.chain(trace.drafted).parents)
        path = trace.path or tuple(range(trace.accepted))
        return bool(tree.children(path[-1] if path else -1))

    for level in range(3):
        tested = sum(r.accepted > level or (r.accepted == level and levels_below(r)) for r in rounds)
        accepted = sum(r.accepted > level for r in rounds)
        assert tested > 0
        assert harness.counted("TESTED_AT", group="trees", position=str(level)) == tested
        assert harness.counted("ACCEPTED_AT", group="trees", position=str(level)) == accepted
    assert stats.drafted == sum(len(r.drafted) for r in rounds) == harness.counted("DRAFTED_TOKENS", group="trees")
    assert stats.accepted == sum(r.accepted for r in rounds)
    assert stats.tau == 60 / harness.runner.num_forwards


def test_explain_shows_the_tree_and_the_path_that_was_accepted():
    """The tokens of the paths and the target's own, round after round, are the answer."""
    ids = plain(temperature=1.0).ids("r/1")
    harness = with_trees(hidden(ids), temperature=1.0, explain=True)
    rounds = [trace for chunk in harness.of("r/1") for trace in chunk.rounds]
    shown = []
    for trace in rounds:
        path = trace.path if trace.parents else range(trace.accepted)
        parents = trace.parents or DraftTree.chain(trace.drafted).parents
        assert [parents[node] for node in path] == [-1, *path][: len(path)]
        shown += [trace.drafted[node] for node in path]
        shown += [] if trace.target_token is None else [trace.target_token]

    assert tuple(shown) == ids
    assert any(trace.path and trace.path != tuple(range(trace.accepted)) for trace in rounds)


def test_a_chain_reaches_the_model_as_plain_tokens():
    """A tree with one branch needs no tree attention."""
    ids = plain(temperature=1.0).ids("r/1")
    seen = []

    class Spy(ToyRunner):
        def forward(self, rows):
            seen.extend(row.parents for row in rows)
            return super().forward(rows)

    script = lambda context, budget: DraftTree.chain(ids[len(context) - 3 :][: budget.max_depth])  # noqa: E731
    assert with_trees(script, runner=Spy, temperature=1.0).ids("r/1") == ids
    assert set(seen) == {()}
