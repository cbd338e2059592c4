/* xla_entries.c: the targets that XLA calls, each for the CPU and for CUDA.
 *
 * A handler reads its whole call before it looks up or launches anything, so a refused call has no
 * effect. A handler has no state and no effect except its results, so XLA may run it twice, or
 * concurrently with itself. XLA:GPU calls initialize with every execution, before it captures.
 * Kernels are loaded there, or in the first execute if no other stage is registered. Invariant: an
 * execute under capture only puts launches on the stream. */
#include <string.h>

#include "ffi/invoke/invoke.h"
#include "ffi/invoke/invoke_program.h"
#include "ffi/xla/xla_call.h"
#include "include/figraph_ffi.h"
#include "planner/status.h"

static fig_status run(fig_xla_call *call, fig_invoke *invoke) {
    invoke->loads_only = call->frame->stage != FIG_XLA_EXECUTE;
    if (!invoke->loads_only) FIG_TRY(fig_xla_call_stream(call, &invoke->stream));
    return fig_invoke_run(invoke);
}

/* ---- Gated activations ----------------------------------------------------------------------- */
static fig_status gated(fig_xla_call *call, fig_activation activation) {
    fig_invoke invoke = {0};
    fig_array input, out;
    fig_xla_call_argument(call, "input", &input);
    fig_xla_call_result(call, "out", &out);
    FIG_TRY(fig_xla_call_end(call));
    FIG_TRY(fig_invoke_gated_describe(&invoke, activation, &input, &out));
    return run(call, &invoke);
}

static fig_status silu_and_mul(fig_xla_call *call) {
    return gated(call, FIG_SILU);
}

static fig_status gelu_and_mul(fig_xla_call *call) {
    return gated(call, FIG_GELU);
}

static fig_status gelu_tanh_and_mul(fig_xla_call *call) {
    return gated(call, FIG_GELU_TANH);
}

/* ---- RoPE ------------------------------------------------------------------------------------ */
static int32_t small(int64_t value) {
    return value < 0 || value > INT32_MAX ? -1 : (int32_t)value; /* the program refuses -1 */
}

static void read_angles(fig_xla_call *call, fig_rope_spec *rope) {
    rope->rotary_dim = small(fig_xla_call_integer(call, "rotary_dim", 0));
    rope->interleaved = fig_xla_call_integer(call, "interleave", 0) != 0;
    rope->scale = (float)fig_xla_call_real(call, "rope_scale", 1);
    rope->theta = (float)fig_xla_call_real(call, "rope_theta", 10000);
    rope->llama3_factor = (float)fig_xla_call_real(call, "llama3_factor", 0);
    rope->llama3_low = (float)fig_xla_call_real(call, "llama3_low", 0);
    rope->llama3_high = (float)fig_xla_call_real(call, "llama3_high", 0);
    rope->llama3_context = small(fig_xla_call_integer(call, "llama3_context", 0));
}

static fig_status rope(fig_xla_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_rope r = {0};
    fig_xla_call_argument(call, "q", &r.q);
    fig_xla_call_argument(call, "k", &r.k);
    fig_xla_call_option(call, "positions", &r.positions);
    fig_xla_call_option(call, "indptr", &r.indptr);
    fig_xla_call_option(call, "offsets", &r.offsets);
    fig_xla_call_option(call, "cos_sin", &r.cos_sin);
    fig_xla_call_result(call, "q_out", &r.q_out);
    fig_xla_call_result(call, "k_out", &r.k_out);
    read_angles(call, &r.rope);
    FIG_TRY(fig_xla_call_end(call));
    FIG_TRY(fig_invoke_rope_describe(&invoke, &r));
    return run(call, &invoke);
}

/* ---- The cache ------------------------------------------------------------------------------- */
/* XLA's arrays have no strides, so interleaved caches come as one array. */
typedef struct caches {
    fig_array both; /* [pages][2]...; absent: k and v are separate arguments */
    fig_array *k, *v;
} caches;

