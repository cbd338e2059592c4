/* check.c: compares outputs with truth.c, element by element.
 *
 * An error is judged against the magnitude of what was summed up, not against what is left of it.
 * 16-bit outputs may be off by 2 units in the last place, f32 by 2e-5 of the magnitude, since its
 * twins and kernels sum in another order than float64 does. */
#include "tools/figraph/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/report.h"
#include "tools/figraph/truth.h"

static const double half_tolerance_ulp = 2;
static const double single_tolerance = 2e-5; /* of the magnitude */

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
    return (truth_cache){.base = tensor->mirror,
                         .dtype = tensor->info.dtype,
                         .page_stride = dims[1] * dims[2] * dims[3],
                         .token_stride = dims[2] * dims[3],
                         .head_stride = dims[3],
                         .pages = tensor->count,
                         .page_size = (int32_t)dims[1],
                         .page_table = session->page_table,
                         .table_stride = session->sequence_pages};
}

static int read_rows(fig_session *session, const fig_session_tensor *tensor, int32_t rows,
                     void *to) {
    return fig_session_read(session, tensor, 0, (size_t)rows * tensor->row_bytes, to);
}

static int check_act(fig_check *check, fig_session *session, const fig_schedule *schedule,
                     int32_t layer) {
    const fig_session_tensor *in = fig_session_find(session, layer, FIG_SESSION_GATE_UP);
    const fig_session_tensor *act = fig_session_find(session, layer, FIG_SESSION_ACT);
    int32_t width = session->info.spec->ffn_width;
    if (act == NULL) return FIG_EXIT_FINE;
    double *due = calloc((size_t)width, sizeof *due);
    if (due == NULL) return fig_report_refuse("replay: no memory for %d numbers", width);
    int code = read_rows(session, act, schedule->rows, act->mirror);
    for (int32_t row = 0; code == FIG_EXIT_FINE && row < schedule->rows; row++) {
        truth_rows rows = rows_of(in);
        truth_silu_and_mul(&rows, row, width, due);
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

/* A pair is turned, so its length is the magnitude of both. */
static void measure_pairs(const fig_rope_spec *rope, int32_t head_dim, const double *due,
                          double *magnitude) {
    int32_t half = head_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        int32_t first = rope->interleaved ? 2 * i : i;
        int32_t second = rope->interleaved ? 2 * i + 1 : i + half;
        magnitude[first] = magnitude[second] = hypot(due[first], due[second]);
    }
}

/* q or k, rotated in place: the mirror holds what it was before. Where an idle row's RoPE stands is
 * left open, so it is not judged. */
static int check_rope(fig_check *check, fig_session *session, const fig_schedule *schedule,
                      const fig_session_tensor *tensor) {
    int32_t heads = (int32_t)tensor->info.dims[1], head_dim = (int32_t)tensor->info.dims[2];
    size_t bytes = (size_t)schedule->rows * tensor->row_bytes;
    size_t head_bytes = (size_t)head_dim * fig_synthetic_bytes(tensor->info.dtype);
    double due[TRUTH_HEAD_DIM_LIMIT], magnitude[TRUTH_HEAD_DIM_LIMIT];
    uint8_t *got = malloc(bytes);
    if (got == NULL) return fig_report_refuse("replay: no memory for %zu bytes", bytes);
    int code = read_rows(session, tensor, schedule->rows, got);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < schedule->rows * heads; i++) {
        int32_t row = i / heads;
        truth_rope_args args = {.x = rows_of(tensor),
                                .rope = session->info.spec->rope,
                                .row = row,
                                .position = schedule->lengths[row] - 1,
                                .head = i % heads,
                                .head_dim = head_dim};
        if (schedule->lengths[row] == 0) continue;
        truth_rope(&args, due);
        measure_pairs(&args.rope, head_dim, due, magnitude);
        code = compare(check, &(comparison){.tensor = tensor,
                                            .step = schedule->step,
                                            .row = row,
                                            .head = i % heads,
                                            .got = got + (size_t)i * head_bytes,
                                            .due = due,
                                            .magnitude = magnitude,
                                            .count = head_dim});
    }
    if (code == FIG_EXIT_FINE) memcpy(tensor->mirror, got, bytes);
    free(got);
    return code;
}

