/* latent_leave_block.cpp: runs kernels/latent/latent_leave.cuh and narrow_leave.cuh on a CPU, thread
 * by thread. Blocks leave partials of a segment's pieces, and blocks merge them.
 *
 * The program replaces the headers that consist of a GPU's instructions: latent_machine.cuh,
 * latent_ring.cuh, narrow_ring.cuh and what they include. Out and log-sum-exp must be float64's up to the rounding of
 * out to f16, and partials must be zeros again. Some pieces have seen nothing of some vectors, and
 * values may be far from 1. */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "include/figraph.h"
extern "C" {
#include "planner/plans/plan.h"
}

#define BLOCK_THREADS 256
#include "tests/support/kernels/block.hpp"

namespace {
uint32_t __float_as_uint(float x) {
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}
float __uint_as_float(uint32_t word) {
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}
int __ffs(int x) {
    return __builtin_ffs(x);
}
} // namespace

/* numeric.h keeps its loops over rows, which are C, from nvcc. */
#define __CUDACC__
#define __CUDA_ARCH_FEAT_SM90_ALL
#include "kernels/latent/latent.h"

/* ---- What stands for latent_machine.cuh */

#define FIG_KERNELS_LATENT_MACHINE_CUH

template <int32_t DTYPE> static uint32_t fig_fragment_pair(float low, float high) {
    uint16_t words[2];
    fig_numeric_store(words, DTYPE, 0, low);
    fig_numeric_store(words, DTYPE, 1, high);
    return words[0] | (uint32_t)words[1] << 16;
}

static float2 fig_latent_machine_floats(uint32_t pair) {
    return {fig_numeric_load(&pair, FIG_F16, 0), fig_numeric_load(&pair, FIG_F16, 1)};
}

static uint32_t fig_latent_machine_across(uint32_t pair) {
    const uint64_t *words = meet_warp(pair) + threadIdx.x / WARP * WARP;
    const uint32_t lane = threadIdx.x % WARP, column = lane / 4, row = lane % 4 * 2;
    const uint32_t shift = column % 2 * 16;
    return (words[row * 4 + column / 2] >> shift & 0xffff) |
           (words[(row + 1) * 4 + column / 2] >> shift & 0xffff) << 16;
}

static void fig_latent_machine_end_if(int32_t is_vain) {
    if (!is_vain) return;
    puts("a merge waits for a piece that nobody left");
    exit(1);
}

/* ---- What stands for latent_ring.cuh, narrow_ring.cuh and partials.cuh */

#define FIG_KERNELS_LATENT_RING_CUH
#define FIG_KERNELS_NARROW_RING_CUH
#define FIG_PARTIALS_NONE (-3.402823466e38f)
#define FIG_FEED_BLOCKS 1

enum {
    FIG_BLOCK_WARP = WARP,
    FIG_LATENT_RING_GROUP = 128,
    FIG_LATENT_RING_READERS = 2 * FIG_LATENT_RING_GROUP,
    FIG_LATENT_RING_HALF_DIMS = FIG_LATENT_DIM / 2,
    FIG_LATENT_RING_ALL = 1,
    FIG_LATENT_RING_WARPS = 4,
    FIG_LATENT_RING_MERGES = 2,
    FIG_LATENT_WIDE_SIDE_BYTES = 9 * 8192,
    FIG_PARTIALS_LOOKS_LIMIT = 3
};

struct fig_partials_sum {
    float greatest, weights;
};
struct fig_partials_place {
    int32_t row, group, base, kv_head, ratio, first, count, index, vectors;
    float v_scale;
};
struct fig_partials_segment {
    int32_t first_partial, next_partial, step, pieces, vectors;
};
struct fig_partials_range {
    int32_t first, end;
};
struct fig_partials_way {
    int64_t out, lse;
};
struct fig_pieces_end {
    float scale, lse;
};
struct fig_latent_ring_merge {
    int32_t parts, part, row, group, first, last, partial;
};
struct fig_latent_ring_state {
    uint32_t is_last;
};

template <int32_t VECTORS> struct fig_narrow_ring_state {
    float greatest[VECTORS];
    float weights[FIG_LATENT_RING_WARPS][VECTORS];
};

