/* figraph_parallel.h: one model over several ranks: what each holds, and where they meet.
 *
 * Each rank has its share of the q heads, the kv heads and the ffn columns, and runs its own graph
 * of its own share; results meet in collectives, which are nodes of the program:
 *
 *     fig_graphs_load(&model, "model.fig");       // one file serves every rank
 *     fig_graphs_rank(&graphs, model, 2);         // the share of one of two
 *     fig_engine_open(&engine, graphs, FIG_OPTIONS(fig_engine_options, .ranks = ranks));
 *
 * Rank r has q heads [r * n, (r + 1) * n) of the model, n being those of a share, and likewise the
 * kv heads and ffn columns; where there are fewer kv heads than ranks each rank has the one that
 * its q heads read. Shares are alike, so nothing here asks which rank it is for. */
#ifndef FIGRAPH_PARALLEL_H
#define FIGRAPH_PARALLEL_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FIG_PARALLEL_RANK_LIMIT = 256 };

/* The spec of one rank of `ranks`: q_heads, kv_heads and ffn_width divided, every default filled
 * in. FIG_INVALID: something does not divide; the sentence names field, value and limit. */
FIG_API fig_status fig_spec_rank(fig_spec *share, const fig_spec *model, int32_t ranks);

/* The graphs of one rank's share of a model: what the operations of its program say of heads and
 * columns is divided, what only callbacks touch is not; buckets and machine are the model's. They
 * are saved as the model that they were made of, never by themselves (FIG_UNSUPPORTED), and outlive
 * it. FIG_INVALID: something does not divide, or an operation needs whole what another divides. */
FIG_API fig_status fig_graphs_rank(fig_graphs **share, const fig_graphs *model, int32_t ranks);

#ifdef __cplusplus
}
#endif
#endif
