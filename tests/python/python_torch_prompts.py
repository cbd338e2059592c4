"""python_torch_prompts.py: compares figraph.torch.prompt_attention with float64.

    tests/python/python_torch_prompts.py [DEVICE]

Run where torch and figraph can be imported. With DEVICE cuda, all but the refusals of places run on
the GPU.
"""

import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import figraph  # noqa: E402
import figraph.torch as ft  # noqa: E402
import torch  # noqa: E402
from python_torch import DEVICE, DIM, KV, Q, cases, close, normal, numpy, refused  # noqa: E402
from python_torch import run  # noqa: E402

PAGE, WIDTH = 16, 6
COUNTS, LENGTHS = [1, 40, 0, 9, 96, 17], [33, 71, 5, 9, 96, 80]
STARTS = [sum(COUNTS[:n]) for n in range(len(COUNTS) + 1)]
HALVES = (torch.float16, torch.bfloat16)
EXTRA = 3  # tokens of q that no row has
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2}


def paged(dtype=torch.float16, rows=len(COUNTS), layout="nhd"):
    """Returns pages in random order, as views of one tensor that holds K and V side by side."""
    order = torch.randperm(rows * WIDTH, generator=torch.Generator().manual_seed(4))
    shape = (PAGE, KV) if layout == "nhd" else (KV, PAGE)
    pool = normal(rows * WIDTH, *shape, 2 * DIM, dtype=dtype)
    return ft.Cache(*pool.split(DIM, -1), order.int().reshape(rows, WIDTH).to(DEVICE))


def queries(dtype=torch.float16, tokens=STARTS[-1] + EXTRA):
    return normal(tokens, Q + 2 * KV, DIM, dtype=dtype)[:, :Q]


def planned(cache, **more):
    return ft.plan_prompts(LENGTHS, STARTS, **{**dict(dtype=cache.k.dtype, q_heads=Q, cache=cache),
                                               **more})


def tokens_of(cache, row, layout="nhd"):
    pages = cache.page_table[row].long()
    sides = (x[pages] if layout == "nhd" else x[pages].transpose(1, 2) for x in cache[:2])
    return [numpy(x.reshape(-1, KV, DIM)) for x in sides]


def with_sinks(results, sinks):
    """Adds a logit without a value to the sum of each head."""
    if sinks is None:
        return results
    out, lse = results
    sums = 2.0 ** lse
    return out * (sums / (sums + math.e ** numpy(sinks)))[:, None], lse


def right(out, q, cache, lse=None, layout="nhd", sees_all=False, sinks=None, **options):
    for row, (count, length) in enumerate(zip(COUNTS, LENGTHS)):
        keys, values = tokens_of(cache, row, layout)
        for n in range(count):
            seen = length if sees_all else length - count + n + 1
            at = STARTS[row] + n
            wanted = with_sinks(cases.attention(numpy(q[at]), keys[:seen], values[:seen],
                                                **options), sinks)
            close(out[at], wanted[0], TOLERANCE[q.dtype])
            if lse is not None:
                close(lse[at], wanted[1], 4e-3)


def rows_of_any_number_of_tokens_are_right():
    for dtype in HALVES:
        for layout in ("nhd", "hnd"):
            q, cache = queries(dtype), paged(dtype, layout=layout)
            plan = planned(cache, layout=layout)
            assert (plan.rows, plan.tokens, plan.columns) == (len(COUNTS), STARTS[-1], WIDTH)
            for _ in range(2):  # two layers under one plan
                out, lse = ft.prompt_attention(q, cache, plan, layout=layout, with_lse=True)
                right(out, q, cache, lse, layout)
                q = queries(dtype)


def what_a_call_asks_for_is_done():
    q, cache = queries(), paged()
    plain = planned(cache)
    sinks = normal(Q)
    given = [(dict(logits=ft.Logits(window=20)), planned(cache, window=20), dict(window=20)),
             (dict(logits=ft.Logits(scale=0.3)), plain, dict(sm_scale=0.3)),
             (dict(logits=ft.Logits(soft_cap=2.0)), plain, dict(soft_cap=2.0)),
             (dict(sinks=sinks), plain, dict(sinks=sinks)),
             ({}, planned(cache, sees_all=True), dict(sees_all=True)),
             ({}, planned(cache, deterministic=True), {})]
    for asked, plan, options in given:
        right(ft.prompt_attention(q, cache, plan, **asked), q, cache, **options)


