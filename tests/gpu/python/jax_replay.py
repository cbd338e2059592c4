"""jax_replay.py: tests one compiled step of XLA targets on a GPU, both captured by XLA and not.

    tests/gpu/jax_replay.py [--steps 1000] [--devices 2]     where figraph can be imported

Runs the same steps in one process for each combination of these: no command buffers, XLA's default
ones, or everything captured that can be; donated caches or not; one thread or two. Lengths change
on the device at each step, so a replay that reused anything of an earlier step would give wrong
results. With several devices, each has a thread and does the same work. All runs must give the same
bits. If caches are donated, XLA alternates between two sets of addresses, and nothing is captured
again once both were seen. Prints the handlers' counters, and exits with 1 if anything differs.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import time

MODES = {
    "off": "--xla_gpu_enable_command_buffer=",
    "default": "",
    "all": "--xla_gpu_graph_min_graph_size=1",
}
ROWS, CAP, Q_HEADS, KV_HEADS, DIM, WIDTH, LAYERS = 4, 512, 16, 4, 64, 256, 3


def step(x, caches, lengths):
    """x holds a layer's inputs, each [rows][...]: gate and up, q, k, v. Lengths grow by one, and
    return to 1 at the cap."""
    import figraph.jax as fj

    plan = fj.plan(lengths, dtype="float16", q_heads=Q_HEADS, cache=fj.Cache(*caches[0]))
    outs, grown = [], []
    for layer in range(LAYERS):
        gate_up, q, k, v = (part + layer for part in x)
        outs.append(fj.silu_and_mul(gate_up))
        q, k = fj.apply_rope(q, k, lengths - 1)
        cache = fj.append_kv(k, v, fj.Cache(*caches[layer]), lengths, plan=plan)
        out, plan, _ = fj.attention(q, cache, lengths, plan=plan)
        outs.append(out)
        grown.append((cache.k, cache.v))
    return outs, grown, lengths % CAP + 1


def rest(device, resident):
    """Waits until XLA has returned a step's memory, which one of its threads does some time
    later."""
    end = time.monotonic() + 2
    while device.memory_stats()["bytes_in_use"] > resident and time.monotonic() < end:
        time.sleep(1e-4)


def serve(steps, donated, seed, alone=False):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from figraph import ffi

    captured = resident = 0

    compiled = jax.jit(step, donate_argnums=(1, 2) if donated else ())
    keys = jax.random.split(jax.random.key(seed), 4)
    shapes = (ROWS, 2 * WIDTH), (ROWS, Q_HEADS, DIM), (ROWS, KV_HEADS, DIM), (ROWS, KV_HEADS, DIM)
    x = [jax.random.normal(key, shape, jnp.float16) for key, shape in zip(keys, shapes)]
    cache = (ROWS, CAP, KV_HEADS, DIM)
    caches = [tuple(jnp.zeros(cache, jnp.float16) for _ in "kv") for _ in range(LAYERS)]
    lengths = jnp.array([1, 17, 300, CAP - 5], jnp.int32)
    kept, device = [], lengths.device
    for i in range(steps):
        outs, caches, lengths = compiled(x, caches, lengths)
        if i % 25 == 0 or i == steps - 1:
            kept.append(np.concatenate([np.asarray(o).ravel() for o in outs]))
        jax.block_until_ready((outs, caches))
        outs = None  # so that the next step gets the same memory
        if alone and i == 2:
            time.sleep(0.5)
            resident = device.memory_stats()["bytes_in_use"]
        elif alone and i > 2:
            rest(device, resident)
        if i == steps // 2:
            captured = ffi.counts().captured
    return np.stack(kept).view(np.uint16), ffi.counts().captured - captured


def serve_on(device, *arguments):
    import jax

    with jax.default_device(jax.devices()[device]):
        return serve(*arguments)


def seats_of(arguments):
    """Returns (device, seed) for each thread. Threads on different devices use the same seed;
    threads on one device use different seeds."""
    if arguments.devices > 1:
        return [(device, 0) for device in range(arguments.devices)]
    return [(0, seed) for seed in range(arguments.threads)]


def child(arguments):
    import numpy as np
    from figraph import ffi

    first, _ = serve(8, arguments.donated, 0)
    assert np.isfinite(first.view(np.float16)).all()
    for device in range(1, arguments.devices):
        serve_on(device, 8, arguments.donated, 0)
    seen = ffi.counts()
    alone = arguments.threads == 1 and arguments.devices == 1
    with concurrent.futures.ThreadPoolExecutor(arguments.threads) as pool:
        jobs = [
            pool.submit(serve_on, device, arguments.steps, arguments.donated, seed, alone)
            for device, seed in seats_of(arguments)
        ]
        kept = np.stack([job.result()[0] for job in jobs])
        assert arguments.devices == 1 or (kept == kept[0]).all(), "devices differ"
        late = jobs[0].result()[1]
    told = ffi.counts()
    np.save(arguments.child, kept)
    print(
        f"eager {told.eager - seen.eager}, captured {told.captured - seen.captured}, "
        f"made {told.missed - seen.missed} after {seen.captured} captured, {seen.missed} made; "
        f"{late} captured in the later half"
    )
    assert told.missed == seen.missed, "a runner was made for an operation that had one"
    assert not arguments.donated or arguments.threads > 1 or late == 0, "captured again"


def parent(arguments):
    import numpy as np

    results, processes = {}, {}
    folder = tempfile.mkdtemp()
    for mode, flags in MODES.items():
        for donated in (0, 1):
            for threads in (1, 2) if arguments.devices == 1 else (arguments.devices,):
                name = f"{mode}{', donated' if donated else ''}, {threads} threads"
                kept = os.path.join(folder, f"{mode}{donated}{threads}.npy")
                command = [sys.executable, __file__, "--child", kept]
                command += ["--steps", str(arguments.steps), "--threads", str(threads)]
                command += ["--devices", str(arguments.devices)]
                command += ["--donated"] if donated else []
                environment = dict(os.environ, XLA_FLAGS=flags)
                environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
                processes[name] = kept, subprocess.Popen(
                    command,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
    wrong = 0
    for name, (kept, process) in processes.items():
        told, _ = process.communicate()
        if process.returncode != 0:
            print(f"{name}: FAILED: {told[-1500:]}")
            wrong += 1
            continue
        print(f"{name}: {told.strip().splitlines()[-1]}")
        results[name] = np.load(kept)[0]
    names = list(results)
    for name in names[1:]:
        same = np.array_equal(results[name], results[names[0]])
        wrong += not same
        if not same:
            print(f"{name}: differs from {names[0]}")
    print("same bits in all" if wrong == 0 else f"{wrong} are wrong")
    return wrong > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--child")
    parser.add_argument("--donated", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.child is None:
        sys.exit(parent(arguments))
    child(arguments)


if __name__ == "__main__":
    main()
