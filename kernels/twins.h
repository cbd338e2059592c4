/* twins.h: what table.c points to: per operation, the grid of a launch and the host's version of
 * one of its blocks.
 *
 * A twin does what its device kernel does, block by block, and leaves threads to the compiler.
 * Invariant: a twin reads nothing but its params and what they point to, allocates nothing, and
 * does no row at or past the plan's. */
#ifndef FIG_KERNELS_TWINS_H
#define FIG_KERNELS_TWINS_H

#include "kernels/table.h"

void fig_fetch_shape(const void *params, fig_launch_shape *shape);
void fig_fetch_twin(const void *params, const uint32_t block[3]);
void fig_look_ahead_shape(const void *params, fig_launch_shape *shape);
void fig_look_ahead_twin(const void *params, const uint32_t block[3]);
void fig_ceiling_shape(const void *params, fig_launch_shape *shape);
void fig_ceiling_twin(const void *params, const uint32_t block[3]);
void fig_planning_shape(const void *params, fig_launch_shape *shape);
void fig_planning_twin(const void *params, const uint32_t block[3]);
void fig_gated_shape(const void *params, fig_launch_shape *shape);
void fig_gated_twin(const void *params, const uint32_t block[3]);
void fig_rms_norm_shape(const void *params, fig_launch_shape *shape);
void fig_rms_norm_twin(const void *params, const uint32_t block[3]);
void fig_rope_shape(const void *params, fig_launch_shape *shape);
void fig_rope_twin(const void *params, const uint32_t block[3]);
void fig_append_kv_shape(const void *params, fig_launch_shape *shape);
void fig_append_kv_twin(const void *params, const uint32_t block[3]);
void fig_decode_attention_shape(const void *params, fig_launch_shape *shape);
void fig_decode_attention_twin(const void *params, const uint32_t block[3]);
void fig_attention_shape(const void *params, fig_launch_shape *shape);
void fig_attention_twin(const void *params, const uint32_t block[3]);
const char *fig_attention_family_bulk_refuses(const void *params, const fig_traits *traits);
void fig_attention_family_bulk_shape(const void *params, fig_launch_shape *shape);
uint32_t fig_attention_family_bulk_shared(const void *params, const fig_traits *traits);
void fig_attention_family_bulk_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_attention_family_bulk_map(const void *params, uint32_t item,
                                   fig_tensor_map_recipe *recipe);
const char *fig_attention_family_turn_refuses(const void *params, const fig_traits *traits);
uint32_t fig_attention_family_turn_shared(const void *params, const fig_traits *traits);
void fig_attention_family_turn_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_attention_family_turn_finish(void *params);
const char *fig_attention_family_short_turn_refuses(const void *params, const fig_traits *traits);
void fig_attention_family_short_turn_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_attention_family_short_refuses(const void *params, const fig_traits *traits);
void fig_attention_family_short_shape(const void *params, fig_launch_shape *shape);
uint32_t fig_attention_family_short_shared(const void *params, const fig_traits *traits);
void fig_attention_family_short_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_attention_family_copy_refuses(const void *params, const fig_traits *traits);
void fig_attention_family_copy_shape(const void *params, fig_launch_shape *shape);
uint32_t fig_attention_family_copy_shared(const void *params, const fig_traits *traits);
void fig_attention_family_copy_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_all_reduce_shape(const void *params, fig_launch_shape *shape);
void fig_all_reduce_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_all_reduce_nccl_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_all_reduce_nccl_refuses(const void *params, const fig_traits *traits);
const char *fig_all_reduce_two_shot_refuses(const void *params, const fig_traits *traits);
void fig_all_reduce_twin(const void *params, const uint32_t block[3]);
void fig_all_gather_shape(const void *params, fig_launch_shape *shape);
void fig_all_gather_nccl_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_all_gather_nccl_refuses(const void *params, const fig_traits *traits);
void fig_all_gather_twin(const void *params, const uint32_t block[3]);
void fig_whole_attention_shape(const void *params, fig_launch_shape *shape);
void fig_whole_attention_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_whole_attention_twin(const void *params, const uint32_t block[3]);
void fig_merge_states_shape(const void *params, fig_launch_shape *shape);
void fig_merge_states_twin(const void *params, const uint32_t block[3]);

#endif
