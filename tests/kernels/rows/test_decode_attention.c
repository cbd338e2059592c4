/* test_decode_attention.c: tests that decode_attention's first launch leaves the same bits as rope
 * and append_kv, and compares q and k with float64. The launch of attention that follows is not
 * tested here. A node that rotates nothing has a family of its own on a GPU.
 *
 * Outputs and caches are filled with poison or numbers first, so that stray and missing writes are
 * found. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/common/decode_attention.h"
#include "kernels/table/families.h"
#include "planner/spec/frequencies.h"
#include "tests/support/kernels/reference_step.h"
#include "tests/support/place.h"
#include "tests/support/ranks/turns.h"
#include "tools/figraph/truth/truth.h"

enum { CASES = 500, FEW_HEADS = 3, HEAD_LIMIT = 40, TABLE_LIMIT = 7, KV_SIDES = 2 };
enum { TOKEN_LIMIT = 8 * FIG_TWIN_STEP_LIMIT, SEQUENCE_LIMIT = 2 * FIG_TWIN_STEP_LIMIT };

static uint64_t seed;

/* K or V. */
typedef struct kv_side {
    fig_reference_array in, cache, scale;
    fig_row_strides strides;
    fig_cache_strides cache_strides;
} kv_side;

typedef struct step_case {
    fig_reference_step step;
    int32_t dense, page_size, pages;
    int64_t places[TOKEN_LIMIT]; /* the position of each token */
    fig_reference_array q, table, positions, cos_sin, q_norm, k_norm;
    kv_side kv[KV_SIDES];
    fig_decode_attention_params params;
    int has_table;
} step_case;

static int32_t draw(step_case *c, int32_t low, int32_t high) {
    return fig_reference_step_draw(&c->step, low, high);
}

/* ---- Inputs */

static fig_rope_terms draw_rope(step_case *c, int32_t head_dim) {
    fig_rope_terms rope = {.interleaved = draw(c, 0, 1),
                           .rotary_dim = head_dim,
                           .theta = draw(c, 0, 1) ? 1e4f : 5e5f,
                           .scale = draw(c, 0, 1) ? 1.0f : 4.0f};
    if (draw(c, 0, 2) == 0) rope.rotary_dim = 2 * fig_reference_step_width(&c->step, head_dim / 2);
    if (draw(c, 0, 1)) return rope;
    rope.llama3_factor = 8;
    rope.llama3_low = 1;
    rope.llama3_high = 4;
    rope.llama3_context = 8192;
    return rope;
}

/* Draws the plan's lengths: some end a page, some begin one, some lie anywhere, and some rows are
 * idle. */
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

/* Draws the source of the positions: the plan, or a tensor of int32 or int64. */
static void place_tokens(step_case *c) {
    static const int32_t dtypes[] = {0, FIG_I32, FIG_I64};
    const int32_t multiple = c->step.rows.multiple, dtype = dtypes[draw(c, 0, 2)];
    if (dtype != 0) c->positions = fig_reference_array_make(dtype, TOKEN_LIMIT);
    for (int32_t token = 0; token < c->step.tokens; token++) {
        c->places[token] = c->step.positions[token / multiple] - (multiple - 1) + token % multiple;
        if (c->places[token] < 0) c->places[token] = 0;
        if (dtype == 0) continue;
        c->places[token] = draw(c, 0, 1 << 20);
        fig_reference_array_set(&c->positions, token, (double)c->places[token]);
    }
    c->params.positions = c->positions.data;
    c->params.positions_dtype = dtype;
}

static void open_cos_sin(step_case *c) {
    const int32_t width = c->params.rope.rotary_dim;
    c->params.cos_sin_rows = draw(c, 1, 200);
    c->params.cos_sin_stride = fig_reference_step_stride(&c->step, width);
    c->cos_sin =
        fig_reference_array_make(FIG_F32, c->params.cos_sin_rows * c->params.cos_sin_stride);
    fig_reference_array_fill(&c->cos_sin, 0, c->cos_sin.count, &c->step.random, 1);
    fig_reference_array_keep(&c->cos_sin);
    c->params.cos_sin = c->cos_sin.data;
}

