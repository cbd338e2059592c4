"""python_torch_servers.py: compares figraph.torch with float64, over caches in the layouts of
servers.

    tests/python/python_torch_servers.py [DEVICE]

The cases have servers' page layouts, several tokens per row, prompts that are written by slot
numbers, and results in tensors that the caller passes. Run where torch and figraph can be imported.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import figraph.torch as ft  # noqa: E402
import torch  # noqa: E402
from figraph import ffi  # noqa: E402
from python_torch import (  # noqa: E402
    DEVICE, DIM, KV, LENGTHS, Q, ROWS, TOKENS, cases, close, copy_of, dense, normal, numpy, paged,
    refused, run, tokens_of)

PAGE = 8


def heads(rows=ROWS, dtype=torch.float32, tokens=None):
    """Returns q, k and v as views of one tensor: [rows, heads, dim] or [rows, tokens, heads,
    dim]."""
    shape = (rows, Q + 2 * KV, DIM) if tokens is None else (rows, tokens, Q + 2 * KV, DIM)
    return normal(*shape, dtype=dtype).split((Q, KV, KV), -2)


def copies(*tensors):
    return [x.clone() for x in tensors]


def same(a, b):
    assert torch.equal(a, b)


def same_caches(a, b):
    same(a.k, b.k)
    same(a.v, b.v)


def packed(cache):
    """Returns the same pages as views of one tensor [pages, tokens, heads, 2 * dim], which has one
    unused page in front and one behind."""
    room = torch.zeros(cache.k.shape[0] + 2, *cache.k.shape[1:-1], 2 * DIM, device=DEVICE,
                       dtype=cache.k.dtype)
    k, v = room[1:-1].split(DIM, -1)
    k.copy_(cache.k)
    v.copy_(cache.v)
    return cache._replace(k=k, v=v)


def interleaved(cache):
    pool = torch.stack(cache[:2], 1)
    return cache._replace(k=pool[:, 0], v=pool[:, 1])


def heads_first(cache):
    """Returns the same pages as views [pages, tokens, heads, dim] of memory in which heads come
    before tokens."""
    return cache._replace(k=cache.k.transpose(1, 2).contiguous().transpose(1, 2),
                          v=cache.v.transpose(1, 2).contiguous().transpose(1, 2))


FORMS = (packed, interleaved, heads_first, lambda cache: heads_first(packed(cache)),
         lambda cache: packed(heads_first(cache)))


def without_rope_one_call_appends_and_attends():
    for kind in (dense, paged):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            was = kind()
            was = was._replace(k=was.k.to(dtype), v=was.v.to(dtype))
            one, two = copy_of(was), copy_of(was)
            q, k, v = heads(dtype=dtype)
            plan = ft.plan(LENGTHS, dtype=dtype, q_heads=Q, cache=was)
            for lent in (None, plan):
                given = copies(q, k, v)
                out, lse = ft.decode_attention(*given, one, LENGTHS, rope=None, plan=lent,
                                               with_lse=True)
                ft.append_kv(k, v, two, LENGTHS, plan=lent)
                parts = ft.attention(q, two, LENGTHS, plan=lent, with_lse=True)
                same(out, parts[0])
                same(lse, parts[1])
                same_caches(one, two)
                for mine, theirs in zip(given, (q, k, v)):
                    same(mine, theirs)
            keys, values = tokens_of(one, 0)
            close(torch.from_numpy(keys[23]), numpy(k[0]), 0)
            close(out[0], cases.attention(numpy(q[0]), keys, values)[0], 2e-2 if dtype !=
                  torch.float32 else 1e-5)


def every_operator_takes_the_pages_of_servers():
    """Packed, interleaved and heads-first pages, and combinations of these, must give the same
    results as separate K and V."""
    for kind in (paged, dense):
        for form in FORMS:
            apart = kind()
            other = form(copy_of(apart))
            assert other.k.stride() != apart.k.stride()
            q, k, v = heads()
            plan = ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=other)
            slots = torch.tensor([3, 70, -1], device=DEVICE)
            for lent in (None, plan):
                outs = []
                for cache in (apart, other):
                    ft.append_kv(k, v, cache, LENGTHS, plan=lent)
                    outs.append(ft.attention(q, cache, LENGTHS, plan=lent))
                    for rope in (None, ft.Rope()):
                        outs.append(ft.decode_attention(*copies(q, k, v), cache, LENGTHS,
                                                        plan=lent, rope=rope))
                    ft.write_kv(v, k, cache, slots)
                for mine, theirs in zip(outs[:3], outs[3:]):
                    same(mine, theirs)
                same_caches(apart, other)


def pages_with_heads_first_are_a_layout_too():
    """Uses pages [pages, heads, tokens, 2 * dim] with layout="hnd"."""
    apart = paged()
    swapped = packed(ft.Cache(*(x.transpose(1, 2).contiguous() for x in apart[:2]),
                              apart.page_table))
    q, k, v = heads()
    given = dict(rope=None, with_lse=True)
    mine = ft.decode_attention(*copies(q, k, v), swapped, LENGTHS, layout="hnd", **given)
    theirs = ft.decode_attention(*copies(q, k, v), apart, LENGTHS, **given)
    ft.write_kv(k, v, apart, LENGTHS)
    ft.write_kv(k, v, swapped, LENGTHS, layout="hnd")
    for a, b in zip(mine, theirs):
        same(a, b)
    same(swapped.k.transpose(1, 2), apart.k)


def results_go_where_the_caller_says():
    """The caller's tensor may have gaps between rows; the operator returns it."""
    q, k, v = heads()
    cache, x, positions = paged(), normal(ROWS, 2 * DIM), LENGTHS.long()
    wide = torch.full((ROWS, Q + 2, DIM), 7.0, device=DEVICE)
    out = wide[:, 1:-1]
    assert ft.attention(q, cache, LENGTHS, out=out) is out
    same(out, ft.attention(q, cache, LENGTHS))
    assert (wide[:, 0] == 7).all() and (wide[:, -1] == 7).all()
    got = ft.attention(q, cache, LENGTHS, out=out, with_lse=True)
    same(got[1], ft.attention(q, cache, LENGTHS, with_lse=True)[1])
    wanted = ft.decode_attention(*copies(q, k, v), copy_of(cache), LENGTHS)
    assert ft.decode_attention(*copies(q, k, v), cache, LENGTHS, out=out) is out
    same(out, wanted)
    for gated in (ft.silu_and_mul, ft.gelu_and_mul, ft.gelu_tanh_and_mul):
        made = torch.empty(ROWS, DIM, device=DEVICE)
        assert gated(x, out=made) is made
        same(made, gated(x))
    weight = normal(2 * DIM)
    wanted = ft.rms_norm(x, weight)
    assert ft.rms_norm(x, weight, out=x) is x
    same(x, wanted)
    wanted, given = ft.apply_rope(q, k, positions), copies(q, k)
    assert ft.apply_rope(*given, positions, out=tuple(given))[0] is given[0]
    for mine, theirs in zip(given, wanted):
        same(mine, theirs)


