"""tutorial.py: compares three operations of a decode step by libfigraph with plain JAX.

    python tools/jax/tutorial.py                        on the CPU, in every way python
    tools/jax/tutorial.py --platform gpu --way wrapped

It needs the Python package figraph, which contains the library; docs/jax-tvm.md tells how to run
it.

The script compares a gated activation, RoPE of packed tokens, and attention of one request over its
cache with references in plain JAX. Then it runs all three inside one jax.jit and times attention.
Finally a request generates tokens with one compiled function while its cache fills up.

JAX can call the library in three ways. --way names one; the default is all that can be imported:

    wrapped   jax-tvm-ffi, with a Python function that reorders the arguments
    bare      jax-tvm-ffi, with the functions that take their arguments in XLA's order
    xla       XLA's own custom calls; needs only jax
"""

import argparse
import functools
import math
import time

import figraph.jax as fj
import jax
import jax.numpy as jnp
import numpy as np
from figraph import ffi

F32 = jnp.float32
ABSENT = (0,)  # the shape of an omitted array


# ---- References in plain JAX ---------------------------------------------------------------------


def plain_silu_and_mul(x):
    gate, up = jnp.split(x.astype(F32), 2, axis=-1)
    return (gate / (1 + jnp.exp(-gate)) * up).astype(x.dtype)


def plain_rope(x, positions, theta=1e4):
    """Rotates each pair (i, i + d/2) of a head by position * theta^(-2i / d)."""
    half = x.shape[-1] // 2
    frequency = jnp.exp(-math.log(theta) / half * jnp.arange(half, dtype=F32))
    angle = positions.astype(F32)[:, None, None] * frequency
    low, high = x[..., :half].astype(F32), x[..., half:].astype(F32)
    turned = (
        low * jnp.cos(angle) - high * jnp.sin(angle),
        low * jnp.sin(angle) + high * jnp.cos(angle),
    )
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def plain_attention(q, k, v, length=None):
    """Attends in f32. q: [q_heads][d]; k and v: [tokens][kv_heads][d], only `length` of them
    used."""
    group = q.shape[0] // k.shape[1]
    k, v = (jnp.repeat(x.astype(F32), group, axis=1) for x in (k, v))
    logits = jnp.einsum("hd,thd->ht", q.astype(F32), k) / math.sqrt(q.shape[-1])
    if length is not None:
        logits = jnp.where(jnp.arange(k.shape[0]) < length, logits, -jnp.inf)
    return jnp.einsum("ht,thd->hd", jax.nn.softmax(logits, axis=-1), v)


def plain_step(q, k, v, k_cache, v_cache, lengths):
    """Runs one row. Its token's k and v go to position lengths - 1, and it sees all tokens up to
    there."""
    q, k = (plain_rope(x, lengths - 1) for x in (q, k))
    k_cache, v_cache = (c.at[lengths - 1].set(x) for c, x in ((k_cache, k), (v_cache, v)))
    return plain_attention(q[0], k_cache, v_cache, lengths[0])[None], k_cache, v_cache


# ---- The ways to call ----------------------------------------------------------------------------


class Way:
    """The common part of all ways: shapes of results, and scratch as a result that is dropped."""

    def __init__(self, platform):
        self.platform = platform

    def scratch(self, q, k, rows, kv_length):
        heads = q.shape[-2], k.shape[-2], q.shape[-1]
        name = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[str(q.dtype)]
        _, count = ffi.scratch_of(name, name, *heads, rows, kv_length)
        return jax.ShapeDtypeStruct((count,), jnp.uint8)


class Xla(Way):
    """Uses the targets that importing figraph.jax registers. figraph.jax has functions for all of
    them except RoPE of packed tokens. Here they are called as by a caller who has only the
    targets."""

    name_of = staticmethod("figraph.{}".format)

    def silu_and_mul(self, x):
        out = jax.ShapeDtypeStruct(x.shape[:-1] + (x.shape[-1] // 2,), x.dtype)
        return jax.ffi.ffi_call(self.name_of("silu_and_mul"), out, vmap_method="broadcast_all")(x)

    def apply_rope(self, q, k, indptr, offsets):
        outs = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k))
        positions = jnp.zeros(ABSENT, jnp.int32)
        return jax.ffi.ffi_call(self.name_of("rope"), outs)(
            q, k, positions, indptr, offsets, rope_theta=1e4
        )

    def decode_attention(self, q, k, v):
        outs = (jax.ShapeDtypeStruct(q.shape, q.dtype), self.scratch(q, k, 1, k.shape[0]))
        return jax.ffi.ffi_call(self.name_of("attention"), outs)(q, k, v)[0]

    def grow(self, q, k, v, k_cache, v_cache, lengths):
        """Appends a token of each sequence to its cache and attends to it. Append and attention
        read the same plan, and so would all layers of a model."""
        cache = fj.Cache(k_cache, v_cache)
        plan, scratch = fj.plan(lengths, dtype=q.dtype, q_heads=q.shape[1], cache=cache)
        paged = jnp.zeros((0, 0), jnp.int32)
        caches = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (k_cache, v_cache))
        append_kv = self.name_of("append_kv")
        append = jax.ffi.ffi_call(append_kv, caches, input_output_aliases={2: 0, 3: 1})
        k_cache, v_cache = append(k, v, k_cache, v_cache, lengths, paged, plan)
        outs = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, scratch))
        attend = jax.ffi.ffi_call(self.name_of("attention"), outs, input_output_aliases={6: 1})
        out, _ = attend(q, k_cache, v_cache, lengths, paged, plan, scratch)
        return out, k_cache, v_cache


