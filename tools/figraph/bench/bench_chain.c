/* bench_chain.c: checks and times one cell's attention as a chain of layers over cold caches.
 *
 * The layers take turns over caches that together are several times as large as an L2. There are
 * enough layers that the gap between two replays is less than a hundredth of their time. */
#include "tools/figraph/bench/bench_chain.h"

#include <figraph_parallel.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/step/truth_attention.h"
#include "tools/figraph/terminal/report.h"

enum {
    COPIES_LIMIT = 1024,
    LAYERS_LEAST = 2,
    LAYERS_LIMIT = 512,
    HOST_LAYERS = 2,
    KV_LEAST = 128,
    SPACED_LAYERS = 64,
    ROUNDS = 3,                     /* an odd number */
    SPACER_BYTES = 4096 * 4096 * 2, /* 33.5 MB: a projection of 4096 x 4096 in 16 bits */
    HOST_SPACER_BYTES = 65536,
    SAMPLES_LIMIT = 64 /* the number of rows and heads that are compared */
};
static const double COLD_BYTES = 256e6;      /* the least bytes of all caches together */
static const double ENDLESS_BYTES = 6e9;     /* one cache of this size is cold by itself */
static const double REPLAY_US = 1500;        /* the time that a graph's layers should take */
static const double SAMPLED_ELEMENTS = 2e6;  /* the elements of K in all compared rows and heads */
static const double READ_ELEMENTS = 5e5;     /* the same, if vectors are read from the device */
static const double TOLERANCE_ULP = 2;       /* for 16-bit types */
static const double SINGLE_TOLERANCE = 2e-5; /* for f32, relative to the magnitude */
static const double SMALL = 1.0 / 1024;      /* below this, earlier rounding dominates the error */
static const float SCALE = 1.0f / 128;       /* for fp8: gives values the usual magnitude */

/* ---- How large ----------------------------------------------------------------------------- */

static int32_t copies_of(const fig_bench_machine *machine, const fig_bench_cell *cell) {
    const double bytes = fig_bench_cell_bytes(cell);
    const double cold = ceil(COLD_BYTES / bytes);
    if (machine->device == FIG_DEVICE_HOST) return 2;
    if (bytes >= ENDLESS_BYTES) return 1;
    return cold < 2 ? 2 : cold > COPIES_LIMIT ? COPIES_LIMIT : (int32_t)cold;
}

static int32_t layers_of(const fig_bench_machine *machine, const fig_bench_cell *cell,
                         int32_t copies) {
    const double limit_us = 2 + fig_bench_cell_bytes(cell) / 4.7e6;
    double layers = ceil(REPLAY_US / limit_us);
    if (machine->device == FIG_DEVICE_HOST) return HOST_LAYERS;
    if (layers < LAYERS_LEAST) layers = LAYERS_LEAST;
    if (layers > LAYERS_LIMIT) layers = LAYERS_LIMIT;
    return copies * (int32_t)ceil(layers / copies);
}

static size_t bytes_of(const fig_bench_cell *cell, int32_t copies) {
    return (size_t)fig_bench_cell_pages(cell) * (size_t)copies * fig_bench_cell_page_bytes(cell);
}

size_t fig_bench_chain_bytes(const fig_bench_machine *machine, const fig_bench_cell *cell) {
    return bytes_of(cell, copies_of(machine, cell));
}

void fig_bench_chain_size(fig_bench_chain *chain, const fig_bench_machine *machine,
                          const fig_bench_cell *cell, const fig_bench_pool *pool) {
    *chain = (fig_bench_chain){.cell = cell, .pool = pool};
    chain->copies = copies_of(machine, cell);
    if (bytes_of(cell, chain->copies) > pool->half_bytes) chain->copies = 0;
    chain->layers = chain->copies > 0 ? layers_of(machine, cell, chain->copies) : 0;
}

/* ---- Recording ----------------------------------------------------------------------------- */

static fig_spec spec_of(const fig_bench_cell *cell) {
    const fig_bench_shape *shape = &cell->shape;
    int32_t kv_limit = fig_bench_rig_round(fig_bench_cell_longest(cell));
    if (kv_limit < KV_LEAST) kv_limit = KV_LEAST;
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = shape->dtype,
                      .kv_dtype = shape->kv_dtype,
                      .q_heads = shape->q_heads,
                      .kv_heads = shape->kv_heads,
                      .head_dim = shape->head_dim,
                      .page_size = shape->page,
                      .kv_layout = shape->layout,
                      .kv_scales = shape->kv_scales,
                      .batch_limit = fig_bench_rig_round(cell->lengths.count),
                      .kv_limit = kv_limit};
}

