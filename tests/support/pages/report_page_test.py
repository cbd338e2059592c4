"""report_page_test.py PAGE RESULTS: checks that the report's page is complete.

Prints a sentence for each fault, and then exits with 1.
"""

import glob
import os
import re
import sys
from html.parser import HTMLParser

VOID = ("meta", "br", "img", "link", "input")


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.faults, self.words = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, given):
        self.tags.append((tag, dict(given)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, given):
        self.tags.append((tag, dict(given)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> ends what is not open")

    def handle_data(self, words):
        self.words.append(words)

    def all(self, tag):
        return [given for name, given in self.tags if name == tag]


def faults_of(text, results):
    page = Page(text)
    yield from page.faults
    if page.open:
        yield f"{page.open} are never ended"
    ids = [given["id"] for _, given in page.tags if "id" in given]
    for name in {name for name in ids if ids.count(name) > 1}:
        yield f"two have the id {name}"
    for tag, given in page.tags:
        for key in ("src", "href", "action", "data"):
            target = given.get(key, "#")
            if not target.startswith("#") or (target != "#" and target[1:] not in ids):
                yield f"<{tag} {key}={target}>: the page must need nothing but itself"
    if re.search(r"@import|url\(|fetch\(|XMLHttpRequest", text):
        yield "something is loaded from elsewhere"
    figures = page.all("figure")
    if len(figures) < 10 or len(page.all("output")) != len(figures):
        yield f"{len(figures)} figures, {len(page.all('output'))} places for what marks say"
    marks = [given for given in page.all("g") if given.get("class") == "mark"]
    if len(marks) < 300 or not all(m.get("aria-label") and "tabindex" in m for m in marks):
        yield "a mark has no words, or cannot be reached by keys"
    said = " ".join(page.words)
    for path in glob.glob(os.path.join(results, "*.csv")):
        if os.path.basename(path) not in said:
            yield f"{os.path.basename(path)} is not on the page"
    for needed in ("prefers-color-scheme:dark", "width=device-width", 'lang="en"'):
        if needed not in text:
            yield f"{needed} is not there"


if __name__ == "__main__":
    found = list(faults_of(open(sys.argv[1], encoding="utf-8").read(), sys.argv[2]))
    print("\n".join(found))
    sys.exit(bool(found))
