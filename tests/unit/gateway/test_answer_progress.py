import dataclasses

from paceline.core.generation import ChoiceStart, ChoiceStats, FinishReason, GenerationChunk
from paceline.core.model_identity import ModelIdentity, VocabularyIdentity
from paceline.core.plans import Plan, Route
from paceline.gateway.answer_progress import AnswerProgress

IDENTITY = ModelIdentity("tiny", "fp-1", 512, VocabularyIdentity("v", 300, ()), (2,))
OTHER = dataclasses.replace(IDENTITY, system_fingerprint="fp-2")
PLAN = Plan(Route.PLAIN, "because")
COUNTS = ChoiceStats(7, 6, rounds=3, drafted=5, tested=4, accepted=3, drafter="ngram", switches=1, cached_tokens=2)


def _chunk(first, ids, text="", *, choice=0, finish=None, stats=None):
    return GenerationChunk("r/1", choice, first, ids, text, 0, finish=finish, stats=stats)


def _begin(progress, identity=IDENTITY, plan=PLAN):
    progress.begin()
    progress.runs_on(identity, plan)


def test_a_request_begins_at_its_prompt_until_something_has_arrived():
    """Without a token there is nothing to resume, and any fingerprint will do."""
    progress = AnswerProgress(2)
    _begin(progress)

    assert (progress.starts(), progress.begun, progress.fingerprint) == ((), False, None)


def test_choices_go_on_each_from_its_own_place():
    """Ids and characters that arrived; a choice that ended does not go on, one without a token starts anew."""
    progress = AnswerProgress(3)
    _begin(progress)
    progress.admit([_chunk(0, (4, 5), "ab"), _chunk(0, (8,), "x", choice=1, finish=FinishReason.STOP)])
    progress.admit([_chunk(2, (6,), "")])

    assert progress.starts() == (ChoiceStart(0, (4, 5, 6), 2), ChoiceStart(2))


def test_the_first_replica_that_brought_a_token_decides_where_an_answer_goes_on():
    """Not the one that was lost before it, and not a later one."""
    progress = AnswerProgress(1)
    for identity, ids in ((OTHER, ()), (IDENTITY, (4,)), (OTHER, (5,))):
        _begin(progress, identity)
        progress.admit([_chunk(0, ids)])

    assert progress.fingerprint == "fp-1"


def test_the_plan_is_that_of_the_attempt_that_brought_the_first_token():
    """An attempt that was lost before had no part in the answer."""
    progress = AnswerProgress(1)
    for reason, ids in (("lost", ()), ("first", (4,)), ("second", (5,))):
        _begin(progress, plan=Plan(Route.PLAIN, reason))
        progress.admit([_chunk(0, ids)])

    assert progress.plan is not None
    assert progress.plan.reason == "first"


def test_an_abort_is_not_for_the_client():
    """Its tokens are, and what ended beside it; the choice goes on."""
    progress = AnswerProgress(2)
    _begin(progress)
    batch = [_chunk(0, (), choice=0, finish=FinishReason.ABORT, stats=COUNTS)]
    batch.append(_chunk(0, (8,), "x", choice=1, finish=FinishReason.LENGTH, stats=COUNTS))

    (fresh,) = progress.admit(batch)
    assert (fresh.choice, fresh.finish) == (1, FinishReason.LENGTH)
    assert progress.aborted
    assert not progress.finished
    assert progress.starts() == (ChoiceStart(0),)


def test_progress_is_what_the_running_attempt_has_brought():
    """A token or an end counts; text that is given again does not."""
    progress = AnswerProgress(1)
    _begin(progress)
    progress.admit([_chunk(0, (4,), "a")])
    assert progress.advanced

    _begin(progress)
    progress.admit([_chunk(1, (), "b")])
    assert (progress.advanced, progress.begun) == (False, True)
    progress.admit([_chunk(1, (), finish=FinishReason.STOP, stats=COUNTS)])
    assert (progress.advanced, progress.finished) == (True, True)


def _finish(*attempts):
    """Counts that the client gets of a choice; an attempt is (tokens that arrive, whether it tells its counts)."""
    progress, sent = AnswerProgress(1), 0
    for number, (tokens, tells) in enumerate(attempts, 1):
        _begin(progress)
        is_last = number == len(attempts)
        finish = FinishReason.STOP if is_last else FinishReason.ABORT if tells else None
        stats = dataclasses.replace(COUNTS, completion_tokens=sent + tokens, replayed=sent) if finish else None
        fresh = progress.admit([_chunk(sent, tuple(range(sent, sent + tokens)), finish=finish, stats=stats)])
        sent += tokens
    return fresh[0].stats


def test_one_attempt_tells_its_own_counts():
    """Nothing is changed where nothing was resumed."""
    assert _finish((6, True)) == COUNTS


def test_counts_of_all_attempts_are_added_where_they_are_known():
    """An attempt that was stopped in order has told its counts; the prompt counts once."""
    stats = _finish((6, True), (4, True))

    assert (stats.prompt_tokens, stats.completion_tokens, stats.resumed, stats.replayed) == (7, 10, 1, 0)
    assert (stats.rounds, stats.drafted, stats.tested, stats.accepted, stats.switches) == (6, 10, 8, 6, 2)
    assert (stats.tau, stats.cached_tokens) == (10 / 6, 2)


def test_a_lost_attempt_does_not_make_speculation_look_better():
    """Its rounds are unknown, so its tokens are left out of tau; what it had cached is unknown, so none is claimed."""
    stats = _finish((6, False), (4, True), (5, True))

    assert (stats.completion_tokens, stats.resumed, stats.replayed) == (15, 2, 6)
    assert (stats.tau, stats.cached_tokens) == (9 / 6, 0)


def test_an_attempt_that_brought_nothing_is_no_resume():
    """Neither before the first token nor in the middle."""
    stats = _finish((0, False), (6, False), (0, False), (4, True))

    assert (stats.completion_tokens, stats.resumed) == (10, 1)
    assert _finish((0, False), (6, True)).resumed == 0
    assert _finish((0, False), (6, True)).cached_tokens == 2
