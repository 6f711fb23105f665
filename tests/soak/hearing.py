"""What a client heard of one answer, whichever door it came through."""

import time
from dataclasses import dataclass, field


@dataclass
class HeardChoice:
    """What came of one choice."""

    ids: list[int] | None = None  # REST sends none
    text: str = ""
    finish: str = ""
    logprobs: list[float] = field(default_factory=list)


@dataclass
class Hearing:
    """What came of one request. Exactly one of the endings holds once the client is done."""

    started_s: float = field(default_factory=time.monotonic)
    choices: dict[int, HeardChoice] = field(default_factory=dict)
    # Endings.
    ended: bool = False  # with the end that a whole answer has: the last event, message or byte
    refusal: str = ""  # instead of an answer: HTTP status or gRPC code
    in_band: str = ""  # inside the answer: code of the error
    broken: str = ""  # the connection ended, or nobody could make sense of what came
    gave_up: bool = False  # the client itself went away
    # Facts.
    code: str = ""  # of a refusal: the stable reason, lower case
    message: str = ""  # of a refusal or an error inside the answer, for whoever looks for its cause
    retry_after: str | None = None
    gap: str = ""  # a token that is missing or came twice
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seed: int | None = None
    resumed: int = 0
    route: str = ""
    drafter: str = ""
    accepted: int = 0
    retries: int = 0  # times that the fleet was too busy and the client came again
    first_s: float | None = None  # seconds from the start to the first text or ids
    total_s: float = 0.0

    def choice(self, index: int) -> HeardChoice:
        """The choice to add to."""
        return self.choices.setdefault(index, HeardChoice())

    def spoken(self) -> None:
        """Note when the answer began."""
        if self.first_s is None:
            self.first_s = time.monotonic() - self.started_s
