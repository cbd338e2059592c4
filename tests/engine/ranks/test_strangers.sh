#!/bin/sh
# test_strangers.sh: a command on a strange file touches memory in proportion to the file, however
# much memory the file asks for.
#
# The limits are on touched memory, not on time, which depends on the machine. The files are legal
# and made through the public header. Invariant: the last line is "N passed, N failed".
# shellcheck source=tests/support/cli.sh
. "$(dirname "$0")/../../support/cli.sh"
library=${BUILD:-build}/libfigraph.a

cat > "$scratch/craft.c" << 'END'
#include <figraph.h>
#include <stdio.h>
#include <string.h>

enum { BUCKETS = 1000, NODES = 8191, CALL_TENSORS = 16 };
enum { LONG_NODES = 1270 }; /* 3328 bytes of params each: near the limit, 4.25 MiB */

/* Records calls that all write or read the same tensors, so each follows many others. */
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

/* Records the same node LONG_NODES times. It has two launches with the longest params. */
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

/* "wide": as many launches as a file may have; no two buckets have the same launches.
 * "huge": the tutorial's step, and a tensor of 3 GiB that no node uses.
 * "dense": as many nodes as a file may have, which depend on each other.
 * "many": nodes with the longest params, as many as a file may have. */
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
        options.deterministic = 1; /* gives one variant per size */
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
verdict $? 'the program that makes them must be built'

touches() { # MiB, COMMAND...: runs the command and fails if it touched more than MiB of memory
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
    verdict $? "$file.fig must be made"
    enough=64
    [ "$file" = many ] && enough=128 # each node has two launches, whose params are 24 MiB
    touches $enough verify "$scratch/$file.fig"
    touches $enough memory "$scratch/$file.fig"
    touches $enough inspect "$scratch/$file.fig"
done
# The first command prepares one of a thousand buckets. The second touches no page of its tensor of
# 3 GiB.
touches 256 replay "$scratch/wide.fig" --steps 1 --rows 1 --kv 1 --check --device host
touches 64 replay "$scratch/huge.fig" --steps 1 --rows 1 --kv 1 --device host
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
