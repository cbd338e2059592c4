"""decode_model.py: a small model of figraph.jax.DecodeStep, and what it gives in float64.

Layers of attention between two matrix products, without norms and gates, which are none of the
library's. Needs jax, figraph and the folder's cases.py.
"""

import cases
import figraph.jax as fj
import jax
import jax.numpy as jnp
import numpy as np

Q, KV, DIM, WIDTH = 8, 4, 64, 32


def weights(layers, seed=7):
    """A dict of each layer, like that of a checkpoint."""
    own = np.random.default_rng(seed)
    return [
        dict(
            qkv=own.standard_normal((WIDTH, Q + 2 * KV, DIM)).astype(np.float32) / 6,
            out=own.standard_normal((Q, DIM, WIDTH)).astype(np.float32) / 23,
        )
        for _ in range(layers)
    ]


def split(qkv):
    """In a share of the heads as in all of them, one of four is of k and one of v."""
    parts = qkv.shape[1] // 4
    return qkv[:, : 2 * parts], qkv[:, 2 * parts : 3 * parts], qkv[:, 3 * parts :]


def shared(params, ranks):
    """The same weights with each rank's heads of q, k and v side by side."""
    order = []
    for rank in range(ranks):
        for first, count in ((0, Q), (Q, KV), (Q + KV, KV)):
            own = count // ranks
            order += range(first + rank * own, first + (rank + 1) * own)
    return [dict(layer, qkv=layer["qkv"][:, order]) for layer in params]


class Model:
    """Knows how often it was traced. axis: of a mesh that shares its heads; options: of attend."""

    def __init__(self, axis=None, dtype=jnp.float32, **options):
        self.traces, self.axis, self.dtype, self.options = 0, axis, dtype, options

    def __call__(self, params, state, x):
        self.traces += 1
        for n, layer in enumerate(params):
            with jax.default_matmul_precision("highest"):
                qkv = jnp.einsum("rw,whd->rhd", x, layer["qkv"]).astype(self.dtype)
                q, k, v = split(qkv)  # slices, as models have them
                out, state = state.attend(n, q, k, v, **self.options)
                part = jnp.einsum("rhd,hdw->rw", out.astype(x.dtype), layer["out"])
            x = x + (part if self.axis is None else jax.lax.psum(part, self.axis))
        return x, state


class Truth:
    """The same in float64, a row at a time, over all tokens that were."""

    def __init__(self, params, rows):
        self.params = params
        self.held = [[([], []) for _ in params] for _ in range(rows)]  # [row][layer] of k and v

    def step(self, x, length, turned=True):
        x = x.astype(np.float64)
        for row in range(x.shape[0]):
            for n, layer in enumerate(self.params):
                q, k, v = (np.einsum("w,whd->hd", x[row], w) for w in split(layer["qkv"]))
                if turned:
                    q, k = (cases.rope(z[None], [length - 1])[0] for z in (q, k))
                keys, values = self.held[row][n]
                keys.append(k), values.append(v)
                out = cases.attention(q, np.stack(keys), np.stack(values))[0]
                x[row] += np.einsum("hd,hdw->w", out, layer["out"])
        return x


def begun(layers, rows, tokens, dtype=jnp.float32, **options):
    """A state in which every row is about to get its first token. Pages lie in no order."""
    state = fj.State.empty(layers, rows, tokens, kv_heads=KV, head_dim=DIM, dtype=dtype, **options)
    table = state.caches[0].page_table
    if table is not None:
        pages = np.random.default_rng(1).permutation(table.size).astype(np.int32)
        table = jnp.asarray(pages.reshape(table.shape))
    return state.serving(jnp.ones(rows, jnp.int32), table)
