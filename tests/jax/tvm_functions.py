"""tvm_functions.py: calls every TVM FFI function of libfigraph_ffi.so from Python.

Run where figraph and tvm_ffi can be imported. It uses arrays of numpy on the CPU, and tensors of
torch if torch is installed. It does not need JAX.
"""

import resource
import threading

import cases
import numpy as np
import tvm_ffi
from cases import close, refused
from figraph import ffi

module = tvm_ffi.load_module(ffi.PATH)
t = tvm_ffi.from_dlpack
numbers = np.random.default_rng(1)


def normal(*shape, dtype=np.float32):
    return numbers.standard_normal(shape).astype(dtype)


def needs(rows, tokens, heads=(16, 4), dim=64, dtype="f32", page_size=0):
    return ffi.scratch_of(dtype, dtype, *heads, dim, rows, tokens, page_size)[1]


def silu_and_mul_takes_any_rank_and_width():
    for shape in ((6,), (3, 8), (2, 3, 514), (2, 1, 2, 30)):
        for dtype in (np.float32, np.float16):
            x = normal(*shape, dtype=dtype)
            out = np.empty(shape[:-1] + (shape[-1] // 2,), dtype)
            module.silu_and_mul(t(out), t(x), False)
            close(out, cases.silu_and_mul(x), 1e-6 if dtype == np.float32 else 2e-3)


def gelu_has_both_forms():
    x, out = normal(4, 32), np.empty((4, 16), np.float32)
    gate, up = np.split(x.astype(np.float64), 2, axis=-1)
    module.gelu_and_mul(t(out), t(x), 0)
    exact = np.vectorize(__import__("math").erf)(gate / np.sqrt(2))
    close(out, gate * 0.5 * (1 + exact) * up, 1e-5)
    module.gelu_tanh_and_mul(t(out), t(x), True)
    inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
    close(out, gate * 0.5 * (1 + np.tanh(inner)) * up, 1e-5)


def wrong_arguments_are_python_errors():
    x, out = normal(3, 8), np.empty((3, 4), np.float32)
    silu = module.silu_and_mul
    refused("2 arguments, it takes 3", lambda: silu(t(out), t(x)), (TypeError,))
    refused("input is None", lambda: silu(t(out), None, False), (TypeError,))
    refused("enable_pdl is None", lambda: silu(t(out), t(x), None), (TypeError,))
    refused("float64", lambda: silu(t(out), t(x.astype(np.float64)), False), (TypeError,))
    refused("out is float16", lambda: silu(t(out.astype(np.float16)), t(x), False), (TypeError,))
    refused("row-major", lambda: silu(t(out), t(np.asfortranarray(x)), False), (ValueError,))
    refused("out is [3, 4]", lambda: silu(t(out), t(normal(2, 8)), False), (ValueError,))
    refused("last dim is even", lambda: silu(t(out), t(normal(3, 7)), False), (ValueError,))


def packed_segments_turn_by_their_offsets():
    for index in (np.int32, np.int64):
        q, k = normal(11, 8, 64), normal(11, 2, 64)
        q_out, k_out = np.empty_like(q), np.empty_like(k)
        indptr, offsets = np.array([0, 4, 4, 11], index), np.array([5, 0, 1000], index)
        module.apply_rope(*map(t, (q, k, q_out, k_out, indptr, offsets)), 64, False, 1.0, 1e4)
        positions = np.r_[5:9, 1000:1007]
        close(q_out, cases.rope(q, positions), 1e-5)
        close(k_out, cases.rope(k, positions), 1e-5)


def the_twin_has_results_first():
    q, k = normal(3, 4, 64), normal(3, 4, 64)
    a, b = (np.empty_like(q) for _ in "ab"), (np.empty_like(q) for _ in "ab")
    (a_q, a_k), (b_q, b_k) = a, b
    index = np.array([0, 3], np.int32), np.array([7], np.int32)
    scalars = 32, True, 2, 500000
    module.apply_rope(*map(t, (q, k, a_q, a_k) + index), *scalars)
    module.apply_rope_jax(*map(t, (b_q, b_k, q, k) + index), *scalars)
    assert np.array_equal(a_q, b_q) and np.array_equal(a_k, b_k)
    expected = cases.rope(q, 7 + np.arange(3), 5e5, 2.0, 32, True)
    close(a_q, expected, 1e-5)


def positions_may_be_given_for_each_row():
    q, k = normal(3, 4, 64), normal(3, 4, 64)
    q_out, k_out = np.empty_like(q), np.empty_like(k)
    for index in (np.int32, np.int64):
        positions = np.array([9, 0, 70000], index)
        module.apply_rope_pos_ids(*map(t, (q, k, q_out, k_out, positions)), 64, False, 1.0, 1e4)
        close(q_out, cases.rope(q, positions), 1e-5)


def llama31_blends_its_frequencies():
    q, k = normal(5, 4, 128), normal(5, 4, 128)
    outs = np.empty_like(q), np.empty_like(k)
    positions, llama = np.array([0, 1, 100, 5000, 100000], np.int32), (8.0, 1.0, 4.0, 8192.0)
    scalars = 128, False, llama[0], 5e5, llama[1], llama[2], llama[3]
    expected = cases.rope(q, positions, 5e5, llama=llama)
    module.apply_llama31_rope_pos_ids(*map(t, (q, k, *outs, positions)), *scalars)
    close(outs[0], expected, 1e-4)
    indptr, offsets = np.arange(6, dtype=np.int32), positions
    outs[0][:] = 0
    module.apply_llama31_rope(*map(t, (q, k, *outs, indptr, offsets)), *scalars)
    close(outs[0], expected, 1e-4)


def angles_may_come_from_a_cache():
    q, k = normal(3, 4, 64), normal(3, 2, 64)
    outs = np.empty_like(q), np.empty_like(k)
    angle = np.arange(50)[:, None] * 1e4 ** (-np.arange(0, 32, 2) / 32)
    cache = np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    positions = np.array([49, 0, 13], np.int64)
    module.apply_rope_pos_ids_cos_sin_cache(*map(t, (q, k, *outs, cache, positions)), False)
    close(outs[1], cases.rope(k, positions, rotary_dim=32), 1e-5)


def rope_takes_strides_and_its_own_memory():
    packed = normal(6, 12, 64)
    q, k = packed[:, :8], packed[:, 8:10]
    expected = cases.rope(q, np.arange(6)), cases.rope(k, np.arange(6))
    rest = packed[:, 10:].copy()
    index = np.array([0, 6], np.int32), np.array([0], np.int32)
    module.apply_rope(*map(t, (q, k, q, k) + index), 64, False, 1.0, 1e4)
    close(q, expected[0], 1e-5)
    close(k, expected[1], 1e-5)
    assert np.array_equal(packed[:, 10:], rest)


def one_row_may_have_any_strides():
    """The stride of a dim of extent 1 has no meaning, so callers may pass any number."""
    wide = normal(1, 16, 64)
    q, k = wide[:, ::2], wide[:, 1::8]
    expected = cases.rope(q, [7]), cases.rope(k, [7])
    index = np.array([0, 1], np.int32), np.array([7], np.int32)
    q_out, k_out = np.zeros((1, 8, 64), np.float32), np.zeros((1, 2, 64), np.float32)
    module.apply_rope(*map(t, (q, k, q_out, k_out) + index), 64, False, 1.0, 1e4)
    close(q_out, expected[0], 1e-5)
    close(k_out, expected[1], 1e-5)
    module.apply_rope(*map(t, (q, k, q, k) + index), 64, False, 1.0, 1e4)
    close(q, expected[0], 1e-5)
    close(k, expected[1], 1e-5)


def rope_refuses_arrays_that_it_cannot_rotate():
    q, k = normal(3, 4, 64), normal(3, 4, 64)
    index = np.array([0, 3], np.int32), np.array([0], np.int32)
    outs = np.empty_like(q), np.empty_like(q)

    def call(q=q, k=k, outs=outs, index=index, scalars=(64, False, 1.0, 1e4)):
        module.apply_rope(*map(t, (q, k) + outs + index), *scalars)

    refused("rotary_dim is 0", lambda: call(scalars=(0, False, 1.0, 1e4)), (ValueError,))
    refused("rotary_dim is 66", lambda: call(scalars=(66, False, 1.0, 1e4)), (ValueError,))
    refused("rope_scale is 0", lambda: call(scalars=(64, False, 0.0, 1e4)), (ValueError,))
    refused("k is [2, 4, 64]", lambda: call(k=k[:2]), (ValueError,))
    refused("indptr is [2]", lambda: call(index=(index[0], index[0])), (ValueError,))
    floats = index[0].astype(np.float32)
    refused("indptr is float32", lambda: call(index=(floats, index[1])), (TypeError,))
    refused("side by side", lambda: call(q=normal(3, 4, 128)[..., ::2]), (ValueError,))
    refused("overlaps", lambda: call(outs=(q, q)), (ValueError,))


def run(q, k, v, layout=0, window_left=-1, alibi=None, soft_cap=0.0, lse=True, tmp=np.uint8):
    tokens = k.shape[0 if layout == 0 else 1]
    heads = q.shape[0], k.shape[1 if layout == 0 else 0]
    dtype = {"float32": "f32", "float16": "f16"}[str(q.dtype)]
    count = needs(1, tokens, heads, q.shape[1], dtype) // np.dtype(tmp).itemsize + 1
    out, lse = np.empty_like(q), np.empty(q.shape[0], np.float32) if lse else None
    module.run(
        t(q),
        t(k),
        t(v),
        t(np.full(count, 77, tmp)),
        t(out),
        None if lse is None else t(lse),
        layout,
        window_left,
        None if alibi is None else t(alibi),
        soft_cap,
        q.shape[1] ** -0.5,
        1.0,
        1e4,
    )
    return out, lse


def one_request_sees_its_cache():
    for tokens in (1, 63, 400):
        for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 2e-3)):
            shapes = (16, 64), (tokens, 4, 64), (tokens, 4, 64)
            q, k, v = (normal(*shape, dtype=dtype) for shape in shapes)
            expected, expected_lse = cases.attention(q, k, v)
            out, lse = run(q, k, v, tmp=dtype)
            close(out, expected, tolerance)
            close(lse, expected_lse, tolerance)
            out, _ = run(q, k, v, lse=False)
            close(out, expected, tolerance)


