"""runs.py: graphs run at once on a stream of the caller's, without an engine.

What a run says is filled into structs that are made once; a run of the same again is one call.
Invariant: memory is the caller's to keep until the run, or what captured it, is done with it.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Optional

from . import abi, errors, forms
from .arrays import CUDA, HOST, Place
from .graphs import Graphs, Traits
from .native import library, must

DEVICES = {HOST: abi.FIG_DEVICE_HOST, CUDA: abi.FIG_DEVICE_CUDA}


class Runner:
    """Graphs whose kernels are loaded on one device; any thread may use it."""

    def __init__(self, graphs: Graphs, device: str, ordinal: int = 0) -> None:
        self.graphs = graphs
        self.device, self.ordinal = device, ordinal
        options = abi.options(abi.fig_runner_options, device=DEVICES[device], ordinal=ordinal)
        self.handle = ctypes.POINTER(abi.fig_runner)()
        must(library.fig_runner_open(self.handle, graphs.handle, options))
        weakref.finalize(self, library.fig_runner_close, self.handle)
        self.numbers = {name: number for number, name in enumerate(graphs.tensors)}

    @property
    def traits(self) -> Traits:
        """The machine that runs are cut for."""
        made = abi.options(abi.fig_traits)
        must(library.fig_runner_read_traits(self.handle, made))
        return Traits.of_c(made)

    def scratch(self, rows: int, kv_length: int) -> tuple[int, int]:
        """Bytes of a plan, and of the scratch that goes with it."""
        told = abi.options(abi.fig_scratch)
        traits = self.traits.to_c()
        must(library.fig_graphs_scratch(self.graphs.handle, traits, rows, kv_length, told))
        return told.plan_bytes, told.best_bytes


class Run:
    """What one run says: how many rows, which segment, and where its tensors lie."""

    def __init__(self, runner: Runner, rows: int, segment: Optional[str] = None) -> None:
        self.runner = runner
        self._bindings = (abi.fig_binding * len(runner.numbers))()
        for binding in self._bindings:
            binding.size = ctypes.sizeof(binding)
        self._run = abi.options(abi.fig_run, rows=rows, bindings=self._bindings,
                                binding_count=len(self._bindings))
        self._run.segment = None if segment is None else segment.encode()
        self._pointer = ctypes.pointer(self._run)

    def bind(self, name: str, place: Place) -> None:
        """Where a tensor lies from here on."""
        if name not in self.runner.numbers:
            raise errors.of(abi.FIG_INVALID, f"the program has no tensor {name} to be bound")
        tensor = self.runner.graphs.tensors[name]
        forms.check(tensor, self._run.rows, place)
        if not place.is_on(self.runner.device) or place.ordinal != self.runner.ordinal:
            raise errors.of(abi.FIG_INVALID, f"tensor {name} is not on the device of the others")
        binding = self._bindings[self.runner.numbers[name]]
        binding.address, binding.bytes = place.address, place.reach_bytes()
        binding.strides[: len(place.shape)] = forms.strides_of(tensor, place)

    def lend(self, plan: tuple[int, int], scratch: tuple[int, int]) -> None:
        """Address and bytes of a plan and of its scratch."""
        self._run.plan, self._run.plan_bytes = plan
        self._run.scratch, self._run.scratch_bytes = scratch

    def start(self, stream: Any = None) -> None:
        """Puts the run on a CUstream, by its number; on the host it has ended on return."""
        self._run.stream = stream
        must(library.fig_runner_run(self.runner.handle, self._pointer))

    def start_plan(self, stream: Any = None) -> None:
        """Puts the making of the plan that was lent on a CUstream."""
        self._run.stream = stream
        must(library.fig_runner_plan(self.runner.handle, self._pointer))
