#!/bin/sh
# test_planning_block.sh: tests that a block of planning.cu, emulated thread by thread, writes the
# same plan as the reference kernel, and that no thread waits at a barrier forever.
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
"$compiler" -std=c++17 -O1 -U_FORTIFY_SOURCE -I. -Iinclude \
    tests/kernels/step/planning_block.cpp "$library" -lzstd -ljansson -lhwloc -lm -lpthread \
    -o "$scratch/block"
"$scratch/block" 100
