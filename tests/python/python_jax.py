"""python_jax.py: compares figraph.jax on the CPU with float64 references.

Run where jax and figraph can be imported.
"""

import doctest
import functools
import inspect
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../support"), os.path.join(HERE, "../jax")]
import cases  # noqa: E402
import figraph  # noqa: E402
import figraph.jax as fj  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from cases import close  # noqa: E402
from figraph import ffi  # noqa: E402
from jax import export  # noqa: E402
from sentences import refused, run  # noqa: E402

ROWS, TOKENS, Q, KV, DIM = 3, 24, 8, 4, 64
LENGTHS = np.array([24, 1, 25], np.int32)
numbers = np.random.default_rng(5)
FOLDER = tempfile.TemporaryDirectory()
FILE = FOLDER.name + "/tutorial.fig"
figraph.capture("tutorial", traits="host", layers=1).save(FILE)


def normal(*shape, dtype=np.float32):
    return numbers.standard_normal(shape).astype(dtype)


def dense(rows=ROWS):
    return fj.Cache(normal(rows, TOKENS, KV, DIM), normal(rows, TOKENS, KV, DIM))


def paged():
    """Returns pages of 8 tokens, three for each row, in random order."""
    table = np.random.default_rng(1).permutation(3 * ROWS).astype(np.int32).reshape(ROWS, 3)
    return fj.Cache(normal(3 * ROWS, 8, KV, DIM), normal(3 * ROWS, 8, KV, DIM), table)


def tokens_of(cache, row):
    """Returns the keys and values of a row in order."""
    if cache.page_table is None:
        return [np.asarray(x[row]) for x in (cache.k, cache.v)]
    pages = np.asarray(cache.page_table)[row]
    return [np.asarray(x)[pages].reshape(-1, KV, DIM) for x in (cache.k, cache.v)]


def expected(q, cache, row, **options):
    length = LENGTHS[row] if LENGTHS[row] <= TOKENS else 0
    keys, values = (x[:length] for x in tokens_of(cache, row))
    return cases.attention(q[row], keys, values, **options)


def activations_and_rope_are_right_and_mapped():
    x = normal(2, 5, 32)
    for function in (fj.silu_and_mul, jax.jit(fj.silu_and_mul), jax.vmap(fj.silu_and_mul)):
        close(function(x), cases.silu_and_mul(x), 1e-6)
    assert fj.gelu_and_mul(x).shape == fj.gelu_tanh_and_mul(x).shape == (2, 5, 16)
    q, k, at = normal(2, ROWS, Q, DIM), normal(2, ROWS, KV, DIM), np.array([0, 7, 999], np.int32)
    mapped = jax.jit(jax.vmap(fj.apply_rope, in_axes=(0, 0, None)))(q, k, at)
    for n in range(2):
        for got, one in zip(mapped, (q, k)):
            close(got[n], cases.rope(one[n], at), 1e-4)
    rope = fj.Rope(theta=5e5, rotary_dim=32, interleaved=True)
    turned = fj.apply_rope(q[0], k[0], at, rope)
    close(turned[0], cases.rope(q[0], at, 5e5, rotary_dim=32, interleave=True), 1e-4)


def attention_is_right_over_dense_caches_and_pages():
    q = normal(ROWS, Q, DIM)
    for cache in (dense(), paged()):
        for planned in (False, True):
            made = fj.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache) if planned else None
            got = jax.jit(lambda *a: fj.attention(*a, plan=made, with_lse=True))(q, cache, LENGTHS)
            assert (got.plan is not None) == planned
            for row in range(ROWS):
                out, lse = expected(q, cache, row)
                close(got.out[row], out, 1e-5)
                close(got.lse[row], lse, 1e-5)


def options_of_logits_and_heads_are_followed():
    q, cache, alibi = normal(ROWS, Q, DIM), dense(), normal(Q)
    logits = fj.Logits(scale=0.5, window=10)
    out = fj.attention(q, cache, LENGTHS, logits=logits, alibi=alibi).out
    close(out[0], expected(q, cache, 0, sm_scale=0.5, window=10, alibi=alibi)[0], 1e-5)
    capped = fj.attention(q, cache, LENGTHS, logits=fj.Logits(soft_cap=2)).out
    close(capped[0], expected(q, cache, 0, soft_cap=2)[0], 1e-5)
    swapped = fj.Cache(cache.k.swapaxes(1, 2), cache.v.swapaxes(1, 2))
    same = fj.attention(q, swapped, LENGTHS, layout="hnd").out
    close(same, fj.attention(q, cache, LENGTHS).out, 0)


