/* lower.c: a program, a bucket and a machine's traits in; launches out.
 *
 * Owns how a bucket is split, which launches there are and their order; leaves what a launch holds
 * to launch.c. What all buckets have in common is made once, for loading a file lowers each of its
 * buckets. Invariant: nothing here reads an address, a clock or the machine it runs on. */
#include "graphs/lower.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/hash.h"
#include "graphs/haste.h"
#include "kernels/form.h"
#include "planner/bounds.h"
#include "planner/offer.h"
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

/* Kernels on tensor cores read whole strips, and have so many warps at most: no more heads than
 * those serve, and tiles of whole strips. Where tokens are short a strip has more of them. Where
 * one head has more vectors than all warps, the kernel that serves has nothing to fit. */
static void fit_kernels(const fig_split_class *own, const fig_traits *traits,
                        fig_variant *variant) {
    const int32_t vectors = own->q_heads / own->kv_heads * own->row_tokens;
    const int32_t heads = fig_form_heads(vectors);
    if (traits->compute_capability < FIG_FORM_CAPABILITY || own->value_bytes > 2 || heads < 1)
        return;
    if (variant->heads > heads) variant->heads = fig_split_classes_heads(own, heads);
    variant->tile_tokens *= fig_form_steps(own->value_bytes, own->head_dim);
    const int32_t strip =
        fig_form_strip(own->value_bytes, own->head_dim, fig_form_sets(variant->heads, vectors));
    if (variant->tile_tokens < strip) variant->tile_tokens = strip;
}

/* What a machine's candidate is for the class of that index. */
static fig_variant resolve(const fig_split_classes *classes, int32_t index,
                           const fig_lower_target *target, int32_t number) {
    const fig_split_class *own = &classes->of[index];
    fig_variant variant = fig_traits_variant(&target->traits, number, own->value_bytes);
    variant.heads = fig_split_classes_heads(own, variant.heads);
    fit_kernels(own, &target->traits, &variant);
    if (target->deterministic) variant.tile_tokens = FIG_FIXED_TILE_TOKENS;
    const fig_tuned *tuned = fig_tuning_find(&target->tuning, &target->traits, index, number);
    if (tuned != NULL && fig_tuning_fits(tuned, &variant)) variant = tuned->variant;
    return variant;
}

/* What a machine's candidates are for each class, each looked up once however many buckets have it:
 * a file may hold many records of tuning. */
typedef struct variant_table {
    int known[FIG_VARIANT_LIMIT];
    fig_variant of[FIG_VARIANT_LIMIT][FIG_CLASS_LIMIT];
} variant_table;

