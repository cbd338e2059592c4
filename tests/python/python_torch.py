"""python_torch.py: compares figraph.torch, called eagerly and compiled on the CPU, with float64.

    tests/python/python_torch.py [DEVICE]

Run where torch and figraph can be imported. tests/gpu/torch_step.py has the tests that need a GPU.
"""

import doctest
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../support"), os.path.join(HERE, "../jax")]
import cases  # noqa: E402
import figraph.torch as ft  # noqa: E402
import torch  # noqa: E402
from figraph import ffi  # noqa: E402
from sentences import refused, run  # noqa: E402

ROWS, TOKENS, Q, KV, DIM = 3, 24, 8, 4, 64
DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
LENGTHS = torch.tensor([24, 1, 25], dtype=torch.int32, device=DEVICE)
SEEN = [24, 1, 0]  # the number of tokens that each row sees
torch.manual_seed(5)


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype).to(DEVICE)


def numpy(tensor):
    return tensor.detach().cpu().double().numpy()


def close(got, expected, tolerance):
    cases.close(numpy(got), expected, tolerance)


def dense(rows=ROWS, dtype=torch.float32):
    shape = (rows, TOKENS, KV, DIM)
    return ft.Cache(normal(*shape, dtype=dtype), normal(*shape, dtype=dtype))


def paged():
    """Returns pages of 8 tokens, three for each row, in random order."""
    order = torch.randperm(3 * ROWS, generator=torch.Generator().manual_seed(1))
    table = order.to(torch.int32).reshape(ROWS, 3).to(DEVICE)
    return ft.Cache(normal(3 * ROWS, 8, KV, DIM), normal(3 * ROWS, 8, KV, DIM), table)


def copy_of(cache):
    return ft.Cache(*(None if x is None else x.clone() for x in cache))


def tokens_of(cache, row):
    """Returns the keys and values of a row in order."""
    if cache.page_table is None:
        return [numpy(x[row]) for x in (cache.k, cache.v)]
    pages = cache.page_table[row].long()
    return [numpy(x[pages].reshape(-1, KV, DIM)) for x in (cache.k, cache.v)]


def expected(q, cache, row, **options):
    keys, values = (x[: SEEN[row]] for x in tokens_of(cache, row))
    return cases.attention(numpy(q[row]), keys, values, **options)


def activations_and_rope_are_right():
    for dims in ([2], [0, 4], 9 * [2]):
        x = normal(*dims)
        close(ft.silu_and_mul(x), cases.silu_and_mul(numpy(x)), 1e-5)
    x = normal(2, 5, 32)
    close(ft.silu_and_mul(x), cases.silu_and_mul(numpy(x)), 1e-5)
    close(ft.silu_and_mul(x.transpose(0, 1)), cases.silu_and_mul(numpy(x.transpose(0, 1))), 1e-5)
    gate, up = x.chunk(2, -1)
    close(ft.gelu_and_mul(x), numpy(torch.nn.functional.gelu(gate) * up), 1e-5)
    tanh = torch.nn.functional.gelu(gate, approximate="tanh") * up
    close(ft.gelu_tanh_and_mul(x), numpy(tanh), 1e-5)
    at = torch.tensor([0, 7, 999], device=DEVICE)
    for positions in (at, at.int()):
        qkv = normal(ROWS, Q + 2 * KV, DIM)
        q, k = qkv[:, :Q], qkv[:, Q : Q + KV]  # q and k are views
        for got, one in zip(ft.apply_rope(q, k, positions), (q, k)):
            close(got, cases.rope(numpy(one), at.cpu()), 1e-4)
    rope = ft.Rope(theta=5e5, rotary_dim=32, interleaved=True)
    turned = ft.apply_rope(q, k, at, rope)[0]
    close(turned, cases.rope(numpy(q), at.cpu(), 5e5, rotary_dim=32, interleave=True), 1e-4)
    llama = ft.Rope(llama3_factor=8, llama3_low=1, llama3_high=4, llama3_context=8192)
    wanted = cases.rope(numpy(q), at.cpu(), llama=(8, 1, 4, 8192))
    close(ft.apply_rope(q, k, at, llama)[0], wanted, 1e-4)


