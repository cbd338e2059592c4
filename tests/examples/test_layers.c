/* test_layers.c: compares the example's whole layers, on one rank of the host, with the same layers
 * computed in double.
 *
 * The reference is a decoder layer as papers describe it, over the example's own weights. It shares
 * no code with recording, binding or kernels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "examples/layers_trial.h"

enum {
    LAYERS = 3,
    ROWS = 2,
    KV = 21, /* tokens of a sequence, the step's own token last */
    PAGE = 16,
    ROW_TOKENS = 96, /* tokens of a row in the caches: room for 21 + 64 tokens in whole pages */
    HIDDEN = 96,
    Q_HEADS = 6,
    KV_HEADS = 2,
    DIM = 64,
    FFN = 160,
    Q = Q_HEADS * DIM,
    KV_WIDTH = KV_HEADS * DIM
};

static const fig_spec spec = {.size = sizeof spec,
                              .dtype = FIG_BF16,
                              .layers = LAYERS,
                              .q_heads = Q_HEADS,
                              .kv_heads = KV_HEADS,
                              .head_dim = DIM,
                              .ffn_width = FFN,
                              .page_size = PAGE,
                              .batch_limit = ROWS,
                              .sequence_limit = ROWS,
                              .kv_limit = 128};
static const layers_trial_options options = {
    .blas = &blas_host, .device = FIG_DEVICE_HOST, .rows = ROWS, .kv = KV, .steps = 2};

static layers_weights weights;
static uint16_t caches[2 * LAYERS][ROWS * ROW_TOKENS * KV_WIDTH];
static uint16_t state[ROWS * HIDDEN], result[ROWS * HIDDEN];

static double number_of(uint16_t bf16) {
    const uint32_t bits = (uint32_t)bf16 << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return (double)number;
}

/* ---- The truth ----------------------------------------------------------------------------- */

/* Computes y = scale * W x for a matrix of a layer. */
static void multiply(int layer, layers_matrix which, double scale, const double *x, int depth,
                     double *y, int width) {
    const uint16_t *w = weights.matrices[layer * LAYERS_MATRICES + (int)which];
    for (int i = 0; i < width; i++) {
        y[i] = 0;
        for (int k = 0; k < depth; k++)
            y[i] += scale * number_of(w[i * depth + k]) * x[k];
    }
}

static void norm(const double *x, double *out) {
    double squares = 0;
    for (int i = 0; i < HIDDEN; i++)
        squares += x[i] * x[i];
    for (int i = 0; i < HIDDEN; i++)
        out[i] = x[i] / sqrt(squares / HIDDEN + 1e-6);
}

/* Applies RoPE to pairs of elements i and i + DIM / 2. */
static void turn(double *head, int position) {
    for (int i = 0; i < DIM / 2; i++) {
        const double angle = position * pow(10000, -2.0 * i / DIM);
        const double a = head[i], b = head[i + DIM / 2];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + DIM / 2] = b * cos(angle) + a * sin(angle);
    }
}

/* Returns element i of a head's key or value. The step's own token is not in the cache yet, so it
 * comes from `own`. */
static double cached(int cache, int row, int token, const double *own, int at) {
    if (token == KV - 1) return own[at];
    return number_of(caches[cache][(row * ROW_TOKENS + token) * KV_WIDTH + at]);
}

static void attend(int layer, int row, const double *qkv, double *out) {
    for (int head = 0; head < Q_HEADS; head++) {
        const int from = head / (Q_HEADS / KV_HEADS) * DIM;
        double logits[KV], sum = 0;
        for (int t = 0; t < KV; t++) {
            logits[t] = 0;
            for (int i = 0; i < DIM; i++)
                logits[t] += qkv[head * DIM + i] * cached(2 * layer, row, t, qkv + Q, from + i);
            sum += exp(logits[t] / sqrt(DIM));
        }
        for (int i = 0; i < DIM; i++) {
            out[head * DIM + i] = 0;
            for (int t = 0; t < KV; t++)
                out[head * DIM + i] += exp(logits[t] / sqrt(DIM)) / sum *
                                       cached(2 * layer + 1, row, t, qkv + Q + KV_WIDTH, from + i);
        }
    }
}

static void run_layer(int layer, int row, double *residual) {
    const double added = 1 / sqrt(2 * LAYERS);
    double x[HIDDEN], qkv[Q + 2 * KV_WIDTH], attended[Q], gate_up[2 * FFN], act[FFN], part[HIDDEN];
    norm(residual, x);
    multiply(layer, LAYERS_QKV, 2 / sqrt(HIDDEN), x, HIDDEN, qkv, Q + 2 * KV_WIDTH);
    for (int head = 0; head < Q_HEADS + KV_HEADS; head++)
        turn(qkv + head * DIM, KV - 1);
    attend(layer, row, qkv, attended);
    multiply(layer, LAYERS_OUTPUT, added / sqrt(Q), attended, Q, part, HIDDEN);
    for (int i = 0; i < HIDDEN; i++)
        residual[i] += part[i];
    norm(residual, x);
    multiply(layer, LAYERS_GATE_UP, 1 / sqrt(HIDDEN), x, HIDDEN, gate_up, 2 * FFN);
    for (int i = 0; i < FFN; i++)
        act[i] = gate_up[i] / (1 + exp(-gate_up[i])) * gate_up[FFN + i];
    multiply(layer, LAYERS_DOWN, added / sqrt(FFN), act, FFN, part, HIDDEN);
    for (int i = 0; i < HIDDEN; i++)
        residual[i] += part[i];
}

/* ---- Tests --------------------------------------------------------------------------------- */

static void a_step_of_whole_layers_equals_the_step_in_double(void **unused) {
    (void)unused;
    fig_program *program;
    fig_graphs *graphs;
    layers_part part = {.model = spec, .share = spec, .hidden = HIDDEN, .ranks = 1};
    assert_int_equal(layers_record(&program, &spec, HIDDEN), FIG_OK);
    assert_int_equal(fig_graphs_lower(&graphs, program, NULL), FIG_OK);
    fig_program_destroy(program);
    layers_trial trial = {.options = &options, .graphs = graphs, .part = part, .result = result};
    assert_int_equal(layers_trial_run(&trial), 0);
    fig_graphs_destroy(graphs);

    assert_int_equal(layers_weights_open(&weights, &blas_host, &part), 0);
    assert_int_equal(layers_weights_fill_state(&weights, ROWS, state), 0);
    for (int i = 0; i < 2 * LAYERS; i++)
        assert_int_equal(layers_weights_fill_cache(&weights, i, ROWS * ROW_TOKENS, caches[i]), 0);
    double worst = 0, error = 0;
    for (int row = 0; row < ROWS; row++) {
        double residual[HIDDEN], due[HIDDEN];
        for (int i = 0; i < HIDDEN; i++)
            residual[i] = number_of(state[row * HIDDEN + i]);
        for (int layer = 0; layer < LAYERS; layer++)
            run_layer(layer, row, residual);
        norm(residual, due);
        for (int i = 0; i < HIDDEN; i++) {
            const double off = fabs(number_of(result[row * HIDDEN + i]) - due[i]);
            if (!(off <= worst)) worst = off;
            error += off * off / (ROWS * HIDDEN);
        }
    }
    layers_weights_close(&weights);
    print_message("%.2e off in the mean, %.2e at most\n", sqrt(error), worst);
    /* the numbers are near 1, and each was rounded a few times by up to 2^-9 */
    assert_true(sqrt(error) < 0.01);
    assert_true(worst < 0.05);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_whole_layers_equals_the_step_in_double)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
