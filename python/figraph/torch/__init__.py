"""figraph.torch: the operations of a decode step as torch custom operators, on CPU and GPU.

The operators run eagerly, under torch.compile(fullgraph=True), and inside torch.cuda.graph. Each
row is one sequence. Lengths are an int32 tensor on the device and count this step's tokens, so a
captured graph serves any lengths. A row is idle if its length is 0 or exceeds the capacity of its
cache; the output of an idle row is zeros. No operator has a gradient. Each refuses tensors that
require one, unless you call it under torch.no_grad() or torch.inference_mode(). Operators that
return tensors also take `out=`: they then write the result into this tensor and return it.

1. An activation, a norm, and RoPE at one position per row:

>>> import figraph
>>> import figraph.torch as ft
>>> import torch
>>> ft.silu_and_mul(torch.ones(2, 32)).shape
torch.Size([2, 16])
>>> ft.rms_norm(torch.ones(2, 32), torch.ones(32)).shape
torch.Size([2, 32])
>>> q, k, v = torch.randn(2, 8, 64), torch.randn(2, 4, 64), torch.randn(2, 4, 64)
>>> turned_q, turned_k = ft.apply_rope(q, k, torch.tensor([0, 7]), ft.Rope(theta=5e5))

2. A dense cache is Cache(k, v), where k and v are [rows, tokens, kv_heads, head_dim]. A paged cache
is Cache(k, v, page_table), where k and v are [pages, tokens per page, kv_heads, head_dim] and
page_table is int32 [rows, pages per row]. With layout="hnd", heads come before tokens. A dense
cache or a page table may have more rows than the call, so one serves all batch sizes. append_kv
writes into the cache in place:

>>> cache = ft.Cache(torch.zeros(2, 24, 4, 64), torch.zeros(2, 24, 4, 64))
>>> lengths = torch.tensor([1, 9], dtype=torch.int32)
>>> ft.append_kv(turned_k, v, cache, lengths)
>>> bool((cache.v[1, 8] == v[1]).all())
True

3. attention reads the tokens in the cache. decode_attention does RoPE at lengths - 1, append and
attention in one launch; its q, k and v may be views of one tensor. With rope=None it does not
rotate q and k, for servers that have rotated them already:

>>> ft.attention(turned_q, cache, lengths).shape
torch.Size([2, 8, 64])
>>> out = ft.decode_attention(q, k, v, cache, lengths, rope=ft.Rope(theta=5e5))
>>> ft.decode_attention(turned_q, turned_k, v, cache, lengths, rope=None, out=out) is out
True

4. A plan divides the rows' work among the GPU's thread blocks. Make it once per step and pass it to
all layers with the same rows, heads and window. A call without a plan makes its own:

>>> plan = ft.plan(lengths, dtype=q.dtype, q_heads=8, cache=cache)
>>> out, lse = ft.attention(turned_q, cache, lengths, plan=plan, with_lse=True)

5. Only the last dim of q, k, v, out and the caches must have stride 1, so the pages of serving
engines can be used as caches without copies. A pool [pages, 2, tokens, heads, dim] is Cache(pool[:,
0], pool[:, 1], table), and pages [pages, tokens, heads, 2 * dim] are Cache(*pages.split(dim, -1),
table). If the pages are uint8, kv_dtype gives the dtype of the numbers in them. Scales are float32
[], [1] or [kv_heads]:

>>> pages, table = torch.zeros(6, 16, 4, 128, dtype=torch.uint8), torch.arange(6, dtype=torch.int32)
>>> packed = ft.Cache(*pages.split(64, -1), table.view(2, 3), torch.tensor(0.5), torch.tensor(0.5))
>>> half = [x.half() for x in (turned_q, turned_k, v)]
>>> out = ft.decode_attention(*half, packed, lengths, rope=None, kv_dtype="fp8_e4m3")

6. write_kv writes the tokens of prompts to slots: slot n is token n % tokens of page n // tokens,
and a token whose slot is negative is skipped. A row may have up to 16 new tokens, such as drafts:
q, k and v are then [rows, tokens, heads, head_dim], lengths count all of them, and each token sees
itself and the tokens before it:

>>> prompt = torch.randn(5, 4, 64, dtype=torch.float16)
>>> ft.write_kv(prompt, prompt, packed, torch.tensor([32, 33, 34, 35, -1]), kv_dtype="fp8_e4m3")
>>> drafts = torch.randn(2, 3, 16, 64).half().split((8, 4, 4), 2)
>>> longer = torch.tensor([3, 12], dtype=torch.int32)
>>> ft.decode_attention(*drafts, packed, longer, rope=None, kv_dtype="fp8_e4m3").shape
torch.Size([2, 3, 8, 64])

7. Rows may also have unequal numbers of new tokens, 0 to 16. The tokens of all rows then lie behind
each other, and query_start_loc says where those of each row begin. A graph that captured such a
call serves rows with any numbers of tokens, as long as q has room for all of them; rows of padding
have no tokens.

>>> starts = torch.tensor([0, 1, 4], dtype=torch.int32)  # one token, and three
>>> tokens = [x.flatten(0, 1)[:4] for x in drafts]
>>> ft.decode_attention(*tokens, packed, longer, rope=None, kv_dtype="fp8_e4m3",
...                     query_start_loc=starts, row_tokens=3).shape
torch.Size([4, 8, 64])

8. Wrong arguments raise an exception that names the argument, under torch.compile too:

>>> ft.attention(q, cache, lengths[:1])
Traceback (most recent call last):
ValueError: lengths is [1], it must be [2] like q

9. A latent cache (MLA) has one vector for each token, which all heads share: 512 values of the
latent, then 64 values that RoPE rotates. In LatentCache(latents, page_table), latents is [pages,
tokens per page, 576] of q's dtype, or uint8 [pages, tokens per page, 656] of codes; without a page
table it is [rows, tokens, ...]. latent_decode normalises and rotates the new tokens, appends them
and computes attention; each head of its result has 512 values. The scale of the logits must be
given, because it has no default here:

>>> latents = ft.LatentCache(torch.zeros(6, 16, 656, dtype=torch.uint8), table.view(2, 3))
>>> q, latent = torch.randn(2, 16, 576).bfloat16(), torch.randn(2, 576).bfloat16()
>>> weight, scale = torch.ones(512).bfloat16(), ft.Logits(scale=192**-0.5)
>>> lent = ft.plan(lengths, dtype=q.dtype, q_heads=16, cache=latents)
>>> ft.latent_decode(q, latent, latents, lengths, plan=lent, rope=ft.Rope(interleaved=True),
...                  norm=weight, logits=scale).shape
torch.Size([2, 16, 512])

10. DecodeStep is the whole step of a model that figraph.capture knows. It applies the model's own
window, norms and RoPE in each layer. It captures your loop, with your matrix products, once for a
number of rows, and then replays it for any lengths:

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

If the loop ends with step.advance(), each step makes its busy rows one token longer, and step()
continues with the next token. Idle rows stay idle. A loop with lengths += 1 would make idle rows
busy, so DecodeStep refuses it.

>>> step.capture(lambda: (loop(), step.advance()))
>>> step([5, 0])
>>> step()
>>> step.lengths.tolist()
[7, 0]

11. A row may also have any number of new tokens: a prompt, a chunk of a prompt, or one token. The
host then makes the plan, from numbers on the CPU. All layers of the step use the same plan, and the
new keys and values must be in the cache:

>>> pages = ft.Cache(*torch.zeros(2, 6, 16, 4, 64).half(), table.view(2, 3))
>>> chunk = torch.randn(31, 16, 64).half().split((8, 4, 4), 1)  # 30 tokens of row 0, one of row 1
>>> slots = torch.cat((torch.arange(30), torch.tensor([48 + 16])))
>>> ft.write_kv(*chunk[1:], pages, slots)
>>> plan = ft.plan_prompts([30, 17], [0, 30, 31], dtype=torch.float16, q_heads=8, cache=pages)
>>> ft.prompt_attention(chunk[0], pages, plan).shape
torch.Size([31, 8, 64])

examples/torch_loop.py is a loop of 32 layers around a DecodeStep. figraph.integrations has
attention backends for vLLM and SGLang that use these operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Optional, Sequence, Union

import torch
from torch import Tensor

from .. import latents, lent_plans, operands
from ..integers import integer
from ..lent_plans import Plan
from ..operands import Cache, LatentCache, Logits, Rope
from ..scores import Mask, Masked, Score, joined, picked
from ..specs import dtype_of
from . import cache_operators, latent_operators, operators, prompt_operators  # noqa: F401
from .captured_step import DecodeStep
from .prompt_operators import Numbers, PromptPlan
from .schemas import refuse_elsewhere

__all__ = [
    "Cache",
    "DecodeStep",
    "LatentCache",
    "Logits",
    "Plan",
    "PromptPlan",
    "Rope",
    "append_kv",
    "apply_rope",
    "attention",
    "decode_attention",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "latent_attention",
    "latent_decode",
    "plan",
    "plan_prompts",
    "prompt_attention",
    "rms_norm",
    "silu_and_mul",
    "write_kv",
]

_ops = torch.ops.figraph

# ---- Row by row ----------------------------------------------------------------------------------


def _gated(name: str, input: Tensor, out: Optional[Tensor]) -> Tensor:
    if out is None:
        return getattr(_ops, name)(input)
    getattr(_ops, name + "_out")(input, out)
    return out


def silu_and_mul(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """Returns silu(first half of the last dim) * second half."""
    return _gated("silu_and_mul", input, out)


def gelu_and_mul(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """Returns gelu(first half of the last dim) * second half, with the exact gelu."""
    return _gated("gelu_and_mul", input, out)


def gelu_tanh_and_mul(input: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """Returns gelu(first half of the last dim) * second half, with the tanh approximation."""
    return _gated("gelu_tanh_and_mul", input, out)


def rms_norm(input: Tensor, weight: Tensor, *, epsilon: float = 1e-6, weight_offset: float = 0.0,
             residual: Optional[Tensor] = None, out: Optional[Tensor] = None) -> Tensor:
    """Returns input / sqrt(mean(input ** 2) + epsilon) * (weight + weight_offset), with the mean
    over the last dim. With a residual, it first adds input to the residual in place and then
    normalises that sum. out may be input. weight must not be the result of the figraph operator
    directly in front: on compute capability 9.0 it may be read before that operator writes it."""
    given = (input, residual, weight, epsilon, weight_offset)
    if out is None:
        return _ops.rms_norm(*given)
    _ops.rms_norm_out(*given, out)
    return out


def _tensor(name: str, x: Any) -> Tensor:
    """Returns the argument, or raises if it is not a tensor. Torch itself checks the arguments
    whose shape this file does not read."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}, it must be a tensor")
    return x


