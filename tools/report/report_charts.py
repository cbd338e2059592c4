"""report_charts.py: draws each figure of the report from the sheets of one chip.

A function takes sheets and a chip. It returns a Figure, or None if no sheet has the figure's data.
"""

import math

from report_data import beside_peers, mean, number, numbers, uniform_of
from report_svg import WIDTH, Figure, pitch

PEER_STYLES = {
    "figraph": "own",
    "flashinfer": "other",
    "sdpa": "third",
    "flex": "fourth",
    "jax": "fifth",
}


def short_count(n):
    return f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else str(n)


def step_of(value, bounds):
    """Returns the style of a value: the number of bounds that it reaches."""
    return sum(value >= bound for bound in bounds)


# ---- Heat maps -----------------------------------------------------------------------------------
def heat(figure, cells, bounds, words, says):
    """Draws {(rows, tokens of each): value}, with a legend of the steps below."""
    rows = sorted({rows for rows, _ in cells})
    lengths = sorted({length for _, length in cells})
    left, top, high = 40, 18, pitch(len(rows), 62, 38)
    wide = (WIDTH - left) / len(lengths)
    figure.text(0, top - 5, "rows", "small muted")
    for i, length in enumerate(lengths):
        figure.text(left + wide * (i + 0.5), top - 5, short_count(length), "small muted", "middle")
    for j, count in enumerate(rows):
        y = top + j * high
        figure.text(left - 8, y + high / 2 + 4, count, "small muted", "end")
        for i, length in enumerate(lengths):
            x = left + i * wide
            value = cells.get((count, length))
            if value is None:
                figure.parts.append(figure.dot(x + wide / 2, y + high / 2, "rule", 1))
                continue
            step = step_of(value, bounds)
            box = figure.box(x + 1, y + 1, wide - 2, high - 2, f"step{step}")
            label = f"{value:.2f}" if value < 10 else f"{value:.0f}"
            word = figure.word(x + wide / 2, y + high / 2 + 4, label, f"small on{step}")
            title = f"{count} rows of {length} tokens: {says(value, (count, length))}"
            figure.mark(title, box, word)
    y = top + len(rows) * high + 10
    figure.y = y + figure.legend([(f"step{i}", w) for i, w in enumerate(words)], y) + 2


SHARE_BOUNDS = (0.5, 0.65, 0.8, 0.9, 0.95)
SHARE_WORDS = ("below 0.5", "0.5", "0.65", "0.8", "0.9", "0.95 and above")


def limit_field(chip, way):
    """Returns the field of the share of the limit: fixed on an H200, measured elsewhere."""
    return f"{way}_share" if chip == "h200" else f"ceiling_{way}_share"


def share_heat(sheets, chip, heads="32/8", way="chain"):
    """Draws the share of the memory's limit, by batch and kv length."""
    sheet = sheets.get(f"{chip}_uniform")
    rows = sheet.where(heads=heads) if sheet else []
    if not rows:
        return None
    words = "in a chain" if way == "chain" else "standalone"
    figure = Figure(
        f"{chip}_{way}_{heads.replace('/', '_')}",
        f"Share of the roofline, {heads} heads, {words}",
        "Attention over bf16 caches: 2 us and what reading K and V takes, over what it takes.",
    )
    field, limit = limit_field(chip, way), "limit_us" if chip == "h200" else "ceiling_limit_us"
    by_cell = {uniform_of(r["cell"]): r for r in rows}
    cells = {cell: number(r, field) for cell, r in by_cell.items()}

    def says(value, cell):
        row = by_cell[cell]
        us = row[f"{way}_us"]
        return f"{value:.3f} of the roofline, {us} us where the roofline is {row[limit]} us"

    heat(figure, cells, SHARE_BOUNDS, SHARE_WORDS, says)
    return figure


RATIO_BOUNDS = (0.98, 1.02, 1.15, 1.4, 2.0)
RATIO_WORDS = ("peer ahead", "within 2 %", "1.02", "1.15", "1.4", "2 and above")


