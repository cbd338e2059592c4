/* test_rope.c: compares rope with float64, for every source of positions and of cosines and sines,
 * for rotations of a whole head or a part of it, and with and without norms.
 *
 * Outputs are filled with poison first, so that an element that is not written is NaN. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "tests/support/kernels/reference_step.h"
#include "tests/support/place.h"
#include "tests/support/ranks/turns.h"
#include "tools/figraph/truth/truth.h"

/* In some cases, a token's heads have more elements than a GPU's block processes at a time. */
enum { CASES = 500, FEW_HEADS = 5, HEAD_LIMIT = 72 };
enum { TOKEN_LIMIT = 8 * FIG_TWIN_STEP_LIMIT, SEGMENT_LIMIT = 9 };
enum { NOWHERE = -1 };

static uint64_t seed;

/* The sources of a token's position. */
typedef enum rope_form { BY_PLAN, BY_I32, BY_I64, BY_SEGMENT, FORM_COUNT } rope_form;

/* q or k. */
typedef struct rope_side {
    fig_reference_array in, out, norm;
    fig_row_strides in_strides, out_strides;
    int32_t heads, in_place, normalised;
} rope_side;

typedef struct rope_case {
    fig_reference_step step;
    rope_form form;
    /* the position of each token, or NOWHERE if the token is not written */
    int64_t places[TOKEN_LIMIT];
    fig_reference_array positions, cos_sin;
    fig_reference_array indptr, offsets; /* for BY_SEGMENT */
    rope_side q, k;
    fig_rope_params params;
    int has_table;
} rope_case;

static fig_rope_terms draw_rope(fig_reference_step *step, int32_t head_dim) {
    static const float thetas[] = {1e4f, 5e5f, 1e6f};
    fig_rope_terms rope = {.interleaved = fig_reference_step_draw(step, 0, 1),
                           .rotary_dim = head_dim,
                           .theta = thetas[fig_reference_step_draw(step, 0, 2)],
                           .scale = fig_reference_step_draw(step, 0, 1) ? 1.0f : 4.0f};
    if (fig_reference_step_draw(step, 0, 1))
        rope.rotary_dim = 2 * fig_reference_step_width(step, head_dim / 2);
    if (fig_reference_step_draw(step, 0, 1)) return rope;
    rope.llama3_factor = 8;
    rope.llama3_low = 1;
    rope.llama3_high = 4;
    rope.llama3_context = 8192;
    return rope;
}

/* ---- Places */

/* A row's query tokens have consecutive positions. The last one is the row's position in the plan;
 * none is below 0. */
static void place_by_plan(rope_case *c) {
    int32_t multiple = c->step.rows.multiple;
    for (int32_t token = 0; token < c->step.tokens; token++) {
        c->places[token] = c->step.positions[token / multiple] - (multiple - 1) + token % multiple;
        if (c->places[token] < 0) c->places[token] = 0;
    }
}

static void place_by_tensor(rope_case *c, int32_t dtype) {
    c->positions = fig_reference_array_make(dtype, TOKEN_LIMIT);
    for (int32_t token = 0; token < c->step.tokens; token++) {
        c->places[token] = fig_reference_step_draw(&c->step, 0, 1 << 20);
        fig_reference_array_set(&c->positions, token, (double)c->places[token]);
    }
    c->params.positions = c->positions.data;
    c->params.positions_dtype = dtype;
}

/* Draws segments of 0 to 4 tokens, beginning at token 0, 1 or 2. They may end before or behind the
 * last token. */
