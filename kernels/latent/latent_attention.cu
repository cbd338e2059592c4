/* latent_attention.cu: computes split-K attention over a latent cache on any GPU, without tensor
 * cores.
 *
 * out = sum over tokens of 2^(l - m) v / sum of 2^(l - m), where l is the logit in base 2, m the
 * greatest l, and v the first 512 values of the token. One block is one worker of the split. It
 * walks its stretch of the line piece by piece, takes the vectors of the piece's group in chunks
 * and the tokens in strips. A strip passes through shared memory once, as f32, for both products:
 *
 *     the block   copies strip 0 | logits | weights | sums | copies strip 1 | ..
 *
 * A warp computes the logits and the weights of two vectors, and each thread owns two dimensions of
 * every vector's sum. pieces.cuh handles the results of pieces. Invariant: a token that a query
 * does not see is skipped, not multiplied by a weight of zero, so any bytes may lie there. */
#include "kernels/attention/pieces.cuh"
#include "kernels/latent/latent.h"

enum {
    THREADS = 256,
    WARPS = THREADS / FIG_BLOCK_WARP,
    CHUNK = 16, /* vectors whose sums fit in registers */
    STRIP = 16, /* tokens */
    PACK = 4,
    VECTORS = CHUNK / WARPS, /* vectors of a warp */
    PARTS = VECTORS * STRIP, /* logits of a warp, one for each lane */
    LANE_DIMS = FIG_LATENT_KEY_DIM / FIG_BLOCK_WARP,
    DIMS = FIG_LATENT_DIM / THREADS /* dimensions of a thread */
};
static_assert(PARTS == FIG_BLOCK_WARP, "each lane ends with one logit");
static_assert(FIG_LATENT_KEY_DIM % FIG_BLOCK_WARP == 0 && DIMS == 2, "whole warps and threads");

/* Marks the weight of a token that the vector does not see. Weights of seen tokens are never
 * negative. */
#define UNSEEN (-1.0f)

/* The shared memory of a block. */
typedef struct shared_state {
    float vectors[CHUNK][FIG_LATENT_KEY_DIM]; /* q; at the end of a chunk, each vector's values */
    float tokens[STRIP][FIG_LATENT_KEY_DIM];
    float weights[STRIP][CHUNK];
    float greatest[CHUNK]; /* greatest logit so far */
    float sums[CHUNK];     /* sums of weights, relative to `greatest` */
    float shrink[CHUNK];   /* factor for the sums before this strip */
    uint32_t is_last, unused[3];
} shared_state;
static_assert(sizeof(shared_state) == FIG_LATENT_PLAIN_BYTES, "what a launch asks for");

/* Some of the vectors [query][q head of the group] of one group of one row. */
typedef struct chunk_work {
    fig_cache_sequence sequence;
    fig_plan_queries queries; /* the row's rows of q and out */
    int32_t length, group, heads;
    int32_t origin;       /* the token at which tile 0 of the row begins */
    int32_t first, count; /* vectors */
} chunk_work;

/* Tokens [first, end) of a sequence; empty if end <= first. */
typedef struct token_range {
    int32_t first, end;
} token_range;

static __device__ int32_t query_of(const chunk_work &work, int32_t n) {
    return (work.first + n) / work.heads;
}

static __device__ fig_pieces_vector vector_of(const chunk_work &work, int32_t n) {
    fig_pieces_vector vector = {(int64_t)work.queries.first + query_of(work, n),
                                work.group * work.heads + (work.first + n) % work.heads};
    return vector;
}

/* Returns the tokens that a query sees. */
static __device__ token_range seen_of(const fig_latent_attention_params &p, const chunk_work &work,
                                      int32_t query) {
    const int32_t position = work.length - work.queries.count + query;
    const int32_t low = p.split.window == 0 ? 0 : position + 1 - p.split.window;
    token_range seen = {low > 0 ? low : 0, position + 1};
    return seen;
}

/* ---- A strip */

static __device__ __forceinline__ float value_of(const void *cache, int64_t at, int32_t kv_dtype,
                                                 int32_t i) {
    if (kv_dtype == FIG_E4M3) return fig_latent_of_codes((const uint8_t *)cache + at, i);
    return fig_numeric_load(cache, kv_dtype, at + i);
}

/* Copies the tokens of a strip; each warp has two of them. A page outside the cache counts as
 * page 0. */
