/* lengths.c: parses and prints lists of kv lengths.
 *
 * The grammar is item ("," item)*, item = [count "x"] length [":" queries]. Leaves limits on a
 * length to the library, which knows the spec. Invariant: count <= FIG_LENGTHS_LIMIT. */
#include "tools/figraph/terminal/lengths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/terminal/report.h"

enum { NO_QUERIES = -1 };
static const int64_t TOO_LARGE = (int64_t)INT32_MAX + 1;

/* Some rows of a list that are alike. */
typedef struct list_item {
    int32_t times, length, queries; /* queries: NO_QUERIES if it gives none */
} list_item;

static int add(fig_lengths *lengths, const list_item *item) {
    const int32_t times = item->times;
    int32_t needed = lengths->count + times;
    if (needed > lengths->capacity) {
        int32_t capacity = needed > 2 * lengths->capacity ? needed : 2 * lengths->capacity;
        int32_t *values = realloc(lengths->values, (size_t)capacity * sizeof *values);
        if (values == NULL) return fig_report_refuse("no memory for %d lengths", capacity);
        lengths->values = values;
        if (item->queries != NO_QUERIES) {
            int32_t *queries = realloc(lengths->queries, (size_t)capacity * sizeof *queries);
            if (queries == NULL) return fig_report_refuse("no memory for %d lengths", capacity);
            lengths->queries = queries;
        }
        lengths->capacity = capacity;
    }
    for (int32_t i = 0; i < times; i++) {
        if (lengths->queries != NULL) lengths->queries[lengths->count] = item->queries;
        lengths->values[lengths->count++] = item->length;
    }
    return FIG_EXIT_FINE;
}

/* Reads digits only, where strtol would also accept signs and spaces; a number that is too large
 * becomes TOO_LARGE. Returns the text after the number; NULL: there is no number. */
static const char *read_number(const char *text, int64_t *value) {
    char *end;
    if (*text < '0' || *text > '9') return NULL;
    errno = 0;
    const long number = strtol(text, &end, 10);
    *value = errno == ERANGE || number > INT32_MAX ? TOO_LARGE : number;
    return end;
}

/* A grammar of lists. */
typedef struct list_form {
    const char *separators, *wanted; /* wanted: the forms of an item, for messages */
    int has_queries;
} list_form;

/* Reads one item. Returns the text after it; NULL: the item does not have the form. Sets *item
 * unless one of its numbers is too large. */
static const char *read_item(const list_form *form, const char *text, list_item *item,
                             int *is_too_large) {
    int64_t times = 1, length = 0, queries = NO_QUERIES;
    const char *end = read_number(text, &length);
    if (end != NULL && *end == 'x') {
        times = length;
        end = read_number(end + 1, &length);
    }
    if (end != NULL && *end == ':' && form->has_queries) end = read_number(end + 1, &queries);
    *is_too_large = times == TOO_LARGE || length == TOO_LARGE || queries == TOO_LARGE;
    if (!*is_too_large) *item = (list_item){(int32_t)times, (int32_t)length, (int32_t)queries};
    return end;
}

static int parse(fig_lengths *lengths, const list_form *form, const char *text,
                 const char *option) {
    /* If some item gives query tokens, the rows of all other items have one. */
    const int is_packed = form->has_queries && strchr(text, ':') != NULL;
    for (const char *at = text;;) {
        const int bytes = (int)strcspn(at, form->separators);
        list_item item = {0};
        int is_too_large;
        const char *end = read_item(form, at, &item, &is_too_large);
        if (end != NULL && *end == ':' && !form->has_queries)
            return fig_report_refuse("%s: \"%.*s\": it takes no :QUERIES", option, bytes, at);
        if (end == NULL || end != at + bytes)
            return fig_report_refuse("%s: \"%.*s\" is neither %s", option, bytes, at, form->wanted);
        if (is_too_large)
            return fig_report_refuse("%s: \"%.*s\" has a number above %d", option, bytes, at,
                                     INT32_MAX);
        if (item.times < 1 || item.times > FIG_LENGTHS_LIMIT - lengths->count)
            return fig_report_refuse("%s: \"%.*s\" makes %lld rows, 1..%d are taken", option, bytes,
                                     at, (long long)lengths->count + item.times, FIG_LENGTHS_LIMIT);
        if (is_packed && item.queries == NO_QUERIES) item.queries = item.length > 0;
        if (add(lengths, &item) != FIG_EXIT_FINE) return FIG_EXIT_BAD;
        if (*end == '\0') return FIG_EXIT_FINE;
        at = end + 1;
    }
}

