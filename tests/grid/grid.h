/* grid.h: grids of shapes, each case run through the public API on the device of place.h and
 * compared with float64.
 *
 * A section is a product of lists, or so many cases drawn at random; a case follows from its index
 * alone, so that any may be run again by itself. Sections are in section_*.c, their table in
 * grid_sections.c; grid.c runs them all, tests/test_grid.c some. Invariant: a case fails by its
 * report and never stops the program. */
#ifndef FIG_TESTS_GRID_GRID_H
#define FIG_TESTS_GRID_GRID_H

#include <stddef.h>

#include "include/figraph.h"
#include "tests/support/random.h"

enum { GRID_MEASURE_LIMIT = 24, GRID_ROW_LIMIT = 1024 };

/* ---- What a case found --------------------------------------------------------------------- */

/* The worst error of one operation in one dtype, in parts of what is tolerated. */
typedef struct grid_measure {
    char name[40]; /* "attention f16, kv e4m3" */
    double worst;
} grid_measure;

typedef struct grid_report {
    grid_measure measures[GRID_MEASURE_LIMIT];
    int32_t measure_count;
    char shape[320];   /* what the case is, for people */
    char failure[640]; /* "": none; else the first */
    double truth_s;    /* how long the comparison of a case may take, about */
} grid_report;

__attribute__((format(printf, 2, 3))) void grid_fail(grid_report *report, const char *format, ...);
int grid_failed(const grid_report *report);
void grid_measured(grid_report *report, const char *name, double share);

/* `count` elements of an output against the truth of them. What is tolerated is the lesser of the
 * peer's, absolute and relative alike, and of `units` of the dtype's last place at the magnitude,
 * by which an error is judged where parts cancel out. */
typedef struct grid_output {
    const char *name; /* of the measure */
    const void *base;
    fig_dtype dtype;
    int64_t first; /* element */
    int32_t count;
    const double *want, *magnitude; /* [count] */
    double peer, units;
} grid_output;
void grid_compare(grid_report *report, const grid_output *output);
/* 1e-3 in f16 and f32, 1e-2 in bf16: what the peer's tests tolerate of either. */
double grid_peer(fig_dtype dtype);

/* ---- Lists --------------------------------------------------------------------------------- */

/* Takes a case's index apart, one list after another; `count` becomes that of all cases. */
typedef struct grid_cursor {
    int64_t index, count;
    uint64_t seed; /* the case's own */
} grid_cursor;
int32_t grid_pick(grid_cursor *cursor, const int32_t *values, int32_t count);
#define GRID_PICK(cursor, ...)                                                                     \
    grid_pick((cursor), (const int32_t[]){__VA_ARGS__},                                            \
              (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

/* ---- Memory -------------------------------------------------------------------------------- */

/* Of place.h: every byte is 0xff at first, a NaN in every float type, so a read of what nobody
 * wrote shows. */
typedef struct grid_array {
    uint8_t *bytes;
    size_t count;
} grid_array;
void grid_array_make(grid_report *report, grid_array *array, int64_t elements, fig_dtype dtype);
void grid_array_free(grid_array *array);
/* Numbers of mean 0 and variance 1, encoded once per dtype and drawn as stretches, since drawing
 * each would take longer than the library takes to use them. */
void grid_fill(const grid_array *array, fig_dtype dtype, int64_t first, int64_t count,
               fig_random *random);
/* The same for all of an array, as it is made: what is written twice takes twice as long. */
void grid_array_noise(grid_report *report, grid_array *array, int64_t elements, fig_dtype dtype,
                      fig_random *random);
/* The byte of an array where it is not what grid_array_noise() wrote from that random on, or -1. */
int64_t grid_array_changed(const grid_array *array, fig_dtype dtype, fig_random random);
void grid_array_copy(grid_report *report, grid_array *array, const grid_array *of);
void grid_store(const grid_array *array, fig_dtype dtype, int64_t index, double value);

/* ---- A program of a few nodes -------------------------------------------------------------- */

enum { GRID_TENSOR_LIMIT = 24 };

/* Sticky: after the first failure the report has it and every call returns. */
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

/* Records a tensor of the caller's and remembers where it lies: from element `first` of an array
 * on, all of it, with strides where they are given. */
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
    const char *covers; /* one line */
    int64_t count;      /* 0: what `run` makes of the cursor */
    /* Runs the cursor's case; with report NULL says only how much work it is, in multiplications.
     */
    int64_t (*run)(grid_cursor *cursor, grid_report *report);
} grid_section;

int32_t grid_section_count(void);
const grid_section *grid_section_at(int32_t index);
int64_t grid_section_cases(const grid_section *section);
int64_t grid_section_work(const grid_section *section, int64_t index);
void grid_section_run(const grid_section *section, int64_t index, grid_report *report);

#endif
