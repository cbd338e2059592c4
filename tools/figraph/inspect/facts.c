/* facts.c: turns everything that inspection prints about graphs into subjects with fields.
 *
 * inspect_json.c decides which values are printed. A number that is only the index of a node,
 * launch or bucket is replaced by a name or dropped. Invariant: one flag records that memory ran
 * out, and it is checked at the end; until then the work goes on with the values that exist. */
#include "tools/figraph/inspect/facts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/inspect/failure.h"
#include "tools/figraph/inspect/inspect_json.h"
#include "tools/figraph/inspect/layer_fold.h"
#include "tools/figraph/inspect/scope.h"

enum { DEPTH_LIMIT = 16, PATH_BYTES = 256, NAME_BYTES = 2 * FIG_INSPECT_NAME_LIMIT, NO_LAYER = -1 };
enum { COLUMNS = 80 }; /* JSON output does not depend on it */

/* The output of inspection, kept in memory. */
typedef struct printed {
    char *text;
    size_t count, capacity;
    int failed;
} printed;

static void keep(void *user, const char *bytes, size_t count) {
    printed *p = user;
    if (p->failed) return;
    if (p->count + count > p->capacity) {
        const size_t capacity = 2 * (p->count + count) + 4096;
        char *text = realloc(p->text, capacity);
        p->failed = text == NULL;
        if (p->failed) return;
        p->text = text;
        p->capacity = capacity;
    }
    memcpy(p->text + p->count, bytes, count);
    p->count += count;
}

static fig_status print_json(const fig_graphs *graphs, uint32_t number, fig_print *print) {
    fig_status status;
    if (number == 0) {
        fig_inspect_summary summary;
        status = fig_scope_open_summary(&summary, graphs);
        if (status == FIG_OK) fig_inspect_json_summary(print, &summary);
        fig_scope_close_summary(&summary);
    } else {
        fig_inspect_bucket bucket;
        status = fig_scope_open_bucket(&bucket, graphs, number - 1);
        if (status == FIG_OK) fig_inspect_json_bucket(print, &bucket);
        fig_scope_close_bucket(&bucket);
    }
    return status;
}

/* number: that of the bucket, from 1; 0: the summary. */
static fig_status print_whole(const fig_graphs *graphs, uint32_t number, json_t **root) {
    printed p = {0};
    fig_print print = {.write = keep, .user = &p, .columns = COLUMNS};
    const fig_status status = print_json(graphs, number, &print);
    *root = NULL;
    if (status == FIG_OK && !p.failed) *root = json_loadb(p.text, p.count, 0, NULL);
    free(p.text);
    if (status == FIG_OK && *root == NULL) return fig_failure(FIG_NOMEM, "facts: what graphs hold");
    return status;
}

/* ---- Fields of a subject */

/* An object or array on the path down to a value. */
typedef struct level {
    json_t *value;
    void *item; /* the object's next item */
    size_t index;
    size_t path_bytes; /* the length of the path that leads to this level */
} level;

typedef struct facts {
    json_t *subjects;
    int failed;
} facts;

static level enter(json_t *value, size_t path_bytes) {
    return (level){value, json_object_iter(value), 0, path_bytes};
}

/* Returns the next value of a level and appends its name to the path; returns NULL after the
 * last value. An array item that has a name is named by it, any other by its index. */
static json_t *next_value(level *at, char path[PATH_BYTES]) {
    char number[24];
    const char *key = number;
    json_t *value;
    if (json_is_object(at->value)) {
        if (at->item == NULL) return NULL;
        key = json_object_iter_key(at->item);
        value = json_object_iter_value(at->item);
        at->item = json_object_iter_next(at->value, at->item);
    } else {
        value = json_array_get(at->value, at->index);
        snprintf(number, sizeof number, "%zu", at->index++);
        const char *name = json_string_value(json_object_get(value, "name"));
        if (name != NULL) key = name;
    }
    snprintf(path + at->path_bytes, PATH_BYTES - at->path_bytes, "%s%s",
             at->path_bytes > 0 ? "." : "", key);
    return value;
}

static int is_leaf(const json_t *value) {
    return !json_is_object(value) && !json_is_object(json_array_get(value, 0));
}

/* Returns a leaf as text, which the caller owns. */
static json_t *text_of(json_t *value) {
    if (json_is_string(value)) return json_incref(value);
    if (json_is_null(value)) return json_string("none");
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    json_t *text = dump != NULL ? json_string(dump) : NULL;
    free(dump);
    return text;
}

