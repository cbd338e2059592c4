"""results.py: defines the two operators of an attention: one returns new results, and the other
writes into tensors of the caller.

Invariant: out has q's dtype and lse is float32. Both have the dims of q, but out's last dim is the
attention's own, and lse has no such dim.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Protocol

import torch
from torch import Tensor

from .. import operands
from ..operands import Form, Plan
from .operators import has_steps, result, side_by_side, without_gaps
from .schemas import define

NEW, GIVEN = "bool with_lse", "Tensor(o!) out, Tensor(l!)? lse"


class Checked(NamedTuple):
    """The properties of a call that passed its checks: the form of its rows, and the bytes of its
    scratch."""

    form: Form
    scratch_bytes: int


class Call(Protocol):
    """The arguments of an attention, apart from those for its results."""

    def first(self) -> Tensor:
        """Returns q."""

    def width(self) -> int:
        """Returns the last dim of out."""

    def check(self) -> Checked:
        """Raises if an argument is wrong."""

    def run(self, checked: Checked, out: Tensor, lse: Optional[Tensor]) -> None:
        """Computes the results."""


def bytes_of(count: int, beside: Tensor) -> Tensor:
    """Makes an array of bytes on the device of another tensor."""
    return beside.new_empty(count, dtype=torch.uint8)


def lent(plan: Optional[Tensor], scratch: Optional[Tensor], needs: tuple[int, int],
         form: Form) -> None:
    """Checks the plan of a call and its scratch."""
    if (plan is None) != (scratch is None):
        raise ValueError("plan and scratch: one is given, the other is not")
    if plan is not None and scratch is not None:
        operands.planned(Plan(plan, scratch), needs, form)
        without_gaps("plan.plan", plan)
        without_gaps("plan.scratch", scratch)


def _new(of: Call, with_lse: bool) -> tuple[Tensor, Tensor]:
    """Makes out and lse; lse is empty if the caller did not ask for it."""
    q = of.first()
    sums = q.shape[:-1] if with_lse else (0, 0)
    return q.new_empty((*q.shape[:-1], of.width())), q.new_empty(sums, dtype=torch.float32)


def _check_results(of: Call, out: Tensor, lse: Optional[Tensor]) -> None:
    q = of.first()
    result("out", out, "q", q, (*q.shape[:-1], of.width()))
    side_by_side("out", out)
    has_steps("out", out)
    if lse is None:
        return
    operands.typed("lse", lse, ["float32"])
    operands.shaped("lse", lse, *q.shape[:-1], like="q")
    without_gaps("lse", lse)


def define_both(name: str, schema: str, call_of: Any) -> None:
    """Defines both operators. call_of makes a Call from the arguments in the schema."""

    def fake(*arguments: Any) -> tuple[Tensor, Tensor]:
        of = call_of(*arguments[:-1])
        of.check()
        return _new(of, arguments[-1])

    def run(*arguments: Any) -> tuple[Tensor, Tensor]:
        of = call_of(*arguments[:-1])
        checked = of.check()
        outs = _new(of, arguments[-1])
        of.run(checked, *outs)
        return outs

    def fake_out(*arguments: Any) -> None:
        of = call_of(*arguments[:-2])
        of.check()
        _check_results(of, *arguments[-2:])

    def run_out(*arguments: Any) -> None:
        of = call_of(*arguments[:-2])
        checked = of.check()
        _check_results(of, *arguments[-2:])
        of.run(checked, *arguments[-2:])

    define(f"{name}({schema}, {NEW}) -> (Tensor, Tensor)", run, fake)
    define(f"{name}_out({schema}, {GIVEN}) -> ()", run_out, fake_out)
