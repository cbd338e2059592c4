/* cuda_scores.c: compiles attention for a score.
 *
 * Compiling takes a second or so, so it happens only when a bucket is prepared. The process has one
 * list of code, under a lock that is never held while the driver compiles: two threads that want
 * the same score may both compile it. Invariant: an entry of the list never changes. */
#include "engine/graph/cuda_scores.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/scores/score_cache.h"
#include "graphs/view/hash.h"
#include "planner/status.h"

enum { KEY_BYTES = FIG_SCORE_CACHE_KEY_BYTES, LOG_BYTES = 512 };

/* Code in memory. */
typedef struct kept_code {
    uint8_t key[KEY_BYTES];
    fig_cuda_score_code code;
    struct kept_code *next;
} kept_code;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept_code *kept;

static const fig_cuda_score_code *find(const uint8_t key[KEY_BYTES]) {
    pthread_mutex_lock(&lock);
    const kept_code *at = kept;
    while (at != NULL && memcmp(at->key, key, KEY_BYTES) != 0)
        at = at->next;
    pthread_mutex_unlock(&lock);
    return at != NULL ? &at->code : NULL;
}

/* Keeps the code, which then belongs to the list. If another thread has kept the same code, the
 * list has it twice. */
static fig_status keep(const uint8_t key[KEY_BYTES], const fig_cuda_score_code *code) {
    kept_code *made = malloc(sizeof *made);
    if (made == NULL) {
        free(code->bytes);
        return fig_fail(FIG_NOMEM, "score: %zu bytes", sizeof *made);
    }
    *made = (kept_code){.code = *code};
    memcpy(made->key, key, KEY_BYTES);
    pthread_mutex_lock(&lock);
    made->next = kept;
    kept = made;
    pthread_mutex_unlock(&lock);
    return FIG_OK;
}

