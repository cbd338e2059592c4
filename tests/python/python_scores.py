"""python_scores.py: tests figraph.score: texts, functions, the results of a captured step, and that
no entry point drops a score.

Run where the package can be imported; no array library is needed.
"""

import ast
import math
import os
import struct
import sys
from array import array

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import figraph  # noqa: E402
from figraph import ffi, scores  # noqa: E402
from sentences import refused, run  # noqa: E402

slope = scores.array("slope", 16)


def a_function_and_a_text_make_the_same_score():
    far = scores.array("bias", None, "bf16")
    cap = scores.array("cap", 1)
    chunk = scores.array("chunk", dtype="i32")
    cases = [
        ("score + slope[head] * (kv_pos - q_pos)",
         lambda score, q, kv, head: score + scores.array("slope")[head] * (kv - q)),
        ("30 * tanh(score / 30.0)", lambda score: 30 * scores.tanh(score / 30.0)),
        ("f32 cap; cap * tanh(score / cap)", lambda score: cap * scores.tanh(score / cap)),
        ("bf16 bias[]; score + bias[row * 64 + kv_pos]",
         lambda score, row, kv_pos: score + far[row * 64 + kv_pos]),
        ("i32 chunk[]; select(chunk[kv_pos] == chunk[q_pos], score, -inf)",
         lambda score, q, kv: scores.select(chunk[kv] == chunk[q], score, -scores.inf)),
        ("select((kv_pos < 4) | (kv_pos > q_pos - 30), score, -inf)",
         lambda score, q, kv: scores.select((kv < 4) | (kv > q - 30), score, -scores.inf)),
        ("abs(-score) + 7 // (head + 1) - (kv_head % 3 ^ 5) * 2e-3 + float(1 << (head & 3) >> 1)",
         lambda score, head, kv_head: abs(-score) + 7 // (head + 1) - (kv_head % 3 ^ 5) * 2e-3
         + scores.to_float(1 << (head & 3) >> 1)),
        ("min(exp2(score), 2.0) + max(log2(kv_length), -1.5) / sigmoid(sin(score) * cos(score))",
         lambda score, kv_length: scores.minimum(scores.exp2(score), 2.0)
         + scores.maximum(scores.log2(kv_length), -1.5)
         / scores.sigmoid(scores.sin(score) * scores.cos(score))),
        ("score + int(score) % 3", lambda score: score + scores.to_int(score) % 3),
    ]
    for text, function in cases:
        assert figraph.score(text) == figraph.score(function), (text, figraph.score(function))
    sigmoid = figraph.score(lambda score: score - 1, weights="sigmoid")
    assert sigmoid == figraph.score("weights sigmoid; score - 1")
    assert str(sigmoid) == "weights sigmoid; score - 1.0"
    assert repr(sigmoid) == "figraph.score('weights sigmoid; score - 1.0')"


def shared_parts_stay_short():
    def power(score):
        for _ in range(40):
            score = score * score
        return score

    assert len(str(figraph.score(power))) < 2000


def functions_that_no_score_can_express_are_refused():
    nan = math.nan
    cases = [
        (TypeError, "scores.select", lambda score, kv: score if kv < 4 else 0.0),
        (TypeError, "scores.minimum", lambda score: min(score, 1.0)),
        (TypeError, "the parameter batch", lambda score, batch: score),
        (TypeError, "'x' is in a score", lambda score: score + "x"),
        (TypeError, "True is in a score", lambda score: score + True),
        (TypeError, "None is in a score", lambda score: None),
        (TypeError, "slope is in a score without an index", lambda score: score + slope),
        (ValueError, "no NaN", lambda score: score + nan),
        (ValueError, "slope is in a score twice",
         lambda score, head: score + slope[head] + scores.array("slope", 4)[head]),
    ]
    for kind, words, function in cases:
        refused(words, lambda function=function: figraph.score(function), (kind,))
    refused("column 8", lambda: figraph.score("score +"), (ValueError,))
    refused("it must be a str or a function", lambda: figraph.score(3), (TypeError,))
    refused("beside a text", lambda: figraph.score("score", weights="sigmoid"), (ValueError,))
    refused("softmax or sigmoid", lambda: figraph.score(lambda score: score, weights="x"),
            (ValueError,))
    refused("NUL", lambda: figraph.score("score\0"), (ValueError,))


