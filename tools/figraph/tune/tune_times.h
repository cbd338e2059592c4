/* tune_times.h: how long steps of attention took in each variant, as a list and as a CSV. */
#ifndef FIG_TOOLS_TUNE_TIMES_H
#define FIG_TOOLS_TUNE_TIMES_H

#include <figraph_tune.h>

#include "tools/figraph/terminal/lengths.h"

/* A row: a step in a variant. */
typedef struct fig_tune_time {
    char chip[16], cell[80], variant[12];
    int32_t q_heads, kv_heads, head_dim, value_bytes, window;
    double chain_us, alone_us;
} fig_tune_time;

typedef struct fig_tune_times { /* starts zeroed */
    fig_tune_time *rows;        /* [count] */
    int32_t count, capacity;
} fig_tune_times;

/* Each returns FIG_EXIT_*. */
int fig_tune_times_add(fig_tune_times *times, const fig_tune_time *row);
int fig_tune_times_read(fig_tune_times *times, const char *path);
int fig_tune_times_write(const fig_tune_times *times, const char *path);
void fig_tune_times_finish(fig_tune_times *times);

/* The rows of a cell, "1x32768+39x512" say. Returns FIG_EXIT_*. */
int fig_tune_times_lengths(const char *cell, fig_lengths *lengths);
/* 1: the row is of such a class. */
int fig_tune_times_is_of(const fig_tune_time *row, const fig_tune_class *of);
/* What a row stands for, in ns: between what it took in a chain and alone. */
double fig_tune_times_ns(const fig_tune_time *row);

#endif
