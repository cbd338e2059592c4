#!/bin/sh
# test_latent_block.sh: tests that blocks of the latent kernels, emulated thread by thread, give the
# results of the reference kernels, and that no thread waits at a barrier forever.
#
# Compiles the kernels' sources for the CPU, which needs a C++ compiler.
set -eu
compiler=${CXX:-c++}
library=${BUILD:-build}/libfigraph.a
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! command -v "$compiler" > /dev/null; then
    echo "skipped: there is no C++ compiler, $compiler"
    exit 0
fi
for name in latent latent_leave latent_decode; do
    "$compiler" -std=c++17 -O1 -w -I. -Iinclude "tests/kernels/latent/${name}_block.cpp" \
        "$library" -lzstd -ljansson -lhwloc -lm -lpthread -o "$scratch/$name"
done
"$scratch/latent" 6
"$scratch/latent_leave" 40
"$scratch/latent_decode" 40
