"""torch_step.py: tests figraph.torch on a GPU: in torch's captures, on its streams, and compiled by
inductor.

    tests/gpu/torch_step.py

It also runs all of python_torch.py, python_torch_servers.py, python_torch_packed.py,
python_torch_scores.py, python_torch_mistakes.py, python_torch_step.py, python_torch_latent.py and
python_torch_latent_step.py of tests/python on the GPU. Run where torch and figraph can be imported.
"""

import ctypes
import os
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../python"), os.path.join(HERE, "../../python/latents")]
sys.argv[1:] = ["cuda"]
import figraph  # noqa: E402
import figraph.torch as ft  # noqa: E402
import python_torch as operators  # noqa: E402
import python_torch_latent as latents  # noqa: E402
import python_torch_latent_step as latent_steps  # noqa: E402
import python_torch_mistakes as mistakes  # noqa: E402
import python_torch_packed as unequal  # noqa: E402
import python_torch_scores as scores  # noqa: E402
import python_torch_servers as servers  # noqa: E402
import python_torch_step as steps  # noqa: E402
import torch  # noqa: E402
from figraph import ffi  # noqa: E402
from python_torch import (  # noqa: E402
    DIM, KV, LENGTHS, Q, ROWS, TOKENS, copy_of, dense, paged)
from python_torch_step import Loop  # noqa: E402
from sentences import refused, run  # noqa: E402

SHAPES = [  # q heads, kv heads, head_dim, dtype
    (8, 4, 64, torch.float32),
    (32, 8, 128, torch.bfloat16),
    (16, 4, 64, torch.float16),
]


class Step:
    """Runs two layers with one plan through the operators."""

    def __init__(self, kind, shape):
        q, kv, dim, self.dtype = shape
        self.heads = (q, kv, kv)
        self.qkv = torch.randn(ROWS, sum(self.heads), dim, device="cuda").to(self.dtype)
        self.gate_up = torch.randn(ROWS, 512, device="cuda").to(self.dtype)
        self.lengths = torch.zeros(ROWS, dtype=torch.int32, device="cuda")
        rows, page = (ROWS, TOKENS) if kind == "dense" else (3 * ROWS, 8)
        table = None if kind == "dense" else paged().page_table
        make = lambda: torch.randn(rows, page, kv, dim, device="cuda").to(self.dtype)  # noqa: E731
        self.caches = [ft.Cache(make(), make(), table) for _ in range(2)]

    def __call__(self):
        plan = ft.plan(self.lengths, dtype=self.dtype, q_heads=self.heads[0], cache=self.caches[0])
        outs = [ft.silu_and_mul(self.gate_up)]
        for cache in self.caches:
            q, k, v = self.qkv.clone().split(self.heads, 1)
            outs.append(ft.decode_attention(q, k, v, cache, self.lengths, plan=plan))
        q, k, v = self.qkv.split(self.heads, 1)
        q, k = ft.apply_rope(q, k, self.lengths - 1)
        ft.append_kv(k, v, self.caches[0], self.lengths)
        return outs + [ft.attention(q, self.caches[0], self.lengths)]


def captured_steps_serve_every_length():
    for kind in ("dense", "paged"):
        for shape in SHAPES:
            step, graph = Step(kind, shape), torch.cuda.CUDAGraph()
            eager = Step(kind, shape)
            eager.qkv, eager.gate_up = step.qkv, step.gate_up
            eager.caches = [copy_of(cache) for cache in step.caches]
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                step()  # warm-up, with idle rows
            torch.cuda.synchronize()
            before = ffi.counts()
            with torch.cuda.graph(graph, stream=stream):
                outs = step()
            after = ffi.counts()
            assert after.captured - before.captured == 7 and after.eager == before.eager
            assert after.missed == before.missed
            for lengths in ([24, 1, 25], [7, 0, 3], [1, 2, 24]):
                for one in (step, eager):
                    one.lengths.copy_(torch.tensor(lengths))
                graph.replay()
                for got, wanted in zip(outs, eager()):
                    assert torch.equal(got, wanted), (kind, shape, lengths)
                for mine, theirs in zip(step.caches, eager.caches):
                    assert torch.equal(mine.k, theirs.k) and torch.equal(mine.v, theirs.v)


