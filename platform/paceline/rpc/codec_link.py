"""What a target and a drafter exchange, as records and as messages: the only translator of the link."""

import dataclasses
from collections.abc import Sequence

from paceline.core.drafts import (
    DraftBudget,
    DraftOpening,
    DraftProposal,
    DraftRefusal,
    DraftReply,
    DraftRequest,
    DraftTree,
    DrawRule,
    FeatureBlock,
    NeedSync,
    SparseLaw,
)
from paceline.core.load import DrafterLoad
from paceline.core.model_identity import FeatureFacts, VocabularyIdentity
from paceline.rpc.codec_sampling import decode_sampling, encode_sampling
from paceline.v1 import common_pb2, drafter_pb2

SEED_MASK = (1 << 64) - 1  # seeds travel as 64 bits; a negative one becomes its two's complement

_RULES = {
    DrawRule.COUPLED: drafter_pb2.DRAW_RULE_COUPLED,
    DrawRule.INDEPENDENT: drafter_pb2.DRAW_RULE_INDEPENDENT,
}
_RULES_BACK = {value: rule for rule, value in _RULES.items()}


def encode_vocabulary(vocabulary: VocabularyIdentity) -> common_pb2.VocabularyIdentity:
    """A vocabulary's identity as a message."""
    return common_pb2.VocabularyIdentity(
        fingerprint=vocabulary.fingerprint, size=vocabulary.size, special_ids=dict(vocabulary.special_ids)
    )


def decode_vocabulary(message: common_pb2.VocabularyIdentity) -> VocabularyIdentity:
    """A vocabulary's identity from a message."""
    return VocabularyIdentity(message.fingerprint, message.size, tuple(sorted(message.special_ids.items())))


def encode_feature(feature: FeatureFacts) -> drafter_pb2.FeatureFacts:
    """What a feature is, as a message."""
    return drafter_pb2.FeatureFacts(kind=feature.kind, size=feature.size)


def decode_feature(message: drafter_pb2.FeatureFacts) -> FeatureFacts:
    """What a feature is, from a message."""
    return FeatureFacts(message.kind, message.size)


def encode_opening(opening: DraftOpening) -> drafter_pb2.SessionOpen:
    """A session's opening as a message."""
    return drafter_pb2.SessionOpen(
        session=opening.session,
        sampling=encode_sampling(opening.sampling),
        seed=opening.seed & SEED_MASK,
        choice=opening.choice,
        rule=_RULES[opening.rule],
        prompt_token_count=opening.prompt_tokens,
        tenant_salt=opening.tenant_salt,
        traceparent=opening.traceparent,
        fork_of=opening.fork_of,
    )


def decode_opening(message: drafter_pb2.SessionOpen) -> DraftOpening | None:
    """A session's opening from a message; None if its draw rule is one that we do not know."""
    rule = _RULES_BACK.get(message.rule)
    if rule is None:
        return None
    return DraftOpening(
        session=message.session,
        sampling=decode_sampling(message.sampling),
        seed=message.seed,
        choice=message.choice,
        rule=rule,
        prompt_tokens=message.prompt_token_count,
        tenant_salt=message.tenant_salt,
        traceparent=message.traceparent,
        fork_of=message.fork_of,
    )


def encode_row(row: DraftRequest) -> drafter_pb2.DraftRow:
    """One sequence of a round as a message."""
    budget = drafter_pb2.DraftBudget(**dataclasses.asdict(row.budget))
    block = row.features
    features = None if block is None else drafter_pb2.FeatureBlock(count=block.count, data=block.data)
    return drafter_pb2.DraftRow(
        session=row.session,
        base_length=row.base_length,
        base_hash=row.base_hash,
        new_token_ids=row.new_token_ids,
        budget=budget,
        deadline_ms=row.deadline_ms,
        features=features,
    )


def decode_row(message: drafter_pb2.DraftRow) -> DraftRequest:
    """One sequence of a round from a message, as it came: `draft_checks.row_fault` looks at it."""
    budget = message.budget
    features = FeatureBlock(message.features.count, message.features.data) if message.HasField("features") else None
    return DraftRequest(
        session=message.session,
        base_length=message.base_length,
        base_hash=message.base_hash,
        new_token_ids=tuple(message.new_token_ids),
        budget=DraftBudget(budget.max_depth, budget.max_nodes, budget.top_k),
        deadline_ms=message.deadline_ms,
        features=features,
    )


