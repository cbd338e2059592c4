/* worst.c: see worst.h. */
#include "tests/support/worst.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/inspect/inspect_names.h"

enum { WORST_LIMIT = 64 };

typedef struct worst {
    char kernel[32];
    fig_dtype dtype;
    double share;
} worst;

static worst table[WORST_LIMIT];
static int count;

static void print_table(void) {
    for (int i = 0; i < count; i++)
        printf("worst %s %s %.3f\n", table[i].kernel, fig_inspect_names_dtype(table[i].dtype),
               table[i].share);
}

void fig_worst_note(const char *kernel, fig_dtype dtype, double error, double tolerance) {
    const size_t length = strcspn(kernel, " ");
    int i = 0;
    if (!(tolerance > 0) || !(error >= 0)) return;
    while (i < count && (table[i].dtype != dtype || strncmp(table[i].kernel, kernel, length) != 0 ||
                         table[i].kernel[length] != '\0'))
        i++;
    if (i == WORST_LIMIT || length >= sizeof table[i].kernel) return;
    if (i == count) {
        if (count++ == 0) atexit(print_table);
        memcpy(table[i].kernel, kernel, length);
        table[i].dtype = dtype;
    }
    if (error / tolerance > table[i].share) table[i].share = error / tolerance;
}
