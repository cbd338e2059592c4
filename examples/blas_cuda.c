/* blas_cuda.c: allocates GPU memory with the CUDA runtime and multiplies matrices with cuBLASLt.
 *
 * For shapes that blas_few.c multiplies faster, blas_few.c replaces cuBLASLt. The libraries are
 * opened when the program runs, so that one program runs with and without a GPU. A program that
 * always has a GPU can include cublasLt.h and link with -lcublasLt -lcudart. It then calls
 * cudaMalloc where this file says cuda.Malloc, and cublasLtMatmul where this file says
 * cublas.Matmul. */
#include "examples/blas.h"

#include "examples/blas_few.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    DEVICE_TO_DEVICE = 3, /* cudaMemcpyDeviceToDevice */
    EITHER_WAY = 4,       /* cudaMemcpyDefault: the addresses give the direction */
    BF16 = 14,            /* CUDA_R_16BF */
    F32 = 0,              /* CUDA_R_32F */
    SUMS_IN_F32 = 68,     /* CUBLAS_COMPUTE_32F */
    TRANSPOSE = 1,        /* CUBLAS_OP_T */
    TRANSPOSE_A = 3,      /* CUBLASLT_MATMUL_DESC_TRANSA */
    MOST_WORKSPACE = 1,   /* CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES */
    SHAPE_LIMIT = 32,
    SPLITS = 2,    /* CUBLASLT_ALGO_CONFIG_SPLITK_NUM */
    REDUCTION = 3, /* CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME */
    /* the largest number of algorithms requested from cuBLASLt, which lists the best first */
    WAY_LIMIT = 24,
    PASSES = 5 /* tuning passes; the first one warms up */
};
static const size_t WORKSPACE_BYTES = 32 << 20;
/* In a step, blas_few.c overlaps the launches between products. Tuning has no such launches, so
 * blas_few.c is preferred even if tuning finds it slower by up to this factor. */
static const double FEW_FAVOUR = 1.03;

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

/* cublasLtMatmulHeuristicResult_t */
typedef struct way {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
} way;

static struct {
    int (*Create)(void **handle);
    int (*Destroy)(void *handle);
    int (*MatmulDescCreate)(void **desc, int compute, int scale);
    int (*MatmulDescSetAttribute)(void *desc, int attribute, const void *value, size_t bytes);
    int (*MatrixLayoutCreate)(void **layout, int type, uint64_t rows, uint64_t columns,
                              int64_t stride);
    int (*MatrixLayoutDestroy)(void *layout);
    int (*MatmulPreferenceCreate)(void **preference);
    int (*MatmulPreferenceSetAttribute)(void *preference, int attribute, const void *value,
                                        size_t bytes);
    int (*MatmulAlgoGetHeuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d,
                                  void *preference, int most, way *ways, int *count);
    int (*MatmulAlgoConfigSetAttribute)(uint64_t *algorithm, int attribute, const void *value,
                                        size_t bytes);
    int (*MatmulAlgoCheck)(void *handle, void *desc, void *a, void *b, void *c, void *d,
                           const uint64_t *algorithm, way *result);
    int (*Matmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
                  const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                  void *d, void *d_layout, const uint64_t *algorithm, void *workspace,
                  size_t workspace_bytes, void *stream);
} cublas;

/* A shape of products, and the algorithm that multiplies them. */
typedef struct shape {
    int32_t rows, depth, width, y_stride;
    void *w, *x, *y; /* cuBLASLt layouts */
    way way;
    int by_few; /* 1: blas_few.c multiplies; 0: cuBLASLt does, with `way` */
} shape;

static void *handle, *desc, *preference, *workspace;
static shape shapes[SHAPE_LIMIT];
static int32_t shape_count;

/* ---- Opening ------------------------------------------------------------------------------- */

typedef struct entry {
    const char *name;
    void *place;
} entry;

