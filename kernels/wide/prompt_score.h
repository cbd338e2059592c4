/* prompt_score.h: tells attention over chunks with a score the place of a query, and which tokens
 * the query sees.
 *
 * The items of strips hold no row of the plan, and if there is a mask they hold no positions
 * either: all queries of the class then see the whole row, and the mask decides. Both follow from
 * the plan's section of query tokens. The reference kernel and the kernel call the same functions.
 * Invariant: without a mask, a query sees what it sees without a score. Read by nvcc. */
#ifndef FIG_KERNELS_PROMPT_SCORE_H
#define FIG_KERNELS_PROMPT_SCORE_H

#include "kernels/attention/logit.h"
#include "kernels/common/params.h"
#include "planner/plans/strips.h"
#include "planner/scores/mask_value.h"

/* Returns the values of all terms except `score` and `kv_pos` for a query of the item. query: index
 * in the item. */
FIG_BOTH fig_score_inputs fig_prompt_score_inputs(const fig_scored_prompt_params *p,
                                                  const fig_strips_item *item, int32_t query,
                                                  int32_t q_head) {
    const fig_params_query first =
        fig_params_query_of(&p->attention.rows, p->attention.plan, item->query);
    fig_score_inputs inputs;
    inputs.arrays = p->arrays;
    inputs.terms[FIG_SCORE_SCORE] = 0;
    inputs.terms[FIG_SCORE_Q_POS] = (uint32_t)(item->end - first.before_end + query);
    inputs.terms[FIG_SCORE_KV_POS] = 0;
    inputs.terms[FIG_SCORE_KV_LENGTH] = (uint32_t)item->end;
    inputs.terms[FIG_SCORE_HEAD] = (uint32_t)q_head;
    inputs.terms[FIG_SCORE_KV_HEAD] = (uint32_t)item->head;
    inputs.terms[FIG_SCORE_ROW] = (uint32_t)first.row;
    return inputs;
}

/* Returns the tokens that the query with these inputs sees, whatever the score does to them. */
FIG_BOTH fig_mask_sight fig_prompt_score_sight(const fig_scored_prompt_params *p,
                                               const fig_score_inputs *inputs) {
    const int32_t position = (int32_t)inputs->terms[FIG_SCORE_Q_POS];
    const int32_t length = (int32_t)inputs->terms[FIG_SCORE_KV_LENGTH];
    const int32_t window = p->attention.window;
    const int32_t low = window > 0 && position >= window ? position + 1 - window : 0;
    if (p->score.mask_node_count > 0) return fig_mask_value_of(&p->score, inputs, low);
    const fig_mask_sight causal = {low, position + 1,           0,
                                   0,   length - FIG_MASK_BITS, {0xffffffffu, 0xffffffffu}};
    return causal;
}

/* Returns 1 if the score hides a token with this logit, in base 2, from the query. */
FIG_BOTH int fig_prompt_score_hides(const fig_scored_prompt_params *p, float logit) {
    return logit == -INFINITY && !fig_score_value_is_logit(&p->score);
}

/* Returns the logit, in base 2, of a token. product: q.k, scaled. inputs->terms of the token and of
 * the score are changed. */
FIG_BOTH float fig_prompt_score_logit(const fig_scored_prompt_params *p, fig_score_inputs *inputs,
                                      int32_t token, float product) {
    if (fig_score_value_is_logit(&p->score)) return fig_logit_of_score(product, FIG_SCORE_SOFTMAX);
    inputs->terms[FIG_SCORE_KV_POS] = (uint32_t)token;
    inputs->terms[FIG_SCORE_SCORE] = fig_score_value_bits(product);
    return fig_logit_of_score(fig_score_value_of(&p->score, inputs), p->score.weights);
}

/* Returns the factor for the values of a vector that softmax has divided by `weights`. */
FIG_BOTH float fig_prompt_score_factor(const fig_scored_prompt_params *p, float greatest,
                                       float weights) {
    return p->score.weights == FIG_SCORE_SOFTMAX ? 1.0f : weights * exp2f(greatest);
}

#endif
