/* test_prompts.c: tests which field fig_prompts names when it refuses a call, that a refused call
 * launches nothing and keeps no memory, and that the measured sizes of memory are right.
 *
 * tests/kernels/wide/test_prompt_attention.c tests the results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_prompts.h"
#include "kernels/table/families.h"
#include "tests/support/fault.h"
#include "tests/support/place.h"

enum { ROWS = 2, TOKENS = 5, COLUMNS = 3, PAGE = 16, PAGES = 7, HEADS = 4, DIM = 64 };

static const int32_t starts[ROWS + 1] = {0, 3, 5};
static const int32_t lengths[ROWS] = {40, 2};
static const int32_t table[ROWS * COLUMNS] = {4, 2, 6, 1, 0, 0};
static _Alignas(64) uint16_t q[TOKENS * HEADS * DIM], out[TOKENS * HEADS * DIM];
static _Alignas(64) uint16_t k[PAGES * PAGE * DIM], v[PAGES * PAGE * DIM];
static _Alignas(64) uint8_t plan[1 << 16];
static float lse[TOKENS * HEADS];
static uint8_t *scratch;

static fig_prompts_options good_options(void) {
    return (fig_prompts_options){.size = sizeof(fig_prompts_options),
                                 .device = FIG_DEVICE_HOST,
                                 .dtype = FIG_F16,
                                 .q_heads = HEADS,
                                 .kv_heads = 1,
                                 .head_dim = DIM,
                                 .page_size = PAGE};
}

static fig_prompts_step good_step(void) {
    return (fig_prompts_step){.size = sizeof(fig_prompts_step),
                              .rows = ROWS,
                              .query_start = starts,
                              .lengths = lengths,
                              .page_columns = COLUMNS};
}

static fig_prompts *open_good(void) {
    const fig_prompts_options options = good_options();
    fig_prompts *prompts;
    if (fig_prompts_open(&prompts, &options) != FIG_OK) fail_msg("%s", fig_message());
    return prompts;
}

static fig_prompts_memory measure(const fig_prompts *prompts) {
    fig_prompts_memory memory = {.size = sizeof memory};
    assert_int_equal(fig_prompts_measure(prompts, ROWS, TOKENS, &memory), FIG_OK);
    return memory;
}

static void refused(fig_status status, fig_status expected, const char *field) {
    assert_int_equal(status, expected);
    if (strstr(fig_message(), field) == NULL) fail_msg("%s: %s", field, fig_message());
}

/* ---- Open */

static void an_option_that_is_wrong_is_named(void **state) {
    (void)state;
    static const struct {
        size_t at;
        int32_t value;
        const char *field;
    } wrong[] = {{offsetof(fig_prompts_options, dtype), FIG_F32, "dtype"},
                 {offsetof(fig_prompts_options, dtype), 0, "dtype"},
                 {offsetof(fig_prompts_options, q_heads), 0, "q_heads"},
                 {offsetof(fig_prompts_options, q_heads), 65, "q_heads"},
                 {offsetof(fig_prompts_options, kv_heads), 0, "kv_heads"},
                 {offsetof(fig_prompts_options, kv_heads), 3, "kv_heads"},
                 {offsetof(fig_prompts_options, head_dim), 72, "head_dim"},
                 {offsetof(fig_prompts_options, page_size), 0, "page_size"},
                 {offsetof(fig_prompts_options, window), -1, "window"},
                 {offsetof(fig_prompts_options, deterministic), 2, "deterministic"},
                 {offsetof(fig_prompts_options, sm_scale), (int32_t)0xbf800000u, "sm_scale"},
                 {offsetof(fig_prompts_options, sm_scale), 0x7f800000, "sm_scale"},
                 {offsetof(fig_prompts_options, soft_cap), 0x7f800000, "soft_cap"},
                 {offsetof(fig_prompts_options, soft_cap), 0x7fc00000, "soft_cap"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        fig_prompts_options options = good_options();
        fig_prompts *prompts = (void *)&options;
        memcpy((uint8_t *)&options + wrong[i].at, &wrong[i].value, sizeof wrong[i].value);
        refused(fig_prompts_open(&prompts, &options), FIG_INVALID, wrong[i].field);
        assert_null(prompts);
    }
}

static void memory_that_is_short_is_an_error(void **state) {
    (void)state;
    const fig_prompts_options options = good_options();
    fig_prompts *prompts;
    int refusals = 0;
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        const fig_status status = fig_prompts_open(&prompts, &options);
        if (fig_fault_disarm() < n) break;
        refusals++;
        assert_int_equal(status, FIG_NOMEM);
        assert_null(prompts);
    }
    fig_prompts_close(prompts);
    assert_true(refusals > 0);
    fig_prompts_close(NULL);
}

