#!/usr/bin/env python3
"""prompt_layers.py: times figraph.torch.prompt_attention beside FlashAttention 3.

    tools/bench/prompt_layers.py [--rest SECONDS] [CELL...] > FILE.csv

A CELL is rows x query tokens : tokens, with + between rows of other forms: 1x512:8192+128x1:1024.
2-16 in place of the query tokens draws a number for each row. FlashAttention 3 is that of an
installed vLLM; both read the same paged cache, of pages of 16 tokens in random order, with 32/8
heads of 128 in bf16. A time is the median of nine replays, divided by launches; the launches of a
graph use copies of the cache in turn, which are more than 300 MB together. The replays of both
alternate, with a pause of --rest seconds before each: without a pause, power limits the clock.
Columns: us of both, their ratio, and the largest difference of their outputs. The times are not
judged; the exit code is 1 if outputs differ by more than 1/64. Run where vllm, figraph and torch
can be imported.
"""

import argparse
import random
import statistics
import sys
import time

CELLS = ("1x128:8192", "1x128:32768", "1x512:8192", "1x512:32768", "1x2048:2048", "1x2048:8192",
         "1x2048:32768", "1x8192:8192", "4x512:4096", "8x64:4096", "16x128:1024",
         "1x2048:8192+64x1:2048", "1x512:8192+128x1:1024", "32x2-16:4096")
Q_HEADS, KV_HEADS, HEAD_DIM, PAGE = 32, 8, 128, 16
COLD_BYTES, REPLAYS, LIMIT = 300e6, 9, 1 / 64


def rows_of(cell):
    """Returns a pair for each row of a CELL: its query tokens, and all its tokens. Raises
    ValueError if the text is not a CELL."""
    rows = []
    for form in cell.split("+"):
        count, _, rest = form.partition("x")
        queries, _, tokens = rest.partition(":")
        first, _, last = queries.partition("-")
        for _ in range(int(count)):
            rows.append((random.randint(int(first), int(last or first)), int(tokens)))
    if not rows or any(not 0 < queries <= tokens for queries, tokens in rows):
        raise ValueError("a row needs 1 query token, and as many tokens as query tokens")
    return rows


class Cell:
    """The operands of one cell."""

    def __init__(self, torch, ft, rows):
        self.rows, self.starts = rows, [0]
        for queries, _ in rows:
            self.starts.append(self.starts[-1] + queries)
        self.lengths = [tokens for _, tokens in rows]
        of = dict(device="cuda", dtype=torch.bfloat16)
        self.q = torch.randn(self.starts[-1], Q_HEADS, HEAD_DIM, **of)
        self.outs = [torch.empty_like(self.q), torch.empty_like(self.q)]
        pages = [(tokens + PAGE - 1) // PAGE for tokens in self.lengths]
        bytes_read = sum(pages) * PAGE * KV_HEADS * HEAD_DIM * 4
        self.caches = []
        for _ in range(min(16, int(COLD_BYTES / bytes_read) + 2)):
            k = torch.randn(sum(pages), PAGE, KV_HEADS, HEAD_DIM, **of)
            order = torch.randperm(sum(pages), dtype=torch.int32).split(pages)
            table = torch.nn.utils.rnn.pad_sequence(order, batch_first=True)
            self.caches.append(ft.Cache(k, torch.randn_like(k), table.cuda()))

    def calls(self, torch, ft, flash):
        """Returns the two calls, each for a copy of the cache."""
        plan = ft.plan_prompts(self.lengths, self.starts, dtype=self.q.dtype, q_heads=Q_HEADS,
                               cache=self.caches[0])
        starts, used = (torch.tensor(x, dtype=torch.int32, device="cuda")
                        for x in (self.starts, self.lengths))
        most = max(queries for queries, _ in self.rows)

        def theirs(cache):
            flash(self.q, cache.k, cache.v, most, starts, max(self.lengths), seqused_k=used,
                  causal=True, block_table=cache.page_table, softmax_scale=HEAD_DIM ** -0.5,
                  out=self.outs[0], fa_version=3)

        return theirs, lambda cache: ft.prompt_attention(self.q, cache, plan, out=self.outs[1])

    def graph_of(self, torch, call):
        """Returns a graph of launches over all copies of the cache, and their number."""
        launches = max(4, len(self.caches))
        call(self.caches[0])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(launches):
                call(self.caches[i % len(self.caches)])
        graph.replay()
        return graph, launches


def replay_us(torch, graph, launches, rest):
    """Returns the microseconds of a launch in one replay."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    time.sleep(rest)
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3 / launches


def main():
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0], epilog="Example: "
                                    "prompt_layers.py --rest 0.1 1x512:8192 8x64:4096")
    words.add_argument("cells", nargs="*", metavar="CELL", default=CELLS)
    words.add_argument("--rest", type=float, default=0.1, metavar="SECONDS")
    words = words.parse_args()
    for cell in words.cells:
        try:
            rows_of(cell)
        except ValueError:
            print(f"prompt_layers.py: CELL is {cell!r}, it must be as 1x512:8192+128x1:1024",
                  file=sys.stderr)
            return 2
    import figraph.torch as ft
    import torch
    from vllm.vllm_flash_attn import flash_attn_varlen_func as flash
    torch.manual_seed(0)
    random.seed(0)
    failed = 0
    print("cell,rest_s,flash_us,figraph_us,ratio,difference", flush=True)
    for name in words.cells:
        cell = Cell(torch, ft, rows_of(name))
        graphs = [cell.graph_of(torch, call) for call in cell.calls(torch, ft, flash)]
        times = [[], []]
        for turn in range(2 * REPLAYS):
            which = (turn + turn // 2) % 2  # each is the first of a pair in turn
            times[which].append(replay_us(torch, *graphs[which], words.rest))
        theirs, mine = (statistics.median(x) for x in times)
        difference = (cell.outs[0].float() - cell.outs[1].float()).abs().max().item()
        failed |= not difference <= LIMIT
        print(f"{name},{words.rest},{theirs:.2f},{mine:.2f},{mine / theirs:.3f},{difference:.4f}",
              flush=True)
        del cell, graphs
        torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
