/* blas_cuda.c: memory of a GPU by the CUDA runtime, and matrix products by cuBLAS.
 *
 * Both are opened when the program runs, so that one program runs with and without a GPU. A program
 * that always has one includes cublas_v2.h, links with -lcublas -lcudart, and calls cudaMalloc
 * where this says cuda.Malloc, cublasGemmEx where it says cublas.GemmEx. */
#include "examples/blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum {
    DEVICE_TO_DEVICE = 3, /* cudaMemcpyDeviceToDevice */
    HOST_TO_DEVICE = 1,
    NO_TRANSPOSE = 0,          /* CUBLAS_OP_N */
    TRANSPOSE = 1,             /* CUBLAS_OP_T */
    BF16 = 14,                 /* CUDA_R_16BF */
    SUMS_IN_F32 = 68,          /* CUBLAS_COMPUTE_32F */
    ITS_OWN_CHOICE = -1,       /* CUBLAS_GEMM_DEFAULT */
    WORKSPACE_BYTES = 32 << 20 /* what cuBLAS asks for on compute capability 9.0 */
};

static struct {
    int (*GetDeviceCount)(int *count);
    int (*SetDevice)(int device);
    int (*Malloc)(void **memory, size_t bytes);
    int (*Free)(void *memory);
    int (*Memcpy)(void *to, const void *from, size_t bytes, int kind);
    int (*MemcpyAsync)(void *to, const void *from, size_t bytes, int kind, void *stream);
    int (*Memcpy2DAsync)(void *to, size_t to_stride, const void *from, size_t from_stride,
                         size_t row_bytes, size_t rows, int kind, void *stream);
    int (*DeviceSynchronize)(void);
    const char *(*GetErrorString)(int error);
} cuda;

static struct {
    int (*Create_v2)(void **handle);
    int (*Destroy_v2)(void *handle);
    int (*SetStream_v2)(void *handle, void *stream);
    int (*SetWorkspace_v2)(void *handle, void *workspace, size_t bytes);
    int (*GemmEx)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                  const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                  const void *beta, void *c, int type_c, int ldc, int compute, int algorithm);
} cublas;

static void *handle, *workspace;

/* ---- Opening ------------------------------------------------------------------------------- */

typedef struct entry {
    const char *name;
    void *place;
} entry;

/* The first library that is there, by the name of each major version, and its entries. */
static int open_library(const char *const names[2], const entry *entries, size_t count) {
    void *library = dlopen(names[0], RTLD_NOW);
    if (library == NULL) library = dlopen(names[1], RTLD_NOW);
    for (size_t i = 0; i < count; i++) {
        void *found = library != NULL ? dlsym(library, entries[i].name) : NULL;
        if (found == NULL) return 1;
        memcpy(entries[i].place, &found, sizeof found);
    }
    return 0;
}

static int refuse(const char *call, int result) {
    fprintf(stderr, "layers: %s: %s\n", call, cuda.GetErrorString(result));
    return 1;
}

