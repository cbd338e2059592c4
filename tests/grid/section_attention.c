/* section_attention.c: runs the grids of the peer's decode attention tests, in every dtype.
 *
 * The lists are those of the peer's tests, except that bf16 is added to the peer's f16.
 * section_random.c has cases that only we test. Invariant: choices from lists are made in a fixed
 * order, so a case keeps its index. */
#include "tests/grid/grid_sections.h"

#include <string.h>

#include "tests/grid/grid_attention.h"

enum { SPARSE_ROWS = 256 };

static int64_t finish(grid_attention *form, const grid_cursor *cursor, grid_report *report) {
    form->seed = cursor->seed;
    if (report != NULL) grid_attention_run(form, report);
    return grid_attention_work(form);
}

static fig_dtype pick_dtype(grid_cursor *cursor) {
    return (fig_dtype)GRID_PICK(cursor, FIG_F16, FIG_BF16);
}

int64_t grid_run_batch_decode(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.kv_heads = 4};
    form.dtype = pick_dtype(cursor);
    form.kv_dtype = (fig_dtype)GRID_PICK(cursor, 0, FIG_E4M3);
    form.page_size = GRID_PICK(cursor, 1, 8, 16);
    form.group = GRID_PICK(cursor, 1, 8);
    form.head_dim = GRID_PICK(cursor, 128, 256);
    form.rows = GRID_PICK(cursor, 12, 17, 128);
    grid_attention_uniform(&form, 0, GRID_PICK(cursor, 54, 97, 512, 2048, 16384));
    return finish(&form, cursor, report);
}

/* Runs the same cases with rows of various lengths up to the given one. Every fifth row is idle. */
int64_t grid_run_ragged_decode(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.kv_heads = 4, .reorder = 1};
    form.dtype = pick_dtype(cursor);
    form.kv_dtype = (fig_dtype)GRID_PICK(cursor, 0, FIG_E4M3, FIG_E5M2);
    form.page_size = GRID_PICK(cursor, 0, 1, 8, 16);
    form.group = GRID_PICK(cursor, 1, 8);
    form.head_dim = GRID_PICK(cursor, 128, 256);
    form.rows = GRID_PICK(cursor, 12, 17, 128);
    int32_t longest = GRID_PICK(cursor, 54, 97, 512);
    fig_random random = fig_random_seed((uint64_t)longest);
    for (int32_t row = 0; row < form.rows; row++)
        form.lengths[0][row] = row % 5 == 2 ? 0 : fig_random_range(&random, 1, longest);
    form.kv_limit = longest;
    return finish(&form, cursor, report);
}

/* Replays one exec with several plans: one token, then one, two and three pages, then the whole
 * length, then one token again. */
int64_t grid_run_replan(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.kv_heads = 4, .step_count = 6};
    form.dtype = pick_dtype(cursor);
    form.kv_dtype = (fig_dtype)GRID_PICK(cursor, 0, FIG_E4M3);
    form.page_size = GRID_PICK(cursor, 1, 8, 16);
    form.group = GRID_PICK(cursor, 1, 8);
    form.head_dim = GRID_PICK(cursor, 128, 256);
    form.rows = GRID_PICK(cursor, 12, 17, 128);
    int32_t length = GRID_PICK(cursor, 54, 2048, 16384);
    for (int32_t step = 0; step < 4; step++)
        grid_attention_uniform(&form, step, step == 0 ? 1 : form.page_size * step);
    grid_attention_uniform(&form, 4, length);
    grid_attention_uniform(&form, 5, 1);
    return finish(&form, cursor, report);
}

static const int32_t tightest[] = {0, 128, 64, 100};

int64_t grid_run_multi_token(grid_cursor *cursor, grid_report *report) {
    static const int32_t mixed[] = {33, 17, 65, 129};
    grid_attention form = {.head_dim = 128, .page_size = 16, .step_count = 3};
    form.dtype = pick_dtype(cursor);
    form.rows = GRID_PICK(cursor, 4, 8);
    form.row_tokens = GRID_PICK(cursor, 2, 3);
    form.kv_heads = GRID_PICK(cursor, 2, 8);
    form.group = GRID_PICK(cursor, 4, 8);
    grid_attention_uniform(&form, 0, 129);
    for (int32_t row = 0; row < form.rows; row++) {
        form.lengths[1][row] = mixed[row % 4];
        form.lengths[2][row] = row % 4 == 0 ? form.row_tokens : tightest[row % 4];
    }
    return finish(&form, cursor, report);
}

