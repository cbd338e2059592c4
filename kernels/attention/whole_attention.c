/* whole_attention.c: decides which attention can run in one launch, and runs it on the host. On the
 * host, the first block of a cluster does the work that eight blocks share on a GPU.
 *
 * whole_attention.h deals the tokens to blocks. Invariant: if a launch is refused for one row, it
 * is also refused for more rows. */
#include "kernels/attention/whole_attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/attention/geometry.h"
#include "kernels/common/numeric.h"
#include "kernels/table/reference_kernels.h"
#include "planner/spec/head_dims.h"

enum { DIM_LIMIT = 128 };
#define FITS(wide, codes, short_wide, short_codes, whole, limit, dims)                             \
    &&(!(whole) || (dims) <= (limit))
static_assert(1 FIG_HEAD_DIMS(FITS, DIM_LIMIT), "a head's numbers on the stack");

fig_whole_attention_params fig_whole_attention_of(const fig_attention_params *a, int32_t rows,
                                                  int32_t length) {
    return (fig_whole_attention_params){.q = a->q,
                                        .k_cache = a->k_cache,
                                        .v_cache = a->v_cache,
                                        .out = a->out,
                                        .lse = a->lse,
                                        .q_strides = a->q_strides,
                                        .out_strides = a->out_strides,
                                        .k_cache_strides = a->k_cache_strides,
                                        .v_cache_strides = a->v_cache_strides,
                                        .lse_stride = a->lse_stride,
                                        .rows = rows,
                                        .length = length,
                                        .q_heads = a->q_heads,
                                        .kv_heads = a->kv_heads,
                                        .head_dim = a->head_dim,
                                        .dtype = a->dtype,
                                        .scale = a->sm_scale};
}

/* Returns 1 if each head of each row begins at a multiple of 16 bytes. */
static int is_aligned(const void *array, int64_t a, int64_t b, int64_t c) {
    return ((uint64_t)(uintptr_t)array | (uint64_t)a * 2 | (uint64_t)b * 2 | (uint64_t)c * 2) %
               16 ==
           0;
}

static int is_cache_aligned(const void *cache, const fig_cache_strides *s) {
    return is_aligned(cache, s->page, s->token, s->head);
}

const char *fig_whole_attention_refuses(const fig_attention_params *a, int32_t rows, int32_t length,
                                        const fig_traits *traits) {
    const fig_whole_attention_params p = fig_whole_attention_of(a, rows, length);
    if (traits->compute_capability != FIG_GEOMETRY_CAPABILITY_OF_BULK)
        return "compute capability 9.0";
    if (length < 1 || length > FIG_WHOLE_ATTENTION_LENGTH_LIMIT) return "1 to 2048 tokens";
    if (!fig_head_dims_has_whole(p.head_dim)) return "head_dim " FIG_HEAD_DIMS_WHOLE_TEXT;
    if ((a->dtype != FIG_F16 && a->dtype != FIG_BF16) || a->kv_dtype != a->dtype)
        return "f16 or bf16, in the cache too";
    if (a->page_table != NULL || a->sinks != NULL || a->alibi != NULL || a->k_scale != NULL ||
        a->v_scale != NULL || a->soft_cap > 0 || a->split.window > 0 || a->split.fixed ||
        a->split.row_tokens != 1)
        return "a dense cache, and plain logits of all its tokens";
    const int64_t blocks = (int64_t)FIG_WHOLE_ATTENTION_BLOCKS * fig_whole_attention_parts(&p);
    if (blocks * rows * a->kv_heads > 2 * (int64_t)traits->sm_count)
        return "as few rows and heads as are on the GPU at once";
    if (is_aligned(a->q, a->q_strides.row, a->q_strides.head, 0) &&
        is_cache_aligned(a->k_cache, &a->k_cache_strides) &&
        is_cache_aligned(a->v_cache, &a->v_cache_strides))
        return NULL;
    return "heads that begin at multiples of 16 bytes";
}

