"""python_jax_packed.py: compares figraph.jax, for rows with unequal numbers of query tokens, with
float64 references, on the CPU.

query_start_loc says where the tokens of each row begin. Run where jax and figraph can be imported.
"""

import functools
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../support"), os.path.join(HERE, "../jax")]
import cases  # noqa: E402
import figraph.jax as fj  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from cases import close  # noqa: E402
from sentences import refused, run  # noqa: E402

ROWS, ROOM, PAGE, Q, KV, DIM, MOST = 4, 24, 8, 8, 4, 64, 3
COUNTS, LENGTHS = [2, 0, 3, 1], [24, 7, 12, 25]  # row 3 has more tokens than its cache holds
USED, EXTRA = sum(COUNTS), 2  # tokens of q: of rows, and of no row
numbers = np.random.default_rng(7)


def normal(*shape, dtype=np.float32):
    return numbers.standard_normal(shape).astype(dtype)


def int32(of):
    return np.asarray(of, np.int32)


def starts_of(counts):
    return int32([0, *np.cumsum(counts)])


STARTS, SEEN = starts_of(COUNTS), int32(LENGTHS)


def dense():
    return fj.Cache(normal(ROWS, ROOM, KV, DIM), normal(ROWS, ROOM, KV, DIM))


def paged():
    pages = ROOM // PAGE * ROWS
    table = np.random.default_rng(2).permutation(pages).astype(np.int32).reshape(ROWS, -1)
    return fj.Cache(normal(pages, PAGE, KV, DIM), normal(pages, PAGE, KV, DIM), table)


def heads(tokens=USED + EXTRA):
    return normal(tokens, Q, DIM), normal(tokens, KV, DIM), normal(tokens, KV, DIM)


def tokens_of(cache, row):
    if cache.page_table is None:
        return [np.asarray(x[row]) for x in (cache.k, cache.v)]
    pages = np.asarray(cache.page_table)[row]
    return [np.asarray(x)[pages].reshape(-1, KV, DIM) for x in (cache.k, cache.v)]


def each_token(counts=COUNTS, lengths=LENGTHS):
    """Yields the number, the row and the visible tokens of each query token; 0 if it is idle."""
    number = 0
    for row, (count, length) in enumerate(zip(counts, lengths)):
        for back in range(count, 0, -1):
            yield number, row, length - back + 1 if count <= length <= ROOM else 0
            number += 1


def right(out, lse, q, cache, rows=(COUNTS, LENGTHS), tolerance=1e-5):
    for number, row, seen in each_token(*rows):
        keys, values = (x[:seen] for x in tokens_of(cache, row))
        wanted = cases.attention(q[number], keys, values)
        close(out[number], wanted[0], tolerance)
        close(lse[number], wanted[1], tolerance)


def plan_of(cache, q, **more):
    given = dict(dtype=q.dtype, q_heads=Q, cache=cache, query_start_loc=STARTS, row_tokens=MOST,
                 tokens=q.shape[0])
    return fj.plan(SEEN, **{**given, **more})


GIVEN = dict(query_start_loc=STARTS, row_tokens=MOST)


def rows_of_unequal_numbers_of_tokens_are_right():
    for kind in (dense, paged):
        was, (q, k, v) = kind(), heads()
        for planned in (False, True):
            lent = plan_of(was, q) if planned else None
            cache = fj.append_kv(k, v, was, SEEN, plan=lent, **GIVEN)
            out, _, lse = fj.attention(q, cache, SEEN, plan=lent, with_lse=True, **GIVEN)
            right(out, lse, q, cache)
            lent = plan_of(was, q) if planned else None
            fused = fj.decode_attention(q, k, v, was, SEEN, rope=None, plan=lent, with_lse=True,
                                        **GIVEN)
            close(fused.out[:USED], out[:USED], 0)
            close(fused.lse[:USED], lse[:USED], 0)
            for mine, theirs in zip(fused.cache[:2], cache[:2]):
                close(mine, theirs, 0)
            for number, row, seen in each_token():
                for mine, theirs, new in zip(tokens_of(cache, row), tokens_of(was, row), (k, v)):
                    if seen > 0:
                        close(mine[seen - 1], new[number], 0)
                    else:
                        close(mine, theirs, 0)