def one_graph_over_latents_serves_every_length():
    heads, rows = latents.HEADS, latents.ROWS
    for kind in (torch.bfloat16, torch.uint8):
        cache, weight = latents.paged(kind), torch.randn(512, device="cuda").bfloat16()
        q = torch.randn(rows, heads, 576, device="cuda").bfloat16()
        latent = torch.randn(rows, 576, device="cuda").bfloat16()
        out = q.new_zeros(rows, heads, 512)
        given, lengths = q.clone(), latents.SEEN.clone()

        def step(q, cache, lengths, out):
            plan = ft.plan(lengths, dtype=q.dtype, q_heads=heads, cache=cache)
            ft.latent_decode(q, latent, cache, lengths, plan=plan, norm=weight, rope=latents.ROPE,
                             logits=latents.logits(), out=out)

        step(q, latents.copy_of(cache), lengths, out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(q, cache, lengths, out)
        for shift in (0, 3, 9):
            lengths.copy_(latents.SEEN - shift)
            q.copy_(given)
            twin, wanted = latents.copy_of(cache), torch.empty_like(out)
            graph.replay()
            step(given.clone(), twin, lengths, wanted)
            torch.testing.assert_close(out, wanted, rtol=2e-2, atol=2e-2)
            assert torch.equal(cache.latents, twin.latents)


def a_first_call_may_be_a_captured_one():
    """These kernels are not loaded yet, and loading them must not break a capture."""
    q = torch.randn(ROWS, 24, 96, device="cuda").half()
    cache = ft.Cache(*(torch.randn(ROWS, 40, 8, 96, device="cuda").half() for _ in "kv"))
    graph, made = torch.cuda.CUDAGraph(), ffi.counts().missed
    with torch.cuda.graph(graph):
        out = ft.attention(q, cache, LENGTHS)
    assert ffi.counts().missed == made + 1
    out.zero_()
    graph.replay()
    assert torch.equal(out, ft.attention(q, cache, LENGTHS)) and out.any()


def calls_go_to_torch_s_current_stream():
    """A call on a stream that is busy for long must not read its inputs before the stream's earlier
    work has ended."""
    x, slow = torch.zeros(4, 1 << 14, device="cuda"), torch.cuda.Stream()
    ft.silu_and_mul(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(slow):
        torch.cuda._sleep(100_000_000)
        x.fill_(2.0)
        out = ft.silu_and_mul(x)
        assert not slow.query()
    slow.synchronize()
    assert (out > 3).all()


def threads_may_call_at_once():
    x = torch.randn(64, 512, device="cuda")
    wanted, wrong = ft.silu_and_mul(x), []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(200):
                if not torch.equal(ft.silu_and_mul(x), wanted):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def compiled_steps_grow_their_caches():
    """Compiles in max-autotune mode; inductor's passes must notice that caches are written."""
    cache, qkv = dense(), torch.randn(ROWS, Q + 2 * KV, DIM, device="cuda")
    twin = copy_of(cache)

    def step(qkv, k_cache, v_cache, lengths):
        kept = ft.Cache(k_cache, v_cache)
        plan = ft.plan(lengths, dtype=qkv.dtype, q_heads=Q, cache=kept)
        q, k, v = (qkv * 1.0).split((Q, KV, KV), 1)
        return ft.decode_attention(q, k, v, kept, lengths, plan=plan) + 1

    compiled = torch.compile(step, fullgraph=True, mode="max-autotune-no-cudagraphs")
    for length in range(1, 6):
        lengths = torch.full((ROWS,), length, dtype=torch.int32, device="cuda")
        got = compiled(qkv, twin.k, twin.v, lengths).clone()
        torch.testing.assert_close(got, step(qkv, cache.k, cache.v, lengths), rtol=0, atol=1e-6)
        assert torch.equal(cache.k, twin.k)


def tensors_on_another_device_are_refused():
    q, cache = torch.randn(ROWS, Q, DIM, device="cuda"), dense()
    refused("lengths is on cpu, q is on cuda:0",
            lambda: ft.attention(q, cache, LENGTHS.cpu()), (ValueError,))
    loop = Loop([dense() for _ in range(2)])
    refused("tensor gate_up.0 is not on the device of the others",
            lambda: loop.step.act(0, loop.gate_up.cpu()), (ValueError,))
    if torch.cuda.device_count() > 1:
        moved = [x.to("cuda:1") for x in (q, cache.k, cache.v, LENGTHS)]
        out = ft.attention(moved[0], ft.Cache(*moved[1:3]), moved[3])
        torch.testing.assert_close(out.to("cuda:0"), ft.attention(q, cache, LENGTHS))
        refused("tensor gate_up.0 is not on the device of the others",
                lambda: loop.step.act(0, loop.gate_up.to("cuda:1")), (ValueError,))


def nodes_of(call):
    """Returns the number of nodes of a graph into which the call is captured."""
    graph, count = torch.cuda.CUDAGraph(keep_graph=True), ctypes.c_size_t()
    with torch.cuda.graph(graph):
        call()
    raw = ctypes.c_void_p(graph.raw_cuda_graph())
    assert ctypes.CDLL("libcuda.so.1").cuGraphGetNodes(raw, None, ctypes.byref(count)) == 0
    return count.value


def without_rope_a_layer_is_one_launch():
    """Uses the page layout of servers, and rows of one new token and of several. The single launch
    must give the same results as an append and an attention. A single row is read by clusters: in
    one round, or in two if it has more than half of the 4096 tokens that its pages hold."""
    for kv_dtype, rows, tokens, length in (
        (None, 8, 1, 0), (None, 8, 2, 0), ("fp8", 8, 1, 0), (None, 1, 1, 7), ("fp8", 64, 2, 0),
        (None, 1, 1, 2016), (None, 1, 1, 2049), (None, 1, 1, 3100), (None, 1, 1, 4096),
        ("fp8", 1, 1, 2016), ("fp8", 1, 1, 2049), ("fp8", 1, 1, 4096),
    ):
        each = 256 if length > 7 else 64
        dtype = torch.uint8 if kv_dtype else torch.bfloat16
        made = torch.randn(rows * each, 16, 8, 256, device="cuda")
        pages = made.to(torch.float8_e4m3fn).view(torch.uint8) if kv_dtype else made.to(dtype)
        table = torch.randperm(rows * each, device="cuda").to(torch.int32).view(rows, each)
        scale = torch.full((), 0.5, device="cuda") if kv_dtype else None
        lengths = torch.randint(tokens, 1025, (rows,), device="cuda", dtype=torch.int32)
        lengths[-1] = length
        qkv = torch.randn(rows, tokens, 48, 128, device="cuda").bfloat16()
        if tokens == 1:
            qkv = qkv[:, 0]
        q, k, v = qkv.split((32, 8, 8), -2)
        caches = [ft.Cache(*one.split(128, -1), table, scale, scale)
                  for one in (pages, pages.clone())]
        said = dict(kv_dtype=kv_dtype)
        plan = ft.plan(lengths, dtype="bf16", q_heads=32, cache=caches[0], row_tokens=tokens,
                       **said)
        out = torch.empty_like(q).contiguous()
        whole = lambda cache: ft.decode_attention(  # noqa: E731
            q, k, v, cache, lengths, rope=None, plan=plan, out=out, **said)
        before = qkv.clone()
        whole(caches[0])
        ft.append_kv(k, v, caches[1], lengths, plan=plan, **said)
        parts = ft.attention(q, caches[1], lengths, plan=plan, **said)
        torch.cuda.synchronize()
        assert torch.equal(out, parts), (kv_dtype, rows, tokens, length)
        assert torch.equal(caches[0].k, caches[1].k) and torch.equal(caches[0].v, caches[1].v)
        assert torch.equal(qkv, before)
        assert nodes_of(lambda: whole(caches[0])) == 1, (kv_dtype, rows, tokens)
        at = ft.plan(lengths, dtype="bf16", q_heads=32, cache=caches[0], row_tokens=tokens,
                     positions=lengths + 5, **said)
        turned = lambda: ft.decode_attention(  # noqa: E731
            q.clone(), k.clone(), v, caches[0], lengths, plan=at, out=out, **said)
        assert nodes_of(turned) == 3, (kv_dtype, rows, tokens)  # two of them are copies


def one_graph_serves_every_mix_of_drafts():
    """Rows of 0 to 8 new tokens on tensor cores, over pages as servers lay them out. Each token is
    compared with attention in which it is a row of its own, over the cache that the graph grew."""
    rows, most, page, pages = 12, 8, 16, 40
    generator = torch.Generator().manual_seed(9)
    for dtype, kv_dtype, (q_heads, kv_heads, dim) in (
        (torch.bfloat16, None, (32, 8, 128)), (torch.float16, None, (8, 8, 64)),
        (torch.bfloat16, "fp8", (16, 4, 128)), (torch.bfloat16, None, (16, 1, 256)),
        (torch.float32, None, (8, 4, 64)),
    ):
        made = torch.randn(rows * pages, page, kv_heads, 2 * dim, device="cuda")
        kept = made.to(torch.float8_e4m3fn).view(torch.uint8) if kv_dtype else made.to(dtype)
        table = torch.randperm(rows * pages, device="cuda").to(torch.int32).view(rows, pages)
        scale = torch.full((), 0.5, device="cuda") if kv_dtype else None
        cache = ft.Cache(*kept.split(dim, -1), table, scale, scale)
        tokens = rows * most // 2
        qkv = torch.randn(tokens, q_heads + 2 * kv_heads, dim, device="cuda").to(dtype)
        q, k, v = qkv.split((q_heads, kv_heads, kv_heads), 1)
        lengths = torch.zeros(rows, dtype=torch.int32, device="cuda")
        starts, out = lengths.new_zeros(rows + 1), torch.zeros_like(q.contiguous())
        given = dict(query_start_loc=starts, row_tokens=most, kv_dtype=kv_dtype)

        def step():
            plan = ft.plan(lengths, dtype=dtype, q_heads=q_heads, cache=cache, tokens=tokens,
                           **given)
            return ft.decode_attention(q, k, v, cache, lengths, rope=None, plan=plan, out=out,
                                       with_lse=True, **given)

        graph = torch.cuda.CUDAGraph()
        step()
        with torch.cuda.graph(graph):
            lse = step()[1]
        for n in range(6):
            counts = torch.randint(0, (1, 2, 4, 9, 9, 9)[n] + 1, (rows,), generator=generator)
            counts.clamp_(max=most)
            while counts.sum() > tokens:
                counts[counts.argmax()] = 0
            own = torch.randint(most, pages * page + 1, (rows,), generator=generator)
            lengths.copy_(own)
            starts.copy_(torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0))))
            graph.replay()
            torch.cuda.synchronize()
            of = torch.repeat_interleave(torch.arange(rows), counts)
            if len(of) == 0:
                continue
            place = torch.arange(len(of)) - starts.cpu().long()[of]
            seen = (own[of] - counts[of] + place + 1).int().cuda()
            wanted, sums = ft.attention(q[: len(of)], cache._replace(page_table=table[of.cuda()]),
                                        seen, kv_dtype=kv_dtype, with_lse=True)
            tolerance = 1e-5 if dtype == torch.float32 else 2e-2
            torch.testing.assert_close(out[: len(of)], wanted, rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(lse[: len(of)], sums, rtol=tolerance, atol=tolerance)


def a_step_of_a_model_is_captured_once():
    """Compares a model's step, whose rows grow on the device, with an engine that replays the same
    step."""
    spec = figraph.spec("llama-3.1-8b", layers=2, kv_limit=64, batch_limit=ROWS, dtype="f16")
    shape = (ROWS * 4, 16, spec.kv_heads, spec.head_dim)
    table = torch.randperm(ROWS * 4, device="cuda").to(torch.int32).view(ROWS, 4)
    caches = [ft.Cache(*(torch.randn(shape, device="cuda").half() for _ in "kv"), table)
              for _ in range(2)]
    twins = [copy_of(cache) for cache in caches]
    heads = spec.q_heads + 2 * spec.kv_heads
    qkv = torch.randn(ROWS, heads, spec.head_dim, device="cuda").half()
    step = ft.DecodeStep(spec, caches, rows=ROWS)
    outs = [torch.zeros(ROWS, spec.q_heads, spec.head_dim, device="cuda").half() for _ in "01"]

    def parts():
        return qkv.clone().split((spec.q_heads, spec.kv_heads, spec.kv_heads), 1)

    def loop():
        step.plan()
        for n, out in enumerate(outs):
            step.attend(n, *parts(), out)
        step.advance()

    step.capture(loop)
    graphs = figraph.capture(spec)
    bucket = graphs.plan([60, 21, 37]).bucket
    engine = figraph.Engine(graphs, device="cuda", stream=torch.cuda.Stream())
    given, theirs = [parts(), parts()], [torch.zeros_like(out) for out in outs]
    for n, cache in enumerate(twins):
        engine.bind_all({f"{name}.{n}": x for name, x in zip("qkv", given[n])})
        engine.bind_all({f"out.{n}": theirs[n], f"k_cache.{n}": cache.k, f"v_cache.{n}": cache.v})
        engine.bind_all({f"act.{n}": torch.zeros(ROWS, spec.ffn_width, device="cuda").half(),
                         f"gate_up.{n}": torch.zeros(ROWS, 2 * spec.ffn_width,
                                                     device="cuda").half()})
    for row in range(ROWS):
        engine.set_pages(row, table[row].cpu())
    for grown in range(20):
        step([40, 1, 17] if grown == 0 else None)
        for n, segment in enumerate(("attn.0", "attn.1")):
            for x, fresh in zip(given[n], parts()):
                x.copy_(fresh)
            engine.wait_for(torch.cuda.current_stream())
            if n == 0:
                engine.stage([40 + grown, 1 + grown, 17 + grown], bucket=bucket)
                engine.append("fetch", bucket=bucket)
            engine.append(segment, bucket=bucket)
            engine.signal(torch.cuda.current_stream())
        engine.wait(timeout=10)
        torch.cuda.synchronize()
        for mine, other in zip(outs, theirs):
            torch.testing.assert_close(mine, other, rtol=2e-3, atol=2e-3)
    engine.close()


run([
    *operators.CASES,
    *servers.CASES,
    *unequal.CASES,
    *latents.CASES,
    *latent_steps.CASES,
    *scores.CASES,
    *mistakes.CASES,
    *steps.CASES,
    without_rope_a_layer_is_one_launch,
    captured_steps_serve_every_length,
    one_graph_serves_every_mix_of_drafts,
    one_graph_over_latents_serves_every_length,
    a_first_call_may_be_a_captured_one,
    calls_go_to_torch_s_current_stream,
    threads_may_call_at_once,
    compiled_steps_grow_their_caches,
    tensors_on_another_device_are_refused,
    a_step_of_a_model_is_captured_once,
])
