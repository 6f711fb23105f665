"""What a tokenizer's vocabulary is, in a form that two processes can compare."""

import hashlib
from collections.abc import Mapping

from paceline.core.model_identity import VocabularyIdentity


def identify_vocabulary(
    tokens: Mapping[str, int], special_ids: Mapping[str, int], *, vocab_size: int
) -> VocabularyIdentity:
    """Identity of a vocabulary.

    ``tokens`` maps token strings to ids, ``special_ids`` roles such as "eos" to ids. ``vocab_size`` is the
    number of rows of the model's output head, which may exceed the number of tokens by padding. The
    fingerprint covers tokens and special ids and not the padding, whose ids no tokenizer produces.
    """
    digest = hashlib.sha256()
    roles = tuple(sorted(special_ids.items()))
    entries = [*sorted((token_id, token) for token, token_id in tokens.items()), *((i, role) for role, i in roles)]
    for token_id, text in entries:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(token_id.to_bytes(8, "little") + len(encoded).to_bytes(8, "little") + encoded)
    return VocabularyIdentity(fingerprint=digest.hexdigest(), size=vocab_size, special_ids=roles)
