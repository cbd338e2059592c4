#!/bin/sh
# test_strangers.sh: a file costs a command what it is worth, however large what it asks for.
#
# What is limited is memory that was touched, and never time, which is the machine's own. The files
# are legal, and made through the public header. Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/support/cli.sh"
library=${BUILD:-build}/libfigraph.a

cat > "$scratch/craft.c" << 'END'
#include <figraph.h>
#include <stdio.h>
#include <string.h>

enum { BUCKETS = 1000, NODES = 8191, CALL_TENSORS = 16 };
enum { LONG_NODES = 1270 }; /* whose params, 3264 bytes each, are near the limit, 4 MiB */

/* Calls that all write or read the same tensors, so that each comes after many. */
static void record_dense(fig_program *program) {
    fig_tensor tensors[CALL_TENSORS];
    for (int i = 0; i < CALL_TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        tensors[i] = fig_program_tensor(program,
                                        FIG_OPTIONS(fig_tensor_info, .name = name,
                                                    .role = FIG_ROLE_TEMP, .dtype = FIG_F32,
                                                    .rank = 1, .dims = {1}));
    }
    for (int i = 0; i < NODES; i++) {
        const int count = i % 8 == 0 ? CALL_TENSORS : 0;
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c", .reads = tensors,
                                      .read_count = CALL_TENSORS - count, .writes = tensors,
                                      .write_count = count));
    }
}

/* One node of two launches with the longest params, over and over. */
static void record_many(fig_program *program, const fig_spec *spec) {
    static const char *const names[] = {"q", "k", "v", "out", "k_cache", "v_cache", "table"};
    const int64_t heads[] = {spec->q_heads, spec->kv_heads, spec->kv_heads, spec->q_heads};
    fig_tensor t[7];
    for (int i = 0; i < 7; i++) {
        fig_tensor_info info = {.size = sizeof info, .name = names[i], .dtype = spec->dtype};
        info.role = FIG_ROLE_BOUND;
        info.rank = i < 4 ? 3 : i < 6 ? 4 : 2;
        info.dims[0] = i < 4 ? FIG_DIM_BATCH : i < 6 ? FIG_DIM_PAGES : spec->sequence_limit;
        info.dims[1] = i < 4 ? heads[i] : spec->page_size;
        info.dims[2] = i < 4 ? spec->head_dim : i < 6 ? spec->kv_heads : 0;
        info.dims[3] = i == 4 || i == 5 ? spec->head_dim : 0;
        if (i == 6) {
            info.dtype = FIG_I32;
            info.dims[1] = spec->kv_limit / spec->page_size;
        }
        t[i] = fig_program_tensor(program, &info);
    }
    for (int i = 0; i < LONG_NODES; i++)
        fig_decode_attention(program,
                             FIG_OPTIONS(fig_decode_attention_op, .q = t[0], .k = t[1], .v = t[2],
                                         .out = t[3],
                                         .cache = {.k = t[4], .v = t[5], .page_table = t[6]}));
}

static int is(const char *word, const char *kind) {
    return strcmp(word, kind) == 0;
}

/* "wide": as many launches as a file may have, of which no two buckets have the same.
 * "huge": the tutorial's step, and a tensor of 3 GiB that nothing needs.
 * "dense", "many": as many nodes as a file may have, which depend on each other, or as many as it
 * may have of those whose launches are as large as they come. */
int main(int count, char **words) {
    const int wide = is(words[1], "wide"), huge = is(words[1], "huge");
    static fig_bucket buckets[BUCKETS];
    fig_lower_options options = {.size = sizeof options};
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    fig_graphs *graphs;
    if (fig_spec_preset(&spec, "tutorial") != FIG_OK) return 1;
    spec.sequence_limit = spec.batch_limit;
    if (wide) {
        for (int i = 0; i < BUCKETS; i++)
            buckets[i] = (fig_bucket){i + 1, 1};
        options.buckets = buckets;
        options.bucket_count = BUCKETS;
        options.deterministic = 1; /* so that there is one variant */
        spec.batch_limit = spec.sequence_limit = BUCKETS;
        spec.layers = 80;
    }
    if (is(words[1], "dense") || is(words[1], "many")) {
        buckets[0] = (fig_bucket){1, 16};
        options.buckets = buckets;
        options.bucket_count = 1;
    }
    if (fig_program_create(&program, &spec) != FIG_OK) return 1;
    if (is(words[1], "dense")) record_dense(program);
    if (is(words[1], "many")) record_many(program, &spec);
    if (wide || huge) fig_program_decode_step(program);
    if (huge)
        fig_program_tensor(program,
                           FIG_OPTIONS(fig_tensor_info, .name = "huge", .dtype = FIG_I32, .rank = 2,
                                       .dims = {3, 1 << 28}));
    if (fig_program_finish(program) != FIG_OK ||
        fig_graphs_lower(&graphs, program, &options) != FIG_OK ||
        fig_graphs_save(graphs, words[count - 1]) != FIG_OK) {
        fprintf(stderr, "%s\n", fig_message());
        return 1;
    }
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
    return 0;
}
END
words='(making the files)'
${CC:-gcc} -std=c11 -Iinclude "$scratch/craft.c" "$library" -lzstd -ljansson -lhwloc -lm \
    -lpthread -o "$scratch/craft" > "$scratch/out" 2> "$scratch/err"
verdict $? 'the program that makes them is to be built'

touches() { # MiB, COMMAND...: runs it, and holds what it has touched of memory against MiB
    most=$1
    shift
    words=$*
    code=0
    python3 -c 'import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as touched:
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=touched)
sys.exit(code)' "$scratch/touched" "$figraph" "$@" > "$scratch/out" 2> "$scratch/err" || code=$?
    ends 0
    touched=$(cat "$scratch/touched")
    [ "$touched" -le "$most" ]
    verdict $? "$touched MiB of memory were touched, $most are enough"
}
for file in wide huge dense many; do
    "$scratch/craft" "$file" "$scratch/$file.fig" > "$scratch/out" 2> "$scratch/err"
    verdict $? "$file.fig is to be made"
    enough=64
    [ "$file" = many ] && enough=128 # two launches of each node, whose params are 24 MiB
    touches $enough verify "$scratch/$file.fig"
    touches $enough memory "$scratch/$file.fig"
    touches $enough inspect "$scratch/$file.fig"
done
# One bucket of a thousand is prepared, and of the 3 GiB no page is touched.
touches 256 replay "$scratch/wide.fig" --steps 1 --rows 1 --kv 1 --check --device host
touches 64 replay "$scratch/huge.fig" --steps 1 --rows 1 --kv 1 --device host
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
