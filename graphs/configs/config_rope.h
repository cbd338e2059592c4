/* config_rope.h: reads the RoPE of a config.json. */
#ifndef FIG_GRAPHS_CONFIG_ROPE_H
#define FIG_GRAPHS_CONFIG_ROPE_H

#include "graphs/configs/document.h"

/* The facts about RoPE that a family states in its code and not in its files. */
typedef struct fig_config_rope {
    int interleaved; /* 1: pairs are neighbours; 0: the first half pairs with the second */
    /* 1: partial_rotary_factor is required, because its default is in the family's code. */
    int partial;
    const char *part;         /* another name for partial_rotary_factor; NULL: none */
    float theta;              /* the default of rope_theta; 0: the file must give it */
    int window;               /* 1: layers with a window ignore the file's scaling */
    const char *window_theta; /* the field with these layers' theta; NULL: all layers' theta */
} fig_config_rope;

/* Reads rope, window_rope and their tables. The spec's head_dim must be set. If kv_limit is not 0,
 * it selects the frequencies for types of scaling that depend on the longest sequence. */
fig_status fig_config_rope_read(const fig_document *config, const fig_config_rope *family,
                                fig_spec *spec);

#endif
