/* graphs.c: makes graphs by lowering a program for each bucket, and answers questions about them.
 *
 * archiving.c saves graphs, codec.c reads and writes bytes, graphs/inspect inspects graphs, and
 * plan_report.c plans a single step. Invariant: the same function makes new graphs and graphs read
 * from a file, so a file cannot contain anything that lowering would not make. */
#include "graphs/graphs.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/files/file.h"
#include "graphs/files/sections.h"
#include "graphs/lower/launch_list.h"
#include "graphs/lower/variants.h"
#include "graphs/view/score_units.h"
#include "planner/machine/traits.h"
#include "planner/size.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

/* ---- Making ---------------------------------------------------------------------------------- */

static int order_shapes(const fig_bucket_shape *a, const fig_bucket_shape *b) {
    const int by_size = fig_bucket_compare(a, b);
    if (by_size != 0) return by_size;
    return (a->variant > b->variant) - (a->variant < b->variant);
}

static fig_status check_parts(const fig_codec_parts *parts) {
    const uint32_t count = parts->bucket_count;
    if (count < 1 || count > FIG_BUCKET_LIMIT)
        return fig_fail(FIG_INVALID, "graphs: %u buckets, limits 1 to %d", count, FIG_BUCKET_LIMIT);
    for (uint32_t i = 1; i < count; i++) {
        const fig_bucket_shape *last = &parts->buckets[i - 1], *shape = &parts->buckets[i];
        if (order_shapes(last, shape) >= 0)
            return fig_fail(FIG_INVALID,
                            "bucket %u: %" PRId32 " x %" PRId32 ", variant %" PRId32
                            " does not come after the one before",
                            i, shape->caps.batch, shape->caps.kv, shape->variant);
    }
    if (parts->target.deterministic != 0 && parts->target.deterministic != 1)
        return fig_fail(FIG_INVALID, "graphs: deterministic is %" PRId32 ", it must be 0 or 1",
                        parts->target.deterministic);
    return fig_traits_check(&parts->target.traits);
}

/* Returns the exec whose buckets need the same launches as bucket `index`, or exec_count if there
 * is none so far. graphs->digests still holds digests of shapes. `table` is a hash table of values
 * 1 + exec; 0 marks a free place. Sets *at to the place of the exec, or to a free place for a new
 * exec. */
static uint32_t find_alike(const fig_graphs *graphs, uint32_t index, const uint32_t *table,
                           size_t places, size_t *at) {
    *at = graphs->digests[index] % places;
    for (; table[*at] != 0; *at = (*at + 1) % places) {
        const uint32_t exec = table[*at] - 1, other = graphs->exec_buckets[exec];
        if (graphs->digests[other] == graphs->digests[index] &&
            fig_lower_alike(&graphs->buckets[other], &graphs->buckets[index]))
            return exec;
    }
    return graphs->exec_count;
}

/* Gives each bucket its exec. Execs are numbered in the order of their first buckets. */
static fig_status share_execs(fig_graphs *graphs) {
    const size_t places = 2 * (size_t)graphs->bucket_count;
    uint32_t *table = calloc(places, sizeof *table);
    graphs->exec_buckets = calloc(graphs->bucket_count, sizeof *graphs->exec_buckets);
    if (table == NULL || graphs->exec_buckets == NULL) {
        free(table);
        return fig_fail(FIG_NOMEM, "graphs: %u execs", graphs->bucket_count);
    }
    for (uint32_t i = 0; i < graphs->bucket_count; i++) {
        size_t at;
        const uint32_t exec = find_alike(graphs, i, table, places, &at);
        if (exec == graphs->exec_count) table[at] = ++graphs->exec_count;
        graphs->exec_buckets[exec] = i;
        graphs->buckets[i].plan.exec = exec;
    }
    free(table);
    return FIG_OK;
}

/* Checks that some bucket of each size serves every step. Buckets of other forms come last among
 * those of their size. */
static fig_status check_sizes(const fig_graphs *graphs) {
    const fig_bucket_shape *buckets = graphs->buckets;
    for (uint32_t i = 0; i < graphs->bucket_count; i++)
        if (buckets[i].form != FIG_FORM_ANY &&
            (i == 0 || fig_bucket_compare(&buckets[i - 1], &buckets[i]) != 0))
            return fig_fail(FIG_INVALID,
                            "bucket %u: variant %" PRId32
                            " is not for any step, and no other bucket has this size",
                            i, buckets[i].variant);
    return FIG_OK;
}

