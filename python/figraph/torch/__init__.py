"""figraph.torch: the operations of a decode step as torch's custom operators, on CPU and GPU.

They run eagerly, under torch.compile(fullgraph=True), and become part of what torch.cuda.graph
captures. A row is a sequence; lengths are int32 and lie on the device, this step's token counted,
so what was captured once serves all of them: a row whose length is 0, or more than its cache holds,
is idle, and its out is zeros. Nothing here has a gradient.

1. An activation, a norm, and RoPE at positions of each row's own:

>>> import figraph
>>> import figraph.torch as ft
>>> import torch
>>> ft.silu_and_mul(torch.ones(2, 32)).shape
torch.Size([2, 16])
>>> ft.rms_norm(torch.ones(2, 32), torch.ones(32)).shape
torch.Size([2, 32])
>>> q, k, v = torch.randn(2, 8, 64), torch.randn(2, 4, 64), torch.randn(2, 4, 64)
>>> turned_q, turned_k = ft.apply_rope(q, k, torch.tensor([0, 7]), ft.Rope(theta=5e5))

2. A cache is Cache(k, v), each [rows, tokens, kv_heads, head_dim], or, with a page_table [rows,
pages of a row] int32, [pages, tokens of a page, kv_heads, head_dim]; under layout="hnd" tokens and
heads change places. It grows in place:

>>> cache = ft.Cache(torch.zeros(2, 24, 4, 64), torch.zeros(2, 24, 4, 64))
>>> lengths = torch.tensor([1, 9], dtype=torch.int32)
>>> ft.append_kv(turned_k, v, cache, lengths)
>>> bool((cache.v[1, 8] == v[1]).all())
True

3. Attention over what is there; or all of it, RoPE at lengths - 1, append and attention, in one
launch, for which q, k and v may be views of one array:

>>> ft.attention(turned_q, cache, lengths).shape
torch.Size([2, 8, 64])
>>> out = ft.decode_attention(q, k, v, cache, lengths, rope=ft.Rope(theta=5e5))

4. How rows are cut for the GPU is a plan. Made once a step, it is read by all layers that have the
same rows, heads and windows; without one each call makes its own:

>>> plan = ft.plan(lengths, dtype=q.dtype, q_heads=8, cache=cache)
>>> out, lse = ft.attention(turned_q, cache, lengths, plan=plan, with_lse=True)

5. What is wrong is refused in words, by torch.compile too:

>>> ft.attention(q, cache, lengths[:1])
Traceback (most recent call last):
ValueError: lengths is [1], it must be [2]

6. DecodeStep is a model's whole step by the names that figraph.capture knows: each layer's window,
norms and RoPE are the model's. A loop of yours, with its matrix products, is captured once for so
many rows, and then replayed for any lengths:

>>> spec = figraph.spec("tutorial")
>>> shape = (2, 512, spec.kv_heads, spec.head_dim)
>>> caches = [ft.Cache(*(torch.zeros(shape, dtype=torch.float16) for _ in "kv"))]
>>> step = ft.DecodeStep(spec, caches, rows=2, check=True)
>>> hidden = torch.ones(2, spec.q_heads * spec.head_dim, dtype=torch.float16)
>>> def loop():
...     step.plan()
...     q = hidden.view(2, spec.q_heads, spec.head_dim)
...     k, v = (q[:, : spec.kv_heads].clone() for _ in "kv")
...     hidden.copy_(step.attend(0, q, k, v).view(2, -1))
>>> step.capture(loop)
>>> step([1, 9])
>>> step([513, 1])
Traceback (most recent call last):
figraph.errors.TooLarge: row 0 has length 513, its cache holds 512

examples/torch_loop.py is such a loop of 32 layers; examples/vllm_backend.py goes towards vLLM.
"""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from .. import operands
from ..operands import Cache, Logits, Plan, Rope
from . import operators  # noqa: F401
from .captured_step import DecodeStep

__all__ = [
    "Cache",
    "DecodeStep",
    "Logits",
    "Plan",
    "Rope",
    "append_kv",
    "apply_rope",
    "attention",
    "decode_attention",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "plan",
    "rms_norm",
    "silu_and_mul",
]

_ops = torch.ops.figraph


def silu_and_mul(input: Tensor) -> Tensor:
    """silu of the first half of the last dim, times the second half."""
    return _ops.silu_and_mul(input)


