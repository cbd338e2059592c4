"""python_torch_mistakes.py: calls each operator of figraph.torch with one mistake at a time: every
kind of mistake in every argument.

    tests/python/python_torch_mistakes.py [DEVICE]

The error must name the argument, and a refused call must write nothing. Run where torch and figraph
can be imported.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import figraph.torch as ft  # noqa: E402
import torch  # noqa: E402
from python_torch import (  # noqa: E402
    DEVICE, DIM, KV, LENGTHS, Q, ROWS, normal, paged, refused, run)

# The device to which elsewhere() moves a tensor.
ELSEWHERE = "meta" if DEVICE == "cpu" else "cpu"


def arguments(operator=""):
    """Returns correct arguments of an operator, by their names in messages."""
    cache = paged()
    scale = torch.ones(KV, device=DEVICE)
    given = {
        "cache.k": cache.k.half().to(torch.float8_e4m3fn),
        "cache.v": cache.v.half().to(torch.float8_e4m3fn),
        "cache.page_table": cache.page_table,
        "cache.k_scale": scale,
        "cache.v_scale": scale.clone(),
        "lengths": LENGTHS.clone(),
        "query_start_loc": torch.tensor([0, 2, 2, 3], dtype=torch.int32, device=DEVICE),
        "positions": LENGTHS.int() if operator == "plan with positions" else LENGTHS.long(),
        "slots": LENGTHS.long(),
        "input": normal(ROWS, 2 * DIM, dtype=torch.float16),
        "weight": normal(2 * DIM, dtype=torch.float16),
        "residual": normal(ROWS, 2 * DIM, dtype=torch.float16),
        "q": normal(ROWS, Q, DIM, dtype=torch.float16),
        "k": normal(ROWS, KV, DIM, dtype=torch.float16),
        "v": normal(ROWS, KV, DIM, dtype=torch.float16),
        "alibi": normal(Q),
        "sinks": normal(Q),
        "cos_sin_cache": normal(32, DIM),
        "bias": normal(Q),
        "out": None,
        "out[0]": None,
        "out[1]": None,
    }
    if "latent" in operator:
        return latent_arguments(operator)
    if "prompt" in operator:
        return prompt_arguments(given)
    made = plan(given, **(dict(packed_of(given), tokens=ROWS) if "packed" in operator else {}))
    return {**given, "plan.plan": made.plan, "plan.scratch": made.scratch}


def latent_arguments(operator):
    """Returns correct arguments of an operator over a latent cache."""
    table = paged().page_table
    given = {
        "cache.latents": normal(table.numel(), 8, 576, dtype=torch.float16),
        "cache.page_table": table,
        "lengths": LENGTHS.clone(),
        "query_start_loc": torch.tensor([0, 2, 2, 3], dtype=torch.int32, device=DEVICE),
        "positions": LENGTHS.long(),
        "q": normal(ROWS, Q, 576, dtype=torch.float16),
        "q_rope": normal(ROWS, Q, 64, dtype=torch.float16),
        "latent": normal(ROWS, 576, dtype=torch.float16),
        "norm": normal(512, dtype=torch.float16),
        "sinks": normal(Q),
        "cos_sin_cache": normal(32, 64),
        "out": None,
    }
    made = plan_latents(given, **(dict(packed_of(given), tokens=ROWS) if "packed" in operator
                                  else {}))
    return {**given, "plan.plan": made.plan, "plan.scratch": made.scratch}


def prompt_arguments(given):
    """Returns correct arguments of attention of prompts."""
    given = {**given, "cache.k": given["cache.k"].half(), "cache.v": given["cache.v"].half(),
             "cache.k_scale": None, "cache.v_scale": None}
    made = ft.plan_prompts([9, 5, 1], [0, 1, 2, 3], dtype=torch.float16, q_heads=Q,
                           cache=cache_of(given))
    return {**given, "plan.plan": made.plan, "plan.scratch": made.scratch}


def cache_of(given):
    return ft.Cache(*(given["cache." + name] for name in ft.Cache._fields))


def plan_of(given):
    return ft.Plan(given["plan.plan"], given["plan.scratch"])


def packed_of(given):
    return dict(query_start_loc=given["query_start_loc"], row_tokens=2)


def append(given, **more):
    return ft.append_kv(given["k"], given["v"], cache_of(given), given["lengths"],
                        plan=plan_of(given), **more)


def plan(given, **more):
    return ft.plan(given["lengths"], dtype=torch.float16, q_heads=Q, cache=cache_of(given), **more)


def attend(given, **more):
    return ft.attention(given["q"], cache_of(given), given["lengths"], plan=plan_of(given),
                        alibi=given["alibi"], sinks=given["sinks"], out=given["out"], **more)


def decode(given, **more):
    return ft.decode_attention(given["q"], given["k"], given["v"], cache_of(given),
                               given["lengths"], plan=plan_of(given), alibi=given["alibi"],
                               sinks=given["sinks"], out=given["out"], **more)


def attend_scored(given, **more):
    return ft.attention(given["q"], cache_of(given), given["lengths"], sinks=given["sinks"],
                        out=given["out"], score="f32 bias[8]; score + bias[head]",
                        score_arrays={"bias": given["bias"]}, **more)


def decode_scored(given, **more):
    return ft.decode_attention(given["q"], given["k"], given["v"], cache_of(given),
                               given["lengths"], sinks=given["sinks"], out=given["out"],
                               score="f32 bias[8]; score + bias[head]",
                               score_arrays={"bias": given["bias"]}, **more)


def attend_prompts(given):
    shape = ft.prompt_operators.PromptShape(Q, KV, DIM, 8, 0, False)
    lent = ft.PromptPlan(given["plan.plan"], given["plan.scratch"], 3, 3, 3, shape)
    return ft.prompt_attention(given["q"], cache_of(given), lent, sinks=given["sinks"],
                               out=given["out"])


def latents_of(given):
    return ft.LatentCache(given["cache.latents"], given["cache.page_table"])


def plan_latents(given, **more):
    return ft.plan(given["lengths"], dtype=torch.float16, q_heads=Q, cache=latents_of(given),
                   **more)


def attend_latents(given, **more):
    return ft.latent_attention(given["q"], latents_of(given), given["lengths"],
                               plan=plan_of(given), sinks=given["sinks"], out=given["out"],
                               logits=ft.Logits(scale=0.125), **more)


def decode_latents(given, **more):
    return ft.latent_decode(given["q"], given["latent"], latents_of(given), given["lengths"],
                            plan=plan_of(given), sinks=given["sinks"], norm=given["norm"],
                            out=given["out"], logits=ft.Logits(scale=0.125), **more)


def apart(attends):
    """Returns the call with q in two tensors."""
    return lambda g: attends({**g, "q": g["q"][..., :512]}, q_rope=g["q_rope"])


def turn(given, **more):
    out = None if given["out[0]"] is None else (given["out[0]"], given["out[1]"])
    return ft.apply_rope(given["q"], given["k"], given["positions"], out=out, **more)


CACHE = ("cache.k", "cache.v", "cache.page_table", "cache.k_scale", "cache.v_scale")
PLAN = ("plan.plan", "plan.scratch")
PER_HEAD = ("alibi", "sinks")
FROM_POSITIONS = ("positions", "cos_sin_cache")
LATENTS = ("cache.latents", "cache.page_table")
ATTENDED = ("q", "lengths", *LATENTS, *PLAN, "sinks")
APPENDED = (*ATTENDED, "latent", "norm")
# name: (call, arguments that the operator takes, shape of out)
OPERATORS = {
    "silu_and_mul": (lambda g: ft.silu_and_mul(g["input"], out=g["out"]), ("input",), (ROWS, DIM)),
    "gelu_and_mul": (lambda g: ft.gelu_and_mul(g["input"], out=g["out"]), ("input",), (ROWS, DIM)),
    "gelu_tanh_and_mul": (lambda g: ft.gelu_tanh_and_mul(g["input"], out=g["out"]), ("input",),
                          (ROWS, DIM)),
    "rms_norm": (lambda g: ft.rms_norm(g["input"], g["weight"], residual=g["residual"],
                                       out=g["out"]),
                 ("input", "weight", "residual"), (ROWS, 2 * DIM)),
    "apply_rope": (turn, ("q", "k", "positions"), None),
    "apply_rope by a table": (lambda g: turn(g, cos_sin_cache=g["cos_sin_cache"]),
                              ("q", "k", *FROM_POSITIONS), None),
    "append_kv": (append, ("k", "v", "lengths", *CACHE, "plan.plan"), None),
    "append_kv of packed rows": (
        lambda g: append(g, **packed_of(g)),
        ("k", "v", "lengths", *CACHE, "plan.plan", "query_start_loc"), None),
    "write_kv": (lambda g: ft.write_kv(g["k"], g["v"], cache_of(g), g["slots"]),
                 ("k", "v", "slots", *CACHE[:2], *CACHE[3:]), None),
    "plan": (plan, ("lengths", *CACHE), None),
    "plan of packed rows": (lambda g: plan(g, tokens=ROWS, **packed_of(g)),
                            ("lengths", *CACHE, "query_start_loc"), None),
    "attention": (attend, ("q", "lengths", *CACHE, *PLAN, *PER_HEAD), (ROWS, Q, DIM)),
    "attention of packed rows": (
        lambda g: attend(g, **packed_of(g)),
        ("q", "lengths", *CACHE, *PLAN, *PER_HEAD, "query_start_loc"), (ROWS, Q, DIM)),
    "decode_attention of packed rows": (
        lambda g: decode(g, rope=None, **packed_of(g)),
        ("q", "k", "v", "lengths", *CACHE, *PLAN, *PER_HEAD, "query_start_loc"), (ROWS, Q, DIM)),
    "decode_attention of packed rows by a table": (
        lambda g: decode(g, positions=g["positions"], cos_sin_cache=g["cos_sin_cache"],
                         **packed_of(g)),
        ("q", "k", "v", "lengths", *CACHE, *PLAN, *PER_HEAD, *FROM_POSITIONS, "query_start_loc"),
        (ROWS, Q, DIM)),
    "decode_attention": (decode, ("q", "k", "v", "lengths", *CACHE, *PLAN, *PER_HEAD),
                         (ROWS, Q, DIM)),
    "decode_attention without RoPE": (lambda g: decode(g, rope=None),
                                      ("q", "k", "v", "lengths", *CACHE, *PLAN, *PER_HEAD),
                                      (ROWS, Q, DIM)),
    "decode_attention by a table": (
        lambda g: decode(g, positions=g["positions"], cos_sin_cache=g["cos_sin_cache"]),
        ("q", "k", "v", "lengths", *CACHE, *PLAN, *PER_HEAD, *FROM_POSITIONS), (ROWS, Q, DIM)),
    "plan with positions": (lambda g: plan(g, positions=g["positions"]),
                            ("lengths", *CACHE, "positions"), None),
    "attention with a score": (attend_scored, ("q", "lengths", *CACHE, "sinks", "bias"),
                               (ROWS, Q, DIM)),
    "attention with a score of packed rows": (
        lambda g: attend_scored(g, **packed_of(g)),
        ("q", "lengths", *CACHE, "sinks", "bias", "query_start_loc"), (ROWS, Q, DIM)),
    "decode_attention with a score": (
        decode_scored, ("q", "k", "v", "lengths", *CACHE, "sinks", "bias"), (ROWS, Q, DIM)),
    "prompt_attention": (attend_prompts, ("q", *CACHE[:3], *PLAN, "sinks"), (ROWS, Q, DIM)),
    "plan of latents": (plan_latents, ("lengths", *LATENTS), None),
    "latent_attention": (attend_latents, ATTENDED, (ROWS, Q, 512)),
    "latent_attention of packed rows": (lambda g: attend_latents(g, **packed_of(g)),
                                        (*ATTENDED, "query_start_loc"), (ROWS, Q, 512)),
    "latent_attention of two parts": (apart(attend_latents), (*ATTENDED[1:], "q_rope"),
                                      (ROWS, Q, 512)),
    "latent_decode": (decode_latents, APPENDED, (ROWS, Q, 512)),
    "latent_decode of two parts": (apart(decode_latents), (*APPENDED[1:], "q_rope"),
                                   (ROWS, Q, 512)),
    "latent_decode by a table": (
        lambda g: decode_latents(g, positions=g["positions"], cos_sin_cache=g["cos_sin_cache"]),
        (*APPENDED, *FROM_POSITIONS), (ROWS, Q, 512)),
    "latent_decode of packed rows": (lambda g: decode_latents(g, **packed_of(g)),
                                     (*APPENDED, "query_start_loc"), (ROWS, Q, 512)),
}


def wrong_dtype(x):
    return x.double() if x.is_floating_point() else x.to(torch.int16)


def one_dim_more(x):
    return x[None, None]


def one_dim_less(x):
    return x.flatten() if x.ndim > 1 else x.sum()


def with_gaps(x):
    """Returns the same values with gaps between the elements of the last dim."""
    room = torch.zeros(*x.shape, 2, dtype=x.dtype, device=x.device)[..., 0]
    return room.copy_(x) if x.shape[-1] > 1 else None


def shorter(dim):
    def cut(x):
        return x.narrow(dim, 0, x.shape[dim] - 1) if x.ndim > dim and x.shape[dim] > 1 else None

    return cut


def elsewhere(x):
    return x.to(ELSEWHERE)


def with_gradient(x):
    return x.clone().requires_grad_() if x.dtype in (torch.float16, torch.float32) else None


def no_tensor(x):
    return x.tolist()


def of_bools(x):
    return x.to(torch.bool)


def on_one_address(x):
    """Returns a tensor whose rows share their memory, as expand() makes it."""
    return x[:1].expand(x.shape) if x.ndim > 0 and x.shape[0] > 1 else None


MISTAKES = {
    "another dtype": wrong_dtype,
    "more dims": one_dim_more,
    "fewer dims": one_dim_less,
    "one row less": shorter(0),
    "a smaller dim 1": shorter(1),
    "a smaller dim 2": shorter(2),
    "a smaller dim 3": shorter(3),
    "gaps": with_gaps,
    "another device": elsewhere,
    "a gradient": with_gradient,
    "a list": no_tensor,
    "bools": of_bools,
    "one address": on_one_address,
}
# Changes that leave a call correct, by the first word of the operator's name. The number of rows or
# heads may change if no other argument depends on it, and so may the pages of latents. Gaps are
# accepted if the operator copies the tensor. A narrower page table is served by the same plan. An
# append does not need all bytes of a plan. A call whose only tensor is on another device runs
# there. plan() reads only the shapes of caches.
SOUND = {
    "silu_and_mul": {"input": {"more dims", "fewer dims", "one row less", "gaps",
                               "another device"}},
    "rms_norm": {"input": {"gaps"}, "weight": {"gaps"}},
    "apply_rope": {"q": {"a smaller dim 1"}, "k": {"a smaller dim 1"},
                   "cos_sin_cache": {"one row less"}},
    "append_kv": {"cache.page_table": {"a smaller dim 1"}, "plan.plan": {"one row less"}},
    "write_kv": {"slots": {"gaps"}},
    "plan": {"lengths": {"one row less"}, "cache.page_table": {"a smaller dim 1", "gaps"},
             **{name: {"gaps", "a gradient", "one address"} for name in CACHE
                if name != "cache.page_table"}},
    "attention": {"cache.page_table": {"a smaller dim 1"}},
    "decode_attention": {"cache.page_table": {"a smaller dim 1"},
                         "cos_sin_cache": {"one row less"}},
    "plan of latents": {"lengths": {"one row less"},
                        "cache.page_table": {"a smaller dim 1", "gaps"},
                        "cache.latents": {"one row less", "a smaller dim 1", "gaps",
                                          "a gradient", "one address"}},
    "latent_attention": {"cache.page_table": {"a smaller dim 1"},
                         "cache.latents": {"one row less", "a smaller dim 1"}},
    "prompt_attention": {"plan.plan": {"one row less"}},
    "attention with a score": {"cache.page_table": {"a smaller dim 1"}},
    "latent_decode": {"cache.page_table": {"a smaller dim 1"},
                      "cache.latents": {"one row less", "a smaller dim 1"},
                      "cos_sin_cache": {"one row less"}},
}
# query_start_loc says how many rows a plan has.
SOUND["plan of packed rows"] = {name: kinds for name, kinds in SOUND["plan"].items()
                                if name != "lengths"}
SOUND["plan with positions"] = SOUND["plan of packed rows"]
SOUND["decode_attention with a score"] = SOUND["attention with a score"]
SOUND["attention with a score of packed rows"] = {**SOUND["attention with a score"],
                                                  "q": {"one row less"}}
SOUND["gelu_and_mul"] = SOUND["gelu_tanh_and_mul"] = SOUND["silu_and_mul"]
KINDS = (ValueError, TypeError, NotImplementedError, RuntimeError)


def taken(call, given):
    """Returns None if the call runs, or the error's message."""
    try:
        call(given)
    except KINDS as error:
        return str(error)
    return None


