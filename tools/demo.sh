#!/bin/sh
# demo.sh: capture two models' decode steps, save them, restore and replay each in another process.
#
# Every output of every step is compared with float64 while sequences join and grow across buckets.
# Leaves its files in build/demo. Invariant: exit 0 only where every command did what it shows.
#
# Usage: tools/demo.sh [FIGRAPH]
set -u
cd "$(dirname "$0")/.." || exit 2
figraph=${1:-build/figraph}
folder=build/demo
steps=64

[ -x "$figraph" ] || {
    echo "demo: no program $figraph: make builds it" >&2
    exit 2
}
mkdir -p "$folder" || exit 2
began=$(date +%s)

# Shows a command, runs it, and ends the demo where it fails.
show() {
    printf '\n$ figraph'
    printf ' %s' "$@"
    printf '\n'
    "$figraph" "$@" || {
        code=$?
        echo "demo: figraph $1 ended with exit code $code" >&2
        exit "$code"
    }
}

cat << END
One decode step: silu_and_mul, RoPE, KV append, split attention. Recorded once, lowered for each
bucket of rows and tokens, saved, restored by another process, and replayed $steps times on made-up
data: sequences join, grow and pause, and every number that comes out is compared with float64.
END

for model in tutorial llama-3.1-8b-layer; do
    file=$folder/$model.fig
    show capture --preset "$model" -o "$file"
    show verify "$file"
    show replay "$file" --steps "$steps" --check
done

echo
echo "The files are $folder/tutorial.fig and $folder/llama-3.1-8b-layer.fig; figraph inspect shows"
echo "what is in them. All of it took $(($(date +%s) - began)) s."