def both_layouts_are_the_same():
    q, k, v = normal(16, 128), normal(100, 4, 128), normal(100, 4, 128)
    swapped = (np.ascontiguousarray(x.swapaxes(0, 1)) for x in (k, v))
    assert np.array_equal(run(q, k, v)[0], run(q, *swapped, layout=1)[0])


def variants_are_chosen_by_the_call():
    q, k, v = normal(8, 64), normal(90, 4, 64), normal(90, 4, 64)
    alibi = normal(8)
    for window in (-1, 0, 5, 200):
        for cap in (0.0, 3.0):
            for slopes in (None, alibi):
                out, lse = run(q, k, v, 0, window, slopes, cap)
                wide = window + 1 if window >= 0 else 0
                expected = cases.attention(q, k, v, soft_cap=cap, window=wide, alibi=slopes)
                close(out, expected[0], 1e-5)
                close(lse, expected[1], 1e-5)


def a_row_without_tokens_gets_zeros():
    k, v = (np.empty((0, 4, 64), np.float32) for _ in "kv")
    out, lse = run(normal(8, 64), k, v)
    assert (out == 0).all() and np.isneginf(lse).all()


def the_twin_of_run_takes_empty_arrays_for_none():
    q, k, v = normal(16, 64), normal(33, 4, 64), normal(33, 4, 64)
    expected, _ = run(q, k, v)
    out, nothing = np.empty_like(q), np.empty((0,), np.float32)
    tmp = np.empty(needs(1, 33), np.uint8)
    arrays = map(t, (out, tmp, nothing, q, k, v, nothing))
    module.run_jax(*arrays, 0, -1, 0.0, 64**-0.5, 1.0, 1e4)
    assert np.array_equal(out, expected)


