#!/bin/sh
# test_inspect.sh: tests that the pages and drawings of figraph inspect are valid and need no other
# file.
#
# It uses no browser, but checks every tag for mistakes that a browser would not accept. Invariant:
# the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

cat > "$scratch/read.py" << 'END_OF_PYTHON'
"""Reads a page, a drawing or a graph, and says what is wrong with it."""
import html.parser, re, sys, xml.etree.ElementTree

EMPTY = {"meta", "link", "rect", "path"}
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.counts, self.headings = [], [], [], {}, []
        self.unnamed = []
    def handle_starttag(self, tag, pairs):
        given = dict(pairs)
        assert len(given) == len(pairs), "%s has an attribute twice" % tag
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"])
        if "href" in given:
            self.links.append(given["href"])
        if tag in ("h1", "h2"):
            self.headings.append(tag)
        assert "src" not in given and not any(key.startswith("on") for key in given), given
        if tag == "svg" and not {"aria-label", "aria-hidden"} & set(given):
            self.unnamed.append(given)
        if tag in ("meta", "link"):
            self.open.pop()
    def handle_startendtag(self, tag, pairs):
        self.handle_starttag(tag, pairs)
        self.open.pop()
    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, "</%s> where %s is open" % (tag, self.open)
        self.open.pop()

def read_page(text):
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open, page.open
    assert text.startswith("<!DOCTYPE html>\n<html lang=\"en\">")
    assert "<meta charset=\"utf-8\">" in text and "name=\"viewport\"" in text
    assert len(page.ids) == len(set(page.ids)), "an id comes twice"
    for link in page.links:
        assert link == "data:," or link[0] == "#" and link[1:] in page.ids, link
    assert not {"script", "img", "iframe", "object"} & set(page.counts), page.counts
    assert "@import" not in text and "url(" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert page.headings[0] == "h1" and page.headings.count("h1") == 1
    assert page.counts["dt"] == page.counts["dd"]
    assert page.counts["summary"] == page.counts["details"]
    assert not page.unnamed, page.unnamed
    assert "prefers-color-scheme: dark" in text and "color-scheme: light dark" in text
    for name in ("step", "bucket", "launches", "workspace", "tensors", "buckets"):
        assert name in page.ids, name
    # Parts that may be wider than a phone's screen scroll by themselves, by keyboard too.
    assert page.counts["table"] + 1 == text.count("<div class=\"wide\" tabindex=\"0\">")

def points(path):
    """Points of a path, those of its curves among them."""
    at = None
    for letter, numbers in re.findall(r"([MLQC])([^MLQC]*)", path):
        places = [float(number) for number in numbers.split()]
        to = list(zip(places[::2], places[1::2]))
        for i in range(33):
            level, t = ([at] if at else []) + to, i / 32
            while len(level) > 1:
                level = [((1 - t) * a[0] + t * b[0], (1 - t) * a[1] + t * b[1])
                         for a, b in zip(level, level[1:])]
            yield level[0]
        at = to[-1]

