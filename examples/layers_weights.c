/* layers_weights.c: makes a rank's rows and columns of every matrix, and multiplies by them.
 *
 * A program that loads a checkpoint reads the same blocks from it: of qkv and gate_up, a rank has
 * the rows of its heads and of its ffn columns; of output and down, it has the matching columns.
 * Here every matrix is a window of one array of random numbers on the device, so that a hundred
 * gigabytes are filled quickly. Invariant: the position in the model's matrix alone decides a
 * number. */
#include "examples/layers_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PERIOD_ROWS = 1024, /* rows of the widest matrix before its rows repeat */
    TUNED_LAYERS = 8,   /* layers to tune with; their weights exceed every cache */
    STEP_ROWS = 7919,   /* rows from the start of one matrix to the start of the next */
    STATE = -1          /* the window number of the first step's input */
};

/* Rows and columns [first, first + count) of a matrix of the model. */
typedef struct window {
    int32_t number; /* the number of the matrix */
    int64_t first_row, rows, first_column, columns;
    int64_t depth; /* columns of the model's matrix */
} window;

/* ---- Numbers ------------------------------------------------------------------------------- */

/* Draws uniform numbers of variance one, in bf16. */
static uint16_t *draw(size_t count) {
    const float most = sqrtf(3);
    uint64_t state = 1;
    uint16_t *numbers = malloc(count * sizeof *numbers);
    for (size_t i = 0; numbers != NULL && i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const float number = most * ((float)(state >> 40) / (float)(1 << 23) - 1);
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        numbers[i] = (uint16_t)(bits >> 16);
    }
    return numbers;
}

static size_t count_numbers(const layers_part *part) {
    size_t widest = (size_t)part->model.ffn_width;
    const size_t heads = (size_t)part->model.q_heads * (size_t)part->model.head_dim;
    if (widest < heads) widest = heads;
    if (widest < (size_t)part->hidden) widest = (size_t)part->hidden;
    return PERIOD_ROWS * widest;
}

static int open_numbers(layers_weights *weights) {
    weights->number_count = count_numbers(&weights->part);
    const size_t bytes = weights->number_count * sizeof *weights->numbers;
    uint16_t *drawn = draw(weights->number_count);
    weights->numbers = weights->blas->allocate(bytes);
    int bad = drawn == NULL || weights->numbers == NULL;
    if (bad) fprintf(stderr, "layers: no memory for %zu bytes of numbers\n", bytes);
    bad = bad || weights->blas->move(weights->numbers, drawn, bytes) != 0;
    free(drawn);
    return bad;
}

static int copy_window(const layers_weights *weights, const window *of, uint16_t *to) {
    const int64_t period = (int64_t)weights->number_count / of->depth - 1;
    const int64_t shift = (int64_t)(of->number + 1) * STEP_ROWS % of->depth;
    for (int64_t done = 0, rows; done < of->rows; done += rows) {
        const int64_t row = (of->first_row + done) % period;
        rows = of->rows - done < period - row ? of->rows - done : period - row;
        const blas_block block = {.to = to + done * of->columns,
                                  .from =
                                      weights->numbers + shift + row * of->depth + of->first_column,
                                  .to_stride = (size_t)of->columns * sizeof *to,
                                  .from_stride = (size_t)of->depth * sizeof *to,
                                  .row_bytes = (size_t)of->columns * sizeof *to,
                                  .rows = (size_t)rows};
        if (weights->blas->copy_block(&block) != 0) return 1;
    }
    return 0;
}

/* ---- A rank's part of each matrix ---------------------------------------------------------- */

/* Computes the rows and columns of a matrix of the rank's share. */
static void read_extents(const layers_part *part, int32_t which, int64_t *rows, int64_t *columns) {
    const fig_spec *share = &part->share;
    const int64_t q = (int64_t)share->q_heads * share->head_dim;
    const int64_t kv = (int64_t)share->kv_heads * share->head_dim;
    const int64_t rows_of[] = {q + 2 * kv, part->hidden, 2 * (int64_t)share->ffn_width,
                               part->hidden};
    const int64_t columns_of[] = {part->hidden, q, part->hidden, share->ffn_width};
    *rows = rows_of[which];
    *columns = columns_of[which];
}

