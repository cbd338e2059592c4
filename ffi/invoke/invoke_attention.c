/* invoke_attention.c: describes decode attention, of one row or of many.
 *
 * Without lengths each row has all the tokens that its cache holds. Invariant: lengths on the
 * device are not trusted, so the call also passes the largest number of tokens that a row may
 * have. */
#include <inttypes.h>

#include "ffi/invoke/invoke_attention.h"
#include "ffi/invoke/invoke_cache.h"
#include "ffi/invoke/invoke_score.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

fig_status fig_invoke_attention_check_lse(const fig_array *lse, const fig_array *q) {
    if (!fig_array_is_present(lse)) return FIG_OK;
    FIG_TRY(fig_array_check_rank(lse, q->rank - 1));
    for (int32_t i = 0; i < lse->rank; i++)
        FIG_TRY(fig_array_check_dim(lse, i, q->dims[i]));
    FIG_TRY(fig_array_check_dtype(lse, FIG_F32));
    return fig_array_check_dense(lse);
}

fig_status fig_invoke_attention_take_tokens(fig_invoke *invoke, const fig_invoke_heads *heads) {
    if (fig_array_is_present(&heads->queries->start_loc))
        return fig_invoke_cache_take_queries(invoke, heads->queries, heads->q, heads->lengths);
    if (heads->q->rank != 4) return FIG_OK;
    FIG_TRY(fig_invoke_cache_take_tokens(invoke, heads->q));
    FIG_TRY(fig_array_join(heads->out));
    return fig_array_is_present(heads->lse) ? fig_array_join(heads->lse) : FIG_OK;
}

static fig_status take_heads(fig_invoke *invoke, fig_invoke_attention *a) {
    fig_recipe *recipe = &invoke->recipe;
    const int is_single = a->q.rank == 2;
    const int32_t k_heads_dim = a->k.rank - (a->layout == FIG_HND ? 3 : 2);
    if (!is_single && a->q.rank != 4) FIG_TRY(fig_array_check_rank(&a->q, 3));
    FIG_TRY(fig_array_check_activation(&a->q));
    FIG_TRY(fig_array_check_alike(&a->out, &a->q));
    FIG_TRY(fig_array_check_dtype(&a->out, a->q.dtype));
    FIG_TRY(is_single ? fig_array_check_dense(&a->q) : fig_array_check_rows(&a->q));
    FIG_TRY(is_single ? fig_array_check_dense(&a->out) : fig_array_check_rows(&a->out));
    FIG_TRY(fig_invoke_attention_check_lse(&a->lse, &a->q));
    if (a->k.rank < 3) FIG_TRY(fig_array_check_rank(&a->k, is_single ? 3 : 4));
    invoke->rows = is_single ? 1 : a->q.dims[0];
    const fig_invoke_heads heads = {&a->q, &a->out, &a->lse, &a->lengths, &a->queries};
    FIG_TRY(fig_invoke_attention_take_tokens(invoke, &heads));
    const int64_t q_heads = a->q.dims[a->q.rank - 2], kv_heads = a->k.dims[k_heads_dim];
    if (q_heads > INT32_MAX || kv_heads > INT32_MAX || a->q.dims[a->q.rank - 1] > INT32_MAX)
        return fig_fail(FIG_TOO_LARGE, "q or k has more heads than can be counted");
    recipe->dtype = a->q.dtype;
    recipe->q_heads = (int32_t)q_heads;
    recipe->kv_heads = (int32_t)kv_heads;
    recipe->head_dim = (int32_t)a->q.dims[a->q.rank - 1];
    if (q_heads > 0 && kv_heads > 0) return FIG_OK;
    return fig_fail(FIG_INVALID, "q has %" PRId64 " heads and k %" PRId64, q_heads, kv_heads);
}

fig_status fig_invoke_attention_take_per_head(fig_invoke *invoke, fig_slot slot,
                                              const fig_array *array) {
    if (!fig_array_is_present(array)) return FIG_OK;
    FIG_TRY(fig_array_check_rank(array, 1));
    FIG_TRY(fig_array_check_dtype(array, FIG_F32));
    FIG_TRY(fig_array_check_dense(array));
    FIG_TRY(fig_array_check_dim(array, 0, invoke->recipe.q_heads));
    fig_invoke_add(invoke, slot, array);
    return FIG_OK;
}

int32_t fig_invoke_attention_window(int64_t window_left) {
    return window_left < 0 || window_left >= FIG_KV_LIMIT ? 0 : (int32_t)window_left + 1;
}

