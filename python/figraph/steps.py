"""steps.py: makes stage(), launch() and step() of one engine as native functions.

libfigraph_python.so makes these functions, because a call through ctypes takes longer than the
engine's own work. stage() and step() take a bucket and, optionally, a list of lengths that
replaces the lengths in the step struct. Each function returns a status.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable

from . import abi
from .native import FOLDER, library

# PyDLL keeps the GIL, since C code may create Python objects only with the GIL held.
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
    """The three functions. They are valid as long as this object lives, and write into the given
    step and array of lengths."""

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
        """Marks the engine as closed; each function returns FIG_ORDER from now on."""
        self._self.engine = None