static fig_status take_variants(const fig_split_classes *classes, const fig_lower_target *target,
                                variant_table *table, fig_bucket_shape *shape) {
    const int32_t count = fig_traits_variant_count(&target->traits), number = shape->variant;
    if (number < 0 || number >= count)
        return fig_fail(FIG_INVALID, "bucket: variant is %" PRId32 ", limits 0 to %" PRId32, number,
                        count - 1);
    for (int32_t i = 0; i < classes->count && !table->known[number]; i++)
        table->of[number][i] = resolve(classes, i, target, number);
    table->known[number] = 1;
    for (int32_t i = 0; i < classes->count; i++)
        shape->variants[i] = table->of[number][i];
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

/* Stretches that a segment may be long and is one worker's still. A worker that reads 16 bits a
 * value has twice its part of the memory's speed while half of the machine is idle; one that reads
 * 8 bits has no more than its part at any time, for what it does with them. */
static int64_t whole_stretches(int64_t segments, int64_t places, int32_t value_bytes) {
    if (value_bytes != 2 || segments >= places || segments < places / 8) return 1;
    return segments * 8 >= places * 3 ? 4 : 2;
}

/* Workers that the fullest step has work for. On a GPU a worker's beginning, its end and the merge
 * of what it leaves take as long as reading a few tiles, and half of the machine lets the next
 * launch begin beside this one. So where half is enough each worker reads STRETCH_BYTES, or a
 * segment that is not much longer, but where few would and rows are cut all the same. */
enum { STRETCH_BYTES = 65536 };
static int64_t busy_workers(const fig_lower_target *target, const fig_bucket *caps,
                            const fig_split_shape *split, int32_t token_bytes,
                            int32_t value_bytes) {
    const int64_t tiles = split->tile_limit, segments = (int64_t)caps->batch * split->groups;
    const int64_t places = target->traits.compute_capability > 0 ? target->traits.sm_count : 0;
    int64_t tokens = segments * caps->kv;
    if (tokens > tiles * split->tile_tokens) tokens = tiles * split->tile_tokens;
    const int64_t stretches = (tokens * token_bytes + STRETCH_BYTES - 1) / STRETCH_BYTES;
    if (split->tile_tokens * token_bytes >= STRETCH_BYTES) return tiles;
    if (stretches > segments &&
        stretches <= segments * whole_stretches(segments, places, value_bytes))
        return segments;
    if (stretches > places / 2) return tiles;
    return stretches > places / 8 || stretches <= segments ? stretches : tiles;
}

/* Workers of a bucket of short rows, a cluster's for each kv head of a row, and its tiles, as long
 * as a block's turn; 0: it is none. Blocks of eight warps are left to rows that four do not see at
 * once, of codes in two turns: one to an SM, the clusters of two launches have no room beside each
 * other. */
static int64_t short_workers(const fig_lower_target *target, const fig_bucket *caps,
                             const fig_split_class *own, fig_split_shape *split) {
    const int64_t segments = (int64_t)caps->batch * split->groups;
    const int32_t window = own->window > 0 ? own->window + FIG_FORM_TOKENS : caps->kv;
    if (target->traits.compute_capability != FIG_FORM_CAPABILITY_OF_BULK || !own->may_be_short ||
        split->fixed || split->groups != own->kv_heads)
        return 0;
    const int32_t tokens = fig_size_min(caps->kv, window), places = target->traits.sm_count;
    const int32_t turn = FIG_FORM_SHORT_LIMIT * FIG_FORM_TOKENS;
    const int32_t wide = fig_form_short_warps(own->head_dim, turn);
    const int32_t abreast = own->value_bytes == 1 ? FIG_FORM_SHORT_ABREAST : 1;
    const int32_t most = abreast * FIG_FORM_SHORT_BLOCKS * FIG_FORM_SHORT_WARPS * FIG_FORM_TOKENS;
    int32_t blocks = 0;
    if (wide == FIG_FORM_SHORT_LIMIT && tokens > most)
        blocks = fig_form_short_blocks(segments, tokens, wide, own->value_bytes, places);
    if (blocks == FIG_FORM_SHORT_BLOCKS) {
        split->tile_tokens = turn;
        return segments * blocks;
    }
    blocks =
        fig_form_short_blocks(segments, tokens, FIG_FORM_SHORT_WARPS, own->value_bytes, places);
    if (blocks > 0) split->tile_tokens = FIG_FORM_SHORT_WARPS * FIG_FORM_TOKENS;
    return segments * blocks;
}

/* One worker for each place of the machine, but no more than the fullest step has work for. */
static fig_status shape_workers(const fig_lower_target *target, int32_t kv_limit,
                                const fig_split_class *own, fig_bucket_shape *shape,
                                int32_t index) {
    const fig_bucket *caps = &shape->caps;
    fig_split_shape *split = &shape->plan.splits[index];
    const int64_t clustered = short_workers(target, caps, own, split);
    const int64_t tokens = (int64_t)caps->batch * caps->kv;
    const int64_t tiles = fig_bounds_tiles(split, tokens, kv_limit) * split->groups;
    if (tiles > INT32_MAX)
        return fig_fail(FIG_TOO_LARGE,
                        "bucket %" PRId32 " x %" PRId32 ": %" PRId64 " tiles in %" PRId32
                        " head groups, limit %" PRId32,
                        caps->batch, caps->kv, tiles, split->groups, INT32_MAX);
    split->tile_limit = (int32_t)tiles;
    const int64_t busy =
        busy_workers(target, caps, split, shape->token_bytes[index], own->value_bytes);
    int64_t workers = (int64_t)target->traits.sm_count * shape->variants[index].workers_per_sm;
    if (workers > FIG_WORKER_LIMIT) workers = FIG_WORKER_LIMIT;
    if (own->value_bytes == 2 && target->traits.compute_capability > 0)
        shape->places[index] = (int32_t)workers;
    /* Where nearly all have work all get some, so that an exec is shared with larger buckets. */
    if (busy * 4 < workers * 3) workers = busy;
    if (workers > tiles) workers = tiles;
    shape->is_short[index] = clustered > 0;
    if (clustered > 0) workers = clustered;
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
        FIG_TRY(shape_workers(target, view->spec.kv_limit, own, shape, i));
    }
    shape->plan.row_limit = shape->caps.batch;
    shape->plan.row_tokens = view->spec.row_tokens;
    shape->plan.class_count = classes->count;
    fig_plan_lay_out(&shape->plan);
    return FIG_OK;
}

