"""report_readme.py: the part of README.md that says how fast, made from the sheets.

It stands between two comments. Outside of them README shows no time that no CSV holds. Invariant:
every figure of the part is made here, none is typed.
"""

import re

from report_data import beside_peers, mean, number, numbers

BEGIN = "<!-- made by `make report` -->"
END = "<!-- until here -->"
NUMBER = r"(\d+(?:\.\d+)?)"
FIGURE = re.compile(rf"(?<![\w.]){NUMBER}(?: (?:to|and) {NUMBER})? (ns|us|ms|s|[GT]B/s)\b")
PER_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def span(values, form="{:.2f}"):
    least, most = form.format(min(values)), form.format(max(values))
    return least if least == most else f"{least} to {most}"


def shares(sheet, chip):
    """The names of a sheet's shares: an H200's limit is a fixed one, others have their own."""
    before = "" if chip == "h200" else "ceiling_"
    return [numbers(sheet.rows, f"{before}{way}_share") for way in ("chain", "alone")]


def of_attention(sheets, chip):
    sheet = sheets.get(f"{chip}_uniform")
    if sheet is None:
        return
    chain, alone = shares(sheet, chip)
    reads = mean(numbers(sheet.rows, "ceiling_gbps")) / 1e3
    yield f"attention over {len(sheet.rows)} uniform cells, bf16, pages of 16", (
        f"{mean(chain):.3f} of the memory's limit in a chain, {mean(alone):.3f} standing alone; "
        f"least {min(chain):.2f} and {min(alone):.2f}"
    )
    if chip == "h200":
        own = [mean(numbers(sheet.rows, f"ceiling_{way}_share")) for way in ("chain", "alone")]
        yield "that limit", (
            f"2 us and the bytes of K and V at {speed_of(sheet):.2f} TB/s; this GPU reads "
            f"{reads:.2f}, and of that it is {own[0]:.3f} and {own[1]:.3f}"
        )
    else:
        yield "that limit", f"2 us and the bytes of K and V at {reads:.2f} TB/s, which it reads"


def speed_of(sheet):
    """TB/s, of the limits that the sheet has."""
    row = max(sheet.rows, key=lambda r: number(r, "bytes"))
    return number(row, "bytes") / (number(row, "limit_us") - 2) / 1e6


def of_bytes(sheets, chip):
    sheet = sheets.get(f"{chip}_fp8")
    if sheet is not None:
        chain, alone = shares(sheet, chip)
        yield f"over {len(sheet.rows)} cells of e4m3 caches", (
            f"{mean(chain):.3f} and {mean(alone):.3f}; least {min(chain):.2f} and {min(alone):.2f}"
        )
    sheet = sheets.get(f"{chip}_shapes")
    if sheet is not None:
        chain, _ = shares(sheet, chip)
        yield "other groups, head_dims, pages, layouts and types", f"{span(chain)} in a chain"
    sheet = sheets.get(f"{chip}_ragged")
    if sheet is not None:
        parts = [f"{r['cell']} {r['chain_us']} us" for r in sheet.rows if r["set"] == "ragged"]
        twins = numbers(sheet.rows, "of_twin")
        yield "ragged batches", (
            f"{', '.join(parts)}; {len(twins)} drawn at random at {mean(twins):.3f} of the speed "
            f"of even ones, the slowest at {min(twins):.3f}"
        )


def of_peers(sheets, chip):
    cells = beside_peers(sheets.get(f"{chip}_peers"))
    if cells:
        ratios, dense = [c.ratio for c in cells], [c.ratio_of_all for c in cells]
        yield f"FlashInfer by its best path in the same run, {len(cells)} cells", (
            f"takes {mean(ratios):.2f} times as long, geometric mean; {span(ratios)} by cell. With "
            f"SDPA, FlexAttention and JAX over dense caches among them {mean(dense):.2f}; "
            f"{span(dense)}"
        )


