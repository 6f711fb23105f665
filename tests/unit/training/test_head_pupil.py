"""Heads learn exactly the token that their place in the draft stands for."""

import pytest
import torch

from paceline.modeling.heads.new_heads import new_eagle, new_medusa, new_mtp
from paceline.training.corpus import Dialogue
from paceline.training.feature_cache import FeatureCache
from paceline.training.head_pupil import Lesson, pupil_of
from paceline.training.loop import LoopOptions, TrainingLoop
from synthetic_target import NUM_TOKENS, VOCAB_SIZE, SyntheticTarget

TARGET = SyntheticTarget()
DIALOGUES = TARGET.dialogues(192, 16)
CHECKED = TARGET.dialogues(48, 16, seed=1)
DRAFTED = tuple(range(NUM_TOKENS))
DEPTH = 3


def new_head(kind, *, draft_token_ids=DRAFTED):
    model = TARGET.model()
    torch.manual_seed(2)
    if kind == "medusa":
        return new_medusa(model, num_heads=DEPTH, draft_token_ids=draft_token_ids)
    if kind == "eagle":
        return new_eagle(model, draft_token_ids=draft_token_ids, random=True)
    modules = {"mtp": 1, "mtp-modules": DEPTH, "mtp-parallel": DEPTH}[kind]
    return new_mtp(
        model, num_modules=modules, parallel=kind == "mtp-parallel", draft_token_ids=draft_token_ids, random=True
    )


def new_pupil(kind, folder, dialogues, **lesson):
    cache = FeatureCache(folder / "features", TARGET)
    cache.fill(dialogues)
    options = {"depth": DEPTH, "precision": torch.float32} | lesson
    return pupil_of(new_head(kind), cache, Lesson(**options))


def trained(kind, folder, **lesson):
    """A pupil after some seconds of training."""
    pupil = new_pupil(kind, folder, DIALOGUES + CHECKED, **lesson)
    options = LoopOptions(
        epochs=18, batch_tokens=512, learning_rate=2e-2, hybrid_from=0.8, check_every=1000, most_norm=5.0
    )
    TrainingLoop(pupil, folder / "work", options, course={}).run(DIALOGUES, CHECKED)
    return pupil


def shares(pupil, depth):
    """How often the draft of ``depth`` is the token at its offset, the one before, and the one after."""
    batch = pupil.batch(CHECKED)
    with torch.no_grad():
        step = list(pupil.steps(batch, DEPTH))[depth - 1]
        chosen = pupil._choices(step.hidden.flatten(0, 1)).view(step.hidden.shape[:2])
    places = torch.arange(step.first, step.hidden.shape[1] - step.ahead - 1)
    return [
        (chosen[:, places] == batch.token_ids[:, 1 + places + step.ahead + shift]).float().mean().item()
        for shift in (0, -1, 1)
    ]


@pytest.mark.parametrize("kind", ["medusa", "eagle", "mtp", "mtp-modules", "mtp-parallel"])
def test_each_draft_is_the_token_at_its_offset(kind, tmp_path):
    """Over 99 % of drafts of every depth are right, and are the neighbouring tokens no oftener than by chance."""
    pupil = trained(kind, tmp_path)
    for depth in range(1, DEPTH + 1):
        right, before, after = shares(pupil, depth)
        assert right > 0.99, depth
        assert max(before, after) < 3 / NUM_TOKENS, depth
    agrees = pupil.agreement(CHECKED, DEPTH)
    assert len(agrees) == len(CHECKED) * (16 - DEPTH - 1)  # roots 1 to 12 of tokens 0 to 15
    assert agrees.float().mean() > 0.99


@pytest.mark.parametrize("kind", ["medusa", "eagle", "mtp", "mtp-modules", "mtp-parallel"])
def test_a_draft_reads_nothing_that_the_target_computed_behind_its_root(kind, tmp_path):
    """The feature that the target computed at token 5 reaches chains from token 6 on: their draft of depth d at 5 + d.

    In serving nothing later exists yet; a head that learnt from it would look good and draft nothing.
    """
    pupil = new_pupil(kind, tmp_path, DIALOGUES)
    batch = pupil.batch(DIALOGUES[:2])
    for parameter in pupil.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    with torch.no_grad():
        before = list(pupil.steps(batch, DEPTH))
        batch.hidden[:, 5] += 1
        after = list(pupil.steps(batch, DEPTH))
    for depth, (old, new) in enumerate(zip(before, after, strict=True), 1):
        changed = (old.hidden != new.hidden).any(-1).all(0).nonzero()[:, 0]
        token = int(changed[0]) + 1
        assert token - old.root == 6, depth


