"""Every error that Paceline raises on purpose, in one tree.

    PacelineError
    ├── ClientError                    the caller can mend it; never counts against health
    │   ├── InvalidRequestError
    │   │   ├── ContextLengthExceededError
    │   │   └── UnsupportedFeatureError
    │   ├── ModelNotFoundError
    │   ├── DrafterGroupNotFoundError
    │   ├── PayloadTooLargeError
    │   └── UnauthenticatedError
    ├── ServerError                    the platform's fault or its load
    │   ├── OverloadedError
    │   ├── TargetUnavailableError
    │   │   ├── TargetLostError        within the gateway: the answer goes on elsewhere
    │   │   └── TargetLeavingError     within the gateway: the answer goes on elsewhere
    │   ├── RequestAbandonedError
    │   ├── DrafterUnavailableError
    │   ├── LinkRefusedError
    │   ├── DeadlineExceededError
    │   ├── StreamGapError
    │   ├── EngineFailedError
    │   ├── CacheCorruptionError
    │   ├── ServiceUnreachableError    raised by clients of the public API
    │   └── AnswerFailedError
    └── SetupError                     raised before anything is served
        ├── ConfigError
        ├── ModelRefusedError
        └── ModelUnavailableError

A leaf has a stable ``reason``, an HTTP status, a gRPC code name and a retry flag; the gateway and
``rpc/status.py`` dispatch on these alone. All constructor arguments go to ``super().__init__`` so
that errors survive pickling between Ray processes.
"""

from typing import ClassVar


class PacelineError(Exception):
    """Root of the tree. ``str(error)`` is one sentence that says what to do."""

    reason: ClassVar[str] = "INTERNAL"
    http_status: ClassVar[int] = 500
    grpc_code: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False

    @property
    def param(self) -> str | None:
        """Name of the request field at fault, where there is one."""
        return None


class ClientError(PacelineError):
    """The request is at fault; sending it again unchanged fails again."""

    reason = "INVALID_REQUEST"
    http_status = 400
    grpc_code = "INVALID_ARGUMENT"


class InvalidRequestError(ClientError):
    """A field is missing, malformed or out of range."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message, param)
        self._message = message
        self._param = param

    def __str__(self) -> str:
        return self._message

    @property
    def param(self) -> str | None:
        """Name of the request field at fault."""
        return self._param


class ContextLengthExceededError(InvalidRequestError):
    """Prompt plus requested output cannot fit into the context or the KV cache."""

    reason = "CONTEXT_LENGTH_EXCEEDED"

    def __init__(self, prompt_tokens: int, max_tokens: int, limit_tokens: int) -> None:
        super().__init__(
            f"The prompt has at least {prompt_tokens} tokens and max_tokens asks for {max_tokens}, but the limit is "
            f"{limit_tokens} tokens in all. Shorten the prompt or lower max_tokens.",
            "messages",
        )
        self.args = (prompt_tokens, max_tokens, limit_tokens)


class UnsupportedFeatureError(InvalidRequestError):
    """The field is known but not supported by this deployment."""

    reason = "UNSUPPORTED_FEATURE"

    def __init__(self, param: str, hint: str) -> None:
        super().__init__(f"'{param}' is not supported here: {hint}", param)
        self.args = (param, hint)


class ModelNotFoundError(ClientError):
    """The request names a model that is not served."""

    reason = "MODEL_NOT_FOUND"
    http_status = 404
    grpc_code = "NOT_FOUND"

    def __init__(self, model: str, served: tuple[str, ...]) -> None:
        super().__init__(model, served)
        self.model = model
        self.served = served

    def __str__(self) -> str:
        return f"The model '{self.model}' is not served. Served models: {', '.join(self.served) or 'none'}."

    @property
    def param(self) -> str | None:
        """Name of the request field at fault."""
        return "model"


class DrafterGroupNotFoundError(ClientError):
    """The request names a drafter group that is not deployed."""

    reason = "DRAFTER_GROUP_NOT_FOUND"
    http_status = 404
    grpc_code = "NOT_FOUND"

    def __init__(self, group: str, deployed: tuple[str, ...]) -> None:
        super().__init__(group, deployed)
        self.group = group
        self.deployed = deployed

    def __str__(self) -> str:
        return f"There is no drafter group '{self.group}'. Deployed groups: {', '.join(self.deployed) or 'none'}."

    @property
    def param(self) -> str | None:
        """Name of the request field at fault."""
        return "speculation.drafter"


class PayloadTooLargeError(ClientError):
    """The request body is larger than the gateway accepts."""

    reason = "PAYLOAD_TOO_LARGE"
    http_status = 413
    grpc_code = "INVALID_ARGUMENT"

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(size_bytes, limit_bytes)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return f"The body has {self.size_bytes} bytes; the limit is {self.limit_bytes}. Send a shorter prompt."


class UnauthenticatedError(ClientError):
    """The caller did not prove who it is."""

    reason = "UNAUTHENTICATED"
    http_status = 401
    grpc_code = "UNAUTHENTICATED"

    def __init__(self, expected: str) -> None:
        super().__init__(expected)

    def __str__(self) -> str:
        return f"This call needs {self.args[0]}."


class ServerError(PacelineError):
    """The platform could not do what a valid request asked for."""

    http_status = 503
    grpc_code = "UNAVAILABLE"
    retryable = True


class OverloadedError(ServerError):
    """A queue or pool is full; the request was not started."""

    reason = "OVERLOADED"
    grpc_code = "RESOURCE_EXHAUSTED"

    def __init__(self, what: str, retry_after_s: float) -> None:
        super().__init__(what, retry_after_s)
        self.what = what
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.what} is full. Try again in {self.retry_after_s:g} s."


class TargetUnavailableError(ServerError):
    """No target replica could take or finish the request."""

    reason = "TARGET_UNAVAILABLE"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)

    def __str__(self) -> str:
        return f"No target replica could serve the request: {self.args[0]}. Try again."


class TargetLostError(TargetUnavailableError):
    """The replica died or fell silent while it worked on the request; perhaps because of it."""

    reason = "TARGET_LOST"


class TargetLeavingError(TargetUnavailableError):
    """The replica is about to go, through no fault of the request."""

    reason = "TARGET_LEAVING"


class RequestAbandonedError(ServerError):
    """Target replicas died or failed one after another while they worked on the request."""

    reason = "REQUEST_ABANDONED"
    http_status = 500
    grpc_code = "INTERNAL"
    retryable = False

    def __init__(self, num_lost: int) -> None:
        super().__init__(num_lost)

    def __str__(self) -> str:
        return (
            f"Target replicas failed {self.args[0]} times while they worked on this request; it is not tried again. "
            "Do not repeat it unchanged; the logs of the replicas say why they failed."
        )


class DrafterUnavailableError(ServerError):
    """No drafter answered in time. Never ends a request: the step goes on without drafts."""

    reason = "DRAFTER_UNAVAILABLE"

    def __init__(self, group: str, detail: str) -> None:
        super().__init__(group, detail)

    def __str__(self) -> str:
        return f"Drafter group '{self.args[0]}' is not available: {self.args[1]}."


class LinkRefusedError(ServerError):
    """Target and drafter do not match; the handshake names the field that differs."""

    reason = "LINK_REFUSED"
    grpc_code = "FAILED_PRECONDITION"
    retryable = False

    def __init__(self, field: str, target_value: str, drafter_value: str) -> None:
        super().__init__(field, target_value, drafter_value)
        self.field = field
        self.target_value = target_value
        self.drafter_value = drafter_value

    def __str__(self) -> str:
        return (
            f"Target and drafter differ in {self.field}: target has {self.target_value}, drafter has "
            f"{self.drafter_value}. Deploy a drafter made for this target."
        )


class DeadlineExceededError(ServerError):
    """The request's own deadline passed."""

    reason = "DEADLINE_EXCEEDED"
    http_status = 504
    grpc_code = "DEADLINE_EXCEEDED"
    retryable = False

    def __init__(self, deadline_s: float) -> None:
        super().__init__(deadline_s)

    def __str__(self) -> str:
        return f"The request did not finish within its deadline of {self.args[0]:g} s."


