/* execs.c: lower each exec once, fill in addresses, and keep execs true to the bindings.
 *
 * Cold: runs where bindings have changed, or where an exec is needed for the first time. Invariant:
 * a prepare that fails half-way can be called again: each exec says for itself what it holds. */
#include "engine/execs.h"

#include <inttypes.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "engine/stats.h"
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

/* Copies a launch's params and writes each relocated word, all of it, so that params filled in
 * before serve as well as fresh ones. */
static void fill_params(const fig_execs *execs, const fig_lowered *lowered,
                        const fig_launch *launch, uint8_t *params) {
    memcpy(params, lowered->params + launch->params, launch->params_bytes);
    for (uint32_t i = 0; i < launch->reloc_count; i++) {
        const fig_reloc *reloc = &lowered->relocs[launch->reloc + i];
        uint64_t value = value_of(execs, reloc);
        uint32_t word = (uint32_t)value;
        uint8_t *to = params + (reloc->offset - launch->params);
        if (fig_launch_reloc_bytes(reloc->kind) == sizeof word) {
            memcpy(to, &word, sizeof word);
        } else {
            memcpy(to, &value, sizeof value);
        }
    }
}

/* ---- Making a bucket's exec ---------------------------------------------------------------- */

static fig_status add_call(const fig_execs *execs, const fig_bucket *caps, fig_dev_graph *graph,
                           const fig_node *node, fig_dev_after after) {
    const fig_binding_table *bindings = execs->bindings;
    const fig_program_view *program = bindings->program;
    const uint32_t *operands = program->operands + node->operand;
    void *addresses[2 * FIG_CALL_TENSOR_LIMIT];
    fig_call_attributes attributes;
    memcpy(&attributes, program->attributes + node->attribute, sizeof attributes);
    const fig_bound_call *bound = fig_binding_call(bindings, program->strings + attributes.name);
    for (uint32_t i = 0; i < node->operand_count; i++)
        addresses[i] = bindings->tensors[operands[i] - 1].place.address;
    fig_dev_call call = {.callback = bound->callback,
                         .user = bound->user,
                         .name = bound->name,
                         .read_count = (int32_t)attributes.read_count,
                         .write_count = (int32_t)(node->operand_count - attributes.read_count),
                         .plan = execs->places.plan};
    call.args = (fig_call_args){.size = sizeof call.args,
                                .device = bindings->api->kind,
                                .bucket = *caps,
                                .tag = attributes.tag,
                                .bytes = attributes.bytes,
                                .byte_count = (int32_t)attributes.byte_count,
                                .reads = (const void *const *)addresses,
                                .writes = addresses + attributes.read_count};
    return bindings->api->graph_call(bindings->dev, graph, &call, after);
}

/* What a graph is to be. */
typedef struct graph_order {
    uint32_t exec;
    fig_launch_range range;
    int own;             /* 1: all of it, to be launched by us; 0: a part for a caller */
    uint32_t first_node; /* of the graph: what the range's first launch that is made becomes */
    fig_dev_after after; /* what a launch comes after that comes after none of the range */
    int serial;          /* 1: each launch comes after the one before it alone */
} graph_order;

static fig_dev_launch dev_launch_of(fig_op op, const fig_family_choice *choice,
                                    const void *params) {
    fig_dev_launch launch = {.op = op,
                             .family = choice->family,
                             .shared_bytes = choice->shape.shared_bytes,
                             .params = params,
                             .params_bytes = fig_kernel_table[op].params_bytes};
    memcpy(launch.grid, choice->shape.grid, sizeof launch.grid);
    memcpy(launch.block, choice->shape.block, sizeof launch.block);
    return launch;
}

static fig_status add_launch(const fig_execs *execs, const graph_order *order, fig_dev_graph *graph,
                             uint32_t index, fig_dev_after after) {
    const fig_exec *exec = &execs->of[order->exec];
    const fig_launch *launch = &exec->lowered.launches[index];
    fig_fetch_params fetch;
    const fig_binding_table *bindings = execs->bindings;
    const fig_graphs *graphs = bindings->graphs;
    if (launch->op == FIG_OP_CALL)
        return add_call(execs, &graphs->buckets[graphs->exec_buckets[order->exec]].caps, graph,
                        &bindings->program->nodes[launch->node], after);
    fig_dev_launch kernel = dev_launch_of((fig_op)launch->op, &exec->choices[index],
                                          exec->lowered.params + launch->params);
    if (launch->op == FIG_OP_FETCH && !order->own) {
        memcpy(&fetch, kernel.params, sizeof fetch);
        fetch.tells = 1;
        kernel.params = &fetch;
    }
    return bindings->api->graph_kernel(bindings->dev, graph, &kernel, after);
}

