"""python_torch_step.py: compares figraph.torch.DecodeStep on the CPU with float64.

    tests/python/python_torch_step.py [DEVICE]

Run where torch and figraph can be imported. python_torch.py tests the operators;
tests/gpu/torch_step.py has the tests that need a GPU.
"""

import contextlib
import os
import sys
import types
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support"), os.path.join(HERE, "../jax")]
import cases  # noqa: E402
import figraph  # noqa: E402
import figraph.torch as ft  # noqa: E402
import score_cases  # noqa: E402
import torch  # noqa: E402
from python_torch import (  # noqa: E402
    normal, numpy, close, dense, paged, copy_of, expected, LENGTHS,
    ROWS, TOKENS, Q, KV, DIM, DEVICE)
from sentences import refused, run  # noqa: E402


LAYERS = 2
SPEC = figraph.Spec(dtype="f32", q_heads=Q, kv_heads=KV, head_dim=DIM, ffn_width=32, batch_limit=8,
                    kv_limit=64, layers=LAYERS, window=9, window_layers=(1,),
                    rope=figraph.Rope(theta=5e5))


class Loop:
    """A loop over two layers without matrix products, each with inputs of its own."""

    def __init__(self, caches, **options):
        self.step = ft.DecodeStep(SPEC, caches, rows=ROWS, **options)
        self.qkv = [normal(ROWS, Q + 2 * KV, DIM) for _ in range(LAYERS)]
        self.gate_up = normal(ROWS, 64)
        self.acts = [normal(ROWS, 32) for _ in range(LAYERS)]
        self.outs = [normal(ROWS, Q, DIM) for _ in range(LAYERS)]

    def __call__(self):
        self.step.plan()
        for n, qkv in enumerate(self.qkv):
            self.acts[n].copy_(self.step.act(n, self.gate_up))
            q, k, v = qkv.clone().split((Q, KV, KV), 1)
            self.step.attend(n, q, k, v, self.outs[n])

    def expected(self, caches, lengths, **more):
        """Yields each layer's result, computed by the operators, which python_torch.py compares
        with float64."""
        for n, qkv in enumerate(self.qkv):
            q, k, v = qkv.clone().split((Q, KV, KV), 1)
            window = 9 if n in SPEC.window_layers else 0
            yield ft.decode_attention(q, k, v, caches[n], lengths, rope=ft.Rope(theta=5e5),
                                      logits=ft.Logits(window=window), **more)


def a_step_is_its_layers_for_every_length():
    for kind in (dense, paged):
        caches = [kind() for _ in range(LAYERS)]
        if caches[0].page_table is not None:
            caches[1] = caches[1]._replace(page_table=caches[0].page_table)
        twins = [copy_of(cache) for cache in caches]
        loop = Loop(caches)
        loop.step.capture(loop)
        for n in range(LAYERS):  # idle rows append nothing
            assert torch.equal(caches[n].k, twins[n].k)
        for lengths in ([24, 1, 25], [24, 1, 5], [7, 0], torch.tensor([1, 2, 3]), None):
            loop.step(lengths)
            if isinstance(lengths, list) and len(lengths) == 2:
                assert loop.step.lengths.tolist() == [7, 0, 0]
            for n, out in enumerate(loop.expected(twins, loop.step.lengths)):
                close(loop.outs[n], numpy(out), 1e-5)
                close(caches[n].k, numpy(twins[n].k), 1e-5)
                close(loop.acts[n], cases.silu_and_mul(numpy(loop.gate_up)), 1e-5)
        assert loop.step.lengths.tolist() == [1, 2, 3]


