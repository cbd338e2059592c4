"""prompt_batch.py: attention of prompts, and of rows beside them, over the pages of a server.

The server knows the lengths on the host, so the host makes the plan, once for all layers with the
same heads and window. Invariant: no graph captures such a batch, because its replays would have the
rows of this step.
"""

from __future__ import annotations

from typing import Optional, Sequence

import torch
from torch import Tensor

from .. import operands
from .. import torch as ft
from .counts import counts
from .paged_decode import Layer

ANY_NUMBER = 0  # stands for the most queries of a row: there is no limit
WARPGROUPS = (9, 0)  # only on this compute capability is figraph faster than a server's own kernels
DIMS = (64, 96, 128, 256)  # the head_dims of the kernels for it


def _column(head_dim: int) -> int:
    """Returns the number of dims that these kernels load at once."""
    return 64 if head_dim % 64 == 0 else 32


def _is_reached(layer: Layer, side: Tensor) -> bool:
    """Returns True if these kernels can address all heads of a cache, [pages, tokens, heads,
    head_dim]. They can if the heads of a token lie at multiples of a column, or divide a page into
    equal parts."""
    page, token, head, _ = side.stride()
    span = head * (layer.kv_heads - 1) + layer.head_dim
    return (layer.kv_heads == 1 or page == head * layer.kv_heads
            or (head % _column(layer.head_dim) == 0 and span <= token))


def slowness(layer: Layer, side: Tensor, capability: tuple[int, int]) -> Optional[str]:
    """Returns the reason why a GPU could only use the plain kernels for this cache, which are
    slower than the server's own kernels; None if it can use the fast ones."""
    if capability != WARPGROUPS or layer.head_dim not in DIMS:
        return f"prompts with heads of {layer.head_dim} on compute capability {capability}"
    if not _is_reached(layer, side):
        return f"prompts over a cache with strides {list(side.stride())}"
    return None


def refusal(layer: Layer, dtype: torch.dtype, kv_dtype: torch.dtype,
            cache: ft.Cache) -> Optional[str]:
    """Returns the reason why figraph does not serve prompts of this layer, or None if it does.
    cache: a cache without its page table, whose k and v have the same strides."""
    name, kind = operands.dtype_name(dtype), operands.dtype_name(kv_dtype)
    if layer.alibi is not None:
        return "prompts with ALiBi"
    if name != kind or name not in ("float16", "bfloat16"):
        return f"prompts of {name} over a cache of {kind}"
    if cache.k.is_cuda:
        reason = slowness(layer, cache.k, torch.cuda.get_device_capability(cache.k.device))
        if reason is not None:
            return reason
    table = torch.empty(0, 1, dtype=torch.int32, device=cache.k.device)
    try:
        ft.plan_prompts([], [0], dtype=dtype, q_heads=layer.q_heads,
                        cache=ft.Cache(cache.k, cache.v, table), window=layer.logits.window)
    except (TypeError, ValueError, NotImplementedError) as error:
        return str(error)
    return None


class PromptBatch:
    """The rows of a step in which any row may have any number of queries.

    starts: the first query of each row, and the end of the last row's, as on the host. lengths: the
    tokens of each row, its queries included. page_table: int32 [rows, pages per row]. slots: int64
    [queries or more], the places where the server stores the tokens; a token with a negative slot
    is not stored.
    """

    row_tokens = ANY_NUMBER

    def __init__(self, starts: Sequence[int], lengths: Sequence[int], page_table: Tensor,
                 slots: Tensor, *, deterministic: bool = False) -> None:
        self.starts, self.lengths = list(starts), list(lengths)
        self.page_table, self.tokens = page_table, self.starts[-1]
        self._slots = slots[: self.tokens]
        self._deterministic = deterministic
        self._plans: dict[object, ft.PromptPlan] = {}
        self._places: dict[int, tuple[Tensor, Tensor]] = {}

    def _plan(self, layer: Layer, q: Tensor, cache: ft.Cache) -> ft.PromptPlan:
        key = (layer.logits.window, layer.q_heads, tuple(cache.k.shape[1:]))
        if key not in self._plans:
            counts.plans += 1
            self._plans[key] = ft.plan_prompts(self.lengths, self.starts, dtype=q.dtype,
                                               q_heads=layer.q_heads, cache=cache,
                                               window=layer.logits.window,
                                               deterministic=self._deterministic)
        return self._plans[key]

    def _place(self, page: int) -> tuple[Tensor, Tensor]:
        """Returns each token as a row with a length and a page. The page is the one that holds the
        token's slot. The length is the slot's place in that page, counted from 1, or 0 if the
        token has no slot. Layers share them."""
        if page not in self._places:
            slots = self._slots
            pages = slots.div(page, rounding_mode="floor")
            inside = (slots - pages * page + 1).mul_(slots >= 0).to(torch.int32)
            self._places[page] = inside, pages.clamp_(0).to(torch.int32)[:, None]
        return self._places[page]

    def attend(self, layer: Layer, q: Tensor, cache: ft.Cache, out: Tensor,
               new: Optional[tuple[Tensor, Tensor]] = None) -> None:
        """Writes the attention of q, [tokens, heads, head_dim], into out. cache: a paged cache
        without its page table. new: the keys and values of this step's tokens, [tokens, kv_heads,
        head_dim], which are appended before; without `new`, the server has stored them already. The
        tensors may have more tokens than this step; these are left unchanged."""
        counts.attended += 1
        if new is not None:
            inside, pages = self._place(cache.k.shape[1])
            ft.append_kv(*(x[: self.tokens] for x in new), cache._replace(page_table=pages), inside)
        paged = cache._replace(page_table=self.page_table)
        ft.prompt_attention(q, paged, self._plan(layer, q, paged), logits=layer.logits,
                            sinks=layer.sinks, out=out)
