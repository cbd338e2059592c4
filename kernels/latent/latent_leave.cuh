/* latent_leave.cuh: writes the results of pieces over a latent cache, and merges those of cut
 * segments.
 *
 * A thread of a warpgroup has two vectors, 8 apart. Of each vector it has 64 sums of one half of V:
 * the dimensions 8 j + 2 q and 8 j + 2 q + 1 of that half for j = 0 .. 31, where q is the thread's
 * number in its quad. A partial has 2 KB of room for a vector:
 *
 *     bytes    0 .. 1023                             1024 .. 1087
 *     f16      [half of V][32 dims][quarter][8]      f32 [half of V][quarter]{greatest, weights}
 *
 * The 8 values of a pack belong to four values of j, so a quad writes 64 bytes. The f16 values are
 * sums divided by a power of two, so that a thread's greatest value is below 2^15; `greatest`
 * accounts for that power. Words are their own flags, as in partials.cuh. The blocks that share a
 * merge divide it by whole vectors; 64 threads merge a vector, one pack each. Under
 * FIG_ATTENTION_APART the block whose piece is the last to finish merges all vectors.
 *
 * Invariant: partials, sums and counters are zeros before and after a launch. The same plan gives
 * the same bits. */
#ifndef FIG_KERNELS_LATENT_LEAVE_CUH
#define FIG_KERNELS_LATENT_LEAVE_CUH

#include "kernels/latent/latent_ring.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    FIG_LATENT_LEAVE_SUMS = 128, /* sums of a thread */
    FIG_LATENT_LEAVE_PACK = 8,   /* values of a pack */
    FIG_LATENT_LEAVE_PACKS = FIG_LATENT_DIM / FIG_LATENT_LEAVE_PACK,
    FIG_LATENT_LEAVE_SUMS_AT = FIG_LATENT_DIM / 2, /* words behind a vector's place in a partial */
    FIG_LATENT_LEAVE_CREWS = FIG_LATENT_RING_READERS / FIG_LATENT_LEAVE_PACKS,
    FIG_LATENT_LEAVE_EXPONENT =
        127 + 14,                        /* biased exponent of the greatest f16 value of a thread */
    FIG_LATENT_LEAVE_EXPONENT_LEAST = 63 /* lower bound of fig_latent_leave_exponent() */
};
static_assert((int)FIG_LATENT_LEAVE_PACKS == 2 * FIG_BLOCK_WARP, "a warp has half a vector");

/* Names all vectors of a group of a row. */
static __device__ __forceinline__ fig_partials_place
fig_latent_leave_place(const fig_attention_params &of, int32_t row, int32_t group) {
    const fig_plan_queries queries = fig_pieces_queries(of, row);
    fig_partials_place place = {row, group};
    place.base = queries.first;
    place.kv_head = group;
    place.ratio = of.q_heads / of.kv_heads;
    place.count = queries.count * place.ratio;
    place.vectors = of.split.row_tokens * place.ratio;
    place.v_scale = 1;
    return place;
}

/* Returns the vectors of the place that the block has: all of them, or the block's half. */
static __device__ __forceinline__ fig_partials_place
fig_latent_leave_part(fig_partials_place place) {
    const int32_t half = place.vectors / FIG_FEED_BLOCKS;
    const int32_t first = (int32_t)blockIdx.x % FIG_FEED_BLOCKS * half;
    place.first = place.index = first;
    place.count = fig_size_min(max(place.count - first, 0), half);
    return place;
}

/* ---- The end of a piece */

/* Transposes the 4 x 4 words of a quad of lanes: lane n gets word n of each lane. All lanes of the
 * warp take part. */
static __device__ __forceinline__ uint4 fig_latent_leave_turn(uint32_t (&words)[4]) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t is_odd = lane & 1, is_high = lane & 2;
#pragma unroll
    for (int32_t j = 0; j < 4; j += 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, is_odd ? words[j] : words[j + 1], 1);
        words[j] = is_odd ? other : words[j];
        words[j + 1] = is_odd ? words[j + 1] : other;
    }
