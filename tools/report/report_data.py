"""report_data.py: reads the CSVs of the bench once.

Invariant: each number in the report is a value of a CSV, or a function of this file computes it
from such values.
"""

import csv
import glob
import math
import os


class Sheet:
    """The rows of a CSV and the origin of its measurements."""

    def __init__(self, path):
        self.path, self.name = path, os.path.basename(path)
        self.chip, self.set = self.name[: -len(".csv")].split("_", 1)
        with open(path, newline="") as file:
            reader = csv.DictReader(file)
            self.rows = list(reader)
            self.columns = reader.fieldnames or []

    @property
    def origin(self):
        """Returns ("580.159.04", "2026-11-22", "955957a") from the first row."""
        first = self.rows[0] if self.rows else {}
        return tuple(first.get(name, "") for name in ("driver", "date", "commit"))

    def where(self, **values):
        return [r for r in self.rows if all(r[n] == str(v) for n, v in values.items())]


def read_all(folder):
    """Returns {"h200_uniform": Sheet}; leaves out sheets without origin."""
    sheets = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.csv"))):
        sheet = Sheet(path)
        if not sheet.rows or not all(sheet.origin):
            raise SystemExit(
                f"{path}: it does not say driver, date and commit: tools/bench/stamp.sh adds them"
            )
        sheets[f"{sheet.chip}_{sheet.set}"] = sheet
    return sheets


def number(row, name):
    """Returns None if the field is not a number."""
    try:
        value = float(row[name])
    except (KeyError, TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def numbers(rows, name):
    return [value for value in (number(row, name) for row in rows) if value is not None]


def mean(values):
    """Returns the geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def uniform_of(cell):
    """Returns (8, 2048) for 8x2048; None if the rows are ragged."""
    if "+" in cell:
        return None
    rows, length = cell.lower().split("x")
    return int(rows), int(length)


SHAPE = ("heads", "head_dim", "page", "dtype", "kv_dtype", "cell")


DENSE = ("sdpa", "flex", "jax")  # peers that have no pages to look up


class Beside:
    """A cell's time and its peers' times in one run: the best over pages and the best of all."""

    def __init__(self, shape, rows):
        self.shape = dict(zip(SHAPE, shape))
        timed = [(number(r, "us"), r["peer"], r["path"]) for r in rows if number(r, "us")]
        self.ours = mean([us for us, peer, _ in timed if peer == "figraph"])
        others = sorted(t for t in timed if t[1] != "figraph")
        paged = [t for t in others if t[1] not in DENSE] or others
        self.limit_us = number(rows[0], "limit_us")
        self.best, self.peer, self.path = paged[0] if paged else (math.nan, "", "")
        self.ratio = self.best / self.ours
        self.ratio_of_all = others[0][0] / self.ours if others else math.nan
        self.by_peer = {}
        for us, peer, _ in reversed(others):
            self.by_peer[peer.split("-")[0]] = us


def beside_peers(sheet):
    """Returns the cells that have a time of figraph and of a peer."""
    groups = {}
    for row in sheet.rows if sheet else []:
        if row["cell"]:
            groups.setdefault(tuple(row[n] for n in SHAPE), []).append(row)
    cells = [Beside(shape, rows) for shape, rows in groups.items()]
    return [cell for cell in cells if not math.isnan(cell.ratio)]
