"""pages.py: a cache of transformers whose tokens lie in pages, for attn_implementation="figraph".

HF pads prompts on the left and keeps the padding in its caches. Here a row's tokens lie one behind
the other from its first page on, so padding costs neither memory nor time, and a length describes
the visible tokens of a row. Invariant: a layer's update() only passes its tokens on. The attention
function writes them, because only it gets the mask, which shows the padding.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

import figraph.torch as ft
from transformers.cache_utils import Cache, CacheLayerMixin

from ... import abi, errors
from ...integers import integer
from ...operands import rows_at_most
from .prefill import attend_prompt


class Kept(NamedTuple):
    """The object that PagedLayer.update passes to the attention function in place of keys."""

    layer: "PagedLayer"
    keys: Tensor  # only those of this call, [rows, kv_heads, tokens, head_dim]


class PagedLayer(CacheLayerMixin):
    """One layer of a PagedCache."""

    is_compileable = True
    is_sliding = False
    is_croppable = False
    supports_early_init = False

    def __init__(self, owner: "PagedCache", index: int) -> None:
        super().__init__()
        self.owner, self.index = owner, index
        shape = (owner.table.numel(), owner.page, owner.kv_heads, owner.head_dim)
        self.keys = torch.zeros(shape, dtype=owner.dtype, device=owner.device)
        self.values = torch.zeros_like(self.keys)
        self.cache = ft.Cache(self.keys, self.values, owner.table)
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing, because the cache allocates its memory when it is made."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any,
               **kwargs: Any) -> tuple[Any, Tensor]:
        """Checks the tokens of this call and passes them on to the attention function."""
        self.owner.check(key_states, value_states)
        if self.index == 0:
            self.owner.grow(key_states.shape[2])
        return Kept(self, key_states), value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Returns the length and the offset of a mask. A mask covers only the prompt."""
        return query_length, 0

    def get_seq_length(self) -> Any:
        """Returns the number of tokens that HF has passed, padding included."""
        return self.owner.columns

    def get_max_length(self) -> int:
        """Returns the largest number of tokens of a row."""
        return self.owner.max_tokens

    def reset(self) -> None:
        """Makes all rows empty."""
        self.owner.empty()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Refuses beam search, because rows cannot share pages."""
        raise NotImplementedError("PagedCache does not reorder its rows: beam search needs another "
                                  "cache")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Refuses copies of rows."""
        raise NotImplementedError("PagedCache does not repeat its rows: give it each prompt "
                                  "num_return_sequences times")

    def batch_select_indices(self, indices: Tensor) -> None:
        """Refuses to select rows."""
        raise NotImplementedError("PagedCache does not select rows")


