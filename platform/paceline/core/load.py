"""What a replica says about itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DrafterGroupStatus:
    """A drafter group as one target sees it."""

    name: str
    method: str
    live: bool
    detail: str = ""  # why it is not live, by field name where a handshake was refused
    gain: float | None = None  # tokens/s against plain decoding, one answer at a time; None: too little is known


@dataclass(frozen=True, slots=True)
class TargetLoad:
    """Load of one target replica at one moment."""

    running: int  # choices that hold KV pages
    waiting: int  # choices that wait for admission
    total_pages: int
    free_pages: int  # unused prefixes, which give way to whoever needs pages, count as free
    decode_tokens_per_s: float
    drafter_groups: tuple[DrafterGroupStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class DrafterLoad:
    """Load of one drafter replica; rides on every link reply."""

    sessions: int
    pending: int  # rows that wait for a proposal
    busy: float  # share of the last second spent drafting, 0 to 1
