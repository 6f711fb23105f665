"""Under `coupled` an answer depends on model, prompt, seed and parameters; on nothing that the engine does.

Every case is one engine with much going on: drafters that change at every round, trees, late and lost replies,
shared prefixes, prompts in chunks of random sizes, too few pages, aborts, resumes, and speculation that is turned
off and on. Each answer is compared with that of an engine that has the request to itself and never drafts.
"""

import functools
import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
import torch

from engine_harness import Harness
from paceline.core.generation import ChoiceStart
from paceline.drafting.draft_model import DraftModelDrafter
from paceline.drafting.ngram import NgramDrafter
from paceline.engine import kv_room
from roulette import RouletteDrafter
from toy_target import Law, ToyRunner, blended_law, hashed_law
from tree_scripts import TreeScriptDrafter, continuing, hidden_truth

VOCAB = 10
EOS = (0,)
Tokens = tuple[int, ...]


def smooth_law(salt: int) -> Law:
    """Logits that depend on the whole prefix: a wrong or missing token anywhere shows."""
    return hashed_law(VOCAB, scale=2.0, salt=salt, memory=10_000)


def tied_law(salt: int) -> Law:
    """Many ids have the same logits; the order among them must be the same on all routes."""
    law = hashed_law(VOCAB, scale=1.2, salt=salt, memory=3)
    return lambda prefix: law(prefix).round()


def dyadic_law(salt: int) -> Law:
    """Probabilities are powers of two, so that top-p cuts fall exactly between two tokens."""
    order = hashed_law(VOCAB, salt=salt, memory=3)
    powers = torch.tensor([2.0 ** -min(place + 1, VOCAB - 1) for place in range(VOCAB)])

    def law(prefix: Tokens) -> torch.Tensor:
        return torch.log(powers)[torch.argsort(torch.argsort(order(prefix)))]

    return law


def repeating_law(salt: int) -> Law:
    """Likes to say the last tokens again: penalties count tokens of the very path that is drafted."""
    law = hashed_law(VOCAB, scale=0.8, salt=salt, memory=2)

    def repeating(prefix: Tokens) -> torch.Tensor:
        logits = law(prefix).clone()
        for token_id in prefix[-3:]:
            logits[token_id] += 1.5
        return logits

    return repeating


LAWS = {"smooth": smooth_law, "tied": tied_law, "dyadic": dyadic_law, "repeating": repeating_law}
OPTIONS = (
    {},
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"top_p": 0.5},
    {"top_p": 0.75},
    {"top_p": 0.875, "top_k": 4},
    {"top_k": 2},
    {"min_p": 0.25},
    {"presence_penalty": 0.8, "frequency_penalty": 0.6},
    {"repetition_penalty": 1.4, "temperature": 0.0},
    {"frequency_penalty": 0.5, "top_p": 0.75, "bad_words": ((3, 4), (5,))},
    {"min_tokens": 9, "logit_bias": ((0, 2.0),)},
    {"stop": ("cd", "eb"), "logprobs": 2},
    {"ignore_eos": True, "num_choices": 2},
)


@dataclass
class Job:
    """One request, and what has become of it."""

    key: str
    prompt: Tokens
    options: dict
    arrives: int  # step before which it is submitted
    dies: int  # step before which it is aborted; large: never
    resumes: bool  # whether it goes on after that
    parts: list[str] = field(default_factory=list)  # keys of its attempts

    @property
    def num_choices(self) -> int:
        return self.options.get("num_choices", 1)


