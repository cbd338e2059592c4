#!/bin/sh
# browser.sh: what tests of pages share: a page as headless Chromium lays it out.
#
# At 375 and at 1600 px, dark and light: nothing is wider than the window but what scrolls by
# itself, text stands out from what is behind it, every link leads somewhere, a keyboard reaches
# all, and nothing is fetched. Sourced behind cli.sh. Invariant: $browser is empty where there is
# none.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)

# The page stands in a frame of each width, since a browser's own window has a least width.
cat > "$scratch/frame.py" << 'END_OF_PYTHON'
import html, sys
page = html.escape(open(sys.argv[1]).read(), quote=True)
look = open(sys.argv[2]).read() + 'function also(all, say) {%s}' % sys.argv[3]
print('<!DOCTYPE html><html><head><meta name="color-scheme" content="light dark"></head><body>')
for width in 375, 1600:
    print('<iframe width="%d" height="900" style="border:0" srcdoc="%s"></iframe>' % (width, page))
print("<script>%s</script></body></html>" % look)
END_OF_PYTHON

# PAGE SCRIPT: what this page is to have, said by say(holds, fault) of all(selector)
looks_well() {
    python3 "$scratch/frame.py" "$1" "$(dirname "$0")/support/look.js" "$2" \
        > "$scratch/framed.html"
    for scheme in dark light; do
        number=0
        [ "$scheme" = light ] && number=1
        words="$scheme $1"
        timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
            --user-data-dir="$scratch/browser" --window-size=1800,1000 \
            --blink-settings=preferredColorScheme=$number --dump-dom \
            "file://$scratch/framed.html" > "$scratch/dom" 2> "$scratch/err"
        sed -n '/<pre id="verdict">/,/<\/pre>/p' "$scratch/dom" |
            sed -e 's/.*<pre id="verdict">//' -e 's/<\/pre>.*//' > "$scratch/out"
        [ "$(head -n 1 "$scratch/out")" = "$scheme" ]
        verdict $? 'the browser is to say that it was asked for that scheme'
        [ "$(sed -n 2p "$scratch/out")" -gt 200 ] && [ "$(wc -l < "$scratch/out")" -le 2 ]
        verdict $? "$(sed -n '3,$p' "$scratch/out" | head -n 5)"
    done
}
