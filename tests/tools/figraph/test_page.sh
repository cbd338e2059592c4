#!/bin/sh
# test_page.sh: tests the page of figraph inspect as a browser lays it out.
#
# Without Chromium, the test prints that it is skipped. Invariant: the last line is "N passed, N
# failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"
# shellcheck source=tests/support/pages/browser.sh
. "$(dirname "$0")/../../support/pages/browser.sh"
if [ -z "$browser" ]; then
    echo 'skipped: no Chromium to lay out a page'
    exit 0
fi

long=$(printf '%0300d' 0) # this word is wider than any window
for preset in tutorial gemma-2-9b gpt-oss-20b; do
    "$figraph" capture --preset $preset --traits h200 --note 'by=<i>a & "test"</i>' \
        --note "long=$long" -o "$scratch/$preset.fig" > /dev/null
    "$figraph" inspect "$scratch/$preset.fig" --format html --kv 300,3x50 > "$scratch/$preset.html"
    looks_well "$scratch/$preset.html" "
        say(all('nav a').length >= 6 && all('h1').length === 1, 'a heading or links are missing');
        say(all('h1')[0].clientWidth < 400 || all('dl div').every(pair => pair.offsetHeight < 99),
            'a pair is a tower');
        say(all('svg text').length > 0 && all('dt').length > 50, 'what graphs are is missing');"
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
