"""python_jax_latent.py: compares figraph.jax over latent caches (MLA) with float64, on the CPU.

Run where jax and figraph can be imported.
"""

import functools
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../support"), os.path.join(HERE, "../../jax")]
import cases  # noqa: E402
import figraph  # noqa: E402
import figraph.jax as fj  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from cases import close  # noqa: E402
from sentences import refused, run  # noqa: E402

ROWS, HEADS, PAGE, COLUMNS, MOST = 4, 16, 8, 3, 3
ROOM = PAGE * COLUMNS
SCALE = 0.0625
LENGTHS, COUNTS = [24, 1, 25, 11], [2, 1, 1, 3]  # row 2 has more tokens than its cache holds
ROPE, TURNS = fj.Rope(theta=5e5, interleaved=True), dict(theta=5e5, interleave=True)
numbers = np.random.default_rng(11)


def normal(*shape, dtype=jnp.float32):
    return jnp.asarray(numbers.standard_normal(shape), dtype)


def int32(of):
    return np.asarray(of, np.int32)


SEEN = int32(LENGTHS)
GIVEN = dict(query_start_loc=int32([0, *np.cumsum(COUNTS)]), row_tokens=MOST)


def codes(*shape):
    """Returns random tokens of codes."""
    count = int(np.prod(shape))
    signs = numbers.integers(0, 2, (count, 512), np.uint8) << 7
    scales = (numbers.random((count, 4)) / 50 + 0.01).astype(np.float32)
    ends = np.asarray(normal(count, 64, dtype=jnp.bfloat16))
    return np.concatenate((numbers.integers(0, 0x78, (count, 512), np.uint8) | signs,
                           scales.view(np.uint8), ends.view(np.uint8)), 1).reshape(*shape, 656)


def tokens_like(dtype, *shape):
    return jnp.asarray(codes(*shape)) if dtype == jnp.uint8 else normal(*shape, 576, dtype=dtype)


def dense(dtype):
    return fj.LatentCache(tokens_like(dtype, ROWS, ROOM))


def paged(dtype):
    table = np.random.default_rng(2).permutation(ROWS * COLUMNS).astype(np.int32)
    return fj.LatentCache(tokens_like(dtype, ROWS * COLUMNS, PAGE), table.reshape(ROWS, COLUMNS))


def kinds():
    """Yields caches, and the dtype of q over each."""
    for make in (dense, paged):
        yield make(jnp.float32), jnp.float32
        yield make(jnp.uint8), jnp.bfloat16
    yield paged(jnp.float16), jnp.float16


def tokens_of(cache, row):
    rows = np.asarray(cache.latents)
    if cache.page_table is None:
        return rows[row]
    return rows[np.asarray(cache.page_table)[row]].reshape(ROOM, -1)


def logits(**more):
    return fj.Logits(scale=SCALE, **more)


def plan_of(cache, dtype, **more):
    return fj.plan(SEEN, dtype=dtype, q_heads=HEADS, cache=cache, **more)


def each_query(counts):
    """Yields the number, the row and the visible tokens of each query; 0 if the row is idle."""
    number = 0
    for row, count in enumerate(counts):
        for back in range(count, 0, -1):
            idle = not count <= LENGTHS[row] <= ROOM
            yield number, row, 0 if idle else LENGTHS[row] - back + 1
            number += 1


