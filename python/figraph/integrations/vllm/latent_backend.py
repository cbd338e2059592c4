"""latent_backend.py: the three classes of a vLLM backend for latent attention (MLA), with decode
steps by figraph.

Each class is derived from the one that vLLM's own MLA backends share. vLLM multiplies q and the
output by the two parts of kv_b_proj, appends the tokens, and computes prompts; figraph computes
attention of rows with few queries, over pages [pages, tokens, 576]. The shared classes compute no
such attention, so there is nothing to fall back on, and what figraph does not support is refused
while vLLM starts. Invariant: in the part of a batch that figraph serves, the rows lie one behind
the other, and idle rows come last.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Optional, Union

import torch
import vllm.envs as envs
from vllm.model_executor.layers.attention.mla_attention import (
    MLACommonBackend,
    MLACommonDecodeMetadata,
    MLACommonImpl,
    MLACommonMetadata,
    MLACommonMetadataBuilder,
    QueryLenSupport,
)
from vllm.v1.attention.backend import (
    AttentionCGSupport,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)

from ...operands import ROWS_LIMIT
from .. import latent_decode
from ..paged_decode import TOKEN_LIMIT

# vLLM's names of cache dtypes that figraph reads. CODES has 656 bytes for each token.
WIDE = {"auto": None, "float16": torch.float16, "bfloat16": torch.bfloat16}
CODES = "fp8_ds_mla"
PAGE_UNIT = 16  # tokens; over other pages the kernels for 9.0 fall back to slow ones


def refuse(reason: str) -> NoReturn:
    """Raises. vLLM prints the message when it stops."""
    raise NotImplementedError(f"figraph's backend for MLA does not take {reason}")


class FigraphLatentMetadataBuilder(MLACommonMetadataBuilder):
    """Builds the metadata that vLLM's MLA backends share, and adds the attribute `figraph` to its
    part for decode."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH
    query_len_support: ClassVar[QueryLenSupport] = QueryLenSupport.VARLEN
    # The most queries of a row that goes to figraph. The row may be the last tokens of a prompt.
    reorder_batch_threshold: int = latent_decode.ROW_LIMIT

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any,
                 device: torch.device, **options: Any) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device, **options)
        if self.reorder_batch_threshold > latent_decode.ROW_LIMIT:  # vLLM raises it for drafts
            refuse(f"rows of {self.reorder_batch_threshold} queries, limit "
                   f"{latent_decode.ROW_LIMIT}: choose fewer speculative tokens")
        longest = self.model_config.max_model_len
        if longest > TOKEN_LIMIT:
            refuse(f"a context of {longest} tokens, limit {TOKEN_LIMIT}: choose a smaller "
                   "max_model_len")
        rows = vllm_config.scheduler_config.max_num_seqs
        if rows > ROWS_LIMIT:
            refuse(f"batches of {rows} rows, limit {ROWS_LIMIT}: lower max_num_seqs")

    @classmethod
    def get_varlen_cudagraph_max_query_len(cls, vllm_config: Any, kv_cache_spec: Any) -> int:
        """Returns the most queries of a row for which one captured graph serves every decode
        batch, as vLLM asks from 0.33 on. The graph reads each row's number of queries on the GPU.
        """
        return latent_decode.ROW_LIMIT

    def build(self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata,
              fast_build: bool = False) -> MLACommonMetadata:
        """Builds the metadata of a batch."""
        if common_attn_metadata.causal is not True:
            refuse("queries that see later tokens")
        made: MLACommonMetadata = super().build(common_prefix_len, common_attn_metadata,
                                                fast_build)
        if made.decode is not None:
            made.decode.figraph = self._batch(made, made.decode, common_attn_metadata)
        return made

    def _batch(self, made: MLACommonMetadata, decode: MLACommonDecodeMetadata,
               batch: CommonAttentionMetadata) -> latent_decode.LatentBatch:
        """Returns the rows that decode as figraph takes them. If a row may have several queries,
        the GPU has the numbers, because the host may know only a bound: a graph that was captured
        with equal numbers serves batches with different ones."""
        longest, tokens = self._longest(made, batch), made.num_decode_tokens
        given: dict[str, Any] = {}
        if longest > 1 or tokens != made.num_decodes:
            given = dict(row_tokens=longest, tokens=tokens,
                         query_start_loc=batch.query_start_loc[: made.num_decodes + 1])
        return latent_decode.LatentBatch(decode.seq_lens, decode.block_table, made.slot_mapping,
                                         deterministic=envs.VLLM_BATCH_INVARIANT, **given)

    def _longest(self, made: MLACommonMetadata, batch: CommonAttentionMetadata) -> int:
        """Returns a bound of the queries of a row that decodes, because figraph is faster with a
        small one. Beside prompts, vLLM's bound is that of the prompts. vLLM captures no such
        batches, so without drafts the numbers on the host are those of the batch."""
        longest = min(batch.max_query_len, latent_decode.ROW_LIMIT)
        if made.num_prefills > 0 and self.vllm_config.speculative_config is None:
            starts = batch.query_start_loc_cpu[: made.num_decodes + 1]
            longest = min(longest, int((starts[1:] - starts[:-1]).max()))
        return longest