static void place_by_segment(rope_case *c, int32_t dtype) {
    const int32_t segments = fig_reference_step_draw(&c->step, 1, SEGMENT_LIMIT);
    c->indptr = fig_reference_array_make(dtype, segments + 1);
    c->offsets = fig_reference_array_make(dtype, segments);
    for (int32_t token = 0; token < TOKEN_LIMIT; token++)
        c->places[token] = NOWHERE;
    int32_t begin = fig_reference_step_draw(&c->step, 0, 2);
    fig_reference_array_set(&c->indptr, 0, begin);
    for (int32_t i = 0; i < segments; i++) {
        const int32_t count = fig_reference_step_draw(&c->step, 0, 4);
        const int32_t offset = fig_reference_step_draw(&c->step, 0, 1 << 20);
        fig_reference_array_set(&c->indptr, i + 1, begin + count);
        fig_reference_array_set(&c->offsets, i, offset);
        for (int32_t j = 0; j < count && begin + j < TOKEN_LIMIT; j++)
            c->places[begin + j] = offset + j;
        begin += count;
    }
    c->params.indptr = c->indptr.data;
    c->params.offsets = c->offsets.data;
    c->params.packed_dtype = dtype;
    c->params.segments = segments;
}

static void place_tokens(rope_case *c) {
    switch (c->form) {
    case BY_PLAN: place_by_plan(c); break;
    case BY_I32: place_by_tensor(c, FIG_I32); break;
    case BY_I64: place_by_tensor(c, FIG_I64); break;
    default: place_by_segment(c, c->step.number % 8 < 4 ? FIG_I32 : FIG_I64); break;
    }
}

/* Fills the table with numbers that are no cosines and sines, so that the test notices a kernel
 * that computes the rotation. The table has few rows, so that many positions lie beyond its end. */
static void open_cos_sin(rope_case *c) {
    int32_t width = c->params.rope.rotary_dim;
    c->params.cos_sin_rows = fig_reference_step_draw(&c->step, 1, 200);
    c->params.cos_sin_stride = fig_reference_step_stride(&c->step, width);
    c->cos_sin =
        fig_reference_array_make(FIG_F32, c->params.cos_sin_rows * c->params.cos_sin_stride);
    for (int32_t row = 0; row < c->params.cos_sin_rows; row++)
        fig_reference_array_fill(&c->cos_sin, row * c->params.cos_sin_stride, width,
                                 &c->step.random, 1);
    fig_reference_array_keep(&c->cos_sin);
    c->params.cos_sin = c->cos_sin.data;
}

static const float *turns_at(const rope_case *c, int64_t place) {
    if (c->params.cos_sin == NULL) return NULL;
    if (place >= c->params.cos_sin_rows) place = c->params.cos_sin_rows - 1;
    return c->params.cos_sin + place * c->params.cos_sin_stride;
}

/* ---- Heads */

static void open_side(rope_case *c, rope_side *side) {
    fig_reference_step *step = &c->step;
    int32_t head_dim = c->params.head_dim;
    side->heads = fig_reference_step_draw(step, 1, step->number % 10 == 0 ? HEAD_LIMIT : FEW_HEADS);
    side->in_place = fig_reference_step_draw(step, 0, 1);
    side->in_strides = fig_reference_step_strides(step, side->heads, head_dim);
    side->out_strides = fig_reference_step_strides(step, side->heads, head_dim);
    if (side->in_place) side->out_strides = side->in_strides;
    side->in = fig_reference_step_array(step, side->in_strides.row, 1);
    side->out = fig_reference_step_array(step, side->out_strides.row, 0);
    side->norm = fig_reference_array_make(step->dtype, head_dim);
    fig_reference_array_fill(&side->norm, 0, head_dim, &step->random, 1);
    fig_reference_array_keep(&side->norm);
    fig_reference_array *written = side->in_place ? &side->in : &side->out;
    int32_t changed = head_dim;
    if (side->in_place && !side->normalised) changed = c->params.rope.rotary_dim;
    for (int32_t token = 0; token < step->tokens; token++)
        for (int32_t head = 0; head < side->heads && c->places[token] != NOWHERE; head++)
            fig_reference_array_allow(
                written, token * side->out_strides.row + head * side->out_strides.head, changed);
}

static void close_side(rope_side *side) {
    fig_reference_array_check(&side->in, "in");
    fig_reference_array_check(&side->out, "out");
    fig_reference_array_check(&side->norm, "norm");
    fig_reference_array_free(&side->in);
    fig_reference_array_free(&side->out);
    fig_reference_array_free(&side->norm);
}

