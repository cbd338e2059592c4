/* layers_trial.c: opens the weights, caches, tensors and engine of a rank, and runs its steps.
 *
 * A server needs this part of the example too: it shows which memory each tensor is bound to, the
 * order of opening, and the loop. The host runs ahead of the device, and waits when all slots are
 * in flight. */
#include "examples/layers_trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    REFUSED = 2,
    WARM_STEPS = 3,
    GROWTH = 64, /* tokens that rows grow by before they start over */
    BUSY_US = 1000000,
    WAIT_US = 60000000
};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != FIG_OK) return fprintf(stderr, "layers: %s\n", fig_message()), REFUSED;      \
    } while (0)

double layers_trial_now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Says on stderr what begins now. A long pause without output looks like a hang, and the host may
 * run out of memory, so every long operation is announced. */
static void tell(const layers_trial *t, const char *what) {
    if (!t->quiet) fprintf(stderr, "layers: %s\n", what);
}

/* ---- Memory -------------------------------------------------------------------------------- */

static uint16_t *take(const layers_trial *t, int64_t count) {
    return t->options->blas->allocate((size_t)count * sizeof(uint16_t));
}

static int64_t qkv_width(const fig_spec *share) {
    return (int64_t)(share->q_heads + 2 * share->kv_heads) * share->head_dim;
}

static int fill_norm(const layers_trial *t) {
    const int32_t count = t->part.hidden;
    const uint16_t one = 0x3f80;
    uint16_t *ones = malloc((size_t)count * sizeof one);
    for (int32_t i = 0; ones != NULL && i < count; i++)
        ones[i] = one;
    const int bad =
        ones == NULL || t->options->blas->move(t->norm, ones, (size_t)count * sizeof one) != 0;
    free(ones);
    return bad;
}

static int32_t row_pages(const layers_trial *t) {
    const int32_t page = t->part.share.page_size;
    return (t->options->kv + GROWTH + page - 1) / page;
}

/* Prints the size of weights and caches; everything else in a step is small. */
static void tell_memory(const layers_trial *t) {
    const fig_spec *share = &t->part.share;
    const int64_t tokens = (int64_t)t->options->rows * row_pages(t) * share->page_size;
    const int64_t caches =
        2 * tokens * share->layers * share->kv_heads * share->head_dim * (int64_t)sizeof(uint16_t);
    char text[160];
    snprintf(text, sizeof text,
             "%.2f GB for weights of %d layers and %.2f GB for %d rows of %d tokens, on each of %d "
             "rank%s",
             1e-9 * (double)layers_weights_bytes(&t->part), (int)share->layers,
             1e-9 * (double)caches, (int)t->options->rows, (int)t->options->kv, (int)t->part.ranks,
             t->part.ranks == 1 ? "" : "s");
    tell(t, text);
}

/* Fills caches as if the prompt of each row had been processed. */
static int take_caches(layers_trial *t) {
    const fig_spec *share = &t->part.share;
    t->row_pages = row_pages(t);
    const int64_t tokens = (int64_t)t->options->rows * t->row_pages * share->page_size;
    t->table = malloc((size_t)t->options->rows * (size_t)t->row_pages * sizeof *t->table);
    t->caches = calloc(2 * (size_t)share->layers, sizeof *t->caches);
    if (t->table == NULL || t->caches == NULL) return 1;
    for (int32_t i = 0; i < t->options->rows * t->row_pages; i++)
        t->table[i] = i;
    for (int32_t i = 0; i < 2 * share->layers; i++) {
        t->caches[i] = take(t, tokens * share->kv_heads * share->head_dim);
        if (t->caches[i] == NULL) return 1;
        if (layers_weights_fill_cache(&t->weights, i, tokens, t->caches[i]) != 0) return 1;
    }
    return 0;
}

