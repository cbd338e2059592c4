/* diff.c: compares two graphs, first in structure, then in fields.
 *
 * Compares facts, which cover everything that inspection prints, and treats all facts alike. A
 * difference that several layers or buckets share is reported once. Invariant: two graphs with the
 * same content id that the same library made have no differences; any other two differ at least in
 * their content ids. */
#include "tools/figraph/inspect/diff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <figraph_inspect.h>

#include "tools/figraph/inspect/facts.h"
#include "tools/figraph/inspect/failure.h"

/* The differences found so far, in the order found. Equal differences share one object; its key is
 * the text that they share. */
typedef struct comparison {
    const fig_graphs *a, *b;
    const fig_inspection *view_a, *view_b; /* without launches */
    json_t *structure, *fields;
    int failed;
} comparison;

/* A difference between two facts. a and b are text; NULL: that side does not have the fact. */
typedef struct difference {
    /* the bucket of the launch that is the subject; NULL: the subject is not a launch */
    const char *bucket;
    const char *subject, *field;
    const json_t *fact; /* the subject's fact in a or, if a does not have it, in b */
    const char *a, *b;
} difference;

/* ---- Folding */

/* Returns 1 if a number that belongs to a name or to "layer 7" begins at byte `at` of text. */
static int begins_number(const char *text, size_t at) {
    static const char layer[] = "layer ";
    const size_t bytes = sizeof layer - 1;
    if (at > 0 && text[at - 1] == '.') return 1;
    return at >= bytes && memcmp(text + at - bytes, layer, bytes) == 0;
}

/* Writes text at *to with N in place of its layer's number; the result is never longer than text.
 * Moves *to past the result. */
static void put_folded(char **to, const char *text, json_int_t layer) {
    for (size_t i = 0; text[i] != '\0';) {
        const size_t digits = strspn(text + i, "0123456789");
        if (digits > 0 && layer >= 0 && begins_number(text, i) &&
            strtoll(text + i, NULL, 10) == layer) {
            *(*to)++ = 'N';
            i += digits;
        } else {
            const size_t bytes = digits > 0 ? digits : 1;
            memcpy(*to, text + i, bytes);
            *to += bytes;
            i += bytes;
        }
    }
    *(*to)++ = '\0';
}

static const char *kind_of(const difference *of) {
    const char *kind = json_string_value(json_object_get(of->fact, "kind"));
    return kind != NULL ? kind : of->subject;
}

/* Returns the folded subject, a NUL, and then a key of everything that must be alike. The caller
 * frees it. */
static char *fold(const difference *of) {
    const char *parts[] = {kind_of(of), of->field, of->a, of->b};
    const json_int_t layer = json_integer_value(json_object_get(of->fact, "layer"));
    size_t bytes = strlen(parts[0]) + 1;
    for (size_t i = 0; i < 4; i++)
        bytes += (parts[i] != NULL ? strlen(parts[i]) : 0) + 2;
    char *folded = malloc(bytes), *to = folded;
    if (folded == NULL) return NULL;
    put_folded(&to, parts[0], layer);
    for (size_t i = 0; i < 4; i++) {
        *to++ = parts[i] != NULL ? '+' : '-';
        put_folded(&to, parts[i] != NULL ? parts[i] : "", layer);
        to[-1] = '\n';
    }
    to[-1] = '\0';
    return folded;
}

/* ---- Differences */

static json_t *record_of(const difference *of, const char *subject) {
    return json_pack("{s:i, s:s, s:s+++, s:s?, s:s?, s:s?}", "times", 1, "subject", subject,
                     "where", of->bucket != NULL ? of->bucket : "", of->bucket != NULL ? ": " : "",
                     of->subject, "", "field", of->field, "a", of->a, "b", of->b);
}

static void find(comparison *c, const difference *of) {
    json_t *found = of->field != NULL ? c->fields : c->structure;
    char *subject = fold(of);
    if (subject == NULL) {
        c->failed = 1;
        return;
    }
    const char *key = subject + strlen(subject) + 1;
    json_t *times = json_object_get(json_object_get(found, key), "times");
    if (times != NULL) {
        json_integer_set(times, json_integer_value(times) + 1);
    } else {
        c->failed |= json_object_set_new(found, key, record_of(of, subject)) != 0;
    }
    free(subject);
}

/* ---- Facts */

static void compare_fields(comparison *c, difference of, const json_t *b) {
    json_t *fields_a = json_object_get(of.fact, "fields");
    json_t *fields_b = json_object_get(b, "fields"), *value;
    json_object_foreach(fields_a, of.field, value) {
        of.a = json_string_value(value);
        of.b = json_string_value(json_object_get(fields_b, of.field));
        if (of.b == NULL || strcmp(of.a, of.b) != 0) find(c, &of);
    }
    of.a = NULL;
    json_object_foreach(fields_b, of.field, value) {
        of.b = json_string_value(value);
        if (json_object_get(fields_a, of.field) == NULL) find(c, &of);
    }
}

