#!/bin/sh
# test_setup.sh: tests setup.sh on machines that lack something, with stand-ins for the system's
# programs.
#
# PATH contains only what a case provides, so nothing is installed and no network is used. setup.sh
# looks for a bundle in its own checkout, so the test runs a copy in a folder of its own. A stand-in
# for apt-get "installs" a gcc that accepts every program, or "downloads" sources with one line per
# file.
set -u
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/checkout
mkdir -p "$root/tools" "$scratch/sources"
cp tools/setup.sh "$root/tools"
failures=0

wrong() {
    failures=$((failures + 1))
    printf '%s: %s\n' "$case" "$*"
}

stand_in() { # NAME, the script on stdin
    { echo '#!/bin/sh'; cat; } > "$bin/$1"
    chmod +x "$bin/$1"
}

# Makes a machine with sh and the essential commands, without a compiler, apt-get or root.
bare_machine() {
    bin=$(mktemp -d "$scratch/bin.XXXXXX")
    for command in sh cat chmod dirname env ln mktemp rm tail; do
        ln -s "$(command -v $command)" "$bin/$command"
    done
    echo 'echo 1000' | stand_in id
}

complete_machine() {
    for command in gcc g++ make python3; do echo 'exit 0' | stand_in $command; done
}

working_apt() {
    stand_in apt-get << END
echo "\$*" >> "$bin/apt.log"
case "\$*" in *install*)
    for command in gcc g++ make python3; do ln -s "$bin/apt-get" "$bin/\$command"; done ;;
esac
END
}

# expect CODE PATTERN [ARGUMENT]: runs setup.sh on that machine; a line that it prints must match
# PATTERN.
expect() {
    expected=$1 pattern=$2
    shift 2
    code=0
    said=$(PATH=$bin "$bin/sh" "$root/tools/setup.sh" "$@" 2>&1 < /dev/null) || code=$?
    if [ $code -ne "$expected" ] || ! printf '%s\n' "$said" | grep -qE "$pattern"; then
        wrong "exit $code, not $expected, having said: $said"
    fi
}

case='where all is there, nothing is said or done'
bare_machine
complete_machine
echo 'exit 9' | stand_in apt-get
expect 0 '^$'

case='tests need a second compiler, linker and launcher, and nothing else does'
bare_machine
complete_machine
expect 3 '^setup: no apt-get here: install what Debian calls clang lld openmpi-bin by' --test
expect 0 '^$'
echo 'exit 0' | stand_in clang
expect 3 '^setup: no apt-get here: install what Debian calls lld openmpi-bin by' --test
echo 'exit 0' | stand_in ld.lld
expect 3 '^setup: no apt-get here: install what Debian calls openmpi-bin by' --test
echo 'exit 0' | stand_in mpirun
expect 0 '^$' --test

case='--check lists what is missing'
bare_machine
expect 1 '^setup: missing: gcc g\+\+ make libzstd-dev .*python3-venv$' --check

case='an unknown argument is bad usage'
expect 2 '^setup: unknown argument "--chekc": usage is' --chekc

case='without apt-get the packages are named'
expect 3 '^setup: no apt-get here: install .*libcmocka-dev'

case='without root and sudo it says what to run'
working_apt
expect 4 '^setup: not root, and no sudo: run as root: apt-get install gcc '

case='a failing apt-get is reported with its last line'
echo 'echo 0' | stand_in id
echo 'echo "E: no such mirror"; exit 100' | stand_in apt-get
expect 5 '^setup: apt-get install gcc .* failed: E: no such mirror$'

case='an apt-get that installs nothing is noticed'
echo 'exit 0' | stand_in apt-get
expect 5 '^setup: installed, yet still missing: gcc'

case='as root it installs what is missing, and the second run does nothing'
working_apt
expect 0 '^setup: installing gcc g\+\+ .*\(apt-get install\)$'
grep -q ' install --no-install-recommends gcc g++ make ' "$bin/apt.log" ||
    wrong "apt-get was not asked for gcc"
expect 0 '^$'

case='a user installs through sudo'
bare_machine
working_apt
printf 'echo sudo >> "%s/sudo.log"\nexec "$@"\n' "$bin" | stand_in sudo
expect 0 '^setup: installing '
[ "$(grep -c sudo "$bin/sudo.log")" -eq 2 ] || wrong "apt-get was not run through sudo twice"


# ---- The bundle

