#!/bin/sh
# test_header.sh: every header stands alone, and other compilers read those that they must.
#
# C++ and C11 without extensions take figraph.h; nvcc takes what kernels share with the host. The
# part for nvcc is skipped, and says so, where there is none.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cat > "$scratch/public.c" << 'END'
#include <figraph.h>
#include <figraph.h>
int size_of_options(void) {
    const fig_step *step = FIG_OPTIONS(fig_step, .rows = 1);
    return (int)step->size;
}
END
${CC:-gcc} -std=c11 -pedantic-errors -Wall -Wextra -Werror -Iinclude -fsyntax-only \
    "$scratch/public.c"

cat > "$scratch/public.cc" << 'END'
#include <figraph.h>
fig_status step_one(fig_engine *engine) {
    fig_step step = {};
    step.size = sizeof step;
    return fig_engine_step(engine, &step);
}
END
for standard in c++11 c++20; do
    ${CXX:-g++} -std=$standard -pedantic-errors -Wall -Wextra -Wno-missing-field-initializers \
        -Werror -Iinclude -fsyntax-only "$scratch/public.cc"
done

for header in include/*.h planner/*.h kernels/*.h graphs/*.h engine/*.h engine/*/*.h; do
    printf '#include "%s"\nextern int alone;\n' "$header" > "$scratch/alone.c"
    ${CC:-gcc} -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Werror -iquote . \
        -fsyntax-only "$scratch/alone.c"
done

if [ -z "${NVCC:-}" ]; then
    echo 'skipped: nvcc was not found, so no header was read as CUDA'
    exit 0
fi
for header in planner/split.h planner/plan.h kernels/params.h kernels/numeric.h; do
    [ -e $header ] && echo "#include \"$header\""
done > "$scratch/shared.cu"
cat >> "$scratch/shared.cu" << 'END'
extern "C" __global__ void limits(fig_split_shape shape, int32_t *out) {
    out[threadIdx.x] = fig_split_partial_limit(&shape);
}
END
"$NVCC" -std=c++17 -Werror all-warnings -I. -cubin -o "$scratch/shared.cubin" "$scratch/shared.cu"
