/* test_attention_turn.c: compares a single launch of attention, which includes RoPE and the append,
 * with two launches: decode_attention, then attention. Both ways must leave the same bits in out,
 * lse and the cache. The single launch must not change q and k.
 *
 * On a GPU with the image for 9.0, both ways run kernels; on other devices both run reference
 * kernels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/attention/geometry.h"
#include "kernels/common/numeric.h"
#include "kernels/table/reference_kernels.h"
#include "planner/spec/frequencies.h"
#include "tests/support/kernels/attention_case.h"
#include "tests/support/place.h"
#include "tests/support/ranks/turns.h"

enum { CASES = 160, ARRAYS = 6, VECTORS = 8 };

static const fig_traits hopper = {
    .size = sizeof hopper, .compute_capability = 90, .sm_count = 132, .shared_bytes = 232448};
static uint64_t seed;

/* An attention case, and the launch of decode_attention in front of it. */
typedef struct turn_case {
    int64_t unit; /* strides of k and v are multiples of this */
    fig_attention_case attention;
    fig_reference_array k, v, q_norm, k_norm;
    fig_decode_attention_params before;
} turn_case;

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

/* ---- Inputs */

/* Draws a form that the family `turn` takes: whole heads of few vectors, pages of a multiple of 16
 * tokens. The number of workers is odd; for short rows it would be even. */
static fig_attention_form draw_form(fig_random *random) {
    static const int32_t head_dims[] = {128, 64, 256, 96}, page_sizes[] = {16, 32, 64};
    fig_attention_form form = fig_attention_form_draw(random, seed);
    fig_attention_form_draw_features(&form, random);
    form.dtype = draw(random, 0, 1) ? FIG_F16 : FIG_BF16;
    if (form.scales == FIG_CASE_UNSCALED) form.kv_dtype = form.dtype;
    form.head_dim = head_dims[draw(random, 0, 3)];
    if (form.kv_dtype != form.dtype) form.head_dim = draw(random, 0, 1) ? 128 : 256;
    form.page_size = page_sizes[draw(random, 0, 2)];
    form.ratio = draw(random, 1, VECTORS);
    form.row_tokens = draw(random, 1, VECTORS / form.ratio);
    if (form.tile_tokens < 16) form.tile_tokens = 16;
    form.outside = 0;
    form.unit = 16;
    form.workers |= 1;
    for (int32_t r = 0; r < form.rows; r++)
        if (form.lengths[r] > 0 && form.lengths[r] < form.row_tokens)
            form.lengths[r] = form.row_tokens;
    return form;
}

/* Draws a form that the family `short_turn` takes: some rows need one turn, some the two turns that
 * shared memory holds, and some more. */
static fig_attention_form draw_short_form(fig_random *random) {
    fig_attention_form form = draw_form(random);
    int32_t blocks = 2 << draw(random, 0, 3), tokens = draw(random, 0, 3) == 0 ? 1100 : 300;
    if (form.kv_dtype != form.dtype && draw(random, 0, 2) == 0) form.head_dim = 64;
    form.heads_per_worker = form.row_tokens = 1;
    form.fixed = 0;
    while (blocks > 2 && form.row_limit * form.kv_heads * blocks >= hopper.sm_count)
        blocks /= 2;
    form.workers = form.row_limit * form.kv_heads * blocks;
    form.tile_tokens = draw(random, 0, 2) == 0 ? 128 : 64;
    if (blocks == FIG_GEOMETRY_SHORT_BLOCK_LIMIT) form.head_dim = form.tile_tokens = 128;
    if (blocks >= FIG_GEOMETRY_SHORT_BLOCKS && form.head_dim == 128 && form.tile_tokens == 128)
        tokens *= 4;
    form.length_limit = tokens;
    for (int32_t r = 0; r < form.rows; r++)
        if (form.lengths[r] > 0) form.lengths[r] = draw(random, 1, tokens);
    return form;
}

static fig_reference_array open_array(turn_case *c, int64_t count) {
    fig_reference_array array = fig_reference_array_make(c->attention.params.dtype, count);
    fig_reference_array_fill(&array, 0, count, &c->attention.random, 1);
    fig_reference_array_keep(&array);
    return array;
}

static fig_row_strides open_rows(turn_case *c, fig_reference_array *rows) {
    const fig_attention_params *p = &c->attention.params;
    fig_random *random = &c->attention.random;
    const int64_t head = fig_reference_stride(random, c->unit, p->head_dim);
    const fig_row_strides strides = {fig_reference_stride(random, c->unit, p->kv_heads * head),
                                     head};
    *rows = open_array(c, p->split.row_limit * p->split.row_tokens * strides.row);
    return strides;
}

