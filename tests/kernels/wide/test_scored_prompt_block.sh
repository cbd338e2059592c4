#!/bin/sh
# test_scored_prompt_block.sh: tests that blocks of scored_prompt.cu, emulated thread by thread,
# give the results of the reference kernel, and that no thread waits at a barrier forever.
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
"$compiler" -std=c++17 -O1 -fno-strict-aliasing -U_FORTIFY_SOURCE -w -Wno-psabi -I. -Iinclude \
    tests/kernels/wide/scored_prompt_block.cpp "$library" -lzstd -ljansson -lhwloc -lm -lpthread \
    -o "$scratch/block"
"$scratch/block" 48
