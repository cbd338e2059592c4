/* table.c: the kernel table.
 *
 * Owns which families of kernels may serve an operation and in which order they are asked; leaves
 * operands and fields to rows.h. Invariant: the last family of a row serves every launch. */
#include "kernels/table.h"

#include "kernels/rows.h"
#include "kernels/twins.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define OPERANDS(array) .operands = array, .operand_count = COUNT(array)
#define FIELDS(array) .fields = array, .field_count = COUNT(array)
#define FAMILIES(array) .families = array, .family_count = COUNT(array)

/* ---- The families, the most demanding first */

static const fig_family fetch_families[] = {{.name = "general", .shape = fig_fetch_shape}};
static const fig_family gated_families[] = {{.name = "general", .shape = fig_gated_shape}};
static const fig_family rope_families[] = {{.name = "general", .shape = fig_rope_shape}};
static const fig_family append_kv_families[] = {{.name = "general", .shape = fig_append_kv_shape}};
static const fig_family attention_families[] = {
    {.name = "short_turn",
     .refuses = fig_attention_family_short_turn_refuses,
     .shape = fig_attention_family_short_shape,
     .shared = fig_attention_family_short_shared,
     .entry = fig_attention_family_short_turn_entry,
     .finish = fig_attention_family_turn_finish,
     .does_all = 1},
    {.name = "turn",
     .refuses = fig_attention_family_turn_refuses,
     .shape = fig_attention_family_bulk_shape,
     .shared = fig_attention_family_turn_shared,
     .entry = fig_attention_family_turn_entry,
     .map = fig_attention_family_bulk_map,
     .finish = fig_attention_family_turn_finish,
     .does_all = 1},
    {.name = "short",
     .refuses = fig_attention_family_short_refuses,
     .shape = fig_attention_family_short_shape,
     .shared = fig_attention_family_short_shared,
     .entry = fig_attention_family_short_entry},
    {.name = "bulk",
     .refuses = fig_attention_family_bulk_refuses,
     .shape = fig_attention_family_bulk_shape,
     .shared = fig_attention_family_bulk_shared,
     .entry = fig_attention_family_bulk_entry,
     .map = fig_attention_family_bulk_map},
    {.name = "copy",
     .refuses = fig_attention_family_copy_refuses,
     .shape = fig_attention_family_copy_shape,
     .shared = fig_attention_family_copy_shared,
     .entry = fig_attention_family_copy_entry},
    {.name = "scalar", .shape = fig_attention_shape},
};
static const fig_family planning_families[] = {{.name = "general", .shape = fig_planning_shape}};
static const fig_family rms_norm_families[] = {{.name = "general", .shape = fig_rms_norm_shape}};
static const fig_family merge_states_families[] = {
    {.name = "general", .shape = fig_merge_states_shape}};
static const fig_family look_ahead_families[] = {
    {.name = "general", .shape = fig_look_ahead_shape}};
static const fig_family ceiling_families[] = {{.name = "general", .shape = fig_ceiling_shape}};
static const fig_family decode_attention_families[] = {
    {.name = "general", .shape = fig_decode_attention_shape}};

static const fig_family whole_attention_families[] = {
    {.name = "general", .shape = fig_whole_attention_shape, .entry = fig_whole_attention_entry}};
static const fig_family all_reduce_families[] = {
    {.name = "nccl",
     .refuses = fig_all_reduce_nccl_refuses,
     .shape = fig_all_reduce_shape,
     .entry = fig_all_reduce_nccl_entry,
     .is_captured = 1},
    {.name = "two_shot",
     .refuses = fig_all_reduce_two_shot_refuses,
     .shape = fig_all_reduce_shape,
     .entry = fig_all_reduce_entry},
    {.name = "one_shot", .shape = fig_all_reduce_shape, .entry = fig_all_reduce_entry}};
static const fig_family all_gather_families[] = {
    {.name = "nccl",
     .refuses = fig_all_gather_nccl_refuses,
     .shape = fig_all_gather_shape,
     .entry = fig_all_gather_nccl_entry,
     .is_captured = 1},
    {.name = "one_shot", .shape = fig_all_gather_shape}};

/* ---- The table */

