#!/bin/sh
# test_run.sh: tests that tests/run reports every way in which a program can fail, and counts the
# tests that passed.
#
# The programs here are scripts that print what CMocka would print.
set -u
run=$(pwd)/tests/run
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
mkdir -p build/release/tests tests
failures=0

program() { # NAME, the script on stdin
    { echo '#!/bin/sh'; cat; } > "$1"
    chmod +x "$1"
}

# expect CODE LAST_LINE PROGRAM...
expect() {
    expected=$1 last=$2
    shift 2
    code=0
    said=$(TEST_LIMIT_S=${limit:-600} "$run" -j2 "$@" 2>&1) || code=$?
    if [ $code -ne "$expected" ] || [ "$(printf '%s\n' "$said" | tail -n 1)" != "$last" ]; then
        failures=$((failures + 1))
        printf '%s: exit %d, expected %d and "%s" after:\n%s\n' "$*" $code "$expected" "$last" \
            "$said"
    fi
}

tests=build/release/tests
echo 'echo "[  PASSED  ] 3 test(s)."; echo "[  PASSED  ] 4 test(s)."' | program $tests/test_good
echo 'echo "[  PASSED  ] 3 test(s)."; echo "[  FAILED  ] tests: 2 test(s), listed below:"
echo "[  FAILED  ] the_1 test"; exit 2' |
    program $tests/test_failing
echo 'echo "[  PASSED  ] 3 test(s)."; exit 23' | program $tests/test_leaking
echo 'echo "[ RUN      ] one"; kill -SEGV $$' | program $tests/test_crashing
echo 'exit 0' | program $tests/test_empty
echo 'echo "[  PASSED  ] 1 test(s)."; sleep 3000' | program $tests/test_hanging
echo 'exit 0' | program tests/test_script.sh
echo 'echo from the script; exit 1' | program tests/test_broken.sh
echo 'echo "5 passed, 0 failed"' | program tests/test_counting.sh
echo 'echo "5 passed, 3 failed"; exit 1' | program tests/test_miscounting.sh
echo 'echo "5 passed, 0 failed"; exit 1' | program tests/test_lying.sh
echo 'echo "skipped: no such thing here"' | program tests/test_skipping.sh

expect 0 '8 passed, 0 failed' $tests/test_good tests/test_script.sh
expect 1 '10 passed, 2 failed' $tests/test_good $tests/test_failing
expect 1 '3 passed, 1 failed' $tests/test_leaking
expect 1 '7 passed, 1 failed' $tests/test_crashing $tests/test_good
expect 1 '7 passed, 1 failed' $tests/test_good $tests/test_empty
limit=5
expect 1 '1 passed, 1 failed' $tests/test_hanging
limit=
# What has not ended by a given time counts neither way, and is named.
TEST_UNTIL=$(($(date +%s) + 5))
export TEST_UNTIL
expect 0 '7 passed, 0 failed' $tests/test_good $tests/test_hanging
printf '%s\n' "$said" | grep -qx "not reached: $tests/test_hanging" || failures=$((failures + 1))
expect 0 '0 passed, 0 failed' $tests/test_good $tests/test_failing
[ "$(printf '%s\n' "$said" | grep -c '^not reached: ')" -eq 2 ] || failures=$((failures + 1))
unset TEST_UNTIL
expect 1 '0 passed, 1 failed' $tests/test_absent
expect 0 '6 passed, 0 failed' tests/test_script.sh tests/test_counting.sh
expect 1 '5 passed, 3 failed' tests/test_miscounting.sh
expect 1 '5 passed, 1 failed' tests/test_lying.sh
expect 1 '1 passed, 1 failed' tests/test_script.sh tests/test_broken.sh
case $said in
*'    from the script'*) ;;
*) failures=$((failures + 1)) && echo 'what a failing program printed is not shown' ;;
esac
expect 0 '1 passed, 0 failed' tests/test_skipping.sh
case $said in
*', 1 skipped'*'skipped: no such thing here'*) ;;
*) failures=$((failures + 1)) && echo 'what was skipped is not shown' ;;
esac
case $said in
*'skipped:'*'1 in tests/test_skipping.sh'*'no such thing here'*'1 programs took 0 min '*) ;;
*) failures=$((failures + 1)) && echo 'the end tells neither skips nor the time' ;;
esac
case $said in
*'host only: it is about the host'*) failures=$((failures + 1)) && echo 'shown of nobody' ;;
*) ;;
esac
echo 'echo "host only: it is about the host"; echo "ran: with such a thing"' |
    program tests/test_hosting.sh
expect 0 '1 passed, 0 failed' tests/test_hosting.sh
case $said in
*'host only: it is about the host'*) ;;
*) failures=$((failures + 1)) && echo 'what ran on the host alone is not shown' ;;
esac
case $said in
*'ran: with such a thing'*) ;;
*) failures=$((failures + 1)) && echo 'what was run with is not shown' ;;
esac

# Tests the options for other devices: skips count as failures, logs have a label, and programs run
# under a tool.
echo 'echo "[  PASSED  ] 2 test(s)."; echo "[  SKIPPED ] 3 test(s), listed below:"' |
    program $tests/test_half
echo 'echo under "$1"; exec "$2"' | program tool
expect 0 '2 passed, 0 failed' $tests/test_half
export TEST_SKIPS=fail TEST_LABEL=gpu TEST_TOOL='./tool well'
expect 1 '2 passed, 3 failed' $tests/test_half
expect 1 '1 passed, 1 failed' tests/test_skipping.sh
expect 0 '7 passed, 0 failed' $tests/test_good
grep -q 'under well' $tests/test_good.gpu.log || {
    failures=$((failures + 1))
    echo 'no log has the label, or no tool ran'
}

exit $((failures > 0))
