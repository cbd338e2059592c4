/* run_memo.c: keeps the launches of a runner's latest runs.
 *
 * The memo has room for two runs per layer of a typical model, because a caller with donated arrays
 * alternates between two sets of addresses. A new run replaces the oldest. All runs share one block
 * of memory; each has its own part, so the pages of unused parts are never touched. Invariant: the
 * kind in an entry's key is set only while its launches are complete. */
#include "engine/runs/run_memo.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "planner/size.h"
#include "planner/status.h"

enum { RUN_LIMIT = 64, LEAST_RUNS = 4, BLOCK_BYTES = 1 << 18, PARAMS_UNIT = 64 };

/* The key of a run. It has no padding, so keys can be compared as bytes. */
typedef struct run_key {
    uint64_t kind; /* fig_run_kind; 0: the entry holds no run */
    uint64_t hash; /* hash of the bindings' addresses */
    int64_t rows, kv_length, query_tokens;
    uint64_t plan, plan_bytes, scratch, scratch_bytes;
} run_key;

/* A run's part of the memory: [params][launches][bindings] */
typedef struct known_run {
    fig_run_entry entry; /* has room for launch_limit launches */
    run_key key;
    fig_binding *bindings; /* [binding_count] */
    uint8_t *params;       /* [params_bytes], of which params_used are in use */
    size_t params_used;
} known_run;

struct fig_run_memo {
    pthread_mutex_t lock;
    known_run runs[RUN_LIMIT];
    int32_t run_count, oldest, taken; /* taken: the index of the run that the lock holder uses */
    int32_t binding_count, launch_limit;
    size_t params_bytes, run_bytes;
    uint8_t *memory; /* [run_count][run_bytes] */
};

static size_t params_bytes_of(uint32_t op) {
    return fig_size_align(fig_kernel_table[op].params_bytes, PARAMS_UNIT);
}

/* Counts the params bytes of all launches that a run may have: those of the nodes, and the
 * planner's. */
static size_t count_params(const fig_lower_common *common) {
    size_t bytes = params_bytes_of(FIG_OP_PLAN);
    for (uint32_t i = 1; i < common->launch_count; i++)
        bytes += params_bytes_of(common->launches[i].op);
    return bytes;
}

static void deal_out(fig_run_memo *memo) {
    for (int32_t i = 0; i < memo->run_count; i++) {
        known_run *run = &memo->runs[i];
        run->params = memo->memory + (size_t)i * memo->run_bytes;
        run->entry.launches = (fig_run_launch *)(void *)(run->params + memo->params_bytes);
        run->bindings = (fig_binding *)(void *)(run->entry.launches + memo->launch_limit);
    }
}

static fig_status init(fig_run_memo *memo, const fig_lower_common *common) {
    memo->launch_limit = (int32_t)common->launch_count; /* the planner replaces the fetch */
    memo->params_bytes = count_params(common);
    memo->run_bytes = memo->params_bytes + (size_t)memo->launch_limit * sizeof(fig_run_launch) +
                      (size_t)memo->binding_count * sizeof(fig_binding);
    memo->run_bytes = fig_size_align(memo->run_bytes, PARAMS_UNIT);
    memo->run_count = (int32_t)(BLOCK_BYTES / memo->run_bytes);
    if (memo->run_count > RUN_LIMIT) memo->run_count = RUN_LIMIT;
    if (memo->run_count < LEAST_RUNS) memo->run_count = LEAST_RUNS;
    const size_t bytes = (size_t)memo->run_count * memo->run_bytes;
    memo->memory = aligned_alloc(PARAMS_UNIT, bytes);
    if (memo->memory == NULL) return fig_fail(FIG_NOMEM, "runner: %zu bytes", bytes);
    deal_out(memo);
    return FIG_OK;
}

fig_status fig_run_memo_create(fig_run_memo **out, const fig_lower_common *common,
                               int32_t binding_count) {
    *out = NULL;
    fig_run_memo *memo = calloc(1, sizeof *memo);
    if (memo == NULL || pthread_mutex_init(&memo->lock, NULL) != 0) {
        free(memo);
        return fig_fail(FIG_NOMEM, "runner: %zu bytes", sizeof *memo);
    }
    memo->binding_count = binding_count;
    const fig_status status = init(memo, common);
    if (status == FIG_OK) {
        *out = memo;
    } else {
        fig_run_memo_destroy(memo);
    }
    return status;
}

void fig_run_memo_destroy(fig_run_memo *memo) {
    if (memo == NULL) return;
    pthread_mutex_destroy(&memo->lock);
    free(memo->memory);
    free(memo);
}

