/* grid.h: runs grids of shapes through the public API on the device of place.h, and compares the
 * results with float64.
 *
 * A section is a product of lists, or a number of random cases. A case depends only on its index,
 * so it can be repeated alone. Sections are in section_*.c, and their table is in grid_sections.c.
 * grid.c runs all of them, test_grid.c some. Invariant: a failing case is reported and never stops
 * the program. */
#ifndef FIG_TESTS_GRID_GRID_H
#define FIG_TESTS_GRID_GRID_H

#include <stddef.h>

#include "include/figraph.h"
#include "tests/support/random.h"

enum { GRID_MEASURE_LIMIT = 24, GRID_ROW_LIMIT = 1024 };

/* ---- Results of a case -------------------------------------------------------------------- */

/* The worst error of one operation in one dtype, as a fraction of the tolerance. */
typedef struct grid_measure {
    char name[40]; /* "attention f16, kv e4m3" */
    double worst;
} grid_measure;

typedef struct grid_report {
    grid_measure measures[GRID_MEASURE_LIMIT];
    int32_t measure_count;
    char shape[320];   /* a description of the case */
    char failure[640]; /* the first failure; "": none */
    double truth_s;    /* about how long comparing the case may take */
} grid_report;

__attribute__((format(printf, 2, 3))) void grid_fail(grid_report *report, const char *format, ...);
int grid_failed(const grid_report *report);
void grid_measured(grid_report *report, const char *name, double share);

/* `count` elements of an output, and their true values. There are two tolerances, and the smaller
 * one applies: the peer's, which is absolute and relative, and `units` units in the dtype's last
 * place at the magnitude. The magnitude exceeds the value when terms cancel. */
typedef struct grid_output {
    const char *name; /* the measure's name */
    const void *base;
    fig_dtype dtype;
    int64_t first; /* the index of the first element */
    int32_t count;
    const double *want, *magnitude; /* [count] */
    double peer, units;
} grid_output;
void grid_compare(grid_report *report, const grid_output *output);
/* Returns the peer's tolerance: 1e-3 in f16 and f32, 1e-2 in bf16. */
double grid_peer(fig_dtype dtype);

/* ---- Lists --------------------------------------------------------------------------------- */

/* Splits a case's index into a choice from each list. Afterwards `count` is the number of all
 * cases. */
typedef struct grid_cursor {
    int64_t index, count;
    uint64_t seed; /* this case's seed */
} grid_cursor;
int32_t grid_pick(grid_cursor *cursor, const int32_t *values, int32_t count);
#define GRID_PICK(cursor, ...)                                                                     \
    grid_pick((cursor), (const int32_t[]){__VA_ARGS__},                                            \
              (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

/* ---- Memory -------------------------------------------------------------------------------- */

/* Memory from place.h. Every byte begins as 0xff, which makes a NaN in every float type, so a read
 * of unwritten memory shows in a result. */
typedef struct grid_array {
    uint8_t *bytes;
    size_t count;
} grid_array;
void grid_array_make(grid_report *report, grid_array *array, int64_t elements, fig_dtype dtype);
void grid_array_free(grid_array *array);
/* Fills with numbers of mean 0 and variance 1. They are encoded once per dtype and then copied in
 * stretches, since drawing each number anew would take longer than the test itself. */
void grid_fill(const grid_array *array, fig_dtype dtype, int64_t first, int64_t count,
               fig_random *random);
/* Makes an array that already holds such numbers. Writing all of its memory only once saves half
 * the time. */
void grid_array_noise(grid_report *report, grid_array *array, int64_t elements, fig_dtype dtype,
                      fig_random *random);
/* Compares an array with what grid_array_noise() wrote with that generator. Returns the index of
 * the first byte that differs; -1: none. */
int64_t grid_array_changed(const grid_array *array, fig_dtype dtype, fig_random random);
void grid_array_copy(grid_report *report, grid_array *array, const grid_array *of);
void grid_store(const grid_array *array, fig_dtype dtype, int64_t index, double value);

/* ---- A program of a few nodes -------------------------------------------------------------- */

enum { GRID_TENSOR_LIMIT = 24 };

/* The report keeps the first failure. After a failure, all of these functions return at once. */
typedef struct grid_bench {
    grid_report *report;
    fig_program *program;
    fig_graphs *graphs;
    fig_engine *engine;
    fig_binding bindings[GRID_TENSOR_LIMIT];
    int32_t binding_count;
} grid_bench;

void grid_bench_open(grid_bench *bench, grid_report *report, const fig_spec *spec);
void grid_bench_close(grid_bench *bench);

/* Records a bound tensor. grid_place says where it is: in an array, beginning at element `first`,
 * with strides if they are given. */
typedef struct grid_place {
    const grid_array *array;
    int64_t first;
    const int64_t *strides; /* [rank]; NULL: the tensor's default */
} grid_place;
fig_tensor grid_bench_tensor(grid_bench *bench, const fig_tensor_info *info,
                             const grid_place *place);
/* Finishes the program, lowers it, opens an engine and binds all tensors. */
void grid_bench_ready(grid_bench *bench, const fig_lower_options *options);
void grid_bench_step(grid_bench *bench, const fig_step *step);

/* ---- Sections ------------------------------------------------------------------------------ */

typedef struct grid_section {
    const char *name;
    const char *covers; /* one line of text */
    int64_t count;      /* 0: the number that the cursor gets when `run` is called */
    /* Runs the cursor's case. Returns the case's work in multiplications. If report is NULL, only
     * returns the work. */
    int64_t (*run)(grid_cursor *cursor, grid_report *report);
} grid_section;

int32_t grid_section_count(void);
const grid_section *grid_section_at(int32_t index);
int64_t grid_section_cases(const grid_section *section);
int64_t grid_section_work(const grid_section *section, int64_t index);
void grid_section_run(const grid_section *section, int64_t index, grid_report *report);

#endif
