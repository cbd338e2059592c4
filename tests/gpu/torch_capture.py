#!/usr/bin/env python3
# torch_capture.py: segments of a step between torch's matrix products, all in one torch.cuda.graph
# and under one staged plan, replayed for growing lengths and compared with float64.
#
# A small decoder of two layers: torch does the products and the residual, the library all from RoPE
# to attention (attn.N) and the activation (act.N). It calls the C functions by ctypes, as a serving
# loop in Python might. Nothing is skipped: without torch or a GPU it fails.
#
# Usage: tests/gpu/torch_capture.py [LIBRARY]     Exit: 0 all is right; 1 something is not

import ctypes
import os
import sys
import time

import torch

ROWS, KV_LIMIT, PAGE, LAYERS = 6, 256, 16, 2
HIDDEN, Q_HEADS, KV_HEADS, HEAD_DIM, FFN = 256, 8, 2, 64, 384
STEPS = 60
F16, DEVICE_CUDA, OK, INVALID = 2, 2, 0, 10
TOLERANCE = 0.01  # of the largest number of what is compared

i32, u32, i64, f32, size_t = (
    ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_float, ctypes.c_size_t)


class Rope(ctypes.Structure):
    _fields_ = [("interleaved", i32), ("rotary_dim", i32), ("theta", f32), ("scale", f32),
                ("llama3_factor", f32), ("llama3_low", f32), ("llama3_high", f32),
                ("llama3_context", i32)]


class Spec(ctypes.Structure):
    _fields_ = [("size", u32), ("dtype", i32), ("kv_dtype", i32), ("layers", i32),
                ("q_heads", i32), ("kv_heads", i32), ("head_dim", i32), ("ffn_width", i32),
                ("activation", i32), ("page_size", i32), ("kv_layout", i32), ("kv_scales", i32),
                ("batch_limit", i32), ("kv_limit", i32), ("sequence_limit", i32),
                ("row_tokens", i32), ("soft_cap", f32), ("window", i32),
                ("window_layers", ctypes.c_uint64 * 8), ("sm_scale", f32),
                ("qk_norm_epsilon", f32), ("rope", Rope)]


class Bucket(ctypes.Structure):
    _fields_ = [("batch", i32), ("kv", i32)]


class Traits(ctypes.Structure):
    _fields_ = [("size", u32), ("name", ctypes.c_char * 16), ("compute_capability", i32),
                ("sm_count", i32), ("shared_bytes", i32)]


class LowerOptions(ctypes.Structure):
    _fields_ = [("size", u32), ("traits", ctypes.POINTER(Traits)),
                ("buckets", ctypes.POINTER(Bucket)), ("bucket_count", i32),
                ("deterministic", i32)]


class TestOptions(ctypes.Structure):
    _fields_ = [("size", u32), ("plain_kernels", i32), ("fail_at_call", i64),
                ("shuffle", ctypes.c_uint64)]


class EngineOptions(ctypes.Structure):
    _fields_ = [("size", u32), ("device", i32), ("slots", i32), ("busy_us", i32),
                ("ordinal", i32), ("stream", ctypes.POINTER(ctypes.c_void_p)),
                ("check_plans", i32), ("numa_node", i32), ("test", ctypes.POINTER(TestOptions))]


class Binding(ctypes.Structure):
    _fields_ = [("size", u32), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p),
                ("bytes", size_t), ("strides", i64 * 4)]


class Pages(ctypes.Structure):
    _fields_ = [("size", u32), ("sequence", i32), ("first", i32), ("count", i32),
                ("pages", ctypes.POINTER(i32)), ("table", ctypes.c_char_p)]


class Step(ctypes.Structure):
    _fields_ = [("size", u32), ("rows", i32), ("kv_lengths", ctypes.POINTER(i32)),
                ("positions", ctypes.POINTER(i32)), ("sequences", ctypes.POINTER(i32)),
                ("token_limit", i64), ("bucket", i32)]


class Append(ctypes.Structure):
    _fields_ = [("size", u32), ("segment", ctypes.c_char_p), ("bucket", i32),
                ("stream", ctypes.POINTER(ctypes.c_void_p))]


def current_stream():
    return ctypes.pointer(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))


def made(kind, **fields):
    return kind(size=ctypes.sizeof(kind), **fields)


