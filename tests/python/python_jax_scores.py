"""python_jax_scores.py: compares figraph.jax's attention with scores with float64, on the CPU.

Run where jax and figraph can be imported.
"""

import functools
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../support"), os.path.join(HERE, "../jax"), HERE]
import cases  # noqa: E402
import figraph  # noqa: E402
import figraph.jax as fj  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import score_cases  # noqa: E402
from cases import close  # noqa: E402
from figraph import ffi  # noqa: E402
from score_cases import VARIANTS  # noqa: E402
from sentences import refused, run  # noqa: E402

ROWS, TOKENS, Q, KV, DIM = 3, 24, 8, 4, 64
LENGTHS, SEEN = np.asarray([24, 1, 25], np.int32), [24, 1, 0]
numbers = np.random.default_rng(9)
OWN = next(one for one in VARIANTS if not one.is_plain and "slope" in one.arrays)


def normal(*shape):
    return jnp.asarray(numbers.standard_normal(shape), jnp.float32)


def dense():
    return fj.Cache(normal(ROWS, TOKENS, KV, DIM), normal(ROWS, TOKENS, KV, DIM))


def paged():
    table = np.random.default_rng(2).permutation(3 * ROWS).astype(np.int32).reshape(ROWS, 3)
    return fj.Cache(normal(3 * ROWS, 8, KV, DIM), normal(3 * ROWS, 8, KV, DIM), table)


def tokens_of(cache, row):
    """Returns the keys and values of a row in order."""
    if cache.page_table is None:
        return [np.asarray(x[row]) for x in cache[:2]]
    return [np.asarray(x[cache.page_table[row]]).reshape(-1, KV, DIM) for x in cache[:2]]


def given(of, **more):
    """Returns the arguments that a variant adds to a call."""
    return dict(score=of.of, score_arrays=dict(of.arrays), **more)


def right(out, lse, q, cache, of, counts=(1,) * ROWS):
    number = 0
    for row, count in enumerate(counts):
        keys, values = tokens_of(cache, row)
        for back in range(count - 1, -1, -1):
            seen = max(SEEN[row] - back, 0)
            wanted = score_cases.attention(q[number], keys[:seen], values[:seen], of, SEEN[row],
                                           row)
            close(out[number], wanted[0], 1e-4)
            close(lse[number], wanted[1], 1e-4)
            number += 1


def attention_is_right_with_every_score():
    q = normal(ROWS, Q, DIM)
    for cache in (dense(), paged()):
        for of in VARIANTS:
            out, plan, lse = fj.attention(q, cache, LENGTHS, with_lse=True, **given(of))
            right(out, lse, q, cache, of)
            assert plan is None


def a_decode_step_is_right_with_every_score():
    starts = np.asarray([0, 3, 3, 3], np.int32)
    for cache in (dense(), paged()):
        for of in VARIANTS:
            q, k, v = normal(ROWS, Q, DIM), normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)
            turned = cases.rope(q, LENGTHS - 1)
            for more in ({}, dict(positions=LENGTHS - 1)):
                out, grown, _, lse = fj.decode_attention(q, k, v, cache, LENGTHS, with_lse=True,
                                                         **more, **given(of))
                right(out, lse, turned, grown, of)
            out, grown, _, lse = fj.decode_attention(
                q, k, v, cache, LENGTHS, with_lse=True, query_start_loc=starts, row_tokens=3,
                **given(of))
            right(out, lse, cases.rope(q, np.asarray([21, 22, 23])), grown, of, (3, 0, 0))


def a_plain_score_has_the_runner_of_its_options():
    q, cache = normal(ROWS, Q, DIM), dense()
    slope = VARIANTS[1].arrays["slope"]
    plan = fj.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache)
    for lent in (None, plan):
        for of, options in ((VARIANTS[0], dict(logits=fj.Logits(soft_cap=30.0))),
                            (VARIANTS[1], dict(alibi=slope)), (VARIANTS[2], dict(alibi=slope))):
            out = fj.attention(q, cache, LENGTHS, plan=lent, **options).out
            missed = ffi.counts().missed
            assert (out == fj.attention(q, cache, LENGTHS, plan=lent, **given(of)).out).all()
            assert ffi.counts().missed == missed


