"""flex_variants.py: compares figraph's scores and masks with PyTorch's FlexAttention on a GPU.

    tests/gpu/python/flex_variants.py [--times]

Each variant runs by figraph.torch over pages in f16, and by FlexAttention, uncompiled, over the
same numbers in float32; on the CPU where torch finds no GPU. Rows have four query tokens each and
unequal lengths. Sigmoid attention is left out, because FlexAttention cannot express it. --times
also prints CSV with the microseconds of compiled FlexAttention in decode steps, in a CUDA graph
over cold caches, for some cells and scores of tests/gpu/attention/scored_check.c. Run where torch
and figraph can be imported. Exits with 1 if a variant differs.
"""

import os
import sys
from typing import Any, Callable, NamedTuple, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../support"))
import figraph.torch as ft  # noqa: E402
import torch  # noqa: E402
from sentences import run  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

ROWS, QUERIES, Q_HEADS, KV_HEADS, DIM, PAGE = 3, 4, 8, 4, 64, 16
LENGTHS = (517, 130, 300)
LONGEST = 528
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(3)
torch.set_grad_enabled(False)


def ints(x):
    return torch.as_tensor(x, dtype=torch.int32, device=DEVICE)


slope = torch.rand(Q_HEADS, device=DEVICE) + 0.05
buckets = torch.randn(Q_HEADS * 32, device=DEVICE)
bias = torch.randn(ROWS * LONGEST, device=DEVICE)
start = ints([i // 50 * 50 for i in range(LONGEST)])
prefix = ints([514, 127, 20])
# Of the last four tokens, token 1 and token 2 are drafts after token 0, and token 3 follows 2.
tree = ints([0b0001, 0b0011, 0b0101, 0b1101])


def far_bucket(distance):
    far = 16 + (torch.log2(distance.clamp(min=1) / 16.0) / 3.0 * 16.0).int()
    return torch.where(distance < 16, distance, far.clamp(max=31))


class Variant(NamedTuple):
    """A score and a mask of figraph, and the same for FlexAttention.

    Functions of FlexAttention get the row, the position of the query, that of the token and, for
    scores, the score and the q head."""

    name: str
    score: Optional[str] = None
    mask: Optional[str] = None
    arrays: dict[str, Any] = {}
    flex_score: Optional[Callable] = None
    flex_mask: Callable = lambda row, q, kv: kv <= q


VARIANTS = (
    Variant("ALiBi", "score + slope[head] * (kv_pos - q_pos)", None, {"slope": slope},
            lambda x, row, head, q, kv: x + slope[head] * (kv - q)),
    Variant("T5's buckets",
            "d = q_pos - kv_pos; far = 16 + int(log2(d / 16.0) / 3.0 * 16.0); "
            "score + bias[head * 32 + select(d < 16, d, min(far, 31))]", None, {"bias": buckets},
            lambda x, row, head, q, kv: x + buckets[head * 32 + far_bucket((q - kv).clamp(min=0))]),
    Variant("bias of each token", f"score + bias[row * {LONGEST} + kv_pos]", None, {"bias": bias},
            lambda x, row, head, q, kv: x + bias[row * LONGEST + kv]),
    Variant("soft cap", "2 * tanh(score / 2)", None, {},
            lambda x, row, head, q, kv: 2 * torch.tanh(x / 2)),
    Variant("soft cap as an expression", "t = exp2(score * 1.442695); 2 * (t - 1) / (t + 1)", None,
            {}, lambda x, row, head, q, kv: 2 * torch.tanh(x / 2)),
    Variant("chunked-local", None, "q_pos // 128 * 128:q_pos + 1", {}, None,
            lambda row, q, kv: (kv // 128 == q // 128) & (kv <= q)),
    Variant("prefix-LM", None, "i32 prefix[]; 0:max(q_pos + 1, prefix[row])", {"prefix": prefix},
            None, lambda row, q, kv: (kv <= q) | (kv < prefix[row])),
    Variant("packed documents", None, "i32 start[]; start[q_pos]:q_pos + 1", {"start": start}, None,
            lambda row, q, kv: (kv >= start[q]) & (kv <= q)),
    Variant("streaming", None, "0:4, q_pos - 63:q_pos + 1", {}, None,
            lambda row, q, kv: (kv <= q) & ((kv < 4) | (kv > q - 64))),
    Variant("tree", "i32 sees[]; n = kv_pos - kv_length + 4; "
            "select((n < 0) | (sees[q_pos - kv_length + 4] >> n & 1), score, -inf)",
            "0:kv_length", {"sees": tree}, None,
            lambda row, q, kv: tree_sees(row, q, kv)),
    Variant("score and mask", "20 * tanh(score / 20) + head * 0.1", "0:4, q_pos - 63:q_pos + 1", {},
            lambda x, row, head, q, kv: 20 * torch.tanh(x / 20) + head * 0.1,
            lambda row, q, kv: (kv <= q) & ((kv < 4) | (kv > q - 64))),
)
lengths = ints(LENGTHS)


def tree_sees(row, q, kv):
    n = kv - lengths[row] + 4
    draft = (q - lengths[row] + 4).clamp(0, 3)
    return (n < 0) | (tree[draft] >> n.clamp(0, 3) & 1 == 1)


def by_flex(of, q, k, v):
    """q: [rows, queries, heads, dim]; k, v: [rows, tokens, kv heads, dim]."""

    def position(row, i):
        return lengths[row] - QUERIES + i

    def sees(row, head, i, kv):
        return (kv < lengths[row]) & of.flex_mask(row, position(row, i), kv)

    def changed(x, row, head, i, kv):
        return of.flex_score(x, row, head, position(row, i), kv)

    mask = create_block_mask(sees, ROWS, None, QUERIES, LONGEST, device=DEVICE)
    q, k, v = (x.float().transpose(1, 2) for x in (q, k, v))
    out = flex_attention(q, k, v, score_mod=of.flex_score and changed, block_mask=mask,
                         enable_gqa=True)
    return out.transpose(1, 2)


def pages_of(x):
    """Returns x, [rows, tokens, ...], as pages in random order, and their table."""
    each = LONGEST // PAGE
    order = torch.randperm(ROWS * each, device=DEVICE)
    pages = torch.empty(ROWS * each, PAGE, *x.shape[2:], dtype=x.dtype, device=DEVICE)
    pages[order] = x.reshape(ROWS * each, PAGE, *x.shape[2:])
    return pages, order.int().reshape(ROWS, each)


def agrees(of):
    q = torch.randn(ROWS, QUERIES, Q_HEADS, DIM, device=DEVICE).half()
    both = torch.randn(ROWS, LONGEST, KV_HEADS, 2 * DIM, device=DEVICE).half()
    pages, table = pages_of(both)
    cache = ft.Cache(pages[..., :DIM].contiguous(), pages[..., DIM:].contiguous(), table)
    out = ft.attention(q, cache, lengths, score=of.score, mask=of.mask,
                       score_arrays=of.arrays or None)
    wanted = by_flex(of, q, both[..., :DIM], both[..., DIM:])
    off = (out.float() - wanted).abs().max().item()
    assert off < 4e-3, f"{of.name}: {off}"


# ---- Times --------------------------------------------------------------------------------------

def microseconds(enqueue, copies):
    """Returns the time of one call among `copies` calls in a graph, each with its own caches."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for copy in range(copies):
            enqueue(copy)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for copy in range(copies):
            enqueue(copy)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(9):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / copies)
    return sorted(times)[4]


def print_times():
    a = torch.rand(32, device=DEVICE)
    scores = {
        "none": None,
        "score + a[head] * (kv_pos - q_pos)":
            lambda n: lambda x, b, h, i, kv: x + a[h] * (kv - n + 1),
        "d = q_pos - kv_pos; min(score * 2.0 + d / 1024.0, 50 - float(d & 255) / 64)":
            lambda n: lambda x, b, h, i, kv: torch.minimum(
                x * 2.0 + (n - 1 - kv) / 1024.0, 50 - ((n - 1 - kv) & 255).float() / 64),
    }
    print("score,rows,length,us_flex")
    for rows, length in ((8, 8192), (32, 4096)):
        copies = 4
        q = torch.randn(rows, 32, 1, 128, device=DEVICE).bfloat16()
        caches = [[torch.randn(rows, 8, length, 128, device=DEVICE).bfloat16() for _ in range(2)]
                  for _ in range(copies)]
        for text, make in scores.items():
            compiled = torch.compile(flex_attention, dynamic=False)
            changed = make and make(length)

            def enqueue(copy):
                return compiled(q, *caches[copy], score_mod=changed, enable_gqa=True)  # noqa: B023

            print(f'"{text}",{rows},{length},{microseconds(enqueue, copies):.2f}', flush=True)


def case_of(of):
    def agrees_with_flex():
        agrees(of)

    agrees_with_flex.__name__ = of.name.replace(" ", "_")
    return agrees_with_flex


if __name__ == "__main__":
    if "--times" in sys.argv:
        print_times()
    run([case_of(of) for of in VARIANTS])
