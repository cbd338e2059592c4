"""jax_compare.py: times the tutorial's step of three calls with libfigraph and with FlashInfer's
three modules.

    build/figraph capture --preset tutorial --layers 1 -o tutorial.fig
    tests/gpu/jax_compare.py tutorial.fig NOTHING.so [SILU.so ROPE.so DECODE.so]

NOTHING.so is built from tests/jax/nothing.c. FlashInfer's modules are built in advance, for f16 and
head_dim 64. Each step is one jit, and the script waits for each. The libraries take turns every few
steps, in a different order each round, so that drift affects all of them. The script prints medians
in us: the time of a step, and its difference to the same step with calls that do nothing. For the
difference, it also prints the least and the greatest median of five parts of the run. XLA_FLAGS
decide whether anything is captured.

JAX's own overhead is ten times the GPU's time. It hides everything of a captured step except the
launch. So the script also times chains: --chain steps in one jit, in which each step's q is the
result of the one before; these times are per step too. XLA's targets are registered for execute
only, as FlashInfer's are. `program` runs the file's step in one call, with one plan for all steps
of a chain. It has one row and a paged cache, to which the new token is appended.
"""

import argparse
import ctypes
import gc
import os
import random
import sys
import time
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../tools/jax"))

import figraph.jax as fj
import jax
import jax.numpy as jnp
import numpy as np
import tutorial
import tvm_ffi


