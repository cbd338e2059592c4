#!/bin/sh
# test_tune.sh: tests that figraph tune fits measured times and stores the results in the file, and
# that steps use them.
#
# Most times come from the cost model itself, so that the right results are known; one run uses
# times that it measures on the host. Invariant: the last line is "N passed, N failed". shellcheck
# source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

fig=$scratch/t.fig
times=$scratch/times.csv
header=chip,heads,head_dim,value_bytes,window,cell,variant,chain_us,alone_us
"$figraph" capture --preset llama-3.1-8b --layers 1 --traits h200 -o "$fig" > /dev/null

# Writes times of steps: variant FASTEST reaches the memory's speed, the others half of it.
make_times() { # FASTEST
    python3 - "$1" > "$times" << 'END'
import sys

print("chip,heads,head_dim,value_bytes,window,cell,variant,chain_us,alone_us")
for rows in 1, 4, 8, 32, 128, 256:
    for kv in 512, 2048, 8192:
        for variant in "head", "page", "pair", "four":
            us = 3 + rows * kv * 4096 / 4.4e6
            us *= 1 if variant == sys.argv[1] else 2
            print("h200,32/8,128,2,0,%dx%d,%s,%.3f,%.3f" % (rows, kv, variant, us, us))
END
}

# ---- Help
run tune --help
ends 0
for option in '-o' '--times' '--csv' '--json' '--device' '--quick' '--rows'; do
    prints "$option"
done
prints 'usage: figraph tune'
prints 'figraph tune llama.fig -o tuned.fig'
prints 'not within its tolerance'
awk 'length > 100 { long = 1 } END { exit long }' "$scratch/out"
verdict $? 'help must fit 100 columns'
run --help
prints '  tune '

# ---- Measured times decide
cp "$fig" "$scratch/before.fig"
for variant in head:1 page:8 pair:2 four:4; do
    make_times "${variant%:*}"
    run tune "$fig" -o "$scratch/tuned.fig" --times "$times" --json
    ends 0
    json 'j["chip"] == "h200" and j["cells"] == 18'
    json '[v["variant"] for v in j["variants"]] == ["head", "page", "pair", "four"]'
    json 'j["of_fastest"] < 1.001 <= j["of_fastest_before"]'
    json 'all(v["error"] < 0.2 and v["times"] == 18 for v in j["variants"])'
    json '[v["once"] for v in j["variants"]] == [33, 14, 41, 24]'
    run inspect "$scratch/tuned.fig" --json
    ends 0
    json "{b['variant']['heads'] for b in j['buckets'] if b['kv'] >= 2048} == {${variant#*:}}"
    run verify "$scratch/tuned.fig" --json
    ends 0
    json 'j["tuning"] == {"used": 4, "foreign": 0, "stale": 0}'
done
cmp -s "$fig" "$scratch/before.fig"
verdict $? 'a file that is not asked to change must stay as it is'

# `once` and `tile_ns` are fitted from steps that are not limited by memory; other times do not
# change them.
make_times pair
python3 - >> "$times" << 'END'
from math import ceil

ONCE, TILE = 50, 0.9  # the values for every variant; the library's table has others
variants = {"head": (8, 64), "page": (1, 16), "pair": (4, 64), "four": (2, 32)}
cells = ["1x4096+63x1", "1x4096+127x1", "1x16384+127x1", "1x8192+255x1", "1x16384+255x1"]
for cell in cells + ["8x512+120x1", "32x256+224x1"]:
    for variant, (groups, tokens) in variants.items():
        tiles = begins = 0
        for part in cell.split("+"):
            rows, length = map(int, part.split("x"))
            tiles += rows * groups * ceil(length / tokens)
            begins += rows * groups
        units = (16 * tiles + ONCE * (begins - 1)) / 132 + ONCE
        us = (3 if variant == "pair" else 6) + units * TILE / 16
        print("h200,32/8,128,2,0,%s,%s,%.3f,%.3f" % (cell, variant, us, us))
END
run tune "$fig" -o "$scratch/units.fig" --times "$times" --json
ends 0
json 'j["cells"] == 25'
json 'all(45 <= v["once"] <= 65 and 780 <= v["tile_ns"] <= 960 for v in j["variants"][::2])'
# According to these figures, memory limits most steps of the other two variants, so these keep the
# table's values.
json '[v["once"] for v in j["variants"][1::2]] == [14, 24]'
run verify "$scratch/units.fig" --json
ends 0
run tune "$scratch/units.fig" -o "$scratch/again.fig" --times "$times"
ends 0
cmp -s "$scratch/units.fig" "$scratch/again.fig"
verdict $? 'the same times must give the same once and tile_ns'
make_times four
run tune "$fig" -o "$scratch/tuned.fig" --times "$times"
ends 0

# Without -o, the file itself is replaced. The same times give the same bytes.
run tune "$scratch/before.fig" --times "$times"
ends 0
prints 'class variant reads'
prints 'over 18 cells the chosen variant takes 1.0'
cmp -s "$scratch/before.fig" "$scratch/tuned.fig"
verdict $? 'the same times must give the same file'
run inspect "$scratch/tuned.fig"
prints 'costs of variants measured for this file: 4'
run verify "$scratch/tuned.fig"
prints 'the costs of 4 variants were measured for it'
run tune "$fig" --times "$times" --rows
ends 0
grep -qE '^    \{"h200", 2, "four", [0-9]+, [0-9]+, [0-9]+, [0-9]+\},$' "$scratch/out"
verdict $? 'a row must be as the table of the library has it'
run verify "$fig" --json
json 'j["tuning"] == {"used": 0, "foreign": 0, "stale": 0}'