def names_of(name):
    """Returns the names by which a message may call the argument: cache.k_scale is also k_scale,
    and out[0] is part of out."""
    if name in ("cache.k", "cache.v"):
        return (name,)
    if name == "bias":
        return name, "score_arrays"
    return name, name.partition(".")[2] or name.partition("[")[0]


def outs_of(operator, shape, given):
    """Returns the arguments plus tensors for the results, and the names of these tensors."""
    if operator.startswith("apply_rope"):
        return {**given, "out[0]": torch.zeros_like(given["q"]),
                "out[1]": torch.zeros_like(given["k"])}, ("out[0]", "out[1]")
    if shape is None:
        return given, ()
    out = torch.zeros(shape, dtype=torch.float16, device=DEVICE)
    return {**given, "out": out}, ("out",)


def what_is_sound_runs():
    for operator, (call, _, shape) in OPERATORS.items():
        given = arguments(operator)
        assert taken(call, given) is None, (operator, taken(call, given))
        assert taken(call, outs_of(operator, shape, given)[0]) is None, operator


def is_sound(operator, name, mistake, with_out):
    """With an out, rows of the input can be wrong that would be correct without it."""
    allowed = SOUND.get(operator, SOUND[operator.partition(" ")[0]]).get(name, ())
    if with_out and name in ("input", "q", "k") and mistake != "gaps":
        return False
    return mistake in allowed