static float fig_machine_exp2(float x) {
    return std::exp2(x);
}

static uint32_t fig_partials_word(float x) {
    const uint32_t word = __float_as_uint(x);
    return word == 0 ? 0x80000000u : word;
}

template <class T> static void fig_machine_store(float *to, T words) {
    memcpy(to, &words, sizeof words);
}

template <class T> static void fig_machine_load(T *words, const float *from) {
    memcpy(words, from, sizeof *words);
}

static int32_t fig_partials_of(const fig_partials_segment &segment, int32_t piece) {
    return piece == 0 ? segment.first_partial : segment.next_partial + piece * segment.step;
}

static fig_partials_range fig_partials_part(int32_t vectors, int32_t part, int32_t parts) {
    const int32_t of_part = (vectors + parts - 1) / parts;
    return {std::min(part * of_part, vectors), std::min(part * of_part + of_part, vectors)};
}

static int64_t fig_partials_at(const fig_partials_place &place, int32_t partial) {
    return (int64_t)partial * place.vectors;
}

static fig_partials_way fig_partials_way_of(const fig_attention_params &,
                                            const fig_partials_place &, int32_t n) {
    return {(int64_t)n * FIG_LATENT_DIM, n};
}

static fig_pieces_end fig_partials_end_of(const fig_partials_way &, fig_partials_sum sum) {
    return {sum.weights == 0 ? 0 : 1 / sum.weights, sum.greatest + std::log2(sum.weights)};
}

static fig_plan_queries fig_pieces_queries(const fig_attention_params &, int32_t) {
    return {0, 1};
}

static void fig_ring_meet(int32_t, int32_t) {
    __syncthreads();
}

alignas(16) static uint8_t tiles[FIG_LATENT_WIDE_SIDE_BYTES];

static void *fig_latent_ring_tiles(fig_latent_ring_state *) {
    return tiles;
}

#include "kernels/latent/latent_leave.cuh"
#include "kernels/latent/narrow_leave.cuh"

#include "tests/support/random.h"

/* ---- A segment */

enum { FIRST_PIECE = 3, FIRST_PARTIAL = 1, FEW = 16, MORE = 32 };

/* A segment and what its blocks do. */
struct segment_case {
    fig_attention_params of;
    int32_t pieces, vectors, parts, is_apart, is_wild, is_narrow;
    std::vector<float> partials, lse, sums, greatest, weights; /* the last three: of a piece */
    std::vector<uint16_t> out;
    std::vector<double> values, total;
    std::vector<uint32_t> counters;
    fig_latent_ring_state state;
    fig_latent_ring_merge merge;
    int32_t partial;
};

static void leave_piece(const void *params) {
    const segment_case &c = *(const segment_case *)params;
    const int32_t thread = (int32_t)threadIdx.x, half = thread / FIG_LATENT_RING_GROUP;
    const int32_t row = thread % FIG_LATENT_RING_GROUP / WARP * 16 + thread % WARP / 4;
    float sums[FIG_LATENT_LEAVE_SUMS];
    fig_partials_sum sum[2];
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_SUMS; i++) {
        const int32_t n = row + i / 2 % 2 * 8;
        const int32_t dim = half * FIG_LATENT_RING_HALF_DIMS + i / 4 * 8 + thread % 4 * 2 + i % 2;
        sums[i] = n < c.vectors ? c.sums[(size_t)(n * FIG_LATENT_DIM + dim)] : 0;
    }
    for (int32_t h = 0; h < 2; h++) {
        const int32_t n = row + 8 * h;
        sum[h] = {FIG_PARTIALS_NONE, 0};
        if (n < c.vectors) sum[h] = {c.greatest[(size_t)n], c.weights[(size_t)n]};
    }
    fig_partials_place place = {};
    place.count = place.vectors = c.vectors;
    fig_latent_leave<FIG_F16>(c.of, place, c.partial, row, half, sums, sum);
}