def a_step_with_a_score_is_its_layers():
    for kind in (dense, paged):
        for of in score_cases.VARIANTS:
            caches = [kind() for _ in range(LAYERS)]
            if caches[0].page_table is not None:
                caches[1] = caches[1]._replace(page_table=caches[0].page_table)
            twins = [copy_of(cache) for cache in caches]
            arrays = {name: torch.from_numpy(x).to(DEVICE) for name, x in of.arrays.items()}
            scored = dict(score=of.of, score_arrays=arrays)
            loop = Loop(caches, compile_scores=True, **scored)  # the host interprets
            loop.step.capture(loop)
            for lengths in ([24, 1, 5], [7, 0]):
                loop.step(lengths)
                for n, out in enumerate(loop.expected(twins, loop.step.lengths, **scored)):
                    close(loop.outs[n], numpy(out), 1e-5)
    mask = figraph.mask("i32 first[]; first[0]:q_pos + 1")
    sees = {"first": torch.tensor([4], dtype=torch.int32, device=DEVICE)}
    caches = [dense() for _ in range(LAYERS)]
    twins = [copy_of(cache) for cache in caches]
    loop = Loop(caches, mask="i32 first[]; first[0]:q_pos + 1", score="score * 2.0",
                score_arrays=sees)
    loop.step.capture(loop)
    for first in (4, 0):  # the array is read again in each step
        sees["first"].fill_(first)
        loop.step([24, 5, 2])
        more = dict(score=figraph.score("score * 2.0", mask=mask), score_arrays=sees)
        for n, out in enumerate(loop.expected(twins, loop.step.lengths, **more)):
            close(loop.outs[n], numpy(out), 1e-5)


def a_step_refuses_scores_by_name():
    caches = [dense() for _ in range(LAYERS)]
    slope = torch.ones(Q, device=DEVICE)
    text = "score + slope[head] * 2.0"
    for words, more in (
        ("score_arrays is given, but neither", dict(score_arrays={"slope": slope})),
        ("score_arrays lacks slope", dict(score=text)),
        ("score_arrays has bias", dict(score=text, score_arrays={"slope": slope, "bias": slope})),
        ("score_arrays['slope'] is a list", dict(score=text, score_arrays={"slope": [1.0]})),
        ("score_arrays['slope'] has shape [2, 4]",
         dict(score=text, score_arrays={"slope": slope.view(2, 4)})),
        ("slope is in weights and in score_arrays",
         dict(score=text, score_arrays={"slope": slope}, weights={"slope": slope})),
        ("slope", dict(score=text, score_arrays={"slope": slope.to(torch.int32)})),
        ("slope", dict(score="f32 slope[9]; " + text, score_arrays={"slope": slope})),
        ("soft_cap", dict(score=text, score_arrays={"slope": slope}, soft_cap=3.0)),
        ("score: column 8", dict(score="score +")),
        ("a mask is 7", dict(mask=7)),
        ("score_cache is for", dict(score="score * 2.0", score_cache=True)),
    ):
        refused(words, lambda: ft.DecodeStep(SPEC, caches, rows=ROWS, **more),  # noqa: B023
                (TypeError, ValueError, NotImplementedError))


def a_step_may_count_its_own_lengths():
    caches, twins = [dense() for _ in range(LAYERS)], None
    loop = Loop(caches)
    loop.step.capture(lambda: (loop(), loop.step.advance()))
    twins = [copy_of(cache) for cache in caches]
    loop.step.lengths.copy_(torch.tensor([1, 5, 0]))
    for grown in range(4):
        loop.step()
        lengths = torch.tensor([1 + grown, 5 + grown, 0], dtype=torch.int32, device=DEVICE)
        for n, out in enumerate(loop.expected(twins, lengths)):
            close(loop.outs[n], numpy(out), 1e-5)
    assert loop.step.lengths.tolist() == [5, 9, 0]


def positions_may_be_given_apart():
    caches = [dense() for _ in range(LAYERS)]
    loop, plain = Loop(caches, positions=True), Loop([copy_of(cache) for cache in caches])
    plain.qkv, plain.gate_up = loop.qkv, loop.gate_up
    for one in (loop, plain):
        one.step.capture(one)
    loop.step.positions.copy_(torch.tensor([3, 4, 5]) - 1)
    loop.step([3, 4, 5])
    plain.step([3, 4, 5])
    close(loop.outs[0], numpy(plain.outs[0]), 1e-6)
    loop.step.positions.add_(7)
    loop.step([3, 4, 5])
    assert not torch.allclose(loop.outs[0], plain.outs[0])