template <int32_t KV_DTYPE>
static __device__ __forceinline__ void load_tokens(const fig_latent_attention_params &p,
                                                   const chunk_work &work, token_range strip,
                                                   shared_state *shared) {
    const int32_t warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
#pragma unroll 1
    for (int32_t t = warp; t < strip.end - strip.first; t += WARPS) {
        const int32_t token = strip.first + t;
        int32_t page = fig_cache_page(&work.sequence, token);
        if (page < 0 || page >= p.k_pages) page = 0;
        const int64_t at =
            page * p.k_cache_strides.page + token % p.page_size * p.k_cache_strides.token;
#pragma unroll
        for (int32_t i = 0; i < LANE_DIMS; i++)
            shared->tokens[t][lane + FIG_BLOCK_WARP * i] =
                value_of(p.k_cache, at, KV_DTYPE, lane + FIG_BLOCK_WARP * i);
    }
}

/* Returns, in lane n, the sum of parts[n] over the warp. Each exchange halves the number of
 * parts. */
static __device__ float warp_sums(float (&parts)[PARTS]) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
#pragma unroll
    for (int32_t apart = PARTS / 2; apart > 0; apart /= 2) {
#pragma unroll
        for (int32_t i = 0; i < apart; i++) {
            const float kept = lane & apart ? parts[i + apart] : parts[i];
            const float given = lane & apart ? parts[i] : parts[i + apart];
            parts[i] = kept + __shfl_xor_sync(0xffffffffu, given, apart);
        }
    }
    return parts[0];
}

/* Writes the warp's logits: lane v * STRIP + t writes the logit of the warp's vector v and token t.
 * Logits past the strip or the chunk are computed from whatever bytes lie there, and not used. */
static __device__ float logit_of(const fig_latent_attention_params &p, const shared_state *shared) {
    const int32_t warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    float parts[PARTS] = {0};
#pragma unroll 2
    for (int32_t i = lane; i < FIG_LATENT_KEY_DIM; i += FIG_BLOCK_WARP) {
        float q[VECTORS];
#pragma unroll
        for (int32_t v = 0; v < VECTORS; v++)
            q[v] = shared->vectors[warp * VECTORS + v][i];
#pragma unroll
        for (int32_t t = 0; t < STRIP; t++) {
            const float k = shared->tokens[t][i];
#pragma unroll
            for (int32_t v = 0; v < VECTORS; v++)
                parts[v * STRIP + t] = fmaf(q[v], k, parts[v * STRIP + t]);
        }
    }
    return warp_sums(parts) * p.sm_scale * FIG_NUMERIC_LOG2_E;
}

/* Turns logits into weights relative to the greatest logit so far. Each vector has half a warp,
 * with one lane for each token. */
static __device__ void weigh(const fig_latent_attention_params &p, const chunk_work &work,
                             token_range strip, shared_state *shared) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, t = lane % STRIP;
    const int32_t n = (int32_t)threadIdx.x / FIG_BLOCK_WARP * VECTORS + lane / STRIP;
    const int32_t token = strip.first + t;
    float logit = logit_of(p, shared);
    const token_range range = seen_of(p, work, n < work.count ? query_of(work, n) : 0);
    const int32_t seen =
        n < work.count && token < strip.end && token >= range.first && token < range.end;
    if (!seen) logit = -INFINITY;
    const float before = shared->greatest[n];
    float greatest = fmaxf(before, logit);
#pragma unroll
    for (int32_t apart = STRIP / 2; apart > 0; apart /= 2)
        greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, apart));
    const float weight = fig_pieces_shrink(logit, greatest);
    const float shrink = fig_pieces_shrink(before, greatest);
    float sum = weight;
#pragma unroll
    for (int32_t apart = STRIP / 2; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    shared->weights[t][n] = seen ? weight : UNSEEN;
    __syncwarp(); /* all lanes have read the values that one lane overwrites */
    if (t != 0) return;
    shared->sums[n] = shared->sums[n] * shrink + sum;
    shared->greatest[n] = greatest;
    shared->shrink[n] = shrink;
}

/* A NaN weight is not negative, so it counts as seen. */
static __device__ __forceinline__ float sum_of(float sum, float weight, float v) {
    return weight < 0 ? sum : fmaf(weight, v, sum);
}

