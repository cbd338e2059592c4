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
    HOST_SPACER_BYTES = 65536
};
static const double COLD_BYTES = 256e6;  /* the least bytes of all caches together */
static const double ENDLESS_BYTES = 6e9; /* one cache of this size is cold by itself */
static const double REPLAY_US = 1500;    /* the time that a graph's layers should take */
static const float SCALE = 1.0f / 128;   /* for fp8: gives values the usual magnitude */

/* ---- Sizes --------------------------------------------------------------------------------- */

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

/* ---- Properties ---------------------------------------------------------------------------- */

int fig_bench_chain_is_quarter(const fig_bench_chain *chain) {
    return fig_synthetic_bytes(chain->spec.kv_dtype) == 1;
}

int fig_bench_chain_is_step(const fig_bench_chain *chain) {
    return chain->between == FIG_BENCH_STEP || chain->between == FIG_BENCH_STEP_APART;
}

int64_t fig_bench_chain_rows(const fig_bench_chain *chain) {
    return chain->spec.query_limit > 0 ? chain->spec.query_limit : chain->spec.batch_limit;
}

int32_t fig_bench_chain_out_dim(const fig_bench_chain *chain) {
    return chain->spec.latent_dim > 0 ? chain->spec.latent_dim : chain->spec.head_dim;
}

float fig_bench_chain_scale(const fig_bench_chain *chain, int32_t kv_head) {
    return chain->spec.kv_scales ? SCALE * (float)(8 + kv_head % 8) / 8 : SCALE;
}

size_t fig_bench_chain_place(const fig_bench_chain *chain, int32_t copy, int32_t page) {
    const size_t number = (size_t)page * (size_t)chain->copies + (size_t)copy;
    return number * fig_bench_cell_page_bytes(chain->cell);
}

/* ---- Recording ----------------------------------------------------------------------------- */

static fig_spec spec_of(const fig_bench_cell *cell) {
    const fig_bench_shape *shape = &cell->shape;
    int32_t kv_limit = fig_bench_rig_round(fig_bench_cell_longest(cell));
    if (kv_limit < KV_LEAST) kv_limit = KV_LEAST;
    const int32_t batch = fig_bench_rig_round(cell->lengths.count);
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = shape->dtype,
                      .kv_dtype = shape->kv_dtype,
                      .q_heads = shape->q_heads,
                      .kv_heads = shape->kv_heads,
                      .head_dim = shape->head_dim,
                      .page_size = shape->page,
                      .kv_layout = shape->layout,
                      .kv_scales = shape->kv_scales,
                      .latent_dim = shape->latent_dim,
                      .sm_scale = shape->sm_scale,
                      .batch_limit = batch,
                      .kv_limit = kv_limit,
                      .row_tokens = cell->row_tokens,
                      .query_limit = (int64_t)batch * cell->row_tokens};
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

static fig_tensor record_scale(const fig_bench_chain *chain, const char *name) {
    return fig_program_tensor(
        chain->rig.program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                        .dtype = FIG_F32, .rank = 1, .dims = {scale_count(chain)}));
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
    if (fig_bench_chain_is_quarter(chain)) {
        common.k_scale = record_scale(chain, "k_scale");
        common.v_scale = record_scale(chain, "v_scale");
    }
    for (int32_t copy = 0; copy < chain->copies; copy++) {
        const cache_name name = name_of(copy);
        caches[copy] = common;
        caches[copy].k = fig_bench_rig_cache(rig, &chain->spec, name.k);
        caches[copy].v = fig_bench_rig_cache(rig, &chain->spec, name.v);
    }
    if (fig_bench_chain_is_step(chain)) layer_has = record_beside(chain);
    for (int32_t layer = 0; layer < chain->layers; layer++) {
        const fig_attention_op *op = FIG_OPTIONS(
            fig_attention_op, .q = x[layer % 2], .out = x[1 - layer % 2],
            .cache = caches[layer % chain->copies], .window = chain->cell->shape.window);
        if (layer == chain->layers - 1) layer_has.k = layer_has.k_last;
        if (fig_bench_chain_is_step(chain)) {
            record_step(chain, &layer_has, op);
            if (chain->sum_width > 0) fig_all_reduce_add_rms_norm(rig->program, &layer_has.sum);
        } else {
            fig_attention(rig->program, op);
        }
    }
}

/* Records layers over latent caches. They all read x[0] and write x[1], so each layer waits for the
 * layer before. */
static void record_latents(fig_bench_chain *chain, const fig_tensor x[2]) {
    const fig_bench_shape *shape = &chain->cell->shape;
    fig_bench_rig *rig = &chain->rig;
    fig_tensor caches[COPIES_LIMIT];
    const fig_tensor table = fig_bench_rig_table(rig, &chain->spec);
    for (int32_t copy = 0; copy < chain->copies; copy++) {
        const cache_name name = name_of(copy);
        caches[copy] = fig_program_tensor(
            rig->program,
            FIG_OPTIONS(fig_tensor_info, .name = name.k, .role = FIG_ROLE_BOUND,
                        .dtype = shape->kv_dtype, .rank = 3,
                        .dims = {FIG_DIM_PAGES, chain->spec.page_size, shape->head_dim}));
    }
    for (int32_t layer = 0; layer < chain->layers; layer++)
        fig_latent_attention(
            rig->program, FIG_OPTIONS(fig_latent_attention_op, .q = x[0], .out = x[1],
                                      .cache = caches[layer % chain->copies], .page_table = table,
                                      .window = shape->window, .sm_scale = shape->sm_scale));
}

