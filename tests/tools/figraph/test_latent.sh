#!/bin/sh
# test_latent.sh: tests that the commands work for a step with latent attention as for any other.
#
# Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

# ---- capture, inspect, memory --------------------------------------------------------------------
fig=$scratch/latent.fig
run capture --preset deepseek-v3 --layers 4 --batch-limit 4 --kv-limit 400 -o "$fig"
ends 0
quiet
run inspect "$fig" --json
ends 0
json 'j["spec"]["latent_dim"] == 512' 'j["spec"]["dense_layers"] == 3' \
    '[n["op"] for n in j["nodes"]] == 4 * ["gated", "latent_decode"]' \
    'j["classes"][0]["kv_heads"] == 8' \
    '{t["name"]: t["dims"] for t in j["tensors"]}["k_cache.1"] == ["pages", 64, 576]' \
    '{t["name"]: t["dims"] for t in j["tensors"]}["act.2"] == ["batch", 18432]' \
    '{t["name"]: t["dims"] for t in j["tensors"]}["act.3"] == ["batch", 2048]'
run inspect "$fig"
ends 0
prints '128 q heads over a latent of 512 + 64'
prints '3 dense layers of width 18 432'
prints '128 q heads of 512 in groups of 16 or more'
prints 'q heads/tile'
run inspect "$fig" --bucket 1
prints '64 q heads at once'
run memory "$fig" --json
ends 0
json 'j["token_bytes"] == 4 * 576 * 2'
run capture --config tests/configs/kimi-k2.json --layers 1 --batch-limit 2 --kv-limit 200 \
    -o "$scratch/kimi.fig"
ends 0
run inspect "$scratch/kimi.fig"
prints '64 q heads over a latent of 512 + 64'

# ---- plan ----------------------------------------------------------------------------------------
run plan --preset deepseek-v3 --kv 16x2048+1x30000
ends 0
prints '64 q heads at once'
run plan --preset deepseek-v3 --kv 4x2048 --row-tokens 16
ends 0
prints '4 q heads at once'
run plan --preset deepseek-v3 --kv 3x2048:1,700:16 --json
ends 0
json 'j["query_tokens"] == 19' 'j["classes"][0]["tiles"] == 32 * (3 * 32 + 11)' '"chunks" not in j'
run plan --preset deepseek-v3 --kv 3x2048:1,700:17
refused 'row_tokens is 17, limit 16'
run plan --preset deepseek-v3 --kv 4x2048 --row-tokens 17
refused 'row_tokens is 17, limit 16'
run plan --preset deepseek-v3 --kv 4x2048 --ranks 8 --traits h200
ends 0
prints '16 of 128 q heads'
prints 'whole on each rank'
prints '1/8 on each rank if ranks divided the requests'
run plan --preset deepseek-v3 --kv 4x2048
verdict "$(grep -c 'whole on each rank' "$scratch/out")" "stdout must not hold 'whole on each rank'"
run plan --preset llama-3.1-8b --kv 4x2048 --ranks 8
verdict "$(grep -c 'whole on each rank' "$scratch/out")" "stdout must not hold 'whole on each rank'"
run memory --preset deepseek-v3 --ranks 4 --traits h200
ends 0
prints 'whole latent cache'
run memory --preset llama-3.1-8b --ranks 4 --traits h200
prints 'a kv head that'
verdict "$(grep -c 'latent' "$scratch/out")" "stdout must not hold 'latent'"
run plan --preset deepseek-v3 --kv 4x2048 --ranks 32
refused 'q_heads is 4, it must be a multiple of 8'

# ---- replay and serve ----------------------------------------------------------------------------
for options in '' '--kv-dtype e4m3' '--row-tokens 2' '--query-limit 12 --row-tokens 4' \
    '--row-tokens 16' '--row-tokens 9 --kv-dtype e4m3' '--query-limit 30 --row-tokens 13' \
    '--deterministic' '--page-size 0' '--q-rope' '--q-rope --kv-dtype e4m3 --row-tokens 2' \
    '--q-rope --query-limit 12 --row-tokens 4'; do
    # shellcheck disable=SC2086
    run capture --preset kimi-k2 --layers 2 --batch-limit 3 --kv-limit 200 $options \
        -o "$scratch/step.fig"
    ends 0
    run replay "$scratch/step.fig" --rows 3 --kv 130,0,70 --steps 2 --check --json
    ends 0
    quiet
    json 'j["passed"] is True' 'j["compared"] > 100000' '0 < j["worst_ulp"] <= 2'
