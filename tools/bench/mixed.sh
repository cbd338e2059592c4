#!/bin/sh
# mixed.sh: tests and times steps that hold chunks of prompts beside rows that decode, on a GPU.
#
# Runs the tests that chunks concern under both images, compares whole steps and a serving loop with
# float64, and times mixed steps beside their two parts alone, in one process each. Prints a line
# for each. Needs build/figraph with kernels, and the test programs. Invariant: the exit code is 0
# only if every comparison held.
#
# Usage: tools/bench/mixed.sh [BUILD]
build=${1:-build/release}
figraph=build/figraph
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
export FIG_DEVICE=cuda
failed=0

say() { # NAME COMMAND...
    name=$1
    shift
    if "$@" > "$scratch/log" 2>&1; then
        echo "ok      $name: $(grep -v '^$' "$scratch/log" | tail -n 1)"
    else
        echo "FAILED  $name"
        tail -n 8 "$scratch/log"
        failed=1
    fi
}

for image in hopper plain; do
    for test in test_chunks test_prompt_attention test_packed; do
        say "$image $test" env FIG_IMAGE=$image "$build/tests/$test"
    done
done

replayed() { # CAPTURE OPTION...
    "$figraph" capture "$@" --batch-limit 8 --kv-limit 4096 -o "$scratch/step.fig" > /dev/null &&
        say "replay $*" "$figraph" replay "$scratch/step.fig" --steps 24 --check
}
replayed --preset llama-3.1-8b --layers 2 --row-tokens 512 --query-limit 900
replayed --preset gemma-2-9b --layers 2 --row-tokens 300 --query-limit 600
replayed --preset gpt-oss-20b --layers 2 --row-tokens 300 --query-limit 600
replayed --preset llama-3.1-8b --layers 2 --row-tokens 200 --query-limit 300 --kv-dtype e4m3
for chunk in 64 512 2048; do
    say "serve --chunk $chunk" "$figraph" serve --preset llama-3.1-8b-layer --requests 100 \
        --chunk "$chunk" --check
done

# A mixed step beside the same chunk and the same rows alone.
"$figraph" capture --preset llama-3.1-8b --layers 8 --batch-limit 129 --kv-limit 16384 \
    --row-tokens 4096 --query-limit 4224 -o "$scratch/mixed.fig" > /dev/null
timed() { # ROWS KV
    "$figraph" bench replay "$scratch/mixed.fig" --rows "$1" --kv "$2" --steps 300 --json \
        > "$scratch/json" \
        2> "$scratch/log" || { echo "FAILED  $2"; cat "$scratch/log"; failed=1; return; }
    python3 - "$2" "$scratch/json" << 'END_OF_PYTHON'
import json, sys
found = json.load(open(sys.argv[2]))
line = found["lines"][0] if "lines" in found else found
print("time    %-28s %s" % (sys.argv[1], " ".join(
    "%s %s" % (key, line[key]) for key in ("chain_ns", "bare_ns", "resident_ns", "fetched_ns")
    if key in line)))
END_OF_PYTHON
}
for cell in '1 8192:2048' '64 64x2048:1' '65 64x2048:1+8192:2048' \
    '1 8192:512' '128 128x1024:1' '129 128x1024:1+8192:512'; do
    timed "${cell% *}" "${cell#* }"
done
exit $failed