# The arguments of which the library looks at the strides or the size when it runs, and no one
# before.
RUN_TIME = {"gaps": ("lengths", "query_start_loc", *CACHE[2:], *PER_HEAD, *FROM_POSITIONS),
            "one row less": ("plan.scratch",)}
# Other arguments may have rows that share their memory.
WRITTEN = ("cache.k", "cache.v", "cache.latents", "residual", "out", "out[0]", "out[1]")


def faults(mistakes, place, early=False):
    """Returns the number of mistakes that were tried, and a list of those whose message did not
    name the argument. place: moves the correct arguments first. early: skips gaps in RUN_TIME."""
    tried, wrong = 0, []
    for operator, (call, takes, shape) in OPERATORS.items():
        for with_out in (False, True):
            sound, names = arguments(operator), takes
            if with_out:
                sound, outs = outs_of(operator, shape, sound)
                names = (*takes, *outs)
            sound = {name: x if x is None else place(x) for name, x in sound.items()}
            for name in names:
                for mistake in mistakes:
                    given = {**sound, name: MISTAKES[mistake](sound[name])}
                    if mistake == "one address" and name not in WRITTEN:
                        continue
                    if given[name] is None or (early and name in RUN_TIME.get(mistake, ())):
                        continue
                    tried += 1
                    sentence = taken(call, given)
                    if is_sound(operator, name, mistake, with_out):
                        told = sentence is None
                    else:
                        told = sentence is not None and any(
                            one in sentence for one in names_of(name))
                    if not told:
                        wrong.append(f"{operator}: {name} with {mistake}: {sentence}"[:300])
    return tried, wrong


