"""Looks at what comes over a link before anything is done with it.

Proposals are untrusted: a drafter may be broken or of another release. A faulty one is dropped and
counted; it never raises, and it never reaches the verifier. A faulty row of a target is refused.
"""

import math
from collections import Counter
from itertools import pairwise

import numpy as np

from paceline.core.drafts import DraftBudget, DraftProposal, DraftRequest, DraftTree, SparseLaw
from paceline.core.model_identity import FeatureFacts

MOST_DRAFTS = 256  # of a budget: all targets of a drafter wait while it works; `max_draft_tokens` is 64 at most
LAW_TOLERANCE = 1e-3  # float32 rounding of a few thousand entries stays well below
_BFLOAT16 = np.dtype("<u2")
_EXPONENT = np.uint16(0x7F80)  # of a bfloat16; all of it set: not a finite number


def fault_of(proposal: DraftProposal, *, budget: DraftBudget, vocabulary_size: int) -> str | None:
    """A stable name of what is wrong with a proposal, or None.

    Checked: ids within the vocabulary; parents before their children, in breadth-first order; siblings with
    distinct ids; nodes, depth and children within the budget; one law per node or none, each finite,
    non-negative, with distinct ids and sum 1, that holds the drafted id, and the same law for all siblings:
    they are drawn without replacement from one.
    """
    tree = proposal.tree
    if not _ids_within(tree.token_ids, vocabulary_size):
        return "token_id"
    if not tree.is_valid:
        return "parent"
    if any(earlier > later for earlier, later in pairwise(tree.parents)):
        return "order"
    if len(set(zip(tree.parents, tree.token_ids, strict=True))) != len(tree):
        return "sibling"
    if not _within_budget(tree, budget):
        return "budget"
    return _law_fault(proposal, vocabulary_size) if proposal.laws else None


def _law_fault(proposal: DraftProposal, vocabulary_size: int) -> str | None:
    tree, laws = proposal.tree, proposal.laws
    if len(laws) != len(tree):
        return "law_count"
    shared: dict[int, SparseLaw] = {}  # by parent
    for token_id, parent, law in zip(tree.token_ids, tree.parents, laws, strict=True):
        if parent not in shared and not _is_law(law, vocabulary_size):
            return "law"
        if shared.setdefault(parent, law) != law:  # the link gives siblings one object: no entry is looked at twice
            return "sibling_law"
        if not _can_give(law, token_id):
            return "law"
    return None


def row_fault(
    row: DraftRequest, *, vocabulary_size: int, context_length: int, feature: FeatureFacts | None
) -> str | None:
    """The reason to refuse a target's row, or None. ``feature`` is what the drafter needs."""
    if row.base_length < 0 or not _ids_within(row.new_token_ids, vocabulary_size):
        return "INVALID_ROW"
    budget = (row.budget.max_depth, row.budget.max_nodes, row.budget.top_k)
    if not 0 <= min(budget) <= max(budget) <= MOST_DRAFTS:
        return "INVALID_ROW"
    if row.context_length > context_length:
        return "CONTEXT_LENGTH"
    return None if _features_fit(row, feature) else "INVALID_FEATURES"


def _features_fit(row: DraftRequest, feature: FeatureFacts | None) -> bool:
    """Whether there are none, or one for each of the row's last tokens, finite; the first token of a text has none."""
    block = row.features
    if block is None:
        return True
    most = len(row.new_token_ids) - (row.base_length == 0)
    if feature is None or not 0 <= block.count <= most:
        return False
    if len(block.data) != block.count * feature.size * _BFLOAT16.itemsize:
        return False
    return not ((np.frombuffer(block.data, _BFLOAT16) & _EXPONENT) == _EXPONENT).any()


def _ids_within(token_ids: tuple[int, ...], vocabulary_size: int) -> bool:
    return not token_ids or (min(token_ids) >= 0 and max(token_ids) < vocabulary_size)


def _within_budget(tree: DraftTree, budget: DraftBudget) -> bool:
    if len(tree) > budget.max_nodes:
        return False
    deep = max(tree.depths, default=0) > budget.max_depth
    wide = max(Counter(tree.parents).values(), default=0) > max(budget.top_k, 1)
    return not deep and not wide


def _is_law(law: SparseLaw, vocabulary_size: int) -> bool:
    ids, probabilities = law.token_ids, law.probabilities
    if not ids or len(ids) != len(probabilities) or len(set(ids)) != len(ids):
        return False
    if not _ids_within(ids, vocabulary_size):
        return False
    # Written so that NaN and infinity fail: each comparison with them is false, or the sum is not 1.
    if not all(0.0 <= probability <= 1.0 + LAW_TOLERANCE for probability in probabilities):
        return False
    return abs(math.fsum(probabilities) - 1.0) <= LAW_TOLERANCE


def _can_give(law: SparseLaw, token_id: int) -> bool:
    return token_id in law.token_ids and law.probabilities[law.token_ids.index(token_id)] > 0.0
