import pytest
from hypothesis import given
from hypothesis import strategies as st

import records
from paceline.errors import InvalidRequestError, TargetUnavailableError
from paceline.rpc import codec_target
from paceline.rpc.protocol import Versions
from paceline.v1 import common_pb2, target_pb2
from peers import generation


@given(records.generation_requests)
def test_requests_round_trip(request_):
    """A request arrives as the gateway made it."""
    message = codec_target.encode_generation_request(request_).SerializeToString()
    assert codec_target.decode_generation_request(target_pb2.StreamRequest.FromString(message)) == request_


@given(st.lists(records.chunks, max_size=3))
def test_chunks_round_trip(chunks):
    """Chunks arrive as the engine made them, in one message."""
    message = target_pb2.StreamResponse.FromString(codec_target.encode_chunks(chunks).SerializeToString())
    assert codec_target.decode_chunks("r/1", message) == chunks


_MOMENTS = st.integers(0, 10**9).map(lambda ms: ms / 1e3)


@given(
    st.builds(
        codec_target.LoadReport,
        records.target_loads,
        records.counts,
        records.names,
        uptime_s=_MOMENTS,
        draining=st.booleans(),
        stalled_s=_MOMENTS,
    )
)
def test_reports_round_trip(report):
    """A load report arrives as it was sent."""
    assert codec_target.decode_report(codec_target.encode_report(report)) == report


@pytest.mark.parametrize("field", ["key", "plan", "choice_count", "prompt_token_ids"])
def test_request_that_no_gateway_can_mean_is_refused(field):
    """A missing key, plan, prompt or choice count is an error, not a default."""
    message = codec_target.encode_generation_request(generation())
    message.ClearField(field)
    with pytest.raises(InvalidRequestError):
        codec_target.decode_generation_request(message)


@pytest.mark.parametrize("choices", [(0, 0), (-1,), (1,)])
def test_a_resume_of_a_choice_that_was_not_asked_for_is_refused(choices):
    """Choices of a resume are named once each and lie below the number of choices."""
    message = codec_target.encode_generation_request(generation())
    message.resumed.extend(target_pb2.ChoiceStart(choice=choice) for choice in choices)
    with pytest.raises(InvalidRequestError):
        codec_target.decode_generation_request(message)


def test_gateway_of_a_far_release_is_sent_elsewhere():
    """Without a shared protocol version the request may be tried on another replica."""
    assert codec_target.agree(common_pb2.ProtocolRange(min=1, max=9), Versions(1, 2)) == 2
    assert codec_target.agree(common_pb2.ProtocolRange(min=1, max=1), Versions(1, 2)) == 1
    with pytest.raises(TargetUnavailableError, match="the gateway speaks protocol 3 to 4, the replica 1 to 2"):
        codec_target.agree(common_pb2.ProtocolRange(min=3, max=4), Versions(1, 2))