/* Leaves a piece as a thread of the kernel for groups of at most VECTORS vectors does. */
template <int32_t VECTORS> static void leave_narrow_piece(const segment_case &c) {
    const int32_t thread = (int32_t)threadIdx.x, lane = thread % WARP;
    const fig_narrow_leave_thread at = {thread / FIG_LATENT_RING_GROUP,
                                        thread % FIG_LATENT_RING_GROUP / WARP, lane};
    fig_narrow_leave_sums<VECTORS> sums;
    fig_narrow_ring_state<VECTORS> state = {};
    for (int32_t i = 0; i < FIG_NARROW_LEAVE_CHUNKS * VECTORS / 2; i++) {
        const int32_t chunk = i / (VECTORS / 2), e = i % (VECTORS / 2);
        const int32_t n = e / 4 * 8 + lane % 4 * 2 + e % 2;
        const int32_t dim = at.half * FIG_LATENT_RING_HALF_DIMS + chunk * 64 + at.warp * 16 +
                            lane / 4 + e % 4 / 2 * 8;
        sums.values[chunk][e] = n < c.vectors ? c.sums[(size_t)(n * FIG_LATENT_DIM + dim)] : 0;
    }
    for (int32_t n = 0; n < VECTORS; n++) {
        state.greatest[n] = n < c.vectors ? c.greatest[(size_t)n] : FIG_PARTIALS_NONE;
        for (int32_t warp = 0; warp < FIG_LATENT_RING_WARPS && n < c.vectors; warp++)
            state.weights[warp][n] = c.weights[(size_t)n] * (float)(warp + 1) / 10;
    }
    fig_partials_place place = {};
    place.count = place.vectors = c.vectors;
    fig_narrow_leave_through_memory::leave<FIG_F16>(c.of, place, c.partial, at, sums, &state);
}

static void leave_few(const void *params) {
    leave_narrow_piece<FEW>(*(const segment_case *)params);
}

static void leave_more(const void *params) {
    leave_narrow_piece<MORE>(*(const segment_case *)params);
}

static void merge_part(const void *params) {
    segment_case &c = *(segment_case *)params;
    const uint32_t flags = c.is_apart ? FIG_ATTENTION_APART : 0;
    if (c.is_narrow) {
        fig_narrow_leave_merge<FIG_F16>(c.of, flags, c.merge, &c.state);
    } else {
        fig_latent_leave_merge_many<FIG_F16>(c.of, flags, c.merge, &c.state);
    }
}

/* Draws what a piece leaves, and adds it to the truth. */
static void draw_piece(segment_case *c, fig_random *random) {
    static const float sizes[] = {1, 0, 1e-20f, 1e4f, 3e-3f};
    for (int32_t n = 0; n < c->vectors; n++) {
        const int32_t has_seen = fig_random_range(random, 0, 9) != 0;
        const float size = c->is_wild ? sizes[fig_random_range(random, 0, 4)] : 1;
        const float weights = has_seen ? 1 + 9 * std::fabs(fig_random_float(random)) : 0;
        const float greatest = has_seen ? 20 * fig_random_float(random) : -1e30f;
        c->greatest[(size_t)n] = greatest;
        c->weights[(size_t)n] = weights;
        c->total[(size_t)n] += weights * std::exp2((double)greatest);
        for (int32_t i = n * FIG_LATENT_DIM; i < (n + 1) * FIG_LATENT_DIM; i++) {
            c->sums[(size_t)i] = weights * size * fig_random_float(random);
            c->values[(size_t)i] += c->sums[(size_t)i] * std::exp2((double)greatest);
        }
    }
}

static void draw_case(segment_case *c, fig_random *random) {
    static const int32_t pieces[] = {1, 2, 3, 8, 9, 16, 17, 32, 33, 64, 100, 131};
    static const int32_t vectors[] = {8, 16, 24, 32, 36, 40, 52, 64}, limits[] = {1, 8, 23, 200};
    c->pieces = pieces[fig_random_range(random, 0, 11)];
    c->vectors = vectors[fig_random_range(random, 0, 7)];
    c->is_narrow = c->vectors <= MORE && fig_random_range(random, 0, 3) > 0;
    c->is_apart = fig_random_range(random, 0, 3) == 0;
    c->is_wild = fig_random_range(random, 0, 1);
    c->parts = std::min({c->pieces, c->vectors, limits[fig_random_range(random, 0, 3)]});
    if (c->is_apart) c->parts = 1;
    const size_t values = FIG_LATENT_VECTORS * FIG_LATENT_DIM;
    c->partials.assign((size_t)(c->pieces + FIRST_PIECE) * values, 0);
    c->sums.assign(values, 0);
    c->values.assign(values, 0);
    c->out.assign(values, 0x7fff);
    c->total.assign(FIG_LATENT_VECTORS, 0);
    c->lse.assign(FIG_LATENT_VECTORS, 0);
    c->greatest.assign(FIG_LATENT_VECTORS, 0);
    c->weights.assign(FIG_LATENT_VECTORS, 0);
    c->counters.assign(1, 0);
    c->of.partials = c->partials.data();
    c->of.out = c->out.data();
    c->of.lse = c->lse.data();
    c->of.counters = c->counters.data();
    c->of.q_heads = c->vectors;
    c->of.kv_heads = c->of.split.row_tokens = c->of.split.groups = 1;
}

