"""decode_model.py: a small model for figraph.jax.DecodeStep, and its results in float64.

Each layer is attention between two matrix products; there are no norms and gates. Needs jax,
figraph and this folder's cases.py.
"""

import cases
import figraph.jax as fj
import jax
import jax.numpy as jnp
import numpy as np

Q, KV, DIM, WIDTH = 8, 4, 64, 32


def weights(layers, seed=7):
    """Returns a dict of weights for each layer, as in a checkpoint."""
    own = np.random.default_rng(seed)
    return [
        dict(
            qkv=own.standard_normal((WIDTH, Q + 2 * KV, DIM)).astype(np.float32) / 6,
            out=own.standard_normal((Q, DIM, WIDTH)).astype(np.float32) / 23,
        )
        for _ in range(layers)
    ]


def split(qkv):
    """Half of the heads are for q, a quarter for k and a quarter for v. This holds for all heads
    and for a rank's share of them."""
    parts = qkv.shape[1] // 4
    return qkv[:, : 2 * parts], qkv[:, 2 * parts : 3 * parts], qkv[:, 3 * parts :]


def shared(params, ranks):
    """Returns the same weights with each rank's heads of q, k and v side by side."""
    order = []
    for rank in range(ranks):
        for first, count in ((0, Q), (Q, KV), (Q + KV, KV)):
            own = count // ranks
            order += range(first + rank * own, first + (rank + 1) * own)
    return [dict(layer, qkv=layer["qkv"][:, order]) for layer in params]


class Model:
    """Counts how often it is traced. axis: the mesh axis over which the heads are divided; options:
    for attend()."""

    def __init__(self, axis=None, dtype=jnp.float32, **options):
        self.traces, self.axis, self.dtype, self.options = 0, axis, dtype, options

    def __call__(self, params, state, x):
        self.traces += 1
        for n, layer in enumerate(params):
            with jax.default_matmul_precision("highest"):
                qkv = jnp.einsum("rw,whd->rhd", x, layer["qkv"]).astype(self.dtype)
                q, k, v = split(qkv)  # q, k and v are slices, as in real models
                out, state = state.attend(n, q, k, v, **self.options)
                part = jnp.einsum("rhd,hdw->rw", out.astype(x.dtype), layer["out"])
            x = x + (part if self.axis is None else jax.lax.psum(part, self.axis))
        return x, state


class Truth:
    """Computes the same model in float64, one row at a time, over all earlier tokens."""

    def __init__(self, params, rows):
        self.params = params
        # [row][layer]: lists of k and of v
        self.held = [[([], []) for _ in params] for _ in range(rows)]

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
    """Returns the state before the first token of every row. Pages are in a random order."""
    state = fj.State.empty(layers, rows, tokens, kv_heads=KV, head_dim=DIM, dtype=dtype, **options)
    table = state.caches[0].page_table
    if table is not None:
        pages = np.random.default_rng(1).permutation(table.size).astype(np.int32)
        table = jnp.asarray(pages.reshape(table.shape))
    return state.serving(jnp.ones(rows, jnp.int32), table)
