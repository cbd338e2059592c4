#!/bin/sh
# setup.sh: install what building and testing need and this machine lacks.
#
# Looks for commands, headers and libraries rather than packages, so any system that has them
# passes. Installing is for Debian and Ubuntu. Invariant: where nothing is missing nothing is done,
# nothing is printed and no network is touched.
#
# Usage: tools/setup.sh [--check]
#   --check   list what is missing, install nothing
# Exit: 0 all is there; 1 something is missing (--check); 2 bad usage; 3 no apt-get;
#       4 neither root nor sudo; 5 apt-get failed

say() { echo "setup: $*"; }
fail() {
    code=$1
    shift
    say "$*" >&2
    exit "$code"
}

have_command() { command -v "$1" > /dev/null 2>&1; }

# have_library LIBRARY HEADER...: compiles and links, as the build will.
have_library() {
    library=$1
    shift
    have_command gcc || return 1
    {
        printf '#include <%s>\n' "$@"
        echo 'int main(void) { return 0; }'
    } | gcc -x c - "-l$library" -o /dev/null > /dev/null 2>&1
}

need() { missing="$missing${missing:+ }$1"; }

# Leaves in $missing the Debian packages of what is not here, as words.
find_missing() {
    missing=
    have_command gcc || need gcc
    have_command g++ || need g++
    have_command make || need make
    have_library zstd zstd.h || need libzstd-dev
    have_library hwloc hwloc.h || need libhwloc-dev
    have_library jansson jansson.h || need libjansson-dev
    have_library cmocka stdarg.h stddef.h stdint.h setjmp.h cmocka.h || need libcmocka-dev
    python3 -c 'import ensurepip, venv' > /dev/null 2>&1 || need python3-venv
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

apt() {
    as_root apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" > "$log" 2>&1
}

case $#:$1 in
0: | 1:--check) ;;
*) fail 2 "unknown argument \"$*\": usage is tools/setup.sh [--check]" ;;
esac

find_missing
[ -n "$missing" ] || exit 0
if [ "$1" = --check ]; then
    say "missing: $missing"
    exit 1
fi

have_command apt-get ||
    fail 3 "no apt-get here: install what Debian calls $missing by this system's own means"
[ "$(id -u)" -eq 0 ] || have_command sudo ||
    fail 4 "not root, and no sudo: run as root: apt-get install $missing"

log=$(mktemp) || fail 5 "no temporary file can be made"
trap 'rm -f "$log"' EXIT
say "reading package lists (apt-get update)"
apt update || say "apt-get update failed, going on with the lists there are: $(tail -n 1 "$log")"
say "installing $missing (apt-get install)"
# shellcheck disable=SC2086 # words of $missing are packages
apt install --no-install-recommends $missing ||
    fail 5 "apt-get install $missing failed: $(tail -n 1 "$log")"

find_missing
[ -z "$missing" ] || fail 5 "installed, yet still missing: $missing"
