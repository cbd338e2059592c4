#!/bin/sh
# test_fit.sh: tests that figraph fit reports in text, in JSON and by its exit code how well a file
# fits a machine.
#
# Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

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

# ---- Machines that are described by numbers
numbers() { # TRAITS CODE FIT
    run fit "$fig" --traits "$1" --json
    ends "$2"
    json "j['fit'] == '$3'"
}
numbers compute_capability=90,sm_count=132,shared_bytes=232448,name=h200 0 fine
json 'j["reasons"] == []'
numbers shared_bytes=232448,sm_count=132,compute_capability=90 0 warning
json 'j["traits"]["name"] == "chip" and "on h200, not on chip" in j["reasons"][0]["reason"]'
numbers name=h20,compute_capability=90,sm_count=78,shared_bytes=232448 1 anew
json 'j["traits"]["sm_count"] == 78 and "for h20 with 78" in j["reasons"][0]["reason"]'
numbers name=l40s,compute_capability=89,sm_count=142,shared_bytes=101376 1 anew
numbers name=t4,compute_capability=75,sm_count=40,shared_bytes=65536 1 refused
json '"t4 is of compute capability 7.5, kernels need 8.0" in j["reasons"][0]["reason"]'
run fit "$fig" --traits compute_capability=90,sm_count=132
refused '--traits: "shared_bytes" is missing'
run fit "$fig" --traits compute_capability=90,sms=132
refused '--traits: "sms" is none of name, compute_capability, sm_count and shared_bytes'
run fit "$fig" --traits sm_count=132x
refused '--traits: "132x" is no integer'
run fit "$fig" --traits sm_count=132,h200
refused '--traits: "h200" is not of the form NAME=NUMBER'
run fit "$fig" --traits name=a-name-of-16-chars
refused 'is longer than a name'
run fit "$fig" --traits compute_capability=90,sm_count=0,shared_bytes=1
refused 'traits: sm_count is 0, limits 1 to'
run plan --preset tutorial --kv 5 --traits compute_capability=80,sm_count=16,shared_bytes=166912
prints 'machine   chip, as --traits says'

# ---- Files that do not load
head -c 100 "$fig" > "$scratch/cut.fig"
run fit "$scratch/cut.fig" --traits h200
ends 1
prints 'refused'
prints 'It does not run there.'
cp "$fig" "$scratch/old.fig"
# byte 8 is the number of the file format
printf '\002' | dd of="$scratch/old.fig" bs=1 seek=8 conv=notrunc 2> /dev/null
run fit "$scratch/old.fig" --traits h200 --json
ends 1
json 'j["fit"] == "anew" and "format is 2" in j["reasons"][0]["reason"]'

# ---- Refusals
run fit
refused 'FILE is required'
run fit "$scratch/none.fig" --traits h200
refused 'none.fig'
run fit "$fig" --traits h2000
refused 'h2000'
run fit "$fig" --device a100
refused 'fit: --device: "a100" is not auto, host or cuda' '--traits names'
run replay "$fig" --steps 1 --device a100
refused '--device: "a100" is not auto, host or cuda'
! grep -q traits "$scratch/err"
verdict $? 'a command without --traits must not name it'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