def caches_may_be_of_8_bits_with_scales():
    q, scales = normal(ROWS, Q, DIM), normal(KV) ** 2 + 0.5
    narrow = [jnp.asarray(x).astype(jnp.float8_e4m3fn) for x in dense()[:2]]
    for scale in (scales, scales[:1]):
        cache = fj.Cache(*narrow, k_scale=scale, v_scale=scale)
        plan = fj.plan(LENGTHS, dtype=np.float16, q_heads=Q, cache=cache)
        out = fj.attention(q.astype(np.float16), cache, LENGTHS, plan=plan).out
        wide = [np.asarray(x.astype(jnp.float32)) for x in narrow]
        wide = fj.Cache(*(x * scale[:, None] for x in wide))
        close(out[0], expected(q.astype(np.float16), wide, 0)[0], 3e-3)
        k, v = normal(2, ROWS, KV, DIM).astype(np.float16)
        grown = fj.append_kv(k, v, cache, LENGTHS, plan=plan)
        stored = np.asarray(grown.v.astype(jnp.float32))[1, 0] * scale[:, None]
        close(stored, v[1], 0.07)


def layers_share_a_plan_and_grow_their_caches():
    q, k, v = normal(ROWS, Q, DIM), normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)
    for cache in (dense(), paged()):

        @jax.jit
        def layers(cache):
            plan = fj.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache)
            fused = fj.decode_attention(q, k, v, cache, LENGTHS, plan=plan)
            turned = fj.apply_rope(q, k, LENGTHS - 1)
            grown = fj.append_kv(turned[1], v, cache, LENGTHS, plan=fused.plan)
            parts = fj.attention(turned[0], grown, LENGTHS, plan=fused.plan)
            alone = fj.append_kv(turned[1], v, cache, LENGTHS)
            return fused.out, fused.cache, parts.out, grown, alone

        fused, cache_of_fused, parts, cache_of_parts, cache_alone = layers(cache)
        turned = cases.rope(k, np.maximum(LENGTHS - 1, 0))
        close(fused, parts, 1e-6)
        for made in (cache_of_fused, cache_of_parts, cache_alone):
            close(tokens_of(made, 0)[0][LENGTHS[0] - 1], turned[0], 1e-5)
            close(tokens_of(made, 1)[1][LENGTHS[1] - 1], v[1], 0)
            close(tokens_of(made, 2)[0], tokens_of(cache, 2)[0], 0)  # row 2 is idle
        close(parts[0], expected(cases.rope(q, LENGTHS - 1), cache_of_parts, 0)[0], 1e-4)


def one_compiled_function_serves_every_length_in_place():
    traces = 0

    def step(cache, q, k, v, lengths):
        nonlocal traces
        traces += 1
        got = fj.decode_attention(q, k, v, cache, lengths)
        return got.cache, got.out

    compiled = jax.jit(step, donate_argnums=0)
    q, k, v = normal(1, Q, DIM), normal(1, KV, DIM), normal(1, KV, DIM)
    zeros = np.zeros(1, np.int32)
    cache = jax.tree.map(jnp.zeros_like, dense(1))
    lowered = compiled.lower(cache, q, k, v, zeros).compile()
    assert lowered.memory_analysis().alias_size_in_bytes == 2 * cache.k.nbytes
    traces, made = 0, ffi.counts().missed
    for length in range(1, TOKENS + 1):
        cache, out = compiled(cache, q, k, v, np.array([length], np.int32))
    assert traces <= 1 and ffi.counts().missed <= made + 1
    keys, values = tokens_of(cache, 0)
    turned = cases.rope(q, np.array([TOKENS - 1]))[0]
    close(out[0], cases.attention(turned, keys, values)[0], 1e-5)


