/* lower.c: lowers a program to launches, for a bucket and a machine's traits.
 *
 * Owns how a bucket is split, and the list and order of its launches; launch.c fills in each
 * launch. The parts that all buckets share are made once, because loading a file lowers each of its
 * buckets. Invariant: nothing here depends on an address, a clock or the machine on which it
 * runs. */
#include "graphs/lower/lower.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/lower/early_reads.h"
#include "graphs/lower/fitting.h"
#include "graphs/lower/launch_list.h"
#include "graphs/lower/variants.h"
#include "graphs/view/hash.h"
#include "kernels/attention/geometry.h"
#include "kernels/latent/latent_short.h"
#include "kernels/latent/latent_wide.h"
#include "kernels/wide/wide.h"
#include "planner/size.h"
#include "planner/spec/spec.h"
#include "planner/split/bounds.h"
#include "planner/status.h"

enum { PARAMS_UNIT = 64 }; /* the alignment of a tensor map, which params may hold */
/* more bytes than all sections of a plan but the strips have: rows, queries and splits */
enum { OTHER_SECTIONS = 1 << 20 };

/* ---- Shape ----------------------------------------------------------------------------------- */

int32_t fig_lower_query_limit(const fig_spec *spec, const fig_bucket *caps) {
    const int64_t all = (int64_t)caps->batch * spec->row_tokens;
    return (int32_t)(spec->query_limit < all ? spec->query_limit : all);
}

/* Returns the most query tokens of a step in a bucket of this size. */
static int32_t limit_of_size(const fig_spec *spec, const fig_bucket_shape *shape) {
    return shape->queries > 0 ? shape->queries : fig_lower_query_limit(spec, &shape->caps);
}

int fig_lower_may_be_ones(const fig_spec *spec, const fig_bucket_shape *shape) {
    return shape->caps.batch <= limit_of_size(spec, shape);
}

