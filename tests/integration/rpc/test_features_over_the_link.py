"""Over real gRPC a drafter has the target's features, bit for bit, of every token that it knows."""

import dataclasses
import time

import pytest
import torch

from engine_harness import Harness
from paceline.drafting.matching import DrafterFacts
from paceline.engine import feature_feed
from paceline.kvcache.page_pool import PageTable
from paceline.modeling.feature_tap import make_taps
from paceline.modeling.forward_row import ForwardRow
from paceline.modeling.loader import load_model
from paceline.modeling.runner import ModelRunner
from paceline.modeling.stored_features import StoredFeatures
from peers import TARGET, loop_thread, remote, wait_until
from script_drafters import oracle
from text_features import FACTS, FEATURE, VECTOR_BYTES, RecordingDrafter, TextFeatures, expected_features
from tiny_models import save_tiny_model
from toy_target import ToyRunner, hashed_law

VOCAB = 12
LAW = hashed_law(VOCAB, scale=2.0)
PROMPT = tuple((5 * n + n * n) % VOCAB for n in range(300))
OPTIONS = {"temperature": 1.0, "max_tokens": 40, "seed": 3}
HELLO = dataclasses.replace(TARGET, features=(FEATURE,))


class UnhurriedRunner(ToyRunner):
    """A pass takes as long as a message does."""

    def forward(self, rows):
        time.sleep(0.003)
        return super().forward(rows)


def plain():
    harness = Harness(ToyRunner(LAW, VOCAB))
    harness.submit("plain/1", PROMPT, **OPTIONS)
    harness.run()
    return harness.ids("plain/1")


@pytest.mark.parametrize("message_tokens", [None, 7], ids=["whole rows", "rows in parts"])
def test_features_arrive_bit_for_bit(message_tokens, monkeypatch):
    """A long prompt in pieces, then rounds with drafts; also where a message holds only a part of a row."""
    monkeypatch.setattr(feature_feed, "_ROW_BYTES", 64 * VECTOR_BYTES)
    answer = plain()
    drafter = RecordingDrafter(oracle(answer, len(PROMPT)))
    runner = UnhurriedRunner(LAW, VOCAB)
    with loop_thread() as thread, remote(thread, drafter, FACTS, hello=HELLO) as link:
        if message_tokens is not None:
            link._runner._message_bytes = message_tokens * (VECTOR_BYTES + 5)
        harness = Harness(runner, {"g": link}, local=False, features=TextFeatures(runner), step_tokens=50)
        harness.submit("r/1", PROMPT, drafter="g", **OPTIONS)
        harness.run()
        wait_until(lambda: len(drafter.sessions) == 0)

    assert harness.ids("r/1") == answer
    assert harness.last("r/1").stats.accepted > 5
    (session,) = drafter.ended.values()
    assert session.features == expected_features(session.tokens.slice(0))
    assert session.sent == list(range(1, len(session.tokens)))
    assert len(session.tokens) > len(PROMPT) + 20
    longest = max(row.features.count for row in drafter.rows if row.features)
    assert longest <= (message_tokens or 64 * 6)  # rows that waited for the link are sent as one


def test_a_lost_session_is_filled_again():
    """The drafter forgets it in the middle of the answer, and ends with every feature in its place."""
    drafter = RecordingDrafter(oracle(plain(), len(PROMPT)))
    runner = UnhurriedRunner(LAW, VOCAB)
    with loop_thread() as thread, remote(thread, drafter, FACTS, hello=HELLO) as link:
        harness = Harness(runner, {"g": link}, local=False, features=TextFeatures(runner), max_draft_tokens=1)
        harness.submit("r/1", PROMPT, drafter="g", **OPTIONS)
        while harness.engine.has_work:
            harness.engine.step()
            if runner.num_forwards == 12:
                for name in [session.opening.session for session in drafter.sessions]:
                    drafter.lose(name)
        wait_until(lambda: len(drafter.sessions) == 0)

    (session,) = drafter.ended.values()
    assert session.features == expected_features(session.tokens.slice(0))
    assert len(session.tokens) > len(PROMPT) + 20


def computed_afresh(loaded, token_ids):
    """Features that a pass over the whole text gives, by place."""
    runner = ModelRunner(loaded, num_pages=64, page_size=8, taps=make_taps(loaded, last=True, fused=[]))
    table = PageTable(runner.pool, len(token_ids))
    table.extend_to(len(token_ids))
    runner.forward([ForwardRow(token_ids, 0, table, 1)])
    (store,) = runner.features.values()
    vectors = store.read(torch.tensor(table.slots(0, len(token_ids))))
    assert vectors.dtype is torch.bfloat16
    return {place: vectors[place - 1].view(torch.int16).numpy().tobytes() for place in range(1, len(token_ids))}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_features_of_a_model_arrive_bit_for_bit(dtype, tmp_path):
    """Prompt chunks, a cached prompt, right and wrong drafts: at the drafter lies what the model computed."""
    loaded = load_model(save_tiny_model(tmp_path / "tiny"), dtype=dtype, device="cpu")
    runner = ModelRunner(loaded, num_pages=64, page_size=8, taps=make_taps(loaded, last=True, fused=[]))
    forward = runner.forward

    def slowly(rows):
        time.sleep(0.005)  # so that drafts are in time on a busy machine too
        return forward(rows)

    runner.forward = slowly
    (feature,) = runner.features
    prompt = tuple(1 + n * n % (loaded.vocab_size - 1) for n in range(90))
    drafter = RecordingDrafter(lambda context, depth: context[-depth:], DrafterFacts("eagle", "g", feature=feature))
    hello = dataclasses.replace(
        TARGET, vocabulary=dataclasses.replace(TARGET.vocabulary, size=loaded.vocab_size), features=(feature,)
    )
    source = StoredFeatures(runner.features, torch.device("cpu"))
    with loop_thread() as thread, remote(thread, drafter, drafter.facts, hello=hello) as link:
        harness = Harness(runner, {"g": link}, local=False, features=source, step_tokens=32)
        for number in range(2):
            options = {"temperature": 0.0, "max_tokens": 60, "ignore_eos": True}
            harness.submit(f"r{number}/1", prompt, drafter="g", **options)
            harness.run()
        wait_until(lambda: len(drafter.sessions) == 0)

    assert harness.last("r1/1").stats.cached_tokens > 60
    assert harness.last("r1/1").stats.drafted > 0
    assert len(drafter.ended) == 2
    for session in drafter.ended.values():
        tokens = session.tokens.slice(0)
        assert len(tokens) > 120
        assert session.features == computed_afresh(loaded, tokens)