def peer_heat(sheets, chip, heads="32/8"):
    """Draws the extra time of the best path over pages, by batch and kv length."""
    cells = beside_peers(sheets.get(f"{chip}_peers"))
    plain = [c for c in cells if c.shape["heads"] == heads and c.shape["kv_dtype"] == "bf16"]
    uniform = {uniform_of(c.shape["cell"]): c for c in plain if uniform_of(c.shape["cell"])}
    if not uniform:
        return None
    figure = Figure(
        f"{chip}_peers_heat",
        f"The best peer's time over ours, {heads} heads",
        "The quickest of FlashInfer's paths in each cell, of the same run, over ours.",
    )

    def says(value, cell):
        c = uniform[cell]
        return f"{c.peer} {c.path} takes {c.best:.1f} us, ours {c.ours:.1f} us: {value:.2f}"

    ratios = {cell: c.ratio for cell, c in uniform.items()}
    heat(figure, ratios, RATIO_BOUNDS, RATIO_WORDS, says)
    return figure


# ---- Dots and bars -------------------------------------------------------------------------------
def axis(figure, left, right, top, bottom, ticks, place):
    for value in ticks:
        x = place(value)
        figure.rule(x, top, x, bottom)
        figure.text(x, top - 4, f"{value:g}", "small muted", "middle")


def peer_dots(sheets, chip):
    """Draws the share of the roofline of every peer's best path, cell by cell."""
    cells = beside_peers(sheets.get(f"{chip}_peers"))
    if not cells:
        return None
    figure = Figure(
        f"{chip}_peers",
        "Share of the roofline, ours and each peer's best path",
        "One line for each cell: all of one run, each checked before it was timed.",
    )
    left, top, high = 122, 18, pitch(len(cells), 62, 24)
    place = lambda share: left + share * (WIDTH - left - 8)
    axis(figure, left, WIDTH, top, top + high * len(cells), (0, 0.25, 0.5, 0.75, 1), place)
    for j, cell in enumerate(cells):
        y = top + high * j + high / 2
        words = " ".join(cell.shape[n] for n in ("cell", "kv_dtype"))
        figure.text(0, y + 4, words.replace(" bf16", ""), "small")
        for peer, us in [*cell.by_peer.items(), ("figraph", cell.ours)]:
            share = cell.limit_us / us
            dot = figure.dot(place(min(share, 1.05)), y, PEER_STYLES.get(peer, "muted"), 4.5)
            title = f"{words}: {peer} {us:.1f} us, {share:.2f} of the roofline"
            figure.mark(title, dot)
    y = top + high * len(cells) + 10
    present = ["figraph", *sorted({p for c in cells for p in c.by_peer})]
    entries = [(PEER_STYLES.get(peer, "muted"), peer) for peer in present]
    figure.y = y + figure.legend(entries, y) + 2
    return figure


def limit_ranges(sheets, chip):
    """Draws the least, mean and largest share of each set of cells."""
    figure = Figure(
        f"{chip}_limit",
        "Share of the roofline: least, mean and most of each set",
        "In a chain of layers, and standalone among kernels that read weights.",
    )
    groups = []
    sets = {"uniform": "", "fp8": "e4m3", "ragged": "", "shapes": "other shapes"}
    for name, words in sets.items():
        sheet = sheets.get(f"{chip}_{name}")
        if sheet is None:
            continue
        key = "heads" if name == "uniform" else "set"
        for part in dict.fromkeys(r[key] for r in sheet.rows):
            rows = [r for r in sheet.rows if r[key] == part]
            label = words or (f"uniform {part}" if key == "heads" else part)
            groups.append((f"{label}, {len(rows)}", rows))
    if not groups:
        return None
    left, top, high = 122, 18, pitch(len(groups), 46, 40)
    place = lambda share: left + share * (WIDTH - left - 10)
    axis(figure, left, WIDTH, top, top + high * len(groups), (0, 0.25, 0.5, 0.75, 1), place)
    for j, (label, rows) in enumerate(groups):
        figure.text(0, top + high * j + 19, label, "small")
        for k, (way, style) in enumerate((("chain", "own"), ("alone", "other"))):
            shares, y = numbers(rows, limit_field(chip, way)), top + high * j + 10 + 11 * k
            least, most, middle = min(shares), min(max(shares), 1.04), mean(shares)
            bar = figure.box(place(least), y - 2, place(most) - place(least), 4, "rest")
            dot = figure.dot(place(middle), y, style)
            words = "in a chain" if way == "chain" else "alone"
            title = f"{label} cells, {words}: {least:.3f}, {middle:.3f}, {max(shares):.3f}"
            figure.mark(title, bar, dot)
    y = top + high * len(groups) + 10
    figure.y = y + figure.legend([("own", "in a chain"), ("other", "alone")], y) + 2
    return figure


