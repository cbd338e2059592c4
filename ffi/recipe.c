/* recipe.c: records the one-operation program of a recipe, with only the public recorder.
 *
 * Invariant: in every kind of recipe, tensors are recorded in the order of fig_slot, so that a
 * caller's arrays can be bound by number. */
#include "ffi/recipe.h"

#include <inttypes.h>
#include <string.h>

#include "ffi/known_scores.h"
#include "kernels/latent/latent.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

typedef struct slots {
    fig_tensor of[FIG_SLOT_COUNT];
} slots;

/* The limit of heads times tokens in a batch, as in planner/spec/spec.c. */
static const int64_t head_token_limit = INT64_C(1) << 34;

const char *const fig_recipe_score_arrays[FIG_SCORE_ARRAY_LIMIT] = {
    "score_array0", "score_array1", "score_array2", "score_array3",
    "score_array4", "score_array5", "score_array6", "score_array7"};

int32_t fig_recipe_tokens(const fig_recipe *recipe) {
    return recipe->row_tokens > 1 ? recipe->row_tokens : 1;
}

int fig_recipe_is_packed(const fig_recipe *recipe) {
    return fig_recipe_has(recipe, FIG_SLOT_QUERY_STARTS);
}

int fig_recipe_is_latent(const fig_recipe *recipe) {
    return recipe->kind == FIG_RECIPE_LATENT || recipe->kind == FIG_RECIPE_LATENT_DECODE;
}

int fig_recipe_has(const fig_recipe *recipe, fig_slot slot) {
    return (int)(recipe->slots >> slot & 1);
}

fig_status fig_recipe_check_latent_dim(int64_t latent_dim) {
    if (latent_dim == 0 || latent_dim == FIG_LATENT_DIM) return FIG_OK;
    return fig_fail(FIG_INVALID, "latent_dim is %" PRId64 ", it must be 0 or %d", latent_dim,
                    FIG_LATENT_DIM);
}

fig_status fig_recipe_round_tokens(int64_t *tokens, int has_lengths, int32_t *kv_limit) {
    *kv_limit = 1;
    if (*tokens > FIG_KV_LIMIT && !has_lengths)
        return fig_fail(FIG_TOO_LARGE,
                        "each sequence has %" PRId64 " tokens, limit %d; lengths may say fewer",
                        *tokens, FIG_KV_LIMIT);
    if (*tokens > FIG_KV_LIMIT) *tokens = FIG_KV_LIMIT;
    while (*kv_limit < *tokens)
        *kv_limit *= 2;
    return FIG_OK;
}

/* Returns the largest number of rows that stays within head_token_limit and FIG_BATCH_LIMIT. Of a
 * latent cache, only every eighth q head counts, because a worker reads for at least 8 q heads at
 * once. */
static int32_t batch_limit_of(const fig_recipe *recipe) {
    const int32_t groups = recipe->q_heads / FIG_LATENT_HEAD_UNIT;
    const int32_t heads =
        fig_recipe_is_latent(recipe) ? (groups > 0 ? groups : 1) : recipe->kv_heads;
    const int64_t rows = head_token_limit / ((int64_t)recipe->kv_limit * heads);
    return rows < FIG_BATCH_LIMIT ? (int32_t)rows : FIG_BATCH_LIMIT;
}

static fig_spec spec_of(const fig_recipe *recipe) {
    fig_spec spec = {.size = sizeof spec, .dtype = recipe->dtype};
    if (recipe->kv_limit == 0) return spec;
    spec.kv_dtype = recipe->kv_dtype;
    spec.q_heads = recipe->q_heads;
    spec.kv_heads = recipe->kv_heads;
    spec.head_dim = recipe->head_dim;
    spec.page_size = recipe->page_size;
    spec.kv_layout = recipe->layout;
    spec.kv_limit = recipe->kv_limit;
    spec.row_tokens = recipe->row_tokens;
    spec.kv_scales = recipe->scales > 1;
    spec.batch_limit = batch_limit_of(recipe);
    if (fig_recipe_is_latent(recipe)) {
        spec.latent_dim = FIG_LATENT_DIM;
        spec.sm_scale =
            recipe->sm_scale > 0.0f ? recipe->sm_scale : 1.0f; /* no plan depends on it */
    }
    if (fig_recipe_is_packed(recipe))
        spec.query_limit = (int64_t)spec.batch_limit * fig_recipe_tokens(recipe);
    if (spec.query_limit > FIG_QUERY_LIMIT) spec.query_limit = FIG_QUERY_LIMIT;
    return spec;
}

