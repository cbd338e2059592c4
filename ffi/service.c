/* service.c: provides the functions that the Python package needs besides operations.
 *
 * They compute sizes, load files and read counters, and touch no device. Invariant: if a caller
 * gives no traits, the sizes are sufficient on every chip that the library knows by name. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ffi/known_scores.h"
#include "ffi/registry.h"
#include "graphs/graphs.h"
#include "graphs/record/program.h"
#include "planner/spec/rope_spec.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

const char *fig_ffi_message(void) {
    return fig_message();
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static fig_status add_scratch(const fig_graphs *graphs, const fig_traits *traits, int32_t rows,
                              int64_t kv_length, fig_ffi_scratch *most) {
    fig_scratch one = {.size = sizeof one};
    FIG_TRY(fig_graphs_scratch(graphs, traits, rows, kv_length, &one));
    most->plan_bytes = larger(most->plan_bytes, one.plan_bytes);
    most->best_bytes = larger(most->best_bytes, one.best_bytes);
    most->least_bytes = larger(most->least_bytes, one.least_bytes);
    return FIG_OK;
}

static fig_status add_all_scratch(const fig_graphs *graphs, int32_t rows, int64_t kv_length,
                                  fig_ffi_scratch *most) {
    for (int32_t i = 0; fig_traits_name(i) != NULL; i++) {
        fig_traits traits = {.size = sizeof traits};
        FIG_TRY(fig_traits_named(&traits, fig_traits_name(i)));
        FIG_TRY(add_scratch(graphs, &traits, rows, kv_length, most));
    }
    return FIG_OK;
}

static fig_status describe(fig_ffi_attention *a, fig_recipe *recipe) {
    *recipe = (fig_recipe){.kind = a->latent_dim != 0 ? FIG_RECIPE_LATENT : FIG_RECIPE_ATTENTION,
                           .dtype = a->dtype,
                           .kv_dtype = a->kv_dtype != 0 ? a->kv_dtype : a->dtype,
                           .q_heads = a->q_heads,
                           .kv_heads = a->kv_heads,
                           .head_dim = a->head_dim,
                           .page_size = a->page_size,
                           .window = a->window,
                           .row_tokens = a->row_tokens > 1 ? a->row_tokens : 0,
                           .deterministic = a->deterministic != 0,
                           .slots = 1u << FIG_SLOT_Q | 1u << FIG_SLOT_LENGTHS | 1u << FIG_SLOT_OUT};
    FIG_TRY(fig_recipe_check_latent_dim(a->latent_dim));
    if (a->latent_dim != 0) {
        recipe->slots |= 1u << FIG_SLOT_LATENT_CACHE;
    } else if (a->q_heads != 0) {
        recipe->slots |= 1u << FIG_SLOT_K_CACHE | 1u << FIG_SLOT_V_CACHE;
    } else {
        recipe->kind = FIG_RECIPE_APPEND;
        recipe->q_heads = a->kv_heads;
        recipe->slots = 1u << FIG_SLOT_K | 1u << FIG_SLOT_V | 1u << FIG_SLOT_K_CACHE |
                        1u << FIG_SLOT_V_CACHE | 1u << FIG_SLOT_LENGTHS;
    }
    const int32_t most = a->packed != 0 ? FIG_CHUNK_TOKENS_LIMIT : FIG_ROW_TOKENS_LIMIT;
    if (a->row_tokens < 0 || a->row_tokens > most)
        return fig_fail(FIG_INVALID, "row_tokens is %d, limits 0 to %d", a->row_tokens, most);
    if (a->kv_heads < 1) return fig_fail(FIG_INVALID, "kv_heads is %d", a->kv_heads);
    if (a->page_size != 0) recipe->slots |= 1u << FIG_SLOT_PAGE_TABLE;
    if (a->packed != 0) recipe->slots |= 1u << FIG_SLOT_QUERY_STARTS;
    return fig_recipe_round_tokens(&a->kv_length, 1, &recipe->kv_limit);
}

/* Adds the score of a call to its recipe. The score's arrays stay out, because no size depends on
 * them. */
static fig_status add_score(int64_t number, fig_recipe *recipe) {
    const fig_score *score;
    FIG_TRY(fig_known_scores_find(number, &score));
    if (recipe->kind != FIG_RECIPE_ATTENTION)
        return fig_fail(FIG_INVALID,
                        "score is %" PRId64 ", but the call is not attention with K "
                        "and V of each head",
                        number);
    recipe->score = number;
    for (uint32_t i = 0; i < score->array_count; i++) {
        recipe->slots |= UINT64_C(1) << (FIG_SLOT_SCORE_ARRAY + i);
        recipe->score_counts[i] = score->arrays[i].count > 0 ? score->arrays[i].count : 1;
    }
    return FIG_OK;
}

