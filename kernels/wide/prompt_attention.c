/* prompt_attention.c: computes attention of rows with many query tokens on the host, with a score
 * or without one, and decides which family serves a launch.
 *
 * The reference kernel processes a worker's items in order, all in f32. Its partials, sums,
 * counters and order of merges are those of the kernels. Up to 16 vectors go over the tokens
 * together, so that each token is converted to f32 once for all of them. Invariant: a token that no
 * query sees is skipped, not multiplied by a weight of zero, so any bytes may lie there. */
#include <math.h>
#include <string.h>

#include "kernels/attention/logit.h"
#include "kernels/attention/sums.h"
#include "kernels/common/cache.h"
#include "kernels/common/lanes.h"
#include "kernels/common/numeric.h"
#include "kernels/table/entry.h"
#include "kernels/table/reference_kernels.h"
#include "kernels/wide/prompt_score.h"
#include "kernels/wide/wide.h"
#include "planner/spec/head_dims.h"

enum { DIM_LIMIT = 256, ARRIVE_VECTORS = FIG_LANES_COUNT, PLAIN_THREADS = 256, BOX_LIMIT = 256 };

/* Holds the state of one vector: the sum of weight * v and the sum of weights. Both are relative to
 * the greatest logit so far. */
typedef struct seen_so_far {
    float values[DIM_LIMIT];
    float greatest, weights;
} seen_so_far;

/* Names one vector of an item. */
typedef struct vector_place {
    const fig_strips_item *item;
    int32_t number; /* index in the strip */
    int32_t index;  /* of its query in the strip */
    int32_t query, q_head;
    const fig_strips_member *member; /* NULL: the strip is not shared */
} vector_place;

/* The vectors of an item that share a counter. They have the same kv head. */
typedef struct vector_set {
    const fig_strips_item *item;
    int32_t count;
    vector_place places[ARRIVE_VECTORS];
    int32_t first[ARRIVE_VECTORS], end[ARRIVE_VECTORS]; /* the item's tokens that a vector sees */
    float queries[DIM_LIMIT][ARRIVE_VECTORS];
    seen_so_far seen[ARRIVE_VECTORS];
    /* set only if there is a score */
    fig_score_inputs inputs[ARRIVE_VECTORS];
    fig_mask_sight sights[ARRIVE_VECTORS];
} vector_set;

/* ---- Families */

static int is_aligned(const void *array, int64_t a, int64_t b, int64_t c) {
    const uint64_t bytes = (uint64_t)a * 2 | (uint64_t)b * 2 | (uint64_t)c * 2;
    return ((uint64_t)(uintptr_t)array | bytes) % 16 == 0;
}

static int is_cache_aligned(const void *cache, const fig_cache_strides *s) {
    return is_aligned(cache, s->page, s->token, s->head);
}

/* Returns 1 if a single tensor map can describe every head of every page. */
static int is_mapped(const fig_prompt_attention_params *p, const fig_cache_strides *s) {
    if (fig_wide_head_columns(s, p->kv_heads, p->head_dim) > 0) return 1;
    return s->page == s->head * p->kv_heads;
}

