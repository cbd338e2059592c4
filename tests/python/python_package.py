"""python_package.py: tests the Python package figraph without any array library.

    tests/python/python_package.py FIGRAPH     the program with which results are compared

Run where the package can be imported. It also runs each example of the package's documentation.
"""

import array
import ctypes
import dataclasses
import doctest
import importlib
import inspect
import json
import os
import pathlib
import pydoc
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import figraph  # noqa: E402
from figraph import abi, errors, native  # noqa: E402
from sentences import refused, run  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])
FOLDER = tempfile.TemporaryDirectory()
os.chdir(FOLDER.name)
MODULES = [figraph] + [importlib.import_module("figraph." + name) for name in (
    "arrays", "engine", "errors", "forms", "graphs", "integers", "keywords", "native", "program",
    "prompts", "runs", "specs", "stats", "streams")]
TUTORIAL = figraph.capture("tutorial", traits="host")


def opened(**options):
    engine = figraph.Engine(TUTORIAL, device="host", **options)
    engine.bind_rest(pages=8 * 32)
    return engine


def each_example_of_the_documentation_holds():
    tried = 0
    for module in MODULES:
        found = doctest.testmod(module)
        assert found.failed == 0, module
        tried += found.attempted
    assert tried > 25, tried


def help_is_a_tutorial_and_leaves_nothing_out():
    text = pydoc.plain(pydoc.render_doc(figraph))
    for step in range(1, 10):
        assert f"\n    {step}. " in text, step
    for name in figraph.__all__:
        value = getattr(figraph, name)
        assert inspect.getdoc(value) or name == "Model", name
    for name, method in vars(figraph.Engine).items():
        if name.startswith("_"):
            continue
        assert method.__doc__, name
        call = method.fget if isinstance(method, property) else method
        assert "return" in call.__annotations__, name
        for argument in list(inspect.signature(call).parameters)[1:]:
            assert argument in call.__annotations__, (name, argument)


def each_status_is_a_class_that_is_named_after_it():
    known = {name: value for name, value in vars(abi).items()
             if name.startswith("FIG_") and isinstance(value, int) and 10 <= value <= 43}
    for name, status in known.items():
        told = native.library.fig_status_name(status)
        if told != name.encode():
            continue  # this constant is not a status
        error = errors.of(status, "a sentence")
        assert type(error) is errors.CLASSES[status] and str(error) == "a sentence"
        short = {"FIG_NOMEM": "NoMemory", "FIG_IO": "Io"}.get(
            name, "".join(word.title() for word in name.split("_")[1:]))
        assert type(error).__name__ == short, name
        assert error.retryable == bool(native.library.fig_status_is_retryable(status))
    assert len(errors.CLASSES) == 16


def an_exception_has_the_library_s_message():
    refused("none.fig", lambda: figraph.load("none.fig"), errors.Io)
    with open("short.fig", "wb") as file:
        file.write(b"no graphs")
    refused("short.fig", lambda: figraph.load("short.fig"), errors.Format)
    refused("llama-3.1-8b", lambda: figraph.spec("lama"), errors.Invalid)
    refused("there are h200", lambda: figraph.capture("tutorial", traits="h2000"), errors.Invalid)
    refused('kv_dtype is "fp8"', lambda: figraph.capture("tutorial", kv_dtype="fp8"), ValueError)
    refused("kv_layers", lambda: figraph.spec("tutorial", kv_layers=3), TypeError)
    refused("layers is 43", lambda: figraph.spec("gemma-2-9b", layers=43), ValueError)
    refused('device is "gpu"', lambda: figraph.Engine(TUTORIAL, device="gpu"), ValueError)
    refused("share is 'twice'", lambda: figraph.Engine(TUTORIAL, share="twice"), ValueError)
    for share in (True, False, "always"):
        figraph.Engine(TUTORIAL, device="host", share=share).close()
    engine = opened()
    refused("nothing is staged", engine.launch, errors.Order)
    for rows in (9, 10**6):
        refused(f"rows is {rows}", lambda: engine.step(rows * [1]), errors.TooLarge)
        refused(f"rows is {rows}", lambda: engine.step(rows * (1,)), errors.TooLarge)
    refused("513", lambda: engine.step([513]), errors.TooLarge)
    refused("positions has 1 of 2", lambda: engine.step([1, 1], positions=[3]), errors.Invalid)
    refused("names no node to bind", engine.bind_thread, errors.Unsupported)
    refused("has no dispatch", lambda: engine.stage([1], dispatch=2), TypeError)
    refused("q.9", lambda: engine.bind("q.9", size=4), errors.Invalid)
    refused("__dlpack__", lambda: engine.bind("q.0", "a string"), TypeError)
    engine.close()
    engine.close()
    for call in (lambda: engine.step([1]), lambda: engine.stage((1,)), engine.launch):
        refused("the engine is closed", call, errors.Order)
    bare = figraph.Engine(TUTORIAL, device="host")
    refused("gate_up.0", lambda: bare.step([1]), errors.Unbound)


