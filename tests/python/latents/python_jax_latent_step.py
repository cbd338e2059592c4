"""python_jax_latent_step.py: compares whole decode steps of figraph.jax over latent caches (MLA)
with latent_decode, which python_jax_latent.py compares with float64.

Run where jax and figraph can be imported. JAX's four devices are all the CPU.
"""

import os
import sys

HASTE = "--xla_backend_optimization_level=0"  # compiling takes most of the test's time
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4 " + HASTE
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, *(os.path.join(HERE, "../..", name) for name in ("support", "jax"))]
import figraph  # noqa: E402
import figraph.jax as fj  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from cases import close  # noqa: E402
from figraph import ffi  # noqa: E402
from jax import export  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from python_jax_latent import ROPE, SCALE, int32, normal  # noqa: E402
from sentences import refused, run  # noqa: E402

LAYERS, ROWS, HEADS, TOKENS, PAGE = 2, 3, 32, 24, 8
PARAMS = [dict(q=normal(HEADS, 576), out=normal(HEADS, 512) / 512, norm=normal(512))
          for _ in range(LAYERS)]
INPUTS = normal(TOKENS + 2, ROWS, 576)


def options_of(layer, n):
    """Returns the arguments that both ways take. The second layer has a window."""
    return dict(rope=ROPE, norm=layer["norm"], logits=fj.Logits(scale=SCALE, window=5 * n))


class Model:
    """Each layer adds to x what its heads read; x is the new token too. is_apart: q is in two
    arrays."""

    def __init__(self, axis=None, is_apart=False, **given):
        self.traces, self.axis, self.is_apart, self.given = 0, axis, is_apart, given

    def __call__(self, params, state, x, *starts):
        self.traces += 1
        given = dict(self.given, **({"query_start_loc": starts[0]} if starts else {}))
        for n, layer in enumerate(params):
            q = (x[:, None] * layer["q"]).astype(x.dtype)
            parts = dict(q=q)
            if self.is_apart:
                parts = dict(q=q[..., :512], q_rope=q[..., 512:])
            out, state = state.attend_latent(n, latent=x, **parts, **options_of(layer, n), **given)
            x = with_out(x, out, layer, self.axis)
        return x, state


def with_out(x, out, layer, axis=None):
    part = (out.astype(jnp.float32) * layer["out"]).sum(1)
    part = part if axis is None else jax.lax.psum(part, axis)
    return (x + jnp.pad(part, ((0, 0), (0, 64)))).astype(x.dtype)


def truth(caches, lengths, x, **given):
    """Returns the result and the caches by one call of latent_decode for each layer."""
    caches = list(caches)
    for n, layer in enumerate(PARAMS):
        q = (x[:, None] * layer["q"]).astype(x.dtype)
        more = dict(options_of(layer, n), norm=layer["norm"].astype(x.dtype), **given)
        got = fj.latent_decode(q, x, caches[n], lengths, **more)
        x, caches[n] = with_out(x, got.out, layer), got.cache
    return x, caches


def begun(rows=ROWS, dtype=jnp.float32, **more):
    """Returns the state before the first token of every row. Pages are in a random order."""
    state = fj.State.empty_latents(LAYERS, rows, TOKENS, dtype=dtype, **more)
    table = state.caches[0].page_table
    if table is not None:
        pages = np.random.default_rng(1).permutation(table.size).astype(np.int32)
        table = jnp.asarray(pages.reshape(table.shape))
    return state.serving(jnp.ones(rows, jnp.int32), table)


def cast(params, dtype):
    return [dict(layer, norm=layer["norm"].astype(dtype)) for layer in params]


PAGED = dict(pages=9, page_size=PAGE)


def one_trace_serves_every_length():
    for more, dtype in ((dict(), jnp.float32), (PAGED, jnp.float32),
                        (dict(PAGED, dtype=jnp.uint8), jnp.bfloat16)):
        model, state = Model(), begun(**more)
        step, caches, before = fj.DecodeStep(model), state.caches, ffi.counts()
        twins, params = jax.tree_util.tree_map(jnp.array, caches), cast(PARAMS, dtype)
        for token in range(6):
            x = INPUTS[token].astype(dtype)
            wanted, twins = truth(twins, int32([token + 1] * ROWS), x)
            out, state = step(params, state, x)
            close(out, np.float64(wanted), 1e-5 if dtype == jnp.float32 else 5e-2)
            for mine, theirs in zip(state.caches, twins):
                if dtype == jnp.float32:
                    close(mine.latents, theirs.latents, 1e-5)
        assert model.traces == 1 and state.cap == TOKENS and state.is_latent
        assert np.asarray(state.lengths).tolist() == [7] * ROWS
        assert ffi.counts().missed - before.missed <= 8