/* bucket: as in struct difference. */
static void compare_facts(comparison *c, const char *bucket, json_t *a, json_t *b) {
    difference of = {.bucket = bucket};
    json_t *fact;
    json_object_foreach(a, of.subject, fact) {
        json_t *other = json_object_get(b, of.subject);
        of.fact = fact;
        of.a = other == NULL ? "" : NULL;
        if (other == NULL) find(c, &of);
        if (other != NULL) compare_fields(c, of, other);
    }
    of.a = NULL;
    of.b = "";
    json_object_foreach(b, of.subject, fact) {
        of.fact = fact;
        if (json_object_get(a, of.subject) == NULL) find(c, &of);
    }
}

/* Reports the first pair of nodes whose order differs in the two graphs. */
static void compare_order(comparison *c, json_t *a, json_t *b) {
    void *at = json_object_iter(a), *beside = json_object_iter(b);
    while (at != NULL && beside != NULL) {
        const char *of_a = json_object_iter_key(at), *of_b = json_object_iter_key(beside);
        if (json_object_get(b, of_a) == NULL) {
            at = json_object_iter_next(a, at);
        } else if (json_object_get(a, of_b) == NULL) {
            beside = json_object_iter_next(b, beside);
        } else if (strcmp(of_a, of_b) != 0) {
            find(c,
                 &(difference){NULL, "graphs", "order", json_object_get(a, "graphs"), of_a, of_b});
            return;
        } else {
            at = json_object_iter_next(a, at);
            beside = json_object_iter_next(b, beside);
        }
    }
}

/* ---- Common buckets */

static const char *bucket_at(json_t *facts, const char *subject, uint32_t *index) {
    const json_t *number = json_object_get(json_object_get(facts, subject), "bucket");
    *index = (uint32_t)json_integer_value(number);
    return number != NULL ? subject : NULL;
}

/* Returns 1 if both buckets were lowered alike. A digest does not cover the machine's numbers,
 * so this function compares them; the machine's name does not matter. */
static int is_lowered_alike(const comparison *c, uint32_t of_a, uint32_t of_b) {
    const fig_traits *a = c->view_a->traits, *b = c->view_b->traits;
    return c->view_a->digests[of_a] == c->view_b->digests[of_b] &&
           a->compute_capability == b->compute_capability && a->sm_count == b->sm_count &&
           a->shared_bytes == b->shared_bytes;
}

static fig_status compare_bucket(comparison *c, const char *name, uint32_t of_a, uint32_t of_b) {
    json_t *a = NULL, *b = NULL;
    if (is_lowered_alike(c, of_a, of_b)) return FIG_OK;
    fig_status status = fig_facts_of_bucket(c->a, of_a, &a);
    if (status == FIG_OK) status = fig_facts_of_bucket(c->b, of_b, &b);
    if (status == FIG_OK) compare_facts(c, name, a, b);
    json_decref(a);
    json_decref(b);
    return status;
}

static fig_status compare_buckets(comparison *c, json_t *a, json_t *b) {
    const char *subject;
    json_t *fact;
    json_object_foreach(a, subject, fact) {
        uint32_t of_a, of_b;
        if (bucket_at(a, subject, &of_a) == NULL || bucket_at(b, subject, &of_b) == NULL) continue;
        FIG_FAILURE_TRY(compare_bucket(c, subject, of_a, of_b));
    }
    return FIG_OK;
}

/* ---- Whole graphs */

static fig_status compare(comparison *c) {
    json_t *a = NULL, *b = NULL;
    c->structure = json_object();
    c->fields = json_object();
    fig_status status = fig_facts_of_graphs(c->a, &a);
    if (status == FIG_OK) status = fig_facts_of_graphs(c->b, &b);
    if (status == FIG_OK) {
        compare_facts(c, NULL, a, b);
        compare_order(c, a, b);
        status = compare_buckets(c, a, b);
    }
    json_decref(a);
    json_decref(b);
    if (status == FIG_OK && (c->failed || c->structure == NULL || c->fields == NULL))
        return fig_failure(FIG_NOMEM, "diff: what was found");
    return status;
}

static void tell(json_t *found, fig_differ_callback differ, void *user) {
    const char *key;
    json_t *record;
    json_object_foreach(found, key, record) {
        differ(user, &(fig_difference){
                         .times = (int32_t)json_integer_value(json_object_get(record, "times")),
                         .subject = json_string_value(json_object_get(record, "subject")),
                         .where = json_string_value(json_object_get(record, "where")),
                         .field = json_string_value(json_object_get(record, "field")),
                         .a = json_string_value(json_object_get(record, "a")),
                         .b = json_string_value(json_object_get(record, "b")),
                     });
    }
}

fig_status fig_diff_graphs(const fig_graphs *a, const fig_graphs *b, fig_differ_callback differ,
                           void *user) {
    comparison c = {.a = a, .b = b};
    if (a == NULL || b == NULL || differ == NULL)
        return fig_failure(FIG_INVALID, "diff: %s is NULL",
                           a == NULL   ? "a"
                           : b == NULL ? "b"
                                       : "differ");
    fig_status status = fig_failure_of_library(fig_inspection_open(&c.view_a, a, 0));
    if (status == FIG_OK) status = fig_failure_of_library(fig_inspection_open(&c.view_b, b, 0));
    if (status == FIG_OK) status = compare(&c);
    if (status == FIG_OK) tell(c.structure, differ, user);
    if (status == FIG_OK) tell(c.fields, differ, user);
    json_decref(c.structure);
    json_decref(c.fields);
    fig_inspection_close(c.view_a);
    fig_inspection_close(c.view_b);
    return status;
}
