"""engine.py: opens graphs on a device, binds arrays and runs steps.

stage(), launch() and step() are the hot path. If the lengths are a list, each of them is one call
of a function that steps.py makes. Invariant: the engine holds every array and callback that the C
library may still use. It holds a replaced array or callback until all steps staged before the
replacement have ended or were taken back.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import sys
import weakref
from types import TracebackType
from typing import Any, Callable, Mapping, NoReturn, Optional, Sequence, Union

from . import abi, errors, forms, keywords
from .arrays import CUDA, HOST, Place, place_of
from .graphs import Graphs, Tensor, Traits, integers_of_rows, load
from .integers import INT64, UINT64, integer, integers, options, packed, put
from .native import Handle, Path, Unique, cache_bytes, encoded, library, must, sentence
from .stats import Progress, Stats
from .steps import Steps
from .streams import stream_cell, stream_number

DEVICES = {"auto": abi.FIG_DEVICE_AUTO, HOST: abi.FIG_DEVICE_HOST, CUDA: abi.FIG_DEVICE_CUDA}
SHARES = {True: 0, False: -1, "always": 1}


# Rarely used keywords of a step: those with a number for each row, and those with one number.
ROWS_OF_MORE = ("positions", "sequences", "row_tokens", "queries")
MORE = dict.fromkeys((*ROWS_OF_MORE, "horizon", "token_limit"))
FIELDS = {"queries": "query_counts"}  # where the field of C has another name


def microseconds(seconds: Optional[float]) -> int:
    """Returns the timeout for C; None and infinity become -1, which waits forever."""
    if seconds is None or seconds == math.inf:
        return -1
    if not isinstance(seconds, (int, float)) or math.isnan(seconds):
        raise TypeError(f"timeout is {seconds!r}, it must be a number of seconds")
    return integer("timeout in microseconds", int(seconds * 1e6), INT64)


@dataclasses.dataclass(frozen=True)
class Call:
    """The argument of a callback. reads and writes are arrays of addresses, in recorded order."""

    device: str
    stream: int  # the number of the CUstream; 0 on the host
    batch: int
    kv: int
    rows: int
    tag: int
    payload: bytes
    reads: Any
    writes: Any

    @classmethod
    def of_c(cls, given: abi.fig_call_args) -> Call:
        """Converts the struct that the library passes to a callback."""
        payload = ctypes.string_at(given.bytes, given.byte_count) if given.byte_count else b""
        return cls(
            CUDA if given.device == abi.FIG_DEVICE_CUDA else HOST,
            given.stream or 0,
            given.bucket.batch,
            given.bucket.kv,
            given.rows,
            given.tag,
            payload,
            given.reads,
            given.writes,
        )


@dataclasses.dataclass
class Former:
    """A replaced array or callback. Steps staged before the replacement may still use it."""

    staged: int  # the number of launches asked for when it was replaced
    holds: Any


@dataclasses.dataclass
class Held:
    """The arrays and callbacks that C may still use, kept until the engine is closed."""

    bound: dict[str, Any]  # the owner of each tensor's memory; None: the engine owns it
    callbacks: dict[str, Any]
    former: list[Former]
    raised: list[BaseException]  # exceptions of callbacks that were not raised to the caller yet

    def replace(self, of: dict[str, Any], name: str, holds: Any, staged: int) -> None:
        """Stores an object under a name and keeps the object that it replaces."""
        was, of[name] = of.get(name), holds
        if was is not None:
            self.former.append(Former(staged, was))

    def take_back(self, staged: int) -> None:
        """Notes that the number of launches asked for has fallen to `staged`."""
        for former in self.former:
            former.staged = min(former.staged, staged)

    def let_go(self, ended: int) -> None:
        """Drops the objects that only the first `ended` launches could use."""
        self.former[:] = [former for former in self.former if former.staged > ended]

    def clear(self) -> None:
        """Drops everything."""
        for kept in (self.bound, self.former, self.callbacks, self.raised):
            kept.clear()


def close_at_end(open_engine: Handle, calls: Steps, graphs: Graphs, held: Held) -> None:
    """Closes an engine that the user left open, before Python can free its graphs and arrays. If a
    __del__ of the same reference cycle later calls a method of the engine, that method finds the
    engine closed."""
    calls.close()
    open_engine.end(library.fig_engine_close)
    held.clear()


def words_of(lengths: Sequence[int]) -> Any:
    """Returns an object whose buffer is int32. An int32 array of numpy is used without a copy."""
    if not isinstance(lengths, (list, tuple)):
        try:
            view = memoryview(lengths)  # type: ignore[arg-type]
            if view.format == "i" and view.c_contiguous and view.ndim == 1:
                return view
        except (TypeError, ValueError, BufferError):
            pass
    return packed("kv_lengths", lengths)


def fill_more(step: abi.fig_step, rows: int, given: Mapping[str, Any]) -> None:
    """Fills in the rarely used fields of a step."""
    if not given.keys() <= MORE.keys():
        keywords.check("a step", given, MORE)
    step.horizon = integer("horizon", given.get("horizon", 0))
    step.token_limit = integer("token_limit", given.get("token_limit", 0), INT64)
    for name in ROWS_OF_MORE:
        values = given.get(name)
        made = None if values is None else integers_of_rows(name, values, rows)
        setattr(step, FIELDS.get(name, name), made)


class Engine(Unique):
    """Graphs on a device. Only one thread at a time may use it; any thread may call stats().

    graphs: Graphs from figraph.capture or figraph.load, or the path of a .fig file. device: "cuda",
    "host", or "auto", which takes the GPU if there is one. stream: the stream to run on, for
    example torch's; it must stay open longer than the engine. Without it the engine opens its own.
    slots: the number of steps that may be in flight. busy_us: the microseconds that stage() may
    wait for a free slot before it raises errors.Busy. check_plans: put a checksum into each plan.
    ordinal: the number of the GPU. numa_node: the NUMA node of the plan ring. share: if rows begin
    with the same pages, read these pages once for all of them where this saves time; "always" does
    it even where it costs a GPU time; the property `sharing` gives the reason if it is not
    possible. compile_scores: on a GPU, compile scores into attention when a
    bucket is prepared. score_cache: a folder that keeps the compiled
    scores for later processes, in which only you may write; True stands for
    $XDG_CACHE_HOME/figraph/scores or ~/.cache/figraph/scores.

    >>> import figraph
    >>> with Engine(figraph.capture("tutorial", traits="host"), device="host") as engine:
    ...     engine.bind_rest(pages=32)
    ...     engine.step([1, 1])
    ...     engine.wait()
    """

    def __init__(
        self,
        graphs: Union[Graphs, Path],
        *,
        device: str = "auto",
        stream: Any = None,
        slots: int = 0,
        busy_us: int = 0,
        ordinal: int = 0,
        numa_node: int = 0,
        check_plans: bool = False,
        share: Union[bool, str] = True,
        compile_scores: bool = False,
        score_cache: Union[Path, bool, None] = None,
    ) -> None:
        self.graphs = graphs if isinstance(graphs, Graphs) else load(graphs)
        if device not in DEVICES:
            raise ValueError(f'device is "{device}", it is one of {", ".join(DEVICES)}')
        if share not in SHARES:
            raise ValueError(f'share is {share!r}, it is True, False or "always"')
        asked = options(
            abi.fig_engine_options,
            device=DEVICES[device],
            slots=slots,
            busy_us=busy_us,
            ordinal=ordinal,
            numa_node=numa_node,
            check_plans=check_plans,
            stream=stream_cell(stream),
            share=SHARES[share],
            compile_scores=compile_scores,
            score_cache=cache_bytes(score_cache),
        )
        handle = ctypes.POINTER(abi.fig_engine)()
        must(library.fig_engine_open(handle, self.graphs.handle, asked))
        self._open = Handle("the engine is", handle)
        self._given_stream = stream  # kept, since the stream must stay open longer than the engine
        self._ordinal = ordinal
        self.device = CUDA if library.fig_engine_device(handle) == abi.FIG_DEVICE_CUDA else HOST
        self._held = Held({}, {}, [], [])
        self._lengths_array = (ctypes.c_int32 * self.graphs.spec.batch_limit)()
        self._lengths = memoryview(self._lengths_array).cast("B").cast("i")
        self._rows_limit = len(self._lengths)
        self._step = abi.options(abi.fig_step, kv_lengths=self._lengths_array)
        self._calls = Steps(handle, self._step, self._lengths_array)
        self._closer = weakref.finalize(self, close_at_end, self._open, self._calls, self.graphs,
                                        self._held)
        self._is_plain = True  # the step has only lengths and a bucket

    # ---- Life ------------------------------------------------------------------------------------

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self, timeout: Optional[float] = None) -> None:
        """Waits for the steps in flight and frees all memory of the engine. A second call does
        nothing.

        timeout: in seconds. If steps still run after the timeout, close() raises errors.Timeout and
        leaves the engine unchanged.
        """
        if self._open.pointer is None:
            return
        must(library.fig_engine_close_within(self._open.pointer, microseconds(timeout)))
        self._open.pointer = None
        self._calls.close()
        self._closer.detach()
        self._held.clear()

    @property
    def handle(self) -> Any:
        """Returns the fig_engine *, for functions of figraph.abi that this class lacks."""
        return self._open.get()

    @property
    def traits(self) -> Traits:
        """Returns the traits of the machine that the engine runs on."""
        made = abi.options(abi.fig_traits)
        must(library.fig_engine_read_traits(self.handle, made))
        return Traits.of_c(made)

    @property
    def stream(self) -> int:
        """Returns the number of the engine's CUstream, for torch.cuda.ExternalStream; 0 on the
        host."""
        return library.fig_engine_stream(self.handle) or 0

    def bind_thread(self) -> None:
        """Binds this thread to the cores nearest to the GPU, among those that the thread may use.
        Raises errors.Unsupported if the system does not report the cores or forbids the change."""
        must(library.fig_engine_bind_thread(self.handle))

    # ---- Tensors ---------------------------------------------------------------------------------

    def _tensor(self, name: str) -> Tensor:
        if name not in self.graphs.tensors:
            raise errors.of(abi.FIG_INVALID, f"the program has no tensor {name} to be bound")
        return self.graphs.tensors[name]

    def _check_place(self, name: str, place: Place) -> None:
        wrong = ""
        if not place.is_on(self.device):
            wrong = f"is not memory that an engine on the device {self.device} can use"
        elif place.ordinal not in (0, self._ordinal):
            wrong = f"is on GPU {place.ordinal}, the engine on {self._ordinal}"
        elif place.is_constant:
            wrong = "is read-only, and a step may write to what is bound"
        elif place.address == 0:
            wrong = "has no memory, its address is 0"
        elif any(n > 1 and stride < 0 for n, stride in zip(place.shape, place.strides)):
            wrong = f"has strides {list(place.strides)}, none may be negative"
        if wrong:
            raise errors.of(abi.FIG_INVALID, f"tensor {name}: the array {wrong}")

    def _take_array(self, tensor: Tensor, array: Any, binding: abi.fig_binding) -> Any:
        getattr(array, "block_until_ready", lambda: None)()
        place = place_of(array, f"the array of {tensor.name}")
        self._check_place(tensor.name, place)
        forms.check(tensor, forms.rows_of(tensor, self.graphs.spec), place)
        put(binding, address=place.address, bytes=place.reach_bytes())
        binding.strides[: len(place.shape)] = forms.strides_of(tensor, place)
        return place.holds

    def bind(self, name: str, array: Any = None, *, size: int = 0) -> None:
        """Gives a tensor its memory: that of an array, or `size` zeroed bytes that the engine owns.

        The array must have __array_interface__, DLPack or __cuda_array_interface__, and the shape
        of the tensor. The dims of an "hnd" cache are in the order of memory. Only the last dim must
        have stride 1, so q, k and v may be views of one array. If your library lacks the dtype,
        pass raw elements of the same size. The engine holds the array until close(). After another
        bind() of the same name it holds the old array only until the steps staged before that
        bind() have ended. If you bind an array of JAX, JAX does not see its contents change.
        """
        tensor = self._tensor(name)
        binding = options(abi.fig_binding, name=encoded("name", name),
                          bytes=integer("size", size, UINT64))
        holds = None if array is None else self._take_array(tensor, array, binding)
        staged = self.progress().staged
        must(library.fig_engine_bind(self.handle, binding))
        self._held.replace(self._held.bound, name, holds, staged)

    def bind_all(self, arrays: Mapping[str, Any]) -> None:
        """Binds each array by its name."""
        for name, array in arrays.items():
            self.bind(name, array)

    def bind_rest(self, *, pages: int) -> None:
        """Gives each unbound tensor memory that the engine owns; caches get `pages` pages."""
        pages = integer("pages", pages)
        if pages < 1:
            raise ValueError(f"pages is {pages}, it must be at least 1")
        for name, tensor in self.graphs.tensors.items():
            if name not in self._held.bound and tensor.role == "bound":
                rows = forms.rows_of(tensor, self.graphs.spec)
                size = forms.elements(tensor, rows, pages) * forms.ITEM_BYTES[tensor.dtype]
                self.bind(name, size=size)

    def write(self, name: str, data: Any, *, offset: int = 0) -> None:
        """Copies an object with a buffer, such as bytes or a numpy array, into a tensor, after all
        steps launched so far. offset: in bytes."""
        source = memoryview(data).tobytes()
        span = options(abi.fig_span, name=encoded("name", name), offset=offset, bytes=len(source))
        must(library.fig_engine_write(self.handle, span, source))

    def read(self, name: str, size: int, *, offset: int = 0) -> bytearray:
        """Returns `size` bytes of a tensor, read after all steps launched so far. numpy.frombuffer
        accepts the result. offset: in bytes."""
        span = options(abi.fig_span, name=encoded("name", name), offset=offset,
                       bytes=integer("size", size, UINT64))
        if span.bytes > sys.maxsize:
            raise OverflowError(f"size is {size}, limit {sys.maxsize}")
        target = bytearray(span.bytes)
        must(library.fig_engine_read(self.handle, span, (ctypes.c_char * size).from_buffer(target)))
        return target

    def set_pages(
        self, sequence: int, pages: Sequence[int], *, first: int = 0, table: Optional[str] = None
    ) -> None:
        """Writes page numbers into a sequence's row of the page table, from entry `first` on.
        table: the name of one page table; the default is all tables. Steps staged after this call
        use the new pages."""
        array = integers("pages", pages)
        entries = options(
            abi.fig_pages, sequence=sequence, first=first, count=len(array), pages=array
        )
        entries.table = None if table is None else encoded("table", table)
        must(library.fig_engine_set_pages(self.handle, entries))

    def fork(
        self, source: int, target: int, length: int, *, table: Optional[str] = None
    ) -> None:
        """Gives sequence `target` the pages that the first `length` tokens of sequence `source`
        fill. Give `target` a page of its own for the tokens behind these pages. table: the name of
        one page table; the default is all tables."""
        both = options(abi.fig_fork, source=source, target=target, length=length)
        both.table = None if table is None else encoded("table", table)
        must(library.fig_engine_fork(self.handle, both))

    def register(self, name: str, callback: Callable[[Call], None]) -> None:
        """Registers the callback that does the work of the program's calls of this name.

        On the host device the callback runs in every step, on the engine's thread. On a GPU it runs
        once for each bucket while a stream captures, and must put its work on that stream. If the
        callback raises, step() or the next wait() raises errors.Callback with that exception as its
        cause.
        """

        raised = self._held.raised  # not self: the callback would keep the engine alive

        def answer(_: Any, given: Any) -> int:
            try:
                callback(Call.of_c(given.contents))
            except BaseException as error:  # no exception may pass through C
                raised.append(error)
                return 1
            return 0

        kept = abi.fig_callback(answer)
        staged = self.progress().staged
        must(library.fig_engine_register(self.handle, encoded("name", name), kept, None))
        self._held.replace(self._held.callbacks, name, kept, staged)

    def _refuse(self, status: int) -> NoReturn:
        """Raises the exception for a refused call. If a callback raised, that exception is the
        cause."""
        self.handle  # raises errors.Order if the engine is closed
        error = errors.of(status, sentence(library.fig_message()))
        cause = self._held.raised[0] if self._held.raised else None
        self._held.raised.clear()
        raise error from cause

    def _must(self, status: int) -> None:
        if status:
            self._refuse(status)

    # ---- Steps -----------------------------------------------------------------------------------

    def _fill(self, lengths: Optional[Sequence[int]], rows: int, more: Any) -> None:
        """Writes a call's arguments, except the bucket, into the engine's step struct."""
        step = self._step
        if lengths is not None:
            if not hasattr(lengths, "__len__"):
                raise TypeError(f"kv_lengths is {lengths!r}, it must be a list of integers")
            rows = len(lengths)
            if rows > self._rows_limit:
                words = f"rows is {rows}, limit {self._rows_limit}, the batch_limit"
                raise errors.of(abi.FIG_TOO_LARGE, words)
            self._lengths[:rows] = words_of(lengths)
        else:
            integer("rows", rows)
        step.rows = rows
        is_plain = lengths is not None and not more
        if not is_plain or not self._is_plain:
            self._is_plain = is_plain
            step.kv_lengths = None if lengths is None else self._lengths_array
            fill_more(step, step.rows, more)

    def _make(self, call: Callable[..., int], lengths: Optional[Sequence[int]], rows: int,
              bucket: int, more: Any) -> None:
        if type(lengths) is list and self._is_plain and not more:
            status = call(bucket, lengths)
        else:
            self._fill(lengths, rows, more)
            status = call(bucket)
        if status:
            self._refuse(status)

    def stage(self, lengths: Optional[Sequence[int]] = None, *, rows: int = 0, bucket: int = 0,
              **more: Any) -> None:
        """Chooses a bucket, plans the step and writes the plan into a slot, for a later launch.

        lengths: the number of tokens of each row's sequence, this step's token included; 0 is an
        idle row. Pass None if the program reads lengths on the device, and give `rows`. bucket:
        required if a graph that you captured launches the step. Further keywords:

        positions: the position of each row's last token.
        sequences: the number of the sequence that each row continues.
        row_tokens: the number of query tokens of each row; the others are padding.
        queries: for a packed program (Spec.query_limit), the number of query tokens of each row,
            0 to the spec's row_tokens.
        horizon: the number of launches that this plan is for.
        token_limit: if lengths are on the device, the largest sum of the tokens of all rows.

        Raises errors.Busy if every slot is in flight: call wait(), then stage() again.
        """
        self._make(self._calls.stage, lengths, rows, bucket, more)

    def launch(self) -> None:
        """Launches the oldest staged step."""
        status = self._calls.launch()
        if status:
            self._refuse(status)

    def step(self, lengths: Optional[Sequence[int]] = None, *, rows: int = 0, bucket: int = 0,
             **more: Any) -> None:
        """Stages a step and launches it. If staging or launching fails, the engine has done
        neither. Takes the keywords of stage(). Raises errors.Order if an earlier staged step was
        not launched yet."""
        self._make(self._calls.step, lengths, rows, bucket, more)

    def take_back(self) -> None:
        """Takes back the step that was staged last, or the remaining launches of its horizon."""
        must(library.fig_engine_take_back(self.handle))
        if self._held.former:
            self._held.take_back(self.progress().staged)

    def prepare(self, bucket: int = 0) -> None:
        """Builds the launchable graph of a bucket, or of every bucket, with the tensors bound so
        far. Otherwise stage() builds it when a step first needs the bucket."""
        self._must(library.fig_engine_prepare(self.handle, integer("bucket", bucket)))

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until every launched step has ended, and raises the first fault since the last
        wait(). timeout: in seconds; raises errors.Timeout if steps still run after the timeout.
        Other Python threads run meanwhile."""
        # Read before the wait: the caller may launch a captured graph while this wait ends.
        launched = self.progress().launched if self._held.former else 0
        self._must(library.fig_engine_wait(self.handle, microseconds(timeout)))
        if self._held.former:
            self._held.let_go(launched)

    def progress(self) -> Progress:
        """Returns the number of steps staged, launched and completed, without waiting."""
        made = abi.options(abi.fig_progress)
        must(library.fig_engine_poll(self.handle, made))
        return Progress(made.staged, made.launched, made.completed)

    def stats(self) -> Stats:
        """Returns the counts and times of the engine since it was opened."""
        made = abi.options(abi.fig_engine_stats)
        must(library.fig_engine_read_stats(self.handle, made))
        return Stats.of_c(made)

    @property
    def sharing(self) -> Optional[str]:
        """The reason why rows of a step cannot share the pages that they begin with, or None."""
        reason = library.fig_engine_sharing(self.handle)
        return None if reason is None else reason.decode()

    # ---- The caller's streams --------------------------------------------------------------------

    def append(self, segment: Optional[str] = None, *, bucket: int, stream: Any = None) -> None:
        """Enqueues a segment of the step, such as "fetch", "attn.0" or "act.0", on your stream. If
        the stream captures, the segment becomes part of the captured graph.

        segment: None means the whole step. stream: a stream of torch or CuPy, or the number of a
        CUstream; None is the engine's own. Stage a step with the same bucket before each launch of
        the captured graph.
        """
        given = options(abi.fig_append, bucket=bucket, stream=stream_cell(stream))
        given.segment = None if segment is None else encoded("segment", segment)
        self._must(library.fig_engine_append(self.handle, given))

    def wait_for(self, stream: Any = None) -> None:
        """Orders the engine's later launches after all work that is on `stream` now. The host does
        not wait. A stream of None is the GPU's default stream or, on the host device, the calling
        thread."""
        must(library.fig_engine_wait_for(self.handle, stream_number(stream)))

    def signal(self, stream: Any = None) -> None:
        """Orders later work on `stream` after all steps that the engine has launched."""
        must(library.fig_engine_signal(self.handle, stream_number(stream)))