def a_mask_is_a_part_of_its_score():
    q, cache, ranges = normal(ROWS, Q, DIM), dense(), "q_pos - 2:q_pos + 1, 0:1"
    for score in (None, "score * 2.0"):
        wanted = fj.attention(q, cache, LENGTHS, score=f"see {ranges}; {score or 'score'}").out
        for mask in (ranges, figraph.mask(ranges), lambda q: [(q - 2, q + 1), (0, 1)]):
            out = fj.attention(q, cache, LENGTHS, score=score, mask=mask).out
            assert (out == wanted).all()
    starts = jnp.zeros(64, jnp.int32)
    out = fj.attention(q, cache, LENGTHS, mask="i32 start[]; start[q_pos]:q_pos + 1",
                       score_arrays={"start": starts}).out
    assert abs(out - fj.attention(q, cache, LENGTHS).out).max() < 1e-5
    refused("a mask is 7", lambda: fj.attention(q, cache, LENGTHS, mask=7))
    refused("figraph.mask makes masks",
            lambda: fj.attention(q, cache, LENGTHS, mask=figraph.score("score")))


def one_jit_serves_all_values_of_an_array():
    q, cache, made = normal(ROWS, Q, DIM), dense(), figraph.score(OWN.of)

    @jax.jit
    def step(q, cache, slope):
        return fj.attention(q, cache, LENGTHS, score=made, score_arrays={"slope": slope},
                            with_lse=True)

    for factor in (1, 2):
        of = OWN._replace(arrays={"slope": OWN.arrays["slope"] * np.float32(factor)})
        out, _, lse = step(q, cache, of.arrays["slope"])
        right(out, lse, q, cache, of)
    assert step._cache_size() == 1


def a_state_attends_with_every_score():
    for cache in (dense(), paged()):
        for of in VARIANTS:
            q, k, v = normal(ROWS, Q, DIM), normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)
            state = fj.State([cache], jnp.asarray(LENGTHS))
            for positions in (None, jnp.maximum(LENGTHS - 1, 0)):
                out, after = state.attend(0, q, k, v, positions=positions, **given(of))
                wanted, grown, _, _ = fj.decode_attention(q, k, v, cache, LENGTHS, rope=fj.Rope(),
                                                          **given(of))
                close(out, wanted, 1e-5)
                close(after.caches[0].k, grown.k, 1e-5)
                assert after.plans == {}
    first = state.attend(0, q, k, v)[1]  # a layer with a score leaves the plans of others alone
    assert first.attend(0, q, k, v, mask="0:4")[1].plans == first.plans


def flash_attention_is_right_with_every_score():
    q, keys, values = normal(ROWS, 1, Q, DIM), normal(ROWS, TOKENS, KV, DIM), normal(
        ROWS, TOKENS, KV, DIM)
    lengths = [24, 1, 0]
    for of in VARIANTS:
        out = jax.jit(functools.partial(fj.flash_attention, score=of.of))(
            q, keys, values, lengths=jnp.asarray(lengths, jnp.int32), score_arrays=dict(of.arrays))
        for row, seen in enumerate(lengths):
            wanted = score_cases.attention(q[row, 0], keys[row, :seen], values[row, :seen], of,
                                           seen, row)
            close(out[row, 0], wanted[0], 1e-4)
    recent = figraph.mask("q_pos - 2:q_pos + 1, 0:1")
    as_bools = jnp.asarray([[p > 20 or p < 1 for p in range(TOKENS)]] * ROWS)[:, None, None]
    close(fj.flash_attention(q, keys, values, recent),
          fj.flash_attention(q, keys, values, as_bools), 1e-5)


