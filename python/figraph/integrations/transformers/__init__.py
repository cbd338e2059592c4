"""figraph.integrations.transformers: figraph in models of Hugging Face transformers.

There are three ways to use figraph. All take a model as transformers made it, on a GPU or on the
CPU.

1. A Decoder runs a whole step, from one token to the next, as one CUDA graph. It is the fastest
way. It supports llama, qwen3, gemma2, gemma3_text and gpt_oss:

    from figraph.integrations.transformers import Decoder

    decoder = Decoder(model, rows=8, max_tokens=4096)
    tokens = decoder.generate(inputs.input_ids, inputs.attention_mask, max_new_tokens=256)

choose=Sampler(temperature=0.8, top_p=0.95) draws tokens instead of taking the most probable one.
prompt() and step() are the parts of generate().

>>> import figraph.integrations.transformers as fit
>>> import torch, transformers
>>> config = transformers.LlamaConfig(vocab_size=64, hidden_size=128, intermediate_size=64,
...                                   num_hidden_layers=1, num_attention_heads=2,
...                                   num_key_value_heads=1)
>>> model = transformers.AutoModelForCausalLM.from_config(config).eval()
>>> ids = torch.tensor([[3, 4, 5], [6, 7, 8]])
>>> decoder = fit.Decoder(model, rows=2, max_tokens=16)
>>> tokens = decoder.generate(ids, max_new_tokens=8)

2. attn_implementation="figraph" works for every model whose attention transformers can select by
name. The model's code does not change. figraph computes the attention of single tokens, over any of
HF's caches or over a PagedCache, eagerly or with the whole model compiled:

>>> model.set_attn_implementation("figraph")
>>> cache = fit.PagedCache(model, rows=2, max_tokens=16)
>>> more = model.generate(ids, past_key_values=cache, max_new_tokens=8, do_sample=False)
>>> torch.equal(more[:, 3 : 3 + tokens.shape[1]], tokens)
True

3. use_kernel(model) makes model.generate_batch, which is transformers' continuous batching, call
figraph in place of FlashAttention. It needs the package named kernels. If you cannot change a
program, set the variable LOCAL_KERNELS instead:

    LOCAL_KERNELS=figraph/flash-figraph3=FOLDER    FOLDER is what kernel_folder() returns

docs/transformers.md says which versions this was run with, and what it does not support.
"""

from __future__ import annotations

from .attention import register
from .decoder import Decoder
from .kernel import kernel_folder, use_kernel
from .pages import PagedCache
from .sampling import Sampler, greedy

__all__ = ["Decoder", "PagedCache", "Sampler", "greedy", "kernel_folder", "use_kernel"]

register()
