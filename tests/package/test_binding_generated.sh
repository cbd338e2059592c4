#!/bin/sh
# test_binding_generated.sh: tests, with ctypes, that a binding can be generated from the headers
# alone.
#
# tools/binding.py reads the headers and writes a Python module. The module's sizes, offsets and
# types of all fields must equal the C compiler's, every field must have a fixed width, and the
# module must suffice to plan a step with the library.
set -eu
library=$(cd "${BUILD:-build}" && pwd)/libfigraph.so
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

generate() { # HEADER MODULE
    python3 tools/binding.py "$1" include/figraph_archive.h include/figraph_parallel.h \
        include/figraph_ranks.h include/figraph_rope.h include/figraph_scores.h \
        include/figraph_tune.h include/figraph_unstable.h \
        > "$scratch/$2.py" 2> "$scratch/error"
}

cat > "$scratch/layout.py" << 'END'
import ctypes
import importlib
import subprocess
import sys

KINDS = {
    ctypes.c_uint16: "uint16_t",
    ctypes.c_int32: "int32_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_int64: "int64_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_float: "float",
    ctypes.c_double: "double",
    ctypes.c_char: "char",
}
HEAD = """#include <figraph.h>
#include <figraph_archive.h>
#include <figraph_parallel.h>
#include <figraph_ranks.h>
#include <figraph_rope.h>
#include <figraph_scores.h>
#include <figraph_tune.h>
#include <figraph_unstable.h>
#include <stdio.h>
#define KIND(value) _Generic((value), int32_t: "int32_t", uint16_t: "uint16_t", \\
    uint32_t: "uint32_t", int64_t: "int64_t", uint64_t: "uint64_t", float: "float", \\
    double: "double", char: "char", default: "other")
#define FIELD(type, field, item) printf("%s.%s %zu %zu %s\\n", #type, #field, \\
    offsetof(type, field), sizeof(((type *)0)->field), KIND(((type *)0)->item))
int main(void) {
"""


def is_array(kind):
    return isinstance(kind, type(ctypes.Array))


def structs(module):
    for name, kind in vars(module).items():
        if name.startswith("fig_") and hasattr(kind, "_fields_"):
            yield name, kind


def ours(module):
    """A line for each struct and each field, as ctypes has them."""
    for name, kind in structs(module):
        yield "%s %d" % (name, ctypes.sizeof(kind))
        for field, held in kind._fields_:
            at, item = getattr(kind, field), held._type_ if is_array(held) else held
            yield "%s.%s %d %d %s" % (name, field, at.offset, at.size, KINDS.get(item, "other"))


def program(module):
    """What prints the same lines as the compiler has them."""
    lines = []
    for name, kind in structs(module):
        lines.append('    printf("%s %%zu\\n", sizeof(%s));' % (name, name))
        for field, held in kind._fields_:
            item = field + "[0]" if is_array(held) else field
            lines.append("    FIELD(%s, %s, %s);" % (name, field, item))
    return HEAD + "\n".join(lines) + "\n}\n"


module, scratch, compiler = importlib.import_module(sys.argv[1]), sys.argv[2], sys.argv[3]
with open(scratch + "/layout.c", "w", encoding="utf-8") as file:
    file.write(program(module))
command = compiler.split() + ["-Iinclude", scratch + "/layout.c", "-o", scratch + "/layout"]
subprocess.run(command, check=True)
theirs = subprocess.run([scratch + "/layout"], check=True, capture_output=True, text=True)
wrong = [pair for pair in zip(ours(module), theirs.stdout.splitlines()) if pair[0] != pair[1]]
for python, c in wrong:
    print("ctypes has %s, the compiler %s" % (python, c))
assert len(list(ours(module))) == len(theirs.stdout.splitlines()) > 200
sys.exit(1 if wrong else 0)
END
is_same() { # MODULE
    PYTHONPATH=$scratch python3 -B "$scratch/layout.py" "$1" "$scratch" "${CC:-gcc}"
}

