"""python_lifetimes.py: tests that Python keeps alive everything that C may still use, and that
nothing is used after it was freed.

Run where the package can be imported, without any array library.
"""

import copy
import ctypes
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import figraph  # noqa: E402
from figraph import abi, errors, native, runs  # noqa: E402
from sentences import refused, run  # noqa: E402

TUTORIAL = figraph.capture("tutorial", traits="host")


class Block(ctypes.Structure):
    """Memory with numpy's array interface, whose lifetime can be watched."""

    _fields_ = [("numbers", ctypes.c_uint16 * (8 * 64 + 8))]

    @property
    def __array_interface__(self):
        address = -(-ctypes.addressof(self) // 16) * 16
        return {"version": 3, "data": (address, False), "shape": (8, 64), "typestr": "<f2"}


def bound(engine):
    """Binds act.0 to a new array, and returns a weak reference to it."""
    block = Block()
    engine.bind("act.0", block)
    return weakref.ref(block)


def lives(watched):
    gc.collect()
    return watched() is not None


def opened():
    engine = figraph.Engine(TUTORIAL, device="host")
    engine.bind_rest(pages=8 * 32)
    return engine


def an_array_lives_until_the_steps_staged_before_its_successor_have_ended():
    engine = opened()
    first = bound(engine)
    engine.stage([1])
    engine.stage([1])
    second = bound(engine)
    engine.wait()
    assert lives(first)  # both steps are staged and not launched yet
    engine.launch()
    engine.wait()
    assert lives(first)
    engine.launch()
    engine.wait()
    assert not lives(first) and lives(second)
    engine.bind("act.0", size=8 * 64 * 2)
    engine.wait()
    assert not lives(second)  # no step was staged while it was bound


def an_array_is_released_after_its_step_was_taken_back():
    engine = opened()
    first = bound(engine)
    engine.stage([1], horizon=3)
    engine.launch()
    second = bound(engine)
    engine.take_back()  # takes back the rest of the horizon
    engine.stage([1])
    engine.wait()
    assert not lives(first) and lives(second)
    third = bound(engine)
    engine.wait()
    assert lives(second)
    engine.close()
    assert not lives(second) and not lives(third)


def recorded_call(name):
    """Returns the graphs of a program that consists of one call."""
    program = ctypes.POINTER(abi.fig_program)()
    native.must(native.library.fig_program_create(program, abi.options(abi.fig_spec, dtype=2)))
    info = abi.options(abi.fig_tensor_info, name=b"x", role=abi.FIG_ROLE_BOUND, dtype=abi.FIG_F32,
                       rank=1)
    info.dims[0] = 4
    tensor = native.library.fig_program_tensor(program, info)
    writes = ctypes.pointer(tensor)
    native.library.fig_call(program, abi.options(
        abi.fig_call_op, call=name, writes=writes, write_count=1, tag=7))
    native.must(native.library.fig_program_finish(program))
    handle = ctypes.POINTER(abi.fig_graphs)()
    native.must(native.library.fig_graphs_lower(handle, program, None))
    native.library.fig_program_destroy(program)
    return figraph.Graphs(handle)


class Work:
    """A callback whose lifetime can be watched."""

    def __init__(self, wait=lambda: None):
        self.wait, self.calls = wait, []

    def __call__(self, call):
        self.wait()
        self.calls.append(call.tag)


def a_callback_lives_until_the_steps_staged_before_its_successor_have_ended():
    engine = figraph.Engine(recorded_call(b"fill"), device="host")
    engine.bind("x", size=16)
    go = threading.Event()
    work = Work(lambda: go.wait(60))
    calls, watched = work.calls, weakref.ref(work)
    engine.register("fill", work)
    del work
    for _ in range(3):  # the first step waits in its callback, the others behind it
        engine.step([1])
    later = Work()
    engine.register("fill", later)
    assert lives(watched)
    go.set()
    engine.wait()
    assert calls == [7, 7, 7] and later.calls == []
    assert not lives(watched)
    engine.step([1])
    engine.wait()
    assert later.calls == [7]


def a_cycle_may_use_its_engine_and_graphs_to_the_end():
    """The finalizers of engine, runner and graphs run before Model.__del__; later use is refused
    with a message."""
    told = []

    class Model:
        def __init__(self):
            self.engine = opened()
            self.runner = runs.Runner(TUTORIAL, "host")
            self.graphs = figraph.capture("tutorial", traits="host", kv_limit=64)
            self.me = self

        def __del__(self):
            for call in (lambda: self.engine.step([1]), lambda: self.engine.stage((1,)),
                         self.engine.wait, self.engine.stats, lambda: self.runner.scratch(1, 1),
                         lambda: self.graphs.plan([1])):
                try:
                    call()
                except errors.Order as error:
                    told.append(str(error))
            self.engine.close()

    for _ in range(3):
        Model()
    gc.collect()
    closed = ["the engine is closed"] * 4 + ["the runner is closed", "the graphs are closed"]
    assert told == 3 * closed, told


def an_engine_may_be_used_by_objects_that_outlive_it():
    """When the interpreter exits, it closes all engines before it destroys a module's objects."""
    text = """
import figraph
class Last:
    def __init__(self):
        self.engine = figraph.Engine(figraph.capture("tutorial", traits="host"), device="host")
        self.engine.bind_rest(pages=8)
        self.engine.step([1])
    def __del__(self):
        try:
            self.engine.step([1])
        except figraph.errors.Order as error:
            print(error)
        self.engine.close()
last = Last()
last.me = last
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done
    assert done.stdout in ("", "the engine is closed\n"), done.stdout


def objects_with_one_owner_are_not_copied():
    engine = opened()
    runner = runs.Runner(TUTORIAL, "host")
    for one in (TUTORIAL, engine, runner, runs.Run(runner, 1)):
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            refused(f"{type(one).__name__} cannot be copied", lambda: copied(one), (TypeError,))
    assert copy.copy(TUTORIAL.spec) == TUTORIAL.spec


run([
    an_array_lives_until_the_steps_staged_before_its_successor_have_ended,
    an_array_is_released_after_its_step_was_taken_back,
    a_callback_lives_until_the_steps_staged_before_its_successor_have_ended,
    a_cycle_may_use_its_engine_and_graphs_to_the_end,
    an_engine_may_be_used_by_objects_that_outlive_it,
    objects_with_one_owner_are_not_copied,
])
