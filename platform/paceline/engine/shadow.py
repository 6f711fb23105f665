"""Proposals that no pass contains: they are compared with the tokens committed later, at no cost of the target."""

from typing import NamedTuple

from paceline.core.drafts import DraftProposal
from paceline.core.hashed_tokens import HashedTokens
from paceline.engine.session_ledger import SessionLedger
from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics

_ROOT = -1
_EVERY_ROUND = 4  # of a sequence that is sampled: the drafter computes its prompt once for many comparisons


class Comparison(NamedTuple):
    """How far the committed tokens follow a proposal, in levels."""

    tested: int
    accepted: int
    decided: bool  # no later token can change it


def compare(proposal: DraftProposal, tokens: HashedTokens) -> Comparison:
    """Hold a proposal against the tokens that follow its context.

    Under `coupled` this is what verification would have found. Under `rejection` and `block`, where an
    accepted draft need not be the token that another draw gives, it is a lower bound.
    """
    length = len(tokens)
    if not 0 <= proposal.base_length <= length or proposal.base_hash != tokens.hash_at(proposal.base_length):
        return Comparison(0, 0, decided=True)
    tree, node, accepted = proposal.tree, _ROOT, 0
    for token_id in tokens.slice(proposal.base_length):
        children = tree.children(node)
        following = next((child for child in children if tree.token_ids[child] == token_id), None)
        if following is None:
            return Comparison(accepted + bool(children), accepted, decided=True)
        node, accepted = following, accepted + 1
    return Comparison(accepted, accepted, decided=not tree.children(node))


class ShadowSampler:
    """Which sequences, and which of their rounds, a group that they do not use proposes in."""

    def __init__(self) -> None:
        self._credit: dict[str, float] = {}

    def takes(self, group: str, share: float) -> bool:
        """Whether the next sequence is sampled, so that ``share`` of all rounds are."""
        credit = self._credit.get(group, 0.0) + _EVERY_ROUND * share
        self._credit[group] = credit % 1.0
        return credit >= 1.0

    def takes_round(self, session: SessionLedger) -> bool:
        """Whether a sampled sequence asks in this round."""
        return session.sequence.rounds % _EVERY_ROUND == 0


def settle(session: SessionLedger, metrics: Metrics, *, final: bool = False) -> Comparison | None:
    """Count a session's comparison once it is decided, or at the end as far as it went."""
    if session.watched is None:
        return None
    found = compare(session.watched, session.sequence.tokens)
    if not (found.decided or final):
        return None
    session.watched = None
    for position in range(found.tested):
        metrics.count(catalogue.SHADOW_TESTED_AT, 1, group=session.group, position=str(position))
    for position in range(found.accepted):
        metrics.count(catalogue.SHADOW_ACCEPTED_AT, 1, group=session.group, position=str(position))
    return found
