/* tvm_entries.c: the functions that tvm_ffi.load_module and fig_ffi_run find in this library.
 *
 * A function with the name of a FlashInfer function takes that function's arguments in the same
 * order. The variant with _jax takes results, then arguments, then attributes, so that jax_tvm_ffi
 * needs no wrapper. A function with the name of an XLA target takes arguments, then results, then
 * attributes. This file owns only these orders. Invariant: arguments are read in the order of the
 * names in the entry's list. */
#include <inttypes.h>
#include <string.h>

#include "ffi/invoke/invoke.h"
#include "ffi/tvm/tvm_call.h"
#include "include/figraph_ffi.h"
#include "planner/status.h"

static fig_status run(const fig_tvm_call *call, fig_invoke *invoke) {
    invoke->stream = fig_tvm_call_stream(call);
    return fig_invoke_run(invoke);
}

/* ---- Row by row ------------------------------------------------------------------------------ */
static fig_status gated(fig_tvm_call *call, fig_activation activation) {
    fig_invoke invoke = {0};
    fig_array out, input;
    fig_tvm_call_array(call, "out", &out);
    fig_tvm_call_array(call, "input", &input);
    fig_tvm_call_integer(call, "enable_pdl"); /* ignored: programmatic edges change no result */
    FIG_TRY(call->status);
    FIG_TRY(fig_invoke_gated_describe(&invoke, activation, &input, &out));
    return run(call, &invoke);
}

static fig_status normalise(fig_tvm_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_norm n = {0};
    fig_tvm_call_array(call, "input", &n.input);
    fig_tvm_call_option(call, "maybe_residual", &n.residual);
    fig_tvm_call_array(call, "weight", &n.weight);
    fig_tvm_call_array(call, "out", &n.out);
    n.epsilon = fig_tvm_call_real(call, "epsilon");
    n.weight_offset = fig_tvm_call_real(call, "weight_offset");
    FIG_TRY(call->status);
    FIG_TRY(fig_invoke_norm_describe(&invoke, &n));
    return run(call, &invoke);
}

/* ---- RoPE ------------------------------------------------------------------------------------ */
static void read_rope_heads(fig_tvm_call *call, fig_invoke_rope *rope) {
    fig_tvm_call_array(call, "q", &rope->q);
    fig_tvm_call_array(call, "k", &rope->k);
}

static void read_rope_outs(fig_tvm_call *call, fig_invoke_rope *rope) {
    fig_tvm_call_array(call, "q_rope", &rope->q_out);
    fig_tvm_call_array(call, "k_rope", &rope->k_out);
}

static void read_segments(fig_tvm_call *call, fig_invoke_rope *rope) {
    fig_tvm_call_array(call, "indptr", &rope->indptr);
    fig_tvm_call_array(call, "offsets", &rope->offsets);
}

/* A value that means "the default" in a spec is an error here, because the caller must give all
 * values. */
static fig_status check_angles(const fig_rope_spec *rope, int64_t rotary_dim) {
    if (rotary_dim < 1 || rotary_dim > INT32_MAX)
        return fig_fail(FIG_INVALID, "rotary_dim is %" PRId64 ", it must be above 0", rotary_dim);
    if (!(rope->scale > 0.0f) || !(rope->theta > 0.0f))
        return fig_fail(FIG_INVALID, "rope_scale is %g and rope_theta %g, both must be above 0",
                        (double)rope->scale, (double)rope->theta);
    return FIG_OK;
}

static void read_terms(fig_tvm_call *call, fig_rope_spec *rope) {
    rope->interleaved = fig_tvm_call_integer(call, "interleave") != 0;
    rope->scale = (float)fig_tvm_call_real(call, "rope_scale");
    rope->theta = (float)fig_tvm_call_real(call, "rope_theta");
}

static void read_angles(fig_tvm_call *call, fig_rope_spec *rope) {
    const int64_t rotary_dim = fig_tvm_call_integer(call, "rotary_dim");
    read_terms(call, rope);
    if (call->status == FIG_OK) call->status = check_angles(rope, rotary_dim);
    if (call->status == FIG_OK) rope->rotary_dim = (int32_t)rotary_dim;
}

