/* test_prompt_attention.c: compares attention over rows with many query tokens with float64, for
 * many combinations of rows, pages and heads. It also tests that only the right memory is read and
 * written.
 *
 * With FIG_DEVICE=cuda, FIG_IMAGE decides which family serves: hopper uses warpgroup instructions,
 * plain does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/table/reference_kernels.h"
#include "tests/support/kernels/prompt_case.h"
#include "tests/support/place.h"

enum { RANDOM_CASES = 60, HOST_SHARE = 4 };
/* The vectors that are compared with float64. Sanitizers watch the kernel, not the comparison. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { MOST = 80 };
#else
enum { MOST = 400 };
#endif

static uint64_t seed;

static int on_host(void) {
    return fig_place_device() == FIG_DEVICE_HOST;
}

static void try(const fig_prompt_form *form) {
    fig_prompt_case_try(form, seed, MOST);
}

static void a_prompt_sees_itself(void **state) {
    static const int32_t counts[] = {1, 2, 15, 16, 17, 31, 32, 33, 64, 127, 128, 129, 200};
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 8, 2, 128);
        fig_prompt_form_add(&form, counts[i], counts[i]);
        try(&form);
    }
}

static void a_chunk_sees_what_the_cache_holds(void **state) {
    static const int32_t before[] = {1, 63, 64, 100, 127, 128, 129, 500};
    (void)state;
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 8, 2, 128);
        fig_prompt_form_add(&form, 40, 40 + before[i]);
        fig_prompt_form_add(&form, 0, 0);
        fig_prompt_form_add(&form, 1, 1 + before[i]);
        try(&form);
    }
}

static void every_head_dim_and_dtype_is_right(void **state) {
    static const int32_t dims[] = {64, 80, 96, 128, 256};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof dims / sizeof dims[0]; i++) {
        fig_prompt_form form = fig_prompt_form_of(i % 2 ? FIG_F16 : FIG_BF16, 8, 2, dims[i / 2]);
        fig_prompt_form_add(&form, 70, 300);
        fig_prompt_form_add(&form, 5, 150);
        try(&form);
    }
}

static void every_ratio_of_heads_is_right(void **state) {
    static const int32_t ratios[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 33, 64};
    (void)state;
    for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
        fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 2 * ratios[i], 2, 64);
        fig_prompt_form_add(&form, 30, 200);
        fig_prompt_form_add(&form, 150, 150);
        try(&form);
    }
}

static void pages_may_have_any_size_in_either_order(void **state) {
    static const int32_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 100, 128, 256, 1024};
    (void)state;
    for (size_t i = 0; i < 4 * sizeof sizes / sizeof sizes[0]; i++) {
        /* The reference kernel is slow under a sanitizer and has one way through pages, so on the
         * host each size is tried in one of the four forms. */
        if (on_host() && i % 4 != i / 4 % 4) continue;
        fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 8, 2, i % 4 < 2 ? 128 : 96);
        form.page_size = sizes[i / 4];
        form.hnd = i % 2 != 0;
        fig_prompt_form_add(&form, 30, 290);
        fig_prompt_form_add(&form, 3, 77);
        try(&form);
    }
}

static void windows_caps_and_sinks_are_right(void **state) {
    static const int32_t windows[] = {1, 5, 64, 127, 128, 129, 300};
    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 8, 2, 128);
        form.window = windows[i];
        form.soft_cap = i % 2 ? 10.0f : 0.0f;
        form.sinks = i % 3 != 0;
        fig_prompt_form_add(&form, 100, 600);
        fig_prompt_form_add(&form, 200, 200);
        fig_prompt_form_add(&form, 1, 450);
        try(&form);
    }
}

static void rows_may_see_all_their_tokens(void **state) {
    (void)state;
    fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 8, 2, 128);
    form.sees_all = 1;
    form.window = 7; /* applies to causal rows only */
    fig_prompt_form_add(&form, 100, 300);
    fig_prompt_form_add(&form, 33, 33);
    try(&form);
}

static void heads_that_no_map_reaches_are_served_too(void **state) {
    (void)state;
    fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 8, 2, 128);
    form.hnd = form.apart = 1;
    fig_prompt_form_add(&form, 20, 200);
    try(&form);
}

/* The heads of K have gaps between them. They hold the heads of V, as in the packed pages of
 * servers, or other dims. */
