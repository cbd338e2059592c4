/* cuda_nccl.c: opens a communicator, captures its collectives, and ends it in bounded time.
 *
 * The communicator is non-blocking: each call begins an operation, and this file polls until the
 * operation has ended or the group's timeout has passed. Invariant: a communicator that could not
 * be opened completely is aborted, so that none of its threads or kernels waits for a rank that
 * will never join. */
#include "engine/cuda/cuda_nccl.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/seam/clock.h"
#include "include/figraph_ranks.h"
#include "kernels/common/numeric.h"
#include "planner/status.h"

enum { LOOK_NS = 50000, LEAST_BYTES = 16, END_US = 2000000 };

/* ---- Results ------------------------------------------------------------------------------- */

static fig_status refuse(const fig_cuda_nccl *nccl, fig_nccl_result result, const char *call) {
    const char *words = nccl->comm != NULL ? nccl->api->GetLastError(nccl->comm) : "";
    return fig_fail(FIG_DRIVER, "nccl: %s: %s%s%.160s", call, nccl->api->GetErrorString(result),
                    words != NULL && words[0] != '\0' ? ": " : "", words != NULL ? words : "");
}

/* Polls until the NCCL operation that `call` began has ended. */
static fig_status settle(const fig_cuda_nccl *nccl, fig_nccl_result result, const char *call) {
    const int64_t until_ns = fig_clock_ns() + nccl->timeout_us * 1000;
    const struct timespec nap = {0, LOOK_NS};
    while (result == FIG_NCCL_IN_PROGRESS) {
        FIG_TRY(fig_ranks_check(nccl->ranks));
        if (fig_clock_ns() > until_ns)
            return fig_fail(FIG_TIMEOUT, "nccl: %s: not all ranks came within %" PRId64 " us", call,
                            nccl->timeout_us);
        fig_nccl_result asked = nccl->api->CommGetAsyncError(nccl->comm, &result);
        if (asked != FIG_NCCL_SUCCESS) result = asked;
        if (result == FIG_NCCL_IN_PROGRESS) nanosleep(&nap, NULL);
    }
    return result == FIG_NCCL_SUCCESS ? FIG_OK : refuse(nccl, result, call);
}

