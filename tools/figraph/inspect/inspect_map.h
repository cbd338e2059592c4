/* inspect_map.h: lists the parts of the workspace and the launches of a bucket that use each
 * part. */
#ifndef FIG_TOOLS_INSPECT_MAP_H
#define FIG_TOOLS_INSPECT_MAP_H

#include "tools/figraph/inspect/inspect.h"

typedef struct fig_inspect_part {
    char name[FIG_INSPECT_NAME_LIMIT + FIG_PRINT_NUMBER]; /* "partials of class 1", "up.0" */
    uint64_t offset, bytes;                               /* bytes: up to the next part */
    uint32_t first, last; /* the first and last launch that use the part; first > last: none does */
    int stays;            /* 1: the contents of the part last from step to step */
} fig_inspect_part;

typedef struct fig_inspect_map {
    fig_inspect_part *parts; /* [count], sorted by offset */
    uint32_t count;
} fig_inspect_map;

fig_status fig_inspect_map_make(fig_inspect_map *map, const fig_inspect_bucket *bucket);
void fig_inspect_map_finish(fig_inspect_map *map); /* accepts a zeroed struct */
void fig_inspect_map_print(fig_print *print, const fig_inspect_map *map,
                           const fig_inspect_bucket *bucket);

#endif
