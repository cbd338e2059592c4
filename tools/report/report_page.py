"""report_page.py: makes the report as one HTML page, which needs no other file.

Invariant: a table of the same page repeats the values of each figure, and both can be reached with
only the keyboard.
"""

from html import escape

from report_svg import STYLE, variables

LAYOUT = """
*{box-sizing:border-box}
body{margin:0;background:var(--surface);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
header,main,footer{max-width:1600px;margin:0 auto;padding:0 16px}
h1{font-size:1.5rem;margin:24px 0 4px}h2{font-size:1.2rem;margin:32px 0 8px}
h3{font-size:.95rem;margin:0 0 2px}p{margin:4px 0;color:var(--muted);max-width:75ch}
nav{position:sticky;top:0;background:var(--surface);border-bottom:1px solid var(--rule);z-index:1}
nav ul{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;margin:0 auto;padding:8px 16px;
max-width:1600px}
a{color:var(--own)}a:focus-visible,summary:focus-visible,.scroll:focus-visible
{outline:2px solid var(--own);outline-offset:2px}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:24px}
figure{margin:0;padding:12px;border:1px solid var(--rule);border-radius:8px;min-width:0}
figure svg{display:block;width:100%;max-width:520px;height:auto;margin-top:8px}
figcaption{font-size:.85rem;color:var(--muted)}
output{display:block;min-height:2.6em;font-size:.85rem;margin-top:4px}
details{margin:6px 0}summary{cursor:pointer}
.scroll{overflow-x:auto;max-height:70vh;border:1px solid var(--rule);border-radius:8px}
table{border-collapse:collapse;font-size:.8rem;font-variant-numeric:tabular-nums}
th,td{padding:2px 8px;text-align:right;white-space:nowrap}
th{position:sticky;top:0;background:var(--surface);border-bottom:1px solid var(--rule)}
footer{margin:40px auto 24px;font-size:.85rem;color:var(--muted)}
"""

# Arrow keys go from mark to mark of a figure, and the mark's text appears below the figure. Without
# a script the tab key stops at every mark, whose title is its text.
SCRIPT = """
for (const figure of document.querySelectorAll('figure')) {
  const marks = [...figure.querySelectorAll('.mark')], out = figure.querySelector('output');
  const say = mark => { out.textContent = mark.getAttribute('aria-label'); };
  marks.forEach((mark, i) => {
    if (i > 0) mark.setAttribute('tabindex', '-1');
    mark.addEventListener('focus', () => say(mark));
    mark.addEventListener('pointerenter', () => say(mark));
    mark.addEventListener('keydown', event => {
      const steps = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1,
                     Home: -i, End: marks.length - 1 - i};
      const to = marks[i + steps[event.key]];
      if (!to) return;
      event.preventDefault();
      marks.forEach(m => m.setAttribute('tabindex', '-1'));
      to.setAttribute('tabindex', '0');
      to.focus();
    });
  });
}
"""


def table(sheet):
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in sheet.columns)
    lines = (
        "<tr>" + "".join(f"<td>{escape(row[name] or '')}</td>" for name in sheet.columns) + "</tr>"
        for row in sheet.rows
    )
    driver, date, commit = sheet.origin
    said = f"{sheet.name}: {len(sheet.rows)} rows, {date}, driver {driver}, commit {commit}"
    return (
        f"<details><summary>{escape(said)}</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(sheet.name)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
        "</div></details>"
    )


def drawn(figure):
    return (
        f'<figure id="{figure.name}"><h3>{escape(figure.title)}</h3>'
        f"<figcaption>{escape(figure.says)}</figcaption>{figure.inline()}"
        '<output aria-live="polite"></output></figure>'
    )


def section(chip, figures, sheets):
    mine = [sheet for sheet in sheets.values() if sheet.chip == chip]
    return (
        f'<section aria-labelledby="{chip}"><h2 id="{chip}">{chip.upper()}</h2>'
        f'<div class="figures">{"".join(map(drawn, figures))}</div>'
        f'<h2 id="{chip}-tables">{chip.upper()}, in numbers</h2>{"".join(map(table, mine))}'
        "</section>"
    )


def page(figures, sheets):
    """figures: {chip: [Figure]}"""
    links = "".join(
        f'<li><a href="#{chip}">{chip.upper()}</a></li>'
        f'<li><a href="#{chip}-tables">{chip.upper()}, in numbers</a></li>'
        for chip in figures
    )
    dark = f"@media(prefers-color-scheme:dark){{:root{{{variables(1)}}}}}"
    body = "".join(section(chip, drawn_there, sheets) for chip, drawn_there in figures.items())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        "<title>libfigraph, measured</title>"
        f"<style>:root{{{variables(0)}}}{dark}{STYLE}{LAYOUT}</style></head>\n<body>"
        "<header><h1>libfigraph, measured</h1><p>Every figure is made of the tables below it, and "
        "those are what the bench wrote. Point at a mark, or go to it by tab and arrows, and it "
        "says its numbers.</p></header>"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav><main>{body}</main>'
        "<footer>Made by make report from tools/bench/results.</footer>"
        f"<script>{SCRIPT}</script></body></html>\n"
    )
