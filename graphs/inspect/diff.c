/* diff.c: in what two graphs differ, structure first, then fields.
 *
 * Compares facts, which are all that inspection says; knows none of them by name. A difference that
 * several layers or buckets share is told once. Invariant: graphs of one content id that the same
 * library made differ in nothing, and others in their content ids at least. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/inspect/facts.h"
#include "include/figraph_unstable.h"
#include "planner/status.h"

/* What was found so far: objects by what makes differences alike, in the order found. */
typedef struct comparison {
    const fig_graphs *a, *b;
    json_t *structure, *fields;
    int failed;
} comparison;

/* Where two facts differ. a, b: text, NULL where the one or the other has none. */
typedef struct difference {
    const char *bucket; /* whose launch the subject is; NULL: it is none */
    const char *subject, *field;
    const json_t *fact; /* of the subject in a or, where it has none, in b */
    const char *a, *b;
} difference;

/* ---- What is alike */

/* 1: a number of a name or of "layer 7" begins behind so many bytes of text. */
static int begins_number(const char *text, size_t at) {
    static const char layer[] = "layer ";
    const size_t bytes = sizeof layer - 1;
    if (at > 0 && text[at - 1] == '.') return 1;
    return at >= bytes && memcmp(text + at - bytes, layer, bytes) == 0;
}

/* Puts text at *to, N for the number of its layer, which is never longer. *to moves behind it. */
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

/* The folded subject, a NUL, and behind it a key of all that must be alike; to be freed. */
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

/* ---- What is found */

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

/* ---- Facts beside facts */

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

/* bucket: as in a difference. */
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

/* The first nodes of both that do not stand alike in order. */
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

/* ---- Buckets that both have */

static const char *bucket_at(json_t *facts, const char *subject, uint32_t *index) {
    const json_t *number = json_object_get(json_object_get(facts, subject), "bucket");
    *index = (uint32_t)json_integer_value(number);
    return number != NULL ? subject : NULL;
}

/* What a digest does not cover follows from the machine, whatever its name. */
static int is_lowered_alike(const comparison *c, uint32_t of_a, uint32_t of_b) {
    const fig_traits *a = &c->a->target.traits, *b = &c->b->target.traits;
    return c->a->digests[of_a] == c->b->digests[of_b] &&
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
        FIG_TRY(compare_bucket(c, subject, of_a, of_b));
    }
    return FIG_OK;
}

/* ---- All of it */

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
        return fig_fail(FIG_NOMEM, "diff: what was found");
    return status;
}

static void tell(json_t *found, fig_differ_callback differ, void *user) {
    const char *key;
    json_t *record;
    json_object_foreach(found, key, record) {
        differ(user, &(fig_difference){
                         .size = sizeof(fig_difference),
                         .times = (int32_t)json_integer_value(json_object_get(record, "times")),
                         .subject = json_string_value(json_object_get(record, "subject")),
                         .where = json_string_value(json_object_get(record, "where")),
                         .field = json_string_value(json_object_get(record, "field")),
                         .a = json_string_value(json_object_get(record, "a")),
                         .b = json_string_value(json_object_get(record, "b")),
                     });
    }
}

fig_status fig_graphs_diff(const fig_graphs *a, const fig_graphs *b, fig_differ_callback differ,
                           void *user) {
    comparison c = {.a = a, .b = b};
    if (a == NULL || b == NULL || differ == NULL)
        return fig_fail(FIG_INVALID, "diff: %s is NULL",
                        a == NULL   ? "a"
                        : b == NULL ? "b"
                                    : "differ");
    const fig_status status = compare(&c);
    if (status == FIG_OK) tell(c.structure, differ, user);
    if (status == FIG_OK) tell(c.fields, differ, user);
    json_decref(c.structure);
    json_decref(c.fields);
    return status;
}
