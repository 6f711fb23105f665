"""The engine on a target whose law is known: same tokens on every route, nothing left behind."""

from itertools import pairwise

import pytest
import torch

from engine_harness import Harness
from paceline.core.generation import FinishReason
from paceline.engine.speculation import SpeculationSettings
from paceline.errors import CacheCorruptionError, OverloadedError
from script_drafters import ScriptDrafter, anti_oracle, oracle, right_then_wrong
from toy_target import ToyRunner, hashed_law

VOCAB = 12
PROMPT = (1, 2, 3)
LAW = hashed_law(VOCAB, scale=2.0)


def plain(prompt=PROMPT, *, law=LAW, runner_options=None, **options):
    """What plain decoding gives."""
    harness = Harness(ToyRunner(law, VOCAB, **(runner_options or {})))
    harness.submit("plain/1", prompt, **options)
    harness.run()
    return harness


def with_drafter(script, prompt=PROMPT, *, max_draft_tokens=4, eos=(), page_size=4, **options):
    """The same request with a scripted drafter."""
    harness = Harness(ToyRunner(LAW, VOCAB, page_size=page_size), {"script": ScriptDrafter(script)}, eos_token_ids=eos)
    harness.submit("spec/1", prompt, drafter="script", max_draft_tokens=max_draft_tokens, **options)
    harness.run()
    return harness


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_always_right_drafter_gives_the_same_tokens_in_fewer_passes(temperature):
    """All drafts are accepted and every pass commits a whole round."""
    reference = plain(temperature=temperature).ids("plain/1")
    harness = with_drafter(oracle(reference, len(PROMPT)), temperature=temperature)
    stats = harness.last("spec/1").stats

    assert harness.ids("spec/1") == reference
    assert stats.accepted == stats.tested == stats.drafted > 0
    assert stats.rounds == harness.runner.num_forwards < len(reference) / 3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_always_wrong_drafter_costs_nothing_but_drafts(temperature):
    """tau is exactly 1, the tokens are the plain ones, and each round is one target pass."""
    reference = plain(temperature=temperature).ids("plain/1")
    harness = with_drafter(anti_oracle(reference, len(PROMPT), VOCAB), temperature=temperature)
    stats = harness.last("spec/1").stats

    assert harness.ids("spec/1") == reference
    assert stats.tau == 1.0
    assert stats.alpha == 0.0
    assert harness.runner.num_forwards == stats.rounds == len(reference)


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("right", [0, 1, 2, 3])
def test_partly_right_drafts_roll_back_across_page_borders(right, page_size):
    """Rejected look-ahead slots never leak into later tokens, wherever page borders fall."""
    for num_prompt in (1, 3, 4, 5, 8):
        prompt = tuple(range(1, 1 + num_prompt))
        reference = plain(prompt, temperature=1.0).ids("plain/1")
        script = right_then_wrong(reference, num_prompt, VOCAB, right)
        harness = with_drafter(script, prompt, page_size=page_size, temperature=1.0, max_draft_tokens=5)

        assert harness.ids("spec/1") == reference


def test_a_step_without_drafts_calls_no_drafter_and_no_verifier():
    """Plain is truly plain: counted, with a drafter deployed."""
    drafter = ScriptDrafter(lambda *_: (1, 2))
    harness = Harness(ToyRunner(LAW, VOCAB), {"script": drafter})
    harness.submit("plain/1", PROMPT)
    harness.run()

    assert harness.counted("VERIFY_CALLS") == 0
    assert harness.counted("DRAFTER_CALLS", group="script") == 0
    assert harness.counted("TARGET_FORWARDS") == 24
    assert drafter.calls == 0


