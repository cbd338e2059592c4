/* early_reads.h: decides which launches may read before the launches in front of them have ended.
 *
 * Owns the part of the law of programmatic edges (block.cuh) that depends on the graph: a launch
 * may read the plan before its own wait, and may let later launches begin at once, unless it
 * directly follows the launch that makes the plan. Also decides which parts of the cache attention
 * may read early, and finds launches that read a weight early although a node writes it. Invariant:
 * flags of FIG_EARLY_READS_WRITTEN alone are always correct. */
#ifndef FIG_GRAPHS_EARLY_READS_H
#define FIG_GRAPHS_EARLY_READS_H

#include "graphs/lower/lower.h"

/* Sets common->early_reads to the FIG_EARLY_READS_* and FIG_ATTENTION_* flags of every launch. The
 * launches and edges of `common` must be set. */
fig_status fig_early_reads_find(fig_lower_common *common);
/* Like fig_early_reads_find(), but for launches that all begin after the plan is complete.
 * early_reads: [count], the flags of the view's launches. */
fig_status fig_early_reads_list(const fig_program_view *view, const fig_launch *launches,
                                uint32_t count, uint32_t *early_reads);
/* Adds FIG_ATTENTION_* flags to the flags of every split attention. early_reads: [count], filled by
 * fig_early_reads_list(). */
void fig_early_reads_add(const fig_launch *launches, uint32_t count, uint32_t flags,
                         uint32_t *early_reads);

#endif
