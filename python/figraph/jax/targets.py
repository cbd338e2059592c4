"""targets.py: registers figraph's custom calls with JAX, checks their arguments and makes them.

Invariant: importing this module registers the targets for both platforms. Each attribute always has
the same number type: JAX treats 7 and 7.0 as equal, and would reuse a program compiled for 7 when
it is given 7.0.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional, Sequence, Union

import jax
import jax.ffi
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from .. import abi, ffi, latents, operands
from ..operands import CACHES, Array, Cache, Form, LatentCache, Starts

# The dtype of the empty array that replaces an omitted argument, by its rank.
ABSENT = {1: jnp.float32, 2: jnp.int32}

# ---- Registration --------------------------------------------------------------------------------


def _register() -> None:
    for name, host, cuda in ffi.targets():
        for platform, handler in (("cpu", host), ("CUDA", cuda)):
            capsule = jax.ffi.pycapsule(ctypes.c_void_p(handler))
            jax.ffi.register_ffi_target(name, capsule, platform=platform)


_register()


def custom_calls() -> list[str]:
    """Returns the names of all targets, for jax.export.DisabledSafetyCheck.custom_call."""
    return [name for name, _, _ in ffi.targets()]


# ---- Checks, while JAX traces --------------------------------------------------------------------


def whole(name: str, value: Any) -> int:
    """Converts 7 or 7.0 to an int. Raises for fractions, traced values and all that is no
    number."""
    number = _number(value)
    if number is None or not number.is_integer():
        raise TypeError(f"{name} is {value}, it must be a whole number that is known while tracing")
    return int(value)


def real(name: str, value: Any) -> float:
    """Converts 7 or 7.0 to a float. Raises for traced values and all that is no number."""
    number = _number(value)
    if number is None:
        raise TypeError(f"{name} is {value}, it must be a number that is known while tracing")
    return number


def _number(value: Any) -> Optional[float]:
    if isinstance(value, (jax.core.Tracer, str)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def typed(name: str, array: Array, known: Sequence[str]) -> Array:
    """Returns the array, or raises if its dtype is not one of the known names."""
    array = jnp.asarray(array)
    operands.typed(name, array, known)
    return array


def shaped(name: str, array: Array, *shape: Optional[int], like: str = "") -> Array:
    """Returns the array, or raises if it does not have this shape; None matches any number. like:
    the argument that the shape follows from."""
    operands.shaped(name, array, *shape, like=like)
    return array


def lengths_of(lengths: Array, rows: int, like: str) -> Array:
    """Returns lengths, or raises if they are not int32 [rows]."""
    return shaped("lengths", typed("lengths", lengths, ["int32"]), rows, like=like)


def form_of(dtype: Any, rows: int, cache: Union[Cache, LatentCache], layout: str,
            row_tokens: int = 1) -> Form:
    """Checks a cache for q of this dtype and number of rows, and returns its form."""
    if isinstance(cache, LatentCache):
        if layout != "nhd":
            raise ValueError("layout is given, but a latent cache has none")
        return latents.form_of(str(dtype), rows, latents_of(cache), row_tokens)
    arrays = Cache(*(None if x is None else jnp.asarray(x) for x in cache))
    return operands.form_of(str(dtype), rows, arrays, operands.layout_code(layout),
                            row_tokens=row_tokens)


def latents_of(cache: LatentCache) -> LatentCache:
    """Returns the latent cache with arrays of JAX."""
    if not isinstance(cache, LatentCache):
        raise TypeError(f"cache is a {type(cache).__name__}, it must be a LatentCache")
    return LatentCache(*(None if x is None else jnp.asarray(x) for x in cache))


def starts_of(query_start_loc: Optional[Array], row_tokens: int) -> Starts:
    """Returns query_start_loc as an array of JAX, and row_tokens as an int."""
    given = None if query_start_loc is None else jnp.asarray(query_start_loc)
    return Starts(given, whole("row_tokens", row_tokens))


# ---- Calls ---------------------------------------------------------------------------------------


def like(*arrays: Array) -> list[jax.ShapeDtypeStruct]:
    """Returns the shapes and dtypes of arrays, as results of a call."""
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]


def bytes_of(count: int) -> jax.ShapeDtypeStruct:
    """Returns the form of a result of `count` bytes."""
    return jax.ShapeDtypeStruct((count,), jnp.uint8)


def or_absent(array: Optional[Array], rank: int) -> Array:
    """Returns the array, or an empty one of that rank if it is None."""
    return jnp.zeros((0,) * rank, ABSENT[rank]) if array is None else array


def number_of(dtype: Any) -> int:
    """Returns the number of a JAX dtype in figraph.h."""
    return number_of_kind(CACHES[str(dtype)])


def number_of_kind(kind: str) -> int:
    """Returns the number in figraph.h of a dtype such as "bf16"."""
    return int(getattr(abi, "FIG_" + kind.upper()))


def custom_call(target: str, outs: Sequence[Any], *arrays: Array, aliases: Any = None,
                **attributes: Any) -> list[Array]:
    """Makes a custom call. Attributes are ints or floats, never text."""
    for name, value in attributes.items():
        assert type(value) in (int, float), (name, value)
    options = {"input_output_aliases": aliases} if aliases else {}
    made = jax.ffi.ffi_call("figraph." + target, tuple(outs), **options)
    return list(made(*arrays, **attributes))


def alone(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function so that jax.vmap of it raises NotImplementedError."""
    wrapped = custom_vmap(function)

    @wrapped.def_vmap
    def refuse(axis_size: int, in_batched: Any, *arrays: Array) -> Any:
        raise NotImplementedError(
            f"figraph.jax.{what} under vmap: rows are its batch, give it {axis_size} times as many"
        )

    return wrapped