def _dim(name: str, x: Any) -> int:
    """Returns the size of the last dim; 0 if there is none, which the operator refuses."""
    shape = _tensor(name, x).shape
    return shape[-1] if len(shape) > 0 else 0


def _angles(rope: Rope, q: Tensor, cos_sin: Optional[Tensor]) -> tuple[Any, ...]:
    operands.of_kind("rope", rope, Rope)
    whole = _dim("q", q) if cos_sin is None else _dim("cos_sin_cache", cos_sin)
    return (rope.rotary_dim or whole, *rope[1:])


def apply_rope(q: Tensor, k: Tensor, positions: Tensor, rope: Rope = Rope(), *,
               cos_sin_cache: Optional[Tensor] = None,
               out: Optional[tuple[Tensor, Tensor]] = None) -> tuple[Tensor, Tensor]:
    """Returns q and k, [rows, heads, head_dim], rotated by the position of each row. positions is
    int32 or int64 [rows]. cos_sin_cache, float32 [positions, rotary_dim], holds the cosines of each
    position and then its sines; of `rope`, only interleaved and rotary_dim then count. out may be
    (q, k)."""
    given = (q, k, positions, cos_sin_cache, *_angles(rope, q, cos_sin_cache))
    if out is None:
        return _ops.apply_rope(*given)
    _ops.apply_rope_out(*given, *out)
    return out


