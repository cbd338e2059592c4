"""vllm_latent_stubs.py: stubs in plain torch for the part of vLLM's latent attention (MLA) that
figraph.integrations.vllm uses.

install() puts these classes and those of vllm_stubs.py into sys.modules. server_signatures.py
compares their signatures with vLLM's. They append tokens and divide a batch as vLLM does; they
compute no attention.
"""

import dataclasses
import enum
import types
from typing import Any, Optional

import torch
import vllm_stubs

PLACE = "vllm.model_executor.layers.attention.mla_attention"
# What vLLM's process groups say while a layer is made.
ranks = types.SimpleNamespace(dcp=1, pcp=1)


class QueryLenSupport(enum.Enum):
    SINGLE_ONLY = "single_only"
    UNIFORM = "uniform"
    VARLEN = "varlen"


@dataclasses.dataclass
class MLACommonDecodeMetadata:
    block_table: torch.Tensor
    seq_lens: torch.Tensor
    dcp_tot_seq_lens: Optional[torch.Tensor] = None


@dataclasses.dataclass
class MLACommonMetadata:
    num_reqs: int
    max_query_len: int
    num_actual_tokens: int
    query_start_loc: torch.Tensor
    slot_mapping: torch.Tensor
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    prefill: Any = None
    decode: Optional[MLACommonDecodeMetadata] = None


class MLACommonMetadataBuilder:
    _cudagraph_support = vllm_stubs.AttentionCGSupport.NEVER
    query_len_support = QueryLenSupport.SINGLE_ONLY
    reorder_batch_threshold = 1

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device, metadata_cls=None,
                 supports_dcp_with_varlen=False):
        self.vllm_config, self.model_config = vllm_config, vllm_config.model_config
        drafts = vllm_config.speculative_config
        if self.query_len_support != QueryLenSupport.SINGLE_ONLY and drafts is not None:
            self.reorder_batch_threshold = max(self.reorder_batch_threshold,
                                               1 + drafts.num_speculative_tokens)

    @classmethod
    def get_varlen_cudagraph_max_query_len(cls, vllm_config, kv_cache_spec):
        return None

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        given, most = common_attn_metadata, self.reorder_batch_threshold
        rows, tokens = given.num_reqs, given.num_actual_tokens
        if given.max_query_len > most:  # the rows that decode come first
            starts = given.query_start_loc_cpu.tolist()
            counted = [end - start for start, end in zip(starts, starts[1:])]
            rows = next((n for n, count in enumerate(counted) if count > most), rows)
            tokens = starts[rows]
        decode = None
        if rows > 0:
            decode = MLACommonDecodeMetadata(given.block_table_tensor[:rows],
                                             given.seq_lens[:rows])
        return MLACommonMetadata(given.num_reqs, given.max_query_len, given.num_actual_tokens,
                                 given.query_start_loc, given.slot_mapping, rows, tokens,
                                 given.num_reqs - rows, decode=decode)

    def build_for_cudagraph_capture(self, common_attn_metadata):
        assert common_attn_metadata.max_query_len <= self.reorder_batch_threshold
        return self.build(0, common_attn_metadata)


class MLACommonImpl:
    can_return_lse_for_decode = False
    lse_base_on_e = True
    supports_dcp = False
    supports_pcp = True

    def __new__(cls, *arguments, **named):
        self = super().__new__(cls)
        self.dcp_world_size, self.pcp_world_size = ranks.dcp, ranks.pcp
        return self

    def __init__(self, num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window,
                 kv_cache_dtype, logits_soft_cap, attn_type, kv_sharing_target_layer_name,
                 q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, qk_head_dim,
                 v_head_dim, kv_b_proj, indexer=None, q_pad_num_heads=None):
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.kv_cache_dtype = kv_cache_dtype
        self.kv_lora_rank, self.qk_rope_head_dim = kv_lora_rank, qk_rope_head_dim
        self.indexer = indexer
        self.supports_quant_query_input = True
        self.dcp_world_size = -1

    def forward_mha(self, q, kv_c_normed, k_pe, kv_c_and_k_pe_cache, attn_metadata, k_scale, output,
                    output_scale=None):
        raise AssertionError("prompts are not tested here")


class MLACommonBackend(vllm_stubs.AttentionBackend):
    @classmethod
    def get_supported_head_sizes(cls):
        return [320, 512, 576]

    @classmethod
    def is_mla(cls):
        return True


def install():
    vllm_stubs.PLACES[PLACE] = {one.__name__: one for one in (
        MLACommonBackend, MLACommonDecodeMetadata, MLACommonImpl, MLACommonMetadata,
        MLACommonMetadataBuilder, QueryLenSupport)}
    vllm_stubs.install()
