"""captured_step.py: a model's step between a loop's own products, captured once for its rows.

Runs of the model's recorded step do the work, by segments: what differs from layer to layer, its
window, norms or lack of RoPE, is the recording's. Invariant: what a captured graph reads lies where
it lay when it was captured, since the step holds it: lengths, plan, scratch and caches.
"""

from __future__ import annotations

from typing import Callable, Mapping, Optional, Sequence, Union

import torch
from torch import Tensor

from .. import abi, errors
from ..arrays import CUDA, HOST, Place
from ..graphs import Traits, capture_for
from ..operands import CACHES, Cache, dtype_name
from ..runs import Run, Runner
from ..specs import Model, spec
from .calls import DEVICES

KINDS = {**CACHES, "int32": "i32", "int64": "i64"}
WARM_RUNS = 2  # torch's libraries want to have run before a capture


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


def _form(caches: Sequence[Cache], layout: str) -> dict[str, int]:
    """What caches say of the spec, whose tokens and pages they are."""
    first = caches[0]
    tokens = first.k.shape[1 if layout == "nhd" else 2]
    if first.page_table is None:
        return dict(page_size=0, kv_limit=tokens)
    return dict(page_size=tokens, kv_limit=tokens * first.page_table.shape[1])


class DecodeStep:
    """The decode step of a model for `rows` rows, between products of yours.

    model: as figraph.spec takes it, and `changes` are fields of the spec. caches: one of each
    layer; pages and limits are theirs. weights: tensors that the step reads by their names, such as
    q_norm.0. positions: whether rows stand elsewhere than at lengths - 1; then `positions` is a
    tensor to be written, too. check: raise errors.TooLarge where a length is more than a cache
    holds; else such a row is idle. Lengths on a GPU are waited for to be looked at.

    It is for captures, and keeps what they read; what torch compiles calls the operators instead.
    lengths is a tensor, int32 [rows], which each step reads: write it, or give lengths to the call.
    A loop that is captured may write it as well, lengths += 1 as its end.
    """

    def __init__(
        self,
        model: Model,
        caches: Sequence[Cache],
        *,
        rows: int,
        weights: Mapping[str, Tensor] = {},
        positions: bool = False,
        layout: str = "nhd",
        check: bool = False,
        **changes: object,
    ) -> None:
        first = caches[0].k
        form = _form(caches, layout)
        self.rows, self.cap, self.check = rows, form["kv_limit"], check
        self.device = first.device
        kind = HOST if self.device.type == "cpu" else CUDA
        ordinal = self.device.index or 0
        wanted = spec(model, layers=len(caches), batch_limit=rows, sequence_limit=rows,
                      kv_layout=layout, kv_dtype=CACHES[dtype_name(first.dtype)], **form, **changes)
        reads = ("lengths", "positions") if positions else ("lengths",)
        named = Traits.named("host" if kind == HOST else "h200")
        graphs = capture_for(wanted, named, buckets=[(rows, self.cap)], reads=reads)
        self.spec = graphs.spec  # every default filled in
        self._runner = Runner(graphs, kind, ordinal)
        self.lengths = torch.zeros(rows, dtype=torch.int32, device=self.device)
        self.positions = torch.zeros_like(self.lengths) if positions else None
        needs = self._runner.scratch(rows, self.cap)
        self._lent = tuple(first.new_zeros(count, dtype=torch.uint8) for count in needs)
        self._kept = self._name(caches, weights)
        self._runs: dict[str, Run] = {}
        self._plan = self._run(None)
        self._loop: Optional[Callable[[], object]] = None
        self._graph: Optional[torch.cuda.CUDAGraph] = None

    # ---- What a step reads -----------------------------------------------------------------------

    def _name(self, caches: Sequence[Cache], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All that lies still, by the names of the recording."""
        kept = {"lengths": self.lengths, **weights}
        if self.positions is not None:
            kept["positions"] = self.positions
        for n, cache in enumerate(caches):
            given = {"k_cache": cache.k, "v_cache": cache.v, "k_scale": cache.k_scale,
                     "v_scale": cache.v_scale}
            kept |= {f"{name}.{n}": x for name, x in given.items() if x is not None}
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

    def _start(self, segment: str, tensors: Mapping[str, Tensor]) -> None:
        if segment not in self._runs:
            self._runs[segment] = self._run(segment)
        run = self._runs[segment]
        for name, tensor in tensors.items():
            run.bind(name, _place(tensor))
        run.start(self._stream())

    # ---- Its parts, in a loop --------------------------------------------------------------------

    def plan(self) -> None:
        """Cuts the rows as lengths are now. First in a step, and once."""
        self._plan.start_plan(self._stream())

    def act(self, layer: int, gate_up: Tensor, out: Optional[Tensor] = None) -> Tensor:
        """The layer's activation of gate_up, [rows, 2 * ffn_width]."""
        if out is None:
            out = gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)
        self._start(f"act.{layer}", {f"gate_up.{layer}": gate_up, f"act.{layer}": out})
        return out

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor,
               out: Optional[Tensor] = None) -> Tensor:
        """The layer's RoPE, append and attention; q, k and v, [rows, heads, head_dim], may be views
        of one array. Whether q and k are turned behind it is open."""
        if out is None:
            out = q.new_empty(q.shape)
        given = {"q": q, "k": k, "v": v, "out": out}
        self._start(f"attn.{layer}", {f"{name}.{layer}": x for name, x in given.items()})
        return out

    # ---- The step --------------------------------------------------------------------------------

    def capture(self, loop: Callable[[], object]) -> None:
        """Takes the loop of a step, which calls plan, and then act and attend for each layer. On a
        GPU it is captured, after it has run with idle rows; on the CPU each step calls it."""
        self._loop = loop
        if self.device.type == "cpu":
            return
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_RUNS):
                self.lengths.zero_()  # which the loop may have counted up
                loop()
            self.lengths.zero_()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            loop()

    def _take(self, lengths: Union[Sequence[int], Tensor]) -> Tensor:
        given = torch.as_tensor(lengths, dtype=torch.int32)
        if given.ndim != 1 or given.shape[0] > self.rows:
            raise errors.of(abi.FIG_TOO_LARGE,
                            f"lengths is {list(given.shape)}, the step has {self.rows} rows")
        return given

    def _check(self, lengths: Tensor) -> None:
        for row, length in enumerate(lengths.tolist()):
            if not 0 <= length <= self.cap:
                sentence = f"row {row} has length {length}, its cache holds {self.cap}"
                raise errors.of(abi.FIG_TOO_LARGE, sentence)

    def __call__(self, lengths: Optional[Union[Sequence[int], Tensor]] = None) -> None:
        """One step: of these lengths, and rows that are left over idle; or as the tensor has it."""
        if self._loop is None:
            raise errors.of(abi.FIG_ORDER, "step: no loop was captured")
        given = self.lengths if lengths is None else self._take(lengths)
        if self.check:
            self._check(given)
        if lengths is not None:
            self.lengths[given.shape[0] :].zero_()
            self.lengths[: given.shape[0]].copy_(given)
        if self._graph is None:
            self._loop()
        else:
            self._graph.replay()
