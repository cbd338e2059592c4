"""lent_plans.py: a plan that knows for which attention it was made.

The kernels cannot tell: plans for different shapes may have the same size, and a plan says which
rows are idle, so under the plan of a larger cache an append writes behind a smaller one. Invariant:
this file reads shapes but no contents, so that torch.compile and JAX can trace it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Union

from . import operands
from .latents import KEY_DIM, LATENT_DIM
from .operands import CACHES, LAYOUTS, Cache, Form, LatentCache, Starts, dtype_name


class MadeFor(NamedTuple):
    """Everything that a plan depends on, apart from its rows and their lengths."""

    dtype: str  # of q
    q_heads: int
    window: int  # 0 if it hides no token
    deterministic: bool
    kv_heads: int
    head_dim: int
    page_size: int  # 0 means a dense cache
    kv_dtype: str
    latent_dim: int
    row_tokens: int
    kv_length: int  # the most tokens of a row


class Plan(operands.Plan):
    """How the rows of a step are cut, and scratch memory that its layers use in turn. A plan of
    plan() is refused by a call for which it was not made; a Plan that you make yourself from two
    arrays is not."""

    made_for: Optional[MadeFor] = None

    def _replace(self, **changes: Any) -> Plan:
        return of(super()._replace(**changes), self.made_for)


def of(arrays: Any, made_for: Optional[MadeFor]) -> Plan:
    """Returns the plan of two arrays."""
    plan = Plan(*arrays)
    plan.made_for = made_for
    return plan


def made_for(dtype: Any, q_heads: int, window: int, deterministic: bool, form: Form) -> MadeFor:
    """Returns what the plan of an attention depends on."""
    hides = 0 < window < form.kv_length
    return MadeFor(dtype_name(dtype), q_heads, window if hides else 0, bool(deterministic),
                   form.kv_heads, form.head_dim, form.page_size, form.kv_dtype, form.latent_dim,
                   form.row_tokens, form.kv_length)


def refuse_other(plan: Optional[operands.Plan], asked: Optional[MadeFor]) -> None:
    """Raises if the plan was made for another attention than the one that is asked for."""
    if plan is None:
        return
    operands.of_kind("plan", plan, operands.Plan)
    planned = getattr(plan, "made_for", None)
    if planned is None or asked is None:
        return
    if planned.kv_length != asked.kv_length:
        raise ValueError(f"plan was made for rows of up to {planned.kv_length} tokens, the cache "
                         f"of this call holds {asked.kv_length}")
    for name, one, other in zip(MadeFor._fields, planned, asked):
        if other is not None and one != other:
            raise ValueError(f"plan was made for {name} {one}, this call has {other}")


def of_call(first: Any, cache: Union[Cache, LatentCache], starts: Any, window: int,
            deterministic: bool, layout: str = "nhd", kv_dtype: Any = None) -> Optional[MadeFor]:
    """Returns what a call asks for whose first array is q; or None if a shape or a dtype is wrong,
    which the operator refuses."""
    form = _form_of(first, cache, layout, operands.kv_name(kv_dtype), Starts(*starts))
    return None if form is None else made_for(first.dtype, first.shape[-2], window, deterministic,
                                              form)


def of_append(k: Any, cache: Cache, starts: Any, layout: str, kv_dtype: Any) -> Optional[MadeFor]:
    """Returns what an append asks for, which reads only the rows that are idle; or None, as
    of_call."""
    form = _form_of(k, cache, layout, operands.kv_name(kv_dtype), Starts(*starts))
    return None if form is None else appended(form.kv_length)


def appended(kv_length: int) -> MadeFor:
    """Returns what an append asks for: nothing but the capacity."""
    others: Any = (None,) * (len(MadeFor._fields) - 1)
    return MadeFor(*others, kv_length)


def _form_of(first: Any, cache: Union[Cache, LatentCache], layout: str, kv_dtype: Optional[str],
            starts: Starts) -> Optional[Form]:
    """Returns the form of a call whose first array is q, or the k of an append; or None if a shape
    or a dtype is wrong, which the operator refuses."""
    is_latent = isinstance(cache, LatentCache)
    held, table = cache[0], cache.page_table
    ranks = [getattr(x, "ndim", None) for x in (held, first, table)]
    if ranks[0] != (3 if is_latent else 4) or ranks[1] not in (3, 4):
        return None
    if table is not None and ranks[2] != 2:
        return None
    is_codes = is_latent and dtype_name(held.dtype) == "uint8"
    kind = CACHES.get(kv_dtype or ("float8_e4m3fn" if is_codes else dtype_name(held.dtype)))
    if kind is None:
        return None
    tokens, kv_heads = (held.shape[1], 1 if is_latent else held.shape[2])
    if layout in LAYOUTS and LAYOUTS[layout] == LAYOUTS["hnd"] and not is_latent:
        tokens, kv_heads = kv_heads, tokens
    kv_length = tokens if table is None else tokens * table.shape[1]
    form = Form(0, kv_heads, KEY_DIM if is_latent else held.shape[3],
                0 if table is None else tokens, kv_length, kind,
                starts.row_tokens if starts.query_start_loc is not None else
                first.shape[1] if ranks[1] == 4 else 1, latent_dim=LATENT_DIM if is_latent else 0)
    return operands.packed_form(form, starts, 0)
