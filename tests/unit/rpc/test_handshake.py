import dataclasses

import pytest

from paceline.core.model_identity import FeatureFacts, VocabularyIdentity
from paceline.drafting.matching import DrafterFacts, TargetFacts
from paceline.errors import LinkRefusedError
from paceline.rpc.handshake import answer_hello, check_welcome, make_hello
from paceline.rpc.protocol import Versions

VOCABULARY = VocabularyIdentity("f" * 64, 16, (("bos", 1), ("eos", 2)))
TARGET = TargetFacts(VOCABULARY, context_length=64)
DRAFTER = DrafterFacts("draft_model", "small", VOCABULARY, 64, "v1")

MISMATCHES = {
    "vocabulary.fingerprint": {"vocabulary": dataclasses.replace(VOCABULARY, fingerprint="e" * 64)},
    "vocabulary.size": {"vocabulary": dataclasses.replace(VOCABULARY, size=17)},
    "vocabulary.special_ids.eos": {"vocabulary": dataclasses.replace(VOCABULARY, special_ids=(("bos", 1), ("eos", 3)))},
    "vocabulary.special_ids.bos": {"vocabulary": dataclasses.replace(VOCABULARY, special_ids=(("eos", 2),))},
    "context_length": {"context_length": 63},
    "group": {"group": "other"},
}


@pytest.mark.parametrize("method", ["ngram", "draft_model", "medusa", "eagle", "mtp"])
@pytest.mark.parametrize("field", MISMATCHES)
def test_mismatch_is_refused_by_field_name(field, method):
    """The drafter refuses a target that it does not match, the same way for every method."""
    drafter = dataclasses.replace(DRAFTER, method=method, **MISMATCHES[field])
    with pytest.raises(LinkRefusedError) as caught:
        answer_hello(make_hello(TARGET, "small"), drafter)
    assert caught.value.field == field
    assert field in str(caught.value)


@pytest.mark.parametrize("field", MISMATCHES)
def test_target_checks_what_the_drafter_should_have_checked(field):
    """A drafter that lets everything pass is refused by the target."""
    drafter = dataclasses.replace(DRAFTER, **MISMATCHES[field])
    agreeing = TargetFacts(drafter.vocabulary, drafter.context_length)
    welcome, _ = answer_hello(make_hello(agreeing, drafter.group), drafter)
    with pytest.raises(LinkRefusedError) as caught:
        check_welcome(welcome, TARGET, group="small")
    assert caught.value.field == field


def test_protocol_without_a_shared_version_is_refused_by_both():
    """Version ranges that do not meet end the handshake, whoever is older."""
    hello = make_hello(TARGET, "small")
    hello.protocol.min, hello.protocol.max = 7, 8
    with pytest.raises(LinkRefusedError, match="differ in protocol: target has 7 to 8"):
        answer_hello(hello, DRAFTER)

    welcome, _ = answer_hello(make_hello(TARGET, "small"), DRAFTER)
    welcome.protocol = 9
    with pytest.raises(LinkRefusedError, match="protocol"):
        check_welcome(welcome, TARGET, group="small")


def test_match_tells_both_ends_what_the_other_is():
    """After a good handshake each end knows the other's facts."""
    welcome, target = answer_hello(make_hello(TARGET, "small"), DRAFTER)
    assert target == TARGET
    assert check_welcome(welcome, TARGET, group="small") == DRAFTER


def test_longer_context_of_the_drafter_is_fine():
    """Only a drafter that could not follow the target to its end is refused."""
    answer_hello(make_hello(TARGET, "small"), dataclasses.replace(DRAFTER, context_length=65))


def test_method_on_ids_alone_takes_the_targets_vocabulary_and_context():
    """An n-gram drafter fits every target and says so in the target's own terms."""
    welcome, _ = answer_hello(make_hello(TARGET, "small"), DrafterFacts("ngram", "small"))
    facts = check_welcome(welcome, TARGET, group="small")
    assert (facts.vocabulary, facts.context_length) == (TARGET.vocabulary, TARGET.context_length)


LAST, FUSED = FeatureFacts("last", 576), FeatureFacts("fused:abc", 512)


@pytest.mark.parametrize(
    "kept", [(), (FUSED,), (FeatureFacts("last", 575),), (FeatureFacts("fused:abd", 576),)], ids=str
)
def test_a_feature_that_the_target_does_not_keep_is_refused_by_both(kept):
    """The refusal names the field, what there is and what is needed."""
    head = dataclasses.replace(DRAFTER, feature=LAST)
    target = dataclasses.replace(TARGET, features=kept)
    with pytest.raises(LinkRefusedError, match=r"features.*last of 576") as caught:
        answer_hello(make_hello(target, "small"), head)
    assert caught.value.field == "features"

    welcome, _ = answer_hello(make_hello(dataclasses.replace(TARGET, features=(LAST,)), "small"), head)
    with pytest.raises(LinkRefusedError) as caught:
        check_welcome(welcome, target, group="small")
    assert caught.value.field == "features"


def test_features_are_told_both_ways():
    """The drafter hears of all that the target keeps, the target of the one that is needed."""
    target, head = dataclasses.replace(TARGET, features=(LAST, FUSED)), dataclasses.replace(DRAFTER, feature=FUSED)
    welcome, heard = answer_hello(make_hello(target, "small"), head)

    assert heard == target
    assert check_welcome(welcome, target, group="small") == head


@pytest.mark.parametrize(("ours", "theirs"), [(1, 2), (2, 1)])
def test_over_version_1_there_are_no_features(ours, theirs):
    """Whichever end is of the older release, a head is refused by the field, and any other drafter links."""
    target = dataclasses.replace(TARGET, features=(LAST,))
    hello = make_hello(target, "small", Versions(1, ours))
    with pytest.raises(LinkRefusedError, match="features: target has none, drafter has last of 576"):
        answer_hello(hello, dataclasses.replace(DRAFTER, feature=LAST), Versions(1, theirs))

    welcome, heard = answer_hello(hello, DRAFTER, Versions(1, theirs))
    assert (welcome.protocol, heard) == (1, TARGET)
    assert check_welcome(welcome, target, group="small", ours=Versions(1, ours)) == DRAFTER