def test_every_offset_of_an_end_of_sequence_inside_a_round_cuts_there():
    """An accepted end of sequence ends the answer at that token, not at the end of its block."""
    free = plain(temperature=0.0, max_tokens=16).ids("plain/1")
    for place in range(1, 12):
        eos = free[place]
        expected = free[: free.index(eos) + 1]
        harness = with_drafter(
            oracle(free, len(PROMPT)), max_draft_tokens=6, eos=(eos,), temperature=0.0, max_tokens=16
        )

        assert harness.ids("spec/1") == expected
        assert harness.last("spec/1").finish is FinishReason.STOP
        assert len(harness.text("spec/1")) == len(expected) - 1


def test_min_tokens_counts_tokens_and_not_steps():
    """With every draft accepted, the end of sequence is held back exactly as long as in plain decoding."""
    options = {"temperature": 1.0, "min_tokens": 9, "max_tokens": 20, "seed": 5}
    eos = (0, 1, 2, 3)
    reference = Harness(ToyRunner(LAW, VOCAB), eos_token_ids=eos)
    reference.submit("plain/1", PROMPT, **options)
    reference.run()
    expected = reference.ids("plain/1")
    harness = with_drafter(oracle(expected, len(PROMPT)), eos=eos, **options)

    assert harness.ids("spec/1") == expected
    assert not set(expected[:9]) & set(eos)
    assert len(expected) >= 10


@pytest.mark.parametrize(
    "params",
    [
        {"presence_penalty": 1.5},
        {"frequency_penalty": 1.0},
        {"repetition_penalty": 1.4},
        {"bad_words": ((4, 5), (7,))},
        {"logit_bias": ((3, 4.0),)},
        {"top_k": 3},
        {"top_p": 0.6},
        {"min_p": 0.2},
    ],
    ids=lambda params: next(iter(params)),
)
@pytest.mark.parametrize("right", [1, 4])
def test_every_sampling_parameter_acts_the_same_on_both_routes(params, right):
    """One function gives the law of a position; accepted drafts are part of its prefix."""
    for temperature in (0.0, 1.0):
        reference = plain(temperature=temperature, **params).ids("plain/1")
        script = right_then_wrong(reference, len(PROMPT), VOCAB, right)

        assert with_drafter(script, temperature=temperature, **params).ids("spec/1") == reference


def test_a_bad_word_never_appears_across_a_block_border():
    """The last token of a bad word is banned also when its first one was just accepted."""
    reference = plain(temperature=1.0, max_tokens=60).ids("plain/1")
    first, second = reference[2], reference[3]
    script = oracle(reference, len(PROMPT))  # proposes the bad word itself
    ids = with_drafter(script, temperature=1.0, max_tokens=60, bad_words=((first, second),)).ids("spec/1")

    assert (first, second) not in set(pairwise(ids))


def test_logprobs_are_one_per_token_and_equal_on_both_routes():
    """Chunks of several tokens carry each token's own logprob and alternatives."""
    reference = plain(temperature=1.0, logprobs=3)
    expected = [entry for chunk in reference.of("plain/1") for entry in chunk.logprobs]
    harness = with_drafter(
        right_then_wrong(reference.ids("plain/1"), len(PROMPT), VOCAB, 2), temperature=1.0, logprobs=3
    )
    got = [entry for chunk in harness.of("spec/1") for entry in chunk.logprobs]

    assert [entry.token_id for entry in got] == list(harness.ids("spec/1"))
    assert got == expected
    assert all(len(entry.top) == 3 for entry in got)


def test_chunks_follow_each_other_without_gap_or_repeat():
    """first_index and text_offset of every chunk continue the one before."""
    harness = with_drafter(oracle(plain().ids("plain/1"), len(PROMPT)))
    tokens = characters = 0
    for chunk in harness.of("spec/1"):
        assert (chunk.first_index, chunk.text_offset) == (tokens, characters)
        tokens += len(chunk.token_ids)
        characters += len(chunk.text)

    assert tokens == harness.last("spec/1").stats.completion_tokens


def test_length_limits_are_met_exactly_whatever_the_draft_budget():
    """max_tokens and the end of the context are reached at the exact token, with no draft beyond."""
    for max_tokens in range(1, 8):
        reference = plain(max_tokens=max_tokens).ids("plain/1")
        harness = with_drafter(
            oracle(plain(max_tokens=30).ids("plain/1"), 3), max_draft_tokens=5, max_tokens=max_tokens
        )

        assert harness.ids("spec/1") == reference
        assert harness.last("spec/1").finish is FinishReason.LENGTH


