"""Sampling parameters as records and as messages."""

from paceline.core.sampling_params import SamplingParams
from paceline.v1 import common_pb2

_DEFAULTS = SamplingParams()


def encode_sampling(sampling: SamplingParams) -> common_pb2.SamplingParams:
    """Sampling parameters as a message; every field that has a default other than 0 is set."""
    return common_pb2.SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=[common_pb2.LogitBias(token_id=token_id, bias=bias) for token_id, bias in sampling.logit_bias],
        bad_words=[common_pb2.TokenSequence(token_ids=ids) for ids in sampling.bad_words],
        min_tokens=sampling.min_tokens,
        max_tokens=sampling.max_tokens,
        stop=sampling.stop,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        logprobs=sampling.logprobs,
    )


def decode_sampling(message: common_pb2.SamplingParams) -> SamplingParams:
    """Sampling parameters from a message; what is not set keeps its default."""
    return SamplingParams(
        temperature=message.temperature if message.HasField("temperature") else _DEFAULTS.temperature,
        top_p=message.top_p if message.HasField("top_p") else _DEFAULTS.top_p,
        top_k=message.top_k,
        min_p=message.min_p,
        repetition_penalty=(
            message.repetition_penalty if message.HasField("repetition_penalty") else _DEFAULTS.repetition_penalty
        ),
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        logit_bias=tuple((entry.token_id, entry.bias) for entry in message.logit_bias),
        bad_words=tuple(tuple(word.token_ids) for word in message.bad_words),
        min_tokens=message.min_tokens,
        max_tokens=message.max_tokens,
        stop=tuple(message.stop),
        stop_token_ids=tuple(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        logprobs=message.logprobs if message.HasField("logprobs") else None,
    )
