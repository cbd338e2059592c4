"""transformers_layers.py: compares figraph.integrations.transformers on a GPU with the fastest way
of transformers itself.

    tools/bench/transformers_layers.py [--attention] [--csv FILE] [--budget SECONDS]

First the tokens of float32 and the logits of bf16 are compared with HF's. Then a step of a model of
llama-3.1-8b's shape with 8 layers is timed, from a token to the next: a Decoder, and HF's model
with a StaticCache under torch.compile(mode="reduce-overhead"). --attention also times HF's model
with attn_implementation="figraph", compiled in the same way. Exits with code 1 if a number is
wrong, a step is slower than HF's, or 8x2048 is not 1.9 times as fast. Run where torch, transformers
and figraph can be imported.
"""

import argparse
import csv
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../tests/transformers")]
import tiny_models as tiny  # noqa: E402
import figraph  # noqa: E402
import figraph.integrations.transformers as fit  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

CELLS = [(8, 2048), (32, 2048), (1, 512), (8, 512), (32, 512), (1, 2048)]
BARS = {(8, 2048): 1.9}  # all other cells: 1
WARM, TIMED, TIMES = 8, 30, 3
ROOM = 128  # tokens that a cache has beyond the prompt
LLAMA = dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
             num_key_value_heads=8, head_dim=128, max_position_embeddings=131072,
             rope_parameters=dict(rope_type="llama3", rope_theta=5e5, factor=8.0,
                                  low_freq_factor=1.0, high_freq_factor=4.0,
                                  original_max_position_embeddings=8192))
SMALL = dict(vocab_size=512, hidden_size=256, intermediate_size=512, num_attention_heads=4,
             num_key_value_heads=2, head_dim=64)


def read_words():
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--attention", action="store_true")
    words.add_argument("--csv", default="transformers_layers.csv")
    words.add_argument("--budget", type=float, default=215, help="seconds; then no cell begins")
    words.add_argument("--device", default="cuda")
    words.add_argument("--small", action="store_true", help="a small model, to try this script")
    return words.parse_args()


def model_of(words, layers, dtype):
    shape = {**LLAMA, **SMALL} if words.small else LLAMA
    config = transformers.LlamaConfig(**shape, num_hidden_layers=layers, tie_word_embeddings=False)
    torch.manual_seed(1)
    with torch.device(words.device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model.eval().requires_grad_(False)


def prompt_of(words, model, rows, tokens):
    make = torch.Generator(words.device).manual_seed(rows + tokens)
    return torch.randint(3, model.config.vocab_size, (rows, tokens), generator=make,
                         device=words.device)


# ---- Numbers -------------------------------------------------------------------------------------


def wrong_tokens(words):
    """Returns the number of tokens in float32, over all families, that differ from HF's."""
    wrong = 0
    ids, mask = tiny.prompts(tiny.LENGTHS, words.device)
    for family in tiny.CONFIGS:
        model = tiny.model_of(family, device=words.device)
        model.set_attn_implementation("eager")
        if family == "gpt_oss":
            model.set_experts_implementation("batched_mm")  # the others wait for the host
        tokens, _ = tiny.generate(model, ids, mask)
        decoder = fit.Decoder(model, rows=8, max_tokens=575, eos_token_id=[])
        made = {"decoder": decoder.generate(ids, mask, max_new_tokens=tiny.NEW)}
        model.set_attn_implementation("figraph")
        cache = fit.PagedCache(model, rows=8, max_tokens=575)
        for name, kind in (("static", dict(cache_implementation="static", disable_compile=True)),
                           ("pages", dict(past_key_values=cache, disable_compile=True))):
            made[name], _ = tiny.generate(model, ids, mask, **kind)
        counts = {name: int((one != tokens).sum()) for name, one in made.items()}
        print(f"  {family:8} float32, 8 x 64 tokens: other than HF's {counts}", flush=True)
        wrong += sum(counts.values())
    return wrong


def fed(model, ids, words):
    """Returns the logits of HF's model after each word."""
    cache = transformers.DynamicCache(config=model.config)
    model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return torch.stack([model(input_ids=word[:, None], past_key_values=cache, use_cache=True)
                        .logits[:, -1].float() for word in words.T])


def fed_decoder(model, ids, words):
    """Returns the logits of a Decoder after each word."""
    places = torch.zeros(1, dtype=torch.int64, device=ids.device)

    def choose(logits):
        word = words.index_select(1, places)[:, 0]
        places.add_(1)
        return word

    decoder = fit.Decoder(model, rows=len(ids), max_tokens=ids.shape[1] + words.shape[1] + 1,
                          choose=choose, eos_token_id=[])
    places.zero_()
    decoder.prompt(ids)
    logits = []
    for _ in range(words.shape[1]):
        places.clamp_(max=words.shape[1] - 1)
        decoder.step()
        logits.append(decoder.logits.float())
    return torch.stack(logits)


def bf16_errors(words):
    """Returns the errors of HF's and a Decoder's logits against float32, for 2 layers."""
    exact = model_of(words, 2, torch.float32)
    rounded = model_of(words, 2, torch.bfloat16)
    for mine, theirs in zip(exact.parameters(), rounded.parameters()):
        mine.data.copy_(theirs.data)
    ids = prompt_of(words, exact, 8, 8)
    given = prompt_of(words, exact, 8, 40)
    wanted = fed(exact, ids, given)
    return [float((made - wanted).norm() / wanted.norm())
            for made in (fed(rounded, ids, given), fed_decoder(rounded, ids, given))]


# ---- Times ---------------------------------------------------------------------------------------


def best_us(step):
    """Returns the time of a step in the fastest of several series."""
    for _ in range(WARM):
        step()
    best = float("inf")
    for _ in range(TIMES):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(TIMED):
            step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - began) / TIMED)
    return 1e6 * best


