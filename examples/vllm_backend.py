"""vllm_backend.py: a sketch of figraph.torch behind vLLM's attention backends; it never ran there.

vLLM asks a backend for three classes: what it supports, a builder that makes of each batch what the
layers share, and one implementation a layer, whose forward attends. Those of FlashAttention do all
that is not a decode step, prompts and batches that mix them, and append to the cache; a batch in
which each row has one query goes to figraph, over the same pages:

    pip install figraph, and a package of yours with the entry point
        [project.entry-points."vllm.general_plugins"]
        figraph = "vllm_backend:register"
    vllm serve MODEL --attention-backend CUSTOM

The plan is made by the first layer of a step, where its attention is: so it is part of whatever
graph vLLM captures of that step, and a replay makes it anew of the lengths that are there then.
Nothing is kept from step to step.

What it would take to finish:

- Versions. Names are as vLLM had them in 2026 (vllm/v1/attention/backend.py and
  backends/registry.py there); before 0.14 both were elsewhere, and forward had other arguments.
- The cache. figraph.torch takes keys and values as arrays of their own without gaps, which
  kv_cache.unbind(0) of [2, pages, ...] gives. Some versions lay all layers, or keys beside values,
  into one page (get_kv_cache_stride_order); for those, caches must go through figraph.torch with
  strides, as they do through an engine. An HND layout is layout="hnd".
- Plans by kinds of layers. One plan serves layers that have the same window and heads: here one for
  each window. The builder is one for each group of vLLM's caches, which has one window.
- RoPE and append in the same launch. vLLM turns q and k and appends before forward; its fusion
  passes (fused_rope_kvcache_supported) would let decode_attention do all three.
- Speculation. Rows with several queries (vLLM's uniform batches) need row_tokens, which
  figraph.torch's operators do not have; figraph.DecodeStep and engines do.
- 8-bit caches: k_scale and v_scale of the layer are tensors of one number, as they are here; vLLM
  shows such a cache as uint8, to be viewed as float8_e4m3fn.
- Context parallelism: lse is there (with_lse=True), base 2; vLLM merges natural logarithms.
- Tests: vLLM's own of attention backends, and the first tokens of a model against FlashAttention's.
"""

import dataclasses
from typing import Optional

import figraph.torch as ft
from vllm.v1.attention.backend import AttentionCGSupport
from vllm.v1.attention.backends import flash_attn
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend


@dataclasses.dataclass
class StepPlans:
    """Of one batch in which each row has one query: a plan for each window, made when needed."""

    by_window: dict[int, ft.Plan] = dataclasses.field(default_factory=dict)


class FigraphBuilder(flash_attn.FlashAttentionMetadataBuilder):
    """FlashAttention's metadata, and a place for plans where figraph is to attend."""

    # A graph is captured for rows of one query, or for several queries without figraph.
    _cudagraph_support = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        is_decode = common_attn_metadata.max_query_len == 1 and not made.use_cascade
        made.figraph_plans = StepPlans() if is_decode else None
        return made


class FigraphImpl(flash_attn.FlashAttentionImpl):
    """A layer's attention."""

    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None,
                 sliding_window=None, kv_cache_dtype="auto", logits_soft_cap=None, *more,
                 **options):
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window,
                         kv_cache_dtype, logits_soft_cap, *more, **options)
        self.logits = ft.Logits(scale, logits_soft_cap or 0.0, sliding_window or 0)

    def _plan(self, plans, query, cache, lengths):
        if self.logits.window not in plans.by_window:
            plans.by_window[self.logits.window] = ft.plan(
                lengths, dtype=query.dtype, q_heads=self.num_heads, cache=cache,
                window=self.logits.window)
        return plans.by_window[self.logits.window]

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output,
                output_scale=None, output_block_scale=None):
        """query: [tokens][heads][head_size], padded behind the batch; output likewise."""
        plans: Optional[StepPlans] = getattr(attn_metadata, "figraph_plans", None)
        if plans is None:  # prompts, and vLLM's own trial without metadata
            return super().forward(layer, query, key, value, kv_cache, attn_metadata, output,
                                   output_scale, output_block_scale)
        lengths = attn_metadata.seq_lens
        rows = lengths.shape[0]
        cache = ft.Cache(*kv_cache.unbind(0), attn_metadata.block_table)
        plan = self._plan(plans, query, cache, lengths)
        out = ft.attention(query[:rows], cache, lengths, plan=plan, logits=self.logits,
                           alibi=self.alibi_slopes, sinks=self.sinks)
        output[:rows].view(out.shape).copy_(out)
        return output


class FigraphBackend(flash_attn.FlashAttentionBackend):
    """What vLLM asks first."""

    forward_includes_kv_cache_update = False  # vLLM has it appended before forward

    @staticmethod
    def get_name():
        return "CUSTOM"

    @staticmethod
    def get_impl_cls():
        return FigraphImpl

    @staticmethod
    def get_builder_cls():
        return FigraphBuilder

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype):
        """Until scales and views are passed on, see above."""
        return kv_cache_dtype in (None, "auto", "float16", "bfloat16")


def register():
    """The entry point: vLLM calls it in each of its processes."""
    register_backend(AttentionBackendEnum.CUSTOM, f"{__name__}.FigraphBackend")
