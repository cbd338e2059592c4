"""operands.py: what operations take, and the sentences that refuse what they do not.

The same checks stand before a run and in the kernels that know shapes alone, so torch.compile
refuses what an eager call does, in the same words. Invariant: no number of a tensor is looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from .. import ffi

ACTIVATIONS = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
NARROW = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
CACHES = {**ACTIVATIONS, **NARROW}
LAYOUTS = {"nhd": 0, "hnd": 1}


class Cache(NamedTuple):
    """Keys and values of all rows, and what belongs to them."""

    k: Tensor
    v: Tensor
    page_table: Optional[Tensor] = None
    k_scale: Optional[Tensor] = None  # of 8-bit numbers: float32 [1] or [kv_heads]
    v_scale: Optional[Tensor] = None


class Plan(NamedTuple):
    """How the rows of a step are cut, and memory that its layers use by turns."""

    plan: Tensor
    scratch: Tensor


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
    kv_dtype: torch.dtype


def typed(name: str, tensor: Tensor, known: Sequence[torch.dtype]) -> None:
    """Refuses another dtype."""
    if tensor.dtype not in known:
        words = " or ".join(str(dtype).removeprefix("torch.") for dtype in known)
        own = str(tensor.dtype).removeprefix("torch.")
        raise TypeError(f"{name} is {own}, it must be {words}")


def shaped(name: str, tensor: Tensor, *shape: Optional[int]) -> None:
    """Refuses another shape; None in one is any number."""
    fits = tensor.ndim == len(shape) and all(
        n is None or n == own for n, own in zip(shape, tensor.shape)
    )
    if not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name} is {list(tensor.shape)}, it must be [{wanted}]")


def layout_code(layout: str) -> int:
    """As the library has it."""
    if layout not in LAYOUTS:
        raise ValueError(f'layout is "{layout}", it must be {" or ".join(LAYOUTS)}')
    return LAYOUTS[layout]


def gated(x: Tensor) -> list[int]:
    """The shape of what an activation gives."""
    typed("input", x, list(ACTIVATIONS))
    if x.ndim < 1 or x.shape[-1] % 2 != 0:
        raise ValueError(f"input is {list(x.shape)}, its last dim must be 2 * width")
    return [*x.shape[:-1], x.shape[-1] // 2]


def normed(x: Tensor, residual: Optional[Tensor], weight: Tensor) -> None:
    """What rms_norm takes."""
    typed("input", x, list(ACTIVATIONS))
    if x.ndim < 1:
        raise ValueError("input is [], its last dim is what is normalised")
    typed("weight", weight, [x.dtype])
    shaped("weight", weight, x.shape[-1])
    if residual is not None:
        typed("residual", residual, [x.dtype])
        shaped("residual", residual, *x.shape)
        if not residual.is_contiguous():
            raise ValueError("residual has gaps or another order of dims, it must be row-major")


def heads(q: Tensor) -> None:
    """Rows of heads."""
    typed("q", q, list(ACTIVATIONS))
    shaped("q", q, None, None, None)


def turned(q: Tensor, k: Tensor, positions: Tensor) -> None:
    """What apply_rope takes."""
    heads(q)
    typed("k", k, [q.dtype])
    shaped("k", k, q.shape[0], None, q.shape[2])
    typed("positions", positions, [torch.int32, torch.int64])
    shaped("positions", positions, q.shape[0])


def _scales(cache: Cache, kv_heads: int) -> None:
    """One for all heads or one for each, and as many of k as of v."""
    if (cache.k_scale is None) != (cache.v_scale is None):
        raise ValueError("cache.k_scale and cache.v_scale: one is given, the other is not")
    if cache.k_scale is None or cache.v_scale is None:
        return
    typed("cache.k_scale", cache.k_scale, [torch.float32])
    if tuple(cache.k_scale.shape) != (1,):
        shaped("cache.k_scale", cache.k_scale, kv_heads)
    typed("cache.v_scale", cache.v_scale, [torch.float32])
    shaped("cache.v_scale", cache.v_scale, *cache.k_scale.shape)


def form_of(dtype: torch.dtype, rows: int, cache: Cache, layout: int) -> Form:
    """Of a cache for so many rows of that dtype."""
    for name, tensor in (("cache.k", cache.k), ("cache.v", cache.v)):
        typed(name, tensor, [dtype, *NARROW])
        shaped(name, tensor, None, None, None, None)
    typed("cache.v", cache.v, [cache.k.dtype])
    shaped("cache.v", cache.v, *cache.k.shape)
    first, tokens, kv_heads, dim = cache.k.shape
    if layout == LAYOUTS["hnd"]:
        tokens, kv_heads = kv_heads, tokens
    _scales(cache, kv_heads)
    if cache.page_table is None:
        shaped("cache.k", cache.k, rows, *cache.k.shape[1:])
        return Form(rows, kv_heads, dim, 0, tokens, cache.k.dtype)
    typed("cache.page_table", cache.page_table, [torch.int32])
    shaped("cache.page_table", cache.page_table, rows, None)
    return Form(rows, kv_heads, dim, tokens, cache.page_table.shape[1] * tokens, cache.k.dtype)


def lengths_of(lengths: Tensor, rows: int) -> None:
    """One of each row."""
    typed("lengths", lengths, [torch.int32])
    shaped("lengths", lengths, rows)


def tokens(name: str, tensor: Tensor, dtype: torch.dtype, form: Form) -> None:
    """Keys or values of one token of each row."""
    typed(name, tensor, [dtype])
    shaped(name, tensor, form.rows, form.kv_heads, form.head_dim)


def appended(k: Tensor, v: Tensor, cache: Cache, lengths: Tensor, layout: int) -> Form:
    """What append_kv takes."""
    typed("k", k, list(ACTIVATIONS))
    shaped("k", k, None, None, None)
    form = form_of(k.dtype, k.shape[0], cache, layout)
    tokens("k", k, k.dtype, form)
    tokens("v", v, k.dtype, form)
    lengths_of(lengths, form.rows)
    return form


def attended(q: Tensor, cache: Cache, lengths: Tensor, layout: int, alibi: Optional[Tensor],
             sinks: Optional[Tensor]) -> Form:
    """What attention takes."""
    heads(q)
    form = form_of(q.dtype, q.shape[0], cache, layout)
    shaped("q", q, form.rows, None, form.head_dim)
    lengths_of(lengths, form.rows)
    for name, per_head in (("alibi", alibi), ("sinks", sinks)):
        if per_head is not None:
            typed(name, per_head, [torch.float32])
            shaped(name, per_head, q.shape[1])
    return form


def scratch_bytes(dtype: torch.dtype, q_heads: Any, form: Form, window: int) -> tuple[int, int]:
    """Of a plan and of scratch; refuses heads that no kernel serves."""
    return ffi.scratch_of(ACTIVATIONS[dtype], CACHES[form.kv_dtype], int(q_heads),
                          *(int(number) for number in form[1:3]), int(form.rows),
                          int(form.kv_length), int(form.page_size), int(window))
