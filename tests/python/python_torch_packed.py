"""python_torch_packed.py: compares figraph.torch, for rows with unequal numbers of query tokens,
with float64.

    tests/python/python_torch_packed.py [DEVICE]

query_start_loc says where the tokens of each row begin. Run where torch and figraph can be
imported.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import figraph  # noqa: E402
import figraph.torch as ft  # noqa: E402
import torch  # noqa: E402
from python_torch import DEVICE, DIM, KV, Q, cases, close, copy_of, normal, numpy  # noqa: E402
from python_torch import refused, run, tokens_of  # noqa: E402
from python_torch_servers import FORMS, copies, packed, same, same_caches  # noqa: E402

ROWS, ROOM, PAGE, MOST = 4, 24, 8, 3
COUNTS, LENGTHS = [2, 0, 3, 1], [24, 7, 12, 25]  # row 3 has more tokens than its cache holds
EXTRA = 2  # tokens of q that no row has


def int32(numbers):
    return torch.tensor(numbers, dtype=torch.int32, device=DEVICE)


def starts_of(counts):
    return int32([sum(counts[:n]) for n in range(len(counts) + 1)])


STARTS, SEEN = starts_of(COUNTS), int32(LENGTHS)


def dense(rows=ROWS):
    return ft.Cache(normal(rows, ROOM, KV, DIM), normal(rows, ROOM, KV, DIM))


def paged(rows=ROWS):
    pages = ROOM // PAGE * rows
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(2))
    table = order.to(torch.int32).reshape(rows, -1).to(DEVICE)
    return ft.Cache(normal(pages, PAGE, KV, DIM), normal(pages, PAGE, KV, DIM), table)


def heads(tokens=sum(COUNTS) + EXTRA, dtype=torch.float32):
    """Returns q, k and v as views of one tensor."""
    return normal(tokens, Q + 2 * KV, DIM, dtype=dtype).split((Q, KV, KV), -2)


def plan_of(cache, q, **more):
    given = dict(dtype=q.dtype, q_heads=Q, cache=cache, query_start_loc=STARTS, row_tokens=MOST,
                 tokens=q.shape[0])
    return ft.plan(SEEN, **{**given, **more})


def each_token(counts=COUNTS, lengths=LENGTHS):
    """Yields the number, the row and the visible tokens of each query token; 0 if it is idle."""
    number = 0
    for row, (count, length) in enumerate(zip(counts, lengths)):
        for back in range(count, 0, -1):
            yield number, row, length - back + 1 if count <= length <= ROOM else 0
            number += 1


def right(out, lse, q, cache, tolerance=1e-5, window=0, rows=(COUNTS, LENGTHS)):
    for number, row, seen in each_token(*rows):
        keys, values = (x[:seen] for x in tokens_of(cache, row))
        wanted = cases.attention(numpy(q[number]), keys, values, window=window)
        close(out[number], wanted[0], tolerance)
        close(lse[number], wanted[1], tolerance)


def rows_of_unequal_numbers_of_tokens_are_right():
    for kind in (dense, paged):
        for form in (lambda cache: cache, *FORMS):
            for window in (0, 5):
                was = form(kind())
                one, two = form(copy_of(was)), form(copy_of(was))
                q, k, v = heads()
                for lent in (None, plan_of(was, q, window=window)):
                    given = dict(plan=lent, query_start_loc=STARTS, row_tokens=MOST)
                    asked = dict(given, logits=ft.Logits(window=window), with_lse=True)
                    ft.append_kv(k, v, one, SEEN, **given)
                    out, lse = ft.attention(q, one, SEEN, **asked)
                    right(out, lse, q, one, window=window)
                    fused = ft.decode_attention(*copies(q, k, v), two, SEEN, rope=None, **asked)
                    used = sum(COUNTS)
                    same(fused[0][:used], out[:used])
                    same(fused[1][:used], lse[:used])
                    same_caches(one, two)
                for number, row, seen in each_token():
                    found, left = tokens_of(one, row), tokens_of(was, row)
                    for mine, theirs, new in zip(found, left, (k, v)):
                        if seen > 0:
                            close(torch.from_numpy(mine[seen - 1]), numpy(new[number]), 0)
                        else:
                            close(torch.from_numpy(mine), theirs, 0)


def what_rows_have_in_common_is_a_dim_of_tokens():
    """Rows of equally many tokens give the same bits, however they are passed."""
    lengths, count = int32([24, 3, 12, 2]), 3
    q, k, v = heads(ROWS * count)
    starts = int32(range(0, ROWS * count + 1, count))
    for kind in (dense, paged):
        one, two = (lambda cache: (cache, copy_of(cache)))(kind())
        wanted = ft.decode_attention(*(x.unflatten(0, (ROWS, count)) for x in copies(q, k, v)), one,
                                     lengths, with_lse=True)
        mine = ft.decode_attention(*copies(q, k, v), two, lengths, query_start_loc=starts,
                                   row_tokens=count, with_lse=True)
        same(mine[0], wanted[0].flatten(0, 1))
        same(mine[1], wanted[1].flatten(0, 1))
        same_caches(one, two)


def rope_stands_at_each_token():
    """At its place in its sequence, or where positions or the plan's positions say."""
    q, k, v = heads()
    was, rope = paged(), ft.Rope(theta=5e5)
    places = int32([max(seen - 1, 0) for _, _, seen in each_token()] + EXTRA * [0])
    angle = torch.arange(128, dtype=torch.float64)[:, None] * 5e5 ** (
        -torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
    table = torch.cat((angle.cos(), angle.sin()), 1).float().to(DEVICE)
    last = SEEN - 1
    given = dict(query_start_loc=STARTS, row_tokens=MOST)
    for shift in (0, 60):
        at = places + shift
        turned, two = ft.apply_rope(q, k, at, rope), copy_of(was)
        ft.append_kv(turned[1], v, two, SEEN, **given)
        wanted = ft.attention(turned[0], two, SEEN, **given)
        ways = [dict(rope=rope, positions=at), dict(positions=at.long(), cos_sin_cache=table),
                dict(rope=rope, plan=plan_of(was, q, positions=last + shift))]
        if shift == 0:
            ways += [dict(rope=rope), dict(rope=rope, plan=plan_of(was, q))]
        for way in ways:
            one = copy_of(was)
            out = ft.decode_attention(*copies(q, k, v), one, SEEN, **given, **way)
            used = sum(COUNTS[:3])
            close(out[:used], numpy(wanted[:used]), 1e-3)
            close(one.k, numpy(two.k), 1e-4)
            same(one.v, two.v)


def every_mix_of_rows_is_one_program():
    """The same tensors serve rows of 0 to the most tokens, under one plan's memory."""
    generator = torch.Generator().manual_seed(3)
    most, tokens = 8, ROWS * 8
    for kind in (dense, paged):
        cache, q = kind(), normal(tokens, Q, DIM)
        lengths, starts = SEEN.clone(), starts_of(ROWS * [0])
        for _ in range(12):
            counts = torch.randint(0, most + 1, (ROWS,), generator=generator).tolist()
            own = torch.randint(0, ROOM + 2, (ROWS,), generator=generator).tolist()
            lengths.copy_(int32(own))
            starts.copy_(starts_of(counts))
            plan = ft.plan(lengths, dtype=q.dtype, q_heads=Q, cache=cache, query_start_loc=starts,
                           tokens=tokens)
            for lent in (None, plan):
                out, lse = ft.attention(q, cache, lengths, query_start_loc=starts, plan=lent,
                                        with_lse=True)
                right(out, lse, q, cache, rows=(counts, own))


def results_go_where_the_caller_says():
    q, k, v = heads()
    given = dict(query_start_loc=STARTS, row_tokens=MOST)
    wide = torch.full((q.shape[0], Q + 2, DIM), 7.0, device=DEVICE)
    cache, out, used = paged(), wide[:, 1:-1], sum(COUNTS)
    wanted = ft.attention(q, cache, SEEN, **given)
    assert ft.attention(q, cache, SEEN, out=out, **given) is out
    same(out[:used], wanted[:used])
    assert (wide[:, 0] == 7).all() and (wide[:, -1] == 7).all()
    wanted = ft.decode_attention(*copies(q, k, v), copy_of(cache), SEEN, **given)
    assert ft.decode_attention(*copies(q, k, v), cache, SEEN, out=out, **given) is out
    same(out[:used], wanted[:used])


def heads_first_and_bytes_are_served_too():
    """Pages [pages, heads, tokens, 2 * dim] of uint8 under layout="hnd"."""
    was, scale = paged(), torch.tensor(0.5, device=DEVICE)
    q, k, v = heads(dtype=torch.float16)
    narrow = was._replace(k=was.k.to(torch.float8_e4m3fn), v=was.v.to(torch.float8_e4m3fn),
                          k_scale=scale, v_scale=scale)
    raw = packed(ft.Cache(*(x.transpose(1, 2).contiguous().view(torch.uint8) for x in narrow[:2]),
                          *narrow[2:]))
    given = dict(query_start_loc=STARTS, row_tokens=MOST)
    mine = ft.decode_attention(*copies(q, k, v), raw, SEEN, layout="hnd", kv_dtype="fp8",
                               plan=plan_of(raw, q, layout="hnd", kv_dtype="fp8"), **given)
    theirs = ft.decode_attention(*copies(q, k, v), narrow, SEEN, **given)
    same(mine[: sum(COUNTS)], theirs[: sum(COUNTS)])
    same(raw.k.transpose(1, 2), narrow.k.view(torch.uint8))


def more_tokens_than_q_has_are_no_step():
    """Neither a call nor a plan trusts query_start_loc."""
    q, k, v = heads(5)
    for kind in (dense, paged):
        was = kind()
        cache, out = copy_of(was), torch.full_like(q.contiguous(), 7.0)
        for lent in (None, plan_of(was, q)):
            ft.decode_attention(*copies(q, k, v), cache, SEEN, query_start_loc=STARTS,
                                row_tokens=MOST, plan=lent, out=out)
            assert (out == 7).all()
            same_caches(cache, was)
    none = ft.attention(q[:0], was, SEEN, query_start_loc=STARTS)
    assert none.shape == (0, Q, DIM)


def a_compiled_call_is_the_eager_one():
    def step(q, k, v, cache, lengths, starts):
        plan = ft.plan(lengths, dtype=q.dtype, q_heads=Q, cache=cache, query_start_loc=starts,
                       row_tokens=MOST, tokens=q.shape[0])
        given = dict(query_start_loc=starts, row_tokens=MOST, plan=plan)
        ft.append_kv(k, v, cache, lengths, **given)
        out, lse = ft.attention(q, cache, lengths, with_lse=True, **given)
        return out * 2, lse, ft.decode_attention(q, k, v, cache, lengths, **given)

    backend = "aot_eager" if DEVICE == "cpu" else "inductor"
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for kind in (dense, paged):
        was, one = kind(), heads()
        mine, theirs = copy_of(was), copy_of(was)
        eager = step(*copies(*one), mine, SEEN, STARTS)
        other = compiled(*copies(*one), theirs, SEEN, STARTS)
        for a, b in zip(eager, other):
            close(a[: sum(COUNTS)], numpy(b[: sum(COUNTS)]), 1e-6)
        same_caches(mine, theirs)


def each_operator_is_what_its_schema_says():
    """Behind the last token the results are unspecified, so here every token has a row."""
    q, k, v = copies(*heads(sum(COUNTS)))
    ops = torch.ops.figraph
    for cache in (dense(), paged()):
        held = (*cache[:2], SEEN, *cache[2:], 0, None, STARTS, MOST)
        plan = plan_of(cache, q)
        asked = (*plan, None, None, 0, 0.0, 0.125, False)
        turns = (DIM, False, 1.0, 1e4, 0.0, 0.0, 0.0, 0, False, None, None)
        for op, given in ((ops.append_kv, (k, v, *held, plan.plan)),
                          (ops.attention, (q, *held, *asked, True)),
                          (ops.decode_attention, (q, k, v, *held, *asked, *turns, True))):
            torch.library.opcheck(op.default, given)


def what_is_wrong_is_told_by_its_name():
    q, k, v = heads()
    cache = paged()
    given = dict(query_start_loc=STARTS, row_tokens=MOST)
    by_row = torch.zeros(ROWS, 2, Q, DIM, device=DEVICE)
    for words, call in (
        ("query_start_loc is [4], it must be [5] like lengths",
         lambda: ft.attention(q, cache, SEEN, query_start_loc=STARTS[:-1])),
        ("query_start_loc is [6], it must be [5] like lengths",
         lambda: ft.plan(SEEN, dtype=q.dtype, q_heads=Q, cache=cache,
                         query_start_loc=int32(6 * [0]))),
        ("query_start_loc is int64, it must be int32",
         lambda: ft.append_kv(k, v, cache, SEEN, query_start_loc=STARTS.long())),
        ("query_start_loc is a list, it must be a tensor",
         lambda: ft.attention(q, cache, SEEN, query_start_loc=STARTS.tolist())),
        ("q is [4, 2, 8, 64], it must be [any, any, any]",
         lambda: ft.attention(by_row, cache, SEEN, **given)),
        ("row_tokens is 2, but query_start_loc is not given: q says",
         lambda: ft.attention(q, cache, SEEN, row_tokens=2)),
        ("row_tokens is 4097, limits 0 to 4096",
         lambda: ft.attention(q, cache, SEEN, query_start_loc=STARTS, row_tokens=4097)),
        ("row_tokens is -1, limits 0 to 4096",
         lambda: ft.append_kv(k, v, cache, SEEN, query_start_loc=STARTS, row_tokens=-1)),
        ("row_tokens is 2.5, it must be an integer",
         lambda: ft.attention(q, cache, SEEN, query_start_loc=STARTS, row_tokens=2.5)),
        ("tokens is 5, it must be 0 without query_start_loc",
         lambda: ft.plan(SEEN, dtype=q.dtype, q_heads=Q, cache=cache, tokens=5)),
        ("tokens is -5, it must be 0 or more", lambda: plan_of(cache, q, tokens=-5)),
        ("k is [7, 4, 64], it must be [8, 4, 64] like q",
         lambda: ft.decode_attention(q, k[1:], v, cache, SEEN, **given)),
        ("plan.plan was made for 8 query tokens, and there is room for 7: say tokens=q.shape[0]",
         lambda: ft.attention(q[1:], cache, SEEN, plan=plan_of(cache, q), **given)),
        ("plan.plan was made for 12 query tokens, and there is room for 8",
         lambda: ft.attention(q, cache, SEEN, plan=plan_of(cache, q, tokens=0), **given)),
        ("plan was made for row_tokens 1, this call has 3",
         lambda: ft.attention(q, cache, SEEN, plan=ft.plan(SEEN, dtype=q.dtype, q_heads=Q,
                                                           cache=cache), **given)),
        ("plan.plan is [",
         lambda: ft.attention(q, cache, SEEN, plan=ft.Plan(*ft.plan(
             SEEN, dtype=q.dtype, q_heads=Q, cache=cache)), **given)),
        ("positions is [4], it must be [8] like q",
         lambda: ft.decode_attention(q, k, v, cache, SEEN, positions=SEEN, **given)),
        ("cache.page_table is [4, 3], its dim 0 must be at least 5",
         lambda: ft.attention(q, cache, int32(5 * [1]), query_start_loc=int32(6 * [0]))),
    ):
        refused(words, call, (ValueError, TypeError, NotImplementedError, RuntimeError))


# ---- DecodeStep ----------------------------------------------------------------------------------

SPEC = figraph.Spec(dtype="f32", q_heads=Q, kv_heads=KV, head_dim=DIM, ffn_width=32, batch_limit=8,
                    kv_limit=64, layers=2, window=9, window_layers=(1,),
                    rope=figraph.Rope(theta=5e5))


class Loop:
    """Two layers without matrix products."""

    def __init__(self, caches, tokens, **options):
        self.step = ft.DecodeStep(SPEC, caches, rows=ROWS, row_tokens=MOST, query_limit=tokens,
                                  **options)
        room = self.step.tokens
        self.qkv = [normal(room, Q + 2 * KV, DIM) for _ in range(2)]
        self.gate_up, self.outs = normal(room, 64), [normal(room, Q, DIM) for _ in range(2)]
        self.acts = [normal(room, 32) for _ in range(2)]

    def __call__(self):
        self.step.plan()
        for n, qkv in enumerate(self.qkv):
            self.acts[n].copy_(self.step.act(n, self.gate_up))
            self.step.attend(n, *qkv.clone().split((Q, KV, KV), 1), self.outs[n])

    def expect(self, twins, lengths, counts):
        used = sum(counts)
        for n, qkv in enumerate(self.qkv):
            q, k, v = qkv.clone().split((Q, KV, KV), 1)
            window = 9 if n in SPEC.window_layers else 0
            out = ft.decode_attention(q, k, v, twins[n], int32(lengths), rope=ft.Rope(theta=5e5),
                                      logits=ft.Logits(window=window), row_tokens=MOST,
                                      query_start_loc=starts_of(counts))
            close(self.outs[n][:used], numpy(out[:used]), 1e-5)
            wanted = cases.silu_and_mul(numpy(self.gate_up[:used]))
            close(self.acts[n][:used], wanted, 1e-5)


def one_capture_serves_every_mix_of_rows():
    for kind in (dense, paged):
        caches = [kind() for _ in range(2)]
        if caches[0].page_table is not None:
            caches[1] = caches[1]._replace(page_table=caches[0].page_table)
        twins = [copy_of(cache) for cache in caches]
        loop = Loop(caches, 10)
        assert loop.step.tokens == 10 and loop.step.query_start_loc.shape == (ROWS + 1,)
        loop.step.capture(loop)
        for cache, twin in zip(caches, twins):
            same_caches(cache, twin)
        for lengths, counts in ((LENGTHS, COUNTS), ([24, 9, 3, 1], [3, 3, 3, 1]),
                                ([5, 5, 5, 5], [0, 0, 0, 0]), ([1, 0, 24, 7], [1, 2, 1, 3])):
            loop.step(lengths, starts_of(counts).tolist())
            loop.expect(twins, lengths, counts)
            for cache, twin in zip(caches, twins):
                close(cache.k, numpy(twin.k), 1e-5)
                same(cache.v, twin.v)
        loop.step([9, 4], starts_of([2, 3]))  # two rows more have no tokens
        assert loop.step.query_start_loc.tolist() == [0, 2, 5, 5, 5]
        loop.expect(twins, [9, 4, 0, 0], [2, 3, 0, 0])
        loop.step.query_start_loc.copy_(starts_of([1, 1, 0, 0]))
        loop.step([10, 5])
        loop.expect(twins, [10, 5, 0, 0], [1, 1, 0, 0])


def rows_grow_by_their_own_tokens():
    caches = [dense() for _ in range(2)]
    loop = Loop(caches, ROWS * MOST, positions=True)
    loop.step.capture(lambda: (loop(), loop.step.advance()))
    loop.step.lengths.copy_(int32([3, 5, 0, 4]))
    loop.step.positions.copy_(int32([2, 4, 0, 3]))
    loop.step(None, starts_of([1, 3, 2, 0]))
    assert loop.step.lengths.tolist() == [4, 8, 0, 4]
    assert loop.step.positions.tolist() == [3, 7, 0, 3]


def rows_do_not_grow_by_tokens_that_were_not_appended():
    lengths = [9, 2, 7, 5]
    for starts, grown in (([0, 2, 3, 7, 7], [2, 1, 0, 0]),  # row 2 has 4 of at most 3 tokens
                          ([0, 3, 1, 3, 4], [3, 0, 2, 1]),  # row 1 has -2
                          ([0, 1, 4, 5, 6], [1, 0, 1, 1]),  # row 1 has 3, its length is 2
                          ([0, 3, 5, 7, 9], [0, 0, 0, 0])):  # 9 of at most 8 in all
        caches = [dense() for _ in range(2)]
        for cache in caches:
            cache.v.fill_(0.5)
        loop = Loop(caches, 8, positions=True)
        loop.step.capture(lambda: (loop(), loop.step.advance()))
        loop.step.positions.copy_(int32(lengths) - 1)
        loop.step(lengths, starts)
        assert loop.step.lengths.tolist() == [a + b for a, b in zip(lengths, grown)]
        assert loop.step.positions.tolist() == [a + b - 1 for a, b in zip(lengths, grown)]
        for cache in caches:
            written = (cache.v != 0.5).flatten(2).any(-1).sum(1)
            assert written.tolist() == grown


def a_step_refuses_what_its_rows_cannot_have():
    caches = [dense() for _ in range(2)]
    loop, plain = Loop(caches, 5, check=True), ft.DecodeStep(SPEC, caches, rows=ROWS)
    loop.step.capture(loop)
    plain.capture(plain.plan)
    for words, call in (
        ("query_start_loc is given, but the step has no query_limit",
         lambda: plain([1], [0, 1])),
        ("query_start_loc is [2], it must be [3] for 2 rows", lambda: loop.step([5, 5], [0, 1])),
        ("query_start_loc is [4], it must be [5] for 4 rows",
         lambda: loop.step(None, [0, 1, 1, 1])),
        ("query_start_loc is [7], the step has 4 rows", lambda: loop.step([5], 7 * [0])),
        ("query_start_loc begins with 1, it must begin with 0", lambda: loop.step([5], [1, 2])),
        ("query_start_loc gives row 0 4 new tokens, limits 0 to 3",
         lambda: loop.step([5], [0, 4])),
        ("query_start_loc gives row 1 -2 new tokens", lambda: loop.step([5, 5], [0, 2, 0])),
        ("query_start_loc ends with 6, the step has 5 tokens",
         lambda: loop.step([5, 5], [0, 3, 6])),
        ("row 1 has length 2, it has 3 new tokens", lambda: loop.step([5, 2], [0, 1, 4])),
    ):
        refused(words, call, (ValueError, figraph.errors.TooLarge))
    q = normal(4, Q, DIM)
    refused("tensor q.0: the array has shape [4, 8, 64], its rows must be the step's 5",
            lambda: loop.step.attend(0, q, q[:, :KV], q[:, :KV]))

    def replace():
        loop.step.query_start_loc = STARTS

    refused("query_start_loc is the tensor that the step reads", replace, (AttributeError,))
    assert plain.query_start_loc is None


def a_batch_without_rows_is_no_work():
    cache, none = paged(), int32([])
    q, k, given = normal(0, Q, DIM), normal(0, KV, DIM), dict(query_start_loc=int32([0]))
    was = copy_of(cache)
    ft.append_kv(k, k, cache, none, row_tokens=2, **given)
    for out, lse in (
        ft.attention(q, cache, none, with_lse=True, row_tokens=2, **given),
        ft.decode_attention(q, k, k.clone(), cache, none, with_lse=True, row_tokens=2, **given),
    ):
        assert out.shape == (0, Q, DIM) and lse.shape == (0, Q)
    same_caches(cache, was)


CASES = [
    a_batch_without_rows_is_no_work,
    rows_of_unequal_numbers_of_tokens_are_right,
    what_rows_have_in_common_is_a_dim_of_tokens,
    rope_stands_at_each_token,
    every_mix_of_rows_is_one_program,
    results_go_where_the_caller_says,
    heads_first_and_bytes_are_served_too,
    more_tokens_than_q_has_are_no_step,
    a_compiled_call_is_the_eager_one,
    each_operator_is_what_its_schema_says,
    what_is_wrong_is_told_by_its_name,
    one_capture_serves_every_mix_of_rows,
    rows_grow_by_their_own_tokens,
    rows_do_not_grow_by_tokens_that_were_not_appended,
    a_step_refuses_what_its_rows_cannot_have,
]
if __name__ == "__main__":
    run(CASES)
