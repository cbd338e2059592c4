"""sglang_stubs.py: stubs in plain torch for the part of SGLang that figraph.integrations.sglang
uses.

install() puts modules with SGLang's names into sys.modules. server_signatures.py checks the
signatures of their classes against those recorded from SGLang's wheels. Attention, which SGLang
does with Triton, is computed in float64.
"""

import dataclasses
import enum
import sys
import types
from typing import Any

import torch


class ForwardMode(enum.Enum):
    EXTEND = 1
    DECODE = 2

    def is_decode(self):
        return self is ForwardMode.DECODE


class ForwardBatch(types.SimpleNamespace):
    spec_info = None
    encoder_lens = None
    seq_lens_cpu = None


class AttentionType(enum.Enum):
    DECODER = "decoder"
    ENCODER_ONLY = "encoder_only"


class RadixAttention:
    def __init__(self, num_heads, head_dim, scaling, num_kv_heads, layer_id, logit_cap=0.0,
                 v_head_dim=-1, sliding_window_size=-1, is_cross_attention=False,
                 pos_encoding_mode="NONE", logit_capping_method="tanh", quant_config=None,
                 attn_type=AttentionType.DECODER, use_irope=False, prefix="",
                 use_prefill_attention_wrapper=True):
        self.tp_q_head_num, self.tp_k_head_num = num_heads, num_kv_heads
        self.head_dim = self.qk_head_dim = head_dim
        self.v_head_dim = head_dim if v_head_dim == -1 else v_head_dim
        self.scaling, self.layer_id, self.logit_cap = scaling, layer_id, logit_cap
        self.sliding_window_size = sliding_window_size
        self.is_cross_attention, self.use_irope = is_cross_attention, use_irope
        self.logit_capping_method, self.attn_type = logit_capping_method, attn_type
        self.k_scale = self.v_scale = None
        self.xai_temperature_len = -1


@dataclasses.dataclass
class KVWriteLoc:
    loc: torch.Tensor

    @classmethod
    def for_batch(cls, forward_batch, *, swa_loc=None, full_loc=None):
        return cls(forward_batch.out_cache_loc)


class MHATokenToKVPool:
    def __init__(self, size, page_size, dtype, head_num, head_dim, layer_num):
        shape = (layer_num, size + page_size, head_num, head_dim)
        self.buffers = [torch.randn(shape).to(dtype) for _ in "kv"]
        self.dtype, self.is_quantized_kv_cache = dtype, False

    def get_kv_buffer(self, layer_id):
        return tuple(one[layer_id] for one in self.buffers)

    def set_kv_buffer(self, layer, loc_info, cache_k, cache_v, k_scale=None, v_scale=None,
                      layer_id_override=None, dcp_kv_mask=None):
        narrow = self.dtype == torch.float8_e4m3fn
        for buffer, new, scale in zip(self.get_kv_buffer(layer.layer_id), (cache_k, cache_v),
                                      (k_scale, v_scale)):
            stored = new / scale if narrow and scale is not None else new
            buffer.view(torch.uint8 if narrow else self.dtype)[loc_info.loc] = \
                stored.to(self.dtype).view(torch.uint8 if narrow else self.dtype)


def paged_kv_view(buf, page_size, head_num, head_dim):
    return buf.view(-1, page_size, head_num, head_dim)


class AttentionBackend:
    def init_forward_metadata_in_graph(self, forward_batch):
        pass


class TritonAttnBackend(AttentionBackend):
    needs_cpu_seq_lens = False

    def __init__(self, model_runner, skip_prefill=False, kv_indptr_buf=None, *, dllm_fa4=False):
        self.req_to_token = model_runner.req_to_token
        self.token_to_kv_pool = model_runner.token_to_kv_pool
        self.page_size, self.device = model_runner.page_size, "cpu"
        self.max_context_len = model_runner.max_context_len
        self.use_mla, self.dcp_size, self.enable_deterministic = False, 1, False
        self.kv_index_translator = types.SimpleNamespace(is_translating=False)
        vars(self).update(model_runner.changes)
        self.attended, self.prepared = 0, []

    def init_cuda_graph_state(self, max_bs, max_num_tokens, kv_indices_buf=None,
                              cuda_graph_num_kv_splits_buf=None):
        self.prepared.append("state")

    def init_forward_metadata(self, forward_batch):
        self.prepared.append("eager")

    def init_forward_metadata_out_graph(self, forward_batch, in_capture=False):
        self.prepared.append("out")

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None,
                       score_mod=None, aux_tensors=None):
        self.attended += 1
        if save_kv_cache and k is not None:
            self.token_to_kv_pool.set_kv_buffer(layer, KVWriteLoc.for_batch(forward_batch), k, v,
                                                layer.k_scale, layer.v_scale)
        q = q.reshape(-1, layer.tp_q_head_num, layer.head_dim).double()
        out = torch.zeros_like(q)
        for row, length in enumerate(forward_batch.seq_lens.tolist()):
            slots = self.req_to_token[forward_batch.req_pool_indices[row], :length].long()
            keys, values = (one.double()[slots] * (1.0 if scale is None else scale)
                            for one, scale in zip(
                                self.token_to_kv_pool.get_kv_buffer(layer.layer_id),
                                (layer.k_scale, layer.v_scale)))
            out[row] = attend(layer, q[row], keys, values, sinks)
        return out.flatten(1)


def attend(layer, query, keys, values, sinks):
    """As in SGLang's FlashAttention 3, a window counts the tokens in front of the query's own."""
    seen = layer.sliding_window_size + 1 or keys.shape[0]
    group = layer.tp_q_head_num // layer.tp_k_head_num
    keys, values = (one[-seen:].repeat_interleave(group, 1) for one in (keys, values))
    logits = torch.einsum("hd,thd->ht", query, keys) * layer.scaling
    if layer.logit_cap:
        logits = layer.logit_cap * torch.tanh(logits / layer.logit_cap)
    if sinks is not None:
        logits = torch.cat([logits, sinks.double()[:, None]], 1)
    return torch.einsum("ht,thd->hd", logits.softmax(1)[:, : keys.shape[0]], values)


ATTENTION_BACKENDS: dict[str, Any] = {}
ATTENTION_BACKEND_CHOICES = ["triton"]


def register_attention_backend(name):
    def decorator(fn):
        ATTENTION_BACKENDS[name] = fn
        return fn

    return decorator


PLACES = {
    "sglang.srt.arg_groups.choices": {
        "ATTENTION_BACKEND_CHOICES": ATTENTION_BACKEND_CHOICES,
        "add_attention_backend_choices": ATTENTION_BACKEND_CHOICES.extend,
    },
    "sglang.srt.layers.attention.attention_registry": {
        "register_attention_backend": register_attention_backend,
    },
    "sglang.srt.layers.attention.triton_backend": {"TritonAttnBackend": TritonAttnBackend},
    "sglang.srt.layers.radix_attention": {
        "AttentionType": AttentionType,
        "RadixAttention": RadixAttention,
    },
    "sglang.srt.mem_cache.layout.paged_view": {"paged_kv_view": paged_kv_view},
    "sglang.srt.mem_cache.memory_pool": {
        "KVWriteLoc": KVWriteLoc,
        "MHATokenToKVPool": MHATokenToKVPool,
    },
    "sglang.srt.model_executor.forward_batch_info": {"ForwardBatch": ForwardBatch},
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