def lengths_may_be_known_to_the_device_alone():
    plain = opened()
    graphs = figraph.capture("tutorial", traits="host", reads=("lengths", "positions"))
    engine = figraph.Engine(graphs, device="host")
    lengths, positions = array.array("i", [3, 1] + 6 * [0]), array.array("i", [2, 0] + 6 * [0])
    for one in (engine, plain):
        one.bind_rest(pages=8 * 32)
        for row in (0, 1):
            one.set_pages(row, [row])
        one.write("q.0", array.array("H", range(2 * 16 * 64)))
        one.write("v.0", array.array("H", range(2 * 4 * 64)))
    engine.write("lengths", lengths)
    engine.write("positions", positions)
    engine.step(rows=2)
    plain.step(lengths[:2])
    for one in (engine, plain):
        one.wait(timeout=10)
    size = 2 * 2 * 16 * 64
    assert engine.read("out.0", size) == plain.read("out.0", size) != bytes(size)
    refused("reads is ('positions',)",
            lambda: figraph.capture("tutorial", traits="host", reads=["positions"]), ValueError)


def dataclasses_have_the_fields_that_the_headers_have():
    pairs = [
        (figraph.Spec, abi.fig_spec, {"size"}),
        (figraph.Rope, abi.fig_rope_spec, {"reserved"}),
        (figraph.RopeTable, abi.fig_rope_table, set()),
        (figraph.Stats, abi.fig_engine_stats, {"size"}),
        (figraph.Histogram, abi.fig_histogram, set()),
        (figraph.Memory, abi.fig_memory_info, {"size"}),
        (figraph.Traits, abi.fig_traits, {"size"}),
        (figraph.Progress, abi.fig_progress, {"size", "fault"}),
        (figraph.Plan, abi.fig_plan_report,
         {"size", "worker_capacity", "strip_worker_tiles", "strip_worker_pieces",
          "strip_worker_capacity", "row_tiles", "row_capacity", "row_firsts", "fork_sources",
          "fork_lengths", "share", "group_capacity", "group_rows", "group_firsts", "group_ends",
          "strip_worker_prefix_tiles"}),
        (figraph.Tensor, abi.fig_tensor_info, {"size", "rank"}),
    ]
    for ours, theirs, left_out in pairs:
        names = {field.name for field in dataclasses.fields(ours)}
        assert names == {name for name, *_ in theirs._fields_} - left_out, ours


def a_spec_goes_to_the_library_and_back():
    for name in figraph.presets():
        spec = figraph.spec(name)
        assert figraph.Spec.of_c(spec.to_c()) == spec, name
    deepseek = figraph.spec("deepseek-v3", layers=2)
    assert (deepseek.layers, deepseek.dense_layers) == (2, 2)
    assert figraph.capture(deepseek).spec.dense_layers == 2
    gemma = figraph.spec("gemma-2-9b", layers=3)
    assert gemma.window_layers == (0, 2) and gemma.window == 4096
    by_hand = figraph.Spec(q_heads=8, kv_heads=2, head_dim=64, dtype="bf16", batch_limit=2,
                           kv_limit=64, window_layers=(1, 70), kv_layout="hnd")
    assert figraph.Spec.of_c(by_hand.to_c()) == by_hand


def same_file(words, graphs):
    subprocess.run([PROGRAM, "capture", *words, "-o", "program.fig"], check=True,
                   stdout=subprocess.DEVNULL)
    graphs.save("package.fig")
    with open("program.fig", "rb") as theirs, open("package.fig", "rb") as ours:
        assert theirs.read() == ours.read(), words


