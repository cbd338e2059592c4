"""operations.py: the operations of figraph.jax, each of which is one custom call.

What is wrong with types, shapes, heads and numbers is refused while JAX traces. Invariant: a row is
a sequence, and lengths count the token of this step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Optional

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from .. import ffi
from .targets import (ACTIVATIONS, LAYOUTS, Array, Cache, Form, Plan, alone, bytes_of, custom_call,
                      form_of, lengths_of, like, number_of, or_absent, real, shaped, typed, whole)


class Attended(NamedTuple):
    """What attention gives: out, the plan to go on with, and lse, to base 2, where it was asked
    for."""

    out: Array
    plan: Optional[Plan]
    lse: Optional[Array]


class Decoded(NamedTuple):
    """What decode_attention gives."""

    out: Array
    cache: Cache
    plan: Optional[Plan]
    lse: Optional[Array]


# ---- Activations and RoPE ------------------------------------------------------------------------


def _gated(target: str, x: Array) -> Array:
    x = typed("input", x, list(ACTIVATIONS))
    if x.ndim < 1 or x.shape[-1] % 2 != 0:
        raise ValueError(f"input is {list(x.shape)}, its last dim must be 2 * width")
    out = jax.ShapeDtypeStruct(x.shape[:-1] + (x.shape[-1] // 2,), x.dtype)

    @custom_vmap
    def call(x: Array) -> Array:
        return custom_call(target, [out], x)[0]

    @call.def_vmap
    def more_rows(axis_size: int, in_batched: Any, x: Array) -> Any:
        return _gated(target, x), True

    return call(x)


def silu_and_mul(input: Array) -> Array:
    """silu of the first half of the last dim, times the second half."""
    return _gated("silu_and_mul", input)


def gelu_and_mul(input: Array) -> Array:
    """The same with gelu."""
    return _gated("gelu_and_mul", input)


def gelu_tanh_and_mul(input: Array) -> Array:
    """The same with gelu's approximation by tanh."""
    return _gated("gelu_tanh_and_mul", input)


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

    def attributes(self, head_dim: int) -> dict[str, Any]:
        """As the targets take them, if they are sound."""
        made = dict(
            rotary_dim=whole("rope.rotary_dim", self.rotary_dim),
            interleaved=whole("rope.interleaved", self.interleaved),
            scale=real("rope.scale", self.scale),
            theta=real("rope.theta", self.theta),
            llama3_factor=real("rope.llama3_factor", self.llama3_factor),
            llama3_low=real("rope.llama3_low", self.llama3_low),
            llama3_high=real("rope.llama3_high", self.llama3_high),
            llama3_context=whole("rope.llama3_context", self.llama3_context),
        )
        ffi.check_rope(head_dim, **made)
        names = dict(interleaved="interleave", scale="rope_scale", theta="rope_theta")
        return {names.get(name, name): value for name, value in made.items()}


def apply_rope(q: Array, k: Array, positions: Array, rope: Rope = Rope()) -> tuple[Array, Array]:
    """q and k, [rows, heads, head_dim], turned by where each row stands: int32 or int64 [rows]."""
    q = typed("q", q, list(ACTIVATIONS))
    k = typed("k", k, [str(q.dtype)])
    shaped("q", q, None, None, None)
    shaped("k", k, q.shape[0], None, q.shape[2])
    positions = typed("positions", positions, ["int32", "int64"])
    shaped("positions", positions, q.shape[0])
    angles = rope.attributes(q.shape[2])

    @custom_vmap
    def call(q: Array, k: Array, positions: Array) -> Any:
        return tuple(custom_call("rope", like(q, k), q, k, positions, **angles))

    @call.def_vmap
    def more_rows(axis_size: int, in_batched: Any, *arrays: Array) -> Any:
        all_rows = [
            x if batched else jnp.broadcast_to(x, (axis_size, *x.shape))
            for x, batched in zip(arrays, in_batched)
        ]
        flat = [x.reshape(-1, *x.shape[2:]) for x in all_rows]
        turned = apply_rope(*flat, rope=rope)
        return tuple(x.reshape(to.shape) for x, to in zip(turned, all_rows)), (True, True)

    return call(q, k, positions)


# ---- The cache -----------------------------------------------------------------------------------


