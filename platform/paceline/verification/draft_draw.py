"""How a drafter draws its next token, so that the verifier's rule is exact and agreement is high."""

import torch

from paceline.core.drafts import DrawRule, SparseLaw
from paceline.verification.law import TokenLaw, draw_from
from paceline.verification.noise import NoiseKey, Purpose, row_key
from paceline.verification.sampler_state import SamplerState
from paceline.verification.sampling import target_law
from paceline.verification.truncation import top_slots


def draft_choice(
    logits: torch.Tensor, state: SamplerState, *, rule: DrawRule, round_start: int, max_law_tokens: int
) -> tuple[int, SparseLaw | None]:
    """One draft for the position of ``state``, from the drafter's ``logits`` [vocab].

    The draft law is warped like the target's. COUPLED draws with the target's own noise and needs no law.
    INDEPENDENT keeps the ``max_law_tokens`` likeliest ids, rounds to what travels, and draws from exactly
    that, with noise keyed by ``round_start``: the length of the context when this proposal began.
    Greedy requests get the argmax and no law.
    """
    law = target_law(logits, state)
    if state.params.greedy or rule is DrawRule.COUPLED:
        return law.draw(row_key(NoiseKey(state.seed, state.choice, state.position, Purpose.TARGET))), None
    sparse = wire_law(law, max_law_tokens)
    key = NoiseKey(state.seed, state.choice, state.position, Purpose.DRAFT, round_start)
    return draw_from(sparse, row_key(key)), sparse


def wire_law(law: TokenLaw, max_tokens: int) -> SparseLaw:
    """The ``max_tokens`` likeliest ids of ``law``, renormalised, in the float32 values that travel."""
    slots = top_slots(law.log_weights, max_tokens)
    weights = torch.softmax(law.log_weights[slots], dim=0, dtype=torch.float64).float()
    token_ids = slots if law.token_ids is None else law.token_ids[slots]
    kept = weights > 0.0
    return SparseLaw(tuple(token_ids[kept].tolist()), tuple(weights[kept].tolist()))