static json_t *fields_of(facts *f, json_t *subject) {
    level levels[DEPTH_LIMIT];
    char path[PATH_BYTES] = "";
    uint32_t depth = 1;
    json_t *fields = json_object();
    levels[0] = enter(subject, 0);
    while (depth > 0) {
        level *at = &levels[depth - 1];
        json_t *value = next_value(at, path);
        if (value == NULL) {
            depth--;
        } else if (is_leaf(value)) {
            f->failed |= json_object_set_new(fields, path, text_of(value)) != 0;
        } else if (depth == DEPTH_LIMIT) {
            assert(0 && "what we print is no deeper");
            f->failed = 1;
        } else {
            levels[depth++] = enter(value, strlen(path));
        }
    }
    return fields;
}

/* ---- Subjects */

typedef struct subject {
    const char *name;
    /* diff.c folds equal differences of subjects of one kind into one line. NULL: the subject is a
     * kind of its own. */
    const char *kind;
    int32_t layer;
    int32_t bucket; /* from 1; 0: the subject is not a bucket */
} subject;

/* Appends " #2" to the name of the second subject with this name, and so on. The first subject
 * keeps the count. */
static void number_name(facts *f, char *name, size_t bytes) {
    json_t *first = json_object_get(f->subjects, name);
    if (first == NULL) return;
    const json_int_t count = json_integer_value(json_object_get(first, "count")) + 1;
    const size_t length = strlen(name);
    f->failed |= json_object_set_new(first, "count", json_integer(count)) != 0;
    snprintf(name + length, bytes - length, " #%" JSON_INTEGER_FORMAT, count + 1);
}

static void add(facts *f, const subject *of, json_t *value) {
    char name[NAME_BYTES + 16];
    snprintf(name, sizeof name, "%s", of->name);
    number_name(f, name, sizeof name);
    json_t *entry = json_object();
    f->failed |= json_object_set_new(entry, "fields", fields_of(f, value)) != 0;
    f->failed |= json_object_set_new(entry, "layer", json_integer(of->layer)) != 0;
    if (of->kind != NULL)
        f->failed |= json_object_set_new(entry, "kind", json_string(of->kind)) != 0;
    if (of->bucket > 0)
        f->failed |= json_object_set_new(entry, "bucket", json_integer(of->bucket - 1)) != 0;
    f->failed |= json_object_set_new(f->subjects, name, entry) != 0;
}

/* Adds a subject such as "tensor q.7", which belongs to layer 7. */
static void add_named(facts *f, const char *what, json_t *of) {
    const char *own = json_string_value(json_object_get(of, "name"));
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s %s", what, own);
    const subject s = {name, NULL, fig_layer_fold_split(own).number, 0};
    json_object_del(of, "name");
    add(f, &s, of);
}

/* Writes a name such as "node rope of layer 7" or "launch call gemm". Returns the layer. */
static int32_t name_operation(const char *what, const json_t *of, char name[NAME_BYTES]) {
    const json_t *layer = json_object_get(of, "layer");
    const int32_t number = layer != NULL ? (int32_t)json_integer_value(layer) : NO_LAYER;
    const char *call = json_string_value(json_object_get(of, "call"));
    const char *op = json_string_value(json_object_get(of, "op"));
    char place[32] = "";
    if (number != NO_LAYER) snprintf(place, sizeof place, " of layer %" PRId32, number);
    snprintf(name, NAME_BYTES, "%s %s%s%s%s", what, op, call != NULL ? " " : "",
             call != NULL ? call : "", place);
    return number;
}

/* Returns the name of the operation with this index. */
static json_t *operation_at(const json_t *operations, json_int_t index) {
    char name[NAME_BYTES];
    name_operation("", json_array_get(operations, (size_t)index), name);
    return json_string(name + 1);
}

/* Replaces the indices in "after" by names, in the same order. */
static void name_after(facts *f, json_t *of, const json_t *operations) {
    json_t *after = json_object_get(of, "after"), *index;
    json_t *names = json_array();
    size_t i;
    json_array_foreach(after, i, index) {
        f->failed |=
            json_array_append_new(names, operation_at(operations, json_integer_value(index))) != 0;
    }
    f->failed |= json_object_set_new(of, "after", names) != 0;
}