/* Returns the info of an array of a score. A score that is not known has no arrays. */
static fig_tensor_info score_info_of(const fig_recipe *r, fig_slot slot) {
    const uint32_t number = slot - FIG_SLOT_SCORE_ARRAY;
    const fig_score *score;
    if (fig_known_scores_find(r->score, &score) != FIG_OK) return (fig_tensor_info){0};
    return (fig_tensor_info){.name = fig_recipe_score_arrays[number],
                             .dtype = score->arrays[number].dtype,
                             .dims = {r->score_counts[number]}};
}

static fig_tensor_info info_of(const fig_recipe *r, fig_slot slot) {
    const int32_t page = r->page_size != 0 ? r->page_size : r->kv_limit;
    const int64_t out_width = r->width != 0 ? r->width : r->q_heads;
    const int64_t in_width = r->kind == FIG_RECIPE_GATED ? 2 * r->width : r->width;
    const int64_t out_dim = fig_recipe_is_latent(r) ? FIG_LATENT_DIM : r->head_dim;
    const int64_t q_dim = fig_recipe_has(r, FIG_SLOT_Q_ROPE) ? FIG_LATENT_DIM : r->head_dim;
    if (slot >= FIG_SLOT_SCORE_ARRAY && slot <= FIG_SLOT_SCORE_ARRAY_LAST)
        return score_info_of(r, slot);
    switch (slot) {
    case FIG_SLOT_IN: return (fig_tensor_info){.name = "input", .dims = {-1, in_width}};
    case FIG_SLOT_RESIDUAL: return (fig_tensor_info){.name = "residual", .dims = {-1, r->width}};
    case FIG_SLOT_WEIGHT: return (fig_tensor_info){.name = "weight", .dims = {r->width}};
    case FIG_SLOT_Q: return (fig_tensor_info){.name = "q", .dims = {-1, r->q_heads, q_dim}};
    case FIG_SLOT_Q_ROPE:
        return (fig_tensor_info){.name = "q_rope", .dims = {-1, r->q_heads, FIG_LATENT_ROPE_DIM}};
    case FIG_SLOT_K: return (fig_tensor_info){.name = "k", .dims = {-1, r->kv_heads, r->head_dim}};
    case FIG_SLOT_V: return (fig_tensor_info){.name = "v", .dims = {-1, r->kv_heads, r->head_dim}};
    case FIG_SLOT_LATENT: return (fig_tensor_info){.name = "latent", .dims = {-1, r->head_dim}};
    case FIG_SLOT_NORM: return (fig_tensor_info){.name = "norm", .dims = {FIG_LATENT_DIM}};
    case FIG_SLOT_K_CACHE:
    case FIG_SLOT_V_CACHE:
        return (fig_tensor_info){.name = slot == FIG_SLOT_K_CACHE ? "k_cache" : "v_cache",
                                 .dtype = r->kv_dtype,
                                 .dims = {FIG_DIM_PAGES, page, r->kv_heads, r->head_dim},
                                 .layout = r->layout};
    case FIG_SLOT_LATENT_CACHE:
        return (fig_tensor_info){
            .name = "cache",
            .dtype = r->kv_dtype,
            .dims = {FIG_DIM_PAGES, page, fig_latent_width((int32_t)r->kv_dtype)}};
    case FIG_SLOT_PAGE_TABLE:
        return (fig_tensor_info){.name = "page_table",
                                 .dtype = FIG_I32,
                                 .dims = {batch_limit_of(r), (r->kv_limit + page - 1) / page}};
    case FIG_SLOT_LENGTHS:
        return (fig_tensor_info){.name = "lengths", .dtype = FIG_I32, .dims = {-1}};
    case FIG_SLOT_QUERY_STARTS:
        return (fig_tensor_info){
            .name = "query_start_loc", .dtype = FIG_I32, .dims = {batch_limit_of(r) + 1}};
    case FIG_SLOT_POSITIONS:
        return (fig_tensor_info){.name = "positions", .dtype = r->index_dtype, .dims = {-1}};
    case FIG_SLOT_INDPTR:
        return (fig_tensor_info){
            .name = "indptr", .dtype = r->index_dtype, .dims = {r->segments + 1}};
    case FIG_SLOT_OFFSETS:
        return (fig_tensor_info){.name = "offsets", .dtype = r->index_dtype, .dims = {r->segments}};
    case FIG_SLOT_COS_SIN:
        return (fig_tensor_info){
            .name = "cos_sin", .dtype = FIG_F32, .dims = {r->positions, r->rope.rotary_dim}};
    case FIG_SLOT_K_SCALE:
        return (fig_tensor_info){.name = "k_scale", .dtype = FIG_F32, .dims = {r->scales}};
    case FIG_SLOT_V_SCALE:
        return (fig_tensor_info){.name = "v_scale", .dtype = FIG_F32, .dims = {r->scales}};
    case FIG_SLOT_SINKS:
        return (fig_tensor_info){.name = "sinks", .dtype = FIG_F32, .dims = {r->q_heads}};
    case FIG_SLOT_ALIBI:
        return (fig_tensor_info){.name = "alibi", .dtype = FIG_F32, .dims = {r->q_heads}};
    case FIG_SLOT_OUT: return (fig_tensor_info){.name = "out", .dims = {-1, out_width, out_dim}};
    case FIG_SLOT_K_OUT:
        return (fig_tensor_info){.name = "k_out", .dims = {-1, r->kv_heads, r->head_dim}};
    case FIG_SLOT_LSE:
        return (fig_tensor_info){.name = "lse", .dtype = FIG_F32, .dims = {-1, r->q_heads}};
    case FIG_SLOT_SCORE_ARRAY:
    case FIG_SLOT_SCORE_ARRAY_LAST:
    case FIG_SLOT_COUNT: break;
    }
    return (fig_tensor_info){0};
}

