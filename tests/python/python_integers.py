"""python_integers.py: tests that a Python integer that does not fit into the C type is refused,
with a message that gives its name, its value and the limit.

Run where the package can be imported, without any array library.
"""

import array
import ctypes
import os
import pathlib
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import figraph  # noqa: E402
from figraph import ffi, runs, streams  # noqa: E402
from sentences import refused, run  # noqa: E402

TUTORIAL = figraph.capture("tutorial", traits="host")
WIDE = 1 << 32  # wraps to 0 in 32 bits


def opened():
    engine = figraph.Engine(TUTORIAL, device="host")
    engine.bind_rest(pages=8 * 32)
    return engine


def too_wide(field, call):
    """Checks that a call is refused if its number has more than 32 bits."""
    for number in (WIDE + 5, -WIDE, 1 << 31, 1 << 64, 1 << 90):
        refused(f"{field} is {number}", lambda: call(number), (OverflowError,))


def no_integer(field, call):
    for wrong in (1.0, True, "1", None, [1]):
        refused(f"{field} is {wrong!r}, it must be an integer", lambda: call(wrong), (TypeError,))


def each_number_of_a_list_is_checked():
    for field, call in (
        ("kv_lengths[0]", lambda n: TUTORIAL.plan([n])),
        ("kv_lengths[1]", lambda n: figraph.plan("tutorial", [1, n], traits="host")),
        ("row_tokens[0]", lambda n: TUTORIAL.plan([1], row_tokens=[n])),
        ("forks[0][1]", lambda n: TUTORIAL.plan([1], forks=[(0, n)])),
    ):
        too_wide(field, call)
        no_integer(field, call)
    refused("row_tokens has 2 of 1 rows", lambda: TUTORIAL.plan([1], row_tokens=[1, 1]))
    refused("forks has 2 of 1 rows", lambda: TUTORIAL.plan([1], forks=2 * [(0, 0)]))
    refused("forks[0] is (0,), it must be a row", lambda: TUTORIAL.plan([1], forks=[(0,)]),
            (ValueError,))
    refused("kv_lengths is 5, it must be a list", lambda: TUTORIAL.plan(5), (TypeError,))
    for lengths in (array.array("q", [WIDE + 5]), range(WIDE, WIDE + 1), (WIDE,)):
        refused("kv_lengths[0] is ", lambda: TUTORIAL.plan(lengths), (OverflowError,))
    refused("kv_lengths[0] is 1.5", lambda: TUTORIAL.plan(array.array("d", [1.5])), (TypeError,))
    assert TUTORIAL.plan(array.array("b", [5])) == TUTORIAL.plan([5])


def numbers_that_are_no_integers_are_checked():
    engine = opened()
    for wrong in ("x", [1], float("nan")):
        refused(f"timeout is {wrong!r}, it must be a number", lambda: engine.wait(wrong),
                (TypeError,))
    engine.wait(0.5)
    engine.close()
    refused("pages is -1, it must be at least 1", lambda: figraph.Engine(TUTORIAL).bind_rest(
        pages=-1), (ValueError,))
    refused("traits is 5, it must be", lambda: figraph.plan("tutorial", [1], traits=5),
            (TypeError,))


def words_of_a_command_may_be_numbers():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "words.fig")
        TUTORIAL.save(path)
        assert figraph.run("replay", path, "--steps", 3)["steps"] == 3
        assert figraph.run("inspect", path, "--format", "svg").startswith("<svg")
        assert figraph.run("inspect", path, "--format=dot").startswith("digraph")
    refused("a word of the command is ['presets']", lambda: figraph.run(["presets"]), (TypeError,))
    refused("a word of the command is None", lambda: figraph.run("verify", None), (TypeError,))


