#!/bin/sh
# empty_system.sh: tests that a wheel under 40 MB installs into a system with Python but without a
# compiler or GPU. The Python example of README.md must run there, and the programs must plan,
# capture and replay.
#
# Run it by hand and as root, since it uses chroot; `make test` installs the wheel into an empty
# virtual environment instead. If debootstrap cannot make such a system, use own_system.sh.
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
# without /proc, programs cannot find the libraries in their own folder
mountpoint -q "$system/proc" || {
    mount -t proc proc "$system/proc"
    trap 'umount "$system/proc"' EXIT
}
chroot "$system" sh -euc '
    PATH=/usr/bin:/bin
    cd /tmp/figraph
    . /etc/os-release
    for tool in cc gcc clang tcc nvcc nvidia-smi; do
        ! command -v $tool || { echo "this system has $tool"; exit 1; }
    done
    wheel_bytes=$(cat figraph-*.whl | wc -c)
    test "$wheel_bytes" -lt 40000000
    python3 -m venv venv
    venv/bin/pip install --quiet --no-index --disable-pip-version-check figraph-*.whl
    venv/bin/python readme.py
    PATH=$PWD/venv/bin:$PATH
    figraph plan --preset tutorial --kv 2x100 --traits h200 > plan.log
    figraph capture --preset tutorial -o own.fig
    figraph replay own.fig --steps 8 --check
    figraph serve tutorial.fig --requests 3 --fast --check > serve.log
    figraph-launch -n 2 -- true
    libc=$(python3 -c "import platform; print(*platform.libc_ver())")
    echo "$PRETTY_NAME, $(python3 -V), $libc"
    installed=$(du -sm venv/lib/python3*/site-packages/figraph | cut -f 1)
    echo "wheel of $wheel_bytes bytes, $installed MB installed: fine"'
