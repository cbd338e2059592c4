/* check.c: compares outputs with truth.c, element by element.
 *
 * An error is judged against the magnitude of what was summed up, not against what is left of it.
 * 16-bit outputs may be off by 2 units in the last place, f32 by 2e-5 of the magnitude, since its
 * twins and kernels sum in another order than float64 does. What a cache holds is exact or, in fp8,
 * a nearest number to the quotient, which a kernel rounds to f32 first. Where attention turned k by
 * itself and kept it to itself, what it appended is any number that the true one, give or take what
 * f32 loses on the way, is rounded to: mostly one, and two neighbours where a tie is that near. */
#include "tools/figraph/step/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph_unstable.h>

#include "tools/figraph/step/truth.h"
#include "tools/figraph/step/truth_attention.h"
#include "tools/figraph/terminal/report.h"

static const double half_tolerance_ulp = 2;
static const double single_tolerance = 2e-5; /* of the magnitude */
static const double quarter_tolerance_ulp = 0.5 + 1e-6;
/* Of a pair's length, before it is rounded to its type: half an f32 unit for each of the norm's
 * factor and its two products, cosine and sine, the table's factor, two products and their sum. */
static const double turn_tolerance = 0x1p-20;

/* Some elements of an output and what is due. */
typedef struct comparison {
    const fig_session_tensor *tensor;
    int32_t step;
    int64_t row, head, first; /* index of element 0; head -1: [row][first] */
    const void *got;          /* [count] */
    const double *due;        /* [count] */
    const double *magnitude;  /* [count]; NULL: that of due */
    int32_t count;
} comparison;

static int report_mismatch(const comparison *c, int32_t i, double tolerance) {
    char head[24] = "";
    if (c->head >= 0) snprintf(head, sizeof head, "[%lld]", (long long)c->head);
    return fig_report_failure(
        "step %d: %s[%lld]%s[%lld] is %.9g where %.9g is due, off by %.3g "
        "and the tolerance is %.3g",
        c->step, c->tensor->info.name, (long long)c->row, head, (long long)(c->first + i),
        truth_load(c->got, c->tensor->info.dtype, i), c->due[i],
        fabs(truth_load(c->got, c->tensor->info.dtype, i) - c->due[i]), tolerance);
}

static int compare(fig_check *check, const comparison *c) {
    fig_dtype dtype = c->tensor->info.dtype;
    for (int32_t i = 0; i < c->count; i++) {
        double magnitude = c->magnitude != NULL ? c->magnitude[i] : fabs(c->due[i]);
        double ulp = truth_ulp(dtype, magnitude);
        double error = fabs(truth_load(c->got, dtype, i) - c->due[i]);
        double tolerance =
            dtype == FIG_F32 ? fmax(single_tolerance * magnitude, ulp) : half_tolerance_ulp * ulp;
        if (!(error <= tolerance)) return report_mismatch(c, i, tolerance);
        if (error / ulp > check->worst_ulp) check->worst_ulp = error / ulp;
        check->elements++;
    }
    return FIG_EXIT_FINE;
}

static truth_rows rows_of(const fig_session_tensor *tensor) {
    int64_t head = tensor->info.rank == 3 ? tensor->info.dims[2] : 0;
    return (truth_rows){.base = tensor->mirror,
                        .dtype = tensor->info.dtype,
                        .row_stride =
                            (int64_t)(tensor->row_bytes / fig_synthetic_bytes(tensor->info.dtype)),
                        .head_stride = head};
}

static truth_cache cache_of(const fig_session *session, const fig_session_tensor *tensor) {
    const int64_t *dims = tensor->info.dims;
    int by_head = tensor->info.layout == FIG_HND;
    return (truth_cache){.base = tensor->mirror,
                         .dtype = tensor->info.dtype,
                         .page_stride = dims[1] * dims[2] * dims[3],
                         .token_stride = by_head ? dims[3] : dims[2] * dims[3],
                         .head_stride = by_head ? dims[1] * dims[3] : dims[3],
                         .pages = tensor->count,
                         .page_size = (int32_t)dims[1],
                         .page_table = session->page_table,
                         .table_stride = session->sequence_pages};
}

