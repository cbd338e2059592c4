#!/bin/sh
# tally.sh: shared by tests that run other programs, each of which counts its own cases.
#
# Sourced by test_*.sh. Owns $scratch, which is removed when the test ends, and the counts
# that `finish` prints in the last line.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0

# check WHAT COMMAND...: runs the command. If its last line counts its cases, these are added; if
# not, the exit code counts as one case.
check() {
    what=$1
    shift
    "$@" > "$scratch/log" 2>&1
    code=$?
    last=$(tail -n 1 "$scratch/log")
    case $last in
    *' passed, '*' failed')
        passed=$((passed + ${last%% *}))
        more=${last#* passed, }
        failed=$((failed + ${more%% *}))
        ;;
    *) [ $code -ne 0 ] || passed=$((passed + 1)) ;;
    esac
    [ $code -eq 0 ] && return
    case $last in *' failed') ;; *) failed=$((failed + 1)) ;; esac
    echo "$what: exit code $code"
    sed 's/^/    /' "$scratch/log"
}

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}
