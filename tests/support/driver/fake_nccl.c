/* fake_nccl.c: see fake_nccl.h. */
#include "tests/support/driver/fake_nccl.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/driver/fake_cuda.h"
#include "tests/support/driver/fake_graph.h"

struct fig_nccl_comm {
    int looks; /* how many queries still find its current operation running */
};

static fig_fake_nccl state;

static fig_nccl_result begin(const char *name, fig_nccl_comm comm) {
    if (state.fail_name != NULL && strcmp(state.fail_name, name) == 0) return state.fail_with;
    if (comm == NULL) return FIG_NCCL_SUCCESS;
    comm->looks = state.looks;
    return comm->looks != 0 ? FIG_NCCL_IN_PROGRESS : FIG_NCCL_SUCCESS;
}

static fig_nccl_result get_id(fig_nccl_id *id) {
    memset(id, 7, sizeof *id);
    return begin("ncclGetUniqueId", NULL);
}

static fig_nccl_result init(fig_nccl_comm *comm, int count, fig_nccl_id id, int rank,
                            fig_nccl_config *config) {
    *comm = calloc(1, sizeof **comm);
    if (config->magic != FIG_NCCL_CONFIG_MAGIC || config->blocking != 0 || id.bytes[5] != 7 ||
        rank >= count || *comm == NULL)
        abort();
    state.held++;
    return begin("ncclCommInitRankConfig", *comm);
}

static fig_nccl_result get_error(fig_nccl_comm comm, fig_nccl_result *result) {
    if (comm->looks > 0) comm->looks--;
    *result = comm->looks != 0 ? FIG_NCCL_IN_PROGRESS : FIG_NCCL_SUCCESS;
    return begin("ncclCommGetAsyncError", NULL);
}

static void let_go(fig_nccl_comm comm) {
    free(comm);
    __atomic_fetch_add(&state.held, -1, __ATOMIC_RELAXED);
}

static fig_nccl_result finalize(fig_nccl_comm comm) {
    state.finalized++;
    return begin("ncclCommFinalize", comm);
}

static fig_nccl_result destroy(fig_nccl_comm comm) {
    __atomic_fetch_add(&state.destroyed, 1, __ATOMIC_RELAXED);
    let_go(comm);
    return FIG_NCCL_SUCCESS;
}

/* NCCL returns from these calls only when no graph holds its work any more. */
static fig_nccl_result end(fig_nccl_comm comm) {
    __atomic_fetch_add(&state.aborted, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&state.graphs, __ATOMIC_RELAXED) > 0)
        sched_yield();
    let_go(comm);
    return FIG_NCCL_SUCCESS;
}

static void nothing(void *user) {
    (void)user;
}

static void put(fig_cu_stream stream, size_t bytes) {
    if (stream->capturing == NULL) {
        state.eager++;
        if (bytes > state.tried_bytes) state.tried_bytes = bytes;
        return;
    }
    state.captured++;
    state.unconnected += bytes > state.tried_bytes;
    fig_fake_cuda_enqueue(stream, nothing, NULL);
}

static fig_nccl_result all_reduce(const void *in, void *out, size_t count, int dtype, int sum,
                                  fig_nccl_comm comm, fig_cu_stream stream) {
    const size_t bytes = count * (dtype == FIG_NCCL_F32 ? 4 : 2);
    if (sum != FIG_NCCL_SUM) abort();
    memmove(out, in, bytes);
    put(stream, bytes);
    return begin("ncclAllReduce", comm);
}

static fig_nccl_result all_gather(const void *in, void *out, size_t count, int dtype,
                                  fig_nccl_comm comm, fig_cu_stream stream) {
    if (dtype != FIG_NCCL_U8) abort();
    memmove(out, in, count);
    put(stream, count);
    return begin("ncclAllGather", comm);
}

static const char *words_of(fig_nccl_result result) {
    return result == FIG_NCCL_CUDA_ERROR ? "unhandled cuda error" : "other";
}

static const char *last_error(fig_nccl_comm comm) {
    (void)comm;
    return "as the test wants it";
}

fig_fake_nccl *fig_fake_nccl_install(void) {
    state = (fig_fake_nccl){.looks = 2};
    *fig_nccl_api_table() = (fig_nccl_api){.version = 22803,
                                           .GetErrorString = words_of,
                                           .GetLastError = last_error,
                                           .GetUniqueId = get_id,
                                           .CommInitRankConfig = init,
                                           .CommGetAsyncError = get_error,
                                           .CommFinalize = finalize,
                                           .CommDestroy = destroy,
                                           .CommAbort = end,
                                           .AllReduce = all_reduce,
                                           .AllGather = all_gather};
    return &state;
}

void fig_fake_nccl_remove(void) {
    *fig_nccl_api_table() = (fig_nccl_api){0};
}
