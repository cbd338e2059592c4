/* all_reduce.cuh: runs all_reduce on GPUs that write into each other's memory, with or without the
 * residual and RMSNorm after it.
 *
 * In one shot each rank pushes its whole message to every other rank, and adds up the messages of
 * all ranks. In two shots a rank pushes each vector only to the vector's owner; the owner adds up
 * and pushes the sum to all ranks. With more ranks, two shots send fewer bytes, but they wait
 * twice. Sums are made in the order of ranks, in f32, and rounded once, so the bits are the same
 * on every rank and with either number of shots.
 *
 * Without a norm, thread i of the launch has vectors i, i + threads, ... With a norm, team t of
 * blocks has rows t, t + teams, ... A single block would spend longer on a row's packets than the
 * wires do. On 9.0 a team is a cluster, elsewhere a block. The sum of a vector equals the input of
 * a separate rms_norm, bit for bit. Weights and residual are read while packets are in flight.
 * Dtype and shots are constants once the compiler has inlined a helper. Invariant: a thread reads
 * and writes the same places of a row, so out may be the same tensor as in. */
#ifndef FIG_KERNELS_ALL_REDUCE_CUH
#define FIG_KERNELS_ALL_REDUCE_CUH

#include "kernels/common/block.cuh"
#include "kernels/common/norm.cuh"
#include "kernels/common/numeric.h"
#include "kernels/common/params.h"
#include "kernels/ranks/peers.cuh"
#include "kernels/common/vector.cuh"

/* The number of blocks of a team, and the attribute that makes them a team. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define FIG_ALL_REDUCE_CLUSTERS 1
#define FIG_ALL_REDUCE_TEAM(blocks) blocks
#define FIG_ALL_REDUCE_IN_TEAM(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define FIG_ALL_REDUCE_CLUSTERS 0
#define FIG_ALL_REDUCE_TEAM(blocks) 1
#define FIG_ALL_REDUCE_IN_TEAM(blocks)
#endif

enum {
    FIG_ALL_REDUCE_THREAD_LIMIT = 512,
    FIG_ALL_REDUCE_PART_LIMIT = /* warps of a team */
    FIG_PEERS_TEAM_LIMIT * FIG_ALL_REDUCE_THREAD_LIMIT / FIG_BLOCK_WARP
};

/* ---- Sums over ranks ----------------------------------------------------------------------- */

/* Returns the rank that adds up vector i in two shots. All vectors of a warp have one owner. */
static __device__ __forceinline__ int32_t fig_all_reduce_owner(const fig_peers_epoch &e,
                                                               int64_t i) {
    return (int32_t)((uint32_t)(i / FIG_BLOCK_WARP) % (uint32_t)e.view->count);
}

/* Returns 1 if vector i belongs to this turn. In two shots, the first turn has the vectors that
 * this rank owns, because other ranks wait for them. The second turn has the vectors that other
 * ranks own and this rank waits for. */
static __device__ __forceinline__ int fig_all_reduce_is_due(const fig_peers_epoch &e, int64_t i,
                                                            int32_t shots, int32_t turn) {
    return shots == 1 || (fig_all_reduce_owner(e, i) == e.view->rank) == (turn == 0);
}

static __device__ __forceinline__ void fig_all_reduce_push(const fig_peers_epoch &e, int64_t i,
                                                           uint4 vector, int32_t shots) {
    if (shots == 1) {
        fig_peers_push(e, i, vector);
    } else if (fig_all_reduce_owner(e, i) != e.view->rank) {
        fig_peers_send(e, fig_all_reduce_owner(e, i), i, vector);
    }
}

/* Returns vector i of the sum over all ranks; `own` is this rank's contribution. */
static __device__ __forceinline__ uint4 fig_all_reduce_add(const fig_peers_epoch &e, int64_t i,
                                                           uint4 own, int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype), count = e.view->count, rank = e.view->rank;
    float sum[FIG_VECTOR_LANE_LIMIT], more[FIG_VECTOR_LANE_LIMIT];
    fig_vector_read(sum, lanes, rank == 0 ? own : fig_peers_take(e, 0, i), dtype);
    for (int32_t r = 1; r < count; r++) {
        fig_vector_read(more, lanes, rank == r ? own : fig_peers_take(e, r, i), dtype);
#pragma unroll
        for (int32_t lane = 0; lane < lanes; lane++)
            sum[lane] += more[lane];
    }
    return fig_vector_of(sum, lanes, dtype);
}

