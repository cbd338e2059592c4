/* check.c: compares outputs with truth.c, element by element.
 *
 * An error is measured relative to the magnitude of the summed terms, not to the magnitude of their
 * sum. 16-bit outputs may be off by 2 units in the last place. f32 outputs may be off by 2e-5 of
 * the magnitude, because kernels and reference kernels sum in another order than float64 code does.
 * A cache holds the exact value or, in fp8, a value nearest to the quotient, which a kernel first
 * rounds to f32. If attention rotates k itself and does not write it back, the kernel may round a
 * number that differs from the true one by up to the rounding error of f32. The appended value is
 * then usually the one nearest value; if the number is close to a tie, it may be either of two
 * neighbours. */
#include "tools/figraph/step/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <figraph_unstable.h>

#include "tools/figraph/step/check_parts.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/truth/truth.h"
#include "tools/figraph/truth/truth_score.h"

static const double half_tolerance_ulp = 2;
static const double single_tolerance = 2e-5; /* relative to the magnitude */
static const double quarter_tolerance_ulp = 0.5 + 1e-6;
/* The tolerance relative to a pair's length, before the result is rounded to its type. It is
 * half an f32 unit for each of: the norm's factor and its two products, the cosine and the sine,
 * the table's factor, and two products and their sum. */
static const double turn_tolerance = 0x1p-20;

static int report_mismatch(const fig_check_comparison *c, int32_t i, double tolerance) {
    char head[24] = "";
    if (c->head >= 0) snprintf(head, sizeof head, "[%lld]", (long long)c->head);
    return fig_report_failure(
        "step %d: %s[%lld]%s[%lld] is %.9g and must be %.9g: off by %.3g, tolerance %.3g", c->step,
        c->tensor->info.name, (long long)c->row, head, (long long)(c->first + i),
        truth_load(c->got, c->tensor->info.dtype, i), c->due[i],
        fabs(truth_load(c->got, c->tensor->info.dtype, i) - c->due[i]), tolerance);
}

int fig_check_compare(fig_check *check, const fig_check_comparison *c) {
    fig_dtype dtype = c->tensor->info.dtype;
    for (int32_t i = 0; i < c->count; i++) {
        double magnitude = c->magnitude != NULL ? c->magnitude[i] : fabs(c->due[i]);
        double ulp = truth_ulp(dtype, magnitude);
        double error = fabs(truth_load(c->got, dtype, i) - c->due[i]);
        double tolerance =
            dtype == FIG_F32 ? fmax(single_tolerance * magnitude, ulp) : half_tolerance_ulp * ulp;
        if (c->slack != NULL) tolerance += c->slack[i];
        check->elements++;
        if (isnan(c->due[i]) && isnan(truth_load(c->got, dtype, i))) continue;
        if (!(error <= tolerance)) return report_mismatch(c, i, tolerance);
        if (error / ulp > check->worst_ulp) check->worst_ulp = error / ulp;
    }
    return FIG_EXIT_FINE;
}

