#!/bin/sh
# test_cli.sh: what figraph promises whoever types its commands, or runs them from a program.
#
# Commands, help, exit codes, sentences, JSON, damaged files, full disks, killed captures, and a
# check that finds what is wrong. Programs that no command would record are recorded here through
# the public header. Each check that fails says what was run. Invariant: the last line is
# "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/support/cli.sh"
library=${BUILD:-build}/libfigraph.a

# One line on stderr that begins with the program's name and holds every word given.
# Expressions over the JSON that was printed, named j. One program reads them all.
json() {
    python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
for expression in sys.argv[2:]:
    try:
        holds = bool(eval(expression))
    except Exception:
        holds = False
    print(int(not holds), "the JSON is to have " + expression)' "$scratch/out" "$@" \
        > "$scratch/json" 2>&1
    verdict $? 'stdout is to be JSON'
    while read -r holds sentence; do
        verdict "$holds" "$sentence"
    done < "$scratch/json"
}
lacks() { # TEXT
    ! grep -qF -e "$1" "$scratch/out"
    verdict $? "stdout is not to hold \"$1\""
}

# ---- Help ----------------------------------------------------------------------------------------
run --help
ends 0
quiet
for command in plan capture inspect diff fit verify replay serve bench memory presets doctor; do
    run --help
    prints "  $command "
    run "$command" --help
    ends 0
    quiet
    prints "usage: figraph $command"
    prints 'example:'
    prints "  figraph $command "
    fits 80
    cp "$scratch/out" "$scratch/help"
    for asked in "$command -h" "help $command"; do
        # shellcheck disable=SC2086 # words
        run $asked
        ends 0
        cmp -s "$scratch/out" "$scratch/help"
        verdict $? 'it is to print what --help does'
    done
    COLUMNS=200 run "$command" --help
    fits 200
    prints 'exit code:'
    prints '  0  fine'
    prints '  2  bad usage'
done
COLUMNS=200 run serve --help
awk 'length > 180 { long = 1 } END { exit !long }' "$scratch/out"
verdict $? 'help is to use the columns that there are'
# A command ends with 1 exactly where its help says what for.
for command in diff fit verify replay serve doctor; do
    run "$command" --help
    prints '  1  '
done
for command in plan capture inspect memory presets; do
    run "$command" --help
    lacks '  1  '
done
for asked in -h help 'help help'; do
    # shellcheck disable=SC2086 # words
    run $asked
    ends 0
    prints 'usage: figraph COMMAND'
    fits 80
done
run help paln
refused 'paln'
# Help marks what is required, in the usage and behind the option.
run replay --help
prints 'usage: figraph replay FILE --steps N [options]'
prints 'how many (required)'
run plan --help
prints 'usage: figraph plan (--preset NAME | --config FILE) --kv LENS [options]'
run capture --help
prints 'usage: figraph capture (--preset NAME | --config FILE) -o FILE [options]'
run serve --help
prints 'usage: figraph serve (FILE | --preset NAME) [options]'
run --version
ends 0
version=$(awk '$2 == "FIG_VERSION" { v = $3
    print int(v / 10000) "." int(v / 100) % 100 "." v % 100 }' include/figraph.h)
prints "figraph $version"

# ---- Bad usage -----------------------------------------------------------------------------------
run
refused 'command'
run paln
refused 'paln' 'figraph --help'
run --hepl
refused '--hepl'
for command in plan capture inspect diff fit verify replay serve bench memory presets doctor; do
    run "$command" --no-such-option
    refused "$command" '--no-such-option' "figraph $command --help"
done
run plan "--two
lines"
refused '--two?lines'
run presets tutorial
refused 'presets' 'tutorial'
run verify
refused 'FILE is required' 'verify --help'
run verify a.fig b.fig
refused 'a.fig' 'b.fig'
run presets --json=yes
refused '--json' 'yes'
run presets --json --json
refused '--json' 'twice'

run plan --kv 5
refused '--preset' '--config'
run plan --preset tutorial --config x.json --kv 5
refused '--preset' '--config' 'both'
run plan --preset tutorial
refused '--kv LENS is required'
run plan --preset tutorial --kv
refused '--kv' 'LENS'
run plan --preset tutorial --kv --json
refused '--kv' 'LENS'
run plan --preset tutorail --kv 5
refused 'tutorail' 'tutorial' 'llama-3.1-8b'
run plan --preset tutorial --kv 5 --traits h2000
refused 'h2000' 'h200'
run plan --preset tutorial --kv 5 --batch few
refused '--batch' '"few"'
run plan --preset tutorial --kv 5 --batch 0
refused '--batch' '0'
run plan --preset tutorial --kv 5 --batch 99999999999999999999
refused '--batch' '99999999999999999999'
run plan --preset tutorial --kv 5,6 --batch 3
refused '--kv' '2' '3'
for lengths in x 5x 3xx4 -5 0x5 '5 ' 1e3 2147483648 65537x1; do
    run plan --preset tutorial --kv "$lengths"
    refused '--kv' "\"$lengths\""
    run plan --preset tutorial --kv "1,$lengths,2"
    refused '--kv' "\"$lengths\""
done
for lengths in ',' '5,' ',5' '5,,5'; do
    run plan --preset tutorial --kv "$lengths"
    refused '--kv' '""'