def norms_are_right_and_add_in_place():
    x, weight = normal(2, 3, 96), normal(96)
    for one in (x, x[0, 0], x.transpose(0, 1)):
        wanted = torch.nn.functional.rms_norm(one.double(), (96,), weight.double(), 1e-5)
        close(ft.rms_norm(one, weight, epsilon=1e-5), numpy(wanted), 1e-5)
        residual = normal(*one.shape)
        total = one + residual
        got = ft.rms_norm(one, weight - 1, weight_offset=1.0, residual=residual)
        assert torch.equal(residual, total)
        wanted = torch.nn.functional.rms_norm(total.double(), (96,), weight.double(), 1e-6)
        close(got, numpy(wanted), 1e-5)


def attention_is_right_over_dense_caches_and_pages():
    q = normal(ROWS, Q + 2, DIM)[:, 1:-1]  # q is a view
    for cache in (dense(), paged()):
        for plan in (None, ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache)):
            out, lse = ft.attention(q, cache, LENGTHS, plan=plan, with_lse=True)
            alone = ft.attention(q, cache, LENGTHS, plan=plan)
            assert torch.equal(out, alone)
            for row in range(ROWS):
                wanted = expected(q, cache, row)
                close(out[row], wanted[0], 1e-5)
                close(lse[row], wanted[1], 1e-5)


def logits_and_what_is_per_head_are_as_asked():
    q, cache, alibi = normal(ROWS, Q, DIM), dense(), normal(Q)
    logits = ft.Logits(scale=0.5, window=10)
    out = ft.attention(q, cache, LENGTHS, logits=logits, alibi=alibi)
    wanted = expected(q, cache, 0, sm_scale=0.5, window=10, alibi=numpy(alibi))[0]
    close(out[0], wanted, 1e-5)
    capped = ft.attention(q, cache, LENGTHS, logits=ft.Logits(soft_cap=2))
    close(capped[0], expected(q, cache, 0, soft_cap=2)[0], 1e-5)
    swapped = ft.Cache(*(x.transpose(1, 2).contiguous() for x in cache[:2]))
    same = ft.attention(q, swapped, LENGTHS, layout="hnd")
    assert torch.equal(same, ft.attention(q, cache, LENGTHS))
    sinks = torch.full((Q,), -1e9, device=DEVICE)
    close(ft.attention(q, cache, LENGTHS, sinks=sinks), numpy(same), 1e-6)
    sunk = ft.attention(q, cache, LENGTHS, sinks=sinks + 2e9)
    assert not sunk.any()


def caches_may_be_of_8_bits_with_scales():
    q, scales = normal(ROWS, Q, DIM, dtype=torch.float16), normal(KV) ** 2 + 0.5
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
        narrow = [x.to(kind) for x in dense()[:2]]
        for scale in (scales, scales[:1]):
            cache = ft.Cache(*narrow, k_scale=scale, v_scale=scale)
            plan = ft.plan(LENGTHS, dtype=torch.float16, q_heads=Q, cache=cache)
            out = ft.attention(q, cache, LENGTHS, plan=plan)
            wide = ft.Cache(*(x.float() * scale[:, None] for x in narrow))
            close(out[0], expected(q, wide, 0)[0], 3e-3)
            k, v = normal(2, ROWS, KV, DIM, dtype=torch.float16)
            ft.append_kv(k, v, cache, LENGTHS, plan=plan)
            close(cache.v[1, 0].float() * scale[:, None], numpy(v[1]), 0.15)


def layers_share_a_plan_and_grow_their_caches():
    """Compares three ways: the fused call; its parts with one plan; and an append that makes its
    own plan."""
    for kind in (dense, paged):
        qkv = normal(ROWS, Q + 2 * KV, DIM)
        was = kind()
        caches = [copy_of(was) for _ in range(3)]
        plan = ft.plan(LENGTHS, dtype=qkv.dtype, q_heads=Q, cache=was)
        q, k, v = qkv.split((Q, KV, KV), 1)
        turned = ft.apply_rope(q, k, LENGTHS - 1)
        ft.append_kv(turned[1], v, caches[1], LENGTHS, plan=plan)
        ft.append_kv(turned[1], v, caches[2], LENGTHS)
        parts = ft.attention(turned[0], caches[1], LENGTHS, plan=plan)
        keys = cases.rope(numpy(k), (LENGTHS - 1).clamp(min=0).cpu())
        queries = cases.rope(numpy(q), (LENGTHS - 1).cpu())
        values = numpy(v)
        fused = ft.decode_attention(q, k, v, caches[0], LENGTHS, plan=plan)
        close(fused, numpy(parts), 1e-5)
        for cache in caches:
            close(torch.from_numpy(tokens_of(cache, 0)[0][23]), keys[0], 1e-5)
            close(torch.from_numpy(tokens_of(cache, 1)[1][0]), values[1], 0)
            assert (tokens_of(cache, 2)[0] == tokens_of(was, 2)[0]).all()  # row 2 is idle
        close(parts[0], expected(torch.from_numpy(queries), caches[1], 0)[0], 1e-4)
        assert not fused[2].any()


