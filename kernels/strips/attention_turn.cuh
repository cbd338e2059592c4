/* attention_turn.cuh: applies RoPE and append within attention, for a launch that does all of
 * decode_attention.
 *
 * The warps that share a kv head apply RoPE to its vectors of q and to k of the row's newest
 * tokens. They leave q, k and v in shared memory, in bytes that later hold the sums of a piece:
 *
 *     rows   [q's vectors, then k's and v's newest tokens][head_dim]; q in 16 bits each, k and v
 *            in the cache's type; 16-byte chunk c of row r lies at c ^ r % 8
 *     turns  [newest tokens][cosines, sines][head_dim / 2]
 *
 * The warps then load q into registers and never write it back. The newest tokens are not yet in
 * the cache when strips are loaded. The warp that reads a newest token replaces the bytes that the
 * copy engine put into the slot, and also writes the token to the cache. So no block waits for the
 * part of the cache that this launch writes, and the loads of angles, pages and all older tokens
 * are in flight before the wait.
 *
 * Premises, checked by the family: RoPE covers the whole head and pairs its first half with its
 * second; the plan gives the positions; one warp has all vectors of a kv head, so only one warp
 * reads a strip's 16 tokens. Invariant: out and the cache equal, bit for bit, the results of
 * separate launches of rope, append_kv and attention, if the newest tokens have pages of the cache
 * (otherwise this launch sees its own k and v, and separate ones see page 0); no thread writes to a
 * page outside the cache. */
#ifndef FIG_KERNELS_ATTENTION_TURN_CUH
#define FIG_KERNELS_ATTENTION_TURN_CUH

#include "kernels/attention/geometry.h"
#include "kernels/common/heads.cuh"
#include "kernels/attention/kv_ring.cuh"
#include "kernels/common/store.cuh"
#include "kernels/strips/readers.cuh"

/* Returns 1 if q and k do not change. In a server, the code that rotates is in no cache, so to pass
 * over it is faster than to rotate by nothing. */
static __device__ __forceinline__ int32_t fig_turn_is_plain(const fig_attention_params &p) {
    return fig_params_is_still(&p.turn.angles) && p.turn.q_norm == NULL;
}

/* Describes a lane's part of a head: pairs of numbers, WORDS pairs from each half. The lane's pair
 * n holds numbers 2n and 2n + 1 of the half, n = lane + 32 * word. */
template <class form> struct fig_turn_words {
    static constexpr int32_t PAIRS = form::HEAD_DIM / 2; /* pairs under RoPE */
    static constexpr int32_t WORDS = (PAIRS / 2 + FIG_BLOCK_WARP - 1) / FIG_BLOCK_WARP;
    static constexpr int32_t ROW_BYTES = 2 * form::HEAD_DIM;
    /* Number of threads that share a kv head. An instance that reads its number of shares from the
     * launch applies no RoPE. */
    static constexpr int32_t THREADS = (form::SHARES > 0 ? form::SHARES : 1) * FIG_BLOCK_WARP;
    static constexpr int32_t OWN = (PAIRS + THREADS - 1) / THREADS; /* angles of a thread */
    /* Rows in flight at once. With all warps of a head together this covers all rows of a group of
     * 4. */
    static constexpr int32_t BATCH = form::SHARES == 4 ? 2 : form::SHARES == 2 ? 3 : 4;
    /* Stores of 16 bytes that each lane makes for a token, k and v together. */
    static constexpr int32_t STORES = 2 * form::CHUNKS > FIG_BLOCK_WARP ? 2 : 1;
    uint32_t of[WORDS][2];
};

/* Holds a warp's state for the row of its piece. */
template <class form> struct fig_turn {
    uint8_t *rows;                            /* shared memory of the kv head */
    int32_t thread, share, barrier;           /* thread: index among the threads of the head */
    int32_t vectors;                          /* vectors of q */
    int32_t position, length, sequence;       /* position: that of the last token */
    int32_t idle;                             /* leading queries that are not tokens */
    uint4 last[fig_turn_words<form>::STORES]; /* the lane's 16 bytes of a newest token */
    int32_t page;                             /* and that token's page */
    int32_t has_last;                         /* 1: it is the last token, and not yet written */
};

