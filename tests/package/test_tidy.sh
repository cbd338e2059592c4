#!/bin/sh
# test_tidy.sh: tests that tests/tidy reports each rule that a tree breaks, and accepts trees that
# break none.
#
# Each case puts one file into a tree of its own, and gives the beginning of the line that tidy must
# print.
# Invariant: a tree breaks one rule, so tidy prints exactly one line.
set -u
tidy=$(pwd)/tests/tidy
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# writes to a file too, since a case at the end of a pipe runs in a subshell and cannot set
# variables here
complain() {
    printf '%s\n' "$*" | tee -a "$scratch/complaints"
}

# Makes a tree with a valid public header and one more file, whose text is on stdin.
plant() {
    tree=$(mktemp -d "$scratch/tree.XXXXXX")
    mkdir -p "$tree/include" "$tree/$(dirname "$1")"
    printf '%s\n' '/* figraph.h: one function. */' 'FIG_API int fig_step_count(int step);' \
        > "$tree/include/figraph.h"
    cat >> "$tree/$1"
}

# red FILE LINE SENTENCE: for the file on stdin, tidy must print "FILE:LINE: SENTENCE...".
red() {
    plant "$1"
    said=$("$tidy" "$tree" 2> /dev/null) && complain "$1: nobody minded: $3"
    case $said in
    "$1:$2: $3"*) ;;
    *) complain "$1: expected \"$1:$2: $3\", got \"$said\"" ;;
    esac
    [ "$(printf '%s\n' "$said" | wc -l)" -eq 1 ] || complain "$1: more than one thing said: $said"
}

green() {
    plant "$1"
    said=$("$tidy" "$tree" 2>&1) || complain "$1 is sound, yet: $said"
}

repeat() { # COUNT LINE
    awk -v count="$1" -v line="$2" 'BEGIN { while (count-- > 0) print line }'
}

# in_function STATEMENT: prints a file that breaks no rule, with the statement on line 3.
in_function() {
    printf '%s\n' "/* $name: one function. */" 'void fig_thing_do(void) {' "    $1" '}'
}

# ---- Layering ------------------------------------------------------------------------------------
red planner/thing.c 2 'planner/ may not include "graphs/lower/lower.h"' << 'END'
/* thing.c: nothing. */
#include "graphs/lower/lower.h"
END
red include/other.h 2 'include/ may not include "planner/size.h"' << 'END'
/* other.h: nothing. */
#include "planner/size.h"
END
red graphs/thing.c 2 'graphs/ may not include "tools/figraph/terminal/emit.h"' << 'END'
/* thing.c: nothing. */
#include "tools/figraph/terminal/emit.h"
END
red graphs/thing.c 2 '"lower.h" is not included from the root' << 'END'
/* thing.c: nothing. */
#include "lower.h"
END
red tests/test_thing.c 2 '"../graphs/lower.h" is not included from the root' << 'END'
/* test_thing.c: nothing. */
#include "../graphs/lower.h"
END
sentence='tools/ sees the installed headers alone, not "planner/size.h"'
red tools/figraph/thing.c 2 "$sentence" << 'END'
/* thing.c: nothing. */
#include "planner/size.h"
END
sentence='examples/ sees the installed headers alone, not "tools/figraph/thing.h"'
red examples/thing.c 2 "$sentence" << 'END'
/* thing.c: nothing. */
#include "tools/figraph/thing.h"
END
red graphs/thing.c 2 'the library says "include/figraph.h"' << 'END'
/* thing.c: nothing. */
#include <figraph.h>
END
for header in cuda.h cuda_runtime.h cuda_fp16.h cublas.h nccl.h; do
    printf '/* thing.h: nothing. */\n#include <%s>\n' $header |
        red graphs/thing.h 2 "<$header>: CUDA is for"
done
for header in zstd.h jansson.h; do
    printf '/* thing.c: nothing. */\n#include <%s>\n' $header |
        red planner/thing.c 2 "<$header>: files and their formats are for graphs/"
done
for header in pthread.h time.h dlfcn.h hwloc.h sys/socket.h; do
    printf '/* thing.c: nothing. */\n#include <%s>\n' $header |
        red graphs/thing.c 2 "<$header>: threads, clocks and drivers are for engine/"
done