def the_counters_of_scratch_begin_as_zeros():
    """The GPU's workers count in them. Here torch fills new memory with ones."""
    cache = paged()
    prompts = figraph.Prompts(dtype="f16", q_heads=Q, kv_heads=KV, head_dim=DIM, page_size=PAGE,
                              device="cuda" if cache.k.is_cuda else "host")
    needs = prompts.memory(len(COUNTS), STARTS[-1])
    torch.use_deterministic_algorithms(True)
    try:
        scratch = planned(cache).scratch
    finally:
        torch.use_deterministic_algorithms(False)
    assert scratch.shape[0] == needs.scratch_bytes and needs.zero_bytes > 0
    assert bool(scratch[-1] != 0) and not bool(scratch[: needs.zero_bytes].any())


def numbers_may_be_lists_or_tensors():
    q, cache = queries(), paged()
    wanted = ft.prompt_attention(q, cache, planned(cache))[: STARTS[-1]]
    for kind in (torch.int32, torch.int64):
        plan = ft.plan_prompts(torch.tensor(LENGTHS, dtype=kind), torch.tensor(STARTS, dtype=kind),
                               dtype="f16", q_heads=Q, cache=cache)
        assert torch.equal(ft.prompt_attention(q, cache, plan)[: STARTS[-1]], wanted)


def results_go_where_out_says():
    """Tokens behind the plan's last one stay as they are, and a table may have more rows."""
    q, cache = queries(), paged(rows=len(COUNTS) + 2)
    out = torch.full((q.shape[0], Q + 1, DIM), 7.0, dtype=q.dtype, device=DEVICE)[:, 1:]
    assert ft.prompt_attention(q, cache, planned(cache), out=out) is out
    right(out, q, cache)
    assert bool((out[STARTS[-1] :] == 7.0).all())
    got, lse = ft.prompt_attention(q, cache, planned(cache), out=out, with_lse=True)
    assert got is out
    right(out, q, cache, lse)


def a_deterministic_row_has_the_same_bits_alone():
    q, cache = queries(), paged()
    whole = ft.prompt_attention(q, cache, planned(cache, deterministic=True))
    for row, (count, length) in enumerate(zip(COUNTS, LENGTHS)):
        one = cache._replace(page_table=cache.page_table[row : row + 1])
        at = slice(STARTS[row], STARTS[row] + count)
        plan = ft.plan_prompts([length], [0, count], dtype=q.dtype, q_heads=Q, cache=one,
                               deterministic=True)
        assert torch.equal(ft.prompt_attention(q[at], one, plan), whole[at])


def steps_without_work_are_steps():
    cache = paged()
    for starts, lengths in (([0], []), ([0, 0, 0], [4, 0])):
        plan = ft.plan_prompts(lengths, starts, dtype="f16", q_heads=Q, cache=cache)
        out = torch.full((2, Q, DIM), 7.0, dtype=torch.float16, device=DEVICE)
        ft.prompt_attention(queries(tokens=2), cache, plan, out=out)
        assert bool((out == 7.0).all())


