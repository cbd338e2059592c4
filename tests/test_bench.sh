#!/bin/sh
# test_bench.sh: what the parts of figraph bench promise: figures, forms, refusals.
#
# On the host, where figures mean little, so that what is checked of them is that they are there,
# agree between the forms, and fit together. Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/support/cli.sh"

python() { # PROGRAM: over the JSON and the CSV, if they are there
    python3 -c "import csv, json, os
j = json.load(open('$scratch/out')) if os.path.getsize('$scratch/out') else None
t = list(csv.DictReader(open('$scratch/t.csv'))) if os.path.exists('$scratch/t.csv') else None
$1" > "$scratch/python" 2>&1
    verdict $? "$1: $(tail -n 1 "$scratch/python")"
}

# ---- Help ----------------------------------------------------------------------------------------
run bench
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
    run bench
done
run bench replay --help
COLUMNS=200 run bench replay --help
prints "bare launch is the driver's call alone, of the same graph"
prints 'by a loop that runs ahead of the device'
prints 'fetched is over'
run --help
prints '  bench '

# ---- Figures -------------------------------------------------------------------------------------
run bench replay --preset tutorial --rows 3,1 --kv 20 --steps 40 --device host --json \
    --csv "$scratch/t.csv"
ends 0
quiet
python 'assert j["device"] == "host" and j["preset"] == "tutorial" and j["driver"] == "none"'
python 'assert j["layers"] == 1 and j["kv"] == "20" and j["steps"] == 40'
python 'assert [l["rows"] for l in j["lines"]] == [3, 1]'
python 'assert [l["tokens"] for l in j["lines"]] == [60, 20]'
python 'assert all(l["launches"] == 5 for l in j["lines"])'
python 'for l in j["lines"]: assert l["step_ns"] >= l["launch_ns"] > 0'
# What a GPU alone has is not told of the host.
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
quiet
prints 'tutorial on host'
grep -q ' SMs' "$scratch/out"
verdict $((1 - $?)) 'a host has no SMs to be told of'
prints 'host, a step, by a loop that runs ahead of the device'
grep -q 'step  bare launch  above bare$' "$scratch/out"
verdict $? 'a step is to stand beside a bare launch and what it takes more'
grep -q 'a replay' "$scratch/out"
verdict $((1 - $?)) 'what a GPU alone has is not to be told of the host'
awk '$1 == 64 { there = 1 } END { exit there }' "$scratch/out"
verdict $? 'a row count that nobody gave is to be left out where it is too large'
fits 80

# Lengths as given go to the CSV in one piece.
run bench replay --preset tutorial --rows 2 --kv 9,30 --steps 5 --device host --csv "$scratch/t.csv"
ends 0
rm -f "$scratch/out" && : > "$scratch/out"
python 'assert t[0]["kv"] == "9,30" and t[0]["tokens"] == "39"'

# Without a count there are as few steps as the host can take while somebody waits.
run bench replay --preset tutorial --rows 1 --device host --json
ends 0
python 'assert j["steps"] == 100'

# A file, layers, several queries of a row, a dense cache.
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
# The last token of the limit is never gone past.
run bench replay --preset tutorial --rows 2 --kv 511 --steps 5 --device host
ends 0

# Sums over ranks, which on the host go one way: it is there, and has no time.
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
if [ -w /dev/full ]; then
    run bench replay --preset tutorial --rows 1 --steps 1 --device host --csv /dev/full
    refused '--csv' '/dev/full' 'No space left'
fi

# ---- Attention on the host, where it is checked and not timed ------------------------------------
run bench attention --device host --kv 2x40,1x33+2x9 --heads 4/2,5/1 --csv "$scratch/t.csv" --json
ends 0
quiet
python 'assert [(r["heads"], r["cell"]) for r in t] == [
    ("4/2", "2x40"), ("4/2", "1x33+2x9"), ("5/1", "2x40"), ("5/1", "1x33+2x9")]'
python 'assert [int(r["rows"]) for r in t] == [2, 3, 2, 3] and int(t[1]["tokens"]) == 51'
python 'assert [int(r["bytes"]) for r in t[:2]] == [80 * 2 * 2 * 128 * 2, 51 * 2 * 2 * 128 * 2]'
python 'assert all(r["device"] == "host" and 0 < float(r["worst_ulp"]) <= 2 for r in t)'
python 'assert all(r["chain_us"] == "" and r["alone_share"] == "" for r in t)'
python 'assert all(x["chain_us"] is None and x["cell"] == r["cell"] for x, r in zip(j, t))'
head -n 1 "$scratch/t.csv" |
    grep -q '^device,chip,set,cell,heads,head_dim,page,layout,dtype,kv_dtype,'
