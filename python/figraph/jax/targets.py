"""targets.py: custom calls as figraph.jax makes them: targets, what is checked while JAX traces,
and how a call looks to XLA.

Invariant: importing it registers the targets for both platforms, and an attribute is a number of
one type: JAX finds 7 and 7.0 equal, and would hand the program of one to the other.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional, Sequence

import jax
import jax.ffi
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from .. import abi, ffi, operands
from ..operands import CACHES, Array, Cache, Form

# What stands for an argument that is left out, where others come behind it.
ABSENT = {1: jnp.float32, 2: jnp.int32}

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
    operands.typed(name, array, known)
    return array


def shaped(name: str, array: Array, *shape: Optional[int]) -> Array:
    """The array, which has that shape; None in a shape is any number."""
    operands.shaped(name, array, *shape)
    return array


def lengths_of(lengths: Array, rows: int) -> Array:
    """Lengths of so many rows."""
    return shaped("lengths", typed("lengths", lengths, ["int32"]), rows)


def form_of(dtype: Any, rows: int, cache: Cache, layout: str) -> Form:
    """Of a cache that is sound for q of that dtype and so many rows."""
    arrays = Cache(*(None if x is None else jnp.asarray(x) for x in cache))
    return operands.form_of(str(dtype), rows, arrays, operands.layout_code(layout))


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
