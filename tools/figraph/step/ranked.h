/* ranked.h: a command that runs on several ranks: it joins those that a launcher has started, and
 * where none has, it starts them.
 *
 * Owns the group. Invariant: rank 0 alone prints on stdout. */
#ifndef FIG_TOOLS_RANKED_H
#define FIG_TOOLS_RANKED_H

#include <figraph_ranks.h>

#include "tools/figraph/terminal/arguments.h"

#define FIG_RANKED_OPTION                                                                          \
    { "--ranks", "N", "run on so many ranks, each of which has a share; see below" }
#define FIG_RANKED_NOTES                                                                           \
    "With --ranks each rank is a process, and has a GPU of its own where there are GPUs: that of " \
    "its number. Where figraph-launch or another launcher has started the ranks, they meet; "      \
    "where none has, figraph-launch is started with this command line. Rank 0 prints."

typedef struct fig_ranked {
    const fig_arguments *arguments;
    fig_ranks *ranks; /* NULL: --ranks says 1, or nothing */
    int32_t count, rank, local_rank;
    int must_start; /* 1: nobody has started the ranks */
} fig_ranked;

/* Reads --ranks, and meets the others where they are started. Returns FIG_EXIT_*. */
int fig_ranked_open(const fig_arguments *arguments, fig_ranked *ranked);
/* Where must_start is set, and all is checked that one process can check: this process becomes the
 * launcher of its own command line. Returns, FIG_EXIT_BAD, where there is none. */
int fig_ranked_start(const fig_ranked *ranked);
/* Which GPU is this rank's. */
int32_t fig_ranked_ordinal(const fig_ranked *ranked, fig_device device);
void fig_ranked_close(fig_ranked *ranked);

#endif
