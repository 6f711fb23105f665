"""What all verifiers promise besides their law."""

import math
import random
from collections.abc import Sequence

import pytest
import torch

from paceline.core.drafts import DraftProposal, DraftTree, DrawRule, SparseLaw
from paceline.core.sampling_params import SamplingParams
from paceline.errors import ConfigError, EngineFailedError
from paceline.verification import block, rejection, walk
from paceline.verification.draft_draw import draft_choice
from paceline.verification.sampler_state import SamplerState
from paceline.verification.verifier import VERIFIERS, VerifyRow, make_verifier
from toy_target import hashed_law
from tree_enumeration import path_tokens

VOCAB = 6
TARGET = hashed_law(VOCAB, salt=1)
PROMPT = (1, 2)


def state_for(seed: int = 0, *, params: SamplingParams | None = None) -> SamplerState:
    params = SamplingParams(presence_penalty=0.5) if params is None else params
    return SamplerState(params, prompt_token_ids=PROMPT, eos_token_ids=(0,), seed=seed)


def row_for(
    state: SamplerState,
    drafts: Sequence[int],
    laws: tuple[SparseLaw, ...] = (),
    *,
    parents: tuple[int, ...] | None = None,
) -> VerifyRow:
    prefix = PROMPT + state.output_token_ids
    tree = DraftTree.chain(tuple(drafts)) if parents is None else DraftTree(tuple(drafts), parents)
    logits = torch.stack([TARGET(prefix + path_tokens(tree, node)) for node in range(-1, len(tree))])
    return VerifyRow(state, logits, DraftProposal("s", len(prefix), 0, tree, laws))


def plain_tokens(name: str, *, seed: int, count: int) -> tuple[int, ...]:
    state = state_for(seed)
    for _ in range(count):
        logits = TARGET(PROMPT + state.output_token_ids)[None, :]
        state.commit(make_verifier(name).sample([VerifyRow(state, logits, None)])[0].token_ids)
    return state.output_token_ids


@pytest.mark.parametrize("name", VERIFIERS)
def test_states_are_left_as_found(name: str) -> None:
    """Verification commits nothing: the engine does, after finish rules have had their say."""
    for seed in range(30):
        state = state_for(seed)
        state.commit((3, 4))
        make_verifier(name).verify([row_for(state, (1, 2, 3)), row_for(state_for(seed), ())])

        assert state.output_token_ids == (3, 4)
        assert state.output_counts() == {3: 1, 4: 1}


@pytest.mark.parametrize("name", VERIFIERS)
def test_states_are_left_as_found_after_an_error(name: str) -> None:
    """Broken logits in mid-chain do not leave drafts behind in the state."""
    state = state_for(params=SamplingParams(temperature=0.0))
    best = int(TARGET(PROMPT).argmax())
    row = row_for(state, (best, 0))
    row.logits[1] = math.nan

    with pytest.raises(EngineFailedError):
        make_verifier(name).verify([row])
    assert state.output_token_ids == ()


@pytest.mark.parametrize("name", VERIFIERS)
def test_the_verdict_is_drafts_then_one_token(name: str) -> None:
    """Accepted drafts form a prefix, one token of the target follows, and tested stops at the first rejection."""
    lengths = set()
    for seed in range(60):
        drafts = (seed % VOCAB, 2, 3)
        verdict = make_verifier(name).verify([row_for(state_for(seed), drafts)])[0]
        lengths.add(verdict.accepted)

        assert verdict.token_ids[: verdict.accepted] == drafts[: verdict.accepted]
        assert len(verdict.token_ids) == verdict.accepted + 1
        assert verdict.tested == min(verdict.accepted + 1, 3)
    assert len(lengths) > 1


@pytest.mark.parametrize("name", VERIFIERS)
def test_rows_without_drafts_are_sampled_plainly(name: str) -> None:
    """`verify` of a row without drafts is `sample`, and counts nothing as tested."""
    row = VerifyRow(state_for(4), TARGET(PROMPT)[None, :], None)
    empty = row_for(state_for(4), ())
    verifier = make_verifier(name)

    assert verifier.verify([row, empty]) == verifier.sample([row, empty])
    assert verifier.sample([row])[0].tested == 0