class StreamGapError(ServerError):
    """A token stream skipped an index: part of the answer would be lost."""

    reason = "STREAM_GAP"
    http_status = 500
    grpc_code = "DATA_LOSS"

    def __init__(self, expected_index: int, got_index: int) -> None:
        super().__init__(expected_index, got_index)

    def __str__(self) -> str:
        return f"The target's stream went on at token {self.args[1]}, expected {self.args[0]}. Try again."


class EngineFailedError(ServerError):
    """The engine's step raised; its running requests end with this error."""

    reason = "ENGINE_FAILED"
    http_status = 500
    grpc_code = "INTERNAL"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)

    def __str__(self) -> str:
        return f"The engine failed: {self.args[0]}."


class CacheCorruptionError(ServerError):
    """The page pool lost or duplicated a page."""

    reason = "CACHE_CORRUPTION"
    http_status = 500
    grpc_code = "INTERNAL"
    retryable = False

    def __init__(self, detail: str) -> None:
        super().__init__(detail)


class ServiceUnreachableError(ServerError):
    """A client of the public API found nobody at the address."""

    reason = "SERVICE_UNREACHABLE"

    def __init__(self, address: str, detail: str) -> None:
        super().__init__(address, detail)

    def __str__(self) -> str:
        return f"Nothing answers at {self.args[0]} ({self.args[1]}). Is `paceline serve` running there?"


class AnswerFailedError(ServerError):
    """A client of the public API got an error instead of an answer, or in the middle of one."""

    reason = "ANSWER_FAILED"
    retryable = False

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)

    def __str__(self) -> str:
        return f"The request failed ({self.args[0]}): {self.args[1]}"


class SetupError(PacelineError):
    """Start-up stopped before anything was served; the message says what to change."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class ConfigError(SetupError):
    """The configuration file or a flag is wrong."""

    reason = "CONFIG_INVALID"


class ModelRefusedError(SetupError):
    """The model would run and be wrong, or cannot run here."""

    reason = "MODEL_REFUSED"


class ModelUnavailableError(SetupError):
    """The model's files could not be fetched or found."""

    reason = "MODEL_UNAVAILABLE"