/* Llama 3's scale divides only the low frequencies; linear scaling is a separate parameter. */
static void read_llama31_angles(fig_tvm_call *call, fig_rope_spec *rope) {
    read_angles(call, rope);
    rope->llama3_low = (float)fig_tvm_call_real(call, "low_freq_factor");
    rope->llama3_high = (float)fig_tvm_call_real(call, "high_freq_factor");
    const double context = fig_tvm_call_real(call, "old_context_length");
    if (call->status == FIG_OK && !(context >= 1 && context <= INT32_MAX))
        call->status =
            fig_fail(FIG_INVALID, "old_context_length is %g, limits 1 to %d", context, INT32_MAX);
    if (call->status != FIG_OK) return;
    rope->llama3_context = (int32_t)context;
    rope->llama3_factor = rope->scale;
    rope->scale = 0.0f;
}

static fig_status rotate(fig_tvm_call *call, const fig_invoke_rope *rope) {
    fig_invoke invoke = {0};
    FIG_TRY(call->status);
    FIG_TRY(fig_invoke_rope_describe(&invoke, rope));
    return run(call, &invoke);
}

typedef void read_angles_function(fig_tvm_call *call, fig_rope_spec *rope);

static fig_status rope_packed(fig_tvm_call *call, read_angles_function *read) {
    fig_invoke_rope rope = {0};
    read_rope_heads(call, &rope);
    read_rope_outs(call, &rope);
    read_segments(call, &rope);
    read(call, &rope.rope);
    return rotate(call, &rope);
}

static fig_status rope_packed_jax(fig_tvm_call *call) {
    fig_invoke_rope rope = {0};
    read_rope_outs(call, &rope);
    read_rope_heads(call, &rope);
    read_segments(call, &rope);
    read_angles(call, &rope.rope);
    return rotate(call, &rope);
}

static fig_status rope_at(fig_tvm_call *call, read_angles_function *read) {
    fig_invoke_rope rope = {0};
    read_rope_heads(call, &rope);
    read_rope_outs(call, &rope);
    fig_tvm_call_array(call, "pos_ids", &rope.positions);
    read(call, &rope.rope);
    return rotate(call, &rope);
}

static fig_status rope_by_cache(fig_tvm_call *call) {
    fig_invoke_rope rope = {0};
    read_rope_heads(call, &rope);
    read_rope_outs(call, &rope);
    fig_tvm_call_array(call, "cos_sin_cache", &rope.cos_sin);
    fig_tvm_call_array(call, "pos_ids", &rope.positions);
    rope.rope.interleaved = fig_tvm_call_integer(call, "interleave") != 0;
    return rotate(call, &rope);
}

/* ---- Attention ------------------------------------------------------------------------------- */
typedef struct attention_call {
    fig_invoke_attention attention;
    fig_array tmp;
} attention_call;

static void read_caches(fig_tvm_call *call, attention_call *a) {
    fig_tvm_call_array(call, "q", &a->attention.q);
    fig_tvm_call_array(call, "k", &a->attention.k);
    fig_tvm_call_array(call, "v", &a->attention.v);
}

static void read_pages(fig_tvm_call *call, attention_call *a) {
    fig_tvm_call_option(call, "page_table", &a->attention.page_table);
    fig_tvm_call_array(call, "lengths", &a->attention.lengths);
}

static void read_layout(fig_tvm_call *call, fig_invoke_attention *a) {
    a->layout = fig_tvm_call_integer(call, "kv_layout_code");
    a->window_left = fig_tvm_call_integer(call, "window_left");
}

static void read_scales(fig_tvm_call *call, fig_invoke_attention *a) {
    a->soft_cap = fig_tvm_call_real(call, "logits_soft_cap");
    a->sm_scale = fig_tvm_call_real(call, "sm_scale");
}

/* Reads tmp, out and maybe_lse. */
static void read_outs(fig_tvm_call *call, attention_call *a) {
    fig_tvm_call_option(call, "tmp", &a->tmp);
    fig_tvm_call_array(call, "out", &a->attention.out);
    fig_tvm_call_option(call, "maybe_lse", &a->attention.lse);
}

static void read_outs_jax(fig_tvm_call *call, attention_call *a) {
    fig_tvm_call_array(call, "out", &a->attention.out);
    fig_tvm_call_option(call, "tmp", &a->tmp);
    fig_tvm_call_option(call, "lse", &a->attention.lse);
}

