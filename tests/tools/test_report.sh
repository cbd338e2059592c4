#!/bin/sh
# test_report.sh: tests that README and docs show the numbers of the CSVs, and that the report is a
# single page that needs no other files.
#
# Invariant: the last line is "N passed, N failed".
set -u
# shellcheck source=tests/support/tally.sh
. "$(dirname "$0")/../support/tally.sh"
export PYTHONDONTWRITEBYTECODE=1

report() { # OPTION...: works on copies of the pages and CSVs
    tools/report/report.py --results "$scratch/results" --pages "$scratch" \
        --figures "$scratch/figures" --page "$scratch/page.html" "$@" > "$scratch/out" 2>&1
}
fresh() {
    rm -rf "$scratch/results" "$scratch/figures"
    cp -r tools/bench/results "$scratch/results"
    cp -r tools/report/figures "$scratch/figures"
    rm -rf "$scratch/docs"
    cp README.md "$scratch/README.md"
    cp -r docs "$scratch/docs"
}
refused() { # MESSAGE: --check fails and prints it
    check "it must be refused: $1" is_refused
    check "it must say \"$1\": $(cat "$scratch/out")" grep -q -- "$1" "$scratch/out"
}
is_refused() {
    ! report --check
}

# ---- Pages ---------------------------------------------------------------------------------------
check 'the pages and the CSVs' tools/report/report.py --check
fresh
check 'copies of them' report --check

sed -i "s/ of the roofline in a chain/9&/" "$scratch/README.md"
refused 'its part about speed is not what the CSVs make'
fresh
echo 'A step takes 17.2345 us on an H200.' >> "$scratch/README.md"
refused 'README.md:[0-9]*: 17.2345 us is in no CSV'
fresh
echo 'A step takes 17.2345 µs on an H200.' >> "$scratch/docs/limits.md"
refused 'limits.md:[0-9]*: 17.2345 µs is in no CSV'
fresh
echo 'Sums take 3 to 8.8888 us.' >> "$scratch/README.md"
refused '8.8888 us is in no CSV'
fresh
sed -i '2s/,32,[0-9.]*,/,32,7.8912,/' "$scratch/results/h200_step.csv"
refused 'its part about speed is not what the CSVs make'
refused 'h200_step.svg: it is not what the CSVs make'
check 'what is made anew' report
check 'is right' report --check
echo 'A layer takes 7.8912 us.' >> "$scratch/README.md"
check 'a figure that a CSV has may be typed' report --check
fresh
cp "$scratch/figures/h200_step.svg" "$scratch/figures/h200_old.svg"
refused 'h200_old.svg: no CSV makes it'
check 'what nothing makes goes' sh -c "cd '$PWD' && tools/report/report.py --results \
    '$scratch/results' --pages '$scratch' --figures '$scratch/figures' \
    --page '$scratch/page.html' && ! ls '$scratch/figures/h200_old.svg'"
fresh
sed -i '/made by `make report`/d' "$scratch/README.md"
refused 'it has no part that make report makes'
fresh
cut -d , -f 1-9 "$scratch/results/h200_step.csv" > "$scratch/cut"
mv "$scratch/cut" "$scratch/results/h200_step.csv"
refused 'does not say driver, date and commit'

# ---- The page ------------------------------------------------------------------------------------
fresh
check 'a page' report
check 'the page' python3 tests/support/pages/report_page_test.py "$scratch/page.html" \
    "$scratch/results"
cp "$scratch/page.html" "$scratch/again.html"
check 'a page once more' report
check 'the same CSVs make the same bytes' cmp "$scratch/page.html" "$scratch/again.html"
sed 's#<h1>#<img src="https://example.org/x.png"><h1>#' "$scratch/again.html" > "$scratch/page.html"
check 'a page that asks for more is seen' sh -c "! python3 tests/support/pages/report_page_test.py \
    '$scratch/page.html' '$scratch/results' > '$scratch/log' 2>&1"
finish
