"""The configuration file: frozen sections, a bound and a sentence per field, unknown keys fail.

*Identity* (model, engine, gateway, what a drafter group is) restarts the replicas that it describes when it changes.
*Tunables* (the `Tunables` section) reach running replicas through Ray Serve's ``user_config``; numbers of replicas
and autoscaling take effect beside them.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

_GROUP_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_OUTSIDE_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_MODEL_OPTIONS = frozenset({"model", "revision", "dtype", "num_layers", "kv_cache_tokens", "max_law_tokens"})
_HEAD_OPTIONS = frozenset({"model", "revision", "kv_cache_tokens", "max_law_tokens"})
_NEED_MODEL = frozenset({"draft_model", "medusa", "eagle"})
_FEWEST_LEVELS = 2
_OUTSIDE = "package.module:Class"
# Drafting methods with the options that each has beside those of every group.
METHOD_OPTIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "ngram": frozenset({"min_match_tokens", "max_match_tokens"}),
        "draft_model": _MODEL_OPTIONS,
        "medusa": _HEAD_OPTIONS - {"kv_cache_tokens"},
        "eagle": _HEAD_OPTIONS,
        "mtp": _HEAD_OPTIONS,
        "cascade": frozenset({"levels"}),
    }
)
_OUTSIDE_OPTIONS = frozenset({"options"})
_ALL_OPTIONS = _OUTSIDE_OPTIONS.union(*METHOD_OPTIONS.values())
# Of a group, and of no level inside a cascade.
_GROUP_OPTIONS = frozenset({"place", "replicas", "resources", "threads", "session_ttl_s"})


# Ray refuses them among custom ones.
_RAYS_OWN_RESOURCES = frozenset({"CPU", "GPU", "memory", "object_store_memory"})


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class ModelConfig(Section):
    """The target model."""

    source: str = "smollm2-135m"
    """A name that `paceline models list` shows, a folder (beside the config file or a path), or a hub id: org/name."""
    name: str | None = None
    """Name that clients use. Default: the last part of the source."""
    revision: str | None = None
    """Commit, tag or branch of a hub id; pin a commit in production."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of weights and KV cache."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the target runs."""
    max_context_tokens: int | None = Field(default=None, ge=16)
    """Longest prompt plus output, in tokens. Default: the model's own limit."""

    @property
    def served_name(self) -> str:
        """Name that clients use."""
        return self.name or self.source.rstrip("/").rsplit("/", 1)[-1]


class EngineConfig(Section):
    """The engine of each target replica."""

    kind: Literal["native"] = "native"
    """Which engine decodes. The native engine is the only one."""
    kv_cache_tokens: int = Field(default=16384, ge=64)
    """Size of the paged KV cache, in tokens."""
    page_size: int = Field(default=16, ge=1, le=256)
    """Tokens per KV page. With 1, hits are exact and draft trees need no copies; larger pages read faster."""
    prefix_cache: bool = True
    """Whether prompts share what earlier ones, with the same tenant, have computed; unused parts give way to others."""
    poison_freed_pages: bool = False
    """For debugging: freed KV pages are filled with NaN, so that reading one shows at once."""
    features: tuple[str, ...] | None = None
    """Hidden states kept for draft heads: `last`, and EAGLE-3 heads as model or model@revision. Default: as needed."""
    max_running: int = Field(default=16, ge=1, le=1024)
    """Most choices that decode together."""
    max_waiting: int = Field(default=256, ge=0)
    """Most choices that wait beyond those that max_running has room for; more are refused as overload."""
    step_tokens: int = Field(default=512, ge=1)
    """Target size of a pass, in tokens. Prompts get a quarter or more; many decoding sequences may make it larger."""
    threads: int = Field(default=2, ge=1, le=256)
    """Threads of the target's arithmetic on CPU. Two pay only where both cores are free for them."""
    step_timeout_s: float = Field(default=60.0, gt=0)
    """A replica on which work waits this long without any progress calls itself unhealthy."""
    first_step_timeout_s: float = Field(default=600.0, gt=0)
    """The same until the first step has ended: compiling and paging in weights take their time."""


def _check_custom(name: str) -> str:
    if name in _RAYS_OWN_RESOURCES or not name.strip():
        raise ValueError("not a custom resource of Ray; CPUs and GPUs are target.num_cpus and target.num_gpus")
    return name


