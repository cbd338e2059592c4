/* reference_kernels.h: declares, for each operation, the grid of its launches and its reference
 * kernel.
 *
 * table.c points to these functions. A reference kernel does the work of one block of its device
 * kernel, in plain loops instead of threads. Invariant: a reference kernel reads only
 * its params and the memory they point to, allocates nothing, and skips every row at or past the
 * plan's row count. */
#ifndef FIG_KERNELS_REFERENCE_KERNELS_H
#define FIG_KERNELS_REFERENCE_KERNELS_H

#include "kernels/table/table.h"

/* Declares fig_gated_shape(), fig_gated_reference() and so on. */
#define FIG_REFERENCES_OF(number, OP, name, reference, check, families)                            \
    void fig_##reference##_shape(const void *params, fig_launch_shape *shape);                     \
    void fig_##reference##_reference(const void *params, const uint32_t block[3]);
FIG_OPERATIONS(FIG_REFERENCES_OF, FIG_OP_NOTHING)

void fig_planning_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_gated_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_rms_norm_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_append_kv_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_latent_decode_entry(const void *params, char name[FIG_ENTRY_BYTES]);
int fig_attention_family_cut(void *params, const fig_traits *traits, int32_t n);
const char *fig_attention_family_bulk_refuses(const void *params, const fig_traits *traits);
void fig_attention_family_bulk_shape(const void *params, fig_launch_shape *shape);
uint32_t fig_attention_family_bulk_shared(const void *params, const fig_traits *traits);
void fig_attention_family_bulk_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_attention_family_bulk_map(const void *params, uint32_t item,
                                   fig_tensor_map_recipe *recipe);
const char *fig_attention_family_many_refuses(const void *params, const fig_traits *traits);
void fig_attention_family_many_shape(const void *params, fig_launch_shape *shape);
uint32_t fig_attention_family_many_shared(const void *params, const fig_traits *traits);
void fig_attention_family_many_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_attention_family_many_map(const void *params, uint32_t item,
                                   fig_tensor_map_recipe *recipe);
const char *fig_attention_family_packed_refuses(const void *params, const fig_traits *traits);
void fig_attention_family_packed_entry(const void *params, char name[FIG_ENTRY_BYTES]);
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
void fig_decode_attention_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_decode_attention_still_refuses(const void *params, const fig_traits *traits);
void fig_decode_attention_still_shape(const void *params, fig_launch_shape *shape);
void fig_decode_attention_still_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_decode_attention_long_refuses(const void *params, const fig_traits *traits);
void fig_decode_attention_long_shape(const void *params, fig_launch_shape *shape);
void fig_decode_attention_long_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_scored_family_bulk_refuses(const void *params, const fig_traits *traits);
void fig_scored_family_bulk_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_scored_family_copy_refuses(const void *params, const fig_traits *traits);
void fig_scored_family_copy_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_all_reduce_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_all_reduce_nccl_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_all_reduce_nccl_refuses(const void *params, const fig_traits *traits);
const char *fig_all_reduce_two_shot_refuses(const void *params, const fig_traits *traits);
void fig_all_gather_nccl_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_all_gather_nccl_refuses(const void *params, const fig_traits *traits);
void fig_whole_attention_entry(const void *params, char name[FIG_ENTRY_BYTES]);
int fig_whole_attention_make(const void *params, int32_t rows, int32_t length,
                             const fig_traits *traits, void *whole);
const char *fig_prompt_attention_wide_refuses(const void *params, const fig_traits *traits);
void fig_prompt_attention_wide_shape(const void *params, fig_launch_shape *shape);
uint32_t fig_prompt_attention_wide_shared(const void *params, const fig_traits *traits);
void fig_prompt_attention_wide_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_prompt_attention_wide_map(const void *params, uint32_t item,
                                   fig_tensor_map_recipe *recipe);
void fig_prompt_attention_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_prompt_attention_scored_entry(const void *params, char name[FIG_ENTRY_BYTES]);
int fig_latent_attention_cut(void *params, const fig_traits *traits, int32_t n);
const char *fig_latent_attention_short_refuses(const void *params, const fig_traits *traits);
void fig_latent_attention_short_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_latent_attention_narrow_refuses(const void *params, const fig_traits *traits);
void fig_latent_attention_narrow_shape(const void *params, fig_launch_shape *shape);
uint32_t fig_latent_attention_narrow_shared(const void *params, const fig_traits *traits);
void fig_latent_attention_narrow_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_latent_attention_pair_refuses(const void *params, const fig_traits *traits);
void fig_latent_attention_pair_shape(const void *params, fig_launch_shape *shape);
void fig_latent_attention_pair_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_latent_attention_codes_refuses(const void *params, const fig_traits *traits);
void fig_latent_attention_codes_shape(const void *params, fig_launch_shape *shape);
void fig_latent_attention_codes_entry(const void *params, char name[FIG_ENTRY_BYTES]);
const char *fig_latent_attention_wide_refuses(const void *params, const fig_traits *traits);
void fig_latent_attention_wide_shape(const void *params, fig_launch_shape *shape);
uint32_t fig_latent_attention_wide_shared(const void *params, const fig_traits *traits);
void fig_latent_attention_wide_entry(const void *params, char name[FIG_ENTRY_BYTES]);
void fig_latent_attention_wide_map(const void *params, uint32_t item,
                                   fig_tensor_map_recipe *recipe);
uint32_t fig_latent_attention_shared(const void *params, const fig_traits *traits);

#endif