def arguments(cache, **changes):
    """Returns the operators' arguments, for opcheck."""
    q, k, v = normal(ROWS, Q, DIM), normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)
    held = (*cache[:2], LENGTHS, *cache[2:], 0, None, None, 0)
    plan = ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache)
    asked = (*plan, None, None, 0, 0.0, 0.125, False)
    angles = (DIM, False, 1.0, 1e4, 0.0, 0.0, 0.0, 0)
    turns, outs = (*angles, False, None, None), (normal(ROWS, Q, DIM), normal(ROWS, Q))
    rows = (normal(ROWS, DIM), normal(ROWS, DIM), normal(DIM), 1e-6, 0.0)
    ops = torch.ops.figraph
    return {
        ops.silu_and_mul: (normal(ROWS, 2 * DIM),),
        ops.silu_and_mul_out: (normal(ROWS, 2 * DIM), normal(ROWS, DIM)),
        ops.rms_norm: rows,
        ops.rms_norm_out: (*rows, normal(ROWS, DIM)),
        ops.apply_rope: (q, k, LENGTHS, None, *angles),
        ops.apply_rope_out: (q, k, LENGTHS, None, *angles, outs[0], v.clone()),
        ops.append_kv: (k, v, *held, plan.plan),
        ops.write_kv: (k, v, *cache[:2], LENGTHS, *cache[3:], 0, None),
        ops.plan: (LENGTHS, q.dtype, Q, KV, DIM, 0, TOKENS, q.dtype, 0, 1, False, LENGTHS,
                   None, 0),
        ops.attention: (q, *held, *asked, True),
        ops.attention_out: (q, *held, *asked, *outs),
        ops.decode_attention: (q, k, v, *held, *asked, *turns, True),
        ops.decode_attention_out: (q, k, v, *held, *asked, *turns, *outs),
    }


def each_operator_is_what_its_schema_says():
    """Some bytes of a plan are never read or written, so only its shape can be compared."""
    for cache in (dense(), paged()):
        for op, given in arguments(cache).items():
            whole = ("test_schema", "test_autograd_registration", "test_faketensor",
                     "test_aot_dispatch_dynamic")
            torch.library.opcheck(op.default, given, test_utils=whole[: 3 if "plan" in str(op)
                                                                      else 4])


def a_compiled_step_is_the_eager_one():
    def step(qkv, gate_up, cache, lengths):
        plan = ft.plan(lengths, dtype=qkv.dtype, q_heads=Q, cache=cache, window=9)
        act = ft.silu_and_mul(gate_up)
        q, k, v = qkv.split((Q, KV, KV), 1)
        out = ft.decode_attention(q, k, v, cache, lengths, plan=plan, logits=ft.Logits(window=9))
        turned = ft.apply_rope(q.clone(), k.clone(), lengths - 1)
        ft.append_kv(turned[1], v, cache, lengths, plan=plan)
        return act, out * 2, ft.attention(turned[0], cache, lengths, with_lse=True)

    backend = "aot_eager" if DEVICE == "cpu" else "inductor"
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for kind in (dense, paged):
        cache, qkv, gate_up = kind(), normal(ROWS, Q + 2 * KV, DIM), normal(ROWS, 2 * DIM)
        twin, qkv_twin = copy_of(cache), qkv.clone()
        for lengths in (LENGTHS, LENGTHS - 3):
            eager = step(qkv, gate_up, cache, lengths)
            other = compiled(qkv_twin, gate_up, twin, lengths)
            for mine, theirs in zip((*eager[:2], *eager[2]), (*other[:2], *other[2])):
                close(theirs, numpy(mine), 1e-6)
            assert torch.equal(cache.k, twin.k) and torch.equal(cache.v, twin.v)