class PagedCache(Cache):
    """The keys and values of a model with attn_implementation="figraph", in pages.

    Give it to model.generate or to the model's forward as past_key_values. rows is the batch's
    size; max_tokens counts a row's prompt, without its padding, and its new tokens. The first call
    takes the prompts, and each later call takes one token per row; call reset() before the next
    prompts.
    """

    def __init__(self, model: Any, *, rows: int, max_tokens: int, page: int = 16) -> None:
        config = model.config.get_text_config(decoder=True)
        for name, value in (("rows", rows), ("max_tokens", max_tokens), ("page", page)):
            if integer(name, value) < 1:
                raise ValueError(f"{name} is {value}, it must be at least 1")
        if config._attn_implementation != "figraph":
            raise ValueError(f'model has attn_implementation="{config._attn_implementation}", a '
                             'PagedCache needs "figraph"')
        weight = model.get_input_embeddings().weight
        self.rows, self.max_tokens, self.page = rows, max_tokens, page
        self.dtype, self.device = weight.dtype, weight.device
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        row_pages = -(-max_tokens // page)
        most = rows_at_most(self.kv_heads, row_pages * page)
        if rows > most:
            raise errors.of(abi.FIG_TOO_LARGE, f"rows is {rows}, a PagedCache of {self.kv_heads} "
                            f"KV heads and {row_pages * page} tokens takes at most {most}")
        table = torch.arange(rows * row_pages, dtype=torch.int32, device=self.device)
        self.table = table.view(rows, row_pages)
        self.lengths = torch.zeros(rows, dtype=torch.int32, device=self.device)
        self.columns = torch.zeros((), dtype=torch.int64, device=self.device)
        self._has_prompt, self._longest = False, 0
        self._plans: dict[int, ft.Plan] = {}
        self._slots: Optional[Tensor] = None  # during the call of a prompt: the slots of its tokens
        self._seen: Optional[Tensor] = None  # likewise: which tokens are not padding
        super().__init__(layers=[PagedLayer(self, n) for n in range(config.num_hidden_layers)])
        for tensor in (self.table, self.lengths, self.columns):
            torch._dynamo.mark_static_address(tensor)
        for layer in self.layers:
            torch._dynamo.mark_static_address(layer.keys)
            torch._dynamo.mark_static_address(layer.values)

    def check(self, keys: Tensor, values: Tensor) -> None:
        """Raises if tokens have another shape, dtype or device than the cache."""
        for name, given in (("key_states", keys), ("value_states", values)):
            rows, heads, _, dim = given.shape
            if (rows, heads, dim) != (self.rows, self.kv_heads, self.head_dim):
                raise ValueError(f"{name} is {list(given.shape)}, the PagedCache has {self.rows} "
                                 f"rows, {self.kv_heads} heads and a head_dim of {self.head_dim}")
            if given.dtype != self.dtype:
                raise TypeError(f"{name} is {given.dtype}, the PagedCache is {self.dtype}")
            if given.device != self.device:
                raise ValueError(f"{name} is on {given.device}, the PagedCache is on {self.device}")

    def grow(self, tokens: int) -> None:
        """Begins a call with `tokens` tokens per row."""
        self.columns.add_(tokens)
        if tokens == 1 and self._has_prompt:
            self.lengths.add_(1)
            if not torch.compiler.is_compiling():
                self._longest += 1
                self._refuse_longer()
        elif self._has_prompt:
            raise errors.of(abi.FIG_ORDER, f"the PagedCache has a prompt already, and was given "
                            f"{tokens} tokens a row: call reset() first, or go on token by token")

    def _refuse_longer(self) -> None:
        if self._longest > self.max_tokens:
            raise errors.of(abi.FIG_TOO_LARGE, f"a row has {self._longest} tokens, max_tokens is "
                            f"{self.max_tokens}")

    def place(self, queries: int, mask: Optional[Tensor]) -> None:
        """Finds the slots of a prompt's tokens, which are stored one behind the other without
        padding. mask is HF's, bool [rows or 1, 1, queries, queries], or None. In this mask a
        padding token does not see itself."""
        seen = self.table.new_ones(self.rows, queries, dtype=torch.bool)
        if mask is not None:
            seen = seen & mask.diagonal(dim1=-2, dim2=-1)[:, 0]
        lengths = seen.sum(-1)
        self._longest = int(lengths.max())
        self._refuse_longer()
        positions = seen.cumsum(-1) - 1
        at = positions.clamp(min=0)
        pages = self.table.long().gather(1, at // self.page)
        self._slots, self._seen = pages * self.page + at % self.page, seen
        self.lengths.copy_(lengths)

    def write(self, layer: PagedLayer, keys: Tensor, values: Tensor) -> None:
        """Writes a prompt's tokens into a layer's pages."""
        assert self._slots is not None and self._seen is not None
        slots = self._slots[self._seen]
        layer.keys.flatten(0, 1)[slots] = keys.transpose(1, 2)[self._seen]
        layer.values.flatten(0, 1)[slots] = values.transpose(1, 2)[self._seen]

    def end(self) -> None:
        """Ends a call, after the last layer has read the tokens."""
        self._has_prompt = True
        self._slots = self._seen = None
        self._plans.clear()

    def plan(self, layer: PagedLayer, window: int) -> ft.Plan:
        """Returns the plan of this step, which all layers with the same window share."""
        if window not in self._plans:
            self._plans[window] = ft.plan(self.lengths, dtype=self.dtype, q_heads=self.heads,
                                          cache=layer.cache, window=window)
        return self._plans[window]

    def empty(self) -> None:
        """Makes all rows empty, for the next prompt."""
        self.lengths.zero_()
        self.columns.zero_()
        self._plans.clear()
        self._has_prompt, self._longest = False, 0


def attend_kept(query: Tensor, kept: Kept, values: Tensor, mask: Optional[Tensor],
                logits: ft.Logits, sinks: Optional[Tensor], dropout: float) -> Tensor:
    """Writes the tokens of this call into a layer's pages; returns the attention over the row's
    tokens as [rows, queries, heads, head_dim]."""
    layer, keys = kept
    owner = layer.owner
    is_last = layer.index + 1 == len(owner.layers)
    if owner._has_prompt:
        ft.append_kv(keys[:, :, 0], values[:, :, 0], layer.cache, owner.lengths)
        out = ft.attention(query[:, :, 0], layer.cache, owner.lengths, logits=logits,
                           plan=owner.plan(layer, logits.window),
                           sinks=None if sinks is None else sinks.float())[:, None]
        if torch.compiler.is_compiling():  # no exception is possible here, so use NaN
            out = out.masked_fill((owner.lengths > owner.max_tokens)[:, None, None, None],
                                  float("nan"))
    else:
        if mask is not None and mask.dtype == torch.int32:  # a prompt of one token
            mask = (mask[..., :1] > 0)
        if layer.index == 0:
            owner.place(query.shape[2], mask)
        owner.write(layer, keys, values)
        out = attend_prompt(query, keys, values, mask, scale=logits.scale,
                            soft_cap=logits.soft_cap, sinks=sinks, dropout=dropout)
    if is_last:
        owner.end()
    return out
