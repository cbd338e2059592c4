/* test_whole_attention.c: compares whole_attention, which needs no plan or scratch, with float64,
 * for rows, heads and lengths that divide unevenly among a cluster's blocks. It must write only out
 * and lse. */
#include "kernels/attention/whole_attention.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/kernels/reference.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth_attention.h"

static uint64_t seed;

typedef struct whole_case {
    int32_t dtype, rows, length, tokens; /* tokens: the capacity of a sequence in the cache */
    int32_t q_heads, kv_heads, head_dim;
    int hnd;
} whole_case;

typedef struct arrays {
    fig_reference_array q, k, v, out, lse;
} arrays;

static fig_cache_strides strides_of(const whole_case *c) {
    const int64_t dim = c->head_dim, page = (int64_t)c->tokens * c->kv_heads * dim;
    if (c->hnd) return (fig_cache_strides){page, dim, c->tokens * dim};
    return (fig_cache_strides){page, c->kv_heads * dim, dim};
}

static fig_whole_attention_params params_of(const whole_case *c, const arrays *a) {
    const fig_row_strides rows = {(int64_t)c->q_heads * c->head_dim, c->head_dim};
    return (fig_whole_attention_params){.q = a->q.data,
                                        .k_cache = a->k.data,
                                        .v_cache = a->v.data,
                                        .out = a->out.data,
                                        .lse = (float *)(void *)a->lse.data,
                                        .q_strides = rows,
                                        .out_strides = rows,
                                        .k_cache_strides = strides_of(c),
                                        .v_cache_strides = strides_of(c),
                                        .lse_stride = c->q_heads,
                                        .rows = c->rows,
                                        .length = c->length,
                                        .q_heads = c->q_heads,
                                        .kv_heads = c->kv_heads,
                                        .head_dim = c->head_dim,
                                        .dtype = c->dtype,
                                        .scale = (float)(1 / sqrt(c->head_dim))};
}

static truth_cache cache_of(const whole_case *c, const fig_reference_array *array) {
    const fig_cache_strides strides = strides_of(c);
    return (truth_cache){.base = array->data,
                         .dtype = (fig_dtype)c->dtype,
                         .page_stride = strides.page,
                         .token_stride = strides.token,
                         .head_stride = strides.head,
                         .pages = c->rows,
                         .page_size = c->tokens};
}

static void check_head(const whole_case *c, const arrays *a, int32_t row, int32_t head) {
    const fig_dtype dtype = (fig_dtype)c->dtype;
    const int64_t at = (int64_t)row * c->q_heads + head;
    truth_attention_result want;
    truth_attention(&(truth_attention_args){.q = {a->q.data, dtype,
                                                  (int64_t)c->q_heads * c->head_dim, c->head_dim},
                                            .k = cache_of(c, &a->k),
                                            .v = cache_of(c, &a->v),
                                            .row = row,
                                            .sequence = row,
                                            .length = c->length,
                                            .q_head = head,
                                            .kv_head = head / (c->q_heads / c->kv_heads),
                                            .head_dim = c->head_dim,
                                            .sm_scale = (double)(float)(1 / sqrt(c->head_dim))},
                    &want);
    const double lse = truth_load(a->lse.data, FIG_F32, at);
    if (!(fabs(lse - want.lse) < 1e-4))
        fail_msg("row %d, head %d: lse %.9g, wanted %.9g; seed 0x%llx", row, head, lse, want.lse,
                 (unsigned long long)seed);
    for (int32_t i = 0; i < c->head_dim; i++) {
        const double got = truth_load(a->out.data, dtype, at * c->head_dim + i);
        const double most = 0.51 * truth_ulp(dtype, want.out[i]) + 1e-5 * want.magnitude[i];
        if (!(fabs(got - want.out[i]) <= most))
            fail_msg("row %d, head %d, dim %d: %.9g, wanted %.9g within %.3g; seed 0x%llx", row,
                     head, i, got, want.out[i], most, (unsigned long long)seed);
    }
}

