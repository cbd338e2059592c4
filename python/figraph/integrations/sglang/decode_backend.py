"""decode_backend.py: SGLang's Triton backend, except that figraph computes decode steps.

SGLang prepares a step outside a graph (init_forward_metadata_out_graph), where the page table is
made, and inside it (init_forward_metadata_in_graph), where a new pass begins. So a captured graph
includes the planning of its pass, and reads the table and the lengths from tensors that never move.
Invariant: SGLang alone stores keys and values. figraph must not, because the padding rows of
SGLang's graphs have the page tables of other rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import torch
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.layout.paged_view import paged_kv_view
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch

from ... import torch as ft
from ...operands import NARROW, dtype_name
from .. import paged_decode
from ..counts import counts

if TYPE_CHECKING:  # SGLang imports its backends from there
    from sglang.srt.model_executor.model_runner import ModelRunner

logger = paged_decode.Once(__name__)


class FigraphAttnBackend(TritonAttnBackend):
    """Computes attention for all layers of a model runner."""

    needs_cpu_seq_lens: bool = True  # the longest row gives the width of the page table

    def __init__(self, model_runner: ModelRunner, *rest: Any, **options: Any) -> None:
        super().__init__(model_runner, *rest, **options)
        self._pages_of = self.req_to_token[:, :: self.page_size]  # slots at the start of pages
        self._graph_lengths: Optional[torch.Tensor] = None
        self._graph_table: Optional[torch.Tensor] = None
        self._batch: Optional[paged_decode.Batch] = None  # of the running step
        self._layers: dict[int, paged_decode.Layer] = {}
        self._refused: set[int] = set()
        why = self._runner_refusal(model_runner)
        self._serves_runner = why is None
        if why is not None:
            logger.warning("figraph leaves all layers to Triton: %s", why)

    def _runner_refusal(self, model_runner: ModelRunner) -> Optional[str]:
        """Returns the reason why figraph serves no layer of this model, or None."""
        if self.use_mla:
            return "multi-head latent attention"
        if self.dcp_size > 1:
            return "decode context parallelism"
        if type(self.token_to_kv_pool) is not MHATokenToKVPool or \
                self.token_to_kv_pool.is_quantized_kv_cache:
            return f"a cache of {type(self.token_to_kv_pool).__name__}"
        if self.kv_index_translator is not None and self.kv_index_translator.is_translating:
            return "a unified pool"
        if self.max_context_len > paged_decode.TOKEN_LIMIT:
            return f"{self.max_context_len} tokens of context, limit {paged_decode.TOKEN_LIMIT}"
        return None

    # ---- The metadata of a step ------------------------------------------------------------------

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int, *rest: Any,
                              **options: Any) -> None:
        """Makes the tensors that captured graphs read."""
        super().init_cuda_graph_state(max_bs, max_num_tokens, *rest, **options)
        if self._serves_runner:
            self._graph_lengths = torch.zeros(max_bs, dtype=torch.int32, device=self.device)
            self._graph_table = torch.zeros(max_bs, self._pages_of.shape[1], dtype=torch.int32,
                                            device=self.device)

    def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
        """Prepares a step that is not in a graph."""
        super().init_forward_metadata(forward_batch)
        self._batch = None
        if self._is_decode(forward_batch):
            lengths = forward_batch.seq_lens.to(torch.int32)
            self._batch = paged_decode.Batch(lengths, self._table(forward_batch),
                                             deterministic=self.enable_deterministic)

    def init_forward_metadata_out_graph(self, forward_batch: ForwardBatch,
                                        in_capture: bool = False) -> None:
        """Fills the tensors that the graph of this batch size reads."""
        super().init_forward_metadata_out_graph(forward_batch, in_capture)
        self._batch = None
        if not self._is_decode(forward_batch) or self._graph_table is None:
            return
        rows = forward_batch.batch_size
        lengths, table = self._graph_lengths[:rows], self._graph_table[:rows]
        lengths.copy_(forward_batch.seq_lens[:rows])
        made = self._table(forward_batch)
        table[:, : made.shape[1]].copy_(made)
        self._batch = paged_decode.Batch(lengths, table, deterministic=self.enable_deterministic)

    def init_forward_metadata_in_graph(self, forward_batch: ForwardBatch) -> None:
        """Begins a pass. Its planning becomes part of the graph."""
        super().init_forward_metadata_in_graph(forward_batch)
        if self._batch is not None:
            self._batch.begin()

    def _is_decode(self, forward_batch: ForwardBatch) -> bool:
        return (self._serves_runner and forward_batch.forward_mode.is_decode()
                and forward_batch.spec_info is None and forward_batch.encoder_lens is None)

    def _table(self, forward_batch: ForwardBatch) -> torch.Tensor:
        """Returns the page table of the rows, as wide as the longest row if the host knows it."""
        rows, width = forward_batch.batch_size, self._pages_of.shape[1]
        known = forward_batch.seq_lens_cpu
        if known is not None and len(known) > 0:
            width = min(width, -(-int(known.max()) // self.page_size))
        slots = self._pages_of[:, :width].index_select(0, forward_batch.req_pool_indices[:rows])
        return slots.div(self.page_size, rounding_mode="floor").to(torch.int32)

    # ---- A layer ---------------------------------------------------------------------------------

    def forward_decode(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                       layer: RadixAttention, forward_batch: ForwardBatch,
                       save_kv_cache: bool = True, sinks: Optional[torch.Tensor] = None,
                       score_mod: Any = None, aux_tensors: Any = None) -> torch.Tensor:
        """Computes attention of one layer in a decode step."""
        batch = self._batch
        if batch is None or score_mod is not None or not self._serves(layer, q) \
                or not self._fits(batch, layer):
            counts.passed_on += 1
            return super().forward_decode(q, k, v, layer, forward_batch, save_kv_cache, sinks,
                                          score_mod, aux_tensors)
        if save_kv_cache and k is not None:
            self._store(forward_batch, layer, k, v)
        q = q.reshape(-1, layer.tp_q_head_num, layer.head_dim)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        made = self._layers[layer.layer_id]
        # SGLang may write new weights into the parameter at any time and tells no backend, so each
        # step copies the sinks, and so does each replay of a graph.
        made.load(None, sinks, q.device)
        batch.attend(made, q, self._cache(layer), out)
        return out.view(-1, layer.tp_q_head_num * layer.head_dim)

    def _store(self, forward_batch: ForwardBatch, layer: RadixAttention, k: torch.Tensor,
               v: torch.Tensor) -> None:
        """Lets the pool store keys and values. A narrow pool divides them by the scales."""
        pool: MHATokenToKVPool = self.token_to_kv_pool
        scales = () if layer.k_scale is None and layer.v_scale is None else (layer.k_scale,
                                                                             layer.v_scale)
        pool.set_kv_buffer(layer, KVWriteLoc.for_batch(forward_batch), k, v, *scales)

    def _serves(self, layer: RadixAttention, q: torch.Tensor) -> bool:
        known = layer.layer_id
        if known in self._refused:
            return False
        if known not in self._layers:
            window = -1 if layer.sliding_window_size is None else layer.sliding_window_size
            # SGLang's window does not count the query's own token; figraph's does.
            logits = ft.Logits(float(layer.scaling), float(layer.logit_cap or 0.0), window + 1)
            made = paged_decode.Layer(layer.tp_q_head_num, layer.tp_k_head_num, layer.head_dim,
                                      logits)
            why = self._layer_refusal(layer, made, q)
            if why is not None:
                self._refused.add(known)
                logger.warning("figraph leaves layers to Triton: %s", why)
                return False
            self._layers[known] = made
        return True

    def _fits(self, batch: paged_decode.Batch, layer: RadixAttention) -> bool:
        """Returns False for more rows than a call takes."""
        excess = batch.excess(self._layers[layer.layer_id], self.page_size)
        if excess is not None:
            logger.warning("figraph leaves steps to Triton: %s", excess)
        return excess is None

    def _layer_refusal(self, layer: RadixAttention, made: paged_decode.Layer,
                       q: torch.Tensor) -> Optional[str]:
        """Returns the reason why figraph cannot serve this layer, or None if it can."""
        if layer.attn_type != AttentionType.DECODER or layer.is_cross_attention:
            return "attention that is not a decoder's"
        if layer.qk_head_dim != layer.head_dim or layer.v_head_dim != layer.head_dim:
            return "keys and values of unlike size"
        if layer.use_irope or (layer.xai_temperature_len or 0) > 0:
            return "temperatures by position"
        if layer.logit_cap and layer.logit_capping_method != "tanh":
            return f"a cap of logits by {layer.logit_capping_method}"
        return made.refusal(q.dtype, self._cache(layer).k.dtype, self.page_size)

    def _cache(self, layer: RadixAttention) -> ft.Cache:
        """Returns keys and values as two views, [pages, tokens, kv_heads, head_dim]."""
        pool: MHATokenToKVPool = self.token_to_kv_pool
        k, v = (paged_kv_view(one, self.page_size, layer.tp_k_head_num, layer.head_dim)
                for one in pool.get_kv_buffer(layer.layer_id))
        if dtype_name(k.dtype) not in NARROW or layer.k_scale is None or layer.v_scale is None:
            return ft.Cache(k, v)
        return ft.Cache(k, v, None, layer.k_scale, layer.v_scale)