def read_drawing(text):
    root = xml.etree.ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    width, height = float(root.get("width")), float(root.get("height"))
    boxes = [r for r in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert boxes and "prefers-color-scheme: dark" in text
    # Viewers that know no variables of CSS draw with the light colour in front of each.
    light = dict(re.findall(r"(--\w+): (#[0-9a-f]{6})[;\s]", text.split("@media")[0]))
    uses = re.findall(r"(?:([\w-]+): (#[0-9a-f]{6}); )?([\w-]+): var\((--\w+)\)", text)
    assert uses and all(a == b and colour == light[name] for a, colour, b, name in uses), uses
    for box in boxes:
        x, y, w, h = (float(box.get(key)) for key in ("x", "y", "width", "height"))
        assert 0 <= x and x + w <= width and 0 <= y and y + h <= height
        for other in boxes:
            if other is not box:
                assert abs(x - float(other.get("x"))) >= w or abs(y - float(other.get("y"))) >= h
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        for x, y in points(path.get("d")):
            assert not any(left < x < left + w and top < y < top + h for left, top, w, h in
                           ([float(box.get(key)) for key in ("x", "y", "width", "height")]
                            for box in boxes)), "an edge runs through a box"
        places = [float(word) for word in re.findall(r"-?[0-9]+", path.get("d"))]
        assert all(0 <= place <= max(width, height) for place in places), places
        assert path.find("{http://www.w3.org/2000/svg}title") is not None

def read_graph(text):
    assert text.startswith("digraph ") and text.endswith("}\n")
    quoted = r"\"(?:[^\"\\]|\\.)*\""
    nodes, edges = set(), []
    for line in text.splitlines()[3:-1]:
        node = re.fullmatch(r"    (l\d+) \[label=" + quoted + r"(, \w+=\w+)*\];", line)
        edge = re.fullmatch(r"    (l\d+) -> (l\d+) \[label=" + quoted + r"(, \w+=\w+)*\];", line)
        assert node or edge, line
        if node:
            nodes.add(node[1])
        else:
            edges += [edge[1], edge[2]]
    assert nodes and set(edges) <= nodes

text = open(sys.argv[2], encoding="ascii").read()
{"html": read_page, "svg": read_drawing, "dot": read_graph}[sys.argv[1]](text)
END_OF_PYTHON

reads() { # FORMAT
    python3 "$scratch/read.py" "$1" "$scratch/out" > "$scratch/python" 2>&1
    verdict $? "it must be sound $1: $(tail -n 1 "$scratch/python")"
}
llama=$scratch/llama.fig
gemma=$scratch/gemma.fig
"$figraph" capture --preset llama-3.1-8b --traits h200 -o "$llama" > /dev/null
"$figraph" capture --preset gemma-2-9b --traits h200 -o "$gemma" > /dev/null
for file in "$llama" "$gemma" tests/golden/mixed.fig tests/golden/breadth.fig; do
    for format in html svg dot; do
        run inspect "$file" --format "$format"
        ends 0
        quiet
        reads "$format"
        run inspect "$file" --format "$format" --bucket 1
        ends 0
        reads "$format"
    done
done
run inspect "$gemma" --format html --kv 8000,3x500
ends 0
quiet
reads html
prints 'id="split"'
prints '<h1>gemma-2-9b: 42 layers, 16/8 heads of 256, bf16</h1>'
prints '<title>gemma.fig</title>'
prints "<b>$gemma</b>: "
prints 'a window of 4 096'
run inspect "$llama" --format html --ranks 2
ends 0
reads html

# A range of one number is that number.
"$figraph" capture --preset deepseek-v3 --traits h200 -o "$scratch/latent.fig" > /dev/null
run inspect "$scratch/latent.fig" --format html --kv 128x8192
ends 0
reads html
prints 'Layer 2: the same in launches 7 to 9.'
prints 'Layers 4 to 60: the same in'
prints ', 256 for each of 64 workers'
run inspect "$scratch/latent.fig" --bucket 1
prints 'layer 2: the same in launches 7..9'
run inspect "$scratch/latent.fig" --format svg
prints '>layer 2<'

# Rows of a packed step have one query token unless --kv says more. Chunks are not in the drawing.
packed=$scratch/packed.fig
"$figraph" capture --preset tutorial --traits host --row-tokens 256 --query-limit 300 \
    -o "$packed" > /dev/null
run inspect "$packed" --format html --kv 4x100
ends 0
reads html
prints '4 rows; the step takes bucket'
lacks 'of prompts in'
run inspect "$packed" --format html --kv 4x100:3+300:50,0
ends 0
reads html
prints '1 chunk of prompts in '
prints 'tiles are of row 3<'
lacks 'tiles are of row 4<'
run inspect "$packed" --format html --kv 9
prints '1 row; the step takes bucket'
run inspect "$packed" --format html --kv 300:257
refused 'query_counts[0] is 257' '256'

# ---- Refusals
run inspect "$llama" --format pdf
refused '--format' 'pdf' 'html, svg or dot'
run inspect "$llama" --format html --json
refused '--format' '--json'
run inspect "$llama" --kv 5
refused '--kv' 'html'
run inspect "$llama" --format html --kv 4x100:3
refused '--kv: :QUERIES was given, but the step of' "$llama" 'is not packed'
run inspect "$llama" --format html --kv 9999999
refused '9999999'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
