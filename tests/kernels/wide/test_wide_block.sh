#!/bin/sh
# test_wide_block.sh: tests that blocks of the warpgroup kernel, emulated thread by thread, give the
# results of the reference kernel, and that none waits forever.
#
# Compiles the kernel's source for the CPU, which needs a C++ compiler.
# shellcheck source=tests/support/block.sh
. "$(dirname "$0")/../../support/block.sh"
make_block wide tests/kernels/wide/wide_block.cpp
"$scratch/wide" 80 20
"$scratch/wide" 35 1 # the logits of a row are all far below 0
"$scratch/wide" 450 2 # in 451 a warpgroup would pass the loads if it did not wait for them
"$scratch/wide" 1000 3 # prefixes of more than 32 pieces
"$scratch/wide" 2000 2 # more rows than a list holds