static void open_norms(step_case *c) {
    fig_reference_array *norms[] = {&c->q_norm, &c->k_norm};
    for (int i = 0; i < 2; i++) {
        *norms[i] = fig_reference_array_make(c->step.dtype, c->params.head_dim);
        fig_reference_array_fill(norms[i], 0, c->params.head_dim, &c->step.random, 1);
        fig_reference_array_keep(norms[i]);
    }
    c->params.q_norm = c->q_norm.data;
    c->params.k_norm = c->k_norm.data;
    c->params.norm_epsilon = 1e-6f;
}

/* Gives each entry a page of its own; a few entries name pages outside the cache. */
static void open_table(step_case *c) {
    int32_t next = 0;
    c->pages = c->dense ? SEQUENCE_LIMIT : SEQUENCE_LIMIT * (TABLE_LIMIT + 1);
    c->table = fig_reference_array_make(FIG_I32, SEQUENCE_LIMIT * (TABLE_LIMIT + 1));
    for (int64_t i = 0; i < c->table.count; i++)
        fig_reference_array_set(&c->table, i, draw(c, 0, 9) > 0 ? next++ : c->pages);
    fig_reference_array_keep(&c->table);
}

static void open_kv(step_case *c, kv_side *side, int32_t scales) {
    fig_reference_step *step = &c->step;
    const fig_decode_attention_params *p = &c->params;
    fig_cache_strides *cache = &side->cache_strides;
    side->strides = fig_reference_step_strides(step, p->kv_heads, p->head_dim);
    side->in = fig_reference_step_array(step, side->strides.row, draw(c, 0, 3) == 0 ? 1e3f : 2.0f);
    if (draw(c, 0, 1)) { /* NHD or HND */
        cache->head = fig_reference_step_stride(step, p->head_dim);
        cache->token = fig_reference_step_stride(step, p->kv_heads * cache->head);
        cache->page = fig_reference_step_stride(step, p->page_size * cache->token);
    } else {
        cache->token = fig_reference_step_stride(step, p->head_dim);
        cache->head = fig_reference_step_stride(step, p->page_size * cache->token);
        cache->page = fig_reference_step_stride(step, p->kv_heads * cache->head);
    }
    side->cache = fig_reference_array_make(p->kv_dtype, c->pages * cache->page);
    fig_reference_array_fill(&side->cache, 0, side->cache.count / 2, &step->random, 1);
    fig_reference_array_keep(&side->cache);
    if (scales == 0) return;
    side->scale = fig_reference_array_make(FIG_F32, scales);
    for (int32_t i = 0; i < scales; i++)
        fig_reference_array_set(&side->scale, i, draw(c, 0, 2) == 0 ? 1 : 0.01 * draw(c, 1, 200));
}

static void name_arrays(step_case *c) {
    fig_decode_attention_params *p = &c->params;
    p->q = c->q.data;
    p->k = c->kv[0].in.data;
    p->v = c->kv[1].in.data;
    p->k_cache = c->kv[0].cache.data;
    p->v_cache = c->kv[1].cache.data;
    p->k_scale = c->kv[0].scale.data;
    p->v_scale = c->kv[1].scale.data;
    p->k_strides = c->kv[0].strides;
    p->v_strides = c->kv[1].strides;
    p->k_cache_strides = c->kv[0].cache_strides;
    p->v_cache_strides = c->kv[1].cache_strides;
    p->k_pages = p->v_pages = c->pages;
    p->page_table = c->dense ? NULL : c->table.data;
    p->table_stride = c->dense ? 0 : TABLE_LIMIT + 1;
    p->plan = c->step.plan;
    p->lengths_offset = c->step.shape.layout.lengths;
    p->sequences_offset = c->step.shape.layout.sequences;
    p->positions_offset = c->step.shape.layout.positions;
    p->rows = c->step.rows;
}