def q_over_latents_may_be_in_two_tensors():
    words = ["--preset", "kimi-k2", "--layers", "1", "--traits", "host"]
    parts = figraph.capture("kimi-k2", layers=1, traits="host", q_rope=True)
    same_file([*words, "--q-rope"], parts)
    dims = {name: tensor.dims for name, tensor in parts.tensors.items()}
    assert dims["q.0"][1:] == (64, 512) and dims["q_rope.0"][1:] == (64, 64)
    replayed = figraph.run("replay", "package.fig", "--steps", "1", "--rows", "1", "--kv", "40",
                           "--device", "host", "--check")
    assert replayed["passed"]
    refused("latent_dim is 0", lambda: figraph.capture("tutorial", traits="host", q_rope=True),
            errors.Invalid)
    for more in (dict(score="score * 2.0"), dict(mask="0:4")):
        refused("q_rope is True beside a score or a mask", lambda: figraph.capture(
            "kimi-k2", layers=1, traits="host", q_rope=True, **more), errors.Invalid)


def the_package_and_the_program_make_the_same_file():
    same_file(["--preset", "tutorial", "--device", "host"], TUTORIAL)
    same_file(["--preset", "gemma-2-9b", "--layers", "1", "--kv-limit", "8192", "--traits", "h200",
               "--kv-dtype", "e4m3", "--kv-scales", "head"],
              figraph.capture("gemma-2-9b", layers=1, kv_limit=8192, traits="h200",
                              kv_dtype="e4m3", kv_scales=1))
    os.makedirs("model", exist_ok=True)
    with open("model/config.json", "w", encoding="utf-8") as file:
        file.write('{"model_type": "llama", "hidden_size": 512, "intermediate_size": 64, '
                   '"num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 2, '
                   '"head_dim": 64, "hidden_act": "silu", "max_position_embeddings": 40000, '
                   '"rope_theta": 10000.0, "torch_dtype": "float16"}')
    same_file(["--config", "model/config.json", "--deterministic", "--traits", "a100"],
              figraph.capture("model", deterministic=True, traits="a100"))


def waiting_calls_let_other_threads_run():
    """Waits for steps and for a slot. Each step takes the engine's thread some hundred
    milliseconds."""
    graphs = figraph.capture("llama-3.1-8b", layers=1, batch_limit=16, kv_limit=8192,
                             buckets=[(16, 8192)], traits="host")
    engine = figraph.Engine(graphs, device="host", slots=2, busy_us=60_000_000)
    engine.bind_rest(pages=1)
    ended, lengths = threading.Event(), 16 * [8192]
    for wait, steps in ((engine.wait, 1), (lambda: engine.step(lengths), 3)):
        for _ in range(steps):
            engine.step(lengths)
        ended.clear()
        thread = threading.Thread(target=lambda: (wait(), ended.set()))
        thread.start()
        until, counted = time.monotonic() + 0.02, 0
        while time.monotonic() < until and not ended.is_set():
            counted += 1
        was_waiting = not ended.is_set()
        thread.join()
        assert was_waiting and counted > 100, (wait, was_waiting, counted)


def lengths_come_in_any_form():
    engine = opened()
    engine.set_pages(0, [0])
    engine.set_pages(1, array.array("i", [1]))
    for lengths in ([1, 1], (2, 2), array.array("i", [3, 3]), array.array("q", [4, 4]), range(5, 7),
                    memoryview(array.array("i", [6, 0, 7, 0]))[::2]):
        engine.step(lengths)
        engine.wait()
    assert engine.progress().completed == 6
    for big in (1 << 31, -1 << 40, 1 << 70):
        refused("", lambda: engine.step([1, big]), OverflowError)
        refused("", lambda: engine.step((1, big)), OverflowError)
    for wrong in ("1", None, 1.5):
        refused("", lambda: engine.step([1, wrong]), TypeError)
    refused("kv_lengths[0] is -1", lambda: engine.step([-1]), errors.Invalid)
    engine.step([1, 1])  # the refused calls had no effect
    engine.wait()
    assert engine.progress().completed == 7


def a_fork_reads_the_pages_of_its_source():
    engine = opened()
    engine.set_pages(0, [3, 5])
    engine.set_pages(1, [0, 6])
    engine.fork(0, 1, 31)
    table = array.array("i", engine.read("page_table", 4 * 2 * 32)).tolist()
    assert (table[:2], table[32:34]) == ([3, 5], [3, 6]), table
    refused("entry 2 of sequence 0 was never set", lambda: engine.fork(0, 1, 48), errors.Invalid)
    refused("source and target are both 1", lambda: engine.fork(1, 1, 16), errors.Invalid)