/* Attention here has no position encoding, so these arguments are ignored, whatever they are. */
static void skip_rope(fig_tvm_call *call) {
    fig_tvm_call_skip(call);
    fig_tvm_call_skip(call);
}

/* Reads the arguments that give each row its own number of query tokens. */
static void read_queries(fig_tvm_call *call, fig_invoke_queries *queries) {
    fig_tvm_call_option(call, "query_start_loc", &queries->start_loc);
    queries->row_tokens = fig_tvm_call_integer_or(call, "row_tokens", 0);
}

static void read_score(fig_tvm_call *call, fig_invoke_attention *a) {
    a->score = fig_tvm_call_integer_or(call, "score", 0);
    for (int i = 0; i < FIG_SCORE_ARRAY_LIMIT; i++)
        fig_tvm_call_option(call, fig_recipe_score_arrays[i], &a->score_arrays[i]);
}

static fig_status attend(fig_tvm_call *call, attention_call *a) {
    fig_invoke invoke = {0};
    FIG_TRY(call->status);
    FIG_TRY(fig_invoke_attention_describe(&invoke, &a->attention));
    FIG_TRY(fig_invoke_lend(&invoke, &a->tmp));
    return run(call, &invoke);
}

static fig_status single(fig_tvm_call *call) {
    attention_call a = {0};
    read_caches(call, &a);
    read_outs(call, &a);
    read_layout(call, &a.attention);
    fig_tvm_call_option(call, "maybe_alibi_slopes", &a.attention.alibi);
    read_scales(call, &a.attention);
    skip_rope(call);
    if (call->status == FIG_OK) call->status = fig_array_check_rank(&a.attention.q, 2);
    return attend(call, &a);
}

static fig_status single_jax(fig_tvm_call *call) {
    attention_call a = {0};
    read_outs_jax(call, &a);
    read_caches(call, &a);
    fig_tvm_call_option(call, "alibi", &a.attention.alibi);
    read_layout(call, &a.attention);
    read_scales(call, &a.attention);
    skip_rope(call);
    if (call->status == FIG_OK) call->status = fig_array_check_rank(&a.attention.q, 2);
    return attend(call, &a);
}

static fig_status batch(fig_tvm_call *call) {
    attention_call a = {0};
    read_caches(call, &a);
    read_pages(call, &a);
    read_outs(call, &a);
    read_layout(call, &a.attention);
    fig_tvm_call_option(call, "maybe_alibi_slopes", &a.attention.alibi);
    read_scales(call, &a.attention);
    if (call->status == FIG_OK) call->status = fig_array_check_rank(&a.attention.q, 3);
    return attend(call, &a);
}

static fig_status batch_jax(fig_tvm_call *call) {
    attention_call a = {0};
    read_outs_jax(call, &a);
    read_caches(call, &a);
    read_pages(call, &a);
    fig_tvm_call_option(call, "alibi", &a.attention.alibi);
    read_layout(call, &a.attention);
    read_scales(call, &a.attention);
    if (call->status == FIG_OK) call->status = fig_array_check_rank(&a.attention.q, 3);
    return attend(call, &a);
}

/* Does the work of the function for batches, for rows with different numbers of query tokens. */
static fig_status rows(fig_tvm_call *call) {
    attention_call a = {0};
    read_caches(call, &a);
    read_pages(call, &a);
    fig_tvm_call_array(call, "query_start_loc", &a.attention.queries.start_loc);
    read_outs(call, &a);
    read_layout(call, &a.attention);
    fig_tvm_call_option(call, "maybe_alibi_slopes", &a.attention.alibi);
    read_scales(call, &a.attention);
    a.attention.queries.row_tokens = fig_tvm_call_integer_or(call, "row_tokens", 0);
    return attend(call, &a);
}

static fig_status rows_jax(fig_tvm_call *call) {
    attention_call a = {0};
    read_outs_jax(call, &a);
    read_caches(call, &a);
    read_pages(call, &a);
    fig_tvm_call_array(call, "query_start_loc", &a.attention.queries.start_loc);
    fig_tvm_call_option(call, "alibi", &a.attention.alibi);
    read_layout(call, &a.attention);
    read_scales(call, &a.attention);
    a.attention.queries.row_tokens = fig_tvm_call_integer_or(call, "row_tokens", 0);
    return attend(call, &a);
}

