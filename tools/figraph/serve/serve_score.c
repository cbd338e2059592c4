/* serve_score.c: fills the arrays of a score, and computes attention with it where q is 0. */
#include "tools/figraph/serve/serve_score.h"

#include <math.h>
#include <stdlib.h>

#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/report.h"

enum { SEED = 1 };
static const double score_error = 0x1p-21; /* relative, of a score and of 2 to its power */

static int fill_array(fig_serve_score *of, int32_t number, fig_synthetic *synthetic,
                      fig_engine *engine) {
    const fig_score_array *array = &of->truth.parts.arrays[number];
    const size_t count = (size_t)array->count, bytes = count * fig_synthetic_bytes(array->dtype);
    const fig_span span = {.size = sizeof span, .name = array->name, .bytes = bytes};
    of->arrays[number] = malloc(bytes);
    if (of->arrays[number] == NULL)
        return fig_report_refuse("serve: no memory for %s, %zu bytes", array->name, bytes);
    fig_synthetic_array(synthetic, array->dtype, of->arrays[number], count);
    of->truth.arrays[number] = of->arrays[number];
    of->truth.counts[number] = array->count;
    if (fig_engine_write(engine, &span, of->arrays[number]) == FIG_OK) return FIG_EXIT_FINE;
    return fig_report_status("serve");
}

int fig_serve_score_open(fig_serve_score *of, fig_engine *engine) {
    fig_synthetic synthetic;
    int code = FIG_EXIT_FINE;
    of->truth = (truth_score){.parts = {.size = sizeof of->truth.parts}};
    if (of->score == NULL) return FIG_EXIT_FINE;
    if (fig_score_read(of->score, &of->truth.parts) != FIG_OK) return fig_report_status("serve");
    fig_synthetic_seed(&synthetic, SEED);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < of->truth.parts.array_count; i++)
        code = fill_array(of, i, &synthetic, engine);
    return code;
}

void fig_serve_score_close(fig_serve_score *of) {
    for (int32_t i = 0; i < FIG_SCORE_ARRAY_LIMIT; i++)
        free(of->arrays[i]);
    fig_score_destroy(of->score);
    *of = (fig_serve_score){0};
}

/* Returns the end of the tokens that the query may see. */
static int32_t end_of(const fig_serve_score *of, const fig_serve_seen *seen) {
    return of->truth.parts.mask_node_count > 0 ? seen->place.kv_length : seen->place.q_pos + 1;
}

/* Returns the score of a token, or -inf if the mask hides the token. */
static double score_of(const fig_serve_score *of, const fig_serve_seen *seen, int32_t token) {
    truth_score_place place = seen->place;
    place.kv_pos = token;
    place.context = &of->truth;
    if (of->truth.parts.mask_node_count > 0 && !truth_score_sees(&place)) return -INFINITY;
    return truth_score_of(&place, 0);
}

static double greatest_of(const fig_serve_score *of, const fig_serve_seen *seen) {
    double greatest = seen->sinks ? 0 : -INFINITY;
    for (int32_t token = seen->first; token < end_of(of, seen); token++)
        greatest = fmax(greatest, score_of(of, seen, token));
    return greatest;
}

void fig_serve_score_attend(const fig_serve_score *of, const fig_serve_seen *seen, double *out,
                            double *slack) {
    const int is_sigmoid = of->truth.parts.weights == FIG_SCORE_SIGMOID_WEIGHTS;
    const double greatest = is_sigmoid ? 0 : greatest_of(of, seen);
    double sum = seen->sinks ? exp(-greatest) : 0, sum_slack = 0;
    for (int32_t i = 0; i < seen->head_dim; i++)
        out[i] = slack[i] = 0;
    for (int32_t token = seen->first; token < end_of(of, seen); token++) {
        const double score = score_of(of, seen, token);
        if (score == -INFINITY) continue; /* it is not seen */
        const double weight = is_sigmoid ? 1 / (1 + exp(-score)) : exp(score - greatest);
        const double error = weight * fabs(score) * score_error;
        const double *v = seen->values + (size_t)seen->tokens[token] * (size_t)seen->width;
        sum += weight;
        sum_slack += error;
        for (int32_t i = 0; i < seen->head_dim; i++) {
            out[i] += weight * v[i];
            slack[i] += (error + weight * score_error) * fabs(v[i]);
        }
    }
    if (is_sigmoid || sum == 0) return;
    for (int32_t i = 0; i < seen->head_dim; i++) {
        out[i] /= sum;
        slack[i] = (slack[i] + fabs(out[i]) * sum_slack) / sum;
    }
}
