/* serve_outs.c: compares every element of every output of the steps that figraph serve runs. */
#include "tools/figraph/serve/serve_outs.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/truth/truth.h"

/* The types of a cache hold multiples of a quarter up to 2 exactly. */
enum { VALUES = 17, QUARTERS = 4 };
static const double single_tolerance = 2e-6; /* for sums and divisions in f32 */
/* A cache of codes has a scale for each of these parts of a latent. */
enum { CODE_COLUMNS = 128 };

static uint64_t mix(int64_t token, int32_t column) {
    return (((uint64_t)token * 1000003 + (uint64_t)column) * 0x9e3779b97f4a7c15u) >> 40;
}

static double value_of(int64_t token, int32_t column) {
    return (double)((int64_t)(mix(token, column) % VALUES) - VALUES / 2) / QUARTERS;
}

static double sign_of(int64_t token, int32_t column) {
    return mix(token, column) & 1 ? 1 : -1;
}

/* The norm's weight of a column of a latent. */
static double weight_of(int32_t column) {
    return (double)(column / CODE_COLUMNS + 1) / QUARTERS;
}

/* Returns the elements of V, and of an output's head. */
static int32_t dim_of(const fig_spec *spec) {
    return spec->latent_dim > 0 ? spec->latent_dim : spec->head_dim;
}

/* The numbers of a latent differ only in their signs, so the norm divides all of them by the same
 * number, and codes hold a part of the latent exactly: each is the largest of its part. */