def what_is_wrong_is_refused_before_anything_runs():
    """Checks the messages, for real tensors and for tensors of which only the shapes are known."""
    q, cache, x, scale = normal(ROWS, Q, DIM), dense(), normal(2, 7), normal(KV)
    k = normal(ROWS, KV, DIM)
    half = ft.Cache(cache.k, cache.v[:, :5])
    mixed = ft.Cache(cache.k, cache.v.half())
    lent = ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache)
    scaled = [cache._replace(k_scale=a, v_scale=b) for a, b in (
        (scale, None), (scale, scale[:1]), (scale[:3], scale), (scale, scale.half()))]
    wrong = [
        ("its last dim must be 2 * width", ValueError, ft.silu_and_mul, x),
        ("input is int32", TypeError, ft.silu_and_mul, x.int()),
        ("weight is [7], it must be [64]", ValueError, ft.rms_norm, q, x[0]),
        ("weight is float16", TypeError, ft.rms_norm, x, x[0].half()),
        ("positions is float32", TypeError, ft.apply_rope, q, k, LENGTHS.float()),
        ("k is [3, 4, 64], it must be [3, any, 32]", ValueError, ft.apply_rope, q[..., :32], k,
         LENGTHS),
        ("k is float16, it must be float32", TypeError, ft.apply_rope, q, k.half(), LENGTHS),
        ("positions is [2], it must be [3]", ValueError, ft.apply_rope, q, k, LENGTHS[:2]),
        ("q is [8, 64], it must be [rows, heads, head_dim]", ValueError, ft.attention, q[0], cache,
         LENGTHS),
        ("lengths is [2], it must be [3]", ValueError, ft.attention, q, cache, LENGTHS[:2]),
        ("lengths is int64", TypeError, ft.attention, q, cache, LENGTHS.long()),
        ("cache.k is [2, 24, 4, 64], its dim 0 must be at least 3", ValueError, ft.attention, q,
         dense(2), LENGTHS),
        ("cache.v is [3, 5, 4, 64]", ValueError, ft.attention, q, half, LENGTHS),
        ("cache.v is float16", TypeError, ft.attention, q, mixed, LENGTHS),
        ("one is given, the other is not", ValueError, ft.attention, q, scaled[0], LENGTHS),
        ("cache.v_scale is [1], it must be [4]", ValueError, ft.attention, q, scaled[1], LENGTHS),
        ("cache.k_scale is [3], it must be [4]", ValueError, ft.attention, q, scaled[2], LENGTHS),
        ("cache.v_scale is float16", TypeError, ft.attention, q, scaled[3], LENGTHS),
        ("v is [3, 8, 64], it must be [3, 4, 64]", ValueError, ft.append_kv, k, q, cache, LENGTHS),
        ("cache.page_table is int64", TypeError, ft.attention, q,
         cache._replace(page_table=torch.zeros(3, 1, dtype=torch.int64, device=DEVICE)), LENGTHS),
    ]
    for words, kind, function, *given in wrong:
        refused(words, lambda: function(*given), (kind,))
        meta = [ft.Cache(*(y if y is None else y.to("meta") for y in z))
                if isinstance(z, ft.Cache) else z.to("meta") for z in given]
        refused(words, lambda: function(*meta), (kind,))
    refused("layout is \"nkd\"", lambda: ft.attention(q, cache, LENGTHS, layout="nkd"))
    refused("alibi is [3], it must be [8]",
            lambda: ft.attention(q, cache, LENGTHS, alibi=normal(3)), (ValueError,))
    refused("k is [3, 8, 64], it must be [3, 4, 64]",
            lambda: ft.decode_attention(q, q.clone(), k, cache, LENGTHS), (ValueError,))
    refused("dtype is int32",
            lambda: ft.plan(LENGTHS, dtype=torch.int32, q_heads=Q, cache=cache), (TypeError,))
    for plan in (ft.Plan(lent.plan[:64], lent.scratch), ft.Plan(lent.plan, lent.scratch[:64]),
                 ft.Plan(lent.plan.view(torch.int8), lent.scratch)):
        refused("plan.", lambda: ft.attention(q, cache, LENGTHS, plan=plan),
                (ValueError, TypeError))
    refused("q_heads", lambda: ft.attention(q[:, :6], cache, LENGTHS))
    for rope, words in (
        (ft.Rope(rotary_dim=65), "rope: rotary_dim is 65"),
        (ft.Rope(theta=-1), "rope: theta is -1"),
        (ft.Rope(llama3_factor=8), "rope: llama3_low is 0"),
    ):
        refused(words, lambda: ft.apply_rope(q, k, LENGTHS, rope), (ValueError,))
        refused(words, lambda: ft.decode_attention(q, k, k.clone(), cache, LENGTHS, rope=rope))
    for logits, words in ((ft.Logits(scale=-1), "logits.scale is -1"),
                          (ft.Logits(soft_cap=float("inf")), "logits.soft_cap is inf"),
                          (ft.Logits(window=-1), "logits.window is -1")):
        refused(words, lambda: ft.attention(q, cache, LENGTHS, logits=logits), (ValueError,))
    wide = (1 << 32) + 16
    for field, call in (
        ("window", lambda: ft.attention(q, cache, LENGTHS, logits=ft.Logits(window=wide))),
        ("window", lambda: ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache, window=wide)),
        ("q_heads", lambda: ft.plan(LENGTHS, dtype=q.dtype, q_heads=wide, cache=cache)),
        ("rotary_dim", lambda: ft.apply_rope(q, k, LENGTHS, ft.Rope(rotary_dim=wide))),
        ("llama3_context", lambda: ft.apply_rope(q, k, LENGTHS, ft.Rope(llama3_context=wide))),
    ):
        refused(f"{field} is {wide}, limit", call, (OverflowError,))
    for residual, words in (
        (q[0], "residual is [8, 64], it must be [3, 8, 64]"),
        (q.half(), "residual is float16"),
        (q.transpose(0, 1).contiguous().transpose(0, 1), "it must be row-major"),
    ):
        refused(words, lambda: ft.rms_norm(q, normal(DIM), residual=residual))
        meta = [x.to("meta") for x in (q, normal(DIM), residual)]
        refused(words, lambda: ft.rms_norm(*meta[:2], residual=meta[2]))
    given = arguments(cache)[torch.ops.figraph.attention]
    refused("plan and scratch: one is given, the other is not",
            lambda: torch.ops.figraph.attention(*given[:12], None, *given[13:]), (ValueError,))
    compiled = torch.compile(ft.attention, fullgraph=True, backend="eager")
    refused("lengths is [2], it must be [3]", lambda: compiled(q, cache, LENGTHS[:2]))


