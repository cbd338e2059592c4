/* test_traits.c: tests that machines are found by name, and that impossible machines are
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "planner/machine/traits.h"
#include "planner/spec/spec.h"

enum { VARIANT_COUNT = 4 };

static fig_variant variant_of_h200(int32_t number) {
    const fig_traits h200 = {.size = sizeof h200, .name = "h200"};
    assert_int_equal(fig_traits_variant_count(&h200), VARIANT_COUNT);
    return fig_traits_variant(&h200, number, 2);
}

static void each_name_gives_a_machine_that_passes(void **state) {
    (void)state;
    static const fig_traits expected[] = {{sizeof(fig_traits), "h200", 90, 132, 232448},
                                          {sizeof(fig_traits), "h100", 90, 132, 232448},
                                          {sizeof(fig_traits), "a100", 80, 108, 166912},
                                          {sizeof(fig_traits), "host", 0, 8, 232448}};
    int32_t count = 0;
    for (; fig_traits_name(count) != NULL; count++) {
        fig_traits traits = {.size = sizeof traits};
        assert_in_range(count, 0, 3);
        assert_int_equal(fig_traits_named(&traits, fig_traits_name(count)), FIG_OK);
        assert_memory_equal(&traits, &expected[count], sizeof traits);
        assert_int_equal(fig_traits_check(&traits), FIG_OK);
    }
    assert_int_equal(count, 4);
    assert_null(fig_traits_name(-1));
}

static void an_unknown_name_lists_what_there_is(void **state) {
    (void)state;
    fig_traits traits = {.size = sizeof traits};
    const fig_traits none = {.size = sizeof none};
    memset(&traits, 0xa5, sizeof traits);
    traits.size = sizeof traits;
    assert_int_equal(fig_traits_named(&traits, "h20"), FIG_INVALID);
    assert_string_equal(fig_message(), "traits h20 are unknown, there are h200, h100, a100, host");
    assert_memory_equal(&traits, &none, sizeof traits);
    traits.size = offsetof(fig_traits, sm_count);
    traits.sm_count = 7;
    assert_int_equal(fig_traits_named(&traits, "h200"), FIG_OK);
    assert_int_equal(traits.sm_count, 7); /* lies after the caller's struct */
    traits.size = 0x5a5a5a5a;
    assert_int_equal(fig_traits_named(&traits, "h200"), FIG_INVALID);
    traits.size = sizeof traits;
    assert_int_equal(fig_traits_named(&traits, NULL), FIG_INVALID);
    assert_string_equal(fig_message(), "traits NULL are unknown, there are h200, h100, a100, host");
}

static void a_field_out_of_range_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        fig_traits traits;
        const char *sentence; /* NULL: the machine is accepted */
    } cases[] = {
        {{0, "x", 0, 1, 0}, NULL},
        {{0, "fifteen.of_a-Zs", 999, 1024, 1 << 20}, NULL},
        {{0, "", 90, 132, 232448},
         "traits: name is \"\", it must be 1 to 15 characters of [A-Za-z0-9._-]"},
        {{0, "a b", 90, 132, 232448},
         "traits: name is \"a b\", it must be 1 to 15 characters of [A-Za-z0-9._-]"},
        {{0,
          {'s', 'i', 'x', 't', 'e', 'e', 'n', '-', 'l', 'e', 't', 't', 'e', 'r', 's', '!'},
          90,
          132,
          0},
         "traits: name is \"sixteen-letters!\", it must be 1 to 15 characters of [A-Za-z0-9._-]"},
        {{0,
          {'s', 'i', 'x', 't', 'e', 'e', 'n', '-', 'l', 'e', 't', 't', 'e', 'r', 's', 's'},
          0,
          132,
          0},
         "traits: name is \"sixteen-letterss\", it must be 1 to 15 characters of [A-Za-z0-9._-]"},
        {{0, "x", -1, 132, 0}, "traits: compute_capability is -1, limits 0 to 999"},
        {{0, "x", 1000, 132, 0}, "traits: compute_capability is 1000, limits 0 to 999"},
        {{0, "x", 90, 0, 0}, "traits: sm_count is 0, limits 1 to 1024"},
        {{0, "x", 90, 1025, 0}, "traits: sm_count is 1025, limits 1 to 1024"},
        {{0, "x", 90, 132, -1}, "traits: shared_bytes is -1, limits 0 to 1048576"},
        {{0, "x", 90, 132, (1 << 20) + 1}, "traits: shared_bytes is 1048577, limits 0 to 1048576"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_status expected = cases[i].sentence == NULL ? FIG_OK : FIG_INVALID;
        if (fig_traits_check(&cases[i].traits) != expected) fail_msg("case %zu", i);
        if (cases[i].sentence != NULL) assert_string_equal(fig_message(), cases[i].sentence);
    }
}

