#!/bin/sh
# test_install.sh: what is installed serves a program that knows nothing of this tree.
#
# A program is built by the flags of figraph.pc against the shared and the static library, the
# kernels are in both where NVCC says that they can be, and uninstall leaves no file behind. Flags
# of one's own build as well. DESTDIR and PREFIX have spaces in no part of them.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
make='env -u MAKEFLAGS make --no-print-directory VARIANT=release'

# counts how often one object's compiler is told that warnings are errors
errors() {
    env -u CFLAGS -u CPPFLAGS $make -n -B NVCC= "$@" build/release/planner/status.o |
        grep -c -e -Werror || true
}
[ "$(errors)" = 1 ] && [ "$(errors CFLAGS=-O3)" = 0 ] && [ "$(errors CPPFLAGS=-DX)" = 0 ] || {
    echo "warnings are errors under own flags and no others: not so"
    exit 1
}

$make install PREFIX="$scratch/usr" > "$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
"$scratch/usr/bin/figraph" --help > /dev/null
"$scratch/usr/bin/figraph-launch" --help > /dev/null

cat > "$scratch/program.c" << 'END'
#include <figraph_unstable.h>
#include <stdio.h>
int main(void) {
    fig_spec spec = {.size = sizeof spec};
    if (fig_spec_preset(&spec, "tutorial") != FIG_OK) return 1;
    return printf("%d\n", fig_version()) < 0;
}
END
# The file is read as pkg-config reads it, so that the test needs none.
pc=$scratch/usr/lib/pkgconfig/figraph.pc
value() {
    (
        eval "$(sed -n 's/^\([a-z]*=.*\)/\1/p' "$pc")"
        eval "echo \"$(sed -n "s/^$1: *//p" "$pc")\""
    )
}
version=$(awk '$2 == "FIG_VERSION" { v = $3
    print int(v / 10000) "." int(v / 100) % 100 "." v % 100 }' include/figraph.h)
[ "$(value Version)" = "$version" ]
[ "$(readlink -f "$scratch/usr/lib/libfigraph.so")" = "$scratch/usr/lib/libfigraph.so.$version" ]

# shellcheck disable=SC2046 # flags are words
${CC:-gcc} "$scratch/program.c" $(value Cflags) $(value Libs) -o "$scratch/shared"
LD_LIBRARY_PATH=$scratch/usr/lib "$scratch/shared" > "$scratch/shared.out"
# shellcheck disable=SC2046
${CC:-gcc} "$scratch/program.c" $(value Cflags) "$scratch/usr/lib/libfigraph.a" \
    $(value Libs.private) -o "$scratch/static"
"$scratch/static" > "$scratch/static.out"
cmp "$scratch/shared.out" "$scratch/static.out"

# An image without kernels is 48 bytes: a count of 0, padding, and 32 of no hash.
all=$(awk '$1 == "image" { n += 2 } $1 == "image_hopper" { n++ } END { print n }' kernels/images.S)
case ${NVCC-unknown} in unknown) counts="0 $all" ;; '') counts=0 ;; *) counts=$all ;; esac
for library in libfigraph.a libfigraph.so; do
    nm -S "$scratch/usr/lib/$library" > "$scratch/symbols" 2> /dev/null
    count=$(awk '$4 ~ /^fig_images_[a-z_]*_(plain|hopper)$/ && $2 !~ /^0*30$/ { n++ }
        END { print n + 0 }' "$scratch/symbols")
    case " $counts " in
    *" $count "*) ;;
    *) echo "$library has $count kernel images, not $counts" && exit 1 ;;
    esac
done

$make uninstall PREFIX="$scratch/usr" > /dev/null
left=$(find "$scratch/usr" ! -type d)
[ -z "$left" ] || { echo "uninstall left $left"; exit 1; }

$make install DESTDIR="$scratch/stage" PREFIX=/opt/figraph > /dev/null
grep -q '^prefix=/opt/figraph$' "$scratch/stage/opt/figraph/lib/pkgconfig/figraph.pc"
