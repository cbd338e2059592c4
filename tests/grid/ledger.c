/* ledger.c: see ledger.h.
 *
 * A line is "block SECTION FIRST COUNT FAILED SECONDS" and, for each measure, "|NAME=WORST".
 * Invariant: a section's numbers include only blocks without a failure. */
#include "tests/grid/ledger.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/place.h"

enum { LINE_LIMIT = 4096 };

static uint64_t mix(uint64_t id, const char *text) {
    for (; *text != '\0'; text++)
        id = (id ^ (uint8_t)*text) * UINT64_C(1099511628211);
    return id;
}

/* Returns an id that changes if any section's name, count or description changes, or the size of a
 * block. */
static uint64_t grid_id(void) {
    uint64_t id = UINT64_C(1469598103934665603) + FIG_VERSION + ((uint64_t)BLOCK_CASES << 32);
    for (int32_t i = 0; i < grid_section_count(); i++) {
        const grid_section *section = grid_section_at(i);
        id = mix(mix(id, section->name), section->covers);
        id = (id ^ (uint64_t)grid_section_cases(section)) * UINT64_C(1099511628211);
    }
    return id;
}

/* ---- Blocks -------------------------------------------------------------------------------- */

static void measure(ledger_block *block, const char *name, double worst) {
    int32_t i = 0;
    while (i < block->measure_count && strcmp(block->measures[i].name, name) != 0)
        i++;
    if (i == GRID_MEASURE_LIMIT) return;
    if (i == block->measure_count) {
        block->measures[block->measure_count++] = (grid_measure){.worst = 0};
        snprintf(block->measures[i].name, sizeof block->measures[i].name, "%s", name);
    }
    if (worst > block->measures[i].worst) block->measures[i].worst = worst;
}

void ledger_merge(ledger_block *block, const grid_report *report) {
    for (int32_t i = 0; i < report->measure_count; i++)
        measure(block, report->measures[i].name, report->measures[i].worst);
}

int ledger_has(const ledger *l, const ledger_block *block) {
    for (int64_t i = 0; i < l->block_count; i++) {
        const ledger_block *held = &l->blocks[i];
        if (held->section == block->section && held->first == block->first &&
            held->count == block->count && held->failed == 0)
            return 1;
    }
    return 0;
}

/* The blocks of a share are at equal distances in the sequence of all sections' blocks. */
int ledger_wants(const ledger *l, const ledger_block *block) {
    const int64_t before = l->blocks_before[block->section] + block->first / BLOCK_CASES;
    return l->share <= 1 || before % l->share == 0;
}

static void count_blocks(ledger *l) {
    int64_t blocks = 0;
    assert(grid_section_count() <= LEDGER_SECTION_LIMIT);
    for (int32_t i = 0; i < grid_section_count(); i++) {
        l->blocks_before[i] = blocks;
        blocks += (grid_section_cases(grid_section_at(i)) + BLOCK_CASES - 1) / BLOCK_CASES;
    }
}

static void keep(ledger *l, const ledger_block *block) {
    if (l->block_count == l->block_capacity) {
        int64_t capacity = l->block_capacity * 2 + 64;
        void *moved = realloc(l->blocks, (size_t)capacity * sizeof *l->blocks);
        if (moved == NULL) {
            fprintf(stderr, "grid: no memory for %" PRId64 " blocks\n", capacity);
            exit(2);
        }
        l->blocks = moved;
        l->block_capacity = capacity;
    }
    l->blocks[l->block_count++] = *block;
}

void ledger_add(ledger *l, const ledger_block *block) {
    keep(l, block);
    fprintf(l->file, "block %" PRId32 " %" PRId64 " %" PRId64 " %" PRId64 " %.3f", block->section,
            block->first, block->count, block->failed, block->seconds);
    for (int32_t i = 0; i < block->measure_count; i++)
        fprintf(l->file, "|%s=%.6f", block->measures[i].name, block->measures[i].worst);
    fprintf(l->file, "\n");
    fflush(l->file);
}

/* ---- The file ------------------------------------------------------------------------------ */

static void read_block(ledger *l, char *line) {
    ledger_block block = {0};
    char *field = strchr(line, '|');
    if (field != NULL) *field++ = '\0';
    if (sscanf(line, "block %" SCNd32 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %lf", &block.section,
               &block.first, &block.count, &block.failed, &block.seconds) != 5)
        return;
    while (field != NULL) {
        char *next = strchr(field, '|'), *value = strchr(field, '=');
        if (next != NULL) *next++ = '\0';
        if (value == NULL) return;
        *value++ = '\0';
        measure(&block, field, strtod(value, NULL));
        field = next;
    }
    keep(l, &block);
}

/* Returns 1 if the file is of this very grid. */
static int read_file(ledger *l, FILE *file) {
    char line[LINE_LIMIT];
    uint64_t id = 0;
    if (fgets(line, sizeof line, file) == NULL) return 0;
    if (sscanf(line, "grid %" SCNx64, &id) != 1 || id != grid_id()) return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        size_t length = strlen(line);
        /* The run was stopped while it wrote this line. */
        if (length == 0 || line[length - 1] != '\n') break;
        line[length - 1] = '\0';
        read_block(l, line);
    }
    return 1;
}

