"""integers.py: converts Python integers to C integers, and checks that each fits.

ctypes silently keeps the low bits of an integer that is too wide. Invariant: every integer that a
caller passes to a struct, array or argument of C is checked here, or in steps.c, which takes lists
of lengths on the hot path.
"""

from __future__ import annotations

import ctypes
import functools
import operator
from array import array
from typing import Any, Optional, Sequence

INT32, INT64, UINT64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64
# Flags of figraph.h. Only these fields accept True and False; all others refuse bools.
FLAGS = {"interleaved", "sinks", "deterministic", "check_plans", "compile_scores"}
_INT_ALONE = frozenset([int])


@functools.lru_cache(maxsize=None)
def limits_of(kind: type) -> tuple[int, int]:
    """Returns the least and the greatest number of an integer type of ctypes."""
    bits = 8 * ctypes.sizeof(kind)
    if kind(-1).value == -1:
        return -(1 << bits - 1), (1 << bits - 1) - 1
    return 0, (1 << bits) - 1


def integer(field: str, value: Any, kind: type = INT32) -> int:
    """Returns the value as an int, checked to fit the C type. Accepts everything that Python
    accepts as an index, except bools."""
    if type(value) is int and kind is INT32 and -(1 << 31) <= value < 1 << 31:
        return value  # the common case
    number = _index(value)
    if number is None:
        raise TypeError(f"{field} is {value!r}, it must be an integer")
    least, most = limits_of(kind)
    if number > most:
        raise OverflowError(f"{field} is {number}, limit {most}")
    if number < least:
        raise OverflowError(f"{field} is {number}, it must be at least {least}")
    return number


def _index(value: Any) -> Optional[int]:
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def packed(field: str, values: Sequence[int]) -> array[int]:
    """Packs a list, or an array of any integer type, as int32."""
    plain = values
    if type(values) is not list and type(values) is not tuple:
        plain = values.tolist() if hasattr(values, "tolist") else values
        if not hasattr(plain, "__len__"):
            raise TypeError(f"{field} is {values!r}, it must be a list of integers")
    try:
        if _INT_ALONE.issuperset(map(type, plain)):
            return array("i", plain)
    except OverflowError:
        pass  # the loop below finds the number that is too wide
    return array("i", [integer(f"{field}[{i}]", value) for i, value in enumerate(plain)])


def integers(field: str, values: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    """Packs the numbers as a C array of int32."""
    made = packed(field, values)
    return (INT32 * len(made)).from_buffer(made)


@functools.lru_cache(maxsize=None)
def _integer_fields(kind: type) -> dict[str, type]:
    """Returns the integer fields of a struct, with their types."""
    known = {INT32, INT64, ctypes.c_uint32, UINT64}
    return {name: of for name, of, *_ in kind._fields_ if of in known}  # type: ignore[attr-defined]


def put(struct: Any, **fields: Any) -> Any:
    """Sets fields of a struct, checks the integer ones, and returns the struct."""
    kinds = _integer_fields(type(struct))
    for name, value in fields.items():
        if name in kinds:
            is_flag = name in FLAGS and isinstance(value, bool)
            value = integer(name, int(value) if is_flag else value, kinds[name])
        setattr(struct, name, value)
    return struct


def options(kind: type, **fields: Any) -> Any:
    """Makes a struct whose first field is its size, and checks its integers. figraph.abi.options
    does not check them."""
    return put(kind(size=ctypes.sizeof(kind)), **fields)
