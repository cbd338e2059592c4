#!/bin/sh
# test_replay.sh: tests that figraph replay runs steps, and that --check finds errors.
#
# Programs that no command can record are recorded here with the functions of the public header.
# Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"
library=${BUILD:-build}/libfigraph.a

fig=$scratch/tutorial.fig
"$figraph" capture --preset tutorial -o "$fig" > "$scratch/out"
"$figraph" capture --preset tutorial --traits h200 --layers 3 --batch-limit 2 --kv-limit 300 \
    --page-size 0 -o "$scratch/h200.fig" > "$scratch/out"
write_config

# ---- replay --------------------------------------------------------------------------------------
run replay "$fig" --steps 24 --check --json
ends 0
quiet
json 'j["passed"] is True' 'sum(b["steps"] for b in j["buckets"]) == j["steps"] == 24' \
    'len(j["buckets"]) >= 4' '0 < j["worst_ulp"] <= 2' \
    'j["worst_ulp"] == max(b["worst_ulp"] for b in j["buckets"])' 'j["idle_rows"] > 0' \
    'j["compared"] > 100000' 'all(b["step_ns"]["p50"] > 0 for b in j["buckets"])'
run replay "$fig" --steps 24 --check
ends 0
quiet
prints 'worst error'
run replay "$fig" --steps 12 --rows 3 --kv 120,0,510 --check --json
ends 0
json 'j["all_rows"] == 36' 'j["idle_rows"] == 13' 'j["passed"] is True'
run replay "$fig" --steps 4 --kv 4x126 --json --device host
ends 0
json 'j["all_rows"] == 16' 'j["kv_tokens"] == 4 * (126 + 127 + 128 + 129)' 'j["checked"] is False' \
    '[b["kv"] for b in j["buckets"]] == [128, 256]'
FIG_DEVICE=cuda run replay "$fig" --steps 4
refused 'cuda'
run replay "$fig"
refused '--steps N is required'
run replay "$fig" --steps 0
refused '--steps' '0'
run replay "$fig" --steps 1 --rows 9
refused '--rows' '9' '8'
# A file whose buckets take fewer rows than its spec, and than the default.
run replay tests/golden/scores.fig --steps 1 --device host
ends 0
run replay tests/golden/scores.fig --steps 1 --rows 3
refused '--rows' '3 is outside 1..2'
run replay "$fig" --steps 1 --kv 9x1
refused '--kv' '9' '8'
run replay "$fig" --steps 1 --kv 513
refused '--kv' '513' '512'
run replay "$fig" --steps 1 --kv 9,4x3:2
refused '--kv' '"4x3:2": it takes no :QUERIES'
write_gemma
cat > "$scratch/qwen3.json" << 'END'
{"model_type": "qwen3", "hidden_size": 512, "intermediate_size": 64, "num_hidden_layers": 1,
 "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "hidden_act": "silu",
 "rope_theta": 1000000, "rms_norm_eps": 1e-6, "max_position_embeddings": 512,
 "torch_dtype": "bfloat16"}
END
cat > "$scratch/partial.json" << 'END'
{"model_type": "llama", "hidden_size": 768, "intermediate_size": 64, "num_hidden_layers": 1,
 "num_attention_heads": 8, "num_key_value_heads": 8, "hidden_act": "gelu", "rope_theta": 10000,
 "partial_rotary_factor": 0.5, "max_position_embeddings": 512, "torch_dtype": "float32"}
END
# Compares a captured step with float64. The calls below cover every kind of step that options and
# model families can request.
checked() { # CAPTURE OPTION...
    run capture "$@" --batch-limit 8 --kv-limit 512 -o "$scratch/checked.fig"
    ends 0
    run replay "$scratch/checked.fig" --steps 10 --check --json
    ends 0
    json 'j["passed"] is True' 'j["compared"] > 100000' 'j["worst_ulp"] > 0'
}
for model in gemma qwen3 partial; do
    checked --config "$scratch/$model.json"
    checked --config "$scratch/$model.json" --row-tokens 3 --kv-layout hnd
    checked --config "$scratch/$model.json" --deterministic --page-size 0
done
for model in granite-3.1-8b glm-4-9b-0414 phi-4 mixtral-8x7b qwen3-30b-a3b \
    olmo-2-7b-instruct phi-3.5-mini phi-4-mini yarn-llama-2-7b-128k smollm2-135m; do
    checked --config "tests/configs/$model.json" --layers 2