def tolerance_of(dtype):
    return {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[str(jnp.dtype(dtype))]


def right(out, lse, q, cache, counts=(1,) * ROWS, **more):
    assert out.shape == (*q.shape[:-1], 512) and out.dtype == q.dtype
    assert lse.shape == q.shape[:-1] and lse.dtype == jnp.float32
    for number, row, seen in each_query(counts):
        wanted = cases.latent_attention(q[number], tokens_of(cache, row)[:seen], SCALE, **more)
        close(out[number], wanted[0], tolerance_of(q.dtype))
        close(lse[number], wanted[1], 1e-3)


def appended(cache, was, latent, counts, places=None, weight=None, **angles):
    """Checks that the step's tokens are in the cache, and that the others stayed."""
    for row in range(ROWS):
        mine, theirs = tokens_of(cache, row).copy(), tokens_of(was, row)
        for number, of, seen in each_query(counts):
            if of != row or seen == 0:
                continue
            at = seen - 1 if places is None else places[number]
            due = cases.latent_token(latent[number], at, weight, 1e-5, **angles)
            got = cases.latents(mine[seen - 1 : seen])[0]
            rough = 0.07 if mine.dtype == np.uint8 else tolerance_of(latent.dtype)
            np.testing.assert_allclose(got[:512], due[:512], rough, rough / 2)
            np.testing.assert_allclose(got[512:], due[512:], 2e-2, 2e-2)
            mine[seen - 1] = theirs[seen - 1]
        np.testing.assert_array_equal(mine, theirs)


def turned(q, counts, places=None, **angles):
    """Returns q as latent_decode rotates it, in q's dtype."""
    at = [max(seen - 1, 0) for _, _, seen in each_query(counts)] if places is None else places
    ends = cases.rope(np.asarray(q[..., 512:]).astype(np.float64), at, **angles)
    return jnp.concatenate((q[..., :512], jnp.asarray(ends, q.dtype)), -1)


def attention_is_right_over_every_kind_of_cache():
    for cache, dtype in kinds():
        q, sinks = normal(ROWS, HEADS, 576, dtype=dtype), normal(HEADS)
        for window, given in ((0, None), (5, None), (5, sinks)):
            lent = plan_of(cache, dtype, window=window)
            for plan in (None, lent):
                out, after, lse = fj.latent_attention(
                    q, cache, SEEN, plan=plan, logits=logits(window=window), sinks=given,
                    with_lse=True)
                assert (after is None) == (plan is None)
                right(out, lse, q, cache, window=window, sinks=given)
                lent = after


def q_in_two_arrays_gives_the_bits_of_one():
    for cache, dtype in kinds():
        for shape, given in (((ROWS,), {}), ((ROWS, 2), {}), ((sum(COUNTS),), GIVEN)):
            q, lent = normal(*shape, HEADS, 576, dtype=dtype), None
            if shape == (ROWS,):
                lent = plan_of(cache, dtype)
            more = dict(logits=logits(), with_lse=True, **given)
            one = fj.latent_attention(q, cache, SEEN, **more)
            two = jax.jit(lambda q, rope, plan: fj.latent_attention(
                q, cache, SEEN, q_rope=rope, plan=plan, **more))(q[..., :512], q[..., 512:], lent)
            assert (two.plan is None) == (lent is None)
            np.testing.assert_array_equal(one.out, two.out)
            np.testing.assert_array_equal(one.lse, two.lse)


def q_of_a_step_may_be_in_two_arrays():
    """The two arrays are arguments of the step, or slices of one."""
    for n, (cache, dtype) in enumerate(kinds()):
        for shape, given in (((ROWS,), {}), ((ROWS, 2), {}), ((sum(COUNTS),), GIVEN)):
            q, latent = (normal(*shape, *dims, 576, dtype=dtype) for dims in ([HEADS], []))
            lent = plan_of(cache, dtype) if shape == (ROWS,) and n % 2 == 0 else None
            more = dict(logits=logits(), with_lse=True, rope=ROPE, **given)
            one = fj.latent_decode(q, latent, cache, SEEN, **more)
            halves = jax.jit(lambda q, lent: fj.latent_decode(
                q[..., :512], latent, cache, SEEN, q_rope=q[..., 512:], plan=lent, **more))
            whole = jax.jit(lambda first, rope, lent: fj.latent_decode(
                first, latent, cache, SEEN, q_rope=rope, plan=lent, **more))
            for two in (halves(q, lent), whole(q[..., :512], q[..., 512:], lent)):
                assert (two.plan is None) == (lent is None)
                for mine, theirs in ((one.out, two.out), (one.lse, two.lse),
                                     (one.cache.latents, two.cache.latents)):
                    np.testing.assert_array_equal(mine, theirs)


def a_call_without_rows_is_empty():
    cache, none = paged(jnp.float32), int32([])
    q, latent = jnp.zeros((0, HEADS, 576)), jnp.zeros((0, 576))
    for parts in (dict(q=q), dict(q=q[..., :512], q_rope=q[..., 512:])):
        seen = fj.latent_attention(cache=cache, lengths=none, logits=logits(), **parts)
        grown = fj.latent_decode(latent=latent, cache=cache, lengths=none, logits=logits(), **parts)
        assert seen.out.shape == grown.out.shape == (0, HEADS, 512)
        np.testing.assert_array_equal(cache.latents, grown.cache.latents)


def a_step_is_rope_norm_append_and_attention():
    places = int32([100, 7, 0, 2000])
    angle = np.arange(2048.0)[:, None] * 1e4 ** (-np.arange(0, 64, 2) / 64)
    table = np.concatenate((np.cos(angle), np.sin(angle)), 1).astype(np.float32)
    ways = [(dict(rope=ROPE), None, TURNS), (dict(positions=places), places, {}),
            (dict(positions=places, cos_sin_cache=table), places, {}), (dict(), None, {})]
    for n, (was, dtype) in enumerate(kinds()):
        latent = normal(ROWS, 576, dtype=dtype)
        for m, (way, at, angles) in enumerate(ways):
            weight = normal(512, dtype=dtype) if (n + m) % 2 else None
            q = normal(ROWS, HEADS, 576, dtype=dtype)
            plan = plan_of(was, dtype) if m % 2 else None
            out, cache, after, lse = fj.latent_decode(
                q, latent, was, SEEN, plan=plan, norm=weight, norm_epsilon=1e-5, logits=logits(),
                with_lse=True, **way)
            assert (after is None) == (plan is None)
            appended(cache, was, latent, (1,) * ROWS, at, weight, **angles)
            right(out, lse, turned(q, (1,) * ROWS, at, **angles), cache)


def rows_may_have_several_tokens():
    for n, (was, dtype) in enumerate(kinds()):
        each = 2 if n % 2 else 11
        counts, given = [each] * ROWS, dict(rope=ROPE, logits=logits(), with_lse=True)
        q, latent = (normal(ROWS, each, *dims, 576, dtype=dtype) for dims in ([HEADS], []))
        equal = fj.latent_decode(q, latent, was, SEEN, **given)
        q, latent = (x.reshape(each * ROWS, *x.shape[2:]) for x in (q, latent))
        packed = fj.latent_decode(q, latent, was, SEEN, row_tokens=each, **given,
                                  query_start_loc=int32(range(0, each * ROWS + 1, each)))
        close(equal.out.reshape(packed.out.shape), np.float64(packed.out), 0)
        close(equal.lse.reshape(packed.lse.shape), packed.lse, 0)
        appended(packed.cache, was, latent, counts, **TURNS)
        right(packed.out, packed.lse, turned(q, counts, **TURNS), packed.cache, counts)


def rows_of_unequal_numbers_of_tokens_are_right():
    used = sum(COUNTS)
    for was, dtype in kinds():
        q, latent = (normal(used + 2, *dims, 576, dtype=dtype) for dims in ([HEADS], []))
        for plan in (None, plan_of(was, dtype, tokens=used + 2, **GIVEN)):
            out, cache, _, lse = fj.latent_decode(q, latent, was, SEEN, plan=plan, rope=ROPE,
                                                  logits=logits(), with_lse=True, **GIVEN)
            appended(cache, was, latent, COUNTS, **TURNS)
            wanted = turned(q[:used], COUNTS, **TURNS)
            right(out[:used], lse[:used], wanted, cache, COUNTS)
            out, _, lse = fj.latent_attention(wanted, cache, SEEN, logits=logits(), with_lse=True,
                                              **GIVEN)
            right(out, lse, wanted, cache, COUNTS)


def one_compiled_function_serves_every_length():
    """The cache is donated and grows in place, under one plan for two layers."""
    traces = []

    @functools.partial(jax.jit, donate_argnums=2)
    def step(q, latent, latents, table, lengths, weight):
        traces.append(1)
        cache = fj.LatentCache(latents, table)
        lent = fj.plan(lengths, dtype=q.dtype, q_heads=HEADS, cache=cache)
        got = fj.latent_decode(q, latent, cache, lengths, plan=lent, norm=weight, rope=ROPE,
                               norm_epsilon=1e-5, logits=logits(), with_lse=True)
        again = fj.latent_attention(q, got.cache, lengths, plan=got.plan, logits=logits())
        return got.out, got.lse, got.cache.latents, again.out

    was, weight = paged(jnp.uint8), normal(512, dtype=jnp.bfloat16)
    for lengths in (SEEN, SEEN - 3):
        q, latent = (normal(ROWS, *dims, 576, dtype=jnp.bfloat16) for dims in ([HEADS], []))
        cache = jnp.array(was.latents)
        wanted = fj.latent_decode(q, latent, was, lengths, norm=weight, rope=ROPE,
                                  norm_epsilon=1e-5, logits=logits(), with_lse=True)
        out, lse, grown, _ = step(q, latent, cache, was.page_table, lengths, weight)
        assert cache.is_deleted()
        close(out, np.float64(wanted.out), 0)
        close(lse, wanted.lse, 0)
        np.testing.assert_array_equal(grown, wanted.cache.latents)
    assert len(traces) == 1


def deterministic_bits_follow_from_the_row_alone():
    cache, q = paged(jnp.float32), normal(ROWS, HEADS, 576)
    mine = fj.latent_attention(q, cache, SEEN, logits=logits(), deterministic=True).out
    for row in (0, 3):
        one = cache._replace(page_table=cache.page_table[row : row + 1])
        alone = fj.latent_attention(q[row : row + 1], one, SEEN[row : row + 1], logits=logits(),
                                    deterministic=True).out
        close(alone[0], mine[row], 0)


def a_recorded_step_takes_q_in_one_array_or_in_two():
    """Runs the attention of a layer of a file, whose q the call writes in either form."""
    q, latent, weight = normal(2, 64, 576), normal(2, 576), normal(512)
    pages, table = normal(7, 64, 576), int32([[4, 1, 6, 0], [0, 5, 2, 0]])
    spec = figraph.spec("kimi-k2", layers=1, dtype="f32", kv_dtype="f32", batch_limit=2,
                        kv_limit=256)
    got = []
    for parts in ([q], [q[..., :512], q[..., 512:]]):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "step.fig")
            figraph.capture(spec, traits="host", q_rope=len(parts) == 2).save(path)
            file = fj.load(path)
        out = jax.ShapeDtypeStruct((2, 64, 512), jnp.float32)
        aliases = {1 + n: n for n in range(len(parts))}
        aliases[len(parts) + 2] = len(parts) + 1
        results, _ = fj.program(
            file, [*parts, out, pages], table, *parts, latent, pages, weight, aliases=aliases,
            rows=2, segment="attn.0", kv_length=130)
        got.append(results[len(parts) :])
    for one, two in zip(*got):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(got[0][1], pages) and np.abs(got[0][0]).min() > 0