static int take_memory(layers_trial *t) {
    const fig_spec *share = &t->part.share;
    const int64_t rows = share->batch_limit, hidden = t->part.hidden;
    int64_t widest = qkv_width(share);
    if (widest < 2 * (int64_t)share->ffn_width) widest = 2 * (int64_t)share->ffn_width;
    if (widest < hidden) widest = hidden;
    t->qkv = take(t, rows * qkv_width(share));
    t->state = take(t, rows * hidden);
    t->norm = take(t, hidden);
    t->widest = take(t, rows * widest);
    t->widest_out = take(t, rows * widest);
    if (t->qkv == NULL || t->state == NULL || t->norm == NULL || t->widest == NULL ||
        t->widest_out == NULL || fill_norm(t) != 0 ||
        layers_weights_fill_state(&t->weights, t->options->rows, t->state) != 0 ||
        take_caches(t) != 0)
        return fprintf(stderr, "layers: no memory for the step's tensors\n"), REFUSED;
    return 0;
}

/* Tunes for all rows of the bucket, because a callback multiplies all of them. */
static int tune(layers_trial *t) {
    int32_t lengths[LAYERS_ROW_LIMIT];
    fig_plan_report report = {.size = sizeof report};
    fig_bucket_info info = {.size = sizeof info};
    for (int32_t row = 0; row < t->options->rows; row++)
        lengths[row] = t->options->kv;
    TRY(fig_graphs_plan(t->graphs,
                        FIG_OPTIONS(fig_step, .rows = t->options->rows, .kv_lengths = lengths),
                        &report));
    TRY(fig_graphs_bucket(t->graphs, report.bucket, &info));
    return layers_weights_tune(&t->weights, info.bucket.batch, t->widest, t->widest_out) ? REFUSED
                                                                                         : 0;
}

static void close_trial(layers_trial *t) {
    uint16_t *const blocks[] = {t->qkv, t->state, t->norm, t->widest, t->widest_out};
    fig_engine_close(t->engine);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i] != NULL) t->options->blas->release(blocks[i]);
    for (int32_t i = 0; t->caches != NULL && i < 2 * t->part.share.layers; i++)
        if (t->caches[i] != NULL) t->options->blas->release(t->caches[i]);
    layers_weights_close(&t->weights);
    free(t->caches);
    free(t->table);
}

/* ---- Binding ------------------------------------------------------------------------------- */

/* Binds q, k or v. They lie side by side in a row, as one product writes them. */
static fig_binding bind_heads(const layers_trial *t, const char *name) {
    const fig_spec *share = &t->part.share;
    const int64_t q = share->q_heads * share->head_dim, kv = share->kv_heads * share->head_dim;
    const int64_t width = qkv_width(share);
    const int64_t first = name[0] == 'q' ? 0 : name[0] == 'k' ? q : q + kv;
    const int64_t count = (int64_t)share->batch_limit * width - first;
    return (fig_binding){.size = sizeof(fig_binding),
                         .name = name,
                         .address = t->qkv + first,
                         .bytes = (uint64_t)count * sizeof(uint16_t),
                         .strides = {width, share->head_dim, 1}};
}

static fig_binding bind_cache(const layers_trial *t, const char *name) {
    const fig_spec *share = &t->part.share;
    const int64_t tokens = (int64_t)t->options->rows * t->row_pages * share->page_size;
    const int32_t layer = (int32_t)strtol(strchr(name, '.') + 1, NULL, 10);
    return (fig_binding){.size = sizeof(fig_binding),
                         .name = name,
                         .address = t->caches[2 * layer + (name[0] == 'v')],
                         .bytes = (uint64_t)(tokens * share->kv_heads * share->head_dim) *
                                  sizeof(uint16_t)};
}

static fig_binding bind_rows(const layers_trial *t, const char *name) {
    const int is_state = strcmp(name, "state") == 0;
    const int64_t rows = is_state ? t->part.share.batch_limit : 1;
    return (fig_binding){.size = sizeof(fig_binding),
                         .name = name,
                         .address = is_state ? t->state : t->norm,
                         .bytes = (uint64_t)(rows * t->part.hidden) * sizeof(uint16_t)};
}

static int bind_all(const layers_trial *t) {
    fig_tensor_info info = {.size = sizeof info};
    for (int32_t i = 0; fig_graphs_tensor(t->graphs, i, &info) == FIG_OK; i++) {
        if (info.role != FIG_ROLE_BOUND) continue; /* the engine owns the page table */
        const fig_binding binding = info.rank == 4   ? bind_cache(t, info.name)
                                    : info.rank == 3 ? bind_heads(t, info.name)
                                                     : bind_rows(t, info.name);
        TRY(fig_engine_bind(t->engine, &binding));
    }
    for (int32_t row = 0; row < t->options->rows; row++)
        TRY(fig_engine_set_pages(t->engine,
                                 FIG_OPTIONS(fig_pages, .sequence = row, .count = t->row_pages,
                                             .pages = t->table + row * t->row_pages)));
    return 0;
}

