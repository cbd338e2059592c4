/* cuda_kernels.c: loads an image, finds an entry in it, and requests the entry's shared memory.
 *
 * Invariant: an entry is kept only after its params were compared with the table, so every kernel
 * that a caller gets is checked. */
#include "engine/graph/cuda_kernels.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

/* The shared memory, static and dynamic together, that a launch may use on every chip without
 * opting in. */
enum { FREE_SHARED_BYTES = 48 * 1024 };
/* The largest cluster, in blocks, that a launch may use without opting in. */
enum { FREE_CLUSTER_WIDTH = 8 };

struct fig_cuda_kernel {
    char name[FIG_ENTRY_BYTES];
    fig_cu_kernel kernel;
    uint32_t static_bytes;  /* the size of the static shared memory */
    uint32_t dynamic_bytes; /* the largest dynamic shared memory that a launch may use */
    fig_cuda_kernel *next;
};

struct fig_cuda_scored {
    fig_op op;
    uint32_t family;
    char entry[FIG_ENTRY_BYTES];
    fig_score_code score;
    fig_cuda_image image;
    const fig_cuda_score_code *code; /* NULL: the file's */
    fig_cuda_scored *next;
};

/* Checks the params' sizes: an image compiled for a larger params struct than the table's would
 * read past the end of the params that we pass. */
static fig_status check_params(fig_cuda_gpu *gpu, const fig_cuda_kernel_wish *wish,
                               fig_cu_kernel kernel) {
    size_t ignored = 0, bytes = 0;
    const uint32_t expected = fig_kernel_table[wish->op].params_bytes;
    /* The offset of the params is ignored: the driver derives it from their alignment. */
    CU_TRY(gpu, KernelGetParamInfo, kernel, 0, &ignored, &bytes);
    if (bytes != expected)
        return fig_fail(FIG_DRIVER, "cuda device: %s takes %zu bytes of params, the table has %u",
                        wish->entry, bytes, expected);
    fig_cu_result result = gpu->cu->KernelGetParamInfo(kernel, 1, &ignored, &ignored);
    if (result == FIG_CU_INVALID_VALUE) return FIG_OK;
    if (result != FIG_CU_SUCCESS) return fig_cuda_gpu_refuse(gpu, result, "cuKernelGetParamInfo");
    return fig_fail(FIG_DRIVER, "cuda device: %s takes more than one struct of params",
                    wish->entry);
}

/* This function does not check whether the machine can hold such a cluster; the family does. */
static fig_status allow_cluster(fig_cuda_gpu *gpu, fig_cu_kernel kernel) {
    int width = 0;
    CU_TRY(gpu, KernelGetAttribute, &width, FIG_CU_KERNEL_CLUSTER_WIDTH, kernel, gpu->device);
    if (width > FREE_CLUSTER_WIDTH)
        CU_TRY(gpu, KernelSetAttribute, FIG_CU_KERNEL_LARGE_CLUSTERS, 1, kernel, gpu->device);
    return FIG_OK;
}

static fig_status look_up(fig_cuda_gpu *gpu, fig_cu_library library,
                          const fig_cuda_kernel_wish *wish, fig_cuda_kernel *found) {
    int static_bytes = 0;
    memcpy(found->name, wish->entry, sizeof found->name);
    CU_TRY(gpu, LibraryGetKernel, &found->kernel, library, found->name);
    FIG_TRY(check_params(gpu, wish, found->kernel));
    CU_TRY(gpu, KernelGetAttribute, &static_bytes, FIG_CU_KERNEL_STATIC_SHARED_BYTES, found->kernel,
           gpu->device);
    FIG_TRY(allow_cluster(gpu, found->kernel));
    found->static_bytes = (uint32_t)static_bytes;
    if (found->static_bytes < FREE_SHARED_BYTES)
        found->dynamic_bytes = FREE_SHARED_BYTES - found->static_bytes;
    return FIG_OK;
}

