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
ENGINE_ROWS = (1, 8, 256)
PAGE, SHARED_PAGES, SAMPLES = 16, 1024, 3


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


def expect(numbers, rows, seen):
    """Compares rows drawn at random. seen: q, k and v as the cache holds them, table, lengths and
    out, as float64."""
    import numpy as np

    sys.path.insert(0, os.path.join(HERE, "../../jax"))
    import cases

    q, k, v, table, lengths, out = seen
    for row in {0, rows - 1, *numbers.integers(0, rows, SAMPLES).tolist()}:
        places = np.arange(lengths[row])
        pages, slots = table[row, places // PAGE], places % PAGE
        wanted = cases.attention(q[row], k[pages, slots], v[pages, slots])[0]
        np.testing.assert_allclose(out[row], wanted, rtol=2e-2, atol=1e-2)


def run_torch(shape, limit):
    import figraph.torch as ft
    import numpy as np
    import torch

    numbers, (q_heads, kv_heads, dim) = np.random.default_rng(), shape
    wide = lambda x: x.double().cpu().numpy()  # noqa: E731
    normal = lambda *s: torch.randn(*s, device="cuda").to(torch.bfloat16)  # noqa: E731
    for rows in ROWS:
        lengths, table = table_of(numbers, rows, limit)
        pools = [normal(SHARED_PAGES + rows, PAGE, kv_heads, dim) for _ in "kv"]
        cache = ft.Cache(*pools, torch.from_numpy(table).cuda())
        q, k, v = normal(rows, q_heads, dim), normal(rows, kv_heads, dim), normal(
            rows, kv_heads, dim)
        out = ft.decode_attention(q, k, v, cache, torch.from_numpy(lengths).cuda(), rope=None)
        expect(numbers, rows, (wide(q), wide(pools[0]), wide(pools[1]), table, lengths, wide(out)))


def run_jax(shape, limit):
    import figraph.jax as fj
    import jax
    import jax.numpy as jnp
    import numpy as np

    numbers, (q_heads, kv_heads, dim) = np.random.default_rng(), shape
    wide = lambda x: np.asarray(x).astype(np.float64)  # noqa: E731

    def normal(*s):
        return jnp.asarray(numbers.standard_normal(s, np.float32), "bfloat16")

    @jax.jit
    def step(q, k, v, pools, table, lengths):
        got = fj.decode_attention(q, k, v, fj.Cache(*pools, table), lengths, rope=None)
        return got.out, got.cache[:2]

    for rows in ROWS:
        lengths, table = table_of(numbers, rows, limit)
        pools = tuple(normal(SHARED_PAGES + rows, PAGE, kv_heads, dim) for _ in "kv")
        q, k, v = normal(rows, q_heads, dim), normal(rows, kv_heads, dim), normal(
            rows, kv_heads, dim)
        out, pools = step(q, k, v, pools, table, lengths)
        expect(numbers, rows, (wide(q), wide(pools[0]), wide(pools[1]), table, lengths, wide(out)))


def run_engine(shape, limit):
    """The engine's steps begin at lengths near the limit, beside short ones."""
    figraph, options = os.path.join(ROOT, "build/figraph"), []
    for name, number in zip(("--q-heads", "--kv-heads", "--head-dim"), shape):
        options += [name, str(number)]
    for rows in ENGINE_ROWS:
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
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    found = subprocess.run([sys.executable, __file__, "--child", what, name, str(limit)],
                           env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           timeout=300, check=False)
    if found.returncode != 0:
        print(f"failed: {what}, {name}, kv limit {limit}\n{found.stdout.decode()[-2000:]}")
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