static fig_status add_recipe(const fig_recipe *recipe, const fig_ffi_attention *a,
                             fig_ffi_scratch *most) {
    fig_graphs *graphs;
    FIG_TRY(fig_recipe_make(recipe, &graphs));
    const fig_status status = a->traits != NULL
                                  ? add_scratch(graphs, a->traits, a->rows, a->kv_length, most)
                                  : add_all_scratch(graphs, a->rows, a->kv_length, most);
    fig_graphs_destroy(graphs);
    return status;
}

/* With a score, the sizes also suffice for the call without it: a score that is a soft cap or ALiBi
 * becomes such a call. */
fig_status fig_ffi_read_scratch(const fig_ffi_attention *attention, fig_ffi_scratch *scratch) {
    fig_ffi_scratch ours = {.size = sizeof ours};
    fig_ffi_attention a;
    fig_recipe recipe;
    FIG_TRY(fig_status_give(scratch, &ours, sizeof ours, "fig_ffi_scratch"));
    FIG_TRY(fig_status_take_options(&a, sizeof a, attention, "fig_ffi_attention"));
    FIG_TRY(describe(&a, &recipe));
    FIG_TRY(add_recipe(&recipe, &a, &ours));
    if (a.score != 0) FIG_TRY(add_score(a.score, &recipe));
    if (a.score != 0) FIG_TRY(add_recipe(&recipe, &a, &ours));
    return fig_status_give(scratch, &ours, sizeof ours, "fig_ffi_scratch");
}

fig_status fig_ffi_add_score(const char *text, int64_t *number) {
    return fig_known_scores_add(text, number);
}

fig_status fig_ffi_compile_scores(const fig_ffi_score_options *options) {
    fig_ffi_score_options ours;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, options, "fig_ffi_score_options"));
    return fig_registry_compile_scores(&ours);
}

fig_status fig_ffi_load(const char *path, char *content_id) {
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs *graphs;
    *content_id = '\0';
    FIG_TRY(fig_graphs_load(&graphs, path));
    fig_status status = fig_graphs_read_info(graphs, &info);
    if (status != FIG_OK) {
        fig_graphs_destroy(graphs);
        return status;
    }
    FIG_TRY(fig_registry_add_file(graphs));
    memcpy(content_id, info.content_id, sizeof info.content_id);
    return FIG_OK;
}

fig_status fig_ffi_read_program_scratch(const char *content_id, int32_t rows, int64_t kv_length,
                                        fig_ffi_scratch *scratch) {
    fig_ffi_scratch ours = {.size = sizeof ours};
    const fig_graphs *graphs;
    FIG_TRY(fig_status_give(scratch, &ours, sizeof ours, "fig_ffi_scratch"));
    FIG_TRY(fig_registry_find_file(content_id, &graphs));
    FIG_TRY(add_all_scratch(graphs, rows, kv_length, &ours));
    return fig_status_give(scratch, &ours, sizeof ours, "fig_ffi_scratch");
}

fig_status fig_ffi_read_segment(const char *content_id, int32_t number, fig_ffi_segment *out) {
    fig_ffi_segment ours = {.size = sizeof ours};
    const fig_graphs *graphs;
    FIG_TRY(fig_registry_find_file(content_id, &graphs));
    const fig_program_view *view = fig_program_view_of(graphs->program);
    if (number < 1 || (uint32_t)number > view->segment_count)
        return fig_fail(FIG_INVALID, "segment %d of %u", number, view->segment_count);
    ours.name = view->strings + view->segments[number - 1].name;
    return fig_status_give(out, &ours, sizeof ours, "fig_ffi_segment");
}

fig_status fig_ffi_check_rope(const fig_rope_spec *rope, int32_t head_dim) {
    fig_rope_spec resolved;
    return fig_rope_spec_resolve(rope, head_dim, &resolved);
}

fig_status fig_ffi_read_counts(fig_ffi_counts *out) {
    fig_ffi_counts ours = {.size = sizeof ours};
    fig_registry_read_counts(&ours);
    return fig_status_give(out, &ours, sizeof ours, "fig_ffi_counts");
}