static void heads_may_have_others_between_them(void **state) {
    static const int32_t sizes[] = {1, 6, 16, 64};
    (void)state;
    for (size_t i = 0; i < 8 * sizeof sizes / sizeof sizes[0]; i++) {
        if (on_host() && i % 4 != 0) continue;
        fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 12, 3, i / 4 % 2 ? 96 : 128);
        form.page_size = sizes[i / 8];
        form.between = i % 2 ? form.head_dim : 64;
        form.hnd = i % 4 > 1;
        fig_prompt_form_add(&form, 30, 290);
        fig_prompt_form_add(&form, 3, 77);
        try(&form);
    }
}

static fig_prompt_attention_params params_of(int64_t token, int64_t head) {
    static _Alignas(16) uint16_t memory[8];
    const fig_cache_strides strides = {16 * token, token, head};
    return (fig_prompt_attention_params){.q = memory,
                                         .k_cache = memory,
                                         .v_cache = memory,
                                         .out = (void *)memory,
                                         .workers = 132,
                                         .ratio = 4,
                                         .q_heads = 12,
                                         .kv_heads = 3,
                                         .head_dim = 128,
                                         .page_size = 16,
                                         .k_pages = 9,
                                         .v_pages = 9,
                                         .dtype = FIG_BF16,
                                         .kv_dtype = FIG_BF16,
                                         .q_strides = {12 * 128, 128},
                                         .out_strides = {12 * 128, 128},
                                         .k_cache_strides = strides,
                                         .v_cache_strides = strides};
}

/* Asks the family directly, because a run on the host does not show which family would serve it on
 * a GPU. */
static void a_map_reaches_heads_at_whole_columns(void **state) {
    static const struct {
        int64_t token, head;
        int is_served;
        uint64_t columns;
    } cases[] = {{384, 128, 1, 6},
                 {768, 256, 1, 10},
                 {576, 192, 1, 8},
                 {600, 200, 0, 0},
                 {640, 256, 1, 10},
                 {632, 256, 0, 0},
                 {1 << 18, 1 << 16, 1, 2050},
                 {1 << 18, (1 << 16) + 64, 0, 0}};
    fig_traits traits = {.size = sizeof traits};
    (void)state;
    assert_int_equal(fig_traits_named(&traits, "h200"), FIG_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fig_prompt_attention_params p = params_of(cases[i].token, cases[i].head);
        fig_tensor_map_recipe map = {.rank = 0};
        assert_int_equal(fig_prompt_attention_wide_refuses(&p, &traits) == NULL,
                         cases[i].is_served);
        if (!cases[i].is_served) continue;
        fig_prompt_attention_wide_map(&p, FIG_PROMPT_ATTENTION_V_MAP, &map);
        assert_int_equal(map.dims[2], cases[i].columns);
        assert_int_equal(map.dims[4], 9);
        assert_int_equal(map.strides_bytes[4], 16 * cases[i].token * 2);
    }
    fig_prompt_attention_params p = params_of(768, 256);
    p.v_cache_strides.head = 192;
    assert_non_null(fig_prompt_attention_wide_refuses(&p, &traits));
}

/* Runs a case whose rows share prefixes, and compares it with float64 and with the same step
 * without prefixes. */
static void try_prefixes(const fig_prompt_form *form) {
    fig_prompt_case c;
    fig_prompt_case_open(&c, form, seed);
    fig_prompt_case_compare(&c);
    fig_prompt_case_run(&c);
    fig_prompt_case_check(&c, MOST);
    fig_prompt_case_close(&c);
}

/* Workers get full strips, which keep both warpgroups busy, and between them strips for only one of
 * them. In a model of the kernel's first version, warpgroups waited for each other at head_dim
 * 256. */
static void strips_for_one_warpgroup_lie_between_full_ones(void **state) {
    static const int32_t dims[] = {64, 96, 128, 256};
    const int32_t rows = on_host() ? 3 : 40;
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 8, 1, dims[i]);
        for (int32_t r = 0; r < rows; r++)
            fig_prompt_form_add(&form, 20, on_host() ? 300 : 1024);
        try(&form);
    }
}

