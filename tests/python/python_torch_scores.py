"""python_torch_scores.py: compares figraph.torch's attention with scores with float64.

    tests/python/python_torch_scores.py [DEVICE]

Run where torch and figraph can be imported.
"""

import functools
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import figraph  # noqa: E402
import figraph.torch as ft  # noqa: E402
import score_cases  # noqa: E402
import torch  # noqa: E402
from figraph import ffi  # noqa: E402
from python_torch import (  # noqa: E402
    DEVICE, DIM, KV, LENGTHS, Q, ROWS, SEEN, cases, close, copy_of, dense, normal, numpy, paged,
    refused, run, tokens_of)
from score_cases import VARIANTS  # noqa: E402

OWN = next(one for one in VARIANTS if not one.is_plain and "slope" in one.arrays)


def given(of, **more):
    """Returns the arguments that a variant adds to a call."""
    arrays = {name: torch.from_numpy(x).to(DEVICE) for name, x in of.arrays.items()}
    return dict(score=of.of, score_arrays=arrays, **more)


def right(out, lse, q, cache, of, counts=(1,) * ROWS):
    number = 0
    for row, count in enumerate(counts):
        keys, values = tokens_of(cache, row)
        for back in range(count - 1, -1, -1):
            seen = max(SEEN[row] - back, 0)
            wanted = score_cases.attention(numpy(q[number]), keys[:seen], values[:seen], of,
                                           SEEN[row], row)
            close(out[number], wanted[0], 1e-4)
            close(lse[number], wanted[1], 1e-4)
            number += 1


def attention_is_right_with_every_score():
    q = normal(ROWS, Q, DIM)
    for cache in (dense(), paged()):
        for of in VARIANTS:
            out, lse = ft.attention(q, cache, LENGTHS, with_lse=True, **given(of))
            right(out, lse, q, cache, of)
            again = torch.empty_like(out)
            assert ft.attention(q, cache, LENGTHS, out=again, **given(of)) is again
            assert torch.equal(again, out)


def a_decode_step_is_right_with_every_score():
    for was in (dense(), paged()):
        for of in VARIANTS:
            cache, plain = copy_of(was), copy_of(was)
            q, k, v = normal(ROWS, Q, DIM), normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)
            turned = torch.from_numpy(cases.rope(numpy(q), LENGTHS.cpu() - 1)).to(DEVICE)
            out, lse = ft.decode_attention(q.clone(), k.clone(), v, cache, LENGTHS, with_lse=True,
                                           **given(of))
            right(out, lse, turned, cache, of)
            ft.decode_attention(q.clone(), k.clone(), v, plain, LENGTHS)
            close(cache.k, numpy(plain.k), 1e-6)
            assert torch.equal(cache.v, plain.v)


def rows_of_unequal_numbers_of_tokens_are_right():
    counts = (3, 0, 0)  # row 2 is idle, because its length is above its cache's
    starts = torch.tensor([0, 3, 3, 3], dtype=torch.int32, device=DEVICE)
    q, cache = normal(3, Q, DIM), paged()
    for of in VARIANTS:
        out, lse = ft.attention(q, cache, LENGTHS, with_lse=True, query_start_loc=starts,
                                row_tokens=3, **given(of))
        right(out, lse, q, cache, of, counts)


def a_plain_score_has_the_runner_of_its_options():
    q, cache = normal(ROWS, Q, DIM), dense()
    slope = torch.from_numpy(VARIANTS[1].arrays["slope"]).to(DEVICE)
    lent = ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache)
    for plan in (None, lent):
        for of, options in ((VARIANTS[0], dict(logits=ft.Logits(soft_cap=30.0))),
                            (VARIANTS[1], dict(alibi=slope)), (VARIANTS[2], dict(alibi=slope))):
            out = ft.attention(q, cache, LENGTHS, plan=plan, **options)
            missed = ffi.counts().missed
            assert torch.equal(out, ft.attention(q, cache, LENGTHS, plan=plan, **given(of)))
            assert ffi.counts().missed == missed


def a_mask_is_a_part_of_its_score():
    q, cache = normal(ROWS, Q, DIM), dense()
    slope = torch.from_numpy(VARIANTS[1].arrays["slope"]).to(DEVICE)
    ranges, alibi = "q_pos - 2:q_pos + 1, 0:1", VARIANTS[1].of
    for score, arrays in ((None, None), (alibi, {"slope": slope})):
        wanted = ft.attention(q, cache, LENGTHS, score=f"see {ranges}; {score or 'score'}",
                              score_arrays=arrays)
        for mask in (ranges, figraph.mask(ranges), lambda q: [(q - 2, q + 1), (0, 1)]):
            out = ft.attention(q, cache, LENGTHS, score=score, mask=mask, score_arrays=arrays)
            assert torch.equal(out, wanted)
            k, v = normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)
            mine, theirs = copy_of(cache), copy_of(cache)
            out = ft.decode_attention(q.clone(), k.clone(), v, mine, LENGTHS, score=score,
                                      mask=mask, score_arrays=arrays)
            again = ft.decode_attention(q.clone(), k.clone(), v, theirs, LENGTHS,
                                        score=f"see {ranges}; {score or 'score'}",
                                        score_arrays=arrays)
            assert torch.equal(out, again)
    starts = torch.zeros(64, dtype=torch.int32, device=DEVICE)
    out = ft.attention(q, cache, LENGTHS, mask="i32 start[]; start[q_pos]:q_pos + 1",
                       score_arrays={"start": starts})
    close(out, numpy(ft.attention(q, cache, LENGTHS)), 1e-5)


