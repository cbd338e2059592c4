#!/bin/sh
# test_serve.sh: tests that figraph serve completes all requests, prints consistent figures, and
# refuses bad options and traces with one sentence.
#
# Nothing here depends on the speed of the machine. Invariant: the last line is "N passed, N
# failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

fine() {
    [ "$code" -eq 0 ] && [ ! -s "$scratch/err" ]
    verdict $? 'it must end with 0 and nothing on stderr'
}
# Checks the figures of a run that completes.
served() { # OPTION...
    run serve "$@" --check --json
    fine
    json 'j["passed"] is True' 'j["done"] == j["requests"]' 'j["tokens"] == j["output_tokens"]' \
        'j["missed"] == j["busy"] == 0' 'j["most_pages"] <= j["pages"]' \
        'j["steps"] == j["step_ns"]["count"]' 'j["plans"] <= j["steps"]' \
        'j["requests"] == j["first_token_ns"]["count"]' \
        '"chunk" in j or '\
'round(j["mean_rows"] * j["steps"]) == j["requests"] + j["between_tokens_ns"]["count"]' \
        'j["mean_rows"] <= j["most_rows"]' '0 < j["plan_bytes_per_step"]' \
        '0 < j["step_ns"]["max"] and 0 < j["host_ns"]["p50"] and 0 < j["first_token_ns"]["p50"]' \
        'all(t["p50"] <= t["p90"] <= t["p99"] for t in j.values() if type(t) is dict)' \
        'all(t["p99"] <= t["p99.9"] <= t["max"] for t in j.values() if type(t) is dict)'
}
tutorial='--preset tutorial'

# ---- Help ----------------------------------------------------------------------------------------
run serve --help
fine
prints 'usage: figraph serve (FILE | --preset NAME | --config FILE | --q-heads N)'
prints 'example:'
prints '  figraph serve '
narrow() {
    awk 'length > 80 { long = 1 } END { exit long }' "$scratch/out"
    verdict $? 'no line must be longer than 80 columns'
}
narrow
prints 'GiB of the cache; without this and --kv-pages'
run --help
prints '  serve '

# ---- Random requests -----------------------------------------------------------------------------
# shellcheck disable=SC2086 # words, here and below
{
    served $tutorial --requests 24
    json 'j["model"] == "tutorial"' 'j["device"] == "host"' 'j["most_rows"] == 8' \
        'j["preemptions"] == 0' \
        'j["plans"] == j["steps"]' 'j["checked"] is True' 'j["page_bytes"] == 16 * 1024'
    run serve $tutorial --requests 24
    fine
    narrow
    prints '24 requests'
    prints 'p99.9'
    prints 'done      24 in'
    # A bin of the histogram is an eighth of an octave wide, so a third digit would mean nothing.
    for percentile in $(sed -n 's/^  step   *\(.*\)/\1/p' "$scratch/out" |
        grep -o '[0-9.]* [mun]*s' | head -n 4 | sed 's/ .*//'); do
        [ "$(printf '%s' "$percentile" | tr -d . | sed 's/^0*//; s/0*$//' | wc -c)" -le 2 ]
        verdict $? "a percentile must have two digits, not $percentile"
    done
    served $tutorial --requests 1
    json 'j["most_rows"] == 1' 'j["mean_rows"] == 1' 'j["steps"] == j["tokens"]'
    # With so few pages, rows run out of them.
    for pages in 32 40 64; do
        served $tutorial --requests 24 --kv-pages $pages
        json "j['pages'] == $pages" 'j["preemptions"] > 0' 'j["most_pages"] == j["pages"]'
    done
    served $tutorial --requests 12 --kv-pages 5
    json 'j["prompt_tokens"] + j["output_tokens"] <= 12 * 80'
    served $tutorial --requests 4 --kv-gib 0.0005
    json 'j["pages"] == 32'
}

# ---- A trace -------------------------------------------------------------------------------------
trace=$scratch/trace.csv
# shellcheck disable=SC2086
{
    served $tutorial --requests 30 --rate 200 --seed 5 --save-trace "$trace"
    [ "$(wc -l < "$trace")" -eq 31 ] &&
        [ "$(head -n 1 "$trace")" = arrival_s,prompt_tokens,output_tokens ]
    verdict $? 'the trace must have a header and a line for each request'
    made=$(grep -E '"(prompt|output)_tokens"' "$scratch/out")
    served $tutorial --trace "$trace"
    [ "$made" = "$(grep -E '"(prompt|output)_tokens"' "$scratch/out")" ]
    verdict $? 'a saved trace must have the generated requests'
}
printf '%s\n' arrival_s,prompt_tokens,output_tokens 0,100,3 0,20,5 > "$scratch/two.csv"
# shellcheck disable=SC2086
served $tutorial --trace "$scratch/two.csv"
json 'j["steps"] == j["plans"] == 5' 'j["mean_rows"] == 8 / 5' 'j["most_pages"] == 9' \
    'j["table_bytes_per_step"] == 0'
