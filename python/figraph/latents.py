"""latents.py: checks the arguments of attention over latent caches (MLA) in figraph.jax and
figraph.torch.

Invariant: that of operands.py.
"""

from __future__ import annotations

from typing import Optional

from . import operands
from .operands import ACTIVATIONS, Array, Form, LatentCache, Logits, Rope, Starts, shaped, typed

LATENT_DIM, KEY_DIM, CODE_BYTES = 512, 576, 656  # of out; of q and of a token; of a token of codes
ROPE_DIM = KEY_DIM - LATENT_DIM
HEAD_UNIT, HEAD_LIMIT = 8, 128


def form_of(dtype: str, rows: int, cache: LatentCache, row_tokens: int = 1) -> Form:
    """Checks a latent cache for q of this dtype and returns its form. The cache may have more
    rows."""
    shaped("cache.latents", cache.latents, None, None, None)
    own = typed("cache.latents", cache.latents, [dtype, "uint8"])
    if own == "uint8" and dtype == "float32":
        raise TypeError("cache.latents is uint8, but q is float32, it must be float16 or bfloat16")
    shaped("cache.latents", cache.latents, None, None, CODE_BYTES if own == "uint8" else KEY_DIM)
    kind = "e4m3" if own == "uint8" else ACTIVATIONS[dtype]
    tokens = cache.latents.shape[1]
    if cache.page_table is None:
        operands.at_least("cache.latents", cache.latents, rows)
        return Form(rows, 1, KEY_DIM, 0, tokens, kind, row_tokens, latent_dim=LATENT_DIM)
    kv_length = operands.table_pages(cache.page_table, rows) * tokens
    return Form(rows, 1, KEY_DIM, tokens, kv_length, kind, row_tokens, latent_dim=LATENT_DIM)


def sound_logits(logits: Logits) -> None:
    """Raises if a field is impossible over a latent cache, for which q has no natural scale."""
    operands.sound_logits(logits)
    if logits.scale == 0:
        raise ValueError("logits.scale is 0, it must be given for a latent cache")
    if logits.soft_cap != 0:
        raise ValueError(f"logits.soft_cap is {logits.soft_cap}, it must be 0 for a latent cache")


def _valued(q: Array, q_rope: Optional[Array]) -> None:
    """Checks that q, or both of its parts, have the values of a token."""
    if q_rope is None:
        shaped("q", q, *q.shape[:-1], KEY_DIM)
        return
    if q.shape[-1] != LATENT_DIM:
        raise ValueError(f"q is {list(q.shape)}, its last dim must be {LATENT_DIM} beside q_rope")
    typed("q_rope", q_rope, [operands.dtype_name(q.dtype)])
    shaped("q_rope", q_rope, *q.shape[:-1], ROPE_DIM, like="q")


def attended(q: Array, cache: LatentCache, lengths: Array, sinks: Optional[Array],
             starts: Starts = Starts(), q_rope: Optional[Array] = None) -> Form:
    """Checks the arguments of latent_attention and returns the cache's form."""
    dtype, rows, row_tokens = operands.rows_of("q", q, lengths, starts)
    _valued(q, q_rope)
    if not 0 < q.shape[-2] <= HEAD_LIMIT or q.shape[-2] % HEAD_UNIT != 0:
        raise ValueError(f"q is {list(q.shape)}, its heads must be a multiple of {HEAD_UNIT}, "
                         f"limit {HEAD_LIMIT}")
    form = form_of(dtype, rows, cache, row_tokens)
    if starts.query_start_loc is None:
        operands.lengths_of(lengths, rows, "q")
    operands.per_head("sinks", sinks, q)
    return operands.packed_form(form, starts, q.shape[0])


def appended(latent: Array, norm: Optional[Array], q: Array) -> None:
    """Checks the new tokens of latent_decode and the weight of their norm."""
    dtype = operands.dtype_name(q.dtype)
    typed("latent", latent, [dtype])
    shaped("latent", latent, *q.shape[:-2], KEY_DIM, like="q")
    if norm is not None:
        typed("norm", norm, [dtype])
        shaped("norm", norm, LATENT_DIM)


def turned(positions: Optional[Array], cos_sin: Optional[Array], rope: Rope, q: Array,
           form: Form) -> None:
    """Checks how latent_decode rotates the values behind the latent."""
    if rope.rotary_dim not in (0, ROPE_DIM):
        raise ValueError(f"rope.rotary_dim is {rope.rotary_dim}, it must be {ROPE_DIM}")
    count = q.shape[0] if form.is_packed else form.rows * form.row_tokens
    rope = rope._replace(rotary_dim=ROPE_DIM)
    operands.placed(positions, count, cos_sin, rope, ROPE_DIM)
    operands.sound_rope(ROPE_DIM, *rope)
