/* config_families.c: describes the model families that a config.json may name.
 *
 * Owns the facts that families state in their code and leave out of their files; config.c owns the
 * meaning of each field. Invariant: a family is listed only if a decode step can compute its
 * attention and its activation exactly. test_config_arithmetic.c compares each family with results
 * of the family's own code. */
#include "graphs/configs/config_families.h"

#include <stdio.h>
#include <string.h>

#include "graphs/configs/config_fields.h"
#include "planner/status.h"

/* Fields that most mixtures of experts have. num_experts and num_local_experts are two spellings of
 * the same field. */
#define EXPERT_FIELDS                                                                              \
    "num_experts_per_tok", "num_experts", "num_local_experts", "output_router_logits",             \
        "router_aux_loss_coef"

/* Fields of DeepSeek's families. Those that this library does not read describe projections, the
 * choice of experts, and layers that predict further tokens. */
#define LATENT_FAMILY                                                                              \
    .latent = 1, .rope = {.interleaved = 1}, .width = "moe_intermediate_size",                     \
    .experts = "num_experts_per_tok", .fixed = {{"moe_layer_freq", "1"}},                          \
    .own = {"kv_lora_rank",                                                                        \
            "q_lora_rank",                                                                         \
            "qk_nope_head_dim",                                                                    \
            "qk_rope_head_dim",                                                                    \
            "qk_head_dim",                                                                         \
            "v_head_dim",                                                                          \
            "rope_interleave",                                                                     \
            "first_k_dense_replace",                                                               \
            "moe_intermediate_size",                                                               \
            "num_experts_per_tok",                                                                 \
            "n_routed_experts",                                                                    \
            "n_shared_experts",                                                                    \
            "n_group",                                                                             \
            "topk_group",                                                                          \
            "topk_method",                                                                         \
            "scoring_func",                                                                        \
            "norm_topk_prob",                                                                      \
            "routed_scaling_factor",                                                               \
            "aux_loss_alpha",                                                                      \
            "seq_aux",                                                                             \
            "ep_size",                                                                             \
            "num_nextn_predict_layers",                                                            \
            "num_mtp_layers",                                                                      \
            "router_aux_loss_coef"}

