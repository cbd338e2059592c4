"""tiny_models.py: makes small transformers models with random weights, and prompts for them."""

import contextlib
import importlib.metadata
import io
import logging

_version = importlib.metadata.version


def _told_version(name):
    """transformers accepts only one minor version of the package kernels, which a package index may
    not have yet. The interface is the same, so the tests use the version that is installed."""
    return KERNELS.get(name) or _version(name)


KERNELS = {}
with contextlib.suppress(importlib.metadata.PackageNotFoundError):
    _version("kernels")
    importlib.metadata.version = _told_version
    # imported before transformers asks for the version of kernels
    from transformers.utils import import_utils

    KERNELS["kernels"] = import_utils.KERNELS_MIN_VERSION

import torch  # noqa: E402
import transformers  # noqa: E402

logging.getLogger("transformers").setLevel(logging.ERROR)
LENGTHS = [1, 2, 7, 33, 64, 129, 300, 512]
NEW = 64
WINDOW = 32
SHAPE = dict(vocab_size=512, hidden_size=128, intermediate_size=192, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=64,
             max_position_embeddings=1024, pad_token_id=0, bos_token_id=1, eos_token_id=2)
WINDOWS = dict(sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"])
SLOWED = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=256)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE, rope_parameters=SLOWED),
    "qwen3": lambda: transformers.Qwen3Config(**SHAPE),
    "gemma2": lambda: transformers.Gemma2Config(**SHAPE, **WINDOWS),
    "gemma3": lambda: transformers.Gemma3TextConfig(**SHAPE, **WINDOWS),
    "gpt_oss": lambda: transformers.GptOssConfig(**SHAPE, **WINDOWS, num_local_experts=8,
                                                 num_experts_per_tok=2),
}


def model_of(family, dtype=torch.float32, device="cpu", **changes):
    """Returns a model that generates varying tokens. With unscaled initial weights, it would only
    repeat the last token of the prompt."""
    torch.manual_seed(1)
    config = CONFIGS[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    with contextlib.redirect_stdout(io.StringIO()):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.data.mul_(3)
        else:
            weight.data.add_(0.2 * torch.randn_like(weight))
        weight.data = weight.data.bfloat16().float()  # so that bf16 holds the same weights exactly
    return model.to(dtype).to(device).eval().requires_grad_(False)


def prompts(lengths, device="cpu"):
    """Returns tokens, padded on the left, and their mask."""
    make = torch.Generator().manual_seed(3)
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, -length:] = torch.randint(3, SHAPE["vocab_size"], (length,), generator=make)
        mask[row, -length:] = 1
    return ids.to(device), mask.to(device)


def generate(model, ids, mask, count=NEW, **options):
    """Returns HF's greedy tokens [rows, count] and the logits of each token."""
    made = model.generate(ids, attention_mask=mask, max_new_tokens=count, do_sample=False,
                          eos_token_id=None, output_logits=True, return_dict_in_generate=True,
                          **options)
    return made.sequences[:, ids.shape[1]:], torch.stack(made.logits)
