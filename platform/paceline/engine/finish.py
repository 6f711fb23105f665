"""Decides, token by token, where an answer ends."""

from typing import NamedTuple

from paceline.core.generation import FinishReason
from paceline.engine.sequence import Sequence


class Emission(NamedTuple):
    """What a run of committed tokens comes to once the finish rules have looked at each of them."""

    num_tokens: int  # tokens of the run that stand; the rest is cut
    text: str
    finish: FinishReason | None


def emit(sequence: Sequence, token_ids: tuple[int, ...]) -> Emission:
    """Append ``token_ids`` one at a time; stop at the earliest finish and cut the rest.

    The token that ends an answer is committed and counted; an end-of-sequence or stop token adds no
    text. A stop on the very last allowed token wins over the length limit. Changes ``sequence``'s
    tokens, sampler and text, never its K/V.
    """
    pieces: list[str] = []
    finish: FinishReason | None = None
    count = 0
    for token_id in token_ids:
        sequence.tokens.extend((token_id,))
        sequence.sampler.commit((token_id,))
        count += 1
        finish = _finish_after(sequence, token_id, pieces)
        if finish is not None:
            break
    return Emission(count, "".join(pieces), finish)


def _finish_after(sequence: Sequence, token_id: int, pieces: list[str]) -> FinishReason | None:
    if _ends_sequence(sequence, token_id):
        pieces.append(sequence.text.flush())
        return FinishReason.STOP
    step = sequence.text.push(token_id)
    pieces.append(step.text)
    if step.stopped:
        return FinishReason.STOP
    if sequence.tokens_left <= 0:
        pieces.append(sequence.text.flush())
        # Text that was held back may complete a stop string only now.
        return FinishReason.STOP if sequence.text.stopped else FinishReason.LENGTH
    return None


def _ends_sequence(sequence: Sequence, token_id: int) -> bool:
    if sequence.num_output <= sequence.request.sampling.min_tokens:
        return False  # second guard; the law already masks these ids
    return token_id in sequence.sampler.end_token_ids
