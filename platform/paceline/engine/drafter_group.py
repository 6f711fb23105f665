"""What the engine knows about one drafter group."""

from dataclasses import dataclass, field

from paceline.core.load import DrafterGroupStatus
from paceline.drafting.drafter import Drafter
from paceline.engine.acceptance import AcceptanceEstimate
from paceline.engine.draft_times import DraftTimes
from paceline.engine.group_pace import GroupPace
from paceline.engine.group_worth import GroupWorth
from paceline.engine.guarded_drafter import GuardedDrafter
from paceline.engine.reply_times import ReplyTimes


@dataclass(frozen=True, slots=True)
class DrafterSlot:
    """A drafter group that this engine can use."""

    drafter: Drafter
    local: bool  # in this process: collecting computes, so there is nothing to wait for


@dataclass(frozen=True, slots=True)
class DrafterGroup:
    """A drafter and what was learned about it."""

    name: str
    drafter: GuardedDrafter  # does not raise
    local: bool
    reply_times: ReplyTimes = field(default_factory=ReplyTimes)
    draft_times: DraftTimes = field(default_factory=DraftTimes)  # local only: in the target's own time
    pace: GroupPace = field(default_factory=GroupPace)
    acceptance: AcceptanceEstimate = field(default_factory=AcceptanceEstimate)
    worth: GroupWorth = field(default_factory=GroupWorth)

    def wait_s(self, drafts: int) -> float | None:
        """Seconds of one answer alone until a chain of ``drafts`` is there; None: not known."""
        if self.local:
            return self.draft_times(drafts) if self.draft_times.measured else None
        reply = self.reply_times.expected(drafts)
        return None if reply is None else reply.mean_s

    @property
    def status(self) -> DrafterGroupStatus:
        """State of the group, for the router."""
        return DrafterGroupStatus(
            self.name, self.drafter.method, self.drafter.live, self.drafter.detail, self.worth.gain
        )
