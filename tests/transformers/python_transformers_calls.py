"""python_transformers_calls.py: tests the calls that figraph.integrations.transformers refuses, and
compares its functions with FlashAttention's names with float64.

    tests/transformers/python_transformers_calls.py

Run where torch, transformers and figraph can be imported.
"""

import functools
import os
import sys
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support")]
import tiny_models as tiny  # noqa: E402
import figraph.integrations.transformers as fit  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from figraph import errors, operands  # noqa: E402
from figraph.integrations.transformers import decoder as decoder_module  # noqa: E402
from figraph.integrations.transformers import kernel  # noqa: E402
from sentences import refused, run  # noqa: E402

torch.set_num_threads(1)


# ---- Wrong use -----------------------------------------------------------------------------------


def a_decoder_refuses_models_that_it_would_get_wrong():
    model = tiny.model_of("llama")

    def make(**changes):
        return fit.Decoder(**{"model": model, "rows": 2, "max_tokens": 24, **changes})

    refused("model is a Linear, it must be a causal language model of transformers",
            lambda: make(model=torch.nn.Linear(2, 2)), TypeError)
    refused("model is a LlamaModel without model.layers", lambda: make(model=model.model),
            TypeError)
    other = transformers.AutoModelForCausalLM.from_config(
        transformers.GPT2Config(n_layer=1, n_embd=64, n_head=2, vocab_size=16))
    refused("model has the model_type gpt2, a Decoder takes llama", lambda: make(model=other),
            NotImplementedError)
    refused("model has the dtype float64", lambda: make(model=tiny.model_of("llama").double()),
            TypeError)
    for name in ("rows", "max_tokens", "page"):
        refused(f"{name} is 0, it must be at least 1", lambda: make(**{name: 0}), ValueError)

    def changed(change):
        made = tiny.model_of("llama")
        change(made)
        return make(model=made)

    class Adapter(torch.nn.Linear):
        pass

    def adapt(made):
        made.model.layers[1].self_attn.k_proj = Adapter(128, 128, bias=False)

    refused("model.layers.1.self_attn.k_proj of Adapter", lambda: changed(adapt), TypeError)
    refused("model.layers.0.mlp.down_proj with forward hooks", lambda: changed(
        lambda made: made.model.layers[0].mlp.down_proj.register_forward_hook(print)), TypeError)
    refused("model.norm of LlamaRMSNorm", lambda: changed(
        lambda made: made.model.norm.register_forward_hook(print)), TypeError)
    refused("model.layers.0.mlp.up_proj of bfloat16", lambda: changed(
        lambda made: made.model.layers[0].mlp.up_proj.bfloat16()), TypeError)
    refused("model has model.layers.1.mlp.up_proj.weight on meta", lambda: changed(
        lambda made: made.model.layers[1].mlp.up_proj.to("meta")), ValueError)


def experts_that_wait_are_refused_on_a_gpu():
    model = tiny.model_of("gpt_oss")
    model.set_experts_implementation("eager")
    refuse = functools.partial(decoder_module._refuse_waiting_experts, model, True)
    refuse(torch.device("cpu"))
    refused('model has experts_implementation="eager", which waits',
            lambda: refuse(torch.device("cuda")), ValueError)
    made = fit.Decoder(model, rows=1, max_tokens=8)
    with unittest.mock.patch.object(made._decode, "capture", side_effect=RuntimeError("CUDA")):
        refused("CUDA", made._capture, RuntimeError)
        made.device = torch.device("cuda")
        refused('could not be captured: call model.set_experts_implementation("batched_mm"',
                made._capture, ValueError)


def a_decoder_refuses_wrong_prompts():
    decoder = fit.Decoder(tiny.model_of("llama"), rows=2, max_tokens=12, eos_token_id=[])
    ids, mask = tiny.prompts([4, 6])
    ask = decoder.generate
    refused("max_new_tokens is 8 after a prompt of 6 tokens, max_tokens is 12",
            lambda: ask(ids, mask, max_new_tokens=8), errors.TooLarge)
    refused("max_new_tokens is 0", lambda: ask(ids, mask, max_new_tokens=0), ValueError)
    long, seen = tiny.prompts([13])
    refused("input_ids has a prompt of 13 tokens, max_tokens is 12",
            lambda: decoder.prompt(long, seen), errors.TooLarge)
    refused("input_ids is [3, 5], the Decoder has 2 rows",
            lambda: decoder.prompt(torch.ones(3, 5, dtype=torch.int64)), ValueError)
    refused("input_ids must be a tensor of integers", lambda: decoder.prompt(ids.float()),
            TypeError)
    refused("attention_mask is [2, 5], it must be [2, 6]", lambda: decoder.prompt(ids, mask[:, 1:]),
            ValueError)
    refused("padded on the left", lambda: decoder.prompt(ids, mask.flip(1)), ValueError)
    refused("input_ids is on meta, the model is on cpu", lambda: decoder.prompt(ids.to("meta")),
            ValueError)
    assert ask(ids, mask, max_new_tokens=7).shape == (2, 7)
    refused("max_tokens is 12, and a row already has that many", decoder.step, errors.TooLarge)
    for wrong, name in (({"temperature": 0}, "temperature"), ({"top_k": -1}, "top_k"),
                        ({"top_p": 1.5}, "top_p")):
        refused(f"{name} is", lambda: fit.Sampler(**wrong), ValueError)


