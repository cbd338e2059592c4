/* prompts.c: runs attention over rows with many query tokens: checks the call, plans on the host,
 * launches.
 *
 * planner/plans/strips.c makes plans, and the kernel table has the kernels; nothing here records a
 * program. The layout of scratch is
 *
 *     [counters][greatest logits and sums of weights][partials]
 *
 * and has room for the partials of any step of the given number of query tokens, however these are
 * divided into rows. Invariant: a call that fails its checks has launched nothing, and the object
 * does not change after open. */
#include "include/figraph_prompts.h"

#include <inttypes.h>
#include <math.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bind/overlap.h"
#include "engine/cuda/choice.h"
#include "engine/runs/prompt_groups.h"
#include "engine/seam/run_device.h"
#include "kernels/wide/wide.h"
#include "planner/plans/strip_groups.h"
#include "planner/spec/head_dims.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

enum { TOKEN_LIMIT = 1 << 24, SHARED_LIMIT = 1 << 16, PIECE_BYTES = 16 };
/* In elements, of one dimension: the reach of all dimensions in bytes then fits in an int64_t. */
#define REACH_LIMIT (INT64_MAX >> 6)

struct fig_prompts {
    const fig_run_device_api *api;
    fig_run_device *device;
    fig_traits kernel_traits;
    fig_prompts_options options;
    fig_strips_shape shape;
};

/* ---- Open ------------------------------------------------------------------------------------ */

static fig_status check_real(const char *field, float value) {
    if (isfinite(value) && value >= 0.0f) return FIG_OK;
    return fig_fail(FIG_INVALID, "prompts: %s is %g, it must be finite and at least 0", field,
                    (double)value);
}

static fig_status check_options(const fig_prompts_options *o) {
    if (o->dtype != FIG_F16 && o->dtype != FIG_BF16)
        return fig_fail(FIG_INVALID, "prompts: dtype is %d, it must be FIG_F16 or FIG_BF16",
                        (int)o->dtype);
    if (o->kv_heads < 1 || o->q_heads < 1 || o->q_heads > FIG_HEAD_LIMIT ||
        o->q_heads % o->kv_heads != 0 || o->q_heads / o->kv_heads > FIG_STRIPS_RATIO_LIMIT)
        return fig_fail(FIG_INVALID,
                        "prompts: q_heads is %" PRId32 " and kv_heads %" PRId32
                        ", q_heads must be 1 to %d times kv_heads and at most %d",
                        o->q_heads, o->kv_heads, FIG_STRIPS_RATIO_LIMIT, FIG_HEAD_LIMIT);
    if (!fig_head_dims_has(o->head_dim))
        return fig_fail(FIG_INVALID, "prompts: head_dim is %" PRId32 ", it must be %s", o->head_dim,
                        FIG_HEAD_DIMS_ANY_TEXT);
    if (o->page_size < 1 || o->page_size > FIG_KV_LIMIT)
        return fig_fail(FIG_INVALID, "prompts: page_size is %" PRId32 ", limits 1 to %d",
                        o->page_size, FIG_KV_LIMIT);
    if (o->window < 0 || o->deterministic > 1)
        return fig_fail(FIG_INVALID,
                        "prompts: window is %" PRId32 " and deterministic %" PRIu32
                        ", they must be at least 0, and 0 or 1",
                        o->window, o->deterministic);
    if (o->shared_limit < 0 || o->shared_limit > SHARED_LIMIT)
        return fig_fail(FIG_INVALID, "prompts: shared_limit is %" PRId32 ", limits 0 to %d",
                        o->shared_limit, SHARED_LIMIT);
    FIG_TRY(check_real("sm_scale", o->sm_scale));
    return check_real("soft_cap", o->soft_cap);
}

static fig_status open_device(fig_prompts *prompts) {
    const fig_prompts_options *o = &prompts->options;
    const fig_choice_wish wish = {"prompts", o->device, o->ordinal != 0};
    const fig_runner_options options = {
        .size = sizeof options, .device = o->device, .ordinal = o->ordinal, .test = o->test};
    fig_device device;
    FIG_TRY(fig_choice_of_device(&wish, &device));
    prompts->api = device == FIG_DEVICE_HOST ? &fig_run_device_host : &fig_run_device_cuda;
    FIG_TRY(prompts->api->open(&prompts->device, &options));
    prompts->api->read_kernel_traits(prompts->device, &prompts->kernel_traits);
    return FIG_OK;
}

