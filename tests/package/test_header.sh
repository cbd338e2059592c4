#!/bin/sh
# test_header.sh: tests that every header compiles by itself with all supported compilers.
#
# gcc and, if present, clang compile the installed headers as C99, C11, C++11 and C++20 without
# extensions; a C++ program fills in options and runs. nvcc compiles the headers that kernels share
# with the host; without nvcc, the test skips that part and prints so.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Compiles all headers, each included twice, with every compiler and in every supported language.
cat > "$scratch/public.c" << 'END'
#include <figraph.h>
#include <figraph_archive.h>
#include <figraph_ffi.h>
#include <figraph_parallel.h>
#include <figraph_prompts.h>
#include <figraph_ranks.h>
#include <figraph_rope.h>
#include <figraph_runner.h>
#include <figraph_scores.h>
#include <figraph_tune.h>
#include <figraph_unstable.h>
#include <figraph.h>
#include <figraph_archive.h>
#include <figraph_ffi.h>
#include <figraph_parallel.h>
#include <figraph_prompts.h>
#include <figraph_ranks.h>
#include <figraph_rope.h>
#include <figraph_runner.h>
#include <figraph_scores.h>
#include <figraph_tune.h>
#include <figraph_unstable.h>
int size_of_options(void);
int size_of_options(void) {
    const fig_step *step = FIG_OPTIONS(fig_step, .rows = 1);
    return (int)step->size;
}
END
for compiler in "${CC:-gcc}" gcc clang; do
    command -v "${compiler%% *}" > /dev/null || continue
    for standard in c99 c11; do
        $compiler -std=$standard -pedantic-errors -Wall -Wextra -Wshadow -Wconversion -Werror \
            -Iinclude -fsyntax-only "$scratch/public.c"
    done
done

# Compiles and runs a C++ program that fills in options; it must run, since the sizes are set at run
# time.
cat > "$scratch/public.cc" << 'END'
#include <figraph.h>
#include <figraph_archive.h>
#include <figraph_ranks.h>
#include <figraph_tune.h>
#include <figraph_unstable.h>
#include <cstdlib>
#include <cstring>
static bool is_refused(fig_status status, const char *word) {
    return status == FIG_INVALID && std::strstr(fig_message(), word) != nullptr;
}
int main() {
    auto spec = fig_options<fig_spec>();
    if (spec.size != sizeof spec || spec.layers != 0) return 1;
    if (fig_spec_preset(&spec, "tutorial") != FIG_OK || spec.q_heads == 0) return 2;
    fig_program *program = nullptr;
    fig_graphs *graphs = nullptr;
    fig_engine *engine = nullptr;
    if (fig_program_create(&program, &spec) != FIG_OK) return 3;
    fig_program_decode_step(program);
    if (fig_program_finish(program) != FIG_OK) return 4;
    if (fig_graphs_lower(&graphs, program, nullptr) != FIG_OK) return 5;
    auto options = fig_options<fig_engine_options>();
    options.device = FIG_DEVICE_HOST;
    options.slots = 1;
    if (!is_refused(fig_engine_open(&engine, graphs, &options), "slots is 1")) return 6;
    options.slots = 2;
    if (fig_engine_open(&engine, graphs, &options) != FIG_OK) return 7;
    const int32_t lengths[] = {1};
    auto step = fig_options<fig_step>();
    step.rows = 1;
    step.kv_lengths = lengths;
    if (fig_engine_step(engine, &step) != FIG_UNBOUND) return 8;
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
}
END
for compiler in "${CXX:-g++}" g++ clang++; do
    command -v "${compiler%% *}" > /dev/null || continue
    for standard in c++11 c++20; do
        $compiler -std=$standard -pedantic-errors -Wall -Wextra -Wshadow -Wconversion -Werror \
            -Iinclude "$scratch/public.cc" "${BUILD:-build}/libfigraph.a" -lzstd -ljansson -lhwloc \
            -lm -lpthread -o "$scratch/public"
        "$scratch/public" || {
            echo "$compiler -std=$standard: the program's step $? failed"
            exit 1
        }
    done
done

for header in $(find include planner kernels graphs engine ffi -name "*.h"); do
    printf '#include "%s"\nextern int alone;\n' "$header" > "$scratch/alone.c"
    ${CC:-gcc} -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Werror -iquote . \
        -Iinclude -fsyntax-only "$scratch/alone.c"
done

if [ -z "${NVCC:-}" ]; then
    echo 'skipped: nvcc was not found, so no header was read as CUDA'
    exit 0
fi
for header in planner/split/split.h planner/plans/plan.h kernels/common/params.h \
    kernels/common/numeric.h; do
    [ -e $header ] && echo "#include \"$header\""
done > "$scratch/shared.cu"
cat >> "$scratch/shared.cu" << 'END'
extern "C" __global__ void limits(fig_split_shape shape, int32_t *out) {
    out[threadIdx.x] = fig_split_partial_limit(&shape);
}
END
"$NVCC" -std=c++17 -Werror all-warnings -I. -Iinclude -cubin -o "$scratch/shared.cubin" \
    "$scratch/shared.cu"
