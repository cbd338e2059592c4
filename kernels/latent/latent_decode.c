/* latent_decode.c: runs the first launch of latent_decode on the host, block by block as a GPU
 * does.
 *
 * It applies RoPE to the last 64 values of each q head in place. It also turns each new latent into
 * a token of the cache, by an RMSNorm of its first 512 values and RoPE of its last 64. A block has
 * some q heads of a query token, or the token's latent. Invariant: the values equal those of
 * rms_norm and of rope over heads of 64; codes are computed from values that were first rounded to
 * q's dtype. */
#include "kernels/table/reference_kernels.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/latent/latent.h"
#include "kernels/latent/latent_decode.h"
#include "kernels/rows/append_kv.h"
#include "kernels/rows/rope.h"
#include "kernels/table/entry.h"

void fig_latent_decode_shape(const void *params, fig_launch_shape *shape) {
    const fig_latent_decode_params *p = params;
    const int32_t blocks = fig_latent_decode_blocks(p->q_heads);
    *shape = (fig_launch_shape){.grid = {(uint32_t)(p->rows.row_limit * blocks), 1, 1},
                                .block = {FIG_LATENT_DECODE_THREADS, 1, 1}};
}

void fig_latent_decode_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_latent_decode_params *p = params;
    fig_entry_write(name, "latent_decode", fig_entry_packed(&p->rows));
}

/* Normalises the latent in place, in f32, and rounds it to the dtype. */
static void normalise(const fig_latent_decode_params *p, float *latent) {
    float weight[FIG_LATENT_DIM];
    uint8_t rounded[FIG_LATENT_DIM * sizeof(float)];
    double sum = 0;
    if (p->norm == NULL) return;
    for (int32_t i = 0; i < FIG_LATENT_DIM; i++)
        sum += (double)latent[i] * (double)latent[i];
    const float scale = (float)(1.0 / sqrt(sum / FIG_LATENT_DIM + (double)p->norm_epsilon));
    fig_numeric_load_row(weight, FIG_LATENT_DIM, p->norm, p->dtype, 0);
    for (int32_t i = 0; i < FIG_LATENT_DIM; i++)
        latent[i] *= scale * weight[i];
    fig_numeric_store_row(rounded, p->dtype, 0, latent, FIG_LATENT_DIM);
    fig_numeric_load_row(latent, FIG_LATENT_DIM, rounded, p->dtype, 0);
}

static void store_codes(uint8_t *token, const float *values) {
    for (int32_t n = 0; n < FIG_LATENT_SCALES; n++) {
        const float *part = values + n * FIG_LATENT_SCALE_DIM;
        float most = 0;
        for (int32_t i = 0; i < FIG_LATENT_SCALE_DIM; i++)
            most = fmaxf(most, fabsf(part[i]));
        const float scale = fig_latent_scale(most);
        memcpy(token + FIG_LATENT_SCALES_AT + n * 4, &scale, sizeof scale);
        for (int32_t i = 0; i < FIG_LATENT_SCALE_DIM; i++)
            token[n * FIG_LATENT_SCALE_DIM + i] = fig_numeric_e4m3(part[i] / scale);
    }
    for (int32_t i = 0; i < FIG_LATENT_ROPE_DIM; i++) {
        const uint16_t code = fig_numeric_bf16(values[FIG_LATENT_DIM + i]);
        token[FIG_LATENT_ROPE_AT + 2 * i] = (uint8_t)code;
        token[FIG_LATENT_ROPE_AT + 2 * i + 1] = (uint8_t)(code >> 8);
    }
}

/* Appends a query token. */
static void append(const fig_latent_decode_params *p, const fig_rope_params *rope,
                   const fig_rope_turns *turns, int32_t token) {
    const fig_append_kv_params where = fig_latent_decode_append(p);
    const int64_t from = token * p->latent_stride;
    float values[FIG_LATENT_KEY_DIM];
    uint8_t turned[FIG_LATENT_ROPE_DIM * sizeof(float)];
    fig_append_kv_place place;
    if (!fig_append_kv_find(&where, token, &place)) return;
    const int32_t page = fig_cache_page(&place.sequence, place.token);
    if (page < 0 || page >= p->k_pages) return;
    fig_numeric_load_row(values, FIG_LATENT_DIM, p->latent, p->dtype, from);
    normalise(p, values);
    fig_rope_turn_head(rope, turns, NULL, p->latent, from + FIG_LATENT_DIM, turned, 0);
    fig_numeric_load_row(values + FIG_LATENT_DIM, FIG_LATENT_ROPE_DIM, turned, p->dtype, 0);
    const int64_t to =
        page * p->k_cache_strides.page + place.token % p->page_size * p->k_cache_strides.token;
    if (p->kv_dtype == FIG_E4M3) {
        store_codes((uint8_t *)p->k_cache + to, values);
    } else {
        fig_numeric_store_row(p->k_cache, p->kv_dtype, to, values, FIG_LATENT_KEY_DIM);
    }
}

void fig_latent_decode_reference(const void *params, const uint32_t block[3]) {
    const fig_latent_decode_params *p = params;
    const fig_rope_params rope = fig_latent_decode_rope(p);
    const fig_latent_decode_part part = fig_latent_decode_part_of(p->q_heads, block[0]);
    fig_rope_turns turns;
    assert(p->rope.rotary_dim == FIG_LATENT_ROPE_DIM);
    if (part.token >= fig_params_rows(&p->rows, p->plan)) return;
    if (!fig_rope_find_turns(&rope, part.token, &turns)) return;
    if (part.first == part.end) append(p, &rope, &turns, part.token);
    for (int32_t head = part.first; head < part.end; head++) {
        const int64_t at = part.token * rope.q_strides.row + head * rope.q_strides.head;
        fig_rope_turn_head(&rope, &turns, NULL, rope.q, at, rope.q_out, at);
    }
}