int fig_whole_attention_make(const void *params, int32_t rows, int32_t length,
                             const fig_traits *traits, void *whole) {
    fig_attention_params attention;
    memcpy(&attention, params, sizeof attention);
    if (length == 0) {
        length = 1;
        attention.split.row_tokens = 1; /* a run sets the number later */
    }
    const fig_whole_attention_params made = fig_whole_attention_of(&attention, rows, length);
    memcpy(whole, &made, sizeof made);
    return fig_whole_attention_refuses(&attention, rows, length, traits) == NULL;
}

void fig_whole_attention_shape(const void *params, fig_launch_shape *shape) {
    const fig_whole_attention_params *p = params;
    const int32_t clusters = p->rows * p->kv_heads * fig_whole_attention_parts(p);
    *shape = (fig_launch_shape){.grid = {(uint32_t)(clusters * FIG_WHOLE_ATTENTION_BLOCKS), 1, 1},
                                .block = {FIG_WHOLE_ATTENTION_WARPS * 32, 1, 1}};
}

void fig_whole_attention_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_whole_attention_params *p = params;
    snprintf(name, FIG_ENTRY_BYTES, "fig_kernel_whole_attention_%s_%d",
             p->dtype == FIG_BF16 ? "bf16" : "f16", p->head_dim);
}

/* ---- The reference kernel */

static void see_token(const fig_whole_attention_params *p, const fig_whole_attention_place *place,
                      int32_t token, const float *q, float *sums) {
    const fig_cache_strides *k = &p->k_cache_strides, *v = &p->v_cache_strides;
    float vector[DIM_LIMIT], logit = 0;
    fig_numeric_load_row(vector, p->head_dim, p->k_cache, p->dtype,
                         place->row * k->page + token * k->token + place->kv_head * k->head);
    for (int32_t i = 0; i < p->head_dim; i++)
        logit += q[i] * vector[i];
    logit *= p->scale * FIG_NUMERIC_LOG2_E;
    const float greatest = fmaxf(sums[0], logit);
    const float shrink = sums[1] > 0 ? exp2f(sums[0] - greatest) : 0,
                weight = exp2f(logit - greatest);
    fig_numeric_load_row(vector, p->head_dim, p->v_cache, p->dtype,
                         place->row * v->page + token * v->token + place->kv_head * v->head);
    sums[0] = greatest;
    sums[1] = sums[1] * shrink + weight;
    for (int32_t i = 0; i < p->head_dim; i++)
        sums[2 + i] = sums[2 + i] * shrink + weight * vector[i];
}

static void do_head(const fig_whole_attention_params *p, const fig_whole_attention_place *place,
                    int64_t head) {
    /* greatest logit, sum of weights, sums of values */
    float q[DIM_LIMIT], sums[2 + DIM_LIMIT] = {-INFINITY};
    fig_numeric_load_row(q, p->head_dim, p->q, p->dtype,
                         place->row * p->q_strides.row + head * p->q_strides.head);
    for (int32_t token = 0; token < p->length; token++)
        see_token(p, place, token, q, sums);
    for (int32_t i = 0; i < p->head_dim; i++)
        fig_numeric_store(p->out, p->dtype,
                          place->row * p->out_strides.row + head * p->out_strides.head + i,
                          sums[2 + i] / sums[1]);
    if (p->lse != NULL) p->lse[place->row * p->lse_stride + head] = sums[0] + log2f(sums[1]);
}

void fig_whole_attention_reference(const void *params, const uint32_t block[3]) {
    const fig_whole_attention_params *p = params;
    const int32_t cluster = (int32_t)block[0] / FIG_WHOLE_ATTENTION_BLOCKS;
    const fig_whole_attention_place place = fig_whole_attention_place_of(p, cluster);
    if (block[0] % FIG_WHOLE_ATTENTION_BLOCKS > 0) return;
    for (int32_t h = 0; h < place.heads; h++)
        do_head(p, &place, place.q_head + h);
}
