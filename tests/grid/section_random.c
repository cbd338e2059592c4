/* section_random.c: runs random attention cases that the peer's grids do not cover.
 *
 * They have every dtype, head_dim and group; rows of any length and in any order, and idle rows;
 * lengths one off a multiple of the tile, the page, the window and the bucket; pages with other
 * data after their tokens; and lengths that only the device knows. Invariant: a case depends only
 * on its index. */
#include "tests/grid/grid_attention.h"
#include "tests/grid/grid_sections.h"

static int32_t one_of(fig_random *random, const int32_t *values, int32_t count) {
    return values[fig_random_range(random, 0, count - 1)];
}
#define ONE_OF(random, ...)                                                                        \
    one_of((random), (const int32_t[]){__VA_ARGS__},                                               \
           (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

static void draw_form(grid_attention *form, fig_random *random) {
    form->dtype = (fig_dtype)ONE_OF(random, FIG_F16, FIG_BF16, FIG_F32);
    if (form->dtype != FIG_F32)
        form->kv_dtype = (fig_dtype)ONE_OF(random, 0, 0, FIG_E4M3, FIG_E5M2);
    form->page_size = ONE_OF(random, 0, 1, 2, 3, 5, 7, 16, 16, 32, 64, 100);
    form->kv_heads = ONE_OF(random, 1, 1, 2, 3, 4, 5, 8);
    form->group = fig_random_range(random, 1, 16);
    form->head_dim = ONE_OF(random, 64, 80, 96, 128, 256);
    form->layout = (fig_kv_layout)ONE_OF(random, FIG_NHD, FIG_HND);
    form->pool = form->page_size > 0 ? ONE_OF(random, GRID_APART, GRID_PAIRS, GRID_HALVES) : 0;
    form->packed = ONE_OF(random, 0, 1);
    form->row_tokens = ONE_OF(random, 1, 1, 1, 2, 3, 4, 5, 8, 11, 16);
    form->window = ONE_OF(random, 0, 0, 0, 1, 2, 15, 16, 17, 63, 64, 65, 128, 200);
    form->soft_cap = (float)ONE_OF(random, 0, 0, 0, 1, 30);
    form->sinks = ONE_OF(random, 0, 0, 1);
    form->alibi = ONE_OF(random, 0, 0, 1);
    form->device_lengths = ONE_OF(random, 0, 0, 1);
    form->deterministic = ONE_OF(random, 0, 0, 1);
    form->reorder = ONE_OF(random, 0, 1);
    form->uneven = ONE_OF(random, 0, 0, 1);
    if (form->kv_dtype != 0)
        form->scales = ONE_OF(random, GRID_UNSCALED, GRID_PER_TENSOR, GRID_PER_HEAD);
}

/* Draws 0, any length, or a length that differs by at most one from a multiple of some size. A
 * length other than 0 is at least the row's number of queries. */
static int32_t draw_length(const grid_attention *form, int32_t limit, fig_random *random) {
    const int32_t unit = ONE_OF(random, 16, 64, 128, 512, form->window, form->page_size, limit);
    int32_t length = fig_random_range(random, 1, limit);
    if (unit > 0 && fig_random_range(random, 0, 2) > 0)
        length = unit * fig_random_range(random, 1, (limit - 1) / unit + 1) +
                 fig_random_range(random, -1, 1);
    if (fig_random_range(random, 0, 9) == 0) return 0;
    if (length > limit) length = limit;
    return length < form->row_tokens ? form->row_tokens : length;
}

int64_t grid_run_random(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.step_count = 1};
    fig_random random = fig_random_seed(cursor->seed * 7919 + 1);
    draw_form(&form, &random);
    const int32_t limit = ONE_OF(&random, 16, 65, 128, 129, 300, 513, 1200, 2500);
    form.kv_limit = limit;
    form.rows = fig_random_range(&random, 0, 2) > 0 ? fig_random_range(&random, 1, 6)
                                                    : fig_random_range(&random, 1, 40);
    form.batch_limit = form.rows + ONE_OF(&random, 0, 0, 1, 3);
    form.step_count = ONE_OF(&random, 1, 1, 2, 3);
    for (int32_t step = 0; step < form.step_count; step++)
        for (int32_t row = 0; row < form.rows; row++)
            form.lengths[step][row] = draw_length(&form, limit, &random);
    form.seed = cursor->seed;
    if (report != NULL) grid_attention_run(&form, report);
    return grid_attention_work(&form);
}

/* In turn: lengths that fill a bucket, lengths with one token less in all, one row that is as long
 * as the limit while others are idle, and idle rows alone. */
int64_t grid_run_bucket_edges(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.kv_heads = 2, .group = 4, .head_dim = 64, .page_size = 16};
    form.dtype = (fig_dtype)GRID_PICK(cursor, FIG_F16, FIG_BF16, FIG_F32);
    form.rows = GRID_PICK(cursor, 1, 2, 3, 5, 8, 17);
    form.device_lengths = GRID_PICK(cursor, 0, 1);
    form.deterministic = GRID_PICK(cursor, 0, 1);
    const int32_t cap = GRID_PICK(cursor, 63, 64, 65, 127, 128, 129, 511, 512, 513);
    form.step_count = 4;
    form.kv_limit = cap;
    grid_attention_uniform(&form, 0, cap);
    grid_attention_uniform(&form, 1, cap);
    form.lengths[1][0] = cap - 1;
    grid_attention_uniform(&form, 2, 0);
    form.lengths[2][form.rows - 1] = cap;
    grid_attention_uniform(&form, 3, 0);
    form.seed = cursor->seed;
    if (report != NULL) grid_attention_run(&form, report);
    return grid_attention_work(&form);
}
