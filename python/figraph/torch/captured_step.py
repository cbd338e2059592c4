"""captured_step.py: captures a loop that runs a model's step between its matrix products.

Each part of the loop runs one segment of the model's recorded step. The recording contains all
differences between layers: windows, norms and layers without RoPE. Invariant: DecodeStep holds the
tensors that a captured graph reads (lengths, plan, scratch and caches), so they never move.
"""

from __future__ import annotations

import contextlib
import gc
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

import torch
from torch import Tensor

from .. import abi, errors
from ..arrays import CUDA, HOST, Place
from ..graphs import Traits, capture_for
from ..integers import integer, packed
from ..latents import LATENT_DIM
from ..native import Path, Unique
from ..operands import CACHES, LatentCache, dtype_name, layout_code, typed
from ..runs import Run, Runner
from ..scores import Masked, Score, joined, picked, sized
from ..specs import Model, Spec, spec
from .calls import DEVICES
from .gradients import refuse_gradients
from .step_caches import AnyCache, form_of, named, refuse, refuse_shared, taken, tensor_of

KINDS = {**CACHES, "int32": "i32", "int64": "i64"}
Numbers = Union[Sequence[int], Tensor]
WARM_RUNS = 2  # torch's libraries must have run before a capture


def _place(tensor: Tensor) -> Place:
    return Place(
        address=tensor.data_ptr(),
        shape=tuple(tensor.shape),
        strides=tensor.stride(),
        dtype=KINDS.get(dtype_name(tensor.dtype), dtype_name(tensor.dtype)),
        item_bytes=tensor.element_size(),
        device=DEVICES.get(tensor.device.type, 0),
        ordinal=tensor.device.index or 0,
        is_constant=False,
        holds=tensor,
    )


def _tensor(name: str, x: Any) -> Tensor:
    """Returns x. Raises TypeError if x is not a tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"tensor {name} is a {type(x).__name__}, it must be a Tensor")
    return x


def _model_of(model: Model, layers: int, changes: dict[str, Any]) -> Spec:
    """Returns the spec of the model's first layers, one for each cache."""
    given = changes.pop("layers", None)
    if given is not None and integer("layers", given) != layers:
        refuse(abi.FIG_INVALID, f"layers is {given}, and there are {layers} caches")
    found = spec(model, **changes)
    if given is None and 0 < found.layers < layers:
        refuse(abi.FIG_INVALID, f"there are {layers} caches, the model has {found.layers} layers")
    return found.of_layers(layers)


def _check_kind(wanted: Spec, cache: AnyCache) -> None:
    """Raises unless the cache is of the kind that the model's attention has."""
    if isinstance(cache, LatentCache) != (wanted.latent_dim > 0):
        refuse(abi.FIG_INVALID, f"caches[0] is a {type(cache).__name__}, but the model's latent_dim"
               f" is {wanted.latent_dim}")


