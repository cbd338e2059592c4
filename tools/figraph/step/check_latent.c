/* check_latent.c: compares a layer's attention over a latent cache with truth_latent.c.
 *
 * The first values of each head of q stay and the others, in q or in q_rope, are rotated. In the
 * cache, the new tokens
 * are the normed and rotated latents of the step, and all other tokens stay. A code may be off by
 * half a unit, in addition to the rounding of the value that it stands for. Invariant: on return
 * the mirrors of q and of the cache hold what the device has. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/step/check_parts.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/truth/truth_latent.h"

enum { ROPE_DIM = TRUTH_LATENT_KEY_DIM - TRUTH_LATENT_DIM };

/* Rotates the last values of one row of a head; the lengths of pairs become the magnitudes. */
static void turn(const fig_session *session, const fig_session_tensor *tensor, int64_t row,
                 int32_t head, int64_t position, double *due, double *magnitude) {
    const int64_t width = tensor->info.dims[tensor->info.rank - 1];
    truth_rows rows = fig_check_rows(tensor);
    rows.base = (const uint8_t *)rows.base +
                (size_t)(width - ROPE_DIM) * fig_synthetic_bytes(tensor->info.dtype);
    const truth_rope_args args = {.x = rows,
                                  .rope = fig_check_rope(session->info.spec, tensor->layer),
                                  .table = fig_check_table(session->info.spec, tensor->layer),
                                  .row = row,
                                  .position = position,
                                  .head = head,
                                  .head_dim = ROPE_DIM};
    truth_rope(&args, due);
    for (int32_t i = 0; i < ROPE_DIM / 2; i++) {
        const int32_t first = args.rope.interleaved ? 2 * i : i;
        const int32_t second = args.rope.interleaved ? first + 1 : i + ROPE_DIM / 2;
        magnitude[first] = magnitude[second] = hypot(due[first], due[second]);
    }
}

/* Checks one head of a query token: its first `kept` values must be as before, the others rotated.
 */
static int check_head(fig_check *check, fig_session *session, const fig_schedule *schedule,
                      const fig_session_tensor *q, int32_t kept, int32_t index,
                      const uint8_t *got) {
    const int32_t heads = (int32_t)q->info.dims[1], width = (int32_t)q->info.dims[2];
    const int32_t row = index / heads, head = index % heads, place = fig_check_place(schedule, row);
    const size_t unit = fig_synthetic_bytes(q->info.dtype);
    double due[ROPE_DIM], magnitude[ROPE_DIM];
    if (place < 0) return FIG_EXIT_FINE;
    if (memcmp(got, q->mirror + (size_t)index * (size_t)width * unit, (size_t)kept * unit) != 0)
        return fig_report_failure("step %d: one of the first %d values of %s[%d][%d] changed",
                                  schedule->step, kept, q->info.name, row, head);
    if (kept == width) return FIG_EXIT_FINE;
    turn(session, q, row, head, place, due, magnitude);
    return fig_check_compare(check, &(fig_check_comparison){.tensor = q,
                                                            .step = schedule->step,
                                                            .row = row,
                                                            .head = head,
                                                            .first = kept,
                                                            .got = got + (size_t)kept * unit,
                                                            .due = due,
                                                            .magnitude = magnitude,
                                                            .count = ROPE_DIM});
}

/* Checks q or q_rope, and leaves in its mirror what attention read. */
static int check_heads(fig_check *check, fig_session *session, const fig_schedule *schedule,
                       const fig_session_tensor *q, int32_t kept) {
    const int32_t heads = (int32_t)q->info.dims[1], queries = fig_check_queries(schedule);
    const size_t head_bytes = q->row_bytes / (size_t)heads;
    uint8_t *got = malloc((size_t)queries * q->row_bytes + 1);
    if (got == NULL) return fig_report_refuse("replay: no memory for %s", q->info.name);
    int code = fig_check_read_rows(session, schedule, q, got);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < queries * heads; i++)
        code = check_head(check, session, schedule, q, kept, i, got + (size_t)i * head_bytes);
    if (code == FIG_EXIT_FINE) memcpy(q->mirror, got, (size_t)queries * q->row_bytes);
    free(got);
    return code;
}