fig_status fig_invoke_attention_describe(fig_invoke *invoke, fig_invoke_attention *a) {
    const fig_invoke_cache cache = {&a->k,       &a->v,       &a->page_table, &a->lengths,
                                    &a->k_scale, &a->v_scale, a->layout};
    fig_recipe *recipe = &invoke->recipe;
    recipe->kind = FIG_RECIPE_ATTENTION;
    if (a->layout != FIG_NHD && a->layout != FIG_HND)
        return fig_fail(FIG_INVALID, "kv_layout_code is %" PRId64 ", it must be 0, NHD, or 1, HND",
                        a->layout);
    FIG_TRY(take_heads(invoke, a));
    recipe->window = fig_invoke_attention_window(a->window_left);
    recipe->soft_cap = a->soft_cap > 0 ? (float)a->soft_cap : 0.0f;
    recipe->sm_scale = (float)a->sm_scale;
    recipe->deterministic = a->deterministic != 0;
    fig_invoke_add(invoke, FIG_SLOT_Q, &a->q);
    FIG_TRY(fig_invoke_cache_take(invoke, &cache));
    FIG_TRY(fig_invoke_attention_take_per_head(invoke, FIG_SLOT_SINKS, &a->sinks));
    FIG_TRY(fig_invoke_attention_take_per_head(invoke, FIG_SLOT_ALIBI, &a->alibi));
    FIG_TRY(fig_invoke_score_take(invoke, a));
    fig_invoke_add(invoke, FIG_SLOT_OUT, &a->out);
    fig_invoke_add(invoke, FIG_SLOT_LSE, &a->lse);
    return FIG_OK;
}

static fig_status check_limit(const char *name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return FIG_OK;
    return fig_fail(FIG_INVALID, "%s is %" PRId64 ", limits %" PRId64 " to %" PRId64, name, value,
                    least, most);
}

static fig_status check_plan(const fig_invoke_plan *p) {
    FIG_TRY(fig_array_check_rank(&p->lengths, 1));
    FIG_TRY(fig_array_check_dtype(&p->lengths, FIG_I32));
    FIG_TRY(check_limit("q_heads", p->q_heads, 1, FIG_HEAD_LIMIT));
    FIG_TRY(check_limit("kv_heads", p->kv_heads, 1, FIG_HEAD_LIMIT));
    FIG_TRY(check_limit("head_dim", p->head_dim, 1, INT32_MAX));
    FIG_TRY(check_limit("page_size", p->page_size, 0, INT32_MAX));
    FIG_TRY(check_limit("row_tokens", p->row_tokens, 1,
                        fig_array_is_present(&p->query_start_loc) ? FIG_CHUNK_TOKENS_LIMIT
                                                                  : FIG_ROW_TOKENS_LIMIT));
    FIG_TRY(check_limit("kv_length", p->kv_length, 1, INT64_MAX));
    return fig_recipe_check_latent_dim(p->latent_dim);
}

/* Adds the arrays of which a plan needs only the shapes; no kernel reads their contents. */
static void add_unseen(fig_invoke *invoke) {
    static const fig_array nothing = {.name = "nothing"};
    fig_invoke_add(invoke, FIG_SLOT_Q, &nothing);
    fig_invoke_add(invoke, FIG_SLOT_OUT, &nothing);
    if (invoke->recipe.page_size != 0) fig_invoke_add(invoke, FIG_SLOT_PAGE_TABLE, &nothing);
    if (fig_recipe_is_latent(&invoke->recipe)) {
        fig_invoke_add(invoke, FIG_SLOT_LATENT_CACHE, &nothing);
        return;
    }
    fig_invoke_add(invoke, FIG_SLOT_K_CACHE, &nothing);
    fig_invoke_add(invoke, FIG_SLOT_V_CACHE, &nothing);
}

fig_status fig_invoke_attention_describe_plan(fig_invoke *invoke, const fig_invoke_plan *p) {
    fig_recipe *recipe = &invoke->recipe;
    FIG_TRY(check_plan(p));
    invoke->rows = p->lengths.dims[0];
    invoke->kv_length = p->kv_length;
    FIG_TRY(fig_invoke_lend(invoke, &p->scratch));
    FIG_TRY(fig_invoke_lend_plan(invoke, &p->out));
    invoke->plans = 1;
    recipe->kind = p->latent_dim != 0 ? FIG_RECIPE_LATENT : FIG_RECIPE_ATTENTION;
    recipe->dtype = p->dtype;
    recipe->kv_dtype = p->kv_dtype;
    recipe->q_heads = (int32_t)p->q_heads;
    recipe->kv_heads = (int32_t)p->kv_heads;
    recipe->head_dim = (int32_t)p->head_dim;
    recipe->page_size = (int32_t)p->page_size;
    recipe->window = fig_invoke_attention_window(p->window_left);
    recipe->row_tokens = p->row_tokens > 1 ? (int32_t)p->row_tokens : 0;
    recipe->deterministic = p->deterministic != 0;
    FIG_TRY(fig_recipe_round_tokens(&invoke->kv_length, 1, &recipe->kv_limit));
    add_unseen(invoke);
    if (fig_array_is_present(&p->query_start_loc)) {
        FIG_TRY(check_limit("tokens", p->tokens, 0, INT64_MAX));
        invoke->tokens = p->tokens;
        FIG_TRY(fig_invoke_cache_take_starts(invoke, &p->query_start_loc));
    }
    if (fig_array_is_present(&p->positions)) {
        FIG_TRY(fig_array_check_dtype(&p->positions, FIG_I32)); /* as plans hold them */
        FIG_TRY(fig_invoke_rope_take_positions(invoke, &p->positions, invoke->rows));
    }
    return fig_invoke_cache_take_lengths(invoke, &p->lengths);
}