int ledger_open(ledger *l, const char *path, int64_t share) {
    *l = (ledger){0};
    FILE *old = fopen(path, "r");
    if (old != NULL) {
        read_file(l, old);
        fclose(old);
    }
    l->file = fopen(path, "w");
    if (l->file == NULL) {
        fprintf(stderr, "grid: %s cannot be written\n", path);
        return 1;
    }
    const int64_t held = l->block_count;
    ledger_block *blocks = l->blocks;
    *l = (ledger){.file = l->file, .share = share};
    count_blocks(l);
    fprintf(l->file, "grid %016" PRIx64 "\n", grid_id());
    for (int64_t i = 0; i < held; i++)
        if (blocks[i].failed == 0 && !ledger_has(l, &blocks[i])) ledger_add(l, &blocks[i]);
    free(blocks);
    return 0;
}

void ledger_close(ledger *l) {
    fclose(l->file);
    free(l->blocks);
    *l = (ledger){0};
}

/* ---- Tables -------------------------------------------------------------------------------- */

/* Adds up all results of one section. */
static ledger_block add_up(const ledger *l, int32_t section) {
    ledger_block sum = {.section = section};
    for (int64_t i = 0; i < l->block_count; i++) {
        const ledger_block *block = &l->blocks[i];
        if (block->section != section || !ledger_wants(l, block)) continue;
        sum.failed += block->failed;
        sum.seconds += block->seconds;
        if (block->failed == 0) sum.count += block->count;
        for (int32_t m = 0; m < block->measure_count; m++)
            measure(&sum, block->measures[m].name, block->measures[m].worst);
    }
    return sum;
}

/* Returns how many of a section's cases are in the share. */
static int64_t cases_of(const ledger *l, int32_t section) {
    const int64_t all = grid_section_cases(grid_section_at(section));
    int64_t cases = 0;
    for (int64_t first = 0; first < all; first += BLOCK_CASES) {
        const ledger_block block = {.section = section, .first = first};
        const int64_t left = all - first;
        if (ledger_wants(l, &block)) cases += left < BLOCK_CASES ? left : BLOCK_CASES;
    }
    return cases;
}

static void print_sections(const ledger *l, FILE *to, int64_t *cases, double *seconds) {
    fprintf(to, "| section | cases | passed | seconds | what it covers |\n|---|--:|--:|--:|---|\n");
    for (int32_t i = 0; i < grid_section_count(); i++) {
        const grid_section *section = grid_section_at(i);
        const ledger_block sum = add_up(l, i);
        fprintf(to, "| %s | %" PRId64 " | %" PRId64 " | %.0f | %s |\n", section->name,
                cases_of(l, i), sum.count, sum.seconds, section->covers);
        *cases += sum.count;
        *seconds += sum.seconds;
    }
}

static void print_measures(const ledger *l, FILE *to) {
    ledger_block table[64];
    int32_t count = 0;
    fprintf(to, "| operation | worst error, of what is tolerated | in |\n|---|--:|---|\n");
    for (int32_t i = 0; i < grid_section_count(); i++) {
        const ledger_block sum = add_up(l, i);
        for (int32_t m = 0; m < sum.measure_count; m++) {
            int32_t at = 0;
            while (at < count && strcmp(table[at].measures[0].name, sum.measures[m].name) != 0)
                at++;
            if (at == 64) continue;
            if (at < count && table[at].measures[0].worst >= sum.measures[m].worst) continue;
            if (at == count) count++;
            table[at] = (ledger_block){.section = i};
            table[at].measures[0] = sum.measures[m];
        }
    }
    for (int32_t i = 0; i < count; i++)
        fprintf(to, "| %s | %.3f | %s |\n", table[i].measures[0].name, table[i].measures[0].worst,
                grid_section_at(table[i].section)->name);
}

int ledger_print(const ledger *l, FILE *to) {
    int64_t cases = 0, all = 0;
    double seconds = 0;
    print_sections(l, to, &cases, &seconds);
    for (int32_t i = 0; i < grid_section_count(); i++)
        all += cases_of(l, i);
    fprintf(to, "\n%" PRId64 " of %" PRId64 " cases passed, %.0f s of one processor.\n\n", cases,
            all, seconds);
    print_measures(l, to);
    return cases == all;
}

int ledger_save(const ledger *l, const char *path) {
    FILE *to = fopen(path, "w");
    if (to == NULL) {
        fprintf(stderr, "grid: %s cannot be written\n", path);
        return 1;
    }
    fprintf(to,
            "# What the grid found on %s\n\n"
            "tests/grid wrote this page. It ran every case, or the share named below, through\n"
            "the public API and compared the results with float64. The tolerance is the lesser\n"
            "of two: that of the peer's own tests (1e-3 absolute and relative in f16, 1e-2 in\n"
            "bf16), and one unit in the last place at the magnitude of what was summed (half a\n"
            "unit for appended fp8). An error of 1 is the whole tolerance. In a large step the\n"
            "first row, the last row and some random rows are compared, and all of the output\n"
            "must be finite.\n\n"
            "The peer's grids also have cases that this library does not support, which are not\n"
            "here: head_dim 512, nvfp4, fp8 outputs and norms, RoPE inside attention, draft\n"
            "masks that are not causal, prefill, gated widths that are not multiples of 8, and\n"
            "merging under a mask. Cases of RoPE with more than 8192 tokens, which is more than\n"
            "a decode step may have, are cut to 8192.\n"
            "\n",
            fig_place_name());
    if (l->share > 1) fprintf(to, "One block of %" PRId64 " in turn.\n\n", l->share);
    ledger_print(l, to);
    return fclose(to) != 0;
}
