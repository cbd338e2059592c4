"""figraph: plan, capture and replay the fixed-shape part of an LLM's decode step.

For each layer that is the gated activation, RoPE, the append to the KV cache and split-K decode
attention: what stands between a model's matrix products. It is recorded once, lowered for every
bucket of rows and tokens, and saved. A loop then binds its arrays and says, token by token, how
long each sequence is; the launch is one call.

Without a GPU all of it runs on the CPU, by the same code in C, and that is where this tutorial is.

1. A model is the name of a preset, or the path of a Hugging Face config.json.

>>> import figraph
>>> figraph.presets()[0]
'tutorial'
>>> figraph.spec("llama-3.1-8b").kv_heads
8

2. Planning needs no memory and no GPU, even for the traits of one. One long row and many short ones
are cut into even shares of tiles:

>>> plan = figraph.plan("llama-3.1-8b", [32768] + 39 * [512], layers=1, traits="h200")
>>> plan.workers, plan.tiles_least, plan.tiles_most
(132, 24, 25)

3. Capturing records and lowers the step; a file of it is loaded anywhere.

>>> figraph.capture("tutorial", traits="host").save("tutorial.fig")
>>> graphs = figraph.load("tutorial.fig")
>>> graphs.tensors["q.0"].dims  # -1 counts rows: 8 of them here
(-1, 16, 64)

4. An engine makes it launchable. Arrays of torch, JAX, CuPy and numpy are bound as they lie; what
is not bound can be the engine's own memory. A loop binds what its matrix products write and read.

>>> from array import array
>>> import ctypes
>>> engine = figraph.Engine(graphs, device="host")
>>> engine.bind("v.0", size=2 * 8 * 4 * 64)
>>> engine.bind_rest(pages=8 * 32)

5. A step is told how many tokens each sequence has, its new one included. Here sequence 0 gets its
first token, in page 0, and its value is 1 in f16 in all 256 numbers; so that is the mean.

>>> engine.set_pages(0, [0])
>>> engine.write("v.0", array("H", 256 * [0x3C00]))
>>> engine.step([1])
>>> engine.wait(timeout=10)
>>> hex(int.from_bytes(engine.read("out.0", 2), "little"))
'0x3c00'

6. What a loop costs is counted as it runs.

>>> engine.stats().launched
1

7. What is refused is an exception, whose text names what was wrong and the limit.

>>> engine.step([513])
Traceback (most recent call last):
figraph.errors.TooLarge: step: kv_lengths[0] is 513, limit 512
>>> engine.close()

8. On a GPU the loop is the same. Where torch captures a graph of its own, segments of the step go
between its matrix products:

    engine = figraph.Engine("model.fig", device="cuda", stream=torch.cuda.current_stream())
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        engine.append("fetch", bucket=plan.bucket, stream=torch.cuda.current_stream())
        for n in range(layers):
            ...                                     # q.n, k.n and v.n, as they are bound
            engine.append(f"attn.{n}", bucket=plan.bucket, stream=torch.cuda.current_stream())
            ...                                     # the projection and gate_up.n
            engine.append(f"act.{n}", bucket=plan.bucket, stream=torch.cuda.current_stream())
    engine.stage(lengths, bucket=plan.bucket)
    graph.replay()

figraph.torch and figraph.jax are tutorials of their own: the operations one by one, and steps whose
lengths lie on the device.

9. The command line comes along, as `figraph` and as a function. This replays steps over made-up
numbers and compares each result with float64:

>>> figraph.run("replay", "tutorial.fig", "--steps", "8", "--device", "host", "--check")["passed"]
True

Threads: one at a time uses an engine, different engines are used by different threads, and they may
share graphs. Every call lets other threads of Python run. figraph.errors has a class for each
reason to be refused; errors.Busy and errors.Timeout are worth another try. figraph.abi is the C
interface as ctypes has it, for what is not here.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

from . import abi, errors
from .engine import Call, Engine
from .errors import Error
from .graphs import Graphs, Memory, Plan, Tensor, Traits, capture_for, load
from .native import library
from .program import run
from .specs import Model, Rope, RopeTable, Spec, presets, spec
from .stats import Histogram, Progress, Stats

__all__ = [
    "Call",
    "Engine",
    "Error",
    "Graphs",
    "Histogram",
    "Memory",
    "Model",
    "Plan",
    "Progress",
    "Rope",
    "RopeTable",
    "Spec",
    "Stats",
    "Tensor",
    "Traits",
    "abi",
    "capture",
    "errors",
    "load",
    "machine",
    "plan",
    "presets",
    "run",
    "spec",
]

_version = library.fig_version()
__version__ = f"{_version // 10000}.{_version // 100 % 100}.{_version % 100}"


def machine(device: str = "auto") -> Traits:
    """This machine: its GPU where it has one, else the host.

    >>> machine("host").name
    'host'
    """
    smallest = capture_for("tutorial", Traits.named("host"), buckets=[(1, 1)])
    with Engine(smallest, device=device) as engine:
        return engine.traits


def capture(
    model: Model,
    *,
    traits: Optional[Union[str, Traits]] = None,
    buckets: Optional[Sequence[tuple[int, int]]] = None,
    deterministic: bool = False,
    reads: Sequence[str] = (),
    **changes: Any,
) -> Graphs:
    """Records the step of a model and lowers it for every bucket.

    model: as figraph.spec takes it, and `changes` are fields of the spec. traits: the machine that
    steps are cut for, "h200", "h100", "a100" or "host"; this machine, unless given. buckets: pairs
    of rows and tokens a row; powers of two up to the spec's limits, unless given. deterministic: a
    row's bits depend on its own length alone. reads: ("lengths",) or ("lengths", "positions"),
    tensors of those names, int32 of each row, in place of what stage would be given.

    >>> capture("tutorial", traits="h200", kv_limit=64).traits.sm_count
    132
    """
    if traits is None:
        traits = machine()
    elif isinstance(traits, str):
        traits = Traits.named(traits)
    return capture_for(model, traits, buckets=buckets, deterministic=deterministic, reads=reads,
                       **changes)


def plan(
    model: Union[Model, Graphs],
    lengths: Sequence[int],
    *,
    traits: Optional[Union[str, Traits]] = None,
    **changes: Any,
) -> Plan:
    """How a step of a model would be cut; nothing runs and nothing is kept.

    lengths: tokens of each row's sequence, this step's included. For many steps of one model
    capture it once and ask Graphs.plan.

    >>> plan("llama-3.1-8b", 8 * [4096], traits="h200", layers=1).workers
    132
    """
    if isinstance(model, Graphs):
        return model.plan(lengths)
    return capture(model, traits=traits, **changes).plan(lengths)
