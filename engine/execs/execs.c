/* execs.c: lowers each exec once, fills in addresses, and updates execs when bindings change.
 *
 * This file is cold: it runs when bindings have changed or a step first needs an exec. Invariant:
 * after fig_execs_prepare() has failed half-way it can be called again, because each exec records
 * the params that it holds. */
#include "engine/execs/execs.h"

#include <inttypes.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "engine/execs/exec_graph.h"
#include "engine/seam/stats.h"
#include "planner/status.h"

fig_status fig_execs_init(fig_execs *execs, fig_binding_table *bindings, fig_dev_stream *stream,
                          const fig_exec_places *places) {
    const uint32_t count = bindings->graphs->exec_count;
    *execs = (fig_execs){.bindings = bindings, .stream = stream, .places = *places};
    bindings->api->read_kernel_traits(bindings->dev, &execs->traits);
    execs->of = calloc(count, sizeof *execs->of);
    if (execs->of == NULL) return fig_fail(FIG_NOMEM, "engine: %u execs", count);
    for (uint32_t i = 0; i < count; i++)
        execs->of[i].making = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    return FIG_OK;
}

static void drop_segments(fig_execs *execs, fig_exec *exec) {
    for (uint32_t i = 0; i < exec->segment_count; i++)
        execs->bindings->api->graph_destroy(execs->bindings->dev, exec->segments[i].graph);
    exec->segment_count = 0;
}

static void destroy(const fig_execs *execs, fig_dev_exec **exec) {
    execs->bindings->api->exec_destroy(execs->bindings->dev, *exec);
    *exec = NULL;
}

void fig_execs_finish(fig_execs *execs) {
    for (uint32_t i = 0; execs->of != NULL && i < execs->bindings->graphs->exec_count; i++) {
        fig_exec *exec = &execs->of[i];
        destroy(execs, &exec->exec);
        destroy(execs, &exec->retired);
        drop_segments(execs, exec);
        free(exec->segments);
        free(exec->choices);
        fig_lower_finish(&exec->lowered);
        pthread_mutex_destroy(&exec->making);
    }
    if (execs->drop != NULL) destroy(execs, &execs->drop);
    if (execs->forget != NULL) destroy(execs, &execs->forget);
    free(execs->of);
    *execs = (fig_execs){0};
}

/* ---- Addresses ----------------------------------------------------------------------------- */

static uint64_t address_of(const void *base, uint64_t addend) {
    return (uint64_t)(uintptr_t)base + addend;
}

static uint64_t value_of(const fig_execs *execs, const fig_reloc *reloc) {
    const fig_exec_places *places = &execs->places;
    const fig_bound *tensors = execs->bindings->tensors;
    switch ((fig_reloc_kind)reloc->kind) {
    case FIG_RELOC_ADDRESS:
        return address_of(tensors[reloc->symbol - 1].place.address, reloc->addend);
    case FIG_RELOC_STRIDE: return (uint64_t)tensors[reloc->symbol - 1].place.strides[reloc->item];
    case FIG_RELOC_EXTENT: return (uint64_t)tensors[reloc->symbol - 1].place.extent;
    case FIG_RELOC_WORKSPACE: return address_of(places->workspace, reloc->addend);
    case FIG_RELOC_PLAN: return address_of(places->plan, reloc->addend);
    case FIG_RELOC_RING: return address_of(places->ring, reloc->addend);
    case FIG_RELOC_RING_STATE: return address_of(places->state, reloc->addend);
    case FIG_RELOC_RING_WORDS: return address_of(places->words, reloc->addend);
    case FIG_RELOC_RING_SLOTS: return places->slot_count;
    case FIG_RELOC_RING_BYTES: return places->slot_bytes;
    case FIG_RELOC_PEERS: return address_of(places->met.peers, reloc->addend);
    case FIG_RELOC_RANKS: return (uint32_t)places->met.ranks;
    case FIG_RELOC_ROUTES: return places->met.routes;
    }
    assert(0 && "a kind of relocation");
    return 0;
}

/* Writes every relocated word of a launch's params in full, so it also works on params that were
 * filled in before. */
static void relocate(const fig_execs *execs, const fig_lowered *lowered, const fig_launch *launch,
                     uint8_t *params) {
    for (uint32_t i = 0; i < launch->reloc_count; i++) {
        const fig_reloc *reloc = &lowered->relocs[launch->reloc + i];
        const uint64_t value = value_of(execs, reloc);
        const uint32_t word = (uint32_t)value;
        uint8_t *to = params + (reloc->offset - launch->params);
        if (fig_launch_reloc_bytes(reloc->kind) == sizeof word) {
            memcpy(to, &word, sizeof word);
        } else {
            memcpy(to, &value, sizeof value);
        }
    }
}

