#!/bin/sh
# test_exports.sh: tests that each library exports exactly the names that its headers mark FIG_API.
#
# It also tests the libraries' sonames; that they load without a driver; that our code calls
# nothing that ends a process; and that both take their kernels from libfigraph_kernels.so in
# their own folder. libfigraph_ffi.so also exports the names that TVM FFI looks for; it must need
# only libfigraph_kernels.so and the C library, and must never be unloaded.
set -eu
library=${BUILD:-build}/libfigraph.so
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

wrong() {
    echo "$*"
    exit 1
}

# A library must not end the process of its user: if an invariant is broken, the call fails. The
# archive holds our own code alone. libfigraph.so may also hold libraries of the bundle, which use
# assert.
ends_nothing() {
    nm --undefined-only "$1" | awk '{ sub(/@.*/, "", $2); print $2 }' |
        grep -xE '__assert_fail|__assert|abort|exit|_exit|_Exit|quick_exit|raise|kill' &&
        wrong "$1: it can end the process that loads it"
    return 0
}
ends_nothing "${BUILD:-build}/libfigraph.a"
ends_nothing "${BUILD:-build}/release/libfigraph_ffi.a"

own=$(find include -name '*.h' ! -name figraph_ffi.h)
[ "$(cat include/*.h | grep -c '^FIG_API')" -eq \
    "$(cat include/*.h | grep -c '^FIG_API .*[ *]fig_[a-z0-9_]*(')" ] ||
    wrong 'include: FIG_API stands before something that is no function'
if grep -nE '^[a-z_]+ .*fig_[a-z0-9_]+\(' include/*.h | grep -v ':template '; then
    wrong 'include: a function without FIG_API, which nobody could link'
fi

declared() { sed -n 's/^FIG_API .*[ *]\(fig_[a-z0-9_]*\)(.*/\1/p' "$@"; }

# check LIBRARY SONAME: it must export the names in $scratch/declared, and need no driver.
check() {
    nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort \
        > "$scratch/exported"
    sort "$scratch/declared" | diff - "$scratch/exported" > "$scratch/differences" || {
        sed -n -e 's/^< \(.*\)/\1 is declared FIG_API and not exported/p' \
            -e 's/^> \(.*\)/\1 is exported and not declared FIG_API/p' "$scratch/differences"
        exit 1
    }
    readelf -d "$1" > "$scratch/dynamic"
    grep -q "SONAME.*\[$2\]" "$scratch/dynamic" || wrong "$1: its soname is not $2"
    if grep 'NEEDED.*\[lib\(cuda\|nccl\)' "$scratch/dynamic"; then
        wrong "$1: a driver is linked; it must be opened at run time"
    fi
}

# The library's name contains a hash of its contents, so that two builds in one process each load
# their own.
kernels=${BUILD:-build}/libfigraph_kernels.so
name=$(readelf -d "$kernels" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
echo "$name" | grep -qx 'libfigraph_kernels-[0-9a-f]\{8\}\.so' ||
    wrong "$kernels: its soname is $name"
sed -n 's/^FIG_KERNELS_API .*[ *]\(fig_[a-z0-9_]*\)(.*/\1/p' kernels/table/images.h \
    > "$scratch/declared"
check "$kernels" "$name"
grep -q NODELETE "$scratch/dynamic" || wrong "$kernels: captures would outlive it"

# kernels_beside LIBRARY: LIBRARY takes its kernels from libfigraph_kernels in its own folder, and
# holds no images itself.
kernels_beside() {
    grep -q "NEEDED.*\[$name\]" "$scratch/dynamic" || wrong "$1 does not need $name"
    grep -qE '(RPATH|RUNPATH).*\[\$ORIGIN\]' "$scratch/dynamic" ||
        wrong "$1 does not look for $name beside itself"
    if nm "$1" | grep -E ' fig_images_[a-z_]*_(plain|hopper)$'; then wrong "$1 has kernels"; fi
}

# shellcheck disable=SC2086 # paths in $own are words
declared $own > "$scratch/declared"
check "$library" libfigraph.so.0
kernels_beside "$library"
# Every exported name has a version, and the map lists exactly the exported names.
nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $3 }' |
    grep -v '@@FIGRAPH_[0-9.]*$' && wrong 'a name is exported without a version'
sed -n 's/^ *\(fig_[a-z0-9_]*\);$/\1/p' tools/package/libfigraph.map | sort |
    diff - "$scratch/exported" ||
    wrong 'tools/package/libfigraph.map names what the library has not, or leaves out what it has'

# The declared names are those of figraph_ffi.h and one name per entry, in TVM FFI's form.
{
    declared include/figraph_ffi.h
    sed -n 's/^    X(\([a-z0-9_]*\), .*/__tvm_ffi_\1/p' ffi/tvm/tvm_entries.c
} > "$scratch/declared"
grep -q __tvm_ffi_run "$scratch/declared" || wrong 'ffi/tvm/tvm_entries.c: no list of entries'
check "${BUILD:-build}/libfigraph_ffi.so" libfigraph_ffi.so.0
sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' "$scratch/dynamic" |
    grep -vxF "$name" |
    grep -vE '^(lib(c|m|pthread)\.so\.6|libpthread\.so\.0|ld-linux-[a-z0-9-]*\.so\.[0-9])$' &&
    wrong 'libfigraph_ffi.so needs more than the C library'
grep -q NODELETE "$scratch/dynamic" || wrong 'libfigraph_ffi.so: captures would outlive it'
kernels_beside "${BUILD:-build}/libfigraph_ffi.so"
