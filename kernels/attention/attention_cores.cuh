/* attention_cores.cuh: computes split-K decode attention on the GPU by plain instructions.
 *
 * out = sum over tokens of 2^(l - m) v / sum of 2^(l - m), where l is the logit in base 2 and m
 * the greatest l. One block is one worker of the split. It walks its stretch of the line piece by
 * piece. Within a piece it takes the kv heads of the group one after the other, the vectors of a
 * head in chunks, and the tokens in strips. All arithmetic is in f32. K and V of a strip pass
 * through shared memory in the cache's format, and one of the two is always in flight:
 *
 *     copies      K0  V0 |             | K1              | V1          | K2 ..
 *     the block          | logits of 0 | weights, sums 0 | logits of 1 | ..
 *
 * Eight lanes compute a logit, a warp computes one vector's weights of a strip, and each thread
 * owns one or two dimensions of every vector's sum. The result of a piece that is a whole segment
 * goes straight to out. Otherwise it goes to the piece's partial, and the last block to finish a
 * piece of the segment merges all pieces. strip.cuh copies from the cache; pieces.cuh handles the
 * results of pieces.
 *
 * Invariant: a token that a query does not see is skipped, not multiplied by a weight of zero, so
 * any bytes may lie there. Premise: head_dim is a multiple of 16 and at most HEAD_DIM_LIMIT.
 *
 * If an image defines FIG_PIECES_SCORED, its kernel evaluates a score and its mask, and its params
 * are a fig_scored_attention_params. A strip begins at a token that the mask shows to some vector,
 * so tokens outside all ranges cost no reads. Other images contain no code for scores. */
#ifndef FIG_KERNELS_ATTENTION_CORES_CUH
#define FIG_KERNELS_ATTENTION_CORES_CUH

#include "kernels/attention/logit.h"
#include "kernels/attention/pieces.cuh"
#include "kernels/attention/strip.cuh"
#include "kernels/common/seen_tiles.h"
#include "kernels/common/vector.cuh"

enum {
    THREADS = FIG_STRIP_WARPS * FIG_BLOCK_WARP,
    HEAD_DIM_LIMIT = 256,
    DIMS = HEAD_DIM_LIMIT / THREADS, /* largest number of dimensions of one thread */
    CHUNK = 16,                      /* vectors whose sums fit in registers */
    PACK = 4,                        /* vectors processed together */
    TEAM = 8,                        /* lanes that share one dot product */
    TEAMS = THREADS / TEAM,
    TEAM_TOKENS = FIG_STRIP_TOKENS / TEAMS
};
static_assert(PACK * TEAM_TOKENS == TEAM, "each lane of a team ends with one logit");

/* Marks the weight of a token that the vector does not see. Weights of seen tokens are never
 * negative. */
#define UNSEEN (-1.0f)

/* Holds the shared memory of a block. It takes 43 KB, so it may be static. */
typedef struct shared_state {
    float vectors[CHUNK][HEAD_DIM_LIMIT]; /* q; at the end of a chunk, each vector's values */
    uint4 k[FIG_STRIP_BYTES / FIG_STRIP_SEGMENT]; /* [tokens][head_dim], in the cache's format */
    uint4 v[FIG_STRIP_BYTES / FIG_STRIP_SEGMENT];
    /* First holds the logits, then the weights. A token has an odd number of packs, so neighbouring
     * tokens start in different banks. */
    float weights[FIG_STRIP_TOKENS][CHUNK + PACK];
    float greatest[CHUNK]; /* greatest logit so far */
    float sums[CHUNK];     /* sums of weights, relative to `greatest` */
    float shrink[CHUNK];   /* factor for the sums before this strip */
    uint32_t is_last;
#ifdef FIG_PIECES_SCORED
    fig_mask_sight sights[CHUNK]; /* tokens that each vector sees; set only if there is a mask */
#endif
} shared_state;
static_assert(sizeof(shared_state) <= 48 * 1024, "static shared memory");
static_assert(offsetof(shared_state, weights) % 16 == 0, "packs of weights load at once");

