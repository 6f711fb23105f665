"""Block verification (Sun et al. 2024): the accepted length is decided for the chain as a whole.

Exact in law, and its mean accepted length is never below that of `rejection`. With drafts d_1..d_n,
target laws p_i and draft laws q_i after the first i - 1 drafts:

    pi_0 = 1,  pi_i = min(1, pi_{i-1} · p_i(d_i) / q_i(d_i))
    S_i  = sum_x max(0, pi_i · p_{i+1}(x) - q_{i+1}(x))
    h_i  = S_i / (S_i + 1 - pi_i)  for i < n  (1 where that is 0/0),  h_n = pi_n

Accept the longest prefix i whose own test u_i <= h_i succeeds, also where a shorter one failed; then draw
from norm(max(0, pi_i · p_{i+1} - q_{i+1})), or from p_{n+1} if i = n. The tests of *all* positions are
made in every round, beyond what is accepted: hence noise keyed by the round.
"""

from typing import NamedTuple

from paceline.verification.draft_step import DraftStep, draft_step, residual_law
from paceline.verification.draws import Draws
from paceline.verification.law import TokenLaw
from paceline.verification.noise import Purpose
from paceline.verification.rows import Verdict, VerifyRow, verdict_of
from paceline.verification.sampling import target_law


class _Prefix(NamedTuple):
    """The chain's first i drafts, seen as a place to stop."""

    weight: float  # pi_i
    law: TokenLaw  # p_{i+1}
    next_step: DraftStep | None  # d_{i+1} with q_{i+1}; None at the end of the chain

    @property
    def residual_mass(self) -> float:
        """S_i, as pi_i less the overlap of pi_i · p and q: a sum over the support of q only."""
        if self.next_step is None:
            return self.weight
        scaled = self.weight * self.law.probabilities_of(self.next_step.law_ids).cpu()
        return max(0.0, self.weight - float(scaled.minimum(self.next_step.law_probabilities).sum()))


def verify_chain(row: VerifyRow, draws: Draws) -> Verdict:
    """Test every prefix and keep the longest that passes."""
    start = row.state.position
    prefixes = _prefixes(row)
    accepted = 0
    for length in range(1, len(prefixes)):
        if _passes(prefixes[length], draws, start + length - 1):
            accepted = length
    chosen = prefixes[accepted]
    law = chosen.law if chosen.next_step is None else residual_law(chosen.law, chosen.next_step, scale=chosen.weight)
    token_id = draws.sample(law, start + accepted, Purpose.RESIDUAL)
    return verdict_of(row.draft_token_ids, accepted, token_id)


def _prefixes(row: VerifyRow) -> list[_Prefix]:
    """All places to stop; ends early at a draft without a valid law, or once the weight is 0.

    Pushes the drafts of the longest prefix to the row's state.
    """
    state, weight, prefixes = row.state, 1.0, list[_Prefix]()
    for logits in row.logits:
        law, step = target_law(logits, state), draft_step(row.proposal, len(prefixes))
        prefixes.append(_Prefix(weight, law, step))
        if step is None:
            break
        weight = min(1.0, weight * law.probability(step.token_id) / step.probability)
        if weight == 0.0:
            break  # longer prefixes have weight 0 too and can never pass
        state.push(step.token_id)
    return prefixes


def _passes(prefix: _Prefix, draws: Draws, position: int) -> bool:
    """The test of one prefix against the uniform of its last draft."""
    if prefix.next_step is None:
        return draws.accept(prefix.weight, 1.0, position)
    mass = prefix.residual_mass
    against = mass + 1.0 - prefix.weight
    return against <= 0.0 or draws.accept(mass, against, position)
