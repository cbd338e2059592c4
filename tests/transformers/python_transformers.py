"""python_transformers.py: compares figraph.integrations.transformers on the CPU with transformers.

    tests/transformers/python_transformers.py

Run where torch, transformers and figraph can be imported. In float32, all greedy tokens must equal
those of Hugging Face (HF). generate_batch is tested if the package kernels is installed.
tools/bench/transformers_layers.py has the checks that need a GPU.
"""

import functools
import os
import sys
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support")]
import tiny_models as tiny  # noqa: E402  first: it says which kernels there are
import figraph  # noqa: E402
import figraph.integrations.transformers as fit  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from figraph.integrations.transformers import attention, kernel  # noqa: E402
from sentences import refused, run  # noqa: E402

torch.set_num_threads(1)  # more threads do not speed up such small matrix products
FAMILIES = list(tiny.CONFIGS)


@functools.lru_cache(maxsize=None)
def model_of(family):
    return tiny.model_of(family)


@functools.lru_cache(maxsize=None)
def told_by_hf(family):
    """Returns the tokens that HF generates for the eight prompts, and their logits."""
    model = model_of(family)
    model.set_attn_implementation("eager")
    return tiny.generate(model, *tiny.prompts(tiny.LENGTHS))


def figraphs(family):
    told_by_hf(family)
    model = model_of(family)
    model.set_attn_implementation("figraph")
    return model


def same(family, made, rows=slice(None)):
    tokens, logits = told_by_hf(family)
    assert torch.equal(made[0], tokens[rows]), family
    off = (made[1] - logits[:, rows]).abs().max()
    assert off < 1e-4, (family, off)


# ---- The tokens of float32 -----------------------------------------------------------------------


def a_decoder_makes_the_tokens_of_hf():
    for family in FAMILIES:
        told_by_hf(family)
        model = model_of(family)
        ids, mask = tiny.prompts(tiny.LENGTHS)
        decoder = fit.Decoder(model, rows=8, max_tokens=512 + tiny.NEW - 1, eos_token_id=[])
        logits = []
        tokens = decoder.generate(ids, mask, max_new_tokens=tiny.NEW,
                                  every=lambda one: logits.append(one.clone()))
        same(family, (tokens, torch.stack(logits)))


def hf_s_model_makes_its_tokens_by_figraph_over_its_static_cache():
    for family in FAMILIES:
        made = tiny.generate(figraphs(family), *tiny.prompts(tiny.LENGTHS),
                             cache_implementation="static")
        same(family, made)


def hf_s_model_makes_its_tokens_by_figraph_over_a_growing_cache():
    for family in FAMILIES:
        ids, mask = (x[-1:] for x in tiny.prompts(tiny.LENGTHS))
        same(family, tiny.generate(figraphs(family), ids, mask), slice(7, None))


def hf_s_model_makes_its_tokens_by_figraph_over_pages():
    for family in FAMILIES:
        model = figraphs(family)
        cache = fit.PagedCache(model, rows=8, max_tokens=512 + tiny.NEW - 1)
        for _ in range(2 if family == "llama" else 1):
            same(family, tiny.generate(model, *tiny.prompts(tiny.LENGTHS), past_key_values=cache))
            cache.reset()


def in_batches(model, **options):
    """Returns the tokens that generate_batch generates for the eight prompts."""
    asked = transformers.GenerationConfig(max_new_tokens=tiny.NEW, do_sample=False,
                                          eos_token_id=-1, pad_token_id=0)
    cut = transformers.ContinuousBatchingConfig(page_size=32, num_blocks=128,
                                                max_batch_tokens=256, **options)
    ids, mask = tiny.prompts(tiny.LENGTHS)
    words = [row[seen.bool()].tolist() for row, seen in zip(ids, mask)]
    made = model.generate_batch(words, generation_config=asked, continuous_batching_config=cut,
                                progress_bar=False)
    return torch.tensor([one.generated_tokens for one in made.values()])


def generate_batch_makes_the_tokens_of_hf():
    """Prompts longer than max_batch_tokens are divided, and run in one batch with rows of one
    token."""
    for family in FAMILIES:
        tokens, _ = told_by_hf(family)
        model = model_of(family)
        fit.use_kernel(model)
        with unittest.mock.patch.object(kernel, "_rows_apart", wraps=kernel._rows_apart) as called:
            assert torch.equal(in_batches(model), tokens), family
        assert called.call_count > 8, family


