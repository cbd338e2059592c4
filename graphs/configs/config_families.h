/* config_families.h: describes the model families that a config.json may name. */
#ifndef FIG_GRAPHS_CONFIG_FAMILIES_H
#define FIG_GRAPHS_CONFIG_FAMILIES_H

#include "graphs/configs/config_rope.h"

/* Says which layers have the window if layer_types is absent. */
typedef enum fig_config_layers {
    FIG_CONFIG_NO_LAYERS, /* the family has no window */
    FIG_CONFIG_ALL_LAYERS,
    FIG_CONFIG_UPPER_LAYERS, /* from layer max_window_layers on, if use_sliding_window is true */
    FIG_CONFIG_EVEN_LAYERS,
    FIG_CONFIG_PATTERN_LAYERS, /* all except every sliding_window_pattern-th */
    FIG_CONFIG_LISTED_LAYERS   /* layer_types is required */
} fig_config_layers;

/* Says which layers have no RoPE. */
typedef enum fig_config_plain {
    FIG_CONFIG_NONE_PLAIN,
    /* layers with 0 in no_rope_layers; without that list, every no_rope_layer_interval-th layer */
    FIG_CONFIG_LISTED_PLAIN,
    FIG_CONFIG_FULL_PLAIN /* layers without a window, if the file has a sliding_window */
} fig_config_plain;

/* Says how a step computes the feed-forward's activation. */
typedef enum fig_config_gate {
    FIG_CONFIG_GATED,   /* gated, by the activation that the file names */
    FIG_CONFIG_TANH,    /* the same, but the family's "gelu" is the tanh form */
    FIG_CONFIG_LIMITED, /* swiglu_limited, which the file calls silu */
    FIG_CONFIG_UNGATED  /* without a gate: the caller computes the activation */
} fig_config_gate;

enum { FIG_CONFIG_OWN_LIMIT = 26, FIG_CONFIG_FIXED_LIMIT = 2 };
typedef struct fig_config_family {
    const char *model_type;
    const char *activation; /* the field that names the activation; NULL: hidden_act */
    fig_config_gate gate;
    fig_config_layers sliding;
    int windowless; /* 1: sliding_window may be null, which means no window */
    fig_config_plain plain;
    int qk_norm;  /* 1: each head of q and k has a norm before RoPE, with rms_norm_eps */
    int head_dim; /* 1: head_dim is required; 0: it may follow from hidden_size */
    int kv_heads; /* 1: num_key_value_heads is required; its default is in the family's code */
    fig_config_rope rope;
    int sinks;                   /* 1: each layer has sinks */
    int latent;                  /* 1: attention is latent, and the first layers have no experts */
    fig_dtype dtype;             /* the default; 0: the file must name one */
    const char *width, *experts; /* the fields that give ffn_width and the experts of a token; NULL:
                                    intermediate_size, and no experts */
    const char *logit_scale;     /* the field that gives sm_scale; NULL: none */
    const char *fixed[FIG_CONFIG_FIXED_LIMIT][2]; /* fields that may have only this value */
    const char *own[FIG_CONFIG_OWN_LIMIT]; /* fields that few families have; NULL ends the list */
} fig_config_family;

/* Finds the family of the file's model_type; fails if there is none. */
fig_status fig_config_families_read(const fig_document *config, const fig_config_family **family);
/* Returns 1 if the field is one of the family's `own` fields. */
int fig_config_families_own(const fig_config_family *family, const char *field);

#endif
