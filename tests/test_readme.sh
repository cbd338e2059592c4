#!/bin/sh
# test_readme.sh: what README.md shows is what happens.
#
# Its serving loop is extracted, counted, compiled as it says and run; its other examples are
# compiled against the header, one by one; its drawing is compared with what the program draws; its
# command lines are run, and its folders, files and make targets looked for.
set -eu
root=$PWD
build=$root/${BUILD:-build}
readme=$root/README.md
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
    echo "README.md: $*"
    exit 1
}

# A figraph that README's commands find under the names it uses.
mkdir "$scratch/build" "$scratch/bin"
ln -s "$build/figraph" "$build/libfigraph.a" "$scratch/build/"
ln -s "$build/figraph" "$scratch/bin/figraph"
ln -s "$root/include" "$scratch/include"
PATH=$scratch/bin:$PATH
cd "$scratch"
unset FIG_DEVICE COLUMNS LC_ALL LC_CTYPE
LANG=C.UTF-8
export LANG

# ---- The serving loop, which is the first example
awk '/^```c$/ { number++; inside = 1; next } /^```$/ { inside = 0 }
    inside { print > ("example." number ".c") }' "$readme"
mv example.1.c serve.c
lines=$(wc -l < serve.c)
[ "$lines" -ge 15 ] && [ "$lines" -le 35 ] || fail "the serving loop has $lines lines, not 15 to 35"
sh -ec "$(sed -n 's/^`\(build\/figraph capture [^`]*\)`.*/\1/p' "$readme")" > log 2>&1 ||
    fail "the capture before the serving loop: $(cat log)"
compile=$(sed -n 's/^    gcc \(serve\.c .*\)/\1/p' "$readme")
compile="${CC:-gcc} -Wall -Wextra -Werror $compile"
sh -ec "$compile" > log 2>&1 || fail "the serving loop does not compile: $(cat log)"
./serve > log 2>&1 || fail "the serving loop failed: $(cat log)"
grep -qx '64 steps over 4 pages: the mean of v is .*right' log && [ "$(wc -l < log)" -eq 1 ] ||
    fail "the serving loop does not say in one line that it ran: $(cat log)"
# It is to see that it serves what it was given: without its pages it is wrong.
cp serve.c whole.c
awk '/seen % 16 == 1/ { skip = 1 } !skip { print } skip && /;$/ { skip = 0 }' whole.c > serve.c
grep -q set_pages serve.c && fail 'the pages were not taken out of the serving loop'
sh -ec "$compile" > log 2>&1 || fail "the serving loop without pages does not compile: $(cat log)"
./serve > log 2>&1 && fail "the serving loop does not notice that its pages are missing"
grep -q 'wrong' log || fail "the serving loop without pages says: $(cat log)"
cp whole.c serve.c
sh -ec "$compile" > log 2>&1
mkdir elsewhere
if (cd elsewhere && ../serve) > log 2>&1; then
    fail 'the serving loop does not notice that its file is missing'
fi
grep -q 'tutorial\.fig' log || fail "the serving loop names no file: $(cat log)"

# ---- The other examples, which go on from it: with its includes and TRY, and what is the caller's
cat > prologue.h << 'END'
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUstream_st *CUstream;
enum { CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1 };
int cuStreamBeginCapture(CUstream stream, int mode);
int cuStreamEndCapture(CUstream stream, CUgraph *graph);
int cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
int cuGraphDestroy(CUgraph graph);
int cuGraphLaunch(CUgraphExec exec, CUstream stream);
void your_qkv(int layer, CUstream stream);
void your_projection_and_gate_up(int layer, CUstream stream);
void your_down(int layer, CUstream stream);
END
grep -E '^#(include|define)' serve.c >> prologue.h
examples=0
for example in example.*.c; do
    ${CC:-gcc} -std=c11 -fsyntax-only -Wall -Wextra -Werror -Iinclude -include prologue.h \
        "$example" > log 2>&1 || fail "an example does not compile: $(cat log)"
    examples=$((examples + 1))
done
[ "$examples" -ge 4 ] || fail "it has $examples examples beside the loop, not 4"

