#!/bin/sh
# test_fetch_block.sh: repeats the tests of the fetch with the source of its kernel, whose block is
# emulated thread by thread.
#
# Compiles the kernel's source for the CPU, which needs a C++ compiler.
set -eu
compiler=${CXX:-c++}
library=${BUILD:-build}/libfigraph.a
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! command -v "$compiler" > /dev/null; then
    echo "skipped: there is no C++ compiler, $compiler"
    exit 0
fi
"$compiler" -std=c++17 -O2 -fno-strict-aliasing -U_FORTIFY_SOURCE -w -Wno-psabi -I. -Iinclude \
    -c tests/kernels/step/fetch_block.cpp -o "$scratch/block.o"
for test in test_fetch test_fetch_damage test_fetch_tokens; do
    "${CC:-cc}" -std=c11 -D_POSIX_C_SOURCE=200809L -O1 -iquote . -Iinclude \
        "tests/kernels/step/$test.c" tests/support/kernels/fetch_bench.c \
        tests/support/kernels/reference.c tests/support/place.c "$scratch/block.o" \
        -Wl,--wrap=fig_fetch_reference "$library" -lcmocka -lstdc++ -lzstd -ljansson -lhwloc -lm \
        -lpthread -o "$scratch/$test"
    "$scratch/$test" > "$scratch/log" 2>&1 || {
        cat "$scratch/log"
        exit 1
    }
    grep -E 'PASSED|runs of' "$scratch/log"
done
