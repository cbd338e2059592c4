#!/bin/sh
# test_bench.sh: tests the figures of figraph bench, its output formats, and the arguments that it
# refuses.
#
# It runs on the host, where times mean little. So it checks that figures are present and
# consistent, and that text, JSON and CSV agree. Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

python() { # PROGRAM: runs it with the JSON output as j and the CSV as t, as far as they exist
    python3 -c "import csv, json, os
j = json.load(open('$scratch/out')) if os.path.getsize('$scratch/out') else None
t = list(csv.DictReader(open('$scratch/t.csv'))) if os.path.exists('$scratch/t.csv') else None
$1" > "$scratch/python" 2>&1
    verdict $? "$1: $(tail -n 1 "$scratch/python")"
}

# ---- Help ----------------------------------------------------------------------------------------
run bench
refused 'bench: a part is missing' 'figraph bench --help'
run bench --help
ends 0
quiet
for part in attention step ops replay allreduce; do
    prints "  $part "
    run bench "$part" --help
    ends 0
    quiet
    prints "usage: figraph bench $part"
    prints "  figraph bench $part"
    fits 80
    run bench --help
done
run bench replay --help
COLUMNS=200 run bench replay --help
prints 'bare launch is'
prints 'fetched is over'
run --help
prints '  bench '

# ---- Figures -------------------------------------------------------------------------------------
run bench replay --preset tutorial --rows 3,1 --kv 20 --steps 40 --device host --json \
    --csv "$scratch/t.csv"
ends 0
# bench prints progress during the run, even if its output is a pipe.
printf 'figraph: bench replay: row count %s of 2\n' 1 2 | cmp -s - "$scratch/err"
verdict $? 'stderr must have a line for each row count'
python 'assert j["device"] == "host" and j["preset"] == "tutorial" and j["driver"] == "none"'
python 'assert j["layers"] == 1 and j["kv"] == "20" and j["steps"] == 40'
python 'assert [l["rows"] for l in j["lines"]] == [3, 1]'
python 'assert [l["tokens"] for l in j["lines"]] == [60, 20]'
python 'assert all(l["launches"] == 5 for l in j["lines"])'
python 'for l in j["lines"]: assert l["step_ns"] >= l["launch_ns"] > 0'
# Figures that exist only on a GPU are not printed on the host.
python 'for l in j["lines"]: assert not any("gap" in k or "fetch" in k or "wait" in k for k in l)'
python 'for r in t: assert r["empty_gap_ns"] == "" and r["result_over_empty_ns"] == ""'
python 'for r in t: assert r["gap_ns"] == "" and r["fetched_ns"] == "" and r["step_ns"] != ""'
python 'for l in j["lines"]:
    assert abs(l["step_ns"] - l["bare_launch_ns"] - l["above_bare_ns"]) < 1'
python 'assert len(t) == 2 and t[0]["device"] == "host" and t[0]["name"] == "host"'
python 'for l, r in zip(j["lines"], t):
    assert all(abs(float(r[k]) - v) < 0.06 for k, v in l.items() if k in r)'
python 'for r in t:
    assert [r[k] for k in ("preset", "layers", "kv", "steps")] == ["tutorial", "1", "20", "40"]'
python 'assert all(v is not None for r in t for v in r.values()) and None not in t[0]'

run bench replay --preset tutorial --steps 20 --device host
ends 0
prints 'tutorial on host'
grep -q ' SMs' "$scratch/out"
verdict $((1 - $?)) 'a host has no SMs to be told of'
prints 'host, a step, by a loop that runs ahead of the device'
grep -q 'step  bare launch  above bare$' "$scratch/out"
verdict $? 'a step must be beside a bare launch and the difference'
grep -q 'a replay' "$scratch/out"
verdict $((1 - $?)) 'what only a GPU has must not be told of the host'
awk '$1 == 64 { there = 1 } END { exit there }' "$scratch/out"
verdict $? 'a default row count must be left out where it is too large'
fits 80

# The CSV has the given lengths in one field.
run bench replay --preset tutorial --rows 2 --kv 9,30 --steps 5 --device host --csv "$scratch/t.csv"
ends 0
rm -f "$scratch/out" && : > "$scratch/out"
python 'assert t[0]["kv"] == "9,30" and t[0]["tokens"] == "39"'

# Without --steps, the host makes so few steps that a user does not wait long.
run bench replay --preset tutorial --rows 1 --device host --json
ends 0
python 'assert j["steps"] == 100'