/* Returns the error that f32 may cause in element i: a fraction of the length of its rotated pair.
 * f32 rounds two products, their sum, a sine and a cosine; with a norm, it has rounded a scale and
 * two products before. */
static double lost_of(const rope_case *c, const double *want, int32_t i) {
    const fig_rope_terms *rope = &c->params.rope;
    int32_t half = rope->rotary_dim / 2;
    int32_t other = rope->interleaved ? i ^ 1 : i < half ? i + half : i - half;
    if (i >= rope->rotary_dim) return c->params.q_norm != NULL ? 0x1p-22 * fabs(want[i]) : 0;
    return (c->params.q_norm != NULL ? 0x1p-21 : 0x1p-22) * hypot(want[i], want[other]);
}

static void check_token(const rope_case *c, const rope_side *side, int32_t token, int32_t head) {
    const fig_dtype dtype = (fig_dtype)c->step.dtype;
    double want[TRUTH_HEAD_DIM_LIMIT];
    int64_t place = c->places[token];
    int64_t out = token * side->out_strides.row + head * side->out_strides.head;
    truth_rope_args args = {
        .x = {side->in.before, dtype, side->in_strides.row, side->in_strides.head},
        .row = token,
        .position = place,
        .head = head,
        .head_dim = c->params.head_dim,
        .cos_sin = turns_at(c, place),
        .norm = side->normalised ? side->norm.data : NULL,
        .norm_epsilon = c->params.norm_epsilon};
    memcpy(&args.rope, &c->params.rope, sizeof c->params.rope);
    if (c->has_table) args.table = &c->params.angles.table;
    truth_rope(&args, want);
    for (int32_t i = 0; i < c->params.head_dim; i++) {
        double lost = lost_of(c, want, i);
        fig_reference_step_expect(
            &c->step, "rope", out + i,
            truth_load(side->in_place ? side->in.data : side->out.data, dtype, out + i), want[i],
            fig_reference_step_tolerance(&c->step, want[i], lost));
    }
}

static void check_side(const rope_case *c, const rope_side *side) {
    for (int32_t token = 0; token < c->step.tokens; token++)
        for (int32_t head = 0; head < side->heads && c->places[token] != NOWHERE; head++)
            check_token(c, side, token, head);
}

/* ---- Cases */

static void open_case(rope_case *c, int number) {
    static const int32_t head_dims[] = {2, 64, 80, 96, 128, 256};
    memset(c, 0, sizeof *c);
    fig_reference_step_open(&c->step, seed, number);
    c->form = (rope_form)fig_reference_step_draw(&c->step, 0, FORM_COUNT - 1);
    c->q.normalised = c->k.normalised = fig_reference_step_draw(&c->step, 0, 2) == 0;
    fig_rope_params *p = &c->params;
    p->plan = c->step.plan;
    p->positions_offset = c->step.shape.layout.positions;
    p->rows = c->step.rows;
    p->dtype = c->step.dtype;
    p->head_dim = head_dims[fig_reference_step_draw(&c->step, 0, 5)];
    p->rope = draw_rope(&c->step, p->head_dim);
    p->angles = fig_turns_draw(&c->step.random, &p->rope, &c->has_table);
    place_tokens(c);
    if (fig_reference_step_draw(&c->step, 0, 2) == 0) open_cos_sin(c);
    open_side(c, &c->q);
    open_side(c, &c->k);
    p->q = c->q.in.data;
    p->k = c->k.in.data;
    p->q_out = c->q.in_place ? c->q.in.data : c->q.out.data;
    p->k_out = c->k.in_place ? c->k.in.data : c->k.out.data;
    p->q_norm = c->q.normalised ? c->q.norm.data : NULL;
    p->k_norm = c->k.normalised ? c->k.norm.data : NULL;
    p->norm_epsilon = c->q.normalised ? (number % 2 == 0 ? 1e-6f : 0.5f) : 0;
    p->q_strides = c->q.in_strides;
    p->k_strides = c->k.in_strides;
    p->q_out_strides = c->q.out_strides;
    p->k_out_strides = c->k.out_strides;
    p->q_heads = c->q.heads;
    p->k_heads = c->k.heads;
}

