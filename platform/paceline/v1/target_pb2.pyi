from paceline.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Route(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROUTE_UNSPECIFIED: _ClassVar[Route]
    ROUTE_PLAIN: _ClassVar[Route]
    ROUTE_SPECULATIVE: _ClassVar[Route]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_ABORT: _ClassVar[FinishReason]
ROUTE_UNSPECIFIED: Route
ROUTE_PLAIN: Route
ROUTE_SPECULATIVE: Route
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_ABORT: FinishReason

class StreamRequest(_message.Message):
    __slots__ = ("protocol", "key", "prompt_token_ids", "sampling", "seed", "plan", "choice_count", "explain", "tenant_salt", "traceparent", "resumed", "deadline_ms")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    CHOICE_COUNT_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    TENANT_SALT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    protocol: _common_pb2.ProtocolRange
    key: str
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.SamplingParams
    seed: int
    plan: Plan
    choice_count: int
    explain: bool
    tenant_salt: str
    traceparent: str
    resumed: _containers.RepeatedCompositeFieldContainer[ChoiceStart]
    deadline_ms: int
    def __init__(self, protocol: _Optional[_Union[_common_pb2.ProtocolRange, _Mapping]] = ..., key: _Optional[str] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., seed: _Optional[int] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ..., choice_count: _Optional[int] = ..., explain: _Optional[bool] = ..., tenant_salt: _Optional[str] = ..., traceparent: _Optional[str] = ..., resumed: _Optional[_Iterable[_Union[ChoiceStart, _Mapping]]] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class ChoiceStart(_message.Message):
    __slots__ = ("choice", "output_token_ids", "text_offset")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    choice: int
    output_token_ids: _containers.RepeatedScalarFieldContainer[int]
    text_offset: int
    def __init__(self, choice: _Optional[int] = ..., output_token_ids: _Optional[_Iterable[int]] = ..., text_offset: _Optional[int] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("route", "reason", "drafter", "max_draft_token_count")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    route: Route
    reason: str
    drafter: str
    max_draft_token_count: int
    def __init__(self, route: _Optional[_Union[Route, str]] = ..., reason: _Optional[str] = ..., drafter: _Optional[str] = ..., max_draft_token_count: _Optional[int] = ...) -> None: ...

class StreamResponse(_message.Message):
    __slots__ = ("chunks",)
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    chunks: _containers.RepeatedCompositeFieldContainer[Chunk]
    def __init__(self, chunks: _Optional[_Iterable[_Union[Chunk, _Mapping]]] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("choice", "first_index", "token_ids", "text", "text_offset", "logprobs", "rounds", "finish_reason", "stats")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    choice: int
    first_index: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    text: str
    text_offset: int
    logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    rounds: _containers.RepeatedCompositeFieldContainer[RoundTrace]
    finish_reason: FinishReason
    stats: ChoiceStats
    def __init__(self, choice: _Optional[int] = ..., first_index: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., text: _Optional[str] = ..., text_offset: _Optional[int] = ..., logprobs: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ..., rounds: _Optional[_Iterable[_Union[RoundTrace, _Mapping]]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., stats: _Optional[_Union[ChoiceStats, _Mapping]] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("token_id", "logprob", "top")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    logprob: float
    top: _containers.RepeatedCompositeFieldContainer[TopLogprob]
    def __init__(self, token_id: _Optional[int] = ..., logprob: _Optional[float] = ..., top: _Optional[_Iterable[_Union[TopLogprob, _Mapping]]] = ...) -> None: ...

class TopLogprob(_message.Message):
    __slots__ = ("token_id", "logprob")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    logprob: float
    def __init__(self, token_id: _Optional[int] = ..., logprob: _Optional[float] = ...) -> None: ...

class RoundTrace(_message.Message):
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

class ChoiceStats(_message.Message):
    __slots__ = ("prompt_token_count", "completion_token_count", "round_count", "drafted_count", "tested_count", "accepted_count", "drafter", "switch_count", "replayed_token_count", "cached_token_count")
    PROMPT_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    ROUND_COUNT_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    TESTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    SWITCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    prompt_token_count: int
    completion_token_count: int
    round_count: int
    drafted_count: int
    tested_count: int
    accepted_count: int
    drafter: str
    switch_count: int
    replayed_token_count: int
    cached_token_count: int
    def __init__(self, prompt_token_count: _Optional[int] = ..., completion_token_count: _Optional[int] = ..., round_count: _Optional[int] = ..., drafted_count: _Optional[int] = ..., tested_count: _Optional[int] = ..., accepted_count: _Optional[int] = ..., drafter: _Optional[str] = ..., switch_count: _Optional[int] = ..., replayed_token_count: _Optional[int] = ..., cached_token_count: _Optional[int] = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchLoadRequest(_message.Message):
    __slots__ = ("protocol",)
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    protocol: _common_pb2.ProtocolRange
    def __init__(self, protocol: _Optional[_Union[_common_pb2.ProtocolRange, _Mapping]] = ...) -> None: ...

class WatchLoadResponse(_message.Message):
    __slots__ = ("running_count", "waiting_count", "total_page_count", "free_page_count", "decode_tokens_per_s", "drafter_groups", "held_count", "system_fingerprint", "uptime_ms", "draining", "stalled_s")
    RUNNING_COUNT_FIELD_NUMBER: _ClassVar[int]
    WAITING_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FREE_PAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    DECODE_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    HELD_COUNT_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    STALLED_S_FIELD_NUMBER: _ClassVar[int]
    running_count: int
    waiting_count: int
    total_page_count: int
    free_page_count: int
    decode_tokens_per_s: float
    drafter_groups: _containers.RepeatedCompositeFieldContainer[DrafterGroupStatus]
    held_count: int
    system_fingerprint: str
    uptime_ms: int
    draining: bool
    stalled_s: float
    def __init__(self, running_count: _Optional[int] = ..., waiting_count: _Optional[int] = ..., total_page_count: _Optional[int] = ..., free_page_count: _Optional[int] = ..., decode_tokens_per_s: _Optional[float] = ..., drafter_groups: _Optional[_Iterable[_Union[DrafterGroupStatus, _Mapping]]] = ..., held_count: _Optional[int] = ..., system_fingerprint: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., draining: _Optional[bool] = ..., stalled_s: _Optional[float] = ...) -> None: ...

class DrafterGroupStatus(_message.Message):
    __slots__ = ("name", "method", "live", "detail", "gain")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    GAIN_FIELD_NUMBER: _ClassVar[int]
    name: str
    method: str
    live: bool
    detail: str
    gain: float
    def __init__(self, name: _Optional[str] = ..., method: _Optional[str] = ..., live: _Optional[bool] = ..., detail: _Optional[str] = ..., gain: _Optional[float] = ...) -> None: ...
