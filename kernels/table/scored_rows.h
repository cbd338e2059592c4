/* scored_rows.h: the kernel table's rows of attention with a score, for rows that decode and for
 * chunks.
 *
 * Only table.c reads this file. Invariant: the params begin with those of the same attention
 * without a score, and their fields are filled as in an attention node. */
#ifndef FIG_KERNELS_SCORED_ROWS_H
#define FIG_KERNELS_SCORED_ROWS_H

#include "kernels/table/attention_rows.h"

/* Expands to item(0) to item(7), one for each array of a score. */
#define EACH_ARRAY(item) item(0), item(1), item(2), item(3), item(4), item(5), item(6), item(7)
static_assert(FIG_SCORE_ARRAY_LIMIT == 8, "EACH_ARRAY");

#define ARRAY_OPERAND(i) [FIG_SCORED_ARRAY + i] = {"array" #i, FIG_ACCESS_READ, 1}
static const fig_operand scored_attention_operands[] = {ATTENTION_OPERANDS,
                                                        EACH_ARRAY(ARRAY_OPERAND)};

#define PARAMS fig_attention_params
#define ATTRIBUTES fig_attention_attributes
#define ARRAY_FIELD(i)                                                                             \
    {                                                                                              \
        "array" #i, offsetof(fig_scored_attention_params, arrays[i]), sizeof(const void *),        \
            FIG_FIELD_ADDRESS, FIG_TYPE_ADDRESS, FIG_SCORED_ARRAY + i, 0, 1                        \
    }
#define PROMPT_ARRAY_FIELD(i)                                                                      \
    {                                                                                              \
        "array" #i, offsetof(fig_scored_prompt_params, arrays[i]), sizeof(const void *),           \
            FIG_FIELD_ADDRESS, FIG_TYPE_ADDRESS, FIG_SCORED_ARRAY + i, 0, 1                        \
    }
static const fig_field scored_attention_fields[] = {
    ATTENTION_FIELDS,
    {"turn", offsetof(fig_attention_params, turn), sizeof(fig_attention_turn), FIG_FIELD_ZERO,
     FIG_TYPE_U32, 0, 0, 1},
    {"slots", offsetof(fig_attention_params, slots), sizeof(fig_attention_slots), FIG_FIELD_ZERO,
     FIG_TYPE_U32, 0, 0, 1},
    EACH_ARRAY(ARRAY_FIELD),
    {"score", offsetof(fig_scored_attention_params, score), sizeof(fig_score_code), FIG_FIELD_SCORE,
     FIG_TYPE_SCORE, 0, offsetof(fig_scored_attributes, score), 1}};
#undef ATTRIBUTES
#undef PARAMS

static const fig_split_row scored_attention_split = {
    .q = FIG_ATTENTION_Q,
    .k_cache = FIG_ATTENTION_K_CACHE,
    .v_cache = FIG_ATTENTION_V_CACHE,
    .table = FIG_ATTENTION_TABLE,
    .out = FIG_ATTENTION_OUT,
    .window = offsetof(fig_scored_attributes, attention.window)};

#define SCORED_ATTENTION_ROW                                                                       \
    OPERANDS(scored_attention_operands, FIG_ATTENTION_OUT, FIG_ATTENTION_LSE),                     \
        FIELDS(scored_attention_fields),                                                           \
        ATTRIBUTE_BYTES(fig_scored_attributes, sizeof(fig_scored_attributes)),                     \
        .split = &scored_attention_split, .has_score = 1, .beside = FIG_OP_SCORED_PROMPT
#define SCORED_ATTENTION_BULK                                                                      \
    .refuses = fig_scored_family_bulk_refuses, .shape = fig_attention_family_bulk_shape,           \
    .shared = fig_attention_family_bulk_shared, .entry = fig_scored_family_bulk_entry,             \
    .map = fig_attention_family_bulk_map, .compiles = 1
#define SCORED_ATTENTION_COPY                                                                      \
    .refuses = fig_scored_family_copy_refuses, .shape = fig_attention_family_copy_shape,           \
    .shared = fig_attention_family_copy_shared, .entry = fig_scored_family_copy_entry,             \
    .compiles = 1
#define SCORED_ATTENTION_PLAIN .shape = fig_attention_shape

/* ---- scored_prompt: launched beside scored_attention in programs whose rows may be chunks */

#define PARAMS fig_prompt_attention_params
#define ATTRIBUTES fig_attention_attributes
static const fig_field scored_prompt_fields[] = {
    PROMPT_ATTENTION_FIELDS,
    EACH_ARRAY(PROMPT_ARRAY_FIELD),
    {"score", offsetof(fig_scored_prompt_params, score), sizeof(fig_score_code), FIG_FIELD_SCORE,
     FIG_TYPE_SCORE, 0, offsetof(fig_scored_attributes, score), 1}};
#undef ATTRIBUTES
#undef PARAMS

#define SCORED_PROMPT_ROW                                                                          \
    OPERANDS(scored_attention_operands, FIG_ATTENTION_OUT, FIG_ATTENTION_LSE),                     \
        FIELDS(scored_prompt_fields),                                                              \
        ATTRIBUTE_BYTES(fig_scored_attributes, sizeof(fig_scored_attributes)),                     \
        .split = &scored_attention_split, .has_score = 1
#define SCORED_PROMPT_PLAIN                                                                        \
    .shape = fig_prompt_attention_shape, .entry = fig_prompt_attention_scored_entry

#endif
