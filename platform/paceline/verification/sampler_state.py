"""What the target distribution of a position depends on besides the logits: the tokens before it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from paceline.core.sampling_params import SamplingParams


class SamplerState:
    """The prefix of one choice, as penalties, masks and noise see it.

    Everything is derived from the prompt and one list of output tokens, so undoing is exact and a state
    built again from the same tokens is the same state.
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        prompt_token_ids: Sequence[int],
        eos_token_ids: Iterable[int],
        seed: int,
        choice: int = 0,
    ) -> None:
        self.params = params
        self.seed = seed
        self.choice = choice
        self._num_prompt = len(prompt_token_ids)
        self._prompt_ids = frozenset(prompt_token_ids) if params.repetition_penalty != 1.0 else frozenset()
        self._end_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else set(eos_token_ids))
        self._output: list[int] = []
        self._counts: Counter[int] = Counter()

    @property
    def end_token_ids(self) -> frozenset[int]:
        """Ids that end the output: stop ids, and end-of-sequence ids unless they are to be ignored."""
        return self._end_ids

    @property
    def position(self) -> int:
        """Absolute position of the next token: prompt plus output."""
        return self._num_prompt + len(self._output)

    @property
    def num_output(self) -> int:
        """Output tokens so far."""
        return len(self._output)

    @property
    def output_token_ids(self) -> tuple[int, ...]:
        """Output tokens so far."""
        return tuple(self._output)

    def push(self, token_id: int) -> None:
        """Append one output token."""
        self._output.append(token_id)
        self._counts[token_id] += 1

    def pop(self) -> int:
        """Remove the last output token and return it; undoes `push` exactly."""
        token_id = self._output.pop()
        if self._counts[token_id] == 1:
            del self._counts[token_id]
        else:
            self._counts[token_id] -= 1
        return token_id

    def commit(self, token_ids: Iterable[int]) -> None:
        """Append output tokens that stay."""
        for token_id in token_ids:
            self.push(token_id)

    @contextmanager
    def walk(self) -> Iterator[None]:
        """Undo, on leaving, every `push` made inside."""
        length = len(self._output)
        try:
            yield
        finally:
            while len(self._output) > length:
                self.pop()

    def output_counts(self) -> dict[int, int]:
        """How often each id is in the output."""
        return dict(self._counts)

    def seen_token_ids(self) -> frozenset[int]:
        """Ids in prompt or output. Kept only where a repetition penalty asks for it, else just the output's."""
        return self._prompt_ids.union(self._counts)

    def banned_token_ids(self) -> set[int]:
        """Ids that must not come next: ends of bad words, and all ends before ``min_tokens``.

        A bad word of several tokens bans its last one exactly where the others end the output.
        """
        banned = {word[-1] for word in self.params.bad_words if word and self._ends_with(word[:-1])}
        if len(self._output) < self.params.min_tokens:
            banned |= self._end_ids
        return banned

    def _ends_with(self, token_ids: tuple[int, ...]) -> bool:
        return not token_ids or tuple(self._output[-len(token_ids) :]) == token_ids
