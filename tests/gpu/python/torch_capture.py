# !/usr/bin/env python3 torch_capture.py: puts segments of a step between torch's matrix products,
# all in one torch.cuda.graph. It replays the graph with growing lengths, each time with one staged
# plan, and compares the results with float64.
#
# The model is a small decoder of two layers. torch computes the products and the residual; the
# library does the activation (segment act.N) and everything from RoPE to attention (segment
# attn.N). It calls the C functions by ctypes, as a serving loop in Python might. Nothing is
# skipped: without torch or a GPU it fails.
#
# Usage: tests/gpu/python/torch_capture.py [LIBRARY]     Exit: 0 if all is right, else 1

import ctypes
import os
import sys
import time
import types

import torch

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools"))
import binding  # noqa: E402

ROWS, KV_LIMIT, PAGE, LAYERS = 6, 256, 16, 2
HIDDEN, Q_HEADS, KV_HEADS, HEAD_DIM, FFN = 256, 8, 2, 64, 384
STEPS = 60
TOLERANCE = 0.01  # relative to the largest number that is compared

i32, i64 = ctypes.c_int32, ctypes.c_int64


def declared():
    """Returns a module with the declarations of the public headers."""
    paths = [os.path.join(ROOT, "include", name) for name in ("figraph.h", "figraph_unstable.h")]
    module = types.ModuleType("figraph")
    exec(binding.write_module(binding.parse(paths)), module.__dict__)
    return module


figraph = declared()
made = figraph.options


def current_stream():
    return ctypes.pointer(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))


class Figraph:
    """An engine on the GPU that runs the standard step."""

    def __init__(self, path):
        self.library = figraph.load(path)
        program = ctypes.POINTER(figraph.fig_program)()
        self.graphs = ctypes.POINTER(figraph.fig_graphs)()
        self.engine = ctypes.POINTER(figraph.fig_engine)()
        spec = made(figraph.fig_spec, dtype=figraph.FIG_F16, layers=LAYERS, q_heads=Q_HEADS,
                    kv_heads=KV_HEADS, head_dim=HEAD_DIM, ffn_width=FFN, page_size=PAGE,
                    batch_limit=ROWS, kv_limit=KV_LIMIT)
        self.must("fig_program_create", program, spec)
        self.library.fig_program_decode_step(program)
        self.must("fig_program_finish", program)
        traits = made(figraph.fig_traits)
        self.must("fig_traits_named", traits, b"h200")
        buckets = (figraph.fig_bucket * 1)(figraph.fig_bucket(ROWS, KV_LIMIT))
        options = made(figraph.fig_lower_options, traits=ctypes.pointer(traits), buckets=buckets,
                       bucket_count=1)
        self.must("fig_graphs_lower", self.graphs, program, options)
        self.library.fig_program_destroy(program)
        plain = int(os.environ.get("FIG_IMAGE") == "plain")
        test = made(figraph.fig_test_options, plain_kernels=plain)
        options = made(figraph.fig_engine_options, device=figraph.FIG_DEVICE_CUDA,
                       stream=current_stream(), test=ctypes.pointer(test))
        self.must("fig_engine_open", self.engine, self.graphs, options)

    def call(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def message(self):
        return self.library.fig_message().decode()

    def must(self, name, *arguments):
        if self.call(name, *arguments) != figraph.FIG_OK:
            raise RuntimeError(f"{name}: {self.message()}")

    def bind(self, name, tensor):
        """Binds a tensor with any strides, so that q, k and v may be views of one tensor. Returns
        the status."""
        strides = (i64 * 4)(*tensor.stride())
        reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) + 1
        given = made(figraph.fig_binding, name=name.encode(), address=tensor.data_ptr(),
                     bytes=reach * tensor.element_size(), strides=strides)
        return self.call("fig_engine_bind", self.engine, given)

    def must_bind(self, name, tensor):
        if self.bind(name, tensor) != figraph.FIG_OK:
            raise RuntimeError(self.message())

    def set_pages(self, sequence, numbers):
        pages = made(figraph.fig_pages, sequence=sequence, count=len(numbers),
                     pages=(i32 * len(numbers))(*numbers))
        self.must("fig_engine_set_pages", self.engine, pages)

    def stage(self, lengths):
        step = made(figraph.fig_step, rows=len(lengths), bucket=1,
                    kv_lengths=(i32 * len(lengths))(*lengths))
        self.must("fig_engine_stage", self.engine, step)

    def append(self, segment):
        given = made(figraph.fig_append, segment=segment.encode(), bucket=1,
                     stream=current_stream())
        self.must("fig_engine_append", self.engine, given)

    def close(self):
        self.library.fig_engine_close(self.engine)
        self.library.fig_graphs_destroy(self.graphs)