def test_coupled_text_does_not_depend_on_the_drafts() -> None:
    """For a seed, any drafts in any round give the tokens of plain decoding."""
    for seed in range(20):
        plain = plain_tokens("coupled", seed=seed, count=10)
        state = state_for(seed)
        while state.num_output < 10:
            done = state.num_output
            wrong = tuple((token_id + (index == seed % 3)) % VOCAB for index, token_id in enumerate(plain[done:][:3]))
            state.commit(make_verifier("coupled").verify([row_for(state, wrong)])[0].token_ids)

        assert state.output_token_ids[:10] == plain


TREES = {
    "two by two": (-1, -1, 0, 0, 1, 1),
    "wide": (-1,) * 5,
    "deep on the second": (-1, -1, 1, 2, 3),
    "uneven": (-1, 0, 0, 1, 2, 2, 4),
}


@pytest.mark.parametrize("shape", TREES)
def test_coupled_text_does_not_depend_on_the_tree(shape: str) -> None:
    """For a seed, any tree in any round gives the tokens of plain decoding, whichever of its nodes are right."""
    parents, depths = TREES[shape], DraftTree((0,) * len(TREES[shape]), TREES[shape]).depths
    paths = set()
    for seed in range(12):
        plain = plain_tokens("coupled", seed=seed, count=10)
        state, dice = state_for(seed), random.Random(seed)
        while state.num_output < 10:
            rest = (*plain[state.num_output :], *range(VOCAB))
            drafts = [rest[depth - 1] if dice.random() < 0.6 else dice.randrange(VOCAB) for depth in depths]
            verdict = make_verifier("coupled").verify([row_for(state, drafts, parents=parents)])[0]
            paths.add(verdict.path)
            state.commit(verdict.token_ids)

        assert state.output_token_ids[:10] == plain
    assert len(paths) > 2


@pytest.mark.parametrize("name", VERIFIERS)
@pytest.mark.parametrize("shape", TREES)
def test_a_verdict_names_its_path(name: str, shape: str) -> None:
    """The path leads from the root down, its tokens are those of the verdict, and tested counts levels."""
    for seed in range(40):
        row = row_for(
            state_for(seed), [(seed + node) % VOCAB for node in range(len(TREES[shape]))], parents=TREES[shape]
        )
        verdict = make_verifier(name).verify([row])[0]
        last = verdict.path[-1] if verdict.path else -1

        assert [row.tree.parents[node] for node in verdict.path] == [-1, *verdict.path[:-1]][: len(verdict.path)]
        assert verdict.token_ids[:-1] == path_tokens(row.tree, last)
        assert verdict.accepted == len(verdict.path)
        assert verdict.tested == verdict.accepted + (1 if row.tree.children(last) else 0)


@pytest.mark.parametrize("name", VERIFIERS)
def test_rows_do_not_depend_on_company(name: str) -> None:
    """Rows verified together get what each would get alone."""
    rows = [row_for(state_for(seed), (1, 2, 3, 4, 5, 0, 1), parents=TREES["uneven"]) for seed in range(20)]
    rows += [row_for(state_for(seed), (seed % VOCAB, 2)) for seed in range(20)]
    rows += [row_for(state_for(seed), ()) for seed in range(5)]

    assert make_verifier(name).verify(rows) == [make_verifier(name).verify([row])[0] for row in rows]


