#!/bin/sh
# test_gpu_run.sh: tests that tests/gpu/run names only programs that exist, in which order it runs
# them, and what it records about parts that fail or that it does not reach.
#
# It runs in a copy of the folders that it needs. Programs there are scripts with the names of the
# sources, and print what CMocka would print.
set -u
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
BUILD=build/release LOGS=logs JOBS=2
export BUILD LOGS JOBS
tar -cf - --exclude=tests/golden tests tools/bench | tar -xf - -C "$scratch"
cd "$scratch" || exit 1
mkdir -p $BUILD/tests/gpu/attention

verdict() { # STATUS, EXPECTATION
    [ "$1" -eq 0 ] && return
    failures=$((failures + 1))
    echo "FAILED: $2; exit code $code, output:"
    tail -n 30 out
}
run() { # OPTION...
    code=0
    tests/gpu/run "$@" > out 2>&1 || code=$?
}
program() { # NAME, the script on stdin
    { echo '#!/bin/sh'; cat; } > "$1"
    chmod +x "$1"
}
has() { # TEXT: the results have this line
    grep -qxF -e "$1" $LOGS/RESULTS.md
    verdict $? "the results must have \"$1\""
}

find tests -name 'test_*.c' > sources
while read -r source; do
    name=${source##*/}
    echo 'echo "[  PASSED  ] 2 test(s)."' | program "$BUILD/tests/${name%.c}"
done < sources
for source in tests/gpu/*.c tests/gpu/*/*.c; do
    name=${source#tests/}
    echo 'echo "us,share"; echo "1,0.5"; echo "16 heads, all: mean share 0.9 of 2 cells" >&2' |
        program "$BUILD/tests/${name%.c}"
done
echo 'exit 1' | program build/figraph
tests=$(wc -l < sources)

run --list
[ $code -eq 0 ] && [ "$(head -n 1 out)" = $BUILD/tests/test_fetch ] &&
    [ "$(grep -c '/test_' out)" -eq "$tests" ] &&
    [ "$(sort -u out | wc -l)" -eq "$(wc -l < out)" ] &&
    ! grep -q '_bench$\|ranks_step\|scored_check' out &&
    grep -q '/gpu/soak$' out
verdict $? 'each program must be listed once, and those that tell most first'
rm $BUILD/tests/test_rope $BUILD/tests/gpu/share_bench
run --list
[ $code -ne 0 ] && grep -q test_rope out && grep -q gpu/share_bench out
verdict $? 'programs that are missing must be named'
echo 'echo "[  FAILED  ] 1 test(s)"; exit 1' | program $BUILD/tests/test_rope
echo 'echo "us"; exit 1' | program $BUILD/tests/gpu/share_bench

run --host --minutes 0
[ $code -eq 0 ]
verdict $? 'what is not reached must not count as failed'
has '- **not reached in the given time:**'
has '  - tests, host.hopper, first'
has '  - latent'
has '  - opening'

run --host --resume --minutes 5
[ $code -eq 1 ] && grep -q '^== latent$' out && grep -q '/test_rope .*FAILED' out
verdict $? 'a second run must do what the first did not reach, and a failure give the exit code'
has '- **failed:**'
has '  - tests, host.hopper, first'
has '  - share'
has '  - mixed'
has "- image hopper: $((2 * (tests - 1))) passed, 1 failed"
has '- latent attention, 16 heads, all: mean share 0.9 of 2 cells'
! grep -q '^  - latent$\|not reached' $LOGS/RESULTS.md
verdict $? 'what passed must not be named'
cp $LOGS/RESULTS.md before
run --host --resume
[ $code -eq 1 ] && ! grep -q '^== ' out && cmp -s before $LOGS/RESULTS.md
verdict $? 'a third run must do nothing, and have the same results'
[ "$(head -n 1 $LOGS/latent.csv)" = us,share,driver,date,commit ]
verdict $? 'a CSV must name driver, date and commit'

echo 'echo "[  PASSED  ] 1 test(s)."' | program $BUILD/tests/test_rope
run --host --minutes x
[ $code -eq 2 ]
verdict $? 'minutes must be a number'
run --host $BUILD/tests/test_rope
[ $code -eq 0 ] && grep -q '^1 passed, 0 failed$' out
verdict $? 'a program that is named must run alone'

exit $((failures > 0))