/* Returns the same sum, computed here or received from the owner. */
static __device__ __forceinline__ uint4 fig_all_reduce_sum(const fig_peers_epoch &e, int64_t i,
                                                           uint4 own, int32_t shots,
                                                           int32_t dtype) {
    if (shots == 1) return fig_all_reduce_add(e, i, own, dtype);
    const int32_t owner = fig_all_reduce_owner(e, i);
    if (owner != e.view->rank) return fig_peers_take(e, owner, i);
    const uint4 sum = fig_all_reduce_add(e, i, own, dtype);
    fig_peers_push(e, i, sum);
    return sum;
}

/* ---- Without a norm ------------------------------------------------------------------------- */

typedef char fig_all_reduce_no_words;

static __device__ __forceinline__ void fig_all_reduce_alone(const fig_all_reduce_params *p,
                                                            const fig_peers_view *view,
                                                            fig_all_reduce_no_words *,
                                                            int32_t shots, int32_t dtype) {
    const int64_t in_row = p->width / fig_vector_lanes(dtype);
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t apart = (int64_t)FIG_PEERS_BLOCKS * blockDim.x;
    const uint4 *in = (const uint4 *)p->in;
    uint4 *out = (uint4 *)p->out;
    uint4 own = make_uint4(0, 0, 0, 0);
    fig_block_enter(p->early_reads & FIG_EARLY_READS_ON);
    const fig_peers_epoch e = fig_peers_enter(view);
    if (first < in_row * p->rows.row_limit) own = fig_vector_fetch(in + first);
    const int32_t rows = fig_params_rows(&p->rows, p->plan);
    if (fig_peers_speaks()) {
        fig_peers_speak(e, fig_peers_place_of(p->plan, p->state, p->node, rows));
        return;
    }
    const int64_t end = in_row * rows;
    for (int64_t i = first; i < end; i += apart)
        fig_all_reduce_push(e, i, i == first ? own : fig_vector_fetch(in + i), shots);
    for (int32_t turn = 0; turn < shots; turn++)
        for (int64_t i = first; i < end; i += apart)
            if (fig_all_reduce_is_due(e, i, shots, turn))
                out[i] = fig_all_reduce_sum(e, i, i == first ? own : fig_vector_fetch(in + i),
                                            shots, dtype);
    fig_peers_leave(e);
}

/* ---- With residual and norm ---------------------------------------------------------------- */

/* The values that warps of a team exchange; each block has a copy in shared memory. There are two
 * halves, for even and odd rows of the team, because a block may be a row ahead of another. */
typedef struct fig_all_reduce_words {
    float parts[2][FIG_ALL_REDUCE_PART_LIMIT]; /* each warp's sum */
    uint64_t ready[2]; /* in a cluster: complete when all parts have arrived */
    double exact[FIG_BLOCK_WARP_LIMIT];
} fig_all_reduce_words;

/* Opens the team's exchange. Must be called before a block of the team writes into another. All
 * threads must call `join` afterwards. */
static __device__ __forceinline__ void fig_all_reduce_team_open(fig_all_reduce_words *words) {
#if FIG_ALL_REDUCE_CLUSTERS
    if (threadIdx.x < 2)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\t"
                     "fence.mbarrier_init.release.cluster;"
                     :
                     : "r"((uint32_t)__cvta_generic_to_shared(&words->ready[threadIdx.x]))
                     : "memory");
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
    (void)words;
#endif
}

