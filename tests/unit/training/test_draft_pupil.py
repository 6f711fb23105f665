"""Draft models learn what their target says at every token of an answer."""

import pytest
import torch

from paceline.training.corpus import Dialogue
from paceline.training.draft_model import new_draft_model
from paceline.training.draft_pupil import DraftPupil
from paceline.training.feature_cache import FeatureCache
from paceline.training.loop import LoopOptions, TrainingLoop
from paceline.training.teacher import ModelTeacher
from tiny_models import VOCAB_SIZE, save_tiny_model, stock_model

IDS = tuple(range(0, VOCAB_SIZE, 2))  # the draft vocabulary
OPTIONS = LoopOptions(epochs=4, batch_tokens=256, learning_rate=5e-3, check_every=4, patience=100)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("target"), num_hidden_layers=3, tie_word_embeddings=True)


@pytest.fixture(scope="module")
def dialogues():
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(3, VOCAB_SIZE, (48, 24), generator=generator).tolist()
    return [Dialogue(tuple(text[:6]), tuple(text[6:]), 0.0, "a") for text in texts]


@pytest.fixture
def cache(target, dialogues, tmp_path):
    cache = FeatureCache(tmp_path / "features", ModelTeacher(target, dtype=torch.float32))
    cache.fill([*dialogues, Dialogue((1, 2), (3, 4, 5), 0.0, "a")])
    return cache


@pytest.fixture
def pupil(target, cache):
    return DraftPupil(new_draft_model(target, num_layers=1, draft_token_ids=IDS), cache, precision=torch.float32)


def logits_of(folder, token_ids):
    with torch.inference_mode():
        return stock_model(folder)(token_ids, use_cache=False).logits


def ids_of(dialogues):
    return torch.tensor([(*one.prompt_ids, *one.answer_ids) for one in dialogues])


def test_loss_is_taken_where_the_target_chooses_what_can_be_drafted(pupil, target, dialogues):
    """Of tokens of answers only: mean KL over the draft vocabulary, from Transformers' own logits of both."""
    ids = ids_of(dialogues[:4])
    theirs = logits_of(target, ids)[:, 5:-1]
    with torch.no_grad():
        loss, count = pupil(dialogues[:4], hybrid=False)
        ours = pupil.draft.draft_logits(pupil.draft(ids))[:, 5:-1]
    wanted = theirs.argmax(-1) % 2 == 0
    aims, drafts = (torch.log_softmax(rows[wanted], -1) for rows in (theirs[..., list(IDS)], ours))

    assert 0 < count == int(wanted.sum()) < wanted.numel()
    assert loss.item() == pytest.approx(
        float((aims.exp() * (aims - drafts)).sum(-1).mean()), rel=1e-3
    )  # features are kept in bfloat16


def test_padding_changes_nothing(pupil, dialogues):
    """A dialogue beside a longer one has the loss that it has alone."""
    parts = [dialogues[0]], [Dialogue((1, 2), (3, 4, 5), 0.0, "a")]
    with torch.no_grad():
        (one, ones), (other, others), (both, count) = (
            pupil(part, hybrid=False) for part in (*parts, [*parts[0], *parts[1]])
        )

    assert count == ones + others
    assert both.item() * count == pytest.approx(one.item() * ones + other.item() * others, rel=1e-4)


def test_a_chain_is_right_as_far_as_both_choose_the_same(pupil, target, dialogues):
    """The draft of depth d stands d - 1 tokens on; what cannot be drafted is never right."""
    ids = ids_of(dialogues[:3])
    with torch.no_grad():
        chosen = torch.tensor(IDS)[pupil.draft.draft_logits(pupil.draft(ids)).argmax(-1)]
    right = (chosen == logits_of(target, ids).argmax(-1))[:, 5:-1]
    expected = [row[place : place + 3].tolist() for row in right for place in range(18 - 2)]

    assert pupil.agreement(dialogues[:3], 3).tolist() == expected
    assert pupil.agreement([Dialogue((1, 2), (3, 4, 5), 0.0, "a")], 4).shape == (0, 4)


def test_training_brings_the_draft_model_nearer_to_its_target(pupil, dialogues, tmp_path):
    """Loss falls; embedding and head stay the target's, which lends them when the draft model serves."""
    lent = pupil.draft.model.get_input_embeddings().weight.clone()
    seen = []
    TrainingLoop(pupil, tmp_path / "work", OPTIONS, course={}).run(dialogues[:40], dialogues[40:], seen.append)
    kl = [progress.loss for progress in seen[: int(0.4 * len(seen))]]

    assert kl[-1] < 0.8 * kl[0]
    assert torch.equal(pupil.draft.model.get_input_embeddings().weight, lent)
    assert pupil.learnt().keys() == pupil.draft.learnt().keys()


def test_a_batch_that_teaches_nothing_still_has_gradients(pupil, dialogues):
    """Workers that train together exchange gradients after every batch: one without would be waited for for good."""
    pupil.known[:] = False

    loss, count = pupil(dialogues[:4], hybrid=True)
    loss.backward()

    assert (loss.item(), count) == (0.0, 0)
    assert not any(tensor.grad.any() for tensor in pupil.learnt().values())