const char *fig_prompt_attention_wide_refuses(const void *params, const fig_traits *traits) {
    const fig_prompt_attention_params *p = params;
    const fig_cache_strides *k = &p->k_cache_strides, *v = &p->v_cache_strides;
    if (traits->compute_capability != FIG_GEOMETRY_CAPABILITY_OF_BULK ||
        traits->shared_bytes < fig_wide_shared_bytes(p->head_dim))
        return "compute capability 9.0";
    if (!fig_wide_has(p->head_dim)) return "head_dim 64, 96, 128 or 256";
    if (p->dtype != FIG_F16 && p->dtype != FIG_BF16) return "f16 or bf16";
    if (p->kv_dtype != p->dtype) return "a cache of q's dtype";
    if (p->flags & FIG_ATTENTION_DENSE) return "a page table";
    if (p->k_scale != NULL || p->v_scale != NULL || p->alibi != NULL)
        return "no scales and no ALiBi";
    if (p->page_size % 2 != 0 && fig_wide_column(p->head_dim) != 64)
        return "pages of an even number of tokens, or a head_dim that is a multiple of 64";
    if (fig_wide_head_columns(k, p->kv_heads, p->head_dim) !=
            fig_wide_head_columns(v, p->kv_heads, p->head_dim) ||
        !is_mapped(p, k) || !is_mapped(p, v))
        return "heads of a token, or of a page, at equal distances";
    if (!is_aligned(p->q, p->q_strides.row, p->q_strides.head, 0) ||
        !is_cache_aligned(p->k_cache, k) || !is_cache_aligned(p->v_cache, v) ||
        (uintptr_t)p->out % 4 != 0 || p->out_strides.row % 2 != 0 || p->out_strides.head % 2 != 0)
        return "heads that begin at multiples of 16 bytes";
    return NULL;
}

void fig_prompt_attention_wide_shape(const void *params, fig_launch_shape *shape) {
    const fig_prompt_attention_params *p = params;
    *shape = (fig_launch_shape){.grid = {(uint32_t)p->workers, 1, 1},
                                .block = {FIG_WIDE_WARPS * 32, 1, 1}};
}

uint32_t fig_prompt_attention_wide_shared(const void *params, const fig_traits *traits) {
    (void)traits;
    return (uint32_t)fig_wide_shared_bytes(((const fig_prompt_attention_params *)params)->head_dim);
}

void fig_prompt_attention_wide_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_prompt_attention_params *p = params;
    fig_entry_name entry = {name, name};
    fig_entry_put(&entry, "fig_kernel_wide_attention_");
    fig_entry_put(&entry, p->dtype == FIG_BF16 ? "bf16_" : "f16_");
    fig_entry_put_number(&entry, p->head_dim);
}

void fig_prompt_attention_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_prompt_attention_params *p = params;
    fig_entry_name entry = {name, name};
    fig_entry_put(&entry, "fig_kernel_prompt_attention_");
    fig_entry_put_number(&entry, p->head_dim);
}

static void map_queries(const fig_prompt_attention_params *p, fig_tensor_map_recipe *recipe) {
    const uint32_t column = (uint32_t)fig_wide_column(p->head_dim);
    const uint32_t ratio = (uint32_t)p->ratio;
    *recipe =
        (fig_tensor_map_recipe){.address = (uint64_t)(uintptr_t)p->q,
                                .dtype = (uint32_t)p->dtype,
                                .rank = 4,
                                .dims = {column, (uint64_t)p->q_heads, (uint64_t)p->rows.row_limit,
                                         (uint64_t)fig_wide_columns(p->head_dim)},
                                .strides_bytes = {2, (uint64_t)p->q_strides.head * 2,
                                                  (uint64_t)p->q_strides.row * 2, column * 2},
                                .box = {column, ratio, (uint32_t)p->half, 1},
                                .swizzle_bytes = column * 2};
}

/* Makes the recipe of a cache's tensor map, with the dimensions {dims of a column, tokens, columns,
 * blocks, pages}. If a box brings whole blocks, a block has 8 of a page's tokens; otherwise the
 * page is one block. */
