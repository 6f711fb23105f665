"""Modified rejection sampling (Leviathan et al. 2023, Chen et al. 2023).

Accept a draft with probability min(1, p/q); at the first rejection draw from norm(max(0, p - q)). The
output has the target's law exactly, provided q is the law that each draft was really drawn from.
"""

from paceline.verification.draft_step import draft_step, residual_law
from paceline.verification.draws import Draws
from paceline.verification.noise import Purpose
from paceline.verification.rows import Verdict, VerifyRow, verdict_of
from paceline.verification.sampling import target_law


def verify_chain(row: VerifyRow, draws: Draws) -> Verdict:
    """Walk the chain until a draft is rejected, or one past its end."""
    state, accepted = row.state, 0
    law = target_law(row.logits[0], state)
    while (step := draft_step(row.proposal, accepted)) is not None:
        if not draws.accept(law.probability(step.token_id), step.probability, state.position):
            law = residual_law(law, step)
            break
        state.push(step.token_id)
        accepted += 1
        law = target_law(row.logits[accepted], state)
    return verdict_of(row.draft_token_ids, accepted, draws.sample(law, state.position, Purpose.RESIDUAL))