/* A chunk of the vectors [query][q head] that share one kv head of one row. */
typedef struct chunk_work {
    fig_cache_sequence sequence;
    fig_plan_queries queries; /* the rows of q and out that belong to this row of the plan */
    int32_t row, length, kv_head, ratio;
    int32_t origin;       /* the token at which tile 0 of the row begins */
    int32_t first, count; /* vectors */
    float scale;          /* factor for a product with K as the cache stores it */
#ifdef FIG_PIECES_SCORED
    fig_strip_range hole; /* tokens that the mask hides and that are not on the line */
#endif
} chunk_work;

/* Returns, in lane n of a team, the sum of parts[n] over the team. Each exchange halves the number
 * of parts. */
static __device__ float team_sum(float (&parts)[TEAM], int32_t lane) {
#pragma unroll
    for (int32_t apart = TEAM / 2; apart > 0; apart /= 2) {
#pragma unroll
        for (int32_t i = 0; i < apart; i++) {
            float kept = lane & apart ? parts[i + apart] : parts[i];
            float given = lane & apart ? parts[i] : parts[i + apart];
            parts[i] = kept + __shfl_xor_sync(0xffffffffu, given, apart);
        }
    }
    return parts[0];
}

/* ---- Tokens and vectors */

static __device__ int32_t query_of(const chunk_work &work, int32_t n) {
    return (work.first + n) / work.ratio;
}

static __device__ int32_t q_head_of(const chunk_work &work, int32_t n) {
    return work.kv_head * work.ratio + (work.first + n) % work.ratio;
}

static __device__ fig_pieces_vector vector_of(const chunk_work &work, int32_t n) {
    fig_pieces_vector vector = {(int64_t)work.queries.first + query_of(work, n),
                                q_head_of(work, n)};
    return vector;
}

/* Returns the position of a query of the row. */
static __device__ int32_t position_of(const chunk_work &work, int32_t query) {
    return work.length - work.queries.count + query;
}

/* Returns 1 if the launch has a mask. */
static __device__ int has_mask(const fig_attention_params &p) {
#ifdef FIG_PIECES_SCORED
    return fig_pieces_scored(p).score.mask_node_count > 0;
#else
    return 0;
#endif
}

/* Returns the tokens that a query sees or, with a mask, that its mask may show. */
static __device__ fig_strip_range seen_of(const fig_attention_params &p, const chunk_work &work,
                                          int32_t query) {
    int32_t position = position_of(work, query);
    int32_t low = p.split.window == 0 ? 0 : position + 1 - p.split.window;
    fig_strip_range seen = {low > 0 ? low : 0, has_mask(p) ? work.length : position + 1};
    return seen;
}

/* Returns the tokens that at least one query of the chunk sees. The chunk's first query sees the
 * oldest tokens, and its last query the newest. */
static __device__ fig_strip_range seen_by_any(const fig_attention_params &p,
                                              const chunk_work &work) {
    fig_strip_range seen = {seen_of(p, work, query_of(work, 0)).first,
                            seen_of(p, work, query_of(work, work.count - 1)).end};
    return seen;
}

#ifndef FIG_PIECES_SCORED
static __device__ fig_strip_range seen_by_all(const fig_attention_params &p,
                                              const chunk_work &work) {
    return fig_strip_overlap(seen_of(p, work, query_of(work, 0)),
                             seen_of(p, work, query_of(work, work.count - 1)));
}
#endif

/* ---- A strip */

#ifdef FIG_PIECES_SCORED
/* Returns the values of all terms except `score` for the chunk's n-th vector. */
static __device__ fig_score_inputs inputs_of(const fig_scored_attention_params &p,
                                             const chunk_work &work, int32_t n, int32_t token) {
    fig_score_inputs inputs;
    inputs.arrays = p.arrays;
    inputs.terms[FIG_SCORE_Q_POS] = (uint32_t)position_of(work, query_of(work, n));
    inputs.terms[FIG_SCORE_KV_POS] = (uint32_t)token;
    inputs.terms[FIG_SCORE_KV_LENGTH] = (uint32_t)work.length;
    inputs.terms[FIG_SCORE_HEAD] = (uint32_t)q_head_of(work, n);
    inputs.terms[FIG_SCORE_KV_HEAD] = (uint32_t)work.kv_head;
    inputs.terms[FIG_SCORE_ROW] = (uint32_t)work.row;
    return inputs;
}

