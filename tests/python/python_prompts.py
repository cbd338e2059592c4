"""python_prompts.py: tests that figraph.Prompts gives float64's results, and that its messages name
the wrong argument.

Run where the package can be imported; no array library is needed, since this file has its own
arrays.
"""

import ctypes
import math
import os
import random
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import figraph  # noqa: E402
from figraph import errors  # noqa: E402
from sentences import refused, run  # noqa: E402

Q, KV, DIM, PAGE, PAGES = 4, 2, 64, 4, 6
STARTS, LENGTHS = [1, 4, 5], [9, 3]
TABLE = [[5, 2, 0], [3, 1, 1]]
numbers = random.Random(4)


class Array:
    """Memory with numpy's array interface."""

    def __init__(self, kind, *shape):
        self.shape, self.kind, self.is_constant = shape, kind, False
        self.bytes = bytearray(math.prod(shape) * int(kind[1]) + 64)
        self.skip = -ctypes.addressof(ctypes.c_char.from_buffer(self.bytes)) % 64

    @property
    def __array_interface__(self):
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes)) + self.skip
        return {"version": 3, "typestr": f"<{self.kind}", "shape": self.shape, "strides": None,
                "data": (address, self.is_constant)}

    def constant(self):
        self.is_constant = True
        return self

    def put(self, values):
        code = {"f2": "e", "f4": "f", "i4": "i", "u1": "B"}[self.kind]
        struct.pack_into(f"{len(values)}{code}", self.bytes, self.skip, *values)
        return self

    def get(self, first, count):
        code = {"f2": "e", "f4": "f"}[self.kind]
        at = self.skip + first * int(self.kind[1])
        return struct.unpack_from(f"{count}{code}", self.bytes, at)


def normal(*shape):
    return Array("f2", *shape).put([numbers.gauss(0, 1) for _ in range(math.prod(shape))])


def opened(**changes):
    return figraph.Prompts(**{**dict(dtype="f16", q_heads=Q, kv_heads=KV, head_dim=DIM,
                                     page_size=PAGE, device="host"), **changes})


def arrays(prompts, layout="nhd"):
    page = (PAGE, KV) if layout == "nhd" else (KV, PAGE)
    plan = prompts.plan(STARTS, LENGTHS, page_columns=3)
    memory = prompts.memory(2, 6)
    return dict(q=normal(6, Q, DIM), k_cache=normal(PAGES, *page, DIM),
                v_cache=normal(PAGES, *page, DIM), out=Array("f2", 6, Q, DIM),
                page_table=Array("i4", 2, 3).put([n for row in TABLE for n in row]),
                plan=Array("u1", len(plan)).put(list(plan)),
                scratch=Array("u1", memory.scratch_bytes), lse=Array("f4", 6, Q))