const fig_kernel fig_kernel_table[FIG_OP_KERNEL_COUNT] = {
    [FIG_OP_FETCH] = {.name = "fetch",
                      FIELDS(fetch_fields),
                      .params_bytes = sizeof(fig_fetch_params),
                      FAMILIES(fetch_families),
                      .twin = fig_fetch_twin},
    [FIG_OP_GATED] = {.name = "gated",
                      OPERANDS(gated_operands),
                      FIELDS(gated_fields),
                      .params_bytes = sizeof(fig_gated_params),
                      .attribute_bytes = sizeof(fig_gated_attributes),
                      FAMILIES(gated_families),
                      .twin = fig_gated_twin},
    [FIG_OP_ROPE] = {.name = "rope",
                     OPERANDS(rope_operands),
                     FIELDS(rope_fields),
                     .params_bytes = sizeof(fig_rope_params),
                     .attribute_bytes = sizeof(fig_rope_node_attributes),
                     .brief_bytes = sizeof(fig_rope_attributes),
                     FAMILIES(rope_families),
                     .twin = fig_rope_twin},
    [FIG_OP_APPEND_KV] = {.name = "append_kv",
                          OPERANDS(append_kv_operands),
                          FIELDS(append_kv_fields),
                          .params_bytes = sizeof(fig_append_kv_params),
                          FAMILIES(append_kv_families),
                          .twin = fig_append_kv_twin},
    [FIG_OP_ATTENTION] = {.name = "attention",
                          OPERANDS(attention_operands),
                          FIELDS(attention_fields),
                          .params_bytes = sizeof(fig_attention_params),
                          .attribute_bytes = sizeof(fig_attention_attributes),
                          .split = 1,
                          FAMILIES(attention_families),
                          .twin = fig_attention_twin},
    [FIG_OP_PLAN] = {.name = "plan",
                     OPERANDS(plan_operands),
                     FIELDS(plan_fields),
                     .params_bytes = sizeof(fig_plan_params),
                     FAMILIES(planning_families),
                     .twin = fig_planning_twin},
    [FIG_OP_RMS_NORM] = {.name = "rms_norm",
                         OPERANDS(rms_norm_operands),
                         FIELDS(rms_norm_fields),
                         .params_bytes = sizeof(fig_rms_norm_params),
                         .attribute_bytes = sizeof(fig_rms_norm_attributes),
                         FAMILIES(rms_norm_families),
                         .twin = fig_rms_norm_twin},
    [FIG_OP_MERGE_STATES] = {.name = "merge_states",
                             OPERANDS(merge_states_operands),
                             FIELDS(merge_states_fields),
                             .params_bytes = sizeof(fig_merge_states_params),
                             FAMILIES(merge_states_families),
                             .twin = fig_merge_states_twin},
    [FIG_OP_LOOK_AHEAD] = {.name = "look_ahead",
                           FIELDS(look_ahead_fields),
                           .params_bytes = sizeof(fig_look_ahead_params),
                           FAMILIES(look_ahead_families),
                           .twin = fig_look_ahead_twin},
    [FIG_OP_CEILING] = {.name = "ceiling",
                        OPERANDS(ceiling_operands),
                        FIELDS(ceiling_fields),
                        .params_bytes = sizeof(fig_ceiling_params),
                        FAMILIES(ceiling_families),
                        .twin = fig_ceiling_twin},
    [FIG_OP_DECODE_ATTENTION] = {.name = "decode_attention",
                                 OPERANDS(decode_attention_operands),
                                 FIELDS(decode_attention_fields),
                                 .params_bytes = sizeof(fig_decode_attention_params),
                                 .attribute_bytes = sizeof(fig_decode_attention_attributes),
                                 .brief_bytes = offsetof(fig_decode_attention_attributes, table),
                                 .split = 1,
                                 .then = FIG_OP_ATTENTION,
                                 FAMILIES(decode_attention_families),
                                 .twin = fig_decode_attention_twin},
    [FIG_OP_ALL_REDUCE] = {.name = "all_reduce",
                           OPERANDS(all_reduce_operands),
                           FIELDS(all_reduce_fields),
                           .params_bytes = sizeof(fig_all_reduce_params),
                           .attribute_bytes = sizeof(fig_rms_norm_attributes),
                           .meets = 1,
                           FAMILIES(all_reduce_families),
                           .twin = fig_all_reduce_twin},
    [FIG_OP_ALL_GATHER] = {.name = "all_gather",
                           OPERANDS(all_gather_operands),
                           FIELDS(all_gather_fields),
                           .params_bytes = sizeof(fig_all_gather_params),
                           .meets = 1,
                           FAMILIES(all_gather_families),
                           .twin = fig_all_gather_twin},
    [FIG_OP_WHOLE_ATTENTION] = {.name = "whole_attention",
                                OPERANDS(whole_attention_operands),
                                FIELDS(whole_attention_fields),
                                .params_bytes = sizeof(fig_whole_attention_params),
                                FAMILIES(whole_attention_families),
                                .twin = fig_whole_attention_twin},
};

const fig_family *fig_table_families(fig_op op, uint32_t *count) {
    *count = fig_kernel_table[op].family_count;
    return fig_kernel_table[op].families;
}

const char *fig_table_op_name(uint32_t op) {
    if (op == FIG_OP_CALL) return "call";
    return op < FIG_OP_KERNEL_COUNT ? fig_kernel_table[op].name : NULL;
}
