#!/bin/sh
# test_many_block.sh: tests that blocks of the kernel for rows of many query tokens, emulated thread
# by thread, give the results of the reference kernel, and that none waits forever.
#
# Compiles the kernel's source for the CPU, which needs a C++ compiler.
set -eu
compiler=${CXX:-c++}
library=${BUILD:-build}/libfigraph.a
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! command -v "$compiler" > /dev/null; then
    echo "skipped: there is no C++ compiler, $compiler"
    exit 0
fi
"$compiler" -std=c++17 -O1 -fno-strict-aliasing -U_FORTIFY_SOURCE -w -I. -Iinclude \
    tests/kernels/many/many_block.cpp "$library" -lzstd -ljansson -lhwloc -lm -lpthread \
    -o "$scratch/many" 2> "$scratch/log" || {
    cat "$scratch/log"
    exit 1
}
"$scratch/many" 1 60
