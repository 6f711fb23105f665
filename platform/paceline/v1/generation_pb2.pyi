from paceline.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_HIGH: _ClassVar[Priority]
    PRIORITY_NORMAL: _ClassVar[Priority]
    PRIORITY_LOW: _ClassVar[Priority]

class SpeculationMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPECULATION_MODE_UNSPECIFIED: _ClassVar[SpeculationMode]
    SPECULATION_MODE_AUTO: _ClassVar[SpeculationMode]
    SPECULATION_MODE_ON: _ClassVar[SpeculationMode]
    SPECULATION_MODE_OFF: _ClassVar[SpeculationMode]
PRIORITY_UNSPECIFIED: Priority
PRIORITY_HIGH: Priority
PRIORITY_NORMAL: Priority
PRIORITY_LOW: Priority
SPECULATION_MODE_UNSPECIFIED: SpeculationMode
SPECULATION_MODE_AUTO: SpeculationMode
SPECULATION_MODE_ON: SpeculationMode
SPECULATION_MODE_OFF: SpeculationMode

class GenerateRequest(_message.Message):
    __slots__ = ("model", "prompt", "conversation", "prompt_tokens", "sampling", "seed", "choice_count", "speculation", "request_id", "deadline_s", "explain", "priority")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CHOICE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    model: str
    prompt: str
    conversation: Conversation
    prompt_tokens: _common_pb2.TokenSequence
    sampling: _common_pb2.SamplingParams
    seed: int
    choice_count: int
    speculation: Speculation
    request_id: str
    deadline_s: float
    explain: bool
    priority: Priority
    def __init__(self, model: _Optional[str] = ..., prompt: _Optional[str] = ..., conversation: _Optional[_Union[Conversation, _Mapping]] = ..., prompt_tokens: _Optional[_Union[_common_pb2.TokenSequence, _Mapping]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., seed: _Optional[int] = ..., choice_count: _Optional[int] = ..., speculation: _Optional[_Union[Speculation, _Mapping]] = ..., request_id: _Optional[str] = ..., deadline_s: _Optional[float] = ..., explain: _Optional[bool] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class Conversation(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("role", "content", "name", "tool_call_id")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    name: str
    tool_call_id: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., name: _Optional[str] = ..., tool_call_id: _Optional[str] = ...) -> None: ...

class Speculation(_message.Message):
    __slots__ = ("mode", "drafter", "max_draft_token_count")
    MODE_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    mode: SpeculationMode
    drafter: str
    max_draft_token_count: int
    def __init__(self, mode: _Optional[_Union[SpeculationMode, str]] = ..., drafter: _Optional[str] = ..., max_draft_token_count: _Optional[int] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("request_id", "chunks", "summary", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    chunks: _containers.RepeatedCompositeFieldContainer[GeneratedChunk]
    summary: GenerationSummary
    error: GenerationError
    def __init__(self, request_id: _Optional[str] = ..., chunks: _Optional[_Iterable[_Union[GeneratedChunk, _Mapping]]] = ..., summary: _Optional[_Union[GenerationSummary, _Mapping]] = ..., error: _Optional[_Union[GenerationError, _Mapping]] = ...) -> None: ...

class GeneratedChunk(_message.Message):
    __slots__ = ("choice", "first_index", "token_ids", "text", "finish_reason", "logprobs", "rounds")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    choice: int
    first_index: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    text: str
    finish_reason: str
    logprobs: _containers.RepeatedCompositeFieldContainer[GeneratedLogprob]
    rounds: _containers.RepeatedCompositeFieldContainer[GeneratedRound]
    def __init__(self, choice: _Optional[int] = ..., first_index: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., text: _Optional[str] = ..., finish_reason: _Optional[str] = ..., logprobs: _Optional[_Iterable[_Union[GeneratedLogprob, _Mapping]]] = ..., rounds: _Optional[_Iterable[_Union[GeneratedRound, _Mapping]]] = ...) -> None: ...

class GeneratedLogprob(_message.Message):
    __slots__ = ("token_id", "logprob", "top")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    logprob: float
    top: _containers.RepeatedCompositeFieldContainer[GeneratedTopLogprob]
    def __init__(self, token_id: _Optional[int] = ..., logprob: _Optional[float] = ..., top: _Optional[_Iterable[_Union[GeneratedTopLogprob, _Mapping]]] = ...) -> None: ...

class GeneratedTopLogprob(_message.Message):
    __slots__ = ("token_id", "logprob")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    logprob: float
    def __init__(self, token_id: _Optional[int] = ..., logprob: _Optional[float] = ...) -> None: ...

class GeneratedRound(_message.Message):
    __slots__ = ("drafted_token_ids", "accepted_count", "target_token_id", "wait_ms", "draft_ms", "verify_ms", "parents", "accepted_path")
    DRAFTED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_MS_FIELD_NUMBER: _ClassVar[int]
    VERIFY_MS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_PATH_FIELD_NUMBER: _ClassVar[int]
    drafted_token_ids: _containers.RepeatedScalarFieldContainer[int]
    accepted_count: int
    target_token_id: int
    wait_ms: float
    draft_ms: float
    verify_ms: float
    parents: _containers.RepeatedScalarFieldContainer[int]
    accepted_path: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, drafted_token_ids: _Optional[_Iterable[int]] = ..., accepted_count: _Optional[int] = ..., target_token_id: _Optional[int] = ..., wait_ms: _Optional[float] = ..., draft_ms: _Optional[float] = ..., verify_ms: _Optional[float] = ..., parents: _Optional[_Iterable[int]] = ..., accepted_path: _Optional[_Iterable[int]] = ...) -> None: ...

class GenerationSummary(_message.Message):
    __slots__ = ("prompt_token_count", "completion_token_count", "accepted_prediction_token_count", "rejected_prediction_token_count", "route", "reason", "drafter", "switch_count", "tau", "alpha", "seed", "resumed_count", "verifier", "system_fingerprint", "model", "cached_prompt_token_count")
    PROMPT_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_PREDICTION_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    REJECTED_PREDICTION_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    SWITCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    TAU_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    RESUMED_COUNT_FIELD_NUMBER: _ClassVar[int]
    VERIFIER_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CACHED_PROMPT_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    prompt_token_count: int
    completion_token_count: int
    accepted_prediction_token_count: int
    rejected_prediction_token_count: int
    route: str
    reason: str
    drafter: str
    switch_count: int
    tau: float
    alpha: float
    seed: int
    resumed_count: int
    verifier: str
    system_fingerprint: str
    model: str
    cached_prompt_token_count: int
    def __init__(self, prompt_token_count: _Optional[int] = ..., completion_token_count: _Optional[int] = ..., accepted_prediction_token_count: _Optional[int] = ..., rejected_prediction_token_count: _Optional[int] = ..., route: _Optional[str] = ..., reason: _Optional[str] = ..., drafter: _Optional[str] = ..., switch_count: _Optional[int] = ..., tau: _Optional[float] = ..., alpha: _Optional[float] = ..., seed: _Optional[int] = ..., resumed_count: _Optional[int] = ..., verifier: _Optional[str] = ..., system_fingerprint: _Optional[str] = ..., model: _Optional[str] = ..., cached_prompt_token_count: _Optional[int] = ...) -> None: ...

class GenerationError(_message.Message):
    __slots__ = ("reason", "message", "retryable")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    retryable: bool
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ...) -> None: ...
