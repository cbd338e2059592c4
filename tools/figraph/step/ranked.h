/* ranked.h: runs a command on several ranks.
 *
 * Joins the ranks that a launcher has started, or starts a launcher if there is none. Owns the
 * group. Invariant: only rank 0 prints on stdout. */
#ifndef FIG_TOOLS_RANKED_H
#define FIG_TOOLS_RANKED_H

#include <figraph_ranks.h>

#include "tools/figraph/terminal/arguments.h"

#define FIG_RANKED_OPTION                                                                          \
    { "--ranks", "N", "run on N ranks, each with its share of the model; see below" }
#define FIG_RANKED_NOTES                                                                           \
    "With --ranks each rank is a process. If there are GPUs, each rank uses the GPU of its "       \
    "number. If figraph-launch or another launcher has started this process, it joins the other "  \
    "ranks; otherwise it starts figraph-launch with this command line. Only rank 0 prints."

typedef struct fig_ranked {
    const fig_arguments *arguments;
    fig_ranks *ranks; /* NULL: --ranks is 1 or was not given */
    int32_t count, rank, local_rank;
    int must_start; /* 1: no launcher has started the ranks */
} fig_ranked;

/* Reads --ranks, and meets the other ranks if a launcher started them. Returns FIG_EXIT_*. */
int fig_ranked_open(const fig_arguments *arguments, fig_ranked *ranked);
/* Replaces this process by figraph-launch with the same command line. Call it if must_start is set,
 * after all checks that one process can do. Returns only on failure, with FIG_EXIT_BAD. */
int fig_ranked_start(const fig_ranked *ranked);
/* The number of this rank's GPU. */
int32_t fig_ranked_ordinal(const fig_ranked *ranked, fig_device device);
void fig_ranked_close(fig_ranked *ranked);

#endif