static fig_status check_caps(const fig_spec *spec, const fig_lower_target *target,
                             const fig_bucket_shape *shape) {
    const fig_bucket *caps = &shape->caps;
    if (caps->batch < 1 || caps->batch > spec->batch_limit)
        return fig_fail(FIG_INVALID, "bucket: batch is %" PRId32 ", limits 1 to %" PRId32,
                        caps->batch, spec->batch_limit);
    if (caps->kv < 1 || caps->kv > spec->kv_limit)
        return fig_fail(FIG_INVALID, "bucket: kv is %" PRId32 ", limits 1 to %" PRId32, caps->kv,
                        spec->kv_limit);
    const int32_t most = fig_lower_query_limit(spec, caps);
    if (shape->queries < 0 || (shape->queries > 0 && shape->queries >= most))
        return fig_fail(FIG_INVALID, "bucket: query tokens are %" PRId32 ", limits 0 to %" PRId32,
                        shape->queries, most > 0 ? most - 1 : 0);
    if (target->deterministic && shape->variant != 0)
        return fig_fail(FIG_INVALID,
                        "bucket: variant is %" PRId32 ", it must be 0 where splits are fixed",
                        shape->variant);
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

/* Returns the largest length, in stretches, of a segment that one worker reads uncut. While half of
 * the machine is idle, a worker that reads 16-bit values gets twice its share of the memory's
 * bandwidth. A worker that reads 8-bit values never gets more than its share, because it is limited
 * by their conversion. */
static int64_t whole_stretches(int64_t segments, int64_t places, int32_t value_bytes) {
    if (value_bytes != 2 || segments >= places || segments < places / 8) return 1;
    return segments * 8 >= places * 3 ? 4 : 2;
}

/* Returns the number of workers for which the fullest step has work. On a GPU, starting a worker,
 * ending it and merging its partials take as long as reading a few tiles. Also, a launch that
 * leaves half of the machine free lets the next launch begin beside it. So if half of the machine
 * is enough, each worker reads STRETCH_BYTES, or one segment if a segment is not much longer. As an
 * exception, each tile may have its own worker if only a few workers would have work and rows are
 * cut anyway. */
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

/* Returns the number of blocks of eight warps of a cluster, or 0. If caps.kv is only a capacity,
 * clusters of eight blocks also serve rows twice as long, in two rounds. On an H200, a row of 32/8
 * heads then takes a tenth more than by bulk copies if it fills a capacity of 4096 tokens, but less
 * below 3000, and two thirds at 1024. */
static int32_t wide_blocks(const fig_bucket_shape *shape, int64_t segments, int32_t tokens,
                           int32_t value_bytes, int32_t places) {
    const int32_t warps = FIG_GEOMETRY_SHORT_LIMIT, half = (tokens + 1) / 2;
    int32_t blocks = fig_geometry_short_blocks(segments, tokens, warps, value_bytes, places);
    if (blocks > 0 || !shape->is_loose) return blocks;
    blocks = fig_geometry_short_blocks(segments, half, warps, value_bytes, places);
    return blocks <= FIG_GEOMETRY_SHORT_BLOCKS ? blocks : 0;
}

/* Returns the number of workers of a bucket of short rows, with one cluster for each kv head of a
 * row, or 0 if the bucket's rows are not short. Sets tile_tokens to the tokens that a block reads
 * in one turn. Eight-warp blocks serve only rows that a cluster of four-warp blocks cannot read in
 * one turn (8-bit values: in two turns). The reason is that an SM holds only one eight-warp block,
 * so the clusters of two launches cannot run side by side. */
static int64_t short_workers(const fig_lower_target *target, const fig_bucket_shape *shape,
                             const fig_split_class *own, fig_split_shape *split) {
    const fig_bucket *caps = &shape->caps;
    const int64_t segments = (int64_t)caps->batch * split->groups;
    const int32_t window = own->window > 0 ? own->window + FIG_GEOMETRY_TOKENS : caps->kv;
    if (target->traits.compute_capability != FIG_GEOMETRY_CAPABILITY_OF_BULK ||
        !own->may_be_short || split->fixed || split->groups != own->kv_heads)
        return 0;
    const int32_t tokens = fig_size_min(caps->kv, window), places = target->traits.sm_count;
    const int32_t turn = FIG_GEOMETRY_SHORT_LIMIT * FIG_GEOMETRY_TOKENS;
    const int32_t wide = fig_geometry_short_warps(own->head_dim, turn);
    const int32_t abreast = own->value_bytes == 1 ? FIG_GEOMETRY_SHORT_ABREAST : 1;
    const int32_t most =
        abreast * FIG_GEOMETRY_SHORT_BLOCKS * FIG_GEOMETRY_SHORT_WARPS * FIG_GEOMETRY_TOKENS;
    int32_t blocks = 0;
    if (wide == FIG_GEOMETRY_SHORT_LIMIT && tokens > most)
        blocks = wide_blocks(shape, segments, tokens, own->value_bytes, places);
    if (blocks >= FIG_GEOMETRY_SHORT_BLOCKS) {
        split->tile_tokens = turn;
        return segments * blocks;
    }
    blocks = fig_geometry_short_blocks(segments, tokens, FIG_GEOMETRY_SHORT_WARPS, own->value_bytes,
                                       places);
    if (blocks > 0) split->tile_tokens = FIG_GEOMETRY_SHORT_WARPS * FIG_GEOMETRY_TOKENS;
    return segments * blocks;
}

/* Returns the number of workers of a bucket of short rows over a latent cache, with one cluster for
 * each group of q heads of a row, or 0 if the bucket's rows are not short. */
static int64_t latent_short_workers(const fig_lower_target *target, const fig_bucket_shape *shape,
                                    const fig_split_class *own, const fig_variant *variant,
                                    const fig_split_shape *split) {
    const fig_bucket *caps = &shape->caps;
    const int64_t segments = (int64_t)caps->batch * split->groups;
    const int32_t window = own->window > 0 ? own->window + split->tile_tokens : caps->kv;
    const int32_t tokens = fig_size_min(caps->kv, window);
    if (own->latent_bytes == 0 || variant->stages == 0 || split->fixed) return 0;
    return segments *
           fig_latent_short_blocks(segments, (tokens + split->tile_tokens - 1) / split->tile_tokens,
                                   target->traits.sm_count);
}

/* Returns the number of workers over a latent cache. segments, tiles: the numbers of segments and
 * of whole tiles in a full step. If rows are equally long, some numbers of workers let every cut
 * fall on the end of a segment or divide each segment evenly. The largest such number is used if it
 * leaves at most one worker in IDLE_SHARE idle: a merge, and one more piece of a worker, each take
 * as long as two or three tiles, and long steps are limited by memory or power and not by the
 * number of SMs. If each worker would have only one tile, half of the machine is used: the next
 * launch then begins on the other half, and loads its tiles while this launch still runs. The
 * same holds for more tiles if there are less than FEW segments: with twice the pieces, their merge
 * takes longer than their tiles. */
enum { IDLE_SHARE = 32, FEW = 4 };
static int64_t latent_workers(int64_t places, int64_t segments, int64_t tiles) {
    const int64_t most = segments == 0 || segments > FEW ? places : FEW * places / segments;
    const int64_t workers = tiles > places / 2 && tiles <= most ? places / 2 : places;
    int64_t even = workers;
    if (segments <= 0 || workers == 0) return places;
    if (segments <= workers) {
        even = workers / segments * segments;
    } else {
        const int64_t of_worker = (segments + workers - 1) / workers;
        if (segments % of_worker == 0) even = segments / of_worker;
    }
    return (workers - even) * IDLE_SHARE <= workers ? even : workers;
}

/* Chooses one worker for each place of the machine, but no more workers than the fullest step has
 * work for. */
static fig_status shape_workers(const fig_lower_target *target, int32_t kv_limit,
                                const fig_split_class *own, fig_bucket_shape *shape,
                                int32_t index) {
    const fig_bucket *caps = &shape->caps;
    fig_split_shape *split = &shape->plan.splits[index];
    int64_t clustered = short_workers(target, shape, own, split);
    if (clustered == 0)
        clustered = latent_short_workers(target, shape, own, &shape->variants[index], split);
    const int64_t tokens = (int64_t)caps->batch * caps->kv;
    const int64_t tiles = split->groups * (shape->plan.query_limit > 0
                                               ? fig_bounds_packed_tiles(split, tokens, kv_limit)
                                               : fig_bounds_tiles(split, tokens, kv_limit));
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
    if (own->value_bytes == 2 && own->latent_bytes == 0 && target->traits.compute_capability > 0)
        shape->places[index] = (int32_t)workers;
    if (own->latent_bytes > 0 && fig_latent_is_pair(own->q_heads, own->row_tokens, split->groups))
        workers /= 2;
    if (own->latent_bytes > 0 && target->traits.compute_capability > 0 && !split->fixed)
        workers = latent_workers(workers, (int64_t)caps->batch * split->groups,
                                 tokens / split->tile_tokens * split->groups);
    /* If at least three quarters of the workers have work, launch all of them, so that larger
     * buckets can share the exec. */
    if (busy * 4 < workers * 3) workers = busy;
    if (workers > tiles) workers = tiles;
    shape->is_short[index] = clustered > 0;
    shape->plan.once[index] = clustered > 0 || split->fixed ? 0 : shape->variants[index].once;
    if (clustered > 0) workers = clustered;
    /* A bucket that is too small for one row of row_tokens has no tile, but its grid needs one
     * block. */
    split->workers = workers > 0 ? (int32_t)workers : 1;
    fig_fitting_place(own, &target->traits, split->workers, shape->is_short[index],
                      &shape->variants[index]);
    return FIG_OK;
}

/* Returns the first class in which rows may share tokens, or -1 if there is none. Only one class
 * may share, because the costs of one class decide the groups. On the host, rows share tokens
 * wherever they could on a GPU. The device that makes a plan does not look for groups. */
static int32_t class_that_shares(const fig_program_view *view, const fig_split_classes *classes,
                                 const fig_lower_target *target) {
    const int32_t capability = target->traits.compute_capability;
    if (target->deterministic || fig_program_view_reads_lengths(view) ||
        (capability != 0 && capability != FIG_GEOMETRY_CAPABILITY_OF_BULK))
        return -1;
    for (int32_t i = 0; i < classes->count; i++)
        if (classes->of[i].shared_table != 0) return i;
    return -1;
}

/* Returns 1 if the plan of any bucket has room for these strips. Decides for the program, since all
 * buckets share one record of what the device holds. */
static int have_room(const fig_program_view *view, const fig_strips_shape *strips, int32_t count) {
    const fig_bucket caps = {view->spec.batch_limit, view->spec.kv_limit};
    const fig_plan_shape fullest = {.row_limit = caps.batch,
                                    .query_limit = fig_lower_query_limit(&view->spec, &caps)};
    uint64_t bytes = 0;
    for (int32_t i = 0; i < count; i++) {
        const fig_strips_limits limits =
            fig_plan_strips_limits(&fullest, &strips[i], FIG_NARROW_TOKENS_LIMIT + 1);
        bytes += (uint64_t)fig_strip_sizes_bound(&strips[i], &limits).plan_bytes;
        bytes += fig_plan_tails_bytes(caps.batch);
    }
    return bytes <= FIG_PLAN_BYTES_LIMIT - OTHER_SECTIONS;
}

/* Fills in how the chunks of each class are cut: for all SMs whatever the bucket, so that one
 * workspace and one record of what the device holds serve every bucket. */
static void shape_strips(const fig_program_view *view, const fig_lower_target *target,
                         const fig_split_classes *classes, fig_bucket_shape *shape) {
    const int32_t sms = target->traits.sm_count, sharer = class_that_shares(view, classes, target);
    for (int32_t i = 0; i < classes->count; i++) {
        const fig_split_class *own = &classes->of[i];
        shape->strips[i] =
            (fig_strips_shape){.ratio = own->q_heads / own->kv_heads,
                               .kv_heads = own->kv_heads,
                               .head_dim = own->head_dim,
                               .tile_tokens = fig_wide_tile(own->head_dim),
                               .window = own->window,
                               .workers = sms < FIG_WORKER_LIMIT ? sms : FIG_WORKER_LIMIT,
                               .whole = target->deterministic,
                               .shares = i == sharer,
                               .visible = own->is_masked ? FIG_STRIPS_ALL : FIG_STRIPS_CAUSAL};
    }
    if (sharer >= 0 && !have_room(view, shape->strips, classes->count))
        shape->strips[sharer].shares = 0;
}

/* How fast workers read rows beside chunks, as measured on one H200: bytes in a us of one worker
 * while few others read, if it reads FAST_BYTES of K for a token and each of its warps has the
 * vectors of one kv head, and if not. Then what all workers read beside chunks and without chunks,
 * in parts of the variant's rate. */
enum {
    FAST_BYTES = 512,
    FAST_RATE = 85000,
    SLOW_RATE = 55000,
    BESIDE_PERCENT = 90,
    APART_PERCENT = 95
};

/* Returns how fast a class of the bucket reads, or zeros if its workers are not divided. Only
 * workers of as many heads as possible read tails: these are short, and each one that a worker
 * begins takes as long as 200 KB. */
static fig_division_pace pace_of(const fig_lower_target *target, const fig_split_class *own,
                                 const fig_bucket_shape *shape, int32_t index) {
    const fig_split_shape *split = &shape->plan.splits[index];
    const fig_variant *variant = &shape->variants[index];
    fig_division_pace pace = {0};
    if (target->traits.compute_capability != FIG_GEOMETRY_CAPABILITY_OF_BULK || split->fixed ||
        !own->may_divide)
        return pace;
    const int32_t vectors = own->q_heads / own->kv_heads * own->row_tokens;
    const int32_t is_fast = vectors <= FIG_GEOMETRY_VECTORS &&
                            variant->heads * own->head_dim * own->value_bytes >= FAST_BYTES;
    const int64_t all = (int64_t)variant->bytes_per_us * target->traits.sm_count;
    pace.tile_bytes = split->tile_tokens * shape->token_bytes[index];
    pace.readers = split->workers;
    pace.of_worker = is_fast ? FAST_RATE : SLOW_RATE;
    pace.of_all = all * BESIDE_PERCENT / 100;
    pace.of_all_apart = all * APART_PERCENT / 100;
    const int32_t heads = fig_geometry_heads(vectors);
    pace.serves_tails = shape->form == FIG_FORM_SINGLES && own->shared_table != 0 && heads > 0 &&
                        variant->heads == fig_split_classes_heads(own, heads) &&
                        fig_geometry_serves_tails(own->value_bytes, own->head_dim,
                                                  fig_geometry_sets(variant->heads, vectors));
    return pace;
}

/* Returns the bytes of a token that a worker reads for `heads` kv heads. */
static int32_t bytes_of_token(const fig_split_class *own, int32_t heads) {
    if (own->latent_bytes > 0) return own->latent_bytes;
    return 2 * heads * own->head_dim * own->value_bytes;
}

/* In a bucket of strips, no row is on the line. A plan needs one worker. Then buckets of different
 * kv share an exec. */
static void idle_workers(fig_bucket_shape *shape, int32_t index) {
    shape->plan.splits[index].workers = 1;
    shape->plan.once[index] = 0;
}

/* Returns the most query tokens of a row. */
static int32_t row_tokens_of(const fig_program_view *view, fig_bucket_form form) {
    if (form == FIG_FORM_ONES) return 1;
    return form == FIG_FORM_DRAFTS ? FIG_NARROW_TOKENS_LIMIT : view->spec.row_tokens;
}

static fig_status shape_classes(const fig_program_view *view, const fig_lower_target *target,
                                const fig_split_classes *classes, fig_bucket_shape *shape) {
    shape->plan.query_limit = limit_of_size(&view->spec, shape);
    if (shape->form == FIG_FORM_ONES) shape->plan.query_limit = 0;
    if (shape->form == FIG_FORM_DRAFTS)
        shape->plan.query_limit =
            fig_size_min(shape->plan.query_limit, FIG_NARROW_TOKENS_LIMIT * shape->caps.batch);
    for (int32_t i = 0; i < classes->count; i++) {
        const fig_split_class own = fig_variants_class(classes, i, target, shape->variant);
        fig_split_shape *split = &shape->plan.splits[i];
        split->row_limit = shape->caps.batch;
        shape_tiles(&own, target, &shape->variants[i], split);
        shape->token_bytes[i] = bytes_of_token(&own, own.kv_heads / split->groups);
        FIG_TRY(shape_workers(target, view->spec.kv_limit, &own, shape, i));
        if (shape->form == FIG_FORM_STRIPS) {
            idle_workers(shape, i);
        } else {
            shape->paces[i] = pace_of(target, &own, shape, i);
        }
    }
    shape->plan.row_limit = shape->caps.batch;
    shape->plan.row_tokens = row_tokens_of(view, shape->form);
    shape->plan.class_count = classes->count;
    fig_plan_lay_out(&shape->plan);
    if (classes->has_chunks) shape_strips(view, target, classes, shape);
    return classes->has_chunks && fig_bucket_may_have_strips(shape->form)
               ? fig_plan_add_strips(&shape->plan, shape->strips, FIG_NARROW_TOKENS_LIMIT + 1)
               : FIG_OK;
}

static fig_status check_ones(const fig_spec *spec, const fig_bucket_shape *shape) {
    if (shape->form != FIG_FORM_ONES || fig_lower_may_be_ones(spec, shape)) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "bucket: variant %" PRId32 " has a query token for each of %" PRId32
                    " rows, the limit is %" PRId32,
                    shape->variant, shape->caps.batch, limit_of_size(spec, shape));
}