Resources = dict[Annotated[str, AfterValidator(_check_custom)], Annotated[float, Field(ge=0.0001, le=1000)]]
"""Custom resources of Ray by name."""


def is_outside_class(method: str) -> bool:
    """Whether a method is a drafter from outside the library, written as ``package.module:Class``."""
    return _OUTSIDE_CLASS.fullmatch(method) is not None


def _check_method(method: str) -> str:
    if method in METHOD_OPTIONS or is_outside_class(method):
        return method
    expected = ", ".join(f"'{name}'" for name in METHOD_OPTIONS)
    raise PydanticCustomError(
        "literal_error", "Input should be {expected}", {"expected": f"{expected} or '{_OUTSIDE}'"}
    )


def _foreign_options(method: str) -> frozenset[str]:
    """Options that only other methods have."""
    return _ALL_OPTIONS - METHOD_OPTIONS.get(method, _OUTSIDE_OPTIONS)


class DrafterConfig(Section):
    """One drafter group: all replicas of one method with the same weights."""

    method: Annotated[str, AfterValidator(_check_method)]
    """`ngram`, `draft_model`, `medusa`, `eagle`, `mtp`, `cascade`, or a class of your own as `package.module:Class`."""
    place: Literal["remote", "in_process"] = "remote"
    """Replicas of their own behind gRPC, or inside each target replica."""
    replicas: int = Field(default=1, ge=0, le=256)
    """Remote only: replicas of the group."""
    resources: Resources = Field(default_factory=dict)
    """Remote only: custom Ray resources that each replica takes."""
    threads: int = Field(default=1, ge=1, le=256)
    """Remote only: threads of a replica's arithmetic on CPU. An in-process drafter uses the target's."""
    model: str | None = None
    """Name, folder or hub id of a draft model or a head that was made for the target. mtp: default is the target."""
    revision: str | None = None
    """Commit, tag or branch of a hub id."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """draft_model only: precision."""
    num_layers: int | None = Field(default=None, ge=1)
    """draft_model only: keep just the first layers of the model. Default: all."""
    kv_cache_tokens: int = Field(default=16384, ge=64)
    """Size of a draft model's paged KV cache, in tokens; of a remote head's too, whose features it holds as well."""
    max_law_tokens: int = Field(default=256, ge=1, le=4096)
    """Most ids in a draft law that is sent to the target."""
    min_match_tokens: int = Field(default=2, ge=1, le=16)
    """ngram only: shortest suffix that counts as a match."""
    max_match_tokens: int = Field(default=8, ge=1, le=64)
    """ngram only: longest suffix that is looked up."""
    levels: tuple["DrafterConfig", ...] = Field(default=(), max_length=4)
    """cascade only: two to four methods with their options, cheap first; each corrects what the one before proposes."""
    options: dict[str, Any] = Field(default_factory=dict)
    """package.module:Class only: keyword arguments that the class is made with."""
    session_ttl_s: float = Field(default=60.0, gt=0)
    """Remote only: a session without traffic for this long is dropped."""

    @model_validator(mode="after")
    def _check_method(self) -> "DrafterConfig":
        if self.method in _NEED_MODEL and self.model is None:
            raise ValueError(f"a {self.method} group needs 'model': a name, a folder or a hub id")
        if foreign := sorted(self.model_fields_set & _foreign_options(self.method)):
            raise ValueError(f"a group of method {self.method} has no {', '.join(foreign)}; remove the key")
        if self.method == "cascade":
            _check_levels(self.levels)
        if self.min_match_tokens > self.max_match_tokens:
            raise ValueError("min_match_tokens must not exceed max_match_tokens")
        return self

    @model_serializer(mode="wrap")
    def _dump_own_options(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A dump is read again, by replicas and as a file; another method's defaults would be refused there.
        foreign = _foreign_options(self.method)
        own = {name: value for name, value in dump(self).items() if name not in foreign}
        if self.levels:
            own["levels"] = [{k: v for k, v in level.items() if k not in _GROUP_OPTIONS} for level in own["levels"]]
        return own


def _check_levels(levels: Sequence[DrafterConfig]) -> None:
    if len(levels) < _FEWEST_LEVELS:
        raise ValueError("a cascade needs 'levels': two or more drafters, cheap first, such as ngram and draft_model")
    for place, level in enumerate(levels):
        if surplus := sorted(level.model_fields_set & _GROUP_OPTIONS):
            raise ValueError(
                f"level {place + 1} has {', '.join(surplus)}, which the whole cascade has; move the key up"
            )
        if level.method not in {"draft_model", "ngram"} and not is_outside_class(level.method):
            raise ValueError(f"level {place + 1} is {level.method}: levels are ngram, draft_model or {_OUTSIDE}")
        if place and level.method != "draft_model":
            raise ValueError(f"level {place + 1} is {level.method}: a level that corrects another is a draft_model")


class AutoscalingConfig(Section):
    """Ray Serve's own autoscaling of one group, by the requests that a replica has in hand on average."""

    min_replicas: int = Field(default=1, ge=1, le=256)
    """Fewest replicas."""
    max_replicas: int = Field(default=2, ge=1, le=256)
    """Most replicas."""
    target_ongoing_requests: float = Field(default=8.0, gt=0)
    """Requests per replica that are aimed at."""
    upscale_delay_s: float = Field(default=10.0, ge=0)
    """Time for which more replicas must be wanted before they are started."""
    downscale_delay_s: float = Field(default=120.0, ge=0)
    """Time for which fewer replicas must be wanted before some are stopped."""

    @model_validator(mode="after")
    def _check_range(self) -> "AutoscalingConfig":
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas must not exceed max_replicas")
        return self


