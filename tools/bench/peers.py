#!/usr/bin/env python3
# peers.py: times figraph's attention and its alternatives, cell by cell, in one run.
#
# Usage: tools/bench/peers.py [--cells CELL,..] [--heads Q/KV,..] [--csv FILE] ...   --help
#
# Peers are FlashInfer by all its paths, PyTorch's SDPA and FlexAttention in torch.cuda.CUDAGraph,
# and JAX with command buffers: tools/bench/peers/ has a file for each. Every peer is a process that
# lasts for the run. figraph bench attention measures a cell first, then all peers in turn, in an
# order that is reversed from cell to cell, then figraph again. A peer that cannot run is listed as
# absent. Invariant: a time is written only if its numbers were compared and right.
import argparse
import csv
import json
import math
import os
import selectors
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "peers"))
import peer_cells  # noqa: E402

PEERS = {
    "flashinfer": ["peer_flashinfer.py"],
    "flashinfer-cudnn": ["peer_flashinfer.py", "cudnn"],
    "sdpa": ["peer_torch.py"],
    "flex": ["peer_torch.py", "flex"],
    "jax": ["peer_jax.py"],
}
DENSE = ("sdpa", "flex", "jax")  # these peers have no pages to look up
CELLS = (
    "1x512,1x4096,1x32768,8x512,8x2048,8x8192,32x1024,32x4096,64x2048,128x128,128x4096,256x512,"
    "256x8192,1x32768+39x512,2x32768+62x1024"
)
COLUMNS = ("device", "chip", "peer", "version", "path", *peer_cells.SHAPE, "bytes", "limit_us")
COLUMNS += ("us", "least_us", "error", "alone_us", "note")
CLOSE = 0.05  # largest relative difference from an older run of the same version


class Absent(Exception):
    """Raised for a peer that cannot run, with the reason."""


