"""Counts of tokens per arrival, where an endpoint does not say how many tokens a piece of text is."""

from collections.abc import Sequence

from paceline.bench.records import Arrival


def share_out(total: int, sizes: Sequence[int]) -> list[int]:
    """Split ``total`` tokens over pieces in proportion to their ``sizes``, by largest remainder.

    A piece with any text gets at least one token while there are enough of them. Sums to ``total``
    unless there are no pieces.
    """
    if not sizes:
        return []
    weight = sum(sizes)
    if not weight:
        return [total, *[0] * (len(sizes) - 1)]
    floor = [1 if size else 0 for size in sizes]
    left = total - sum(floor)
    if left < 0:  # fewer tokens than pieces: a token's text came in parts, which count where they began
        shares, cuts = [], 0
        for index in range(len(sizes)):
            upto = total * (index + 1) // len(sizes)
            shares.append(upto - cuts)
            cuts = upto
        return shares
    exact = [left * size / weight for size in sizes]
    shares = [least + int(part) for least, part in zip(floor, exact, strict=True)]
    by_remainder = sorted(range(len(sizes)), key=lambda index: (int(exact[index]) - exact[index], index))
    for index in by_remainder[: total - sum(shares)]:
        shares[index] += 1
    return shares


def shared_arrivals(total: int, pieces: Sequence[tuple[float, int]]) -> tuple[Arrival, ...]:
    """Arrivals of (time, characters) pieces; those that get no token are left out."""
    shares = share_out(total, [size for _, size in pieces])
    return tuple(Arrival(at_s, share) for (at_s, _), share in zip(pieces, shares, strict=True) if share)
