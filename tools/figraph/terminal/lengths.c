/* lengths.c: parse and print lists of kv lengths.
 *
 * The grammar is item ("," item)*, item = [count "x"] length. Leaves limits on a length to the
 * library, which knows the spec. Invariant: count <= FIG_LENGTHS_LIMIT. */
#include "tools/figraph/terminal/lengths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/terminal/report.h"

static int add(fig_lengths *lengths, int32_t length, int32_t times) {
    int32_t needed = lengths->count + times;
    if (needed > lengths->capacity) {
        int32_t capacity = needed > 2 * lengths->capacity ? needed : 2 * lengths->capacity;
        int32_t *values = realloc(lengths->values, (size_t)capacity * sizeof *values);
        if (values == NULL) return fig_report_refuse("no memory for %d lengths", capacity);
        lengths->values = values;
        lengths->capacity = capacity;
    }
    for (int32_t i = 0; i < times; i++)
        lengths->values[lengths->count++] = length;
    return FIG_EXIT_FINE;
}

/* Digits alone: strtol would take signs and spaces too. Returns what follows; NULL: no number. */
static const char *read_number(const char *text, int32_t *value) {
    char *end;
    if (*text < '0' || *text > '9') return NULL;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno == ERANGE || number > INT32_MAX) return NULL;
    *value = (int32_t)number;
    return end;
}

int fig_lengths_parse(fig_lengths *lengths, const char *text, const char *option) {
    for (const char *item = text;;) {
        int item_bytes = (int)strcspn(item, ",");
        int32_t times = 1, length = 0;
        const char *end = read_number(item, &length);
        if (end != NULL && *end == 'x') {
            times = length;
            end = read_number(end + 1, &length);
        }
        if (end == NULL || end != item + item_bytes) {
            return fig_report_refuse("%s: \"%.*s\" is neither LENGTH nor COUNTxLENGTH", option,
                                     item_bytes, item);
        }
        if (times < 1 || times > FIG_LENGTHS_LIMIT - lengths->count) {
            return fig_report_refuse("%s: \"%.*s\" makes %lld rows, 1..%d are taken", option,
                                     item_bytes, item, (long long)lengths->count + times,
                                     FIG_LENGTHS_LIMIT);
        }
        if (add(lengths, length, times) != FIG_EXIT_FINE) return FIG_EXIT_BAD;
        if (*end == '\0') return FIG_EXIT_FINE;
        item = end + 1;
    }
}

int fig_lengths_repeat(fig_lengths *lengths, int32_t count, const char *option) {
    if (lengths->count == count) return FIG_EXIT_FINE;
    if (lengths->count == 1) return add(lengths, lengths->values[0], count - 1);
    return fig_report_refuse("%s: %d lengths for %d rows", option, lengths->count, count);
}

void fig_lengths_finish(fig_lengths *lengths) {
    free(lengths->values);
    *lengths = (fig_lengths){0};
}

int64_t fig_lengths_total(const fig_lengths *lengths) {
    int64_t total = 0;
    for (int32_t i = 0; i < lengths->count; i++)
        total += lengths->values[i];
    return total;
}

void fig_lengths_describe(const fig_lengths *lengths, char *text, int bytes) {
    int used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < lengths->count;) {
        int32_t end = i + 1;
        char item[48];
        while (end < lengths->count && lengths->values[end] == lengths->values[i])
            end++;
        int item_bytes = snprintf(item, sizeof item, i > 0 ? "," : "");
        if (end - i > 1) {
            item_bytes +=
                snprintf(item + item_bytes, sizeof item - (size_t)item_bytes, "%dx", end - i);
        }
        item_bytes +=
            snprintf(item + item_bytes, sizeof item - (size_t)item_bytes, "%d", lengths->values[i]);
        /* Room is kept for the mark of what is left out. */
        if (used + item_bytes + 5 > bytes) {
            snprintf(text + used, (size_t)(bytes - used), ",...");
            return;
        }
        memcpy(text + used, item, (size_t)item_bytes + 1);
        used += item_bytes;
        i = end;
    }
}