/* Rows of tensors: one for each query token of a step's rows. */
static int32_t count_queries(const fig_session *session, const fig_schedule *schedule) {
    return schedule->rows * session->info.spec->row_tokens;
}

/* Where a query token stands; below 0: its row is idle. */
static int32_t place_of(const fig_session *session, const fig_schedule *schedule, int32_t query) {
    int32_t row_tokens = session->info.spec->row_tokens;
    int32_t length = schedule->lengths[query / row_tokens];
    return length == 0 ? -1 : length - row_tokens + query % row_tokens;
}

static int32_t sequence_of(const fig_session *session, int32_t query) {
    return session->sequences[query / session->info.spec->row_tokens];
}

/* Each row of the step counts as many of the tensor's as its multiple says. */
static int32_t count_rows(const fig_schedule *schedule, const fig_session_tensor *tensor) {
    return schedule->rows * tensor->info.multiple;
}

static int read_rows(fig_session *session, const fig_schedule *schedule,
                     const fig_session_tensor *tensor, void *to) {
    size_t rows = (size_t)count_rows(schedule, tensor);
    return fig_session_read(session, tensor, 0, rows * tensor->row_bytes, to);
}

static int check_act(fig_check *check, fig_session *session, const fig_schedule *schedule,
                     int32_t layer) {
    const fig_session_tensor *in = fig_session_find(session, layer, FIG_SESSION_GATE_UP);
    const fig_session_tensor *act = fig_session_find(session, layer, FIG_SESSION_ACT);
    int32_t width = session->info.spec->ffn_width;
    if (act == NULL) return FIG_EXIT_FINE;
    double *due = calloc((size_t)width, sizeof *due);
    if (due == NULL) return fig_report_refuse("replay: no memory for %d numbers", width);
    int code = read_rows(session, schedule, act, act->mirror);
    for (int32_t row = 0; code == FIG_EXIT_FINE && row < count_rows(schedule, act); row++) {
        truth_gated_args args = {.in = rows_of(in),
                                 .activation = session->info.spec->activation,
                                 .row = row,
                                 .width = width};
        truth_gated(&args, due);
        code = compare(check, &(comparison){.tensor = act,
                                            .step = schedule->step,
                                            .row = row,
                                            .head = -1,
                                            .got = act->mirror + (size_t)row * act->row_bytes,
                                            .due = due,
                                            .count = width});
    }
    free(due);
    return code;
}

/* A pair is turned, so its length is the magnitude of both; what does not turn is its own. */
static void measure_pairs(const fig_rope_spec *rope, int32_t head_dim, const double *due,
                          double *magnitude) {
    int32_t half = rope->rotary_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        int32_t first = rope->interleaved ? 2 * i : i;
        int32_t second = rope->interleaved ? 2 * i + 1 : i + half;
        magnitude[first] = magnitude[second] = hypot(due[first], due[second]);
    }
    for (int32_t i = rope->rotary_dim; i < head_dim; i++)
        magnitude[i] = fabs(due[i]);
}

static int has_layer(const uint64_t layers[8], int32_t layer) {
    return (int)(layers[layer / 64] >> layer % 64 & 1);
}

/* A theta, its default filled in, is what every rope of its own has. */
static int turns_by_window(const fig_spec *spec, int32_t layer) {
    return has_layer(spec->window_layers, layer) && spec->window_rope.theta > 0;
}

/* How the heads of a layer turn: in a plain one nothing does. */
static fig_rope_spec rope_of(const fig_spec *spec, int32_t layer) {
    fig_rope_spec rope = turns_by_window(spec, layer) ? spec->window_rope : spec->rope;
    if (has_layer(spec->plain_layers, layer)) rope.rotary_dim = 0;
    return rope;
}

static const fig_rope_table *table_of(const fig_spec *spec, int32_t layer) {
    return turns_by_window(spec, layer) ? &spec->window_table : &spec->rope_table;
}

/* ---- q and k: turned, or as they were ------------------------------------------------------ */

/* Layers whose attention turns q and k by itself in the bucket of the step that was staged last: no
 * launch of decode_attention's own is on the device. The nodes of decode_attention are, in order,
 * those of the layers that turn. */
