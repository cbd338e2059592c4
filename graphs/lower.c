/* lower.c: a program, a bucket and a machine's traits in; launches out.
 *
 * Owns how a bucket is split, which launches there are and their order; leaves what a launch holds
 * to launch.c. Invariant: nothing here reads an address, a clock or the machine it runs on. */
#include "graphs/lower.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/hash.h"
#include "planner/bounds.h"
#include "planner/size.h"
#include "planner/status.h"

enum { PARAMS_UNIT = 64 }; /* as a tensor map in them wants to lie */

/* ---- Shape ----------------------------------------------------------------------------------- */

static fig_status check_caps(const fig_spec *spec, const fig_lower_target *target,
                             const fig_bucket_shape *shape) {
    const fig_bucket *caps = &shape->caps;
    if (caps->batch < 1 || caps->batch > spec->batch_limit)
        return fig_fail(FIG_INVALID, "bucket: batch is %" PRId32 ", limits 1 to %" PRId32,
                        caps->batch, spec->batch_limit);
    if (caps->kv < 1 || caps->kv > spec->kv_limit)
        return fig_fail(FIG_INVALID, "bucket: kv is %" PRId32 ", limits 1 to %" PRId32, caps->kv,
                        spec->kv_limit);
    if (shape->variant < 0 || shape->variant >= FIG_VARIANT_COUNT)
        return fig_fail(FIG_INVALID, "bucket: variant is %" PRId32 ", limits 0 to %d",
                        shape->variant, FIG_VARIANT_COUNT - 1);
    if (target->deterministic && shape->variant != 0)
        return fig_fail(FIG_INVALID,
                        "bucket: variant is %" PRId32 ", it must be 0 where splits are fixed",
                        shape->variant);
    return FIG_OK;
}

/* What a variant decides: the heads of a worker and the tiles. */
static void shape_tiles(const fig_split_class *split_class, const fig_lower_target *target,
                        const fig_bucket_shape *bucket, fig_split_shape *split) {
    split->row_limit = bucket->caps.batch;
    split->groups = split_class->kv_heads / fig_split_classes_heads(split_class, bucket->variant);
    split->tile_tokens = fig_variant_table[bucket->variant].tile_tokens;
    split->window = split_class->window;
    split->row_tokens = split_class->row_tokens;
    split->fixed = target->deterministic;
    if (split->fixed) split->tile_tokens = FIG_FIXED_TILE_TOKENS;
}

/* One worker for each place of the machine, but no more than the fullest step has tiles. */
static fig_status shape_workers(const fig_lower_target *target, int32_t kv_limit,
                                const fig_bucket_shape *bucket, fig_split_shape *split) {
    const fig_bucket *caps = &bucket->caps;
    const int64_t tokens = (int64_t)caps->batch * caps->kv;
    const int64_t tiles = fig_bounds_tiles(split, tokens, kv_limit) * split->groups;
    if (tiles > INT32_MAX)
        return fig_fail(FIG_TOO_LARGE,
                        "bucket %" PRId32 " x %" PRId32 ": %" PRId64 " tiles in %" PRId32
                        " head groups, limit %" PRId32,
                        caps->batch, caps->kv, tiles, split->groups, INT32_MAX);
    int64_t workers =
        (int64_t)target->traits.sm_count * fig_variant_table[bucket->variant].workers_per_sm;
    if (workers > FIG_WORKER_LIMIT) workers = FIG_WORKER_LIMIT;
    if (workers > tiles) workers = tiles;
    /* A bucket too small for one row of row_tokens has no tile, but its grid has a block. */
    split->workers = workers > 0 ? (int32_t)workers : 1;
    split->tile_limit = (int32_t)tiles;
    return FIG_OK;
}

