"""step_caches.py: takes the caches of a DecodeStep, and tells what they determine of its spec.

Invariant: all caches of a step are of one class, and a step's part of a cache is a view of it.
"""

from __future__ import annotations

from typing import Any, NoReturn, Optional, Sequence

import torch
from torch import Tensor

from .. import abi, errors
from ..operands import CACHES, Cache, at_least, dtype_name, kv_name, shaped, typed

KV_LIMIT = 1 << 20  # tokens of a sequence; a longer one is idle


def refuse(status: int, sentence: str) -> NoReturn:
    """Raises the exception of a status."""
    raise errors.of(status, sentence)


def _narrowed(n: int, cache: Cache, kv_dtype: Optional[str]) -> Cache:
    """Returns a cache of bytes as a cache of the dtype that kv_dtype names. Checks the dtype of
    other caches."""
    for side, tensor in (("k", cache.k), ("v", cache.v)):
        name = f"caches[{n}].{side}"
        shaped(name, tensor, None, None, None, None)
        if kv_dtype is not None:
            typed(name, tensor, ["uint8", kv_dtype])
        elif tensor.dtype == torch.uint8:
            raise TypeError(f"{name} is uint8, kv_dtype must say what its bytes are")
        else:
            typed(name, tensor, list(CACHES))
    if kv_dtype is None:
        return cache
    kind = getattr(torch, kv_dtype)
    return cache._replace(k=cache.k.view(kind), v=cache.v.view(kind))


def _cut(cache: Cache, n: int, rows: int, layout: str) -> Cache:
    """Returns the part of a cache that this many rows may use."""
    if cache.page_table is None:
        at_least(f"caches[{n}].k", cache.k, rows)
        return cache._replace(k=cache.k[:rows], v=cache.v[:rows])
    typed(f"caches[{n}].page_table", cache.page_table, ["int32"])
    shaped(f"caches[{n}].page_table", cache.page_table, None, None)
    at_least(f"caches[{n}].page_table", cache.page_table, rows)
    pages = -(-KV_LIMIT // cache.k.shape[1 if layout == "nhd" else 2])
    return cache._replace(page_table=cache.page_table[:rows, :pages])


def taken(caches: Sequence[Cache], rows: int, layout: str, kv_dtype: Any) -> list[Cache]:
    """Checks the caches and returns the part of each that this many rows may use."""
    kind = kv_name(kv_dtype)
    return [_cut(_narrowed(n, cache, kind), n, rows, layout) for n, cache in enumerate(caches)]


def form_of(caches: Sequence[Cache], layout: str) -> dict[str, Any]:
    """Returns the fields of the spec that the caches determine: layout, dtype, page size and
    limit."""
    first = caches[0]
    for n, cache in enumerate(caches):
        if not _is_same(cache.page_table, first.page_table):
            refuse(abi.FIG_INVALID, f"caches[{n}].page_table is another than caches[0].page_table:"
                   " all layers of a step read one")
    tokens = first.k.shape[1 if layout == "nhd" else 2]
    form = dict(kv_layout=layout, kv_dtype=CACHES[dtype_name(first.k.dtype)])
    if first.page_table is None:
        return dict(form, page_size=0, kv_limit=min(tokens, KV_LIMIT))
    return dict(form, page_size=tokens, kv_limit=min(tokens * first.page_table.shape[1], KV_LIMIT))


def _is_same(a: Optional[Tensor], b: Optional[Tensor]) -> bool:
    """Returns True if two tensors have the same memory, shape and strides."""
    if a is None or b is None:
        return a is b
    return (a.data_ptr(), a.shape, a.stride()) == (b.data_ptr(), b.shape, b.stride())


def named(caches: Sequence[Cache]) -> dict[str, Tensor]:
    """Returns the tensors of the caches by their names in the recording, without page tables."""
    found = {}
    for n, cache in enumerate(caches):
        given = {"k_cache": cache.k, "v_cache": cache.v, "k_scale": cache.k_scale,
                 "v_scale": cache.v_scale}
        found.update({f"{name}.{n}": x for name, x in given.items() if x is not None})
    return found
