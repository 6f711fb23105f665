from hypothesis import given

import records
from paceline.core.sampling_params import SamplingParams
from paceline.rpc.codec_sampling import decode_sampling, encode_sampling
from paceline.v1 import common_pb2


@given(records.sampling_params)
def test_round_trip(sampling):
    """Every sampling parameter arrives as it was sent."""
    message = common_pb2.SamplingParams.FromString(encode_sampling(sampling).SerializeToString())
    assert decode_sampling(message) == sampling


def test_what_is_not_set_leaves_the_law_unchanged():
    """A message with only a token limit means the model's own distribution."""
    assert decode_sampling(common_pb2.SamplingParams(max_tokens=5)) == SamplingParams(max_tokens=5)