/* A kernel of the engine's own, which stands in no program. */
static fig_dev_launch own_launch_of(const fig_execs *execs, fig_op op, const void *params) {
    fig_family_choice choice;
    fig_families_choose(op, params, &execs->traits, &choice);
    return dev_launch_of(op, &choice, params);
}

/* 1: the launch behind it, of the same node, does its work too. */
static int is_left_out(const fig_exec *exec, uint32_t index) {
    const fig_launch *launch = &exec->lowered.launches[index], *next = launch + 1;
    if (launch->node_count == 0 || index + 1 == exec->lowered.launch_count) return 0;
    if (next->node != launch->node || next->op == FIG_OP_CALL) return 0;
    return fig_families_of((fig_op)next->op, exec->choices[index + 1].family)->does_all;
}

/* numbers: [range.count] how many launches of the range are made before each; returns how many are
 * in all. */
static uint32_t number_launches(const fig_exec *exec, fig_launch_range range, uint32_t *numbers) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < range.count; i++) {
        numbers[i] = count;
        count += !is_left_out(exec, range.first + i);
    }
    return count;
}

/* Behind the middle of the launches: late enough that a host which runs ahead has staged the next
 * step, and early enough to be done before the last. */
static fig_status add_look_ahead(const fig_execs *execs, uint32_t launch_count,
                                 fig_dev_graph *graph) {
    const fig_device_api *api = execs->bindings->api;
    const fig_exec_places *places = &execs->places;
    const fig_look_ahead_params params = {.ring = places->ring,
                                          .state = places->state,
                                          .words = places->words,
                                          .slot_count = places->slot_count,
                                          .slot_bytes = places->slot_bytes};
    fig_dev_launch launch = own_launch_of(execs, FIG_OP_LOOK_AHEAD, &params);
    const uint32_t middle = launch_count / 2;
    launch.is_leaf = 1;
    return api->graph_kernel(execs->bindings->dev, graph, &launch, (fig_dev_after){&middle, 1});
}

/* Edges are sorted by what they lead to, so those into one launch lie together; one that comes from
 * outside of the range is none of the graph's. What a launch that is left out comes after, the one
 * behind it comes after. numbers: of number_launches; from: [range.count] scratch. */
static fig_status add_launches(const fig_execs *execs, const graph_order *order,
                               fig_dev_graph *graph, const uint32_t *numbers, uint32_t *from) {
    const fig_exec *exec = &execs->of[order->exec];
    const fig_lowered *lowered = &exec->lowered;
    const fig_launch_range range = order->range;
    uint32_t edge = 0, made = 0, count = 0;
    while (edge < lowered->edge_count && lowered->edges[edge].to < range.first)
        edge++;
    for (uint32_t i = range.first; i < range.first + range.count; i++) {
        for (; edge < lowered->edge_count && lowered->edges[edge].to == i; edge++) {
            const uint32_t before = lowered->edges[edge].from;
            if (before >= range.first && !is_left_out(exec, before))
                from[count++] = order->first_node + numbers[before - range.first];
        }
        if (is_left_out(exec, i)) continue;
        if (order->serial && made > 0) {
            from[0] = order->first_node + made - 1;
            count = 1;
        }
        const fig_dev_after after = {from, count};
        FIG_TRY(add_launch(execs, order, graph, i, count > 0 ? after : order->after));
        made++;
        count = 0;
    }
    assert(range.first + range.count < lowered->launch_count || edge == lowered->edge_count);
    return order->own ? add_look_ahead(execs, made, graph) : FIG_OK;
}

static fig_status make_graph(const fig_execs *execs, const graph_order *order,
                             fig_dev_graph **graph) {
    const fig_launch_range range = order->range;
    const fig_device_api *api = execs->bindings->api;
    fig_dev *dev = execs->bindings->dev;
    assert(range.count <= execs->of[order->exec].lowered.launch_count - range.first);
    uint32_t *numbers = calloc((size_t)range.count + 1, 2 * sizeof *numbers);
    *graph = NULL;
    if (numbers == NULL) return fig_fail(FIG_NOMEM, "engine: edges of %u launches", range.count);
    number_launches(&execs->of[order->exec], range, numbers);
    fig_status status = api->graph_create(dev, graph);
    if (status == FIG_OK)
        status = add_launches(execs, order, *graph, numbers, numbers + range.count);
    free(numbers);
    if (status == FIG_OK) return FIG_OK;
    api->graph_destroy(dev, *graph);
    *graph = NULL;
    return status;
}

static fig_status make_exec(const fig_execs *execs, uint32_t index, fig_dev_exec **exec) {
    const fig_device_api *api = execs->bindings->api;
    const graph_order order = {
        .exec = index, .range = {0, execs->of[index].lowered.launch_count}, .own = 1};
    fig_dev_graph *graph;
    *exec = NULL;
    FIG_TRY(make_graph(execs, &order, &graph));
    fig_status status = api->exec_create(execs->bindings->dev, exec, graph);
    api->graph_destroy(execs->bindings->dev, graph);
    return status;
}

