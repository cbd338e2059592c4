/* reference.c: see reference.h. Poison is all ones, a NaN in every float type, so the result of a
 * kernel that reads unwritten memory is NaN. */
#include "tests/support/kernels/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "kernels/table/families.h"
#include "kernels/common/numeric.h"
#include "planner/spec/spec.h"
#include "tests/support/place.h"

enum { BLOCK_LIMIT = 4096, AT_ONCE = 256 /* elements that are converted or compared at once */ };

uint64_t fig_reference_seed(int argc, char **argv) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec;
    if (argc > 1) seed = strtoull(argv[1], NULL, 0);
    print_message("seed 0x%llx: give it as the argument to run the same again\n",
                  (unsigned long long)seed);
    return seed;
}

fig_reference_array fig_reference_array_make(int32_t dtype, int64_t count) {
    size_t bytes = (size_t)count * (size_t)fig_numeric_bytes(dtype);
    fig_reference_array array = {.count = count, .dtype = dtype};
    array.data = fig_place_allocate(bytes);
    array.before = malloc(bytes);
    array.free = calloc((size_t)count, 1);
    assert_true(array.data != NULL && array.before != NULL && array.free != NULL);
    if (dtype == FIG_I32 || dtype == FIG_I64) memset(array.data, 0x7f, bytes);
    fig_reference_array_keep(&array);
    return array;
}

void fig_reference_array_free(fig_reference_array *array) {
    fig_place_free(array->data);
    free(array->before);
    free(array->free);
    memset(array, 0, sizeof *array);
}

void fig_reference_array_set(fig_reference_array *array, int64_t index, double value) {
    assert_true(index >= 0 && index < array->count);
    switch (array->dtype) {
    case FIG_I32: ((int32_t *)array->data)[index] = (int32_t)value; break;
    case FIG_I64: ((int64_t *)array->data)[index] = (int64_t)value; break;
    default: fig_numeric_store(array->data, array->dtype, index, (float)value); break;
    }
}

void fig_reference_array_fill(fig_reference_array *array, int64_t first, int64_t count,
                              fig_random *random, float deviation) {
    float numbers[AT_ONCE];
    assert_true(first >= 0 && first + count <= array->count);
    assert_true(array->dtype != FIG_I32 && array->dtype != FIG_I64);
    for (int64_t i = 0; i < count; i += AT_ONCE) {
        const int32_t some = (int32_t)(count - i < AT_ONCE ? count - i : AT_ONCE);
        for (int32_t n = 0; n < some; n++)
            numbers[n] = deviation * fig_random_normal(random);
        fig_numeric_store_row(array->data, array->dtype, first + i, numbers, some);
    }
}

void fig_reference_array_allow(fig_reference_array *array, int64_t first, int64_t count) {
    assert_true(first >= 0 && first + count <= array->count);
    memset(array->free + first, 1, (size_t)count);
}

void fig_reference_array_keep(fig_reference_array *array) {
    memcpy(array->before, array->data,
           (size_t)array->count * (size_t)fig_numeric_bytes(array->dtype));
}

/* Fails if element i changed and was not allowed to. */
static void check_element(const fig_reference_array *array, int64_t i, const char *name) {
    const size_t bytes = (size_t)fig_numeric_bytes(array->dtype);
    uint64_t was = 0, is = 0;
    if (array->free[i]) return;
    memcpy(&was, array->before + (size_t)i * bytes, bytes);
    memcpy(&is, (const uint8_t *)array->data + (size_t)i * bytes, bytes);
    if (was == is) return;
    fail_msg("%s: element %lld of %lld was 0x%llx and became 0x%llx", name, (long long)i,
             (long long)array->count, (unsigned long long)was, (unsigned long long)is);
}

/* Most blocks of elements have not changed at all. */
void fig_reference_array_check(const fig_reference_array *array, const char *name) {
    const size_t bytes = (size_t)fig_numeric_bytes(array->dtype);
    for (int64_t first = 0; first < array->count; first += AT_ONCE) {
        const int64_t left = array->count - first, end = first + (left < AT_ONCE ? left : AT_ONCE);
        const size_t at = (size_t)first * bytes, size = (size_t)(end - first) * bytes;
        if (memcmp(array->before + at, (const uint8_t *)array->data + at, size) == 0) continue;
        for (int64_t i = first; i < end; i++)
            check_element(array, i, name);
    }
}