#pragma unroll
    for (int32_t j = 0; j < 2; j++) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, is_high ? words[j] : words[j + 2], 2);
        words[j] = is_high ? other : words[j];
        words[j + 2] = is_high ? words[j + 2] : other;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Writes half a vector to out, 16 bytes per lane. All lanes of the warp take part. is_kept: 0 if
 * the lane's vector does not exist. h: 0 for the lane's first vector, 1 for its second. */
template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_latent_leave_row(uint16_t *to, const float (&sums)[FIG_LATENT_LEAVE_SUMS], int32_t h,
                     float scale, int32_t is_kept) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_SUMS; i += 16) {
        uint32_t words[4];
#pragma unroll
        for (int32_t j = 0; j < 4; j++)
            words[j] = fig_fragment_pair<DTYPE>(sums[i + 4 * j + 2 * h] * scale,
                                                sums[i + 4 * j + 2 * h + 1] * scale);
        const uint4 turned = fig_latent_leave_turn(words);
        if (is_kept) *(uint4 *)(to + i / 4 * 8 + lane % 4 * 8) = turned;
    }
}

/* Returns the address of a vector's place in a partial. */
static __device__ __forceinline__ float *fig_latent_leave_vector(const fig_attention_params &of,
                                                                 int64_t vector) {
    return of.partials + vector * FIG_LATENT_DIM;
}

/* Returns the biased exponent of the greatest of the thread's sums of a vector, but at least
 * FIG_LATENT_LEAVE_EXPONENT_LEAST, so that the powers of two that are computed from it stay finite.
 * Sums far below that bound are lost. */
static __device__ __forceinline__ int32_t
fig_latent_leave_exponent(const float (&sums)[FIG_LATENT_LEAVE_SUMS], int32_t h) {
    float most = 0;
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_SUMS; i += 4)
        most = fmaxf(most, fmaxf(fabsf(sums[i + 2 * h]), fabsf(sums[i + 2 * h + 1])));
    return max((int32_t)(__float_as_uint(most) >> 23), (int32_t)FIG_LATENT_LEAVE_EXPONENT_LEAST);
}

/* Writes the thread's half of vector `number` to its partial. */
static __device__ __forceinline__ void
fig_latent_leave_partial(const fig_attention_params &of, const fig_partials_place &place,
                         int32_t partial, int32_t number, int32_t half,
                         const float (&sums)[FIG_LATENT_LEAVE_SUMS], int32_t h,
                         fig_partials_sum sum) {
    const int32_t quarter = (int32_t)threadIdx.x % 4;
    const int32_t lift = FIG_LATENT_LEAVE_EXPONENT - fig_latent_leave_exponent(sums, h);
    const float scale = __uint_as_float((uint32_t)(127 + lift) << 23);
    float *vector = fig_latent_leave_vector(of, fig_partials_at(place, partial) + number);
    float *to = vector + (half * FIG_BLOCK_WARP + quarter) * 4;
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_SUMS; i += 16) {
        uint32_t words[4];
#pragma unroll
        for (int32_t j = 0; j < 4; j++) {
            words[j] = fig_fragment_pair<FIG_F16>(sums[i + 4 * j + 2 * h] * scale,
                                                  sums[i + 4 * j + 2 * h + 1] * scale);
            words[j] = words[j] == 0 ? 0x80000000u : words[j];
        }
        fig_machine_store(to + i, make_uint4(words[0], words[1], words[2], words[3]));
    }
    fig_machine_store(vector + FIG_LATENT_LEAVE_SUMS_AT + (half * 4 + quarter) * 2,
                      make_uint2(fig_partials_word(sum.greatest - (float)lift),
                                 fig_partials_word(sum.weights * scale)));
}

/* Writes the result of a piece: to out if the piece is whole, and otherwise to its partial. row:
 * the thread's first vector. half: the half of V that the warpgroup has. */
