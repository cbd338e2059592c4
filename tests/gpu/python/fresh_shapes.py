"""fresh_shapes.py: tests the shapes of gemma 2 and 3 on a GPU, in fresh processes.

    tests/gpu/fresh_shapes.py [--jobs N] [--only torch|jax|engine]      default: 14 jobs, all

The shapes go through figraph.torch, figraph.jax and an engine. A library loads and chooses its
kernels when a shape first comes, so each process has one shape and one kv limit, and runs 1 to 256
rows. torch and JAX compare a sample of each step's rows with float64; the engine's processes are
`figraph capture` and `figraph replay --check`, which compare all of them. Run where torch, jax and
figraph can be imported, with build/figraph. Exits with 1 if a process fails or a number is wrong.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
SHAPES = {  # q heads, kv heads, head_dim
    "gemma-2-9b and gemma-3-12b": (16, 8, 256),
    "gemma-2-2b and gemma-3-4b": (8, 4, 256),
    "gemma-3-1b": (4, 1, 256),
    "gemma-2-27b and gemma-3-27b": (32, 16, 128),
}
LIMITS = (128, 512, 1000, 2048, 4096, 8192)
ROWS = (1, 2, 3, 8, 17, 64, 128, 256)
PAGE, SHARED_PAGES = 16, 600


def table_of(numbers, rows, limit):
    """Returns pages of rows: random pages that rows share, and an own last page for each length."""
    import numpy as np

    columns = -(-limit // PAGE)
    lengths = numbers.integers(1, limit + 1, rows).astype(np.int32)
    lengths[:2] = [limit, 1][:rows]
    table = numbers.integers(0, SHARED_PAGES, (rows, columns)).astype(np.int32)
    for row, length in enumerate(lengths):
        table[row, (length - 1) // PAGE] = SHARED_PAGES + row
    return lengths, table


def attention(q, k, v):
    """q: [q_heads][dim], k and v: [tokens][kv_heads][dim]; in float64."""
    import numpy as np

    tokens, heads, dim = k.shape
    k, v = (np.asarray(x).astype(np.float64).transpose(1, 0, 2) for x in (k, v))
    logits = np.asarray(q).astype(np.float64).reshape(heads, -1, dim) @ k.transpose(0, 2, 1)
    weights = np.exp(logits * dim**-0.5)
    return ((weights / weights.sum(2, keepdims=True)) @ v).reshape(q.shape)


def expect(numbers, rows, lengths, table, row_of):
    """Compares rows drawn at random. row_of: returns q, k, v and out of a row, given its pages."""
    import numpy as np

    for row in {0, rows - 1, int(numbers.integers(rows))}:
        pages = table[row, : -(-int(lengths[row]) // PAGE)]
        q, k, v, out = row_of(row, pages)
        k, v = (x.reshape(-1, *x.shape[2:])[: lengths[row]] for x in (k, v))
        np.testing.assert_allclose(out, attention(q, k, v), rtol=2e-2, atol=1e-2)


def run_torch(shape, limit):
    import figraph.torch as ft
    import numpy as np
    import torch

    numbers, (q_heads, kv_heads, dim) = np.random.default_rng(), shape

    def normal(*s):
        return torch.randn(*s, device="cuda").to(torch.bfloat16)

    def numpy(x):
        return x.double().cpu().numpy()

    for rows in ROWS:
        lengths, table = table_of(numbers, rows, limit)
        keys, values = (normal(SHARED_PAGES + rows, PAGE, kv_heads, dim) for _ in "kv")
        cache = ft.Cache(keys, values, torch.from_numpy(table).cuda())
        q, k, v = (normal(rows, n, dim) for n in (q_heads, kv_heads, kv_heads))
        out = ft.decode_attention(q, k, v, cache, torch.from_numpy(lengths).cuda(), rope=None)
        expect(numbers, rows, lengths, table, lambda row, pages: (
            numpy(q[row]), numpy(keys[pages]), numpy(values[pages]), numpy(out[row])))


def run_jax(shape, limit):
    import figraph.jax as fj
    import jax
    import numpy as np

    numbers, (q_heads, kv_heads, dim) = np.random.default_rng(), shape

    def normal(*s):
        return jax.random.normal(jax.random.key(int(numbers.integers(1 << 30))), s, "bfloat16")

    @jax.jit
    def step(q, k, v, pools, table, lengths):
        got = fj.decode_attention(q, k, v, fj.Cache(*pools, table), lengths, rope=None)
        return got.out, got.cache[:2]

    for rows in ROWS:
        lengths, table = table_of(numbers, rows, limit)
        pools = tuple(normal(SHARED_PAGES + rows, PAGE, kv_heads, dim) for _ in "kv")
        q, k, v = (normal(rows, n, dim) for n in (q_heads, kv_heads, kv_heads))
        out, pools = step(q, k, v, pools, table, lengths)
        held = [np.asarray(x) for x in (q, *pools, out)]
        expect(numbers, rows, lengths, table, lambda row, pages: (
            held[0][row], held[1][pages], held[2][pages], held[3][row].astype(np.float64)))


def run_engine(shape, limit):
    """The steps begin at lengths near the limit, beside short ones. A cache for 256 rows of the
    greatest limits has tens of GB, so these have 64 rows."""
    most = 256 if shape[1] * shape[2] * limit <= 1 << 22 else 64
    figraph, options = os.path.join(ROOT, "build/figraph"), []
    for name, number in zip(("--q-heads", "--kv-heads", "--head-dim"), shape):
        options += [name, str(number)]
    for rows in (1, 8, most):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "step.fig")
            subprocess.run([figraph, "capture", *options, "--layers", "1", "--batch-limit",
                            str(rows), "--kv-limit", str(limit), "-o", path], check=True,
                           stdout=subprocess.DEVNULL)
            lengths = f"{limit - 3}" if rows == 1 else f"{limit - 3},{rows - 1}x{limit // 4 + 1}"
            subprocess.run([figraph, "replay", path, "--steps", "3", "--check", "--device", "cuda",
                            "--kv", lengths], check=True)


CHILDREN = {"torch": run_torch, "jax": run_jax, "engine": run_engine}


def child(what, name, limit):
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                   "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    begin = time.monotonic()
    found = subprocess.run([sys.executable, __file__, "--child", what, name, str(limit)],
                           env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           timeout=300, check=False)
    if found.returncode != 0:
        print(f"failed: {what}, {name}, kv limit {limit}\n{found.stdout.decode()[-2000:]}")
    print(f"{time.monotonic() - begin:5.1f} s: {what}, {name}, kv limit {limit}", flush=True)
    return found.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--only", choices=CHILDREN)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        CHILDREN[given.child[0]](SHAPES[given.child[1]], int(given.child[2]))
        return 0
    asked = [(what, name, limit) for limit in reversed(LIMITS) for what in CHILDREN
             for name in SHAPES if given.only in (None, what)]
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        right = sum(pool.map(lambda each: child(*each), asked))
    print(f"{right} of {len(asked)} processes are right, each with {len(ROWS)} numbers of rows")
    return 0 if right == len(asked) else 1


if __name__ == "__main__":
    sys.exit(main())