/* Adds the strip's tokens to the thread's two dimensions of every vector. */
static __device__ void add_tokens(const shared_state *shared, int32_t count,
                                  float (&values)[DIMS][CHUNK]) {
    const int32_t dim = (int32_t)threadIdx.x * DIMS;
#pragma unroll
    for (int32_t n = 0; n < CHUNK; n++) {
        const float shrink = shared->shrink[n];
        values[0][n] *= shrink;
        values[1][n] *= shrink;
    }
#pragma unroll 2
    for (int32_t t = 0; t < count; t++) {
        const float2 v = *(const float2 *)&shared->tokens[t][dim];
#pragma unroll
        for (int32_t n = 0; n < CHUNK; n += PACK) {
            const float4 pack = *(const float4 *)&shared->weights[t][n];
            const float weights[PACK] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
            for (int32_t i = 0; i < PACK; i++) {
                values[0][n + i] = sum_of(values[0][n + i], weights[i], v.x);
                values[1][n + i] = sum_of(values[1][n + i], weights[i], v.y);
            }
        }
    }
}

/* ---- A chunk */

/* Loads q and resets the greatest logits and sums to "none seen". Vectors past the last are
 * zeros. */
static __device__ void load_vectors(const fig_latent_attention_params &p, const chunk_work &work,
                                    shared_state *shared) {
#pragma unroll 1
    for (int32_t n = 0; n < CHUNK; n++) {
        const fig_pieces_vector from = vector_of(work, n < work.count ? n : 0);
        const int64_t at = from.row * p.q_strides.row + from.q_head * p.q_strides.head;
        const fig_latent_q_rope rope = fig_latent_q_rope_of(&p, from.row, from.q_head);
        for (int32_t i = (int32_t)threadIdx.x; i < FIG_LATENT_DIM; i += THREADS)
            shared->vectors[n][i] = n < work.count ? fig_numeric_load(p.q, p.dtype, at + i) : 0;
        if (threadIdx.x < FIG_LATENT_ROPE_DIM)
            shared->vectors[n][FIG_LATENT_DIM + threadIdx.x] =
                n < work.count
                    ? fig_numeric_load(rope.array, p.dtype, rope.at + (int32_t)threadIdx.x)
                    : 0;
    }
    if (threadIdx.x < CHUNK) {
        shared->greatest[threadIdx.x] = -INFINITY;
        shared->sums[threadIdx.x] = 0;
    }
}

/* Processes the chunk's part of `tokens`. Leaves the results in the block's shared memory:
 * `greatest`, `sums`, and the values in `vectors`. Only the thread that wrote a value reads it. */
static __device__ void see_tokens(const fig_latent_attention_params &p, const chunk_work &work,
                                  token_range tokens, shared_state *shared) {
    float values[DIMS][CHUNK] = {{0}};
#pragma unroll 1
    for (int32_t first = tokens.first; first < tokens.end; first += STRIP) {
        const token_range strip = {first, fig_size_min(first + STRIP, tokens.end)};
        switch (p.kv_dtype) {
        case FIG_F16: load_tokens<FIG_F16>(p, work, strip, shared); break;
        case FIG_BF16: load_tokens<FIG_BF16>(p, work, strip, shared); break;
        case FIG_E4M3: load_tokens<FIG_E4M3>(p, work, strip, shared); break;
        default: load_tokens<FIG_F32>(p, work, strip, shared); break;
        }
        __syncthreads();
        weigh(p, work, strip, shared);
        __syncthreads();
        add_tokens(shared, strip.end - strip.first, values);
        __syncthreads();
    }
#pragma unroll
    for (int32_t n = 0; n < CHUNK; n++)
        *(float2 *)&shared->vectors[n][threadIdx.x * DIMS] =
            make_float2(values[0][n], values[1][n]);
}

static __device__ void write_out(const fig_attention_params &of, const chunk_work &work,
                                 const shared_state *shared) {
    const int32_t dim = (int32_t)threadIdx.x * DIMS;
    for (int32_t n = 0; n < work.count; n++) {
        const fig_pieces_vector to = vector_of(work, n);
        const fig_pieces_end end =
            fig_pieces_end_of(of, to.q_head, shared->greatest[n], shared->sums[n]);
        fig_pieces_write(of, to, dim, shared->vectors[n][dim] * end.scale);
        fig_pieces_write(of, to, dim + 1, shared->vectors[n][dim + 1] * end.scale);
        if (threadIdx.x == 0) fig_pieces_write_lse(of, to, end.lse);
    }
}

static __device__ void write_partial(const fig_attention_params &of, const chunk_work &work,
                                     const fig_split_piece &piece, const shared_state *shared) {
    const int32_t dim = (int32_t)threadIdx.x * DIMS;
    for (int32_t n = 0; n < work.count; n++) {
        const int64_t partial = fig_pieces_partial(of, piece, piece.number, work.first + n);
        *(float2 *)&of.partials[partial * FIG_LATENT_DIM + dim] =
            *(const float2 *)&shared->vectors[n][dim];
        if (threadIdx.x == 0)
            ((float2 *)of.sums)[partial] = make_float2(shared->greatest[n], shared->sums[n]);
    }
}