generate include/figraph.h figraph || {
    cat "$scratch/error"
    exit 1
}
is_same figraph

# The test notices a field whose type differs from the compiler's, even if the size is the same.
for change in 's/int64_t token_limit/int32_t token_limit/' 's/float soft_cap/int32_t soft_cap/' \
    's/uint64_t bytes/int64_t bytes/' 's/char name\[16\]/char name[24]/'; do
    sed "$change" include/figraph.h > "$scratch/changed.h"
    generate "$scratch/changed.h" changed
    if is_same changed > /dev/null; then
        echo "$change: sizes and types are the same all the same"
        exit 1
    fi
done

# A header with a field of no fixed width is refused.
for width in int long size_t 'unsigned char' char; do
    sed "s/int64_t token_limit/$width token_limit/" include/figraph.h > "$scratch/changed.h"
    if generate "$scratch/changed.h" changed; then
        echo "$width: a field of it was taken"
        exit 1
    fi
    grep -q 'binding.py: .*fig_step' "$scratch/error" || {
        echo "$width: refused without the struct's name: $(cat "$scratch/error")"
        exit 1
    }
done

# A header from which no module can be made is refused with a message, and --help prints help.
refused() { # WORD, ARGUMENT...
    word=$1
    shift
    if python3 tools/binding.py "$@" > "$scratch/none.py" 2> "$scratch/error"; then
        echo "tools/binding.py $*: it wrote a module"
        exit 1
    fi
    if [ -s "$scratch/none.py" ] || grep -q Traceback "$scratch/error" ||
        ! grep -q "binding.py: .*$word" "$scratch/error"; then
        echo "tools/binding.py $*: not refused for $word: $(cat "$scratch/error")"
        exit 1
    fi
}
refused HEADER
refused none.h "$scratch/none.h"
refused 'no function' /dev/null
python3 tools/binding.py --help | grep -q '^usage: binding.py .*HEADER' || {
    echo 'tools/binding.py --help: no usage'
    exit 1
}

cat > "$scratch/use.py" << 'END'
import ctypes
import json
import sys

import figraph

library = figraph.load(sys.argv[1])
assert library.fig_version() == figraph.FIG_VERSION
assert library.fig_status_name(figraph.FIG_BUSY) == b"FIG_BUSY"


def must(status):
    assert status == figraph.FIG_OK, library.fig_message().decode()


spec = figraph.options(figraph.fig_spec)
must(library.fig_spec_preset(spec, b"tutorial"))
program = ctypes.POINTER(figraph.fig_program)()
must(library.fig_program_create(program, spec))
library.fig_program_decode_step(program)
assert library.fig_program_find(program, b"q.0").id != 0
must(library.fig_program_finish(program))
graphs = ctypes.POINTER(figraph.fig_graphs)()
must(library.fig_graphs_lower(graphs, program, None))
lengths = (ctypes.c_int32 * 1)(17)
step = figraph.options(figraph.fig_step, rows=1, kv_lengths=lengths)
report = figraph.options(figraph.fig_plan_report)
must(library.fig_graphs_plan(graphs, step, report))
assert report.bucket >= 1 and report.tiles >= 1 and report.plan_bytes <= report.plan_bytes_limit
reasons = []
take = figraph.fig_fit_callback(lambda user, fit, reason: reasons.append(reason))
traits, fit = figraph.options(figraph.fig_traits), figraph.fig_fit()
must(library.fig_traits_named(traits, b"a100"))
must(library.fig_graphs_fit(graphs, traits, ctypes.byref(fit), take, None))
assert fit.value != figraph.FIG_FIT_FINE and reasons and all(reasons)
lengths[0] = -1
assert library.fig_graphs_plan(graphs, step, report) == figraph.FIG_INVALID
assert b"-1" in library.fig_message()
library.fig_graphs_destroy(graphs)
library.fig_program_destroy(program)
END
PYTHONPATH=$scratch python3 -B "$scratch/use.py" "$library"