def a_decoder_refuses_weights_that_it_would_not_read():
    ids, _ = tiny.prompts([4])

    def changed(family, change):
        model = tiny.model_of(family)
        decoder = fit.Decoder(model, rows=1, max_tokens=12, eos_token_id=[])
        assert decoder.generate(ids, max_new_tokens=2).shape == (1, 2)
        change(model)
        return decoder.generate(ids, max_new_tokens=2)

    def assign(model):
        model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)

    def replace(model):
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())

    words = "the model's weights were replaced: make a new Decoder"
    refused(words, lambda: changed("llama", assign), errors.Stale)
    refused(f"{words} (lm_head.weight is", lambda: changed("llama", replace), errors.Stale)
    refused(words, lambda: changed("qwen3", lambda model: model.double()), errors.Stale)
    model = tiny.model_of("gemma2", torch.bfloat16)
    model.model.norm.float()
    decoder = fit.Decoder(model, rows=1, max_tokens=12, eos_token_id=[])
    decoder.generate(ids, max_new_tokens=2)
    was = decoder._last_norm.weight.clone()
    model.model.norm.weight[3] = 1 + 2.0**-20
    refused("a norm of the model has new weights that the model's dtype torch.bfloat16 cannot hold "
            "exactly: make a new Decoder", lambda: decoder.prompt(ids), errors.Stale)
    assert torch.equal(decoder._last_norm.weight, was)
    model.model.norm.weight[3] = 1.5
    decoder.prompt(ids)
    assert decoder._last_norm.weight[3] == 1.5


def a_paged_cache_refuses_calls_that_it_would_get_wrong():
    model = tiny.model_of("llama")
    refused('model has attn_implementation="sdpa", a PagedCache needs "figraph"',
            lambda: fit.PagedCache(model, rows=2, max_tokens=12), ValueError)
    model.set_attn_implementation("figraph")
    refused("max_tokens is 0", lambda: fit.PagedCache(model, rows=2, max_tokens=0), ValueError)
    refused("rows is 1025, a PagedCache of 2 KV heads and 16 tokens takes at most 1024",
            lambda: fit.PagedCache(model, rows=1025, max_tokens=12), errors.TooLarge)
    cache = fit.PagedCache(model, rows=2, max_tokens=8)
    ids, mask = tiny.prompts([4, 6])

    def feed(ids, **more):
        return model(input_ids=ids, past_key_values=cache, **more).logits[:, -1]

    refused("key_states is [1, 2, 6, 64], the PagedCache has 2 rows", lambda: feed(ids[1:]),
            ValueError)
    feed(ids, attention_mask=mask)
    assert cache.lengths.tolist() == [4, 6]
    refused("the PagedCache has a prompt already", lambda: feed(ids), errors.Order)
    cache.reset()
    wanted = model(input_ids=ids[1:]).logits[:, -1]
    torch.testing.assert_close(feed(ids, attention_mask=mask)[1:], wanted)
    for _ in range(2):
        feed(ids[:, :1])
    refused("a row has 9 tokens, max_tokens is 8", lambda: feed(ids[:, :1]), errors.TooLarge)
    cache.reset()
    refused("a row has 9 tokens", lambda: feed(torch.ones(2, 9, dtype=torch.int64)),
            errors.TooLarge)
    refused("PagedCache does not reorder", lambda: cache.reorder_cache(torch.tensor([1, 0])))
    model.bfloat16()
    cache.reset()
    refused("key_states is torch.bfloat16, the PagedCache is torch.float32", lambda: feed(ids),
            TypeError)


# ---- FlashAttention's functions ------------------------------------------------------------------


