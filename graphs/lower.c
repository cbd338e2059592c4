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
#include "graphs/haste.h"
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
    if (target->deterministic && shape->variant != 0)
        return fig_fail(FIG_INVALID,
                        "bucket: variant is %" PRId32 ", it must be 0 where splits are fixed",
                        shape->variant);
    return FIG_OK;
}

/* What a machine's candidate is for a class. */
static fig_variant resolve(const fig_variant *candidate, const fig_split_class *split_class,
                           const fig_lower_target *target) {
    fig_variant variant = *candidate;
    variant.heads = fig_split_classes_heads(split_class, candidate->heads);
    if (target->deterministic) variant.tile_tokens = FIG_FIXED_TILE_TOKENS;
    return variant;
}

/* Those of the machine's row that the bucket names. */
static fig_status take_variants(const fig_split_classes *classes, const fig_lower_target *target,
                                fig_bucket_shape *shape) {
    int32_t count;
    const fig_variant *candidates = fig_traits_variants(&target->traits, &count);
    if (shape->variant < 0 || shape->variant >= count)
        return fig_fail(FIG_INVALID, "bucket: variant is %" PRId32 ", limits 0 to %" PRId32,
                        shape->variant, count - 1);
    for (int32_t i = 0; i < classes->count; i++)
        shape->variants[i] = resolve(&candidates[shape->variant], &classes->of[i], target);
    return FIG_OK;
}

/* Those that were given must be what resolving could have made. */
static fig_status check_variants(const fig_split_classes *classes, const fig_lower_target *target,
                                 const fig_bucket_shape *shape) {
    for (int32_t i = 0; i < classes->count; i++) {
        const fig_variant *given = &shape->variants[i];
        FIG_TRY(fig_traits_check_variant(given));
        const fig_variant resolved = resolve(given, &classes->of[i], target);
        if (memcmp(&resolved, given, sizeof resolved) != 0)
            return fig_fail(FIG_INVALID,
                            "bucket: variant %s reads %" PRId32 " of %" PRId32
                            " kv heads and tiles of %" PRId32 " tokens",
                            given->name, given->heads, classes->of[i].kv_heads, given->tile_tokens);
    }
    return FIG_OK;
}

static void shape_tiles(const fig_split_class *split_class, const fig_lower_target *target,
                        const fig_variant *variant, fig_split_shape *split) {
    split->groups = split_class->kv_heads / variant->heads;
    split->tile_tokens = variant->tile_tokens;
    split->window = split_class->window;
    split->row_tokens = split_class->row_tokens;
    split->fixed = target->deterministic;
}

/* What a GPU's worker reads at least, where the fullest step has so much: less would begin and end
 * no sooner, and leave more to merge. */
enum { STRETCH_BYTES = 65536 };

/* Workers that the fullest step has work for. */
static int64_t busy_workers(const fig_lower_target *target, const fig_split_shape *split,
                            int32_t token_bytes) {
    const int64_t bytes = (int64_t)split->tile_limit * split->tile_tokens * token_bytes;
    const int64_t stretches = (bytes + STRETCH_BYTES - 1) / STRETCH_BYTES;
    const int is_gpu = target->traits.compute_capability > 0;
    return is_gpu && stretches < split->tile_limit ? stretches : split->tile_limit;
}