def each_mistake_in_each_argument_is_told_by_name():
    tried, wrong = faults(MISTAKES, lambda x: x)
    assert not wrong, "\n" + "\n".join(wrong)
    assert tried > 1400, tried


def shapes_and_dtypes_are_told_where_they_alone_are_known():
    """Uses tensors without memory, as torch.compile does."""
    alone = [name for name in MISTAKES if name not in ("another device", "a gradient", "a list")]
    tried, wrong = faults(alone, lambda x: x.to("meta"), early=True)
    assert not wrong, "\n" + "\n".join(wrong)
    assert tried > 900, tried


def a_refused_call_has_written_nothing():
    """In each call, only the last argument is wrong."""
    for operator, (call, takes, shape) in OPERATORS.items():
        sound = outs_of(operator, shape, arguments(operator))[0]
        before = {name: x.clone() for name, x in sound.items() if x is not None}
        wrong = {**sound, takes[-1]: elsewhere(sound[takes[-1]])}
        assert taken(call, wrong) is not None, operator
        for name, x in before.items():
            same = torch.equal(x.view(torch.uint8) if x.dtype == torch.float8_e4m3fn else x,
                               sound[name].view(torch.uint8)
                               if x.dtype == torch.float8_e4m3fn else sound[name])
            assert same, (operator, name)