/* Opens whichever of two major versions of a library is installed, the first if both are, and finds
 * its entries. */
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
        if (result_ != 0) return fprintf(stderr, "layers: cublasLt" #call ": %d\n", result_), 1;   \
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

/* If each process sees only its own GPU, that GPU has number 0 in every process. */
static int open_cuda(int32_t local_rank, int32_t *ordinal) {
    int count = 0;
    if (open_runtime() != 0) return fprintf(stderr, "layers: no libcudart\n"), 1;
    CUDA(GetDeviceCount, (&count));
    *ordinal = local_rank % count;
    CUDA(SetDevice, (*ordinal));
    CUDA(Free, (NULL)); /* some versions put off initialization until this call */
    return 0;
}

static int open_products(void) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    const int transpose = TRANSPOSE;
    const entry entries[] = {
        {"cublasLtCreate", &cublas.Create},
        {"cublasLtDestroy", &cublas.Destroy},
        {"cublasLtMatmulDescCreate", &cublas.MatmulDescCreate},
        {"cublasLtMatmulDescSetAttribute", &cublas.MatmulDescSetAttribute},
        {"cublasLtMatrixLayoutCreate", &cublas.MatrixLayoutCreate},
        {"cublasLtMatrixLayoutDestroy", &cublas.MatrixLayoutDestroy},
        {"cublasLtMatmulPreferenceCreate", &cublas.MatmulPreferenceCreate},
        {"cublasLtMatmulPreferenceSetAttribute", &cublas.MatmulPreferenceSetAttribute},
        {"cublasLtMatmulAlgoGetHeuristic", &cublas.MatmulAlgoGetHeuristic},
        {"cublasLtMatmulAlgoConfigSetAttribute", &cublas.MatmulAlgoConfigSetAttribute},
        {"cublasLtMatmulAlgoCheck", &cublas.MatmulAlgoCheck},
        {"cublasLtMatmul", &cublas.Matmul}};
    if (open_library(names, entries, sizeof entries / sizeof *entries) != 0)
        return fprintf(stderr, "layers: no libcublasLt\n"), 1;
    CUDA(Malloc, (&workspace, WORKSPACE_BYTES));
    CUBLAS(Create, (&handle));
    CUBLAS(MatmulDescCreate, (&desc, SUMS_IN_F32, F32));
    CUBLAS(MatmulDescSetAttribute, (desc, TRANSPOSE_A, &transpose, sizeof transpose));
    CUBLAS(MatmulPreferenceCreate, (&preference));
    CUBLAS(MatmulPreferenceSetAttribute,
           (preference, MOST_WORKSPACE, &WORKSPACE_BYTES, sizeof WORKSPACE_BYTES));
    blas_few_open(); /* if this fails, cuBLASLt multiplies everything */
    return 0;
}

/* desc and preference are small; the end of the process frees them. */
static void close_cuda(void) {
    for (int32_t i = 0; i < shape_count; i++) {
        cublas.MatrixLayoutDestroy(shapes[i].w);
        cublas.MatrixLayoutDestroy(shapes[i].x);
        cublas.MatrixLayoutDestroy(shapes[i].y);
    }
    shape_count = 0;
    if (handle != NULL) cublas.Destroy(handle);
    if (workspace != NULL) cuda.Free(workspace);
    handle = workspace = NULL;
    blas_few_close();
}

/* ---- Memory -------------------------------------------------------------------------------- */

static void *allocate(size_t bytes) {
    void *memory;
    return cuda.Malloc(&memory, bytes) == 0 ? memory : NULL;
}

static void release(void *memory) {
    cuda.Free(memory);
}

