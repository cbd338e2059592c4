#!/bin/sh
# demo.sh: captures four models' decode steps, saves them, and restores and replays each in another
# process.
#
# Every output of every step is compared with float64 while sequences join and grow across buckets.
# The files stay in build/demo. Invariant: exit 0 means that every command succeeded.
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

# Shows a command, runs it, and ends the demo if it fails.
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
One decode step: gated activation, RoPE, KV append, split attention. Recorded once, lowered for each
bucket of rows and tokens, saved, restored by another process, and replayed $steps times on made-up
data: sequences join, grow and pause, and every number that comes out is compared with float64.
END

# Two layers like gemma-2's, but narrow, and with a window that is shorter than the demo's
# sequences.
cat > "$folder/gemma-2-narrow.json" << END || exit 2
{"model_type": "gemma2", "torch_dtype": "bfloat16", "num_hidden_layers": 2, "hidden_size": 512,
 "head_dim": 64, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1024,
 "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 64, "rope_theta": 10000.0,
 "attn_logit_softcapping": 50.0, "sliding_window": 96, "max_position_embeddings": 1024}
END

# model NAME OPTION...: captures a step with these options into the file NAME.fig.
model() {
    file=$folder/$1.fig
    shift
    show capture "$@" -o "$file"
    show verify "$file"
    show replay "$file" --steps "$steps" --check
}
model tutorial --preset tutorial
model llama-3.1-8b-layer --preset llama-3.1-8b-layer
model qwen3-8b-layer --preset qwen3-8b --layers 1 --kv-dtype e4m3
model gemma-2-pair --config "$folder/gemma-2-narrow.json" --kv-limit 1024

echo
echo "The files are in $folder; figraph inspect shows what they hold. All of it took" \
    "$(($(date +%s) - began)) s."
