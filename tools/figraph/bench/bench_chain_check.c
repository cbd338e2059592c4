/* bench_chain_check.c: compares a chain's last layer with float64.
 *
 * Knows only the chain's tensors and the pages of the pool. Invariant: a chain that passed has no
 * compared number further from the truth than the tolerance of its dtype. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/bench/bench_chain.h"
#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/truth/truth_attention.h"
#include "tools/figraph/truth/truth_latent.h"

enum { SAMPLES_LIMIT = 64 /* the number of rows and heads that are compared */ };
static const double SAMPLED_ELEMENTS = 2e6;  /* the elements of K in all compared rows and heads */
static const double READ_ELEMENTS = 5e5;     /* the same, if vectors are read from the device */
static const double TOLERANCE_ULP = 2;       /* for 16-bit types */
static const double SINGLE_TOLERANCE = 2e-5; /* for f32, relative to the magnitude */
static const double SMALL = 1.0 / 1024;      /* below this, earlier rounding dominates the error */

/* Gathers the K or V of one row and kv head, [length][head_dim], from the row's pages. If layers
 * append to these pages, reads them from the device, else from the pool's copy on the host. */
static int gather(const fig_bench_chain *chain, int32_t row, int32_t head, size_t half,
                  uint8_t *to) {
    const fig_spec *spec = &chain->spec;
    const size_t item = fig_synthetic_bytes(spec->kv_dtype);
    const size_t bytes = (size_t)spec->head_dim * item;
    const int32_t *pages = chain->pages, page = spec->page_size;
    const int32_t copy = (chain->layers - 1) % chain->copies;
    for (int32_t before = 0; before < row; before++)
        pages += (chain->cell->lengths.values[before] + page - 1) / page;
    for (int32_t token = 0; token < chain->cell->lengths.values[row]; token++) {
        const int32_t inside = token % page;
        const int32_t vector =
            spec->kv_layout == FIG_HND ? head * page + inside : inside * spec->kv_heads + head;
        const size_t at =
            half + fig_bench_chain_place(chain, copy, pages[token / page]) + (size_t)vector * bytes;
        if (!fig_bench_chain_is_step(chain)) {
            fig_bench_pool_at(chain->pool, at, to + (size_t)token * bytes, bytes);
            continue;
        }
        const int code = fig_bench_pool_read(chain->pool, at, to + (size_t)token * bytes, bytes);
        if (code != FIG_EXIT_FINE) return code;
    }
    return FIG_EXIT_FINE;
}

typedef struct sample {
    int32_t row, head; /* the row of the step and the head of q */
    int32_t query;     /* the row of q and out */
    int32_t length;    /* the tokens that the query sees */
    const uint8_t *q, *out;
    uint8_t *k, *v; /* [longest][head_dim] */
} sample;

/* due, magnitude: [out's dims] */
static int compare(const fig_bench_chain *chain, const sample *s, const double *due,
                   const double *magnitude, double *worst_ulp) {
    const fig_spec *spec = &chain->spec;
    const int32_t dim = fig_bench_chain_out_dim(chain);
    const int64_t first = ((int64_t)s->query * spec->q_heads + s->head) * dim;
    for (int32_t i = 0; i < dim; i++) {
        const double got = truth_load(s->out, spec->dtype, first + i);
        const double ulp = truth_ulp(spec->dtype, magnitude[i]);
        const double tolerance = spec->dtype == FIG_F32 ? fmax(SINGLE_TOLERANCE * magnitude[i], ulp)
                                                        : TOLERANCE_ULP * ulp;
        const double error = fabs(got - due[i]);
        if (!(error <= tolerance))
            return fig_report_failure(
                "bench attention: %s: row %d of q, head %d, element %d of the "
                "last layer is %.9g and must be %.9g, tolerance %.3g",
                chain->cell->name, s->query, s->head, i, got, due[i], tolerance);
        if (error / ulp > *worst_ulp) *worst_ulp = error / ulp;
    }
    return FIG_EXIT_FINE;
}

