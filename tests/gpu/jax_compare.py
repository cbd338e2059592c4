"""jax_compare.py: the tutorial's composed step, by libfigraph and by FlashInfer's three modules.

    tests/gpu/jax_compare.py build/libfigraph_ffi.so NOTHING.so [SILU.so ROPE.so DECODE.so]

NOTHING.so is made of tests/jax/nothing.c; the modules of FlashInfer's are built ahead of time, for
f16 and head_dim 64. Each step is one jit, waited for each time. All ways take turns, so that they
see the same machine; told are medians in us: of the step, of the same step whose three calls do
nothing, and of what is between the two. XLA_FLAGS decide whether anything is captured.
"""

import argparse
import ctypes
import os
import sys
import time
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tools/jax"))

import jax
import jax.numpy as jnp
import numpy as np
import tvm_ffi
import tutorial
from library import Library


def named(base, name, module, scratch_bytes=None):
    """A way of the tutorial's with another module behind it, and names of its own."""

    class Way(base):
        def load(self):
            return module

        def scratch(self, needs):
            if scratch_bytes is None:
                return super().scratch(needs)
            return jax.ShapeDtypeStruct((scratch_bytes // 2,), jnp.float16)

    Way.__name__ = name
    return Way


class XlaNothing(tutorial.Xla):
    def __init__(self, library, platform, path):
        tutorial.Way.__init__(self, library, platform)
        handler = ctypes.cast(ctypes.CDLL(path).nothing, ctypes.c_void_p)
        jax.ffi.register_ffi_target("nothing", jax.ffi.pycapsule(handler), platform="CUDA")
        self.name_of = lambda name: "nothing"


def step_of(way, tokens=512):
    q, k, v = tutorial.cache_of(tokens)
    x = tutorial.normal(20, (4, 128))
    indptr, offsets = jnp.array([0, 1], jnp.int32), jnp.array([tokens], jnp.int32)

    def step(x, q, k_new, k, v, indptr, offsets):
        activated = way.silu_and_mul(x)
        turned, _ = way.apply_rope(q, k_new, indptr, offsets)
        return activated, way.decode_attention(turned[0], k, v)

    inputs = x, q[None], k[:1], k, v, indptr, offsets
    compiled = jax.jit(step)
    return lambda: jax.block_until_ready(compiled(*inputs))


def measure(steps, rounds, count):
    times = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            for _ in range(10):
                step()
            start = time.perf_counter()
            for _ in range(count):
                step()
            times[name].append((time.perf_counter() - start) / count * 1e6)
    return {name: (np.median(t), min(t), max(t)) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("nothing")
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=200)
    arguments = parser.parse_args()
    library = Library(arguments.library)
    nothing = tvm_ffi.load_module(os.path.abspath(arguments.nothing))
    wrapped, bare = tutorial.Wrapped, tutorial.Bare
    ways = {
        "figraph, xla": tutorial.Xla(library, "gpu"),
        "nothing, xla": XlaNothing(library, "gpu", os.path.abspath(arguments.nothing)),
        "figraph, bare": bare(library, "gpu"),
        "nothing, bare": named(bare, "NothingBare", nothing)(library, "gpu"),
        "figraph, wrapped": wrapped(library, "gpu"),
        "nothing, wrapped": named(wrapped, "NothingWrapped", nothing)(library, "gpu"),
    }
    if arguments.modules:
        silu, rope, decode = (tvm_ffi.load_module(os.path.abspath(m)) for m in arguments.modules)
        theirs = SimpleNamespace(
            silu_and_mul=silu.silu_and_mul, apply_rope=rope.apply_rope, run=decode.run
        )
        ways["flashinfer, wrapped"] = named(wrapped, "Theirs", theirs, 32 << 20)(library, "gpu")
    steps = {}
    for name, way in ways.items():
        try:
            steps[name] = step_of(way)
            steps[name]()
        except Exception as error:
            print(f"{name}: {str(error).splitlines()[0][:200]}")
            steps.pop(name, None)
    if "flashinfer, wrapped" in steps:
        ours, theirs = steps["figraph, wrapped"](), steps["flashinfer, wrapped"]()
        for a, b in zip(ours, theirs):
            tutorial.compare("figraph against flashinfer", a, b)
    found = measure(steps, arguments.rounds, arguments.count)
    print(f"jax {jax.__version__}, XLA_FLAGS={os.environ.get('XLA_FLAGS', '')}")
    print("way                    median   least    most   without what nothing takes")
    for name, (median, least, most) in found.items():
        base = found.get("nothing, " + name.split(", ")[1], (float("nan"),))[0]
        print(f"{name:20} {median:8.1f} {least:7.1f} {most:7.1f} {median - base:8.1f}")


if __name__ == "__main__":
    main()