template <class form>
static __device__ __forceinline__ void fig_turn_meet(const fig_turn<form> &t) {
    if (form::SHARES > 1) {
        fig_ring_meet(t.barrier, fig_turn_words<form>::THREADS);
    } else {
        __syncwarp();
    }
}

/* Returns the address of a query's [cosines, sines]. */
template <class form>
static __device__ __forceinline__ float *fig_turn_angles(const fig_attention_params &p,
                                                         const fig_turn<form> &t, int32_t query) {
    const int32_t rows = t.vectors + 2 * p.split.row_tokens;
    return (float *)(t.rows + rows * fig_turn_words<form>::ROW_BYTES) + query * form::HEAD_DIM;
}

/* Initialises the state. A thread calls this function once. rows: shared memory of the kv head. */
template <class form>
static __device__ __forceinline__ void fig_turn_init(uint8_t *rows, int32_t share, int32_t barrier,
                                                     int32_t vectors, fig_turn<form> *t) {
    t->rows = rows;
    t->has_last = 0;
    t->share = share;
    t->barrier = barrier;
    t->vectors = vectors;
    t->thread = share * FIG_BLOCK_WARP + (int32_t)threadIdx.x % FIG_BLOCK_WARP;
}

/* ---- A piece begins */

/* Starts the loads of the plan's data about the row. */
template <class form>
static __device__ __forceinline__ void fig_turn_look(const fig_attention_params &p, int32_t row,
                                                     fig_turn<form> *t) {
    const fig_plan_head *head = (const fig_plan_head *)p.plan;
    t->position =
        fig_vector_fetch_number((const int32_t *)(p.plan + p.turn.positions_offset) + row);
    t->length = fig_vector_fetch_number((const int32_t *)(p.plan + p.lengths_offset) + row);
    t->sequence = fig_vector_fetch_number((const int32_t *)(p.plan + p.sequences_offset) + row);
    t->idle = 0;
    if (p.turn.tokens_offset == 0 || (head->sections & FIG_PLAN_HAS_TOKENS) == 0) return;
    t->idle = p.split.row_tokens - ((const int32_t *)(p.plan + p.turn.tokens_offset))[row];
}

template <class form>
static __device__ __forceinline__ int32_t fig_turn_page(const fig_attention_params &p,
                                                        const fig_turn<form> &t, int32_t token) {
    if (p.page_table == NULL) return t.sequence;
    return fig_vector_fetch_number(p.page_table + t.sequence * p.table_stride +
                                   fig_geometry_divide(max(token, 0), p.page_size));
}

/* Returns 1 if the lane's 16 bytes of a token belong to v. */
template <class form> static __device__ __forceinline__ int32_t fig_turn_is_v(int32_t store) {
    return store == 1 || (int32_t)threadIdx.x % FIG_BLOCK_WARP >= form::CHUNKS;
}

/* Writes t.last, the lane's 16 bytes of a token, to page t.page of the cache. Writes nothing if the
 * token is in no page or the lane has no bytes. */
template <class form>
static __device__ __forceinline__ void fig_turn_store(const fig_attention_params &p,
                                                      const fig_turn<form> &t, int32_t kv_head,
                                                      int32_t token) {
    const int32_t chunk = (int32_t)threadIdx.x % FIG_BLOCK_WARP, page = t.page;
    const int32_t rest = token - fig_geometry_divide(token, p.page_size) * p.page_size;
#pragma unroll
    for (int32_t i = 0; i < fig_turn_words<form>::STORES; i++) {
        const int32_t is_v = fig_turn_is_v<form>(i);
        const fig_cache_strides strides = is_v ? p.v_cache_strides : p.k_cache_strides;
        const int64_t at = page * strides.page + rest * strides.token + kv_head * strides.head;
        uint8_t *to = (uint8_t *)(is_v ? p.v_cache : p.k_cache) + at * form::VALUE_BYTES;
        if (page < 0 || page >= (is_v ? p.v_pages : p.k_pages)) continue;
        if (chunk >= 2 * form::CHUNKS) continue;
        *(uint4 *)(to + chunk % form::CHUNKS * FIG_RING_CHUNK) = t.last[i];
    }
}

