"""prefill.py: attention of several query tokens per row, in torch.

figraph only decodes; torch computes the attention of prompts. Attention with soft caps or sinks is
written out here in float32, because scaled_dot_product_attention supports neither.
"""

from __future__ import annotations

import math
from typing import Optional

import torch
from torch import Tensor


def causal(queries: int, keys: int, device: torch.device) -> Tensor:
    """Returns a causal mask, bool [queries, keys]: each query sees the keys up to its own index."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril()


def attend_prompt(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], *, scale: float,
                  soft_cap: float = 0.0, sinks: Optional[Tensor] = None,
                  dropout: float = 0.0) -> Tensor:
    """Returns the attention of q, [rows, heads, queries, head_dim], over k and v, [rows, kv_heads,
    keys, head_dim], as [rows, queries, heads, head_dim]. mask is bool, or numbers that are added to
    the logits; None means causal from the first token on. sinks are [heads]."""
    if mask is None and q.shape[2] > 1 and k.shape[2] > q.shape[2]:
        k, v = k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]
    if soft_cap or sinks is not None:
        out = _explicit(q, k, v, mask, scale, soft_cap, sinks, dropout)
    else:
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale,
            is_causal=mask is None and q.shape[2] > 1, enable_gqa=q.shape[1] != k.shape[1])
    return out.transpose(1, 2)


def _explicit(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], scale: float,
              soft_cap: float, sinks: Optional[Tensor], dropout: float) -> Tensor:
    rows, heads, queries, dim = q.shape
    grouped = q.reshape(rows, k.shape[1], -1, queries, dim)  # [rows, kv_heads, group, queries, dim]
    logits = (grouped @ k[:, :, None].transpose(-1, -2)).float() * scale
    logits = logits.view(rows, heads, queries, -1)
    if soft_cap:
        logits = torch.tanh(logits / soft_cap) * soft_cap
    if mask is None and queries > 1:
        mask = causal(queries, logits.shape[-1], q.device)
    if mask is not None and mask.dtype == torch.bool:
        logits = logits.masked_fill(~mask, -math.inf)
    elif mask is not None:
        logits = logits + mask
    if sinks is not None:
        sink = sinks.float().view(1, -1, 1, 1).expand(rows, -1, queries, -1)
        logits = torch.cat((logits, sink), -1)
    # A padding token sees nothing. Its result is not used, but must not be NaN.
    weights = logits.softmax(-1).nan_to_num(0.0)
    if sinks is not None:
        weights = weights[..., :-1]
    weights = torch.nn.functional.dropout(weights, dropout).to(v.dtype)
    weights = weights.view(*grouped.shape[:4], -1)
    return (weights @ v[:, :, None]).reshape(rows, heads, queries, -1)
