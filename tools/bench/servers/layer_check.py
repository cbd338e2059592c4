"""layer_check.py: compares each output of figraph's layers in vLLM with FlashAttention 3's.

FlashAttention 3 attends over the pages that figraph has just attended over, with the same queries.
Over an 8-bit cache it takes 8-bit queries, so figraph attends once more with queries rounded in
this way. For one query of some calls, both are compared with attention in float64. Differences are
in units of bf16 of the largest number of a head's output. Invariant: the server goes on with what
figraph wrote first.
"""

import collections

import torch
from figraph.integrations import paged_decode
from figraph.integrations.vllm import attention_backend
from vllm import _custom_ops
from vllm.vllm_flash_attn import flash_attn_varlen_func

EXACT_EVERY = 5  # calls; one row of these is compared with float64
KEYS = ("largest_difference", "rounded_difference", "largest_number", "units", "rounded_units",
        "figraph_exact_units", "flash_exact_units", "rounded_exact_units")


def unit_of(tensor):
    """Returns a unit in the last place of bf16 at the largest number of each head."""
    largest = tensor.abs().amax(-1, keepdim=True).float().clamp_min(1e-30)
    return torch.exp2(torch.floor(torch.log2(largest)) - 7)


def distance(one, other):
    return (one.float() - other.float()).abs().max()


def units(one, other):
    """Returns the largest difference in units."""
    return ((one.double() - other.double()).abs() / unit_of(other)).max()


class Call:
    """A call of a layer that figraph has served."""

    def __init__(self, impl, layer, query, kv_cache, metadata):
        self.impl, self.layer, self.kv_cache, self.metadata = impl, layer, kv_cache, metadata
        self.batch = metadata.figraph
        self.query = query[: self.batch.tokens]
        self.cache = impl._cache(layer, kv_cache)
        self.is_narrow = self.cache.k.dtype == torch.float8_e4m3fn
        if self.is_narrow:
            flat = self.query.reshape(self.query.shape[0], -1).contiguous()
            self.codes = _custom_ops.scaled_fp8_quant(flat, layer._q_scale)[0].view_as(self.query)
            self.rounded = (self.codes.float() * layer._q_scale).to(query.dtype)

    def flash(self):
        """Returns FlashAttention 3's output."""
        made, impl, scales = self.metadata, self.impl, {}
        rows = made.query_start_loc.shape[0] - 1
        if self.is_narrow:
            scales = {f"{name}_descale": scale.expand(rows, impl.num_kv_heads) for name, scale in
                      (("q", self.layer._q_scale), ("k", self.layer._k_scale),
                       ("v", self.layer._v_scale))}
        out = torch.empty_like(self.query)
        flash_attn_varlen_func(
            q=self.codes if self.is_narrow else self.query, k=self.cache.k, v=self.cache.v,
            out=out, cu_seqlens_q=made.query_start_loc, max_seqlen_q=made.max_query_len,
            seqused_k=made.seq_lens, max_seqlen_k=made.max_seq_len, softmax_scale=impl.scale,
            causal=True, block_table=made.block_table, fa_version=3, **scales)
        return out

    def again(self):
        """Returns figraph's output for rounded queries. The batch must have one query per row."""
        out = torch.empty_like(self.query)
        batch = paged_decode.Batch(self.metadata.seq_lens, self.metadata.block_table)
        batch.attend(self.impl._layer, self.rounded, self.cache, out)
        return out

    def query_of(self, number):
        """Returns a query, its row and the tokens that it sees. Other numbers give other rows, and
        other queries of a row."""
        starts = self.metadata.query_start_loc
        row = number % (starts.shape[0] - 1)
        first, end = int(starts[row]), int(starts[row + 1])
        query = first + number * 7 % max(end - first, 1)
        return query, row, int(self.metadata.seq_lens[row]) - (end - 1 - query)

    def exact(self, row, length, q):
        """Returns, in float64, the output of a query that sees `length` tokens of its row."""
        page = self.cache.k.shape[1]
        pages = self.metadata.block_table[row, : -(-length // page)].long()
        sides = self.impl._cache(self.layer, self.kv_cache[pages])
        k, v = (side.float().double().flatten(0, 1)[:length] for side in sides[:2])
        if self.is_narrow:
            k, v = k * self.layer._k_scale.double(), v * self.layer._v_scale.double()
        q = q.double().unflatten(0, (self.impl.num_kv_heads, -1))
        weights = (torch.einsum("hgd,thd->hgt", q, k) * self.impl.scale).softmax(-1)
        return torch.einsum("hgt,thd->hgd", weights, v).flatten(0, 1)


class LayerCheck:
    """Compares every call after begin()."""

    def __init__(self):
        self.seen, self.calls = collections.defaultdict(list), 0
        self.is_on = False
        original = attention_backend.FigraphImpl.forward

        def forward(impl, layer, query, key, value, kv_cache, attn_metadata, output, *rest,
                    **named):
            made = original(impl, layer, query, key, value, kv_cache, attn_metadata, output, *rest,
                            **named)
            batch = getattr(attn_metadata, "figraph", None)
            if self.is_on and batch is not None and impl._served.get(batch.row_tokens):
                self.compare(Call(impl, layer, query, kv_cache, attn_metadata), output)
            return made

        attention_backend.FigraphImpl.forward = forward

    def begin(self):
        self.is_on = True

    def compare(self, call, output):
        mine = output.view(-1, *call.query.shape[1:])[: call.batch.tokens]
        theirs = call.flash()
        is_decode = call.batch.row_tokens == 1
        found = {"largest_difference": distance(mine, theirs),
                 "largest_number": theirs.abs().max().float(), "units": units(mine, theirs)}
        again = call.again() if call.is_narrow and is_decode else None
        if again is not None:
            found["rounded_difference"] = distance(again, theirs)
            found["rounded_units"] = units(again, theirs)
        if self.calls % EXACT_EVERY == 0:
            query, row, length = call.query_of(self.calls)
            due = call.exact(row, length, call.query[query])
            found["figraph_exact_units"] = units(mine[query], due)
            if again is not None:
                due = call.exact(row, length, call.rounded[query])
                found["rounded_exact_units"] = units(again[query], due)
            found["flash_exact_units"] = units(theirs[query], due)
        self.calls += 1
        kind = {1: "decode", 0: "prompts"}.get(call.batch.row_tokens, "drafts")
        rows = call.metadata.query_start_loc.shape[0] - 1
        self.seen[kind, rows].append(found)

    def lines(self):
        """Returns the worst of each kind and number of rows."""
        self.is_on = False
        made = []
        for (kind, rows), calls in sorted(self.seen.items()):
            line = dict(kind=kind, rows=rows, calls=len(calls))
            for key in KEYS:
                numbers = [float(call[key]) for call in calls if key in call]
                line[key] = max(numbers) if numbers else None
            made.append(line)
        return made