int64_t grid_run_single(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.rows = 1};
    form.dtype = pick_dtype(cursor);
    form.layout = (fig_kv_layout)GRID_PICK(cursor, FIG_NHD, FIG_HND);
    form.kv_heads = GRID_PICK(cursor, 4, 8);
    form.group = GRID_PICK(cursor, 1, 4, 8);
    form.head_dim = GRID_PICK(cursor, 64, 128, 256);
    grid_attention_uniform(&form, 0, GRID_PICK(cursor, 54, 128, 999, 32789));
    return finish(&form, cursor, report);
}

int64_t grid_run_layouts(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.kv_heads = 4};
    form.dtype = pick_dtype(cursor);
    form.layout = (fig_kv_layout)GRID_PICK(cursor, FIG_NHD, FIG_HND);
    form.pool = GRID_PICK(cursor, GRID_APART, GRID_PAIRS, GRID_HALVES);
    form.page_size = GRID_PICK(cursor, 1, 8, 16);
    form.group = GRID_PICK(cursor, 1, 4, 8);
    form.head_dim = GRID_PICK(cursor, 128, 256);
    form.rows = GRID_PICK(cursor, 12, 17);
    grid_attention_uniform(&form, 0, GRID_PICK(cursor, 54, 97, 512));
    return finish(&form, cursor, report);
}

/* A row's bits must be the same whatever rows are beside it. */
int64_t grid_run_invariance(grid_cursor *cursor, grid_report *report) {
    enum { FIRST = 4, BITS = FIRST * 32 * 256 * 2 };
    static _Thread_local uint8_t alone[BITS], among[BITS];
    grid_attention form = {.kv_heads = 4, .deterministic = 1, .pooled = 1, .batch_limit = 12};
    form.dtype = pick_dtype(cursor);
    form.layout = (fig_kv_layout)GRID_PICK(cursor, FIG_NHD, FIG_HND);
    form.page_size = GRID_PICK(cursor, 1, 8, 16);
    form.group = GRID_PICK(cursor, 1, 4, 8);
    form.head_dim = GRID_PICK(cursor, 128, 256);
    form.rows = GRID_PICK(cursor, 5, 12);
    const int32_t length = GRID_PICK(cursor, 4096, 5000, 8192);
    form.kv_limit = length;
    form.seed = 7;
    grid_attention_uniform(&form, 0, length);
    int64_t work = grid_attention_work(&form);
    if (report == NULL) return 2 * work;
    size_t bytes = (size_t)(FIRST * form.kv_heads * form.group * form.head_dim * 2);
    for (int32_t row = FIRST; row < form.rows; row++)
        form.lengths[0][row] = 1 + row * 401 % length;
    grid_attention_bits(&form, report, FIRST, among);
    form.rows = FIRST;
    grid_attention_bits(&form, report, FIRST, alone);
    for (size_t i = 0; i < bytes && !grid_failed(report); i++)
        if (alone[i] != among[i])
            grid_fail(report, "byte %zu is 0x%02x alone and 0x%02x among others", i, alone[i],
                      among[i]);
    grid_measured(report, "attention, bits of deterministic", 0);
    return 2 * work;
}

int64_t grid_run_fp8_single(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.kv_heads = 4, .head_dim = 128, .rows = 1};
    form.dtype = pick_dtype(cursor);
    form.kv_dtype = (fig_dtype)GRID_PICK(cursor, FIG_E4M3, FIG_E5M2);
    form.scales = GRID_PICK(cursor, GRID_PER_TENSOR, GRID_PER_HEAD);
    form.group = GRID_PICK(cursor, 1, 8);
    grid_attention_uniform(&form, 0, GRID_PICK(cursor, 7, 19, 39, 1170, 39275));
    return finish(&form, cursor, report);
}

int64_t grid_run_fp8_batch(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.kv_heads = 4, .pool = GRID_PAIRS};
    form.dtype = pick_dtype(cursor);
    form.kv_dtype = (fig_dtype)GRID_PICK(cursor, FIG_E4M3, FIG_E5M2);
    form.scales = GRID_PICK(cursor, GRID_UNSCALED, GRID_PER_TENSOR, GRID_PER_HEAD);
    form.layout = (fig_kv_layout)GRID_PICK(cursor, FIG_NHD, FIG_HND);
    form.page_size = GRID_PICK(cursor, 1, 8, 16);
    form.group = GRID_PICK(cursor, 1, 8);
    form.head_dim = GRID_PICK(cursor, 128, 256);
    form.rows = GRID_PICK(cursor, 12, 17);
    grid_attention_uniform(&form, 0, GRID_PICK(cursor, 54, 97));
    return finish(&form, cursor, report);
}