static void shape_of(fig_prompts *prompts) {
    const fig_prompts_options *o = &prompts->options;
    prompts->shape = (fig_strips_shape){.ratio = o->q_heads / o->kv_heads,
                                        .kv_heads = o->kv_heads,
                                        .head_dim = o->head_dim,
                                        .tile_tokens = fig_wide_tile(o->head_dim),
                                        .window = o->window < FIG_KV_LIMIT ? o->window : 0,
                                        .workers = prompts->kernel_traits.sm_count,
                                        .whole = (int32_t)o->deterministic};
}

/* Fills in the params that do not depend on the call. */
static void start_params(const fig_prompts *prompts, fig_prompt_attention_params *params) {
    const fig_prompts_options *o = &prompts->options;
    *params = (fig_prompt_attention_params){
        .workers = prompts->shape.workers,
        .ratio = prompts->shape.ratio,
        .half = fig_strips_half(prompts->shape.ratio),
        .tile_tokens = prompts->shape.tile_tokens,
        .q_heads = o->q_heads,
        .kv_heads = o->kv_heads,
        .head_dim = o->head_dim,
        .page_size = o->page_size,
        .dtype = (int32_t)o->dtype,
        .kv_dtype = (int32_t)o->dtype,
        .window = prompts->shape.window,
        .sm_scale = o->sm_scale > 0.0f ? o->sm_scale : 1.0f / sqrtf((float)o->head_dim),
        .soft_cap = o->soft_cap};
}

/* Loads every family that may serve a call, for any addresses and strides. */
static fig_status load_families(fig_prompts *prompts) {
    fig_prompt_attention_params params;
    start_params(prompts, &params);
    for (uint32_t i = 0; fig_families_of(FIG_OP_PROMPT_ATTENTION, i) != NULL; i++) {
        fig_family_choice choice;
        if (fig_families_may_serve(FIG_OP_PROMPT_ATTENTION, i, &params, &prompts->kernel_traits,
                                   &choice))
            FIG_TRY(prompts->api->load(prompts->device, FIG_OP_PROMPT_ATTENTION, &choice, &params));
    }
    return FIG_OK;
}

fig_status fig_prompts_open(fig_prompts **out, const fig_prompts_options *options) {
    fig_prompts_options ours;
    fig_status status;
    *out = NULL;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, options, "fig_prompts_options"));
    FIG_TRY(check_options(&ours));
    fig_prompts *prompts = calloc(1, sizeof *prompts);
    if (prompts == NULL) return fig_fail(FIG_NOMEM, "prompts: %zu bytes", sizeof *prompts);
    prompts->options = ours;
    if ((status = open_device(prompts)) != FIG_OK) goto fail;
    shape_of(prompts);
    if ((status = load_families(prompts)) != FIG_OK) goto fail;
    *out = prompts;
    return FIG_OK;
fail:
    fig_prompts_close(prompts);
    return status;
}

void fig_prompts_close(fig_prompts *prompts) {
    if (prompts == NULL) return;
    if (prompts->api != NULL) prompts->api->close(prompts->device);
    free(prompts);
}