static fig_status find_entry(fig_cuda_gpu *gpu, fig_cuda_image *image,
                             const fig_cuda_kernel_wish *wish, fig_cuda_kernel **out) {
    for (*out = image->entries; *out != NULL; *out = (*out)->next)
        if (strcmp((*out)->name, wish->entry) == 0) return FIG_OK;
    fig_cuda_kernel *found = calloc(1, sizeof *found);
    if (found == NULL) return fig_fail(FIG_NOMEM, "cuda device: %zu bytes", sizeof *found);
    fig_status status = look_up(gpu, image->library, wish, found);
    if (status != FIG_OK) {
        free(found);
        return status;
    }
    found->next = image->entries;
    image->entries = found;
    *out = found;
    return FIG_OK;
}

static void unload(const fig_cuda_gpu *gpu, fig_cuda_image *image) {
    while (image->entries != NULL) {
        fig_cuda_kernel *entry = image->entries;
        image->entries = entry->next;
        free(entry);
    }
    if (image->library != NULL) gpu->cu->LibraryUnload(image->library);
    *image = (fig_cuda_image){0};
}

static fig_image find_image(const fig_cuda_kernels *kernels, const fig_cuda_gpu *gpu,
                            const fig_cuda_kernel_wish *wish) {
    for (uint32_t i = 0; kernels->given != NULL && i < kernels->given->count; i++) {
        const fig_image_given *given = &kernels->given->images[i];
        if (given->op == wish->op && given->family == wish->family && given->path == gpu->path)
            return given->image;
    }
    return gpu->cu->image(wish->op, wish->family, gpu->path);
}

static fig_status load(const fig_cuda_kernels *kernels, fig_cuda_gpu *gpu,
                       const fig_cuda_kernel_wish *wish, fig_cuda_image *image) {
    const fig_image bytes = find_image(kernels, gpu, wish);
    if (bytes.bytes == NULL)
        return fig_fail(FIG_UNSUPPORTED, "cuda device: this library has no image of %s, family %s",
                        fig_kernel_table[wish->op].name,
                        fig_families_of(wish->op, wish->family)->name);
    fig_cu_library library;
    CU_TRY(gpu, LibraryLoadData, &library, bytes.bytes, NULL, NULL, 0, NULL, NULL, 0);
    image->library = library;
    return FIG_OK;
}

static fig_status allow_shared(fig_cuda_gpu *gpu, const fig_cuda_kernel_wish *wish,
                               fig_cuda_kernel *entry) {
    const uint32_t bytes = wish->shared_bytes;
    if (bytes <= entry->dynamic_bytes) return FIG_OK;
    if ((uint64_t)bytes + entry->static_bytes > (uint64_t)gpu->traits.shared_bytes)
        return fig_fail(FIG_UNSUPPORTED,
                        "cuda device: %s needs %" PRIu32 " + %" PRIu32 " bytes of shared memory "
                        "in a block, GPU %d of compute capability %d.%d has %d",
                        entry->name, bytes, entry->static_bytes, gpu->ordinal,
                        gpu->traits.compute_capability / 10, gpu->traits.compute_capability % 10,
                        gpu->traits.shared_bytes);
    CU_TRY(gpu, KernelSetAttribute, FIG_CU_KERNEL_DYNAMIC_SHARED_BYTES, (int)bytes, entry->kernel,
           gpu->device);
    entry->dynamic_bytes = bytes;
    return FIG_OK;
}

/* Finds the image of a family. */
static fig_status find_whole(fig_cuda_kernels *kernels, fig_cuda_gpu *gpu,
                             const fig_cuda_kernel_wish *wish, fig_cuda_image **image) {
    *image = &kernels->images[wish->op][wish->family];
    return (*image)->library != NULL ? FIG_OK : load(kernels, gpu, wish, *image);
}

