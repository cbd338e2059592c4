"""python_jax_step.py: compares whole decode steps of figraph.jax on the CPU with float64
references.

Run where jax and figraph can be imported. JAX's four devices are all the CPU.
"""

import os
import sys

HASTE = "--xla_backend_optimization_level=0"  # compiling takes most of the test's time
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4 " + HASTE
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../support"), os.path.join(HERE, "../jax")]
import cases  # noqa: E402
import decode_model  # noqa: E402
import figraph  # noqa: E402
import figraph.jax as fj  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from cases import close  # noqa: E402
from decode_model import DIM, KV, WIDTH, Model, Truth  # noqa: E402
from figraph import ffi  # noqa: E402
from figraph.jax import explanation  # noqa: E402
from jax import export  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from sentences import refused, run  # noqa: E402

LAYERS, ROWS, TOKENS = 2, 3, 16
PARAMS = decode_model.weights(LAYERS)
INPUTS = np.random.default_rng(3).standard_normal((TOKENS + 2, ROWS, WIDTH)).astype(np.float32)


def begun(rows=ROWS, **options):
    return decode_model.begun(LAYERS, rows, TOKENS, **options)


def one_trace_serves_lengths_from_1_to_the_cap():
    for options in ({}, dict(pages=6, page_size=8), dict(layout="hnd")):
        model = Model()
        step, truth, state = fj.DecodeStep(model), Truth(PARAMS, ROWS), begun(**options)
        before = ffi.counts()
        for token in range(TOKENS):
            out, state = step(PARAMS, state, INPUTS[token])
            close(out, truth.step(INPUTS[token], token + 1), 1e-4)
        after = ffi.counts()
        assert model.traces == 1 and len(step.buckets) == 1
        assert state.cap == TOKENS and (np.asarray(state.lengths) == TOKENS + 1).all()
        # Each step makes three calls: a plan and two layers. There are at most two new runners.
        assert after.eager - before.eager == 3 * TOKENS
        assert after.missed - before.missed <= 2


def caches_are_donated_and_page_tables_are_not():
    step, state = fj.DecodeStep(Model()), begun(pages=6, page_size=8)
    table = jnp.asarray(state.caches[0].page_table)
    state = state.serving(jnp.asarray(state.lengths), table)
    _, grown = step(PARAMS, state, INPUTS[0])
    assert all(c.k.is_deleted() and c.v.is_deleted() for c in state.caches)
    assert all(c.page_table is table for c in grown.caches) and not table.is_deleted()
    bucket = next(iter(step.buckets.values()))
    held = sum(c.k.nbytes + c.v.nbytes for c in grown.caches) + grown.lengths.nbytes
    assert bucket.memory_analysis().alias_size_in_bytes == held


def buckets_that_are_warm_are_not_traced_again():
    model = Model()
    step = fj.DecodeStep(model)
    states = [jax.eval_shape(lambda rows=rows: begun(rows)) for rows in (1, 2, 3)]
    step.warmup(*((PARAMS, s, jax.ShapeDtypeStruct((s.rows, WIDTH), jnp.float32)) for s in states))
    assert model.traces == 3 and len(step.buckets) == 3
    for rows in (3, 1, 2, 3):
        out, _ = step(PARAMS, begun(rows), INPUTS[0, :rows])
        assert out.shape == (rows, WIDTH)
    assert model.traces == 3
    scaled = fj.DecodeStep(lambda params, state, x, scale: (x * scale, state))
    for scale in (2, 2.5, 3):
        close(scaled(PARAMS, begun(), INPUTS[0], scale)[0], INPUTS[0] * scale, 1e-6)
    assert len(scaled.buckets) == 2


def lengths_past_the_cap_raise_where_that_is_checked():
    checked, plain = fj.DecodeStep(Model(), check=True), fj.DecodeStep(Model())
    state = begun().serving(np.array([1, TOKENS, 2], np.int32))
    _, state = checked(PARAMS, state, INPUTS[0])
    lengths = np.asarray(state.lengths)
    refused(f"lengths[1] is {TOKENS + 1}, its cache holds {TOKENS} tokens",
            lambda: checked(PARAMS, state, INPUTS[1]), (figraph.errors.TooLarge,))
    out, _ = plain(PARAMS, state.serving(lengths), INPUTS[1])
    close(out[1], INPUTS[1, 1], 0)  # row 1 is idle, so attention returns zeros for it
    refused("needs lengths that are known",
            lambda: jax.jit(checked)(PARAMS, begun(), INPUTS[0]), (TypeError,))


