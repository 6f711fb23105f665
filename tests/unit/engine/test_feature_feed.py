"""Features go along with tokens: aligned, in pieces, none lost and none twice, whatever becomes of a sequence."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_harness import Harness
from paceline.core.drafts import DraftRefusal
from paceline.core.model_identity import FeatureFacts
from paceline.drafting.matching import DrafterFacts
from paceline.engine import feature_feed
from script_drafters import oracle
from text_features import VECTOR_BYTES, RecordingDrafter, TextFeatures, expected_features
from toy_target import ToyRunner, hashed_law

VOCAB = 12
LAW = hashed_law(VOCAB, scale=2.0)
PROMPT = tuple((7 * n + n * n) % VOCAB for n in range(40))
OPTIONS = {"temperature": 1.0, "max_tokens": 24, "seed": 3}
PIECE = 8  # tokens


@pytest.fixture(autouse=True)
def pieces(monkeypatch):
    monkeypatch.setattr(feature_feed, "_ROW_BYTES", PIECE * VECTOR_BYTES)


def make(drafter, runner=None, **options):
    runner = runner or ToyRunner(LAW, VOCAB)
    return Harness(runner, {"g": drafter}, local=False, features=TextFeatures(runner), **options)


def plain(prompt=PROMPT, **options):
    harness = Harness(ToyRunner(LAW, VOCAB))
    harness.submit("plain/1", prompt, **{**OPTIONS, **options})
    harness.run()
    return harness.ids("plain/1")


def steps(harness, drafter, each=lambda number: None):
    """Step to the end; after every step all that the drafter knows has its right feature."""
    for number in itertools.count():
        if not harness.engine.has_work:
            break
        each(number)
        harness.engine.step()
        drafter.check()
        assert number < 2000
    harness.engine.check_integrity()


def test_a_prompt_goes_out_beside_its_prefill():
    """A piece follows each pass, up to the token behind those computed; every feature goes out once, drafts come."""
    answer = plain()
    drafter = RecordingDrafter(oracle(answer, len(PROMPT)))
    harness = make(drafter, step_tokens=10)
    harness.submit("r/1", PROMPT, drafter="g", **OPTIONS)
    opened = []
    steps(harness, drafter, lambda _: opened.append(len(drafter.rows)))

    assert harness.ids("r/1") == answer
    assert harness.last("r/1").stats.tau > 2
    assert opened[2] >= 2, "it waits for the end of the prefill"
    session = drafter.ended["r/1#0"]
    assert session.sent == list(range(1, len(session.tokens)))
    assert all(row.features is None or row.features.count <= PIECE for row in drafter.rows)


def test_a_cached_prompt_is_sent_in_pieces_too():
    """What another request has computed needs no pass; its features are as good."""
    drafter = RecordingDrafter()
    harness = make(drafter)
    harness.submit("first/1", PROMPT, **OPTIONS)
    harness.run()
    harness.submit("second/1", PROMPT, drafter="g", **OPTIONS)
    steps(harness, drafter)

    assert harness.last("second/1").stats.cached_tokens >= 36
    session = drafter.ended["second/1#0"]
    assert session.sent == list(range(1, len(session.tokens)))
    assert all(row.features is None or row.features.count <= PIECE for row in drafter.rows)


@pytest.mark.parametrize("kept", [0, 1, 5, 30])
def test_what_a_drafter_lost_is_sent_again_from_there(kept):
    """In pieces, with features; after the last one drafts come again."""
    answer = plain()
    drafter = RecordingDrafter(oracle(answer, len(PROMPT)))
    harness = make(drafter, max_draft_tokens=2)
    harness.submit("r/1", PROMPT, drafter="g", **OPTIONS)
    lost_at = []

    def lose(number):
        if number == 8:
            drafter.lose("r/1#0", kept=kept)
            lost_at.append(len(drafter.rows))

    steps(harness, drafter, lose)

    assert harness.ids("r/1") == answer
    session = drafter.ended["r/1#0"]
    resent = [row for row in drafter.rows[lost_at[0] :] if row.base_length < 40]
    assert [row.base_length for row in resent] == list(range(kept, 40, PIECE))
    assert session.features == expected_features(session.tokens.slice(0))
    assert any(row.budget.max_depth for row in drafter.rows[lost_at[0] + len(resent) + 1 :])


def test_a_plain_period_is_caught_up():
    """While the group is down nothing is sent; then all of it, in order, once."""
    answer = plain(max_tokens=60)
    drafter = RecordingDrafter()
    harness = make(drafter)
    harness.submit("r/1", PROMPT, drafter="g", **{**OPTIONS, "max_tokens": 60})

    def switch(number):
        drafter.live = not 10 <= number < 40

    steps(harness, drafter, switch)

    session = drafter.ended["r/1#0"]
    assert harness.ids("r/1") == answer
    assert session.sent == list(range(1, len(session.tokens)))
    assert len(session.tokens) > 90


def test_a_pre_empted_sequence_sends_what_it_lost_once_it_is_computed_again():
    """Its drafter forgot it meanwhile: pieces follow the second prefill."""
    drafter = RecordingDrafter()
    harness = make(drafter, ToyRunner(LAW, VOCAB, page_size=1, num_pages=240), prefix_cache=False, step_tokens=12)
    options = {**OPTIONS, "max_tokens": 90}
    for number in range(4):
        harness.submit(f"r{number}/1", PROMPT[number:][:20], drafter="g", **options)
    forgotten = set()

    def forget(_):
        for sequence in harness.scheduler.waiting:
            if sequence.preemptions and sequence.key not in forgotten:
                forgotten.add(sequence.key)
                drafter.lose(f"{sequence.key}#0")

    steps(harness, drafter, forget)

    assert forgotten
    for number in range(4):
        assert harness.ids(f"r{number}/1") == plain(PROMPT[number:][:20], max_tokens=90)
        assert len(drafter.ended[f"r{number}/1#0"].tokens) > 100


@pytest.mark.parametrize("size", [1, 5])
def test_a_step_sends_so_much_whatever_many_sessions_miss(monkeypatch, size):
    """When a drafter comes back all its sessions miss everything: steps go on, and all of it arrives."""
    monkeypatch.setattr(feature_feed, "_STEP_BYTES", 2 * PIECE * VECTOR_BYTES)
    monkeypatch.setattr(feature_feed, "_FEW_TOKENS", 2)
    drafter = RecordingDrafter(oracle(plain(), len(PROMPT)))
    harness = make(drafter, max_draft_tokens=1)
    for number in range(size):
        harness.submit(f"r{number}/1", PROMPT, drafter="g", **OPTIONS)
    sent = []

    def lose(number):
        sent.append(len(drafter.rows))
        for session in list(drafter.sessions) if number == 12 else ():
            drafter.lose(session.opening.session)

    steps(harness, drafter, lose)

    for first, last in itertools.pairwise(sent):
        counts = [row.features.count for row in drafter.rows[first:last] if row.features]
        assert sum(count for count in counts if count > 2) <= 2 * PIECE
    for number in range(size):
        assert harness.ids(f"r{number}/1") == plain()
    assert len(drafter.rows) > sent[13]


@pytest.mark.parametrize("needs", [None, FeatureFacts("last", 12), FeatureFacts("fused:abc", 10)])
def test_without_a_feature_that_the_target_keeps_rows_go_whole(needs):
    """A drafter that needs none, or one that is not kept, gets the tokens at once."""
    drafter = RecordingDrafter()
    drafter.facts = DrafterFacts("eagle", "g", feature=needs)
    harness = make(drafter)
    harness.submit("r/1", PROMPT, drafter="g", **OPTIONS)
    harness.run()

    assert drafter.rows[0].new_token_ids == PROMPT
    assert all(row.features is None for row in drafter.rows)


def test_a_shadow_gets_features_too():
    """A group that proposes for comparison only is brought up to date in the same way."""
    drafter = RecordingDrafter()
    harness = make(drafter, shadow_share=0.25)
    harness.submit("r/1", PROMPT, **OPTIONS)
    steps(harness, drafter)

    session = drafter.ended["r/1#0@g"]
    assert session.sent == list(range(1, len(session.tokens)))
    assert len(session.tokens) > len(PROMPT)


def test_a_drafter_that_loses_everything_all_the_time_costs_a_bounded_number_of_rows():
    """Per pass one piece and two repetitions."""
    drafter = RecordingDrafter()
    harness = make(drafter)
    harness.submit("r/1", PROMPT, drafter="g", **OPTIONS)
    counts = []

    def lose(_):
        counts.append(len(drafter.rows))
        drafter.lose("r/1#0")

    steps(harness, drafter, lose)

    assert harness.ids("r/1") == plain()
    assert max(later - earlier for earlier, later in itertools.pairwise(counts)) <= 3


def test_a_refusal_ends_the_pieces():
    """A session that its drafter refused for good is sent nothing more."""
    drafter = RecordingDrafter()
    harness = make(drafter, step_tokens=10)
    harness.submit("r/1", PROMPT, drafter="g", **OPTIONS)
    harness.engine.step()
    harness.engine.step()
    drafter._ready = {"r/1#0": DraftRefusal("r/1#0", "KV_FULL")}
    sent = len(drafter.rows)
    harness.engine.step()
    harness.run()

    assert len(drafter.rows) <= sent + 1


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["none", "none", "lose", "shorten", "sleep", "wake", "incarnation", "add"]), st.integers(0, 40)
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(EVENTS, st.integers(1, 4), st.integers(4, 24), st.booleans())
def test_whatever_happens_each_token_has_its_own_feature(events, page_size, step_tokens, prefix_cache):
    """Losses, sleeps, pre-emptions, new processes, shared prompts: what a drafter knows is right after every step."""
    drafter = RecordingDrafter(lambda context, depth: tuple((context[-1] + n) % VOCAB for n in range(depth)))
    runner = ToyRunner(LAW, VOCAB, page_size=page_size, num_pages=150 // page_size)
    harness = make(drafter, runner, step_tokens=step_tokens, prefix_cache=prefix_cache)
    for number in range(2):
        harness.submit(f"r{number}/1", PROMPT[: 30 + number], drafter="g", **OPTIONS)

    def happen(number):
        kind, value = events[number] if number < len(events) else ("wake", 0)
        names = sorted(session.opening.session for session in drafter.sessions)
        if kind in ("lose", "shorten") and names:
            drafter.lose(names[value % len(names)], kept=value if kind == "shorten" else 0)
        elif kind == "incarnation":
            drafter.incarnation = f"p{number}"
            for name in names:
                drafter.lose(name)
        elif kind in ("sleep", "wake"):
            drafter.live = kind == "wake"
        elif kind == "add":
            harness.submit(f"x{number}/1", PROMPT[value % 7 :], drafter="g", **{**OPTIONS, "max_tokens": 12})

    steps(harness, drafter, happen)

    for number in range(2):
        assert harness.ids(f"r{number}/1") == plain(PROMPT[: 30 + number])
    assert all(row.features is None or row.features.count <= PIECE for row in drafter.rows)


def test_what_was_sent_is_not_forgotten_while_pages_are_gone():
    """A sequence that is pre-empted in the middle of its prompt sends nothing, then goes on behind the last piece."""
    drafter = RecordingDrafter()
    harness = make(drafter, step_tokens=10)
    harness.submit("r/1", PROMPT, drafter="g", **OPTIONS)
    for _ in range(3):
        harness.engine.step()
    ((sequence, session),) = harness.speculation._by_sequence.items()
    rows, sent, table = len(drafter.rows), session.sent_length, sequence.table
    assert session.syncing
    assert sent > 1
    sequence.table = None
    harness.speculation.request([])
    assert (len(drafter.rows), session.sent_length, session.syncing) == (rows, sent, True)
    sequence.table = table
    harness.speculation.request([])
    assert drafter.rows[-1].base_length == sent
