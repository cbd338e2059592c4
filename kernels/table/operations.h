/* operations.h: lists the operations and the kernel families of each.
 *
 * C sources and images.S include this list, and the Makefile reads it line by line, so it holds
 * only macros. The other properties of an operation are in its row, in rows.h. Invariant: numbers
 * never change, because files store them; the families of an operation are tried in this order,
 * and the last one serves every launch. */
#ifndef FIG_KERNELS_OPERATIONS_H
#define FIG_KERNELS_OPERATIONS_H

/* Calls OPERATION(number, OP, name, reference kernel, check, families) for each operation;
 * `families` is FAMILY(OP, KIND, kind, file, PATHS) for each of its families. A file that uses the
 * list defines both macros, and those of the words below that it needs:
 *   reference kernel   fig_<reference kernel>_reference runs one block on the host
 *   check   CHECKED(f): a program records it, and fig_operation_<f> checks its tensors;
 *           FREE: a program records it, and its row holds all its requirements;
 *           NO_NODE: no program records it; an engine or a run adds its launch itself
 *   file    kernels/<file>.cu holds the entries of the family; one family per line
 *   PATHS   ALL: every path has an image of it; HOPPER: only 9.0 has one; TEXT_ALL, TEXT_HOPPER:
 *           the paths have a template in place of an image, see images.h */
/* clang-format off */
#define FIG_OPERATIONS(OPERATION, FAMILY)                                                          \
    OPERATION(0, FETCH, fetch, fetch, NO_NODE,                                                     \
        FAMILY(FETCH, GENERAL, general, fetch, ALL))                                               \
    OPERATION(1, GATED, gated, gated, CHECKED(rows_check_gated),                                   \
        FAMILY(GATED, GENERAL, general, gated, ALL))                                               \
    OPERATION(2, ROPE, rope, rope, CHECKED(rope_check),                                            \
        FAMILY(ROPE, GENERAL, general, rope, ALL))                                                 \
    OPERATION(3, APPEND_KV, append_kv, append_kv, CHECKED(attention_check_append),                 \
        FAMILY(APPEND_KV, GENERAL, general, append_kv, ALL))                                       \
    OPERATION(4, ATTENTION, attention, attention, CHECKED(attention_check),                        \
        FAMILY(ATTENTION, SHORT_TURN, short_turn, attention_short_turn, HOPPER)                    \
        FAMILY(ATTENTION, TURN, turn, attention_turn, HOPPER)                                      \
        FAMILY(ATTENTION, SHORT, short, attention_short, HOPPER)                                   \
        FAMILY(ATTENTION, MANY, many, attention_many, HOPPER)                                      \
        FAMILY(ATTENTION, PACKED, packed, attention_packed, HOPPER)                                \
        FAMILY(ATTENTION, BULK, bulk, attention_bulk, HOPPER)                                      \
        FAMILY(ATTENTION, COPY, copy, attention_copy, ALL)                                         \
        FAMILY(ATTENTION, SCALAR, scalar, attention, ALL))                                         \
    OPERATION(5, PLAN, plan, planning, CHECKED(rows_check_plan),                                   \
        FAMILY(PLAN, GENERAL, general, planning, ALL))                                             \
    OPERATION(6, RMS_NORM, rms_norm, rms_norm, CHECKED(rows_check_norm),                           \
        FAMILY(RMS_NORM, GENERAL, general, rms_norm, ALL))                                         \
    OPERATION(7, MERGE_STATES, merge_states, merge_states, CHECKED(attention_check_merge),         \
        FAMILY(MERGE_STATES, GENERAL, general, merge_states, ALL))                                 \
    OPERATION(8, LOOK_AHEAD, look_ahead, look_ahead, NO_NODE,                                      \
        FAMILY(LOOK_AHEAD, GENERAL, general, look_ahead, ALL))                                     \
    OPERATION(9, CEILING, ceiling, ceiling, NO_NODE,                                               \
        FAMILY(CEILING, GENERAL, general, ceiling, ALL))                                           \
    OPERATION(10, DECODE_ATTENTION, decode_attention, decode_attention,                            \
              CHECKED(attention_check_decode),                                                     \
        FAMILY(DECODE_ATTENTION, STILL, still, decode_attention_still, HOPPER)                     \
        FAMILY(DECODE_ATTENTION, LONG, long, decode_attention_long, ALL)                           \
        FAMILY(DECODE_ATTENTION, GENERAL, general, decode_attention, ALL))                         \
    OPERATION(11, ALL_REDUCE, all_reduce, all_reduce, CHECKED(rows_check_all_reduce),              \
        FAMILY(ALL_REDUCE, NCCL, nccl, all_reduce_nccl, ALL)                                       \
        FAMILY(ALL_REDUCE, TWO_SHOT, two_shot, all_reduce_two_shot, ALL)                           \
        FAMILY(ALL_REDUCE, ONE_SHOT, one_shot, all_reduce, ALL))                                   \
    OPERATION(12, ALL_GATHER, all_gather, all_gather, CHECKED(rows_check_all_gather),              \
        FAMILY(ALL_GATHER, NCCL, nccl, all_gather_nccl, ALL)                                       \
        FAMILY(ALL_GATHER, ONE_SHOT, one_shot, all_gather, ALL))                                   \
    OPERATION(13, WHOLE_ATTENTION, whole_attention, whole_attention, NO_NODE,                      \
        FAMILY(WHOLE_ATTENTION, GENERAL, general, whole_attention, HOPPER))                        \
    OPERATION(14, PROMPT_ATTENTION, prompt_attention, prompt_attention, NO_NODE,                   \
        FAMILY(PROMPT_ATTENTION, WIDE, wide, wide_attention, HOPPER)                               \
        FAMILY(PROMPT_ATTENTION, PLAIN, plain, prompt_attention, ALL))                             \
    OPERATION(15, LATENT_ATTENTION, latent_attention, latent_attention,                            \
              CHECKED(latent_check),                                                               \
        FAMILY(LATENT_ATTENTION, SHORT, short, latent_short, HOPPER)                               \
        FAMILY(LATENT_ATTENTION, NARROW, narrow, latent_narrow, HOPPER)                            \
        FAMILY(LATENT_ATTENTION, WIDE, wide, latent_wide, HOPPER)                                  \
        FAMILY(LATENT_ATTENTION, PAIR, pair, latent_pair, HOPPER)                                  \
        FAMILY(LATENT_ATTENTION, CODES, codes, latent_codes, HOPPER)                               \
        FAMILY(LATENT_ATTENTION, PLAIN, plain, latent_attention, ALL))                             \
    OPERATION(16, LATENT_DECODE, latent_decode, latent_decode, CHECKED(latent_check_decode),       \
        FAMILY(LATENT_DECODE, GENERAL, general, latent_decode, ALL))                               \
    OPERATION(17, SCORED_ATTENTION, scored_attention, attention, CHECKED(scored_check),            \
        FAMILY(SCORED_ATTENTION, BULK, bulk, scored_bulk, TEXT_HOPPER)                             \
        FAMILY(SCORED_ATTENTION, COPY, copy, scored_copy, TEXT_ALL)                                \
        FAMILY(SCORED_ATTENTION, PLAIN, plain, scored_attention, ALL))                             \
    OPERATION(18, SCORED_PROMPT, scored_prompt, prompt_attention, NO_NODE,                         \
        FAMILY(SCORED_PROMPT, PLAIN, plain, scored_prompt, ALL))
/* clang-format on */

#endif