truth_rows fig_check_rows(const fig_session_tensor *tensor) {
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

/* Returns the number of rows in tensors that have one row for each query token of the step. */
int32_t fig_check_queries(const fig_schedule *schedule) {
    return fig_schedule_count(schedule);
}

/* Returns the position of a query token; negative: its row is idle. */
int32_t fig_check_place(const fig_schedule *schedule, int32_t query) {
    const fig_schedule_query at = fig_schedule_find(schedule, query);
    const int32_t length = schedule->lengths[at.row];
    return length == 0 ? -1 : length - schedule->queries[at.row] + at.number;
}

int32_t fig_check_sequence(const fig_session *session, const fig_schedule *schedule,
                           int32_t query) {
    return session->sequences[fig_schedule_find(schedule, query).row];
}

/* Returns the number of the tensor's rows in this step: `multiple` for each row of the step, or for
 * each query token. */
static int32_t count_rows(const fig_schedule *schedule, const fig_session_tensor *tensor) {
    return fig_session_rows(schedule, tensor);
}

int fig_check_read_rows(fig_session *session, const fig_schedule *schedule,
                        const fig_session_tensor *tensor, void *to) {
    size_t rows = (size_t)count_rows(schedule, tensor);
    return fig_session_read(session, tensor, 0, rows * tensor->row_bytes, to);
}

static int check_act(fig_check *check, fig_session *session, const fig_schedule *schedule,
                     int32_t layer) {
    const fig_session_tensor *in = fig_session_find(session, layer, FIG_SESSION_GATE_UP);
    const fig_session_tensor *act = fig_session_find(session, layer, FIG_SESSION_ACT);
    if (act == NULL) return FIG_EXIT_FINE;
    const int32_t width = (int32_t)act->info.dims[1];
    double *due = calloc((size_t)width, sizeof *due);
    if (due == NULL) return fig_report_refuse("replay: no memory for %d numbers", width);
    int code = fig_check_read_rows(session, schedule, act, act->mirror);
    for (int32_t row = 0; code == FIG_EXIT_FINE && row < count_rows(schedule, act); row++) {
        truth_gated_args args = {.in = fig_check_rows(in),
                                 .activation = session->info.spec->activation,
                                 .row = row,
                                 .width = width};
        truth_gated(&args, due);
        code = fig_check_compare(
            check, &(fig_check_comparison){.tensor = act,
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

/* Computes magnitudes. RoPE rotates pairs, so a pair's length is the magnitude of both elements. An
 * element outside the rotated dims has its own magnitude. */
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

/* Returns 1 if the layer uses the spec's window_rope. A window_rope that is set always has a theta,
 * because its default is filled in. */
static int turns_by_window(const fig_spec *spec, int32_t layer) {
    return has_layer(spec->window_layers, layer) && spec->window_rope.theta > 0;
}

/* Returns the RoPE of a layer; a layer without RoPE rotates nothing. */
fig_rope_spec fig_check_rope(const fig_spec *spec, int32_t layer) {
    fig_rope_spec rope = turns_by_window(spec, layer) ? spec->window_rope : spec->rope;
    if (has_layer(spec->plain_layers, layer)) rope.rotary_dim = 0;
    return rope;
}

const fig_rope_table *fig_check_table(const fig_spec *spec, int32_t layer) {
    return turns_by_window(spec, layer) ? &spec->window_table : &spec->rope_table;
}

/* ---- q and k --------------------------------------------------------------------------------- */

/* Finds the layers whose attention rotates q and k itself in the bucket of the last staged step:
 * the device has no separate launch for their RoPE. There is one decode_attention node for each
 * layer that rotates, in the order of layers. */
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

/* The q or k of the step's rows, each [rows][heads][head_dim]. */
typedef struct turning {
    const fig_session_tensor *tensor, *norm; /* norm NULL: none */
    int may_stay;                            /* 1: attention does RoPE itself */
    uint8_t *got;                            /* the values after the step */
    uint8_t *turned;                         /* the values before the step, after RoPE */
    /* the lowest and highest values that a kernel may have rounded to instead */
    uint8_t *low, *high;
    int32_t left, moved; /* one head that was left unrotated, and one that was rotated; -1: none */
} turning;

static int open_turning(turning *t, const fig_schedule *schedule) {
    const size_t bytes = (size_t)fig_check_queries(schedule) * t->tensor->row_bytes;
    t->left = t->moved = -1;
    t->got = malloc(4 * bytes + 1);
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

/* Returns 1 if the head still has its values from before the step and RoPE would have changed
 * them. A head that RoPE does not change, for example at position 0, proves nothing. */
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
    truth_rope_args args = {.x = fig_check_rows(tensor),
                            .rope = fig_check_rope(session->info.spec, tensor->layer),
                            .table = fig_check_table(session->info.spec, tensor->layer),
                            .row = head / heads,
                            .position = fig_check_place(schedule, head / heads),
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
    return fig_check_compare(check,
                             &(fig_check_comparison){.tensor = tensor,
                                                     .step = schedule->step,
                                                     .row = head / heads,
                                                     .head = head % heads,
                                                     .got = t->got + (size_t)head * head_bytes,
                                                     .due = due,
                                                     .magnitude = magnitude,
                                                     .count = head_dim});
}

/* Compares q or k with RoPE in float64. On entry the mirror holds the values before the step; on
 * return it holds the values that later nodes should have read. The position of an idle row is
 * undefined, so the row is not compared. */
static int check_rope(fig_check *check, fig_session *session, const fig_schedule *schedule,
                      turning *t) {
    const int32_t heads = (int32_t)t->tensor->info.dims[1];
    const int32_t rows = fig_check_queries(schedule);
    const size_t bytes = (size_t)rows * t->tensor->row_bytes;
    int code = open_turning(t, schedule);
    if (code == FIG_EXIT_FINE) code = fig_check_read_rows(session, schedule, t->tensor, t->got);
    if (code == FIG_EXIT_FINE) memcpy(t->turned, t->got, bytes);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < rows * heads; i++)
        code = check_turned_head(check, session, schedule, t, i);
    if (code != FIG_EXIT_FINE) return code;
    if (t->left >= 0 && t->moved >= 0)
        return fig_report_failure("step %d: %s[%d][%d] is unchanged and [%d][%d] is rotated: a "
                                  "step must rotate all heads or none",
                                  schedule->step, t->tensor->info.name, t->left / heads,
                                  t->left % heads, t->moved / heads, t->moved % heads);
    memcpy(t->tensor->mirror, t->left >= 0 ? t->turned : t->got, bytes);
    return FIG_EXIT_FINE;
}

/* ---- Appended tokens ------------------------------------------------------------------------- */

/* The K side or the V side of a cache. */
typedef struct cache_side {
    const fig_session_tensor *rows, *cache, *scale; /* scale NULL: 1 */
    const uint8_t *low, *high; /* [elements of rows] the bounds of each number */
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

/* Returns the value that a cache stores for x, and in *tolerance its largest allowed error. */
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

/* One head of the data that a query token appended; `got` is read from the device. */
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
        return fig_report_failure("step %d: %s, token %d of sequence %d, head %d, element %d is "
                                  "%.9g and must be %.9g, tolerance %.3g",
                                  a->step, cache->info.name, a->token, a->sequence, a->head, i, got,
                                  due, tolerance);
    }
    check->elements += head_dim;
    return FIG_EXIT_FINE;
}

/* Checks that the newest tokens of each row's sequence are the appended ones. */
static int check_append(fig_check *check, fig_session *session, const fig_schedule *schedule,
                        const cache_side *side) {
    const fig_session_tensor *cache = side->cache;
    truth_cache view = cache_of(session, cache);
    size_t element = fig_synthetic_bytes(cache->info.dtype);
    size_t bytes = (size_t)cache->info.dims[3] * element;
    int32_t heads = (int32_t)cache->info.dims[2], code = FIG_EXIT_FINE;
    uint8_t got[TRUTH_HEAD_DIM_LIMIT * sizeof(float)];
    for (int32_t i = 0; i < fig_check_queries(schedule) * heads; i++) {
        appended a = {.side = side,
                      .step = schedule->step,
                      .query = i / heads,
                      .sequence = fig_check_sequence(session, schedule, i / heads),
                      .token = fig_check_place(schedule, i / heads),
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

/* Sets *truth to the session's score, with the mirrors as its arrays, and makes `args` use it. */
static void take_score(const fig_session *session, truth_score *truth, truth_attention_args *args) {
    *truth = (truth_score){.parts = {.size = sizeof truth->parts}};
    if (session->score == NULL) return;
    fig_score_read(session->score, &truth->parts);
    for (int32_t i = 0; i < truth->parts.array_count; i++) {
        const fig_session_tensor *array = fig_session_array(session, truth->parts.arrays[i].name);
        truth->arrays[i] = array->mirror;
        truth->counts[i] = truth->parts.arrays[i].count;
    }
    args->score = truth_score_of;
    args->score_context = truth;
    if (truth->parts.mask_node_count > 0) args->sees = truth_score_sees;
    args->is_sigmoid = truth->parts.weights == FIG_SCORE_SIGMOID_WEIGHTS;
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
    truth_score score;
    truth_attention_args args = {
        .q = fig_check_rows(fig_session_find(session, layer, FIG_SESSION_Q)),
        .k = cache_of(session, k.cache),
        .v = cache_of(session, v.cache),
        .head_dim = spec->head_dim,
        .window = has_layer(spec->window_layers, layer) ? spec->window : 0,
        .sm_scale = (double)spec->sm_scale,
        .soft_cap = (double)spec->soft_cap};
    double sink = 0;
    if (sinks != NULL) args.sink = &sink;
    take_score(session, &score, &args);
    int32_t count = fig_check_queries(schedule) * spec->q_heads;
    int code = fig_check_read_rows(session, schedule, out, out->mirror);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < count; i++) {
        args.row = i / spec->q_heads;
        args.sequence = fig_check_sequence(session, schedule, i / spec->q_heads);
        args.length = fig_check_place(schedule, i / spec->q_heads) + 1;
        args.step_row = fig_schedule_find(schedule, i / spec->q_heads).row;
        args.kv_length = schedule->lengths[args.step_row];
        args.q_head = i % spec->q_heads;
        args.kv_head = args.q_head / (spec->q_heads / spec->kv_heads);
        args.k_scale = scale_of(&k, args.kv_head);
        args.v_scale = scale_of(&v, args.kv_head);
        if (sinks != NULL) sink = truth_load(sinks->mirror, FIG_F32, args.q_head);
        truth_attention(&args, &result);
        code = fig_check_compare(
            check, &(fig_check_comparison){.tensor = out,
                                           .step = schedule->step,
                                           .row = args.row,
                                           .head = args.q_head,
                                           .got = out->mirror + (size_t)i * head_bytes,
                                           .due = result.out,
                                           .magnitude = result.magnitude,
                                           .slack = result.slack,
                                           .count = spec->head_dim});
    }
    return code;
}

/* Checks a layer. own: 1 if the layer's attention rotates q and k itself. */
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
    int code = check_rope(check, session, schedule, &q_turns);
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
    for (int32_t layer = 0; code == FIG_EXIT_FINE && layer < session->info.spec->layers; layer++) {
        code = check_act(check, session, schedule, layer);
        if (code != FIG_EXIT_FINE) return code;
        code = session->info.spec->latent_dim > 0
                   ? fig_check_latent(check, session, schedule, layer)
                   : check_layer(check, session, schedule, layer, has_layer(own, layer));
    }
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
        code = fig_report_failure("after the last step: %s, page %lld, element %zu is %.9g and "
                                  "must be %.9g: no step writes there",
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
