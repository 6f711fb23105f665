"""The law of answers drafted by a cascade: by enumeration of every draw on every level, and through the engine."""

import functools
from collections.abc import Callable
from dataclasses import replace

import pytest

from answer_laws import DRAFT_LAW, LAW_TOKENS, TARGET_LAW, VOCAB, assert_pairs_and_conditionals, sample_of
from draft_dialogue import ask, opening, row
from drafters import ScriptedDrafter
from engine_harness import Harness
from enumeration import ChainCase, EnumeratingDraws, Tokens, exact_law, outcome_law, total_variation
from paceline.core.drafts import DraftProposal, DrawRule, SparseLaw
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting import cascade_growth
from paceline.drafting.cascade import CascadeDrafter
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.drafting.drafter import Drafter
from paceline.drafting.ngram import NgramDrafter
from paceline.engine.reroot import shorten
from paceline.verification.draft_draw import DraftChildren, wire_law
from paceline.verification.draws import DrawAsk
from paceline.verification.law import TokenLaw, sparse_probabilities
from paceline.verification.noise import NoiseKey, Purpose
from paceline.verification.sampling import target_law
from paceline.verification.verifier import make_verifier
from toy_target import ToyRunner, blended_law, hashed_law
from tree_enumeration import tree_row

KEY = NoiseKey(0, 0, 0, Purpose.TARGET)  # of no consequence: every outcome is visited
GUESS = 1  # what the cheapest level proposes, always


class Constant(ScriptedDrafter):
    """Proposes one id for ever: right at some places, wrong at others."""

    def chain(self, context: tuple[int, ...], num_tokens: int) -> tuple[int, ...]:
        return (GUESS,) * num_tokens


def make_case(index: int, params: SamplingParams | None = None, depth: int = 2) -> ChainCase:
    target, draft = hashed_law(3, scale=1.2, salt=2 * index), hashed_law(3, scale=1.5, salt=2 * index + 1)
    return ChainCase(3, depth, target, draft, params=params or SamplingParams())


def _drawn(draws: EnumeratingDraws, law: TokenLaw) -> int:
    return draws.sample([DrawAsk(law, KEY)])[0]


def enumerated_children(draws: EnumeratingDraws, logits, state, *, count: int, max_law_tokens: int) -> DraftChildren:
    """`draft_children` with every outcome in turn: siblings one after another, without replacement."""
    law = wire_law(target_law(logits, state), max_law_tokens)
    ids, chances = sparse_probabilities(law)
    taken: list[int] = []
    while len(taken) < count:
        left = [i for i, token_id in enumerate(ids.tolist()) if token_id not in taken and chances[i] > 0]
        if not left:
            break
        taken.append(_drawn(draws, TokenLaw(chances[left].log(), ids[left])))
    return DraftChildren(tuple(taken), (0.0,) * len(taken), law)


def without_residual(draws: EnumeratingDraws, logits, state, **options) -> DraftChildren:
    """A rejected draft of the level below is replaced by a fresh draw, that draft included: a known mistake."""
    first = enumerated_children(draws, logits, state, **options)
    return first if first.token_ids[0] == GUESS else enumerated_children(draws, logits, state, **options)


def as_drafted(proposal: DraftProposal) -> DraftProposal:
    return proposal


def with_the_cheap_law(proposal: DraftProposal) -> DraftProposal:
    """The law of the level below is handed up in place of the model's."""
    laws = tuple(SparseLaw((0, 1, 2), (0.2, 0.6, 0.2)) for _ in proposal.laws)
    return replace(proposal, laws=laws)


def without_unlikely_ends(proposal: DraftProposal) -> DraftProposal:
    """Drafts are dropped, from the end on, for being unlikely."""
    nodes = len(proposal.tree)
    while nodes:
        law = proposal.laws[nodes - 1]
        if law.probabilities[law.token_ids.index(proposal.tree.token_ids[nodes - 1])] > 0.4:
            break
        nodes -= 1
    return replace(shorten(proposal, max_nodes=nodes, max_depth=nodes), laws=proposal.laws[:nodes])


def answer_law(
    monkeypatch: pytest.MonkeyPatch,
    verifier: str,
    case: ChainCase,
    below: Callable[[], Drafter],
    *,
    children=enumerated_children,
    edit: Callable[[DraftProposal], DraftProposal] = as_drafted,
    top_k: int = 1,
) -> dict[Tokens, float]:
    """Law of the first ``case.depth + 1`` tokens: drafted by a cascade, verified, continued by plain sampling."""

    def run(draws: EnumeratingDraws) -> Tokens:
        monkeypatch.setattr(
            cascade_growth,
            "draft_children",
            lambda logits, state, *, count, max_law_tokens, **_: children(
                draws, logits, state, count=count, max_law_tokens=max_law_tokens
            ),
        )
        drafter = CascadeDrafter(ToyRunner(case.draft, case.vocab), below(), eos_token_ids=())
        drafter.open([opening(sampling=case.params, rule=DrawRule.INDEPENDENT, prompt_tokens=len(case.prompt), seed=0)])
        nodes = case.depth + (2 if top_k > 1 else 0)
        proposal = ask(drafter, row(HashedTokens(case.prompt), 0, depth=case.depth, nodes=nodes, top_k=top_k))
        assert isinstance(proposal, DraftProposal)
        proposal = edit(proposal)
        state = case.state()
        verified = tree_row(case, state, proposal.tree, proposal.laws)
        state.commit(make_verifier(verifier, draws=draws).verify([verified])[0].token_ids)
        while state.num_output <= case.depth:
            state.push(_drawn(draws, target_law(case.target_logits(state.output_token_ids), state)))
        return state.output_token_ids

    return outcome_law(run)


