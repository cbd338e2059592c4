"""python_jax.py: figraph.jax, called by JAX on the CPU, against references in float64.

Run where jax and figraph can be imported.
"""

import functools
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../support"), os.path.join(HERE, "../jax")]
import cases  # noqa: E402
import figraph  # noqa: E402
import figraph.jax as fj  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from cases import close  # noqa: E402
from figraph import ffi  # noqa: E402
from jax import export  # noqa: E402
from sentences import refused, run  # noqa: E402

ROWS, TOKENS, Q, KV, DIM = 3, 24, 8, 4, 64
LENGTHS = np.array([24, 1, 25], np.int32)
numbers = np.random.default_rng(5)


def normal(*shape, dtype=np.float32):
    return numbers.standard_normal(shape).astype(dtype)


def dense(rows=ROWS):
    return fj.Cache(normal(rows, TOKENS, KV, DIM), normal(rows, TOKENS, KV, DIM))


def paged():
    """Pages of 8 tokens, three of each row, in no order."""
    table = np.random.default_rng(1).permutation(3 * ROWS).astype(np.int32).reshape(ROWS, 3)
    return fj.Cache(normal(3 * ROWS, 8, KV, DIM), normal(3 * ROWS, 8, KV, DIM), table)


def tokens_of(cache, row):
    """Keys and values of a row, one token behind the other."""
    if cache.page_table is None:
        return [np.asarray(x[row]) for x in (cache.k, cache.v)]
    pages = np.asarray(cache.page_table)[row]
    return [np.asarray(x)[pages].reshape(-1, KV, DIM) for x in (cache.k, cache.v)]


def expected(q, cache, row, **options):
    length = LENGTHS[row] if LENGTHS[row] <= TOKENS else 0
    keys, values = (x[:length] for x in tokens_of(cache, row))
    return cases.attention(q[row], keys, values, **options)


def activations_and_rope_are_right_and_mapped():
    x = normal(2, 5, 32)
    for function in (fj.silu_and_mul, jax.jit(fj.silu_and_mul), jax.vmap(fj.silu_and_mul)):
        close(function(x), cases.silu_and_mul(x), 1e-6)
    assert fj.gelu_and_mul(x).shape == fj.gelu_tanh_and_mul(x).shape == (2, 5, 16)
    q, k, at = normal(2, ROWS, Q, DIM), normal(2, ROWS, KV, DIM), np.array([0, 7, 999], np.int32)
    mapped = jax.jit(jax.vmap(fj.apply_rope, in_axes=(0, 0, None)))(q, k, at)
    for n in range(2):
        for got, one in zip(mapped, (q, k)):
            close(got[n], cases.rope(one[n], at), 1e-4)
    rope = fj.Rope(theta=5e5, rotary_dim=32, interleaved=True)
    turned = fj.apply_rope(q[0], k[0], at, rope)
    close(turned[0], cases.rope(q[0], at, 5e5, rotary_dim=32, interleave=True), 1e-4)


def attention_is_right_over_dense_caches_and_pages():
    q = normal(ROWS, Q, DIM)
    for cache in (dense(), paged()):
        for planned in (False, True):
            made = fj.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache) if planned else None
            got = jax.jit(lambda *a: fj.attention(*a, plan=made, with_lse=True))(q, cache, LENGTHS)
            assert (got.plan is not None) == planned
            for row in range(ROWS):
                out, lse = expected(q, cache, row)
                close(got.out[row], out, 1e-5)
                close(got.lse[row], lse, 1e-5)


def logits_and_what_is_per_head_are_as_asked():
    q, cache, alibi = normal(ROWS, Q, DIM), dense(), normal(Q)
    logits = fj.Logits(scale=0.5, window=10)
    out = fj.attention(q, cache, LENGTHS, logits=logits, alibi=alibi).out
    close(out[0], expected(q, cache, 0, sm_scale=0.5, window=10, alibi=alibi)[0], 1e-5)
    capped = fj.attention(q, cache, LENGTHS, logits=fj.Logits(soft_cap=2)).out
    close(capped[0], expected(q, cache, 0, soft_cap=2)[0], 1e-5)
    swapped = fj.Cache(cache.k.swapaxes(1, 2), cache.v.swapaxes(1, 2))
    same = fj.attention(q, swapped, LENGTHS, layout="hnd").out
    close(same, fj.attention(q, cache, LENGTHS).out, 0)


