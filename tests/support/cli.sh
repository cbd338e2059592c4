#!/bin/sh
# cli.sh: shared by the tests of command lines. Runs figraph (or the program in FIGRAPH) and reports
# each check.
#
# Sourced by test_*.sh. Owns $scratch, which is removed when the test ends, and the counts in
# the test's last line. Invariant: after `run`, $scratch/out and $scratch/err hold the output, and
# $code the exit code.
set -u
LC_ALL=C
export LC_ALL
unset FIG_DEVICE COLUMNS
figraph=${FIGRAPH:-${BUILD:-build}/figraph}
name=${figraph##*/}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
words=
code=0
# The program itself: where python3 is a script that chooses one, each call would cost 0.1 s.
python=$(python3 -c 'import sys; print(sys.executable)')

verdict() { # STATUS, EXPECTATION: counts a pass if STATUS is 0
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "FAILED: $name $words"
    echo "    $2; exit code $code, stdout and stderr:"
    head -c 2000 "$scratch/out" | sed 's/^/    | /'
    head -c 600 "$scratch/err" | sed 's/^/    ! /'
}
run() {
    words=$*
    code=0
    "$figraph" "$@" > "$scratch/out" 2> "$scratch/err" || code=$?
}
ends() { # CODE
    [ "$code" -eq "$1" ]
    verdict $? "the exit code must be $1"
}
prints() { # TEXT
    grep -qF -e "$1" "$scratch/out"
    verdict $? "stdout must hold \"$1\""
}
fits() { # COLUMNS
    LC_ALL=C.UTF-8 awk -v most="$1" 'length > most { long = 1 } END { exit long }' "$scratch/out"
    verdict $? "no line must be wider than $1 columns"
}
quiet() {
    [ ! -s "$scratch/err" ]
    verdict $? "stderr must be empty"
}
says() {
    [ "$(wc -l < "$scratch/err")" -eq 1 ] && grep -q "^$name: " "$scratch/err"
    verdict $? "stderr must be one line that begins with $name:"
    for word; do
        grep -qF -e "$word" "$scratch/err"
        verdict $? "the sentence must hold \"$word\""
    done
}
refused() { # WORD...: bad usage is reported in one line with these words; stdout stays empty
    ends 2
    [ ! -s "$scratch/out" ]
    verdict $? "stdout must be empty"
    says "$@"
}
# Evaluates Python expressions in which `j` is the printed JSON. One Python process evaluates all of
# them.
json() {
    "$python" -S -c 'import json, sys
j = json.load(open(sys.argv[1]))
for expression in sys.argv[2:]:
    try:
        holds = bool(eval(expression))
    except Exception:
        holds = False
    print(int(not holds), "the JSON must have " + expression)' "$scratch/out" "$@" \
        > "$scratch/json" 2>&1
    verdict $? 'stdout must be JSON'
    while read -r holds sentence; do
        verdict "$holds" "$sentence"
    done < "$scratch/json"
}
lacks() { # TEXT
    ! grep -qF -e "$1" "$scratch/out"
    verdict $? "stdout must not hold \"$1\""
}
# Writes the tutorial's config.json.
write_config() {
    cat > "$scratch/config.json" << 'END'
{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 64, "num_hidden_layers": 1,
 "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "hidden_act": "silu",
 "max_position_embeddings": 8192, "rope_theta": 10000.0, "rope_scaling": null,
 "torch_dtype": "float16"}
END
}

# Writes the config of a small model with two kinds of layers.
write_gemma() {
    cat > "$scratch/gemma.json" << 'END'
{"model_type": "gemma2", "hidden_size": 512, "intermediate_size": 128, "num_hidden_layers": 2,
 "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 80, "sliding_window": 48,
 "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 64, "rope_theta": 10000.0,
 "attn_logit_softcapping": 5.0, "max_position_embeddings": 512, "torch_dtype": "bfloat16"}
END
}