done
# Narrows a model to an eighth of its heads, and to windows that leave out most tokens, and runs two
# layers of each kind. Every second layer of gpt-oss, every fourth of olmo-3 and command-r7b and
# every sixth of gemma-3 has no window; in some families, these layers have another RoPE than the
# others, or none.
narrowed() { # MODEL LAYERS
    sed -e 's/"hidden_size": 4096/"hidden_size": 512/' \
        -e 's/"hidden_size": 3072/"hidden_size": 384/' \
        -e 's/"num_attention_heads": 64/"num_attention_heads": 8/' \
        -e 's/"num_attention_heads": 32/"num_attention_heads": 4/' \
        -e 's/"num_key_value_heads": 32/"num_key_value_heads": 4/' \
        -e 's/"num_key_value_heads": 16/"num_key_value_heads": 2/' \
        -e 's/"num_key_value_heads": 8/"num_key_value_heads": 1/' \
        -e 's/"sliding_window": [0-9]*/"sliding_window": 48/' \
        -e 's/"intermediate_size": [0-9]*/"intermediate_size": 64/' \
        "tests/configs/$1.json" > "$scratch/narrow.json"
    checked --config "$scratch/narrow.json" --layers "$2"
}
narrowed gpt-oss-20b 4
narrowed olmo-3-7b 8
narrowed gemma-3-27b-it 12
narrowed command-r7b 8
narrowed phi-3-mini-4k 2
checked --q-heads 6 --kv-heads 2 --head-dim 96 --ffn-width 40 --activation gelu --window 60 \
    --rope-theta 500000 --dtype f32
checked --config tests/configs/smollm3-3b.json --layers 8 # two of these layers have no RoPE
run capture --config tests/configs/smollm3-3b.json --layers 37 -o "$scratch/checked.fig"
refused '--layers: 37' 'says which have its RoPE'
for cache in e4m3 e5m2; do
    checked --preset tutorial --kv-dtype "$cache"
    checked --config "$scratch/gemma.json" --kv-dtype "$cache" --kv-scales head --kv-layout hnd \
        --row-tokens 8 --page-size 1
done
checked --preset gemma-2-9b --layers 1 --kv-dtype e4m3
checked --preset qwen2.5-7b --layers 1 --row-tokens 2
checked --preset tutorial --row-tokens 16
# Tests packed rows of 1 to 8 query tokens: with the balanced split, with fixed splits, and over fp8
# pages with windows.
checked --preset tutorial --row-tokens 8 --query-limit 64
checked --preset qwen2.5-7b --layers 1 --row-tokens 5 --query-limit 100 --deterministic
checked --preset gemma-2-9b --layers 2 --row-tokens 3 --query-limit 24 --kv-dtype e4m3
# Chunks of prompts beside drafts and rows that decode.
checked --preset tutorial --row-tokens 100 --query-limit 300
checked --preset gemma-2-9b --layers 2 --row-tokens 60 --query-limit 90 --kv-dtype e4m3
checked --preset gpt-oss-20b --layers 2 --row-tokens 40 --query-limit 64 --deterministic
# --check compares act, q, k, out and the appended tokens, of four rows with four query tokens each,
# and four pages per row of each cache.
run capture --preset tutorial --row-tokens 4 -o "$scratch/checked.fig"
run replay "$scratch/checked.fig" --steps 1 --kv 64 --check --json
json 'j["compared"] == 4 * (64 + (16 + 4 + 16) * 64 + 2 * 4 * 64) + 2 * 4 * 16 * 4 * 64'
run replay "$scratch/checked.fig" --steps 1 --kv 3
refused '--kv' '3' '4 queries'
run capture --preset qwen2.5-7b --layers 1 --row-tokens 2 -o "$scratch/checked.fig"
run replay "$scratch/checked.fig" --steps 1 --kv 1
refused '--kv' '1' '2 queries'

# ---- replay, refused -----------------------------------------------------------------------------
run replay "$scratch/h200.fig" --steps 6 --check --json
ends 0
json 'j["passed"] is True'
for dtype in float32 bfloat16; do
    sed "s/float16/$dtype/" "$scratch/config.json" > "$scratch/$dtype.json"
    run capture --config "$scratch/$dtype.json" --kv-limit 512 --layers 2 -o "$scratch/$dtype.fig"
    ends 0
    run replay "$scratch/$dtype.fig" --steps 8 --check --seed 7 --json
    ends 0
    json 'j["passed"] is True' 'j["worst_ulp"] > 0'
done

# ---- --check finds errors, also in programs that are not the standard step -----------------------
cat > "$scratch/record.c" << 'END'
#include <figraph.h>
#include <stdio.h>
#include <string.h>