static fig_status make_shapes(fig_graphs *graphs) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    const uint32_t launch_count = fig_launch_list_count(view);
    const uint64_t launches = (uint64_t)graphs->bucket_count * launch_count;
    if (launches > FIG_LAUNCH_LIMIT)
        return fig_fail(FIG_TOO_LARGE, "graphs: %u buckets of %u launches, limit %d in all",
                        graphs->bucket_count, launch_count, FIG_LAUNCH_LIMIT);
    FIG_TRY(fig_lower_shapes(view, &graphs->target, graphs->buckets, graphs->bucket_count));
    FIG_TRY(check_sizes(graphs));
    graphs->digests = malloc(graphs->bucket_count * sizeof *graphs->digests);
    if (graphs->digests == NULL)
        return fig_fail(FIG_NOMEM, "graphs: digests of %u buckets", graphs->bucket_count);
    for (uint32_t i = 0; i < graphs->bucket_count; i++) {
        const uint32_t bytes = graphs->buckets[i].plan.layout.bytes;
        if (bytes > graphs->plan_bytes) graphs->plan_bytes = bytes;
        graphs->digests[i] = fig_lower_shape_digest(&graphs->buckets[i]);
    }
    FIG_TRY(share_execs(graphs));
    FIG_TRY(fig_workspace_init(&graphs->workspace, view, graphs->buckets, graphs->bucket_count));
    return fig_lower_common_init(&graphs->common, view, &graphs->workspace);
}

/* Replaces the digests of shapes by digests of launches. */
static fig_status make_digests(fig_graphs *graphs) {
    const size_t bytes = graphs->bucket_count * sizeof *graphs->digests;
    for (uint32_t i = 0; i < graphs->bucket_count; i++)
        graphs->digests[i] = fig_lower_digest(&graphs->common, graphs->digests[i]);
    if (graphs->made_digests != NULL) return FIG_OK;
    graphs->made_digests = malloc(bytes);
    if (graphs->made_digests == NULL)
        return fig_fail(FIG_NOMEM, "graphs: %zu bytes of digests", bytes);
    memcpy(graphs->made_digests, graphs->digests, bytes);
    return FIG_OK;
}

/* Copies field by field, so that bytes after the end of the caller's name do not get into a
 * file. */
static fig_traits copy_traits(const fig_traits *given) {
    fig_traits traits = {.size = sizeof traits,
                         .compute_capability = given->compute_capability,
                         .sm_count = given->sm_count,
                         .shared_bytes = given->shared_bytes};
    memcpy(traits.name, given->name, strnlen(given->name, sizeof traits.name));
    return traits;
}

static fig_codec_parts parts_of(const fig_graphs *graphs) {
    return (fig_codec_parts){.program = graphs->program,
                             .target = graphs->target,
                             .buckets = graphs->buckets,
                             .made_digests = graphs->made_digests,
                             .bucket_count = graphs->bucket_count,
                             .maker = graphs->maker,
                             .notes = graphs->notes,
                             .archive = graphs->archive,
                             .changed_kernels = graphs->changed_kernels};
}

static fig_status derive(fig_graphs *graphs) {
    FIG_TRY(make_shapes(graphs));
    FIG_TRY(make_digests(graphs));
    const fig_codec_parts parts = parts_of(graphs);
    return fig_codec_content_id(&parts, graphs->content_id);
}

fig_status fig_graphs_assemble(fig_graphs **out, fig_codec_parts *parts) {
    fig_status status = check_parts(parts);
    fig_graphs *graphs = status == FIG_OK ? calloc(1, sizeof *graphs) : NULL;
    *out = NULL;
    if (graphs == NULL) {
        fig_codec_finish(parts);
        return status != FIG_OK ? status : fig_fail(FIG_NOMEM, "graphs: %zu bytes", sizeof *graphs);
    }
    graphs->program = parts->program;
    graphs->target = (fig_lower_target){.traits = copy_traits(&parts->target.traits),
                                        .deterministic = parts->target.deterministic,
                                        .tuning = parts->target.tuning};
    graphs->buckets = parts->buckets;
    graphs->made_digests = parts->made_digests;
    graphs->bucket_count = parts->bucket_count;
    graphs->maker = parts->maker;
    graphs->notes = parts->notes;
    graphs->archive = parts->archive;
    graphs->changed_kernels = parts->changed_kernels;
    graphs->ranks = 1;
    graphs->model = fig_program_view_of(graphs->program)->spec;
    memset(parts, 0, sizeof *parts);
    status = derive(graphs);
    if (status == FIG_OK) {
        *out = graphs;
    } else {
        fig_graphs_destroy(graphs);
    }
    return status;
}

