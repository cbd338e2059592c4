/* attention_form.cuh: describes an instance of attention on tensor cores, and the part of a
 * worker's work that one warp does.
 *
 * attention_strip.cuh processes strips in these terms. Invariant: nothing here depends on the
 * tokens of a strip. */
#ifndef FIG_KERNELS_ATTENTION_FORM_CUH
#define FIG_KERNELS_ATTENTION_FORM_CUH

#include "kernels/strips/attention_turn.cuh"
#include "kernels/strips/readers.cuh"
#include "kernels/attention/logit.h"
#include "kernels/attention/partials.cuh"
#ifdef FIG_PIECES_TAILS
#include "kernels/attention/tails.cuh"
#endif

/* The factor from a logit to base 2. A score takes a logit in base e. */
#ifdef FIG_PIECES_SCORED
#define FIG_WARPS_BASE 1.0f
#else
#define FIG_WARPS_BASE FIG_NUMERIC_LOG2_E
#endif

/* 1: warps may take turns at the strips of a piece, and are then shares, too */
#ifdef FIG_PIECES_PACKED
#define FIG_WARPS_TAKE_TURNS 1
#else
#define FIG_WARPS_TAKE_TURNS 0
#endif

/* the largest number of groups of warps that take turns at the strips of a piece */
enum { FIG_WARPS_TURNS_LIMIT = 4 };

/* Holds the compile-time parameters of an instance. */
template <int32_t KV, int32_t DIMS, int32_t SHARE_COUNT, int32_t BULK, int32_t TURNING>
struct fig_warps_form {
    static constexpr int32_t KV_DTYPE = KV;
    static constexpr int32_t HEAD_DIM = DIMS;
    static constexpr int32_t SHARES = SHARE_COUNT; /* 0: read from the launch */
    /* shares whose sums a lane holds at once */
    static constexpr int32_t SHARES_AT_ONCE =
        SHARE_COUNT > 0 && !FIG_WARPS_TAKE_TURNS ? SHARE_COUNT : FIG_GEOMETRY_SHARE_LIMIT;
    /* 1: pieces are short, so latency counts, and registers are free for reducing it. */
    static constexpr int32_t READS_EARLY = SHARE_COUNT == FIG_GEOMETRY_SHARE_LIMIT;
    static constexpr int32_t IS_BULK = BULK;
    /* 1: applies RoPE to q and k, which arrive without it, and appends k and v */
    static constexpr int32_t TURNS = TURNING;
    static constexpr int32_t DTYPE = fig_fragment_dtype(KV);
    /* Log2 of the factor by which weights exceed 2^(l - m): f16 spans 2^-24 to 2^16. */
    static constexpr int32_t LIFT = DTYPE == FIG_F16 ? 7 : 0;
    static constexpr int32_t VALUE_BYTES = KV == FIG_F16 || KV == FIG_BF16 ? 2 : 1;
    static constexpr int32_t CHUNKS = DIMS * VALUE_BYTES / FIG_RING_CHUNK;
    static constexpr int32_t ROW_BYTES = DIMS * VALUE_BYTES;
    static constexpr int32_t COLUMN = fig_geometry_column(VALUE_BYTES, DIMS);
    static constexpr int32_t BLOCK_BYTES = fig_geometry_block_bytes(VALUE_BYTES, DIMS);
    static constexpr int32_t BOXES = 1; /* boxes that bring a block of one side */
    static constexpr int32_t FILLERS = BULK ? FIG_GEOMETRY_BULK_FILLERS : FIG_GEOMETRY_COPY_FILLERS;
    static constexpr int32_t STEPS = fig_geometry_steps(VALUE_BYTES, DIMS);
    static constexpr int32_t SHARE_TOKENS = FIG_RING_TOKENS * STEPS;
    static constexpr int32_t STRIP = SHARE_TOKENS * SHARE_COUNT;
    static constexpr int32_t TILES = DIMS / 16; /* tiles of 16 dimensions */
    static constexpr int32_t TILES_OF_LOAD = 2 / VALUE_BYTES;
    static constexpr int32_t LOADS = (TILES + TILES_OF_LOAD - 1) / TILES_OF_LOAD;
    static constexpr int32_t PARTIAL_DIMS = fig_geometry_partial_dims(DIMS);
    static constexpr int32_t PACKS = PARTIAL_DIMS / 32; /* packs of a vector that one lane holds */
    static constexpr int32_t OF_VECTOR = PARTIAL_DIMS / FIG_PARTIALS_PACK; /* packs of a vector */
    /* 1: V is read before logits become weights, so that conversions fill the waits. */
    static constexpr int32_t IS_AHEAD = VALUE_BYTES == 1 && DIMS <= 128 && BULK;
    static_assert(DIMS % 16 == 0 && DIMS <= 256, "head_dim");
};

