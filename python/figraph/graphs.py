"""graphs.py: records, lowers, saves and loads a step, and reports how planning would cut it.

Invariant: Graphs never change, so any number of engines and threads may share them.
"""

from __future__ import annotations

import collections.abc
import ctypes
import dataclasses
import os
import tempfile
import weakref
from typing import Any, Optional, Sequence

from . import abi, errors, program
from .integers import integer, integers, options
from .native import Handle, Path, Unique, encoded, library, must, path_bytes, text
from .scores import Masked, Score, joined
from .specs import DTYPES, LAYOUTS, Model, Spec, name_of, spec

ROLES = {"temp": abi.FIG_ROLE_TEMP, "bound": abi.FIG_ROLE_BOUND, "state": abi.FIG_ROLE_STATE}
ROWS, PAGES, QUERIES = abi.FIG_DIM_BATCH, abi.FIG_DIM_PAGES, abi.FIG_DIM_QUERIES


@dataclasses.dataclass(frozen=True)
class Traits:
    """The machine that graphs are lowered for."""

    name: str
    compute_capability: int
    sm_count: int
    shared_bytes: int

    def to_c(self) -> abi.fig_traits:
        """Returns the struct of the C library."""
        fields = {**dataclasses.asdict(self), "name": encoded("traits.name", self.name)}
        return options(abi.fig_traits, **fields)

    @classmethod
    def of_c(cls, made: abi.fig_traits) -> Traits:
        """Converts the struct of the C library."""
        return cls(text(made.name), made.compute_capability, made.sm_count, made.shared_bytes)

    @classmethod
    def named(cls, name: str) -> Traits:
        """Returns the traits of "h200", "h100", "a100" or "host"."""
        made = abi.options(abi.fig_traits)
        must(library.fig_traits_named(made, encoded("traits", name)))
        return cls.of_c(made)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor that you may bind.

    dims[0] is -1 if it counts rows, -2 if it counts pages and -3 if it counts query tokens; there
    are `multiple` entries for each of them. In the memory of an "hnd" cache heads come before
    tokens; in dims they do not.
    """

    name: str
    role: str
    dtype: str
    dims: tuple[int, ...]
    multiple: int
    layout: str


@dataclasses.dataclass(frozen=True)
class Memory:
    """The memory that an engine allocates in addition to the bound tensors. Only exec_bytes is an
    estimate; all other numbers are exact."""

    exec_count: int
    workspace_bytes: int
    plan_bytes: int
    state_bytes: int
    pinned_bytes: int
    exec_bytes: int
    token_bytes: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a step would be cut: the KV work of its first class of attention, in tiles.

    Rows of more than 8 query tokens are chunks, unless the cache is latent. Only the fields from
    `chunks` on count them. `unshared` is the reason why no rows share pages, or None.
    """

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
    cheapest: int
    by_units: int
    once: int
    units_most: int
    chunks: int
    strip_workers: int
    strip_tile_tokens: int
    strips: int
    strip_pieces: int
    strip_tiles: int
    strip_tiles_most: int
    strip_tiles_least: int
    strip_partials: int
    strip_partial_limit: int
    groups: int
    readers: int
    shared_groups: int
    shared_rows: int
    tails: int
    shared_read: int
    shared_saved: int
    unshared: Optional[str]
    prefix_strips: int
    prefix_tiles: int
    worker_tiles: tuple[int, ...] = dataclasses.field(repr=False)


class Graphs(Unique):
    """A step lowered for every bucket of rows and tokens: the contents of a .fig file.

    figraph.capture() and figraph.load() return it.
    """

    def __init__(self, handle: ctypes._Pointer) -> None:
        self._handle = Handle("the graphs are", handle)
        weakref.finalize(self, self._handle.end, library.fig_graphs_destroy)
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

    @property
    def handle(self) -> Any:
        """Returns the fig_graphs *, for functions of figraph.abi that this class lacks."""
        return self._handle.get()

    def save(self, path: Path) -> None:
        """Writes the file. A crash leaves the old file or the new one, never a partial file."""
        must(library.fig_graphs_save(self.handle, path_bytes(path)))

    @property
    def sharing(self) -> Optional[str]:
        """Returns the reason why rows of no step can share pages, or None if they can."""
        reason = library.fig_graphs_sharing(self.handle)
        return None if reason is None else reason.decode()

    def plan(self, lengths: Sequence[int], *, row_tokens: Optional[Sequence[int]] = None,
             queries: Optional[Sequence[int]] = None,
             forks: Optional[Sequence[tuple[int, int]]] = None) -> Plan:
        """Returns how a step of these lengths would be cut, without running it.

        lengths: the number of tokens of each row's sequence, this step's token included; 0 is an
        idle row. row_tokens: the number of query tokens of each row; the default is the spec's
        number. queries: the same for a packed program, as in Engine.step. forks: for each row, an
        earlier row, or the row itself, and the number of tokens whose pages both have, as after
        Engine.fork; a number of 0 means none.
        """
        kv_lengths = integers("kv_lengths", lengths)
        step = options(abi.fig_step, rows=len(kv_lengths), kv_lengths=kv_lengths)
        if row_tokens is not None:
            step.row_tokens = integers_of_rows("row_tokens", row_tokens, step.rows)
        if queries is not None:
            step.query_counts = integers_of_rows("queries", queries, step.rows)
        report = abi.options(abi.fig_plan_report)
        if forks is not None:
            pairs = [fork_of(f"forks[{i}]", pair) for i, pair in enumerate(forks)]
            report.fork_sources = integers_of_rows("forks", [row for row, _ in pairs], step.rows)
            report.fork_lengths = integers_of_rows("forks", [tokens for _, tokens in pairs],
                                                   step.rows)
        must(library.fig_graphs_plan(self.handle, step, report))
        tiles = (ctypes.c_int32 * report.workers)()
        report.worker_tiles, report.worker_capacity = tiles, report.workers
        must(library.fig_graphs_plan(self.handle, step, report))
        names = [field.name for field in dataclasses.fields(Plan)][:-1]
        made = {name: getattr(report, name) for name in names}
        made["unshared"] = None if report.unshared is None else report.unshared.decode()
        return Plan(**made, worker_tiles=tuple(tiles))

    def memory(self, slots: int = 0) -> Memory:
        """Returns the memory that an engine with `slots` slots in its plan ring would allocate."""
        info = abi.options(abi.fig_memory_info)
        must(library.fig_graphs_memory(self.handle, integer("slots", slots), info))
        return Memory(*(getattr(info, field.name) for field in dataclasses.fields(Memory)))

    def describe(self, *, bucket: int = 0, columns: int = 80) -> str:
        """Returns the text of `figraph inspect`: a summary, or the launches of one bucket."""
        bucket, columns = integer("bucket", bucket), integer("columns", columns)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graphs.fig")
            self.save(path)
            return program.inspect(path, bucket, columns)


