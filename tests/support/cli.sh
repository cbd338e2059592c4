#!/bin/sh
# cli.sh: what the tests of command lines share: running figraph, or what FIGRAPH names, and saying
# how a check went.
#
# Sourced by tests/test_*.sh. Owns $scratch, which goes when the test ends, and the counts that its
# last line tells. Invariant: after `run` the output is in $scratch/out and err, the exit code in
# $code.
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

verdict() { # 0: it holds; what was to hold
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
    verdict $? "the exit code is to be $1"
}
prints() { # TEXT
    grep -qF -e "$1" "$scratch/out"
    verdict $? "stdout is to hold \"$1\""
}
fits() { # COLUMNS
    LC_ALL=C.UTF-8 awk -v most="$1" 'length > most { long = 1 } END { exit long }' "$scratch/out"
    verdict $? "no line is to be wider than $1 columns"
}
quiet() {
    [ ! -s "$scratch/err" ]
    verdict $? "stderr is to be empty"
}
says() {
    [ "$(wc -l < "$scratch/err")" -eq 1 ] && grep -q "^$name: " "$scratch/err"
    verdict $? "stderr is to be one line that begins with $name:"
    for word; do
        grep -qF -e "$word" "$scratch/err"
        verdict $? "the sentence is to hold \"$word\""
    done
}
refused() { # WORD...: bad usage, said in one line, and nothing on stdout
    ends 2
    [ ! -s "$scratch/out" ]
    verdict $? "stdout is to be empty"
    says "$@"
}
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
# The tutorial as a config.json.
write_config() {
    cat > "$scratch/config.json" << 'END'
{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 64, "num_hidden_layers": 1,
 "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "hidden_act": "silu",
 "max_position_embeddings": 8192, "rope_theta": 10000.0, "rope_scaling": null,
 "torch_dtype": "float16"}
END
}

# A small model of two kinds of layers.
write_gemma() {
    cat > "$scratch/gemma.json" << 'END'
{"model_type": "gemma2", "hidden_size": 512, "intermediate_size": 128, "num_hidden_layers": 2,
 "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 80, "sliding_window": 48,
 "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 64, "rope_theta": 10000.0,
 "attn_logit_softcapping": 5.0, "max_position_embeddings": 512, "torch_dtype": "bfloat16"}
END
}
