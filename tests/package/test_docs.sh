#!/bin/sh
# test_docs.sh: tests that the programs and commands in README.md and docs/ run, and that the files,
# links and make targets that they name exist.
#
# If FIG_DEVICE is cuda, as in tests/gpu/run, the blocks marked "on a GPU" run too.
set -u
# shellcheck source=tests/support/tally.sh
. "$(dirname "$0")/../support/tally.sh"
[ "${FIG_DEVICE:-}" = cuda ] || unset FIG_DEVICE
export PYTHONDONTWRITEBYTECODE=1

check 'README.md has at most 200 lines' test "$(wc -l < README.md)" -le 200
check 'README.md has at most 12 KB' test "$(wc -c < README.md)" -le 12288
check 'the Python package' python3 python/backend.py stage "${BUILD:-build}" "$scratch/package"
export PYTHON=python3 PYTHONPATH="$scratch/package${PYTHONPATH:+:$PYTHONPATH}"
check 'the pages' python3 -B tests/package/docs_blocks.py "${BUILD:-build}"
# The test can fail: it notices a wrong program, command or link.
mkdir -p "$scratch/docs"
spoiled() { # SED EXPRESSION, applied to the tutorial
    sed "$1" docs/tutorial.md > "$scratch/docs/tutorial.md"
    ! cmp -s docs/tutorial.md "$scratch/docs/tutorial.md" &&
        ! python3 -B tests/package/docs_blocks.py "${BUILD:-build}" "$scratch/docs/tutorial.md"
}
check 'a program that does not compile' spoiled 's/fig_engine_wait/fig_engine_await/'
check 'a command that fails' spoiled 's/^figraph verify tutorial/figraph verify none/'
check 'a link to nowhere' spoiled 's/(serving\.md)/(severing.md)/'
finish
