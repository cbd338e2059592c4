#!/bin/sh
# test_capture.sh: tests figraph capture, verify and inspect.
#
# capture must give the same file each time, whether from a preset or from a config.json. A refused
# capture must leave no file, and a killed one the old or the new file. verify must recognise a
# damaged file. Files of earlier versions must still be readable. Invariant: the last line is "N
# passed, N failed". shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

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
verdict $? 'two captures must be the same file'
for form in "-o$scratch/form.fig" "-o=$scratch/form.fig"; do
    rm -f "$scratch/form.fig"
    run capture --preset=tutorial "$form"
    ends 0
    cmp -s "$fig" "$scratch/form.fig"
    verdict $? 'it must write the file that -o names'
done
run capture --preset tutorial -x3
refused 'unknown option -x'
# Without --traits, capture and plan must choose the same machine, and print which one and why.
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
# The model's RoPE depends on the longest sequence that is served, 32768 by default.
turns_by() { # DIVISOR-OF-THE-LAST-FREQUENCY CAPTURE-OPTION...
    due=$1
    shift
    run capture --config tests/configs/phi-4-mini.json --layers 1 --batch-limit 2 "$@" \
        -o "$scratch/phi.fig"
    ends 0
    run inspect "$scratch/phi.fig" --json
    json 'len(j["spec"]["rope_table"]["frequencies"]) == 48' \
        "abs(j['spec']['rope_table']['frequencies'][47] * 10000 ** (94 / 96) * $due - 1) < 1e-6" \
        'j["nodes"][1]["attributes"]["table"] == j["spec"]["rope_table"]'
}
turns_by 1 --kv-limit 4096
turns_by 47.77 --kv-limit 4097
turns_by 47.77
run inspect "$scratch/phi.fig"
prints 'NeoX, 96 of head_dim, frequencies 1 to 2.5361685e-06, times' '1.1902381'
run capture --config tests/configs/gpt-oss-20b.json --layers 2 -o "$scratch/model.fig"
ends 0
run inspect "$scratch/model.fig"
prints 'logits      window 128, sinks'
run capture --config tests/configs/gemma-3-1b-it.json --layers 6 -o "$scratch/model.fig"
ends 0
run inspect "$scratch/model.fig"
prints 'rope        NeoX, theta 1e+06'
prints 'in windows  NeoX, theta 10000'
# --dtype sets the dtype if the config has none, and otherwise overrides it. --ignore makes capture
# accept an unknown field, but it may not name a field that capture reads.
arcee=tests/configs/saved/default-arcee.json
run capture --config "$arcee" -o "$scratch/x.fig"
refused 'dtype is missing' 'torch_dtype' '--dtype'
for config in "$arcee" tests/configs/llama-2-7b.json; do
    run capture --config "$config" --dtype f32 --layers 1 -o "$scratch/model.fig"
    ends 0
    run inspect "$scratch/model.fig" --json
    json 'j["spec"]["dtype"] == "f32"'
done
sed 's/"model_type"/"one_more": 1, "another": [2], "model_type"/' "$arcee" > "$scratch/more.json"
run capture --config "$scratch/more.json" --dtype f16 --ignore another -o "$scratch/x.fig"
refused 'one_more is 1'
run capture --config "$scratch/more.json" --dtype f16 --ignore one_more,another --layers 1 \
    -o "$scratch/model.fig"
ends 0
run capture --config "$scratch/more.json" --dtype f16 --ignore rope_theta -o "$scratch/x.fig"
refused 'rope_theta' 'ignored' 'arcee'
run capture --config "$arcee" --dtype f16 --ignore a,,b -o "$scratch/x.fig"
refused '--ignore' 'an empty name'
run capture --preset tutorial --ignore a -o "$scratch/x.fig"
refused '--ignore' 'only --config takes it'
run capture --preset tutorial --dtype f16 -o "$scratch/x.fig"
refused '--dtype' 'not --preset'
run capture --preset tutorial --kv-dtype fp8 -o "$scratch/x.fig"
refused '--kv-dtype' '"fp8"' 'e4m3'
run capture --preset tutorial --kv-dtype bf16 -o "$scratch/x.fig"
refused 'kv_dtype'
run capture --preset tutorial --kv-scales head -o "$scratch/x.fig"
refused '--kv-scales'
run capture --preset tutorial --kv-scales row -o "$scratch/x.fig"
refused '--kv-scales' '"row"' 'tensor, head'
run capture --preset tutorial --kv-layout dhn -o "$scratch/x.fig"
refused '--kv-layout' '"dhn"' 'nhd, hnd'
run capture --preset tutorial --row-tokens 17 -o "$scratch/x.fig"
refused 'row_tokens' '17' '16'
run capture --preset tutorial --row-tokens 16 -o "$scratch/rows.fig"
ends 0
run capture --help
prints 'query tokens per row, 1 to 16; to 4096 with --query-limit'
run capture --preset gemma-2-9b --layers 43 -o "$scratch/x.fig"
refused '--layers' '43' '42'
run capture --preset tutorial --device cuda -o "$scratch/cuda.fig"
refused 'cuda'
[ ! -e "$scratch/cuda.fig" ]
verdict $? 'a device that is not there must leave no file'
FIG_DEVICE=cuda run capture --preset tutorial -o "$scratch/cuda.fig"
refused 'cuda'
FIG_DEVICE=cdua run capture --preset tutorial -o "$scratch/cuda.fig"
refused 'FIG_DEVICE' '"cdua"'
FIG_DEVICE=cuda run capture --preset tutorial --device host -o "$scratch/again.fig"
ends 0