/* Returns the bucket that an engine's own ladder has for the cell. */
static fig_bucket bucket_of(const fig_bench_cell *cell, const fig_spec *spec) {
    const int64_t tokens = fig_lengths_total(&cell->lengths), rows = spec->batch_limit;
    int32_t kv = fig_bench_rig_round((int32_t)((tokens + rows - 1) / rows));
    if (kv < KV_LEAST) kv = KV_LEAST;
    return (fig_bucket){(int32_t)rows, kv < spec->kv_limit ? kv : spec->kv_limit};
}

typedef struct cache_name {
    char k[16], v[16];
} cache_name;

static cache_name name_of(int32_t copy) {
    cache_name name;
    snprintf(name.k, sizeof name.k, "k.%d", copy);
    snprintf(name.v, sizeof name.v, "v.%d", copy);
    return name;
}

/* Returns the number of scales of K, which is also the number of scales of V. */
static int32_t scale_count(const fig_bench_chain *chain) {
    return chain->spec.kv_scales ? chain->spec.kv_heads : 1;
}

/* Heads have different scales, so the check notices a kernel that mixes up heads. */
static float scale_of(const fig_bench_chain *chain, int32_t kv_head) {
    return chain->spec.kv_scales ? SCALE * (float)(8 + kv_head % 8) / 8 : SCALE;
}

static fig_tensor record_scale(const fig_bench_chain *chain, const char *name) {
    return fig_program_tensor(
        chain->rig.program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                        .dtype = FIG_F32, .rank = 1, .dims = {scale_count(chain)}));
}

static int is_quarter(const fig_bench_chain *chain) {
    return fig_synthetic_bytes(chain->spec.kv_dtype) == 1;
}

static int is_step(const fig_bench_chain *chain) {
    return chain->between == FIG_BENCH_STEP || chain->between == FIG_BENCH_STEP_APART;
}

/* The operations of a layer other than attention. */
typedef struct beside {
    fig_tensor gate_up, act, k, k_last, k_turned, v;
    fig_rms_norm_op sum; /* the sum over ranks after a projection that is left out */
} beside;

static beside record_beside(fig_bench_chain *chain) {
    fig_bench_rig *rig = &chain->rig;
    const fig_spec *spec = &chain->spec;
    const int32_t heads = spec->kv_heads, head_dim = spec->head_dim, width = chain->ffn_width;
    beside of = {.gate_up = fig_bench_rig_rows(rig, FIG_BENCH_GATE_UP, 2 * width, 0, 1),
                 .act = fig_bench_rig_rows(rig, FIG_BENCH_ACT, width, 0, 1),
                 .k = fig_bench_rig_rows(rig, FIG_BENCH_K, heads, head_dim, 1),
                 .k_last = fig_bench_rig_rows(rig, FIG_BENCH_K_LAST, heads, head_dim, 1),
                 .v = fig_bench_rig_rows(rig, FIG_BENCH_V, heads, head_dim, 1)};
    if (chain->between == FIG_BENCH_STEP_APART)
        of.k_turned = fig_bench_rig_rows(rig, FIG_BENCH_K_TURNED, heads, head_dim, 1);
    if (chain->sum_width > 0) of.sum = fig_bench_rig_sum(rig, chain->sum_width);
    return of;
}

/* of.k is the k of the recorded layer. */
static void record_step(fig_bench_chain *chain, const beside *of, const fig_attention_op *op) {
    fig_program *program = chain->rig.program;
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = of->gate_up, .out = of->act));
    if (chain->sum_width > 0) fig_all_reduce_add_rms_norm(program, &of->sum);
    if (chain->between == FIG_BENCH_STEP) {
        fig_decode_attention(program, FIG_OPTIONS(fig_decode_attention_op, .q = op->q, .k = of->k,
                                                  .v = of->v, .out = op->out, .cache = op->cache,
                                                  .window = op->window));
        return;
    }
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = op->q, .k = of->k, .k_out = of->k_turned));
    fig_append_kv(program,
                  FIG_OPTIONS(fig_append_kv_op, .k = of->k_turned, .v = of->v, .cache = op->cache));
    fig_attention(program, op);
}

