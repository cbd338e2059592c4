"""calls.py: tensors and numbers, packed as libfigraph_ffi.so takes them, and one call with them.

Tensors go as DLPack's structs, made here: torch's own export lacks some dtypes, and would order
streams that are in order. Invariant: nothing is copied, and what is packed lives until the call
returns; it drops the GIL, and puts work on torch's current stream of the tensors' device.
"""

from __future__ import annotations

import struct
from array import array
from typing import Optional, Union

import torch
from torch import Tensor

from .. import abi, ffi

Argument = Union[Tensor, int, float, None]

NONE, INTEGER, REAL, TENSOR = 0, 1, 3, 7  # of TVMFFIAny
DEVICES = {"cpu": 1, "cuda": 2}  # of DLPack
CODES = {  # code and bits
    torch.float32: (2, 32),
    torch.float16: (2, 16),
    torch.bfloat16: (4, 16),
    torch.float8_e4m3fn: (10, 8),
    torch.float8_e5m2: (12, 8),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.uint8: (1, 8),
}
TENSOR_WORDS = 6  # of a DLTensor, 8 bytes each


def _bits(value: float) -> int:
    return struct.unpack("q", struct.pack("d", value))[0]


def _describe(tensor: Tensor, dims: int) -> list[int]:
    """A DLTensor, whose dims and then strides are at that address."""
    place = DEVICES.get(tensor.device.type, 0) | (tensor.device.index or 0) << 32
    code, bits = CODES[tensor.dtype]
    rank = tensor.ndim
    kind = rank | code << 32 | bits << 40 | 1 << 48
    return [tensor.data_ptr(), place, kind, dims, dims + 8 * rank, 0]


def _pack(arguments: tuple[Argument, ...]) -> tuple[array, ...]:
    """The values, and what they point to."""
    tensors = [x for x in arguments if isinstance(x, Tensor)]
    dims = array("q", [n for x in tensors for part in (x.shape, x.stride()) for n in part])
    at = dims.buffer_info()[0]
    words = array("q")
    for tensor in tensors:
        words.extend(_describe(tensor, at))
        at += 16 * tensor.ndim
    at = words.buffer_info()[0]
    values = array("q")
    for x in arguments:
        if isinstance(x, Tensor):
            values.extend((TENSOR, at))
            at += 8 * TENSOR_WORDS
        elif x is None:
            values.extend((NONE, 0))
        elif isinstance(x, float):
            values.extend((REAL, _bits(x)))
        else:
            values.extend((INTEGER, int(x)))
    return values, words, dims


def call(function: str, first: Tensor, *arguments: Argument) -> None:
    """A function of tools/jax/TARGETS.md, on the device of the first tensor."""
    stream: Optional[int] = None
    if first.device.type == "cuda":
        stream = torch.cuda.current_stream(first.device).cuda_stream
    packed = _pack((first, *arguments))
    ffi.must(ffi.library.fig_ffi_run(abi.options(
        abi.fig_ffi_call,
        function=function.encode(),
        arguments=packed[0].buffer_info()[0],
        argument_count=1 + len(arguments),
        stream=stream,
    )))