def mistakes_are_refused_by_name():
    cache, narrow, table = paged(jnp.float32), paged(jnp.uint8), paged(jnp.uint8).page_table
    sound = dict(q=normal(ROWS, HEADS, 576), latent=normal(ROWS, 576), cache=cache, lengths=SEEN,
                 logits=logits(), norm=normal(512), positions=SEEN, sinks=normal(HEADS),
                 cos_sin_cache=normal(64, 64))
    q, half = sound["q"], sound["q"].astype(jnp.float16)
    pair = fj.Cache(normal(6, 8, 4, 64), normal(6, 8, 4, 64))
    lent = plan_of(narrow, jnp.bfloat16)
    starts = dict(query_start_loc=int32([0, 1, 2]), row_tokens=1, positions=None,
                  cos_sin_cache=None)
    for words, changes in (
        ("q is int32", dict(q=q.astype(jnp.int32))),
        ("q is [4, 16, 512], it must be [4, 16, 576]", dict(q=q[..., :512])),
        ("q is [4, 12, 576], its heads must be a multiple of 8", dict(q=normal(ROWS, 12, 576))),
        ("latent is float16, it must be float32", dict(latent=sound["latent"].astype("float16"))),
        ("latent is [3, 576], it must be [4, 576] like q", dict(latent=sound["latent"][1:])),
        ("cache is a Cache, it must be a LatentCache", dict(cache=pair)),
        ("cache.latents is float32, it must be float16 or uint8", dict(q=half)),
        ("cache.latents is uint8, but q is float32", dict(cache=narrow)),
        ("cache.latents is [12, 8, 500], it must be [any, any, 576]",
         dict(cache=fj.LatentCache(cache.latents[..., :500], table))),
        ("cache.latents is [12, 576], it must be [any, any, any]",
         dict(cache=fj.LatentCache(cache.latents[:, 0], table))),
        ("cache.latents is [3, 8, 576], its dim 0 must be at least 4",
         dict(cache=fj.LatentCache(cache.latents[:3]))),
        ("cache.page_table is [3, 3], its dim 0", dict(cache=cache._replace(page_table=table[1:]))),
        ("cache.page_table is float32", dict(cache=cache._replace(page_table=table * 1.0))),
        ("lengths is [3], it must be [4] like q", dict(lengths=SEEN[1:])),
        ("lengths is float32", dict(lengths=SEEN.astype(np.float32))),
        ("norm is [500], it must be [512]", dict(norm=sound["norm"][:500])),
        ("norm is float16", dict(norm=sound["norm"].astype(jnp.float16))),
        ("norm_epsilon is 0.0, it must be above 0", dict(norm_epsilon=0)),
        ("positions is [3], it must be [4]", dict(positions=SEEN[1:])),
        ("cos_sin_cache is [64, 32], it must be [any, 64]", dict(cos_sin_cache=normal(64, 32))),
        ("cos_sin_cache is given without positions", dict(positions=None)),
        ("sinks is [4], it must be [16]", dict(sinks=normal(4))),
        ("plan.plan is", dict(plan=fj.Plan(lent.plan[1:], lent.scratch))),
        ("rope.rotary_dim is 32, it must be 64", dict(rope=fj.Rope(rotary_dim=32))),
        ("logits.scale is 0, it must be given", dict(logits=fj.Logits())),
        ("logits.soft_cap is 5.0, it must be 0", dict(logits=logits(soft_cap=5))),
        ("logits.window is -1", dict(logits=logits(window=-1))),
        ("query_start_loc is [3], it must be [5] like lengths", starts),
    ):
        given = {**sound, **changes}
        refused(words, lambda: fj.latent_decode(**given), (ValueError, TypeError))
    first, rope = q[..., :512], q[..., 512:]
    for words, parts in (
        ("q is [4, 16, 576], its last dim must be 512 beside q_rope", (q, rope)),
        ("q_rope is [4, 16, 32], it must be [4, 16, 64] like q", (first, rope[..., :32])),
        ("q_rope is [4, 8, 64], it must be [4, 16, 64] like q", (first, rope[:, :8])),
        ("q_rope is [3, 16, 64], it must be [4, 16, 64] like q", (first, rope[:3])),
        ("q_rope is [16, 64], it must be [4, 16, 64] like q", (first, rope[0])),
        ("q_rope is float16, it must be float32", (first, rope.astype(jnp.float16))),
        ("q_rope is int32, it must be float32", (first, rope.astype(jnp.int32))),
    ):
        given = {**sound, "q": parts[0], "q_rope": parts[1]}
        refused(words, lambda: fj.latent_decode(**given), (ValueError, TypeError))
        refused(words, lambda: fj.latent_attention(parts[0], cache, SEEN, logits=logits(),
                                                   q_rope=parts[1]), (ValueError, TypeError))
    refused("layout is given, but a latent cache has none",
            lambda: plan_of(cache, q.dtype, layout="hnd"))
    refused("figraph.jax.latent_attention under vmap", lambda: jax.vmap(
        lambda q: fj.latent_attention(q, cache, SEEN, logits=logits()).out)(q[None]))


