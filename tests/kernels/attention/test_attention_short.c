/* test_attention_short.c: compares attention over short rows with float64, and tests that it gives
 * the same bits each time and refuses cases for which there is no kernel.
 *
 * A GPU with the image for 9.0 runs the cluster kernels; other devices run the reference kernel. In
 * one turn, each block of a cluster reads one tile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/attention/geometry.h"
#include "kernels/table/reference_kernels.h"
#include "tests/support/kernels/attention_case.h"
#include "tests/support/place.h"

enum { CASES = 48, SOME = 200, VECTORS = 8, SM_COUNT = 132 };

static uint64_t seed;

static const char *refusal_of(const fig_attention_params *p) {
    const fig_traits hopper = {.size = sizeof hopper,
                               .compute_capability = 90,
                               .sm_count = SM_COUNT,
                               .shared_bytes = 232448};
    return fig_attention_family_short_refuses(p, &hopper);
}

static void expect(const fig_attention_params *p, const char *refusal) {
    const char *said = refusal_of(p);
    if (refusal == NULL) {
        assert_null(said);
    } else {
        assert_non_null(said);
        assert_string_equal(said, refusal);
    }
}

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

/* Draws a form that the family takes. Some rows need one turn, some the two turns that shared
 * memory holds, and some more. */
static fig_attention_form draw_form(fig_random *random) {
    static const int32_t head_dims[] = {128, 64, 256, 96}, page_sizes[] = {16, 32, 64};
    fig_attention_form form = fig_attention_form_draw(random, seed);
    int32_t blocks = 2 << draw(random, 0, 3);
    fig_attention_form_draw_features(&form, random);
    form.dtype = form.kv_dtype = draw(random, 0, 1) ? FIG_F16 : FIG_BF16;
    form.scales = FIG_CASE_UNSCALED;
    if (draw(random, 0, 1)) {
        form.kv_dtype = draw(random, 0, 1) ? FIG_E4M3 : FIG_E5M2;
        form.scales = draw(random, FIG_CASE_UNSCALED, FIG_CASE_PER_HEAD);
    }
    form.head_dim = head_dims[draw(random, 0, form.kv_dtype == form.dtype ? 3 : 2)];
    form.page_size = page_sizes[draw(random, 0, 2)];
    form.heads_per_worker = form.row_tokens = 1;
    form.ratio = draw(random, 1, VECTORS);
    form.fixed = 0;
    form.unit = 16;
    while (blocks > 2 && form.row_limit * form.kv_heads * blocks >= SM_COUNT)
        blocks /= 2;
    form.workers = form.row_limit * form.kv_heads * blocks;
    form.tile_tokens = draw(random, 0, 2) == 0 ? 128 : 64;
    form.length_limit = draw(random, 0, 3) == 0 ? 1100 : 300;
    if (blocks == FIG_GEOMETRY_SHORT_BLOCK_LIMIT) form.head_dim = form.tile_tokens = 128;
    if (blocks >= FIG_GEOMETRY_SHORT_BLOCKS && form.head_dim == 128 && form.tile_tokens == 128)
        form.length_limit *= 4;
    if (form.window > 0 && draw(random, 0, 1)) form.window = draw(random, 1, form.length_limit);
    for (int32_t r = 0; r < form.rows; r++)
        if (form.lengths[r] > 0) form.lengths[r] = draw(random, 1, form.length_limit);
    return form;
}

static void short_rows_agree_with_float64(void **state) {
    (void)state;
    const int half = fig_place_cases(CASES) / 2;
    int taken = 0;
    for (int n = 0; fig_place_wants_case(n, CASES, taken, half); n++) {
        fig_random random = fig_random_seed(seed + (uint64_t)n);
        const fig_attention_form form = draw_form(&random);
        fig_attention_case c;
        fig_attention_case_open(&c, &form, random);
        if (n % 2) c.params.flags |= FIG_ATTENTION_EARLY;
        taken += refusal_of(&c.params) == NULL;
        fig_attention_case_run(&c, &c.random);
        fig_attention_case_check(&c, SOME);
        fig_attention_case_close(&c);
    }
    assert_true(taken >= half);
}

/* Sets lengths of 0 and 1, and lengths around a warp's 16 tokens, a cluster's turn, and the turns
 * that shared memory holds. A machine can run fewer clusters of 16 blocks, so these get only the
 * longer lengths. */