done
run plan --preset tutorial --kv 9x5
refused '9' '8'
run plan --preset tutorial --kv 513
refused '513' '512'
run plan --preset tutorial --batch-limit 4 --kv 5x5
refused '5' '4'
run plan --preset tutorial --page-size 65537 --kv 5
refused 'page_size' '65537'
run capture --preset tutorial
refused '-o FILE is required'
run capture --preset tutorial -o
refused '-o needs a value' '-o FILE'
run capture --preset tutorial --layers 0 -o "$scratch/x.fig"
refused '--layers' '0'
run capture --preset tutorial --layers 100000 -o "$scratch/x.fig"
refused 'layers' '100000' '512'
run capture --preset tutorial --device gpu -o "$scratch/x.fig"
refused '--device' '"gpu"'
run capture --config "$scratch/none.json" -o "$scratch/x.fig"
refused "$scratch/none.json"
run capture --preset tutorial -o "$scratch/none/x.fig"
refused "$scratch/none/x.fig"
run replay "$scratch/none.fig" --steps 1
refused "$scratch/none.fig"
run inspect "$scratch/none.fig"
refused "$scratch/none.fig"
run verify "$scratch/none.fig"
refused "$scratch/none.fig"
run verify "$scratch"
refused "$scratch"
[ ! -e "$scratch/x.fig" ]
verdict $? 'a refused capture is to leave no file'

# ---- presets and plan ----------------------------------------------------------------------------
run presets
ends 0
quiet
fits 80
prints 'tutorial'
lines=$(wc -l < "$scratch/out")
COLUMNS=200 run presets
fits 200
[ "$(wc -l < "$scratch/out")" -lt "$lines" ]
verdict $? 'what sets a preset apart is to stand in its line where there is room'
prints 'llama-3.1-8b-layer'
run presets --json
ends 0
json '[p["layers"] for p in j if p["name"] == "llama-3.1-8b"] == [32]' \
    '[p["kv_limit"] for p in j if p["name"] == "tutorial"] == [512]'

plan='plan --preset llama-3.1-8b --batch 40 --kv 32768,39x512 --traits h200'
# shellcheck disable=SC2086 # words
run $plan --json
ends 0
quiet
json 'len(j["classes"]) == 1' 'j["kv_tokens"] == 32768 + 39 * 512' 'j["bucket"]["workers"] == 132' \
    'j["plan_bytes"] <= j["plan_bytes_limit"]' 'j["bucket"]["batch"] >= 40' \
    'j["bucket"]["batch"] * j["bucket"]["kv"] >= j["kv_tokens"]'
# What holds for each class of attention, k, of a plan, j.
classes() {
    json 'all(sum(k["worker_tiles"]) == k["tiles"] for k in j["classes"])' \
        'all(len(k["worker_tiles"]) == len(k["worker_rows"]) for k in j["classes"])' \
        'all(len(k["worker_tiles"]) == j["bucket"]["workers"] for k in j["classes"])' \
        'all(max(k["worker_tiles"]) == k["tiles_most"] for k in j["classes"])' \
        'all(min(k["worker_tiles"]) == k["tiles_least"] for k in j["classes"])' \
        'all(k["tiles_most"] == -(-k["tiles"] // len(k["worker_tiles"])) for k in j["classes"])' \
        'all(k["partials"] <= k["partial_limit"] for k in j["classes"])'
}
classes
json 'j["bucket"]["variant"] == {"heads": 2, "tile_tokens": 64}' \
    'j["classes"][0]["tiles"] * 64 * 2 == 8 * j["kv_tokens"]' \
    'sum(j["classes"][0]["worker_rows"]) >= 40'
least=$(sed -n 's/.*"tiles_least": \([0-9]*\).*/\1/p' "$scratch/out")
# shellcheck disable=SC2086
run $plan
ends 0
quiet
prints "has $least to"
prints 'worker  66 to 131'
# In ASCII a bar is one character a worker: those of the lowest line are all the workers.
bars=$(awk -F '|' '/\|/ && ++line % 4 == 0 { print $2 }' "$scratch/out" | tr -d '\n ' | wc -c)
[ "$bars" -eq 132 ]
verdict $? 'the drawing is to have a bar for each of 132 workers'
LC_ALL=C.UTF-8 "$figraph" plan --preset llama-3.1-8b --kv 40x512 --traits h200 > "$scratch/out"
python3 -c 'import sys
lines = open(sys.argv[1], encoding="utf-8").read().splitlines()
sys.exit(not (any("█" in l for l in lines) and max(map(len, lines)) <= 80))' "$scratch/out"
verdict $? 'a drawing in UTF-8 is to have blocks and fit 80 columns'
for traits in h200 h100 a100 host; do
    for lengths in 1 8x1 8x512 512,0,0,7 0 0,0,0; do
        run plan --preset tutorial --kv "$lengths" --traits "$traits" --json
        ends 0
        classes
        run plan --preset tutorial --kv "$lengths" --traits "$traits"
        ends 0
        fits 80
        COLUMNS=200 run plan --preset tutorial --kv "$lengths" --traits "$traits"
        fits 200
    done
done

# Of gemma-2's layers every second one has a window: one more tile where it begins within one.
plan='plan --preset gemma-2-9b --kv 8192,5000,4096,1 --page-size 64 --traits h200'
# shellcheck disable=SC2086
run $plan --json
ends 0
classes
json '[(k["window"], k["layers"]) for k in j["classes"]] == [(4096, 21), (0, 21)]' \
    'j["bucket"]["variant"]["tile_tokens"] == 64' \
    'j["classes"][0]["tiles"] * j["bucket"]["variant"]["heads"] == 8 * (64 + 65 + 64 + 1)' \
    'j["classes"][1]["tiles"] * j["bucket"]["variant"]["heads"] == 8 * (128 + 79 + 64 + 1)'