void fig_prompt_attention_wide_map(const void *params, uint32_t item,
                                   fig_tensor_map_recipe *recipe) {
    const fig_prompt_attention_params *p = params;
    const int is_v = item == FIG_PROMPT_ATTENTION_V_MAP;
    if (item == FIG_PROMPT_ATTENTION_Q_MAP) {
        map_queries(p, recipe);
        return;
    }
    const fig_cache_strides *strides = is_v ? &p->v_cache_strides : &p->k_cache_strides;
    const uint32_t column = (uint32_t)fig_wide_column(p->head_dim);
    const uint32_t columns = (uint32_t)fig_wide_columns(p->head_dim);
    const uint32_t box = (uint32_t)fig_wide_box(p->page_size, p->head_dim);
    const uint32_t step = (uint32_t)fig_wide_head_columns(strides, p->kv_heads, p->head_dim);
    const int has_blocks = box >= FIG_WIDE_BLOCK;
    const uint32_t tokens = has_blocks ? FIG_WIDE_BLOCK : (uint32_t)p->page_size;
    const uint32_t heads = (uint32_t)p->kv_heads;
    *recipe = (fig_tensor_map_recipe){
        .address = (uint64_t)(uintptr_t)(is_v ? p->v_cache : p->k_cache),
        .dtype = (uint32_t)p->dtype,
        .rank = 5,
        .dims = {column, tokens, step * (heads - 1) + columns, (uint64_t)p->page_size / tokens,
                 (uint64_t)(is_v ? p->v_pages : p->k_pages) * (step > 0 ? 1 : heads)},
        .strides_bytes = {2, (uint64_t)strides->token * 2, column * 2,
                          (uint64_t)strides->token * 2 * tokens,
                          (uint64_t)(step > 0 ? strides->page : strides->head) * 2},
        .box = {column, has_blocks ? FIG_WIDE_BLOCK : box, has_blocks ? columns : 1,
                has_blocks ? box / FIG_WIDE_BLOCK : 1, 1},
        .swizzle_bytes = column * 2};
}

void fig_prompt_attention_scored_entry(const void *params, char name[FIG_ENTRY_BYTES]) {
    const fig_prompt_attention_params *p = params;
    fig_entry_name entry = {name, name};
    fig_entry_put(&entry, "fig_kernel_scored_prompt_");
    fig_entry_put_number(&entry, p->head_dim > 128 ? DIM_LIMIT : 128);
}

void fig_prompt_attention_shape(const void *params, fig_launch_shape *shape) {
    const fig_prompt_attention_params *p = params;
    *shape =
        (fig_launch_shape){.grid = {(uint32_t)p->workers, 1, 1}, .block = {PLAIN_THREADS, 1, 1}};
}

/* ---- The reference kernel */

/* Returns the params that hold the launch's score, or NULL if it has none. */
static const fig_scored_prompt_params *scored_of(const fig_prompt_attention_params *p) {
    return p->flags & FIG_ATTENTION_SCORED ? (const fig_scored_prompt_params *)(const void *)p
                                           : NULL;
}

static int64_t offset_of(const fig_prompt_attention_params *p, const fig_strips_item *item,
                         int32_t token, int is_v) {
    const fig_cache_strides *strides = is_v ? &p->v_cache_strides : &p->k_cache_strides;
    const fig_cache_sequence sequence =
        fig_cache_sequence_of(p->page_table, p->table_stride, item->sequence, p->page_size);
    int32_t page = fig_cache_page(&sequence, token);
    if (page < 0 || page >= (is_v ? p->v_pages : p->k_pages)) page = 0;
    return fig_cache_offset(strides, &sequence, page, token) + item->head * strides->head;
}

/* behind: position of the token minus position of the query, 0 or negative. */
static float logit_of(const fig_prompt_attention_params *p, const vector_place *place,
                      float product, int32_t behind) {
    float logit =
        product * p->sm_scale * fig_cache_scale(p->k_scale, p->k_scales, place->item->head);
    if (p->alibi != NULL) logit = fig_logit_lean(logit, p->alibi[place->q_head], behind);
    return fig_logit_finish(logit, p->soft_cap);
}

static void begin_vector(const fig_prompt_attention_params *p, seen_so_far *seen) {
    memset(seen->values, 0, (size_t)p->head_dim * sizeof seen->values[0]);
    seen->greatest = -INFINITY;
    seen->weights = 0;
}

