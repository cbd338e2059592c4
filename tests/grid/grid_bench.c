/* grid_bench.c: makes the lists, the memory and the engine of a case of the grid.
 *
 * Invariant: the case owns all tensors of an engine, so results are read in place. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/numeric.h"
#include "tests/grid/grid.h"
#include "tests/support/driver/kept_kernels.h"
#include "tests/support/place.h"

/* ---- Lists --------------------------------------------------------------------------------- */

int32_t grid_pick(grid_cursor *cursor, const int32_t *values, int32_t count) {
    int32_t value = values[cursor->index % count];
    cursor->index /= count;
    cursor->count *= count;
    return value;
}

/* ---- Memory -------------------------------------------------------------------------------- */

enum { NOISE_COUNT = 1 << 17, NOISE_DTYPES = 5 };

static const fig_dtype noise_dtypes[NOISE_DTYPES] = {FIG_F32, FIG_F16, FIG_BF16, FIG_E4M3,
                                                     FIG_E5M2};
static uint8_t noise[NOISE_DTYPES][NOISE_COUNT * 4];
static pthread_once_t noise_once = PTHREAD_ONCE_INIT;

static void make_noise(void) {
    fig_random random = fig_random_seed(20261120);
    for (int64_t i = 0; i < NOISE_COUNT; i++) {
        float x = fig_random_normal(&random);
        for (int d = 0; d < NOISE_DTYPES; d++)
            fig_numeric_store(noise[d], (int32_t)noise_dtypes[d], i, x);
    }
}

static void make(grid_report *report, grid_array *array, size_t bytes,
                 void *(*allocate)(size_t bytes)) {
    *array = (grid_array){.count = bytes};
    if (grid_failed(report)) return;
    if (fig_place_device() == FIG_DEVICE_CUDA) fig_kept_kernels_start();
    array->bytes = allocate(bytes);
    if (array->bytes == NULL) grid_fail(report, "no memory for %zu bytes", bytes);
}

static size_t bytes_of(int64_t elements, fig_dtype dtype) {
    return (size_t)(elements * fig_numeric_bytes((int32_t)dtype));
}

void grid_array_make(grid_report *report, grid_array *array, int64_t elements, fig_dtype dtype) {
    make(report, array, bytes_of(elements, dtype), fig_place_allocate);
}

void grid_array_free(grid_array *array) {
    fig_place_free(array->bytes);
    *array = (grid_array){0};
}

/* Finds the next stretch of prepared numbers, of at most `limit` elements. Returns its length. */
static int64_t draw_stretch(fig_dtype dtype, int64_t limit, fig_random *random,
                            const uint8_t **stretch) {
    int d = 0;
    pthread_once(&noise_once, make_noise);
    while (noise_dtypes[d] != dtype)
        d++;
    const int32_t from = fig_random_range(random, 0, NOISE_COUNT - 1);
    *stretch = noise[d] + bytes_of(from, dtype);
    return NOISE_COUNT - from < limit ? NOISE_COUNT - from : limit;
}

void grid_fill(const grid_array *array, fig_dtype dtype, int64_t first, int64_t count,
               fig_random *random) {
    const uint8_t *from;
    for (int64_t length; count > 0; count -= length, first += length) {
        length = draw_stretch(dtype, count, random, &from);
        memcpy(array->bytes + bytes_of(first, dtype), from, bytes_of(length, dtype));
    }
}

void grid_array_noise(grid_report *report, grid_array *array, int64_t elements, fig_dtype dtype,
                      fig_random *random) {
    make(report, array, bytes_of(elements, dtype), fig_place_allocate_as_is);
    if (!grid_failed(report)) grid_fill(array, dtype, 0, elements, random);
}

int64_t grid_array_changed(const grid_array *array, fig_dtype dtype, fig_random random) {
    const uint8_t *from;
    const int64_t elements = (int64_t)array->count / (int64_t)bytes_of(1, dtype);
    for (int64_t first = 0, length; first < elements; first += length) {
        length = draw_stretch(dtype, elements - first, &random, &from);
        const uint8_t *bytes = array->bytes + bytes_of(first, dtype);
        if (memcmp(bytes, from, bytes_of(length, dtype)) == 0) continue;
        int64_t at = 0;
        while (bytes[at] == from[at])
            at++;
        return (int64_t)bytes_of(first, dtype) + at;
    }
    return -1;
}