template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_latent_leave(const fig_attention_params &of, const fig_partials_place &place, int32_t partial,
                 int32_t row, int32_t half, const float (&sums)[FIG_LATENT_LEAVE_SUMS],
                 const fig_partials_sum (&sum)[2]) {
    /* A warp whose vectors do not exist writes nothing. */
    if ((row & -16) >= place.count) return;
#pragma unroll
    for (int32_t h = 0; h < 2; h++) {
        const int32_t number = row + 8 * h, is_kept = number < place.count;
        if (partial >= 0) {
            if (is_kept)
                fig_latent_leave_partial(of, place, partial, number, half, sums, h, sum[h]);
            continue;
        }
        const fig_partials_way way = fig_partials_way_of(of, place, is_kept ? number : 0);
        const fig_pieces_end end = fig_partials_end_of(way, sum[h]);
        fig_latent_leave_row<DTYPE>((uint16_t *)of.out + way.out + half * FIG_LATENT_RING_HALF_DIMS,
                                    sums, h, end.scale, is_kept);
        if (is_kept && half == 0 && threadIdx.x % 4 == 0 && of.lse != NULL)
            of.lse[way.lse] = end.lse;
    }
}

/* ---- Merges */

/* A thread's pack of a vector, and the sum of the vector's weights. */
typedef struct fig_latent_leave_pack {
    float joined[FIG_LATENT_LEAVE_PACK];
    fig_partials_sum sum;
} fig_latent_leave_pack;

/* The vectors that a block merges: those of `range`. The pieces of each vector are divided among
 * `lots` lots, each of which has every lots-th piece, so that all threads of a block have loads to
 * issue even if the block has few vectors. */
typedef struct fig_latent_leave_share {
    fig_partials_segment segment;
    fig_partials_range range;
    int32_t lots;
} fig_latent_leave_share;

/* The lots that a thread merges at once. A lot without a vector repeats the loads of the first lot,
 * and its result is not used. */
template <class form> struct fig_latent_leave_lots {
    int32_t number[form::ABREAST]; /* [lot] its vector */
    int32_t first[form::ABREAST];  /* [lot] its first piece */
    int32_t count;                 /* lots that have a vector */
};

template <class form> struct fig_latent_leave_loaded {
    uint4 values[form::ABREAST][form::TRIP];
    uint2 sums[form::ABREAST][form::TRIP];
};

/* Lays out the packs of a vector as fig_latent_leave() does. narrow_leave.cuh has another form.
 * LOTS: lots that a crew handles at once. PIECES: pieces of each that one round trip loads. */
template <int32_t LOTS, int32_t PIECES> struct fig_latent_leave_form {
    static constexpr int32_t ABREAST = LOTS, TRIP = PIECES;
    /* Returns the first of the 8 dimensions that the lane of a pack has after a quad's turn. */
    static __device__ __forceinline__ int32_t dim(int32_t pack) {
        return pack * FIG_LATENT_LEAVE_PACK;
    }
    /* Returns the number of the sum of weights that belongs to a pack. */
    static __device__ __forceinline__ int32_t sum(int32_t pack) {
        return pack / FIG_BLOCK_WARP * 4 + pack % 4;
    }
    /* Returns 1 if the lane of the pack clears that sum. */
    static __device__ __forceinline__ int32_t clears(int32_t pack) {
        return pack % FIG_BLOCK_WARP < 4;
    }
};

/* Passes results from crew to crew, in the memory of tiles. Two passes take turns, so one barrier a
 * pass is enough. */
typedef struct fig_latent_leave_shelf {
    float4 low[2][FIG_LATENT_LEAVE_CREWS][FIG_LATENT_LEAVE_PACKS];
    float4 high[2][FIG_LATENT_LEAVE_CREWS][FIG_LATENT_LEAVE_PACKS];
    float2 sums[2][FIG_LATENT_LEAVE_CREWS][FIG_LATENT_LEAVE_PACKS];
} fig_latent_leave_shelf;
static_assert(sizeof(fig_latent_leave_shelf) <= (size_t)FIG_LATENT_WIDE_SIDE_BYTES, "a tile's");

