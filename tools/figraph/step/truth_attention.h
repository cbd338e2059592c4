/* truth_attention.h: attention of one query in plain float64, with all that it may meet.
 *
 * Written from figraph.h alone, as truth.h is. Invariant: nothing that a query does not see is
 * read. */
#ifndef TRUTH_ATTENTION_H
#define TRUTH_ATTENTION_H

#include "tools/figraph/step/truth.h"

/* One query head at the last of `length` tokens of a sequence; where a row has several queries,
 * those before its last have shorter lengths. */
typedef struct truth_attention_args {
    truth_rows q;
    truth_cache k, v;
    int64_t row; /* of q */
    int32_t sequence, length;
    int32_t q_head, kv_head, head_dim;
    int32_t window; /* 0: all tokens */
    double sm_scale;
    double soft_cap;         /* 0: none */
    double alibi;            /* of this head */
    double k_scale, v_scale; /* of this kv head; 0: 1 */
    const double *sink;      /* of this head; NULL: none */
} truth_attention_args;

/* With p the softmax's weights: out is the sum of p * v, magnitude that of p * |v|, by which an
 * error is judged, since where v's signs cancel out is small and its error is not. lse is base 2.
 *  */
typedef struct truth_attention_result {
    double out[TRUTH_HEAD_DIM_LIMIT], magnitude[TRUTH_HEAD_DIM_LIMIT]; /* [head_dim] */
    double lse;
} truth_attention_result;
void truth_attention(const truth_attention_args *args, truth_attention_result *result);

#endif
