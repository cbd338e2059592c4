"""schemas.py: defines an operator of the namespace figraph from its schema.

Invariant: every operator refuses tensors that require a gradient, which it would drop, and tensors
that are not on the device of the first tensor. Both messages call the tensor by its argument name
in figraph.torch.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterable, Optional

import torch
from torch import Tensor

from .gradients import refuse_gradients

library = torch.library.Library("figraph", "DEF")

# Arguments that callers pass as fields of a tuple.
FIELDS = {
    "k_cache": "cache.k",
    "v_cache": "cache.v",
    "latents": "cache.latents",
    "page_table": "cache.page_table",
    "k_scale": "cache.k_scale",
    "v_scale": "cache.v_scale",
    "plan": "plan.plan",
    "scratch": "plan.scratch",
}


def _tensors(schema: str) -> tuple[tuple[int, str], ...]:
    """Returns, for each argument that is a tensor, its index and the name that callers know."""
    listed = schema.partition(" -> ")[0].partition("(")[2].rpartition(")")[0]
    arguments = [one.split() for one in re.sub(r"\([^)]*\)", "", listed).split(",")]
    return tuple((n, FIELDS.get(name, name)) for n, (kind, name) in enumerate(arguments)
                 if kind.startswith("Tensor"))


def _each(argument: Any) -> Iterable[Optional[Tensor]]:
    """Yields the tensors of an argument that is one tensor or a list."""
    return argument if isinstance(argument, (list, tuple)) else (argument,)


def refuse_elsewhere(named: Iterable[tuple[str, Optional[Tensor]]]) -> None:
    """Raises if a tensor is not on the device of the first one."""
    device = first = None
    for name, x in named:
        if x is None:
            continue
        if device is None:
            first, device = name, x.device
        elif x.device != device:
            raise ValueError(f"{name} is on {x.device}, {first} is on {device}")


def define(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Defines an operator: `run` implements it for CPU and CUDA tensors, `fake` for shapes
    alone."""
    operator, tensors = schema.partition("(")[0], _tensors(schema)

    def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*arguments: Any) -> Any:
            named = [(name, one) for n, name in tensors for one in _each(arguments[n])]
            if torch.is_grad_enabled():
                refuse_gradients(operator, named)
            refuse_elsewhere(named)
            return function(*arguments)

        return checked

    library.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    for device in ("CPU", "CUDA"):
        library.impl(operator, guarded(run), device)
    torch.library.register_fake(f"figraph::{operator}", guarded(fake), lib=library)