# The file keeps its figures if the fitted ones would choose worse.
python3 - > "$scratch/noise.csv" << 'END'
import random

draw = random.Random(12)
print("chip,heads,head_dim,value_bytes,window,cell,variant,chain_us,alone_us")
for rows in 1, 8, 64:
    for kv in 512, 2048, 8192:
        for variant in "head", "page", "pair", "four":
            us = (3 + rows * kv * 4096 / 4.4e6) * draw.uniform(1, 3)
            print("h200,32/8,128,2,0,%dx%d,%s,%.3f,%.3f" % (rows, kv, variant, us, us))
END
run tune "$fig" -o "$scratch/noise.fig" --times "$scratch/noise.csv" --json
ends 0
json 'j["of_fastest"] == j["of_fastest_before"]' 'j["classes_kept"] == 1'
run tune "$fig" -o "$scratch/noise.fig" --times "$scratch/noise.csv"
prints 'choose better than the fitted ones, and are kept'

# A read-only file is not replaced, but -o can name another. A replaced file keeps its mode.
cp "$fig" "$scratch/mode.fig"
chmod 444 "$scratch/mode.fig"
run tune "$scratch/mode.fig" --times "$times"
refused "$scratch/mode.fig" '444' '-o'
cmp -s "$fig" "$scratch/mode.fig"
verdict $? 'the file must stay as it is'
run tune "$scratch/mode.fig" --times "$times" -o "$scratch/other.fig"
ends 0
chmod 640 "$scratch/mode.fig"
run tune "$scratch/mode.fig" --times "$times"
ends 0
[ "$(stat -c %a "$scratch/mode.fig")" = 640 ]
verdict $? 'the file must keep its mode'

# A file is replaced by a new one beside it. A folder that takes no new file is refused before any
# times are read or measured. Root may write everywhere, so these commands run as another user.
as=
[ "$(id -u)" -ne 0 ] || as='setpriv --reuid 65534 --regid 65534 --clear-groups'
mkdir "$scratch/closed"
cp "$fig" "$scratch/closed/own.fig"
chmod 666 "$scratch/closed/own.fig"
chmod 555 "$scratch/closed"
chmod a+rx "$scratch"
chmod a+r "$fig"
# shellcheck disable=SC2086 # a command and its options, or nothing
if $as "$figraph" --version > "$scratch/out" 2> "$scratch/err"; then
    refused_early() { # WORD... of figraph tune
        $as "$figraph" tune "$@" --times "$scratch/none.csv" > "$scratch/out" 2> "$scratch/err"
        code=$?
        refused "$scratch/closed/own.fig" 'Permission denied'
    }
    refused_early "$scratch/closed/own.fig"
    refused_early "$fig" -o "$scratch/closed/own.fig"
fi
chmod 755 "$scratch/closed"

# ---- Records in the file
python3 - "$scratch/tuned.fig" > "$scratch/err" 2>&1 << 'END'
import sys

data = open(sys.argv[1], "rb").read()
assert b"VARI" in data, "the file has a section VARI"
END
verdict $? 'a tuned file must have a section of records'

# ---- On the host, measured
"$figraph" capture --preset tutorial --traits host -o "$scratch/host.fig" > /dev/null
run tune "$scratch/host.fig" --device host --csv "$scratch/host.csv" --json
ends 0
json 'j["chip"] == "host" and len(j["variants"]) == 2 and j["cells"] == 4'
[ "$(head -n 1 "$scratch/host.csv")" = "$header" ] && [ "$(wc -l < "$scratch/host.csv")" -eq 9 ]
verdict $? 'the CSV must have a line for each cell and variant'
cp "$scratch/host.fig" "$scratch/first.fig"
run tune "$scratch/host.fig" --device host --times "$scratch/host.csv"
ends 0
cmp -s "$scratch/host.fig" "$scratch/first.fig"
verdict $? 'times read again must give the same file'
run replay "$scratch/host.fig" --steps 5 --check --device host
ends 0

# ---- Refusals
run tune
refused 'FILE'
run tune "$scratch/none.fig"
refused "$scratch/none.fig"
run tune "$fig" --times "$scratch/none.csv"
refused "$scratch/none.csv"
run tune "$fig" --device host
refused 'lowered for h200' 'host'
run tune "$scratch/host.fig" --times "$times"
refused 'head' 'no time was measured on host'
echo nonsense > "$scratch/bad.csv"
run tune "$fig" --times "$scratch/bad.csv"
refused "$scratch/bad.csv" 'first line'
printf '%s\nh200,32/8,128,2,0,8xx,head,1,1\n' "$header" > "$scratch/bad.csv"
run tune "$fig" --times "$scratch/bad.csv"
ends 2
"$figraph" capture --preset tutorial --traits host --deterministic -o "$scratch/fixed.fig" \
    > /dev/null
run tune "$scratch/fixed.fig" --device host
refused 'deterministic'
run tune "$fig" --times "$times" -o "$scratch/no/such/place.fig"
refused 'place.fig'
run tune "$fig" --times "$times" --csv "$scratch/no/such/times.csv"
refused 'times.csv'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