#define CUDA(call, arguments)                                                                      \
    do {                                                                                           \
        const int result_ = cuda.call arguments;                                                   \
        if (result_ != 0) return refuse("cuda" #call, result_);                                    \
    } while (0)
#define CUBLAS(call, arguments)                                                                    \
    do {                                                                                           \
        const int result_ = cublas.call arguments;                                                 \
        if (result_ != 0) return fprintf(stderr, "layers: cublas" #call ": %d\n", result_), 1;     \
    } while (0)

static int open_runtime(void) {
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12"};
    const entry entries[] = {{"cudaGetDeviceCount", &cuda.GetDeviceCount},
                             {"cudaSetDevice", &cuda.SetDevice},
                             {"cudaMalloc", &cuda.Malloc},
                             {"cudaFree", &cuda.Free},
                             {"cudaMemcpy", &cuda.Memcpy},
                             {"cudaMemcpyAsync", &cuda.MemcpyAsync},
                             {"cudaMemcpy2DAsync", &cuda.Memcpy2DAsync},
                             {"cudaDeviceSynchronize", &cuda.DeviceSynchronize},
                             {"cudaGetErrorString", &cuda.GetErrorString}};
    return open_library(names, entries, sizeof entries / sizeof *entries);
}

int32_t blas_cuda_count(void) {
    int count = 0;
    return open_runtime() == 0 && cuda.GetDeviceCount(&count) == 0 ? count : 0;
}

/* Where each rank was shown a GPU of its own, that is number 0 for all of them. */
static int open_cuda(int32_t local_rank, int32_t *ordinal) {
    int count = 0;
    if (open_runtime() != 0) return fprintf(stderr, "layers: no libcudart\n"), 1;
    CUDA(GetDeviceCount, (&count));
    *ordinal = local_rank % count;
    CUDA(SetDevice, (*ordinal));
    CUDA(Free, (NULL)); /* until here some versions put off the work */
    return 0;
}

static int open_products(void) {
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
    const entry entries[] = {{"cublasCreate_v2", &cublas.Create_v2},
                             {"cublasDestroy_v2", &cublas.Destroy_v2},
                             {"cublasSetStream_v2", &cublas.SetStream_v2},
                             {"cublasSetWorkspace_v2", &cublas.SetWorkspace_v2},
                             {"cublasGemmEx", &cublas.GemmEx}};
    if (open_library(names, entries, sizeof entries / sizeof *entries) != 0)
        return fprintf(stderr, "layers: no libcublas\n"), 1;
    CUDA(Malloc, (&workspace, WORKSPACE_BYTES));
    CUBLAS(Create_v2, (&handle));
    return 0;
}

static void close_cuda(void) {
    if (handle != NULL) cublas.Destroy_v2(handle);
    if (workspace != NULL) cuda.Free(workspace);
    handle = workspace = NULL;
}

/* ---- Memory -------------------------------------------------------------------------------- */

static void *allocate(size_t bytes) {
    void *memory;
    return cuda.Malloc(&memory, bytes) == 0 ? memory : NULL;
}

static void release(void *memory) {
    cuda.Free(memory);
}

static int write_cuda(void *to, const void *from, size_t bytes) {
    CUDA(Memcpy, (to, from, bytes, HOST_TO_DEVICE));
    return 0;
}

static int copy_block(const blas_block *block) {
    CUDA(Memcpy2DAsync, (block->to, block->to_stride, block->from, block->from_stride,
                         block->row_bytes, block->rows, DEVICE_TO_DEVICE, NULL));
    return 0;
}

static int wait_cuda(void) {
    CUDA(DeviceSynchronize, ());
    return 0;
}

static int copy(void *to, const void *from, size_t bytes, void *stream) {
    CUDA(MemcpyAsync, (to, from, bytes, DEVICE_TO_DEVICE, stream));
    return 0;
}

/* ---- Products ------------------------------------------------------------------------------ */

/* To cuBLAS, which counts columns first, each matrix is the transpose: y' = w x'. Setting the
 * stream takes the workspace away, and cuBLAS would allocate one, which a capture forbids. */
static int multiply(const blas_product *product, void *stream) {
    const float zero = 0;
    CUBLAS(SetStream_v2, (handle, stream));
    CUBLAS(SetWorkspace_v2, (handle, workspace, WORKSPACE_BYTES));
    CUBLAS(GemmEx,
           (handle, TRANSPOSE, NO_TRANSPOSE, product->width, product->rows, product->depth,
            &product->scale, product->w, BF16, product->depth, product->x, BF16, product->depth,
            &zero, product->y, BF16, product->y_stride, SUMS_IN_F32, ITS_OWN_CHOICE));
    return 0;
}

const blas blas_cuda = {.open = open_cuda,
                        .open_products = open_products,
                        .close = close_cuda,
                        .allocate = allocate,
                        .release = release,
                        .write = write_cuda,
                        .copy_block = copy_block,
                        .wait = wait_cuda,
                        .copy = copy,
                        .multiply = multiply};