static void set_lengths(fig_attention_form *form, int32_t blocks) {
    const int32_t turn = blocks * form->tile_tokens;
    const int32_t held = fig_geometry_short_stages(fig_numeric_bytes(form->kv_dtype)) * turn;
    const int32_t lengths[] = {0,    1,        15,       16,   17,      turn - 1,
                               turn, turn + 1, held - 1, held, held + 1};
    const int32_t count = sizeof lengths / sizeof lengths[0];
    const int32_t first = blocks > FIG_GEOMETRY_SHORT_BLOCKS ? 3 : 0;
    form->row_limit = form->rows = count - first;
    form->length_limit = held + 1;
    for (int32_t r = 0; r < form->rows; r++) {
        form->contents[r] = r;
        form->lengths[r] = lengths[first + r];
    }
}

/* Returns the form, with one kv head, for kernel `number`: a dtype of q, a dtype of the cache and a
 * shape. For the last three shapes there are no kernels over 8-bit caches. */
static fig_attention_form form_of_kernel(int32_t number, fig_random *random) {
    static const int32_t dtypes[][2] = {{FIG_F16, FIG_F16},  {FIG_BF16, FIG_BF16},
                                        {FIG_F16, FIG_E4M3}, {FIG_BF16, FIG_E4M3},
                                        {FIG_F16, FIG_E5M2}, {FIG_BF16, FIG_E5M2}};
    static const struct {
        int32_t head_dim, blocks, warps;
    } shapes[] = {{64, 2, 4},   {64, 4, 4},  {64, 8, 4},  {128, 2, 4}, {128, 4, 4},
                  {128, 8, 4},  {128, 8, 8}, {256, 2, 4}, {256, 4, 4}, {256, 8, 4},
                  {128, 16, 8}, {96, 2, 4},  {96, 4, 4},  {96, 8, 4}};
    enum { SHAPES = sizeof shapes / sizeof shapes[0], OF_CODES = SHAPES - 3, WIDE = 2 };
    const int32_t rest = number - WIDE * SHAPES;
    const int32_t type = rest < 0 ? number / SHAPES : WIDE + rest / OF_CODES;
    const int32_t shape = rest < 0 ? number % SHAPES : rest % OF_CODES;
    fig_attention_form form = draw_form(random);
    form.dtype = dtypes[type][0];
    form.kv_dtype = dtypes[type][1];
    if (form.dtype == form.kv_dtype) form.scales = FIG_CASE_UNSCALED;
    form.head_dim = shapes[shape].head_dim;
    form.kv_heads = 1;
    form.tile_tokens = shapes[shape].warps * FIG_GEOMETRY_TOKENS;
    set_lengths(&form, shapes[shape].blocks);
    form.workers = form.row_limit * shapes[shape].blocks;
    return form;
}

/* Runs kernel `number` and returns its name. Draws forms until the family takes one. Every second
 * kernel reads early. On the host all forms use one reference kernel, so only every seventh is
 * run. */
static void see_kernel(int32_t number, char name[FIG_ENTRY_BYTES]) {
    fig_attention_case c;
    for (uint64_t attempt = 0;; attempt++) {
        fig_random random = fig_random_seed(seed + 1000 + (uint64_t)number + attempt * 1000);
        const fig_attention_form form = form_of_kernel(number, &random);
        fig_attention_case_open(&c, &form, random);
        if (refusal_of(&c.params) == NULL || attempt == 20) break;
        fig_attention_case_close(&c);
    }
    expect(&c.params, NULL);
    if (number % 2) c.params.flags |= FIG_ATTENTION_EARLY;
    fig_attention_family_short_entry(&c.params, name);
    if (fig_place_device() == FIG_DEVICE_CUDA || number % 7 == 0) {
        fig_attention_case_run(&c, &c.random);
        fig_attention_case_check(&c, SOME);
    }
    fig_attention_case_close(&c);
}

static void every_kernel_is_right_about_the_edges_of_its_turns(void **state) {
    (void)state;
    enum { COUNT = 72, KERNELS = 50 };
    char names[COUNT][FIG_ENTRY_BYTES];
    int32_t kernels = 0;
    for (int32_t n = 0; n < COUNT; n++) {
        see_kernel(n, names[n]);
        int32_t before = 0;
        while (before < n && strcmp(names[before], names[n]) != 0)
            before++;
        kernels += before == n;
    }
    assert_int_equal(kernels, KERNELS);
}