def attributes_are_numbers_of_one_type():
    """JAX treats 7 and 7.0 as equal, so a program that was compiled for one also runs for the
    other."""
    q, k, v = normal(ROWS, Q, DIM), normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)

    def step(theta, window):
        rope, logits = fj.Rope(theta=theta, rotary_dim=window * 8), fj.Logits(0.5, theta, window)
        plan = fj.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=dense(), window=window)
        made = fj.decode_attention(q, k, v, dense(), LENGTHS, plan=plan, rope=rope, logits=logits)
        return made.out, fj.apply_rope(q, k, LENGTHS, rope), fj.append_kv(k, v, dense(), LENGTHS)

    seen = [calls_of(jax.make_jaxpr(step, (0, 1))(*given).jaxpr) for given in ((7, 4), (7.0, 4.0))]
    assert seen[0] == seen[1] and len(seen[0]) == 4
    for name, attributes in seen[0]:
        for key, (kind, value) in attributes.items():
            assert kind in (int, float), f"{name}: {key} is {value}"
    assert dict(seen[0])["figraph.decode_attention"]["rope_theta"] == (float, 7.0)
    q, halved = normal(ROWS, Q, DIM), fj.Logits(window=2.5)
    refused("window is 2.5", lambda: fj.attention(q, dense(), LENGTHS, logits=halved), (TypeError,))