static int find_own_turns(const fig_session *session, uint64_t layers[8]) {
    const fig_spec *spec = session->info.spec;
    fig_engine_stats stats = {.size = sizeof stats};
    fig_launch_info info = {.size = sizeof info};
    fig_status status = FIG_OK;
    int32_t layer = -1;
    memset(layers, 0, 8 * sizeof *layers);
    fig_engine_read_stats(session->engine, &stats);
    for (int32_t i = 0; status == FIG_OK; i++) {
        status = fig_engine_launch_info(session->engine, stats.last_bucket, i, &info);
        if (status != FIG_OK || info.operation == NULL) continue;
        if (strcmp(info.operation, "decode_attention") != 0) continue;
        do
            layer++;
        while (layer < spec->layers && has_layer(spec->plain_layers, layer));
        if (layer < spec->layers && info.family == NULL)
            layers[layer / 64] |= UINT64_C(1) << layer % 64;
    }
    return status == FIG_INVALID ? FIG_EXIT_FINE : fig_report_status("replay");
}

/* q or k of the step's rows, [rows][heads][head_dim] each. */
typedef struct turning {
    const fig_session_tensor *tensor, *norm; /* norm NULL: none */
    int may_stay;                            /* 1: attention turns by itself */
    uint8_t *got;                            /* after the step */
    uint8_t *turned;     /* as RoPE would have left it, from what it was before */
    uint8_t *low, *high; /* what a kernel may have rounded instead of it */
    int32_t left, moved; /* heads that were left as they were, and that were not: one; -1: none */
} turning;

static int open_turning(turning *t, const fig_session *session, const fig_schedule *schedule) {
    const size_t bytes = (size_t)count_queries(session, schedule) * t->tensor->row_bytes;
    t->left = t->moved = -1;
    t->got = malloc(4 * bytes);
    if (t->got == NULL) return fig_report_refuse("replay: no memory for %zu bytes", 4 * bytes);
    t->turned = t->got + bytes;
    t->low = t->turned + bytes;
    t->high = t->low + bytes;
    return FIG_EXIT_FINE;
}

static void store_turned(const turning *t, int64_t first, int32_t head_dim, const double *due,
                         const double *magnitude) {
    const fig_dtype dtype = t->tensor->info.dtype;
    for (int32_t i = 0; i < head_dim; i++) {
        truth_store(t->turned, dtype, first + i, due[i]);
        truth_store(t->low, dtype, first + i, due[i] - turn_tolerance * magnitude[i]);
        truth_store(t->high, dtype, first + i, due[i] + turn_tolerance * magnitude[i]);
    }
}

/* 1: the head is what it was before, and RoPE would have made something else of it. A head that
 * RoPE would not change, at position 0 say, speaks for neither. */
static int was_left(turning *t, int32_t head, size_t head_bytes) {
    const size_t offset = (size_t)head * head_bytes;
    const uint8_t *before = t->tensor->mirror + offset;
    if (memcmp(t->got + offset, before, head_bytes) != 0) {
        t->moved = head;
        return 0;
    }
    if (!t->may_stay || memcmp(t->turned + offset, before, head_bytes) == 0) return 0;
    t->left = head;
    return 1;
}

static int check_turned_head(fig_check *check, const fig_session *session,
                             const fig_schedule *schedule, turning *t, int32_t head) {
    const fig_session_tensor *tensor = t->tensor;
    const int32_t heads = (int32_t)tensor->info.dims[1], head_dim = (int32_t)tensor->info.dims[2];
    const size_t head_bytes = (size_t)head_dim * fig_synthetic_bytes(tensor->info.dtype);
    double due[TRUTH_HEAD_DIM_LIMIT], magnitude[TRUTH_HEAD_DIM_LIMIT];
    truth_rope_args args = {.x = rows_of(tensor),
                            .rope = rope_of(session->info.spec, tensor->layer),
                            .table = table_of(session->info.spec, tensor->layer),
                            .row = head / heads,
                            .position = place_of(session, schedule, head / heads),
                            .head = head % heads,
                            .head_dim = head_dim,
                            .norm = t->norm != NULL ? t->norm->mirror : NULL,
                            .norm_epsilon = session->info.spec->qk_norm_epsilon};
    if (args.position < 0) return FIG_EXIT_FINE;
    truth_rope(&args, due);
    measure_pairs(&args.rope, head_dim, due, magnitude);
    store_turned(t, (int64_t)head * head_dim, head_dim, due, magnitude);
    if (was_left(t, head, head_bytes)) {
        check->elements += head_dim;
        return FIG_EXIT_FINE;
    }
    return compare(check, &(comparison){.tensor = tensor,
                                        .step = schedule->step,
                                        .row = head / heads,
                                        .head = head % heads,
                                        .got = t->got + (size_t)head * head_bytes,
                                        .due = due,
                                        .magnitude = magnitude,
                                        .count = head_dim});
}

