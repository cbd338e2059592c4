"""vllm_variant.py: runs vLLM with one attention backend; records its tokens and its times.

    vllm_variant.py NAME FOLDER READY GO

Writes FOLDER/NAME.json. vllm_layers.py starts this and passes two file descriptors. When the engine
is ready, this script writes a byte to READY; it measures after it has read a byte from GO. The
model has random weights, so it needs no files. vllm_drafts.py has the model for drafts, and
vllm_latents.py the one with latent attention. Invariant: variants of the same shape ask their
engines for the same things in the same order until their tokens are read, so that these can be
compared.
"""

import collections
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from typing import NamedTuple

import vllm_drafts
import vllm_latents

LENGTH = 2016  # tokens of the longest prompt
SAME_ROWS, SAME_TOKENS = 32, 64  # rows and tokens of the comparison
WARM_TOKENS, WINDOW = 6, 32  # tokens of a row before the measurement begins; measured steps
DRAFTS = 4
GIB = 1 << 30
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)  # rows of captured graphs
# Kernels that a backend adds to a step. Some of them are torch's or vLLM's own: figraph's check of
# idle rows is an addcmul, and FlashAttention 3 wants 8-bit queries over an 8-bit cache.
APPEND = re.compile(r"reshape_and_cache|concat_and_cache|fig_kernel_append")
ATTENTION = re.compile(r"\bfig_|flash|attention|reduce_segments|prepare_varlen|addcmul|fp8_quant",
                       re.IGNORECASE)


class Shape(NamedTuple):
    """A model, and the engine that it needs."""

    vocabulary: int
    layers: int
    row_limit: int  # of a batch
    swept: int  # rows that decode while layers are checked
    cache_gib: float  # of a cache in bf16
    page: int  # tokens
    attention: re.Pattern = ATTENTION


LLAMA = Shape(128256, 8, row_limit=128, swept=128, cache_gib=9.6, page=16)
SMALL = Shape(vllm_drafts.VOCABULARY, vllm_drafts.LAYERS, row_limit=32, swept=32, cache_gib=1.6,
              page=16)
LATENTS = Shape(vllm_latents.VOCABULARY, vllm_latents.LAYERS, row_limit=128, swept=32,
                cache_gib=1.5, page=64, attention=re.compile(
                    f"{ATTENTION.pattern}|{vllm_latents.KERNELS}", re.IGNORECASE))


class Variant(NamedTuple):
    """The properties in which engines differ."""

    backend: str
    cache: str = "auto"
    graphs: str = "FULL_DECODE_ONLY"
    rows: tuple = (1, 32, 128)  # of the cells that are measured
    shape: Shape = LLAMA
    drafts: int = 0
    is_checked: bool = False  # whether each layer's output is compared with another computation


EAGER = {"graphs": "NONE", "rows": (), "is_checked": True}
FEW = {"rows": (1, 32), "shape": SMALL}
VARIANTS = {
    "triton": Variant("TRITON_ATTN"),
    "flash": Variant("FLASH_ATTN"),
    "figraph": Variant("CUSTOM"),
    "figraph_eager": Variant("CUSTOM", **EAGER),
    "triton_fp8": Variant("TRITON_ATTN", "fp8", rows=()),
    "flash_fp8": Variant("FLASH_ATTN", "fp8"),
    "figraph_fp8": Variant("CUSTOM", "fp8"),
    "figraph_fp8_eager": Variant("CUSTOM", "fp8", **EAGER),
    "figraph_small": Variant("CUSTOM", **FEW),
    "figraph_drafts": Variant("CUSTOM", drafts=DRAFTS, **FEW),
    "figraph_drafts_eager": Variant("CUSTOM", drafts=DRAFTS, **{**FEW, **EAGER}),
    "flash_drafts": Variant("FLASH_ATTN", drafts=DRAFTS, **FEW),
    "flash_small": Variant("FLASH_ATTN", **FEW),
    "mla_figraph": Variant("CUSTOM", shape=LATENTS),
    "mla_triton": Variant("TRITON_MLA", shape=LATENTS),
    "mla_flash": Variant("FLASH_ATTN_MLA", shape=LATENTS),
    "mla_figraph_codes": Variant("CUSTOM", "fp8_ds_mla", shape=LATENTS),
    "mla_check": Variant("CUSTOM", shape=LATENTS, **EAGER),
    "mla_codes_check": Variant("CUSTOM", "fp8_ds_mla", shape=LATENTS, **EAGER),
}


