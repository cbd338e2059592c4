#!/bin/sh
# test_benches.sh: tests that the benches of tests/gpu run small cells on the host, where their
# results are right, and print the columns that their CSVs have.
#
# Times on the host mean nothing and are not looked at. Invariant: the last line is "N passed, N
# failed".
set -u
benches=${BUILD:-build}/release/tests/gpu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0
FIG_DEVICE=host
export FIG_DEVICE

verdict() { # STATUS, EXPECTATION
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "FAILED: $words: $2; exit code $code, stdout and stderr:"
    cat "$scratch/out" "$scratch/err"
}
run() { # BENCH ARGUMENT...
    words=$*
    code=0
    bench=$1
    shift
    "$benches/$bench" "$@" > "$scratch/out" 2> "$scratch/err" || code=$?
    [ "$code" -eq 0 ]
    verdict $? 'it must end with 0'
}
lines() { # COUNT
    awk -F , -v lines="$1" 'NR == 1 { columns = NF } NF != columns { bad = 1 }
        END { exit bad || NR != lines + 1 }' "$scratch/out"
    verdict $? "it must print $1 lines with as many columns as the head has"
}
# Prints a column without its head.
column() { # NAME
    awk -F , -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next }
        { print $at }' "$scratch/out" | xargs
}
has() { # NAME, VALUES
    [ "$(column "$1")" = "$2" ]
    verdict $? "column $1 must be $2"
}
says() { # TEXT
    grep -qF -e "$1" "$scratch/err"
    verdict $? "stderr must have \"$1\""
}

run attention/latent_bench
lines 6
has lengths 'equal equal one_long even powers equal'
has cache 'bf16 bf16 bf16 bf16 bf16 e4m3'
has same '1 1 1 1 1 1'
says '16 heads, all: mean share'
says '32 heads, ragged: mean share'
says '8x3x130 with 2 query tokens'
run attention/latent_bench 60 16x2x70x3x16 8x1x5
lines 2
has heads '16 8'
has row_tokens '3 1'
has page_size '16 64'
run attention/latent_bench 0
lines 0
run attention/wide_bench
lines 3
has singles '3 0 3'
has same '1 1 1'
[ "$(column of_parts | cut -d ' ' -f 1-2)" = '0.000 0.000' ] &&
    column of_parts | awk '{ exit !($3 > 0) }'
verdict $? 'only the mixed step must have parts'
run share_bench
lines 1
has tokens_read 512
has tokens_saved 1536
run share_bench --steps 2 9 3 256
lines 1
has rows 3
has tokens_read 256
run stage_bench 20
lines 5
run stage_bench 20 5 4096 100
lines 1
has rows 5
run plans_bench
lines 3
has kind 'singles chunks both'
has same '1 1 1'
run opening_bench 1
lines 1
run prepare_bench 1
lines 1

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