def test_the_context_end_stops_an_answer():
    """Prompt plus output never pass the context length."""
    harness = plain(runner_options={"context": 10}, max_tokens=50)

    assert len(harness.ids("plain/1")) == 7
    assert harness.last("plain/1").finish is FinishReason.LENGTH


def test_choices_differ_and_each_equals_itself_alone():
    """Choices of one request have noise of their own; batching changes none of them."""
    together = plain(num_choices=3, temperature=1.0)
    ids = [together.ids("plain/1", choice) for choice in range(3)]
    drafted = with_drafter(oracle(ids[1], len(PROMPT)), num_choices=3, temperature=1.0)

    assert len(set(ids)) == 3
    assert [drafted.ids("spec/1", choice) for choice in range(3)] == ids
    assert plain(temperature=1.0).ids("plain/1") == ids[0]


def test_requests_in_one_batch_do_not_influence_each_other():
    """Many requests of different lengths and budgets give what each gives alone."""
    prompts = {f"r{n}/1": tuple(range(n % 5 + 1)) for n in range(12)}
    alone = {key: plain(prompt, temperature=1.0, seed=9).ids("plain/1") for key, prompt in prompts.items()}
    drafter = ScriptDrafter(lambda context, depth: context[:depth])
    harness = Harness(ToyRunner(LAW, VOCAB), {"script": drafter}, max_running=5, step_tokens=16)
    for number, (key, prompt) in enumerate(prompts.items()):
        harness.submit(key, prompt, drafter="script" if number % 2 else None, temperature=1.0, seed=9)
    harness.run()

    assert {key: harness.ids(key) for key in prompts} == alone
    assert not drafter.contexts


def test_long_prompts_are_prefilled_in_chunks_while_others_decode():
    """A chunked prompt gives the same tokens, and decoding rows go on in the same passes."""
    long_prompt = tuple(n % VOCAB for n in range(100))
    reference = plain(long_prompt).ids("plain/1")
    harness = Harness(ToyRunner(LAW, VOCAB), step_tokens=16)
    harness.submit("short/1", PROMPT, max_tokens=40)
    harness.engine.step()
    harness.submit("long/1", long_prompt)
    harness.run()
    mixed = [rows for rows in harness.runner.passes if {1, 15} <= {tokens for tokens, _ in rows}]

    assert harness.ids("long/1") == reference
    assert len(mixed) >= 4


def test_an_abort_at_any_step_frees_everything():
    """Before admission, in prefill, in the middle of decoding: nothing is held afterwards."""
    for steps in range(8):
        drafter = ScriptDrafter(lambda context, depth: context[:depth])
        harness = Harness(ToyRunner(LAW, VOCAB), {"script": drafter}, step_tokens=8)
        harness.submit("gone/1", tuple(range(12)) * 2, drafter="script")
        for _ in range(steps):
            harness.engine.step()
        harness.engine.abort("gone/1")
        harness.engine.abort("gone/1")

        harness.engine.check_integrity()
        assert harness.last("gone/1").finish is FinishReason.ABORT
        assert not harness.engine.has_work
        assert not drafter.contexts


def test_waiting_requests_start_when_pages_are_free_and_all_finish():
    """A pool for two requests serves six, in order, with the tokens of an empty machine."""
    reference = plain(max_tokens=20).ids("plain/1")
    harness = Harness(ToyRunner(LAW, VOCAB, num_pages=12, page_size=4))
    for number in range(6):
        harness.submit(f"r{number}/1", PROMPT, max_tokens=20)
    harness.engine.step()
    assert (len(harness.scheduler.running), len(harness.scheduler.waiting)) == (2, 4)
    harness.run()

    assert all(harness.ids(f"r{number}/1") == reference for number in range(6))


