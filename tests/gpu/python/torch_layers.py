"""torch_layers.py: measures the time of a layer in graphs that torch.cuda.graph captures.

    tests/gpu/torch_layers.py [LIBRARY]

Prints CSV. Each line gives the microseconds of a layer of a step of llama-3.1-8b's shape without
its matrix products: in the engine's own graph, in a torch.cuda.graph of the whole step as one
piece, and in a torch.cuda.graph of its segments one by one. The graphs take turns. A time is the
duration of the fastest of several series of steps, each staged by the host, divided by steps and
layers. The times are not judged, since they depend on the machine. append_bench.c does the same
without torch. Run where torch can be imported.
"""

import os
import sys
import time

import torch
import torch_capture as small
from torch_capture import figraph, made

CELLS = ((1, 512), (8, 2048), (32, 2048))
LAYERS, STEPS, ROUNDS = 32, 200, 7
SHAPE = dict(LAYERS=LAYERS, Q_HEADS=32, KV_HEADS=8, HEAD_DIM=128, FFN=14336)


class Tensors:
    """The tensors of a step without matrix products. Each layer has caches of its own."""

    def __init__(self, fig, rows, tokens):
        def normal(*shape):
            return torch.randn(*shape, device="cuda").half()

        pages, self.kept = rows * tokens // small.PAGE, []
        cache = (pages, small.PAGE, small.KV_HEADS, small.HEAD_DIM)
        for n in range(LAYERS):
            heads = normal(rows, small.Q_HEADS + 2 * small.KV_HEADS, small.HEAD_DIM)
            q, k, v = heads.split((small.Q_HEADS, small.KV_HEADS, small.KV_HEADS), 1)
            given = dict(q=q, k=k, v=v, out=normal(rows, small.Q_HEADS, small.HEAD_DIM),
                         gate_up=normal(rows, 2 * small.FFN), act=normal(rows, small.FFN),
                         k_cache=normal(*cache), v_cache=normal(*cache))
            for name, tensor in given.items():
                fig.must_bind(f"{name}.{n}", tensor)
            self.kept.append(given)
        each = tokens // small.PAGE
        for row in range(rows):
            fig.set_pages(row, list(range(row * each, row * each + each)))


def append_whole(fig):
    given = made(figraph.fig_append, bucket=1, stream=small.current_stream())
    fig.must("fig_engine_append", fig.engine, given)


def append_segments(fig):
    fig.append("fetch")
    for n in range(LAYERS):
        fig.append(f"act.{n}")
        fig.append(f"attn.{n}")


def captured(fig, stream, append):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        append(fig)
    return graph


def run(fig, step, launch, steps):
    """Returns the microseconds of a layer. The host stages a step while another is in flight."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        while fig.call("fig_engine_stage", fig.engine, step) == figraph.FIG_BUSY:
            pass
        launch()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e6 / steps / LAYERS


def measure(path, rows, tokens):
    vars(small).update(SHAPE, ROWS=rows, KV_LIMIT=tokens)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        fig = small.Figraph(path)
        tensors = Tensors(fig, rows, tokens)
        step = made(figraph.fig_step, rows=rows, bucket=1,
                    kv_lengths=(small.i32 * rows)(*[tokens] * rows))
        fig.must("fig_engine_step", fig.engine, step)
        torch.cuda.synchronize()
    graphs = [captured(fig, stream, append) for append in (append_whole, append_segments)]
    ways = [lambda: fig.must("fig_engine_launch", fig.engine)] + [each.replay for each in graphs]
    with torch.cuda.stream(stream):
        for way in ways:
            run(fig, step, way, 3)
        rounds = [[run(fig, step, way, STEPS) for way in ways] for _ in range(ROUNDS)]
    print(f"{rows}x{tokens},{LAYERS}", *(f"{min(each):.2f}" for each in zip(*rounds)), sep=",",
          flush=True)
    for graph in graphs:
        graph.reset()
    del tensors
    fig.close()


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../../build/libfigraph.so")
    print("cell,layers,own_us,whole_us,segments_us", flush=True)
    for rows, tokens in CELLS:
        measure(path, rows, tokens)


if __name__ == "__main__":
    main()
