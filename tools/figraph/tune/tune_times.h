/* tune_times.h: keeps the times of attention in each variant, as a list and as a CSV. */
#ifndef FIG_TOOLS_TUNE_TIMES_H
#define FIG_TOOLS_TUNE_TIMES_H

#include <figraph_tune.h>

#include "tools/figraph/terminal/lengths.h"

/* A row: the times of a step in one variant. */
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

/* Reads the rows of a cell such as "1x32768+39x512". Returns FIG_EXIT_*. */
int fig_tune_times_lengths(const char *cell, fig_lengths *lengths);
/* Returns 1 if the row belongs to this class. */
int fig_tune_times_is_of(const fig_tune_time *row, const fig_tune_class *of);
/* Returns the time that a row stands for, in ns: a value between its time in a chain and its
 * time standalone. */
double fig_tune_times_ns(const fig_tune_time *row);

#endif
