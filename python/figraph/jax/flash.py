"""flash.py: attention called as flash-attention libraries of JAX are, for one query token.

Arguments and their order are those of Flax's attention functions, which jafa has too. Invariant: a
mask does what it says, whatever its pattern; what cannot be done is refused.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from .operations import Logits, attention
from .targets import ACTIVATIONS, Array, Cache, shaped, typed, whole


def _spread(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """Dims of 1 become those of the shape."""
    fits = array.ndim == len(shape) and all(n in (1, m) for n, m in zip(array.shape, shape))
    if not fits:
        raise ValueError(f"{name} is {list(array.shape)}, it must be {list(shape)}, or 1 in a dim")
    return jnp.broadcast_to(array, shape)


def _seen(query: Array, key: Array, mask: Optional[Array], segment_ids: Optional[Any],
          lengths: Array, window: int) -> Optional[Array]:
    """bool [rows, 1 or heads, kv_length]: the keys that a row sees. None: the first ones, as
    lengths and the window say."""
    *batch, _, heads, _ = query.shape
    kv_length, seen = key.shape[-3], None
    if mask is not None:
        mask = typed("mask", mask, ["bool"])
        own = heads if mask.ndim == query.ndim and mask.shape[-3] != 1 else 1
        seen = _spread("mask", mask, (*batch, own, 1, kv_length)).reshape(-1, own, kv_length)
    if segment_ids is not None:
        of_query, of_keys = (jnp.asarray(x) for x in segment_ids)
        of_query = _spread("segment_ids[0]", of_query, (*batch, 1)).reshape(-1, 1, 1)
        of_keys = _spread("segment_ids[1]", of_keys, (*batch, kv_length)).reshape(-1, 1, kv_length)
        same = of_query == of_keys
        seen = same if seen is None else seen & same
    if seen is None:
        return None
    place, last = jnp.arange(kv_length), lengths[:, None, None] - 1
    seen = seen & (place <= last)
    return seen if window == 0 else seen & (place > last - window)


def _masked(q: Array, k: Array, v: Array, seen: Array, logits: Logits) -> Array:
    """Keys that are seen go before all others: their order changes no sum. Where heads see other
    keys than one another each is a row of its own."""
    rows, heads, dim = q.shape
    if seen.shape[1] > 1:
        k, v = (jnp.repeat(x, heads // x.shape[2], axis=2).swapaxes(1, 2) for x in (k, v))
        k, v = (x.reshape(rows * heads, -1, 1, dim) for x in (k, v))
        q, seen = q.reshape(rows * heads, 1, dim), seen.reshape(rows * heads, 1, -1)
    order = jnp.argsort(~seen[:, 0], axis=1, stable=True)[..., None, None]
    k, v = (jnp.take_along_axis(x, order, axis=1) for x in (k, v))
    out = attention(q, Cache(k, v), seen[:, 0].sum(axis=1, dtype=jnp.int32), logits=logits).out
    return out.reshape(rows, heads, dim)


def flash_attention(query: Array, key: Array, value: Array, mask: Optional[Array] = None,
                    dropout_rng: Any = None, dropout_rate: float = 0.0,
                    broadcast_dropout: bool = True, deterministic: bool = False,
                    dtype: Any = None, precision: Any = None, module: Any = None, *,
                    causal: bool = False, window: int = 0,
                    segment_ids: Optional[tuple[Array, Array]] = None,
                    lengths: Optional[Array] = None, scale: float = 0.0) -> Array:
    """Attention of one token of each sequence over the keys that it sees; out is like query.

    query: [..., 1, heads, head_dim]; key and value: [..., kv_length, kv_heads, head_dim]. The token
    is the last of its sequence, of which lengths, int32 [...], tell how many keys there are; all,
    unless given. So causal changes nothing, and window, in tokens, its own counted, is of the last
    ones. mask: bool [..., 1 or heads, 1, kv_length], of any pattern; segment_ids: of the query,
    [..., 1], and of the keys, [..., kv_length]: those of its own segment are seen. Who sees none
    gives zeros. A mask or segments cost a copy of the keys and values that are seen, of each head
    where heads differ; lengths and window cost nothing.

    Sums are in float32 whatever precision says, and module changes nothing. Dropout, several query
    tokens and gradients are refused.
    """
    if dropout_rate > 0 and not deterministic:
        raise NotImplementedError("figraph.jax.flash_attention has no dropout: deterministic=True")
    query = typed("query", query, list(ACTIVATIONS))
    key, value = (typed(name, x, [str(query.dtype)]) for name, x in (("key", key),
                                                                     ("value", value)))
    if query.ndim < 3 or query.shape[-3] != 1:
        raise NotImplementedError(f"query is {list(query.shape)}: figraph decodes, so it must be "
                                  "[..., 1, heads, head_dim]")
    shaped("key", key, *query.shape[:-3], None, None, query.shape[-1])
    shaped("value", value, *key.shape)
    batch, window = query.shape[:-3], whole("window", window)
    if lengths is None:
        lengths = jnp.full(batch, key.shape[-3], jnp.int32)
    lengths = shaped("lengths", typed("lengths", lengths, ["int32"]), *batch)

    @custom_vmap
    def attend(query: Array, key: Array, value: Array, mask: Any, segment_ids: Any,
               lengths: Array) -> Array:
        rows = math.prod(batch)
        q = query.reshape(rows, *query.shape[-2:])
        k, v = (x.reshape(rows, *x.shape[-3:]) for x in (key, value))
        own = lengths.reshape(rows)
        seen = _seen(query, key, mask, segment_ids, own, window)
        if seen is not None:
            return _masked(q, k, v, seen, Logits(scale=scale)).reshape(query.shape)
        logits = Logits(scale=scale, window=window)
        return attention(q, Cache(k, v), own, logits=logits).out.reshape(query.shape)

    @attend.def_vmap
    def one_more_dim(axis_size: int, in_batched: Any, *arrays: Any) -> Any:
        whole_ones = jax.tree_util.tree_map(
            lambda x, batched: x if batched else jnp.broadcast_to(x, (axis_size, *x.shape)),
            arrays, tuple(in_batched))
        *three, mask, segment_ids, lengths = whole_ones
        out = flash_attention(*three, mask, window=window, segment_ids=segment_ids,
                              lengths=lengths, scale=scale)
        return out, True

    out = attend(query, key, value, mask, segment_ids, lengths)
    return out if dtype is None else out.astype(dtype)
