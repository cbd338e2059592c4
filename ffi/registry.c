/* registry.c: a hash table that only grows, read without a lock.
 *
 * The table uses open addressing, and each slot is set once. A reader's acquire load of a slot
 * pairs with the release store that published the filled entry. A lookup that fails takes a mutex,
 * looks again and, if the entry is still missing, makes it. Making may take seconds, because a
 * driver may compile, so the mutex is not held meanwhile: callers that want the same recipe wait
 * for the one that makes it, and all others go on. A half-full table is replaced by one of twice
 * the size. A reader that still uses the old table can only miss newer entries, and it then looks
 * again under the mutex. Files are kept in the same way, in one table. Invariant: a slot that is
 * not NULL and the entry that it points to never change, and no table is freed. */
#include "ffi/registry.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/graphs.h"
#include "graphs/view/hash.h"
#include "planner/status.h"

enum { FIRST_SLOTS = 1024 };

typedef struct entry {
    fig_recipe recipe;
    fig_runner *runner;
    const fig_graphs *graphs;
} entry;

/* A table; at most half of its slots are taken. */
typedef struct shelf {
    struct shelf *smaller; /* the previous table, kept because a reader may still use it */
    size_t slot_count;     /* a power of two, to wrap by a mask */
    _Atomic(entry *) slots[];
} shelf;

/* An entry that a thread makes, on the thread's stack. */
typedef struct making_entry {
    const fig_recipe *recipe;
    struct making_entry *next;
} making_entry;

static _Atomic(shelf *) table;
static _Atomic(fig_graphs *) files[FIG_REGISTRY_FILE_LIMIT];
static size_t entry_count; /* guarded by `making`; those that are being made have a place too */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static making_entry *unfinished;                           /* guarded by `making` */
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER; /* an entry has left `unfinished` */
static pthread_once_t watching = PTHREAD_ONCE_INIT;        /* for forks */
static _Atomic uint32_t compiles_scores;
static char *score_cache; /* guarded by `making`; NULL: compiled scores are kept in memory alone */
static _Atomic int64_t counts[FIG_REGISTRY_EVENT_COUNT];

/* Returns the slot of a recipe, or the free slot where the recipe belongs. */
static size_t slot_of(shelf *of, const fig_recipe *recipe, entry **found) {
    size_t at = (size_t)fig_hash_mix(0, recipe, sizeof *recipe) & (of->slot_count - 1);
    for (;; at = (at + 1) & (of->slot_count - 1)) {
        *found = atomic_load_explicit(&of->slots[at], memory_order_acquire);
        if (*found == NULL || memcmp(&(*found)->recipe, recipe, sizeof *recipe) == 0) return at;
    }
}

static entry *look(const fig_recipe *recipe) {
    shelf *of = atomic_load_explicit(&table, memory_order_acquire); /* pairs with make_room() */
    entry *found = NULL;
    if (of != NULL) slot_of(of, recipe, &found);
    return found;
}

/* Copies all entries to a table with twice as many slots, and then publishes it. The caller holds
 * `making`. */
static fig_status make_room(void) {
    shelf *old = atomic_load_explicit(&table, memory_order_relaxed);
    const size_t slot_count = old == NULL ? FIRST_SLOTS : 2 * old->slot_count;
    entry *found;
    if (old != NULL && 2 * (entry_count + 1) <= old->slot_count) return FIG_OK;
    shelf *larger = calloc(1, sizeof *larger + slot_count * sizeof larger->slots[0]);
    if (larger == NULL) return fig_fail(FIG_NOMEM, "registry: %zu runners", slot_count / 2);
    larger->smaller = old;
    larger->slot_count = slot_count;
    for (size_t i = 0; old != NULL && i < old->slot_count; i++) {
        entry *each = atomic_load_explicit(&old->slots[i], memory_order_relaxed);
        if (each == NULL) continue;
        const size_t at = slot_of(larger, &each->recipe, &found);
        atomic_store_explicit(&larger->slots[at], each, memory_order_relaxed);
    }
    atomic_store_explicit(&table, larger, memory_order_release); /* pairs with look() */
    return FIG_OK;
}

/* Finds a file. *count: the number of files before it. */
static const fig_graphs *find_file(const uint8_t content[32], uint32_t *count) {
    for (*count = 0; *count < FIG_REGISTRY_FILE_LIMIT; ++*count) {
        const fig_graphs *file = atomic_load_explicit(&files[*count], memory_order_acquire);
        if (file == NULL) return NULL;
        if (memcmp(file->content_id, content, sizeof file->content_id) == 0) return file;
    }
    return NULL;
}

