"""peer_cells.py: defines a cell of the grid and the messages between peers.py and its peers.

Each peer is a separate process. Its first line gives its version or the reason why it cannot run.
Then it answers every cell with a row for each of its paths. Invariant: a row has a time only if its
numbers were right.
"""

import json
import math
import os
import sys

LIMIT_US, LIMIT_BYTES_PER_US = 2.0, 4.70e6  # as figraph bench attention has them
COLD_BYTES = 256e6  # the least bytes of all caches together, as in figraph bench attention
CAP_BYTES = 40e9  # the most bytes of all caches together
CALLS_LEAST = 32  # the least number of calls in a graph

SHAPE = ("heads", "head_dim", "page", "dtype", "kv_dtype", "cell")


def lengths_of(cell):
    """Returns [512, 512] for 2x512."""
    lengths = []
    for part in cell.lower().split("+"):
        count, length = part.split("x") if "x" in part else ("1", part)
        lengths += int(count) * [int(length)]
    return lengths


class Cell:
    """A shape and its rows."""

    def __init__(self, shape):
        self.shape = {name: str(shape[name]) for name in SHAPE}
        self.q_heads, self.kv_heads = map(int, self.shape["heads"].split("/"))
        self.head_dim, self.page = int(shape["head_dim"]), int(shape["page"])
        self.dtype, self.kv_dtype = self.shape["dtype"], self.shape["kv_dtype"]
        self.lengths = lengths_of(self.shape["cell"])
        self.rows, self.tokens = len(self.lengths), sum(self.lengths)
        self.group = self.q_heads // self.kv_heads
        self.is_ragged = len(set(self.lengths)) > 1
        value_bytes = 1 if self.kv_dtype in ("e4m3", "e5m2") else 2
        self.token_bytes = self.kv_heads * self.head_dim * 2 * value_bytes
        self.bytes = self.tokens * self.token_bytes
        self.limit_us = LIMIT_US + self.bytes / LIMIT_BYTES_PER_US

    def __str__(self):
        return " ".join(self.shape[name] for name in ("cell", "heads", "kv_dtype"))

    def copies(self, held_bytes):
        """Returns the number of caches to use in turn; 0: memory cannot hold two of this size."""
        cold = max(2, math.ceil(COLD_BYTES / self.bytes))
        held = int(CAP_BYTES / held_bytes)
        return min(cold, held) if held >= 2 else 0

    def calls(self, copies):
        return copies * math.ceil(CALLS_LEAST / copies)


def row(path, us=None, least_us=None, error=None, note=""):
    return {"path": path, "us": us, "least_us": least_us, "error": error, "note": note}


def short(error):
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:200]


def serve(open_peer):
    """Runs a peer: opens it, then answers cell by cell, in lines of JSON.

    All other output goes to stderr, so that no library's line is mistaken for an answer.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer):
        print(json.dumps(answer), file=answers, flush=True)

    try:
        peer = open_peer(json.loads(sys.stdin.readline()))
    except Exception as error:
        say({"absent": short(error)})
        return
    say({"version": peer.version})
    for line in sys.stdin:
        try:
            rows = list(peer.measure(Cell(json.loads(line))))
        except Exception as error:
            rows = [row("", note=short(error))]
        say({"rows": rows})
