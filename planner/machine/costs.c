/* costs.c: the costs of attention's variants on the machines that were measured.
 *
 * `figraph tune --rows` makes the rows from the times in tools/bench/results, and
 * tools/bench/costs.sh writes them here. Invariant: for h200 and cached values of 2 bytes there is
 * a row for every variant that any machine may offer. */
#include "planner/machine/costs.h"

#include <string.h>

typedef struct cost_row {
    const char *machine;
    int32_t value_bytes;
    const char *variant;
    int32_t start_ns, bytes_per_us, piece_ns, segment_ns;
} cost_row;

/* clang-format off */
static const cost_row rows[] = {
    {"h100", 2, "head", 1057, 23032, 54, 593},
    {"h100", 2, "page", 2035, 23174, 137, 0},
    {"h100", 2, "pair", 1686, 23426, 82, 283},
    {"h100", 2, "four", 1734, 23240, 149, 354},
    {"h100", 1, "head", 966, 21577, 13, 791},
    {"h100", 1, "page", 2337, 22558, 156, 535},
    {"h100", 1, "pair", 666, 23082, 160, 1279},
    {"h100", 1, "four", 1315, 22969, 161, 932},
    {"h200", 2, "head", 2325, 33791, 124, 569},
    {"h200", 2, "page", 3328, 34843, 646, 0},
    {"h200", 2, "pair", 2922, 34681, 74, 398},
    {"h200", 2, "four", 2803, 34538, 336, 354},
    {"h200", 1, "head", 1156, 30270, 0, 1380},
    {"h200", 1, "page", 3190, 33228, 564, 982},
    {"h200", 1, "pair", 1344, 33103, 126, 1322},
    {"h200", 1, "four", 2327, 33463, 302, 1131},
};
/* clang-format on */
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

/* The values of `once` and tile_ns (units.h). `figraph tune` fits them to steps that do not
 * saturate the memory. tools/bench/results has no time of such a step, so this table is not made
 * from those files: run tune on a GPU of each machine to replace it. The values come from 51
 * benchmark cells on one H200, measured in a chain of launches with caches of 2 bytes; in most
 * cells the rows are ragged. The values of "four" were not measured; they lie between those of its
 * neighbours.
 *
 * Segments of one tile in a 1-byte cache do not saturate the memory either, and their times agree
 * with the table: the cells 128x128 and 256x128 take 2.10 us with "head" and 2.64 us with "pair";
 * the table predicts 2.11 and 2.60 us. */
static const struct {
    const char *variant;
    int32_t once, tile_ns;
} unit_rows[] = {{"head", 33, 690}, {"page", 14, 1790}, {"pair", 41, 730}, {"four", 24, 1200}};
enum { UNIT_ROW_COUNT = sizeof unit_rows / sizeof unit_rows[0] };

static const cost_row *find(const char *machine, int32_t value_bytes, const char *variant) {
    for (int i = 0; i < ROW_COUNT; i++)
        if (strcmp(rows[i].machine, machine) == 0 && rows[i].value_bytes == value_bytes &&
            strcmp(rows[i].variant, variant) == 0)
            return &rows[i];
    return NULL;
}

void fig_costs_take(const char *machine, int32_t value_bytes, fig_variant *variant) {
    const cost_row *row = find(machine, value_bytes, variant->name);
    if (row == NULL) row = find("h200", value_bytes, variant->name);
    if (row == NULL) row = find(machine, 2, variant->name);
    if (row == NULL) row = find("h200", 2, variant->name);
    assert(row != NULL);
    variant->start_ns = row->start_ns;
    variant->bytes_per_us = row->bytes_per_us;
    variant->piece_ns = row->piece_ns;
    variant->segment_ns = row->segment_ns;
    for (int i = 0; i < UNIT_ROW_COUNT; i++)
        if (strcmp(unit_rows[i].variant, variant->name) == 0) {
            variant->once = unit_rows[i].once;
            variant->tile_ns = unit_rows[i].tile_ns;
        }
}