# ---- The cache -----------------------------------------------------------------------------------


def _torch_dtype(name: Optional[str]) -> Optional[torch.dtype]:
    return None if name is None else getattr(torch, name)


def _held(cache: Cache, lengths: Tensor, layout: str, kv_dtype: Any) -> tuple[Any, ...]:
    operands.of_kind("cache", cache, Cache)
    return (_tensor("cache.k", cache.k), _tensor("cache.v", cache.v), lengths, cache.page_table,
            cache.k_scale, cache.v_scale,
            operands.layout_code(layout), _torch_dtype(operands.kv_name(kv_dtype)))


def _named(dtype: Any, known: Sequence[str]) -> str:
    """Returns the numpy name of a dtype that is given in any form."""
    names = {kind: name for name, kind in operands.ACTIVATIONS.items()}
    name = names.get(dtype_of(dtype), operands.dtype_name(dtype))
    if name not in known:
        raise TypeError(f"dtype is {name}, it must be {' or '.join(known)}")
    return name


def _packed(query_start_loc: Optional[Tensor], row_tokens: int) -> tuple[Any, ...]:
    """Returns query_start_loc and row_tokens as arguments of an operator."""
    if query_start_loc is not None:
        _tensor("query_start_loc", query_start_loc)
    return query_start_loc, integer("row_tokens", row_tokens)