static fig_rope_terms draw_rope(fig_random *random, int32_t head_dim) {
    fig_rope_terms rope = {.rotary_dim = head_dim,
                           .theta = draw(random, 0, 1) ? 1e4f : 5e5f,
                           .scale = draw(random, 0, 1) ? 1.0f : 4.0f};
    if (draw(random, 0, 1)) return rope;
    rope.llama3_factor = 8;
    rope.llama3_low = 1;
    rope.llama3_high = 4;
    rope.llama3_context = 8192;
    return rope;
}

static void open_norms(turn_case *c) {
    fig_decode_attention_params *d = &c->before;
    if (draw(&c->attention.random, 0, 2) > 0) return;
    c->q_norm = open_array(c, d->head_dim);
    c->k_norm = open_array(c, d->head_dim);
    d->q_norm = c->q_norm.data;
    d->k_norm = c->k_norm.data;
    d->norm_epsilon = 1e-6f;
}

/* Lets the node rotate nothing. k then begins with numbers that a rotation by nothing would change:
 * it would make the zero positive. */
static void stop_turning(turn_case *c) {
    fig_decode_attention_params *d = &c->before;
    d->rope = (fig_rope_terms){.rotary_dim = d->head_dim};
    d->angles = (fig_rope_angles){.table = fig_frequencies_still()};
    if (d->q_norm != NULL) return;
    fig_reference_array_set(&c->k, 0, -0.0);
    fig_reference_array_set(&c->k, d->head_dim / 2, -1.0);
}

/* Prepares the launch in front of attention, with the same rows, cache and plan. */
static void open_before(turn_case *c) {
    int has_table;
    const fig_attention_params *p = &c->attention.params;
    c->before = (fig_decode_attention_params){
        .q = c->attention.q.data,
        .k_cache = (void *)(uintptr_t)p->k_cache,
        .v_cache = (void *)(uintptr_t)p->v_cache,
        .page_table = p->page_table,
        .k_scale = p->k_scale,
        .v_scale = p->v_scale,
        .plan = p->plan,
        .q_strides = p->q_strides,
        .k_cache_strides = p->k_cache_strides,
        .v_cache_strides = p->v_cache_strides,
        .table_stride = p->table_stride,
        .k_pages = p->k_pages,
        .v_pages = p->v_pages,
        .rope = draw_rope(&c->attention.random, p->head_dim),
        .lengths_offset = p->lengths_offset,
        .sequences_offset = p->sequences_offset,
        .positions_offset = c->attention.shape.layout.positions,
        .rows = {p->split.row_limit * p->split.row_tokens, p->split.row_tokens},
        .page_size = p->page_size,
        .q_heads = p->q_heads,
        .kv_heads = p->kv_heads,
        .head_dim = p->head_dim,
        .k_scales = p->k_scales,
        .v_scales = p->v_scales,
        .dtype = p->dtype,
        .kv_dtype = p->kv_dtype};
    c->before.angles = fig_turns_draw(&c->attention.random, &c->before.rope, &has_table);
    c->before.k_strides = open_rows(c, &c->k);
    c->before.v_strides = open_rows(c, &c->v);
    c->before.k = c->k.data;
    c->before.v = c->v.data;
    open_norms(c);
    if (draw(&c->attention.random, 0, 2) == 0) stop_turning(c);
}

/* Fills in the params as lowering does for a node of decode_attention. */
static void turn(turn_case *c) {
    const fig_decode_attention_params *d = &c->before;
    fig_attention_params *p = &c->attention.params;
    p->turn = (fig_attention_turn){.k = d->k,
                                   .v = d->v,
                                   .q_norm = d->q_norm,
                                   .k_norm = d->k_norm,
                                   .k_strides = d->k_strides,
                                   .v_strides = d->v_strides,
                                   .rope = d->rope,
                                   .angles = d->angles,
                                   .norm_epsilon = d->norm_epsilon,
                                   .positions_offset = d->positions_offset};
    fig_attention_family_turn_finish(p);
}

/* ---- Runs */

static int is_hopper(void) {
    return strcmp(fig_place_name(), "cuda.hopper") == 0;
}

static void launch(fig_op op, const void *params, uint32_t blocks) {
    if (is_hopper()) fig_reference_launch(op, params, NULL);
    for (uint32_t i = 0; i < blocks && !is_hopper(); i++)
        fig_kernel_table[op].reference(params, (uint32_t[3]){i, 0, 0});
}

static void run_attention(turn_case *c) {
    launch(FIG_OP_ATTENTION, &c->attention.params, (uint32_t)c->attention.params.split.workers);
}

