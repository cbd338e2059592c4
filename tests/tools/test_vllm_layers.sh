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
is_figraph, is_eager = name.startswith("figraph"), name.endswith("eager")
cells = [dict(rows=rows, context=2016, steps=32, tokens=32 * rows, full=32, piecewise=0, eager=0,
              replays=32, forwards=0, layer_calls=0, attention_us=50.0 if is_figraph else 100.0,
              append_us=0.0, all_us=900.0 if is_figraph else 1000.0, busy_us=890.0, step_ms=1.0,
              kernels=[["fig_kernel_a", 50.0, 8.0, "attention"]])
         for rows in (() if is_eager else (1, 32, 128))]
layers = [dict(kind="decode", rows=rows, calls=8, largest_difference=0.01, largest_number=2.0,
               units=1.0, figraph_exact_units=0.5 if rows == 7 else None)
          for rows in (range(1, 129) if is_eager else ())]
tokens, margins = [[1, 2, 3], [4, 5, 6]], [[0.5, 0.25, 0.125], [0.5, 0.25, 0.125]]
if is_figraph:
    tokens[0][2] = 9  # differs from the other engines where the margin is 0.125
if name == "triton":
    tokens[1][1] = 9  # differs where the margin is 0.25
result = dict(variant=name, backend="X", cache="auto", errors=[], seconds={}, cells=cells,
              layers=layers, tokens=tokens, margins=margins,
              versions=dict(vllm="0", figraph="0", device="h200", driver="1"))
for key, value in change.items():
    if key in ("cells", "layers"):
        result[key][0].update(value)
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
    CHANGE=$CHANGE tools/bench/vllm_layers.py --script "$scratch/engine.py" --group bf16 "$@" \
        "$scratch/out" > "$scratch/said" 2>&1
}
refuses() { # CHANGE: the run must fail because of the change
    if layers "$1"; then return 1; fi
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
    --script "$scratch/engine.py" --group bf16 --load 10 --turn 5 "$scratch/hung"
check 'the others measured' test -e "$scratch/hung/figraph.json" -a \
    -e "$scratch/hung/figraph_eager.json" -a ! -e "$scratch/hung/flash.json"
check 'the engine that hung was ended' sh -c "! kill -0 $(cat "$scratch/hung/pid")"
check 'an unknown variant is refused' sh -c \
    "! tools/bench/vllm_layers.py --variants vllm '$scratch/none' 2> '$scratch/err'"
check 'it is named' grep -q "no variant 'vllm'" "$scratch/err"
finish