def append_kv(k: Tensor, v: Tensor, cache: Cache, lengths: Tensor, *, plan: Optional[Plan] = None,
              layout: str = "nhd", kv_dtype: Any = None, query_start_loc: Optional[Tensor] = None,
              row_tokens: int = 0) -> None:
    """Writes k and v, [rows, kv_heads, head_dim], into the cache at position lengths - 1. With
    [rows, tokens, kv_heads, head_dim] it writes the last `tokens` tokens of each row. If a row's
    length is less than `tokens`, it writes only the row's last lengths[row] tokens; under a plan
    with row_tokens == tokens it writes none. query_start_loc and row_tokens are as in
    attention."""
    held, starts = _held(cache, lengths, layout, kv_dtype), _packed(query_start_loc, row_tokens)
    lent_plans.refuse_other(plan, lent_plans.of_append(k, cache, starts, layout, kv_dtype))
    _ops.append_kv(k, v, *held, *starts, None if plan is None else plan.plan)


def write_kv(k: Tensor, v: Tensor, cache: Cache, slots: Tensor, *, layout: str = "nhd",
             kv_dtype: Any = None) -> None:
    """Writes tokens, k and v [tokens, kv_heads, head_dim], into slots of a cache. slots is int32 or
    int64 [tokens]. Slot n is token n % page_size of page n // page_size; in a dense cache of
    `tokens` tokens per row, at most 65536, it is token n % tokens of row n // tokens. Negative
    slots, and slots behind the last page, are skipped. The page table is not read."""
    held = _held(cache, slots, layout, kv_dtype)
    _ops.write_kv(k, v, *held[:3], *held[4:])


def _plan_form(name: str, rows: int, cache: Union[Cache, LatentCache], layout: str,
               kind: Optional[str], row_tokens: int) -> tuple[operands.Form, Optional[torch.dtype]]:
    """Returns the form of the rows, and the dtype of the numbers in the cache."""
    if not isinstance(cache, LatentCache):
        form = operands.form_of(name, rows, cache, operands.layout_code(layout), kind, row_tokens)
        return form, _torch_dtype(kind) or cache.k.dtype
    if kind is not None or layout != "nhd":
        raise ValueError(f'{"layout" if kind is None else "kv_dtype"} is given, but a latent cache '
                         "has none")
    form = latents.form_of(name, rows, cache, row_tokens)
    is_codes = cache.latents.dtype == torch.uint8
    return form, torch.float8_e4m3fn if is_codes else cache.latents.dtype


