"""An answer that is stopped at any token and goes on in another engine is the answer that was never stopped."""

import pytest

from engine_harness import Harness
from paceline.core.generation import ChoiceStart, FinishReason
from paceline.errors import EngineFailedError
from script_drafters import ScriptDrafter, right_then_wrong
from tiny_tokenizers import text_tokenizer
from toy_target import Law, ToyRunner, hashed_law

LETTERS = 12
PROMPT = (1, 2, 3)
LETTER_LAW = hashed_law(LETTERS, scale=2.0)
BYTES = text_tokenizer("byte_fallback")
NUM_BYTES = 320
SAID = BYTES.encode_fragment("the 안녕 \U0001f1f0\U0001f1f7 own for the fox 세계")


def leaning_law() -> Law:
    """Follows a text of characters with many bytes, mostly."""
    noise = hashed_law(NUM_BYTES, scale=0.7)

    def law(prefix):
        logits = noise(prefix).clone()
        place = len(prefix) - len(PROMPT)
        if place < len(SAID):
            logits[SAID[place]] += 13.0
        return logits

    return law


BYTE_LAW = leaning_law()


def letters(**options):
    return Harness(ToyRunner(LETTER_LAW, LETTERS), **options)


def in_bytes(**options):
    return Harness(ToyRunner(BYTE_LAW, NUM_BYTES), tokenizer=BYTES, **options)


def logprobs_of(harness, choice=0):
    return [entry for chunk in harness.of("r/1", choice) for entry in chunk.logprobs]


def characters_after(harness, num_tokens, choice=0):
    """Characters that were out when ``num_tokens`` tokens were."""
    chunks = [chunk for chunk in harness.of("r/1", choice) if chunk.first_index < num_tokens]
    return sum(len(chunk.text) for chunk in chunks)


def resume(make, starts, **options):
    """Go on with ``starts`` in a new engine."""
    harness = make()
    harness.submit("r/1", PROMPT, resumed=tuple(starts), **options)
    harness.run()
    return harness


def assert_same_from(whole, rest, start):
    """What has arrived and what comes now make the whole answer, each part once."""
    choice, num_tokens = start.choice, len(start.output_token_ids)
    chunks = rest.of("r/1", choice)
    assert (chunks[0].first_index, chunks[0].text_offset) == (num_tokens, start.text_offset)
    assert start.output_token_ids + rest.ids("r/1", choice) == whole.ids("r/1", choice)
    text = whole.text("r/1", choice)
    assert text[: start.text_offset] + rest.text("r/1", choice) == text
    assert logprobs_of(rest, choice) == logprobs_of(whole, choice)[num_tokens:]
    assert rest.last("r/1", choice).finish is whole.last("r/1", choice).finish
    ours, theirs = rest.last("r/1", choice).stats, whole.last("r/1", choice).stats
    assert (ours.prompt_tokens, ours.completion_tokens) == (theirs.prompt_tokens, theirs.completion_tokens)
    assert ours.replayed == num_tokens


CASES = {
    "characters of many bytes": (in_bytes, {"max_tokens": 40}),
    "a stop string": (in_bytes, {"max_tokens": 60, "stop": ("fox", "r the")}),
    "penalties": (
        letters,
        {"presence_penalty": 0.7, "frequency_penalty": 0.5, "repetition_penalty": 1.3, "bad_words": ((4, 5), (7,))},
    ),
    "logprobs": (letters, {"logprobs": 3, "top_p": 0.8}),
    "an end that is held back": (
        lambda **options: letters(eos_token_ids=(0, 1, 2), **options),
        {"min_tokens": 9, "seed": 5},
    ),
    "a length limit": (letters, {"max_tokens": 7}),
}


@pytest.mark.parametrize("case", CASES)
def test_stopping_and_resuming_at_every_token_changes_nothing(case):
    """Ids, text, logprobs, finish and counts are those of the answer that was never stopped."""
    make, options = CASES[case]
    whole = resume(make, (), **options)
    ids = whole.ids("r/1")
    assert len(ids) > 6
    for num_tokens in range(len(ids)):
        start = ChoiceStart(0, ids[:num_tokens], characters_after(whole, num_tokens))
        rest = resume(make, [start], **options)
        assert_same_from(whole, rest, start)