def of_steps(sheets, chip):
    sheet = sheets.get(f"{chip}_step")
    if sheet is not None:
        parts = [
            f"{r['cell']} {r['layer_us']} us" for r in sheet.rows if r.get("ranks", "1") == "1"
        ]
        yield "a layer of llama-3.1-8b: activation, RoPE, append, attention", ", ".join(parts)
    sheet = sheets.get(f"{chip}_replay")
    if sheet is not None:
        above = [value / 1e3 for value in numbers(sheet.rows, "above_bare_ns")]
        over = [number(r, "result_over_empty_ns") for r in sheet.where(preset="tutorial")]
        words = f"{span(above, '{:.1f}')} us beyond the bare launch"
        if over and over[0]:
            words += f"; from launch to result {over[0] / 1e3:.1f} us above an empty graph's"
        yield "a step on the host", words


def of_captures(sheets, chip):
    sheet = sheets.get(f"{chip}_capture")
    if sheet is None:
        return
    ours = [r for r in sheet.rows if r["what"].startswith("figraph,") and number(r, "ms")]
    theirs = [number(r, "ms") for r in sheet.rows if r["what"].startswith("torch") and r["ms"]]
    if ours:
        words = "; ".join(f"{r['what'][9:]} {number(r, 'ms'):.1f} ms" for r in ours)
        if theirs:
            words += f"; torch.cuda.graph of one, over FlashInfer's kernels, {span(theirs)} ms"
        yield f"getting {sheet.rows[0]['layers']} layers of llama-3.1-8b ready", words


def of_sums(sheets, chip):
    for sheet in sheets.values():
        if sheet.chip != chip or not sheet.set.startswith("allreduce"):
            continue
        small = [r for r in sheet.rows if 4096 <= number(r, "bytes") <= 65536]
        more = [number(r, "norm_adds_us") for r in small if number(r, "norm_adds_us")]
        if not small:
            continue
        words = f"{span(numbers(small, 'us'), '{:.1f}')} us, "
        words += f"{span(numbers(small, 'of_nccl'))} of NCCL's time"
        if more:
            words += f"; residual and RMSNorm add {span(more)} us"
        yield f"all-reduce over {sheet.rows[0]['ranks']} GPUs, 4 to 64 KB", words


def of_layers(sheets, chip):
    for sheet in sheets.values():
        if sheet.chip == chip and sheet.set.startswith("layers"):
            first = sheet.rows[0]
            yield f"{first['layers']} whole layers of {first['model']} on {first['ranks']} GPUs", (
                ", ".join(
                    f"{r['cell']} {r['step_ms']} ms, {number(r, 'times_as_fast'):.2f} times as "
                    f"fast as on one" for r in sheet.rows
                )
            )


PARTS = (of_attention, of_bytes, of_peers, of_steps, of_captures, of_sums, of_layers)


def origin(sheets, chip):
    mine = [sheet.origin for sheet in sheets.values() if sheet.chip == chip]
    drivers, dates, commits = (sorted(set(column)) for column in zip(*mine))
    return f"driver {', '.join(drivers)}; {', '.join(dates)}; at {', '.join(commits)}"


def part(sheets, chips, shown):
    """All that stands between the comments. shown: [(path, title)] of drawings."""
    lines = [BEGIN, ""]
    for chip in chips:
        rows = [row for of in PARTS for row in of(sheets, chip)]
        lines += [f"| one {chip.upper()} | {origin(sheets, chip)} |", "|---|---|"]
        lines += [f"| {what} | {words} |" for what, words in rows] + [""]
    for path, title in shown:
        lines.append(f'<img src="{path}" alt="{title}" width="49%">')
    return "\n".join([*lines, "", END])


def replace(text, made):
    """README with the part made anew; None where it has no place for it."""
    begin, end = text.find(BEGIN), text.find(END)
    return None if begin < 0 or end < begin else text[:begin] + made + text[end + len(END) :]


def is_held(value, digits, unit, sheets):
    """Whether a CSV has a number that rounds to it."""
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
    """(line, figure) of each time outside the part that no CSV holds."""
    begin, end = text.find(BEGIN), text.find(END)
    for count, line in enumerate(text.split("\n"), 1):
        if text[:begin].count("\n") < count <= text[:end].count("\n") + 1:
            continue
        for match in FIGURE.finditer(line):
            for word in match.group(1, 2):
                digits = len(word.partition(".")[2]) if word else 0
                if word and not is_held(float(word), digits, match.group(3), sheets):
                    yield count, f"{word} {match.group(3)}"
