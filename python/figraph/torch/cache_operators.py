"""cache_operators.py: defines the custom operators that read or grow a cache.

An operator consists of the same three parts as in operators.py, and the same invariant holds. The
arguments in a schema have the order of the functions in tools/jax/TARGETS.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .. import ffi, operands
from ..operands import ACTIVATIONS, CACHES, Cache, Form, Logits, Rope, Starts, dtype_name
from ..scores import arrays_of
from ..specs import DTYPES
from .calls import call
from .operators import ANGLES, has_steps, side_by_side, without_gaps
from .results import Checked, bytes_of, define_both, lent
from .schemas import define

CACHE = ("Tensor{} k_cache, Tensor{} v_cache, Tensor lengths, Tensor? page_table, "
         "Tensor? k_scale, Tensor? v_scale, int layout, ScalarType? kv_dtype, "
         "Tensor? query_start_loc, int row_tokens")
READ, GROWN = CACHE.format("", ""), CACHE.format("(c!)", "(d!)")
ATTENTION = ("Tensor? plan, Tensor(e!)? scratch, Tensor? alibi, Tensor? sinks, int window, "
             "float soft_cap, float sm_scale, bool deterministic")
TURNS = f"{ANGLES}, bool plain, Tensor? positions, Tensor? cos_sin_cache"
SCORE = "str score, Tensor[] score_arrays"
SCORED = 2  # arguments of SCORE
INT32_MAX = 2**31 - 1


class Held(NamedTuple):
    """The arguments of the schema part CACHE."""

    k: Tensor
    v: Tensor
    lengths: Tensor
    page_table: Optional[Tensor]
    k_scale: Optional[Tensor]
    v_scale: Optional[Tensor]
    layout: int
    kv_dtype: Optional[torch.dtype]
    query_start_loc: Optional[Tensor] = None
    row_tokens: int = 0

    def starts(self) -> Starts:
        """Returns the index of each row's first query token."""
        return Starts(self.query_start_loc, self.row_tokens)

    def cache(self) -> Cache:
        """Returns the Cache that callers pass."""
        return Cache(self.k, self.v, self.page_table, self.k_scale, self.v_scale)

    def kind(self) -> Optional[str]:
        """Returns the numpy name of kv_dtype."""
        return operands.kv_name(self.kv_dtype)

    def sides(self) -> tuple[Tensor, Tensor]:
        """Returns k and v, as arrays of kv_dtype if they are bytes."""
        if self.kv_dtype is None or self.k.dtype != torch.uint8:
            return self.k, self.v
        return self.k.view(self.kv_dtype), self.v.view(self.kv_dtype)


HELD = len(Held._fields)


def _close(held: Held, *tensors: tuple[str, Tensor]) -> None:
    for name, tensor in (*tensors, ("cache.k", held.k), ("cache.v", held.v)):
        side_by_side(name, tensor)
    has_steps("cache.k", held.k)
    has_steps("cache.v", held.v)


def _queries(held: Held, form: Form) -> tuple[Optional[Tensor], int]:
    """Returns query_start_loc and row_tokens as the functions of tools/jax/TARGETS.md take them."""
    return held.query_start_loc, int(form.row_tokens) if form.is_packed else 0


# ---- Appending -----------------------------------------------------------------------------------


def _appended(k: Tensor, v: Tensor, held: Held, plan: Optional[Tensor]) -> Form:
    if plan is not None:
        operands.lent_plan(plan)
        without_gaps("plan.plan", plan)
    form = operands.appended(k, v, held.cache(), held.lengths, held.layout, held.kind(),
                             held.starts())
    _close(held, ("k", k), ("v", v))
    return form


def _append_fake(k: Tensor, v: Tensor, *rest: Any) -> None:
    _appended(k, v, Held(*rest[:HELD]), rest[HELD])


def _append(k: Tensor, v: Tensor, *rest: Any) -> None:
    held, plan = Held(*rest[:HELD]), rest[HELD]
    form = _appended(k, v, held, plan)
    scratch = None
    if plan is None:
        scratch = bytes_of(operands.scratch_bytes(k.dtype, 0, form, 0)[1], k)
    call("append_kv", k, v, *held.sides(), held.lengths, held.page_table, plan, held.k_scale,
         held.v_scale, scratch, held.layout, *_queries(held, form))


define(f"append_kv(Tensor k, Tensor v, {GROWN}, Tensor? plan) -> ()", _append, _append_fake)


def _written(k: Tensor, v: Tensor, held: Held) -> Form:
    """Checks the arguments of write_kv; the lengths of `held` are its slots."""
    form = operands.written(k, v, held.cache(), held.lengths, held.layout, held.kind())
    _close(held, ("k", k), ("v", v))
    return form