static void close_case(rope_case *c) {
    close_side(&c->q);
    close_side(&c->k);
    if (c->cos_sin.data != NULL) fig_reference_array_check(&c->cos_sin, "cos_sin");
    fig_reference_array_free(&c->cos_sin);
    fig_reference_array_free(&c->positions);
    fig_reference_array_free(&c->indptr);
    fig_reference_array_free(&c->offsets);
    fig_reference_step_close(&c->step);
}

static void rope_equals_float64_within_its_rounding_up_to_position_1m(void **state) {
    (void)state;
    for (int n = 0; n < fig_place_cases(CASES); n++) {
        rope_case c;
        open_case(&c, n);
        fig_reference_launch(FIG_OP_ROPE, &c.params, &c.step.random);
        check_side(&c, &c.q);
        check_side(&c, &c.k);
        close_case(&c);
    }
}

/* ---- One head of one row */

enum { HEAD_DIM = 8 };

/* Allocated through place.h, so that a GPU can use it. */
typedef struct rope_bench {
    fig_plan_head head;
    int32_t positions[4]; /* the plan's section of positions */
    float x[HEAD_DIM], q_out[HEAD_DIM], k_out[HEAD_DIM];
    uint16_t half[HEAD_DIM], half_out[HEAD_DIM];
    float table[3][4], pairs[6][2], pairs_out[6][2];
    int64_t position;
    fig_rope_params params;
} rope_bench;

static rope_bench *open_bench(void) {
    rope_bench *bench = fig_place_allocate(sizeof *bench);
    assert_non_null(bench);
    *bench = (rope_bench){.head = {.rows = 1}, .x = {1, 2, 3, 4, 5, 6, 7, 8}};
    fig_row_strides strides = {HEAD_DIM, HEAD_DIM};
    bench->params = (fig_rope_params){.q = bench->x,
                                      .k = bench->x,
                                      .q_out = bench->q_out,
                                      .k_out = bench->k_out,
                                      .positions = &bench->position,
                                      .plan = (const uint8_t *)&bench->head,
                                      .q_strides = strides,
                                      .k_strides = strides,
                                      .q_out_strides = strides,
                                      .k_out_strides = strides,
                                      .rope = {.rotary_dim = HEAD_DIM, .theta = 1e4f, .scale = 1},
                                      .rows = {1, 1},
                                      .q_heads = 1,
                                      .k_heads = 1,
                                      .head_dim = HEAD_DIM,
                                      .dtype = FIG_F32,
                                      .positions_dtype = FIG_I64};
    bench->params.angles = fig_turns_of(&bench->params.rope);
    return bench;
}

static void a_position_past_32_bits_is_not_cut(void **state) {
    (void)state;
    rope_bench *bench = open_bench();
    fig_reference_step step = {.seed = seed, .dtype = FIG_F32};
    double want[HEAD_DIM];
    bench->position = (1ll << 32) + 5;
    fig_reference_launch(FIG_OP_ROPE, &bench->params, NULL);
    truth_rope_args args = {.x = {bench->x, FIG_F32, HEAD_DIM, HEAD_DIM},
                            .position = bench->position,
                            .head_dim = HEAD_DIM};
    memcpy(&args.rope, &bench->params.rope, sizeof bench->params.rope);
    truth_rope(&args, want);
    for (int i = 0; i < HEAD_DIM; i++)
        fig_reference_step_expect(&step, "rope", i, bench->q_out[i], want[i], 4e-6);
    fig_place_free(bench);
}

/* The elements include signalling NaNs, which arithmetic would make quiet. q is rotated into
 * another array, and k in place. */