static double latent_of(const fig_spec *spec, int64_t token, int32_t column) {
    double value = sign_of(token, column) * weight_of(column);
    if (spec->latent_norm_epsilon > 0) value /= sqrt(1 + (double)spec->latent_norm_epsilon);
    uint8_t stored[8];
    truth_store(stored, spec->dtype, 0, value);
    return truth_load(stored, spec->dtype, 0);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int allocate(fig_serve_outs *outs) {
    const fig_spec *spec = outs->spec;
    const size_t queries = (size_t)spec->query_limit, width = (size_t)outs->width;
    const size_t sequences = (size_t)spec->sequence_limit;
    outs->row_bytes = (int64_t)spec->q_heads * dim_of(spec) * 4;
    outs->values = calloc(queries * width, sizeof(double));
    outs->tokens = calloc(sequences * (size_t)spec->kv_limit, sizeof(int32_t));
    outs->got = malloc(queries * (size_t)outs->row_bytes);
    int held = outs->values != NULL && outs->tokens != NULL && outs->got != NULL;
    for (int i = 0; i < 2; i++) {
        outs->sums[i] = calloc(sequences * width, sizeof(double));
        outs->due[i] = calloc(queries * width, sizeof(double));
        held &= outs->sums[i] != NULL && outs->due[i] != NULL;
    }
    if (held) return FIG_EXIT_FINE;
    return fig_report_refuse("serve: no memory to check %zu query tokens of a step", queries);
}

static int write_tensor(fig_serve_outs *outs, const fig_tensor_info *tensor, const void *from,
                        size_t bytes) {
    const fig_span span = {.size = sizeof span, .name = tensor->name, .bytes = bytes};
    if (fig_engine_write(outs->engine, &span, from) == FIG_OK) return FIG_EXIT_FINE;
    return fig_report_status("serve");
}

static int write_values(fig_serve_outs *outs, const fig_tensor_info *tensor) {
    const int64_t count = outs->spec->query_limit * outs->width;
    const size_t bytes = (size_t)count * fig_synthetic_bytes(tensor->dtype);
    void *stored = calloc(1, bytes);
    if (stored == NULL) return fig_report_refuse("serve: no memory for %s", tensor->name);
    for (int64_t i = 0; i < count; i++)
        truth_store(stored, tensor->dtype, i, outs->values[i]);
    const int code = write_tensor(outs, tensor, stored, bytes);
    free(stored);
    return code;
}

/* Writes latents that the norm, if there is one, multiplies by its weights. The part under RoPE
 * stays zero. */
static int write_latents(fig_serve_outs *outs, const fig_tensor_info *tensor) {
    const fig_spec *spec = outs->spec;
    const int is_normed = spec->latent_norm_epsilon > 0;
    void *stored = calloc((size_t)spec->query_limit * (size_t)spec->head_dim,
                          fig_synthetic_bytes(tensor->dtype));
    if (stored == NULL) return fig_report_refuse("serve: no memory for %s", tensor->name);
    for (int64_t token = 0; token < spec->query_limit; token++)
        for (int32_t i = 0; i < spec->latent_dim; i++)
            truth_store(stored, tensor->dtype, token * spec->head_dim + i,
                        sign_of(token, i) * (is_normed ? 1 : weight_of(i)));
    const int code = write_tensor(outs, tensor, stored,
                                  (size_t)spec->query_limit * (size_t)spec->head_dim *
                                      fig_synthetic_bytes(tensor->dtype));
    free(stored);
    return code;
}

static int write_norm(fig_serve_outs *outs, const fig_tensor_info *tensor) {
    const int32_t count = outs->spec->latent_dim;
    void *stored = calloc((size_t)count, fig_synthetic_bytes(tensor->dtype));
    if (stored == NULL) return fig_report_refuse("serve: no memory for %s", tensor->name);
    for (int32_t i = 0; i < count; i++)
        truth_store(stored, tensor->dtype, i, weight_of(i));
    const int code =
        write_tensor(outs, tensor, stored, (size_t)count * fig_synthetic_bytes(tensor->dtype));
    free(stored);
    return code;
}

static int write_scales(fig_serve_outs *outs, const fig_tensor_info *tensor) {
    float ones[256];
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        ones[i] = 1;
    return write_tensor(outs, tensor, ones, (size_t)tensor->dims[0] * sizeof *ones);
}

static int begins(const fig_tensor_info *tensor, const char *stem) {
    return strncmp(tensor->name, stem, strlen(stem)) == 0;
}

static int write_input(fig_serve_outs *outs, const fig_tensor_info *tensor) {
    if (begins(tensor, "v.")) return write_values(outs, tensor);
    if (begins(tensor, "latent.")) return write_latents(outs, tensor);
    if (begins(tensor, "latent_norm.")) return write_norm(outs, tensor);
    if (begins(tensor, "k_scale.") || begins(tensor, "v_scale.")) return write_scales(outs, tensor);
    return FIG_EXIT_FINE;
}

int fig_serve_outs_open(fig_serve_outs *outs, fig_engine *engine, const fig_graphs *graphs,
                        const fig_serve_score *score) {
    fig_graphs_info info = {.size = sizeof info};
    fig_tensor_info tensor = {.size = sizeof tensor};
    fig_graphs_read_info(graphs, &info);
    *outs = (fig_serve_outs){.engine = engine,
                             .graphs = graphs,
                             .spec = info.spec,
                             .score = score,
                             .width = info.spec->kv_heads * dim_of(info.spec)};
    int code = allocate(outs);
    for (int64_t i = 0; code == FIG_EXIT_FINE && i < info.spec->query_limit * outs->width; i++) {
        const int64_t token = i / outs->width;
        const int32_t column = (int32_t)(i % outs->width);
        outs->values[i] = info.spec->latent_dim > 0 ? latent_of(info.spec, token, column)
                                                    : value_of(token, column);
    }
    for (int32_t i = 0; code == FIG_EXIT_FINE && fig_graphs_tensor(graphs, i, &tensor) == FIG_OK;
         i++)
        code = write_input(outs, &tensor);
    return code;
}

void fig_serve_outs_close(fig_serve_outs *outs) {
    free(outs->values);
    free(outs->tokens);
    free(outs->got);
    for (int i = 0; i < 2; i++) {
        free(outs->sums[i]);
        free(outs->due[i]);
    }
    *outs = (fig_serve_outs){0};
}

/* ---- The model ------------------------------------------------------------------------------- */

/* Adds token `token` of a sequence, written by query token `query` of the step, to the model, and
 * computes the output that this query token should get. */
static void see(fig_serve_outs *outs, int32_t sequence, int32_t token, int32_t query) {
    const fig_spec *spec = outs->spec;
    const size_t width = (size_t)outs->width;
    const int32_t window = spec->window > 0 ? spec->window : INT32_MAX;
    int32_t *tokens = outs->tokens + (size_t)sequence * (size_t)spec->kv_limit;
    double *all = outs->sums[0] + (size_t)sequence * width;
    double *near = outs->sums[1] + (size_t)sequence * width;
    const double *own = outs->values + (size_t)query * width;
    const double seen = token + 1 + spec->sinks,
                 in_window = (double)(token < window ? token + 1 : window) + spec->sinks;
    tokens[token] = query;
    for (size_t i = 0; i < width; i++) {
        all[i] += own[i];
        near[i] += own[i];
        if (token >= window) near[i] -= outs->values[(size_t)tokens[token - window] * width + i];
        outs->due[0][(size_t)query * width + i] = all[i] / seen;
        outs->due[1][(size_t)query * width + i] = near[i] / in_window;
    }
}

/* Returns the step's query tokens. */
static int32_t see_all(fig_serve_outs *outs, const fig_serve_batch *batch) {
    const size_t width = (size_t)outs->width;
    int32_t query = 0;
    for (int32_t row = 0; row < batch->rows; row++) {
        const int32_t sequence = batch->sequences[row], cached = batch->cached[row];
        for (int i = 0; i < 2 && cached == 0; i++)
            memset(outs->sums[i] + (size_t)sequence * width, 0, width * sizeof(double));
        for (int32_t n = 0; n < batch->queries[row]; n++)
            see(outs, sequence, cached + n, query++);
    }
    return query;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static int report(const fig_tensor_info *tensor, int32_t query, int32_t head, int32_t element,
                  double seen, double want, double tolerance) {
    return fig_report_failure("serve: %s: query token %d, head %d, element %d is %.9g and "
                              "must be %.9g, tolerance %.3g",
                              tensor->name, query, head, element, seen, want, tolerance);
}

static int compare(const fig_serve_outs *outs, const fig_tensor_info *tensor, const double *due,
                   int32_t queries) {
    const fig_spec *spec = outs->spec;
    const int32_t ratio = spec->q_heads / spec->kv_heads, dim = dim_of(spec);
    for (int32_t query = 0; query < queries; query++) {
        for (int32_t i = 0; i < spec->q_heads * dim; i++) {
            const int32_t column = i / dim / ratio * dim + i % dim;
            const double want = due[(size_t)query * (size_t)outs->width + (size_t)column];
            const double seen =
                truth_load(outs->got, tensor->dtype, (int64_t)query * spec->q_heads * dim + i);
            const double tolerance = truth_ulp(tensor->dtype, want) + single_tolerance;
            if (fabs(seen - want) <= tolerance) continue;
            return report(tensor, query, i / dim, i % dim, seen, want, tolerance);
        }
    }
    return FIG_EXIT_FINE;
}

static int has_window(const fig_spec *spec, int32_t layer) {
    return spec->window > 0 && (int)(spec->window_layers[layer / 64] >> (layer % 64) & 1);
}

/* Compares a query head with attention under the score. */
static int compare_head(const fig_serve_outs *outs, const fig_tensor_info *tensor,
                        const fig_serve_seen *seen, int32_t query) {
    const int32_t head = seen->place.head, dim = seen->head_dim;
    double due[TRUTH_HEAD_DIM_LIMIT], slack[TRUTH_HEAD_DIM_LIMIT];
    fig_serve_score_attend(outs->score, seen, due, slack);
    for (int32_t i = 0; i < dim; i++) {
        const int64_t at = ((int64_t)query * outs->spec->q_heads + head) * dim + i;
        const double got = truth_load(outs->got, tensor->dtype, at);
        const double tolerance = truth_ulp(tensor->dtype, due[i]) + single_tolerance + slack[i];
        if (fabs(got - due[i]) <= tolerance || (isnan(got) && isnan(due[i]))) continue;
        return report(tensor, query, head, i, got, due[i], tolerance);
    }
    return FIG_EXIT_FINE;
}

static int compare_row(const fig_serve_outs *outs, const fig_tensor_info *tensor,
                       const fig_serve_batch *batch, int32_t row, int32_t query, int32_t window) {
    const fig_spec *spec = outs->spec;
    fig_serve_seen seen = {.place = {.kv_length = batch->lengths[row], .row = row},
                           .sinks = spec->sinks,
                           .width = outs->width,
                           .head_dim = spec->head_dim};
    int code = FIG_EXIT_FINE;
    seen.tokens = outs->tokens + (size_t)batch->sequences[row] * (size_t)spec->kv_limit;
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < batch->queries[row] * spec->q_heads; i++) {
        seen.place.q_pos = batch->cached[row] + i / spec->q_heads;
        seen.place.head = i % spec->q_heads;
        seen.place.kv_head = seen.place.head / (spec->q_heads / spec->kv_heads);
        seen.values = outs->values + seen.place.kv_head * spec->head_dim;
        seen.first = window > 0 && seen.place.q_pos >= window ? seen.place.q_pos - window + 1 : 0;
        code = compare_head(outs, tensor, &seen, query + i / spec->q_heads);
    }
    return code;
}

static int compare_scored(const fig_serve_outs *outs, const fig_tensor_info *tensor,
                          const fig_serve_batch *batch, int32_t window) {
    int32_t query = 0, code = FIG_EXIT_FINE;
    for (int32_t row = 0; code == FIG_EXIT_FINE && row < batch->rows; row++) {
        code = compare_row(outs, tensor, batch, row, query, window);
        query += batch->queries[row];
    }
    return code;
}

int fig_serve_outs_check(fig_serve_outs *outs, const fig_serve_batch *batch) {
    const int32_t queries = see_all(outs, batch);
    const int64_t row = (int64_t)outs->spec->q_heads * dim_of(outs->spec);
    fig_tensor_info tensor = {.size = sizeof tensor};
    for (int32_t i = 0; fig_graphs_tensor(outs->graphs, i, &tensor) == FIG_OK; i++) {
        if (!begins(&tensor, "out.") || queries == 0) continue;
        const int windowed = has_window(outs->spec, atoi(tensor.name + strlen("out.")));
        const fig_span span = {.size = sizeof span,
                               .name = tensor.name,
                               .bytes =
                                   (uint64_t)(queries * row) * fig_synthetic_bytes(tensor.dtype)};
        if (fig_engine_read(outs->engine, &span, outs->got) != FIG_OK)
            return fig_report_status("serve");
        const int code =
            outs->score->score != NULL
                ? compare_scored(outs, &tensor, batch, windowed ? outs->spec->window : 0)
                : compare(outs, &tensor, outs->due[windowed], queries);
        if (code != FIG_EXIT_FINE) return code;
        outs->compared += queries * row;
    }
    return FIG_EXIT_FINE;
}