static void open_case(step_case *c, int number) {
    static const int32_t head_dims[] = {2, 64, 80, 96, 128, 256};
    int32_t scales = 0;
    memset(c, 0, sizeof *c);
    fig_reference_step_open(&c->step, seed, number);
    fig_decode_attention_params *p = &c->params;
    p->dtype = p->kv_dtype = c->step.dtype;
    p->head_dim = head_dims[draw(c, 0, 5)];
    p->kv_heads = draw(c, 1, FEW_HEADS);
    p->q_heads = draw(c, 1, number % 10 == 0 ? HEAD_LIMIT : 2 * FEW_HEADS);
    if (p->dtype != FIG_F32 && draw(c, 0, 1)) {
        p->kv_dtype = draw(c, 0, 1) ? FIG_E4M3 : FIG_E5M2;
        scales = draw(c, 0, 1) ? draw(c, 0, 1) : p->kv_heads;
    }
    p->k_scales = p->v_scales = scales;
    c->dense = draw(c, 0, 2) == 0;
    c->page_size = p->page_size = draw(c, 1, 9) * (c->dense ? TABLE_LIMIT : 1);
    if (c->dense) c->page_size /= TABLE_LIMIT;
    p->rope = draw_rope(c, p->head_dim);
    p->angles = fig_turns_draw(&c->step.random, &p->rope, &c->has_table);
    draw_lengths(c);
    place_tokens(c);
    if (draw(c, 0, 2) == 0) open_cos_sin(c);
    if (draw(c, 0, 2) == 0) open_norms(c);
    open_table(c);
    p->q_strides = fig_reference_step_strides(&c->step, p->q_heads, p->head_dim);
    c->q = fig_reference_step_array(&c->step, p->q_strides.row, 1);
    open_kv(c, &c->kv[0], scales);
    open_kv(c, &c->kv[1], scales);
    name_arrays(c);
}

static void close_case(step_case *c) {
    fig_reference_array *arrays[] = {&c->q,           &c->table,       &c->positions,
                                     &c->cos_sin,     &c->q_norm,      &c->k_norm,
                                     &c->kv[0].in,    &c->kv[0].cache, &c->kv[1].in,
                                     &c->kv[1].cache, &c->kv[0].scale, &c->kv[1].scale};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        fig_reference_array_free(arrays[i]);
    fig_reference_step_close(&c->step);
}

/* ---- Verdicts */

static void expect_bytes(const step_case *c, const char *what, const void *got, const void *want,
                         size_t bytes) {
    if (memcmp(got, want, bytes) == 0) return;
    for (size_t i = 0; i < bytes; i++) {
        if (((const uint8_t *)got)[i] == ((const uint8_t *)want)[i]) continue;
        fail_msg("%s: byte %zu of %zu is 0x%x, it must be 0x%x; dtype %d, cache %d, seed 0x%llx %d",
                 what, i, bytes, ((const uint8_t *)got)[i], ((const uint8_t *)want)[i],
                 c->params.dtype, c->params.kv_dtype, (unsigned long long)seed, c->step.number);
    }
}

static size_t bytes_of(const fig_reference_array *array) {
    return (size_t)array->count * (size_t)fig_numeric_bytes(array->dtype);
}

/* Returns a copy of an array's bytes, and restores the array's stored contents. */
static void *take_bytes(fig_reference_array *array) {
    void *bytes = malloc(bytes_of(array));
    assert_non_null(bytes);
    memcpy(bytes, array->data, bytes_of(array));
    memcpy(array->data, array->before, bytes_of(array));
    return bytes;
}

/* Runs decode_attention, then rope and append_kv on the same inputs, and compares. */
static void run_both(step_case *c) {
    const fig_rope_params rope = fig_decode_attention_rope(&c->params);
    const fig_append_kv_params append = fig_decode_attention_append(&c->params);
    fig_reference_array *written[] = {&c->q, &c->kv[0].in, &c->kv[0].cache, &c->kv[1].cache};
    static const char *const names[] = {"q", "k", "k_cache", "v_cache"};
    void *got[4];
    fig_reference_launch(FIG_OP_DECODE_ATTENTION, &c->params, &c->step.random);
    fig_reference_array_check(&c->kv[1].in, "v");
    for (int i = 0; i < 4; i++)
        got[i] = take_bytes(written[i]);
    fig_reference_launch(FIG_OP_ROPE, &rope, &c->step.random);
    fig_reference_launch(FIG_OP_APPEND_KV, &append, &c->step.random);
    for (int i = 0; i < 4; i++) {
        expect_bytes(c, names[i], got[i], written[i]->data, bytes_of(written[i]));
        free(got[i]);
    }
}

