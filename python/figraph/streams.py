"""streams.py: finds the CUstream of a stream object of torch, CuPy or another library."""

from __future__ import annotations

import ctypes
from typing import Any

from .integers import UINT64, integer


def stream_number(stream: Any) -> int:
    """Returns the CUstream of a torch or CuPy stream, of an object with __cuda_stream__, or of a
    number. None is 0, the default stream."""
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        answer = stream.__cuda_stream__
        return integer("stream", (answer() if callable(answer) else answer)[1], UINT64)
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return integer("stream", getattr(stream, name), UINT64)
    return integer("stream", stream, UINT64)


def stream_cell(stream: Any) -> Any:
    """Returns a pointer to the CUstream for C. None stays None and means the engine's own
    stream."""
    return None if stream is None else ctypes.pointer(ctypes.c_void_p(stream_number(stream)))