/* ---- Measure */

static void measures_hold_any_step_and_refuse_impossible_ones(void **state) {
    (void)state;
    fig_prompts *prompts = open_good();
    fig_prompts_memory memory = {.size = sizeof memory};
    refused(fig_prompts_measure(prompts, -1, 1, &memory), FIG_INVALID, "rows");
    refused(fig_prompts_measure(prompts, 1, -1, &memory), FIG_TOO_LARGE, "tokens");
    refused(fig_prompts_measure(prompts, 1, (1 << 24) + 1, &memory), FIG_TOO_LARGE, "tokens");
    assert_int_equal(memory.plan_bytes, 0);
    uint64_t before = 0;
    for (int32_t tokens = 0; tokens < 5000; tokens += 613) {
        assert_int_equal(fig_prompts_measure(prompts, 3, tokens, &memory), FIG_OK);
        assert_true(memory.plan_bytes >= before && memory.scratch_bytes >= memory.zero_bytes);
        assert_int_equal(memory.zero_bytes % 16, 0);
        before = memory.plan_bytes;
    }
    assert_int_equal(fig_prompts_device(prompts), FIG_DEVICE_HOST);
    fig_prompts_close(prompts);
}

/* ---- Plan */

static void a_step_that_is_wrong_is_named(void **state) {
    (void)state;
    static const int32_t falls[] = {0, 3, 2}, low[] = {-1, 3, 5}, shorter[] = {2, 2},
                         longer[] = {COLUMNS * PAGE + 1, 2};
    fig_prompts *prompts = open_good();
    const uint64_t bytes = measure(prompts).plan_bytes;
    fig_prompts_step step = good_step();
    assert_int_equal(fig_prompts_plan(prompts, &step, plan, bytes), FIG_OK);
    refused(fig_prompts_plan(prompts, &step, NULL, bytes), FIG_INVALID, "plan is");
    refused(fig_prompts_plan(prompts, &step, plan + 8, bytes), FIG_INVALID, "plan is");
    refused(fig_prompts_plan(prompts, &step, plan, 64), FIG_INVALID, "plan_bytes");
    step.query_start = falls;
    refused(fig_prompts_plan(prompts, &step, plan, bytes), FIG_INVALID, "row 1");
    step.query_start = low;
    refused(fig_prompts_plan(prompts, &step, plan, bytes), FIG_INVALID, "row 0");
    step.query_start = NULL;
    refused(fig_prompts_plan(prompts, &step, plan, bytes), FIG_INVALID, "query_start");
    step = good_step();
    step.lengths = shorter;
    refused(fig_prompts_plan(prompts, &step, plan, bytes), FIG_INVALID, "length of row 0");
    step.lengths = longer;
    refused(fig_prompts_plan(prompts, &step, plan, bytes), FIG_INVALID, "length of row 0");
    step = good_step();
    step.rows = -1;
    refused(fig_prompts_plan(prompts, &step, plan, bytes), FIG_INVALID, "rows");
    step = good_step();
    step.sees_all = 2;
    refused(fig_prompts_plan(prompts, &step, plan, bytes), FIG_INVALID, "sees_all");
    fig_prompts_close(prompts);
}

static void refuse_prefixes(fig_prompts *prompts, const fig_prompts_prefix *prefixes, int32_t count,
                            const char *field) {
    static const int32_t begins[] = {0, 1, 2, 4, 4, 5}, tokens[] = {9, 9, 9, 0, 9};
    const fig_prompts_step step = {.size = sizeof step,
                                   .rows = 5,
                                   .query_start = begins,
                                   .lengths = tokens,
                                   .page_columns = COLUMNS,
                                   .prefix_count = count,
                                   .prefixes = prefixes};
    const fig_status status = fig_prompts_plan(prompts, &step, plan, sizeof plan);
    if (field == NULL) {
        assert_int_equal(status, FIG_OK);
    } else {
        refused(status, FIG_INVALID, field);
    }
}