# Tests a file, several layers, several queries per row, and a dense cache.
"$figraph" capture --preset tutorial --device host -o "$scratch/t.fig" > /dev/null
run bench replay "$scratch/t.fig" --rows 2 --steps 5 --device host --json
ends 0
python 'assert j["preset"].endswith("t.fig") and j["lines"][0]["rows"] == 2'
run bench "$scratch/t.fig" --rows 2 --steps 5 --device host --json
ends 0
python 'assert j["preset"].endswith("t.fig") and j["lines"][0]["rows"] == 2'
run bench replay --preset tutorial --layers 3 --row-tokens 4 --page-size 0 --rows 2 --steps 5 \
    --device host --json
ends 0
python 'assert j["layers"] == 3 and j["lines"][0]["launches"] == 11'
# No row grows beyond kv_limit.
run bench replay --preset tutorial --rows 2 --kv 511 --steps 5 --device host
ends 0

# On the host, sums over ranks have only one route, which is listed without a time.
rm -f "$scratch/t.csv"
run bench allreduce --device host --ranks 3 --width 64 --rows 1,4 --json --csv "$scratch/t.csv"
ends 0
quiet
python 'assert [(r["ranks"], r["rows"], r["bytes"]) for r in j] == [(3, 1, 128), (3, 4, 512)]'
python 'assert all(r["family"] == "one_shot" and r["device"] == "host" for r in j)'
python 'assert len(t) == 2 and all(t[0][k] == "" for k in ("one_shot_us", "nccl_us", "us"))'
run bench allreduce --device host
ends 0
prints 'one_shot'
prints 'Times are not measured on the host'

# ---- Refusals ------------------------------------------------------------------------------------
run bench allreduce --device host --width 12
refused '--width' '12'
run bench allreduce --device host --ranks 9
refused '--ranks' '9'
for rows in 0 4,0 1025; do
    run bench allreduce --device host --rows "$rows"
    refused "--rows: ${rows#*,} is outside 1..1024"
done
run bench allreduce --device host --rows x
refused '--rows' 'x'
run bench reply
refused 'reply' 'figraph bench'
run bench replay a.fig b.fig
refused 'b.fig' 'a.fig'
run bench replay --no-such-option
refused 'bench' '--no-such-option' 'figraph bench replay --help'
run bench replay
refused '--preset' '--config'
run bench replay "$scratch/t.fig" --preset tutorial
refused '--preset' "$scratch/t.fig"
run bench replay "$scratch/t.fig" --layers 2
refused '--layers' "$scratch/t.fig"
run bench replay "$scratch/t.fig" --query-limit 64
refused '--query-limit' "$scratch/t.fig"
run bench replay "$scratch/none.fig"
refused "$scratch/none.fig"
run bench replay --preset tutorial --rows 9
refused '--rows' '9' '1..8'
run bench replay --preset tutorial --rows 0
refused '--rows' '0' '1..8'
run bench replay --preset tutorial --rows 65x1
refused '--rows' '65' '64'
run bench replay --preset tutorial --rows x
refused '--rows' 'x'
run bench replay --preset tutorial --rows 2 --kv 1,2,3
refused '--kv' '3' '2'
run bench replay --preset tutorial --kv 512
refused '--kv' '512'
run bench replay --preset tutorial --rows 1 --kv 0 --steps 1 --device host
refused 'rows is 1' 'tokens'
run bench replay --preset tutorial --steps 0
refused '--steps' '0'
run bench replay --preset tutorial --device gpu
refused '--device' 'gpu'
run bench replay --preset tutorial --rows 1 --steps 1 --device host --csv "$scratch/no/t.csv"
refused '--csv' "$scratch/no/t.csv"
# It is refused before any part of the work begins.
run bench replay --preset tutorial --rows 1,2 --steps 1 --device host --csv "$scratch"
refused '--csv' "$scratch" 'Is a directory'
run bench replay --preset tutorial --rows 1,2 --steps 1 --device host --csv "$scratch/no/t.csv"
refused '--csv' "$scratch/no/t.csv" 'No such file'
if [ -w /dev/full ]; then
    run bench replay --preset tutorial --rows 1 --steps 1 --device host --csv /dev/full
    refused '--csv' '/dev/full' 'No space left'
fi

# ---- Attention on the host, which is checked but not timed ---------------------------------------
run bench attention --device host --kv 2x40 --kv 33,2x9 --heads 4/2,5/1 --csv "$scratch/t.csv" \
    --json
