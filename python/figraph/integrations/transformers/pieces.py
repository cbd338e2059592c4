"""pieces.py: operators over batches of any number of rows.

An operator of figraph.torch takes a limited number of rows, and a batch of HF may have more, most
of all where each KV head or each token is a row. Here such a batch is cut into pieces. Invariant: a
batch within the limit is one piece, which is passed on without a copy.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor

import figraph.torch as ft

from ...operands import LAYOUTS, rows_at_most


def pieces_of(rows: int, cache: ft.Cache, layout: str = "nhd") -> list[slice]:
    """Returns the rows of each piece of a batch over this cache."""
    tokens, kv_heads = cache.k.shape[1:3]
    if LAYOUTS[layout] == LAYOUTS["hnd"]:
        tokens, kv_heads = kv_heads, tokens
    pages = 1 if cache.page_table is None else cache.page_table.shape[1]
    most = rows_at_most(kv_heads, tokens * pages)
    if rows <= most:
        return [slice(0, rows)]
    return [slice(first, min(first + most, rows)) for first in range(0, rows, most)]


def cache_of(cache: ft.Cache, here: slice) -> ft.Cache:
    """Returns the cache of these rows."""
    if cache.page_table is None:
        return cache._replace(k=cache.k[here], v=cache.v[here])
    return cache._replace(page_table=cache.page_table[here])


def joined(made: Sequence[Tensor]) -> Tensor:
    """Returns the results of all pieces in one tensor."""
    return made[0] if len(made) == 1 else torch.cat(list(made))


def attend_rows(q: Tensor, cache: ft.Cache, lengths: Tensor, *, layout: str = "nhd",
                **asked: Any) -> Tensor:
    """Returns ft.attention of any number of rows of one query token."""
    return joined([ft.attention(q[here], cache_of(cache, here), lengths[here], layout=layout,
                                **asked) for here in pieces_of(q.shape[0], cache, layout)])


def attend_rows_with_lse(q: Tensor, cache: ft.Cache, lengths: Tensor,
                         **asked: Any) -> tuple[Tensor, Tensor]:
    """Returns ft.attention of any number of rows of one query token, and its log-sum-exp."""
    made = [ft.attention(q[here], cache_of(cache, here), lengths[here], with_lse=True, **asked)
            for here in pieces_of(q.shape[0], cache)]
    return joined([out for out, _ in made]), joined([lse for _, lse in made])
