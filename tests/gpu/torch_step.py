"""torch_step.py: figraph.torch on a GPU: in torch's captures, on its streams, under inductor.

    tests/gpu/torch_step.py

All of tests/python/python_torch.py as well, on the GPU. Run where torch and figraph can be
imported.
"""

import os
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../python"))
sys.argv[1:] = ["cuda"]
import figraph  # noqa: E402
import figraph.torch as ft  # noqa: E402
import python_torch as shared  # noqa: E402
import torch  # noqa: E402
from figraph import ffi  # noqa: E402
from python_torch import (  # noqa: E402
    DIM, KV, LENGTHS, Q, ROWS, TOKENS, Loop, copy_of, dense, paged)
from sentences import refused, run  # noqa: E402

SHAPES = [  # q heads, kv heads, head_dim, dtype
    (8, 4, 64, torch.float32),
    (32, 8, 128, torch.bfloat16),
    (16, 4, 64, torch.float16),
]


class Step:
    """Two layers under one plan, by the operators."""

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
                step()  # warm, with idle rows
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


def a_first_call_may_be_a_captured_one():
    """Nothing has loaded these kernels, nor may a capture be broken by it."""
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
    """What is behind a long wait of the stream's is not read before it."""
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
    """Under inductor with its longest list of passes, which sees that caches are written."""
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


def what_lies_elsewhere_is_refused():
    q, cache = torch.randn(ROWS, Q, DIM, device="cuda"), dense()
    refused("lengths is on the CPU, q is on GPU 0",
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


def a_step_of_a_model_is_captured_once():
    """A model's, whose rows grow on the device, beside an engine that replays the same."""
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
        step.lengths.add_(1)

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
    *shared.CASES,
    captured_steps_serve_every_length,
    a_first_call_may_be_a_captured_one,
    calls_go_to_torch_s_current_stream,
    threads_may_call_at_once,
    compiled_steps_grow_their_caches,
    what_lies_elsewhere_is_refused,
    a_step_of_a_model_is_captured_once,
])