def plan(lengths: Tensor, *, dtype: Any, q_heads: int, cache: Union[Cache, LatentCache],
         window: int = 0, layout: str = "nhd", row_tokens: int = 0, kv_dtype: Any = None,
         deterministic: bool = False, positions: Optional[Tensor] = None,
         query_start_loc: Optional[Tensor] = None, tokens: int = 0) -> Plan:
    """Makes the plan of one step, for q_heads query heads of type dtype over a cache of this shape.
    window: the number of tokens that a query sees, its own token included; 0 means all. row_tokens:
    the new tokens of each row, by default 1. With query_start_loc it is as in attention; tokens is
    then the first dim of q in the calls under the plan, by default rows * row_tokens. If the rows
    have more tokens together, these calls do nothing. deterministic: the bits of a row's result
    depend on its own length but not on other rows; pass it to attention under this plan too.
    positions: int32 [rows], the position of each row's last token for RoPE in decode_attention
    under this plan; the default is lengths - 1."""
    name = _named(dtype, list(operands.ACTIVATIONS))
    kind = operands.kv_name(kv_dtype)
    operands.of_kind("cache", cache, Cache, LatentCache)
    window, q_heads = integer("window", window), integer("q_heads", q_heads)
    operands.lengths_of(_tensor("lengths", lengths), None)
    named = {f"cache.{field}": x for field, x in cache._asdict().items() if x is not None}
    for field, x in named.items():
        _tensor(field, x)
    starts = operands.Starts(*_packed(query_start_loc, row_tokens))
    refuse_elsewhere([("lengths", lengths), *named.items()])
    form, holds = _plan_form(name, lengths.shape[0], cache, layout, kind, starts.row_tokens or 1)
    form = operands.packed_form(form, starts, tokens)
    made = _ops.plan(lengths, _torch_dtype(name), q_heads, *form[1:5], holds, window,
                     form.row_tokens, deterministic, positions, query_start_loc,
                     integer("tokens", tokens), form.latent_dim)
    return lent_plans.of(made, lent_plans.made_for(name, q_heads, window, deterministic, form))


# ---- Attention -----------------------------------------------------------------------------------


def _sound_logits(logits: Logits) -> None:
    """Checks what torch's own checks let pass: a bool for a number, and another type."""
    operands.of_kind("logits", logits, Logits)
    integer("logits.window", logits.window)


def _asked(q: Tensor, cache: Cache, lengths: Tensor, layout: str, kv_dtype: Any,
           query_start_loc: Optional[Tensor], row_tokens: int, plan: Optional[Plan],
           logits: Logits, alibi: Optional[Tensor], sinks: Optional[Tensor],
           deterministic: bool) -> tuple[Any, ...]:
    """Returns the arguments of an operator from the cache on."""
    held, starts = _held(cache, lengths, layout, kv_dtype), _packed(query_start_loc, row_tokens)
    _sound_logits(logits)
    lent_plans.refuse_other(plan, lent_plans.of_call(q, cache, starts, logits.window,
                                                     deterministic, layout, kv_dtype))
    lent = (None, None) if plan is None else plan
    return (*held, *starts, *lent, alibi, sinks, logits.window, logits.soft_cap,
            logits.scale or max(_dim("q", q), 1) ** -0.5, deterministic)


Attended = Union[Tensor, tuple[Tensor, Tensor]]
Variant = Union[str, Score, Callable[..., Any]]


@torch.compiler.assume_constant_result
def _made(of: Any, mask: Any) -> Score:
    """Makes a score from texts or functions. torch.compile calls this once, while it traces."""
    return joined(of, mask)