/* Returns the address of a vector's place in the partial of a piece. */
static __device__ __forceinline__ float *
fig_latent_leave_place_of(const fig_attention_params &of, const fig_partials_segment &segment,
                          int32_t piece, int32_t number) {
    return fig_latent_leave_vector(of, (int64_t)fig_partials_of(segment, piece) * segment.vectors +
                                           number);
}

/* Returns the address of the thread's sum of weights in a vector's place. Eight lanes share it. */
template <class form>
static __device__ __forceinline__ int32_t fig_latent_leave_sums_at(int32_t pack) {
    return FIG_LATENT_LEAVE_SUMS_AT + form::sum(pack) * 2;
}

/* Loads the pieces of one trip, from the first ones of `lots` on, and waits until they have
 * arrived. No load is conditional: a position past the last piece loads the first lot's piece
 * again. */
template <class form>
static __device__ __forceinline__ void
fig_latent_leave_await(const fig_attention_params &of, const fig_latent_leave_share &share,
                       const fig_latent_leave_lots<form> &lots, int32_t pack,
                       fig_latent_leave_loaded<form> *loaded) {
    uint32_t least;
#pragma unroll 1
    for (int32_t looks = 0;; looks++) {
        int32_t step = share.lots;
        least = ~0u;
        /* Hidden from the compiler, which would hold all addresses in registers across looks. */
        asm volatile("" : "+r"(step));
#pragma unroll
        for (int32_t i = 0; i < form::TRIP; i++) {
#pragma unroll
            for (int32_t v = 0; v < form::ABREAST; v++) {
                const int32_t at = lots.first[v] + i * step;
                const int32_t piece = at < share.segment.pieces ? at : lots.first[0];
                const float *from =
                    fig_latent_leave_place_of(of, share.segment, piece, lots.number[v]);
                fig_machine_load(&loaded->values[v][i], from + pack * 4);
                fig_machine_load(&loaded->sums[v][i], from + fig_latent_leave_sums_at<form>(pack));
            }
        }
#pragma unroll
        for (int32_t i = 0; i < form::TRIP * form::ABREAST; i++) {
            const int32_t v = i % form::ABREAST, at = i / form::ABREAST;
            const uint4 words = loaded->values[v][at];
            least = min(least, min(min(words.x, words.y), min(words.z, words.w)));
            least = min(least, min(loaded->sums[v][at].x, loaded->sums[v][at].y));
        }
        if (!__any_sync(0xffffffffu, least == 0)) return;
        fig_latent_machine_end_if(looks == FIG_PARTIALS_LOOKS_LIMIT);
    }
}

static __device__ __forceinline__ void fig_latent_leave_scale(fig_latent_leave_pack *pack,
                                                              float greatest) {
    const float shrink = fig_machine_exp2(pack->sum.greatest - greatest);
    pack->sum.greatest = greatest;
    pack->sum.weights *= shrink;
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_PACK; i++)
        pack->joined[i] *= shrink;
}

static __device__ __forceinline__ void
fig_latent_leave_add(fig_latent_leave_pack *pack, const float (&values)[FIG_LATENT_LEAVE_PACK],
                     fig_partials_sum sum) {
    const float weight = fig_machine_exp2(sum.greatest - pack->sum.greatest);
    pack->sum.weights = fmaf(sum.weights, weight, pack->sum.weights);
#pragma unroll
    for (int32_t i = 0; i < FIG_LATENT_LEAVE_PACK; i++)
        pack->joined[i] = fmaf(values[i], weight, pack->joined[i]);
}

static __device__ __forceinline__ void
fig_latent_leave_unpack(uint4 words, float (&values)[FIG_LATENT_LEAVE_PACK]) {
    const uint32_t pairs[] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const float2 pair = fig_latent_machine_floats(pairs[i]);
        values[2 * i] = pair.x;
        values[2 * i + 1] = pair.y;
    }
}

