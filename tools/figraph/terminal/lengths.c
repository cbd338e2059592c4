/* lengths.c: parses and prints lists of kv lengths.
 *
 * The grammar is item ("," item)*, item = [count "x"] length ["@" shared] [":" queries]. Leaves
 * limits on a length to the library, which knows the spec. Invariant: count <=
 * FIG_LENGTHS_LIMIT. */
#include "tools/figraph/terminal/lengths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/terminal/report.h"

enum { NO_QUERIES = -1, NOT_SHARED = -1, ITEM_BYTES = 64 };
static const int64_t TOO_LARGE = (int64_t)INT32_MAX + 1;

/* Some rows of a list that are alike. */
typedef struct list_item {
    int32_t times, length;
    int32_t queries;  /* NO_QUERIES if it gives none */
    int32_t shared;   /* NOT_SHARED if no item of the list gives any */
    int32_t source;   /* the first row of the item */
    int gives_shared; /* 1: the item itself gives shared tokens */
} list_item;

static int grow(int32_t **values, int32_t capacity) {
    int32_t *grown = realloc(*values, (size_t)capacity * sizeof **values);
    if (grown == NULL) return fig_report_refuse("no memory for %d lengths", capacity);
    *values = grown;
    return FIG_EXIT_FINE;
}

/* Makes room for one more item. */
static int make_room(fig_lengths *lengths, const list_item *item) {
    const int32_t needed = lengths->count + item->times;
    if (needed <= lengths->capacity) return FIG_EXIT_FINE;
    const int32_t capacity = needed > 2 * lengths->capacity ? needed : 2 * lengths->capacity;
    int code = grow(&lengths->values, capacity);
    if (code == FIG_EXIT_FINE && item->queries != NO_QUERIES)
        code = grow(&lengths->queries, capacity);
    if (code == FIG_EXIT_FINE && item->shared != NOT_SHARED)
        code = grow(&lengths->sources, capacity);
    if (code == FIG_EXIT_FINE && item->shared != NOT_SHARED)
        code = grow(&lengths->shared, capacity);
    if (code == FIG_EXIT_FINE) lengths->capacity = capacity;
    return code;
}

static int add(fig_lengths *lengths, const list_item *item) {
    const int code = make_room(lengths, item);
    for (int32_t i = 0; i < item->times && code == FIG_EXIT_FINE; i++) {
        const int32_t row = lengths->count++;
        lengths->values[row] = item->length;
        if (lengths->queries != NULL) lengths->queries[row] = item->queries;
        if (lengths->shared == NULL) continue;
        lengths->sources[row] = item->source;
        lengths->shared[row] = item->shared;
    }
    return code;
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
    int has_queries, has_shared;
} list_form;

/* Reads one item. Returns the text after it; NULL: the item does not have the form. Sets *item
 * unless one of its numbers is too large. */
static const char *read_item(const list_form *form, const char *text, list_item *item,
                             int *is_too_large) {
    int64_t times = 1, length = 0, queries = NO_QUERIES, shared = 0;
    const char *end = read_number(text, &length);
    if (end != NULL && *end == 'x') {
        times = length;
        end = read_number(end + 1, &length);
    }
    item->gives_shared = end != NULL && *end == '@' && form->has_shared;
    if (item->gives_shared) end = read_number(end + 1, &shared);
    if (end != NULL && *end == ':' && form->has_queries) end = read_number(end + 1, &queries);
    *is_too_large =
        times == TOO_LARGE || length == TOO_LARGE || queries == TOO_LARGE || shared == TOO_LARGE;
    if (*is_too_large) return end;
    item->times = (int32_t)times;
    item->length = (int32_t)length;
    item->queries = (int32_t)queries;
    item->shared = (int32_t)shared;
    return end;
}

/* Checks the numbers of an item, whose text is `text`. */
static int check_item(const fig_lengths *lengths, const list_item *item, const char *text,
                      int bytes, const char *option) {
    if (item->times < 1 || item->times > FIG_LENGTHS_LIMIT - lengths->count)
        return fig_report_refuse("%s: \"%.*s\" makes %lld rows, 1..%d are taken", option, bytes,
                                 text, (long long)lengths->count + item->times, FIG_LENGTHS_LIMIT);
    if (item->gives_shared && (item->shared < 1 || item->shared > item->length))
        return fig_report_refuse("%s: \"%.*s\" shares %d tokens, limits 1 to the length, %d",
                                 option, bytes, text, item->shared, item->length);
    return FIG_EXIT_FINE;
}

