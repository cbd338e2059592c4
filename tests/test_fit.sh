#!/bin/sh
# test_fit.sh: figraph fit tells by words, JSON and exit code how well a file fits a machine.
#
# Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/support/cli.sh"

fig=$scratch/llama.fig
"$figraph" capture --preset llama-3.1-8b --traits h200 -o "$fig" > /dev/null
fits_on() { # TRAITS CODE FIT
    run fit "$fig" --traits "$1"
    ends "$2"
    quiet
    fits 80
    run fit "$fig" --traits "$1" --json
    ends "$2"
    json "j['fit'] == '$3' and j['traits']['name'] == '$1'"
    json "all(r['reason'] and r['fit'] != 'fine' for r in j['reasons'])"
}
fits_on h200 0 fine
json 'j["reasons"] == []'
fits_on h100 0 warning
fits_on a100 1 anew
fits_on host 1 anew
run fit "$fig" --device host
ends 1
prints 'Capture it anew'

# ---- Files that do not load
head -c 100 "$fig" > "$scratch/cut.fig"
run fit "$scratch/cut.fig" --traits h200
ends 1
prints 'refused'
prints 'It does not run there.'
cp "$fig" "$scratch/old.fig"
printf '\001' | dd of="$scratch/old.fig" bs=1 seek=8 conv=notrunc 2> /dev/null # its format
run fit "$scratch/old.fig" --traits h200 --json
ends 1
json 'j["fit"] == "anew" and "format is 1" in j["reasons"][0]["reason"]'

# ---- What is refused
run fit
refused 'FILE is required'
run fit "$scratch/none.fig" --traits h200
refused 'none.fig'
run fit "$fig" --traits h2000
refused 'h2000'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
