"""python_torch.py: figraph.torch, called eagerly and compiled on the CPU, against float64.

    tests/python/python_torch.py [DEVICE]

Run where torch and figraph can be imported; what only a GPU has is tests/gpu/torch_step.py's.
"""

import doctest
import importlib.util
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../support"), os.path.join(HERE, "../jax")]
import cases  # noqa: E402
import figraph  # noqa: E402
import figraph.torch as ft  # noqa: E402
import torch  # noqa: E402
from figraph import ffi  # noqa: E402
from sentences import refused, run  # noqa: E402

ROWS, TOKENS, Q, KV, DIM = 3, 24, 8, 4, 64
DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
LENGTHS = torch.tensor([24, 1, 25], dtype=torch.int32, device=DEVICE)
SEEN = [24, 1, 0]  # of those a cache has
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
    """Pages of 8 tokens, three of each row, in no order."""
    order = torch.randperm(3 * ROWS, generator=torch.Generator().manual_seed(1))
    table = order.to(torch.int32).reshape(ROWS, 3).to(DEVICE)
    return ft.Cache(normal(3 * ROWS, 8, KV, DIM), normal(3 * ROWS, 8, KV, DIM), table)


def copy_of(cache):
    return ft.Cache(*(None if x is None else x.clone() for x in cache))


def tokens_of(cache, row):
    """Keys and values of a row, one token behind the other."""
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
        q, k = qkv[:, :Q], qkv[:, Q : Q + KV]  # views
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
    q = normal(ROWS, Q + 2, DIM)[:, 1:-1]  # a view
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
    """The fused call, its parts under one plan, and an append that makes its own."""
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
            assert (tokens_of(cache, 2)[0] == tokens_of(was, 2)[0]).all()  # an idle row
        close(parts[0], expected(torch.from_numpy(queries), caches[1], 0)[0], 1e-4)
        assert not fused[2].any()


def arguments(cache, **changes):
    """Of the operators, for opcheck."""
    q, k, v = normal(ROWS, Q, DIM), normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)
    held = (*cache[:2], LENGTHS, *cache[2:], 0)
    plan = ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache)
    asked = (*plan, None, None, 0, 0.0, 0.125, True)
    angles = (DIM, False, 1.0, 1e4, 0.0, 0.0, 0.0, 0)
    ops = torch.ops.figraph
    return {
        ops.silu_and_mul: (normal(ROWS, 2 * DIM),),
        ops.rms_norm: (normal(ROWS, DIM), normal(ROWS, DIM), normal(DIM), 1e-6, 0.0),
        ops.apply_rope: (q, k, LENGTHS, *angles),
        ops.append_kv: (k, v, *held, plan.plan),
        ops.plan: (LENGTHS, q.dtype, Q, KV, DIM, 0, TOKENS, q.dtype, 0),
        ops.attention: (q, *held, *asked),
        ops.decode_attention: (q, k, v, *held, *asked, *angles),
    }


def each_operator_is_what_its_schema_says():
    """A plan has bytes that nobody reads or writes, so only its form can be compared."""
    for cache in (dense(), paged()):
        for op, given in arguments(cache).items():
            whole = ("test_schema", "test_autograd_registration", "test_faketensor",
                     "test_aot_dispatch_dynamic")
            torch.library.opcheck(op.default, given, test_utils=whole[: 3 if "plan" in str(op)
                                                                      else 4])


