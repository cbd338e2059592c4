#!/usr/bin/env python3
# report.py: what was measured, as one page, as drawings for README.md, and as the part of it that
# says how fast.
#
# Usage: tools/report/report.py [--check] [--results DIR] [--readme FILE] [--figures DIR]
#        [--page FILE]
#
# Reads tools/bench/results/*.csv and nothing else, by Python's own library alone. --check writes
# nothing and says where README or a drawing is not what the CSVs make. Invariant: the same CSVs
# make the same bytes.
import argparse
import glob
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import report_charts  # noqa: E402
import report_data  # noqa: E402
import report_page  # noqa: E402
import report_readme  # noqa: E402

# In README, of one chip.
SHOWN = ("chain_32_8", "peers", "ragged", "step", "timeline", "capture", "allreduce", "layers")
CHIP = "h200"  # the one that README draws
FIGURES = "tools/report/figures"


def drawings(figures):
    """{name: Figure} of those that README shows."""
    names = [f"{CHIP}_{name}" for name in SHOWN]
    return {f"{f.name}.svg": f for f in figures.get(CHIP, []) if f.name in names}


def differs(path, text):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read() != text
    except FileNotFoundError:
        return True


def stale(folder, files):
    """Drawings that nothing makes."""
    return sorted(set(glob.glob(os.path.join(folder, "*.svg"))) - set(files))


def write(path, text):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def check(readme, made, files, sheets):
    """Sentences of what is wrong. files: {path: text}"""
    text = open(readme, encoding="utf-8").read()
    for path in stale(os.path.dirname(next(iter(files))), files):
        yield f"{path}: no CSV makes it: make report"
    if made is None:
        yield f"{readme}: it has no part that make report makes"
        return
    if made != text:
        yield f"{readme}: its part about speed is not what the CSVs make: make report"
    for path, drawn in files.items():
        if differs(path, drawn):
            yield f"{path}: it is not what the CSVs make: make report"
    for line, figure in report_readme.typed_figures(text, sheets):
        yield f"{readme}:{line}: {figure} is in no CSV of tools/bench/results"


def main():
    parser = argparse.ArgumentParser(description="what was measured, to be looked at")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where they differ")
    parser.add_argument("--results", default=os.path.join(ROOT, "tools/bench/results"))
    parser.add_argument("--readme", default=os.path.join(ROOT, "README.md"))
    parser.add_argument("--figures", default=os.path.join(ROOT, FIGURES))
    parser.add_argument("--page", default=os.path.join(ROOT, "build/report.html"))
    asked = parser.parse_args()
    sheets = report_data.read_all(asked.results)
    chips = sorted({sheet.chip for sheet in sheets.values()}, reverse=True)
    figures = {chip: report_charts.draw_all(sheets, chip) for chip in chips}
    shown = drawings(figures)
    files = {os.path.join(asked.figures, name): f.alone() for name, f in shown.items()}
    titles = [(f"{FIGURES}/{name}", figure.title) for name, figure in shown.items()]
    part = report_readme.part(sheets, chips, titles)
    made = report_readme.replace(open(asked.readme, encoding="utf-8").read(), part)
    if asked.check:
        faults = list(check(asked.readme, made, files, sheets))
        print("\n".join(faults) or "README.md shows what the CSVs hold")
        return 1 if faults else 0
    for path in stale(asked.figures, files):
        os.remove(path)
    for path, text in files.items():
        write(path, text)
    if made is not None:
        write(asked.readme, made)
    write(asked.page, report_page.page(figures, sheets))
    print(f"made {asked.page}, {len(files)} drawings and the part of {asked.readme}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
