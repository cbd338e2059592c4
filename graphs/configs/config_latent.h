/* config_latent.h: reads the fields of a config.json that describe latent attention (MLA). */
#ifndef FIG_GRAPHS_CONFIG_LATENT_H
#define FIG_GRAPHS_CONFIG_LATENT_H

#include "graphs/configs/document.h"

/* Reads the heads and the latent. */
fig_status fig_config_latent_read_heads(const fig_document *config, fig_spec *spec);
/* Reads the layers that have no experts; spec->layers, ffn_width and ffn_rows are set. */
fig_status fig_config_latent_read_dense(const fig_document *config, fig_spec *spec);
/* Reads the scale of logits and the order of RoPE's pairs. */
fig_status fig_config_latent_read_logits(const fig_document *config, fig_spec *spec);

#endif
