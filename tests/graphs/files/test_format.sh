#!/bin/sh
# test_format.sh: tests FORMAT.md with a second reader that was written from that page alone.
#
# read_format.py must agree with figraph inspect and must refuse damaged files. Invariant: the last
# line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"
if ! python3 -c 'import ctypes; ctypes.CDLL("libzstd.so.1")' 2> /dev/null; then
    echo "skipped: libzstd.so.1 is not there for Python"
    exit 0
fi

cat > "$scratch/compare.py" << 'END_OF_PYTHON'
import json, struct, sys
sys.path.insert(0, "tests/graphs/files")
sys.dont_write_bytecode = True
import read_format

def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]

# The reader and the library must agree. A printed decimal stands for the nearest float.
def same(mine, theirs, where):
    if isinstance(mine, dict):
        for key in mine:
            if key in theirs:
                same(mine[key], theirs[key], where + "." + key)
    elif isinstance(mine, list):
        assert len(mine) == len(theirs), (where, len(mine), len(theirs))
        for i, (a, b) in enumerate(zip(mine, theirs)):
            same(a, b, "%s[%d]" % (where, i))
    elif isinstance(mine, float):
        assert mine in (theirs, single(theirs)), (where, mine, theirs)
    elif where.endswith(".attributes.score"): # the library prints its text
        assert mine > 0 and "score" in theirs, (where, mine, theirs)
    elif where.endswith(".activation") and isinstance(mine, int):
        assert read_format.ACTIVATIONS[mine] == theirs, (where, mine, theirs)
    else:
        assert mine == theirs, (where, mine, theirs)

data = open(sys.argv[1], "rb").read()
theirs = json.load(open(sys.argv[2]))
mine = read_format.read(data)
for bucket in mine["buckets"]:
    del bucket["variant"] # a number in `mine`, a name in `theirs`
same(mine, theirs, "file")
# The reader must know every field that the library shows of a spec, of tensors and of nodes.
assert set(theirs["spec"]) == set(mine["spec"]), set(theirs["spec"]) ^ set(mine["spec"])
for kind, derived in ("tensors", set()), ("nodes", {"after"}), ("segments", set()):
    for a, b in zip(mine[kind], theirs[kind]):
        assert set(b) - set(a) <= derived, (kind, set(b) - set(a))
for a, b in zip(mine["nodes"], theirs["nodes"]):
    assert set(b.get("attributes", {})) <= set(a.get("attributes", {})), (a, b)
used = {node["op"] for node in mine["nodes"]} - {"call"} | {"fetch"}
if "decode_attention" in used:
    used.add("attention")
if "latent_decode" in used:
    used.add("latent_attention")
spec = mine["spec"]
if spec.get("query_limit", 0) > 0 and spec["row_tokens"] > 8 and "attention" in used:
    used.add("prompt_attention")
if spec.get("query_limit", 0) > 0 and spec["row_tokens"] > 8 and "scored_attention" in used:
    used.add("scored_prompt")
for bucket, shown in zip(mine["buckets"], theirs["buckets"]):
    most = min(bucket["batch"] * spec["row_tokens"], spec.get("query_limit", 0))
    if most > 0:
        due = bucket.get("queries") or most
        if shown["form"] == "ones":
            due = bucket["batch"]
        elif shown["form"] == "drafts":
            due = min(most, 8 * bucket["batch"])
        assert shown["query_limit"] == due, (bucket, shown)
assert set(mine["kernels"]) == used, (mine["kernels"], used)
tuning = theirs["tuning"]
assert len(mine["tuned"]) == tuning["used"] + tuning["foreign"] + tuning["stale"]
for record in mine["tuned"]:
    assert record["machine"] == mine["traits"]["name"], record
    assert record["variant"] in ("head", "page", "pair", "four"), record
assert mine["compiled_scores"] == theirs.get("compiled_scores", [])
images = theirs["images"]
assert mine["embedded"] == images["embedded"], images
listed = {key: value for key, value in images.items() if "/" in key}
names = {op: name for name, op in mine["kernels"].items()}
recorded = {"%s/%s/%d" % (names[op], family, capability): value
            for (op, family, capability), value in mine["recorded"].items()}
assert listed == recorded, (listed, recorded)
# The reader must notice every changed byte.
for at in range(0, len(data), max(1, len(data) // 40)):
    changed = bytearray(data)
    changed[at] ^= 0x41
    try:
        read_format.read(bytes(changed))
    except read_format.Refused:
        continue
    raise AssertionError("byte %d was changed, and is read" % at)
END_OF_PYTHON

reads_alike() { # FILE
    run inspect "$1" --json
    ends 0
    python3 "$scratch/compare.py" "$1" "$scratch/out" > "$scratch/python" 2>&1
    verdict $? "both must say the same of it: $(tail -n 1 "$scratch/python")"
}
for file in tests/golden/*.fig; do
    reads_alike "$file"
done
for preset in tutorial gemma-2-9b qwen3-8b; do
    "$figraph" capture --preset "$preset" --traits h200 -o "$scratch/$preset.fig" > /dev/null
    reads_alike "$scratch/$preset.fig"
done
for model in gpt-oss-20b gemma-3-1b-it olmo-3-7b kimi-k2; do
    "$figraph" capture --config "tests/configs/$model.json" --layers 8 -o "$scratch/model.fig" \
        > /dev/null
    reads_alike "$scratch/model.fig"
done
"$figraph" capture --preset llama-3.1-8b --kv-dtype e5m2 --kv-scales head --row-tokens 4 \
    --deterministic --traits h100 -o "$scratch/fp8.fig" > /dev/null
reads_alike "$scratch/fp8.fig"
for packed in '8 64' '100 300' '300 3000'; do
    "$figraph" capture --preset tutorial --row-tokens "${packed% *}" --query-limit "${packed#* }" \
        -o "$scratch/packed.fig" > /dev/null
    reads_alike "$scratch/packed.fig"
done
for text in 'score * 2.0' 'see 0:kv_length; score'; do
    "$figraph" capture --preset tutorial --row-tokens 100 --query-limit 300 --score "$text" \
        -o "$scratch/scored.fig" > /dev/null
    reads_alike "$scratch/scored.fig"
done
"$figraph" capture --preset tutorial --note 'by=a test' --note what='<b> & "c"' \
    -o "$scratch/noted.fig" > /dev/null
reads_alike "$scratch/noted.fig"
if "$figraph" capture --preset tutorial --embed -o "$scratch/embedded.fig" > /dev/null 2>&1; then
    reads_alike "$scratch/embedded.fig"
fi

# ---- Records of figraph tune, from invented times
python3 - > "$scratch/times.csv" << 'END_OF_PYTHON'
print("chip,heads,head_dim,value_bytes,window,cell,variant,chain_us,alone_us")
for rows in 1, 4, 8, 32, 128, 256:
    for kv in 512, 2048, 8192:
        for variant in "head", "page", "pair", "four":
            us = 3 + rows * kv * 4096 / 4.4e6
            print("h200,32/8,128,2,0,%dx%d,%s,%.3f,%.3f" % (rows, kv, variant, us, us))
END_OF_PYTHON
"$figraph" capture --preset llama-3.1-8b --layers 1 --traits h200 -o "$scratch/one.fig" > /dev/null
run tune "$scratch/one.fig" -o "$scratch/tuned.fig" --times "$scratch/times.csv"
ends 0
reads_alike "$scratch/tuned.fig"
run inspect "$scratch/tuned.fig"
prints 'costs of variants measured for this file'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