def idle_rows_stay_idle_and_others_do_not_see_them():
    step, truth = fj.DecodeStep(Model()), Truth(PARAMS, ROWS)
    state = begun().serving(np.array([1, 0, 1], np.int32))
    for token in range(3):
        out, state = step(PARAMS, state, INPUTS[token])
        expected = truth.step(INPUTS[token], token + 1)
        close(out[0], expected[0], 1e-4)
        close(out[1], INPUTS[token, 1], 0)
        close(out[2], expected[2], 1e-4)
    assert np.asarray(state.lengths).tolist() == [4, 0, 4]


def positions_may_be_given_and_rope_left_out():
    """If all tokens have the same position, RoPE does not change the logits."""
    places = np.full(ROWS, 7, np.int32)
    for options in (dict(rope=None), dict(positions=places)):
        step, truth, state = fj.DecodeStep(Model(**options)), Truth(PARAMS, ROWS), begun()
        for token in range(3):
            out, state = step(PARAMS, state, INPUTS[token])
            close(out, truth.step(INPUTS[token], token + 1, turned=False), 1e-4)
        k = np.stack([truth.held[row][0][0][1] for row in range(ROWS)])
        close(state.caches[0].k[:, 1], k if "rope" in options else cases.rope(k, places), 1e-4)


def layers_read_one_plan():
    text = str(jax.make_jaxpr(fj.DecodeStep(Model()))(PARAMS, begun(), INPUTS[0]))
    assert text.count("figraph.plan") == 1, text.count("figraph.plan")
    assert text.count("figraph.decode_attention") == LAYERS


def layers_with_tables_of_other_widths_have_plans_of_their_own():
    """A row with more tokens than a layer's table holds is idle there, and its page is not
    written."""
    wide, narrow = 64, 33
    caches = [fj.Cache(*(jnp.zeros((8, 1, 8, 128)) for _ in "kv"),
                       jnp.zeros((ROWS, columns), jnp.int32)) for columns in (wide, narrow)]

    def model(params, state, x):
        outs = []
        for layer in range(2):
            out, state = state.attend(layer, x, x, x, rope=None)
            outs.append(out)
        return outs, state

    state = fj.State(caches, jnp.full(ROWS, wide, jnp.int32))
    outs, state = fj.DecodeStep(model)((), state, jnp.ones((ROWS, 8, 128)))
    assert np.asarray(outs[0]).any() and np.asarray(state.caches[0].k).any()
    assert not np.asarray(outs[1]).any() and not np.asarray(state.caches[1].k).any()


def a_step_may_be_part_of_a_larger_jit():
    step, state = fj.DecodeStep(Model()), begun()

    @jax.jit
    def several(params, state, inputs):
        def one(state, x):
            out, state = step(params, state, x)
            return state, out

        return jax.lax.scan(one, state, inputs)

    state, outs = several(PARAMS, state, INPUTS[:4])
    truth = Truth(PARAMS, ROWS)
    for token in range(4):
        close(outs[token], truth.step(INPUTS[token], token + 1), 1e-4)
    assert np.asarray(state.lengths).tolist() == [5, 5, 5]


def a_step_is_exported_with_its_state():
    allow = [export.DisabledSafetyCheck.custom_call(name) for name in fj.custom_calls()]
    jitted = jax.jit(fj.DecodeStep(Model()))
    for state in (begun(layout="hnd"), begun(pages=6, page_size=8)):
        made = export.export(jitted, disabled_checks=allow)(PARAMS, state, INPUTS[0])
        out, grown = export.deserialize(made.serialize()).call(PARAMS, state, INPUTS[0])
        close(out, Truth(PARAMS, ROWS).step(INPUTS[0], 1), 1e-4)
        assert type(grown) is fj.State and grown.layout == state.layout
        assert np.asarray(grown.lengths).tolist() == [2, 2, 2]


def heads_are_shared_by_the_ranks_of_a_mesh():
    mesh = Mesh(np.array(jax.devices()), ("heads",))
    specs = [dict(qkv=P(None, "heads"), out=P("heads")) for _ in PARAMS]
    for options in (dict(pages=6, page_size=8), dict(layout="hnd")):
        model = Model("heads")
        step = fj.DecodeStep(model, mesh=mesh, axis="heads", params=specs)
        state = begun(**options)
        spread = jax.tree_util.tree_map(
            lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)), state,
            state.over_heads("heads"))
        params = decode_model.shared(PARAMS, 4)
        shapes = jax.eval_shape(lambda: state)
        step.warmup((params, shapes, jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)))
        truth = Truth(PARAMS, ROWS)
        for token in range(3):
            out, spread = step(params, spread, INPUTS[token])
            close(out, truth.step(INPUTS[token], token + 1), 1e-4)
        assert model.traces == 1
        shard = spread.caches[0].k.addressable_shards[0].data.shape
        assert shard[2 if state.layout == "nhd" else 1] == KV // 4
        assert len(step.buckets) == 1
        told = step.explain(params, spread, INPUTS[3])
        assert told.donated_bytes == told.aliased_bytes and not told.copies_cache, told
    refused("the caches are spread over several devices",
            lambda: fj.DecodeStep(Model())(params, spread, INPUTS[3]), (ValueError,))
    six = fj.State.empty(1, ROWS, TOKENS, kv_heads=6, head_dim=DIM, dtype=jnp.float32)
    refused("6 kv heads cannot be shared by 4 of axis heads",
            lambda: step(params, six, INPUTS[3]), (ValueError,))
    refused('axis is "rows", the mesh has heads',
            lambda: fj.DecodeStep(Model(), mesh=mesh, axis="rows"), (ValueError,))
    refused("mesh and axis: one is given", lambda: fj.DecodeStep(Model(), mesh=mesh))


