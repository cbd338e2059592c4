#!/bin/sh
# test_plan.sh: tests figraph plan and presets: how a step is split, described and drawn.
#
# If a class of attention is split by tiles, every worker must get an equal share, on any machine.
# Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

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
verdict $? 'what sets a preset apart must be in its line where there is room'
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
# Checks every class of attention k of the plan j.
classes() {
    json 'all(sum(k["worker_tiles"]) == k["tiles"] for k in j["classes"])' \
        'all(len(k["worker_tiles"]) == len(k["worker_rows"]) for k in j["classes"])' \
        'all(len(k["worker_tiles"]) == j["bucket"]["workers"] for k in j["classes"])' \
        'all(max(k["worker_tiles"]) == k["tiles_most"] for k in j["classes"])' \
        'all(min(k["worker_tiles"]) == k["tiles_least"] for k in j["classes"])' \
        'all("units_most" in k or k["tiles_most"] == -(-k["tiles"] // len(k["worker_tiles"]))'\
' for k in j["classes"])' \
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
# In ASCII, each worker has a bar of one character, so the lowest line of the drawing shows all
# workers.
bars=$(awk -F '|' '/\|/ && ++line % 4 == 0 { print $2 }' "$scratch/out" | tr -d '\n ' | wc -c)
[ "$bars" -eq 132 ]
verdict $? 'the drawing must have a bar for each of 132 workers'
LC_ALL=C.UTF-8 "$figraph" plan --preset llama-3.1-8b --kv 40x512 --traits h200 > "$scratch/out"
python3 -c 'import sys
lines = open(sys.argv[1], encoding="utf-8").read().splitlines()
sys.exit(not (any("█" in l for l in lines) and max(map(len, lines)) <= 80))' "$scratch/out"
verdict $? 'a drawing in UTF-8 must have blocks and fit 80 columns'
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

# Every second layer of gemma-2 has a window. A row needs one more tile if its window begins within
# a tile.
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
# Tests rows with unequal numbers of query tokens.
run plan --preset llama-3.1-8b --kv 4x2000:3+1x512:8 --traits h200 --json
ends 0
quiet
classes
json 'j["rows"] == 5' 'j["kv_tokens"] == 8512' 'j["query_tokens"] == 20'
run plan --preset llama-3.1-8b --kv 4x2000:3,512:8,7:0 --traits h200
ends 0
prints '6 rows of 4x2000:3,512:8,7:0'
prints '20 query tokens, packed'
run plan --preset mistral-7b --kv 30000:1,30000:8 --traits h200 --json
ends 0
classes
run plan --preset tutorial --kv 20:3,2x30,0 --json
ends 0
json 'j["query_tokens"] == 5'
run plan --preset tutorial --kv 20:
refused '--kv' '"20:" is neither'
for lengths in 2147483648 99999999999999999999x3 5:4294967297; do
    run plan --preset tutorial --kv "1,$lengths"
    refused '--kv' "\"$lengths\" has a number above 2147483647"
done
run plan --preset tutorial --kv 500:4097 --kv-limit 5000
refused 'row_tokens is 4097, limits 0 to 4096'
# Chunks of prompts beside rows that decode.
run plan --preset llama-3.1-8b --kv 4x2000+1x8192:512 --traits h200 --json
ends 0
quiet
classes
json 'j["query_tokens"] == 516' 'j["classes"][0]["tiles"] == 4 * 8 * 32' \
    'j["classes"][0]["chunks"]["rows"] == 1' 'j["classes"][0]["chunks"]["strips"] == 16 * 8' \
    'j["classes"][0]["chunks"]["tiles"] == sum(j["classes"][0]["chunks"]["worker_tiles"])' \
    'j["classes"][0]["chunks"]["pieces"] == sum(j["classes"][0]["chunks"]["worker_pieces"])' \
    'len(j["classes"][0]["chunks"]["worker_tiles"]) == 132' \
    'all(k["chunks"]["partial_vectors"] <= k["chunks"]["partial_vector_limit"]'\
' for k in j["classes"])'
run plan --preset gpt-oss-20b --kv 300:9,2x100:8,5000:700 --traits h200 --json
ends 0
json 'all(k["chunks"]["rows"] == 2 for k in j["classes"])' \
    'j["classes"][0]["chunks"]["tiles"] < j["classes"][1]["chunks"]["tiles"]'
run plan --preset llama-3.1-8b --kv 4x2000+8192:512 --traits h200
ends 0
fits 80
prints '5 rows of 4x2000:1,8192:512'
prints '1 row in 128 strips, tiles of 128 tokens'
prints 'tiles of strips of each worker'
run plan --preset llama-3.1-8b --kv 64:9 --traits h200
ends 0
lacks 'there is nothing to cut'
run plan --preset tutorial --kv 2:3
refused 'query_counts[0]'
run plan --preset tutorial --row-tokens 4 --kv 3
refused '3' 'row_tokens' '4'
# Some workers read the rows while the others process the chunk.
divided='plan --preset llama-3.1-8b --row-tokens 2048 --query-limit 2200 --traits h200'
# shellcheck disable=SC2086
run $divided --kv 64x2048:1,8192:2048 --json
ends 0
json '0 < j["classes"][0]["readers"] < 66' \
    'not any(j["classes"][0]["worker_tiles"][j["classes"][0]["readers"]:])' \
    'sum(j["classes"][0]["worker_tiles"]) == j["classes"][0]["tiles"]' \
    'not any(j["classes"][0]["chunks"]["worker_tiles"][132 - j["classes"][0]["readers"]:])' \
    'j["classes"][0]["chunks"]["tiles"] == sum(j["classes"][0]["chunks"]["worker_tiles"])'
# shellcheck disable=SC2086
run $divided --kv 64x2048:1,8192:2048
ends 0
quiet
fits 80
prints 'of 132 workers read rows, the others process chunks'
# shellcheck disable=SC2086
run $divided --kv 64x2048:1 --json
ends 0
json '"readers" not in j["classes"][0]' 'sum(j["classes"][0]["worker_tiles"][66:]) > 0'
# Rows that all have 16 query tokens are no chunks.
run plan --preset tutorial --row-tokens 16 --kv 4x100 --device host --json
ends 0
json 'sum(j["classes"][0]["worker_rows"]) >= 4'

# ---- shared prefixes -----------------------------------------------------------------------------
# Two strips for each of 8 KV heads hold 64 query tokens, and read 8192 tokens once.
shared='plan --preset llama-3.1-8b --traits h200'
# shellcheck disable=SC2086
run $shared --kv 64x8448@8192 --json
ends 0
quiet
json 'j["kv_tokens"] == 64 * 8448' 'j["query_tokens"] == 64' \
    'j["classes"][0]["shared"]["groups"] == [{"rows": 64, "first_token": 0, "end_token": 8192}]' \
    '"refusal" not in j["classes"][0]["shared"]' 'j["classes"][0]["shared"]["rows"] == 64' \
    'j["classes"][0]["shared"]["tokens_read"] == 2 * 8192' \
    'j["classes"][0]["shared"]["tokens_saved"] == 62 * 8192' \
    'j["classes"][0]["shared"]["tails"] == 0' 'j["classes"][0]["shared"]["strips"] == 2 * 8' \
    'j["classes"][0]["shared"]["tiles"] == sum(j["classes"][0]["shared"]["worker_tiles"])' \
    'j["classes"][0]["chunks"]["tiles"] == sum(j["classes"][0]["chunks"]["worker_tiles"])' \
    'j["classes"][0]["chunks"]["strips"] == (2 + 64) * 8' 'j["classes"][0]["tiles"] == 0' \
    'all(p <= t for p, t in zip(j["classes"][0]["shared"]["worker_tiles"],'\
' j["classes"][0]["chunks"]["worker_tiles"]))'
# shellcheck disable=SC2086
run $shared --kv 64x8448@8192
ends 0
quiet
fits 80
prints '64 rows of 64x8448@8192:1'
prints 'shared    64 rows in 1 group: 16 384 tokens read, 507 904 saved'
prints 'group     64 rows: tokens 0 to 8 191'
prints 'strips    16 of prefixes, 512 of rows, tiles of 128 tokens'
prints '% are tiles of shared prefixes'
grep -q '^ *|%.*%' "$scratch/out"
verdict $? 'the strips of prefixes must be marked'
lacks 'there is nothing to cut'
lacks 'tails'
lacks 'one worker has 0'
# A single length is repeated, and only whole pages are shared.
# shellcheck disable=SC2086
run $shared --batch 64 --kv 8448@8207 --json
ends 0
json 'j["classes"][0]["shared"]["groups"] == [{"rows": 64, "first_token": 0, "end_token": 8192}]'
# Each item is a group of its own. Rows of other items read all of their pages.
# shellcheck disable=SC2086
run $shared --kv 32x8448@8192+32x8448@8192,3x700,40x4096@2048:2 --json
ends 0
json 'sorted(g["rows"] for g in j["classes"][0]["shared"]["groups"]) == [32, 32, 40]' \
    'j["classes"][0]["shared"]["rows"] == 104' 'j["classes"][0]["shared"]["tails"] == 0' \
    'j["classes"][0]["tiles"] * j["bucket"]["variant"]["heads"]'\
' == 3 * 8 * -(-700 // j["bucket"]["variant"]["tile_tokens"])' \
    'sum(j["classes"][0]["worker_tiles"]) == j["classes"][0]["tiles"]'
# shellcheck disable=SC2086
run $shared --kv 32x8448@8192+32x8448@8192,3x700
ends 0
fits 80
prints '67 rows of 32x8448@8192:1,32x8448@8192:1,3x700:1'
prints 'shared    64 rows in 2 groups: '
prints 'tiles of each worker, and how many rows'
# Long tails are read by some workers of the split.
# shellcheck disable=SC2086
run $shared --kv 64x9216@8192 --json
ends 0
json 'j["classes"][0]["shared"]["tails"] == 64' '0 < j["classes"][0]["readers"] < 132' \
    'j["classes"][0]["tiles"] * j["bucket"]["variant"]["heads"]'\
' == 64 * 8 * 1024 // j["bucket"]["variant"]["tile_tokens"]' \
    'sum(j["classes"][0]["worker_tiles"]) == j["classes"][0]["tiles"]' \
    'not any(j["classes"][0]["worker_tiles"][j["classes"][0]["readers"]:])' \
    'not any(j["classes"][0]["chunks"]["worker_tiles"][132 - j["classes"][0]["readers"]:])' \
    'j["classes"][0]["chunks"]["strips"] == j["classes"][0]["shared"]["strips"]'
# shellcheck disable=SC2086
run $shared --kv 64x9216@8192
ends 0
quiet
fits 80
prints 'tails     64, read by '
prints ' of 132 workers; the others multiply prefixes'
prints 'tiles of each worker, and how many rows and tails it reads'
lacks 'Uncut'
# A chunk beside rows that share pages.
# shellcheck disable=SC2086
run $shared --kv 64x8448@8192+8192:512
ends 0
fits 80
prints 'chunks    1 row'
prints 'strips    16 of prefixes, '
# Where sharing saves nothing, each row reads its pages, and the sentence says why.
# shellcheck disable=SC2086
run $shared --kv 4x1280@1024
ends 0
fits 80
prints 'shared    nothing: to read these pages once would take more time than it'
# shellcheck disable=SC2086
run $shared --kv 4x1280@1024 --json
ends 0
json '"more time than it saves" in j["classes"][0]["shared"]["refusal"]' \
    'j["classes"][0]["shared"]["groups"] == []' 'j["classes"][0]["tiles"] > 0'
# shellcheck disable=SC2086
run $shared --kv 64x8448@15
ends 0
prints 'shared    nothing: no two rows have a whole page in common'
# shellcheck disable=SC2086
run $shared --kv 64x8448 --json
ends 0
json '"shared" not in j["classes"][0]'
# Only layers without a window share pages.
run plan --preset gpt-oss-20b --kv 64x8448@8192 --traits h200 --json
ends 0
json '[k["window"] for k in j["classes"]] == [128, 0]' \
    '[len(k["shared"]["groups"]) for k in j["classes"]] == [0, 1]' \
    '"another class" in j["classes"][0]["shared"]["refusal"]'
run plan --preset gpt-oss-20b --kv 64x8448@8192 --traits h200
ends 0
fits 80
for case in '64x8192@8193 8193 8192' '64x8448@0 0 8448' '4x0@1 1 0'; do
    # shellcheck disable=SC2086
    set -- $case
    # shellcheck disable=SC2086
    run $shared --kv "$1"
    refused 'plan: --kv' "\"$1\" shares $2 tokens, limits 1 to the length, $3"
done
# shellcheck disable=SC2086
run $shared --kv 8448@8192,5
refused '"8448@8192" is 1 row, at least 2 rows share tokens'
for lengths in 4x100@ 4x100:1@50 4x100@50@20 @50 4x100@-5; do
    # shellcheck disable=SC2086
    run $shared --kv "$lengths"
    refused "\"$lengths\" is neither" '@SHARED'
done
# shellcheck disable=SC2086
run $shared --kv 4x100@2147483648
refused 'has a number above 2147483647'
run plan --preset llama-3.1-8b --kv 64x8448@8192 --traits a100
refused 'plan: --kv' 'rows cannot share pages' 'the GPU has no kernel'
run plan --preset mistral-7b --kv 64x8448@8192 --traits h200
refused 'rows cannot share pages' 'a window'
run plan --preset llama-3.1-8b --kv 64x8448@8192 --kv-dtype e4m3 --traits h200
refused 'rows cannot share pages'
run plan --preset llama-3.1-8b --kv 64x8448@8192 --deterministic --traits h200
refused 'rows cannot share pages' 'deterministic'
run plan --preset llama-3.1-8b --kv 64x8448@8192 --score 'score * 2.0' --traits h200
refused 'rows cannot share pages' 'a score'
run plan --preset deepseek-v3 --kv 4x2000@1000 --traits h200
refused 'rows cannot share pages' 'no row may be a chunk'
run inspect "$scratch/none.fig" --format html --kv 4x100@50
refused '"4x100@50": it takes no @SHARED'

# ---- scores and masks ----------------------------------------------------------------------------
# Of the 128 tiles of a long row, its query sees the first one and the last 16, or the last 17 if
# its last 1024 tokens begin within a tile. The query of a short row sees all tiles.
masked='plan --preset llama-3.1-8b --kv 8192,8191,640 --traits h200'
# shellcheck disable=SC2086
run $masked --mask '0:4, q_pos - 1023:q_pos + 1' --json
ends 0
quiet
classes
json 'j["score"] == "see 0:4, q_pos - 1023:q_pos + 1; score"' \
    'j["classes"][0]["tiles"] * j["bucket"]["variant"]["heads"] == 8 * (17 + 18 + 10)' \
    'j["classes"][0]["tiles_hidden"] * j["bucket"]["variant"]["heads"] == 8 * (111 + 110)'
# shellcheck disable=SC2086
run $masked --mask '0:4, q_pos - 1023:q_pos + 1'
ends 0
quiet
fits 80
prints 'score     see 0:4, q_pos - 1023:q_pos + 1; score'
prints 'mask      hides 884 of 1 064 tiles: no query token or head sees them'
prints 'Uncut, row 1 would keep 4 workers busy for 18 tiles each'
# The drawing is that of the whole program, which inspect plans.
run capture --preset llama-3.1-8b --traits h200 --mask '0:4, q_pos - 1023:q_pos + 1' \
    -o "$scratch/mask.fig"
ends 0
# shellcheck disable=SC2086
"$figraph" $masked --mask '0:4, q_pos - 1023:q_pos + 1' --json > "$scratch/out"
"$figraph" inspect "$scratch/mask.fig" --format html --kv 8192,8191,640 > "$scratch/page"
python3 -c 'import json, re, sys
tiles = json.load(open(sys.argv[1]))["classes"][0]["worker_tiles"]
drawn = re.findall(r"worker ([0-9]+): [0-9]+ of ([0-9]+) tiles", open(sys.argv[2]).read())
sys.exit({int(w): int(t) for w, t in drawn} != {w: t for w, t in enumerate(tiles) if t > 0})' \
    "$scratch/out" "$scratch/page"
verdict $? 'plan and inspect must give each worker the same tiles'
# Tiles that a window hides do not count as hidden by the mask.
run plan --preset gpt-oss-20b --kv 8192 --mask '0:q_pos - 500' --traits h200 --json
ends 0
json '[k["window"] for k in j["classes"]] == [128, 0]' \
    'all(sum(k["worker_tiles"]) == k["tiles"] for k in j["classes"])' \
    '[k["tiles_hidden"] > 0 for k in j["classes"]] == [False, True]'
# The queries of a row are joined. A row whose mask shows nothing keeps one tile.
run plan --preset tutorial --row-tokens 4 --kv 400,300 --mask 'q_pos // 64 * 64:q_pos + 1' \
    --device host --json
ends 0
classes
json 'j["classes"][0]["tiles"] * j["bucket"]["variant"]["heads"] == 4 * 2' \
    'j["classes"][0]["tiles_hidden"] * j["bucket"]["variant"]["heads"] == 4 * (6 + 4)'
run plan --preset tutorial --kv 400,0,1 --mask 9:9 --device host --json
ends 0
classes
json 'j["classes"][0]["tiles"] * j["bucket"]["variant"]["heads"] == 4 * 2'
# Nothing is left out if the mask shows all tiles, or the host does not know the ranges.
for mask in '0:kv_length' 'i32 start[512]; start[q_pos]:q_pos + 1'; do
    run plan --preset tutorial --kv 400 --mask "$mask" --device host --json
    ends 0
    json 'j["classes"][0]["tiles_hidden"] == 0'
    run plan --preset tutorial --kv 400 --mask "$mask" --device host
    ends 0
    prints 'mask      hides no tile that the planner knows of'
done
# Packed rows; a score without a mask.
run plan --preset tutorial --kv 400:3,200:1 --mask 'q_pos - 9:q_pos + 1' --score 'score * 2.0' \
    --device host --json
ends 0
classes
json 'j["score"] == "see q_pos - 9:q_pos + 1; score * 2.0"' 'j["classes"][0]["tiles_hidden"] > 0'
run plan --preset tutorial --kv 400 --score 'score * 2.0' --device host --json
ends 0
json 'j["score"] == "score * 2.0"' '"tiles_hidden" not in j["classes"][0]'
run plan --preset tutorial --kv 400 --score 'score * 2.0' --device host
ends 0
lacks 'mask  '
run plan --preset tutorial --kv 400 --device host --json
ends 0
json '"score" not in j' '"tiles_hidden" not in j["classes"][0]'
# ALiBi is divided among ranks, with the slopes of all heads; other scores are refused.
alibi='f32 slope[16]; score + slope[head] * (kv_pos - q_pos)'
run plan --preset tutorial --kv 8x400 --score "$alibi" --ranks 2 --device host --json
ends 0
classes
json 'j["share"]["ranks"] == 2' \
    'j["classes"][0]["tiles"] * j["bucket"]["variant"]["heads"] == 8 * 2 * 7'
run plan --preset tutorial --kv 400 --score 'score * 2.0' --ranks 2
refused 'plan: --ranks' 'it has a score'
run plan --preset tutorial --kv 400 --mask 0
refused 'plan: --mask: mask: column 2'
run plan --preset tutorial --kv 400 --mask '0:kv_pos'
refused 'plan: --mask:' 'a mask reads kv_pos'
run plan --preset tutorial --kv 400 --score 'see 0:4; score' --mask '0:4'
refused 'a mask is given beside a score with a mask'
run plan --preset tutorial --kv 400 --score 'score +'
refused 'plan: --score: score: column 8: the text ends'
run plan --preset tutorial --kv 400 --score 'f32 slope[16]; score + slop[head]'
refused 'array slope'
# Of the two strips of a chunk and kv head, the first one ends before the row's last tile, unless a
# mask decides what its queries see.
run plan --preset tutorial --kv 280:64,200 --score 'score * 2.0' --device host --json
ends 0
json 'j["classes"][0]["chunks"]["tiles"] == 4 * (2 + 3)'
run plan --preset tutorial --kv 280:64,200 --mask '0:4' --device host --json
ends 0
json 'j["classes"][0]["chunks"]["tiles"] == 4 * (3 + 3)' \
    'j["classes"][0]["tiles"] * j["bucket"]["variant"]["heads"] == 4 * 1' \
    'j["classes"][0]["tiles_hidden"] * j["bucket"]["variant"]["heads"] == 4 * 3'
run plan --preset gemma-2-9b --kv 400 --mask '0:4'
refused 'beside a score'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