def optional_fields_of_a_step_are_forgotten_by_the_next():
    engine = opened()
    engine.set_pages(3, [2])
    engine.stage([1], sequences=[3], positions=[7], row_tokens=[1])
    engine.take_back()
    engine.stage([1], sequences=[3], positions=[7], horizon=2)
    engine.launch()
    engine.launch()
    engine.step([1], bucket=16)
    assert engine.stats().last_bucket == 16
    engine.step([1])
    assert engine.stats().last_bucket == 1
    refused("nothing is staged", engine.launch, errors.Order)
    engine.wait()
    stats = engine.stats()
    assert (stats.staged, stats.launched, stats.taken_back) == (4, 4, 1), stats
    assert stats.host.count == 4 and stats.host.percentile(100) >= stats.host.percentile(50) > 0


def packed_rows_have_queries_of_their_own():
    graphs = figraph.capture("tutorial", traits="host", row_tokens=4, query_limit=20)
    assert graphs.spec.query_limit == 20
    assert graphs.tensors["q.0"].dims[0] == -3 and graphs.tensors["q.0"].multiple == 1
    plan = graphs.plan([9, 9, 9], queries=[4, 0, 2])
    assert plan.tiles == graphs.plan([9, 0, 9]).tiles
    engine = figraph.Engine(graphs, device="host")
    engine.bind_rest(pages=8)
    for row in range(3):
        engine.set_pages(row, [row])
    row_bytes = 2 * 4 * 64  # the preset has 4 kv heads with head_dim 64
    for token in range(6):  # v is 2 for even tokens and 1 for odd ones
        value = array.array("H", 4 * 64 * [0x3C00 if token % 2 else 0x4000])
        engine.write("v.0", value, offset=token * row_bytes)
    engine.step([4, 9, 2], queries=[4, 0, 2])
    engine.wait()
    out = array.array("H", engine.read("out.0", 2 * 16 * 64 * 20))
    heads = 16 * 64
    assert out[0] == 0x4000 and out[4 * heads] == 0x4000  # first tokens see only themselves
    assert out[6 * heads] == 0  # nothing was written behind the last token
    engine.step([4, 4, 4])  # without `queries`, each row has row_tokens queries
    engine.wait()
    refused("query_counts[0]", lambda: engine.step([9], queries=[5]), errors.Invalid)
    refused("queries has 2 of 1 rows", lambda: engine.step([9], queries=[1, 1]))
    refused("query_limit", lambda: TUTORIAL.plan([9], queries=[1]), errors.Invalid)
    device = figraph.capture("tutorial", traits="host", row_tokens=4, query_limit=20,
                             reads=["lengths", "query_starts"])
    assert device.tensors["query_starts"].dims == (device.spec.batch_limit + 1,)
    refused("reads is ('query_starts',)",
            lambda: figraph.capture("tutorial", traits="host", reads=["query_starts"]), ValueError)


def rows_that_share_pages_are_planned():
    graphs = figraph.capture("tutorial", traits="host", row_tokens=16, query_limit=32)
    forks = 3 * [(0, 320)] + [(3, 0)]
    plan = graphs.plan(4 * [400], queries=4 * [1], forks=forks)
    assert graphs.sharing is None and plan.unshared is None
    assert (plan.shared_groups, plan.shared_rows, plan.tails) == (1, 3, 0)
    assert (plan.shared_read, plan.shared_saved) == (320, 2 * 320)
    assert plan.prefix_strips == 4 and 0 < plan.prefix_tiles < plan.strip_tiles
    apart = graphs.plan(4 * [400], queries=4 * [1])
    assert apart.shared_groups == 0 and apart.unshared == "no rows begin with the same pages"
    refused("fork_lengths[0] is 401, limits 0 to kv_lengths[0], 400",
            lambda: graphs.plan(4 * [400], queries=4 * [1], forks=4 * [(0, 401)]), errors.Invalid)
    reason = TUTORIAL.sharing
    assert reason == TUTORIAL.plan(2 * [400], forks=2 * [(0, 320)]).unshared
    assert reason == "no row may be a chunk"


def segments_are_appended_in_place_of_a_launch():
    engine = opened()
    engine.set_pages(0, [0])
    ones = array.array("H", 256 * [0x3C00])
    engine.write("v.0", ones)
    bucket = TUTORIAL.plan([1]).bucket
    engine.stage([1], bucket=bucket)
    for segment in ("fetch", "act.0", "attn.0"):
        engine.append(segment, bucket=bucket)
    engine.wait()
    assert engine.read("out.0", 2) == b"\x00\x3c"
    engine.wait_for()
    engine.signal()
    refused("attn.7", lambda: engine.append("attn.7", bucket=bucket), errors.Invalid)


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


