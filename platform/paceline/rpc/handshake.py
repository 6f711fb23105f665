"""The gate between a target and a drafter: one check for every drafting method, run by both ends.

A method that works on ids alone (n-gram) has no vocabulary and no context length of its own; it takes
the target's, so its drafts are ids of that vocabulary by construction.
"""

from dataclasses import dataclass

from paceline.core.model_identity import VocabularyIdentity
from paceline.errors import LinkRefusedError
from paceline.rpc.codec_link import decode_vocabulary, encode_vocabulary
from paceline.rpc.protocol import PROTOCOL_MAX, PROTOCOL_MIN, describe, negotiate
from paceline.v1 import common_pb2, drafter_pb2


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What a target says about itself when it opens a link."""

    vocabulary: VocabularyIdentity
    context_length: int  # longest context that it serves, in tokens


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """What a drafter is. None: the method has no such thing and takes the target's."""

    method: str
    group: str
    vocabulary: VocabularyIdentity | None = None
    context_length: int | None = None
    weights_version: str = ""  # acceptance is kept per version


def check_match(target: TargetFacts, drafter: DrafterFacts, *, group: str) -> None:
    """Raise LinkRefusedError, naming the field, unless the two can work together.

    The drafter's context may be longer than the target's, not shorter.
    """
    if drafter.group != group:
        raise LinkRefusedError("group", group, drafter.group)
    if drafter.vocabulary is not None:
        _check_vocabulary(target.vocabulary, drafter.vocabulary)
    if drafter.context_length is not None and drafter.context_length < target.context_length:
        raise LinkRefusedError("context_length", str(target.context_length), str(drafter.context_length))


def _check_vocabulary(target: VocabularyIdentity, drafter: VocabularyIdentity) -> None:
    if target.size != drafter.size:
        raise LinkRefusedError("vocabulary.size", str(target.size), str(drafter.size))
    ours, theirs = dict(target.special_ids), dict(drafter.special_ids)
    for role in sorted(ours.keys() | theirs.keys()):
        if ours.get(role) != theirs.get(role):
            raise LinkRefusedError(
                f"vocabulary.special_ids.{role}", str(ours.get(role, "none")), str(theirs.get(role, "none"))
            )
    if target.fingerprint != drafter.fingerprint:
        raise LinkRefusedError("vocabulary.fingerprint", target.fingerprint, drafter.fingerprint)


def make_hello(target: TargetFacts, group: str) -> drafter_pb2.LinkHello:
    """The target's half of the handshake."""
    return drafter_pb2.LinkHello(
        protocol=common_pb2.ProtocolRange(min=PROTOCOL_MIN, max=PROTOCOL_MAX),
        vocabulary=encode_vocabulary(target.vocabulary),
        context_length=target.context_length,
        group=group,
    )


def answer_hello(hello: drafter_pb2.LinkHello, drafter: DrafterFacts) -> tuple[drafter_pb2.LinkWelcome, TargetFacts]:
    """The drafter's half: its welcome and what the target is. Raises LinkRefusedError."""
    version = negotiate(hello.protocol.min, hello.protocol.max)
    if version is None:
        raise LinkRefusedError(
            "protocol", describe(hello.protocol.min, hello.protocol.max), describe(PROTOCOL_MIN, PROTOCOL_MAX)
        )
    target = TargetFacts(decode_vocabulary(hello.vocabulary), hello.context_length)
    check_match(target, drafter, group=hello.group)
    welcome = drafter_pb2.LinkWelcome(
        protocol=version,
        method=drafter.method,
        group=drafter.group,
        context_length=target.context_length if drafter.context_length is None else drafter.context_length,
        weights_version=drafter.weights_version,
        vocabulary=encode_vocabulary(drafter.vocabulary or target.vocabulary),
    )
    return welcome, target


def check_welcome(welcome: drafter_pb2.LinkWelcome, target: TargetFacts, *, group: str) -> DrafterFacts:
    """What the drafter is, checked by the target's own eyes. Raises LinkRefusedError."""
    if not PROTOCOL_MIN <= welcome.protocol <= PROTOCOL_MAX:
        raise LinkRefusedError("protocol", describe(PROTOCOL_MIN, PROTOCOL_MAX), str(welcome.protocol))
    drafter = DrafterFacts(
        method=welcome.method,
        group=welcome.group,
        vocabulary=decode_vocabulary(welcome.vocabulary),
        context_length=welcome.context_length,
        weights_version=welcome.weights_version,
    )
    check_match(target, drafter, group=group)
    return drafter
