"""Late, stale, lost and lying replies: they cost drafts, never tokens."""

import itertools

import pytest

from engine_harness import Harness
from paceline.core.drafts import DraftProposal, DraftRefusal, DraftTree, NeedSync, SparseLaw
from paceline.core.hashed_tokens import HashedTokens
from paceline.engine.reroot import reroot, shorten
from script_drafters import ScriptDrafter, oracle
from toy_target import ToyRunner, hashed_law

VOCAB = 12
PROMPT = (1, 2, 3)
LAW = hashed_law(VOCAB, scale=2.0)
OPTIONS = {"temperature": 1.0, "max_tokens": 24, "seed": 3}


def reference():
    harness = Harness(ToyRunner(LAW, VOCAB))
    harness.submit("plain/1", PROMPT, **OPTIONS)
    harness.run()
    return harness.ids("plain/1")


class FaultyDrafter(ScriptDrafter):
    """Scripted drafts whose replies a function may hold back, replace or add to."""

    def __init__(self, script, fault):
        super().__init__(script)
        self._fault = fault
        self.collects = 0

    def collect(self, timeout_s):
        self.collects += 1
        return self._fault(self, super().collect(timeout_s))


def run(fault, *, local=False, max_draft_tokens=4):
    """One request with right drafts behind ``fault``; the waiting time is off unless local."""
    ids = reference()
    drafter = FaultyDrafter(oracle(ids, len(PROMPT)), fault)
    harness = Harness(ToyRunner(LAW, VOCAB), {"script": drafter}, local=local)
    harness.submit("spec/1", PROMPT, drafter="script", max_draft_tokens=max_draft_tokens, explain=True, **OPTIONS)
    harness.run()
    assert harness.ids("spec/1") == ids
    return harness, drafter


def test_right_replies_in_time_speed_up():
    """The undisturbed case, against which the faults are held."""
    harness, _ = run(lambda drafter, replies: replies)

    assert harness.last("spec/1").stats.tau > 3


def test_replies_one_step_late_are_rerooted():
    """A reply for an older prefix is used below the tokens committed since."""
    held = []

    def late(drafter, replies):
        held.append(replies)
        return held[-2] if len(held) > 1 else []

    harness, _ = run(late)

    assert harness.counted("REROOTED_DRAFTS", group="script") > 0
    assert harness.last("spec/1").stats.tau > 1.2


@pytest.mark.parametrize(
    "fault",
    [
        lambda drafter, replies: [],
        lambda drafter, replies: [DraftRefusal(reply.session, "KV_FULL", 0) for reply in replies],
        lambda drafter, replies: [NeedSync(reply.session, 0) for reply in replies],
        lambda drafter, replies: [NeedSync(reply.session, 10**9) for reply in replies],
        lambda drafter, replies: [NeedSync("nobody", 0)],
    ],
    ids=["silent", "refusing", "always needs sync", "absurd sync", "another session"],
)
def test_a_drafter_that_never_proposes_leaves_plain_decoding(fault):
    """No proposal: tau 1, the same tokens, and the engine does not loop on it."""
    harness, drafter = run(fault)

    assert harness.last("spec/1").stats.tau == 1.0
    assert drafter.calls < 4 * 24 + 8


