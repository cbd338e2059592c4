"""config_arithmetic.py: computes the outputs of small models with the models' own code, for the
tests in C.

Usage: config_arithmetic.py DIRECTORY

It writes a config.json for each family, as transformers saves it, and numbers.txt to DIRECTORY.
These files are committed, so the tests need neither torch nor transformers, which this script
needs. Nothing is random: instead of the projections, a formula that the tests share gives q, k, v,
gate and up for every token. The model's own attention and activation compute the outputs in
float32. Each line of numbers.txt has eight sums over the outputs of one layer.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile

import torch
import transformers

TOKENS, SUMS = 24, 8
Q, K, V, Q_NORM, K_NORM, SINKS, GATE_UP, SUM = range(1, 9)
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
    "vocab_size": 16,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
HEAD = {"head_dim": 64}
BOTH = ["sliding_attention", "full_attention"]
EXPERTS = {"num_experts_per_tok": 2, "num_experts": 4, "moe_intermediate_size": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


def rope(theta: float = 10000.0, **more: object) -> dict:
    """Returns rope_parameters; the type is "default" unless another is given."""
    return {"rope_theta": theta, "rope_type": "default", **more}


LONG = [1.0 + pair / 8 for pair in range(24)]
CASES: dict[str, dict] = {
    "llama": {
        **HEAD,
        "rope_parameters": rope(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=16,
        ),
    },
    "mistral": {**HEAD, "sliding_window": 8},
    "qwen2": {
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 1,
        "rope_parameters": rope(**YARN),
    },
    "qwen3": HEAD,
    "gemma": {**HEAD, "hidden_act": "gelu"},
    "gemma2": {**HEAD, "sliding_window": 8, "query_pre_attn_scalar": 100},
    "gemma3_text": {
        **HEAD,
        "sliding_window": 8,
        "layer_types": BOTH,
        "query_pre_attn_scalar": 100,
        "rope_parameters": {
            "full_attention": rope(1e6, rope_type="linear", factor=8.0),
            "sliding_attention": rope(),
        },
    },
    "granite": {"attention_multiplier": 0.2},
    "glm": HEAD,
    "glm4": HEAD,
    "phi3": {
        "sliding_window": 16,
        "original_max_position_embeddings": 16,
        "rope_parameters": rope(
            rope_type="longrope",
            partial_rotary_factor=0.75,
            short_factor=[1.0] * 24,
            long_factor=LONG,
        ),
    },
    "mixtral": {"num_experts_per_tok": 2, "num_local_experts": 4},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 64},
    "qwen3_moe": {**EXPERTS, **HEAD},
    "qwen2_5_vl": {"rope_parameters": rope(1e6, mrope_section=[8, 12, 12])},
    "qwen3_vl": {
        **HEAD,
        "rope_parameters": rope(5e6, mrope_section=[12, 10, 10], mrope_interleaved=True),
    },
    "smollm3": {"no_rope_layers": [1, 0]},
    "cohere2": {"sliding_window": 8, "layer_types": BOTH},
    "gpt_oss": {
        **HEAD,
        "sliding_window": 8,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": rope(150000.0, **YARN, truncate=False),
    },
    "olmo": {},
    "olmo2": {},
    "olmo3": {
        "sliding_window": 8,
        "layer_types": BOTH,
        "rope_parameters": {
            "full_attention": rope(**YARN),
            "sliding_attention": rope(),
        },
    },
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "seed_oss": HEAD,
    "ernie4_5": HEAD,
    "ministral": {**HEAD, "sliding_window": 8, "layer_types": BOTH},
    "arcee": {**HEAD, "rope_parameters": rope(**YARN)},
    "exaone4": {"sliding_window": 8, "layer_types": BOTH},
    "helium": HEAD,
}
# Families whose config.json has the decoder's fields in an object of their own.
IMAGES = {"qwen2_5_vl", "qwen3_vl"}
# Families with a norm of q and k over all heads at once. It counts as part of the projections, so
# it is replaced by an identity.
WHOLE_NORMS = {"olmo2", "olmo3", "olmoe"}


def numbers(kind: int, layer: int, tokens: int, count: int) -> torch.Tensor:
    """Returns [tokens][count] numbers from -1 to 1. They are multiples of 2^-23, so float32 holds
    them exactly."""
    mask = 0xFFFFFFFF
    token = torch.arange(tokens, dtype=torch.int64)[:, None]
    index = torch.arange(count, dtype=torch.int64)[None, :]
    bits = (kind * 0x9E3779B1 & mask) ^ (layer * 0x85EBCA6B & mask)
    mixed = bits ^ (token * 0xC2B2AE35 & mask) ^ (index * 0x27D4EB2F & mask)
    mixed = (mixed ^ mixed >> 16) * 0x7FEB352D & mask
    mixed = (mixed ^ mixed >> 15) * 0x846CA68B & mask
    mixed = mixed ^ mixed >> 16
    return ((mixed >> 8).double() / 2**23 - 1).float()


class Given(torch.nn.Module):
    """Replaces a projection, and returns a given result."""

    def __init__(self, result: torch.Tensor) -> None:
        super().__init__()
        self.result = result

    def forward(self, *_: object) -> torch.Tensor:
        return self.result[None]


class Taken(torch.nn.Module):
    """Replaces a projection, stores its input, and returns zeros."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.taken = torch.empty(0)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        self.taken = given[0].clone()
        return torch.zeros(*given.shape[:-1], self.width)


