"""The text of one choice: detokenised, cut at stop strings."""

from collections.abc import Sequence
from typing import NamedTuple

from paceline.text.detokenizer import IncrementalDetokenizer
from paceline.text.stop_strings import StopStrings
from paceline.text.tokenizer import TextTokenizer


class TextStep(NamedTuple):
    """What one committed token did to the text."""

    text: str  # became final with this token; may be empty
    stopped: bool  # the token completed a stop string: the choice ends here


class ChoiceText:
    """Text of one choice, one committed token at a time.

    Replaying the same tokens gives the same text and the same `offset`, so a choice that moves to
    another replica goes on where it was.
    """

    def __init__(self, tokenizer: TextTokenizer, prompt_token_ids: Sequence[int], stops: Sequence[str]) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer, prompt_token_ids)
        self._stops = StopStrings(stops)
        self._stopped = False
        self._again = ""  # was given out and is to be given out once more
        self.offset = 0  # characters given out so far

    @property
    def stopped(self) -> bool:
        """Whether a stop string has matched."""
        return self._stopped

    def push(self, token_id: int) -> TextStep:
        """Take one committed token. After a stop string matched, later tokens add nothing."""
        if self._stopped:
            return TextStep("", stopped=True)
        again = self._take_again()
        step = self._step(self._detokenizer.push((token_id,)))
        return TextStep(again + step.text, step.stopped)

    def flush(self) -> str:
        """The rest of the text, at the end of the choice; nothing new comes after a stop string."""
        again = self._take_again()
        if self._stopped:
            return again
        step = self._step(self._detokenizer.flush())
        rest = "" if step.stopped else self._stops.flush()
        self.offset += len(rest)
        return again + step.text + rest

    def give_again(self, text: str) -> None:
        """Give the last characters, which never arrived, out again with the next token."""
        self._again = text
        self.offset -= len(text)

    def _take_again(self) -> str:
        again, self._again = self._again, ""
        self.offset += len(again)
        return again

    def _step(self, text: str) -> TextStep:
        match = self._stops.push(text)
        self._stopped = match.stop is not None
        self.offset += len(match.text)
        return TextStep(match.text, self._stopped)