fig_status fig_lower_shape(const fig_program_view *view, const fig_lower_target *target,
                           uint32_t index, fig_bucket_shape *shape) {
    fig_split_classes classes;
    const fig_bucket_shape given = *shape;
    memset(shape, 0, sizeof *shape);
    shape->caps = given.caps;
    shape->variant = given.variant;
    FIG_TRY(check_caps(&view->spec, target, shape));
    FIG_TRY(fig_split_classes_find(view, &classes));
    for (int32_t i = 0; i < classes.count; i++) {
        const fig_split_class *own = &classes.of[i];
        fig_split_shape *split = &shape->plan.splits[i];
        shape_tiles(own, target, shape, split);
        shape->token_bytes[i] =
            2 * own->kv_heads / split->groups * own->head_dim * own->value_bytes;
        FIG_TRY(shape_workers(target, view->spec.kv_limit, shape, split));
    }
    shape->plan.bucket = index;
    shape->plan.row_limit = shape->caps.batch;
    shape->plan.class_count = classes.count;
    fig_plan_lay_out(&shape->plan);
    return FIG_OK;
}

static int reads_alike(const fig_split_classes *classes, int32_t a, int32_t b) {
    const fig_variant *x = &fig_variant_table[a], *y = &fig_variant_table[b];
    for (int32_t i = 0; i < classes->count; i++) {
        const fig_split_class *own = &classes->of[i];
        if (fig_split_classes_heads(own, a) != fig_split_classes_heads(own, b)) return 0;
        if (x->tile_tokens != y->tile_tokens || x->workers_per_sm != y->workers_per_sm) return 0;
    }
    return 1;
}

int fig_lower_variant_serves(const fig_program_view *view, const fig_lower_target *target,
                             int32_t variant) {
    fig_split_classes classes;
    assert(variant >= 0 && variant < FIG_VARIANT_COUNT);
    if (target->deterministic) return variant == 0;
    if (fig_split_classes_find(view, &classes) != FIG_OK) return 1;
    for (int32_t smaller = 0; smaller < variant; smaller++) {
        if (reads_alike(&classes, variant, smaller)) return 0;
    }
    return 1;
}

/* ---- Launches -------------------------------------------------------------------------------- */

static fig_launch launch_of(uint32_t op) {
    fig_launch launch = {.op = op, .split_class = UINT32_MAX};
    if (op != FIG_OP_CALL) launch.params_bytes = fig_kernel_table[op].params_bytes;
    return launch;
}

/* Each node becomes one launch of its own. */
static void make_node_launches(const fig_launch_source *source, fig_lowered *lowered) {
    const fig_program_view *view = source->view;
    for (uint32_t n = 0; n < view->node_count; n++) {
        fig_launch launch = launch_of(view->nodes[n].op);
        launch.node = n;
        launch.node_count = 1;
        launch.split_class = fig_split_classes_index(source->classes, view, &view->nodes[n]);
        lowered->node_launches[n] = (fig_launch_range){lowered->launch_count, 1};
        lowered->launches[lowered->launch_count++] = launch;
    }
}

/* Sets where each launch's params lie; returns the most relocations that they can have. */
static uint32_t lay_out_params(fig_lowered *lowered) {
    uint32_t reloc_limit = 0;
    for (uint32_t i = 0; i < lowered->launch_count; i++) {
        fig_launch *launch = &lowered->launches[i];
        launch->params = lowered->params_bytes;
        lowered->params_bytes += (uint32_t)fig_size_align(launch->params_bytes, PARAMS_UNIT);
        if (launch->op != FIG_OP_CALL) reloc_limit += fig_kernel_table[launch->op].field_count;
    }
    return reloc_limit;
}

static fig_status make_launches(const fig_launch_source *source, fig_lowered *lowered) {
    const fig_program_view *view = source->view;
    const uint32_t count = view->node_count + 1;
    lowered->launches = calloc(count, sizeof *lowered->launches);
    lowered->node_launches = calloc(count, sizeof *lowered->node_launches);
    if (lowered->launches == NULL || lowered->node_launches == NULL)
        return fig_fail(FIG_NOMEM, "bucket: %u launches of %zu bytes", count,
                        sizeof *lowered->launches);
    lowered->launches[lowered->launch_count++] = launch_of(FIG_OP_FETCH);
    make_node_launches(source, lowered);
    const uint32_t reloc_limit = lay_out_params(lowered);
    lowered->params = aligned_alloc(PARAMS_UNIT, lowered->params_bytes);
    lowered->relocs = calloc(reloc_limit, sizeof *lowered->relocs);
    if (lowered->params == NULL || lowered->relocs == NULL)
        return fig_fail(FIG_NOMEM, "bucket: %u bytes of params and %u relocations",
                        lowered->params_bytes, reloc_limit);
    memset(lowered->params, 0, lowered->params_bytes);
    return FIG_OK;
}

