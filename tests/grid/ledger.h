/* ledger.h: which blocks of cases have been done, and what they found, in a file.
 *
 * Owns the file's form: a first line that says which grid it is of, then a line per block.
 * Invariant: a line is written whole or read as none, and lines of another grid are thrown away. */
#ifndef FIG_TESTS_GRID_LEDGER_H
#define FIG_TESTS_GRID_LEDGER_H

#include <stdio.h>

#include "tests/grid/grid.h"

/* The longest block takes two minutes of one thread: as much as stopping a run can lose. */
enum { BLOCK_CASES = 8, LEDGER_SECTION_LIMIT = 64 };

typedef struct ledger_block {
    int32_t section;
    int64_t first, count, failed;
    double seconds; /* of one thread */
    grid_measure measures[GRID_MEASURE_LIMIT];
    int32_t measure_count;
} ledger_block;

typedef struct ledger {
    FILE *file;
    ledger_block *blocks;
    int64_t block_count, block_capacity;
    int64_t share;                               /* of how many blocks one is done; 1: all are */
    int64_t blocks_before[LEDGER_SECTION_LIMIT]; /* of all sections before each */
} ledger;

/* Not 0, with a line on stderr: the file cannot be read or written. */
int ledger_open(ledger *l, const char *path, int64_t share);
void ledger_close(ledger *l);
/* 1: it was done, and nothing in it failed. */
int ledger_has(const ledger *l, const ledger_block *block);
void ledger_add(ledger *l, const ledger_block *block);
/* 1: it is of the share that is done; blocks are counted through all sections. */
int ledger_wants(const ledger *l, const ledger_block *block);
/* Takes over what a case found. */
void ledger_merge(ledger_block *block, const grid_report *report);

/* Sections and measures as tables. Returns 1 where every case of the share has passed. */
int ledger_print(const ledger *l, FILE *to);
int ledger_save(const ledger *l, const char *path);

#endif
