/* run_memo.c: see run_memo.h.
 *
 * A few runs, since a caller whose arrays are donated comes back with two sets of addresses by
 * turns; the oldest makes room. Invariant: an entry's key is set only while its launches are whole.
 */
#include "engine/runs/run_memo.h"

#include <assert.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "planner/size.h"
#include "planner/status.h"

enum { RUN_LIMIT = 4, LAUNCH_LIMIT = 8, BINDING_LIMIT = 20, PARAMS_UNIT = 64 };

/* Words, so that it is compared as bytes. */
typedef struct run_key {
    uint64_t kind; /* fig_run_kind; 0: of no run */
    int64_t rows, kv_length, binding_count;
    uint64_t plan, scratch, scratch_bytes;
    fig_binding bindings[BINDING_LIMIT];
} run_key;

typedef struct known_run {
    fig_run_entry entry;
    run_key key;
    fig_run_launch launches[LAUNCH_LIMIT];
    uint8_t *params; /* [params_bytes], of which params_used are taken */
    size_t params_used;
} known_run;

struct fig_run_memo {
    pthread_mutex_t lock;
    known_run runs[RUN_LIMIT];
    int32_t oldest, taken; /* taken: of runs, while the lock is */
    size_t params_bytes;
    uint8_t *params; /* [RUN_LIMIT][params_bytes] */
};

static size_t params_bytes_of(uint32_t op) {
    return fig_size_align(fig_kernel_table[op].params_bytes, PARAMS_UNIT);
}

/* Of every launch that there may be: the nodes', and one that plans or puts zeros. */
static size_t count_params(const fig_lower_common *common) {
    size_t bytes = params_bytes_of(FIG_OP_PLAN);
    for (uint32_t i = 1; i < common->launch_count; i++)
        bytes += params_bytes_of(common->launches[i].op);
    return bytes;
}

static fig_status init(fig_run_memo *memo, const fig_lower_common *common) {
    if (pthread_mutex_init(&memo->lock, NULL) != 0) return fig_fail(FIG_NOMEM, "runner: a lock");
    memo->params_bytes = count_params(common);
    memo->params = aligned_alloc(PARAMS_UNIT, RUN_LIMIT * memo->params_bytes);
    if (memo->params == NULL) {
        pthread_mutex_destroy(&memo->lock);
        return fig_fail(FIG_NOMEM, "runner: %zu bytes", RUN_LIMIT * memo->params_bytes);
    }
    for (int32_t i = 0; i < RUN_LIMIT; i++) {
        memo->runs[i].entry.launches = memo->runs[i].launches;
        memo->runs[i].params = memo->params + (size_t)i * memo->params_bytes;
    }
    return FIG_OK;
}

fig_status fig_run_memo_create(fig_run_memo **out, const fig_lower_common *common) {
    *out = NULL;
    if (common->launch_count > LAUNCH_LIMIT) return FIG_OK; /* the fetch is one of them */
    fig_run_memo *memo = calloc(1, sizeof *memo);
    if (memo == NULL) return fig_fail(FIG_NOMEM, "runner: %zu bytes", sizeof *memo);
    const fig_status status = init(memo, common);
    if (status == FIG_OK) {
        *out = memo;
    } else {
        free(memo);
    }
    return status;
}

void fig_run_memo_destroy(fig_run_memo *memo) {
    if (memo == NULL) return;
    pthread_mutex_destroy(&memo->lock);
    free(memo->params);
    free(memo);
}

/* Names are compared by the run itself, since what is behind one may change. */
static int is_kept(const fig_run *run) {
    if (run->segment != NULL || run->bindings == NULL) return 0;
    if (run->binding_count < 1 || run->binding_count > BINDING_LIMIT) return 0;
    if (run->bindings[0].size != sizeof(fig_binding)) return 0;
    for (int32_t i = 0; i < run->binding_count; i++)
        if (run->bindings[i].name != NULL) return 0;
    return 1;
}

static size_t key_of(fig_run_kind kind, const fig_run *run, run_key *key) {
    const size_t bindings = (size_t)run->binding_count * sizeof *run->bindings;
    key->kind = kind;
    key->rows = run->rows;
    key->kv_length = run->kv_length;
    key->binding_count = run->binding_count;
    key->plan = (uint64_t)(uintptr_t)run->plan;
    key->scratch = (uint64_t)(uintptr_t)run->scratch;
    key->scratch_bytes = run->scratch_bytes;
    memcpy(key->bindings, run->bindings, bindings);
    return offsetof(run_key, bindings) + bindings;
}

/* That is known as such a run; else the oldest, emptied. */
static known_run *find(fig_run_memo *memo, const run_key *key, size_t key_bytes) {
    for (memo->taken = 0; memo->taken < RUN_LIMIT; memo->taken++) {
        known_run *run = &memo->runs[memo->taken];
        run->entry.is_known = memcmp(&run->key, key, key_bytes) == 0;
        if (run->entry.is_known) return run;
    }
    known_run *oldest = &memo->runs[memo->oldest];
    memo->taken = memo->oldest;
    oldest->entry.launch_count = 0;
    oldest->params_used = 0;
    memcpy(&oldest->key, key, key_bytes);
    oldest->key.kind = 0;
    return oldest;
}

const fig_run_entry *fig_run_memo_take(fig_run_memo *memo, fig_run_kind kind, const fig_run *run) {
    run_key key;
    if (memo == NULL || !is_kept(run)) return NULL;
    const size_t key_bytes = key_of(kind, run, &key);
    if (pthread_mutex_trylock(&memo->lock) != 0) return NULL;
    return &find(memo, &key, key_bytes)->entry;
}

void fig_run_memo_add(fig_run_memo *memo, const fig_run_launch *launch) {
    known_run *run = &memo->runs[memo->taken];
    fig_run_launch *own = &run->launches[run->entry.launch_count++];
    assert(run->entry.launch_count <= LAUNCH_LIMIT);
    *own = *launch;
    own->params = run->params + run->params_used;
    run->params_used += params_bytes_of(launch->op);
    assert(run->params_used <= memo->params_bytes);
    memcpy(own->params, launch->params, fig_kernel_table[launch->op].params_bytes);
}

void fig_run_memo_give(fig_run_memo *memo, fig_run_kind kind, int is_whole) {
    known_run *run = &memo->runs[memo->taken];
    if (!run->entry.is_known && is_whole) {
        run->key.kind = kind;
        memo->oldest = (memo->taken + 1) % RUN_LIMIT;
    }
    pthread_mutex_unlock(&memo->lock);
}
