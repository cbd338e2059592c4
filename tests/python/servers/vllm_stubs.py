"""vllm_stubs.py: stubs in plain torch for the part of vLLM that figraph.integrations.vllm uses.

install() puts modules with vLLM's names into sys.modules. Their classes have the names, signatures
and attributes that server_signatures.json records from vLLM's wheels; server_signatures.py checks
this. Attention, which vLLM does with Triton, is computed in float64, so its results also serve as
references.
"""

import dataclasses
import enum
import logging
import sys
import types
from typing import Any, Optional

import torch

MASKED = float("-inf")


class AttentionCGSupport(enum.Enum):
    ALWAYS = 3
    UNIFORM_BATCH = 2
    UNIFORM_SINGLE_TOKEN_DECODE = 1
    NEVER = 0


class AttentionType(str, enum.Enum):
    DECODER = "decoder"
    ENCODER = "encoder"
    ENCODER_ONLY = "encoder_only"
    ENCODER_DECODER = "encoder_decoder"


class AttentionBackendEnum(enum.Enum):
    TRITON_ATTN = "vllm.v1.attention.backends.triton_attn.TritonAttentionBackend"
    CUSTOM = None

    def is_overridden(self):
        return self in overrides

    def get_path(self, include_classname=True):
        return overrides.get(self, self.value)


overrides: dict[AttentionBackendEnum, str] = {}


def register_backend(backend, class_path=None, is_mamba=False):
    overrides[backend] = class_path


@dataclasses.dataclass
class CommonAttentionMetadata:
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    block_table_tensor: torch.Tensor
    slot_mapping: torch.Tensor
    query_start_loc_cpu: Optional[torch.Tensor] = None
    max_seq_len: int = 0
    seq_lens_cpu_upper_bound: Optional[torch.Tensor] = None
    causal: Any = True
    mm_req_doc_ranges: Any = None
    rswa_prefix_lens: Optional[torch.Tensor] = None


@dataclasses.dataclass
class TritonAttentionMetadata:
    num_actual_tokens: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor


class TritonAttentionMetadataBuilder:
    _cudagraph_support = AttentionCGSupport.ALWAYS

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        self.vllm_config = vllm_config
        model, ranks = vllm_config.model_config, vllm_config.parallel_config
        self.num_heads_q = model.get_num_attention_heads(ranks)
        self.num_heads_kv = model.get_num_kv_heads(ranks)

    @classmethod
    def get_varlen_cudagraph_max_query_len(cls, vllm_config, kv_cache_spec):
        return None

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        given = common_attn_metadata
        return TritonAttentionMetadata(given.num_actual_tokens, given.query_start_loc,
                                       given.seq_lens, given.block_table_tensor,
                                       given.slot_mapping)

    def build_for_cudagraph_capture(self, common_attn_metadata):
        made = self.build(0, common_attn_metadata)
        made.seq_lens.fill_(1)
        return made


