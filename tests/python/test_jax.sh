#!/bin/sh
# test_jax.sh: tests libfigraph_ffi.so in Python, with the versions of JAX and TVM FFI that its
# users have.
#
# The library is laid out as the wheel installs it. XLA's targets run on the oldest supported JAX
# and on the newest that this Python supports; TVM FFI's functions and the whole tutorial run on the
# JAX that jax-tvm-ffi needs; all on the CPU. Our declarations of each ABI are compared with the
# ABI's own headers. The environments consist of packages with fixed versions and hashes. If an
# environment's Python or the network is missing, its tests count as skipped.
set -u
# shellcheck source=tests/support/tally.sh
. "$(dirname "$0")/../support/tally.sh"

# Every entry, and every name that an entry asks for, must be in the documentation.
documented() {
    missing=$(sed -n 's/.*fig_xla_call_[a-z_]*(call, "\([a-z0-9_]*\)".*/`\1/p' \
        ffi/xla/xla_entries.c | sort -u |
        while read -r name; do grep -qF "$name" tools/jax/TARGETS.md || echo "$name"; done
    sed -n 's/^    X(\([a-z0-9_]*\)[,)].*/\1/p' ffi/xla/xla_entries.c ffi/tvm/tvm_entries.c |
        while read -r name; do grep -qw "$name" tools/jax/TARGETS.md || echo "$name"; done)
    [ -z "$missing" ] || { echo "tools/jax/TARGETS.md lacks $missing"; return 1; }
}

# enter NAME: makes and enters an environment; if it cannot be made, prints the reason and returns
# 1.
enter() {
    answer=$(tools/jax/environment.sh "$1" 2> "$scratch/log")
    code=$?
    case $code in
    0) ;;
    3 | 4)
        echo "skipped: $1: $(cat "$scratch/log")"
        return 1
        ;;
    *)
        failed=$((failed + 1))
        cat "$scratch/log"
        return 1
        ;;
    esac
    eval "$answer"
    PYTHONPATH=$PYTHONPATH:$scratch/package
    include=${PYTHONPATH%%:*}
    echo "ran: $("$python" -V), jaxlib $jax: $2"
}

abi() { # HEADER SOURCE
    check "$2" "${CC:-gcc}" -std=c11 -Wall -Wextra -Werror -iquote . -isystem "$1" -fsyntax-only \
        "$2"
}

"${BUILD:-build}/figraph" capture --preset tutorial --layers 1 -o "$scratch/tutorial.fig" \
    > "$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
check "environment.sh without a name" test "$(tools/jax/environment.sh 2>&1 || echo $?)" = "\
environment: usage: tools/jax/environment.sh NAME
2"
check TARGETS.md documented
check 'the package' python3 python/backend.py stage "${BUILD:-build}" "$scratch/package"
# The tests run XLA's code only for a moment, so compiling takes most of the time; therefore XLA
# does not optimize.
export JAX_PLATFORMS=cpu XLA_FLAGS=--xla_backend_optimization_level=0
# Compiling JAX's modules takes most of the time of its import, so what Python compiles is kept,
# beside the environments.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$PWD/build/python/cache"

for name in jax-0.5.0 newest; do
    enter $name "XLA targets" || continue
    abi "$include/jaxlib/include" tests/jax/abi_xla.c
    check "xla_targets.py, jaxlib $jax" "$python" tests/jax/xla_targets.py "$scratch/tutorial.fig"
done
if enter tvm-0.1.3 "TVM FFI, jax-tvm-ffi and the tutorial"; then
    abi "$include/jaxlib/include" tests/jax/abi_xla.c
    abi "$include/tvm_ffi/include" tests/jax/abi_tvm.c
    check tvm_functions.py "$python" tests/jax/tvm_functions.py
    check tutorial.py "$python" tools/jax/tutorial.py
fi
rm -rf "$PYTHONPYCACHEPREFIX$scratch" # what Python compiled of the package
finish
