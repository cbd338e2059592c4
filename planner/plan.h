/* plan.h: the bytes that one step sends to the device.
 *
 *     [head][lengths][positions][sequences][prefix, starts of class 0][prefix, starts of class 1]..
 *
 * Owns their layout in a bucket and the writing of them; the ring owns the slots they are written
 * to. Invariant: the bytes written follow from the bucket's shape and the step alone; sections are
 * the bucket's size, and what lies past a step's rows in them is never written. Read by nvcc. */
#ifndef FIG_PLANNER_PLAN_H
#define FIG_PLANNER_PLAN_H

#include "planner/split.h"

/* `sequence` is 0 in a plan nobody staged; the n-th step staged has n. */
typedef struct fig_plan_head {
    uint64_t sequence;
    uint32_t bytes;  /* used, this head included; a multiple of 16 */
    uint32_t bucket; /* the one it was planned for */
    int32_t rows;
    uint32_t reserved[11];
} fig_plan_head;
static_assert(sizeof(fig_plan_head) == 64, "plan layout");

/* Byte offsets from the head, each a multiple of 16. */
typedef struct fig_plan_layout {
    uint32_t lengths;                 /* [row_limit] */
    uint32_t positions;               /* [row_limit] */
    uint32_t sequences;               /* [row_limit] */
    uint32_t prefix[FIG_CLASS_LIMIT]; /* [row_limit + 1] */
    uint32_t starts[FIG_CLASS_LIMIT]; /* [workers] */
    uint32_t bytes;                   /* of the largest plan: the bound */
} fig_plan_layout;

/* A step with every default filled in. */
typedef struct fig_plan_step {
    int32_t rows;
    const int32_t *lengths;   /* [rows]; NULL: the device knows them, and here all are 0 */
    const int32_t *positions; /* [rows]; NULL: length - 1, and 0 for an idle row */
    const int32_t *sequences; /* [rows]; NULL: row r is sequence r */
    int64_t token_limit;      /* most tokens in all, where lengths is NULL; else unread */
    int32_t bucket;           /* n: the n-th, from 1; 0: the cheapest that fits */
} fig_plan_step;

typedef struct fig_plan_shape {
    uint32_t bucket;
    int32_t row_limit, class_count;
    fig_split_shape splits[FIG_CLASS_LIMIT];
    fig_plan_layout layout;
} fig_plan_shape;

/* Tokens of a row, or 0 where its length is none that every class can serve. */
FIG_BOTH int32_t fig_plan_length(const fig_plan_shape *shape, int32_t kv_limit, int32_t length) {
    if (length < 0 || length > kv_limit) return 0;
    for (int32_t i = 0; i < shape->class_count; i++)
        if (length < shape->splits[i].row_tokens) return 0;
    return length;
}

/* Where a row of this length stands unless the step says it; an idle one at 0. */
FIG_BOTH int32_t fig_plan_last_token(int32_t length) {
    return length > 0 ? length - 1 : 0;
}

/* Fills shape->layout from the rest. */
void fig_plan_lay_out(fig_plan_shape *shape);

/* Writes all of a plan but its sequence number, which the ring publishes last; returns the bytes
 * used. `plan` holds layout.bytes and is 16-byte aligned. O(rows + workers); only writes, since the
 * memory may be slow to read back. */
uint32_t fig_plan_write(const fig_plan_shape *shape, const fig_plan_step *step, uint8_t *plan);
/* The part of it that follows from the lengths: they themselves, positions and the splits.
 * step->lengths may be the plan's own. */
void fig_plan_write_lengths(const fig_plan_shape *shape, const fig_plan_step *step, uint8_t *plan);

#endif