/* ---- Keeping it true ----------------------------------------------------------------------- */

/* Which family serves a launch whose params are `params`; of a call none does. */
static void choose_family(const fig_execs *execs, const fig_launch *launch, const uint8_t *params,
                          fig_family_choice *choice) {
    memset(choice, 0, sizeof *choice);
    if (launch->op != FIG_OP_CALL)
        fig_families_choose((fig_op)launch->op, params, &execs->traits, choice);
}

/* From here until it is made anew, what stands here is not what the device has. */
static void fill(const fig_execs *execs, fig_exec *exec) {
    alignas(64) uint8_t params[FIG_PARAMS_LIMIT];
    fig_lowered *lowered = &exec->lowered;
    exec->is_true = 0;
    for (uint32_t i = 0; i < lowered->launch_count; i++) {
        const fig_launch *launch = &lowered->launches[i];
        fill_params(execs, lowered, launch, params);
        memcpy(lowered->params + launch->params, params, launch->params_bytes);
        choose_family(execs, launch, params, &exec->choices[i]);
    }
}

/* A call's addresses are the callback's, on cuda captured with its work, so they cannot be patched;
 * nor can a kernel become another. The old exec may still be running: the next settle destroys
 * it. */
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

/* 1: with the bindings in force another kernel serves one of its launches than before, or what
 * serves it was captured with those before. */
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
        if (is_left_out(exec, i)) continue;
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

fig_status fig_execs_prepare(fig_execs *execs, uint32_t index) {
    fig_exec *exec = &execs->of[index];
    assert(fig_execs_settled(execs));
    fig_status status = FIG_OK;
    pthread_mutex_lock(&exec->making);
    if (exec->version != execs->version) status = prepare(execs, index);
    /* Partner: the acquire in fig_execs_ready. */
    if (status == FIG_OK) __atomic_store_n(&exec->version, execs->version, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&exec->making);
    return status;
}

/* ---- Taking up bindings -------------------------------------------------------------------- */

/* So many launches of one kernel, one after another. */
static fig_status make_row(const fig_execs *execs, const fig_dev_launch *launch, uint32_t count,
                           fig_dev_exec **exec) {
    const fig_device_api *api = execs->bindings->api;
    fig_dev *dev = execs->bindings->dev;
    fig_dev_graph *graph;
    FIG_TRY(api->graph_create(dev, &graph));
    fig_status status = FIG_OK;
    for (uint32_t i = 0; status == FIG_OK && i < count; i++) {
        const uint32_t before = i - 1;
        status = api->graph_kernel(dev, graph, launch, (fig_dev_after){&before, i > 0});
    }
    if (status == FIG_OK) status = api->exec_create(dev, exec, graph);
    api->graph_destroy(dev, graph);
    return status;
}

/* Its addresses never change, so it is made once. */
static fig_status prepare_drop(fig_execs *execs, uint32_t what, fig_dev_exec **drop) {
    const fig_fetch_params params = {
        .state = execs->places.state, .words = execs->places.words, .shape = {.exec = what}};
    const fig_dev_launch launch = own_launch_of(execs, FIG_OP_FETCH, &params);
    return *drop != NULL ? FIG_OK : make_row(execs, &launch, 1, drop);
}

int fig_execs_settled(const fig_execs *execs) {
    return execs->version == execs->bindings->version;
}

/* Steps in flight keep the addresses that they were launched with, so they end before those go:
 * memory of bindings that are replaced, execs that were made anew, and graphs that were appended.
 * What a caller's graph holds of those is the driver's copy. */
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
    assert(fig_execs_ready(execs, exec));
    if (launch < 0 || (uint32_t)launch >= lowered->launch_count)
        return fig_fail(FIG_INVALID, "launch: %" PRId32 ", the bucket has 0 to %" PRIu32, launch,
                        lowered->launch_count - 1);
    const fig_launch *of = &lowered->launches[launch];
    const fig_family_choice *choice = &execs->of[exec].choices[launch];
    info->node = (int32_t)of->node;
    info->node_count = (int32_t)of->node_count;
    info->operation = fig_table_op_name(of->op);
    if (of->op == FIG_OP_CALL || is_left_out(&execs->of[exec], (uint32_t)launch)) return FIG_OK;
    info->family = fig_families_of((fig_op)of->op, choice->family)->name;
    info->refusal_count = (int32_t)choice->family;
    for (uint32_t i = 0; i < choice->family; i++) {
        info->refused[i] = fig_families_of((fig_op)of->op, i)->name;
        info->needs[i] = choice->refusals[i];
    }
    return FIG_OK;
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
    assert(fig_execs_ready(execs, index) && (part->fetches || part->node_count > 0));
    *graph = NULL;
    if (exec->segments == NULL) exec->segments = calloc(limit, sizeof *exec->segments);
    if (exec->segments == NULL) return fig_fail(FIG_NOMEM, "engine: %zu segments", limit);
    for (uint32_t i = 0; i < exec->segment_count; i++) {
        if (!is_same_part(&exec->segments[i].part, part)) continue;
        *graph = exec->segments[i].graph;
        return FIG_OK;
    }
    assert(exec->segment_count < limit);
    const graph_order order = {.exec = index, .range = range_of(&exec->lowered, part)};
    FIG_TRY(make_graph(execs, &order, graph));
    exec->segments[exec->segment_count++] = (fig_exec_segment){*part, *graph};
    return FIG_OK;
}