def a_callback_does_a_call_s_work_and_its_exception_is_the_cause():
    engine = figraph.Engine(recorded_call(b"fill"), device="host")
    engine.bind("x", size=16)

    def fill(call):
        assert call.device == "host" and call.tag == 7 and call.rows == 1
        (ctypes.c_float * 4).from_address(call.writes[0])[:] = [1, 2, 3, 4]

    engine.register("fill", fill)
    engine.step([1])
    engine.wait()
    assert array.array("f", engine.read("x", 16)).tolist() == [1, 2, 3, 4]

    def fail(call):
        raise RuntimeError("no numbers")

    engine.register("fill", fail)
    engine.step([1])
    try:
        engine.wait()
    except errors.Callback as error:
        assert "fill" in str(error) and "no numbers" in str(error.__cause__)
    else:
        raise AssertionError("a callback that failed went unnoticed")


def a_process_may_end_with_steps_in_flight():
    text = """
import figraph
graphs = figraph.capture("llama-3.1-8b", layers=1, batch_limit=8, traits="host",
                         kv_limit=4096, buckets=[(8, 4096)])
engine = figraph.Engine(graphs, device="host")
engine.bind_rest(pages=256)
engine.me = engine  # a circle, so that only the end of the process closes it
engine.step(8 * [4096])
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done


def an_unknown_keyword_is_named_with_the_likely_one():
    engine = opened()
    for words, call in (
        ("a step has no horison: did you mean horizon?", lambda: engine.step([1], horison=2)),
        ("a step has no horison: did you mean horizon?", lambda: engine.stage((1,), horison=2)),
        ("a spec has no kv_limits: did you mean kv_limit?",
         lambda: figraph.spec("tutorial", kv_limits=3)),
        ("a spec has no traids: it has dtype, kv_dtype, ",
         lambda: figraph.plan("tutorial", [1], traids="h200")),
        ("a spec has no bucket", lambda: figraph.capture("tutorial", bucket=[(1, 1)])),
        ("whose traits and fields are fixed", lambda: figraph.plan(TUTORIAL, [1], traits="h200")),
        ("whose traits and fields are fixed", lambda: figraph.plan(TUTORIAL, [1], window=3)),
    ):
        refused(words, call, (TypeError,))


CONFIG = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 64,
          "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 2,
          "head_dim": 64, "hidden_act": "silu", "max_position_embeddings": 40000,
          "rope_theta": 10000.0}


class BrainFloat:
    """A dtype that prints like torch's."""

    def __str__(self):
        return "torch.bfloat16"


class Config:
    """A configuration like those of transformers; some values may not be JSON."""

    def __init__(self, **changes):
        self.contents = {**CONFIG, "torch_dtype": BrainFloat(), **changes}

    def to_dict(self):
        return self.contents


def a_model_may_be_a_configuration_in_memory():
    os.makedirs("in_memory", exist_ok=True)
    with open("in_memory/config.json", "w", encoding="utf-8") as file:
        json.dump({**CONFIG, "torch_dtype": "bfloat16"}, file)
    wanted = figraph.spec("in_memory", batch_limit=4)
    assert figraph.spec(Config(), batch_limit=4) == wanted and wanted.dtype == "bf16"
    assert figraph.capture(Config(), traits="h200", kv_limit=64).spec.kv_heads == 2

    class Lean(Config):
        def to_diff_dict(self):  # returns the fields that it would save
            return super().to_dict()

        def to_dict(self):
            raise AssertionError("more than it would save")

    assert figraph.spec(Lean(), batch_limit=4) == wanted
    bare = Config()
    del bare.contents["torch_dtype"]  # a configuration that was written by hand may lack it
    for name in ("bf16", "bfloat16", BrainFloat()):
        assert figraph.spec(bare, batch_limit=4, dtype=name) == wanted
    refused("dtype is missing", lambda: figraph.spec(bare), (errors.Error,))
    refused('dtype is "f7"', lambda: figraph.spec(bare, dtype="f7"), (ValueError,))
    refused("Config: ", lambda: figraph.spec(Config(model_type="parrot")), (errors.Error,))
    refused("it must be the name of a preset", lambda: figraph.spec(7), (TypeError,))


def text_that_looks_like_a_path_is_one():
    for path in ("nofile.json", "no/such/folder", pathlib.Path("nofile"), b"no\xff.json"):
        refused("no", lambda: figraph.plan(path, [1]), errors.Io)
    refused("preset nofile is unknown", lambda: figraph.plan("nofile", [1]), errors.Invalid)