/* Rotates a head as RoPE does. base: [head][head_dim] of a row of this length. */
static void turn(const fig_bench_chain *chain, const uint8_t *base, int32_t head, int32_t length,
                 double *turned) {
    const fig_spec *spec = &chain->spec;
    truth_rope(
        &(truth_rope_args){.x = {.base = base,
                                 .dtype = spec->dtype,
                                 .row_stride = 0,
                                 .head_stride = spec->head_dim},
                           .rope = {.rotary_dim = spec->head_dim, .theta = 10000, .scale = 1},
                           .position = length - 1,
                           .head = head,
                           .head_dim = spec->head_dim},
        turned);
}

static size_t row_bytes(const fig_bench_chain *chain, int32_t heads) {
    const size_t bytes = fig_synthetic_bytes(chain->spec.dtype);
    return (size_t)heads * (size_t)chain->spec.head_dim * bytes;
}

/* Checks the cache's last token, the row's k after RoPE, to one unit. cached: one head's tokens. */
static int check_turned(const fig_bench_chain *chain, const sample *s, int32_t kv_head,
                        const uint8_t *cached) {
    const fig_spec *spec = &chain->spec;
    const int32_t length = chain->cell->lengths.values[s->row];
    double due[TRUTH_HEAD_DIM_LIMIT];
    turn(chain, chain->k + (size_t)s->row * row_bytes(chain, spec->kv_heads), kv_head, length, due);
    for (int32_t i = 0; i < spec->head_dim; i++) {
        const double got =
            truth_load(cached, spec->kv_dtype, (int64_t)(length - 1) * spec->head_dim + i);
        const double tolerance = truth_ulp(spec->dtype, fmax(fabs(due[i]), SMALL));
        if (!(fabs(got - due[i]) <= tolerance))
            return fig_report_failure("bench step: %s: row %d, kv head %d, element %d of the last "
                                      "token in the cache is %.9g and must be %.9g, tolerance %.3g",
                                      chain->cell->name, s->row, kv_head, i, got, due[i],
                                      tolerance);
    }
    return FIG_EXIT_FINE;
}

/* Checks that the appended v is equal bit by bit. */
static int check_appended(const fig_bench_chain *chain, const sample *s, int32_t kv_head,
                          const uint8_t *cached) {
    const size_t bytes = row_bytes(chain, 1);
    const int32_t last = chain->cell->lengths.values[s->row] - 1;
    uint8_t due[TRUTH_HEAD_DIM_LIMIT * sizeof(float)];
    const fig_span span = {.size = sizeof span,
                           .name = FIG_BENCH_V,
                           .offset = (size_t)(s->row * chain->spec.kv_heads + kv_head) * bytes,
                           .bytes = bytes};
    if (fig_engine_read(chain->rig.engine, &span, due) != FIG_OK)
        return fig_report_status(chain->cell->name);
    if (memcmp(cached + (size_t)last * bytes, due, bytes) == 0) return FIG_EXIT_FINE;
    return fig_report_failure("bench step: %s: row %d, kv head %d: the last token in the cache is "
                              "not the row's v",
                              chain->cell->name, s->row, kv_head);
}

/* Computes the sample's head of q after RoPE, as attention reads it, rounded to the type. */
static void turn_q(const fig_bench_chain *chain, const sample *s, float *turned) {
    const fig_spec *spec = &chain->spec;
    double q[TRUTH_HEAD_DIM_LIMIT];
    turn(chain, s->q + (size_t)s->row * row_bytes(chain, spec->q_heads), s->head,
         chain->cell->lengths.values[s->row], q);
    for (int32_t i = 0; i < spec->head_dim; i++) {
        const double unit = truth_ulp(spec->dtype, fabs(q[i]));
        turned[i] = (float)(unit > 0 ? rint(q[i] / unit) * unit : q[i]);
    }
}