/* Returns 1 if the array has one number per row, which the plan copies. */
static int is_of_plan(const fig_recipe *recipe, fig_slot slot) {
    const int attends = recipe->kind == FIG_RECIPE_ATTENTION || recipe->kind == FIG_RECIPE_LATENT;
    return slot == FIG_SLOT_LENGTHS || (slot == FIG_SLOT_POSITIONS && attends);
}

/* Records the tensors. The rank follows from the dims. A slot without its own dtype has the
 * recipe's. */
static void record_tensors(fig_program *program, const fig_recipe *recipe, slots *tensors) {
    for (fig_slot slot = 0; slot < FIG_SLOT_COUNT; slot++) {
        tensors->of[slot] = (fig_tensor){0};
        if (!fig_recipe_has(recipe, slot)) continue;
        fig_tensor_info info = info_of(recipe, slot);
        info.size = sizeof info;
        info.role = FIG_ROLE_BOUND;
        const int is_of_tokens = info.dims[0] == FIG_DIM_BATCH && !is_of_plan(recipe, slot);
        if (is_of_tokens && fig_recipe_is_packed(recipe)) {
            info.dims[0] = FIG_DIM_QUERIES;
        } else if (is_of_tokens) {
            info.multiple = recipe->row_tokens;
        }
        if (info.dtype == 0) info.dtype = recipe->dtype;
        while (info.rank < 4 && info.dims[info.rank] != 0)
            info.rank++;
        tensors->of[slot] = fig_program_tensor(program, &info);
    }
}

static void record_gated(fig_program *program, const fig_recipe *recipe, const slots *t) {
    const fig_gated_op *op =
        FIG_OPTIONS(fig_gated_op, .in = t->of[FIG_SLOT_IN], .out = t->of[FIG_SLOT_OUT]);
    switch (recipe->activation) {
    case FIG_SILU: fig_silu_and_mul(program, op); return;
    case FIG_GELU: fig_gelu_and_mul(program, op); return;
    case FIG_GELU_TANH: fig_gelu_tanh_and_mul(program, op); return;
    case FIG_SWIGLU_LIMITED: fig_swiglu_limited(program, op); return;
    }
}