/* Adds lot `v`'s pieces of a trip, and writes zeros over what the warp has read. */
template <class form>
static __device__ __forceinline__ void
fig_latent_leave_add_trip(const fig_attention_params &of, const fig_latent_leave_share &share,
                          const fig_latent_leave_lots<form> &lots, int32_t v, int32_t pack,
                          const fig_latent_leave_loaded<form> &loaded,
                          fig_latent_leave_pack *result) {
    float greatest = result->sum.greatest;
#pragma unroll
    for (int32_t i = 0; i < form::TRIP; i++)
        greatest = fmaxf(greatest, __uint_as_float(loaded.sums[v][i].x));
    fig_latent_leave_scale(result, greatest);
#pragma unroll
    for (int32_t i = 0; i < form::TRIP; i++) {
        if (lots.first[v] + i * share.lots >= share.segment.pieces) break;
        float values[FIG_LATENT_LEAVE_PACK];
        fig_latent_leave_unpack(loaded.values[v][i], values);
        fig_latent_leave_add(
            result, values,
            {__uint_as_float(loaded.sums[v][i].x), __uint_as_float(loaded.sums[v][i].y)});
    }
    const int32_t trip_end = lots.first[v] + form::TRIP * share.lots;
    const int32_t end = fig_size_min(trip_end, share.segment.pieces);
#pragma unroll 1
    for (int32_t piece = lots.first[v]; piece < end; piece += share.lots) {
        float *cleared = fig_latent_leave_place_of(of, share.segment, piece, lots.number[v]);
        fig_machine_store(cleared + pack * 4, make_uint4(0, 0, 0, 0));
        if (form::clears(pack))
            fig_machine_store(cleared + fig_latent_leave_sums_at<form>(pack), make_uint2(0, 0));
    }
}

/* Merges the pieces of the crew's lots. Lots of the same vector become one. */
template <class form>
static __device__ __forceinline__ void
fig_latent_leave_join(const fig_attention_params &of, const fig_latent_leave_share &share,
                      fig_latent_leave_lots<form> lots, int32_t pack,
                      fig_latent_leave_pack (&results)[form::ABREAST]) {
    fig_latent_leave_loaded<form> loaded;
#pragma unroll
    for (int32_t v = 0; v < form::ABREAST; v++) {
#pragma unroll
        for (int32_t i = 0; i < FIG_LATENT_LEAVE_PACK; i++)
            results[v].joined[i] = 0;
        results[v].sum = {FIG_PARTIALS_NONE, 0};
    }
#pragma unroll 1
    while (lots.count > 0 && lots.first[0] < share.segment.pieces) {
        fig_latent_leave_await<form>(of, share, lots, pack, &loaded);
#pragma unroll
        for (int32_t v = 0; v < form::ABREAST; v++) {
            if (v < lots.count)
                fig_latent_leave_add_trip<form>(of, share, lots, v, pack, loaded, &results[v]);
            lots.first[v] += form::TRIP * share.lots;
        }
    }
#pragma unroll
    for (int32_t apart = 1; apart < form::ABREAST; apart *= 2) {
        if (share.lots <= apart) return;
#pragma unroll
        for (int32_t v = 0; v < form::ABREAST; v += 2 * apart) {
            const fig_latent_leave_pack &other = results[v + apart];
            fig_latent_leave_scale(&results[v], fmaxf(results[v].sum.greatest, other.sum.greatest));
            fig_latent_leave_add(&results[v], other.joined, other.sum);
        }
    }
}

/* Adds the results of all crews that have the same vector to the result of the first of these
 * crews. turn: 0 or 1, alternating from call to call. All threads of both warpgroups call this
 * function. */