def numbers_and_names_are_told_too():
    g = arguments()
    q, cache, lengths = g["q"], cache_of(g), g["lengths"]
    raw = cache._replace(k=cache.k.view(torch.uint8), v=cache.v.view(torch.uint8))
    for words, call in (
        ('layout is "nkd"', lambda: ft.write_kv(g["k"], g["v"], cache, g["slots"], layout="nkd")),
        ("kv_dtype is int8", lambda: ft.attention(q, cache, lengths, kv_dtype="int8")),
        ("kv_dtype is float16", lambda: ft.attention(q, cache, lengths, kv_dtype=torch.float16)),
        ("cache.k is uint8, kv_dtype must say", lambda: ft.attention(q, raw, lengths)),
        ("cache.k is uint8, kv_dtype must say",
         lambda: ft.plan(lengths, dtype="f16", q_heads=Q, cache=raw)),
        ("cache.k is float8_e4m3fn, it must be uint8 or float8_e5m2",
         lambda: ft.attention(q, cache, lengths, kv_dtype="fp8_e5m2")),
        ("cache.v is float8_e4m3fn, it must be uint8",
         lambda: ft.append_kv(g["k"], g["v"], raw._replace(v=cache.v), lengths, kv_dtype="fp8")),
        ("dtype is f64", lambda: ft.plan(lengths, dtype="f64", q_heads=Q, cache=cache)),
        ("q is [3, 0, 8, 64], its rows must have",
         lambda: ft.attention(q[:, None][:, :0], cache, lengths)),
        ("row_tokens is 17, limits 0 to 16",
         lambda: ft.attention(q[:, None].expand(3, 17, 8, 64).contiguous(), cache, lengths)),
        ("row_tokens is 17, limits 0 to 16",
         lambda: ft.plan(lengths, dtype="f16", q_heads=Q, cache=cache, row_tokens=17)),
        ("q has strides 512 and 0 between rows and between the 2 tokens of a row",
         lambda: ft.attention(q[:, None].expand(3, 2, 8, 64), cache, lengths)),
        ("positions is given, but rope is None",
         lambda: decode(g, rope=None, positions=g["positions"])),
        ("cos_sin_cache is given, but rope is None",
         lambda: decode(g, rope=None, cos_sin_cache=g["cos_sin_cache"])),
        ("cos_sin_cache is given without positions",
         lambda: decode(g, cos_sin_cache=g["cos_sin_cache"])),
        ("rope.theta is 5.0, but cos_sin_cache gives the angles",
         lambda: decode(g, rope=ft.Rope(theta=5.0), positions=g["positions"],
                        cos_sin_cache=g["cos_sin_cache"])),
        ("logits is a float, it must be a Logits",
         lambda: ft.attention(q, cache, lengths, logits=0.125)),
        ("logits is a dict", lambda: decode(g, logits={"window": 9})),
        ("logits.window is True", lambda: ft.attention(q, cache, lengths,
                                                       logits=ft.Logits(window=True))),
        ("window is True", lambda: plan(g, window=True)),
        ("q_heads is True", lambda: ft.plan(lengths, dtype="f16", q_heads=True, cache=cache)),
        ("rope is a float, it must be a Rope",
         lambda: ft.apply_rope(q, g["k"], g["positions"], 5e5)),
        ("rope is a float", lambda: decode(g, rope=5e5)),
        ("cache is a tuple, it must be a Cache",
         lambda: ft.attention(q, tuple(cache), lengths)),
        ("cache is a LatentCache, it must be a Cache",
         lambda: ft.append_kv(g["k"], g["v"], ft.LatentCache(cache.k), lengths)),
        ("cache is a NoneType, it must be a Cache or LatentCache",
         lambda: ft.plan(lengths, dtype="f16", q_heads=Q, cache=None)),
        ("cache is a tuple", lambda: ft.write_kv(g["k"], g["v"], tuple(cache), g["slots"])),
        ("plan is a tuple, it must be a Plan",
         lambda: ft.attention(q, cache, lengths, plan=tuple(plan_of(g)))),
        ("plan is a tuple", lambda: ft.append_kv(g["k"], g["v"], cache, lengths,
                                                 plan=tuple(plan_of(g)))),
        ("tensor k: overlaps tensor q",
         lambda: ft.decode_attention(q, q[:, :KV], g["v"], cache, lengths)),
        ("tensor out: overlaps tensor q",
         lambda: ft.attention(q[1:], cache, lengths[1:], out=q[:-1])),
    ):
        refused(words, call)


