"""ffi.py: libfigraph_ffi.so of this package, opened once: its XLA targets and its sizes.

Invariant: no array library is imported here, and no GPU is touched.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Iterator, Union

from . import abi, errors
from .native import FOLDER
from .specs import DTYPES, number_of

PATH = os.path.join(FOLDER, "libfigraph_ffi.so")  # for tvm_ffi.load_module

library = abi.load(PATH, is_ffi=True)


def must(status: int) -> None:
    """Raises what a call refused."""
    if status != abi.FIG_OK:
        raise errors.of(status, library.fig_ffi_message().decode())


def targets() -> Iterator[tuple[str, int, int]]:
    """Name, handler for the CPU and handler for CUDA of each XLA target."""
    target = abi.options(abi.fig_ffi_target)
    index = 0
    while library.fig_ffi_read_target(index, target) == abi.FIG_OK:
        yield target.name.decode(), target.host, target.cuda
        index += 1


@functools.lru_cache(maxsize=1024)
def scratch_of(dtype: str, kv_dtype: str, q_heads: int, kv_heads: int, head_dim: int, rows: int,
               kv_length: int, page_size: int = 0, window: int = 0) -> tuple[int, int]:
    """Bytes of a plan and of scratch, enough for every chip that the library knows."""
    asked = abi.options(
        abi.fig_ffi_attention,
        dtype=number_of(DTYPES, "dtype", dtype),
        kv_dtype=number_of(DTYPES, "kv_dtype", kv_dtype),
        q_heads=q_heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        page_size=page_size,
        rows=rows,
        kv_length=kv_length,
        window=window,
    )
    told = abi.options(abi.fig_ffi_scratch)
    must(library.fig_ffi_read_scratch(asked, told))
    return told.plan_bytes, told.best_bytes


@functools.lru_cache(maxsize=1024)
def check_rope(head_dim: int, **fields: Any) -> None:
    """Refuses what the targets would refuse."""
    must(library.fig_ffi_check_rope(abi.fig_rope_spec(**fields), head_dim))


def load(path: Union[str, os.PathLike[str]]) -> str:
    """Loads a .fig file for as long as the process lives; returns its content_id."""
    content_id = ctypes.create_string_buffer(65)
    must(library.fig_ffi_load(os.fsencode(path), content_id))
    return content_id.value.decode()


def segments_of(content_id: str) -> list[str]:
    """The segments of a loaded file, of which attributes count the first as 1."""
    names: list[str] = []
    told = abi.options(abi.fig_ffi_segment)
    while True:
        status = library.fig_ffi_read_segment(content_id.encode(), len(names) + 1, told)
        if status == abi.FIG_INVALID:
            return names
        must(status)
        names.append(told.name.decode())


def program_scratch_of(content_id: str, rows: int, kv_length: int) -> tuple[int, int]:
    """Bytes of a plan and of scratch for a loaded file, enough for every chip that the library
    knows."""
    told = abi.options(abi.fig_ffi_scratch)
    must(library.fig_ffi_read_program_scratch(content_id.encode(), rows, kv_length, told))
    return told.plan_bytes, told.best_bytes


def counts() -> abi.fig_ffi_counts:
    """Calls that ran at once, calls that became part of a capture, and operations made anew."""
    told = abi.options(abi.fig_ffi_counts)
    must(library.fig_ffi_read_counts(told))
    return told
