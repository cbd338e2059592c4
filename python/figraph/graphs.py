"""graphs.py: a step recorded, lowered for every bucket, saved and loaded; what planning it tells.

Invariant: Graphs never change, so any number of engines and threads may share them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import weakref
from typing import Any, Optional, Sequence, Union

from . import abi
from .native import library, must, text
from .specs import DTYPES, LAYOUTS, Model, Spec, name_of, spec

ROLES = {"temp": abi.FIG_ROLE_TEMP, "bound": abi.FIG_ROLE_BOUND, "state": abi.FIG_ROLE_STATE}
ROWS, PAGES = abi.FIG_DIM_BATCH, abi.FIG_DIM_PAGES


@dataclasses.dataclass(frozen=True)
class Traits:
    """The machine that graphs are lowered for."""

    name: str
    compute_capability: int
    sm_count: int
    shared_bytes: int

    def to_c(self) -> abi.fig_traits:
        """As the library takes it."""
        fields = {**dataclasses.asdict(self), "name": self.name.encode()}
        return abi.options(abi.fig_traits, **fields)

    @classmethod
    def of_c(cls, made: abi.fig_traits) -> Traits:
        """From what the library has."""
        return cls(text(made.name), made.compute_capability, made.sm_count, made.shared_bytes)

    @classmethod
    def named(cls, name: str) -> Traits:
        """Of "h200", "h100", "a100" or "host"."""
        made = abi.options(abi.fig_traits)
        must(library.fig_traits_named(made, name.encode()))
        return cls.of_c(made)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor that a caller may bind.

    dims[0] is -1 where it counts rows, `multiple` for each, and -2 where it counts pages. An "hnd"
    cache has its heads before its tokens in memory, though not in dims.
    """

    name: str
    role: str
    dtype: str
    dims: tuple[int, ...]
    multiple: int
    layout: str


@dataclasses.dataclass(frozen=True)
class Memory:
    """What an engine takes of a device, beside what is bound. Only exec_bytes is an estimate."""

    exec_count: int
    workspace_bytes: int
    plan_bytes: int
    state_bytes: int
    pinned_bytes: int
    exec_bytes: int
    token_bytes: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a step would be cut: the KV work of its first kind of attention, tile by tile."""

    bucket: int
    workers: int
    tile_tokens: int
    heads: int
    tiles: int
    tiles_most: int
    tiles_least: int
    partials: int
    partial_limit: int
    plan_bytes: int
    plan_bytes_limit: int
    worker_tiles: tuple[int, ...] = dataclasses.field(repr=False)


def integers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    """An array of C's, of a list or of anything that has tolist(), as arrays have."""
    plain = values.tolist() if hasattr(values, "tolist") else values
    return (ctypes.c_int32 * len(plain))(*plain)