def q_may_be_in_two_arrays():
    """Every way in which a State is used gives the bits that it gives for q in one array."""
    starts = int32([0, 2, 3, 4])
    packed = begun(**PAGED).serving(int32([2, 1, 1]), begun(**PAGED).caches[0].page_table)
    for make, inputs, given in (
        (begun, INPUTS[:3], {}),
        (lambda: begun(**PAGED), INPUTS[:3], {}),
        (lambda: jax.tree_util.tree_map(jnp.array, packed), normal(1, 4, 576),
         dict(query_start_loc=starts, row_tokens=2)),
        (lambda: begun(dtype=jnp.uint8, **PAGED), INPUTS[:3].astype(jnp.bfloat16), {}),
        (begun, INPUTS[:1], dict(positions=int32([7, 3, 2000]))),
    ):
        params = cast(PARAMS, inputs.dtype)
        steps = [fj.DecodeStep(Model(is_apart=is_apart, **given)) for is_apart in (False, True)]
        one, two = make(), make()
        for x in inputs:
            (wanted, one), (out, two) = steps[0](params, one, x), steps[1](params, two, x)
            np.testing.assert_array_equal(wanted, out)
        for mine, theirs in zip(one.caches, two.caches):
            np.testing.assert_array_equal(mine.latents, theirs.latents)
        assert np.asarray(one.lengths).tolist() == np.asarray(two.lengths).tolist()
        assert steps[1].model.traces == 1
        told = steps[1].explain(params, two, inputs[0])
        assert told.donated_bytes == told.aliased_bytes > 0 and not told.copies_cache, told


def latents_are_donated_and_page_tables_are_not():
    for dtype, kind in ((jnp.float32, jnp.float32), (jnp.bfloat16, jnp.uint8)):
        step, state = fj.DecodeStep(Model()), begun(dtype=kind, **PAGED)
        params, x = cast(PARAMS, dtype), INPUTS.astype(dtype)
        table = jnp.asarray(state.caches[0].page_table)
        state = state.serving(jnp.asarray(state.lengths), table)
        _, grown = step(params, state, x[0])
        assert all(c.latents.is_deleted() for c in state.caches)
        assert all(c.page_table is table for c in grown.caches) and not table.is_deleted()
        bucket = next(iter(step.buckets.values()))
        held = sum(c.latents.nbytes for c in grown.caches) + grown.lengths.nbytes
        assert bucket.memory_analysis().alias_size_in_bytes == held
        told = step.explain(params, grown, x[1])
        assert told.donated_bytes == told.aliased_bytes > 0 and not told.copies_cache, told


def idle_rows_stay_idle():
    step, state = fj.DecodeStep(Model()), begun().serving(int32([1, 0, 1]))
    caches, twins = state.caches, None
    twins = jax.tree_util.tree_map(jnp.array, caches)
    out, state = step(PARAMS, state, INPUTS[0])
    wanted, _ = truth(twins, int32([1, 0, 1]), INPUTS[0])
    close(out, np.float64(wanted), 1e-5)
    close(out[1], INPUTS[0, 1], 0)
    assert np.asarray(state.lengths).tolist() == [2, 0, 2]


def layers_of_a_kind_read_one_plan():
    text = str(jax.make_jaxpr(fj.DecodeStep(Model()))(PARAMS, begun(), INPUTS[0]))
    assert text.count("figraph.plan") == LAYERS  # the window makes the second layer another kind
    assert text.count("figraph.latent_decode") == LAYERS
    state, kinds = begun(), []
    for n in range(LAYERS):
        q = INPUTS[0][:, None] * PARAMS[n]["q"]
        _, state = state.attend_latent(n, q, INPUTS[0], **options_of(PARAMS[n], 0))
        kinds.append(len(state.plans))
    assert kinds == [1, 1], kinds


def rows_may_have_different_numbers_of_tokens():
    starts, most = int32([0, 12, 13, 15]), 12
    step, state = fj.DecodeStep(Model(row_tokens=most)), begun(**PAGED)
    state = state.serving(int32([14, 1, 9]), state.caches[0].page_table)
    twins, x = jax.tree_util.tree_map(jnp.array, state.caches), normal(15, 576)
    wanted, _ = truth(twins, int32([14, 1, 9]), x, query_start_loc=starts, row_tokens=most)
    out, state = step(PARAMS, state, x, starts)
    close(out, np.float64(wanted), 1e-5)
    assert np.asarray(state.lengths).tolist() == [26, 2, 11]


def positions_may_be_given():
    places = int32([7, 3, 2000])
    step, state = fj.DecodeStep(Model(positions=places)), begun()
    twins = jax.tree_util.tree_map(jnp.array, state.caches)
    wanted, _ = truth(twins, int32([1] * ROWS), INPUTS[0], positions=places)
    close(step(PARAMS, state, INPUTS[0])[0], np.float64(wanted), 1e-5)


def lengths_past_the_cap_raise_where_that_is_checked():
    step = fj.DecodeStep(Model(), check=True)
    refused(f"lengths[1] is {TOKENS + 1}, its cache holds {TOKENS} tokens",
            lambda: step(PARAMS, begun().serving(int32([1, TOKENS + 1, 2])), INPUTS[1]),
            (figraph.errors.TooLarge,))


