"""python_jax_flash.py: compares figraph.jax.flash_attention on the CPU with float64, for each kind
of mask.

Run where jax and figraph can be imported.
"""

import dataclasses
import functools
import importlib.metadata
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
SEVERAL = numbers.standard_normal((*BATCH, 5, Q, DIM)).astype(np.float32)


def expected(seen, scale=None):
    """Computes each head of each row over the keys that it sees. seen: the mask [..., heads,
    tokens]."""
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


def windows_segments_and_causal_masks_do_too():
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


def by_ends(query, ends, window=0, scale=None, soft_cap=0.0):
    """Computes each query token over its first keys. ends: [..., tokens]."""
    out = np.zeros(query.shape)
    for at in np.ndindex(*query.shape[:-2]):
        *row, _ = at
        keys, values = (x[tuple(row)][: ends[at]] for x in (KEY, VALUE))
        out[at] = cases.attention(query[at], keys, values, window=window, sm_scale=scale,
                                  soft_cap=soft_cap)[0]
    return out


def tokens_are_the_last_of_their_sequence():
    """Tests numbers of tokens that are a multiple of the most that a row takes, and others."""
    for tokens in (2, 5, 8, 16, 19, 20):
        query = numbers.standard_normal((*BATCH, tokens, Q, DIM)).astype(np.float32)
        for lengths in (None, LENGTHS):
            of = np.full(BATCH, TOKENS, np.int32) if lengths is None else lengths
            own = of[..., None] - np.arange(tokens - 1, -1, -1)
            own = np.where(of[..., None] < tokens, 0, own)  # then the sequence has no such tokens
            for window in (0, 3):
                out = fj.flash_attention(query, KEY, VALUE, causal=True, lengths=lengths,
                                         window=window)
                close(out, by_ends(query, own, window), 1e-5)
            every = np.broadcast_to(of[..., None], own.shape)
            close(fj.flash_attention(query, KEY, VALUE, lengths=lengths), by_ends(query, every),
                  1e-5)
    mapped = jax.vmap(functools.partial(fj.flash_attention, causal=True))(query, KEY, VALUE)
    close(mapped, by_ends(query, np.broadcast_to(np.arange(1, 21), (*BATCH, 20))), 1e-5)
    close(fj.flash_attention(query, KEY, VALUE, scale=0.3),
          by_ends(query, np.full((*BATCH, 20), 20), scale=0.3), 1e-5)


def prompts_of_more_rows_than_a_call_has_are_right():
    """Tests 1300 rows of one token, and 1100 of several."""
    for shape, causal in (((2, 650), False), ((11, 797), True)):
        query, key, value = (numbers.standard_normal((*shape, 1, DIM)).astype(np.float32)
                             for _ in "qkv")
        out = fj.flash_attention(query, key, value, causal=causal)
        wanted = jax.nn.dot_product_attention(query, key, value, is_causal=causal)
        close(out, np.asarray(wanted, np.float64), 1e-4)