def ragged_bars(sheets, chip):
    """Draws ragged batches beside uniform batches with the same number of bytes."""
    sheet = sheets.get(f"{chip}_ragged")
    if sheet is None:
        return None
    figure = Figure(
        f"{chip}_ragged",
        "Ragged batches: share of the roofline",
        "In a chain; random batches stand above a uniform one of as many rows and bytes.",
    )
    left, top, high = 122, 18, pitch(len(sheet.rows), 62, 34)
    peers = {c.shape["cell"]: c for c in beside_peers(sheets.get(f"{chip}_peers"))}
    place = lambda share: left + share * (WIDTH - left - 34)
    bottom = top + high * len(sheet.rows)
    axis(figure, left, WIDTH, top, bottom, (0, 0.25, 0.5, 0.75, 1), place)
    shown = sorted_ragged(sheet.rows)
    for j, row in enumerate(shown):
        y, share = top + high * j + 3, number(row, limit_field(chip, "chain"))
        is_twin = row["set"] == "random" and not row["of_twin"]
        name = f"{row['rows']} rows, {'even' if is_twin else 'random'}"
        name = row["cell"] if row["set"] == "ragged" else name
        figure.text(0, y + high / 2, name, "small muted" if is_twin else "small")
        style = "rest" if is_twin else "own"
        shapes = [figure.box(left, y, place(share) - left, high - 6, style)]
        title = f"{name}: {row['chain_us']} us, {share:.3f} of the roofline"
        if row["cell"] in peers:
            peer = peers[row["cell"]]
            peer_share = number(row, "limit_us") / peer.best
            shapes.append(figure.box(place(peer_share) - 1.5, y - 2, 3, high - 2, "other"))
            title += f"; the best peer, {peer.peer} {peer.path}, {peer.best:.1f} us"
        figure.mark(title, *shapes)
        figure.text(place(share) + 4, y + high / 2, f"{share:.2f}", "small")
    entries = [("own", "ragged"), ("rest", "even, as many bytes")]
    if any(r["cell"] in peers for r in shown):
        entries.append(("other", "best peer"))
    figure.y = bottom + 10 + figure.legend(entries, bottom + 10) + 2
    return figure


def sorted_ragged(rows):
    """Returns each random batch before its uniform one; the file has them in the other order."""
    shown = []
    for row in rows:
        if row["of_twin"] and shown:
            shown.insert(len(shown) - 1, row)
        else:
            shown.append(row)
    return shown


# ---- Time ----------------------------------------------------------------------------------------
def stacks(figure, entries, left, unit):
    """Draws (label, [(style, words, value)], total words) as bars of one scale."""
    top, high = 6, pitch(len(entries), 48, 58)
    most = max(sum(value for _, _, value in parts) for _, parts, _ in entries)
    scale = (WIDTH - left - 6.2 * max(len(total) for _, _, total in entries) - 5) / most
    for j, (label, parts, total) in enumerate(entries):
        y, x = top + high * j, left
        figure.text(0, y + high / 2 + 2, label, "small")
        for style, words, value in parts:
            title = f"{label}: {words} {value:.2f} {unit}"
            wide = max(scale * value - 1, 0.5)
            figure.mark(title, figure.box(x, y + 3, wide, high - 9, style))
            x += scale * value
        figure.text(x + 5, y + high / 2 + 2, total, "small")
    return top + high * len(entries)


