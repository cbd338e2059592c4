#!/bin/sh
# test_scored_prompt_block.sh: tests that blocks of scored_prompt.cu, emulated thread by thread,
# give the results of the reference kernel, and that no thread waits at a barrier forever.
#
# Compiles the kernel's source for the CPU, which needs a C++ compiler.
# shellcheck source=tests/support/block.sh
. "$(dirname "$0")/../../support/block.sh"
make_block prompt tests/kernels/wide/scored_prompt_block.cpp
"$scratch/prompt" 48
