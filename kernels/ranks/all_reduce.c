/* all_reduce.c: runs all_reduce on the host, with or without the residual and RMSNorm after it.
 *
 * The sum is made in the order of ranks, in f32, and rounded once, so every rank has the same
 * bits. Block b has rows b, b + FIG_PEERS_BLOCKS, ... The caller has already brought the ranks'
 * contributions to this host, because a reference kernel does not communicate. Invariant: a row is
 * processed in stretches, and each stretch is read before it is written, so out may be the same
 * tensor as in. */
#include "kernels/table/reference_kernels.h"

#include <stdio.h>

#include "kernels/common/numeric.h"
#include "planner/routes.h"

enum { WARP = 32, THREAD_LIMIT = 512, VECTOR_BYTES = 16, STRETCH = 256 };

/* Returns the number of blocks that share a row. With few rows each row gets many blocks; with many
 * rows one block is best. */
static int32_t team_of(const fig_all_reduce_params *p) {
    int32_t team = FIG_PEERS_TEAM_LIMIT;
    while (team > 1 && p->rows.row_limit > FIG_PEERS_BLOCKS / team)
        team /= 2;
    return team;
}

/* Gives each vector one thread, up to the largest block. Without a norm all blocks share the
 * vectors of all rows; with a norm the blocks of a team share those of a row. */
void fig_all_reduce_shape(const void *params, fig_launch_shape *shape) {
    const fig_all_reduce_params *p = params;
    const int64_t in_row = (int64_t)p->width * fig_numeric_bytes(p->dtype) / VECTOR_BYTES;
    int64_t vectors = 1 + (in_row - 1) / team_of(p);
    if (p->weight == NULL) vectors = 1 + (in_row * p->rows.row_limit - 1) / FIG_PEERS_BLOCKS;
    const int64_t warps = 1 + (vectors - 1) / WARP;
    const int64_t threads = warps * WARP < THREAD_LIMIT ? warps * WARP : THREAD_LIMIT;
    *shape = (fig_launch_shape){.grid = {FIG_PEERS_GRID, 1, 1}, .block = {(uint32_t)threads, 1, 1}};
}

void fig_all_reduce_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_all_reduce_params *p = params;
    if (p->weight == NULL) {
        snprintf(name, FIG_ENTRY_BYTES, "fig_kernel_all_reduce_alone");
    } else {
        snprintf(name, FIG_ENTRY_BYTES, "fig_kernel_all_reduce_norm_%d", (int)team_of(p));
    }
}

void fig_all_reduce_nccl_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    (void)params;
    snprintf(name, FIG_ENTRY_BYTES, "fig_kernel_all_reduce_nccl_end");
}

/* Returns the route for the whole bucket, because a graph serves steps of any number of rows. */
static uint32_t route_of(const fig_all_reduce_params *p) {
    const uint64_t row = (uint64_t)p->width * (uint64_t)fig_numeric_bytes(p->dtype);
    const fig_route_wish wish = {
        .allowed = p->routes, .ranks = p->ranks, .bytes = (uint64_t)p->rows.row_limit * row};
    return fig_routes_choose(&wish);
}

const char *fig_all_reduce_nccl_refuses(const void *params, const fig_traits *traits) {
    (void)traits;
    return route_of(params) == FIG_ROUTE_NCCL ? NULL : FIG_ROUTE_NEEDS_NCCL;
}

const char *fig_all_reduce_two_shot_refuses(const void *params, const fig_traits *traits) {
    (void)traits;
    return route_of(params) == FIG_ROUTE_TWO_SHOT ? NULL : "more ranks, or a larger message";
}

static void add_up(const fig_all_reduce_params *p, int64_t at) {
    for (int32_t first = 0; first < p->width; first += STRETCH) {
        float sum[STRETCH], more[STRETCH];
        const int32_t count = fig_size_min(STRETCH, p->width - first);
        fig_numeric_load_row(sum, count, p->peers->parts[0], p->dtype, at + first);
        for (int32_t r = 1; r < p->peers->count; r++) {
            fig_numeric_load_row(more, count, p->peers->parts[r], p->dtype, at + first);
            for (int32_t i = 0; i < count; i++)
                sum[i] += more[i];
        }
        fig_numeric_store_row(p->out, p->dtype, at + first, sum, count);
    }
}

void fig_all_reduce_reference(const void *params, const uint32_t block[3]) {
    const fig_all_reduce_params *p = params;
    const int32_t rows = fig_params_rows(&p->rows, p->plan);
    const fig_rms_norm_params norm = {.in = p->out,
                                      .weight = p->weight,
                                      .out = p->out,
                                      .residual = p->residual,
                                      .in_stride = p->width,
                                      .out_stride = p->width,
                                      .residual_stride = p->width,
                                      .rows = {rows, 1},
                                      .width = p->width,
                                      .dtype = p->dtype,
                                      .epsilon = p->epsilon,
                                      .weight_offset = p->weight_offset};
    if (block[0] >= FIG_PEERS_BLOCKS) return;
    for (int32_t row = (int32_t)block[0]; row < rows; row += FIG_PEERS_BLOCKS) {
        const uint32_t of_norm[3] = {(uint32_t)row, 0, 0};
        add_up(p, (int64_t)row * p->width);
        if (p->weight != NULL) fig_rms_norm_reference(&norm, of_norm);
    }
}