def bytes_are_what_kv_dtype_says():
    """The caches are uint8, and the scales have 0 dims."""
    scales = [torch.tensor(x, device=DEVICE) for x in (0.5, 0.25)]
    q, k, v = heads(dtype=torch.float16)
    for kind, names in ((torch.float8_e4m3fn, ("fp8", "fp8_e4m3", "e4m3", torch.float8_e4m3fn)),
                        (torch.float8_e5m2, ("fp8_e5m2", "e5m2", torch.float8_e5m2))):
        was = paged()
        narrow = was._replace(k=was.k.to(kind), v=was.v.to(kind), k_scale=scales[0],
                              v_scale=scales[1])
        for name in names:
            typed = copy_of(narrow)
            raw = packed(narrow._replace(k=narrow.k.view(torch.uint8),
                                         v=narrow.v.view(torch.uint8)))
            given = dict(dtype=q.dtype, q_heads=Q)
            plans = (ft.plan(LENGTHS, cache=typed, **given),
                     ft.plan(LENGTHS, cache=raw, kv_dtype=name, **given))
            outs = []
            for cache, said, plan in zip((typed, raw), (None, name), plans):
                for lent in (None, plan):
                    one = dict(plan=lent, kv_dtype=said)
                    ft.append_kv(k, v, cache, LENGTHS, **one)
                    outs.append(ft.attention(q, cache, LENGTHS, **one))
                    outs.append(ft.decode_attention(*copies(q, v, k), cache, LENGTHS, rope=None,
                                                    **one))
                ft.write_kv(k, v, cache, torch.tensor([9, 33, 71], device=DEVICE), kv_dtype=said)
            for mine, theirs in zip(outs[:4], outs[4:]):
                same(mine, theirs)
            same(raw.k, typed.k.view(torch.uint8))
            same(raw.v, typed.v.view(torch.uint8))
            wide = [x.float() * s for x, s in zip((typed.k, typed.v), scales)]
            keys, values = tokens_of(ft.Cache(*wide, was.page_table), 0)
            close(ft.attention(q, typed, LENGTHS)[0],
                  cases.attention(numpy(q[0]), keys, values)[0], 3e-3)
        one = narrow._replace(k_scale=scales[0].view(1), v_scale=scales[1].view(1))
        same(ft.attention(q, one, LENGTHS), ft.attention(q, narrow, LENGTHS))