def a_step_refuses_what_it_cannot_hold():
    caches = [dense() for _ in range(LAYERS)]
    loop = Loop(caches, check=True)
    refused("no loop was captured", lambda: loop.step([1]), (figraph.errors.Order,))
    loop.step.capture(loop)
    was = [out.clone() for out in loop.outs]
    for lengths, row in (([24, 25], 1), (torch.tensor([-1, 1, 1]), 0)):
        words = f"row {row} has length {int(lengths[row])}, its cache holds {TOKENS}"
        refused(words, lambda: loop.step(lengths), (figraph.errors.TooLarge,))
    loop.step.lengths.fill_(25)
    refused("row 0 has length 25", loop.step, (ValueError,))
    assert all(torch.equal(a, b) for a, b in zip(was, loop.outs))
    refused("lengths is [4], the step has 3 rows", lambda: loop.step([1, 1, 1, 1]))
    refused("tensor q.0: the array has dtype f16",
            lambda: loop.step.attend(0, *(x.half() for x in loop.qkv[0].split((Q, KV, KV), 1))))
    refused("tensor act.0 is not on the device of the others",
            lambda: loop.step.act(0, loop.gate_up, loop.acts[0].to("meta")))
    refused("the program has no tensor gate_up.2", lambda: loop.step.act(2, loop.gate_up))
    refused("shape [2, 64]", lambda: loop.step.act(0, loop.gate_up[:2]))
    refused("the program has no tensor q_norm.0",
            lambda: Loop(caches, weights={"q_norm.0": normal(DIM)}))


def a_plan_that_is_not_one_stretch_is_refused():
    q, k, cache = normal(ROWS, Q, DIM), normal(ROWS, KV, DIM), dense()
    plan = ft.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache)

    def spread(x):
        wide = torch.full((x.numel(), 2), 255, dtype=torch.uint8, device=DEVICE)
        wide[:, 0] = x
        return wide[:, 0]

    was = cache.k.clone()
    for name, lent in (
        ("plan.plan", ft.Plan(spread(plan.plan), plan.scratch)),
        ("plan.plan", ft.Plan(plan.plan[:1].expand(plan.plan.numel()), plan.scratch)),
        ("plan.scratch", ft.Plan(plan.plan, spread(plan.scratch))),
    ):
        words = f"{name} has strides"
        refused(words, lambda: ft.attention(q, cache, LENGTHS, plan=lent), (ValueError,))
        refused(words, lambda: ft.decode_attention(q, k, k.clone(), cache, LENGTHS, plan=lent))
        if name == "plan.plan":
            refused(words, lambda: ft.append_kv(k, k, cache, LENGTHS, plan=lent), (ValueError,))
    refused("plan.plan is int8", lambda: ft.append_kv(
        k, k, cache, LENGTHS, plan=ft.Plan(plan.plan.view(torch.int8), None)), (TypeError,))
    refused("it must be [any]", lambda: ft.append_kv(
        k, k, cache, LENGTHS, plan=ft.Plan(plan.plan[None], None)), (ValueError,))
    assert torch.equal(cache.k, was)


def a_tensor_that_requires_a_gradient_is_refused():
    q, cache, weight = normal(ROWS, Q, DIM), dense(), normal(DIM)
    k, x = normal(ROWS, KV, DIM), normal(2, 32)
    was = cache.k.clone()
    calls = [
        ("silu_and_mul", lambda: ft.silu_and_mul(x), x),
        ("rms_norm", lambda: ft.rms_norm(q, weight), weight),
        ("apply_rope", lambda: ft.apply_rope(q, k, LENGTHS)[0], k),
        ("append_kv", lambda: ft.append_kv(k, k, cache, LENGTHS), k),
        ("attention", lambda: ft.attention(q, cache, LENGTHS), cache.k),
        ("attention", lambda: ft.attention(q, cache, LENGTHS, with_lse=True)[1], q),
        ("decode_attention", lambda: ft.decode_attention(q, k, k.clone(), cache, LENGTHS), q),
    ]
    for name, call, one in calls:
        one.requires_grad_()
        refused(f"{name} has no gradient", call, (NotImplementedError,))
        assert torch.equal(cache.k, was)
        for off in (torch.no_grad, torch.inference_mode):
            with off():
                out = call()
                assert out is None or not out.requires_grad, name
        one.requires_grad_(False)
        cache.k.copy_(was)
    compiled = torch.compile(ft.silu_and_mul, fullgraph=True, backend="aot_eager")
    assert not compiled(x).requires_grad
    refused("silu_and_mul has no gradient", lambda: compiled(x.clone().requires_grad_()))