/* Describes the part of a worker's work that one warp does. */
typedef struct fig_warps_role {
    int32_t lane, row, column; /* row and column in a fragment: lane / 4, lane % 4 */
    int32_t shares, share;
    int32_t head;           /* index among the worker's heads */
    int32_t first, count;   /* vectors of the head */
    int32_t ratio, vectors; /* q heads of a kv head; vectors of all heads of a worker */
    int32_t number;         /* index of the group of warps with these vectors */
#ifdef FIG_PIECES_PACKED
    int32_t parts, part; /* warps that divide the tokens of a strip, and the warp's index */
    /* The warps with the same vectors are `turns` groups of `parts` warps, and a group processes
     * every turns-th strip of a piece. A warp whose turn is not below `turns` has no vectors. */
    int32_t turns, turn;
    int32_t sets;    /* sets of vectors that a head has in this piece */
    int32_t meeting; /* barrier of the warps with these vectors */
#endif
} fig_warps_role;

/* Holds the state of a warp's vectors. A lane has two of the vectors: columns 2t and 2t + 1. */
template <class form> struct fig_warps_seen {
    uint32_t q[form::TILES][2];
    float values[form::TILES][4];
    float weights[2]; /* sums over only the lane's rows */
    float greatest[2];
    float scale[2]; /* factor from a product to a logit in base 2, or to a score's logit */
    int32_t query[2];
};

/* Returns the number of warps that share a head's tokens if a head has `vectors` vectors. */
template <class form>
static __device__ __forceinline__ int32_t fig_warps_shares(const fig_attention_params &p,
                                                           int32_t vectors) {
    return form::SHARES > 0 ? form::SHARES
                            : fig_geometry_shares(fig_geometry_sets(p.heads_per_worker, vectors));
}

template <class form>
static __device__ __forceinline__ fig_warps_role fig_warps_role_of(const fig_attention_params &p) {
    fig_warps_role role;
    const int32_t warp = fig_block_warp();
    role.ratio = fig_geometry_divide(p.q_heads, p.kv_heads);
    const int32_t vectors = role.ratio * p.split.row_tokens;
    role.vectors = vectors * p.heads_per_worker;
    role.lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    role.row = role.lane / 4;
    role.column = role.lane % 4;
    role.shares = fig_warps_shares<form>(p, vectors);
    role.number = form::SHARES > 0 ? warp / role.shares : fig_geometry_divide(warp, role.shares);
    role.share = warp - role.number * role.shares;
    const int32_t turn = fig_geometry_divide(role.number, p.heads_per_worker);
    role.head = role.number - turn * p.heads_per_worker;
    role.first = turn * FIG_GEOMETRY_VECTORS;
    role.count = fig_size_min(FIG_GEOMETRY_VECTORS, vectors - role.first);
#ifdef FIG_PIECES_PACKED
    role.parts = role.shares;
    role.part = role.share;
    role.turns = 1;
    role.turn = 0;
    role.sets = fig_geometry_sets(1, vectors);
    role.meeting = 1 + role.number;
#endif
    return role;
}

#ifdef FIG_PIECES_PACKED

/* Returns the barrier of the warps with the role's vectors. Groups of warps that divide a strip
 * meet at barriers of their own, because other groups of their set may already wait for the end of
 * the piece. Numbers of turns have different barriers, too, although all warps meet between them.
 * The largest number is 7. */
static __device__ __forceinline__ int32_t fig_warps_meeting_of(const fig_warps_role &role,
                                                               int32_t heads, int32_t sets) {
    int32_t meeting = 1 + role.first / FIG_GEOMETRY_VECTORS * heads + role.head;
    if (role.turns > 1 && role.parts > 1) meeting += sets;
    if (role.turns > 2) meeting += (sets + 1) / 2;
    return meeting;
}

/* Returns the warp's role in a piece whose row has `queries` query tokens. full: its role if the
 * row has as many as a row can have. A shorter row has fewer sets of vectors, so most warps would
 * have none, and a single warp would process all strips one after the other. Therefore 2 or 4
 * groups of warps get the same vectors, and take turns at the strips. */