ends 0
quiet
python 'assert [(r["heads"], r["cell"]) for r in t] == [
    ("4/2", "2x40"), ("4/2", "33+2x9"), ("5/1", "2x40"), ("5/1", "33+2x9")]'
python 'assert [int(r["rows"]) for r in t] == [2, 3, 2, 3] and int(t[1]["tokens"]) == 51'
python 'assert [int(r["bytes"]) for r in t[:2]] == [80 * 2 * 2 * 128 * 2, 51 * 2 * 2 * 128 * 2]'
python 'assert all(r["device"] == "host" and 0 < float(r["worst_ulp"]) <= 2 for r in t)'
python 'assert all(r["chain_us"] == "" and r["alone_share"] == "" for r in t)'
python 'assert all(x["chain_us"] is None and x["cell"] == r["cell"] for x, r in zip(j, t))'
head -n 1 "$scratch/t.csv" |
    grep -q '^device,chip,set,cell,heads,head_dim,page,layout,dtype,kv_dtype,'
verdict $? 'the CSV must begin with what a cell is'
head -n 1 "$scratch/t.csv" |
    grep -q ',limit_us,chain_us,chain_share,alone_us,alone_share,of_twin,spread,ceiling_gbps,'
verdict $? 'the CSV must then have the times'
run bench attention --device host --kv 1x70 --dtype f16 --kv-dtype e5m2 --layout hnd --page 5 \
    --head-dim 64 --window 16 --csv "$scratch/t.csv"
ends 0
prints 'hnd'
rm -f "$scratch/out" && : > "$scratch/out"
python 'assert int(t[0]["bytes"]) == 16 * 2 * 2 * 64 and t[0]["kv_dtype"] == "e5m2"'
python 'assert t[0]["kv_scales"] == "tensor"'
# Tests a scale for each head, with different values.
run bench attention --device host --kv 2x40 --heads 8/8 --kv-dtype e4m3 --kv-scales head \
    --csv "$scratch/t.csv"
ends 0
rm -f "$scratch/out" && : > "$scratch/out"
python 'assert t[0]["kv_scales"] == "head" and 0 < float(t[0]["worst_ulp"]) <= 2'
run bench attention --device host --dtype f32 --uniform --ragged --random 2 --csv "$scratch/t.csv"
ends 0
rm -f "$scratch/out" && : > "$scratch/out"
python 'assert [r["set"] for r in t] == ["uniform"] * 2 + ["ragged"] + ["random"] * 4'
python 'for even, r in ((t[3], t[4]), (t[5], t[6])):
    assert r["cell"].startswith("random") and r["of_twin"] == ""
    assert r["rows"] == even["rows"]
    assert 0 <= int(r["tokens"]) - int(even["tokens"]) < int(r["rows"])'
run bench attention --device host --fp8
ends 0
prints 'e4m3'
# Before rows of drafts are the same rows with one query token each. Ranges are drawn from a seed.
for seed in 0 1 0; do
    run bench attention --device host --kv 12x70:2-16 --kv 33:1,3x40:16+0,60 --heads 4/1,2/2 \
        --seed $seed --csv "$scratch/t.csv" --json
    ends 0
    quiet
    python 'assert [r["cell"] for r in t] == 2 * [
    "12x70", "12x70:2-16", "33+3x40+0+60", "33:1+3x40:16+0+60"]'
    python 'assert [int(r["queries"]) for r in t][::2] == [12, 6, 12, 6]'
    python 'assert all(24 < int(r["queries"]) < 192 for r in t[1::4])'
    python 'assert [int(r["queries"]) for r in t][3::4] == [50, 50]'
    python 'assert all(0 < float(r["worst_ulp"]) <= 2 for r in t)'
    python 'for r in t: assert r["of_plain"] == r["ones_us"] == r["most_us"] == ""'
    python 'print([r["queries"] for r in t])'
    cat "$scratch/python" >> "$scratch/seeds"
