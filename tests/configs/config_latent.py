"""Writes tests/configs/latent: small config.json files of the families with latent attention, and
numbers.txt, the results that transformers' own code computes for them in float32.

tests/graphs/configs/test_config_latent.c compares a step with these numbers. Both sides make q
before kv_b_proj, the latents, the norm's weights and kv_b_proj by the same formula.

    python tests/configs/config_latent.py
"""

import json
import pathlib

import torch
import transformers
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

FOLDER = pathlib.Path(__file__).parent / "latent"
TOKENS, SUMS, LAYERS, HEADS, PLAIN, TURNED, VALUES, LATENT = 24, 8, 2, 8, 16, 64, 16, 512
Q, KV, NORM, WEIGHT, SUM = 1, 2, 4, 5, 8


def yarn(**more):
    return {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "original_max_position_embeddings": 16, **more}


SHAPE = dict(hidden_size=64, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
             num_key_value_heads=HEADS, q_lora_rank=None, kv_lora_rank=LATENT,
             qk_nope_head_dim=PLAIN, qk_rope_head_dim=TURNED, v_head_dim=VALUES,
             intermediate_size=96, moe_intermediate_size=32, n_routed_experts=8,
             n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=1, n_group=1,
             topk_group=1, max_position_embeddings=64, vocab_size=128)
MODELS = {
    "deepseek-v3": (v3, transformers.DeepseekV3Config, "deepseek_v3",
                    yarn(mscale=0.707, mscale_all_dim=1.0), {}),
    "deepseek-v3-apart": (v3, transformers.DeepseekV3Config, "deepseek_v3",
                          {"rope_type": "default", "rope_theta": 10000.0},
                          {"rope_interleave": False}),
    "deepseek-v2": (v2, transformers.DeepseekV2Config, "deepseek_v2",
                    yarn(mscale=0.707, mscale_all_dim=0.707), {}),
    "kimi-k2": (v3, transformers.DeepseekV3Config, "kimi_k2",
                yarn(rope_theta=50000.0, beta_fast=1.0, mscale=1.0, mscale_all_dim=1.0), {}),
}


def numbers(kind, layer, token, count):
    """Returns multiples of 2^-23 from -1 to 1."""
    index = torch.arange(count, dtype=torch.int64)
    mask = 0xFFFFFFFF
    mixed = ((kind * 0x9E3779B1) & mask) ^ ((layer * 0x85EBCA6B) & mask) \
        ^ ((token * 0xC2B2AE35) & mask) ^ ((index * 0x27D4EB2F) & mask)
    mixed = ((mixed ^ mixed >> 16) * 0x7FEB352D) & mask
    mixed = ((mixed ^ mixed >> 15) * 0x846CA68B) & mask
    mixed = mixed ^ mixed >> 16
    return ((mixed >> 8).double() / 8388608.0 - 1.0).float()


class Given(torch.nn.Module):
    """A module that returns a given value, whatever its input is."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, _):
        return self.value


def rows(kind, layer, count, factor):
    return torch.stack([factor * numbers(kind, layer, t, count) for t in range(TOKENS)])[None]


def attend(modeling, config, layer):
    name = "DeepseekV3" if modeling is v3 else "DeepseekV2"
    attention = getattr(modeling, name + "Attention")(config, layer_idx=layer).float().eval()
    rotary = getattr(modeling, name + "RotaryEmbedding")(config)
    attention.q_proj = Given(rows(Q, layer, HEADS * (PLAIN + TURNED), 4))
    attention.kv_a_proj_with_mqa = Given(rows(KV, layer, LATENT + TURNED, 1))
    attention.o_proj = torch.nn.Identity()
    width = HEADS * (PLAIN + VALUES)
    weights = [0.25 * numbers(WEIGHT, layer, row, LATENT) for row in range(width)]
    with torch.no_grad():
        attention.kv_b_proj.weight.copy_(torch.stack(weights))
        attention.kv_a_layernorm.weight.copy_(1 + 0.5 * numbers(NORM, layer, 0, LATENT))
        x = torch.zeros(1, TOKENS, 64)
        places = torch.arange(TOKENS)[None]
        mask = torch.full((TOKENS, TOKENS), float("-inf")).triu(1)[None, None]
        return attention(x, position_embeddings=rotary(x, places), attention_mask=mask,
                         past_key_values=None)[0][0]


def sums_of(out, layer):
    out = out.double().flatten()
    return [float(out @ numbers(SUM, layer, s, out.numel()).double()) for s in range(SUMS)]


def main():
    FOLDER.mkdir(exist_ok=True)
    lines = ["# tests/configs/config_latent.py wrote this with transformers %s"
             % transformers.__version__]
    for name, (modeling, maker, model_type, rope, more) in MODELS.items():
        config = maker(**SHAPE, rope_parameters=rope, **more)
        config._attn_implementation = "eager"
        held = {**config.to_dict(), "model_type": model_type, "dtype": "float32"}
        (FOLDER / (name + ".json")).write_text(json.dumps(held, indent=2, sort_keys=True) + "\n")
        for layer in range(LAYERS):
            found = sums_of(attend(modeling, config, layer), layer)
            lines.append("%s out.%d %s" % (name, layer, " ".join("%.7f" % x for x in found)))
    (FOLDER / "numbers.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