class Decoder:
    """Torch's part: weights, the tensors that both sides use, and the caches."""

    def __init__(self):
        def weight(rows, columns):
            return (torch.randn(rows, columns, device="cuda") / rows ** 0.5).half()

        def zeros(*shape):
            return torch.zeros(*shape, device="cuda", dtype=torch.half)

        heads = Q_HEADS + 2 * KV_HEADS
        pages = ROWS * KV_LIMIT // PAGE
        self.x = zeros(ROWS, HIDDEN)
        self.h = zeros(ROWS, HIDDEN)
        self.layers = [{
            "wqkv": weight(HIDDEN, heads * HEAD_DIM), "wo": weight(Q_HEADS * HEAD_DIM, HIDDEN),
            "wgu": weight(HIDDEN, 2 * FFN), "wd": weight(FFN, HIDDEN),
            "qkv": zeros(ROWS, heads, HEAD_DIM), "out": zeros(ROWS, Q_HEADS, HEAD_DIM),
            "gate_up": zeros(ROWS, 2 * FFN), "act": zeros(ROWS, FFN),
            "k_cache": zeros(pages, PAGE, KV_HEADS, HEAD_DIM),
            "v_cache": zeros(pages, PAGE, KV_HEADS, HEAD_DIM)} for _ in range(LAYERS)]

    def bind(self, fig):
        order = torch.randperm(ROWS * KV_LIMIT // PAGE).tolist()
        for n, layer in enumerate(self.layers):
            fig.must_bind(f"q.{n}", layer["qkv"][:, :Q_HEADS])
            fig.must_bind(f"k.{n}", layer["qkv"][:, Q_HEADS:Q_HEADS + KV_HEADS])
            fig.must_bind(f"v.{n}", layer["qkv"][:, Q_HEADS + KV_HEADS:])
            for name in ("out", "gate_up", "act", "k_cache", "v_cache"):
                fig.must_bind(f"{name}.{n}", layer[name])
        for row in range(ROWS):
            fig.set_pages(row, order[row * KV_LIMIT // PAGE:(row + 1) * KV_LIMIT // PAGE])

    def run(self, fig):
        """Runs one step on torch's current stream, whether it captures or not."""
        fig.append("fetch")
        self.h.copy_(self.x)
        for n, layer in enumerate(self.layers):
            torch.mm(self.h, layer["wqkv"], out=layer["qkv"].view(ROWS, -1))
            fig.append(f"attn.{n}")
            self.h += layer["out"].view(ROWS, -1) @ layer["wo"]
            torch.mm(self.h, layer["wgu"], out=layer["gate_up"])
            fig.append(f"act.{n}")
            self.h += layer["act"] @ layer["wd"]


def turn(heads, position):
    """Applies RoPE to [heads][head_dim]: pairs of elements i and i + d / 2."""
    half = HEAD_DIM // 2
    i = torch.arange(half, dtype=torch.double, device="cuda")
    angle = position * 10000.0 ** (-2 * i / HEAD_DIM)
    a, b = heads[:, :half], heads[:, half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), 1)


class Truth:
    """The same decoder in float64, with its own cache of every token."""

    def __init__(self, decoder):
        self.layers = [{name: layer[name].double() for name in ("wqkv", "wo", "wgu", "wd")}
                       for layer in decoder.layers]
        self.keys = [[[] for _ in range(ROWS)] for _ in range(LAYERS)]
        self.values = [[[] for _ in range(ROWS)] for _ in range(LAYERS)]

    def attend(self, n, row, q):
        keys = torch.stack(self.keys[n][row]).repeat_interleave(Q_HEADS // KV_HEADS, 1)
        values = torch.stack(self.values[n][row]).repeat_interleave(Q_HEADS // KV_HEADS, 1)
        weights = torch.softmax(torch.einsum("hd,thd->ht", q, keys) / HEAD_DIM ** 0.5, 1)
        return torch.einsum("ht,thd->hd", weights, values)

    def row(self, x, row, length):
        h = x.double()
        for n, layer in enumerate(self.layers):
            qkv = (h @ layer["wqkv"]).view(-1, HEAD_DIM)
            q = turn(qkv[:Q_HEADS], length - 1)
            self.keys[n][row].append(turn(qkv[Q_HEADS:Q_HEADS + KV_HEADS], length - 1))
            self.values[n][row].append(qkv[Q_HEADS + KV_HEADS:])
            h = h + self.attend(n, row, q).reshape(-1) @ layer["wo"]
            gate_up = h @ layer["wgu"]
            act = torch.nn.functional.silu(gate_up[:FFN]) * gate_up[FFN:]
            h = h + act @ layer["wd"]
        return h


class Steps:
    """Runs steps in which rows begin at different times, so that their lengths differ. Lengths
    grow."""

    def __init__(self, fig, decoder):
        self.fig, self.decoder, self.truth = fig, decoder, Truth(decoder)
        self.count, self.worst = 0, 0.0

    def next(self, enqueue):
        lengths = [max(0, self.count + 1 - 3 * row) for row in range(ROWS)]
        self.count += 1
        self.decoder.x.copy_(torch.randn(ROWS, HIDDEN, device="cuda"))
        self.fig.stage(lengths)
        enqueue()
        torch.cuda.synchronize()
        for row, length in enumerate(lengths):
            if length == 0:
                continue
            want = self.truth.row(self.decoder.x[row], row, length)
            error = (self.decoder.h[row].double() - want).abs().max() / want.abs().max()
            self.worst = max(self.worst, error.item())
            if not error.item() <= TOLERANCE:
                raise RuntimeError(f"step {self.count}, row {row} of length {length}: "
                                   f"off by {error.item():.4f} of the largest")


def check_bind_is_refused_until_the_graph_is_gone(fig, decoder, graph):
    out = decoder.layers[0]["out"]
    assert fig.bind("out.0", out) == figraph.FIG_ORDER
    assert fig.message() == "tensor out.0: a graph of yours uses it", fig.message()
    graph.reset()
    for _ in range(5000):  # the driver releases the graph on a thread of its own
        if fig.bind("out.0", out) == figraph.FIG_OK:
            return
        time.sleep(0.001)
    raise RuntimeError(fig.message())


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../../build/libfigraph.so")
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    # torch and the engine share it, so that their work is in one order
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        fig, decoder = Figraph(path), Decoder()
        decoder.bind(fig)
        torch.cuda.synchronize()
        steps = Steps(fig, decoder)
        for _ in range(3):  # torch must have initialized its libraries before a capture
            steps.next(lambda: decoder.run(fig))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        decoder.run(fig)
    with torch.cuda.stream(stream):
        for _ in range(STEPS):
            steps.next(graph.replay)
    check_bind_is_refused_until_the_graph_is_gone(fig, decoder, graph)
    fig.close()
    print(f"torch {torch.__version__}: {steps.count} steps, worst error {steps.worst:.5f} "
          f"of {TOLERANCE}")


if __name__ == "__main__":
    main()
