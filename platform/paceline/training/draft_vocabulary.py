"""Which tokens a drafter may propose: the ones that the target writes most (FR-Spec, Zhao et al. 2025)."""

from collections import Counter
from collections.abc import Iterable, Sequence

from paceline.errors import ConfigError
from paceline.text.tokenizer import TextTokenizer
from paceline.training.corpus import Dialogue

_ALWAYS = ("\n", "\n\n", " ", "```", *"0123456789.,:;!?()\"'-*#`")


def choose_vocabulary(dialogues: Iterable[Dialogue], size: int, *, always: Iterable[int] = ()) -> tuple[int, ...]:
    """``size`` ids, ascending: those of ``always``, then the most frequent of the answers, equals by id.

    Fewer where the answers have no more different ids. Raises ConfigError if ``always`` alone is more.
    """
    kept = set(always)
    if len(kept) > size:
        raise ConfigError(f"A draft vocabulary of {size} is too small: {len(kept)} tokens must be in any.")
    counts = Counter(token_id for dialogue in dialogues for token_id in dialogue.answer_ids)
    for token_id, _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        if len(kept) == size:
            break
        kept.add(token_id)
    return tuple(sorted(kept))


def indispensable(tokenizer: TextTokenizer) -> tuple[int, ...]:
    """Ids that any draft vocabulary should have: ends of sequences, line ends, digits, common signs."""
    signs = (ids[0] for ids in map(tokenizer.encode_fragment, _ALWAYS) if len(ids) == 1)
    return tuple(sorted({*tokenizer.eos_token_ids, *signs}))


def coverage(dialogues: Iterable[Dialogue], token_ids: Sequence[int]) -> float:
    """Share of the answers' tokens that are in the vocabulary: no drafter can be accepted more often."""
    known = set(token_ids)
    hits = total = 0
    for dialogue in dialogues:
        total += len(dialogue.answer_ids)
        hits += sum(token_id in known for token_id in dialogue.answer_ids)
    return hits / total if total else 0.0
