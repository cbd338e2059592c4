/* config_cache.h: reads how a config.json's quantization_config stores caches. */
#ifndef FIG_GRAPHS_CONFIG_CACHE_H
#define FIG_GRAPHS_CONFIG_CACHE_H

#include "graphs/configs/document.h"

/* Sets kv_dtype and kv_scales if the file says how caches are stored; otherwise leaves both fields
 * unchanged. */
fig_status fig_config_cache_read(const fig_document *config, fig_spec *spec);

#endif