static fig_status fill_shape(const fig_program_view *view, const fig_lower_target *target,
                             const fig_split_classes *classes, variant_table *table,
                             fig_bucket_shape *shape) {
    *shape = (fig_bucket_shape){.caps = shape->caps, .variant = shape->variant};
    FIG_TRY(check_caps(&view->spec, target, shape));
    FIG_TRY(take_variants(classes, target, table, shape));
    return shape_classes(view, target, classes, shape);
}

fig_status fig_lower_shapes(const fig_program_view *view, const fig_lower_target *target,
                            fig_bucket_shape *shapes, uint32_t count) {
    fig_split_classes classes;
    variant_table table = {.known = {0}};
    FIG_TRY(fig_split_classes_find(view, &classes));
    for (uint32_t i = 0; i < count; i++)
        FIG_TRY(fill_shape(view, target, &classes, &table, &shapes[i]));
    return FIG_OK;
}

fig_status fig_lower_shape(const fig_program_view *view, const fig_lower_target *target,
                           uint32_t exec, fig_bucket_shape *shape) {
    FIG_TRY(fig_lower_shapes(view, target, shape, 1));
    shape->plan.exec = exec;
    return FIG_OK;
}

/* ---- Variants that a bucket offers ----------------------------------------------------------- */

static int reads_alike(const fig_variant *a, const fig_variant *b) {
    return a->heads == b->heads && a->tile_tokens == b->tile_tokens &&
           a->workers_per_sm == b->workers_per_sm && a->stages == b->stages;
}

int fig_lower_variant_serves(const fig_program_view *view, const fig_lower_target *target,
                             int32_t variant) {
    fig_split_classes classes;
    assert(variant >= 0 && variant < fig_traits_variant_count(&target->traits));
    if (target->deterministic) return variant == 0;
    if (fig_split_classes_find(view, &classes) != FIG_OK) return 1;
    for (int32_t smaller = 0; smaller < variant; smaller++) {
        int alike = 1;
        for (int32_t i = 0; i < classes.count; i++) {
            const fig_variant own = resolve(&classes, i, target, variant);
            const fig_variant other = resolve(&classes, i, target, smaller);
            alike &= reads_alike(&own, &other);
        }
        if (alike) return 0;
    }
    return 1;
}

