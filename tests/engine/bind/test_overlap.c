/* test_overlap.c: checks the overlap of strided arrays against a map of the bytes that each array
 * holds. */
#include "engine/bind/overlap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/kernels/reference.h"

enum { MEMORY = 1 << 16, TRIES = 200000 };

static uint64_t seed;

/* Marks every byte of an array. Returns 1 if one of them already has the other array's mark. */
static int mark(uint8_t *memory, const fig_overlap_array *array, uint8_t own, uint8_t other) {
    int met = 0;
    int64_t dims[4] = {1, 1, 1, 1}, strides[4] = {0};
    memcpy(dims, array->dims, (size_t)array->rank * sizeof *dims);
    memcpy(strides, array->strides, (size_t)array->rank * sizeof *strides);
    for (int64_t i = 0; i < dims[0] * dims[1] * dims[2] * dims[3]; i++) {
        int64_t at = i % dims[3] * strides[3] + i / dims[3] % dims[2] * strides[2] +
                     i / dims[3] / dims[2] % dims[1] * strides[1] +
                     i / dims[3] / dims[2] / dims[1] * strides[0];
        for (size_t b = 0; b < array->item_bytes; b++) {
            uint8_t *byte = &memory[array->address + (size_t)at * array->item_bytes + b];
            met |= *byte == other;
            *byte = own;
        }
    }
    return met;
}

/* Draws strides in any order, often without a gap. unit: the largest stride, in bytes. */
static fig_overlap_array draw_array(fig_random *random, int64_t unit) {
    fig_overlap_array array = {.rank = fig_random_range(random, 1, 4)};
    int order[4] = {0, 1, 2, 3};
    int64_t reach = 1;
    array.item_bytes = (size_t)1 << fig_random_range(random, 0, 2);
    array.address = (uintptr_t)fig_random_range(random, 0, 200);
    for (int i = array.rank - 1; i > 0; i--) {
        int other = fig_random_range(random, 0, i), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < array.rank; i++) {
        int d = order[i];
        array.dims[d] = fig_random_range(random, 1, 4);
        array.strides[d] =
            reach + (fig_random_range(random, 0, 2) == 0 ? 0 : fig_random_range(random, 0, 5));
        if (i == array.rank - 1 && unit / (int64_t)array.item_bytes >= reach)
            array.strides[d] = unit / (int64_t)array.item_bytes;
        reach += array.strides[d] * (array.dims[d] - 1);
    }
    return array;
}

static void print_array(const char *name, const fig_overlap_array *a) {
    print_message("%s: at %zu, items of %zu, rank %d, dims %d %d %d %d, strides %d %d %d %d\n",
                  name, (size_t)a->address, a->item_bytes, (int)a->rank, (int)a->dims[0],
                  (int)a->dims[1], (int)a->dims[2], (int)a->dims[3], (int)a->strides[0],
                  (int)a->strides[1], (int)a->strides[2], (int)a->strides[3]);
}

static void arrays_meet_where_they_share_a_byte(void **state) {
    (void)state;
    static uint8_t memory[MEMORY];
    fig_random random = fig_random_seed(seed);
    int64_t meetings = 0, interleaved = 0;
    for (int i = 0; i < TRIES; i++) {
        int64_t unit =
            fig_random_range(&random, 0, 1) == 0 ? 0 : 8 * fig_random_range(&random, 1, 40);
        const fig_overlap_array a = draw_array(&random, unit), b = draw_array(&random, unit);
        memset(memory, 0, 16384);
        mark(memory, &a, 1, 2);
        int met = mark(memory, &b, 2, 1);
        if (fig_overlap_meets(&a, &b) != met || fig_overlap_meets(&b, &a) != met) {
            print_array("a", &a);
            print_array("b", &b);
            fail_msg("they %s", met ? "meet" : "do not meet");
        }
        meetings += met;
        interleaved += !met && a.address < b.address + 50 && b.address < a.address + 50;
    }
    print_message("%lld of %d meet, about %lld interleave\n", (long long)meetings, TRIES,
                  (long long)interleaved);
    assert_true(meetings > TRIES / 20 && interleaved > TRIES / 100);
}

/* With many pages in HND order, comparing K and V run by run would take a hundred million
 * comparisons. */
static void pools_of_many_pages_are_told_apart_at_once(void **state) {
    (void)state;
    fig_overlap_array k = {.address = 4096,
                           .item_bytes = 2,
                           .rank = 4,
                           .dims = {1 << 20, 16, 8, 100},
                           .strides = {2 * 16 * 8 * 128, 128, 16 * 128, 1}};
    fig_overlap_array v = k;
    v.address += 16 * 8 * 128 * 2;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(fig_overlap_meets(&k, &v), 0);
    /* v stays within the gap of 28 elements after the last head, with two bytes to spare */
    v.address -= 54;
    assert_int_equal(fig_overlap_meets(&k, &v), 0);
    v.address -= 3;
    assert_int_equal(fig_overlap_meets(&k, &v), 1);
    v.address =
        k.address + (uintptr_t)k.strides[0] * 2 * ((1 << 20) - 1) + 256; /* in the last page */
    assert_int_equal(fig_overlap_meets(&k, &v), 1);
    v.address = k.address + (uintptr_t)k.strides[0] * 2 * (1 << 20);
    assert_int_equal(fig_overlap_meets(&k, &v), 0);
}

static void a_single_index_has_no_stride(void **state) {
    (void)state;
    const fig_overlap_array page = {
        .address = 64, .item_bytes = 2, .rank = 2, .dims = {1, 8}, .strides = {INT64_MAX, 1}};
    const fig_overlap_array behind = {
        .address = 80, .item_bytes = 2, .rank = 1, .dims = {8}, .strides = {1}};
    assert_int_equal(fig_overlap_meets(&page, &behind), 0);
    assert_int_equal(fig_overlap_meets(&page, &page), 1);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_index_has_no_stride),
        cmocka_unit_test(arrays_meet_where_they_share_a_byte),
        cmocka_unit_test(pools_of_many_pages_are_told_apart_at_once),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
