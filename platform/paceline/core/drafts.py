"""What drafters and the engine exchange. Stdlib only: these records cross process and RPC borders."""

from dataclasses import dataclass, field
from enum import Enum

from paceline.core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Candidate tokens of one sequence in breadth-first order; a chain is a tree with one branch.

    Holds ids only, never tensors.
    """

    token_ids: tuple[int, ...]
    parents: tuple[int, ...]  # parents[i] < i, or -1 for a child of the last committed token

    @staticmethod
    def chain(token_ids: tuple[int, ...]) -> "DraftTree":
        """A tree in which every node has one child."""
        return DraftTree(token_ids, tuple(range(-1, len(token_ids) - 1)))

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node; a child of the last committed token has depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    def children(self, node: int) -> tuple[int, ...]:
        """Nodes below ``node`` (-1: the last committed token), in order."""
        return tuple(index for index, parent in enumerate(self.parents) if parent == node)

    @property
    def is_valid(self) -> bool:
        """Whether the parents make a tree: one for each node, and each before its node."""
        return len(self.parents) == len(self.token_ids) and all(
            -1 <= parent < index for index, parent in enumerate(self.parents)
        )

    @property
    def is_chain(self) -> bool:
        """Whether each node is the child of the node before it."""
        return all(parent == index - 1 for index, parent in enumerate(self.parents))


@dataclass(frozen=True, slots=True)
class SparseLaw:
    """The distribution a draft token was really drawn from: ids with non-zero probability.

    ``probabilities`` are float32 values as they travel; both ends renormalise them in float64.
    """

    token_ids: tuple[int, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DraftBudget:
    """Upper limits of one proposal. A depth of 0 only brings the drafter up to date."""

    max_depth: int
    max_nodes: int
    top_k: int = 1


class DrawRule(Enum):
    """How a drafter picks its tokens; follows from the deployment's verifier."""

    COUPLED = "coupled"  # argmax(log q + G) with the target's own noise; no q is sent
    INDEPENDENT = "independent"  # drawn from q with noise of its own; q is sent


@dataclass(frozen=True, slots=True)
class DraftOpening:
    """A session to open: one choice of one request at one drafter.

    ``fork_of`` names another session of the same request, opened before or earlier in the same call. It is a hint:
    both have the same prompt, so a drafter may compute that once and share it. The session is filled by rows like
    any other, the first of them from 0; an unknown name changes nothing.
    """

    session: str
    sampling: SamplingParams
    seed: int
    choice: int
    rule: DrawRule
    prompt_tokens: int = 0  # output starts here: penalties and min_tokens count from it
    tenant_salt: str = ""
    traceparent: str = ""
    fork_of: str = ""  # empty: shares with nobody


@dataclass(frozen=True, slots=True)
class FeatureBlock:
    """Hidden states of the target for the newest tokens of a session, as they travel.

    The feature *of token t* is what the target computed at token t - 1: with both a head predicts token t + 1. The
    first token of a text has none. ``data`` is ``[count, size]`` bfloat16, row-major, little-endian; the rows belong
    to the last ``count`` tokens of a request's ``new_token_ids``.
    """

    count: int
    data: bytes


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """Brings a session up to date and asks for the next proposal, in one go.

    The session's context becomes ``[0, base_length)``, checked against ``base_hash``, plus
    ``new_token_ids``. Sending it twice is harmless.
    """

    session: str
    base_length: int
    base_hash: int
    new_token_ids: tuple[int, ...]
    budget: DraftBudget
    deadline_ms: int = 0  # how long the answer is of use, as a duration; 0: no limit
    features: FeatureBlock | None = None  # None: the method needs none, or reads them where the target keeps them

    @property
    def context_length(self) -> int:
        """Length of the session's context once this request is applied."""
        return self.base_length + len(self.new_token_ids)


@dataclass(frozen=True, slots=True)
class DraftProposal:
    """Tokens proposed after the context ``[0, base_length)`` with hash ``base_hash``.

    ``laws`` is empty (every draft counts as drawn from a one-hot law) or has one entry per node.
    ``waited_s`` is the time from the request to the arrival of this answer, noted by whoever carried it.
    """

    session: str
    base_length: int
    base_hash: int
    tree: DraftTree
    laws: tuple[SparseLaw, ...] = ()
    draft_ms: float = 0.0
    waited_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NeedSync:
    """The drafter has only ``[0, from_length)`` of the session; 0 also means that it is unknown."""

    session: str
    from_length: int


@dataclass(frozen=True, slots=True)
class DraftRefusal:
    """The drafter will not draft for this session now."""

    session: str
    reason: str
    retry_after_ms: int = 0


DraftReply = DraftProposal | NeedSync | DraftRefusal
