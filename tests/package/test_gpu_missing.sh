#!/bin/sh
# test_gpu_missing.sh: tests that `make test-gpu` on a machine without a GPU prints that there is
# none, and does nothing else.
#
# If the machine has a GPU, tests/gpu/run --find must find it.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
code=0
env -u MAKEFLAGS make --no-print-directory test-gpu NVCC= > "$scratch/out" 2> "$scratch/err" \
    < /dev/null &
if [ -e /dev/nvidia0 ] || [ -e /dev/dxg ] || nvidia-smi -L > /dev/null 2>&1; then
    kill $! # with a GPU, the tests would run for hours
    wait $! || true
    tests/gpu/run --find
    exit 0
fi
wait $! || code=$?
[ "$code" -ne 0 ] && [ ! -s "$scratch/out" ] &&
    [ "$(grep -c 'no GPU was found on this machine' "$scratch/err")" -eq 1 ] || {
    echo "make test-gpu without a GPU, exit code $code:"
    cat "$scratch/out" "$scratch/err"
    exit 1
}
