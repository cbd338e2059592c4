#!/usr/bin/env python3
# report.py: writes the measurements as one page, as figures, and as the parts of README.md and
# docs/performance.md that give speeds.
#
# Usage: tools/report/report.py [--check] [--results DIR] [--pages DIR] [--figures DIR]
#        [--page FILE]
#
# Reads only tools/bench/results/*.csv and uses only Python's standard library. --pages is a folder
# with README.md and docs/. --check writes nothing; it prints each page or figure that differs from
# the one that the CSVs give, and each time on a page that is in no CSV. Invariant: the same CSVs
# give the same bytes.
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

# The figures in docs/performance.md, all for one chip.
SHOWN = ("chain_32_8", "peers", "ragged", "step", "timeline", "capture", "allreduce", "layers")
CHIP = "h200"  # README's headline and the figures are for this chip
FIGURES = "tools/report/figures"


def drawings(figures):
    """Returns {name: Figure} for the figures that the pages show."""
    names = [f"{CHIP}_{name}" for name in SHOWN]
    return {f"{f.name}.svg": f for f in figures.get(CHIP, []) if f.name in names}


def differs(path, text):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read() != text
    except FileNotFoundError:
        return True


def stale(folder, files):
    """Returns the drawings in the folder that no figure makes."""
    return sorted(set(glob.glob(os.path.join(folder, "*.svg"))) - set(files))


def write(path, text):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def check(pages, made, files, sheets):
    """Returns messages about faults. made: {page: text, or None}; files: {path: text}"""
    for path in stale(os.path.dirname(next(iter(files))), files):
        yield f"{path}: no CSV makes it: make report"
    for page, text in made.items():
        if text is None:
            yield f"{page}: it has no part that make report makes"
        elif differs(page, text):
            yield f"{page}: its part about speed is not what the CSVs make: make report"
    for path, drawn in files.items():
        if differs(path, drawn):
            yield f"{path}: it is not what the CSVs make: make report"
    for page in pages:
        text = open(page, encoding="utf-8").read()
        for line, figure in report_readme.typed_figures(text, sheets):
            yield f"{page}:{line}: {figure} is in no CSV of tools/bench/results"


def main():
    parser = argparse.ArgumentParser(description="Makes pages and drawings from the CSVs.")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if they differ")
    parser.add_argument("--results", default=os.path.join(ROOT, "tools/bench/results"))
    parser.add_argument("--pages", default=ROOT)
    parser.add_argument("--figures", default=os.path.join(ROOT, FIGURES))
    parser.add_argument("--page", default=os.path.join(ROOT, "build/report.html"))
    asked = parser.parse_args()
    sheets = report_data.read_all(asked.results)
    chips = sorted({sheet.chip for sheet in sheets.values()}, reverse=True)
    figures = {chip: report_charts.draw_all(sheets, chip) for chip in chips}
    shown = drawings(figures)
    files = {os.path.join(asked.figures, name): f.alone() for name, f in shown.items()}
    titles = [(f"{FIGURES}/{name}", figure.title) for name, figure in shown.items()]
    readme = os.path.join(asked.pages, "README.md")
    performance = os.path.join(asked.pages, "docs/performance.md")
    parts = {
        readme: report_readme.headline(sheets, CHIP),
        performance: report_readme.part(sheets, chips, titles),
    }
    made = {
        page: report_readme.replace(open(page, encoding="utf-8").read(), part)
        for page, part in parts.items()
    }
    if asked.check:
        pages = [readme, *sorted(glob.glob(os.path.join(asked.pages, "docs/*.md")))]
        faults = list(check(pages, made, files, sheets))
        print("\n".join(faults) or "the pages show what the CSVs hold")
        return 1 if faults else 0
    for path in stale(asked.figures, files):
        os.remove(path)
    for path, text in files.items():
        write(path, text)
    for page, text in made.items():
        if text is not None:
            write(page, text)
    write(asked.page, report_page.page(figures, sheets))
    print(f"made {asked.page}, {len(files)} figures and parts of {', '.join(made)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
