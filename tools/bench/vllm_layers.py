#!/usr/bin/env python3
"""vllm_layers.py: compares figraph in a real vLLM on a GPU with vLLM's own backends.

    tools/bench/vllm_layers.py [--only NAMES] [--load SECONDS] [--turn SECONDS] FOLDER
    tools/bench/vllm_layers.py --only latents FOLDER  models with latent attention (MLA)
    tools/bench/vllm_layers.py --report FOLDER        only writes the report of an earlier run

NAMES are groups and variants, with commas between: bf16, fp8, drafts (speculation), latents, or
names as in GROUPS, such as figraph,flash. Without --only, all but latents and flash_small run.

Each variant is a process with an engine of its own; servers/vllm_variant.py drives it.
All engines load at the same time. Then they measure one after the other, so each has the GPU to
itself. FOLDER gets a JSON file and a log for each variant, vllm_layers.csv with a line for each
cell, and report.txt. The exit code is 1 if a bar of BARS or a rule is not met. Run where vllm,
figraph and torch can be imported. Invariant: this file imports none of them.
"""

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CHILD = os.path.join(HERE, "servers", "vllm_variant.py")
GROUPS = {
    "bf16": ("triton", "flash", "figraph", "figraph_eager"),
    "fp8": ("triton_fp8", "flash_fp8", "figraph_fp8", "figraph_fp8_eager"),
    "drafts": ("figraph_small", "figraph_drafts", "figraph_drafts_eager", "flash_drafts",
               "flash_small"),
    "latents": ("mla_figraph", "mla_triton", "mla_flash", "mla_figraph_codes", "mla_check",
                "mla_codes_check"),
}
NAMES = sum(GROUPS.values(), ())
DEFAULT = [name for name in NAMES if name not in ("flash_small", *GROUPS["latents"])]
# The time of figraph's kernels of attention and append may be at most this multiple of the time of
# FlashAttention 3's kernels, by rows.
BARS = {
    ("figraph", "flash"): {1: 0.60, 32: 0.84, 128: 0.90},
    ("figraph_fp8", "flash_fp8"): {1: 0.45, 32: 0.58, 128: 0.60},
}
# Ratios that have no bar.
RATIOS = (("figraph_drafts", "flash_drafts"), ("figraph_small", "flash_small"),
          ("mla_figraph", "mla_triton"), ("mla_figraph", "mla_flash"),
          ("mla_figraph_codes", "mla_figraph"))
SAME = (("figraph", "figraph_eager"), ("figraph_fp8", "figraph_fp8_eager"),
        ("mla_figraph", "mla_check"), ("mla_figraph_codes", "mla_codes_check"))
# Greedy tokens of figraph may differ from those of FlashAttention 3, but no sooner than the tokens
# of two of vLLM's own backends differ from each other.
PARTING = (("figraph", "flash", "triton"), ("figraph_fp8", "flash_fp8", "triton_fp8"))
# With drafts, batches have other numbers of tokens, so vLLM's own products may round otherwise.
# Tokens may part where the margin is at most MARGIN, or at most the largest where OWN_DRAFTS part.
OWN_DRAFTS = ("flash_small", "flash_drafts")
DRAFT_PARTING = (("flash_small", "figraph_small"), ("flash_small", "figraph_drafts"),
                 ("figraph_small", "figraph_drafts"))
MARGIN = 0.125
# Comparisons without a rule.
OTHER_PARTING = (("figraph_small", "figraph_drafts_eager"), ("mla_triton", "mla_flash"),
                 ("mla_triton", "mla_figraph"), ("mla_flash", "mla_figraph"))
UNITS = 1.0  # the largest difference inside a layer, in units of bf16
LATENT_UNITS = 2.0  # the same from float32, for latent attention
CELL = ("rows", "context", "steps", "tokens", "full", "piecewise", "eager", "replays", "forwards",
        "layer_calls", "attention_us", "append_us", "all_us", "busy_us", "step_ms")


def read_words():
    words = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog="Example: vllm_layers.py --only "
        "drafts,latents out; then out/report.txt and out/vllm_layers.csv have the results.")
    words.add_argument("folder")
    words.add_argument("--only", metavar="NAMES", help="groups and variants, with commas between; "
                       f"groups: {', '.join(GROUPS)}; variants: {', '.join(NAMES)}")
    words.add_argument("--load", type=float, default=170, help="seconds in which engines load")
    words.add_argument("--turn", type=float, default=60, help="seconds that a variant may measure")
    words.add_argument("--report", action="store_true")
    words.add_argument("--script", default=CHILD, help="drives an engine; tests name another")
    return words.parse_args()


