/* registry.h: keeps one runner for each recipe, made at first use and never destroyed.
 *
 * Making a runner (record, lower, load) takes from a fraction of a millisecond to many
 * milliseconds, and seconds if a driver compiles a score; a lookup takes a fraction of a
 * microsecond. Lookups take no lock, and a call waits only for a call that makes the runner of the
 * same recipe. Runners are never destroyed, because a captured graph may launch their kernels for
 * as long as the process lives. Only memory bounds the number of runners, so recipes must not hold
 * anything that changes from step to step. Invariant: once a call has found a runner, every later
 * call on any thread finds it. */
#ifndef FIG_FFI_REGISTRY_H
#define FIG_FFI_REGISTRY_H

#include "ffi/recipe.h"
#include "include/figraph_ffi.h"
#include "include/figraph_runner.h"

enum { FIG_REGISTRY_FILE_LIMIT = 256 };

fig_status fig_registry_find(const fig_recipe *recipe, const fig_runner **runner);

/* Sets how calls that follow run scores. Runners that exist stay as they are; calls find them again
 * once the setting is theirs again. */
fig_status fig_registry_compile_scores(const fig_ffi_score_options *options);
/* Returns 1 if recipes with a score must ask for compiled ones. */
uint32_t fig_registry_compiles_scores(void);

/* Loaded files are found by their content id, as recipes of FIG_RECIPE_PROGRAM name them. This
 * function takes ownership of the graphs; it destroys them if their content is already
 * registered. */
fig_status fig_registry_add_file(fig_graphs *graphs);
/* Finds a file by its content_id, 64 hexadecimal digits. Returns FIG_ORDER if no such file was
 * loaded. */
fig_status fig_registry_find_file(const char *content_id, const fig_graphs **graphs);
/* Finds a file by the number that the first 16 digits give; calls use this form. */
fig_status fig_registry_find_content(int64_t content, const fig_graphs **graphs);

typedef enum fig_registry_event {
    FIG_REGISTRY_EAGER = 0, /* a run that was launched directly */
    FIG_REGISTRY_CAPTURE,   /* a run that was captured into a graph */
    FIG_REGISTRY_MISS,      /* a run for which a runner had to be made */
    FIG_REGISTRY_EVENT_COUNT
} fig_registry_event;
void fig_registry_count(fig_registry_event event);
void fig_registry_read_counts(fig_ffi_counts *counts);

#endif
