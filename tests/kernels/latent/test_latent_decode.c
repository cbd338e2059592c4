/* test_latent_decode.c: tests that latent_decode's first launch leaves the same bits in q and in
 * the cache as rope over heads of 64, rms_norm and a conversion to codes, and that a latent read
 * back from codes is the appended one up to rounding. The launch of attention that follows is not
 * tested here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/latent/latent.h"
#include "tests/support/kernels/reference_step.h"
#include "tests/support/place.h"
#include "tests/support/ranks/turns.h"
#include "tools/figraph/truth/truth_latent.h"

enum { CASES = 150, TABLE_LIMIT = 7, SEQUENCES = 2 * FIG_TWIN_STEP_LIMIT };

static uint64_t seed;

typedef struct step_case {
    fig_reference_step step;
    int32_t dense, page_size, pages;
    fig_reference_array q, q_rope, latent, norm, cache, table, cos_sin;
    fig_latent_decode_params params;
    int has_table;
} step_case;

static int32_t draw(step_case *c, int32_t low, int32_t high) {
    return fig_reference_step_draw(&c->step, low, high);
}

/* Some lengths end a page, some begin one, some lie anywhere, and some rows are idle. */
static void draw_lengths(step_case *c) {
    const int32_t multiple = c->step.rows.multiple, limit = c->page_size * TABLE_LIMIT;
    int32_t *lengths = (int32_t *)(c->step.plan + c->step.shape.layout.lengths);
    int32_t *sequences = (int32_t *)(c->step.plan + c->step.shape.layout.sequences);
    for (int32_t row = 0; row < c->step.tokens / multiple; row++) {
        const int32_t pages = draw(c, 1, TABLE_LIMIT - 1), beside = draw(c, -1, 1);
        int32_t length = draw(c, 0, 1) ? pages * c->page_size + beside : draw(c, 0, limit);
        if (draw(c, 0, 4) == 0 || length < multiple) length = 0;
        lengths[row] = length;
        sequences[row] = 2 * row + draw(c, 0, 1);
    }
}

static void open_table(step_case *c) {
    int32_t next = 0;
    c->pages = c->dense ? SEQUENCES : SEQUENCES * (TABLE_LIMIT + 1);
    c->table = fig_reference_array_make(FIG_I32, SEQUENCES * (TABLE_LIMIT + 1));
    for (int64_t i = 0; i < c->table.count; i++)
        fig_reference_array_set(&c->table, i, draw(c, 0, 9) > 0 ? next++ : c->pages);
    fig_reference_array_keep(&c->table);
}

static void open_cos_sin(step_case *c) {
    fig_latent_decode_params *p = &c->params;
    p->cos_sin_rows = draw(c, 1, 200);
    p->cos_sin_stride = fig_reference_step_stride(&c->step, FIG_LATENT_ROPE_DIM);
    c->cos_sin = fig_reference_array_make(FIG_F32, p->cos_sin_rows * p->cos_sin_stride);
    fig_reference_array_fill(&c->cos_sin, 0, c->cos_sin.count, &c->step.random, 1);
    p->cos_sin = c->cos_sin.data;
}

static void open_cache(step_case *c) {
    fig_latent_decode_params *p = &c->params;
    p->k_cache_strides.token = fig_reference_step_stride(&c->step, fig_latent_width(p->kv_dtype));
    p->k_cache_strides.page =
        fig_reference_step_stride(&c->step, p->page_size * p->k_cache_strides.token);
    c->cache = fig_reference_array_make(p->kv_dtype, c->pages * p->k_cache_strides.page);
    fig_reference_array_keep(&c->cache);
    p->k_cache = c->cache.data;
    p->k_pages = c->pages;
    p->page_table = c->dense ? NULL : c->table.data;
    p->table_stride = c->dense ? 0 : TABLE_LIMIT + 1;
}

/* Makes q in one tensor or in two. */
static void open_q(step_case *c) {
    fig_latent_decode_params *p = &c->params;
    const int is_apart = draw(c, 0, 1);
    p->q_strides = fig_reference_step_strides(&c->step, p->q_heads,
                                              is_apart ? FIG_LATENT_DIM : FIG_LATENT_KEY_DIM);
    c->q = fig_reference_step_array(&c->step, p->q_strides.row, 1);
    p->q = c->q.data;
    if (!is_apart) return;
    p->q_rope_strides = fig_reference_step_strides(&c->step, p->q_heads, FIG_LATENT_ROPE_DIM);
    c->q_rope = fig_reference_step_array(&c->step, p->q_rope_strides.row, 1);
    p->q_rope = c->q_rope.data;
}