def flash_attention_refuses_scores_by_name():
    keys = normal(ROWS, TOKENS, KV, DIM)
    one, two, bools = normal(ROWS, 1, Q, DIM), normal(ROWS, 2, Q, DIM), np.ones((1, 1, 1, TOKENS))
    for words, query, more in (
        ("query has 2 tokens", two, dict(score="score * 2.0", causal=True)),
        ("query has 2 tokens", two, dict(mask=figraph.mask("0:4"))),
        ("mask is given beside a score", one, dict(score="score * 2.0", mask=bools.astype(bool))),
        ("segment_ids is given beside a score", one,
         dict(score="score * 2.0", segment_ids=(np.zeros((ROWS, 1)), np.zeros((ROWS, TOKENS))))),
        ("figraph.mask makes masks", one, dict(mask=figraph.score("score * 2.0"))),
        ("score_arrays is given, but neither", one, dict(score_arrays={})),
        ("score_arrays lacks slope", one, dict(score="score + slope[head] * 2.0")),
    ):
        refused(words, lambda: fj.flash_attention(query, keys, keys, **more),  # noqa: B023
                (TypeError, ValueError, NotImplementedError))


def mistakes_are_told_by_name():
    q, cache, slope = normal(ROWS, Q, DIM), dense(), normal(Q)
    plan = fj.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache)
    text = "score + slope[head] * 2.0"
    for words, more in (
        ("plan is given beside a score", dict(plan=plan, score="score * 2.0")),
        ("alibi is given beside a score", dict(score="score * 2.0", alibi=slope)),
        ("logits.soft_cap is 3.0 beside a score",
         dict(score="score * 2.0", logits=fj.Logits(soft_cap=3.0))),
        ("score: column 8", dict(score="score +")),
        ("a score is 7, it must be", dict(score=7)),
        ("score_arrays is given, but neither", dict(score_arrays={"slope": slope})),
        ("score_arrays lacks slope", dict(score=text)),
        ("score_arrays has bias", dict(score=text, score_arrays={"slope": slope, "bias": slope})),
        ("slope is float16, it must be float32",
         dict(score=text, score_arrays={"slope": slope.astype(jnp.float16)})),
        ("slope is [8], it must have at least 9",
         dict(score="f32 slope[9]; " + text, score_arrays={"slope": slope})),
        ("slope is [8, 1]", dict(score=text, score_arrays={"slope": slope[:, None]})),
    ):
        refused(words, lambda: jax.block_until_ready(  # a GPU refuses later
            fj.attention(q, cache, LENGTHS, **more)))  # noqa: B023


def whatever_takes_no_score_refuses_it_by_name():
    takes = {"attention", "decode_attention", "flash_attention", "tokamax_attention"}
    entries = [getattr(fj, name) for name in fj.__all__ if name not in takes]
    query, keys = normal(ROWS, 1, Q, DIM), normal(ROWS, TOKENS, KV, DIM)
    entries += [fj.State.attend_latent, fj.State.empty,
                functools.partial(fj.tokamax_attention, query, keys, keys)]
    for of in VARIANTS:
        for variant in (of.of, figraph.score(of.of)):
            for entry in entries:
                refused("score", lambda: entry(score=variant),  # noqa: B023
                        (TypeError, ValueError, NotImplementedError))


if __name__ == "__main__":
    run([
        attention_is_right_with_every_score,
        a_decode_step_is_right_with_every_score,
        a_plain_score_has_the_runner_of_its_options,
        a_mask_is_a_part_of_its_score,
        one_jit_serves_all_values_of_an_array,
        a_state_attends_with_every_score,
        flash_attention_is_right_with_every_score,
        flash_attention_refuses_scores_by_name,
        mistakes_are_told_by_name,
        whatever_takes_no_score_refuses_it_by_name,
    ])