/* Checks one head of q or k. */
static void check_head(const step_case *c, const fig_reference_array *x, fig_row_strides strides,
                       const fig_reference_array *norm, int32_t token, int32_t head) {
    const fig_decode_attention_params *p = &c->params;
    const fig_dtype dtype = (fig_dtype)p->dtype;
    double want[TRUTH_HEAD_DIM_LIMIT];
    int64_t place = c->places[token];
    if (p->cos_sin != NULL && place >= p->cos_sin_rows) place = p->cos_sin_rows - 1;
    truth_rope_args args = {.x = {x->before, dtype, strides.row, strides.head},
                            .row = token,
                            .position = place,
                            .head = head,
                            .head_dim = p->head_dim,
                            .cos_sin =
                                p->cos_sin == NULL ? NULL : p->cos_sin + place * p->cos_sin_stride,
                            .norm = norm->data,
                            .norm_epsilon = p->norm_epsilon};
    memcpy(&args.rope, &p->rope, sizeof p->rope);
    if (c->has_table) args.table = &p->angles.table;
    truth_rope(&args, want);
    double length = 0;
    for (int32_t i = 0; i < p->head_dim; i++)
        length = fmax(length, fabs(want[i]));
    for (int32_t i = 0; i < p->head_dim; i++) {
        const int64_t at = token * strides.row + head * strides.head + i;
        fig_reference_step_expect(
            &c->step, "decode_attention", at, truth_load(x->data, dtype, at), want[i],
            fig_reference_step_tolerance(&c->step, want[i], 0x1p-20 * length));
    }
}

static void the_first_launch_leaves_the_bits_of_rope_and_append(void **state) {
    (void)state;
    for (int n = 0; n < fig_place_cases(CASES); n++) {
        step_case c;
        open_case(&c, n);
        run_both(&c);
        for (int32_t token = 0; token < c.step.tokens; token++) {
            for (int32_t head = 0; head < c.params.q_heads; head++)
                check_head(&c, &c.q, c.params.q_strides, &c.q_norm, token, head);
            for (int32_t head = 0; head < c.params.kv_heads; head++)
                check_head(&c, &c.kv[0].in, c.kv[0].strides, &c.k_norm, token, head);
        }
        close_case(&c);
    }
}

/* ---- A node that rotates nothing */

/* Puts in numbers that a rotation by nothing would change: it would make the first zero positive,
 * and a NaN of the partner of an infinity. */
static void put_specials(step_case *c) {
    const int32_t half = c->params.head_dim / 2;
    fig_reference_array *k = &c->kv[0].in;
    fig_reference_array_set(k, 0, -0.0);
    fig_reference_array_set(k, half, half > 1 ? -1.0 : (double)-INFINITY);
    if (half > 1) fig_reference_array_set(k, 1, (double)INFINITY);
    fig_reference_array_keep(k);
}

static void a_node_that_rotates_nothing_stores_the_bits_of_k_and_v(void **state) {
    (void)state;
    for (int n = 0; n < fig_place_cases(CASES); n++) {
        step_case c;
        open_case(&c, n);
        fig_decode_attention_params *p = &c.params;
        p->rope = (fig_rope_terms){.rotary_dim = p->head_dim};
        p->angles = (fig_rope_angles){.table = fig_frequencies_still()};
        p->cos_sin = NULL;
        p->q_norm = p->k_norm = NULL;
        p->norm_epsilon = 0;
        put_specials(&c);
        const fig_append_kv_params append = fig_decode_attention_append(p);
        fig_reference_launch(FIG_OP_DECODE_ATTENTION, p, &c.step.random);
        expect_bytes(&c, "q", c.q.data, c.q.before, bytes_of(&c.q));
        expect_bytes(&c, "k", c.kv[0].in.data, c.kv[0].in.before, bytes_of(&c.kv[0].in));
        void *k_cache = take_bytes(&c.kv[0].cache), *v_cache = take_bytes(&c.kv[1].cache);
        fig_reference_launch(FIG_OP_APPEND_KV, &append, &c.step.random);
        expect_bytes(&c, "k_cache", k_cache, c.kv[0].cache.data, bytes_of(&c.kv[0].cache));
        expect_bytes(&c, "v_cache", v_cache, c.kv[1].cache.data, bytes_of(&c.kv[1].cache));
        free(k_cache);
        free(v_cache);
        close_case(&c);
    }
}