/* ---- XLA's targets --------------------------------------------------------------------------- */
static int32_t small(int64_t value) {
    return value < 0 || value > INT32_MAX ? -1 : (int32_t)value; /* the program refuses -1 */
}

static void read_llama3(fig_tvm_call *call, fig_rope_spec *rope) {
    rope->llama3_factor = (float)fig_tvm_call_real(call, "llama3_factor");
    rope->llama3_low = (float)fig_tvm_call_real(call, "llama3_low");
    rope->llama3_high = (float)fig_tvm_call_real(call, "llama3_high");
    rope->llama3_context = small(fig_tvm_call_integer(call, "llama3_context"));
}

static void read_all_angles(fig_tvm_call *call, fig_rope_spec *rope) {
    read_angles(call, rope);
    read_llama3(call, rope);
}

/* If rotary_dim is 0, decode_attention has no RoPE, and its other numbers are ignored. */
static void read_decode_angles(fig_tvm_call *call, fig_invoke_decode *d) {
    const int64_t rotary_dim = fig_tvm_call_integer(call, "rotary_dim");
    read_terms(call, &d->rope);
    read_llama3(call, &d->rope);
    d->plain = rotary_dim == 0;
    if (call->status == FIG_OK && !d->plain) call->status = check_angles(&d->rope, rotary_dim);
    if (call->status == FIG_OK) d->rope.rotary_dim = (int32_t)rotary_dim;
}

static fig_status turn(fig_tvm_call *call) {
    fig_invoke_rope r = {0};
    read_rope_heads(call, &r);
    fig_tvm_call_array(call, "positions", &r.positions);
    fig_tvm_call_array(call, "q_out", &r.q_out);
    fig_tvm_call_array(call, "k_out", &r.k_out);
    read_all_angles(call, &r.rope);
    fig_tvm_call_option(call, "cos_sin_cache", &r.cos_sin);
    return rotate(call, &r);
}

/* The plan and scratch that a step's layers share, or the scratch of a single call. */
typedef struct lent {
    fig_array plan, scratch;
} lent;

static fig_status run_with(fig_tvm_call *call, fig_invoke *invoke, const lent *by) {
    FIG_TRY(fig_invoke_lend(invoke, &by->scratch));
    FIG_TRY(fig_invoke_lend_plan(invoke, &by->plan));
    return run(call, invoke);
}

static fig_status append(fig_tvm_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_append a = {0};
    lent by;
    fig_tvm_call_array(call, "k", &a.k);
    fig_tvm_call_array(call, "v", &a.v);
    fig_tvm_call_array(call, "k_cache", &a.k_cache);
    fig_tvm_call_array(call, "v_cache", &a.v_cache);
    fig_tvm_call_array(call, "lengths", &a.lengths);
    fig_tvm_call_option(call, "page_table", &a.page_table);
    fig_tvm_call_option(call, "plan", &by.plan);
    fig_tvm_call_option(call, "k_scale", &a.k_scale);
    fig_tvm_call_option(call, "v_scale", &a.v_scale);
    fig_tvm_call_option(call, "scratch", &by.scratch);
    a.layout = fig_tvm_call_integer(call, "kv_layout_code");
    read_queries(call, &a.queries);
    FIG_TRY(call->status);
    FIG_TRY(fig_invoke_append_describe(&invoke, &a));
    return run_with(call, &invoke, &by);
}

static fig_status plan(fig_tvm_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_plan p = {0};
    fig_tvm_call_array(call, "lengths", &p.lengths);
    fig_tvm_call_array(call, "plan", &p.out);
    fig_tvm_call_option(call, "scratch", &p.scratch);
    p.dtype = fig_tvm_call_dtype(call, "dtype_code");
    p.kv_dtype = fig_tvm_call_dtype(call, "kv_dtype_code");
    p.q_heads = fig_tvm_call_integer(call, "q_heads");
    p.kv_heads = fig_tvm_call_integer(call, "kv_heads");
    p.head_dim = fig_tvm_call_integer(call, "head_dim");
    p.page_size = fig_tvm_call_integer(call, "page_size");
    p.kv_length = fig_tvm_call_integer(call, "kv_length");
    p.window_left = fig_tvm_call_integer(call, "window_left");
    p.row_tokens = fig_tvm_call_integer_or(call, "row_tokens", 1);
    p.deterministic = fig_tvm_call_integer_or(call, "deterministic", 0);
    fig_tvm_call_option(call, "positions", &p.positions);
    fig_tvm_call_option(call, "query_start_loc", &p.query_start_loc);
    p.tokens = fig_tvm_call_integer_or(call, "tokens", 0);
    p.latent_dim = fig_tvm_call_integer_or(call, "latent_dim", 0);
    FIG_TRY(call->status);
    FIG_TRY(fig_invoke_attention_describe_plan(&invoke, &p));
    return run(call, &invoke);
}

