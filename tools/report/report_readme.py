"""report_readme.py: makes the parts of README.md and docs/performance.md that give speeds.

Each part stands between two comments. README has the headline; docs/performance.md has all results
and the figures. Outside these parts a page shows only times that a CSV holds. Invariant: this file
computes every number of a part from the sheets; no number is typed.
"""

import re

from report_data import beside_peers, mean, number, numbers

BEGIN = "<!-- made by `make report` -->"
END = "<!-- until here -->"
NUMBER = r"(\d+(?:\.\d+)?)"
FIGURE = re.compile(rf"(?<![\w.]){NUMBER}(?: (?:to|and) {NUMBER})? (ns|us|µs|ms|s|[GT]B/s)\b")
PER_US = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}


def span(values, form="{:.2f}"):
    least, most = form.format(min(values)), form.format(max(values))
    return least if least == most else f"{least} to {most}"


def shares(sheet, chip):
    """Returns a sheet's shares of the limit, which is fixed on an H200 and measured elsewhere."""
    before = "" if chip == "h200" else "ceiling_"
    return [numbers(sheet.rows, f"{before}{way}_share") for way in ("chain", "alone")]


def of_attention(sheets, chip):
    sheet = sheets.get(f"{chip}_uniform")
    if sheet is None:
        return
    chain, alone = shares(sheet, chip)
    reads = mean(numbers(sheet.rows, "ceiling_gbps")) / 1e3
    yield f"attention, {len(sheet.rows)} uniform shapes, bf16, pages of 16", (
        f"{mean(chain):.3f} of the roofline in a chain, {mean(alone):.3f} standalone; "
        f"lowest {min(chain):.2f} and {min(alone):.2f}"
    )
    if chip == "h200":
        own = [mean(numbers(sheet.rows, f"ceiling_{way}_share")) for way in ("chain", "alone")]
        yield "that roofline", (
            f"2 µs plus the bytes of K and V at {speed_of(sheet):.2f} TB/s; the GPU of the run "
            f"reads {reads:.2f}, and by that speed the shares are {own[0]:.3f} and {own[1]:.3f}"
        )
    else:
        yield "that roofline", f"2 µs plus the bytes of K and V at {reads:.2f} TB/s, as measured"


def speed_of(sheet):
    """Returns TB/s, for the limits that the sheet has."""
    row = max(sheet.rows, key=lambda r: number(r, "bytes"))
    return number(row, "bytes") / (number(row, "limit_us") - 2) / 1e6


def of_bytes(sheets, chip):
    sheet = sheets.get(f"{chip}_fp8")
    if sheet is not None:
        chain, alone = shares(sheet, chip)
        yield f"attention, {len(sheet.rows)} shapes, e4m3 caches", (
            f"{mean(chain):.3f} and {mean(alone):.3f}; lowest {min(chain):.2f} and {min(alone):.2f}"
        )
    sheet = sheets.get(f"{chip}_shapes")
    if sheet is not None:
        chain, _ = shares(sheet, chip)
        yield "attention, other groups, head_dims, pages, layouts and types", (
            f"{span(chain)} in a chain"
        )
    sheet = sheets.get(f"{chip}_ragged")
    if sheet is not None:
        parts = [f"{r['cell']} {r['chain_us']} µs" for r in sheet.rows if r["set"] == "ragged"]
        twins = numbers(sheet.rows, "of_twin")
        yield "attention, ragged batches", (
            f"{', '.join(parts)}; {len(twins)} batches of long rows of random lengths reach "
            f"{mean(twins):.3f} of the bandwidth of equal rows on average, "
            f"{min(twins):.3f} at least"
        )


def of_peers(sheets, chip):
    cells = beside_peers(sheets.get(f"{chip}_peers"))
    if cells:
        ratios, dense = [c.ratio for c in cells], [c.ratio_of_all for c in cells]
        yield "beside FlashInfer's best backend", (
            f"{mean(ratios):.2f} × faster, both in a chain (geometric mean of {len(cells)} shapes "
            f"in one run; {span(ratios)} ×). With SDPA, FlexAttention and JAX over dense caches "
            f"among the backends it is {mean(dense):.2f} × ({span(dense)} ×)"
        )


def of_steps(sheets, chip):
    sheet = sheets.get(f"{chip}_step")
    if sheet is not None:
        parts = [
            f"{r['cell']} {r['layer_us']} µs" for r in sheet.rows if r.get("ranks", "1") == "1"
        ]
        yield (
            "one layer of llama-3.1-8b: activation, then RoPE, append and attention, no overlap"
        ), ", ".join(parts)
    sheet = sheets.get(f"{chip}_replay")
    if sheet is not None:
        above = [value / 1e3 for value in numbers(sheet.rows, "above_bare_ns")]
        over = [number(r, "result_over_empty_ns") for r in sheet.where(preset="tutorial")]
        words = f"{span(above, '{:.1f}')} µs on top of the bare graph launch"
        if over and over[0]:
            words += f"; the tutorial's step ends {over[0] / 1e3:.1f} µs later than an empty graph"
        yield "host time of a step", words


