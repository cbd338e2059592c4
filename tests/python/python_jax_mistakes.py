"""python_jax_mistakes.py: calls each operation of figraph.jax with one mistake at a time: every
kind of mistake in every argument.

    tests/python/python_jax_mistakes.py

The error must name the argument, and come while JAX traces. Run where jax and figraph can be
imported.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../support"), os.path.join(HERE, "../jax")]
import figraph.jax as fj  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from sentences import refused, run  # noqa: E402

ROWS, Q, KV, DIM = 3, 8, 4, 64
LENGTHS = np.array([24, 1, 25], np.int32)
numbers = np.random.default_rng(5)


def normal(*shape, dtype=np.float16):
    return jnp.asarray(numbers.standard_normal(shape).astype(dtype))


def arguments():
    """Returns correct arguments of all operations, by their names in messages."""
    table = jnp.arange(3 * ROWS, dtype=jnp.int32).reshape(ROWS, 3)
    given = {
        "cache.k": normal(9, 8, KV, DIM).astype(jnp.float8_e4m3fn),
        "cache.v": normal(9, 8, KV, DIM).astype(jnp.float8_e4m3fn),
        "cache.page_table": table,
        "cache.k_scale": jnp.ones(KV),
        "cache.v_scale": jnp.ones(KV),
        "cache.latents": normal(9, 8, 576),
        "lengths": jnp.asarray(LENGTHS),
        "query_start_loc": jnp.array([0, 2, 2, 3], jnp.int32),
        "positions": jnp.asarray(LENGTHS),
        "input": normal(ROWS, 2 * DIM),
        "q": normal(ROWS, Q, DIM),
        "k": normal(ROWS, KV, DIM),
        "v": normal(ROWS, KV, DIM),
        "alibi": normal(Q, dtype=np.float32),
        "sinks": normal(Q, dtype=np.float32),
        "cos_sin_cache": normal(32, DIM, dtype=np.float32),
    }
    return given


def latent_arguments():
    return {**arguments(), "q": normal(ROWS, Q, 576), "q_rope": normal(ROWS, Q, 64),
            "latent": normal(ROWS, 576), "norm": normal(512),
            "cos_sin_cache": normal(32, 64, dtype=np.float32)}


def cache_of(g):
    return fj.Cache(*(g["cache." + name] for name in fj.Cache._fields))


def latents_of(g):
    return fj.LatentCache(g["cache.latents"], g["cache.page_table"])


def packed_of(g):
    return dict(query_start_loc=g["query_start_loc"], row_tokens=2)


def plan_of(g):
    return fj.Plan(g["plan.plan"], g["plan.scratch"])


def attend(g, **more):
    return fj.attention(g["q"], cache_of(g), g["lengths"], plan=plan_of(g), alibi=g["alibi"],
                        sinks=g["sinks"], **more)


def decode(g, **more):
    return fj.decode_attention(g["q"], g["k"], g["v"], cache_of(g), g["lengths"], plan=plan_of(g),
                               alibi=g["alibi"], sinks=g["sinks"], **more)


def attend_latents(g, **more):
    return fj.latent_attention(g["q"], latents_of(g), g["lengths"], plan=plan_of(g),
                               sinks=g["sinks"], logits=fj.Logits(scale=0.125), **more)


def decode_latents(g, **more):
    return fj.latent_decode(g["q"], g["latent"], latents_of(g), g["lengths"], plan=plan_of(g),
                            sinks=g["sinks"], norm=g["norm"], logits=fj.Logits(scale=0.125), **more)


def by_a_table(call):
    return lambda g: call(g, positions=g["positions"], cos_sin_cache=g["cos_sin_cache"])


def apart(call):
    """Returns the call with q in two arrays."""
    return lambda g: call({**g, "q": g["q"][..., :512]}, q_rope=g["q_rope"])


CACHE = ("cache.k", "cache.v", "cache.page_table", "cache.k_scale", "cache.v_scale")
PLAN = ("plan.plan", "plan.scratch")
PER_HEAD = ("alibi", "sinks")
LATENTS = ("lengths", "cache.latents", "cache.page_table", *PLAN, "sinks")
# name: (call, arguments that the operation takes)
OPERATIONS = {
    "silu_and_mul": (lambda g: fj.silu_and_mul(g["input"]), ("input",)),
    "gelu_and_mul": (lambda g: fj.gelu_and_mul(g["input"]), ("input",)),
    "gelu_tanh_and_mul": (lambda g: fj.gelu_tanh_and_mul(g["input"]), ("input",)),
    "apply_rope": (lambda g: fj.apply_rope(g["q"], g["k"], g["positions"]),
                   ("q", "k", "positions")),
    "append_kv": (lambda g: fj.append_kv(g["k"], g["v"], cache_of(g), g["lengths"]),
                  ("k", "v", "lengths", *CACHE)),
    "append_kv of packed rows": (
        lambda g: fj.append_kv(g["k"], g["v"], cache_of(g), g["lengths"], **packed_of(g)),
        ("k", "v", "lengths", *CACHE, "query_start_loc")),
    "plan": (lambda g: fj.plan(g["lengths"], dtype="float16", q_heads=Q, cache=cache_of(g),
                               positions=g["positions"]), ("lengths", *CACHE, "positions")),
    "plan of packed rows": (
        lambda g: fj.plan(g["lengths"], dtype="float16", q_heads=Q, cache=cache_of(g), tokens=ROWS,
                          **packed_of(g)), ("lengths", *CACHE, "query_start_loc")),
    "attention": (attend, ("q", "lengths", *CACHE, *PLAN, *PER_HEAD)),
    "attention of packed rows": (lambda g: attend(g, **packed_of(g)),
                                 ("q", "lengths", *CACHE, *PLAN, *PER_HEAD, "query_start_loc")),
    "decode_attention": (decode, ("q", "k", "v", "lengths", *CACHE, *PLAN, *PER_HEAD)),
    "decode_attention without RoPE": (lambda g: decode(g, rope=None),
                                      ("q", "k", "v", "lengths", *CACHE, *PLAN, *PER_HEAD)),
    "decode_attention by a table": (
        by_a_table(decode),
        ("q", "k", "v", "lengths", *CACHE, *PLAN, *PER_HEAD, "positions", "cos_sin_cache")),
    "decode_attention of packed rows": (
        lambda g: decode(g, **packed_of(g)),
        ("q", "k", "v", "lengths", *CACHE, *PLAN, *PER_HEAD, "query_start_loc")),
    "latent_attention": (attend_latents, ("q", *LATENTS)),
    "latent_attention of packed rows": (lambda g: attend_latents(g, **packed_of(g)),
                                        ("q", *LATENTS, "query_start_loc")),
    "latent_attention of two parts": (apart(attend_latents), (*LATENTS, "q_rope")),
    "latent_decode": (decode_latents, ("q", *LATENTS, "latent", "norm")),
    "latent_decode of two parts": (apart(decode_latents), (*LATENTS, "latent", "norm", "q_rope")),
    "latent_decode by a table": (
        by_a_table(decode_latents),
        ("q", *LATENTS, "latent", "norm", "positions", "cos_sin_cache")),
    "latent_decode of packed rows": (lambda g: decode_latents(g, **packed_of(g)),
                                     ("q", *LATENTS, "latent", "norm", "query_start_loc")),
}


def sound(operation):
    """Returns correct arguments of an operation."""
    is_latent = operation.startswith("latent")
    given = latent_arguments() if is_latent else arguments()
    packed = dict(packed_of(given), tokens=ROWS) if "packed" in operation else {}
    made = fj.plan(given["lengths"], dtype="float16", q_heads=Q,
                   cache=latents_of(given) if is_latent else cache_of(given), **packed)
    return {**given, "plan.plan": made.plan, "plan.scratch": made.scratch}


def wrong_dtype(x):
    return x.astype(jnp.int8 if jnp.issubdtype(x.dtype, jnp.floating) else jnp.int16)


def shorter(dim):
    def cut(x):
        return jax.lax.slice_in_dim(x, 0, x.shape[dim] - 1, axis=dim) \
            if x.ndim > dim and x.shape[dim] > 1 else None

    return cut


MISTAKES = {
    "another dtype": wrong_dtype,
    "bools": lambda x: x.astype(bool),
    "more dims": lambda x: x[None, None],
    "fewer dims": lambda x: x.reshape(-1) if x.ndim > 1 else x[0],
    "one row less": shorter(0),
    "a smaller dim 1": shorter(1),
    "a smaller dim 2": shorter(2),
    "a smaller dim 3": shorter(3),
}
# Changes that leave a call correct, by the first word of the operation's name, as in
# python_torch_mistakes.py.
SOUND = {
    "silu_and_mul": {"input": {"more dims", "fewer dims", "one row less"}},
    "apply_rope": {"q": {"a smaller dim 1"}, "k": {"a smaller dim 1"}},
    "append_kv": {"cache.page_table": {"a smaller dim 1"}},
    "plan": {"cache.page_table": {"a smaller dim 1"}},
    "attention": {"cache.page_table": {"a smaller dim 1"}},
    "decode_attention": {"cache.page_table": {"a smaller dim 1"},
                         "cos_sin_cache": {"one row less"}},
    "latent_attention": {"cache.page_table": {"a smaller dim 1"},
                         "cache.latents": {"one row less", "a smaller dim 1"}},
}
SOUND["gelu_and_mul"] = SOUND["gelu_tanh_and_mul"] = SOUND["silu_and_mul"]
SOUND["latent_decode"] = {**SOUND["latent_attention"], "cos_sin_cache": {"one row less"}}
KINDS = (ValueError, TypeError, NotImplementedError)


def traced(call, given):
    """Returns None if the call can be traced, or the error's message."""
    try:
        jax.eval_shape(lambda: call(given))
    except KINDS as error:
        return str(error)
    return None


