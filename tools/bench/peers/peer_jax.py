"""peer_jax.py: times JAX's dot_product_attention, with all calls of a jit in XLA's command buffers.

    xla, cudnn    its two implementations, over dense caches; ragged rows are padded and masked

A jit holds as many calls as the graphs of the other peers; each call reads the output of the one
before. The host times many replays without a wait between them, so the launch of each is hidden.
Invariant: the caches of a jit are arguments, so that XLA does not fold their values.
"""

import math
import os
import statistics
import time

os.environ.setdefault("XLA_FLAGS", "--xla_gpu_graph_min_graph_size=1")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
import peer_cells

DTYPES = {"bf16": jnp.bfloat16, "f16": jnp.float16}
PATHS = ("cudnn", "xla")
TOLERANCE, SAMPLES, SAMPLE_S, COPIES_MOST = 0.01, 5, 0.008, 32


def off_by(cell, got, q, k, v, r):
    """Returns the error of row r of a call, relative to the norm."""
    length = cell.lengths[r]
    q, k, v = (np.asarray(t, dtype=np.float32) for t in (q[r, 0], k[r, :length], v[r, :length]))
    scores = np.einsum("hgd,lhd->hgl", q.reshape(cell.kv_heads, cell.group, -1), k)
    scores = np.exp((scores - scores.max(-1, keepdims=True)) / math.sqrt(cell.head_dim))
    due = np.einsum("hgl,lhd->hgd", scores / scores.sum(-1, keepdims=True), v)
    due = due.reshape(cell.q_heads, cell.head_dim)
    return float(np.linalg.norm(np.asarray(got[r, 0], np.float32) - due) / np.linalg.norm(due))


class Jax:
    """Runs both implementations."""

    version = jax.__version__

    def __init__(self):
        if jax.default_backend() != "gpu":
            raise RuntimeError(f"JAX runs on {jax.default_backend()}, not on a GPU")

    def measure(self, cell):
        held = cell.rows * max(cell.lengths) * cell.token_bytes
        copies = min(cell.copies(held), COPIES_MOST) if cell.dtype == cell.kv_dtype else 0
        if copies == 0 or copies * cell.bytes < peer_cells.COLD_BYTES / 4:
            why = "8 bits, or no jit of so many arrays as caches stay cold with"
            yield peer_cells.row("", note=f"not possible: {why}")
            return
        dtype, shape = DTYPES[cell.dtype], (cell.rows, max(cell.lengths))
        keys = iter(jax.random.split(jax.random.key(7), 2 * copies + 1))
        q = jax.random.normal(next(keys), (cell.rows, 1, cell.q_heads, cell.head_dim), dtype)
        kv_shape = (*shape, cell.kv_heads, cell.head_dim)
        caches = [
            tuple(jax.random.normal(next(keys), kv_shape, dtype) for _ in "kv")
            for _ in range(copies)
        ]
        lengths = jnp.asarray(cell.lengths, jnp.int32) if cell.is_ragged else None
        for path in PATHS:
            try:
                yield self.measure_path(cell, path, q, caches, lengths)
            except Exception as error:
                yield peer_cells.row(path, note=peer_cells.short(error))

    def measure_path(self, cell, path, q, caches, lengths):
        calls = cell.calls(len(caches))

        def attend(q, k, v):
            return jax.nn.dot_product_attention(
                q, k, v, key_value_seq_lengths=lengths, implementation=path
            )

        @jax.jit
        def chain(q, caches):
            for i in range(calls):
                q = attend(q, *caches[i % len(caches)])
            return q

        got = jax.jit(attend)(q, *caches[0])
        longest = max(range(cell.rows), key=lambda r: cell.lengths[r])
        error = max(off_by(cell, got, q, *caches[0], r) for r in {longest, cell.rows - 1})
        if not error < TOLERANCE:
            return peer_cells.row(path, note=f"wrong: off by {error:.2e}, {TOLERANCE} is allowed")
        times = sorted(self.time(chain, q, caches, calls))
        return peer_cells.row(path, statistics.median(times), times[0], error)

    def time(self, chain, q, caches, calls):
        """Returns the microseconds of a call, one value for each sample."""
        for _ in range(3):  # the first run is not captured, the second is
            chain(q, caches).block_until_ready()
        begin = time.perf_counter()
        chain(q, caches).block_until_ready()
        count = max(2, math.ceil(SAMPLE_S / (time.perf_counter() - begin)))
        for _ in range(SAMPLES):
            begin = time.perf_counter()
            for _ in range(count):
                out = chain(q, caches)
            out.block_until_ready()
            yield (time.perf_counter() - begin) * 1e6 / (count * calls)


if __name__ == "__main__":
    peer_cells.serve(lambda _: Jax())