void grid_array_copy(grid_report *report, grid_array *array, const grid_array *of) {
    make(report, array, of->count, fig_place_allocate_as_is);
    if (!grid_failed(report)) memcpy(array->bytes, of->bytes, of->count);
}

void grid_store(const grid_array *array, fig_dtype dtype, int64_t index, double value) {
    switch (dtype) {
    case FIG_I32: ((int32_t *)(void *)array->bytes)[index] = (int32_t)value; break;
    case FIG_I64: ((int64_t *)(void *)array->bytes)[index] = (int64_t)value; break;
    default: fig_numeric_store(array->bytes, (int32_t)dtype, index, (float)value); break;
    }
}

/* ---- A program of a few nodes -------------------------------------------------------------- */

static void take(grid_bench *bench, fig_status status, const char *what) {
    if (status != FIG_OK)
        grid_fail(bench->report, "%s: %s: %s", what, fig_status_name(status), fig_message());
}

void grid_bench_open(grid_bench *bench, grid_report *report, const fig_spec *spec) {
    *bench = (grid_bench){.report = report};
    if (!grid_failed(report)) take(bench, fig_program_create(&bench->program, spec), "create");
}

void grid_bench_close(grid_bench *bench) {
    fig_engine_close(bench->engine);
    fig_graphs_destroy(bench->graphs);
    fig_program_destroy(bench->program);
    *bench = (grid_bench){0};
}

fig_tensor grid_bench_tensor(grid_bench *bench, const fig_tensor_info *info,
                             const grid_place *place) {
    fig_tensor_info ours = *info;
    if (grid_failed(bench->report)) return (fig_tensor){0};
    if (bench->binding_count == GRID_TENSOR_LIMIT) {
        grid_fail(bench->report, "more than %d tensors", GRID_TENSOR_LIMIT);
        return (fig_tensor){0};
    }
    ours.size = sizeof ours;
    ours.role = FIG_ROLE_BOUND;
    while (ours.rank < 4 && ours.dims[ours.rank] != 0)
        ours.rank++;
    fig_binding *binding = &bench->bindings[bench->binding_count++];
    const size_t offset = (size_t)(place->first * fig_numeric_bytes((int32_t)ours.dtype));
    *binding = (fig_binding){.size = sizeof *binding,
                             .name = ours.name,
                             .address = place->array->bytes + offset,
                             .bytes = place->array->count - offset};
    for (int32_t i = 0; place->strides != NULL && i < ours.rank; i++)
        binding->strides[i] = place->strides[i];
    return fig_program_tensor(bench->program, &ours);
}

void grid_bench_ready(grid_bench *bench, const fig_lower_options *options) {
    fig_lower_options ours = {.size = sizeof ours};
    if (grid_failed(bench->report)) return;
    if (options != NULL) ours = *options;
    ours.traits = fig_place_traits();
    take(bench, fig_program_finish(bench->program), "finish");
    if (grid_failed(bench->report)) return;
    take(bench, fig_graphs_lower(&bench->graphs, bench->program, &ours), "lower");
    if (grid_failed(bench->report)) return;
    fig_engine_options place = fig_place_options();
    fig_place_lend(&place);
    take(bench, fig_engine_open(&bench->engine, bench->graphs, &place), "open");
    for (int32_t i = 0; i < bench->binding_count && !grid_failed(bench->report); i++)
        take(bench, fig_engine_bind(bench->engine, &bench->bindings[i]), "bind");
}

void grid_bench_step(grid_bench *bench, const fig_step *step) {
    if (grid_failed(bench->report)) return;
    take(bench, fig_engine_step(bench->engine, step), "step");
    if (grid_failed(bench->report)) return;
    take(bench, fig_engine_wait(bench->engine, -1), "wait");
}