def _scored(score: Optional[Variant], mask: Optional[Masked],
            arrays: Optional[Mapping[str, Tensor]]) -> tuple[Any, ...]:
    """Returns the operator's arguments for a score and a mask."""
    if score is None and mask is None:
        if arrays is not None:
            raise ValueError("score_arrays is given, but neither score nor mask is")
        return ()
    if score is None and isinstance(mask, Mask):
        made: Score = mask
    elif mask is None and isinstance(score, Score):
        made = score
    else:
        made = _made(score, mask)
    return made.text, [_tensor(f"score_arrays[{of.name!r}]", x)
                       for of, x in zip(made.arrays, picked(made, arrays))]


def _results(name: str, given: tuple[Any, ...], out: Optional[Tensor], with_lse: bool) -> Attended:
    if out is None:
        made, lse = getattr(_ops, name)(*given, with_lse)
        return (made, lse) if with_lse else made
    lse = None
    if with_lse:
        lse = _tensor("out", out).new_empty(out.shape[:-1], dtype=torch.float32)
    getattr(_ops, name + "_out")(*given, out, lse)
    return out if lse is None else (out, lse)


def attention(q: Tensor, cache: Cache, lengths: Tensor, *, plan: Optional[Plan] = None,
              logits: Logits = Logits(), alibi: Optional[Tensor] = None,
              sinks: Optional[Tensor] = None, layout: str = "nhd", with_lse: bool = False,
              kv_dtype: Any = None, out: Optional[Tensor] = None,
              deterministic: bool = False, query_start_loc: Optional[Tensor] = None,
              row_tokens: int = 0, score: Optional[Variant] = None,
              score_arrays: Optional[Mapping[str, Tensor]] = None,
              mask: Optional[Masked] = None) -> Attended:
    """Returns the attention of q, [rows, heads, head_dim] or [rows, tokens, heads, head_dim], over
    the first lengths[row] tokens of each row's cache. alibi and sinks are float32 [heads].
    with_lse=True also returns the log-sum-exp to base 2, float32, in the shape of q without its
    last dim.

    query_start_loc, int32 [rows + 1], is for rows with different numbers of query tokens: q is then
    [tokens, heads, head_dim], and row r has its tokens from query_start_loc[r] up to
    query_start_loc[r + 1], the last ones of its sequence. query_start_loc[0] is 0. row_tokens is
    the most that a row may have, by default 8; a smaller number is faster. A row with more tokens,
    or with a negative number of them, counts as a row without tokens. The contents of out behind
    the last token are unspecified.

    score is a variant of attention: a figraph.score, or a text or function, from which every call
    then makes one. score_arrays has a tensor for each array of the score. If the score is a soft
    cap, ALiBi or both, the call runs as attention with these options. With any other score, the
    call uses no tensor cores and makes its own plan.

    mask says which tokens a query sees: a figraph.mask, or a text or function from which the call
    makes one. It replaces the rule that a query sees no later token. It runs as a score does, and
    score_arrays has its arrays too."""
    scored = _scored(score, mask, score_arrays)
    given = (q, *_asked(q, cache, lengths, layout, kv_dtype, query_start_loc, row_tokens, plan,
                        logits, alibi, sinks, deterministic), *scored)
    return _results("scored_attention" if scored else "attention", given, out, with_lse)


