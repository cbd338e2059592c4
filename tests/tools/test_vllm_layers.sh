#!/bin/sh
# test_vllm_layers.sh: tests that tools/bench/vllm_layers.py lets engines take turns, ends those
# that hang, and judges their results.
#
# A script with known results stands in for an engine. Invariant: the last line is "N passed, N
# failed".
set -u
# shellcheck source=tests/support/tally.sh
. "$(dirname "$0")/../support/tally.sh"

# Each engine notes when it is ready and when its turn comes. One dies while it loads, one never
# becomes ready, and one hangs in its turn.
cat > "$scratch/engine.py" << 'END'
import json, os, sys, time

name, folder, ready, go = sys.argv[1:5]
change = json.loads(os.environ.get("CHANGE", "{}")).get(name, {})
if change == "dies":
    sys.exit("no memory")
if change == "loads":
    time.sleep(60)
with open(os.environ["TURNS"], "a") as file:
    file.write(f"ready {name}\n")
os.write(int(ready), b"r")
os.read(int(go), 1)
with open(os.environ["TURNS"], "a") as file:
    file.write(f"turn {name}\n")
if change == "hangs":
    with open(os.path.join(folder, "pid"), "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)
is_figraph, is_eager = "figraph" in name or "check" in name, name.endswith(("eager", "check"))
is_latent, has_drafts = name.startswith("mla"), name.endswith("drafts")
made = 96 if has_drafts else 32  # tokens of a row in a cell
us = 100.0 if not is_figraph else 40.0 if "fp8" in name else 50.0
cells = [dict(rows=rows, context=2016, steps=32, tokens=made * rows, full=32, piecewise=0, eager=0,
              replays=32, forwards=0, layer_calls=0, attention_us=us,
              append_us=0.0, all_us=900.0 if is_figraph else 1000.0, busy_us=890.0, step_ms=1.0,
              kernels=[["fig_kernel_a", 50.0, 8.0, "attention"]])
         for rows in (() if is_eager else (1, 32, 128))]
layers = [dict(kind="decode", rows=rows, calls=8, largest_difference=0.01, largest_number=2.0,
               units=1.0, figraph_exact_units=0.5 if rows == 7 else None)
          for rows in (range(1, 33 if is_latent else 129) if is_eager else ())]
if layers and is_latent:
    layers[0]["units"] = 2.0
    layers.append(dict(kind="short", rows=8, calls=3, units=2.0))
tokens, margins = [[1, 2, 3], [4, 5, 6]], [[0.5, 0.25, 0.125], [0.5, 0.25, 0.125]]
if is_figraph:
    tokens[0][2] = 9  # differs from the other engines where the margin is 0.125
if name.startswith("triton"):
    tokens[1][1] = 9  # differs where the margin is 0.25
result = dict(variant=name, backend="X", cache="auto", errors=[], seconds={}, cells=cells,
              layers=layers, tokens=tokens, margins=margins,
              versions=dict(vllm="0", figraph="0", device="h200", driver="1"))
if has_drafts:
    del result["margins"]
    result["drafts"] = dict(drafts=40, accepted=13, rows_by_accepted={"0": 4, "4": 6})
for key, value in change.items():
    if key in ("cells", "layers"):
        result[key][-1 if change.get("is_last") else 0].update(value)
    else:
        result[key] = value
with open(os.path.join(folder, f"{name}.json"), "w") as file:
    json.dump(result, file)
END
export TURNS="$scratch/turns"

layers() { # CHANGE OPTION...
    CHANGE=$1
    shift
    rm -rf "$scratch/out" "$TURNS"
    CHANGE=$CHANGE tools/bench/vllm_layers.py --script "$scratch/engine.py" --only bf16 "$@" \
        "$scratch/out" > "$scratch/said" 2>&1
}
refuses() { # CHANGE OPTION...: the run must fail because of the change
    if layers "$@"; then return 1; fi
}
says() { # WORDS
    check "vllm_layers.py must say \"$1\"" grep -qF -- "$1" "$scratch/said"
}

check 'a run in which all is well' layers '{}'
says 'met     figraph / flash, 32 rows: 0.500 <= 0.84'
says 'met     figraph and figraph_eager: all 2 rows equal'
says 'met     figraph_eager: each number of rows to 128'
says 'figraph_exact_units 0.5'
check 'all engines load before the first measures' \
    test "$(grep -c ready "$TURNS"; sed -n '5,$s/turn //p' "$TURNS" | xargs)" = \
    '4
triton flash figraph figraph_eager'
check 'a table with a line for each cell' test "$(wc -l < "$scratch/out/vllm_layers.csv")" -eq 10
check 'the report lists kernels' grep -q 'fig_kernel_a' "$scratch/out/report.txt"
check 'the report can be made again' tools/bench/vllm_layers.py --report "$scratch/out"

# Each of these changes breaks one rule.
check 'a slow cell' refuses '{"figraph": {"cells": {"attention_us": 61.0}}}'
says 'NOT MET figraph / flash, 1 rows: 0.610 <= 0.6'
check 'a slow step' refuses '{"figraph": {"cells": {"all_us": 1001.0}}}'
check 'a step without a graph' refuses '{"figraph": {"cells": {"eager": 1}}}'
check 'a piecewise step' refuses '{"figraph": {"cells": {"piecewise": 1}}}'
check 'Python in a step' refuses '{"figraph": {"cells": {"layer_calls": 8}}}'
check 'more replays than steps' refuses '{"figraph": {"cells": {"steps": 64}}}'
check 'a difference in a layer' refuses '{"figraph_eager": {"layers": {"units": 1.5}}}'
check 'a number of rows that did not occur' refuses '{"figraph_eager": {"layers": {"rows": 2}}}'
check 'other tokens without graphs' refuses '{"figraph_eager": {"tokens": [[1, 2, 9], [4, 9, 6]]}}'
check 'a large margin' refuses '{"figraph": {"tokens": [[9, 2, 3], [4, 5, 6]]},
    "figraph_eager": {"tokens": [[9, 2, 3], [4, 5, 6]]}}'