# A request of 400 tokens needs 26 pages, more than a plan can bring, so they are copied to the page
# table.
printf '%s\n' arrival_s,prompt_tokens,output_tokens 0,400,1 > "$scratch/one.csv"
# shellcheck disable=SC2086
served $tutorial --trace "$scratch/one.csv"
json 'j["table_bytes_per_step"] == 26 * 4' 'j["tokens"] == 1'

# ---- Horizons ------------------------------------------------------------------------------------
# shellcheck disable=SC2086
{
    served $tutorial --trace "$scratch/two.csv" --horizon 2
    # 2 steps, then 1 to the end of the first request, then 2
    json 'j["steps"] == 5' 'j["plans"] == 3' 'j["taken_back"] == 0'
    served $tutorial --trace "$scratch/two.csv" --horizon 512
    json 'j["steps"] == 5' 'j["plans"] == 2'
    served $tutorial --requests 24 --horizon 8 --kv-pages 64
    json 'j["plans"] < j["steps"] / 2'
}
# With this many requests, some arrive while others run, and join before a horizon ends. shellcheck
# disable=SC2086
served $tutorial --requests 40 --rate 100 --fast --horizon 64
json 'j["taken_back"] > 0' 'j["plans"] < j["steps"] / 2'

# ---- The clock -----------------------------------------------------------------------------------
printf '%s\n' arrival_s,prompt_tokens,output_tokens 0,10,3 900000,10,3 > "$scratch/slow.csv"
# shellcheck disable=SC2086
served $tutorial --trace "$scratch/slow.csv" --fast
json 'j["seconds"] >= 900000' 'j["most_rows"] == 1' 'j["first_token_ns"]["max"] < 60e9'
printf '%s\n' arrival_s,prompt_tokens,output_tokens 0,10,3 1.2,10,3 > "$scratch/slow.csv"
# shellcheck disable=SC2086
served $tutorial --trace "$scratch/slow.csv"
json 'j["seconds"] >= 1.2' 'j["most_rows"] == 1'

# ---- Every kind of step --------------------------------------------------------------------------
cat > "$scratch/gemma.json" << 'END_OF_CONFIG'
{"model_type": "gemma2", "hidden_size": 512, "intermediate_size": 128, "num_hidden_layers": 2,
 "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 80, "sliding_window": 48,
 "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 64, "rope_theta": 10000.0,
 "attn_logit_softcapping": 5.0, "max_position_embeddings": 512, "torch_dtype": "bfloat16"}
END_OF_CONFIG
served_file() { # CAPTURE OPTION...
    run capture "$@" --batch-limit 6 --kv-limit 256 -o "$scratch/served.fig"
    fine
    served "$scratch/served.fig" --requests 10
}
served_file --config "$scratch/gemma.json"
json "j['file'] == '$scratch/served.fig'" '"model" not in j'
served "$scratch/served.fig" --requests 10 --kv-pages 24 --horizon 4
json 'j["preemptions"] > 0'
served_file --preset tutorial --row-tokens 3
served "$scratch/served.fig" --requests 10 --kv-pages 20 --horizon 4
served_file --preset tutorial --page-size 0
json 'j["pages"] == j["most_pages"] == j["most_rows"] == 6' 'j["page_tokens"] == 256' \
    'j["table_bytes_per_step"] == 0'
served_file --preset tutorial --page-size 1 --kv-dtype e4m3
run serve "$scratch/served.fig" --requests 3
fine
prints "$scratch/served.fig on host"

# ---- Models ------------------------------------------------------------------------------------
# A model from a config.json, or described by options, takes the steps of its file.
small='--batch-limit 6 --kv-limit 256'
# shellcheck disable=SC2086 # words
for model in "--config $scratch/gemma.json" \
    "--config $scratch/gemma.json --kv-dtype e4m3 --page-size 8 --dtype f16 --row-tokens 2" \
    '--q-heads 4 --kv-heads 2 --head-dim 64 --window 20 --dtype f32 --deterministic'; do
    served_file $model
    facts=$(grep -E '"(steps|tokens|pages|most_pages|page_bytes|page_tokens)"' "$scratch/out")
    served $model $small --requests 10
    [ "$facts" = "$(grep -E '"(steps|tokens|pages|most_pages|page_bytes|page_tokens)"' \
        "$scratch/out")" ]
    verdict $? 'a model must be served in the steps of its file'