class Graphs:
    """A step, lowered for every bucket of rows and tokens: what a .fig file stands for.

    Made by figraph.capture or figraph.load.
    """

    def __init__(self, handle: ctypes._Pointer) -> None:
        self.handle = handle
        weakref.finalize(self, library.fig_graphs_destroy, handle)
        info = abi.options(abi.fig_graphs_info)
        must(library.fig_graphs_read_info(handle, info))
        self.spec = Spec.of_c(info.spec.contents)
        self.traits = Traits.of_c(info.traits.contents)
        self.bucket_count: int = info.bucket_count
        self.relowered_count: int = info.relowered_count
        self.content_id = text(info.content_id)
        self.tensors = {tensor.name: tensor for tensor in self._read_tensors()}

    def _read_tensors(self) -> list[Tensor]:
        tensors = []
        info = abi.options(abi.fig_tensor_info)
        while library.fig_graphs_tensor(self.handle, len(tensors), info) == abi.FIG_OK:
            tensors.append(
                Tensor(
                    text(info.name),
                    name_of(ROLES, info.role),
                    name_of(DTYPES, info.dtype),
                    tuple(info.dims[: info.rank]),
                    info.multiple,
                    name_of(LAYOUTS, info.layout),
                )
            )
        return tensors

    def __repr__(self) -> str:
        return (
            f"<figraph.Graphs {self.content_id[:12]}: {self.bucket_count} buckets for "
            f"{self.traits.name}, {len(self.tensors)} tensors>"
        )

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the file. A crash leaves the old file or the new one, never a part."""
        must(library.fig_graphs_save(self.handle, os.fsencode(path)))

    def plan(self, lengths: Sequence[int], *, row_tokens: Optional[Sequence[int]] = None) -> Plan:
        """What planning a step of these lengths would do; nothing runs.

        lengths: tokens of each row's sequence, this step's included; 0 is an idle row. row_tokens:
        how many of each row's query tokens are there; all, unless given.
        """
        step = abi.options(abi.fig_step, rows=len(lengths), kv_lengths=integers(lengths))
        if row_tokens is not None:
            step.row_tokens = integers(row_tokens)
        report = abi.options(abi.fig_plan_report)
        must(library.fig_graphs_plan(self.handle, step, report))
        tiles = (ctypes.c_int32 * report.workers)()
        report.worker_tiles, report.worker_capacity = tiles, report.workers
        must(library.fig_graphs_plan(self.handle, step, report))
        names = [field.name for field in dataclasses.fields(Plan)][:-1]
        return Plan(*(getattr(report, name) for name in names), worker_tiles=tuple(tiles))

    def memory(self, slots: int = 0) -> Memory:
        """What an engine with so many slots in its plan ring takes, before one is opened."""
        info = abi.options(abi.fig_memory_info)
        must(library.fig_graphs_memory(self.handle, slots, info))
        return Memory(*(getattr(info, field.name) for field in dataclasses.fields(Memory)))

    def describe(self, *, bucket: int = 0, columns: int = 80) -> str:
        """What `figraph inspect` prints: a summary, or the launches of one bucket."""
        parts: list[bytes] = []
        take = abi.fig_write_callback(lambda _, piece, count: parts.append(piece[:count]))
        options = abi.options(abi.fig_print_options, bucket=bucket, columns=columns)
        must(library.fig_graphs_print(self.handle, options, take, None))
        return b"".join(parts).decode()


def load(path: Union[str, os.PathLike[str]]) -> Graphs:
    """Reads a .fig file, checks all of it and lowers it again.

    errors.Format: not such a file, or damaged. errors.Stale: capture it anew with this library.
    """
    handle = ctypes.POINTER(abi.fig_graphs)()
    must(library.fig_graphs_load(handle, os.fsencode(path)))
    return Graphs(handle)


def lower(recorded: ctypes._Pointer, traits: Traits, buckets: Any, deterministic: bool) -> Graphs:
    """Lowers a program that was finished."""
    options = abi.options(abi.fig_lower_options, deterministic=int(deterministic))
    options.traits = ctypes.pointer(traits.to_c())
    if buckets is not None:
        options.buckets = (abi.fig_bucket * len(buckets))(*buckets)
        options.bucket_count = len(buckets)
    handle = ctypes.POINTER(abi.fig_graphs)()
    must(library.fig_graphs_lower(handle, recorded, options))
    return Graphs(handle)


def read_on_device(recorded: ctypes._Pointer, names: Sequence[str]) -> None:
    """Records that lengths, and positions where they are named, are on the device."""
    if list(names) not in (["lengths"], ["lengths", "positions"]):
        raise ValueError(f'reads is {tuple(names)}, it must be ("lengths",) or '
                         '("lengths", "positions")')
    tensors = [
        library.fig_program_tensor(
            recorded,
            abi.options(abi.fig_tensor_info, name=name.encode(), role=abi.FIG_ROLE_BOUND,
                        dtype=abi.FIG_I32, rank=1, dims=(ROWS,)),
        )
        for name in names
    ]
    library.fig_program_read_lengths(recorded, *(tensors + [abi.fig_tensor()])[:2])


def capture_for(
    model: Model,
    traits: Traits,
    *,
    buckets: Optional[Sequence[tuple[int, int]]] = None,
    deterministic: bool = False,
    reads: Sequence[str] = (),
    **changes: Any,
) -> Graphs:
    """figraph.capture for a machine that is known."""
    recorded = ctypes.POINTER(abi.fig_program)()
    wanted = spec(model, **changes).to_c()
    must(library.fig_program_create(recorded, wanted))
    try:
        if reads:
            read_on_device(recorded, reads)
        library.fig_program_decode_step(recorded)
        must(library.fig_program_finish(recorded))
        return lower(recorded, traits, buckets, deterministic)
    finally:
        library.fig_program_destroy(recorded)
