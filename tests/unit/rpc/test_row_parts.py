"""Rows are cut and joined with their features, and say the same as before."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.drafts import DraftBudget, DraftRequest, FeatureBlock
from paceline.core.hashed_tokens import HashedTokens
from paceline.rpc.row_parts import join, split

TOKENS = HashedTokens(range(100, 160))
BUDGET = DraftBudget(3, 4, 2)
SIZE = 6  # bytes of a feature


def vector(place):
    return place.to_bytes(SIZE, "little")


def row(base, stop, *, without=0, features=True):
    """Tokens ``[base, stop)``, the last of them, all but ``without``, with their features."""
    places = range(min(base + without, stop), stop)
    block = FeatureBlock(len(places), b"".join(map(vector, places))) if features else None
    ids = TOKENS.slice(base, stop)
    return DraftRequest("s", base, TOKENS.hash_at(base), ids, BUDGET, deadline_ms=9, features=block)


def placed(row):
    """Feature by place."""
    if row.features is None:
        return {}
    first = row.context_length - row.features.count
    data = row.features.data
    assert len(data) == SIZE * row.features.count
    return {first + number: data[SIZE * number :][:SIZE] for number in range(row.features.count)}


@given(st.integers(0, 20), st.integers(1, 30), st.integers(0, 30), st.integers(1, 200))
def test_parts_of_a_row_are_the_row(base, length, without, max_bytes):
    """Each builds on the one before, stays below the limit, and only the last asks for drafts."""
    whole = row(base, base + length, without=min(without, length))
    parts = list(split(whole, max_bytes))

    joined = parts[0]
    for part in parts[1:]:
        assert part.base_length == joined.context_length
        joined = join(joined, part)
    assert joined == whole
    assert all(part.base_hash == TOKENS.hash_at(part.base_length) for part in parts)
    assert [part.budget.max_depth for part in parts] == [0] * (len(parts) - 1) + [3]
    assert parts[-1].deadline_ms == 9
    if whole.features.count:
        for part in parts:
            tokens = len(part.new_token_ids)
            assert tokens == 1 or 5 * tokens + len(part.features.data) <= max_bytes
    features = {}
    for part in parts:
        assert not features.keys() & placed(part).keys()
        features |= placed(part)
    assert features == placed(whole)


def test_a_row_without_features_stays_whole():
    """It is as large as its prompt, and that fits; so does one that asks again for what was sent."""
    for whole in (row(0, 40, features=False), row(5, 5), row(5, 5, features=False), row(0, 1, without=1)):
        assert list(split(whole, 10)) == [whole]


def test_joined_rows_have_the_features_of_both():
    """Also where the newer one begins inside the older, as after NEED_SYNC, or only asks for drafts."""
    assert join(row(0, 9, without=1), row(9, 12)) == row(0, 12, without=1)
    assert join(row(0, 9, without=1), row(4, 12)) == row(0, 12, without=1)
    assert join(row(3, 9), row(3, 6)) == row(3, 6)
    assert join(row(3, 9), row(9, 9, features=False)) == row(3, 9)
    assert join(row(3, 9), row(9, 9)) == row(3, 9)
    assert join(row(0, 1, without=1), row(1, 5)) == row(0, 5, without=1)
    assert join(replace(row(0, 1), features=None), row(1, 5)) == row(0, 5, without=1)


def test_a_newer_row_without_features_leaves_none():
    """Those of a row are its last tokens': older ones cannot be said beside a gap."""
    assert join(row(0, 9, without=1), row(9, 12, features=False)) == row(0, 12, features=False)
    assert join(row(0, 9, without=1), row(9, 12, without=2)) == row(0, 12, without=11)
    assert join(row(0, 9, features=False), row(9, 12)) == row(0, 12, without=9)


def test_a_row_that_does_not_follow_replaces_the_older():
    """After a reset, or with a gap."""
    assert join(row(6, 9), row(2, 12)) == row(2, 12)
    assert join(row(0, 4), row(6, 8)) == row(6, 8)