fig_device fig_prompts_device(const fig_prompts *prompts) {
    return prompts->api->kind;
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

/* The offsets of the parts of scratch. */
typedef struct scratch_layout {
    uint64_t sums, partials, bytes;
} scratch_layout;

/* Returns limits that hold for every step with this number of rows and query tokens. A prefix has
 * at least two rows, and a query token has at most three prefixes. */
static fig_strips_limits limits_of(const fig_prompts *prompts, int32_t rows, int32_t tokens) {
    const int64_t shared = fig_size_min(tokens, prompts->options.shared_limit);
    const int64_t prefixes = shared > 0 ? FIG_STRIP_GROUPS_LEVEL_LIMIT * (int64_t)(rows / 2) : 0;
    return (fig_strips_limits){.segments = rows + prefixes,
                               .queries = tokens + FIG_STRIP_GROUPS_LEVEL_LIMIT * shared,
                               .shared = shared};
}

static scratch_layout layout_of(const fig_prompts *prompts, int32_t tokens) {
    const fig_strips_limits limits = limits_of(prompts, tokens, tokens);
    const uint64_t vectors =
        (uint64_t)fig_strip_sizes_bound(&prompts->shape, &limits).partial_vectors;
    /* The number of counters does not depend on the tokens, so the zeros stay in place from run to
     * run. */
    const uint64_t counters =
        (uint64_t)fig_strips_slot_counters(prompts->shape.workers) +
        (uint64_t)prompts->options.shared_limit * (uint64_t)prompts->options.q_heads;
    scratch_layout layout = {.sums = fig_size_align(counters * sizeof(uint32_t), PIECE_BYTES)};
    layout.partials = fig_size_align(layout.sums + vectors * 2 * sizeof(float), PIECE_BYTES);
    layout.bytes = layout.partials + vectors * (uint64_t)prompts->shape.head_dim * sizeof(float);
    return layout;
}

static fig_status check_tokens(int32_t tokens) {
    if (tokens >= 0 && tokens <= TOKEN_LIMIT) return FIG_OK;
    return fig_fail(FIG_TOO_LARGE, "prompts: tokens is %" PRId32 ", limits 0 to %d", tokens,
                    TOKEN_LIMIT);
}

fig_status fig_prompts_measure(const fig_prompts *prompts, int32_t rows, int32_t tokens,
                               fig_prompts_memory *memory) {
    fig_prompts_memory ours = {.size = sizeof ours};
    FIG_TRY(fig_status_give(memory, &ours, sizeof ours, "fig_prompts_memory"));
    FIG_TRY(check_tokens(tokens));
    if (rows < 0)
        return fig_fail(FIG_INVALID, "prompts: rows is %" PRId32 ", it must be at least 0", rows);
    const fig_strips_limits limits = limits_of(prompts, rows, tokens);
    const scratch_layout layout = layout_of(prompts, tokens);
    ours.plan_bytes = (uint64_t)fig_strip_sizes_bound(&prompts->shape, &limits).plan_bytes;
    ours.scratch_bytes = layout.bytes;
    ours.zero_bytes = layout.sums;
    return fig_status_give(memory, &ours, sizeof ours, "fig_prompts_memory");
}

/* ---- Plan ------------------------------------------------------------------------------------ */

static fig_status check_row(const fig_prompts *prompts, const fig_prompts_step *step, int32_t row) {
    const int64_t start = step->query_start[row], end = step->query_start[row + 1];
    const int64_t room = (int64_t)step->page_columns * prompts->options.page_size;
    const int64_t limit = room < FIG_KV_LIMIT ? room : FIG_KV_LIMIT;
    if (start < 0 || end < start || end > TOKEN_LIMIT)
        return fig_fail(FIG_INVALID,
                        "plan: row %" PRId32 " has query tokens %" PRId64 " to %" PRId64
                        ", they must rise, from 0 to %d",
                        row, start, end, TOKEN_LIMIT);
    if (end == start) return FIG_OK;
    if (step->lengths[row] >= end - start && step->lengths[row] <= limit) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "plan: length of row %" PRId32 " is %" PRId32 ", limits %" PRId64
                    ", its query tokens, to %" PRId64,
                    row, step->lengths[row], end - start, limit);
}

/* The prefixes that enclose the one that is being checked. */
typedef struct open_prefixes {
    const fig_prompts_prefix *of[FIG_STRIP_GROUPS_LEVEL_LIMIT + 1];
    int32_t count;
    int64_t queries; /* query tokens of all outermost prefixes so far */
} open_prefixes;

static int32_t end_of(const fig_prompts_prefix *prefix) {
    return prefix->first_row + prefix->rows;
}

/* Checks that a prefix is nested in, or disjoint from, the prefixes before it. */
static fig_status check_place(const fig_prompts_step *step, int32_t n, open_prefixes *open) {
    const fig_prompts_prefix *prefix = &step->prefixes[n];
    if (prefix->first_row < 0 || prefix->rows < 2 || prefix->tokens < 1 ||
        prefix->rows > step->rows - prefix->first_row)
        return fig_fail(FIG_INVALID,
                        "plan: prefix %" PRId32 " has rows %" PRId32 " and %" PRId32
                        " behind it, and tokens %" PRId32 "; it must have 2 of the %" PRId32
                        " rows and a token at least",
                        n, prefix->first_row, prefix->rows, prefix->tokens, step->rows);
    while (open->count > 0 && end_of(open->of[open->count - 1]) <= prefix->first_row)
        open->count--;
    if (n > 0 && prefix->first_row < step->prefixes[n - 1].first_row)
        return fig_fail(FIG_INVALID, "plan: prefix %" PRId32 " begins before the one before it", n);
    if (open->count > 0 && (end_of(prefix) > end_of(open->of[open->count - 1]) ||
                            prefix->tokens <= open->of[open->count - 1]->tokens))
        return fig_fail(FIG_INVALID,
                        "plan: prefix %" PRId32
                        " has rows of the one around it and others, or no more tokens",
                        n);
    open->of[open->count++] = prefix;
    if (open->count <= FIG_STRIP_GROUPS_LEVEL_LIMIT) return FIG_OK;
    return fig_fail(FIG_INVALID, "plan: prefix %" PRId32 " is inside %d others, limit %d", n,
                    open->count - 1, FIG_STRIP_GROUPS_LEVEL_LIMIT - 1);
}