@pytest.mark.parametrize("name", VERIFIERS)
def test_masks_span_committed_tokens_and_the_path(name: str) -> None:
    """A bad word may begin in what is committed and end in the tree; min_tokens counts the nodes above."""
    params = SamplingParams(bad_words=((3, 4), (3, 1, 2)), min_tokens=3)
    seconds = set()
    for seed in range(120):
        state = state_for(seed, params=params)
        state.commit((3,))
        row = row_for(state, (4, 1, 2, 0, 5), parents=(-1, -1, 1, 1, 1))
        token_ids = make_verifier(name).verify([row])[0].token_ids
        seconds |= {token_ids[1]} if len(token_ids) > 1 else set()

        assert token_ids[0] != 4
        assert token_ids[:2] != (1, 2)
        assert 0 not in token_ids[:2]  # the end, before three tokens are out
    assert seconds or name == "block"  # whose first branch is the forbidden one


def test_of_repeated_siblings_one_counts() -> None:
    """A token that is offered twice below one node is accepted once, and its first node is followed."""
    for name in VERIFIERS:
        for seed in range(20):
            best = plain_tokens("coupled", seed=seed, count=1)[0]
            verdict = make_verifier(name).verify([row_for(state_for(seed), (best, best, best), parents=(-1, -1, -1))])[
                0
            ]

            assert verdict.path in ((), (0,))


def test_block_looks_at_the_first_branch_of_a_tree() -> None:
    """A tree that gets to `block` all the same is verified as the chain of first children."""
    for seed in range(30):
        tree = row_for(state_for(seed), (1, 5, 2, 4, 3), parents=(-1, -1, 0, 0, 2))
        verdict = make_verifier("block").verify([tree])[0]

        assert verdict[:3] == make_verifier("block").verify([row_for(state_for(seed), (1, 2, 3))])[0][:3]
        assert verdict.path == (0, 2, 4)[: verdict.accepted]


def test_choices_of_one_seed_differ() -> None:
    """The choices of a request have noise of their own."""
    tokens = set()
    for choice in range(40):
        state = SamplerState(SamplingParams(), prompt_token_ids=PROMPT, eos_token_ids=(), seed=1, choice=choice)
        tokens |= set(make_verifier("coupled").sample([VerifyRow(state, torch.zeros(1, VOCAB), None)])[0].token_ids)

    assert len(tokens) > 1


@pytest.mark.parametrize("name", ["coupled", "rejection"])
def test_only_reached_rows_are_warped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk looks at accepted + 1 rows of logits, never at those behind a rejection."""
    calls = []
    original = walk.target_laws
    monkeypatch.setattr(walk, "target_laws", lambda logits, states: calls.extend(states) or original(logits, states))
    for seed in range(30):
        calls.clear()
        verdict = make_verifier(name).verify([row_for(state_for(seed), (1, 2, 3))])[0]

        assert len(calls) == verdict.accepted + 1


@pytest.mark.parametrize("name", VERIFIERS)
def test_wrong_row_counts_are_refused(name: str) -> None:
    """A verifier never guesses what a missing row means."""
    verifier = make_verifier(name)
    short = row_for(state_for(), (1, 2))

    with pytest.raises(EngineFailedError, match="2 rows of logits"):
        verifier.verify([VerifyRow(short.state, short.logits[:2], short.proposal)])


LIES = {
    "own token missing": SparseLaw((2, 3), (0.5, 0.5)),
    "own token at zero": SparseLaw((1, 2), (0.0, 1.0)),
    "all zeros": SparseLaw((1, 2), (0.0, 0.0)),
    "empty": SparseLaw((), ()),
    "NaN": SparseLaw((1, 2), (math.nan, 0.5)),
    "infinite": SparseLaw((1, 2), (math.inf, 0.5)),
    "negative": SparseLaw((1, 2), (1.5, -0.5)),
    "repeated ids": SparseLaw((1, 1), (0.5, 0.5)),
    "lengths differ": SparseLaw((1, 2, 3), (0.5, 0.5)),
}


@pytest.mark.parametrize("name", ["rejection", "block"])
@pytest.mark.parametrize("lie", LIES)
def test_a_false_law_ends_the_chain(name: str, lie: str) -> None:
    """A draft whose law cannot be true is not accepted, and the target's token there is drawn from p itself."""
    for seed in range(10):
        lied = row_for(state_for(seed), (1, 2), (LIES[lie], SparseLaw((2,), (1.0,))))
        verdict = make_verifier(name).verify([lied])[0]

        assert (verdict.accepted, verdict.tested, len(verdict.token_ids)) == (0, 1, 1)