static void open_case(step_case *c, int number) {
    memset(c, 0, sizeof *c);
    fig_reference_step_open(&c->step, seed, number);
    fig_latent_decode_params *p = &c->params;
    p->dtype = p->kv_dtype = c->step.dtype;
    if (p->dtype != FIG_F32 && draw(c, 0, 1)) p->kv_dtype = FIG_E4M3;
    p->q_heads = 8 * draw(c, 1, 3);
    c->dense = draw(c, 0, 2) == 0;
    c->page_size = p->page_size = draw(c, 1, 9) * (c->dense ? TABLE_LIMIT : 1);
    if (c->dense) c->page_size /= TABLE_LIMIT;
    p->rope = (fig_rope_terms){.interleaved = draw(c, 0, 1),
                               .rotary_dim = FIG_LATENT_ROPE_DIM,
                               .theta = 1e4f,
                               .scale = 1.0f};
    p->angles = fig_turns_draw(&c->step.random, &p->rope, &c->has_table).table;
    draw_lengths(c);
    if (draw(c, 0, 2) == 0) open_cos_sin(c);
    open_table(c);
    open_q(c);
    p->latent_stride = fig_reference_step_stride(&c->step, FIG_LATENT_KEY_DIM);
    c->latent = fig_reference_step_array(&c->step, p->latent_stride, draw(c, 0, 3) ? 2.0f : 1e3f);
    if (draw(c, 0, 2) > 0) {
        c->norm = fig_reference_array_make(p->dtype, FIG_LATENT_DIM);
        fig_reference_array_fill(&c->norm, 0, FIG_LATENT_DIM, &c->step.random, 1);
        p->norm = c->norm.data;
        p->norm_epsilon = 1e-6f;
    }
    p->latent = c->latent.data;
    p->plan = c->step.plan;
    p->lengths_offset = c->step.shape.layout.lengths;
    p->sequences_offset = c->step.shape.layout.sequences;
    p->positions_offset = c->step.shape.layout.positions;
    p->rows = c->step.rows;
    open_cache(c);
}

static void close_case(step_case *c) {
    fig_reference_array *arrays[] = {&c->q,     &c->q_rope, &c->latent, &c->norm,
                                     &c->cache, &c->table,  &c->cos_sin};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        fig_reference_array_free(arrays[i]);
    fig_reference_step_close(&c->step);
}

/* ---- What the separate operations leave */

/* The step's tokens as they are before they become codes: [tokens][576] of the dtype. */
static fig_reference_array make_tokens(step_case *c) {
    const fig_latent_decode_params *p = &c->params;
    fig_reference_array tokens =
        fig_reference_array_make(p->dtype, p->rows.row_limit * FIG_LATENT_KEY_DIM);
    const size_t unit = (size_t)fig_numeric_bytes(p->dtype);
    fig_rope_params rope = fig_latent_decode_rope(p);
    const fig_rms_norm_params norm = {.in = p->latent,
                                      .weight = p->norm,
                                      .out = tokens.data,
                                      .plan = p->plan,
                                      .in_stride = p->latent_stride,
                                      .out_stride = FIG_LATENT_KEY_DIM,
                                      .rows = p->rows,
                                      .width = FIG_LATENT_DIM,
                                      .dtype = p->dtype,
                                      .epsilon = p->norm_epsilon};
    rope.q = (const uint8_t *)p->latent + FIG_LATENT_DIM * unit;
    rope.q_out = (uint8_t *)tokens.data + FIG_LATENT_DIM * unit;
    rope.q_strides = (fig_row_strides){p->latent_stride, 0};
    rope.q_out_strides = (fig_row_strides){FIG_LATENT_KEY_DIM, 0};
    rope.q_heads = 1;
    fig_reference_launch(FIG_OP_ROPE, &rope, &c->step.random);
    if (p->norm != NULL) fig_reference_launch(FIG_OP_RMS_NORM, &norm, &c->step.random);
    for (int32_t token = 0; token < c->step.tokens && p->norm == NULL; token++)
        memcpy((uint8_t *)tokens.data + (size_t)token * FIG_LATENT_KEY_DIM * unit,
               (const uint8_t *)p->latent + (size_t)(token * p->latent_stride) * unit,
               FIG_LATENT_DIM * unit);
    return tokens;
}

/* Returns the element of the cache where a query token stands, or -1 if it stands nowhere. */
static int64_t place_of(const step_case *c, int32_t token) {
    const fig_latent_decode_params *p = &c->params;
    const int32_t multiple = p->rows.multiple, row = token / multiple;
    const int32_t *lengths = (const int32_t *)(p->plan + p->lengths_offset);
    const int32_t *sequences = (const int32_t *)(p->plan + p->sequences_offset);
    const truth_cache cache = {.page_stride = p->k_cache_strides.page,
                               .token_stride = p->k_cache_strides.token,
                               .pages = p->k_pages,
                               .page_size = p->page_size,
                               .page_table = p->page_table,
                               .table_stride = p->table_stride};
    const int32_t number = lengths[row] - multiple + token % multiple;
    return lengths[row] == 0 ? -1 : truth_cache_offset(&cache, sequences[row], number);
}