static void a_prefix_that_is_wrong_is_named(void **state) {
    (void)state;
    fig_prompts_options options = good_options();
    fig_prompts *prompts;
    options.shared_limit = 5;
    assert_int_equal(fig_prompts_open(&prompts, &options), FIG_OK);
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{0, 5, 2}, {0, 3, 4}, {0, 2, 6}, {3, 2, 7}}, 4,
                    NULL); /* row 3 has no queries, so its length does not count */
    refuse_prefixes(prompts, NULL, 1, "prefix_count is 1");
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{0, 2, 1}}, -1, "prefix_count is -1");
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{-1, 2, 1}}, 1, "prefix 0 has rows -1");
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{0, 1, 1}}, 1, "prefix 0 has rows 0 and 1");
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{4, 2, 1}}, 1, "prefix 0 has rows 4");
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{0, 2, 0}}, 1, "tokens 0");
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{0, 3, 8}}, 1, "row 2 has 7");
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{1, 2, 1}, {0, 2, 1}}, 2, "prefix 1 begins");
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{0, 2, 1}, {1, 2, 2}}, 2,
                    "prefix 1 has rows of");
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{0, 3, 2}, {0, 2, 2}}, 2,
                    "prefix 1 has rows of");
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{0, 2, 1}, {0, 2, 2}, {0, 2, 3}, {0, 2, 4}}, 4,
                    "prefix 3 is inside 3 others");
    fig_prompts_close(prompts);
    options.shared_limit = 3;
    assert_int_equal(fig_prompts_open(&prompts, &options), FIG_OK);
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{0, 3, 2}}, 1, "shared_limit is 3");
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{0, 2, 2}}, 1, NULL);
    fig_prompts_close(prompts);
    static const int32_t pages[5 * COLUMNS];
    fig_prompts_step step = good_step();
    step.page_table = pages;
    step.table_stride = COLUMNS;
    assert_int_equal(fig_prompts_open(&prompts, &options), FIG_OK);
    assert_int_equal(fig_prompts_plan(prompts, &step, plan, sizeof plan), FIG_OK);
    step.table_stride = COLUMNS - 1;
    refused(fig_prompts_plan(prompts, &step, plan, sizeof plan), FIG_INVALID, "table_stride");
    step.table_stride = COLUMNS;
    step.prefix_count = 1;
    step.prefixes = &(fig_prompts_prefix){0, 2, 1};
    refused(fig_prompts_plan(prompts, &step, plan, sizeof plan), FIG_INVALID, "prefix_count");
    fig_prompts_close(prompts);
    options.deterministic = 1;
    assert_int_equal(fig_prompts_open(&prompts, &options), FIG_OK);
    refuse_prefixes(prompts, (fig_prompts_prefix[]){{0, 2, 2}}, 1, "deterministic");
    fig_prompts_close(prompts);
    options.shared_limit = -1;
    refused(fig_prompts_open(&prompts, &options), FIG_INVALID, "shared_limit");
}

/* Each of the step's lists may lack memory. */
static void a_plan_without_memory_is_refused(void **state) {
    (void)state;
    static const int32_t pages[ROWS * COLUMNS];
    fig_prompts_options options = good_options();
    fig_prompts_step step = good_step();
    fig_prompts *prompts;
    int64_t n = 1;
    options.shared_limit = TOKENS;
    step.page_table = pages;
    step.table_stride = COLUMNS;
    assert_int_equal(fig_prompts_open(&prompts, &options), FIG_OK);
    for (;; n++) {
        fig_fault_arm(n);
        const fig_status status = fig_prompts_plan(prompts, &step, plan, sizeof plan);
        if (fig_fault_disarm() < n) break;
        assert_int_equal(status, FIG_NOMEM);
    }
    assert_true(n > 10);
    fig_prompts_close(prompts);
}

/* ---- Run */

static fig_prompts_call good_call(const fig_prompts *prompts) {
    const fig_prompts_memory memory = measure(prompts);
    const fig_prompts_step step = good_step();
    assert_int_equal(fig_prompts_plan(prompts, &step, plan, sizeof plan), FIG_OK);
    scratch = fig_place_allocate(memory.scratch_bytes);
    assert_non_null(scratch);
    memset(scratch, 0, memory.zero_bytes);
    return (fig_prompts_call){.size = sizeof(fig_prompts_call),
                              .tokens = TOKENS,
                              .plan = plan,
                              .q = q,
                              .out = out,
                              .lse = lse,
                              .k_cache = k,
                              .v_cache = v,
                              .pages = PAGES,
                              .page_table = table,
                              .table_stride = COLUMNS,
                              .scratch = scratch,
                              .scratch_bytes = memory.scratch_bytes};
}

