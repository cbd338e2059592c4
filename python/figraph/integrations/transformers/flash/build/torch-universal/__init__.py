"""Exports figraph's attention under the names of FlashAttention, for the package `kernels`."""

from figraph.integrations.transformers.kernel import flash_attn_varlen_func, flash_attn_with_kvcache

__all__ = ["flash_attn_varlen_func", "flash_attn_with_kvcache"]