/* The first llamas were published before rope_theta was a field. */
static const fig_config_family families[] = {
    {.model_type = "llama", .rope = {.theta = 10000.0f}, .fixed = {{"activation", "swiglu"}}},
    {.model_type = "mistral", .sliding = FIG_CONFIG_ALL_LAYERS, .kv_heads = 1},
    {.model_type = "qwen2", .sliding = FIG_CONFIG_UPPER_LAYERS, .kv_heads = 1},
    {.model_type = "qwen3",
     .sliding = FIG_CONFIG_UPPER_LAYERS,
     .qk_norm = 1,
     .head_dim = 1,
     .kv_heads = 1},
    /* The family's first files say "gelu", but the family's code uses the tanh form for those
     * files, too. */
    {.model_type = "gemma",
     .gate = FIG_CONFIG_TANH,
     .head_dim = 1,
     .kv_heads = 1,
     .fixed = {{"hidden_activation", "gelu_pytorch_tanh"}}},
    {.model_type = "gemma2",
     .activation = "hidden_activation",
     .sliding = FIG_CONFIG_EVEN_LAYERS,
     .head_dim = 1,
     .kv_heads = 1,
     .own = {"hidden_activation", "query_pre_attn_scalar", "attn_logit_softcapping",
             "sliding_window_size"}},
    {.model_type = "gemma3_text",
     .activation = "hidden_activation",
     .sliding = FIG_CONFIG_PATTERN_LAYERS,
     .qk_norm = 1,
     .head_dim = 1,
     .kv_heads = 1,
     .rope = {.window = 1, .window_theta = "rope_local_base_freq"},
     .own = {"hidden_activation", "query_pre_attn_scalar", "attn_logit_softcapping",
             "sliding_window_pattern", "rope_local_base_freq"}},
    {.model_type = "granite",
     .kv_heads = 1,
     .logit_scale = "attention_multiplier",
     .own = {"attention_multiplier", "embedding_multiplier", "residual_multiplier",
             "logits_scaling"}},
    {.model_type = "glm", .head_dim = 1, .kv_heads = 1, .rope = {.partial = 1, .interleaved = 1}},
    {.model_type = "glm4", .head_dim = 1, .kv_heads = 1, .rope = {.partial = 1, .interleaved = 1}},
    {.model_type = "phi3",
     .sliding = FIG_CONFIG_ALL_LAYERS,
     .kv_heads = 1,
     .fixed = {{"full_attn_mod", "1"}, {"interpolate_factor", "1"}},
     .own = {"lm_head_bias"}},
    {.model_type = "mixtral",
     .sliding = FIG_CONFIG_ALL_LAYERS,
     .kv_heads = 1,
     .experts = "num_experts_per_tok",
     .own = {EXPERT_FIELDS, "router_jitter_noise"}},
    /* The shared expert has another width, and the caller computes its activation. The files name a
     * window and say that it is not used. */
    {.model_type = "qwen2_moe",
     .kv_heads = 1,
     .width = "moe_intermediate_size",
     .experts = "num_experts_per_tok",
     .own = {EXPERT_FIELDS, "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step",
             "mlp_only_layers", "shared_expert_intermediate_size"}},
    {.model_type = "qwen3_moe",
     .qk_norm = 1,
     .kv_heads = 1,
     .width = "moe_intermediate_size",
     .experts = "num_experts_per_tok",
     .fixed = {{"use_qk_norm", "true"}},
     .own = {EXPERT_FIELDS, "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step",
             "mlp_only_layers"}},
    /* A decoded token has the same position in every section of its RoPE. */
    {.model_type = "qwen2_5_vl_text",
     .sliding = FIG_CONFIG_UPPER_LAYERS,
     .kv_heads = 1,
     .own = {"image_token_id", "video_token_id", "vision_token_id", "vision_start_token_id",
             "vision_end_token_id"}},
    {.model_type = "qwen3_vl_text", .qk_norm = 1, .head_dim = 1, .kv_heads = 1},
    {.model_type = "smollm3",
     .plain = FIG_CONFIG_LISTED_PLAIN,
     .kv_heads = 1,
     .own = {"no_rope_layers", "no_rope_layer_interval"}},
    {.model_type = "cohere2",
     .sliding = FIG_CONFIG_PATTERN_LAYERS,
     .plain = FIG_CONFIG_FULL_PLAIN,
     .kv_heads = 1,
     .rope = {.interleaved = 1, .part = "rotary_pct"},
     .fixed = {{"position_embedding_type", "rope_gptj"},
               {"order_of_interleaved_layers", "local_attn_first"}},
     .own = {"rotary_pct", "sliding_window_pattern", "layer_switch", "logit_scale",
             "use_gated_activation", "use_parallel_block", "use_parallel_embedding",
             "use_embedding_sharing"}},
    /* swiglu_alpha is the factor inside fig_swiglu_limited. */
    {.model_type = "gpt_oss",
     .gate = FIG_CONFIG_LIMITED,
     .sliding = FIG_CONFIG_EVEN_LAYERS,
     .head_dim = 1,
     .kv_heads = 1,
     .sinks = 1,
     .dtype = FIG_BF16,
     .experts = "num_experts_per_tok",
     .fixed = {{"swiglu_alpha", "1.702"}},
     .own = {EXPERT_FIELDS, "experts_per_token", "swiglu_limit", "initial_context_length"}},
    /* clip_qkv bounds q, k and v, and the norms of q and k cover all heads at once. Both come
     * before RoPE, so the caller computes them with the projections. */
    {.model_type = "olmo", .own = {"clip_qkv"}},
    {.model_type = "olmo2", .kv_heads = 1},
    {.model_type = "olmo3",
     .sliding = FIG_CONFIG_LISTED_LAYERS,
     .kv_heads = 1,
     .rope = {.window = 1}},
    {.model_type = "olmoe",
     .experts = "num_experts_per_tok",
     .own = {EXPERT_FIELDS, "clip_qkv", "norm_topk_prob"}},
    {.model_type = "seed_oss", .head_dim = 1, .kv_heads = 1},
    {.model_type = "ernie4_5", .head_dim = 1, .kv_heads = 1, .rope = {.interleaved = 1}},
    {.model_type = "ministral", .sliding = FIG_CONFIG_ALL_LAYERS, .kv_heads = 1},
    /* The activation of arcee is a squared relu of one product: no gate multiplies it. */
    {.model_type = "arcee", .gate = FIG_CONFIG_UNGATED, .kv_heads = 1},
    /* The layers of exaone4 that have no RoPE have norms of q and k, which hold_still() in config.c
     * handles. */
    {.model_type = "exaone4",
     .sliding = FIG_CONFIG_PATTERN_LAYERS,
     .windowless = 1,
     .plain = FIG_CONFIG_FULL_PLAIN,
     .qk_norm = 1,
     .kv_heads = 1,
     .own = {"sliding_window_pattern"}},
    {.model_type = "helium", .head_dim = 1, .kv_heads = 1, .rope = {.interleaved = 1}},
    /* The caller multiplies q and out by the parts of kv_b_proj, and computes the activation of the
     * shared experts. */
    {.model_type = "deepseek_v2", LATENT_FAMILY},
    {.model_type = "deepseek_v3", LATENT_FAMILY},
    {.model_type = "kimi_k2", LATENT_FAMILY},
};
enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

/* The model types that this library refuses, each with the reason. */
static const char *const refused[][2] = {
    {"deepseek_v32", "whose attention reads the tokens that an indexer chooses (DSA), which this "
                     "library does not support"},
    {"llama4", "whose layers see chunks of a sequence, which this library does not support"},
    {"llama4_text", "whose layers see chunks of a sequence, which this library does not support"},
    {"glm4_moe", "whose first layers have no experts, and are wider than the others"},
    {"hunyuan_v1_dense", "whose norms of q and k come after RoPE (query_layernorm, "
                         "key_layernorm), where this library has them before it"},
    {"ministral3", "whose queries are scaled by their positions (llama_4_scaling_beta), which "
                   "this library does not support"}};
enum { REFUSED_COUNT = sizeof refused / sizeof refused[0] };

int fig_config_families_own(const fig_config_family *family, const char *field) {
    for (int i = 0; i < FIG_CONFIG_OWN_LIMIT && family->own[i] != NULL; i++)
        if (strcmp(field, family->own[i]) == 0) return 1;
    return 0;
}

fig_status fig_config_families_read(const fig_document *config, const fig_config_family **family) {
    const char *name;
    char known[512] = "this library has";
    FIG_TRY(fig_document_need_text(config, "model_type", &name));
    for (int i = 0; i < REFUSED_COUNT; i++)
        if (strcmp(name, refused[i][0]) == 0)
            return fig_document_refuse(config, "model_type", FIG_UNSUPPORTED, refused[i][1]);
    for (int i = 0; i < FAMILY_COUNT; i++) {
        *family = &families[i];
        if (strcmp(name, families[i].model_type) == 0) return FIG_OK;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, " %s,", families[i].model_type);
    }
    fig_config_fields_list_image_models(known, sizeof known);
    return fig_document_refuse(config, "model_type", FIG_UNSUPPORTED, known);
}
