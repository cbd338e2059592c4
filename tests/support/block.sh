#!/bin/sh
# block.sh: compiles programs that emulate the blocks of kernels on a CPU.
#
# Sourced by test_*_block.sh. Ends the test, as skipped, without a C++ compiler. Owns $scratch,
# which is removed when the test ends. nvcc does not assume that objects of different types lie
# apart, so neither may the C++ compiler.
set -eu
compiler=${CXX:-c++}
library=${BUILD:-build}/libfigraph.a
libraries="$library -lzstd -ljansson -lhwloc -lm -lpthread"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! command -v "$compiler" > /dev/null; then
    echo "skipped: there is no C++ compiler, $compiler"
    exit 0
fi

# compile_block OUT SOURCE OPTION...: compiles the source to $scratch/OUT.
compile_block() {
    out=$1 source=$2
    shift 2
    "$compiler" -std=c++17 -O1 -fno-strict-aliasing -U_FORTIFY_SOURCE -w -Wno-psabi -I. \
        -Iinclude "$source" "$@" -o "$scratch/$out" 2> "$scratch/log" || {
        cat "$scratch/log"
        exit 1
    }
}

# make_block NAME SOURCE [OPTION...]: makes the program $scratch/NAME.
make_block() {
    # shellcheck disable=SC2086 # words
    compile_block "$@" $libraries
}
