/* rms_norm.cu: runs rms_norm and add_rms_norm on a GPU.
 *
 * out = x / sqrt(mean(x^2) + epsilon) * (weight + weight_offset), in f32, rounded once. Without a
 * residual, x is `in`. With a residual, x is residual + in, which the kernel first rounds to the
 * dtype and stores in the residual. There is one block per row, or per several rows that it handles
 * in turn (fig_params_abreast()). Squares are exact in double and added up in double, so no width
 * loses a digit and no square overflows. If all addresses allow vectors, a thread loads vectors,
 * two at a time, and single numbers only after the last whole vector. A thread goes through its row
 * twice, forwards and then backwards, so that the numbers that it read last are still in registers;
 * in most rows these are all its numbers. A thread reads its first weights while the preceding
 * launch ends; where a node writes the weights, the edge into the launch is a full one
 * (graphs/lower/early_reads.h). The dtype is a constant once the compiler has inlined a helper.
 * Invariant: a thread reads and writes the same places of a row, so out may be the same tensor as
 * in. */
#include "kernels/common/block.cuh"
#include "kernels/common/norm.cuh"
#include "kernels/common/numeric.h"
#include "kernels/common/params.h"
#include "kernels/common/vector.cuh"

enum { THREAD_LIMIT = 512, BATCH = 2 };

/* One row; x is the residual or, without one, `in`. */
typedef struct row_places {
    const uint8_t *in, *weight, *x;
    uint8_t *residual, *out; /* residual: NULL if there is none */
    int32_t vectors;         /* whole vectors; 0 if an address does not allow vectors */
    int32_t numbers;         /* numbers in these vectors; later numbers are taken one by one */
} row_places;

/* The vectors that a thread handles at once: those at i and at i + the block's threads. Vectors
 * past the end of the row are neither read nor written. */
typedef struct batch {
    uint4 of[BATCH];
} batch;

static __device__ __forceinline__ row_places places_of(const fig_rms_norm_params *p, int32_t row,
                                                       int32_t dtype) {
    const int32_t bytes = fig_numeric_bytes(dtype);
    row_places at;
    at.in = (const uint8_t *)p->in + row * p->in_stride * bytes;
    at.weight = (const uint8_t *)p->weight;
    at.residual = NULL;
    if (p->residual != NULL)
        at.residual = (uint8_t *)p->residual + row * p->residual_stride * bytes;
    at.x = at.residual != NULL ? at.residual : at.in;
    at.out = (uint8_t *)p->out + row * p->out_stride * bytes;
    uintptr_t all = (uintptr_t)at.in | (uintptr_t)at.weight | (uintptr_t)at.x | (uintptr_t)at.out;
    at.vectors = all % FIG_VECTOR_BYTES == 0 ? p->width / fig_vector_lanes(dtype) : 0;
    at.numbers = at.vectors * fig_vector_lanes(dtype);
    return at;
}

static __device__ __forceinline__ batch load(const row_places *at, const uint8_t *row, int32_t i) {
    batch loaded;
#pragma unroll
    for (int32_t j = 0; j < BATCH; j++) {
        const int32_t number = i + j * (int32_t)blockDim.x;
        loaded.of[j] = make_uint4(0, 0, 0, 0);
        if (number < at->vectors) loaded.of[j] = fig_vector_fetch((const uint4 *)row + number);
    }
    return loaded;
}

static __device__ __forceinline__ void store(const row_places *at, uint8_t *row, int32_t i,
                                             const batch &stored) {
#pragma unroll
    for (int32_t j = 0; j < BATCH; j++) {
        const int32_t number = i + j * (int32_t)blockDim.x;
        if (number < at->vectors) ((uint4 *)row)[number] = stored.of[j];
    }
}

/* Adds `in` to x and stores the sum in both. */
static __device__ __forceinline__ void add(const row_places *at, int32_t i, batch *x,
                                           int32_t dtype) {
    const batch more = load(at, at->in, i);
#pragma unroll
    for (int32_t j = 0; j < BATCH; j++)
        x->of[j] = fig_vector_sum(x->of[j], more.of[j], dtype);
    store(at, at->residual, i, *x);
}