def run_refuses_too_little_scratch():
    q, k, v = normal(16, 64), normal(33, 4, 64), normal(33, 4, 64)
    rest = None, 0, -1, None, 0.0, 0.125, 1.0, 1e4
    for tmp in (None, t(np.empty(16, np.uint8))):
        refused(
            "scratch_bytes is",
            lambda: module.run(t(q), t(k), t(v), tmp, t(np.empty_like(q)), *rest),
            (ValueError,),
        )
    refused("head_dim is 48", lambda: run(normal(4, 48), normal(3, 4, 48), normal(3, 4, 48)))
    none = t(normal(0, 64))
    refused("q has 0 heads", lambda: module.run(none, t(k), t(v), None, none, *rest), (ValueError,))
    rest = None, 3, -1, None, 0.0, 0.125, 1.0, 1e4
    call = lambda: module.run(t(q), t(k), t(v), None, t(np.empty_like(q)), *rest)
    refused("it must be 0, NHD", call, (ValueError,))


def paged(rows=5, pages=40, page=16, width=6, heads=(16, 4), dim=64, layout=0):
    """Returns caches, a page table without shared pages, and lengths, one of which is invalid."""
    shape = (pages, page, heads[1], dim)
    k, v = normal(*shape), normal(*shape)
    table = numbers.permutation(pages)[: rows * width].reshape(rows, width).astype(np.int32)
    lengths = np.array([1, 96, 0, 97, 50], np.int32)[:rows]
    rows_of = []
    for r in range(rows):
        take = lengths[r] if lengths[r] <= page * width else 0
        rows_of.append([x[table[r]].reshape(-1, heads[1], dim)[:take] for x in (k, v)])
    if layout == 1:
        k, v = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (k, v))
    return normal(rows, heads[0], dim), k, v, table, lengths, rows_of