/* Copies the params that the exec holds, and fills the current bindings into the copy. */
static void fill_params(const fig_execs *execs, const fig_lowered *lowered,
                        const fig_launch *launch, uint8_t *params) {
    memcpy(params, lowered->params + launch->params, launch->params_bytes);
    relocate(execs, lowered, launch, params);
}

/* ---- Making a bucket's exec ---------------------------------------------------------------- */

static fig_status make_exec(const fig_execs *execs, uint32_t index, fig_dev_exec **exec) {
    const fig_device_api *api = execs->bindings->api;
    fig_dev *dev = execs->bindings->dev;
    const fig_exec_order order = {
        .exec = index, .range = {0, execs->of[index].lowered.launch_count}, .own = 1};
    fig_dev_graph *graph;
    *exec = NULL;
    FIG_TRY(api->hold(dev));
    fig_status status = fig_exec_graph_make(execs, &order, &graph);
    if (status == FIG_OK) {
        status = api->exec_create(dev, exec, graph);
        api->graph_destroy(dev, graph);
    }
    api->let_go(dev);
    return status;
}

/* ---- Updating an exec ---------------------------------------------------------------------- */

/* Chooses the family that serves a launch with these params. Calls have no family. */
static void choose_family(const fig_execs *execs, const fig_launch *launch, const uint8_t *params,
                          fig_family_choice *choice) {
    memset(choice, 0, sizeof *choice);
    if (launch->op != FIG_OP_CALL)
        fig_families_choose((fig_op)launch->op, params, &execs->traits, choice);
}

/* Returns 1 if the launches of the class that shares can read tails and merge their results. On the
 * host all can. */
static int serve_tails(const fig_execs *execs, const fig_exec *exec) {
    const fig_graphs *graphs = execs->bindings->graphs;
    const int32_t sharer = fig_graphs_sharer(graphs);
    if (sharer < 0 || execs->bindings->api->kind == FIG_DEVICE_HOST) return sharer >= 0;
    for (uint32_t i = 0; i < exec->lowered.launch_count; i++) {
        const fig_launch *launch = &exec->lowered.launches[i];
        if (launch->split_class != (uint32_t)sharer) continue;
        if (!fig_families_of((fig_op)launch->op, exec->choices[i].family)->serves_tails) return 0;
    }
    return 1;
}

/* Fills in the current bindings and chooses families again. Afterwards the host's copy of the
 * params differs from the device's exec until the exec is made again. */
static void fill(const fig_execs *execs, fig_exec *exec) {
    fig_lowered *lowered = &exec->lowered;
    exec->is_true = 0;
    for (uint32_t i = 0; i < lowered->launch_count; i++) {
        const fig_launch *launch = &lowered->launches[i];
        uint8_t *params = lowered->params + launch->params;
        relocate(execs, lowered, launch, params);
        choose_family(execs, launch, params, &exec->choices[i]);
    }
    exec->serves_tails = serve_tails(execs, exec);
}

/* Makes the device's exec again, for changes that cannot be patched. A call's addresses cannot be
 * patched, because the callback receives them, and on cuda they are captured with the callback's
 * work. Nor can a node be patched to run another kernel. The old exec may still be running, so it
 * stays until the next fig_execs_settle() destroys it. */
static fig_status rebuild(fig_execs *execs, uint32_t index) {
    fig_exec *exec = &execs->of[index];
    fig_dev_exec *made;
    fill(execs, exec);
    FIG_TRY(make_exec(execs, index, &made));
    assert(exec->exec == NULL || exec->retired == NULL);
    if (exec->exec != NULL) exec->retired = exec->exec;
    if (exec->exec == NULL) fig_stats_count(&execs->made);
    exec->exec = made;
    exec->calls_version = execs->bindings->calls_version;
    exec->is_true = 1;
    return FIG_OK;
}

/* Returns 1 if the exec cannot be patched to the current bindings. There are two reasons: a launch
 * needs another kernel, or a launch made of captured work has changed params. */
static int changes_family(const fig_execs *execs, const fig_exec *exec) {
    alignas(64) uint8_t params[FIG_PARAMS_LIMIT];
    const fig_lowered *lowered = &exec->lowered;
    fig_family_choice choice;
    for (uint32_t i = 0; i < lowered->launch_count; i++) {
        const fig_launch *launch = &lowered->launches[i];
        fill_params(execs, lowered, launch, params);
        if (memcmp(lowered->params + launch->params, params, launch->params_bytes) == 0) continue;
        choose_family(execs, launch, params, &choice);
        if (!fig_families_alike(&choice, &exec->choices[i])) return 1;
        if (launch->op != FIG_OP_CALL &&
            fig_families_of((fig_op)launch->op, choice.family)->is_captured)
            return 1;
    }
    return 0;
}