# ---- Contents of a file --------------------------------------------------------------------------
run capture --preset tutorial -o "$scratch/noted.fig" --note by=ci --note "what=a <b> & a \"c\""
ends 0
run inspect "$scratch/noted.fig"
prints 'by: ci' 'what: a <b> & a "c"'
run inspect "$scratch/noted.fig" --json
json 'j["notes"] == {"by": "ci", "what": "a <b> & a \"c\""}'
run inspect "$scratch/noted.fig" --format html
prints 'a &lt;b&gt; &amp; a'
run diff "$fig" "$scratch/noted.fig"
ends 1
prints 'by'
run capture --preset tutorial -o "$scratch/unnoted.fig" --note ci
refused 'capture: --note: ci: it must be KEY=VALUE'
run capture --preset tutorial -o "$scratch/unnoted.fig" --note 'a b=c'
refused 'its key is "a b"'
[ ! -e "$scratch/unnoted.fig" ]
verdict $? 'an invalid note must leave no file'
run capture --preset tutorial -o "$scratch/unnoted.fig" --note ci=1 --note ci=2
refused 'capture: --note: ci was given twice'
run capture --preset tutorial -o "$scratch/unnoted.fig" \
    --traits compute_capability=90,sm_count=1,sm_count=2,shared_bytes=1
refused 'capture: --traits: "sm_count" was given twice'
run inspect tests/golden/archived.fig --images
ends 0
prints 'fetch/general/8.0'
cp "$scratch/out" "$scratch/images"
for other in '--bucket 1' '--ranks 2' --all --json '--format html' '--kv 1'; do
    # shellcheck disable=SC2086 # an option and its value
    run inspect tests/golden/archived.fig --images $other
    refused 'inspect: --images and' 'give only one of them'
done
run inspect "$fig" --images
if [ "$code" -eq 0 ]; then
    run capture --preset tutorial --embed -o "$scratch/embedded.fig" --json
    ends 0
    json 'j["bytes"] > 1000000'
    run inspect "$scratch/embedded.fig"
    prints "this library's own; the file"
    prints 'holds them'
else
    refused "$fig: no images are recorded"
    run capture --preset tutorial --embed -o "$scratch/embedded.fig"
    refused 'embed: this library has no images'
fi
run replay "$fig" --steps 1 --device host --trust "$scratch/images"
refused 'trust: the file holds no images' '--embed'
echo 'not a hash' > "$scratch/list"
run replay "$fig" --steps 1 --device host --trust "$scratch/list"
refused 'replay: --trust' 'line 1 does not begin with a SHA-256'
run replay "$fig" --steps 1 --device host --trust "$scratch"
refused 'replay: --trust' 'Is a directory'
yes "$(head -n 1 "$scratch/images")" | head -n 513 > "$scratch/list"
run replay "$fig" --steps 1 --device host --trust "$scratch/list"
refused 'replay: --trust' 'more than 512 lines'
run replay "$fig" --steps 1 --device host --trust "$scratch/none"
refused "$scratch/none" 'No such file'

write_config
run capture --config "$scratch/config.json" --batch-limit 8 --kv-limit 512 \
    -o "$scratch/config.fig" --json
ends 0
cmp -s "$fig" "$scratch/config.fig"
verdict $? 'the tutorial from a config.json must be the same file as from its preset'
run capture --q-heads 16 --kv-heads 4 --head-dim 64 --ffn-width 64 --dtype f16 --batch-limit 8 \
    --kv-limit 512 -o "$scratch/by_hand.fig" --json
ends 0
cmp -s "$fig" "$scratch/by_hand.fig"
verdict $? 'the tutorial by hand must be the same file as from its preset'
run capture --q-heads 8 --layers 3 -o "$scratch/by_hand.fig" --json
ends 0
json 'j["node_count"] == 3' 'j["layers"] == 3'
run inspect "$scratch/by_hand.fig" --json
json 'j["spec"]["kv_heads"] == 8' 'j["spec"]["head_dim"] == 128' 'j["spec"]["dtype"] == "bf16"' \
    'j["spec"]["kv_limit"] == 32768' 'j["spec"]["rope"]["theta"] == 10000'
# A config.json contains the longest sequence; without --kv-limit, steps are planned for up to that
# length and up to 32768 tokens.
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
verdict $? 'without --all there must be fewer lines'
run inspect "$fig" --bucket 3
narrow=$(wc -l < "$scratch/out")
COLUMNS=200 run inspect "$fig" --bucket 3
fits 200
[ "$(wc -l < "$scratch/out")" -lt "$narrow" ]
verdict $? 'a wide terminal must be used'
run inspect --bucket 2 -- "$fig"
ends 0
prints 'attention'
run inspect "$fig" --bucket 10000
refused '10000'
run inspect "$fig" --bucket 0
refused '--bucket' '0'
run inspect "$fig" --form json
refused '--form' 'unknown option'

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
# Some bits of a zstd frame have no meaning; flipping one leaves the file's contents unchanged.
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
killed = i = 0
# goes on until 3 captures were killed, since on a quick machine some end too early
while i < 24 or killed < 3:
    with open(path, "wb") as file:
        file.write(old)
    work = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    time.sleep(took * (i % 24 + 1) / 24 if i < 24 else took / i)
    work.send_signal(signal.SIGKILL)
    killed += work.wait() == -signal.SIGKILL
    assert open(path, "rb").read() in (old, new), i
    i += 1
END
ends 0

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