# shellcheck disable=SC2086
run $plan
ends 0
prints '21 of 42 layers: a query sees 4 096 tokens, its own included'
prints '21 of 42 layers: a query sees all tokens'
run plan --preset gemma-2-9b --kv-limit 4096 --kv 4096 --json
ends 0
json '[(k["window"], k["layers"]) for k in j["classes"]] == [(0, 42)]'
run plan --preset mistral-7b --kv 30000,200 --row-tokens 4 --deterministic --json
ends 0
classes
json '[(k["window"], k["layers"]) for k in j["classes"]] == [(4096, 32)]'
run plan --preset gemma-2-9b --kv 0,0
ends 0
prints 'Every row is idle'
run plan --preset tutorial --row-tokens 4 --kv 3
refused '3' 'row_tokens' '4'

# ---- capture, verify, inspect --------------------------------------------------------------------
fig=$scratch/tutorial.fig
run capture --preset tutorial -o "$fig"
ends 0
quiet
prints "$fig"
run capture --preset tutorial -o "$scratch/again.fig" --json
ends 0
json "j['bytes'] == $(wc -c < "$fig")" 'j["traits"]["name"] == "host"' \
    'len(j["content_id"]) == 64' 'j["bucket_count"] > 1' 'j["node_count"] == 2'
cmp -s "$fig" "$scratch/again.fig"
verdict $? 'two captures are to be the same file'
for form in "-o$scratch/form.fig" "-o=$scratch/form.fig"; do
    rm -f "$scratch/form.fig"
    run capture --preset=tutorial "$form"
    ends 0
    cmp -s "$fig" "$scratch/form.fig"
    verdict $? 'it is to write the file that -o names'
done
run capture --preset tutorial -x3
refused 'unknown option -x'
# Told nothing, capture and plan cut steps for one machine, and say which and why.
if [ "$(sed -n 's/.*"name": "\(.*\)".*/\1/p' "$scratch/out")" = host ]; then
    why='host, since there is no GPU; --traits names one'
    run capture --preset tutorial -o "$scratch/again.fig"
    prints "machine   $why"
    run plan --preset tutorial --kv 5
    prints "machine   $why"
fi
run plan --preset tutorial --kv 5 --device host
prints 'machine   host, the device; --traits names a GPU'
run plan --preset tutorial --kv 5 --traits a100
prints 'machine   a100, as --traits says'
FIG_DEVICE=cuda run plan --preset tutorial --kv 5 --traits h200
ends 0
run capture --preset tutorial --traits h200 --layers 3 --batch-limit 2 --kv-limit 300 \
    --page-size 0 -o "$scratch/h200.fig" --json
ends 0
json 'j["traits"]["name"] == "h200"' 'j["layers"] == 3' 'j["node_count"] == 6'
run verify "$scratch/h200.fig"
ends 0
run capture --preset tutorial --kv-dtype fp8 -o "$scratch/x.fig"
refused '--kv-dtype' '"fp8"' 'e4m3'
run capture --preset tutorial --kv-dtype bf16 -o "$scratch/x.fig"
refused 'kv_dtype'
run capture --preset tutorial --kv-scales head -o "$scratch/x.fig"
refused 'kv_scales'
run capture --preset tutorial --kv-scales row -o "$scratch/x.fig"
refused '--kv-scales' '"row"' 'tensor, head'
run capture --preset tutorial --kv-layout dhn -o "$scratch/x.fig"
refused '--kv-layout' '"dhn"' 'nhd, hnd'
run capture --preset tutorial --row-tokens 9 -o "$scratch/x.fig"
refused 'row_tokens' '9' '8'
run capture --preset gemma-2-9b --layers 43 -o "$scratch/x.fig"
refused '--layers' '43' '42'
run capture --preset tutorial --device cuda -o "$scratch/cuda.fig"
refused 'cuda'
[ ! -e "$scratch/cuda.fig" ]
verdict $? 'a device that is not there is to leave no file'
FIG_DEVICE=cuda run capture --preset tutorial -o "$scratch/cuda.fig"
refused 'cuda'
FIG_DEVICE=cdua run capture --preset tutorial -o "$scratch/cuda.fig"
refused 'FIG_DEVICE' '"cdua"'
FIG_DEVICE=cuda run capture --preset tutorial --device host -o "$scratch/again.fig"
ends 0

cat > "$scratch/config.json" << 'END'
{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 64, "num_hidden_layers": 1,
 "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "hidden_act": "silu",
 "max_position_embeddings": 8192, "rope_theta": 10000.0, "rope_scaling": null,
 "torch_dtype": "float16"}
END
run capture --config "$scratch/config.json" --batch-limit 8 --kv-limit 512 \
    -o "$scratch/config.fig" --json
ends 0
cmp -s "$fig" "$scratch/config.fig"
verdict $? 'the tutorial from a config.json is to be the same file as from its preset'
# A config.json says how long a sequence may be; without an option no step is planned for more.
sed 's/8192/1000/' "$scratch/config.json" > "$scratch/short.json"
run plan --config "$scratch/short.json" --kv 1000
ends 0
run plan --config "$scratch/short.json" --kv 1001
refused '1001' '1000'
sed 's/8192/100000/' "$scratch/config.json" > "$scratch/long.json"
run plan --config "$scratch/long.json" --kv 32769
refused '32769' '32768'
run plan --config "$scratch/long.json" --kv-limit 40000 --kv 32769
ends 0
sed 's/"llama"/"mistral"/; s/"num_key_value_heads": 4, //' "$scratch/config.json" \
    > "$scratch/mha.json"