def names_of(name):
    if name in ("cache.k", "cache.v"):
        return (name,)
    return name, name.partition(".")[2] or name


def what_is_sound_runs():
    for operation, (call, _) in OPERATIONS.items():
        jax.block_until_ready(jax.tree_util.tree_leaves(call(sound(operation))))


def each_mistake_in_each_argument_is_told_by_name():
    tried, wrong = 0, []
    for operation, (call, takes) in OPERATIONS.items():
        right = sound(operation)
        allowed = SOUND.get(operation.partition(" ")[0], {})
        for name in takes:
            for mistake, made in MISTAKES.items():
                changed = made(right[name])
                if changed is None:
                    continue
                tried += 1
                sentence = traced(call, {**right, name: changed})
                told = sentence is None if mistake in allowed.get(name, ()) else (
                    sentence is not None and any(one in sentence for one in names_of(name)))
                if not told:
                    wrong.append(f"{operation}: {name} with {mistake}: {sentence}"[:300])
    assert not wrong, "\n" + "\n".join(wrong)
    assert tried > 1000, tried


def numbers_are_told_by_name_too():
    given = arguments()
    q, cache, lengths = given["q"], cache_of(given), given["lengths"]
    for wrong in ("x", None, [1, 2], float("nan"), float("inf"), 2.5):
        for words, call in (
            ("logits.window is", lambda one: fj.attention(q, cache, lengths,
                                                          logits=fj.Logits(window=one))),
            ("window is", lambda one: fj.plan(lengths, dtype="float16", q_heads=Q, cache=cache,
                                              window=one)),
            ("q_heads is", lambda one: fj.plan(lengths, dtype="float16", q_heads=one,
                                               cache=cache)),
            ("row_tokens is", lambda one: fj.plan(lengths, dtype="float16", q_heads=Q,
                                                  cache=cache, row_tokens=one)),
            ("rope.llama3_context is", lambda one: fj.apply_rope(
                q, given["k"], given["positions"], fj.Rope(llama3_context=one))),
        ):
            refused(words, lambda: call(wrong), KINDS)
    for wrong in ("x", None, [1, 2], float("nan"), float("inf"), -1):
        for name in ("scale", "soft_cap"):
            refused(f"logits.{name} is", lambda: fj.attention(
                q, cache, lengths, logits=fj.Logits(**{name: wrong})), KINDS)