/* q_rope: NULL if q has the values to be rotated */
static int check_q(fig_check *check, fig_session *session, const fig_schedule *schedule,
                   const fig_session_tensor *q, const fig_session_tensor *q_rope) {
    const int code = check_heads(check, session, schedule, q, TRUTH_LATENT_DIM);
    if (code != FIG_EXIT_FINE || q_rope == NULL) return code;
    return check_heads(check, session, schedule, q_rope, 0);
}

/* ---- Appended tokens */

static truth_cache cache_of(const fig_session *session, const fig_session_tensor *cache) {
    return (truth_cache){.base = cache->mirror,
                         .dtype = cache->info.dtype,
                         .page_stride = cache->info.dims[1] * cache->info.dims[2],
                         .token_stride = cache->info.dims[2],
                         .pages = cache->count,
                         .page_size = (int32_t)cache->info.dims[1],
                         .page_table = session->page_table,
                         .table_stride = session->sequence_pages};
}

/* Computes the token that a query appends, and by how much each of its values may be off because it
 * is rounded to q's dtype. */
static void make_token(const fig_session *session, const fig_session_tensor *latent, int32_t query,
                       int32_t place, double *due, double *slack) {
    const fig_spec *spec = session->info.spec;
    const fig_session_tensor *norm =
        fig_session_find(session, latent->layer, FIG_SESSION_LATENT_NORM);
    const fig_dtype dtype = latent->info.dtype;
    const truth_rms_norm_args args = {.x = fig_check_rows(latent),
                                      .weight = norm != NULL ? norm->mirror : NULL,
                                      .epsilon = (double)spec->latent_norm_epsilon,
                                      .row = query,
                                      .width = TRUTH_LATENT_DIM};
    double magnitude[ROPE_DIM];
    truth_load_row(latent->mirror, dtype, (int64_t)query * TRUTH_LATENT_KEY_DIM, TRUTH_LATENT_DIM,
                   due);
    if (norm != NULL) truth_rms_norm(&args, due);
    turn(session, latent, query, 0, place, due + TRUTH_LATENT_DIM, magnitude);
    for (int32_t i = 0; i < TRUTH_LATENT_KEY_DIM; i++) {
        const int is_turned = i >= TRUTH_LATENT_DIM;
        const double size = is_turned ? magnitude[i - TRUTH_LATENT_DIM] : fabs(due[i]);
        slack[i] = norm == NULL && !is_turned ? 0 : truth_ulp(dtype, size);
        if (dtype == FIG_F32) slack[i] = 2e-5 * size;
    }
}

