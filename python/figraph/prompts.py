"""prompts.py: attention of rows with many query tokens over a paged cache.

The host makes the plan of a step from the lengths of its rows; runs are then enqueued on the
caller's stream. Invariant: the caller keeps all memory alive until the run, or the graph that
captured it, no longer needs it.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, NamedTuple, Optional, Sequence

from . import abi, errors
from .arrays import CUDA, HOST, Place, place_of
from .integers import integer, integers, options, put
from .native import Handle, Unique, library, must
from .streams import stream_number

DEVICES = {"auto": abi.FIG_DEVICE_AUTO, HOST: abi.FIG_DEVICE_HOST, CUDA: abi.FIG_DEVICE_CUDA}
DTYPES = {"f16": abi.FIG_F16, "bf16": abi.FIG_BF16}
ALIGNMENT = 64


def writable(name: str, place: Place) -> None:
    """Refuses an array that a run would write to, but that is read-only."""
    if place.is_constant:
        raise errors.of(abi.FIG_INVALID, f"{name} is read-only, and a run writes to it")


class PromptsMemory(NamedTuple):
    """Bytes that a step needs: for its plan, for scratch, and for the zeros at the beginning of
    scratch. Each run leaves these bytes zero."""

    plan_bytes: int
    scratch_bytes: int
    zero_bytes: int


class Prompts(Unique):
    """Attention of one shape, for rows with any number of query tokens over a paged cache.

    dtype: "f16" or "bf16", of q, out and the cache. page_size: tokens of a page. window: the number
    of tokens that a query sees, its own included; 0 means all. sm_scale: 0 means head_dim ** -0.5.
    soft_cap: 0 turns the soft cap off. deterministic: make the bits of a row's result independent
    of other rows. shared_limit: the most query tokens of rows that share prefixes. device: "cuda",
    "host" or "auto"; ordinal: the number of the GPU. Any thread may use this object.

    K and V of all tokens must be in the cache. The plan of a step depends only on the arguments of
    plan(), and all layers of a model may use the same plan. On compute capability 9.0, kernels on
    warpgroups compute the attention.

    Here a row has one older token in the cache and two query tokens:

    >>> prompts = Prompts(dtype="f16", q_heads=2, kv_heads=1, head_dim=64, page_size=4,
    ...                   device="host")
    >>> plan = prompts.plan([0, 2], [3], page_columns=1)
    >>> prompts.memory(rows=1, tokens=2).plan_bytes >= len(plan)
    True
    >>> prompts.plan([0, 2], [5], page_columns=1)
    Traceback (most recent call last):
    figraph.errors.Invalid: plan: length of row 0 is 5, limits 2, its query tokens, to 4
    """

    def __init__(self, *, dtype: str, q_heads: int, kv_heads: int, head_dim: int, page_size: int,
                 window: int = 0, sm_scale: float = 0.0, soft_cap: float = 0.0,
                 deterministic: bool = False, shared_limit: int = 0, device: str = "auto",
                 ordinal: int = 0) -> None:
        if dtype not in DTYPES:
            raise ValueError(f'dtype is "{dtype}", it must be {" or ".join(DTYPES)}')
        if device not in DEVICES:
            raise ValueError(f'device is "{device}", it is one of {", ".join(DEVICES)}')
        asked = options(abi.fig_prompts_options, device=DEVICES[device], ordinal=ordinal,
                        dtype=DTYPES[dtype], q_heads=q_heads, kv_heads=kv_heads, head_dim=head_dim,
                        page_size=page_size, window=window, sm_scale=sm_scale, soft_cap=soft_cap,
                        deterministic=deterministic, shared_limit=shared_limit)
        handle = ctypes.POINTER(abi.fig_prompts)()
        must(library.fig_prompts_open(handle, asked))
        self._open = Handle("the prompts are", handle)
        weakref.finalize(self, self._open.end, library.fig_prompts_close)
        self.dtype, self.ordinal = dtype, ordinal
        self.q_heads, self.kv_heads, self.head_dim = q_heads, kv_heads, head_dim
        self.page_size = page_size
        on_gpu = library.fig_prompts_device(handle) == abi.FIG_DEVICE_CUDA
        self.device = CUDA if on_gpu else HOST

    def memory(self, rows: int, tokens: int) -> PromptsMemory:
        """Returns the memory that is enough for any step of at most `rows` rows and `tokens` query
        tokens."""
        told = abi.options(abi.fig_prompts_memory)
        must(library.fig_prompts_measure(self._open.get(), integer("rows", rows),
                                         integer("tokens", tokens), told))
        return PromptsMemory(told.plan_bytes, told.scratch_bytes, told.zero_bytes)

    def plan(self, query_start: Sequence[int], lengths: Sequence[int], *, page_columns: int,
             sees_all: bool = False,
             prefixes: Sequence[tuple[int, int, int]] = (),
             page_table: Optional[Sequence[int]] = None) -> memoryview:
        """Returns the plan of a step, to be copied to the device.

        query_start: row r has query tokens [query_start[r], query_start[r + 1]). lengths: the
        number of tokens of each row, its query tokens included. page_columns: the number of entries
        in each row of the page table. sees_all: each query sees all tokens of its row, not only
        those up to its own. prefixes: (first row, rows, tokens) of rows that begin with the same
        tokens, in the same pages; attention reads these tokens once for all of the rows. A nested
        prefix comes after the prefix around it and has more tokens. page_table: the page numbers of
        all rows of the page table, one row behind the other; plan() then finds the prefixes itself,
        and uses those that cost less when read once."""
        starts, tokens = integers("query_start", query_start), integers("lengths", lengths)
        rows = len(tokens)
        if len(starts) != rows + 1:
            raise ValueError(f"query_start has {len(starts)} numbers, it must have {rows + 1}: one "
                             "more than lengths")
        size = self.memory(rows, max(starts[rows] - starts[0], 0)).plan_bytes
        memory = (ctypes.c_uint8 * (size + ALIGNMENT))()
        skip = -ctypes.addressof(memory) % ALIGNMENT
        shared = (abi.fig_prompts_prefix * len(prefixes))()
        for place, (first, count, length) in enumerate(prefixes):
            put(shared[place], first_row=first, rows=count, tokens=length)
        step = options(abi.fig_prompts_step, rows=rows, query_start=starts, lengths=tokens,
                       page_columns=page_columns, sees_all=int(bool(sees_all)),
                       prefix_count=len(prefixes), prefixes=shared)
        if page_table is not None:
            step.page_table = entries = integers("page_table", page_table)
            step.table_stride = step.page_columns
            if len(entries) != rows * step.page_columns:
                raise ValueError(f"page_table has {len(entries)} numbers, it must have "
                                 f"{rows * step.page_columns}: page_columns for each row")
        must(library.fig_prompts_plan(self._open.get(), step, ctypes.addressof(memory) + skip,
                                      size))
        return memoryview(memory)[skip : skip + size].cast("B")

    def _place(self, name: str, array: Any, dtype: str, *shape: int) -> Place:
        """Checks an array and returns its Place. -1 matches a dim of any size."""
        place = place_of(array, name)
        wanted = ", ".join("any" if n < 0 else str(n) for n in shape)
        if len(place.shape) != len(shape) or any(n not in (-1, own)
                                                 for n, own in zip(shape, place.shape)):
            raise errors.of(abi.FIG_INVALID, f"{name} is {list(place.shape)}, it must be "
                                             f"[{wanted}]")
        if place.dtype != dtype and (place.dtype or place.item_bytes != 2 or dtype != "bf16"):
            raise errors.of(abi.FIG_INVALID, f"{name} is {place.dtype or 'of another type'}, it "
                                             f"must be {dtype}")
        if place.strides and place.strides[-1] != 1 and place.shape[-1] > 1:
            raise errors.of(abi.FIG_INVALID, f"{name}: the last stride is {place.strides[-1]}, it "
                                             "must be 1")
        if not place.is_on(self.device) or place.ordinal != self.ordinal:
            raise errors.of(abi.FIG_INVALID, f"{name} is not memory of the device {self.device} "
                                             f"{self.ordinal}")
        return place

    def _lent(self, name: str, array: Any, *, is_written: bool = False) -> tuple[int, int]:
        """Returns the address and the size in bytes of an array of any dtype."""
        place = place_of(array, name)
        if is_written:
            writable(name, place)
        if not place.is_on(self.device) or place.ordinal != self.ordinal:
            raise errors.of(abi.FIG_INVALID, f"{name} is not memory of the device {self.device} "
                                             f"{self.ordinal}")
        return place.address, place.reach_bytes()

    def _caches(self, call: Any, k_cache: Any, v_cache: Any, layout: str) -> None:
        page = (self.page_size, self.kv_heads)
        if layout not in ("nhd", "hnd"):
            raise ValueError(f'layout is "{layout}", it must be nhd or hnd')
        for name, array, strides in (("k", k_cache, call.k_strides), ("v", v_cache,
                                                                      call.v_strides)):
            dims = page if layout == "nhd" else page[::-1]
            place = self._place(f"{name}_cache", array, self.dtype, -1, *dims, self.head_dim)
            if name == "v" and place.shape[0] != call.pages:
                raise errors.of(abi.FIG_INVALID, f"v_cache has {place.shape[0]} pages and k_cache "
                                                 f"{call.pages}")
            token, head = place.strides[1:3] if layout == "nhd" else place.strides[2:0:-1]
            strides[:] = place.strides[0], token, head
            setattr(call, f"{name}_cache", place.address)
            call.pages = place.shape[0]

    def run(self, *, q: Any, k_cache: Any, v_cache: Any, page_table: Any, out: Any, plan: Any,
            scratch: Any, lse: Any = None, sinks: Any = None, layout: str = "nhd",
            early_reads: bool = False, stream: Any = None) -> None:
        """Enqueues attention on the stream. On the host it has ended when run() returns.

        q and out: [tokens, q_heads, head_dim]; lse: [tokens, q_heads], base 2, float32. Caches:
        [pages, page_size, kv_heads, head_dim] or, with layout "hnd", [pages, kv_heads, page_size,
        head_dim]. page_table: [rows, columns], int32, with at least the columns that the plan was
        made for. plan: the bytes of plan() on the device. scratch: memory of the size that memory()
        returns, with zeros in its first zero_bytes. sinks: [q_heads], float32. early_reads: the run
        may read the plan, the page table, and K and V of the tokens before each row's queries while
        the preceding work on the stream still runs; they must have been written before that work
        began."""
        call = abi.options(abi.fig_prompts_call)
        queries = self._place("q", q, self.dtype, -1, self.q_heads, self.head_dim)
        tokens = queries.shape[0]
        results = self._place("out", out, self.dtype, tokens, self.q_heads, self.head_dim)
        writable("out", results)
        table = self._place("page_table", page_table, "i32", -1, -1)
        call.tokens = integer("tokens", tokens)
        call.q, call.out, call.page_table = queries.address, results.address, ctypes.cast(
            table.address, ctypes.POINTER(ctypes.c_int32))
        call.q_strides[:], call.out_strides[:] = queries.strides[:2], results.strides[:2]
        call.table_stride = table.strides[0]
        self._caches(call, k_cache, v_cache, layout)
        call.plan = self._lent("plan", plan)[0]
        call.scratch, call.scratch_bytes = self._lent("scratch", scratch, is_written=True)
        floats = ctypes.POINTER(ctypes.c_float)
        if lse is not None:
            place = self._place("lse", lse, "f32", tokens, self.q_heads)
            writable("lse", place)
            call.lse, call.lse_stride = ctypes.cast(place.address, floats), place.strides[0]
        if sinks is not None:
            place = self._place("sinks", sinks, "f32", self.q_heads)
            call.sinks = ctypes.cast(place.address, floats)
        call.early_reads = int(bool(early_reads))
        call.stream = stream_number(stream) or None
        self.launch(call)

    def launch(self, call: Any) -> None:
        """Enqueues a fig_prompts_call, for callers that have read its addresses and strides
        themselves."""
        must(library.fig_prompts_run(self._open.get(), call))