done
[ "$(sort -u "$scratch/seeds" | wc -l)" -eq 2 ] && [ "$(uniq "$scratch/seeds" | wc -l)" -eq 3 ]
verdict $? 'equal seeds must draw the same query tokens, and others different ones'
# Windows, scales and pages of odd sizes are right over drafts too.
run bench attention --device host --kv 5x90:1-9 --heads 4/2 --window 5 --page 7 --kv-dtype e4m3
ends 0
# In a pipe, a table keeps its width; if COLUMNS gives the width of the screen, columns that are
# equal in all rows move to a line above it.
run bench attention --device host --kv 2x40 --kv 33,2x9
ends 0
prints 'cell               heads  head_dim page layout kv_dtype family  limit_us  chain_us'
prints 'Times are not measured on the host'
COLUMNS=80 run bench attention --device host --kv 2x40 --kv 33,2x9
ends 0
fits 80
prints 'in all rows: heads 4/2, head_dim 128, page 16, layout nhd, kv_dtype bf16'
prints '33+2x9'
prints 'Times are not measured on the host'

# ---- Step and operations -------------------------------------------------------------------------
run bench step --device host --kv 1x40 --kv 2x33 --layers 3 --ffn-width 32 --json \
    --csv "$scratch/t.csv"
ends 0
quiet
python 'assert [(r["cell"], r["layers"], r["ffn_width"], r["layer_us"]) for r in t] == [
    ("1x40", "3", "32", ""), ("2x33", "3", "32", "")]'
python 'assert all(r["parallel_us"] == "" and 0 < float(r["worst_ulp"]) <= 2 for r in t)'
python 'assert [r["nodes"] for r in t] == ["one", "one"]'
run bench step --apart --device host --kv 1x40 --layers 2 --ffn-width 32 --json \
    --csv "$scratch/t.csv"
ends 0
python 'assert [(r["cell"], r["nodes"]) for r in t] == [("1x40", "apart")]'
python 'assert 0 < float(t[0]["worst_ulp"]) <= 2'
run bench ops --device host --json --csv "$scratch/t.csv"
ends 0
quiet
python 'assert len(t) == 14 and len({r["op"] for r in t}) == 7'
python 'assert all(int(r["bytes"]) > 0 and r["us"] == "" for r in t)'
run bench ops --device host --op silu
ends 0
prints 'silu'
prints 'Times are not measured on the host'
for part in step ops; do
    COLUMNS=80 run bench $part --device host
    ends 0
    fits 80
    prints 'Times are not measured on the host'
done

# ---- CSV files of all parts
FIGRAPH=$figraph
export FIGRAPH
tools/bench/run.sh --only step "$scratch/results" --device host > "$scratch/out" 2>&1
ends_with=$?
[ "$ends_with" -eq 0 ] && [ "$(ls "$scratch/results")" = host_step.csv ]
verdict $? 'only the set that is asked for must be written'
head -n 1 "$scratch/results/host_step.csv" | grep -q ',driver,date,commit$' &&
    sed 1d "$scratch/results/host_step.csv" | grep -q ",$(date -u +%Y)-[0-9-]*,[0-9a-z]*\$"
verdict $? 'a file must name driver, date and commit'
cp "$scratch/results/host_step.csv" "$scratch/again.csv"
COMMIT=another tools/bench/stamp.sh "$scratch/again.csv"
cmp -s "$scratch/results/host_step.csv" "$scratch/again.csv"
verdict $? 'a file that names them must stay as it is'
tools/bench/run.sh --only replay "$scratch/replays" --device host --quick > "$scratch/out" 2>&1
ends_with=$?
[ "$ends_with" -eq 0 ] && [ "$(wc -l < "$scratch/replays/host_replay.csv")" -eq 2 ]
verdict $? 'replays of the shapes that suit the device must be written'
[ "$(head -n 1 "$scratch/replays/host_replay.csv" | tr , '\n' | grep -c '^driver$')" -eq 1 ]
verdict $? 'a file that has a driver must not get a second one'
tools/bench/run.sh --only chunks "$scratch/chunks" --device host --quick > "$scratch/out" 2>&1
[ $? -eq 0 ] && grep -q "^host,host,.*,\"1:1+60:20\"," "$scratch/chunks/host_chunks.csv"
verdict $? 'steps with chunks of prompts must be written'
tools/bench/run.sh --only drafts "$scratch/drafts" --device host > "$scratch/out" 2>&1
[ $? -eq 0 ] && grep -q '^host,host,kv,3x70:2-16,' "$scratch/drafts/host_drafts.csv"
verdict $? 'rows of drafts must be written'
tools/bench/run.sh --only latent "$scratch/latent" --device host > "$scratch/out" 2>&1
[ $? -eq 0 ] && grep -q '^host,host,kv,2x40,8/1,576,' "$scratch/latent/host_latent_alone.csv"
verdict $? 'cells over latent caches must be written'
tools/bench/run.sh --only layers "$scratch/layers" --device host > "$scratch/out" 2>&1
[ $? -eq 0 ] && grep -q '^host,host,small,2,3x40,2,[0-9.]*,' "$scratch/layers/host_layers_2.csv"
verdict $? 'whole layers on two ranks must be written'
tools/bench/run.sh --only stop "$scratch/results" > "$scratch/out" 2>&1
[ $? -eq 2 ] && grep -q 'none of uniform' "$scratch/out"
verdict $? 'an unknown set must be refused'

