"""jax_layers.py: times 32 layers of llama-3.1-8b at 8 x 2048 in one jit, with one plan per step and
pipelined steps.

    build/figraph capture --preset llama-3.1-8b --batch-limit 8 --kv-limit 2048 -o llama.fig
    tests/gpu/jax_layers.py llama.fig     where figraph can be imported

There are three ways: a call for each operation; figraph.decode_attention for RoPE, append and
attention; and the whole step as one figraph.program, whose arrays hold all layers. Prints the
microseconds of a step, and the host's time to dispatch one. XLA_FLAGS decide what is captured.
`figraph bench replay` runs the same step without JAX.
"""

import argparse
import os
import time

import figraph.jax as fj
import jax
import jax.numpy as jnp
import numpy as np
from figraph import ffi

ROWS, LAYERS, TOKENS, PAGE = 8, 32, 2048, 16
Q_HEADS, KV_HEADS, DIM, WIDTH = 32, 8, 128, 14336
ROPE = fj.Rope(theta=5e5, llama3_factor=8, llama3_low=1, llama3_high=4, llama3_context=8192)


def like(*arrays):
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32).astype(jnp.bfloat16)


HEADS = (ROWS, Q_HEADS, DIM), (ROWS, KV_HEADS, DIM), (ROWS, KV_HEADS, DIM)
CACHE = ROWS * TOKENS // PAGE, PAGE, KV_HEADS, DIM


class Separate:
    """A layer's out is the next layer's q; k stays in its array, and all layers use the same v. So
    a step has few arguments besides caches and activations."""

    def __init__(self, file):
        self.file = file
        self.x = [normal(n, ROWS, 2 * WIDTH) for n in range(LAYERS)]
        self.table = jnp.arange(CACHE[0], dtype=jnp.int32).reshape(ROWS, TOKENS // PAGE)
        self.lengths = jnp.full((ROWS,), TOKENS, jnp.int32)

    def state(self):
        """Returns the arguments of a step that are donated and returned."""
        caches = [(normal(n, *CACHE), normal(n + 99, *CACHE)) for n in range(LAYERS)]
        return caches, normal(5, *HEADS[0]), [x[:, :WIDTH] + 0 for x in self.x]

    def plan(self, lengths, cache):
        return fj.plan(lengths, dtype="bfloat16", q_heads=Q_HEADS, cache=cache)

    def layer(self, q, k, v, cache, lengths, plan):
        q, k = fj.apply_rope(q, k, lengths - 1, ROPE)
        cache = fj.append_kv(k, v, cache, lengths, plan=plan)
        out, plan, _ = fj.attention(q, cache, lengths, plan=plan)
        return out, k, cache, plan

    def step(self, state, x, k, v, lengths, table):
        caches, q, activated = state
        caches = [fj.Cache(*cache, table) for cache in caches]
        plan = self.plan(lengths, caches[0])
        grown, acts = [], []
        for n in range(LAYERS):
            acts.append(fj.silu_and_mul(x[n]))
            q, k, cache, plan = self.layer(q, k, v, caches[n], lengths, plan)
            grown.append((cache.k, cache.v))
        return grown, q, acts

    def constants(self):
        return self.x, normal(6, *HEADS[1]), normal(7, *HEADS[2]), self.lengths, self.table


class Fused(Separate):
    def layer(self, q, k, v, cache, lengths, plan):
        out, cache, plan, _ = fj.decode_attention(q, k, v, cache, lengths, plan=plan, rope=ROPE)
        return out, k, cache, plan


class Program(Separate):
    """The file's tensors are the page table and, for each layer, gate_up, act, q, k, v, out and the
    two caches. One array holds all layers of a tensor. A tensor that is written before it is read
    is a result. Every other tensor that is written is an argument and a result, so that XLA keeps
    it in place."""

    def state(self):
        shapes = (ROWS, WIDTH), HEADS[0], HEADS[0], HEADS[1], CACHE, CACHE
        return tuple(normal(n, LAYERS, *shape) for n, shape in enumerate(shapes))

    def step(self, state, x, k, v, lengths, table):
        act, out, q, k, k_cache, v_cache = state
        plan = self.plan(lengths, fj.Cache(k_cache[0], v_cache[0], table))
        outs = like(act, q, k, out, k_cache, v_cache)
        (act, q, k, out, *caches), _ = fj.program(
            self.file, outs, table, x, q, k, v, k_cache, v_cache, rows=ROWS, kv_length=TOKENS,
            aliases={2: 1, 3: 2, 5: 4, 6: 5}, plan=plan)
        return act, out, q, k, *caches

    def constants(self):
        x, k, v, lengths, table = super().constants()
        return jnp.stack(x), k, jnp.stack([v] * LAYERS), lengths, table


class Loop:
    def __init__(self, way):
        self.held = way.state()
        self.constants = way.constants()
        self.compiled = jax.jit(way.step, donate_argnums=0, keep_unused=True)

    def step(self):
        self.held = self.compiled(self.held, *self.constants)

    def wait(self):
        jax.block_until_ready(self.held)


WAYS = {"separate": Separate, "fused": Fused, "program": Program}


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
    parser.add_argument("file")
    parser.add_argument("--way", action="append", choices=WAYS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=50)
    arguments = parser.parse_args()
    file = fj.load(arguments.file)
    print(f"jax {jax.__version__}, XLA_FLAGS={os.environ.get('XLA_FLAGS', '')}")
    for name in arguments.way or WAYS:
        loop = Loop(WAYS[name](file))
        for _ in range(6):
            loop.step()
        loop.wait()
        before = ffi.counts()
        median, least, asked = measure(loop, arguments.rounds, arguments.count)
        after = ffi.counts()
        print(
            f"{name:10} {median:8.1f} us a step, least {least:.1f}, the host at least {asked:.1f}; "
            f"eager {after.eager - before.eager}, captured {after.captured - before.captured}",
            flush=True,
        )


if __name__ == "__main__":
    main()