/* Adds a token to what a vector has seen. */
static void weigh_token(const fig_prompt_attention_params *p, float logit, const float *restrict v,
                        seen_so_far *restrict seen) {
    const float greatest = fmaxf(seen->greatest, logit);
    const float shrink = fig_sums_shrink(seen->greatest, greatest),
                weight = fig_sums_shrink(logit, greatest);
    seen->greatest = greatest;
    seen->weights = seen->weights * shrink + weight;
    fig_lanes_mix(seen->values, shrink, v, weight, p->head_dim);
}

/* Adds a token to what vector n of the set has seen. */
static void weigh_plain(const fig_prompt_attention_params *p, vector_set *set, int32_t n,
                        int32_t token, float product, const float *v) {
    const vector_place *place = &set->places[n];
    const int32_t position = fig_strips_limit(place->item, place->index);
    weigh_token(p, logit_of(p, place, product, token - position), v, &set->seen[n]);
}

/* The same if there is a score, which may hide the token. */
static void weigh_scored(const fig_scored_prompt_params *scored, vector_set *set, int32_t n,
                         int32_t token, float product, const float *v) {
    const fig_prompt_attention_params *p = &scored->attention;
    if (!fig_mask_value_sees(&set->sights[n], token)) return;
    const float scale = p->sm_scale * fig_cache_scale(p->k_scale, p->k_scales, set->item->head);
    const float logit = fig_prompt_score_logit(scored, &set->inputs[n], token, product * scale);
    if (fig_prompt_score_hides(scored, logit)) return;
    weigh_token(p, logit, v, &set->seen[n]);
}

/* Returns 1 if there is a score, and no vector of the set sees the token. */
static int is_unseen(const fig_prompt_attention_params *p, const vector_set *set, int32_t token) {
    if (scored_of(p) == NULL) return 0;
    for (int32_t n = 0; n < set->count; n++)
        if (fig_mask_value_sees(&set->sights[n], token)) return 0;
    return 1;
}

/* Adds a token to what the vectors that see it have seen. Each product is summed in the order of
 * the dims, and the compiler vectorises over the products. */
static void see_token(const fig_prompt_attention_params *p, vector_set *set, int32_t token) {
    const fig_strips_item *item = set->item;
    float k[DIM_LIMIT], v[DIM_LIMIT], products[ARRIVE_VECTORS] = {0};
    fig_numeric_load_row(k, p->head_dim, p->k_cache, p->kv_dtype, offset_of(p, item, token, 0));
    fig_numeric_load_row(v, p->head_dim, p->v_cache, p->kv_dtype, offset_of(p, item, token, 1));
    fig_lanes_add_rows(&products, (const float(*)[ARRIVE_VECTORS])set->queries, k, p->head_dim);
    for (int32_t n = 0; n < set->count; n++) {
        if (token < set->first[n] || token >= set->end[n]) continue;
        if (scored_of(p) != NULL) {
            weigh_scored(scored_of(p), set, n, token, products[n], v);
        } else {
            weigh_plain(p, set, n, token, products[n], v);
        }
    }
}

/* Finds the item's tokens if there is a score; the vector's sight says which of them it sees. */
static void find_scored_tokens(const fig_scored_prompt_params *p, vector_set *set, int32_t n) {
    const vector_place *place = &set->places[n];
    const fig_strips_item *item = set->item;
    const int32_t tile = p->attention.tile_tokens;
    assert(place->member == NULL);
    set->inputs[n] = fig_prompt_score_inputs(p, item, place->index, place->q_head);
    set->sights[n] = fig_prompt_score_sight(p, &set->inputs[n]);
    set->first[n] = item->tile * tile;
    set->end[n] = fig_size_min((item->tile + item->tiles) * tile, item->end);
}

/* Finds the item's tokens that a vector sees. */
static void find_tokens(const fig_prompt_attention_params *p, vector_set *set, int32_t n) {
    const fig_strips_item *item = set->item;
    const int32_t tile = p->tile_tokens;
    if (scored_of(p) != NULL) {
        find_scored_tokens(scored_of(p), set, n);
        return;
    }
    const int32_t limit = fig_strips_limit(item, set->places[n].index);
    const int32_t low = fig_strips_floor(item, p->window, limit);
    set->first[n] = item->tile * tile > low ? item->tile * tile : low;
    set->end[n] =
        fig_size_min(fig_size_min((item->tile + item->tiles) * tile, item->end), limit + 1);
}