static int is(const char *wrong, const char *name) {
    return strcmp(wrong, name) == 0;
}

static fig_tensor tensor(fig_program *p, const char *name, int rank, int64_t a, int64_t b,
                         int64_t c) {
    int paged = strstr(name, "cache") != NULL, vector = strchr(name, '_') != NULL && rank == 1;
    fig_tensor_info info = {.size = sizeof info, .name = name, .role = FIG_ROLE_BOUND,
                            .dtype = strstr(name, "scale") != NULL ? FIG_F32 : FIG_F16,
                            .rank = rank,
                            .dims = {vector ? a : paged ? FIG_DIM_PAGES : FIG_DIM_BATCH,
                                     vector ? 0 : a, b, c}};
    return fig_program_tensor(p, &info);
}

/* What the spec says of the standard step; the program does as the tutorial does. */
static void ask(fig_spec *spec, const char *wrong) {
    if (is(wrong, "gelu")) spec->activation = FIG_GELU;
    if (is(wrong, "window")) spec->window = 40;
    if (is(wrong, "cap")) spec->soft_cap = 5;
    if (is(wrong, "partial")) spec->rope.rotary_dim = 32;
    if (is(wrong, "norm")) spec->qk_norm_epsilon = 1e-6f;
    if (is(wrong, "scale")) spec->kv_dtype = FIG_E4M3;
    if (is(wrong, "dense")) spec->page_size = 0;
    if (is(wrong, "type")) spec->dtype = FIG_BF16;
    if (is(wrong, "tokens")) spec->row_tokens = 2;
    if (is(wrong, "missing")) spec->qk_norm_epsilon = 1e-6f;
}

/* Of another form than the standard step's of that name. */
static void forge(fig_tensor_info *pages, const char *wrong) {
    if (is(wrong, "dense")) pages->dims[1] = 512;
    if (is(wrong, "dense")) pages->dims[0] = 8;
    if (is(wrong, "fixed")) pages->dims[0] = 7;
    if (is(wrong, "role")) pages->role = FIG_ROLE_STATE;
    if (is(wrong, "layout")) pages->layout = FIG_HND;
}

