"""operators.py: torch's custom operators of the namespace figraph, for the CPU and CUDA.

Each has a schema that says what it writes, a run, and a fake kernel that makes its results of
shapes alone. Invariant: an operator that returns a tensor has made it, and it lies on nothing that
was given.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import torch
from torch import Tensor

from .. import operands
from ..operands import ACTIVATIONS, CACHES, Cache, Form, Logits, Plan, dtype_name
from ..specs import DTYPES
from .calls import call

ANGLES = ("int rotary_dim, bool interleaved, float scale, float theta, float llama3_factor, "
          "float llama3_low, float llama3_high, int llama3_context")
CACHE = ("Tensor{} k_cache, Tensor{} v_cache, Tensor lengths, Tensor? page_table, "
         "Tensor? k_scale, Tensor? v_scale, int layout")
READ, GROWN = CACHE.format("", ""), CACHE.format("(c!)", "(d!)")
ATTENTION = ("Tensor? plan, Tensor(e!)? scratch, Tensor? alibi, Tensor? sinks, int window, "
             "float soft_cap, float sm_scale, bool with_lse")

library = torch.library.Library("figraph", "DEF")


def _define(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    name = schema.partition("(")[0]
    library.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    for device in ("CPU", "CUDA"):
        library.impl(name, run, device)
    torch.library.register_fake(f"figraph::{name}", fake, lib=library)


def _bytes(count: int, beside: Tensor) -> Tensor:
    return beside.new_empty(count, dtype=torch.uint8)


# ---- Row by row, and RoPE ------------------------------------------------------------------------


def _rows(x: Tensor) -> Tensor:
    return x.flatten(0, -2) if x.ndim > 1 else x[None]


def _gated(name: str) -> None:
    def fake(x: Tensor) -> Tensor:
        return x.new_empty(operands.gated(x))

    def run(x: Tensor) -> Tensor:
        out = fake(x)
        call(name, _rows(out), _rows(x.contiguous()), False)
        return out

    _define(f"{name}(Tensor input) -> Tensor", run, fake)


for _name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
    _gated(_name)


def _norm_fake(x: Tensor, residual: Optional[Tensor], weight: Tensor, *rest: float) -> Tensor:
    operands.normed(x, residual, weight)
    if residual is not None and not residual.is_contiguous():
        raise ValueError("residual has gaps or another order of dims, it must be row-major")
    return x.new_empty(x.shape)


def _norm(x: Tensor, residual: Optional[Tensor], weight: Tensor, *rest: float) -> Tensor:
    out = _norm_fake(x, residual, weight)
    sums = None if residual is None else _rows(residual)
    call("rms_norm", _rows(x.contiguous()), sums, weight.contiguous(), _rows(out), *rest)
    return out


_define("rms_norm(Tensor input, Tensor(a!)? residual, Tensor weight, float epsilon, "
        "float weight_offset) -> Tensor", _norm, _norm_fake)


def _rope_fake(q: Tensor, k: Tensor, positions: Tensor, *angles: Any) -> tuple[Tensor, Tensor]:
    operands.turned(q, k, positions)
    operands.sound_rope(int(q.shape[2]), *angles)
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _rope(q: Tensor, k: Tensor, positions: Tensor, *angles: Any) -> tuple[Tensor, Tensor]:
    outs = _rope_fake(q, k, positions, *angles)
    call("rope", q, k, positions, *outs, *angles)
    return outs


_define(f"apply_rope(Tensor q, Tensor k, Tensor positions, {ANGLES}) -> (Tensor, Tensor)", _rope,
        _rope_fake)

# ---- The cache -----------------------------------------------------------------------------------


class Held(NamedTuple):
    """CACHE, as operators get it."""

    k: Tensor
    v: Tensor
    lengths: Tensor
    page_table: Optional[Tensor]
    k_scale: Optional[Tensor]
    v_scale: Optional[Tensor]
    layout: int

    def cache(self) -> Cache:
        """As callers have it."""
        return Cache(self.k, self.v, self.page_table, self.k_scale, self.v_scale)


def _append_fake(k: Tensor, v: Tensor, *rest: Any) -> None:
    held = Held(*rest[:-1])
    operands.appended(k, v, held.cache(), held.lengths, held.layout)


def _append(k: Tensor, v: Tensor, *rest: Any) -> None:
    held, plan = Held(*rest[:-1]), rest[-1]
    form = operands.appended(k, v, held.cache(), held.lengths, held.layout)
    scratch = None
    if plan is None:
        scratch = _bytes(operands.scratch_bytes(k.dtype, form.kv_heads, form, 0)[1], k)
    call("append_kv", k, v, held.k, held.v, held.lengths, held.page_table, plan, held.k_scale,
         held.v_scale, scratch, held.layout)


_define(f"append_kv(Tensor k, Tensor v, {GROWN}, Tensor? plan) -> ()", _append, _append_fake)


def _plan_fake(lengths: Tensor, dtype: torch.dtype, q_heads: int, kv_heads: int, head_dim: int,
               page_size: int, kv_length: int, kv_dtype: torch.dtype,
               window: int) -> tuple[Tensor, Tensor]:
    kind = CACHES[dtype_name(kv_dtype)]
    form = Form(lengths.shape[0], kv_heads, head_dim, page_size, kv_length, kind)
    operands.lengths_of(lengths, form.rows)
    needs = operands.scratch_bytes(dtype, q_heads, form, window)
    return _bytes(needs[0], lengths), _bytes(needs[1], lengths)


def _plan(lengths: Tensor, dtype: torch.dtype, *rest: Any) -> tuple[Tensor, Tensor]:
    *numbers, kv_dtype, window = rest
    outs = _plan_fake(lengths, dtype, *rest)
    call("plan", lengths, *outs, DTYPES[ACTIVATIONS[dtype_name(dtype)]],
         DTYPES[CACHES[dtype_name(kv_dtype)]], *numbers, window - 1)
    return outs


_define("plan(Tensor lengths, ScalarType dtype, int q_heads, int kv_heads, int head_dim, "
        "int page_size, int kv_length, ScalarType kv_dtype, int window) -> (Tensor, Tensor)",
        _plan, _plan_fake)

# ---- Attention -----------------------------------------------------------------------------------


class Asked(NamedTuple):
    """ATTENTION, as operators get it."""

    plan: Optional[Tensor]
    scratch: Optional[Tensor]
    alibi: Optional[Tensor]
    sinks: Optional[Tensor]
    window: int
    soft_cap: float
    sm_scale: float
    with_lse: bool


def _attended(q: Tensor, held: Held, asked: Asked) -> tuple[Form, int]:
    """Of the cache, and bytes of scratch."""
    form = operands.attended(q, held.cache(), held.lengths, held.layout, asked.alibi, asked.sinks)
    operands.sound_logits(Logits(asked.sm_scale, asked.soft_cap, asked.window))
    needs = operands.scratch_bytes(q.dtype, q.shape[1], form, asked.window)
    if (asked.plan is None) != (asked.scratch is None):
        raise ValueError("plan and scratch: one is given, the other is not")
    if asked.plan is not None and asked.scratch is not None:
        operands.planned(Plan(asked.plan, asked.scratch), needs)
    return form, needs[1]


def _outs(q: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    """out and lse, which is empty where nobody asked for it."""
    sums = q.shape[:2] if asked.with_lse else (0, 0)
    return q.new_empty(q.shape), q.new_empty(sums, dtype=torch.float32)


def _run(function: str, given: tuple[Tensor, ...], held: Held, asked: Asked, scratch_bytes: int,
         angles: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """Of attention or decode_attention; given: q, and what comes before the cache."""
    outs = _outs(given[0], asked)
    scratch = _bytes(scratch_bytes, given[0]) if asked.scratch is None else asked.scratch
    call(function, *given, held.k, held.v, held.lengths, held.page_table, asked.plan, asked.alibi,
         asked.sinks, held.k_scale, held.v_scale, outs[0], scratch, outs[1], *angles, held.layout,
         asked.window - 1, asked.soft_cap, asked.sm_scale)
    return outs


def _attention_fake(q: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    held, asked = Held(*rest[:7]), Asked(*rest[7:])
    _attended(q, held, asked)
    return _outs(q, asked)


def _attention(q: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    held, asked = Held(*rest[:7]), Asked(*rest[7:])
    return _run("attention", (q,), held, asked, _attended(q, held, asked)[1], ())


_define(f"attention(Tensor q, {READ}, {ATTENTION}) -> (Tensor, Tensor)", _attention,
        _attention_fake)


def _decoded(q: Tensor, k: Tensor, v: Tensor, held: Held, asked: Asked, *angles: Any) -> int:
    form, scratch_bytes = _attended(q, held, asked)
    for name, one in (("k", k), ("v", v)):
        operands.tokens(name, one, dtype_name(q.dtype), form)
    operands.sound_rope(int(q.shape[2]), *angles)
    return scratch_bytes


def _decode_fake(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    held, asked = Held(*rest[:7]), Asked(*rest[7:15])
    _decoded(q, k, v, held, asked, *rest[15:])
    return _outs(q, asked)


def _decode(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    held, asked = Held(*rest[:7]), Asked(*rest[7:15])
    scratch_bytes = _decoded(q, k, v, held, asked, *rest[15:])
    return _run("decode_attention", (q, k, v), held, asked, scratch_bytes, rest[15:])


_define(f"decode_attention(Tensor(a!) q, Tensor(b!) k, Tensor v, {GROWN}, {ATTENTION}, {ANGLES}) "
        "-> (Tensor, Tensor)", _decode, _decode_fake)