static fig_status find_graphs(entry *made, fig_graphs **own) {
    *own = NULL;
    if (made->recipe.kind == FIG_RECIPE_PROGRAM) {
        uint32_t count;
        made->graphs = find_file(made->recipe.content, &count);
        FIG_TRY_OURS(made->graphs != NULL, "registry: the file of a call is not there");
        return FIG_OK;
    }
    FIG_TRY(fig_recipe_make(&made->recipe, own));
    made->graphs = *own;
    return FIG_OK;
}

/* folder: where compiled scores are kept, or NULL. */
static fig_status make_entry(const fig_recipe *recipe, const char *folder, entry **out) {
    fig_graphs *own = NULL;
    entry *made = calloc(1, sizeof *made);
    *out = NULL;
    if (made == NULL) return fig_fail(FIG_NOMEM, "registry: %zu bytes", sizeof *made);
    made->recipe = *recipe;
    fig_status status = find_graphs(made, &own);
    if (status == FIG_OK)
        status = fig_runner_open(
            &made->runner, made->graphs,
            FIG_OPTIONS(fig_runner_options, .device = recipe->device, .ordinal = recipe->ordinal,
                        .compile_scores = (int32_t)recipe->compiles_scores, .score_cache = folder));
    if (status == FIG_OK) {
        *out = made;
        return FIG_OK;
    }
    fig_graphs_destroy(own);
    free(made);
    return status;
}

/* The caller holds `making`. */
static int is_unfinished(const fig_recipe *recipe) {
    const making_entry *at = unfinished;
    while (at != NULL && memcmp(at->recipe, recipe, sizeof *recipe) != 0)
        at = at->next;
    return at != NULL;
}

/* Calls make_entry() without `making`, which the caller holds. The folder is copied, because
 * another thread may set one meanwhile. */
static fig_status make_apart(const fig_recipe *recipe, entry **out) {
    making_entry own = {recipe, unfinished};
    char *folder = NULL;
    *out = NULL;
    if (recipe->compiles_scores && score_cache != NULL) {
        folder = strdup(score_cache);
        if (folder == NULL) return fig_fail(FIG_NOMEM, "registry: a path");
    }
    unfinished = &own;
    pthread_mutex_unlock(&making);
    const fig_status status = make_entry(recipe, folder, out);
    free(folder);
    pthread_mutex_lock(&making);
    making_entry **at = &unfinished;
    while (*at != NULL && *at != &own) /* NULL: this thread has forked meanwhile */
        at = &(*at)->next;
    if (*at != NULL) *at = own.next;
    pthread_cond_broadcast(&finished);
    return status;
}

/* Makes an entry that is neither in the table nor being made. The caller holds `making`. The entry
 * has a place in the table before it is made, so nothing can fail afterwards. */
static fig_status make(const fig_recipe *recipe, entry **out) {
    entry *none;
    *out = NULL;
    FIG_TRY(make_room());
    entry_count++;
    const fig_status status = make_apart(recipe, out);
    if (status != FIG_OK) {
        entry_count--;
        return status;
    }
    shelf *of = atomic_load_explicit(&table, memory_order_relaxed);
    const size_t at = slot_of(of, recipe, &none);
    fig_registry_count(FIG_REGISTRY_MISS);
    atomic_store_explicit(&of->slots[at], *out, memory_order_release); /* pairs with slot_of() */
    return FIG_OK;
}

/* Finds an entry, or makes it unless another thread does. A thread that has waited in vain, because
 * the other one failed, tries it itself. The caller holds `making`. */
static fig_status find_or_make(const fig_recipe *recipe, entry **out) {
    for (;;) {
        *out = look(recipe);
        if (*out != NULL) return FIG_OK;
        if (!is_unfinished(recipe)) return make(recipe, out);
        pthread_cond_wait(&finished, &making);
    }
}

static void before_fork(void) {
    pthread_mutex_lock(&making);
}

static void after_fork(void) {
    pthread_mutex_unlock(&making);
}

/* Other threads that make entries do not exist in the child, so no call there may wait for them.
 * Their entries keep places in the table. */
static void begin_child(void) {
    unfinished = NULL;
    pthread_cond_init(&finished, NULL);
    pthread_mutex_unlock(&making);
}

static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork, begin_child);
}

