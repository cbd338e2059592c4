"""attention.py: attn_implementation="figraph" for the models of Hugging Face transformers.

transformers asks for a mask once per step and kind of layer, and passes it to the attention
function of each layer. For prompts, this file returns HF's own mask. For one query token per row,
it returns numbers that say which tokens of HF's cache each row sees. Invariant: every mask is
obeyed exactly. If the visible tokens of a row are not the first ones of its cache, the mask becomes
a page table with pages of one token, so attention is right for any padding and window. A mask that
cannot be expressed in this way is refused.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import torch
from torch import Tensor

import figraph.torch as ft
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function, sdpa_mask

from .pages import Kept, attend_kept
from .pieces import attend_rows, attend_rows_with_lse
from .prefill import attend_prompt

NAME = "figraph"
TABLE_STEP = 64  # a page table's width is a multiple of this, so shapes are few


# ---- The mask ------------------------------------------------------------------------------------


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
         mask_function: Any = causal_mask_function, attention_mask: Optional[Tensor] = None,
         **options: Any) -> Optional[Tensor]:
    """Returns HF's mask for prompts. For one query token per row, it returns int32 [rows, 1, 1, 1],
    the number of tokens that each row sees. If these are not the first tokens of the cache, it
    returns int32 [rows, 1, 1, 1 + kv_length]: this number, then the index of each visible token."""
    given = dict(batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                 kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask)
    if q_length > 1:
        return sdpa_mask(**given, **options)
    options.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    seen = sdpa_mask(**given, **options)
    lengths = seen.sum(-1, keepdim=True, dtype=torch.int32)
    is_causal = mask_function is causal_mask_function and attention_mask is None
    if is_causal or _is_range(seen, lengths):
        return lengths
    places = torch.argsort((~seen).to(torch.uint8), dim=-1, stable=True).int()
    return torch.cat((lengths, places), -1)


def _is_range(seen: Tensor, lengths: Tensor) -> bool:
    """Returns True if each row is known to see exactly its first tokens. This copies the mask to
    the host, as HF's own masks do outside of torch.compile."""
    if torch.compiler.is_compiling() or _is_captured(seen):
        return False
    return bool((seen == (torch.arange(seen.shape[-1], device=seen.device) < lengths)).all())


def _is_captured(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


# ---- Attention -----------------------------------------------------------------------------------


def attend(module: Any, query: Tensor, key: Any, value: Tensor, attention_mask: Optional[Tensor],
           scaling: Optional[float] = None, dropout: float = 0.0,
           sliding_window: Optional[int] = None, softcap: Optional[float] = None,
           s_aux: Optional[Tensor] = None, position_bias: Optional[Tensor] = None,
           **options: Any) -> tuple[Tensor, None]:
    """Returns the attention of query, [rows, heads, queries, head_dim], as [rows, queries, heads,
    head_dim], and no weights. This is the function that transformers calls by the name figraph."""
    if position_bias is not None:
        raise NotImplementedError('attn_implementation="figraph" takes no position_bias')
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    if isinstance(key, Kept):
        return attend_kept(query, key, value, attention_mask, ft.Logits(
            scale, softcap or 0.0, sliding_window or 0), s_aux, dropout), None
    if query.shape[2] == 1 and attention_mask is not None and attention_mask.dtype == torch.int32:
        logits = ft.Logits(scale, softcap or 0.0)  # the mask has the window already
        return _decode(query[:, :, 0], key, value, attention_mask, logits, s_aux)[:, None], None
    is_causal = options.get("is_causal")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if attention_mask is None and not is_causal:
        attention_mask = query.new_ones(1, 1, 1, key.shape[2], dtype=torch.bool)
    return attend_prompt(query, key, value, attention_mask, scale=scale, soft_cap=softcap or 0.0,
                         sinks=s_aux, dropout=dropout), None


def _decode(q: Tensor, key: Tensor, value: Tensor, seen: Tensor, logits: ft.Logits,
            sinks: Optional[Tensor]) -> Tensor:
    """Returns the attention of q, [rows, heads, head_dim], over HF's cache in place, [rows,
    kv_heads, tokens, head_dim]."""
    if seen.shape[0] != q.shape[0] or seen.shape[-1] not in (1, 1 + key.shape[2]):
        raise ValueError(f"attention_mask is for {seen.shape[0]} rows of {seen.shape[-1] - 1} "
                         f"tokens, the cache has {q.shape[0]} rows of {key.shape[2]}")
    lengths = seen[:, 0, 0, 0].contiguous()
    sinks = None if sinks is None else sinks.float()
    if seen.shape[-1] == 1:
        return attend_rows(q, ft.Cache(key, value), lengths, layout="hnd", logits=logits,
                           sinks=sinks)
    return _decode_places(q, key, value, seen[:, 0, 0], logits, sinks)


def _decode_places(q: Tensor, key: Tensor, value: Tensor, seen: Tensor, logits: ft.Logits,
                   sinks: Optional[Tensor]) -> Tensor:
    """Returns the attention of each row over the tokens whose indices are in seen, [rows, 1 +
    tokens]. In HF's cache the tokens of a head lie together. So this call makes each KV head of
    each row a separate row with one KV head, and each token a page."""
    (rows, kv_heads, tokens, dim), (_, heads, _) = key.shape, q.shape
    pools = (x.reshape(rows * kv_heads * tokens, 1, 1, dim) for x in (key, value))
    first = torch.arange(0, rows * kv_heads * tokens, tokens, dtype=torch.int32, device=q.device)
    table = first[:, None] + seen[:, 1:].repeat_interleave(kv_heads, 0)
    table = torch.nn.functional.pad(table, (0, -tokens % TABLE_STEP))
    lengths = seen[:, 0].repeat_interleave(kv_heads)
    out, lse = attend_rows_with_lse(q.reshape(rows * kv_heads, heads // kv_heads, dim),
                                    ft.Cache(*pools, table), lengths, logits=logits)
    out = out.view(q.shape)
    if sinks is None:
        return out
    # A sink adds its weight to the sum, but no value to the result.
    share = torch.sigmoid(lse.view(rows, heads) * math.log(2) - sinks)
    return (out.float() * share[:, :, None]).to(out.dtype)


def register() -> None:
    """Registers the name figraph with transformers."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, mask)
