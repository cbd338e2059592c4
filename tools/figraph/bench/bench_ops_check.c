/* bench_ops_check.c: compares a small operation with float64 before it is timed.
 *
 * Invariant: the tensors are read before the launch, because RoPE changes them in place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/bench/bench_ops.h"
#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/truth/truth.h"

enum { LENGTHS = 5 }; /* lengths that the rows have in turn */
static const double TOLERANCE_ULP = 2, SMALL = 1.0 / 1024, EPSILON = 1e-6, THETA = 10000;
static const fig_dtype DTYPE = FIG_BF16;

/* A row of the tensors and its values before the launch. */
typedef struct sample {
    fig_bench_rig *rig;
    const fig_bench_size *of;
    int32_t row, sequence, position;
    uint8_t *in, *q, *k, *v; /* the values before the launch; the weight follows the values of in */
    uint8_t *got;            /* as large as the largest of them */
    double *due;             /* [width] */
} sample;

static int is_of_heads(const fig_bench_size *of) {
    return of->op >= FIG_BENCH_ROPE;
}

static int32_t in_width(const fig_bench_size *of) {
    return of->op == FIG_BENCH_RMS_NORM ? of->width : 2 * of->width;
}

/* Reads `count` numbers from number `from` on. */
static int read_from(const sample *s, const char *name, int64_t from, int32_t count, uint8_t *to) {
    const size_t item = fig_synthetic_bytes(DTYPE);
    const fig_span span = {.size = sizeof span,
                           .name = name,
                           .offset = (uint64_t)from * item,
                           .bytes = (uint64_t)count * item};
    return fig_engine_read(s->rig->engine, &span, to) == FIG_OK ? FIG_EXIT_FINE
                                                                : fig_report_status("bench ops");
}

static int read_row(const sample *s, const char *name, int32_t count, uint8_t *to) {
    return read_from(s, name, (int64_t)s->row * count, count, to);
}

static int compare(const sample *s, const char *name, const uint8_t *got, const double *due,
                   int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        const double value = truth_load(got, DTYPE, i);
        const double tolerance = TOLERANCE_ULP * truth_ulp(DTYPE, fmax(fabs(due[i]), SMALL));
        if (fabs(value - due[i]) <= tolerance) continue;
        return fig_report_failure("bench ops: %s, %d x %d: %s: element %d of row %d is %.9g and "
                                  "must be %.9g, tolerance %.3g",
                                  s->of->name, s->of->rows, s->of->width, name, i, s->row, value,
                                  due[i], tolerance);
    }
    return FIG_EXIT_FINE;
}

/* ---- Before -------------------------------------------------------------------------------- */

static int read_before(const sample *s) {
    const int32_t q = FIG_BENCH_Q_HEADS * FIG_BENCH_HEAD_DIM;
    const int32_t kv = FIG_BENCH_KV_HEADS * FIG_BENCH_HEAD_DIM;
    if (!is_of_heads(s->of)) {
        const int32_t width = in_width(s->of);
        const int code = read_row(s, "in.0", width, s->in);
        if (code != FIG_EXIT_FINE || s->of->op != FIG_BENCH_RMS_NORM) return code;
        return read_from(s, "weight", 0, width, s->in + (size_t)width * fig_synthetic_bytes(DTYPE));
    }
    int code = read_row(s, "q.0", q, s->q);
    if (code == FIG_EXIT_FINE) code = read_row(s, "k.0", kv, s->k);
    if (code == FIG_EXIT_FINE && s->of->op != FIG_BENCH_ROPE) code = read_row(s, "v.0", kv, s->v);
    return code;
}

/* ---- After --------------------------------------------------------------------------------- */

static int check_row(const sample *s) {
    static const fig_activation activations[] = {FIG_SILU, FIG_GELU, FIG_GELU_TANH};
    const truth_rows in = {.base = s->in, .dtype = DTYPE};
    const int32_t width = s->of->width;
    const int code = read_row(s, "out.0", width, s->got);
    if (code != FIG_EXIT_FINE) return code;
    if (s->of->op == FIG_BENCH_RMS_NORM) {
        truth_rms_norm(
            &(truth_rms_norm_args){.x = in,
                                   .weight = s->in + (size_t)width * fig_synthetic_bytes(DTYPE),
                                   .epsilon = EPSILON,
                                   .width = width},
            s->due);
    } else {
        truth_gated(
            &(truth_gated_args){.in = in, .activation = activations[s->of->op], .width = width},
            s->due);
    }
    return compare(s, "out", s->got, s->due, width);
}

/* Checks that heads of a row were rotated by RoPE, or that they are unchanged. */
static int check_heads(const sample *s, const char *name, const uint8_t *before, int32_t heads) {
    for (int32_t head = 0; head < heads; head++) {
        double *due = s->due + (size_t)head * FIG_BENCH_HEAD_DIM;
        if (s->of->op == FIG_BENCH_APPEND) {
            for (int32_t i = 0; i < FIG_BENCH_HEAD_DIM; i++)
                due[i] = truth_load(before, DTYPE, (int64_t)head * FIG_BENCH_HEAD_DIM + i);
            continue;
        }
        truth_rope(
            &(truth_rope_args){
                .x = {.base = before, .dtype = DTYPE, .head_stride = FIG_BENCH_HEAD_DIM},
                .rope = {.rotary_dim = FIG_BENCH_HEAD_DIM, .theta = (float)THETA, .scale = 1},
                .position = s->position,
                .head = head,
                .head_dim = FIG_BENCH_HEAD_DIM},
            due);
    }
    return compare(s, name, s->got, s->due, heads * FIG_BENCH_HEAD_DIM);
}

