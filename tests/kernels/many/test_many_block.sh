#!/bin/sh
# test_many_block.sh: tests that blocks of the kernel for rows of many query tokens, emulated thread
# by thread, give the results of the reference kernel, and that none waits forever.
#
# Compiles the kernel's source for the CPU, which needs a C++ compiler.
# shellcheck source=tests/support/block.sh
. "$(dirname "$0")/../../support/block.sh"
make_block many tests/kernels/many/many_block.cpp
"$scratch/many" 1 60
"$scratch/many" 152 1 # bits would depend on whether warpgroups take turns