def distance(monkeypatch: pytest.MonkeyPatch, verifier: str, case: ChainCase, **options) -> float:
    return total_variation(answer_law(monkeypatch, verifier, case, Constant, **options), exact_law(case))


@pytest.mark.parametrize("verifier", ["rejection", "block"])
@pytest.mark.parametrize(
    "params", [SamplingParams(), SamplingParams(temperature=0.6, top_k=2), SamplingParams(repetition_penalty=1.8)]
)
def test_answers_have_the_law_of_the_target(monkeypatch, verifier, params):
    """At temperature 1 and others: drawn by the middle level, tested by the target, exact to rounding."""
    for index in range(3):
        assert distance(monkeypatch, verifier, make_case(index, params)) < 1e-12


def test_trees_have_the_law_of_the_target(monkeypatch):
    """The middle level's draws with siblings beside them, under recursive rejection."""
    assert distance(monkeypatch, "rejection", make_case(0), top_k=2) < 1e-12


@pytest.mark.full
@pytest.mark.parametrize("verifier", ["rejection", "block"])
def test_longer_chains_have_the_law_of_the_target(monkeypatch, verifier):
    """Three drafts, of which the middle level decides some in one pass and some in three."""
    for index in range(4):
        assert distance(monkeypatch, verifier, make_case(index, depth=3)) < 1e-12


def test_what_goes_up_has_the_law_of_the_middle_level(monkeypatch):
    """With a target that is the middle level's equal, every draft is accepted."""
    case = make_case(4)
    same = replace(case, target=case.draft)
    law = answer_law(monkeypatch, "rejection", same, Constant)
    assert total_variation(law, exact_law(same)) < 1e-12


@pytest.mark.parametrize(
    "mistake",
    [
        {"children": without_residual},
        {"edit": with_the_cheap_law},
        {"edit": without_unlikely_ends},
    ],
    ids=["no residual below", "the law of the level below", "unlikely drafts dropped"],
)
def test_known_mistakes_of_cascades_are_seen(monkeypatch, mistake):
    """What breaks the composition of exact levels shows in the law."""
    assert max(distance(monkeypatch, "rejection", make_case(index), **mistake) for index in range(3)) > 0.01


@functools.cache
def engine_answers(verifier: str, num_requests: int, top_k: int = 1):
    """Answers of the engine on three levels, and its counters."""
    middle = ToyRunner(DRAFT_LAW, VOCAB, num_pages=8192)
    near = blended_law(DRAFT_LAW, hashed_law(VOCAB, salt=9, memory=2), 0.4)
    small = DraftModelDrafter(ToyRunner(near, VOCAB, num_pages=8192), eos_token_ids=(), max_law_tokens=LAW_TOKENS)
    drafter = CascadeDrafter(middle, small, eos_token_ids=(), max_law_tokens=LAW_TOKENS)
    target = ToyRunner(TARGET_LAW, VOCAB, num_pages=8192)
    harness = Harness(
        target,
        {"cascade": drafter},
        verifier=verifier,
        max_running=128,
        step_tokens=2048,
        max_draft_tokens=4,
        top_k=top_k,
    )
    return sample_of(harness, num_requests, "cascade", 4)


@pytest.mark.parametrize(("verifier", "top_k"), [("rejection", 1), ("block", 1), ("coupled", 1), ("rejection", 2)])
def test_answers_of_the_engine_fit_the_target(verifier, top_k):
    """Round after round, with noise that belongs to each: adjacent tokens have the target's law."""
    sample = engine_answers(verifier, 1000, top_k)
    assert sum(r.accepted for r in sample.rounds) > len(sample.rounds) / 2
    assert_pairs_and_conditionals(sample.answers)


def test_a_seed_gives_the_text_of_plain_decoding():
    """Under `coupled`, greedy and drawn, chains and trees: the cascade changes no token, whatever is below it."""
    for below in (NgramDrafter(min_match=1), Constant()):
        for top_k in (1, 3):
            harness = Harness(
                ToyRunner(TARGET_LAW, VOCAB),
                {"cascade": CascadeDrafter(ToyRunner(DRAFT_LAW, VOCAB), below, eos_token_ids=())},
                top_k=top_k,
            )
            for seed in range(6):
                for drafter in (None, "cascade"):
                    harness.submit(f"{seed}/{drafter}", (1, 2, 3), drafter=drafter, seed=seed, temperature=seed % 3 / 2)
            harness.run()
            assert harness.counted("ACCEPTED_TOKENS", group="cascade") > 20
            for seed in range(6):
                assert harness.ids(f"{seed}/cascade") == harness.ids(f"{seed}/None")