/* The mirror holds what it was before, and in the end what all behind RoPE were to read. Where an
 * idle row's RoPE stands is left open, so it is not judged. */
static int check_rope(fig_check *check, fig_session *session, const fig_schedule *schedule,
                      turning *t) {
    const int32_t heads = (int32_t)t->tensor->info.dims[1];
    const int32_t rows = count_queries(session, schedule);
    const size_t bytes = (size_t)rows * t->tensor->row_bytes;
    int code = open_turning(t, session, schedule);
    if (code == FIG_EXIT_FINE) code = read_rows(session, schedule, t->tensor, t->got);
    if (code == FIG_EXIT_FINE) memcpy(t->turned, t->got, bytes);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < rows * heads; i++)
        code = check_turned_head(check, session, schedule, t, i);
    if (code != FIG_EXIT_FINE) return code;
    if (t->left >= 0 && t->moved >= 0)
        return fig_report_failure("step %d: %s[%d][%d] is what it was before and [%d][%d] is not: "
                                  "turning all heads is due, or none",
                                  schedule->step, t->tensor->info.name, t->left / heads,
                                  t->left % heads, t->moved / heads, t->moved % heads);
    memcpy(t->tensor->mirror, t->left >= 0 ? t->turned : t->got, bytes);
    return FIG_EXIT_FINE;
}

/* ---- What is appended ---------------------------------------------------------------------- */

/* K or V. */
typedef struct cache_side {
    const fig_session_tensor *rows, *cache, *scale; /* scale NULL: 1 */
    const uint8_t *low, *high; /* as rows' mirror: between which an appended number may have been */
} cache_side;

static cache_side side_of(const fig_session *session, int32_t layer, fig_session_kind rows) {
    int is_k = rows == FIG_SESSION_K;
    const fig_session_tensor *from = fig_session_find(session, layer, rows);
    return (cache_side){
        .rows = from,
        .low = from->mirror,
        .high = from->mirror,
        .cache = fig_session_find(session, layer, is_k ? FIG_SESSION_K_CACHE : FIG_SESSION_V_CACHE),
        .scale =
            fig_session_find(session, layer, is_k ? FIG_SESSION_K_SCALE : FIG_SESSION_V_SCALE)};
}

static double scale_of(const cache_side *side, int32_t kv_head) {
    if (side->scale == NULL) return 1;
    return truth_load(side->scale->mirror, FIG_F32, side->scale->count > 1 ? kv_head : 0);
}

/* What is stored for x, and how far from it what is stored may be. */
static double stored_of(fig_dtype dtype, double x, double *tolerance) {
    static const uint8_t most_e4m3 = 0x7e, most_e5m2 = 0x7b;
    const uint8_t *most = dtype == FIG_E4M3 ? &most_e4m3 : dtype == FIG_E5M2 ? &most_e5m2 : NULL;
    *tolerance = 0;
    if (most == NULL) return x;
    double limit = truth_load(most, dtype, 0);
    if (x > limit) x = limit;
    if (x < -limit) x = -limit;
    *tolerance = quarter_tolerance_ulp * truth_ulp(dtype, x);
    return x;
}

/* One head of what a query token appended, read from the device to `got`. */
typedef struct appended {
    const cache_side *side;
    int32_t step, query, sequence, token, head;
    const uint8_t *got;
} appended;