def names_of(only):
    """Returns the variants that --only names, each once."""
    if only is None:
        return DEFAULT
    names = []
    for word in only.split(","):
        if word not in GROUPS and word not in NAMES:
            print(f"vllm_layers.py: no group or variant {word!r}; there are "
                  f"{', '.join((*GROUPS, *NAMES))}", file=sys.stderr)
            sys.exit(2)
        names.extend(GROUPS.get(word, (word,)))
    return list(dict.fromkeys(names))


# ---- Processes -----------------------------------------------------------------------------------


class Variant:
    """A process with an engine. It says that it is ready through one pipe and waits at another."""

    def __init__(self, name, folder, script):
        self.name = name
        ready, self.said = os.pipe()
        told, self.go = os.pipe()
        self.ready = ready
        with open(os.path.join(folder, f"{name}.log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, script, name, folder, str(self.said), str(told)], stdout=log,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, pass_fds=(self.said, told))
        os.close(self.said)
        os.close(told)
        os.set_blocking(ready, False)

    def is_loading(self):
        if self.process.poll() is not None:
            return False
        try:
            return os.read(self.ready, 1) != b"r"
        except BlockingIOError:
            return True

    def measure(self, seconds):
        """Lets the process measure, and ends it after some seconds."""
        if self.process.poll() is None:
            os.write(self.go, b"g")
            try:
                self.process.wait(seconds)
                return
            except subprocess.TimeoutExpired:
                print(f"{self.name}: no result after {seconds:.0f} s", flush=True)
        self.end()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def run(words, names):
    began = time.monotonic()
    variants = [Variant(name, words.folder, words.script) for name in names]
    loading = list(variants)
    while loading and time.monotonic() - began < words.load:
        loading = [one for one in loading if one.is_loading()]
        time.sleep(0.1)
    print(f"loaded after {time.monotonic() - began:.0f} s", flush=True)
    for one in loading:
        print(f"{one.name}: not loaded after {words.load:.0f} s", flush=True)
        one.end()
    for one in variants:
        start = time.monotonic()
        one.measure(words.turn)
        print(f"{one.name}: {time.monotonic() - start:.0f} s, code {one.process.returncode}",
              flush=True)
        if one.process.returncode:
            with open(os.path.join(words.folder, f"{one.name}.log"), encoding="utf-8",
                      errors="replace") as log:
                print("    " + "    ".join(log.readlines()[-15:])[-2500:], flush=True)


# ---- Report --------------------------------------------------------------------------------------


class Report:
    """Collects the lines of the report, and the rules that are not met."""

    def __init__(self):
        self.lines, self.failed = [], []

    def say(self, line=""):
        self.lines.append(line)

    def hold(self, is_met, line):
        """Adds a line that says whether a rule is met."""
        self.lines.append(("  met     " if is_met else "  NOT MET ") + line)
        if not is_met:
            self.failed.append(line)


def read(folder):
    results = {}
    for name in NAMES:
        path = os.path.join(folder, f"{name}.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                results[name] = json.load(file)
    return results


def partings(one, other):
    """Returns where each row's tokens part: None, or the step and the margin of `one` there, the
    difference of the logarithms of its two best tokens."""
    found = []
    for row, (mine, theirs) in enumerate(zip(one["tokens"], other["tokens"])):
        at = next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b), None)
        margins = one.get("margins")  # an engine with drafts has none
        found.append(None if at is None else (at, margins[row][at] if margins else math.nan))
    return found


def largest(found):
    return max((part[1] for part in found if part is not None), default=0.0)


def describe(found):
    parted = [part for part in found if part is not None]
    if not parted:
        return f"all {len(found)} rows equal"
    return (f"{len(parted)} of {len(found)} rows part, after "
            f"{statistics.mean(part[0] for part in parted):.1f} tokens on average; margins there: "
            f"largest {largest(found):.4f}, median "
            f"{statistics.median(part[1] for part in parted):.4f}")


def cells_of(result):
    return {cell["rows"]: cell for cell in result.get("cells", [])}


def report_runs(report, results, names):
    report.say("Runs")
    for name in names:
        result = results.get(name)
        report.hold(result is not None and not result["errors"], f"{name} ran to its end")
        if result is not None:
            report.say(f"          {result['versions']}, seconds {result['seconds']}")
            report.lines.extend("          " + error for error in result["errors"])


def worst_of(lines):
    """Returns the largest of each number that was measured."""
    found = {}
    for line in lines:
        for key, value in line.items():
            if key not in ("kind", "rows", "calls") and value is not None:
                found[key] = max(value, found.get(key, value))
    return found


def report_layers(report, results):
    """Differences inside a layer. A unit is that of the largest number of a head's output."""
    report.say("\nInside a layer, against FlashAttention 3; latents against float32; in units of "
               "bf16")
    for name, result in results.items():
        for kind in sorted({line["kind"] for line in result.get("layers", [])}):
            lines = [line for line in result["layers"] if line["kind"] == kind]
            rows = sorted({line["rows"] for line in lines})
            worst = worst_of(lines)
            report.say(f"  {name}, {kind}: {len(rows)} numbers of rows from {rows[0]} to "
                       f"{rows[-1]}, {sum(line['calls'] for line in lines)} calls")
            report.say("          worst " + ", ".join(f"{key} {value:.5g}" for key, value in
                                                      worst.items()))
            judge_layers(report, name, kind, rows, worst)


def judge_layers(report, name, kind, rows, worst):
    is_latent = name in GROUPS["latents"]
    if kind == "decode" or is_latent:
        key = "rounded_units" if "rounded_units" in worst else "units"
        limit = LATENT_UNITS if is_latent else UNITS
        report.hold(worst[key] <= limit, f"{name}, {kind}: {key} {worst[key]:.3g} <= {limit}")
    if kind == "decode":
        last = 32 if is_latent else 128
        report.hold(rows == list(range(1, last + 1)), f"{name}: each number of rows to {last}")


def report_tokens(report, results):
    def found_of(*names):
        """Returns where the tokens of two variants part, or None if one is missing."""
        return partings(*(results[x] for x in names)) if all(x in results for x in names) else None

    report.say("\nTokens")
    for mine, other in SAME:
        found = found_of(mine, other)
        if found is not None:
            report.hold(not any(found), f"{mine} and {other}: {describe(found)}")
    for mine, peer, own in PARTING:
        found, theirs = found_of(peer, mine), found_of(peer, own)
        if found is not None and theirs is not None:
            report.say(f"  {peer} and {own}: {describe(theirs)}")
            report.hold(largest(found) <= largest(theirs), f"{peer} and {mine}: {describe(found)}")
    theirs = found_of(*OWN_DRAFTS)
    if theirs is not None:
        report.say(f"  {' and '.join(OWN_DRAFTS)}: {describe(theirs)}")
    for pair in DRAFT_PARTING:
        found, bound = found_of(*pair), max(MARGIN, largest(theirs or []))
        if found is not None:
            report.hold(largest(found) <= bound, f"{' and '.join(pair)}: {describe(found)}; "
                        f"limit {bound}")
    for pair in OTHER_PARTING:
        found = found_of(*pair)
        if found is not None:
            report.say(f"  {' and '.join(pair)}: {describe(found)}")


def report_drafts(report, results):
    """Says how many drafts were accepted."""
    counted = [(name, result) for name, result in results.items() if result.get("drafts")]
    if counted:
        report.say("\nDrafts accepted in the tokens above, and tokens of a row in a timed step")
    for name, result in counted:
        made = result["drafts"]
        report.say(f"  {name}: {made['accepted']} of {made['drafts']} accepted, rows by number "
                   f"accepted {made['rows_by_accepted']}")
        for cell in result["cells"]:
            report.say(f"  {name}, {cell['rows']} rows: "
                       f"{cell['tokens'] / (cell['steps'] * cell['rows']):.2f} tokens")


def is_judged(name):
    """Returns whether all steps that are timed must be in full graphs."""
    is_new = name in GROUPS["drafts"] or name in GROUPS["latents"]
    return (is_new or name.startswith("figraph")) and not name.endswith("eager")


def report_graphs(report, results):
    report.say("\nDecode steps in FULL graphs")
    for name, result in results.items():
        for cell in result.get("cells", []):
            line = (f"{name}, {cell['rows']} rows: {cell['steps']} steps, {cell['full']} FULL, "
                    f"{cell['piecewise']} PIECEWISE, {cell['eager']} without a graph, "
                    f"{cell['replays']} replays, {cell['forwards']} calls of the model and "
                    f"{cell['layer_calls']} of figraph's layers in Python, {cell['tokens']} tokens")
            # A row makes at least a token in each step, so there was one replay per step.
            is_full = (cell["tokens"] >= cell["steps"] * cell["rows"] > 0 and cell["full"] > 0
                       and cell["piecewise"] + cell["eager"] + cell["forwards"] == 0
                       and cell["replays"] == cell["steps"] and cell["layer_calls"] == 0)
            if is_judged(name):
                report.hold(is_full, line)
            else:
                report.say("          " + line)


def report_times(report, results):
    report.say("\nMicroseconds of a step, all layers (attention includes the append)")
    for name, result in results.items():
        for cell in result.get("cells", []):
            if cell["all_us"] is not None:
                report.say(f"  {name:18} {cell['rows']:4} rows: attention "
                           f"{cell['attention_us']:8.1f}, of it append {cell['append_us']:6.1f}; "
                           f"all kernels {cell['all_us']:8.1f}, GPU busy {cell['busy_us']:8.1f}; "
                           f"step {1e3 * cell['step_ms']:8.1f}, tokens/s by kernel time "
                           f"{1e6 * cell['tokens'] / cell['steps'] / cell['all_us']:8.0f}")
    for (mine, peer), bars in BARS.items():
        if mine not in results or peer not in results:
            continue
        own, theirs = cells_of(results[mine]), cells_of(results[peer])
        for rows, bar in bars.items():
            if rows not in own or rows not in theirs:
                report.hold(False, f"{mine}, {rows} rows: no time")
                continue
            ratio = own[rows]["attention_us"] / theirs[rows]["attention_us"]
            report.hold(ratio <= bar, f"{mine} / {peer}, {rows} rows: {ratio:.3f} <= {bar}")
            report.hold(own[rows]["all_us"] <= theirs[rows]["all_us"],
                        f"{mine}, {rows} rows: all kernels {own[rows]['all_us']:.0f} us, {peer} "
                        f"{theirs[rows]['all_us']:.0f} us")


def report_ratios(report, results):
    for mine, peer in RATIOS:
        if mine not in results or peer not in results:
            continue
        own, theirs = cells_of(results[mine]), cells_of(results[peer])
        for rows in sorted(set(own) & set(theirs)):
            few = [own[rows][key] / theirs[rows][key] for key in ("attention_us", "all_us")]
            report.say(f"  {mine} / {peer}, {rows} rows: {few[0]:.3f}, all kernels {few[1]:.3f}")


def report_kernels(report, results):
    report.say("\nKernels of a step: microseconds, launches, name; * counts as attention")
    for name, result in results.items():
        for cell in result.get("cells", []):
            report.say(f"  {name}, {cell['rows']} rows")
            for kernel, us, launches, kind in cell["kernels"]:
                report.say(f"    {us:9.2f} {launches:7.2f} {'*' if kind else ' '} {kernel}")


def write_csv(folder, results):
    with open(os.path.join(folder, "vllm_layers.csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("variant", "backend", "cache", "vllm", "figraph", "device", "driver",
                         *CELL))
        for name, result in results.items():
            about = result["versions"]
            for cell in result.get("cells", []):
                writer.writerow((name, result["backend"], result["cache"], about["vllm"],
                                 about["figraph"], about["device"], about["driver"],
                                 *(cell[key] for key in CELL)))


def write(folder, names):
    """Writes the report of a folder, and returns the rules that are not met."""
    results, report = read(folder), Report()
    report_runs(report, results, names or list(results))
    report_layers(report, results)
    report_tokens(report, results)
    report_drafts(report, results)
    report_graphs(report, results)
    report_times(report, results)
    report_ratios(report, results)
    write_csv(folder, results)
    text = "\n".join(report.lines)
    print(text, flush=True)
    report_kernels(report, results)
    with open(os.path.join(folder, "report.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(report.lines) + "\n")
    return report.failed


def main():
    words = read_words()
    names = names_of(words.only)
    words.folder = os.path.abspath(words.folder)
    os.makedirs(words.folder, exist_ok=True)
    if words.report:
        names = []
    else:
        run(words, names)
    failed = write(words.folder, names)
    print(f"FAILED: {len(failed)}" if failed else "passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