static void values_that_are_not_rotated_keep_their_bits(void **state) {
    (void)state;
    static const uint16_t x[HEAD_DIM] = {0, 0, 0, 0, 0x7c01, 0x8000, 0xfd00, 1};
    rope_bench *bench = open_bench();
    memcpy(bench->half, x, sizeof x);
    bench->params.dtype = FIG_F16;
    bench->params.rope.rotary_dim = 4;
    bench->params.angles = fig_turns_of(&bench->params.rope);
    bench->params.q = bench->params.k = bench->params.k_out = bench->half;
    bench->params.q_out = bench->half_out;
    fig_reference_launch(FIG_OP_ROPE, &bench->params, NULL);
    assert_memory_equal(bench->half_out + 4, x + 4, 4 * sizeof *x);
    assert_memory_equal(bench->half + 4, x + 4, 4 * sizeof *x);
    fig_place_free(bench);
}

/* The first row of the table rotates by 0, and its last row by a quarter turn. The comparison is
 * exact, since products with 0 and 1 are exact, whether or not they are fused with their sum. */
static void a_position_outside_the_table_reads_as_the_nearest_in_it(void **state) {
    (void)state;
    static const struct {
        int64_t position;
        int quarter;
    } cases[] = {{0, 0}, {-1, 0}, {INT64_MIN, 0}, {2, 1}, {3, 1}, {INT64_MAX, 1}};
    static const float table[3][4] = {{1, 1, 0, 0}, {NAN, NAN, NAN, NAN}, {0, 0, 1, 1}};
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        rope_bench *bench = open_bench();
        memcpy(bench->table, table, sizeof table);
        bench->params.rope.rotary_dim = 4;
        bench->params.cos_sin = bench->table[0];
        bench->params.cos_sin_rows = 3;
        bench->params.cos_sin_stride = 4;
        bench->position = cases[n].position;
        fig_reference_launch(FIG_OP_ROPE, &bench->params, NULL);
        float kept[HEAD_DIM] = {1, 2, 3, 4, 5, 6, 7, 8},
              turned[HEAD_DIM] = {-3, -4, 1, 2, 5, 6, 7, 8};
        assert_memory_equal(bench->q_out, cases[n].quarter ? turned : kept, sizeof kept);
        fig_place_free(bench);
    }
}

/* Tests two rows of three query tokens, whose last tokens are at positions 1 and 0; the tokens
 * before them are at 0, not below. */
static void no_query_token_stands_below_0(void **state) {
    (void)state;
    static const double places[] = {0, 0, 1, 0, 0, 0};
    fig_reference_step step = {.seed = seed, .dtype = FIG_F32};
    rope_bench *bench = open_bench();
    bench->head.rows = 2;
    bench->positions[0] = 1;
    for (int i = 0; i < 6; i++)
        bench->pairs[i][0] = 1;
    fig_rope_params *p = &bench->params;
    p->q = p->k = bench->pairs;
    p->q_out = p->k_out = bench->pairs_out;
    p->q_strides = p->k_strides = p->q_out_strides = p->k_out_strides = (fig_row_strides){2, 2};
    p->positions = NULL;
    p->positions_offset = offsetof(rope_bench, positions);
    p->rows = (fig_rows){.row_limit = 6, .multiple = 3};
    p->head_dim = p->rope.rotary_dim = 2;
    p->angles = fig_turns_of(&p->rope);
    fig_reference_launch(FIG_OP_ROPE, p, NULL);
    for (int i = 0; i < 6; i++)
        fig_reference_step_expect(&step, "rope", i, bench->pairs_out[i][0], cos(places[i]), 1e-7);
    fig_place_free(bench);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rope_equals_float64_within_its_rounding_up_to_position_1m),
        cmocka_unit_test(a_position_past_32_bits_is_not_cut),
        cmocka_unit_test(values_that_are_not_rotated_keep_their_bits),
        cmocka_unit_test(a_position_outside_the_table_reads_as_the_nearest_in_it),
        cmocka_unit_test(no_query_token_stands_below_0),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