class TargetConfig(Section):
    """The target group."""

    replicas: int = Field(default=1, ge=1, le=256)
    """Target replicas. With autoscaling it is not used: min_replicas are started."""
    autoscaling: AutoscalingConfig | None = None
    """How the number of replicas follows the load. Default: it does not."""
    resources: Resources = Field(default_factory=dict)
    """Custom Ray resources that each replica takes, such as a label that only some nodes have."""
    max_surge_percent: int | None = Field(default=None, ge=0, le=100)
    """Share of replicas that may start before old ones go, when all are replaced. Default: 0 with GPUs, else 100."""
    migrate_after_s: float = Field(default=10.0, ge=0)
    """A replica that is stopped finishes answers for this long, then they go on elsewhere. It is killed 10 s later."""
    num_cpus: float = Field(default=0.1, ge=0)
    """Logical CPUs that each replica takes from Ray."""
    num_gpus: float = Field(default=0.0, ge=0)
    """GPUs that each replica takes from Ray."""
    max_held: int = Field(default=64, ge=1)
    """Most requests that one replica holds at a time, waiting ones included."""


class GatewayConfig(Section):
    """Gateways and the doors to them."""

    replicas: int = Field(default=1, ge=1, le=256)
    """Gateway replicas."""
    resources: Resources = Field(default_factory=dict)
    """Custom Ray resources that each replica takes."""
    host: str = "127.0.0.1"
    """Address that the HTTP door binds. Ray Serve's gRPC proxy binds every address of the machine in any case."""
    allow_remote_clients: bool = False
    """True lets whoever reaches the ports use them; there are no API keys. False: loopback callers only."""
    http_port: int = Field(default=8000, ge=1, le=65535)
    """Port of the REST API."""
    grpc_port: int = Field(default=9000, ge=1, le=65535)
    """Port of the gRPC API."""
    default_max_tokens: int | None = Field(default=None, ge=1)
    """Output tokens of a request that names no limit. Default: all that the context leaves."""
    max_body_bytes: int = Field(default=2 * 2**20, ge=1024)
    """Largest request body."""
    max_ongoing: int = Field(default=256, ge=1)
    """Most requests that one gateway replica works on at a time."""
    request_timeout_s: float = Field(default=600.0, gt=0)
    """Longest time of one request, from receipt to last token. A gateway that is stopped has 10 s more than this."""

    @model_validator(mode="after")
    def _check_ports(self) -> "GatewayConfig":
        if self.http_port == self.grpc_port:
            raise ValueError(f"http_port and grpc_port are both {self.http_port}; the two APIs need different ports")
        return self


class PeerConfig(Section):
    """gRPC between replicas."""

    port_min: int = Field(default=20000, ge=1024, le=65535)
    """First port that a replica's own gRPC server may bind."""
    port_max: int = Field(default=20999, ge=1024, le=65535)
    """Last port that a replica's own gRPC server may bind."""
    max_message_bytes: int = Field(default=8 * 2**20, ge=64 * 1024)
    """Largest message between replicas; at least twice gateway.max_body_bytes, so that every prompt fits."""
    protocol_max: int | None = Field(default=None, ge=1)
    """Newest version of the peer protocol to speak: the one before while an older release runs beside. Default: all."""

    @model_validator(mode="after")
    def _check_range(self) -> "PeerConfig":
        if self.port_min > self.port_max:
            raise ValueError("port_min must not exceed port_max")
        return self


