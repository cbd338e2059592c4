/* split_classes.c: groups the attention nodes of a program that are split alike.
 *
 * The kernel table says which operands of a node are the q and the cache. A split divides the
 * cache, so kv heads and visible tokens decide the class. Invariant: if nodes of a class differ in
 * q heads, head_dim or dtype, the class holds the maximum of each. */
#include "graphs/lower/split_classes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "graphs/view/score_units.h"
#include "kernels/attention/geometry.h"
#include "kernels/attention/many.h"
#include "kernels/latent/latent.h"
#include "kernels/wide/wide.h"
#include "planner/scores/mask_lines.h"
#include "planner/size.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

static int32_t max_of(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* Returns the largest number of queries of a row that is not a chunk. In a packed program, the
 * tensor q has one row per query token. */
static int32_t row_tokens_of(const fig_program_view *view, const fig_tensor_record *q) {
    return q->symbol == FIG_SYMBOL_QUERIES ? fig_program_view_narrow_tokens(view)
                                           : (int32_t)q->dims[0];
}

/* needs: those needs that follow from q alone */
static int may_be_short(const fig_tensor_record *q, const fig_tensor_record *cache,
                        const fig_split_class *needs, int is_dense) {
    if (needs->is_packed) return 0;
    const fig_geometry_rows rows = {.dtype = (int32_t)q->dtype,
                                    .kv_dtype = (int32_t)cache->dtype,
                                    .head_dim = (int32_t)q->dims[2],
                                    .row_tokens = needs->row_tokens,
                                    .ratio = (int32_t)(q->dims[1] / cache->dims[2]),
                                    .page_size = is_dense ? 0 : (int32_t)cache->dims[1]};
    return fig_geometry_short_refuses(&rows) == NULL;
}

/* Returns 1 if the node has the operand of that name. */
static int has_operand(const fig_program_view *view, const fig_node *node, const char *name) {
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    for (uint32_t i = 0; i < kernel->operand_count; i++)
        if (kernel->operands[i].name != NULL && strcmp(kernel->operands[i].name, name) == 0)
            return fig_program_view_operand(view, node, i) != 0;
    return 0;
}

/* Returns 1 if the family `many` serves the node on a GPU of compute capability 9.0, as far as its
 * tensors and not their places decide that. */
static int is_many(const fig_program_view *view, const fig_node *node, const fig_split_class *needs,
                   int is_dense) {
    const fig_split_row *split = fig_kernel_table[node->op].split;
    const fig_tensor_record *q = fig_program_view_tensor(view, node, split->q);
    const fig_tensor_record *cache = fig_program_view_tensor(view, node, split->k_cache);
    const int32_t vectors = needs->q_heads / needs->kv_heads * needs->row_tokens;
    if (q->dtype != cache->dtype || (q->dtype != FIG_F16 && q->dtype != FIG_BF16)) return 0;
    if (fig_kernel_table[node->op].has_score || has_operand(view, node, "alibi")) return 0;
    if (!is_dense && cache->dims[1] % FIG_GEOMETRY_TOKENS != 0) return 0;
    return fig_many_serves(needs->value_bytes, needs->head_dim, vectors);
}

/* Returns 1 if workers can read several heads at once. Beside chunks most rows have one query
 * token, and such workers read those sooner than the family `many`. */
static int reads_heads(const fig_split_class *needs) {
    return fig_geometry_heads(needs->q_heads / needs->kv_heads * needs->row_tokens) > 1;
}

/* Completes the needs of a node whose heads share a latent cache. needs: those needs that follow
 * from the node alone. */
static fig_split_class latent_needs_of(const fig_tensor_record *cache, fig_split_class needs) {
    needs.kv_heads = needs.q_heads / fig_latent_least_heads(needs.q_heads, needs.row_tokens);
    needs.head_dim = FIG_LATENT_DIM;
    needs.latent_bytes = (int32_t)cache->dims[2] * needs.value_bytes;
    return needs;
}

/* Returns 1 if the node's chunks run on warpgroups on a GPU of compute capability 9.0, as far as
 * its tensors and not their places decide that. */
static int is_wide(const fig_program_view *view, const fig_node *node,
                   const fig_split_class *needs) {
    const fig_split_row *split = fig_kernel_table[node->op].split;
    const fig_tensor_record *q = fig_program_view_tensor(view, node, split->q);
    const fig_tensor_record *cache = fig_program_view_tensor(view, node, split->k_cache);
    if (!fig_program_view_has_chunks(view) || fig_kernel_table[node->op].has_score) return 0;
    if (q->dtype != cache->dtype || (q->dtype != FIG_F16 && q->dtype != FIG_BF16)) return 0;
    return fig_wide_has(needs->head_dim) && !has_operand(view, node, "alibi") &&
           !has_operand(view, node, "k_scale") && !has_operand(view, node, "v_scale") &&
           fig_program_view_operand(view, node, split->table) != 0;
}

/* Returns the page table through which rows may share tokens (see fig_split_class), or 0. Only
 * warpgroup kernels gain by sharing: the plain kernels would multiply a shared token as often as
 * without groups. */
static uint32_t shared_table_of(const fig_program_view *view, const fig_node *node,
                                const fig_split_class *needs) {
    if (!is_wide(view, node, needs) || needs->window > 0) return 0;
    return fig_program_view_operand(view, node, fig_kernel_table[node->op].split->table);
}

/* Returns fig_split_class.mask of a node whose mask the planner may know. */
static uint32_t mask_of(const fig_program_view *view, const fig_node *node) {
    const uint32_t number = fig_score_units_of(view, node);
    fig_score_code code, ranges;
    if (number == 0) return 0;
    fig_score_units_code(view, number, &code);
    return fig_mask_lines_ranges(&code, &ranges) != 0 ? fig_score_units_mask(view, number) : 0;
}

/* Returns fig_split_class.is_masked of a node. */
static int32_t is_masked(const fig_program_view *view, const fig_node *node) {
    const uint32_t number = fig_score_units_of(view, node);
    fig_score_code code;
    if (number == 0 || !fig_program_view_has_chunks(view)) return 0;
    fig_score_units_code(view, number, &code);
    return code.mask_node_count > 0;
}

/* How to look at a program: for any step, or as if there were only steps of a form. */
typedef struct looking {
    int32_t knows_masks;
    fig_bucket_form at; /* FIG_FORM_ANY, FIG_FORM_ONES or FIG_FORM_DRAFTS */
} looking;

/* Returns the needs of a single split node. */
static fig_split_class needs_of(const fig_program_view *view, const fig_node *node,
                                const looking *how) {
    const fig_split_row *split = fig_kernel_table[node->op].split;
    const fig_tensor_record *q = fig_program_view_tensor(view, node, split->q);
    const fig_tensor_record *cache = fig_program_view_tensor(view, node, split->k_cache);
    const int is_dense = fig_program_view_operand(view, node, split->table) == 0;
    fig_split_class needs = {.row_tokens = how->at == FIG_FORM_ONES ? 1 : row_tokens_of(view, q),
                             .is_packed =
                                 q->symbol == FIG_SYMBOL_QUERIES && how->at != FIG_FORM_ONES,
                             .q_heads = (int32_t)q->dims[1],
                             .head_dim = (int32_t)q->dims[2],
                             .value_bytes = (int32_t)fig_program_view_dtype_bytes(cache->dtype)};
    fig_program_view_attributes(view, node, split->window, &needs.window, sizeof needs.window);
    if (split->v_in_k) return latent_needs_of(cache, needs);
    needs.kv_heads = (int32_t)cache->dims[2];
    needs.may_be_short =
        !fig_kernel_table[node->op].has_score && may_be_short(q, cache, &needs, is_dense);
    const int beside_chunks = fig_program_view_has_chunks(view) && how->at == FIG_FORM_ANY;
    needs.is_many =
        is_many(view, node, &needs, is_dense) && !(beside_chunks && reads_heads(&needs));
    needs.shared_table = shared_table_of(view, node, &needs);
    needs.is_masked = is_masked(view, node);
    needs.may_divide = is_wide(view, node, &needs) && cache->dims[1] % FIG_GEOMETRY_TOKENS == 0;
    if (how->knows_masks) needs.mask = mask_of(view, node);
    return needs;
}

static int same_class(const fig_program_view *view, const fig_split_class *a,
                      const fig_split_class *b) {
    if ((fig_program_view_has_chunks(view) || a->mask != 0) &&
        (a->q_heads != b->q_heads || a->head_dim != b->head_dim))
        return 0;
    return a->kv_heads == b->kv_heads && a->window == b->window && a->row_tokens == b->row_tokens &&
           a->latent_bytes == b->latent_bytes && a->mask == b->mask && a->is_masked == b->is_masked;
}

uint32_t fig_split_classes_index(const fig_split_classes *classes, const fig_program_view *view,
                                 const fig_node *node) {
    if (!fig_program_view_is_split(view, node)) return UINT32_MAX;
    const fig_split_class needs =
        needs_of(view, node, &(looking){classes->knows_masks, FIG_FORM_ANY});
    for (int32_t i = 0; i < classes->count; i++) {
        if (same_class(view, &classes->of[i], &needs)) return (uint32_t)i;
    }
    return UINT32_MAX;
}

/* Refuses node n, whose class would be one too many. The sentence tells what makes a class. It need
 * not tell masks that the planner knows: with too many classes, masks make none. */
static fig_status refuse(const fig_program_view *view, uint32_t n, const fig_split_class *needs) {
    char latents[48] = "";
    if (needs->latent_bytes > 0)
        snprintf(latents, sizeof latents, ", latents of %" PRId32 " bytes", needs->latent_bytes);
    return fig_fail(FIG_UNSUPPORTED,
                    "node %u (%s): %" PRId32 " kv heads, window %" PRId32 "%s%s and %" PRId32
                    " tokens of a row need one class more than the limit of %d",
                    n, fig_table_op_name(view->nodes[n].op), needs->kv_heads, needs->window,
                    latents, needs->is_masked ? ", a mask" : "", needs->row_tokens,
                    FIG_CLASS_LIMIT);
}

/* Raises the needs of a class to those of one more node. */
static void add_needs(fig_split_class *most, const fig_split_class *needs) {
    most->q_heads = max_of(most->q_heads, needs->q_heads);
    most->head_dim = max_of(most->head_dim, needs->head_dim);
    most->value_bytes = max_of(most->value_bytes, needs->value_bytes);
    most->is_packed &= needs->is_packed;
    most->may_be_short &= needs->may_be_short;
    most->is_many &= needs->is_many;
    most->may_divide &= needs->may_divide;
    if (most->shared_table != needs->shared_table) most->shared_table = 0;
}

static fig_status find(const fig_program_view *view, int32_t knows_masks,
                       fig_split_classes *classes) {
    classes->count = 0;
    classes->knows_masks = knows_masks;
    classes->has_chunks = fig_program_view_has_chunks(view);
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        if (!fig_program_view_is_split(view, node)) continue;
        const fig_split_class needs = needs_of(view, node, &(looking){knows_masks, FIG_FORM_ANY});
        const fig_split_class at_ones =
            needs_of(view, node, &(looking){knows_masks, FIG_FORM_ONES});
        const fig_split_class at_drafts =
            needs_of(view, node, &(looking){knows_masks, FIG_FORM_DRAFTS});
        const uint32_t index = fig_split_classes_index(classes, view, node);
        if (index == UINT32_MAX) {
            if (classes->count == FIG_CLASS_LIMIT) return refuse(view, n, &needs);
            classes->ones[classes->count] = at_ones;
            classes->drafts[classes->count] = at_drafts;
            classes->of[classes->count++] = needs;
            continue;
        }
        add_needs(&classes->of[index], &needs);
        add_needs(&classes->ones[index], &at_ones);
        add_needs(&classes->drafts[index], &at_drafts);
    }
    return FIG_OK;
}

fig_status fig_split_classes_find(const fig_program_view *view, fig_split_classes *classes) {
    const int32_t may_know =
        fig_score_units_count(view) > 0 && !fig_program_view_reads_lengths(view);
    if (may_know && find(view, 1, classes) == FIG_OK) return FIG_OK;
    return find(view, 0, classes);
}

int32_t fig_split_classes_heads(const fig_split_class *split_class, int32_t most) {
    if (split_class->latent_bytes > 0) return 1;
    int32_t heads = fig_size_min(split_class->kv_heads, most);
    while (split_class->kv_heads % heads != 0)
        heads--;
    return heads;
}
