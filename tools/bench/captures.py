#!/usr/bin/env python3
# captures.py: times how long it takes to make a model's steps ready, from a file and by
# torch.cuda.graph, and how long a layer of such a step then takes.
#
# Usage: tools/bench/captures.py [--cells CELL,..] [--csv FILE]     --help
#
# The step is llama-3.1-8b's without its matrix products: activation, RoPE, append and attention of
# 32 layers. Torch captures FlashInfer's kernels for it, one graph for each cell. The time includes
# FlashInfer's plan, but not the loading of kernels: a layer runs once before. figraph loads a file,
# opens an engine, binds the caller's memory, and makes the execs of all its buckets. Each part runs
# in a process of its own. Invariant: the script reports the time of a layer only if the layer's
# numbers were compared; `figraph bench step` compares figraph's.
import argparse
import csv
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(HERE, "peers"), os.path.join(ROOT, "tools")]
import peer_cells  # noqa: E402

MODEL, LAYERS, Q_HEADS, KV_HEADS, HEAD_DIM, FFN = "llama-3.1-8b", 32, 32, 8, 128, 14336
PATHS = ("tc", "xqa", "ba")
ROUNDS, ROWS, PAGES = 3, 256, 32
COLUMNS = ("device", "chip", "what", "version", "cell", "layers", "graphs", "ms", "layer_us")
COLUMNS += ("note",)


# ---- Ours ----------------------------------------------------------------------------------------
def declared():
    """Returns a module with the declarations of the headers."""
    import binding

    paths = [os.path.join(ROOT, "include", name) for name in ("figraph.h", "figraph_unstable.h")]
    module = types.ModuleType("figraph")
    exec(binding.write_module(binding.parse(paths)), module.__dict__)
    return module


