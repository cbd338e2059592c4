#!/bin/sh
# empty_system.sh: a wheel installs into a system that has Python and no compiler, and the lines of
# README.md plan, capture and replay there.
#
# By hand and as root, since it changes its root; `make test` installs the wheel into an empty
# environment of this system instead.
#
#     debootstrap --variant=minbase --include=python3-venv bookworm ROOT
#     tests/python/empty_system.sh build/release/wheel/figraph-*.whl ROOT
set -eu
wheel=$1 system=$2
inside=$system/tmp/figraph
rm -rf "$inside"
mkdir -p "$inside"
cp "$wheel" "$inside"
awk '/^import figraph$/ { inside = 1 } /^```$/ { inside = 0 } inside' README.md \
    > "$inside/readme.py"
mountpoint -q "$system/proc" || { # without it no program finds a library that lies beside it
    mount -t proc proc "$system/proc"
    trap 'umount "$system/proc"' EXIT
}
chroot "$system" sh -euc '
    cd /tmp/figraph
    . /etc/os-release
    for compiler in cc gcc clang tcc; do
        ! command -v $compiler || { echo "this system has $compiler"; exit 1; }
    done
    python3 -m venv venv
    venv/bin/pip install --quiet --no-index figraph-*.whl
    venv/bin/python readme.py
    venv/bin/figraph serve tutorial.fig --requests 3 --fast --check > serve.log
    venv/bin/figraph-launch -n 2 -- true
    echo "$PRETTY_NAME, $(python3 -V), $(ldd --version | head -n 1): fine"'
