"""How a request wants its tokens drawn. Values are checked at the edge (`gateway/`), not here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters of one request; the defaults leave the model's own distribution unchanged.

    ``temperature`` 0 is greedy. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off. Penalties follow the
    OpenAI definition (presence, frequency: over output tokens) and CTRL (repetition: over prompt and
    output tokens).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, added to its logit)
    bad_words: tuple[tuple[int, ...], ...] = ()  # token sequences that must not appear in the output
    min_tokens: int = 0  # no end-of-sequence or stop token before this many output tokens
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # alternatives per token; None: no logprobs at all, 0: the token's own only

    @property
    def greedy(self) -> bool:
        """Whether every token is the argmax of its warped logits."""
        return self.temperature == 0.0
