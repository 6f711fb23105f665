"""How drafters draw."""

import math
from collections import Counter

import pytest
import torch

from chi_square import LEAST_P, fit_p_value
from paceline.core.drafts import DrawRule, SparseLaw
from paceline.core.sampling_params import SamplingParams
from paceline.verification.draft_draw import draft_children, draft_choice, wire_law
from paceline.verification.law import TokenLaw, sparse_probabilities
from paceline.verification.sampler_state import SamplerState
from paceline.verification.verifier import VerifyRow, make_verifier

LOGITS = torch.linspace(2, -2, 50)


def state_for(seed: int, **params: float) -> SamplerState:
    return SamplerState(SamplingParams(**params), prompt_token_ids=(1, 2, 3), eos_token_ids=(), seed=seed)


def choose(state: SamplerState, rule: DrawRule, *, round_start: int = 3, max_law_tokens: int = 64):
    return draft_choice(LOGITS, state, rule=rule, round_start=round_start, max_law_tokens=max_law_tokens)


def test_coupled_draft_is_the_target_token() -> None:
    """With equal logits a coupled drafter draws what the target will draw, and sends no law."""
    for seed in range(50):
        row = VerifyRow(state_for(seed), LOGITS[None, :], None)
        expected = make_verifier("coupled").sample([row])[0].token_ids[0]

        assert choose(state_for(seed), DrawRule.COUPLED) == (expected, None)


def test_independent_draft_is_drawn_from_the_law_that_is_sent() -> None:
    """Only the likeliest ids are in the law, and every draft is one of them."""
    drafts = []
    for seed in range(200):
        token_id, law = choose(state_for(seed), DrawRule.INDEPENDENT, max_law_tokens=5)
        drafts.append(token_id)

        assert law is not None
        assert law.token_ids == (0, 1, 2, 3, 4)
        assert sum(law.probabilities) == pytest.approx(1.0, abs=1e-6)
    assert set(drafts) == {0, 1, 2, 3, 4}


def test_independent_draft_differs_from_round_to_round() -> None:
    """A new round draws anew at the same position; the same round repeats its draft."""
    state = state_for(1)
    by_round = [choose(state, DrawRule.INDEPENDENT, round_start=start)[0] for start in range(30)]

    assert len(set(by_round)) > 1
    assert by_round == [choose(state, DrawRule.INDEPENDENT, round_start=start)[0] for start in range(30)]


@pytest.mark.parametrize("rule", list(DrawRule))
def test_greedy_drafts_are_the_argmax_without_a_law(rule: DrawRule) -> None:
    """A greedy request needs no law: its drafts are chosen, not drawn."""
    assert choose(state_for(1, temperature=0.0), rule) == (0, None)


def test_wire_values_are_float32() -> None:
    """What is drawn from has exactly the precision that travels."""
    law = wire_law(TokenLaw(LOGITS), 7)

    assert torch.tensor(law.probabilities, dtype=torch.float32).double().tolist() == list(law.probabilities)


def test_ids_that_round_to_zero_do_not_travel() -> None:
    """An id whose float32 probability is 0 is not part of the law."""
    law = wire_law(TokenLaw(torch.tensor([0.0, -300.0, -math.inf], dtype=torch.float64)), 3)

    assert law == SparseLaw((0,), (1.0,))


def children(state: SamplerState, rule: DrawRule, count: int, *, logits: torch.Tensor = LOGITS, max_law_tokens=64):
    return draft_children(logits, state, rule=rule, round_start=3, max_law_tokens=max_law_tokens, count=count)


@pytest.mark.parametrize("rule", list(DrawRule))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_first_child_is_the_draft_of_a_chain(rule: DrawRule, temperature: float) -> None:
    """A tree begins with what a chain would have drafted, and carries the same law."""
    for seed in range(50):
        state = state_for(seed, temperature=temperature, top_p=0.9)
        first, law = choose(state, rule)
        several = children(state, rule, 4)
        assert (several.token_ids[0], several.law) == (first, law)
        assert len(set(several.token_ids)) == 4


