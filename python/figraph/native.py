"""native.py: the C library of this package, opened once.

Invariant: a call goes through ctypes.CDLL, which lets other threads of Python run until it returns.
"""

from __future__ import annotations

import os

from . import abi, errors

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")

library = abi.load(os.path.join(FOLDER, "libfigraph.so.0"))


def must(status: int) -> None:
    """Raises what a call refused."""
    if status != abi.FIG_OK:
        raise errors.of(status, library.fig_message().decode())


def text(value: bytes | None) -> str:
    """What the library calls something."""
    return "" if value is None else value.decode()
