/* bench_pool.c: fills device memory with synthetic numbers; the caches of all cells are its
 * pages. */
#include "tools/figraph/bench/bench_pool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/report.h"

enum { PAGE = 16, HEADS = 8, HEAD_DIM = 128 };
static const size_t BLOCK_BYTES = 8 << 20; /* every half is a multiple of it */
/* multiples of BLOCK_BYTES */
static const size_t WEIGHT_BYTES = 256 << 20, HOST_WEIGHT_BYTES = 8 << 20;
static const size_t LEAST_HALF = 32 << 20;
static const size_t CEILING_HALF = 1 << 30; /* reading this much takes long enough to time */

/* Opens the smallest program that has a cache; its engine owns the pool. */
static int open_rig(fig_bench_pool *pool, const fig_bench_machine *machine) {
    const int quarter = fig_synthetic_bytes(pool->dtype) == 1;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = quarter ? FIG_BF16 : pool->dtype,
                           .kv_dtype = pool->dtype,
                           .q_heads = HEADS,
                           .kv_heads = HEADS,
                           .head_dim = HEAD_DIM,
                           .page_size = PAGE,
                           .batch_limit = 1,
                           .kv_limit = 128};
    fig_bench_rig *rig = &pool->rig;
    int code = fig_bench_rig_begin(rig, &spec);
    if (code != FIG_EXIT_FINE) return code;
    const fig_cache cache = {.k = fig_bench_rig_cache(rig, &spec, "pool"),
                             .v = fig_bench_rig_cache(rig, &spec, "weights"),
                             .page_table = fig_bench_rig_table(rig, &spec)};
    const fig_tensor q = fig_bench_rig_rows(rig, "q", HEADS, HEAD_DIM, 1);
    const fig_tensor out = fig_bench_rig_rows(rig, "out", HEADS, HEAD_DIM, 1);
    fig_attention(rig->program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    return fig_bench_rig_open(rig, machine, (fig_bucket){1, 128});
}

static fig_status allocate(const fig_bench_pool *pool, const char *name, size_t bytes,
                           uint8_t **address) {
    void *at = NULL;
    fig_status status =
        fig_engine_bind(pool->rig.engine, FIG_OPTIONS(fig_binding, .name = name, .bytes = bytes));
    if (status == FIG_OK) status = fig_engine_address(pool->rig.engine, name, &at);
    *address = at;
    return status;
}

/* If memory is short, tries a quarter less, until it fits or is too small for any cell. */
static int allocate_all(fig_bench_pool *pool) {
    fig_status status = allocate(pool, "weights", pool->weight_bytes, &pool->weights);
    while (status == FIG_OK) {
        status = allocate(pool, "pool", 2 * pool->half_bytes, &pool->address);
        if (status != FIG_NOMEM || pool->half_bytes <= LEAST_HALF) break;
        pool->half_bytes = pool->half_bytes * 3 / 4 / BLOCK_BYTES * BLOCK_BYTES;
        status = FIG_OK;
    }
    return status == FIG_OK ? FIG_EXIT_FINE : fig_report_status("bench attention");
}

static int fill(const fig_bench_pool *pool, const char *name, size_t bytes) {
    for (size_t at = 0; at < bytes; at += BLOCK_BYTES) {
        const fig_span span = {
            .size = sizeof span, .name = name, .offset = at, .bytes = BLOCK_BYTES};
        if (fig_engine_write(pool->rig.engine, &span, pool->block) != FIG_OK)
            return fig_report_status("bench attention");
    }
    return FIG_EXIT_FINE;
}

static int fill_all(fig_bench_pool *pool) {
    fig_synthetic synthetic;
    fig_synthetic_seed(&synthetic, 5);
    fig_synthetic_fill(&synthetic, pool->dtype, pool->block,
                       BLOCK_BYTES / fig_synthetic_bytes(pool->dtype));
    const int code = fill(pool, "pool", 2 * pool->half_bytes);
    return code == FIG_EXIT_FINE ? fill(pool, "weights", pool->weight_bytes) : code;
}

/* Both halves hold the same numbers, so a copy changes nothing. */
static int measure(const fig_bench_pool *pool, const fig_bench_machine *machine, int32_t copies,
                   double *bytes) {
    fig_timed timed = {.size = sizeof timed};
    const fig_timing_options options = {.size = sizeof options,
                                        .tensor = "pool",
                                        .copies = copies,
                                        .samples = machine->samples,
                                        .sample_us = machine->sample_us};
    if (fig_engine_time(pool->rig.engine, &options, &timed) != FIG_OK)
        return fig_report_status("bench attention");
    *bytes = 2 * (double)pool->half_bytes / timed.least_ns * 1e9;
    return FIG_EXIT_FINE;
}

/* The host grants more memory than it has, and ends a process that fills it. */
static size_t host_limit(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (size_t)pages * (size_t)page_bytes / 2 : SIZE_MAX;
}

int fig_bench_pool_open(fig_bench_pool *pool, const fig_bench_machine *machine, fig_dtype dtype,
                        size_t half_bytes) {
    *pool = (fig_bench_pool){.dtype = dtype};
    if (machine->device == FIG_DEVICE_HOST && half_bytes > host_limit() / 2)
        return fig_report_refuse("bench: the caches of a cell take %zu bytes, limit %zu, half of "
                                 "the host's memory",
                                 2 * half_bytes, host_limit());
    if (machine->device == FIG_DEVICE_CUDA && half_bytes < CEILING_HALF) half_bytes = CEILING_HALF;
    pool->half_bytes = (half_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    pool->weight_bytes = machine->device == FIG_DEVICE_HOST ? HOST_WEIGHT_BYTES : WEIGHT_BYTES;
    pool->block = malloc(BLOCK_BYTES);
    if (pool->block == NULL) return fig_report_refuse("bench attention: no memory for a block");
    int code = open_rig(pool, machine);
    if (code == FIG_EXIT_FINE) code = allocate_all(pool);
    if (code == FIG_EXIT_FINE) code = fill_all(pool);
    return code == FIG_EXIT_FINE ? measure(pool, machine, 0, &pool->ceiling) : code;
}

void fig_bench_pool_close(fig_bench_pool *pool) {
    fig_bench_rig_close(&pool->rig);
    free(pool->block);
    *pool = (fig_bench_pool){0};
}

void fig_bench_pool_at(const fig_bench_pool *pool, size_t offset, void *to, size_t bytes) {
    uint8_t *at = to;
    while (bytes > 0) {
        const size_t from = offset % BLOCK_BYTES;
        const size_t piece = bytes < BLOCK_BYTES - from ? bytes : BLOCK_BYTES - from;
        memcpy(at, pool->block + from, piece);
        at += piece;
        offset += piece;
        bytes -= piece;
    }
}

int fig_bench_pool_read(const fig_bench_pool *pool, size_t offset, void *to, size_t bytes) {
    const fig_span span = {.size = sizeof span, .name = "pool", .offset = offset, .bytes = bytes};
    return fig_engine_read(pool->rig.engine, &span, to) == FIG_OK ? FIG_EXIT_FINE
                                                                  : fig_report_status("bench");
}

int fig_bench_pool_copy(const fig_bench_pool *pool, const fig_bench_machine *machine,
                        double *bytes) {
    return measure(pool, machine, 1, bytes);
}