/* Returns the score, in base 2, of the chunk's n-th vector. */
static __device__ float score_of(const fig_scored_attention_params &p, const chunk_work &work,
                                 int32_t n, int32_t token, float logit) {
    if (fig_score_value_is_logit(&p.score)) return fig_logit_of_score(logit, FIG_SCORE_SOFTMAX);
    fig_score_inputs inputs = inputs_of(p, work, n, token);
    inputs.terms[FIG_SCORE_SCORE] = fig_score_value_bits(logit);
    return fig_logit_of_score(fig_score_value_of(&p.score, &inputs), p.score.weights);
}
#endif

/* ---- The mask */

#ifdef FIG_PIECES_SCORED
/* Computes which tokens one vector sees. */
static __device__ fig_mask_sight look(const fig_attention_params &p, const chunk_work &work,
                                      int32_t n) {
    const fig_scored_attention_params &scored = fig_pieces_scored(p);
    const fig_score_inputs inputs = inputs_of(scored, work, n, 0);
    return fig_mask_value_of(&scored.score, &inputs, seen_of(p, work, query_of(work, n)).first);
}
#endif

/* Returns the first token, not before `token`, that a vector of the chunk may see. */
static __device__ int32_t next_token(const fig_attention_params &p, const chunk_work &work,
                                     const shared_state *shared, int32_t token) {
#ifdef FIG_PIECES_SCORED
    int32_t next = FIG_MASK_NO_TOKEN;
    for (int32_t n = 0; has_mask(p) && n < work.count; n++)
        next = fig_size_min(next, fig_mask_value_next(&shared->sights[n], token));
    if (has_mask(p)) return next;
#endif
    return token;
}

/* Returns the next strip: at most `most` tokens, beginning with the first token from `from` on that
 * some vector sees. It is empty if there is no such token before `end`. */
static __device__ fig_strip_range strip_from(const fig_attention_params &p, const chunk_work &work,
                                             const shared_state *shared, fig_strip_range from,
                                             int32_t most) {
    const int32_t first = fig_size_min(next_token(p, work, shared, from.first), from.end);
    fig_strip_range strip = {first, fig_size_min(from.end - first, most) + first};
    return strip;
}

/* Returns 1 if every vector sees every token of the strip, and no score hides one. */
static __device__ int sees_strip(const fig_attention_params &p, const chunk_work &work,
                                 const shared_state *shared, fig_strip_range strip) {
#ifdef FIG_PIECES_SCORED
    int sees = has_mask(p) && fig_score_value_is_logit(&fig_pieces_scored(p).score);
    for (int32_t n = 0; sees && n < work.count; n++)
        sees = fig_mask_value_sees_all(&shared->sights[n], strip.first, strip.end);
    return sees;
#else
    const fig_strip_range all = seen_by_all(p, work);
    return all.first <= strip.first && strip.end <= all.end;
#endif
}

/* Returns 1 if neither the mask nor its score hides a token from the vector. */
static __device__ int sees(const fig_attention_params &p, const shared_state *shared, int32_t n,
                           int32_t token, float logit) {
#ifdef FIG_PIECES_SCORED
    if (has_mask(p) && !fig_mask_value_sees(&shared->sights[n], token)) return 0;
    return logit != -INFINITY || fig_score_value_is_logit(&fig_pieces_scored(p).score);
#else
    return 1;
#endif
}

/* Returns the logit, in base 2, of the chunk's n-th vector. */
static __device__ float logit_of(const fig_attention_params &p, const chunk_work &work, int32_t n,
                                 int32_t token, float product) {
    float logit = product * work.scale;
#ifdef FIG_PIECES_SCORED
    return score_of(fig_pieces_scored(p), work, n, token, logit);
#endif
    if (p.alibi != NULL) {
        int32_t behind = token - position_of(work, query_of(work, n));
        logit = fig_logit_lean(logit, p.alibi[q_head_of(work, n)], behind);
    }
    return fig_logit_finish(logit, p.soft_cap);
}