def gradients_are_those_of_plain_attention():
    def plain(query, key, value, seen):
        logits = jnp.einsum("...qhd,...khd->...hqk", query, jnp.repeat(key, Q // KV, -2)) / 8
        weights = jax.nn.softmax(logits, where=seen, axis=-1)
        return jnp.einsum("...hqk,...khd->...qhd", weights, jnp.repeat(value, Q // KV, -2))

    causal = np.tri(5, TOKENS, TOKENS - 5, dtype=bool)
    several = np.ones((5, TOKENS), bool)
    for query, options, seen in (
        (SEVERAL, dict(causal=True), causal),
        (SEVERAL, dict(causal=True, window=3), causal & ~np.tri(5, TOKENS, TOKENS - 8, dtype=bool)),
        (SEVERAL, dict(), several),
        (QUERY, dict(), np.ones((1, TOKENS), bool)),
        (QUERY, dict(mask=MASK | (np.arange(TOKENS) == 0)), MASK | (np.arange(TOKENS) == 0)),
        (QUERY, dict(segment_ids=(IDS[1][..., :1], IDS[1])),
         (IDS[1][..., :1] == IDS[1])[..., None, None, :]),
    ):
        def total(attend, *arrays):
            return (attend(*arrays) * jnp.cos(jnp.arange(DIM))).sum()

        mine = jax.grad(functools.partial(
            total, functools.partial(fj.flash_attention, **options)), (0, 1, 2))
        theirs = jax.grad(functools.partial(
            total, functools.partial(plain, seen=jnp.asarray(seen))), (0, 1, 2))
        for a, b in zip(mine(query, KEY, VALUE), theirs(query, KEY, VALUE)):
            close(a, np.asarray(b, np.float64), 1e-4)
    mapped = jax.vmap(jax.grad(lambda q: fj.flash_attention(q, KEY[0, 0], VALUE[0, 0]).sum()))
    assert mapped(QUERY[0]).shape == QUERY[0].shape


@dataclasses.dataclass(frozen=True, eq=False)
class Mask:
    """A mask as tokamax passes it up to 0.0.16."""

    bool_mask: object = None
    q_start: object = None
    q_end: object = None
    k_start: object = None
    k_end: object = None
    is_causal: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Diagonal:
    """What a Moved says about causality."""

    offset: int = 0
    window_size: object = None


@dataclasses.dataclass(frozen=True, eq=False)
class Moved:
    """A mask as tokamax passes it from 0.0.17 on. A local window is a causal mask that is moved."""

    bool_mask: object = None
    causal_mask: object = None
    q_start: object = None
    q_end: object = None
    k_start: object = None
    k_end: object = None

    @property
    def is_causal(self):
        return (self.causal_mask is not None and self.causal_mask.offset == 0
                and self.causal_mask.window_size is None)


@dataclasses.dataclass(frozen=True, eq=False)
class Later(Moved):
    """A mask of a version that nobody has seen."""

    every_other: object = None


def tokamax_gets_its_masks():
    """The masks begin at the first key, whatever the number of query tokens."""
    attend = jax.jit(fj.tokamax_attention, static_argnames="mask")
    tokens, every = np.arange(5), np.full((*BATCH, 5), TOKENS)
    k_end, q_end = LENGTHS[..., None, None], np.array([[5, 0, 3], [1, 2, 4]])[..., None, None]
    until = lambda ends: np.where(tokens < q_end[..., 0], ends, 0)  # noqa: E731
    for mask, ends in (
        (None, every), (Mask(), every), (Mask(is_causal=True), every * 0 + tokens + 1),
        (Mask(k_end=k_end), np.broadcast_to(LENGTHS[..., None], every.shape)),
        (Mask(k_end=k_end, is_causal=True), np.minimum(LENGTHS[..., None], tokens + 1)),
        (Mask(q_end=q_end), until(every)), (Mask(q_end=q_end, is_causal=True), until(tokens + 1)),
        (Mask(k_end=tokens[None] + 3), every * 0 + tokens + 3),
        (Moved(), every), (Moved(causal_mask=Diagonal()), every * 0 + tokens + 1),
        (Moved(causal_mask=Diagonal(), k_end=k_end),
         np.minimum(LENGTHS[..., None], tokens + 1)),
        (Later(), every),
    ):
        out = attend(SEVERAL, KEY, VALUE, mask=mask)
        close(out, by_ends(SEVERAL, ends), 1e-5)
    out = fj.tokamax_attention(SEVERAL, KEY, VALUE, logits_scale=0.3, logits_soft_cap=2.0)
    close(out, by_ends(SEVERAL, every, scale=0.3, soft_cap=2.0), 1e-5)
    long = np.concatenate(5 * [SEVERAL], 2)  # more query tokens than keys
    close(attend(long, KEY, VALUE, mask=Mask(is_causal=True)),
          by_ends(long, np.broadcast_to(np.minimum(np.arange(1, 26), 20), (*BATCH, 25))), 1e-5)
    whole = functools.partial(fj.tokamax_attention, mask=Mask(is_causal=True))
    mine = jax.grad(lambda k: (whole(SEVERAL, k, VALUE) ** 2).sum())(KEY)
    theirs = jax.grad(lambda k: (jax.nn.dot_product_attention(
        *(x.reshape(6, *x.shape[2:]) for x in (SEVERAL, k, VALUE)),
        mask=np.tri(5, TOKENS, dtype=bool)[None, None]) ** 2).sum())(KEY)
    close(mine, np.asarray(theirs, np.float64), 1e-4)


def arguments_that_tokamax_must_handle_are_named():
    attend = fj.tokamax_attention
    for words, options in (
        ("mask.bool_mask is given", dict(mask=Mask(bool_mask=MASK))),
        ("mask.k_start is given", dict(mask=Mask(k_start=np.zeros(5)))),
        ("mask.q_start is given", dict(mask=Mask(q_start=np.zeros(5)))),
        ("mask.causal_mask is given with offset 2 and window_size 5",
         dict(mask=Moved(causal_mask=Diagonal(2, 5)))),
        ("mask.causal_mask is given with offset 1 and window_size None",
         dict(mask=Moved(causal_mask=Diagonal(1)))),
        ("mask.every_other is given", dict(mask=Later(every_other=2))),
        ("mask is a ndarray, it must be tokamax's Mask", dict(mask=MASK)),
        ("mask.k_end is [2, 3, 4, 5], with bounds of each head",
         dict(mask=Mask(k_end=np.ones((*BATCH, Q, 5), np.int32)))),
        ("mask.q_end is [1, 20], with bounds of each key",
         dict(mask=Mask(q_end=np.ones((1, TOKENS), np.int32)))),
        ("has no bias", dict(bias=MASK)),
        ("has no dropout_mask", dict(dropout_mask=MASK)),
        ("has no dropout_rate", dict(dropout_rate=0.5)),
        ("has no return_residuals", dict(return_residuals=True)),
        ("has no normalize_output", dict(normalize_output=False)),
        ("has no is_causal", dict(is_causal=True)),
    ):
        refused(words, lambda: attend(SEVERAL, KEY, VALUE, **options), (NotImplementedError,))
    attend(SEVERAL, KEY, VALUE, normalize_output=True, return_residuals=False, dropout_rate=0.0,
           precision="highest", logits_dtype=np.float32)
    refused("head_dim is 32", lambda: attend(*(x[..., :32] for x in (SEVERAL, KEY, VALUE))),
            (NotImplementedError,))
    refused("logits_soft_cap is", lambda: jax.jit(attend)(SEVERAL, KEY, VALUE, logits_soft_cap=2.0),
            (NotImplementedError, ValueError, TypeError))
    refused("q is int8, it must be", lambda: attend(SEVERAL.astype(np.int8), KEY, VALUE),
            (NotImplementedError,))
    refused("v [2, 3, 20, 2, 32]", lambda: attend(SEVERAL, KEY, VALUE[..., :32]),
            (NotImplementedError,))


def tokamax_itself_gets_what_its_own_implementation_computes():
    """Every mask is either served, or passed on to tokamax's next implementation."""
    try:
        import tokamax
    except ImportError:
        print("skipped: tokamax: this Python has no package tokamax")
        return
    q, k, v = (jnp.asarray(x.reshape(6, *x.shape[2:])) for x in (SEVERAL, KEY, VALUE))
    ends = jnp.asarray(np.maximum(LENGTHS.reshape(6), 5))  # each query token sees some key
    queries = jnp.array([5, 1, 3, 2, 4, 5])
    some = jnp.asarray(np.arange(100).reshape(1, 1, 5, 20) % 3 > 0)
    served = 0
    for options in (
        dict(), dict(is_causal=True), dict(key_value_seq_lengths=ends),
        dict(is_causal=True, key_value_seq_lengths=ends), dict(query_seq_lengths=queries),
        dict(is_causal=True, query_seq_lengths=queries), dict(local_window_size=(3, 0)),
        dict(local_window_size=2), dict(is_causal=True, local_window_size=2), dict(mask=some),
        dict(mask=some, is_causal=True), dict(scale=0.3, logits_soft_cap=2.0),
        dict(local_window_size=(3, 1), key_value_seq_lengths=ends),
    ):
        attend = functools.partial(tokamax.dot_product_attention, q, k, v, **options)
        wanted = np.asarray(attend(implementation="xla"), np.float64)
        got = attend(implementation=(fj.tokamax_attention, "xla"))
        used = np.arange(5) < (np.asarray(options.get("query_seq_lengths", 5)).reshape(-1, 1))
        seen = np.broadcast_to(used, (6, 5))
        close(np.asarray(got)[seen], wanted[seen], 1e-4)
        try:
            attend(implementation=(fj.tokamax_attention,))
            served += 1
        except NotImplementedError:
            assert {"local_window_size", "mask"} & set(options), options
    assert served == 7, served
    print(f"ran: tokamax {importlib.metadata.version('tokamax')}")


def unsupported_arguments_are_refused():
    flash = fj.flash_attention
    refused("has no dropout", lambda: flash(QUERY, KEY, VALUE, dropout_rate=0.1),
            (NotImplementedError,))
    flash(QUERY, KEY, VALUE, dropout_rate=0.1, deterministic=True)
    for words, options in (("mask is given, and query has 5 tokens", dict(mask=MASK)),
                           ("segment_ids is given, and query has 5 tokens", dict(segment_ids=IDS)),
                           ("window is 3 without causal", dict(window=3))):
        refused(words, lambda: flash(SEVERAL, KEY, VALUE, **options), (NotImplementedError,))
    refused("query is [64], it must be", lambda: flash(QUERY[0, 0, 0, 0], KEY, VALUE))
    refused("key is [2, 3, 20, 2, 64], it must be [3, any, any, 64]",
            lambda: flash(SEVERAL[0], KEY, VALUE))
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


run([
    every_mask_does_what_it_says,
    windows_segments_and_causal_masks_do_too,
    batches_may_have_any_dims_and_be_mapped,
    types_and_scale_are_as_asked,
    tokens_are_the_last_of_their_sequence,
    prompts_of_more_rows_than_a_call_has_are_right,
    gradients_are_those_of_plain_attention,
    tokamax_gets_its_masks,
    arguments_that_tokamax_must_handle_are_named,
    tokamax_itself_gets_what_its_own_implementation_computes,
    unsupported_arguments_are_refused,
])
