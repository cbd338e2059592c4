/* layer_name.h: splits a name like "q.7" into a stem and a layer number.
 *
 * Only code that handles tensors by name uses this; nothing that is stored or lowered depends on
 * it. */
#ifndef FIG_GRAPHS_LAYER_NAME_H
#define FIG_GRAPHS_LAYER_NAME_H

#include <stdint.h>

enum { FIG_LAYER_NONE = -1 };

/* "q.7" has a stem of 1 byte and number 7. In a name without a number the stem is the whole
 * name. */
typedef struct fig_layer_name {
    uint32_t stem_bytes;
    int32_t number; /* FIG_LAYER_NONE: the name has none */
} fig_layer_name;
fig_layer_name fig_layer_name_split(const char *name);

#endif
