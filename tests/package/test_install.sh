#!/bin/sh
# test_install.sh: tests that a program outside this tree can be built from the installed files.
#
# The test builds a program with the flags of figraph.pc, with the shared and with the static
# library. If there is nvcc, the static library must contain the kernels, and the shared one must
# have them in a library beside it. uninstall must leave no file. A build with other flags must work
# too. DESTDIR and PREFIX contain no spaces.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
make='env -u MAKEFLAGS make --no-print-directory VARIANT=release'

# Counts the -Werror flags in the command that compiles one object.
errors() {
    env -u CFLAGS -u CPPFLAGS $make -n -B NVCC= "$@" build/release/planner/status.o |
        grep -c -e -Werror || true
}
[ "$(errors)" = 1 ] && [ "$(errors CFLAGS=-O3)" = 0 ] && [ "$(errors CPPFLAGS=-DX)" = 0 ] || {
    echo "warnings are errors under own flags and no others: not so"
    exit 1
}

# A stand-in for ldconfig that prints a given list of libraries and records its arguments.
cat > "$scratch/ldconfig" << 'END'
#!/bin/sh
echo "called $*" >> "$0.log"
[ ! -e "$0.refuses" ] || exit 1
[ "${1:-}" != -p ] || cat "$0.list"
END
chmod +x "$scratch/ldconfig"
: > "$scratch/ldconfig.list"
export LDCONFIG="$scratch/ldconfig"

$make install PREFIX="$scratch/usr" > "$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
# Installing updates the loader's cache, or the last line of its log names what is left to do.
loader() { # WORD: the last line of the log contains it; "": the log does not mention the loader
    if [ -z "$1" ]; then
        ! grep -q 'the loader' "$scratch/log"
    else
        tail -n 1 "$scratch/log" | grep -q "$1"
    fi || { echo "of the loader's cache was said: $(tail -n 1 "$scratch/log")"; exit 1; }
}
grep -qx 'called ' "$scratch/ldconfig.log" || { echo 'ldconfig was not run'; exit 1; }
loader 'ld.so.conf'
touch "$scratch/ldconfig.refuses"
tools/package/loader_cache.sh "$scratch/usr/lib" > "$scratch/log"
loader 'as root'
rm "$scratch/ldconfig.refuses"
echo "    libfigraph.so.0 (libc6) => $scratch/usr/lib/libfigraph.so.0" > "$scratch/ldconfig.list"
tools/package/loader_cache.sh "$scratch/usr/lib" > "$scratch/log"
loader ''
rm "$scratch/ldconfig.log"
DESTDIR=$scratch/stage tools/package/loader_cache.sh /usr/lib > "$scratch/log"
loader ''
[ ! -e "$scratch/ldconfig.log" ] || { echo 'a staged install ran ldconfig'; exit 1; }

"$scratch/usr/bin/figraph" --help > /dev/null
"$scratch/usr/bin/figraph-launch" --help > /dev/null

# The manual pages describe every command and every part of bench; completion offers the words that
# help lists.
for name in figraph figraph-launch; do
    page=$scratch/usr/share/man/man1/$name.1
    head -n 1 "$page" | grep -q '^\.TH FIGRAPH'
    if command -v man > /dev/null; then
        man --warnings -l "$page" > "$scratch/page" 2> "$scratch/warnings"
        [ ! -s "$scratch/warnings" ] || { cat "$scratch/warnings"; exit 1; }
    fi
done
for command in $("$scratch/usr/bin/figraph" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    grep -q "^\.SH \"figraph $command\"" "$scratch/usr/share/man/man1/figraph.1" ||
        { echo "the manual has no figraph $command"; exit 1; }
done
grep -q '^\.SH "figraph bench replay"' "$scratch/usr/share/man/man1/figraph.1"
complete() { # WORD...: prints the completions of the last word
    bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _figraph "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf "%s\n" "${COMPREPLY[@]}"' \
        "$scratch/usr/share/bash-completion/completions/figraph" "$scratch/usr/bin/figraph" "$@"
}
offers() { # EXPECTED WORD...
    expected=$1
    shift
    offered=$(complete "$@" | xargs)
    [ "$offered" = "$expected" ] || { echo "for $* is offered: $offered"; exit 1; }
}
if command -v bash > /dev/null; then
    offers 'capture' cap
    offers '--page-size' capture --page
    offers 'replay' bench rep
    offers '--kv-dtype --kv-scales' bench attention --kv-
    offers 'h200 h100 host' plan --traits h
    offers 'tutorial' serve --preset tut
    offers 'svg' inspect x.fig --format s
fi

cat > "$scratch/program.c" << 'END'
#include <figraph_unstable.h>
#include <stdio.h>
int main(void) {
    fig_spec spec = {.size = sizeof spec};
    if (fig_spec_preset(&spec, "tutorial") != FIG_OK) return 1;
    return printf("%d\n", fig_version()) < 0;
}
END
# Reads the file as pkg-config does, so that the test does not need pkg-config.
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
# figraph-static.pc contains all of these flags, and a program that is built with it needs none of
# our libraries.
pc=$scratch/usr/lib/pkgconfig/figraph-static.pc
[ "$(value Version)" = "$version" ]
# shellcheck disable=SC2046
${CC:-gcc} "$scratch/program.c" $(value Cflags) $(value Libs) -o "$scratch/static"
"$scratch/static" > "$scratch/static.out"
cmp "$scratch/shared.out" "$scratch/static.out"
if readelf -d "$scratch/static" | grep 'NEEDED.*figraph'; then
    echo 'figraph-static.pc links the shared library'
    exit 1
fi

# CMake finds both libraries, and refuses a version that does not exist.
if command -v cmake > /dev/null; then
    mkdir "$scratch/cmake"
    cat > "$scratch/cmake/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.13)
project(program C)
find_package(figraph ${ASKED} REQUIRED)
add_executable(shared ../program.c)
target_link_libraries(shared figraph::figraph)
add_executable(static ../program.c)
target_link_libraries(static figraph::static)
END
    configure() { # VERSION
        cmake -S "$scratch/cmake" -B "$scratch/cmake/build" -DASKED="$1" \
            -DCMAKE_PREFIX_PATH="$scratch/usr" > "$scratch/log" 2>&1
    }
    configure "$version" && cmake --build "$scratch/cmake/build" > "$scratch/log" 2>&1 ||
        { cat "$scratch/log"; exit 1; }
    for kind in shared static; do
        LD_LIBRARY_PATH=$scratch/usr/lib "$scratch/cmake/build/$kind" > "$scratch/cmake.out"
        cmp "$scratch/shared.out" "$scratch/cmake.out"
    done
    for wrong in 99.0 0.1; do
        if configure "$wrong"; then
            echo "CMake takes figraph $version for $wrong"
            exit 1
        fi
    done
else
    echo 'skipped: no cmake'
fi

# An image without kernels has 48 bytes: a count of 0, padding, and 32 zero bytes in place of a
# hash.
all=$(awk '/^ *FAMILY.*[ _]ALL\)/ { n += 2 } /^ *FAMILY.*[ _]HOPPER\)/ { n++ } END { print n }' \
    kernels/table/operations.h)
case ${NVCC-unknown} in unknown) counts="0 $all" ;; '') counts=0 ;; *) counts=$all ;; esac
for library in "$scratch/usr/lib/libfigraph.a" "$scratch"/usr/lib/libfigraph_kernels-*.so; do
    nm -S "$library" > "$scratch/symbols" 2> /dev/null
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
