"""Cuts and joins rows of one session, features included: what waits is merged, what is too large travels in parts."""

from collections.abc import Iterator
from dataclasses import replace

from paceline.core.drafts import DraftBudget, DraftRequest, FeatureBlock
from paceline.core.hashed_tokens import extend_hash

_TOKEN_BYTES = 5  # of an id in a message, at most
_SYNC_ONLY = DraftBudget(0, 0)


def join(older: DraftRequest, newer: DraftRequest) -> DraftRequest:
    """One row for two that follow each other; the newer alone where it does not build on the older.

    Where the newer one's tokens do not all have features, only its own are kept: those of a row are its last tokens'.
    """
    kept = newer.base_length - older.base_length
    if not 0 <= kept <= len(older.new_token_ids):
        return newer
    return replace(
        newer,
        base_length=older.base_length,
        base_hash=older.base_hash,
        new_token_ids=older.new_token_ids[:kept] + newer.new_token_ids,
        features=_joined(_part(older, 0, kept), newer),
    )


def split(row: DraftRequest, max_bytes: int) -> Iterator[DraftRequest]:
    """The row in parts of about ``max_bytes`` of tokens and features; only the last one asks for drafts.

    A row without features stays whole. A part has at least one token, whatever that takes.
    """
    block = row.features
    num_tokens = len(row.new_token_ids)
    vector_bytes = len(block.data) // block.count if block is not None and block.count else 0
    step = max(1, max_bytes // (vector_bytes + _TOKEN_BYTES))
    base_hash = row.base_hash
    start = 0
    while vector_bytes and num_tokens - start > step:
        token_ids = row.new_token_ids[start : start + step]
        yield DraftRequest(
            session=row.session,
            base_length=row.base_length + start,
            base_hash=base_hash,
            new_token_ids=token_ids,
            budget=_SYNC_ONLY,
            features=_part(row, start, start + step),
        )
        base_hash = extend_hash(base_hash, token_ids)
        start += step
    yield replace(
        row,
        base_length=row.base_length + start,
        base_hash=base_hash,
        new_token_ids=row.new_token_ids[start:],
        features=_part(row, start, num_tokens),
    )


def _part(row: DraftRequest, start: int, stop: int) -> FeatureBlock | None:
    """Features of the row's new tokens ``[start, stop)``, as far as they have any; None where the row sends none."""
    block = row.features
    if block is None:
        return None
    without = len(row.new_token_ids) - block.count
    first, last = max(start, without) - without, max(stop, without) - without
    size = len(block.data) // block.count if block.count else 0
    return FeatureBlock(last - first, block.data[first * size : last * size])


def _joined(older: FeatureBlock | None, newer: DraftRequest) -> FeatureBlock | None:
    if not newer.new_token_ids and newer.features is None:
        return older  # it brings nothing that could lack them
    if older is None or newer.features is None or newer.features.count < len(newer.new_token_ids):
        return newer.features
    return FeatureBlock(older.count + newer.features.count, older.data + newer.features.data)