static __device__ __forceinline__ void fig_all_reduce_team_join(void) {
#if FIG_ALL_REDUCE_CLUSTERS
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

static __device__ __forceinline__ float fig_all_reduce_warp_sum(float x) {
#pragma unroll
    for (int32_t apart = FIG_BLOCK_WARP / 2; apart > 0; apart /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

#if FIG_ALL_REDUCE_CLUSTERS
/* Stores a number in the shared memory of the team's block `of`, and counts the bytes there. */
static __device__ __forceinline__ void fig_all_reduce_team_put(float *place, uint64_t *ready,
                                                               int32_t of, float x) {
    asm volatile("{.reg .b32 there, counter;\n\t"
                 "mapa.shared::cluster.u32 there, %0, %2;\n\t"
                 "mapa.shared::cluster.u32 counter, %1, %2;\n\t"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [there], %3, "
                 "[counter];}"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(place)),
                   "r"((uint32_t)__cvta_generic_to_shared(ready)), "r"(of), "f"(x)
                 : "memory");
}

static __device__ __forceinline__ void fig_all_reduce_team_expect(uint64_t *ready, int32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(ready)), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void fig_all_reduce_team_wait(uint64_t *ready, int32_t odd) {
    asm volatile("{.reg .pred passed;\n"
                 "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 passed, [%0], "
                 "%1;\n\t@!passed bra again;}"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(ready)), "r"(odd)
                 : "memory");
}
#endif

/* Returns the sum over the team, with the same bits in every thread. Each warp sends its sum to all
 * blocks, and adds up the sums of all warps. turn: number of the team's rows before this one. */
static __device__ __forceinline__ float
fig_all_reduce_team_sum(float x, fig_all_reduce_words *words, int32_t turn, int32_t team) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t warps = (int32_t)blockDim.x / FIG_BLOCK_WARP;
    const int32_t block = (int32_t)blockIdx.x % team;
    const int32_t warp = block * warps + (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    float *parts = words->parts[turn % 2];
    x = fig_all_reduce_warp_sum(x);
#if FIG_ALL_REDUCE_CLUSTERS
    uint64_t *ready = &words->ready[turn % 2];
    if (threadIdx.x == 0) fig_all_reduce_team_expect(ready, team * warps * (int32_t)sizeof x);
    if (lane < team) fig_all_reduce_team_put(&parts[warp], ready, lane, x);
    fig_all_reduce_team_wait(ready, turn / 2 % 2);
#else
    if (lane == 0) parts[warp] = x;
    __syncthreads();
#endif
    x = 0;
#pragma unroll
    for (int32_t k = 0; k < FIG_ALL_REDUCE_PART_LIMIT / FIG_BLOCK_WARP; k++)
        if (lane + k * FIG_BLOCK_WARP < team * warps) x += parts[lane + k * FIG_BLOCK_WARP];
    return fig_all_reduce_warp_sum(x);
}

/* Waits until the writes of all blocks of the team are visible to all of them. */
static __device__ __forceinline__ void fig_all_reduce_team_meet(void) {
#if FIG_ALL_REDUCE_CLUSTERS
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#else
    __syncthreads();
#endif
}

/* Returns the sum of squares in f32. The caller detects overflow and underflow from the result. */
static __device__ __forceinline__ float fig_all_reduce_squares(uint4 vector, int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype);
    float numbers[FIG_VECTOR_LANE_LIMIT], sum = 0;
    fig_vector_read(numbers, lanes, vector, dtype);
#pragma unroll
    for (int32_t i = 0; i < lanes; i++)
        sum += numbers[i] * numbers[i];
    return sum;
}

/* Returns the sum of squares, in double, of the whole row as the team wrote it. Each block computes
 * this sum without the other blocks. */
static __device__ __noinline__ double
fig_all_reduce_exact_squares(const uint4 *residual, int32_t vectors, double *sums, int32_t dtype) {
    double squares = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < vectors; i += (int32_t)blockDim.x)
        squares += fig_norm_squares(__ldcg(residual + i), dtype);
    return fig_block_sum(squares, sums);
}

/* Returns the factor of the row. For 16-bit output the sum in f32 is exact enough, unless it
 * overflows or underflows. */
static __device__ __forceinline__ float fig_all_reduce_factor(const fig_all_reduce_params *p,
                                                              int64_t row, float squares,
                                                              fig_all_reduce_words *words,
                                                              int32_t team, int32_t dtype) {
    const int32_t turn = (int32_t)(row / (FIG_PEERS_BLOCKS / team));
    const float sum = fig_all_reduce_team_sum(squares, words, turn, team);
    if (dtype != FIG_F32 && sum > 1e-30f && sum < 1e37f)
        return rsqrtf(sum * __frcp_rn((float)p->width) + p->epsilon);
    const int32_t vectors = p->width / fig_vector_lanes(dtype);
    const uint4 *residual = (const uint4 *)p->residual + row * vectors;
    fig_all_reduce_team_meet();
    const double exact = fig_all_reduce_exact_squares(residual, vectors, words->exact, dtype);
    return fig_norm_factor(exact, p->width, p->epsilon);
}

