#!/bin/sh
# test_exports.sh: each library exports what its headers mark FIG_API, all of it and nothing else.
#
# Also: their sonames, that they need no driver to load, and that libfigraph_ffi.so, beside what
# TVM FFI looks for in it, needs the C library alone and is never unloaded.
set -eu
library=${BUILD:-build}/libfigraph.so
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

wrong() {
    echo "$*"
    exit 1
}

own=$(find include -name '*.h' ! -name figraph_ffi.h)
[ "$(cat include/*.h | grep -c '^FIG_API')" -eq \
    "$(cat include/*.h | grep -c '^FIG_API .*[ *]fig_[a-z0-9_]*(')" ] ||
    wrong 'include: FIG_API stands before something that is no function'
if grep -nE '^[a-z_]+ .*fig_[a-z0-9_]+\(' include/*.h | grep -v ':template '; then
    wrong 'include: a function without FIG_API, which nobody could link'
fi

declared() { sed -n 's/^FIG_API .*[ *]\(fig_[a-z0-9_]*\)(.*/\1/p' "$@"; }

# check LIBRARY SONAME: exports the names in $scratch/declared, needs no driver.
check() {
    nm -D --defined-only "$1" | awk '{ print $3 }' | sort > "$scratch/exported"
    sort "$scratch/declared" | diff - "$scratch/exported" > "$scratch/differences" || {
        sed -n -e 's/^< \(.*\)/\1 is declared FIG_API and not exported/p' \
            -e 's/^> \(.*\)/\1 is exported and not declared FIG_API/p' "$scratch/differences"
        exit 1
    }
    readelf -d "$1" > "$scratch/dynamic"
    grep -q "SONAME.*\[$2\]" "$scratch/dynamic" || wrong "$1: its soname is not $2"
    if grep 'NEEDED.*\[lib\(cuda\|nccl\)' "$scratch/dynamic"; then
        wrong "$1: a driver is linked; it is to be opened at run time"
    fi
}

# shellcheck disable=SC2086 # paths in $own are words
declared $own > "$scratch/declared"
check "$library" libfigraph.so.0

# What the entries' list has, as TVM FFI asks for it.
{
    declared include/figraph_ffi.h
    sed -n 's/^    X(\([a-z0-9_]*\), .*/__tvm_ffi_\1/p' ffi/tvm_entries.c
} > "$scratch/declared"
grep -q __tvm_ffi_run "$scratch/declared" || wrong 'ffi/tvm_entries.c: no list of entries'
check "${BUILD:-build}/libfigraph_ffi.so" libfigraph_ffi.so.0
sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' "$scratch/dynamic" |
    grep -vE '^(lib(c|m|pthread)\.so\.6|libpthread\.so\.0|ld-linux-[a-z0-9-]*\.so\.[0-9])$' &&
    wrong 'libfigraph_ffi.so needs more than the C library'
grep -q NODELETE "$scratch/dynamic" || wrong 'libfigraph_ffi.so: captures would outlive it'
