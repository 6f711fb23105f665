"""Log-probabilities as the API reports them: of the model, before any sampling parameter."""

import torch

from paceline.core.generation import TokenLogprob
from paceline.verification.law import TokenLaw
from paceline.verification.truncation import ranked_slots


def token_logprob(logits: torch.Tensor, token_id: int, num_top: int) -> TokenLogprob:
    """Log-softmax of the unwarped ``logits`` [vocab] at ``token_id``, and the ``num_top`` best ids.

    Taken in float64. Alternatives come best first; ties by id.
    """
    total = TokenLaw(logits).log_total
    logprob = float(logits[token_id]) - total
    if num_top == 0:
        return TokenLogprob(token_id, logprob)
    top_ids = ranked_slots(logits, num_top)
    top_logprobs = logits[top_ids].double() - total
    top = tuple(zip(top_ids.tolist(), top_logprobs.tolist(), strict=True))
    return TokenLogprob(token_id, logprob, top)