def a_step_refuses_gradients_but_without_them():
    loop = Loop([dense() for _ in range(LAYERS)])
    held = loop.step._kept["k_cache.1"].requires_grad_()
    refused("the step has no gradient, and k_cache.1", lambda: loop.step.capture(loop),
            (NotImplementedError,))
    held.requires_grad_(False)
    loop.gate_up.requires_grad_()
    refused("act.0 has no gradient", lambda: loop.step.capture(loop), (NotImplementedError,))
    with torch.no_grad():
        loop.step.capture(loop)
        loop.step([1, 2, 3])


def rows_advance_and_idle_ones_stay_idle():
    for positions in (False, True):
        loop = Loop([dense() for _ in range(LAYERS)], positions=positions)
        loop.step.capture(lambda: (loop(), loop.step.advance()))
        if positions:
            loop.step.positions.copy_(torch.tensor([7, 8, 9]))
        loop.step([1, 0, 5])
        loop.step()
        assert loop.step.lengths.tolist() == [3, 0, 7]
        if positions:
            assert loop.step.positions.tolist() == [9, 8, 11]

    step = loop.step

    def wake():
        loop()
        step.lengths += 1

    refused("the loop gave the idle row 0 a length", lambda: step.capture(wake),
            (figraph.errors.Order,))
    refused("no loop was captured", step, (figraph.errors.Order,))

    given = torch.tensor([0, 2, 0], device=DEVICE)

    def copied():  # a loop may set the lengths before it calls plan()
        step.lengths.copy_(given)
        loop()

    step.capture(copied)
    step()
    assert step.lengths.tolist() == [0, 2, 0]


def a_loop_plans_once_and_first():
    loop = Loop([dense() for _ in range(LAYERS)])
    step, order = loop.step, (figraph.errors.Order,)
    q, k, v = loop.qkv[0].clone().split((Q, KV, KV), 1)
    refused("the loop did not call plan()", lambda: step.capture(lambda: None), order)
    refused("attend(0) before plan()", lambda: step.capture(lambda: step.attend(0, q, k, v)), order)
    refused("the loop called plan() twice", lambda: step.capture(lambda: (loop(), loop())), order)
    refused("no loop was captured", lambda: step([1]), order)
    step.capture(loop)
    step([1])


def a_capture_that_raises_leaves_no_loop():
    """The earlier loop is gone too; otherwise its replay could be mistaken for the new one."""
    loop = Loop([dense() for _ in range(LAYERS)])
    loop.step.capture(loop)
    loop.step([1])

    def fail():
        loop()
        raise RuntimeError("no numbers")

    refused("no numbers", lambda: loop.step.capture(fail), (RuntimeError,))
    refused("no loop was captured", lambda: loop.step([1]), (figraph.errors.Order,))
    loop.step.capture(loop)
    loop.step([1])


class PlayedGraph:
    """Stands in for a torch.cuda.CUDAGraph. `captures` is true during a capture."""

    captures, replays = False, 0

    def replay(self):
        self.replays += 1


@contextlib.contextmanager
def played_capture(graph, stream):
    PlayedGraph.captures = True
    try:
        yield
    finally:
        PlayedGraph.captures = False


def played(step):
    """Makes a step on the CPU behave as on a GPU, with stand-ins for torch.cuda."""
    step.device, step._stream = types.SimpleNamespace(type="cuda", index=0), lambda: None
    return unittest.mock.patch.multiple(
        torch.cuda, Stream=unittest.mock.MagicMock(), CUDAGraph=PlayedGraph, graph=played_capture,
        stream=lambda stream: contextlib.nullcontext(),
        current_stream=unittest.mock.MagicMock(),
        is_current_stream_capturing=lambda: PlayedGraph.captures)