static fig_cuda_scored *known_score(const fig_cuda_kernels *kernels,
                                    const fig_cuda_kernel_wish *wish) {
    fig_cuda_scored *at = kernels->scored;
    while (at != NULL && (at->op != wish->op || at->family != wish->family ||
                          strcmp(at->entry, wish->entry) != 0 ||
                          memcmp(&at->score, wish->score, sizeof at->score) != 0))
        at = at->next;
    return at;
}

/* Finds an entry that is compiled for the wish's score, or compiles it. Its image has no other
 * entry. */
static fig_status find_scored(fig_cuda_kernels *kernels, fig_cuda_gpu *gpu,
                              const fig_cuda_kernel_wish *wish, fig_cuda_image **image) {
    fig_cuda_scored *at = known_score(kernels, wish);
    if (at == NULL) {
        at = calloc(1, sizeof *at);
        if (at == NULL) return fig_fail(FIG_NOMEM, "cuda device: %zu bytes", sizeof *at);
        at->op = wish->op;
        at->family = wish->family;
        at->score = *wish->score;
        memcpy(at->entry, wish->entry, sizeof at->entry);
        at->next = kernels->scored;
        kernels->scored = at;
    }
    *image = &at->image;
    if (at->image.library != NULL) return FIG_OK;
    const fig_cuda_score_wish score = {wish->op,
                                       wish->family,
                                       at->entry,
                                       &at->score,
                                       wish->folder != NULL ? wish->folder : kernels->folder,
                                       kernels->given,
                                       wish->code};
    return fig_cuda_scores_load(gpu, &score, &at->image.library, &at->code);
}

/* Unloads an image again if its first entry fails the check. */
fig_status fig_cuda_kernels_take(fig_cuda_kernels *kernels, fig_cuda_gpu *gpu,
                                 const fig_cuda_kernel_wish *wish, fig_cu_kernel *kernel) {
    fig_cuda_image *image = NULL;
    fig_cuda_kernel *entry = NULL;
    *kernel = NULL;
    FIG_TRY(wish->score != NULL ? find_scored(kernels, gpu, wish, &image)
                                : find_whole(kernels, gpu, wish, &image));
    fig_status status = find_entry(gpu, image, wish, &entry);
    if (status != FIG_OK && image->entries == NULL) unload(gpu, image);
    FIG_TRY(status);
    FIG_TRY(allow_shared(gpu, wish, entry));
    *kernel = entry->kernel;
    return FIG_OK;
}

const fig_cuda_score_code *fig_cuda_kernels_code(const fig_cuda_kernels *kernels,
                                                 const fig_cuda_kernel_wish *wish) {
    const fig_cuda_scored *at = wish->score != NULL ? known_score(kernels, wish) : NULL;
    return at != NULL ? at->code : NULL;
}

fig_status fig_cuda_kernels_try(fig_cuda_kernels *kernels, fig_cuda_gpu *gpu) {
    const fig_cuda_kernel_wish fetch = {.op = FIG_OP_FETCH, .entry = "fig_kernel_fetch"};
    fig_cu_kernel kernel;
    const fig_status status = fig_cuda_kernels_take(kernels, gpu, &fetch, &kernel);
    if (status != FIG_DRIVER) return status;
    return fig_fail(FIG_NO_DEVICE,
                    "cuda device: the driver, of CUDA %d.%d, does not take the kernels: %s",
                    gpu->cu->version / 1000, gpu->cu->version % 1000 / 10, fig_message());
}

void fig_cuda_kernels_finish(fig_cuda_kernels *kernels, const fig_cuda_gpu *gpu) {
    for (int op = 0; op < FIG_OP_KERNEL_COUNT; op++)
        for (int family = 0; family < FIG_FAMILY_LIMIT; family++)
            unload(gpu, &kernels->images[op][family]);
    while (kernels->scored != NULL) {
        fig_cuda_scored *first = kernels->scored;
        kernels->scored = first->next;
        unload(gpu, &first->image);
        free(first);
    }
}