/* Copies the caller's buckets, or makes the ladder if the caller gave none. The caller frees
 * *buckets. */
static fig_status take_buckets(const fig_spec *spec, const fig_lower_options *options,
                               fig_bucket **buckets, int32_t *count) {
    *count = options->bucket_count;
    *buckets = NULL;
    if (options->buckets == NULL && *count != 0)
        return fig_fail(FIG_INVALID, "fig_lower_options: buckets is NULL, bucket_count %" PRId32,
                        *count);
    if (options->buckets == NULL)
        *count = fig_bucket_ladder(spec->batch_limit, spec->kv_limit, NULL, 0);
    if (*count < 1 || *count > FIG_BUCKET_LIMIT)
        return fig_fail(FIG_INVALID,
                        "fig_lower_options: bucket_count is %" PRId32 ", limits 1 to %d", *count,
                        FIG_BUCKET_LIMIT);
    *buckets = calloc((size_t)*count, sizeof **buckets);
    if (*buckets == NULL)
        return fig_fail(FIG_NOMEM, "graphs: %" PRId32 " buckets of %zu bytes", *count,
                        sizeof **buckets);
    if (options->buckets == NULL) {
        fig_bucket_ladder(spec->batch_limit, spec->kv_limit, *buckets, *count);
    } else {
        memcpy(*buckets, options->buckets, (size_t)*count * sizeof **buckets);
    }
    return fig_bucket_normalise(*buckets, count, spec->batch_limit, spec->kv_limit);
}

/* Finds the variants in which a bucket is lowered, as bits: the requested variant or, if `variant`
 * is below 0, the variants that the bucket offers. */
static fig_status take_variants(const fig_program_view *view, const fig_lower_target *target,
                                const fig_bucket *buckets, int32_t index, int32_t variant,
                                uint32_t *variants) {
    const int32_t count = fig_traits_variant_count(&target->traits);
    *variants = 0;
    if (variant < 0) return fig_variants_offer(view, target, buckets, index, variants);
    if (variant >= count)
        return fig_fail(FIG_INVALID, "variant is %" PRId32 ", limits 0 to %" PRId32, variant,
                        count - 1);
    *variants = UINT32_C(1) << variant;
    return FIG_OK;
}

/* The sizes of the buckets to make. */
typedef struct bucket_list {
    fig_bucket *buckets; /* [count] */
    int32_t *queries;    /* [query_count + 1] numbers of query tokens, in order; the last is 0 */
    int32_t count, query_count;
} bucket_list;

static void list_finish(bucket_list *list) {
    free(list->buckets);
    free(list->queries);
}