def explain_says_how_xla_launches():
    step, state = fj.DecodeStep(Model()), jax.tree_util.tree_map(jnp.asarray, begun())
    told = step.explain(PARAMS, state, INPUTS[0])
    assert (told.how, told.calls, told.eager, told.captured) == ("eager", 3, 3, 0), told
    assert "XLA captures nothing on a CPU" in str(told) and "no cache is copied" in str(told)
    assert told.donated_bytes == told.aliased_bytes > 0 and not told.copies_cache
    assert not state.caches[0].k.is_deleted()

    def reads_the_old_cache(params, state, x):
        out, grown = Model()(params, state, x)
        return out + state.caches[0].k.sum(), grown

    told = fj.DecodeStep(reads_the_old_cache).explain(PARAMS, state, INPUTS[0])
    assert told.copies_cache and "f32[3,16,4,64]" in str(told), told
    nothing = fj.DecodeStep(lambda params, state, x: (x, state))
    assert "no call of figraph's" in nothing.explain(PARAMS, state, INPUTS[0]).why


def why_a_gpu_captures_nothing_is_read_from_flags():
    """tests/gpu/jax_decode.py tests how XLA launches on a GPU with these flags."""
    kept = os.environ["XLA_FLAGS"]
    command_buffer, least = "--xla_gpu_enable_command_buffer=", "--xla_gpu_graph_min_graph_size="
    for flags, calls, others, words in (
        (command_buffer, 9, (), f"XLA_FLAGS has {command_buffer}, without CUSTOM_CALL"),
        (command_buffer + "FUSION,CUBLAS", 9, (), "without CUSTOM_CALL"),
        (command_buffer + "-CUSTOM_CALL", 9, (), "without CUSTOM_CALL"),
        (command_buffer + " " + command_buffer + "custom_call", 9, (), "never 5 commands in a row"),
        (command_buffer + "+COLLECTIVES", 3, (), "at least 5 commands, and figraph makes only 3"),
        (least + "1000", 9, (), "at least 1000 commands, and figraph makes only 9"),
        (least + "2", 9, ("theirs",), "other custom calls may lack the trait: theirs"),
        ("", 0, (), "no call of figraph's"),
    ):
        os.environ["XLA_FLAGS"] = flags
        told = explanation.why_eager("gpu", calls, others)
        os.environ["XLA_FLAGS"] = kept
        assert words in told, (flags, told)


def models_that_return_something_else_are_refused():
    lost = fj.DecodeStep(lambda params, state, x: (x, state.caches))
    refused("the model gave tuple", lambda: lost(PARAMS, begun(), INPUTS[0]), (TypeError,))
    refused('layout is "dhn"', lambda: begun(layout="dhn"), (ValueError,))
    refused("tokens is 16, it must be a multiple of 5", lambda: begun(pages=6, page_size=5))
    refused("caches is empty", lambda: fj.State([], jnp.zeros(2, jnp.int32)), (ValueError,))


run([
    one_trace_serves_lengths_from_1_to_the_cap,
    caches_are_donated_and_page_tables_are_not,
    buckets_that_are_warm_are_not_traced_again,
    lengths_past_the_cap_raise_where_that_is_checked,
    idle_rows_stay_idle_and_others_do_not_see_them,
    positions_may_be_given_and_rope_left_out,
    layers_read_one_plan,
    layers_with_tables_of_other_widths_have_plans_of_their_own,
    a_step_may_be_part_of_a_larger_jit,
    a_step_is_exported_with_its_state,
    heads_are_shared_by_the_ranks_of_a_mesh,
    explain_says_how_xla_launches,
    why_a_gpu_captures_nothing_is_read_from_flags,
    models_that_return_something_else_are_refused,
])