/* Computes cosines and sines for every query of the row. */
template <class form>
static __device__ __forceinline__ void fig_turn_make(const fig_attention_params &p,
                                                     const fig_turn<form> &t) {
    const int32_t PAIRS = fig_turn_words<form>::PAIRS;
    const float factor = (float)p.turn.angles.table.factor;
#pragma unroll 1
    for (int32_t query = 0; query < p.split.row_tokens; query++) {
        const int32_t position = max(t.position - (p.split.row_tokens - 1 - query), 0);
        float *angles = fig_turn_angles<form>(p, t, query);
#pragma unroll
        for (int32_t i = 0; i < fig_turn_words<form>::OWN; i++) {
            const int32_t pair = t.thread + i * fig_turn_words<form>::THREADS;
            float cosine, sine;
            fig_heads_turn_of(position * p.turn.angles.table.frequencies[min(pair, PAIRS - 1)],
                              &cosine, &sine);
            if (pair >= PAIRS) continue;
            angles[pair] = cosine * factor;
            angles[PAIRS + pair] = sine * factor;
        }
    }
    fig_turn_meet<form>(t);
}

/* ---- Rows */

/* Returns the address of row `number`. The rows are q's vectors, then k's tokens, then v's
 * tokens. */
template <class form>
static __device__ __forceinline__ const uint32_t *fig_turn_row(const fig_attention_params &p,
                                                               const fig_turn<form> &t, int32_t row,
                                                               int32_t kv_head, int32_t number) {
    const int64_t token = (int64_t)row * p.split.row_tokens;
    const int32_t fresh = number - t.vectors;
    if (fresh < 0) {
        const int32_t ratio = fig_geometry_divide(p.q_heads, p.kv_heads);
        const int32_t query = fig_geometry_divide(number, ratio);
        const int32_t head = kv_head * ratio + number - query * ratio;
        return (const uint32_t *)((const uint16_t *)p.q + (token + query) * p.q_strides.row +
                                  head * p.q_strides.head);
    }
    const int32_t is_v = fresh >= p.split.row_tokens;
    const fig_row_strides strides = is_v ? p.turn.v_strides : p.turn.k_strides;
    return (const uint32_t *)((const uint16_t *)(is_v ? p.turn.v : p.turn.k) +
                              (token + fresh - is_v * p.split.row_tokens) * strides.row +
                              kv_head * strides.head);
}

template <class form>
static __device__ __forceinline__ fig_turn_words<form> fig_turn_fetch(const uint32_t *row) {
    const int32_t PAIRS = fig_turn_words<form>::PAIRS;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    fig_turn_words<form> words;
#pragma unroll
    for (int32_t i = 0; i < 2 * fig_turn_words<form>::WORDS; i++) {
        const int32_t word = min(lane + i / 2 * FIG_BLOCK_WARP, PAIRS / 2 - 1);
        words.of[i / 2][i % 2] = fig_vector_fetch_word(row + word + i % 2 * (PAIRS / 2));
    }
    return words;
}

/* Returns the dtype of q, k and v. The compiler knows the dtype if the cache has the same type. */
template <class form>
static __device__ __forceinline__ int32_t fig_turn_dtype(const fig_attention_params &p) {
    return form::VALUE_BYTES == 1 ? p.dtype : form::KV_DTYPE;
}

static __device__ __forceinline__ float2 fig_turn_widen(int32_t dtype, uint32_t pair) {
    return make_float2(fig_vector_low(pair, dtype), fig_vector_high(pair, dtype));
}

/* Returns the factor of the norm, in f32. The function is not inlined, because few models use a
 * norm. */
template <class form>
static __device__ __noinline__ float fig_turn_factor(fig_turn_words<form> words, int32_t dtype,
                                                     float epsilon) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    double squares = 0;
#pragma unroll
    for (int32_t i = 0; i < 2 * fig_turn_words<form>::WORDS; i++) {
        const float2 x = fig_turn_widen(dtype, words.of[i / 2][i % 2]);
        if (lane + i / 2 * FIG_BLOCK_WARP < fig_turn_words<form>::PAIRS / 2)
            squares += (double)x.x * (double)x.x + (double)x.y * (double)x.y;
    }
    return fig_heads_factor(squares, FIG_BLOCK_WARP, form::HEAD_DIM, epsilon);
}