static void run_before(turn_case *c) {
    fig_launch_shape shape;
    fig_decode_attention_shape(&c->before, &shape);
    launch(FIG_OP_DECODE_ATTENTION, &c->before, shape.grid[0]);
}

/* Lists the arrays that both ways write, and q and k, which only the two launches write. */
static void arrays_of(turn_case *c, fig_reference_array *arrays[ARRAYS]) {
    fig_attention_case *a = &c->attention;
    fig_reference_array *all[ARRAYS] = {&a->out, &a->lse, &a->k, &a->v, &a->q, &c->k};
    memcpy(arrays, all, sizeof all);
}

static size_t bytes_of(const fig_reference_array *array) {
    return (size_t)array->count * (size_t)fig_numeric_bytes(array->dtype);
}

/* Copies nothing if there is no array: V has none of its own if K and V share a pool. */
static void copy_bytes(void *to, const void *from, size_t bytes) {
    if (bytes > 0) memcpy(to, from, bytes);
}

static void expect(const turn_case *c, const char *name, const fig_reference_array *array,
                   const uint8_t *want) {
    const uint8_t *got = array->data;
    const fig_attention_form *f = &c->attention.form;
    const size_t count = bytes_of(array);
    if (count == 0 || memcmp(got, want, count) == 0) return;
    for (size_t i = 0; i < count; i++)
        if (got[i] != want[i])
            fail_msg("%s: byte %zu of %zu is 0x%x, it must be 0x%x; dtype %d, cache %d, head_dim "
                     "%d, %d vectors of %d queries, %d heads at once, seed 0x%llx",
                     name, i, count, got[i], want[i], f->dtype, f->kv_dtype, f->head_dim,
                     f->ratio * f->row_tokens, f->row_tokens, f->heads_per_worker,
                     (unsigned long long)seed);
}

/* Runs the two launches, and then the single launch on the same inputs. */
static void run_both(turn_case *c) {
    static const char *const names[ARRAYS] = {"out", "lse", "k_cache", "v_cache", "q", "k"};
    fig_reference_array *arrays[ARRAYS];
    uint8_t *before[ARRAYS], *want[ARRAYS];
    arrays_of(c, arrays);
    for (int i = 0; i < ARRAYS; i++) {
        before[i] = malloc(bytes_of(arrays[i]) + 1);
        want[i] = malloc(bytes_of(arrays[i]) + 1);
        assert_true(before[i] != NULL && want[i] != NULL);
        copy_bytes(before[i], arrays[i]->data, bytes_of(arrays[i]));
    }
    run_before(c);
    run_attention(c);
    turn(c);
    for (int i = 0; i < ARRAYS; i++) {
        copy_bytes(want[i], arrays[i]->data, bytes_of(arrays[i]));
        copy_bytes(arrays[i]->data, before[i], bytes_of(arrays[i]));
    }
    run_attention(c);
    for (int i = 0; i < ARRAYS; i++) {
        expect(c, names[i], arrays[i], i < 4 ? want[i] : before[i]);
        free(before[i]);
        free(want[i]);
    }
    fig_reference_array_check(&c->attention.partials, "partials");
    fig_reference_array_check(&c->attention.sums, "sums");
    fig_reference_array_check(&c->attention.counters, "counters");
}

static void close_case(turn_case *c) {
    fig_reference_array_free(&c->k);
    fig_reference_array_free(&c->v);
    fig_reference_array_free(&c->q_norm);
    fig_reference_array_free(&c->k_norm);
    fig_attention_case_close(&c->attention);
}

/* If the family takes the case, runs it, checks the results and returns 1. */
static int run_case(const fig_attention_form *form, fig_random random, int is_short) {
    turn_case c = {.unit = is_short ? 8 : 2};
    fig_attention_case_open(&c.attention, form, random);
    const fig_attention_params *p = &c.attention.params;
    if (is_short && form->seed % 2) c.attention.params.flags |= FIG_ATTENTION_EARLY;
    open_before(&c);
    turn(&c);
    const char *refusal = is_short ? fig_attention_family_short_turn_refuses(p, &hopper)
                                   : fig_attention_family_turn_refuses(p, &hopper);
    memset(&c.attention.params.turn, 0, sizeof c.attention.params.turn);
    if (refusal == NULL) run_both(&c);
    close_case(&c);
    return refusal == NULL;
}

static void one_launch_leaves_what_two_leave(void **state) {
    (void)state;
    const int half = fig_place_cases(CASES) / 2;
    int taken = 0;
    for (int n = 0; fig_place_wants_case(n, CASES, taken, half); n++) {
        fig_random random = fig_random_seed(seed + (uint64_t)n);
        const fig_attention_form form = draw_form(&random);
        taken += run_case(&form, random, 0);
    }
    assert_true(taken >= half);
}

