#!/bin/sh
# test_planning_block.sh: tests that a block of planning.cu, emulated thread by thread, writes the
# same plan as the reference kernel, and that no thread waits at a barrier forever.
#
# Compiles the kernel's source for the CPU, which needs a C++ compiler.
# shellcheck source=tests/support/block.sh
. "$(dirname "$0")/../../support/block.sh"
make_block planning tests/kernels/step/planning_block.cpp
"$scratch/planning" 100