class Bare(Way):
    """Calls functions that take arguments in XLA's order. These functions are the targets."""

    names = {"silu_and_mul": "silu_and_mul", "rope": "apply_rope_jax", "run": "run_jax"}

    def __init__(self, platform):
        import jax_tvm_ffi

        super().__init__(platform)
        self.module = self.load()
        self.register = functools.partial(
            jax_tvm_ffi.register_ffi_target, platform=platform, allow_cuda_graph=True
        )
        rope = ["rotary_dim", "interleave", "rope_scale", "rope_theta"]
        layout = ["kv_layout_code", "window_left", "logits_soft_cap", "sm_scale"]
        self.add("silu_and_mul", ["enable_pdl"])
        self.add("rope", rope)
        self.add("run", layout + ["rope_scale", "rope_theta"])
        if hasattr(self.module, "batch_decode_jax"):
            self.register(self.target("batch"), self.module.batch_decode_jax, self.order(layout))

    def load(self):
        import tvm_ffi

        return tvm_ffi.load_module(ffi.PATH)

    def order(self, attributes):
        return ["rets", "args"] + ["attrs." + name for name in attributes]

    def target(self, name):
        return f"tutorial.{type(self).__name__}.{name}"

    def add(self, name, attributes):
        function = getattr(self.module, self.names[name])
        self.register(self.target(name), function, self.order(attributes))

    def silu_and_mul(self, x):
        out = jax.ShapeDtypeStruct(x.shape[:-1] + (x.shape[-1] // 2,), x.dtype)
        call = jax.ffi.ffi_call(self.target("silu_and_mul"), out, vmap_method="broadcast_all")
        return call(x, enable_pdl=False)

    def apply_rope(self, q, k, indptr, offsets):
        outs = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k))
        call = jax.ffi.ffi_call(self.target("rope"), outs)
        return call(
            q,
            k,
            indptr,
            offsets,
            rotary_dim=q.shape[-1],
            interleave=False,
            rope_scale=1.0,
            rope_theta=1e4,
        )

    def decode_attention(self, q, k, v):
        outs = (
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            self.scratch(q, k, 1, k.shape[0]),
            jax.ShapeDtypeStruct(ABSENT, F32),
        )
        return jax.ffi.ffi_call(self.target("run"), outs)(
            q,
            k,
            v,
            jnp.zeros(ABSENT, F32),
            kv_layout_code=0,
            window_left=-1,
            logits_soft_cap=0.0,
            sm_scale=1 / math.sqrt(q.shape[-1]),
            rope_scale=1.0,
            rope_theta=1e4,
        )[0]

    def grow(self, q, k, v, k_cache, v_cache, lengths):
        """Appends a token of each sequence to its cache and attends to it."""
        row = jnp.arange(k.shape[0])
        k_cache = k_cache.at[row, lengths - 1].set(k)
        v_cache = v_cache.at[row, lengths - 1].set(v)
        outs = (
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            self.scratch(q, k_cache, q.shape[0], k_cache.shape[1]),
            jax.ShapeDtypeStruct(ABSENT, F32),
        )
        out, _, _ = jax.ffi.ffi_call(self.target("batch"), outs)(
            q,
            k_cache,
            v_cache,
            jnp.zeros((0, 0), jnp.int32),  # no page table: the cache is dense
            lengths,
            jnp.zeros(ABSENT, F32),
            kv_layout_code=0,
            window_left=-1,
            logits_soft_cap=0.0,
            sm_scale=1 / math.sqrt(q.shape[-1]),
        )
        return out, k_cache, v_cache


class Wrapped(Bare):
    """Puts a Python function between XLA and each function in FlashInfer's order. The Python
    function receives tensors of tvm_ffi, and passes None for an omitted array."""

    def add(self, name, attributes):
        self.register(
            self.target(name),
            getattr(self, "call_" + name),
            self.order(attributes),
            pass_owned_tensor=True,
        )

    def call_silu_and_mul(self, out, x, enable_pdl):
        self.module.silu_and_mul(out, x, enable_pdl)

    def call_rope(self, q_rope, k_rope, q, k, indptr, offsets, *scalars):
        self.module.apply_rope(q, k, q_rope, k_rope, indptr, offsets, *scalars)

    def call_run(self, out, tmp, lse, q, k, v, alibi, layout, window_left, *scalars):
        lse, alibi = (None if x.shape[0] == 0 else x for x in (lse, alibi))
        self.module.run(q, k, v, tmp, out, lse, layout, window_left, alibi, *scalars)


