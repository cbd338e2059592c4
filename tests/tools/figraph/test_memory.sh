#!/bin/sh
# test_memory.sh: tests figraph memory, and the output of capture, plan and inspect about ranks.
#
# Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

fig=$scratch/tutorial.fig
"$figraph" capture --preset tutorial -o "$fig" > "$scratch/out"
write_gemma

# ---- memory --------------------------------------------------------------------------------------
run memory "$fig"
ends 0
quiet
prints 'workspace'
prints 'token'
run memory "$fig" --json
ends 0
json 'j["token_bytes"] == 2 * 4 * 64 * 2' 'j["state_bytes"] == 4 * 8 * 32' 'j["pinned_bytes"] > 0' \
    'j["device_bytes"] == sum(j[n + "_bytes"] for n in ["workspace", "plans", "state", "exec"])'
four=$(sed -n '/together/q; s/.*"pinned_bytes": \([0-9]*\).*/\1/p' "$scratch/out")
run memory "$fig" --slots 4 --json
json "j['pinned_bytes'] == $four"
run memory "$fig" --slots 2 --json
two=$(sed -n '/together/q; s/.*"pinned_bytes": \([0-9]*\).*/\1/p' "$scratch/out")
run memory "$fig" --slots 64 --json
# pinned memory grows by the same amount for each slot, and also has a constant part
json "j['pinned_bytes'] - $four == 30 * ($four - $two) > 0"
run memory "$fig" --slots 65
refused 'slots' '65' '64'
run memory "$fig" --slots 0
refused '--slots' '0'
run memory "$scratch/none.fig"
refused "$scratch/none.fig"
run capture --config "$scratch/gemma.json" --kv-dtype e5m2 -o "$scratch/checked.fig"
run memory "$scratch/checked.fig" --json
json 'j["token_bytes"] == 2 * 2 * 4 * 80'

# ---- A preset takes what its file would take -----------------------------------------------------
"$figraph" capture --preset llama-3.1-8b --traits a100 -o "$scratch/a100.fig" > /dev/null
run memory "$scratch/a100.fig" --json
sed '/"file"/d' "$scratch/out" > "$scratch/due"
run memory --preset llama-3.1-8b --traits a100 --json
ends 0
json 'j["model"] == "llama-3.1-8b"' 'j["token_bytes"] == 131072'
sed '/"model"/d' "$scratch/out" | cmp -s - "$scratch/due"
verdict $? 'a preset must take the memory that its file takes'
run memory --preset llama-3.1-8b --traits a100
ends 0
quiet
fits 80
prints 'llama-3.1-8b'
prints '131 072'
prints '128.0 KiB'
run memory --preset tutorial --device host
ends 0
# So does a model that a file of Hugging Face or options describe.
run memory --config "$scratch/gemma.json" --kv-dtype e5m2 --traits host --json
ends 0
json "j['model'] == '$scratch/gemma.json'" 'j["token_bytes"] == 2 * 2 * 4 * 80'
run memory --q-heads 8 --kv-heads 2 --head-dim 64 --kv-limit 256 --traits h200 --json
ends 0
json 'j["token_bytes"] == 2 * 2 * 64 * 2'
run memory --preset llama-3.1-8b --kv-dtype e4m3 --traits a100 --json
ends 0
json 'j["token_bytes"] == 65536'
run memory --preset tutorial --config "$scratch/gemma.json"
refused '--preset' '--config'
run memory "$fig" --kv-dtype e4m3
refused '--kv-dtype' "$fig"
run memory
refused 'FILE' '--preset'
run memory "$fig" --preset tutorial
refused "$fig" '--preset'
run memory --preset tutoral
refused 'tutorial'
run memory "$fig" --traits a100
refused '--traits' '--preset'
run memory "$fig" --device host
refused '--device' '--preset'

# ---- ranks ---------------------------------------------------------------------------------------
run capture --preset llama-3.1-70b --layers 1 --traits h200 --ranks 4 -o "$scratch/ranks.fig"
ends 0
prints 'ranks     4, each with 16 of 64 q heads, 2 of 8 kv heads, 7 168 of 28 672 ffn columns'
run capture --preset llama-3.1-70b --layers 1 --traits h200 -o "$scratch/checked.fig"
cmp -s "$scratch/ranks.fig" "$scratch/checked.fig"
verdict $? 'a file is the model'"'"'s, however many ranks it is captured for'
lacks 'ranks'
run capture --preset llama-3.1-70b --ranks 3 -o "$scratch/none.fig"
refused 'capture: --ranks' 'q_heads is 64' '3'
[ ! -e "$scratch/none.fig" ]
verdict $? 'what does not divide is not written'
run memory "$scratch/ranks.fig" --ranks 16 --json
ends 0
json 'j["token_bytes"] == 2 * 128 * 2' 'j["together"]["ranks"] == 16' \
    'j["together"]["token_bytes"] == 16 * j["token_bytes"]' \
    'j["together"]["device_bytes"] == 16 * j["device_bytes"]'
run memory "$scratch/ranks.fig" --ranks 2
prints 'all 2 ranks together'
run inspect "$scratch/ranks.fig" --ranks 2 --json
json 'j["spec"]["q_heads"] == 32' 'j["share"]["ranks"] == 2' 'j["share"]["q_heads"] == 64' \
    'j["share"]["kv_heads"] == 8' 'j["share"]["ffn_width"] == 28672'
run inspect "$scratch/ranks.fig" --ranks 2
prints 'of one of 2 ranks; the model has 64 q heads, 8 kv heads'
run inspect "$scratch/ranks.fig" --ranks 5
refused 'inspect: --ranks' '5'
run inspect "$scratch/ranks.fig" --ranks 0
refused '--ranks' '0'
run plan --preset llama-3.1-70b --kv 8x4096 --traits h200 --ranks 2
ends 0
prints 'ranks     2, each with 32 of 64 q heads, 4 of 8 kv heads, 14 336 of 28 672 ffn columns'
prints 'of 4 kv heads at once'
run plan --preset llama-3.1-70b --kv 8x4096 --traits h200 --ranks 2 --json
json 'j["share"]["ranks"] == 2' 'j["share"]["kv_heads"] == 8'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