def step_bars(sheets, chip):
    """Draws the time of a layer of the whole step, and attention's part of that time."""
    sheet = sheets.get(f"{chip}_step")
    if sheet is None:
        return None
    figure = Figure(
        f"{chip}_step",
        "One layer of a step: attention, and all else above it",
        "llama-3.1-8b's layer, 32 in a chain: activation, RoPE, append and attention, in us.",
    )
    entries = []
    for row in sheet.rows:
        attention, layer = number(row, "attention_us"), number(row, "layer_us")
        parts = [("own", "attention", attention), ("other", "all else", layer - attention)]
        ranks = row.get("ranks") or "1"
        label = row["cell"] if ranks == "1" else f"{row['cell']}, {ranks} GPUs"
        entries.append((label, parts, f"{layer:.1f} us"))
    bottom = stacks(figure, entries, 76, "us")
    figure.y = bottom + 8 + figure.legend([("own", "attention"), ("other", "all else")], bottom + 8)
    return figure


def name_replay(row):
    name = row["preset"].rsplit("/", 1)[-1].replace("llama-3.1-", "")
    return f"{name} x {row['layers']}, {row['rows']} row{'s' * (row['rows'] != '1')}"


HOST_PARTS = (
    ("check_ns", "third", "check"),
    ("choose_ns", "fourth", "choose"),
    ("plan_ns", "fifth", "plan"),
    ("launch_ns", "rest", "launch"),
)


def host_bars(sheets, chip):
    """Draws the time that a step costs the host."""
    sheet = sheets.get(f"{chip}_replay")
    if sheet is None:
        return None
    figure = Figure(
        f"{chip}_host",
        "A step on the host, before and by the launch, in ns",
        "Medians of the parts; the launch is one call to the driver.",
    )
    entries = []
    for row in sheet.rows:
        parts = [(style, words, number(row, field)) for field, style, words in HOST_PARTS]
        entries.append((name_replay(row), parts, f"{number(row, 'step_ns'):.0f} ns"))
    bottom = stacks(figure, entries, 128, "ns")
    legend = [(style, words) for _, style, words in HOST_PARTS]
    figure.y = bottom + 8 + figure.legend(legend, bottom + 8)
    return figure


def timeline(sheets, chip):
    """Draws a step from the host's call to its result, with one layer."""
    sheet = sheets.get(f"{chip}_replay")
    rows = sheet.where(layers=1) if sheet else []
    rows = [r for r in rows if number(r, "result_ns") and number(r, "empty_result_ns")]
    if not rows:
        return None
    figure = Figure(
        f"{chip}_timeline",
        "A step from the call to its result, in us",
        "What the host does first, what a graph that does nothing takes, and the step's own time.",
    )
    entries = []
    for row in rows:
        stage = sum(number(row, name) for name in ("check_ns", "choose_ns", "plan_ns")) / 1e3
        empty, result = number(row, "empty_result_ns") / 1e3, number(row, "result_ns") / 1e3
        parts = [("third", "staged", stage), ("rest", "an empty graph", empty)]
        parts.append(("own", "the step", max(result - empty - stage, 0)))
        entries.append((name_replay(row), parts, f"{result:.1f} us"))
    bottom = stacks(figure, entries, 128, "us")
    legend = [("third", "stage"), ("rest", "an empty graph"), ("own", "the step's own")]
    figure.y = bottom + 8 + figure.legend(legend, bottom + 8)
    return figure


def sum_lines(sheets, chip):
    """Draws the time of an all-reduce by each route, over message sizes."""
    present = [s for s in sheets.values() if s.chip == chip and s.set.startswith("allreduce")]
    if not present:
        return None
    figure = Figure(
        f"{chip}_allreduce",
        "All-reduce of bf16 in graph replays, us over bytes",
        "In one shot, in two, and by NCCL, over GPUs of one host.",
    )
    ways = (("one_shot_us", "own", "one shot"), ("two_shot_us", "third", "two shots"))
    ways += (("nccl_us", "other", "NCCL"),)
    y = 0
    for sheet in present:
        y = sum_panel(figure, sheet, ways, y, pitch(len(present), 16, 200) - 46)
    figure.y = y + figure.legend([(style, words) for _, style, words in ways], y)
    return figure


