#!/bin/sh
# layers.sh: times whole layers of a model on several ranks and on one, and writes a CSV.
#
# build/layers runs the layers with their matrix products, compares the numbers with those of one
# rank, and prints the time of a step on one rank, on all, and on a rank that waits for no other. If
# the device is the host, the model is a small one. Invariant: each line comes from a run whose
# numbers were compared.
#
# Usage: tools/bench/layers.sh FILE.csv [--device host]
#   RANKS: 2; LAYERS: of llama-3.1-70b, 16; FIGRAPH is the program, beside which the others are
csv=$1
folder=$(dirname "${FIGRAPH:-build/figraph}")
ranks=${RANKS:-2}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

if [ "$2 $3" = '--device host' ]; then
    device=host chip=host model=small cells='3x40' layers=2 steps=4
    cat > "$scratch/small.json" << 'END'
{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
 "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "hidden_act": "silu",
 "max_position_embeddings": 512, "rope_theta": 10000.0, "torch_dtype": "bfloat16"}
END
    of="--config $scratch/small.json --hidden 256 --traits host"
else
    device=cuda model=llama-3.1-70b cells='8x8192 32x8192' layers=${LAYERS:-16} steps=200
    chip=$(nvidia-smi --query-gpu=name --format=csv,noheader | awk 'NR == 1 { print tolower($2) }')
    of="--preset $model"
fi
# shellcheck disable=SC2086 # words
"$folder/layers" record $of --layers "$layers" -o "$scratch/model.fig" > "$scratch/out" || exit 1

columns=device,chip,model,layers,cell,ranks,step_ms,layer_us,apart_ms,one_rank_ms,times_as_fast
echo "$columns,first_s" > "$csv"
code=0
for cell in $cells; do
    "$folder/figraph-launch" -n "$ranks" -- "$folder/layers" run "$scratch/model.fig" \
        --kv "$cell" --steps "$steps" --device "$device" --check > "$scratch/out" || {
        code=1
        continue
    }
    # Lines of rank 0, which figraph-launch prefixes with the rank's number.
    awk -v head="$device,$chip,$model,$layers,$cell,$ranks" '
        { sub(/^\[0\] */, "") }
        $1 == "first" { first = $2 }
        $1 == "step" { step = $2; layer = $4 }
        $1 == "share" { apart = $2 }
        $1 == "whole" { whole = $2 }
        $1 == "check" { checked = 1 }
        END {
            if (!checked || step == "" || whole == "") exit 1
            printf "%s,%s,%s,%s,%s,%.3f,%s\n", head, step, layer, apart, whole, whole / step, first
        }' "$scratch/out" >> "$csv" || code=1
done
exit $code