done
# shellcheck disable=SC2086
{
    served --config "$scratch/gemma.json" $small --requests 10 --chunk 13
    json "j['model'] == '$scratch/gemma.json'" '"file" not in j' 'j["chunk"] == 13' \
        'j["compared"] > 0'
    run serve --q-heads 4 $small --requests 2
    fine
    prints 'by hand on host'
    # Like a packed file, a model with --query-limit has a budget of its own.
    served --preset tutorial $small --row-tokens 30 --query-limit 50 --requests 4
    json 'j["chunk"] == 44' 'j["compared"] > 0'
    served --preset tutorial $small --row-tokens 30 --query-limit 50 --requests 4 --chunk 9
    json 'j["chunk"] == 9'
    run serve --preset tutorial $small --row-tokens 30 --query-limit 50 --chunk 45
    refused '--chunk: 45' 'room for 44'
    run serve --preset tutorial $small --row-tokens 2 --query-limit 6
    refused '6 query tokens' 'beside 6 rows'
    run serve --preset tutorial $small --row-tokens 2 --chunk 9
    refused 'serve: --row-tokens: 2' '--chunk' '--query-limit'
}
# The limits are those that capture takes from the config: 512 tokens, and at most 256 rows.
printf '%s\n' arrival_s,prompt_tokens,output_tokens 0,509,3 > "$scratch/most.csv"
served --config "$scratch/gemma.json" --trace "$scratch/most.csv"
printf '%s\n' arrival_s,prompt_tokens,output_tokens 0,510,3 > "$scratch/most.csv"
run serve --config "$scratch/gemma.json" --trace "$scratch/most.csv"
refused '512' 'this is the longest sequence of the step'
# Short requests: the host computes 256 rows in each step.
awk 'BEGIN { print "arrival_s,prompt_tokens,output_tokens"
             for (i = 0; i < 300; i++) print "0,6,4" }' > "$scratch/many.csv"
served --config "$scratch/gemma.json" --trace "$scratch/many.csv" --kv-gib 4
json 'j["most_rows"] == 256'
sed 's/"hidden_size"/"one_more": 1, &/' "$scratch/gemma.json" > "$scratch/more.json"
run serve --config "$scratch/more.json"
refused "$scratch/more.json" 'one_more'
served --config "$scratch/more.json" --ignore one_more --requests 3
run serve --preset tutorial --ignore one_more
refused 'serve: --ignore: only --config takes it'
run serve --preset tutorial --dtype f32
refused 'serve: --dtype: --q-heads and --config take it, not --preset'
run serve --config "$scratch/gemma.json" --kv-heads 2
refused 'serve: --kv-heads: only --q-heads takes it, not --preset or --config'
run serve --preset tutorial --config "$scratch/gemma.json"
refused 'serve: --preset, --config and --q-heads: more than one was given'
run serve --config "$scratch/none.json"
refused "$scratch/none.json"
run serve --config tests/configs/gemma-3-1b-it.json --kv-scales head
refused 'serve: --kv-scales'

# ---- Prompts in chunks -------------------------------------------------------------------------
# Every prompt token is computed once, but the last one, which is a row's single token; whatever the
# budget, the outputs are right.
for chunk in 1 9 64 300; do
    served --preset tutorial --requests 12 --chunk "$chunk"
    json "j['chunk'] == $chunk" \
        'j["prompt_tokens"] - j["requests"] <= j["computed_prompt_tokens"]' \
        'j["computed_prompt_tokens"] <= j["prompt_tokens"]' 'j["plans"] == j["steps"]' \
        "j['computed_prompt_tokens'] <= $chunk * j['prompt_steps']" \
        'j["compared"] // 1024 >= j["computed_prompt_tokens"] + j["tokens"] - 2 * j["requests"]' \
        'j["beside_prompts_ns"]["count"] <= j["between_tokens_ns"]["count"]' \
        'j["between_tokens_ns"]["count"] == j["tokens"] - j["requests"]'