run plan --config "$scratch/mha.json" --kv 5
refused "$scratch/mha.json" 'num_key_value_heads is missing'
sed 's/"llama"/"mamba"/' "$scratch/config.json" > "$scratch/mamba.json"
run capture --config "$scratch/mamba.json" -o "$scratch/x.fig"
refused "$scratch/mamba.json" 'model_type' 'mamba'
sed 's/"num_attention_heads": 16, //' "$scratch/config.json" > "$scratch/headless.json"
run plan --config "$scratch/headless.json" --kv 5
refused "$scratch/headless.json" 'num_attention_heads'
head -c 100 "$scratch/config.json" > "$scratch/half.json"
run plan --config "$scratch/half.json" --kv 5
refused "$scratch/half.json"

run verify "$fig"
ends 0
quiet
prints 'sound'
run verify "$fig" --json
ends 0
json 'j["sound"] is True' 'j["relowered_count"] == 0'
id=$(sed -n 's/.*"content_id": "\(.*\)".*/\1/p' "$scratch/out")
run inspect "$fig"
ends 0
quiet
prints "$id"
run inspect "$fig" --json
ends 0
json 'j["spec"]["kv_limit"] == 512'
run inspect "$fig" --bucket=1 --json
ends 0
json 'j["number"] == 1' 'len(j["launches"]) == 4'
run inspect "$scratch/h200.fig" --all
ends 0
fits 80
all=$(wc -l < "$scratch/out")
run inspect "$scratch/h200.fig"
fits 80
prints 'a line for each batch'
[ "$(wc -l < "$scratch/out")" -lt "$all" ]
verdict $? 'without --all there are to be fewer lines'
run inspect "$fig" --bucket 3
narrow=$(wc -l < "$scratch/out")
COLUMNS=200 run inspect "$fig" --bucket 3
fits 200
[ "$(wc -l < "$scratch/out")" -lt "$narrow" ]
verdict $? 'a wide terminal is to be used'
run inspect --bucket 2 -- "$fig"
ends 0
prints 'attention'
run inspect "$fig" --bucket 10000
refused '10000'
run inspect "$fig" --bucket 0
refused '--bucket' '0'
run inspect "$fig" --form json
refused '--form' 'unknown option'

# ---- replay --------------------------------------------------------------------------------------
run replay "$fig" --steps 24 --check --json
ends 0
quiet
json 'j["passed"] is True' 'sum(b["steps"] for b in j["buckets"]) == j["steps"] == 24' \
    'len(j["buckets"]) >= 4' '0 < j["worst_ulp"] <= 2' \
    'j["worst_ulp"] == max(b["worst_ulp"] for b in j["buckets"])' 'j["idle_rows"] > 0' \
    'j["compared"] > 100000' 'all(b["step_ns"]["p50"] > 0 for b in j["buckets"])'
run replay "$fig" --steps 24 --check
ends 0
quiet
prints 'worst error'
run replay "$fig" --steps 12 --rows 3 --kv 120,0,510 --check --json
ends 0
json 'j["all_rows"] == 36' 'j["idle_rows"] == 13' 'j["passed"] is True'
run replay "$fig" --steps 4 --kv 4x126 --json --device host
ends 0
json 'j["all_rows"] == 16' 'j["kv_tokens"] == 4 * (126 + 127 + 128 + 129)' 'j["checked"] is False' \
    '[b["kv"] for b in j["buckets"]] == [128, 256]'
FIG_DEVICE=cuda run replay "$fig" --steps 4
refused 'cuda'
run replay "$fig"
refused '--steps N is required'
run replay "$fig" --steps 0
refused '--steps' '0'
run replay "$fig" --steps 1 --rows 9
refused '--rows' '9' '8'
run replay "$fig" --steps 1 --kv 9x1
refused '--kv' '9' '8'
run replay "$fig" --steps 1 --kv 513
refused '--kv' '513' '512'
cat > "$scratch/gemma.json" << 'END'
{"model_type": "gemma2", "hidden_size": 512, "intermediate_size": 128, "num_hidden_layers": 2,
 "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 80, "sliding_window": 48,
 "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 64, "rope_theta": 10000.0,
 "attn_logit_softcapping": 5.0, "max_position_embeddings": 512, "torch_dtype": "bfloat16"}
END
cat > "$scratch/qwen3.json" << 'END'
{"model_type": "qwen3", "hidden_size": 512, "intermediate_size": 64, "num_hidden_layers": 1,
 "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "hidden_act": "silu",
 "rope_theta": 1000000, "rms_norm_eps": 1e-6, "max_position_embeddings": 512,
 "torch_dtype": "bfloat16"}
END
cat > "$scratch/partial.json" << 'END'
{"model_type": "llama", "hidden_size": 768, "intermediate_size": 64, "num_hidden_layers": 1,
 "num_attention_heads": 8, "num_key_value_heads": 8, "hidden_act": "gelu", "rope_theta": 10000,
 "partial_rotary_factor": 0.5, "max_position_embeddings": 512, "torch_dtype": "float32"}
END
# Every step that the options and the families can ask for is what float64 makes of it.
checked() { # CAPTURE OPTION...
    run capture "$@" --batch-limit 8 --kv-limit 512 -o "$scratch/checked.fig"
    ends 0
    run replay "$scratch/checked.fig" --steps 10 --check --json
    ends 0
    json 'j["passed"] is True' 'j["compared"] > 100000' 'j["worst_ulp"] > 0'
}
for model in gemma qwen3 partial; do
    checked --config "$scratch/$model.json"
    checked --config "$scratch/$model.json" --row-tokens 3 --kv-layout hnd
    checked --config "$scratch/$model.json" --deterministic --page-size 0