/* Adds the products of a team's share of TEAM_TOKENS tokens and PACK vectors. */
template <int32_t DTYPE>
static __device__ void add_products(const uint4 *const (&tokens)[TEAM_TOKENS],
                                    const float (*vectors)[HEAD_DIM_LIMIT], int32_t segment,
                                    float (&products)[TEAM]) {
    const int32_t elements = FIG_STRIP_SEGMENT / fig_numeric_bytes(DTYPE);
    uint4 k[TEAM_TOKENS];
#pragma unroll
    for (int32_t j = 0; j < TEAM_TOKENS; j++)
        k[j] = tokens[j][segment];
#pragma unroll
    for (int32_t i = 0; i < elements; i += 4) {
#pragma unroll
        for (int32_t n = 0; n < PACK; n++) {
            float4 q = *(const float4 *)&vectors[n][segment * elements + i];
#pragma unroll
            for (int32_t j = 0; j < TEAM_TOKENS; j++) {
                float sum = products[n * TEAM_TOKENS + j];
                sum = fmaf(q.x, fig_vector_lane(k[j], DTYPE, i), sum);
                sum = fmaf(q.y, fig_vector_lane(k[j], DTYPE, i + 1), sum);
                sum = fmaf(q.z, fig_vector_lane(k[j], DTYPE, i + 2), sum);
                products[n * TEAM_TOKENS + j] = fmaf(q.w, fig_vector_lane(k[j], DTYPE, i + 3), sum);
            }
        }
    }
}

/* Writes the logits of a strip, also for tokens that a vector does not see; no thread reads those.
 * A team without a token repeats the last token, and a pack without a vector uses whatever bytes
 * lie there. */
template <int32_t DTYPE>
static __device__ void write_logits(const fig_attention_params &p, const chunk_work &work,
                                    fig_strip_range strip, shared_state *shared) {
    int32_t lane = (int32_t)threadIdx.x % TEAM, team = (int32_t)threadIdx.x / TEAM;
    int32_t segments = p.head_dim * fig_numeric_bytes(DTYPE) / FIG_STRIP_SEGMENT;
    int32_t count = strip.end - strip.first;
    const uint4 *tokens[TEAM_TOKENS];
#pragma unroll
    for (int32_t j = 0; j < TEAM_TOKENS; j++)
        tokens[j] = shared->k + fig_size_min(team + TEAMS * j, count - 1) * segments;
    for (int32_t first = 0; first < work.count; first += PACK) {
        float products[TEAM] = {0};
        for (int32_t segment = lane; segment < segments; segment += TEAM)
            add_products<DTYPE>(tokens, &shared->vectors[first], segment, products);
        float product = team_sum(products, lane);
        int32_t n = first + lane / TEAM_TOKENS, t = team + TEAMS * (lane % TEAM_TOKENS);
        if (n < work.count && t < count)
            shared->weights[t][n] = logit_of(p, work, n, strip.first + t, product);
    }
}

/* Turns logits into weights relative to the greatest logit so far. Each vector has one warp. */
static __device__ void weigh(const fig_attention_params &p, const chunk_work &work,
                             fig_strip_range strip, shared_state *shared) {
    const int sees_all = sees_strip(p, work, shared, strip);
    int32_t warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    int32_t token = strip.first + lane;
    for (int32_t n = warp; n < work.count; n += FIG_STRIP_WARPS) {
        fig_strip_range range = fig_strip_overlap(strip, seen_of(p, work, query_of(work, n)));
        int seen = token >= range.first && token < range.end;
        float logit = seen ? shared->weights[lane][n] : -INFINITY;
        if (seen && !sees_all && !sees(p, shared, n, token, logit)) {
            seen = 0;
            logit = -INFINITY;
        }
        float before = shared->greatest[n], sum = shared->sums[n];
        float greatest = fig_pieces_warp_max(fmaxf(before, logit));
        float weight = fig_pieces_shrink(logit, greatest);
        float shrink = fig_pieces_shrink(before, greatest);
        shared->weights[lane][n] = seen ? weight : UNSEEN;
        sum = sum * shrink + fig_pieces_warp_sum(weight);
        __syncwarp(); /* all lanes have read the values that one lane overwrites */
        if (lane != 0) continue;
        shared->greatest[n] = greatest;
        shared->sums[n] = sum;
        shared->shrink[n] = shrink;
    }
}

enum { SEEN_BY_ALL, SEEN_BY_SOME };

/* A NaN weight is not negative, so it counts as seen. */
template <int32_t SEEN> static __device__ float sum_of(float sum, float weight, float v) {
    return SEEN == SEEN_BY_SOME && weight < 0 ? sum : fmaf(weight, v, sum);
}

/* Adds one dimension of V to the sum of every vector. In the last pack, sums past the last vector
 * are meaningless. */
