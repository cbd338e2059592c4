"""jax_drafts.py: tests figraph.jax on a GPU over rows of unequal numbers of query tokens, for each
way in which XLA can launch them.

    tests/jax/jax_drafts.py          where figraph, the package, and jax can be imported

Runs a process for each way. Each runs all of tests/python/python_jax_packed.py, and then steps
whose rows have 0 to 8 tokens, drawn anew for each step, over bf16 pages with donated caches. Every
token is compared with attention in which it is a row of its own. The step is traced once. Exits
with 1 if anything differs. tests/gpu/run calls it.
"""

import functools
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = {
    "off": "--xla_gpu_enable_command_buffer=",
    "default": "",
    "all": "--xla_gpu_graph_min_graph_size=1",
}
ROWS, MOST, TOKENS, PAGE, WIDTH, Q, KV, DIM = 8, 8, 32, 16, 16, 32, 8, 128
STEPS = 40


def drafts():
    import figraph.jax as fj
    import jax
    import jax.numpy as jnp
    import numpy as np
    from figraph import ffi

    numbers, traces = np.random.default_rng(11), []
    table = numbers.permutation(ROWS * WIDTH).astype(np.int32).reshape(ROWS, WIDTH)
    normal = lambda *shape: jnp.asarray(numbers.standard_normal(shape), jnp.bfloat16)  # noqa: E731

    @functools.partial(jax.jit, donate_argnums=3)
    def step(q, k, v, cache, table, lengths, starts):
        traces.append(1)
        held = fj.Cache(*cache, table)
        plan = fj.plan(lengths, dtype=q.dtype, q_heads=Q, cache=held, query_start_loc=starts,
                       tokens=TOKENS)
        got = fj.decode_attention(q, k, v, held, lengths, rope=None, plan=plan, with_lse=True,
                                  query_start_loc=starts)
        return got.out, got.lse, got.cache[:2]

    cache = tuple(normal(ROWS * WIDTH, PAGE, KV, DIM) for _ in "kv")
    q, k, v = normal(TOKENS, Q, DIM), normal(TOKENS, KV, DIM), normal(TOKENS, KV, DIM)
    seen = None
    for n in range(STEPS):
        counts = numbers.integers(0, MOST + 1, ROWS)
        while counts.sum() > TOKENS:
            counts[counts.argmax()] = 0
        lengths = numbers.integers(MOST, PAGE * WIDTH + 1, ROWS).astype(np.int32)
        starts = np.concatenate(([0], counts.cumsum())).astype(np.int32)
        out, lse, cache = step(q, k, v, cache, table, lengths, starts)
        of = np.repeat(np.arange(ROWS), counts)
        place = np.arange(len(of)) - starts[of]
        own = (lengths[of] - counts[of] + place + 1).astype(np.int32)
        # as many rows in every step, so that this is compiled once; the others are idle
        rows, each = np.zeros(TOKENS, np.int32), np.zeros(TOKENS, np.int32)
        rows[: len(of)], each[: len(of)] = of, own
        wanted = fj.attention(q, fj.Cache(*cache, table[rows]), each, with_lse=True)
        used = len(of)
        for mine, theirs in ((out, wanted.out), (lse, wanted.lse)):
            np.testing.assert_allclose(np.asarray(mine[:used], np.float32),
                                       np.asarray(theirs[:used], np.float32), rtol=2e-2, atol=2e-2)
        if n == STEPS // 2:
            seen = ffi.counts()
    assert len(traces) == 1, traces
    captured = ffi.counts().captured - seen.captured
    print(f"{STEPS} steps are right, {captured} calls were captured in the second half")


def main():
    failed = 0
    for name, flags in MODES.items():
        environment = {**os.environ, "XLA_FLAGS": flags}
        for what in ([os.path.join(HERE, "../python/python_jax_packed.py")],
                     [os.path.abspath(__file__), "drafts"]):
            made = subprocess.run([sys.executable, *what], env=environment, capture_output=True,
                                  text=True)
            last = (made.stdout.strip().splitlines() or [""])[-1]
            print(f"{name}: {os.path.basename(what[0])}: {last}")
            if made.returncode != 0:
                failed += 1
                print(made.stdout + made.stderr)
    print(f"{2 * len(MODES) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    drafts() if sys.argv[1:] == ["drafts"] else main()