static void rows_share_a_prefix(void **state) {
    static const int32_t rows[] = {2, 3, 16, 17, 33, 64};
    static const int32_t dims[] = {64, 80, 96, 128, 256, 128};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fig_prompt_form form = fig_prompt_form_of(i % 2 ? FIG_F16 : FIG_BF16, 8, 2, dims[i]);
        form.sinks = i % 3 == 0;
        for (int32_t r = 0; r < rows[i]; r++)
            fig_prompt_form_add(&form, 1, 321 + 7 * r);
        fig_prompt_form_share(&form, 0, rows[i], 320);
        try_prefixes(&form);
    }
}

static void three_levels_of_prefixes_are_right(void **state) {
    static const int32_t ratios[] = {1, 3, 4, 6, 16};
    (void)state;
    for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
        fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 2 * ratios[i], 2, 128);
        form.early_reads = i % 2 == 0;
        form.soft_cap = i % 2 ? 10.0f : 0.0f;
        fig_prompt_form_add(&form, 20, 90);
        for (int32_t r = 0; r < 9; r++)
            fig_prompt_form_add(&form, r == 4 ? 0 : 1 + r % 3, 400 + 30 * r);
        fig_prompt_form_add(&form, 40, 40);
        fig_prompt_form_share(&form, 1, 8, 32);
        fig_prompt_form_share(&form, 1, 3, 160);
        fig_prompt_form_share(&form, 1, 3, 288);
        fig_prompt_form_share(&form, 4, 5, 304);
        try_prefixes(&form);
    }
}

static void chunks_may_share_a_prompt(void **state) {
    (void)state;
    fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 4, 1, 128);
    fig_prompt_form_add(&form, 100, 1000);
    fig_prompt_form_add(&form, 1, 900);
    fig_prompt_form_add(&form, 64, 897);
    fig_prompt_form_share(&form, 0, 3, 832);
    try_prefixes(&form);
    form.sees_all = 1;
    try_prefixes(&form);
}

/* A row gives the same bits alone as at another place among other rows. */
static void a_deterministic_row_depends_on_itself_alone(void **state) {
    (void)state;
    fig_prompt_case alone, among;
    fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 8, 2, 128);
    form.deterministic = 1;
    fig_prompt_form_add(&form, 75, 900);
    fig_prompt_case_open(&alone, &form, seed);
    form.gap = 3;
    form.rows = 0;
    fig_prompt_form_add(&form, 33, 500);
    fig_prompt_form_add(&form, 75, 900);
    fig_prompt_form_add(&form, 1, 300);
    form.contents[0] = 5;
    form.contents[1] = 0;
    fig_prompt_case_open(&among, &form, seed);
    fig_prompt_case_run(&alone);
    fig_prompt_case_run(&among);
    const size_t token = (size_t)form.q_heads * (size_t)form.head_dim * 2;
    assert_memory_equal((const uint8_t *)alone.out.data + token * (size_t)alone.starts[0],
                        (const uint8_t *)among.out.data + token * (size_t)among.starts[1],
                        75 * token);
    fig_prompt_case_close(&alone);
    fig_prompt_case_close(&among);
}

/* Returns a number up to the limit; each magnitude is about as likely as any other. */
static int32_t draw_size(fig_random *random, int32_t limit) {
    const int32_t most = limit >> fig_random_range(random, 0, 8);
    return fig_random_range(random, 0, most > 1 ? most : 1);
}

static fig_prompt_form draw_form(fig_random *random) {
    static const int32_t dims[] = {64, 80, 96, 128, 128, 256};
    static const int32_t pages[] = {1, 2, 5, 8, 16, 16, 16, 32, 64};
    const int32_t kv_heads = fig_random_range(random, 1, 3);
    fig_prompt_form form = fig_prompt_form_of(fig_random_range(random, 0, 1) ? FIG_BF16 : FIG_F16,
                                              kv_heads * fig_random_range(random, 1, 9), kv_heads,
                                              dims[fig_random_range(random, 0, 5)]);
    form.page_size = pages[fig_random_range(random, 0, 8)];
    form.hnd = fig_random_range(random, 0, 1);
    form.gap = fig_random_range(random, 0, 3);
    form.sinks = fig_random_range(random, 0, 1);
    form.early_reads = fig_random_range(random, 0, 1);
    form.deterministic = fig_random_range(random, 0, 3) == 0;
    form.sees_all = fig_random_range(random, 0, 5) == 0;
    if (fig_random_range(random, 0, 2) == 0) form.window = 1 + draw_size(random, 400);
    if (fig_random_range(random, 0, 2) == 0) form.soft_cap = 15.0f;
    for (int32_t rows = fig_random_range(random, 1, 6); rows > 0; rows--) {
        const int32_t queries = draw_size(random, 256);
        fig_prompt_form_add(&form, queries, queries + draw_size(random, 700));
    }
    return form;
}