says 'largest 0.5000'
check 'an error' refuses '{"triton": {"errors": ["out of memory"]}}'
says 'out of memory'

# If an engine fails, the others still get their turns.
check 'an engine that dies' refuses '{"flash": "dies"}'
says 'no memory'
says 'NOT MET flash ran to its end'
check 'engines that hang' sh -c '! "$@"' sh env \
    CHANGE='{"triton": "hangs", "flash": "loads"}' tools/bench/vllm_layers.py \
    --script "$scratch/engine.py" --only bf16 --load 10 --turn 5 "$scratch/hung"
check 'the others measured' test -e "$scratch/hung/figraph.json" -a \
    -e "$scratch/hung/figraph_eager.json" -a ! -e "$scratch/hung/flash.json"
check 'the engine that hung was ended' sh -c "! kill -0 $(cat "$scratch/hung/pid")"

# Drafts.
check 'drafts' layers '{}' --only drafts
says 'met     flash_small and figraph_drafts: 1 of 2 rows part'
says 'figraph_drafts: 13 of 40 accepted'
says 'figraph_drafts, 32 rows: 3.00 tokens'
says 'met     flash_drafts, 1 rows: 32 steps, 32 FULL'
says 'figraph_drafts / flash_drafts, 32 rows: 0.500, all kernels 0.900'
parted='"figraph_small": {"tokens": [[1, 2, 9], [4, 9, 6]]},
    "figraph_drafts": {"tokens": [[1, 2, 9], [4, 9, 6]]}'
check 'tokens that part at a large margin' refuses "{$parted}" --only drafts
says 'NOT MET flash_small and figraph_drafts: 2 of 2 rows part'
says 'largest 0.2500, median 0.1875; limit 0.125'
check "unless vLLM's own part at one as large" layers \
    "{$parted, \"flash_drafts\": {\"tokens\": [[1, 2, 3], [4, 9, 6]]}}" --only drafts
check 'drafts that change tokens at a large margin' refuses \
    '{"figraph_drafts": {"tokens": [[9, 2, 9], [4, 5, 6]]}}' --only figraph_small,figraph_drafts
check "vLLM's own drafts without a graph" refuses '{"flash_drafts": {"cells": {"eager": 1}}}' \
    --only drafts
check 'fewer replays than steps' refuses '{"figraph_drafts": {"cells": {"replays": 31}}}' \
    --only drafts

