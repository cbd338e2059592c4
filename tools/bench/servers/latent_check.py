"""latent_check.py: compares outputs of figraph's layers with latent attention in vLLM with float32.

For a few rows of each call, attention is computed over the pages that figraph has just attended
over. Calls with one query per row over pages in bf16 are also computed by vLLM's Triton kernel.
Differences are in units of bf16 of the largest number of a head's output. Invariant: the server
goes on with what figraph wrote.
"""

import collections
import math

import torch
from figraph.integrations.vllm import latent_backend
from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd

ROWS = 4  # of each call; the first and the last are among them
LATENT = 512  # values of a token that are both key and value; its RoPE part follows
SPLITS = 4  # of a row, by Triton's kernel


def units(one, due):
    """Returns the largest difference in units in the last place of bf16."""
    largest = due.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    return ((one.float() - due).abs() / torch.exp2(torch.floor(torch.log2(largest)) - 7)).max()


def latents_of(pages):
    """Returns the tokens of some pages in float32. Tokens of 656 bytes (fp8_ds_mla) have 512 codes,
    a scale for each 128 of them, and the RoPE part in bf16."""
    taken = pages.flatten(0, 1)
    if taken.dtype != torch.uint8:
        return taken.float()
    codes = taken[:, :LATENT].contiguous().view(torch.float8_e4m3fn).float()
    scales = taken[:, LATENT : LATENT + 16].contiguous().view(torch.float32)
    rope = taken[:, LATENT + 16 :].contiguous().view(torch.bfloat16).float()
    return torch.cat([(codes.unflatten(1, (4, 128)) * scales[:, :, None]).flatten(1), rope], 1)


class Call:
    """A call of a layer that figraph has served."""

    def __init__(self, impl, layer, q, cache, metadata):
        self.impl, self.layer, self.cache, self.decode = impl, layer, cache, metadata.decode
        self.q = torch.cat(q, -1) if isinstance(q, tuple) else q
        self.lengths = self.decode.seq_lens.tolist()
        self.rows = len(self.lengths)
        self.starts = metadata.query_start_loc[: self.rows + 1].tolist()
        self.is_single = self.starts == list(range(self.rows + 1))  # one query per row

    def kind(self):
        longest = max(end - start for start, end in zip(self.starts, self.starts[1:]))
        return "decode" if longest == 1 else "short"

    def exact(self, row):
        """Returns, in float32, a row's output and its log-sum-exp, base 2."""
        first, end, length = self.starts[row], self.starts[row + 1], self.lengths[row]
        pages = self.decode.block_table[row, : -(-length // self.cache.shape[1])].long()
        keys = latents_of(self.cache[pages])[:length]
        logits = torch.einsum("nhd,td->nht", self.q[first:end].float(), keys) * self.impl.scale
        last = length - (end - first) + torch.arange(end - first, device=keys.device)
        sees = torch.arange(length, device=keys.device)[None] <= last[:, None]
        logits = logits.masked_fill(~sees[:, None], float("-inf"))
        out = torch.einsum("nht,td->nhd", logits.softmax(-1), keys[:, :LATENT])
        return out, logits.logsumexp(-1) / math.log(2)

    def triton(self):
        """Returns the output of vLLM's Triton kernel, or None where it does not apply."""
        if not self.is_single or self.cache.dtype == torch.uint8:
            return None
        q, heads = self.q[: self.rows], self.q.shape[1]
        out = q.new_zeros(self.rows, heads, LATENT)
        lse = q.new_zeros(self.rows, heads)
        room = torch.empty(self.rows, heads, SPLITS, LATENT + 1, device=q.device)
        wide = self.cache.unsqueeze(2)
        scale = self.layer._k_scale
        decode_attention_fwd(q, wide, wide[..., :LATENT], out, lse, self.decode.block_table,
                             self.decode.seq_lens, room, SPLITS, self.impl.scale, wide.size(1),
                             k_scale=scale, v_scale=scale, is_mla=True)
        return out


class LatentCheck:
    """Compares every call after begin()."""

    def __init__(self):
        self.seen, self.calls = collections.defaultdict(dict), 0
        self.is_on = False
        original = latent_backend.FigraphLatentImpl.forward_mqa

        def forward_mqa(impl, q, cache, metadata, layer):
            made = original(impl, q, cache, metadata, layer)
            if self.is_on:
                self.compare(Call(impl, layer, q, cache, metadata), *made)
            return made

        latent_backend.FigraphLatentImpl.forward_mqa = forward_mqa

    def begin(self):
        self.is_on = True

    def compare(self, call, out, lse):
        best = self.seen[call.kind(), call.rows]
        best["calls"] = best.get("calls", 0) + 1

        def note(key, value):
            best[key] = max(best.get(key, 0.0), float(value))

        triton = call.triton()
        others = (self.calls * 7 + i * 5 for i in range(ROWS - 2))  # other calls take other rows
        for row in {0, call.rows - 1, *(other % call.rows for other in others)}:
            first, end = call.starts[row], call.starts[row + 1]
            if end <= first or call.lengths[row] <= 0:
                continue
            due, due_lse = call.exact(row)
            mine = out[first:end]
            note("largest_difference", (mine.float() - due).abs().max())
            note("largest_number", due.abs().max())
            note("units", units(mine, due))
            note("lse_difference", (lse[first:end] - due_lse).abs().max())
            if triton is not None:
                note("triton_units", units(triton[first:end], due))
        self.calls += 1

    def lines(self):
        """Returns the worst of each kind and number of rows."""
        self.is_on = False
        return [dict(kind=kind, rows=rows, **best)
                for (kind, rows), best in sorted(self.seen.items())]