def test_a_full_queue_refuses_a_request_whole():
    """Either all choices of a request are queued or none."""
    harness = Harness(ToyRunner(LAW, VOCAB), max_running=2)
    harness.scheduler._limits = type(harness.scheduler._limits)(2, 2, 64)
    harness.submit("fits/1", PROMPT, num_choices=3)

    with pytest.raises(OverloadedError):
        harness.submit("too-many/1", PROMPT, num_choices=2)
    assert len(harness.scheduler.waiting) == 3
    harness.run()


def test_the_queue_holds_what_it_says_once_all_places_are_taken():
    """With every place running, exactly max_waiting choices may wait."""
    harness = Harness(ToyRunner(LAW, VOCAB), max_running=2)
    harness.scheduler._limits = type(harness.scheduler._limits)(2, 1, 64)
    for number in range(2):
        harness.submit(f"running{number}/1", PROMPT)
    harness.engine.step()
    harness.submit("waiting/1", PROMPT)

    with pytest.raises(OverloadedError):
        harness.submit("too-many/1", PROMPT)
    harness.run()


def test_explain_reports_each_round():
    """Rounds add up to the tokens, and name drafts, accepted count and the target's own token."""
    reference = plain().ids("plain/1")
    harness = with_drafter(right_then_wrong(reference, len(PROMPT), VOCAB, 2), explain=True)
    rounds = [trace for chunk in harness.of("spec/1") for trace in chunk.rounds]

    assert sum(trace.accepted + 1 for trace in rounds) == len(reference)
    assert rounds[1].accepted == 2
    assert len(rounds[1].drafted) == 4


def test_explain_shows_no_token_that_was_never_committed():
    """A draft that ends the answer is the last token shown; the target's own one is left out."""
    free = plain(temperature=0.0, max_tokens=16).ids("plain/1")
    eos = free[6]
    harness = with_drafter(
        oracle(free, len(PROMPT)), max_draft_tokens=6, eos=(eos,), temperature=0.0, max_tokens=16, explain=True
    )
    rounds = [trace for chunk in harness.of("spec/1") for trace in chunk.rounds]
    shown = [t for r in rounds for t in (*r.drafted[: r.accepted], r.target_token) if t is not None]

    assert tuple(shown) == harness.ids("spec/1")
    assert rounds[-1].target_token is None


def test_drafts_behind_the_end_of_an_answer_count_for_nothing():
    """Right drafts that the end of sequence cuts off are neither tested nor rejected."""
    free = plain(temperature=0.0, max_tokens=16).ids("plain/1")
    harness = with_drafter(
        oracle(free, len(PROMPT)), max_draft_tokens=6, eos=(free[3],), temperature=0.0, max_tokens=16
    )
    stats = harness.last("spec/1").stats

    assert stats.alpha == 1.0
    assert stats.drafted > stats.tested
    for name in ("TESTED_TOKENS", "ACCEPTED_TOKENS"):
        assert harness.counted(name, group="script") == stats.tested


@pytest.mark.parametrize("max_tokens", [2, 3, 4, 5, 6, 20])
@pytest.mark.parametrize("verifier", ["coupled", "rejection", "block"])
def test_the_earliest_of_stop_id_stop_string_and_limit_ends_an_answer(verifier, max_tokens):
    """One accepted run may hold all three; the result is that of one token at a time."""
    free = plain(temperature=0.0, max_tokens=20).ids("plain/1")
    text = "".join(chr(ord("a") + token_id) for token_id in free)
    for options in ({"stop_token_ids": (free[4],)}, {"stop": (text[3:6],)}, {"stop": (text[3:6], text[2:4])}):
        expected = plain(temperature=0.0, max_tokens=max_tokens, **options)
        harness = Harness(
            ToyRunner(LAW, VOCAB), {"script": ScriptDrafter(oracle(free, len(PROMPT)))}, verifier=verifier
        )
        harness.submit("spec/1", PROMPT, drafter="script", temperature=0.0, max_tokens=max_tokens, **options)
        harness.run()

        assert harness.ids("spec/1") == expected.ids("plain/1")
        assert harness.text("spec/1") == expected.text("plain/1")
        assert harness.last("spec/1").finish is expected.last("plain/1").finish


