#!/bin/sh
# replay_bench.sh: runs figraph bench replay at several sizes, and writes one CSV.
#
# It measures the host's time for a step and the GPU's time to plan it, for the layers of one of
# eight ranks of llama-3.1-70b. Lengths are ragged, so that with many rows some row enters a new
# tile in nearly every step. With 32 layers each number of rows takes minutes. Invariant: all lines
# come from one run on one machine.
#
# Usage: tests/gpu/replay_bench.sh [LAYERS [STEPS [ROWS...]]]
#   LAYERS   default 32; STEPS   of each kind, default 10000; ROWS   default 1 32 256
cd "$(dirname "$0")/../.." || exit 1
layers=${1:-32}
steps=${2:-10000}
[ $# -eq 0 ] || shift
[ $# -eq 0 ] || shift
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT

# Prints ROWS lengths from 40 to 136. The increment is coprime to the range, so 97 rows have 97
# different lengths.
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