/* The greatest of 128 values becomes the greatest code, and no value is off by more than half a
 * unit of its code. */
static void check_codes(const step_case *c, int64_t at, const fig_reference_array *tokens,
                        int64_t from) {
    const uint8_t *codes = (const uint8_t *)c->cache.data + at;
    const truth_cache cache = {.base = c->cache.data, .dtype = FIG_E4M3};
    const fig_dtype dtype = (fig_dtype)c->params.dtype;
    double got[TRUTH_LATENT_KEY_DIM];
    truth_latent_token(&cache, at, got);
    for (int32_t i = 0; i < FIG_LATENT_KEY_DIM; i++) {
        const double due = truth_load(tokens->data, dtype, from + i);
        double tolerance = 0.5 * truth_ulp(FIG_BF16, due);
        if (i < FIG_LATENT_DIM) {
            double scale = truth_load(codes + FIG_LATENT_SCALES_AT, FIG_F32, i / 128), most = 0;
            for (int32_t j = i / 128 * 128; j < i / 128 * 128 + 128; j++)
                most = fmax(most, fabs(truth_load(tokens->data, dtype, from + j)));
            if (fabs(scale - most / 448) > 1e-6 * scale)
                fail_msg("scale %.9g of %.9g, seed 0x%llx", scale, most, (unsigned long long)seed);
            tolerance = 0.50001 * scale * truth_ulp(FIG_E4M3, due / scale);
        }
        if (fabs(got[i] - due) <= tolerance) continue;
        fail_msg("value %d is %.9g, it must be %.9g, tolerance %.3g: seed 0x%llx %d", i, got[i],
                 due, tolerance, (unsigned long long)seed, c->step.number);
    }
}

static void check_cache(step_case *c, const fig_reference_array *tokens) {
    const fig_latent_decode_params *p = &c->params;
    const size_t unit = (size_t)fig_numeric_bytes(p->dtype);
    for (int32_t token = 0; token < c->step.tokens; token++) {
        const int64_t at = place_of(c, token), from = (int64_t)token * FIG_LATENT_KEY_DIM;
        if (at < 0) continue;
        fig_reference_array_allow(&c->cache, at, fig_latent_width(p->kv_dtype));
        if (p->kv_dtype == FIG_E4M3) {
            check_codes(c, at, tokens, from);
        } else {
            assert_memory_equal((const uint8_t *)p->k_cache + (size_t)at * unit,
                                (const uint8_t *)tokens->data + (size_t)from * unit,
                                FIG_LATENT_KEY_DIM * unit);
        }
    }
    fig_reference_array_check(&c->cache, "cache"); /* nothing else changed */
}

static void latent_decode_is_rope_norm_and_append(void **state) {
    (void)state;
    for (int n = 0; n < fig_place_cases(CASES); n++) {
        step_case c;
        open_case(&c, n);
        fig_reference_array tokens = make_tokens(&c);
        fig_reference_launch(FIG_OP_LATENT_DECODE, &c.params, &c.step.random);
        fig_reference_array *turned = c.params.q_rope != NULL ? &c.q_rope : &c.q;
        const size_t bytes = (size_t)turned->count * (size_t)fig_numeric_bytes(turned->dtype);
        void *q = malloc(bytes);
        assert_non_null(q);
        memcpy(q, turned->data, bytes);
        memcpy(turned->data, turned->before, bytes);
        const fig_rope_params rope = fig_latent_decode_rope(&c.params);
        fig_reference_launch(FIG_OP_ROPE, &rope, &c.step.random);
        assert_memory_equal(q, turned->data, bytes);
        if (turned != &c.q) fig_reference_array_check(&c.q, "q");
        fig_reference_array_check(&c.latent, "latent");
        check_cache(&c, &tokens);
        free(q);
        fig_reference_array_free(&tokens);
        close_case(&c);
    }
}

/* A scale is finite and above 0 whatever it is for. */
static void no_latent_makes_a_scale_of_zero_or_infinity(void **state) {
    (void)state;
    const float of[] = {0.0f, 1e-44f, 1.0f, 3.4e38f, INFINITY};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        const float scale = fig_latent_scale(of[i]);
        assert_true(isfinite(scale) && scale > 0);
    }
    assert_true(fig_latent_scale(448) == 1);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latent_decode_is_rope_norm_and_append),
        cmocka_unit_test(no_latent_makes_a_scale_of_zero_or_infinity),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