/* ---- Nodes alone --------------------------------------------------------------------------- */

uint32_t fig_execs_launch_count(const fig_execs *execs, uint32_t exec) {
    uint32_t count = 1;
    for (uint32_t i = 0; i < execs->of[exec].lowered.launch_count; i++)
        count += !is_left_out(&execs->of[exec], i);
    return count;
}

/* The nodes of a range's first copy that none of it comes after; returns how many. */
static uint32_t find_leaves(const fig_lowered *lowered, fig_launch_range range,
                            const uint32_t *numbers, uint32_t *leaves) {
    uint32_t count = 0;
    for (uint32_t i = range.first; i < range.first + range.count; i++) {
        uint32_t edge = 0;
        while (edge < lowered->edge_count && lowered->edges[edge].from != i)
            edge++;
        if (edge == lowered->edge_count) leaves[count++] = numbers[i - range.first];
    }
    return count;
}

/* scratch: [3 * range.count] numbers, the leaves of the copy before, and add_launches' own. */
static fig_status add_copies(const fig_execs *execs, graph_order order, uint32_t copies,
                             fig_dev_graph *graph, uint32_t *scratch) {
    const fig_exec *exec = &execs->of[order.exec];
    uint32_t *numbers = scratch, *leaves = numbers + order.range.count;
    const uint32_t count = number_launches(exec, order.range, numbers);
    uint32_t leaf_count = find_leaves(&exec->lowered, order.range, numbers, leaves);
    if (order.serial) {
        leaves[0] = count - 1;
        leaf_count = 1;
    }
    for (uint32_t copy = 0; copy < copies; copy++) {
        FIG_TRY(add_launches(execs, &order, graph, numbers, leaves + order.range.count));
        for (uint32_t i = 0; i < leaf_count && copy > 0; i++)
            leaves[i] += count;
        order.first_node += count;
        order.after = (fig_dev_after){leaves, leaf_count};
    }
    return FIG_OK;
}

static fig_status make_bare(const fig_execs *execs, const graph_order *order, uint32_t copies,
                            uint32_t *scratch, fig_dev_exec **exec) {
    const fig_device_api *api = execs->bindings->api;
    fig_dev *dev = execs->bindings->dev;
    fig_dev_graph *graph;
    FIG_TRY(api->graph_create(dev, &graph));
    fig_status status = add_copies(execs, *order, copies, graph, scratch);
    if (status == FIG_OK) status = api->exec_create(dev, exec, graph);
    api->graph_destroy(dev, graph);
    return status;
}

fig_status fig_execs_bare(const fig_execs *execs, const fig_exec_bare *bare, fig_dev_exec **out) {
    const uint32_t count = execs->of[bare->exec].lowered.launch_count - 1;
    const graph_order order = {.exec = bare->exec, .range = {1, count}, .serial = bare->serial};
    assert(fig_execs_ready(execs, bare->exec) && bare->copies >= 1);
    *out = NULL;
    uint32_t *scratch = calloc((size_t)count + 1, 3 * sizeof *scratch);
    if (scratch == NULL) return fig_fail(FIG_NOMEM, "engine: edges of %u launches", count);
    fig_status status = make_bare(execs, &order, bare->copies, scratch, out);
    free(scratch);
    return status;
}

fig_status fig_execs_reading(const fig_execs *execs, const fig_exec_reading *reading,
                             fig_dev_exec **exec) {
    size_t pieces = reading->bytes / 16;
    if (pieces > UINT32_MAX) pieces = UINT32_MAX;
    const fig_ceiling_params params = {.in = reading->from,
                                       .out = reading->folded,
                                       .pieces = (uint32_t)pieces,
                                       .blocks = reading->blocks};
    const fig_dev_launch launch = own_launch_of(execs, FIG_OP_CEILING, &params);
    *exec = NULL;
    return make_row(execs, &launch, reading->launches, exec);
}
