#!/bin/sh
# test_ranks_step.sh: ranks that are processes run one step together on the host. All must get the
# same numbers. If one leaves or does something else, all others must report it in time.
#
# Each rank runs tests/gpu/ranks_step.c. tests/gpu/ranks_kills.sh kills ranks, as many as FIG_KILLS
# says. Invariant: the last line is "N passed, N failed".
set -u
LC_ALL=C
export LC_ALL FIG_DEVICE=host
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT FIG_SECRET FIG_PORT
rank=${BUILD:-build}/release/tests/gpu/ranks_step
launch=${BUILD:-build}/figraph-launch
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0

if [ ! -x "$rank" ] || [ ! -x "$launch" ]; then
    echo "skipped: make $rank $launch builds what this runs"
    exit 0
fi

verdict() { # STATUS, EXPECTATION: counts a pass if STATUS is 0
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $2; it said:"
        head -c 2000 "$scratch/out" | sed 's/^/    | /'
    fi
}
run() { # COUNT, then options for each rank
    count=$1
    shift
    code=0
    timeout 600 "$launch" -n "$count" -- "$rank" "$@" > "$scratch/out" 2>&1 || code=$?
}
says() {
    grep -q "$1" "$scratch/out"
    verdict $? "\"$1\" must be said"
}

for count in 1 2 4; do
    run $count --steps 50
    verdict $code "$count ranks must end well"
    [ "$(grep -c 'every number right' "$scratch/out")" -eq $count ]
    verdict $? "each of $count ranks must have had every number right"
done
run 4 --stray 7
[ $code -ne 0 ]
verdict $? 'a rank in another bucket must fail'
says 'in an exchange of step 8 rank 0 has bucket 2, rank 3 has 1'
run 2 --leave 5
[ $code -ne 0 ]
verdict $? 'a rank that leaves must end the others'
says 'rank 1 is gone'
says 'rank 0: closed after 0\.[0-4]'

RANKS=3 JOBS=2 MOMENTS_MS=300 tests/gpu/ranks_kills.sh "${FIG_KILLS:-6}" \
    > "$scratch/out" 2>&1
verdict $? 'ranks that are killed or stopped must end the others'

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
