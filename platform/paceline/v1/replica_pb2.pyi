from paceline.v1 import common_pb2 as _common_pb2
from paceline.v1 import drafter_pb2 as _drafter_pb2
from paceline.v1 import target_pb2 as _target_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MetricsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MetricsResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("protocol", "release", "uptime_ms", "draining", "speculation", "target", "drafter", "gateway")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    protocol: _common_pb2.ProtocolRange
    release: str
    uptime_ms: int
    draining: bool
    speculation: SpeculationSwitch
    target: TargetStatus
    drafter: DrafterStatus
    gateway: GatewayStatus
    def __init__(self, protocol: _Optional[_Union[_common_pb2.ProtocolRange, _Mapping]] = ..., release: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., draining: _Optional[bool] = ..., speculation: _Optional[_Union[SpeculationSwitch, _Mapping]] = ..., target: _Optional[_Union[TargetStatus, _Mapping]] = ..., drafter: _Optional[_Union[DrafterStatus, _Mapping]] = ..., gateway: _Optional[_Union[GatewayStatus, _Mapping]] = ...) -> None: ...

class SpeculationSwitch(_message.Message):
    __slots__ = ("enabled", "disabled_groups")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    DISABLED_GROUPS_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    disabled_groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, enabled: _Optional[bool] = ..., disabled_groups: _Optional[_Iterable[str]] = ...) -> None: ...

class TargetStatus(_message.Message):
    __slots__ = ("model", "load", "groups")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    model: str
    load: _target_pb2.WatchLoadResponse
    groups: _containers.RepeatedCompositeFieldContainer[GroupExperience]
    def __init__(self, model: _Optional[str] = ..., load: _Optional[_Union[_target_pb2.WatchLoadResponse, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[GroupExperience, _Mapping]]] = ...) -> None: ...

class GroupExperience(_message.Message):
    __slots__ = ("name", "reply_ms", "tested_count", "accepted_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REPLY_MS_FIELD_NUMBER: _ClassVar[int]
    TESTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    reply_ms: float
    tested_count: int
    accepted_count: int
    def __init__(self, name: _Optional[str] = ..., reply_ms: _Optional[float] = ..., tested_count: _Optional[int] = ..., accepted_count: _Optional[int] = ...) -> None: ...

class DrafterStatus(_message.Message):
    __slots__ = ("group", "method", "weights_version", "incarnation", "link_count", "load")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_VERSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LINK_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    group: str
    method: str
    weights_version: str
    incarnation: str
    link_count: int
    load: _drafter_pb2.DrafterLoad
    def __init__(self, group: _Optional[str] = ..., method: _Optional[str] = ..., weights_version: _Optional[str] = ..., incarnation: _Optional[str] = ..., link_count: _Optional[int] = ..., load: _Optional[_Union[_drafter_pb2.DrafterLoad, _Mapping]] = ...) -> None: ...

class GatewayStatus(_message.Message):
    __slots__ = ("queued_count", "stream_count")
    QUEUED_COUNT_FIELD_NUMBER: _ClassVar[int]
    STREAM_COUNT_FIELD_NUMBER: _ClassVar[int]
    queued_count: int
    stream_count: int
    def __init__(self, queued_count: _Optional[int] = ..., stream_count: _Optional[int] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
