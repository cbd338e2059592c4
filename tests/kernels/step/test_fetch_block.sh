#!/bin/sh
# test_fetch_block.sh: repeats the tests of the fetch with the source of its kernel, whose block is
# emulated thread by thread.
#
# Compiles the kernel's source for the CPU, which needs a C++ compiler.
# shellcheck source=tests/support/block.sh
. "$(dirname "$0")/../../support/block.sh"
compile_block block.o tests/kernels/step/fetch_block.cpp -O2 -c
# shellcheck disable=SC2086 # words
for test in test_fetch test_fetch_damage test_fetch_tokens; do
    "${CC:-cc}" -std=c11 -D_POSIX_C_SOURCE=200809L -O1 -iquote . -Iinclude \
        "tests/kernels/step/$test.c" tests/support/kernels/fetch_bench.c \
        tests/support/kernels/reference.c tests/support/place.c "$scratch/block.o" \
        -Wl,--wrap=fig_fetch_reference -lcmocka -lstdc++ $libraries -o "$scratch/$test"
    "$scratch/$test" > "$scratch/log" 2>&1 || {
        cat "$scratch/log"
        exit 1
    }
    grep -E 'PASSED|runs of' "$scratch/log"
done
