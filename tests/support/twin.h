/* twin.h: memory that notices stray writes, and launches of kernels: of twins, in any order of
 * blocks, or on cuda of what they are the twins of.
 *
 * An array is made full of poison. A test fills its inputs, says which elements a kernel may write,
 * runs it, and asks whether any other changed. Invariant: whatever a kernel is given an address of
 * comes from place.h. */
#ifndef FIG_TESTS_SUPPORT_TWIN_H
#define FIG_TESTS_SUPPORT_TWIN_H

#include "kernels/table.h"
#include "tests/support/random.h"

/* The seed of this run: argv[1], or the clock's; printed, so that a failure can be run again. */
uint64_t fig_twin_seed(int argc, char **argv);

typedef struct fig_twin_array {
    void *data;      /* [count] of dtype, from place.h */
    uint8_t *before; /* the bytes as fig_twin_array_keep saw them */
    uint8_t *free;   /* [count] 1: may be written */
    int64_t count;
    int32_t dtype;
} fig_twin_array;

/* All NaN for a float dtype, and 0x7f7f.. for an integer one. */
fig_twin_array fig_twin_array_make(int32_t dtype, int64_t count);
void fig_twin_array_free(fig_twin_array *array);
/* A float, rounded to the dtype, or an integer. */
void fig_twin_array_set(fig_twin_array *array, int64_t index, double value);
/* Normal numbers with this deviation in [first, first + count). */
void fig_twin_array_fill(fig_twin_array *array, int64_t first, int64_t count, fig_random *random,
                         float deviation);
void fig_twin_array_allow(fig_twin_array *array, int64_t first, int64_t count);
/* Remembers the bytes as they are. */
void fig_twin_array_keep(fig_twin_array *array);
/* Fails at the first element that was not allowed and is not as it was kept. */
void fig_twin_array_check(const fig_twin_array *array, const char *name);

/* What all strides of a case are whole ones of: 1 element or, as often, those of the dtype that 16
 * bytes hold, which a kernel may then move at once. */
int64_t fig_twin_unit(fig_random *random, int32_t dtype);
/* Elements from one thing of `width` to the next: it and up to three units more. */
int64_t fig_twin_stride(fig_random *random, int64_t unit, int64_t width);

/* Lays out shape and makes the step's plan as a fetch does, by way of a slot, in memory of
 * layout.bytes; both are poisoned first. A horizon of 0 is 1. fig_place_free is the caller's. */
uint8_t *fig_twin_plan(fig_plan_shape *shape, const fig_plan_step *step);

/* Every block of the launch once, to its end: in order, in random order where random is given, or
 * as the GPU takes them. */
void fig_twin_launch(fig_op op, const void *params, fig_random *random);

#endif
