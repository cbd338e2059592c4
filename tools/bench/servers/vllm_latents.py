"""vllm_latents.py: a model with latent attention (MLA), and what vLLM launches for it.

The model has deepseek_v2's shape, and all of its layers are dense. Invariant: weights are filled
before vLLM splits kv_b_proj, since its parts are no parameters of the model.
"""

import zlib

VOCABULARY, LAYERS = 32000, 3
# Also attention: Triton's kernels, the copy that joins the two parts of q, and zeros that the
# output of Triton's kernels needs.
KERNELS = r"_fwd_grouped_kernel|_fwd_kernel_stage|CatArray|FillFunctor"
# By the first part that occurs in a name. With these weights a head looks at a few tokens.
DEVIATIONS = (("embed", 1.0), ("lm_head", 0.05), ("kv_b_proj", 0.06), ("o_proj", 0.06),
              ("self_attn", 0.04), ("", 0.02))


def config():
    """Returns the model's config.json."""
    return dict(
        architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", torch_dtype="bfloat16",
        hidden_size=2048, intermediate_size=10944, moe_intermediate_size=1408,
        num_hidden_layers=LAYERS, first_k_dense_replace=LAYERS, moe_layer_freq=1,
        n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=2, n_group=1, topk_group=1,
        topk_method="greedy", scoring_func="softmax", norm_topk_prob=False,
        routed_scaling_factor=1.0, num_attention_heads=16, num_key_value_heads=16,
        q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, head_dim=64, hidden_act="silu", vocab_size=VOCABULARY,
        max_position_embeddings=8192, rms_norm_eps=1e-6, rope_theta=10000.0,
        attention_bias=False, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1)


def fill(model):
    import torch

    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            weight.data.fill_(1.0)
            continue
        deviation = next(number for part, number in DEVIATIONS if part in name)
        chance = torch.Generator(weight.device).manual_seed(zlib.crc32(name.encode()))
        weight.data.normal_(0.0, deviation, generator=chance)


def fill_when_loaded():
    """Lets vLLM's loader of dummy weights fill the model as above."""
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

    original = DummyModelLoader.load_weights

    def load_weights(loader, model, model_config):
        original(loader, model, model_config)
        fill(model)

    DummyModelLoader.load_weights = load_weights
