/* test_grids.c: tests the grid and the block that each family gives its launches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/table/reference_kernels.h"

/* From 512 tokens on, a block of rope takes four tokens, and a block of rms_norm has half as many
 * threads. */
static void blocks_of_large_launches_take_four_tokens(void **state) {
    (void)state;
    fig_launch_shape shape;
    fig_rope_params rope = {.q_heads = 32, .k_heads = 1, .head_dim = 128, .dtype = FIG_BF16};
    fig_rms_norm_params rms_norm = {.width = 4096, .dtype = FIG_BF16};
    for (int32_t tokens = 510; tokens <= 514; tokens++) {
        rope.rows = rms_norm.rows = (fig_rows){tokens, 1, 0, 0};
        fig_rope_shape(&rope, &shape);
        assert_int_equal(shape.grid[0], 3 * (tokens < 512 ? tokens : (tokens + 3) / 4));
        fig_rms_norm_shape(&rms_norm, &shape);
        assert_int_equal(shape.grid[0], tokens);
        assert_int_equal(shape.block[0], tokens < 512 ? 256 : 128);
    }
}

/* In a packed program a block handles several query tokens in turn. Otherwise each row has blocks
 * of its own. */
static void packed_launches_have_blocks_for_512_tokens(void **state) {
    (void)state;
    fig_launch_shape shape;
    char entry[FIG_ENTRY_BYTES];
    fig_gated_params gated = {.width = 5000, .dtype = FIG_BF16};
    fig_append_kv_params append = {0};
    fig_rms_norm_params rms_norm = {.width = 4096, .dtype = FIG_BF16};
    fig_decode_attention_params decode = {
        .q_heads = 32, .kv_heads = 1, .head_dim = 128, .dtype = FIG_BF16};
    for (uint32_t tokens = 510; tokens <= 514; tokens++) {
        for (uint32_t queries_offset = 0; queries_offset <= 64; queries_offset += 64) {
            const uint32_t due = queries_offset != 0 && tokens > 512 ? 512 : tokens;
            const fig_rows rows = {(int32_t)tokens, 1, queries_offset, 0};
            gated.rows = append.rows = rms_norm.rows = decode.rows = rows;
            fig_gated_shape(&gated, &shape);
            assert_int_equal(shape.grid[0], 3 * due);
            fig_append_kv_shape(&append, &shape);
            assert_int_equal(shape.grid[0], due);
            fig_rms_norm_shape(&rms_norm, &shape);
            assert_int_equal(shape.grid[0], due);
            fig_decode_attention_still_shape(&decode, &shape);
            assert_int_equal(shape.grid[0], due);
            fig_gated_entry(&gated, entry);
            assert_string_equal(entry, due < tokens ? "fig_kernel_gated_long" : "fig_kernel_gated");
            fig_append_kv_entry(&append, entry);
            assert_string_equal(entry, queries_offset != 0 ? "fig_kernel_append_kv_packed"
                                                           : "fig_kernel_append_kv");
        }
    }
}

static const uint32_t grids[FIG_OP_KERNEL_COUNT] = {
    [FIG_OP_FETCH] = 1,
    [FIG_OP_GATED] = 21 * 3,
    [FIG_OP_ROPE] = 21 * 3,
    [FIG_OP_APPEND_KV] = 21,
    [FIG_OP_ATTENTION] = 13,
    [FIG_OP_PLAN] = 1,
    [FIG_OP_RMS_NORM] = 21,
    [FIG_OP_MERGE_STATES] = 21,
    [FIG_OP_LOOK_AHEAD] = 1,
    [FIG_OP_CEILING] = 17,
    [FIG_OP_DECODE_ATTENTION] = 21 * 3,
    [FIG_OP_ALL_REDUCE] = 136,
    [FIG_OP_ALL_GATHER] = 136,
    [FIG_OP_WHOLE_ATTENTION] = 96,
    [FIG_OP_LATENT_ATTENTION] = 13,
    [FIG_OP_LATENT_DECODE] = 21 * 3,
    [FIG_OP_SCORED_ATTENTION] = 13,
    [FIG_OP_PROMPT_ATTENTION] = 11,
    [FIG_OP_SCORED_PROMPT] = 11,
};

