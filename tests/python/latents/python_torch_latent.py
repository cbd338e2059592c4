"""python_torch_latent.py: compares figraph.torch over latent caches (MLA) with float64.

    tests/python/latents/python_torch_latent.py [DEVICE]

Run where torch and figraph can be imported. tests/gpu/torch_step.py captures such calls.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import figraph.torch as ft  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from figraph import ffi  # noqa: E402
from python_torch import DEVICE, cases, close, normal, numpy, refused, run  # noqa: E402

ROWS, HEADS, PAGE, COLUMNS, MOST = 4, 16, 8, 3, 3
ROOM = PAGE * COLUMNS
SCALE = 0.0625
LENGTHS = [24, 1, 25, 11]  # row 2 has more tokens than its cache holds
COUNTS = [2, 1, 1, 3]
ROPE = ft.Rope(theta=5e5, interleaved=True)
TURNS = dict(theta=5e5, interleave=True)


def int32(numbers):
    return torch.tensor(numbers, dtype=torch.int32, device=DEVICE)


SEEN = int32(LENGTHS)
STARTS = int32([0, 2, 3, 4, 7])


def codes(*shape):
    """Returns random tokens of codes."""
    count = int(np.prod(shape))
    made = torch.randint(0, 0x78, (count, 656), dtype=torch.uint8)
    made[:, :512] |= torch.randint(0, 2, (count, 512), dtype=torch.uint8) << 7
    made[:, 512:528] = (torch.rand(count, 4) / 50 + 0.01).view(torch.uint8)
    made[:, 528:] = torch.randn(count, 64).bfloat16().view(torch.uint8)
    return made.reshape(*shape, 656).to(DEVICE)


def tokens_like(dtype, *shape):
    return codes(*shape) if dtype is torch.uint8 else normal(*shape, 576, dtype=dtype)


def dense(dtype=torch.float32):
    return ft.LatentCache(tokens_like(dtype, ROWS, ROOM))


def paged(dtype=torch.float32):
    order = torch.randperm(ROWS * COLUMNS, generator=torch.Generator().manual_seed(4))
    table = order.to(torch.int32).reshape(ROWS, COLUMNS).to(DEVICE)
    return ft.LatentCache(tokens_like(dtype, ROWS * COLUMNS, PAGE), table)


def kinds():
    """Yields caches, and the dtype of q over each."""
    for make in (dense, paged):
        yield make(), torch.float32
        yield make(torch.bfloat16), torch.bfloat16
        yield make(torch.uint8), torch.bfloat16
        yield make(torch.uint8), torch.float16


def copy_of(cache):
    return cache._replace(latents=cache.latents.clone())


def tokens_of(cache, row):
    """Returns the tokens of a row in order, as numbers or bytes."""
    rows = cache.latents
    if cache.page_table is not None:
        rows = rows[cache.page_table.long()].flatten(1, 2)
    kept = rows[row].cpu()
    return kept.numpy() if kept.dtype == torch.uint8 else numpy(kept)


def logits(**more):
    return ft.Logits(scale=SCALE, **more)


def plan_of(cache, dtype, **more):
    return ft.plan(SEEN, dtype=dtype, q_heads=HEADS, cache=cache, **more)


def each_query(counts):
    """Yields the number, the row and the visible tokens of each query; 0 if the row is idle."""
    number = 0
    for row, count in enumerate(counts):
        for back in range(count, 0, -1):
            idle = not count <= LENGTHS[row] <= ROOM
            yield number, row, 0 if idle else LENGTHS[row] - back + 1
            number += 1


def tolerance_of(dtype):
    return {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]


def right(out, lse, q, cache, counts=(1,) * ROWS, **more):
    assert out.shape == (*q.shape[:-1], 512) and out.dtype == q.dtype
    assert lse.shape == q.shape[:-1] and lse.dtype == torch.float32
    for number, row, seen in each_query(counts):
        wanted = cases.latent_attention(numpy(q[number]), tokens_of(cache, row)[:seen], SCALE,
                                        **more)
        close(out[number], wanted[0], tolerance_of(q.dtype))
        close(lse[number], wanted[1], 1e-3)


def attention_is_right_over_every_kind_of_cache():
    for cache, dtype in kinds():
        q = normal(ROWS, HEADS + 2, 576, dtype=dtype)[:, 1:-1]  # a view
        for plan in (None, plan_of(cache, dtype)):
            out, lse = ft.latent_attention(q, cache, SEEN, plan=plan, logits=logits(),
                                           with_lse=True)
            right(out, lse, q, cache)
            assert torch.equal(out, ft.latent_attention(q, cache, SEEN, plan=plan,
                                                        logits=logits()))


def parts_of(q):
    """Returns q's first 512 and last 64 values in two tensors with random strides. The first one
    has its heads in front of its rows, as a batched product leaves them."""
    gap = 8 * int(torch.randint(0, 3, ()))
    first = q[..., :512].movedim(-2, 0).contiguous().movedim(0, -2)
    room = torch.zeros(*q.shape[:-1], 128 + gap, dtype=q.dtype, device=q.device)
    room[..., gap : gap + 64] = q[..., 512:]
    return first, room[..., gap : gap + 64]


def q_in_two_tensors_gives_the_bits_of_one():
    def alike(one, two, tokens):
        return all(torch.equal(a[:tokens], b[:tokens]) for a, b in zip(one, two))

    for n, (was, dtype) in enumerate(kinds()):
        for shape, given in (((ROWS,), {}), ((1,), {}), ((ROWS, 3), {}),
                             ((8,), dict(query_start_loc=STARTS, row_tokens=MOST))):
            rows, used = (ROWS, sum(COUNTS)) if given else (shape[0], shape[0])
            q, latent = (normal(*shape, *dims, 576, dtype=dtype) for dims in ([HEADS], []))
            first, rope = parts_of(q)
            more = dict(logits=logits(window=5 * (n % 2)), with_lse=True, **given)
            one, two = copy_of(was), copy_of(was)
            assert alike(ft.latent_attention(q, one, SEEN[:rows], **more),
                         ft.latent_attention(first, two, SEEN[:rows], q_rope=rope, **more), used)
            more.update(norm=normal(512, dtype=dtype), rope=ROPE)
            assert alike(ft.latent_decode(q, latent, one, SEEN[:rows], **more),
                         ft.latent_decode(first, latent, two, SEEN[:rows], q_rope=rope, **more),
                         used)
            assert torch.equal(one.latents, two.latents)
            assert torch.equal(first[:used], q[:used, ..., :512])
            assert torch.equal(rope[:used], q[:used, ..., 512:])


def windows_and_sinks_are_as_asked():
    cache, q = paged(torch.bfloat16), normal(ROWS, HEADS, 576, dtype=torch.bfloat16)
    for window in (0, 5):
        for sinks in (None, normal(HEADS)):
            more = dict(logits=logits(window=window), sinks=sinks, with_lse=True)
            for plan in (None, plan_of(cache, q.dtype, window=window)):
                out, lse = ft.latent_attention(q, cache, SEEN, plan=plan, **more)
                right(out, lse, q, cache, window=window,
                      sinks=None if sinks is None else numpy(sinks))


def appended(cache, was, latent, counts, places=None, weight=None, **angles):
    """Checks that the step's tokens are in the cache, and that the others stayed."""
    kept = [tokens_of(was, row).copy() for row in range(ROWS)]
    for number, row, seen in each_query(counts):
        if seen == 0:
            continue
        at = seen - 1 if places is None else int(places[number])
        due = cases.latent_token(numpy(latent[number]), at, weight, 1e-5, **angles)
        got = cases.latents(tokens_of(cache, row)[seen - 1 : seen])[0]
        rough = 0.07 if cache.latents.dtype == torch.uint8 else tolerance_of(latent.dtype)
        np.testing.assert_allclose(got[:512], due[:512], rough, rough / 2)
        np.testing.assert_allclose(got[512:], due[512:], 2e-2, 2e-2)
        kept[row][seen - 1] = tokens_of(cache, row)[seen - 1]
    for row in range(ROWS):
        np.testing.assert_array_equal(tokens_of(cache, row), kept[row])