def a_capture_on_a_gpu_is_seen_to_alike():
    if DEVICE != "cpu":
        return
    loop = Loop([dense() for _ in range(LAYERS)])
    step, calls = loop.step, []

    def count():
        was = step._were_idle
        loop()
        calls.append((PlayedGraph.captures, step._were_idle is was))
        step.advance()

    def fail():
        loop()
        if PlayedGraph.captures:
            raise RuntimeError("no numbers")

    with played(step):
        step.capture(count)
        # Before the capture there are two runs with idle rows, which record their calls; the graph
        # contains neither.
        assert calls == [(False, False), (False, False), (True, True)], calls
        graph = step._graph
        step([1, 2])
        assert graph.replays == 1 and len(calls) == 3
        refused("no numbers", lambda: step.capture(fail), (RuntimeError,))
        refused("no loop was captured", lambda: step([1]), (figraph.errors.Order,))
        assert graph.replays == 1
        refused("the loop called plan() twice", lambda: step.capture(lambda: (loop(), loop())))
        refused("gave the idle row 0 a length",
                lambda: step.capture(lambda: (loop(), step.lengths.add_(1))))


def what_a_step_reads_is_written_into_and_not_replaced():
    loop = Loop([dense() for _ in range(LAYERS)], positions=True)
    for name in ("lengths", "positions"):
        other = torch.zeros(ROWS, dtype=torch.int32, device=DEVICE)
        refused(f"write into it, step.{name}.copy_", lambda: setattr(loop.step, name, other),
                (AttributeError,))
    kept = loop.step.lengths
    loop.step.lengths += 2
    assert loop.step.lengths is kept and kept.tolist() == [2, 2, 2]


def lengths_of_a_step_are_integers():
    loop = Loop([dense() for _ in range(LAYERS)])
    loop.step.capture(loop)
    for wrong in ([1.5, 2, 3], [True, 1, 1], torch.tensor([1.0, 2.0]), torch.tensor([True, True]),
                  torch.tensor([1.0], device=DEVICE)):
        refused("lengths", lambda: loop.step(wrong), (TypeError,))
    for wrong in ([1, (1 << 32) + 5], torch.tensor([1, (1 << 32) + 5])):
        refused(f"lengths[1] is {(1 << 32) + 5}", lambda: loop.step(wrong), (OverflowError,))
    for right in ([3, 4], (3, 4), torch.tensor([3, 4]), torch.tensor([3, 4], dtype=torch.uint8),
                  torch.tensor([3, 4], device=DEVICE), range(3, 5)):
        loop.step(right)
        assert loop.step.lengths.tolist() == [3, 4, 0]


def caches_and_rows_are_those_of_the_step():
    caches = [dense() for _ in range(3)]
    invalid = (figraph.errors.Invalid,)
    make = lambda caches, **options: ft.DecodeStep(SPEC, caches, rows=ROWS, **options)  # noqa: E731
    refused("there are 3 caches, the model has 2 layers", lambda: make(caches), invalid)
    refused("layers is 2, and there are 1 caches", lambda: make(caches[:1], layers=2), invalid)
    refused("caches is empty", lambda: make([]), invalid)
    narrow = [ft.Cache(*(x.to(torch.int8) for x in cache[:2])) for cache in caches[:2]]
    refused("caches[0].k is int8", lambda: make(narrow), (TypeError,))
    refused("caches[0].k is [24, 4, 64]",
            lambda: make([ft.Cache(*(x[0] for x in cache[:2])) for cache in caches[:2]]),
            (ValueError,))
    refused('layout is "nkd"', lambda: make(caches[:2], layout="nkd"), (ValueError,))
    pages = [paged(), paged()]
    refused("caches[1].page_table is another", lambda: make(pages), invalid)
    refused("caches[1].k is the memory of caches[0].k", lambda: make(2 * caches[:1]), invalid)
    one = caches[0]._replace(v=caches[0].k)
    refused("caches[0].v is the memory of caches[0].k", lambda: make([one, caches[1]]), invalid)
    refused("rows is 4294967299", lambda: ft.DecodeStep(SPEC, caches[:2], rows=(1 << 32) + 3),
            (OverflowError,))
    refused("kv_limit is what caches", lambda: make(caches[:2], kv_limit=8), (TypeError,))
    refused("a spec has no chek", lambda: make(caches[:2], chek=True), (TypeError,))
    step = make(caches[:2])
    q, k, v = normal(ROWS + 1, Q + 2 * KV, DIM).split((Q, KV, KV), 1)
    refused("tensor q.0: the array has shape [4, 8, 64]", lambda: step.attend(0, q, k, v), invalid)
    refused("shape [4, 64]", lambda: step.act(0, normal(ROWS + 1, 64)), invalid)
    refused("tensor gate_up.0 is a list", lambda: step.act(0, [1.0]), (TypeError,))
    refused("tensor v.0 is a list", lambda: step.attend(0, q, k, [1.0]), (TypeError,))