static void read_caches(fig_xla_call *call, caches *c) {
    static const char *const names[2] = {"k_cache", "v_cache"};
    c->both = (fig_array){0};
    fig_xla_call_argument(call, "k_cache", c->k);
    if (call->status == FIG_OK && c->k->rank == 5) {
        c->both = *c->k;
        c->both.name = "kv_cache";
        call->status = fig_array_halve(&c->both, names, (fig_array *const[]){c->k, c->v});
        return;
    }
    fig_xla_call_argument(call, "v_cache", c->v);
}

static void alias_caches(fig_xla_call *call, const caches *c) {
    if (fig_array_is_present(&c->both)) {
        fig_xla_call_alias(call, "kv_cache_out", &c->both);
        return;
    }
    fig_xla_call_alias(call, "k_cache_out", c->k);
    fig_xla_call_alias(call, "v_cache_out", c->v);
}

/* Reads the arguments that give each row its own number of query tokens. */
static void read_queries(fig_xla_call *call, fig_invoke_queries *queries) {
    fig_xla_call_option(call, "query_start_loc", &queries->start_loc);
    queries->row_tokens = fig_xla_call_integer(call, "row_tokens", 0);
}

static fig_status append_kv(fig_xla_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_append a = {0};
    caches c = {.k = &a.k_cache, .v = &a.v_cache};
    fig_array given, scratch;
    fig_xla_call_argument(call, "k", &a.k);
    fig_xla_call_argument(call, "v", &a.v);
    read_caches(call, &c);
    fig_xla_call_argument(call, "lengths", &a.lengths);
    fig_xla_call_option(call, "page_table", &a.page_table);
    fig_xla_call_option(call, "plan", &given);
    fig_xla_call_option(call, "k_scale", &a.k_scale);
    fig_xla_call_option(call, "v_scale", &a.v_scale);
    read_queries(call, &a.queries);
    alias_caches(call, &c);
    fig_xla_call_optional_result(call, "scratch", &scratch);
    a.layout = fig_xla_call_integer(call, "kv_layout", 0);
    FIG_TRY(fig_xla_call_end(call));
    FIG_TRY(fig_invoke_append_describe(&invoke, &a));
    FIG_TRY(fig_invoke_lend(&invoke, &scratch));
    FIG_TRY(fig_invoke_lend_plan(&invoke, &given));
    return run(call, &invoke);
}

static fig_status plan(fig_xla_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_plan p = {0};
    static const char *const needed[] = {"dtype", "q_heads", "kv_heads", "head_dim", "kv_length"};
    fig_xla_call_argument(call, "lengths", &p.lengths);
    fig_xla_call_option(call, "positions", &p.positions);
    fig_xla_call_option(call, "query_start_loc", &p.query_start_loc);
    fig_xla_call_result(call, "plan", &p.out);
    fig_xla_call_optional_result(call, "scratch", &p.scratch);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        fig_xla_call_need(call, needed[i]);
    const int64_t dtype = fig_xla_call_integer(call, "dtype", 0);
    const int64_t kv_dtype = fig_xla_call_integer(call, "kv_dtype", dtype);
    p.q_heads = fig_xla_call_integer(call, "q_heads", 0);
    p.kv_heads = fig_xla_call_integer(call, "kv_heads", 0);
    p.head_dim = fig_xla_call_integer(call, "head_dim", 0);
    p.page_size = fig_xla_call_integer(call, "page_size", 0);
    p.kv_length = fig_xla_call_integer(call, "kv_length", 0);
    p.window_left = fig_xla_call_integer(call, "window_left", -1);
    p.row_tokens = fig_xla_call_integer(call, "row_tokens", 1);
    p.tokens = fig_xla_call_integer(call, "tokens", 0);
    p.deterministic = fig_xla_call_integer(call, "deterministic", 0);
    p.latent_dim = fig_xla_call_integer(call, "latent_dim", 0);
    FIG_TRY(fig_xla_call_end(call));
    FIG_TRY(fig_array_read_dtype("dtype", dtype, &p.dtype));
    FIG_TRY(fig_array_read_dtype("kv_dtype", kv_dtype, &p.kv_dtype));
    FIG_TRY(fig_invoke_attention_describe_plan(&invoke, &p));
    return run(call, &invoke);
}