def sum_panel(figure, sheet, ways, top, high):
    """Draws the panel of one GPU count, with logarithmic axes; returns the y of its end."""
    rows = sorted(sheet.rows, key=lambda r: number(r, "bytes"))
    every = [v for field, _, _ in ways for v in numbers(rows, field)]
    left, low, most = 30, min(every), max(every)
    first, last = number(rows[0], "bytes"), number(rows[-1], "bytes")
    at_x = lambda b: left + math.log(b / first) / math.log(last / first) * (WIDTH - left - 8)
    at_y = lambda us: top + 22 + high - math.log(us / low) / math.log(most / low) * high
    figure.text(0, top + 12, f"{rows[0]['ranks']} GPUs", "strong")
    for us in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        if low <= us <= most:
            figure.rule(left, at_y(us), WIDTH, at_y(us))
            figure.text(left - 4, at_y(us) + 4, us, "small muted", "end")
    for size in (1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22):
        if first <= size <= last:
            words = f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"
            anchor = "end" if at_x(size) > WIDTH - 20 else "middle"
            figure.text(at_x(size), top + high + 36, words, "small muted", anchor)
    for field, style, words in ways:
        timed = {number(r, "bytes"): number(r, field) for r in rows if number(r, field)}
        points = [(at_x(b), at_y(us)) for b, us in timed.items()]
        figure.path(points, style)
        for (x, y), (size, us) in zip(points, timed.items()):
            figure.mark(f"{size:.0f} bytes, {words}: {us:.2f} us", figure.dot(x, y, style, 2.5))
    return top + high + 46


def capture_bars(sheets, chip):
    """Draws the time until graphs are ready: from a file, and by torch's capture."""
    sheet = sheets.get(f"{chip}_capture")
    timed = [r for r in sheet.rows if number(r, "ms")] if sheet else []
    if not timed:
        return None
    figure = Figure(
        f"{chip}_capture",
        "Getting a step of 32 layers ready, in ms",
        "From a file, and by torch.cuda.graph over FlashInfer's kernels, for each graph.",
    )
    entries = []
    for row in timed:
        is_ours = row["what"].startswith("figraph")
        label = row["what"].replace("torch.cuda.graph, flashinfer ", f"{row['cell']}, ")
        label = label.replace("figraph, all its buckets", f"figraph, {row['graphs']} graphs")
        ms = number(row, "ms")
        entries.append((label, [("own" if is_ours else "other", "ready", ms)], f"{ms:.1f} ms"))
    bottom = stacks(figure, entries, 142, "ms")
    legend = [("own", "figraph"), ("other", "torch.cuda.graph, one graph")]
    figure.y = bottom + 8 + figure.legend(legend, bottom + 8)
    return figure


def scaling_bars(sheets, chip):
    """Draws the time of whole layers on one GPU and on several."""
    rows = [r for s in sheets.values() if s.chip == chip and s.set.startswith("layers")
            for r in s.rows]
    if not rows:
        return None
    figure = Figure(
        f"{chip}_layers",
        "Whole layers with GEMMs, on one GPU and several",
        f"{rows[0]['layers']} layers of {rows[0]['model']}, ms a step.",
    )
    entries = []
    for row in rows:
        one, step, apart = (number(row, n) for n in ("one_rank_ms", "step_ms", "apart_ms"))
        entries.append((f"{row['cell']}, 1 GPU", [("rest", "a step", one)], f"{one:.2f} ms"))
        parts = [("own", "a rank by itself", apart)]
        parts.append(("other", "what ranks add", max(step - apart, 0)))
        words = f"{step:.2f} ms, {number(row, 'times_as_fast'):.2f} x"
        entries.append((f"{row['cell']}, {row['ranks']} GPUs", parts, words))
    bottom = stacks(figure, entries, 96, "ms")
    legend = [("rest", "one GPU"), ("own", "a rank by itself"), ("other", "what ranks add")]
    figure.y = bottom + 8 + figure.legend(legend, bottom + 8)
    return figure


def draw_all(sheets, chip):
    """Returns every figure that the chip's sheets have data for, in the order of the page."""
    drawn = [share_heat(sheets, chip, heads, f) for heads in ("32/8", "64/8")
             for f in ("chain", "alone")]
    drawn += [peer_heat(sheets, chip), peer_dots(sheets, chip), limit_ranges(sheets, chip)]
    drawn += [ragged_bars(sheets, chip), step_bars(sheets, chip), timeline(sheets, chip)]
    drawn += [host_bars(sheets, chip)]
    drawn += [capture_bars(sheets, chip), sum_lines(sheets, chip), scaling_bars(sheets, chip)]
    return [figure for figure in drawn if figure is not None]