static void read_options(fig_tvm_call *call, fig_invoke_attention *a, lent *by) {
    fig_tvm_call_option(call, "page_table", &a->page_table);
    fig_tvm_call_option(call, "plan", &by->plan);
    fig_tvm_call_option(call, "alibi", &a->alibi);
    fig_tvm_call_option(call, "sinks", &a->sinks);
    fig_tvm_call_option(call, "k_scale", &a->k_scale);
    fig_tvm_call_option(call, "v_scale", &a->v_scale);
    fig_tvm_call_array(call, "out", &a->out);
    fig_tvm_call_option(call, "scratch", &by->scratch);
    fig_tvm_call_option(call, "maybe_lse", &a->lse);
}

static void read_logits(fig_tvm_call *call, fig_invoke_attention *a) {
    read_layout(call, a);
    read_scales(call, a);
    a->deterministic = fig_tvm_call_integer_or(call, "deterministic", 0);
}

static fig_status attention(fig_tvm_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_attention a = {0};
    lent by;
    fig_tvm_call_array(call, "q", &a.q);
    fig_tvm_call_array(call, "k_cache", &a.k);
    fig_tvm_call_array(call, "v_cache", &a.v);
    fig_tvm_call_option(call, "lengths", &a.lengths);
    read_options(call, &a, &by);
    read_logits(call, &a);
    read_queries(call, &a.queries);
    read_score(call, &a);
    FIG_TRY(call->status);
    FIG_TRY(fig_invoke_attention_describe(&invoke, &a));
    return run_with(call, &invoke, &by);
}

static fig_status decode(fig_tvm_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_decode d = {0};
    lent by;
    fig_tvm_call_array(call, "q", &d.attention.q);
    fig_tvm_call_array(call, "k", &d.k);
    fig_tvm_call_array(call, "v", &d.v);
    fig_tvm_call_array(call, "k_cache", &d.attention.k);
    fig_tvm_call_array(call, "v_cache", &d.attention.v);
    fig_tvm_call_array(call, "lengths", &d.attention.lengths);
    read_options(call, &d.attention, &by);
    read_decode_angles(call, &d);
    read_logits(call, &d.attention);
    fig_tvm_call_option(call, "positions", &d.positions);
    fig_tvm_call_option(call, "cos_sin_cache", &d.cos_sin);
    read_queries(call, &d.attention.queries);
    read_score(call, &d.attention);
    FIG_TRY(call->status);
    FIG_TRY(fig_invoke_decode_describe(&invoke, &d));
    return run_with(call, &invoke, &by);
}

static void read_latent(fig_tvm_call *call, fig_invoke_latent *l, lent *by) {
    fig_tvm_call_array(call, "cache", &l->cache);
    fig_tvm_call_option(call, "lengths", &l->lengths);
    fig_tvm_call_option(call, "page_table", &l->page_table);
    fig_tvm_call_option(call, "plan", &by->plan);
    fig_tvm_call_option(call, "sinks", &l->sinks);
}

static void read_latent_outs(fig_tvm_call *call, fig_invoke_latent *l, lent *by) {
    fig_tvm_call_array(call, "out", &l->out);
    fig_tvm_call_option(call, "scratch", &by->scratch);
    fig_tvm_call_option(call, "maybe_lse", &l->lse);
}

static void read_latent_logits(fig_tvm_call *call, fig_invoke_latent *l) {
    l->window_left = fig_tvm_call_integer(call, "window_left");
    l->sm_scale = fig_tvm_call_real(call, "sm_scale");
    l->deterministic = fig_tvm_call_integer_or(call, "deterministic", 0);
}