static int order_numbers(const void *left, const void *right) {
    const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

/* Lists the numbers of query tokens for which the ladder is lowered if rows may be chunks. Each is
 * eight times the one before, because a bucket that is too large for its step costs only thread
 * blocks that end at once. */
static fig_status make_queries(const fig_spec *spec, bucket_list *list) {
    enum { LEAST = 64, RATIO = 8, LIMIT = 8 };
    list->queries = calloc(LIMIT, sizeof *list->queries);
    if (list->queries == NULL) return fig_fail(FIG_NOMEM, "graphs: %d numbers", LIMIT);
    for (int32_t tokens = LEAST; tokens < spec->query_limit; tokens *= RATIO)
        list->queries[list->query_count++] = tokens;
    assert(list->query_count < LIMIT);
    list->queries[list->query_count] = 0;
    return FIG_OK;
}

/* Copies the caller's numbers of query tokens, sorts them and drops repeats. */
static fig_status take_queries(const fig_program_view *view, const fig_lower_options *options,
                               bucket_list *list) {
    const fig_spec *spec = &view->spec;
    const int32_t count = options->query_limit_count;
    if (count < 0 || count > FIG_BUCKET_LIMIT || (count > 0) != (options->query_limits != NULL))
        return fig_fail(FIG_INVALID,
                        "fig_lower_options: query_limit_count is %" PRId32
                        ", limits 0 to %d, and 0 where query_limits is NULL",
                        count, FIG_BUCKET_LIMIT);
    if (count > 0 && spec->query_limit == 0)
        return fig_fail(FIG_INVALID,
                        "fig_lower_options: query_limits must be NULL where the spec's query_limit "
                        "is 0");
    /* Where only the device knows the query tokens, no step could choose such a bucket. */
    if (count == 0 && options->buckets == NULL && fig_program_view_has_chunks(view) &&
        !fig_program_view_reads_lengths(view))
        return make_queries(spec, list);
    list->queries = calloc((size_t)count + 1, sizeof *list->queries);
    if (list->queries == NULL) return fig_fail(FIG_NOMEM, "graphs: %" PRId32 " numbers", count);
    for (int32_t i = 0; i < count; i++) {
        list->queries[i] = options->query_limits[i];
        if (list->queries[i] < 1 || list->queries[i] > FIG_QUERY_LIMIT)
            return fig_fail(FIG_INVALID,
                            "fig_lower_options: query_limits[%" PRId32 "] is %" PRId32
                            ", limits 1 to %d",
                            i, list->queries[i], FIG_QUERY_LIMIT);
    }
    if (count > 0) qsort(list->queries, (size_t)count, sizeof *list->queries, order_numbers);
    for (int32_t i = 0; i < count; i++)
        if (i == 0 || list->queries[i] != list->queries[list->query_count - 1])
            list->queries[list->query_count++] = list->queries[i];
    list->queries[list->query_count] = 0;
    return FIG_OK;
}

/* Adds a bucket in each of its variants: once without a limit on query tokens, and once for each
 * listed number of query tokens that is below the largest number that the bucket's rows may have.
 * Variants for ones and drafts do not depend on that number, so they are added once. */
static void add_shapes(const fig_spec *spec, const fig_lower_target *target,
                       const bucket_list *list, int32_t index, uint32_t variants,
                       fig_bucket_shape *shapes, uint32_t *shape_count) {
    const int32_t most = fig_lower_query_limit(spec, &list->buckets[index]);
    for (int32_t q = 0; q <= list->query_count; q++) {
        if (list->queries[q] >= most && q < list->query_count) continue;
        for (int32_t v = 0; variants >> v != 0; v++) {
            const fig_bucket_shape shape = {
                .caps = list->buckets[index], .queries = list->queries[q], .variant = v};
            const int once = !fig_bucket_may_have_strips(fig_variants_form(target, v));
            if (!(variants >> v & 1) || (once && q < list->query_count)) continue;
            shapes[(*shape_count)++] = shape;
        }
    }
}

/* Makes the shapes of all buckets. The caller frees *shapes. */
static fig_status multiply_buckets(const fig_program_view *view, const fig_lower_target *target,
                                   const bucket_list *list, int32_t variant,
                                   fig_bucket_shape **shapes, uint32_t *shape_count) {
    const int32_t variant_count = FIG_VARIANTS_FORMS * fig_traits_variant_count(&target->traits);
    const uint64_t limit =
        (uint64_t)list->count * (uint64_t)(list->query_count + 1) * (uint64_t)variant_count;
    *shape_count = 0;
    *shapes = calloc(limit, sizeof **shapes);
    if (*shapes == NULL)
        return fig_fail(FIG_NOMEM, "graphs: %" PRIu64 " buckets of %zu bytes", limit,
                        sizeof **shapes);
    for (int32_t i = 0; i < list->count; i++) {
        uint32_t variants;
        FIG_TRY(take_variants(view, target, list->buckets, i, variant, &variants));
        add_shapes(&view->spec, target, list, i, variants, *shapes, shape_count);
    }
    return FIG_OK;
}

static fig_status take_traits(const fig_traits *given, fig_traits *traits) {
    traits->size = sizeof *traits;
    if (given == NULL) return fig_traits_named(traits, "host");
    FIG_TRY(fig_status_take_options(traits, sizeof *traits, given, "fig_traits"));
    const int32_t capability = traits->compute_capability, least = FIG_TRAITS_CAPABILITY_LEAST;
    if (capability <= 0 || capability >= least) return FIG_OK;
    return fig_fail(FIG_UNSUPPORTED,
                    "traits: compute_capability is %" PRId32 ", which is %" PRId32 ".%" PRId32
                    ", kernels need %" PRId32,
                    capability, capability / 10, capability % 10, least);
}

/* Makes the parts of graphs from a finished program. The caller must free the parts, even after a
 * failure. */
static fig_status make_parts(const fig_program *program, const fig_lower_options *options,
                             const fig_graphs_choice *choice, fig_codec_parts *parts) {
    const fig_program_view *view = fig_program_view_of(program);
    bucket_list list = {0};
    FIG_TRY(take_traits(options->traits, &parts->target.traits));
    if (choice->tuning != NULL) FIG_TRY(fig_tuning_clone(&parts->target.tuning, choice->tuning));
    parts->target.deterministic = options->deterministic;
    parts->maker = fig_codec_maker_of(view);
    FIG_TRY(fig_archive_record(&parts->archive, fig_codec_kernels_of(view), fig_images_of));
    fig_status status = take_buckets(&view->spec, options, &list.buckets, &list.count);
    if (status == FIG_OK) status = take_queries(view, options, &list);
    if (status == FIG_OK)
        status = multiply_buckets(view, &parts->target, &list, choice->variant, &parts->buckets,
                                  &parts->bucket_count);
    list_finish(&list);
    FIG_TRY(status);
    return fig_program_clone(&parts->program, program);
}

fig_status fig_graphs_make(fig_graphs **graphs, const fig_program *program,
                           const fig_lower_options *options, const fig_graphs_choice *choice) {
    fig_lower_options ours;
    fig_codec_parts parts = {0};
    *graphs = NULL;
    FIG_TRY(fig_program_ready(program));
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, options, "fig_lower_options"));
    const fig_status status = make_parts(program, &ours, choice, &parts);
    if (status == FIG_OK) return fig_graphs_assemble(graphs, &parts);
    fig_codec_finish(&parts);
    return status;
}