done
run capture --preset kimi-k2 --layers 1 --q-rope -o "$scratch/parts.fig"
ends 0
run inspect "$scratch/parts.fig" --json
json '{t["name"]: t["dims"] for t in j["tensors"]}["q.0"] == ["batch", 64, 512]' \
    '{t["name"]: t["dims"] for t in j["tensors"]}["q_rope.0"] == ["batch", 64, 64]'
run capture --preset tutorial --q-rope -o "$scratch/step.fig"
refused 'capture: --q-rope: tutorial has no latent attention'
for option in '--score score+1.0' '--mask 0:4'; do
    # shellcheck disable=SC2086
    run capture --preset kimi-k2 --q-rope $option -o "$scratch/step.fig"
    refused 'capture: --q-rope: latent attention takes no --score or --mask'
done
run capture --preset kimi-k2 --kv-dtype e5m2 -o "$scratch/step.fig"
refused 'kv_dtype'
run capture --preset kimi-k2 --kv-layout hnd -o "$scratch/step.fig"
refused 'kv_layout'
run capture --preset kimi-k2 --layers 1 --batch-limit 2 --kv-limit 200 -o "$scratch/step.fig"
run serve "$scratch/step.fig" --requests 3 --check --fast
ends 0
# Outputs of packed steps are compared. The latents of each query token have signs of their own.
for options in '' '--dtype f32' '--kv-dtype e4m3' '--q-rope'; do
    # shellcheck disable=SC2086
    run capture --config tests/configs/kimi-k2.json --layers 1 --batch-limit 3 --kv-limit 64 \
        --row-tokens 8 --query-limit 20 $options -o "$scratch/step.fig"
    ends 0
    run serve "$scratch/step.fig" --requests 3 --check --fast --json
    ends 0
    json 'j["passed"] is True' 'j["compared"] > 1000000'
done
# A row takes as many tokens of its prompt as the kernels for latents serve, whatever the budget is.
printf 'arrival_s,prompt_tokens,output_tokens\n0,9,1\n' > "$scratch/one.csv"
run serve --preset deepseek-v3 --chunk 64 --trace "$scratch/one.csv" --kv-pages 8 --fast --json
ends 0
json 'j["done"] == 1'
run capture --preset kimi-k2 --layers 1 --batch-limit 2 --kv-limit 200 --query-limit 20 \
    --row-tokens 16 --kv-dtype e4m3 -o "$scratch/step.fig"
run serve "$scratch/step.fig" --requests 3 --check --fast
ends 0
prints 'elements of outputs compared: all right'
printf 'arrival_s,prompt_tokens,output_tokens\n0,40,2\n' > "$scratch/short.csv"
run serve --preset kimi-k2 --trace "$scratch/short.csv" --chunk 64 --check
ends 0

# ---- bench and tune ------------------------------------------------------------------------------
run bench attention --preset kimi-k2 --kv 2x70 --kv 1x130,3x9 --kv 2x40:2-12 --device host --json
ends 0
quiet
json 'len(j) == 4' 'j[0]["heads"] == "64/1" and j[0]["head_dim"] == 576 and j[0]["page"] == 64' \
    'j[0]["family"] == "64x64"' 'j[0]["bytes"] == 140 * 576 * 2' \
    'all(0 < cell["worst_ulp"] <= 2 for cell in j)' \
    'j[2]["queries"] == 2 and 4 <= j[3]["queries"] <= 24'
run bench attention --preset kimi-k2 --dtype f32 --page 16 --window 20 --kv 1x70 --device host \
    --json
ends 0
json 'j[0]["dtype"] == j[0]["kv_dtype"] == "f32" and j[0]["window"] == 20' \
    'j[0]["bytes"] == 20 * 576 * 4'
run bench attention --preset kimi-k2 --kv 2x70 --kv-dtype e4m3
refused '--kv-dtype: e4m3'
run bench attention --preset kimi-k2 --kv 2x70 --head-dim 64
refused '--head-dim: --preset kimi-k2 gives it'
run bench attention --preset llama-3.1-8b --kv 2x70
refused 'llama-3.1-8b has no latent attention; give --heads 32/8 --head-dim 128'
run tune "$scratch/step.fig" --device host --quick
refused 'the costs over a latent cache are fixed'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