static void load_query(const fig_prompt_attention_params *p, vector_set *set, int32_t n) {
    const vector_place *place = &set->places[n];
    float q[DIM_LIMIT];
    fig_numeric_load_row(q, p->head_dim, p->q, p->dtype,
                         place->query * p->q_strides.row + place->q_head * p->q_strides.head);
    for (int32_t i = 0; i < p->head_dim; i++)
        set->queries[i][n] = q[i];
}

static void see_tiles(const fig_prompt_attention_params *p, vector_set *set) {
    int32_t first = INT32_MAX, end = 0;
    memset(set->queries, 0, (size_t)p->head_dim * sizeof set->queries[0]);
    for (int32_t n = 0; n < set->count; n++) {
        find_tokens(p, set, n);
        load_query(p, set, n);
        begin_vector(p, &set->seen[n]);
        if (set->first[n] < first) first = set->first[n];
        if (set->end[n] > end) end = set->end[n];
    }
    for (int32_t token = first; token < end; token++)
        if (!is_unseen(p, set, token)) see_token(p, set, token);
}

/* Writes the final result of a vector. Only this function applies the sink and the scale of V. */
static void write_out(const fig_prompt_attention_params *p, const vector_place *place,
                      fig_sums *sums) {
    const float *sink = p->sinks != NULL ? &p->sinks[place->q_head] : NULL;
    const float v_scale = fig_cache_scale(p->v_scale, p->v_scales, place->item->head);
    float scale = fig_sums_finish(sink, v_scale, sums);
    if (scored_of(p) != NULL)
        scale *= fig_prompt_score_factor(scored_of(p), sums->greatest, sums->weights);
    for (int32_t i = 0; i < p->head_dim; i++)
        sums->values[i] *= scale;
    fig_numeric_store_row(p->out, p->dtype,
                          place->query * p->out_strides.row + place->q_head * p->out_strides.head,
                          sums->values, p->head_dim);
    if (p->lse != NULL)
        p->lse[place->query * p->lse_stride + place->q_head] =
            sums->greatest + log2f(sums->weights);
}

/* ---- Merges */

static fig_sums_store store_of(const fig_prompt_attention_params *p) {
    return (fig_sums_store){p->partials, p->sums, p->head_dim};
}

/* Merges the pieces of a strip, in the order of the line. all->values: zeros. */
static void merge_pieces(const fig_prompt_attention_params *p, const vector_place *place,
                         fig_sums *all) {
    const fig_strips_item *item = place->item;
    const fig_sums_store store = store_of(p);
    const int64_t strip = (int64_t)item->queries * p->ratio;
    for (int32_t piece = 0; piece < item->pieces; piece++)
        fig_sums_add(&store, item->first_partial + piece * strip + place->number, all);
}

/* Stores the result of a shared strip in its slot. If it is the last result of its query token,
 * merges all slots. */
static void leave_slot(const fig_prompt_attention_params *p, const vector_place *place,
                       const fig_sums *sums) {
    const fig_strips_head *head = (const fig_strips_head *)(const void *)fig_params_strips(p);
    const fig_strips_member *member = place->member;
    const fig_sums_store store = store_of(p);
    uint32_t *counter = p->counters + fig_strips_slot_counter(head, member, place->q_head);
    float values[DIM_LIMIT] = {0};
    fig_sums all = {values, -INFINITY, 0};
    const int32_t own = member->slot + place->item->slot;
    fig_sums_keep(&store, fig_strips_slot(head, member, own, place->q_head), sums);
    if (++*counter < (uint32_t)member->slots) return;
    *counter = 0;
    for (int32_t slot = 0; slot < member->slots; slot++)
        fig_sums_add(&store, fig_strips_slot(head, member, slot, place->q_head), &all);
    write_out(p, place, &all);
}

