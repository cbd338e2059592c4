"""operations.py: the operations of figraph.jax, each of which is one custom call.

Wrong types, shapes, heads and numbers raise while JAX traces. Invariant: each row is one sequence,
and lengths count this step's token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional, Union

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from .. import ffi, lent_plans, operands
from ..lent_plans import Plan
from ..operands import (ACTIVATIONS, LAYOUTS, Array, Cache, Form, LatentCache, Logits, Rope, Starts,
                        placed, sound_logits)
from ..scores import Masked, Score, joined, picked
from .targets import (alone, bytes_of, custom_call, form_of, lengths_of, like, number_of,
                      number_of_kind, or_absent, real, shaped, starts_of, typed, whole)


Variant = Union[str, Score, Callable[..., Any]]
# As a NamedTuple, a plan would lose what it was made for in each transformation of JAX.
jax.tree_util.register_pytree_with_keys(
    Plan, lambda plan: (tuple((jax.tree_util.GetAttrKey(name), x)
                              for name, x in zip(Plan._fields, plan)), plan.made_for),
    lambda made_for, arrays: lent_plans.of(arrays, made_for))


class Attended(NamedTuple):
    """The results of attention: out, the plan for the next operation, and the log-sum-exp to base 2
    if it was asked for."""

    out: Array
    plan: Optional[Plan]
    lse: Optional[Array]


class Decoded(NamedTuple):
    """The results of decode_attention or latent_decode."""

    out: Array
    cache: Any  # the Cache or LatentCache with the new tokens
    plan: Optional[Plan]
    lse: Optional[Array]


# ---- Activations and RoPE ------------------------------------------------------------------------


def _gated(target: str, x: Array) -> Array:
    x = typed("input", x, list(ACTIVATIONS))
    if x.ndim < 1 or x.shape[-1] % 2 != 0:
        raise ValueError(f"input is {list(x.shape)}, its last dim must be 2 * width")
    out = jax.ShapeDtypeStruct(x.shape[:-1] + (x.shape[-1] // 2,), x.dtype)

    @custom_vmap
    def call(x: Array) -> Array:
        return custom_call(target, [out], x)[0]

    @call.def_vmap
    def more_rows(axis_size: int, in_batched: Any, x: Array) -> Any:
        return _gated(target, x), True

    return call(x)


def silu_and_mul(input: Array) -> Array:
    """Returns silu(first half of the last dim) * second half."""
    return _gated("silu_and_mul", input)


def gelu_and_mul(input: Array) -> Array:
    """Returns gelu(first half of the last dim) * second half, with the exact gelu."""
    return _gated("gelu_and_mul", input)


def gelu_tanh_and_mul(input: Array) -> Array:
    """Returns gelu(first half of the last dim) * second half, with the tanh approximation."""
    return _gated("gelu_tanh_and_mul", input)


def angles_of(rope: Rope, head_dim: int) -> dict[str, Any]:
    """Checks a Rope and returns it as attributes of the targets."""
    whole_ones = ("rotary_dim", "interleaved", "llama3_context")
    made = {name: (whole if name in whole_ones else real)("rope." + name, value)
            for name, value in rope._asdict().items()}
    ffi.check_rope(head_dim, **made)
    names = dict(interleaved="interleave", scale="rope_scale", theta="rope_theta")
    return {names.get(name, name): value for name, value in made.items()}


def apply_rope(q: Array, k: Array, positions: Array, rope: Rope = Rope()) -> tuple[Array, Array]:
    """Returns q and k, [rows, heads, head_dim], rotated by the position of each row. positions is
    int32 or int64 [rows]."""
    q = typed("q", q, list(ACTIVATIONS))
    k = typed("k", k, [str(q.dtype)])
    shaped("q", q, None, None, None)
    shaped("k", k, q.shape[0], None, q.shape[2], like="q")
    positions = typed("positions", positions, ["int32", "int64"])
    shaped("positions", positions, q.shape[0], like="q")
    angles = angles_of(rope, q.shape[2])

    @custom_vmap
    def call(q: Array, k: Array, positions: Array) -> Any:
        return tuple(custom_call("rope", like(q, k), q, k, positions, **angles))

    @call.def_vmap
    def more_rows(axis_size: int, in_batched: Any, *arrays: Array) -> Any:
        all_rows = [
            x if batched else jnp.broadcast_to(x, (axis_size, *x.shape))
            for x, batched in zip(arrays, in_batched)
        ]
        flat = [x.reshape(-1, *x.shape[2:]) for x in all_rows]
        turned = apply_rope(*flat, rope=rope)
        return tuple(x.reshape(to.shape) for x, to in zip(turned, all_rows)), (True, True)

    return call(q, k, positions)


# ---- The cache -----------------------------------------------------------------------------------


def needs_of(dtype: Any, q_heads: int, form: Form, window: int, plan: Optional[Plan] = None,
             deterministic: bool = False, score: int = 0) -> tuple[int, int]:
    """Returns the bytes of a plan and of its scratch. Raises if no kernel serves these heads, or if
    the given plan is for another shape. score: its number; 0: none. A score may run under a plan
    only if it runs as attention without a score."""
    needs = operands.scratch_bytes(dtype, q_heads, form, window, deterministic,
                                   score if plan is None else 0)
    if plan is not None:
        asked = lent_plans.made_for(dtype, q_heads, window, deterministic, form)
        lent_plans.refuse_other(plan, asked)
        operands.planned(Plan(*map(jnp.asarray, plan)), needs, form)
    return needs


def packed_of(form: Form) -> dict[str, int]:
    """Returns the attributes of a call whose rows have different numbers of query tokens."""
    return {"row_tokens": form.row_tokens} if form.is_packed else {}


def _form_of_rows(name: str, array: Array, cache: Cache, lengths: Array, layout: str,
                  starts: Starts) -> Form:
    """Checks the rows of q, or of the k of an append, and their cache."""
    dtype, rows, row_tokens = operands.rows_of(name, array, lengths, starts)
    form = form_of(dtype, rows, cache, layout, row_tokens)
    shaped(name, array, *array.shape[:-2], None, form.head_dim)
    lengths_of(lengths, form.rows, name)
    return operands.packed_form(form, starts, array.shape[0])


def append_kv(k: Array, v: Array, cache: Cache, lengths: Array, *, plan: Optional[Plan] = None,
              layout: str = "nhd", query_start_loc: Optional[Array] = None,
              row_tokens: int = 0) -> Cache:
    """Writes k and v, [rows, kv_heads, head_dim], into the cache at position lengths - 1, in place
    if the cache is donated. With [rows, tokens, kv_heads, head_dim] it writes the last tokens of
    each row. query_start_loc and row_tokens are as in attention. Returns the cache."""
    k, lengths = typed("k", k, list(ACTIVATIONS)), jnp.asarray(lengths)
    v = shaped("v", typed("v", v, [str(k.dtype)]), *k.shape, like="k")
    starts = starts_of(query_start_loc, row_tokens)
    form = _form_of_rows("k", k, cache, lengths, layout, starts)
    shaped("k", k, *k.shape[:-2], form.kv_heads, form.head_dim)
    _, scratch = needs_of(k.dtype, 0, form, 0)
    lent_plans.refuse_other(plan, lent_plans.appended(form.kv_length))

    def append(k: Array, v: Array, cache: Cache, lengths: Array, plan: Optional[Plan],
               *given: Array) -> Any:
        rest = [or_absent(cache.page_table, 2), jnp.zeros(0, jnp.uint8)]
        if plan is not None:
            rest[1] = plan.plan
        rest += [or_absent(scale, 1) for scale in (cache.k_scale, cache.v_scale)]
        outs = like(cache.k, cache.v) + ([bytes_of(scratch)] if plan is None else [])
        got = custom_call("append_kv", outs, k, v, cache.k, cache.v, lengths, *rest, *given,
                          aliases={2: 0, 3: 1}, kv_layout=LAYOUTS[layout], **packed_of(form))
        return tuple(got[:2])

    grown = alone("append_kv", append)(k, v, cache, lengths, plan, *given_of(starts))
    return cache._replace(k=grown[0], v=grown[1])


def given_of(starts: Starts) -> list[Array]:
    return [] if starts.query_start_loc is None else [starts.query_start_loc]


# ---- Attention -----------------------------------------------------------------------------------


def plan(lengths: Array, *, dtype: Any, q_heads: int, cache: Union[Cache, LatentCache],
         window: int = 0, layout: str = "nhd", row_tokens: int = 0, deterministic: bool = False,
         positions: Optional[Array] = None, query_start_loc: Optional[Array] = None,
         tokens: int = 0) -> Plan:
    """Makes the plan of one step, for q_heads query heads of type dtype over a cache of this shape.
    window: the number of tokens that a query sees, its own token included; 0 means all. row_tokens:
    the new tokens of each row. deterministic: the bits of a row's result depend on its own length
    but not on other rows; pass it to attention under this plan too. positions: int32 [rows], the
    position of each row's last token for RoPE in decode_attention under this plan; the default is
    lengths - 1."""
    dtype = jnp.dtype(dtype)
    if str(dtype) not in ACTIVATIONS:
        raise TypeError(f"dtype is {dtype}, it must be {' or '.join(ACTIVATIONS)}")
    lengths = shaped("lengths", typed("lengths", lengths, ["int32"]), None)
    starts = starts_of(query_start_loc, row_tokens)
    form = form_of(dtype, lengths.shape[0], cache, layout, starts.row_tokens or 1)
    tokens = whole("tokens", tokens)
    if tokens < 0 or (tokens > 0 and starts.query_start_loc is None):
        raise ValueError(f"tokens is {tokens}, it must be 0 "
                         + ("or more" if given_of(starts) else "without query_start_loc"))
    if starts.query_start_loc is not None:
        operands.started(starts, lengths)
    form = operands.packed_form(form, starts, tokens)
    q_heads, window = whole("q_heads", q_heads), whole("window", window)
    needs = needs_of(dtype, q_heads, form, window, None, deterministic)

    places = []
    if positions is not None:
        places = [shaped("positions", typed("positions", positions, ["int32"]), form.rows,
                         like="lengths")]
    elif given_of(starts):
        places = [or_absent(None, 1)]
    more = {"tokens": int(form.tokens)} if form.tokens is not None else {}
    if form.latent_dim != 0:
        more["latent_dim"] = form.latent_dim

    def make(*arrays: Array) -> Any:
        return tuple(custom_call(
            "plan", [bytes_of(count) for count in needs], *arrays,
            dtype=number_of(dtype), kv_dtype=number_of_kind(form.kv_dtype), q_heads=q_heads,
            kv_heads=form.kv_heads, head_dim=form.head_dim, page_size=form.page_size,
            kv_length=form.kv_length, window_left=window - 1, row_tokens=form.row_tokens,
            deterministic=int(deterministic), **more,
        ))

    made = alone("plan", make)(lengths, *places, *given_of(starts))
    return lent_plans.of(made, lent_plans.made_for(dtype, q_heads, window, deterministic, form))


def _logits(logits: Logits, head_dim: int, layout: str) -> dict[str, Any]:
    """Checks Logits and returns them as attributes of the targets."""
    made = Logits(real("logits.scale", logits.scale), real("logits.soft_cap", logits.soft_cap),
                  whole("logits.window", logits.window))
    sound_logits(made)
    return dict(
        kv_layout=LAYOUTS[layout],
        window_left=made.window - 1,
        logits_soft_cap=made.soft_cap,
        sm_scale=made.scale or head_dim**-0.5,
    )


def _options(cache: Cache, given: Optional[Plan], alibi: Optional[Array],
             sinks: Optional[Array]) -> list[Array]:
    """Returns the last arguments of a target, beginning with the page table."""
    none = jnp.zeros(0, jnp.uint8)
    lent = [none, none] if given is None else [given.plan, given.scratch]
    rest = [or_absent(x, 1) for x in (alibi, sinks, cache.k_scale, cache.v_scale)]
    return [or_absent(cache.page_table, 2), *lent, *rest]


def _per_head(name: str, array: Optional[Array], q: Array) -> None:
    if array is not None:
        shaped(name, typed(name, array, ["float32"]), q.shape[-2], like="q")


class _Asked(NamedTuple):
    """The checked arguments of attention."""

    q: Array
    form: Form
    lengths: Array
    attributes: dict[str, Any]
    scratch: jax.ShapeDtypeStruct
    lse: jax.ShapeDtypeStruct


class _Scored(NamedTuple):
    """A score in its normal form, with its arrays in order; text None: none."""

    text: Optional[str]
    arrays: list[Array]


def _score_of(of: Optional[Variant], mask: Optional[Masked],
              arrays: Optional[Mapping[str, Array]]) -> _Scored:
    if of is None and mask is None:
        if arrays is not None:
            raise ValueError("score_arrays is given, but neither score nor mask is")
        return _Scored(None, [])
    made = joined(of, mask)
    return _Scored(made.text, [jnp.asarray(x) for x in picked(made, arrays)])


def _last(starts: Starts, scored: _Scored) -> list[Array]:
    """Returns the last arguments of a target: query_start_loc, and the arrays of a score."""
    if not scored.arrays:
        return given_of(starts)
    return [or_absent(starts.query_start_loc, 1), *scored.arrays]


def _ask(q: Array, cache: Cache, lengths: Array, plan: Optional[Plan], logits: Logits,
         alibi: Optional[Array], sinks: Optional[Array], layout: str, with_lse: bool,
         deterministic: bool, starts: Starts, scored: _Scored) -> _Asked:
    q, lengths = jnp.asarray(q), jnp.asarray(lengths)
    form = _form_of_rows("q", q, cache, lengths, layout, starts)
    _per_head("alibi", alibi, q)
    _per_head("sinks", sinks, q)
    attributes = _logits(logits, form.head_dim, layout)
    attributes["deterministic"] = int(deterministic)
    attributes.update(packed_of(form))
    number = 0
    if scored.text is not None:
        number = operands.scored(scored.text, scored.arrays, logits, alibi)
        attributes["score"] = number
    _, scratch = needs_of(q.dtype, q.shape[-2], form, attributes["window_left"] + 1, plan,
                          deterministic, number)
    lse = jax.ShapeDtypeStruct(q.shape[:-1] if with_lse else (0, 0), jnp.float32)
    return _Asked(q, form, lengths, attributes, bytes_of(scratch), lse)


def attention(q: Array, cache: Cache, lengths: Array, *, plan: Optional[Plan] = None,
              logits: Logits = Logits(), alibi: Optional[Array] = None,
              sinks: Optional[Array] = None, layout: str = "nhd", with_lse: bool = False,
              deterministic: bool = False, query_start_loc: Optional[Array] = None,
              row_tokens: int = 0, score: Optional[Variant] = None,
              score_arrays: Optional[Mapping[str, Array]] = None,
              mask: Optional[Masked] = None) -> Attended:
    """Returns the attention of q, [rows, heads, head_dim] or [rows, tokens, heads, head_dim], over
    the first lengths[row] tokens of each row's cache. alibi and sinks are float32 [heads].

    query_start_loc, int32 [rows + 1], is for rows with different numbers of query tokens: q is then
    [tokens, heads, head_dim], and row r has its tokens from query_start_loc[r] up to
    query_start_loc[r + 1], the last ones of its sequence. query_start_loc[0] is 0. row_tokens is
    the most that a row may have, by default 8; a smaller number is faster. A row with more tokens,
    or with a negative number of them, counts as a row without tokens. The contents of out and lse
    behind the last token are unspecified.

    score is a variant of attention: a figraph.score, or a text or function from which the call
    makes one. score_arrays has an array for each array of the score. If the score is a soft cap,
    ALiBi or both, the call runs as attention with these options. With any other score, the call
    uses no tensor cores and makes its own plan. Before a process runs an exported function, it must
    make the function's scores known: figraph.ffi.score_number(figraph.score(...).text).

    mask says which tokens a query sees: a figraph.mask, or a text or function from which the call
    makes one. It replaces the rule that a query sees no later token. It runs as a score does, and
    score_arrays has its arrays too."""
    starts = starts_of(query_start_loc, row_tokens)
    scored = _score_of(score, mask, score_arrays)
    asked = _ask(q, cache, lengths, plan, logits, alibi, sinks, layout, with_lse, deterministic,
                 starts, scored)

    def attend(q: Array, cache: Cache, lengths: Array, plan: Optional[Plan],
               alibi: Optional[Array], sinks: Optional[Array], *given: Array) -> Any:
        return tuple(custom_call(
            "attention", [*like(q), asked.scratch, asked.lse], q, cache.k, cache.v, lengths,
            *_options(cache, plan, alibi, sinks), *given,
            aliases=None if plan is None else {6: 1}, **asked.attributes,
        ))

    mapped = alone("attention", attend)
    out, lent, lse = mapped(asked.q, cache, asked.lengths, plan, alibi, sinks,
                            *_last(starts, scored))
    next_plan = None if plan is None else plan._replace(scratch=lent)
    return Attended(out, next_plan, lse if with_lse else None)


def _turns(rope: Optional[Rope], asked: _Asked, positions: Optional[Array],
           cos_sin: Optional[Array]) -> tuple[dict[str, Any], list[Array]]:
    """Returns the attributes and arguments of decode_attention that say how q and k are rotated."""
    if rope is None:
        for name, array in (("positions", positions), ("cos_sin_cache", cos_sin)):
            if array is not None:
                raise ValueError(f"{name} is given, but rope is None, so q and k are not rotated")
        return {"rope": 0}, []
    if positions is None and cos_sin is None:
        return angles_of(rope, asked.form.head_dim), []
    given = [None if x is None else jnp.asarray(x) for x in (positions, cos_sin)]
    form = asked.form
    count = asked.q.shape[0] if form.is_packed else form.rows * form.row_tokens
    placed(given[0], count, given[1], rope, form.head_dim)
    if given[1] is not None:
        rope = rope._replace(rotary_dim=given[1].shape[1])
    return angles_of(rope, form.head_dim), [x for x in given if x is not None]


def decode_attention(q: Array, k: Array, v: Array, cache: Cache, lengths: Array, *,
                     plan: Optional[Plan] = None, rope: Optional[Rope] = Rope(),
                     positions: Optional[Array] = None, cos_sin_cache: Optional[Array] = None,
                     logits: Logits = Logits(), alibi: Optional[Array] = None,
                     sinks: Optional[Array] = None, layout: str = "nhd", with_lse: bool = False,
                     deterministic: bool = False, query_start_loc: Optional[Array] = None,
                     row_tokens: int = 0, score: Optional[Variant] = None,
                     score_arrays: Optional[Mapping[str, Array]] = None,
                     mask: Optional[Masked] = None) -> Decoded:
    """Does apply_rope at lengths - 1, append_kv and attention in one call. With rope=None it does
    not rotate q and k. positions, int32 or int64 with one number for each token, replace lengths -
    1. cos_sin_cache, float32 [positions, rotary_dim], holds the cosines of each position and then
    its sines; of `rope`, only interleaved and rotary_dim then count. query_start_loc, row_tokens,
    score, score_arrays and mask are as in attention."""
    starts = starts_of(query_start_loc, row_tokens)
    scored = _score_of(score, mask, score_arrays)
    asked = _ask(q, cache, lengths, plan, logits, alibi, sinks, layout, with_lse, deterministic,
                 starts, scored)
    form, (angles, places) = asked.form, _turns(rope, asked, positions, cos_sin_cache)
    last = _last(starts, scored)
    if last:  # they follow positions and cos_sin_cache, so absent ones need stand-ins
        places += (2 - len(places)) * [or_absent(None, 1)]
    for name, array in (("k", k), ("v", v)):
        shaped(name, typed(name, array, [str(asked.q.dtype)]), *asked.q.shape[:-2], form.kv_heads,
               form.head_dim)

    def decode(q: Array, k: Array, v: Array, cache: Cache, lengths: Array, plan: Optional[Plan],
               alibi: Optional[Array], sinks: Optional[Array], *places: Array) -> Any:
        aliases = {0: 1, 1: 2, 3: 3, 4: 4, **({} if plan is None else {8: 5})}
        # If q or k is a slice, XLA would otherwise pass the whole array and another result buffer.
        q, k = jax.lax.optimization_barrier((q, k))
        got = custom_call(
            "decode_attention", [*like(q, q, k, cache.k, cache.v), asked.scratch, asked.lse],
            q, k, v, cache.k, cache.v, lengths, *_options(cache, plan, alibi, sinks), *places,
            aliases=aliases, **angles, **asked.attributes,
        )
        return got[0], *got[3:]

    mapped = alone("decode_attention", decode)
    out, k_cache, v_cache, lent, lse = mapped(asked.q, k, v, cache, asked.lengths, plan, alibi,
                                              sinks, *places, *last)
    next_plan = None if plan is None else plan._replace(scratch=lent)
    grown = cache._replace(k=k_cache, v=v_cache)
    return Decoded(out, grown, next_plan, lse if with_lse else None)