static fig_status fill_shape(const fig_program_view *view, const fig_lower_target *target,
                             const fig_split_classes *classes, fig_variants_table *table,
                             fig_bucket_shape *shape) {
    *shape = (fig_bucket_shape){.caps = shape->caps,
                                .variant = shape->variant,
                                .queries = shape->queries,
                                .is_loose = shape->is_loose};
    FIG_TRY(check_caps(&view->spec, target, shape));
    FIG_TRY(fig_variants_take(view, classes, target, table, shape));
    shape->form = fig_variants_form(target, shape->variant);
    FIG_TRY(check_ones(&view->spec, shape));
    return shape_classes(view, target, classes, shape);
}

fig_status fig_lower_shapes(const fig_program_view *view, const fig_lower_target *target,
                            fig_bucket_shape *shapes, uint32_t count) {
    fig_split_classes classes;
    fig_variants_table table = {.known = {0}};
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

/* ---- Parts that all buckets share ------------------------------------------------------------ */

/* Sets the offset of each launch's params. Returns an upper bound on the number of relocations. */
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

uint64_t fig_lower_common_digest(const fig_lower_common *common) {
    uint64_t digest = 0;
    digest =
        fig_hash_mix(digest, common->launches, common->launch_count * sizeof *common->launches);
    digest = fig_hash_mix(digest, common->edges, common->edge_count * sizeof *common->edges);
    digest = fig_hash_mix(digest, common->relocs, common->reloc_count * sizeof *common->relocs);
    digest = fig_hash_mix(digest, common->early_reads,
                          common->launch_count * sizeof *common->early_reads);
    digest = fig_hash_mix(digest, common->view->tensors,
                          common->view->tensor_count * sizeof *common->view->tensors);
    return fig_hash_mix(digest, common->params, common->params_bytes);
}

void fig_lower_common_finish(fig_lower_common *common) {
    free(common->launches);
    free(common->node_launches);
    free(common->edges);
    free(common->relocs);
    free(common->early_reads);
    free(common->params);
    memset(common, 0, sizeof *common);
}

fig_status fig_lower_common_init(fig_lower_common *common, const fig_program_view *view,
                                 const fig_workspace *workspace) {
    memset(common, 0, sizeof *common);
    common->view = view;
    FIG_TRY(fig_split_classes_find(view, &common->classes));
    fig_status status = fig_launch_list_make(common);
    if (status == FIG_OK) status = fill_launches(common, workspace);
    if (status == FIG_OK) status = fig_launch_list_join(common);
    if (status == FIG_OK) status = fig_early_reads_find(common);
    if (status != FIG_OK) {
        fig_lower_common_finish(common);
        return status;
    }
    common->digest = fig_lower_common_digest(common);
    return FIG_OK;
}

/* ---- Buckets --------------------------------------------------------------------------------- */

/* The parts of a bucket's shape that params hold: the layout of its plan, its rows, its splits
 * without their tile limits, and the fields of its variants that kernels read. */
typedef struct held {
    fig_plan_layout layout;
    int32_t row_limit, row_tokens, query_limit, class_count;
    int32_t heads[FIG_CLASS_LIMIT], stages[FIG_CLASS_LIMIT];
    fig_split_shape splits[FIG_CLASS_LIMIT];
    int32_t once[FIG_CLASS_LIMIT], is_short[FIG_CLASS_LIMIT];
} held;
static_assert(sizeof(held) == sizeof(fig_plan_layout) +
                                  sizeof(int32_t) * (4 + 4 * FIG_CLASS_LIMIT) +
                                  sizeof(fig_split_shape) * FIG_CLASS_LIMIT,
              "its bytes are compared");

static held held_of(const fig_bucket_shape *shape) {
    const fig_plan_shape *plan = &shape->plan;
    held of = {.layout = plan->layout,
               .row_limit = plan->row_limit,
               .row_tokens = plan->row_tokens,
               .query_limit = plan->query_limit,
               .class_count = plan->class_count};
    for (int32_t i = 0; i < plan->class_count; i++) {
        of.heads[i] = shape->variants[i].heads;
        of.stages[i] = shape->variants[i].stages;
        of.splits[i] = plan->splits[i];
        of.splits[i].tile_limit = 0;
        of.once[i] = plan->once[i];
        of.is_short[i] = shape->is_short[i];
    }
    return of;
}

/* Of the forms whose launches differ, only strips cannot be told by what params hold. */
static int32_t is_of_strips(const fig_bucket_shape *shape) {
    return shape->form == FIG_FORM_STRIPS;
}

int fig_lower_alike(const fig_bucket_shape *a, const fig_bucket_shape *b) {
    const held x = held_of(a), y = held_of(b);
    return is_of_strips(a) == is_of_strips(b) && memcmp(&x, &y, sizeof x) == 0;
}

uint64_t fig_lower_shape_digest(const fig_bucket_shape *shape) {
    const held of = held_of(shape);
    const int32_t strips = is_of_strips(shape);
    const uint64_t digest = fig_hash_mix(0, &of, sizeof of);
    return strips ? fig_hash_mix(digest, &strips, sizeof strips) : digest;
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
        fig_launch_fill_bucket(launch, &source, common->early_reads[i], params + launch->params);
    }
    *lowered = (fig_lowered){.launches = common->launches,
                             .node_launches = common->node_launches,
                             .edges = common->edges,
                             .relocs = common->relocs,
                             .params = params,
                             .launch_count = common->launch_count,
                             .edge_count = common->edge_count,
                             .reloc_count = common->reloc_count,
                             .params_bytes = common->params_bytes,
                             .view = common->view,
                             .form = shape->form};
    return FIG_OK;
}

int fig_lower_is_idle(const fig_lowered *lowered, uint32_t launch) {
    const fig_launch *of = &lowered->launches[launch];
    const int is_beside = fig_launch_list_is_beside(lowered->view, of);
    if (!fig_bucket_may_have_strips(lowered->form)) return is_beside;
    return lowered->form == FIG_FORM_STRIPS && !is_beside && of->split_class != UINT32_MAX;
}
