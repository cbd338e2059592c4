#!/bin/sh
# browser.sh: shared by tests of pages. Checks a page as headless Chromium renders it.
#
# It checks at 375 and at 1600 px, dark and light, that nothing except scrolling parts is wider than
# the window, text contrasts with its background, every link leads somewhere, the keyboard reaches
# everything, and nothing is fetched. Source it after cli.sh. Invariant: $browser is empty if there
# is no Chromium.
look=$PWD/tests/support/pages/look.js
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)

# A browser's window has a minimum width, so the page is shown in a frame of each width.
cat > "$scratch/frame.py" << 'END_OF_PYTHON'
import html, sys
page = html.escape(open(sys.argv[1]).read(), quote=True)
look = open(sys.argv[2]).read() + 'function also(all, say) {%s}' % sys.argv[3]
print('<!DOCTYPE html><html><head><meta name="color-scheme" content="light dark"></head><body>')
for width in 375, 1600:
    print('<iframe width="%d" height="900" style="border:0" srcdoc="%s"></iframe>' % (width, page))
print("<script>%s</script></body></html>" % look)
END_OF_PYTHON

# looks_well PAGE SCRIPT: SCRIPT adds checks for this page. In it, say(holds, fault) reports a check
# and all(selector) finds elements.
looks_well() {
    python3 "$scratch/frame.py" "$1" "$look" "$2" \
        > "$scratch/framed.html"
    for scheme in dark light; do
        number=0
        [ "$scheme" = light ] && number=1
        words="$scheme $1"
        timeout 600 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
            --user-data-dir="$scratch/browser" --window-size=1800,1000 \
            --blink-settings=preferredColorScheme=$number --dump-dom \
            "file://$scratch/framed.html" > "$scratch/dom" 2> "$scratch/err"
        sed -n '/<pre id="verdict">/,/<\/pre>/p' "$scratch/dom" |
            sed -e 's/.*<pre id="verdict">//' -e 's/<\/pre>.*//' > "$scratch/out"
        [ "$(head -n 1 "$scratch/out")" = "$scheme" ]
        verdict $? 'the browser must say that it was asked for that scheme'
        [ "$(sed -n 2p "$scratch/out")" -gt 200 ] && [ "$(wc -l < "$scratch/out")" -le 2 ]
        verdict $? "$(sed -n '3,$p' "$scratch/out" | head -n 5)"
    done
}