# ---- Lengths and layout --------------------------------------------------------------------------
{ echo '/* thing.c: long. */'; repeat 599 'int x;'; } |
    red graphs/thing.c 600 '600 lines, fewer than 600 are allowed'
{ echo '/* thing.c: not quite. */'; repeat 598 'int x;'; } | green graphs/thing.c
# public headers may be long, since each field has a line and a sentence there
repeat 700 'int x;' | green include/figraph.h
green include/thing.h << 'END'
/* thing.h: a template, which C++ needs in a header. */
template <typename type> type fig_options() {
    return type();
}
END
printf '/* thing.c: wide. */\n/* %s */\n' "$(repeat 95 x | tr -d '\n')" |
    red graphs/thing.c 2 '101 columns, 100 are allowed'
printf '/* thing.c: not quite. */\n/* %s */\n' "$(repeat 94 é | tr -d '\n')" | green graphs/thing.c
printf '/* thing.c: a tab. */\n\tint x;\n' | red graphs/thing.c 2 'a tab'
printf '/* thing.c: a space. */\nint x; \n' | red graphs/thing.c 2 'a space at the end'
long_function() {
    printf '/* thing.c: a function over two lines and more. */\nstatic int long_one(int a,\n'
    echo '                    int b) {'
    repeat "$1" '    work();'
    echo '}'
}
long_function 68 | red graphs/thing.c 2 'long_one has 71 lines, 70 are allowed'
long_function 67 | green graphs/thing.c

# ---- Names ---------------------------------------------------------------------------------------
red graphs/thing.c 1 'the first line is not "/* thing.c: ..."' << 'END'
/* other.c: nothing. */
END
red tools/thing.sh 2 'the second line is not "# thing.sh: ..."' << 'END'
#!/bin/sh
echo
END
plant graphs/thing.h << 'END'
/* thing.h: nothing. */
END
cp "$tree/graphs/thing.h" "$tree/include/thing.h"
"$tidy" "$tree" 2> /dev/null |
    grep -q '^include/thing.h:1: graphs/thing.h has the same file name$' ||
    complain 'two files of one name: nobody minded'
red graphs/thing.c 2 'fig_other_make is neither public nor named fig_thing_' << 'END'
/* thing.c: a name of another module. */
void *fig_other_make(const char *name) {
    return 0;
}
END
red graphs/thing.h 3 'thing_make is neither public nor named fig_thing_' << 'END'
/* thing.h: an inline function without its prefix. */

static inline int thing_make(int a) {
    return a;
}
END
red graphs/thing.c 2 'static fig_thing_make carries a prefix' << 'END'
/* thing.c: a static with a prefix. */
static int fig_thing_make(int a) {
    return a;
}
END
red kernels/rows/rope.cu 2 'fig_kernel_ropes is not named fig_kernel_rope' << 'END'
/* rope.cu: a kernel. */
extern "C" __global__ void __launch_bounds__(128)
fig_kernel_ropes(const __grid_constant__ fig_rope_params p) {
}
END
red graphs/thing.c 2 'a forward declaration' << 'END'
/* thing.c: a forward declaration. */
static int late(int a,
                int b);
END

# ---- Words and calls -----------------------------------------------------------------------------
for word in TODO FIXME XXX HACK; do
    printf '/* thing.c: nothing. */\n/* %s: later */\n' $word |
        red graphs/thing.c 2 'a note to oneself'
done
for path in /root/notes.md /home/someone/model.json; do
    printf '# Read\nSee %s.\n' $path | red README.md 2 'a path that only one machine has'
done
name=thing.c
for call in strcpy strcat sprintf vsprintf gets alloca strtok; do
    in_function "$call(a, b);" | red graphs/thing.c 3 'a call that cannot know its bounds'
done
for call in getenv secure_getenv setenv putenv; do
    in_function "x = $call(\"A\");" |
        red planner/thing.c 3 'the library does not read the environment'
done
for call in printf fprintf vprintf vfprintf dprintf puts fputs putchar putc fputc perror; do
    in_function "$call(a);" | red kernels/thing.c 3 'the library does not print'
done
for call in exit _exit _Exit quick_exit abort atexit; do
    in_function "$call(1);" | red engine/thing.c 3 'the library does not exit'
