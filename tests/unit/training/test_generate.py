"""Generating answers: resumable, and each dialogue depends on its number alone."""

import pytest

from paceline.core.generation import FinishReason, GenerationChunk
from paceline.core.plans import Route
from paceline.training.answers import AnswerFile
from paceline.training.corpus import read_corpus
from paceline.training.generate import AnswerWriter, GenerateOptions, generate_answers
from tiny_tokenizers import text_tokenizer

TOKENIZER = text_tokenizer("byte_level")


class SeededBackend:
    """Answers with tokens that depend on the request's seed and prompt alone; fails after so many requests."""

    def __init__(self, most_requests=10**9):
        self.requests = []
        self._most = most_requests

    async def generate(self, request):
        if len(self.requests) == self._most:
            raise RuntimeError("the machine stops")
        self.requests.append(request)
        first = request.seed % 97 + len(request.prompt_token_ids)
        ids = (first, first + 1)
        yield [GenerationChunk(request.key, 0, 0, ids, "", 0)]
        yield [GenerationChunk(request.key, 0, 2, (2,), "", 0, finish=FinishReason.STOP)]


class Turns:
    """Every third dialogue has no question."""

    async def turn(self, index):
        return None if index % 3 == 2 else f"question {index}"


def options(num_tokens=30, concurrent=4, seed=0):
    return GenerateOptions(num_tokens, (0.0, 1.0), 8, concurrent, seed)


async def generate(path, opts, backend=None):
    backend = backend or SeededBackend()
    told = []
    total = await generate_answers(AnswerWriter(backend, TOKENIZER, opts), Turns(), path, opts, told.append)
    return total, told, backend


async def test_it_ends_when_the_file_holds_enough(tmp_path):
    """Three tokens an answer; those in flight are kept too."""
    total, told, backend = await generate(tmp_path / "a.jsonl", options())
    answers = list(AnswerFile(tmp_path / "a.jsonl"))

    assert 30 <= total == sum(told) == sum(len(answer.answer_ids) for answer in answers)
    assert {answer.finish for answer in answers} == {"stop"}
    assert all(answer.index % 3 != 2 for answer in answers)
    assert {request.plan.route for request in backend.requests} == {Route.PLAIN}


async def test_a_dialogue_depends_on_its_number_alone(tmp_path):
    """Not on how many run at a time, nor on what ran before; temperatures go by turns."""
    await generate(tmp_path / "one.jsonl", options(concurrent=1))
    await generate(tmp_path / "many.jsonl", options(num_tokens=60, concurrent=7))
    one = {answer.index: answer for answer in AnswerFile(tmp_path / "one.jsonl")}
    many = {answer.index: answer for answer in AnswerFile(tmp_path / "many.jsonl")}

    assert one.keys() <= many.keys()
    assert all(many[index] == answer for index, answer in one.items())
    assert all(answer.temperature == (answer.index % 2) for answer in many.values())


async def test_another_seed_gives_other_answers(tmp_path):
    """So two files of one model can be put together."""
    await generate(tmp_path / "a.jsonl", options())
    await generate(tmp_path / "b.jsonl", options(seed=1))

    assert set(AnswerFile(tmp_path / "a.jsonl")).isdisjoint(AnswerFile(tmp_path / "b.jsonl"))


async def test_interrupted_it_goes_on_and_makes_nothing_twice(tmp_path):
    """A run that fails with a torn line, and the run after it, give what one whole run gives."""
    path = tmp_path / "a.jsonl"
    with pytest.raises(ExceptionGroup):
        await generate(path, options(), SeededBackend(most_requests=5))
    with path.open("a") as file:
        file.write('{"index":11,"prom')

    before = {answer.index for answer in AnswerFile(path)}
    _, told, backend = await generate(path, options())
    await generate(tmp_path / "whole.jsonl", options())
    made = {int(request.key.split("-")[1].split("/")[0]) for request in backend.requests}

    assert before
    assert not before & made
    assert told[0] == 3 * len(before)
    assert (
        sorted(AnswerFile(path), key=lambda answer: answer.index)[:8]
        == sorted(AnswerFile(tmp_path / "whole.jsonl"), key=lambda answer: answer.index)[:8]
    )


async def test_what_was_generated_can_be_trained_on(tmp_path):
    """The corpus reads the file as it lies there."""
    await generate(tmp_path / "a.jsonl", options())
    dialogues = read_corpus([tmp_path / "a.jsonl"], TOKENIZER)

    assert [dialogue.answer_ids for dialogue in dialogues] == [a.answer_ids for a in AnswerFile(tmp_path / "a.jsonl")]
