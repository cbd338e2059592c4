"""operands.py: what the operations of figraph.torch take, and the sentences that refuse what they
do not.

Of an array nothing is asked but its shape and its dtype's name, so these hold for arrays of any
library, and for those that have nothing else. Invariant: no number of an array is looked at.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple, Optional, Sequence

from . import ffi

ACTIVATIONS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
NARROW = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
CACHES = {**ACTIVATIONS, **NARROW}
LAYOUTS = {"nhd": 0, "hnd": 1}

Array = Any


class Cache(NamedTuple):
    """Keys and values of all rows, and what belongs to them."""

    k: Array
    v: Array
    page_table: Optional[Array] = None
    k_scale: Optional[Array] = None  # of 8-bit numbers: float32 [1] or [kv_heads]
    v_scale: Optional[Array] = None


class Plan(NamedTuple):
    """How the rows of a step are cut, and memory that its layers use by turns."""

    plan: Array
    scratch: Array


class Rope(NamedTuple):
    """How heads turn. rotary_dim 0: all of a head; llama3_factor 0: none of llama 3's scaling."""

    rotary_dim: int = 0
    interleaved: bool = False
    scale: float = 1.0
    theta: float = 1e4
    llama3_factor: float = 0.0
    llama3_low: float = 0.0
    llama3_high: float = 0.0
    llama3_context: int = 0


class Logits(NamedTuple):
    """What is done to logits. window: tokens that a row sees, its own counted; 0: all."""

    scale: float = 0.0  # 0: head_dim ** -0.5
    soft_cap: float = 0.0
    window: int = 0


class Form(NamedTuple):
    """What a cache and its rows are."""

    rows: int
    kv_heads: int
    head_dim: int
    page_size: int  # 0: dense
    kv_length: int  # tokens that a row can have
    kv_dtype: str


def dtype_name(dtype: Any) -> str:
    """As numpy calls it."""
    return str(dtype).removeprefix("torch.")


def typed(name: str, array: Array, known: Sequence[str]) -> str:
    """The name of its dtype, which is one of the known."""
    own = dtype_name(array.dtype)
    if own not in known:
        raise TypeError(f"{name} is {own}, it must be {' or '.join(known)}")
    return own


def shaped(name: str, array: Array, *shape: Optional[int]) -> None:
    """Refuses another shape; None in one is any number."""
    fits = array.ndim == len(shape) and all(
        n is None or n == own for n, own in zip(shape, array.shape)
    )
    if not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name} is {list(array.shape)}, it must be [{wanted}]")


def layout_code(layout: str) -> int:
    """As the library has it."""
    if layout not in LAYOUTS:
        raise ValueError(f'layout is "{layout}", it must be {" or ".join(LAYOUTS)}')
    return LAYOUTS[layout]