/* If a step finds no plan, the head of the plan has zero rows, but an older plan's strips still
 * follow it. */
static void strips_of_a_plan_without_rows_are_not_run(void **state) {
    (void)state;
    enum { DIM = 64, PLACE = 128, BYTES = 4096 };
    const fig_strips_shape shape = {
        .ratio = 1, .kv_heads = 1, .head_dim = DIM, .tile_tokens = 128, .workers = 2};
    const fig_strips_segment chunk = {.queries = 9, .end = 9};
    const fig_strips_limits limits = {.segments = 1, .queries = 9, .least = 9};
    uint8_t *plan = fig_place_allocate(BYTES);
    uint32_t *places = (uint32_t *)(void *)(plan + PLACE);
    uint32_t counters[FIG_STRIPS_ARRIVALS] = {0};
    fig_plan_head *head = (fig_plan_head *)(void *)plan;
    fig_reference_array q = fig_reference_array_make(FIG_BF16, 9 * DIM);
    fig_reference_array cache = fig_reference_array_make(FIG_BF16, 16 * DIM);
    fig_reference_array out = fig_reference_array_make(FIG_BF16, 9 * DIM);
    fig_reference_array table = fig_reference_array_make(FIG_I32, 1);
    fig_random random = fig_random_seed(seed);
    places[2] = FIG_PLAN_STRIPS_HEAD;
    assert_true(fig_strip_sizes_bound(&shape, &limits).plan_bytes < BYTES - PLACE - 16);
    fig_strips_make(&shape, &chunk, 1, plan + PLACE + FIG_PLAN_STRIPS_HEAD);
    fig_reference_array_fill(&q, 0, 9 * DIM, &random, 1.0f);
    fig_reference_array_fill(&cache, 0, 16 * DIM, &random, 1.0f);
    fig_reference_array_set(&table, 0, 0);
    const fig_cache_strides strides = {16 * DIM, DIM, DIM};
    const fig_prompt_attention_params params = {.q = q.data,
                                                .k_cache = cache.data,
                                                .v_cache = cache.data,
                                                .out = out.data,
                                                .page_table = table.data,
                                                .plan = plan,
                                                .counters = counters,
                                                .q_strides = {DIM, DIM},
                                                .out_strides = {DIM, DIM},
                                                .k_cache_strides = strides,
                                                .v_cache_strides = strides,
                                                .table_stride = 1,
                                                .k_pages = 1,
                                                .v_pages = 1,
                                                .rows = {9, 1, 0, 0},
                                                .workers = 2,
                                                .q_heads = 1,
                                                .kv_heads = 1,
                                                .head_dim = DIM,
                                                .page_size = 16,
                                                .ratio = 1,
                                                .half = 64,
                                                .tile_tokens = 128,
                                                .dtype = FIG_BF16,
                                                .kv_dtype = FIG_BF16,
                                                .sm_scale = 0.125f,
                                                .flags = FIG_ATTENTION_EARLY,
                                                .strips_offset = PLACE,
                                                .split_class = 2};
    fig_reference_array_keep(&out);
    head->rows = 0;
    fig_reference_launch(FIG_OP_PROMPT_ATTENTION, &params, &random);
    fig_reference_array_check(&out, "out");
    head->rows = 1;
    fig_reference_launch(FIG_OP_PROMPT_ATTENTION, &params, &random);
    assert_memory_equal(out.data, cache.data, DIM * 2); /* the first query sees one token */
    fig_reference_array_free(&q);
    fig_reference_array_free(&cache);
    fig_reference_array_free(&out);
    fig_reference_array_free(&table);
    fig_place_free(plan);
}

