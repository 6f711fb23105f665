from hypothesis import given

import records
from paceline.core.drafts import DraftOpening, DraftProposal, DraftTree, DrawRule, SparseLaw
from paceline.core.sampling_params import SamplingParams
from paceline.rpc import codec_link
from paceline.v1 import common_pb2, drafter_pb2


@given(records.openings)
def test_openings_round_trip(opening):
    """A session's opening arrives as it was sent."""
    message = drafter_pb2.SessionOpen.FromString(codec_link.encode_opening(opening).SerializeToString())
    assert codec_link.decode_opening(message) == opening


@given(records.rows)
def test_rows_round_trip(row):
    """A row arrives as it was sent, its 64-bit hash and its features included; no features are not empty ones."""
    message = drafter_pb2.DraftRow.FromString(codec_link.encode_row(row).SerializeToString())
    assert codec_link.decode_row(message) == row


@given(records.replies)
def test_replies_round_trip(reply):
    """Proposals (trees and laws at wire precision), NEED_SYNC and refusals arrive as they were sent."""
    message = drafter_pb2.DraftAnswer.FromString(codec_link.encode_reply(reply).SerializeToString())
    assert codec_link.decode_reply(message) == reply


@given(records.vocabularies)
def test_vocabularies_round_trip(vocabulary):
    """A vocabulary's identity arrives as it was sent."""
    message = common_pb2.VocabularyIdentity.FromString(codec_link.encode_vocabulary(vocabulary).SerializeToString())
    assert codec_link.decode_vocabulary(message) == vocabulary


@given(records.drafter_loads)
def test_loads_round_trip(load):
    """A load report arrives as it was sent."""
    assert codec_link.decode_drafter_load(codec_link.encode_drafter_load(load)) == load


def test_chain_costs_no_parents():
    """Parents of a chain are not sent."""
    chain = codec_link.encode_reply(DraftProposal("s", 1, 1, DraftTree.chain((1, 2, 3))))
    assert not chain.proposal.parents


def test_negative_seed_keeps_its_bits():
    """A negative seed arrives as the same 64 bits, which is what noise is keyed by."""
    sent = DraftOpening("s", SamplingParams(), -5, 0, DrawRule.COUPLED)
    assert codec_link.decode_opening(codec_link.encode_opening(sent)).seed == 2**64 - 5


def test_unknown_answer_and_rule_are_nothing():
    """What a newer peer may say and we do not know is left out, not misread."""
    assert codec_link.decode_reply(drafter_pb2.DraftAnswer(session="s")) is None
    assert codec_link.decode_opening(drafter_pb2.SessionOpen(session="s")) is None


def test_a_law_that_siblings_share_travels_once():
    """Three siblings and a cousin carry two laws; at the other end siblings hold the same one."""
    one, other = (SparseLaw(tuple(range(start, start + 200)), (1 / 256,) * 200) for start in (0, 50))
    tree = DraftTree((1, 2, 3, 99), (-1, -1, -1, 1))
    proposal = DraftProposal("s", 3, 5, tree, (one, one, one, other))
    message = codec_link.encode_reply(proposal)
    alone = codec_link.encode_reply(DraftProposal("s", 3, 5, DraftTree((1, 99), (-1, 0)), (one, other)))
    assert message.ByteSize() < alone.ByteSize() + 40
    decoded = codec_link.decode_reply(drafter_pb2.DraftAnswer.FromString(message.SerializeToString()))
    assert decoded == proposal
    assert decoded.laws[0] is decoded.laws[1] is decoded.laws[2]
