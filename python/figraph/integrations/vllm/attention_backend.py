"""attention_backend.py: the three classes of a vLLM attention backend, with attention by figraph.

Each class is derived from the Triton backend's. It adds two paths. One is for rows with few
queries; only the GPU needs to know how many. The other is for prompts and for batches that mix
prompts with other rows; for these the host must know the numbers. Encoders and everything else that
figraph does not support run in Triton's code, over the same packed pages, whose logical shape is
[pages, kv_heads, tokens, 2 * head_size]. Invariant: in a batch that figraph serves, the rows lie
one behind the other, and idle rows come last.
"""

from __future__ import annotations

from typing import Any, ClassVar, Optional, Union

import torch
import vllm.envs as envs
from vllm.logger import init_logger
from vllm.v1.attention.backend import AttentionCGSupport, AttentionType, CommonAttentionMetadata
from vllm.v1.attention.backends.triton_attn import (
    TritonAttentionBackend,
    TritonAttentionImpl,
    TritonAttentionMetadata,
    TritonAttentionMetadataBuilder,
)

from ... import operands
from ... import torch as ft
from .. import paged_decode, prompt_batch
from ..counts import counts

# vLLM's names of cache dtypes that figraph reads. vLLM holds the narrow ones as uint8.
WIDE = ("auto", "float16", "bfloat16")
NARROW = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn}
AnyBatch = Union[paged_decode.Batch, prompt_batch.PromptBatch]
logger = init_logger(__name__)