def decoder_us(model, ids):
    decoder = fit.Decoder(model, rows=len(ids), max_tokens=ids.shape[1] + ROOM, eos_token_id=[])
    decoder.prompt(ids)
    return best_us(decoder.step)


def compiled_us(model, ids):
    """Times HF's model over its StaticCache, compiled with the choice of the next token."""
    torch._dynamo.reset()
    cache = transformers.StaticCache(config=model.config, max_cache_len=ids.shape[1] + ROOM)
    logits = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
    token = logits[:, -1].argmax(-1, keepdim=True)
    position = torch.full((1, 1), ids.shape[1], dtype=torch.int64, device=ids.device)

    def one(token, position):
        out = model(input_ids=token, position_ids=position, past_key_values=cache, use_cache=True)
        return out.logits[:, -1].argmax(-1, keepdim=True)

    compiled = torch.compile(one, mode="reduce-overhead", fullgraph=True)
    state = [token]

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        state[0] = compiled(state[0].clone(), position)
        position.add_(1)

    return best_us(step)


def cell_of(words, model, rows, tokens):
    ids = prompt_of(words, model, rows, tokens)
    model.set_attn_implementation("sdpa")
    mine = decoder_us(model, ids)
    theirs = compiled_us(model, ids)
    cell = dict(rows=rows, tokens=tokens, figraph_us=round(mine), hf_us=round(theirs),
                hf_over_figraph=round(theirs / mine, 2))
    if words.attention:
        model.set_attn_implementation("figraph")
        cell["hf_with_figraph_us"] = round(compiled_us(model, ids))
    return cell


def main():
    words, began = read_words(), time.perf_counter()
    name = torch.cuda.get_device_name() if words.device == "cuda" else "cpu"
    print(f"{name}, torch {torch.__version__}, transformers {transformers.__version__}, figraph "
          f"{figraph.__version__}", flush=True)
    failed = []
    if wrong_tokens(words):
        failed.append("tokens of float32")
    theirs, mine = bf16_errors(words)
    print(f"  bf16, 2 layers: logits are off by {mine:.5f} (Decoder) and {theirs:.5f} (HF)",
          flush=True)
    if mine >= theirs:
        failed.append("logits of bf16")
    model = model_of(words, 2 if words.small else 8, torch.bfloat16)
    cells = []
    for rows, tokens in CELLS:
        if time.perf_counter() - began > words.budget:
            failed.append(f"no time for {rows}x{tokens}")
            continue
        cells.append(cell_of(words, model, rows, tokens))
        print("  " + ", ".join(f"{key} {value}" for key, value in cells[-1].items()), flush=True)
        if cells[-1]["hf_over_figraph"] < BARS.get((rows, tokens), 1):
            failed.append(f"{rows}x{tokens}")
        with open(words.csv, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, cells[0].keys())
            writer.writeheader()
            writer.writerows(cells)
    print(f"{time.perf_counter() - began:.0f} s; " + (f"FAILED: {failed}" if failed else "passed"))
    return 1 if failed else 0


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
