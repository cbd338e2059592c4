#!/bin/sh
# test_ranks_soak.sh: ranks that are threads sum, normalise and gather many times on the host, and
# all must get the same bits.
#
# Runs tests/gpu/ranks_soak.c, which runs on GPUs too, with the other programs of its folder.
# Invariant: the last line is "N passed, N failed".
set -u
LC_ALL=C
export LC_ALL FIG_DEVICE=host
soak=${BUILD:-build}/release/tests/gpu/ranks_soak
passed=0
failed=0

if [ ! -x "$soak" ]; then
    echo "skipped: make $soak builds what this runs"
    exit 0
fi

for count in 1 2 4; do
    if timeout 600 "$soak" --ranks $count --steps 400 |
        grep -q "^ranks: $count ranks, .*: 400 steps .*: the same bits everywhere$"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $count ranks must have the same bits"
    fi
done

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
