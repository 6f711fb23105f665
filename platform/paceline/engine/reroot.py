"""Fits a proposal to what has been committed since it was asked for."""

from dataclasses import replace

from paceline.core.drafts import DraftProposal, DraftTree
from paceline.core.hashed_tokens import HashedTokens


def reroot(proposal: DraftProposal, tokens: HashedTokens) -> DraftProposal | None:
    """The part of ``proposal`` that still follows ``tokens``; None if it follows something else.

    If the tokens committed since are a path of the proposal, the sub-tree below that path is the
    proposal. It stays exact under every verifier: the nodes below were drawn without regard to how
    the path above was decided. Works on chains.
    """
    length = len(tokens)
    if not 0 <= proposal.base_length <= length or proposal.base_hash != tokens.hash_at(proposal.base_length):
        return None
    committed = tokens.slice(proposal.base_length)
    if proposal.tree.token_ids[: len(committed)] != committed:
        return None
    return _from_node(proposal, len(committed), length, tokens.hash_at(length))


def _from_node(proposal: DraftProposal, skip: int, length: int, prefix_hash: int) -> DraftProposal:
    if not skip:
        return proposal
    return replace(
        proposal,
        base_length=length,
        base_hash=prefix_hash,
        tree=DraftTree.chain(proposal.tree.token_ids[skip:]),
        laws=proposal.laws[skip:],
    )


def shorten(proposal: DraftProposal, max_drafts: int) -> DraftProposal:
    """The first ``max_drafts`` tokens of a chain."""
    if len(proposal.tree) <= max_drafts:
        return proposal
    return replace(
        proposal, tree=DraftTree.chain(proposal.tree.token_ids[:max_drafts]), laws=proposal.laws[:max_drafts]
    )