def test_need_sync_brings_a_drafter_back():
    """A drafter that lost a session gets everything again and drafts on."""
    losses = itertools.count()

    def lose(drafter, replies):
        if next(losses) % 7 == 3:
            return [NeedSync(reply.session, 0) for reply in replies]
        return replies

    harness, _ = run(lose, local=True)

    assert harness.last("spec/1").stats.tau > 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: DraftProposal(p.session, p.base_length, p.base_hash, DraftTree.chain((VOCAB, 1))),
        lambda p: DraftProposal(p.session, p.base_length, p.base_hash, DraftTree.chain((-1,))),
        lambda p: DraftProposal(p.session, p.base_length, p.base_hash ^ 1, p.tree),
        lambda p: DraftProposal(p.session, p.base_length + 5, p.base_hash, p.tree),
        lambda p: DraftProposal(p.session, -(10**6), p.base_hash, p.tree),
        lambda p: DraftProposal(p.session, p.base_length, p.base_hash, DraftTree((1, 2, 3), (-1, 2, 0))),
        lambda p: DraftProposal(p.session, p.base_length, p.base_hash, p.tree, (SparseLaw((1,), (1.0,)),) * 9),
    ],
    ids=[
        "id beyond the vocabulary",
        "negative id",
        "wrong hash",
        "future prefix",
        "negative prefix",
        "a parent behind its node",
        "too many laws",
    ],
)
def test_lying_proposals_are_dropped_and_counted(spoil):
    """Drafts are untrusted input: a bad one is dropped before the target pass."""
    harness, _ = run(lambda drafter, replies: [spoil(reply) for reply in replies])
    dropped = sum(harness.counted("DROPPED_DRAFTS", group="script", reason=r) for r in ("stale", "invalid"))

    assert harness.last("spec/1").stats.drafted == 0
    assert dropped > 0


def test_drafts_longer_than_asked_are_cut():
    """A drafter that ignores its budget cannot push an answer past its limit."""
    ids = reference()
    drafter = ScriptDrafter(lambda context, depth: oracle(ids, len(PROMPT))(context, 50))
    harness = Harness(ToyRunner(LAW, VOCAB), {"script": drafter})
    harness.submit("spec/1", PROMPT, drafter="script", max_draft_tokens=3, **OPTIONS)
    harness.run()

    assert harness.ids("spec/1") == ids
    assert max(tokens for rows in harness.runner.passes[1:] for tokens, _ in rows) == 4


def test_a_drafter_that_dies_and_comes_back_is_two_switches():
    """While it is gone the answer is plain; when it is back the answer speculates again."""

    def die(drafter, replies):
        drafter.live = not 4 <= drafter.collects <= 9
        return replies if drafter.live else []

    harness, _ = run(die)

    assert harness.last("spec/1").stats.switches == 2
    assert harness.last("spec/1").stats.drafted > 0


def test_the_kill_switch_reaches_running_answers():
    """Turned off between two steps, no draft is asked for any more."""
    ids = reference()
    drafter = ScriptDrafter(oracle(ids, len(PROMPT)))
    harness = Harness(ToyRunner(LAW, VOCAB), {"script": drafter})
    harness.submit("spec/1", PROMPT, drafter="script", **OPTIONS)
    for _ in range(3):
        harness.engine.step()
    settings = harness.speculation._settings
    harness.speculation.apply(type(settings)(False, settings.max_draft_tokens, 1.0, 1000))
    harness.engine.step()
    calls = drafter.calls
    harness.run()

    assert harness.ids("spec/1") == ids
    assert drafter.calls == calls
    assert harness.last("spec/1").stats.switches == 1


def test_a_reply_that_comes_after_the_kill_switch_is_not_used():
    """What was asked for before it was turned off is dropped."""
    ids = reference()
    held = []

    def hold(drafter, replies):
        held.extend(replies)
        return []

    drafter = FaultyDrafter(oracle(ids, len(PROMPT)), hold)
    harness = Harness(ToyRunner(LAW, VOCAB), {"script": drafter}, local=False)
    harness.submit("spec/1", PROMPT, drafter="script", **OPTIONS)
    for _ in range(3):
        harness.engine.step()
    settings = harness.speculation._settings
    harness.speculation.apply(type(settings)(False, settings.max_draft_tokens, 1.0, 1000))
    harness.engine.step()
    drafter._fault = lambda drafter, replies: held
    harness.run()

    assert harness.ids("spec/1") == ids
    assert harness.last("spec/1").stats.drafted == 0


