#!/bin/sh
# test_packed_block.sh: tests that blocks of the kernel for packed programs, emulated thread by
# thread, give the results of the reference kernel, leave the results of tails where they belong,
# and that none waits forever.
#
# Compiles the kernel's source for the CPU, which needs a C++ compiler.
# shellcheck source=tests/support/block.sh
. "$(dirname "$0")/../../support/block.sh"
make_block packed tests/kernels/strips/packed_block.cpp
"$scratch/packed" 1 120
"$scratch/packed" 416 1 # sets of warps change, and the number of their turns does not
"$scratch/packed" 424 1 # eight shares in a join