/* The peer's window_left is the number of tokens before the query's own. */
int64_t grid_run_window_single(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.rows = 1};
    form.dtype = pick_dtype(cursor);
    form.window = 1 + GRID_PICK(cursor, 3, 13, 23, 37, 43);
    form.kv_heads = GRID_PICK(cursor, 1, 4);
    form.group = GRID_PICK(cursor, 4, 8) / form.kv_heads;
    form.head_dim = GRID_PICK(cursor, 64, 128, 256);
    grid_attention_uniform(&form, 0, GRID_PICK(cursor, 1, 3, 19, 99, 199, 1177, 1999));
    return finish(&form, cursor, report);
}

int64_t grid_run_window_batch(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {0};
    form.dtype = pick_dtype(cursor);
    form.window = 1 + GRID_PICK(cursor, 33, 533);
    form.kv_heads = GRID_PICK(cursor, 1, 4);
    form.group = GRID_PICK(cursor, 4, 8) / form.kv_heads;
    form.head_dim = GRID_PICK(cursor, 64, 128, 256);
    form.page_size = GRID_PICK(cursor, 1, 16);
    form.rows = GRID_PICK(cursor, 1, 3, 13, 32);
    grid_attention_uniform(&form, 0, GRID_PICK(cursor, 1, 3, 99, 199, 1999));
    return finish(&form, cursor, report);
}

int64_t grid_run_soft_cap(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.rows = 1, .group = 1};
    form.dtype = pick_dtype(cursor);
    form.soft_cap = (float)GRID_PICK(cursor, 1, 30, 50);
    form.kv_heads = GRID_PICK(cursor, 4, 8, 32);
    form.head_dim = GRID_PICK(cursor, 128, 256);
    grid_attention_uniform(&form, 0, GRID_PICK(cursor, 1, 9, 81, 729, 33001));
    return finish(&form, cursor, report);
}

int64_t grid_run_alibi(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.rows = 1, .group = 1, .alibi = 1};
    form.dtype = pick_dtype(cursor);
    form.kv_heads = GRID_PICK(cursor, 4, 8, 32);
    form.head_dim = GRID_PICK(cursor, 128, 256);
    grid_attention_uniform(&form, 0, GRID_PICK(cursor, 1, 9, 81, 729));
    return finish(&form, cursor, report);
}

/* The peer skips 4 q heads over 8 kv heads. Here, 8 q heads over 8 kv heads take that case's
 * place. */
int64_t grid_run_strided(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.packed = 1};
    form.dtype = pick_dtype(cursor);
    form.pool = GRID_PICK(cursor, GRID_APART, GRID_PAIRS);
    form.page_size = GRID_PICK(cursor, 1, 5);
    form.kv_heads = GRID_PICK(cursor, 1, 4, 8);
    const int32_t q_heads = GRID_PICK(cursor, 4, 8);
    form.group = q_heads < form.kv_heads ? 1 : q_heads / form.kv_heads;
    form.head_dim = GRID_PICK(cursor, 64, 128, 256);
    form.rows = GRID_PICK(cursor, 1, 19, 99);
    grid_attention_uniform(&form, 0, GRID_PICK(cursor, 1, 26));
    return finish(&form, cursor, report);
}

int64_t grid_run_tuples(grid_cursor *cursor, grid_report *report) {
    static const int32_t tuples[9][6] = {
        {4, 4, 64, 4, 2, 128},   {4, 2, 16, 2, 4, 128},  {4, 3, 32, 2, 6, 128},
        {4, 1, 16, 2, 1, 128},   {4, 1, 32, 2, 5, 128},  {128, 1, 64, 2, 6, 128},
        {256, 1, 64, 4, 8, 128}, {4, 1, 32, 2, 16, 128}, {4, 4, 32, 2, 16, 128}};
    grid_attention form = {.pool = GRID_PAIRS};
    const int32_t *tuple = tuples[GRID_PICK(cursor, 0, 1, 2, 3, 4, 5, 6, 7, 8)];
    form.dtype = pick_dtype(cursor);
    form.kv_dtype = (fig_dtype)GRID_PICK(cursor, 0, FIG_E4M3);
    form.window = GRID_PICK(cursor, 0, 128);
    form.sinks = GRID_PICK(cursor, 0, 1);
    form.layout = (fig_kv_layout)GRID_PICK(cursor, FIG_NHD, FIG_HND);
    form.scales = form.kv_dtype != 0 ? GRID_PER_TENSOR : GRID_UNSCALED;
    form.rows = tuple[0], form.row_tokens = tuple[1], form.page_size = tuple[2];
    form.kv_heads = tuple[3], form.group = tuple[4], form.head_dim = tuple[5];
    fig_random random = fig_random_seed((uint64_t)form.rows);
    for (int32_t row = 0; row < form.rows; row++)
        form.lengths[0][row] = form.row_tokens + fig_random_range(&random, 0, 110);
    form.lengths[0][form.rows - 1] = form.row_tokens + 110;
    return finish(&form, cursor, report);
}