def a_dtype_goes_by_the_names_that_others_have():
    for name in ("bf16", "bfloat16", "torch.bfloat16", BrainFloat()):
        assert figraph.spec("tutorial", dtype=name).dtype == "bf16", name
        assert figraph.Spec(dtype=name).dtype == "bf16"
    assert figraph.spec("tutorial", kv_dtype="float8_e4m3fn").kv_dtype == "e4m3"
    refused('kv_dtype is "int8"', lambda: figraph.capture("tutorial", kv_dtype="int8"), ValueError)


def text_of_any_bytes_is_told_and_taken():
    for path in (b"none/\xff.fig", "none/\udcff.fig", "a" + "\u00e9" * 300):
        refused("", lambda: figraph.load(path), errors.Io)
        refused("", lambda: TUTORIAL.save(path), errors.Io)
    TUTORIAL.save(b"odd\xff.fig")
    assert figraph.load("odd\udcff.fig").content_id == TUTORIAL.content_id
    engine = opened()
    for words, call in (
        ("the path 'a\\x00b' has a NUL", lambda: TUTORIAL.save("a\0b")),
        ("has a NUL", lambda: figraph.load(b"a\0b")),
        ("has a NUL", lambda: figraph.spec("model\0/config.json")),
        ("model is 'tutorial\\x00'", lambda: figraph.spec("tutorial\0")),
        ("traits is 'h200\\x00'", lambda: figraph.capture("tutorial", traits="h200\0")),
        ("name is 'v.0\\x00'", lambda: engine.write("v.0\0", b"abcd")),
        ("name is 'v.0\\x00'", lambda: engine.read("v.0\0", 4)),
        ("table is 'page_table\\x00'",
         lambda: engine.set_pages(0, [0], table="page_table\0")),
        ("table is 'page_table\\x00'",
         lambda: engine.fork(0, 1, 16, table="page_table\0")),
        ("segment is 'act.0\\x00'", lambda: engine.append("act.0\0", bucket=1)),
    ):
        refused(words, call, (ValueError,))
    assert not os.path.exists("a")
    long = native.sentence("x\u00e9".encode()[:-1])
    assert long == "x\\xc3" and long.encode()


def the_program_answers_in_python_s_own_words():
    TUTORIAL.save("run.fig")
    assert figraph.run("verify", "run.fig")["sound"] is True
    assert figraph.run("presets")[0]["name"] == "tutorial"
    refused("verify: unknown option", lambda: figraph.run("verify", "--no"), errors.Invalid)
    with open("run.fig", "r+b") as file:
        file.truncate(100)
    refused("run.fig", lambda: figraph.run("verify", "run.fig"), errors.Error)
    for words in (["--help"], ["verify", "--help"], ["--version"]):
        text = subprocess.run([PROGRAM, *words], capture_output=True, text=True).stdout
        assert text and figraph.run(*words) == text, words
        done = subprocess.run([sys.executable, "-m", "figraph", *words], capture_output=True,
                              text=True)
        assert (done.returncode, done.stdout) == (0, text), done
    done = subprocess.run([sys.executable, "-m", "figraph", "verify", "none.fig"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "none.fig" in done.stderr, done


CASES = [
    each_example_of_the_documentation_holds,
    help_is_a_tutorial_and_leaves_nothing_out,
    each_status_is_a_class_that_is_named_after_it,
    an_exception_has_the_library_s_message,
    lengths_may_be_known_to_the_device_alone,
    dataclasses_have_the_fields_that_the_headers_have,
    a_spec_goes_to_the_library_and_back,
    q_over_latents_may_be_in_two_tensors,
    the_package_and_the_program_make_the_same_file,
    waiting_calls_let_other_threads_run,
    lengths_come_in_any_form,
    a_fork_reads_the_pages_of_its_source,
    optional_fields_of_a_step_are_forgotten_by_the_next,
    packed_rows_have_queries_of_their_own,
    rows_that_share_pages_are_planned,
    segments_are_appended_in_place_of_a_launch,
    a_callback_does_a_call_s_work_and_its_exception_is_the_cause,
    a_process_may_end_with_steps_in_flight,
    an_unknown_keyword_is_named_with_the_likely_one,
    a_model_may_be_a_configuration_in_memory,
    text_that_looks_like_a_path_is_one,
    a_dtype_goes_by_the_names_that_others_have,
    text_of_any_bytes_is_told_and_taken,
    the_program_answers_in_python_s_own_words,
]
run(CASES)
