"""jax_decode.py: tests whole decode steps of figraph.jax on a GPU, for each way in which XLA can
launch them.

    tests/gpu/jax_decode.py          where figraph, the package, and jax can be imported

Runs a process for each way in which XLA may launch custom calls and, if there are two GPUs, a
process that divides the heads between them. Each process compares every length from 1 to the cap
with float64, and checks that the step was traced once, that nothing was captured again in the
second half, that no cache was copied, and what explain() reports. Exits with 1 if any check fails.
"""

import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../jax"))
LAYERS, ROWS, TOKENS = 4, 3, 64
LEAST = "--xla_gpu_graph_min_graph_size="
WAYS = {  # name: (flags, how XLA launches, reason)
    "off": ("--xla_gpu_enable_command_buffer=", "eager", "without CUSTOM_CALL"),
    "default": ("", "replayed", "launched as it was"),
    "all": (LEAST + "1", "replayed", "launched as it was"),
    "few": (LEAST + "1000", "eager", "at least 1000 commands, and figraph makes only 5"),
    "two GPUs": ("", "replayed", "launched as it was"),
}


def rest(devices, resident):
    """Waits until XLA has returned a step's memory, which one of its threads does some time
    later."""
    end = time.monotonic() + 2
    in_use = lambda: [device.memory_stats()["bytes_in_use"] for device in devices]
    while any(now > then for now, then in zip(in_use(), resident)) and time.monotonic() < end:
        time.sleep(1e-4)
    return in_use()


def serve(step, params, state, truth, inputs, devices):
    """Runs a step of every length. Returns the number of calls that were captured in the second
    half, the number of eager calls, and the state."""
    import numpy as np
    from cases import close
    from figraph import ffi

    resident, seen = [1 << 62] * len(devices), None
    for token in range(TOKENS):
        out, state = step(params, state, inputs[token])
        got = np.asarray(out)
        close(got, truth.step(inputs[token], token + 1), 2e-2)
        out = None  # so that the next step gets the same memory
        resident = rest(devices, resident)
        if token == TOKENS // 2:
            seen = ffi.counts()
    now = ffi.counts()
    assert (np.asarray(state.lengths) == TOKENS + 1).all()
    return now.captured - seen.captured, now.eager - seen.eager, state


def check(name, step, params, state, truth, devices):
    import numpy as np
    from decode_model import WIDTH

    _, how, why = WAYS[name]
    inputs = np.random.default_rng(3).standard_normal((TOKENS, ROWS, WIDTH)).astype(np.float32)
    captured, eager, state = serve(step, params, state, truth, inputs, devices)
    told = step.explain(params, state.serving(state.lengths // 2), inputs[0])
    print(f"{name}: {captured} captured and {eager} at once in the later half\n{told}", flush=True)
    assert step.model.traces == 1, step.model.traces
    assert captured == 0 and (eager == 0) == (how == "replayed"), (captured, eager)
    assert told.how == how and why in told.why and not told.copies_cache, told


def child(name):
    import decode_model
    import figraph.jax as fj
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    devices = jax.devices()[: 2 if name == "two GPUs" else 1]
    params = decode_model.weights(LAYERS)
    for options in ({}, dict(pages=24, page_size=16)):
        truth = decode_model.Truth(params, ROWS)
        state = decode_model.begun(LAYERS, ROWS, TOKENS, dtype=jnp.float16, **options)
        if len(devices) == 1:
            model = decode_model.Model(dtype=jnp.float16)
            check(name, fj.DecodeStep(model), jax.device_put(params), state, truth, devices)
            continue
        mesh = Mesh(np.array(devices), ("heads",))
        specs = [dict(qkv=P(None, "heads"), out=P("heads")) for _ in params]
        put = lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec))
        state = jax.tree_util.tree_map(put, state, state.over_heads("heads"))
        ours = jax.tree_util.tree_map(put, decode_model.shared(params, 2), specs)
        model = decode_model.Model("heads", dtype=jnp.float16)
        step = fj.DecodeStep(model, mesh=mesh, axis="heads", params=specs)
        check(name, step, ours, state, truth, devices)


def gpus():
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len(visible.split(","))
    return len(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def parent():
    ways = [name for name in WAYS if name != "two GPUs" or gpus() > 1]
    processes, failed = {}, 0
    for name in ways:
        flags = WAYS[name][0]
        environment = dict(os.environ, XLA_FLAGS=flags, XLA_PYTHON_CLIENT_PREALLOCATE="false")
        log = tempfile.TemporaryFile("w+")
        processes[name] = log, subprocess.Popen(
            [sys.executable, __file__, name], env=environment, stdout=log, stderr=log)
    for name, (log, process) in processes.items():
        code = process.wait()
        log.seek(0)
        print(log.read()[-3000:] if code == 0 else f"{name}: FAILED: {log.read()[-3000:]}")
        failed += code != 0
    print(f"{len(ways) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(child(sys.argv[1]) if len(sys.argv) > 1 else parent())