/* The tutorial's step with one thing wrong in it. */
int main(int count, char **words) {
    const char *wrong = count > 2 ? words[1] : "";
    fig_spec spec = {.size = sizeof spec};
    fig_program *p;
    fig_graphs *graphs;
    if (fig_spec_preset(&spec, "tutorial") != FIG_OK) return 1;
    ask(&spec, wrong);
    if (fig_program_create(&p, &spec) != FIG_OK) return 1;
    fig_rope_spec rope = {.theta = is(wrong, "rope") ? 9000 : 10000};
    fig_tensor table = fig_program_tensor(
        p, FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE,
                       .dtype = FIG_I32, .rank = 2, .dims = {8, 32}));
    int64_t width = is(wrong, "width") ? 1 << 20 : 64;
    fig_tensor gate_up = tensor(p, "gate_up.0", 2, 2 * width, 0, 0);
    fig_tensor act = tensor(p, "act.0", 2, width, 0, 0);
    fig_tensor q = tensor(p, is(wrong, "name") ? "query.0" : "q.0", 3, 16, 64, 0);
    fig_tensor k = tensor(p, "k.0", 3, 4, 64, 0), v = tensor(p, "v.0", 3, 4, 64, 0);
    fig_tensor out = tensor(p, "out.0", 3, 16, 64, 0);
    fig_tensor none = {0};
    fig_dtype stored = is(wrong, "scale") ? FIG_E4M3 : FIG_F16;
    fig_tensor_info pages = {.size = sizeof pages, .name = "k_cache.0", .role = FIG_ROLE_BOUND,
                             .dtype = stored, .rank = 4, .dims = {FIG_DIM_PAGES, 16, 4, 64}};
    fig_cache cache = {.page_table = is(wrong, "dense") ? (fig_tensor){0} : table};
    forge(&pages, wrong);
    cache.k = fig_program_tensor(p, &pages);
    pages.name = "v_cache.0";
    cache.v = fig_program_tensor(p, &pages);
    fig_tensor q_norm = none, k_norm = none;
    if (is(wrong, "norm")) {
        q_norm = tensor(p, "q_norm.0", 1, 64, 0, 0);
        k_norm = tensor(p, "k_norm.0", 1, 64, 0, 0);
    }
    if (is(wrong, "scale")) {
        cache.v_scale = tensor(p, "k_scale.0", 1, 1, 0, 0);
        cache.k_scale = tensor(p, "v_scale.0", 1, 1, 0, 0);
    }
    fig_cache swapped = {.k = cache.v, .v = cache.k, .page_table = table};
    fig_program_layer(p, 0);
    fig_program_segment(p, "act.0");
    /* Whatever stands in place of the activation, there are as many nodes as there should be. */
    if (is(wrong, "act"))
        fig_append_kv(p, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v, .cache = cache));
    else if (is(wrong, "call"))
        fig_call(p, FIG_OPTIONS(fig_call_op, .call = "gemm", .reads = &gate_up, .read_count = 1,
                                .writes = &act, .write_count = 1));
    else
        fig_silu_and_mul(p, FIG_OPTIONS(fig_gated_op, .in = gate_up, .out = act));
    fig_program_segment(p, "attn.0");
    /* Nothing wrong is one node, as the step has it; what is wrong is in three, as it had them. */
    if (is(wrong, "none")) {
        fig_decode_attention(p, FIG_OPTIONS(fig_decode_attention_op, .q = q, .k = k, .v = v,
                                            .out = out, .cache = cache, .rope = &rope,
                                            .sm_scale = 0.125f));
    } else {
        fig_rope(p, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .rope = &rope, .q_norm = q_norm,
                                .k_norm = k_norm, .norm_epsilon = is(wrong, "norm") ? 0.5f : 0));
        fig_append_kv(p, FIG_OPTIONS(fig_append_kv_op, .k = k, .v = v,
                                     .cache = is(wrong, "append") ? swapped : cache));
        fig_attention(p, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache,
                                     .window = is(wrong, "window") ? 41 : 0,
                                     .sm_scale = is(wrong, "attention") ? 0.126f
                                                 : is(wrong, "nan")     ? 3e38f
                                                                        : 0.125f));
    }
    if (is(wrong, "extra")) tensor(p, "zzz.0", 2, 64, 0, 0);
    if (is(wrong, "more"))
        fig_silu_and_mul(p, FIG_OPTIONS(fig_gated_op, .in = gate_up, .out = act));
    if (fig_program_finish(p) != FIG_OK || fig_graphs_lower(&graphs, p, NULL) != FIG_OK ||
        fig_graphs_save(graphs, words[count - 1]) != FIG_OK) {
        fprintf(stderr, "%s: %s\n", wrong, fig_message());
        return 1;
    }
    fig_graphs_destroy(graphs);
    fig_program_destroy(p);
    return 0;
}
END
words='(recording programs with one thing wrong)'
${CC:-gcc} -std=c11 -Iinclude "$scratch/record.c" "$library" -lzstd -ljansson -lhwloc -lm \
    -lpthread -o "$scratch/record" > "$scratch/out" 2> "$scratch/err"
verdict $? 'a program must build with figraph.h alone'
record() {
    words="(recording with a wrong $1)"
    code=0
    "$scratch/record" "$1" "$scratch/$1.fig" > "$scratch/out" 2> "$scratch/err" || code=$?
    ends 0
}
found() { # WRONG TENSOR
    record "$1"
    run replay "$scratch/$1.fig" --steps 3 --check
    ends 1
    says 'step 1' "$2" 'must be' 'tolerance'
    run replay "$scratch/$1.fig" --steps 3 --check --json
    ends 1
    json 'j["passed"] is False'
    run replay "$scratch/$1.fig" --steps 3
    ends 0
}
record none
cmp -s "$fig" "$scratch/none.fig"
verdict $? 'the standard step by hand must be the same file as the preset'
found act 'act.0'
found rope 'q.0'
found append 'k_cache.0'
found attention 'out.0'
found nan 'nan and must be'
found gelu 'act.0'
found window 'out.0'
found cap 'out.0'
found partial 'q.0'
found norm 'q.0'
found scale 'k_cache.0'
record name
run replay "$scratch/name.fig" --steps 1
refused 'query.0'
record extra
run replay "$scratch/extra.fig" --steps 1
refused 'tensor zzz.0 is not one of a standard step'
record missing
run replay "$scratch/missing.fig" --steps 1
refused 'tensor k_norm.0 of the standard step is missing'
for wrong in width dense fixed role layout type tokens; do
    record $wrong
    run replay "$scratch/$wrong.fig" --steps 1 --check --rows 8 --kv 100 --device host
    refused "differs from the standard step's in its"
    run serve "$scratch/$wrong.fig" --requests 1 --device host --fast
    refused "differs from the standard step's in its"
done
record call
run replay "$scratch/call.fig" --steps 1
refused 'gemm'
record more
run replay "$scratch/more.fig" --steps 1
refused '5 nodes' '2'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