def _needs(dtype: Any, q_heads: int, form: Form, window: int,
           plan: Optional[Plan] = None) -> tuple[int, int]:
    """Bytes of a plan and of scratch. Refuses heads that no kernel serves, and a plan that was made
    for something else."""
    needs = ffi.scratch_of(ACTIVATIONS[str(dtype)], form.kv_dtype, q_heads, form.kv_heads,
                           form.head_dim, form.rows, form.kv_length, form.page_size, window)
    for name, bytes_needed in zip(Plan._fields, needs) if plan is not None else ():
        shaped("plan." + name, typed("plan." + name, getattr(plan, name), ["uint8"]), bytes_needed)
    return needs


def append_kv(k: Array, v: Array, cache: Cache, lengths: Array, *, plan: Optional[Plan] = None,
              layout: str = "nhd") -> Cache:
    """The cache with k and v, [rows, kv_heads, head_dim], where lengths - 1 says, in place."""
    k = typed("k", k, list(ACTIVATIONS))
    shaped("k", k, None, None, None)
    v = shaped("v", typed("v", v, [str(k.dtype)]), *k.shape)
    form = form_of(k.dtype, k.shape[0], cache, layout)
    shaped("k", k, form.rows, form.kv_heads, form.head_dim)
    lengths = lengths_of(lengths, form.rows)
    _, scratch = _needs(k.dtype, form.kv_heads, form, 0)

    def append(k: Array, v: Array, cache: Cache, lengths: Array, plan: Optional[Plan]) -> Any:
        rest = [or_absent(cache.page_table, 2), jnp.zeros(0, jnp.uint8)]
        if plan is not None:
            rest[1] = plan.plan
        rest += [or_absent(scale, 1) for scale in (cache.k_scale, cache.v_scale)]
        outs = like(cache.k, cache.v) + ([bytes_of(scratch)] if plan is None else [])
        got = custom_call("append_kv", outs, k, v, cache.k, cache.v, lengths, *rest,
                          aliases={2: 0, 3: 1}, kv_layout=LAYOUTS[layout])
        return tuple(got[:2])

    grown = alone("append_kv", append)(k, v, cache, lengths, plan)
    return cache._replace(k=grown[0], v=grown[1])


# ---- Attention -----------------------------------------------------------------------------------


def plan(lengths: Array, *, dtype: Any, q_heads: int, cache: Cache, window: int = 0,
         layout: str = "nhd") -> Plan:
    """The plan of a step for attention of q_heads heads of that dtype over such a cache; window:
    tokens that a row sees, its own counted; 0: all."""
    dtype = jnp.dtype(dtype)
    if str(dtype) not in ACTIVATIONS:
        raise TypeError(f"dtype is {dtype}, it must be {' or '.join(ACTIVATIONS)}")
    lengths = shaped("lengths", typed("lengths", lengths, ["int32"]), None)
    form = form_of(dtype, lengths.shape[0], cache, layout)
    q_heads, window = whole("q_heads", q_heads), whole("window", window)
    needs = _needs(dtype, q_heads, form, window)

    def make(lengths: Array) -> Any:
        return tuple(custom_call(
            "plan", [bytes_of(count) for count in needs], lengths,
            dtype=number_of(dtype), kv_dtype=number_of(cache.k.dtype), q_heads=q_heads,
            kv_heads=form.kv_heads, head_dim=form.head_dim, page_size=form.page_size,
            kv_length=form.kv_length, window_left=window - 1,
        ))

    return Plan(*alone("plan", make)(lengths))


class Logits(NamedTuple):
    """What is done to logits. window: tokens that a row sees, its own counted; 0: all."""

    scale: float = 0.0  # 0: head_dim ** -0.5
    soft_cap: float = 0.0
    window: int = 0

    def attributes(self, head_dim: int, layout: str) -> dict[str, Any]:
        """As the targets take them, if they are sound."""
        scale, soft_cap = real("logits.scale", self.scale), real("logits.soft_cap", self.soft_cap)
        window = whole("logits.window", self.window)
        for name, value in (("scale", scale), ("soft_cap", soft_cap), ("window", window)):
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"logits.{name} is {value}, it must be finite and at least 0")
        return dict(
            kv_layout=LAYOUTS[layout],
            window_left=window - 1,
            logits_soft_cap=soft_cap,
            sm_scale=scale or head_dim**-0.5,
        )


def _options(cache: Cache, given: Optional[Plan], alibi: Optional[Array],
             sinks: Optional[Array]) -> list[Array]:
    """Arguments from the page table on."""
    none = jnp.zeros(0, jnp.uint8)
    lent = [none, none] if given is None else [given.plan, given.scratch]
    rest = [or_absent(x, 1) for x in (alibi, sinks, cache.k_scale, cache.v_scale)]
    return [or_absent(cache.page_table, 2), *lent, *rest]


