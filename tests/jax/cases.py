"""cases.py: float64 references for the tests of both interfaces (XLA and TVM FFI).
"""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from sentences import refused, run  # noqa: E402, F401


def close(got, expected, tolerance):
    np.testing.assert_allclose(
        np.asarray(got).astype(np.float64), expected, rtol=tolerance, atol=tolerance
    )


def silu_and_mul(x):
    gate, up = np.split(np.asarray(x).astype(np.float64), 2, axis=-1)
    return gate / (1 + np.exp(-gate)) * up


def llama31(frequency, factor, low, high, context):
    """Divides frequencies whose wavelength is above context / low by `factor`, and keeps those
    whose wavelength is below context / high."""
    turns = context * frequency / (2 * np.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return frequency * ((1 - share) / factor + share)


def rope(x, positions, theta=1e4, scale=1.0, rotary_dim=None, interleave=False, llama=None):
    """x: [rows][heads][dim]"""
    x = np.asarray(x).astype(np.float64)
    d = rotary_dim or x.shape[-1]
    frequency = theta ** (-np.arange(0, d, 2) / d)
    if llama is not None:
        frequency = llama31(frequency, *llama)
    angle = np.asarray(positions, np.float64)[:, None, None] * frequency / scale
    out = x.copy()
    low, high = slice(0, d // 2), slice(d // 2, d)
    if interleave:
        low, high = slice(0, d, 2), slice(1, d, 2)
    out[..., low] = x[..., low] * np.cos(angle) - x[..., high] * np.sin(angle)
    out[..., high] = x[..., low] * np.sin(angle) + x[..., high] * np.cos(angle)
    return out


def attention(q, k, v, sm_scale=None, soft_cap=0.0, window=0, alibi=None):
    """q: [q_heads][dim], k and v: [tokens][kv_heads][dim]; returns out, and lse in base 2."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    group = q.shape[0] // k.shape[1]
    if k.shape[0] == 0:
        return np.zeros_like(q), np.full(q.shape[0], -np.inf)
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    logits = np.einsum("hd,thd->ht", q, k) * (sm_scale or q.shape[-1] ** -0.5)
    behind = np.arange(k.shape[0]) - (k.shape[0] - 1)
    if alibi is not None:
        logits = logits + np.asarray(alibi, np.float64)[:, None] * behind
    if soft_cap > 0:
        logits = soft_cap * np.tanh(logits / soft_cap)
    if window > 0:
        logits = np.where(behind > -window, logits, -np.inf)
    most = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - most)
    total = weights.sum(axis=1, keepdims=True)
    out = np.einsum("ht,thd->hd", weights / total, v)
    return out, (np.log(total) + most)[:, 0] / np.log(2)


# ---- Latent caches


def e4m3(codes):
    """Returns the numbers of e4m3 codes."""
    codes = np.asarray(codes).astype(np.int64)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6,
                    (1 + mantissa / 8) * 2.0 ** (exponent.astype(np.float64) - 7))
    return np.where(codes & 128, -size, size)


def latents(tokens):
    """tokens: [tokens][576], or uint8 [tokens][656]; returns [tokens][576]."""
    tokens = np.ascontiguousarray(tokens)
    if tokens.dtype != np.uint8:
        return tokens.astype(np.float64)
    scales = np.ascontiguousarray(tokens[:, 512:528]).view(np.float32).astype(np.float64)
    turned = np.ascontiguousarray(tokens[:, 528:]).view(np.uint16).astype(np.uint32) << 16
    values = e4m3(tokens[:, :512]) * np.repeat(scales, 128, axis=1)
    return np.concatenate((values, turned.view(np.float32)), axis=1)


def latent_token(latent, position, weight=None, epsilon=1e-6, **angles):
    """latent: [576]; returns the token that a step appends."""
    latent = np.asarray(latent).astype(np.float64)
    values = latent[:512]
    if weight is not None:
        values = values / np.sqrt((values**2).mean() + epsilon) * np.asarray(weight, np.float64)
    turned = rope(latent[None, None, 512:], [position], **angles)[0, 0]
    return np.concatenate((values, turned))


def latent_attention(q, tokens, sm_scale, window=0, sinks=None):
    """q: [heads][576], tokens: [tokens][576] or [656]; returns out [heads][512], and lse in base
    2."""
    q, tokens = np.asarray(q).astype(np.float64), latents(tokens)
    if tokens.shape[0] == 0:
        return np.zeros((q.shape[0], 512)), np.full(q.shape[0], -np.inf)
    tokens = tokens[-window:] if window > 0 else tokens
    logits = q @ tokens.T * sm_scale
    if sinks is not None:
        logits = np.concatenate((logits, np.asarray(sinks, np.float64)[:, None]), axis=1)
    most = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - most)
    total = weights.sum(axis=1, keepdims=True)
    out = (weights / total)[:, : tokens.shape[0]] @ tokens[:, :512]
    return out, (np.log(total) + most)[:, 0] / np.log(2)
