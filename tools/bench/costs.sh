#!/bin/sh
# costs.sh: makes the table of the variants' costs from the times in tools/bench/results.
#
# Replaces the rows of planner/machine/costs.c by the costs that figraph tune fits to every
# <chip>_tune.csv, for caches with elements of 2 bytes and of 1 byte. Invariant: the same times give
# the same table.
#
# Usage: tools/bench/costs.sh [FILE]   FILE: planner/machine/costs.c; FIGRAPH is the program
cd "$(dirname "$0")/../.." || exit 1
figraph=${FIGRAPH:-build/figraph}
file=${1:-planner/machine/costs.c}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

rows_of() { # CSV CHIP OPTION...: of the preset that was measured
    csv=$1
    chip=$2
    shift 2
    "$figraph" capture --preset llama-3.1-8b --layers 1 --traits "$chip" "$@" \
        -o "$scratch/t.fig" > /dev/null || exit 1
    "$figraph" tune "$scratch/t.fig" --times "$csv" --rows || exit 1
}

for csv in tools/bench/results/*_tune.csv; do
    chip=$(basename "$csv" _tune.csv)
    rows_of "$csv" "$chip" && rows_of "$csv" "$chip" --kv-dtype e4m3
done > "$scratch/rows" || exit 1
awk -v rows="$scratch/rows" '
    /^static const cost_row rows\[\] = \{$/ {
        print
        while ((getline row < rows) > 0) print row
        skip = 1
    }
    /^};$/ { skip = 0 }
    !skip { print }' "$file" > "$scratch/costs.c" && cat "$scratch/costs.c" > "$file"
