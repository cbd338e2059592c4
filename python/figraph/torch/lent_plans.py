"""lent_plans.py: a plan that knows for which capacity and window it was made.

The kernels cannot tell: plans for several capacities have the same size, and a plan says which rows
are idle, so under the plan of a larger cache an append writes behind a smaller one. Invariant: this
file reads shapes but no contents, so that torch.compile can trace it.
"""

from __future__ import annotations

from typing import Any, Optional, Union

from torch import Tensor

from .. import operands
from ..operands import LAYOUTS, Cache, LatentCache


class Plan(operands.Plan):
    """How the rows of a step are cut, and scratch memory that its layers use in turn. A plan of
    plan() is refused by a call with another capacity or window; a Plan that you make yourself from
    two tensors is not."""

    made_for: Optional[tuple[int, int]] = None  # capacity of a row in tokens, and window


def capacity(cache: Union[Cache, LatentCache], layout: str = "nhd") -> Optional[int]:
    """Returns the most tokens of a row, or None if a shape is wrong, which the operator refuses."""
    held: Any = cache.latents if isinstance(cache, LatentCache) else cache.k
    table, rank = cache.page_table, 3 if isinstance(cache, LatentCache) else 4
    if not isinstance(held, Tensor) or held.ndim != rank:
        return None
    tokens = held.shape[1 if LAYOUTS.get(layout) == LAYOUTS["nhd"] else 2]
    if table is None:
        return tokens
    return tokens * table.shape[1] if isinstance(table, Tensor) and table.ndim == 2 else None


def _seen(tokens: int, window: int) -> int:
    """Returns the window, or 0 if it hides no token."""
    return window if 0 < window < tokens else 0


def made(tensors: tuple[Tensor, Tensor], tokens: int, window: int) -> Plan:
    """Returns the plan of these tensors, which was made for rows of up to `tokens` tokens."""
    plan = Plan(*tensors)
    plan.made_for = tokens, _seen(tokens, window)
    return plan


def refuse_other(plan: Optional[operands.Plan], tokens: Optional[int],
                 window: Optional[int] = None) -> None:
    """Raises if the plan was made for another capacity or window. window: None for a call that has
    none."""
    if not isinstance(plan, Plan) or plan.made_for is None or tokens is None:
        return
    planned, hidden = plan.made_for
    if planned != tokens:
        raise ValueError(f"plan was made for rows of up to {planned} tokens, the cache of this "
                         f"call holds {tokens}")
    if window is not None and hidden != _seen(tokens, window):
        raise ValueError(f"plan was made for window {hidden}, this call has {window}")
