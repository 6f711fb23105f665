"""Fits a proposal to what has been committed since it was asked for."""

from collections.abc import Sequence
from dataclasses import replace

from paceline.core.drafts import DraftProposal, DraftTree
from paceline.core.hashed_tokens import HashedTokens

_ROOT = -1


def reroot(proposal: DraftProposal, tokens: HashedTokens) -> DraftProposal | None:
    """The part of ``proposal`` that still follows ``tokens``; None if it follows something else.

    If the tokens committed since are a path of the proposal, the sub-tree below that path is the
    proposal. It stays exact under every verifier: the nodes below were drawn from the laws that they
    carry, and nothing that was drawn among them decided whether they are used.
    """
    length = len(tokens)
    if not 0 <= proposal.base_length <= length or proposal.base_hash != tokens.hash_at(proposal.base_length):
        return None
    committed = tokens.slice(proposal.base_length)
    if not committed:
        return proposal
    node = _end_of_path(proposal.tree, committed)
    if node is None:
        return None
    below = _part(proposal, _nodes_below(proposal.tree, node))
    return replace(below, base_length=length, base_hash=tokens.hash_at(length))


def shorten(proposal: DraftProposal, *, max_nodes: int, max_depth: int) -> DraftProposal:
    """The first ``max_nodes`` nodes of at most ``max_depth``: a tree loses its deepest, last branches.

    The cut looks at places only, never at what was drawn, and leaves siblings in the order in which they
    were drawn: `rejection` stays exact.
    """
    kept = [node for node, depth in enumerate(proposal.tree.depths) if depth <= max_depth][:max_nodes]
    return proposal if len(kept) == len(proposal.tree) else _part(proposal, kept)


def _end_of_path(tree: DraftTree, token_ids: Sequence[int]) -> int | None:
    """The node that ends the path ``token_ids`` from the root; None where there is no such path."""
    node = _ROOT
    for token_id in token_ids:
        following = (child for child in tree.children(node) if tree.token_ids[child] == token_id)
        child = next(following, None)
        if child is None:
            return None
        node = child
    return node


def _nodes_below(tree: DraftTree, root: int) -> list[int]:
    """Descendants of ``root``, in order."""
    inside = {root}
    for node, parent in enumerate(tree.parents):
        if parent in inside:
            inside.add(node)
    return sorted(inside - {root})


def _part(proposal: DraftProposal, nodes: Sequence[int]) -> DraftProposal:
    """The proposal with ``nodes`` only; parents that are left out become the root."""
    tree = proposal.tree
    place = {node: index for index, node in enumerate(nodes)}
    parents = tuple(place.get(tree.parents[node], _ROOT) for node in nodes)
    laws = tuple(proposal.laws[node] for node in nodes) if proposal.laws else ()
    return replace(proposal, tree=DraftTree(tuple(tree.token_ids[node] for node in nodes), parents), laws=laws)