def open_library(path):
    library = ctypes.CDLL(path)
    library.fig_message.restype = ctypes.c_char_p
    for name in ("fig_program_decode_step", "fig_program_destroy", "fig_graphs_destroy",
                 "fig_engine_close"):
        getattr(library, name).restype = None
    return library


class Figraph:
    """One engine on the GPU, for the standard step."""

    def __init__(self, path):
        self.library = open_library(path)
        program, self.graphs, self.engine = (ctypes.c_void_p() for _ in range(3))
        spec = made(Spec, dtype=F16, layers=LAYERS, q_heads=Q_HEADS, kv_heads=KV_HEADS,
                    head_dim=HEAD_DIM, ffn_width=FFN, page_size=PAGE, batch_limit=ROWS,
                    kv_limit=KV_LIMIT)
        self.must("fig_program_create", ctypes.byref(program), ctypes.byref(spec))
        self.library.fig_program_decode_step(program)
        self.must("fig_program_finish", program)
        traits = made(Traits)
        self.must("fig_traits_named", ctypes.byref(traits), b"h200")
        buckets = (Bucket * 1)(Bucket(ROWS, KV_LIMIT))
        options = made(LowerOptions, traits=ctypes.pointer(traits), buckets=buckets,
                       bucket_count=1)
        self.must("fig_graphs_lower", ctypes.byref(self.graphs), program, ctypes.byref(options))
        self.library.fig_program_destroy(program)
        plain = int(os.environ.get("FIG_IMAGE") == "plain")
        options = made(EngineOptions, device=DEVICE_CUDA, stream=current_stream(),
                       test=ctypes.pointer(made(TestOptions, plain_kernels=plain)))
        self.must("fig_engine_open", ctypes.byref(self.engine), self.graphs,
                  ctypes.byref(options))

    def call(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def message(self):
        return self.library.fig_message().decode()

    def must(self, name, *arguments):
        if self.call(name, *arguments) != OK:
            raise RuntimeError(f"{name}: {self.message()}")

    def bind(self, name, tensor):
        """Any strides, so that q, k and v may be views of one tensor. The status."""
        strides = (i64 * 4)(*tensor.stride())
        reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) + 1
        binding = made(Binding, name=name.encode(), address=tensor.data_ptr(),
                       bytes=reach * tensor.element_size(), strides=strides)
        return self.call("fig_engine_bind", self.engine, ctypes.byref(binding))

    def must_bind(self, name, tensor):
        if self.bind(name, tensor) != OK:
            raise RuntimeError(self.message())

    def set_pages(self, sequence, numbers):
        pages = made(Pages, sequence=sequence, count=len(numbers),
                     pages=(i32 * len(numbers))(*numbers))
        self.must("fig_engine_set_pages", self.engine, ctypes.byref(pages))

    def stage(self, lengths):
        step = made(Step, rows=len(lengths), kv_lengths=(i32 * len(lengths))(*lengths), bucket=1)
        self.must("fig_engine_stage", self.engine, ctypes.byref(step))

    def append(self, segment):
        given = made(Append, segment=segment.encode(), bucket=1, stream=current_stream())
        self.must("fig_engine_append", self.engine, ctypes.byref(given))

    def close(self):
        self.library.fig_engine_close(self.engine)
        self.library.fig_graphs_destroy(self.graphs)


class Decoder:
    """What torch holds: weights, the tensors that both sides see, and the caches."""

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
        """One step on torch's current stream, whether it captures or not."""
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
    """RoPE of [heads][head_dim]: halves i and i + d / 2 turn together."""
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
    """Rows that begin one after the other, so that their lengths differ, and grow."""

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
    assert fig.bind("out.0", out) == INVALID
    assert fig.message() == "tensor out.0: a graph of the caller's holds it", fig.message()
    graph.reset()
    for _ in range(5000):  # the driver lets go on a thread of its own
        if fig.bind("out.0", out) == OK:
            return
        time.sleep(0.001)
    raise RuntimeError(fig.message())


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../build/libfigraph.so")
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    stream = torch.cuda.Stream()  # torch's and the engine's: one order for all
    with torch.cuda.stream(stream):
        fig, decoder = Figraph(path), Decoder()
        decoder.bind(fig)
        torch.cuda.synchronize()
        steps = Steps(fig, decoder)
        for _ in range(3):  # torch wants its libraries warm before a capture
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
