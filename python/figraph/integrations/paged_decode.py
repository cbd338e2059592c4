"""paged_decode.py: attention of a few queries per row over the pages of a serving engine.

In a forward pass, the layers of a server compute attention one after the other over the same rows.
The first layer of a pass makes the plan. If the server captures a graph, planning is part of it,
and each replay plans again from the current lengths in the tensors. Invariant: no plan outlives its
pass. When a layer is called a second time, a new pass begins, even if the server uses the same
metadata for several passes, as it does for a loop of drafts in one graph.
"""

from __future__ import annotations

import logging
from typing import Any, Optional, Union

import torch
from torch import Tensor

from .. import operands
from .. import torch as ft
from .counts import counts

VECTOR_LIMIT = 64  # the most queries of a row for one kv head that kernels on tensor cores take
TOKEN_LIMIT = 1 << 20  # tokens of a row; figraph.torch treats a longer row as idle


class Once:
    """A logger that writes each message only once."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)
        self.said: set[str] = set()

    def warning(self, message: str, *arguments: object) -> None:
        sentence = message % arguments
        if sentence not in self.said:
            self.said.add(sentence)
            self._logger.warning("%s", sentence)


def _kept(own: Optional[Tensor], given: Optional[Tensor], device: torch.device) -> Optional[Tensor]:
    if given is None:
        return None
    if own is None:
        return given.detach().to(device, torch.float32, copy=True)
    return own.copy_(given.detach())


class Layer:
    """The parameters of one layer's attention."""

    def __init__(self, q_heads: int, kv_heads: int, head_dim: int, logits: ft.Logits) -> None:
        self.q_heads, self.kv_heads, self.head_dim = q_heads, kv_heads, head_dim
        self.logits = logits
        self.alibi: Optional[Tensor] = None
        self.sinks: Optional[Tensor] = None

    def load(self, alibi: Optional[Tensor], sinks: Optional[Tensor], device: torch.device) -> None:
        """Stores alibi and sinks, one number per head, in float32. Captured graphs read the tensors
        of the first call, so later calls write into those tensors."""
        self.alibi = _kept(self.alibi, alibi, device)
        self.sinks = _kept(self.sinks, sinks, device)

    def refusal(self, dtype: torch.dtype, kv_dtype: torch.dtype, page_size: int,
                row_tokens: int = 1, tokens: Optional[int] = None) -> Optional[str]:
        """Returns the reason why figraph has no kernel for this layer, or None if it has one."""
        names = operands.dtype_name(dtype), operands.dtype_name(kv_dtype)
        if names[0] not in operands.ACTIVATIONS or names[1] not in (names[0], *operands.NARROW):
            return f"queries of {names[0]} over a cache of {names[1]}"
        vectors = row_tokens * self.q_heads // max(self.kv_heads, 1)
        if row_tokens > 1 and vectors > VECTOR_LIMIT:
            return f"{vectors} queries of a kv head in a row, limit {VECTOR_LIMIT}"
        form = operands.Form(1, self.kv_heads, self.head_dim, page_size, page_size,
                             operands.CACHES[names[1]], row_tokens, tokens)
        try:
            operands.scratch_bytes(dtype, self.q_heads, form, self.logits.window)
        except (TypeError, ValueError, NotImplementedError) as error:
            return str(error)
        return None