int fig_lengths_parse(fig_lengths *lengths, const char *text, const char *option) {
    static const list_form form = {",", "LENGTH nor COUNTxLENGTH", 0};
    return parse(lengths, &form, text, option);
}

int fig_lengths_parse_queries(fig_lengths *lengths, const char *text, const char *option) {
    static const list_form form = {",+", "LENGTH nor COUNTxLENGTH, each with or without :QUERIES",
                                   1};
    return parse(lengths, &form, text, option);
}

int fig_lengths_fill_queries(fig_lengths *lengths) {
    if (lengths->queries != NULL) return FIG_EXIT_FINE;
    lengths->queries = malloc((size_t)lengths->capacity * sizeof *lengths->queries);
    if (lengths->queries == NULL)
        return fig_report_refuse("no memory for %d query tokens", lengths->count);
    for (int32_t i = 0; i < lengths->count; i++)
        lengths->queries[i] = lengths->values[i] > 0;
    return FIG_EXIT_FINE;
}

int fig_lengths_repeat(fig_lengths *lengths, int32_t count, const char *option) {
    if (lengths->count == count) return FIG_EXIT_FINE;
    const list_item again = {count - 1, lengths->count > 0 ? lengths->values[0] : 0,
                             lengths->queries != NULL ? lengths->queries[0] : NO_QUERIES};
    if (lengths->count == 1) return add(lengths, &again);
    return fig_report_refuse("%s: %d lengths, but the number of rows is %d", option, lengths->count,
                             count);
}

void fig_lengths_finish(fig_lengths *lengths) {
    free(lengths->values);
    free(lengths->queries);
    *lengths = (fig_lengths){0};
}

int64_t fig_lengths_total(const fig_lengths *lengths) {
    int64_t total = 0;
    for (int32_t i = 0; i < lengths->count; i++)
        total += lengths->values[i];
    return total;
}

int64_t fig_lengths_queries(const fig_lengths *lengths) {
    int64_t total = 0;
    for (int32_t i = 0; i < lengths->count && lengths->queries != NULL; i++)
        total += lengths->queries[i];
    return total;
}

/* Returns 1 if two rows are alike. */
static int are_alike(const fig_lengths *lengths, int32_t a, int32_t b) {
    if (lengths->queries != NULL && lengths->queries[a] != lengths->queries[b]) return 0;
    return lengths->values[a] == lengths->values[b];
}

void fig_lengths_describe(const fig_lengths *lengths, char *text, int bytes) {
    int used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < lengths->count;) {
        int32_t end = i + 1;
        char item[64];
        while (end < lengths->count && are_alike(lengths, end, i))
            end++;
        int item_bytes = snprintf(item, sizeof item, i > 0 ? "," : "");
        if (end - i > 1) {
            item_bytes +=
                snprintf(item + item_bytes, sizeof item - (size_t)item_bytes, "%dx", end - i);
        }
        item_bytes +=
            snprintf(item + item_bytes, sizeof item - (size_t)item_bytes, "%d", lengths->values[i]);
        if (lengths->queries != NULL)
            item_bytes += snprintf(item + item_bytes, sizeof item - (size_t)item_bytes, ":%d",
                                   lengths->queries[i]);
        /* Leaves room for ",...", which stands for the omitted items. */
        if (used + item_bytes + 5 > bytes) {
            snprintf(text + used, (size_t)(bytes - used), ",...");
            return;
        }
        memcpy(text + used, item, (size_t)item_bytes + 1);
        used += item_bytes;
        i = end;
    }
}