def a_step_s_numbers_are_checked():
    engine = opened()
    refused("kv_lengths is 5, it must be a list", lambda: engine.step(5), (TypeError,))
    for form in (list, tuple, lambda numbers: array.array("q", numbers)):
        refused(f"kv_lengths[1] is {WIDE + 1}", lambda: engine.step(form([1, WIDE + 1])),
                (OverflowError,))
    for call in (engine.step, engine.stage):
        for name in ("positions", "sequences", "row_tokens"):
            too_wide(f"{name}[1]", lambda n: call([1, 1], **{name: [0, n]}))
            no_integer(f"{name}[1]", lambda n: call([1, 1], **{name: [0, n]}))
        too_wide("kv_lengths[1]", lambda n: call([1, n]))
        too_wide("kv_lengths[1]", lambda n: call((1, n)))
        no_integer("kv_lengths[1]", lambda n: call([1, n]))
        no_integer("kv_lengths[1]", lambda n: call((1, n)))
        too_wide("horizon", lambda n: call([1], horizon=n))
        no_integer("horizon", lambda n: call([1], horizon=n))
        too_wide("bucket", lambda n: call([1], bucket=n))
        no_integer("bucket", lambda n: call([1], bucket=n))
        too_wide("rows", lambda n: call(rows=n))
        refused(f"token_limit is {1 << 63}", lambda: call([1], token_limit=1 << 63),
                (OverflowError,))
    engine.step([1, 1])  # the refused calls had no effect
    engine.wait()
    assert engine.progress().staged == 1
    assert engine.stats().last_bucket == TUTORIAL.plan([1, 1]).bucket


def pages_and_places_are_checked():
    engine = opened()
    too_wide("sequence", lambda n: engine.set_pages(n, [1]))
    too_wide("first", lambda n: engine.set_pages(0, [1], first=n))
    too_wide("pages[1]", lambda n: engine.set_pages(0, [1, n]))
    no_integer("pages[0]", lambda n: engine.set_pages(0, [n]))
    no_integer("sequence", lambda n: engine.set_pages(n, [1]))
    for field in ("source", "target", "length"):
        given = {"source": 0, "target": 1, "length": 8}
        too_wide(field, lambda n: engine.fork(**{**given, field: n}))
        no_integer(field, lambda n: engine.fork(**{**given, field: n}))
    too_wide("pages", lambda n: figraph.Engine(TUTORIAL, device="host").bind_rest(pages=n))
    for number in (1 << 64, -1, (1 << 64) + (1 << 16)):
        refused(f"offset is {number}", lambda: engine.write("v.0", b"abcd", offset=number),
                (OverflowError,))
        refused(f"offset is {number}", lambda: engine.read("v.0", 4, offset=number),
                (OverflowError,))
        refused(f"size is {number}", lambda: engine.read("v.0", number), (OverflowError,))
        refused(f"size is {number}", lambda: engine.bind("v.0", size=number), (OverflowError,))
    refused("size is -10, it must be at least 0", lambda: engine.bind("v.0", size=-10))
    refused(f"size is {1 << 63}, limit", lambda: engine.read("v.0", 1 << 63), (OverflowError,))
    no_integer("size", lambda n: engine.bind("v.0", size=n))


def buckets_and_options_are_checked():
    engine = opened()
    too_wide("bucket", engine.prepare)
    too_wide("bucket", lambda n: engine.append(bucket=n))
    too_wide("bucket", lambda n: TUTORIAL.describe(bucket=n))
    too_wide("columns", lambda n: TUTORIAL.describe(columns=n))
    too_wide("slots", TUTORIAL.memory)
    for name in ("slots", "busy_us", "ordinal", "numa_node"):
        too_wide(name, lambda n: figraph.Engine(TUTORIAL, device="host", **{name: n}))
        no_integer(name, lambda n: figraph.Engine(TUTORIAL, device="host", **{name: n}))
    figraph.Engine(TUTORIAL, device="host", check_plans=True).close()
    too_wide("buckets[1][0]", lambda n: figraph.capture("tutorial", traits="host",
                                                     buckets=[(1, 1), (n, 1)]))
    refused("buckets[0] is (1, 2, 3)",
            lambda: figraph.capture("tutorial", traits="host", buckets=[(1, 2, 3)]), (ValueError,))
    refused("buckets is 3, it must be pairs of rows and tokens of a row",
            lambda: figraph.capture("tutorial", traits="host", buckets=3), (TypeError,))
    traits = figraph.Traits("h200", 90, 132, WIDE + 232448)
    refused("shared_bytes is", lambda: figraph.capture("tutorial", traits=traits), (OverflowError,))
    refused("timeout in microseconds is", lambda: engine.wait(1e30), (OverflowError,))
    engine.wait(float("inf"))