class FigraphLatentImpl(MLACommonImpl):
    """Computes attention for one layer."""

    can_return_lse_for_decode = True
    lse_base_on_e = False  # figraph's log-sum-exp is base 2
    supports_dcp = False
    supports_pcp = False

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int,
                 alibi_slopes: Optional[list[float]], sliding_window: Optional[int],
                 kv_cache_dtype: str, logits_soft_cap: Optional[float], attn_type: str,
                 kv_sharing_target_layer_name: Optional[str], **mla_args: Any) -> None:
        parts = self.dcp_world_size * self.pcp_world_size  # vLLM 0.26 forgets them in __init__
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window,
                         kv_cache_dtype, logits_soft_cap, attn_type,
                         kv_sharing_target_layer_name, **mla_args)
        self.supports_quant_query_input = False  # figraph's queries are never 8-bit
        if parts > 1:
            refuse("context parallelism")
        if attn_type != AttentionType.DECODER:
            refuse(f"attention of type {attn_type}")
        if alibi_slopes is not None or sliding_window is not None or logits_soft_cap:
            refuse("ALiBi, windows or soft caps")
        if self.indexer is not None:
            refuse("tokens that an indexer chooses (DSA)")
        if kv_cache_dtype not in (*WIDE, CODES):
            refuse(f"a cache of {kv_cache_dtype}")
        reason = latent_decode.refusal(num_heads, self.kv_lora_rank, self.qk_rope_head_dim)
        if reason is not None:
            refuse(reason)
        self._layer = latent_decode.layer_of(num_heads, self.scale)

    def forward_mqa(self, q: Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]],
                    kv_c_and_k_pe_cache: torch.Tensor, attn_metadata: MLACommonMetadata,
                    layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns attention of the rows that decode, [tokens, heads, 512], and its log-sum-exp,
        [tokens, heads]. q is [tokens, heads, 576], or its first 512 and its last 64 values."""
        return attn_metadata.decode.figraph.attend_latents(self._layer, q, kv_c_and_k_pe_cache)


class FigraphLatentBackend(MLACommonBackend):
    """The backend class, which vLLM asks for the other classes and for what they support."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list[str]] = [*WIDE, CODES]

    @staticmethod
    def get_name() -> str:
        """Returns the name under which register() registers the backend."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[FigraphLatentImpl]:
        """Returns the class that computes attention."""
        return FigraphLatentImpl

    @staticmethod
    def get_builder_cls() -> type[FigraphLatentMetadataBuilder]:
        """Returns the class that builds the metadata of a batch."""
        return FigraphLatentMetadataBuilder

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        """Returns the values of a token."""
        return [latent_decode.KEY_DIM]

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        """Returns the tokens of a page."""
        return [MultipleOf(PAGE_UNIT)]

    @staticmethod
    def get_kv_cache_shape(num_blocks: int, block_size: int, num_kv_heads: int, head_size: int,
                           cache_dtype_str: str = "auto") -> tuple[int, ...]:
        """Returns the shape of the pages, as vLLM asks before 0.29. Codes are counted in bytes."""
        width = latent_decode.CODE_BYTES if cache_dtype_str == CODES else head_size
        return (num_blocks, block_size, width)

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        """Returns True for the GPUs for which figraph's kernels are compiled."""
        return capability.major >= 8

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        """Returns True: the bits of a row's result then do not depend on other rows."""
        return True

    @classmethod
    def supports_combination(cls, head_size: int, dtype: torch.dtype,
                             kv_cache_dtype: Optional[str], block_size: Optional[int],
                             use_mla: bool, has_sink: bool, use_sparse: bool, use_mm_prefix: bool,
                             device_capability: Any) -> Optional[str]:
        """Returns the reason why figraph refuses a model, or None. vLLM has checked each argument
        by itself, but its words for a cache do not say which caches there are."""
        if use_sparse:
            return "figraph does not take tokens that an indexer chooses (DSA)"
        kind = kv_cache_dtype or "auto"
        if kind not in (*WIDE, CODES):
            return (f"figraph does not read latents of {kind}, but of {', '.join(WIDE)} and "
                    f"{CODES}")
        wanted = torch.bfloat16 if kind == CODES else WIDE[kind] or dtype
        if dtype != wanted:
            return f"figraph reads a cache of {kind} only in a model of {wanted}, not of {dtype}"
        return None