def gated(x: Array) -> list[int]:
    """The shape of what an activation gives."""
    typed("input", x, list(ACTIVATIONS))
    if x.ndim < 1 or x.shape[-1] % 2 != 0:
        raise ValueError(f"input is {list(x.shape)}, its last dim must be 2 * width")
    return [*x.shape[:-1], x.shape[-1] // 2]


def normed(x: Array, residual: Optional[Array], weight: Array) -> None:
    """What rms_norm takes."""
    dtype = typed("input", x, list(ACTIVATIONS))
    if x.ndim < 1:
        raise ValueError("input is [], its last dim is what is normalised")
    typed("weight", weight, [dtype])
    shaped("weight", weight, x.shape[-1])
    if residual is not None:
        typed("residual", residual, [dtype])
        shaped("residual", residual, *x.shape)


def heads(name: str, array: Array) -> str:
    """The dtype of rows of heads."""
    shaped(name, array, None, None, None)
    return typed(name, array, list(ACTIVATIONS))


def turned(q: Array, k: Array, positions: Array) -> None:
    """What apply_rope takes."""
    typed("k", k, [heads("q", q)])
    shaped("k", k, q.shape[0], None, q.shape[2])
    typed("positions", positions, ["int32", "int64"])
    shaped("positions", positions, q.shape[0])


def _scales(cache: Cache, kv_heads: int) -> None:
    """One for all heads or one for each, and as many of k as of v."""
    if (cache.k_scale is None) != (cache.v_scale is None):
        raise ValueError("cache.k_scale and cache.v_scale: one is given, the other is not")
    if cache.k_scale is None or cache.v_scale is None:
        return
    typed("cache.k_scale", cache.k_scale, ["float32"])
    if tuple(cache.k_scale.shape) != (1,):
        shaped("cache.k_scale", cache.k_scale, kv_heads)
    typed("cache.v_scale", cache.v_scale, ["float32"])
    shaped("cache.v_scale", cache.v_scale, *cache.k_scale.shape)


def form_of(dtype: str, rows: int, cache: Cache, layout: int) -> Form:
    """Of a cache for so many rows of that dtype."""
    shaped("cache.k", cache.k, None, None, None, None)
    kv_dtype = typed("cache.k", cache.k, [dtype, *NARROW])
    shaped("cache.v", cache.v, *cache.k.shape)
    typed("cache.v", cache.v, [kv_dtype])
    _, tokens, kv_heads, dim = cache.k.shape
    if layout == LAYOUTS["hnd"]:
        tokens, kv_heads = kv_heads, tokens
    _scales(cache, kv_heads)
    if cache.page_table is None:
        shaped("cache.k", cache.k, rows, *cache.k.shape[1:])
        return Form(rows, kv_heads, dim, 0, tokens, CACHES[kv_dtype])
    typed("cache.page_table", cache.page_table, ["int32"])
    shaped("cache.page_table", cache.page_table, rows, None)
    kv_length = cache.page_table.shape[1] * tokens
    return Form(rows, kv_heads, dim, tokens, kv_length, CACHES[kv_dtype])


@functools.lru_cache(maxsize=256)
def sound_rope(head_dim: int, *angles: Any) -> None:
    """Refuses what no head of that size can do; angles: a Rope's."""
    ffi.check_rope(head_dim, **Rope(*angles)._asdict())


def sound_logits(logits: Logits) -> None:
    """Refuses numbers that mean nothing."""
    for name, value in logits._asdict().items():
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"logits.{name} is {value}, it must be finite and at least 0")


def lengths_of(lengths: Array, rows: int) -> None:
    """One of each row."""
    typed("lengths", lengths, ["int32"])
    shaped("lengths", lengths, rows)


def tokens(name: str, array: Array, dtype: str, form: Form) -> None:
    """Keys or values of one token of each row."""
    typed(name, array, [dtype])
    shaped(name, array, form.rows, form.kv_heads, form.head_dim)


def appended(k: Array, v: Array, cache: Cache, lengths: Array, layout: int) -> Form:
    """What append_kv takes."""
    dtype = heads("k", k)
    form = form_of(dtype, k.shape[0], cache, layout)
    tokens("k", k, dtype, form)
    tokens("v", v, dtype, form)
    lengths_of(lengths, form.rows)
    return form


def attended(q: Array, cache: Cache, lengths: Array, layout: int, alibi: Optional[Array],
             sinks: Optional[Array]) -> Form:
    """What attention takes."""
    form = form_of(heads("q", q), q.shape[0], cache, layout)
    shaped("q", q, form.rows, None, form.head_dim)
    lengths_of(lengths, form.rows)
    for name, per_head in (("alibi", alibi), ("sinks", sinks)):
        if per_head is not None:
            typed(name, per_head, ["float32"])
            shaped(name, per_head, q.shape[1])
    return form


def planned(plan: Plan, needs: tuple[int, int]) -> None:
    """A plan for such attention, by its size."""
    for name, array, count in zip(("plan.plan", "plan.scratch"), plan, needs):
        typed(name, array, ["uint8"])
        shaped(name, array, count)


def scratch_bytes(dtype: Any, q_heads: Any, form: Form, window: int) -> tuple[int, int]:
    """Of a plan and of scratch; refuses heads that no kernel serves. Numbers may be symbols that
    have a value."""
    return ffi.scratch_of(ACTIVATIONS[dtype_name(dtype)], form.kv_dtype, int(q_heads),
                          int(form.kv_heads), int(form.head_dim), int(form.rows),
                          int(form.kv_length), int(form.page_size), int(window))