/* ---- Opening ------------------------------------------------------------------------------- */

static fig_status bind_caches(const fig_bench_chain *chain) {
    const fig_spec *spec = &chain->spec;
    const int64_t head = spec->head_dim, page = spec->page_size, heads = spec->kv_heads;
    const int hnd = spec->kv_layout == FIG_HND;
    fig_status status = FIG_OK;
    for (int32_t copy = 0; status == FIG_OK && copy < chain->copies; copy++) {
        const cache_name name = name_of(copy);
        const size_t first = fig_bench_chain_place(chain, copy, 0);
        fig_binding binding = {.size = sizeof binding,
                               .name = name.k,
                               .address = chain->pool->address + first,
                               .bytes = bytes_of(chain->cell, chain->copies) - first,
                               .strides = {page * heads * head * chain->copies,
                                           hnd ? head : heads * head, hnd ? page * head : head, 1}};
        if (spec->latent_dim > 0) binding.strides[2] = 1, binding.strides[3] = 0;
        status = fig_engine_bind(chain->rig.engine, &binding);
        if (spec->latent_dim > 0) continue;
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
    for (int i = 0; i < 2 && fig_bench_chain_is_quarter(chain); i++)
        for (int32_t head = 0; status == FIG_OK && head < scale_count(chain); head++) {
            const float scale = fig_bench_chain_scale(chain, head);
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
    const int64_t rows = fig_bench_chain_rows(chain), kv = rows * spec->kv_heads * spec->head_dim;
    fig_bench_rig *rig = &chain->rig;
    int code =
        fig_bench_rig_fill(rig, FIG_BENCH_X0, spec->dtype, rows * spec->q_heads * spec->head_dim);
    if (!fig_bench_chain_is_step(chain)) return code;
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_fill(rig, FIG_BENCH_K, spec->dtype, kv);
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_fill(rig, FIG_BENCH_K_LAST, spec->dtype, kv);
    if (code == FIG_EXIT_FINE) code = fig_bench_rig_fill(rig, FIG_BENCH_V, spec->dtype, kv);
    if (code == FIG_EXIT_FINE)
        code = fig_bench_rig_fill(rig, FIG_BENCH_GATE_UP, spec->dtype, rows * 2 * chain->ffn_width);
    return code;
}

static int write_numbers(const fig_bench_chain *chain, const char *name, const int32_t *numbers,
                         int32_t count) {
    const fig_span span = {
        .size = sizeof span, .name = name, .bytes = (size_t)count * sizeof *numbers};
    if (fig_engine_write(chain->rig.engine, &span, numbers) == FIG_OK) return FIG_EXIT_FINE;
    return fig_report_status(chain->cell->name);
}

int fig_bench_chain_draft(fig_bench_chain *chain, int32_t each) {
    const fig_lengths *lengths = &chain->cell->lengths;
    int32_t *starts = calloc((size_t)lengths->count + 1, sizeof *starts);
    if (starts == NULL) return fig_report_refuse("bench attention: no memory for drafts");
    for (int32_t row = 0; row < lengths->count; row++) {
        const int32_t most = each < lengths->values[row] ? each : lengths->values[row];
        starts[row + 1] = starts[row] + (each > 0 ? most : lengths->queries[row]);
    }
    const int code = write_numbers(chain, FIG_BENCH_STARTS, starts, lengths->count + 1);
    free(starts);
    return code;
}

/* Lets the device read the cell's lengths and query tokens. */
static int begin_drafts(fig_bench_chain *chain) {
    const fig_lengths *lengths = &chain->cell->lengths;
    chain->step.kv_lengths = NULL;
    chain->step.token_limit = fig_lengths_total(lengths);
    const int code = write_numbers(chain, FIG_BENCH_LENGTHS, lengths->values, lengths->count);
    return code == FIG_EXIT_FINE ? fig_bench_chain_draft(chain, 0) : code;
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
    if (chain->cell->row_tokens > 0) fig_bench_rig_read_queries(rig, spec);
    const fig_tensor x[2] = {
        fig_bench_rig_rows(rig, FIG_BENCH_X0, spec->q_heads, spec->head_dim, 1),
        fig_bench_rig_rows(rig, FIG_BENCH_X1, spec->q_heads, fig_bench_chain_out_dim(chain), 1)};
    if (spec->latent_dim > 0) {
        record_latents(chain, x);
    } else {
        record_layers(chain, x);
    }
    rig->variant = chain->variant;
    code = fig_bench_rig_open(rig, machine, bucket_of(chain->cell, spec));
    if (code == FIG_EXIT_FINE) code = fill(chain);
    if (code == FIG_EXIT_FINE && chain->cell->row_tokens > 0) code = begin_drafts(chain);
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