# ---- The capture, followed: where nothing is captured its segments run at once, on the host too
capture=$(grep -l '^CUgraphExec capture' example.*.c) || fail 'there is no example of a capture'
cat > followed.c << 'END'
#include <assert.h>
#define cuStreamBeginCapture(stream, mode) ((void)(stream))
#define cuStreamEndCapture(stream, graph) ((void)(*(graph) = NULL))
#define cuGraphInstantiate(exec, graph, flags) ((void)(*(exec) = NULL))
#define cuGraphDestroy(graph) ((void)(graph))
#define cuGraphLaunch(exec, stream) ((void)(exec), (void)(stream))
#define your_qkv(layer, stream) ((void)(layer))
#define your_projection_and_gate_up(layer, stream) ((void)(layer))
#define your_down(layer, stream) ((void)(layer))
END
cat "$capture" >> followed.c
cat >> followed.c << 'END'
int main(void) {
    const int32_t lengths[] = {1, 1, 1};
    fig_tensor_info tensor = {.size = sizeof tensor};
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs *graphs;
    fig_engine *engine;
    TRY(fig_graphs_load(&graphs, "tutorial.fig"));
    fig_graphs_read_info(graphs, &info);
    TRY(fig_engine_open(&engine, graphs,
                        FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST)));
    for (int i = 0; fig_graphs_tensor(graphs, i, &tensor) == FIG_OK; i++)
        TRY(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = tensor.name,
                                                .bytes = 1 << 18)));
    for (int32_t rows = 1; rows <= 3; rows++) {
        fig_step of = {.size = sizeof of, .rows = rows, .kv_lengths = lengths};
        fig_plan_report report = {.size = sizeof report};
        fig_engine_stats stats = {.size = sizeof stats};
        TRY(fig_graphs_plan(graphs, &of, &report));
        of.bucket = report.bucket;
        step(engine, &of, NULL);
        capture(engine, report.bucket, info.spec->layers);
        TRY(fig_engine_wait(engine, 60000000));
        fig_engine_read_stats(engine, &stats);
        if (stats.launched != rows || stats.last_bucket != report.bucket) return 2;
    }
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}
END
follow=$(printf '%s\n' "$compile" |
    sed 's/serve\.c/-include prologue.h followed.c/; s/-o serve/-o followed/')
sh -ec "$follow" > log 2>&1 || fail "the capture cannot be followed: $(cat log)"
./followed > log 2>&1 || fail "the capture, followed, fails: $(cat log)"

# ---- The drawing
awk '/^\$ build\/figraph / { inside = 1; next } /^```$/ { inside = 0 } inside' "$readme" > drawn
sh -ec "$(sed -n 's/^\$ \(build\/figraph plan .*\)/\1/p' "$readme")" > drawing
diff drawn drawing > log || fail "the drawing is not what figraph plan draws: $(cat log)"

# ---- Command lines, in their order
cat > config.json << 'END'
{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 64, "num_hidden_layers": 1,
 "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "hidden_act": "silu",
 "max_position_embeddings": 512, "rope_theta": 10000.0, "torch_dtype": "float16"}
END
sed -n 's/^    \(figraph .*\)/\1/p' "$readme" | sed 's/   .*//' > commands
[ "$(wc -l < commands)" -ge 6 ] || fail 'its command lines were not found'
cp tutorial.fig old.fig # two files that do not differ
cp tutorial.fig new.fig
while read -r command; do
    code=0
    sh -ec "$command" > log 2>&1 || code=$?
    case $command in
    "figraph diff "*) due=1 ;; # its two files differ
    *) due=0 ;;
    esac
    [ "$code" -eq "$due" ] || fail "$command: $(tail -n 1 log)"
done < commands

# ---- Names
cd "$root"
for folder in $(sed -n 's/^\([a-z]*\)\/   *.*/\1/p' "$readme"); do
    [ -d "$folder" ] || fail "there is no folder $folder"
done
for file in $(grep -o '\(tools\|tests\)/[a-z/_]*\.[a-z]*' "$readme" | sort -u); do
    [ -e "$file" ] || fail "there is no file $file"
done
for target in $(grep -o 'make [a-z]*' "$readme" | sed 's/make //' | sort -u); do
    grep -q "^$target:" Makefile || fail "there is no make $target"
done