def plain(q, k, v, window, cap, sinks):
    """Returns attention of q [heads, dim] over k and v [tokens, kv_heads, dim]."""
    group = q.shape[0] // k.shape[1]
    k, v = (x[-window if window else 0:].double().repeat_interleave(group, 1) for x in (k, v))
    logits = torch.einsum("hd,thd->ht", q.double(), k) * q.shape[-1] ** -0.5
    if cap:
        logits = torch.tanh(logits / cap) * cap
    if sinks is not None:
        logits = torch.cat((logits, sinks.double()[:, None]), 1)
    weights = logits.softmax(-1)[:, : len(k)]
    return torch.einsum("ht,thd->hd", weights, v).float()


KINDS = [{}, {"window_size": (4, 4)}, {"softcap": 3.0}, {"s_aux": torch.tensor([1.0, -1, 0, 2])}]


def flash_attn_with_kvcache_appends_and_attends():
    lengths = torch.tensor([0, 5, 23, -1], dtype=torch.int32)
    for kind in KINDS:
        torch.manual_seed(4)
        pool = torch.randn(2 * 24, 8, 2, 64)  # pages of keys and pages of values alternate
        caches = {"apart": (pool[:24].clone(), pool[24:].clone(), 1),
                  "one": (pool[:-1], pool[1:], 2)}
        order = torch.randperm(12)[:12].view(4, 3).int()
        for k_cache, v_cache, step in caches.values():
            table = order * step
            q, k, v = (torch.randn(4, 1, heads, 64) for heads in (4, 2, 2))
            old = [c[table.long()].flatten(1, 2).clone() for c in (k_cache, v_cache)]
            out = kernel.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths,
                                                 block_table=table, causal=True, **kind)
            assert not out[3].any()
            for row, length in enumerate(lengths.tolist()[:3]):
                keys, values = (torch.cat((past[row, :length], new[row]))
                                for past, new in zip(old, (k, v)))
                wanted = plain(q[row, 0], keys, values, 5 if "window_size" in kind else 0,
                               kind.get("softcap"), kind.get("s_aux"))
                torch.testing.assert_close(out[row, 0], wanted, rtol=0, atol=1e-5)
                here = k_cache[table[row].long()].flatten(0, 1)[length]
                assert torch.equal(here, k[row, 0])


def flash_attn_varlen_func_takes_rows_of_any_length():
    """Tests rows whose queries follow a cache, a prompt, an empty row, and tokens at the end that
    belong to no row."""
    counts = [(1, 9), (6, 6), (0, 0), (3, 11), (1, 1)]
    begin_q, begin_k = (torch.tensor([0, *(pair[i] for pair in counts)]).cumsum(0).int()
                        for i in (0, 1))
    q, k, v = torch.randn(13, 4, 64), torch.randn(29, 2, 64), torch.randn(29, 2, 64)
    for kind in KINDS:
        logits = kernel._logits(q, None, kind.get("window_size", (-1, -1)), kind.get("softcap", 0))
        made = [kernel.flash_attn_varlen_func(q, k, v, begin_q, begin_k, 6, 11, causal=True,
                                              **kind),
                kernel._each_token(q, k, v, begin_q, begin_k, 11, logits, kind.get("s_aux"))]
        for out in made:
            assert not out[11:].any()
            for row, (queries, keys) in enumerate(counts):
                for n in range(queries):
                    at = int(begin_k[row]) + keys - queries + n + 1
                    here = slice(int(begin_k[row]), at)
                    wanted = plain(q[begin_q[row] + n], k[here], v[here], logits.window,
                                   logits.soft_cap, kind.get("s_aux"))
                    torch.testing.assert_close(out[begin_q[row] + n], wanted, rtol=0, atol=1e-5)


def flash_attention_s_functions_take_more_rows_than_a_call():
    rows, table = 1025, torch.arange(1025, dtype=torch.int32)[:, None]
    q, k, v = (torch.randn(rows, heads, 64) for heads in (2, 1, 1))
    begin = torch.arange(rows + 1, dtype=torch.int32)
    wanted = v.expand(q.shape)  # each row sees one token
    logits = kernel._logits(q, None, (-1, -1), 0)
    pages = torch.randn(rows, 4, 1, 64)
    for out in (kernel._each_token(q, k, v, begin, begin, 1, logits, None),
                kernel._rows_apart(q, k, v, begin.tolist(), begin.tolist(), logits, None),
                kernel.flash_attn_with_kvcache(q[:, None], pages, pages.clone(), k[:, None],
                                               v[:, None], cache_seqlens=torch.zeros(rows).int(),
                                               block_table=table)[:, 0]):
        torch.testing.assert_close(out, wanted, rtol=0, atol=1e-5)
    assert torch.equal(pages[:, 0], k)
    # The library counts heads and tokens too.
    for kv_heads, width, most in ((1, 1, 1024), (16, 1 << 20, 1024), (17, 1 << 20, 963),
                                  (32, (1 << 19) + 1, 512), (32, 1 << 19, 1024),
                                  (32, 1 << 21, 512)):
        form = operands.Form(most, kv_heads, 64, 1, width, "f32")
        assert operands.rows_at_most(kv_heads, width) == most, (kv_heads, width)
        operands.scratch_bytes("float32", kv_heads, form, 0)
        refused("batch_limit", lambda: operands.scratch_bytes(
            "float32", kv_heads, form._replace(rows=most + 1), 0), errors.TooLarge)


