"""flash.py: attention with the interfaces of JAX's attention libraries.

flash_attention takes the arguments of Flax's attention functions, in the same order; jafa has the
same interface. tokamax calls tokamax_attention. Invariant: each mask is obeyed exactly, or refused
with an error that names it.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import Any, Callable, Mapping, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from ..operands import (ACTIVATIONS, ROW_TOKENS, Array, Cache, Form, Logits, scratch_bytes)
from ..scores import Score, joined
from .operations import Variant, attention
from .targets import shaped, typed, whole


def _spread(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """Broadcasts dims of size 1 to the shape."""
    fits = array.ndim == len(shape) and all(n in (1, m) for n, m in zip(array.shape, shape))
    if not fits:
        raise ValueError(f"{name} is {list(array.shape)}, it must be {list(shape)}, or 1 in a dim")
    return jnp.broadcast_to(array, shape)


def _seen(query: Array, key: Array, mask: Optional[Array], segment_ids: Optional[Any],
          lengths: Array, window: int) -> Optional[Array]:
    """Returns the keys that each row sees, as bool [rows, 1 or heads, kv_length]. Returns None if
    lengths and window alone decide which keys are visible."""
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
    """Moves the visible keys to the front and computes attention over them; the order of keys does
    not change the result. If the heads see different keys, each head becomes a row."""
    rows, heads, dim = q.shape
    if seen.shape[1] > 1:
        k, v = (jnp.repeat(x, heads // x.shape[2], axis=2).swapaxes(1, 2) for x in (k, v))
        k, v = (x.reshape(rows * heads, -1, 1, dim) for x in (k, v))
        q, seen = q.reshape(rows * heads, 1, dim), seen.reshape(rows * heads, 1, -1)
    order = jnp.argsort(~seen[:, 0], axis=1, stable=True)[..., None, None]
    k, v = (jnp.take_along_axis(x, order, axis=1) for x in (k, v))
    out = attention(q, Cache(k, v), seen[:, 0].sum(axis=1, dtype=jnp.int32), logits=logits).out
    return out.reshape(rows, heads, dim)


# ---- Several query tokens of a sequence ----------------------------------------------------------

ROW_LIMIT, HEAD_TOKEN_LIMIT = 1024, 1 << 34  # of one call: rows; heads * all keys


def _in_rows(q: Array, k: Array, v: Array, counts: list[int], lengths: Array,
             logits: Logits) -> Array:
    """Computes attention of rows with different numbers of query tokens. counts: the number for
    each row. q: [tokens, heads, dim], the query tokens of all rows. lengths: int32 [rows], the keys
    that each row has. Each sequence of k and v is a page; all pages are shared by the same number
    of rows."""
    width, of, outs, done = max(counts), len(counts) // k.shape[0], [], 0
    table = np.repeat(np.arange(k.shape[0], dtype=np.int32), of)[:, None]
    most = HEAD_TOKEN_LIMIT // (k.shape[2] << max(k.shape[1] - 1, 1).bit_length())
    each = max(min(ROW_LIMIT, most), 1)
    for first in range(0, len(counts), each):
        own = counts[first : first + each]
        some = slice(first, first + len(own))
        starts = np.cumsum([0, *own], dtype=np.int32)
        rows = dict(query_start_loc=starts, row_tokens=width) if width > 1 else {}
        outs.append(attention(q[done : done + sum(own)], Cache(k, v, table[some]), lengths[some],
                              logits=logits, **rows).out)
        done += sum(own)
    return outs[0] if len(outs) == 1 else jnp.concatenate(outs)


def _each_alone(query: Array, key: Array, value: Array, ends: Array, logits: Logits) -> Array:
    """Computes attention of query, [sequences, tokens, heads, dim], with one row for each query
    token. ends: int32 [sequences, tokens]; each query token sees the first `ends` keys of its
    sequence."""
    flat = query.reshape(-1, *query.shape[2:])
    out = _in_rows(flat, key, value, flat.shape[0] * [1], ends.reshape(-1), logits)
    return out.reshape(query.shape)


def _one_after_another(query: Array, key: Array, value: Array, lengths: Array,
                       logits: Logits) -> Array:
    """Computes attention of query tokens that are the last tokens of their sequences. Each sees the
    keys up to its own. lengths: int32 [sequences]. A row of several tokens reads its keys once."""
    count, tokens = query.shape[:2]
    of = -(-tokens // ROW_TOKENS)
    counts = [tokens - (of - 1) * ROW_TOKENS] + (of - 1) * [ROW_TOKENS]
    behind = np.arange(of - 1, -1, -1, dtype=np.int32) * ROW_TOKENS
    ends = jnp.where(lengths[:, None] < tokens, 0, lengths[:, None] - behind)
    out = _in_rows(query.reshape(-1, *query.shape[2:]), key, value, count * counts,
                   ends.reshape(-1), logits)
    return out.reshape(query.shape)


# ---- Gradients -----------------------------------------------------------------------------------


def _plain(query: Array, key: Array, value: Array, seen: Array, logits: Logits) -> Array:
    """Computes attention by JAX's own operations, in float32. query: [..., tokens, heads, dim].
    seen: bool [..., 1 or heads, tokens, keys]. A token that sees nothing gets zeros."""
    group = query.shape[-2] // key.shape[-2]
    k, v = (jnp.repeat(x, group, axis=-2).astype(jnp.float32) for x in (key, value))
    of = jnp.einsum("...qhd,...khd->...hqk", query.astype(jnp.float32), k)
    of = of * (logits.scale or query.shape[-1] ** -0.5)
    if logits.soft_cap > 0:
        of = logits.soft_cap * jnp.tanh(of / logits.soft_cap)
    weights = jnp.where(seen, jax.nn.softmax(jnp.where(seen, of, -1e30), -1), 0.0)
    return jnp.einsum("...hqk,...khd->...qhd", weights, v).astype(query.dtype)


def _differentiable(attend: Callable[..., Array], plain: Callable[..., Array]) -> Any:
    """Returns attend(query, key, value, *rest) with a gradient, which is that of `plain`, a
    function that computes the same result. The arguments in `rest` have no gradient."""
    made = jax.custom_vjp(attend)

    def forward(*arrays: Any) -> Any:
        return attend(*arrays), arrays

    def backward(arrays: Any, grown: Array) -> Any:
        _, pull = jax.vjp(lambda *three: plain(*three, *arrays[3:]), *arrays[:3])
        return (*pull(grown), *(None for _ in arrays[3:]))

    made.defvjp(forward, backward)
    return made


# ---- Flax ----------------------------------------------------------------------------------------


def _visible(query: Array, key: Array, mask: Any, segment_ids: Any, lengths: Array, window: int,
             causal: bool) -> Array:
    """Returns what each query token sees, as bool [..., 1 or heads, tokens, keys]."""
    tokens, keys = query.shape[-3], key.shape[-3]
    place = jnp.arange(keys)
    last = lengths[..., None, None, None] - 1
    own = last - jnp.arange(tokens - 1, -1, -1)[:, None]
    seen = place <= (own if causal or tokens == 1 else last)
    if causal and tokens > 1:
        seen = seen & (lengths[..., None, None, None] >= tokens)
    if window > 0:
        seen = seen & (place > own - window)
    if mask is not None:
        seen = seen & mask
    if segment_ids is not None:
        of_query, of_keys = (jnp.asarray(x) for x in segment_ids)
        seen = seen & (of_query[..., None, :, None] == of_keys[..., None, None, :])
    return seen


def flash_attention(query: Array, key: Array, value: Array, mask: Optional[Array] = None,
                    dropout_rng: Any = None, dropout_rate: float = 0.0,
                    broadcast_dropout: bool = True, deterministic: bool = False,
                    dtype: Any = None, precision: Any = None, module: Any = None, *,
                    causal: bool = False, window: int = 0,
                    segment_ids: Optional[tuple[Array, Array]] = None,
                    lengths: Optional[Array] = None, scale: float = 0.0,
                    score: Optional[Variant] = None,
                    score_arrays: Optional[Mapping[str, Array]] = None) -> Array:
    """Returns the attention of each sequence's query tokens over their visible keys, in query's
    shape.

    query: [..., tokens, heads, head_dim]. key, value: [..., kv_length, kv_heads, head_dim].
    lengths: int32 [...], the number of keys of each sequence; the default is all of them. The query
    tokens are the last tokens of their sequence. causal: each sees the keys up to its own; a
    sequence with fewer keys than query tokens then returns zeros. Otherwise each sees all keys.
    window: the number of last tokens that a query token sees, its own token included; 0 means all,
    and several query tokens need causal.

    A call with one query token per sequence also takes the next two arguments; a call with several
    refuses them. mask: bool [..., 1 or heads, 1, kv_length], of any pattern. segment_ids: a pair,
    [..., 1] for the query and [..., kv_length] for the keys; the query sees only keys of its own
    segment. A mask or segments cost a copy of the keys and values, and one copy per head if the
    heads differ. lengths and window cost nothing. A query token that sees no key returns zeros.

    score and score_arrays are as in figraph.jax.attention, and mask may also be a figraph.mask. The
    row of such a call is the number of the sequence, counted over all dims in front of query's
    tokens. They are for one query token per sequence, without segments and without a mask of bools,
    and have no gradient.

    The keys are read once for every 8 causal query tokens, and once for each query token that is
    not causal; figraph.Prompts is faster for long prompts. Sums are in float32, whatever
    `precision` is, and `module` has no effect. The gradient with respect to query, key and value is
    computed by JAX's own operations, from all logits at once. Dropout is refused.
    """
    if dropout_rate > 0 and not deterministic:
        raise NotImplementedError("figraph.jax.flash_attention has no dropout: deterministic=True")
    scored = _score_of_call(score, score_arrays, mask, segment_ids)
    query = typed("query", query, list(ACTIVATIONS))
    key, value = (typed(name, x, [str(query.dtype)]) for name, x in (("key", key),
                                                                     ("value", value)))
    if query.ndim < 3 or query.shape[-3] < 1:
        raise ValueError(f"query is {list(query.shape)}, it must be [..., tokens, heads, head_dim]")
    shaped("key", key, *query.shape[:-3], None, None, query.shape[-1])
    shaped("value", value, *key.shape)
    batch, window = query.shape[:-3], whole("window", window)
    tokens, logits = query.shape[-3], Logits(scale=scale, window=window)
    if tokens > 1:
        _refuse_several(tokens, mask, segment_ids, window, causal)
        if scored is not None:
            raise NotImplementedError(f"score is given, or mask is a figraph.mask, and query has "
                                      f"{tokens} tokens: figraph.jax.attention takes several")
    if lengths is None:
        lengths = jnp.full(batch, key.shape[-3], jnp.int32)
    lengths = shaped("lengths", typed("lengths", lengths, ["int32"]), *batch)
    if scored is not None:
        rows = math.prod(batch)
        q, k, v = (x.reshape(rows, *x.shape[-3:]) for x in (query, key, value))
        out = attention(q[:, 0], Cache(k, v), lengths.reshape(rows), logits=logits, score=scored,
                        score_arrays=score_arrays).out.reshape(query.shape)
        return out if dtype is None else out.astype(dtype)

    @custom_vmap
    def attend(query: Array, key: Array, value: Array, mask: Any, segment_ids: Any,
               lengths: Array) -> Array:
        rows = math.prod(batch)
        q, k, v = (x.reshape(rows, *x.shape[-3:]) for x in (query, key, value))
        own = lengths.reshape(rows)
        if tokens > 1 and causal:
            return _one_after_another(q, k, v, own, logits).reshape(query.shape)
        if tokens > 1:
            ends = jnp.broadcast_to(own[:, None], (rows, tokens))
            return _each_alone(q, k, v, ends, logits).reshape(query.shape)
        q = q[:, 0]
        seen = _seen(query, key, mask, segment_ids, own, window)
        if seen is not None:
            return _masked(q, k, v, seen, Logits(scale=scale)).reshape(query.shape)
        return attention(q, Cache(k, v), own, logits=logits).out.reshape(query.shape)

    @attend.def_vmap
    def one_more_dim(axis_size: int, in_batched: Any, *arrays: Any) -> Any:
        whole_ones = jax.tree_util.tree_map(
            lambda x, batched: x if batched else jnp.broadcast_to(x, (axis_size, *x.shape)),
            arrays, tuple(in_batched))
        *three, mask, segment_ids, lengths = whole_ones
        out = flash_attention(*three, mask, window=window, segment_ids=segment_ids,
                              lengths=lengths, scale=scale, causal=causal)
        return out, True

    def plain(query: Array, key: Array, value: Array, mask: Any, segment_ids: Any,
              lengths: Array) -> Array:
        seen = _visible(query, key, mask, segment_ids, lengths, window, causal)
        return _plain(query, key, value, seen, logits)

    out = _differentiable(attend, plain)(query, key, value, mask, segment_ids, lengths)
    return out if dtype is None else out.astype(dtype)


def _score_of_call(score: Optional[Variant], arrays: Optional[Mapping[str, Array]], mask: Any,
                   segment_ids: Any) -> Optional[Score]:
    """Returns the score of a call with its mask, or None if it has neither."""
    own = mask if isinstance(mask, Score) else None
    if score is None and own is None:
        if arrays is not None:
            raise ValueError("score_arrays is given, but neither score nor a figraph.mask is")
        return None
    for name, given in (("mask", mask if own is None else None), ("segment_ids", segment_ids)):
        if given is not None:
            raise NotImplementedError(f"{name} is given beside a score, and would move the keys "
                                      "that the score counts: write it into a figraph.mask")
    return joined(score, own)


def _refuse_several(tokens: int, mask: Any, segment_ids: Any, window: int, causal: bool) -> None:
    """Raises if a call with several query tokens cannot have this mask."""
    for name, given in (("mask", mask), ("segment_ids", segment_ids)):
        if given is not None:
            raise NotImplementedError(f"{name} is given, and query has {tokens} tokens: for more "
                                      "than one figraph has causal, window and lengths")
    if window > 0 and not causal:
        raise NotImplementedError(f"window is {window} without causal, and query has {tokens} "
                                  "tokens")


# ---- tokamax -------------------------------------------------------------------------------------


# Arguments of tokamax's own implementations that this one has not, where they change no result.
DEFAULTS = {"dropout_rate": 0.0, "normalize_output": True, "return_residuals": False}
ROUNDING = ("precision", "logits_dtype")  # sums are in float32 whatever these say
PARTS = ("is_causal", "causal_mask", "k_end", "q_end")  # of a mask, which _ends reads


def _refuse_other_parts(mask: Any) -> None:
    """Raises if tokamax's mask has a part that _ends does not read. Its versions differ in their
    parts, so every field counts, not only those of one version."""
    if not dataclasses.is_dataclass(mask):
        raise NotImplementedError(f"figraph.jax.tokamax_attention: mask is a {type(mask).__name__},"
                                  " it must be tokamax's Mask")
    for part in dataclasses.fields(mask):
        if part.name not in PARTS and getattr(mask, part.name) is not None:
            raise NotImplementedError(f"figraph.jax.tokamax_attention: mask.{part.name} is given, "
                                      "it takes is_causal, k_end and q_end")
    moved = getattr(mask, "causal_mask", None)  # from tokamax 0.0.17 on
    if moved is not None and not mask.is_causal:
        raise NotImplementedError("figraph.jax.tokamax_attention: mask.causal_mask is given with "
                                  f"offset {moved.offset} and window_size {moved.window_size}, it "
                                  "takes 0 and None")


def _ends(mask: Any, query: Array, key: Array) -> Array:
    """Returns int32 [sequences, tokens]: under tokamax's mask, each query token sees this number of
    keys, from the first on. If a token sees other keys, raises NotImplementedError, and tokamax
    then tries its next implementation."""
    *batch, tokens, _, _ = query.shape
    keys = key.shape[-3]
    ends = jnp.full((*batch, tokens), keys, jnp.int32)
    if mask is None:
        return ends.reshape(-1, tokens)
    _refuse_other_parts(mask)
    if mask.is_causal:
        ends = jnp.minimum(ends, jnp.arange(1, tokens + 1, dtype=jnp.int32))
    if mask.k_end is not None:
        ends = jnp.minimum(ends, _of_heads("mask.k_end", mask.k_end, (*batch, tokens)))
    if mask.q_end is not None:
        own = _of_heads("mask.q_end", mask.q_end, (*batch, keys))[..., :1]
        ends = jnp.where(jnp.arange(tokens) < own, ends, 0)
    return ends.reshape(-1, tokens)


def _of_heads(name: str, given: Array, shape: tuple[int, ...]) -> Array:
    """Returns a bound, [..., heads, tokens or 1], that is the same for all heads and, if it is
    q_end, for all keys."""
    bound = jnp.asarray(given, jnp.int32)
    if bound.ndim > 1:
        if bound.shape[-2] != 1:
            raise NotImplementedError(f"figraph.jax.tokamax_attention: {name} is "
                                      f"{list(bound.shape)}, with bounds of each head")
        bound = bound[..., 0, :]
    if name == "mask.q_end" and bound.ndim > 0 and bound.shape[-1] != 1:
        raise NotImplementedError(f"figraph.jax.tokamax_attention: {name} is {list(given.shape)}, "
                                  "with bounds of each key")
    return jnp.broadcast_to(bound, shape)


def _known(name: str, value: Any) -> float:
    if not isinstance(value, numbers.Real):
        raise NotImplementedError(f"figraph.jax.tokamax_attention: {name} is {value}, it must be a "
                                  "number that is known while tracing")
    return float(value)


def _refuse_unserved(q: Array, k: Array) -> None:
    """Raises NotImplementedError if no kernel serves these heads."""
    form = Form(1, k.shape[-2], k.shape[-1], 0, max(k.shape[-3], 1), ACTIVATIONS[str(q.dtype)])
    try:
        scratch_bytes(q.dtype, q.shape[-2], form, 0)
    except (ValueError, NotImplementedError) as error:
        raise NotImplementedError(f"figraph.jax.tokamax_attention: {error}") from None


def tokamax_attention(q: Array, k: Array, v: Array, *, bias: Optional[Array] = None,
                      mask: Any = None, logits_scale: Any = None,
                      logits_soft_cap: Optional[float] = None, **others: Any) -> Array:
    """Attends as an implementation of tokamax:

        tokamax.dot_product_attention(query, key, value, is_causal=True,
                                      implementation=(figraph.jax.tokamax_attention, "xla"))

    tokamax calls it with its own mask. It takes is_causal, key_value_seq_lengths,
    query_seq_lengths, scale and logits_soft_cap, for any number of query tokens. It raises
    NotImplementedError, which names the argument, for a mask of any pattern, local_window_size,
    bias, dropout, quantised arrays, and values whose head_dim is not that of the keys; tokamax then
    tries the next implementation. A query token that sees no key returns zeros. The gradient is
    that of flash_attention.
    """
    for name, value in (("bias", bias), *others.items()):
        if value is None or name in ROUNDING or (name in DEFAULTS and value == DEFAULTS[name]):
            continue
        raise NotImplementedError(f"figraph.jax.tokamax_attention has no {name}")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not hasattr(x, "dtype") or str(x.dtype) not in ACTIVATIONS or not hasattr(x, "ndim"):
            kind = getattr(x, "dtype", type(x).__name__)
            raise NotImplementedError(f"figraph.jax.tokamax_attention: {name} is {kind}, it must "
                                      f"be {' or '.join(ACTIVATIONS)}")
    fits = q.ndim >= 3 and q.shape[:-3] == k.shape[:-3] and q.shape[-1] == k.shape[-1]
    if k.shape != v.shape or not fits:
        raise NotImplementedError(f"figraph.jax.tokamax_attention: q is {list(q.shape)}, k "
                                  f"{list(k.shape)} and v {list(v.shape)}")
    is_default = logits_scale is None or isinstance(logits_scale, type)  # tokamax's AUTO
    logits = Logits(scale=0.0 if is_default else _known("logits_scale", logits_scale),
                    soft_cap=0.0 if logits_soft_cap is None else
                    _known("logits_soft_cap", logits_soft_cap))
    _refuse_unserved(q, k)
    ends, rows = _ends(mask, q, k), math.prod(q.shape[:-3])
    is_whole = mask is not None and mask.is_causal and mask.k_end is None and mask.q_end is None

    def attend(q: Array, k: Array, v: Array, ends: Array) -> Array:
        three = [x.reshape(rows, *x.shape[-3:]) for x in (q, k, v)]
        if is_whole and q.shape[-3] <= k.shape[-3]:
            lengths = jnp.full(rows, q.shape[-3], jnp.int32)
            return _one_after_another(*three, lengths, logits).reshape(q.shape)
        return _each_alone(*three, ends, logits).reshape(q.shape)

    def plain(q: Array, k: Array, v: Array, ends: Array) -> Array:
        bound = ends.reshape(*q.shape[:-3], 1, q.shape[-3], 1)
        return _plain(q, k, v, jnp.arange(k.shape[-3]) < bound, logits)

    return _differentiable(attend, plain)(q, k, v, ends)