/* Checks the token in the cache: k against its expected values, and v bit by bit. */
static int check_cached(const sample *s) {
    const int32_t kv = FIG_BENCH_KV_HEADS * FIG_BENCH_HEAD_DIM;
    const int64_t at = ((int64_t)s->sequence * FIG_BENCH_PAGE + s->position) * kv;
    int code = read_from(s, "k_cache.0", at, kv, s->got);
    if (code == FIG_EXIT_FINE) code = check_heads(s, "k_cache", s->k, FIG_BENCH_KV_HEADS);
    if (code == FIG_EXIT_FINE) code = read_from(s, "v_cache.0", at, kv, s->got);
    if (code != FIG_EXIT_FINE) return code;
    if (memcmp(s->got, s->v, (size_t)kv * fig_synthetic_bytes(DTYPE)) == 0) return FIG_EXIT_FINE;
    return fig_report_failure("bench ops: %s, %d rows: the cached token of row %d is not its v",
                              s->of->name, s->of->rows, s->row);
}

static int check_after(const sample *s) {
    int code = FIG_EXIT_FINE;
    if (!is_of_heads(s->of)) return check_row(s);
    if (s->of->op != FIG_BENCH_APPEND) {
        code = read_row(s, "q.0", FIG_BENCH_Q_HEADS * FIG_BENCH_HEAD_DIM, s->got);
        if (code == FIG_EXIT_FINE) code = check_heads(s, "q", s->q, FIG_BENCH_Q_HEADS);
        if (code == FIG_EXIT_FINE)
            code = read_row(s, "k.0", FIG_BENCH_KV_HEADS * FIG_BENCH_HEAD_DIM, s->got);
        if (code == FIG_EXIT_FINE) code = check_heads(s, "k", s->k, FIG_BENCH_KV_HEADS);
    }
    return code == FIG_EXIT_FINE && s->of->op != FIG_BENCH_ROPE ? check_cached(s) : code;
}

/* ---- Both ---------------------------------------------------------------------------------- */

static int run_step(fig_bench_rig *rig, const fig_spec *spec, int32_t *lengths) {
    for (int32_t row = 0; row < spec->batch_limit; row++)
        lengths[row] = spec->row_tokens + (row + 1) % LENGTHS;
    return fig_bench_rig_run(
        rig, FIG_OPTIONS(fig_step, .rows = spec->batch_limit, .kv_lengths = lengths));
}

static int check_samples(sample samples[2], const fig_spec *spec, int32_t *lengths) {
    int code = read_before(&samples[0]);
    if (code == FIG_EXIT_FINE) code = read_before(&samples[1]);
    if (code == FIG_EXIT_FINE) code = run_step(samples[0].rig, spec, lengths);
    for (int i = 0; code == FIG_EXIT_FINE && i < 2; i++) {
        samples[i].sequence = samples[i].row / spec->row_tokens;
        samples[i].position =
            lengths[samples[i].sequence] - spec->row_tokens + samples[i].row % spec->row_tokens;
        code = check_after(&samples[i]);
    }
    return code;
}

int fig_bench_ops_check(fig_bench_rig *rig, const fig_bench_size *of, const fig_spec *spec) {
    const size_t q = (size_t)FIG_BENCH_Q_HEADS * FIG_BENCH_HEAD_DIM;
    const size_t kv = (size_t)FIG_BENCH_KV_HEADS * FIG_BENCH_HEAD_DIM;
    const size_t width = q > (size_t)of->width ? q : (size_t)of->width;
    const size_t held = (2 * width + q + 2 * kv) * fig_synthetic_bytes(DTYPE);
    const size_t got = width * fig_synthetic_bytes(DTYPE);
    uint8_t *memory = calloc(1, 2 * held + got);
    double *due = calloc(width, sizeof *due);
    int32_t *lengths = calloc((size_t)spec->batch_limit, sizeof *lengths);
    sample samples[2];
    for (int i = 0; memory != NULL && i < 2; i++) {
        uint8_t *own = memory + (size_t)i * held;
        samples[i] = (sample){.rig = rig,
                              .of = of,
                              .row = i == 0 ? 0 : of->rows - 1,
                              .in = own,
                              .q = own + 2 * width * fig_synthetic_bytes(DTYPE),
                              .got = memory + 2 * held,
                              .due = due};
        samples[i].k = samples[i].q + q * fig_synthetic_bytes(DTYPE);
        samples[i].v = samples[i].k + kv * fig_synthetic_bytes(DTYPE);
    }
    const int code = memory != NULL && due != NULL && lengths != NULL
                         ? check_samples(samples, spec, lengths)
                         : fig_report_refuse("bench ops: no memory for a check");
    free(lengths);
    free(due);
    free(memory);
    return code;
}