def caches_may_be_of_8_bits_with_scales():
    q, scales = normal(ROWS, Q, DIM), normal(KV) ** 2 + 0.5
    narrow = [jnp.asarray(x).astype(jnp.float8_e4m3fn) for x in dense()[:2]]
    for scale in (scales, scales[:1]):
        cache = fj.Cache(*narrow, k_scale=scale, v_scale=scale)
        plan = fj.plan(LENGTHS, dtype=np.float16, q_heads=Q, cache=cache)
        out = fj.attention(q.astype(np.float16), cache, LENGTHS, plan=plan).out
        wide = [np.asarray(x.astype(jnp.float32)) for x in narrow]
        wide = fj.Cache(*(x * scale[:, None] for x in wide))
        close(out[0], expected(q.astype(np.float16), wide, 0)[0], 3e-3)
        k, v = normal(2, ROWS, KV, DIM).astype(np.float16)
        grown = fj.append_kv(k, v, cache, LENGTHS, plan=plan)
        stored = np.asarray(grown.v.astype(jnp.float32))[1, 0] * scale[:, None]
        close(stored, v[1], 0.07)


def layers_share_a_plan_and_grow_their_caches():
    q, k, v = normal(ROWS, Q, DIM), normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)
    for cache in (dense(), paged()):

        @jax.jit
        def layers(cache):
            plan = fj.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache)
            fused = fj.decode_attention(q, k, v, cache, LENGTHS, plan=plan)
            turned = fj.apply_rope(q, k, LENGTHS - 1)
            grown = fj.append_kv(turned[1], v, cache, LENGTHS, plan=fused.plan)
            parts = fj.attention(turned[0], grown, LENGTHS, plan=fused.plan)
            alone = fj.append_kv(turned[1], v, cache, LENGTHS)
            return fused.out, fused.cache, parts.out, grown, alone

        fused, cache_of_fused, parts, cache_of_parts, cache_alone = layers(cache)
        turned = cases.rope(k, np.maximum(LENGTHS - 1, 0))
        close(fused, parts, 1e-6)
        for made in (cache_of_fused, cache_of_parts, cache_alone):
            close(tokens_of(made, 0)[0][LENGTHS[0] - 1], turned[0], 1e-5)
            close(tokens_of(made, 1)[1][LENGTHS[1] - 1], v[1], 0)
            close(tokens_of(made, 2)[0], tokens_of(cache, 2)[0], 0)  # an idle row
        close(parts[0], expected(cases.rope(q, LENGTHS - 1), cache_of_parts, 0)[0], 1e-4)


def one_compiled_function_serves_every_length_in_place():
    traces = 0

    def step(cache, q, k, v, lengths):
        nonlocal traces
        traces += 1
        got = fj.decode_attention(q, k, v, cache, lengths)
        return got.cache, got.out

    compiled = jax.jit(step, donate_argnums=0)
    q, k, v = normal(1, Q, DIM), normal(1, KV, DIM), normal(1, KV, DIM)
    zeros = np.zeros(1, np.int32)
    cache = jax.tree.map(jnp.zeros_like, dense(1))
    lowered = compiled.lower(cache, q, k, v, zeros).compile()
    assert lowered.memory_analysis().alias_size_in_bytes == 2 * cache.k.nbytes
    traces, made = 0, ffi.counts().missed
    for length in range(1, TOKENS + 1):
        cache, out = compiled(cache, q, k, v, np.array([length], np.int32))
    assert traces <= 1 and ffi.counts().missed <= made + 1
    keys, values = tokens_of(cache, 0)
    turned = cases.rope(q, np.array([TOKENS - 1]))[0]
    close(out[0], cases.attention(turned, keys, values)[0], 1e-5)