done
# The first token comes at the end of the last chunk: after ten steps, or after one.
printf '%s\n' arrival_s,prompt_tokens,output_tokens 0,101,3 > "$scratch/long.csv"
served --preset tutorial --trace "$scratch/long.csv" --chunk 10
json 'j["steps"] == 13' 'j["prompt_steps"] == 10' 'j["tokens"] == 3'
served --preset tutorial --trace "$scratch/long.csv" --chunk 200
json 'j["steps"] == 3' 'j["prompt_steps"] == 1'
served --preset tutorial --requests 12 --chunk 40 --kv-pages 40 --rate 200
json 'j["preemptions"] > 0' 'j["computed_prompt_tokens"] > j["prompt_tokens"]'
# A packed file has a budget of its own.
served_file --config "$scratch/gemma.json" --row-tokens 30 --query-limit 50
json 'j["chunk"] == 44' 'j["compared"] > 0'
served "$scratch/served.fig" --requests 10 --chunk 13
json 'j["chunk"] == 13'
served_file --preset tutorial --row-tokens 8 --query-limit 20 --kv-dtype e4m3 --kv-scales head
served_file --preset tutorial --row-tokens 100 --query-limit 120 --page-size 0
served_file --q-heads 4 --kv-heads 2 --head-dim 64 --layers 2 --window 20 --dtype f32 \
    --row-tokens 50 --query-limit 60
run capture --preset gpt-oss-20b --layers 2 --batch-limit 6 --kv-limit 256 --row-tokens 30 \
    --query-limit 40 -o "$scratch/served.fig"
fine
served "$scratch/served.fig" --requests 3
run serve --preset tutorial --requests 4 --chunk 50 --check
fine
fits 80
prints 'at most 50 in one'
prints 'the same, beside prompts'
prints 'elements of outputs compared: all right'
run serve "$scratch/served.fig" --chunk 35
refused '--chunk: 35' 'room for 34'
run serve --preset tutorial --chunk 50 --horizon 2
refused '--horizon: 2'
run serve --preset tutorial --chunk -1
refused '--chunk'
run capture --preset tutorial --batch-limit 6 --row-tokens 2 --query-limit 6 \
    -o "$scratch/served.fig"
fine
run serve "$scratch/served.fig"
refused '6 query tokens' 'beside 6 rows'
served_file --preset tutorial
run serve "$scratch/served.fig" --chunk 5
refused '--chunk' '--query-limit'

# ---- Bad usage -----------------------------------------------------------------------------------
run serve
refused 'serve: FILE, --preset, --config and --q-heads: none was given'
for option in '--preset tutorial' '--config config.json' '--q-heads 8' '--kv-limit 256'; do
    # shellcheck disable=SC2086 # words
    run serve "$scratch/served.fig" $option
    refused "serve: ${option% *}: $scratch/served.fig was given, which already fixes it"
done
run serve "$scratch/none.fig"
refused "$scratch/none.fig"
run serve --preset tutorail
refused 'tutorail' 'tutorial'
bad() { # WORD... -- OPTION...
    expected=
    while [ "$1" != '/' ]; do
        expected="$expected $1"
        shift
    done
    shift
    run serve --preset tutorial "$@"
    # shellcheck disable=SC2086
    refused $expected
}
bad --requests 0 / --requests 0
bad --rate fast / --rate fast
bad --rate -1 / --rate=-1
bad --rate inf / --rate inf
bad --seed x / --seed x
bad --horizon 0 / --horizon 0
bad --horizon 513 / --horizon 513
bad --kv-pages 0 / --kv-pages 0
bad --kv-gib hold / --kv-gib 0.00001
bad --kv-gib --kv-pages both / --kv-gib 1 --kv-pages 5
bad --device gpu / --device gpu
bad cuda / --device cuda
bad "$scratch/none/x.csv" / --save-trace "$scratch/none/x.csv"
bad /dev/full / --requests 2000 --save-trace /dev/full
# Here a file may have at most 1024 bytes, so writing fails in the middle.
words='serve --save-trace, where a file may have 1024 bytes'
code=0
(
    trap '' XFSZ
    ulimit -f 2
    exec "$figraph" serve --preset tutorial --requests 2000 --save-trace "$scratch/part.csv"
) > "$scratch/out" 2> "$scratch/err" || code=$?
refused "$scratch/part.csv" 'File too large'
[ ! -e "$scratch/part.csv" ]
verdict $? 'a trace that could not be written must leave no part of it'
for option in --requests --rate --seed; do
    bad "$option" --trace / --trace "$trace" $option 1
done
bad --save-trace --trace / --trace "$trace" --save-trace "$scratch/x.csv"
run capture --preset tutorial --page-size 0 -o "$scratch/dense.fig"
run serve "$scratch/dense.fig" --kv-pages 3
refused '--kv-pages' 'dense'