# ---- The engine ----------------------------------------------------------------------------------


def llama_config(shape):
    """Returns the config.json of a model of llama-3.1-8b's shape."""
    return dict(
        architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="bfloat16",
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=shape.layers,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, hidden_act="silu",
        vocab_size=shape.vocabulary, max_position_embeddings=131072, rms_norm_eps=1e-5,
        rope_theta=5e5, rope_scaling=dict(
            rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=8192),
        attention_bias=False, mlp_bias=False, tie_word_embeddings=False, bos_token_id=0,
        eos_token_id=1)


def write_model(folder, shape):
    config = vllm_latents.config() if shape is LATENTS else llama_config(shape)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return folder


def set_environment(room):
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_HOST_IP="127.0.0.1", VLLM_NO_USAGE_STATS="1",
        VLLM_ALLOW_INSECURE_SERIALIZATION="1", VLLM_USE_FLASHINFER_SAMPLER="0", DO_NOT_TRACK="1",
        HF_HUB_OFFLINE="1", VLLM_PLUGINS="figraph", VLLM_CACHE_ROOT=os.path.join(room, "vllm"),
        TRITON_CACHE_DIR=os.path.join(room, "triton"))


def options_of(variant, folder):
    """Returns the arguments of an engine."""
    shape, width = variant.shape, 1 + variant.drafts
    compilation = {"mode": 0, "cudagraph_mode": variant.graphs}
    if variant.graphs != "NONE":
        compilation["cudagraph_capture_sizes"] = [n * width for n in SIZES if n <= shape.row_limit]
    size = shape.cache_gib * GIB / (2 if variant.cache == "fp8" else 1)
    made = dict(
        model=write_model(folder, shape), load_format="dummy", skip_tokenizer_init=True,
        dtype="bfloat16", seed=1, max_model_len=4096, max_num_seqs=shape.row_limit,
        max_num_batched_tokens=8192, gpu_memory_utilization=0.05,
        kv_cache_memory_bytes=int(size), kv_cache_dtype=variant.cache, block_size=shape.page,
        enable_prefix_caching=True, disable_cascade_attn=True,
        attention_config={"backend": variant.backend}, compilation_config=compilation,
        kernel_config={"enable_flashinfer_autotune": False, "enable_cutedsl_warmup": False})
    if variant.drafts:
        made["speculative_config"] = {"method": "ngram", "num_speculative_tokens": variant.drafts,
                                      "prompt_lookup_min": 1, "prompt_lookup_max": 1}
    return made


def fill(model):
    """Gives the model weights by which a head looks at a few tokens. vLLM's dummy weights are so
    small that attention hardly changes a logit."""
    import torch

    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            weight.data.fill_(1.0)
            continue
        deviation = 0.02
        if "embed" in name:
            deviation = 1.0
        elif "self_attn" in name:
            deviation = 0.03
        chance = torch.Generator(weight.device).manual_seed(zlib.crc32(name.encode()))
        weight.data.normal_(0.0, deviation, generator=chance)


def prepare(llm, variant, result):
    """Fills the model, unless the loader has, and counts its parameters."""
    def change(model):
        if variant.shape is not LATENTS:
            fill(model)
        if variant.shape is SMALL:
            vllm_drafts.favour_successors(model)
        return sum(weight.numel() for weight in model.parameters())

    result["parameters"] = llm.apply_model(change)[0]


def prompts(variant, count):
    """Returns prompts of about LENGTH tokens; longer lists begin with the shorter ones."""
    if variant.shape is SMALL:
        return vllm_drafts.prompts(count, LENGTH)
    chance = random.Random(5)
    return [{"prompt_token_ids": [chance.randrange(variant.shape.vocabulary)
                                  for _ in range(LENGTH - chance.randrange(96))]}
            for _ in range(count)]


def sampling(tokens, **options):
    from vllm import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False,
                          **options)


# ---- Counting ------------------------------------------------------------------------------------