static __device__ __forceinline__ void fig_latent_leave_gather(fig_latent_leave_shelf *shelf,
                                                               int32_t turn, int32_t crews,
                                                               int32_t crew, int32_t pack,
                                                               fig_latent_leave_pack *result) {
    const float *x = result->joined;
    if (crew % crews != 0) {
        shelf->low[turn][crew][pack] = make_float4(x[0], x[1], x[2], x[3]);
        shelf->high[turn][crew][pack] = make_float4(x[4], x[5], x[6], x[7]);
        shelf->sums[turn][crew][pack] = make_float2(result->sum.greatest, result->sum.weights);
    }
    fig_ring_meet(FIG_LATENT_RING_ALL, FIG_LATENT_RING_READERS);
    if (crew % crews != 0) return;
#pragma unroll 1
    for (int32_t i = crew + 1; i < crew + crews; i++) {
        const float4 low = shelf->low[turn][i][pack], high = shelf->high[turn][i][pack];
        const float2 sum = shelf->sums[turn][i][pack];
        const float values[FIG_LATENT_LEAVE_PACK] = {low.x,  low.y,  low.z,  low.w,
                                                     high.x, high.y, high.z, high.w};
        fig_latent_leave_scale(result, fmaxf(result->sum.greatest, sum.x));
        fig_latent_leave_add(result, values, {sum.x, sum.y});
    }
}

template <int32_t DTYPE, class form>
static __device__ __forceinline__ void
fig_latent_leave_write(const fig_attention_params &of, const fig_partials_place &place,
                       int32_t number, int32_t pack, const fig_latent_leave_pack &result) {
    const fig_partials_way way = fig_partials_way_of(of, place, number);
    const fig_pieces_end end = fig_partials_end_of(way, result.sum);
    uint32_t words[4];
#pragma unroll
    for (int32_t i = 0; i < 4; i++)
        words[i] = fig_fragment_pair<DTYPE>(result.joined[2 * i] * end.scale,
                                            result.joined[2 * i + 1] * end.scale);
    *(uint4 *)((uint16_t *)of.out + way.out + form::dim(pack)) = fig_latent_leave_turn(words);
    if (pack == 0 && of.lse != NULL) of.lse[way.lse] = end.lse;
}

/* Returns the number of lots per vector, a power of two, that merges `vectors` vectors of `pieces`
 * pieces in the fewest round trips. */
template <class form>
static __device__ __forceinline__ int32_t fig_latent_leave_lots_of(int32_t pieces,
                                                                   int32_t vectors) {
    const int32_t LOTS = FIG_LATENT_LEAVE_CREWS * form::ABREAST;
    int32_t lots = 1, least = INT32_MAX;
#pragma unroll
    for (int32_t n = 1; n <= LOTS; n *= 2) {
        const int32_t of_trip = form::TRIP * n;
        const int32_t trips = (pieces + of_trip - 1) / of_trip * ((vectors * n + LOTS - 1) / LOTS);
        lots = trips < least ? n : lots;
        least = min(least, trips);
    }
    return lots;
}

/* Merges the block's vectors, by crews of 64 threads. */
template <int32_t DTYPE, class form>
static __device__ __forceinline__ void
fig_latent_leave_vectors(const fig_attention_params &of, const fig_partials_place &place,
                         const fig_latent_leave_share &share, fig_latent_leave_shelf *shelf) {
    const int32_t LOTS = FIG_LATENT_LEAVE_CREWS * form::ABREAST;
    const int32_t crew = (int32_t)threadIdx.x / FIG_LATENT_LEAVE_PACKS;
    const int32_t pack = (int32_t)threadIdx.x % FIG_LATENT_LEAVE_PACKS;
    const int32_t crews = share.lots / form::ABREAST; /* crews of a vector */
    const int32_t shift = __ffs(share.lots) - 1;
    int32_t turn = 0;
#pragma unroll 1
    for (int32_t n = share.range.first; n < share.range.end; n += LOTS >> shift, turn ^= 1) {
        fig_latent_leave_lots<form> lots;
        fig_latent_leave_pack results[form::ABREAST];
        lots.count = 0;
#pragma unroll
        for (int32_t v = 0; v < form::ABREAST; v++) {
            const int32_t lot = crew * form::ABREAST + v, at = n + (lot >> shift);
            const int32_t is_one = at < share.range.end;
            lots.number[v] = is_one || v == 0 ? at : lots.number[0];
            lots.first[v] = is_one || v == 0 ? lot & (share.lots - 1) : lots.first[0];
            lots.count += is_one;
        }
        fig_latent_leave_join<form>(of, share, lots, pack, results);
        if (crews > 1) fig_latent_leave_gather(shelf, turn, crews, crew, pack, &results[0]);
        if (crews > 1 && crew % crews != 0) continue;
#pragma unroll
        for (int32_t v = 0; v < form::ABREAST; v++)
            if (v < lots.count && (v & (share.lots - 1)) == 0)
                fig_latent_leave_write<DTYPE, form>(of, place, lots.number[v], pack, results[v]);
    }
}