def _slotted(k_cache: Tensor, v_cache: Tensor, slots: Tensor, *rest: Any) -> Held:
    return Held(k_cache, v_cache, slots, None, *rest)


def _write_fake(k: Tensor, v: Tensor, *rest: Any) -> None:
    _written(k, v, _slotted(*rest))


def _write(k: Tensor, v: Tensor, *rest: Any) -> None:
    """Writes each token by an append to a sequence that has only one page, the page of the token's
    slot. An append skips sequences of length 0 and pages that the cache does not have."""
    held = _slotted(*rest)
    form = _written(k, v, held)
    if form.rows == 0:
        return
    slots, page = held.lengths, form.page_size
    pages = slots.div(page, rounding_mode="floor")
    lengths = (slots - pages * page + 1).mul_(slots >= 0).to(torch.int32)
    table = pages.clamp_(0, INT32_MAX).to(torch.int32)[:, None]
    scratch = bytes_of(operands.scratch_bytes(k.dtype, 0, form, 0)[1], k)
    call("append_kv", k, v, *held.sides(), lengths, table, None, held.k_scale, held.v_scale,
         scratch, held.layout)


define("write_kv(Tensor k, Tensor v, Tensor(c!) k_cache, Tensor(d!) v_cache, Tensor slots, "
       "Tensor? k_scale, Tensor? v_scale, int layout, ScalarType? kv_dtype) -> ()", _write,
       _write_fake)

# ---- Plans ---------------------------------------------------------------------------------------


def _plan_fake(lengths: Tensor, dtype: torch.dtype, q_heads: int, kv_heads: int, head_dim: int,
               page_size: int, kv_length: int, kv_dtype: torch.dtype, window: int, row_tokens: int,
               deterministic: bool, positions: Optional[Tensor],
               query_start_loc: Optional[Tensor], tokens: int,
               latent_dim: int = 0) -> tuple[Tensor, Tensor]:
    kind = CACHES[dtype_name(kv_dtype)]
    form = Form(lengths.shape[0], kv_heads, head_dim, page_size, kv_length, kind, row_tokens,
                latent_dim=latent_dim)
    operands.lengths_of(lengths, form.rows)
    if query_start_loc is not None:
        operands.started(Starts(query_start_loc), lengths)
        without_gaps("query_start_loc", query_start_loc)
    if tokens < 0 or (tokens > 0 and query_start_loc is None):
        raise ValueError(f"tokens is {tokens}, it must be 0 "
                         + ("without query_start_loc" if query_start_loc is None else "or more"))
    form = operands.packed_form(form, Starts(query_start_loc, row_tokens), tokens)
    if positions is not None:
        operands.typed("positions", positions, ["int32"])
        operands.shaped("positions", positions, form.rows, like="lengths")
    needs = operands.scratch_bytes(dtype, q_heads, form, window, deterministic)
    return bytes_of(needs[0], lengths), bytes_of(needs[1], lengths)


def _plan(lengths: Tensor, dtype: torch.dtype, *rest: Any) -> tuple[Tensor, Tensor]:
    numbers, (kv_dtype, window, *others) = rest[:5], rest[5:]
    outs = _plan_fake(lengths, dtype, *rest)
    call("plan", lengths, *outs, DTYPES[ACTIVATIONS[dtype_name(dtype)]],
         DTYPES[CACHES[dtype_name(kv_dtype)]], *numbers, window - 1, *others)
    return outs


define("plan(Tensor lengths, ScalarType dtype, int q_heads, int kv_heads, int head_dim, "
       "int page_size, int kv_length, ScalarType kv_dtype, int window, int row_tokens, "
       "bool deterministic, Tensor? positions, Tensor? query_start_loc, int tokens, "
       "int latent_dim=0) -> (Tensor, Tensor)", _plan, _plan_fake)

# ---- Attention -----------------------------------------------------------------------------------


class Asked(NamedTuple):
    """The arguments of the schema part ATTENTION."""

    plan: Optional[Tensor]
    scratch: Optional[Tensor]
    alibi: Optional[Tensor]
    sinks: Optional[Tensor]
    window: int
    soft_cap: float
    sm_scale: float
    deterministic: bool


ASKED = len(Asked._fields)


class Turns(NamedTuple):
    """The arguments of the schema part TURNS."""

    rope: Rope
    plain: bool
    positions: Optional[Tensor]
    cos_sin: Optional[Tensor]


class Scored(NamedTuple):
    """The arguments of the schema part SCORE."""

    text: str  # in the normal form
    arrays: list[Tensor]