static int check_sample(const fig_bench_chain *chain, const sample *s, double *worst_ulp) {
    const fig_spec *spec = &chain->spec;
    const int32_t length = s->length;
    const int32_t kv_head = s->head / (spec->q_heads / spec->kv_heads);
    const double scale =
        fig_bench_chain_is_quarter(chain) ? (double)fig_bench_chain_scale(chain, kv_head) : 1;
    float turned[TRUTH_HEAD_DIM_LIMIT];
    truth_attention_result due;
    int code = gather(chain, s->row, kv_head, 0, s->k);
    if (code == FIG_EXIT_FINE) code = gather(chain, s->row, kv_head, chain->pool->half_bytes, s->v);
    if (code == FIG_EXIT_FINE && fig_bench_chain_is_step(chain) && length > 0) {
        code = check_turned(chain, s, kv_head, s->k);
        if (code == FIG_EXIT_FINE) code = check_appended(chain, s, kv_head, s->v);
    }
    if (code != FIG_EXIT_FINE) return code;
    truth_attention_args args = {.q = {.base = s->q,
                                       .dtype = spec->dtype,
                                       .row_stride = (int64_t)spec->q_heads * spec->head_dim,
                                       .head_stride = spec->head_dim},
                                 .k = {.base = s->k,
                                       .dtype = spec->kv_dtype,
                                       .token_stride = spec->head_dim,
                                       .pages = 1,
                                       .page_size = length > 0 ? length : 1},
                                 .row = s->query,
                                 .length = length,
                                 .q_head = s->head,
                                 .head_dim = spec->head_dim,
                                 .window = chain->cell->shape.window,
                                 .sm_scale = 1 / sqrt((double)spec->head_dim),
                                 .k_scale = scale,
                                 .v_scale = scale};
    args.v = args.k;
    args.v.base = s->v;
    if (chain->is_left && length > 0) {
        turn_q(chain, s, turned);
        args.q = (truth_rows){.base = turned, .dtype = FIG_F32, .row_stride = 0, .head_stride = 0};
    }
    truth_attention(&args, &due);
    return compare(chain, s, due.out, due.magnitude, worst_ulp);
}

static int check_latent_sample(const fig_bench_chain *chain, const sample *s, double *worst_ulp) {
    const fig_spec *spec = &chain->spec;
    truth_latent_result due;
    const int code = gather(chain, s->row, 0, 0, s->k);
    if (code != FIG_EXIT_FINE) return code;
    const truth_latent_args args = {.q = {.base = s->q,
                                          .dtype = spec->dtype,
                                          .row_stride = (int64_t)spec->q_heads * spec->head_dim,
                                          .head_stride = spec->head_dim},
                                    .cache = {.base = s->k,
                                              .dtype = spec->kv_dtype,
                                              .token_stride = spec->head_dim,
                                              .pages = 1,
                                              .page_size = s->length > 0 ? s->length : 1},
                                    .row = s->query,
                                    .length = s->length,
                                    .q_head = s->head,
                                    .window = chain->cell->shape.window,
                                    .sm_scale = (double)spec->sm_scale};
    truth_latent(&args, &due);
    return compare(chain, s, due.out, due.magnitude, worst_ulp);
}

/* Draws one of the row's query tokens. Returns 0 if the row has none. */
static int draw_query(const fig_bench_chain *chain, fig_synthetic *synthetic, sample *s) {
    const fig_lengths *lengths = &chain->cell->lengths;
    s->query = s->row;
    s->length = lengths->values[s->row];
    if (chain->cell->row_tokens == 0) return 1;
    const int32_t count = lengths->queries[s->row];
    if (count == 0) return 0;
    const int32_t number = fig_synthetic_below(synthetic, count);
    s->query = number;
    for (int32_t row = 0; row < s->row; row++)
        s->query += lengths->queries[row];
    s->length -= count - 1 - number;
    return 1;
}

