"""The target answers questions through our own engine, many at a time; what is there already is not made again."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from paceline.backends.native import NativeBackend
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.text.chat import ChatMessage
from paceline.text.tokenizer import TextTokenizer
from paceline.training.answers import Answer, AnswerFile
from paceline.training.user_turns import UserTurns

_UINT64 = (1 << 64) - 1
_QUESTION_TOKENS = 160  # most tokens of a question that the model makes up
_QUESTION_SAMPLING = SamplingParams(temperature=1.0, top_p=0.95, max_tokens=_QUESTION_TOKENS)

OnAnswer = Callable[[int], None]  # told of the tokens of each new answer


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """How much to generate, and how it is sampled."""

    num_tokens: int  # of all answers together, those of earlier runs included
    temperatures: tuple[float, ...]  # by turns
    max_tokens: int  # of one answer
    concurrent: int
    seed: int


class AnswerWriter:
    """A model that asks itself, or is asked, and answers."""

    def __init__(self, backend: NativeBackend, tokenizer: TextTokenizer, options: GenerateOptions) -> None:
        self._backend = backend
        self._tokenizer = tokenizer
        self._options = options

    async def complete(self, prompt_ids: Sequence[int], index: int) -> Sequence[int]:
        """What the model writes as the user of dialogue ``index``."""
        ids, _ = await self._generate(f"turn-{index}", prompt_ids, _QUESTION_SAMPLING, 2 * index)
        return ids

    async def answer(self, question: str, index: int) -> Answer:
        """The answer of dialogue ``index``."""
        temperature = self._options.temperatures[index % len(self._options.temperatures)]
        prompt_ids = self._tokenizer.render_chat([ChatMessage("user", question)])
        sampling = SamplingParams(temperature=temperature, max_tokens=self._options.max_tokens)
        ids, finish = await self._generate(f"answer-{index}", prompt_ids, sampling, 2 * index + 1)
        return Answer(index, tuple(prompt_ids), ids, temperature, finish)

    async def _generate(
        self, name: str, prompt_ids: Sequence[int], sampling: SamplingParams, number: int
    ) -> tuple[tuple[int, ...], str]:
        seed = (self._options.seed * 0x9E3779B97F4A7C15 + number) & _UINT64
        plan = Plan(Route.PLAIN, "training data is decoded plain")
        request = GenerationRequest(f"{name}/1", tuple(prompt_ids), sampling, seed, plan)
        ids: list[int] = []
        finish = ""
        stream = cast("AsyncGenerator[Sequence[GenerationChunk], None]", self._backend.generate(request))
        async with aclosing(stream) as batches:
            async for chunk in (chunk async for batch in batches for chunk in batch):
                ids.extend(chunk.token_ids)
                finish = chunk.finish.value if chunk.finish else finish
        return tuple(ids), finish


async def generate_answers(
    writer: AnswerWriter, turns: UserTurns, path: Path, options: GenerateOptions, on_answer: OnAnswer
) -> int:
    """Answer questions until ``options.num_tokens`` are in the file at ``path``; returns how many tokens it holds.

    Interrupted and started again it goes on: dialogues are numbered, and each draws from its number alone.
    """
    file = AnswerFile(path)
    done = {answer.index: len(answer.answer_ids) for answer in file}
    total = sum(done.values())
    on_answer(total)
    indices = (index for index in itertools.count() if index not in done)

    async def work() -> None:
        nonlocal total
        while total < options.num_tokens:
            index = next(indices)
            question = await turns.turn(index)
            if question is None:
                continue
            answer = await writer.answer(question, index)
            file.append(answer)
            total += len(answer.answer_ids)
            on_answer(len(answer.answer_ids))

    async with asyncio.TaskGroup() as workers:
        for _ in range(options.concurrent):
            workers.create_task(work())
    return total