def row_limit(q_heads: int, kv_heads: int) -> int:
    """Returns the most queries of a row that figraph's decode kernels compute on tensor cores.
    Longer rows are prompts."""
    ratio = max(q_heads // max(kv_heads, 1), 1)
    return max(min(operands.ROW_TOKENS_LIMIT, paged_decode.VECTOR_LIMIT // ratio), 1)


class FigraphMetadataBuilder(TritonAttentionMetadataBuilder):
    """Builds Triton's metadata, and adds the attribute `figraph` to batches that figraph serves."""

    # Triton's class declares support for any batch; this class cannot, because vLLM 0.26 captures
    # its graphs for mixed batches with one query per row.
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH

    @classmethod
    def get_varlen_cudagraph_max_query_len(cls, vllm_config: Any, kv_cache_spec: Any) -> int:
        """Returns the most queries of a row for which one captured graph serves every decode
        batch, as vLLM asks from 0.33 on. The graph reads each row's number of queries on the GPU.
        """
        model, ranks = vllm_config.model_config, vllm_config.parallel_config
        return row_limit(model.get_num_attention_heads(ranks), model.get_num_kv_heads(ranks))

    def build(self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata,
              fast_build: bool = False) -> TritonAttentionMetadata:
        """Builds the metadata of a batch."""
        made: TritonAttentionMetadata = super().build(common_prefix_len, common_attn_metadata,
                                                      fast_build)
        if not self._is_causal(common_prefix_len, common_attn_metadata):
            return made
        if self._is_short(common_attn_metadata):
            made.figraph = self._batch(made, common_attn_metadata)
        elif common_attn_metadata.max_query_len > self._row_limit():
            prompts = self._prompts(made, common_attn_metadata)
            if prompts is not None:
                made.figraph = prompts
        return made

    def build_for_cudagraph_capture(
            self, common_attn_metadata: CommonAttentionMetadata) -> TritonAttentionMetadata:
        """Builds the metadata of a batch that a graph captures. Its replays have other rows, and
        prompts are planned on the host, so Triton takes such a batch if it has prompts."""
        made: TritonAttentionMetadata = super().build_for_cudagraph_capture(common_attn_metadata)
        if isinstance(getattr(made, "figraph", None), prompt_batch.PromptBatch):
            del made.figraph
        return made

    def _prompts(self, made: TritonAttentionMetadata,
                 batch: CommonAttentionMetadata) -> Optional[prompt_batch.PromptBatch]:
        """Returns the rows of a batch with prompts, or None if the host may not know their lengths.
        vLLM has bounds on the host. They are the lengths unless drafts may have been rejected, or
        another builder changed the rows and kept the bounds: local attention cuts rows, so that
        max_seq_len is less than a bound, and static sinks lengthen them."""
        bounds = getattr(batch, "seq_lens_cpu_upper_bound", None)
        if bounds is None or self.vllm_config.speculative_config is not None \
                or getattr(self, "sink_len", 0):
            return None
        starts = batch.query_start_loc_cpu[: batch.num_reqs + 1].tolist()
        lengths = bounds[: batch.num_reqs].tolist()
        counted = [end - first for first, end in zip(starts, starts[1:])]
        if len(lengths) != len(counted) or any(0 < n > length for n, length in
                                               zip(counted, lengths)):
            return None
        longest = max((length for n, length in zip(counted, lengths) if n > 0), default=0)
        if longest > batch.max_seq_len or starts[-1] > batch.num_actual_tokens:
            return None
        return prompt_batch.PromptBatch(starts, lengths, made.block_table, batch.slot_mapping,
                                        deterministic=envs.VLLM_BATCH_INVARIANT)

    def _batch(self, made: TritonAttentionMetadata,
               batch: CommonAttentionMetadata) -> paged_decode.Batch:
        """Returns the rows as figraph takes them. The host knows the numbers of queries only if
        each row has one. Otherwise adaptive verification may have moved drafts from row to row
        on the GPU, or a graph that was captured with equal numbers serves a batch with different
        ones."""
        given: dict[str, Any] = {}
        if batch.max_query_len > 1:
            given = dict(row_tokens=batch.max_query_len, tokens=batch.num_actual_tokens,
                         query_start_loc=batch.query_start_loc[: batch.num_reqs + 1])
        return paged_decode.Batch(made.seq_lens, made.block_table, batch.slot_mapping,
                                  deterministic=envs.VLLM_BATCH_INVARIANT, **given)

    def _is_causal(self, common_prefix_len: int, batch: CommonAttentionMetadata) -> bool:
        """Returns True if each query sees all tokens up to itself, and the rows share no prefix."""
        return (
            batch.causal is True
            and common_prefix_len == 0
            and getattr(batch, "mm_req_doc_ranges", None) is None
            and getattr(batch, "rswa_prefix_lens", None) is None
            and self.vllm_config.model_config.max_model_len <= paged_decode.TOKEN_LIMIT
        )

    def _is_short(self, batch: CommonAttentionMetadata) -> bool:
        """Returns True if each row has few queries: drafts, or the end of a prompt."""
        if batch.max_query_len == 1:
            return batch.num_actual_tokens >= batch.num_reqs
        return batch.max_query_len <= self._row_limit()

    def _row_limit(self) -> int:
        return row_limit(self.num_heads_q, self.num_heads_kv)


class FigraphImpl(TritonAttentionImpl):
    """Computes attention for one layer."""

    supports_dcp = False
    lse_base_on_e = False  # figraph's log-sum-exp is base 2

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int,
                 alibi_slopes: Optional[list[float]], sliding_window: Optional[int],
                 kv_cache_dtype: str, logits_soft_cap: Optional[float] = None,
                 attn_type: str = AttentionType.DECODER,
                 kv_sharing_target_layer_name: Optional[str] = None, **options: Any) -> None:
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window,
                         kv_cache_dtype, logits_soft_cap, attn_type,
                         kv_sharing_target_layer_name, **options)
        self.supports_quant_query_input = False  # figraph's queries are never 8-bit
        self._layer = paged_decode.Layer(
            num_heads, num_kv_heads, head_size,
            ft.Logits(float(scale), float(logits_soft_cap or 0.0), sliding_window or 0))
        self._served: dict[int, bool] = {}  # cached answers, by the query tokens of a row

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        """Stores the sinks again, because vLLM may load weights more than once."""
        super().process_weights_after_loading(act_dtype)
        if self._served and self.sinks is not None:
            self._layer.load(self.alibi_slopes, self.sinks, self.sinks.device)

    def fused_output_quant_supported(self, quant_key: object) -> bool:
        """Returns False, because figraph's output has the type of the queries."""
        return False

    def forward(self, layer: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
                value: torch.Tensor, kv_cache: torch.Tensor,
                attn_metadata: Optional[TritonAttentionMetadata], output: torch.Tensor,
                output_scale: Optional[torch.Tensor] = None,
                output_block_scale: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Computes attention. query and output are [tokens, heads, head_size], with padding behind
        the batch."""
        batch: Optional[AnyBatch] = getattr(attn_metadata, "figraph", None)
        if batch is None or not self._serves(batch.row_tokens, query, kv_cache) \
                or not self._fits(batch, kv_cache.shape[2]):
            return self._pass_on(layer, query, key, value, kv_cache, attn_metadata, output,
                                 output_scale, output_block_scale)
        batch.attend(self._layer, query, self._cache(layer, kv_cache),
                     output.view(-1, self.num_heads, self.head_size),
                     (key, value) if self._stores(key, value) else None)
        return output

    def _pass_on(self, layer: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
                 value: torch.Tensor, kv_cache: torch.Tensor,
                 attn_metadata: Optional[TritonAttentionMetadata], *rest: Any) -> torch.Tensor:
        """Lets Triton append the keys and values, which vLLM leaves to forward(), and then compute
        attention."""
        counts.passed_on += 1
        if attn_metadata is not None and self._stores(key, value):
            slots = attn_metadata.slot_mapping
            if self.attn_type == AttentionType.DECODER:  # cross attention's slots are the encoder's
                slots = slots[: attn_metadata.num_actual_tokens]
            tokens = slots.shape[0]
            self.do_kv_cache_update(layer, key[:tokens], value[:tokens], kv_cache, slots)
        return super().forward(layer, query, key, value, kv_cache, attn_metadata, *rest)

    def _stores(self, key: Optional[torch.Tensor], value: Optional[torch.Tensor]) -> bool:
        """Returns False for a layer that reads the cache of another layer."""
        return (self.kv_sharing_target_layer_name is None and key is not None
                and value is not None)

    # ---- Whether figraph serves the layer --------------------------------------------------------

    def _serves(self, row_tokens: int, query: torch.Tensor, kv_cache: torch.Tensor) -> bool:
        if row_tokens not in self._served:
            if not self._served:
                self._layer.load(self.alibi_slopes, self.sinks, query.device)
            refusal = self._refusal(row_tokens, query, kv_cache)
            self._served[row_tokens] = refusal is None
            if refusal is not None:
                logger.warning_once("figraph leaves layers to Triton: %s", refusal)
        return self._served[row_tokens]

    def _fits(self, batch: AnyBatch, page_size: int) -> bool:
        """Returns False for more rows than a call takes. Prompts have no such limit."""
        if isinstance(batch, prompt_batch.PromptBatch):
            return True
        excess = batch.excess(self._layer, page_size)
        if excess is not None:
            logger.warning_once("figraph leaves batches to Triton: %s", excess)
        return excess is None

    def _refusal(self, row_tokens: int, query: torch.Tensor,
                 kv_cache: torch.Tensor) -> Optional[str]:
        """Returns the reason why figraph cannot serve this layer, or None if it can."""
        if self.attn_type != AttentionType.DECODER:
            return f"attention of type {self.attn_type}"
        if self.kv_cache_dtype not in (*WIDE, *NARROW):
            return f"a cache of {self.kv_cache_dtype}"
        if getattr(self, "use_alibi_sqrt", False) or getattr(self, "chunk_lookback", -1) > -1:
            return "square roots in ALiBi, or chunks that look back"
        if self.alibi_slopes is not None and (self.logits_soft_cap or self.sinks is not None):
            return "ALiBi beside a soft cap or sinks, whose order differs"
        if kv_cache.ndim != 4 or kv_cache.shape[-1] != 2 * self.head_size:
            return (f"a cache of {list(kv_cache.shape)}, it must be "
                    f"[pages, kv_heads, tokens, {2 * self.head_size}]")
        kv_dtype = NARROW.get(self.kv_cache_dtype, kv_cache.dtype)
        if row_tokens == prompt_batch.ANY_NUMBER:
            return prompt_batch.refusal(self._layer, query.dtype, kv_dtype, self._sides(kv_cache))
        return self._layer.refusal(query.dtype, kv_dtype, kv_cache.shape[2], row_tokens,
                                   None if row_tokens == 1 else row_tokens)

    def _sides(self, kv_cache: torch.Tensor) -> ft.Cache:
        """Returns keys and values as two views, [pages, tokens, kv_heads, head_size]."""
        return ft.Cache(*kv_cache.transpose(1, 2).split(self.head_size, dim=-1))

    def _cache(self, layer: torch.nn.Module, kv_cache: torch.Tensor) -> ft.Cache:
        """Returns the cache with its dtype and scales."""
        kind, sides = NARROW.get(self.kv_cache_dtype), self._sides(kv_cache)
        if kind is None:
            return sides
        k, v = sides[:2]
        return ft.Cache(k.view(kind), v.view(kind), None, layer._k_scale, layer._v_scale)


class FigraphBackend(TritonAttentionBackend):
    """The backend class, which vLLM asks for the other classes and for what they support."""

    forward_includes_kv_cache_update: bool = True

    @staticmethod
    def get_name() -> str:
        """Returns the name under which register() registers the backend."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[FigraphImpl]:
        """Returns the class that computes attention."""
        return FigraphImpl

    @staticmethod
    def get_builder_cls() -> type[FigraphMetadataBuilder]:
        """Returns the class that builds the metadata of a batch."""
        return FigraphMetadataBuilder