def a_row_may_have_several_new_tokens():
    """Each new token sees the tokens in front of it; a row that is shorter than the number of new
    tokens is idle."""
    lengths = torch.tensor([24, 3, 2], dtype=torch.int32, device=DEVICE)
    for kind in (dense, paged):
        for window in (0, 5):
            was, logits = kind(), ft.Logits(window=window)
            caches = [copy_of(was) for _ in range(3)]
            q, k, v = heads(tokens=3)
            plan = ft.plan(lengths, dtype=q.dtype, q_heads=Q, cache=was, window=window,
                           row_tokens=3)
            for cache, lent in zip(caches, (None, plan, plan)):
                ft.append_kv(k, v, cache, lengths, plan=lent)
                out, lse = ft.attention(q, cache, lengths, plan=lent, logits=logits, with_lse=True)
            assert out.shape == q.shape and lse.shape == q.shape[:-1]
            fused = ft.decode_attention(*copies(q, k, v), caches[2], lengths, rope=None, plan=plan,
                                        logits=logits)
            same(fused, out)
            same_caches(caches[1], caches[2])
            # without a plan, an append writes the two tokens of row 2; with one, it writes nothing
            for one in (0, 1):
                found, left = (tokens_of(cache, 2)[one][:2] for cache in (caches[0], was))
                close(torch.from_numpy(found), numpy((k, v)[one][2, 1:]), 0)
                close(torch.from_numpy(tokens_of(caches[1], 2)[one][:2]), left, 0)
            for row, length in enumerate((24, 3)):
                keys, values = tokens_of(caches[0], row)
                close(torch.from_numpy(keys[length - 3 : length]), numpy(k[row]), 0)
                for n in range(3):
                    seen = length - 2 + n
                    wanted = cases.attention(numpy(q[row, n]), keys[:seen], values[:seen],
                                             window=window)
                    close(out[row, n], wanted[0], 1e-5)
                    close(lse[row, n], wanted[1], 1e-5)
            assert not out[2].any() and bool((lse[2] == -torch.inf).all())


def rope_of_several_tokens_stands_at_each_of_them():
    lengths = torch.tensor([24, 3, 9], dtype=torch.int32, device=DEVICE)
    at = (lengths[:, None] - 3 + torch.arange(3, device=DEVICE)).flatten()
    q, k, v = heads(tokens=3)
    was = paged()
    fused, parts = copy_of(was), copy_of(was)
    out = ft.decode_attention(*copies(q, k, v), fused, lengths)
    turned = ft.apply_rope(q.reshape(-1, Q, DIM), k.reshape(-1, KV, DIM), at)
    ft.append_kv(turned[1].view_as(k), v, parts, lengths)
    same(fused.k, parts.k)
    close(out, numpy(ft.attention(turned[0].view(q.shape), parts, lengths)), 1e-5)


