#!/bin/sh
# environment.sh: makes a Python environment from packages with fixed versions and hashes.
#
# An environment is a virtual environment with the packages that all versions of JAX share, and a
# folder with JAX's own packages that comes first in PYTHONPATH. Folders that already match the lock
# files are used as they are. Invariant: every installed package has its hash in tools/jax/locks.
#
# Usage: tools/jax/environment.sh NAME   NAME: a file of tools/jax/locks, without .txt, or "newest",
#                                        the newest JAX that this Python supports
#   FIG_PYTHON   the Python to use; default: python3 or the newest python3.N, from 3.11 on
# Prints a line for eval that sets python, PYTHONPATH and jax (the version of JAX).
# Exit: 0; 1 installing failed; 2 bad usage; 3 no Python from 3.11 on; 4 the packages are not
# available: no network, or none for this machine
set -u
locks=$(cd "$(dirname "$0")" && pwd)/locks
root=$(cd "$locks/../../.." && pwd)

fail() {
    code=$1
    shift
    echo "environment: $*" >&2
    exit "$code"
}

version_of() {
    "$1" -c 'import sys; sys.version_info >= (3, 11) and print("%d.%d" % sys.version_info[:2])' \
        2> /dev/null
}

find_python() {
    for python in ${FIG_PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        version=$(version_of "$python")
        [ -z "$version" ] || return 0
    done
    fail 3 "no Python from 3.11 on: tried ${FIG_PYTHON:-python3 and python3.11 to python3.14}"
}

# install PIP LOCK ARGUMENT...
install() {
    pip=$1 lock=$2
    shift 2
    "$pip" install --quiet --no-compile --no-deps --require-hashes --only-binary :all: \
        --disable-pip-version-check "$@" -r "$lock" > "$log" 2>&1 && return 0
    trouble=$(grep -m 1 -i error "$log" || tail -n 1 "$log")
    grep -q -i 'hash' "$log" && fail 1 "$(basename "$lock"): $trouble"
    grep -q -e 'No matching distribution' -e 'Could not find a version' -e 'onnection' "$log" &&
        fail 4 "$(basename "$lock"): $trouble"
    fail 1 "$(basename "$lock"): $trouble"
}

# is_fresh FOLDER LOCK: succeeds if the folder matches the lock.
is_fresh() { [ -f "$1/.lock" ] && cmp -s "$1/.lock" "$2"; }

[ $# -eq 1 ] || fail 2 "usage: tools/jax/environment.sh NAME"
find_python
name=$1
if [ "$name" = newest ]; then
    name=jax-0.12.0.1
    [ "$version" != 3.11 ] || name=jax-0.10.2
fi
[ -f "$locks/$name.txt" ] || fail 2 "no environment \"$name\": there is no $locks/$name.txt"

home=$root/build/python/$version
base=$home/.venv
mkdir -p "$home"
exec 9> "$home/.busy" && flock 9 # two tests may ask at once
log=$(mktemp) || fail 1 "no temporary file can be made"
trap 'rm -f "$log"' EXIT
if ! is_fresh "$base" "$locks/common.txt"; then
    rm -rf "$base"
    "$python" -m venv "$base" > "$log" 2>&1 || fail 1 "$python -m venv: $(tail -n 1 "$log")"
    install "$base/bin/pip" "$locks/common.txt"
    cp "$locks/common.txt" "$base/.lock"
fi
if ! is_fresh "$home/$name" "$locks/$name.txt"; then
    rm -rf "${home:?}/$name"
    install "$base/bin/pip" "$locks/$name.txt" --target "$home/$name"
    cp "$locks/$name.txt" "$home/$name/.lock"
fi
jax=$(sed -n 's/^jaxlib==\([0-9.]*\).*/\1/p' "$locks/$name.txt")
echo "python='$base/bin/python' PYTHONPATH='$home/$name' jax=$jax; export PYTHONPATH"