/* Each expansion sets one field of a good call to a wrong value. */
#define WRONG(field, value, word)                                                                  \
    do {                                                                                           \
        fig_prompts_call bad = call;                                                               \
        bad.field = (value);                                                                       \
        refused(fig_prompts_run(prompts, &bad), FIG_INVALID, word);                                \
    } while (0)

static void a_call_that_is_wrong_is_named_and_writes_nothing(void **state) {
    (void)state;
    fig_prompts *prompts = open_good();
    const fig_prompts_call call = good_call(prompts);
    memset(out, 0x5a, sizeof out);
    WRONG(plan, NULL, "plan");
    WRONG(plan, plan + 4, "plan");
    WRONG(q, NULL, "q is");
    WRONG(out, NULL, "out");
    WRONG(k_cache, NULL, "k_cache");
    WRONG(v_cache, (uint8_t *)v + 1, "v_cache");
    WRONG(page_table, NULL, "page_table");
    WRONG(scratch, NULL, "scratch");
    WRONG(scratch_bytes, call.scratch_bytes - 1, "scratch_bytes");
    WRONG(pages, 0, "pages");
    WRONG(table_stride, -1, "stride");
    WRONG(q_strides[1], -64, "stride");
    WRONG(early_reads, 2, "early_reads");
    WRONG(lse, (float *)(void *)((uint8_t *)lse + 2), "lse");
    WRONG(stream, (void *)16, "stream");
    fig_prompts_call bad = call;
    bad.tokens = -1;
    refused(fig_prompts_run(prompts, &bad), FIG_TOO_LARGE, "tokens");
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
        assert_int_equal(out[i], 0x5a5a);
    fig_place_free(scratch);
    fig_prompts_close(prompts);
}

static void what_a_run_writes_overlaps_nothing(void **state) {
    (void)state;
    static _Alignas(64) uint16_t heads[TOKENS * 2 * HEADS * DIM];
    static _Alignas(64) uint16_t pool[PAGES * 2 * PAGE * DIM];
    fig_prompts *prompts = open_good();
    const fig_prompts_call call = good_call(prompts);
    WRONG(out, q, "run: out overlaps q, which the run reads");
    WRONG(out, q + (TOKENS - 1) * HEADS * DIM, "run: out overlaps q, which the run reads");
    WRONG(out, k, "run: out overlaps k_cache, which the run reads");
    WRONG(out, v + DIM, "run: out overlaps v_cache, which the run reads");
    WRONG(lse, (float *)(void *)(out + 2), "run: lse overlaps out, which the run writes too");
    WRONG(lse, (float *)(void *)(q + 2), "run: lse overlaps q, which the run reads");
    WRONG(lse, (float *)(void *)(k + 2), "run: lse overlaps k_cache, which the run reads");
    WRONG(q_strides[0], INT64_MAX, "run: a stride of q is");
    WRONG(k_strides[0], INT64_MAX / 2, "run: a stride of k_cache is");
    fig_prompts_call side = call; /* q and out side by side, as are K and V */
    side.q = heads;
    side.out = heads + HEADS * DIM;
    side.q_strides[0] = side.out_strides[0] = 2 * HEADS * DIM;
    side.k_cache = pool;
    side.v_cache = pool + PAGE * DIM;
    side.k_strides[0] = side.v_strides[0] = 2 * PAGE * DIM;
    assert_int_equal(fig_prompts_run(prompts, &side), FIG_OK);
    side.out = heads + HEADS * DIM - 1;
    refused(fig_prompts_run(prompts, &side), FIG_INVALID, "out overlaps q");
    fig_place_free(scratch);
    fig_prompts_close(prompts);
}

static void tokens_of_no_row_need_no_memory(void **state) {
    (void)state;
    fig_prompts *prompts = open_good();
    const fig_prompts_call call = {.size = sizeof call, .pages = 1};
    assert_int_equal(fig_prompts_run(prompts, &call), FIG_OK);
    fig_prompts_close(prompts);
}

