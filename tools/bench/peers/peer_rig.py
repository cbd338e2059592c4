"""peer_rig.py: gives the peers on torch caches, expected results, captures and times.

A time is measured on replays of a torch.cuda.CUDAGraph with at least 32 calls. The calls take turns
over caches that are too large for an L2, like the chains of figraph bench attention. Invariant: the
graph that is timed is the graph whose numbers were compared.
"""

import math

import torch
from peer_cells import row, short

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
TOLERANCE, FP8_TOLERANCE = 0.01, 0.10  # of the norm; some paths round more than the cache to fp8
WARM_MS, SAMPLE_MS, SAMPLES, ALL_MS = 10.0, 1.0, 16, 60.0


class Pool:
    """Random numbers; the caches of all cells are parts of them."""

    def __init__(self):
        self.held = {}

    def take(self, dtype, count):
        """Returns K and V, `count` numbers each."""
        have = self.held.get(dtype)
        if have is None or have[0].numel() < count:
            self.held.clear()
            have = None
            torch.cuda.empty_cache()
            generator = torch.Generator(device="cuda").manual_seed(7)
            have = tuple(fill(dtype, count, generator) for _ in "kv")
            self.held[dtype] = have
        return have[0][:count], have[1][:count]


def fill(dtype, count, generator, piece=1 << 28):
    tensor = torch.empty(count, dtype=dtype, device="cuda")
    for begin in range(0, count, piece):
        size = min(piece, count - begin)
        numbers = torch.randn(size, generator=generator, device="cuda")
        tensor[begin : begin + size] = numbers.to(dtype)
    return tensor


def attend(cell, q, k, v):
    """Returns a row's right output. q: [heads][head_dim]; k, v: [tokens][kv heads][head_dim]."""
    q = q.float().view(cell.kv_heads, cell.group, cell.head_dim)
    scores = torch.einsum("hgd,lhd->hgl", q, k.float()) / math.sqrt(cell.head_dim)
    return torch.einsum("hgl,lhd->hgd", scores.softmax(-1), v.float()).reshape(
        cell.q_heads, cell.head_dim
    )


def off_by(got, due):
    """Returns the error relative to the norm; NaN if a number is not finite."""
    got = got.float()
    if not bool(torch.isfinite(got).all()):
        return math.nan
    return float((got - due).norm() / due.norm())


def capture(enqueue):
    """Returns a graph of the work of enqueue(), which first runs once without a capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        enqueue(True)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        enqueue(False)
    torch.cuda.synchronize()
    return graph


def span_ms(graph, times):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        graph.replay()
    end.record()
    return begin, end


def time_graph(graph, calls):
    """Returns the median and the least microseconds of a call."""
    graph.replay()
    torch.cuda.synchronize()
    begin, end = span_ms(graph, 1)
    torch.cuda.synchronize()
    one = max(begin.elapsed_time(end), 1e-3)
    for _ in range(min(100, int(WARM_MS / one))):
        graph.replay()
    times = max(1, math.ceil(SAMPLE_MS / one))
    samples = max(3, min(SAMPLES, int(ALL_MS / (one * times))))
    spans = [span_ms(graph, times) for _ in range(samples)]
    torch.cuda.synchronize()
    us = sorted(b.elapsed_time(e) * 1e3 / (times * calls) for b, e in spans)
    return us[len(us) // 2], us[0]


def measure(cell, path, copies, enqueue, outs, due):
    """Returns the row of a path. due(row, copy) returns the right output.

    enqueue(copy, out, is_last) makes one call; only the last call must leave its numbers in out.
    """
    calls = cell.calls(copies)
    last = (calls - 1) % copies

    def chain(warm):
        for i in range(calls - 2 if warm else 0, calls):
            enqueue(i % copies, outs[i % len(outs)], i == calls - 1)

    try:
        graph = capture(chain)
        for out in outs:
            out.fill_(math.nan)
        graph.replay()
        torch.cuda.synchronize()
        got = outs[(calls - 1) % len(outs)]
        longest = max(range(cell.rows), key=lambda r: cell.lengths[r])
        errors = [off_by(got[r], due(r, last)) for r in {longest, cell.rows - 1, cell.rows // 2}]
        error = max(errors) if not any(map(math.isnan, errors)) else math.nan
        tolerance = FP8_TOLERANCE if cell.kv_dtype == "e4m3" else TOLERANCE
        if not error < tolerance or not bool(torch.isfinite(got.float()).all()):
            return row(path, note=f"wrong: off by {error:.2e}, {tolerance} is allowed")
        us, least = time_graph(graph, calls)
        return row(path, us, least, error)
    except Exception as error:
        return row(path, note=short(error))
