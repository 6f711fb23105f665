"""Block verification (Sun et al. 2024): the accepted length is decided for the chain as a whole.

Exact in law, and its mean accepted length is never below that of `rejection`. With drafts d_1..d_n,
target laws p_i and draft laws q_i after the first i - 1 drafts:

    pi_0 = 1,  pi_i = min(1, pi_{i-1} · p_i(d_i) / q_i(d_i))
    S_i  = sum_x max(0, pi_i · p_{i+1}(x) - q_{i+1}(x))
    h_i  = S_i / (S_i + 1 - pi_i)  for i < n  (1 where that is 0/0),  h_n = pi_n

Accept the longest prefix i whose own test u_i <= h_i succeeds, also where a shorter one failed; then draw
from norm(max(0, pi_i · p_{i+1} - q_{i+1})), or from p_{n+1} if i = n. The tests of *all* positions are
made in every round, beyond what is accepted: hence noise keyed by the round.

Of a tree only the first branch is looked at, a chain that is drawn like any other. The configuration refuses
trees with this rule, since their other nodes would be computed in vain.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

import torch

from paceline.verification.draws import Draws
from paceline.verification.law import TokenLaw
from paceline.verification.noise import Purpose
from paceline.verification.rows import Verdict
from paceline.verification.siblings import Siblings, siblings_below
from paceline.verification.walk import Ask, Walk


class _Prefix(NamedTuple):
    """The chain's first i drafts, seen as a place to stop."""

    weight: float  # pi_i
    law: TokenLaw  # p_{i+1}
    draft: Siblings  # d_{i+1} with q_{i+1}; empty at the end of the chain

    @property
    def draft_probs(self) -> torch.Tensor:
        """q_{i+1}, float64 over its support."""
        return self.draft.one_hot(0) if self.draft.draft_probs is None else self.draft.draft_probs

    @property
    def residual_mass(self) -> float:
        """S_i, as pi_i less the overlap of pi_i · p and q: a sum over the support of q only."""
        if not self.draft:
            return self.weight
        scaled = self.weight * self.law.probabilities_of(self.draft.support).cpu()
        return max(0.0, self.weight - float(scaled.minimum(self.draft_probs).sum()))

    def residual_law(self) -> TokenLaw:
        """norm(max(0, pi_i · p_{i+1} - q_{i+1})); p_{i+1} at the chain's end, and where rounding leaves nothing."""
        if not self.draft:
            return self.law
        left = self.law.probabilities_of(self.draft.support).cpu() - self.draft_probs / self.weight
        return self.law.reweighted(self.draft.support, left.clamp_(min=0.0))


def verify(walk: Walk, draws: Draws) -> Generator[Ask, Any, Verdict]:
    """Test every prefix and keep the longest that passes."""
    prefixes = yield from _prefixes(walk)
    accepted = 0
    for length in range(1, len(prefixes)):
        if passes(prefixes[length], draws, walk, length):
            accepted = length
    law = prefixes[accepted].residual_law()
    token_id = yield from walk.draw(law, walk.key(Purpose.RESIDUAL, depth=accepted))
    return walk.verdict(token_id, depth=accepted)


def _prefixes(walk: Walk) -> Generator[Ask, Any, list[_Prefix]]:
    """All places to stop; ends early at a draft without a valid law, or once the weight is 0."""
    weight, prefixes = 1.0, list[_Prefix]()
    while True:
        law = yield from walk.law()
        draft = siblings_below(walk.row.proposal, walk.node)
        prefix = _Prefix(weight, law, draft)
        prefixes.append(prefix)
        if not draft:
            return prefixes
        slot = draft.slots[0]
        weight *= law.probability(int(draft.support[slot])) / float(prefix.draft_probs[slot])
        if weight == 0.0:
            return prefixes  # longer prefixes have weight 0 too and can never pass
        weight = min(1.0, weight)
        walk.descend(draft.nodes[0])


def passes(prefix: _Prefix, draws: Draws, walk: Walk, length: int) -> bool:
    """The test of the prefix of ``length`` drafts, against the uniform of its last draft."""
    key = walk.key(Purpose.ACCEPT, depth=length - 1)
    if not prefix.draft:
        return draws.accept(prefix.weight, 1.0, key)
    mass = prefix.residual_mass
    against = mass + 1.0 - prefix.weight
    return against <= 0.0 or draws.accept(mass, against, key)
