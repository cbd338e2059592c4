"""latent_operations.py: the operations of figraph.jax over latent caches (MLA).

Invariant: that of operations.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import jax
import jax.numpy as jnp

from .. import latents
from ..lent_plans import Plan
from ..operands import Array, Form, LatentCache, Logits, Rope, Starts
from .operations import Attended, Decoded, angles_of, given_of, needs_of, packed_of
from .targets import (alone, bytes_of, custom_call, latents_of, like, or_absent, real, starts_of,
                      whole)


class _Asked(NamedTuple):
    """The checked arguments of latent_attention."""

    q: Array
    cache: LatentCache
    lengths: Array
    form: Form
    attributes: dict[str, Any]
    outs: list[jax.ShapeDtypeStruct]  # out, scratch and lse


def _ask(q: Array, cache: LatentCache, lengths: Array, plan: Optional[Plan], logits: Logits,
         sinks: Optional[Array], with_lse: bool, deterministic: bool, starts: Starts,
         q_rope: Optional[Array]) -> _Asked:
    q, lengths, cache = jnp.asarray(q), jnp.asarray(lengths), latents_of(cache)
    form = latents.attended(q, cache, lengths, None if sinks is None else jnp.asarray(sinks),
                            starts, q_rope)
    made = Logits(real("logits.scale", logits.scale), real("logits.soft_cap", logits.soft_cap),
                  whole("logits.window", logits.window))
    latents.sound_logits(made)
    _, scratch = needs_of(q.dtype, q.shape[-2], form, made.window, plan, deterministic)
    attributes = dict(window_left=made.window - 1, sm_scale=made.scale,
                      deterministic=int(deterministic), **packed_of(form))
    outs = [jax.ShapeDtypeStruct((*q.shape[:-1], latents.LATENT_DIM), q.dtype), bytes_of(scratch),
            jax.ShapeDtypeStruct(q.shape[:-1] if with_lse else (0, 0), jnp.float32)]
    return _Asked(q, cache, lengths, form, attributes, outs)


def _options(cache: LatentCache, plan: Optional[Plan], sinks: Optional[Array]) -> list[Array]:
    """Returns the last arguments of a target, beginning with the page table."""
    none = jnp.zeros(0, jnp.uint8)
    lent = [none, none] if plan is None else [plan.plan, plan.scratch]
    return [or_absent(cache.page_table, 2), *lent, or_absent(sinks, 1)]


def _last(starts: tuple[Array, ...], q_rope: Optional[Array]) -> tuple[Array, ...]:
    """Returns the last arguments of a target, from query_start_loc on. starts: see given_of."""
    return starts if q_rope is None else (*(starts or (or_absent(None, 1),)), q_rope)


def latent_attention(q: Array, cache: LatentCache, lengths: Array, *, plan: Optional[Plan] = None,
                     logits: Logits, sinks: Optional[Array] = None, with_lse: bool = False,
                     deterministic: bool = False, query_start_loc: Optional[Array] = None,
                     row_tokens: int = 0, q_rope: Optional[Array] = None) -> Attended:
    """Returns the attention of q, [rows, heads, 576] or [rows, tokens, heads, 576], over the first
    lengths[row] tokens of each row's latent cache: [..., heads, 512]. heads is a multiple of 8, at
    most 128. If q has only the first 512 values of each head, q_rope has the last 64: [rows, heads,
    64] or [rows, tokens, heads, 64]. logits.scale must be given, and there is no soft cap. The
    other arguments are as in attention."""
    starts = starts_of(query_start_loc, row_tokens)
    ends = None if q_rope is None else jnp.asarray(q_rope)
    asked = _ask(q, cache, lengths, plan, logits, sinks, with_lse, deterministic, starts, ends)

    def attend(q: Array, ends: Optional[Array], cache: LatentCache, lengths: Array,
               plan: Optional[Plan], sinks: Optional[Array], *given: Array) -> Any:
        return tuple(custom_call(
            "latent_attention", asked.outs, q, cache.latents, lengths,
            *_options(cache, plan, sinks), *_last(given, ends),
            aliases=None if plan is None else {5: 1}, **asked.attributes,
        ))

    mapped = alone("latent_attention", attend)
    out, lent, lse = mapped(asked.q, ends, asked.cache, asked.lengths, plan, sinks,
                            *given_of(starts))
    next_plan = None if plan is None else plan._replace(scratch=lent)
    return Attended(out, next_plan, lse if with_lse else None)


def latent_decode(q: Array, latent: Array, cache: LatentCache, lengths: Array, *,
                  plan: Optional[Plan] = None, rope: Rope = Rope(),
                  positions: Optional[Array] = None, cos_sin_cache: Optional[Array] = None,
                  norm: Optional[Array] = None, norm_epsilon: float = 1e-6, logits: Logits,
                  sinks: Optional[Array] = None, with_lse: bool = False,
                  deterministic: bool = False, query_start_loc: Optional[Array] = None,
                  row_tokens: int = 0, q_rope: Optional[Array] = None) -> Decoded:
    """Does the decode step of a latent cache in one call: rotates the last 64 values of each head
    of q and of each new token, latent [rows, 576] or [rows, tokens, 576], by the token's position,
    lengths - 1; appends the token, in place if the cache is donated; and computes latent_attention.
    norm, [512], is the weight of an RMSNorm over the first 512 values of each new token; None means
    that there is none. positions and cos_sin_cache, float32 [positions, 64], are as in
    decode_attention. q_rope, the last 64 values of each head of q, is as in latent_attention."""
    starts = starts_of(query_start_loc, row_tokens)
    ends = None if q_rope is None else jnp.asarray(q_rope)
    asked = _ask(q, cache, lengths, plan, logits, sinks, with_lse, deterministic, starts, ends)
    new = [None if x is None else jnp.asarray(x) for x in (norm, positions, cos_sin_cache)]
    latent = jnp.asarray(latent)
    latents.appended(latent, new[0], asked.q)
    turns = angles_of(rope, latents.ROPE_DIM)
    latents.turned(new[1], new[2], rope, asked.q, asked.form)
    turns["rotary_dim"] = latents.ROPE_DIM
    epsilon = real("norm_epsilon", norm_epsilon)
    if norm is not None and not epsilon > 0:
        raise ValueError(f"norm_epsilon is {epsilon}, it must be above 0")

    def decode(q: Array, ends: Optional[Array], latent: Array, cache: LatentCache, lengths: Array,
               plan: Optional[Plan], sinks: Optional[Array], new: list[Optional[Array]],
               *given: Array) -> Any:
        # The call rotates an array in place. If that is a slice, XLA would otherwise pass the whole
        # array and another result buffer.
        if ends is None:
            q = rotated = jax.lax.optimization_barrier(q)
        else:
            ends = rotated = jax.lax.optimization_barrier(ends)
        inputs = [q, latent, cache.latents, lengths, *_options(cache, plan, sinks),
                  *(or_absent(x, 1) for x in new), *_last(given, ends)]
        place = 0 if ends is None else len(inputs) - 1
        out, scratch, lse = asked.outs
        got = custom_call(
            "latent_decode", [out, *like(rotated, cache.latents), scratch, lse], *inputs,
            aliases={place: 1, 2: 2, **({} if plan is None else {6: 3})},
            norm_epsilon=0.0 if new[0] is None else epsilon, **turns, **asked.attributes,
        )
        return got[0], *got[2:]

    mapped = alone("latent_decode", decode)
    out, grown, lent, lse = mapped(asked.q, ends, latent, asked.cache, asked.lengths, plan, sinks,
                                   new, *given_of(starts))
    next_plan = None if plan is None else plan._replace(scratch=lent)
    return Decoded(out, asked.cache._replace(latents=grown), next_plan, lse if with_lse else None)