def positions_and_a_table_take_the_place_of_lengths():
    q, k, v = heads()
    was, rope = paged(), ft.Rope(theta=5e5)
    positions = torch.tensor([100, 7, 3], device=DEVICE)
    angle = torch.arange(128, dtype=torch.float64)[:, None] * 5e5 ** (
        -torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
    table = torch.cat((angle.cos(), angle.sin()), 1).float().to(DEVICE)
    for at in (positions, positions.int()):
        for given in (dict(rope=rope, positions=at), dict(positions=at, cos_sin_cache=table)):
            one, two = copy_of(was), copy_of(was)
            out = ft.decode_attention(*copies(q, k, v), one, LENGTHS, **given)
            turned = ft.apply_rope(q, k, at, rope)
            ft.append_kv(turned[1], v, two, LENGTHS)
            close(one.k, numpy(two.k), 1e-4)
            same(one.v, two.v)
            close(out, numpy(ft.attention(turned[0], two, LENGTHS)), 1e-3)
    by_table = ft.apply_rope(q, k, positions, cos_sin_cache=table)
    close(by_table[0], cases.rope(numpy(q), positions.cpu(), 5e5), 1e-4)
    some = table[:, torch.arange(64) % 32 < 16].contiguous()
    part = ft.apply_rope(q, k, positions, cos_sin_cache=some)[0]
    same(part[..., 32:], q[..., 32:])
    neighbours = ft.apply_rope(q, k, positions, ft.Rope(interleaved=True), cos_sin_cache=table)[0]
    close(neighbours, cases.rope(numpy(q), positions.cpu(), 5e5, interleave=True), 1e-4)


def a_plan_may_have_positions():
    """A plan's positions are those of the last token of each row."""
    rope = ft.Rope(theta=5e5)
    positions = torch.tensor([100, 7, 3], dtype=torch.int32, device=DEVICE)
    for tokens in (None, 3):
        q, k, v = heads(tokens=tokens)
        was = paged()
        one, two = copy_of(was), copy_of(was)
        plan = ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=was, row_tokens=tokens or 1,
                       positions=positions)
        out = ft.decode_attention(*copies(q, k, v), one, LENGTHS, rope=rope, plan=plan)
        back = torch.arange(1 - (tokens or 1), 1, device=DEVICE)
        each = (positions[:, None] + back).flatten()
        wanted = ft.decode_attention(*copies(q, k, v), two, LENGTHS, rope=rope, positions=each)
        close(out, numpy(wanted), 1e-5)
        close(one.k, numpy(two.k), 1e-5)
        same(ft.attention(q, one, LENGTHS, plan=plan), ft.attention(q, one, LENGTHS))
    for wrong, words in ((positions.long(), "positions is int64, it must be int32"),
                         (positions[:2], "positions is [2], it must be [3] like lengths")):
        refused(words, lambda: ft.plan(LENGTHS, dtype="f32", q_heads=Q, cache=was,
                                       positions=wrong))