static const fig_traits hopper = {sizeof(fig_traits), "h200", 90, 132, 232448};

/* Params as before binding: a node without rotation, 32/8 heads of 128, of up to 160 tokens. */
static fig_decode_attention_params still_params(void) {
    return (fig_decode_attention_params){.rope = {.rotary_dim = 128},
                                         .rows = {.row_limit = 160, .multiple = 1},
                                         .page_size = 16,
                                         .q_heads = 32,
                                         .kv_heads = 8,
                                         .head_dim = 128,
                                         .dtype = FIG_BF16,
                                         .kv_dtype = FIG_BF16,
                                         .angles = {.table = fig_frequencies_still()}};
}

static fig_family_choice choice_of(const fig_decode_attention_params *params) {
    fig_family_choice choice;
    fig_families_choose(FIG_OP_DECODE_ATTENTION, params, &hopper, &choice);
    return choice;
}

static void expect_refusal(const fig_decode_attention_params *params, const char *refusal) {
    const fig_family_choice choice = choice_of(params);
    assert_int_equal(choice.family, FIG_FAMILY_DECODE_ATTENTION_GENERAL);
    assert_string_equal(choice.refusals[FIG_FAMILY_DECODE_ATTENTION_STILL], refusal);
}

static void a_node_that_rotates_nothing_has_a_thread_for_each_vector_of_k_and_v(void **state) {
    (void)state;
    fig_decode_attention_params params = still_params();
    fig_family_choice choice = choice_of(&params);
    assert_int_equal(choice.family, FIG_FAMILY_DECODE_ATTENTION_STILL);
    assert_string_equal(choice.entry, "fig_kernel_decode_attention_still");
    assert_int_equal(choice.shape.grid[0], 160);
    assert_int_equal(choice.shape.grid[1], 1);
    assert_int_equal(choice.shape.block[0], 256);
    params.kv_heads = 9;
    params.kv_dtype = FIG_E4M3;
    choice = choice_of(&params);
    assert_int_equal(choice.family, FIG_FAMILY_DECODE_ATTENTION_STILL);
    assert_int_equal(choice.shape.grid[1], 2);
}

static void a_node_that_rotates_or_norms_runs_the_general_kernel(void **state) {
    (void)state;
    static const float cos_sin[128];
    fig_decode_attention_params params = still_params();
    params.angles.table.frequencies[0] = 1;
    expect_refusal(&params, "a node that rotates nothing");
    params = still_params();
    params.cos_sin = cos_sin;
    expect_refusal(&params, "a node that rotates nothing");
    params = still_params();
    params.norm_epsilon = 1e-6f;
    expect_refusal(&params, "a node without norms");
    params = still_params();
    params.q_norm = cos_sin;
    expect_refusal(&params, "a node without norms");
}

static void heads_and_caches_without_vectors_run_the_general_kernel(void **state) {
    (void)state;
    static const char of_heads[] = "heads of k and v at multiples of 16 bytes";
    static const char of_cache[] =
        "heads of the cache at multiples of 16 bytes, or of 8 if it has 8-bit codes";
    fig_decode_attention_params params = still_params();
    params.head_dim = 68;
    expect_refusal(&params, of_heads);
    params = still_params();
    params.k_strides.row = 1028;
    expect_refusal(&params, of_heads);
    params = still_params();
    params.v = (const void *)8;
    expect_refusal(&params, of_heads);
    params = still_params();
    params.v_cache_strides.token = 132;
    expect_refusal(&params, of_cache);
    params.v_cache_strides.token = 136;
    assert_int_equal(choice_of(&params).family, FIG_FAMILY_DECODE_ATTENTION_STILL);
    params.kv_dtype = FIG_E4M3;
    assert_int_equal(choice_of(&params).family, FIG_FAMILY_DECODE_ATTENTION_STILL);
    params.k_cache = (void *)4;
    expect_refusal(&params, of_cache);
}

/* ---- The family for buckets of many query tokens */