/* Processes one chunk of a piece. */
static __device__ void do_chunk(const fig_latent_attention_params &p,
                                const fig_attention_params &of, const chunk_work &work,
                                const fig_split_piece &piece, shared_state *shared) {
    const int32_t tile_tokens = p.split.tile_tokens;
    const token_range oldest = seen_of(p, work, query_of(work, 0));
    const token_range newest = seen_of(p, work, query_of(work, work.count - 1));
    token_range tokens = {work.origin + piece.tile * tile_tokens,
                          fig_size_min(work.origin + piece.tile_end * tile_tokens, work.length)};
    tokens.first = max(tokens.first, oldest.first);
    tokens.end = min(tokens.end, newest.end);
    __syncthreads(); /* all threads have finished reading the results of the last chunk */
    load_vectors(p, work, shared);
    __syncthreads();
    see_tokens(p, work, tokens, shared);
    if (piece.first == piece.last) {
        write_out(of, work, shared);
    } else {
        write_partial(of, work, piece, shared);
    }
}

static __device__ void do_piece(const fig_latent_attention_params &p,
                                const fig_attention_params &of, const fig_split_piece &piece,
                                shared_state *shared) {
    chunk_work work;
    work.queries = fig_pieces_queries(of, piece.row);
    work.length = ((const int32_t *)(p.plan + p.lengths_offset))[piece.row];
    const int32_t before = fig_plan_length_before((const fig_plan_head *)p.plan, work.length);
    work.origin = fig_split_first_tile_token(
        &p.split, fig_split_full_length(&p.split, before, work.queries.count));
    work.group = piece.group;
    work.heads = p.q_heads / p.split.groups;
    work.sequence = fig_cache_sequence_of(
        p.page_table, p.table_stride, ((const int32_t *)(p.plan + p.sequences_offset))[piece.row],
        p.page_size);
    const int32_t vectors = work.heads * work.queries.count;
#pragma unroll 1
    for (work.first = 0; work.first < vectors; work.first += CHUNK) {
        work.count = fig_size_min(CHUNK, vectors - work.first);
        do_chunk(p, of, work, piece, shared);
    }
    if (piece.first != piece.last && fig_pieces_is_last(of, piece, &shared->is_last))
        fig_pieces_merge(of, piece);
}

/* Writes the output of the worker's rows of length 0: zeros and an LSE of -inf, with or without
 * sinks. Such rows are not on the line, so the row number decides which worker writes them. */
static __device__ void write_idle_rows(const fig_attention_params &of, int32_t rows) {
    const int32_t *lengths = (const int32_t *)(of.plan + of.lengths_offset);
    for (int32_t row = (int32_t)blockIdx.x; row < rows; row += of.split.workers) {
        if (lengths[row] > 0) continue;
        const fig_plan_queries queries = fig_pieces_queries(of, row);
        for (int32_t n = 0; n < queries.count * of.q_heads; n++) {
            const fig_pieces_vector to = {(int64_t)queries.first + n / of.q_heads, n % of.q_heads};
            for (int32_t i = (int32_t)threadIdx.x; i < FIG_LATENT_DIM; i += THREADS)
                fig_pieces_write(of, to, i, 0);
            if (threadIdx.x == 0) fig_pieces_write_lse(of, to, -INFINITY);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    fig_kernel_latent_attention(const __grid_constant__ fig_latent_attention_params p) {
    extern __shared__ __align__(16) uint8_t dynamic[];
    shared_state *shared = (shared_state *)dynamic;
    const fig_attention_params of = fig_latent_attention_pieces(&p);
    fig_block_wait();
    fig_block_trigger();
    const fig_plan_head *head = (const fig_plan_head *)p.plan;
    if (head->rows == 0) return;
    fig_split_line line =
        fig_split_line_of(&p.split, (const int32_t *)(p.plan + p.prefix_offset), head->rows);
    const fig_split_start *starts = (const fig_split_start *)(p.plan + p.starts_offset);
    if ((head->sections & FIG_PLAN_BY_UNITS) && !p.split.fixed) line.starts = starts;
    fig_split_start start = starts[blockIdx.x];
    write_idle_rows(of, head->rows);
#pragma unroll 1
    while (start.count > 0) {
        const fig_split_piece piece = fig_split_take(&p.split, &line, &start);
        do_piece(p, of, piece, shared);
    }
}