/* Returns the first kv column of this rank. If there are fewer kv heads than ranks, several ranks
 * have the same kv head. */
static int64_t first_kv(const layers_part *part) {
    return (int64_t)part->rank * part->model.kv_heads / part->ranks * part->model.head_dim;
}

static int fill_qkv(const layers_weights *weights, int32_t number, uint16_t *to) {
    const layers_part *part = &weights->part;
    const int64_t dim = part->model.head_dim, hidden = part->hidden;
    const int64_t q = part->share.q_heads * dim, kv = part->share.kv_heads * dim;
    const int64_t all_q = part->model.q_heads * dim, all_kv = part->model.kv_heads * dim;
    const window of[] = {{number, part->rank * q, q, 0, hidden, hidden},
                         {number, all_q + first_kv(part), kv, 0, hidden, hidden},
                         {number, all_q + all_kv + first_kv(part), kv, 0, hidden, hidden}};
    return copy_window(weights, &of[0], to) || copy_window(weights, &of[1], to + q * hidden) ||
           copy_window(weights, &of[2], to + (q + kv) * hidden);
}

static int fill_gate_up(const layers_weights *weights, int32_t number, uint16_t *to) {
    const layers_part *part = &weights->part;
    const int64_t own = part->share.ffn_width, hidden = part->hidden;
    const window gate = {number, part->rank * own, own, 0, hidden, hidden};
    const window up = {number, part->model.ffn_width + part->rank * own, own, 0, hidden, hidden};
    return copy_window(weights, &gate, to) || copy_window(weights, &up, to + own * hidden);
}

/* Fills the rank's `own` columns of output or down, which have `all` columns in the model. */
static int fill_columns(const layers_weights *weights, int32_t number, int64_t own, int64_t all,
                        uint16_t *to) {
    const window of = {number, 0, weights->part.hidden, weights->part.rank * own, own, all};
    return copy_window(weights, &of, to);
}

static int fill_matrix(const layers_weights *weights, int32_t number, uint16_t *to) {
    const fig_spec *share = &weights->part.share, *model = &weights->part.model;
    const int64_t dim = share->head_dim;
    switch (number % LAYERS_MATRICES) {
    case LAYERS_QKV: return fill_qkv(weights, number, to);
    case LAYERS_OUTPUT:
        return fill_columns(weights, number, share->q_heads * dim, model->q_heads * dim, to);
    case LAYERS_GATE_UP: return fill_gate_up(weights, number, to);
    default: return fill_columns(weights, number, share->ffn_width, model->ffn_width, to);
    }
}

int64_t layers_weights_bytes(const layers_part *part) {
    int64_t numbers = (int64_t)count_numbers(part);
    for (int32_t which = 0; which < LAYERS_MATRICES; which++) {
        int64_t rows, columns;
        read_extents(part, which, &rows, &columns);
        numbers += part->model.layers * rows * columns;
    }
    return numbers * (int64_t)sizeof(uint16_t);
}

int layers_weights_open(layers_weights *weights, const blas *of, const layers_part *part) {
    *weights = (layers_weights){
        .blas = of, .part = *part, .matrix_count = part->model.layers * LAYERS_MATRICES};
    weights->matrices = calloc((size_t)weights->matrix_count, sizeof *weights->matrices);
    if (weights->matrices == NULL || open_numbers(weights) != 0) return 1;
    for (int32_t i = 0; i < weights->matrix_count; i++) {
        int64_t rows, columns;
        read_extents(part, i % LAYERS_MATRICES, &rows, &columns);
        const size_t bytes = (size_t)(rows * columns) * sizeof(uint16_t);
        if ((weights->matrices[i] = of->allocate(bytes)) == NULL)
            return fprintf(stderr, "layers: no memory for layer %d\n", i / LAYERS_MATRICES), 1;
        if (fill_matrix(weights, i, weights->matrices[i]) != 0) return 1;
    }
    return of->wait();
}

