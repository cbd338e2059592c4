"""runs.py: runs graphs on the caller's stream, without an engine.

A Run fills its structs once; repeating the same run is then one call. Invariant: the caller keeps
all memory alive until the run, or the graph that captured it, no longer needs it.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Optional, Union

from . import abi, errors, forms
from .arrays import CUDA, HOST, Place
from .graphs import QUERIES, Graphs, Tensor, Traits
from .integers import INT64, integer, options, put
from .native import Handle, Path, Unique, cache_bytes, encoded, library, must

DEVICES = {HOST: abi.FIG_DEVICE_HOST, CUDA: abi.FIG_DEVICE_CUDA}


def close_at_end(runner: Handle, graphs: Graphs) -> None:
    """Closes a runner before its graphs can be freed."""
    runner.end(library.fig_runner_close)


class Runner(Unique):
    """Graphs whose kernels are loaded on one device; any thread may use it."""

    def __init__(self, graphs: Graphs, device: str, ordinal: int = 0, *,
                 compile_scores: bool = False,
                 score_cache: Union[Path, bool, None] = None) -> None:
        self.graphs = graphs
        self.device, self.ordinal = device, ordinal
        asked = options(abi.fig_runner_options, device=DEVICES[device], ordinal=ordinal,
                        compile_scores=compile_scores, score_cache=cache_bytes(score_cache))
        handle = ctypes.POINTER(abi.fig_runner)()
        must(library.fig_runner_open(handle, graphs.handle, asked))
        self._open = Handle("the runner is", handle)
        weakref.finalize(self, close_at_end, self._open, graphs)
        self.numbers = {name: number for number, name in enumerate(graphs.tensors)}

    @property
    def handle(self) -> Any:
        """Returns the fig_runner *."""
        return self._open.get()

    @property
    def traits(self) -> Traits:
        """Returns the traits of the machine that runs are cut for."""
        made = abi.options(abi.fig_traits)
        must(library.fig_runner_read_traits(self.handle, made))
        return Traits.of_c(made)

    def scratch(self, rows: int, kv_length: int) -> tuple[int, int]:
        """Returns the bytes of a plan and of its scratch."""
        told = abi.options(abi.fig_scratch)
        traits = self.traits.to_c()
        must(library.fig_graphs_scratch(self.graphs.handle, traits, integer("rows", rows),
                                        integer("kv_length", kv_length, INT64), told))
        return told.plan_bytes, told.best_bytes


class Run(Unique):
    """The arguments of one run: the number of rows, the segment, and the memory of its tensors."""

    def __init__(self, runner: Runner, rows: int, segment: Optional[str] = None) -> None:
        self.runner = runner
        self._bindings = (abi.fig_binding * len(runner.numbers))()
        for binding in self._bindings:
            binding.size = ctypes.sizeof(binding)
        self._run = options(abi.fig_run, rows=rows, bindings=self._bindings,
                            binding_count=len(self._bindings))
        self._run.segment = None if segment is None else encoded("segment", segment)
        self._pointer = ctypes.pointer(self._run)

    def bind(self, name: str, place: Place) -> None:
        """Sets the memory of a tensor for all later starts."""
        if name not in self.runner.numbers:
            raise errors.of(abi.FIG_INVALID, f"the program has no tensor {name} to be bound")
        tensor = self.runner.graphs.tensors[name]
        forms.check(tensor, self._rows_of(tensor), place)
        if not place.is_on(self.runner.device) or place.ordinal != self.runner.ordinal:
            raise errors.of(abi.FIG_INVALID, f"tensor {name} is not on the device of the others")
        binding = self._bindings[self.runner.numbers[name]]
        put(binding, address=place.address, bytes=place.reach_bytes())
        binding.strides[: len(place.shape)] = forms.strides_of(tensor, place)

    def _rows_of(self, tensor: Tensor) -> int:
        """Returns the rows of a tensor of this run. Of a packed program they are query tokens: as
        many as the rows can have."""
        spec = self.runner.graphs.spec
        rows: int = self._run.rows
        return min(rows * spec.row_tokens, spec.query_limit) if tensor.dims[0] == QUERIES else rows

    def lend(self, plan: tuple[int, int], scratch: tuple[int, int]) -> None:
        """Sets the plan and the scratch, each as (address, bytes)."""
        self._run.plan, self._run.plan_bytes = plan
        self._run.scratch, self._run.scratch_bytes = scratch

    def start(self, stream: Any = None) -> None:
        """Enqueues the run on a CUstream, given by number. On the host the run has ended when
        start() returns."""
        self._run.stream = stream
        must(library.fig_runner_run(self.runner.handle, self._pointer))

    def start_plan(self, stream: Any = None) -> None:
        """Enqueues, on a CUstream, the kernels that fill in the plan given to lend."""
        self._run.stream = stream
        must(library.fig_runner_plan(self.runner.handle, self._pointer))