def gelu_and_mul(input: Tensor) -> Tensor:
    """The same with gelu."""
    return _ops.gelu_and_mul(input)


def gelu_tanh_and_mul(input: Tensor) -> Tensor:
    """The same with gelu's approximation by tanh."""
    return _ops.gelu_tanh_and_mul(input)


def rms_norm(input: Tensor, weight: Tensor, *, epsilon: float = 1e-6, weight_offset: float = 0.0,
             residual: Optional[Tensor] = None) -> Tensor:
    """input / sqrt(mean of the last dim's squares + epsilon) * (weight + weight_offset). With a
    residual, to which input is added in place, it is that sum which is normalised."""
    return _ops.rms_norm(input, residual, weight, epsilon, weight_offset)


def _angles(rope: Rope, head_dim: int) -> tuple[Union[int, float, bool], ...]:
    return (rope.rotary_dim or head_dim, *rope[1:])


def apply_rope(q: Tensor, k: Tensor, positions: Tensor,
               rope: Rope = Rope()) -> tuple[Tensor, Tensor]:
    """q and k, [rows, heads, head_dim], turned by where each row stands: int32 or int64 [rows]."""
    return _ops.apply_rope(q, k, positions, *_angles(rope, q.shape[-1]))


def append_kv(k: Tensor, v: Tensor, cache: Cache, lengths: Tensor, *, plan: Optional[Plan] = None,
              layout: str = "nhd") -> None:
    """Puts k and v, [rows, kv_heads, head_dim], into the cache where lengths - 1 says."""
    _ops.append_kv(k, v, *_held(cache, lengths, layout), None if plan is None else plan.plan)


def _held(cache: Cache, lengths: Tensor, layout: str) -> tuple[object, ...]:
    return (cache.k, cache.v, lengths, cache.page_table, cache.k_scale, cache.v_scale,
            operands.layout_code(layout))


def plan(lengths: Tensor, *, dtype: torch.dtype, q_heads: int, cache: Cache, window: int = 0,
         layout: str = "nhd") -> Plan:
    """The plan of a step for attention of q_heads heads of that dtype over such a cache; window:
    tokens that a row sees, its own counted; 0: all."""
    name = operands.dtype_name(dtype)
    if name not in operands.ACTIVATIONS:
        raise TypeError(f"dtype is {name}, it must be {' or '.join(operands.ACTIVATIONS)}")
    form = operands.form_of(name, lengths.shape[0], cache, operands.layout_code(layout))
    return Plan(*_ops.plan(lengths, dtype, q_heads, *form[1:5], cache.k.dtype, window))


def _asked(head_dim: int, plan: Optional[Plan], logits: Logits, alibi: Optional[Tensor],
           sinks: Optional[Tensor], with_lse: bool) -> tuple[object, ...]:
    lent = (None, None) if plan is None else plan
    return (*lent, alibi, sinks, logits.window, logits.soft_cap,
            logits.scale or head_dim**-0.5, with_lse)


def attention(q: Tensor, cache: Cache, lengths: Tensor, *, plan: Optional[Plan] = None,
              logits: Logits = Logits(), alibi: Optional[Tensor] = None,
              sinks: Optional[Tensor] = None, layout: str = "nhd",
              with_lse: bool = False) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """Attention of q, [rows, heads, head_dim], over the first tokens of the cache, as lengths say;
    alibi and sinks: float32 [heads]. With with_lse also lse, to base 2: float32 [rows, heads]."""
    out, lse = _ops.attention(q, *_held(cache, lengths, layout),
                              *_asked(q.shape[-1], plan, logits, alibi, sinks, with_lse))
    return (out, lse) if with_lse else out


def decode_attention(q: Tensor, k: Tensor, v: Tensor, cache: Cache, lengths: Tensor, *,
                     plan: Optional[Plan] = None, rope: Rope = Rope(), logits: Logits = Logits(),
                     alibi: Optional[Tensor] = None, sinks: Optional[Tensor] = None,
                     layout: str = "nhd",
                     with_lse: bool = False) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """apply_rope at lengths - 1, append_kv and attention, in one call. Whether q and k are turned
    behind it is open."""
    out, lse = _ops.decode_attention(q, k, v, *_held(cache, lengths, layout),
                                     *_asked(q.shape[-1], plan, logits, alibi, sinks, with_lse),
                                     *_angles(rope, q.shape[-1]))
    return (out, lse) if with_lse else out
