/* inspect_map.h: what lies in the workspace, and which launches of a bucket use it. */
#ifndef FIG_GRAPHS_INSPECT_MAP_H
#define FIG_GRAPHS_INSPECT_MAP_H

#include "graphs/inspect/inspect.h"

typedef struct fig_inspect_part {
    char name[FIG_NAME_LIMIT + FIG_PRINT_NUMBER]; /* "partials of class 1", "up.0" */
    uint64_t offset, bytes;                       /* up to the next part */
    uint32_t first, last; /* launches that use it; first > last: none does */
    int stays;            /* 1: what it holds lasts from step to step */
} fig_inspect_part;

typedef struct fig_inspect_map {
    fig_inspect_part *parts; /* [count] by offset */
    uint32_t count;
} fig_inspect_map;

fig_status fig_inspect_map_make(fig_inspect_map *map, const fig_inspect_bucket *bucket);
void fig_inspect_map_finish(fig_inspect_map *map); /* takes a zeroed one */
void fig_inspect_map_print(fig_print *print, const fig_inspect_map *map,
                           const fig_inspect_bucket *bucket);

#endif