static void add_operations(facts *f, const char *what, const json_t *operations) {
    json_t *copies = json_deep_copy(operations), *of;
    size_t i;
    f->failed |= copies == NULL;
    json_array_foreach(copies, i, of) {
        char name[NAME_BYTES];
        const int32_t layer = name_operation(what, of, name);
        const subject s = {name, NULL, layer, 0};
        name_after(f, of, operations);
        json_object_del(of, "node");
        json_object_del(json_object_get(json_object_get(of, "params"), "shape"), "exec");
        add(f, &s, of);
    }
    json_decref(copies);
}

static void add_segment(facts *f, json_t *of, const json_t *nodes) {
    json_t *node = operation_at(nodes, json_integer_value(json_object_get(of, "node")));
    f->failed |= json_object_set_new(of, "node", node) != 0;
    add_named(f, "segment", of);
}

static int32_t integer(const json_t *of, const char *key) {
    return (int32_t)json_integer_value(json_object_get(of, key));
}

/* Adds a bucket. The number is dropped because it is only the bucket's place. The digests are
 * dropped because the launches, whose facts are compared separately, give more detail. */
static void add_bucket(facts *f, json_t *of) {
    const json_t *variant = json_object_get(of, "variant");
    const int32_t number = integer(of, "number"), batch = integer(of, "batch");
    const int32_t heads = integer(variant, "heads"), tile = integer(variant, "tile_tokens");
    char name[NAME_BYTES], kind[NAME_BYTES];
    snprintf(name, sizeof name, "bucket %" PRId32 " x %" PRId32 " of %" PRId32 " x %" PRId32, batch,
             integer(of, "kv"), heads, tile);
    snprintf(kind, sizeof kind, "bucket %" PRId32 " x KV of %" PRId32 " x %" PRId32, batch, heads,
             tile);
    static const char *const dropped[] = {"number", "digest", "made_digest"};
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
        json_object_del(of, dropped[i]);
    add(f, &(subject){name, kind, NO_LAYER, number}, of);
}

/* Adds a class. The list of nodes is dropped, because the nodes of a class are exactly those with
 * its window and heads. */
static void add_class(facts *f, json_t *of, size_t index) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "class %zu", index + 1);
    json_object_del(of, "nodes");
    add(f, &(subject){name, NULL, NO_LAYER, 0}, of);
}

static void add_lists(facts *f, const json_t *root) {
    const json_t *nodes = json_object_get(root, "nodes");
    json_t *of;
    size_t i;
    json_array_foreach(json_object_get(root, "tensors"), i, of) add_named(f, "tensor", of);
    add_operations(f, "node", nodes);
    json_array_foreach(json_object_get(root, "segments"), i, of) add_segment(f, of, nodes);
    json_array_foreach(json_object_get(root, "classes"), i, of) add_class(f, of, i);
    json_array_foreach(json_object_get(root, "buckets"), i, of) add_bucket(f, of);
}

/* Adds the facts about the graphs as a whole: one subject for all single values, and one subject
 * for each object under its own name. */
static void add_whole(facts *f, json_t *root) {
    json_t *values = json_object(), *value;
    const char *key;
    json_object_foreach(root, key, value) {
        if (is_leaf(value) && !json_is_array(value))
            f->failed |= json_object_set(values, key, value) != 0;
        if (strcmp(key, "changed_kernels") == 0)
            f->failed |= json_object_set(values, key, value) != 0;
        if (json_is_object(value)) add(f, &(subject){key, NULL, NO_LAYER, 0}, value);
    }
    add(f, &(subject){"graphs", NULL, NO_LAYER, 0}, values);
    json_decref(values);
}

static fig_status give(facts *f, json_t *root, json_t **subjects) {
    json_decref(root);
    *subjects = f->subjects;
    if (f->subjects != NULL && !f->failed) return FIG_OK;
    json_decref(f->subjects);
    *subjects = NULL;
    return fig_failure(FIG_NOMEM, "facts: subjects");
}

fig_status fig_facts_of_graphs(const fig_graphs *graphs, json_t **subjects) {
    facts f = {0};
    json_t *root;
    *subjects = NULL;
    FIG_FAILURE_TRY(print_whole(graphs, 0, &root));
    f.subjects = json_object();
    add_whole(&f, root);
    add_lists(&f, root);
    return give(&f, root, subjects);
}

fig_status fig_facts_of_bucket(const fig_graphs *graphs, uint32_t index, json_t **subjects) {
    facts f = {0};
    json_t *root;
    *subjects = NULL;
    FIG_FAILURE_TRY(print_whole(graphs, index + 1, &root));
    f.subjects = json_object();
    add_operations(&f, "launch", json_object_get(root, "launches"));
    return give(&f, root, subjects);
}