static void record_rope(fig_program *program, const fig_recipe *recipe, const slots *t) {
    fig_rope(program,
             FIG_OPTIONS(fig_rope_op, .q = t->of[FIG_SLOT_Q], .k = t->of[FIG_SLOT_K],
                         .q_out = t->of[FIG_SLOT_OUT], .k_out = t->of[FIG_SLOT_K_OUT],
                         .positions = t->of[FIG_SLOT_POSITIONS], .indptr = t->of[FIG_SLOT_INDPTR],
                         .offsets = t->of[FIG_SLOT_OFFSETS], .cos_sin = t->of[FIG_SLOT_COS_SIN],
                         .rope = &recipe->rope));
}

static fig_cache cache_of(const slots *t) {
    return (fig_cache){.k = t->of[FIG_SLOT_K_CACHE],
                       .v = t->of[FIG_SLOT_V_CACHE],
                       .page_table = t->of[FIG_SLOT_PAGE_TABLE],
                       .k_scale = t->of[FIG_SLOT_K_SCALE],
                       .v_scale = t->of[FIG_SLOT_V_SCALE]};
}

static void record_append(fig_program *program, const slots *t) {
    fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = t->of[FIG_SLOT_K],
                                       .v = t->of[FIG_SLOT_V], .cache = cache_of(t)));
}

static void record_attention(fig_program *program, const fig_recipe *recipe, const slots *t,
                             const fig_score *score) {
    fig_attention_op *op =
        FIG_OPTIONS(fig_attention_op, .q = t->of[FIG_SLOT_Q], .out = t->of[FIG_SLOT_OUT],
                    .lse = t->of[FIG_SLOT_LSE], .sinks = t->of[FIG_SLOT_SINKS],
                    .alibi = t->of[FIG_SLOT_ALIBI], .cache = cache_of(t), .window = recipe->window,
                    .soft_cap = recipe->soft_cap, .sm_scale = recipe->sm_scale, .score = score);
    memcpy(op->score_arrays, t->of + FIG_SLOT_SCORE_ARRAY, sizeof op->score_arrays);
    fig_attention(program, op);
}

static void record_decode(fig_program *program, const fig_recipe *recipe, const slots *t,
                          const fig_score *score) {
    const int is_plain = recipe->rope.rotary_dim == 0;
    fig_decode_attention_op *op =
        FIG_OPTIONS(fig_decode_attention_op, .q = t->of[FIG_SLOT_Q], .k = t->of[FIG_SLOT_K],
                    .v = t->of[FIG_SLOT_V], .out = t->of[FIG_SLOT_OUT], .lse = t->of[FIG_SLOT_LSE],
                    .positions = t->of[FIG_SLOT_POSITIONS], .cos_sin = t->of[FIG_SLOT_COS_SIN],
                    .sinks = t->of[FIG_SLOT_SINKS], .alibi = t->of[FIG_SLOT_ALIBI],
                    .rope = is_plain ? NULL : &recipe->rope, .plain = is_plain,
                    .cache = cache_of(t), .window = recipe->window, .soft_cap = recipe->soft_cap,
                    .sm_scale = recipe->sm_scale, .score = score);
    memcpy(op->score_arrays, t->of + FIG_SLOT_SCORE_ARRAY, sizeof op->score_arrays);
    fig_decode_attention(program, op);
}

static void record_norm(fig_program *program, const fig_recipe *recipe, const slots *t) {
    const fig_rms_norm_op *op =
        FIG_OPTIONS(fig_rms_norm_op, .in = t->of[FIG_SLOT_IN], .weight = t->of[FIG_SLOT_WEIGHT],
                    .out = t->of[FIG_SLOT_OUT], .residual = t->of[FIG_SLOT_RESIDUAL],
                    .epsilon = recipe->epsilon, .weight_offset = recipe->weight_offset);
    if (fig_recipe_has(recipe, FIG_SLOT_RESIDUAL))
        fig_add_rms_norm(program, op);
    else
        fig_rms_norm(program, op);
}

