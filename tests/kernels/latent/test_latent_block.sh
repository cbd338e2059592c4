#!/bin/sh
# test_latent_block.sh: tests that blocks of the latent kernels, emulated thread by thread, give the
# results of the reference kernels, and that no thread waits at a barrier forever.
#
# Compiles the kernels' sources for the CPU, which needs a C++ compiler. nvcc does not assume that
# objects of different types lie apart.
set -eu
compiler=${CXX:-c++}
library=${BUILD:-build}/libfigraph.a
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! command -v "$compiler" > /dev/null; then
    echo "skipped: there is no C++ compiler, $compiler"
    exit 0
fi
compile() { # NAME SOURCE [OPTION]
    name=$1 source=$2
    shift 2
    "$compiler" -std=c++17 -O1 -fno-strict-aliasing -U_FORTIFY_SOURCE -w "$@" -I. -Iinclude \
        "tests/kernels/latent/$source" "$library" -lzstd -ljansson -lhwloc -lm -lpthread \
        -o "$scratch/$name" 2> "$scratch/log" || {
        cat "$scratch/log"
        exit 1
    }
}
compile latent latent_block.cpp
compile leave latent_leave_block.cpp
compile decode latent_decode_block.cpp
compile narrow warpgroup_block.cpp -DNARROW
compile codes warpgroup_block.cpp -DCODES
compile wide warpgroup_block.cpp -DWIDE
"$scratch/latent" 6
"$scratch/leave" 40
"$scratch/decode" 40
"$scratch/narrow" 1 20
"$scratch/codes" 1 20
"$scratch/wide" 1 8