done
for cache in e4m3 e5m2; do
    checked --preset tutorial --kv-dtype "$cache"
    checked --config "$scratch/gemma.json" --kv-dtype "$cache" --kv-scales head --kv-layout hnd \
        --row-tokens 8 --page-size 1
done
checked --preset gemma-2-9b --layers 1 --kv-dtype e4m3
checked --preset qwen2.5-7b --layers 1 --row-tokens 2
# act; q, k and out; what is appended; four pages of each cache: of four query tokens each.
run capture --preset tutorial --row-tokens 4 -o "$scratch/checked.fig"
run replay "$scratch/checked.fig" --steps 1 --kv 64 --check --json
json 'j["compared"] == 4 * (64 + (16 + 4 + 16) * 64 + 2 * 4 * 64) + 2 * 4 * 16 * 4 * 64'
run replay "$scratch/checked.fig" --steps 1 --kv 3
refused '--kv' '3' '4 queries'
run capture --preset qwen2.5-7b --layers 1 --row-tokens 2 -o "$scratch/checked.fig"
run replay "$scratch/checked.fig" --steps 1 --kv 1
refused '--kv' '1' '2 queries'

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
json "j['pinned_bytes'] - $four == 30 * ($four - $two) > 0" # beside slots there is what is constant
run memory "$fig" --slots 65
refused 'slots' '65' '64'
run memory "$fig" --slots 0
refused '--slots' '0'
run memory "$scratch/none.fig"
refused "$scratch/none.fig"
run capture --config "$scratch/gemma.json" --kv-dtype e5m2 -o "$scratch/checked.fig"
run memory "$scratch/checked.fig" --json
json 'j["token_bytes"] == 2 * 2 * 4 * 80'

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

# ---- One vocabulary ------------------------------------------------------------------------------
words='(what several commands say as JSON)'
code=0
python3 - "$figraph" "$scratch" > "$scratch/out" 2> "$scratch/err" << 'END' || code=$?
import json, subprocess, sys
figraph, scratch = sys.argv[1:]
def ask(*words):
    return json.loads(subprocess.run([figraph, *words, "--json"], check=True,
                                     stdout=subprocess.PIPE).stdout)
presets = {p["name"]: p for p in ask("presets")}
for name in ("tutorial", "gemma-2-9b", "qwen3-8b", "mistral-7b"):
    path = scratch + "/words.fig"
    captured = ask("capture", "--preset", name, "-o", path)
    whole, sound = ask("inspect", path), ask("verify", path)
    for key in presets[name].keys() - {"name"}:
        assert whole["spec"][key] == presets[name][key], (name, key)
    assert captured["layers"] == whole["spec"]["layers"]
    for said in (captured, sound):
        assert said["traits"] == whole["traits"] and said["content_id"] == whole["content_id"]
        assert said["bucket_count"] == len(whole["buckets"])
        assert said["tensor_count"] == len(whole["tensors"])
        assert said["node_count"] == len(whole["nodes"])
        assert said["relowered_count"] == whole["relowered_count"] == 0
    memory = ask("memory", path)
    assert memory["workspace_bytes"] == whole["workspace_bytes"]
    one = ask("inspect", path, "--bucket", "3")
    assert {key: one[key] for key in whole["buckets"][2]} == whole["buckets"][2]
    planned = ask("plan", "--preset", name, "--kv", "100,3")
    assert planned["traits"] == whole["traits"]
    own = whole["buckets"][planned["bucket"]["number"] - 1]
    assert set(planned["bucket"]) == {"number", "batch", "kv", "variant", "workers"}
    assert {key: own[key] for key in planned["bucket"]} == planned["bucket"], name
    assert {c["window"] for c in planned["classes"]} == {c["window"] for c in whole["classes"]}
    if name != "tutorial":
        continue
    assert planned["plan_bytes_limit"] == own["plan_bytes_limit"]
    for bucket in ask("replay", path, "--steps", "12")["buckets"]:
        own = whole["buckets"][bucket["number"] - 1]
        for key in ("batch", "kv", "variant", "workers"):
            assert own[key] == bucket[key], (key, own, bucket)
END
ends 0

# ---- Files of an earlier version
run replay tests/golden/llama-3.1-8b.fig --steps 1 --rows 1 --kv 3 --check --device host
ends 0
prints 'compared with float64: all right'
for file in mixed breadth llama-3.1-8b; do
    run inspect "tests/golden/$file.fig"
    ends 0
    prints 'since the file was made'
    fits 80
done

# ---- One of each, which is no plural
"$figraph" capture --preset tutorial --batch-limit 1 --kv-limit 1 -o "$scratch/one.fig" \
    --deterministic --device host > "$scratch/out"
prints 'up to 1 row, a sequence up to 1 token'
run verify "$scratch/one.fig"
ends 0
prints 'holds     1 bucket for host, 2 nodes over'
run replay "$scratch/one.fig" --steps 1 --device host
ends 0
prints '  1 step, 1 row, 0 of them idle, 1 token read'
run plan --preset tutorial --kv 1 --traits host
ends 0
prints 'step      1 row of 1: 1 token'
lacks ' 1 rows'
lacks ' 1 tokens'
run serve "$scratch/one.fig" --requests 1 --fast --device host
lacks ' 1 requests'
lacks ' 1 plans'
lacks ' 1 tokens'

# ---- replay, refused -----------------------------------------------------------------------------
run replay "$scratch/h200.fig" --steps 6 --check --json
ends 0
json 'j["passed"] is True'
for dtype in float32 bfloat16; do
    sed "s/float16/$dtype/" "$scratch/config.json" > "$scratch/$dtype.json"
    run capture --config "$scratch/$dtype.json" --kv-limit 512 --layers 2 -o "$scratch/$dtype.fig"
    ends 0
    run replay "$scratch/$dtype.fig" --steps 8 --check --seed 7 --json
    ends 0
    json 'j["passed"] is True' 'j["worst_ulp"] > 0'