def generate_batch_makes_the_tokens_by_block_tables():
    """transformers uses block tables only for rows of one token and only on a GPU; the test removes
    the second condition."""
    room = "transformers.generation.continuous_batching.initialization"
    for family in ("llama", "qwen3"):
        tokens, _ = told_by_hf(family)
        model = model_of(family)
        fit.use_kernel(model)
        with unittest.mock.patch(f"{room}.ensure_decode_fast_path_is_available"), \
                unittest.mock.patch.object(kernel.ft, "append_kv",
                                           wraps=kernel.ft.append_kv) as called:
            made = in_batches(model, max_blocks_per_request=18,
                              decode_compile_config=None, default_compile_level=0)
        assert torch.equal(made, tokens), family
        assert called.call_count > 32, (family, called.call_count)


# ---- Logits of bf16 ------------------------------------------------------------------------------


def fed(model, ids, words, cache):
    """Runs the prompt, then feeds one token of `words` per call; returns the logits of these
    calls."""
    out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    logits = []
    for word in words.T:
        out = model(input_ids=word[:, None], past_key_values=cache, use_cache=True)
        logits.append(out.logits[:, -1].float())
    return torch.stack(logits)


def fed_decoder(model, ids, words):
    waiting = iter(words.T)
    decoder = fit.Decoder(model, rows=len(ids), max_tokens=ids.shape[1] + words.shape[1] + 1,
                          choose=lambda logits: next(waiting, words[:, 0]), eos_token_id=[])
    waiting = iter(words.T)  # starts anew, since the capture has taken a token
    logits = []
    decoder.generate(ids, max_new_tokens=words.shape[1] + 1,
                     every=lambda one: logits.append(one.float().clone()))
    return torch.stack(logits[1:])


def in_bf16_logits_are_nearer_to_float32_than_hf_s():
    """All models are fed with the same tokens, and have the weights of the float32 model. gpt_oss
    uses every expert, since another choice of experts would be a far greater error than any
    rounding. Prompts are short, since HF computes their keys with the errors of its own RoPE; HF's
    queries have the same errors, ours do not."""
    for family in FAMILIES:
        changes = {"num_experts_per_tok": 8} if family == "gpt_oss" else {}
        exact = tiny.model_of(family, **changes)
        exact.set_attn_implementation("eager")
        rounded = tiny.model_of(family, torch.bfloat16, **changes)
        squares = dict.fromkeys(["eager", "sdpa", "decoder", "pages", "static"], 0.0)
        for seed in range(2):
            torch.manual_seed(seed)
            ids, words = torch.randint(3, 512, (16, 8)), torch.randint(3, 512, (16, 40))
            wanted = fed(exact, ids, words, transformers.DynamicCache(config=exact.config))
            for name in squares:
                squares[name] += float((made_in_bf16(rounded, name, ids, words) - wanted).square()
                                       .sum())
        hf_s = min(squares["eager"], squares["sdpa"])
        assert squares["decoder"] < hf_s, (family, squares)
        # Here RoPE is HF's own; its rounding errors are as large as attention's.
        for name in ("pages", "static"):
            assert squares[name] < 1.02 * hf_s, (family, squares)


def made_in_bf16(model, name, ids, words):
    """Returns the logits after each word, computed in one of HF's ways or ours."""
    if name == "decoder":
        return fed_decoder(model, ids, words)
    if name == "sdpa" and not model._supports_sdpa:
        name = "eager"
    model.set_attn_implementation("figraph" if name in ("pages", "static") else name)
    cache = transformers.DynamicCache(config=model.config)
    if name == "pages":
        cache = fit.PagedCache(model, rows=len(ids), max_tokens=80)
    elif name == "static":
        cache = transformers.StaticCache(config=model.config, max_cache_len=80)
    return fed(model, ids, words, cache)


# ---- Masks ---------------------------------------------------------------------------------------


