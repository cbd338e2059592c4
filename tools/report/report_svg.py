"""report_svg.py: draws the marks of a figure, in light and dark colours.

A figure is drawn 360 units wide, so that its words can be read on a phone; wider pages put figures
side by side, so all have one height. Invariant: a label or a mark's title repeats everything that
a colour shows.
"""

from html import escape

WIDTH = 360
HEIGHT = 330  # of every figure's marks, from the title down


def pitch(count, around, most):
    """Returns the height of a line, at most `most`: `count` lines share HEIGHT - `around` units."""
    return min((HEIGHT - around) / max(count, 1), most)

# The name of each colour, its value in light, and its value in dark.
COLOURS = {
    "surface": ("#fcfcfb", "#1a1a19"),
    "ink": ("#1b1b1a", "#f3f2ee"),
    "muted": ("#62615c", "#b5b3aa"),
    "rule": ("#dddcd6", "#3a3936"),
    "own": ("#2a6fd0", "#5b9bf0"),
    "other": ("#c25a1c", "#e88b4d"),
    "third": ("#12805a", "#3fb98a"),
    "fourth": ("#8a5cc2", "#b592e6"),
    "fifth": ("#8a6d00", "#d0ac2a"),
    "rest": ("#b9b7ae", "#6a6862"),
    "step0": ("#f6d5cf", "#7a2f22"),
    "step1": ("#e9e8e4", "#3f3e3b"),
    "step2": ("#d3e4fa", "#1d3553"),
    "step3": ("#9dc3f3", "#27528a"),
    "step4": ("#5b98e4", "#3570b6"),
    "step5": ("#1f5fb5", "#86b6f2"),
}
ON_STEP = {  # the colours of words that stand on step0 to step5
    "on0": ("#1b1b1a", "#f3f2ee"),
    "on1": ("#1b1b1a", "#f3f2ee"),
    "on2": ("#1b1b1a", "#f3f2ee"),
    "on3": ("#1b1b1a", "#f3f2ee"),
    "on4": ("#101010", "#ffffff"),
    "on5": ("#ffffff", "#101010"),
}


def variables(which):
    colours = {**COLOURS, **ON_STEP}
    return "".join(f"--{name}:{pair[which]};" for name, pair in colours.items())


STYLE = (
    "text{font:11px system-ui,sans-serif;fill:var(--ink)}"
    ".small{font-size:10px}.muted{fill:var(--muted)}.strong{font-weight:600}"
    ".rule{stroke:var(--rule);stroke-width:1}"
    + "".join(f".{n}{{fill:var(--{n})}}" for n in COLOURS if n not in ("rule", "ink", "surface"))
    + "".join(f".{name}{{fill:var(--{name})}}" for name in ON_STEP)
    + "".join(
        f".line-{n}{{stroke:var(--{n});stroke-width:2;fill:none}}"
        for n in ("own", "other", "third", "muted")
    )
    + ".mark:focus{outline:none}.mark:focus rect,.mark:focus circle,.mark:hover rect,"
    ".mark:hover circle{stroke:var(--ink);stroke-width:2}"
)


class Figure:
    """Marks, from the top down; y is the place of the next mark."""

    def __init__(self, name, title, says):
        self.name, self.title, self.says = name, title, says
        self.parts, self.y = [], 0

    def text(self, x, y, words, style="", anchor="start"):
        kind = f' class="{style}"' if style else ""
        place = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{kind}{place}>{escape(str(words))}</text>')

    def rule(self, x, y, to_x, to_y):
        self.parts.append(
            f'<line class="rule" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'
        )

    def box(self, x, y, width, height, style):
        return (
            f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
            f'height="{height:.1f}" rx="2"/>'
        )

    def dot(self, x, y, style, radius=4):
        return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'

    def path(self, points, style):
        words = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline class="line-{style}" points="{words}"/>')

    def mark(self, title, *shapes):
        """Adds shapes that show `title` when a user points at them or reaches them by keys."""
        inner = "".join(shapes)
        self.parts.append(
            f'<g class="mark" tabindex="0" role="img" aria-label="{escape(title)}">'
            f"<title>{escape(title)}</title>{inner}</g>"
        )

    def word(self, x, y, words, style, anchor="middle"):
        """Returns text that is part of a mark."""
        return (
            f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">'
            f"{escape(str(words))}</text>"
        )

    def legend(self, entries, y):
        """Draws (style, words) side by side, in several lines if needed; returns the height."""
        x, line = 0, 0
        for style, words in entries:
            width = 16 + 5.9 * len(words) + 10
            if x + width > WIDTH and x > 0:
                x, line = 0, line + 1
            self.parts.append(self.box(x, y + 15 * line, 10, 10, style))
            self.text(x + 14, y + 15 * line + 9, words, "small muted")
            x += width
        return 15 * (line + 1)

    def inline(self):
        """Returns the drawing for a page that has the style."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {self.y:.0f}" role="group" '
            f'aria-label="{escape(self.title)}">{"".join(self.parts)}</svg>'
        )

    def alone(self):
        """Returns the drawing as a file, which follows the reader's light or dark setting."""
        dark = f"@media(prefers-color-scheme:dark){{svg{{{variables(1)}}}}}"
        title = f'<text class="strong" x="10" y="22">{escape(self.title)}</text>'
        if self.y > HEIGHT + 0.5:
            raise ValueError(f"{self.name} is {self.y:.0f} high, {HEIGHT} are allowed")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -34 {WIDTH + 20} '
            f'{HEIGHT + 44}" width="{WIDTH + 20}" role="img" aria-labelledby="t d">'
            f'<title id="t">{escape(self.title)}</title><desc id="d">{escape(self.says)}</desc>'
            f"<style>svg{{{variables(0)}}}{dark}{STYLE}</style>"
            f'<rect x="-10" y="-34" width="100%" height="100%" style="fill:var(--surface)"/>'
            f'<g transform="translate(-10,-34)">{title}</g>{"".join(self.parts)}</svg>\n'
        ).replace(' tabindex="0"', "")
