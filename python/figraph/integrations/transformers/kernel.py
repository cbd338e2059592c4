"""kernel.py: figraph's versions of FlashAttention's two functions, for continuous batching.

transformers loads them from the folder flash/ under the name figraph/flash-figraph3; generate_batch
calls them by FlashAttention's names and arguments. figraph computes rows of one query token, and
torch computes prompts. Invariant: an argument that is not supported here is not in a signature, so
transformers either leaves it out or raises.
"""

from __future__ import annotations

import os
from typing import Any, Optional

import torch
from torch import Tensor

import figraph.torch as ft

from .pieces import attend_rows, cache_of, joined, pieces_of
from .prefill import attend_prompt

NAME = "figraph/flash-figraph3"  # transformers looks for "flash" and FlashAttention's version in it
TABLE_STEP = 64  # a page table's width is a multiple of this, so shapes are few


def kernel_folder() -> str:
    """Returns the folder that LOCAL_KERNELS must name."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "flash")


def use_kernel(model: Any) -> None:
    """Makes model.generate_batch use figraph: sets LOCAL_KERNELS in this process, and the model's
    attention. It needs the package named kernels, but no network."""
    entry = f"{NAME}={kernel_folder()}"
    named = [kept for kept in os.environ.get("LOCAL_KERNELS", "").split(":")
             if kept and not kept.startswith(f"{NAME}=")]
    os.environ["LOCAL_KERNELS"] = ":".join([*named, entry])
    taken = getattr(model, "_compatible_flash_implementations", None)
    if taken is not None and NAME not in taken:
        # Otherwise another kernel would be downloaded, because these models name kernels with
        # sinks.
        model._compatible_flash_implementations = [*taken, NAME]
    model.set_attn_implementation(NAME, allow_all_kernels=True)


# ---- Arguments of both functions -----------------------------------------------------------------


def _logits(q: Tensor, softmax_scale: Optional[float], window_size: tuple[int, int],
            softcap: float) -> ft.Logits:
    left = window_size[0]
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else float(softmax_scale)
    return ft.Logits(scale, float(softcap), 0 if left is None or left < 0 else int(left) + 1)


def _shaped(name: str, tensor: Tensor, *dims: Optional[int]) -> None:
    fits = tensor.ndim == len(dims) and all(
        dim is None or dim == own for dim, own in zip(dims, tensor.shape))
    if not fits:
        wanted = ", ".join("any" if dim is None else str(dim) for dim in dims)
        raise ValueError(f"{name} is {list(tensor.shape)}, it must be [{wanted}]")


def _alike(q: Tensor, **others: Optional[Tensor]) -> None:
    for name, tensor in others.items():
        if tensor is None:
            continue
        if tensor.dtype != q.dtype:
            raise TypeError(f"{name} is {tensor.dtype}, q is {q.dtype}")
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device}, q is on {q.device}")


def _counts(q: Tensor, **others: Optional[Tensor]) -> None:
    for name, tensor in others.items():
        if tensor is None:
            continue
        if tensor.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"{name} is {tensor.dtype}, it must be torch.int32")
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device}, q is on {q.device}")


# ---- One query token a row, over pages -----------------------------------------------------------


def _apart(k_cache: Tensor, v_cache: Tensor, block_table: Optional[Tensor]) -> ft.Cache:
    """Returns a cache whose keys and values share no memory. In transformers' pool, a page of keys
    is followed by its page of values. transformers passes one view of the whole pool as the keys
    and another view, which begins one page later, as the values; only the even pages of a view
    belong to it."""
    page = k_cache[0].numel() * k_cache.element_size()
    are_one = v_cache.data_ptr() - k_cache.data_ptr() == page and k_cache.shape[0] > 1
    if block_table is None or not are_one or not (k_cache.is_contiguous()
                                                  and v_cache.is_contiguous()):
        return ft.Cache(k_cache, v_cache, block_table)
    if not block_table.is_cuda and bool((block_table.clamp(min=0) % 2).any()):
        raise ValueError("block_table has an odd page, and v_cache begins one page behind k_cache: "
                         "that page would be keys and values")
    return ft.Cache(k_cache[::2], v_cache[::2],
                    torch.div(block_table, 2, rounding_mode="floor"))


def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor,
                            k: Optional[Tensor] = None, v: Optional[Tensor] = None, *,
                            cache_seqlens: Tensor, block_table: Optional[Tensor] = None,
                            softmax_scale: Optional[float] = None, causal: bool = True,
                            window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                            s_aux: Optional[Tensor] = None) -> Tensor:
    """Appends k and v, [rows, 1, kv_heads, head_dim], behind the first cache_seqlens[row] tokens of
    each row, and returns the attention of q, [rows, 1, heads, head_dim]. The caches are [pages,
    page, kv_heads, head_dim] with block_table, int32 [rows, pages of a row], or [rows, tokens,
    kv_heads, head_dim]. A row of -1 tokens is idle. With one query token, causal has no effect."""
    _shaped("q", q, None, 1, None, None)
    rows, dim = q.shape[0], q.shape[3]
    _shaped("k_cache", k_cache, None, None, None, dim)
    _shaped("v_cache", v_cache, *k_cache.shape)
    _alike(q, k_cache=k_cache, v_cache=v_cache, k=k, v=v)
    _counts(q, cache_seqlens=cache_seqlens, block_table=block_table)
    _shaped("cache_seqlens", cache_seqlens, rows)
    if (k is None) != (v is None):
        raise ValueError("k and v: one is given, the other is not")
    if block_table is not None:
        _shaped("block_table", block_table, rows, None)
        block_table = block_table.int()
    cache = _apart(k_cache, v_cache, block_table)
    lengths = cache_seqlens.int()
    if k is not None and v is not None:
        _shaped("k", k, rows, 1, k_cache.shape[2], dim)
        _shaped("v", v, *k.shape)
        lengths = lengths + 1
    logits = _logits(q, softmax_scale, window_size, softcap)
    sinks = None if s_aux is None else s_aux.float()
    made = []
    for here in pieces_of(rows, cache):
        part, seen = cache_of(cache, here), lengths[here]
        plan = ft.plan(seen, dtype=q.dtype, q_heads=q.shape[2], cache=part, window=logits.window)
        if k is not None and v is not None:
            ft.append_kv(k[here, 0], v[here, 0], part, seen)
        made.append(ft.attention(q[here, 0], part, seen, plan=plan, logits=logits, sinks=sinks))
    return joined(made)[:, None]


# ---- Rows of any number of query tokens, one behind the other ------------------------------------


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor,
                           cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int, *,
                           softmax_scale: Optional[float] = None, causal: bool = False,
                           window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                           s_aux: Optional[Tensor] = None) -> Tensor:
    """Returns the attention of rows that lie one behind the other: q is [tokens, heads, head_dim],
    k and v are [tokens, kv_heads, head_dim], and cu_seqlens_q and cu_seqlens_k, int32 [rows + 1],
    say where each row begins. A row's last query token sees its last key. The results of tokens
    behind the last row are zeros."""
    _shaped("q", q, None, None, None)
    _shaped("k", k, None, None, q.shape[2])
    _shaped("v", v, *k.shape)
    _alike(q, k=k, v=v)
    _counts(q, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    _shaped("cu_seqlens_q", cu_seqlens_q, None)
    _shaped("cu_seqlens_k", cu_seqlens_k, *cu_seqlens_q.shape)
    if not causal:
        raise NotImplementedError("causal is False: figraph's rows see no token behind their own")
    logits = _logits(q, softmax_scale, window_size, softcap)
    sinks = None if s_aux is None else s_aux.float()
    if int(max_seqlen_q) == 1 or (q.is_cuda and torch.cuda.is_current_stream_capturing()):
        return _each_token(q, k, v, cu_seqlens_q, cu_seqlens_k, int(max_seqlen_k), logits, sinks)
    return _rows_apart(q, k, v, cu_seqlens_q.tolist(), cu_seqlens_k.tolist(), logits, sinks)


def _each_token(q: Tensor, k: Tensor, v: Tensor, begin_q: Tensor, begin_k: Tensor, longest: int,
                logits: ft.Logits, sinks: Optional[Tensor]) -> Tensor:
    """Makes each query token a row. Nothing is copied to the host, so a graph can capture the call,
    but the keys of a prompt are read once for each of its tokens."""
    token = torch.arange(q.shape[0], device=q.device)
    row = torch.searchsorted(begin_q[1:].contiguous(), token.to(begin_q.dtype), right=True)
    is_real = row < begin_q.shape[0] - 1
    row = row.clamp(max=begin_q.shape[0] - 2)
    behind = begin_q[row + 1] - 1 - token  # number of later query tokens in the same row
    lengths = torch.where(is_real, begin_k[row + 1] - begin_k[row] - behind, 0).int()
    width = max(longest, 1) + -max(longest, 1) % TABLE_STEP
    places = torch.arange(width, dtype=torch.int32, device=q.device)
    table = begin_k[row].int()[:, None] + places
    cache = ft.Cache(k[:, None], v[:, None], table)
    return attend_rows(q, cache, lengths, logits=logits, sinks=sinks)


def _rows_apart(q: Tensor, k: Tensor, v: Tensor, begin_q: list[int], begin_k: list[int],
                logits: ft.Logits, sinks: Optional[Tensor]) -> Tensor:
    """Passes the rows of one query token to figraph together, and each prompt to torch."""
    out = torch.zeros_like(q)
    single: list[int] = []
    for row in range(len(begin_q) - 1):
        here = slice(begin_q[row], begin_q[row + 1])
        if here.stop - here.start == 1:
            single.append(row)
        elif here.stop > here.start:
            there = slice(begin_k[row], begin_k[row + 1])
            one, keys, values = (x.transpose(0, 1)[None] for x in (q[here], k[there], v[there]))
            mask = _prompt_mask(one.shape[2], keys.shape[2], logits.window, q.device)
            out[here] = attend_prompt(one, keys, values, mask, scale=logits.scale,
                                      soft_cap=logits.soft_cap, sinks=sinks)[0]
    if single:
        at = torch.tensor([begin_q[row] for row in single], device=q.device)
        starts = torch.tensor([begin_k[row] for row in single], dtype=torch.int32, device=q.device)
        counts = [begin_k[row + 1] - begin_k[row] for row in single]
        width = max(counts) + -max(counts) % TABLE_STEP
        table = starts[:, None] + torch.arange(width, dtype=torch.int32, device=q.device)
        lengths = torch.tensor(counts, dtype=torch.int32, device=q.device)
        cache = ft.Cache(k[:, None], v[:, None], table)
        out[at] = attend_rows(q[at], cache, lengths, logits=logits, sinks=sinks)
    return out


def _prompt_mask(queries: int, keys: int, window: int, device: torch.device) -> Optional[Tensor]:
    """Returns the mask of a prompt whose last query token is its last key, or None if torch's own
    causal mask is the same."""
    if queries == keys and not 0 < window < keys:
        return None
    behind = torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(
        keys, device=device)
    return (behind >= 0) & (behind < window) if window else behind >= 0
