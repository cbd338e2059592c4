"""python_torch_latent_step.py: compares figraph.torch.DecodeStep over latent caches (MLA) with
latent_decode, which python_torch_latent.py compares with float64.

    tests/python/latents/python_torch_latent_step.py [DEVICE]

Run where torch and figraph can be imported.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
import figraph  # noqa: E402
import figraph.torch as ft  # noqa: E402
import torch  # noqa: E402
from python_torch import DEVICE, close, normal, numpy, refused, run  # noqa: E402
from python_torch_latent import (  # noqa: E402
    HEADS, PAGE, ROOM, ROWS, SCALE, TURNS, copy_of, dense, int32, paged, parts_of)

LAYERS, WINDOW = 2, 9
ROPE = figraph.Rope(theta=TURNS["theta"], interleaved=1)
SPEC = figraph.Spec(dtype="bf16", q_heads=HEADS, kv_heads=1, head_dim=576, latent_dim=512,
                    latent_norm_epsilon=1e-5, sm_scale=SCALE, ffn_width=32, ffn_rows=2,
                    dense_layers=1, dense_width=64, batch_limit=8, kv_limit=64, layers=LAYERS,
                    window=WINDOW, window_layers=(1,), rope=ROPE)
invalid, order = (figraph.errors.Invalid,), (figraph.errors.Order,)


def caches_of(make, *dtype):
    """Returns the caches of all layers, with one page table."""
    made = [make(*dtype) for _ in range(LAYERS)]
    return [made[0], *(cache._replace(page_table=made[0].page_table) for cache in made[1:])]


class Loop:
    """A loop over two layers without matrix products, each with inputs of its own."""

    def __init__(self, caches, dtype=torch.bfloat16, rows=ROWS, **options):
        norms = {f"latent_norm.{n}": normal(512, dtype=dtype) for n in range(LAYERS)}
        self.step = ft.DecodeStep(SPEC, caches, rows=rows, dtype=dtype, weights=norms, **options)
        self.has_parts = options.get("q_rope", False)
        self.norms, count = list(norms.values()), self.step.tokens
        self.q = [normal(count, HEADS, 576, dtype=dtype) for _ in range(LAYERS)]
        self.latent = [normal(count, 576, dtype=dtype) for _ in range(LAYERS)]
        self.outs = [normal(count, HEADS, 512, dtype=dtype) for _ in range(LAYERS)]

    def __call__(self):
        self.step.plan()
        for n, out in enumerate(self.outs):
            q, parts = self.q[n].clone(), {}
            if self.has_parts:
                q, parts["q_rope"] = parts_of(q)
            assert self.step.attend_latent(n, q, self.latent[n], out, **parts) is out

    def right(self, caches, twins, **given):
        """Compares the last step with the operators, which append to `twins`."""
        lengths = self.step.lengths
        for n, out in enumerate(self.outs):
            window = WINDOW if n in SPEC.window_layers else 0
            q, latent = self.q[n].clone(), self.latent[n]
            if not given and self.step.spec.row_tokens > 1:
                each = (self.step.rows, self.step.spec.row_tokens)
                q, latent = q.unflatten(0, each), latent.unflatten(0, each)
            wanted = ft.latent_decode(
                q, latent, twins[n], lengths, norm=self.norms[n], norm_epsilon=1e-5,
                rope=ft.Rope(theta=TURNS["theta"], interleaved=True),
                logits=ft.Logits(scale=SCALE, window=window), **given)
            used = int(given["query_start_loc"][-1]) if given else out.shape[0]
            close(out[:used], numpy(wanted.flatten(0, -3)[:used]), 3e-2)
            assert torch.equal(caches[n].latents, twins[n].latents)


def a_step_is_its_layers_for_every_length():
    for make in (dense, paged):
        for holds, dtype in ((torch.bfloat16, torch.bfloat16), (torch.uint8, torch.float16),
                             (torch.float32, torch.float32)):
            caches = caches_of(make, holds)
            twins = [copy_of(cache) for cache in caches]
            loop = Loop(caches, dtype)
            assert loop.step.cap == ROOM
            loop.step.capture(loop)
            for cache, twin in zip(caches, twins):  # idle rows append nothing
                assert torch.equal(cache.latents, twin.latents)
            for lengths in ([24, 1, 25, 11], [7, 0], torch.tensor([1, 2, 3, 4]), None):
                loop.step(lengths)
                loop.right(caches, twins)
            assert loop.step.lengths.tolist() == [1, 2, 3, 4]


def a_step_advances_and_idle_rows_stay_idle():
    caches = caches_of(paged, torch.uint8)
    twins, loop = [copy_of(cache) for cache in caches], Loop(caches, check=True)
    loop.step.capture(loop)
    loop.step.lengths.copy_(int32([1, 0, 5, 9]))
    for grown in range(3):
        loop.step()
        assert loop.step.lengths.tolist() == [1 + grown, 0, 5 + grown, 9 + grown]
        loop.right(caches, twins)
        loop.step.advance()

    def wake():
        loop()
        loop.step.lengths.add_(1)

    refused("the loop gave the idle row 0 a length", lambda: loop.step.capture(wake), order)


def rows_may_have_several_tokens():
    for row_tokens in (2, 11):
        caches = caches_of(paged, torch.bfloat16)
        twins = [copy_of(cache) for cache in caches]
        loop = Loop(caches, row_tokens=row_tokens, check=True)
        loop.step.capture(lambda: (loop(), loop.step.advance()))
        loop.step([13, 11, 0, 12])
        loop.step.lengths.copy_(int32([13, 11, 0, 12]))
        loop.right(caches, twins)
        refused("its cache holds 24", lambda: loop.step([25, 11, 0, 12]))
        refused(f"row 1 has length 1, it has {row_tokens} new tokens",
                lambda: loop.step([13, 1, 0, 12]))


def rows_may_have_different_numbers_of_tokens():
    caches = caches_of(paged, torch.uint8)
    twins = [copy_of(cache) for cache in caches]
    loop = Loop(caches, row_tokens=12, query_limit=20, check=True)
    assert loop.step.tokens == 20
    loop.step.capture(loop)
    for lengths, starts in (([24, 1, 20, 11], [0, 2, 3, 15, 18]), ([5, 9, 3, 2], [0, 1, 2, 3, 5])):
        loop.step(lengths, starts)
        loop.right(caches, twins, query_start_loc=int32(starts), row_tokens=12)
    refused("query_start_loc gives row 0 13 new tokens, limits 0 to 12",
            lambda: loop.step([24, 1, 1, 1], [0, 13, 14, 15, 16]))


def q_may_be_in_two_tensors():
    for holds, options in ((torch.bfloat16, {}), (torch.uint8, dict(row_tokens=2)),
                           (torch.bfloat16, dict(row_tokens=3, query_limit=9))):
        caches = caches_of(paged, holds)
        twins = [copy_of(cache) for cache in caches]
        whole, loop = Loop(twins, **options), Loop(caches, q_rope=True, **options)
        whole.q, whole.latent, norms = loop.q, loop.latent, zip(whole.norms, loop.norms)
        for own, other in norms:
            own.copy_(other)
        more = [[0, 2, 3, 6, 9]] if "query_limit" in options else []
        for one in (whole, loop):
            one.step.capture(one)
            one.step([24, 3, 20, 11], *more)
        for n in range(LAYERS):
            assert torch.equal(whole.outs[n], loop.outs[n])
            assert torch.equal(twins[n].latents, caches[n].latents)


def positions_may_be_given_apart():
    caches = caches_of(paged, torch.bfloat16)
    twins, loop = [copy_of(cache) for cache in caches], Loop(caches, positions=True)
    loop.step.capture(loop)
    loop.step.positions.copy_(int32([3, 4, 5, 6]) - 1)
    loop.step([3, 4, 5, 6])
    loop.right(caches, twins)
    was = [out.clone() for out in loop.outs]
    loop.step.positions.add_(7)
    loop.step([3, 4, 5, 6])
    assert not torch.allclose(loop.outs[0].float(), was[0].float(), 1e-2, 1e-2)


def first_layers_may_have_no_experts():
    step = Loop(caches_of(dense, torch.bfloat16)).step
    wide = normal(ROWS, 128, dtype=torch.bfloat16)
    narrow = normal(2 * ROWS, 64, dtype=torch.bfloat16)
    step.plan()
    assert step.act(0, wide).shape == (ROWS, 64)
    assert step.act(1, narrow).shape == (2 * ROWS, 32)
    close(step.act(0, wide), numpy(ft.silu_and_mul(wide)), 1e-2)
    refused("its rows must be the step's 8", lambda: step.act(1, narrow[:ROWS]))
    refused("its rows must be the step's 4", lambda: step.act(0, narrow.repeat(1, 2)))


def several_steps_share_one_pool_and_one_table():
    """The table is wider than any row needs, as tables of pools are."""
    cache = paged(torch.bfloat16)
    wide = torch.zeros(ROWS, (1 << 20) // PAGE + 3, dtype=torch.int32, device=DEVICE)
    wide[:, : cache.page_table.shape[1]] = cache.page_table
    caches = [ft.LatentCache(cache.latents.clone(), wide) for _ in range(LAYERS)]
    twins = [ft.LatentCache(c.latents.clone(), cache.page_table) for c in caches]
    for rows in (1, 3, ROWS):
        loop = Loop(caches, rows=rows)
        assert loop.step.cap == 1 << 20
        loop.step.capture(loop)
        loop.step([24, 1, 9, 2][:rows])
        loop.right(caches, twins)


def mistakes_are_told_by_name():
    caches, codes = caches_of(paged, torch.bfloat16), paged(torch.uint8)
    table, pair = caches[0].page_table, ft.Cache(normal(12, 8, 1, 64), normal(12, 8, 1, 64))
    plain = figraph.Spec(dtype="bf16", q_heads=8, kv_heads=1, head_dim=64, batch_limit=8,
                         kv_limit=64, layers=LAYERS)

    def make(caches, spec=SPEC, **options):
        return ft.DecodeStep(spec, caches, rows=ROWS, **options)

    shifted = caches[0]._replace(page_table=table + 1)
    for words, call in (
        ("caches[1] is a Cache, but caches[0] is a LatentCache", lambda: make([caches[0], pair])),
        ("caches[1] is a LatentCache, but caches[0] is a Cache", lambda: make([pair, caches[0]])),
        ("caches[0] is a LatentCache, but the model's latent_dim is 0",
         lambda: make(caches, plain)),
        ("caches[0] is a Cache, but the model's latent_dim is 512", lambda: make([pair, pair])),
        ("kv_dtype is given, but a latent cache has none", lambda: make([codes], kv_dtype="fp8")),
        ("layout is given, but a latent cache has none", lambda: make(caches, layout="hnd")),
        ("caches[0].latents is int8",
         lambda: make([caches[0]._replace(latents=codes.latents.view(torch.int8))])),
        ("caches[0].latents is [12, 8, 576], it must be [any, any, 656]",
         lambda: make([ft.LatentCache(codes.latents[..., :576], table)])),
        ("caches[0].latents is [12, 8, 512], it must be [any, any, 576]",
         lambda: make([ft.LatentCache(caches[0].latents[..., :512], table)])),
        ("caches[0].latents is [3, 24, 576], its dim 0 must be at least 4",
         lambda: make([ft.LatentCache(dense(torch.bfloat16).latents[:3])])),
        ("caches[0].page_table is int64",
         lambda: make([caches[0]._replace(page_table=table.long())])),
        ("caches[0].page_table is [3, 3], its dim 0 must be at least 4",
         lambda: make([caches[0]._replace(page_table=table[:3])])),
        ("caches[1].page_table is another", lambda: make([caches[0], shifted])),
        ("kv_dtype is FIG_BF16, but dtype is FIG_F32", lambda: make(caches, dtype="f32")),
        ("row_tokens is 17, limit 16", lambda: make(caches, row_tokens=17)),
        ("the program has no tensor latent_norm.2",
         lambda: make(caches, weights={"latent_norm.2": normal(512)})),
    ):
        refused(words, call)
    loop = Loop(caches)
    q, latent, step = loop.q[0], loop.latent[0], loop.step
    refused("the step's caches are latent: call attend_latent",
            lambda: step.attend(0, q, latent, latent), invalid)
    refused("attend_latent(0) before plan()",
            lambda: step.capture(lambda: step.attend_latent(0, q, latent)), order)
    refused("tensor latent.0: the array has shape [3, 576]",
            lambda: step.attend_latent(0, q, latent[:3]), invalid)
    refused("tensor latent.0: the array has dtype f16",
            lambda: step.attend_latent(0, q, latent.half()))
    refused("attn.0 has no gradient",
            lambda: step.attend_latent(0, q, latent.clone().requires_grad_()))
    first, rope = parts_of(q)
    refused("attend_latent(0): q_rope is given, but the step was made with q_rope=False",
            lambda: step.attend_latent(0, first, latent, q_rope=rope), invalid)
    split = Loop(caches, q_rope=True).step
    split.plan()
    refused("attend_latent(1): q_rope is not given, but the step was made with q_rope=True",
            lambda: split.attend_latent(1, q, latent), invalid)
    refused("tensor q.0: the array has shape [4, 16, 576]",
            lambda: split.attend_latent(0, q, latent, q_rope=rope))
    refused("tensor q_rope.0: the array has shape [4, 16, 32]",
            lambda: split.attend_latent(0, first, latent, q_rope=rope[..., :32]))
    refused("tensor q_rope.0: the array has dtype f16",
            lambda: split.attend_latent(0, first, latent, q_rope=rope.half()))
    refused("tensor q_rope.0: the array has shape [3, 16, 64]",
            lambda: split.attend_latent(0, first, latent, q_rope=rope[:3]), invalid)
    pairs = [ft.Cache(*(normal(ROWS, 8, 1, 64, dtype=torch.bfloat16) for _ in "kv"))
             for _ in range(LAYERS)]
    refused("caches[1].latents is the memory of caches[0].latents",
            lambda: make(caches[:1] * LAYERS), invalid)
    refused("q in two parts, but latent_dim is 0, it must be 512",
            lambda: ft.DecodeStep(plain, pairs, rows=ROWS, q_rope=True), invalid)
    refused("q_rope is True beside a score or a mask",
            lambda: make(caches, q_rope=True, score="score * 2.0"), invalid)
    other = ft.DecodeStep(plain, [ft.Cache(*(normal(ROWS, 8, 1, 64, dtype=torch.bfloat16)
                                             for _ in "kv"))], rows=ROWS)
    refused("call attend", lambda: other.attend_latent(0, q, latent), invalid)
    bare = ft.DecodeStep(SPEC, caches, rows=ROWS)
    bare.plan()
    refused("latent_norm.0", lambda: bare.attend_latent(0, q, latent))


def the_documented_output_is_the_real_one():
    with open(os.path.join(HERE, "../../../docs/python.md"), encoding="utf-8") as page:
        shown = page.read().split("```python\ndef captured_latents(")[1].split("```")[0]
    names = dict(ft=ft)
    exec("def captured_latents(" + shown, names)

    class Layer:
        """Stand-ins for matrix products: q and the new token are parts of a row."""

        weight = normal(512, dtype=torch.bfloat16)

        def queries(self, x):
            return x[:, None, :576].repeat(1, HEADS, 1)

        def latent(self, x):
            return x[:, :576].contiguous()

        def output(self, out):
            return torch.nn.functional.pad(out.mean(1), (0, 64))

    hidden, caches = normal(ROWS, 576, dtype=torch.bfloat16), caches_of(paged, torch.bfloat16)
    was, layers = hidden.clone(), [Layer() for _ in range(LAYERS)]
    twins = [copy_of(cache) for cache in caches]
    step = names["captured_latents"](SPEC, caches, layers, hidden)
    hidden.copy_(was)
    step([5, 1, 24, 2])
    for n, (layer, cache) in enumerate(zip(layers, twins)):
        window = WINDOW if n in SPEC.window_layers else 0
        out = ft.latent_decode(layer.queries(was), layer.latent(was), cache, step.lengths,
                               norm=layer.weight, norm_epsilon=1e-5,
                               rope=ft.Rope(theta=TURNS["theta"], interleaved=True),
                               logits=ft.Logits(scale=SCALE, window=window))
        was = was + layer.output(out)
    close(hidden, numpy(was), 5e-2)


CASES = [
    a_step_is_its_layers_for_every_length,
    a_step_advances_and_idle_rows_stay_idle,
    rows_may_have_several_tokens,
    rows_may_have_different_numbers_of_tokens,
    q_may_be_in_two_tensors,
    positions_may_be_given_apart,
    first_layers_may_have_no_experts,
    several_steps_share_one_pool_and_one_table,
    mistakes_are_told_by_name,
    the_documented_output_is_the_real_one,
]
if __name__ == "__main__":
    run(CASES)