static void the_same_again_gives_the_same_bits(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 5000);
    fig_attention_form form = draw_form(&random);
    form.row_limit = form.rows = 2;
    form.lengths[0] = form.lengths[1] = 200;
    form.workers = form.row_limit * form.kv_heads * 4;
    fig_attention_case c;
    fig_attention_case_open(&c, &form, random);
    const size_t bytes = (size_t)c.out.count * 2;
    uint8_t *first = malloc(bytes);
    assert_non_null(first);
    fig_attention_case_run(&c, NULL);
    memcpy(first, c.out.data, bytes);
    for (int n = 0; n < 8; n++) {
        fig_attention_case_run(&c, &c.random);
        assert_memory_equal(first, c.out.data, bytes);
    }
    free(first);
    fig_attention_case_close(&c);
}

static fig_attention_params sound_params(void) {
    return (fig_attention_params){.q_heads = 32,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .heads_per_worker = 1,
                                  .page_size = 16,
                                  .dtype = FIG_BF16,
                                  .kv_dtype = FIG_BF16,
                                  .split = {.row_limit = 1, .row_tokens = 1, .workers = 32}};
}

static void launches_that_cannot_apply_rope_are_refused(void **state) {
    (void)state;
    const char *const workers = "2, 4, 8 or 16 workers per kv head, fewer than SMs";
    fig_attention_params p = sound_params();
    expect(&p, NULL);
    for (int32_t blocks = 1; blocks <= 16; blocks++) {
        p.split.workers = 8 * blocks;
        expect(&p, blocks == 2 || blocks == 4 || blocks == 8 ? NULL : workers);
    }
    p.split.workers = 33;
    expect(&p, workers);
    p.split.tile_tokens = 128;
    p.split.workers = 64;
    expect(&p, NULL);
    p.split.workers = 128;
    expect(&p, NULL);
    p.split.workers = 32;
    expect(&p, workers);
    p.head_dim = 64;
    expect(&p, NULL);
    p.split.workers = 128;
    expect(&p, workers);
    p = sound_params();
    p.split.row_limit = 33;
    p.split.workers = 528;
    expect(&p, workers);
    p = sound_params();
    p.heads_per_worker = 2;
    expect(&p, workers);
    p = sound_params();
    p.kv_dtype = FIG_E4M3;
    expect(&p, NULL);
    p.kv_dtype = FIG_E5M2;
    expect(&p, NULL);
    p.kv_dtype = FIG_F16;
    expect(&p, "f16 or bf16, over a cache of the same or of 8 bits");
    p.dtype = p.kv_dtype = FIG_F32;
    expect(&p, "f16 or bf16, over a cache of the same or of 8 bits");
    p.dtype = FIG_F32;
    p.kv_dtype = FIG_E4M3;
    expect(&p, "f16 or bf16, over a cache of the same or of 8 bits");
    p = sound_params();
    p.head_dim = 80;
    expect(&p, "head_dim 64, 96, 128 or 256");
    p.head_dim = 96;
    expect(&p, NULL);
    p.kv_dtype = FIG_E4M3;
    expect(&p, "head_dim 64, 128 or 256 over a cache of 8 bits");
    p = sound_params();
    p.split.row_tokens = 2;
    expect(&p, "one token a row");
    p = sound_params();
    p.split.fixed = 1;
    expect(&p, "a split that is not fixed");
    p = sound_params();
    p.q_heads = 72;
    expect(&p, "at most 8 vectors of a kv head");
    p = sound_params();
    p.page_size = 8;
    expect(&p, "pages of a multiple of 16 tokens");
    p = sound_params();
    p.flags = FIG_ATTENTION_DENSE;
    expect(&p, "pages of a multiple of 16 tokens");
    p = sound_params();
    p.q_strides.row = 4100;
    expect(&p, "q aligned to 16 bytes");
    p = sound_params();
    p.v_cache_strides.token = 1028;
    expect(&p, "tokens that begin at multiples of 16 bytes");
}