/* With a plan, plan and scratch are arguments, and the scratch is also a result. Without a plan the
 * scratch is only a result. */
typedef struct borrowed {
    fig_array plan, scratch;
} borrowed;

static void read_borrowed(fig_xla_call *call, borrowed *b) {
    fig_xla_call_option(call, "plan", &b->plan);
    fig_xla_call_option(call, "scratch", &b->scratch);
    if (call->status != FIG_OK) return;
    if (fig_array_is_present(&b->plan) != fig_array_is_present(&b->scratch))
        call->status = fig_fail(FIG_INVALID, "plan and scratch: one is given, the other is not");
}

static void read_scratch(fig_xla_call *call, borrowed *b) {
    if (fig_array_is_present(&b->scratch)) {
        fig_xla_call_alias(call, "scratch", &b->scratch);
    } else {
        fig_xla_call_optional_result(call, "scratch", &b->scratch);
    }
}

static fig_status run_with(fig_xla_call *call, fig_invoke *invoke, const borrowed *b) {
    FIG_TRY(fig_invoke_lend(invoke, &b->scratch));
    FIG_TRY(fig_invoke_lend_plan(invoke, &b->plan));
    return run(call, invoke);
}

static void read_logits(fig_xla_call *call, fig_invoke_attention *a) {
    a->layout = fig_xla_call_integer(call, "kv_layout", 0);
    a->window_left = fig_xla_call_integer(call, "window_left", -1);
    a->soft_cap = fig_xla_call_real(call, "logits_soft_cap", 0);
    a->sm_scale = fig_xla_call_real(call, "sm_scale", 0);
    a->deterministic = fig_xla_call_integer(call, "deterministic", 0);
}

static void read_options(fig_xla_call *call, fig_invoke_attention *a, borrowed *b) {
    fig_xla_call_option(call, "page_table", &a->page_table);
    read_borrowed(call, b);
    fig_xla_call_option(call, "alibi", &a->alibi);
    fig_xla_call_option(call, "sinks", &a->sinks);
    fig_xla_call_option(call, "k_scale", &a->k_scale);
    fig_xla_call_option(call, "v_scale", &a->v_scale);
}

/* Reads a score and its arrays, which are the last arguments. */
static void read_score(fig_xla_call *call, fig_invoke_attention *a) {
    for (int i = 0; i < FIG_SCORE_ARRAY_LIMIT; i++)
        fig_xla_call_option(call, fig_recipe_score_arrays[i], &a->score_arrays[i]);
    a->score = fig_xla_call_integer(call, "score", 0);
}

static fig_status attention(fig_xla_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_attention a = {0};
    caches c = {.k = &a.k, .v = &a.v};
    borrowed b;
    fig_xla_call_argument(call, "q", &a.q);
    read_caches(call, &c);
    fig_xla_call_option(call, "lengths", &a.lengths);
    read_options(call, &a, &b);
    read_queries(call, &a.queries);
    read_score(call, &a);
    fig_xla_call_result(call, "out", &a.out);
    read_scratch(call, &b);
    fig_xla_call_optional_result(call, "lse", &a.lse);
    read_logits(call, &a);
    FIG_TRY(fig_xla_call_end(call));
    FIG_TRY(fig_invoke_attention_describe(&invoke, &a));
    return run_with(call, &invoke, &b);
}

static fig_status decode_attention(fig_xla_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_decode d = {0};
    fig_invoke_attention *a = &d.attention;
    caches c = {.k = &a->k, .v = &a->v};
    borrowed b;
    fig_xla_call_argument(call, "q", &a->q);
    fig_xla_call_argument(call, "k", &d.k);
    fig_xla_call_argument(call, "v", &d.v);
    read_caches(call, &c);
    fig_xla_call_argument(call, "lengths", &a->lengths);
    read_options(call, a, &b);
    fig_xla_call_option(call, "positions", &d.positions);
    fig_xla_call_option(call, "cos_sin", &d.cos_sin);
    read_queries(call, &a->queries);
    read_score(call, a);
    fig_xla_call_result(call, "out", &a->out);
    fig_xla_call_alias(call, "q_out", &a->q);
    fig_xla_call_alias(call, "k_out", &d.k);
    alias_caches(call, &c);
    read_scratch(call, &b);
    fig_xla_call_optional_result(call, "lse", &a->lse);
    read_angles(call, &d.rope);
    d.plain = fig_xla_call_integer(call, "rope", 1) == 0;
    read_logits(call, a);
    FIG_TRY(fig_xla_call_end(call));
    FIG_TRY(fig_invoke_decode_describe(&invoke, &d));
    return run_with(call, &invoke, &b);
}

