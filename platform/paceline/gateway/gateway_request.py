"""One request as both doors understand it, before it is tokenised."""

import re
import uuid
from dataclasses import dataclass, field

from paceline.core.plans import SpeculationPreference
from paceline.core.priority import Priority
from paceline.core.sampling_params import SamplingParams
from paceline.text.chat import ChatMessage

MAX_LABEL_CHARS = 128
_DEFAULT_SAMPLING = SamplingParams()
_NO_WISH = SpeculationPreference()
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._:/@+=-]")

Prompt = str | tuple[int, ...] | tuple[ChatMessage, ...]
"""Raw text, token ids, or a conversation for the model's chat template."""


def new_request_id() -> str:
    """A name of our own; the client's id is a label and never a key."""
    return uuid.uuid4().hex


def clean_label(text: str) -> str:
    """The client's own request id, fit for headers and logs: other characters go, 128 remain at most."""
    return _NOT_IN_LABELS.sub("", text)[:MAX_LABEL_CHARS]


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """What a client asks for, whichever door it came through.

    ``sampling.max_tokens`` and ``sampling.bad_words`` are settled by `translation`, from ``max_tokens`` and
    ``bad_words`` here.
    """

    prompt: Prompt
    sampling: SamplingParams = _DEFAULT_SAMPLING
    model: str | None = None  # None: the only model served
    max_tokens: int | None = None  # None: the deployment's default
    bad_words: tuple[str, ...] = ()  # as text; sampling.bad_words holds those that came as token ids
    seed: int | None = None  # None: drawn here and returned
    num_choices: int = 1
    speculation: SpeculationPreference = _NO_WISH
    explain: bool = False
    deadline_s: float | None = None  # the client's own limit; None: only the gateway's
    upload_s: float = 0.0  # time that its body took to arrive; the deadline counts from before it
    label: str = ""  # the client's id for the request, cleaned
    tenant: str = ""  # who asks, for a fair share of the fleet; set by the door, never by the client
    priority: Priority = Priority.NORMAL
    door: str = "http"  # "http" or "grpc", for metrics
    traceparent: str = ""
    request_id: str = field(default_factory=new_request_id)

    @property
    def prompt_is_chat(self) -> bool:
        """Whether the prompt is a conversation."""
        return isinstance(self.prompt, tuple) and any(isinstance(item, ChatMessage) for item in self.prompt)
