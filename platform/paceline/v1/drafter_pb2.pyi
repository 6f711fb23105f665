from paceline.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DrawRule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRAW_RULE_UNSPECIFIED: _ClassVar[DrawRule]
    DRAW_RULE_COUPLED: _ClassVar[DrawRule]
    DRAW_RULE_INDEPENDENT: _ClassVar[DrawRule]
DRAW_RULE_UNSPECIFIED: DrawRule
DRAW_RULE_COUPLED: DrawRule
DRAW_RULE_INDEPENDENT: DrawRule

class LinkRequest(_message.Message):
    __slots__ = ("hello", "incarnation", "round", "opens", "rows", "closes")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    OPENS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CLOSES_FIELD_NUMBER: _ClassVar[int]
    hello: LinkHello
    incarnation: str
    round: int
    opens: _containers.RepeatedCompositeFieldContainer[SessionOpen]
    rows: _containers.RepeatedCompositeFieldContainer[DraftRow]
    closes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, hello: _Optional[_Union[LinkHello, _Mapping]] = ..., incarnation: _Optional[str] = ..., round: _Optional[int] = ..., opens: _Optional[_Iterable[_Union[SessionOpen, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[DraftRow, _Mapping]]] = ..., closes: _Optional[_Iterable[str]] = ...) -> None: ...

class LinkHello(_message.Message):
    __slots__ = ("protocol", "vocabulary", "context_length", "group", "features")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    protocol: _common_pb2.ProtocolRange
    vocabulary: _common_pb2.VocabularyIdentity
    context_length: int
    group: str
    features: _containers.RepeatedCompositeFieldContainer[FeatureFacts]
    def __init__(self, protocol: _Optional[_Union[_common_pb2.ProtocolRange, _Mapping]] = ..., vocabulary: _Optional[_Union[_common_pb2.VocabularyIdentity, _Mapping]] = ..., context_length: _Optional[int] = ..., group: _Optional[str] = ..., features: _Optional[_Iterable[_Union[FeatureFacts, _Mapping]]] = ...) -> None: ...

class FeatureFacts(_message.Message):
    __slots__ = ("kind", "size")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    size: int
    def __init__(self, kind: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class SessionOpen(_message.Message):
    __slots__ = ("session", "sampling", "seed", "choice", "rule", "prompt_token_count", "tenant_salt", "traceparent", "fork_of")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TENANT_SALT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    FORK_OF_FIELD_NUMBER: _ClassVar[int]
    session: str
    sampling: _common_pb2.SamplingParams
    seed: int
    choice: int
    rule: DrawRule
    prompt_token_count: int
    tenant_salt: str
    traceparent: str
    fork_of: str
    def __init__(self, session: _Optional[str] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., seed: _Optional[int] = ..., choice: _Optional[int] = ..., rule: _Optional[_Union[DrawRule, str]] = ..., prompt_token_count: _Optional[int] = ..., tenant_salt: _Optional[str] = ..., traceparent: _Optional[str] = ..., fork_of: _Optional[str] = ...) -> None: ...

class DraftRow(_message.Message):
    __slots__ = ("session", "base_length", "base_hash", "new_token_ids", "budget", "deadline_ms", "features")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    BASE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    BASE_HASH_FIELD_NUMBER: _ClassVar[int]
    NEW_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    session: str
    base_length: int
    base_hash: int
    new_token_ids: _containers.RepeatedScalarFieldContainer[int]
    budget: DraftBudget
    deadline_ms: int
    features: FeatureBlock
    def __init__(self, session: _Optional[str] = ..., base_length: _Optional[int] = ..., base_hash: _Optional[int] = ..., new_token_ids: _Optional[_Iterable[int]] = ..., budget: _Optional[_Union[DraftBudget, _Mapping]] = ..., deadline_ms: _Optional[int] = ..., features: _Optional[_Union[FeatureBlock, _Mapping]] = ...) -> None: ...

class FeatureBlock(_message.Message):
    __slots__ = ("count", "data")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    count: int
    data: bytes
    def __init__(self, count: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class DraftBudget(_message.Message):
    __slots__ = ("max_depth", "max_nodes", "top_k")
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    max_depth: int
    max_nodes: int
    top_k: int
    def __init__(self, max_depth: _Optional[int] = ..., max_nodes: _Optional[int] = ..., top_k: _Optional[int] = ...) -> None: ...

class LinkResponse(_message.Message):
    __slots__ = ("welcome", "incarnation", "round", "load", "rows")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    welcome: LinkWelcome
    incarnation: str
    round: int
    load: DrafterLoad
    rows: _containers.RepeatedCompositeFieldContainer[DraftAnswer]
    def __init__(self, welcome: _Optional[_Union[LinkWelcome, _Mapping]] = ..., incarnation: _Optional[str] = ..., round: _Optional[int] = ..., load: _Optional[_Union[DrafterLoad, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[DraftAnswer, _Mapping]]] = ...) -> None: ...

class LinkWelcome(_message.Message):
    __slots__ = ("protocol", "method", "group", "context_length", "weights_version", "vocabulary", "feature")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_VERSION_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    FEATURE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    method: str
    group: str
    context_length: int
    weights_version: str
    vocabulary: _common_pb2.VocabularyIdentity
    feature: FeatureFacts
    def __init__(self, protocol: _Optional[int] = ..., method: _Optional[str] = ..., group: _Optional[str] = ..., context_length: _Optional[int] = ..., weights_version: _Optional[str] = ..., vocabulary: _Optional[_Union[_common_pb2.VocabularyIdentity, _Mapping]] = ..., feature: _Optional[_Union[FeatureFacts, _Mapping]] = ...) -> None: ...

class DrafterLoad(_message.Message):
    __slots__ = ("session_count", "pending_count", "busy")
    SESSION_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    session_count: int
    pending_count: int
    busy: float
    def __init__(self, session_count: _Optional[int] = ..., pending_count: _Optional[int] = ..., busy: _Optional[float] = ...) -> None: ...

class DraftAnswer(_message.Message):
    __slots__ = ("session", "proposal", "need_sync", "refused")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    NEED_SYNC_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    session: str
    proposal: Proposal
    need_sync: NeedSync
    refused: Refused
    def __init__(self, session: _Optional[str] = ..., proposal: _Optional[_Union[Proposal, _Mapping]] = ..., need_sync: _Optional[_Union[NeedSync, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ...) -> None: ...

class Proposal(_message.Message):
    __slots__ = ("base_length", "base_hash", "token_ids", "parents", "laws", "draft_ms")
    BASE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    BASE_HASH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    LAWS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_MS_FIELD_NUMBER: _ClassVar[int]
    base_length: int
    base_hash: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    parents: _containers.RepeatedScalarFieldContainer[int]
    laws: _containers.RepeatedCompositeFieldContainer[SparseLaw]
    draft_ms: float
    def __init__(self, base_length: _Optional[int] = ..., base_hash: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., parents: _Optional[_Iterable[int]] = ..., laws: _Optional[_Iterable[_Union[SparseLaw, _Mapping]]] = ..., draft_ms: _Optional[float] = ...) -> None: ...

class SparseLaw(_message.Message):
    __slots__ = ("token_ids", "probabilities")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    probabilities: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., probabilities: _Optional[_Iterable[float]] = ...) -> None: ...

class NeedSync(_message.Message):
    __slots__ = ("from_length",)
    FROM_LENGTH_FIELD_NUMBER: _ClassVar[int]
    from_length: int
    def __init__(self, from_length: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("reason", "retry_after_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    retry_after_ms: int
    def __init__(self, reason: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...