void layers_weights_close(layers_weights *weights) {
    for (int32_t i = 0; weights->matrices != NULL && i < weights->matrix_count; i++)
        if (weights->matrices[i] != NULL) weights->blas->release(weights->matrices[i]);
    if (weights->numbers != NULL) weights->blas->release(weights->numbers);
    free(weights->matrices);
    *weights = (layers_weights){0};
}

int layers_weights_fill_cache(const layers_weights *weights, int32_t number, int64_t tokens,
                              uint16_t *to) {
    const layers_part *part = &weights->part;
    const int64_t dim = part->model.head_dim;
    const window of = {
        weights->matrix_count + number, 0, tokens, first_kv(part), part->share.kv_heads * dim,
        part->model.kv_heads * dim};
    return copy_window(weights, &of, to);
}

int layers_weights_fill_state(const layers_weights *weights, int32_t rows, uint16_t *to) {
    const int64_t hidden = weights->part.hidden;
    const window of = {STATE, 0, rows, 0, hidden, hidden};
    return copy_window(weights, &of, to);
}

/* ---- Products ------------------------------------------------------------------------------ */

/* The scales keep numbers near one. Queries and keys are larger, so that only a few of many tokens
 * count. The sum of everything that the layers add to the residual is as large as the initial
 * residual. */
static blas_product product_of(const layers_weights *weights, int32_t number, int32_t rows) {
    const fig_spec *model = &weights->part.model;
    const int32_t which = number % LAYERS_MATRICES, hidden = weights->part.hidden;
    const int32_t heads = model->q_heads * model->head_dim;
    const float added = 1 / sqrtf(2 * (float)model->layers);
    const float scales[] = {2 / sqrtf((float)hidden), added / sqrtf((float)heads),
                            1 / sqrtf((float)hidden), added / sqrtf((float)model->ffn_width)};
    int64_t width, depth;
    read_extents(&weights->part, which, &width, &depth);
    return (blas_product){.w = weights->matrices[number],
                          .rows = rows,
                          .depth = (int32_t)depth,
                          .width = (int32_t)width,
                          .y_stride = (int32_t)width,
                          .scale = scales[which]};
}

/* q, k and v are bound side by side in one array of rows, so that one product writes all three. */
int32_t layers_weights_project(void *user, const fig_call_args *args) {
    const layers_weights *weights = user;
    blas_product product = product_of(weights, (int32_t)args->tag, args->rows);
    product.x = args->reads[0];
    product.y = args->writes[0];
    return weights->blas->multiply(&product, args->stream);
}

int32_t layers_weights_embed(void *user, const fig_call_args *args) {
    const layers_weights *weights = user;
    const size_t bytes = (size_t)args->rows * (size_t)weights->part.hidden * sizeof(uint16_t);
    return weights->blas->copy(args->writes[0], args->reads[0], bytes, args->stream);
}

int layers_weights_tune(const layers_weights *weights, int32_t rows, const uint16_t *x,
                        uint16_t *y) {
    const int32_t layers = weights->part.model.layers;
    const int32_t count = layers < TUNED_LAYERS ? layers : TUNED_LAYERS;
    for (int32_t which = 0; which < LAYERS_MATRICES; which++) {
        blas_product products[TUNED_LAYERS];
        for (int32_t i = 0; i < count; i++) {
            products[i] = product_of(weights, LAYERS_MATRICES * i + which, rows);
            products[i].x = x;
            products[i].y = y;
        }
        if (weights->blas->tune(products, count) != 0) return 1;
    }
    return weights->blas->wait();
}