static fig_status latent_attention(fig_tvm_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_latent l = {0};
    lent by;
    fig_tvm_call_array(call, "q", &l.q);
    read_latent(call, &l, &by);
    read_latent_outs(call, &l, &by);
    read_latent_logits(call, &l);
    read_queries(call, &l.queries);
    fig_tvm_call_option(call, "q_rope", &l.q_rope);
    FIG_TRY(call->status);
    FIG_TRY(fig_invoke_latent_describe(&invoke, &l));
    return run_with(call, &invoke, &by);
}

static fig_status latent_decode(fig_tvm_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_latent l = {0};
    lent by;
    fig_tvm_call_array(call, "q", &l.q);
    fig_tvm_call_array(call, "latent", &l.latent);
    read_latent(call, &l, &by);
    fig_tvm_call_option(call, "norm", &l.norm);
    read_latent_outs(call, &l, &by);
    read_all_angles(call, &l.rope);
    l.norm_epsilon = fig_tvm_call_real(call, "norm_epsilon");
    read_latent_logits(call, &l);
    fig_tvm_call_option(call, "positions", &l.positions);
    fig_tvm_call_option(call, "cos_sin_cache", &l.cos_sin);
    read_queries(call, &l.queries);
    fig_tvm_call_option(call, "q_rope", &l.q_rope);
    FIG_TRY(call->status);
    FIG_TRY(fig_invoke_latent_describe_decode(&invoke, &l));
    return run_with(call, &invoke, &by);
}

/* ---- Entries: name, names of the arguments, function ----------------------------------------- */
#define ROPE "q, k, q_rope, k_rope, "
#define ANGLES ", rotary_dim, interleave, rope_scale, rope_theta"
#define LLAMA31 ANGLES ", low_freq_factor, high_freq_factor, old_context_length"
#define OUTS "tmp, out, maybe_lse, kv_layout_code, window_left, maybe_alibi_slopes, "
#define LAYOUT "alibi, kv_layout_code, window_left, "
#define SCALES "logits_soft_cap, sm_scale"
#define RECIPROCALS SCALES ", rope_rcp_scale, rope_rcp_theta"
#define ALL_ANGLES ANGLES ", llama3_factor, llama3_low, llama3_high, llama3_context"
#define OPTIONS "page_table, plan, alibi, sinks, k_scale, v_scale, out, scratch, maybe_lse"
#define LOGITS ", kv_layout_code, window_left, " SCALES
#define LATENTS "cache, lengths, page_table, plan, sinks, "
#define LATENT_OUTS "out, scratch, maybe_lse"
#define LATENT_END ", window_left, sm_scale[, deterministic, query_start_loc, row_tokens, q_rope]"
#define ROW_TOKENS "[, row_tokens]"
#define ROWS "page_table, lengths, query_start_loc, "
#define SCORE_ARRAYS                                                                               \
    "score_array0, score_array1, score_array2, score_array3, score_array4, score_array5, "         \
    "score_array6, score_array7"
