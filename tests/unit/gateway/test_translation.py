import math
from dataclasses import replace

import pytest

import stub_pool
from paceline.core.plans import SpeculationPreference
from paceline.core.sampling_params import SamplingParams
from paceline.errors import ContextLengthExceededError, InvalidRequestError, ModelNotFoundError
from paceline.gateway.gateway_request import GatewayRequest
from paceline.gateway.translation import translate
from paceline.text.chat import ChatMessage
from paceline.text.tokenizer import TextTokenizer

POOL = stub_pool.StubPool()
VOCAB = POOL.identity.vocabulary.size
HELLO = GatewayRequest("hello")


def _translate(request: GatewayRequest, *, limit_tokens: int = 10_000, default_max_tokens: int = 1024):
    return translate(
        request,
        tokenizer=POOL.tokenizer,
        identity=POOL.identity,
        limit_tokens=limit_tokens,
        default_max_tokens=default_max_tokens,
    )


def _sampling(**fields):
    return replace(HELLO, sampling=SamplingParams(**fields))


RANGES = {
    "temperature": ([0, 1e-5, 2], [-1e-9, 2.1, 1e308, math.nan, math.inf]),
    "top_p": ([1e-9, 1], [0, -1, 1.1, math.nan]),
    "top_k": ([0, 1, 2**31 - 1], [-1, 2**31]),
    "min_p": ([0, 0.99], [-0.1, 1, math.nan]),
    "repetition_penalty": ([0.01, 1, 100], [0, 1e-9, 101, math.inf, math.nan]),
    "presence_penalty": ([-2, 2], [-2.1, 2.1, math.nan]),
    "frequency_penalty": ([-2, 2], [-2.1, 2.1, math.inf]),
    "min_tokens": ([0, 3], [-1]),
    "stop": ([(), ("a",) * 4], [("a",) * 5, ("",), ("a", ""), ("x" * 1025,)]),
    "stop_token_ids": ([(0, VOCAB - 1)], [(-1,), (VOCAB,), tuple(range(65))]),
    "logit_bias": ([((0, -100.0), (VOCAB - 1, 100.0))], [((VOCAB, 1.0),), ((0, 100.5),), ((0, math.nan),)]),
    "logprobs": ([None, 0, 20], [-1, 21]),
    "bad_words": ([((1, 2),)], [((),), ((VOCAB,),), ((1,),) * 257]),
}


@pytest.mark.parametrize(("field", "value"), [(name, value) for name, (good, _) in RANGES.items() for value in good])
def test_values_in_range_pass(field, value):
    """The documented bounds themselves are allowed."""
    assert _translate(_sampling(**{field: value})).prompt_token_ids


@pytest.mark.parametrize(
    ("field", "value"), [(name, value) for name, (_, bad) in RANGES.items() for value in bad], ids=lambda v: str(v)[:20]
)
def test_values_out_of_range_name_the_field(field, value):
    """Just outside the bounds, far outside and not-a-number are refused with the field's name."""
    with pytest.raises(InvalidRequestError) as caught:
        _translate(_sampling(**{field: value}))
    assert caught.value.param == field


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"num_choices": 0}, "n"),
        ({"num_choices": 17}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"seed": 2**64}, "seed"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"speculation": SpeculationPreference(max_draft_tokens=-1)}, "speculation.max_draft_tokens"),
        ({"speculation": SpeculationPreference(max_draft_tokens=65)}, "speculation.max_draft_tokens"),
        ({"deadline_s": -1.0}, "deadline_s"),
        ({"deadline_s": math.nan}, "deadline_s"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ()}, "prompt"),
        ({"prompt": (VOCAB,)}, "prompt"),
        ({"prompt": (-1,)}, "prompt"),
        ({"prompt": (ChatMessage("user", "x"),) * 4097}, "messages"),
        ({"bad_words": ("",)}, "bad_words"),
        ({"bad_words": (" ",)}, "bad_words"),
        ({"bad_words": ("x",) * 257}, "bad_words"),
        ({"bad_words": ("안녕하세요" * 40,)}, "bad_words"),
    ],
)
def test_the_rest_of_a_request_is_checked_too(changes, param):
    """Counts, prompts, seeds and words have bounds like the sampling parameters."""
    with pytest.raises(InvalidRequestError) as caught:
        _translate(replace(HELLO, **changes))
    assert caught.value.param == param