template <int32_t DTYPE, int32_t SEEN>
static __device__ void add_tokens(const shared_state *shared, const chunk_work &work,
                                  int32_t tokens, int32_t head_dim, int32_t dim,
                                  float (&values)[CHUNK]) {
#pragma unroll 4
    for (int32_t t = 0; t < tokens; t++) {
        float v = fig_numeric_load(shared->v, DTYPE, t * head_dim + dim);
#pragma unroll
        for (int32_t n = 0; n < CHUNK; n += PACK) {
            if (n >= work.count) break;
            float4 weights = *(const float4 *)&shared->weights[t][n];
            values[n] = sum_of<SEEN>(values[n], weights.x, v);
            values[n + 1] = sum_of<SEEN>(values[n + 1], weights.y, v);
            values[n + 2] = sum_of<SEEN>(values[n + 2], weights.z, v);
            values[n + 3] = sum_of<SEEN>(values[n + 3], weights.w, v);
        }
    }
}

template <int32_t DTYPE>
static __device__ void add_strip(const fig_attention_params &p, const chunk_work &work,
                                 fig_strip_range strip, const shared_state *shared,
                                 float (&values)[DIMS][CHUNK]) {
    const int sees_all = sees_strip(p, work, shared, strip);
    int32_t tokens = strip.end - strip.first;
#pragma unroll
    for (int32_t i = 0; i < DIMS; i++) {
        int32_t dim = (int32_t)threadIdx.x + THREADS * i;
        if (dim >= p.head_dim) continue;
#pragma unroll
        for (int32_t n = 0; n < CHUNK; n++)
            if (n < work.count) values[i][n] *= shared->shrink[n];
        if (sees_all) {
            add_tokens<DTYPE, SEEN_BY_ALL>(shared, work, tokens, p.head_dim, dim, values[i]);
        } else {
            add_tokens<DTYPE, SEEN_BY_SOME>(shared, work, tokens, p.head_dim, dim, values[i]);
        }
    }
}

/* ---- A chunk */

/* Loads q and resets the greatest logits and sums to "none seen". On return all threads may read
 * q. */
static __device__ void load_vectors(const fig_attention_params &p, const chunk_work &work,
                                    shared_state *shared) {
    for (int32_t n = 0; n < work.count; n++) {
        fig_pieces_vector from = vector_of(work, n);
        int64_t offset = from.row * p.q_strides.row + from.q_head * p.q_strides.head;
        for (int32_t i = (int32_t)threadIdx.x; i < p.head_dim; i += THREADS)
            shared->vectors[n][i] = fig_numeric_load(p.q, p.dtype, offset + i);
    }
    if (threadIdx.x < CHUNK) {
        shared->greatest[threadIdx.x] = -INFINITY;
        shared->sums[threadIdx.x] = 0;
    }
#ifdef FIG_PIECES_SCORED
    if (has_mask(p) && threadIdx.x < work.count)
        shared->sights[threadIdx.x] = look(p, work, (int32_t)threadIdx.x);
#endif
    __syncthreads();
}

/* Processes the chunk's part of `tokens`. Leaves the results in the block's shared memory:
 * `greatest`, `sums`, and the values in `vectors`. Only the thread that wrote a value reads it. */
template <int32_t DTYPE>
static __device__ void see_tokens(const fig_attention_params &p, const chunk_work &work,
                                  fig_strip_range tokens, shared_state *shared) {
    const int32_t bytes = fig_numeric_bytes(DTYPE);
    const int32_t length = fig_size_min(FIG_STRIP_TOKENS, FIG_STRIP_BYTES / (p.head_dim * bytes));
    const fig_strip_side k =
        fig_strip_side_of(p.k_cache, p.k_cache_strides, p.k_pages, work.kv_head, bytes);
    const fig_strip_side v =
        fig_strip_side_of(p.v_cache, p.v_cache_strides, p.v_pages, work.kv_head, bytes);
    float values[DIMS][CHUNK] = {{0}};
    fig_strip_range strip = strip_from(p, work, shared, tokens, length);
    fig_strip_place place = fig_strip_place_of(k, v, work.sequence, strip, bytes);
    fig_strip_copy<DTYPE>(k, place.k, p.head_dim, shared->k);
    fig_strip_copy<DTYPE>(v, place.v, p.head_dim, shared->v);
    while (strip.first < tokens.end) {
        const fig_strip_range rest = {strip.end, tokens.end};
        fig_strip_range next = strip_from(p, work, shared, rest, length);
        place = fig_strip_place_of(k, v, work.sequence, next, bytes);
        __pipeline_wait_prior(1); /* K of this strip has arrived; V may still be in flight */
        __syncthreads();
        write_logits<DTYPE>(p, work, strip, shared);
        __syncthreads();
        fig_strip_copy<DTYPE>(k, place.k, p.head_dim, shared->k);
        weigh(p, work, strip, shared);
        __pipeline_wait_prior(1); /* V of this strip has arrived */
        __syncthreads();
        add_strip<DTYPE>(p, work, strip, shared, values);
        __syncthreads();
        fig_strip_copy<DTYPE>(v, place.v, p.head_dim, shared->v);
        strip = next;
    }
#pragma unroll
    for (int32_t i = 0; i < DIMS; i++)
#pragma unroll
        for (int32_t n = 0; n < CHUNK; n++)
            shared->vectors[n][threadIdx.x + THREADS * i] = values[i][n];
}