/* The cache's newest token of every row must be, bit for bit, the row that was appended. */
static int check_append(fig_check *check, fig_session *session, const fig_schedule *schedule,
                        const fig_session_tensor *rows, const fig_session_tensor *cache) {
    truth_cache view = cache_of(session, cache);
    size_t element = fig_synthetic_bytes(cache->info.dtype);
    size_t bytes = rows->row_bytes;
    uint8_t *got = malloc(bytes);
    int code = FIG_EXIT_FINE;
    if (got == NULL) return fig_report_refuse("replay: no memory for %zu bytes", bytes);
    for (int32_t row = 0; code == FIG_EXIT_FINE && row < schedule->rows; row++) {
        const uint8_t *due = rows->mirror + (size_t)row * bytes;
        int32_t token = schedule->lengths[row] - 1;
        if (token < 0) continue;
        size_t offset = (size_t)truth_cache_offset(&view, session->sequences[row], token) * element;
        code = fig_session_read(session, cache, offset, bytes, got);
        if (code != FIG_EXIT_FINE) break;
        for (size_t i = 0; i < bytes / element; i++) {
            if (memcmp(got + i * element, due + i * element, element) == 0) continue;
            code = fig_report_failure(
                "step %d: %s, token %d of sequence %d, element %zu is %.9g where %.9g is due, "
                "and the tolerance is 0",
                schedule->step, cache->info.name, token, session->sequences[row], i,
                truth_load(got, cache->info.dtype, (int64_t)i),
                truth_load(due, cache->info.dtype, (int64_t)i));
            break;
        }
        memcpy(cache->mirror + offset, due, bytes);
        check->elements += (int64_t)(bytes / element);
    }
    free(got);
    return code;
}

static int check_attention(fig_check *check, fig_session *session, const fig_schedule *schedule,
                           int32_t layer) {
    const fig_spec *spec = session->info.spec;
    const fig_session_tensor *out = fig_session_find(session, layer, FIG_SESSION_OUT);
    size_t head_bytes = (size_t)spec->head_dim * fig_synthetic_bytes(out->info.dtype);
    truth_attention_result result;
    truth_attention_args args = {
        .q = rows_of(fig_session_find(session, layer, FIG_SESSION_Q)),
        .k = cache_of(session, fig_session_find(session, layer, FIG_SESSION_K_CACHE)),
        .v = cache_of(session, fig_session_find(session, layer, FIG_SESSION_V_CACHE)),
        .head_dim = spec->head_dim,
        .sm_scale = (double)spec->sm_scale};
    int code = read_rows(session, out, schedule->rows, out->mirror);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < schedule->rows * spec->q_heads; i++) {
        int32_t row = i / spec->q_heads, head = i % spec->q_heads;
        args.row = row;
        args.sequence = session->sequences[row];
        args.length = schedule->lengths[row];
        args.q_head = head;
        args.kv_head = head / (spec->q_heads / spec->kv_heads);
        truth_attention(&args, &result);
        code = compare(check, &(comparison){.tensor = out,
                                            .step = schedule->step,
                                            .row = row,
                                            .head = head,
                                            .got = out->mirror + (size_t)i * head_bytes,
                                            .due = result.out,
                                            .magnitude = result.magnitude,
                                            .count = spec->head_dim});
    }
    return code;
}

int fig_check_step(fig_check *check, fig_session *session, const fig_schedule *schedule) {
    int code = FIG_EXIT_FINE;
    for (int32_t layer = 0; code == FIG_EXIT_FINE && layer < session->info.spec->layers; layer++) {
        const fig_session_tensor *tensors[FIG_SESSION_KIND_COUNT];
        for (int kind = 0; kind < FIG_SESSION_PAGE_TABLE; kind++)
            tensors[kind] = fig_session_find(session, layer, (fig_session_kind)kind);
        code = check_act(check, session, schedule, layer);
        if (code == FIG_EXIT_FINE)
            code = check_rope(check, session, schedule, tensors[FIG_SESSION_Q]);
        if (code == FIG_EXIT_FINE)
            code = check_rope(check, session, schedule, tensors[FIG_SESSION_K]);
        if (code == FIG_EXIT_FINE)
            code = check_append(check, session, schedule, tensors[FIG_SESSION_K],
                                tensors[FIG_SESSION_K_CACHE]);
        if (code == FIG_EXIT_FINE)
            code = check_append(check, session, schedule, tensors[FIG_SESSION_V],
                                tensors[FIG_SESSION_V_CACHE]);
        if (code == FIG_EXIT_FINE) code = check_attention(check, session, schedule, layer);
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
