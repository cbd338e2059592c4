"""latent_operators.py: defines the custom operators over a latent cache (MLA).

An operator consists of the same three parts as in operators.py, and the same invariant holds.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from torch import Tensor

from .. import latents, operands
from ..operands import Form, LatentCache, Logits, Rope, Starts
from .calls import call
from .operators import ANGLES, has_steps, side_by_side, without_gaps
from .results import Checked, bytes_of, define_both, lent

CACHE = ("Tensor{} latents, Tensor lengths, Tensor? page_table, Tensor? query_start_loc, "
         "int row_tokens")
READ, GROWN = CACHE.format(""), CACHE.format("(c!)")
ATTENTION = ("Tensor? plan, Tensor(e!)? scratch, Tensor? sinks, int window, float soft_cap, "
             "float sm_scale, bool deterministic")
APPENDED = f"Tensor? norm, float norm_epsilon, {ANGLES}, Tensor? positions, Tensor? cos_sin_cache"


class Queries(NamedTuple):
    """q, or its first 512 and its last 64 values."""

    q: Tensor
    q_rope: Optional[Tensor]


class Held(NamedTuple):
    """The arguments of the schema part CACHE."""

    latents: Tensor
    lengths: Tensor
    page_table: Optional[Tensor]
    query_start_loc: Optional[Tensor]
    row_tokens: int


class Asked(NamedTuple):
    """The arguments of the schema part ATTENTION."""

    plan: Optional[Tensor]
    scratch: Optional[Tensor]
    sinks: Optional[Tensor]
    window: int
    soft_cap: float
    sm_scale: float
    deterministic: bool


class Appended(NamedTuple):
    """The arguments of the schema part APPENDED, and the new tokens."""

    latent: Tensor
    norm: Optional[Tensor]
    norm_epsilon: float
    rope: Rope
    positions: Optional[Tensor]
    cos_sin: Optional[Tensor]

    def check(self, q: Tensor, form: Form) -> None:
        """Raises if an argument is wrong."""
        latents.appended(self.latent, self.norm, q)
        side_by_side("latent", self.latent)
        if self.norm is not None:
            without_gaps("norm", self.norm)
            if not self.norm_epsilon > 0:
                raise ValueError(f"norm_epsilon is {self.norm_epsilon}, it must be above 0")
        latents.turned(self.positions, self.cos_sin, self.rope, q, form)


class LatentAttention(NamedTuple):
    """A call of latent_attention or latent_decode."""

    queries: Queries
    held: Held
    asked: Asked
    appended: Optional[Appended]

    def first(self) -> Tensor:
        """See results.Call."""
        return self.queries.q

    def width(self) -> int:
        """See results.Call."""
        return latents.LATENT_DIM

    def check(self) -> Checked:
        """See results.Call."""
        (q, q_rope), held, asked = self.queries, self.held, self.asked
        cache = LatentCache(held.latents, held.page_table)
        starts = Starts(held.query_start_loc, held.row_tokens)
        form = latents.attended(q, cache, held.lengths, asked.sinks, starts, q_rope)
        side_by_side("q", q)
        if q_rope is not None:
            side_by_side("q_rope", q_rope)
        side_by_side("cache.latents", held.latents)
        has_steps("cache.latents", held.latents)
        latents.sound_logits(Logits(asked.sm_scale, asked.soft_cap, asked.window))
        needs = operands.scratch_bytes(q.dtype, q.shape[-2], form, asked.window,
                                       asked.deterministic)
        lent(asked.plan, asked.scratch, needs, form)
        if self.appended is not None:
            self.appended.check(q, form)
        return Checked(form, needs[1])

    def run(self, checked: Checked, out: Tensor, lse: Optional[Tensor]) -> None:
        """See results.Call."""
        (q, q_rope), held, asked, new = self.queries, self.held, self.asked, self.appended
        form, scratch = checked.form, asked.scratch
        if scratch is None:
            scratch = bytes_of(checked.scratch_bytes, q)
        cache = (held.latents, held.lengths, held.page_table, asked.plan, asked.sinks)
        logits = (asked.window - 1, asked.sm_scale, asked.deterministic)
        packed = (held.query_start_loc, int(form.row_tokens) if form.is_packed else 0)
        if new is None:
            call("latent_attention", q, *cache, out, scratch, lse, *logits, *packed, q_rope)
            return
        rope = new.rope._replace(rotary_dim=latents.ROPE_DIM)
        epsilon = 0.0 if new.norm is None else new.norm_epsilon
        call("latent_decode", q, new.latent, *cache, new.norm, out, scratch, lse, *rope, epsilon,
             *logits, new.positions, new.cos_sin, *packed, q_rope)


HELD, ASKED = len(Held._fields), len(Asked._fields)


def _attention_call(q: Tensor, q_rope: Optional[Tensor], *rest: Any) -> LatentAttention:
    return LatentAttention(Queries(q, q_rope), Held(*rest[:HELD]),
                           Asked(*rest[HELD : HELD + ASKED]), None)


def _decode_call(q: Tensor, q_rope: Optional[Tensor], latent: Tensor,
                 *rest: Any) -> LatentAttention:
    norm, epsilon, *turns = rest[HELD + ASKED :]
    rope = Rope(*turns[: len(Rope._fields)])
    new = Appended(latent, norm, epsilon, rope, *turns[len(Rope._fields) :])
    return LatentAttention(Queries(q, q_rope), Held(*rest[:HELD]),
                           Asked(*rest[HELD : HELD + ASKED]), new)


define_both("latent_attention", f"Tensor q, Tensor? q_rope, {READ}, {ATTENTION}", _attention_call)
define_both("latent_decode", f"Tensor(a!) q, Tensor(b!)? q_rope, Tensor latent, {GROWN}, "
            f"{ATTENTION}, {APPENDED}", _decode_call)