static int check_token(fig_check *check, fig_session *session, const fig_schedule *schedule,
                       const fig_session_tensor *cache, int32_t query) {
    const fig_session_tensor *latent = fig_session_find(session, cache->layer, FIG_SESSION_LATENT);
    const truth_cache view = cache_of(session, cache);
    const int32_t place = fig_check_place(schedule, query);
    const size_t unit = fig_synthetic_bytes(cache->info.dtype);
    double due[TRUTH_LATENT_KEY_DIM], slack[TRUTH_LATENT_KEY_DIM], got[TRUTH_LATENT_KEY_DIM];
    if (place < 0) return FIG_EXIT_FINE;
    const int64_t at =
        truth_cache_offset(&view, fig_check_sequence(session, schedule, query), place);
    uint8_t *token = cache->mirror + (size_t)at * unit;
    const int code = fig_session_read(session, cache, (size_t)at * unit,
                                      (size_t)cache->info.dims[2] * unit, token);
    if (code != FIG_EXIT_FINE) return code;
    make_token(session, latent, query, place, due, slack);
    truth_latent_token(&view, at, got);
    for (int32_t i = 0; i < TRUTH_LATENT_KEY_DIM; i++) {
        double tolerance = slack[i];
        if (view.dtype == FIG_E4M3 && i >= TRUTH_LATENT_DIM)
            tolerance += 0.5 * truth_ulp(FIG_BF16, due[i]);
        if (view.dtype == FIG_E4M3 && i < TRUTH_LATENT_DIM) {
            const double scale = truth_latent_scale(token, i);
            tolerance += 0.51 * scale * truth_ulp(FIG_E4M3, due[i] / scale);
        }
        if (fabs(got[i] - due[i]) <= tolerance) continue;
        return fig_report_failure("step %d: %s, token %d of query %d, value %d is %.9g and must be "
                                  "%.9g, tolerance %.3g",
                                  schedule->step, cache->info.name, place, query, i, got[i], due[i],
                                  tolerance);
    }
    check->elements += TRUTH_LATENT_KEY_DIM;
    return FIG_EXIT_FINE;
}

/* ---- Attention */

static int check_out(fig_check *check, fig_session *session, const fig_schedule *schedule,
                     const fig_session_tensor *q, const fig_session_tensor *cache) {
    const fig_spec *spec = session->info.spec;
    const fig_session_tensor *out = fig_session_find(session, q->layer, FIG_SESSION_OUT);
    const fig_session_tensor *sinks = fig_session_find(session, q->layer, FIG_SESSION_SINKS);
    const fig_session_tensor *q_rope = fig_session_find(session, q->layer, FIG_SESSION_Q_ROPE);
    const int32_t heads = spec->q_heads;
    const int windowed = (int)(spec->window_layers[q->layer / 64] >> q->layer % 64 & 1);
    double sink = 0;
    truth_latent_result result;
    truth_latent_args args = {.q = fig_check_rows(q),
                              .cache = cache_of(session, cache),
                              .window = windowed ? spec->window : 0,
                              .sm_scale = (double)spec->sm_scale,
                              .sink = sinks != NULL ? &sink : NULL};
    if (q_rope != NULL) args.q_rope = fig_check_rows(q_rope);
    int code = fig_check_read_rows(session, schedule, out, out->mirror);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < fig_check_queries(schedule) * heads; i++) {
        args.row = i / heads;
        args.q_head = i % heads;
        args.sequence = fig_check_sequence(session, schedule, i / heads);
        args.length = fig_check_place(schedule, i / heads) + 1;
        if (sinks != NULL) sink = truth_load(sinks->mirror, FIG_F32, args.q_head);
        truth_latent(&args, &result);
        code = fig_check_compare(
            check,
            &(fig_check_comparison){.tensor = out,
                                    .step = schedule->step,
                                    .row = args.row,
                                    .head = args.q_head,
                                    .got = out->mirror + (size_t)i * TRUTH_LATENT_DIM *
                                                             fig_synthetic_bytes(out->info.dtype),
                                    .due = result.out,
                                    .magnitude = result.magnitude,
                                    .count = TRUTH_LATENT_DIM});
    }
    return code;
}

int fig_check_latent(fig_check *check, fig_session *session, const fig_schedule *schedule,
                     int32_t layer) {
    const fig_session_tensor *q = fig_session_find(session, layer, FIG_SESSION_Q);
    const fig_session_tensor *cache = fig_session_find(session, layer, FIG_SESSION_K_CACHE);
    const fig_session_tensor *q_rope = fig_session_find(session, layer, FIG_SESSION_Q_ROPE);
    int code = check_q(check, session, schedule, q, q_rope);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < fig_check_queries(schedule); i++)
        code = check_token(check, session, schedule, cache, i);
    return code == FIG_EXIT_FINE ? check_out(check, session, schedule, q, cache) : code;
}