def turned(q, counts, places=None, **angles):
    """Returns q as latent_decode rotates it, in q's dtype."""
    at = [max(seen - 1, 0) for _, _, seen in each_query(counts)] if places is None else places
    ends = cases.rope(numpy(q[..., 512:]), numpy(at) if torch.is_tensor(at) else at, **angles)
    return torch.cat((q[..., :512], torch.from_numpy(ends).to(q)), -1)


def a_step_is_rope_norm_append_and_attention():
    places = int32([100, 7, 0, 2000])
    angle = torch.arange(2048, dtype=torch.float64)[:, None] * 1e4 ** (
        -torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    table = torch.cat((angle.cos(), angle.sin()), 1).float().to(DEVICE)
    ways = [(dict(rope=ROPE), None, TURNS), (dict(), None, {}),
            (dict(positions=places), places, {}), (dict(positions=places.long()), places, {}),
            (dict(positions=places, cos_sin_cache=table), places, {})]
    for n, (was, dtype) in enumerate(kinds()):
        latent = normal(ROWS, 640, dtype=dtype)[:, 32:-32]
        for m, (way, at, angles) in enumerate(ways):
            weight = normal(512, dtype=dtype) if (n + m) % 2 else None
            q, cache = normal(ROWS, HEADS, 576, dtype=dtype), copy_of(was)
            plan = plan_of(cache, dtype) if m % 2 else None
            wanted = turned(q, (1,) * ROWS, at, **angles)
            out, lse = ft.latent_decode(q, latent, cache, SEEN, plan=plan, norm=weight,
                                        norm_epsilon=1e-5, logits=logits(), with_lse=True, **way)
            weight = None if weight is None else numpy(weight)
            appended(cache, was, latent, (1,) * ROWS, at, weight, **angles)
            right(out, lse, wanted, cache)


def rows_may_have_several_tokens():
    """Equal numbers give the same as packed ones, bit for bit."""
    for n, (was, dtype) in enumerate(kinds()):
        each = 2 if n % 2 else 11
        q = normal(ROWS * each, HEADS, 576, dtype=dtype)
        latent, counts = normal(ROWS * each, 576, dtype=dtype), [each] * ROWS
        starts, one, two = int32(range(0, each * ROWS + 1, each)), copy_of(was), copy_of(was)
        given = dict(query_start_loc=starts, row_tokens=each)
        wanted = turned(q, counts, **TURNS)
        equal = ft.latent_decode(q.clone().unflatten(0, (ROWS, each)),
                                 latent.unflatten(0, (ROWS, each)), one, SEEN, rope=ROPE,
                                 logits=logits(), with_lse=True)
        packed = ft.latent_decode(q.clone(), latent, two, SEEN, rope=ROPE, logits=logits(),
                                  with_lse=True, **given)
        assert torch.equal(equal[0].flatten(0, 1), packed[0])
        assert torch.equal(equal[1].flatten(0, 1), packed[1])
        assert torch.equal(one.latents, two.latents)
        appended(one, was, latent, counts, weight=None, **TURNS)
        right(*packed, wanted, two, counts)


def rows_of_unequal_numbers_of_tokens_are_right():
    used = sum(COUNTS)
    for was, dtype in kinds():
        for window in (0, 5):
            given = dict(query_start_loc=STARTS, row_tokens=MOST)
            room = used + 2  # tokens of q, of which no row has the last two
            q, latent = (normal(room, *dims, 576, dtype=dtype) for dims in ([HEADS], []))
            lent = plan_of(was, dtype, window=window, tokens=room, **given)
            for plan in (None, lent):
                cache, mine = copy_of(was), q.clone()
                out, lse = ft.latent_decode(mine, latent, cache, SEEN, plan=plan, rope=ROPE,
                                            logits=logits(window=window), with_lse=True, **given)
                appended(cache, was, latent, COUNTS, **TURNS)
                wanted = turned(q[:used], COUNTS, **TURNS)
                right(out[:used], lse[:used], wanted, cache, COUNTS, window=window)
                again = ft.latent_attention(wanted, cache, SEEN, logits=logits(window=window),
                                            with_lse=True, **given)
                right(*again, wanted, cache, COUNTS, window=window)


def results_go_where_the_caller_says():
    cache, q = paged(torch.uint8), normal(ROWS, HEADS, 576, dtype=torch.float16)
    latent, room = normal(ROWS, 576, dtype=torch.float16), normal(ROWS, HEADS + 1, 512).half()
    for plan in (None, plan_of(cache, q.dtype)):
        out = room[:, 1:]
        wanted, lse = ft.latent_attention(q, cache, SEEN, logits=logits(), with_lse=True)
        assert ft.latent_attention(q, cache, SEEN, plan=plan, logits=logits(), out=out) is out
        close(out, numpy(wanted), 4e-3)
        mine = ft.latent_attention(q, cache, SEEN, plan=plan, logits=logits(), out=out,
                                   with_lse=True)
        assert mine[0] is out
        close(mine[1], numpy(lse), 1e-3)
        mine = ft.latent_decode(q.clone(), latent, copy_of(cache), SEEN, plan=plan, logits=logits(),
                                out=out)
        assert mine is out


def deterministic_bits_follow_from_the_row_alone():
    cache, q = paged(), normal(ROWS, HEADS, 576)
    mine = ft.latent_attention(q, cache, SEEN, logits=logits(), deterministic=True)
    for row in (0, 3):
        one = cache._replace(page_table=cache.page_table[row:])
        alone = ft.latent_attention(q[row : row + 1], one, SEEN[row : row + 1], logits=logits(),
                                    deterministic=True)
        assert torch.equal(alone[0], mine[row])


def a_compiled_call_is_the_eager_one():
    def step(q, latent, latents, table, lengths, weight):
        cache = ft.LatentCache(latents, table)
        lent = ft.plan(lengths, dtype=q.dtype, q_heads=HEADS, cache=cache, window=9)
        out = ft.latent_decode(q, latent * 2, cache, lengths, plan=lent, norm=weight, rope=ROPE,
                               logits=logits(window=9))
        return out * 2, ft.latent_attention(q, cache, lengths, logits=logits(), with_lse=True)

    backend = "aot_eager" if DEVICE == "cpu" else "inductor"
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for dtype in (torch.bfloat16, torch.uint8):
        mine = paged(dtype)
        theirs = copy_of(mine)
        q, latent = (normal(ROWS, *dims, 576, dtype=torch.bfloat16) for dims in ([HEADS], []))
        weight, other_q = normal(512, dtype=torch.bfloat16), q.clone()
        for lengths in (SEEN, SEEN - 3):
            eager = step(q, latent, *mine, lengths, weight)
            other = compiled(other_q, latent, *theirs, lengths, weight)
            for a, b in zip((eager[0], *eager[1]), (other[0], *other[1])):
                close(b, numpy(a), 1e-6)
            assert torch.equal(mine.latents, theirs.latents)


def each_operator_is_what_its_schema_says():
    ops, angles = torch.ops.figraph, (64, True, 1.0, 1e4, 0.0, 0.0, 0.0, 0)
    for cache in (dense(torch.bfloat16), paged(torch.uint8)):
        q = normal(ROWS, HEADS, 576, dtype=torch.bfloat16)
        latent, weight = normal(ROWS, 576).bfloat16(), normal(512).bfloat16()
        outs = (normal(ROWS, HEADS, 512).bfloat16(), normal(ROWS, HEADS))
        held = (cache.latents, SEEN, cache.page_table, None, 0)
        asked = (*plan_of(cache, q.dtype), None, 0, 0.0, SCALE, False)
        new = (weight, 1e-6, *angles, None, None)
        page = 0 if cache.page_table is None else PAGE
        holds = torch.bfloat16 if page == 0 else torch.float8_e4m3fn
        for op, given in {
            ops.latent_attention: (*parts_of(q), *held, *asked, True),
            ops.latent_attention_out: (q, None, *held, *asked, *outs),
            ops.latent_decode: (*parts_of(q), latent, *held, *asked, *new, True),
            ops.latent_decode_out: (q, None, latent, *held, *asked, *new, *outs),
            ops.plan: (SEEN, q.dtype, HEADS, 1, 576, page, ROOM, holds, 0, 1, False, None, None, 0,
                       512),
        }.items():
            whole = ("test_schema", "test_autograd_registration", "test_faketensor",
                     "test_aot_dispatch_dynamic")
            torch.library.opcheck(op.default, given, test_utils=whole[: 3 if "plan" in str(op)
                                                                      else 4])


def numbers_and_kinds_are_told_by_name():
    q, cache = normal(ROWS, HEADS, 576), paged()
    latent, table = normal(ROWS, 576), cache.page_table
    narrow = paged(torch.uint8)
    pair = ft.Cache(normal(6, 8, 4, 64), normal(6, 8, 4, 64))

    def attend(q=q, cache=cache, **more):
        return ft.latent_attention(q, cache, SEEN, **{**dict(logits=logits()), **more})

    def decode(**more):
        return ft.latent_decode(q, latent, cache, SEEN, **{**dict(logits=logits()), **more})

    lent, (first, rope) = plan_of(narrow, torch.bfloat16), parts_of(q)

    def apart(first=first, rope=rope):
        return attend(q=first, q_rope=rope)

    for words, call in (
        ("cache is a Cache, it must be a LatentCache", lambda: attend(cache=pair)),
        ("logits.scale is 0, it must be given", lambda: attend(logits=ft.Logits())),
        ("logits.scale is -1.0, it must be finite", lambda: attend(logits=ft.Logits(scale=-1.0))),
        ("logits.soft_cap is 5.0, it must be 0",
         lambda: attend(logits=logits(soft_cap=5.0))),
        ("logits.window is -1", lambda: attend(logits=logits(window=-1))),
        ("q is [4, 12, 576], its heads must be a multiple of 8",
         lambda: attend(q=normal(ROWS, 12, 576))),
        ("q is [4, 136, 576], its heads must be a multiple of 8, limit 128",
         lambda: attend(q=normal(ROWS, 136, 576))),
        ("q is [4, 16, 512], it must be [4, 16, 576]", lambda: attend(q=q[..., :512])),
        ("cache.latents is uint8, but q is float32", lambda: attend(cache=narrow)),
        ("cache.latents is float32, it must be float16 or uint8", lambda: attend(q=q.half())),
        ("cache.latents is [12, 8, 576], it must be [any, any, 656]",
         lambda: attend(q=q.half(), cache=ft.LatentCache(narrow.latents[..., :576], table))),
        ("plan.plan is", lambda: attend(plan=ft.Plan(lent.plan[1:], lent.scratch))),
        ("plan and scratch: one is given", lambda: attend(plan=ft.Plan(lent.plan, None))),
        ("rope.rotary_dim is 32, it must be 64",
         lambda: decode(rope=ft.Rope(rotary_dim=32))),
        ("norm_epsilon is 0.0, it must be above 0",
         lambda: decode(norm=normal(512), norm_epsilon=0.0)),
        ("cos_sin_cache is given without positions",
         lambda: decode(cos_sin_cache=normal(32, 64))),
        ("cos_sin_cache is [32, 32], it must be [any, 64]",
         lambda: decode(positions=SEEN, cos_sin_cache=normal(32, 32))),
        ("row_tokens is 3, but query_start_loc is not given", lambda: attend(row_tokens=3)),
        ("layout is given, but a latent cache has none",
         lambda: plan_of(cache, q.dtype, layout="hnd")),
        ("kv_dtype is given, but a latent cache has none",
         lambda: plan_of(narrow, torch.bfloat16, kv_dtype="fp8")),
        ("cache.latents is uint8, but q is float32", lambda: plan_of(narrow, q.dtype)),
        ("q_heads is 12, it must be a multiple of 8",
         lambda: ft.plan(SEEN, dtype=q.dtype, q_heads=12, cache=cache)),
        ("tensor out: overlaps tensor q", lambda: attend(out=q[..., :512])),
        ("q is [4, 16, 576], its last dim must be 512 beside q_rope", lambda: apart(q)),
        ("q_rope is [4, 16, 32], it must be [4, 16, 64] like q",
         lambda: apart(rope=rope[..., :32])),
        ("q_rope is [4, 8, 64], it must be [4, 16, 64] like q", lambda: apart(rope=rope[:, :8])),
        ("q_rope is [3, 16, 64], it must be [4, 16, 64] like q", lambda: apart(rope=rope[:3])),
        ("q_rope is [16, 64], it must be [4, 16, 64] like q", lambda: apart(rope=rope[0])),
        ("q_rope is float16, it must be float32", lambda: apart(rope=rope.half())),
        ("the elements of its last dim must lie side by side",
         lambda: apart(rope=torch.stack((rope, rope), -1)[..., 0])),
        ("q_rope: strides[0] is 0, it must be positive",
         lambda: apart(rope=rope[:1].expand(ROWS, -1, -1))),
        ("tensor q_rope: overlaps tensor out",
         lambda: attend(q=first, q_rope=q[..., 512:], out=q[..., 64:])),
    ):
        refused(words, call)


def the_documented_output_is_the_real_one():
    with open(os.path.join(HERE, "../../../docs/python.md"), encoding="utf-8") as page:
        shown = page.read().split("```python\ndef attend_latents(")[1].split("```")[0]
    names = dict(ft=ft)
    exec("def attend_latents(" + shown, names)
    q, latent = (normal(ROWS, *dims, 576, dtype=torch.bfloat16) for dims in ([HEADS], []))
    was, weight, scale = paged(torch.uint8), normal(512).bfloat16(), ft.Logits(scale=192**-0.5)
    cache, twin, out = copy_of(was), copy_of(was), torch.zeros_like(q[..., :512])
    assert names["attend_latents"](q.clone(), latent, *cache, SEEN, weight, out) is out
    wanted = ft.latent_decode(q, latent, twin, SEEN, norm=weight, logits=scale,
                              rope=ft.Rope(interleaved=True))
    close(out, numpy(wanted), 2e-2)
    assert torch.equal(cache.latents, twin.latents)


def a_batch_without_rows_is_no_work():
    q, latent, none = normal(0, HEADS, 576), normal(0, 576), SEEN[:0]
    for was in (dense(), paged()):
        for given in ({}, dict(query_start_loc=int32([0]), row_tokens=2)):
            cache = copy_of(was)
            for out, lse in (
                ft.latent_attention(q, cache, none, logits=logits(), with_lse=True, **given),
                ft.latent_decode(q, latent, cache, none, norm=normal(512), logits=logits(),
                                 with_lse=True, **given),
            ):
                assert out.shape == (0, HEADS, 512) and lse.shape == (0, HEADS)
            assert torch.equal(cache.latents, was.latents)


def calls_make_no_more_runners():
    cache, made = paged(torch.uint8), None
    q, latent = (normal(ROWS, *dims, 576, dtype=torch.bfloat16) for dims in ([HEADS], []))
    for length in range(4):
        lent = plan_of(cache, q.dtype)
        ft.latent_decode(q, latent, cache, SEEN - length, plan=lent, logits=logits())
        ft.latent_attention(q, cache, SEEN - length, plan=lent, logits=logits())
        made = made or ffi.counts().missed
    assert ffi.counts().missed == made


CASES = [
    attention_is_right_over_every_kind_of_cache,
    q_in_two_tensors_gives_the_bits_of_one,
    windows_and_sinks_are_as_asked,
    a_step_is_rope_norm_append_and_attention,
    rows_may_have_several_tokens,
    rows_of_unequal_numbers_of_tokens_are_right,
    results_go_where_the_caller_says,
    deterministic_bits_follow_from_the_row_alone,
    a_compiled_call_is_the_eager_one,
    each_operator_is_what_its_schema_says,
    numbers_and_kinds_are_told_by_name,
    the_documented_output_is_the_real_one,
    a_batch_without_rows_is_no_work,
    calls_make_no_more_runners,
]
if __name__ == "__main__":
    run(CASES)