static __device__ __forceinline__ float2 fig_turn_normed(float2 x, uint32_t weights, float factor,
                                                         int32_t dtype) {
    const float2 weight = fig_turn_widen(dtype, weights);
    return make_float2(x.x * (factor * weight.x), x.y * (factor * weight.y));
}

template <class form>
static __device__ __forceinline__ void fig_turn_words_of(const fig_attention_params &p,
                                                         const float *angles, const uint32_t *norm,
                                                         fig_turn_words<form> *words) {
    const int32_t PAIRS = fig_turn_words<form>::PAIRS;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    const int32_t dtype = fig_turn_dtype<form>(p);
    float factor = 1;
    if (norm != NULL) factor = fig_turn_factor<form>(*words, dtype, p.turn.norm_epsilon);
#pragma unroll
    for (int32_t i = 0; i < fig_turn_words<form>::WORDS; i++) {
        const int32_t word = min(lane + i * FIG_BLOCK_WARP, PAIRS / 2 - 1);
        const float2 cosine = ((const float2 *)angles)[word];
        const float2 sine = ((const float2 *)(angles + PAIRS))[word];
        float2 x = fig_turn_widen(dtype, words->of[i][0]);
        float2 y = fig_turn_widen(dtype, words->of[i][1]);
        if (norm != NULL) {
            x = fig_turn_normed(x, norm[word], factor, dtype);
            y = fig_turn_normed(y, norm[word + PAIRS / 2], factor, dtype);
        }
        fig_heads_turn_pair(&x.x, &y.x, cosine.x, sine.x);
        fig_heads_turn_pair(&x.y, &y.y, cosine.y, sine.y);
        words->of[i][0] = fig_vector_pair(x.x, x.y, dtype);
        words->of[i][1] = fig_vector_pair(y.x, y.y, dtype);
    }
}

/* Returns the address of byte `byte` of a row. */
template <class form>
static __device__ __forceinline__ uint8_t *fig_turn_at(const fig_turn<form> &t, int32_t number,
                                                       int32_t byte) {
    const int32_t turn = form::CHUNKS % 8 == 0 ? number % 8 : number / 2 % 4;
    const int32_t chunk = byte / FIG_RING_CHUNK ^ turn;
    return t.rows + number * fig_turn_words<form>::ROW_BYTES + chunk * FIG_RING_CHUNK +
           byte % FIG_RING_CHUNK;
}

template <class form>
static __device__ __forceinline__ void
fig_turn_keep(const fig_attention_params &p, const fig_turn<form> &t, int32_t number,
              const fig_warps_scales &scales, const fig_turn_words<form> &words) {
    const int32_t PAIRS = fig_turn_words<form>::PAIRS;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, fresh = number - t.vectors;
    const float scale = fresh >= p.split.row_tokens ? scales.v : scales.k;
#pragma unroll
    for (int32_t i = 0; i < 2 * fig_turn_words<form>::WORDS; i++) {
        const int32_t word = lane + i / 2 * FIG_BLOCK_WARP, first = 2 * word + i % 2 * PAIRS;
        if (word >= PAIRS / 2) continue;
        if (form::VALUE_BYTES == 1 && fresh >= 0) {
            *(uint16_t *)fig_turn_at<form>(t, number, first) =
                (uint16_t)fig_store_codes(words.of[i / 2][i % 2], p.dtype, form::KV_DTYPE, scale);
        } else {
            *(uint32_t *)fig_turn_at<form>(t, number, 2 * first) = words.of[i / 2][i % 2];
        }
    }
}

/* Holds a batch of the warp's rows, starting with row `first`. */
template <class form> struct fig_turn_batch {
    const uint32_t *from[fig_turn_words<form>::BATCH];
    fig_turn_words<form> words[fig_turn_words<form>::BATCH];
};

/* Finds the rows of a batch. Like all code at the start of a piece, the loop is not unrolled,
 * because the time of code that runs once grows with its length. */
