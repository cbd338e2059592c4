#!/bin/sh
# test_report_page.sh: tests the report's page as a browser lays it out.
#
# Without Chromium, the test prints that it is skipped. Invariant: the last line is "N passed, N
# failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../support/cli.sh"
# shellcheck source=tests/support/pages/browser.sh
. "$(dirname "$0")/../support/pages/browser.sh"
if [ -z "$browser" ]; then
    echo 'skipped: no Chromium to lay out a page'
    exit 0
fi

cp -r README.md docs "$scratch/"
python3 -B tools/report/report.py --pages "$scratch" --figures "$scratch" \
    --page "$scratch/report.html" > "$scratch/out" 2>&1
verdict $? 'the page must be made'
# Tables are long, so only the first three rows of each are kept.
python3 - "$scratch/report.html" << 'END'
import re, sys
text = open(sys.argv[1]).read()
text = re.sub(r"(<tbody>(?:<tr>.*?</tr>){3}).*?</tbody>", r"\1</tbody>", text)
open(sys.argv[1], "w").write(text)
END
looks_well "$scratch/report.html" "
    say(all('figure').length >= 10 && all('h1').length === 1, 'figures are missing');
    for (const figure of all('figure')) {
        const marks = [...figure.querySelectorAll('.mark')];
        const key = name => new KeyboardEvent('keydown', {key: name, bubbles: true});
        marks[0].focus();
        say(marks.filter(m => m.getAttribute('tabindex') === '0').length === 1, 'many tab stops');
        marks[0].dispatchEvent(key('ArrowRight'));
        say(figure.ownerDocument.activeElement === marks[1], 'arrows lead nowhere');
        say(figure.querySelector('output').textContent === marks[1].getAttribute('aria-label'),
            'a mark that has focus says nothing');
        marks[1].dispatchEvent(key('End'));
        say(figure.ownerDocument.activeElement === marks.at(-1), 'End leads elsewhere');
    }"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