/* Returns the sum of squares of the numbers after the vectors. */
static __device__ __forceinline__ double squares_behind(const row_places *at, int32_t width,
                                                        int32_t dtype) {
    double sum = 0;
#pragma unroll 1
    for (int32_t i = at->numbers + (int32_t)threadIdx.x; i < width; i += (int32_t)blockDim.x) {
        float x = fig_numeric_load(at->x, dtype, i);
        if (at->residual != NULL) {
            fig_numeric_store(at->residual, dtype, i, x + fig_numeric_load(at->in, dtype, i));
            x = fig_numeric_load(at->residual, dtype, i);
        }
        sum += (double)x * (double)x;
    }
    return sum;
}

static __device__ __forceinline__ void
norm_behind(const fig_rms_norm_params *p, const row_places *at, float scale, int32_t dtype) {
#pragma unroll 1
    for (int32_t i = at->numbers + (int32_t)threadIdx.x; i < p->width; i += (int32_t)blockDim.x) {
        float factor = scale * (fig_numeric_load(at->weight, dtype, i) + p->weight_offset);
        fig_numeric_store(at->out, dtype, i, fig_numeric_load(at->x, dtype, i) * factor);
    }
}

static __device__ __forceinline__ void norm_row(const fig_rms_norm_params *p, int32_t row,
                                                int32_t dtype, double *sums) {
    const int32_t thread = (int32_t)threadIdx.x;
    const row_places at = places_of(p, row, dtype);
    const int32_t apart = BATCH * (int32_t)blockDim.x;
    int32_t i = thread; /* the first vector of a batch */
    double sum = 0;
    while (i + apart < at.vectors)
        i += apart;
    const int32_t last = i;
    batch weight = load(&at, at.weight, last), x;
    if (thread < at.vectors) fig_block_prefetch((const uint4 *)at.x + thread);
    fig_block_wait();
    fig_block_trigger();
    for (i = thread; i <= last; i += apart) {
        x = load(&at, at.x, i);
        if (row >= fig_params_rows(&p->rows, p->plan)) return;
        if (at.residual != NULL) add(&at, i, &x, dtype);
#pragma unroll
        for (int32_t j = 0; j < BATCH; j++)
            sum += fig_norm_squares(x.of[j], dtype);
    }
    sum = fig_block_sum(sum + squares_behind(&at, p->width, dtype), sums);
    const float scale = fig_norm_factor(sum, p->width, p->epsilon);
    for (i = last; i >= 0; i -= apart) {
        if (i != last) x = load(&at, at.x, i);
        if (i != last) weight = load(&at, at.weight, i);
#pragma unroll
        for (int32_t j = 0; j < BATCH; j++)
            x.of[j] = fig_vector_normed(x.of[j], weight.of[j], scale, p->weight_offset, dtype);
        store(&at, at.out, i, x);
    }
    norm_behind(p, &at, scale, dtype);
}

template <int32_t IS_LONG>
static __device__ __forceinline__ void norm_rows(const fig_rms_norm_params *p, int32_t dtype,
                                                 double *sums) {
    const int32_t abreast = fig_params_abreast(&p->rows);
    int32_t row = (int32_t)blockIdx.x;
#pragma unroll 1
    do {
        norm_row(p, row, dtype, sums);
        row += abreast;
    } while (IS_LONG && row < fig_params_rows(&p->rows, p->plan));
}

#define ENTRY(name, is_long)                                                                       \
    extern "C" __global__ void __launch_bounds__(THREAD_LIMIT)                                     \
        fig_kernel_##name(const __grid_constant__ fig_rms_norm_params p) {                         \
        __shared__ double sums[FIG_BLOCK_WARP_LIMIT];                                              \
        switch (p.dtype) {                                                                         \
        case FIG_F16: norm_rows<is_long>(&p, FIG_F16, sums); break;                                \
        case FIG_BF16: norm_rows<is_long>(&p, FIG_BF16, sums); break;                              \
        default: norm_rows<is_long>(&p, FIG_F32, sums); break;                                     \
        }                                                                                          \
    }
ENTRY(rms_norm, 0)
ENTRY(rms_norm_long, 1)