def calls_of(jaxpr):
    """Lists the name of each custom call, including those in inner functions, and its attributes
    with their types."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "ffi_call":
            pairs = dict(equation.params["attributes"])
            attributes = {key: (type(value), value) for key, value in pairs.items()}
            found.append((equation.params["target_name"], attributes))
        for inner in jax.tree_util.tree_leaves(list(equation.params.values())):
            if hasattr(inner, "jaxpr"):
                found += calls_of(inner.jaxpr)
    return found


def maps_are_right_or_refused_by_name():
    q, k, v = normal(2, ROWS, Q, DIM), normal(2, ROWS, KV, DIM), normal(2, ROWS, KV, DIM)
    over = (0, None, None)
    decode = lambda q: fj.decode_attention(q, k[0], v[0], dense(), LENGTHS).out
    for what, call in (
        ("attention", lambda: jax.vmap(fj.attention, over)(q, dense(), LENGTHS)),
        ("decode_attention", lambda: jax.vmap(decode)(q)),
        ("append_kv", lambda: jax.vmap(lambda k: fj.append_kv(k, v[0], dense(), LENGTHS))(k)),
        ("plan", lambda: jax.vmap(lambda lengths: fj.plan(
            lengths, dtype=q.dtype, q_heads=Q, cache=dense()))(np.stack([LENGTHS, LENGTHS]))),
    ):
        refused(f"figraph.jax.{what} under vmap: rows are its batch, give it 2 times as many",
                call, (NotImplementedError,))


def mistakes_are_refused_while_jax_traces():
    q, cache, x, scale = normal(ROWS, Q, DIM), dense(), normal(2, 7), normal(KV)
    trace = jax.eval_shape
    refused("its last dim must be 2 * width", lambda: trace(fj.silu_and_mul, x), (ValueError,))
    refused("input is int32", lambda: trace(fj.silu_and_mul, x.astype(np.int32)), (TypeError,))
    k = normal(ROWS, KV, DIM)
    at = LENGTHS.astype(np.float32)
    refused("positions is float32", lambda: trace(fj.apply_rope, q, k, at), (TypeError,))
    refused("k is [3, 4, 64], it must be [3, any, 32]",
            lambda: trace(fj.apply_rope, q[..., :32], k, LENGTHS), (ValueError,))
    refused("lengths is [2], it must be [3]", lambda: trace(fj.attention, q, cache, LENGTHS[:2]))
    refused("cache.k is [2, 24, 4, 64], its dim 0 must be at least 3",
            lambda: trace(fj.attention, q, dense(2), LENGTHS), (ValueError,))
    half = fj.Cache(cache.k, cache.v[:, :5])
    refused("cache.v is [3, 5, 4, 64]", lambda: trace(fj.attention, q, half, LENGTHS))
    mixed = fj.Cache(cache.k, cache.v.astype(np.float16))
    refused("cache.v is float16", lambda: trace(fj.attention, q, mixed, LENGTHS), (TypeError,))
    for scales, words in (
        ((scale, None), "one is given, the other is not"),
        ((scale, scale[:1]), "cache.v_scale is [1], it must be [4]"),
        ((scale[:3], scale), "cache.k_scale is [3], it must be [4]"),
        ((scale, scale.astype(np.float16)), "cache.v_scale is float16"),
    ):
        scaled = cache._replace(k_scale=scales[0], v_scale=scales[1])
        refused(words, lambda: trace(fj.attention, q, scaled, LENGTHS))
    refused("layout is \"nkd\"", lambda: fj.attention(q, cache, LENGTHS, layout="nkd"))
    wide = (1 << 32) + 16
    for field, call in (
        ("window", lambda: fj.attention(q, cache, LENGTHS, logits=fj.Logits(window=wide))),
        ("window", lambda: fj.plan(LENGTHS, dtype=q.dtype, q_heads=Q, cache=cache, window=wide)),
        ("q_heads", lambda: fj.plan(LENGTHS, dtype=q.dtype, q_heads=wide, cache=cache)),
        ("rotary_dim", lambda: fj.apply_rope(q, k, LENGTHS, fj.Rope(rotary_dim=wide))),
        ("llama3_context", lambda: fj.apply_rope(q, k, LENGTHS, fj.Rope(llama3_context=wide))),
    ):
        refused(f"{field} is {wide}, limit", call, (OverflowError,))
    refused("alibi is [3], it must be [8]",
            lambda: fj.attention(q, cache, LENGTHS, alibi=normal(3)), (ValueError,))
    refused("dtype is int32", lambda: fj.plan(LENGTHS, dtype="int32", q_heads=Q, cache=cache))
    refused("", lambda: trace(fj.attention, normal(ROWS, 7, DIM), cache, LENGTHS),
            (figraph.Error,))
    for rope, words in (
        (fj.Rope(rotary_dim=65), "rope: rotary_dim is 65"),
        (fj.Rope(theta=-1), "rope: theta is -1"),
        (fj.Rope(llama3_factor=8), "rope: llama3_low is 0"),
        (fj.Rope(rotary_dim=0.5), "rope.rotary_dim is 0.5, it must be a whole number"),
    ):
        refused(words, lambda: trace(lambda: fj.apply_rope(q, k, LENGTHS, rope)))
    for logits, words in ((fj.Logits(scale=-1), "logits.scale is -1"),
                          (fj.Logits(soft_cap=np.inf), "logits.soft_cap is inf"),
                          (fj.Logits(window=-1), "logits.window is -1")):
        refused(words, lambda: trace(lambda: fj.attention(q, cache, LENGTHS, logits=logits)))
    other = fj.plan(LENGTHS[:1], dtype=q.dtype, q_heads=Q, cache=dense(1))
    refused("plan.plan is [", lambda: fj.attention(q, cache, LENGTHS, plan=other), (ValueError,))


def exported(function, *arguments):
    allow = [export.DisabledSafetyCheck.custom_call(name) for name in fj.custom_calls()]
    make = export.export(jax.jit(function), platforms=("cpu", "cuda"), disabled_checks=allow)
    return make(*arguments)


def exported_programs_run_where_figraph_is_imported():
    q, cache = normal(ROWS, Q, DIM), dense()
    step = lambda q, k, v, lengths: fj.attention(q, fj.Cache(k, v), lengths).out
    loaded = export.deserialize(exported(step, q, cache.k, cache.v, LENGTHS).serialize())
    assert set(loaded.platforms) == {"cpu", "cuda"} and fj.missing(loaded) == []
    close(loaded.call(q, cache.k, cache.v, LENGTHS), fj.attention(q, cache, LENGTHS).out, 0)


def recorded_programs_are_identified_by_their_content():
    """Runs one layer of the tutorial: its activation, and RoPE, append and attention over pages."""
    file = fj.load(FILE)
    assert file == fj.load(FILE) and file.segments == ["act.0", "attn.0"]
    x = normal(3, 128, dtype=np.float16)
    act = jax.ShapeDtypeStruct((3, 64), jnp.float16)
    (got,), _ = fj.program(file, [act], x, rows=3, segment="act.0")
    close(got, cases.silu_and_mul(x), 2e-3)
    refused('the file has no segment "act.7", it has act.0, attn.0',
            lambda: fj.program(file, [act], x, rows=3, segment="act.7"), (figraph.Error,))
    q, k, v = (normal(2, heads, 64, dtype=np.float16) for heads in (16, 4, 4))
    caches = [normal(9, 16, 4, 64, dtype=np.float16) for _ in "kv"]
    table, rows = np.zeros((8, 32), np.int32), dict(rows=2, segment="attn.0", kv_length=33)
    table[:2, :3] = [[7, 2, 5], [1, 0, 8]]
    outs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k, q, *caches)]
    aliases = {1: 0, 2: 1, 4: 3, 5: 4}
    (_, _, out, *grown), _ = fj.program(file, outs, table, q, k, v, *caches, aliases=aliases,
                                        **rows)
    turned = cases.rope(q, np.full(2, 32))
    held = [np.asarray(x)[table[0, :3]].reshape(-1, 4, 64)[:33] for x in grown]
    close(out[0], cases.attention(turned[0], *held)[0], 3e-3)


def an_exported_program_says_which_file_is_missing():
    """An exported program identifies files by a hash of their contents, so the process that loads
    it may have them anywhere."""
    file, x = fj.load(FILE), normal(3, 128, dtype=np.float16)
    act = jax.ShapeDtypeStruct((3, 64), jnp.float16)
    made = exported(lambda x: fj.program(file, [act], x, rows=3, segment="act.0")[0][0], x)
    assert fj.missing(made) == []
    with tempfile.TemporaryDirectory() as folder:
        np.save(folder + "/x.npy", x)
        for name, data in (("made", made.serialize()), ("other.fig", open(FILE, "rb").read())):
            with open(f"{folder}/{name}", "wb") as out:
                out.write(data)
        done = subprocess.run([sys.executable, "-c", LOADER, folder], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    told = done.stdout.split("\n")
    assert told[0] == str([file.content_id[:16]]), told
    words = f"no file whose content_id begins with {file.content_id[:16]} was loaded"
    assert words in told[1], told
    assert told[2:4] == ["[]", "True"], told


LOADER = """
import sys
import jax, numpy, figraph.jax as fj
from jax import export
made = export.deserialize(bytearray(open(sys.argv[1] + "/made", "rb").read()))
x = numpy.load(sys.argv[1] + "/x.npy")
print(fj.missing(made))
try:
    jax.block_until_ready(made.call(x))