/* A thread's part of a team's rows: vectors first, first + apart, ... of each row. */
typedef struct fig_all_reduce_part {
    int32_t team; /* blocks of the team */
    int32_t vectors, first, apart;
    /* vector `first` of the team's first row: this rank's share, and the residual */
    uint4 own, before;
    uint4 weight, x; /* vector `first` of the current row: its weights, and the input of the norm */
} fig_all_reduce_part;

/* Adds the row's sum over ranks to the residual, and keeps the result in x. */
static __device__ __forceinline__ void fig_all_reduce_add_row(const fig_all_reduce_params *p,
                                                              const fig_peers_epoch &e, int64_t row,
                                                              fig_all_reduce_part *part,
                                                              int32_t shots, int32_t dtype) {
    const int64_t at = row * part->vectors;
    const int is_known = row < FIG_PEERS_BLOCKS / part->team;
    const uint4 *in = (const uint4 *)p->in + at;
    uint4 *residual = (uint4 *)p->residual + at;
#pragma unroll 1
    for (int32_t turn = 0; turn < shots; turn++) {
#pragma unroll 1
        for (int32_t i = part->first; i < part->vectors; i += part->apart) {
            if (!fig_all_reduce_is_due(e, at + i, shots, turn)) continue;
            const int is_first = is_known && i == part->first;
            const uint4 before = is_first ? part->before : fig_vector_fetch(residual + i);
            const uint4 own = is_first ? part->own : fig_vector_fetch(in + i);
            const uint4 sum = fig_all_reduce_sum(e, at + i, own, shots, dtype);
            const uint4 x = fig_vector_sum(before, sum, dtype);
            residual[i] = x;
            if (i == part->first) part->x = x;
        }
    }
}

/* Returns the sum of squares of the residual, added up in an order that is the same on all
 * ranks. */
static __device__ __forceinline__ float fig_all_reduce_row_squares(const fig_all_reduce_params *p,
                                                                   int64_t row,
                                                                   const fig_all_reduce_part *part,
                                                                   int32_t dtype) {
    const uint4 *residual = (const uint4 *)p->residual + row * part->vectors;
    float squares = part->first < part->vectors ? fig_all_reduce_squares(part->x, dtype) : 0;
#pragma unroll 1
    for (int32_t i = part->first + part->apart; i < part->vectors; i += part->apart)
        squares += fig_all_reduce_squares(residual[i], dtype);
    return squares;
}

static __device__ __forceinline__ void fig_all_reduce_norm_row(const fig_all_reduce_params *p,
                                                               int64_t row,
                                                               const fig_all_reduce_part *part,
                                                               float scale, int32_t dtype) {
    const uint4 *residual = (const uint4 *)p->residual + row * part->vectors;
    const uint4 *weight = (const uint4 *)p->weight;
    uint4 *out = (uint4 *)p->out + row * part->vectors;
    if (part->first < part->vectors)
        out[part->first] = fig_vector_normed(part->x, part->weight, scale, p->weight_offset, dtype);
#pragma unroll 1
    for (int32_t i = part->first + part->apart; i < part->vectors; i += part->apart)
        out[i] = fig_vector_normed(residual[i], weight[i], scale, p->weight_offset, dtype);
}

static __device__ __forceinline__ void
fig_all_reduce_push_rows(const fig_all_reduce_params *p, const fig_peers_epoch &e, int32_t rows,
                         const fig_all_reduce_part *part, int32_t shots) {
    const uint4 *in = (const uint4 *)p->in;
    const int32_t teams = FIG_PEERS_BLOCKS / part->team;
#pragma unroll 1
    for (int64_t row = blockIdx.x / part->team; row < rows; row += teams) {
#pragma unroll 1
        for (int32_t i = part->first; i < part->vectors; i += part->apart) {
            const int64_t at = row * part->vectors + i;
            const int is_first = row < teams && i == part->first;
            fig_all_reduce_push(e, at, is_first ? part->own : fig_vector_fetch(in + at), shots);
        }
    }
}