/* Compares the longest row, the first and the last, then random rows. */
static int check_samples(const fig_bench_chain *chain, sample *s, double *worst_ulp) {
    const fig_lengths *lengths = &chain->cell->lengths;
    const int32_t longest = fig_bench_cell_longest(chain->cell);
    fig_synthetic synthetic;
    const double limit = fig_bench_chain_is_step(chain) ? READ_ELEMENTS : SAMPLED_ELEMENTS;
    double elements = 0;
    int32_t longest_row = 0;
    int code = FIG_EXIT_FINE;
    while (lengths->values[longest_row] < longest)
        longest_row++;
    fig_synthetic_seed(&synthetic, 9);
    for (int i = 0; code == FIG_EXIT_FINE && i < SAMPLES_LIMIT; i++) {
        s->row = i == 0   ? longest_row
                 : i == 1 ? 0
                 : i == 2 ? lengths->count - 1
                          : fig_synthetic_below(&synthetic, lengths->count);
        s->head = fig_synthetic_below(&synthetic, chain->spec.q_heads);
        elements += (double)lengths->values[s->row] * chain->spec.head_dim;
        if (i > 0 && elements > limit) break;
        if (!draw_query(chain, &synthetic, s)) continue;
        code = chain->spec.latent_dim > 0 ? check_latent_sample(chain, s, worst_ulp)
                                          : check_sample(chain, s, worst_ulp);
    }
    return code;
}

static int read_k(const fig_bench_chain *chain, uint8_t *to) {
    const size_t rows = (size_t)chain->cell->lengths.count;
    const fig_span span = {.size = sizeof span,
                           .name = FIG_BENCH_K_LAST,
                           .bytes = rows * row_bytes(chain, chain->spec.kv_heads)};
    return fig_engine_read(chain->rig.engine, &span, to) == FIG_OK
               ? FIG_EXIT_FINE
               : fig_report_status(chain->cell->name);
}

/* Runs the step and finds out whether it rotates q and k in place. */
static int run_step(fig_bench_chain *chain) {
    const size_t bytes =
        (size_t)chain->cell->lengths.count * row_bytes(chain, chain->spec.kv_heads);
    if (!fig_bench_chain_is_step(chain)) return fig_bench_rig_run(&chain->rig, &chain->step);
    uint8_t *after = calloc(1, bytes);
    free(chain->k);
    chain->k = calloc(1, bytes);
    int code = chain->k != NULL && after != NULL
                   ? read_k(chain, chain->k)
                   : fig_report_refuse("bench step: no memory for a check");
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_run(&chain->rig, &chain->step);
    if (code == FIG_EXIT_FINE) code = read_k(chain, after);
    chain->is_left = code == FIG_EXIT_FINE && chain->between == FIG_BENCH_STEP &&
                     memcmp(chain->k, after, bytes) == 0;
    free(after);
    return code;
}

int fig_bench_chain_check(fig_bench_chain *chain, double *worst_ulp) {
    const fig_spec *spec = &chain->spec;
    const size_t vectors = (size_t)fig_bench_cell_queries(chain->cell) * (size_t)spec->q_heads;
    const size_t item = fig_synthetic_bytes(spec->dtype);
    const size_t rows = vectors * (size_t)spec->head_dim * item;
    const size_t outs = vectors * (size_t)fig_bench_chain_out_dim(chain) * item;
    const size_t kv = (size_t)fig_bench_cell_longest(chain->cell) * (size_t)spec->head_dim *
                      fig_synthetic_bytes(spec->kv_dtype);
    const int last = spec->latent_dim > 0 ? 0 : (chain->layers - 1) % 2;
    uint8_t *memory = calloc(2, rows + kv);
    *worst_ulp = 0;
    if (memory == NULL) return fig_report_refuse("bench attention: no memory for a check");
    sample s = {.q = memory, .out = memory + rows};
    s.k = memory + 2 * rows;
    s.v = s.k + kv;
    int code = run_step(chain);
    for (int i = 0; code == FIG_EXIT_FINE && i < 2; i++) {
        const fig_span span = {.size = sizeof span,
                               .name = (i == 0) == (last == 0) ? FIG_BENCH_X0 : FIG_BENCH_X1,
                               .bytes = i == 0 ? rows : outs};
        if (fig_engine_read(chain->rig.engine, &span, memory + (size_t)i * rows) != FIG_OK)
            code = fig_report_status(chain->cell->name);
    }
    if (code == FIG_EXIT_FINE) code = check_samples(chain, &s, worst_ulp);
    free(memory);
    return code;
}