def the_documented_output_is_the_real_one():
    with open(os.path.join(HERE, "../../../docs/jax-tvm.md"), encoding="utf-8") as page:
        shown = page.read().split("```python\ndef attend_latents(")[1].split("```")[0]
    names = dict(fj=fj)
    exec("def attend_latents(" + shown, names)
    q, latent = (normal(ROWS, *dims, 576, dtype=jnp.bfloat16) for dims in ([HEADS], []))
    cache, weight, scale = paged(jnp.uint8), normal(512, dtype=jnp.bfloat16), 192**-0.5
    out, grown, plan = names["attend_latents"](q, latent, cache, SEEN, plan_of(cache, q.dtype),
                                               weight)
    wanted = fj.latent_decode(q, latent, cache, SEEN, norm=weight, logits=fj.Logits(scale=scale),
                              rope=fj.Rope(interleaved=True))
    close(out, np.float64(wanted.out), 2e-2)
    np.testing.assert_array_equal(grown.latents, wanted.cache.latents)
    assert plan.scratch.shape == plan_of(cache, q.dtype).scratch.shape


CASES = [
    attention_is_right_over_every_kind_of_cache,
    q_in_two_arrays_gives_the_bits_of_one,
    q_of_a_step_may_be_in_two_arrays,
    a_call_without_rows_is_empty,
    a_step_is_rope_norm_append_and_attention,
    rows_may_have_several_tokens,
    rows_of_unequal_numbers_of_tokens_are_right,
    one_compiled_function_serves_every_length,
    deterministic_bits_follow_from_the_row_alone,
    a_recorded_step_takes_q_in_one_array_or_in_two,
    mistakes_are_refused_by_name,
    the_documented_output_is_the_real_one,
]
if __name__ == "__main__":
    run(CASES)
