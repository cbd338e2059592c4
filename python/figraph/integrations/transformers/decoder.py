"""decoder.py: decodes with a causal language model of transformers, by one CUDA graph per token.

The model's own forward method computes the prompt, whose keys and values are then copied into
pages. After that, a step is one replay of one graph, from the embedding to the next token.
Invariants: no part of a step waits for the host; the Decoder holds all memory that a step reads or
writes, and this memory never moves.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

import torch
from torch import Tensor

import figraph.torch as ft

from ... import abi, errors
from ...integers import integer
from ...operands import ACTIVATIONS, dtype_name
from .families import Norm, Product, family_of, plain, product_of, spec_of, weights_of
from .held_weights import Copy, held, refresh, refuse_replaced
from .sampling import Chooser, greedy

CHECK_EVERY = 16  # tokens between two checks whether every row has ended


class Layer(NamedTuple):
    """The parts of one of the model's layers that a step calls."""

    input_norm: Norm
    qkv: Product
    output: Any
    after_attention: Optional[Norm]  # norm of attention's result, before it is added
    mlp_norm: Norm
    gate_up: Optional[Product]
    mlp: Any  # in a dense layer the last product, otherwise the whole module
    after_mlp: Optional[Norm]


class Decoder:
    """Decodes `rows` sequences of at most max_tokens tokens with a model of transformers.

    model: a causal language model of the families llama, qwen3, gemma2, gemma3_text or gpt_oss, on
    one device, in float32, float16 or bfloat16. max_tokens counts a row's prompt and its new
    tokens. page is the number of tokens in a page of the cache. choose returns the next token of
    each row from logits, as greedy and Sampler do, and is captured with the step. A row ends at a
    token of eos_token_id; if this is None, at a token of the model's generation_config. The weights
    of q, k and v are concatenated, and so are those of gate and up; the model's own weights become
    views of the result.

    Most callers need only generate(). prompt() and step() are its parts.
    """

    def __init__(
        self,
        model: Any,
        *,
        rows: int,
        max_tokens: int,
        page: int = 16,
        choose: Chooser = greedy,
        eos_token_id: Union[int, Sequence[int], None] = None,
    ) -> None:
        self.family = family_of(model)
        self.dtype, self.device = weights_of(model)
        self.rows, self.max_tokens = _counted("rows", rows), _counted("max_tokens", max_tokens)
        page = _counted("page", page)
        self.model, self.choose = model, choose
        _refuse_waiting_experts(model, self.family.experts, self.device)
        config = getattr(model, "generation_config", None)
        ends = getattr(config, "eos_token_id", None) if eos_token_id is None else eos_token_id
        ends = [ends] if isinstance(ends, int) else list(ends or [])
        self._ends = torch.tensor(ends, dtype=torch.int64, device=self.device) if ends else None
        pad = getattr(config, "pad_token_id", None)
        self.pad_token_id = pad if pad is not None else ends[0] if ends else 0
        row_pages = -(-self.max_tokens // page)
        spec = spec_of(model, self.dtype, row_pages * page)
        self._copies: list[Copy] = []
        self.layers = self._read_layers()
        self._last_norm = self._norm(model.model.norm, "model.norm")
        self._held = held(model)  # now that the products are joined
        self._slots = torch.arange(self.rows * row_pages * page, device=self.device)
        self._slots = self._slots.view(self.rows, -1)  # of each row, each token's slot in the pools
        table = self._slots[:, ::page].div(page, rounding_mode="floor").int().contiguous()
        shape = (self.rows * row_pages, page, spec.kv_heads, spec.head_dim)
        self.caches = [ft.Cache(self._zeros(*shape), self._zeros(*shape), table)
                       for _ in range(spec.layers)]
        self._decode = ft.DecodeStep(spec, self.caches, rows=self.rows,
                                     weights=self._weights(spec.qk_norm_epsilon > 0),
                                     dtype=ACTIVATIONS[dtype_name(self.dtype)])
        self.spec = self._decode.spec
        self.logits: Optional[Tensor] = None
        self._ids = torch.zeros(self.rows, dtype=torch.int64, device=self.device)
        # Column max_tokens is for the token after the last. Idle rows write into the next column.
        self._text = torch.zeros(self.rows, self.max_tokens + 2, dtype=torch.int64,
                                 device=self.device)
        self._longest = 0  # tokens of the longest row, as far as the host knows
        self._capture()

    @torch.no_grad()
    def _capture(self) -> None:
        kind = getattr(self.model.config, "_experts_implementation", None)
        try:
            self._decode.capture(self._loop)
        except RuntimeError as error:
            if not self.family.experts or self.device.type == "cpu":
                raise
            raise ValueError(f'model has experts_implementation="{kind}", and its step could not be'
                             ' captured: call model.set_experts_implementation("batched_mm"), '
                             "which waits for nothing") from error

    @property
    def lengths(self) -> Tensor:
        """Returns the int32 [rows] lengths that the next step reads; they include the token of that
        step. A row of length 0 is idle: it has ended, or has no prompt."""
        return self._decode.lengths

    @property
    def text(self) -> Tensor:
        """Returns the tokens of all rows, int64 [rows, max_tokens + 1], from the prompt's first
        token to the newest one. Numbers behind a row's newest token have no meaning."""
        return self._text[:, :-1]

    # ---- What a step calls -----------------------------------------------------------------------

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def _norm(self, module: Any, path: str) -> Norm:
        made = Norm(module, self.family.weight_offset, self.dtype, path)
        if made.is_exact and made.weight.dtype != module.weight.dtype:
            self._copies.append(Copy(made.weight, module, "weight", is_exact=True))
        return made

    def _read_layers(self) -> list[Layer]:
        return [self._read_layer(layer, f"model.layers.{n}")
                for n, layer in enumerate(self.model.model.layers)]

    def _read_layer(self, layer: Any, path: str) -> Layer:
        attention, mlp, after = layer.self_attn, layer.mlp, self.family.norms_after
        plain(attention.o_proj, torch.nn.Linear, f"{path}.self_attn.o_proj")
        if not self.family.experts:
            plain(mlp.down_proj, torch.nn.Linear, f"{path}.mlp.down_proj")

        def norm(name: str) -> Norm:
            return self._norm(getattr(layer, name), f"{path}.{name}")

        return Layer(
            input_norm=norm("input_layernorm"),
            qkv=product_of(attention, ["q_proj", "k_proj", "v_proj"], self.dtype,
                           f"{path}.self_attn"),
            output=attention.o_proj,
            after_attention=norm("post_attention_layernorm") if after else None,
            mlp_norm=norm("pre_feedforward_layernorm" if after else "post_attention_layernorm"),
            gate_up=None if self.family.experts else product_of(mlp, ["gate_proj", "up_proj"],
                                                                self.dtype, f"{path}.mlp"),
            mlp=mlp if self.family.experts else mlp.down_proj,
            after_mlp=norm("post_feedforward_layernorm") if after else None,
        )

    def _weights(self, has_qk_norms: bool) -> dict[str, Tensor]:
        """Returns the weights that figraph reads, by their names in the recording."""
        found = {}
        for n, layer in enumerate(self.model.model.layers):
            attention = layer.self_attn
            if has_qk_norms:
                for name in ("q_norm", "k_norm"):
                    found[f"{name}.{n}"] = self._copied(getattr(attention, name), "weight",
                                                        self.dtype, self.family.weight_offset)
            if self.family.sinks:
                found[f"sinks.{n}"] = self._copied(attention, "sinks", torch.float32, 0.0)
        return found

    def _copied(self, owner: Any, attribute: str, dtype: torch.dtype, offset: float) -> Tensor:
        tensor = torch.empty_like(getattr(owner, attribute).data, dtype=dtype)
        made = Copy(tensor, owner, attribute, offset)
        tensor.copy_(made.source())
        self._copies.append(made)
        return tensor

    # ---- A step ----------------------------------------------------------------------------------

    def _loop(self) -> None:
        """Runs one step, from the token of each row to the next one. capture() captures it."""
        self.logits = self._forward(self._ids)
        chosen = self.choose(self.logits)
        self._take(chosen, self.lengths)
        if self._ends is not None:
            self.lengths.masked_fill_(self._is_end(chosen), 0)
        self._decode.advance()

    def _is_end(self, tokens: Tensor) -> Tensor:
        """Returns which of the tokens end their rows. torch.isin is not used, because it may copy
        numbers to the host."""
        assert self._ends is not None
        return (tokens[..., None] == self._ends).any(-1)

    def _take(self, chosen: Tensor, lengths: Tensor) -> None:
        """Writes the next token of each row that is not idle."""
        column = torch.where(lengths > 0, lengths, self._text.shape[1] - 1).long()
        self._text.scatter_(1, column[:, None], chosen[:, None])
        self._ids.copy_(chosen)

    def _forward(self, ids: Tensor) -> Tensor:
        residual = self.model.get_input_embeddings()(ids)
        x = self.layers[0].input_norm(residual)
        self._decode.plan()
        for n, layer in enumerate(self.layers):
            qkv = layer.qkv(x).view(self.rows, -1, self.spec.head_dim)
            q, k, v = qkv.split([self.spec.q_heads, self.spec.kv_heads, self.spec.kv_heads], 1)
            x = layer.output(self._decode.attend(n, q, k, v).view(self.rows, -1))
            if layer.after_attention is not None:
                x = layer.after_attention(x)
            x = self._mlp(n, layer, layer.mlp_norm(x, residual))
            if layer.after_mlp is not None:
                x = layer.after_mlp(x)
            is_last = n + 1 == len(self.layers)
            x = (self._last_norm if is_last else self.layers[n + 1].input_norm)(x, residual)
        return self._capped(self.model.lm_head(x))

    def _mlp(self, n: int, layer: Layer, x: Tensor) -> Tensor:
        if layer.gate_up is None:
            out = layer.mlp(x[:, None])
            return (out[0] if isinstance(out, tuple) else out)[:, 0]
        return layer.mlp(self._decode.act(n, layer.gate_up(x)))

    def _capped(self, logits: Tensor) -> Tensor:
        cap = getattr(self.model.config, "final_logit_softcapping", None)
        return logits if not cap else torch.tanh(logits / cap) * cap

    @torch.no_grad()
    def step(self) -> None:
        """Enqueues the computation of one token for each row that is not idle, and does not wait
        for it."""
        if self._longest > self.max_tokens:
            raise errors.of(abi.FIG_TOO_LARGE, f"max_tokens is {self.max_tokens}, and a row "
                            "already has that many tokens")
        self._decode()
        self._longest += 1

    # ---- The prompt ------------------------------------------------------------------------------

    @torch.no_grad()
    def prompt(self, input_ids: Tensor, attention_mask: Optional[Tensor] = None) -> Tensor:
        """Computes prompts, [at most rows, tokens], padded on the left, in rows 0, 1, … and makes
        all other rows idle. Returns the logits for the token that follows each prompt. choose takes
        this token from the logits, and it becomes the newest of its row. Weights of the model that
        were written in place are used from now on."""
        refuse_replaced(self.model, self._held)
        refresh(self._copies)
        ids, mask = self._checked(input_ids, attention_mask)
        rows, lengths = ids.shape[0], mask.sum(-1)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        out = self.model(input_ids=ids, attention_mask=mask.long(), position_ids=positions,
                         use_cache=True, logits_to_keep=1)
        row = torch.arange(rows, device=self.device)[:, None].expand_as(positions)
        slots = self._slots[row, positions]
        for cache, layer in zip(self.caches, out.past_key_values.layers):
            kept = layer.keys.shape[2]  # a layer with a window keeps only these tokens
            seen, at = mask[:, -kept:], slots[:, -kept:]
            cache.k.flatten(0, 1)[at[seen]] = layer.keys.transpose(1, 2)[seen]
            cache.v.flatten(0, 1)[at[seen]] = layer.values.transpose(1, 2)[seen]
        self._text.zero_()
        self._text[row[mask], positions[mask]] = ids[mask]
        logits = out.logits[:, -1]
        self._begin(self.choose(logits), lengths)
        return logits

    def _begin(self, chosen: Tensor, lengths: Tensor) -> None:
        """Stores the token that follows each prompt as the newest of its row."""
        rows = len(chosen)
        self.lengths.zero_()
        self.lengths[:rows].copy_(lengths)
        everyone = self._ids.new_zeros(self.rows)
        everyone[:rows] = chosen
        self._take(everyone, self.lengths)
        if self._ends is not None:
            self.lengths.masked_fill_(self._is_end(everyone), 0)
        self._decode.advance()
        self._longest = int(lengths.max()) + 1

    def _checked(self, ids: Tensor, mask: Optional[Tensor]) -> tuple[Tensor, Tensor]:
        for name, given in (("input_ids", ids), ("attention_mask", mask)):
            if given is None:
                continue
            if not isinstance(given, Tensor) or given.is_floating_point() or given.ndim != 2:
                raise TypeError(f"{name} must be a tensor of integers, [rows, tokens]")
            if given.device != self.device:
                raise ValueError(f"{name} is on {given.device}, the model is on {self.device}")
        if not 0 < ids.shape[0] <= self.rows or ids.shape[1] == 0:
            raise ValueError(f"input_ids is {list(ids.shape)}, the Decoder has {self.rows} rows, "
                             "and a prompt has at least one token")
        seen = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        if seen.shape != ids.shape:
            raise ValueError(f"attention_mask is {list(seen.shape)}, it must be {list(ids.shape)} "
                             "as input_ids")
        if not bool((seen[:, :-1] <= seen[:, 1:]).all()) or not bool(seen[:, -1].all()):
            raise ValueError("attention_mask must be zeros and then ones in each row: a Decoder "
                             "takes prompts that are padded on the left")
        longest = int(seen.sum(-1).max())
        if longest > self.max_tokens:
            raise errors.of(abi.FIG_TOO_LARGE, f"input_ids has a prompt of {longest} tokens, "
                            f"max_tokens is {self.max_tokens}")
        return ids, seen

    # ---- All of it -------------------------------------------------------------------------------

    @torch.no_grad()
    def generate(self, input_ids: Tensor, attention_mask: Optional[Tensor] = None, *,
                 max_new_tokens: int,
                 every: Optional[Callable[[Tensor], object]] = None) -> Tensor:
        """Returns the new tokens of each prompt, int64 [prompts, at most max_new_tokens]; pad
        tokens follow a row's last token. every is called with the logits, [rows, vocabulary], after
        the prompt and after each step; on a GPU it gets the same tensor each time."""
        count = _counted("max_new_tokens", max_new_tokens)
        ids, mask = self._checked(input_ids, attention_mask)
        lengths = mask.sum(-1)
        longest = int(lengths.max())
        if longest + count > self.max_tokens + 1:
            raise errors.of(abi.FIG_TOO_LARGE, f"max_new_tokens is {count} after a prompt of "
                            f"{longest} tokens, max_tokens is {self.max_tokens}: the last token "
                            "needs no place")
        logits = self.prompt(ids, mask)
        if every is not None:
            every(logits)
        made = 1
        while made < count and not (made % CHECK_EVERY == 0 and self._has_ended()):
            self.step()
            made += 1
            if every is not None and self.logits is not None:
                every(self.logits)
        return self._new_tokens(lengths, made)

    def _has_ended(self) -> bool:
        return self._ends is not None and not bool(self.lengths.any())

    def _new_tokens(self, lengths: Tensor, made: int) -> Tensor:
        columns = lengths[:, None] + torch.arange(made, device=self.device)
        tokens = self._text[: len(lengths)].gather(1, columns)
        if self._ends is None:
            return tokens
        ended = self._is_end(tokens).long()
        is_behind = ended.cumsum(-1) - ended > 0
        longest = int((~is_behind).sum(-1).max())
        return tokens.masked_fill(is_behind, self.pad_token_id)[:, :longest]


def _counted(name: str, value: int) -> int:
    number = integer(name, value)
    if number < 1:
        raise ValueError(f"{name} is {number}, it must be at least 1")
    return number


def _refuse_waiting_experts(model: Any, has_experts: bool, device: torch.device) -> None:
    """Raises if the model's experts copy their routing to the host, which a CUDA graph cannot
    capture."""
    kind = getattr(model.config, "_experts_implementation", None)
    if has_experts and device.type == "cuda" and kind == "eager":
        raise ValueError('model has experts_implementation="eager", which waits for the host in '
                         'each layer: call model.set_experts_implementation("batched_mm")')
