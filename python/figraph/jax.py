"""jax.py: the operations of a decode step inside jax.jit, on the CPU and on GPUs.

    import figraph.jax as fj

    @functools.partial(jax.jit, donate_argnums=0)
    def layer(cache, gate_up, q, k, v, lengths, plan):
        act = fj.silu_and_mul(gate_up)
        out, cache, plan = fj.decode_attention(q, k, v, cache, lengths, plan=plan)
        return act, out, cache, plan

Each is one custom call. A row is a sequence; lengths are int32 and lie on the device, the token of
this step counted, so one compiled function serves all of them: a row whose length is 0, or more
than its cache holds, is idle, and its out is zeros. Types, shapes and heads for which there is no
kernel are refused while JAX traces, in words.

A cache is Cache(k, v), each [rows, tokens, kv_heads, head_dim], or, with a page_table [rows, pages
of a row] int32, [pages, tokens of a page, kv_heads, head_dim]; under layout="hnd" tokens and heads
change places. It grows in place where it is donated; XLA copies all of it where it is not. It is no
slice of a larger array: on GPUs some versions of XLA (jaxlib 0.11.2, of those that were tried) then
hand over the larger one and a result elsewhere, which is refused, unless
--xla_gpu_enable_dynamic_slice_fusion=false is in XLA_FLAGS.

How rows are cut for the GPU is a plan. It is made once a step, by plan(), and read by all layers
that have the same rows, heads and windows: each takes it and gives it on. Without one, each makes
its own.

Importing registers the custom calls for both platforms. XLA loads a kernel when it first meets it,
be it while it captures a command buffer. jax.export takes functions of these where its
disabled_checks name their targets, as custom_calls() lists them.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, NamedTuple, Optional, Sequence

import jax
import jax.ffi
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from . import ffi

ACTIVATIONS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
CACHES = {**ACTIVATIONS, "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
LAYOUTS = {"nhd": 0, "hnd": 1}
# What stands for an argument that is left out, where others come behind it.
ABSENT = {1: jnp.float32, 2: jnp.int32}

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


# ---- Registration --------------------------------------------------------------------------------


def _register() -> None:
    for name, host, cuda in ffi.targets():
        for platform, handler in (("cpu", host), ("CUDA", cuda)):
            capsule = jax.ffi.pycapsule(ctypes.c_void_p(handler))
            jax.ffi.register_ffi_target(name, capsule, platform=platform)


_register()


def custom_calls() -> list[str]:
    """The names of all targets, for jax.export.DisabledSafetyCheck.custom_call."""
    return [name for name, _, _ in ffi.targets()]


# ---- Checks, while JAX traces --------------------------------------------------------------------


def _typed(name: str, array: Array, known: Sequence[str]) -> Array:
    array = jnp.asarray(array)
    if str(array.dtype) not in known:
        raise TypeError(f"{name} is {array.dtype}, it must be {' or '.join(known)}")
    return array


def _shaped(name: str, array: Array, *shape: Optional[int]) -> Array:
    """None in a shape is any number."""
    wanted = ", ".join("any" if n is None else str(n) for n in shape)
    fits = array.ndim == len(shape) and all(
        n is None or n == own for n, own in zip(shape, array.shape)
    )
    if not fits:
        raise ValueError(f"{name} is {list(array.shape)}, it must be [{wanted}]")
    return array


def _like(*arrays: Array) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]


def _bytes(count: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((count,), jnp.uint8)


def _or_absent(array: Optional[Array], rank: int) -> Array:
    return jnp.zeros((0,) * rank, ABSENT[rank]) if array is None else array


def _call(target: str, outs: Sequence[Any], *arrays: Array, aliases: Any = None,
          **attributes: Any) -> list[Array]:
    options = {"input_output_aliases": aliases} if aliases else {}
    call = jax.ffi.ffi_call("figraph." + target, tuple(outs), **options)
    return list(call(*arrays, **attributes))


def _alone(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that refuses to be mapped."""
    wrapped = custom_vmap(function)

    @wrapped.def_vmap
    def refuse(axis_size: int, in_batched: Any, *arrays: Array) -> Any:
        raise NotImplementedError(
            f"figraph.jax.{what} under vmap: rows are its batch, give it {axis_size} times as many"
        )

    return wrapped


# ---- Activations and RoPE ------------------------------------------------------------------------