def at(row, token, head, layout):
    page, inside = TABLE[row][token // PAGE], token % PAGE
    if layout == "nhd":
        return ((page * PAGE + inside) * KV + head) * DIM
    return ((page * KV + head) * PAGE + inside) * DIM


def attended(held, row, query, head, layout):
    """Returns out and lse of one query, computed in float64."""
    q = held["q"].get(((STARTS[row] + query) * Q + head) * DIM, DIM)
    seen = LENGTHS[row] - (STARTS[row + 1] - STARTS[row]) + query + 1
    logits, values = [], []
    for token in range(seen):
        place = at(row, token, head // (Q // KV), layout)
        k, v = held["k_cache"].get(place, DIM), held["v_cache"].get(place, DIM)
        logits.append(sum(a * b for a, b in zip(q, k)) / math.sqrt(DIM))
        values.append(v)
    most = max(logits)
    weights = [math.exp(x - most) for x in logits]
    whole = sum(weights)
    out = [sum(w * v[i] for w, v in zip(weights, values)) / whole for i in range(DIM)]
    return out, (most + math.log(whole)) / math.log(2)


def prompts_attend_in_either_layout():
    for layout in ("nhd", "hnd"):
        prompts = opened()
        held = arrays(prompts, layout)
        prompts.run(layout=layout, **held)
        for row in range(2):
            for query in range(STARTS[row + 1] - STARTS[row]):
                for head in range(Q):
                    vector = (STARTS[row] + query) * Q + head
                    out, lse = attended(held, row, query, head, layout)
                    for x, y in zip(held["out"].get(vector * DIM, DIM), out):
                        assert abs(x - y) < 2e-3, (layout, row, query, head, x, y)
                    assert abs(held["lse"].get(vector, 1)[0] - lse) < 1e-4
        assert not any(held["out"].get(0, Q * DIM)), "a token of no row was written"


def rows_share_prefixes():
    prompts = opened(shared_limit=4)

    def planned(prefixes):
        return bytes(prompts.plan(STARTS, LENGTHS, page_columns=3, prefixes=prefixes))

    assert planned([(0, 2, 2)]) != planned([])
    assert planned([(0, 2, 1), (0, 2, 2)]) != planned([(0, 2, 2)])
    starts, lengths = list(range(9)), 8 * [4 * 40 + 1]
    shared = opened(shared_limit=8)
    alone = shared.plan(starts, lengths, page_columns=41)
    table = 8 * list(range(41))
    assert shared.plan(starts, lengths, page_columns=41, page_table=table) != alone
    table = list(range(8 * 41))
    assert shared.plan(starts, lengths, page_columns=41, page_table=table) == alone
    refused("page_table has 2", lambda: shared.plan(starts, lengths, page_columns=41,
                                                    page_table=[1, 2]), (ValueError,))
    refused("row 1 has 2", lambda: planned([(0, 2, 3)]), (errors.Invalid,))
    refused("first_row is 4294967296", lambda: planned([(1 << 32, 2, 3)]), (OverflowError,))
    refused("shared_limit is 0", lambda: opened().plan(STARTS, LENGTHS, page_columns=3,
                                                       prefixes=[(0, 2, 2)]), (errors.Invalid,))


def wrong_arguments_are_named():
    prompts = opened()
    held = arrays(prompts)

    def wrong(**changes):
        return lambda: prompts.run(**{**held, **changes})

    refused("q is [6, 4, 32]", wrong(q=normal(6, Q, 32)), (errors.Invalid,))
    refused("out is f32", wrong(out=Array("f4", 6, Q, DIM)), (errors.Invalid,))
    refused("v_cache has 5 pages", wrong(v_cache=normal(5, PAGE, KV, DIM)), (errors.Invalid,))
    refused("scratch_bytes", wrong(scratch=Array("u1", 64)), (errors.Invalid,))
    refused("layout", wrong(layout="hdn"), (ValueError,))
    for name in ("q", "k_cache", "v_cache", "page_table", "out", "plan", "scratch"):
        refused(f"{name} is of type list", wrong(**{name: [1]}), (TypeError,))
    for name, array in (("out", Array("f2", 6, Q, DIM)), ("lse", Array("f4", 6, Q)),
                        ("scratch", Array("u1", 1 << 20))):
        refused(f"{name} is read-only", wrong(**{name: array.constant()}), (errors.Invalid,))
    refused("soft_cap is inf", lambda: opened(soft_cap=math.inf), (errors.Invalid,))
    refused("dtype", lambda: opened(dtype="f32"), (ValueError,))
    refused("device", lambda: opened(device="gpu"), (ValueError,))
    refused("head_dim", lambda: opened(head_dim=65), (errors.Invalid,))
    refused("query_start has 2", lambda: prompts.plan([0, 1], [1, 1], page_columns=1),
            (ValueError,))
    refused("length of row 0", lambda: prompts.plan([0, 2], [1], page_columns=1), (errors.Invalid,))


run([prompts_attend_in_either_layout, rows_share_prefixes, wrong_arguments_are_named])
