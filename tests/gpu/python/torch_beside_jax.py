"""torch_beside_jax.py: tests torch's CUDA tensors through TVM FFI, and JAX, in one process.

    tests/gpu/torch_beside_jax.py

Needs torch, jax, tvm_ffi and figraph. TVM FFI's environment stream is set to torch's. A call that
torch captured is replayed with other lengths in the same tensors. A call that is refused during a
capture must harm neither the process nor the next capture.
"""

import math
import os
import resource
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../tools/jax"))

import jax
import jax.numpy as jnp
import numpy as np
import torch
import tvm_ffi
import tutorial
from figraph import ffi

module = tvm_ffi.load_module(ffi.PATH)
ROWS, PAGES, PAGE, WIDTH, Q_HEADS, KV_HEADS, DIM = 4, 64, 16, 16, 16, 4, 64
_, scratch = ffi.scratch_of("f16", "f16", Q_HEADS, KV_HEADS, DIM, ROWS, PAGE * WIDTH, PAGE)


def make_batch():
    torch.manual_seed(3)
    normal = lambda *shape: torch.randn(*shape, dtype=torch.float16, device="cuda")
    return dict(
        q=normal(ROWS, Q_HEADS, DIM),
        k=normal(PAGES, PAGE, KV_HEADS, DIM),
        v=normal(PAGES, PAGE, KV_HEADS, DIM),
        table=torch.randperm(PAGES, device="cuda").int().reshape(ROWS, WIDTH),
        lengths=torch.tensor([1, 77, 256, 0], dtype=torch.int32, device="cuda"),
        tmp=torch.empty(scratch, dtype=torch.uint8, device="cuda"),
        out=torch.empty(ROWS, Q_HEADS, DIM, dtype=torch.float16, device="cuda"),
    )


def decode(b):
    rest = None, 0, -1, None, 0.0, DIM**-0.5
    arrays = b["q"], b["k"], b["v"], b["table"], b["lengths"], b["tmp"], b["out"]
    module.batch_decode(*arrays, *rest)
    return b["out"]


def check(b, out):
    out = out.float().cpu().numpy()
    for r, length in enumerate(b["lengths"].cpu().numpy()):
        k, v = (b[n][b["table"][r].long()].reshape(-1, KV_HEADS, DIM)[:length] for n in "kv")
        if not 0 < length <= PAGE * WIDTH:
            assert (out[r] == 0).all()
            continue
        q, k, v = (x.float().cpu().numpy() for x in (b["q"][r], k, v))
        k, v = (np.repeat(x, Q_HEADS // KV_HEADS, axis=1) for x in (k, v))
        logits = np.einsum("hd,thd->ht", q, k) / math.sqrt(DIM)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        expected = np.einsum("ht,thd->hd", weights / weights.sum(axis=1, keepdims=True), v)
        np.testing.assert_allclose(out[r], expected, rtol=1e-2, atol=1e-2)


def run_on_streams(b):
    check(b, decode(b))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = decode(b).clone()
    stream.synchronize()
    check(b, out)
    print("eager, on two streams: right")


def replay_a_capture(b):
    graph = torch.cuda.CUDAGraph()
    before = ffi.counts()
    with torch.cuda.graph(graph):
        decode(b)
    assert ffi.counts().captured == before.captured + 1
    for seed in range(200):
        torch.manual_seed(seed)
        lengths = torch.randint(-1, PAGE * WIDTH + 3, (ROWS,), dtype=torch.int32)
        b["lengths"].copy_(lengths)
        graph.replay()
        replayed = b["out"].clone()
        b["out"].fill_(7)
        assert torch.equal(replayed, decode(b)), seed
        if seed % 40 == 0:
            check(b, replayed)
    print("200 replays of one capture, at other lengths: the bits of eager calls")


def refuse_under_capture(b):
    graph = torch.cuda.CUDAGraph()
    small = dict(b, tmp=b["tmp"][:16])
    with torch.cuda.graph(graph):
        b["out"].fill_(1)
        for wrong in (small, dict(b, q=b["q"].float()), dict(b, lengths=b["lengths"].long())):
            try:
                decode(wrong)
            except (ValueError, TypeError) as error:
                print(f"under capture: {type(error).__name__}: {error}")
                continue
            raise AssertionError("taken")
        decode(b)
    graph.replay()
    check(b, b["out"])


def first_call_under_capture():
    """The call's kernels are loaded while torch captures; loading must not disturb the capture."""
    x = torch.randn(3, 2 * 1234, dtype=torch.bfloat16, device="cuda")
    out = torch.empty(3, 1234, dtype=torch.bfloat16, device="cuda")
    graph, before = torch.cuda.CUDAGraph(), ffi.counts()
    with torch.cuda.graph(graph):
        module.silu_and_mul(out, x, False)
    after = ffi.counts()
    assert after.missed == before.missed + 1 and after.captured == before.captured + 1
    graph.replay()
    gate, up = x.float().chunk(2, dim=-1)
    expected = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(out.float(), expected, rtol=2e-2, atol=2e-2)
    print("a first call under capture: right")


def alternate_with_jax(b):
    way = tutorial.Xla("gpu")
    x = tutorial.normal(0, (32, 512))
    activate = jax.jit(way.silu_and_mul)
    for _ in range(20):
        out, got = decode(b), activate(x)
    check(b, out)
    tutorial.compare("silu_and_mul beside torch", got, tutorial.plain_silu_and_mul(x))


def call_many_times(b, count):
    x = torch.randn(8, 512, dtype=torch.float16, device="cuda")
    outs = [torch.empty(8, 256, dtype=torch.float16, device="cuda") for _ in range(7)]
    for i in range(1000):
        module.silu_and_mul(outs[i % 7], x, False)
    torch.cuda.synchronize()
    before, memory = ffi.counts(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(count):
        module.silu_and_mul(outs[i % 7], x, False)
    torch.cuda.synchronize()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    after = ffi.counts()
    assert after.missed == before.missed and after.eager == before.eager + count
    assert grown < 1024, f"{grown} KiB"
    print(f"{count} eager calls: {grown} KiB more, and no runner")


def main():
    batch = make_batch()
    run_on_streams(batch)
    replay_a_capture(batch)
    refuse_under_capture(batch)
    first_call_under_capture()
    alternate_with_jax(batch)
    call_many_times(batch, 300000)
    print("all right")


if __name__ == "__main__":
    main()