def encode_reply(reply: DraftReply) -> drafter_pb2.DraftAnswer:
    """A drafter's answer as a message."""
    answer = drafter_pb2.DraftAnswer(session=reply.session)
    if isinstance(reply, DraftProposal):
        answer.proposal.CopyFrom(_encode_proposal(reply))
    elif isinstance(reply, NeedSync):
        answer.need_sync.from_length = reply.from_length
        answer.need_sync.SetInParent()  # 0 is a value here
    else:
        answer.refused.reason = reply.reason
        answer.refused.retry_after_ms = reply.retry_after_ms
    return answer


def decode_reply(message: drafter_pb2.DraftAnswer) -> DraftReply | None:
    """A drafter's answer from a message, as it came; None if it holds no answer that we know.

    A proposal is untrusted until `draft_checks.fault_of` has looked at it.
    """
    kind = message.WhichOneof("answer")
    if kind == "proposal":
        return _decode_proposal(message.session, message.proposal)
    if kind == "need_sync":
        return NeedSync(message.session, message.need_sync.from_length)
    if kind == "refused":
        return DraftRefusal(message.session, message.refused.reason, message.refused.retry_after_ms)
    return None


def _encode_proposal(proposal: DraftProposal) -> drafter_pb2.Proposal:
    tree = proposal.tree
    return drafter_pb2.Proposal(
        base_length=proposal.base_length,
        base_hash=proposal.base_hash,
        token_ids=tree.token_ids,
        parents=() if tree.is_chain else tree.parents,
        laws=_encode_laws(tree, proposal.laws),
        draft_ms=proposal.draft_ms,
    )


def _decode_proposal(session: str, message: drafter_pb2.Proposal) -> DraftProposal:
    token_ids = tuple(message.token_ids)
    tree = DraftTree(token_ids, tuple(message.parents)) if message.parents else DraftTree.chain(token_ids)
    return DraftProposal(
        session=session,
        base_length=message.base_length,
        base_hash=message.base_hash,
        tree=tree,
        laws=_decode_laws(tree, message.laws),
        draft_ms=message.draft_ms,
    )


def _encode_laws(tree: DraftTree, laws: Sequence[SparseLaw]) -> list[drafter_pb2.SparseLaw]:
    """Siblings share one law: it is sent with the eldest, and the others' are left empty."""
    messages: list[drafter_pb2.SparseLaw] = []
    elders: dict[int, SparseLaw] = {}  # by parent
    for node, law in enumerate(laws):
        parent = tree.parents[node] if node < len(tree) else None
        if parent is not None and elders.get(parent) == law:
            messages.append(drafter_pb2.SparseLaw())
            continue
        messages.append(drafter_pb2.SparseLaw(token_ids=law.token_ids, probabilities=law.probabilities))
        if parent is not None:
            elders.setdefault(parent, law)
    return messages


def _decode_laws(tree: DraftTree, messages: Sequence[drafter_pb2.SparseLaw]) -> tuple[SparseLaw, ...]:
    """One law for each message; siblings that share one get the same object."""
    laws: list[SparseLaw] = []
    elders: dict[int, SparseLaw] = {}  # by parent
    for node, message in enumerate(messages):
        law = SparseLaw(tuple(message.token_ids), tuple(message.probabilities))
        elder = elders.setdefault(tree.parents[node], law) if node < len(tree.parents) else law
        laws.append(law if law.token_ids else elder)
    return tuple(laws)


def encode_drafter_load(load: DrafterLoad) -> drafter_pb2.DrafterLoad:
    """A drafter's load as a message."""
    return drafter_pb2.DrafterLoad(session_count=load.sessions, pending_count=load.pending, busy=load.busy)


def decode_drafter_load(message: drafter_pb2.DrafterLoad) -> DrafterLoad:
    """A drafter's load from a message."""
    return DrafterLoad(message.session_count, message.pending_count, message.busy)
