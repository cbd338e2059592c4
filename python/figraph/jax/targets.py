"""targets.py: custom calls as figraph.jax makes them: targets, what is checked while JAX traces,
and how a call looks to XLA.

Invariant: importing it registers the targets for both platforms, and an attribute is a number of
one type: JAX finds 7 and 7.0 equal, and would hand the program of one to the other.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, NamedTuple, Optional, Sequence

import jax
import jax.ffi
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from .. import abi, ffi

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


class Form(NamedTuple):
    """What a cache and its rows are."""

    rows: int
    kv_heads: int
    head_dim: int
    page_size: int  # 0: dense
    kv_length: int  # tokens that a row can have
    kv_dtype: str


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


def whole(name: str, value: Any) -> int:
    """An int, of 7 and of 7.0."""
    if isinstance(value, jax.core.Tracer) or int(value) != value:
        raise TypeError(f"{name} is {value}, it must be a whole number that is known while tracing")
    return int(value)


def real(name: str, value: Any) -> float:
    """A float, of 7 and of 7.0."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{name} is {value}, it must be a number that is known while tracing")
    return float(value)


def typed(name: str, array: Array, known: Sequence[str]) -> Array:
    """The array, whose dtype is one of the known."""
    array = jnp.asarray(array)
    if str(array.dtype) not in known:
        raise TypeError(f"{name} is {array.dtype}, it must be {' or '.join(known)}")
    return array


def shaped(name: str, array: Array, *shape: Optional[int]) -> Array:
    """The array, which has that shape; None in a shape is any number."""
    wanted = ", ".join("any" if n is None else str(n) for n in shape)
    fits = array.ndim == len(shape) and all(
        n is None or n == own for n, own in zip(shape, array.shape)
    )
    if not fits:
        raise ValueError(f"{name} is {list(array.shape)}, it must be [{wanted}]")
    return array


def lengths_of(lengths: Array, rows: int) -> Array:
    """Lengths of so many rows."""
    return shaped("lengths", typed("lengths", lengths, ["int32"]), rows)


def _check_scales(cache: Cache, kv_heads: int) -> None:
    """One for all heads or one for each, and as many of k as of v."""
    if (cache.k_scale is None) != (cache.v_scale is None):
        raise ValueError("cache.k_scale and cache.v_scale: one is given, the other is not")
    if cache.k_scale is None or cache.v_scale is None:
        return
    k_scale = typed("cache.k_scale", cache.k_scale, ["float32"])
    if k_scale.shape != (1,):
        shaped("cache.k_scale", k_scale, kv_heads)
    shaped("cache.v_scale", typed("cache.v_scale", cache.v_scale, ["float32"]), *k_scale.shape)


def form_of(dtype: Any, rows: int, cache: Cache, layout: str) -> Form:
    """Of a cache that is sound for q of that dtype and so many rows."""
    if layout not in LAYOUTS:
        raise ValueError(f'layout is "{layout}", it must be {" or ".join(LAYOUTS)}')
    for name, array in (("cache.k", cache.k), ("cache.v", cache.v)):
        known = [str(dtype)] + [name for name in CACHES if name not in ACTIVATIONS]
        shaped(name, typed(name, array, known), None, None, None, None)
    shaped("cache.v", typed("cache.v", cache.v, [str(cache.k.dtype)]), *cache.k.shape)
    _, tokens, heads, dim = cache.k.shape
    if layout == "hnd":
        tokens, heads = heads, tokens
    _check_scales(cache, heads)
    if cache.page_table is None:
        shaped("cache.k", cache.k, rows, *cache.k.shape[1:])
        return Form(rows, heads, dim, 0, tokens, CACHES[str(cache.k.dtype)])
    table = typed("cache.page_table", cache.page_table, ["int32"])
    shaped("cache.page_table", table, rows, None)
    kv_length = table.shape[1] * tokens
    return Form(rows, heads, dim, tokens, kv_length, CACHES[str(cache.k.dtype)])


# ---- Calls ---------------------------------------------------------------------------------------


def like(*arrays: Array) -> list[jax.ShapeDtypeStruct]:
    """Results that look as arrays do."""
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]


def bytes_of(count: int) -> jax.ShapeDtypeStruct:
    """A result of so many bytes."""
    return jax.ShapeDtypeStruct((count,), jnp.uint8)


def or_absent(array: Optional[Array], rank: int) -> Array:
    """The array, or what stands for none."""
    return jnp.zeros((0,) * rank, ABSENT[rank]) if array is None else array


def number_of(dtype: Any) -> int:
    """The number that figraph.h has for a dtype of JAX."""
    return int(getattr(abi, "FIG_" + CACHES[str(dtype)].upper()))


def custom_call(target: str, outs: Sequence[Any], *arrays: Array, aliases: Any = None,
                **attributes: Any) -> list[Array]:
    """A custom call. An attribute is an int or a float, never text."""
    for name, value in attributes.items():
        assert type(value) in (int, float), (name, value)
    options = {"input_output_aliases": aliases} if aliases else {}
    made = jax.ffi.ffi_call("figraph." + target, tuple(outs), **options)
    return list(made(*arrays, **attributes))


def alone(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that refuses to be mapped."""
    wrapped = custom_vmap(function)

    @wrapped.def_vmap
    def refuse(axis_size: int, in_batched: Any, *arrays: Array) -> Any:
        raise NotImplementedError(
            f"figraph.jax.{what} under vmap: rows are its batch, give it {axis_size} times as many"
        )

    return wrapped