fig_status fig_registry_find(const fig_recipe *recipe, const fig_runner **runner) {
    fig_status status = FIG_OK;
    entry *found = look(recipe);
    *runner = NULL;
    if (found == NULL) {
        pthread_once(&watching, watch_forks);
        pthread_mutex_lock(&making);
        status = find_or_make(recipe, &found);
        pthread_mutex_unlock(&making);
    }
    if (status != FIG_OK) return status;
    *runner = found->runner;
    return FIG_OK;
}

uint32_t fig_registry_compiles_scores(void) {
    /* pairs with fig_registry_compile_scores() */
    return atomic_load_explicit(&compiles_scores, memory_order_acquire);
}

fig_status fig_registry_compile_scores(const fig_ffi_score_options *options) {
    char *folder = NULL;
    if (options->compile_scores != 0 && options->compile_scores != 1)
        return fig_fail(FIG_INVALID,
                        "fig_ffi_score_options: compile_scores is %" PRId32 ", it must be 0 or 1",
                        options->compile_scores);
    if (options->score_cache != NULL && !options->compile_scores)
        return fig_fail(FIG_INVALID, "fig_ffi_score_options: score_cache is for compile_scores");
    if (options->score_cache != NULL) {
        folder = strdup(options->score_cache);
        if (folder == NULL) return fig_fail(FIG_NOMEM, "registry: a path");
    }
    pthread_mutex_lock(&making);
    free(score_cache);
    score_cache = folder;
    /* pairs with fig_registry_compiles_scores() */
    atomic_store_explicit(&compiles_scores, (uint32_t)options->compile_scores,
                          memory_order_release);
    pthread_mutex_unlock(&making);
    return FIG_OK;
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static fig_status read_content_id(const char *text, uint8_t content[32]) {
    int is_sound = strlen(text) == 64;
    for (int i = 0; is_sound && i < 32; i++) {
        const int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        is_sound = high >= 0 && low >= 0;
        if (is_sound) content[i] = (uint8_t)(16 * high + low);
    }
    if (is_sound) return FIG_OK;
    return fig_fail(FIG_INVALID, "content_id is \"%s\", it must be 64 digits of 0-9 and a-f", text);
}

fig_status fig_registry_find_file(const char *content_id, const fig_graphs **graphs) {
    uint8_t content[32];
    uint32_t count;
    *graphs = NULL;
    FIG_TRY(read_content_id(content_id, content));
    *graphs = find_file(content, &count);
    if (*graphs != NULL) return FIG_OK;
    return fig_fail(FIG_ORDER, "no file with content_id %s was loaded", content_id);
}

static int64_t content_of(const fig_graphs *file) {
    uint64_t content = 0;
    for (int i = 0; i < 8; i++)
        content = content << 8 | file->content_id[i];
    return (int64_t)content;
}

fig_status fig_registry_find_content(int64_t content, const fig_graphs **graphs) {
    for (uint32_t i = 0; i < FIG_REGISTRY_FILE_LIMIT; i++) {
        *graphs = atomic_load_explicit(&files[i], memory_order_acquire);
        if (*graphs == NULL) break;
        if (content_of(*graphs) == content) return FIG_OK;
    }
    *graphs = NULL;
    return fig_fail(FIG_ORDER, "no file whose content_id begins with %016" PRIx64 " was loaded",
                    (uint64_t)content);
}

fig_status fig_registry_add_file(fig_graphs *graphs) {
    fig_status status = FIG_OK;
    uint32_t count;
    pthread_mutex_lock(&making);
    const int is_there = find_file(graphs->content_id, &count) != NULL;
    if (!is_there && count == FIG_REGISTRY_FILE_LIMIT)
        status = fig_fail(FIG_TOO_LARGE, "%d files are loaded, which is the limit",
                          FIG_REGISTRY_FILE_LIMIT);
    else if (!is_there)
        atomic_store_explicit(&files[count], graphs, memory_order_release);
    pthread_mutex_unlock(&making);
    if (is_there || status != FIG_OK) fig_graphs_destroy(graphs);
    return status;
}

void fig_registry_count(fig_registry_event event) {
    atomic_fetch_add_explicit(&counts[event], 1, memory_order_relaxed);
}

void fig_registry_read_counts(fig_ffi_counts *out) {
    out->eager = atomic_load_explicit(&counts[FIG_REGISTRY_EAGER], memory_order_relaxed);
    out->captured = atomic_load_explicit(&counts[FIG_REGISTRY_CAPTURE], memory_order_relaxed);
    out->missed = atomic_load_explicit(&counts[FIG_REGISTRY_MISS], memory_order_relaxed);
}