@pytest.mark.parametrize("verifier", ["rejection", "block"])
def test_logprobs_follow_the_tokens_under_every_verifier(verifier):
    """Each committed token carries its own unwarped logprob, whichever rule chose it."""
    drafter = ScriptDrafter(lambda context, depth: context[:depth])
    harness = Harness(ToyRunner(LAW, VOCAB), {"script": drafter}, verifier=verifier)
    harness.submit("spec/1", PROMPT, drafter="script", temperature=1.0, logprobs=2)
    harness.run()
    ids = harness.ids("spec/1")
    entries = [entry for chunk in harness.of("spec/1") for entry in chunk.logprobs]

    assert [entry.token_id for entry in entries] == list(ids)
    for place, entry in enumerate(entries):
        exact = torch.log_softmax(LAW(PROMPT + ids[:place]).double(), dim=0)
        assert entry.logprob == pytest.approx(float(exact[entry.token_id]), abs=1e-5)


def test_an_empty_proposal_runs_no_verifier():
    """A speculative request whose drafter finds nothing is drawn plainly in that step."""
    harness = with_drafter(lambda context, depth: ())

    assert harness.counted("VERIFY_CALLS") == 0
    assert harness.last("spec/1").stats.tau == 1.0


def test_one_row_without_a_distribution_ends_its_request_alone():
    """Everything is banned for one request; the others of its batch go on, and nothing is held."""
    harness = Harness(ToyRunner(LAW, VOCAB), {"script": ScriptDrafter(lambda context, depth: context[:depth])})
    harness.submit("bad/1", PROMPT, bad_words=tuple((n,) for n in range(VOCAB)))
    harness.submit("good/1", PROMPT, drafter="script", num_choices=2)
    harness.run()

    assert set(harness.errors) == {"bad/1"}
    assert harness.ids("good/1") == plain().ids("plain/1")
    assert harness.last("good/1", 1).finish is FinishReason.LENGTH


def test_an_aborted_choice_still_says_who_drafted():
    """The counts of an abort are those of the answer so far."""
    drafter = ScriptDrafter(lambda context, depth: context[:depth])
    harness = Harness(ToyRunner(LAW, VOCAB), {"script": drafter})
    harness.submit("gone/1", PROMPT, drafter="script")
    for _ in range(4):
        harness.engine.step()
    harness.engine.abort("gone/1")

    assert harness.last("gone/1").stats.drafter == "script"
    assert harness.last("gone/1").stats.drafted > 0


def test_the_idle_check_sees_pages_that_are_promised_to_nobody():
    """A reservation without an owner is lost capacity."""
    harness = plain()
    harness.runner.pool.reserve(1)

    with pytest.raises(CacheCorruptionError, match="1 are reserved"):
        harness.engine.check_integrity()


@pytest.mark.parametrize("off", ["switched off", "dead", "unknown group"])
def test_prompts_get_the_room_of_drafts_that_cannot_come(off):
    """Where no drafts are under way, decodes take one token each and a prompt takes the rest of the pass."""
    drafter = ScriptDrafter(lambda *_: ())
    drafter.live = off != "dead"
    harness = Harness(ToyRunner(LAW, VOCAB), {"other" if off == "unknown group" else "script": drafter}, step_tokens=64)
    if off == "switched off":
        harness.speculation.apply(SpeculationSettings(False, 8, 1.0, 1000))
    for number in range(8):
        harness.submit(f"r{number}/1", PROMPT, drafter="script", max_draft_tokens=8, max_tokens=40)
    harness.engine.step()
    harness.submit("long/1", tuple(n % VOCAB for n in range(100)))
    harness.engine.step()

    assert (56, 0) in harness.runner.passes[-1]
    harness.run()