/* Writes the result of a vector after all tiles of its strip have been processed. */
static void end_vector(const fig_prompt_attention_params *p, const vector_place *place,
                       fig_sums *sums) {
    if (place->member != NULL) {
        leave_slot(p, place, sums);
    } else {
        write_out(p, place, sums);
    }
}

static vector_place place_of(const fig_prompt_attention_params *p, const fig_strips_item *item,
                             int32_t number) {
    const int32_t ratio = p->ratio, index = number / ratio;
    vector_place place = {.item = item,
                          .number = number,
                          .index = index,
                          .query = item->query + index,
                          .q_head = item->head * ratio + number % ratio};
    if (item->flags & FIG_STRIPS_IS_SHARED) {
        place.member = &fig_strips_members(fig_params_strips(p))[item->query + index];
        place.query = place.member->query;
    }
    return place;
}

/* Processes vectors [first, end) of the item, which share a counter. */
static void do_vectors(const fig_prompt_attention_params *p, const fig_strips_item *item,
                       int32_t first, int32_t end, uint32_t *counter) {
    const fig_sums_store store = store_of(p);
    vector_set set; /* not initialised: it is large, and few items use all of it */
    set.item = item;
    set.count = end - first;
    for (int32_t n = 0; n < set.count; n++)
        set.places[n] = place_of(p, item, first + n);
    see_tiles(p, &set);
    for (int32_t n = 0; n < set.count; n++) {
        seen_so_far *seen = &set.seen[n];
        fig_sums sums = {seen->values, seen->greatest, seen->weights};
        if (item->partial < 0) {
            end_vector(p, &set.places[n], &sums);
        } else {
            fig_sums_keep(&store, item->partial + first + n, &sums);
        }
    }
    if (item->partial < 0 || ++*counter < (uint32_t)item->pieces) return;
    *counter = 0;
    for (int32_t n = 0; n < set.count; n++) {
        float values[DIM_LIMIT] = {0};
        fig_sums all = {values, -INFINITY, 0};
        merge_pieces(p, &set.places[n], &all);
        end_vector(p, &set.places[n], &all);
    }
}

/* Processes an item. The vectors of each half of a strip form sets of 16, and each set has a
 * counter. */
static void do_item(const fig_prompt_attention_params *p, const fig_strips_item *item) {
    const int32_t ratio = p->ratio, half = p->half * ratio;
    const int32_t vectors = item->queries * ratio;
    for (int32_t set = 0; set < FIG_STRIPS_ARRIVALS; set++) {
        const int32_t begin = set < FIG_STRIPS_ARRIVALS / 2 ? 0 : half;
        const int32_t first = begin + set % (FIG_STRIPS_ARRIVALS / 2) * ARRIVE_VECTORS;
        const int32_t end =
            fig_size_min(fig_size_min(first + ARRIVE_VECTORS, begin + half), vectors);
        if (first < end) do_vectors(p, item, first, end, p->counters + item->counter + set);
    }
}

void fig_prompt_attention_reference(const void *params, const uint32_t block[3]) {
    const fig_prompt_attention_params *p = params;
    const uint8_t *strips = fig_params_strips(p);
    if (strips == NULL) return;
    const int32_t *ranges = fig_strips_ranges(strips);
    const fig_strips_item *items = fig_strips_items(strips, p->workers);
    assert(p->head_dim <= DIM_LIMIT);
    assert(((const fig_strips_head *)(const void *)strips)->workers == p->workers);
    for (int32_t i = ranges[block[0]]; i < ranges[block[0] + 1]; i++) {
        for (int32_t number = 0; number < items[i].heads; number++) {
            const fig_strips_item one = fig_strips_of_head(&items[i], number);
            do_item(p, &one);
        }
    }
}