/* Returns 1 if the memo keeps such runs. It does not keep runs that use names, because the string
 * behind a pointer may change. */
static int is_kept(const fig_run_memo *memo, const fig_run *run) {
    if (run->segment != NULL || run->bindings == NULL) return 0;
    if (run->binding_count != memo->binding_count || run->binding_count < 1) return 0;
    if (run->bindings[0].size != sizeof(fig_binding)) return 0;
    for (int32_t i = 0; i < run->binding_count; i++)
        if (run->bindings[i].name != NULL) return 0;
    return 1;
}

static size_t bindings_bytes(const fig_run_memo *memo) {
    return (size_t)memo->binding_count * sizeof(fig_binding);
}

/* Hashes the addresses of the bindings. Only runs with equal hashes are compared further: the runs
 * of one caller mostly differ in their addresses. */
static uint64_t hash_of(const fig_run *run) {
    uint64_t hash = 0, factor = 0x9e3779b97f4a7c15u;
    for (int32_t i = 0; i < run->binding_count; i++, factor += 0x7f4a7c15d1b54a32u)
        hash += (uint64_t)(uintptr_t)run->bindings[i].address * (factor | 1);
    return hash;
}

static run_key key_of(fig_run_kind kind, const fig_run *run) {
    return (run_key){.kind = kind,
                     .hash = hash_of(run),
                     .rows = run->rows,
                     .kv_length = run->kv_length,
                     .query_tokens = run->query_tokens,
                     .plan = (uint64_t)(uintptr_t)run->plan,
                     .plan_bytes = run->plan_bytes,
                     .scratch = (uint64_t)(uintptr_t)run->scratch,
                     .scratch_bytes = run->scratch_bytes};
}

/* Compares bindings field by field, because a caller need not set the padding between fields. */
static int are_alike(const fig_binding *a, const fig_binding *b, int32_t count) {
    int alike = 1;
    for (int32_t i = 0; i < count; i++)
        alike &= a[i].address == b[i].address && a[i].bytes == b[i].bytes &&
                 memcmp(a[i].strides, b[i].strides, sizeof a[i].strides) == 0;
    return alike;
}

/* Returns the entry that holds this run's launches. If no entry does, empties the oldest one and
 * returns that. */
static known_run *find(fig_run_memo *memo, const run_key *key, const fig_binding *bindings) {
    for (memo->taken = 0; memo->taken < memo->run_count; memo->taken++) {
        known_run *run = &memo->runs[memo->taken];
        if (run->key.hash != key->hash) continue;
        run->entry.is_known = memcmp(&run->key, key, sizeof *key) == 0 &&
                              are_alike(run->bindings, bindings, memo->binding_count);
        if (run->entry.is_known) return run;
    }
    known_run *oldest = &memo->runs[memo->oldest];
    memo->taken = memo->oldest;
    oldest->entry.is_known = 0;
    oldest->entry.launch_count = 0;
    oldest->params_used = 0;
    oldest->key = *key;
    oldest->key.kind = 0;
    memcpy(oldest->bindings, bindings, bindings_bytes(memo));
    return oldest;
}

const fig_run_entry *fig_run_memo_take(fig_run_memo *memo, fig_run_kind kind, const fig_run *run) {
    if (!is_kept(memo, run)) return NULL;
    const run_key key = key_of(kind, run);
    if (pthread_mutex_trylock(&memo->lock) != 0) return NULL;
    return &find(memo, &key, run->bindings)->entry;
}

fig_status fig_run_memo_add(fig_run_memo *memo, const fig_run_launch *launch) {
    known_run *run = &memo->runs[memo->taken];
    const size_t bytes = params_bytes_of(launch->op);
    FIG_TRY_OURS(run->entry.launch_count < memo->launch_limit &&
                     bytes <= memo->params_bytes - run->params_used,
                 "run: launch %" PRId32 " of %" PRId32, run->entry.launch_count + 1,
                 memo->launch_limit);
    fig_run_launch *own = &run->entry.launches[run->entry.launch_count++];
    *own = *launch;
    own->params = run->params + run->params_used;
    run->params_used += bytes;
    memcpy(own->params, launch->params, fig_kernel_table[launch->op].params_bytes);
    return FIG_OK;
}

void fig_run_memo_give(fig_run_memo *memo, fig_run_kind kind, int is_whole) {
    known_run *run = &memo->runs[memo->taken];
    if (!run->entry.is_known && is_whole) {
        run->key.kind = kind;
        memo->oldest = (memo->taken + 1) % memo->run_count;
    }
    pthread_mutex_unlock(&memo->lock);
}