done

# ---- A check that finds what is wrong, and programs that are not the standard step ---------------
cat > "$scratch/record.c" << 'END'
#include <figraph.h>
#include <stdio.h>
#include <string.h>

static int is(const char *wrong, const char *name) {
    return strcmp(wrong, name) == 0;
}

static fig_tensor tensor(fig_program *p, const char *name, int rank, int64_t a, int64_t b,
                         int64_t c) {
    int paged = strstr(name, "cache") != NULL, vector = strchr(name, '_') != NULL && rank == 1;
    fig_tensor_info info = {.size = sizeof info, .name = name, .role = FIG_ROLE_BOUND,
                            .dtype = strstr(name, "scale") != NULL ? FIG_F32 : FIG_F16,
                            .rank = rank,
                            .dims = {vector ? a : paged ? FIG_DIM_PAGES : FIG_DIM_BATCH,
                                     vector ? 0 : a, b, c}};
    return fig_program_tensor(p, &info);
}

/* What the spec says of the standard step; the program does as the tutorial does. */
static void ask(fig_spec *spec, const char *wrong) {
    if (is(wrong, "gelu")) spec->activation = FIG_GELU;
    if (is(wrong, "window")) spec->window = 40;
    if (is(wrong, "cap")) spec->soft_cap = 5;
    if (is(wrong, "partial")) spec->rope.rotary_dim = 32;
    if (is(wrong, "norm")) spec->qk_norm_epsilon = 1e-6f;
    if (is(wrong, "scale")) spec->kv_dtype = FIG_E4M3;
    if (is(wrong, "dense")) spec->page_size = 0;
    if (is(wrong, "type")) spec->dtype = FIG_BF16;
    if (is(wrong, "tokens")) spec->row_tokens = 2;
    if (is(wrong, "missing")) spec->qk_norm_epsilon = 1e-6f;
}

/* Of another form than the standard step's of that name. */
static void forge(fig_tensor_info *pages, const char *wrong) {
    if (is(wrong, "dense")) pages->dims[1] = 512;
    if (is(wrong, "dense")) pages->dims[0] = 8;
    if (is(wrong, "fixed")) pages->dims[0] = 7;
    if (is(wrong, "role")) pages->role = FIG_ROLE_STATE;
    if (is(wrong, "layout")) pages->layout = FIG_HND;
}

/* The tutorial's step with one thing wrong in it. */
int main(int count, char **words) {
    const char *wrong = count > 2 ? words[1] : "";
    fig_spec spec = {.size = sizeof spec};
    fig_program *p;
    fig_graphs *graphs;
    if (fig_spec_preset(&spec, "tutorial") != FIG_OK) return 1;
    ask(&spec, wrong);
    if (fig_program_create(&p, &spec) != FIG_OK) return 1;
    fig_rope_spec rope = {.theta = is(wrong, "rope") ? 9000 : 10000};
    fig_tensor table = fig_program_tensor(
        p, FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE,
                       .dtype = FIG_I32, .rank = 2, .dims = {8, 32}));
    int64_t width = is(wrong, "width") ? 1 << 20 : 64;
    fig_tensor gate_up = tensor(p, "gate_up.0", 2, 2 * width, 0, 0);
    fig_tensor act = tensor(p, "act.0", 2, width, 0, 0);
    fig_tensor q = tensor(p, is(wrong, "name") ? "query.0" : "q.0", 3, 16, 64, 0);
    fig_tensor k = tensor(p, "k.0", 3, 4, 64, 0), v = tensor(p, "v.0", 3, 4, 64, 0);
    fig_tensor out = tensor(p, "out.0", 3, 16, 64, 0);
    fig_tensor none = {0};
    fig_dtype stored = is(wrong, "scale") ? FIG_E4M3 : FIG_F16;
    fig_tensor_info pages = {.size = sizeof pages, .name = "k_cache.0", .role = FIG_ROLE_BOUND,
                             .dtype = stored, .rank = 4, .dims = {FIG_DIM_PAGES, 16, 4, 64}};
    fig_cache cache = {.page_table = is(wrong, "dense") ? (fig_tensor){0} : table};
    forge(&pages, wrong);
    cache.k = fig_program_tensor(p, &pages);
    pages.name = "v_cache.0";
    cache.v = fig_program_tensor(p, &pages);
    fig_tensor q_norm = none, k_norm = none;
    if (is(wrong, "norm")) {
        q_norm = tensor(p, "q_norm.0", 1, 64, 0, 0);
        k_norm = tensor(p, "k_norm.0", 1, 64, 0, 0);
    }
    if (is(wrong, "scale")) {
        cache.v_scale = tensor(p, "k_scale.0", 1, 1, 0, 0);
        cache.k_scale = tensor(p, "v_scale.0", 1, 1, 0, 0);
    }
    fig_cache swapped = {.k = cache.v, .v = cache.k, .page_table = table};
    fig_program_layer(p, 0);
    fig_program_segment(p, "act.0");
    /* Whatever stands in place of the activation, there are as many nodes as there should be. */
    if (is(wrong, "act"))
        fig_append_kv(p, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = cache));
    else if (is(wrong, "call"))
        fig_call(p, FIG_OPTIONS(fig_call_op, .call = "gemm", .reads = &gate_up, .read_count = 1,
                                .writes = &act, .write_count = 1));
    else
        fig_silu_and_mul(p, FIG_OPTIONS(fig_gated_op, .in = gate_up, .out = act));
    fig_program_segment(p, "attn.0");
    /* Nothing wrong is one node, as the step has it; what is wrong is in three, as it had them. */
    if (is(wrong, "none")) {
        fig_decode_attention(p, FIG_OPTIONS(fig_decode_attention_op, .q = q, .k = k, .v = v,
                                            .out = out, .cache = cache, .rope = &rope,
                                            .sm_scale = 0.125f));
    } else {
        fig_rope(p, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .rope = &rope, .q_norm = q_norm,
                                .k_norm = k_norm, .norm_epsilon = is(wrong, "norm") ? 0.5f : 0));
        fig_append_kv(p, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v,
                                     .cache = is(wrong, "append") ? swapped : cache));
        fig_attention(p, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache,
                                     .window = is(wrong, "window") ? 41 : 0,
                                     .sm_scale = is(wrong, "attention") ? 0.126f
                                                 : is(wrong, "nan")     ? 3e38f
                                                                        : 0.125f));
    }
    if (is(wrong, "extra")) tensor(p, "zzz.0", 2, 64, 0, 0);
    if (is(wrong, "more"))
        fig_silu_and_mul(p, FIG_OPTIONS(fig_gated_op, .in = gate_up, .out = act));
    if (fig_program_finish(p) != FIG_OK || fig_graphs_lower(&graphs, p, NULL) != FIG_OK ||
        fig_graphs_save(graphs, words[count - 1]) != FIG_OK) {
        fprintf(stderr, "%s: %s\n", wrong, fig_message());
        return 1;
    }
    fig_graphs_destroy(graphs);
    fig_program_destroy(p);
    return 0;
}
END
words='(recording programs with one thing wrong)'
${CC:-gcc} -std=c11 -Iinclude "$scratch/record.c" "$library" -lzstd -ljansson -lhwloc -lm \
    -lpthread -o "$scratch/record" > "$scratch/out" 2> "$scratch/err"