static void record_layers(fig_bench_chain *chain, const fig_tensor x[2]) {
    fig_bench_rig *rig = &chain->rig;
    beside layer_has = {.gate_up = {0}};
    fig_cache caches[COPIES_LIMIT] = {{.k = {0}}};
    fig_cache common = {.page_table = fig_bench_rig_table(rig, &chain->spec)};
    if (is_quarter(chain)) {
        common.k_scale = record_scale(chain, "k_scale");
        common.v_scale = record_scale(chain, "v_scale");
    }
    for (int32_t copy = 0; copy < chain->copies; copy++) {
        const cache_name name = name_of(copy);
        caches[copy] = common;
        caches[copy].k = fig_bench_rig_cache(rig, &chain->spec, name.k);
        caches[copy].v = fig_bench_rig_cache(rig, &chain->spec, name.v);
    }
    if (is_step(chain)) layer_has = record_beside(chain);
    for (int32_t layer = 0; layer < chain->layers; layer++) {
        const fig_attention_op *op = FIG_OPTIONS(
            fig_attention_op, .q = x[layer % 2], .out = x[1 - layer % 2],
            .cache = caches[layer % chain->copies], .window = chain->cell->shape.window);
        if (layer == chain->layers - 1) layer_has.k = layer_has.k_last;
        if (is_step(chain)) {
            record_step(chain, &layer_has, op);
            if (chain->sum_width > 0) fig_all_reduce_add_rms_norm(rig->program, &layer_has.sum);
        } else {
            fig_attention(rig->program, op);
        }
    }
}

/* ---- Opening ------------------------------------------------------------------------------- */

/* Page p of cache `copy` is page p * copies + copy of the pool's half. */
static size_t place_of(const fig_bench_chain *chain, int32_t copy, int32_t page) {
    const size_t number = (size_t)page * (size_t)chain->copies + (size_t)copy;
    return number * fig_bench_cell_page_bytes(chain->cell);
}

static fig_status bind_caches(const fig_bench_chain *chain) {
    const fig_spec *spec = &chain->spec;
    const int64_t head = spec->head_dim, page = spec->page_size, heads = spec->kv_heads;
    const int hnd = spec->kv_layout == FIG_HND;
    fig_status status = FIG_OK;
    for (int32_t copy = 0; status == FIG_OK && copy < chain->copies; copy++) {
        const cache_name name = name_of(copy);
        const size_t first = place_of(chain, copy, 0);
        fig_binding binding = {.size = sizeof binding,
                               .name = name.k,
                               .address = chain->pool->address + first,
                               .bytes = bytes_of(chain->cell, chain->copies) - first,
                               .strides = {page * heads * head * chain->copies,
                                           hnd ? head : heads * head, hnd ? page * head : head, 1}};
        status = fig_engine_bind(chain->rig.engine, &binding);
        binding.name = name.v;
        binding.address = chain->pool->address + chain->pool->half_bytes + first;
        if (status == FIG_OK) status = fig_engine_bind(chain->rig.engine, &binding);
    }
    return status;
}

static fig_status set_pages(fig_bench_chain *chain) {
    const fig_bench_cell *cell = chain->cell;
    const int32_t count = (int32_t)fig_bench_cell_pages(cell);
    fig_synthetic synthetic;
    fig_status status = FIG_OK;
    const int32_t *next = chain->pages;
    fig_synthetic_seed(&synthetic, 3);
    fig_synthetic_permutation(&synthetic, chain->pages, count);
    for (int32_t row = 0; status == FIG_OK && row < cell->lengths.count; row++) {
        const int32_t page = cell->shape.page;
        const int32_t pages = (cell->lengths.values[row] + page - 1) / page;
        if (pages > 0)
            status =
                fig_engine_set_pages(chain->rig.engine, FIG_OPTIONS(fig_pages, .sequence = row,
                                                                    .count = pages, .pages = next));
        next += pages;
    }
    return status;
}

static fig_status write_scales(fig_bench_chain *chain) {
    static const char *const names[] = {"k_scale", "v_scale"};
    fig_status status = FIG_OK;
    for (int i = 0; i < 2 && is_quarter(chain); i++)
        for (int32_t head = 0; status == FIG_OK && head < scale_count(chain); head++) {
            const float scale = scale_of(chain, head);
            status = fig_engine_write(chain->rig.engine,
                                      FIG_OPTIONS(fig_span, .name = names[i],
                                                  .offset = (size_t)head * sizeof scale,
                                                  .bytes = sizeof scale),
                                      &scale);
        }
    return status;
}