/* ---- A worker */

static __device__ void write_out(const fig_attention_params &p, const chunk_work &work,
                                 const shared_state *shared) {
    for (int32_t n = 0; n < work.count; n++) {
        fig_pieces_vector to = vector_of(work, n);
        fig_pieces_end end = fig_pieces_end_of(p, to.q_head, shared->greatest[n], shared->sums[n]);
        for (int32_t i = (int32_t)threadIdx.x; i < p.head_dim; i += THREADS)
            fig_pieces_write(p, to, i, shared->vectors[n][i] * end.scale);
        if (threadIdx.x == 0) fig_pieces_write_lse(p, to, end.lse);
    }
}

static __device__ void write_partial(const fig_attention_params &p, const chunk_work &work,
                                     const fig_split_piece &piece, const shared_state *shared) {
    int32_t group_heads = fig_pieces_group_heads(p);
    for (int32_t n = 0; n < work.count; n++) {
        int32_t vector = query_of(work, n) * group_heads + q_head_of(work, n) % group_heads;
        int64_t partial = fig_pieces_partial(p, piece, piece.number, vector);
        for (int32_t i = (int32_t)threadIdx.x; i < p.head_dim; i += THREADS)
            p.partials[partial * p.head_dim + i] = shared->vectors[n][i];
        if (threadIdx.x == 0)
            ((float2 *)p.sums)[partial] = make_float2(shared->greatest[n], shared->sums[n]);
    }
}

/* Sets the token at which tile 0 of the row begins, and the hole in the row's line. */
static __device__ void find_tiles(const fig_attention_params &p, chunk_work *work) {
#ifdef FIG_PIECES_SCORED
    const fig_scored_attention_params &scored = fig_pieces_scored(p);
    const int32_t tile_tokens = p.split.tile_tokens;
    work->hole.first = work->hole.end = 0;
    if (fig_seen_tiles_are_masked(&scored)) {
        const fig_mask_tiles tiles =
            fig_seen_tiles_of(&scored, work->row, work->length, work->queries.count);
        work->origin = tiles.first * tile_tokens;
        work->hole.first = tiles.hole * tile_tokens;
        work->hole.end = tiles.hole_end * tile_tokens;
        return;
    }
#endif
    const int32_t before = fig_plan_length_before((const fig_plan_head *)p.plan, work->length);
    work->origin = fig_split_first_tile_token(
        &p.split, fig_split_full_length(&p.split, before, work->queries.count));
}

/* Returns the tokens of a piece, with those of a hole in it. */
static __device__ fig_strip_range tokens_of(const fig_attention_params &p, const chunk_work &work,
                                            const fig_split_piece &piece) {
    const int32_t tile_tokens = p.split.tile_tokens, origin = work.origin;
    fig_strip_range tokens = {origin + piece.tile * tile_tokens, 0};
    int32_t end = origin + piece.tile_end * tile_tokens;
#ifdef FIG_PIECES_SCORED
    const int32_t hidden = work.hole.end - work.hole.first;
    if (tokens.first >= work.hole.first) tokens.first += hidden;
    if (end > work.hole.first) end += hidden;
#endif
    tokens.end = fig_size_min(end, work.length);
    return tokens;
}

