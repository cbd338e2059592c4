"""python_arrays.py: tests that an Engine works in place on arrays of numpy and JAX, and on arrays
that follow the protocols of torch and CuPy.

Run where numpy, ml_dtypes, JAX and figraph can be imported. Results are compared with float64.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../support"), os.path.join(HERE, "../jax")]
import cases  # noqa: E402
import figraph  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from cases import close  # noqa: E402
from figraph import arrays, errors  # noqa: E402
from figraph.streams import stream_number  # noqa: E402
from sentences import refused, run  # noqa: E402

ROWS, PAGES, PAGE, Q, KV, DIM, WIDTH = 2, 4, 16, 4, 2, 64, 32
numbers = np.random.default_rng(1)


def graphs(**changes):
    spec = dict(dtype="f16", q_heads=Q, kv_heads=KV, head_dim=DIM, ffn_width=WIDTH, page_size=PAGE,
                batch_limit=ROWS, kv_limit=32)
    return figraph.capture(figraph.Spec(**{**spec, **changes}), traits="host")


def normal(*shape, dtype=np.float16):
    return numbers.standard_normal(shape).astype(dtype)


def zeros(dtype=np.float16, layout="nhd"):
    """Returns an array for each tensor; q, k and v are views of one array, as a fused product
    writes them."""
    page = (KV, PAGE) if layout == "hnd" else (PAGE, KV)
    qkv = normal(ROWS, Q + 2 * KV, DIM, dtype=dtype)
    return {
        "gate_up.0": normal(ROWS, 2 * WIDTH, dtype=dtype),
        "act.0": np.zeros((ROWS, WIDTH), dtype),
        "q.0": qkv[:, :Q],
        "k.0": qkv[:, Q : Q + KV],
        "v.0": qkv[:, Q + KV :],
        "k_cache.0": np.zeros((PAGES, *page, DIM), dtype),
        "v_cache.0": np.zeros((PAGES, *page, DIM), dtype),
        "out.0": np.zeros((ROWS, Q, DIM), dtype),
    }


def opened(made, held):
    engine = figraph.Engine(made, device="host")
    engine.bind_all(held)
    engine.set_pages(0, [2, 0])
    engine.set_pages(1, np.array([1, 3], np.int32))
    return engine


def compared(engine, held, tolerance, steps=3):
    """Runs steps, compares their results with float64, and returns the contents of the caches."""
    keys, values = np.zeros((0, ROWS, KV, DIM)), np.zeros((0, ROWS, KV, DIM))
    for length in range(1, steps + 1):
        for name in ("q.0", "k.0", "v.0"):
            held[name][:] = normal(*held[name].shape, dtype=held[name].dtype)
        q, k, v = (held[name].astype(np.float64) for name in ("q.0", "k.0", "v.0"))
        positions = np.full(ROWS, length - 1)
        keys = np.concatenate([keys, cases.rope(k, positions)[None]])
        values = np.concatenate([values, v[None]])
        engine.step(np.full(ROWS, length, np.int32))
        engine.wait()
        turned = cases.rope(q, positions)
        for row in range(ROWS):
            due = cases.attention(turned[row], keys[:, row], values[:, row])[0]
            close(held["out.0"][row], due, tolerance)
    close(held["act.0"], cases.silu_and_mul(held["gate_up.0"]), tolerance)
    return keys, values


def numpy_s_arrays_are_read_and_written_as_they_lie():
    held = zeros()
    engine = opened(graphs(), held)
    keys, values = compared(engine, held, 3e-3)
    close(held["k_cache.0"][2, :3], keys[:, 0], 2e-3)
    close(held["v_cache.0"][1, :3], values[:, 1], 2e-3)
    assert engine.stats().owned_bytes < 4096


def a_cache_may_have_its_heads_first():
    held = zeros(layout="hnd")
    keys, _ = compared(opened(graphs(kv_layout="hnd"), held), held, 3e-3)
    close(held["k_cache.0"][2, :, :3], keys[:, 0].transpose(1, 0, 2), 2e-3)


def k_and_v_may_share_one_pool():
    held = zeros()
    pool = np.zeros((PAGES, 2, PAGE, KV, DIM), np.float16)
    held["k_cache.0"], held["v_cache.0"] = pool[:, 0], pool[:, 1]
    _, values = compared(opened(graphs(), held), held, 3e-3)
    close(pool[2, 1, :3], values[:, 0], 2e-3)


def dtypes_that_numpy_lacks_are_raw_elements():
    held = zeros(dtype=ml_dtypes.bfloat16)
    compared(opened(graphs(dtype="bf16"), held), held, 3e-2)
    held = zeros()
    for name in ("k_cache.0", "v_cache.0"):
        held[name] = np.zeros(held[name].shape, np.uint8)
    ones = np.ones(1, np.float32)
    held.update({"k_scale.0": ones, "v_scale.0": ones})
    engine = opened(graphs(kv_dtype="e4m3"), held)
    compared(engine, held, 0.2, steps=1)
    held["v_cache.0"] = np.zeros(held["v_cache.0"].shape, ml_dtypes.float8_e4m3fn)
    engine.bind("v_cache.0", held["v_cache.0"])


def jax_s_arrays_come_by_dlpack():
    held = zeros()
    engine = opened(graphs(), held)
    gate_up = jnp.asarray(held["gate_up.0"]) * 2
    act = jnp.zeros((ROWS, WIDTH), jnp.float16)
    engine.bind("gate_up.0", gate_up)
    engine.bind("act.0", act)
    engine.step(jnp.ones(ROWS, jnp.int32))
    engine.wait()
    close(np.from_dlpack(act), cases.silu_and_mul(gate_up), 2e-3)
    held = {name: jnp.asarray(value) for name, value in zeros(ml_dtypes.bfloat16).items()}
    opened(graphs(dtype="bf16"), held).step([1, 1])


class OnGpu:
    """Has the array interface of CuPy and numba, but no memory."""

    __cuda_array_interface__ = {"version": 3, "data": (1 << 20, False), "shape": (ROWS, WIDTH),
                                "typestr": "<f2", "strides": None}


class OfTorch:
    """A numpy array that pretends to be a GPU tensor of torch."""

    def __init__(self, array, device):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        self.stream = stream
        return self.array.__dlpack__()


class Stream:
    cuda_stream = 77


class CupyStream:
    ptr = 78


class AnyStream:
    def __cuda_stream__(self):
        return (0, 79)


def memory_of_a_gpu_is_told_from_the_host_s():
    engine = figraph.Engine(graphs(), device="host")
    refused("not memory that an engine on the device host", lambda: engine.bind("act.0", OnGpu()),
            errors.Invalid)
    place = arrays.place_of(OnGpu(), "gpu")
    assert place.is_on("cuda") and not place.is_on("host") and place.strides == (WIDTH, 1)
    tensor = OfTorch(np.zeros((ROWS, WIDTH), np.float16), (2, 0))
    refused("not memory", lambda: engine.bind("act.0", tensor), errors.Invalid)
    assert tensor.stream == 1, "a GPU's work must be ordered before what comes"
    pinned = OfTorch(np.zeros((ROWS, WIDTH), np.float16), (3, 0))
    engine.bind("act.0", pinned)
    assert pinned.stream is None
    assert [stream_number(s) for s in (Stream(), CupyStream(), AnyStream(), 5, None)] == [
        77, 78, 79, 5, 0]


def arrays_that_do_not_fit_are_refused_with_a_message():
    engine = figraph.Engine(graphs(kv_layout="hnd"), device="host")

    def due(words, name, array, kind=errors.Invalid):
        refused(words, lambda: engine.bind(name, array), kind)

    due("has shape [2, 31], it must be [2 or more, 32]", "act.0", np.zeros((2, 31), np.float16))
    due("has shape [1, 32]", "act.0", np.zeros((1, 32), np.float16))
    due("has shape [64]", "act.0", np.zeros(64, np.float16))
    due("it must be [pages, 2, 16, 64]", "k_cache.0", np.zeros((4, 16, 2, 64), np.float16))
    due("has shape [0, 2, 16, 64]", "k_cache.0", np.zeros((0, 2, 16, 64), np.float16))
    due("has dtype f32, it must be f16", "act.0", np.zeros((2, 32), np.float32))
    due("has dtype of 2 bytes, it must be f16", "act.0", np.zeros((2, 32), np.int16))
    due("other order", "act.0", np.zeros((2, 32), ">f2"), ValueError)
    due("strides[1] is 2, the last must be 1", "act.0", np.zeros((2, 64), np.float16)[:, ::2])
    for rows in (2, 50):
        due("has strides [-32, 1], none may be negative", "act.0",
            np.zeros((rows, 32), np.float16)[::-1])
    constant = np.zeros((2, 32), np.float16)
    constant.flags.writeable = False
    due("read-only", "act.0", constant)
    more = np.zeros((9, 32), np.float16)
    engine.bind("act.0", more)


def integers_of_any_type_are_accepted_and_nothing_else():
    made = graphs()
    engine = opened(made, zeros())
    wide = 1 << 32
    for kind in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, object):
        assert made.plan(np.array([5, 7], kind)) == made.plan([5, 7]), kind
        engine.step(np.array([1, 1], kind), sequences=np.array([1, 0], kind))
        engine.set_pages(np.int64(0), np.array([2, 0], kind))
        engine.wait()
    engine.step([np.int32(1), np.uint8(1)], bucket=np.int64(0), horizon=np.int16(1))
    engine.step(np.array([1, 9, 1, 9], np.int32)[::2])
    engine.wait()
    for kind in (np.float32, np.float64, np.bool_):
        for call in (made.plan, engine.step, lambda x: engine.set_pages(0, x),
                     lambda x: engine.step([1, 1], sequences=x)):
            refused("it must be an integer", lambda: call(np.array([1, 1], kind)), (TypeError,))
    for number in (np.float32(1), np.bool_(True)):
        refused("kv_lengths[1] is ", lambda: engine.step([1, number]), (TypeError,))
        refused("sequence is ", lambda: engine.set_pages(number, [1]), (TypeError,))
    for kind in (np.uint32, np.int64, np.uint64, object):
        numbers = np.array([1, wide - 1], kind)
        for field, call in (("kv_lengths[1]", made.plan), ("kv_lengths[1]", engine.step),
                            ("pages[1]", lambda x: engine.set_pages(0, x)),
                            ("positions[1]", lambda x: engine.step([1, 1], positions=x))):
            refused(f"{field} is {wide - 1}, limit", lambda: call(numbers), (OverflowError,))
    refused("kv_lengths[0] is [1, 1]", lambda: made.plan(np.ones((2, 2), np.int32)), (TypeError,))
    refused("kv_lengths[0] is [1, 1]", lambda: engine.step(np.ones((2, 2), np.int32)),
            (TypeError,))
    refused("must be a list of integers", lambda: made.plan(np.int32(5)), (TypeError,))
    refused("it must be an integer", lambda: engine.step(jnp.ones(2)), (TypeError,))


def elements_are_numbers():
    engine = figraph.Engine(graphs(), device="host")
    for kind in (object, "U1", "M8[s]", "m8[s]"):
        refused("they must be numbers", lambda: engine.bind("act.0", np.zeros((2, 32), kind)),
                (ValueError,))


CASES = [
    integers_of_any_type_are_accepted_and_nothing_else,
    elements_are_numbers,
    numpy_s_arrays_are_read_and_written_as_they_lie,
    a_cache_may_have_its_heads_first,
    k_and_v_may_share_one_pool,
    dtypes_that_numpy_lacks_are_raw_elements,
    jax_s_arrays_come_by_dlpack,
    memory_of_a_gpu_is_told_from_the_host_s,
    arrays_that_do_not_fit_are_refused_with_a_message,
]
assert jax.devices()[0].platform == "cpu"
run(CASES)
