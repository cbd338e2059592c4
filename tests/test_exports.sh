#!/bin/sh
# test_exports.sh: libfigraph.so exports what its headers mark FIG_API, all of it and nothing else.
#
# Also: its soname is libfigraph.so.0, and it needs no driver to load.
set -eu
library=${BUILD:-build}/libfigraph.so
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sed -n 's/^FIG_API .*[ *]\(fig_[a-z0-9_]*\)(.*/\1/p' include/*.h | sort > "$scratch/declared"
[ "$(cat include/*.h | grep -c '^FIG_API')" -eq "$(wc -l < "$scratch/declared")" ] || {
    echo 'include: FIG_API stands before something that is no function'
    exit 1
}
if grep -nE '^[a-z_]+ .*fig_[a-z0-9_]+\(' include/*.h | grep -v ':template '; then
    echo 'include: a function without FIG_API, which nobody could link'
    exit 1
fi
nm -D --defined-only "$library" | awk '{ print $3 }' | sort > "$scratch/exported"
diff "$scratch/declared" "$scratch/exported" > "$scratch/differences" || {
    sed -n -e 's/^< \(.*\)/\1 is declared FIG_API and not exported/p' \
        -e 's/^> \(.*\)/\1 is exported and not declared FIG_API/p' "$scratch/differences"
    exit 1
}
readelf -d "$library" > "$scratch/dynamic"
grep -q 'SONAME.*\[libfigraph\.so\.0\]' "$scratch/dynamic" || {
    echo "$library: its soname is not libfigraph.so.0"
    exit 1
}
if grep 'NEEDED.*\[lib\(cuda\|nccl\)' "$scratch/dynamic"; then
    echo "$library: a driver is linked; it is to be opened at run time"
    exit 1
fi