class Nothing(torch.nn.Module):
    """Replaces a mixture of experts, which in some families also returns the choice of experts."""

    def __init__(self, is_pair: bool) -> None:
        super().__init__()
        self.is_pair = is_pair

    def forward(self, given: torch.Tensor, *_: object, **__: object):
        made = torch.zeros_like(given)
        return (made, None) if self.is_pair else made


def give_attention(attention: torch.nn.Module, config, layer: int, family: str) -> Taken:
    """Replaces the results of a layer's projections by numbers(). Returns the module that receives
    the layer's output."""
    head_dim = getattr(config, "head_dim", None)
    head_dim = head_dim or config.hidden_size // config.num_attention_heads
    heads = {Q: config.num_attention_heads, K: config.num_key_value_heads}
    q = 4 * numbers(Q, layer, TOKENS, heads[Q] * head_dim)
    k = numbers(K, layer, TOKENS, heads[K] * head_dim)
    v = numbers(V, layer, TOKENS, heads[K] * head_dim)
    if hasattr(attention, "qkv_proj"):
        attention.qkv_proj = Given(torch.cat((q, k, v), -1))
    else:
        attention.q_proj, attention.k_proj, attention.v_proj = Given(q), Given(k), Given(v)
    for kind, name in ((Q_NORM, "q_norm"), (K_NORM, "k_norm")):
        if family in WHOLE_NORMS:
            setattr(attention, name, torch.nn.Identity())
        elif hasattr(attention, name):
            # gemma stores the weights of its norms minus 1.
            least = 0 if family.startswith("gemma") else 1
            weight = least + numbers(kind, layer, 1, head_dim)[0] / 2
            getattr(attention, name).weight = torch.nn.Parameter(weight)
    if hasattr(attention, "sinks"):
        attention.sinks = torch.nn.Parameter(numbers(SINKS, layer, 1, heads[Q])[0])
    taken = Taken(config.hidden_size)
    attention.o_proj = taken
    return taken


def give_ffn(block: torch.nn.Module, config, layer: int, family: str):
    """Does the same for a feed-forward block. Returns a function that returns the activation's
    output, or None if the block has no gate."""
    if hasattr(block, "experts"):
        rows, experts = config.num_experts_per_tok, block.experts
        width = experts.intermediate_dim if hasattr(experts, "intermediate_dim") else 32
        gate_up = numbers(GATE_UP, layer, TOKENS * rows, 2 * width) * 8
        if family == "gpt_oss":
            gate_up = torch.stack(gate_up.chunk(2, -1), -1).flatten(-2)
        made = experts._apply_gate(gate_up)
        return lambda: made.reshape(TOKENS, rows * width)
    width = config.intermediate_size
    gate, up = (numbers(GATE_UP, layer, TOKENS, 2 * width) * 8).chunk(2, -1)
    if not hasattr(block, "gate_proj") and not hasattr(block, "gate_up_proj"):
        return None
    if hasattr(block, "gate_up_proj"):
        block.gate_up_proj = Given(torch.cat((gate, up), -1))
    else:
        block.gate_proj, block.up_proj = Given(gate), Given(up)
    block.down_proj = Taken(config.hidden_size)
    return lambda: block.down_proj.taken


def sums(output: torch.Tensor, layer: int) -> list[float]:
    """Returns eight sums over all tokens' outputs, each weighted by different numbers from the
    formula."""
    flat = output.double().flatten()
    return (numbers(SUM, layer, SUMS, flat.numel()).double() @ flat).tolist()


def run_family(family: str, directory: pathlib.Path) -> list[str]:
    """Writes the family's config.json; returns the lines of its numbers."""
    make = transformers.CONFIG_MAPPING[family]
    fields = {**SHAPE, **CASES[family]}
    config = make(text_config=fields) if family in IMAGES else make(**fields)
    name = family.replace("_", "-")
    with tempfile.TemporaryDirectory() as saved:
        config.save_pretrained(saved)
        text = pathlib.Path(saved, "config.json").read_text()
    (directory / f"{name}.json").write_text(text)
    config = config.get_text_config()
    config._attn_implementation = "eager"
    model = transformers.AutoModel.from_config(config, dtype=torch.float32).eval()
    taken = []
    for number, layer in enumerate(model.layers):
        attention = give_attention(layer.self_attn, config, number, family)
        place = "mlp" if hasattr(layer, "mlp") else "block_sparse_moe"
        block = getattr(layer, place)
        act = give_ffn(block, config, number, family)
        if hasattr(block, "experts"):
            setattr(layer, place, Nothing(family == "gpt_oss"))
        taken.append((attention, act))
    with torch.no_grad():
        model(torch.zeros(1, TOKENS, dtype=torch.int64), use_cache=False)
    lines = []
    for number, (attention, act) in enumerate(taken):
        outputs = {"out": attention.taken, "act": act() if act else None}
        for tensor, output in outputs.items():
            if output is not None:
                found = " ".join(f"{value:.6f}" for value in sums(output, number))
                lines.append(f"{name} {tensor}.{number} {found}")
    return lines


def main() -> int:
    directory = pathlib.Path(sys.argv[1])
    lines = [f"# transformers {transformers.__version__}, tests/configs/config_arithmetic.py"]
    for family in CASES:
        lines += run_family(family, directory)
    (directory / "numbers.txt").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
