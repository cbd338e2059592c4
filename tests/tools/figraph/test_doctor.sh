#!/bin/sh
# test_doctor.sh: tests what figraph doctor reports about this machine, a machine without a GPU, and
# simulated machines.
#
# CUDA_VISIBLE_DEVICES makes the driver hide the GPU, and HWLOC_SYNTHETIC makes hwloc simulate a
# topology. A check that fails prints the command. Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

prints() { # PATTERN, which one line must match
    grep -qE -e "$1" "$scratch/out"
    verdict $? "stdout must have a line such as \"$1\""
}
lacks() { # PATTERN
    ! grep -qE -e "$1" "$scratch/out"
    verdict $? "stdout must have no line such as \"$1\""
}
narrow() {
    awk 'length > 80 { long = 1 } END { exit long }' "$scratch/out"
    verdict $? 'no line must be longer than 80 columns'
    [ ! -s "$scratch/err" ]
    verdict $? 'stderr must be empty'
}

# ---- Usage ---------------------------------------------------------------------------------------
run doctor --help
ends 0
narrow
prints '^usage: figraph doctor \[options\]$'
prints '^  figraph doctor --device 0$'
run --help
prints '^  doctor  *examine this machine'
run doctor here
refused doctor here
run doctor --device first
refused --device '"first" is not a whole number'
run doctor --device -1
refused --device '-1 is outside 0..1023'
run doctor --devise 0
refused --devise 'figraph doctor --help'

# ---- This machine --------------------------------------------------------------------------------
run doctor
[ "$code" -eq 0 ] || [ "$code" -eq 1 ]
verdict $? 'the exit code must be 0 or 1'
text_code=$code
narrow
for subject in library driver topology nccl; do
    prints "^  (fine  |advice|FAULT )  $subject  *[^ ]"
done
prints '^[0-9]+ fine, [0-9]+ to consider, [0-9]+ faults?$'
run doctor --json
ends "$text_code"
json 'all(f["verdict"] in ("fine", "advice", "fault") for f in j["findings"])' \
    'all(f["subject"] and f["text"] for f in j["findings"])' \
    'all(isinstance(f["advice"], str) for f in j["findings"])' \
    'j["faults"] == sum(f["verdict"] == "fault" for f in j["findings"])' \
    'j["advice"] == sum(f["verdict"] == "advice" for f in j["findings"])' \
    "(j[\"faults\"] > 0) == ($text_code == 1)" \
    'len({f["subject"] for f in j["findings"]} & {"library", "driver", "topology", "nccl"}) == 4'
"$figraph" doctor > /dev/full 2> "$scratch/err"
[ $? -eq 2 ]
verdict $? 'a full disk must be exit code 2'

# ---- Without a GPU -------------------------------------------------------------------------------
CUDA_VISIBLE_DEVICES=
export CUDA_VISIBLE_DEVICES
run doctor
ends 0
narrow
prints '^  fine    steps  *20 steps of the tutorial on the host, [0-9.]+ us'
prints '^  fine    ranks  *an all-reduce over 2 ranks of the host takes [0-9.]+ us for 16'
lines=$(wc -l < "$scratch/out")
COLUMNS=200 run doctor
[ "$(wc -l < "$scratch/out")" -lt "$lines" ]
verdict $? 'a wide terminal must be used'
prints '^  advice  driver  *(no driver|there is a driver)'
prints '^                 -> for a GPU, install'
prints ' 0 faults$'
lacks '^  FAULT '
run doctor --json
ends 0
json 'j["ordinal"] == -1' 'j["faults"] == 0' 'j["findings"][-1]["subject"] == "ranks"'
run doctor --device 7
ends 1
narrow
prints '^  FAULT   gpu 7  *[^ ]'
prints ' 1 fault$'
lacks ' steps '
LC_ALL=C.UTF-8 run doctor
prints '^                  → for a GPU, install'

# ---- Simulated machines --------------------------------------------------------------------------
HWLOC_SYNTHETIC='pack:2 [numa] core:4 pu:2' run doctor
prints '^  fine    topology  2 packages, 8 cores, 16 threads, 2 NUMA nodes: 0-1$'
HWLOC_SYNTHETIC='pack:1 core:1 pu:1' run doctor
prints '^  fine    topology  1 package, 1 core, 1 thread, 1 NUMA node: 0$'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