def of_captures(sheets, chip):
    sheet = sheets.get(f"{chip}_capture")
    if sheet is None:
        return
    ours = {r["what"]: r for r in sheet.rows if number(r, "ms")}
    first, rest = ours.get("figraph, file to first step"), ours.get("figraph, all its buckets")
    theirs = [number(r, "ms") for r in sheet.rows if r["what"].startswith("torch") and r["ms"]]
    if first and rest:
        words = f"from the file to the end of the first step {number(first, 'ms'):.1f} ms; after "
        words += f"that, preparing all other buckets {number(rest, 'ms'):.1f} ms "
        words += f"({rest['graphs']} graphs in all)"
        if theirs:
            words += "; for comparison, torch.cuda.graph takes "
            words += f"{span(theirs)} ms for one graph of FlashInfer's kernels"
        yield f"preparing {sheet.rows[0]['layers']} layers of llama-3.1-8b, context warm", words


def of_sums(sheets, chip):
    for sheet in sheets.values():
        if sheet.chip != chip or not sheet.set.startswith("allreduce"):
            continue
        small = [r for r in sheet.rows if 4096 <= number(r, "bytes") <= 65536]
        more = [number(r, "norm_adds_us") for r in small if number(r, "norm_adds_us")]
        if not small:
            continue
        words = f"{span(numbers(small, 'us'), '{:.1f}')} µs, "
        words += f"{span(numbers(small, 'of_nccl'))} of NCCL's time"
        if more:
            words += f"; residual and RMSNorm add {span(more)} µs"
        yield f"all-reduce over {sheet.rows[0]['ranks']} GPUs, 4 to 64 KB", words


def of_layers(sheets, chip):
    for sheet in sheets.values():
        if sheet.chip == chip and sheet.set.startswith("layers"):
            first = sheet.rows[0]
            yield f"{first['layers']} whole layers of {first['model']} on {first['ranks']} GPUs", (
                "; ".join(
                    f"{r['cell']} {r['step_ms']} ms ({number(r, 'times_as_fast'):.2f} × faster "
                    f"than on one GPU)" for r in sheet.rows
                )
            )


PARTS = (of_attention, of_bytes, of_peers, of_steps, of_captures, of_sums, of_layers)


def origin(sheets, chip):
    mine = [sheet.origin for sheet in sheets.values() if sheet.chip == chip]
    drivers, dates, commits = (sorted(set(column)) for column in zip(*mine))
    return f"driver {', '.join(drivers)}; {', '.join(dates)}; at {', '.join(commits)}"


def headline(sheets, chip):
    """Returns the text between README's comments."""
    rows = [row for of in PARTS for row in of(sheets, chip)]
    kept = [row for row in rows if not row[0].startswith(("that roofline", "attention, other"))]
    lines = [BEGIN, "", f"| one {chip.upper()} | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {what} | {words} |" for what, words in kept), "", END])


def part(sheets, chips, shown):
    """Returns the text for docs/performance.md. shown: [(path, title)] of figures."""
    lines = [BEGIN, ""]
    for chip in chips:
        rows = [row for of in PARTS for row in of(sheets, chip)]
        lines += [f"| one {chip.upper()} | {origin(sheets, chip)} |", "|---|---|"]
        lines += [f"| {what} | {words} |" for what, words in rows] + [""]
    for path, title in shown:
        lines.append(f'<img src="../{path}" alt="{title}" width="49%">')
    return "\n".join([*lines, "", END])


def replace(text, made):
    """Returns the page with a new part; None if the page lacks the two comments."""
    begin, end = text.find(BEGIN), text.find(END)
    return None if begin < 0 or end < begin else text[:begin] + made + text[end + len(END) :]


def is_held(value, digits, unit, sheets):
    """Returns whether a CSV has a number that rounds to this value."""
    for sheet in sheets.values():
        for name in sheet.columns:
            suffix = name.rsplit("_", 1)[-1]
            if unit in PER_US and suffix in PER_US:
                factor = PER_US[suffix] / PER_US[unit]
            elif unit in ("GB/s", "TB/s") and suffix == "gbps":
                factor = 1 if unit == "GB/s" else 1e-3
            else:
                continue
            if any(round(v * factor, digits) == value for v in numbers(sheet.rows, name)):
                return True
    return False


def typed_figures(text, sheets):
    """Returns (line, time) for each time outside the page's part that is in no CSV."""
    begin, end = text.find(BEGIN), text.find(END)
    for count, line in enumerate(text.split("\n"), 1):
        if begin >= 0 and text[:begin].count("\n") < count <= text[:end].count("\n") + 1:
            continue
        for match in FIGURE.finditer(line):
            for word in match.group(1, 2):
                digits = len(word.partition(".")[2]) if word else 0
                if word and not is_held(float(word), digits, match.group(3), sheets):
                    yield count, f"{word} {match.group(3)}"
