#!/bin/sh
# test_capture_score.sh: tests figraph capture --score, and what other commands do with its file.
#
# inspect and diff must print the score; replay and serve must run the file and compare it with
# float64. Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

fig=$scratch/score.fig
apart='score + slope[head] * float(kv_pos) - slope[head] * float(q_pos)'
text='f32 slope[16]; t1 = slope[head]; score + t1 * kv_pos - q_pos * t1'
run capture --preset tutorial --score "f32 slope[16]; $apart" -o "$fig" --json
ends 0
json 'j["node_count"] == 4'
run inspect "$fig"
ends 0
prints "score $text"
run inspect "$fig" --json
json "[n['attributes']['score'] for n in j['nodes'] if 'score' in n['attributes']] == ['$text']"
run inspect "$fig" --format html
ends 0
prints "$text"
run verify "$fig"
ends 0
run capture --preset tutorial --score "f32 slope[16]; $apart + 1" -o "$scratch/other.fig"
ends 0
run diff "$fig" "$scratch/other.fig"
ends 1
prints 't1 = slope'
run replay "$fig" --steps 12 --device host --check --json
ends 0
json 'j["passed"] is True' 'j["compared"] > 0'
# The host interprets, so it needs no folder and makes none.
XDG_CACHE_HOME=$scratch/cache run replay "$fig" --steps 2 --device host --compile-scores \
    --score-cache default --check
ends 0
XDG_CACHE_HOME=$scratch/cache run serve "$fig" --requests 2 --fast --device host --compile-scores \
    --score-cache "$scratch/cache"
ends 0
[ ! -e "$scratch/cache" ]
verdict $? 'no folder of compiled scores is made on the host'
run replay "$fig" --steps 2 --score-cache default
refused 'replay: --score-cache: default: only --compile-scores keeps scores'
run serve "$fig" --requests 2 --score-cache "$scratch"
refused 'serve: --score-cache:' 'only --compile-scores keeps scores'
# A file with a compiled score: the host interprets it, whether the code is trusted or not.
run inspect tests/golden/scores.fig
ends 0
prints 'scores: the file holds 3'
run inspect tests/golden/scores.fig --images
ends 0
prints 'score/bulk/9.0'
run replay tests/golden/scores.fig --steps 2 --rows 1 --kv 8 --device host --check
ends 0
"$figraph" inspect tests/golden/scores.fig --images > "$scratch/images"
run replay tests/golden/scores.fig --steps 2 --device host --compile-scores \
    --trust "$scratch/images"
refused 'it cannot run kernel images'
run capture --preset tutorial --compile-scores --embed -o "$scratch/none.fig"
refused 'capture: --compile-scores: there is no --score to compile'
run capture --preset tutorial --score 'score * 2.0' --compile-scores -o "$scratch/none.fig"
refused 'capture: --compile-scores: only --embed stores compiled scores'
run capture --preset tutorial --score 'score * 2.0' --compile-scores --embed -o "$scratch/none.fig"
if [ "$code" -ne 0 ]; then # as on every machine without a GPU
    refused 'capture: --compile-scores:' "only a GPU's driver compiles" 'leave the option out'
    [ ! -e "$scratch/none.fig" ]
    verdict $? 'a score that is not compiled must leave no file'
fi
# The arrays are the same for the same seed.
run replay "$fig" --steps 2 --device host --seed 7 --check
ends 0

# A soft cap becomes the field of attention, and the file is one that older libraries read.
run capture --preset tutorial --score '30 * tanh(score / 30)' -o "$scratch/cap.fig" --json
ends 0
json 'j["node_count"] == 2'
run replay "$scratch/cap.fig" --steps 12 --device host --check --json
ends 0
json 'j["passed"] is True'

# Every kind of array and of weights; rows with several tokens, whose outputs serve compares too.
for score in 'f32 slope[16]; score + slope[head] * (kv_pos - q_pos)' \
    'f32 slope[16]; 20 * tanh((score + slope[head] * (kv_pos - q_pos)) / 20)' \
    'bf16 bias[700]; f32 heat; score / heat + bias[kv_pos] + bias[row * 8 + kv_head - 1]' \
    'weights sigmoid; score - log2(kv_length) * 0.6931472' \
    'i32 document[512]; select(document[kv_pos] == document[q_pos], score, -inf)'; do
    run capture --preset tutorial --row-tokens 8 --query-limit 80 --score "$score" -o "$fig"
    ends 0
    run replay "$fig" --steps 12 --device host --check --json
    ends 0
    json 'j["passed"] is True' 'j["compared"] > 0'
    run serve "$fig" --requests 3 --fast --device host --check --json
    ends 0
    json 'j["passed"] is True' 'j["compared"] > 0'