def a_plan_of_another_capacity_or_window_is_refused():
    """The sizes of these plans are equal, so only the plan can tell."""
    rows, heads, dim = 3, 8, 128
    lengths = torch.full((rows,), 64, dtype=torch.int32, device=DEVICE)
    q = torch.zeros(rows, heads, dim, device=DEVICE)
    for layout in ("nhd", "hnd"):
        shape = (lambda n: (rows, n, heads, dim) if layout == "nhd" else (rows, heads, n, dim))
        big, small = (ft.Cache(*(torch.zeros(shape(n), device=DEVICE) for _ in "kv"))
                      for n in (64, 33))
        lent = ft.plan(lengths, dtype=q.dtype, q_heads=heads, cache=big, layout=layout)
        calls = (lambda cache: ft.attention(q, cache, lengths, plan=lent, layout=layout),
                 lambda cache: ft.append_kv(q, q, cache, lengths, plan=lent, layout=layout),
                 lambda cache: ft.decode_attention(q + 0, q + 1, q, cache, lengths, plan=lent,
                                                   rope=None, layout=layout))
        for call in calls:
            call(big)
            refused("plan was made for rows of up to 64 tokens, the cache of this call holds 33",
                    lambda: call(small), (ValueError,))
        refused("plan was made for window 0, this call has 63",
                lambda: ft.attention(q, big, lengths, plan=lent, layout=layout,
                                     logits=ft.Logits(window=63)), (ValueError,))
        ft.attention(q, big, lengths, plan=lent, layout=layout, logits=ft.Logits(window=64))
    pool, table = torch.zeros(4, 1, heads, dim, device=DEVICE), torch.zeros_like(lengths)[:, None]
    lent = ft.plan(lengths, dtype=q.dtype, q_heads=heads,
                   cache=ft.Cache(pool, pool, table.repeat(1, 64)))
    refused("rows of up to 64 tokens", lambda: ft.attention(
        q, ft.Cache(pool, pool, table.repeat(1, 33)), lengths, plan=lent), (ValueError,))
    plan, scratch = lent  # a Plan is two tensors
    assert ft.Plan(plan, scratch).made_for is None and lent.made_for[-1] == 64