/* One worker for each place of the machine, but no more than the fullest step has work for. */
static fig_status shape_workers(const fig_lower_target *target, int32_t kv_limit,
                                const fig_bucket *caps, int32_t token_bytes, int32_t workers_per_sm,
                                fig_split_shape *split) {
    const int64_t tokens = (int64_t)caps->batch * caps->kv;
    const int64_t tiles = fig_bounds_tiles(split, tokens, kv_limit) * split->groups;
    if (tiles > INT32_MAX)
        return fig_fail(FIG_TOO_LARGE,
                        "bucket %" PRId32 " x %" PRId32 ": %" PRId64 " tiles in %" PRId32
                        " head groups, limit %" PRId32,
                        caps->batch, caps->kv, tiles, split->groups, INT32_MAX);
    split->tile_limit = (int32_t)tiles;
    const int64_t busy = busy_workers(target, split, token_bytes);
    int64_t workers = (int64_t)target->traits.sm_count * workers_per_sm;
    if (workers > FIG_WORKER_LIMIT) workers = FIG_WORKER_LIMIT;
    if (workers > busy) workers = busy;
    /* A bucket too small for one row of row_tokens has no tile, but its grid has a block. */
    split->workers = workers > 0 ? (int32_t)workers : 1;
    return FIG_OK;
}

static fig_status shape_classes(const fig_program_view *view, const fig_lower_target *target,
                                const fig_split_classes *classes, fig_bucket_shape *shape) {
    for (int32_t i = 0; i < classes->count; i++) {
        const fig_split_class *own = &classes->of[i];
        fig_split_shape *split = &shape->plan.splits[i];
        split->row_limit = shape->caps.batch;
        shape_tiles(own, target, &shape->variants[i], split);
        shape->token_bytes[i] =
            2 * own->kv_heads / split->groups * own->head_dim * own->value_bytes;
        FIG_TRY(shape_workers(target, view->spec.kv_limit, &shape->caps, shape->token_bytes[i],
                              shape->variants[i].workers_per_sm, split));
    }
    shape->plan.row_limit = shape->caps.batch;
    shape->plan.row_tokens = view->spec.row_tokens;
    shape->plan.class_count = classes->count;
    fig_plan_lay_out(&shape->plan);
    return FIG_OK;
}

fig_status fig_lower_shape_of(const fig_program_view *view, const fig_lower_target *target,
                              uint32_t exec, const fig_variant *variants, fig_bucket_shape *shape) {
    fig_split_classes classes;
    const fig_bucket_shape given = *shape;
    memset(shape, 0, sizeof *shape);
    shape->caps = given.caps;
    shape->variant = given.variant;
    shape->plan.exec = exec;
    FIG_TRY(check_caps(&view->spec, target, shape));
    FIG_TRY(fig_split_classes_find(view, &classes));
    if (variants == NULL) {
        FIG_TRY(take_variants(&classes, target, shape));
    } else {
        for (int32_t i = 0; i < classes.count; i++)
            shape->variants[i] = variants[i];
        FIG_TRY(check_variants(&classes, target, shape));
    }
    return shape_classes(view, target, &classes, shape);
}

fig_status fig_lower_shape(const fig_program_view *view, const fig_lower_target *target,
                           uint32_t exec, fig_bucket_shape *shape) {
    return fig_lower_shape_of(view, target, exec, NULL, shape);
}

static int reads_alike(const fig_variant *a, const fig_variant *b) {
    return a->heads == b->heads && a->tile_tokens == b->tile_tokens &&
           a->workers_per_sm == b->workers_per_sm && a->stages == b->stages;
}

int fig_lower_variant_serves(const fig_program_view *view, const fig_lower_target *target,
                             int32_t variant) {
    fig_split_classes classes;
    int32_t count;
    const fig_variant *candidates = fig_traits_variants(&target->traits, &count);
    assert(variant >= 0 && variant < count);
    if (target->deterministic) return variant == 0;
    if (fig_split_classes_find(view, &classes) != FIG_OK) return 1;
    for (int32_t smaller = 0; smaller < variant; smaller++) {
        int alike = 1;
        for (int32_t i = 0; i < classes.count; i++) {
            const fig_variant own = resolve(&candidates[variant], &classes.of[i], target);
            const fig_variant other = resolve(&candidates[smaller], &classes.of[i], target);
            alike &= reads_alike(&own, &other);
        }
        if (alike) return 0;
    }
    return 1;
}

