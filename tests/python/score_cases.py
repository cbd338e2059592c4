"""score_cases.py: variants of attention as figraph's scores and as numpy computes them in float64.

A variant has a text, a function or both, arrays by name, and a numpy function of the logits [heads,
tokens] and of the places of the query and its tokens.
"""

from typing import Any, Callable, NamedTuple

import numpy as np
from figraph import scores

HEADS, KV = 8, 4
numbers = np.random.default_rng(3)


class Place(NamedTuple):
    """A query and its tokens; the arrays broadcast to [heads, tokens]."""

    q: int
    kv: np.ndarray
    head: np.ndarray
    kv_head: np.ndarray
    length: int
    row: int


class Variant(NamedTuple):
    of: Any  # a text or a function
    arrays: dict[str, np.ndarray]
    score: Callable[[np.ndarray, Place, dict[str, np.ndarray]], np.ndarray]
    is_plain: bool = False  # it runs as attention with a soft cap or ALiBi
    is_sigmoid: bool = False


SLOPE = {"slope": numbers.uniform(0.1, 1, HEADS).astype(np.float32)}
BIAS = {"bias": numbers.standard_normal(40).astype(np.float32),
        "heat": np.asarray([1.5], np.float32)}
DOCUMENT = {"document": np.asarray([0, 0, 1, 1, 0, 2, 2, 1, 0] * 4, np.int32)}
START = {"start": (np.arange(36) // 3 * 3).astype(np.int32)}


def alibi(x, at, arrays):
    return x + arrays["slope"][at.head] * (at.kv - at.q)


def from_function(score, q, kv, head):
    return score + scores.array("slope", HEADS)[head] * (kv - q)


def own_from_function(score, q_pos, kv_pos, head):
    slope = scores.array("slope")[head]
    return score + slope * scores.to_float(kv_pos) - slope * scores.to_float(q_pos)


VARIANTS = [
    Variant("30 * tanh(score / 30)", {}, lambda x, at, _: 30 * np.tanh(x / 30), True),
    Variant("score + slope[head] * (kv_pos - q_pos)", SLOPE, alibi, True),
    Variant(from_function, SLOPE, alibi, True),
    Variant(own_from_function, SLOPE, alibi),
    Variant("f32 heat; score / heat + bias[kv_pos] + kv_head * 0.25 + row", BIAS,
            lambda x, at, a: x / a["heat"][0] + a["bias"][at.kv] + at.kv_head * 0.25 + at.row),
    Variant("weights sigmoid; score - log2(kv_length) * 0.5", {},
            lambda x, at, _: x - np.log2(at.length) * 0.5, is_sigmoid=True),
    Variant("i32 document[]; select(document[kv_pos] == document[q_pos], score, -inf)", DOCUMENT,
            lambda x, at, a: np.where(a["document"][at.kv] == a["document"][at.q], x, -np.inf)),
    Variant("see q_pos - 2:q_pos + 1, 0:1; score", {},
            lambda x, at, _: np.where((at.kv > at.q - 3) | (at.kv < 1), x, -np.inf)),
    Variant("i32 start[]; see start[q_pos]:q_pos + 1; score + head", START,
            lambda x, at, a: np.where(at.kv >= a["start"][at.q], x + at.head, -np.inf)),
]


def attention(q, k, v, of, length, row=0, q_pos=None):
    """q: [heads][dim], k and v: [tokens][kv_heads][dim], the tokens that the query sees, of which
    the last is its own. length: the tokens of the row. Returns out, and lse to base 2."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    if k.shape[0] == 0:
        return np.zeros_like(q), np.full(q.shape[0], -np.inf)
    heads = np.arange(q.shape[0])[:, None]
    at = Place(k.shape[0] - 1 if q_pos is None else q_pos, np.arange(k.shape[0])[None], heads,
               heads // (q.shape[0] // k.shape[1]), length, row)
    k, v = (np.repeat(x, q.shape[0] // x.shape[1], axis=1) for x in (k, v))
    logits = np.einsum("hd,thd->ht", q, k) * q.shape[-1] ** -0.5
    made = of.score(logits, at, of.arrays)
    weights = 1 / (1 + np.exp(-made)) if of.is_sigmoid else np.exp(made)
    total = weights.sum(1)
    parts = weights if of.is_sigmoid else weights / total[:, None]
    return np.einsum("ht,thd->hd", parts, v), np.log2(total)