def a_plan_of_another_attention_is_refused():
    """The sizes of some of these plans are equal, too."""
    lengths, q = torch.full((ROWS,), 24, dtype=torch.int32, device=DEVICE), normal(ROWS, Q, DIM)
    q = q.half()

    def cache(kv_heads=KV, dtype=torch.float16, page=0):
        shape = (ROWS * 32 // page, page) if page else (ROWS, 32)
        table = torch.arange(shape[0], dtype=torch.int32, device=DEVICE).view(ROWS, -1)
        return ft.Cache(*(normal(*shape, kv_heads, DIM, dtype=dtype) for _ in "kv"),
                        table if page else None)

    def plan(own, **more):
        return ft.plan(lengths, **{"dtype": "f16", "q_heads": Q, "cache": own, **more})

    own = cache()
    for words, lent, given in (
        ("deterministic True, this call has False", plan(own, deterministic=True), {}),
        ("deterministic False, this call has True", plan(own), dict(deterministic=True)),
        ("kv_heads 2, this call has 4", plan(cache(2)), {}),
        ("q_heads 16, this call has 8", plan(own, q_heads=16), {}),
        ("page_size 16, this call has 0", plan(cache(page=16)), {}),
        ("page_size 16, this call has 8", plan(cache(page=16)), dict(cache=cache(page=8))),
        ("dtype bfloat16, this call has float16", plan(cache(dtype=torch.bfloat16), dtype="bf16"),
         {}),
        ("kv_dtype e4m3, this call has f16", plan(cache(dtype=torch.float8_e4m3fn)), {}),
        ("row_tokens 2, this call has 1", plan(own, row_tokens=2), {}),
    ):
        asked = {"cache": own, **given}
        for call in (lambda **a: ft.attention(q, lengths=lengths, **a),
                     lambda **a: ft.decode_attention(q + 0, q[:, :KV] + 0, q[:, :KV],
                                                     lengths=lengths, **a)):
            refused("plan was made for " + words, lambda: call(plan=lent, **asked), (ValueError,))


CASES = [
    what_is_sound_runs,
    each_mistake_in_each_argument_is_told_by_name,
    shapes_and_dtypes_are_told_where_they_alone_are_known,
    a_refused_call_has_written_nothing,
    a_plan_of_another_capacity_or_window_is_refused,
    a_plan_of_another_attention_is_refused,
    numbers_and_names_are_told_too,
]
if __name__ == "__main__":
    run(CASES)