/* Processes one chunk of a piece. */
static __device__ void do_chunk(const fig_attention_params &p, const chunk_work &work,
                                const fig_split_piece &piece, shared_state *shared) {
    const fig_strip_range tokens =
        fig_strip_overlap(tokens_of(p, work, piece), seen_by_any(p, work));
    __syncthreads(); /* all threads have finished reading the results of the last chunk */
    load_vectors(p, work, shared);
    switch (p.kv_dtype) {
    case FIG_F16: see_tokens<FIG_F16>(p, work, tokens, shared); break;
    case FIG_BF16: see_tokens<FIG_BF16>(p, work, tokens, shared); break;
    case FIG_E4M3: see_tokens<FIG_E4M3>(p, work, tokens, shared); break;
    case FIG_E5M2: see_tokens<FIG_E5M2>(p, work, tokens, shared); break;
    default: see_tokens<FIG_F32>(p, work, tokens, shared); break;
    }
    if (piece.first == piece.last) {
        write_out(p, work, shared);
    } else {
        write_partial(p, work, piece, shared);
    }
}

static __device__ void do_piece(const fig_attention_params &p, const fig_split_piece &piece,
                                shared_state *shared) {
    const int32_t *lengths = (const int32_t *)(p.plan + p.lengths_offset);
    const int32_t *sequences = (const int32_t *)(p.plan + p.sequences_offset);
    chunk_work work;
    work.queries = fig_pieces_queries(p, piece.row);
    work.row = piece.row;
    work.length = lengths[piece.row];
    find_tiles(p, &work);
    work.ratio = p.q_heads / p.kv_heads;
    work.sequence =
        fig_cache_sequence_of(p.page_table, p.table_stride, sequences[piece.row], p.page_size);
    int32_t vectors = work.ratio * work.queries.count;
    for (int32_t i = 0; i < p.heads_per_worker; i++) {
        work.kv_head = piece.group * p.heads_per_worker + i;
        work.scale = p.sm_scale * fig_cache_scale(p.k_scale, p.k_scales, work.kv_head);
        for (work.first = 0; work.first < vectors; work.first += CHUNK) {
            work.count = fig_size_min(CHUNK, vectors - work.first);
            do_chunk(p, work, piece, shared);
        }
    }
    if (piece.first != piece.last && fig_pieces_is_last(p, piece, &shared->is_last))
        fig_pieces_merge(p, piece);
}

/* Writes the output of those rows of length 0 that belong to the worker: zeros and an LSE of -inf,
 * with or without sinks. Such rows are not on the line, so the row number decides which worker
 * writes them. */
static __device__ void write_idle_rows(const fig_attention_params &p, int32_t rows) {
    const int32_t *lengths = (const int32_t *)(p.plan + p.lengths_offset);
    for (int32_t row = (int32_t)blockIdx.x; row < rows; row += p.split.workers) {
        if (lengths[row] > 0) continue;
        const fig_plan_queries queries = fig_pieces_queries(p, row);
        const int32_t elements = queries.count * p.q_heads * p.head_dim;
        for (int32_t i = (int32_t)threadIdx.x; i < elements; i += THREADS) {
            int32_t n = i / p.head_dim, dim = i % p.head_dim;
            fig_pieces_vector to = {(int64_t)queries.first + n / p.q_heads, n % p.q_heads};
            fig_pieces_write(p, to, dim, 0);
            if (dim == 0) fig_pieces_write_lse(p, to, -INFINITY);
        }
    }
}

/* Does the work of one block. */
static __device__ void do_block(const fig_attention_params &p, shared_state *shared) {
    int32_t rows = ((const fig_plan_head *)p.plan)->rows;
    if (rows == 0) return;
    const int32_t *prefix = (const int32_t *)(p.plan + p.prefix_offset);
    fig_split_line line = fig_split_line_of(&p.split, prefix, rows);
    const fig_split_start *starts = (const fig_split_start *)(p.plan + p.starts_offset);
    const uint32_t by_units = ((const fig_plan_head *)p.plan)->sections & FIG_PLAN_BY_UNITS;
    if (by_units && !p.split.fixed) line.starts = starts;
    fig_split_start start = starts[blockIdx.x];
    write_idle_rows(p, rows);
    while (start.count > 0) {
        fig_split_piece piece = fig_split_take(&p.split, &line, &start);
        do_piece(p, piece, shared);
    }
}

#endif
