#!/bin/sh
# mixed.sh: tests and times steps that hold chunks of prompts beside rows that decode.
#
# Times mixed steps beside their two parts alone, each in a process of its own, and the time between
# two tokens of a serving loop with chunks and without. Then runs the tests that chunks concern
# under both images, and compares whole steps and a serving loop with float64. Prints a line for
# each. Needs build/figraph with kernels, and the test programs. FIG_DEVICE=host does the same with
# small steps, whose times mean nothing. Invariant: the exit code is 0 only if every comparison
# held.
#
# Usage: tools/bench/mixed.sh [--times] [BUILD]     --times: without the tests
cd "$(dirname "$0")/../.." || exit 1
times_only=
if [ "${1:-}" = --times ]; then
    times_only=1
    shift
fi
build=${1:-build/release}
figraph=${FIGRAPH:-build/figraph}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
export FIG_DEVICE="${FIG_DEVICE:-cuda}"
failed=0
is_host() {
    [ "$FIG_DEVICE" = host ]
}

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

# ---- Times ---------------------------------------------------------------------------------------

# Prints the time of a step's kernels in us or, on the host, of staging the step.
timed() { # ROWS KV
    is_host && steps=1 || steps=300
    "$figraph" bench replay "$scratch/mixed.fig" --rows "$1" --kv "$2" --steps "$steps" --json \
        --device "$FIG_DEVICE" > "$scratch/json" 2> "$scratch/log" || {
        echo "FAILED  $2" >&2
        cat "$scratch/log" >&2
        return 1
    }
    python3 -c 'import json, sys
line = json.load(open(sys.argv[1]))["lines"][0]
print("%.1f" % (line.get("bare_ns", line["step_ns"]) / 1e3))' "$scratch/json"
}
# Times rows of one query token, a chunk, and both in one step. The chunk has a row of one token
# before it: bench replay compares a step's first row with float64, which takes minutes for a chunk.
mixed() { # ROWS KV, KV of the chunk
    if ! rows=$(timed "$1" "$2") || ! chunk=$(timed 2 "1:1+$3") ||
        ! both=$(timed $(($1 + 1)) "$2+$3"); then
        failed=1
        return
    fi
    awk -v rows="$rows" -v chunk="$chunk" -v both="$both" -v name="$3 beside $2" 'BEGIN {
        printf "time    %s: %.1f us, %.3f of %.1f + %.1f us alone\n", name, both,
            both / (rows + chunk), chunk, rows
    }'
}

# Prints percentiles of the time between two tokens of a request, with the chunk sizes that are
# given; 0: prompts count as cached, so no step computes any.
between() { # CHUNK...
    is_host && served='tutorial --requests 6' || served='llama-3.1-8b --requests 200 --kv-gib 16'
    first=
    for chunk; do
        # shellcheck disable=SC2086
        "$figraph" serve --preset $served --chunk "$chunk" --device "$FIG_DEVICE" --json \
            > "$scratch/json" 2> "$scratch/log" || {
            echo "FAILED  serve --chunk $chunk"
            cat "$scratch/log"
            failed=1
            return
        }
        found=$(python3 -c 'import json, sys
between = json.load(open(sys.argv[1]))["between_tokens_ns"]
print(*(between[p] / 1e3 for p in ("p50", "p99")))' "$scratch/json")
        [ -n "$first" ] || first=${found#* }
        awk -v first="$first" -v p50="${found% *}" -v p99="${found#* }" -v chunk="$chunk" '
            BEGIN {
                printf "time    serve --chunk %s, between tokens: p50 %.0f us, p99 %.0f us, " \
                    "%.2f of the first\n", chunk, p50, p99, p99 / first
            }'
    done
}

if is_host; then
    "$figraph" capture --preset tutorial --layers 1 --batch-limit 4 --kv-limit 128 \
        --row-tokens 32 --query-limit 36 --traits host -o "$scratch/mixed.fig" > "$scratch/log"
    mixed 3 3x40:1 60:20
    between 0 16
else
    "$figraph" capture --preset llama-3.1-8b --layers 4 --batch-limit 129 --kv-limit 16384 \
        --row-tokens 4096 --query-limit 4224 -o "$scratch/mixed.fig" > "$scratch/log"
    mixed 64 64x2048:1 8192:2048
    mixed 128 128x1024:1 8192:512
    between 0 256 512 2048 8192
fi
[ -z "$times_only" ] || exit $failed

# ---- Tests ---------------------------------------------------------------------------------------

is_host && images=host || images='hopper plain'
for image in $images; do
    for test in test_chunks test_prompt_attention test_packed; do
        say "$image $test" env FIG_IMAGE="$image" "$build/tests/$test"
    done
done

replayed() { # CAPTURE OPTION...
    "$figraph" capture "$@" --batch-limit 8 --kv-limit 4096 -o "$scratch/step.fig" > /dev/null &&
        say "replay $*" "$figraph" replay "$scratch/step.fig" --steps 24 --check
}
if ! is_host; then
    replayed --preset llama-3.1-8b --layers 2 --row-tokens 512 --query-limit 900
    replayed --preset gemma-2-9b --layers 2 --row-tokens 300 --query-limit 600
    replayed --preset gpt-oss-20b --layers 2 --row-tokens 300 --query-limit 600
    replayed --preset llama-3.1-8b --layers 2 --row-tokens 200 --query-limit 300 --kv-dtype e4m3
    for chunk in 64 512 2048; do
        say "serve --chunk $chunk" "$figraph" serve --preset llama-3.1-8b-layer --requests 100 \
            --chunk "$chunk" --check
    done
fi
exit $failed