static fig_family_choice choice_of_many(const fig_decode_attention_params *params) {
    const fig_family_choice choice = choice_of(params);
    assert_string_equal(choice.refusals[FIG_FAMILY_DECODE_ATTENTION_STILL],
                        "a node that rotates nothing");
    return choice;
}

static void expect_no_many(const fig_decode_attention_params *params, const char *refusal) {
    const fig_family_choice choice = choice_of_many(params);
    assert_int_equal(choice.family, FIG_FAMILY_DECODE_ATTENTION_GENERAL);
    assert_string_equal(choice.refusals[FIG_FAMILY_DECODE_ATTENTION_LONG], refusal);
}

static fig_decode_attention_params many_params(void) {
    fig_decode_attention_params params = still_params();
    params.angles.table.frequencies[0] = 1;
    params.rows.row_limit = 513;
    return params;
}

static void buckets_of_more_than_512_tokens_have_a_kernel_of_their_own(void **state) {
    (void)state;
    fig_decode_attention_params params = many_params();
    const fig_family_choice choice = choice_of_many(&params);
    assert_int_equal(choice.family, FIG_FAMILY_DECODE_ATTENTION_LONG);
    assert_string_equal(choice.entry, "fig_kernel_decode_attention_long");
    assert_int_equal(choice.shape.grid[0], 257 * 3);
    params.rows.row_limit = 4096;
    assert_int_equal(choice_of_many(&params).shape.grid[0], 512 * 3);
    params.rows.row_limit = 512;
    expect_no_many(&params, "a bucket of more than 512 query tokens");
}

static void tokens_without_vectors_run_the_general_kernel(void **state) {
    (void)state;
    static const char of_q[] = "heads of q and norms at multiples of 16 bytes";
    fig_decode_attention_params params = many_params();
    params.head_dim = 120;
    expect_no_many(&params, "pairs in whole vectors");
    params = many_params();
    params.rope.rotary_dim = 24;
    expect_no_many(&params, "pairs in whole vectors");
    params = many_params();
    params.q = (void *)8;
    expect_no_many(&params, of_q);
    params = many_params();
    params.q_strides.row = 4100;
    expect_no_many(&params, of_q);
    params = many_params();
    params.k_norm = (const void *)8;
    expect_no_many(&params, of_q);
    params = many_params();
    params.v_strides.head = 132;
    expect_no_many(&params, "heads of k and v at multiples of 16 bytes");
    params = many_params();
    params.k_cache = (void *)4;
    expect_no_many(&params,
                   "heads of the cache at multiples of 16 bytes, or of 8 if it has 8-bit codes");
}

static void the_host_runs_the_general_kernel(void **state) {
    (void)state;
    const fig_traits host = {sizeof(fig_traits), "host", 0, 1, 0};
    const fig_decode_attention_params params = many_params();
    fig_family_choice choice;
    fig_families_choose(FIG_OP_DECODE_ATTENTION, &params, &host, &choice);
    assert_int_equal(choice.family, FIG_FAMILY_DECODE_ATTENTION_GENERAL);
}

static void other_machines_run_the_general_kernel(void **state) {
    (void)state;
    const fig_traits older = {sizeof(fig_traits), "a100", 80, 108, 166912};
    const fig_decode_attention_params params = still_params();
    fig_family_choice choice;
    fig_families_choose(FIG_OP_DECODE_ATTENTION, &params, &older, &choice);
    assert_int_equal(choice.family, FIG_FAMILY_DECODE_ATTENTION_GENERAL);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_launch_leaves_the_bits_of_rope_and_append),
        cmocka_unit_test(a_node_that_rotates_nothing_stores_the_bits_of_k_and_v),
        cmocka_unit_test(a_node_that_rotates_nothing_has_a_thread_for_each_vector_of_k_and_v),
        cmocka_unit_test(a_node_that_rotates_or_norms_runs_the_general_kernel),
        cmocka_unit_test(heads_and_caches_without_vectors_run_the_general_kernel),
        cmocka_unit_test(other_machines_run_the_general_kernel),
        cmocka_unit_test(buckets_of_more_than_512_tokens_have_a_kernel_of_their_own),
        cmocka_unit_test(tokens_without_vectors_run_the_general_kernel),
        cmocka_unit_test(the_host_runs_the_general_kernel),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