verdict $? 'a program is to build with figraph.h alone'
record() {
    words="(recording with a wrong $1)"
    code=0
    "$scratch/record" "$1" "$scratch/$1.fig" > "$scratch/out" 2> "$scratch/err" || code=$?
    ends 0
}
found() { # WRONG TENSOR
    record "$1"
    run replay "$scratch/$1.fig" --steps 3 --check
    ends 1
    says 'step 1' "$2" 'is due' 'tolerance'
    run replay "$scratch/$1.fig" --steps 3 --check --json
    ends 1
    json 'j["passed"] is False'
    run replay "$scratch/$1.fig" --steps 3
    ends 0
}
record none
cmp -s "$fig" "$scratch/none.fig"
verdict $? 'the standard step by hand is to be the same file as the preset'
found act 'act.0'
found rope 'q.0'
found append 'k_cache.0'
found attention 'out.0'
found nan 'nan where'
found gelu 'act.0'
found window 'out.0'
found cap 'out.0'
found partial 'q.0'
found norm 'q.0'
found scale 'k_cache.0'
record name
run replay "$scratch/name.fig" --steps 1
refused 'query.0'
record extra
run replay "$scratch/extra.fig" --steps 1
refused 'tensor zzz.0 is not one of a standard step'
record missing
run replay "$scratch/missing.fig" --steps 1
refused 'tensor k_norm.0 of the standard step is missing'
for wrong in width dense fixed role layout type tokens; do
    record $wrong
    run replay "$scratch/$wrong.fig" --steps 1 --check --rows 8 --kv 100 --device host
    refused "differs from the standard step's in its"
    run serve "$scratch/$wrong.fig" --requests 1 --device host --fast
    refused "differs from the standard step's in its"
done
record call
run replay "$scratch/call.fig" --steps 1
refused 'gemm'
record more
run replay "$scratch/more.fig" --steps 1
refused '5 nodes' '2'

# ---- Names that a terminal would obey, and targets that are not ours -----------------------------
odd=$(printf '%s/a\033[2J\233b.fig' "$scratch")
cp "$fig" "$odd"
for command in verify memory "replay --steps 1 --device host" \
    "serve --requests 1 --fast --device host"; do
    # shellcheck disable=SC2086
    run $command "$odd"
    ends 0
    words="$command: a name's controls on stdout"
    LC_ALL=C grep -q "$(printf '[\033\233]')" "$scratch/out" && shown=1 || shown=0
    verdict "$shown" 'a terminal is not to be told what a file is called to do'
    grep -qF 'a?[2J?b.fig' "$scratch/out"
    verdict $? 'the rest of the name is to be there'
done
run verify "$odd.none"
words="verify: a name's controls on stderr"
LC_ALL=C grep -q "$(printf '[\033\233]')" "$scratch/err" && shown=1 || shown=0
verdict "$shown" 'a terminal is not to be told what a file is called to do'
mkfifo "$scratch/pipe"
run capture --preset tutorial -o "$scratch/pipe"
refused 'pipe: not a regular file'
test -p "$scratch/pipe"
verdict $? 'a pipe is to stay one'
run plan --config "$scratch/pipe" --kv 5
refused 'pipe: not a regular file'
run replay "$fig" --steps +4
refused '+4'
run serve "$fig" --rate 0x10
refused '0x10'

# ---- Damaged files -------------------------------------------------------------------------------
bytes=$(wc -c < "$fig")
for count in 0 1 7 16 63 64 100 $((bytes / 2)) $((bytes - 1)); do
    head -c "$count" "$fig" > "$scratch/cut.fig"
    run verify "$scratch/cut.fig"
    ends 1
    says "$scratch/cut.fig"