class Tunables(Section):
    """Settings that reach running replicas without a restart."""

    speculation_enabled: bool = True
    """Kill switch: false turns speculation off everywhere."""
    disabled_groups: tuple[str, ...] = ()
    """Drafter groups that must not draft; the others may."""
    max_draft_tokens: int = Field(default=5, ge=0, le=64)
    """Upper limit of draft tokens per sequence and step. 0 turns speculation off."""
    draft_top_k: int = Field(default=1, ge=1, le=16)
    """Most alternatives that a draft offers after one token. 1: chains; more: trees of up to max_draft_tokens nodes."""
    draft_adaptive: bool = True
    """Draft only as deep as it pays at the present batch and acceptance; false: always up to max_draft_tokens."""
    draft_wait_share: float = Field(default=1.0, ge=0, le=4)
    """Longest time that a row waits for remote drafts, in passes of the target; shorter where waiting does not pay."""
    shadow_share: float = Field(default=0.03, ge=0, le=0.25)
    """Share of rounds in which an unused remote drafter group proposes, for comparison with what is committed."""
    link_deadline_ms: int = Field(default=2000, ge=1)
    """A remote draft that arrives later than this after it was asked for is not used."""
    max_queue_wait_s: float = Field(default=30.0, gt=0)
    """Longest wait in a gateway's queue. A request that would wait longer is refused at once, as overload."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least severe level that is logged."""


class DeploymentConfig(Section):
    """A whole deployment."""

    model: ModelConfig = ModelConfig()
    """The target model."""
    release: str = Field(default="", max_length=100)
    """A label of your own. Changing it replaces every replica, a few at a time, without losing an answer."""
    verifier: Literal["coupled", "rejection", "block"] = "coupled"
    """How drafts are checked; see docs/concepts/lossless.md."""
    engine: EngineConfig = EngineConfig()
    """The engine of each target replica."""
    target: TargetConfig = TargetConfig()
    """The target group."""
    drafters: dict[Annotated[str, Field(max_length=40)], DrafterConfig] = Field(default_factory=dict)
    """Drafter groups by name; the name is what a request's speculation.drafter says."""
    gateway: GatewayConfig = GatewayConfig()
    """Gateways and the doors to them."""
    peer: PeerConfig = PeerConfig()
    """gRPC between replicas."""
    tunables: Tunables = Tunables()
    """Settings that reach running replicas without a restart."""

    @model_validator(mode="after")
    def _check_names(self) -> "DeploymentConfig":
        for name in self.drafters:
            if not _GROUP_NAME.fullmatch(name):
                raise ValueError(f"drafter group name '{name}': use lower-case letters, digits and '-', at most 40")
        return self

    @model_validator(mode="after")
    def _check_disabled_groups(self) -> "DeploymentConfig":
        if unknown := sorted(set(self.tunables.disabled_groups) - self.drafters.keys()):
            known = ", ".join(self.drafters) or "none"
            raise ValueError(f"tunables.disabled_groups: no group is named {', '.join(unknown)}. Groups: {known}")
        return self

    @model_validator(mode="after")
    def _check_shape(self) -> "DeploymentConfig":
        if self.verifier == "block" and self.tunables.draft_top_k > 1:
            raise ValueError("verifier 'block' takes chains only: set tunables.draft_top_k to 1, or another verifier")
        return self

    @model_validator(mode="after")
    def _check_cascades(self) -> "DeploymentConfig":
        # How long a cascade takes depends on what it draws; over a link that would decide which draws are used.
        remote = [name for name, group in self.drafters.items() if (group.method, group.place) == ("cascade", "remote")]
        if remote and self.verifier != "coupled":
            raise ValueError(
                f"drafter group '{remote[0]}': with verifier '{self.verifier}' a cascade works inside the target only; "
                "set its place to in_process, or take verifier 'coupled'"
            )
        return self

    @model_validator(mode="after")
    def _check_sizes(self) -> "DeploymentConfig":
        # A token takes at most one byte of the body as text and up to three bytes as an id, most ids two or fewer.
        if self.peer.max_message_bytes < (needed := 2 * self.gateway.max_body_bytes):
            raise ValueError(f"peer.max_message_bytes must be at least twice gateway.max_body_bytes, here {needed}")
        return self