static int compare_appended(fig_check *check, const appended *a) {
    const fig_session_tensor *rows = a->side->rows, *cache = a->side->cache;
    int32_t head_dim = (int32_t)rows->info.dims[2];
    int64_t first = ((int64_t)a->query * rows->info.dims[1] + a->head) * head_dim;
    for (int32_t i = 0; i < head_dim; i++) {
        double low = truth_load(a->side->low, rows->info.dtype, first + i), below;
        double high = truth_load(a->side->high, rows->info.dtype, first + i), above;
        low = stored_of(cache->info.dtype, low / scale_of(a->side, a->head), &below);
        high = stored_of(cache->info.dtype, high / scale_of(a->side, a->head), &above);
        double due = (low + high) / 2, tolerance = (high - low) / 2 + fmax(below, above);
        double got = truth_load(a->got, cache->info.dtype, i);
        if (fabs(got - due) <= tolerance) continue;
        return fig_report_failure(
            "step %d: %s, token %d of sequence %d, head %d, element %d is %.9g where %.9g is due, "
            "and the tolerance is %.3g",
            a->step, cache->info.name, a->token, a->sequence, a->head, i, got, due, tolerance);
    }
    check->elements += head_dim;
    return FIG_EXIT_FINE;
}

/* The newest tokens of every row's sequence are to be what was appended. */
static int check_append(fig_check *check, fig_session *session, const fig_schedule *schedule,
                        const cache_side *side) {
    const fig_session_tensor *cache = side->cache;
    truth_cache view = cache_of(session, cache);
    size_t element = fig_synthetic_bytes(cache->info.dtype);
    size_t bytes = (size_t)cache->info.dims[3] * element;
    int32_t heads = (int32_t)cache->info.dims[2], code = FIG_EXIT_FINE;
    uint8_t got[TRUTH_HEAD_DIM_LIMIT * sizeof(float)];
    for (int32_t i = 0; i < count_queries(session, schedule) * heads; i++) {
        appended a = {.side = side,
                      .step = schedule->step,
                      .query = i / heads,
                      .sequence = sequence_of(session, i / heads),
                      .token = place_of(session, schedule, i / heads),
                      .head = i % heads,
                      .got = got};
        if (a.token < 0) continue;
        int64_t offset = truth_cache_offset(&view, a.sequence, a.token) + a.head * view.head_stride;
        code = fig_session_read(session, cache, (size_t)offset * element, bytes, got);
        if (code == FIG_EXIT_FINE) code = compare_appended(check, &a);
        if (code != FIG_EXIT_FINE) return code;
        memcpy(cache->mirror + (size_t)offset * element, got, bytes);
    }
    return FIG_EXIT_FINE;
}

static int check_attention(fig_check *check, fig_session *session, const fig_schedule *schedule,
                           int32_t layer) {
    const fig_spec *spec = session->info.spec;
    const fig_session_tensor *out = fig_session_find(session, layer, FIG_SESSION_OUT);
    const fig_session_tensor *sinks = fig_session_find(session, layer, FIG_SESSION_SINKS);
    cache_side k = side_of(session, layer, FIG_SESSION_K);
    cache_side v = side_of(session, layer, FIG_SESSION_V);
    size_t head_bytes = (size_t)spec->head_dim * fig_synthetic_bytes(out->info.dtype);
    truth_attention_result result;
    truth_attention_args args = {.q = rows_of(fig_session_find(session, layer, FIG_SESSION_Q)),
                                 .k = cache_of(session, k.cache),
                                 .v = cache_of(session, v.cache),
                                 .head_dim = spec->head_dim,
                                 .window = has_layer(spec->window_layers, layer) ? spec->window : 0,
                                 .sm_scale = (double)spec->sm_scale,
                                 .soft_cap = (double)spec->soft_cap};
    double sink = 0;
    if (sinks != NULL) args.sink = &sink;
    int32_t count = count_queries(session, schedule) * spec->q_heads;
    int code = read_rows(session, schedule, out, out->mirror);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < count; i++) {
        args.row = i / spec->q_heads;
        args.sequence = sequence_of(session, i / spec->q_heads);
        args.length = place_of(session, schedule, i / spec->q_heads) + 1;
        args.q_head = i % spec->q_heads;
        args.kv_head = args.q_head / (spec->q_heads / spec->kv_heads);
        args.k_scale = scale_of(&k, args.kv_head);
        args.v_scale = scale_of(&v, args.kv_head);
        if (sinks != NULL) sink = truth_load(sinks->mirror, FIG_F32, args.q_head);
        truth_attention(&args, &result);
        code = compare(check, &(comparison){.tensor = out,
                                            .step = schedule->step,
                                            .row = args.row,
                                            .head = args.q_head,
                                            .got = out->mirror + (size_t)i * head_bytes,
                                            .due = result.out,
                                            .magnitude = result.magnitude,
                                            .count = spec->head_dim});
    }
    return code;
}