def what_is_wrong_is_refused_while_jax_traces():
    q, cache, x, scale = normal(ROWS, Q, DIM), dense(), normal(2, 7), normal(KV)
    trace = jax.eval_shape
    refused("its last dim must be 2 * width", lambda: trace(fj.silu_and_mul, x), (ValueError,))
    refused("input is int32", lambda: trace(fj.silu_and_mul, x.astype(np.int32)), (TypeError,))
    k = normal(ROWS, KV, DIM)
    at = LENGTHS.astype(np.float32)
    refused("positions is float32", lambda: trace(fj.apply_rope, q, k, at), (TypeError,))
    refused("k is [3, 4, 64], it must be [3, any, 32]",
            lambda: trace(fj.apply_rope, q[..., :32], k, LENGTHS), (ValueError,))
    refused("lengths is [2], it must be [3]", lambda: trace(fj.attention, q, cache, LENGTHS[:2]))
    refused("cache.k is [2, 24, 4, 64], it must be [3, 24, 4, 64]",
            lambda: trace(fj.attention, q, dense(2), LENGTHS), (ValueError,))
    half = fj.Cache(cache.k, cache.v[:, :5])
    refused("cache.v is [3, 5, 4, 64]", lambda: trace(fj.attention, q, half, LENGTHS))
    mixed = fj.Cache(cache.k, cache.v.astype(np.float16))
    refused("cache.v is float16", lambda: trace(fj.attention, q, mixed, LENGTHS), (TypeError,))
    for scales, words in (
        ((scale, None), "one is given, the other is not"),
        ((scale, scale[:1]), "cache.v_scale is [1], it must be [4]"),
        ((scale[:3], scale), "cache.k_scale is [3], it must be [4]"),
        ((scale, scale.astype(np.float16)), "cache.v_scale is float16"),
    ):
        scaled = cache._replace(k_scale=scales[0], v_scale=scales[1])
        refused(words, lambda: trace(fj.attention, q, scaled, LENGTHS))
    refused("layout is \"nkd\"", lambda: fj.attention(q, cache, LENGTHS, layout="nkd"))
    refused("alibi is [3], it must be [8]",
            lambda: fj.attention(q, cache, LENGTHS, alibi=normal(3)), (ValueError,))
    refused("dtype is int32", lambda: fj.plan(LENGTHS, dtype="int32", q_heads=Q, cache=cache))
    refused("", lambda: trace(fj.attention, normal(ROWS, 7, DIM), cache, LENGTHS),
            (figraph.Error,))
    mapped = jax.vmap(fj.attention, (0, None, None))
    refused("figraph.jax.attention under vmap: rows are its batch, give it 2 times as many",
            lambda: mapped(normal(2, ROWS, Q, DIM), cache, LENGTHS), (NotImplementedError,))


def what_is_exported_runs_where_figraph_is_imported():
    q, cache = normal(ROWS, Q, DIM), dense()
    allow = [export.DisabledSafetyCheck.custom_call(name) for name in fj.custom_calls()]
    step = jax.jit(lambda q, k, v, lengths: fj.attention(q, fj.Cache(k, v), lengths).out)
    exported = export.export(step, platforms=("cpu", "cuda"), disabled_checks=allow)(
        q, cache.k, cache.v, LENGTHS)
    loaded = export.deserialize(exported.serialize())
    assert set(loaded.platforms) == {"cpu", "cuda"}
    close(loaded.call(q, cache.k, cache.v, LENGTHS), fj.attention(q, cache, LENGTHS).out, 0)


def what_readme_shows_is_what_happens():
    with open(os.path.join(HERE, "../../README.md"), encoding="utf-8") as readme:
        shown = readme.read().split("```python\nimport figraph.jax as fj\n")[1].split("```")[0]
    names = dict(fj=fj, functools=functools, jax=jax)
    exec(shown, names)
    caches = [fj.Cache(*map(jnp.asarray, dense()[:2])) for _ in range(2)]
    q, k, v = ([normal(ROWS, heads, DIM) for _ in range(2)] for heads in (Q, KV, KV))
    alone = [fj.decode_attention(q[n], k[n], v[n], caches[n], LENGTHS) for n in range(2)]
    outs, grown = names["step"](caches, q, k, v, LENGTHS)
    for n in range(2):
        close(outs[n], alone[n].out, 1e-6)
        close(grown[n].k, alone[n].cache.k, 0)


run([
    activations_and_rope_are_right_and_mapped,
    attention_is_right_over_dense_caches_and_pages,
    logits_and_what_is_per_head_are_as_asked,
    caches_may_be_of_8_bits_with_scales,
    layers_share_a_plan_and_grow_their_caches,
    one_compiled_function_serves_every_length_in_place,
    what_is_wrong_is_refused_while_jax_traces,
    what_is_exported_runs_where_figraph_is_imported,
    what_readme_shows_is_what_happens,
])