def a_compiled_call_is_the_eager_one():
    made, text = figraph.score(OWN.of), str(figraph.score(OWN.of))
    cache, q = dense(), normal(ROWS, Q, DIM)
    arrays = given(OWN)["score_arrays"]
    k, v = normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)
    for of in (made, text, OWN.of):
        def step(q, k, v, k_cache, v_cache, slope):
            more = dict(score=of, score_arrays={"slope": slope})  # noqa: B023
            held = ft.Cache(k_cache, v_cache)
            out = ft.decode_attention(q * 2, k * 1, v, held, LENGTHS, **more)
            return out * 2, ft.attention(q, held, LENGTHS, **more)

        compiled = torch.compile(step, fullgraph=True,
                                 backend="aot_eager" if DEVICE == "cpu" else "inductor")
        mine, theirs = copy_of(cache), copy_of(cache)
        eager = step(q, k, v, *mine[:2], arrays["slope"])
        for a, b in zip(eager, compiled(q, k, v, *theirs[:2], arrays["slope"])):
            close(b, numpy(a), 1e-6)
        assert torch.equal(mine.k, theirs.k)


def each_operator_is_what_its_schema_says():
    ops, angles = torch.ops.figraph, (DIM, False, 1.0, 1e4, 0.0, 0.0, 0.0, 0)
    q, k, v = normal(ROWS, Q, DIM), normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)
    text = figraph.score(OWN.of).text
    more = (text, list(given(OWN)["score_arrays"].values()))
    for cache in (dense(), paged()):
        held = (*cache[:2], LENGTHS, *cache[2:], 0, None, None, 0)
        asked = (None, None, None, None, 0, 0.0, 0.125, False)
        turns, outs = (*angles, False, None, None), (normal(ROWS, Q, DIM), normal(ROWS, Q))
        for op, arguments in {
            ops.scored_attention: (q, *held, *asked, *more, True),
            ops.scored_attention_out: (q, *held, *asked, *more, *outs),
            ops.scored_decode_attention: (q, k, v, *held, *asked, *turns, *more, True),
            ops.scored_decode_attention_out: (q, k, v, *held, *asked, *turns, *more, *outs),
        }.items():
            torch.library.opcheck(op.default, arguments)


def mistakes_are_told_by_name():
    q, cache, slope = normal(ROWS, Q, DIM), dense(), normal(Q)
    lent = ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache)
    text = "score + slope[head] * 2.0"
    for words, more in (
        ("plan is given beside a score", dict(plan=lent, score="score * 2.0")),
        ("alibi is given beside a score", dict(score="score * 2.0", alibi=slope)),
        ("logits.soft_cap is 3.0 beside a score",
         dict(score="score * 2.0", logits=ft.Logits(soft_cap=3.0))),
        ("score: column 8", dict(score="score +")),
        ("a score is 7, it must be", dict(score=7)),
        ("score_arrays is given, but neither", dict(score_arrays={"slope": slope})),
        ("score_arrays lacks slope", dict(score=text)),
        ("score_arrays has bias", dict(score=text, score_arrays={"slope": slope, "bias": slope})),
        ("score_arrays['slope'] is a list", dict(score=text, score_arrays={"slope": [1.0]})),
        ("slope is float16, it must be float32",
         dict(score=text, score_arrays={"slope": slope.half()})),
        ("slope is [8], it must have at least 9",
         dict(score="f32 slope[9]; " + text, score_arrays={"slope": slope})),
        ("slope is [8, 1]", dict(score=text, score_arrays={"slope": slope[:, None]})),
        ("slope has strides [2]",
         dict(score=text, score_arrays={"slope": normal(2 * Q)[::2]})),
        ("sinks are given, but the weights are those of a sigmoid",
         dict(score="weights sigmoid; score", sinks=slope)),
    ):
        refused(words, lambda: ft.attention(q, cache, LENGTHS, **more))  # noqa: B023
    for words, more in (
        ("plan is given beside a score", dict(plan=lent, mask="0:4")),
        ("alibi is given beside a score", dict(mask="0:4", alibi=slope)),
        ("score_arrays lacks start", dict(mask="i32 start[]; start[q_pos]:q_pos")),
        ("beside a score with a mask", dict(score="see 0:4; score", mask="0:4")),
        ("a mask is 7, it must be", dict(mask=7)),
        ("figraph.mask makes masks", dict(mask=figraph.score("score"))),
    ):
        refused(words, lambda: ft.attention(q, cache, LENGTHS, **more))  # noqa: B023


def whatever_takes_no_score_refuses_it_by_name():
    takes = {"attention", "decode_attention", "DecodeStep"}
    entries = [getattr(ft, name) for name in ft.__all__ if name not in takes]
    entries += [figraph.Prompts, functools.partial(ft.DecodeStep.attend, None, 0)]
    for of in VARIANTS:
        for variant in (of.of, figraph.score(of.of)):
            for entry in entries:
                refused("score", lambda: entry(score=variant),  # noqa: B023
                        (TypeError, ValueError))
    for entry in entries:
        refused("mask", lambda: entry(mask=figraph.mask("0:4")),  # noqa: B023
                (TypeError, ValueError))


CASES = [
    attention_is_right_with_every_score,
    a_decode_step_is_right_with_every_score,
    rows_of_unequal_numbers_of_tokens_are_right,
    a_plain_score_has_the_runner_of_its_options,
    a_mask_is_a_part_of_its_score,
    a_compiled_call_is_the_eager_one,
    each_operator_is_what_its_schema_says,
    mistakes_are_told_by_name,
    whatever_takes_no_score_refuses_it_by_name,
]

if __name__ == "__main__":
    run(CASES)