@dataclass
class Case:
    """Everything that is chosen at random, from one number."""

    number: int

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(self.number)
        self.law_name = rng.choice(list(LAWS))
        self.law = law_of(self.law_name, self.number % 8)
        self.page_size = rng.choice((1, 1, 3, 4, 16))
        self.step_tokens = rng.choice((6, 16, 64, 256))
        self.prefix_cache = rng.random() < 0.7
        stem = tuple(rng.randrange(1, VOCAB) for _ in range(24))
        self.jobs = [self._job(index, stem) for index in range(rng.randint(2, 6))]
        longest = max(len(job.prompt) + job.options["max_tokens"] for job in self.jobs)
        tokens = int(longest * rng.choice((1.0, 1.4, 1.7, 8.0)))  # of K/V: often too few for all
        self.num_pages = -(-tokens // self.page_size) + rng.randint(0, 2)

    def _job(self, index: int, stem: Tokens) -> Job:
        rng = self.rng
        shared = rng.choice((0, 5, 16, 24))
        prompt = stem[:shared] + tuple(rng.randrange(1, VOCAB) for _ in range(rng.randint(1, 12)))
        options = {
            "seed": rng.randrange(4),
            "max_tokens": rng.randint(1, 30) if rng.random() < 0.6 else rng.randint(60, 90),
            "tenant_salt": rng.choice(("", "", "other")),
            **rng.choice(OPTIONS),
        }
        dies = rng.randint(1, 20) if rng.random() < 0.3 else 10**6
        return Job(f"r{index}", prompt, options, rng.randint(0, 8), dies, rng.random() < 0.7)


@functools.cache
def law_of(name: str, salt: int) -> Law:
    return LAWS[name](salt)


def alone(case: Case, job: Job) -> Harness:
    """The request by itself, plain, in an engine with room."""
    harness = Harness(ToyRunner(case.law, VOCAB, page_size=4), eos_token_ids=EOS)
    harness.submit(job.key, job.prompt, **job.options)
    harness.run()
    return harness


def answer(harness: Harness, keys: list[str], choice: int):
    """Ids, text and logprobs of a choice over all attempts, and its last chunk."""
    chunks = [chunk for key in keys for chunk in harness.of(key, choice)]
    ids = tuple(i for chunk in chunks for i in chunk.token_ids)
    logprobs = tuple(entry for chunk in chunks for entry in chunk.logprobs)
    return ids, "".join(chunk.text for chunk in chunks), logprobs, chunks[-1] if chunks else None


class Run:
    """A case in its engine."""

    def __init__(self, case: Case) -> None:
        self.case, self.rng = case, case.rng
        self.references = {job.key: alone(case, job) for job in case.jobs}
        whole = [
            job.prompt + self.references[job.key].ids(job.key, choice)
            for job in case.jobs
            for choice in range(job.num_choices)
        ]
        near = blended_law(case.law, hashed_law(VOCAB, salt=99, memory=2), share=0.3)
        model = ToyRunner(near, VOCAB, page_size=self.rng.choice((1, 4)), num_pages=2048)
        self.drafter = RouletteDrafter(
            {
                "ngram": NgramDrafter(min_match=1),
                "model": DraftModelDrafter(model, eos_token_ids=EOS, prefill_chunk=7),
                "lucky": TreeScriptDrafter(hidden_truth(continuing(whole), VOCAB, self.rng)),
                "unlucky": TreeScriptDrafter(hidden_truth(continuing(whole), VOCAB, self.rng, share=0.2)),
            },
            self.rng,
        )
        self.harness = Harness(
            ToyRunner(case.law, VOCAB, num_pages=case.num_pages, page_size=case.page_size),
            {"any": self.drafter},
            eos_token_ids=EOS,
            max_running=self.rng.choice((2, 16)),
            step_tokens=case.step_tokens,
            prefix_cache=case.prefix_cache,
        )

    def to_the_end(self) -> None:
        step = 0
        while step < 9 or self.harness.engine.has_work:
            assert step < 2000, "the engine makes no progress"
            self._disturb(step)
            if self.harness.engine.has_work:
                self.harness.engine.step()
            step += 1
        self.harness.engine.check_integrity()
        assert not self.harness.errors

    def _disturb(self, step: int) -> None:
        """What arrives, what dies, and other settings for the coming step."""
        for job in self.case.jobs:
            if step == job.arrives:
                self._submit(job, ())
            if step == job.dies and job.parts:
                self.harness.engine.abort(job.parts[-1])
                if job.resumes:
                    self._submit(job, self._starts(job))
        if self.rng.random() < 0.3:
            step_tokens = self.rng.choice((5, 16, self.case.step_tokens))
            self.harness.scheduler._limits = replace(self.harness.scheduler._limits, step_tokens=step_tokens)
        if self.rng.random() < 0.2:
            settings = self.harness.speculation._settings
            off = self.rng.random() < 0.3
            self.harness.speculation.apply(
                replace(
                    settings, enabled=not off, max_draft_tokens=self.rng.randint(1, 8), top_k=self.rng.randint(1, 3)
                )
            )

    def _submit(self, job: Job, starts: tuple[ChoiceStart, ...] | None) -> None:
        if starts is None:
            return
        job.parts.append(f"{job.key}/{len(job.parts) + 1}")
        drafter = "any" if self.rng.random() < 0.85 else None
        self.harness.submit(
            job.parts[-1],
            job.prompt,
            drafter=drafter,
            max_draft_tokens=self.rng.randint(1, 8),
            resumed=starts,
            **job.options,
        )

    def _starts(self, job: Job) -> tuple[ChoiceStart, ...] | None:
        """Where the unfinished choices stand; None if there is none."""
        starts = []
        for choice in range(job.num_choices):
            ids, text, _, last = answer(self.harness, job.parts, choice)
            if last is None or last.finish.value == "abort":
                starts.append(ChoiceStart(choice, ids, len(text)))
        return tuple(starts) or None

    def check(self, seen: Counter) -> None:
        """Every answer is its reference, or a part of it where nothing resumed it."""
        for job in self.case.jobs:
            for choice in range(job.num_choices):
                *expected, end = answer(self.references[job.key], [job.key], choice)
                *got, last = answer(self.harness, job.parts, choice)
                cut = last.finish.value == "abort"
                if cut:
                    expected = [whole[: len(part)] for whole, part in zip(expected, got, strict=True)]
                assert got == expected, f"case {self.case.number}, request {job.key}, choice {choice}: {job.options}"
                assert cut or last.finish is end.finish
                seen.update(answers=1, resumed=len(job.parts) > 1, aborted=cut, accepted=last.stats.accepted)
        seen.update({f"by {name}": count for name, count in self.drafter.rounds.items()})
        seen.update(
            preempted=self.harness.counted("PREEMPTIONS"),
            cached=self.harness.counted("PREFIX_HIT_TOKENS"),
            rerooted=self.harness.counted("REROOTED_DRAFTS", group="any"),
            moved=self.harness.runner.num_moved,
        )


def fuzz(numbers: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the cases; all that they are about must have happened in them."""
    seen: Counter = Counter()
    for number in numbers:
        # Admitted with less room to grow than the engine wants, sequences run out of pages more often.
        monkeypatch.setattr(kv_room, "HEADROOM_TOKENS", (0, 4, 32)[number % 3])
        run = Run(Case(number))
        run.to_the_end()
        run.check(seen)
    print(f"\n{dict(seen)}")  # noqa: T201
    wanted = ["answers", "resumed", "aborted", "accepted", "preempted", "cached", "rerooted", "moved"]
    wanted += ["by ngram", "by model", "by lucky", "by unlucky", "by nobody", "by trees", "by late"]
    assert all(seen[what] >= len(numbers) / 20 for what in wanted), seen


def test_no_route_changes_an_answer(monkeypatch):
    """Ids, text, logprobs and finish are those of plain decoding alone."""
    fuzz(range(100), monkeypatch)


@pytest.mark.full
def test_no_route_changes_an_answer_in_many_cases(monkeypatch):
    """The long form of the same claim."""
    fuzz(range(1000, 3000), monkeypatch)
