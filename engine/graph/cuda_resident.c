/* cuda_resident.c: keeps GPUs, and the kernels loaded on them, until the process ends.
 *
 * The process has one table of these GPUs. Threads use the table only at set-up, and under a lock,
 * which is not held while a driver compiles a score, because this may take seconds. Invariant: a
 * row that is in use holds the context of its GPU. */
#include "engine/graph/cuda_resident.h"

#include <pthread.h>

#include "planner/status.h"

enum { RESIDENT_LIMIT = 64 };

struct fig_cuda_resident {
    int is_used, ordinal, plain;
    fig_cuda_gpu gpu;
    fig_cuda_kernels kernels;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fig_cuda_resident residents[RESIDENT_LIMIT];

/* Returns the row of this GPU, or a free row if the GPU has no row. Returns NULL if the table is
 * full. */
static fig_cuda_resident *find(int ordinal, int plain) {
    fig_cuda_resident *unused = NULL;
    for (int i = 0; i < RESIDENT_LIMIT; i++) {
        fig_cuda_resident *row = &residents[i];
        if (row->is_used && row->ordinal == ordinal && row->plain == plain) return row;
        if (!row->is_used && unused == NULL) unused = row;
    }
    return unused;
}

static fig_status hold(fig_cuda_resident *row, int ordinal, int plain) {
    FIG_TRY(fig_cuda_gpu_find(&row->gpu, ordinal, plain));
    const fig_status status = fig_cuda_gpu_open(&row->gpu);
    if (status != FIG_OK) {
        fig_cuda_gpu_close(&row->gpu);
        return status;
    }
    row->ordinal = ordinal;
    row->plain = plain;
    row->is_used = 1;
    return FIG_OK;
}

fig_status fig_cuda_resident_open(fig_cuda_resident **resident, int ordinal, int plain) {
    fig_status status = FIG_OK;
    *resident = NULL;
    pthread_mutex_lock(&lock);
    fig_cuda_resident *row = find(ordinal, plain);
    if (row == NULL)
        status = fig_fail(FIG_NOMEM, "cuda device: %d GPUs are held already, which is the limit",
                          RESIDENT_LIMIT);
    if (status == FIG_OK && !row->is_used) status = hold(row, ordinal, plain);
    if (status == FIG_OK) status = fig_cuda_gpu_check(&row->gpu);
    if (status == FIG_OK) *resident = row;
    pthread_mutex_unlock(&lock);
    return status;
}

fig_cuda_gpu fig_cuda_resident_gpu(fig_cuda_resident *resident) {
    pthread_mutex_lock(&lock);
    const fig_cuda_gpu gpu = resident->gpu;
    pthread_mutex_unlock(&lock);
    return gpu;
}

static fig_status take(fig_cuda_resident *resident, const fig_cuda_kernel_wish *wish,
                       fig_cu_function *function) {
    fig_cuda_gpu *gpu = &resident->gpu;
    fig_cu_kernel kernel;
    FIG_TRY(fig_cuda_kernels_take(&resident->kernels, gpu, wish, &kernel));
    CU_TRY(gpu, KernelGetFunction, function, kernel);
    CU_TRY(gpu, FuncLoad, *function);
    return FIG_OK;
}

const fig_cuda_score_code *fig_cuda_resident_code(fig_cuda_resident *resident,
                                                  const fig_cuda_kernel_wish *wish) {
    pthread_mutex_lock(&lock);
    const fig_cuda_score_code *code = fig_cuda_kernels_code(&resident->kernels, wish);
    pthread_mutex_unlock(&lock);
    return code;
}

/* Finds the code of a score, with a copy of the GPU's struct, because other threads use the
 * original. */
static fig_status find_code(fig_cuda_resident *resident, const fig_cuda_kernel_wish *wish,
                            const fig_cuda_score_code **code) {
    const fig_cuda_score_wish score = {.op = wish->op,
                                       .family = wish->family,
                                       .entry = wish->entry,
                                       .score = wish->score,
                                       .folder = wish->folder};
    *code = wish->score != NULL ? fig_cuda_resident_code(resident, wish) : NULL;
    if (wish->score == NULL || *code != NULL) return FIG_OK;
    fig_cuda_gpu gpu = fig_cuda_resident_gpu(resident);
    FIG_TRY(fig_cuda_gpu_enter(&gpu));
    return fig_cuda_gpu_leave(&gpu, fig_cuda_scores_find(&gpu, &score, code));
}

fig_status fig_cuda_resident_take(fig_cuda_resident *resident, const fig_cuda_kernel_wish *wish,
                                  fig_cu_function *function) {
    fig_cuda_kernel_wish found = *wish;
    *function = NULL;
    FIG_TRY(find_code(resident, wish, &found.code));
    pthread_mutex_lock(&lock);
    fig_status status = fig_cuda_gpu_enter(&resident->gpu);
    if (status == FIG_OK)
        status = fig_cuda_gpu_leave(&resident->gpu, take(resident, &found, function));
    pthread_mutex_unlock(&lock);
    return status;
}

void fig_cuda_resident_forget(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RESIDENT_LIMIT; i++) {
        fig_cuda_resident *row = &residents[i];
        if (!row->is_used) continue;
        fig_cuda_gpu_enter_to_free(&row->gpu);
        fig_cuda_kernels_finish(&row->kernels, &row->gpu);
        fig_cuda_gpu_leave(&row->gpu, FIG_OK);
        fig_cuda_gpu_close(&row->gpu);
        *row = (fig_cuda_resident){0};
    }
    pthread_mutex_unlock(&lock);
}
