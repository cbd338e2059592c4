/* look.js: checks a page in frames of several widths, as the browser renders it. */
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
/* Returns the color behind an element. Behind text in a drawing this is the fill of its group's
 * box, or else the page's color. */
function ground(view, element) {
    if (!element.ownerSVGElement) return behind(view, element);
    const mark = element.parentElement, box = mark.querySelector('rect');
    const fill = box === null || mark.tagName !== 'g' ? 'none' : view.getComputedStyle(box).fill;
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
/* Checks what every page must fulfil. The function `also` has this page's own checks. */
function look(frame, say) {
    const view = frame.contentWindow, page = frame.contentDocument, width = view.innerWidth;
    const all = selector => [...page.querySelectorAll(selector)];
    for (const details of all('details')) details.open = true;
    say(width === Number(frame.width), 'the window is ' + width);
    say(page.documentElement.scrollWidth <= width,
        'the page is ' + page.documentElement.scrollWidth + ' px wide');
    for (const box of all('.wide, .scroll'))
        say(box.clientWidth <= width && box.tabIndex === 0, 'a table stands out, or has no focus');
    for (const link of all('nav a')) {
        const aim = page.querySelector(link.getAttribute('href'));
        const height = aim === null ? 0 : aim.getBoundingClientRect().height;
        say(height > 0, nameOf(link) + ' leads nowhere');
    }
    also(all, say);
    for (const element of all('a, summary, [tabindex]')) {
        element.focus();
        say(page.activeElement === element, nameOf(element) + ' takes no focus');
    }
    const worded = 'h1, h2, h3, p, :not(svg) > a, dt, dd, th, td, summary, figcaption, svg text';
    for (const element of all(worded))
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
