#!/bin/sh
# test_wrong_kernel.sh: tests that figraph bench reports no time for a kernel that computes wrong
# numbers.
#
# In each case, figraph is linked with one reference kernel that was made wrong on purpose, and must
# not print a time for it on the host. tests/gpu/wrong_kernel does the same with GPU kernels.
# Invariant: the last line is "N passed, N failed".
set -u
# shellcheck source=tests/support/tally.sh
. "$(dirname "$0")/../support/tally.sh"
built=${BUILD:-build}
# Those that the Makefile links: a build folder keeps the objects of sources that have moved.
tools=$(printf '%s\n' tools/figraph/*.c tools/figraph/*/*.c |
    sed "s|^\(.*\)\.c$|$built/release/\1.o|")

# linked FILE EXPRESSION: builds a figraph in which the sed expression has changed the file
linked() {
    sed "$2" "$1" > "$scratch/wrong.c"
    if cmp -s "$1" "$scratch/wrong.c"; then
        echo "\"$2\" changes nothing in $1"
        return 1
    fi
    # The linker prefers the functions of this object to those of the library.
    # shellcheck disable=SC2086
    ${CC:-gcc} -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -w -iquote . -Iinclude -pthread \
        "$scratch/wrong.c" $tools "$built/libfigraph.a" -lzstd -ljansson -lhwloc -lm \
        -o "$scratch/figraph"
}
# is_caught PART OPTION...: bench must exit with 1 and a message, and must write no time and no file
is_caught() {
    code=0
    rm -f "$scratch/t.csv"
    "$scratch/figraph" bench "$@" --device host --csv "$scratch/t.csv" > "$scratch/out" \
        2> "$scratch/err" || code=$?
    cat "$scratch/out" "$scratch/err"
    [ $code -eq 1 ] && [ ! -s "$scratch/out" ] && [ ! -e "$scratch/t.csv" ] &&
        grep -q "^figraph: .* is .* must be \|^figraph: .* is not " "$scratch/err"
}
# wrong FILE EXPRESSION PART OPTION...
wrong() {
    file=$1 expression=$2
    shift 2
    check "$file, $expression" linked "$file" "$expression"
    check "$file, $expression: bench $*" is_caught "$@"
}

wrong kernels/attention/attention.c 's/values, vector, weight/values, vector, -weight/' \
    attention --kv 2x40 --kv 33,2x9
check 'a step of it' is_caught step
check 'a replay of it' is_caught replay --preset tutorial --rows 3 --kv 20 --steps 4
wrong kernels/rows/rope.c 's/cosine\[i\] + a \* turn/cosine[i] - a * turn/' ops --op rope
check 'a step of it' is_caught step
check 'RoPE and append in one' is_caught ops --op rope_append
wrong kernels/rows/append_kv.c 's/&place, 1, head, p->v/\&place, 1, head, p->k/' ops --op append
wrong kernels/rows/gated.c 's/expf(-x)/expf(x)/' ops --op silu
check 'a step of it' is_caught step
wrong kernels/rows/gated.c 's/expf(-twice)/expf(twice)/' ops --op gelu_tanh
wrong kernels/rows/rms_norm.c 's/1\.0 \/ sqrt/-1.0 \/ sqrt/' ops --op rms_norm
wrong kernels/ranks/all_reduce.c 's/sum\[i\] += more\[i\]/sum[i] -= more[i]/' allreduce --ranks 2

# The unchanged kernels pass.
check 'the library as it is' linked kernels/rows/rope.c '1s/^/ /'
for part in 'attention --kv 2x40' step ops 'allreduce --ranks 2' \
    'replay --preset tutorial --rows 3 --kv 20 --steps 4'; do
    # shellcheck disable=SC2086
    check "bench $part" "$scratch/figraph" bench $part --device host
done
finish
