"""python_jax_flash.py: figraph.jax.flash_attention on the CPU, against float64, mask by mask.

Run where jax and figraph can be imported.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../support"), os.path.join(HERE, "../jax")]
import cases  # noqa: E402
import figraph.jax as fj  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from cases import close  # noqa: E402
from sentences import refused, run  # noqa: E402

BATCH, TOKENS, Q, KV, DIM = (2, 3), 20, 4, 2, 64
numbers = np.random.default_rng(11)
QUERY = numbers.standard_normal((*BATCH, 1, Q, DIM)).astype(np.float32)
KEY, VALUE = numbers.standard_normal((2, *BATCH, TOKENS, KV, DIM)).astype(np.float32)
LENGTHS = np.array([[20, 1, 7], [0, 13, 19]], np.int32)
MASK = numbers.random((*BATCH, 1, 1, TOKENS)) < 0.4
HEADS = numbers.random((*BATCH, Q, 1, TOKENS)) < 0.4
IDS = numbers.integers(0, 3, (*BATCH, 1)), numbers.integers(0, 3, (*BATCH, TOKENS))
EVERY = np.ones((*BATCH, Q, TOKENS), bool)


def expected(seen, scale=None):
    """Each head of each row over the keys that it sees; seen: [..., heads, tokens]."""
    out = np.zeros(QUERY.shape)
    for at in np.ndindex(*BATCH, Q):
        *row, head = at
        keys = seen[at]
        own = (x[tuple(row)][keys, head // (Q // KV)][:, None] for x in (KEY, VALUE))
        one = QUERY[(*row, 0, head)][None]
        out[(*row, 0, head)] = cases.attention(one, *own, sm_scale=scale)[0]
    return out


def seen_by(mask=EVERY[..., None, :], lengths=None, window=0, ids=None):
    seen = np.broadcast_to(mask[..., 0, :], EVERY.shape).copy()
    lengths = np.full(BATCH, TOKENS) if lengths is None else lengths
    last = lengths[..., None, None] - 1
    seen &= np.arange(TOKENS) <= last
    if window > 0:
        seen &= np.arange(TOKENS) > last - window
    if ids is not None:
        seen &= (ids[0] == ids[1])[..., None, :]
    return seen


def every_mask_does_what_it_says():
    padding = np.arange(TOKENS) < LENGTHS[..., None, None, None]
    flash = jax.jit(fj.flash_attention, static_argnames=("window", "causal"))
    for mask in (padding, MASK, HEADS, MASK[:1], MASK & False):
        close(flash(QUERY, KEY, VALUE, mask), expected(seen_by(mask)), 1e-5)
    for mask in (MASK, HEADS):
        out = flash(QUERY, KEY, VALUE, mask, lengths=LENGTHS, window=5)
        close(out, expected(seen_by(mask, LENGTHS, 5)), 1e-5)


def windows_segments_and_causal_do_too():
    for options in (dict(), dict(lengths=LENGTHS), dict(window=6), dict(lengths=LENGTHS, window=3)):
        for ids, causal in ((None, True), (IDS, False)):
            out = fj.flash_attention(QUERY, KEY, VALUE, segment_ids=ids, causal=causal, **options)
            close(out, expected(seen_by(ids=ids, **options)), 1e-5)


def batches_may_have_any_dims_and_be_mapped():
    one = fj.flash_attention(QUERY[0, 0], KEY[0, 0], VALUE[0, 0])
    close(one, expected(EVERY)[0, 0], 1e-5)
    mapped = jax.vmap(fj.flash_attention)(QUERY, KEY, VALUE, MASK)
    close(mapped, expected(seen_by(MASK)), 1e-5)
    twice = jax.vmap(jax.vmap(fj.flash_attention), (0, None, None))(QUERY, KEY[1], VALUE[1])
    close(twice[1], expected(EVERY)[1], 1e-5)


def types_and_scale_are_as_asked():
    half = [jnp.asarray(x).astype(jnp.bfloat16) for x in (QUERY, KEY, VALUE)]
    out = fj.flash_attention(*half, dtype=jnp.float32)
    assert out.dtype == jnp.float32 and fj.flash_attention(*half).dtype == jnp.bfloat16
    close(out, expected(EVERY), 0.05)
    close(fj.flash_attention(QUERY, KEY, VALUE, scale=0.3), expected(EVERY, 0.3), 1e-5)


def what_it_cannot_do_is_refused():
    flash = fj.flash_attention
    refused("has no dropout", lambda: flash(QUERY, KEY, VALUE, dropout_rate=0.1),
            (NotImplementedError,))
    flash(QUERY, KEY, VALUE, dropout_rate=0.1, deterministic=True)
    refused("query is [2, 3, 20, 2, 64]: figraph decodes", lambda: flash(KEY, KEY, VALUE),
            (NotImplementedError,))
    refused("mask is float32", lambda: flash(QUERY, KEY, VALUE, MASK.astype(np.float32)),
            (TypeError,))
    refused("mask is [2, 3, 1, 1, 19], it must be [2, 3, 1, 1, 20]",
            lambda: flash(QUERY, KEY, VALUE, MASK[..., :19]), (ValueError,))
    refused("mask is [2, 3, 2, 1, 20], it must be [2, 3, 4, 1, 20]",
            lambda: flash(QUERY, KEY, VALUE, HEADS[:, :, :2]), (ValueError,))
    refused("segment_ids[1] is [2, 3, 19]",
            lambda: flash(QUERY, KEY, VALUE, segment_ids=(IDS[0], IDS[1][..., :19])))
    refused("value is [2, 3, 20, 2, 32], it must be [2, 3, 20, 2, 64]",
            lambda: flash(QUERY, KEY, VALUE[..., :32]), (ValueError,))
    refused("key is float16", lambda: flash(QUERY, KEY.astype(np.float16), VALUE), (TypeError,))
    refused("window is 2.5", lambda: flash(QUERY, KEY, VALUE, window=2.5), (TypeError,))
    refused("", lambda: jax.grad(lambda q: flash(q, KEY, VALUE).sum())(QUERY), (Exception,))


run([
    every_mask_does_what_it_says,
    windows_segments_and_causal_do_too,
    batches_may_have_any_dims_and_be_mapped,
    types_and_scale_are_as_asked,
    what_it_cannot_do_is_refused,
])
