"""ffi.py: opens libfigraph_ffi.so once, and reads its XLA targets and memory sizes.

Invariant: this module imports no array library and touches no GPU.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Iterator, Union

from . import abi, errors
from .integers import INT64, integer, options, put
from .native import FOLDER, Path, cache_bytes, path_bytes, sentence
from .specs import DTYPES, number_of

PATH = os.path.join(FOLDER, "libfigraph_ffi.so")  # for tvm_ffi.load_module

library = abi.load(PATH, is_ffi=True)


def must(status: int) -> None:
    """Raises the exception for a status that is not FIG_OK."""
    if status != abi.FIG_OK:
        raise errors.of(status, sentence(library.fig_ffi_message()))


def targets() -> Iterator[tuple[str, int, int]]:
    """Yields the name, the CPU handler and the CUDA handler of each XLA target."""
    target = abi.options(abi.fig_ffi_target)
    index = 0
    while library.fig_ffi_read_target(index, target) == abi.FIG_OK:
        yield target.name.decode(), target.host, target.cuda
        index += 1


@functools.lru_cache(maxsize=1024)
def scratch_of(dtype: str, kv_dtype: str, q_heads: int, kv_heads: int, head_dim: int, rows: int,
               kv_length: int, page_size: int = 0, window: int = 0, row_tokens: int = 1,
               deterministic: bool = False, packed: bool = False,
               latent_dim: int = 0, score: int = 0) -> tuple[int, int]:
    """Returns the bytes of a plan and of its scratch that suffice on every chip the library knows.
    q_heads is 0 if the call only appends. packed: rows have at most row_tokens query tokens each,
    as query_start_loc says. latent_dim: 512 for a latent cache. score: a number from
    score_number."""
    asked = options(
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
        row_tokens=row_tokens,
        deterministic=int(deterministic),
        packed=int(packed),
        latent_dim=latent_dim,
        score=score,
    )
    told = abi.options(abi.fig_ffi_scratch)
    must(library.fig_ffi_read_scratch(asked, told))
    return told.plan_bytes, told.best_bytes


@functools.lru_cache(maxsize=1024)
def score_number(text: str) -> int:
    """Makes a score known to the operators; returns the number by which calls name it."""
    number = ctypes.c_int64()
    must(library.fig_ffi_add_score(text.encode(), number))
    return number.value


def compile_scores(compiles: bool = True, *, cache: Union[Path, bool, None] = None) -> None:
    """Has the operators of figraph.torch and figraph.jax, and TVM FFI and XLA, compile scores on a
    GPU from now on, or not. This has not run on a GPU yet. cache: as score_cache of
    figraph.Engine. Work that was captured or compiled before stays as it is."""
    must(library.fig_ffi_compile_scores(options(abi.fig_ffi_score_options, compile_scores=compiles,
                                                score_cache=cache_bytes(cache))))


@functools.lru_cache(maxsize=1024)
def check_rope(head_dim: int, **fields: Any) -> None:
    """Raises if the XLA targets would refuse this RoPE."""
    must(library.fig_ffi_check_rope(put(abi.fig_rope_spec(), **fields),
                                    integer("head_dim", head_dim)))


def load(path: Path) -> str:
    """Loads a .fig file for as long as the process lives; returns its content_id."""
    content_id = ctypes.create_string_buffer(65)
    must(library.fig_ffi_load(path_bytes(path), content_id))
    return content_id.value.decode()


def segments_of(content_id: str) -> list[str]:
    """Returns the names of a loaded file's segments. XLA attributes number them from 1."""
    names: list[str] = []
    told = abi.options(abi.fig_ffi_segment)
    while True:
        status = library.fig_ffi_read_segment(content_id.encode(), len(names) + 1, told)
        if status == abi.FIG_INVALID:
            return names
        must(status)
        names.append(told.name.decode())


def program_scratch_of(content_id: str, rows: int, kv_length: int) -> tuple[int, int]:
    """Returns the bytes of a plan and of its scratch for a loaded file. They suffice on every chip
    that the library knows."""
    told = abi.options(abi.fig_ffi_scratch)
    must(library.fig_ffi_read_program_scratch(content_id.encode(), integer("rows", rows),
                                              integer("kv_length", kv_length, INT64), told))
    return told.plan_bytes, told.best_bytes


def counts() -> abi.fig_ffi_counts:
    """Returns the number of calls that ran eagerly, of calls that a graph captured, and of
    operations newly created."""
    told = abi.options(abi.fig_ffi_counts)
    must(library.fig_ffi_read_counts(told))
    return told