static void record_latent(fig_program *program, const fig_recipe *recipe, const slots *t) {
    fig_latent_attention(
        program, FIG_OPTIONS(fig_latent_attention_op, .q = t->of[FIG_SLOT_Q],
                             .out = t->of[FIG_SLOT_OUT], .lse = t->of[FIG_SLOT_LSE],
                             .sinks = t->of[FIG_SLOT_SINKS], .cache = t->of[FIG_SLOT_LATENT_CACHE],
                             .page_table = t->of[FIG_SLOT_PAGE_TABLE], .window = recipe->window,
                             .sm_scale = recipe->sm_scale, .q_rope = t->of[FIG_SLOT_Q_ROPE]));
}

static void record_latent_decode(fig_program *program, const fig_recipe *recipe, const slots *t) {
    fig_latent_decode(
        program, FIG_OPTIONS(fig_latent_decode_op, .q = t->of[FIG_SLOT_Q],
                             .latent = t->of[FIG_SLOT_LATENT], .out = t->of[FIG_SLOT_OUT],
                             .lse = t->of[FIG_SLOT_LSE], .positions = t->of[FIG_SLOT_POSITIONS],
                             .cos_sin = t->of[FIG_SLOT_COS_SIN], .norm = t->of[FIG_SLOT_NORM],
                             .sinks = t->of[FIG_SLOT_SINKS], .cache = t->of[FIG_SLOT_LATENT_CACHE],
                             .page_table = t->of[FIG_SLOT_PAGE_TABLE], .rope = &recipe->rope,
                             .window = recipe->window, .norm_epsilon = recipe->epsilon,
                             .sm_scale = recipe->sm_scale, .q_rope = t->of[FIG_SLOT_Q_ROPE]));
}

static void record(fig_program *program, const fig_recipe *recipe, const fig_score *score) {
    slots tensors;
    record_tensors(program, recipe, &tensors);
    if (fig_recipe_has(recipe, FIG_SLOT_LENGTHS)) {
        const int has = is_of_plan(recipe, FIG_SLOT_POSITIONS);
        const fig_tensor positions = has ? tensors.of[FIG_SLOT_POSITIONS] : (fig_tensor){0};
        fig_program_read_queries(program, tensors.of[FIG_SLOT_LENGTHS], positions,
                                 tensors.of[FIG_SLOT_QUERY_STARTS]);
    }
    switch ((fig_recipe_kind)recipe->kind) {
    case FIG_RECIPE_GATED: record_gated(program, recipe, &tensors); return;
    case FIG_RECIPE_ROPE: record_rope(program, recipe, &tensors); return;
    case FIG_RECIPE_APPEND: record_append(program, &tensors); return;
    case FIG_RECIPE_ATTENTION: record_attention(program, recipe, &tensors, score); return;
    case FIG_RECIPE_DECODE: record_decode(program, recipe, &tensors, score); return;
    case FIG_RECIPE_NORM: record_norm(program, recipe, &tensors); return;
    case FIG_RECIPE_LATENT: record_latent(program, recipe, &tensors); return;
    case FIG_RECIPE_LATENT_DECODE: record_latent_decode(program, recipe, &tensors); return;
    case FIG_RECIPE_PROGRAM: return;
    }
}

fig_status fig_recipe_make(const fig_recipe *recipe, fig_graphs **graphs) {
    const fig_spec spec = spec_of(recipe);
    const fig_score *score = NULL;
    fig_program *program;
    *graphs = NULL;
    if (recipe->score != 0) FIG_TRY(fig_known_scores_find(recipe->score, &score));
    FIG_TRY(fig_program_create(&program, &spec));
    record(program, recipe, score);
    fig_status status = fig_program_finish(program);
    if (status == FIG_OK)
        status = fig_graphs_lower(graphs, program,
                                  FIG_OPTIONS(fig_lower_options, .buckets = &(fig_bucket){1, 1},
                                              .bucket_count = 1,
                                              .deterministic = recipe->deterministic));
    fig_program_destroy(program);
    return status;
}
