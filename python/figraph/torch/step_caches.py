"""step_caches.py: takes the caches of a DecodeStep, and tells what they determine of its spec.

Invariant: all caches of a step are of one class, and a step's part of a cache is a view of it.
"""

from __future__ import annotations

from typing import Any, NoReturn, Optional, Sequence, Union

import torch
from torch import Tensor

from .. import abi, errors
from ..latents import CODE_BYTES, KEY_DIM
from ..operands import (ACTIVATIONS, CACHES, Cache, LatentCache, at_least, dtype_name, kv_name,
                        shaped, typed)

AnyCache = Union[Cache, LatentCache]
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


def _cut_table(table: Tensor, n: int, rows: int, page_tokens: int) -> Tensor:
    """Returns the part of a page table that this many rows may use."""
    typed(f"caches[{n}].page_table", table, ["int32"])
    shaped(f"caches[{n}].page_table", table, None, None)
    at_least(f"caches[{n}].page_table", table, rows)
    return table[:rows, : -(-KV_LIMIT // page_tokens)]


def _cut(cache: Cache, n: int, rows: int, layout: str) -> Cache:
    """Returns the part of a cache that this many rows may use."""
    if cache.page_table is None:
        at_least(f"caches[{n}].k", cache.k, rows)
        return cache._replace(k=cache.k[:rows], v=cache.v[:rows])
    tokens = cache.k.shape[1 if layout == "nhd" else 2]
    return cache._replace(page_table=_cut_table(cache.page_table, n, rows, tokens))


def _cut_latents(cache: LatentCache, n: int, rows: int) -> LatentCache:
    """Checks a latent cache, and returns the part that this many rows may use. Codes get a dtype of
    one byte that the recording knows."""
    name, latents = f"caches[{n}].latents", cache.latents
    is_codes = typed(name, latents, [*ACTIVATIONS, "uint8"]) == "uint8"
    shaped(name, latents, None, None, CODE_BYTES if is_codes else KEY_DIM)
    if is_codes:
        latents = latents.view(torch.float8_e4m3fn)
    if cache.page_table is None:
        at_least(name, latents, rows)
        return LatentCache(latents[:rows])
    return LatentCache(latents, _cut_table(cache.page_table, n, rows, latents.shape[1]))


def taken(caches: Sequence[AnyCache], rows: int, layout: str, kv_dtype: Any) -> list[AnyCache]:
    """Checks the caches and returns the part of each that this many rows may use."""
    kind, found, first = kv_name(kv_dtype), [], caches[0]
    for n, cache in enumerate(caches):
        if type(cache) is not type(first):
            raise TypeError(f"caches[{n}] is a {type(cache).__name__}, but caches[0] is a "
                            f"{type(first).__name__}")
        if not isinstance(cache, LatentCache):
            found.append(_cut(_narrowed(n, cache, kind), n, rows, layout))
            continue
        if kind is not None or layout != "nhd":
            raise ValueError(f'{"layout" if kind is None else "kv_dtype"} is given, but a latent '
                             "cache has none")
        found.append(_cut_latents(cache, n, rows))
    return found


def refuse_shared(caches: Sequence[AnyCache]) -> None:
    """Raises if two layers have the same memory, as in [cache] * layers: a step appends to each."""
    known: dict[int, str] = {}
    for n, cache in enumerate(caches):
        for side in ("latents",) if isinstance(cache, LatentCache) else ("k", "v"):
            name, x = f"caches[{n}].{side}", getattr(cache, side)
            if x.numel() > 0 and known.setdefault(x.data_ptr(), name) != name:
                refuse(abi.FIG_INVALID, f"{name} is the memory of {known[x.data_ptr()]}, but each "
                       "layer appends its own tokens")


def tensor_of(cache: AnyCache) -> Tensor:
    """Returns the first tensor of a cache."""
    return cache.latents if isinstance(cache, LatentCache) else cache.k


def form_of(caches: Sequence[AnyCache], layout: str) -> dict[str, Any]:
    """Returns the fields of the spec that the caches determine: layout, dtype, page size and
    limit."""
    first = caches[0]
    for n, cache in enumerate(caches):
        if not _is_same(cache.page_table, first.page_table):
            refuse(abi.FIG_INVALID, f"caches[{n}].page_table is another than caches[0].page_table:"
                   " all layers of a step read one")
    tokens = tensor_of(first).shape[1 if layout == "nhd" else 2]
    form = dict(kv_layout=layout, kv_dtype=CACHES[dtype_name(tensor_of(first).dtype)])
    if first.page_table is None:
        return dict(form, page_size=0, kv_limit=min(tokens, KV_LIMIT))
    return dict(form, page_size=tokens, kv_limit=min(tokens * first.page_table.shape[1], KV_LIMIT))


def _is_same(a: Optional[Tensor], b: Optional[Tensor]) -> bool:
    """Returns True if two tensors have the same memory, shape and strides."""
    if a is None or b is None:
        return a is b
    return (a.data_ptr(), a.shape, a.stride()) == (b.data_ptr(), b.shape, b.stride())


def named(caches: Sequence[AnyCache]) -> dict[str, Tensor]:
    """Returns the tensors of the caches by their names in the recording, without page tables."""
    found = {}
    for n, cache in enumerate(caches):
        if isinstance(cache, LatentCache):
            found[f"k_cache.{n}"] = cache.latents
            continue
        given = {"k_cache": cache.k, "v_cache": cache.v, "k_scale": cache.k_scale,
                 "v_scale": cache.v_scale}
        found.update({f"{name}.{n}": x for name, x in given.items() if x is not None})
    return found