done
run verify "$scratch/cut.fig" --json
ends 1
json 'j["sound"] is False' 'j["status"] == "FIG_FORMAT"' 'len(j["message"]) > 0'
run inspect "$scratch/cut.fig"
refused "$scratch/cut.fig"
run replay "$scratch/cut.fig" --steps 1
refused "$scratch/cut.fig"
# A bit of a frame may be without meaning to zstd; then nothing that the file says has changed.
words='(bits of a file flipped, one at a time, and verified)'
code=0
python3 - "$figraph" "$fig" "$scratch/flip.fig" "$id" \
    > "$scratch/out" 2> "$scratch/err" << 'END' || code=$?
import subprocess, sys
figraph, source, path = sys.argv[1:4]
sound = open(source, "rb").read()
content_id, step, meaningless, tried = sys.argv[4].encode(), max(1, len(sound) // 400), 0, 0
for at in list(range(0, min(128, len(sound)))) + list(range(128, len(sound), step)):
    tried += 1
    damaged = bytearray(sound)
    damaged[at] ^= 1 << at % 8
    open(path, "wb").write(damaged)
    done = subprocess.run([figraph, "verify", path], capture_output=True)
    if done.returncode == 0 and content_id in done.stdout and at > 431:
        meaningless += 1
    elif done.returncode != 1 or done.stdout or done.stderr.count(b"\n") != 1:
        print("byte", at, "exit code", done.returncode, done.stdout, done.stderr)
        sys.exit(1)
assert meaningless * 20 < tried, (meaningless, tried)
END
ends 0
cat "$fig" "$fig" > "$scratch/twice.fig"
run verify "$scratch/twice.fig"
ends 1

# ---- Streams -------------------------------------------------------------------------------------
if [ -w /dev/full ]; then
    for command in presets --help "inspect $fig" "verify $fig" "memory $fig" \
        "plan --preset tutorial --kv 5" "replay $fig --steps 1" \
        "capture --preset tutorial -o $scratch/full.fig"; do
        words="$command > /dev/full"
        code=0
        : > "$scratch/out"
        # shellcheck disable=SC2086 # words
        "$figraph" $command > /dev/full 2> "$scratch/err" || code=$?
        ends 2
        says 'stdout' 'No space left'
    done
    run capture --preset tutorial -o /dev/full/x.fig
    refused '/dev/full/x.fig'
else
    echo 'skipped: there is no /dev/full to be a full disk'
fi
words='presets >&-'
code=0
"$figraph" presets >&- 2> "$scratch/err" || code=$?
ends 2
says 'stdout'
words='capture >&- 2>&- <&-'
code=0
cp "$fig" "$scratch/closed.fig"
"$figraph" capture --preset tutorial -o "$scratch/closed.fig" <&- >&- 2>&- || code=$?
ends 2
cmp -s "$fig" "$scratch/closed.fig"
verdict $? 'what is printed is never to end in the file'

words='(progress on a terminal)'
code=0
python3 - "$figraph" "$fig" > "$scratch/out" 2> "$scratch/err" << 'END' || code=$?
import os, pty, subprocess, sys
figraph, fig = sys.argv[1:]
def terminal(steps):
    master, slave = pty.openpty()
    work = subprocess.Popen([figraph, "replay", fig, "--steps", str(steps), "--check"],
                            stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    seen = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    assert work.wait() == 0
    return seen
assert terminal(2) == b"", "work under a second is to show no progress"
seen = terminal(300)
assert b"step" in seen and b"of 300" in seen, seen[:200]
assert seen.endswith(b"\r\x1b[K"), "the line is to be wiped"
END
ends 0

# Told nothing, the program is as wide as the terminal; COLUMNS is heard where there is none.
words='presets, help and inspect (on terminals of 60, 80, 130 and 300 columns)'
code=0
python3 - "$figraph" "$fig" > "$scratch/out" 2> "$scratch/err" << 'END' || code=$?
import fcntl, os, pty, struct, subprocess, sys, termios
figraph, fig = sys.argv[1:]
def widest(columns, *words):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    work = subprocess.Popen([figraph, *words], stdout=slave)
    os.close(slave)
    seen = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    assert work.wait() == 0
    return max(len(line) for line in seen.decode().splitlines())
for columns, least, most in ((60, 50, 80), (80, 70, 80), (130, 110, 130), (300, 180, 200)):
    assert least <= widest(columns, "serve", "--help") <= most, columns
    assert widest(columns, "presets") <= max(most, 80), columns
    assert widest(columns, "inspect", fig, "--bucket", "1") <= max(most, 80), columns
END
ends 0

# ---- A capture killed at any moment leaves the old file or the new one ---------------------------
words='capture, killed'
code=0
python3 - "$figraph" "$scratch" > "$scratch/out" 2> "$scratch/err" << 'END' || code=$?
import os, signal, subprocess, sys, time
figraph, scratch = sys.argv[1:]
path = os.path.join(scratch, "kill.fig")
arguments = [figraph, "capture", "--preset", "llama-3.1-8b-layer", "-o", path]
subprocess.run([figraph, "capture", "--preset", "tutorial", "-o", path], check=True,
               stdout=subprocess.DEVNULL)
old = open(path, "rb").read()
began = time.monotonic()
subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
took = time.monotonic() - began
new = open(path, "rb").read()
killed = 0
for i in range(24):
    with open(path, "wb") as file:
        file.write(old)
    work = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    time.sleep(took * (i + 1) / 24)
    work.send_signal(signal.SIGKILL)
    killed += work.wait() == -signal.SIGKILL
    assert open(path, "rb").read() in (old, new), i
assert killed >= 3, killed
END
ends 0

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
