#!/bin/sh
# test_tune.sh: figraph tune fits what was measured, keeps it in the file, and serves steps by it.
#
# On the host, from times made up by the model itself, so that what is due is known; once from times
# of the host's own. Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/support/cli.sh"

fig=$scratch/t.fig
times=$scratch/times.csv
header=chip,heads,head_dim,value_bytes,window,cell,variant,chain_us,alone_us
"$figraph" capture --preset llama-3.1-8b --layers 1 --traits h200 -o "$fig" > /dev/null

# Microseconds of a step of few rows: one variant as fast as the memory, the others half as fast.
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
verdict $? 'help is to fit 100 columns'
run --help
prints '  tune '

# ---- What was measured decides
cp "$fig" "$scratch/before.fig"
for variant in head:1 page:8 pair:2 four:4; do
    make_times "${variant%:*}"
    run tune "$fig" -o "$scratch/tuned.fig" --times "$times" --json
    ends 0
    json 'j["chip"] == "h200" and j["cells"] == 18'
    json '[v["variant"] for v in j["variants"]] == ["head", "page", "pair", "four"]'
    json 'j["of_fastest"] < 1.001 <= j["of_fastest_before"]'
    json 'all(v["error"] < 0.2 and v["times"] == 18 for v in j["variants"])'
    run inspect "$scratch/tuned.fig" --json
    ends 0
    json "{b['variant']['heads'] for b in j['buckets'] if b['kv'] >= 2048} == {${variant#*:}}"
    run verify "$scratch/tuned.fig" --json
    ends 0
    json 'j["tuning"] == {"used": 4, "foreign": 0, "stale": 0}'
done
cmp -s "$fig" "$scratch/before.fig"
verdict $? 'a file that is not asked to change is to stay as it is'

# Without -o the file itself is replaced; the same times give the same bytes.
run tune "$scratch/before.fig" --times "$times"
ends 0
prints 'class variant reads'
prints 'over 18 cells the variant chosen takes 1.0'
cmp -s "$scratch/before.fig" "$scratch/tuned.fig"
verdict $? 'the same times are to give the same file'
run inspect "$scratch/tuned.fig"
prints 'costs of variants measured for this file: 4'
run verify "$scratch/tuned.fig"
prints 'the costs of 4 variants were measured for it'
run tune "$fig" --times "$times" --rows
ends 0
grep -qE '^    \{"h200", 2, "four", [0-9]+, [0-9]+, [0-9]+, [0-9]+\},$' "$scratch/out"
verdict $? 'a row is to be as the table of the library has it'
run verify "$fig" --json
json 'j["tuning"] == {"used": 0, "foreign": 0, "stale": 0}'

# ---- Records of others
python3 - "$scratch/tuned.fig" > "$scratch/err" 2>&1 << 'END'
import sys

data = open(sys.argv[1], "rb").read()
assert b"VARI" in data, "the file has a section VARI"
END
verdict $? 'a tuned file is to have a section of records'

# ---- On the host, measured
"$figraph" capture --preset tutorial --traits host -o "$scratch/host.fig" > /dev/null
run tune "$scratch/host.fig" --device host --csv "$scratch/host.csv" --json
ends 0
json 'j["chip"] == "host" and len(j["variants"]) == 2 and j["cells"] == 4'
[ "$(head -n 1 "$scratch/host.csv")" = "$header" ] && [ "$(wc -l < "$scratch/host.csv")" -eq 9 ]
verdict $? 'the CSV is to have a line for each cell and variant'
cp "$scratch/host.fig" "$scratch/first.fig"
run tune "$scratch/host.fig" --device host --times "$scratch/host.csv"
ends 0
cmp -s "$scratch/host.fig" "$scratch/first.fig"
verdict $? 'times read again are to give the same file'
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
