"""files.py: recorded programs inside jax.jit, and which of them an exported function needs.

A call names its file by 64 bits of its content, so what jax.export wrote runs wherever that file
was loaded, under whatever name. Invariant: nothing here reads a file but load.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple, Optional, Sequence, Union

from .. import errors, ffi
from .targets import Array, Plan, alone, bytes_of, custom_call, like, whole


class File(NamedTuple):
    """A .fig file that this process has loaded."""

    content_id: str

    @property
    def number(self) -> int:
        """As attributes name it."""
        return int.from_bytes(bytes.fromhex(self.content_id)[:8], "big", signed=True)

    @property
    def segments(self) -> list[str]:
        """The names of its segments, in the order recorded."""
        return ffi.segments_of(self.content_id)


_loaded: dict[int, File] = {}


def load(path: Union[str, os.PathLike[str]]) -> File:
    """Loads a .fig file for as long as the process lives: for program(), and for exported functions
    that name it."""
    file = File(ffi.load(path))
    _loaded[file.number] = file
    return file


def missing(exported: Any) -> list[str]:
    """What a function of jax.export names and this process has not loaded: the first 16 digits of
    each file's content_id."""
    calls = re.findall(r"custom_call @figraph\.program\b[^\n]*", exported.mlir_module())
    numbers = {int(n) for call in calls for n in re.findall(r"\bcontent = (-?\d+) : i64", call)}
    return sorted(f"{n % 2**64:016x}" for n in numbers - set(_loaded))


def program(file: File, outs: Sequence[Any], *arrays: Array, rows: int, segment: str = "",
            kv_length: int = 0, aliases: Optional[dict[int, int]] = None,
            plan: Optional[Plan] = None) -> tuple[list[Array], Optional[Plan]]:
    """Runs so many rows of a recorded program, or of a segment of it; gives what it writes, and the
    plan to go on with.

    arrays: what its nodes read, in the order recorded; outs: how what they write looks, likewise; a
    tensor that is both stands in both, and in aliases, {argument: result}. kv_length is the most
    tokens of a row.
    """
    number = 0
    if segment != "":
        if segment not in file.segments:
            raise errors.Invalid(f'the file has no segment "{segment}", it has '
                                 f'{", ".join(file.segments) or "none"}')
        number = file.segments.index(segment) + 1
    rows, kv_length = whole("rows", rows), whole("kv_length", kv_length)
    _, scratch = ffi.program_scratch_of(file.content_id, rows, kv_length)
    pairs, lent = dict(aliases or {}), bytes_of(scratch)
    if plan is not None:
        pairs[len(arrays) + 1] = len(outs)
        lent = like(plan.scratch)[0]

    def run(*arrays: Array) -> Any:
        return tuple(custom_call("program", [*outs, lent], *arrays, aliases=pairs, rows=rows,
                                 content=file.number, segment=number, kv_length=kv_length))

    *got, lent = alone("program", run)(*arrays, *(plan or ()))
    return got, None if plan is None else plan._replace(scratch=lent)