template <class form>
static __device__ __forceinline__ void
fig_turn_aim(const fig_attention_params &p, const fig_turn<form> &t, int32_t row, int32_t kv_head,
             int32_t first, fig_turn_batch<form> *batch) {
    const int32_t BATCH = fig_turn_words<form>::BATCH;
    const int32_t last = t.vectors + 2 * p.split.row_tokens - 1;
#pragma unroll 1
    for (int32_t i = 0; i < BATCH; i++) {
#pragma unroll
        for (int32_t j = 1; j < BATCH; j++)
            batch->from[j - 1] = batch->from[j];
        batch->from[BATCH - 1] =
            fig_turn_row<form>(p, t, row, kv_head, min(first + i * form::SHARES, last));
    }
}

template <class form>
static __device__ __forceinline__ void fig_turn_load(fig_turn_batch<form> *batch) {
#pragma unroll
    for (int32_t i = 0; i < fig_turn_words<form>::BATCH; i++)
        batch->words[i] = fig_turn_fetch<form>(batch->from[i]);
}

template <class form>
static __device__ __forceinline__ void
fig_turn_rows(const fig_attention_params &p, const fig_turn<form> &t,
              const fig_warps_scales &scales, int32_t first, fig_turn_batch<form> *batch) {
    const int32_t BATCH = fig_turn_words<form>::BATCH, row_tokens = p.split.row_tokens;
    const int32_t end = min(first + BATCH * form::SHARES, t.vectors + 2 * row_tokens);
    const int32_t ratio = fig_geometry_divide(p.q_heads, p.kv_heads);
#pragma unroll 1
    for (int32_t number = first; number < end; number += form::SHARES) {
        const int32_t fresh = number - t.vectors;
        const int32_t query = fresh < 0 ? fig_geometry_divide(number, ratio) : fresh;
        const void *norm = fresh < 0 ? p.turn.q_norm : p.turn.k_norm;
        if (fresh < row_tokens && !fig_turn_is_plain(p))
            fig_turn_words_of<form>(p, fig_turn_angles<form>(p, t, query), (const uint32_t *)norm,
                                    &batch->words[0]);
        fig_turn_keep<form>(p, t, number, scales, batch->words[0]);
#pragma unroll
        for (int32_t j = 1; j < BATCH; j++)
            batch->words[j - 1] = batch->words[j];
    }
}

/* Loads the lane's words of q, in the order of attention_strip.cuh. Another vector replaces a
 * missing one. */
template <class form>
static __device__ __forceinline__ void fig_turn_take_q(const fig_turn<form> &t,
                                                       uint32_t (&q)[form::TILES][2]) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    if (form::VALUE_BYTES == 1) {
        const int32_t number = min(lane / 4, t.vectors - 1);
#pragma unroll
        for (int32_t k = 0; k < form::TILES; k++) {
            const uint2 words = *(const uint2 *)fig_turn_at<form>(t, number, 32 * k + lane % 4 * 8);
            q[k][0] = words.x;
            q[k][1] = words.y;
        }
        return;
    }
    const int32_t number = min(lane % 8, t.vectors - 1);
#pragma unroll
    for (int32_t k = 0; k < form::TILES; k += 2) {
        uint32_t words[4];
        fig_fragment_load(
            words, fig_fragment_shared(fig_turn_at<form>(t, number, 32 * k + lane / 8 * 16)));
        q[k][0] = words[0];
        q[k][1] = words[1];
        q[k + 1][0] = words[2];
        q[k + 1][1] = words[3];
    }
}

/* Does all the work at the start of a piece, and returns the scales of codes. On return q is in
 * registers and the newest tokens are in shared memory. Angles are computed before the wait; rows
 * and scales are loaded after it. */
template <class form>
static __device__ __forceinline__ fig_warps_scales fig_turn_begin(const fig_attention_params &p,
                                                                  int32_t row, int32_t kv_head,
                                                                  int32_t has_waited,
                                                                  fig_turn<form> *t,
                                                                  uint32_t (&q)[form::TILES][2]) {
    const int32_t ROUND = fig_turn_words<form>::BATCH * form::SHARES;
    const int32_t rows = t->vectors + 2 * p.split.row_tokens;
    fig_turn_batch<form> batch;
    fig_warps_scales scales = {1, 1};
    int32_t first = t->share;
    t->has_last = 0;
    fig_turn_look<form>(p, row, t);
    do {
        const int32_t is_first = first == t->share;
        fig_turn_aim<form>(p, *t, row, kv_head, first, &batch);
        if (has_waited) fig_turn_load<form>(&batch);
        if (is_first && !fig_turn_is_plain(p)) fig_turn_make<form>(p, *t);
        if (!has_waited) {
            fig_block_wait();
            fig_turn_load<form>(&batch);
            has_waited = 1;
        }
        if (is_first) scales = fig_warps_scales_of(p, kv_head);
        fig_turn_rows<form>(p, *t, scales, first, &batch);
        first += ROUND;
    } while (first < rows);
    fig_turn_meet<form>(*t);
    fig_turn_take_q<form>(*t, q);
    return scales;
}