static void a_variant_fits_the_limits_of_the_split(void **state) {
    (void)state;
    for (int i = 0; i < VARIANT_COUNT; i++) {
        const fig_variant one = variant_of_h200(i), *variant = &one;
        assert_in_range(variant->heads, 1, FIG_HEAD_LIMIT);
        assert_in_range(variant->tile_tokens, 16, FIG_TILE_TOKENS_LIMIT);
        assert_in_range(variant->workers_per_sm, 1, FIG_WORKER_LIMIT);
        assert_true(variant->bytes_per_us > 0);
    }
    assert_in_range(FIG_FIXED_TILE_TOKENS, 16, FIG_TILE_TOKENS_LIMIT);
    assert_string_equal(variant_of_h200(0).name, "head");
    assert_string_equal(variant_of_h200(1).name, "page");
    assert_string_equal(variant_of_h200(2).name, "pair");
    assert_string_equal(variant_of_h200(3).name, "four");
}

static void a_variant_out_of_range_is_refused_by_name(void **state) {
    (void)state;
    fig_variant variant = variant_of_h200(0);
    assert_int_equal(fig_traits_check_variant(&variant), FIG_OK);
    int32_t *const fields[] = {&variant.heads,    &variant.tile_tokens, &variant.workers_per_sm,
                               &variant.stages,   &variant.start_ns,    &variant.bytes_per_us,
                               &variant.piece_ns, &variant.segment_ns};
    static const char *const names[] = {"heads",    "tile_tokens",  "workers_per_sm", "stages",
                                        "start_ns", "bytes_per_us", "piece_ns",       "segment_ns"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const int32_t kept = *fields[i], bad[] = {-1, INT32_MAX};
        for (int j = 0; j < 2; j++) {
            *fields[i] = bad[j];
            assert_int_equal(fig_traits_check_variant(&variant), FIG_INVALID);
            assert_non_null(strstr(fig_message(), names[i]));
        }
        *fields[i] = kept;
    }
    static const char bad_names[][12] = {"", "a b", "longer-than-", "a\0b"};
    for (size_t i = 0; i < sizeof bad_names / sizeof bad_names[0]; i++) {
        memcpy(variant.name, bad_names[i], sizeof variant.name);
        assert_int_equal(fig_traits_check_variant(&variant), FIG_INVALID);
    }
}

static void every_machine_has_candidates_also_one_of_another_name(void **state) {
    (void)state;
    static const char *const names[] = {"h200", "h100", "a100", "host", "mine"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fig_traits traits = {.size = sizeof traits, .compute_capability = 80};
        memcpy(traits.name, names[i], strlen(names[i]) + 1);
        const int32_t count = fig_traits_variant_count(&traits);
        assert_in_range(count, 1, FIG_VARIANT_LIMIT);
        for (int32_t v = 0; v < count; v++) {
            for (int32_t bytes = 1; bytes <= 4; bytes *= 2) {
                const fig_variant variant = fig_traits_variant(&traits, v, bytes);
                assert_int_equal(fig_traits_check_variant(&variant), FIG_OK);
                assert_true(variant.start_ns > 0);
            }
        }
    }
}

/* Costs follow from the machine and the bytes of the cache's numbers. A machine without
 * measurements gets those of the h200. */
static void an_unmeasured_machine_has_the_costs_of_an_h200(void **state) {
    (void)state;
    const fig_traits h200 = {.size = sizeof h200, .name = "h200"};
    const fig_traits mine = {.size = sizeof mine, .name = "mine", .compute_capability = 90};
    const fig_traits host = {.size = sizeof host, .name = "host"};
    for (int32_t v = 0; v < VARIANT_COUNT; v++) {
        const fig_variant one = fig_traits_variant(&h200, v, 1), two = variant_of_h200(v);
        const fig_variant four = fig_traits_variant(&h200, v, 4);
        const fig_variant theirs = fig_traits_variant(&mine, v, 1);
        assert_memory_equal(&theirs, &one, sizeof one);
        assert_memory_equal(&four, &two, sizeof two);
        assert_int_not_equal(memcmp(&one, &two, sizeof one), 0);
        if (v >= fig_traits_variant_count(&host)) continue;
        const fig_variant hosts = fig_traits_variant(&host, v, 1);
        assert_memory_equal(&hosts, &one, sizeof one);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_gives_a_machine_that_passes),
        cmocka_unit_test(an_unknown_name_lists_what_there_is),
        cmocka_unit_test(a_field_out_of_range_is_refused_by_name),
        cmocka_unit_test(a_variant_fits_the_limits_of_the_split),
        cmocka_unit_test(a_variant_out_of_range_is_refused_by_name),
        cmocka_unit_test(an_unmeasured_machine_has_the_costs_of_an_h200),
        cmocka_unit_test(every_machine_has_candidates_also_one_of_another_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