def _per_head(name: str, array: Optional[Array], q: Array) -> None:
    if array is not None:
        shaped(name, typed(name, array, ["float32"]), q.shape[1])


class _Asked(NamedTuple):
    """What attention was asked for, when all of it is sound."""

    q: Array
    form: Form
    lengths: Array
    attributes: dict[str, Any]
    scratch: jax.ShapeDtypeStruct
    lse: jax.ShapeDtypeStruct


def _ask(q: Array, cache: Cache, lengths: Array, plan: Optional[Plan], logits: Logits,
         alibi: Optional[Array], sinks: Optional[Array], layout: str, with_lse: bool) -> _Asked:
    q = shaped("q", typed("q", q, list(ACTIVATIONS)), None, None, None)
    form = form_of(q.dtype, q.shape[0], cache, layout)
    shaped("q", q, form.rows, None, form.head_dim)
    lengths = lengths_of(lengths, form.rows)
    _per_head("alibi", alibi, q)
    _per_head("sinks", sinks, q)
    attributes = logits.attributes(form.head_dim, layout)
    _, scratch = _needs(q.dtype, q.shape[1], form, attributes["window_left"] + 1, plan)
    lse = jax.ShapeDtypeStruct(q.shape[:2] if with_lse else (0, 0), jnp.float32)
    return _Asked(q, form, lengths, attributes, bytes_of(scratch), lse)


def attention(q: Array, cache: Cache, lengths: Array, *, plan: Optional[Plan] = None,
              logits: Logits = Logits(), alibi: Optional[Array] = None,
              sinks: Optional[Array] = None, layout: str = "nhd",
              with_lse: bool = False) -> Attended:
    """Attention of q, [rows, heads, head_dim], over the first tokens of the cache, as lengths say;
    alibi and sinks: float32 [heads]."""
    asked = _ask(q, cache, lengths, plan, logits, alibi, sinks, layout, with_lse)

    def attend(q: Array, cache: Cache, lengths: Array, plan: Optional[Plan], *rest: Any) -> Any:
        return tuple(custom_call(
            "attention", [*like(q), asked.scratch, asked.lse], q, cache.k, cache.v, lengths,
            *_options(cache, plan, *rest), aliases=None if plan is None else {6: 1},
            **asked.attributes,
        ))

    mapped = alone("attention", attend)
    out, lent, lse = mapped(asked.q, cache, asked.lengths, plan, alibi, sinks)
    next_plan = None if plan is None else plan._replace(scratch=lent)
    return Attended(out, next_plan, lse if with_lse else None)


def decode_attention(q: Array, k: Array, v: Array, cache: Cache, lengths: Array, *,
                     plan: Optional[Plan] = None, rope: Rope = Rope(), logits: Logits = Logits(),
                     alibi: Optional[Array] = None, sinks: Optional[Array] = None,
                     layout: str = "nhd", with_lse: bool = False) -> Decoded:
    """apply_rope at lengths - 1, append_kv and attention, in one call."""
    asked = _ask(q, cache, lengths, plan, logits, alibi, sinks, layout, with_lse)
    form, angles = asked.form, rope.attributes(asked.form.head_dim)
    for name, array in (("k", k), ("v", v)):
        shaped(name, typed(name, array, [str(asked.q.dtype)]), form.rows, form.kv_heads,
               form.head_dim)

    def decode(q: Array, k: Array, v: Array, cache: Cache, lengths: Array, plan: Optional[Plan],
               *rest: Any) -> Any:
        aliases = {0: 1, 1: 2, 3: 3, 4: 4, **({} if plan is None else {8: 5})}
        # Else XLA hands over the array that q or k is a slice of, and its result elsewhere.
        q, k = jax.lax.optimization_barrier((q, k))
        got = custom_call(
            "decode_attention", [*like(q, q, k, cache.k, cache.v), asked.scratch, asked.lse],
            q, k, v, cache.k, cache.v, lengths, *_options(cache, plan, *rest), aliases=aliases,
            **angles, **asked.attributes,
        )
        return got[0], *got[3:]

    mapped = alone("decode_attention", decode)
    out, k_cache, v_cache, lent, lse = mapped(asked.q, k, v, cache, asked.lengths, plan, alibi,
                                              sinks)
    next_plan = None if plan is None else plan._replace(scratch=lent)
    grown = cache._replace(k=k_cache, v=v_cache)
    return Decoded(out, grown, next_plan, lse if with_lse else None)