int64_t fig_reference_unit(fig_random *random, int32_t dtype) {
    return fig_random_range(random, 0, 1) ? 1 : 16 / fig_numeric_bytes(dtype);
}

int64_t fig_reference_stride(fig_random *random, int64_t unit, int64_t width) {
    return (width + unit - 1) / unit * unit + unit * fig_random_range(random, 0, 3);
}

/* Writes the plan as a fetch would on a device that holds no plan. A horizon of 0 counts as 1. */
static void put_plan(const fig_plan_shape *shape, const fig_strips_shape *strips,
                     const fig_plan_step *step, uint8_t *plan) {
    const fig_plan_held_limits limits = {.row_limit = shape->row_limit,
                                         .chunk_classes = strips != NULL ? shape->class_count : 0,
                                         .chunk_least = FIG_NARROW_TOKENS_LIMIT + 1,
                                         .chunk_shapes = strips,
                                         .strips_bytes = fig_plan_strips_room(shape)};
    fig_plan_step ours = *step;
    fig_plan_held held;
    uint8_t *slot = aligned_alloc(16, shape->layout.bytes);
    if (ours.horizon == 0) ours.horizon = 1;
    assert_int_equal(fig_plan_held_init(&held, &limits), FIG_OK);
    assert_non_null(slot);
    memset(slot, 0x7f, shape->layout.bytes);
    const uint32_t sections = fig_plan_settle(shape, &ours, &held);
    fig_plan_write(shape, &ours, sections, &held, slot);
    ((fig_plan_head *)(void *)slot)->tag = 0;
    fig_plan_unpack(shape, slot, plan);
    free(slot);
    fig_plan_held_finish(&held);
}

uint8_t *fig_reference_plan_of_chunks(fig_plan_shape *shape, const fig_strips_shape *strips,
                                      const fig_plan_step *step) {
    fig_plan_lay_out(shape);
    if (strips != NULL)
        assert_int_equal(fig_plan_add_strips(shape, strips, FIG_NARROW_TOKENS_LIMIT + 1), FIG_OK);
    uint8_t *plan = fig_place_allocate(shape->layout.bytes);
    assert_non_null(plan);
    memset(plan, 0x7f, shape->layout.bytes);
    put_plan(shape, strips, step, plan);
    return plan;
}

uint8_t *fig_reference_plan(fig_plan_shape *shape, const fig_plan_step *step) {
    return fig_reference_plan_of_chunks(shape, NULL, step);
}

static void shuffle(uint32_t *order, uint32_t count, fig_random *random) {
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t other = (uint32_t)fig_random_range(random, 0, (int32_t)i), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

static void run_twin(fig_op op, const void *params, fig_random *random) {
    const fig_kernel *kernel = &fig_kernel_table[op];
    const fig_traits host = {.size = sizeof host};
    uint32_t order[BLOCK_LIMIT];
    fig_family_choice choice;
    fig_families_choose(op, params, &host, &choice);
    const fig_launch_shape shape = choice.shape;
    assert_true(shape.grid[0] >= 1 && shape.grid[0] <= BLOCK_LIMIT);
    assert_true(shape.grid[1] == 1 && shape.grid[2] == 1);
    for (uint32_t i = 0; i < shape.grid[0]; i++)
        order[i] = i;
    if (random != NULL) shuffle(order, shape.grid[0], random);
    for (uint32_t i = 0; i < shape.grid[0]; i++)
        kernel->reference(params, (uint32_t[3]){order[i], 0, 0});
}

void fig_reference_launch(fig_op op, const void *params, fig_random *random) {
    if (fig_place_device() == FIG_DEVICE_HOST) {
        run_twin(op, params, random);
    } else if (fig_place_launch(op, params) != FIG_OK) {
        fail_msg("%s: %s", fig_kernel_table[op].name, fig_message());
    }
}
