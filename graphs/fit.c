/* fit.c: judges how well graphs fit a machine, which need not be present.
 *
 * Shapes each bucket again for the machine, and finds which family would serve each launch of the
 * largest bucket there. Every difference is a reason for a worse fit. Graphs that do not fit fully
 * are slower but never wrong, because a split is correct on any number of SMs. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graphs/graphs.h"
#include "include/figraph_tune.h"
#include "include/figraph_unstable.h"
#include "kernels/table/families.h"
#include "planner/machine/traits.h"
#include "planner/status.h"

/* Kernels are compiled for 9.0 and for 8.0; later chips run the latter. */
enum { CAPABILITY_OWN = 90, REASON_BYTES = 256 };

typedef struct fitting {
    const fig_graphs *graphs;
    fig_traits traits; /* the machine's traits */
    fig_fit fit;       /* the worst finding so far */
    fig_fit_callback find;
    void *user;
} fitting;

__attribute__((format(printf, 3, 4))) static void find(fitting *f, fig_fit fit, const char *format,
                                                       ...) {
    char reason[REASON_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (fit > f->fit) f->fit = fit;
    if (f->find != NULL) f->find(f->user, fit, reason);
}

/* Returns the traits that kernels may rely on, as a device of that machine would report them. */
static fig_traits kernel_traits(const fig_traits *machine) {
    fig_traits traits = *machine;
    if (traits.compute_capability > 0 && traits.compute_capability != CAPABILITY_OWN)
        traits.compute_capability = FIG_TRAITS_CAPABILITY_LEAST;
    return traits;
}

/* ---- Differences there */

static int serves_alike(const fitting *f, const fig_bucket_shape *own) {
    const fig_program_view *view = fig_program_view_of(f->graphs->program);
    fig_lower_target target = f->graphs->target;
    fig_bucket_shape there = {.caps = own->caps, .variant = own->variant, .queries = own->queries};
    target.traits = f->traits;
    return fig_lower_shape(view, &target, 0, &there) == FIG_OK && fig_lower_alike(own, &there);
}

static void compare_buckets(fitting *f) {
    const fig_graphs *graphs = f->graphs;
    const fig_traits *own = &graphs->target.traits, *there = &f->traits;
    uint32_t count = 0;
    for (uint32_t i = 0; i < graphs->bucket_count; i++)
        count += !serves_alike(f, &graphs->buckets[i]);
    if (count > 0)
        find(f, FIG_FIT_ANEW,
             "%" PRIu32 " of %" PRIu32 " buckets are cut for %s with %" PRId32
             " SMs, and would be cut differently for %s with %" PRId32,
             count, graphs->bucket_count, own->name, own->sm_count, there->name, there->sm_count);
    if (count == 0 && strcmp(own->name, there->name) != 0)
        find(f, FIG_FIT_WARNING, "variants are offered and chosen by their costs on %s, not on %s",
             own->name, there->name);
}

/* Reports, once each, the operations of the largest bucket that another family serves on the
 * machine. */
static fig_status compare_families(fitting *f) {
    const fig_graphs *graphs = f->graphs;
    const fig_traits own = kernel_traits(&graphs->target.traits), there = kernel_traits(&f->traits);
    fig_lowered lowered;
    uint32_t told = 0; /* bit op */
    FIG_TRY(
        fig_lower_bucket(&graphs->common, &graphs->buckets[graphs->bucket_count - 1], &lowered));
    for (uint32_t l = 0; l < lowered.launch_count; l++) {
        const fig_op op = (fig_op)lowered.launches[l].op;
        const uint8_t *params = lowered.params + lowered.launches[l].params;
        fig_family_choice here, other;
        if (op == FIG_OP_CALL || (told >> op & 1)) continue;
        fig_families_choose(op, params, &own, &here);
        fig_families_choose(op, params, &there, &other);
        if (here.family == other.family) continue;
        told |= UINT32_C(1) << op;
        find(f, FIG_FIT_WARNING, "%s is served by %s there, and not by %s",
             fig_kernel_table[op].name, fig_families_of(op, other.family)->name,
             fig_families_of(op, here.family)->name);
    }
    fig_lower_finish(&lowered);
    return FIG_OK;
}

/* ---- The file itself */

static void tell_age(fitting *f) {
    const fig_graphs *graphs = f->graphs;
    uint32_t relowered = 0;
    for (uint32_t i = 0; i < graphs->bucket_count; i++)
        relowered += graphs->digests[i] != graphs->made_digests[i];
    if (relowered > 0)
        find(f, FIG_FIT_WARNING,
             "%" PRIu32 " of %" PRIu32
             " buckets are lowered differently than by the library that made the file",
             relowered, graphs->bucket_count);
}

static void tell_tuning(fitting *f) {
    fig_tuning tuning = f->graphs->target.tuning;
    int32_t unused = 0;
    for (uint32_t i = 0; i < tuning.count; i++)
        unused += !fig_tuning_is_of(&tuning.records[i], &f->traits);
    if (unused > 0)
        find(f, FIG_FIT_WARNING,
             "%" PRId32 " of %" PRIu32 " tuned costs are of another machine or library, and are "
             "not used",
             unused, tuning.count);
}

/* Reports images that differ from this library's. Kernels with the same params may have been
 * compiled from other sources or by another compiler. A library without images compares nothing. */
static void tell_images(fitting *f) {
    const fig_archive *archive = &f->graphs->archive;
    uint32_t others = 0;
    if (fig_images_of(FIG_OP_FETCH, 0, FIG_IMAGE_PLAIN).bytes == NULL) return;
    for (uint32_t i = 0; i < archive->image_count; i++)
        others += !fig_archive_is_own(&archive->images[i], fig_images_of);
    if (others > 0)
        find(f, FIG_FIT_WARNING,
             "%" PRIu32 " of %" PRIu32
             " images of kernels differ here from those of the file's maker",
             others, archive->image_count);
}

static fig_status judge(fitting *f) {
    const int32_t capability = f->traits.compute_capability;
    if (capability > 0 && capability < FIG_TRAITS_CAPABILITY_LEAST) {
        find(f, FIG_FIT_REFUSED,
             "%s is of compute capability %" PRId32 ".%" PRId32 ", kernels need 8.0",
             f->traits.name, capability / 10, capability % 10);
        return FIG_OK;
    }
    compare_buckets(f);
    FIG_TRY(compare_families(f));
    tell_age(f);
    tell_images(f);
    tell_tuning(f);
    return FIG_OK;
}

fig_status fig_graphs_fit(const fig_graphs *graphs, const fig_traits *traits, fig_fit *fit,
                          fig_fit_callback callback, void *user) {
    fitting f = {.graphs = graphs, .find = callback, .user = user};
    *fit = FIG_FIT_FINE;
    if (graphs == NULL || traits == NULL)
        return fig_fail(FIG_INVALID, "fit: %s is NULL", graphs == NULL ? "graphs" : "traits");
    FIG_TRY(fig_status_take_options(&f.traits, sizeof f.traits, traits, "fig_traits"));
    FIG_TRY(fig_traits_check(&f.traits));
    const fig_status status = judge(&f);
    *fit = f.fit;
    return status;
}
