"""latent_decode.py: attention of a few queries per row over the latent pages (MLA) of a serving
engine.

The server appends the tokens to the pages, and multiplies q and out by the two parts of kv_b_proj.
Prompts are left to the server. Invariant: that of paged_decode.py.
"""

from __future__ import annotations

from typing import Optional, Union

import torch
from torch import Tensor

from .. import latents, operands
from .. import torch as ft
from .paged_decode import Batch, Layer

ROW_LIMIT = operands.ROW_TOKENS_LIMIT  # queries of a row
KEY_DIM, CODE_BYTES = latents.KEY_DIM, latents.CODE_BYTES  # of a token; of a token of codes


def refusal(q_heads: int, latent_dim: int, rope_dim: int) -> Optional[str]:
    """Returns the reason why figraph has no kernel for layers of this shape, or None if it has
    one."""
    if (latent_dim, rope_dim) != (latents.LATENT_DIM, latents.ROPE_DIM):
        return (f"tokens of {latent_dim} + {rope_dim} values, they must have "
                f"{latents.LATENT_DIM} + {latents.ROPE_DIM}")
    if not 0 < q_heads <= latents.HEAD_LIMIT or q_heads % latents.HEAD_UNIT != 0:
        return (f"{q_heads} query heads, they must be a multiple of {latents.HEAD_UNIT}, limit "
                f"{latents.HEAD_LIMIT}")
    return None


def _is_aligned(part: Tensor) -> bool:
    """Returns whether the values of each head lie side by side, from a multiple of 16 bytes on."""
    steps = [step * part.itemsize for size, step in zip(part.shape[:-1], part.stride()) if size > 1]
    return (part.stride(-1) == 1 and part.data_ptr() % 16 == 0
            and all(step > 0 and step % 16 == 0 for step in steps))


def parts_of(q: Union[Tensor, tuple[Tensor, Tensor]]) -> tuple[Tensor, Optional[Tensor]]:
    """Returns the arguments q and q_rope of latent_attention for q, or for its first 512 and its
    last 64 values. Parts that the fast kernels cannot read in place are joined by a copy."""
    if isinstance(q, Tensor):
        return q, None
    return q if all(map(_is_aligned, q)) else (torch.cat(q, dim=-1), None)


def layer_of(q_heads: int, scale: float) -> Layer:
    """Returns the parameters of a layer. All its heads share one vector for each token."""
    return Layer(q_heads, 1, KEY_DIM, ft.Logits(scale))


class LatentBatch(Batch):
    """The rows of a decode step over latent pages. Rows of several queries need query_start_loc."""

    def attend_latents(self, layer: Layer, q: Union[Tensor, tuple[Tensor, Tensor]],
                       pages: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the attention of q, [tokens, heads, 576], as [tokens, heads, 512], and its
        log-sum-exp to base 2, float32 [tokens, heads]. q may be two tensors, its first 512 and its
        last 64 values. pages: [pages, tokens, 576] of q's dtype, or uint8 [pages, tokens, 656] of
        codes; they hold this step's tokens already."""
        self._enter(layer)
        cache, (first, q_rope) = ft.LatentCache(pages, self.page_table), parts_of(q)
        self._count(first)
        return ft.latent_attention(first, cache, self._read, plan=self._plan(layer, first, cache),
                                   logits=layer.logits, with_lse=True, q_rope=q_rope,
                                   deterministic=self._deterministic, **self._rows())