class TritonAttentionImpl:
    def __init__(self, num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window,
                 kv_cache_dtype, logits_soft_cap=None, attn_type=AttentionType.DECODER,
                 kv_sharing_target_layer_name=None, sinks=None, use_alibi_sqrt=False,
                 chunk_lookback=-1):
        self.num_heads, self.head_size, self.num_kv_heads = num_heads, head_size, num_kv_heads
        self.scale = float(scale)
        self.alibi_slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes)
        self.sliding_window = (-1, -1) if sliding_window is None else (sliding_window - 1, 0)
        self.kv_cache_dtype = kv_cache_dtype
        self.logits_soft_cap = logits_soft_cap or 0
        self.attn_type = attn_type
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.sinks = sinks
        self.use_alibi_sqrt, self.chunk_lookback = use_alibi_sqrt, chunk_lookback
        self.supports_quant_query_input = True
        self.attended = self.appended = 0

    def process_weights_after_loading(self, act_dtype):
        pass

    def fused_output_quant_supported(self, quant_key):
        return True

    def _halves(self, kv_cache):
        halves = kv_cache.transpose(1, 2).split(self.head_size, dim=-1)
        if self.kv_cache_dtype.startswith("fp8"):
            halves = [x.view(torch.float8_e4m3fn) for x in halves]
        return halves

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        self.appended += 1
        page = kv_cache.shape[2]
        for n, slot in enumerate(slot_mapping.tolist()):
            if slot >= 0:
                for half, new, scale in zip(self._halves(kv_cache), (key, value),
                                            (layer._k_scale, layer._v_scale)):
                    narrow = self.kv_cache_dtype.startswith("fp8")
                    stored = new[n] / scale if narrow else new[n]
                    half[slot // page, slot % page] = stored.to(half.dtype)

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output,
                output_scale=None, output_block_scale=None):
        self.attended += 1
        if attn_metadata is None:
            return output.fill_(0)
        starts = attn_metadata.query_start_loc.tolist()
        k, v = (x.double() for x in self._halves(kv_cache))
        if self.kv_cache_dtype.startswith("fp8"):
            k, v = k * layer._k_scale.double(), v * layer._v_scale.double()
        for row, length in enumerate(attn_metadata.seq_lens.tolist()):
            pages = attn_metadata.block_table[row].long()
            keys, values = (x[pages].flatten(0, 1)[:length] for x in (k, v))
            count = starts[row + 1] - starts[row]
            for n in range(count):
                at = length - count + n
                one = query[starts[row] + n].double()
                output[starts[row] + n] = self._one(one, keys[: at + 1], values[: at + 1])
        return output

    def _one(self, query, keys, values):
        """query: [heads, dim]. keys, values: [tokens, kv_heads, dim]; the last token is the query's
        own."""
        seen = self.sliding_window[0] + 1 or keys.shape[0]
        keys, values = (x[-seen:].repeat_interleave(self.num_heads // self.num_kv_heads, 1)
                        for x in (keys, values))
        logits = torch.einsum("hd,thd->ht", query, keys) * self.scale
        if self.logits_soft_cap:
            logits = self.logits_soft_cap * torch.tanh(logits / self.logits_soft_cap)
        if self.alibi_slopes is not None:
            behind = torch.arange(keys.shape[0]) - (keys.shape[0] - 1)
            logits = logits + self.alibi_slopes.double()[:, None] * behind
        if self.sinks is not None:
            logits = torch.cat([logits, self.sinks.double()[:, None]], 1)
        weights = logits.softmax(1)[:, : keys.shape[0]]
        return torch.einsum("ht,thd->hd", weights, values)


@dataclasses.dataclass(frozen=True)
class MultipleOf:
    base: int


class AttentionBackend:
    supported_dtypes = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16"]

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(1)]

    @classmethod
    def full_cls_name(cls):
        return cls.__module__, cls.__qualname__

    @classmethod
    def get_supported_head_sizes(cls):
        return []

    @classmethod
    def is_mla(cls):
        return False

    @classmethod
    def supports_batch_invariance(cls):
        return False

    @classmethod
    def supports_pcp(cls):
        return cls.get_impl_cls().supports_pcp

    @classmethod
    def supports_dcp(cls):
        return cls.get_impl_cls().supports_dcp

    @classmethod
    def supports_compute_capability(cls, capability):
        return True

    @classmethod
    def supports_combination(cls, head_size, dtype, kv_cache_dtype, block_size, use_mla, has_sink,
                             use_sparse, use_mm_prefix, device_capability):
        return None

    @classmethod
    def validate_configuration(cls, head_size, dtype, kv_cache_dtype, block_size, use_mla, has_sink,
                               use_sparse, use_mm_prefix, use_per_head_quant_scales,
                               device_capability, attn_type, has_sliding_window=False,
                               use_non_causal=False, use_batch_invariant=False,
                               use_kv_connector=False, use_pcp=False,
                               use_adaptive_verification=False, use_dcp=False, use_rswa=False):
        sizes = cls.get_supported_head_sizes()
        pages = cls.get_supported_kernel_block_sizes()
        faults = {
            "head_size": bool(sizes) and head_size not in sizes,
            "dtype": dtype not in cls.supported_dtypes,
            "kv_cache_dtype": kv_cache_dtype not in (None, *cls.supported_kv_cache_dtypes),
            "block_size": block_size is not None and all(block_size % one.base for one in pages),
            "MLA": use_mla and not cls.is_mla(),
            "non-MLA": cls.is_mla() and not use_mla,
            "attention sinks": has_sink,
            "sparse": use_sparse,
            "compute capability": not cls.supports_compute_capability(device_capability),
            "sliding window": has_sliding_window,
            "non-causal attention": use_non_causal,
            "batch invariance": use_batch_invariant and not cls.supports_batch_invariance(),
            "PCP": use_pcp and not cls.supports_pcp(),
            "DCP": use_dcp and not cls.supports_dcp(),
        }
        said = cls.supports_combination(head_size, dtype, kv_cache_dtype, block_size, use_mla,
                                        has_sink, use_sparse, use_mm_prefix, device_capability)
        reasons = [f"{name} not supported" for name, wrong in faults.items() if wrong]
        return reasons + ([] if said is None else [said])


class TritonAttentionBackend(AttentionBackend):
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name():
        return "TRITON_ATTN"

    @staticmethod
    def get_impl_cls():
        return TritonAttentionImpl

    @staticmethod
    def get_builder_cls():
        return TritonAttentionMetadataBuilder

    @classmethod
    def supports_batch_invariance(cls):
        return True


class Logger(logging.Logger):
    """Stores the messages that are logged."""

    def __init__(self, name):
        super().__init__(name)
        self.said = []

    def warning_once(self, message, *arguments):
        self.said.append(message % arguments)


PLACES = {
    "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
    "vllm.logger": {"init_logger": Logger},
    "vllm.v1.attention.backend": {
        "AttentionCGSupport": AttentionCGSupport,
        "AttentionType": AttentionType,
        "CommonAttentionMetadata": CommonAttentionMetadata,
        "MultipleOf": MultipleOf,
    },
    "vllm.v1.attention.backends.registry": {
        "AttentionBackendEnum": AttentionBackendEnum,
        "register_backend": register_backend,
    },
    "vllm.v1.attention.backends.triton_attn": {
        "TritonAttentionBackend": TritonAttentionBackend,
        "TritonAttentionImpl": TritonAttentionImpl,
        "TritonAttentionMetadata": TritonAttentionMetadata,
        "TritonAttentionMetadataBuilder": TritonAttentionMetadataBuilder,
    },
}


def install():
    for path, held in PLACES.items():
        parts = path.split(".")
        for n in range(1, len(parts) + 1):
            name = ".".join(parts[:n])
            if name not in sys.modules:
                sys.modules[name] = types.ModuleType(name)
                sys.modules[name].__path__ = []
        vars(sys.modules[path]).update(held)
    sys.modules["vllm"].envs = sys.modules["vllm.envs"]