def decode_attention(q: Tensor, k: Tensor, v: Tensor, cache: Cache, lengths: Tensor, *,
                     plan: Optional[Plan] = None, rope: Optional[Rope] = Rope(),
                     positions: Optional[Tensor] = None, cos_sin_cache: Optional[Tensor] = None,
                     logits: Logits = Logits(), alibi: Optional[Tensor] = None,
                     sinks: Optional[Tensor] = None, layout: str = "nhd", with_lse: bool = False,
                     kv_dtype: Any = None, out: Optional[Tensor] = None,
                     deterministic: bool = False, query_start_loc: Optional[Tensor] = None,
                     row_tokens: int = 0, score: Optional[Variant] = None,
                     score_arrays: Optional[Mapping[str, Tensor]] = None,
                     mask: Optional[Masked] = None) -> Attended:
    """Does apply_rope at lengths - 1, append_kv and attention in one call. The call may overwrite q
    and k with their rotated values, so do not use them afterwards. With rope=None it appends and
    computes attention without RoPE. positions, int32 or int64 with one number for each token,
    replace lengths - 1, and cos_sin_cache is as in apply_rope; with either of them, RoPE and append
    are a separate launch on a GPU. If the plan was made with positions, there is no separate
    launch. query_start_loc, row_tokens, score, score_arrays and mask are as in attention;
    with query_start_loc, a mask, or a score that is not a soft cap or ALiBi, RoPE and append are
    separate launches on a GPU."""
    if rope is None and (positions is not None or cos_sin_cache is not None):
        name = "cos_sin_cache" if positions is None else "positions"
        raise ValueError(f"{name} is given, but rope is None, so q and k are not rotated")
    turns = (*_angles(rope or Rope(), q, cos_sin_cache), rope is None, positions,
             cos_sin_cache)
    scored = _scored(score, mask, score_arrays)
    given = (q, k, v, *_asked(q, cache, lengths, layout, kv_dtype, query_start_loc, row_tokens,
                              plan, logits, alibi, sinks, deterministic), *turns, *scored)
    return _results("scored_decode_attention" if scored else "decode_attention", given, out,
                    with_lse)


# ---- Prompts -------------------------------------------------------------------------------------


def plan_prompts(lengths: Numbers, query_start_loc: Numbers, *, dtype: Any, q_heads: int,
                 cache: Cache, window: int = 0, layout: str = "nhd", deterministic: bool = False,
                 sees_all: bool = False) -> PromptPlan:
    """Makes the plan of one step for prompt_attention, on the host, and copies it to the cache's
    device on the current stream. The host does not wait for the copy.

    lengths and query_start_loc are lists, or integer tensors on the CPU. Row r has the query tokens
    from query_start_loc[r] up to query_start_loc[r + 1], any number or none; they are the last ones
    of its lengths[r] tokens. dtype, float16 or bfloat16, is that of q and of the cache. window: the
    number of tokens that a query sees, its own included; 0 means all. deterministic: the bits of a
    row's result do not depend on other rows. sees_all: each query sees all tokens of its row, not
    only those up to its own."""
    name = _named(dtype, prompt_operators.HALVES)
    operands.of_kind("cache", cache, Cache)
    named = [(f"cache.{field}", x) for field, x in cache._asdict().items() if x is not None]
    for field, x in named:
        _tensor(field, x)
    prompt_operators.refuse_others(cache)
    refuse_elsewhere(named)
    shape = prompt_operators.shape_of(name, integer("q_heads", q_heads), cache,
                                      operands.layout_code(layout), integer("window", window),
                                      deterministic)
    return prompt_operators.plan_of(shape, name, lengths, query_start_loc, cache, sees_all)


def prompt_attention(q: Tensor, cache: Cache, plan: PromptPlan, *, logits: Logits = Logits(),
                     sinks: Optional[Tensor] = None, layout: str = "nhd", with_lse: bool = False,
                     out: Optional[Tensor] = None) -> Attended:
    """Returns the attention of q, [tokens, heads, head_dim], over a paged cache that holds the keys
    and values of all tokens, those of this step included. The plan says which query tokens each row
    has. q may have more tokens than the plan. In the result, the contents behind the plan's last
    token are unspecified, or unchanged if `out` is given. sinks are float32 [heads]. with_lse=True
    also returns the log-sum-exp to base 2, float32 [tokens, heads]. A graph may capture the call;
    its replays have the plan's rows."""
    operands.of_kind("plan", plan, PromptPlan)
    operands.of_kind("cache", cache, Cache)
    _sound_logits(logits)
    prompt_operators.refuse_others(cache)
    k, v = _tensor("cache.k", cache.k), _tensor("cache.v", cache.v)
    given = (q, k, v, cache.page_table, plan.plan, plan.scratch, sinks, plan.rows,
             plan.tokens, plan.columns, list(plan.shape), operands.layout_code(layout),
             logits.window, logits.soft_cap, logits.scale or max(_dim("q", q), 1) ** -0.5)
    return _results("prompt_attention", given, out, with_lse)