/* Checks that a prefix ends before the first query of each of its rows. */
static fig_status check_ends(const fig_prompts_step *step, int32_t n, open_prefixes *open) {
    const fig_prompts_prefix *prefix = &step->prefixes[n];
    for (int32_t row = prefix->first_row; row < end_of(prefix); row++) {
        const int32_t queries = step->query_start[row + 1] - step->query_start[row];
        if (open->count == 1) open->queries += queries;
        if (queries == 0 || prefix->tokens <= step->lengths[row] - queries) continue;
        return fig_fail(FIG_INVALID,
                        "plan: prefix %" PRId32 " has %" PRId32 " tokens, but row %" PRId32
                        " has %" PRId32 " before its queries",
                        n, prefix->tokens, row, step->lengths[row] - queries);
    }
    return FIG_OK;
}

static fig_status check_prefixes(const fig_prompts *prompts, const fig_prompts_step *step) {
    const fig_prompts_options *o = &prompts->options;
    open_prefixes open = {.count = 0};
    if (step->prefix_count < 0 || (step->prefix_count > 0 && step->prefixes == NULL))
        return fig_fail(FIG_INVALID, "plan: prefix_count is %" PRId32 " and prefixes %p",
                        step->prefix_count, (const void *)step->prefixes);
    if (step->prefix_count > 0 && (prompts->shape.window != 0 || o->deterministic))
        return fig_fail(FIG_INVALID,
                        "plan: prefix_count is %" PRId32
                        ", it must be 0 where rows have a window or are deterministic",
                        step->prefix_count);
    if (step->page_table != NULL &&
        (step->prefix_count > 0 || step->table_stride < step->page_columns))
        return fig_fail(FIG_INVALID,
                        "plan: prefix_count is %" PRId32 " and table_stride %" PRId64
                        ", with page_table they must be 0 and at least page_columns, %" PRId32,
                        step->prefix_count, step->table_stride, step->page_columns);
    for (int32_t n = 0; n < step->prefix_count; n++) {
        FIG_TRY(check_place(step, n, &open));
        FIG_TRY(check_ends(step, n, &open));
    }
    if (open.queries <= o->shared_limit) return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "plan: rows with prefixes have %" PRId64 " query tokens, shared_limit is "
                    "%" PRId32,
                    open.queries, o->shared_limit);
}

static fig_status check_step(const fig_prompts *prompts, const fig_prompts_step *step,
                             const void *plan) {
    if (step->rows < 0 || step->page_columns < 0 || step->sees_all > 1)
        return fig_fail(FIG_INVALID,
                        "plan: rows is %" PRId32 ", page_columns %" PRId32 " and sees_all %" PRIu32
                        ", they must be at least 0, and sees_all 0 or 1",
                        step->rows, step->page_columns, step->sees_all);
    if (plan == NULL || (uintptr_t)plan % PIECE_BYTES != 0)
        return fig_fail(FIG_INVALID, "plan: plan is %p, it must be a multiple of %d", plan,
                        PIECE_BYTES);
    if (step->rows > 0 && (step->query_start == NULL || step->lengths == NULL))
        return fig_fail(FIG_INVALID, "plan: query_start is %p and lengths %p, neither may be NULL",
                        (const void *)step->query_start, (const void *)step->lengths);
    for (int32_t row = 0; row < step->rows; row++)
        FIG_TRY(check_row(prompts, step, row));
    return check_prefixes(prompts, step);
}

/* The groups of a step, and the memory for its segments and members. */
typedef struct step_lists {
    fig_prompt_groups groups;
    fig_strip_groups step;
    fig_strip_groups_work work;
} step_lists;