# Latent attention.
check 'latents' layers '{}' --only latents
says 'met     mla_figraph_codes and mla_codes_check: all 2 rows equal'
says 'met     mla_check, decode: units 2 <= 2.0'
says 'met     mla_check: each number of rows to 32'
says 'mla_figraph / mla_flash, 128 rows: 0.500, all kernels 0.900'
check 'a difference from float32' refuses '{"mla_check": {"layers": {"units": 2.01}}}' \
    --only latents
check 'a difference in short rows' refuses \
    '{"mla_codes_check": {"layers": {"units": 2.01}, "is_last": 1}}' --only latents
says 'NOT MET mla_codes_check, short: units 2.01 <= 2.0'
check 'other tokens of latents without graphs' refuses \
    '{"mla_check": {"tokens": [[1, 2, 3], [4, 5, 6]]}}' --only latents
check 'other tokens of codes without graphs' refuses \
    '{"mla_codes_check": {"tokens": [[1, 2, 3], [4, 5, 6]]}}' --only latents
check "vLLM's own latents in pieces" refuses '{"mla_triton": {"cells": {"piecewise": 1}}}' \
    --only latents

# The choice of variants.
check 'a group and names' layers '{}' --only mla_flash,drafts,flash_small
check 'each of them runs once' test "$(sed -n 's/^turn //p' "$TURNS" | xargs)" = \
    'mla_flash figraph_small figraph_drafts figraph_drafts_eager flash_drafts flash_small'
rm "$TURNS"
check 'a run of the default set' tools/bench/vllm_layers.py --script "$scratch/engine.py" \
    "$scratch/default"
check 'it has neither latents nor flash_small' test "$(sed -n 's/^turn //p' "$TURNS" | xargs)" = \
    'triton flash figraph figraph_eager triton_fp8 flash_fp8 figraph_fp8 figraph_fp8_eager '\
'figraph_small figraph_drafts figraph_drafts_eager flash_drafts'
check 'an unknown name is refused' sh -c \
    "tools/bench/vllm_layers.py --only bf16,vllm '$scratch/none' 2> '$scratch/err'; test \$? = 2"
check 'it is named' grep -q "no group or variant 'vllm'; there are bf16, .*mla_check" "$scratch/err"
check 'in one line' test "$(wc -l < "$scratch/err")" -eq 1
check 'and nothing is written' test ! -e "$scratch/none"

# What engines are asked for, without vLLM.
cat > "$scratch/variants.py" << 'END'
import json, os, sys

sys.path[:0] = ["tools/bench", "tools/bench/servers"]
sys.dont_write_bytecode = True
import vllm_drafts, vllm_layers, vllm_variant

assert sorted(vllm_layers.NAMES) == sorted(vllm_variant.VARIANTS)
for name, variant in vllm_variant.VARIANTS.items():
    asked = vllm_variant.options_of(variant, os.path.join(sys.argv[1], name))
    with open(os.path.join(asked["model"], "config.json")) as file:
        config = json.load(file)
    is_latent = name in vllm_layers.GROUPS["latents"]
    assert (config["model_type"] == "deepseek_v2") == is_latent, name
    assert asked["block_size"] == (64 if is_latent else 16), name
    assert ("speculative_config" in asked) == ("drafts" in name), name
    assert (vllm_variant.kind_of("CatArrayBatchedCopy", variant.shape) != "") == is_latent, name
    asked = vllm_variant.prompts(variant, 3)
    tokens = asked[2]["prompt_token_ids"]
    assert asked[:2] == vllm_variant.prompts(variant, 2), name
    assert 1024 < len(tokens) <= 2016 and max(tokens) < config["vocab_size"], name
after = vllm_drafts.successors()
for asked in vllm_drafts.prompts(20, 2016):
    tokens = asked["prompt_token_ids"]
    assert all(after[a] == b for a, b in zip(tokens[:127], tokens[1:]))
    assert sorted(tokens[:128]) == list(range(128))
    assert sum(after[a] == b for a, b in zip(tokens, tokens[1:])) > 0.8 * len(tokens)
END
check 'every variant has an engine and prompts' python3 "$scratch/variants.py" "$scratch"
finish