/* ---- Launches -------------------------------------------------------------------------------- */

static fig_launch launch_of(uint32_t op) {
    fig_launch launch = {.op = op, .split_class = UINT32_MAX};
    if (op != FIG_OP_CALL) launch.params_bytes = fig_kernel_table[op].params_bytes;
    return launch;
}

static uint32_t launches_of(const fig_node *node) {
    if (node->op == FIG_OP_CALL || fig_kernel_table[node->op].then == 0) return 1;
    return 2;
}

static void add_launch(fig_lowered *lowered, uint32_t op, uint32_t node, uint32_t split_class) {
    fig_launch launch = launch_of(op);
    launch.node = node;
    launch.node_count = 1;
    launch.split_class = split_class;
    lowered->launches[lowered->launch_count++] = launch;
}

/* Each node becomes a launch of its own or two, of which the last is of its split class. */
static void make_node_launches(const fig_launch_source *source, fig_lowered *lowered) {
    const fig_program_view *view = source->view;
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        const uint32_t split_class = fig_split_classes_index(source->classes, view, node);
        const uint32_t first = lowered->launch_count;
        if (launches_of(node) == 1) {
            add_launch(lowered, node->op, n, split_class);
        } else {
            add_launch(lowered, node->op, n, UINT32_MAX);
            add_launch(lowered, fig_kernel_table[node->op].then, n, split_class);
        }
        lowered->node_launches[n] = (fig_launch_range){first, lowered->launch_count - first};
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

uint32_t fig_lower_launch_count(const fig_program_view *view) {
    uint32_t count = 1;
    for (uint32_t n = 0; n < view->node_count; n++)
        count += launches_of(&view->nodes[n]);
    return count;
}

static fig_status make_launches(const fig_launch_source *source, fig_lowered *lowered) {
    const fig_program_view *view = source->view;
    const uint32_t count = fig_lower_launch_count(view);
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

void fig_lower_finish(fig_lowered *lowered) {
    free(lowered->launches);
    free(lowered->node_launches);
    free(lowered->relocs);
    free(lowered->params);
    memset(lowered, 0, sizeof *lowered);
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

/* The nodes' edges, from the last launch of a node to the first of another; between the launches of
 * a node; what fetches and what makes the plan before all, since all read it; and, because the
 * launches of a split class share partials and counters, each of them after the one before. */
static fig_status make_edges(const fig_program_view *view, const fig_lowered *lowered,
                             fig_lower_order *order) {
    uint32_t last[FIG_CLASS_LIMIT] = {0}, count = 0;
    const fig_launch_range *ranges = lowered->node_launches;
    const uint32_t planned = fig_program_reads_lengths(view) ? ranges[0].first : 0;
    const size_t limit = (size_t)view->edge_count + 4 * (size_t)lowered->launch_count;
    fig_edge *edges = calloc(limit, sizeof *edges);
    if (edges == NULL) return fig_fail(FIG_NOMEM, "edges: %zu of %zu bytes", limit, sizeof *edges);
    order->edges = edges;
    for (uint32_t i = 0; i < view->edge_count; i++) {
        const fig_launch_range *from = &ranges[view->edges[i].from];
        const uint32_t to = ranges[view->edges[i].to].first;
        edges[count++] = (fig_edge){from->first + from->count - 1, to};
    }
    for (uint32_t to = 1; to < lowered->launch_count; to++) {
        const uint32_t split_class = lowered->launches[to].split_class;
        edges[count++] = (fig_edge){0, to};
        if (planned != 0 && to > planned) edges[count++] = (fig_edge){planned, to};
        if (ranges[lowered->launches[to].node].first < to) edges[count++] = (fig_edge){to - 1, to};
        if (split_class == UINT32_MAX) continue;
        if (last[split_class] != 0) edges[count++] = (fig_edge){last[split_class], to};
        last[split_class] = to;
    }
    order->edge_count = count;
    return fig_edges_reduce(edges, &order->edge_count);
}

void fig_lower_order_finish(fig_lower_order *order) {
    free(order->edges);
    free(order->haste);
    memset(order, 0, sizeof *order);
}

fig_status fig_lower_order_init(fig_lower_order *order, const fig_program_view *view) {
    fig_split_classes classes;
    fig_lowered lowered = {0};
    memset(order, 0, sizeof *order);
    FIG_TRY(fig_split_classes_find(view, &classes));
    const fig_launch_source source = {.view = view, .classes = &classes};
    fig_status status = make_launches(&source, &lowered);
    if (status == FIG_OK) status = make_edges(view, &lowered, order);
    lowered.edges = order->edges;
    lowered.edge_count = order->edge_count;
    if (status == FIG_OK) status = fig_haste_find(&order->haste, view, &lowered);
    fig_lower_finish(&lowered);
    if (status != FIG_OK) fig_lower_order_finish(order);
    return status;
}

/* Params hold of a bucket where the sections of its plan lie, its rows, its splits but for their
 * limits, and what its variants say to a kernel. */
int fig_lower_alike(const fig_bucket_shape *a, const fig_bucket_shape *b) {
    const fig_plan_shape *x = &a->plan, *y = &b->plan;
    if (x->row_limit != y->row_limit || x->class_count != y->class_count) return 0;
    for (int32_t i = 0; i < x->class_count; i++) {
        if (memcmp(&x->splits[i], &y->splits[i], offsetof(fig_split_shape, tile_limit)) != 0)
            return 0;
        if (a->variants[i].heads != b->variants[i].heads) return 0;
        if (a->variants[i].stages != b->variants[i].stages) return 0;
    }
    return memcmp(&x->layout, &y->layout, sizeof x->layout) == 0;
}
static_assert(offsetof(fig_split_shape, tile_limit) + sizeof(int32_t) == sizeof(fig_split_shape),
              "all before it is compared");

static void fill_haste(const uint32_t *haste, fig_lowered *lowered) {
    for (uint32_t i = 0; i < lowered->launch_count; i++) {
        const fig_launch *launch = &lowered->launches[i];
        if (launch->op == FIG_OP_CALL) continue;
        const fig_kernel *kernel = &fig_kernel_table[launch->op];
        for (uint32_t j = 0; j < kernel->field_count; j++) {
            if (kernel->fields[j].kind != FIG_FIELD_HASTE) continue;
            memcpy(lowered->params + launch->params + kernel->fields[j].offset, &haste[i],
                   sizeof haste[i]);
        }
    }
}

fig_status fig_lower_bucket(const fig_lower_source *from, const fig_bucket_shape *shape,
                            fig_lowered *lowered) {
    fig_split_classes classes;
    const fig_launch_source source = {from->view, &classes, from->workspace, shape};
    memset(lowered, 0, sizeof *lowered);
    FIG_TRY(fig_split_classes_find(from->view, &classes));
    assert(classes.count == shape->plan.class_count);
    fig_status status = make_launches(&source, lowered);
    if (status != FIG_OK) {
        fig_lower_finish(lowered);
        return status;
    }
    fill_launches(&source, lowered);
    lowered->edges = from->order->edges;
    lowered->edge_count = from->order->edge_count;
    fill_haste(from->order->haste, lowered);
    return FIG_OK;
}

uint64_t fig_lower_digest(const fig_lowered *lowered) {
    uint64_t digest = 0;
    digest =
        fig_hash_mix(digest, lowered->launches, lowered->launch_count * sizeof *lowered->launches);
    digest = fig_hash_mix(digest, lowered->edges, lowered->edge_count * sizeof *lowered->edges);
    digest = fig_hash_mix(digest, lowered->relocs, lowered->reloc_count * sizeof *lowered->relocs);
    return fig_hash_mix(digest, lowered->params, lowered->params_bytes);
}
