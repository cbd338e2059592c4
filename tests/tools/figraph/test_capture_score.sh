#!/bin/sh
# test_capture_score.sh: tests figraph capture --score, and what other commands do with its file.
#
# inspect and diff must print the score. Commands that compare with the standard step have no
# reference for scores and must refuse the file by name. Invariant: the last line is "N passed, N
# failed". shellcheck source=tests/support/cli.sh
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
run replay "$fig" --steps 2
refused 'has the score f32 slope[16];'

# A soft cap becomes the field of attention, and the file is one that older libraries read.
run capture --preset tutorial --score '30 * tanh(score / 30)' -o "$scratch/cap.fig" --json
ends 0
json 'j["node_count"] == 2'
run replay "$scratch/cap.fig" --steps 2
refused 'node 1 has a soft_cap of 30, its spec one of 0'

rm -f "$scratch/none.fig"
run capture --preset tutorial --score "$apart" -o "$scratch/none.fig"
refused 'array slope has no number of elements'
run capture --preset tutorial --score 'score +' -o "$scratch/none.fig"
refused 'score: column 8: the text ends'
run capture --preset gemma-2-9b --layers 1 --score 'score * 2.0' -o "$scratch/none.fig"
refused 'beside a score'
[ ! -e "$scratch/none.fig" ]
verdict $? 'a refused capture is to leave no file'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