def any_mask_is_taken_as_it_is():
    """Tests masks with holes in the middle and with padding on the right, also with windows."""
    for family in ("llama", "gemma2", "gpt_oss"):
        model = model_of(family)
        ids, mask = tiny.prompts([40, 40, 40])
        mask[0, 10:20] = 0
        mask[1, 30:] = 0
        told = {}
        for name in ("eager", "figraph"):
            model.set_attn_implementation(name)
            cache = transformers.StaticCache(config=model.config, max_cache_len=48)
            out = model(input_ids=ids, attention_mask=mask, past_key_values=cache)
            logits, seen = [out.logits[:, -1]], mask
            for word in (5, 6, 7):
                seen = torch.nn.functional.pad(seen, (0, 1), value=1)
                out = model(input_ids=torch.full((3, 1), word), attention_mask=seen,
                            position_ids=seen.sum(-1, keepdim=True) - 1, past_key_values=cache)
                logits.append(out.logits[:, -1])
            told[name] = torch.stack(logits)
        off = (told["eager"] - told["figraph"]).abs().max()
        assert off < 1e-4, (family, off)


def a_mask_of_numbers_goes_to_torch():
    """A mask of floats is added to the logits, so it cannot be treated as a set of tokens."""
    q, k = torch.randn(2, 4, 1, 64), torch.randn(2, 2, 9, 64)
    mask = torch.randn(2, 1, 1, 9)
    module = torch.nn.Module()
    out, _ = attention.attend(module, q, k, k, mask, softcap=5.0)
    logits = (q.view(2, 2, 2, 64) @ k.transpose(-1, -2)) * 64**-0.5
    logits = torch.tanh(logits / 5) * 5 + mask
    wanted = (logits.softmax(-1) @ k).view(2, 1, 4, 64)
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-5)
    refused("position_bias", lambda: attention.attend(module, q, k, k, mask, position_bias=mask))
    numbers = torch.ones(2, 1, 1, 4, dtype=torch.int32)
    refused("attention_mask is for 2 rows of 3 tokens, the cache has 2 rows of 9",
            lambda: attention.attend(module, q, k, k, numbers))


def a_batch_of_more_rows_than_a_call_takes_is_cut():
    """With padding, each KV head of each row is a row of the call."""
    module = torch.nn.Module()
    for rows, heads, kv_heads, padding in ((129, 8, 8, 3), (1025, 2, 1, 0)):
        q = torch.randn(rows, heads, 1, 64)
        k, v = (torch.randn(rows, kv_heads, 8, 64) for _ in "kv")
        seen = torch.ones(rows, 1, 1, 8, dtype=torch.bool)
        seen[1:, ..., :padding] = False
        numbers = attention.mask(rows, 1, 8, q_offset=7,
                                 attention_mask=seen[:, 0, 0] if padding else None)
        assert numbers.shape[-1] == (9 if padding else 1)
        for sinks in (None, torch.randn(heads)):
            out, _ = attention.attend(module, q, k, v, numbers, s_aux=sinks)
            wanted = attention.attend_prompt(q, k, v, seen, scale=0.125, sinks=sinks)
            torch.testing.assert_close(out, wanted, rtol=0, atol=1e-5)


def torch_compile_takes_a_step_as_one_graph():
    ids, mask = tiny.prompts([3, 7, 12])
    model = tiny.model_of("llama")
    wanted, _ = tiny.generate(model, ids, mask, 6)
    model.set_attn_implementation("figraph")
    asked = transformers.CompileConfig(fullgraph=True, backend="aot_eager", mode=None)
    asked._compile_all_devices = True  # otherwise generate() compiles only on GPUs
    for cache in (None, fit.PagedCache(model, rows=3, max_tokens=17)):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        kind = {"cache_implementation": "static"} if cache is None else {"past_key_values": cache}
        made, _ = tiny.generate(model, ids, mask, 6, compile_config=asked, **kind)
        assert torch.equal(made, wanted)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


# ---- The Decoder ---------------------------------------------------------------------------------


