#!/bin/sh
# test_peers.sh: tests that tools/bench/peers.py alternates between figraph and its peers, counts
# only right results, and names absent peers.
#
# Scripts with known times stand in for figraph and its peers. Invariant: the last line is "N
# passed, N failed".
set -u
# shellcheck source=tests/support/tally.sh
. "$(dirname "$0")/../support/tally.sh"

# figraph: each cell takes 10 us the first time and 12.1 us the second.
cat > "$scratch/figraph" << 'END'
#!/bin/sh
echo figraph >> "$ASKED"
file=$4
us=$(sort -u "$COUNT" | grep -qx "$6" && echo 12.1 || echo 10.0)
echo "$6" >> "$COUNT"
echo device,chip,chain_us,alone_us,worst_ulp > "$file"
echo "cuda,h200,$us,20.0,0.5" >> "$file"
END
# python: FlashInfer answers; one of its paths is wrong, and one is faster than the others.
# FlashInfer's cuDNN dies at the second cell, SDPA is not installed, FlexAttention prints nothing,
# and JAX exits with 7.
cat > "$scratch/python" << 'END'
#!/bin/sh
read -r _
case $* in
*flashinfer.py) echo '{"version": "0.7"}' ;;
*cudnn) echo '{"version": "0.7"}' && echo cudnn ;;
*flex) sleep 30 ;;
*torch.py) echo '{"absent": "ModuleNotFoundError: No module named torch"}' ;;
*) exit 7 ;;
esac > "$0.$$"
answer() {
    echo "{\"path\": \"$1\", \"us\": $2, \"least_us\": $2, \"error\": 1e-3, \"note\": \"$3\"}"
}
grep -v cudnn "$0.$$" || exit
turn=0
while read -r _; do
    turn=$((turn + 1))
    if grep -q cudnn "$0.$$"; then
        echo cudnn >> "$ASKED"
        [ $turn -eq 1 ] || exit 3
        echo "{\"rows\": [$(answer cudnn 22.0 '')]}"
    else
        echo flashinfer >> "$ASKED"
        echo "{\"rows\": [$(answer cc 33.0 ''), $(answer tc 16.5 ''), \
            $(answer xqa null 'wrong: off by 1')]}"
    fi
done
END
chmod +x "$scratch/figraph" "$scratch/python"
export ASKED="$scratch/asked" COUNT="$scratch/count"
: > "$COUNT"

peers() { # OPTION...
    tools/bench/peers.py --figraph "$scratch/figraph" --python "$scratch/python" \
        --patience 2 --csv "$scratch/t.csv" "$@" > "$scratch/out" 2>&1
}
says() { # WORDS...
    check "peers.py must say \"$*\"" grep -q -- "$*" "$scratch/out"
}
table() { # PROGRAM: runs it with the CSV as t
    check "$1" python3 -c "import csv
t = list(csv.DictReader(open('$scratch/t.csv')))
$1"
}

check 'a run' peers --cells 1x512,8x512 --agree "$(dirname "$0")/../support/pages/peers_older.csv"
says 'sdpa is absent: ModuleNotFoundError: No module named torch'
says 'flex is absent: no answer within 2 s'
says 'jax is absent: it ended with exit code 7'
says 'flashinfer-cudnn is absent: it ended with exit code 3'
says '8x512 flashinfer xqa: wrong: off by 1'
# The ratio is 16.5 / 11, where 11 is the geometric mean of 10 and 12.1.
says 'takes 1.500 of ours, geometric mean of 2 cells; least 1.500; with dense caches among'
says 'lie 21.0 % apart at most'
says 'cc 1x512 bf16: 1.100 of what the older run took'
says 'of 2 times that both runs have, 1 differ by more than 5 %'
check 'figraph is asked before and after, peers in an order that is turned round' \
    test "$(xargs < "$ASKED")" = \
    'figraph flashinfer cudnn figraph figraph cudnn flashinfer figraph'
table 'assert all(not r["us"] for r in t if r["note"].startswith(("wrong", "absent")))'
table 'assert sum(r["peer"] == "figraph" and r["us"] != "" for r in t) == 4'
table 'assert {r["peer"] for r in t if r["note"].startswith("absent")} == {
    "sdpa", "flex", "jax", "flashinfer-cudnn"}'
table 'assert all(r["chip"] == "h200" and r["driver"] and r["commit"] for r in t)'
table 'assert [r["bytes"] for r in t if r["peer"] == "figraph"] == [
    "2097152", "2097152", "16777216", "16777216"]'

# There is no ratio if figraph's time is missing or if there are no peers.
printf '#!/bin/sh\necho "attention is wrong" >&2\nexit 1\n' > "$scratch/figraph"
check 'a run of a figraph that fails' peers --cells 1x512 --peers flashinfer
says '1x512 32/8 bf16: without times of figraph'
table 'assert [r["note"] for r in t if r["peer"] == "figraph"] == 2 * ["attention is wrong"]'
check 'an unknown peer is refused' sh -c "! tools/bench/peers.py --peers vllm 2> '$scratch/err'"
check 'it is named' grep -q vllm "$scratch/err"
check 'a path that is no program is refused' sh -c \
    "! tools/bench/peers.py --figraph '$scratch/none' 2> '$scratch/err'"
check 'it is named too' grep -q "$scratch/none is no program" "$scratch/err"
finish
