/* truth_attention.h: computes attention of one query in plain float64, with every option.
 *
 * The code follows only figraph.h, as truth.h does. Invariant: it reads only tokens that the query
 * sees. */
#ifndef TRUTH_ATTENTION_H
#define TRUTH_ATTENTION_H

#include "tools/figraph/truth/truth.h"

/* A query and a token, for a score. */
typedef struct truth_score_place {
    int32_t q_pos, kv_pos, kv_length, head, kv_head, row;
    const void *context; /* data that the score also reads; NULL: none */
} truth_score_place;

/* One query head at the last of `length` tokens of a sequence. If a row has several queries, each
 * earlier query has a shorter length. */
typedef struct truth_attention_args {
    truth_rows q;
    truth_cache k, v;
    int64_t row; /* the row of q */
    int32_t sequence, length;
    int32_t q_head, kv_head, head_dim;
    int32_t window; /* 0: all tokens */
    double sm_scale;
    double soft_cap;         /* 0: none */
    double alibi;            /* this head's slope */
    double k_scale, v_scale; /* this kv head's scales; 0 counts as 1 */
    const double *sink;      /* this head's sink; NULL: none */
    /* Computes the score of a logit. NULL: the logit is the score. */
    double (*score)(const truth_score_place *place, double logit);
    /* Returns 1 if the query sees a token of the row. NULL: it sees the first `length` tokens. */
    int (*sees)(const truth_score_place *place);
    const void *score_context;   /* the `context` of the place */
    int32_t is_sigmoid;          /* 1: weights are sigmoid(score), without a sum and a sink */
    int32_t step_row, kv_length; /* of the place; kv_length counts later queries of the row, too */
} truth_attention_args;

/* With p the softmax's weights, out is the sum of p * v and magnitude is the sum of p * |v|. The
 * tolerance is relative to magnitude: if the signs of v cancel, out is small but its error is not.
 * slack is the largest change of out that may follow from the rounding of logits to f32 in a
 * kernel: a score may magnify that error, or compare a logit with a number that is closer to it
 * than the error. Without a score, slack is 0. lse is base 2. */
typedef struct truth_attention_result {
    double out[TRUTH_HEAD_DIM_LIMIT], magnitude[TRUTH_HEAD_DIM_LIMIT]; /* [head_dim] */
    double slack[TRUTH_HEAD_DIM_LIMIT];                                /* [head_dim] */
    double lse;
} truth_attention_result;
void truth_attention(const truth_attention_args *args, truth_attention_result *result);

#endif