# ---- Invalid traces, by the line with the error --------------------------------------------------
wrong() { # NUMBER WORD LINE...: a trace of these lines is refused because of line NUMBER
    number=$1
    word=$2
    shift 2
    printf '%s\n' "$@" > "$scratch/wrong.csv"
    run serve --preset tutorial --trace "$scratch/wrong.csv"
    refused "$scratch/wrong.csv:$number:" "$word"
}
header=arrival_s,prompt_tokens,output_tokens
wrong 1 "$header" 0,1,2
wrong 1 "$header" 'prompt_tokens,arrival_s,output_tokens' 0,1,2
wrong 2 'no request' "$header"
wrong 3 'arrival_s' "$header" 0,1,2 x,1,2
wrong 3 'prompt_tokens' "$header" 0,1,2 0,1.5,2
wrong 3 'prompt_tokens' "$header" 0,1,2 0,1
wrong 2 'output_tokens' "$header" 0,1,2,3
wrong 4 'arrival_s is 1.5, which is before 2,' "$header" 1,1,2 2,1,2 1.5,1,2
wrong 3 'prompt_tokens and output_tokens are 100 and 413, their sum may be 512 at most' "$header" \
    0,100,412 0,100,413
wrong 2 '1 to 2147483647' "$header" 0,3000000000,2
wrong 2 '1 to 2147483647' "$header" 0,3,3000000000
wrong 2 'blank' "$header" '' 0,1,2
wrong 2 'this is the longest sequence of the step' "$header" 0,500,13
printf '%s\n' "$header" 0,10,3 '' > "$scratch/blank.csv"
served --preset tutorial --trace "$scratch/blank.csv"
json 'j["requests"] == 1'
run serve --preset tutorial --kv-pages 4 --trace "$scratch/one.csv"
refused "$scratch/one.csv:2:" '400' '64' 'cache'
run serve --preset tutorial --trace "$scratch"
refused "$scratch" 'not a regular file'

# ---- The line on a terminal ----------------------------------------------------------------------
# The run lasts for more than a second on any machine, since the last request arrives after 1.2 s.
printf '%s\n' arrival_s,prompt_tokens,output_tokens 0,10,3 1.2,10,30 > "$scratch/slow.csv"
words='serve (on a terminal)'
code=0
python3 - "$figraph" "$scratch/slow.csv" > "$scratch/out" 2> "$scratch/err" << 'END' || code=$?
import os, pty, subprocess, sys
def terminal(*options):
    master, slave = pty.openpty()
    work = subprocess.Popen([sys.argv[1], "serve", "--preset", "tutorial", "--trace", sys.argv[2],
                             *options], stdout=subprocess.DEVNULL, stderr=slave)
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
assert terminal("--json") == b"", "with --json there must be no line"
seen = terminal()
for word in b"1 of 2 done", b"running", b"waiting", b"tokens/s", b"pages":
    assert word in seen, seen[:200]
assert seen.endswith(b"\r\x1b[K"), "the line must be wiped"
END
[ "$code" -eq 0 ]
verdict $? 'a line must be drawn on a terminal and wiped'

# ---- Ctrl-C --------------------------------------------------------------------------------------
# The last request arrives after an hour. The system may deliver the signal to any thread of the
# program; here it goes to a thread other than the one that sleeps until then.
printf '%s\n' arrival_s,prompt_tokens,output_tokens 0,10,3 3600,10,3 > "$scratch/hour.csv"
for form in '' --json; do
    words="serve $form (and Ctrl-C)"
    code=0
    # shellcheck disable=SC2086 # one word or none
    python3 - "$figraph" "$scratch/hour.csv" $form > "$scratch/out" 2> "$scratch/err" \
        << 'END' || code=$?
import ctypes, os, signal, subprocess, sys, time
def is_caught(pid):
    for line in open("/proc/%d/status" % pid):
        if line.startswith("SigCgt:"):
            return int(line.split()[1], 16) >> signal.SIGINT - 1 & 1
work = subprocess.Popen([sys.argv[1], "serve", "--preset", "tutorial", "--device", "host",
                         "--trace", sys.argv[2], *sys.argv[3:]])
while work.poll() is None and not is_caught(work.pid):
    time.sleep(0.01)
threads = []
while work.poll() is None and len(threads) < 2:
    threads = sorted(map(int, os.listdir("/proc/%d/task" % work.pid)))
    time.sleep(0.01)
ctypes.CDLL(None).tgkill(work.pid, threads[-1], signal.SIGINT)
sys.exit(work.wait())
END
    ends 1
    says 'interrupted' 'of 2 requests'
    [ -n "$form" ] || prints 'requests'
    [ -z "$form" ] || json 'j["done"] <= 1' 'j["steps"] >= 0'
done

echo "$passed passed, $failed failed"