def rows_end_and_others_go_on():
    model = model_of("llama")
    ids, mask = tiny.prompts(tiny.LENGTHS)
    tokens, _ = told_by_hf("llama")
    end = int(tokens[2, 9])  # row 2 ends at this token at the latest
    decoder = fit.Decoder(model, rows=9, max_tokens=575, eos_token_id=end)
    made = decoder.generate(ids, mask, max_new_tokens=tiny.NEW)
    for row in range(8):
        places = (tokens[row] == end).nonzero()
        last = int(places[0]) if len(places) else tiny.NEW - 1
        assert torch.equal(made[row, : last + 1], tokens[row, : last + 1]), row
        assert (made[row, last + 1 :] == decoder.pad_token_id).all(), row
        assert (decoder.lengths[row] == 0) == bool(len(places)), row
    assert decoder.lengths[8] == 0
    length = tiny.LENGTHS[1]
    assert torch.equal(decoder.text[1, :length], ids[1, -length:])


def a_decoder_stops_when_all_rows_have_ended():
    tokens, _ = told_by_hf("llama")
    ids, mask = (x[3:4] for x in tiny.prompts(tiny.LENGTHS))
    decoder = fit.Decoder(model_of("llama"), rows=1, max_tokens=600,
                          eos_token_id=tokens[3, 4].tolist())
    calls = []
    first = int((tokens[3] == tokens[3, 4]).nonzero()[0])
    made = decoder.generate(ids, mask, max_new_tokens=60, every=calls.append)
    assert made.shape == (1, first + 1) and len(calls) == 16, (made.shape, len(calls))


def a_decoder_takes_prompt_after_prompt():
    model = model_of("gemma3")
    ids, mask = tiny.prompts(tiny.LENGTHS)
    tokens, _ = told_by_hf("gemma3")
    decoder = fit.Decoder(model, rows=8, max_tokens=575, page=7, eos_token_id=[])
    for rows in (slice(4, 8), slice(1, 2), slice(0, 8)):
        made = decoder.generate(ids[rows], mask[rows], max_new_tokens=20)
        assert torch.equal(made, tokens[rows, :20])


def weights_are_joined_once_and_the_model_stays():
    model = tiny.model_of("llama")
    ids, mask = tiny.prompts([5, 9])
    before = model(input_ids=ids, attention_mask=mask).logits
    first, second = (fit.Decoder(model, rows=2, max_tokens=32) for _ in "ab")
    weight = first.layers[0].qkv.weight
    assert weight.data_ptr() == second.layers[0].qkv.weight.data_ptr()
    assert weight.data_ptr() == model.model.layers[0].self_attn.q_proj.weight.data_ptr()
    assert torch.equal(model(input_ids=ids, attention_mask=mask).logits, before)


def weights_that_are_written_in_place_reach_a_decoder():
    """q_norm, k_norm, sinks and norms of a wider dtype are copies in a Decoder."""
    ids = torch.randint(3, 512, (2, 7))
    for family, dtype in (("qwen3", None), ("gemma3", None), ("gpt_oss", None),
                          ("gemma2", torch.bfloat16), ("gpt_oss", torch.bfloat16)):
        model = tiny.model_of(family, dtype or torch.float32)
        if family == "gemma2":
            for module in model.modules():
                if type(module).__name__ == "Gemma2RMSNorm":
                    module.float()
        decoder = fit.Decoder(model, rows=2, max_tokens=24, eos_token_id=[])
        assert decoder._copies, family
        first = decoder.generate(ids, max_new_tokens=12)
        reads = [(one.tensor, one.tensor.data_ptr()) for one in decoder._copies]
        for name, weight in model.named_parameters():
            if any(part in name for part in ("_norm", "sinks", "norm.weight")):
                weight.copy_(torch.empty_like(weight).uniform_(-2, 2).bfloat16())
        made = decoder.generate(ids, max_new_tokens=12)
        fresh = fit.Decoder(model, rows=2, max_tokens=24, eos_token_id=[])
        assert torch.equal(made, fresh.generate(ids, max_new_tokens=12)), family
        assert not torch.equal(made, first), family
        assert all(tensor.data_ptr() == at for tensor, at in reads)
        if dtype is None:
            wanted, _ = tiny.generate(model, ids, torch.ones_like(ids), 12)
            assert torch.equal(made, wanted), family