static uint32_t grid_of(int op, int family) {
    if (op == FIG_OP_LATENT_ATTENTION && family == FIG_FAMILY_LATENT_ATTENTION_PAIR)
        return 2 * grids[op];
    if (op == FIG_OP_DECODE_ATTENTION && family == FIG_FAMILY_DECODE_ATTENTION_STILL) return 21;
    if (op == FIG_OP_DECODE_ATTENTION && family == FIG_FAMILY_DECODE_ATTENTION_LONG) return 11 * 3;
    return grids[op];
}

static void grids_follow_row_limit_or_workers_and_blocks_are_whole_warps(void **state) {
    (void)state;
    fig_rows rows = {.row_limit = 21, .multiple = 3};
    fig_gated_params gated = {.rows = rows, .width = 5000, .dtype = FIG_BF16};
    fig_rope_params rope = {
        .rows = rows, .q_heads = 32, .k_heads = 1, .head_dim = 128, .dtype = FIG_BF16};
    fig_append_kv_params append = {.rows = rows};
    fig_rms_norm_params rms_norm = {.rows = rows, .width = 5000, .dtype = FIG_BF16};
    fig_merge_states_params merge = {.rows = rows};
    fig_plan_params plan = {.kv_limit = 5};
    fig_attention_params attention = {
        .split = {.row_limit = 7, .workers = 13, .row_tokens = 1},
        .q_heads = 4,
        .kv_heads = 2,
        .head_dim = 64,
        .heads_per_worker = 1,
        .page_size = 16,
        .dtype = FIG_F16,
        .kv_dtype = FIG_F16,
    };
    fig_fetch_params fetch = {0};
    fig_look_ahead_params look_ahead = {0};
    fig_ceiling_params ceiling = {.blocks = 17};
    fig_decode_attention_params decode_attention = {
        .rows = rows, .q_heads = 32, .kv_heads = 1, .head_dim = 128, .dtype = FIG_BF16};
    fig_all_reduce_params all_reduce = {.rows = rows, .width = 4096, .dtype = FIG_BF16};
    fig_all_gather_params all_gather = {.rows = rows, .width = 8, .dtype = FIG_BF16};
    fig_whole_attention_params whole = {.rows = 3, .q_heads = 16, .kv_heads = 2, .head_dim = 64};
    fig_prompt_attention_params prompt = {.workers = 11};
    fig_latent_attention_params latent = {.split = {.workers = 13}};
    fig_latent_decode_params latent_decode = {.rows = rows, .q_heads = 32};
    const void *params[FIG_OP_KERNEL_COUNT] = {[FIG_OP_FETCH] = &fetch,
                                               [FIG_OP_GATED] = &gated,
                                               [FIG_OP_ROPE] = &rope,
                                               [FIG_OP_APPEND_KV] = &append,
                                               [FIG_OP_ATTENTION] = &attention,
                                               [FIG_OP_PLAN] = &plan,
                                               [FIG_OP_RMS_NORM] = &rms_norm,
                                               [FIG_OP_MERGE_STATES] = &merge,
                                               [FIG_OP_LOOK_AHEAD] = &look_ahead,
                                               [FIG_OP_CEILING] = &ceiling,
                                               [FIG_OP_DECODE_ATTENTION] = &decode_attention,
                                               [FIG_OP_ALL_REDUCE] = &all_reduce,
                                               [FIG_OP_ALL_GATHER] = &all_gather,
                                               [FIG_OP_WHOLE_ATTENTION] = &whole,
                                               [FIG_OP_PROMPT_ATTENTION] = &prompt,
                                               [FIG_OP_LATENT_ATTENTION] = &latent,
                                               [FIG_OP_LATENT_DECODE] = &latent_decode,
                                               [FIG_OP_SCORED_ATTENTION] = &attention,
                                               [FIG_OP_SCORED_PROMPT] = &prompt};
    for (int op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        for (int i = 0; i < fig_kernel_table[op].family_count; i++) {
            fig_launch_shape shape;
            memset(&shape, 0xff, sizeof shape);
            fig_kernel_table[op].families[i].shape(params[op], &shape);
            assert_int_equal(shape.grid[0], grid_of(op, i));
            assert_int_equal(shape.grid[1], 1);
            assert_int_equal(shape.grid[2], 1);
            assert_true(shape.block[0] >= 32 && shape.block[0] <= 1024 && shape.block[0] % 32 == 0);
            assert_int_equal(shape.block[1], 1);
            assert_int_equal(shape.block[2], 1);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_large_launches_take_four_tokens),
        cmocka_unit_test(packed_launches_have_blocks_for_512_tokens),
        cmocka_unit_test(grids_follow_row_limit_or_workers_and_blocks_are_whole_warps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