/* In a turn, a block reads 64 or 128 tokens. Its shared memory holds two turns, or four of an 8-bit
 * cache, even if two blocks share an SM. */
static void a_cluster_has_as_many_blocks_as_a_row_has_turns(void **state) {
    (void)state;
    static const struct {
        int64_t segments, tokens;
        int32_t warps, value_bytes, blocks;
    } cases[] = {{8, 128, 4, 2, 2},   {8, 129, 4, 2, 4},   {8, 256, 4, 2, 4},   {8, 512, 4, 2, 8},
                 {8, 1024, 4, 2, 8},  {8, 1025, 4, 2, 0},  {16, 512, 4, 2, 8},  {17, 512, 4, 2, 4},
                 {32, 256, 4, 2, 4},  {32, 512, 4, 2, 4},  {33, 512, 4, 2, 0},  {64, 128, 4, 2, 2},
                 {64, 129, 4, 2, 0},  {66, 128, 4, 2, 0},  {8, 64, 4, 2, 0},    {8, 1024, 8, 2, 8},
                 {8, 2048, 8, 2, 8},  {8, 2049, 8, 2, 0},  {9, 1024, 8, 2, 4},  {9, 1025, 8, 2, 0},
                 {64, 512, 4, 1, 2},  {64, 513, 4, 1, 0},  {32, 513, 4, 1, 0},  {8, 2049, 8, 1, 0},
                 {2, 2048, 8, 2, 8},  {2, 2049, 8, 2, 16}, {2, 8192, 8, 2, 16}, {2, 8193, 8, 2, 0},
                 {4, 8192, 8, 1, 16}, {5, 4096, 8, 2, 0},  {1, 4096, 8, 1, 16}, {2, 4096, 4, 2, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(fig_geometry_short_blocks(cases[i].segments, cases[i].tokens,
                                                   cases[i].warps, cases[i].value_bytes, 132),
                         cases[i].blocks);
}

/* A GPU with 114 SMs may have only one GPC with 16 SMs. */
static void clusters_of_16_need_a_machine_that_holds_them(void **state) {
    (void)state;
    assert_int_equal(fig_geometry_short_blocks(2, 4096, 8, 2, 128), 16);
    assert_int_equal(fig_geometry_short_blocks(2, 4096, 8, 2, 127), 0);
    assert_int_equal(fig_geometry_short_blocks(2, 2048, 8, 2, 114), 8);
    fig_attention_params p = sound_params();
    p.q_heads = 16;
    p.kv_heads = 2;
    p.split.workers = 32;
    p.split.tile_tokens = 128;
    for (int32_t sm_count = 126; sm_count < 130; sm_count++) {
        const fig_traits machine = {.size = sizeof machine,
                                    .compute_capability = 90,
                                    .sm_count = sm_count,
                                    .shared_bytes = 232448};
        assert_int_equal(fig_attention_family_short_refuses(&p, &machine) == NULL, sm_count >= 128);
    }
}

/* An SM has 1 KB more shared memory than its largest block, and reserves 1 KB for each block. */
static void two_blocks_of_4_warps_have_room_in_an_sm_and_no_third(void **state) {
    (void)state;
    static const int32_t head_dims[] = {64, 128, 96};
    const fig_traits hopper = {.size = sizeof hopper, .sm_count = 132, .shared_bytes = 232448};
    for (int32_t n = 0; n < 5; n++) {
        fig_attention_params p = sound_params();
        p.head_dim = head_dims[n / 2];
        if (n % 2) p.kv_dtype = FIG_E4M3;
        const uint32_t bytes = fig_attention_family_short_shared(&p, &hopper) + 1024;
        assert_in_range(2 * bytes, 1, 232448 + 1024);
        assert_true(3 * bytes > 232448 + 1024);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_rows_agree_with_float64),
        cmocka_unit_test(every_kernel_is_right_about_the_edges_of_its_turns),
        cmocka_unit_test(the_same_again_gives_the_same_bits),
        cmocka_unit_test(launches_that_cannot_apply_rope_are_refused),
        cmocka_unit_test(a_cluster_has_as_many_blocks_as_a_row_has_turns),
        cmocka_unit_test(clusters_of_16_need_a_machine_that_holds_them),
        cmocka_unit_test(two_blocks_of_4_warps_have_room_in_an_sm_and_no_third),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
