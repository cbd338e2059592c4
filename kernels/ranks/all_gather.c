/* all_gather.c: runs all_gather on the host: puts the bytes of each rank's row one after the other.
 *
 * Block b has rows b, b + FIG_PEERS_BLOCKS, ... The caller has already brought the ranks'
 * contributions to this host, because a reference kernel does not communicate. */
#include "kernels/table/reference_kernels.h"

#include <stdio.h>
#include <string.h>

#include "kernels/common/numeric.h"
#include "planner/routes.h"

enum { WARP = 32, THREAD_LIMIT = 512, VECTOR_BYTES = 16 };

/* Sets the grid. Each vector of a rank gets one thread among all blocks, up to the largest
 * block. */
void fig_all_gather_shape(const void *params, fig_launch_shape *shape) {
    const fig_all_gather_params *p = params;
    const int64_t in_row = (int64_t)p->width * fig_numeric_bytes(p->dtype) / VECTOR_BYTES;
    const int64_t vectors = 1 + (in_row * p->rows.row_limit - 1) / FIG_PEERS_BLOCKS;
    const int64_t warps = 1 + (vectors - 1) / WARP;
    const int64_t threads = warps * WARP < THREAD_LIMIT ? warps * WARP : THREAD_LIMIT;
    *shape = (fig_launch_shape){.grid = {FIG_PEERS_GRID, 1, 1}, .block = {(uint32_t)threads, 1, 1}};
}

void fig_all_gather_nccl_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    (void)params;
    snprintf(name, FIG_ENTRY_BYTES, "fig_kernel_all_gather_nccl");
}

const char *fig_all_gather_nccl_refuses(const void *params, const fig_traits *traits) {
    const fig_all_gather_params *p = params;
    const uint64_t row = (uint64_t)p->width * (uint64_t)fig_numeric_bytes(p->dtype);
    const fig_route_wish wish = {.allowed = p->routes,
                                 .ranks = p->ranks,
                                 .bytes = (uint64_t)p->rows.row_limit * row,
                                 .is_gathered = 1};
    (void)traits;
    return fig_routes_choose(&wish) == FIG_ROUTE_NCCL ? NULL : FIG_ROUTE_NEEDS_NCCL;
}

void fig_all_gather_reference(const void *params, const uint32_t block[3]) {
    const fig_all_gather_params *p = params;
    const int32_t rows = fig_params_rows(&p->rows, p->plan);
    const size_t bytes = (size_t)p->width * (size_t)fig_numeric_bytes(p->dtype);
    if (block[0] >= FIG_PEERS_BLOCKS) return;
    for (int32_t row = (int32_t)block[0]; row < rows; row += FIG_PEERS_BLOCKS) {
        for (int32_t r = 0; r < p->peers->count; r++) {
            uint8_t *to = (uint8_t *)p->out + (size_t)(row * p->peers->count + r) * bytes;
            memcpy(to, (const uint8_t *)p->peers->parts[r] + (size_t)row * bytes, bytes);
        }
    }
}