/* ---- Steps --------------------------------------------------------------------------------- */

static int take_steps(const layers_trial *t, int32_t first, int32_t count) {
    int32_t lengths[LAYERS_ROW_LIMIT];
    for (int32_t n = first; n < first + count; n++) {
        for (int32_t row = 0; row < t->options->rows; row++)
            lengths[row] = t->options->kv + n % GROWTH;
        TRY(fig_engine_step(
            t->engine, FIG_OPTIONS(fig_step, .rows = t->options->rows, .kv_lengths = lengths)));
    }
    TRY(fig_engine_wait(t->engine, WAIT_US));
    return 0;
}

/* Runs everything from the graphs to the end of the first step. */
static int take_first(layers_trial *t) {
    if (t->ranks != NULL) TRY(fig_ranks_barrier(t->ranks)); /* all ranks have their weights */
    const double began = layers_trial_now_s();
    TRY(fig_engine_open(&t->engine, t->graphs,
                        FIG_OPTIONS(fig_engine_options, .device = t->options->device,
                                    .ordinal = t->options->ordinal, .busy_us = BUSY_US,
                                    .ranks = t->ranks)));
    TRY(fig_engine_register(t->engine, "project", layers_weights_project, &t->weights));
    TRY(fig_engine_register(t->engine, "embed", layers_weights_embed, &t->weights));
    int code = bind_all(t);
    if (code == 0) code = take_steps(t, 0, 1);
    t->first_s = layers_trial_now_s() - began;
    return code;
}

/* Reads the state. It is the sum of all ranks' parts, so all ranks have the same bits. */
static int read_result(layers_trial *t) {
    const uint64_t bytes =
        (uint64_t)t->options->rows * (uint64_t)t->part.hidden * sizeof *t->result;
    TRY(fig_engine_read(t->engine, FIG_OPTIONS(fig_span, .name = "state", .bytes = bytes),
                        t->result));
    const fig_ranks_field state = {.name = "the state", .bytes = t->result, .count = bytes};
    if (t->ranks != NULL) TRY(fig_ranks_agree(t->ranks, &state, 1));
    return 0;
}

static int check_rows(const layers_trial *t) {
    const layers_trial_options *o = t->options;
    const fig_spec *spec = &t->part.share;
    if (o->rows <= spec->batch_limit && o->kv <= spec->kv_limit - GROWTH) return 0;
    return fprintf(stderr,
                   "layers: --kv: %d rows of %d tokens, which grow by %d, but the file is for %d "
                   "rows of %d\n",
                   (int)o->rows, (int)o->kv, GROWTH, (int)spec->batch_limit, (int)spec->kv_limit),
           REFUSED;
}

static int run(layers_trial *t) {
    double began = layers_trial_now_s();
    if (check_rows(t) != 0) return REFUSED;
    tell_memory(t);
    if (layers_weights_open(&t->weights, t->options->blas, &t->part) != 0) return REFUSED;
    int code = take_memory(t);
    t->weights_s = layers_trial_now_s() - began;
    if (code == 0 && !t->options->first_way) {
        tell(t, "trying how each product is fastest");
        code = tune(t);
    }
    t->tune_s = layers_trial_now_s() - began - t->weights_s;
    if (code == 0) tell(t, "taking the first step");
    if (code == 0) code = take_first(t);
    if (code == 0 && t->result != NULL) code = read_result(t);
    char text[64];
    snprintf(text, sizeof text, "taking %d steps more", WARM_STEPS + (int)t->options->steps);
    if (code == 0) tell(t, text);
    if (code == 0) code = take_steps(t, 1, WARM_STEPS);
    began = layers_trial_now_s();
    if (code == 0) code = take_steps(t, 1 + WARM_STEPS, t->options->steps);
    t->step_s = (layers_trial_now_s() - began) / t->options->steps;
    return code;
}

int layers_trial_run(layers_trial *trial) {
    const int code = run(trial);
    close_trial(trial);
    return code;
}