def a_batch_reads_its_pages():
    for layout in (0, 1):
        q, k, v, table, lengths, rows_of = paged(layout=layout)
        out, lse = np.full_like(q, 9), np.empty(q.shape[:2], np.float32)
        tmp = np.empty(needs(5, 96, page_size=16), np.uint8)
        inputs, outs = map(t, (q, k, v, table, lengths)), map(t, (tmp, out, lse))
        module.batch_decode(*inputs, *outs, layout, -1, None, 0.0, 0.125)
        for r, (k_row, v_row) in enumerate(rows_of):
            expected, expected_lse = cases.attention(q[r], k_row, v_row)
            close(out[r], expected, 1e-5)
            close(lse[r], expected_lse, 1e-5)
        twin = np.empty_like(q)
        arrays = twin, tmp, np.empty((0, 16), np.float32), q, k, v, table, lengths, lse[:0]
        module.batch_decode_jax(*map(t, arrays), layout, -1, 0.0, 0.125)
        assert np.array_equal(out, twin)


def latents_are_appended_and_attended():
    rows, heads, page, width = 3, 16, 8, 2
    lengths = np.array([16, 1, 9], np.int32)
    table = numbers.permutation(rows * width).astype(np.int32).reshape(rows, width)
    angles = 64, True, 1.0, 1e4, 0.0, 0.0, 0.0, 0
    for dtype, form in ((np.float32, "f32"), (np.float16, "f16")):
        q, latent = normal(rows, heads, 576, dtype=dtype), normal(rows, 576, dtype=dtype)
        turned, halves = q.copy(), (q[..., :512], q[..., 512:].copy())  # the first has gaps
        turned[..., 512:] = cases.rope(q[..., 512:], lengths - 1, interleave=True)
        cache, weight = normal(rows * width, page, 576, dtype=dtype), normal(512, dtype=dtype)
        out, lse = np.empty((rows, heads, 512), dtype), np.empty((rows, heads), np.float32)
        least = ffi.scratch_of(form, form, heads, 1, 576, rows, page * width, page,
                               latent_dim=512)[1]
        tmp = np.empty(least, np.uint8)
        arrays = [t(x) for x in (cache, lengths, table)]
        grown, twin = cache.copy(), np.empty_like(out)
        module.latent_decode(t(q), t(latent), *arrays, None, None, t(weight), t(out), t(tmp),
                             t(lse), *angles, 1e-5, -1, 0.0625)
        module.latent_decode(t(halves[0]), t(latent), t(grown), *arrays[1:], None, None, t(weight),
                             t(twin), t(tmp), t(lse), *angles, 1e-5, -1, 0.0625, False, None, None,
                             None, 0, t(halves[1]))
        assert np.array_equal(out, twin) and np.array_equal(cache, grown)
        parts = [t(turned[..., :512]), t(turned[..., 512:])]  # views with gaps
        for again in range(3):
            for r in range(rows):
                tokens = cache[table[r]].reshape(-1, 576)[: lengths[r]]
                due = cases.latent_token(latent[r], lengths[r] - 1, weight, 1e-5, interleave=True)
                close(tokens[-1], due, 1e-5 if dtype == np.float32 else 4e-3)
                wanted = cases.latent_attention(turned[r], tokens, 0.0625)
                close(out[r], wanted[0], 1e-5 if dtype == np.float32 else 4e-3)
                close(lse[r], wanted[1], 1e-3)
            out[:] = 0
            rest = (*arrays, None, None, t(out), t(tmp), t(lse), -1, 0.0625)
            if again == 0:
                module.latent_attention(t(turned), *rest)
            else:
                module.latent_attention(parts[0], *rest, False, None, 0, parts[1])
    q, out = turned.astype(np.float32), out.astype(np.float32)
    refused("cache is float16, it must have the type of q, or uint8", lambda: (
        module.latent_attention(t(q), *arrays, None, None, t(out), t(tmp), t(lse), -1, 0.0625)),
            (TypeError,))
    refused("28", lambda: module.latent_decode(t(q)), (TypeError,))