# ---- Latent caches -------------------------------------------------------------------------------


def _latents(q: Tensor, cache: LatentCache, lengths: Tensor, query_start_loc: Optional[Tensor],
             row_tokens: int, plan: Optional[Plan], sinks: Optional[Tensor], logits: Logits,
             deterministic: bool) -> tuple[Any, ...]:
    """Returns the last arguments of an operator, beginning with the cache."""
    operands.of_kind("cache", cache, LatentCache)
    starts = _packed(query_start_loc, row_tokens)
    _sound_logits(logits)
    lent_plans.refuse_other(plan, lent_plans.of_call(q, cache, starts, logits.window,
                                                     deterministic))
    lent = (None, None) if plan is None else plan
    return (_tensor("cache.latents", cache.latents), lengths, cache.page_table, *starts, *lent,
            sinks, logits.window, logits.soft_cap, logits.scale, deterministic)


def latent_attention(q: Tensor, cache: LatentCache, lengths: Tensor, *,
                     plan: Optional[Plan] = None, logits: Logits, sinks: Optional[Tensor] = None,
                     with_lse: bool = False, out: Optional[Tensor] = None,
                     deterministic: bool = False, query_start_loc: Optional[Tensor] = None,
                     row_tokens: int = 0, q_rope: Optional[Tensor] = None) -> Attended:
    """Returns the attention of q, [rows, heads, 576] or [rows, tokens, heads, 576], over the first
    lengths[row] tokens of each row's latent cache: [..., heads, 512]. heads is a multiple of 8, at
    most 128. If q has only the first 512 values of each head, q_rope has the last 64: [rows, heads,
    64] or [rows, tokens, heads, 64]. Both may have any strides, if the values of a head lie side by
    side and the tokens of all rows lie equally far apart. logits.scale must be given, and there is
    no soft cap. The other arguments are as in attention."""
    given = _latents(q, cache, lengths, query_start_loc, row_tokens, plan, sinks, logits,
                     deterministic)
    return _results("latent_attention", (q, q_rope, *given), out, with_lse)


def latent_decode(q: Tensor, latent: Tensor, cache: LatentCache, lengths: Tensor, *,
                  plan: Optional[Plan] = None, rope: Rope = Rope(),
                  positions: Optional[Tensor] = None, cos_sin_cache: Optional[Tensor] = None,
                  norm: Optional[Tensor] = None, norm_epsilon: float = 1e-6, logits: Logits,
                  sinks: Optional[Tensor] = None, with_lse: bool = False,
                  out: Optional[Tensor] = None, deterministic: bool = False,
                  query_start_loc: Optional[Tensor] = None, row_tokens: int = 0,
                  q_rope: Optional[Tensor] = None) -> Attended:
    """Does the decode step of a latent cache in one call: rotates the last 64 values of each head
    of q and of each new token, latent [rows, 576] or [rows, tokens, 576], by the token's position,
    lengths - 1; appends the token; and computes latent_attention. norm, [512], is the weight of an
    RMSNorm over the first 512 values of each new token; None means that there is none. The call may
    overwrite the last 64 values of the heads of q, or q_rope, so do not use them afterwards.
    positions and cos_sin_cache, float32 [positions, 64], are as in decode_attention."""
    operands.of_kind("rope", rope, Rope)
    given = _latents(q, cache, lengths, query_start_loc, row_tokens, plan, sinks, logits,
                     deterministic)
    return _results("latent_decode", (q, q_rope, latent, *given, norm, norm_epsilon, *rope,
                                      positions, cos_sin_cache), out, with_lse)
