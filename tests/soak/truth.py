"""What each question's answer is: computed once by the engine alone, in this process, without drafts.

Under the verifier `coupled` an answer depends on its question alone, so every other way to get it, whatever
happens on the way, must give the same.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.backends.native import NativeBackend
from paceline.config.schema import DeploymentConfig
from paceline.core.generation import GenerationRequest, TokenLogprob
from paceline.core.plans import Plan, Route
from paceline.gateway.gateway_request import GatewayRequest
from paceline.gateway.translation import Translated, translate
from paceline.text.tokenizer import TextTokenizer

_AT_A_TIME = 16


@dataclass
class TrueChoice:
    """One choice of an undisturbed answer."""

    ids: list[int] = field(default_factory=list)
    text: str = ""
    finish: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)


@dataclass
class Truth:
    """An undisturbed answer."""

    prompt_tokens: int
    choices: list[TrueChoice]
    bad_words: tuple[tuple[int, ...], ...] = ()  # as ids: the gRPC door takes no others

    @property
    def completion_tokens(self) -> int:
        """Over all choices."""
        return sum(len(choice.ids) for choice in self.choices)


async def compute_truths(questions: Sequence[GatewayRequest], folder: Path, config: DeploymentConfig) -> list[Truth]:
    """Answer every question plainly; ``config`` is the fleet's."""
    backend = NativeBackend.start(folder, config=config, drafters={})
    tokenizer = TextTokenizer.load(folder, vocab_size=backend.identity.vocabulary.size)
    translated = [_translate(question, tokenizer, backend, config) for question in questions]
    gate = asyncio.Semaphore(_AT_A_TIME)

    async def answer(number: int) -> Truth:
        async with gate:
            return await _answer(backend, number, translated[number], questions[number].num_choices)

    try:
        return await asyncio.gather(*(answer(number) for number in range(len(questions))))
    finally:
        await backend.close()


def _translate(
    question: GatewayRequest, tokenizer: TextTokenizer, backend: NativeBackend, config: DeploymentConfig
) -> Translated:
    return translate(
        question,
        tokenizer=tokenizer,
        identity=backend.identity,
        limit_tokens=config.engine.kv_cache_tokens,
        default_max_tokens=config.gateway.default_max_tokens,
    )


async def _answer(backend: NativeBackend, number: int, asked: Translated, num_choices: int) -> Truth:
    request = GenerationRequest(
        key=f"truth-{number}/1",
        prompt_token_ids=asked.prompt_token_ids,
        sampling=asked.sampling,
        seed=asked.seed,
        plan=Plan(Route.PLAIN, "the truth"),
        num_choices=num_choices,
    )
    choices = [TrueChoice() for _ in range(num_choices)]
    async for batch in backend.generate(request):
        for chunk in batch:
            choice = choices[chunk.choice]
            choice.ids += chunk.token_ids
            choice.text += chunk.text
            choice.logprobs += chunk.logprobs
            if chunk.finish is not None:
                choice.finish = chunk.finish.value
    return Truth(len(asked.prompt_token_ids), choices, asked.sampling.bad_words)