def many_calls_make_few_runners():
    """Calls from four threads, each with other addresses, rows and lengths."""
    q, k, v = normal(16, 64), normal(512, 4, 64), normal(512, 4, 64)
    for tokens in (1, 2, 3, 5, 9, 17, 33, 65, 129, 257):
        run(q, k[:tokens], v[:tokens])
    before = ffi.counts()

    def call(seed):
        for i in range(60):
            tokens = 1 + (seed + 37 * i) % 512
            out, _ = run(q.copy(), k[:tokens].copy(), v[:tokens].copy())
            close(out, cases.attention(q, k[:tokens], v[:tokens])[0], 1e-5)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = ffi.counts()
    assert after.missed == before.missed, "a runner was made again"
    assert after.eager == before.eager + 240


def a_hundred_thousand_calls_keep_nothing():
    """Calls with other addresses and numbers of rows each time. Memory may grow by less than one
    array per call would take."""
    pool, silu = normal(4096, 16), module.silu_and_mul
    arrays = [t(pool[i : i + 1 + i % 7]) for i in range(0, 4000, 8)]
    outs = [t(np.empty((1 + i % 7, 8), np.float32)) for i in range(0, 4000, 8)]

    def call(count):
        for i in range(count):
            silu(outs[i % 500], arrays[i % 500], False)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, ffi.counts().missed

    before, after = call(2000), call(100000)
    assert after[1] == before[1]
    assert after[0] - before[0] < 2048, f"{after[0] - before[0]} KiB more"


def torch_is_a_caller_like_numpy():
    x = torch.randn(3, 512, dtype=torch.bfloat16)
    out = torch.empty(3, 256, dtype=torch.bfloat16)
    module.silu_and_mul(out, x, False)
    close(out.float().numpy(), cases.silu_and_mul(x.float().numpy()), 2e-2)


def nothing_of_cuda_was_touched():
    assert "libcuda.so" not in open("/proc/self/maps").read()


CASES = [
    silu_and_mul_takes_any_rank_and_width,
    gelu_has_both_forms,
    wrong_arguments_are_python_errors,
    packed_segments_turn_by_their_offsets,
    the_twin_has_results_first,
    positions_may_be_given_for_each_row,
    llama31_blends_its_frequencies,
    angles_may_come_from_a_cache,
    rope_takes_strides_and_its_own_memory,
    one_row_may_have_any_strides,
    rope_refuses_arrays_that_it_cannot_rotate,
    one_request_sees_its_cache,
    both_layouts_are_the_same,
    variants_are_chosen_by_the_call,
    a_row_without_tokens_gets_zeros,
    the_twin_of_run_takes_empty_arrays_for_none,
    run_refuses_too_little_scratch,
    a_batch_reads_its_pages,
    latents_are_appended_and_attended,
    many_calls_make_few_runners,
    a_hundred_thousand_calls_keep_nothing,
    nothing_of_cuda_was_touched,
]
try:
    import torch

    CASES.append(torch_is_a_caller_like_numpy)
except ImportError:
    pass
cases.run(CASES)
