"""A cascade proposes what its model alone would, in fewer passes, whatever the level below does."""

import random
from collections.abc import Callable

import pytest
import torch

from draft_dialogue import GREEDY, ask, opening, replies, row
from drafters import CrashingDrafter, LyingDrafter, OracleDrafter, ScriptedDrafter, StaleDrafter
from paceline.core.drafts import DraftProposal, DraftRefusal, DraftReply, DraftRequest, DraftTree, DrawRule, NeedSync
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.cascade import CascadeDrafter
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.drafting.drafter import Drafter
from paceline.drafting.ngram import NgramDrafter
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics
from paceline.verification.draft_ids import DraftIds
from toy_target import ToyRunner, blended_law, hashed_law

VOCAB = 11
LAW = hashed_law(VOCAB, memory=3)
NEAR = blended_law(LAW, hashed_law(VOCAB, salt=1), 0.3)
KINDS = {
    "greedy": (GREEDY, DrawRule.COUPLED),
    "coupled": (SamplingParams(temperature=1.0, repetition_penalty=1.2), DrawRule.COUPLED),
    "drawn": (SamplingParams(temperature=1.0, top_p=0.95), DrawRule.INDEPENDENT),
}
EOS = (3,)


def model(law=LAW, *, eos=EOS, page_size=4) -> DraftModelDrafter:
    return DraftModelDrafter(
        ToyRunner(law, VOCAB, page_size=page_size, num_pages=2048 // page_size), eos_token_ids=eos, max_law_tokens=6
    )


def cascade(below: Drafter, *, law=LAW, eos=EOS, page_size=4, metrics=None, level=1) -> CascadeDrafter:
    return CascadeDrafter(
        ToyRunner(law, VOCAB, page_size=page_size, num_pages=2048 // page_size),
        below,
        eos_token_ids=eos,
        max_law_tokens=6,
        group="g",
        level=level,
        metrics=metrics or Metrics(strict=True),
    )


class Forgetful(NgramDrafter):
    """Loses sessions at random."""

    def request(self, rows):
        self.close([row.session for row in rows if random.Random(len(row.new_token_ids)).random() < 0.5])
        super().request(rows)


class Refusing(ScriptedDrafter):
    def reply(self, row: DraftRequest) -> DraftReply:
        return DraftRefusal(row.session, "OVERLOADED", 5)


class Nagging(ScriptedDrafter):
    """Needs sync for ever."""

    def reply(self, row: DraftRequest) -> DraftReply:
        return NeedSync(row.session, 0)


class Silent(ScriptedDrafter):
    """Never answers, and says that it will."""

    def collect(self, timeout_s: float) -> list[DraftReply]:
        return []


class Wild(ScriptedDrafter):
    """Random trees, wide and deep, of which some break the rules."""

    def reply(self, row: DraftRequest) -> DraftReply:
        session = self.sessions.get(row.session)
        assert session is not None
        dice = random.Random(len(session.tokens))
        nodes = dice.randrange(1, row.budget.max_nodes + 2)
        tree = DraftTree(
            tuple(dice.randrange(-1 if dice.random() < 0.1 else 0, VOCAB) for _ in range(nodes)),
            tuple(dice.randrange(-1, node if dice.random() < 0.9 else node + 1) for node in range(nodes)),
        )
        return DraftProposal(row.session, len(session.tokens), session.context_hash, tree)


BELOW: dict[str, Callable[[], Drafter]] = {
    "ngram": lambda: NgramDrafter(min_match=1),
    "the same model": model,
    "a near model": lambda: model(NEAR),
    "another cascade": lambda: cascade(NgramDrafter(min_match=1), law=NEAR),
    "nothing": ScriptedDrafter,
    "forgetful": lambda: Forgetful(min_match=1),
    "refusing": Refusing,
    "nagging": Nagging,
    "silent": Silent,
    "wild": Wild,
    "stale": lambda: StaleDrafter([tuple([1, 2, 3, 4, 5] * 30)]),
    **{
        lie: (lambda lie=lie: LyingDrafter([tuple([1, 2, 3, 4, 5] * 30)], lie=lie, vocab_size=VOCAB))
        for lie in LyingDrafter.LIES
    },
}


def _trunk(proposal: DraftProposal) -> tuple[int, ...]:
    """The path of first children."""
    node, ids = -1, []
    while below := proposal.tree.children(node):
        node = below[0]
        ids.append(proposal.tree.token_ids[node])
    return tuple(ids)


def _open(drafter: Drafter, kind: str) -> None:
    sampling, rule = KINDS[kind]
    drafter.open([opening(sampling=sampling, rule=rule, prompt_tokens=8)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("below", BELOW)
@pytest.mark.parametrize("page_size", [1, 4])
def test_chains_are_those_of_the_model_alone(below: str, kind: str, page_size: int) -> None:
    """Same tokens, same laws, in every round of an answer in which drafts are accepted, cut short and corrected."""
    alone, made = model(page_size=page_size), cascade(BELOW[below](), page_size=page_size)
    _open(alone, kind)
    _open(made, kind)
    dice, tokens, base = random.Random(1), HashedTokens(random.Random(2).choices(range(3), k=12)), 0
    for _ in range(15):
        request = row(tokens, base, depth=dice.choice((1, 2, 5, 8)))
        expected, found = ask(alone, request), ask(made, request)
        assert isinstance(expected, DraftProposal)
        assert isinstance(found, DraftProposal)
        assert (found.tree, found.laws, found.base_hash) == (expected.tree, expected.laws, expected.base_hash)
        base = len(tokens)
        kept = dice.randrange(len(found.tree) + 1)
        tokens.extend([*found.tree.token_ids[:kept], dice.randrange(4)])


def _proposal(drafter: Drafter, tokens: HashedTokens, base: int = 0, *, depth: int = 6, **options) -> DraftProposal:
    reply = ask(drafter, row(tokens, base, depth=depth, **options))
    assert isinstance(reply, DraftProposal)
    return reply


def test_a_level_below_that_is_right_saves_passes() -> None:
    """Six drafts in one pass instead of six where the level below is the same model; six where it proposes nothing."""
    tokens = HashedTokens(range(10))
    passes = {}
    for name, below in {"right": model(), "silent": ScriptedDrafter()}.items():
        made = cascade(below, eos=())
        _open(made, "greedy")
        _proposal(made, tokens)
        passes[name] = made._runner.num_forwards
    assert passes == {"right": 1, "silent": 6}


@pytest.mark.parametrize("kind", ["greedy", "coupled"])
def test_the_levels_stay_in_step_over_rounds(kind: str) -> None:
    """However much of each proposal is committed, a level below that is right makes every round one pass."""
    made = cascade(model(eos=()), eos=())
    _open(made, kind)
    dice, tokens, base = random.Random(6), HashedTokens(range(10)), 0
    for round_ in range(1, 21):
        found = _proposal(made, tokens, base, depth=5)
        assert made._runner.num_forwards == round_
        base = len(tokens)
        tokens.extend([*found.tree.token_ids[: dice.randrange(6)], dice.randrange(VOCAB)])


def test_kept_rejected_and_corrected_tokens_are_counted() -> None:
    """Two right drafts and then wrong ones: two kept, the rest rejected, one corrected, in every pass."""
    truth = _truth(tokens := HashedTokens(range(10)), 6)

    class TwoRight(ScriptedDrafter):
        def chain(self, context, num_tokens):
            right = truth[len(context) - 10 :]
            return tuple(i if place < 2 else (i + 1) % VOCAB for place, i in enumerate(right[:num_tokens]))

    metrics = Metrics(strict=True)
    made = cascade(TwoRight(), eos=(), metrics=metrics)
    _open(made, "greedy")
    proposal = _proposal(made, tokens)
    counted = [
        metrics.value(counter, group="g", level="1")
        for counter in (
            catalogue.CASCADE_PASSES,
            catalogue.CASCADE_KEPT_TOKENS,
            catalogue.CASCADE_REJECTED_TOKENS,
            catalogue.CASCADE_CORRECTIONS,
        )
    ]
    # First pass: five proposed, two right, one corrected. Second: two proposed and right, the sixth is the model's.
    assert proposal.tree.token_ids == truth
    assert counted == [2, 4, 3, 1]


def _truth(tokens: HashedTokens, count: int) -> tuple[int, ...]:
    ids = list(tokens.ids)
    while len(ids) < len(tokens) + count:
        ids.append(int(LAW(tuple(ids)).argmax()))
    return tuple(ids[len(tokens) :])


def test_alternatives_below_save_passes_too() -> None:
    """With trees, a level below that is right only in its second branch still saves passes."""
    truth = _truth(tokens := HashedTokens(range(10)), 4)

    class SecondBranch(ScriptedDrafter):
        def reply(self, row: DraftRequest) -> DraftReply:
            honest = super().reply(row)
            assert isinstance(honest, DraftProposal)
            right = truth[honest.base_length - 10 :][: row.budget.max_depth]
            wrong = tuple((token_id + 1) % VOCAB for token_id in right)
            ids = tuple(token_id for pair in zip(wrong, right, strict=True) for token_id in pair)
            parents = tuple(-1 if node < 2 else (node - 2) | 1 for node in range(len(ids)))
            return DraftProposal(row.session, honest.base_length, honest.base_hash, DraftTree(ids, parents))

    for page_size in (1, 4):
        made = cascade(SecondBranch(), eos=(), page_size=page_size)
        _open(made, "greedy")
        proposal = _proposal(made, tokens, depth=4, nodes=12, top_k=2)
        assert _trunk(proposal) == truth
        assert made._runner.num_forwards == 1


@pytest.mark.parametrize("kind", ["greedy", "coupled"])
def test_alternatives_of_the_model_stand_beside_its_choices(kind: str) -> None:
    """With a top_k the best nodes of path and siblings go up; the path is that of a chain, as deep as it pays."""
    made = cascade(model(NEAR))
    _open(made, kind)
    tokens, widths = HashedTokens(random.Random(3).choices(range(3), k=20)), set()
    for _ in range(8):
        chain = _proposal(made, tokens, depth=8)
        tree = _proposal(made, tokens, depth=8, nodes=8, top_k=3)
        widths |= {len(tree.tree.children(node)) for node in range(-1, len(tree.tree))}
        assert _trunk(chain)[: len(_trunk(tree))] == _trunk(tree)
        assert len(tree.tree) == 8 or _trunk(tree)[-1] in EOS
        tokens.extend(_trunk(tree)[:2])
    assert max(widths) > 1


def test_the_shape_of_drawn_drafts_follows_from_the_budget_alone() -> None:
    """Neither an end of the answer nor what the level below says changes which nodes there are."""
    shapes = set()
    for below in (NgramDrafter(min_match=1), model(NEAR), ScriptedDrafter()):
        made = cascade(below, eos=tuple(range(VOCAB)))
        _open(made, "drawn")
        for length in range(10, 20):
            proposal = _proposal(made, HashedTokens(range(length)), depth=5, nodes=9, top_k=3)
            assert len(proposal.laws) == len(proposal.tree)
            shapes.add(proposal.tree.parents)
    (parents,) = shapes
    assert max(parents.count(parent) for parent in parents) > 1


def test_a_level_below_draws_nothing_where_drafts_are_drawn() -> None:
    """Its session is greedy under INDEPENDENT, and shares the noise of the request under COUPLED."""
    seen = []

    class Listening(ScriptedDrafter):
        def open(self, openings):
            seen.extend(openings)
            super().open(openings)

    made = cascade(Listening())
    for kind in KINDS:
        _open(made, kind)
    assert [(one.rule, one.sampling.temperature) for one in seen] == [(DrawRule.COUPLED, t) for t in (0.0, 1.0, 0.0)]
    assert {one.seed for one in seen} == {7}


def test_a_prompt_is_prepared_on_all_levels() -> None:
    """A request for no drafts lets both models compute the prompt; the first draft then feeds its last token only."""
    below = model(NEAR, eos=())
    made = cascade(below, eos=())
    _open(made, "greedy")
    tokens = HashedTokens(random.Random(4).choices(range(3), k=300))
    made.request([row(tokens, 0, depth=0)])
    (empty,) = replies(made)
    assert isinstance(empty, DraftProposal)
    for _ in range(5):
        made._level_below.work()
    prepared = len(below._runner.passes)
    assert sum(fed for one in below._runner.passes for fed, _ in one) == 300
    _proposal(made, tokens, 300, depth=3)
    assert all(fed <= 3 for one in below._runner.passes[prepared:] for fed, _ in one)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_few_tokens_corrects_with_those(kind: str) -> None:
    """With a reduced draft vocabulary the proposals are those of the model alone too, in true ids."""
    kept = (0, 2, 5, 7, 9, 10)

    def made(cls, *below):
        runner = ToyRunner(lambda prefix: LAW(prefix)[list(kept)], VOCAB)
        return cls(runner, *below, eos_token_ids=(), max_law_tokens=6, draft_ids=DraftIds(kept))

    alone, levels = made(DraftModelDrafter), made(CascadeDrafter, NgramDrafter(min_match=1))
    tokens, base = HashedTokens(random.Random(2).choices(range(3), k=12)), 0
    for drafter in (alone, levels):
        _open(drafter, kind)
    for _ in range(8):
        expected, found = _proposal(alone, tokens, base), _proposal(levels, tokens, base)
        assert (found.tree, found.laws) == (expected.tree, expected.laws)
        assert set(found.tree.token_ids) <= set(kept)
        base = len(tokens)
        tokens.extend(found.tree.token_ids[:3])


def test_nothing_is_left_behind() -> None:
    """After its sessions are closed, no level holds a page or a session."""
    below = model(NEAR)
    made = cascade(below)
    made.open([opening(name, prompt_tokens=4) for name in "abc"])
    tokens = HashedTokens(range(9))
    made.request([row(tokens, 0, depth=4, session=name) for name in "abc"])
    assert len(replies(made)) == 3
    made.close(["a", "b", "c", "never opened"])
    for drafter in (made, below):
        assert drafter._runner.pool.num_held == drafter._runner.pool.num_reserved == 0
        drafter._runner.pool.check_integrity()
    assert not below._sessions
    assert not made._level_below._told


def test_logits_without_a_distribution_end_the_draft() -> None:
    """NaN in the middle model's logits stops its proposal where it stands."""

    def broken(prefix):
        return torch.full((VOCAB,), float("nan")) if len(prefix) > 12 else LAW(prefix)

    made = cascade(OracleDrafter([tuple(range(10)) + _truth(HashedTokens(range(10)), 8)]), law=broken, eos=())
    _open(made, "greedy")
    assert len(_proposal(made, HashedTokens(range(10)), depth=8).tree) == 3


def test_a_level_below_that_raises_costs_the_group_and_no_memory() -> None:
    """The fault reaches the border that guards every drafter; closing the sessions gives everything back."""
    made = cascade(CrashingDrafter([tuple(range(20))]))
    _open(made, "greedy")
    made.request([row(HashedTokens(range(10)), 0, depth=4)])
    with pytest.raises(RuntimeError):
        made.collect(0.0)
    made.close(["s"])
    assert made._runner.pool.num_held == made._runner.pool.num_reserved == 0