fig_status fig_graphs_lower(fig_graphs **graphs, const fig_program *program,
                            const fig_lower_options *options) {
    return fig_graphs_make(graphs, program, options, &(fig_graphs_choice){.variant = -1});
}

void fig_graphs_destroy(fig_graphs *graphs) {
    if (graphs == NULL) return;
    fig_program_destroy(graphs->program);
    fig_workspace_finish(&graphs->workspace);
    fig_lower_common_finish(&graphs->common);
    free(graphs->exec_buckets);
    free(graphs->buckets);
    free(graphs->digests);
    free(graphs->made_digests);
    fig_tuning_finish(&graphs->target.tuning);
    fig_notes_finish(&graphs->notes);
    fig_archive_finish(&graphs->archive);
    free(graphs);
}

fig_status fig_graphs_queries(const fig_graphs *graphs, int32_t **queries, int32_t *count) {
    *count = 0;
    *queries = calloc(graphs->bucket_count, sizeof **queries);
    if (*queries == NULL)
        return fig_fail(FIG_NOMEM, "graphs: %u numbers of query tokens", graphs->bucket_count);
    for (uint32_t i = 0; i < graphs->bucket_count; i++)
        if (graphs->buckets[i].queries > 0) (*queries)[(*count)++] = graphs->buckets[i].queries;
    return FIG_OK;
}

uint32_t fig_graphs_page_limit(const fig_graphs *graphs) {
    return 64 + 2 * (uint32_t)fig_program_view_of(graphs->program)->spec.batch_limit;
}

int32_t fig_graphs_sharer(const fig_graphs *graphs) {
    for (int32_t i = 0; i < graphs->common.classes.count; i++)
        if (graphs->buckets[0].strips[i].shares) return i;
    return -1;
}

