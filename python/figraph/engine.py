"""engine.py: graphs made launchable on a device, arrays bound, steps run.

stage, launch and step are the hot path: with a list of lengths each is one call of steps.py's.
Invariant: what C may still read is held here, an array until the wait after the next bind of its
name.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import weakref
from array import array as packed
from types import TracebackType
from typing import Any, Callable, Mapping, NoReturn, Optional, Sequence, Union

from . import abi, errors, forms
from .arrays import CUDA, HOST, Place, place_of
from .graphs import Graphs, Tensor, Traits, integers, load
from .native import library, must
from .stats import Progress, Stats
from .steps import Steps
from .streams import stream_cell, stream_number

DEVICES = {"auto": abi.FIG_DEVICE_AUTO, HOST: abi.FIG_DEVICE_HOST, CUDA: abi.FIG_DEVICE_CUDA}


def microseconds(seconds: Optional[float]) -> int:
    """A timeout as C takes it: None has no end."""
    return -1 if seconds is None else int(seconds * 1e6)


@dataclasses.dataclass(frozen=True)
class Call:
    """What a callback is given. reads and writes are addresses, by the order recorded."""

    device: str
    stream: int  # a CUstream, 0 on the host
    batch: int
    kv: int
    rows: int
    tag: int
    payload: bytes
    reads: Any
    writes: Any

    @classmethod
    def of_c(cls, given: abi.fig_call_args) -> Call:
        """From what the library gives."""
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
class Held:
    """What C may still use, kept until the engine is closed."""

    bound: dict[str, Any]  # what holds each tensor's memory; None: the engine
    former: list[Any]  # what steps in flight may still read or write
    callbacks: dict[str, Any]
    raised: list[BaseException]  # by callbacks, and not told yet

    def clear(self) -> None:
        """Lets go of all of it."""
        for kept in (self.bound, self.former, self.callbacks, self.raised):
            kept.clear()


def close_at_end(handle: Any, graphs: Graphs, held: Held) -> None:
    """Closes an engine that nobody closed, before its graphs and what it uses can go."""
    library.fig_engine_close(handle)


def words_of(lengths: Sequence[int]) -> Any:
    """Something whose bytes are int32: numpy's int32 arrays are it already."""
    if isinstance(lengths, (list, tuple)):
        return packed("i", lengths)
    try:
        view = memoryview(lengths)  # type: ignore[arg-type]
        if view.format == "i" and view.c_contiguous:
            return view
    except TypeError:
        pass
    return packed("i", lengths.tolist() if hasattr(lengths, "tolist") else lengths)


def fill_more(
    step: abi.fig_step,
    rows: int,
    *,
    positions: Optional[Sequence[int]] = None,
    sequences: Optional[Sequence[int]] = None,
    row_tokens: Optional[Sequence[int]] = None,
    horizon: int = 0,
    token_limit: int = 0,
) -> None:
    """What few steps have."""
    step.horizon, step.token_limit = horizon, token_limit
    given = {"positions": positions, "sequences": sequences, "row_tokens": row_tokens}
    for name, values in given.items():
        if values is not None and len(values) != rows:
            raise errors.of(abi.FIG_INVALID, f"{name} has {len(values)} of {rows} rows")
        setattr(step, name, None if values is None else integers(values))