static fig_status patch(fig_execs *execs, fig_exec *exec) {
    const fig_device_api *api = execs->bindings->api;
    fig_lowered *lowered = &exec->lowered;
    alignas(64) uint8_t params[FIG_PARAMS_LIMIT];
    uint32_t made = 0;
    for (uint32_t i = 0; i < lowered->launch_count; i++) {
        const fig_launch *launch = &lowered->launches[i];
        uint8_t *held = lowered->params + launch->params;
        const uint32_t node = made;
        if (fig_exec_graph_is_left_out(exec, i)) continue;
        made++;
        fill_params(execs, lowered, launch, params);
        if (memcmp(held, params, launch->params_bytes) == 0) continue;
        FIG_TRY(
            api->exec_patch(execs->bindings->dev, exec->exec, node, params, launch->params_bytes));
        memcpy(held, params, launch->params_bytes);
        choose_family(execs, launch, params, &exec->choices[i]);
        fig_stats_count(&execs->patched_launches);
    }
    return FIG_OK;
}

/* Says in the params of launches with a score that the device may compile it. */
static void allow_compiling(const fig_lowered *lowered) {
    for (uint32_t i = 0; i < lowered->launch_count; i++) {
        const fig_launch *launch = &lowered->launches[i];
        fig_attention_params *params = (void *)(lowered->params + launch->params);
        if (launch->op == FIG_OP_SCORED_ATTENTION) params->flags |= FIG_SCORED_COMPILES;
    }
}

static fig_status lower(const fig_execs *execs, uint32_t index) {
    const fig_graphs *graphs = execs->bindings->graphs;
    fig_exec *exec = &execs->of[index];
    fig_lowered lowered;
    if (exec->choices != NULL) return FIG_OK;
    FIG_TRY(
        fig_lower_bucket(&graphs->common, &graphs->buckets[graphs->exec_buckets[index]], &lowered));
    exec->choices = calloc(lowered.launch_count, sizeof *exec->choices);
    if (exec->choices == NULL) {
        fig_lower_finish(&lowered);
        return fig_fail(FIG_NOMEM, "engine: %u launches", lowered.launch_count);
    }
    if (execs->compiles_scores) allow_compiling(&lowered);
    exec->lowered = lowered;
    return FIG_OK;
}

static fig_status prepare(fig_execs *execs, uint32_t index) {
    fig_exec *exec = &execs->of[index];
    FIG_TRY(lower(execs, index));
    if (!exec->is_true || exec->calls_version != execs->bindings->calls_version ||
        changes_family(execs, exec))
        return rebuild(execs, index);
    return patch(execs, exec);
}

fig_status fig_execs_lower(fig_execs *execs, uint32_t index) {
    pthread_mutex_lock(&execs->of[index].making);
    const fig_status status = lower(execs, index);
    pthread_mutex_unlock(&execs->of[index].making);
    return status;
}

fig_status fig_execs_prepare(fig_execs *execs, uint32_t index) {
    fig_exec *exec = &execs->of[index];
    FIG_TRY_OURS(fig_execs_settled(execs), "engine: bindings changed and were not taken up");
    fig_status status = FIG_OK;
    pthread_mutex_lock(&exec->making);
    if (exec->version != execs->version) status = prepare(execs, index);
    /* Partner: the acquire in fig_execs_ready. */
    if (status == FIG_OK) __atomic_store_n(&exec->version, execs->version, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&exec->making);
    return status;
}

/* ---- Taking up bindings -------------------------------------------------------------------- */

/* Makes the exec that drops or forgets a plan. Its addresses never change, so it is made once. */
static fig_status prepare_drop(fig_execs *execs, uint32_t what, fig_dev_exec **drop) {
    const fig_fetch_params params = {
        .state = execs->places.state, .words = execs->places.words, .shape = {.exec = what}};
    const fig_dev_launch launch = fig_exec_graph_own(execs, FIG_OP_FETCH, &params);
    return *drop != NULL ? FIG_OK : fig_exec_graph_row(execs, &launch, 1, drop);
}

int fig_execs_settled(const fig_execs *execs) {
    return execs->version == execs->bindings->version;
}

/* Frees the memory of replaced bindings, the execs that were made again, and the graphs that were
 * appended. Steps in flight may still use them, so the function first waits for these steps to end.
 * The caller's graphs are not affected, because they hold the driver's copies of appended
 * graphs. */