class Counter:
    """Counts graph replays, dispatches by graph mode, and calls of the model from Python."""

    def __init__(self):
        self.seen = collections.Counter()
        self.layers = None

    def listen(self, llm):
        """Wraps the functions whose calls are counted."""
        import torch
        from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
        from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

        self._around(torch.cuda.CUDAGraph, "replay", lambda made: "replays")
        self._around(CudagraphDispatcher, "dispatch", lambda made: made[0].name)
        self._around(CudaGraphManager, "dispatch", lambda made: made.cg_mode.name)
        llm.apply_model(self._watch)
        if "figraph.integrations.counts" in sys.modules:
            self.layers = sys.modules["figraph.integrations.counts"].counts

    def _around(self, owner, name, key_of):
        original = getattr(owner, name)

        def counted(*arguments, **named):
            made = original(*arguments, **named)
            self.seen[key_of(made)] += 1
            return made

        setattr(owner, name, counted)

    def _watch(self, model):
        def count(*arguments):
            self.seen["forwards"] += 1

        model.register_forward_pre_hook(count)

    def read(self):
        """Returns what was counted so far."""
        seen = collections.Counter(self.seen)
        if self.layers is not None:
            seen["layer_calls"] = self.layers.attended + self.layers.passed_on
        seen["steps"] = seen["replays"] + seen["forwards"]
        return seen


class Window:
    """Requests whose prompts have been computed, and which decode together."""

    def __init__(self, llm, counter, requests):
        self.engine, self.counter, self.made = llm.llm_engine, counter, {}
        for i, request in enumerate(requests):
            self.engine.add_request(f"window-{len(requests)}-{i}", request, sampling(1500))
        for _ in range(600):
            if len(self.made) == len(requests) and min(self.made.values()) >= WARM_TOKENS:
                return
            self.step()
        raise RuntimeError(f"{len(self.made)} of {len(requests)} rows decode after 600 steps")

    def step(self):
        for output in self.engine.step():
            self.made[output.request_id] = len(output.outputs[0].token_ids)

    def steps(self):
        """Lets the engine make about WINDOW steps. Returns what was counted, seconds and tokens."""
        import torch

        torch.cuda.synchronize()
        before, tokens = self.counter.read(), sum(self.made.values())
        began = time.perf_counter()
        for _ in range(WINDOW):
            self.step()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        seen = self.counter.read()
        seen.subtract(before)
        return seen, seconds, sum(self.made.values()) - tokens

    def close(self):
        self.engine.abort_request(list(self.made))
        for _ in range(8):  # a step that is under way
            if not self.engine.has_unfinished_requests():
                return
            self.step()


# ---- Measuring -----------------------------------------------------------------------------------


