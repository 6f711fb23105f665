"""Makes the sequences of a request that arrives: from its prompt, or from where another attempt stopped."""

from dataclasses import dataclass

from paceline.core.generation import ChoiceStart, GenerationRequest
from paceline.core.hashed_tokens import HashedTokens
from paceline.engine.finish import emit
from paceline.engine.sequence import Sequence
from paceline.errors import EngineFailedError
from paceline.text.choice_text import ChoiceText
from paceline.text.tokenizer import TextTokenizer
from paceline.verification.sampler_state import SamplerState


@dataclass(frozen=True, slots=True)
class EngineModel:
    """Facts about the target that decoding needs."""

    tokenizer: TextTokenizer
    eos_token_ids: tuple[int, ...]
    context_length: int


def sequences_of(request: GenerationRequest, model: EngineModel) -> list[Sequence]:
    """One sequence for each choice to decode. One that its tokens end already has `finish` set.

    Raises EngineFailedError where a resumed choice's text does not fit its tokens.
    """
    return [_replayed(_sequence(request, start.choice, model), start) for start in request.starts]


def _sequence(request: GenerationRequest, choice: int, model: EngineModel) -> Sequence:
    prompt = request.prompt_token_ids
    return Sequence(
        request=request,
        choice=choice,
        tokens=HashedTokens(prompt),
        sampler=SamplerState(
            request.sampling,
            prompt_token_ids=prompt,
            eos_token_ids=model.eos_token_ids,
            seed=request.seed,
            choice=choice,
        ),
        text=ChoiceText(model.tokenizer, prompt, request.sampling.stop),
        max_length=min(len(prompt) + request.sampling.max_tokens, model.context_length),
    )


def _replayed(sequence: Sequence, start: ChoiceStart) -> Sequence:
    """Commit what earlier attempts committed, through the same finish rules.

    Penalties, text and held-back stop strings are then those of an answer that was never interrupted;
    K/V are computed again as if the tokens were part of the prompt.
    """
    emission = emit(sequence, start.output_token_ids)
    if start.text_offset > len(emission.text):
        raise EngineFailedError(
            f"choice {start.choice} was resumed behind {start.text_offset} characters, "
            f"and its tokens give {len(emission.text)}"
        )
    sequence.text.give_again(emission.text[start.text_offset :])
    sequence.num_replayed = emission.num_tokens
    sequence.finish = emission.finish
    return sequence