def prompts_are_appended_and_decode_goes_on():
    """A prompt in two chunks and then single tokens, over one cache, as a server computes them."""
    cache = paged(rows=1)
    k, v = (normal(70, KV, DIM, dtype=torch.float16) for _ in "kv")
    q = queries(tokens=70)
    at = torch.arange(70, device=DEVICE)
    slots = cache.page_table[0].long()[at // PAGE] * PAGE + at % PAGE
    outs = []
    for first, end in ((0, 37), (37, 66)):
        part = slice(first, end)
        ft.write_kv(k[part], v[part], cache, slots[part])
        plan = ft.plan_prompts([end], [0, end - first], dtype=q.dtype, q_heads=Q, cache=cache)
        outs.append(ft.prompt_attention(q[part], cache, plan))
    for n in range(66, 70):
        outs.append(ft.decode_attention(*(x[n : n + 1].clone() for x in (q, k, v)), cache,
                                        torch.tensor([n + 1], dtype=torch.int32, device=DEVICE),
                                        rope=None))
    for n, out in enumerate(torch.cat(outs)):
        close(out, cases.attention(numpy(q[n]), numpy(k[: n + 1]), numpy(v[: n + 1]))[0], 4e-3)


def a_compiled_call_is_the_same():
    q, cache = queries(), paged()
    plan, sinks = planned(cache), normal(Q)
    attend = torch.compile(lambda q: ft.prompt_attention(q, cache, plan, sinks=sinks,
                                                         with_lse=True),
                           fullgraph=True, backend="aot_eager")
    for got, wanted in zip(attend(q), ft.prompt_attention(q, cache, plan, sinks=sinks,
                                                          with_lse=True)):
        assert torch.equal(got[: STARTS[-1]], wanted[: STARTS[-1]])
    torch.library.opcheck(torch.ops.figraph.prompt_attention_out.default,
                          (q, *cache[:3], *plan[:2], None, *plan[2:5], list(plan.shape), 0, 0, 0.0,
                           0.1, torch.zeros_like(q), None))


def a_graph_repeats_calls_but_makes_no_plans():
    """Runs only on a GPU."""
    if DEVICE == "cpu":
        return
    q, cache, graph = queries(), paged(), torch.cuda.CUDAGraph()
    plan = planned(cache)
    out = torch.zeros_like(q)
    ft.prompt_attention(q, cache, plan, out=out)  # loads the kernels
    with torch.cuda.graph(graph):
        ft.prompt_attention(q, cache, plan, out=out)
        refused("plan_prompts: the stream captures", lambda: planned(cache), (RuntimeError,))
    for _ in range(2):
        q.copy_(queries())
        graph.replay()
        right(out, q, cache)


def mistakes_of_a_plan_are_named():
    cache = paged()

    def wrong(lengths=LENGTHS, starts=STARTS, **more):
        given = {**dict(dtype=torch.float16, q_heads=Q, cache=cache), **more}
        return lambda: ft.plan_prompts(lengths, starts, **given)

    bad = (ValueError, figraph.errors.Invalid)
    refused("query_start_loc has 2 numbers, it must have 3", wrong([1, 1], [0, 1]), bad)
    refused("query_start_loc begins with 2, it must begin with 0", wrong([3], [2, 3]), bad)
    refused("query_start_loc begins with 1, it must begin with 0", wrong([], [1]), bad)
    refused("row 0 has query tokens -1 to 2", wrong([3], [-1, 2]), bad)
    refused("row 1 has query tokens 3 to 2", wrong([3, 1], [0, 3, 2]), bad)
    refused("length of row 0 is 97, limits 1", wrong([97], [0, 1]), bad)
    refused("length of row 0 is 2, limits 3", wrong([2], [0, 3]), bad)
    refused("lengths[0] is True", wrong([True], [0, 1]), (TypeError,))
    refused("lengths is [1, 1], it must be [any]", wrong(torch.ones(1, 1).int(), [0, 1]), bad)
    elsewhere = torch.ones(1, dtype=torch.int32, device="meta")
    refused("lengths is on meta", wrong(elsewhere, [0, 1]), bad)
    refused("query_start_loc is on meta", wrong([], elsewhere), bad)
    refused("dtype is float32, it must be float16 or bfloat16", wrong(dtype="f32"), (TypeError,))
    refused("cache.k is float16, it must be bfloat16", wrong(dtype="bf16"), (TypeError,))
    refused("cache.page_table is None", wrong(cache=cache._replace(page_table=None)), bad)
    refused("cache.v_scale is given", wrong(cache=cache._replace(v_scale=torch.ones(()))), bad)
    refused("cache.k is a list", wrong(cache=cache._replace(k=[])), (TypeError,))
    refused("q_heads is 6", wrong(q_heads=6), bad)
    refused("q_heads is '8'", wrong(q_heads="8"), (TypeError,))
    refused("window is -1", wrong(window=-1), bad)
    refused('layout is "hdn"', wrong(layout="hdn"), bad)


def mistakes_of_a_call_are_named():
    q, cache = queries(), paged()
    plan = planned(cache)

    def wrong(q=q, cache=cache, plan=plan, **more):
        return lambda: ft.prompt_attention(q, cache, plan, **more)

    def changed(**more):
        return wrong(plan=plan._replace(**more))

    bad = (ValueError,)
    refused("plan is a NoneType, it must be a PromptPlan", wrong(plan=None), (TypeError,))
    refused("q is a list, it must be a tensor", wrong(q=[]), (TypeError,))
    refused(f"q is [{STARTS[-1] - 1}, 8, 64], its dim 0 must be at least {STARTS[-1]}",
            wrong(q=queries(tokens=STARTS[-1] - 1)), bad)
    refused("q is [2, 1, 8, 64], it must be [any, any, any]", wrong(q=q[:2, None]), bad)
    refused("q is float32, it must be float16 or bfloat16", wrong(q=q.float()), (TypeError,))
    refused("cache.k is float16, it must be bfloat16", wrong(q=q.bfloat16()), (TypeError,))
    refused("cache.k is float8_e4m3fn",
            wrong(cache=ft.Cache(*(x.to(torch.float8_e4m3fn) for x in cache[:2]), cache[2])),
            (TypeError,))
    refused("plan was made for q_heads 8, this call has 4", wrong(q=q[:, :4]), bad)
    refused("plan was made for window 0, this call has 9", wrong(logits=ft.Logits(window=9)), bad)
    refused("plan was made for page_size 16, this call has 4", wrong(layout="hnd",
            cache=ft.Cache(*(normal(9, KV, 4, DIM).half() for _ in "kv"), cache.page_table)), bad)
    refused("logits.soft_cap is -1", wrong(logits=ft.Logits(soft_cap=-1.0)), bad)
    refused(f"cache.page_table is [5, {WIDTH}], the plan was made for [6, {WIDTH}]",
            wrong(cache=cache._replace(page_table=cache.page_table[:5])), bad)
    refused("cache.page_table is [6, 5], the plan",
            wrong(cache=cache._replace(page_table=cache.page_table[:, :5])), bad)
    refused("cache.page_table is int64", wrong(cache=cache._replace(
        page_table=cache.page_table.long())), (TypeError,))
    refused("cache.page_table is None", wrong(cache=cache._replace(page_table=None)), bad)
    refused("cache.k_scale is given", wrong(cache=cache._replace(k_scale=normal(1))), bad)
    refused("sinks is [7], it must be [8] like q", wrong(sinks=normal(7)), bad)
    refused("sinks has strides", wrong(sinks=normal(2 * Q)[::2]), bad)
    refused("out is [1, 8, 64]", wrong(out=q[:1].clone()), bad)
    refused("out has strides", wrong(out=torch.empty_like(q[:1]).expand(q.shape)), bad)
    held = queries(tokens=STARTS[-1] + 1)
    for out in (held[:-1], held[1:]):
        refused("run: out overlaps q, which the run reads", wrong(q=held[:-1], out=out),
                (figraph.errors.Invalid,))
    refused("run: out overlaps k_cache, which the run reads",
            wrong(out=cache.k.view(-1, Q, DIM)[:STARTS[-1]], q=q[:STARTS[-1]]),
            (figraph.errors.Invalid,))
    refused("q has strides", wrong(q=q[:1].expand(q.shape)), bad)
    refused("plan.plan is float32", changed(plan=normal(9)), (TypeError,))
    refused("scratch_bytes is 16", changed(scratch=torch.zeros(16, dtype=torch.uint8,
                                                                device=DEVICE)),
            (figraph.errors.Invalid,))
    refused("plan.scratch is on meta", changed(scratch=plan.scratch.to("meta")), bad)
    refused("prompt_attention has no gradient, and q", wrong(q=q.clone().requires_grad_()),
            (NotImplementedError,))


CASES = [
    rows_of_any_number_of_tokens_are_right,
    what_a_call_asks_for_is_done,
    the_counters_of_scratch_begin_as_zeros,
    numbers_may_be_lists_or_tensors,
    results_go_where_out_says,
    a_deterministic_row_has_the_same_bits_alone,
    steps_without_work_are_steps,
    prompts_are_appended_and_decode_goes_on,
    a_compiled_call_is_the_same,
    a_graph_repeats_calls_but_makes_no_plans,
    mistakes_of_a_plan_are_named,
    mistakes_of_a_call_are_named,
]

if __name__ == "__main__":
    run(CASES)