/* ---- Latent caches --------------------------------------------------------------------------- */
static void read_latent(fig_xla_call *call, fig_invoke_latent *l, borrowed *b) {
    fig_xla_call_argument(call, "cache", &l->cache);
    fig_xla_call_option(call, "lengths", &l->lengths);
    fig_xla_call_option(call, "page_table", &l->page_table);
    read_borrowed(call, b);
    fig_xla_call_option(call, "sinks", &l->sinks);
    l->window_left = fig_xla_call_integer(call, "window_left", -1);
    fig_xla_call_need(call, "sm_scale");
    l->sm_scale = fig_xla_call_real(call, "sm_scale", 0);
    l->deterministic = fig_xla_call_integer(call, "deterministic", 0);
}

static fig_status latent_attention(fig_xla_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_latent l = {0};
    borrowed b;
    fig_xla_call_argument(call, "q", &l.q);
    read_latent(call, &l, &b);
    read_queries(call, &l.queries);
    fig_xla_call_option(call, "q_rope", &l.q_rope);
    fig_xla_call_result(call, "out", &l.out);
    read_scratch(call, &b);
    fig_xla_call_optional_result(call, "lse", &l.lse);
    FIG_TRY(fig_xla_call_end(call));
    FIG_TRY(fig_invoke_latent_describe(&invoke, &l));
    return run_with(call, &invoke, &b);
}

/* Reads the result that has the memory of the array that the call rotates: q_rope or, if that is
 * not given, q. An empty q_rope counts as not given, so without tokens nothing is compared. */
static void alias_rotated(fig_xla_call *call, const fig_invoke_latent *l) {
    fig_array empty;
    if (fig_array_is_present(&l->q_rope)) {
        fig_xla_call_alias(call, "q_rope_out", &l->q_rope);
    } else if (l->q.rank > 0 && l->q.dims[0] == 0) {
        fig_xla_call_result(call, "q_out", &empty);
    } else {
        fig_xla_call_alias(call, "q_out", &l->q);
    }
}

static fig_status latent_decode(fig_xla_call *call) {
    fig_invoke invoke = {0};
    fig_invoke_latent l = {0};
    borrowed b;
    fig_xla_call_argument(call, "q", &l.q);
    fig_xla_call_argument(call, "latent", &l.latent);
    read_latent(call, &l, &b);
    fig_xla_call_option(call, "norm", &l.norm);
    fig_xla_call_option(call, "positions", &l.positions);
    fig_xla_call_option(call, "cos_sin", &l.cos_sin);
    read_queries(call, &l.queries);
    fig_xla_call_option(call, "q_rope", &l.q_rope);
    fig_xla_call_result(call, "out", &l.out);
    alias_rotated(call, &l);
    fig_xla_call_alias(call, "cache_out", &l.cache);
    read_scratch(call, &b);
    fig_xla_call_optional_result(call, "lse", &l.lse);
    l.norm_epsilon = fig_xla_call_real(call, "norm_epsilon", 0);
    read_angles(call, &l.rope);
    FIG_TRY(fig_xla_call_end(call));
    FIG_TRY(fig_invoke_latent_describe_decode(&invoke, &l));
    return run_with(call, &invoke, &b);
}

/* ---- Files ----------------------------------------------------------------------------------- */
/* XLA:GPU calls initialize at every step, and a whole step has hundreds of tensors. So only execute
 * reads the tensors; replaying a captured graph does not call execute. */