def a_spec_s_numbers_are_checked():
    for name in ("window", "kv_limit", "layers", "q_heads", "batch_limit", "row_tokens",
                 "kv_scales"):
        too_wide(name, lambda n: figraph.capture("tutorial", traits="host", **{name: n}))
    no_integer("window", lambda n: figraph.capture("tutorial", traits="host", window=n))
    too_wide("rotary_dim", lambda n: figraph.Spec(rope=figraph.Rope(rotary_dim=n)).to_c())
    too_wide("llama3_context", lambda n: figraph.Spec(rope=figraph.Rope(llama3_context=n)).to_c())
    assert figraph.Spec(rope=figraph.Rope(interleaved=True), sinks=True).to_c().sinks == 1
    for layer in (-1, 512):
        refused(f"window_layers names layer {layer}, limit 511",
                lambda: figraph.Spec(window_layers=(layer,)).to_c(), (ValueError,))
    refused("129 frequencies, limit 128", lambda: figraph.RopeTable(129 * (1.0,)).to_c(),
            (ValueError,))


def numbers_of_operations_and_runs_are_checked():
    too_wide("rows", lambda n: ffi.scratch_of("f16", "f16", 8, 8, 64, n, 64))
    too_wide("window", lambda n: ffi.scratch_of("f16", "f16", 8, 8, 64, 1, 64, 0, n))
    too_wide("rotary_dim", lambda n: ffi.check_rope(64, rotary_dim=n))
    too_wide("head_dim", lambda n: ffi.check_rope(n, rotary_dim=64))
    runner = runs.Runner(TUTORIAL, "host")
    too_wide("rows", lambda n: runner.scratch(n, 64))
    too_wide("rows", lambda n: runs.Run(runner, n))
    too_wide("ordinal", lambda n: runs.Runner(TUTORIAL, "host", n))
    refused(f"kv_length is {1 << 63}", lambda: runner.scratch(1, 1 << 63), (OverflowError,))
    for number in (-1, 1 << 64):
        refused(f"stream is {number}", lambda: streams.stream_number(number), (OverflowError,))
    refused("stream is 1.5", lambda: streams.stream_number(1.5), (TypeError,))


class Interface:
    """An array that follows numpy's protocol, with properties that a test chooses."""

    def __init__(self, **changes):
        self.memory = ctypes.create_string_buffer(8 * 64 * 2 + 16)
        address = -(-ctypes.addressof(self.memory) // 16) * 16
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": (8, 64),
                                    "typestr": "<f2", **changes}


def an_array_that_makes_no_sense_is_refused():
    engine = opened()
    engine.bind("act.0", Interface())
    for words, changes in (
        ("the array has no memory, its address is 0", dict(data=(0, False))),
        ("does not say at which address", dict(data=None)),
        (f"the array's address is {1 << 64}", dict(data=(1 << 64, False))),
        ("the array has 2 dims and 3 strides", dict(strides=(128, 2, 2))),
        ("the array has 2 dims and 1 strides", dict(strides=(128,))),
        ("of the type '|O', they must be numbers", dict(typestr="|O")),
        ("of the type '<U5', they must be numbers", dict(typestr="<U5")),
        ("of the type '<M8[ns]', they must be numbers", dict(typestr="<M8[ns]")),
        (f"the array's stride is {1 << 70}", dict(strides=(1 << 71, 2))),
        ("bytes is ", dict(strides=((1 << 64) - 2, 2))),
    ):
        refused(words, lambda: engine.bind("act.0", Interface(**changes)),
                (ValueError, OverflowError))


run([
    each_number_of_a_list_is_checked,
    a_step_s_numbers_are_checked,
    numbers_that_are_no_integers_are_checked,
    words_of_a_command_may_be_numbers,
    pages_and_places_are_checked,
    buckets_and_options_are_checked,
    a_spec_s_numbers_are_checked,
    numbers_of_operations_and_runs_are_checked,
    an_array_that_makes_no_sense_is_refused,
])
