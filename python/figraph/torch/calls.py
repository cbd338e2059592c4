"""calls.py: packs tensors and numbers for libfigraph_ffi.so, and calls it.

Tensors are passed as DLPack structs, which this file makes itself: torch's own export lacks some
dtypes and would synchronise streams unnecessarily. Invariant: no tensor is copied, and the packed
arguments live until the call returns. The call releases the GIL and puts its work on torch's
current stream of the tensors' device.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any, Optional, Union

import torch
from torch import Tensor

from .. import abi, ffi

Argument = Union[Tensor, int, float, None]

NONE, INTEGER, REAL, TENSOR = 0, 1, 3, 7  # type numbers of TVMFFIAny
DEVICES = {"cpu": 1, "cuda": 2}  # device numbers of DLPack
CODES = {  # DLPack's type code and bits
    torch.float32: (2, 32),
    torch.float16: (2, 16),
    torch.bfloat16: (4, 16),
    torch.float8_e4m3fn: (10, 8),
    torch.float8_e5m2: (12, 8),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.uint8: (1, 8),
}
KINDS = {dtype: code << 32 | bits << 40 | 1 << 48 for dtype, (code, bits) in CODES.items()}
VALUE_BYTES, TENSOR_BYTES, DIM_BYTES = 16, 48, 8


def _bits(value: float) -> int:
    return struct.unpack("q", struct.pack("d", value))[0]


@functools.lru_cache(maxsize=None)
def _place(device: torch.device) -> int:
    return DEVICES.get(device.type, 0) | (device.index or 0) << 32


def _pack(arguments: tuple[Argument, ...]) -> Any:
    """Packs the values, then the DLTensors that they point to, then the dims and strides."""
    ranks = [x.ndim for x in arguments if isinstance(x, Tensor)]
    before, between = VALUE_BYTES * len(arguments), TENSOR_BYTES * len(ranks)
    memory = ctypes.create_string_buffer(before + between + 2 * DIM_BYTES * sum(ranks))
    tensors_at = ctypes.addressof(memory) + before
    dims_at = tensors_at + between
    values: list[int] = []
    tensors: list[int] = []
    dims: list[int] = []
    for x in arguments:
        if isinstance(x, Tensor):
            rank, at = x.ndim, dims_at + DIM_BYTES * len(dims)
            values += TENSOR, tensors_at + 8 * len(tensors)
            tensors += x.data_ptr(), _place(x.device), rank | KINDS[x.dtype]
            tensors += at, at + DIM_BYTES * rank, 0
            dims += x.shape
            dims += x.stride()
        elif x is None:
            values += NONE, 0
        elif isinstance(x, float):
            values += REAL, _bits(x)
        else:
            values += INTEGER, int(x)
    words = (*values, *tensors, *dims)
    struct.pack_into(f"{len(words)}q", memory, 0, *words)
    return memory


def call(function: str, first: Tensor, *arguments: Argument) -> None:
    """Calls a function of tools/jax/TARGETS.md on the device of the first tensor."""
    stream: Optional[int] = None
    if first.device.type == "cuda":
        stream = torch.cuda.current_stream(first.device).cuda_stream
    memory = _pack((first, *arguments))
    ffi.must(ffi.library.fig_ffi_run(abi.options(
        abi.fig_ffi_call,
        function=function.encode(),
        arguments=ctypes.addressof(memory),
        argument_count=1 + len(arguments),
        stream=stream,
    )))