/* ---- The newest tokens */

/* Returns the first query, from `query` on, with a token in the warp's part of a strip, or
 * row_tokens if there is no such query. first: the first token of the part. */
template <class form>
static __device__ __forceinline__ int32_t fig_turn_next(const fig_attention_params &p,
                                                        const fig_turn<form> &t,
                                                        const fig_ring_note &note, int32_t first,
                                                        int32_t query) {
    const int32_t oldest = t.length - p.split.row_tokens;
    const int32_t begin = max(note.first, first);
    const int32_t end = min(note.end, first + form::STEPS * FIG_RING_TOKENS);
    query = max(max(query, t.idle), begin - oldest);
    return oldest + query < end ? query : p.split.row_tokens;
}

/* Describes a warp's part of a strip: its first token, and its blocks of 16 tokens in both sides of
 * the slot, at distance `apart`. */
typedef struct fig_turn_part {
    int32_t first;
    uint32_t k, v, apart;
} fig_turn_part;

/* Replaces the newest tokens in the slot, and writes them to the cache, except the row's last
 * token. The warp keeps the last token until the sums of the piece are in flight. A warp calls this
 * function when both sides have come and before it reads them. A lane has a chunk of k or v, so one
 * pass does all: in most launches this code runs once, at the end, and takes time in proportion to
 * its length. */
template <class form>
static __device__ __forceinline__ void
fig_turn_replace(const fig_attention_params &p, const fig_ring_note &note, int32_t kv_head,
                 const fig_turn_part &part, fig_turn<form> *t) {
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP, row_tokens = p.split.row_tokens;
    const int32_t chunk = lane % form::CHUNKS, OF_COLUMN = form::COLUMN / FIG_RING_CHUNK;
#pragma unroll 1
    for (int32_t query = fig_turn_next<form>(p, *t, note, part.first, 0); query < row_tokens;
         query = fig_turn_next<form>(p, *t, note, part.first, query + 1)) {
        const int32_t token = t->length - row_tokens + query, local = token - part.first;
        const int32_t at = local % FIG_RING_TOKENS;
        /* the place that fig_ring_chunk_at() gives */
        const uint32_t place =
            (uint32_t)(local / FIG_RING_TOKENS) * part.apart +
            (uint32_t)(chunk / OF_COLUMN * (form::COLUMN * FIG_RING_TOKENS) + at * form::COLUMN +
                       (OF_COLUMN == 8 ? (chunk ^ at) % 8 : (chunk ^ at / 2) % 4) * FIG_RING_CHUNK);
        t->page = fig_turn_page<form>(p, *t, token);
#pragma unroll
        for (int32_t i = 0; i < fig_turn_words<form>::STORES; i++) {
            const int32_t is_v = fig_turn_is_v<form>(i);
            const int32_t number = t->vectors + is_v * row_tokens + query;
            t->last[i] = *(const uint4 *)fig_turn_at<form>(*t, number, chunk * FIG_RING_CHUNK);
            if (lane < 2 * form::CHUNKS)
                fig_machine_store_chunk((is_v ? part.v : part.k) + place, t->last[i]);
        }
        t->has_last = query == row_tokens - 1;
        if (!t->has_last) fig_turn_store<form>(p, *t, kv_head, token);
    }
    __syncwarp();
}

/* Writes the last token, if there is one. A warp calls this function once. */
template <class form>
static __device__ __forceinline__ void fig_turn_end(const fig_attention_params &p, int32_t kv_head,
                                                    fig_turn<form> *t) {
    if (t->has_last) fig_turn_store<form>(p, *t, kv_head, t->length - 1);
    t->has_last = 0;
}

#endif