static void fill_launches(const fig_launch_source *source, fig_lowered *lowered) {
    for (uint32_t i = 0; i < lowered->launch_count; i++) {
        fig_launch *launch = &lowered->launches[i];
        launch->reloc = lowered->reloc_count;
        if (launch->op == FIG_OP_CALL) continue;
        fig_launch_fill(launch, source, lowered->params + launch->params,
                        lowered->relocs + launch->reloc);
        lowered->reloc_count += launch->reloc_count;
    }
}

/* The nodes' edges; what fetches and what makes the plan before all, since all read it; and,
 * because the launches of a split class share partials and counters, each of them after the one
 * before. */
static fig_status make_edges(const fig_program_view *view, fig_lowered *lowered) {
    uint32_t last[FIG_CLASS_LIMIT] = {0}, count = 0;
    const int makes_plan = fig_program_reads_lengths(view);
    const size_t limit = (size_t)view->edge_count + 3 * (size_t)view->node_count;
    fig_edge *edges = calloc(limit, sizeof *edges);
    if (edges == NULL)
        return fig_fail(FIG_NOMEM, "bucket: %zu edges of %zu bytes", limit, sizeof *edges);
    lowered->edges = edges;
    for (uint32_t i = 0; i < view->edge_count; i++)
        edges[count++] = (fig_edge){view->edges[i].from + 1, view->edges[i].to + 1};
    for (uint32_t to = 1; to < lowered->launch_count; to++) {
        const uint32_t split_class = lowered->launches[to].split_class;
        edges[count++] = (fig_edge){0, to};
        if (makes_plan && to > 1) edges[count++] = (fig_edge){1, to};
        if (split_class == UINT32_MAX) continue;
        if (last[split_class] != 0) edges[count++] = (fig_edge){last[split_class], to};
        last[split_class] = to;
    }
    lowered->edge_count = count;
    return fig_edges_reduce(edges, &lowered->edge_count);
}

fig_status fig_lower_bucket(const fig_program_view *view, const fig_workspace *workspace,
                            const fig_bucket_shape *shape, fig_lowered *lowered) {
    fig_split_classes classes;
    const fig_launch_source source = {view, &classes, workspace, shape};
    fig_status status;
    memset(lowered, 0, sizeof *lowered);
    FIG_TRY(fig_split_classes_find(view, &classes));
    assert(classes.count == shape->plan.class_count);
    if ((status = make_launches(&source, lowered)) != FIG_OK) goto fail;
    fill_launches(&source, lowered);
    if ((status = make_edges(view, lowered)) != FIG_OK) goto fail;
    return FIG_OK;
fail:
    fig_lower_finish(lowered);
    return status;
}

void fig_lower_finish(fig_lowered *lowered) {
    free(lowered->launches);
    free(lowered->node_launches);
    free(lowered->edges);
    free(lowered->relocs);
    free(lowered->params);
    memset(lowered, 0, sizeof *lowered);
}

uint64_t fig_lower_digest(const fig_lowered *lowered) {
    uint64_t digest = 0;
    digest =
        fig_hash_mix(digest, lowered->launches, lowered->launch_count * sizeof *lowered->launches);
    digest = fig_hash_mix(digest, lowered->edges, lowered->edge_count * sizeof *lowered->edges);
    digest = fig_hash_mix(digest, lowered->relocs, lowered->reloc_count * sizeof *lowered->relocs);
    return fig_hash_mix(digest, lowered->params, lowered->params_bytes);
}