done
run capture --preset tutorial --score "$text" -o "$fig"
ends 0
run serve "$fig" --requests 3 --fast --device host --check --json
ends 0
json 'j["passed"] is True'

# Masks, with and without a score. inspect and diff print them, and replay and serve compare.
run capture --preset tutorial --mask 'q_pos - 3:q_pos + 1, 0:2' -o "$fig" --json
ends 0
json 'j["node_count"] == 4'
mask='see q_pos - 3:q_pos + 1, 0:2; score'
run inspect "$fig"
ends 0
prints "score $mask"
run inspect "$fig" --format html
ends 0
prints "$mask"
run capture --preset tutorial --mask 'q_pos - 4:q_pos + 1, 0:2' -o "$scratch/other.fig"
ends 0
run diff "$fig" "$scratch/other.fig"
ends 1
prints '4:q_pos + 1, 0:2; score'
run capture --preset tutorial --score 'f32 slope[16]; score + slope[head] * (kv_pos - q_pos)' \
    --mask 'i32 start[512]; start[q_pos] - 1:q_pos + 1' -o "$fig"
ends 0
run inspect "$fig"
ends 0
prints 'f32 slope[16]; i32 start[512]; see start[q_pos] - 1:q_pos + 1; score + '
for mask in '0:q_pos + 1' 'q_pos - 5:q_pos + 1, 0:3' 'q_pos // 4 * 4:q_pos + 1' \
    'i32 prefix[8]; 0:max(q_pos + 1, prefix[row])' 'i32 start[512]; start[q_pos]:kv_length' \
    'i32 sees[512]; n = 2 * q_pos; bits sees[n], sees[n + 1]; 0:kv_length' '9:9'; do
    run capture --preset tutorial --row-tokens 8 --query-limit 80 --mask "$mask" -o "$fig"
    ends 0
    run replay "$fig" --steps 12 --device host --check --json
    ends 0
    json 'j["passed"] is True' 'j["compared"] > 0'
    run serve "$fig" --requests 3 --fast --device host --check --json
    ends 0
    json 'j["passed"] is True' 'j["compared"] > 0'
done

# Rows may be chunks of prompts, under a mask too that shows later tokens.
mask='i32 sees[2048]; n = 2 * (q_pos % 128 + row * 128); bits sees[n], sees[n + 1]; 0:q_pos + 9'
run capture --preset tutorial --row-tokens 64 --query-limit 80 --mask "$mask" \
    --score 'score + 0.01 * (kv_pos - q_pos)' -o "$fig"
ends 0
run replay "$fig" --steps 6 --device host --check --json
ends 0
json 'j["passed"] is True' 'j["compared"] > 0'
run serve "$fig" --chunk 44 --requests 6 --fast --device host --check --json
ends 0
json 'j["passed"] is True' 'j["compared"] > 0'

# The normal form shows a name that is misspelt: it is an array of one element.
run capture --preset tutorial --score 'scor * 2.0' -o "$fig"
ends 0
prints 'score     f32 scor; scor * 2.0'
run capture --preset tutorial --score 'score * 2.0' --mask '0:q_pos + 1' -o "$fig" --json
ends 0
json 'j["score"] == "see 0:q_pos + 1; score * 2.0"'
# Ranks cannot divide a score, unless attention without a score computes it.
run capture --preset tutorial --score '30 * tanh(score / 30)' --ranks 2 -o "$fig"
ends 0

rm -f "$scratch/none.fig"
run capture --preset tutorial --score 'score * 2.0' --ranks 2 -o "$scratch/none.fig"
refused 'capture: --ranks' 'it has a score'
run capture --preset tutorial --score 'score * 2.0' --mask '0' -o "$scratch/none.fig"
refused 'capture: --mask: mask: column 2'
run capture --preset tutorial --mask '0:kv_pos' -o "$scratch/none.fig"
refused 'a mask reads kv_pos'
run capture --preset tutorial --score 'see 0:4; score' --mask '0:4' -o "$scratch/none.fig"
refused 'a mask is given beside a score with a mask'
run capture --preset tutorial --score "$apart" -o "$scratch/none.fig"
refused 'array slope has no number of elements'
run capture --preset tutorial --score 'score +' -o "$scratch/none.fig"
refused 'capture: --score: score: column 8: the text ends'
run capture --preset gemma-2-9b --layers 1 --score 'score * 2.0' -o "$scratch/none.fig"
refused 'beside a score'
[ ! -e "$scratch/none.fig" ]
verdict $? 'a refused capture is to leave no file'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
