/* test_append_kv.c: tests that append_kv writes each query token of a row to its place in the
 * cache, unchanged or as the nearest fp8 number, and changes nothing else.
 *
 * Each cache is filled with numbers and poison in equal parts first, so that stray writes are
 * found. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "tests/support/kernels/reference.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth.h"

enum { CASES = 400, ROW_LIMIT = 6, HEAD_LIMIT = 3, PAGE_LIMIT = 54, TABLE_LIMIT = 8 };
static_assert(PAGE_LIMIT >= ROW_LIMIT * TABLE_LIMIT, "a page for each entry");

static uint64_t seed;

/* K or V. */
typedef struct append_side {
    fig_reference_array in, cache, scale;
    fig_row_strides strides;
    fig_cache_strides cache_strides;
    int64_t pages;
} append_side;

typedef struct append_case {
    fig_random random;
    int64_t unit; /* see fig_reference_unit() */
    int32_t rows, dense;
    int32_t lengths[ROW_LIMIT], sequences[ROW_LIMIT], tokens[ROW_LIMIT];
    fig_plan_shape shape;
    uint8_t *plan;
    fig_reference_array table;
    append_side k, v;
    fig_append_kv_params params;
} append_case;

static int32_t draw(append_case *c, int32_t low, int32_t high) {
    return fig_random_range(&c->random, low, high);
}

/* Stores a signalling NaN, which a conversion would make quiet. */
static void set_signal(fig_reference_array *array, int64_t index) {
    switch (array->dtype) {
    case FIG_F16: ((uint16_t *)array->data)[index] = 0x7c01; break;
    case FIG_BF16: ((uint16_t *)array->data)[index] = 0x7f81; break;
    default: ((uint32_t *)array->data)[index] = 0x7f800001; break;
    }
}

/* Fills the input with numbers, some of which fp8 cannot represent. */
static void fill_in(append_case *c, append_side *side) {
    static const double odd[] = {INFINITY, -INFINITY, NAN, 0, -0.0, 3e4, -3e4, 1e-6, 448, 464, 240};
    fig_reference_array_fill(&side->in, 0, side->in.count, &c->random, 2);
    for (int64_t i = 0; i < side->in.count; i += draw(c, 1, 40))
        fig_reference_array_set(&side->in, i, odd[draw(c, 0, 10)]);
    for (int64_t i = 0; i < side->in.count; i += draw(c, 1, 100))
        set_signal(&side->in, i);
    fig_reference_array_keep(&side->in);
}

static int64_t stride_of(append_case *c, int64_t width) {
    return fig_reference_stride(&c->random, c->unit, width);
}

static void open_side(append_case *c, append_side *side, int32_t scales) {
    const fig_append_kv_params *p = &c->params;
    side->strides.head = stride_of(c, p->head_dim);
    side->strides.row = stride_of(c, p->kv_heads * side->strides.head);
    side->pages = draw(c, 2 * ROW_LIMIT, PAGE_LIMIT);
    fig_cache_strides *cache = &side->cache_strides;
    if (draw(c, 0, 1)) { /* NHD or HND */
        cache->head = stride_of(c, p->head_dim);
        cache->token = stride_of(c, p->kv_heads * cache->head);
        cache->page = stride_of(c, p->page_size * cache->token);
    } else {
        cache->token = stride_of(c, p->head_dim);
        cache->head = stride_of(c, p->page_size * cache->token);
        cache->page = stride_of(c, p->kv_heads * cache->head);
    }
    side->in = fig_reference_array_make(p->dtype, p->rows.row_limit * side->strides.row);
    side->cache = fig_reference_array_make(p->kv_dtype, side->pages * side->cache_strides.page);
    fig_reference_array_fill(&side->cache, 0, side->cache.count / 2, &c->random, 1);
    fig_reference_array_keep(&side->cache);
    fill_in(c, side);
    if (scales == 0) return;
    side->scale = fig_reference_array_make(FIG_F32, scales);
    for (int32_t i = 0; i < scales; i++)
        fig_reference_array_set(&side->scale, i, draw(c, 0, 2) == 0 ? 1 : 0.01 * draw(c, 1, 200));
}

/* Gives each entry a page of its own; a few entries name invalid pages. */
static void open_table(append_case *c) {
    static const int32_t outside[] = {-1, INT32_MIN, INT32_MAX, PAGE_LIMIT, PAGE_LIMIT + 1};
    int32_t next = 0;
    c->table = fig_reference_array_make(FIG_I32, 2 * ROW_LIMIT * (TABLE_LIMIT + 1));
    for (int32_t r = 0; r < c->rows; r++) {
        for (int32_t i = 0; i < TABLE_LIMIT; i++) {
            int32_t page = draw(c, 0, 3) > 0 ? next++ : outside[draw(c, 0, 4)];
            fig_reference_array_set(&c->table, c->sequences[r] * (TABLE_LIMIT + 1) + i, page);
        }
    }
}