class Peer:
    """A process that answers cells."""

    def __init__(self, name, python):
        path = os.path.join(HERE, "peers", PEERS[name][0])
        self.name, self.version = name, ""
        self.process = subprocess.Popen(
            [python, path, *PEERS[name][1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.tell({})

    def tell(self, what):
        try:
            self.process.stdin.write(json.dumps(what).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # hear() notices that no answer comes

    def hear(self, seconds):
        """Returns the peer's next line; raises Absent if the peer died, refused or is too slow."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                self.process.kill()
                raise Absent(f"no answer within {seconds:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise Absent(f"it ended with exit code {self.process.wait()}")
        answer = json.loads(line)
        if "absent" in answer:
            raise Absent(answer["absent"])
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


class Table:
    """The rows of the CSV; the file is complete after every cell."""

    def __init__(self, path):
        self.path, self.rows, self.machine = path, [], {"device": "", "chip": ""}

    def add(self, **row):
        row = {**dict.fromkeys(COLUMNS, ""), **row}
        for name in ("us", "least_us", "alone_us", "limit_us"):
            row[name] = f"{row[name]:.3f}" if row[name] else ""
        row["error"] = f"{row['error']:.2e}" if row["error"] else ""
        self.rows.append(row)

    def save(self):
        if not self.path:
            return
        with open(self.path, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows({**row, **self.machine} for row in self.rows)
        subprocess.run([os.path.join(HERE, "stamp.sh"), self.path], check=True)

    def rows_of(self, shape):
        """Returns the rows of a cell that have a time."""
        key = tuple(shape.values())
        return [r for r in self.rows if r["us"] and key == tuple(r[n] for n in shape)]

    def times(self, shape):
        """Returns [(us, peer, path)] of a cell, the fastest first; figraph has two entries."""
        return sorted((float(r["us"]), r["peer"], r["path"]) for r in self.rows_of(shape))


def mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


# ---- Measuring -----------------------------------------------------------------------------------
def measure_ours(figraph, cell, table):
    """Runs figraph bench attention, which first compares its numbers with float64."""
    shape = cell.shape
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        words = [figraph, "bench", "attention", "--csv", file.name, "--kv", shape["cell"]]
        for name in ("heads", "head_dim", "page", "dtype", "kv_dtype"):
            words += ["--" + name.replace("_", "-"), shape[name]]
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        rows = list(csv.DictReader(open(file.name))) if done.returncode == 0 else []
    fixed = {"peer": "figraph", "path": "chain", "bytes": cell.bytes, "limit_us": cell.limit_us}
    if not rows or not rows[0]["chain_us"]:
        table.add(**shape, **fixed, note=" ".join(done.stderr.split())[-200:] or "no times")
        return
    ours = rows[0]
    table.machine = {"device": ours["device"], "chip": ours["chip"]}
    chain_us, alone_us = float(ours["chain_us"]), float(ours["alone_us"])
    table.add(**shape, **fixed, us=chain_us, alone_us=alone_us, note=f"{ours['worst_ulp']} ulp")


def open_peers(names, python, patience, table):
    """Returns the peers that run. All start at once and are ready before anything is timed."""
    opened, ready = [Peer(name, python) for name in names], []
    for peer in opened:
        try:
            peer.version = peer.hear(patience)["version"]
            ready.append(peer)
        except Absent as reason:
            lose(peer, reason, table)
    return ready


def lose(peer, reason, table, shape={}):
    print(f"{peer.name} is absent: {reason}")
    table.add(peer=peer.name, version=peer.version, note=f"absent: {reason}", **shape)
    peer.close()


def measure_cell(cell, figraph, peers, patience, table):
    """Returns the peers that still run."""
    left, begin = [], time.monotonic()
    measure_ours(figraph, cell, table)
    for peer in peers:
        peer.tell(cell.shape)
        try:
            for row in peer.hear(patience)["rows"]:
                sizes = {"bytes": cell.bytes, "limit_us": cell.limit_us}
                table.add(peer=peer.name, version=peer.version, **cell.shape, **sizes, **row)
            left.append(peer)
        except Absent as reason:
            lose(peer, reason, table, cell.shape)
    measure_ours(figraph, cell, table)
    print(f"{cell}: {time.monotonic() - begin:.1f} s", file=sys.stderr)
    return left


# ---- Output --------------------------------------------------------------------------------------
def beside(cell, table):
    """Returns figraph's two times, the best peer's time over pages and the best of all peers; None
    if one is missing."""
    times = table.times(cell.shape)
    ours = [float(r["us"]) for r in table.rows_of(cell.shape) if r["peer"] == "figraph"]
    others = [t for t in times if t[1] != "figraph"]
    paged = [t for t in others if t[1] not in DENSE] or others
    return (*ours, paged[0], others[0]) if len(ours) == 2 and others else None


def show(cells, table):
    """Prints a line for each cell: figraph's time, the best peer's time, and their ratio."""
    drifts, ratios, dense = [], [], []
    head = ("cell", "heads", "kv", "limit", "figraph", "again", "peer", "ratio")
    print("%-18s %-6s %-5s %8s %8s %8s %8s %6s  path; if quicker, over dense caches" % head)
    for cell in cells:
        lies = beside(cell, table)
        if lies is None:
            print(f"{cell}: without times of figraph, or of others")
            continue
        before, after, (best, peer, path), least = lies
        ours = mean((before, after))
        drifts.append(max(before, after) / min(before, after) - 1)
        ratios.append(best / ours)
        dense.append(least[0] / ours)
        figures = (cell.limit_us, before, after, best, ratios[-1])
        shape = (cell.shape["cell"], cell.shape["heads"], cell.shape["kv_dtype"])
        print("%-18s %-6s %-5s %8.2f %8.2f %8.2f %8.2f %6.2f  " % (*shape, *figures), end="")
        print(f"{peer} {path}", "" if least[1] == peer else "; %.2f us, %s %s" % least)
    if ratios:
        print(
            f"the best path takes {mean(ratios):.3f} of ours, geometric mean of {len(ratios)} "
            f"cells; least {min(ratios):.3f}; with dense caches among them {mean(dense):.3f} and "
            f"{min(dense):.3f}; ours before and after its peers lie {100 * max(drifts):.1f} % "
            "apart at most"
        )
    wrong = [r for r in table.rows if r["note"].startswith("wrong")]
    for row in wrong:
        print(f"{row['cell']} {row['peer']} {row['path']}: {row['note']}")


def read_older(path):
    """Returns the times by (path, shape) from an older CSV of FlashInfer."""
    older = {}
    for row in csv.DictReader(open(path, newline="")):
        if row.get("kind", "decode") == "decode" and row.get("ok") == "1" and row.get("us"):
            shape = {**row, "heads": f"{row['q_heads']}/{row['kv_heads']}", "cell": row["lens"]}
            older[(row["path"], *(shape[n] for n in peer_cells.SHAPE))] = float(row["us"])
    return older


def agree(path, table):
    """Compares FlashInfer's times with those of an older run."""
    older, ratios = read_older(path), {}
    for row in table.rows:
        key = (row["path"], *(row[n] for n in peer_cells.SHAPE))
        if row["us"] and row["peer"].startswith("flashinfer") and key in older:
            ratios[key] = float(row["us"]) / older[key]
    apart = {key: ratio for key, ratio in ratios.items() if abs(math.log(ratio)) > CLOSE}
    for key, ratio in sorted(apart.items(), key=lambda item: -abs(math.log(item[1]))):
        print(f"{key[0]} {key[-1]} {key[-2]}: {ratio:.3f} of what the older run took")
    print(
        f"of {len(ratios)} times that both runs have, {len(apart)} differ by more than "
        f"{100 * CLOSE:.0f} %; geometric mean of the ratios {mean(ratios.values()):.3f}"
    )


# ---- Arguments -----------------------------------------------------------------------------------
def read_arguments():
    parser = argparse.ArgumentParser(
        description="Times figraph's attention and its alternatives in one run."
    )
    option = parser.add_argument
    option("--cells", default=CELLS, help="cells, such as 8x2048,1x32768+39x512")
    option("--heads", default="32/8", help="query/kv heads; separate several by commas")
    option("--head-dim", default=128, type=int)
    option("--page", default=16, type=int)
    option("--dtype", default="bf16")
    option("--kv-dtype", default="bf16", help="separate several by commas: bf16,e4m3")
    option("--peers", default=",".join(PEERS), help="some of " + ",".join(PEERS))
    option("--csv", help="the file to write all times to")
    option("--agree", metavar="CSV", help="an older run, whose times of FlashInfer are compared")
    option("--budget", default=3600, type=float, help="seconds after which no new cell begins")
    option("--patience", default=120, type=float, help="seconds that a peer may take for a cell")
    option("--figraph", default=os.environ.get("FIGRAPH", "build/figraph"))
    option("--python", default=sys.executable, help="a Python that can import the peers")
    asked = parser.parse_args()
    asked.peers = [name for name in asked.peers.split(",") if name]
    for name in asked.peers:
        if name not in PEERS:
            parser.error(f'--peers: "{name}" is none of {", ".join(PEERS)}')
    if not os.access(asked.figraph, os.X_OK):
        parser.error(f"--figraph: {asked.figraph} is no program")
    return asked


def cells_of(asked):
    fixed = {"head_dim": asked.head_dim, "page": asked.page, "dtype": asked.dtype}
    return [
        peer_cells.Cell({**fixed, "heads": heads, "kv_dtype": kv_dtype, "cell": cell})
        for kv_dtype in asked.kv_dtype.split(",")
        for heads in asked.heads.split(",")
        for cell in asked.cells.split(",")
    ]


def main():
    asked = read_arguments()
    deadline = time.monotonic() + asked.budget
    table, cells = Table(asked.csv), cells_of(asked)
    peers = open_peers(asked.peers, asked.python, asked.patience, table)
    done = []
    for cell in cells:
        if time.monotonic() > deadline:
            print(f"{len(cells) - len(done)} cells were not begun: the budget is spent")
            break
        peers = measure_cell(cell, asked.figraph, peers, asked.patience, table)[::-1]
        table.save()
        done.append(cell)
    for peer in peers:
        peer.close()
    show(done, table)
    if asked.agree:
        agree(asked.agree, table)
    return 0 if len(done) == len(cells) else 1


if __name__ == "__main__":
    sys.exit(main())