fig_status fig_lower_offer(const fig_program_view *view, const fig_lower_target *target,
                           const fig_bucket *buckets, int32_t index, uint32_t *offered) {
    fig_bucket_shape candidates[FIG_VARIANT_LIMIT];
    int32_t numbers[FIG_VARIANT_LIMIT], count = 0;
    *offered = 0;
    for (int32_t n = 0; n < fig_traits_variant_count(&target->traits); n++) {
        if (!fig_lower_variant_serves(view, target, n)) continue;
        candidates[count].caps = buckets[index];
        candidates[count].variant = numbers[count] = n;
        FIG_TRY(fig_lower_shape(view, target, 0, &candidates[count]));
        count++;
    }
    const fig_offer_range range = fig_offer_range_of(buckets, index, view->spec.kv_limit);
    const uint32_t chosen = fig_offer_choose(candidates, count, &range);
    for (int32_t i = 0; i < count; i++)
        *offered |= (chosen >> i & 1) << numbers[i];
    return FIG_OK;
}

/* ---- What buckets have in common ------------------------------------------------------------- */

static fig_launch launch_of(uint32_t op) {
    fig_launch launch = {.op = op, .split_class = UINT32_MAX};
    if (op != FIG_OP_CALL) launch.params_bytes = fig_kernel_table[op].params_bytes;
    return launch;
}

static uint32_t launches_of(const fig_program_view *view, const fig_node *node) {
    if (node->op == FIG_OP_CALL || fig_kernel_table[node->op].then == 0) return 1;
    return fig_program_view_is_split(view, node) ? 2 : 1;
}

static void add_launch(fig_lower_common *common, uint32_t op, uint32_t node, uint32_t split_class) {
    fig_launch launch = launch_of(op);
    launch.node = node;
    launch.node_count = 1;
    launch.split_class = split_class;
    common->launches[common->launch_count++] = launch;
}

/* Each node becomes a launch of its own or two, of which the last is of its split class. */
static void make_node_launches(fig_lower_common *common) {
    const fig_program_view *view = common->view;
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        const uint32_t split_class = fig_split_classes_index(&common->classes, view, node);
        const uint32_t first = common->launch_count;
        if (launches_of(view, node) == 1) {
            add_launch(common, node->op, n, split_class);
        } else {
            add_launch(common, node->op, n, UINT32_MAX);
            add_launch(common, fig_kernel_table[node->op].then, n, split_class);
        }
        common->node_launches[n] = (fig_launch_range){first, common->launch_count - first};
    }
}

/* Sets where each launch's params lie; returns the most relocations that they can have. */
static uint32_t lay_out_params(fig_lower_common *common) {
    uint32_t reloc_limit = 0;
    for (uint32_t i = 0; i < common->launch_count; i++) {
        fig_launch *launch = &common->launches[i];
        launch->params = common->params_bytes;
        common->params_bytes += (uint32_t)fig_size_align(launch->params_bytes, PARAMS_UNIT);
        if (launch->op != FIG_OP_CALL) reloc_limit += fig_kernel_table[launch->op].field_count;
    }
    return reloc_limit;
}

uint32_t fig_lower_launch_count(const fig_program_view *view) {
    uint32_t count = 1;
    for (uint32_t n = 0; n < view->node_count; n++)
        count += launches_of(view, &view->nodes[n]);
    return count;
}

static fig_status make_launches(fig_lower_common *common) {
    const uint32_t count = fig_lower_launch_count(common->view);
    common->launches = calloc(count, sizeof *common->launches);
    common->node_launches = calloc(count, sizeof *common->node_launches);
    if (common->launches == NULL || common->node_launches == NULL)
        return fig_fail(FIG_NOMEM, "graphs: %u launches of %zu bytes", count,
                        sizeof *common->launches);
    common->launches[common->launch_count++] = launch_of(FIG_OP_FETCH);
    make_node_launches(common);
    return FIG_OK;
}

