#!/bin/sh
# test_latent_block.sh: tests that blocks of the latent kernels, emulated thread by thread, give the
# results of the reference kernels, and that no thread waits at a barrier forever.
#
# Compiles the kernels' sources for the CPU, which needs a C++ compiler.
# shellcheck source=tests/support/block.sh
. "$(dirname "$0")/../../support/block.sh"
folder=tests/kernels/latent
make_block latent $folder/latent_block.cpp
make_block leave $folder/latent_leave_block.cpp
make_block decode $folder/latent_decode_block.cpp
make_block narrow $folder/warpgroup_block.cpp -DNARROW
make_block short $folder/warpgroup_block.cpp -DSHORT
make_block codes $folder/warpgroup_block.cpp -DCODES
make_block wide $folder/warpgroup_block.cpp -DWIDE
make_block pair $folder/warpgroup_block.cpp -DPAIR
"$scratch/latent" 6
"$scratch/leave" 40
"$scratch/decode" 40
"$scratch/narrow" 1 20
"$scratch/short" 1 4
"$scratch/codes" 1 20
"$scratch/wide" 1 8
"$scratch/pair" 1 3