def eager_calls_make_no_more_runners():
    q, cache = normal(ROWS, Q, DIM), dense()
    ft.attention(q, cache, LENGTHS)
    made = ffi.counts().missed
    for length in range(TOKENS):
        ft.attention(q, cache, LENGTHS - length)
    assert ffi.counts().missed == made


def help_is_a_tutorial_that_holds():
    if DEVICE == "cpu":
        found = doctest.testmod(ft)
        assert found.failed == 0 and found.attempted > 20, found
    for name in ft.__all__:
        assert getattr(ft, name).__doc__, name


def operators_take_keys_and_values_of_one_pool():
    """FlashInfer and vLLM keep K and V in one array: [pages, 2, tokens, heads, head_dim]."""
    for kind, layout in ((paged, "nhd"), (paged, "hnd"), (dense, "nhd"), (dense, "hnd")):
        apart = kind()
        if layout == "hnd":
            swapped = (x.transpose(1, 2).contiguous() for x in apart[:2])
            apart = ft.Cache(*swapped, apart.page_table)
        pool = torch.stack(apart[:2], 1)
        together = ft.Cache(pool[:, 0], pool[:, 1], apart.page_table)
        q, k, v = normal(ROWS, Q + 2 * KV, DIM).split((Q, KV, KV), 1)
        plan = ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=together, layout=layout)
        for lent in (None, plan):
            outs = []
            for cache in (apart, together):
                given = dict(plan=lent, layout=layout)
                ft.append_kv(k, v, cache, LENGTHS, **given)
                outs.append(ft.attention(q, cache, LENGTHS, **given))
                outs.append(ft.decode_attention(q.clone(), k.clone(), v, cache, LENGTHS, **given))
            assert torch.equal(outs[0], outs[2]) and torch.equal(outs[1], outs[3])
            assert torch.equal(apart.k, together.k) and torch.equal(apart.v, together.v)


CASES = [
    norms_are_right_and_add_in_place,
    activations_and_rope_are_right,
    attention_is_right_over_dense_caches_and_pages,
    logits_and_what_is_per_head_are_as_asked,
    caches_may_be_of_8_bits_with_scales,
    layers_share_a_plan_and_grow_their_caches,
    each_operator_is_what_its_schema_says,
    a_compiled_step_is_the_eager_one,
    what_is_wrong_is_refused_before_anything_runs,
    eager_calls_make_no_more_runners,
    help_is_a_tutorial_that_holds,
    operators_take_keys_and_values_of_one_pool,
]
if __name__ == "__main__":
    run(CASES)
