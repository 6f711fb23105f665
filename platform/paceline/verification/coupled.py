"""Accept a draft iff it is the token that the target draws itself.

The target's token at a position is argmax(log p + G) with noise G of that position alone (Daliri, Musco,
Suresh 2024). The text therefore depends on weights, prompt and seed only, whatever was drafted, and q
plays no part. A drafter that draws with the same noise agrees with probability at least
(1 - TV) / (1 + TV).
"""

from paceline.verification.draws import Draws
from paceline.verification.noise import Purpose
from paceline.verification.rows import Verdict, VerifyRow, verdict_of
from paceline.verification.sampling import target_law


def verify_chain(row: VerifyRow, draws: Draws) -> Verdict:
    """Walk the chain until the target's own draw differs, or one past its end."""
    state, drafts = row.state, row.draft_token_ids
    for accepted, draft in enumerate(drafts):
        token_id = draws.sample(target_law(row.logits[accepted], state), state.position, Purpose.TARGET)
        if token_id != draft:
            return verdict_of(drafts, accepted, token_id)
        state.push(draft)
    bonus = draws.sample(target_law(row.logits[len(drafts)], state), state.position, Purpose.TARGET)
    return verdict_of(drafts, len(drafts), bonus)