def test_a_draft_budget_of_zero_is_off():
    """Neither a tunable nor a plan of 0 makes any call to a drafter."""
    for tunable, planned in ((0, 4), (8, 0)):
        drafter = ScriptDrafter(lambda *_: (1,))
        harness = Harness(ToyRunner(LAW, VOCAB), {"script": drafter}, max_draft_tokens=tunable)
        harness.submit("spec/1", PROMPT, drafter="script", max_draft_tokens=planned, **OPTIONS)
        harness.run()

        assert drafter.calls == 0
        assert harness.ids("spec/1") == reference()


def test_a_plan_for_an_unknown_group_runs_plain():
    """A target that lacks the group decodes all the same."""
    harness = Harness(ToyRunner(LAW, VOCAB))
    harness.submit("spec/1", PROMPT, drafter="elsewhere", **OPTIONS)
    harness.run()

    assert harness.ids("spec/1") == reference()


def test_sessions_are_primed_at_admission():
    """The drafter gets the prompt with a budget of 0 before the first target pass."""
    seen = []
    drafter = ScriptDrafter(lambda context, depth: seen.append((context, depth)) or ())
    harness = Harness(ToyRunner(LAW, VOCAB), {"script": drafter})
    harness.submit("spec/1", PROMPT, drafter="script", **OPTIONS)
    harness.run()

    assert seen[0] == (PROMPT, 0)
    assert seen[1][0][: len(PROMPT)] == PROMPT
    assert seen[1][1] == 4


def test_of_two_usable_proposals_the_newer_is_used():
    """An older, longer one never replaces the answer to the newest request, whatever came first."""
    older = []

    def both(drafter, replies):
        fresh = [
            DraftProposal(r.session, r.base_length, r.base_hash, DraftTree.chain(r.tree.token_ids[:1])) for r in replies
        ]
        given = [*fresh, *older]
        older[:] = replies
        return given

    harness, _ = run(both, max_draft_tokens=8)
    drafted = {len(trace.drafted) for chunk in harness.of("spec/1") for trace in chunk.rounds}

    assert harness.counted("REROOTED_DRAFTS", group="script") > 0
    assert drafted <= {0, 1}


def proposal(tokens, drafts):
    return DraftProposal("s", len(tokens), tokens.hash_at(len(tokens)), DraftTree.chain(drafts))


def test_reroot_keeps_what_follows_the_committed_path():
    """The rest below the committed tokens stays, with its laws; any other path is dropped."""
    base = HashedTokens((1, 2, 3))
    laws = tuple(SparseLaw((n,), (1.0,)) for n in (4, 5, 6))
    late = DraftProposal("s", 3, base.hash_at(3), DraftTree.chain((4, 5, 6)), laws)
    on_path, off_path = HashedTokens((1, 2, 3, 4)), HashedTokens((1, 2, 3, 5))
    fitted = reroot(late, on_path)

    assert fitted.tree.token_ids == (5, 6)
    assert fitted.laws == laws[1:]
    assert (fitted.base_length, fitted.base_hash) == (4, on_path.hash_at(4))
    assert reroot(late, off_path) is None
    assert reroot(late, base) is late
    assert reroot(late, HashedTokens((1, 2))) is None
    assert reroot(proposal(HashedTokens((9, 2, 3)), (4, 5)), on_path) is None


def test_a_path_that_was_committed_whole_leaves_an_empty_proposal():
    """Nothing is left to draft, which is not an error."""
    late = proposal(HashedTokens((1,)), (2, 3))

    assert len(reroot(late, HashedTokens((1, 2, 3))).tree) == 0
    assert reroot(late, HashedTokens((1, 2, 3, 4))) is None


def test_shorten_cuts_drafts_and_laws_together():
    """Each kept draft keeps its own law."""
    laws = tuple(SparseLaw((n,), (1.0,)) for n in (4, 5, 6))
    cut = shorten(DraftProposal("s", 0, 0, DraftTree.chain((4, 5, 6)), laws), max_nodes=2, max_depth=3)

    assert (cut.tree.token_ids, cut.laws) == ((4, 5), laws[:2])