def prompts_are_written_by_slots():
    for kind in (paged, dense):
        was = kind()
        page, count = was.k.shape[1], was.k.shape[0]
        slots = torch.randperm(page * count)[: page * count - 5]
        slots[::7] = -1
        slots[3] = page * count + 2  # behind the last page
        slots[4] = 1 << 40
        k, v = normal(len(slots), KV, DIM), normal(len(slots), KV, DIM)
        wanted = copy_of(was)
        for n, slot in enumerate(slots.tolist()):
            if 0 <= slot < page * count:
                wanted.k[slot // page, slot % page] = k[n]
                wanted.v[slot // page, slot % page] = v[n]
        for form in (lambda cache: cache, *FORMS):
            cache = form(copy_of(was))
            ft.write_kv(k, v, cache, slots.to(DEVICE))
            same_caches(cache, wanted)
        some = copy_of(was)
        ft.write_kv(k[5:9], v[5:9], some, slots[5:9].int().to(DEVICE))
        ft.write_kv(k[:0], v[:0], some, slots[:0].to(DEVICE))
        assert int((some.k != was.k).any(-1).any(-1).sum()) == 3


def a_prompt_may_be_longer_than_a_step_has_rows():
    count = 3000
    cache = ft.Cache(*(torch.zeros(200, 16, KV, DIM, device=DEVICE) for _ in "kv"))
    k, v = normal(count, KV, DIM), normal(count, KV, DIM)
    ft.write_kv(k, v, cache, torch.arange(count, device=DEVICE))
    same(cache.k.view(-1, KV, DIM)[:count], k)
    same(cache.v.view(-1, KV, DIM)[:count], v)
    assert not cache.v.view(-1, KV, DIM)[count:].any()


def one_pool_serves_every_number_of_rows():
    """The cache may have more rows than a call. Those rows stay unchanged, and the call does not
    read them."""
    for kind in (paged, dense):
        was = kind()
        for rows in range(1, ROWS + 1):
            q, k, v = heads(rows)
            lengths = LENGTHS[:rows]
            cut = was._replace(page_table=was.page_table[:rows]) if kind is paged else \
                ft.Cache(was.k[:rows], was.v[:rows])
            plan = ft.plan(lengths, dtype=q.dtype, q_heads=Q, cache=was)
            for form in (lambda cache: cache, packed):
                whole, part = form(copy_of(was)), copy_of(cut)
                for lent in (None, plan):
                    out = ft.decode_attention(*copies(q, k, v), whole, lengths, plan=lent)
                    same(out, ft.decode_attention(*copies(q, k, v), part, lengths))
                    same(ft.attention(q, whole, lengths, plan=lent),
                         ft.attention(q, part, lengths))
                n = part.k.shape[0]
                same(whole.k[:n], part.k)
                same(whole.k[n:], was.k[n:])
            longer = torch.full((rows,), TOKENS + 1, dtype=torch.int32, device=DEVICE)
            assert not ft.attention(q, was, longer).any()


def tables_may_be_wider_than_a_sequence_is_long():
    """A table may have room for more than 2^20 tokens; a sequence longer than that is idle."""
    was, q = paged(), heads()[0]
    wide = torch.zeros(ROWS, (1 << 20) // PAGE + 5, dtype=torch.int32, device=DEVICE)
    wide[:, :3] = was.page_table
    same(ft.attention(q, was._replace(page_table=wide), LENGTHS), ft.attention(
        q, was._replace(page_table=wide), LENGTHS,
        plan=ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=was._replace(page_table=wide))))
    close(ft.attention(q, was._replace(page_table=wide), LENGTHS)[:2],
          numpy(ft.attention(q, was, LENGTHS)[:2]), 1e-6)
    beyond = torch.full_like(LENGTHS, (1 << 20) + 1)
    assert not ft.attention(q, was._replace(page_table=wide), beyond).any()


def deterministic_rows_do_not_see_their_neighbours():
    tokens = 700
    cache = ft.Cache(*(normal(ROWS, tokens, KV, DIM) for _ in "kv"))
    q = heads()[0]
    outs = []
    for others in (1, 300, tokens):
        lengths = torch.tensor([600, others, others], dtype=torch.int32, device=DEVICE)
        plan = ft.plan(lengths, dtype=q.dtype, q_heads=Q, cache=cache, deterministic=True)
        for lent in (None, plan):
            outs.append(ft.attention(q, cache, lengths, plan=lent, deterministic=True)[0])
        outs.append(ft.attention(q[:1], cache, lengths[:1], deterministic=True)[0])
    for out in outs:
        same(out, outs[0])
    close(outs[0], cases.attention(numpy(q[0]), *(x[:600] for x in tokens_of(cache, 0)))[0], 1e-5)


def what_is_compiled_is_what_is_eager():
    scales = [torch.tensor(x, device=DEVICE) for x in (0.5, 0.25)]

    def step(q, k, v, pool, table, lengths, slots, out):
        cache = ft.Cache(*pool.split(DIM, -1), table, *scales)
        said = dict(kv_dtype="fp8")
        ft.write_kv(k[:, 0], v[:, 0], cache, slots, **said)
        plan = ft.plan(lengths, dtype="bf16", q_heads=Q, cache=cache, row_tokens=2, **said)
        ft.decode_attention(q * 1, k * 1, v, cache, lengths, rope=None, plan=plan, out=out, **said)
        return ft.attention(q, cache, lengths, plan=plan, **said) + out

    compiled = torch.compile(step, fullgraph=True,
                             backend="aot_eager" if DEVICE == "cpu" else "inductor")
    table = paged().page_table
    pool = torch.randint(0, 100, (3 * ROWS, PAGE, KV, 2 * DIM), dtype=torch.uint8, device=DEVICE)
    q, k, v = heads(tokens=2, dtype=torch.bfloat16)
    twin, out = pool.clone(), torch.zeros(q.shape, dtype=q.dtype, device=DEVICE)
    for shift in (0, 2):
        slots = torch.tensor([5, 64, -1], device=DEVICE) + shift
        other = torch.zeros_like(out)
        got = compiled(q, k, v, twin, table, LENGTHS - shift, slots, other)
        wanted = step(q, k, v, pool, table, LENGTHS - shift, slots, out)
        close(got, numpy(wanted), 2e-2)
        close(other, numpy(out), 1e-2)
        same(pool, twin)


def calls_of_servers_make_no_more_runners():
    q, k, v = heads()
    cache, slots = packed(paged()), torch.tensor([3, 8, 9], device=DEVICE)
    made = None
    for length in range(TOKENS):
        ft.decode_attention(q, k, v, cache, LENGTHS - length, rope=None)
        ft.write_kv(k, v, cache, slots + length)
        made = made or ffi.counts().missed
    assert ffi.counts().missed == made


def the_documented_output_is_the_real_one():
    with open(os.path.join(HERE, "../../docs/python.md"), encoding="utf-8") as page:
        shown = page.read().split("```python\ndef attend(")[1].split("```")[0]
    names = dict(ft=ft, torch=torch)
    exec("def attend(" + shown, names)
    q, k, v = heads(dtype=torch.bfloat16)
    pages = torch.randint(0, 100, (3 * ROWS, PAGE, KV, 2 * DIM), dtype=torch.uint8, device=DEVICE)
    twin, out, one = pages.clone(), torch.zeros_like(q), torch.ones(1, device=DEVICE)
    table = paged().page_table
    assert names["attend"](q, k, v, pages, table, LENGTHS, out, None) is out
    sides = (x.view(torch.float8_e4m3fn) for x in twin.split(DIM, -1))
    cache = ft.Cache(*sides, table, one, one)
    ft.append_kv(k, v, cache, LENGTHS)
    same(out, ft.attention(q, cache, LENGTHS))
    same(pages, twin)


CASES = [
    the_documented_output_is_the_real_one,
    without_rope_one_call_appends_and_attends,
    every_operator_takes_the_pages_of_servers,
    pages_with_heads_first_are_a_layout_too,
    results_go_where_the_caller_says,
    bytes_are_what_kv_dtype_says,
    a_row_may_have_several_new_tokens,
    rope_of_several_tokens_stands_at_each_of_them,
    positions_and_a_table_take_the_place_of_lengths,
    a_plan_may_have_positions,
    prompts_are_written_by_slots,
    a_prompt_may_be_longer_than_a_step_has_rows,
    one_pool_serves_every_number_of_rows,
    tables_may_be_wider_than_a_sequence_is_long,
    deterministic_rows_do_not_see_their_neighbours,
    what_is_compiled_is_what_is_eager,
    calls_of_servers_make_no_more_runners,
]
if __name__ == "__main__":
    run(CASES)