static int parse(fig_lengths *lengths, const list_form *form, const char *text,
                 const char *option) {
    /* If some item gives query tokens, the rows of all other items have one. */
    const int is_packed = form->has_queries && strchr(text, ':') != NULL;
    const int is_shared = form->has_shared && strchr(text, '@') != NULL;
    for (const char *at = text;;) {
        const int bytes = (int)strcspn(at, form->separators);
        list_item item = {0};
        int is_too_large;
        const char *end = read_item(form, at, &item, &is_too_large);
        if (end != NULL && *end == ':' && !form->has_queries)
            return fig_report_refuse("%s: \"%.*s\": it takes no :QUERIES", option, bytes, at);
        if (end != NULL && *end == '@' && !form->has_shared)
            return fig_report_refuse("%s: \"%.*s\": it takes no @SHARED", option, bytes, at);
        if (end == NULL || end != at + bytes)
            return fig_report_refuse("%s: \"%.*s\" is neither %s", option, bytes, at, form->wanted);
        if (is_too_large)
            return fig_report_refuse("%s: \"%.*s\" has a number above %d", option, bytes, at,
                                     INT32_MAX);
        if (check_item(lengths, &item, at, bytes, option) != FIG_EXIT_FINE) return FIG_EXIT_BAD;
        if (is_packed && item.queries == NO_QUERIES) item.queries = item.length > 0;
        if (!is_shared) item.shared = NOT_SHARED;
        item.source = lengths->count;
        if (add(lengths, &item) != FIG_EXIT_FINE) return FIG_EXIT_BAD;
        if (*end == '\0') return FIG_EXIT_FINE;
        at = end + 1;
    }
}

int fig_lengths_parse(fig_lengths *lengths, const char *text, const char *option) {
    static const list_form form = {",", "LENGTH nor COUNTxLENGTH", 0, 0};
    return parse(lengths, &form, text, option);
}

int fig_lengths_parse_queries(fig_lengths *lengths, const char *text, const char *option) {
    static const list_form form = {",+", "LENGTH nor COUNTxLENGTH, each with or without :QUERIES",
                                   1, 0};
    return parse(lengths, &form, text, option);
}

int fig_lengths_parse_shared(fig_lengths *lengths, const char *text, const char *option) {
    static const list_form form = {
        ",+", "LENGTH nor COUNTxLENGTH, each with or without @SHARED and :QUERIES", 1, 1};
    return parse(lengths, &form, text, option);
}

int fig_lengths_check_shared(const fig_lengths *lengths, const char *option) {
    for (int32_t i = 0, end; i < lengths->count && lengths->shared != NULL; i = end) {
        for (end = i + 1; end < lengths->count && lengths->sources[end] == i;)
            end++;
        if (end - i > 1 || lengths->shared[i] == 0) continue;
        return fig_report_refuse("%s: \"%d@%d\" is 1 row, at least 2 rows share tokens", option,
                                 lengths->values[i], lengths->shared[i]);
    }
    return FIG_EXIT_FINE;
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
    const list_item again = {.times = count - 1,
                             .length = lengths->count > 0 ? lengths->values[0] : 0,
                             .queries = lengths->queries != NULL ? lengths->queries[0] : NO_QUERIES,
                             .shared = lengths->shared != NULL ? lengths->shared[0] : NOT_SHARED};
    if (lengths->count == 1) return add(lengths, &again);
    return fig_report_refuse("%s: %d lengths, but the number of rows is %d", option, lengths->count,
                             count);
}

void fig_lengths_finish(fig_lengths *lengths) {
    free(lengths->values);
    free(lengths->queries);
    free(lengths->sources);
    free(lengths->shared);
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

/* Returns 1 if two rows are alike. Rows of two items that share tokens are not. */
static int are_alike(const fig_lengths *lengths, int32_t a, int32_t b) {
    if (lengths->shared != NULL &&
        (lengths->shared[a] != lengths->shared[b] ||
         (lengths->shared[a] > 0 && lengths->sources[a] != lengths->sources[b])))
        return 0;
    if (lengths->queries != NULL && lengths->queries[a] != lengths->queries[b]) return 0;
    return lengths->values[a] == lengths->values[b];
}

/* Writes the rows [first, end), which are alike, as an item. Returns its bytes. */
static int describe_item(const fig_lengths *lengths, int32_t first, int32_t end,
                         char item[ITEM_BYTES]) {
    int bytes = 0;
    if (end - first > 1) bytes = snprintf(item, ITEM_BYTES, "%dx", end - first);
    bytes += snprintf(item + bytes, ITEM_BYTES - (size_t)bytes, "%d", lengths->values[first]);
    if (lengths->shared != NULL && lengths->shared[first] > 0)
        bytes += snprintf(item + bytes, ITEM_BYTES - (size_t)bytes, "@%d", lengths->shared[first]);
    if (lengths->queries != NULL)
        bytes += snprintf(item + bytes, ITEM_BYTES - (size_t)bytes, ":%d", lengths->queries[first]);
    return bytes;
}

void fig_lengths_describe(const fig_lengths *lengths, char *text, int bytes) {
    int used = 0;
    text[0] = '\0';
    for (int32_t i = 0, end; i < lengths->count; i = end) {
        char item[ITEM_BYTES];
        for (end = i + 1; end < lengths->count && are_alike(lengths, end, i);)
            end++;
        const int item_bytes = describe_item(lengths, i, end, item);
        /* Leaves room for ",...", which stands for the omitted items. */
        if (used + (i > 0) + item_bytes + 5 > bytes) {
            snprintf(text + used, (size_t)(bytes - used), ",...");
            return;
        }
        if (i > 0) text[used++] = ',';
        memcpy(text + used, item, (size_t)item_bytes + 1);
        used += item_bytes;
    }
}
