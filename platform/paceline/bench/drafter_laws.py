"""Whether a drafter's draws come from the laws that it sends: what verification by rejection builds on."""

import math
from collections.abc import Iterator

from paceline.bench.drafter_contract import Finding
from paceline.bench.drafter_talk import BrokenError, Talk, request_for
from paceline.core.drafts import DrawRule, SparseLaw
from paceline.core.hashed_tokens import HashedTokens
from paceline.core.sampling_params import SamplingParams

CLAIM = "Where laws are sent, each draft was drawn from exactly the law that is sent with it."
_SEEDS = 6
_ROUNDS = 30
_FEWEST_DRAWS = 50  # below this nothing can be said
_MOST_DEVIATIONS = 5.0  # of a mean: chance alone goes beyond it once in two million
_CERTAIN = 1e-6  # variance below which a draw says nothing


def check_laws(talk: Talk) -> Finding:
    """Compare drafts with their laws: how unlikely they are, and how often the likeliest id is drawn.

    The contexts are pieces of a given text, so that which draws are seen does not depend on what is drawn.
    """
    try:
        draws = list(_draws(talk))
        talk.close_all()
    except BrokenError as error:
        return Finding(CLAIM, str(error))
    if len(draws) < _FEWEST_DRAWS:
        return Finding(CLAIM, None)
    surprise = _deviations([_surprise(token_id, law) for token_id, law in draws])
    leading = _deviations([_leading(token_id, law) for token_id, law in draws])
    if abs(surprise) > _MOST_DEVIATIONS:
        kind = "unlikely" if surprise > 0 else "likely"
        return Finding(CLAIM, f"drafts are too {kind} for their laws: {abs(surprise):.0f} standard deviations")
    if abs(leading) > _MOST_DEVIATIONS:
        often = "often" if leading > 0 else "rarely"
        return Finding(CLAIM, f"the likeliest id is drawn too {often}: {abs(leading):.0f} standard deviations")
    return Finding(CLAIM, None)


def _draws(talk: Talk) -> Iterator[tuple[int, SparseLaw]]:
    """Drafts with their laws, in chains."""
    for seed in range(_SEEDS):
        talk.open("s", sampling=SamplingParams(temperature=1.0), rule=DrawRule.INDEPENDENT, seed=seed)
        tokens, base = HashedTokens(talk.text[:16]), 0
        for place in range(16, min(len(talk.text), 16 + _ROUNDS)):
            proposal = talk.propose(request_for(tokens, base))
            yield from zip(proposal.tree.token_ids, proposal.laws, strict=bool(proposal.laws))
            base = len(tokens)
            tokens.extend(talk.text[place : place + 1])


_Score = tuple[float, float, float]  # of one draw: what was seen, and its mean and variance under the law


def _surprise(token_id: int, law: SparseLaw) -> _Score:
    """Minus the logarithm of the draw's probability."""
    chances = [chance for chance in law.probabilities if chance > 0.0]
    mean = -sum(chance * math.log(chance) for chance in chances)
    square = sum(chance * math.log(chance) ** 2 for chance in chances)
    return -math.log(law.probabilities[law.token_ids.index(token_id)]), mean, square - mean**2


def _leading(token_id: int, law: SparseLaw) -> _Score:
    """Whether the likeliest id was drawn."""
    most = max(law.probabilities)
    return float(law.token_ids[law.probabilities.index(most)] == token_id), most, most * (1.0 - most)


def _deviations(scores: list[_Score]) -> float:
    """How far the sum of what was seen is from its mean, in standard deviations."""
    variance = sum(score[2] for score in scores)
    if variance < _CERTAIN:
        return 0.0
    return sum(seen - mean for seen, mean, _ in scores) / math.sqrt(variance)
