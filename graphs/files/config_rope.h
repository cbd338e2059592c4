/* config_rope.h: how heads turn, as a config.json has it. */
#ifndef FIG_GRAPHS_CONFIG_ROPE_H
#define FIG_GRAPHS_CONFIG_ROPE_H

#include "graphs/files/document.h"

/* What a family of models says in code, not in its files. */
typedef struct fig_config_rope {
    int interleaved;          /* 1: neighbours turn, not halves */
    int partial;              /* 1: partial_rotary_factor must be given: absent it would be a number
                                of the family's code */
    const char *part;         /* another name of partial_rotary_factor; NULL: there is none */
    float theta;              /* where the file says none; 0: it must */
    int window;               /* 1: layers that have the window turn without the file's scaling */
    const char *window_theta; /* the field of their theta; NULL: that of all */
} fig_config_rope;

/* rope, window_rope and their tables. spec: head_dim is there and, where it is not 0, kv_limit,
 * which chooses among frequencies where a kind of scaling has them by the longest sequence. */
fig_status fig_config_rope_read(const fig_document *config, const fig_config_rope *family,
                                fig_spec *spec);

#endif
