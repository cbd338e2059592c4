#!/bin/sh
# test_transformers.sh: tests figraph.integrations.transformers together with transformers, on the
# CPU.
#
# torch and transformers are too large to be downloaded for a test; they must be installed in the
# Python that TORCH_PYTHON names. The package is assembled from the files that make has built.
# Invariant: the last line is "N passed, N failed".
set -u
# shellcheck source=tests/support/tally.sh
. "$(dirname "$0")/../support/tally.sh"
built=${BUILD:-build}
python=${TORCH_PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1

check "the package of $built" python3 python/backend.py stage "$built" "$scratch/package"
if "$python" -c 'import torch, transformers' > "$scratch/log" 2>&1; then
    check python_transformers_calls.py env PYTHONPATH="$scratch/package" "$python" \
        tests/transformers/python_transformers_calls.py
    check python_transformers.py env PYTHONPATH="$scratch/package" "$python" \
        tests/transformers/python_transformers.py
    grep -E '^(ran|skipped): ' "$scratch/log"
else
    echo "skipped: python_transformers.py: $python has no torch or no transformers;" \
        "TORCH_PYTHON names one that has both"
fi
finish
