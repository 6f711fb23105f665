"""From files of dialogues to the folder of a draft model: what the command does, in order."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from paceline.errors import ConfigError
from paceline.modeling.heads.draft_vocabulary import read_vocabulary
from paceline.modeling.loader import load_config
from paceline.modeling.resolve import resolve_model
from paceline.text.tokenizer import TextTokenizer
from paceline.training.corpus import Dialogue, first_tokens, held_out, read_corpus
from paceline.training.draft_model import load_learnt, new_draft_model, read_learnt, save_draft_model
from paceline.training.draft_pupil import DraftPupil
from paceline.training.draft_vocabulary import choose_vocabulary, coverage, indispensable
from paceline.training.feature_cache import FeatureCache, key_of
from paceline.training.loop import LoopOptions, Progress, TrainingLoop
from paceline.training.record import data_files, record_of_model, training_record, write_record
from paceline.training.teacher import ModelTeacher


@dataclass(frozen=True, slots=True)
class DraftModelJob:
    """What is made of what."""

    data: tuple[Path, ...]
    output: Path
    work: Path  # checkpoints and figures
    features: Path | None  # the target's hidden states; None: in `work`
    model: str  # the target: a name, a folder or a hub id
    start: Path | None  # a trained draft model to begin with, instead of the target's first layers
    layers: int  # that are kept of the target, or that `start` has
    vocabulary: int  # tokens that may be drafted
    vocabulary_of: Path | None  # a drafter whose draft vocabulary is taken instead
    drop_loops: bool
    most_tokens: int | None  # of answers
    whole: bool  # write embedding, head and tokenizer too
    command: str


Read = Callable[[int, int], None]  # (tokens that the target has read, of how many)


def make_draft_model(
    job: DraftModelJob, options: LoopOptions, say: Callable[[Progress], None], read: Read = lambda *_: None
) -> None:
    """Train and write a draft model with the record of its training; goes on where it was interrupted.

    The target reads the dialogues once, before the training; ``read`` is told how far it is. Raises ConfigError for
    data that cannot be used, and SetupError kinds for the target.
    """
    folder = resolve_model(job.model)
    files = data_files(job.data)
    tokenizer = TextTokenizer.load(folder, vocab_size=load_config(folder).vocab_size)
    trained, checked = held_out(read_corpus(job.data, tokenizer, drop_loops=job.drop_loops))
    if not trained or not checked:
        raise ConfigError("There are too few dialogues to keep some for checks; give more data.")
    trained = first_tokens(trained, job.most_tokens) if job.most_tokens else trained
    token_ids = _vocabulary(job, trained, tokenizer)
    draft = new_draft_model(folder, num_layers=job.layers, draft_token_ids=token_ids)
    if job.start is not None:
        load_learnt(draft, read_learnt(job.start))
    teacher = ModelTeacher(folder)
    cache = FeatureCache(job.features or job.work / "features", teacher)
    cache.fill([*trained, *checked], read)
    loop = TrainingLoop(DraftPupil(draft, cache), job.work, options, course=_course(job, trained, token_ids))
    outcome = loop.run(trained, checked, say)
    save_draft_model(draft, job.output, target_folder=folder, whole=job.whole)
    record = training_record(
        "draft_model",
        target=job.model,
        command=job.command,
        data=files,
        dialogues=trained,
        token_passes=outcome.token_passes,
        seconds=outcome.seconds,
        parameters=sum(parameter.numel() for parameter in draft.learning()),
        target_parameters=teacher.num_parameters,
        seed=options.seed,
        options={"layers": job.layers, "draft_vocabulary": len(token_ids)} | asdict(options),
        measured={
            "simulated_tau": outcome.figures.tau,
            "same_choice": outcome.figures.accepted[0],
            "accepted": list(outcome.figures.accepted),
            "places": outcome.figures.places,
            "coverage": coverage(checked, token_ids),
        },
    )
    earlier = record_of_model(str(job.start)) if job.start else None
    write_record(record.after(earlier) if earlier else record, job.output)


def _course(job: DraftModelJob, trained: list[Dialogue], token_ids: tuple[int, ...]) -> dict[str, object]:
    """What makes it another training, beside the options of the loop."""
    data = hashlib.sha256("".join(sorted(map(key_of, trained))).encode()).hexdigest()
    return {"model": job.model, "layers": job.layers, "draft_vocabulary": list(token_ids), "data": data}


def _vocabulary(job: DraftModelJob, trained: list[Dialogue], tokenizer: TextTokenizer) -> tuple[int, ...]:
    beside = job.start or job.vocabulary_of
    if beside is None:
        return choose_vocabulary(trained, job.vocabulary, always=indispensable(tokenizer))
    found = read_vocabulary(beside, tokenizer.vocabulary.size)
    if found is None:
        raise ConfigError(f"{beside} has no draft vocabulary; name a drafter that has one.")
    return found
