"""forms.py: whether an array can be a tensor's memory.

Invariant: an array that passes has the tensor's element size and covers every index of it.
"""

from __future__ import annotations

from typing import Sequence

from . import abi, errors
from .arrays import Place, dense
from .graphs import PAGES, ROWS, Tensor

ITEM_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "i32": 4, "i64": 8}
# Not every array library has a type for these; one that is told by its size alone will do.
RARE_DTYPES = {"bf16", "e4m3", "e5m2"}


def in_memory(tensor: Tensor, values: Sequence[int]) -> tuple[int, ...]:
    """Dims or strides, from the order of dims to that of memory or back."""
    if tensor.layout == "hnd" and len(values) == 4:
        return (values[0], values[2], values[1], values[3])
    return tuple(values)


def elements(tensor: Tensor, rows: int, pages: int) -> int:
    """How many the tensor has, with so many rows or pages."""
    count = 1
    for dim in tensor.dims:
        count *= {ROWS: rows * tensor.multiple, PAGES: pages * tensor.multiple}.get(dim, dim)
    return count


def check(tensor: Tensor, rows: int, place: Place) -> None:
    """Refuses an array that the tensor cannot be, in words that name both."""
    first, *others = in_memory(tensor, tensor.dims)
    least = {ROWS: rows * tensor.multiple, PAGES: 1}.get(first, first)
    words = {ROWS: f"{least} or more", PAGES: "pages"}.get(first, str(first))
    is_long = place.shape[:1] == (first,) if first > 0 else place.shape[:1] >= (least,)
    if not is_long or list(place.shape[1:]) != others:
        raise errors.of(
            abi.FIG_INVALID,
            f"tensor {tensor.name}: the array has shape {list(place.shape)}, it must be "
            f"[{', '.join([words, *map(str, others)])}]",
        )
    is_raw = not place.dtype and tensor.dtype in RARE_DTYPES
    if place.item_bytes != ITEM_BYTES[tensor.dtype] or not (is_raw or place.dtype == tensor.dtype):
        kind = place.dtype or f"of {place.item_bytes} bytes"
        raise errors.of(
            abi.FIG_INVALID,
            f"tensor {tensor.name}: the array has dtype {kind}, it must be {tensor.dtype}",
        )


def strides_of(tensor: Tensor, place: Place) -> tuple[int, ...]:
    """Strides in the order of dims; that of a dim of one element is free, and made a sound one."""
    natural = dense(place.shape)
    pairs = zip(place.shape, place.strides, natural)
    return in_memory(tensor, [other if size == 1 else stride for size, stride, other in pairs])