def test_without_the_feature_a_head_reads_tokens_alone(tmp_path):
    """Weights of the feature are zero and stay so: the head is without it in serving too, which feeds features."""
    pupil = new_pupil("eagle", tmp_path, DIALOGUES, without_feature=True)
    assert not pupil.head.fc.weight[:, 64:].any()

    batch = pupil.batch(DIALOGUES[:8])
    loss, _ = pupil(DIALOGUES[:8], hybrid=False)
    loss.backward()
    assert not pupil.head.fc.weight.grad[:, 64:].any()
    assert pupil.head.fc.weight.grad[:, :64].any()
    with torch.no_grad():
        first = next(pupil.steps(batch, 1)).hidden
        batch.hidden[:] = 0
        assert torch.equal(next(pupil.steps(batch, 1)).hidden, first)


def test_an_unshifted_head_reads_the_token_before(tmp_path):
    """The embedding is that of the token that the feature was computed at; the newest token makes no difference."""
    pupil = new_pupil("eagle", tmp_path, DIALOGUES, unshifted=True)
    batch = pupil.batch(DIALOGUES[:2])
    with torch.no_grad():
        before = next(pupil.steps(batch, 1)).hidden[:, 3]
        batch.token_ids[:, 4] = 0  # token 4 is the newest at place 3
        assert torch.equal(next(pupil.steps(batch, 1)).hidden[:, 3], before)
        batch.token_ids[:, 3] = 0
        assert not torch.equal(next(pupil.steps(batch, 1)).hidden[:, 3], before)


@pytest.mark.parametrize("kind", ["eagle", "medusa"])
def test_only_answers_count_and_only_what_can_be_drafted(kind, tmp_path):
    """Tokens of the first draft: those of the answer whose place the drafter reaches, less those it cannot propose."""
    whole = DIALOGUES[0]
    parts = [
        Dialogue((*whole.prompt_ids, *whole.answer_ids[:6]), whole.answer_ids[6:], 0.0, ""),
        Dialogue(whole.prompt_ids, whole.answer_ids, 0.0, ""),
    ]
    pupil = new_pupil(kind, tmp_path, parts)
    with torch.no_grad():
        # The whole text's first answer token is predicted at token 0, which has no feature.
        assert [pupil([part], hybrid=False)[1] for part in parts] == [9, 14]

        pupil.known[:] = False
        loss, count = pupil(parts, hybrid=False)
    assert count == 0
    assert loss == 0


def test_padding_changes_nothing(tmp_path):
    """A dialogue beside a longer one has the loss that it has alone."""
    long, short = DIALOGUES[0], DIALOGUES[1]
    short = Dialogue(short.prompt_ids, short.answer_ids[:7], 0.0, "")
    pupil = new_pupil("eagle", tmp_path, [long, short], depth=1)
    with torch.no_grad():
        (both, count), (one, ones), (other, others) = (
            pupil(part, hybrid=False) for part in ([long, short], [long], [short])
        )
    assert count == ones + others
    assert both.item() * count == pytest.approx(one.item() * ones + other.item() * others, rel=1e-5)


def test_the_targets_tables_are_not_learnt(tmp_path):
    """Embedding and output head stay the target's; what is learnt is the head's own."""
    pupil = new_pupil("mtp-modules", tmp_path, DIALOGUES)

    assert {name.split(".")[0] for name in pupil.learnt()} == {"mtp"}
    assert sum(tensor.numel() for tensor in pupil.parameters()) == sum(map(torch.numel, pupil.learnt().values()))
    assert pupil.output.shape == (NUM_TOKENS, 64)
    assert pupil.known.shape == (VOCAB_SIZE,)


@pytest.mark.parametrize("kind", ["medusa", "eagle", "mtp-parallel"])
def test_a_batch_that_teaches_nothing_still_has_gradients(kind, tmp_path):
    """Workers that train together exchange gradients after every batch: one without would be waited for for good."""
    pupil = new_pupil(kind, tmp_path, DIALOGUES)
    pupil.known[:] = False

    loss, tokens = pupil(DIALOGUES[:2], hybrid=True)
    loss.backward()

    assert (loss.item(), tokens) == (0.0, 0)
    gradients = [parameter.grad for parameter in pupil.head.parameters() if parameter.grad is not None]
    assert gradients
    assert not any(gradient.any() for gradient in gradients)
