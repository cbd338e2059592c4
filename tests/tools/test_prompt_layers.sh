#!/bin/sh
# test_prompt_layers.sh: tests what tools/bench/prompt_layers.py makes of its arguments.
#
# It needs no torch: a wrong cell is refused before torch is imported. Invariant: the last line is
# "N passed, N failed".
set -u
# shellcheck source=tests/support/tally.sh
. "$(dirname "$0")/../support/tally.sh"
bench=tools/bench/prompt_layers.py

cat > "$scratch/rows.py" << 'END'
import importlib.util
import sys

spec = importlib.util.spec_from_file_location("prompt_layers", sys.argv[1])
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)
rows = bench.rows_of("1x512:8192+2x1:1024+50x2-16:40")
assert rows[:3] == [(512, 8192), (1, 1024), (1, 1024)], rows
assert len(rows) == 53 and {n for _, n in rows[3:]} == {40}, rows
assert all(2 <= n <= 16 for n, _ in rows[3:]) and len({n for n, _ in rows[3:]}) > 3, rows
assert all(bench.rows_of(cell) for cell in bench.CELLS)
END
check 'the rows of a cell' python3 "$scratch/rows.py" "$bench"

# refuses CELL: the exit code is 2, and one sentence names the cell.
refuses() {
    python3 "$bench" "$1" > "$scratch/out" 2> "$scratch/err"
    [ $? = 2 ] && [ ! -s "$scratch/out" ] && [ "$(wc -l < "$scratch/err")" = 1 ] &&
        grep -q "^prompt_layers.py: CELL is '$1', it must be as " "$scratch/err"
}
for cell in 512:8192 1x512 1x512:100 0x1:8 1x0:8 1xa:8; do
    check "refuses $cell" refuses "$cell"
done
finish