def a_sampler_draws_by_its_chances():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).expand(20000, 4)
    torch.manual_seed(2)
    for sampler, wanted in [
        (fit.Sampler(), [0.5, 0.3, 0.15, 0.05]),
        (fit.Sampler(top_k=2), [0.625, 0.375, 0, 0]),
        (fit.Sampler(top_p=0.7), [0.625, 0.375, 0, 0]),
        (fit.Sampler(top_p=0.1), [1, 0, 0, 0]),
        (fit.Sampler(temperature=0.5), [0.6849, 0.2466, 0.0616, 0.0068]),
    ]:
        drawn = sampler(logits).bincount(minlength=4) / len(logits)
        assert (drawn - torch.tensor(wanted)).abs().max() < 0.015, (drawn, wanted)
    ids, mask = tiny.prompts([4, 9])
    decoder = fit.Decoder(model_of("llama"), rows=2, max_tokens=64, choose=fit.Sampler(0.8, 50),
                          eos_token_id=[])
    made = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        made.append(decoder.generate(ids, mask, max_new_tokens=20))
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])


# ---- The documentation ---------------------------------------------------------------------------


class Letters:
    """A tokenizer that makes a token of each letter, with the interface of HF's tokenizers."""

    def __call__(self, texts, **options):
        assert options == dict(return_tensors="pt", padding=True, padding_side="left")
        ids, mask = tiny.prompts([len(text) for text in texts])
        return transformers.BatchEncoding({"input_ids": ids, "attention_mask": mask})

    def batch_decode(self, ids, skip_special_tokens):
        return [" ".join(map(str, row.tolist())) for row in ids]


def the_page_and_the_tutorial_run():
    import doctest

    page = os.path.join(HERE, "../../docs/transformers.md")
    with open(page, encoding="utf-8") as file:
        blocks = [block.partition("```")[0] for block in file.read().split("```python\n")[1:]]
    names = {}
    for block in blocks:
        exec(block.replace("max_new_tokens=256", "max_new_tokens=4"), names)
    model = tiny.model_of("llama", pad_token_id=0)
    model.generation_config.eos_token_id = None
    answers = names["answers"](model, Letters(), ["abc", "abcdef"])
    assert [len(answer.split()) for answer in answers] == [4, 4]
    ids, mask = tiny.prompts([3, 6])
    assert names["more"](model, ids, mask).shape == (2, 10)
    if tiny.KERNELS:
        asked = transformers.GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1)
        cut = transformers.ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=64)
        made = names["served"](model, [[3, 4, 5]], generation_config=asked, progress_bar=False,
                               continuous_batching_config=cut)
        assert [len(one.generated_tokens) for one in made.values()] == [4]
    told = doctest.testmod(fit)
    assert told.attempted > 5 and told.failed == 0


CASES = [
    a_decoder_makes_the_tokens_of_hf,
    hf_s_model_makes_its_tokens_by_figraph_over_its_static_cache,
    hf_s_model_makes_its_tokens_by_figraph_over_a_growing_cache,
    hf_s_model_makes_its_tokens_by_figraph_over_pages,
    generate_batch_makes_the_tokens_of_hf,
    generate_batch_makes_the_tokens_by_block_tables,
    in_bf16_logits_are_nearer_to_float32_than_hf_s,
    any_mask_is_taken_as_it_is,
    a_mask_of_numbers_goes_to_torch,
    a_batch_of_more_rows_than_a_call_takes_is_cut,
    torch_compile_takes_a_step_as_one_graph,
    rows_end_and_others_go_on,
    a_decoder_stops_when_all_rows_have_ended,
    a_decoder_takes_prompt_after_prompt,
    weights_are_joined_once_and_the_model_stays,
    weights_that_are_written_in_place_reach_a_decoder,
    a_sampler_draws_by_its_chances,
    the_page_and_the_tutorial_run,
]

if __name__ == "__main__":
    if not tiny.KERNELS:
        print("skipped: generate_batch: this Python has no package kernels")
        CASES = [case for case in CASES if not case.__name__.startswith("generate_batch")]
    print(f"ran: figraph {figraph.__version__}, transformers {transformers.__version__}, "
          f"torch {torch.__version__}")
    with torch.no_grad():
        run([case for case in CASES if case.__name__ in (sys.argv[1:] or case.__name__)])
