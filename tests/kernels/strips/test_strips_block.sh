#!/bin/sh
# test_strips_block.sh: tests that blocks of the kernels for packed programs and for RoPE and
# append, emulated thread by thread, give the results of the reference kernel, leave the results of
# tails and the newest tokens where they belong, and that none waits forever.
#
# Compiles the kernels' source for the CPU, which needs a C++ compiler.
# shellcheck source=tests/support/block.sh
. "$(dirname "$0")/../../support/block.sh"
make_block packed tests/kernels/strips/strips_block.cpp
"$scratch/packed" 1 120
"$scratch/packed" 416 1 # sets of warps change, and the number of their turns does not
"$scratch/packed" 424 1 # eight shares in a join
make_block turns tests/kernels/strips/strips_block.cpp -DFIG_TESTS_TURNS
"$scratch/turns" 1 80
