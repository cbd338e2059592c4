#!/bin/sh
# setup.sh: installs missing packages that building and testing need.
#
# The script looks for commands, headers and libraries rather than packages, so it passes on any
# system that has them. It can install on Debian and Ubuntu. A bundle is a set of static libraries
# in .deps/ of the checkout: make it here and copy it with the checkout to a machine that cannot
# install packages. Invariant: if nothing is missing, or if there is a bundle, the script does
# nothing, prints nothing and needs no network.
#
# Usage: tools/setup.sh [--check | --test | --bundle]
#   --check    list what is missing, install nothing
#   --test     install what `make test` also needs: a second compiler and linker, another launcher
#   --bundle   make .deps/ anew, install nothing; needs no root
# Exit: 0 all is there; 1 something is missing (--check), or no bundle was made; 2 bad usage;
#       3 no apt-get; 4 neither root nor sudo; 5 apt-get failed

say() { echo "setup: $*"; }
fail() {
    code=$1
    shift
    say "$*" >&2
    exit "$code"
}

have_command() { command -v "$1" > /dev/null 2>&1; }

# have_library LIBRARY HEADER...: compiles and links a program with the library, as the build will.
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

# Sets $missing to the names of the Debian packages that this machine lacks.
find_missing() { # OPTION: --test also looks for what tests need
    missing=
    have_command gcc || need gcc
    have_command g++ || need g++
    have_command make || need make
    [ "$1" != --test ] || have_command clang || need clang
    [ "$1" != --test ] || have_command ld.lld || need lld
    [ "$1" != --test ] || have_command mpirun || need openmpi-bin
    have_library zstd zstd.h && have_library :libzstd.a zstd.h || need libzstd-dev
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

# ---- The bundle ----------------------------------------------------------------------------------

# Runs apt-get on separate package lists, which hold only source packages, so it needs no root.
apt_aside() {
    apt-get -q -y -o "Dir::Etc::SourceList=$work/sources.list" \
        -o "Dir::Etc::SourceParts=$work/parts" -o "Dir::State::Lists=$work/lists" \
        -o "Dir::Cache=$work/cache" -o Acquire::Languages=none -o APT::Sandbox::User=root \
        "$@" > "$log" 2>&1
}

# Writes package lists that name the source packages of the mirrors that this system uses.
list_sources() {
    mkdir -p "$work/parts" "$work/lists/partial" "$work/cache/archives/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ ! -f "$file" ] || sed -n 's/^deb /deb-src /p' "$file"
    done > "$work/sources.list"
    for file in /etc/apt/sources.list.d/*.sources; do
        name=${file##*/}
        [ ! -f "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" > "$work/parts/$name"
    done
}

# Unpacks a source package and keeps its license, because a wheel that contains the library must
# contain the license too.
unpack() {
    mkdir "$work/$1" && cd "$work/$1" &&
        tar -x -f "$work/$1"_*.orig.tar.*[z2] --strip-components=1 &&
        for license in LICENSE COPYING; do
            [ ! -f $license ] || { cp $license "$new/licenses/$1" && break; }
        done
}

# compile ARGUMENT...: defines the features that every system with glibc and gcc has, so that no
# configure script has to run.
compile() {
    for has in MALLOC_H INTTYPES_H SIGNAL_H STRINGS_H STDINT_H UNISTD_H FCNTL_H SCHED_H SYS_STAT_H \
        SYS_TIME_H SYS_TYPES_H CLOCK_GETTIME CLOCK_REALTIME STRUCT_TIMESPEC GETTIMEOFDAY GETPID \
        STRSIGNAL SIGLONGJMP LOCALECONV SCHED_YIELD OPEN READ CLOSE ATOMIC_BUILTINS \
        GCC_THREAD_LOCAL_STORAGE; do
        set -- "$@" "-DHAVE_$has"
    done
    gcc -O2 -fPIC -w -c "$@"
}

# The libraries are built from source. For one of them Debian has no static library, and Debian's
# static libraries of the others cannot be linked into a shared library.
build_cmocka() {
    unpack cmocka && compile -Iinclude src/cmocka.c && ar rcs "$new/lib/libcmocka.a" ./*.o &&
        cp include/cmocka*.h "$new/include"
}

build_jansson() {
    unpack jansson && : > src/jansson_private_config.h &&
        sed -e 's/@json_inline@/inline/' -e 's/@json_have_[a-z_]*@/1/' src/jansson_config.h.in \
            > src/jansson_config.h &&
        compile src/*.c && ar rcs "$new/lib/libjansson.a" ./*.o &&
        cp src/jansson.h src/jansson_config.h "$new/include"
}

# hwloc's own configure script makes too many decisions to be replaced here. This build of hwloc
# only finds cores and memory, and so needs no other library.
build_hwloc() {
    unpack hwloc &&
        sh ./configure CFLAGS='-O2 -fPIC' --disable-shared --enable-static --disable-io \
            --disable-libxml2 --disable-libudev --disable-cairo && make -C hwloc &&
        cp hwloc/.libs/libhwloc.a "$new/lib" && mkdir -p "$new/include/hwloc/autogen" &&
        cp include/hwloc.h "$new/include" && cp include/hwloc/*.h "$new/include/hwloc" &&
        cp include/hwloc/autogen/*.h "$new/include/hwloc/autogen"
}

build_zstd() {
    unpack libzstd && cd lib && compile -DZSTD_DISABLE_ASM common/*.c compress/*.c decompress/*.c &&
        ar rcs "$new/lib/libzstd.a" ./*.o && cp zstd*.h "$new/include"
}

make_bundle() {
    for command in apt-get gcc make ar tar xz gzip bzip2; do
        have_command $command || fail 1 "no bundle was made: the command $command is missing"
    done
    work=$(mktemp -d "$root/.deps.XXXXXX" 2> /dev/null) ||
        fail 1 "no bundle was made: nothing can be written to $root"
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    log=$work/log new=$work/new
    mkdir -p "$new/include" "$new/lib" "$new/licenses"
    list_sources
    apt_aside update || : # one mirror of many may fail; this matters only if the download fails too
    trouble=$(grep -m 1 '^[EW]: ' "$log")
    (cd "$work" && apt_aside source --download-only cmocka hwloc jansson libzstd) ||
        fail 1 "no bundle was made: a download failed: ${trouble:-$(tail -n 1 "$log")}"
    for library in cmocka hwloc jansson zstd; do
        (build_$library) > "$log" 2>&1 || fail 1 "no bundle was made: $library does not build: $(
            grep -m 1 -i error "$log" || tail -n 1 "$log"
        )"
    done
    rm -rf "$root/.deps"
    mv "$new" "$root/.deps" || fail 1 "no bundle was made: $root/.deps cannot be written"
    size=$(du -sk "$root/.deps" | cut -f 1)
    say ".deps/ holds static cmocka, hwloc, jansson and zstd, $size KiB"
}

# ---- Arguments -----------------------------------------------------------------------------------

root=$(cd "$(dirname "$0")/.." && pwd)
case $#:$1 in
0: | 1:--check | 1:--test) [ ! -d "$root/.deps" ] || exit 0 ;;
1:--bundle)
    make_bundle
    exit 0
    ;;
*) fail 2 "unknown argument \"$*\": usage is tools/setup.sh [--check | --test | --bundle]" ;;
esac

find_missing "$1"
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

find_missing "$1"
[ -z "$missing" ] || fail 5 "installed, yet still missing: $missing"