class Attention(NamedTuple):
    """A call of attention or decode_attention, with or without a score."""

    given: tuple[Tensor, ...]  # q, or q, k and v
    held: Held
    asked: Asked
    turns: Optional[Turns]
    scored: Optional[Scored] = None

    def first(self) -> Tensor:
        """See results.Call."""
        return self.given[0]

    def width(self) -> int:
        """See results.Call."""
        return self.given[0].shape[-1]

    def check(self) -> Checked:
        """See results.Call."""
        q, held, asked = self.given[0], self.held, self.asked
        form = operands.attended(q, held.cache(), held.lengths, held.layout, asked.alibi,
                                 asked.sinks, held.kind(), held.starts())
        _close(held, ("q", q))
        logits = Logits(asked.sm_scale, asked.soft_cap, asked.window)
        operands.sound_logits(logits)
        number = self._check_score(logits)
        # A score may run under a plan only if it runs as attention without a score.
        needs = operands.scratch_bytes(q.dtype, q.shape[-2], form, asked.window,
                                       asked.deterministic, 0 if asked.plan is not None else number)
        lent(asked.plan, asked.scratch, needs, form)
        if self.turns is not None:
            self._check_turns(self.turns, form)
        return Checked(form, needs[1])

    def _check_score(self, logits: Logits) -> int:
        """Checks the score. Returns its number, or 0 if there is none."""
        if self.scored is None:
            return 0
        number = operands.scored(*self.scored, logits, self.asked.alibi)
        for of, array in zip(arrays_of(self.scored.text), self.scored.arrays):
            without_gaps(of.name, array)
        return number

    def _score(self) -> tuple[Any, ...]:
        """Returns the score and its arrays as the functions of tools/jax/TARGETS.md take them."""
        if self.scored is None:
            return ()
        return ffi.score_number(self.scored.text), *self.scored.arrays

    def _check_turns(self, turns: Turns, form: Form) -> None:
        q, k, v = self.given
        for name, one in (("k", k), ("v", v)):
            operands.tokens(name, one, "q", q, form)
            side_by_side(name, one)
        if turns.plain:
            return
        count = q.shape[0] if form.is_packed else form.rows * form.row_tokens
        operands.placed(turns.positions, count, turns.cos_sin, turns.rope, int(form.head_dim))
        operands.sound_rope(int(form.head_dim), *turns.rope)

    def run(self, checked: Checked, out: Tensor, lse: Optional[Tensor]) -> None:
        """See results.Call."""
        held, asked, turns, form = self.held, self.asked, self.turns, checked.form
        scratch = asked.scratch
        if scratch is None:
            scratch = bytes_of(checked.scratch_bytes, self.given[0])
        arguments = (*held.sides(), held.lengths, held.page_table, asked.plan, asked.alibi,
                     asked.sinks, held.k_scale, held.v_scale, out, scratch, lse)
        logits = (held.layout, asked.window - 1, asked.soft_cap, asked.sm_scale,
                  asked.deterministic)
        if turns is None:
            call("attention", *self.given, *arguments, *logits, *_queries(held, form),
                 *self._score())
            return
        rope = turns.rope._replace(rotary_dim=0) if turns.plain else turns.rope
        call("decode_attention", *self.given, *arguments, *rope, *logits, turns.positions,
             turns.cos_sin, *_queries(held, form), *self._score())


def _attention_call(q: Tensor, *rest: Any) -> Attention:
    return Attention((q,), Held(*rest[:HELD]), Asked(*rest[HELD : HELD + ASKED]), None)


def _scored_call(*given: Any) -> Attention:
    return _attention_call(*given[:-SCORED])._replace(scored=Scored(*given[-SCORED:]))


def _scored_decode_call(*given: Any) -> Attention:
    return _decode_call(*given[:-SCORED])._replace(scored=Scored(*given[-SCORED:]))


def _decode_call(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Attention:
    angles = rest[HELD + ASKED :]
    turns = Turns(Rope(*angles[: len(Rope._fields)]), *angles[len(Rope._fields) :])
    return Attention((q, k, v), Held(*rest[:HELD]), Asked(*rest[HELD : HELD + ASKED]), turns)


define_both("attention", f"Tensor q, {READ}, {ATTENTION}", _attention_call)
define_both("decode_attention",
            f"Tensor(a!) q, Tensor(b!) k, Tensor v, {GROWN}, {ATTENTION}, {TURNS}", _decode_call)
define_both("scored_attention", f"Tensor q, {READ}, {ATTENTION}, {SCORE}", _scored_call)
define_both("scored_decode_attention",
            f"Tensor(a!) q, Tensor(b!) k, Tensor v, {GROWN}, {ATTENTION}, {TURNS}, {SCORE}",
            _scored_decode_call)
