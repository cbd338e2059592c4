"""forms.py: checks whether an array can be the memory of a tensor.

Invariant: an accepted array has the tensor's element size and covers every index of the tensor.
"""

from __future__ import annotations

from typing import Sequence

from . import abi, errors
from .arrays import Place, dense
from .graphs import PAGES, QUERIES, ROWS, Tensor
from .specs import Spec

ITEM_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "i32": 4, "i64": 8}
# Some array libraries lack these types. An array of unknown dtype passes if its size is right.
RARE_DTYPES = {"bf16", "e4m3", "e5m2"}


def in_memory(tensor: Tensor, values: Sequence[int]) -> tuple[int, ...]:
    """Reorders dims or strides from the tensor's order to the order in memory, or back."""
    if tensor.layout == "hnd" and len(values) == 4:
        return (values[0], values[2], values[1], values[3])
    return tuple(values)


def rows_of(tensor: Tensor, spec: Spec) -> int:
    """Returns how many rows, or query tokens, the tensor has at the limits of the spec."""
    return spec.query_limit if tensor.dims[0] == QUERIES else spec.batch_limit


def elements(tensor: Tensor, rows: int, pages: int) -> int:
    """Returns the number of elements of the tensor for this number of rows, or query tokens, and
    pages."""
    count = 1
    of_rows, of_pages = rows * tensor.multiple, pages * tensor.multiple
    for dim in tensor.dims:
        count *= {ROWS: of_rows, QUERIES: of_rows, PAGES: of_pages}.get(dim, dim)
    return count


def check(tensor: Tensor, rows: int, place: Place) -> None:
    """Raises if the array cannot be the tensor's memory; the message names the tensor and the
    array's shape or dtype."""
    first, *others = in_memory(tensor, tensor.dims)
    of_rows = rows * tensor.multiple
    least = {ROWS: of_rows, QUERIES: of_rows, PAGES: 1}.get(first, first)
    more = f"{least} or more"
    words = {ROWS: more, QUERIES: more, PAGES: "pages"}.get(first, str(first))
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
    """Returns the strides in the order of the tensor's dims. A dim of size 1 may have any stride,
    which is replaced by the dense one."""
    natural = dense(place.shape)
    pairs = zip(place.shape, place.strides, natural)
    return in_memory(tensor, [other if size == 1 else stride for size, stride, other in pairs])