fig_plan_held_limits fig_graphs_held_limits(const fig_graphs *graphs) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    fig_plan_held_limits limits = {.row_limit = view->spec.batch_limit,
                                   .chunk_least = FIG_NARROW_TOKENS_LIMIT + 1};
    if (!fig_program_view_has_chunks(view)) return limits;
    limits.chunk_classes = graphs->common.classes.count;
    limits.chunk_shapes = graphs->buckets[0].strips;
    for (uint32_t i = 0; i < graphs->bucket_count; i++) {
        const uint32_t room = fig_plan_strips_room(&graphs->buckets[i].plan);
        const int32_t shared = fig_plan_shared_limit(&graphs->buckets[i].plan);
        if (room > limits.strips_bytes) limits.strips_bytes = room;
        if (fig_graphs_sharer(graphs) >= 0 && shared > limits.shared_limit)
            limits.shared_limit = shared;
    }
    return limits;
}

fig_status fig_graphs_mask_lines(const fig_graphs *graphs, fig_mask_lines *lines) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    const fig_split_classes *classes = &graphs->common.classes;
    int32_t count = 0;
    for (int32_t i = 0; i < classes->count; i++)
        count += classes->of[i].mask != 0;
    FIG_TRY(fig_mask_lines_init(lines, count, view->spec.batch_limit));
    for (int32_t i = 0, n = 0; i < classes->count; i++) {
        const fig_split_class *of = &classes->of[i];
        fig_score_code code;
        if (of->mask == 0) continue;
        fig_score_units_code(view, of->mask, &code);
        fig_mask_lines_ranges(&code, &lines->of[n].ranges);
        lines->of[n].split_class = i;
        lines->of[n].heads = of->q_heads;
        lines->of[n++].ratio = of->q_heads / of->kv_heads;
    }
    return FIG_OK;
}

uint32_t fig_graphs_slot_bytes(const fig_graphs *graphs) {
    const uint64_t pages_bytes = fig_graphs_page_limit(graphs) * sizeof(fig_plan_page);
    return (uint32_t)fig_size_align(graphs->plan_bytes + pages_bytes, 64);
}

/* ---- Files ----------------------------------------------------------------------------------- */

fig_status fig_graphs_write(const fig_graphs *graphs, uint8_t **bytes, size_t *count) {
    const fig_codec_parts parts = parts_of(graphs);
    return fig_codec_write(&parts, bytes, count);
}

fig_status fig_graphs_load(fig_graphs **graphs, const char *path) {
    uint8_t *bytes;
    size_t count;
    *graphs = NULL;
    if (path == NULL) return fig_fail(FIG_INVALID, "load: path is NULL");
    fig_status status = fig_file_read(path, FIG_FILE_BYTES_LIMIT, &bytes, &count);
    if (status == FIG_TOO_LARGE) return fig_status_relay(FIG_FORMAT, fig_message());
    FIG_TRY(status);
    status = fig_graphs_parse(graphs, bytes, count);
    free(bytes);
    return status == FIG_OK ? FIG_OK : fig_fail(status, "%s: %s", path, fig_message());
}

fig_status fig_graphs_parse(fig_graphs **graphs, const void *bytes, size_t count) {
    fig_codec_parts parts;
    *graphs = NULL;
    if (bytes == NULL && count > 0) return fig_fail(FIG_INVALID, "parse: bytes is NULL");
    FIG_TRY(fig_codec_read(&parts, bytes, count));
    const uint32_t maker = parts.maker.version;
    return fig_codec_judge(maker, fig_graphs_assemble(graphs, &parts));
}

/* ---- Asking ---------------------------------------------------------------------------------- */

fig_status fig_graphs_read_info(const fig_graphs *graphs, fig_graphs_info *info) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    fig_graphs_info ours = {.spec = &view->spec,
                            .traits = &graphs->target.traits,
                            .bucket_count = (int32_t)graphs->bucket_count,
                            .node_count = (int32_t)view->node_count};
    for (uint32_t i = 0; i < view->tensor_count; i++)
        ours.tensor_count += view->tensors[i].role != FIG_ROLE_TEMP;
    for (uint32_t i = 0; i < graphs->bucket_count; i++)
        ours.relowered_count += graphs->digests[i] != graphs->made_digests[i];
    for (int i = 0; i < 64; i++) {
        const uint8_t byte = graphs->content_id[i / 2];
        ours.content_id[i] = "0123456789abcdef"[i % 2 == 0 ? byte >> 4 : byte & 15];
    }
    return fig_status_give(info, &ours, sizeof ours, "fig_graphs_info");
}