static void check_case(const whole_case *c, fig_random *random) {
    const int64_t heads = (int64_t)c->rows * c->q_heads, q = heads * c->head_dim;
    const int64_t cache = (int64_t)c->rows * c->tokens * c->kv_heads * c->head_dim;
    arrays a = {fig_reference_array_make(c->dtype, q), fig_reference_array_make(c->dtype, cache),
                fig_reference_array_make(c->dtype, cache), fig_reference_array_make(c->dtype, q),
                fig_reference_array_make(FIG_F32, heads)};
    for (int64_t i = 0; i < q; i++)
        fig_reference_array_set(&a.q, i, (double)fig_random_normal(random));
    for (int64_t i = 0; i < cache; i++) {
        fig_reference_array_set(&a.k, i, (double)fig_random_normal(random));
        fig_reference_array_set(&a.v, i, (double)fig_random_normal(random));
    }
    fig_reference_array_allow(&a.out, 0, q);
    fig_reference_array_allow(&a.lse, 0, heads);
    fig_reference_array *const all[] = {&a.q, &a.k, &a.v, &a.out, &a.lse};
    static const char *const names[] = {"q", "k", "v", "out", "lse"};
    for (int i = 0; i < 5; i++)
        fig_reference_array_keep(all[i]);
    const fig_whole_attention_params params = params_of(c, &a);
    fig_reference_launch(FIG_OP_WHOLE_ATTENTION, &params, random);
    for (int i = 0; i < 5; i++)
        fig_reference_array_check(all[i], names[i]);
    for (int32_t row = 0; row < c->rows; row++)
        for (int32_t head = 0; head < c->q_heads; head++)
            check_head(c, &a, row, head);
    for (int i = 0; i < 5; i++)
        fig_reference_array_free(all[i]);
}

static void out_and_lse_are_float64s(void **state) {
    static const whole_case cases[] = {
        {FIG_F16, 1, 512, 512, 16, 4, 64, 0}, {FIG_BF16, 2, 1, 3, 8, 2, 128, 0},
        {FIG_F16, 1, 7, 9, 3, 1, 64, 1},      {FIG_BF16, 1, 130, 130, 5, 1, 64, 0},
        {FIG_F16, 3, 65, 80, 7, 7, 128, 1},   {FIG_BF16, 1, 2048, 2050, 12, 1, 128, 0}};
    fig_random random = fig_random_seed(seed);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&cases[i], &random);
}

static fig_attention_params plain(void) {
    return (fig_attention_params){.split = {.row_tokens = 1},
                                  .q_heads = 16,
                                  .kv_heads = 4,
                                  .head_dim = 64,
                                  .dtype = FIG_F16,
                                  .kv_dtype = FIG_F16};
}

static void unsupported_launches_are_refused(void **state) {
    (void)state;
    fig_traits h200 = {.size = sizeof h200}, a100 = {.size = sizeof a100};
    const fig_attention_params right = plain();
    assert_int_equal(fig_traits_named(&h200, "h200"), FIG_OK);
    assert_int_equal(fig_traits_named(&a100, "a100"), FIG_OK);
    assert_null(fig_whole_attention_refuses(&right, 1, 512, &h200));
    assert_non_null(fig_whole_attention_refuses(&right, 1, 512, &a100));
    assert_non_null(fig_whole_attention_refuses(&right, 1, 0, &h200));
    assert_non_null(fig_whole_attention_refuses(&right, 1, 2049, &h200));
    assert_null(fig_whole_attention_refuses(&right, 8, 512, &h200));
    assert_non_null(fig_whole_attention_refuses(&right, 9, 512, &h200));
#define WRONG(change)                                                                              \
    do {                                                                                           \
        fig_attention_params p = right;                                                            \
        p.change;                                                                                  \
        assert_non_null(fig_whole_attention_refuses(&p, 1, 512, &h200));                           \
    } while (0)
    static const float numbers[16];
    static const int32_t table[4];
    WRONG(head_dim = 96);
    WRONG(dtype = p.kv_dtype = FIG_F32);
    WRONG(kv_dtype = FIG_E4M3);
    WRONG(page_table = table);
    WRONG(sinks = numbers);
    WRONG(alibi = numbers);
    WRONG(k_scale = numbers);
    WRONG(v_scale = numbers);
    WRONG(soft_cap = 1);
    WRONG(split.window = 5);
    WRONG(split.fixed = 1);
    WRONG(split.row_tokens = 2);
    WRONG(q = (const uint8_t *)numbers + 2);
    WRONG(q_strides.row = 4);
    WRONG(q_strides.head = 65);
    WRONG(k_cache = (const uint8_t *)numbers + 4);
    WRONG(k_cache_strides.page = 4);
    WRONG(k_cache_strides.token = 4);
    WRONG(k_cache_strides.head = 4);
    WRONG(v_cache = (const uint8_t *)numbers + 4);
    WRONG(v_cache_strides.token = 4);
#undef WRONG
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_and_lse_are_float64s),
        cmocka_unit_test(unsupported_launches_are_refused),
    };
    if (strcmp(fig_place_name(), "cuda.plain") == 0)
        fig_place_host_program("the plain image has no such kernel");
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