class Ours:
    """The library, called through ctypes."""

    def __init__(self, path, figraph):
        self.c = declared()
        self.library = self.c.load(path)
        self.file = tempfile.NamedTemporaryFile(suffix=".fig")
        words = [figraph, "capture", "--preset", MODEL, "-o", self.file.name]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    def must(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != self.c.FIG_OK:
            raise RuntimeError(f"{name}: {self.library.fig_message().decode()}")

    def tensors(self, graphs):
        """Yields (name, bytes) of each bound tensor: rows of the largest step, or a few pages."""
        c = self.c
        tensor, index = c.options(c.fig_tensor_info), 0
        while self.library.fig_graphs_tensor(graphs, index, tensor) == c.FIG_OK:
            index += 1
            if tensor.role == c.FIG_ROLE_BOUND:
                rows = ROWS if tensor.dims[0] == c.FIG_DIM_BATCH else PAGES
                size = 4 * rows * math.prod(tensor.dims[1 : tensor.rank])
                yield tensor.name, size

    def lend(self):
        """Allocates memory for all tensors before any timing, as a serving loop does."""
        import torch

        graphs = ctypes.POINTER(self.c.fig_graphs)()
        self.must("fig_graphs_load", graphs, self.file.name.encode())
        total = sum(size for _, size in self.tensors(graphs))
        self.library.fig_graphs_destroy(graphs)
        self.memory = torch.zeros(total, dtype=torch.uint8, device="cuda")

    def open(self):
        """Loads the file, opens an engine and binds all tensors; returns (graphs, engine)."""
        c, at = self.c, self.memory.data_ptr()
        graphs, engine = ctypes.POINTER(c.fig_graphs)(), ctypes.POINTER(c.fig_engine)()
        self.must("fig_graphs_load", graphs, self.file.name.encode())
        options = c.options(c.fig_engine_options, device=c.FIG_DEVICE_CUDA)
        self.must("fig_engine_open", engine, graphs, options)
        for name, size in self.tensors(graphs):
            given = c.options(c.fig_binding, name=name, address=at, bytes=size)
            self.must("fig_engine_bind", engine, given)
            at += size
        return graphs, engine

    def close(self, graphs, engine):
        self.library.fig_engine_close(engine)
        self.library.fig_graphs_destroy(graphs)

    def ready(self):
        """Returns the milliseconds from the file to the end of a step, the milliseconds that all
        execs then take, and the number of execs."""
        c, one = self.c, (ctypes.c_int32 * 1)(1)
        begin = time.perf_counter()
        graphs, engine = self.open()
        self.must("fig_engine_step", engine, c.options(c.fig_step, rows=1, kv_lengths=one))
        self.must("fig_engine_wait", engine, -1)
        stepped = time.perf_counter()
        self.must("fig_engine_prepare", engine, 0)
        done = time.perf_counter()
        stats = c.options(c.fig_engine_stats)
        self.library.fig_engine_read_stats(engine, stats)
        self.close(graphs, engine)
        return 1e3 * (stepped - begin), 1e3 * (done - stepped), stats.exec_count


def measure_ours(asked):
    """Yields rows, without the first round, which includes the start of the driver."""
    ours = Ours(asked.library, asked.figraph)
    ours.lend()
    rounds = [ours.ready() for _ in range(ROUNDS + 1)][1:]
    first, rest, counts = (list(column) for column in zip(*rounds))
    yield {"what": "figraph, file to first step", "graphs": 1, "ms": statistics.median(first)}
    yield {
        "what": "figraph, all its buckets",
        "graphs": counts[0],
        "ms": statistics.median(rest),
    }


def measure_our_layers(asked):
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        words = [asked.figraph, "bench", "step", "--csv", file.name]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        for row in csv.DictReader(open(file.name)):
            yield {"what": "figraph", "cell": row["cell"], "layer_us": float(row["layer_us"])}


# ---- FlashInfer's kernels, captured by torch -----------------------------------------------------
class Step:
    """A cell's tensors, and the calls that enqueue the step on them."""

    def __init__(self, cell, path, peer, layers=LAYERS):
        import peer_flashinfer
        import peer_rig
        import torch

        self.torch, self.cell, self.path, self.peer, self.layers = torch, cell, path, peer, layers
        self.paged = peer_flashinfer.Paged(cell, peer.pool, layers)
        dtype, device = peer_rig.DTYPES[cell.dtype], "cuda"
        make = lambda *shape: torch.randn(*shape, device=device).to(dtype)
        self.gate_up = [make(cell.rows, 2 * FFN) for _ in range(layers)]
        self.act = [torch.empty(cell.rows, FFN, dtype=dtype, device=device) for _ in range(layers)]
        self.q = [make(cell.rows, Q_HEADS * HEAD_DIM) for _ in range(layers)]
        self.k = [make(cell.rows, KV_HEADS * HEAD_DIM) for _ in range(layers)]
        self.v = [make(cell.rows, KV_HEADS, HEAD_DIM) for _ in range(layers)]
        self.out = [torch.empty_like(self.paged.outs[0]) for _ in range(layers)]
        self.positions = self.paged.lengths - 1
        self.row = torch.arange(cell.rows, dtype=torch.int32, device=device)
        waves = 500000.0 ** -(torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
        angles = torch.outer(torch.arange(max(cell.lengths), dtype=torch.float64), waves)
        self.angles = torch.cat([angles.cos(), angles.sin()], -1).float().to(device)
        self.begins, self.last = self.paged.begins.to(device), self.paged.last.to(device)
        self.graph, self.call = None, None

    def layer(self, n, call):
        import flashinfer

        cell, caches = self.cell, self.paged.caches(n, "NHD")
        flashinfer.silu_and_mul(self.gate_up[n], out=self.act[n], enable_pdl=True)
        q, k = flashinfer.apply_rope_with_cos_sin_cache(
            self.positions, self.q[n], self.k[n], HEAD_DIM, self.angles, True
        )
        k = k.view(cell.rows, KV_HEADS, HEAD_DIM)
        where = (self.row, self.positions, caches, self.paged.order, self.begins, self.last)
        flashinfer.append_paged_kv_cache(k, self.v[n], *where, "NHD")
        self.paged.q = q.view(cell.rows, Q_HEADS, HEAD_DIM)
        call(caches, self.out[n])

    def try_layer(self):
        """Runs one layer without a capture, which loads its kernels."""
        stream = self.torch.cuda.Stream()
        call = self.peer.open(self.path, "NHD", self.paged)
        self.torch.cuda.synchronize()
        with self.torch.cuda.stream(stream):
            self.layer(0, call)
        self.torch.cuda.synchronize()

    def capture(self):
        """Returns the milliseconds that the plan, the capture and its instantiation take."""
        torch = self.torch
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call = self.peer.open(self.path, "NHD", self.paged)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for n in range(self.layers):
                self.layer(n, call)
        torch.cuda.synchronize()
        self.graph, self.call = graph, call  # the graph reads buffers of `call`
        return 1e3 * (time.perf_counter() - begin)

    def check(self):
        """Returns the relative error of the last layer's last row."""
        import peer_rig

        torch, n, r = self.torch, self.layers - 1, self.cell.rows - 1
        self.graph.replay()
        torch.cuda.synchronize()
        half = HEAD_DIM // 2
        cos, sin = self.angles[self.cell.lengths[r] - 1].split(half)
        q = self.q[n][r].view(Q_HEADS, HEAD_DIM).float()
        turned = torch.cat(
            [q[:, :half] * cos - q[:, half:] * sin, q[:, half:] * cos + q[:, :half] * sin], -1
        ).to(self.q[n].dtype)
        self.paged.q = turned.expand(self.cell.rows, Q_HEADS, HEAD_DIM)
        return peer_rig.off_by(self.out[n][r], self.paged.due("NHD")(r, n))

    def layer_us(self):
        import peer_rig

        return peer_rig.time_graph(self.graph, self.layers)[0]


def measure_theirs(asked):
    import peer_flashinfer
    import peer_rig

    peer = peer_flashinfer.FlashInfer(PATHS)
    shape = {"heads": f"{Q_HEADS}/{KV_HEADS}", "head_dim": HEAD_DIM, "page": 16}
    for text in asked.cells.split(","):
        cell = peer_cells.Cell({**shape, "dtype": "bf16", "kv_dtype": "bf16", "cell": text})
        for path in PATHS:
            row = {"what": f"torch.cuda.graph, flashinfer {path}", "cell": text, "graphs": 1}
            row["version"] = peer.version
            try:
                step = Step(cell, path, peer)
                step.try_layer()
                times = [step.capture() for _ in range(ROUNDS)]
                error = step.check()
                if not error < peer_rig.TOLERANCE:
                    yield {**row, "note": f"wrong: off by {error:.2e}"}
                    continue
                us = step.layer_us()
                yield {**row, "ms": statistics.median(times), "layer_us": us}
            except Exception as error:
                yield {**row, "note": peer_cells.short(error)}


# ---- The command line ----------------------------------------------------------------------------
def save(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({"device": "cuda", "chip": "h200", "layers": LAYERS, **r} for r in rows)
    subprocess.run([os.path.join(HERE, "stamp.sh"), path], check=True)


PARTS = {"ready": measure_ours, "layers": measure_our_layers, "captures": measure_theirs}


def ask(part, words):
    """Returns the rows of a part, which runs in its own process and so has only its own memory."""
    child = [sys.executable, os.path.abspath(__file__), *words, "--part", part]
    done = subprocess.run(child, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    rows = [json.loads(line) for line in lines]
    return rows or [{"what": part, "note": f"absent: exit code {done.returncode}"}]


def tell(part, asked):
    """Prints the rows of a part, in that part's process."""
    try:
        for row in PARTS[part](asked):
            print(json.dumps(row), flush=True)
    except Exception as error:
        print(json.dumps({"what": part, "note": f"absent: {peer_cells.short(error)}"}))
    return 0


def main():
    parser = argparse.ArgumentParser(
        description="Times the preparation of a model's steps, from a file and by a capture."
    )
    option = parser.add_argument
    option("--cells", default="1x512,8x2048,32x2048")
    option("--csv")
    option("--figraph", default=os.environ.get("FIGRAPH", "build/figraph"))
    option("--library", default="build/libfigraph.so")
    option("--part", choices=PARTS, help="print only the rows of this part")
    asked = parser.parse_args()
    if asked.part:
        return tell(asked.part, asked)
    rows = [row for part in PARTS for row in ask(part, sys.argv[1:])]
    for row in rows:
        row.update({name: f"{row[name]:.3f}" for name in ("ms", "layer_us") if name in row})
        print(*(row[name] for name in COLUMNS if name in row), sep="  ")
    if asked.csv:
        save(asked.csv, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