def flash_attention_s_functions_refuse_by_name():
    q, cache = torch.randn(2, 1, 4, 64), torch.randn(6, 8, 2, 64)
    lengths, table = torch.tensor([3, 4]).int(), torch.arange(6).view(2, 3).int()

    def ask(q=q, k_cache=cache, v_cache=cache.clone(), k=None, v=None, cache_seqlens=lengths,
            block_table=table, **more):
        return kernel.flash_attn_with_kvcache(q, k_cache, v_cache, k, v,
                                              cache_seqlens=cache_seqlens,
                                              block_table=block_table, **more)

    ask()
    for words, wrong in [
        ("q is [2, 2, 4, 64], it must be [any, 1, any, any]", {"q": q.expand(2, 2, 4, 64)}),
        ("k_cache is torch.float64, q is torch.float32", {"k_cache": cache.double()}),
        ("v_cache is [5, 8, 2, 64], it must be [6, 8, 2, 64]", {"v_cache": cache[1:].clone()}),
        ("v_cache is on meta, q is on cpu", {"v_cache": cache.to("meta")}),
        ("cache_seqlens is torch.float32", {"cache_seqlens": lengths.float()}),
        ("cache_seqlens is [1], it must be [2]", {"cache_seqlens": lengths[:1]}),
        ("block_table is [1, 3], it must be [2, any]", {"block_table": table[:1]}),
        ("block_table has an odd page", {"k_cache": cache[:-1], "v_cache": cache[1:]}),
        ("k and v: one is given", {"k": torch.randn(2, 1, 2, 64)}),
        ("k is [2, 1, 3, 64], it must be [2, 1, 2, 64]", {"k": torch.randn(2, 1, 3, 64),
                                                          "v": torch.randn(2, 1, 3, 64)}),
        ("rotary_cos", {"rotary_cos": q}),
    ]:
        refused(words, lambda: ask(**wrong), (TypeError, ValueError))
    q, k, begin = torch.randn(4, 4, 64), torch.randn(4, 2, 64), torch.tensor([0, 4]).int()
    one = kernel.flash_attn_varlen_func
    refused("causal is False", lambda: one(q, k, k, begin, begin, 4, 4), NotImplementedError)
    refused("cu_seqlens_k is [3], it must be [2]", lambda: one(
        q, k, k, begin, torch.tensor([0, 2, 4]), 4, 4, causal=True), ValueError)
    refused("v is torch.bfloat16, q is torch.float32", lambda: one(
        q, k, k.bfloat16(), begin, begin, 4, 4, causal=True), TypeError)


def the_kernel_folder_is_named_once():
    before = os.environ.get("LOCAL_KERNELS")
    with unittest.mock.patch.dict(os.environ, {"LOCAL_KERNELS": "a/b=/c"}):
        model = unittest.mock.Mock(_compatible_flash_implementations=["x"])
        for _ in range(2):
            fit.use_kernel(model)
        assert os.environ["LOCAL_KERNELS"] == f"a/b=/c:{kernel.NAME}={fit.kernel_folder()}"
        assert model._compatible_flash_implementations.count(kernel.NAME) == 1
    assert os.environ.get("LOCAL_KERNELS") == before
    assert os.path.exists(os.path.join(fit.kernel_folder(), "build/torch-universal/metadata.json"))


if __name__ == "__main__":
    with torch.no_grad():
        run([
            a_decoder_refuses_models_that_it_would_get_wrong,
            experts_that_wait_are_refused_on_a_gpu,
            a_decoder_refuses_wrong_prompts,
            a_decoder_refuses_weights_that_it_would_not_read,
            a_paged_cache_refuses_calls_that_it_would_get_wrong,
            flash_attn_with_kvcache_appends_and_attends,
            flash_attn_varlen_func_takes_rows_of_any_length,
            flash_attention_s_functions_take_more_rows_than_a_call,
            flash_attention_s_functions_refuse_by_name,
            the_kernel_folder_is_named_once,
        ])