static void free_lists(step_lists *lists) {
    fig_prompt_groups_finish(&lists->groups);
    free(lists->work.rows);
    free(lists->work.segments);
    free(lists->work.members);
}

/* Makes a group of each prefix. A group begins at the token where the prefix around it ends. */
static fig_status list_prefixes(const fig_prompts_step *step, fig_prompt_groups *groups) {
    groups->groups = calloc((size_t)step->prefix_count + 1, sizeof *groups->groups);
    groups->count = step->prefix_count;
    if (groups->groups == NULL)
        return fig_fail(FIG_NOMEM, "plan: %" PRId32 " prefixes", step->prefix_count);
    for (int32_t n = 0; n < step->prefix_count; n++) {
        const fig_prompts_prefix *prefix = &step->prefixes[n];
        fig_strip_group *group = &groups->groups[n];
        *group = (fig_strip_group){
            .first = prefix->first_row, .rows = prefix->rows, .to = prefix->tokens};
        for (int32_t outer = 0; outer < n; outer++)
            if (end_of(&step->prefixes[outer]) > prefix->first_row)
                group->from = step->prefixes[outer].tokens;
    }
    return FIG_OK;
}

static fig_status list_groups(const fig_prompts *prompts, const fig_prompts_step *step,
                              fig_prompt_groups *groups) {
    const fig_prompts_options *o = &prompts->options;
    const int may_share = prompts->shape.window == 0 && !o->deterministic && o->shared_limit > 0;
    if (step->page_table == NULL || !may_share) return list_prefixes(step, groups);
    return fig_prompt_groups_find(o, &prompts->shape, step, groups);
}

static fig_status list_step(const fig_prompts *prompts, const fig_prompts_step *step,
                            step_lists *lists) {
    const size_t rows = (size_t)step->rows;
    *lists = (step_lists){.step = {.rows = step->rows}};
    FIG_TRY(list_groups(prompts, step, &lists->groups));
    const size_t groups = (size_t)lists->groups.count;
    lists->work.rows = calloc(rows + 1, sizeof *lists->work.rows);
    lists->work.segments = calloc(rows + groups + 1, sizeof *lists->work.segments);
    if (lists->work.rows == NULL || lists->work.segments == NULL)
        return fig_fail(FIG_NOMEM, "plan: %" PRId32 " rows", step->rows);
    lists->step =
        (fig_strip_groups){.shape = &prompts->shape,
                           .rows = step->rows,
                           .count = lists->groups.count,
                           .starts = step->query_start,
                           .lengths = step->lengths,
                           .order = lists->groups.order,
                           .groups = lists->groups.groups,
                           .visible = step->sees_all ? FIG_STRIPS_ALL : FIG_STRIPS_CAUSAL};
    const size_t members = (size_t)fig_strip_groups_members(&lists->step);
    lists->work.members = calloc(members + 1, sizeof *lists->work.members);
    if (lists->work.members == NULL) return fig_fail(FIG_NOMEM, "plan: %zu members", members);
    fig_strip_groups_list(&lists->step, &lists->work);
    return FIG_OK;
}

static fig_status write_plan(const fig_prompts *prompts, const step_lists *lists, void *plan,
                             uint64_t plan_bytes) {
    const fig_strips_segment *segments = lists->work.segments;
    const int32_t count = lists->step.rows + lists->step.count;
    const fig_strips_shared *shared = &lists->work.shared;
    const int64_t needed = fig_strip_sizes_of(&prompts->shape, segments, count).plan_bytes +
                           shared->count * (int64_t)sizeof(fig_strips_member);
    if (plan_bytes < (uint64_t)needed)
        return fig_fail(FIG_INVALID, "plan: plan_bytes is %" PRIu64 ", it must be %" PRId64,
                        plan_bytes, needed);
    fig_strips_make(&prompts->shape, segments, count, plan);
    fig_strips_share(shared, plan);
    return FIG_OK;
}

fig_status fig_prompts_plan(const fig_prompts *prompts, const fig_prompts_step *step, void *plan,
                            uint64_t plan_bytes) {
    fig_prompts_step ours;
    step_lists lists;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, step, "fig_prompts_step"));
    FIG_TRY(check_step(prompts, &ours, plan));
    fig_status status = list_step(prompts, &ours, &lists);
    if (status == FIG_OK) status = write_plan(prompts, &lists, plan, plan_bytes);
    free_lists(&lists);
    return status;
}

