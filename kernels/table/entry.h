/* entry.h: puts the name of a kernel's entry together, piece by piece.
 *
 * Each launch of a graph needs the name of its entry twice: when its family is chosen and when its
 * node is added. With printf this took half as long as the driver's own work for the node.
 * Invariant: a finished name ends in NUL and is shorter than FIG_ENTRY_BYTES. */
#ifndef FIG_KERNELS_ENTRY_H
#define FIG_KERNELS_ENTRY_H

#include <assert.h>

#include "kernels/common/params.h"
#include "kernels/table/table.h"

/* A name under construction; the next piece goes to `at`. */
typedef struct fig_entry_name {
    char *start, *at;
} fig_entry_name;

static inline void fig_entry_put(fig_entry_name *name, const char *text) {
    while (*text != '\0')
        *name->at++ = *text++;
    *name->at = '\0';
    assert(name->at - name->start < FIG_ENTRY_BYTES);
}

static inline void fig_entry_put_number(fig_entry_name *name, int32_t number) {
    char digits[12];
    char *from = digits + sizeof digits - 1;
    assert(number >= 0);
    *from = '\0';
    do {
        *--from = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    fig_entry_put(name, from);
}

/* Writes a whole name. form: what stands behind the kernel's name; "" for nothing. */
static inline void fig_entry_write(char *name, const char *kernel, const char *form) {
    fig_entry_name entry = {name, name};
    fig_entry_put(&entry, "fig_kernel_");
    fig_entry_put(&entry, kernel);
    fig_entry_put(&entry, form);
}

/* Returns the form for launches whose blocks may handle several rows: the loop costs registers. */
static inline const char *fig_entry_long(const fig_rows *rows) {
    return fig_params_abreast(rows) < rows->row_limit ? "_long" : "";
}

/* Returns the form for packed programs. */
static inline const char *fig_entry_packed(const fig_rows *rows) {
    return rows->queries_offset != 0 ? "_packed" : "";
}

#endif
