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

/* ---- Collectives, recorded like any other operation ------------------------------------------ */
/* Every rank runs the collectives of its program in the order recorded, whatever else runs beside
 * them. Rows lie close together in memory, and a row is whole pieces of 16 bytes. A program that
 * runs alone is a group of one.
 *
 * fig_engine_open is a collective call where options name a group: all ranks agree on spec, buckets
 * and file. A rank that in a step is elsewhere, late or gone, or whose callback failed, is a fault
 * that fig_engine_wait tells on every rank: FIG_INVALID names both ranks with step and bucket,
 * FIG_TIMEOUT the rank that did not come in the group's time, FIG_LOST what became of the group.
 * The engine can then only be closed. Each rank has a GPU of its own. Where those are at most 8, of
 * one host, and reach each other, ranks write into one another's memory, and an engine takes for
 * each rank four times the largest message of its device's memory, or 16 MB where that is less and
 * NCCL is there; NCCL carries what is larger, and all else (FIG_UNSUPPORTED: without libnccl.so.2
 * of version 2.14 or later). What NCCL carries is stopped by calls of this engine that wait, and
 * closing gives it two seconds to end: who waits for the stream by other means, and a rank is gone,
 * waits for ever. */

/* out = the sum of what all ranks have in `in`: in their order, in f32, rounded once, so that every
 * rank has the same bits; what NCCL carries it adds up in an order of its own and may round more
 * often, the same bits everywhere. in and out are [rows][width]; out may be in. */
typedef struct fig_all_reduce_op {
    uint32_t size;
    fig_tensor in, out;
} fig_all_reduce_op;
FIG_API void fig_all_reduce(fig_program *program, const fig_all_reduce_op *op);

/* fig_all_reduce of in, and fig_add_rms_norm of what comes out, as one node: it costs less and
 * leaves the same bits in residual, and in out but for numbers of 16 bits that a GPU may round the
 * other way; on every rank alike. */
FIG_API void fig_all_reduce_add_rms_norm(fig_program *program, const fig_rms_norm_op *op);

/* out[row] = what each rank has in in[row], one behind another in their order: in is [rows][width],
 * out [rows][ranks * width], and in a model's program, which is every rank's, [rows][width] too. */
typedef struct fig_all_gather_op {
    uint32_t size;
    fig_tensor in, out;
} fig_all_gather_op;
FIG_API void fig_all_gather(fig_program *program, const fig_all_gather_op *op);

#ifdef __cplusplus
}
#endif
#endif
