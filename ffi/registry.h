/* registry.h: one runner for each recipe, made when it is first asked for and kept for ever.
 *
 * Recording, lowering and loading take from a fraction of a millisecond to many, a lookup a
 * fraction of a microsecond. A recipe that is there is found without a lock, so that no call waits
 * for another's kernels to be loaded. Bounded; nothing is destroyed, since what was captured of a
 * runner may be launched as long as the process lives. Invariant: a runner that was found once is
 * found by every later call, on any thread. */
#ifndef FIG_FFI_REGISTRY_H
#define FIG_FFI_REGISTRY_H

#include "ffi/recipe.h"
#include "include/figraph_ffi.h"
#include "include/figraph_runner.h"

enum { FIG_REGISTRY_LIMIT = 4096, FIG_REGISTRY_FILE_LIMIT = 256 };

/* FIG_TOO_LARGE: the registry is full. */
fig_status fig_registry_find(const fig_recipe *recipe, const fig_runner **runner);

/* Files by content id, which recipes of FIG_RECIPE_PROGRAM name. add takes the graphs over; one
 * that is there already is destroyed. */
fig_status fig_registry_add_file(fig_graphs *graphs);
/* content_id: 64 digits. FIG_ORDER: no such file was loaded. */
fig_status fig_registry_find_file(const char *content_id, const fig_graphs **graphs);
/* The same by the first 16 digits, as one number, which is what a call has. */
fig_status fig_registry_find_content(int64_t content, const fig_graphs **graphs);

typedef enum fig_registry_event {
    FIG_REGISTRY_EAGER = 0, /* a run of which the device's work begins at once */
    FIG_REGISTRY_CAPTURE,   /* a run that became part of a capture */
    FIG_REGISTRY_MISS,      /* a runner that had to be made */
    FIG_REGISTRY_EVENT_COUNT
} fig_registry_event;
void fig_registry_count(fig_registry_event event);
void fig_registry_read_counts(fig_ffi_counts *counts);

#endif