except Exception as error:
    print(str(error).replace("\\n", " "))
fj.load(sys.argv[1] + "/other.fig")
print(fj.missing(made))
print(numpy.isfinite(made.call(x)).all())
"""


def help_is_a_tutorial_whose_every_line_is_run():
    found = doctest.testmod(fj)
    assert found.failed == 0 and found.attempted > 15, found
    for name in fj.__all__:
        assert inspect.getdoc(getattr(fj, name)), name


def the_documented_output_is_the_real_one():
    with open(os.path.join(HERE, "../../docs/jax-tvm.md"), encoding="utf-8") as page:
        shown = page.read().split("```python\nimport figraph.jax as fj\n")[1].split("```")[0]
    names = dict(fj=fj, functools=functools, jax=jax)
    exec(shown, names)
    caches = [fj.Cache(*map(jnp.asarray, dense()[:2])) for _ in range(2)]
    q, k, v = ([normal(ROWS, heads, DIM) for _ in range(2)] for heads in (Q, KV, KV))
    alone = [fj.decode_attention(q[n], k[n], v[n], caches[n], LENGTHS) for n in range(2)]
    outs, grown = names["step"](caches, q, k, v, LENGTHS)
    for n in range(2):
        close(outs[n], alone[n].out, 1e-6)
        close(grown[n].k, alone[n].cache.k, 0)


def without_rope_one_call_appends_and_attends():
    """Tests rows of one token and of three."""
    for kind in (dense, paged):
        for middle in ((), (3,)):
            q, k, v = (normal(ROWS, *middle, n, DIM) for n in (Q, KV, KV))
            cache, tokens = kind(), middle[0] if middle else 1
            made = fj.plan(LENGTHS, dtype="float32", q_heads=Q, cache=cache, row_tokens=tokens)
            for plan in (None, made):
                grown = fj.append_kv(k, v, cache, LENGTHS, plan=plan)
                parts = fj.attention(q, grown, LENGTHS, plan=plan, with_lse=True)
                fused = jax.jit(functools.partial(fj.decode_attention, rope=None, with_lse=True))(
                    q, k, v, cache, LENGTHS, plan=plan)
                assert (fused.out == parts.out).all() and (fused.lse == parts.lse).all()
                assert fused.out.shape == q.shape and fused.lse.shape == q.shape[:-1]
                # without a plan, append_kv writes the tokens of a short row that fit; the fused
                # call writes none
                if plan is not None or not middle:
                    assert (fused.cache.k == grown.k).all() and (fused.cache.v == grown.v).all()
            keys, values = tokens_of(grown, 0)
            for n in range(tokens):
                seen = 25 - tokens + n
                out = parts.out[0, n] if middle else parts.out[0]
                close(out, cases.attention((q[0, n] if middle else q[0]), keys[:seen],
                                           values[:seen])[0], 1e-5)


def positions_and_a_table_take_the_place_of_lengths():
    q, k, v = normal(ROWS, Q, DIM), normal(ROWS, KV, DIM), normal(ROWS, KV, DIM)
    at = np.array([100, 7, 3], np.int32)
    angle = np.arange(128)[:, None] * 5e5 ** (-np.arange(0, DIM, 2) / DIM)
    table = np.concatenate((np.cos(angle), np.sin(angle)), 1).astype(np.float32)
    cache = paged()
    turned = fj.apply_rope(q, k, at, fj.Rope(theta=5e5))
    wanted = fj.attention(turned[0], fj.append_kv(turned[1], v, cache, LENGTHS), LENGTHS).out
    for given in (dict(rope=fj.Rope(theta=5e5), positions=at),
                  dict(positions=at, cos_sin_cache=table)):
        close(fj.decode_attention(q, k, v, cache, LENGTHS, **given).out, wanted, 1e-3)
    plan = fj.plan(LENGTHS, dtype="float32", q_heads=Q, cache=cache, positions=at)
    under = fj.decode_attention(q, k, v, cache, LENGTHS, rope=fj.Rope(theta=5e5), plan=plan)
    close(under.out, wanted, 1e-3)
    for words, given in (
        ("positions is given, but rope is None", dict(rope=None, positions=at)),
        ("cos_sin_cache is given, but rope is None", dict(rope=None, cos_sin_cache=table)),
        ("cos_sin_cache is given without positions", dict(cos_sin_cache=table)),
        ("rope.theta is 5.0", dict(rope=fj.Rope(theta=5.0), positions=at, cos_sin_cache=table)),
        ("positions is [2], it must be [3] like q", dict(positions=at[:2])),
    ):
        refused(words, lambda: fj.decode_attention(q, k, v, cache, LENGTHS, **given))


def a_table_may_have_more_rows_and_scales_no_dim():
    q, cache = normal(2, Q, DIM), paged()
    cut = cache._replace(page_table=cache.page_table[:2])
    assert (fj.attention(q, cache, LENGTHS[:2]).out == fj.attention(q, cut, LENGTHS[:2]).out).all()
    half = jnp.asarray(q, jnp.float16)
    narrow = [jnp.asarray(x, jnp.float8_e4m3fn) for x in cache[:2]]
    outs = [fj.attention(half, fj.Cache(*narrow, cache.page_table, *2 * [scale]), LENGTHS[:2]).out
            for scale in (jnp.float32(0.5), jnp.full(1, 0.5, jnp.float32))]
    assert (outs[0] == outs[1]).all()
    same = [fj.attention(q[:1], cache, LENGTHS[:1], deterministic=True).out[0],
            fj.attention(q, cache, LENGTHS[:2], deterministic=True).out[0]]
    assert (same[0] == same[1]).all()


run([
    without_rope_one_call_appends_and_attends,
    positions_and_a_table_take_the_place_of_lengths,
    a_table_may_have_more_rows_and_scales_no_dim,
    activations_and_rope_are_right_and_mapped,
    attention_is_right_over_dense_caches_and_pages,
    options_of_logits_and_heads_are_followed,
    caches_may_be_of_8_bits_with_scales,
    layers_share_a_plan_and_grow_their_caches,
    one_compiled_function_serves_every_length_in_place,
    attributes_are_numbers_of_one_type,
    maps_are_right_or_refused_by_name,
    mistakes_are_refused_while_jax_traces,
    exported_programs_run_where_figraph_is_imported,
    recorded_programs_are_identified_by_their_content,
    an_exported_program_says_which_file_is_missing,
    help_is_a_tutorial_whose_every_line_is_run,
    the_documented_output_is_the_real_one,
])