def _gated(target: str, x: Array) -> Array:
    x = _typed("input", x, list(ACTIVATIONS))
    if x.ndim < 1 or x.shape[-1] % 2 != 0:
        raise ValueError(f"input is {list(x.shape)}, its last dim must be 2 * width")
    out = jax.ShapeDtypeStruct(x.shape[:-1] + (x.shape[-1] // 2,), x.dtype)

    @custom_vmap
    def call(x: Array) -> Array:
        return _call(target, [out], x)[0]

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
        """As the targets take them. 7 and 7.0 are one key of JAX's caches, so types are made sure
        of."""
        return dict(
            rotary_dim=int(self.rotary_dim or head_dim),
            interleave=int(self.interleaved),
            rope_scale=float(self.scale),
            rope_theta=float(self.theta),
            llama3_factor=float(self.llama3_factor),
            llama3_low=float(self.llama3_low),
            llama3_high=float(self.llama3_high),
            llama3_context=int(self.llama3_context),
        )


def apply_rope(q: Array, k: Array, positions: Array, rope: Rope = Rope()) -> tuple[Array, Array]:
    """q and k, [rows, heads, head_dim], turned by where each row stands: int32 or int64 [rows]."""
    q = _typed("q", q, list(ACTIVATIONS))
    k = _typed("k", k, [str(q.dtype)])
    _shaped("q", q, None, None, None)
    _shaped("k", k, q.shape[0], None, q.shape[2])
    positions = _typed("positions", positions, ["int32", "int64"])
    _shaped("positions", positions, q.shape[0])

    @custom_vmap
    def call(q: Array, k: Array, positions: Array) -> Any:
        return tuple(_call("rope", _like(q, k), q, k, positions, **rope.attributes(q.shape[2])))

    @call.def_vmap
    def more_rows(axis_size: int, in_batched: Any, *arrays: Array) -> Any:
        whole = [
            x if batched else jnp.broadcast_to(x, (axis_size, *x.shape))
            for x, batched in zip(arrays, in_batched)
        ]
        flat = [x.reshape(-1, *x.shape[2:]) for x in whole]
        turned = apply_rope(*flat, rope=rope)
        return tuple(x.reshape(to.shape) for x, to in zip(turned, whole)), (True, True)

    return call(q, k, positions)


# ---- The cache -----------------------------------------------------------------------------------


class _Form(NamedTuple):
    """What a cache and its rows are."""

    rows: int
    kv_heads: int
    head_dim: int
    page_size: int  # 0: dense
    kv_length: int  # tokens that a row can have
    kv_dtype: str


def _check_scales(cache: Cache, kv_heads: int) -> None:
    """One for all heads or one for each, and as many of k as of v."""
    if (cache.k_scale is None) != (cache.v_scale is None):
        raise ValueError("cache.k_scale and cache.v_scale: one is given, the other is not")
    if cache.k_scale is None or cache.v_scale is None:
        return
    k_scale = _typed("cache.k_scale", cache.k_scale, ["float32"])
    if k_scale.shape != (1,):
        _shaped("cache.k_scale", k_scale, kv_heads)
    _shaped("cache.v_scale", _typed("cache.v_scale", cache.v_scale, ["float32"]), *k_scale.shape)


def _form_of(dtype: Any, rows: int, cache: Cache, layout: str) -> _Form:
    if layout not in LAYOUTS:
        raise ValueError(f'layout is "{layout}", it must be {" or ".join(LAYOUTS)}')
    for name, array in (("cache.k", cache.k), ("cache.v", cache.v)):
        known = [str(dtype)] + [name for name in CACHES if name not in ACTIVATIONS]
        _shaped(name, _typed(name, array, known), None, None, None, None)
    _shaped("cache.v", _typed("cache.v", cache.v, [str(cache.k.dtype)]), *cache.k.shape)
    first, tokens, heads, dim = cache.k.shape
    if layout == "hnd":
        tokens, heads = heads, tokens
    _check_scales(cache, heads)
    if cache.page_table is None:
        _shaped("cache.k", cache.k, rows, *cache.k.shape[1:])
        return _Form(rows, heads, dim, 0, tokens, CACHES[str(cache.k.dtype)])
    table = _typed("cache.page_table", cache.page_table, ["int32"])
    _shaped("cache.page_table", table, rows, None)
    kv_length = table.shape[1] * tokens
    return _Form(rows, heads, dim, tokens, kv_length, CACHES[str(cache.k.dtype)])


def _lengths(lengths: Array, rows: int) -> Array:
    return _shaped("lengths", _typed("lengths", lengths, ["int32"]), rows)


def _scratch(dtype: Any, q_heads: int, form: _Form, window: int) -> int:
    """Refuses heads that no kernel serves."""
    _, best = ffi.scratch_of(ACTIVATIONS[str(dtype)], form.kv_dtype, q_heads, form.kv_heads,
                             form.head_dim, form.rows, form.kv_length, form.page_size, window)
    return best


def append_kv(k: Array, v: Array, cache: Cache, lengths: Array, *, plan: Optional[Plan] = None,
              layout: str = "nhd") -> Cache:
    """The cache with k and v, [rows, kv_heads, head_dim], where lengths - 1 says, in place."""
    k = _typed("k", k, list(ACTIVATIONS))
    _shaped("k", k, None, None, None)
    v = _shaped("v", _typed("v", v, [str(k.dtype)]), *k.shape)
    form = _form_of(k.dtype, k.shape[0], cache, layout)
    _shaped("k", k, form.rows, form.kv_heads, form.head_dim)
    lengths = _lengths(lengths, form.rows)
    scratch = _scratch(k.dtype, form.kv_heads, form, 0)

    def call(k: Array, v: Array, cache: Cache, lengths: Array, plan: Optional[Plan]) -> Any:
        rest = [_or_absent(cache.page_table, 2), jnp.zeros(0, jnp.uint8)]
        if plan is not None:
            rest[1] = plan.plan
        rest += [_or_absent(scale, 1) for scale in (cache.k_scale, cache.v_scale)]
        outs = _like(cache.k, cache.v) + ([_bytes(scratch)] if plan is None else [])
        got = _call("append_kv", outs, k, v, cache.k, cache.v, lengths, *rest,
                    aliases={2: 0, 3: 1}, kv_layout=LAYOUTS[layout])
        return tuple(got[:2])

    grown = _alone("append_kv", call)(k, v, cache, lengths, plan)
    return cache._replace(k=grown[0], v=grown[1])


# ---- Attention -----------------------------------------------------------------------------------


def plan(lengths: Array, *, dtype: Any, q_heads: int, cache: Cache, window: int = 0,
         layout: str = "nhd") -> Plan:
    """The plan of a step for attention of q_heads heads of that dtype over such a cache; window:
    tokens that a row sees, its own counted; 0: all."""
    dtype = jnp.dtype(dtype)
    if str(dtype) not in ACTIVATIONS:
        raise TypeError(f"dtype is {dtype}, it must be {' or '.join(ACTIVATIONS)}")
    form = _form_of(dtype, lengths.shape[0], cache, layout)
    lengths = _lengths(lengths, form.rows)
    needs = ffi.scratch_of(ACTIVATIONS[str(dtype)], form.kv_dtype, q_heads, form.kv_heads,
                           form.head_dim, form.rows, form.kv_length, form.page_size, window)

    def call(lengths: Array) -> Any:
        return tuple(_call(
            "plan", [_bytes(count) for count in needs], lengths,
            dtype=str(dtype), kv_dtype=str(cache.k.dtype), q_heads=int(q_heads),
            kv_heads=form.kv_heads, head_dim=form.head_dim, page_size=form.page_size,
            kv_length=form.kv_length, window_left=int(window) - 1,
        ))

    return Plan(*_alone("plan", call)(lengths))


class Logits(NamedTuple):
    """What is done to logits. window: tokens that a row sees, its own counted; 0: all."""

    scale: float = 0.0  # 0: head_dim ** -0.5
    soft_cap: float = 0.0
    window: int = 0

    def attributes(self, head_dim: int, layout: str) -> dict[str, Any]:
        """As the targets take them."""
        return dict(
            kv_layout=LAYOUTS[layout],
            window_left=int(self.window) - 1,
            logits_soft_cap=float(self.soft_cap),
            sm_scale=float(self.scale or head_dim**-0.5),
        )


def _options(cache: Cache, given: Optional[Plan], alibi: Optional[Array],
             sinks: Optional[Array]) -> list[Array]:
    """Arguments from the page table on."""
    none = jnp.zeros(0, jnp.uint8)
    lent = [none, none] if given is None else [given.plan, given.scratch]
    rest = [_or_absent(x, 1) for x in (alibi, sinks, cache.k_scale, cache.v_scale)]
    return [_or_absent(cache.page_table, 2), *lent, *rest]


def _per_head(name: str, array: Optional[Array], q: Array) -> None:
    if array is not None:
        _shaped(name, _typed(name, array, ["float32"]), q.shape[1])


def attention(q: Array, cache: Cache, lengths: Array, *, plan: Optional[Plan] = None,
              logits: Logits = Logits(), alibi: Optional[Array] = None,
              sinks: Optional[Array] = None, layout: str = "nhd",
              with_lse: bool = False) -> Attended:
    """Attention of q, [rows, heads, head_dim], over the first tokens of the cache, as lengths say;
    alibi and sinks: float32 [heads]."""
    q = _typed("q", q, list(ACTIVATIONS))
    _shaped("q", q, None, None, None)
    form = _form_of(q.dtype, q.shape[0], cache, layout)
    _shaped("q", q, form.rows, None, form.head_dim)
    lengths = _lengths(lengths, form.rows)
    _per_head("alibi", alibi, q)
    _per_head("sinks", sinks, q)
    scratch = _bytes(_scratch(q.dtype, q.shape[1], form, logits.window))

    def call(q: Array, cache: Cache, lengths: Array, plan: Optional[Plan], *rest: Any) -> Any:
        lse = jax.ShapeDtypeStruct(q.shape[:2] if with_lse else (0, 0), jnp.float32)
        lent = scratch if plan is None else _like(plan.scratch)[0]
        return tuple(_call(
            "attention", [*_like(q), lent, lse], q, cache.k, cache.v, lengths,
            *_options(cache, plan, *rest), aliases=None if plan is None else {6: 1},
            **logits.attributes(q.shape[2], layout),
        ))

    out, lent, lse = _alone("attention", call)(q, cache, lengths, plan, alibi, sinks)
    next_plan = None if plan is None else plan._replace(scratch=lent)
    return Attended(out, next_plan, lse if with_lse else None)


def decode_attention(q: Array, k: Array, v: Array, cache: Cache, lengths: Array, *,
                     plan: Optional[Plan] = None, rope: Rope = Rope(), logits: Logits = Logits(),
                     alibi: Optional[Array] = None, sinks: Optional[Array] = None,
                     layout: str = "nhd", with_lse: bool = False) -> Decoded:
    """apply_rope at lengths - 1, append_kv and attention, in one call."""
    q = _typed("q", q, list(ACTIVATIONS))
    _shaped("q", q, None, None, None)
    form = _form_of(q.dtype, q.shape[0], cache, layout)
    _shaped("q", q, form.rows, None, form.head_dim)
    for name, array in (("k", k), ("v", v)):
        _shaped(name, _typed(name, array, [str(q.dtype)]), form.rows, form.kv_heads, form.head_dim)
    lengths = _lengths(lengths, form.rows)
    _per_head("alibi", alibi, q)
    _per_head("sinks", sinks, q)
    scratch = _bytes(_scratch(q.dtype, q.shape[1], form, logits.window))

    def call(q: Array, k: Array, v: Array, cache: Cache, lengths: Array, plan: Optional[Plan],
             *rest: Any) -> Any:
        lse = jax.ShapeDtypeStruct(q.shape[:2] if with_lse else (0, 0), jnp.float32)
        lent = scratch if plan is None else _like(plan.scratch)[0]
        aliases = {0: 1, 1: 2, 3: 3, 4: 4, **({} if plan is None else {8: 5})}
        # Else XLA hands over the array that q or k is a slice of, and its result elsewhere.
        q, k = jax.lax.optimization_barrier((q, k))
        got = _call(
            "decode_attention", [*_like(q, q, k, cache.k, cache.v), lent, lse],
            q, k, v, cache.k, cache.v, lengths, *_options(cache, plan, *rest), aliases=aliases,
            **rope.attributes(q.shape[2]), **logits.attributes(q.shape[2], layout),
        )
        return got[0], *got[3:]

    got = _alone("decode_attention", call)(q, k, v, cache, lengths, plan, alibi, sinks)
    out, k_cache, v_cache, lent, lse = got
    next_plan = None if plan is None else plan._replace(scratch=lent)
    grown = cache._replace(k=k_cache, v=v_cache)
    return Decoded(out, grown, next_plan, lse if with_lse else None)
