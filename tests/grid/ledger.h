/* ledger.h: records in a file which blocks of cases were run, and with what results.
 *
 * Owns the file's form: a first line that identifies the grid, then a line per block. Invariant: an
 * incomplete line is ignored, and the lines of another grid are dropped. */
#ifndef FIG_TESTS_GRID_LEDGER_H
#define FIG_TESTS_GRID_LEDGER_H

#include <stdio.h>

#include "tests/grid/grid.h"

/* A run that is stopped loses its current blocks. The longest block takes two minutes on one
 * thread. */
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
    int64_t share; /* every share-th block is run; 1: all blocks */
    /* how many blocks all earlier sections have together */
    int64_t blocks_before[LEDGER_SECTION_LIMIT];
} ledger;

/* If the file cannot be read or written, prints a line on stderr and returns a value other than
 * 0. */
int ledger_open(ledger *l, const char *path, int64_t share);
void ledger_close(ledger *l);
/* Returns 1 if the block was already run without a failure. */
int ledger_has(const ledger *l, const ledger_block *block);
void ledger_add(ledger *l, const ledger_block *block);
/* Returns 1 if the block belongs to the share. Blocks are numbered through all sections. */
int ledger_wants(const ledger *l, const ledger_block *block);
/* Adds a case's results to the block. */
void ledger_merge(ledger_block *block, const grid_report *report);

/* Prints tables of sections and measures. Returns 1 if every case of the share has passed. */
int ledger_print(const ledger *l, FILE *to);
int ledger_save(const ledger *l, const char *path);

#endif
