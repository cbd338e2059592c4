"""steps.py: stage, launch and step of one engine, as functions of Python's own.

libfigraph_python.so makes them, since ctypes takes longer to make one of these calls than the call
itself takes. Each returns a status, and is given a bucket, and a list of lengths where those of the
step are not to be taken as they are.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable

from . import abi
from .native import FOLDER, library

# It makes Python's functions, hence PyDLL.
_made = ctypes.PyDLL(os.path.join(FOLDER, "libfigraph_python.so"))
_made.fig_steps_function.argtypes = [ctypes.c_int32, ctypes.py_object]
_made.fig_steps_function.restype = ctypes.py_object
STAGE, LAUNCH, STEP = range(3)


class _Self(ctypes.Structure):
    """fig_steps of python/steps.c."""

    _fields_ = [
        ("stage", ctypes.c_void_p),
        ("step", ctypes.c_void_p),
        ("launch", ctypes.c_void_p),
        ("engine", ctypes.c_void_p),
        ("next", ctypes.c_void_p),
        ("lengths", ctypes.c_void_p),
        ("length_limit", ctypes.c_int32),
    ]


class Steps:
    """The functions, for as long as this lives. Theirs are the step and the array of lengths."""

    def __init__(self, engine: Any, step: abi.fig_step, lengths: Any) -> None:
        self._kept = step, lengths
        calls = library.fig_engine_stage, library.fig_engine_step, library.fig_engine_launch
        self._self = _Self(
            *(ctypes.cast(call, ctypes.c_void_p) for call in (*calls, engine)),
            ctypes.addressof(step),
            ctypes.addressof(lengths),
            len(lengths),
        )
        self.stage = self._function(STAGE)
        self.launch = self._function(LAUNCH)
        self.step = self._function(STEP)

    def _function(self, which: int) -> Callable[..., int]:
        function: Callable[..., int]
        function = _made.fig_steps_function(which, ctypes.addressof(self._self))
        return function

    def close(self) -> None:
        """The engine is closed; from here on each returns FIG_ORDER."""
        self._self.engine = None