# Makes a machine with the real tools, except gcc, whose stand-in writes its arguments to the object
# file.
bundling_machine() {
    bare_machine
    for command in cp cut du grep gzip mkdir mv sed tar xz; do
        ln -s "$(command -v $command)" "$bin/$command"
    done
    stand_in gcc << 'END'
for argument; do
    case $argument in *.c) echo "$*" > "$(basename "$argument" .c).o" ;; esac
done
END
    ln -s "$(command -v basename)" "$bin/basename"
    stand_in make << 'END'
[ "$1" = -C ] && mkdir "$2/.libs" && echo archive > "$2/.libs/libhwloc.a"
END
    echo 'exit 9' | stand_in bzip2 # fails if it is called: none of the sources is packed with bzip2
    stand_in ar << 'END'
[ "$1" = rcs ] && archive=$2 && shift 2 && cat "$@" > "$archive"
END
    stand_in apt-get << END
echo "\$*" >> "$bin/apt.log"
case "\$*" in *"source --download-only"*) cp "$scratch/sources/"* . ;; esac
END
}

# source_package NAME FILE...: makes a source package like a distribution's, with one line in each
# file.
source_package() {
    name=$1
    shift
    for file; do
        mkdir -p "$scratch/$name-1/$(dirname "$file")"
        echo "$file" > "$scratch/$name-1/$file"
    done
    tar -c -z -f "$scratch/sources/${name}_1.orig.tar.gz" -C "$scratch" "$name-1"
    echo signature > "$scratch/sources/${name}_1.orig.tar.gz.asc"
}
source_package cmocka src/cmocka.c include/cmocka.h
source_package hwloc hwloc/bind.c include/hwloc.h include/hwloc/bitmap.h \
    include/hwloc/autogen/config.h configure
echo ': > configured' > "$scratch/hwloc-1/configure"
source_package hwloc include/hwloc/helper.h
source_package libzstd lib/common/a.c lib/compress/b.c lib/decompress/c.c lib/zstd.h COPYING LICENSE
source_package jansson src/dump.c src/jansson.h
echo '#define JSON_INLINE @json_inline@' > "$scratch/jansson-1/src/jansson_config.h.in"
source_package jansson src/load.c

# left_alone NAMES: NAMES must be the only folders of bundles (.deps*).
left_alone() {
    there=$(cd "$root" && echo .deps*)
    [ "$there" = "$1" ] || wrong "there is $there, not $1"
}

case='a bundle needs a compiler'
bare_machine
working_apt
expect 1 '^setup: no bundle was made: the command gcc is missing$' --bundle
left_alone '.deps*'

case='a bundle needs make, which hwloc is built with'
bundling_machine
rm "$bin/make"
expect 1 '^setup: no bundle was made: the command make is missing$' --bundle
left_alone '.deps*'

case='a bundle whose download fails is one sentence and leaves nothing'
bundling_machine
echo 'echo "E: no such mirror"; exit 100' | stand_in apt-get
expect 1 '^setup: no bundle was made: a download failed: E: no such mirror$' --bundle
[ "$(printf '%s\n' "$said" | wc -l)" -eq 1 ] || wrong "it said more: $said"
left_alone '.deps*'

case='a bundle holds each library and its headers, and needs no root'
bundling_machine
expect 0 '^setup: \.deps/ holds static cmocka, hwloc, jansson and zstd, [0-9]+ KiB$' --bundle
for file in lib/libcmocka.a lib/libhwloc.a lib/libjansson.a lib/libzstd.a include/cmocka.h \
    include/hwloc.h include/hwloc/bitmap.h include/hwloc/autogen/config.h include/jansson.h \
    include/jansson_config.h include/zstd.h licenses/libzstd; do
    [ -s "$root/.deps/$file" ] || wrong "no $file"
done
grep -qx LICENSE "$root/.deps/licenses/libzstd" || wrong "zstd's license is not the one it is under"
grep -q 'INLINE inline$' "$root/.deps/include/jansson_config.h" || wrong "jansson is not configured"
left_alone .deps

case='where a bundle is, nothing is asked of the system'
bare_machine
echo 'exit 9' | stand_in apt-get
expect 0 '^$'
expect 0 '^$' --check

case='a bundle that does not build says where and leaves the one before'
bundling_machine
echo 'echo "dump.c: error: no"; echo "compilation terminated."; exit 1' | stand_in gcc
expect 1 '^setup: no bundle was made: cmocka does not build: dump\.c: error: no$' --bundle
left_alone .deps
[ -s "$root/.deps/lib/libzstd.a" ] || wrong "the bundle before is gone"

exit $((failures > 0))
