#!/usr/bin/env python3
# compare.py: our attention beside a peer's, cell by cell.
#
# Usage: tools/bench/compare.py OURS.csv... --peer PEER.csv [--csv OUT.csv]
#
# OURS are files of figraph bench attention. PEER has a line for each cell and path: q_heads,
# kv_heads, head_dim, page, dtype, kv_dtype, lens, path, us, ok; the shortest path that was right
# counts. Cells that only one of the two has are left out. Invariant: a cell's rows are compared by
# their lengths, however they are written.
import argparse
import csv
import math
import sys

FIGURES = ("limit_us", "chain_us", "chain_share", "alone_us")


def rows_of(cell):
    lengths = {}
    for part in cell.lower().split("+"):
        count, length = part.split("x") if "x" in part else ("1", part)
        lengths[int(length)] = lengths.get(int(length), 0) + int(count)
    return tuple(sorted(lengths.items()))


def key_of(row, q_heads, kv_heads, cell):
    shape = (int(q_heads), int(kv_heads), int(row["head_dim"]), int(row["page"]))
    return shape + (row["dtype"], row["kv_dtype"], rows_of(cell))


def read_peer(path):
    best = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if row.get("kind", "decode") != "decode" or row.get("ok") != "1" or not row.get("us"):
                continue
            key = key_of(row, row["q_heads"], row["kv_heads"], row["lens"])
            us = float(row["us"])
            if key not in best or us < best[key][0]:
                best[key] = (us, row["path"])
    return best


def read_ours(paths):
    for path in paths:
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                plain = row["window"] in ("", "0") and row["layout"] == "nhd"
                if plain and row["chain_us"] and "x" in row["cell"]:
                    yield key_of(row, *row["heads"].split("/"), row["cell"]), row


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    arguments = argparse.ArgumentParser(description="our attention beside a peer's")
    arguments.add_argument("ours", nargs="+")
    arguments.add_argument("--peer", required=True)
    arguments.add_argument("--csv")
    asked = arguments.parse_args()
    peer = read_peer(asked.peer)
    lines = []
    for key, row in read_ours(asked.ours):
        if key not in peer:
            continue
        us, path = peer[key]
        ours = {figure: float(row[figure]) for figure in FIGURES}
        lines.append({"cell": row["cell"], "heads": row["heads"], "head_dim": row["head_dim"],
                      "page": row["page"], "dtype": row["dtype"], "kv_dtype": row["kv_dtype"],
                      **ours, "peer": path, "peer_us": us, "peer_share": ours["limit_us"] / us,
                      "ratio": us / ours["chain_us"]})
    if not lines:
        print("compare: the files have no cell in common", file=sys.stderr)
        return 1
    print(f"{'cell':18} {'heads':6} {'kv':5} {'limit':>8} {'chain':>8} {'alone':>8} {'peer':>8} "
          f"{'path':9} {'ratio':>6}")
    for line in lines:
        print(f"{line['cell']:18} {line['heads']:6} {line['kv_dtype']:5} {line['limit_us']:8.2f} "
              f"{line['chain_us']:8.2f} {line['alone_us']:8.2f} {line['peer_us']:8.2f} "
              f"{line['peer']:9} {line['ratio']:6.2f}")
    print(f"geometric means: ours {mean([line['chain_share'] for line in lines]):.3f}, "
          f"peer {mean([line['peer_share'] for line in lines]):.3f}, "
          f"ratio {mean([line['ratio'] for line in lines]):.2f}, "
          f"least {min(line['ratio'] for line in lines):.2f}, of {len(lines)} cells")
    if asked.csv:
        with open(asked.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, lines[0].keys())
            writer.writeheader()
            writer.writerows(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
