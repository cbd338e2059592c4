/* decode_attention_long.cu: runs the first launch of decode_attention on a GPU in buckets of many
 * query tokens.
 *
 * It leaves the same bits as decode_attention.cu. A block has some heads of two tokens at once, and
 * then of further two, until the step has no more: a step of a packed program may have far fewer
 * tokens than its bucket, and thousands of blocks without a token take longer than the tokens.
 * While the pieces of two tokens are on their way, a thread for each token finds its place.
 * Premises: fig_decode_attention_long_refuses() returns NULL, so all pieces are whole vectors.
 * Invariant: the thread that writes a number has read that number's input before. */
#include "kernels/rows/turned.cuh"

enum { ABREAST = FIG_DECODE_LONG_ABREAST, BLOCKS = 5 };

/* What the block knows of its tokens. */
typedef struct long_tokens {
    fig_heads_turns turns[ABREAST];
    int64_t positions[ABREAST];
    fig_store_place places[ABREAST];
} long_tokens;

/* A thread's piece of a head, in token 0. */
typedef struct own_piece {
    fig_turned_place head;
    fig_heads_piece piece;
    int32_t is_there;
    int64_t row_bytes; /* from token to token */
} own_piece;

/* number: of the head. The compiler takes it for another number in each iteration of a loop.
 * Otherwise it would compute all that follows from it before the loop, which takes more registers
 * than there are. */
static __device__ __forceinline__ own_piece own_of(const fig_turned_work *p, int32_t number,
                                                   int32_t end, int32_t dtype) {
    const fig_rope_params *rope = &p->rope;
    const int32_t sharers = fig_heads_sharers(rope->head_dim, dtype);
    own_piece own;
    asm volatile("" : "+r"(number));
    own.head = fig_turned_place_of(p, 0, number, dtype);
    own.piece = fig_turned_piece_of(p, own.head.side, (int32_t)threadIdx.x % sharers,
                                    fig_vector_lanes(dtype));
    own.is_there = number < end && own.piece.first < rope->head_dim;
    own.row_bytes = fig_turned_place_of(p, 1, number, dtype).in - own.head.in;
    return own;
}

/* Finds the place and the position of a token. */
static __device__ __forceinline__ void find_token(const fig_turned_work *p, int32_t number,
                                                  int32_t i, long_tokens *tokens) {
    const fig_rope_params *rope = &p->rope;
    fig_store_token token = fig_store_token_of(&p->append, number);
    fig_store_locate(&p->append, &token);
    const int32_t *last = (const int32_t *)(rope->plan + rope->positions_offset) + token.row;
    const int32_t planned = fig_store_fetch(&p->append, last);
    const fig_store_words words = fig_store_read(&p->append, &token);
    tokens->places[i] = fig_store_find(&p->append, &token, &words);
    tokens->positions[i] = fig_turned_position_of(rope, &token, planned);
}

/* Computes the cosines and sines of all tokens. If a head has few pairs, two tokens share the
 * threads. */
static __device__ __forceinline__ void make_turns(const fig_turned_work *p, long_tokens *tokens) {
    const fig_rope_params *rope = &p->rope;
    const int32_t few = FIG_HEADS_THREADS / 2;
    const int32_t makers = rope->rope.rotary_dim / 2 <= few ? few : (int32_t)FIG_HEADS_THREADS;
    const int32_t pair = (int32_t)threadIdx.x % makers;
    const double frequency = fig_heads_frequency(rope, &p->angles->table, pair);
#pragma unroll 1
    for (int32_t i = (int32_t)threadIdx.x / makers; i < ABREAST; i += FIG_HEADS_THREADS / makers)
        fig_heads_make_turn(rope, pair, tokens->positions[i], frequency, &tokens->turns[i]);
}

/* Changes the thread's piece of token i and stores it. */
static __device__ __forceinline__ void leave_piece(const fig_turned_work *p, const own_piece *own,
                                                   int32_t number, const long_tokens *tokens,
                                                   int32_t i, int32_t dtype,
                                                   fig_heads_codes *codes) {
    const fig_rope_params *rope = &p->rope;
    const int32_t bytes = fig_numeric_bytes(dtype);
    const fig_turned_place *head = &own->head;
    float factor = 1;
    if (rope->q_norm != NULL)
        factor = fig_heads_factor(
            fig_norm_squares(codes->of[0], dtype) + fig_norm_squares(codes->of[1], dtype),
            fig_heads_sharers(rope->head_dim, dtype), rope->head_dim, rope->norm_epsilon);
    if (!own->is_there) return;
    const fig_heads_codes weights =
        fig_heads_fetch(head->norm, &own->piece, dtype, head->norm != NULL);
    fig_heads_change(rope, &own->piece, &tokens->turns[i], &weights, head->norm != NULL, factor,
                     dtype, codes);
    if (head->out != NULL) {
        uint8_t *out = head->out + number * own->row_bytes;
        *(uint4 *)(out + own->piece.first * bytes) = codes->of[0];
        *(uint4 *)(out + own->piece.second * bytes) = codes->of[1];
    }
    if (head->side == FIG_TURNED_Q) return;
    const fig_store_side side = fig_store_side_of(&p->append, head->side == FIG_TURNED_V);
    const fig_store_heads cache = fig_store_in(&side, &tokens->places[i]);
    fig_turned_store(&p->append, &cache, head->head, own->piece.first, codes->of[0]);
    fig_turned_store(&p->append, &cache, head->head, own->piece.second, codes->of[1]);
}

static __device__ __forceinline__ void do_heads(const fig_turned_work *p, int32_t dtype,
                                                long_tokens *tokens) {
    const fig_rope_params *rope = &p->rope;
    const fig_heads_part part =
        fig_heads_part_of(rope->q_heads + 2 * rope->k_heads, rope->head_dim, dtype, blockIdx.x);
    const int32_t apart = ABREAST * fig_decode_attention_groups(&rope->rows);
    const int32_t thread = (int32_t)threadIdx.x;
    const int32_t number = part.first + thread / fig_heads_sharers(rope->head_dim, dtype);
    fig_block_enter(p->is_early);
    const int32_t rows = fig_params_rows(&rope->rows, rope->plan);
#pragma unroll 1
    for (int32_t first = ABREAST * part.group; first < rows; first += apart) {
        const own_piece own = own_of(p, number, part.end, dtype);
        fig_heads_codes codes[ABREAST];
#pragma unroll
        for (int32_t i = 0; i < ABREAST; i++)
            codes[i] = fig_heads_fetch(own.head.in + (first + i) * own.row_bytes, &own.piece, dtype,
                                       own.is_there && first + i < rows);
        if (thread < ABREAST) find_token(p, min(first + thread, rows - 1), thread, tokens);
        __syncthreads();
        make_turns(p, tokens);
        __syncthreads();
#pragma unroll
        for (int32_t i = 0; i < ABREAST; i++)
            if (first + i < rows) leave_piece(p, &own, first + i, tokens, i, dtype, &codes[i]);
        __syncthreads(); /* all threads have read what is known of the tokens */
    }
}

extern "C" __global__ void __launch_bounds__(FIG_HEADS_THREADS, BLOCKS)
    fig_kernel_decode_attention_long(const __grid_constant__ fig_decode_attention_params p) {
    __shared__ __align__(16) long_tokens tokens;
    const fig_turned_work all = fig_turned_work_of(&p, 1);
    switch (p.dtype) {
    case FIG_F16: do_heads(&all, FIG_F16, &tokens); break;
    case FIG_BF16: do_heads(&all, FIG_BF16, &tokens); break;
    default: do_heads(&all, FIG_F32, &tokens); break;
    }
}