FIG_DEVICE=host tools/bench/mixed.sh --times > "$scratch/out" 2>&1
[ $? -eq 0 ] && grep -q '^time  *60:20 beside 3x40:1: [0-9.]* us, [0-9.]* of ' "$scratch/out" &&
    [ "$(grep -c '^time  *serve --chunk [0-9]*, between tokens: p50 .* of the first$' \
        "$scratch/out")" -eq 2 ]
verdict $? 'a mixed step must be compared with its parts, and chunks with cached prompts'

# ---- Refusals of bench step, ops and all-reduce --------------------------------------------------
run bench attention --kv 0x8 --device host
refused '--kv' '0x8'
run bench attention --kv 8y8 --device host
refused '--kv' '8y8' 'COUNTxLENGTH'
run bench attention --kv 1x8,,2x9 --device host
refused '--kv'
run bench attention --kv 3x0 --device host
refused '3x0' 'no row with tokens'
for part in attention step; do # before any of it is filled
    run bench $part --kv 1024x1000000 --device host
    refused 'bench: the caches of a cell take' 'limit'
done
for heads in 8 8/3 /8 8/0 x 4/2,; do
    run bench attention --heads "$heads" --device host
    refused '--heads' 'with Q a multiple of KV, such as 32/8'
done
run bench attention --preset deepseek-v3 --heads 16/2 --kv 2x40 --device host
refused '--heads' '16/2' '1 kv head'
run bench attention --kv 2x40:17 --device host
refused '--kv' '2x40:17' 'a row of 40 tokens' '17' 'limits 1 to 16'
run bench attention --kv 2x40:9-17 --device host
refused '--kv' '2x40:9-17' '9 to 17' 'limits 1 to 16'
run bench attention --kv 2x40:9-8 --device host
refused '--kv' '2x40:9-8' '9 to 8'
run bench attention --kv 2x40:0-8 --device host
refused '--kv' '2x40:0-8' '0 to 8'
run bench attention --kv 2x7:2-8 --device host
refused '--kv' '2x7:2-8' 'a row of 7 tokens' 'limits 1 to 7'
for cell in 2x40:2- 2x40:-8 2x40: 2x40:2-3-4 :3 2x40:x; do
    run bench attention --kv $cell --device host
    refused '--kv' 'COUNTxLENGTH'
done
run bench step --kv 2x40:2 --device host
refused '--kv' '2x40:2'
run bench attention --dtype bf17 --device host
refused '--dtype' 'bf17'
run bench attention --layout dhn --device host
refused '--layout' 'dhn'
run bench attention --kv 1x8 --kv-dtype e4m3 --kv-scales page --device host
refused '--kv-scales' 'page' 'none of tensor, head'
for scales in head tensor; do # neither value may be ignored silently
    run bench attention --kv 1x8 --kv-scales $scales --device host
    refused '--kv-scales' "$scales" 'bf16' 'e4m3'
done
# The CSV writes a cell of any number of rows in the form that figraph plan reads.
rows=$(seq -s , 3 40)
run bench attention --device host --kv "$rows" --json
ends 0
json 'j[0]["rows"] == 38' 'j[0]["cell"] == "+".join(str(n) for n in range(3, 41))' 'len(j) == 1'
run bench attention --page 0 --device host
refused '--page' '0'
run bench attention --random 257 --device host
refused '--random' '257' '0..256'
run bench attention --kv 1x8 --head-dim 65 --device host
refused 'head_dim' '65'
run bench attention --kv 1x8 --device host --csv "$scratch/no/t.csv"
refused '--csv' "$scratch/no/t.csv"
run bench step --layers 0 --device host
refused '--layers' '0'
run bench ops --op tanh --device host
refused '--op' 'tanh' 'rope_append'
run bench ops extra
refused 'extra'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
