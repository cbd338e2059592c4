"""figraph: plan, capture and replay the fixed-shape part of an LLM's decode step.

In each layer, figraph does the work between a model's matrix products: the gated activation, RoPE,
the append to the KV cache and split-K decode attention. You bring the matrix products, the weights
and the sampling. The step is recorded once, lowered for every bucket of rows and tokens, and saved.
Your loop then binds its arrays. For each token it passes the length of every sequence and launches
the whole step with one call.

Everything also runs on the CPU, through the same C code. This tutorial needs no GPU.

1. A model is the name of a preset, the path of a Hugging Face config.json, or a configuration of
transformers.

>>> import figraph
>>> figraph.presets()[0]
'tutorial'
>>> figraph.spec("llama-3.1-8b").kv_heads
8

2. Planning needs no device memory and no GPU, even when you plan for a GPU's traits. Here one long
row and 39 short ones are cut into shares of equal cost:

>>> plan = figraph.plan("llama-3.1-8b", [32768] + 39 * [512], layers=1, traits="h200")
>>> plan.workers, plan.units_most  # a tile is 16 units, and a row's first one costs more
(132, 505)

3. Capturing records the step and lowers it for each bucket. The saved file loads on any machine.

>>> figraph.capture("tutorial", traits="host").save("tutorial.fig")
>>> graphs = figraph.load("tutorial.fig")
>>> graphs.tensors["q.0"].dims  # -1 counts rows: 8 of them here
(-1, 16, 64)

4. An engine makes the step launchable on a device. It binds arrays of torch, JAX, CuPy and numpy
without copying them. The engine can allocate memory for the tensors that you do not bind. A loop
binds the arrays that its matrix products write and read.

>>> from array import array
>>> import ctypes
>>> engine = figraph.Engine(graphs, device="host")
>>> engine.bind("v.0", size=2 * 8 * 4 * 64)
>>> engine.bind_rest(pages=8 * 32)

5. Each step takes the number of tokens of every sequence, the new token included. Here sequence 0
gets its first token, stored in page 0. All 256 numbers of the token's value are 1 in f16 (0x3C00).
Attention over this one token returns the same value.

>>> engine.set_pages(0, [0])
>>> engine.write("v.0", array("H", 256 * [0x3C00]))
>>> engine.step([1])
>>> engine.wait(timeout=10)
>>> hex(int.from_bytes(engine.read("out.0", 2), "little"))
'0x3c00'

6. The engine counts steps, bytes and times while the loop runs.

>>> engine.stats().launched
1

7. A refused call raises an exception. Its text names the wrong value and the limit.

>>> engine.step([513])
Traceback (most recent call last):
figraph.errors.TooLarge: step: kv_lengths[0] is 513, limit 512
>>> engine.close()

8. The loop is the same on a GPU. When torch captures the graph, append segments of the step between
the matrix products:

    engine = figraph.Engine("model.fig", device="cuda", stream=torch.cuda.current_stream())
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        engine.append("fetch", bucket=plan.bucket, stream=torch.cuda.current_stream())
        for n in range(layers):
            ...                                     # write q.n, k.n and v.n into the bound arrays
            engine.append(f"attn.{n}", bucket=plan.bucket, stream=torch.cuda.current_stream())
            ...                                     # the projection and gate_up.n
            engine.append(f"act.{n}", bucket=plan.bucket, stream=torch.cuda.current_stream())
    engine.stage(lengths, bucket=plan.bucket)
    graph.replay()

help(figraph.torch) and help(figraph.jax) have tutorials of their own. They show single operations,
and whole steps that read their lengths from device memory.

9. The package brings the command line as `figraph`, as `python -m figraph` and as a function. This
call replays steps over synthetic numbers and compares each result with float64:

>>> figraph.run("replay", "tutorial.fig", "--steps", "8", "--device", "host", "--check")["passed"]
True

help(figraph.Prompts) shows attention of whole prompts and their chunks over a paged cache.

Threads: only one thread at a time may use an engine. Different threads may use different engines,
and engines may share graphs. Calls into the library release the GIL. figraph.errors has a class for
each kind of refusal; after errors.Busy or errors.Timeout you may try the same call again.
figraph.abi is the whole C interface for ctypes, for calls that this module lacks.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

from . import abi, errors
from .engine import Call, Engine
from .errors import Error
from .graphs import Graphs, Memory, Plan, Tensor, Traits, capture_for, load
from .native import library
from .program import run
from .prompts import Prompts, PromptsMemory
from .scores import Mask, Masked, Score, mask, score
from .specs import Model, Rope, RopeTable, Spec, presets, spec
from .stats import Histogram, Progress, Stats

__all__ = [
    "Call",
    "Engine",
    "Error",
    "Graphs",
    "Histogram",
    "Mask",
    "Memory",
    "Model",
    "Plan",
    "Progress",
    "Prompts",
    "PromptsMemory",
    "Rope",
    "RopeTable",
    "Score",
    "Spec",
    "Stats",
    "Tensor",
    "Traits",
    "abi",
    "capture",
    "errors",
    "load",
    "machine",
    "mask",
    "plan",
    "presets",
    "run",
    "score",
    "spec",
]

_version = library.fig_version()
__version__ = f"{_version // 10000}.{_version // 100 % 100}.{_version % 100}"


def machine(device: str = "auto") -> Traits:
    """The traits of this machine: of its GPU if it has one, otherwise of the host.

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
    score: Optional[Union[str, Score]] = None,
    mask: Optional[Masked] = None,
    q_rope: bool = False,
    **changes: Any,
) -> Graphs:
    """Records a model's step and lowers it for every bucket.

    model: anything that figraph.spec takes; `changes` are fields of the spec. traits: the machine
    that steps are cut for: "h200", "h100", "a100", "host" or Traits; the default is this machine.
    buckets: pairs of rows and tokens per row; the default is powers of two up to the spec's limits.
    deterministic: make the bits of a row's result depend on the row's own length alone. reads:
    ("lengths",) or ("lengths", "positions"). The step then reads these int32 tensors, one number
    per row, from device memory, and stage is not given these numbers. score: a variant of
    attention, from figraph.score or as a text; each of its arrays is a tensor of its name. mask:
    the tokens that a query sees, from figraph.mask or as a text. q_rope: over a latent cache,
    divide q of layer N into q.N, the first 512 values of each head, and q_rope.N, the last 64.

    >>> capture("tutorial", traits="h200", kv_limit=64).traits.sm_count
    132
    """
    if traits is None:
        traits = machine()
    elif isinstance(traits, str):
        traits = Traits.named(traits)
    elif not isinstance(traits, Traits):
        raise TypeError(f"traits is {traits!r}, it must be the name of a machine or Traits")
    return capture_for(model, traits, buckets=buckets, deterministic=deterministic, reads=reads,
                       score=score, mask=mask, q_rope=q_rope, **changes)


def plan(
    model: Union[Model, Graphs],
    lengths: Sequence[int],
    *,
    traits: Optional[Union[str, Traits]] = None,
    **changes: Any,
) -> Plan:
    """Returns how a model's step would be cut, without running or keeping anything.

    lengths: the number of tokens of each row's sequence, this step's token included. To plan many
    steps of one model, capture it once and call Graphs.plan.

    >>> plan("llama-3.1-8b", 8 * [4096], traits="h200", layers=1).workers
    132
    """
    if isinstance(model, Graphs):
        if traits is not None or changes:
            raise TypeError("the model is Graphs, whose traits and fields are fixed: give a spec "
                            "to change them")
        return model.plan(lengths)
    return capture(model, traits=traits, **changes).plan(lengths)