def merged_us(spans):
    """Returns the time in which at least one kernel ran."""
    total, end = 0.0, float("-inf")
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def kernels_of(window, shape):
    """Returns the kernels of a step as [name, us, launches, is attention], and the busy us."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        steps = window.steps()[0]["steps"]
    table, spans = {}, []
    for event in seen.events():
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        span = event.time_range
        spans.append((span.start, span.end))
        us, count = table.get(event.name, (0.0, 0))
        table[event.name] = us + span.end - span.start, count + 1
    rows = [[name[:200], round(us / steps, 3), round(count / steps, 3), kind_of(name, shape)]
            for name, (us, count) in table.items()]
    return sorted(rows, key=lambda row: -row[1]), merged_us(spans) / steps


def kind_of(name, shape):
    """Returns "append", "attention" or "" for a kernel."""
    if APPEND.search(name):
        return "append"
    return "attention" if shape.attention.search(name) else ""


def cell_of(llm, variant, counter, rows):
    """Measures steps with a number of rows."""
    requests = prompts(variant, rows)
    llm.generate(requests, sampling(1), use_tqdm=False)  # so that all prompts are in the cache
    window = Window(llm, counter, requests)
    seen, seconds, tokens = window.steps()
    kernels, busy = kernels_of(window, variant.shape)
    window.close()

    def total(*kinds):
        return round(sum(us for _, us, _, kind in kernels if kind in kinds), 2)

    return dict(
        rows=rows, context=LENGTH, steps=seen["steps"], tokens=tokens, full=seen["FULL"],
        piecewise=seen["PIECEWISE"], eager=seen["NONE"], replays=seen["replays"],
        forwards=seen["forwards"], layer_calls=seen["layer_calls"],
        attention_us=total("attention", "append"), append_us=total("append"),
        all_us=total("attention", "append", ""), busy_us=round(busy, 2),
        step_ms=round(1e3 * seconds / seen["steps"], 4),
        kernels=[row for row in kernels if row[1] > 0.3])


def tokens_of(llm, variant, result):
    """Reads the tokens of some rows, and how far the best was from the next. The prompts are in the
    cache by then, so all rows begin in one step and steps have equal rows in all variants."""
    requests = prompts(variant, SAME_ROWS)
    llm.generate(requests, sampling(1), use_tqdm=False)
    wanted = sampling(SAME_TOKENS, **({} if variant.drafts else {"logprobs": 2}))
    outputs = [made.outputs[0] for made in llm.generate(requests, wanted, use_tqdm=False)]
    result["tokens"] = [list(output.token_ids) for output in outputs]
    if not variant.drafts:
        result["margins"] = [[margin_of(step) for step in output.logprobs] for output in outputs]


def margin_of(step):
    best = sorted((one.logprob for one in step.values()), reverse=True)
    return round(best[0] - best[1], 5)


def sweep(llm, variant):
    """Decodes rows that end one after the other, so each number of rows occurs."""
    count = variant.shape.swept
    requests = prompts(variant, count)
    llm.generate(requests, sampling(1), use_tqdm=False)
    llm.generate(requests, [sampling(3 + i) for i in range(count)], use_tqdm=False)


def checker_of(variant):
    """Returns what compares the output of layers."""
    if not variant.is_checked:
        return None
    if variant.shape is LATENTS:
        import latent_check

        return latent_check.LatentCheck()
    import layer_check

    return layer_check.LayerCheck()


def measure(llm, variant, counters, check, result, mark):
    counter, drafts = counters
    if drafts is not None:
        drafts.take()
    tokens_of(llm, variant, result)
    if drafts is not None:
        result["drafts"] = drafts.take()
    mark("tokens")
    if check is not None:
        check.begin()
        sweep(llm, variant)
        result["layers"] = check.lines()
        mark("layers")
    for rows in variant.rows:
        result["cells"].append(cell_of(llm, variant, counter, rows))
        if drafts is not None:  # those of the warm and the profiled steps are among them
            result["cells"][-1]["drafts"] = drafts.take()
        mark(f"{rows} rows")


def versions():
    import figraph
    import torch
    import vllm

    query = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
    driver = subprocess.run(query, shell=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True, check=False).stdout.strip()
    return dict(vllm=vllm.__version__, torch=torch.__version__, figraph=figraph.__version__,
                device=torch.cuda.get_device_name(), driver=driver)


def main(name, folder, ready, go):
    variant, began = VARIANTS[name], time.monotonic()
    result = dict(variant=name, backend=variant.backend, cache=variant.cache, errors=[],
                  seconds={}, cells=[], layers=[])

    def mark(what):
        result["seconds"][what] = round(time.monotonic() - began, 1)
        print(f"== {name}: {what} after {result['seconds'][what]} s", flush=True)

    room = tempfile.mkdtemp()
    set_environment(room)
    import torch
    from vllm import LLM

    mark("imported")
    if variant.shape is LATENTS:
        vllm_latents.fill_when_loaded()
    llm = LLM(**options_of(variant, os.path.join(room, "model")))
    result["versions"] = versions()
    prepare(llm, variant, result)
    counter, drafts = Counter(), vllm_drafts.DraftCounter() if variant.drafts else None
    counter.listen(llm)
    if drafts is not None:
        drafts.listen()
    check = checker_of(variant)
    llm.generate(prompts(variant, 2), sampling(8), use_tqdm=False)  # compiles what is left
    torch.cuda.synchronize()
    mark("ready")
    os.write(int(ready), b"r")
    os.read(int(go), 1)
    mark("turn")
    try:
        measure(llm, variant, (counter, drafts), check, result, mark)
    except Exception as error:
        traceback.print_exc()
        result["errors"].append(repr(error)[:1000])
    mark("done")
    with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as file:
        json.dump(result, file)
    sys.stdout.flush()
    os._exit(1 if result["errors"] else 0)  # an engine's threads may outlast it


if __name__ == "__main__":
    main(*sys.argv[1:])