/* Starts loads of rows within the bucket; they are in flight while the epoch is read. */
static __device__ __forceinline__ void fig_all_reduce_fetch(const fig_all_reduce_params *p,
                                                            fig_all_reduce_part *part) {
    const int64_t row = blockIdx.x / part->team, at = row * part->vectors + part->first;
    part->own = part->before = make_uint4(0, 0, 0, 0);
    if (row >= p->rows.row_limit || part->first >= part->vectors || fig_peers_speaks()) return;
    part->own = fig_vector_fetch((const uint4 *)p->in + at);
    part->before = fig_vector_fetch((const uint4 *)p->residual + at);
}

static __device__ __forceinline__ void
fig_all_reduce_norm(const fig_all_reduce_params *p, const fig_peers_view *view,
                    fig_all_reduce_words *words, int32_t shots, int32_t blocks, int32_t dtype) {
    const int32_t team = FIG_ALL_REDUCE_TEAM(blocks);
    fig_all_reduce_part part;
    part.team = team;
    part.vectors = p->width / fig_vector_lanes(dtype);
    part.first = (int32_t)(blockIdx.x % team * blockDim.x + threadIdx.x);
    part.apart = team * (int32_t)blockDim.x;
    part.weight = make_uint4(0, 0, 0, 0);
    fig_all_reduce_team_open(words);
    if (part.first < part.vectors)
        part.weight = fig_vector_fetch((const uint4 *)p->weight + part.first);
    fig_block_enter(p->early_reads & FIG_EARLY_READS_ON);
    const fig_peers_epoch e = fig_peers_enter(view);
    fig_all_reduce_fetch(p, &part);
    const int32_t rows = fig_params_rows(&p->rows, p->plan);
    fig_all_reduce_team_join();
    if (fig_peers_speaks()) {
        fig_peers_speak(e, fig_peers_place_of(p->plan, p->state, p->node, rows));
        return;
    }
    fig_all_reduce_push_rows(p, e, rows, &part, shots);
#pragma unroll 1
    for (int64_t row = blockIdx.x / team; row < rows; row += FIG_PEERS_BLOCKS / team) {
        fig_all_reduce_add_row(p, e, row, &part, shots, dtype);
        const float squares = fig_all_reduce_row_squares(p, row, &part, dtype);
        const float scale = fig_all_reduce_factor(p, row, squares, words, team, dtype);
        fig_all_reduce_norm_row(p, row, &part, scale, dtype);
    }
    fig_peers_leave(e);
}

/* ---- Entries: the dtype becomes a constant -------------------------------------------------- */

#define FIG_ALL_REDUCE_ENTRY(name, attributes, words_type, serve, ...)                             \
    extern "C" __global__ void attributes __launch_bounds__(FIG_ALL_REDUCE_THREAD_LIMIT)           \
        name(const __grid_constant__ fig_all_reduce_params p) {                                    \
        __shared__ fig_peers_view view;                                                            \
        __shared__ words_type words;                                                               \
        fig_peers_open(p.peers, &view);                                                            \
        switch (p.dtype) {                                                                         \
        case FIG_F16: serve(&p, &view, &words, __VA_ARGS__, FIG_F16); break;                       \
        case FIG_BF16: serve(&p, &view, &words, __VA_ARGS__, FIG_BF16); break;                     \
        default: serve(&p, &view, &words, __VA_ARGS__, FIG_F32); break;                            \
        }                                                                                          \
    }

/* Defines the entries for a number of shots: one without a norm, and one with a norm for each size
 * of a team. */
#define FIG_ALL_REDUCE_ALONE(shots)                                                                \
    FIG_ALL_REDUCE_ENTRY(fig_kernel_all_reduce_alone, , fig_all_reduce_no_words,                   \
                         fig_all_reduce_alone, shots)
#define FIG_ALL_REDUCE_NORM(shots, blocks)                                                         \
    FIG_ALL_REDUCE_ENTRY(fig_kernel_all_reduce_norm_##blocks, FIG_ALL_REDUCE_IN_TEAM(blocks),      \
                         fig_all_reduce_words, fig_all_reduce_norm, shots, blocks)
#define FIG_ALL_REDUCE_ENTRIES(shots)                                                              \
    FIG_ALL_REDUCE_ALONE(shots)                                                                    \
    FIG_ALL_REDUCE_NORM(shots, 1)                                                                  \
    FIG_ALL_REDUCE_NORM(shots, 2)                                                                  \
    FIG_ALL_REDUCE_NORM(shots, 4)                                                                  \
    FIG_ALL_REDUCE_NORM(shots, 8)

#endif