def test_independent_siblings_are_drawn_without_replacement_from_the_law() -> None:
    """Ordered triples of siblings have the law q(a) q(b)/(1-q(a)) q(c)/(1-q(a)-q(b)) of the values that travel."""
    logits = torch.tensor([1.0, 0.5, 0.0, -0.5, -1.0])
    seen: Counter[tuple[int, ...]] = Counter()
    for seed in range(4000):
        drawn = children(state_for(seed), DrawRule.INDEPENDENT, 3, logits=logits, max_law_tokens=4)
        seen[drawn.token_ids] += 1
        assert drawn.law is not None
    ids, chances = sparse_probabilities(drawn.law)
    q = dict(zip(ids.tolist(), chances.tolist(), strict=True))
    law = {
        (a, b, c): q[a] * q[b] / (1 - q[a]) * q[c] / (1 - q[a] - q[b])
        for a in q
        for b in q
        for c in q
        if len({a, b, c}) == 3
    }
    assert sum(law.values()) == pytest.approx(1.0)
    assert fit_p_value(seen, law) > LEAST_P


def test_no_more_siblings_are_drawn_than_the_law_has_ids() -> None:
    """A truncated law of two ids gives two children, whatever was asked for."""
    assert len(children(state_for(1, top_k=2), DrawRule.INDEPENDENT, 5).token_ids) == 2
    assert len(children(state_for(1, top_k=2), DrawRule.COUPLED, 5).token_ids) == 2


def test_coupled_children_share_the_noise_of_the_target() -> None:
    """The draw of a target with another law is among the children far more often than by the drafter's law."""
    other = LOGITS + torch.linspace(0, 1.5, 50)
    shared = 0
    for seed in range(300):
        expected = make_verifier("coupled").sample([VerifyRow(state_for(seed), other[None, :], None)])[0].token_ids[0]
        shared += expected in children(state_for(seed), DrawRule.COUPLED, 3).token_ids
    target = torch.softmax(other.double(), 0)
    assert shared / 300 > 0.85  # three likeliest ids: 0.36
    assert float(target[torch.topk(LOGITS, 3).indices].sum()) < 0.4


def test_costs_fall_with_the_gap_of_the_scores() -> None:
    """The best child costs least, equal scores cost the same, and some chance is left that none of them is right."""
    for rule, temperature in ((DrawRule.COUPLED, 1.0), (DrawRule.COUPLED, 0.0)):
        drawn = children(state_for(3, temperature=temperature), rule, 5)
        assert list(drawn.costs) == sorted(drawn.costs)
        assert drawn.costs[0] >= 0.0
        assert 0.2 < sum(math.exp(-cost) for cost in drawn.costs) < 1.0
    tied = children(state_for(3, temperature=0.0), DrawRule.COUPLED, 2, logits=torch.zeros(9))
    assert tied.token_ids == (0, 1)
    assert tied.costs[0] == tied.costs[1]


def test_greedy_children_cost_what_the_drafter_says() -> None:
    """Chances are those of the whole vocabulary, so that a drafter that is sure stands out from one that is not."""
    for scale in (0.5, 5.0):
        drawn = children(state_for(3, temperature=0.0), DrawRule.COUPLED, 3, logits=scale * LOGITS)
        chances = torch.softmax(scale * LOGITS.double(), 0)[list(drawn.token_ids)]
        assert [math.exp(-cost) for cost in drawn.costs] == pytest.approx(chances.tolist())


@pytest.mark.parametrize("count", [2, 4, 8])
def test_coupled_children_cost_what_their_gap_says_over_all_ids(count: int) -> None:
    """What the ids without a node weigh is estimated: on the mean over seeds their sum, or a little more."""
    logits = torch.linspace(2.0, -2.0, 400)
    estimated, true = [], []
    for seed in range(300):
        state = state_for(seed)
        some, every = (children(state, DrawRule.COUPLED, number, logits=logits) for number in (count, 400))
        estimated.append(sum(math.exp(-cost) for cost in some.costs))
        true.append(sum(math.exp(-cost) for cost in every.costs[:count]))
    assert -0.07 < (sum(estimated) - sum(true)) / 300 < 0.0


def test_greedy_children_obey_penalties_and_masks() -> None:
    """Alternatives are ranked by the scores that the target will see."""
    state = state_for(1, temperature=0.0, presence_penalty=100.0)
    state.push(0)
    state.push(2)
    assert children(state, DrawRule.COUPLED, 3).token_ids == (1, 3, 4)
