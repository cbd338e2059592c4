#!/bin/sh
# replay_bench.sh: figraph bench replay at several sizes, as one CSV.
#
# What a step costs the host and what its plan costs the GPU, of layers of a rank of eight of
# llama-3.1-70b. Lengths are ragged, so that in nearly every step of many rows some row grows into
# another tile. 32 layers take minutes a row count. Invariant: all lines are of one run on one
# machine.
#
# Usage: tests/gpu/replay_bench.sh [LAYERS [STEPS [ROWS...]]]
#   LAYERS   32; STEPS   of each kind, 10000; ROWS   1 32 256
cd "$(dirname "$0")/../.." || exit 1
layers=${1:-32}
steps=${2:-10000}
[ $# -eq 0 ] || shift
[ $# -eq 0 ] || shift
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT

# So many lengths, apart from each other by a step that meets all of 40 to 136.
ragged() {
    awk -v rows="$1" 'BEGIN {
        for (i = 0; i < rows; i++) printf "%s%d", i ? "," : "", 40 + i * 37 % 97
    }'
}

bench() { # ROWS
    build/figraph bench replay --config tests/gpu/llama-70b-eighth.json --layers "$layers" \
        --rows "$1" --kv "$(ragged "$1")" --steps "$steps" --device cuda --csv "$out" >&2 || exit 1
    sed 's/,"[0-9][0-9,]*",/,"40 to 136",/' "$out" | if [ -z "$head" ]; then cat; else tail -n 1; fi
    head=written
}

[ $# -gt 0 ] || set -- 1 32 256
for rows; do bench "$rows"; done
