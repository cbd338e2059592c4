#!/usr/bin/env python3
# torch_ways.py: how long torch takes to capture the step that bare_ways.c prepares.
#
# 32 layers of llama-3.1-8b's gated activation, RoPE, append to a cache and attention by torch's own
# operations, in one torch.cuda.graph for each batch; the caches of all layers and sequences are one,
# since nothing runs but a first time aside. Prints CSV: batch, ms of the capture and of the graph
# that it becomes, median of a few.

import statistics
import time

import torch
from torch.nn import functional

LAYERS, Q_HEADS, KV_HEADS, DIM, FFN, KV = 32, 32, 8, 128, 14336, 4096
BATCHES = [1 << n for n in range(9)]
ROUNDS = 3


def turn(x, cos, sin):
    """RoPE, as most models write it."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Step:
    def __init__(self, batch):
        def make(*dims):
            return torch.randn(*dims, dtype=torch.bfloat16, device="cuda")

        self.gate_up = make(batch, 2 * FFN)
        self.q, self.k, self.v = make(batch, Q_HEADS, DIM), make(batch, KV_HEADS, DIM), make(
            batch, KV_HEADS, DIM)
        self.cos, self.sin = make(batch, 1, DIM), make(batch, 1, DIM)
        self.k_cache, self.v_cache = make(1, KV_HEADS, KV, DIM), make(1, KV_HEADS, KV, DIM)
        self.at = torch.tensor([KV - 1], device="cuda")
        self.batch = batch

    def run(self):
        for _ in range(LAYERS):
            gate, up = self.gate_up.chunk(2, dim=-1)
            functional.silu(gate) * up
            q, k = turn(self.q, self.cos, self.sin), turn(self.k, self.cos, self.sin)
            self.k_cache.index_copy_(2, self.at, k[:1].unsqueeze(2))
            self.v_cache.index_copy_(2, self.at, self.v[:1].unsqueeze(2))
            caches = [cache.expand(self.batch, -1, -1, -1) for cache in (self.k_cache, self.v_cache)]
            functional.scaled_dot_product_attention(q.unsqueeze(2), *caches, enable_gqa=True)


def capture_ms(step):
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with torch.cuda.graph(graph):
        step.run()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin)


print("batch,capture_ms")
total = 0
for batch in BATCHES:
    step = Step(batch)
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        step.run()
    torch.cuda.synchronize()
    ms = statistics.median(capture_ms(step) for _ in range(ROUNDS))
    total += ms
    print("%d,%.2f" % (batch, ms), flush=True)
print("mean,%.2f" % (total / len(BATCHES)))
