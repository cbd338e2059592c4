#!/bin/sh
# test_page.sh: the page of figraph inspect as a browser lays it out.
#
# At 375 and at 1600 px, dark and light, in headless Chromium: nothing is wider than the window but
# what scrolls by itself, text stands out from what is behind it, every link leads somewhere, a
# keyboard reaches all, and nothing is fetched. Skipped, and says so, where there is no Chromium.
# Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/support/cli.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)
if [ -z "$browser" ]; then
    echo 'skipped: no Chromium to lay out a page'
    exit 0
fi

# The page stands in a frame of each width, since a browser's own window has a least width.
cat > "$scratch/frame.py" << 'END_OF_PYTHON'
import html, sys
page = html.escape(open(sys.argv[1]).read(), quote=True)
look = open(sys.argv[2]).read()
print('<!DOCTYPE html><html><head><meta name="color-scheme" content="light dark"></head><body>')
for width in 375, 1600:
    print('<iframe width="%d" height="900" style="border:0" srcdoc="%s"></iframe>' % (width, page))
print("<script>%s</script></body></html>" % look)
END_OF_PYTHON

cat > "$scratch/look.js" << 'END_OF_SCRIPT'
function luminance(rgb) {
    const linear = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = rgb.map(c => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function numbers(color) { return color.match(/[\d.]+/g).map(Number); }
function behind(view, element) {
    for (; element !== null; element = element.parentElement) {
        const color = numbers(view.getComputedStyle(element).backgroundColor);
        if (color.length < 4 || color[3] > 0.5) return color.slice(0, 3);
    }
    return [255, 255, 255];
}
/* Of a text in a drawing: what is painted before it at the same place, or the page. */
function ground(view, element) {
    if (!element.ownerSVGElement) return behind(view, element);
    const box = element.parentElement.querySelector('rect');
    const fill = box === null ? 'none' : view.getComputedStyle(box).fill;
    return fill === 'none' ? behind(view, element.ownerSVGElement) : numbers(fill).slice(0, 3);
}
function contrast(view, element) {
    const style = view.getComputedStyle(element);
    const front = numbers(element.ownerSVGElement ? style.fill : style.color).slice(0, 3);
    const a = luminance(front), b = luminance(ground(view, element));
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}
function nameOf(element) {
    return element.tagName + ' "' + element.textContent.trim().slice(0, 30) + '"';
}
function look(frame, say) {
    const view = frame.contentWindow, page = frame.contentDocument, width = view.innerWidth;
    const all = selector => [...page.querySelectorAll(selector)];
    for (const details of all('details')) details.open = true;
    say(width === Number(frame.width), 'the window is ' + width);
    say(page.documentElement.scrollWidth <= width,
        'the page is ' + page.documentElement.scrollWidth + ' px wide');
    for (const box of all('.wide'))
        say(box.clientWidth <= width && box.tabIndex === 0, 'a table stands out, or has no focus');
    for (const link of all('nav a')) {
        const aim = page.querySelector(link.getAttribute('href'));
        const height = aim === null ? 0 : aim.getBoundingClientRect().height;
        say(height > 0, nameOf(link) + ' leads nowhere');
    }
    say(all('nav a').length >= 6 && all('h1').length === 1, 'a heading or links are missing');
    say(all('svg text').length > 0 && all('dt').length > 50, 'what graphs are is missing');
    for (const element of all('a, summary, [tabindex]')) {
        element.focus();
        say(page.activeElement === element, nameOf(element) + ' takes no focus');
    }
    for (const element of all('h1, h2, p, :not(svg) > a, dt, dd, th, td, summary, svg text'))
        if (element.textContent.trim() !== '' && element.closest('svg a') !== element)
            say(contrast(view, element) >= 4.5,
                nameOf(element) + ' stands out by ' + contrast(view, element).toFixed(1));
    say(view.performance.getEntriesByType('resource').length === 0, 'something was fetched');
    const whole = luminance(numbers(view.getComputedStyle(page.body).backgroundColor));
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    say(dark ? whole < 0.1 : whole > 0.8, 'the ground is not as asked for');
    return dark;
}
addEventListener('load', () => {
    const out = document.createElement('pre');
    let passed = 0, faults = [], dark = false;
    for (const frame of document.querySelectorAll('iframe')) {
        const say = (holds, what) => holds ? passed++ : faults.push(frame.width + ': ' + what);
        dark = look(frame, say);
    }
    out.id = 'verdict';
    out.textContent = [(dark ? 'dark' : 'light'), passed, ...new Set(faults)].join('\n');
    document.body.append(out);
});
END_OF_SCRIPT

looks_well() { # PAGE: judged dark and light
    python3 "$scratch/frame.py" "$1" "$scratch/look.js" > "$scratch/framed.html"
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

long=$(printf '%0300d' 0) # a word that is wider than any window
for preset in tutorial gemma-2-9b; do
    "$figraph" capture --preset $preset --traits h200 --note 'by=<i>a & "test"</i>' \
        --note "long=$long" -o "$scratch/$preset.fig" > /dev/null
    "$figraph" inspect "$scratch/$preset.fig" --format html --kv 300,3x50 > "$scratch/$preset.html"
    looks_well "$scratch/$preset.html"
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
