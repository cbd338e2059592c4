"""files.py: runs recorded programs inside jax.jit, and tells which ones an exported function needs.

A call names its file by 64 bits of the file's content_id. So a function from jax.export runs in any
process that has loaded the file, under any path. Invariant: only load reads files.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple, Optional, Sequence, Union

from .. import errors, ffi
from ..lent_plans import Plan
from ..operands import Array
from .targets import alone, bytes_of, custom_call, like, whole


class File(NamedTuple):
    """A .fig file that this process has loaded."""

    content_id: str

    @property
    def number(self) -> int:
        """Returns the number that names this file in attributes of XLA calls."""
        return int.from_bytes(bytes.fromhex(self.content_id)[:8], "big", signed=True)

    @property
    def segments(self) -> list[str]:
        """Returns the names of the file's segments, in the order recorded."""
        return ffi.segments_of(self.content_id)


_loaded: dict[int, File] = {}


def load(path: Union[str, os.PathLike[str]]) -> File:
    """Loads a .fig file for the life of the process, for program() and for exported functions."""
    file = File(ffi.load(path))
    _loaded[file.number] = file
    return file


def missing(exported: Any) -> list[str]:
    """Returns the files that an exported function needs and this process has not loaded. Each is
    given by the first 16 digits of its content_id."""
    calls = re.findall(r"custom_call @figraph\.program\b[^\n]*", exported.mlir_module())
    numbers = {int(n) for call in calls for n in re.findall(r"\bcontent = (-?\d+) : i64", call)}
    return sorted(f"{n % 2**64:016x}" for n in numbers - set(_loaded))


def program(file: File, outs: Sequence[Any], *arrays: Array, rows: int, segment: str = "",
            kv_length: int = 0, aliases: Optional[dict[int, int]] = None,
            plan: Optional[Plan] = None) -> tuple[list[Array], Optional[Plan]]:
    """Runs `rows` rows of a recorded program, or of one of its segments. Returns the arrays that
    the program writes, and the plan for the next call.

    arrays: the tensors that the nodes read, in recorded order. outs: shapes and dtypes of the
    tensors that the nodes write, in recorded order. A tensor that is read and written is in
    both, and in aliases as {index of argument: index of result}. kv_length: the largest number of
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
