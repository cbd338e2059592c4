"""families.py: reads the properties of a Hugging Face model that a Decoder needs.

A Family says in which order a layer of that model adds and normalises; everything else is read from
the model's own modules. Invariant: a model with other modules than those of its family is refused
with a message that names the module, because a step that skipped an adapter or a hook would
silently compute wrong results.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Optional, Sequence

import torch
from torch import Tensor, nn

import figraph.torch as ft

from ...operands import ACTIVATIONS, dtype_name
from ...specs import Spec, spec


class Family(NamedTuple):
    """The properties in which the layers of one model_type differ from those of llama."""

    weight_offset: float = 0.0  # added to the weight of a norm
    norms_after: bool = False  # the results of attention and of the MLP are normalised too
    qk_norms: bool = False
    sinks: bool = False
    experts: bool = False  # the MLP is a mixture of experts, which the model's own module computes


FAMILIES = {
    "llama": Family(),
    "qwen3": Family(qk_norms=True),
    "gemma2": Family(weight_offset=1.0, norms_after=True),
    "gemma3_text": Family(weight_offset=1.0, norms_after=True, qk_norms=True),
    "gpt_oss": Family(sinks=True, experts=True),
}


def family_of(model: Any) -> Family:
    """Returns the family of a causal language model, or raises if a Decoder cannot take it."""
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind is None:
        raise TypeError(f"model is a {type(model).__name__}, it must be a causal language model of "
                        "transformers")
    if kind not in FAMILIES:
        raise NotImplementedError(f"model has the model_type {kind}, a Decoder takes "
                                  f"{', '.join(FAMILIES)}")
    for name in ("model.layers", "model.norm", "lm_head"):
        if not _has(model, name):
            raise TypeError(f"model is a {type(model).__name__} without {name}, a Decoder takes "
                            "the whole causal language model")
    return FAMILIES[kind]


def _has(model: Any, path: str) -> bool:
    for name in path.split("."):
        model = getattr(model, name, None)
    return model is not None


def spec_of(model: Any, dtype: torch.dtype, kv_limit: int) -> Spec:
    """Returns the spec of the model's step, with the dtype of the model's weights: a configuration
    that was made by hand has no dtype, and one from a file may have another."""
    config = copy.copy(model.config)
    config.dtype = dtype
    return spec(config, kv_limit=kv_limit)


# ---- Weights -------------------------------------------------------------------------------------


def weights_of(model: Any) -> tuple[torch.dtype, torch.device]:
    """Returns the dtype of the model's embedding and the device of all its weights."""
    embedding = model.get_input_embeddings().weight
    name = dtype_name(embedding.dtype)
    if name not in ACTIVATIONS:
        raise TypeError(f"model has the dtype {name}, it must be {' or '.join(ACTIVATIONS)}")
    if embedding.device.type not in ("cpu", "cuda"):
        raise ValueError(f"model is on {embedding.device}, it must be on cpu or cuda")
    for name, weight in model.named_parameters():
        if weight.device != embedding.device:
            raise ValueError(f"model has {name} on {weight.device} and its embedding on "
                             f"{embedding.device}, a Decoder takes a model that is on one device")
    return embedding.dtype, embedding.device


class Product(NamedTuple):
    """One matrix product that replaces several."""

    weight: Tensor
    bias: Optional[Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, *self)


def product_of(owner: nn.Module, names: Sequence[str], dtype: torch.dtype, path: str) -> Product:
    """Concatenates the weights of several projections. The projections' own weights become views of
    the result, so no weight is held twice and the model computes the same as before."""
    linears = [getattr(owner, name) for name in names]
    for name, linear in zip(names, linears):
        plain(linear, nn.Linear, f"{path}.{name}")
        if linear.weight.dtype != dtype:
            raise TypeError(f"model has {path}.{name} of {dtype_name(linear.weight.dtype)} and an "
                            f"embedding of {dtype_name(dtype)}, a Decoder takes one dtype")
    weight = _joined([linear.weight for linear in linears])
    biases = [linear.bias for linear in linears]
    return Product(weight, None if biases[0] is None else _joined(biases))


def _joined(parts: Sequence[Any]) -> Tensor:
    if _lie_together(parts):  # another Decoder of this model has joined them
        first = parts[0].data
        return first.as_strided((sum(len(part) for part in parts), *first.shape[1:]),
                                first.stride())
    whole = torch.cat([part.data for part in parts])
    for part, view in zip(parts, whole.split([len(part) for part in parts])):
        part.data = view
    return whole


def _lie_together(parts: Sequence[Any]) -> bool:
    storage, at = parts[0].untyped_storage().data_ptr(), parts[0].storage_offset()
    for part in parts:
        if (part.untyped_storage().data_ptr(), part.storage_offset()) != (storage, at):
            return False
        if not part.is_contiguous() or part.shape[1:] != parts[0].shape[1:]:
            return False
        at += part.numel()
    return True


def plain(module: nn.Module, kind: type, path: str) -> None:
    """Raises if a module is not of exactly this class, or has hooks, because a captured step would
    leave out the work of an adapter, a quantised layer or a hook."""
    if type(module) is not kind:
        raise TypeError(f"model has {path} of {type(module).__name__}, a Decoder takes "
                        f"{kind.__name__} alone: merge adapters first")
    if module._forward_hooks or module._forward_pre_hooks:
        raise TypeError(f"model has {path} with forward hooks, which a Decoder would leave out")


# ---- Norms ---------------------------------------------------------------------------------------


class Norm:
    """The RMSNorm of a model. A weight of a wider dtype is rounded only if that loses nothing;
    otherwise the model's own module computes."""

    def __init__(self, module: Any, offset: float, dtype: torch.dtype, path: str) -> None:
        epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        if epsilon is None or module._forward_hooks or module._forward_pre_hooks:
            raise TypeError(f"model has {path} of {type(module).__name__}, a Decoder takes the "
                            "RMSNorm of its family, without hooks")
        weight = module.weight.data
        self.module, self.epsilon, self.offset = module, float(epsilon), offset
        self.weight = weight.to(dtype)
        self.is_exact = bool((self.weight.to(weight.dtype) == weight).all())

    def __call__(self, x: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        """Returns the norm of x. With a residual, first adds x to residual in place and returns the
        norm of the sum."""
        if self.is_exact:
            return ft.rms_norm(x, self.weight, epsilon=self.epsilon, weight_offset=self.offset,
                               residual=residual)
        return self.module(x if residual is None else residual.add_(x))
