"""Composes the training of a draft head: data, features of the target, the head before its training, the loop."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from paceline.errors import ConfigError
from paceline.modeling.heads.checkpoint import Head, load_head
from paceline.modeling.heads.draft_vocabulary import read_vocabulary
from paceline.modeling.heads.head_spec import HeadSpec
from paceline.modeling.heads.mtp_head import MtpHead
from paceline.modeling.heads.new_heads import new_eagle, new_medusa, new_mtp
from paceline.modeling.heads.save_head import save_head
from paceline.modeling.heads.target_weights import weights_of_model
from paceline.modeling.loader import load_config
from paceline.modeling.resolve import resolve_model
from paceline.text.tokenizer import TextTokenizer
from paceline.training import draft_vocabulary
from paceline.training.corpus import Dialogue, first_tokens, held_out, read_corpus
from paceline.training.feature_cache import FeatureCache, key_of
from paceline.training.head_pupil import HeadPupil, Lesson, pupil_of
from paceline.training.joint_mtp import JointPupil, save_joint
from paceline.training.loop import LoopOptions, Outcome, Progress, TrainingLoop, accelerator
from paceline.training.plain_model import load_plain
from paceline.training.record import data_files, record_of_model, training_record, write_record
from paceline.training.teacher import ModelTeacher

_PRECISIONS = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTrainingOptions:
    """What ``paceline train eagle``, ``mtp`` and ``medusa`` are given."""

    method: Literal["eagle", "mtp", "medusa"]
    data: list[Path]
    work: Path  # checkpoints and figures
    features: Path | None = None  # the target's hidden states; None: in `work`
    model: str = "smollm2-135m"
    start: Path | None = None  # a trained head to begin with
    vocabulary: int = 8192
    vocabulary_of: Path | None = None
    modules: int = 1  # MTP
    parallel: bool = False  # MTP
    joint: float | None = None  # MTP: the target learns too; weight of the modules' loss
    heads: int = 4  # Medusa
    unroll: int = 2  # EAGLE, MTP
    epochs: int = 3
    learning_rate: float = 2e-3
    batch_tokens: int = 4096
    hybrid_from: float = 0.4
    check_every: int = 100
    patience: int = 6
    drop_loops: bool = True
    most_tokens: int | None = None
    random_init: bool = False
    no_feature: bool = False
    unshifted: bool = False
    precision: str = "bfloat16"
    seed: int = 0

    @property
    def loop(self) -> LoopOptions:
        """Those of the loop."""
        return LoopOptions(
            epochs=self.epochs,
            batch_tokens=self.batch_tokens,
            learning_rate=self.learning_rate,
            hybrid_from=self.hybrid_from,
            check_every=self.check_every,
            patience=self.patience,
            seed=self.seed,
        )

    @property
    def course(self) -> dict[str, Any]:
        """What makes it another training, beside those of the loop and the data."""
        left_out = {"data", "work", "features", "start", "vocabulary_of", *asdict(self.loop)}
        return {name: value for name, value in asdict(self).items() if name not in left_out}


class HeadTraining:
    """One training, from reading its data to writing the head."""

    def __init__(self, options: HeadTrainingOptions, *, dtype: torch.dtype = torch.bfloat16) -> None:
        """Read the data, and choose the draft vocabulary; ``dtype`` is what the target serves in.

        Raises ConfigError for data or options that do not do, ModelRefusedError for a target that heads do not know.
        """
        if options.precision not in _PRECISIONS:
            raise ConfigError(f"The precision '{options.precision}' is neither bfloat16 nor float32.")
        if options.joint is not None and (options.parallel or options.start is not None):
            raise ConfigError(
                "A target learns together with sequential modules from the beginning: no --parallel or --start."
            )
        torch.manual_seed(options.seed)
        self._options = options
        folder = resolve_model(options.model)
        tokenizer = TextTokenizer.load(folder, vocab_size=load_config(folder).vocab_size)
        self._files = data_files(options.data)
        corpus = read_corpus(options.data, tokenizer, drop_loops=options.drop_loops)
        trained, self._checked = held_out(_trainable(corpus))
        if not trained or not self._checked:
            raise ConfigError("There are too few dialogues to keep some for checks; give more data.")
        self._trained = first_tokens(trained, options.most_tokens) if options.most_tokens else trained
        device = str(accelerator().device)  # of this process, where several train together
        self._teacher = ModelTeacher(folder, dtype=dtype, device=device)
        self._cache = FeatureCache(options.features or options.work / "features", self._teacher)
        self._folder = folder
        self._model = load_plain(folder, dtype=torch.float32, device=device)
        self._head = _head(options, self._model, lambda: _vocabulary(options, self._trained, tokenizer))
        spec = self._head.spec
        self._token_ids = tuple(range(spec.vocab_size)) if spec.draft_token_ids is None else spec.draft_token_ids
        self._outcome: Outcome | None = None

    @property
    def speaks(self) -> bool:
        """Whether this process writes the results and shows progress: the first of those that train together."""
        return bool(accelerator().is_main_process)

    def compute_features(self, say: Callable[[int, int], None] = lambda *_: None) -> float:
        """Let the target read what of the data it has not read yet; returns the seconds that it took."""
        if self._options.joint is not None:
            return 0.0  # they change with the target
        return self._cache.fill([*self._trained, *self._checked], say)

    def run(self, say: Callable[[Progress], None] = lambda _: None) -> Outcome:
        """Train, or go on; the head ends as the best of all checks."""
        options = self._options
        data = hashlib.sha256("".join(sorted(map(key_of, self._trained))).encode()).hexdigest()
        course = {**options.course, "data": data, "draft_vocabulary": list(self._token_ids)}
        loop = TrainingLoop(self.pupil(), options.work, options.loop, course=course)
        self._outcome = loop.run(self._trained, self._checked, say)
        return self._outcome

    def pupil(self) -> HeadPupil | JointPupil:
        """The head with what it learns from."""
        options = self._options
        if options.joint is not None and isinstance(self._head, MtpHead):
            return JointPupil(self._model, self._head, weight=options.joint)
        lesson = Lesson(
            depth=_depth(options, self._head.spec),
            without_feature=options.no_feature,
            unshifted=options.unshifted,
            precision=_PRECISIONS[options.precision],
        )
        return pupil_of(self._head, self._cache, lesson)

    def save(self, output: Path, *, command: str) -> None:
        """Write the head and the record of its training, after `run`."""
        if self._outcome is None:
            raise RuntimeError("run first")
        options, outcome = self._options, self._outcome
        if options.joint is not None and isinstance(self._head, MtpHead):
            save_joint(self._model, self._head, output, old=self._folder)
        else:
            save_head(self._head, output)
        record = training_record(
            options.method,
            target=options.model,
            command=command,
            data=self._files,
            dialogues=self._trained,
            token_passes=outcome.token_passes,
            seconds=outcome.seconds,
            parameters=sum(parameter.numel() for parameter in self._head.parameters()),
            target_parameters=self._teacher.num_parameters,
            seed=options.seed,
            options=options.course | asdict(options.loop),
            measured={
                "simulated_tau": outcome.figures.tau,
                "same_choice": outcome.figures.accepted[0] if outcome.figures.accepted else 0.0,
                "accepted": list(outcome.figures.accepted),
                "places": outcome.figures.places,
                "coverage": draft_vocabulary.coverage(self._checked, self._token_ids),
            },
        )
        earlier = record_of_model(str(options.start)) if options.start else None
        write_record(record.after(earlier) if earlier else record, output)


def _depth(options: HeadTrainingOptions, spec: HeadSpec) -> int:
    """Drafts in a row that are trained: no module is left out, also of a head that is gone on with."""
    return spec.num_modules if spec.variant in ("medusa", "parallel") else max(options.unroll, spec.num_modules)


def _trainable(dialogues: list[Dialogue]) -> list[Dialogue]:
    """Those with a token that has a feature and a successor in the answer."""
    return [dialogue for dialogue in dialogues if len(dialogue) > 2]


def _vocabulary(options: HeadTrainingOptions, dialogues: list[Dialogue], tokenizer: TextTokenizer) -> tuple[int, ...]:
    beside = options.vocabulary_of
    if beside is None:
        return draft_vocabulary.choose_vocabulary(
            dialogues, options.vocabulary, always=draft_vocabulary.indispensable(tokenizer)
        )
    token_ids = read_vocabulary(beside, tokenizer.vocabulary.size)
    if token_ids is None:
        raise ConfigError(f"{beside} has no draft vocabulary in a file of its own; name a drafter that has one.")
    return token_ids


def _head(options: HeadTrainingOptions, model: PreTrainedModel, vocabulary: Callable[[], tuple[int, ...]]) -> Head:
    """The head before training, in float32, which is what small steps need."""
    if options.start is not None:
        head = load_head(options.start, weights_of_model(model))
        if head.spec.method != options.method:
            raise ConfigError(f"{options.start} holds a head of the method '{head.spec.method}'.")
    else:
        head = _new_head(options, model, vocabulary())
    head.train(mode=True)
    return head.to(model.device).requires_grad_(requires_grad=True)


def _new_head(options: HeadTrainingOptions, model: PreTrainedModel, token_ids: tuple[int, ...]) -> Head:
    random = options.random_init
    if options.method == "eagle":
        return new_eagle(model, draft_token_ids=token_ids, random=random)
    if options.method == "mtp":
        # What is a part of its target drafts all tokens.
        ids = token_ids if options.joint is None else None
        return new_mtp(
            model, num_modules=options.modules, parallel=options.parallel, draft_token_ids=ids, random=random
        )
    return new_medusa(model, num_heads=options.heads, draft_token_ids=token_ids, random=random)