def a_function_and_a_text_make_the_same_mask():
    start = scores.array("start", 512, "i32")
    sees = scores.array("sees", dtype="i32")
    cases = [
        ("0:q_pos + 1", lambda q: [(0, q + 1)]),
        ("q_pos - 9:q_pos + 1, 0:4", lambda q_pos: ((q_pos - 9, q_pos + 1), (0, 4))),
        ("i32 start[512]; start[q_pos]:kv_length",
         lambda q, kv_length: [(start[q], kv_length)]),
        ("head * 3 - kv_head:q_pos // (row + 1)",
         lambda q, head, kv_head, row: [(head * 3 - kv_head, q // (row + 1))]),
    ]
    for text, function in cases:
        made = figraph.mask(text)
        assert made == figraph.mask(function), (made, figraph.mask(function))
        assert isinstance(made, figraph.Score) and " see " in " " + made.text
    with_bits = figraph.mask(lambda kv_length: [(0, kv_length)],
                             bits=lambda q: (sees[2 * q], sees[2 * q + 1]))
    assert with_bits == figraph.mask("n = 2 * q_pos; i32 sees[]; bits sees[n], sees[n + 1]; "
                                     "0:kv_length"), with_bits


def a_mask_is_joined_with_a_score():
    text = "f32 slope[8]; score + slope[head] * (kv_pos - q_pos)"
    wanted = "f32 slope[8]; i32 start[]; see start[q_pos]:q_pos + 1; " + text.split("; ")[1]
    mask = figraph.mask("i32 start[]; start[q_pos]:q_pos + 1")
    for given in (mask, mask.source):
        made = figraph.score(text, mask=given)
        assert made == figraph.score(wanted) and not isinstance(made, figraph.Mask)
        assert [one.name for one in made.arrays] == ["slope", "start"]
    assert figraph.score("score", mask=mask) == mask
    refused("beside a score with a mask", lambda: figraph.score(wanted, mask=mask), (ValueError,))
    refused("in another way", lambda: figraph.score("i32 start[4]; score + start[head]",
                                                    mask="i32 start[5]; start[head]:q_pos"),
            (ValueError,))
    refused("a score; figraph.mask makes masks",
            lambda: figraph.score("score", mask=figraph.score("score * 2.0")), (TypeError,))
    twice = figraph.score("score * 2.0")
    refused("takes 2 positional arguments", lambda: scores.Mask("0:4", twice), (TypeError,))
    refused("it must be a str or a function", lambda: figraph.mask(3), (TypeError,))
    refused("bits is given beside a text", lambda: figraph.mask("0:4", bits=lambda: (0, 0)),
            (ValueError,))
    refused("it must give a list of pairs", lambda: figraph.mask(lambda q: q), (TypeError,))
    refused("it must be a pair", lambda: figraph.mask(lambda q: [q]), (TypeError,))
    refused("the parameter kv", lambda: figraph.mask(lambda kv: [(kv, 4)]), (TypeError,))
    refused("more than 2 ranges", lambda: figraph.mask("0:1, 2:3, 4:5"), (ValueError,))
    refused("a mask reads kv_pos", lambda: figraph.mask("0:kv_pos"), (ValueError,))


def a_captured_step_computes_the_score():
    """Attention over two tokens whose keys are 0: the score alone makes the weights."""
    def weights_of(score, mask=None):
        graphs = figraph.capture("tutorial", traits="host", dtype="float32", kv_limit=64,
                                 score=score, mask=mask)
        # the host has nothing to compile
        engine = figraph.Engine(graphs, device="host", compile_scores=True, score_cache="scores")
        values = 4 * 64
        engine.bind("v.0", size=4 * 8 * values)
        engine.bind_rest(pages=32)
        engine.set_pages(0, [0])
        for length, value in ((1, 1.0), (2, 3.0)):
            engine.write("v.0", array("f", values * [value]))
            engine.step([length])
            engine.wait(timeout=10)
        return struct.unpack("f", engine.read("out.0", 4))[0]

    refused("compile_scores", lambda: figraph.Engine(figraph.capture("tutorial", traits="host"),
                                                     device="host", compile_scores="yes"),
            (TypeError,))
    refused("score_cache is for engines with compile_scores",
            lambda: figraph.Engine(figraph.capture("tutorial", traits="host"), device="host",
                                   score_cache=True), (ValueError,))
    refused("score_cache is ''", lambda: figraph.Engine(
        figraph.capture("tutorial", traits="host"), device="host", compile_scores=True,
        score_cache=""), (ValueError,))
    for cache in (True, False):
        figraph.Engine(figraph.capture("tutorial", traits="host"), device="host",
                       compile_scores=True, score_cache=cache).close()
    assert abs(weights_of(None) - 2) < 1e-6
    assert abs(weights_of(lambda score, kv: score + kv * math.log(3)) - 2.5) < 1e-5
    assert weights_of("select(kv_pos < 1, score, -inf)") == 1
    assert abs(weights_of("weights sigmoid; score") - 2) < 1e-6  # half of each
    assert weights_of(None, "0:1") == 1
    assert weights_of(None, figraph.mask(lambda q: [(q, q + 1)])) == 3
    assert weights_of(None, "5:q_pos") == 0
    assert abs(weights_of(lambda score, kv: score + kv * math.log(3), "0:9") - 2.5) < 1e-5
    refused("array slope has no number of elements",
            lambda: weights_of("score + slope[head]"), (ValueError,))


def operators_are_told_to_compile():
    """On the host the setting changes nothing; test_invoke_score.c shows what a GPU makes of it."""
    ffi.compile_scores()
    ffi.compile_scores(cache=True)
    ffi.compile_scores(True, cache="scores")
    refused("compile_scores is 'yes'", lambda: ffi.compile_scores("yes"), (TypeError,))
    refused("score_cache is for compile_scores", lambda: ffi.compile_scores(False, cache=True),
            (ValueError,))
    refused("score_cache is ''", lambda: ffi.compile_scores(cache=""), (ValueError,))
    ffi.compile_scores(False)


def no_entry_point_drops_a_score():
    """Each public function has a parameter named score, or refuses an argument of that name."""
    takes = {
        "capture", "capture_for", "score",
        "attention", "decode_attention",  # of torch and JAX
        "attend", "flash_attention",  # of JAX
        "scratch_of", "scratch_bytes", "needs_of",  # sizes of scratch
    }
    checks = {
        "capture", "capture_for", "plan", "spec",  # unknown fields of a spec are refused
        "tokamax_attention",  # refuses each argument that it does not know
        "put", "options", "check_rope",  # set fields of C structs by name
        "stage", "step", "custom_call",
    }
    found = 0
    package = os.path.dirname(figraph.__file__)
    for folder, _, names in os.walk(package):
        for name in names:
            if not name.endswith(".py") or name == "abi.py" or "integrations" in folder:
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                tree = ast.parse(file.read())
            for node in ast.walk(tree):
                if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                    continue
                found += 1
                said = [a.arg for a in node.args.args + node.args.kwonlyargs]
                if name != "scores.py":
                    assert "score" not in said or node.name in takes, (name, node.name)
                    flash = "jax/flash" in os.path.join(folder, name)  # masks given as arrays
                    assert "mask" not in said or node.name in takes or flash, (name, node.name)
                if node.args.kwarg is not None:
                    assert node.name in checks, (name, node.name)
    assert found > 100
    score = figraph.score("score * 2.0")
    graphs = figraph.capture("tutorial", traits="host", kv_limit=64)
    engine = figraph.Engine(graphs, device="host")
    for call in (lambda: figraph.spec("tutorial", score=score),
                 lambda: figraph.Prompts(score=score),
                 lambda: figraph.Engine(graphs, device="host", score=score),
                 lambda: figraph.load("none.fig", score=score),
                 lambda: graphs.plan([1], score=score),
                 lambda: engine.step([1], score=score),
                 lambda: engine.stage([1], score=score)):
        refused("score", call, (TypeError,))
    mask = figraph.mask("0:4")
    for call in (lambda: figraph.spec("tutorial", mask=mask),
                 lambda: figraph.Prompts(mask=mask),
                 lambda: figraph.Engine(graphs, device="host", mask=mask),
                 lambda: figraph.load("none.fig", mask=mask),
                 lambda: graphs.plan([1], mask=mask),
                 lambda: engine.step([1], mask=mask),
                 lambda: engine.stage([1], mask=mask)):
        refused("mask", call, (TypeError,))


def what_python_says_of_a_part_helps():
    for call in (math.tanh, float):
        refused("use the functions of scores", lambda: figraph.score(lambda score: call(score)),
                (TypeError,))
    refused("write x * x", lambda: figraph.score(lambda score: score**2), (TypeError,))
    refused("bits is (1, 2), it must be a function",
            lambda: figraph.mask(lambda q: [(0, q)], bits=(1, 2)), (TypeError,))


def an_array_that_no_score_can_have_is_refused():
    for name in ("a b", "", "3a", "\u00e4", 5, "a; score"):
        refused(f"the array's name is {name!r}", lambda: scores.array(name, 4), (ValueError,))
    for count in (0, -4):
        refused(f"count is {count}, it must be at least 1", lambda: scores.array("a", count),
                (ValueError,))
    refused("count is 1.5", lambda: scores.array("a", 1.5), (TypeError,))
    refused("dtype is 'i8'", lambda: scores.array("a", 4, dtype="i8"), (ValueError,))


run([a_function_and_a_text_make_the_same_score, shared_parts_stay_short,
     functions_that_no_score_can_express_are_refused, a_function_and_a_text_make_the_same_mask,
     a_mask_is_joined_with_a_score, a_captured_step_computes_the_score,
     operators_are_told_to_compile, no_entry_point_drops_a_score, what_python_says_of_a_part_helps,
     an_array_that_no_score_can_have_is_refused])