/* ---- Run ------------------------------------------------------------------------------------- */

static int64_t stride_or(int64_t given, int64_t dense) {
    return given != 0 ? given : dense;
}

static void put_strides(const fig_prompts *prompts, const fig_prompts_call *call,
                        fig_prompt_attention_params *params) {
    const fig_prompts_options *o = &prompts->options;
    const int64_t token = (int64_t)o->q_heads * o->head_dim;
    const int64_t kv_token = (int64_t)o->kv_heads * o->head_dim;
    const int64_t page = kv_token * o->page_size;
    params->q_strides = (fig_row_strides){stride_or(call->q_strides[0], token),
                                          stride_or(call->q_strides[1], o->head_dim)};
    params->out_strides = (fig_row_strides){stride_or(call->out_strides[0], token),
                                            stride_or(call->out_strides[1], o->head_dim)};
    params->k_cache_strides = (fig_cache_strides){stride_or(call->k_strides[0], page),
                                                  stride_or(call->k_strides[1], kv_token),
                                                  stride_or(call->k_strides[2], o->head_dim)};
    params->v_cache_strides = (fig_cache_strides){stride_or(call->v_strides[0], page),
                                                  stride_or(call->v_strides[1], kv_token),
                                                  stride_or(call->v_strides[2], o->head_dim)};
    params->lse_stride = stride_or(call->lse_stride, o->q_heads);
    params->table_stride = call->table_stride;
}

static fig_status check_numbers(const fig_prompts *prompts, const fig_prompts_call *call) {
    const int64_t strides[] = {call->q_strides[0],   call->q_strides[1], call->out_strides[0],
                               call->out_strides[1], call->k_strides[0], call->k_strides[1],
                               call->k_strides[2],   call->v_strides[0], call->v_strides[1],
                               call->v_strides[2],   call->lse_stride,   call->table_stride};
    FIG_TRY(check_tokens(call->tokens));
    if (call->pages < 1 || call->pages > INT32_MAX / prompts->options.kv_heads)
        return fig_fail(FIG_INVALID, "run: pages is %" PRId64 ", limits 1 to %d", call->pages,
                        INT32_MAX / prompts->options.kv_heads);
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++)
        if (strides[i] < 0)
            return fig_fail(FIG_INVALID, "run: a stride is %" PRId64 ", none may be negative",
                            strides[i]);
    if (call->early_reads <= 1) return FIG_OK;
    return fig_fail(FIG_INVALID, "run: early_reads is %" PRIu32 ", it must be 0 or 1",
                    call->early_reads);
}

static fig_status check_addresses(const fig_prompts_call *call) {
    const struct {
        const char *name;
        const void *address;
        uintptr_t unit;
    } needed[] = {{"plan", call->plan, PIECE_BYTES},
                  {"q", call->q, 2},
                  {"out", call->out, 2},
                  {"k_cache", call->k_cache, 2},
                  {"v_cache", call->v_cache, 2},
                  {"page_table", call->page_table, 4},
                  {"scratch", call->scratch, PIECE_BYTES}};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (needed[i].address == NULL || (uintptr_t)needed[i].address % needed[i].unit != 0)
            return fig_fail(FIG_INVALID, "run: %s is %p, it must be a multiple of %d",
                            needed[i].name, (void *)(uintptr_t)needed[i].address,
                            (int)needed[i].unit);
    if ((uintptr_t)call->lse % 4 == 0 && (uintptr_t)call->sinks % 4 == 0) return FIG_OK;
    return fig_fail(FIG_INVALID, "run: lse is %p and sinks %p, they must be multiples of 4",
                    (void *)call->lse, (void *)(uintptr_t)call->sinks);
}

