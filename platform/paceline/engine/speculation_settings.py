"""Tunables of speculation, as the engine uses them."""

from dataclasses import dataclass

from paceline.core.drafts import DraftBudget


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    """See `config.schema.Tunables`."""

    enabled: bool  # the operator's kill switch
    max_draft_tokens: int  # depth of a chain, nodes of a tree
    wait_share: float  # longest wait of a row, in passes
    deadline_ms: int
    top_k: int = 1  # 1: chains
    adaptive: bool = False  # draft only as deep as it pays at the present batch
    shadow_share: float = 0.0  # of all rounds, in which a group that is not used proposes for comparison

    disabled_groups: frozenset[str] = frozenset()  # the kill switch for single groups

    def limit(self, group: str) -> int:
        """Draft tokens per sequence and step that a group may propose at this moment."""
        return self.max_draft_tokens if self.enabled and group not in self.disabled_groups else 0

    def budget(self, group: str, plan_limit: int, tokens_left: int) -> DraftBudget:
        """What to ask for. A round commits one token more than its path, so no path passes the last allowed token."""
        nodes = min(self.limit(group), plan_limit)
        depth = max(0, min(nodes, tokens_left - 1))
        return DraftBudget(depth, nodes if self.top_k > 1 and depth else depth, self.top_k)