def test_the_texts_put_the_hard_places_to_the_test():
    """Some stops lie inside a character, some inside what might become a stop string."""
    make, options = CASES["a stop string"]
    whole = resume(make, (), **options)
    lag = [len(BYTES.decode(whole.ids("r/1")[:n])) - characters_after(whole, n) for n in range(len(whole.ids("r/1")))]

    assert whole.last("r/1").finish is FinishReason.STOP
    assert "안녕" in whole.text("r/1")
    assert max(lag) >= 3


@pytest.mark.parametrize("case", ["characters of many bytes", "a stop string"])
def test_text_that_got_lost_on_its_way_is_sent_again(case):
    """A client may have the tokens and not all of their text, also of an answer whose tokens are complete."""
    make, options = CASES[case]
    whole = resume(make, (), **options)
    ids = whole.ids("r/1")
    for num_tokens in range(1, len(ids) + 1):
        for missing in (1, 5):
            start = ChoiceStart(0, ids[:num_tokens], max(0, characters_after(whole, num_tokens) - missing))
            assert_same_from(whole, resume(make, [start], **options), start)


def test_tokens_that_end_an_answer_end_its_resume_at_once():
    """No pass is run for a choice that needs none, and its finish and counts are told."""
    for case in ("a stop string", "an end that is held back", "a length limit"):
        make, options = CASES[case]
        whole = resume(make, (), **options)
        start = ChoiceStart(0, whole.ids("r/1"), len(whole.text("r/1")))
        rest = resume(make, [start], **options)

        assert_same_from(whole, rest, start)
        assert rest.runner.num_forwards == 0


def test_choices_are_resumed_each_from_its_own_place():
    """Two of three choices go on from different places; the third had ended and does not run."""
    options = {"num_choices": 3, "temperature": 1.0, "logprobs": 1}
    whole = resume(letters, (), **options)
    for num_tokens in range(0, 24, 5):
        starts = [
            ChoiceStart(choice, whole.ids("r/1", choice)[:count], count)
            for choice, count in ((0, num_tokens), (2, (num_tokens * 3 + 1) % 24))
        ]
        rest = resume(letters, starts, **options)

        for start in starts:
            assert_same_from(whole, rest, start)
        assert not rest.of("r/1", 1)


@pytest.mark.parametrize("right", [0, 2, 4])
def test_a_resumed_answer_is_drafted_for_from_its_first_step(right):
    """The drafter gets prompt and committed tokens alike; tau counts only what this engine committed."""
    whole = resume(letters, (), temperature=1.0)
    ids = whole.ids("r/1")
    for num_tokens in (1, 9, 20):
        drafter = ScriptDrafter(right_then_wrong(ids, len(PROMPT), LETTERS, right))
        harness = letters(drafters={"script": drafter})
        start = ChoiceStart(0, ids[:num_tokens], num_tokens)
        harness.submit("r/1", PROMPT, drafter="script", resumed=(start,), temperature=1.0)
        harness.run()
        stats = harness.last("r/1").stats

        assert_same_from(whole, harness, start)
        assert stats.tau == (24 - num_tokens) / harness.runner.num_forwards
        assert stats.drafted > 0


def test_a_resume_whose_text_does_not_fit_its_tokens_is_refused():
    """More characters than the tokens give mean that the two replicas differ."""
    with pytest.raises(EngineFailedError, match="characters"):
        letters().submit("r/1", PROMPT, resumed=(ChoiceStart(0, (4, 5), text_offset=3),))


def test_the_committed_tokens_of_a_resume_are_computed_like_a_prompt():
    """Prompt and committed tokens are one prefill, in chunks where it is long, and each is computed once."""
    whole = resume(letters, (), max_tokens=60)
    harness = letters(step_tokens=16)
    harness.submit("r/1", PROMPT, max_tokens=60, resumed=(ChoiceStart(0, whole.ids("r/1")[:50], 50),))
    harness.run()

    assert harness.ids("r/1") == whole.ids("r/1")[50:]
    assert sum(tokens for rows in harness.runner.passes for tokens, _ in rows) == len(PROMPT) + 60 - 1