def load(path: Path) -> Graphs:
    """Reads a .fig file, checks all of it and lowers it again.

    Raises errors.Format if it is not a .fig file or is damaged. Raises errors.Stale if this library
    cannot use it; then capture it again.
    """
    handle = ctypes.POINTER(abi.fig_graphs)()
    must(library.fig_graphs_load(handle, path_bytes(path)))
    return Graphs(handle)


def integers_of_rows(field: str, values: Sequence[int], rows: int) -> Any:
    """Returns an int32 array of C, with one number for each row."""
    made = integers(field, values)
    if len(made) != rows:
        raise errors.of(abi.FIG_INVALID, f"{field} has {len(made)} of {rows} rows")
    return made


def fork_of(field: str, pair: Sequence[int]) -> tuple[int, int]:
    """Returns a pair (row, tokens) as integers that C can take."""
    numbers = tuple(integers(field, pair))
    if len(numbers) != 2:
        raise ValueError(f"{field} is {pair!r}, it must be a row and a number of tokens")
    return numbers


def bucket_of(field: str, pair: Sequence[int]) -> abi.fig_bucket:
    """Returns a pair (rows, tokens per row) as a C struct."""
    numbers = tuple(integers(field, pair))
    if len(numbers) != 2:
        raise ValueError(f"{field} is {pair!r}, it must be rows and tokens of a row")
    return abi.fig_bucket(*numbers)


def lower(recorded: ctypes._Pointer, traits: Traits, buckets: Any, deterministic: bool) -> Graphs:
    """Lowers a finished program."""
    asked = options(abi.fig_lower_options, deterministic=deterministic)
    asked.traits = ctypes.pointer(traits.to_c())
    if buckets is not None:
        if not isinstance(buckets, collections.abc.Iterable):
            raise TypeError(f"buckets is {buckets!r}, it must be pairs of rows and tokens of a row")
        pairs = [bucket_of(f"buckets[{i}]", pair) for i, pair in enumerate(buckets)]
        asked.buckets = (abi.fig_bucket * len(pairs))(*pairs)
        asked.bucket_count = len(pairs)
    handle = ctypes.POINTER(abi.fig_graphs)()
    must(library.fig_graphs_lower(handle, recorded, asked))
    return Graphs(handle)


def read_on_device(recorded: ctypes._Pointer, names: Sequence[str], batch_limit: int) -> None:
    """Records that the step reads lengths, and positions and query_starts if named, from device
    memory. query_starts has batch_limit + 1 numbers."""
    known = ("lengths", "positions", "query_starts")
    if list(names) not in ([*known[:1]], [*known[:2]], [*known[::2]], [*known]):
        raise ValueError(f"reads is {tuple(names)}, it must be \"lengths\", then perhaps "
                         "\"positions\", then perhaps \"query_starts\"")
    rows = dict.fromkeys(known, ROWS) | {"query_starts": batch_limit + 1}
    tensors = [
        library.fig_program_tensor(
            recorded,
            abi.options(abi.fig_tensor_info, name=name.encode(), role=abi.FIG_ROLE_BOUND,
                        dtype=abi.FIG_I32, rank=1, dims=(rows[name],)),
        )
        if name in names else abi.fig_tensor()
        for name in known
    ]
    library.fig_program_read_queries(recorded, *tensors)


def capture_for(
    model: Model,
    traits: Traits,
    *,
    buckets: Optional[Sequence[tuple[int, int]]] = None,
    deterministic: bool = False,
    reads: Sequence[str] = (),
    score: Optional[Union[str, Score]] = None,
    mask: Optional[Masked] = None,
    q_rope: bool = False,
    **changes: Any,
) -> Graphs:
    """Does the work of figraph.capture for known traits."""
    if q_rope and (score is not None or mask is not None):
        raise errors.of(abi.FIG_INVALID, "q_rope is True beside a score or a mask, which latent "
                        "attention does not evaluate")
    recorded = ctypes.POINTER(abi.fig_program)()
    wanted = spec(model, **changes).to_c()
    must(library.fig_program_create(recorded, wanted))
    try:
        if reads:
            read_on_device(recorded, reads, wanted.batch_limit)
        if q_rope:
            library.fig_program_decode_step_parts(recorded)
        elif score is None and mask is None:
            library.fig_program_decode_step(recorded)
        else:
            given = joined(score, mask)  # a name, so that it lives while the call reads it
            library.fig_program_decode_step_score(recorded, given.handle)
        must(library.fig_program_finish(recorded))
        return lower(recorded, traits, buckets, deterministic)
    finally:
        library.fig_program_destroy(recorded)
