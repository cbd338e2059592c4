"""xla_targets.py: calls every XLA target of libfigraph_ffi.so from JAX on the CPU.

    tests/jax/xla_targets.py FILE.fig

FILE.fig comes from `figraph capture --preset tutorial --layers 1`. Run where jax and figraph can be
imported. JAX's two devices are both the CPU.
"""

import concurrent.futures
import os
import sys

HASTE = "--xla_backend_optimization_level=0"  # compiling takes most of the test's time
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2 " + HASTE

import cases
import jax
import jax.numpy as jnp
import numpy as np
from cases import close, refused
from figraph import ffi
from figraph import jax as fj

FILE = fj.load(sys.argv[1])
numbers = np.random.default_rng(2)
NONE = np.zeros((0, 0), np.int32)


def normal(*shape, dtype=np.float32):
    return numbers.standard_normal(shape).astype(dtype)


def like(*arrays):
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)


def bytes_of(count):
    return jax.ShapeDtypeStruct((count,), jnp.uint8)


def call(target, outs, *arguments, aliases=None, vmap_method=None, **attributes):
    options = {"input_output_aliases": aliases} if aliases else {}
    if vmap_method is not None:
        options["vmap_method"] = vmap_method
    outs = tuple(outs) if isinstance(outs, (list, tuple)) else outs
    return jax.ffi.ffi_call("figraph." + target, outs, **options)(*arguments, **attributes)