static fig_status let_go(fig_execs *execs) {
    fig_binding_table *bindings = execs->bindings;
    const uint32_t count = bindings->graphs->exec_count;
    int waits = fig_binding_unsettled(bindings);
    for (uint32_t i = 0; i < count; i++)
        waits |= execs->of[i].segment_count > 0 || execs->of[i].retired != NULL;
    if (waits) FIG_TRY(bindings->api->stream_wait(bindings->dev, execs->stream, -1));
    for (uint32_t i = 0; i < count; i++) {
        drop_segments(execs, &execs->of[i]);
        destroy(execs, &execs->of[i].retired);
    }
    fig_binding_settle(bindings);
    return FIG_OK;
}

fig_status fig_execs_settle(fig_execs *execs) {
    FIG_TRY(fig_binding_complete(execs->bindings));
    FIG_TRY(prepare_drop(execs, FIG_FETCH_DROP, &execs->drop));
    FIG_TRY(prepare_drop(execs, FIG_FETCH_FORGET, &execs->forget));
    FIG_TRY(let_go(execs));
    execs->version = execs->bindings->version;
    execs->settles++;
    return FIG_OK;
}

static_assert(sizeof((fig_launch_info){0}.needs) == (FIG_FAMILY_LIMIT - 1) * sizeof(char *),
              "all families but the one that serves");

fig_status fig_execs_launch_info(const fig_execs *execs, uint32_t exec, int32_t launch,
                                 fig_launch_info *info) {
    const fig_lowered *lowered = &execs->of[exec].lowered;
    FIG_TRY_OURS(fig_execs_ready(execs, exec), "engine: exec %" PRIu32 " is not ready", exec);
    if (launch < 0 || (uint32_t)launch >= lowered->launch_count)
        return fig_fail(FIG_INVALID, "launch: %" PRId32 ", the bucket has 0 to %" PRIu32, launch,
                        lowered->launch_count - 1);
    const fig_launch *of = &lowered->launches[launch];
    const fig_family_choice *choice = &execs->of[exec].choices[launch];
    info->node = (int32_t)of->node;
    info->node_count = (int32_t)of->node_count;
    info->operation = fig_table_op_name(of->op);
    if (of->op == FIG_OP_CALL || fig_exec_graph_is_left_out(&execs->of[exec], (uint32_t)launch))
        return FIG_OK;
    info->family = fig_families_of((fig_op)of->op, choice->family)->name;
    info->refusal_count = (int32_t)choice->family;
    for (uint32_t i = 0; i < choice->family; i++) {
        info->refused[i] = fig_families_of((fig_op)of->op, i)->name;
        info->needs[i] = choice->refusals[i];
    }
    return FIG_OK;
}

uint32_t fig_execs_launch_count(const fig_execs *execs, uint32_t exec) {
    uint32_t count = 1;
    for (uint32_t i = 0; i < execs->of[exec].lowered.launch_count; i++)
        count += !fig_exec_graph_is_left_out(&execs->of[exec], i);
    return count;
}

/* ---- Parts --------------------------------------------------------------------------------- */

static fig_launch_range range_of(const fig_lowered *lowered, const fig_exec_part *part) {
    uint32_t first = 0, end = 1;
    if (!part->fetches) first = end = lowered->node_launches[part->node].first;
    if (part->node_count > 0) {
        const fig_launch_range *last = &lowered->node_launches[part->node + part->node_count - 1];
        end = last->first + last->count;
    }
    return (fig_launch_range){first, end - first};
}

static int is_same_part(const fig_exec_part *a, const fig_exec_part *b) {
    return a->node == b->node && a->node_count == b->node_count && a->fetches == b->fetches;
}

fig_status fig_execs_segment(fig_execs *execs, uint32_t index, const fig_exec_part *part,
                             fig_dev_graph **graph) {
    fig_exec *exec = &execs->of[index];
    const size_t limit = (size_t)execs->bindings->program->segment_count + 2;
    *graph = NULL;
    FIG_TRY_OURS(fig_execs_ready(execs, index) && (part->fetches || part->node_count > 0),
                 "engine: exec %" PRIu32 " is not ready, or a segment of it has no node", index);
    if (exec->segments == NULL) exec->segments = calloc(limit, sizeof *exec->segments);
    if (exec->segments == NULL) return fig_fail(FIG_NOMEM, "engine: %zu segments", limit);
    for (uint32_t i = 0; i < exec->segment_count; i++) {
        if (!is_same_part(&exec->segments[i].part, part)) continue;
        *graph = exec->segments[i].graph;
        return FIG_OK;
    }
    FIG_TRY_OURS(exec->segment_count < limit, "engine: more than %zu segments", limit);
    const fig_exec_order order = {.exec = index, .range = range_of(&exec->lowered, part)};
    FIG_TRY(fig_exec_graph_make(execs, &order, graph));
    exec->segments[exec->segment_count++] = (fig_exec_segment){*part, *graph};
    return FIG_OK;
}