/* A row whose queries see only one token each gets that token's values. */
static void a_call_computes_attention(void **state) {
    (void)state;
    fig_prompts *prompts = open_good();
    const fig_prompts_call call = good_call(prompts);
    for (int32_t i = 0; i < DIM; i++)
        v[(1 * PAGE + 0) * DIM + i] = (uint16_t)(0x3c00 + i); /* row 1, token 0 */
    assert_int_equal(fig_prompts_run(prompts, &call), FIG_OK);
    for (int32_t head = 0; head < HEADS; head++)
        assert_memory_equal(out + (3 * HEADS + head) * DIM, v + 1 * PAGE * DIM,
                            DIM * sizeof(uint16_t));
    fig_place_free(scratch);
    fig_prompts_close(prompts);
}

/* ---- Families */

static fig_prompt_attention_params wide_params(void) {
    const fig_cache_strides cache = {PAGE * 2 * 128, 2 * 128, 128};
    return (fig_prompt_attention_params){.q_heads = 8,
                                         .kv_heads = 2,
                                         .head_dim = 128,
                                         .page_size = PAGE,
                                         .ratio = 4,
                                         .half = 16,
                                         .dtype = FIG_BF16,
                                         .kv_dtype = FIG_BF16,
                                         .workers = 132,
                                         .q_strides = {8 * 128, 128},
                                         .out_strides = {8 * 128, 128},
                                         .k_cache_strides = cache,
                                         .v_cache_strides = cache};
}

static uint32_t family_of(const fig_prompt_attention_params *params, const char *chip) {
    fig_traits traits = {.size = sizeof traits};
    fig_family_choice choice;
    assert_int_equal(fig_traits_named(&traits, chip), FIG_OK);
    fig_families_choose(FIG_OP_PROMPT_ATTENTION, params, &traits, &choice);
    return choice.family;
}

static void warpgroups_serve_where_they_can(void **state) {
    (void)state;
    const uint32_t wide = FIG_FAMILY_PROMPT_ATTENTION_WIDE;
    const uint32_t plain = FIG_FAMILY_PROMPT_ATTENTION_PLAIN;
    fig_prompt_attention_params p = wide_params();
    assert_int_equal(family_of(&p, "h200"), wide);
    assert_int_equal(family_of(&p, "h100"), wide);
    assert_int_equal(family_of(&p, "a100"), plain);
    assert_int_equal(family_of(&p, "host"), plain);
    p.head_dim = 80;
    assert_int_equal(family_of(&p, "h200"), plain);
    p = wide_params();
    p.q_strides.row += 4; /* a row then begins 8 bytes off the required alignment */
    assert_int_equal(family_of(&p, "h200"), plain);
    p = wide_params();
    /* K is in HND order */
    p.k_cache_strides = (fig_cache_strides){PAGE * 2 * 128, 128, PAGE * 128};
    /* V is not in HND order yet */
    assert_int_equal(family_of(&p, "h200"), plain);
    p.v_cache_strides = p.k_cache_strides;
    assert_int_equal(family_of(&p, "h200"), wide);
    p.k_cache_strides.page += 128;
    assert_int_equal(family_of(&p, "h200"), plain);
    p = wide_params();
    p.head_dim = 96;
    p.page_size = 3;
    assert_int_equal(family_of(&p, "h200"), plain);
    p.page_size = 6;
    p.k_cache_strides = p.v_cache_strides = (fig_cache_strides){6 * 2 * 96, 2 * 96, 96};
    assert_int_equal(family_of(&p, "h200"), wide);
}

int main(void) {
    fig_place_host_program("its arrays are the program's own");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_option_that_is_wrong_is_named),
        cmocka_unit_test(memory_that_is_short_is_an_error),
        cmocka_unit_test(measures_hold_any_step_and_refuse_impossible_ones),
        cmocka_unit_test(a_step_that_is_wrong_is_named),
        cmocka_unit_test(a_prefix_that_is_wrong_is_named),
        cmocka_unit_test(a_plan_without_memory_is_refused),
        cmocka_unit_test(a_call_that_is_wrong_is_named_and_writes_nothing),
        cmocka_unit_test(what_a_run_writes_overlaps_nothing),
        cmocka_unit_test(tokens_of_no_row_need_no_memory),
        cmocka_unit_test(a_call_computes_attention),
        cmocka_unit_test(warpgroups_serve_where_they_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
