"""streams.py: the CUstream of a stream of torch's, CuPy's or anyone's."""

from __future__ import annotations

import ctypes
from typing import Any


def stream_number(stream: Any) -> int:
    """A CUstream, of torch.cuda.Stream, of CuPy's, of what has __cuda_stream__, or a number; None
    is 0, the default stream."""
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        answer = stream.__cuda_stream__
        return int((answer() if callable(answer) else answer)[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)


def stream_cell(stream: Any) -> Any:
    """The address of a CUstream, as C takes it; None is the engine's own stream."""
    return None if stream is None else ctypes.pointer(ctypes.c_void_p(stream_number(stream)))
