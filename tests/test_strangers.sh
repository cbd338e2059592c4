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

enum { BUCKETS = 1000 };

/* "wide": as many launches as a file may have, of which no two buckets have the same.
 * "huge": the tutorial's step, and a tensor of 3 GiB that nothing needs. */
int main(int count, char **words) {
    const int wide = count > 2 && strcmp(words[1], "wide") == 0;
    static fig_bucket buckets[BUCKETS];
    fig_lower_options options = {.size = sizeof options};
    fig_spec spec = {.size = sizeof spec};
    fig_program *program;
    fig_graphs *graphs;
    if (fig_spec_preset(&spec, "tutorial") != FIG_OK) return 1;
    if (wide) {
        for (int i = 0; i < BUCKETS; i++)
            buckets[i] = (fig_bucket){i + 1, 1};
        options.buckets = buckets;
        options.bucket_count = BUCKETS;
        options.deterministic = 1; /* so that there is one variant */
        spec.batch_limit = spec.sequence_limit = BUCKETS;
        spec.layers = 80;
    }
    if (fig_program_create(&program, &spec) != FIG_OK) return 1;
    fig_program_decode_step(program);
    if (!wide)
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
for file in wide huge; do
    "$scratch/craft" "$file" "$scratch/$file.fig" > "$scratch/out" 2> "$scratch/err"
    verdict $? "$file.fig is to be made"
    touches 64 verify "$scratch/$file.fig"
    touches 64 memory "$scratch/$file.fig"
    touches 64 inspect "$scratch/$file.fig"
done
# One bucket of a thousand is prepared, and of the 3 GiB no page is touched.
touches 256 replay "$scratch/wide.fig" --steps 1 --rows 1 --kv 1 --check --device host
touches 64 replay "$scratch/huge.fig" --steps 1 --rows 1 --kv 1 --device host
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