def _scored(score: Any, mask: Optional[Masked],
            arrays: Optional[Mapping[str, Tensor]]) -> tuple[Optional[Score], dict[str, Tensor]]:
    """Returns the score of all layers, whose arrays have as many elements as the tensors, and the
    tensors by name."""
    if score is None and mask is None:
        if arrays is not None:
            refuse(abi.FIG_INVALID, "score_arrays is given, but neither score nor mask is")
        return None, {}
    made = joined(score, mask)
    tensors = dict(zip((one.name for one in made.arrays), picked(made, arrays)))
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"score_arrays[{name!r}] is a {type(tensor).__name__}, it must be a "
                            "Tensor")
        if tensor.ndim != 1 or tensor.numel() == 0:
            refuse(abi.FIG_INVALID, f"score_arrays[{name!r}] has shape {list(tensor.shape)}, it "
                   "must have one dim, with elements")
    return sized(made, {name: x.numel() for name, x in tensors.items()}), tensors


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Collects garbage now, and prevents collection within the block. The collector might free the
    graph of another step, which would make CUDA end a capture in progress."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class DecodeStep(Unique):
    """The decode step of a model for `rows` rows, to be called between your matrix products.

    model: anything that figraph.spec takes; `changes` are fields of the spec. caches: one for each
    layer, all with the same page table; LatentCaches for a model with latent attention (MLA). They
    determine the page size and the limits. A table or dense caches may have more rows than the
    step, so steps for several numbers of rows share them. If there are fewer caches than the model
    has layers, the step covers the first layers. kv_dtype: the dtype of the bytes in the uint8
    tensors of a Cache. row_tokens, a field of the spec: the number of new tokens of each row;
    tensors then have rows * row_tokens rows, or the dims [rows, row_tokens, ...]. query_limit, a
    field of the spec: the most new tokens of all rows together. With it the rows have different
    numbers of new tokens, at most row_tokens: row r has those from query_start_loc[r] up to
    query_start_loc[r + 1]. Tensors then have as many rows as `tokens` says, and what lies behind
    the last token is unspecified. weights: further tensors that the step reads, by name, such as
    q_norm.0 or latent_norm.0. positions: True if rows may be at other positions than lengths - 1;
    then you write the tensor `positions` too. check: raise errors.TooLarge if a length exceeds the
    capacity of the cache; otherwise such a row is idle. The check waits for lengths that are on
    a GPU. score, score_arrays, mask: those of attention in every layer, as in
    figraph.torch.attention; each step reads the arrays again. compile_scores, score_cache: as in
    figraph.Engine; a GPU then compiles the score now. q_rope: True if attend_latent gets the last
    64 values of the heads of q in a tensor of their own.

    This class is for captured loops and holds the tensors that a capture reads. Under torch.compile
    use the operators instead. `lengths` is the tensor, int32 [rows], that each step reads: write
    into it, or pass lengths to the call. A captured loop may end with advance(), which makes each
    busy row longer by its new tokens. advance() leaves idle rows idle, because the append of such a
    row would write into another row's page.
    """

    def __init__(
        self,
        model: Model,
        caches: Sequence[AnyCache],
        *,
        rows: int,
        weights: Mapping[str, Tensor] = {},
        positions: bool = False,
        layout: str = "nhd",
        check: bool = False,
        kv_dtype: Any = None,
        score: Optional[Union[str, Score, Callable[..., Any]]] = None,
        score_arrays: Optional[Mapping[str, Tensor]] = None,
        mask: Optional[Masked] = None,
        compile_scores: bool = False,
        score_cache: Union[Path, bool, None] = None,
        q_rope: bool = False,
        **changes: Any,
    ) -> None:
        if len(caches) == 0:
            refuse(abi.FIG_INVALID, "caches is empty, it must have one of each layer")
        layout_code(layout)
        self.rows, self.check = integer("rows", rows), check
        caches = taken(caches, self.rows, layout, kv_dtype)
        form = form_of(caches, layout)
        first = tensor_of(caches[0])
        self.cap = form["kv_limit"]
        self.device = first.device
        kind = HOST if self.device.type == "cpu" else CUDA
        ordinal = self.device.index or 0
        form.update(batch_limit=self.rows, sequence_limit=self.rows)
        for name in form.keys() & changes.keys():
            raise TypeError(f"{name} is what caches, rows and layout say, it cannot be given")
        wanted = _model_of(model, len(caches), {**changes, **form})
        _check_kind(wanted, caches[0])
        refuse_shared(caches)
        reads = ("lengths", *(["positions"] if positions else []),
                 *(["query_starts"] if wanted.query_limit > 0 else []))
        traits = Traits.named("host" if kind == HOST else "h200")
        scored, arrays = _scored(score, mask, score_arrays)
        for name in arrays.keys() & weights.keys():
            raise ValueError(f"{name} is in weights and in score_arrays")
        graphs = capture_for(wanted, traits, buckets=[(self.rows, self.cap)], reads=reads,
                             score=scored, q_rope=q_rope)
        self._has_q_rope = q_rope
        self.spec = graphs.spec  # with all defaults filled in
        self._runner = Runner(graphs, kind, ordinal, compile_scores=compile_scores,
                              score_cache=score_cache)
        self._lengths = torch.zeros(self.rows, dtype=torch.int32, device=self.device)
        self._positions = torch.zeros_like(self._lengths) if positions else None
        self._starts = self._lengths.new_zeros(self.rows + 1) if wanted.query_limit > 0 else None
        self.tokens = self.rows * self.spec.row_tokens  # new tokens that tensors have rows for
        if self._starts is not None:
            self.tokens = min(self.tokens, self.spec.query_limit)
        needs = self._runner.scratch(self.rows, self.cap)
        self._lent = tuple(first.new_zeros(count, dtype=torch.uint8) for count in needs)
        self._kept = self._name(caches, {**weights, **arrays})
        self._runs: dict[str, Run] = {}
        self._plan = self._run(None)
        self._planned: Optional[int] = None  # plan() calls of the running loop; None: no loop runs
        self._were_idle = self._lengths == 0  # the rows that were idle at the last plan()
        self._loop: Optional[Callable[[], object]] = None
        self._graph: Optional[torch.cuda.CUDAGraph] = None

    @property
    def lengths(self) -> Tensor:
        """Returns the int32 [rows] lengths that each step reads; 0 is an idle row. Write into this
        tensor."""
        return self._lengths

    @lengths.setter
    def lengths(self, value: Tensor) -> None:
        self._stay("lengths", self._lengths, value)

    @property
    def positions(self) -> Optional[Tensor]:
        """Returns the int32 [rows] positions that each step reads, or None unless you asked for
        positions. Write into this tensor."""
        return self._positions

    @positions.setter
    def positions(self, value: Tensor) -> None:
        self._stay("positions", self._positions, value)

    @property
    def query_start_loc(self) -> Optional[Tensor]:
        """Returns the int32 [rows + 1] tensor that says where the new tokens of each row begin, or
        None if the rows have equally many. Write into this tensor."""
        return self._starts

    @query_start_loc.setter
    def query_start_loc(self, value: Tensor) -> None:
        self._stay("query_start_loc", self._starts, value)

    def _stay(self, name: str, own: Optional[Tensor], value: Tensor) -> None:
        """Accepts the same tensor, since `step.lengths += 1` assigns it back, and refuses
        others."""
        if value is not own:
            raise AttributeError(f"{name} is the tensor that the step reads and cannot be replaced:"
                                 f" write into it, step.{name}.copy_(...)")

    # ---- Tensors that a step reads ---------------------------------------------------------------

    def _name(self, caches: Sequence[AnyCache], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the tensors that never move, by their names in the recording."""
        kept = {"lengths": self._lengths, **weights}
        if self._positions is not None:
            kept["positions"] = self._positions
        if self._starts is not None:
            kept["query_starts"] = self._starts
        kept |= named(caches)
        if caches[0].page_table is not None:
            for name in ("page_table", "page_table.window"):
                if name in self._runner.numbers:
                    kept.setdefault(name, caches[0].page_table)
        return kept

    def _run(self, segment: Optional[str]) -> Run:
        run = Run(self._runner, self.rows, segment)
        for name, tensor in self._kept.items():
            run.bind(name, _place(tensor))
        run.lend(*((x.data_ptr(), x.numel()) for x in self._lent))
        return run

    def _stream(self) -> Optional[int]:
        if self.device.type == "cpu":
            return None
        return torch.cuda.current_stream(self.device).cuda_stream

    def _flat(self, name: str, tensor: Tensor, wanted: int) -> Tensor:
        """Returns a tensor with one dim of rows, which must be `wanted`."""
        shape, tokens = list(tensor.shape), self.spec.row_tokens
        by_row = self._starts is None and tokens > 1 and wanted == self.rows * tokens
        if by_row and shape[:2] == [self.rows, tokens]:
            return tensor.view(wanted, *shape[2:])
        if tensor.ndim == 0 or shape[0] != wanted:
            refuse(abi.FIG_INVALID, f"tensor {name}: the array has shape {shape}, its rows must be"
                   f" the step's {wanted}")
        return tensor

    def _start(self, segment: str, tensors: Mapping[str, Tensor], wanted: int) -> None:
        for name, tensor in tensors.items():
            _tensor(name, tensor)
        if torch.is_grad_enabled():
            refuse_gradients(segment, tensors.items())
        flat = {name: self._flat(name, tensor, wanted) for name, tensor in tensors.items()}
        if segment not in self._runs:
            self._runs[segment] = self._run(segment)
        run = self._runs[segment]
        for name, tensor in flat.items():
            run.bind(name, _place(tensor))
        run.start(self._stream())

    # ---- Parts of a step, called in a loop -------------------------------------------------------

    def plan(self) -> None:
        """Plans how the rows are cut, from the current lengths. Call it once, at the start of a
        step."""
        if self._planned is not None:
            self._planned += 1
            if self._planned > 1:
                refuse(abi.FIG_ORDER, "the loop called plan() twice, it must be once, first in a "
                       "step")
            if not self._is_captured():
                self._were_idle = self._lengths == 0
        if torch.is_grad_enabled():
            refuse_gradients("the step", self._kept.items())
        self._plan.start_plan(self._stream())

    def act(self, layer: int, gate_up: Tensor, out: Optional[Tensor] = None) -> Tensor:
        """Returns the layer's gated activation of gate_up, [rows, 2 * ffn_width]. Each token has
        spec.ffn_rows rows, but one in the first spec.dense_layers layers."""
        if out is None:
            gate_up = _tensor(f"gate_up.{layer}", gate_up)
            out = gate_up.new_empty(*gate_up.shape[:-1], gate_up.shape[-1] // 2)
        self._start(f"act.{layer}", {f"gate_up.{layer}": gate_up, f"act.{layer}": out},
                    self.tokens * (1 if layer < self.spec.dense_layers else self.spec.ffn_rows))
        return out

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor,
               out: Optional[Tensor] = None) -> Tensor:
        """Does the layer's RoPE, append and attention. q, k and v, [rows, heads, head_dim], may be
        views of one tensor. The call may overwrite q and k with their rotated values, so do not use
        them afterwards."""
        if self.spec.latent_dim > 0:
            refuse(abi.FIG_INVALID, f"the loop called attend({layer}), but the step's caches are "
                   "latent: call attend_latent")
        if out is None:
            out = _tensor(f"q.{layer}", q).new_empty(q.shape)
        self._attend("attend", layer, {"q": q, "k": k, "v": v, "out": out})
        return out

    def attend_latent(self, layer: int, q: Tensor, latent: Tensor, out: Optional[Tensor] = None, *,
                      q_rope: Optional[Tensor] = None) -> Tensor:
        """Does the layer's norm, RoPE, append and attention over a latent cache (MLA): q, [rows,
        heads, 576], and the new tokens, latent [rows, 576], are as in latent_decode, and so is the
        result, [rows, heads, 512]. If the step was made with q_rope=True, q has the first 512
        values of each head, and q_rope, [rows, heads, 64], has the others. The weight of the norm
        is latent_norm.N of `weights`. The call overwrites q, or q_rope, with its rotated values, so
        do not use it afterwards."""
        if self.spec.latent_dim == 0:
            refuse(abi.FIG_INVALID, f"the loop called attend_latent({layer}), but the step's caches"
                   " hold K and V of each head: call attend")
        if (q_rope is not None) != self._has_q_rope:
            refuse(abi.FIG_INVALID, f"attend_latent({layer}): q_rope is "
                   f"{'not ' if self._has_q_rope else ''}given, but the step was made with "
                   f"q_rope={self._has_q_rope}")
        if out is None:
            out = _tensor(f"q.{layer}", q).new_empty(*q.shape[:-1], LATENT_DIM)
        given = {"q": q, "latent": latent, "out": out}
        self._attend("attend_latent", layer,
                     given if q_rope is None else {**given, "q_rope": q_rope})
        return out

    def _attend(self, name: str, layer: int, given: Mapping[str, Tensor]) -> None:
        if self._planned == 0:
            refuse(abi.FIG_ORDER, f"the loop called {name}({layer}) before plan()")
        self._start(f"attn.{layer}", {f"{name}.{layer}": x for name, x in given.items()},
                    self.tokens)

    def _appended(self, starts: Tensor) -> Tensor:
        """Returns how many new tokens of each row the step appends: none if they are more than
        row_tokens, more than the row's length or negative, or if all rows have more than the
        tensors hold."""
        counts = starts.diff()
        most = self._lengths.clamp(max=self.spec.row_tokens)
        sound = (counts >= 0) & (counts <= most) & (starts[-1] <= self.tokens)
        return counts * sound

    def advance(self) -> None:
        """Adds the number of its new tokens to the length of each row that is not idle, and to its
        position if the step has positions. A row whose tokens the step did not append stays as it
        is. Call it at the end of a loop."""
        grown = (self._lengths > 0).to(torch.int32)
        grown *= self.spec.row_tokens if self._starts is None else self._appended(self._starts)
        self._lengths.add_(grown)
        if self._positions is not None:
            self._positions.add_(grown)

    # ---- The step --------------------------------------------------------------------------------

    def _is_captured(self) -> bool:
        return self.device.type != "cpu" and torch.cuda.is_current_stream_capturing()

    def _call(self, loop: Callable[[], object]) -> None:
        """Runs the loop and checks that it called plan() once."""
        self._planned = 0
        try:
            loop()
            if self._planned == 0:
                refuse(abi.FIG_ORDER, "the loop did not call plan(), it must be called once, "
                       "first in a step")
        finally:
            self._planned = None

    def _call_idle(self, loop: Callable[[], object]) -> None:
        """Runs the loop with all rows idle and checks that the rows stay idle."""
        self._lengths.zero_()
        self._call(loop)
        self._refuse_woken()

    def _refuse_woken(self) -> None:
        woken = self._were_idle & (self._lengths != 0)
        if woken.any():
            self._lengths.masked_fill_(woken, 0)
            row = int(woken.nonzero()[0])
            refuse(abi.FIG_ORDER, f"the loop gave the idle row {row} a length, and its next step "
                   "would write into another row's page: end the loop with advance(), or write "
                   "lengths before plan()")

    def capture(self, loop: Callable[[], object]) -> None:
        """Sets the loop of a step. The loop must call plan(), and then attend() (attend_latent()
        over latent caches) and act() for each layer. capture() first runs the loop with idle rows.
        On a GPU it then captures the loop; on the CPU each step calls the loop. If the loop raises,
        the step has no loop."""
        self._loop, self._graph = None, None
        if self.device.type == "cpu":
            self._call_idle(loop)
            self._lengths.zero_()
        else:
            self._graph = self._captured(loop)
        self._loop = loop

    def _captured(self, loop: Callable[[], object]) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        try:
            with torch.cuda.stream(stream):
                for _ in range(WARM_RUNS):
                    self._call_idle(loop)
                self._lengths.zero_()
        finally:
            torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with _without_collector(), torch.cuda.graph(graph, stream=stream):
            self._call(loop)
        return graph

    def _take(self, name: str, numbers: Numbers, limit: int) -> Tensor:
        """Converts numbers of rows to int32; wider numbers on a GPU are clamped."""
        if isinstance(numbers, Tensor) and (numbers.dtype == torch.int32
                                            or numbers.device.type != "cpu"):
            typed(name, numbers, ["int8", "uint8", "int16", "int32", "int64"])
            limits, given = torch.iinfo(torch.int32), numbers
            if numbers.dtype == torch.int64:
                given = numbers.clamp(limits.min, limits.max)
            given = given.to(torch.int32)
        else:
            listed: Any = numbers
            given = torch.tensor(packed(name, listed).tolist(), dtype=torch.int32)
        if given.ndim != 1 or given.shape[0] > limit:
            raise errors.of(abi.FIG_TOO_LARGE,
                            f"{name} is {list(given.shape)}, the step has {self.rows} rows")
        return given

    def _take_starts(self, starts: Numbers, lengths: Optional[Tensor]) -> Tensor:
        """Converts query_start_loc. Rows that it leaves out have no new tokens."""
        if self._starts is None:
            refuse(abi.FIG_INVALID, "query_start_loc is given, but the step has no query_limit: "
                   f"each row has {self.spec.row_tokens} new tokens")
        given = self._take("query_start_loc", starts, self.rows + 1)
        rows = self.rows if lengths is None else lengths.shape[0]
        if given.shape[0] != rows + 1:
            refuse(abi.FIG_INVALID, f"query_start_loc is {list(given.shape)}, it must be "
                   f"[{rows + 1}] for {rows} rows")
        whole = self._starts.new_empty(self.rows + 1)
        whole[: rows + 1].copy_(given)
        whole[rows + 1 :].copy_(given[-1:].expand(self.rows - rows))
        return whole

    def _check(self, lengths: Tensor, starts: Optional[Tensor]) -> None:
        counts = lengths.shape[0] * [self.spec.row_tokens]
        if starts is not None:
            counts = starts.diff().tolist()
            self._check_counts(counts, int(starts[0]))
        for row, (length, count) in enumerate(zip(lengths.tolist(), counts)):
            if not 0 <= length <= self.cap:
                sentence = f"row {row} has length {length}, its cache holds {self.cap}"
                raise errors.of(abi.FIG_TOO_LARGE, sentence)
            if 0 < length < count:
                refuse(abi.FIG_INVALID, f"row {row} has length {length}, it has {count} new "
                       "tokens")

    def _check_counts(self, counts: Sequence[int], first: int) -> None:
        """Checks the new tokens of each row."""
        if first != 0:
            refuse(abi.FIG_INVALID, f"query_start_loc begins with {first}, it must begin with 0")
        for row, count in enumerate(counts):
            if not 0 <= count <= self.spec.row_tokens:
                raise errors.of(abi.FIG_TOO_LARGE, f"query_start_loc gives row {row} {count} new "
                                f"tokens, limits 0 to {self.spec.row_tokens}")
        if sum(counts) > self.tokens:
            raise errors.of(abi.FIG_TOO_LARGE, f"query_start_loc ends with {sum(counts)}, the "
                            f"step has {self.tokens} tokens")

    def __call__(self, lengths: Optional[Numbers] = None,
                 query_start_loc: Optional[Numbers] = None) -> None:
        """Runs one step. lengths: one number per row; missing rows are idle. Without lengths the
        step uses the tensor `lengths` as it is. The same holds for query_start_loc, which has one
        number more than rows."""
        if self._loop is None:
            raise errors.of(abi.FIG_ORDER, "step: no loop was captured")
        taken = None if lengths is None else self._take("lengths", lengths, self.rows)
        given = self._lengths if taken is None else taken
        starts = self._starts
        if query_start_loc is not None:
            starts = self._take_starts(query_start_loc, taken)
        if self.check:
            self._check(given, starts)
        if taken is not None:
            self._lengths[given.shape[0] :].zero_()
            self._lengths[: given.shape[0]].copy_(given)
        if query_start_loc is not None and self._starts is not None and starts is not None:
            self._starts.copy_(starts)
        if self._graph is None:
            self._call(self._loop)
            self._refuse_woken()
        else:
            self._graph.replay()
