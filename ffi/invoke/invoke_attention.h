/* invoke_attention.h: checks of calls of attention, shared by those over K and V and those over a
 * latent cache. */
#ifndef FIG_FFI_INVOKE_ATTENTION_H
#define FIG_FFI_INVOKE_ATTENTION_H

#include "ffi/invoke/invoke.h"

/* The arrays of a call whose first dims count query tokens, and the arguments that say how many
 * query tokens each row has. */
typedef struct fig_invoke_heads {
    fig_array *q, *out, *lse;
    const fig_array *lengths;
    const fig_invoke_queries *queries;
} fig_invoke_heads;

/* Checks lse, if it is present: it has the dims of q except the last. */
fig_status fig_invoke_attention_check_lse(const fig_array *lse, const fig_array *q);
/* Reads the number of query tokens of a row, and joins dims of rows and of tokens. */
fig_status fig_invoke_attention_take_tokens(fig_invoke *invoke, const fig_invoke_heads *heads);
/* Checks an array that has one f32 for each q head, if it is present, and adds it to the call. */
fig_status fig_invoke_attention_take_per_head(fig_invoke *invoke, fig_slot slot,
                                              const fig_array *array);
/* Converts the number of tokens that a query sees before its own to the number including its own;
 * 0: all. */
int32_t fig_invoke_attention_window(int64_t window_left);

#endif
