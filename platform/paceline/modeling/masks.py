"""Which keys a query may see."""

import torch


def causal_mask(
    query_index: torch.Tensor, num_keys: int, *, window: int | None, copies: int, dtype: torch.dtype
) -> torch.Tensor:
    """Additive mask ``[sequences, 1, copies * queries, num_keys]``: 0 where visible, -inf elsewhere.

    ``query_index`` ([sequences, queries]) is each query's place in its sequence. Key ``j`` is visible
    to query ``i`` if ``j <= i`` and, with a sliding window, ``j > i - window``. Keys are numbered by
    place, not by position, so a tree of drafts, whose siblings share a position, only has to
    replace the first of the two rules by its ancestor relation.
    """
    query = query_index.unsqueeze(-1)
    key = torch.arange(num_keys, device=query_index.device)
    visible = key <= query
    if window is not None:
        visible &= key > query - window
    mask = torch.zeros(visible.shape, dtype=dtype, device=query_index.device)
    mask.masked_fill_(~visible, float("-inf"))
    return mask.repeat(1, copies, 1).unsqueeze(1)