/* Each row has at least as many tokens as queries, unless it is idle. */
static void open_rows(append_case *c, int32_t row_limit) {
    const fig_append_kv_params *p = &c->params;
    int32_t limit = p->page_size * (c->dense ? 1 : TABLE_LIMIT);
    c->rows = draw(c, 0, row_limit);
    for (int32_t r = 0; r < c->rows; r++) {
        if (draw(c, 0, 3) > 0) c->lengths[r] = draw(c, p->rows.multiple, limit);
        c->sequences[r] = 2 * r + draw(c, 0, 1);
    }
    c->shape.row_limit = row_limit;
    c->shape.row_tokens = p->rows.multiple + draw(c, 0, 2);
    c->plan = fig_reference_plan(
        &c->shape,
        &(fig_plan_step){.rows = c->rows, .lengths = c->lengths, .sequences = c->sequences});
}

static void open_case(append_case *c, int number) {
    static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};
    memset(c, 0, sizeof *c);
    c->random = fig_random_seed(seed + (uint64_t)number);
    fig_append_kv_params *p = &c->params;
    int32_t row_limit = draw(c, 1, ROW_LIMIT), dtype = dtypes[draw(c, 0, 2)], scales = 0;
    p->dtype = p->kv_dtype = dtype;
    c->unit = fig_reference_unit(&c->random, dtype);
    p->kv_heads = draw(c, 1, HEAD_LIMIT);
    if (dtype != FIG_F32 && draw(c, 0, 1)) {
        p->kv_dtype = draw(c, 0, 1) ? FIG_E4M3 : FIG_E5M2;
        scales = draw(c, 0, 1) ? draw(c, 0, 1) : p->kv_heads;
    }
    p->rows.multiple = draw(c, 0, 1) ? 1 : draw(c, 2, 8);
    p->rows.row_limit = row_limit * p->rows.multiple;
    p->page_size = draw(c, p->rows.multiple, 9);
    p->head_dim = draw(c, 0, 3) == 0 ? 256 : 8 * draw(c, 1, 16);
    c->dense = draw(c, 0, 2) == 0;
    open_rows(c, row_limit);
    open_table(c);
    open_side(c, &c->k, scales);
    open_side(c, &c->v, scales);
    p->k_scales = p->v_scales = scales;
    p->k = c->k.in.data;
    p->v = c->v.in.data;
    p->k_cache = c->k.cache.data;
    p->v_cache = c->v.cache.data;
    p->k_scale = c->k.scale.data;
    p->v_scale = c->v.scale.data;
    p->page_table = c->dense ? NULL : c->table.data;
    p->table_stride = c->dense ? 0 : TABLE_LIMIT + 1;
    p->plan = c->plan;
    p->k_strides = c->k.strides;
    p->v_strides = c->v.strides;
    p->k_cache_strides = c->k.cache_strides;
    p->v_cache_strides = c->v.cache_strides;
    p->k_pages = c->k.pages;
    p->v_pages = c->v.pages;
    p->lengths_offset = c->shape.layout.lengths;
    p->sequences_offset = c->shape.layout.sequences;
    p->tokens_offset = c->shape.layout.tokens;
    ((fig_plan_head *)(void *)c->plan)->sections = ~(uint32_t)FIG_PLAN_HAS_TOKENS;
}

static void close_case(append_case *c) {
    fig_reference_array *arrays[] = {&c->table, &c->k.in,    &c->k.cache, &c->k.scale,
                                     &c->v.in,  &c->v.cache, &c->v.scale};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        fig_reference_array_free(arrays[i]);
    fig_place_free(c->plan);
}

/* Returns 1 if `code` is the fp8 number nearest to x. Of two numbers equally near, the one with the
 * even code counts as nearest; for an x beyond the range, the greatest or least number counts as
 * nearest. Compares with every other code. x is a quotient in f32, which a GPU rounds as the host
 * does unless its compiler is told otherwise. */
static int is_nearest(fig_dtype dtype, uint8_t code, double x) {
    double got = truth_load(&code, dtype, 0);
    if (isnan(x)) return isnan(got);
    if (!isfinite(got) || signbit(got) != signbit(x)) return 0;
    for (int i = 0; i < 256; i++) {
        uint8_t other = (uint8_t)i;
        double value = truth_load(&other, dtype, 0);
        if (!isfinite(value) || value == got) continue;
        if (isinf(x) && fabs(value) > fabs(got)) return 0;
        if (isinf(x)) continue;
        if (fabs(value - x) < fabs(got - x)) return 0;
        if (fabs(value - x) == fabs(got - x) && code % 2 == 1) return 0;
    }
    return 1;
}