static int fill(fig_bench_chain *chain) {
    const fig_spec *spec = &chain->spec;
    const int64_t rows = spec->batch_limit, kv = rows * spec->kv_heads * spec->head_dim;
    fig_bench_rig *rig = &chain->rig;
    int code = fig_bench_rig_fill(rig, "x.0", spec->dtype, rows * spec->q_heads * spec->head_dim);
    if (!is_step(chain)) return code;
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_fill(rig, FIG_BENCH_K, spec->dtype, kv);
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_fill(rig, FIG_BENCH_K_LAST, spec->dtype, kv);
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_fill(rig, FIG_BENCH_V, spec->dtype, kv);
    if (code == FIG_EXIT_FINE)
        code = fig_bench_rig_fill(rig, FIG_BENCH_GATE_UP, spec->dtype, rows * 2 * chain->ffn_width);
    return code;
}

int fig_bench_chain_open(fig_bench_chain *chain, const fig_bench_machine *machine,
                         fig_bench_between between) {
    fig_bench_rig *rig = &chain->rig;
    const fig_spec *spec = &chain->spec;
    chain->between = between;
    chain->spec = spec_of(chain->cell);
    chain->step = (fig_step){.size = sizeof chain->step,
                             .rows = chain->cell->lengths.count,
                             .kv_lengths = chain->cell->lengths.values};
    int code = fig_bench_rig_begin(rig, spec);
    if (code != FIG_EXIT_FINE) return code;
    const fig_tensor x[2] = {fig_bench_rig_rows(rig, "x.0", spec->q_heads, spec->head_dim, 1),
                             fig_bench_rig_rows(rig, "x.1", spec->q_heads, spec->head_dim, 1)};
    record_layers(chain, x);
    rig->variant = chain->variant;
    code = fig_bench_rig_open(rig, machine, bucket_of(chain->cell, spec));
    if (code == FIG_EXIT_FINE) code = fill(chain);
    if (code != FIG_EXIT_FINE) return code;
    chain->pages = calloc((size_t)fig_bench_cell_pages(chain->cell), sizeof *chain->pages);
    if (chain->pages == NULL) return fig_report_refuse("bench attention: no memory for pages");
    fig_status status = bind_caches(chain);
    if (status == FIG_OK) status = write_scales(chain);
    if (status == FIG_OK) status = set_pages(chain);
    return status == FIG_OK ? FIG_EXIT_FINE : fig_report_status(chain->cell->name);
}

void fig_bench_chain_close(fig_bench_chain *chain) {
    fig_bench_rig_close(&chain->rig);
    free(chain->pages);
    free(chain->k);
    chain->pages = NULL;
    chain->k = NULL;
}

/* ---- Timing alone -------------------------------------------------------------------------- */

static int order_numbers(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Each round makes new graphs: times vary more from graph to graph than from run to run. */
int fig_bench_chain_alone(fig_bench_chain *chain, const fig_bench_machine *machine, double *us) {
    const int32_t nodes = chain->layers < SPACED_LAYERS ? chain->layers : SPACED_LAYERS;
    const int host = machine->device == FIG_DEVICE_HOST;
    fig_spacer spacer = {.size = sizeof spacer,
                         .nodes = nodes,
                         .memory = chain->pool->weights,
                         .memory_bytes = (int64_t)chain->pool->weight_bytes,
                         .bytes = host ? HOST_SPACER_BYTES : SPACER_BYTES};
    double added[ROUNDS] = {0};
    int code = FIG_EXIT_FINE;
    chain->rig.spacer = &spacer;
    for (int i = 0; code == FIG_EXIT_FINE && i < ROUNDS; i++) {
        fig_timed both = {0}, only = {0};
        spacer.only = 0;
        code = fig_bench_rig_time(&chain->rig, machine, &chain->step, &both);
        spacer.only = 1;
        if (code == FIG_EXIT_FINE)
            code = fig_bench_rig_time(&chain->rig, machine, &chain->step, &only);
        added[i] = (both.median_ns - only.median_ns) / 1e3 / nodes;
    }
    chain->rig.spacer = NULL;
    qsort(added, ROUNDS, sizeof *added, order_numbers);
    *us = added[ROUNDS / 2];
    return code;
}

/* ---- Checking ------------------------------------------------------------------------------ */

/* Gathers one row of one kv head, [length][head_dim], from the pages that hold it. If layers
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
            half + place_of(chain, copy, pages[token / page]) + (size_t)vector * bytes;
        if (!is_step(chain)) {
            fig_bench_pool_at(chain->pool, at, to + (size_t)token * bytes, bytes);
            continue;
        }
        const int code = fig_bench_pool_read(chain->pool, at, to + (size_t)token * bytes, bytes);
        if (code != FIG_EXIT_FINE) return code;
    }
    return FIG_EXIT_FINE;
}

typedef struct sample {
    int32_t row, head; /* the row and head of q */
    const uint8_t *q, *out;
    uint8_t *k, *v; /* [longest][head_dim] */
} sample;