def a_compiled_step_is_the_eager_one():
    def step(qkv, gate_up, cache, lengths):
        plan = ft.plan(lengths, dtype=qkv.dtype, q_heads=Q, cache=cache)
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
    """In words, where shapes alone are known too."""
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
        ("q is [8, 64], it must be [any, any, any]", ValueError, ft.attention, q[0], cache,
         LENGTHS),
        ("lengths is [2], it must be [3]", ValueError, ft.attention, q, cache, LENGTHS[:2]),
        ("lengths is int64", TypeError, ft.attention, q, cache, LENGTHS.long()),
        ("cache.k is [2, 24, 4, 64], it must be [3, 24, 4, 64]", ValueError, ft.attention, q,
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
    for residual, words in (
        (q[0], "residual is [8, 64], it must be [3, 8, 64]"),
        (q.half(), "residual is float16"),
        (q.transpose(0, 1).contiguous().transpose(0, 1), "it must be row-major"),
    ):
        refused(words, lambda: ft.rms_norm(q, normal(DIM), residual=residual))
    given = arguments(cache)[torch.ops.figraph.attention]
    refused("plan and scratch: one is given, the other is not",
            lambda: torch.ops.figraph.attention(*given[:9], None, *given[10:]), (ValueError,))
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


# ---- DecodeStep ----------------------------------------------------------------------------------

LAYERS = 2
SPEC = figraph.Spec(dtype="f32", q_heads=Q, kv_heads=KV, head_dim=DIM, ffn_width=32, batch_limit=8,
                    kv_limit=64, layers=LAYERS, window=9, window_layers=(1,),
                    rope=figraph.Rope(theta=5e5))


class Loop:
    """Two layers without products: what one gives, the next takes."""

    def __init__(self, caches, **options):
        self.step = ft.DecodeStep(SPEC, caches, rows=ROWS, **options)
        self.qkv = [normal(ROWS, Q + 2 * KV, DIM) for _ in range(LAYERS)]
        self.gate_up = normal(ROWS, 64)
        self.acts = [normal(ROWS, 32) for _ in range(LAYERS)]
        self.outs = [normal(ROWS, Q, DIM) for _ in range(LAYERS)]

    def __call__(self):
        self.step.plan()
        for n, qkv in enumerate(self.qkv):
            self.acts[n].copy_(self.step.act(n, self.gate_up))
            q, k, v = qkv.clone().split((Q, KV, KV), 1)
            self.step.attend(n, q, k, v, self.outs[n])

    def expected(self, caches, lengths):
        """By the operators, which are compared with float64 above."""
        for n, qkv in enumerate(self.qkv):
            q, k, v = qkv.clone().split((Q, KV, KV), 1)
            window = 9 if n in SPEC.window_layers else 0
            yield ft.decode_attention(q, k, v, caches[n], lengths, rope=ft.Rope(theta=5e5),
                                      logits=ft.Logits(window=window))


def a_step_is_its_layers_for_every_length():
    for kind in (dense, paged):
        caches = [kind() for _ in range(LAYERS)]
        if caches[0].page_table is not None:
            caches[1] = caches[1]._replace(page_table=caches[0].page_table)
        twins = [copy_of(cache) for cache in caches]
        loop = Loop(caches)
        loop.step.capture(loop)
        for n in range(LAYERS):  # idle rows append nothing
            assert torch.equal(caches[n].k, twins[n].k)
        for lengths in ([24, 1, 25], [24, 1, 5], [7, 0], torch.tensor([1, 2, 3]), None):
            loop.step(lengths)
            if isinstance(lengths, list) and len(lengths) == 2:
                assert loop.step.lengths.tolist() == [7, 0, 0]
            for n, out in enumerate(loop.expected(twins, loop.step.lengths)):
                close(loop.outs[n], numpy(out), 1e-5)
                close(caches[n].k, numpy(twins[n].k), 1e-5)
                close(loop.acts[n], cases.silu_and_mul(numpy(loop.gate_up)), 1e-5)
        assert loop.step.lengths.tolist() == [1, 2, 3]


def a_step_may_count_its_own_lengths():
    caches, twins = [dense() for _ in range(LAYERS)], None
    loop = Loop(caches)
    loop.step.capture(lambda: (loop(), loop.step.lengths.add_(loop.step.lengths > 0)))
    twins = [copy_of(cache) for cache in caches]
    loop.step.lengths.copy_(torch.tensor([1, 5, 0]))
    for grown in range(4):
        loop.step()
        lengths = torch.tensor([1 + grown, 5 + grown, 0], dtype=torch.int32, device=DEVICE)
        for n, out in enumerate(loop.expected(twins, lengths)):
            close(loop.outs[n], numpy(out), 1e-5)
    assert loop.step.lengths.tolist() == [5, 9, 0]


def positions_may_be_given_apart():
    caches = [dense() for _ in range(LAYERS)]
    loop, plain = Loop(caches, positions=True), Loop([copy_of(cache) for cache in caches])
    plain.qkv, plain.gate_up = loop.qkv, loop.gate_up
    for one in (loop, plain):
        one.step.capture(one)
    loop.step.positions.copy_(torch.tensor([3, 4, 5]) - 1)
    loop.step([3, 4, 5])
    plain.step([3, 4, 5])
    close(loop.outs[0], numpy(plain.outs[0]), 1e-6)
    loop.step.positions.add_(7)
    loop.step([3, 4, 5])
    assert not torch.allclose(loop.outs[0], plain.outs[0])


def a_step_refuses_what_it_cannot_hold():
    caches = [dense() for _ in range(LAYERS)]
    loop = Loop(caches, check=True)
    refused("no loop was captured", lambda: loop.step([1]), (figraph.errors.Order,))
    loop.step.capture(loop)
    was = [out.clone() for out in loop.outs]
    for lengths, row in (([24, 25], 1), (torch.tensor([-1, 1, 1]), 0)):
        words = f"row {row} has length {int(lengths[row])}, its cache holds {TOKENS}"
        refused(words, lambda: loop.step(lengths), (figraph.errors.TooLarge,))
    loop.step.lengths.fill_(25)
    refused("row 0 has length 25", loop.step, (ValueError,))
    assert all(torch.equal(a, b) for a, b in zip(was, loop.outs))
    refused("lengths is [4], the step has 3 rows", lambda: loop.step([1, 1, 1, 1]))
    refused("tensor q.0: the array has dtype f16",
            lambda: loop.step.attend(0, *(x.half() for x in loop.qkv[0].split((Q, KV, KV), 1))))
    refused("tensor act.0 is not on the device of the others",
            lambda: loop.step.act(0, loop.gate_up, loop.acts[0].to("meta")))
    refused("the program has no tensor gate_up.2", lambda: loop.step.act(2, loop.gate_up))
    refused("shape [2, 64]", lambda: loop.step.act(0, loop.gate_up[:2]))
    refused("the program has no tensor q_norm.0",
            lambda: Loop(caches, weights={"q_norm.0": normal(DIM)}))


def what_readme_shows_is_what_happens():
    with open(os.path.join(HERE, "../../README.md"), encoding="utf-8") as readme:
        shown = readme.read().split("```python\nimport figraph.torch as ft\n")[1].split("```")[0]
    names = dict(ft=ft)
    exec(shown, names)

    class Layer:
        """Products by weights of one, of heads that all are what a row holds."""

        def qkv(self, x):
            return [x.view(ROWS, 1, DIM).repeat(1, heads, 1) for heads in (Q, KV, KV)]

        def output(self, out):
            return out.mean(1)

        def gate_up(self, x):
            return x.repeat(1, 64 // DIM)

        def down(self, act):
            return act.sum(1, keepdim=True).expand(ROWS, DIM)

    hidden, caches = normal(ROWS, DIM), [dense() for _ in range(LAYERS)]
    was, twins = hidden.clone(), [copy_of(cache) for cache in caches]
    step = names["captured"](SPEC, caches, [Layer()] * LAYERS, hidden)
    hidden.copy_(was)
    step([5, 1, 24])
    for n, cache in enumerate(twins):
        window = 9 if n in SPEC.window_layers else 0
        out = ft.decode_attention(*Layer().qkv(was), cache, step.lengths,
                                  rope=ft.Rope(theta=5e5), logits=ft.Logits(window=window))
        was = was + out.mean(1)
        was = was + Layer().down(ft.silu_and_mul(was))
    close(hidden, numpy(was), 1e-4)
    refused("row 0 has length 25", lambda: step([25]))


def stand_in_for_vllm():
    """As much of vLLM's modules as the sketch names; what FlashAttention would do, it says."""

    class Backend:
        pass

    class Builder:
        def build(self, common_prefix_len, common, fast_build=False):
            return types.SimpleNamespace(seq_lens=common.seq_lens, use_cascade=False,
                                         block_table=common.block_table_tensor)

    class Impl:
        def __init__(self, num_heads, *rest, sinks=None):
            self.num_heads, self.alibi_slopes, self.sinks = num_heads, None, sinks

        def forward(self, *rest):
            return "FlashAttention's"

    registered = {}
    modules = {
        "backend": dict(AttentionCGSupport=types.SimpleNamespace(UNIFORM_SINGLE_TOKEN_DECODE=1)),
        "backends.flash_attn": dict(FlashAttentionBackend=Backend, FlashAttentionImpl=Impl,
                                    FlashAttentionMetadataBuilder=Builder),
        "backends.registry": dict(
            AttentionBackendEnum=types.SimpleNamespace(CUSTOM="CUSTOM"),
            register_backend=lambda name, path: registered.update({name: path})),
        "backends": {},
    }
    for name, contents in modules.items():
        module = sys.modules["vllm.v1.attention." + name] = types.ModuleType(name)
        vars(module).update(contents)
    flash = sys.modules["vllm.v1.attention.backends.flash_attn"]
    sys.modules["vllm.v1.attention.backends"].flash_attn = flash
    for name in ("vllm", "vllm.v1", "vllm.v1.attention"):
        sys.modules[name] = types.ModuleType(name)
    return registered


def the_sketch_for_vllm_attends_where_it_is_to():
    registered = stand_in_for_vllm()
    path = os.path.join(HERE, "../../examples/vllm_backend.py")
    found = importlib.util.spec_from_file_location("vllm_backend", path)
    sketch = importlib.util.module_from_spec(found)
    sys.modules["vllm_backend"] = sketch
    found.loader.exec_module(sketch)
    sketch.register()
    assert registered == {"CUSTOM": "vllm_backend.FigraphBackend"}
    assert not sketch.FigraphBackend.supports_kv_cache_dtype("fp8")
    cache, q = paged(), normal(ROWS + 2, Q, DIM)  # vLLM pads rows
    common = types.SimpleNamespace(seq_lens=LENGTHS, block_table_tensor=cache.page_table,
                                   max_query_len=1)
    impl = sketch.FigraphBackend.get_impl_cls()(Q, DIM, 0.125, KV, sliding_window=9)
    builder = sketch.FigraphBackend.get_builder_cls()()
    made, out = builder.build(0, common), torch.zeros_like(q)
    both = torch.stack(cache[:2])
    assert impl.forward(None, q, None, None, both, made, out) is out
    for row in range(ROWS):
        close(out[row], expected(q, cache, row, sm_scale=0.125, window=9)[0], 1e-5)
    assert not out[ROWS:].any() and list(made.figraph_plans.by_window) == [9]
    common.max_query_len = 5
    prompts = builder.build(0, common)
    assert impl.forward(None, q, None, None, both, prompts, out) == "FlashAttention's"


CASES = [
    norms_are_right_and_add_in_place,
    the_sketch_for_vllm_attends_where_it_is_to,
    what_readme_shows_is_what_happens,
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
    a_step_is_its_layers_for_every_length,
    a_step_may_count_its_own_lengths,
    positions_may_be_given_apart,
    a_step_refuses_what_it_cannot_hold,
]
if __name__ == "__main__":
    run(CASES)