static fig_status fill(const fig_prompts *prompts, const fig_prompts_call *call,
                       fig_prompt_attention_params *params) {
    const scratch_layout layout = layout_of(prompts, call->tokens);
    uint8_t *scratch = call->scratch;
    if (call->scratch_bytes < layout.bytes)
        return fig_fail(FIG_INVALID, "run: scratch_bytes is %" PRIu64 ", it must be %" PRIu64,
                        call->scratch_bytes, layout.bytes);
    start_params(prompts, params);
    put_strides(prompts, call, params);
    params->q = call->q;
    params->k_cache = call->k_cache;
    params->v_cache = call->v_cache;
    params->out = call->out;
    params->lse = call->lse;
    params->page_table = call->page_table;
    params->sinks = call->sinks;
    params->plan = call->plan;
    params->counters = (uint32_t *)(void *)scratch;
    params->sums = (float *)(void *)(scratch + layout.sums);
    params->partials = (float *)(void *)(scratch + layout.partials);
    params->k_pages = params->v_pages = call->pages;
    params->rows.row_limit = call->tokens;
    params->flags = call->early_reads ? FIG_ATTENTION_EARLY : 0;
    return FIG_OK;
}

/* An array of a run. */
typedef struct operand {
    const char *name;
    int is_written;
    fig_overlap_array array;
} operand;

static fig_status check_reach(const operand *of) {
    for (int32_t i = 0; i < of->array.rank; i++)
        if (of->array.strides[i] > REACH_LIMIT / of->array.dims[i])
            return fig_fail(
                FIG_INVALID,
                "run: a stride of %s is %" PRId64 ", limit %" PRId64 " for %" PRId64 " items",
                of->name, of->array.strides[i], REACH_LIMIT / of->array.dims[i], of->array.dims[i]);
    return FIG_OK;
}

/* Checks that no array that the run writes shares memory with another one. Blocks run in any order,
 * so out may not even be q itself. */
static fig_status check_overlap(const fig_prompt_attention_params *p) {
    const int64_t tokens = p->rows.row_limit, dim = p->head_dim, page = p->page_size;
    const fig_row_strides *q = &p->q_strides, *out = &p->out_strides;
    const fig_cache_strides *k = &p->k_cache_strides, *v = &p->v_cache_strides;
    const operand of[] = {
        {"q", 0, {(uintptr_t)p->q, 2, 3, {tokens, p->q_heads, dim}, {q->row, q->head, 1}}},
        {"k_cache",
         0,
         {(uintptr_t)p->k_cache,
          2,
          4,
          {p->k_pages, page, p->kv_heads, dim},
          {k->page, k->token, k->head, 1}}},
        {"v_cache",
         0,
         {(uintptr_t)p->v_cache,
          2,
          4,
          {p->v_pages, page, p->kv_heads, dim},
          {v->page, v->token, v->head, 1}}},
        {"out", 1, {(uintptr_t)p->out, 2, 3, {tokens, p->q_heads, dim}, {out->row, out->head, 1}}},
        {"lse", 1, {(uintptr_t)p->lse, 4, 2, {tokens, p->q_heads}, {p->lse_stride, 1}}}};
    const size_t count = sizeof of / sizeof of[0] - (p->lse == NULL);
    for (size_t b = 0; b < count; b++) {
        FIG_TRY(check_reach(&of[b]));
        for (size_t a = 0; a < b && of[b].is_written; a++)
            if (fig_overlap_meets(&of[a].array, &of[b].array))
                return fig_fail(FIG_INVALID, "run: %s overlaps %s, which the run %s", of[b].name,
                                of[a].name, of[a].is_written ? "writes too" : "reads");
    }
    return FIG_OK;
}

static fig_status launch(const fig_prompts *prompts, fig_prompt_attention_params *params,
                         void *stream) {
    fig_family_choice choice;
    fig_families_choose(FIG_OP_PROMPT_ATTENTION, params, &prompts->kernel_traits, &choice);
    fig_run_launch one = {
        .op = FIG_OP_PROMPT_ATTENTION, .shape = choice.shape, .params = (uint8_t *)params};
    FIG_TRY(prompts->api->prepare(prompts->device, &choice, &one));
    return prompts->api->launch(prompts->device, &one, stream);
}

fig_status fig_prompts_run(const fig_prompts *prompts, const fig_prompts_call *call) {
    alignas(64) fig_prompt_attention_params params;
    fig_prompts_call ours;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, call, "fig_prompts_call"));
    FIG_TRY(check_numbers(prompts, &ours));
    if (ours.tokens == 0) return FIG_OK;
    FIG_TRY(check_addresses(&ours));
    FIG_TRY(fill(prompts, &ours, &params));
    FIG_TRY(check_overlap(&params));
    FIG_TRY(prompts->api->begin(prompts->device, ours.stream));
    return prompts->api->end(prompts->device, launch(prompts, &params, ours.stream));
}