static __device__ __forceinline__ fig_warps_role fig_warps_role_in(const fig_attention_params &p,
                                                                   const fig_warps_role &full,
                                                                   int32_t queries) {
    const int32_t vectors = queries * full.ratio, set = full.first / FIG_GEOMETRY_VECTORS;
    fig_warps_role role = full;
    role.sets = max(fig_geometry_sets(1, vectors), 1);
    role.turns = full.sets >= FIG_WARPS_TURNS_LIMIT * role.sets ? FIG_WARPS_TURNS_LIMIT
                 : full.sets >= 2 * role.sets                   ? 2
                                                                : 1;
    role.turn = fig_geometry_divide(set, role.sets);
    role.first = (set - role.turn * role.sets) * FIG_GEOMETRY_VECTORS;
    role.count = max(fig_size_min(FIG_GEOMETRY_VECTORS, vectors - role.first), 1);
    role.shares = role.turns * full.parts;
    role.share = role.turn * full.parts + full.part;
    role.meeting = fig_warps_meeting_of(role, p.heads_per_worker, full.sets * p.heads_per_worker);
    return role;
}

/* Returns 1 if the warp processes strip number `strip` of a piece. */
static __device__ __forceinline__ int32_t fig_warps_has_turn(const fig_warps_role &role,
                                                             int32_t strip) {
    return (strip & (role.turns - 1)) == role.turn; /* `turns` is a power of two. */
}

#endif

/* Returns the barrier of the warps that share a head's tokens. */
static __device__ __forceinline__ int32_t fig_warps_meeting(const fig_warps_role &role) {
#ifdef FIG_PIECES_PACKED
    return role.meeting;
#else
    return 1 + role.number;
#endif
}

/* The warp's index among the warps that divide the tokens of a strip. This is a macro because, with
 * a function, ptxas orders the instructions of other families differently. */
#ifdef FIG_PIECES_PACKED
#define FIG_WARPS_PART(role) ((role).part)
#else
#define FIG_WARPS_PART(role) ((role).share)
#endif

/* Returns the number of a head's vectors that have a place in the join. */
static __device__ __forceinline__ int32_t fig_warps_head_vectors(const fig_attention_params &p,
                                                                 const fig_warps_role &role) {
    return fig_size_min(FIG_GEOMETRY_VECTORS, role.ratio * p.split.row_tokens);
}

static __device__ __forceinline__ fig_partials_place fig_warps_place(const fig_attention_params &p,
                                                                     const fig_warps_role &role,
                                                                     int32_t row, int32_t group) {
    fig_partials_place place;
    place.row = row;
    place.group = group;
    place.base = row * p.split.row_tokens;
    place.kv_head = group * p.heads_per_worker + role.head;
    place.ratio = role.ratio;
    place.first = role.first;
    place.count = role.count;
    place.index = role.head * role.ratio * p.split.row_tokens + role.first;
    place.vectors = role.vectors;
    place.v_scale = 1;
#ifdef FIG_PIECES_SCORED
    place.kv_length = ((const int32_t *)(p.plan + p.lengths_offset))[row];
#endif
    return place;
}

/* Narrows the place to the query tokens of its row, in a packed program. A warp without a vector
 * still loads one vector of the row. */
static __device__ __forceinline__ void fig_warps_narrow(const fig_attention_params &p,
                                                        const fig_warps_role &role,
                                                        fig_partials_place *place) {
    if (p.queries_offset == 0) return;
    const fig_plan_queries queries =
        fig_plan_queries_of(p.plan, p.queries_offset, p.split.row_tokens, place->row);
    place->base = queries.first;
    place->count = max(min(role.count, queries.count * role.ratio - role.first), 0);
    if (place->count == 0) place->base -= fig_geometry_divide(role.first, role.ratio);
}

template <class form>
static __device__ __forceinline__ void fig_warps_begin(const fig_warps_role &role,
                                                       fig_warps_seen<form> *seen) {
#pragma unroll
    for (int32_t m = 0; m < form::TILES; m++)
#pragma unroll
        for (int32_t i = 0; i < 4; i++)
            seen->values[m][i] = 0;
#pragma unroll
    for (int32_t i = 0; i < 2; i++) {
        seen->greatest[i] = FIG_PARTIALS_NONE;
        seen->weights[i] = 0;
        seen->query[i] = fig_geometry_divide(
            role.first + fig_size_min(2 * role.column + i, role.count - 1), role.ratio);
    }
}

#endif
