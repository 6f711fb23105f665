"""The first message in each direction of a link. Both ends run the same check on what the other says."""

from paceline.drafting.matching import DrafterFacts, TargetFacts, check_match
from paceline.errors import LinkRefusedError
from paceline.rpc.codec_link import decode_feature, decode_vocabulary, encode_feature, encode_vocabulary
from paceline.rpc.codec_versions import decode_versions, encode_versions
from paceline.rpc.protocol import FEATURES, OURS, Versions
from paceline.v1 import drafter_pb2


def make_hello(target: TargetFacts, group: str, ours: Versions = OURS) -> drafter_pb2.LinkHello:
    """The target's half of the handshake; ``ours`` are the versions that it speaks."""
    return drafter_pb2.LinkHello(
        protocol=encode_versions(ours),
        vocabulary=encode_vocabulary(target.vocabulary),
        context_length=target.context_length,
        group=group,
        features=map(encode_feature, target.features if ours.highest >= FEATURES else ()),
    )


def answer_hello(
    hello: drafter_pb2.LinkHello, drafter: DrafterFacts, ours: Versions = OURS
) -> tuple[drafter_pb2.LinkWelcome, TargetFacts]:
    """The drafter's half: its welcome and what the target is. Raises LinkRefusedError."""
    theirs = decode_versions(hello.protocol)
    version = ours.shared_with(theirs)
    if version is None:
        raise LinkRefusedError("protocol", str(theirs), str(ours))
    features = tuple(map(decode_feature, hello.features)) if version >= FEATURES else ()
    target = TargetFacts(decode_vocabulary(hello.vocabulary), hello.context_length, features)
    check_match(target, drafter, group=hello.group)
    welcome = drafter_pb2.LinkWelcome(
        protocol=version,
        method=drafter.method,
        group=drafter.group,
        context_length=target.context_length if drafter.context_length is None else drafter.context_length,
        weights_version=drafter.weights_version,
        vocabulary=encode_vocabulary(drafter.vocabulary or target.vocabulary),
        feature=None if drafter.feature is None else encode_feature(drafter.feature),
    )
    return welcome, target


def check_welcome(
    welcome: drafter_pb2.LinkWelcome, target: TargetFacts, *, group: str, ours: Versions = OURS
) -> DrafterFacts:
    """What the drafter is, checked by the target's own eyes. Raises LinkRefusedError."""
    if not ours.lowest <= welcome.protocol <= ours.highest:
        raise LinkRefusedError("protocol", str(ours), str(welcome.protocol))
    drafter = DrafterFacts(
        method=welcome.method,
        group=welcome.group,
        vocabulary=decode_vocabulary(welcome.vocabulary),
        context_length=welcome.context_length,
        weights_version=welcome.weights_version,
        feature=decode_feature(welcome.feature) if welcome.HasField("feature") else None,
    )
    check_match(target, drafter, group=group)
    return drafter