static void a_single_launch_of_short_rows_leaves_the_same_bits(void **state) {
    (void)state;
    const int half = fig_place_cases(CASES) / 2;
    int taken = 0;
    for (int n = 0; fig_place_wants_case(n, CASES, taken, half); n++) {
        fig_random random = fig_random_seed(seed + 7000 + (uint64_t)n);
        fig_attention_form form = draw_short_form(&random);
        form.seed = seed + (uint64_t)n;
        taken += run_case(&form, random, 1);
    }
    assert_true(taken >= half);
}

/* ---- What it takes */

static fig_attention_params sound_params(void) {
    return (fig_attention_params){.q_heads = 8,
                                  .kv_heads = 2,
                                  .head_dim = 128,
                                  .heads_per_worker = 1,
                                  .page_size = 16,
                                  .dtype = FIG_BF16,
                                  .kv_dtype = FIG_BF16,
                                  .split = {.row_tokens = 1, .workers = 4},
                                  .turn = {.rope = {.rotary_dim = 128, .theta = 1e4f, .scale = 1}}};
}

static const char *refusal_of(const fig_attention_params *p) {
    return fig_attention_family_turn_refuses(p, &hopper);
}

static void launches_that_cannot_apply_rope_are_refused(void **state) {
    (void)state;
    fig_attention_params p = sound_params();
    assert_null(refusal_of(&p));
    p.turn.rope.rotary_dim = 0;
    assert_string_equal(refusal_of(&p), "a node with RoPE and append");
    p.turn.rope.rotary_dim = 64;
    assert_string_equal(refusal_of(&p), "RoPE over whole heads, not interleaved");
    p = sound_params();
    p.turn.rope.interleaved = 1;
    assert_string_equal(refusal_of(&p), "RoPE over whole heads, not interleaved");
    p = sound_params();
    p.turn.positions = &p;
    assert_string_equal(refusal_of(&p), "positions from the plan, and no cos_sin table");
    p = sound_params();
    p.turn.cos_sin = (const float *)(uintptr_t)64;
    assert_string_equal(refusal_of(&p), "positions from the plan, and no cos_sin table");
    p = sound_params();
    p.split.row_tokens = 3;
    assert_string_equal(refusal_of(&p), "at most 8 vectors of a kv head");
    p = sound_params();
    p.turn.k_strides.row = 3;
    assert_string_equal(refusal_of(&p), "k, v and norms aligned to 4 bytes");
    p = sound_params();
    p.page_size = 8;
    assert_string_equal(refusal_of(&p), "pages of a multiple of 16 tokens");
}

/* There are 2 workers per kv head. The family `turn` refuses such rows whatever is bound, so a
 * caller that loads kernels before binding must not load `turn` for them. */
static void short_rows_are_turned_where_k_and_v_are_whole_chunks(void **state) {
    (void)state;
    fig_attention_params p = sound_params();
    p.split.row_limit = 1;
    assert_null(fig_attention_family_short_turn_refuses(&p, &hopper));
    assert_string_equal(refusal_of(&p), "rows that are not short");
    p.kv_dtype = FIG_E4M3;
    assert_null(fig_attention_family_short_turn_refuses(&p, &hopper));
    p.kv_dtype = FIG_BF16;
    p.turn.k_strides.row = 260;
    assert_string_equal(fig_attention_family_short_turn_refuses(&p, &hopper),
                        "k and v aligned to 16 bytes, norms to 4");
    p.turn.k_strides.row = 264;
    assert_null(fig_attention_family_short_turn_refuses(&p, &hopper));
    p.turn.rope.interleaved = 1;
    assert_string_equal(fig_attention_family_short_turn_refuses(&p, &hopper),
                        "RoPE over whole heads, not interleaved");
    p = sound_params();
    p.split.row_limit = 1;
    p.k_cache_strides.token = 132;
    assert_string_equal(fig_attention_family_short_turn_refuses(&p, &hopper),
                        "tokens that begin at multiples of 16 bytes");
    assert_string_equal(refusal_of(&p), "rows that are not short");
    p.k_cache_strides.token = 0;
    p.split.row_tokens = 2;
    assert_null(refusal_of(&p));
    assert_string_equal(fig_attention_family_short_turn_refuses(&p, &hopper), "one token a row");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_launch_leaves_what_two_leave),
        cmocka_unit_test(a_single_launch_of_short_rows_leaves_the_same_bits),
        cmocka_unit_test(launches_that_cannot_apply_rope_are_refused),
        cmocka_unit_test(short_rows_are_turned_where_k_and_v_are_whole_chunks),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