def a_step_s_keys_and_values_may_share_one_pool():
    """FlashInfer and vLLM keep K and V in one array: [pages, 2, tokens, heads, head_dim]."""
    apart, together = [paged() for _ in range(LAYERS)], []
    for n, cache in enumerate(apart):
        apart[n] = cache._replace(page_table=apart[0].page_table)
        pool = torch.stack(cache[:2], 1)
        together.append(ft.Cache(pool[:, 0], pool[:, 1], apart[0].page_table))
    loops = [Loop(caches) for caches in (apart, together)]
    loops[1].qkv, loops[1].gate_up = loops[0].qkv, loops[0].gate_up
    for loop in loops:
        loop.step.capture(loop)
        loop.step([5, 24, 9])
    for a, b in zip(apart, together):
        assert torch.equal(a.k, b.k) and torch.equal(a.v, b.v)
    for a, b in zip(loops[0].outs, loops[1].outs):
        assert torch.equal(a, b)


def the_documented_output_is_the_real_one():
    with open(os.path.join(HERE, "../../docs/python.md"), encoding="utf-8") as page:
        shown = page.read().split("```python\nimport figraph.torch as ft\n")[1].split("```")[0]
    names = dict(ft=ft)
    exec(shown, names)

    class Layer:
        """Stand-ins for matrix products: every head of q, k and v is a copy of the row."""

        def qkv(self, x):
            return [x.view(ROWS, 1, DIM).repeat(1, heads, 1) for heads in (Q, KV, KV)]

        def output(self, out):
            return out.mean(1)

        def gate_up(self, x):
            return x.repeat(1, 64 // DIM)

        def down(self, act):
            return act.sum(1, keepdim=True).expand(ROWS, DIM)

    hidden, caches = normal(ROWS, DIM), [dense() for _ in range(LAYERS)]
    was, twins = hidden.clone(), [copy_of(cache) for cache in caches]
    step = names["captured"](SPEC, caches, [Layer()] * LAYERS, hidden)
    hidden.copy_(was)
    step([5, 1, 24])
    for n, cache in enumerate(twins):
        window = 9 if n in SPEC.window_layers else 0
        out = ft.decode_attention(*Layer().qkv(was), cache, step.lengths,
                                  rope=ft.Rope(theta=5e5), logits=ft.Logits(window=window))
        was = was + out.mean(1)
        was = was + Layer().down(ft.silu_and_mul(was))
    close(hidden, numpy(was), 1e-4)
    refused("row 0 has length 25", lambda: step([25]))


def several_steps_share_one_pool_and_one_table():
    """The steps have different numbers of rows. Pages are packed, and the table is wider than any
    row needs."""
    caches = [paged() for _ in range(LAYERS)]
    wide = torch.zeros(ROWS, (1 << 20) // 8 + 3, dtype=torch.int32, device=DEVICE)
    wide[:, :3] = caches[0].page_table
    pools = [torch.cat(cache[:2], -1) for cache in caches]
    twins = [cache._replace(page_table=caches[0].page_table) for cache in map(copy_of, caches)]
    for rows in (1, 2, 3):
        shared = [ft.Cache(*pool.split(DIM, -1), wide) for pool in pools]
        step = ft.DecodeStep(SPEC, shared, rows=rows, check=True)
        assert step.cap == 1 << 20
        qkv = normal(rows, Q + 2 * KV, DIM)
        outs = []

        def loop():
            step.plan()
            outs[:] = [step.attend(n, *qkv.clone().split((Q, KV, KV), 1)) for n in range(LAYERS)]

        step.capture(loop)
        step([24, 1, 9][:rows])
        for n, out in enumerate(outs):
            q, k, v = qkv.clone().split((Q, KV, KV), 1)
            logits = ft.Logits(window=9 if n in SPEC.window_layers else 0)
            wanted = ft.decode_attention(q, k, v, twins[n], step.lengths, logits=logits,
                                         rope=ft.Rope(theta=5e5))
            close(out, numpy(wanted), 1e-5)
            close(shared[n].k, numpy(twins[n].k), 1e-5)
    for cache, words in (
        (dense(2), "caches[0].k is [2, 24, 4, 64], its dim 0 must be at least 3"),
        (twins[0]._replace(page_table=wide[:2]), "caches[0].page_table is [2, 131075]"),
        (twins[0]._replace(page_table=wide.long()), "caches[0].page_table is int64"),
    ):
        refused(words, lambda: ft.DecodeStep(SPEC, [cache], rows=3))


def a_step_may_have_several_tokens_a_row():
    """Tests steps without RoPE over 8-bit caches; q has separate dims for rows and tokens, or one
    dim for both."""
    half = [dense(dtype=torch.float16) for _ in range(LAYERS)]
    scale = torch.ones(1, device=DEVICE)
    caches = [ft.Cache(*(x.to(torch.float8_e4m3fn).view(torch.uint8) for x in cache[:2]),
                       k_scale=scale, v_scale=scale) for cache in half]
    twins = [copy_of(cache) for cache in caches]
    step = ft.DecodeStep(SPEC, caches, rows=ROWS, dtype="f16", row_tokens=2, kv_dtype="fp8",
                         plain_layers=tuple(range(LAYERS)), check=True)
    qkv = [normal(ROWS, 2, Q + 2 * KV, DIM, dtype=torch.float16) for _ in range(LAYERS)]
    outs, act = [], normal(ROWS, 2, 64, dtype=torch.float16)

    def loop():
        step.plan()
        outs.clear()
        assert step.act(0, act).shape == (ROWS, 2, 32)
        for n, x in enumerate(qkv):
            q, k, v = x.clone().split((Q, KV, KV), 2)
            if n == 0:
                q, k, v = (y.reshape(2 * ROWS, -1, DIM) for y in (q, k, v))
            outs.append(step.attend(n, q, k, v).view(ROWS, 2, Q, DIM))
        step.advance()

    step.capture(loop)
    step([22, 2, 0])
    assert step.lengths.tolist() == [24, 4, 0]
    for lengths in ([22, 2, 0], [24, 4, 0]):
        given = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
        for n, x in enumerate(qkv):
            q, k, v = x.clone().split((Q, KV, KV), 2)
            logits = ft.Logits(window=9 if n in SPEC.window_layers else 0)
            wanted = ft.decode_attention(q, k, v, twins[n], given, rope=None, kv_dtype="e4m3",
                                         logits=logits)
            close(outs[n], numpy(wanted), 1e-3)
            assert torch.equal(caches[n].k, twins[n].k)
        if lengths[0] == 22:
            step()
    refused("row 1 has length 1, it has 2 new tokens", lambda: step([4, 1, 0]))
    refused("tensor gate_up.0: the array has shape [3, 64], its rows must be the step's 6",
            lambda: step.act(0, act[:, 0]))
    refused("caches[0].k is uint8, kv_dtype must say",
            lambda: ft.DecodeStep(SPEC, caches, rows=ROWS, dtype="f16"))
    refused("caches[1].v is float16, it must be uint8", lambda: ft.DecodeStep(
        SPEC, [caches[0], caches[1]._replace(v=half[1].v)], rows=ROWS, dtype="f16",
        kv_dtype="e4m3"))


CASES = [
    several_steps_share_one_pool_and_one_table,
    a_step_may_have_several_tokens_a_row,
    the_documented_output_is_the_real_one,
    a_step_is_its_layers_for_every_length,
    a_step_with_a_score_is_its_layers,
    a_step_refuses_scores_by_name,
    a_step_may_count_its_own_lengths,
    positions_may_be_given_apart,
    a_step_refuses_what_it_cannot_hold,
    a_plan_that_is_not_one_stretch_is_refused,
    a_tensor_that_requires_a_gradient_is_refused,
    a_step_refuses_gradients_but_without_them,
    rows_advance_and_idle_ones_stay_idle,
    a_loop_plans_once_and_first,
    a_capture_that_raises_leaves_no_loop,
    a_capture_on_a_gpu_is_seen_to_alike,
    what_a_step_reads_is_written_into_and_not_replaced,
    lengths_of_a_step_are_integers,
    caches_and_rows_are_those_of_the_step,
    a_step_s_keys_and_values_may_share_one_pool,
]
if __name__ == "__main__":
    run(CASES)