static fig_status fill_launches(fig_lower_common *common, const fig_workspace *workspace) {
    fig_launch_memo memo = {.count = 0};
    const fig_launch_source source = {
        .view = common->view, .classes = &common->classes, .workspace = workspace, .memo = &memo};
    const uint32_t reloc_limit = lay_out_params(common);
    if (common->params_bytes > FIG_LOWER_PARAMS_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "graphs: %u bytes of params in all launches, limit %d",
                        common->params_bytes, FIG_LOWER_PARAMS_LIMIT);
    common->params = calloc(1, common->params_bytes);
    common->relocs = calloc(reloc_limit, sizeof *common->relocs);
    if (common->params == NULL || common->relocs == NULL)
        return fig_fail(FIG_NOMEM, "graphs: %u bytes of params and %u relocations",
                        common->params_bytes, reloc_limit);
    for (uint32_t i = 0; i < common->launch_count; i++) {
        fig_launch *launch = &common->launches[i];
        launch->reloc = common->reloc_count;
        if (launch->op == FIG_OP_CALL) continue;
        fig_launch_fill(launch, &source, common->params + launch->params,
                        common->relocs + launch->reloc);
        common->reloc_count += launch->reloc_count;
        if (memo.is_full)
            return fig_fail(FIG_TOO_LARGE, "node %u: more than %d kinds of RoPE without a table",
                            launch->node, FIG_LAUNCH_ROPE_LIMIT);
    }
    return FIG_OK;
}

/* The nodes' edges, from the last launch of a node to the first of another; between the launches of
 * a node; what fetches and what makes the plan before all, since all read it; and, because the
 * launches of a split class share partials and counters, each of them after the one before. */
static fig_status make_edges(fig_lower_common *common) {
    uint32_t last[FIG_CLASS_LIMIT] = {0}, count = 0;
    const fig_program_view *view = common->view;
    const fig_launch_range *ranges = common->node_launches;
    const uint32_t planned = fig_program_view_reads_lengths(view) ? ranges[0].first : 0;
    const size_t limit = (size_t)view->edge_count + 4 * (size_t)common->launch_count;
    fig_edge *edges = calloc(limit, sizeof *edges);
    if (edges == NULL) return fig_fail(FIG_NOMEM, "edges: %zu of %zu bytes", limit, sizeof *edges);
    common->edges = edges;
    for (uint32_t i = 0; i < view->edge_count; i++) {
        const fig_launch_range *from = &ranges[view->edges[i].from];
        const uint32_t to = ranges[view->edges[i].to].first;
        edges[count++] = (fig_edge){from->first + from->count - 1, to};
    }
    for (uint32_t to = 1; to < common->launch_count; to++) {
        const uint32_t split_class = common->launches[to].split_class;
        edges[count++] = (fig_edge){0, to};
        if (planned != 0 && to > planned) edges[count++] = (fig_edge){planned, to};
        if (ranges[common->launches[to].node].first < to) edges[count++] = (fig_edge){to - 1, to};
        if (split_class == UINT32_MAX) continue;
        if (last[split_class] != 0) edges[count++] = (fig_edge){last[split_class], to};
        last[split_class] = to;
    }
    common->edge_count = count;
    return fig_edges_reduce(edges, &common->edge_count);
}

uint64_t fig_lower_common_digest(const fig_lower_common *common) {
    uint64_t digest = 0;
    digest =
        fig_hash_mix(digest, common->launches, common->launch_count * sizeof *common->launches);
    digest = fig_hash_mix(digest, common->edges, common->edge_count * sizeof *common->edges);
    digest = fig_hash_mix(digest, common->relocs, common->reloc_count * sizeof *common->relocs);
    digest = fig_hash_mix(digest, common->haste, common->launch_count * sizeof *common->haste);
    digest = fig_hash_mix(digest, common->view->tensors,
                          common->view->tensor_count * sizeof *common->view->tensors);
    return fig_hash_mix(digest, common->params, common->params_bytes);
}

void fig_lower_common_finish(fig_lower_common *common) {
    free(common->launches);
    free(common->node_launches);
    free(common->edges);
    free(common->relocs);
    free(common->haste);
    free(common->params);
    memset(common, 0, sizeof *common);
}