static int move_cuda(void *to, const void *from, size_t bytes) {
    CUDA(Memcpy, (to, from, bytes, EITHER_WAY));
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

/* by: the cuBLASLt algorithm to run; NULL: blas_few.c runs the product. */
static int run(const shape *of, const blas_product *product, const way *by, void *stream) {
    const float zero = 0;
    if (by == NULL) return blas_few_multiply(product, stream);
    return cublas.Matmul(handle, desc, &product->scale, product->w, of->w, product->x, of->x, &zero,
                         product->y, of->y, product->y, of->y, by->algorithm, workspace,
                         WORKSPACE_BYTES, stream);
}

/* cuBLASLt stores matrices by columns, so it sees the transpose of each matrix: y' = w x'. */
static int open_shape(shape *of, way ways[WAY_LIMIT], int *count) {
    const uint64_t rows = (uint64_t)of->rows, depth = (uint64_t)of->depth;
    CUBLAS(MatrixLayoutCreate, (&of->w, BF16, depth, (uint64_t)of->width, of->depth));
    CUBLAS(MatrixLayoutCreate, (&of->x, BF16, depth, rows, of->depth));
    CUBLAS(MatrixLayoutCreate, (&of->y, BF16, (uint64_t)of->width, rows, of->y_stride));
    CUBLAS(MatmulAlgoGetHeuristic,
           (handle, desc, of->w, of->x, of->y, of->y, preference, WAY_LIMIT, ways, count));
    if (*count == 0) return fprintf(stderr, "layers: cublasLt has no kernel for it\n"), 1;
    of->way = ways[0];
    return 0;
}

static shape *find_shape(const blas_product *product) {
    for (shape *of = shapes; of < shapes + shape_count; of++)
        if (of->rows == product->rows && of->depth == product->depth &&
            of->width == product->width && of->y_stride == product->y_stride)
            return of;
    return NULL;
}

/* Adds a shape. Returns NULL if the table of shapes is full or cuBLASLt cannot multiply this
 * shape. */
static shape *add_shape(const blas_product *product, way ways[WAY_LIMIT], int *count) {
    if (shape_count == SHAPE_LIMIT) return NULL;
    shape *of = &shapes[shape_count];
    *of = (shape){.rows = product->rows,
                  .depth = product->depth,
                  .width = product->width,
                  .y_stride = product->y_stride};
    if (open_shape(of, ways, count) != 0) return NULL;
    shape_count++;
    return of;
}

/* Measures the seconds that all passes after the first take. An algorithm that fails gets 1e9
 * seconds. */
static int time_way(const shape *of, const blas_product *products, int32_t count, const way *by,
                    double *seconds) {
    struct timespec began = {0}, ended;
    *seconds = 1e9;
    if (by != NULL && (by->status != 0 || by->workspace_bytes > WORKSPACE_BYTES)) return 0;
    for (int pass = 0; pass < PASSES; pass++) {
        for (int32_t i = 0; i < count; i++)
            if (run(of, &products[i], by, NULL) != 0) return 0;
        if (pass > 0) continue;
        CUDA(DeviceSynchronize, ());
        clock_gettime(CLOCK_MONOTONIC, &began);
    }
    CUDA(DeviceSynchronize, ());
    clock_gettime(CLOCK_MONOTONIC, &ended);
    *seconds =
        (double)(ended.tv_sec - began.tv_sec) + 1e-9 * (double)(ended.tv_nsec - began.tv_nsec);
    return 0;
}

/* Returns the same algorithm without splitting sums over blocks, because adding up the parts costs
 * a launch. cuBLASLt itself suggests few such algorithms. If it has none, the returned algorithm
 * has a status other than success. */
static way make_whole(const shape *of, const way *from) {
    const int32_t one = 1, none = 0;
    way whole = *from, result;
    cublas.MatmulAlgoConfigSetAttribute(whole.algorithm, SPLITS, &one, sizeof one);
    cublas.MatmulAlgoConfigSetAttribute(whole.algorithm, REDUCTION, &none, sizeof none);
    whole.status =
        cublas.MatmulAlgoCheck(handle, desc, of->w, of->x, of->y, of->y, whole.algorithm, &result);
    whole.workspace_bytes = whole.status == 0 ? result.workspace_bytes : 0;
    return whole;
}

static int tune_few(shape *of, const blas_product *products, int32_t count, double least) {
    blas_few_params params;
    double seconds;
    if (blas_few_blocks() == 0 || blas_few_plan(products, blas_few_blocks(), &params) != NULL)
        return 0;
    if (time_way(of, products, count, NULL, &seconds) != 0) return 1;
    of->by_few = seconds < FEW_FAVOUR * least;
    return 0;
}

static int tune(const blas_product *products, int32_t count) {
    way ways[2 * WAY_LIMIT];
    double least = 1e9;
    int way_count = 0;
    if (find_shape(products) != NULL) return 0;
    shape *of = add_shape(products, ways, &way_count);
    if (of == NULL) return 1;
    for (int i = 0; i < way_count; i++)
        ways[way_count + i] = make_whole(of, &ways[i]);
    for (int i = 0; i < 2 * way_count; i++) {
        double seconds;
        if (time_way(of, products, count, &ways[i], &seconds) != 0) return 1;
        if (seconds >= least) continue;
        least = seconds;
        of->way = ways[i];
    }
    return tune_few(of, products, count, least);
}

/* Multiplies with the tuned algorithm of the shape, or with the first that cuBLASLt suggests. */
static int multiply(const blas_product *product, void *stream) {
    way ways[WAY_LIMIT];
    int count;
    const shape *of = find_shape(product);
    if (of == NULL) of = add_shape(product, ways, &count);
    const int result = of != NULL ? run(of, product, of->by_few ? NULL : &of->way, stream) : 1;
    if (result != 0) fprintf(stderr, "layers: cublasLtMatmul: %d\n", result);
    return result;
}

const blas blas_cuda = {.open = open_cuda,
                        .open_products = open_products,
                        .close = close_cuda,
                        .allocate = allocate,
                        .release = release,
                        .move = move_cuda,
                        .copy_block = copy_block,
                        .wait = wait_cuda,
                        .tune = tune,
                        .copy = copy,
                        .multiply = multiply};