void fig_cuda_scores_forget(void) {
    pthread_mutex_lock(&lock);
    while (kept != NULL) {
        kept_code *first = kept;
        kept = first->next;
        free(first->code.bytes);
        free(first);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- The driver's compiler */

static fig_status refuse(fig_cuda_gpu *gpu, const fig_cuda_score_wish *wish, fig_cu_result result,
                         const char *log) {
    const fig_status status = fig_cuda_gpu_refuse(gpu, result, "cuLink");
    if (status == FIG_LOST || status == FIG_NOMEM) return status;
    char reason[256];
    snprintf(reason, sizeof reason, "%s", fig_message());
    return fig_fail(FIG_UNSUPPORTED,
                    "score: the driver, of CUDA %d.%d, does not compile %s: %s%s%s: without "
                    "compile_scores the score is interpreted",
                    gpu->cu->version / 1000, gpu->cu->version % 1000 / 10, wish->entry, reason,
                    log[0] != '\0' ? ": " : "", log);
}

/* Compiles the text, of `count` bytes with its NUL. The driver owns *code until the link ends. */
static fig_cu_result link_text(fig_cuda_gpu *gpu, fig_cu_link link, fig_ptx_text *text, void **code,
                               size_t *count) {
    const fig_cu_result result = gpu->cu->LinkAddData(link, FIG_CU_LINK_PTX, text->bytes,
                                                      text->count + 1, "score", 0, NULL, NULL);
    return result != FIG_CU_SUCCESS ? result : gpu->cu->LinkComplete(link, code, count);
}

/* Makes the code of a text. The caller frees *code. */
static fig_status compile(fig_cuda_gpu *gpu, const fig_cuda_score_wish *wish, fig_ptx_text *text,
                          uint8_t **code, size_t *count) {
    char log[LOG_BYTES] = "";
    unsigned int options[] = {FIG_CU_LINK_LOG, FIG_CU_LINK_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    fig_cu_link link = NULL;
    void *made = NULL;
    *code = NULL;
    *count = 0;
    fig_cu_result result = gpu->cu->LinkCreate(2, options, values, &link);
    if (result != FIG_CU_SUCCESS) return refuse(gpu, wish, result, "");
    result = link_text(gpu, link, text, &made, count);
    log[LOG_BYTES - 1] = '\0';
    log[strcspn(log, "\n")] = '\0';
    if (result == FIG_CU_SUCCESS) *code = malloc(*count);
    if (*code != NULL) memcpy(*code, made, *count);
    gpu->cu->LinkDestroy(link);
    if (result != FIG_CU_SUCCESS) return refuse(gpu, wish, result, log);
    return *code != NULL ? FIG_OK : fig_fail(FIG_NOMEM, "score: %zu bytes of code", *count);
}

/* ---- Finding code */

static void hash_text(const fig_ptx_text *text, uint8_t sha256[32]) {
    fig_hash_sha256 hash;
    fig_hash_sha256_init(&hash);
    fig_hash_sha256_add(&hash, text->bytes, text->count);
    fig_hash_sha256_finish(&hash, sha256);
}

static void key_of(const fig_cuda_gpu *gpu, const fig_ptx_text *text, uint8_t key[KEY_BYTES]) {
    const int32_t machine[] = {gpu->traits.compute_capability, gpu->cu->version};
    fig_hash_sha256 hash;
    fig_hash_sha256_init(&hash);
    fig_hash_sha256_add(&hash, text->bytes, text->count);
    fig_hash_sha256_add(&hash, machine, sizeof machine);
    fig_hash_sha256_finish(&hash, key);
}

/* Sets *code to the code of the text, from memory, from the folder, or from the driver. A folder
 * that cannot take the code does not keep the score from running. */
static fig_status find_code(fig_cuda_gpu *gpu, const fig_cuda_score_wish *wish, fig_ptx_text *text,
                            const fig_cuda_score_code **code) {
    uint8_t key[KEY_BYTES];
    fig_cuda_score_code made = {.compute_capability = gpu->traits.compute_capability,
                                .driver = gpu->cu->version};
    key_of(gpu, text, key);
    *code = find(key);
    if (*code != NULL) return FIG_OK;
    if (wish->folder != NULL)
        FIG_TRY(fig_score_cache_read(wish->folder, key, &made.bytes, &made.count));
    if (made.bytes == NULL) {
        FIG_TRY(compile(gpu, wish, text, &made.bytes, &made.count));
        if (wish->folder != NULL) fig_score_cache_write(wish->folder, key, made.bytes, made.count);
    }
    hash_text(text, made.ptx);
    FIG_TRY(keep(key, &made));
    *code = find(key);
    return FIG_OK;
}

/* Finds the file's code of this text for this GPU. A driver takes the code of older drivers. */
static const fig_image_compiled *
find_given(const fig_cuda_gpu *gpu, const fig_cuda_score_wish *wish, const fig_ptx_text *text) {
    uint8_t ptx[32];
    const uint32_t count = wish->given != NULL ? wish->given->compiled_count : 0;
    if (count == 0) return NULL;
    hash_text(text, ptx);
    for (uint32_t i = 0; i < count; i++) {
        const fig_image_compiled *one = &wish->given->compiled[i];
        if (one->compute_capability == gpu->traits.compute_capability &&
            one->driver <= gpu->cu->version && memcmp(one->ptx, ptx, sizeof ptx) == 0)
            return one;
    }
    return NULL;
}

static fig_status load(fig_cuda_gpu *gpu, const void *bytes, fig_cu_library *library) {
    CU_TRY(gpu, LibraryLoadData, library, bytes, NULL, NULL, 0, NULL, NULL, 0);
    return FIG_OK;
}

/* Loads the code of a complete text. */
static fig_status load_text(fig_cuda_gpu *gpu, const fig_cuda_score_wish *wish, fig_ptx_text *text,
                            fig_cu_library *library, const fig_cuda_score_code **code) {
    const fig_image_compiled *given = find_given(gpu, wish, text);
    if (given == NULL) FIG_TRY(find_code(gpu, wish, text, code));
    return load(gpu, given != NULL ? given->image.bytes : (*code)->bytes, library);
}

/* Makes the PTX of the wish. fig_ptx_text_finish() frees the text, also after a failure. */
static fig_status complete(const fig_cuda_gpu *gpu, const fig_cuda_score_wish *wish,
                           fig_ptx_text *text) {
    const fig_image image = gpu->cu->score_template(wish->op, wish->family, gpu->path);
    if (image.bytes == NULL)
        return fig_fail(FIG_UNSUPPORTED,
                        "score: this library has no template of %s: without compile_scores the "
                        "score is interpreted",
                        wish->entry);
    return fig_score_template_complete(&image, wish->entry, wish->score, text);
}

fig_status fig_cuda_scores_find(fig_cuda_gpu *gpu, const fig_cuda_score_wish *wish,
                                const fig_cuda_score_code **code) {
    fig_ptx_text text = {0};
    *code = NULL;
    fig_status status = complete(gpu, wish, &text);
    if (status == FIG_OK) status = find_code(gpu, wish, &text, code);
    fig_ptx_text_finish(&text);
    return status;
}

fig_status fig_cuda_scores_load(fig_cuda_gpu *gpu, const fig_cuda_score_wish *wish,
                                fig_cu_library *library, const fig_cuda_score_code **code) {
    fig_ptx_text text = {0};
    *library = NULL;
    *code = wish->code;
    if (wish->code != NULL) return load(gpu, wish->code->bytes, library);
    fig_status status = complete(gpu, wish, &text);
    if (status == FIG_OK) status = load_text(gpu, wish, &text, library, code);
    fig_ptx_text_finish(&text);
    return status;
}