/* Takes one of the peer's mixtures of lengths. Rows have one query each where the peer's have
 * several. */
static void mix_lengths(grid_attention *form, int32_t mix) {
    static const struct {
        int32_t count, length, more, longer;
    } mixes[9] = {{1, 146, 0, 0},       {1, 67, 0, 0},      {1, 8190, 0, 0},
                  {77, 2048, 0, 0},     {2, 4099, 0, 0},    {264, 600, 128, 5000},
                  {100, 1024, 8, 8192}, {99, 766, 1, 1024}, {1, 2, 1, 1}};
    if (mix < 9) {
        form->rows = mixes[mix].count + mixes[mix].more;
        for (int32_t row = 0; row < form->rows; row++)
            form->lengths[0][row] = row < mixes[mix].count ? mixes[mix].length : mixes[mix].longer;
        return;
    }
    fig_random random = fig_random_seed(42);
    form->rows = SPARSE_ROWS;
    for (int32_t row = 0; row < SPARSE_ROWS; row++) {
        int32_t length = fig_random_range(&random, 1000, 10999);
        form->lengths[0][row] = row % 16 == 0 ? length : length / 20;
    }
}

int64_t grid_run_mixes(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.pool = GRID_PAIRS};
    form.dtype = pick_dtype(cursor);
    form.layout = (fig_kv_layout)GRID_PICK(cursor, FIG_NHD, FIG_HND);
    form.soft_cap = (float)GRID_PICK(cursor, 0, 50);
    form.page_size = GRID_PICK(cursor, 1, 8, 16);
    form.kv_heads = GRID_PICK(cursor, 1, 4);
    form.group = GRID_PICK(cursor, 1, 4, 7, 8);
    form.head_dim = GRID_PICK(cursor, 64, 128, 256);
    mix_lengths(&form, GRID_PICK(cursor, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    return finish(&form, cursor, report);
}

/* Two of the peer's mixtures have rows with several queries: 5000 tokens with 3 queries, and 766
 * with 2. */
int64_t grid_run_mixed_queries(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.pool = GRID_PAIRS};
    form.dtype = pick_dtype(cursor);
    form.layout = (fig_kv_layout)GRID_PICK(cursor, FIG_NHD, FIG_HND);
    form.soft_cap = (float)GRID_PICK(cursor, 0, 50);
    form.page_size = GRID_PICK(cursor, 1, 8, 16);
    form.kv_heads = GRID_PICK(cursor, 1, 4);
    form.group = GRID_PICK(cursor, 1, 4, 7, 8);
    form.head_dim = GRID_PICK(cursor, 64, 128, 256);
    form.row_tokens = GRID_PICK(cursor, 2, 3);
    form.rows = form.row_tokens == 2 ? 99 : 32;
    grid_attention_uniform(&form, 0, form.row_tokens == 2 ? 766 : 5000);
    return finish(&form, cursor, report);
}

/* Logits are up to 55000 in magnitude, where exp overflows, so the greatest logit must be
 * subtracted first. */
int64_t grid_run_extreme_logits(grid_cursor *cursor, grid_report *report) {
    grid_attention form = {.kv_heads = 2, .page_size = 16};
    form.dtype = pick_dtype(cursor);
    form.logit_offset = (float)GRID_PICK(cursor, -55000, -20000, 20000);
    form.group = GRID_PICK(cursor, 1, 4);
    form.head_dim = GRID_PICK(cursor, 64, 128, 256);
    form.rows = GRID_PICK(cursor, 1, 5);
    grid_attention_uniform(&form, 0, GRID_PICK(cursor, 1, 17, 300));
    return finish(&form, cursor, report);
}