def a_plan_of_another_attention_is_refused():
    """The sizes of many plans are equal, so only the plan can tell. It can in jit and scan too."""
    lengths, dim = jnp.full(ROWS, 24, jnp.int32), DIM

    def cache(tokens=32, kv_heads=KV, dtype=np.float16, pages=0):
        shape = (ROWS * (tokens // pages), pages) if pages else (ROWS, tokens)
        table = jnp.arange(shape[0], dtype=jnp.int32).reshape(ROWS, -1) if pages else None
        return fj.Cache(*(jnp.zeros((*shape, kv_heads, dim), dtype) for _ in "kv"), table)

    def plan(own, **more):
        return fj.plan(lengths, **{"dtype": "float16", "q_heads": Q, "cache": own, **more})

    q, k = normal(ROWS, Q, dim), normal(ROWS, KV, dim)
    own = cache()
    for words, lent, given in (
        ("rows of up to 32 tokens, the cache of this call holds 17", plan(own),
         dict(cache=cache(17))),
        ("window 0, this call has 9", plan(own), dict(logits=fj.Logits(window=9))),
        ("window 9, this call has 0", plan(own, window=9), {}),
        ("deterministic True, this call has False", plan(own, deterministic=True), {}),
        ("deterministic False, this call has True", plan(own), dict(deterministic=True)),
        ("kv_heads 2, this call has 4", plan(cache(kv_heads=2)), {}),
        ("q_heads 16, this call has 8", plan(own, q_heads=16), {}),
        ("page_size 16, this call has 0", plan(cache(pages=16)), {}),
        ("page_size 16, this call has 8", plan(cache(pages=16)), dict(cache=cache(pages=8))),
        ("dtype bfloat16, this call has float16", plan(cache(dtype=jnp.bfloat16),
                                                       dtype="bfloat16"), {}),
        ("kv_dtype e4m3, this call has f16", plan(cache(dtype=jnp.float8_e4m3fn)), {}),
        ("row_tokens 2, this call has 1", plan(own, row_tokens=2), {}),
    ):
        asked = {"cache": own, **given}
        for wrapped in (lambda f: f, jax.jit):
            refused("plan was made for " + words, lambda: wrapped(
                lambda one: fj.attention(q, asked["cache"], lengths, plan=one,
                                         **{n: x for n, x in asked.items() if n != "cache"}))(lent),
                (ValueError,))
    refused("rows of up to 32 tokens, the cache of this call holds 17",
            lambda: fj.append_kv(k, k, cache(17), lengths, plan=plan(own)), (ValueError,))

    def layer(lent, _):
        return fj.attention(q, own, lengths, plan=lent).plan, 0

    last, _ = jax.lax.scan(layer, plan(own), None, length=2)
    assert last.made_for == plan(own).made_for
    fj.attention(q, own, lengths, plan=last, logits=fj.Logits(window=32))  # hides no token
    assert fj.Plan(*last).made_for is None


run([
    what_is_sound_runs,
    each_mistake_in_each_argument_is_told_by_name,
    numbers_are_told_by_name_too,
    a_plan_of_another_attention_is_refused,
])