class Engine:
    """Graphs on a device. One thread at a time uses it, but stats may be read from any.

    graphs: of figraph.capture or figraph.load, or the path of a .fig file. device: "cuda", "host",
    or "auto", which is the GPU where there is one. stream: the one to run on, torch's say, open
    longer than the engine; else the engine opens its own. slots: how many steps may be in flight.
    busy_us: how long stage may wait for a slot before it raises errors.Busy. check_plans: a
    checksum in each plan. ordinal and numa_node: which GPU, and where the ring lies.

    >>> import figraph
    >>> with Engine(figraph.capture("tutorial", traits="host"), device="host") as engine:
    ...     engine.bind_rest(pages=32)
    ...     engine.step([1, 1])
    ...     engine.wait()
    """

    def __init__(
        self,
        graphs: Union[Graphs, str, os.PathLike[str]],
        *,
        device: str = "auto",
        stream: Any = None,
        slots: int = 0,
        busy_us: int = 0,
        ordinal: int = 0,
        numa_node: int = 0,
        check_plans: bool = False,
    ) -> None:
        self.graphs = graphs if isinstance(graphs, Graphs) else load(graphs)
        if device not in DEVICES:
            raise ValueError(f'device is "{device}", it is one of {", ".join(DEVICES)}')
        options = abi.options(
            abi.fig_engine_options,
            device=DEVICES[device],
            slots=slots,
            busy_us=busy_us,
            ordinal=ordinal,
            numa_node=numa_node,
            check_plans=int(check_plans),
            stream=stream_cell(stream),
        )
        handle = ctypes.POINTER(abi.fig_engine)()
        must(library.fig_engine_open(handle, self.graphs.handle, options))
        self._open: Any = handle  # None once it is closed
        self._given_stream = stream  # which is to be open longer than the engine
        self._ordinal = ordinal
        self.device = CUDA if library.fig_engine_device(handle) == abi.FIG_DEVICE_CUDA else HOST
        self._held = Held({}, [], {}, [])
        self._closer = weakref.finalize(self, close_at_end, handle, self.graphs, self._held)
        self._lengths_array = (ctypes.c_int32 * self.graphs.spec.batch_limit)()
        self._lengths = memoryview(self._lengths_array).cast("B").cast("i")
        self._rows_limit = len(self._lengths)
        self._step = abi.options(abi.fig_step, kv_lengths=self._lengths_array)
        self._calls = Steps(handle, self._step, self._lengths_array)
        self._is_plain = True  # the step has nothing but lengths and a bucket

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
        """Waits for steps in flight and frees what the engine allocated. Twice is as once.

        timeout: seconds; errors.Timeout where steps still run then, and the engine is as it was.
        """
        if self._open is None:
            return
        must(library.fig_engine_close_within(self._open, microseconds(timeout)))
        self._open = None
        self._calls.close()
        self._closer.detach()
        self._held.clear()

    @property
    def handle(self) -> Any:
        """fig_engine *, for calls of figraph.abi that this class lacks."""
        if self._open is None:
            raise errors.of(abi.FIG_ORDER, "the engine is closed")
        return self._open

    @property
    def traits(self) -> Traits:
        """The machine that the engine runs on."""
        made = abi.options(abi.fig_traits)
        must(library.fig_engine_read_traits(self.handle, made))
        return Traits.of_c(made)

    @property
    def stream(self) -> int:
        """The engine's CUstream as a number, 0 on the host: torch.cuda.ExternalStream takes it."""
        return library.fig_engine_stream(self.handle) or 0

    def bind_thread(self) -> None:
        """Keeps this thread on the cores beside the GPU, as far as it may run there; errors.
        Unsupported where the system does not tell which, or forbids it."""
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
        if wrong:
            raise errors.of(abi.FIG_INVALID, f"tensor {name}: the array {wrong}")

    def _take_array(self, tensor: Tensor, array: Any, binding: abi.fig_binding) -> Any:
        getattr(array, "block_until_ready", lambda: None)()
        place = place_of(array)
        self._check_place(tensor.name, place)
        forms.check(tensor, self.graphs.spec.batch_limit, place)
        binding.address, binding.bytes = place.address, place.reach_bytes()
        binding.strides[: len(place.shape)] = forms.strides_of(tensor, place)
        return place.holds

    def bind(self, name: str, array: Any = None, *, size: int = 0) -> None:
        """Gives a tensor its memory: an array's, or `size` bytes of the engine's own, zeroed.

        An array is of whatever has __array_interface__, DLPack or __cuda_array_interface__. Its
        shape is the tensor's, that of an "hnd" cache as it lies in memory; strides are free but for
        the last, so that q, k and v may be views of one array. A dtype that a library lacks may
        come as raw elements of its size. The array is held until close or the next bind of that
        name. JAX does not know that the contents of one of its arrays change.
        """
        tensor = self._tensor(name)
        binding = abi.options(abi.fig_binding, name=name.encode(), bytes=size)
        holds = None if array is None else self._take_array(tensor, array, binding)
        must(library.fig_engine_bind(self.handle, binding))
        self._held.former.append(self._held.bound.get(name))
        self._held.bound[name] = holds

    def bind_all(self, arrays: Mapping[str, Any]) -> None:
        """Binds each array by its name."""
        for name, array in arrays.items():
            self.bind(name, array)

    def bind_rest(self, *, pages: int) -> None:
        """Gives each tensor that is not bound memory of the engine's, caches so many pages."""
        rows = self.graphs.spec.batch_limit
        for name, tensor in self.graphs.tensors.items():
            if name not in self._held.bound and tensor.role == "bound":
                size = forms.elements(tensor, rows, pages) * forms.ITEM_BYTES[tensor.dtype]
                self.bind(name, size=size)

    def write(self, name: str, data: Any, *, offset: int = 0) -> None:
        """Copies what has a buffer, numpy's arrays and bytes say, into a tensor, after all steps
        launched so far. offset: in bytes."""
        source = memoryview(data).tobytes()
        span = abi.options(abi.fig_span, name=name.encode(), offset=offset, bytes=len(source))
        must(library.fig_engine_write(self.handle, span, source))

    def read(self, name: str, size: int, *, offset: int = 0) -> bytearray:
        """So many bytes of a tensor, after all steps launched so far; numpy.frombuffer takes
        them. offset: in bytes."""
        target = bytearray(size)
        span = abi.options(abi.fig_span, name=name.encode(), offset=offset, bytes=size)
        must(library.fig_engine_read(self.handle, span, (ctypes.c_char * size).from_buffer(target)))
        return target

    def set_pages(
        self, sequence: int, pages: Sequence[int], *, first: int = 0, table: Optional[str] = None
    ) -> None:
        """Entries of a sequence's row in a page table, from `first` on; in every table there is,
        unless one is named. Steps staged after the call see them."""
        array = integers(pages)
        entries = abi.options(
            abi.fig_pages, sequence=sequence, first=first, count=len(array), pages=array
        )
        entries.table = None if table is None else table.encode()
        must(library.fig_engine_set_pages(self.handle, entries))

    def register(self, name: str, callback: Callable[[Call], None]) -> None:
        """Who does the work of the calls of that name which the program has.

        On the host it runs in every step, on the engine's thread. On a GPU it runs once for a
        bucket, while a stream captures, and puts its work on that stream. What it raises is the
        cause of the errors.Callback that the step, or the next wait, raises.
        """

        raised = self._held.raised  # and not self, which would then hold itself

        def answer(_: Any, given: Any) -> int:
            try:
                callback(Call.of_c(given.contents))
            except BaseException as error:  # none may pass through C
                raised.append(error)
                return 1
            return 0

        kept = abi.fig_callback(answer)
        must(library.fig_engine_register(self.handle, name.encode(), kept, None))
        self._held.callbacks[name] = kept

    def _refuse(self, status: int) -> NoReturn:
        """Raises what a call refused, from what a callback raised where it is that."""
        self.handle  # which raises that the engine is closed
        error = errors.of(status, library.fig_message().decode())
        cause = self._held.raised[0] if self._held.raised else None
        self._held.raised.clear()
        raise error from cause

    def _must(self, status: int) -> None:
        if status:
            self._refuse(status)

    # ---- Steps -----------------------------------------------------------------------------------

    def _fill(self, lengths: Optional[Sequence[int]], rows: int, more: Any) -> None:
        """Makes the engine's one step what a call's arguments say, but for the bucket."""
        step = self._step
        if lengths is not None:
            rows = len(lengths)
            if rows > self._rows_limit:
                sentence = f"rows is {rows}, limit {self._rows_limit}, the batch_limit"
                raise errors.of(abi.FIG_TOO_LARGE, sentence)
            self._lengths[:rows] = words_of(lengths)
        step.rows = rows
        is_plain = lengths is not None and not more
        if not is_plain or not self._is_plain:
            self._is_plain = is_plain
            step.kv_lengths = None if lengths is None else self._lengths_array
            fill_more(step, rows, **more)

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
        """Chooses a bucket, plans and writes a slot, for a launch that comes later.

        lengths: tokens of each row's sequence, this step's included; 0 is an idle row. None: the
        program reads them on the device, and `rows` says how many there are. By name, where they
        are not the default: positions of the rows' last tokens; sequences, which sequence each row
        continues; row_tokens, how many of a row's queries are there; bucket, required where a
        captured graph of yours launches the step; horizon, how many launches one plan is for;
        token_limit, the most tokens in all where lengths are on the device. errors.Busy: every slot
        is in flight, wait and call again.
        """
        self._make(self._calls.stage, lengths, rows, bucket, more)

    def launch(self) -> None:
        """Replays the step that was staged longest ago."""
        status = self._calls.launch()
        if status:
            self._refuse(status)

    def step(self, lengths: Optional[Sequence[int]] = None, *, rows: int = 0, bucket: int = 0,
             **more: Any) -> None:
        """stage and launch or, where it fails, neither."""
        self._make(self._calls.step, lengths, rows, bucket, more)

    def take_back(self) -> None:
        """Takes back the step that was staged last, or the launches left of its horizon."""
        must(library.fig_engine_take_back(self.handle))

    def prepare(self, bucket: int = 0) -> None:
        """Makes a bucket launchable with what is bound, or every one; else stage does it, once, for
        the bucket that it needs."""
        self._must(library.fig_engine_prepare(self.handle, bucket))

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until every step launched has ended, and raises the first fault since the last
        wait. timeout: seconds; errors.Timeout where some still run then. Other threads run on."""
        self._must(library.fig_engine_wait(self.handle, microseconds(timeout)))
        self._held.former.clear()

    def progress(self) -> Progress:
        """How far the steps are, without a wait."""
        made = abi.options(abi.fig_progress)
        must(library.fig_engine_poll(self.handle, made))
        return Progress(made.staged, made.launched, made.completed)

    def stats(self) -> Stats:
        """What the engine has counted since it was opened."""
        made = abi.options(abi.fig_engine_stats)
        must(library.fig_engine_read_stats(self.handle, made))
        return Stats.of_c(made)

    # ---- Streams of the caller's -----------------------------------------------------------------

    def append(self, segment: Optional[str] = None, *, bucket: int, stream: Any = None) -> None:
        """Enqueues a segment of the step, "fetch", "attn.0", "act.0" and so on, on a stream of
        yours, so that it becomes a part of the graph which that stream captures.

        stream: of torch's, CuPy's, or a CUstream's number; None: the engine's own. segment None:
        the whole step. Before each launch of the graph stage a step with the same bucket.
        """
        given = abi.options(abi.fig_append, bucket=bucket, stream=stream_cell(stream))
        given.segment = None if segment is None else segment.encode()
        self._must(library.fig_engine_append(self.handle, given))

    def wait_for(self, stream: Any = None) -> None:
        """What the engine launches later comes after all that is on `stream` now; the host does not
        wait. None: the GPU's default stream, or on the host device the calling thread."""
        must(library.fig_engine_wait_for(self.handle, stream_number(stream)))

    def signal(self, stream: Any = None) -> None:
        """What is put on `stream` later comes after all that the engine has launched."""
        must(library.fig_engine_signal(self.handle, stream_number(stream)))