def test_an_unknown_model_is_refused_before_anything_else():
    """The error lists what is served; no name means the only model."""
    with pytest.raises(ModelNotFoundError, match="tiny"):
        _translate(replace(HELLO, model="../../etc/passwd", num_choices=99))
    assert _translate(replace(HELLO, model="tiny"))


def test_prompt_and_output_must_fit():
    """One token more than the context is refused, the last one that fits is not."""
    prompt_tokens = len(POOL.tokenizer.encode("hello"))
    room = POOL.context_length - prompt_tokens

    assert _translate(replace(HELLO, max_tokens=room)).sampling.max_tokens == room
    with pytest.raises(ContextLengthExceededError):
        _translate(replace(HELLO, max_tokens=room + 1))
    with pytest.raises(ContextLengthExceededError):
        _translate(replace(HELLO, prompt=(5,) * POOL.context_length))


def test_no_limit_means_the_default_or_the_rest_of_the_context():
    """The smallest of default, context and KV cache decides."""
    rest = POOL.context_length - len(POOL.tokenizer.encode("hello"))

    assert _translate(HELLO, default_max_tokens=10**6).sampling.max_tokens == rest
    assert _translate(HELLO, default_max_tokens=None).sampling.max_tokens == rest
    assert _translate(HELLO, default_max_tokens=7).sampling.max_tokens == 7
    assert _translate(HELLO, limit_tokens=64).sampling.max_tokens == 64 - len(POOL.tokenizer.encode("hello"))


def test_min_tokens_cannot_exceed_max_tokens():
    """An output that can never end is refused."""
    with pytest.raises(InvalidRequestError, match="min_tokens"):
        _translate(replace(_sampling(min_tokens=9), max_tokens=8))


def test_bad_words_are_spelt_with_and_without_a_space():
    """A word is banned where a text begins and in the middle of one; ids stay as they came."""
    request = replace(_sampling(bad_words=((5, 6),)), bad_words=("fox",))

    words = _translate(request).sampling.bad_words

    encode = POOL.tokenizer.encode_fragment
    assert words == ((5, 6), encode("fox"), encode(" fox"))


def test_seeds_become_64_bits():
    """A signed seed keeps its bits; a drawn one survives a reader that keeps 53 bits; two draws differ."""
    assert _translate(replace(HELLO, seed=-1)).seed == 2**64 - 1
    assert _translate(replace(HELLO, seed=7)).seed == 7
    drawn = {_translate(HELLO).seed for _ in range(20)}
    assert len(drawn) == 20
    assert all(int(float(seed)) == seed for seed in drawn)


def test_tiny_temperatures_are_greedy():
    """A temperature that would overflow float32 counts as 0."""
    assert _translate(_sampling(temperature=1e-300)).sampling.greedy
    assert not _translate(_sampling(temperature=1e-3)).sampling.greedy


def test_a_chat_has_one_begin_token():
    """The template prints the begin token and the tokenizer adds none; a raw prompt gets the tokenizer's own."""
    bos = dict(POOL.tokenizer.vocabulary.special_ids)["bos"]
    chat = _translate(replace(HELLO, prompt=(ChatMessage("user", "hello"),)))

    assert chat.prompt_token_ids.count(bos) == 1
    assert _translate(HELLO).prompt_token_ids.count(bos) == 1


@pytest.mark.parametrize("prompt", ["x" * 200_000, (ChatMessage("user", "x" * 200_000),)], ids=["text", "chat"])
def test_a_prompt_that_cannot_fit_is_not_tokenised(monkeypatch, prompt):
    """Its bytes alone say so; one that might fit is tokenised and then judged."""
    seen = []
    for name in ("encode", "encode_fragment"):
        whole = getattr(TextTokenizer, name)
        monkeypatch.setattr(TextTokenizer, name, lambda self, text, whole=whole: seen.append(text) or whole(self, text))

    with pytest.raises(ContextLengthExceededError):
        _translate(replace(HELLO, prompt=prompt))
    assert not seen

    with pytest.raises(ContextLengthExceededError):
        _translate(replace(HELLO, prompt="x" * (POOL.context_length + 1)))
    assert seen