#define ENTRIES(X)                                                                                 \
    X(silu_and_mul, "out, input, enable_pdl", gated(&call, FIG_SILU))                              \
    X(gelu_and_mul, "out, input, enable_pdl", gated(&call, FIG_GELU))                              \
    X(gelu_tanh_and_mul, "out, input, enable_pdl", gated(&call, FIG_GELU_TANH))                    \
    X(apply_rope, ROPE "indptr, offsets" ANGLES, rope_packed(&call, read_angles))                  \
    X(apply_rope_jax, "q_rope, k_rope, q, k, indptr, offsets" ANGLES, rope_packed_jax(&call))      \
    X(apply_rope_pos_ids, ROPE "pos_ids" ANGLES, rope_at(&call, read_angles))                      \
    X(apply_llama31_rope, ROPE "indptr, offsets" LLAMA31, rope_packed(&call, read_llama31_angles)) \
    X(apply_llama31_rope_pos_ids, ROPE "pos_ids" LLAMA31, rope_at(&call, read_llama31_angles))     \
    X(apply_rope_pos_ids_cos_sin_cache, ROPE "cos_sin_cache, pos_ids, interleave",                 \
      rope_by_cache(&call))                                                                        \
    X(run, "q, k, v, " OUTS RECIPROCALS, single(&call))                                            \
    X(run_jax, "out, tmp, lse, q, k, v, " LAYOUT RECIPROCALS, single_jax(&call))                   \
    X(batch_decode, "q, k, v, page_table, lengths, " OUTS SCALES, batch(&call))                    \
    X(batch_decode_jax, "out, tmp, lse, q, k, v, page_table, lengths, " LAYOUT SCALES,             \
      batch_jax(&call))                                                                            \
    X(batch_attention, "q, k, v, " ROWS OUTS SCALES ROW_TOKENS, rows(&call))                       \
    X(batch_attention_jax, "out, tmp, lse, q, k, v, " ROWS LAYOUT SCALES ROW_TOKENS,               \
      rows_jax(&call))                                                                             \
    X(rms_norm, "input, maybe_residual, weight, out, epsilon, weight_offset", normalise(&call))    \
    X(rope, "q, k, positions, q_out, k_out" ALL_ANGLES "[, cos_sin_cache]", turn(&call))           \
    X(append_kv,                                                                                   \
      "k, v, k_cache, v_cache, lengths, page_table, plan, k_scale, v_scale, scratch, "             \
      "kv_layout_code[, query_start_loc, row_tokens]",                                             \
      append(&call))                                                                               \
    X(plan,                                                                                        \
      "lengths, plan, scratch, dtype_code, kv_dtype_code, q_heads, kv_heads, head_dim, "           \
      "page_size, kv_length, window_left[, row_tokens, deterministic, positions, "                 \
      "query_start_loc, tokens, latent_dim]",                                                      \
      plan(&call))                                                                                 \
    X(attention,                                                                                   \
      "q, k_cache, v_cache, lengths, " OPTIONS LOGITS                                              \
      "[, deterministic, query_start_loc, row_tokens, score, " SCORE_ARRAYS "]",                   \
      attention(&call))                                                                            \
    X(decode_attention,                                                                            \
      "q, k, v, k_cache, v_cache, lengths, " OPTIONS ALL_ANGLES LOGITS                             \
      "[, deterministic, positions, cos_sin_cache, query_start_loc, row_tokens, "                  \
      "score, " SCORE_ARRAYS "]",                                                                  \
      decode(&call))                                                                               \
    X(latent_attention, "q, " LATENTS LATENT_OUTS LATENT_END, latent_attention(&call))             \
    X(latent_decode,                                                                               \
      "q, latent, " LATENTS "norm, " LATENT_OUTS ALL_ANGLES ", norm_epsilon, window_left, "        \
      "sm_scale[, deterministic, positions, cos_sin_cache, query_start_loc, row_tokens, q_rope]",  \
      latent_decode(&call))

/* Takes the call by value, because reading its arguments changes it. */
#define CALL(entry, parameters, status)                                                            \
    static fig_status call_##entry(fig_tvm_call call) {                                            \
        fig_tvm_call_begin(&call, parameters);                                                     \
        return status;                                                                             \
    }
ENTRIES(CALL)

#define ENTRY(entry, parameters, status)                                                           \
    FIG_API fig_tvm_function __tvm_ffi_##entry;                                                    \
    int __tvm_ffi_##entry(void *self, const fig_tvm_value *args, int32_t count,                    \
                          fig_tvm_value *result) {                                                 \
        const fig_tvm_call call = {.name = #entry, .args = args, .count = count};                  \
        (void)self, (void)result;                                                                  \
        return fig_tvm_call_finish(&call, call_##entry(call));                                     \
    }
ENTRIES(ENTRY)

#define ROW(entry, parameters, status) {#entry, call_##entry},
static const struct {
    const char *name;
    fig_status (*call)(fig_tvm_call call);
} functions[] = {ENTRIES(ROW)};

fig_status fig_ffi_run(const fig_ffi_call *call) {
    fig_ffi_call given;
    FIG_TRY(fig_status_take_options(&given, sizeof given, call, "fig_ffi_call"));
    const char *name = given.function != NULL ? given.function : "";
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, name) != 0) continue;
        const fig_status status = functions[i].call((fig_tvm_call){.name = name,
                                                                   .args = given.arguments,
                                                                   .count = given.argument_count,
                                                                   .stream = &given.stream});
        return status == FIG_ARRAY_WRONG_TYPE ? FIG_INVALID : status;
    }
    return fig_fail(FIG_INVALID, "there is no function \"%s\"", name);
}