@pytest.mark.parametrize("name", ["rejection", "block"])
def test_a_missing_law_ends_the_chain(name: str) -> None:
    """Drafts beyond the laws that came along are not accepted."""
    for seed in range(20):
        verdict = make_verifier(name).verify([row_for(state_for(seed), (1, 2), (SparseLaw((1,), (1.0,)),))])[0]

        assert verdict.accepted <= 1


def test_a_sibling_with_a_false_law_is_not_tested() -> None:
    """A law that is not its first sibling's, or a repeated draft, ends the level: what is left of p gives the token."""
    worst, *_, best = TARGET(PROMPT).argsort().tolist()
    law, other = SparseLaw((worst, best), (0.875, 0.125)), SparseLaw((worst, best), (0.75, 0.25))
    elsewhere = SparseLaw((worst,), (1.0,))
    cases = {
        "another law": ((worst, best), (law, other)),
        "no law": ((worst, best), (law,)),
        "not in the law": ((worst, best), (elsewhere, elsewhere)),
        "a repeat": ((worst, worst, best), (law, law, law)),
    }
    paths = set()
    for seed in range(40):
        true = row_for(state_for(seed), (worst, best), (law, law), parents=(-1, -1))
        paths.add(make_verifier("rejection").verify([true])[0].path)
        for case, (drafts, laws) in cases.items():
            row = row_for(state_for(seed), drafts, laws, parents=(-1,) * len(drafts))
            alone = row_for(state_for(seed), drafts[:1], laws[:1])

            assert make_verifier("rejection").verify([row]) == make_verifier("rejection").verify([alone]), case
    assert (1,) in paths


@pytest.mark.parametrize("name", ["rejection", "block"])
def test_a_draft_law_with_ids_outside_the_vocabulary_is_harmless(name: str) -> None:
    """Mass on ids that do not exist only lowers acceptance."""
    law = SparseLaw((1, 900), (0.5, 0.5))

    verdict = make_verifier(name).verify([row_for(state_for(), (1,), (law,))])[0]

    assert all(token_id < VOCAB for token_id in verdict.token_ids)


def test_a_self_draft_is_always_accepted() -> None:
    """A drafter with the target's own law loses no draft, under any verifier."""
    for name in VERIFIERS:
        verifier = make_verifier(name)
        for seed in range(25):
            state, drafts, laws = state_for(seed), (), ()
            with state.walk():
                for _ in range(4):
                    logits = TARGET(PROMPT + state.output_token_ids)
                    token_id, law = draft_choice(
                        logits, state, rule=verifier.draw_rule, round_start=len(PROMPT), max_law_tokens=VOCAB
                    )
                    state.push(token_id)
                    drafts, laws = (*drafts, token_id), laws if law is None else (*laws, law)

            # float32 on the wire leaves a rejection chance of about 1e-7 a draft.
            assert verifier.verify([row_for(state, drafts, laws)])[0].accepted == 4


def test_registry() -> None:
    """The names of the configuration make verifiers of that name; another name lists the known ones."""
    facts = {name: (make_verifier(name).draw_rule, make_verifier(name).seed_invariant) for name in VERIFIERS}

    assert facts == {
        "coupled": (DrawRule.COUPLED, True),
        "rejection": (DrawRule.INDEPENDENT, False),
        "block": (DrawRule.INDEPENDENT, False),
    }
    assert all(make_verifier(name).name == name for name in VERIFIERS)
    with pytest.raises(ConfigError, match="coupled, rejection, block"):
        make_verifier("typical")


def test_block_and_rejection_are_different_rules() -> None:
    """The registry does not map two names to one rule."""
    assert block.verify is not rejection.verify