verdict $? 'the CSV is to begin with what a cell is'
head -n 1 "$scratch/t.csv" |
    grep -q ',limit_us,chain_us,chain_share,alone_us,alone_share,of_twin,spread,ceiling_gbps,'
verdict $? 'the CSV is to go on with what it took'
run bench attention --device host --kv 1x70 --dtype f16 --kv-dtype e5m2 --layout hnd --page 5 \
    --head-dim 64 --window 16 --csv "$scratch/t.csv"
ends 0
prints 'hnd'
rm -f "$scratch/out" && : > "$scratch/out"
python 'assert int(t[0]["bytes"]) == 16 * 2 * 2 * 64 and t[0]["kv_dtype"] == "e5m2"'
python 'assert t[0]["kv_scales"] == "tensor"'
# A scale for each head, and every one another.
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
# In a pipe a table is as wide as it is; where somebody says how wide the screen is, it folds.
run bench attention --device host --kv 2x40,1x33+2x9
ends 0
prints 'cell               heads  head_dim page layout kv_dtype family  limit_us  chain_us'
prints 'Times are not measured on the host'
COLUMNS=80 run bench attention --device host --kv 2x40,1x33+2x9
ends 0
fits 80
prints 'in all rows: heads 4/2, head_dim 128, page 16, layout nhd, kv_dtype bf16'
prints '1x33+2x9'
prints 'Times are not measured on the host'

# ---- Step and operations -------------------------------------------------------------------------
run bench step --device host --kv 1x40,2x33 --layers 3 --ffn-width 32 --json --csv "$scratch/t.csv"
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

# ---- All of them into files
FIGRAPH=$figraph
export FIGRAPH
tools/bench/run.sh --only step "$scratch/results" --device host > "$scratch/out" 2>&1
ends_with=$?
[ "$ends_with" -eq 0 ] && [ "$(ls "$scratch/results")" = host_step.csv ]
verdict $? 'one set alone is to be written where one is asked for'
head -n 1 "$scratch/results/host_step.csv" | grep -q ',driver,date,commit$' &&
    sed 1d "$scratch/results/host_step.csv" | grep -q ",$(date -u +%Y)-[0-9-]*,[0-9a-z]*\$"
verdict $? 'a file is to say driver, date and commit'
cp "$scratch/results/host_step.csv" "$scratch/again.csv"
COMMIT=another tools/bench/stamp.sh "$scratch/again.csv"
cmp -s "$scratch/results/host_step.csv" "$scratch/again.csv"
verdict $? 'a file that says so is to stay as it is'
tools/bench/run.sh --only replay "$scratch/replays" --device host --quick > "$scratch/out" 2>&1
ends_with=$?
[ "$ends_with" -eq 0 ] && [ "$(wc -l < "$scratch/replays/host_replay.csv")" -eq 2 ]
verdict $? 'replays of the shapes that suit the device are to be written'
[ "$(head -n 1 "$scratch/replays/host_replay.csv" | tr , '\n' | grep -c '^driver$')" -eq 1 ]
verdict $? 'a driver that the file has is not to be told twice'
tools/bench/run.sh --only layers "$scratch/layers" --device host > "$scratch/out" 2>&1
[ $? -eq 0 ] && grep -q '^host,host,small,2,3x40,2,[0-9.]*,' "$scratch/layers/host_layers_2.csv"
verdict $? 'whole layers on two ranks are to be written'
tools/bench/run.sh --only stop "$scratch/results" > "$scratch/out" 2>&1
[ $? -eq 2 ] && grep -q 'none of uniform' "$scratch/out"
verdict $? 'a set that is none is to be refused'

# ---- What they refuse ----------------------------------------------------------------------------
run bench attention --kv 0x8 --device host
refused '--kv' '0x8'
run bench attention --kv 8y8 --device host
refused '--kv' '8y8' 'COUNTxLENGTH'
run bench attention --kv 1x8,,2x9 --device host
refused '--kv'
run bench attention --kv 3x0 --device host
refused '3x0' 'no row with tokens'
for heads in 8 8/3 /8 8/0 x 4/2,; do
    run bench attention --heads "$heads" --device host
    refused '--heads' 'as 32/8 is'
done
run bench attention --dtype bf17 --device host
refused '--dtype' 'bf17'
run bench attention --layout dhn --device host
refused '--layout' 'dhn'
run bench attention --kv 1x8 --kv-dtype e4m3 --kv-scales page --device host
refused '--kv-scales' 'page' 'none of tensor, head'
run bench attention --kv 1x8 --kv-scales head --device host
refused 'kv_scales is 1' 'E4M3'
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
