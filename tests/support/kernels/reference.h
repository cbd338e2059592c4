/* reference.h: arrays that notice stray writes, and launches of kernels: on the host the reference
 * kernels with blocks in any order, on cuda the kernels themselves.
 *
 * An array begins full of poison. A test fills its inputs, marks the elements that a kernel may
 * write, runs the kernel, and checks that no other element has changed. Invariant: every address
 * that a kernel gets comes from place.h. */
#ifndef FIG_TESTS_SUPPORT_REFERENCE_H
#define FIG_TESTS_SUPPORT_REFERENCE_H

#include "kernels/table/table.h"
#include "tests/support/random.h"

/* Returns the seed of this run: argv[1], or a number from the clock. Prints it, so that a failed
 * run can be repeated. */
uint64_t fig_reference_seed(int argc, char **argv);

typedef struct fig_reference_array {
    void *data;      /* [count] of dtype, from place.h */
    uint8_t *before; /* the bytes at the last fig_reference_array_keep() */
    uint8_t *free;   /* [count] 1: the element may be written */
    int64_t count;
    int32_t dtype;
} fig_reference_array;

/* Makes an array. Every element is a NaN in a float dtype, and 0x7f7f.. in an integer one. */
fig_reference_array fig_reference_array_make(int32_t dtype, int64_t count);
void fig_reference_array_free(fig_reference_array *array);
/* Stores a value as an integer, or as a float rounded to the dtype. */
void fig_reference_array_set(fig_reference_array *array, int64_t index, double value);
/* Stores normally distributed numbers of mean 0 and this deviation in [first, first + count). */
void fig_reference_array_fill(fig_reference_array *array, int64_t first, int64_t count,
                              fig_random *random, float deviation);
void fig_reference_array_allow(fig_reference_array *array, int64_t first, int64_t count);
/* Keeps a copy of the current bytes. */
void fig_reference_array_keep(fig_reference_array *array);
/* Fails at the first element that has changed but must not. */
void fig_reference_array_check(const fig_reference_array *array, const char *name);

/* Draws the unit of all strides of a case. It is 1 element or, equally often, 16 bytes, which a
 * kernel may then move at once. */
int64_t fig_reference_unit(fig_random *random, int32_t dtype);
/* Draws a stride between items of `width` elements: the width, plus up to three units. */
int64_t fig_reference_stride(fig_random *random, int64_t unit, int64_t width);

/* Lays out the shape, and makes the step's plan as a fetch makes it from a slot. Slot and plan were
 * poisoned before. The plan has layout.bytes bytes. A horizon of 0 counts as 1. The caller frees
 * the plan with fig_place_free(). */
uint8_t *fig_reference_plan(fig_plan_shape *shape, const fig_plan_step *step);
/* Does the same for a program whose rows of more than 8 query tokens are chunks. strips:
 * [class_count] how each class cuts them. */
uint8_t *fig_reference_plan_of_chunks(fig_plan_shape *shape, const fig_strips_shape *strips,
                                      const fig_plan_step *step);

/* Runs every block of the launch once, to its end. On the host, blocks run in order, or in random
 * order if `random` is given. On cuda the GPU chooses the order. */
void fig_reference_launch(fig_op op, const void *params, fig_random *random);

#endif