/* Draws rows that share pages from page 0 on, and prefixes inside prefixes. */
static fig_prompt_form draw_prefixes(fig_random *random) {
    fig_prompt_form form = draw_form(random);
    form.window = form.deterministic = form.rows = 0;
    form.page_size = fig_random_range(random, 0, 1) ? 16 : 4;
    const int32_t rows = fig_random_range(random, 2, 20);
    const int32_t pages = 1 + draw_size(random, 30);
    for (int32_t r = 0; r < rows; r++) {
        const int32_t queries = fig_random_range(random, 0, 5) == 0
                                    ? draw_size(random, 90)
                                    : fig_random_range(random, 0, 3);
        fig_prompt_form_add(&form, queries,
                            3 * pages * form.page_size + queries + draw_size(random, 200));
    }
    for (int32_t first = 0; first + 2 <= rows;) {
        const int32_t count = fig_random_range(random, 2, rows - first);
        int32_t levels = fig_random_range(random, 0, 3), inner = count, tokens = 0;
        for (; levels > 0 && inner >= 2; levels--) {
            tokens += fig_random_range(random, 1, pages) * form.page_size;
            fig_prompt_form_share(&form, first, inner, tokens);
            inner = fig_random_range(random, 1, inner);
        }
        first += count;
    }
    return form;
}

/* All rows but the last share a prompt, and half of them more of it. */
static void prefixes_are_found_in_the_page_table(void **state) {
    (void)state;
    fig_prompt_case c;
    fig_prompt_form form = fig_prompt_form_of(FIG_BF16, 4, 1, 128);
    form.finds = 1;
    for (int32_t r = 0; r < 40; r++)
        fig_prompt_form_add(&form, 1 + r % 2, 1700 + 5 * r);
    fig_prompt_form_add(&form, 90, 300);
    fig_prompt_form_share(&form, 0, 40, 800);
    fig_prompt_form_share(&form, 0, 20, 1600);
    fig_prompt_case_open(&c, &form, seed);
    const fig_strips_head *head = c.plan;
    assert_int_equal(head->members, 60 + 30 + 60); /* two groups, and the rows' own tokens */
    fig_prompt_case_compare(&c);
    fig_prompt_case_run(&c);
    fig_prompt_case_check(&c, MOST);
    fig_prompt_case_close(&c);
    form.shared_limit = 59; /* the group of all rows has 60 query tokens */
    fig_prompt_case_open(&c, &form, seed);
    head = c.plan;
    assert_int_equal(head->members, 0);
    fig_prompt_case_run(&c);
    fig_prompt_case_close(&c);
}

static void random_prefixes_are_right(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed);
    for (int i = 0; i < fig_place_cases(RANDOM_CASES); i++) {
        fig_prompt_form form = draw_prefixes(&random);
        form.finds = fig_random_range(&random, 0, 1);
        fig_prompt_case_try(&form, seed + (uint64_t)i, MOST / 4);
    }
}

static void random_steps_are_right(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed);
    const int cases = on_host() ? RANDOM_CASES / HOST_SHARE : RANDOM_CASES;
    for (int i = 0; i < fig_place_cases(cases); i++) {
        const fig_prompt_form form = draw_form(&random);
        fig_prompt_case_try(&form, seed + (uint64_t)i, MOST / 4);
    }
}

int main(int argc, char **argv) {
    seed = fig_reference_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_sees_itself),
        cmocka_unit_test(a_chunk_sees_what_the_cache_holds),
        cmocka_unit_test(every_head_dim_and_dtype_is_right),
        cmocka_unit_test(every_ratio_of_heads_is_right),
        cmocka_unit_test(pages_may_have_any_size_in_either_order),
        cmocka_unit_test(windows_caps_and_sinks_are_right),
        cmocka_unit_test(rows_may_see_all_their_tokens),
        cmocka_unit_test(heads_that_no_map_reaches_are_served_too),
        cmocka_unit_test(heads_may_have_others_between_them),
        cmocka_unit_test(a_map_reaches_heads_at_whole_columns),
        cmocka_unit_test(a_deterministic_row_depends_on_itself_alone),
        cmocka_unit_test(strips_of_a_plan_without_rows_are_not_run),
        cmocka_unit_test(strips_for_one_warpgroup_lie_between_full_ones),
        cmocka_unit_test(rows_share_a_prefix),
        cmocka_unit_test(three_levels_of_prefixes_are_right),
        cmocka_unit_test(chunks_may_share_a_prompt),
        cmocka_unit_test(random_steps_are_right),
        cmocka_unit_test(prefixes_are_found_in_the_page_table),
        cmocka_unit_test(random_prefixes_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