def rope_uses_the_position_of_each_token():
    q, k, v = heads()
    was, rope = paged(), fj.Rope(theta=5e5)
    places = int32([max(seen - 1, 0) for _, _, seen in each_token()] + EXTRA * [0])
    angle = np.arange(128.0)[:, None] * 5e5 ** (-np.arange(0, DIM, 2) / DIM)
    table = np.concatenate((np.cos(angle), np.sin(angle)), 1).astype(np.float32)
    for shift in (0, 60):
        at = places + np.int32(shift)
        turned = fj.apply_rope(q, k, at, rope)
        two = fj.append_kv(turned[1], v, was, SEEN, **GIVEN)
        wanted = fj.attention(turned[0], two, SEEN, **GIVEN).out
        ways = [dict(rope=rope, positions=at), dict(positions=at, cos_sin_cache=table),
                dict(rope=rope, plan=plan_of(was, q, positions=SEEN - 1 + np.int32(shift)))]
        ways += [dict(rope=rope)] if shift == 0 else []
        for way in ways:
            got = fj.decode_attention(q, k, v, was, SEEN, **GIVEN, **way)
            busy = sum(COUNTS[:3])
            close(got.out[:busy], np.asarray(wanted[:busy]), 1e-3)
            close(got.cache.k, np.asarray(two.k), 1e-4)


def one_compiled_function_serves_every_mix():
    """Caches are donated and grow in place; lengths and starts are traced."""
    traces, most = [], 8

    @functools.partial(jax.jit, donate_argnums=3)
    def step(q, k, v, cache, lengths, starts):
        traces.append(1)
        lent = fj.plan(lengths, dtype=q.dtype, q_heads=Q, cache=cache, query_start_loc=starts,
                       tokens=q.shape[0])
        got = fj.decode_attention(q, k, v, cache, lengths, rope=None, plan=lent, with_lse=True,
                                  query_start_loc=starts)
        return got.out, got.lse, got.cache

    for kind in (dense, paged):
        cache = jax.tree_util.tree_map(jnp.asarray, kind())
        for _ in range(6):
            counts = numbers.integers(0, most + 1, ROWS).tolist()
            own = numbers.integers(0, ROOM + 2, ROWS).tolist()
            q, k, v = heads(ROWS * most)
            out, lse, cache = step(q, k, v, cache, int32(own), starts_of(counts))
            right(out, lse, q, cache, (counts, own))
    assert len(traces) == 2


def a_step_with_more_tokens_than_q_is_not_run():
    was, (q, k, v) = dense(), heads(5)
    for lent in (None, plan_of(was, q)):
        cache = fj.append_kv(k, v, was, SEEN, plan=lent, **GIVEN)
        close(cache.k, was.k, 0)
        close(cache.v, was.v, 0)


class Model:
    """Two layers; the rows' tokens are an input of each step."""

    def __init__(self):
        self.traces = 0

    def __call__(self, params, state, qkv, starts):
        self.traces += 1
        outs = []
        for n in range(2):
            q, k, v = jnp.split(qkv[n], (Q, Q + KV), 1)
            out, state = state.attend(n, q, k, v, query_start_loc=starts, row_tokens=MOST)
            outs.append(out)
        return outs, state


def a_step_makes_rows_longer_by_their_tokens():
    model, lengths = Model(), [5, 0, 3, 9]
    step = fj.DecodeStep(model)
    caches = [dense(), dense()]
    twins = list(caches)
    state = fj.State([jax.tree_util.tree_map(jnp.array, cache) for cache in caches],
                     jnp.asarray(int32(lengths)))
    for counts in ([2, 1, 3, 0], [1, 3, 0, 2]):
        qkv = normal(2, ROWS * MOST, Q + 2 * KV, DIM)
        starts, used = starts_of(counts), sum(counts)
        outs, state = step((), state, qkv, starts)
        for n in range(2):
            q, k, v = np.split(qkv[n], (Q, Q + KV), 1)
            got = fj.decode_attention(q, k, v, twins[n], int32(lengths), query_start_loc=starts,
                                      row_tokens=MOST)
            twins[n] = got.cache
            close(outs[n][:used], np.asarray(got.out[:used]), 1e-5)
        lengths = [length + count if length > 0 else 0 for length, count in zip(lengths, counts)]
        assert np.asarray(state.lengths).tolist() == lengths
    assert model.traces == 1