fig_status fig_lower_common_init(fig_lower_common *common, const fig_program_view *view,
                                 const fig_workspace *workspace) {
    memset(common, 0, sizeof *common);
    common->view = view;
    FIG_TRY(fig_split_classes_find(view, &common->classes));
    fig_status status = make_launches(common);
    if (status == FIG_OK) status = fill_launches(common, workspace);
    if (status == FIG_OK) status = make_edges(common);
    if (status == FIG_OK) status = fig_haste_find(common);
    if (status != FIG_OK) {
        fig_lower_common_finish(common);
        return status;
    }
    common->digest = fig_lower_common_digest(common);
    return FIG_OK;
}

/* ---- Buckets --------------------------------------------------------------------------------- */

/* What params hold of a bucket: where the sections of its plan lie, its rows, its splits but for
 * their limits, and what its variants say to a kernel. */
typedef struct held {
    fig_plan_layout layout;
    int32_t row_limit, row_tokens, class_count;
    int32_t heads[FIG_CLASS_LIMIT], stages[FIG_CLASS_LIMIT];
    fig_split_shape splits[FIG_CLASS_LIMIT];
} held;
static_assert(sizeof(held) == sizeof(fig_plan_layout) +
                                  sizeof(int32_t) * (3 + 2 * FIG_CLASS_LIMIT) +
                                  sizeof(fig_split_shape) * FIG_CLASS_LIMIT,
              "its bytes are compared");

static held held_of(const fig_bucket_shape *shape) {
    const fig_plan_shape *plan = &shape->plan;
    held of = {.layout = plan->layout,
               .row_limit = plan->row_limit,
               .row_tokens = plan->row_tokens,
               .class_count = plan->class_count};
    for (int32_t i = 0; i < plan->class_count; i++) {
        of.heads[i] = shape->variants[i].heads;
        of.stages[i] = shape->variants[i].stages;
        of.splits[i] = plan->splits[i];
        of.splits[i].tile_limit = 0;
    }
    return of;
}

int fig_lower_alike(const fig_bucket_shape *a, const fig_bucket_shape *b) {
    const held x = held_of(a), y = held_of(b);
    return memcmp(&x, &y, sizeof x) == 0;
}

uint64_t fig_lower_shape_digest(const fig_bucket_shape *shape) {
    const held of = held_of(shape);
    return fig_hash_mix(0, &of, sizeof of);
}

uint64_t fig_lower_digest(const fig_lower_common *common, uint64_t shape_digest) {
    return fig_hash_mix(common->digest, &shape_digest, sizeof shape_digest);
}

void fig_lower_finish(fig_lowered *lowered) {
    free(lowered->params);
    memset(lowered, 0, sizeof *lowered);
}

fig_status fig_lower_bucket(const fig_lower_common *common, const fig_bucket_shape *shape,
                            fig_lowered *lowered) {
    const fig_launch_source source = {
        .view = common->view, .classes = &common->classes, .shape = shape};
    assert(common->classes.count == shape->plan.class_count);
    memset(lowered, 0, sizeof *lowered);
    uint8_t *params = aligned_alloc(PARAMS_UNIT, common->params_bytes);
    if (params == NULL)
        return fig_fail(FIG_NOMEM, "bucket: %u bytes of params", common->params_bytes);
    memcpy(params, common->params, common->params_bytes);
    for (uint32_t i = 0; i < common->launch_count; i++) {
        const fig_launch *launch = &common->launches[i];
        if (launch->op == FIG_OP_CALL) continue;
        fig_launch_fill_bucket(launch, &source, common->haste[i], params + launch->params);
    }
    *lowered = (fig_lowered){.launches = common->launches,
                             .node_launches = common->node_launches,
                             .edges = common->edges,
                             .relocs = common->relocs,
                             .params = params,
                             .launch_count = common->launch_count,
                             .edge_count = common->edge_count,
                             .reloc_count = common->reloc_count,
                             .params_bytes = common->params_bytes};
    return FIG_OK;
}