static fig_status program(fig_xla_call *call) {
    fig_invoke_program p = {.loads_only = call->frame->stage != FIG_XLA_EXECUTE,
                            .device = call->device,
                            .ordinal = call->ordinal};
    borrowed b;
    fig_xla_call_need(call, "content");
    const int64_t content = fig_xla_call_integer(call, "content", 0);
    p.segment = fig_xla_call_integer(call, "segment", 0);
    p.rows = fig_xla_call_integer(call, "rows", -1);
    p.kv_length = fig_xla_call_integer(call, "kv_length", 0);
    FIG_TRY(call->status);
    FIG_TRY(fig_invoke_program_begin(&p, content));
    if (p.loads_only) return fig_invoke_program_run(&p);
    for (int32_t i = 0; i < p.tensor_count; i++) {
        fig_array array = {0};
        const uint32_t access = p.access[i];
        const char *name = fig_invoke_program_name(&p, i);
        if (!fig_invoke_program_wants(&p, i)) continue;
        if (access & FIG_ACCESS_READ) fig_xla_call_argument(call, name, &array);
        if (access == FIG_ACCESS_WRITE) fig_xla_call_result(call, name, &array);
        if (access == (FIG_ACCESS_READ | FIG_ACCESS_WRITE)) fig_xla_call_alias(call, name, &array);
        FIG_TRY(call->status);
        FIG_TRY(fig_invoke_program_bind(&p, i, &array));
    }
    read_borrowed(call, &b);
    read_scratch(call, &b);
    p.plan = b.plan;
    p.scratch = b.scratch;
    FIG_TRY(fig_xla_call_end(call));
    FIG_TRY(fig_xla_call_stream(call, &p.stream));
    return fig_invoke_program_run(&p);
}

/* ---- The table ------------------------------------------------------------------------------- */
typedef fig_status target_function(fig_xla_call *call);

static fig_xla_error *handle(fig_xla_frame *frame, const char *name, fig_device device,
                             target_function *target) {
    fig_xla_call call = {.name = name};
    if (fig_xla_call_answer(frame)) return NULL;
    if (frame->stage != FIG_XLA_INITIALIZE && frame->stage != FIG_XLA_EXECUTE) return NULL;
    fig_xla_call_begin(&call, frame, device);
    if (call.ordinal < 0 && call.status == FIG_OK)
        call.status = fig_invoke_current_gpu(&call.ordinal);
    return fig_xla_call_finish(&call, target(&call));
}

#define TARGETS(X)                                                                                 \
    X(silu_and_mul)                                                                                \
    X(gelu_and_mul)                                                                                \
    X(gelu_tanh_and_mul)                                                                           \
    X(rope)                                                                                        \
    X(append_kv)                                                                                   \
    X(plan)                                                                                        \
    X(attention)                                                                                   \
    X(decode_attention)                                                                            \
    X(latent_attention)                                                                            \
    X(latent_decode)                                                                               \
    X(program)

#define HANDLERS(target)                                                                           \
    static fig_xla_error *target##_host(fig_xla_frame *frame) {                                    \
        return handle(frame, "figraph." #target, FIG_DEVICE_HOST, target);                         \
    }                                                                                              \
    static fig_xla_error *target##_cuda(fig_xla_frame *frame) {                                    \
        return handle(frame, "figraph." #target, FIG_DEVICE_CUDA, target);                         \
    }
TARGETS(HANDLERS)

#define ROW(target) {"figraph." #target, target##_host, target##_cuda},
static const struct {
    const char *name;
    fig_xla_handler *host, *cuda;
} targets[] = {TARGETS(ROW)};

fig_status fig_ffi_read_target(int32_t index, fig_ffi_target *target) {
    fig_ffi_target ours = {.size = sizeof ours};
    const int32_t count = (int32_t)(sizeof targets / sizeof targets[0]);
    if (index < 0 || index >= count) return fig_fail(FIG_INVALID, "target %d of %d", index, count);
    ours.name = targets[index].name;
    memcpy(&ours.host, &targets[index].host, sizeof ours.host);
    memcpy(&ours.cuda, &targets[index].cuda, sizeof ours.cuda);
    return fig_status_give(target, &ours, sizeof ours, "fig_ffi_target");
}