def rows_do_not_grow_by_tokens_that_were_not_appended():
    model, lengths = Model(), [9, 2, 7, 5]
    step = fj.DecodeStep(model)
    for starts, grown in (([0, 2, 3, 7, 7], [2, 1, 0, 0]),  # row 2 has 4 of at most 3 tokens
                          ([0, 3, 1, 3, 4], [3, 0, 2, 1]),  # row 1 has -2
                          ([0, 1, 4, 5, 6], [1, 0, 1, 1]),  # row 1 has 3, its length is 2
                          ([0, 3, 5, 7, 9], [0, 0, 0, 0])):  # 9 of at most 8 in all
        caches = [fj.Cache(*(jnp.full((ROWS, ROOM, KV, DIM), 0.5) for _ in "kv"))
                  for _ in range(2)]
        state = fj.State(caches, jnp.asarray(int32(lengths)))
        _, state = step((), state, normal(2, 8, Q + 2 * KV, DIM), int32(starts))
        assert np.asarray(state.lengths).tolist() == [a + b for a, b in zip(lengths, grown)]
        for cache in state.caches:
            written = (np.asarray(cache.v) != 0.5).any((2, 3)).sum(1)
            assert written.tolist() == grown
    assert model.traces == 1


def mistakes_are_refused_while_jax_traces():
    q, k, v = heads()
    cache = paged()
    by_row = normal(ROWS, 2, Q, DIM)
    for words, call in (
        ("query_start_loc is [4], it must be [5] like lengths",
         lambda: fj.attention(q, cache, SEEN, query_start_loc=STARTS[:-1])),
        ("query_start_loc is [6], it must be [5] like lengths",
         lambda: plan_of(cache, q, query_start_loc=int32(6 * [0]))),
        ("query_start_loc is float32, it must be int32",
         lambda: fj.append_kv(k, v, cache, SEEN, query_start_loc=STARTS.astype(np.float32))),
        ("q is [4, 2, 8, 64], it must be [any, any, any]",
         lambda: fj.attention(by_row, cache, SEEN, **GIVEN)),
        ("row_tokens is 2, but query_start_loc is not given: q says",
         lambda: fj.attention(q, cache, SEEN, row_tokens=2)),
        ("row_tokens is 4097, limits 0 to 4096",
         lambda: fj.attention(q, cache, SEEN, query_start_loc=STARTS, row_tokens=4097)),
        ("row_tokens is 2.5, it must be a whole number",
         lambda: fj.attention(q, cache, SEEN, query_start_loc=STARTS, row_tokens=2.5)),
        ("tokens is 5, it must be 0 without query_start_loc",
         lambda: fj.plan(SEEN, dtype=q.dtype, q_heads=Q, cache=cache, tokens=5)),
        ("tokens is -5, it must be 0 or more", lambda: plan_of(cache, q, tokens=-5)),
        ("plan.plan was made for 8 query tokens, and there is room for 7: say tokens=q.shape[0]",
         lambda: fj.attention(q[1:], cache, SEEN, plan=plan_of(cache, q), **GIVEN)),
        ("k is [7, 4, 64], it must be [8, 4, 64]",
         lambda: fj.decode_attention(q, k[1:], v, cache, SEEN, **GIVEN)),
        ("positions is [4], it must be [8] like q",
         lambda: fj.decode_attention(q, k, v, cache, SEEN, positions=SEEN, **GIVEN)),
        ("figraph.jax.attention under vmap",
         lambda: jax.vmap(lambda one: fj.attention(one, cache, SEEN, **GIVEN).out)(
             np.stack((q, q)))),
    ):
        refused(words, call)
        refused(words, lambda: jax.jit(lambda: call())())


CASES = [
    rows_of_unequal_numbers_of_tokens_are_right,
    rope_uses_the_position_of_each_token,
    one_compiled_function_serves_every_mix,
    a_step_with_more_tokens_than_q_is_not_run,
    a_step_makes_rows_longer_by_their_tokens,
    rows_do_not_grow_by_tokens_that_were_not_appended,
    mistakes_are_refused_while_jax_traces,
]
if __name__ == "__main__":
    run(CASES)