static int compare(const fig_bench_chain *chain, const sample *s, const truth_attention_result *due,
                   double *worst_ulp) {
    const fig_spec *spec = &chain->spec;
    const int64_t first = ((int64_t)s->row * spec->q_heads + s->head) * spec->head_dim;
    for (int32_t i = 0; i < spec->head_dim; i++) {
        const double got = truth_load(s->out, spec->dtype, first + i);
        const double ulp = truth_ulp(spec->dtype, due->magnitude[i]);
        const double tolerance = spec->dtype == FIG_F32
                                     ? fmax(SINGLE_TOLERANCE * due->magnitude[i], ulp)
                                     : TOLERANCE_ULP * ulp;
        const double error = fabs(got - due->out[i]);
        if (!(error <= tolerance))
            return fig_report_failure("bench attention: %s: row %d, head %d, element %d of the "
                                      "last layer is %.9g and must be %.9g, tolerance %.3g",
                                      chain->cell->name, s->row, s->head, i, got, due->out[i],
                                      tolerance);
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
    const int32_t length = chain->cell->lengths.values[s->row];
    const int32_t kv_head = s->head / (spec->q_heads / spec->kv_heads);
    const double scale = is_quarter(chain) ? (double)scale_of(chain, kv_head) : 1;
    float turned[TRUTH_HEAD_DIM_LIMIT];
    truth_attention_result due;
    int code = gather(chain, s->row, kv_head, 0, s->k);
    if (code == FIG_EXIT_FINE) code = gather(chain, s->row, kv_head, chain->pool->half_bytes, s->v);
    if (code == FIG_EXIT_FINE && is_step(chain) && length > 0) {
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
                                 .row = s->row,
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
    return compare(chain, s, &due, worst_ulp);
}

/* Compares the longest row, the first and the last, then random rows. */
static int check_samples(const fig_bench_chain *chain, sample *s, double *worst_ulp) {
    const fig_lengths *lengths = &chain->cell->lengths;
    const int32_t longest = fig_bench_cell_longest(chain->cell);
    fig_synthetic synthetic;
    const double limit = is_step(chain) ? READ_ELEMENTS : SAMPLED_ELEMENTS;
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
        code = check_sample(chain, s, worst_ulp);
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
    if (!is_step(chain)) return fig_bench_rig_run(&chain->rig, &chain->step);
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
    const size_t rows = (size_t)chain->cell->lengths.count * (size_t)spec->q_heads *
                        (size_t)spec->head_dim * fig_synthetic_bytes(spec->dtype);
    const size_t kv = (size_t)fig_bench_cell_longest(chain->cell) * (size_t)spec->head_dim *
                      fig_synthetic_bytes(spec->kv_dtype);
    const int last = (chain->layers - 1) % 2;
    uint8_t *memory = calloc(2, rows + kv);
    *worst_ulp = 0;
    if (memory == NULL) return fig_report_refuse("bench attention: no memory for a check");
    sample s = {.q = memory, .out = memory + rows};
    s.k = memory + 2 * rows;
    s.v = s.k + kv;
    int code = run_step(chain);
    for (int i = 0; code == FIG_EXIT_FINE && i < 2; i++) {
        const fig_span span = {
            .size = sizeof span, .name = (i == 0) == (last == 0) ? "x.0" : "x.1", .bytes = rows};
        if (fig_engine_read(chain->rig.engine, &span, memory + (size_t)i * rows) != FIG_OK)
            code = fig_report_status(chain->cell->name);
    }
    if (code == FIG_EXIT_FINE) code = check_samples(chain, &s, worst_ulp);
    free(memory);
    return code;
}
