#!/bin/sh
# test_cli.sh: tests the conventions that all commands of figraph follow.
#
# They concern help, bad usage, options that several commands share, streams, and the output on a
# terminal. Each command also has a test of its own. A check that fails prints the command.
# Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"

fig=$scratch/tutorial.fig
"$figraph" capture --preset tutorial -o "$fig" > "$scratch/out"

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
        verdict $? 'it must print what --help does'
    done
    COLUMNS=200 run "$command" --help
    fits 200
    prints 'exit code:'
    prints '  0  fine'
    prints '  2  bad usage'
done
COLUMNS=200 run serve --help
awk 'length > 180 { long = 1 } END { exit !long }' "$scratch/out"
verdict $? 'help must use the columns that there are'
# The help of a command explains exit code 1 if and only if the command can end with 1.
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
# Help marks required options, both in the usage line and in the text of each option.
run replay --help
prints 'usage: figraph replay FILE --steps N [options]'
prints 'the number of steps (required)'
run plan --help
prints 'usage: figraph plan (--preset NAME | --config FILE | --q-heads N) --kv LENS'
run capture --help
prints 'usage: figraph capture (--preset NAME | --config FILE | --q-heads N) -o FILE'
run serve --help
prints 'usage: figraph serve (FILE | --preset NAME | --config FILE | --q-heads N)'
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
run "$(printf '%03000d' 7)"
refused 'unknown command 000' '7; figraph --help lists all commands'
run --version more
refused 'more' '--version'
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
run verify ''
refused 'verify: an empty word names no file'
run help plan serve
refused 'help: serve'
run help bench replay serve
refused 'help: serve'
run verify a.fig b.fig
refused 'a.fig' 'b.fig'
run presets --json=yes
refused '--json' 'yes'
run presets --json --json
refused '--json' 'twice'

run plan --kv 5
refused '--preset' '--config' '--q-heads' 'none was given'
run plan --preset tutorial --config x.json --kv 5
refused '--preset' '--config' 'more than one'
run plan --preset tutorial --q-heads 8 --kv 5
refused '--preset' '--q-heads' 'more than one'
run plan --preset tutorial --head-dim 64 --kv 5
refused '--head-dim' 'only --q-heads'
run plan --q-heads 17 --kv-heads 2 --kv 5
refused 'q_heads is 17' 'multiple of kv_heads'
run plan --q-heads 8 --activation relu --kv 5
refused '--activation' '"relu"' 'silu, gelu, gelu_tanh, swiglu_limited'
run plan --preset tutorial
refused '--kv LENS is required'
run plan --preset tutorial --kv
refused '--kv' 'LENS'
run plan --preset tutorial --kv --json
refused '--kv' 'LENS'
run plan --preset tutorail --kv 5
refused 'tutorail' 'tutorial' 'llama-3.1-8b' 'did you mean tutorial?'
run plan --preset tutorial --kv 5 --traits h2000
refused 'h2000' 'h200'
# For a misspelt word, figraph suggests the nearest one; for a word that resembles none, it suggests
# nothing.
run plan --preset tutorial --kv 5 --traits H200
refused 'H200' 'did you mean h200?'
run capure
refused 'capure' 'did you mean capture?'
run capture --preset tutoral -o "$scratch/x.fig"
refused 'tutoral' 'did you mean tutorial?'
run serve --preset tutoral
refused 'tutoral' 'did you mean tutorial?'
run bench replai
refused 'replai' 'did you mean replay?'
run plan --presett tutorial --kv 5
refused '--presett' 'did you mean --preset?'
for word in frobnicate --frobnicate; do
    run "$word"
    refused "$word"
    ! grep -q 'did you mean' "$scratch/err"
    verdict $? 'nothing is near, so nothing must be asked'
done
# "-" is refused as a file's name, since users who write it mean stdout.
run capture --preset tutorial -o -
refused '-o' '"-" names no file'
[ ! -e - ]
verdict $? 'no file must be written'
run tune "$fig" -o -
refused '-o' '"-" names no file'
for scales in head tensor; do # neither value may be ignored silently
    run plan --preset tutorial --kv 5 --kv-scales $scales
    refused '--kv-scales' "$scales" 'f16' 'e4m3'
    run plan --preset tutorial --kv 5 --kv-scales $scales --kv-dtype e4m3
    ends 0
done
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
verdict $? 'a refused capture must leave no file'

# ---- All commands use the same words -------------------------------------------------------------
words='(what several commands say as JSON)'
code=0
python3 - "$figraph" "$scratch" > "$scratch/out" 2> "$scratch/err" << 'END' || code=$?
import json, subprocess, sys
figraph, scratch = sys.argv[1:]
def ask(*words):
    return json.loads(subprocess.run([figraph, *words, "--json"], check=True,
                                     stdout=subprocess.PIPE).stdout)
presets = {p["name"]: p for p in ask("presets")}
for name in ("tutorial", "gemma-2-9b", "qwen3-8b", "mistral-7b", "gpt-oss-20b", "command-r7b",
             "mixtral-8x7b"):
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

# ---- Singular and plural
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

# ---- File names with control characters, and files that are not regular --------------------------
odd=$(printf '%s/a\033[2J\233b.fig' "$scratch")
cp "$fig" "$odd"
for command in verify memory "replay --steps 1 --device host" \
    "serve --requests 1 --fast --device host"; do
    # shellcheck disable=SC2086
    run $command "$odd"
    ends 0
    words="$command: a name's controls on stdout"
    LC_ALL=C grep -q "$(printf '[\033\233]')" "$scratch/out" && shown=1 || shown=0
    verdict "$shown" "a file's name must not send controls to a terminal"
    grep -qF 'a?[2J?b.fig' "$scratch/out"
    verdict $? 'the rest of the name must be there'
done
run verify "$odd.none"
words="verify: a name's controls on stderr"
LC_ALL=C grep -q "$(printf '[\033\233]')" "$scratch/err" && shown=1 || shown=0
verdict "$shown" "a file's name must not send controls to a terminal"
mkfifo "$scratch/pipe"
run capture --preset tutorial -o "$scratch/pipe"
refused 'pipe: not a regular file'
test -p "$scratch/pipe"
verdict $? 'a pipe must remain a pipe'
run plan --config "$scratch/pipe" --kv 5
refused 'pipe: not a regular file'
run replay "$fig" --steps +4
refused '+4'
run serve "$fig" --rate 0x10
refused '0x10'

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
assert terminal(2) == b"", "work under a second must show no progress"
for steps in 300, 3000, 30000: # until the work takes over a second on this machine
    seen = terminal(steps)
    if seen: break
assert b"step" in seen and b"of %d" % steps in seen, seen[:200]
assert seen.endswith(b"\r\x1b[K"), "the line must be wiped"
END
ends 0

# If COLUMNS is not set, the output is as wide as the terminal.
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

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