static void check_element(const append_case *c, const append_side *side, int64_t from, int64_t to,
                          float scale) {
    const fig_append_kv_params *p = &c->params;
    int64_t unit = fig_numeric_bytes(p->dtype);
    if (p->dtype == p->kv_dtype) {
        assert_memory_equal((char *)side->cache.data + to * unit,
                            (char *)side->in.before + from * unit, (size_t)unit);
        return;
    }
    uint8_t code = ((const uint8_t *)side->cache.data)[to];
    float x = (float)truth_load(side->in.before, (fig_dtype)p->dtype, from) / scale;
    if (is_nearest((fig_dtype)p->kv_dtype, code, (double)x)) return;
    fail_msg("element %lld: %.9g / %.9g became code 0x%x, %.9g, dtype %d; seed 0x%llx",
             (long long)to, (double)(x * scale), (double)scale, code,
             truth_load(&code, (fig_dtype)p->kv_dtype, 0), p->kv_dtype, (unsigned long long)seed);
}

/* Writes to the plan how many of each row's queries are tokens; that number may exceed this node's
 * queries per row. */
static void say_tokens(append_case *c) {
    ((fig_plan_head *)(void *)c->plan)->sections = FIG_PLAN_HAS_TOKENS;
    for (int32_t r = 0; r < c->rows; r++)
        c->tokens[r] = draw(c, 1, c->shape.row_tokens);
    memcpy(c->plan + c->params.tokens_offset, c->tokens, (size_t)c->rows * sizeof *c->tokens);
}

static void check_side(append_case *c, append_side *side) {
    const fig_append_kv_params *p = &c->params;
    const float *scales = side->scale.data;
    truth_cache cache = {.pages = side->pages,
                         .page_stride = side->cache_strides.page,
                         .token_stride = side->cache_strides.token,
                         .page_size = p->page_size,
                         .page_table = p->page_table,
                         .table_stride = p->table_stride};
    for (int32_t n = 0; n < c->rows * p->rows.multiple; n++) {
        int32_t row = n / p->rows.multiple, length = c->lengths[row];
        int32_t token = length - p->rows.multiple + n % p->rows.multiple;
        if (length == 0 || token < 0) continue;
        if (c->tokens[row] != 0 && length - token > c->tokens[row]) continue;
        int64_t at = truth_cache_offset(&cache, c->sequences[row], token);
        for (int32_t h = 0; at >= 0 && h < p->kv_heads; h++) {
            int64_t from = n * side->strides.row + h * side->strides.head;
            int64_t to = at + h * side->cache_strides.head;
            float scale = scales == NULL ? 1 : scales[side->scale.count > 1 ? h : 0];
            for (int32_t i = 0; i < p->head_dim; i++)
                check_element(c, side, from + i, to + i, scale);
            fig_reference_array_allow(&side->cache, to, p->head_dim);
        }
    }
    fig_reference_array_check(&side->in, "append_kv in");
    fig_reference_array_check(&side->cache, "append_kv cache");
}

static void append_kv_writes_the_last_tokens_of_a_row_and_nothing_else(void **state) {
    (void)state;
    for (int n = 0; n < fig_place_cases(CASES); n++) {
        append_case c;
        open_case(&c, n);
        fig_reference_launch(FIG_OP_APPEND_KV, &c.params, &c.random);
        check_side(&c, &c.k);
        check_side(&c, &c.v);
        close_case(&c);
    }
}

static void padding_queries_are_not_written(void **state) {
    (void)state;
    for (int n = 0; n < fig_place_cases(CASES); n++) {
        append_case c;
        open_case(&c, n);
        if (c.params.tokens_offset != 0) say_tokens(&c);
        fig_reference_launch(FIG_OP_APPEND_KV, &c.params, &c.random);
        check_side(&c, &c.k);
        check_side(&c, &c.v);
        close_case(&c);
    }
}

/* Staging refuses a row that is shorter than its queries. If a plan has such a row nevertheless,
 * append_kv leaves out the queries before token 0. */
static void a_token_before_the_first_is_not_written(void **state) {
    (void)state;
    for (int n = 0; n < fig_place_cases(CASES); n++) {
        append_case c;
        open_case(&c, n);
        int32_t *lengths = (int32_t *)(c.plan + c.params.lengths_offset);
        for (int32_t r = 0; r < c.rows; r++)
            lengths[r] = c.lengths[r] = draw(&c, 0, c.params.rows.multiple);
        fig_reference_launch(FIG_OP_APPEND_KV, &c.params, &c.random);
        check_side(&c, &c.k);
        check_side(&c, &c.v);
        close_case(&c);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(append_kv_writes_the_last_tokens_of_a_row_and_nothing_else),
        cmocka_unit_test(padding_queries_are_not_written),
        cmocka_unit_test(a_token_before_the_first_is_not_written),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
