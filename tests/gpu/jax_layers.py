"""jax_layers.py: 32 layers of llama-3.1-8b at 8 x 2048 in one jit, under one plan, steps pipelined.

    build/figraph capture --preset llama-3.1-8b --batch-limit 8 --kv-limit 2048 -o llama.fig
    tests/gpu/jax_layers.py build/libfigraph_ffi.so llama.fig

Three ways: a call for each operation, figraph.decode_attention for RoPE, append and attention, and
the whole step as one figraph.program. Tells us a step, and what the host takes to ask for one.
XLA_FLAGS decide what is captured. `figraph bench replay` does the same step without JAX.
"""

import argparse
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../tools/jax"))

import jax
import jax.numpy as jnp
import numpy as np
from library import Library

ROWS, LAYERS, TOKENS, PAGE = 8, 32, 2048, 16
Q_HEADS, KV_HEADS, DIM, WIDTH = 32, 8, 128, 14336
THETA = dict(rope_theta=5e5, llama3_factor=8.0, llama3_low=1.0, llama3_high=4.0)
ROPE = dict(THETA, llama3_context=8192)


def like(*arrays):
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)


def call(target, outs, *arrays, aliases=None, **attributes):
    options = {"input_output_aliases": aliases} if aliases else {}
    return jax.ffi.ffi_call("figraph." + target, outs, **options)(*arrays, **attributes)


class Ways:
    def __init__(self, library, content_id):
        self.library = library
        self.content_id = content_id

    def plan(self, lengths):
        shape = "bfloat16", Q_HEADS, KV_HEADS, DIM, TOKENS, PAGE
        return self.library.plan(lengths, *shape)

    def separate(self, x, q, k, v, caches, lengths, table):
        plan, scratch = self.plan(lengths)
        results = []
        for n in range(LAYERS):
            act = call("silu_and_mul", like(x[n][:, :WIDTH])[0], x[n])
            q_n, k_n = call("rope", like(q[n], k[n]), q[n], k[n], lengths - 1, **ROPE)
            rest = caches[n] + (lengths, table, plan)
            grown = call("append_kv", like(*caches[n]), k_n, v[n], *rest, aliases={2: 0, 3: 1})
            rest = grown[0], grown[1], lengths, table, plan, scratch
            out, scratch = call("attention", like(q_n, scratch), q_n, *rest, aliases={6: 1})
            results.append((act, out, q[n], k[n], *grown))
        return results

    def fused(self, x, q, k, v, caches, lengths, table):
        plan, scratch = self.plan(lengths)
        results = []
        for n in range(LAYERS):
            act = call("silu_and_mul", like(x[n][:, :WIDTH])[0], x[n])
            arrays = q[n], k[n], v[n], *caches[n], lengths, table, plan, scratch
            outs = like(q[n], q[n], k[n], *caches[n], scratch)
            aliases = {0: 1, 1: 2, 3: 3, 4: 4, 8: 5}
            *got, scratch = call("decode_attention", outs, *arrays, aliases=aliases, **ROPE)
            results.append((act, *got))
        return results

    def program(self, x, q, k, v, caches, lengths, table):
        """The file's tensors: the page table, and of each layer gate_up, act, q, k, v, out and the
        two caches; what is written before it is read is a result."""
        plan, scratch = self.plan(lengths)
        arguments, outs, aliases = [table], [], {}
        for n in range(LAYERS):
            arguments.append(x[n])
            outs.append(x[n][:, :WIDTH])
            for array in (q[n], k[n]):
                aliases[len(arguments)] = len(outs)
                arguments.append(array)
                outs.append(array)
            arguments.append(v[n])
            outs.append(q[n])
            for array in caches[n]:
                aliases[len(arguments)] = len(outs)
                arguments.append(array)
                outs.append(array)
        aliases[len(arguments) + 1] = len(outs)
        arguments += [plan, scratch]
        options = dict(content_id=self.content_id, kv_length=TOKENS, rows=ROWS)
        got = call("program", like(*outs, scratch), *arguments, aliases=aliases, **options)
        layers = [got[6 * n : 6 * n + 6] for n in range(LAYERS)]
        return [(act, out, q_n, k_n, *grown) for act, q_n, k_n, out, *grown in layers]


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(jnp.bfloat16)


class Loop:
    """Everything that a step writes is donated back to it, in the order of its results, so that
    each lands where it was: no copies, and no second capture."""

    def __init__(self, way):
        def step(kept, x, v, lengths, table):
            _, _, q, k, *caches = zip(*kept)
            return way(x, q, k, v, list(zip(*caches)), lengths, table)

        cache = ROWS * TOKENS // PAGE, PAGE, KV_HEADS, DIM
        heads = (ROWS, Q_HEADS, DIM), (ROWS, KV_HEADS, DIM)
        shapes = (ROWS, WIDTH), heads[0], *heads, cache, cache
        kept = lambda n: tuple(normal(i + 6 * n, *s) for i, s in enumerate(shapes))
        self.kept = [kept(n) for n in range(LAYERS)]
        self.x = [normal(n, ROWS, 2 * WIDTH) for n in range(LAYERS)]
        self.v = [normal(n, *heads[1]) for n in range(LAYERS)]
        pages = jnp.arange(cache[0], dtype=jnp.int32)
        self.table = pages.reshape(ROWS, TOKENS // PAGE)
        self.lengths = jnp.full((ROWS,), TOKENS, jnp.int32)
        self.compiled = jax.jit(step, donate_argnums=0, keep_unused=True)

    def step(self):
        self.kept = self.compiled(self.kept, self.x, self.v, self.lengths, self.table)

    def wait(self):
        jax.block_until_ready(self.kept)


def measure(loop, rounds, count):
    times, asked = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            loop.step()
        asked.append((time.perf_counter() - start) / count * 1e6)
        loop.wait()
        times.append((time.perf_counter() - start) / count * 1e6)
    return np.median(times), min(times), min(asked)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("file")
    parser.add_argument("--way", action="append", choices=("separate", "fused", "program"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=50)
    arguments = parser.parse_args()
    library = Library(arguments.library)
    library.register_targets("CUDA")
    ways = Ways(library, library.load(arguments.file))
    print(f"jax {jax.__version__}, XLA_FLAGS={os.environ.get('XLA_FLAGS', '')}")
    expected = None
    for name in arguments.way or ("separate", "fused", "program"):
        loop = Loop(getattr(ways, name))
        loop.step()
        outs = np.stack([np.asarray(layer[1].astype(jnp.float32)) for layer in loop.kept])
        expected = outs if expected is None else expected
        np.testing.assert_allclose(outs, expected, rtol=2e-2, atol=2e-2, err_msg=name)
        for _ in range(5):
            loop.step()
        loop.wait()
        before = library.counts()
        median, least, asked = measure(loop, arguments.rounds, arguments.count)
        after = library.counts()
        print(
            f"{name:10} {median:8.1f} us a step, least {least:.1f}, the host at least {asked:.1f}; "
            f"eager {after.eager - before.eager}, captured {after.captured - before.captured}",
            flush=True,
        )


if __name__ == "__main__":
    main()
