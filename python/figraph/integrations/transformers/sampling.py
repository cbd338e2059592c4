"""sampling.py: chooses the next token of each row from logits, on the device.

A chooser is any function from logits [rows, vocabulary] to int64 [rows] that a CUDA graph can
capture: it copies nothing to the host, and its shapes do not depend on values.
"""

from __future__ import annotations

import math
from typing import Callable

import torch
from torch import Tensor

Chooser = Callable[[Tensor], Tensor]


def greedy(logits: Tensor) -> Tensor:
    """Returns the most probable token of each row."""
    return logits.argmax(-1)


class Sampler:
    """Draws tokens by torch's default generator of the device, so torch.manual_seed makes them
    repeatable.

    temperature divides the logits. top_k is the number of tokens to keep; 0 keeps all. top_p keeps
    the most probable tokens until their probabilities add up to top_p; the most probable token is
    always kept.
    """

    def __init__(self, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> None:
        if not (math.isfinite(temperature) and temperature > 0):
            raise ValueError(f"temperature is {temperature}, it must be finite and above 0: "
                             "without a Sampler a Decoder is greedy")
        if top_k < 0:
            raise ValueError(f"top_k is {top_k}, it must be at least 0")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p is {top_p}, it must be above 0 and at most 1")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p

    def __call__(self, logits: Tensor) -> Tensor:
        logits = logits.float() / self.temperature
        if 0 < self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k).values[:, -1:]
            logits = logits.masked_fill(logits < least, -math.inf)
        chances = logits.softmax(-1)
        if self.top_p < 1:
            ordered, order = chances.sort(-1, descending=True)
            before = ordered.cumsum(-1) - ordered
            kept = ordered.masked_fill(before >= self.top_p, 0)
            chances = torch.zeros_like(chances).scatter_(-1, order, kept)
        # torch.multinomial copies sums to the host. Taking the least of exponential times draws
        # from the same distribution.
        return (chances / torch.empty_like(chances).exponential_()).argmax(-1)
