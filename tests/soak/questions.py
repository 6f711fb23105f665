"""Distinct requests, drawn from a seed: what is asked, apart from how it travels and what becomes of it."""

import random

from paceline.core.sampling_params import SamplingParams
from paceline.gateway.gateway_request import GatewayRequest, Prompt
from paceline.text.chat import ChatMessage

MAX_TOKENS = 200
_OPENINGS = (
    "You are a careful assistant. Answer in short, plain sentences and say so when you do not know.",
    "The following is a list of rivers, mountains and towns, each with one line about it. Go on with the list.",
    "Copy what is given to you, word for word: red, green, blue, red, green, blue, red, green, blue, red, green,",
    "Translate each line. The quick brown fox jumps over the lazy dog. The own fox quickly ran. 안녕하세요 세계.",
    "",
)
_TASKS = (
    "Count to ten and back again.",
    "What is 12 times 12?",
    "Say hello in three languages: 안녕, สวัสดี, hello!",
    "Once upon a time there was a fox",
    "a b c d e f g a b c d e f g a b c",
    "Name five rivers, one per line.\n1. Rhine\n2. Nile\n3.",
    "Write a haiku about rain 🇰🇷 and flags 🇩🇪.",
    "Go on.",
)
_STOPS = ("e", "th", " ", "\n", "ox", "er", "0", "the")


def draw_questions(rng: random.Random, count: int, vocab_size: int) -> list[GatewayRequest]:
    """``count`` requests with seeds of their own; many share the beginnings of their prompts."""
    return [_question(rng, vocab_size) for _ in range(count)]


def _question(rng: random.Random, vocab_size: int) -> GatewayRequest:
    sampling = _sampling(rng, vocab_size)
    return GatewayRequest(
        prompt=_prompt(rng, vocab_size),
        sampling=sampling,
        max_tokens=max(sampling.min_tokens, _length(rng)),
        seed=rng.getrandbits(62),
        num_choices=rng.choices((1, 2, 3), (8, 1, 1))[0],
        bad_words=("fox",) if rng.random() < 0.1 else (),
    )


def _prompt(rng: random.Random, vocab_size: int) -> Prompt:
    opening, task = rng.choice(_OPENINGS), f"{rng.choice(_TASKS)} {rng.randrange(20)}"
    kind = rng.randrange(3)
    if kind == 0:
        return f"{opening} {task}"
    if kind == 1:
        return tuple(rng.randrange(3, vocab_size) for _ in range(rng.choice((1, 5, 40, 120))))
    turns = [ChatMessage("user", task)]
    if rng.random() < 0.3:
        turns += [ChatMessage("assistant", "Gladly."), ChatMessage("user", "Go on, please.")]
    return (ChatMessage("system", opening), *turns) if opening else tuple(turns)


def _length(rng: random.Random) -> int:
    """Most answers are short, some are long, a few are one token."""
    return min(MAX_TOKENS, 1 + int(rng.expovariate(1 / 45)))


def _sampling(rng: random.Random, vocab_size: int) -> SamplingParams:
    def now_and_then(value: float, otherwise: float, share: float = 0.15) -> float:
        return value if rng.random() < share else otherwise

    return SamplingParams(
        temperature=rng.choice((0.0, 0.0, 0.3, 0.7, 1.0)),
        top_p=now_and_then(0.9, 1.0),
        top_k=int(now_and_then(20, 0)),
        min_p=now_and_then(0.05, 0.0),
        repetition_penalty=now_and_then(1.2, 1.0),
        presence_penalty=now_and_then(0.5, 0.0),
        frequency_penalty=now_and_then(0.4, 0.0),
        logit_bias=_favourites(rng, vocab_size) if rng.random() < 0.3 else (),
        min_tokens=int(now_and_then(4, 0, 0.1)),
        stop=tuple(rng.sample(_STOPS, rng.choice((1, 2, 4)))) if rng.random() < 0.25 else (),
        stop_token_ids=(rng.randrange(3, vocab_size),) if rng.random() < 0.1 else (),
        ignore_eos=rng.random() < 0.5,
        logprobs=rng.choice((0, 2, 5)) if rng.random() < 0.2 else None,
    )


def _favourites(rng: random.Random, vocab_size: int) -> tuple[tuple[int, float], ...]:
    """A few tokens that come again and again, so that drafts of them are accepted."""
    return tuple((token_id, 6.0) for token_id in sorted(rng.sample(range(3, vocab_size), 3)))
