#!/bin/sh
# test_python.sh: tests the Python package figraph: its wheel is complete, can be installed in an
# empty environment, and does what its documentation and README.md say.
#
# pip makes, opens and installs the wheel without a network. Arrays of numpy and JAX are tested in
# the newest environment of tools/jax, and figraph.torch in a Python that has torch. If either is
# missing, its tests count as skipped. Invariant: the last line is "N passed, N failed".
set -u
# shellcheck source=tests/support/tally.sh
. "$(dirname "$0")/../support/tally.sh"
root=$PWD
built=build/release/wheel

# ---- The archives --------------------------------------------------------------------------------
export PYTHONDONTWRITEBYTECODE=1
rm -f $built/*.whl $built/*.tar.gz
check 'make wheel' env -u MAKEFLAGS make --no-print-directory VARIANT=release wheel
wheel=$(echo $built/figraph-*.whl)
sdist=$(echo $built/figraph-*.tar.gz)
check "what is in $wheel" python3 tests/python/wheel_contents.py "$wheel"
[ $failed -eq 0 ] || finish

# The sdist contains everything that make needs.
mkdir "$scratch/sdist"
tar -x -f "$sdist" -C "$scratch/sdist" --strip-components=1
check "$sdist: the sources" env -u MAKEFLAGS make -n -C "$scratch/sdist/source" built
check "$sdist: the binding" python3 -c "import sys; sys.path.insert(0, '$scratch/sdist')
import backend; assert b'fig_engine_step' in backend.write_binding()"
mkdir "$scratch/pip"
check 'a wheel as pip asks for it' env -u MAKEFLAGS python3 -c "import sys
sys.path.insert(0, 'python'); import backend; print(backend.build_wheel('$scratch/pip'))"
check 'it is the same wheel' cmp "$wheel" "$scratch/pip/$(basename "$wheel")"

# ---- Installed -----------------------------------------------------------------------------------
python3 -m venv "$scratch/venv" > "$scratch/log" 2>&1 || {
    echo "skipped: python3 -m venv: $(tail -n 1 "$scratch/log")"
    finish
}
python=$scratch/venv/bin/python
check "pip install $wheel" "$python" -m pip install --quiet --no-index --no-compile "$wheel"
check 'figraph --version' test "$("$scratch/venv/bin/figraph" --version)" = \
    "$("${BUILD:-build}/figraph" --version)"
check 'figraph-launch' "$scratch/venv/bin/figraph-launch" -n 2 -- true
# Compares with the wheel's own program, since files record whether the library that wrote them has
# kernels.
check python_package.py "$python" tests/python/python_package.py "$scratch/venv/bin/figraph"
for name in python_integers.py python_lifetimes.py python_prompts.py python_scores.py; do
    check $name "$python" tests/python/$name
done

# README's example is plain Python of 6 lines, and must run.
awk '/^import figraph$/ { inside = 1 } /^```$/ { inside = 0 } inside' README.md \
    > "$scratch/readme.py"
check 'the lines of README.md' test "$(wc -l < "$scratch/readme.py")" -eq 6
check 'README.md in Python' sh -c "cd '$scratch' && FIG_DEVICE=host '$python' readme.py"
sed 's/^    //' "$scratch/log"

# ---- Beside numpy, JAX and torch -----------------------------------------------------------------
installed=$("$python" -c 'import figraph, os; print(os.path.dirname(figraph.__path__[0]))')
# The tests run XLA's code only for a moment, so compiling takes most of the time; therefore XLA
# does not optimize.
export JAX_PLATFORMS=cpu XLA_FLAGS=--xla_backend_optimization_level=0
# Compiling JAX's modules takes most of the time of its import, so what Python compiles is kept,
# beside the environments.
cache=$root/build/python/cache

# beside NAME TEST: runs a test in an environment of tools/jax
beside() {
    answer=$(tools/jax/environment.sh "$1" 2> "$scratch/log")
    case $? in
    0)
        eval "$answer"
        echo "ran: $2, JAX ${jax:?}"
        check "$2, JAX $jax" env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$cache" \
            PYTHONPATH="$PYTHONPATH:$installed" "$python" "$root/tests/python/$2"
        ;;
    3 | 4) echo "skipped: $2: $(cat "$scratch/log")" ;;
    *) check "tools/jax/environment.sh $1" false ;;
    esac
}

# The servers' wheels are too large to be downloaded, so a description of them is recorded as text.
# SERVER_WHEELS may name a folder with wheels, which are then read too.
check 'server_signatures.py' python3 tests/python/servers/server_signatures.py

# torch is too large to be downloaded for a test; an installed one is used.
torch_python=${TORCH_PYTHON:-python3}
if "$torch_python" -c 'import numpy, torch' > "$scratch/log" 2>&1; then
    echo "ran: python_torch.py, $("$torch_python" -c 'import torch; print(torch.__file__)')"
    for name in python_torch.py python_torch_servers.py python_torch_packed.py \
        python_torch_prompts.py python_torch_scores.py \
        python_torch_mistakes.py python_torch_step.py latents/python_torch_latent.py \
        latents/python_torch_latent_step.py servers/python_vllm.py \
        servers/python_vllm_prompts.py servers/python_vllm_latents.py \
        servers/python_sglang.py; do
        check "$name" env PYTHONPATH="$installed" "$torch_python" "tests/python/$name"
    done
else
    echo "skipped: python_torch.py: $torch_python has no torch; TORCH_PYTHON names one that has"
fi
beside newest python_arrays.py
beside newest python_jax.py
beside newest python_jax_packed.py
beside newest latents/python_jax_latent.py
beside newest latents/python_jax_latent_step.py
beside newest python_jax_scores.py
beside newest python_jax_step.py
beside newest python_jax_flash.py
beside newest python_jax_mistakes.py
beside jax-0.5.0 python_jax.py
beside jax-0.5.0 python_jax_packed.py
beside jax-0.5.0 latents/python_jax_latent.py
beside jax-0.5.0 latents/python_jax_latent_step.py
beside jax-0.5.0 python_jax_scores.py
beside jax-0.5.0 python_jax_step.py
beside jax-0.5.0 python_jax_mistakes.py
rm -rf "$cache$scratch" # what Python compiled of the package that was installed
finish