/* Buckets of the same size are neighbours. */
static void count_size(const fig_graphs *graphs, uint32_t index, fig_bucket_info *info) {
    const fig_bucket_shape *own = &graphs->buckets[index];
    uint32_t first = index, end = index + 1;
    while (first > 0 && fig_bucket_compare(&graphs->buckets[first - 1], own) == 0)
        first--;
    while (end < graphs->bucket_count && fig_bucket_compare(&graphs->buckets[end], own) == 0)
        end++;
    info->size_first = (int32_t)first + 1;
    info->size_count = (int32_t)(end - first);
}

static fig_status fill_bucket(const fig_graphs *graphs, int32_t bucket, fig_bucket_info *info) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    fig_split_classes classes;
    fig_workspace workspace;
    if (bucket < 1 || (uint32_t)bucket > graphs->bucket_count)
        return fig_fail(FIG_INVALID, "bucket is %" PRId32 ", limits 1 to %u", bucket,
                        graphs->bucket_count);
    const fig_bucket_shape *shape = &graphs->buckets[bucket - 1];
    FIG_TRY(fig_split_classes_find(view, &classes));
    FIG_TRY(fig_workspace_init(&workspace, view, shape, 1));
    count_size(graphs, (uint32_t)bucket - 1, info);
    info->bucket = shape->caps;
    info->variant = shape->variant;
    info->query_limit = fig_bucket_query_limit(shape);
    info->row_queries = shape->plan.row_tokens;
    if (classes.has_chunks)
        info->row_queries = shape->form == FIG_FORM_SINGLES || shape->form == FIG_FORM_ONES
                                ? 1
                                : FIG_NARROW_TOKENS_LIMIT;
    info->form = shape->form;
    info->launch_count = (int32_t)fig_launch_list_count(view);
    info->plan_bytes = shape->plan.layout.bytes;
    info->workspace_bytes = workspace.bytes;
    if (classes.count > 0) {
        info->heads = shape->variants[0].heads;
        info->tile_tokens = shape->plan.splits[0].tile_tokens;
        info->workers = shape->plan.splits[0].workers;
    }
    fig_workspace_finish(&workspace);
    return FIG_OK;
}

fig_status fig_graphs_bucket(const fig_graphs *graphs, int32_t bucket, fig_bucket_info *info) {
    fig_bucket_info ours = {.size = sizeof ours};
    const fig_status status = fill_bucket(graphs, bucket, &ours);
    FIG_TRY(fig_status_give(info, &ours, sizeof ours, "fig_bucket_info"));
    return status;
}

static fig_status fill_tensor(const fig_program_view *view, int32_t index, fig_tensor_info *info) {
    int32_t seen = 0;
    for (uint32_t id = 1; id <= view->tensor_count; id++) {
        const fig_tensor_record *record = &view->tensors[id - 1];
        if (record->role == FIG_ROLE_TEMP || seen++ != index) continue;
        info->name = fig_program_view_tensor_name(view, id);
        info->role = (fig_role)record->role;
        info->dtype = (fig_dtype)record->dtype;
        info->rank = record->rank;
        memcpy(info->dims, record->dims, sizeof info->dims);
        if (record->symbol == FIG_SYMBOL_BATCH) info->dims[0] = FIG_DIM_BATCH;
        if (record->symbol == FIG_SYMBOL_PAGES) info->dims[0] = FIG_DIM_PAGES;
        if (record->symbol == FIG_SYMBOL_QUERIES) info->dims[0] = FIG_DIM_QUERIES;
        info->multiple = record->symbol != FIG_SYMBOL_NONE ? (int32_t)record->dims[0] : 1;
        info->layout = (fig_kv_layout)record->layout;
        return FIG_OK;
    }
    return fig_fail(FIG_INVALID, "tensor: index is %" PRId32 ", limits 0 to %" PRId32, index,
                    seen - 1);
}

fig_status fig_graphs_tensor(const fig_graphs *graphs, int32_t index, fig_tensor_info *info) {
    fig_tensor_info ours = {.size = sizeof ours};
    const fig_status status = fill_tensor(fig_program_view_of(graphs->program), index, &ours);
    FIG_TRY(fig_status_give(info, &ours, sizeof ours, "fig_tensor_info"));
    return status;
}