#define NCCL_TRY(nccl, name, ...)                                                                  \
    FIG_TRY(settle((nccl), (nccl)->api->name(__VA_ARGS__), "nccl" #name))

/* ---- Open and close ------------------------------------------------------------------------ */

/* The message that rank 0 sends to the other ranks. */
typedef struct invitation {
    fig_nccl_result result;
    fig_nccl_id id;
} invitation;

static fig_status join(fig_cuda_nccl *nccl) {
    invitation own = {.result = FIG_NCCL_SUCCESS}, all[FIG_RANKS_LIMIT];
    fig_nccl_config config = {
        .size = sizeof config, .magic = FIG_NCCL_CONFIG_MAGIC, .version = FIG_NCCL_LEAST_VERSION};
    const fig_ranks_field field = {
        .name = "NCCL's version", .bytes = &nccl->api->version, .count = sizeof nccl->api->version};
    FIG_TRY(fig_ranks_agree(nccl->ranks, &field, 1));
    if (nccl->rank == 0) own.result = nccl->api->GetUniqueId(&own.id);
    FIG_TRY(fig_ranks_all_gather(nccl->ranks, &own, sizeof own, all));
    if (all[0].result != FIG_NCCL_SUCCESS) return refuse(nccl, all[0].result, "ncclGetUniqueId");
    const fig_nccl_result result =
        nccl->api->CommInitRankConfig(&nccl->comm, nccl->count, all[0].id, nccl->rank, &config);
    return settle(nccl, result, "ncclCommInitRankConfig");
}

static fig_status reserve(fig_cuda_gpu *gpu, uint64_t bytes, fig_cu_address *address) {
    CU_TRY(gpu, MemAlloc, address, bytes);
    CU_TRY(gpu, MemsetD8Async, *address, 0, bytes, gpu->aside);
    return FIG_OK;
}

/* Waits until the stream is idle. The wait has a bound, because the work on the stream waits for
 * other ranks. */
static fig_status drain(fig_cuda_nccl *nccl, fig_cuda_gpu *gpu) {
    const int64_t until_ns = fig_clock_ns() + nccl->timeout_us * 1000;
    const struct timespec nap = {0, LOOK_NS};
    for (;;) {
        const fig_cu_result result = gpu->cu->StreamQuery(gpu->aside);
        if (result == FIG_CU_SUCCESS) return FIG_OK;
        if (result != FIG_CU_NOT_READY) return fig_cuda_gpu_refuse(gpu, result, "cuStreamQuery");
        FIG_TRY(fig_ranks_check(nccl->ranks));
        if (fig_clock_ns() > until_ns)
            return fig_fail(FIG_TIMEOUT,
                            "nccl: not all ranks came to its first calls within %" PRId64 " us",
                            nccl->timeout_us);
        nanosleep(&nap, NULL);
    }
}

/* Runs collectives of small, medium and large sizes: NCCL may use a different protocol for each
 * size, and each protocol has its own connections. */
static fig_status warm_up(fig_cuda_nccl *nccl, fig_cuda_gpu *gpu) {
    void *own = (void *)(uintptr_t)nccl->parts;
    for (uint64_t bytes = LEAST_BYTES;; bytes *= 4) {
        if (bytes > nccl->byte_limit) bytes = nccl->byte_limit;
        NCCL_TRY(nccl, AllReduce, own, own, bytes / 2, FIG_NCCL_BF16, FIG_NCCL_SUM, nccl->comm,
                 gpu->aside);
        NCCL_TRY(nccl, AllGather, (uint8_t *)own + (uint64_t)nccl->rank * bytes, own, bytes,
                 FIG_NCCL_U8, nccl->comm, gpu->aside);
        if (bytes == nccl->byte_limit) break;
    }
    return drain(nccl, gpu);
}

fig_status fig_cuda_nccl_init(fig_cuda_nccl *nccl, fig_cuda_gpu *gpu,
                              const fig_cuda_nccl_wish *wish) {
    const uint64_t count = (uint64_t)wish->count;
    *nccl = (fig_cuda_nccl){.api = fig_nccl_api_table(),
                            .in_use = PTHREAD_MUTEX_INITIALIZER,
                            .ranks = wish->ranks,
                            .timeout_us = wish->timeout_us,
                            .rank = wish->rank,
                            .count = wish->count,
                            .byte_limit = wish->byte_limit};
    FIG_TRY(reserve(gpu, count * sizeof(fig_peers_place), &nccl->places));
    return reserve(gpu, count * wish->byte_limit, &nccl->parts);
}

fig_status fig_cuda_nccl_open(fig_cuda_nccl *nccl, fig_cuda_gpu *gpu) {
    fig_status status = join(nccl);
    if (status == FIG_OK) status = warm_up(nccl, gpu);
    if (status != FIG_OK) fig_cuda_nccl_abort(nccl);
    return status;
}

/* The thread that ends a communicator. NCCL stops its kernels at once, but then waits until no
 * graph holds any of its work. The calling thread may still have to destroy such a graph, so it
 * must not wait itself. */
struct fig_cuda_nccl_ending {
    fig_nccl_result (*end)(fig_nccl_comm);
    fig_nccl_comm comm;
    pthread_t thread;
    pthread_mutex_t mutex;
    /* The mutex protects both. is_done: the thread has ended. is_left: finish_ending() has stopped
     * waiting for the thread. */
    int is_done, is_left;
};

static void release_ending(struct fig_cuda_nccl_ending *ending) {
    pthread_mutex_destroy(&ending->mutex);
    free(ending);
}

static void *end_communicator(void *user) {
    struct fig_cuda_nccl_ending *ending = user;
    ending->end(ending->comm);
    pthread_mutex_lock(&ending->mutex);
    ending->is_done = 1;
    const int is_left = ending->is_left;
    pthread_mutex_unlock(&ending->mutex);
    if (is_left) release_ending(ending);
    return NULL;
}

static void begin_ending(fig_cuda_nccl *nccl, fig_nccl_result (*end)(fig_nccl_comm)) {
    struct fig_cuda_nccl_ending *ending = calloc(1, sizeof *ending);
    if (ending != NULL) {
        *ending = (struct fig_cuda_nccl_ending){
            .end = end, .comm = nccl->comm, .mutex = PTHREAD_MUTEX_INITIALIZER};
        if (pthread_create(&ending->thread, NULL, end_communicator, ending) == 0) {
            nccl->ending = ending;
        } else {
            free(ending);
        }
    }
    /* If no thread can be started, the communicator is leaked, because waiting might never end. */
    nccl->comm = NULL;
}

/* Returns 1 if the thread has ended. If it has not and is_left is 1, the caller must stop waiting,
 * and the thread later frees `ending` itself. */
static int has_ended(struct fig_cuda_nccl_ending *ending, int is_left) {
    pthread_mutex_lock(&ending->mutex);
    const int is_done = ending->is_done;
    ending->is_left = is_left && !is_done;
    pthread_mutex_unlock(&ending->mutex);
    return is_done;
}

/* Waits for the thread, in bounded time. If the thread has not ended by then, for example because
 * NCCL waits for a caller's graph that still exists, this function detaches the thread and keeps
 * the context for it. */
static void finish_ending(fig_cuda_nccl *nccl, const fig_cuda_gpu *gpu) {
    struct fig_cuda_nccl_ending *ending = nccl->ending;
    const int64_t until_ns = fig_clock_ns() + nccl->timeout_us * 1000;
    const struct timespec nap = {0, LOOK_NS};
    fig_cu_context kept;
    if (ending == NULL) return;
    nccl->ending = NULL;
    while (!has_ended(ending, 0) && fig_clock_ns() < until_ns)
        nanosleep(&nap, NULL);
    const pthread_t thread = ending->thread;
    if (has_ended(ending, 1)) {
        pthread_join(thread, NULL);
        release_ending(ending);
    } else {
        gpu->cu->DevicePrimaryCtxRetain(&kept, gpu->device);
        pthread_detach(thread);
    }
}

/* Does not wait for a capture: that may itself wait for NCCL, and only the group's timeout ends
 * it. */
void fig_cuda_nccl_abort(fig_cuda_nccl *nccl) {
    if (nccl->api == NULL || pthread_mutex_trylock(&nccl->in_use) != 0) return;
    if (nccl->comm != NULL) begin_ending(nccl, nccl->api->CommAbort);
    pthread_mutex_unlock(&nccl->in_use);
}

void fig_cuda_nccl_close(fig_cuda_nccl *nccl, fig_cuda_gpu *gpu) {
    if (nccl->timeout_us > END_US) nccl->timeout_us = END_US;
    if (nccl->comm != NULL) {
        const fig_nccl_result result = nccl->api->CommFinalize(nccl->comm);
        const fig_status status = settle(nccl, result, "ncclCommFinalize");
        begin_ending(nccl, status == FIG_OK ? nccl->api->CommDestroy : nccl->api->CommAbort);
    }
    finish_ending(nccl, gpu);
    if (nccl->api != NULL) pthread_mutex_destroy(&nccl->in_use);
    if (nccl->places != 0) gpu->cu->MemFree(nccl->places);
    if (nccl->parts != 0) gpu->cu->MemFree(nccl->parts);
    *nccl = (fig_cuda_nccl){0};
}

/* ---- Collectives --------------------------------------------------------------------------- */

/* One of our kernels, and its launch on the capturing stream. */
typedef struct kernel_call {
    fig_op op;
    uint32_t family;
    const char *entry;
    fig_launch_shape shape;
    void *params;
} kernel_call;

static fig_status launch(const fig_cuda_nccl_job *job, fig_cu_stream stream,
                         const kernel_call *call) {
    fig_cuda_kernel_wish wish = {
        .op = call->op, .family = call->family, .shared_bytes = call->shape.shared_bytes};
    fig_cu_launch config = {.shared_bytes = call->shape.shared_bytes, .stream = stream};
    void *params[] = {call->params};
    fig_cu_kernel kernel;
    fig_cu_function function;
    memcpy(config.grid, call->shape.grid, sizeof config.grid);
    memcpy(config.block, call->shape.block, sizeof config.block);
    strncpy(wish.entry, call->entry, sizeof wish.entry - 1);
    FIG_TRY(fig_cuda_kernels_take(job->kernels, job->gpu, &wish, &kernel));
    CU_TRY(job->gpu, KernelGetFunction, &function, kernel);
    CU_TRY(job->gpu, FuncLoad, function);
    CU_TRY(job->gpu, LaunchKernelEx, &config, function, params, NULL);
    return FIG_OK;
}

/* Launches one of the single-block kernels around a collective. */
static fig_status note(const fig_cuda_nccl_job *job, fig_cu_stream stream, const char *entry,
                       fig_all_reduce_params *params) {
    const kernel_call call = {.op = FIG_OP_ALL_REDUCE,
                              .family = FIG_FAMILY_ALL_REDUCE_NCCL,
                              .entry = entry,
                              .shape = {{1, 1, 1}, {FIG_RANKS_LIMIT, 1, 1}, 0},
                              .params = params};
    return launch(job, stream, &call);
}

static fig_status announce(const fig_cuda_nccl_job *job, fig_cu_stream stream,
                           fig_all_reduce_params *params) {
    fig_peers_place *places = (fig_peers_place *)(uintptr_t)job->nccl->places;
    params->out = places;
    FIG_TRY(note(job, stream, "fig_kernel_all_reduce_nccl_begin", params));
    NCCL_TRY(job->nccl, AllGather, places + job->nccl->rank, places, sizeof *places, FIG_NCCL_U8,
             job->nccl->comm, stream);
    return note(job, stream, "fig_kernel_all_reduce_nccl_compare", params);
}

static int nccl_dtype_of(int32_t dtype) {
    if (dtype == FIG_F32) return FIG_NCCL_F32;
    return dtype == FIG_F16 ? FIG_NCCL_F16 : FIG_NCCL_BF16;
}

static fig_status norm(const fig_cuda_nccl_job *job, fig_cu_stream stream,
                       const fig_all_reduce_params *p) {
    fig_rms_norm_params params = {.in = p->out,
                                  .weight = p->weight,
                                  .out = p->out,
                                  .residual = p->residual,
                                  .plan = p->plan,
                                  .in_stride = p->width,
                                  .out_stride = p->width,
                                  .residual_stride = p->width,
                                  .rows = p->rows,
                                  .width = p->width,
                                  .dtype = p->dtype,
                                  .epsilon = p->epsilon,
                                  .weight_offset = p->weight_offset};
    fig_family_choice choice;
    fig_traits traits = job->gpu->traits;
    traits.compute_capability = fig_images_capability(job->gpu->path);
    fig_families_choose(FIG_OP_RMS_NORM, &params, &traits, &choice);
    const kernel_call call = {FIG_OP_RMS_NORM, choice.family, choice.entry, choice.shape, &params};
    return launch(job, stream, &call);
}

static fig_status enqueue_reduce(const fig_cuda_nccl_job *job, int tells, fig_cu_stream stream) {
    fig_all_reduce_params params;
    memcpy(&params, job->launch->params, sizeof params);
    const fig_all_reduce_params p = params;
    const size_t numbers = (size_t)p.rows.row_limit * (size_t)p.width;
    if (tells) FIG_TRY(announce(job, stream, &params));
    NCCL_TRY(job->nccl, AllReduce, p.in, p.out, numbers, nccl_dtype_of(p.dtype), FIG_NCCL_SUM,
             job->nccl->comm, stream);
    return p.weight != NULL ? norm(job, stream, &p) : FIG_OK;
}

/* NCCL gathers the rows of each rank as one block; our kernel then copies each row to its place. */
static fig_status enqueue_gather(const fig_cuda_nccl_job *job, int tells, fig_cu_stream stream) {
    fig_all_gather_params params;
    memcpy(&params, job->launch->params, sizeof params);
    fig_all_reduce_params around = {.plan = params.plan,
                                    .state = params.state,
                                    .peers = params.peers,
                                    .rows = params.rows,
                                    .node = params.node};
    const size_t bytes = (size_t)params.rows.row_limit * (size_t)params.width *
                         (size_t)fig_numeric_bytes(params.dtype);
    void *parts = (void *)(uintptr_t)job->nccl->parts;
    if (tells) FIG_TRY(announce(job, stream, &around));
    NCCL_TRY(job->nccl, AllGather, params.in, parts, bytes, FIG_NCCL_U8, job->nccl->comm, stream);
    params.in = parts;
    kernel_call call = {FIG_OP_ALL_GATHER,
                        job->launch->family,
                        "fig_kernel_all_gather_nccl",
                        {{0, 0, 0}, {0, 0, 0}, 0},
                        &params};
    memcpy(call.shape.grid, job->launch->grid, sizeof call.shape.grid);
    memcpy(call.shape.block, job->launch->block, sizeof call.shape.block);
    return launch(job, stream, &call);
}

/* A job, and the result of capturing it. */
typedef struct capture {
    const fig_cuda_nccl_job *job;
    int tells; /* 1: the ranks first exchange their step and node */
    fig_status status;
    char sentence[256];
} capture;

static int32_t enqueue(void *user, const fig_call_args *args) {
    capture *c = user;
    pthread_mutex_lock(&c->job->nccl->in_use);
    if (c->job->nccl->comm == NULL) {
        c->status = fig_fail(FIG_LOST, "nccl: the communicator was aborted");
    } else if (fig_kernel_table[c->job->launch->op].meets == FIG_MEETING_SUM) {
        c->status = enqueue_reduce(c->job, c->tells, args->stream);
    } else {
        c->status = enqueue_gather(c->job, c->tells, args->stream);
    }
    pthread_mutex_unlock(&c->job->nccl->in_use);
    if (c->status == FIG_OK) return 0;
    snprintf(c->sentence, sizeof c->sentence, "%s", fig_message());
    return (int32_t)c->status;
}

fig_status fig_cuda_nccl_capture(const fig_cuda_nccl_job *job, fig_cuda_work *work,
                                 fig_dev_after after) {
    capture c = {.job = job, .tells = work->last_part == 0};
    const fig_dev_call call = {
        .callback = enqueue, .user = &c, .name = fig_table_op_name(job->launch->op)};
    const fig_status status = fig_cuda_work_part(work, job->gpu, &call, after);
    return c.status != FIG_OK ? fig_status_relay(c.status, c.sentence) : status;
}

fig_status fig_cuda_nccl_end(const fig_cuda_nccl_job *job, fig_cuda_work *work,
                             fig_cu_address peers) {
    const uint32_t last = (uint32_t)work->last_part - 1;
    const fig_all_reduce_params params = {.peers = (fig_peers *)(uintptr_t)peers};
    const fig_dev_launch launch = {.op = FIG_OP_ALL_REDUCE,
                                   .family = FIG_FAMILY_ALL_REDUCE_NCCL,
                                   .grid = {1, 1, 1},
                                   .block = {1, 1, 1},
                                   .params = &params,
                                   .params_bytes = sizeof params,
                                   .is_leaf = 1};
    if (!fig_cuda_nccl_lacks_end(work)) return FIG_OK;
    FIG_TRY(fig_cuda_work_kernel(work, job->gpu, job->kernels, &launch, (fig_dev_after){&last, 1}));
    work->is_ended = 1;
    return FIG_OK;
}