class Batch:
    """The rows of a decode step, with one query each, or with 0 to row_tokens.

    lengths: int32 [rows], this step's tokens included; 0 is an idle row. page_table: int32 [rows,
    pages per row]. slots: int64 [tokens or more], the places where the server stores the tokens. A
    row whose first slot is negative is idle, because its page table may belong to a row that has
    ended. query_start_loc: int32 [rows + 1], the first query of each row, for rows of up to
    row_tokens queries; `tokens` is then the most queries of all rows together. Without it each row
    has row_tokens queries. deterministic: the bits of a row's result depend on its own length but
    not on other rows.
    """

    def __init__(self, lengths: Tensor, page_table: Tensor, slots: Optional[Tensor] = None, *,
                 row_tokens: int = 1, deterministic: bool = False,
                 query_start_loc: Optional[Tensor] = None, tokens: int = 0) -> None:
        self.lengths, self.page_table, self._slots = lengths, page_table, slots
        self.rows, self.row_tokens = lengths.shape[0], row_tokens
        self.tokens = self.rows * row_tokens if query_start_loc is None else tokens
        self._starts = query_start_loc
        self._deterministic = deterministic
        self._read = lengths
        self._plans: dict[object, ft.Plan] = {}
        self._seen: set[int] = set()

    def excess(self, layer: Layer, page_size: int) -> Optional[str]:
        """Returns the reason why one call cannot take all rows, or None if it can."""
        most = operands.rows_at_most(layer.kv_heads, self.page_table.shape[1] * page_size)
        return None if self.rows <= most else f"a batch of more than {most} rows"

    def begin(self) -> None:
        """Begins a new pass, for servers that report the beginning of a pass."""
        self._seen.clear()

    def _enter(self, layer: Layer) -> None:
        """Records that a layer is called; if it was already called in this pass, a new pass
        begins."""
        if id(layer) in self._seen:
            self.begin()
        if not self._seen:
            self._plans.clear()
            self._read = self._busy_lengths()
        self._seen.add(id(layer))

    def _busy_lengths(self) -> Tensor:
        """Returns the lengths, with 0 for each row that has no slot. One kernel does this if all
        rows have the same number of queries, because the upper half of a 64-bit slot is 0 or -1.
        """
        if self._slots is None:
            return self.lengths
        upper = self._slots[: self.tokens].view(torch.int32)[1::2]
        if self._starts is None:
            upper = upper[:: self.row_tokens]
        else:  # a row without queries is idle, whatever slot is looked at
            upper = upper.index_select(0, self._starts[:-1].clamp(0, self.tokens - 1))
        return torch.addcmul(self.lengths, self.lengths, upper)

    def _rows(self) -> dict[str, Any]:
        """Returns the arguments that say how many queries each row has."""
        if self._starts is None:
            return {}
        return dict(query_start_loc=self._starts, row_tokens=self.row_tokens)

    def _room(self) -> dict[str, Any]:
        if self._starts is None:
            return dict(row_tokens=self.row_tokens)
        return dict(self._rows(), tokens=self.tokens)

    def _plan(self, layer: Layer, q: Tensor, cache: Union[ft.Cache, ft.LatentCache]) -> ft.Plan:
        held = cache[0]  # keys, or latents
        key = (layer.logits.window, layer.q_heads, tuple(held.shape[1:]), q.dtype, held.dtype)
        if key not in self._plans:
            counts.plans += 1
            self._plans[key] = ft.plan(self._read, dtype=q.dtype, q_heads=layer.q_heads,
                                       cache=cache, window=layer.logits.window,
                                       deterministic=self._deterministic, **self._room())
        return self._plans[key]

    def _by_row(self, tensor: Tensor) -> Tensor:
        """Returns tokens [rows * row_tokens, ...] as [rows, row_tokens, ...], or as they are if a
        row has one."""
        if self.row_tokens == 1 or self._starts is not None:
            return tensor
        return tensor.unflatten(0, (self.rows, self.row_tokens))

    def _count(self, q: Tensor) -> None:
        counts.attended += 1
        counts.captured += q.is_cuda and torch.cuda.is_current_stream_capturing()

    def attend(self, layer: Layer, q: Tensor, cache: ft.Cache, out: Tensor,
               new: Optional[tuple[Tensor, Tensor]] = None) -> None:
        """Writes the attention of q, [tokens, heads, head_dim], into out. cache: a paged cache
        without its page table. new: the keys and values of this step's tokens, [tokens, kv_heads,
        head_dim], which the same launch appends; without `new`, the server has stored them already.
        The tensors may have more tokens than this step; these are left unchanged."""
        self._enter(layer)
        q, out = (self._by_row(x[: self.tokens]) for x in (q, out))
        cache = cache._replace(page_table=self.page_table)
        asked = dict(plan=self._plan(layer, q, cache), logits=layer.logits, alibi=layer.alibi,
                     sinks=layer.sinks, deterministic=self._deterministic, out=out,
                     **self._rows())
        self._count(q)
        if new is None:
            ft.attention(q, cache, self._read, **asked)
        else:
            k, v = (self._by_row(x[: self.tokens]) for x in new)
            ft.decode_attention(q, k, v, cache, self._read, rope=None, **asked)