done
for atomic in 'atomic_load(&a);' '__atomic_load_n(&a, 2);' '_Atomic int a;' '__sync_lock(&a);'; do
    in_function "$atomic" | red engine/thing.c 3 'atomics are for ring.h'
done
for name in stats.h thread_check.h; do
    printf '/* %s: a counter. */\n#define TWO __atomic_load_n(&two, 0)\n' $name |
        green engine/$name
done
printf '/* thing.c: nothing. */\n#include <stdatomic.h>\n' |
    red graphs/thing.c 2 'atomics are for ring.h'

# ---- Rooms ---------------------------------------------------------------------------------------
# said_of TREE SENTENCE: tidy prints exactly this line for the tree.
said_of() {
    said=$("$tidy" "$1" 2> /dev/null) && complain "nobody minded: $2"
    [ "$said" = "$2" ] || complain "expected \"$2\", got \"$said\""
}
plant engine/thing/first.c << 'END'
/* first.c: nothing. */
END
for n in $(seq 25); do echo "/* file$n.c: nothing. */" > "$tree/engine/thing/file$n.c"; done
"$tidy" "$tree" > /dev/null 2>&1 || complain 'a room of 26 files is sound'
echo '/* last.c: nothing. */' > "$tree/engine/thing/last.c"
said_of "$tree" 'engine/thing:1: 27 files of code, 26 are allowed'

plant engine/thing/above.h << 'END'
/* above.h: nothing. */
#include "engine/other/below.h"
END
mkdir "$tree/engine/other"
echo '/* below.h: nothing. */' > "$tree/engine/other/below.h"
"$tidy" "$tree" > /dev/null 2>&1 || complain 'a room that includes another is sound'
echo '#include "engine/thing/above.h"' >> "$tree/engine/other/below.h"
case $("$tidy" "$tree" 2> /dev/null) in
*'it includes a room that includes it'*) ;;
*) complain 'nobody minded rooms that include each other' ;;
esac

# ---- Accepted trees ------------------------------------------------------------------------------
green graphs/thing.c << 'END'
/* thing.c: what looks wrong and is not: exit(1) in a comment, printf("x") in a
 * longer one that abort() ends, and a public name. */
#include <zstd.h>
#include "graphs/lower/lower.h"
#include "planner/size.h"

static const char text[] = "exit(1); /* no comment";
static int (*const table[])(int) = {0};
static const int wide = sizeof(int);

static int one(int a) {
    return snprintf(0, 0, "\"printf(%c", '"') + my_printf(a); // abort()
}

__attribute__((format(printf, 1, 2))) static fig_status
refuse(const char *format, ...) {
    return FIG_INVALID;
}

int fig_step_count(int step) {
    return one(step);
}

fig_status fig_fail(fig_status status, const char *format, ...) {
    return status;
}

__attribute__((format(printf, 1, 2))) int fig_thing_say(const char *format, ...) {
    return 0;
}
END
green kernels/rows/rope.cu << 'END'
/* rope.cu: a kernel as it should be. */
#include <cuda_fp16.h>
static __device__ float row_sum(float x) {
    return atomicAdd(&x, 1.0f);
}

extern "C" __global__ void __launch_bounds__(128)
fig_kernel_rope(const __grid_constant__ fig_rope_params p) {
}
END
green kernels/step/planning.cu << 'END'
/* planning.cu: a kernel whose row has a shorter name, and a helper for several types. */
template <typename number> static __device__ number twice(number x) {
    return x + x;
}

extern "C" __global__ void __launch_bounds__(128)
fig_kernel_plan(const __grid_constant__ fig_plan_params p) {
}
END
green engine/host/device_host.c << 'END'
/* device_host.c: where threads and atomics live. */
#include <pthread.h>
#include <stdatomic.h>
static _Atomic int word;
END
green tools/figraph/main.c << 'END'
/* main.c: a program may print, exit and read the environment. */
#include <figraph.h>
#include "tools/figraph/terminal/emit.h"
int main(void) {
    printf("%s", getenv("FIG_DEVICE"));
    exit(1);
}
END

"$tidy" "$scratch/nowhere" 2> /dev/null
[ $? -eq 2 ] || complain 'a root that does not exist is not refused'
[ ! -s "$scratch/complaints" ]
