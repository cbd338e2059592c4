/* cuda_scores.h: attention compiled for a score, by the driver's own compiler.
 *
 * score_template.c writes the PTX; the driver makes code of it for its GPU. The process keeps that
 * code in memory, and in a folder if the caller names one, so that a score is compiled once.
 * Invariant: code is found again only by the SHA-256 of the PTX, the GPU's compute capability and
 * the driver's version. */
#ifndef FIG_ENGINE_CUDA_SCORES_H
#define FIG_ENGINE_CUDA_SCORES_H

#include "engine/driver/cuda_gpu.h"
#include "graphs/scores/score_template.h"

/* Code of a score, kept in memory. */
typedef struct fig_cuda_score_code {
    uint8_t ptx[32]; /* SHA-256 of the PTX */
    int32_t compute_capability, driver;
    uint8_t *bytes; /* [count] */
    size_t count;
} fig_cuda_score_code;

/* What is to be compiled. */
typedef struct fig_cuda_score_wish {
    fig_op op;
    uint32_t family;
    const char *entry;
    const fig_score_code *score;
    const char *folder;         /* NULL: the code is kept in memory alone */
    const fig_image_set *given; /* a file's code, which replaces what would be compiled; or NULL */
    const fig_cuda_score_code *code; /* what fig_cuda_scores_find() gave; NULL: not found yet */
} fig_cuda_score_wish;

/* Finds the code of the entry, in memory or in the folder, or has the driver compile it, whatever
 * `given` holds. Loads nothing. The caller has entered the GPU's context. *code: kept in memory.
 * Fails as fig_cuda_scores_load() does. */
fig_status fig_cuda_scores_find(fig_cuda_gpu *gpu, const fig_cuda_score_wish *wish,
                                const fig_cuda_score_code **code);
/* Loads the entry as a library that holds nothing else. The caller has entered the GPU's context.
 * *code: the code that is kept in memory; NULL if the library is made of given code, which serves
 * only those who trust it. FIG_UNSUPPORTED: there is no template, or the driver does not compile
 * it; the message says how to do without. */
fig_status fig_cuda_scores_load(fig_cuda_gpu *gpu, const fig_cuda_score_wish *wish,
                                fig_cu_library *library, const fig_cuda_score_code **code);
/* Forgets all code in memory, for tests. */
void fig_cuda_scores_forget(void);

#endif