def silu(x, **options):
    out = jax.ShapeDtypeStruct(x.shape[:-1] + (x.shape[-1] // 2,), x.dtype)
    return call("silu_and_mul", out, x, **options)


def scratch(q, cache, rows, tokens, page_size=0):
    heads = q.shape[-2], cache.shape[-2], q.shape[-1]
    return bytes_of(ffi.scratch_of("f32", "f32", *heads, rows, tokens, page_size)[1])


def attend(q, k, v, *rest, rows=None, tokens=None, page_size=0, **attributes):
    rows = q.shape[0] if rows is None else rows
    tokens = k.shape[1] if tokens is None else tokens
    lse = jax.ShapeDtypeStruct(q.shape[:-1], jnp.float32)
    outs = like(q) + (scratch(q, k, rows, tokens, page_size), lse)
    out, _, lse = call("attention", outs, q, k, v, *rest, **attributes)
    return out, lse


def activations_run_under_jit_and_without():
    for dtype, tolerance in ((jnp.float32, 1e-6), (jnp.float16, 2e-3), (jnp.bfloat16, 2e-2)):
        x = jnp.asarray(normal(2, 3, 514)).astype(dtype)
        close(silu(x), cases.silu_and_mul(x), tolerance)
        close(jax.jit(silu)(x), cases.silu_and_mul(x), tolerance)
    assert silu(jnp.zeros((0, 8))).shape == (0, 4)


def a_batch_dim_is_more_rows():
    x = normal(4, 3, 16)
    mapped = jax.vmap(lambda one: silu(one, vmap_method="broadcast_all"))
    close(mapped(x), cases.silu_and_mul(x), 1e-6)


def rope_turns_by_positions_or_segments():
    q, k = normal(5, 8, 64), normal(5, 2, 64)
    positions = np.array([0, 3, 99, 100000, 7], np.int32)
    for got, x in zip(call("rope", like(q, k), q, k, positions), (q, k)):
        close(got, cases.rope(x, positions), 1e-4)
    none, indptr, offsets = np.zeros(0, np.int32), np.array([0, 5], np.int32), positions[2:3]
    packed = call(
        "rope", like(q, k), q, k, none, indptr, offsets, rope_theta=500000, rotary_dim=32
    )
    close(packed[0], cases.rope(q, 99 + np.arange(5), 5e5, rotary_dim=32), 1e-4)


def a_number_may_be_an_int_or_a_float():
    """JAX treats f(1) and f(1.0) as the same call, so either number may arrive."""
    q, positions = normal(2, 2, 64), np.array([1, 2], np.int32)
    for one in (1, 1.0, np.float32(1), True):
        got = call("rope", like(q, q), q, q, positions, rope_scale=one, interleave=one)[0]
        close(got, cases.rope(q, positions, interleave=True), 1e-5)


def attention_reads_dense_caches_as_long_as_lengths_say():
    q, k, v = normal(3, 8, 64), normal(3, 40, 4, 64), normal(3, 40, 4, 64)
    lengths = np.array([40, 1, 41], np.int32)
    out, lse = jax.jit(attend)(q, k, v, lengths)
    for r, length in enumerate((40, 1, 0)):
        expected = cases.attention(q[r], k[r, :length], v[r, :length])
        close(out[r], expected[0], 1e-5)
        close(lse[r], expected[1], 1e-5)


def attention_reads_pages():
    q, k, v = normal(2, 8, 64), normal(9, 16, 4, 64), normal(9, 16, 4, 64)
    table, lengths = np.array([[8, 1, 3], [0, 2, 4]], np.int32), np.array([35, 48], np.int32)
    out, _ = attend(q, k, v, lengths, table, tokens=48, page_size=16, logits_soft_cap=2)
    for r in range(2):
        rows = (x[table[r]].reshape(-1, 4, 64)[: lengths[r]] for x in (k, v))
        close(out[r], cases.attention(q[r], *rows, soft_cap=2)[0], 1e-5)


def attention_takes_optional_arguments():
    q, k, v = normal(1, 8, 64), normal(1, 30, 4, 64), normal(1, 30, 4, 64)
    none, alibi = np.zeros(0, np.float32), normal(8)
    rest = np.array([30], np.int32), NONE, none, none, alibi
    out, _ = attend(q, k, v, *rest, window_left=9, sm_scale=0.5)
    expected = cases.attention(q[0], k[0], v[0], 0.5, window=10, alibi=alibi)
    close(out[0], expected[0], 1e-5)


def grow(q, k, v, k_cache, v_cache, lengths):
    """Appends a token to each row and computes attention, with one plan for both."""
    cache = fj.Cache(k_cache, v_cache)
    plan, scratch = fj.plan(lengths, dtype=q.dtype, q_heads=q.shape[1], cache=cache)
    aliases = {2: 0, 3: 1}
    rest = k_cache, v_cache, lengths, NONE, plan
    k_cache, v_cache = call("append_kv", like(k_cache, v_cache), k, v, *rest, aliases=aliases)
    rest = lengths, NONE, plan, scratch
    out, _ = call("attention", like(q, scratch), q, k_cache, v_cache, *rest, aliases={6: 1})
    return out, k_cache, v_cache, lengths + 1


def layers_in_one_call_each_share_a_plan():
    """Each layer rotates q and k, appends and attends; all layers use the same scratch in turn."""
    rows, tokens, dim, lengths = 3, 24, 64, np.array([24, 1, 25], np.int32)
    q, k, v = normal(rows, 8, dim), normal(rows, 4, dim), normal(rows, 4, dim)
    caches = normal(rows, tokens, 4, dim), normal(rows, tokens, 4, dim)
    aliases = {0: 1, 1: 2, 3: 3, 4: 4, 8: 5}

    @jax.jit
    def layers(q, k, v, k_cache, v_cache):
        cache = fj.Cache(k_cache, v_cache)
        plan, scratch = fj.plan(lengths, dtype=q.dtype, q_heads=8, cache=cache)
        results = []
        for _ in range(3):
            arrays = q, k, v, k_cache, v_cache, lengths, NONE, plan, scratch
            outs = like(q, q, k, k_cache, v_cache, scratch)
            got = call("decode_attention", outs, *arrays, aliases=aliases, rope_theta=100)
            results.append((got[0], got[3], got[4]))
            scratch = got[5]
        return results

    turned = [cases.rope(x, np.maximum(lengths - 1, 0), 100) for x in (q, k)]
    for out, k_cache, v_cache in layers(q, k, v, *caches):
        for r, length in enumerate((24, 1, 0)):
            held = [x[r, :length].copy() for x in caches]
            if length > 0:
                held[0][-1], held[1][-1] = turned[1][r], v[r]
                close(k_cache[r, length - 1], turned[1][r], 1e-5)
                close(v_cache[r, length - 1], v[r], 0)
            close(out[r], cases.attention(turned[0][r], *held)[0], 1e-5)


def check_growth(device, seed):
    """Compares the result for every length from 1 to the cap with a reference."""
    rows, cap = 2, 24
    own = np.random.default_rng(seed)
    step = jax.jit(grow, donate_argnums=(3, 4, 5))
    put = lambda x: jax.device_put(x, device)
    caches = [put(np.zeros((rows, cap, 4, 64), np.float32)) for _ in "kv"]
    held = [np.zeros((rows, cap, 4, 64)) for _ in "kv"]
    lengths = put(np.ones(rows, np.int32))
    for token in range(cap):
        q, k, v = (own.standard_normal((rows, heads, 64)).astype(np.float32) for heads in (8, 4, 4))
        held[0][:, token], held[1][:, token] = k, v
        out, *caches, lengths = step(put(q), put(k), put(v), *caches, lengths)
        for r in range(rows):
            seen = (x[r, : token + 1] for x in held)
            close(out[r], cases.attention(q[r], *seen)[0], 1e-5)
    return step._cache_size()


def one_compiled_function_serves_every_length():
    assert check_growth(jax.devices()[0], 0) == 1
    caches = [jnp.zeros((2, 24, 4, 64)) for _ in "kv"]
    compiled = jax.jit(grow, donate_argnums=(3, 4)).lower(
        normal(2, 8, 64), normal(2, 4, 64), normal(2, 4, 64), *caches, np.ones(2, np.int32)
    )
    bytes_in_place = compiled.compile().memory_analysis().alias_size_in_bytes
    assert bytes_in_place == 2 * caches[0].nbytes, bytes_in_place


def threads_and_devices_do_not_disturb_each_other():
    before = ffi.counts()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(check_growth, jax.devices()[i % 2], i) for i in range(4)]
        for job in jobs:
            job.result()
    assert ffi.counts().missed - before.missed <= 3, "a runner was made twice"


def without_donation_the_argument_keeps_its_numbers():
    k, v, cache = normal(1, 4, 64), normal(1, 4, 64), jnp.asarray(normal(1, 8, 4, 64))
    before = np.array(cache)
    outs = like(cache, cache) + (bytes_of(1024),)
    rest = k, v, cache, cache, np.array([3], np.int32)
    got = call("append_kv", outs, *rest, aliases={2: 0, 3: 1})
    close(got[0][0, 2], k[0], 0)
    assert np.array_equal(cache, before)


def refusals_name_argument_and_target():
    x, q, k = normal(2, 8), normal(2, 8, 64), normal(2, 30, 4, 64)
    lengths = np.array([3, 4], np.int32)
    block = lambda out: jax.block_until_ready(out)
    refused("silu_and_mul: input is int32", lambda: block(silu(np.ones((2, 8), np.int32))))
    refused("there is no attribute enable", lambda: block(silu_with(x, enable=True)))
    refused("2 arguments, it takes 1", lambda: block(call("silu_and_mul", like(x), x, x)))
    refused("out is [2, 8]", lambda: block(call("silu_and_mul", like(x)[0], x)))
    refused("scratch_bytes is 0", lambda: block(call("attention", like(q), q, k, k, lengths)))
    refused("lengths is float32", lambda: block(attend(q, k, k, lengths.astype(np.float32))))
    refused("its dim 0 must be at least 2", lambda: block(attend(q, k[:1], k[:1])))
    refused("attribute sm_scale must be a number", lambda: block(attend(q, k, k, sm_scale="1")))
    refused("attribute dtype is missing", lambda: block(call("plan", bytes_of(64), lengths)))
    rest = dict(q_heads=8, kv_heads=4, head_dim=64, kv_length=30)
    plan = lambda **types: block(call("plan", bytes_of(64), lengths, **rest, **types))
    refused("dtype is 9, which is no fig_dtype", lambda: plan(dtype=9))
    refused("kv_dtype is 6, which is no fig_dtype", lambda: plan(dtype=1, kv_dtype=6))
    refused("attribute dtype must be an integer", lambda: plan(dtype="float32"))
    outs = like(k, k)
    rest = q[:, :4], q[:, :4], k, k, lengths
    refused("input_output_aliases", lambda: block(call("append_kv", outs, *rest)))
    refused("no file whose content_id begins with 0000000000000007",
            lambda: block(call("program", like(x), x, content=7)))
    silu(x)  # the process survived, and the target still works


def silu_with(x, **attributes):
    return call("silu_and_mul", like(x[:, :4]), x, **attributes)


def a_machine_without_a_gpu_lowers_for_one():
    lowered = jax.jit(grow).trace(
        normal(2, 8, 64),
        normal(2, 4, 64),
        normal(2, 4, 64),
        normal(2, 24, 4, 64),
        normal(2, 24, 4, 64),
        np.ones(2, np.int32),
    )
    text = lowered.lower(lowering_platforms=("cuda",)).as_text()
    for target in ("figraph.plan", "figraph.append_kv", "figraph.attention"):
        assert target in text, target


def an_exported_program_runs_again():
    """Exports one program for CPUs and GPUs, and runs it on the CPU."""
    from jax import export

    x = normal(3, 32)
    allow = [export.DisabledSafetyCheck.custom_call("figraph.silu_and_mul")]
    exported = export.export(jax.jit(silu), platforms=("cpu", "cuda"), disabled_checks=allow)(x)
    loaded = export.deserialize(exported.serialize())
    assert set(loaded.platforms) == {"cpu", "cuda"}
    close(loaded.call(x), cases.silu_and_mul(x), 1e-6)


def a_segment_takes_the_shapes_of_its_tensors():
    x, act = normal(3, 128, dtype=np.float16), jax.ShapeDtypeStruct((3, 64), jnp.float16)
    segment = lambda x, number: jax.block_until_ready(
        call("program", act, x, content=FILE.number, segment=number))
    close(segment(x, 1), cases.silu_and_mul(x), 2e-3)
    refused("gate_up.0 is float32, it must be float16", lambda: segment(x.astype(np.float32), 1))
    refused("gate_up.0 is [1, 3, 128, 1], it must have 2 dims",
            lambda: segment(x[None, ..., None], 1))
    refused("segment is 3, the program has 2", lambda: segment(x, 3))


def layers_may_come_as_one_array():
    """The file has one layer, so a leading dim for layers, of extent 1, changes nothing."""
    rows, dtype = 2, np.float16
    gate_up = normal(rows, 128, dtype=dtype)
    options = dict(content=FILE.number, segment=1)
    stacked = jax.ShapeDtypeStruct((1, rows, 64), dtype)
    got = jax.jit(lambda x: call("program", stacked, x, **options))(gate_up[None])
    close(got[0], cases.silu_and_mul(gate_up), 2e-3)
    refused(
        "gate_up.0 is [2, 1, 128], its dim 0 must be 1",
        lambda: jax.block_until_ready(call("program", stacked, gate_up[:, None], **options)),
    )


CASES = [
    activations_run_under_jit_and_without,
    a_batch_dim_is_more_rows,
    rope_turns_by_positions_or_segments,
    a_number_may_be_an_int_or_a_float,
    attention_reads_dense_caches_as_long_as_lengths_say,
    attention_reads_pages,
    attention_takes_optional_arguments,
    layers_in_one_call_each_share_a_plan,
    one_compiled_function_serves_every_length,
    threads_and_devices_do_not_disturb_each_other,
    without_donation_the_argument_keeps_its_numbers,
    refusals_name_argument_and_target,
    a_machine_without_a_gpu_lowers_for_one,
    an_exported_program_runs_again,
    a_segment_takes_the_shapes_of_its_tensors,
    layers_may_come_as_one_array,
]
cases.run(CASES)
