#!/bin/sh
# test_diff.sh: tests that figraph diff prints where two files differ, and that its exit code tells
# whether they do.
#
# Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

a=$scratch/a.fig
b=$scratch/b.fig
"$figraph" capture --preset tutorial -o "$a" > /dev/null
"$figraph" capture --preset tutorial --kv-dtype e4m3 --batch-limit 2 -o "$b" > /dev/null
cp "$a" "$scratch/same.fig"

run diff --help
ends 0
prints 'usage: figraph diff FILE FILE'
run diff "$a" "$scratch/same.fig"
ends 0
quiet
prints 'hold the same'
run diff "$a" "$scratch/same.fig" --json
ends 0
json 'j["count"] == 0 and j["structure"] == [] == j["fields"]'

run diff "$a" "$b"
ends 1
quiet
fits 80
prints '+ tensor k_scale.0'
prints 'e4m3'
structure=$(grep -n '^structure' "$scratch/out" | cut -d: -f1)
fields=$(grep -n '^fields' "$scratch/out" | cut -d: -f1)
[ "${structure:-99}" -lt "${fields:-0}" ]
verdict $? 'the structure must stand before the fields'
run diff "$a" "$b" --json
ends 1
json 'j["count"] == len(j["structure"]) + len(j["fields"])'
json '{"subject": "tensor k_scale.N", "first": "tensor k_scale.0", "times": 1, '\
'"only_in": "b"} in j["structure"]'
json '[f["b"] for f in j["fields"] if f["field"] == "batch_limit"] == ["2"]'

# ---- Files that cannot be compared
run diff "$a"
refused 'diff' 'FILE is required'
run diff "$a" "$b" "$a"
refused "$a" 'both were given'
run diff "$a" "$scratch/none.fig"
refused 'none.fig'
head -c 100 "$a" > "$scratch/cut.fig"
run diff "$scratch/cut.fig" "$a"
refused 'cut.fig'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