/* Returns 0 if a block does not end. */
static int run_blocks(segment_case *c, fig_random *random) {
    const int backwards = fig_random_range(random, 0, 1);
    const auto leave = !c->is_narrow ? leave_piece : c->vectors <= FEW ? leave_few : leave_more;
    c->merge = {c->parts, 0, 0, 0, FIRST_PIECE, FIRST_PIECE + c->pieces - 1, FIRST_PARTIAL};
    for (int32_t piece = 0; piece < c->pieces; piece++) {
        draw_piece(c, random);
        c->partial = piece == 0 ? FIRST_PARTIAL : FIRST_PIECE - 1 + piece;
        if (c->pieces == 1) c->partial = -1; /* the segment is whole */
        if (!block_runs(leave, c, 0, backwards)) return 0;
        if (c->pieces == 1) return 1;
        if (c->is_apart && !block_runs(merge_part, c, 0, backwards)) return 0;
    }
    for (int32_t part = 0; part < c->parts && !c->is_apart; part++) {
        c->merge.part = part;
        if (!block_runs(merge_part, c, 0, backwards)) return 0;
    }
    return 1;
}

/* Returns the rms error of a vector, relative to its greatest value. */
static double error_of(const segment_case &c, int32_t vector) {
    double squares = 0, most = 0;
    for (int32_t i = vector * FIG_LATENT_DIM; i < (vector + 1) * FIG_LATENT_DIM; i++) {
        const double total = c.total[(size_t)vector];
        const double due = total > 0 ? c.values[(size_t)i] / total : 0;
        const double off = fig_numeric_load(c.out.data(), FIG_F16, i) - due;
        squares += off * off;
        most = std::max(most, std::fabs(due));
    }
    /* f16 has a least step. */
    return std::sqrt(squares / FIG_LATENT_DIM) / std::max(most, 1e-4);
}

/* Returns 0 if the results are not float64's. */
static int try_case(uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    segment_case c = {};
    draw_case(&c, &random);
    const int has_ended = run_blocks(&c, &random);
    const int is_clean = std::all_of(c.partials.begin(), c.partials.end(),
                                     [](float x) { return __float_as_uint(x) == 0; });
    double error = 0, lse_error = 0;
    for (int32_t n = 0; n < c.vectors; n++) {
        const double lse = std::log2(c.total[(size_t)n]);
        const double of_vector = error_of(c, n);
        if (!(of_vector <= error)) error = of_vector; /* NaN, too */
        if (std::isnan(error)) break;
        if (c.total[(size_t)n] > 0)
            lse_error = std::max(lse_error, std::fabs(lse - c.lse[(size_t)n]));
    }
    if (has_ended && is_clean && error < 4e-4 && lse_error < 1e-4 && c.counters[0] == 0) return 1;
    printf("seed %llu: narrow %d, %d pieces of %d vectors, %d parts, apart %d: ended %d, clean %d, "
           "error %g, "
           "lse %g\n",
           (unsigned long long)seed, c.is_narrow, c.pieces, c.vectors, c.parts, c.is_apart,
           has_ended, is_clean, error, lse_error);
    return 0;
}

int main(int argc, char **argv) {
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 10) : 10;
    for (uint64_t seed = 1; seed <= cases; seed++)
        if (!try_case(seed)) return 1;
    printf("%llu segments are float64's\n", (unsigned long long)cases);
    return 0;
}