def a_step_is_exported_with_its_state():
    allow = [export.DisabledSafetyCheck.custom_call(name) for name in fj.custom_calls()]
    jitted = jax.jit(fj.DecodeStep(Model()))
    made = export.export(jitted, disabled_checks=allow)(PARAMS, begun(**PAGED), INPUTS[0])
    out, grown = export.deserialize(made.serialize()).call(PARAMS, begun(**PAGED), INPUTS[0])
    wanted, _ = truth(begun(**PAGED).caches, int32([1] * ROWS), INPUTS[0])
    close(out, np.float64(wanted), 1e-5)
    assert type(grown) is fj.State and grown.is_latent


def heads_are_shared_and_each_rank_has_the_whole_cache():
    mesh = Mesh(np.array(jax.devices()), ("heads",))
    specs = [dict(q=P("heads"), out=P("heads"), norm=P()) for _ in PARAMS]
    make = lambda **more: fj.DecodeStep(  # noqa: E731
        Model("heads", **more), mesh=mesh, axis="heads", params=specs)
    place = lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec))  # noqa: E731
    for is_apart in (False, True):
        step, state = make(is_apart=is_apart), begun()
        twins = jax.tree_util.tree_map(jnp.array, state.caches)
        spread = jax.tree_util.tree_map(place, state, state.over_heads("heads"))
        for token in range(2):
            wanted, twins = truth(twins, int32([token + 1] * ROWS), INPUTS[token])
            out, spread = step(PARAMS, spread, INPUTS[token])
            close(out, np.float64(wanted), 1e-4)
        latents = spread.caches[0].latents
        assert latents.addressable_shards[0].data.shape == latents.shape == (ROWS, TOKENS, 576)
    cut = jax.tree_util.tree_map(lambda x: place(x, P(None, "heads") if x.ndim == 3 else P()),
                                 begun())
    refused("each device must have whole latent caches", lambda: make()(PARAMS, cut, INPUTS[0]),
            (ValueError,))


def mistakes_are_told_by_name():
    state, x = begun(), INPUTS[0]
    q, option = x[:, None] * PARAMS[0]["q"], options_of(PARAMS[0], 0)
    pair = fj.Cache(*(jnp.zeros((ROWS, TOKENS, 4, 64)) for _ in "kv"))
    lengths, latent = state.lengths, state.caches[0]
    for words, call in (
        ("caches[0] is a LatentCache: call attend_latent", lambda: state.attend(0, q, x, x)),
        ("caches[0] is a Cache: call attend", lambda: fj.State([pair], lengths).attend_latent(
            0, q, x, **option)),
        ("caches[1] is a Cache, but caches[0] is a LatentCache",
         lambda: fj.State([latent, pair], lengths)),
        ("caches[1] is a LatentCache, but caches[0] is a Cache",
         lambda: fj.State([pair, latent], lengths)),
        ("layout is given, but a latent cache has none",
         lambda: fj.State([latent], lengths, layout="hnd")),
        ("caches is empty", lambda: fj.State([], lengths)),
        ("tokens is 24, it must be a multiple of 5", lambda: begun(pages=9, page_size=5)),
        ("latent is [2, 576], it must be [3, 576] like q",
         lambda: state.attend_latent(0, q, x[:2], **option)),
        ("cache.latents is float32, it must be bfloat16 or uint8",
         lambda: state.attend_latent(0, q.astype(jnp.bfloat16), x, **option)),
        ("logits.scale is 0, it must be given",
         lambda: state.attend_latent(0, q, x, logits=fj.Logits())),
        ("q is [3, 32, 576], its last dim must be 512 beside q_rope",
         lambda: state.attend_latent(0, q, x, q_rope=q[..., 512:], **option)),
        ("q is [3, 32, 512], it must be [3, 32, 576]",
         lambda: state.attend_latent(0, q[..., :512], x, **option)),
        ("q_rope is bfloat16, it must be float32",
         lambda: state.attend_latent(0, q[..., :512], x, **option,
                                     q_rope=q[..., 512:].astype(jnp.bfloat16))),
        ("q_rope is [2, 32, 64], it must be [3, 32, 64] like q",
         lambda: state.attend_latent(0, q[..., :512], x, q_rope=q[:2, :, 512:], **option)),
        ("row_tokens is 3, but query_start_loc is not given",
         lambda: state.attend_latent(0, q, x, row_tokens=3, **option)),
        ("the model gave tuple", lambda: fj.DecodeStep(lambda params, state, x: (x, state.caches))(
            PARAMS, begun(), x)),
    ):
        refused(words, call)


run([
    one_trace_serves_every_length,
    q_may_be_in_two_arrays,
    latents_are_donated_and_page_tables_are_not,
    idle_rows_stay_idle,
    layers_of_a_kind_read_one_plan,
    rows_may_have_different_numbers_of_tokens,
    positions_may_be_given,
    lengths_past_the_cap_raise_where_that_is_checked,
    a_step_is_exported_with_its_state,
    heads_are_shared_and_each_rank_has_the_whole_cache,
    mistakes_are_told_by_name,
])
