"""native.py: opens this package's C library once, and passes text and handles to it.

Invariant: every call goes through ctypes.CDLL, which releases the GIL until the call returns.
"""

from __future__ import annotations

import os
from typing import Any, Callable, NoReturn, Optional, Union

from . import abi, errors

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

library = abi.load(os.path.join(FOLDER, "libfigraph.so.0"))


def sentence(message: Optional[bytes]) -> str:
    """Decodes a message of the library. The message may name a path that is not UTF-8, or may be
    cut within a character."""
    return "" if message is None else message.decode(errors="backslashreplace")


def must(status: int) -> None:
    """Raises the exception for a status that is not FIG_OK."""
    if status != abi.FIG_OK:
        raise errors.of(status, sentence(library.fig_message()))


def text(value: Optional[bytes]) -> str:
    """Decodes a name from the library."""
    return "" if value is None else value.decode(errors="surrogateescape")


def encoded(field: str, value: str) -> bytes:
    """Encodes text for C. Refuses a NUL, because C would stop reading there."""
    if not isinstance(value, str):
        raise TypeError(f"{field} is {value!r}, it must be a str")
    made = value.encode(errors="surrogateescape")
    if b"\0" in made:
        raise ValueError(f"{field} is {value!r}, it must have no NUL")
    return made


def path_bytes(path: Path) -> bytes:
    """Encodes a path for the system. Refuses a NUL."""
    made = os.fsencode(path)
    if b"\0" in made:
        raise ValueError(f"the path {path!r} has a NUL")
    return made


def cache_bytes(cache: Union[Path, bool, None]) -> Optional[bytes]:
    """Encodes the folder of compiled scores. True stands for the user's own, None and False for
    none."""
    if cache is None or cache is False:
        return None
    if cache is True:
        return b""  # FIG_SCORE_CACHE_DEFAULT
    made = path_bytes(cache)
    if not made:
        raise ValueError("score_cache is '': name a folder, or give True for your own")
    return made


class Handle:
    """A pointer of C, which becomes None when its object is destroyed.

    If the Python object is in a reference cycle, weakref.finalize runs before any __del__. A method
    that a __del__ then calls finds None instead of freed memory.
    """

    def __init__(self, noun: str, pointer: Any) -> None:
        self.noun, self.pointer = noun, pointer

    def get(self) -> Any:
        """Returns the pointer, or raises errors.Order if the object is closed."""
        if self.pointer is None:
            raise errors.of(abi.FIG_ORDER, f"{self.noun} closed")
        return self.pointer

    def end(self, destroy: Callable[[Any], Any]) -> None:
        """Destroys the object on the first call; later calls do nothing."""
        pointer, self.pointer = self.pointer, None
        if pointer is not None:
            destroy(pointer)


class Unique:
    """An object that owns memory of the C library. Copying it would free the memory twice."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: it stands for memory "
                        "of the library's, which has one owner")