/* Counts the block's piece as finished. Returns 1 if it was the last one of its segment, in all
 * blocks that have vectors of it. */
template <class state_of>
static __device__ __forceinline__ int32_t fig_latent_leave_is_last(
    const fig_attention_params &of, const fig_latent_ring_merge &merge, state_of *state) {
    __threadfence();
    fig_ring_meet(FIG_LATENT_RING_ALL, FIG_LATENT_RING_READERS);
    if (threadIdx.x == 0) {
        const uint32_t last = (uint32_t)((merge.last - merge.first + 1) * FIG_FEED_BLOCKS - 1);
        uint32_t *counter = &of.counters[fig_split_segment(&of.split, merge.row, merge.group)];
        state->is_last = atomicInc(counter, last) == last;
    }
    fig_ring_meet(FIG_LATENT_RING_ALL, FIG_LATENT_RING_READERS);
    const int32_t is_last = (int32_t)state->is_last;
    __threadfence();
    return is_last;
}

/* Returns the vectors that the block merges: its part of those that it has, or all. */
static __device__ __forceinline__ fig_partials_range fig_latent_leave_range(
    const fig_partials_place &place, uint32_t flags, const fig_latent_ring_merge &merge) {
    if (FIG_FEED_BLOCKS == 1 || flags & FIG_ATTENTION_APART)
        return fig_partials_part(place.count, merge.part, merge.parts);
    const fig_partials_place part = fig_latent_leave_part(place);
    fig_partials_range range = fig_partials_part(part.count, merge.part, merge.parts);
    range.first += part.first;
    range.end += part.first;
    return range;
}

/* Does the block's part of a merge. The block must have written the partials of its own pieces, and
 * both warpgroups must have met since their last product. All of their threads call this
 * function. */
template <int32_t DTYPE, class form, class state_of>
static __device__ __forceinline__ void
fig_latent_leave_merge(const fig_attention_params &of, uint32_t flags,
                       const fig_latent_ring_merge &merge, state_of *state) {
    if (merge.parts == 0) return;
    if (flags & FIG_ATTENTION_APART && !fig_latent_leave_is_last(of, merge, state)) return;
    const fig_partials_place place = fig_latent_leave_place(of, merge.row, merge.group);
    fig_latent_leave_share share;
    share.segment = {merge.partial, merge.first - 1, 1, merge.last - merge.first + 1,
                     place.vectors};
    share.range = fig_latent_leave_range(place, flags, merge);
    share.lots =
        fig_latent_leave_lots_of<form>(share.segment.pieces, share.range.end - share.range.first);
    fig_latent_leave_vectors<DTYPE, form>(of, place, share,
                                          (fig_latent_leave_shelf *)fig_latent_ring_tiles(state));
}

/* Does the block's part of a merge of a group of many vectors. If there are few pieces, a block has
 * many vectors of them, and loads all pieces of several vectors at once. */
template <int32_t DTYPE, class state_of>
static __device__ __forceinline__ void
fig_latent_leave_merge_many(const fig_attention_params &of, uint32_t flags,
                            const fig_latent_ring_merge &merge, state_of *state) {
    const int32_t pieces = merge.last - merge.first + 1;
    if (pieces <= 2) {
        fig_latent_leave_merge<DTYPE, fig_latent_leave_form<4, 2>>(of, flags, merge, state);
    } else {
        fig_latent_leave_merge<DTYPE, fig_latent_leave_form<2, 8>>(of, flags, merge, state);
    }
}

#endif
#endif
