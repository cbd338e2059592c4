"""prompt_operators.py: defines the operator for rows with any number of query tokens.

The host plans here, unlike in cache_operators.py: it reads the rows' lengths and numbers of query
tokens. One plan serves all layers of a step. fig_prompts (figraph_prompts.h) does the work, and
stays open for each shape. Invariant: a plan reaches the kernels only with the shape that it was
made for, since no kernel checks this.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple, Optional, Sequence, Union

import torch
from torch import Tensor

from .. import abi, operands
from ..arrays import CUDA, HOST
from ..integers import integer, packed
from ..operands import ACTIVATIONS, LAYOUTS, Cache, Logits, dtype_name, shaped, typed
from ..prompts import Prompts
from .operators import has_steps, result, side_by_side, without_gaps
from .schemas import define

HALVES = [name for name, short in ACTIVATIONS.items() if short in ("f16", "bf16")]
PLAIN = 0.0  # the scale and the soft cap of Prompts that only plan: no plan depends on them

Numbers = Union[Sequence[int], Tensor]


class PromptShape(NamedTuple):
    """Everything that a plan of prompts depends on, apart from its rows."""

    q_heads: int
    kv_heads: int
    head_dim: int
    page_size: int
    window: int
    deterministic: bool


class PromptPlan(NamedTuple):
    """A plan for the rows of a step with prompts, and scratch memory that its layers use in
    turn."""

    plan: Tensor
    scratch: Tensor
    rows: int
    tokens: int  # the query tokens up to the end of the last row
    columns: int  # the width of the page table that the plan was made for
    shape: PromptShape


@functools.lru_cache(maxsize=256)
def _opened(shape: PromptShape, dtype: str, scale: float, soft_cap: float,
            device: torch.device) -> Prompts:
    return Prompts(dtype=dtype, q_heads=shape.q_heads, kv_heads=shape.kv_heads,
                   head_dim=shape.head_dim, page_size=shape.page_size, window=shape.window,
                   sm_scale=scale, soft_cap=soft_cap, deterministic=shape.deterministic,
                   device=CUDA if device.type == "cuda" else HOST, ordinal=device.index or 0)


# ---- Plans ---------------------------------------------------------------------------------------


def refuse_others(cache: Cache) -> None:
    """Raises unless the cache is paged and without scales."""
    if cache.page_table is None:
        raise ValueError("cache.page_table is None, prompts take a paged cache")
    for name, scale in (("k", cache.k_scale), ("v", cache.v_scale)):
        if scale is not None:
            raise ValueError(f"cache.{name}_scale is given, prompts take no 8-bit cache")


def shape_of(dtype: str, q_heads: int, cache: Cache, layout: int, window: int,
             deterministic: bool) -> PromptShape:
    """Checks a cache for q of this dtype, and returns the shape of the attention over it."""
    for name, side in (("cache.k", cache.k), ("cache.v", cache.v)):
        typed(name, side, [dtype])
    form = operands.form_of(dtype, 0, cache, layout)
    return PromptShape(int(q_heads), int(form.kv_heads), int(form.head_dim), int(form.page_size),
                       int(window), bool(deterministic))


def _listed(name: str, numbers: Numbers) -> Any:
    """Returns the numbers as an array of int32, which the host reads."""
    if isinstance(numbers, Tensor):
        if numbers.device.type != "cpu":
            raise ValueError(f"{name} is on {numbers.device}, the host makes the plan of prompts, "
                             "so it must be on the CPU")
        shaped(name, numbers, None)
    return packed(name, numbers)


def _sent(plan: memoryview, device: torch.device) -> Tensor:
    """Copies a plan to the device, in the order of the current stream. The host does not wait,
    because torch keeps pinned memory until the copies from it have ended."""
    host = torch.frombuffer(plan, dtype=torch.uint8)
    if device.type != "cuda":
        made = torch.empty(host.shape, dtype=torch.uint8, device=device)
        return made.copy_(host)
    with torch.cuda.device(device):
        is_captured = torch.cuda.is_current_stream_capturing()
    if is_captured:
        raise RuntimeError("plan_prompts: the stream captures a graph, which would repeat the "
                           "copy of this plan for other rows; make the plan before")
    return host.pin_memory().to(device, non_blocking=True)


def plan_of(shape: PromptShape, dtype: str, lengths: Numbers, query_start_loc: Numbers,
            cache: Cache, sees_all: bool) -> PromptPlan:
    """Makes the plan of a step and its scratch, on the device of the cache."""
    device, columns = cache.k.device, cache.page_table.shape[1]
    starts, seen = _listed("query_start_loc", query_start_loc), _listed("lengths", lengths)
    rows = len(seen)
    if len(starts) != rows + 1:
        raise ValueError(f"query_start_loc has {len(starts)} numbers, it must have {rows + 1}: one "
                         "more than lengths")
    if starts[0] > 0:
        raise ValueError(f"query_start_loc begins with {starts[0]}, it must begin with 0")
    prompts = _opened(shape, ACTIVATIONS[dtype], PLAIN, PLAIN, device)
    made = prompts.plan(starts, seen, page_columns=columns, sees_all=bool(sees_all))
    needs = prompts.memory(rows, starts[rows])
    plan = _sent(made, device)
    scratch = torch.empty(needs.scratch_bytes, dtype=torch.uint8, device=device)
    scratch[: needs.zero_bytes].zero_()
    return PromptPlan(plan, scratch, rows, starts[rows], columns, shape)


def _refuse_other(planned_for: Sequence[int], shape: PromptShape) -> None:
    """Raises if the plan was made for another shape."""
    for name, planned, asked in zip(shape._fields, planned_for, shape):
        if planned != asked:
            raise ValueError(f"plan was made for {name} {planned}, this call has {asked}")


# ---- Attention -----------------------------------------------------------------------------------


class Call(NamedTuple):
    """The arguments of the operator, apart from those for its results."""

    q: Tensor
    k: Tensor
    v: Tensor
    page_table: Tensor
    plan: Tensor
    scratch: Tensor
    sinks: Optional[Tensor]
    rows: int
    tokens: int
    columns: int
    planned_for: Sequence[int]  # the PromptShape of the plan
    layout: int
    window: int
    soft_cap: float
    sm_scale: float


CALL = ("Tensor q, Tensor k_cache, Tensor v_cache, Tensor page_table, Tensor plan, "
        "Tensor(e!) scratch, Tensor? sinks, int rows, int tokens, int columns, "
        "int[] planned_for, int layout, int window, float soft_cap, float sm_scale")
COUNT = len(Call._fields)


def _check(of: Call) -> PromptShape:
    operands.sound_logits(Logits(of.sm_scale, of.soft_cap, of.window))
    shaped("q", of.q, None, None, None)
    dtype = typed("q", of.q, HALVES)
    shape = shape_of(dtype, of.q.shape[1], Cache(of.k, of.v, of.page_table), of.layout, of.window,
                     bool(of.planned_for[-1]))
    shaped("q", of.q, None, None, shape.head_dim, like="cache.k")
    _refuse_other(of.planned_for, shape)
    if of.q.shape[0] < of.tokens:
        raise ValueError(f"q is {list(of.q.shape)}, its dim 0 must be at least {of.tokens}: the "
                         "plan has so many query tokens")
    table = of.page_table
    if table.shape[0] < of.rows or table.shape[1] < of.columns:
        raise ValueError(f"cache.page_table is {list(table.shape)}, the plan was made for "
                         f"[{of.rows}, {of.columns}]")
    for name, one in (("q", of.q), ("cache.k", of.k), ("cache.v", of.v)):
        side_by_side(name, one)
        has_steps(name, one)
    side_by_side("cache.page_table", table)
    if of.sinks is not None:
        typed("sinks", of.sinks, ["float32"])
        shaped("sinks", of.sinks, shape.q_heads, like="q")
        without_gaps("sinks", of.sinks)
    for name, lent in (("plan.plan", of.plan), ("plan.scratch", of.scratch)):
        typed(name, lent, ["uint8"])
        shaped(name, lent, None)
        without_gaps(name, lent)
    return shape


def _run(of: Call, shape: PromptShape, out: Tensor, lse: Optional[Tensor]) -> None:
    dtype = ACTIVATIONS[dtype_name(of.q.dtype)]
    prompts = _opened(shape, dtype, of.sm_scale, of.soft_cap, of.q.device)
    call = abi.options(abi.fig_prompts_call, tokens=of.tokens, pages=of.k.shape[0],
                       plan=of.plan.data_ptr(), q=of.q.data_ptr(), out=out.data_ptr(),
                       k_cache=of.k.data_ptr(), v_cache=of.v.data_ptr(),
                       scratch=of.scratch.data_ptr(), scratch_bytes=of.scratch.shape[0],
                       table_stride=of.page_table.stride(0))
    floats = ctypes.POINTER(ctypes.c_float)
    call.page_table = ctypes.cast(of.page_table.data_ptr(), ctypes.POINTER(ctypes.c_int32))
    call.q_strides[:], call.out_strides[:] = of.q.stride()[:2], out.stride()[:2]
    order = (0, 1, 2) if of.layout == LAYOUTS["nhd"] else (0, 2, 1)
    call.k_strides[:] = [of.k.stride(n) for n in order]
    call.v_strides[:] = [of.v.stride(n) for n in order]
    if of.sinks is not None:
        call.sinks = ctypes.cast(of.sinks.data_ptr(), floats)
    if lse is not None:
        call.lse = ctypes.cast(lse.data_ptr(), floats)
    if of.q.is_cuda:
        call.stream = torch.cuda.current_stream(of.q.device).cuda_stream
    prompts.launch(call)


def _check_results(of: Call, out: Tensor, lse: Optional[Tensor]) -> None:
    result("out", out, "q", of.q, of.q.shape)
    side_by_side("out", out)
    has_steps("out", out)
    if lse is None:
        return
    typed("lse", lse, ["float32"])
    shaped("lse", lse, *of.q.shape[:-1], like="q")
    without_gaps("lse", lse)


def _new(of: Call, with_lse: bool) -> tuple[Tensor, Tensor]:
    sums = of.q.shape[:-1] if with_lse else (0, 0)
    return of.q.new_empty(of.q.shape), of.q.new_empty(sums, dtype=torch.float32)


def _attend_fake(*arguments: Any) -> tuple[Tensor, Tensor]:
    of = Call(*arguments[:COUNT])
    _check(of)
    return _new(of, arguments[COUNT])


def _attend(*arguments: Any) -> tuple[Tensor, Tensor]:
    of, with_lse = Call(*arguments[:COUNT]), arguments[COUNT]
    shape = _check(of)
    out, lse = _new(of, with_lse)
    _run(of, shape, out, lse if with_lse else None)
    return out, lse


def _attend_out_fake(*arguments: Any) -> None:
    of = Call(*arguments[:COUNT])
    _check(of)
    _check_results(of, *arguments[COUNT:])


def _attend_out(*arguments: Any) -> None:
    of = Call(*arguments[:COUNT])
    shape = _check(of)
    _check_results(of, *arguments[COUNT:])
    _run(of, shape, *arguments[COUNT:])


define(f"prompt_attention({CALL}, bool with_lse) -> (Tensor, Tensor)", _attend, _attend_fake)
define(f"prompt_attention_out({CALL}, Tensor(o!) out, Tensor(l!)? lse) -> ()", _attend_out,
       _attend_out_fake)