WAYS = {"wrapped": Wrapped, "bare": Bare, "xla": Xla}


# ---- The tutorial --------------------------------------------------------------------------------


def normal(seed, shape, dtype=jnp.float16):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


def compare(what, got, expected):
    got, expected = (np.asarray(x.astype(F32)) for x in (got, expected))
    np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-2, err_msg=what)
    print(f"  {what}: right, {got.shape}, off by at most {np.abs(got - expected).max():.5f}")


def try_activation(way):
    x = normal(0, (32, 512))
    compare("silu_and_mul", way.silu_and_mul(x), plain_silu_and_mul(x))


def try_rope(way):
    """Tries two sequences of 8 tokens; 100 tokens come before the second."""
    q, k = (normal(seed, (16, 8, 64), jnp.bfloat16) for seed in (1, 2))
    indptr, offsets = jnp.array([0, 8, 16], jnp.int32), jnp.array([0, 100], jnp.int32)
    positions = jnp.concatenate([jnp.arange(8), 100 + jnp.arange(8)])
    for name, got, x in zip("qk", way.apply_rope(q, k, indptr, offsets), (q, k)):
        compare(f"apply_rope, {name}", got, plain_rope(x, positions))


def cache_of(tokens, q_heads=16, kv_heads=4, dim=64):
    shapes = (q_heads, dim), (tokens, kv_heads, dim), (tokens, kv_heads, dim)
    return (normal(10 + i, shape) for i, shape in enumerate(shapes))


def try_attention(way, tokens=512):
    q, k, v = cache_of(tokens)
    compare("decode_attention", way.decode_attention(q, k, v), plain_attention(q, k, v))


def try_step(way, tokens=512):
    """Runs all three operations inside one jit, and compares them with single calls."""
    q, k, v = cache_of(tokens)
    x = normal(20, (4, 128))
    indptr, offsets = jnp.array([0, 1], jnp.int32), jnp.array([tokens], jnp.int32)

    def step(x, q, k_new, k, v):
        activated = way.silu_and_mul(x)
        turned, _ = way.apply_rope(q[None], k_new, indptr, offsets)
        return activated, way.decode_attention(turned[0], k, v)

    inputs = x, q, k[:1], k, v
    together, alone = jax.jit(step)(*inputs), step(*inputs)
    compare("one jit, activation", together[0], alone[0])
    compare("one jit, attention", together[1], alone[1])
    turned = plain_rope(q[None], offsets)[0]
    compare("one jit, against plain JAX", together[1], plain_attention(turned, k, v))


def time_attention(way, tokens=512, count=100):
    q, k, v = cache_of(tokens)
    attend = jax.jit(way.decode_attention)
    attend(q, k, v).block_until_ready()
    start = time.perf_counter()
    for _ in range(count):
        attend(q, k, v).block_until_ready()
    us = (time.perf_counter() - start) / count * 1e6
    print(f"  decode_attention over {tokens} tokens, 16 and 4 heads: {us:.1f} us")


def generate(way, cap=48, q_heads=16, kv_heads=4, dim=64):
    """Uses one compiled function for every length up to cap. The caches are donated, and so stay in
    the same memory."""
    traces = 0

    def step(q, k, v, k_cache, v_cache, lengths):
        nonlocal traces
        traces += 1
        indptr = jnp.arange(2, dtype=jnp.int32)
        q, k = way.apply_rope(q, k, indptr, lengths - 1)
        return way.grow(q, k, v, k_cache, v_cache, lengths)

    compiled = jax.jit(step, donate_argnums=(3, 4))
    reference = jax.jit(plain_step)
    k_cache, v_cache = (jnp.zeros((1, cap, kv_heads, dim), jnp.float16) for _ in "kv")
    ks, vs = k_cache[0], v_cache[0]
    numbers = np.random.default_rng(7)
    for length in range(1, cap + 1):
        shapes = (1, q_heads, dim), (1, kv_heads, dim), (1, kv_heads, dim)
        q, k, v = (numbers.standard_normal(shape).astype(np.float16) for shape in shapes)
        lengths = np.array([length], np.int32)
        out, k_cache, v_cache = compiled(q, k, v, k_cache, v_cache, lengths)
        expected, ks, vs = reference(q, k, v, ks, vs, lengths)
        np.testing.assert_allclose(np.asarray(out, np.float32), expected, rtol=1e-2, atol=1e-2)
    assert traces == 1, f"{traces} traces"
    print(f"  a cache that grows: lengths 1 to {cap} are right, with one trace")


def run(way):
    try_activation(way)
    try_rope(way)
    try_attention(way)
    try_step(way)
    time_attention(way)
    generate(way)


def importable(name):
    if name == "xla":
        return True
    try:
        import jax_tvm_ffi  # noqa: F401
    except ImportError:
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--way", choices=WAYS, action="append")
    arguments = parser.parse_args()
    for name in arguments.way or [name for name in WAYS if importable(name)]:
        print(f"{name}: jax {jax.__version__}, {arguments.platform}")
        run(WAYS[name](arguments.platform))


if __name__ == "__main__":
    main()