def named(base, name, module, scratch_bytes=None):
    """Returns a subclass of a tutorial class that has another name and calls another module."""

    class Way(base):
        def load(self):
            return module

        def scratch(self, *needs):
            if scratch_bytes is None:
                return super().scratch(*needs)
            return jax.ShapeDtypeStruct((scratch_bytes // 2,), jnp.float16)

    Way.__name__ = name
    return Way


class XlaNothing(tutorial.Xla):
    def __init__(self, platform, path):
        super().__init__(platform)
        handler = ctypes.cast(ctypes.CDLL(path).nothing, ctypes.c_void_p)
        jax.ffi.register_ffi_target("nothing", jax.ffi.pycapsule(handler), platform="CUDA")
        self.name_of = lambda name: "nothing"


class Program(tutorial.Way):
    def __init__(self, platform, path):
        super().__init__(platform)
        self.file = fj.load(path)


TOKENS = 512


def activations(length):
    return [tutorial.normal(20 + n, (4, 128)) for n in range(length)]


def joined(activated):
    return activated[0] if len(activated) == 1 else jnp.stack(activated)


def step_of(way, length):
    """Returns `length` steps in one jit; each uses the result of the one before as its q."""
    q, k, v = tutorial.cache_of(TOKENS)
    xs = activations(length)
    indptr, offsets = jnp.array([0, 1], jnp.int32), jnp.array([TOKENS], jnp.int32)

    def chain(q, k_new, k, v, indptr, offsets):
        activated = []
        for x in xs:
            activated.append(way.silu_and_mul(x))
            turned, _ = way.apply_rope(q, k_new, indptr, offsets)
            q = way.decode_attention(turned[0], k, v)[None]
        return joined(activated), q[0]

    inputs = q[None], k[:1], k, v, indptr, offsets
    compiled = jax.jit(chain)
    return lambda: jax.block_until_ready(compiled(*inputs))


def program_step_of(way, length, page=16):
    """k and v of the token are written to the last place in the cache, and q and k are rotated in
    place; so q, k and the caches are donated."""
    q, k, v = tutorial.cache_of(TOKENS)
    xs, v_new = [x[:1] for x in activations(length)], v[:1] + 0
    lengths = jnp.array([TOKENS], jnp.int32)
    table = jnp.tile(jnp.arange(TOKENS // page, dtype=jnp.int32), (8, 1))
    held = q[None], k[:1] + 0, k.reshape(-1, page, 4, 64), v.reshape(-1, page, 4, 64)
    options = dict(kv_length=TOKENS, rows=1, aliases={2: 1, 3: 2, 5: 4, 6: 5})

    def chain(held, v_new, table, lengths):
        q, k_new, *caches = held
        plan = fj.plan(lengths, dtype=q.dtype, q_heads=16, cache=fj.Cache(*caches, table[:1]))
        act = jax.ShapeDtypeStruct((1, 64), q.dtype)
        outs = [act, *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k_new, q, *caches))]
        activated = []
        for x in xs:
            arrays = table, x, q, k_new, v_new, *caches
            got, plan = fj.program(way.file, outs, *arrays, plan=plan, **options)
            act, _, k_new, q, *caches = got
            activated.append(act)
        return (q, k_new, *caches), joined(activated)

    compiled = jax.jit(chain, donate_argnums=0)

    def step():
        nonlocal held
        held, activated = jax.block_until_ready(compiled(held, v_new, table, lengths))
        return activated, held[0]

    return step


def measure(steps, seconds, length):
    """Returns {name: [microseconds of a step]}, for steps that take turns."""
    times = {name: [] for name in steps}
    order = list(steps)
    clock = time.perf_counter
    until = clock() + seconds
    gc.disable()
    while clock() < until:
        random.shuffle(order)
        for name in order:
            step, told = steps[name], times[name]
            step()
            for _ in range(8):
                start = clock()
                step()
                told.append((clock() - start) / length * 1e6)
    gc.enable()
    return times


def report(times):
    print("way                    median      p25      p75    above: median   by fifths")
    for name, told in times.items():
        line = f"{name:20} {np.median(told):8.2f} {np.percentile(told, 25):8.2f}"
        line += f" {np.percentile(told, 75):8.2f}"
        nothing = times.get("nothing, " + name.split(", ")[1])
        if nothing is not None and nothing is not told:
            fifths = zip(np.array_split(told, 5), np.array_split(nothing, 5))
            above = [np.median(a) - np.median(b) for a, b in fifths]
            line += f"  {np.median(told) - np.median(nothing):15.2f}"
            line += f"   {min(above):.2f} to {max(above):.2f}"
        print(line)


def make_steps(ways, length):
    steps = {}
    for name, way in ways.items():
        try:
            make = program_step_of if isinstance(way, Program) else step_of
            steps[name] = make(way, length)
            for _ in range(20):
                steps[name]()
        except Exception as error:
            print(f"{name}: {str(error).splitlines()[0][:200]}")
            steps.pop(name, None)
    return steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("nothing")
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--chain", type=int, default=64)
    arguments = parser.parse_args()
    nothing = tvm_ffi.load_module(os.path.abspath(arguments.nothing))
    wrapped, bare = tutorial.Wrapped, tutorial.Bare
    ways = {
        "figraph, xla": tutorial.Xla("gpu"),
        "program, xla": Program("gpu", arguments.file),
        "nothing, xla": XlaNothing("gpu", os.path.abspath(arguments.nothing)),
        "figraph, bare": bare("gpu"),
        "nothing, bare": named(bare, "NothingBare", nothing)("gpu"),
        "figraph, wrapped": wrapped("gpu"),
        "nothing, wrapped": named(wrapped, "NothingWrapped", nothing)("gpu"),
    }
    if arguments.modules:
        silu, rope, decode = (tvm_ffi.load_module(os.path.abspath(m)) for m in arguments.modules)
        theirs = SimpleNamespace(
            silu_and_mul=silu.silu_and_mul, apply_rope=rope.apply_rope, run=decode.run
        )
        ways["flashinfer, wrapped"] = named(wrapped, "Theirs", theirs, 32 << 20)("gpu")
    print(f"jax {jax.__version__}, XLA_FLAGS={os.environ.get('XLA_FLAGS', '')}")
    for length in (1, arguments.chain):
        steps = make_steps(ways, length)
        if "flashinfer, wrapped" in steps:
            ours, theirs = steps["figraph, wrapped"](), steps["flashinfer, wrapped"]()
            for a, b in zip(ours, theirs):
                tutorial.compare("figraph against flashinfer", a, b)
        print(f"{length} step{'s' if length > 1 else ''} in a jit")
        report(measure(steps, arguments.seconds, length))


if __name__ == "__main__":
    main()