/* own: 1: the layer's attention turns q and k by itself. */
static int check_layer(fig_check *check, fig_session *session, const fig_schedule *schedule,
                       int32_t layer, int own) {
    cache_side k = side_of(session, layer, FIG_SESSION_K);
    cache_side v = side_of(session, layer, FIG_SESSION_V);
    turning q_turns = {.tensor = fig_session_find(session, layer, FIG_SESSION_Q),
                       .norm = fig_session_find(session, layer, FIG_SESSION_Q_NORM),
                       .may_stay = own};
    turning k_turns = {.tensor = k.rows,
                       .norm = fig_session_find(session, layer, FIG_SESSION_K_NORM),
                       .may_stay = own};
    int code = check_act(check, session, schedule, layer);
    if (code == FIG_EXIT_FINE) code = check_rope(check, session, schedule, &q_turns);
    if (code == FIG_EXIT_FINE) code = check_rope(check, session, schedule, &k_turns);
    if (code == FIG_EXIT_FINE && k_turns.left >= 0) {
        k.low = k_turns.low;
        k.high = k_turns.high;
    }
    if (code == FIG_EXIT_FINE) code = check_append(check, session, schedule, &k);
    if (code == FIG_EXIT_FINE) code = check_append(check, session, schedule, &v);
    if (code == FIG_EXIT_FINE) code = check_attention(check, session, schedule, layer);
    free(q_turns.got);
    free(k_turns.got);
    return code;
}

int fig_check_step(fig_check *check, fig_session *session, const fig_schedule *schedule) {
    uint64_t own[8];
    int code = find_own_turns(session, own);
    for (int32_t layer = 0; code == FIG_EXIT_FINE && layer < session->info.spec->layers; layer++)
        code = check_layer(check, session, schedule, layer, has_layer(own, layer));
    return code;
}

static int check_cache(fig_check *check, fig_session *session, const fig_session_tensor *cache) {
    size_t element = fig_synthetic_bytes(cache->info.dtype);
    uint8_t *got = malloc(cache->row_bytes);
    int code = FIG_EXIT_FINE;
    if (got == NULL) return fig_report_refuse("replay: no memory for %zu bytes", cache->row_bytes);
    for (int64_t page = 0; code == FIG_EXIT_FINE && page < cache->count; page++) {
        size_t offset = (size_t)page * cache->row_bytes;
        const uint8_t *due = cache->mirror + offset;
        code = fig_session_read(session, cache, offset, cache->row_bytes, got);
        if (code != FIG_EXIT_FINE || memcmp(got, due, cache->row_bytes) == 0) continue;
        size_t i = 0;
        while (memcmp(got + i * element, due + i * element, element) == 0)
            i++;
        code = fig_report_failure("after the last step: %s, page %lld, element %zu is %.9g where "
                                  "%.9g is due: no step was to write there",
                                  cache->info.name, (long long)page, i,
                                  truth_load(got, cache->info.dtype, (int64_t)i),
                                  truth_load(due, cache->info.dtype, (int64_t)i));
    }
    check->elements += cache->count * (int64_t)(cache->row_bytes / element);
    free(got);
    return code;
}

int fig_check_caches(fig_check *check, fig_session *session) {
    int code = FIG_EXIT_FINE;
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < session->tensor_count; i++) {
        const fig_session_tensor *tensor = &session->tensors[i];
        if (tensor->kind != FIG_SESSION_K_CACHE && tensor->kind != FIG_SESSION_V_CACHE) continue;
        code = check_cache(check, session, tensor);
    }
    return code;
}
