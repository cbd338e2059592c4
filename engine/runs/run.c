/* run.c: one run: how it is cut, where its tensors lie, and its launches, one behind the other.
 *
 * Nothing here allocates or waits: a run is on the calling thread's stack, and its launches are
 * kept by the memo alone. Where the run is not given a plan its first launch makes one, and puts to
 * zeros what scratch must hold of them; the others are the nodes', in their order, each of which
 * may be put on the device before the one before it has ended. Invariant: what is refused is
 * refused before anything is launched. */
#include "engine/runs/runner.h"

#include <inttypes.h>
#include <stdalign.h>
#include <string.h>

#include "kernels/whole_attention.h"
#include "planner/size.h"
#include "planner/status.h"

enum { PIECE_BYTES = 16 };

/* A run that was checked. */
typedef struct run_work {
    const fig_runner *runner;
    const fig_run *run;
    fig_run_bound bound;
    fig_run_shape shape;
    uint8_t *scratch, *plan; /* plan: NULL: no node reads one */
    int plans;               /* 1: the run makes it */
    int splits;              /* 1: a node is split, and leaves partials in scratch */
    int64_t kv_limit; /* most tokens of a row: of what the plan is made for, and of the room */
    int64_t dense_tokens;
    int launched; /* so far */
    int is_kept;  /* 1: the runner's memo takes the launches */
} run_work;

static int reads_lengths(const run_work *work) {
    return fig_program_view_reads_lengths(work->runner->program);
}

/* ---- Params ---------------------------------------------------------------------------------- */

void fig_run_fill(const fig_runner *runner, const fig_run_shape *shape, uint32_t launch,
                  uint8_t *params) {
    const fig_lower_common *common = &runner->graphs->common;
    const fig_launch_source source = {
        .view = runner->program, .classes = &common->classes, .shape = &shape->bucket};
    const fig_launch *ours = &common->launches[launch];
    memcpy(params, common->params + ours->params, ours->params_bytes);
    fig_launch_fill_bucket(ours, &source, runner->haste[launch], params);
}

/* Of a launch: where the tensors of its node lie. */
typedef struct launch_places {
    const fig_node *node;
    const uint32_t *operands;
    fig_bound_place of[FIG_OPERAND_LIMIT]; /* [operand_count] */
} launch_places;

static fig_status find_places(const run_work *work, uint32_t node, launch_places *places) {
    places->node = &work->runner->program->nodes[node];
    places->operands = work->runner->program->operands + places->node->operand;
    for (uint32_t i = 0; i < places->node->operand_count; i++) {
        if (places->operands[i] == 0) continue;
        FIG_TRY(fig_run_tensors_place(&work->bound, places->operands[i], &places->of[i]));
    }
    return FIG_OK;
}

static const fig_bound_place *place_of(const launch_places *places, uint32_t tensor) {
    uint32_t i = 0;
    while (places->operands[i] != tensor)
        i++;
    return &places->of[i];
}

static uint64_t address_of(const void *base, uint64_t addend) {
    return base != NULL ? (uint64_t)(uintptr_t)base + addend : 0;
}

/* There is no ring, and the workspace is not the graphs'. */
static uint64_t value_of(const run_work *work, const launch_places *places,
                         const fig_reloc *reloc) {
    switch ((fig_reloc_kind)reloc->kind) {
    case FIG_RELOC_ADDRESS:
        return address_of(place_of(places, reloc->symbol)->address, reloc->addend);
    case FIG_RELOC_STRIDE: return (uint64_t)place_of(places, reloc->symbol)->strides[reloc->item];
    case FIG_RELOC_EXTENT: return (uint64_t)place_of(places, reloc->symbol)->extent;
    case FIG_RELOC_PLAN: return address_of(work->plan, reloc->addend);
    case FIG_RELOC_WORKSPACE:
    case FIG_RELOC_RING:
    case FIG_RELOC_RING_STATE:
    case FIG_RELOC_RING_WORDS:
    case FIG_RELOC_RING_SLOTS:
    case FIG_RELOC_RING_BYTES:
    case FIG_RELOC_PEERS:
    case FIG_RELOC_RANKS:
    case FIG_RELOC_ROUTES: return 0;
    }
    assert(0 && "a kind of relocation");
    return 0;
}

static uint64_t section_of(const run_work *work, const fig_field *field, uint32_t split_class) {
    const fig_workspace *workspace = &work->shape.workspace;
    switch ((fig_workspace_section)field->item) {
    case FIG_WORKSPACE_PARTIALS: return workspace->partials[split_class];
    case FIG_WORKSPACE_SUMS: return workspace->sums[split_class];
    case FIG_WORKSPACE_COUNTERS: return workspace->counters[split_class];
    }
    assert(0 && "a section of the workspace");
    return 0;
}

/* What lowering cannot know: where scratch is, how long dense caches are, and what comes right
 * before: the first launch may be right behind one that makes the plan. */
static void put_run_field(const run_work *work, const fig_launch *launch,
                          const launch_places *places, const fig_field *field, uint8_t *to) {
    const int32_t tokens = (int32_t)work->dense_tokens;
    uint64_t address;
    uint32_t haste;
    switch (field->kind) {
    case FIG_FIELD_WORKSPACE:
        address = address_of(work->scratch, section_of(work, field, launch->split_class));
        memcpy(to, &address, sizeof address);
        return;
    case FIG_FIELD_HASTE:
        memcpy(&haste, to, sizeof haste);
        if (work->launched <= work->plans) haste &= ~(uint32_t)FIG_HASTE_EARLY;
        memcpy(to, &haste, sizeof haste);
        return;
    case FIG_FIELD_PAGE_TOKENS:
        if (work->bound.tensors->of[places->operands[field->operand] - 1].is_dense)
            memcpy(to, &tokens, sizeof tokens);
        return;
    }
}

static fig_status fill(const run_work *work, uint32_t launch, uint8_t *params) {
    const fig_lower_common *common = &work->runner->graphs->common;
    const fig_launch *ours = &common->launches[launch];
    const fig_kernel *kernel = &fig_kernel_table[ours->op];
    launch_places places;
    FIG_TRY(find_places(work, ours->node, &places));
    fig_run_fill(work->runner, &work->shape, launch, params);
    for (uint32_t i = 0; i < ours->reloc_count; i++) {
        const fig_reloc *reloc = &common->relocs[ours->reloc + i];
        if (fig_launch_reloc_bytes(reloc->kind) < sizeof(uint64_t)) continue; /* 0 */
        const uint64_t value = value_of(work, &places, reloc);
        memcpy(params + (reloc->offset - ours->params), &value, sizeof value);
    }
    for (uint32_t i = 0; i < kernel->field_count; i++)
        put_run_field(work, ours, &places, &kernel->fields[i], params + kernel->fields[i].offset);
    return FIG_OK;
}

/* ---- Launches -------------------------------------------------------------------------------- */

static fig_status put(run_work *work, fig_op op, uint8_t *params) {
    const fig_runner *runner = work->runner;
    fig_family_choice choice;
    fig_families_choose(op, params, &runner->kernel_traits, &choice);
    fig_run_launch launch = {.op = op, .shape = choice.shape, .params = params};
    work->launched++;
    FIG_TRY(runner->api->prepare(runner->device, &choice, &launch));
    if (work->is_kept) fig_run_memo_add(runner->memo, &launch);
    return runner->api->launch(runner->device, &launch, work->run->stream);
}

static uint32_t planner_of(const fig_runner *runner) {
    return fig_program_view_reads_lengths(runner->program)
               ? runner->graphs->common.node_launches[0].first
               : 0;
}

/* The planner's launch: the plan, where the run makes one, and zeros. */
static fig_status launch_planner(run_work *work, void *zeros, uint64_t zero_bytes) {
    alignas(64) uint8_t bytes[FIG_PARAMS_LIMIT] = {0};
    const uint32_t launch = planner_of(work->runner);
    const fig_run_shape *shape = &work->shape;
    fig_plan_params params;
    if (launch != 0 && work->plans) FIG_TRY(fill(work, launch, bytes));
    memcpy(&params, bytes, sizeof params);
    params.plan = work->plans ? work->plan : NULL;
    params.shape = shape->bucket.plan;
    params.kv_limit = (int32_t)work->kv_limit;
    params.rows = work->run->rows;
    params.length = (int32_t)work->run->kv_length;
    params.zeros = zeros;
    params.zero_pieces = (uint32_t)(zero_bytes / PIECE_BYTES);
    memcpy(bytes, &params, sizeof params);
    return put(work, FIG_OP_PLAN, bytes);
}

/* Of a node's launches the first that is made: the one behind it may do its work too. */
static fig_status find_first(const run_work *work, fig_launch_range range, uint32_t *first) {
    alignas(64) uint8_t params[FIG_PARAMS_LIMIT];
    const uint32_t last = range.first + range.count - 1;
    const fig_op op = (fig_op)work->runner->graphs->common.launches[last].op;
    fig_family_choice choice;
    *first = range.first;
    if (range.count == 1) return FIG_OK;
    FIG_TRY(fill(work, last, params));
    fig_families_choose(op, params, &work->runner->kernel_traits, &choice);
    if (fig_families_of(op, choice.family)->does_all) *first = last;
    return FIG_OK;
}

static fig_status launch_node(run_work *work, uint32_t node) {
    if (work->runner->program->nodes[node].op == FIG_OP_PLAN) return FIG_OK;
    const fig_launch_range range = work->runner->graphs->common.node_launches[node];
    uint32_t first;
    FIG_TRY(find_first(work, range, &first));
    for (uint32_t i = first; i < range.first + range.count; i++) {
        alignas(64) uint8_t params[FIG_PARAMS_LIMIT];
        FIG_TRY(fill(work, i, params));
        FIG_TRY(put(work, (fig_op)work->runner->graphs->common.launches[i].op, params));
    }
    return FIG_OK;
}

/* Under a plan that is given, zeros are there. */
static fig_status launch_first(run_work *work) {
    const fig_run_shape *shape = &work->shape;
    if (!work->plans && (!work->splits || work->plan != NULL)) return FIG_OK;
    if (!work->splits) return launch_planner(work, NULL, 0);
    return launch_planner(work, work->scratch + shape->zeros, shape->temps - shape->zeros);
}

/* Attention alone over few tokens, as many as the host says: without a plan, and without pieces
 * that anyone would have to join. */
static fig_status find_whole(const run_work *work, fig_whole_attention_params *whole, int *found) {
    alignas(64) uint8_t bytes[FIG_PARAMS_LIMIT];
    fig_attention_params attention;
    const fig_lower_common *common = &work->runner->graphs->common;
    const int32_t rows = work->run->rows, length = (int32_t)work->run->kv_length;
    const uint32_t node = work->bound.nodes.first;
    *found = 0;
    if (!work->plans || reads_lengths(work) || work->bound.nodes.count != 1) return FIG_OK;
    if (work->runner->program->nodes[node].op != FIG_OP_ATTENTION) return FIG_OK;
    FIG_TRY(fill(work, common->node_launches[node].first, bytes));
    memcpy(&attention, bytes, sizeof attention);
    *whole = fig_whole_attention_of(&attention, rows, length);
    *found =
        fig_whole_attention_refuses(&attention, rows, length, &work->runner->kernel_traits) == NULL;
    return FIG_OK;
}

static fig_status launch_whole(run_work *work, int *launched) {
    alignas(64) uint8_t bytes[FIG_PARAMS_LIMIT];
    fig_whole_attention_params whole;
    FIG_TRY(find_whole(work, &whole, launched));
    if (!*launched) return FIG_OK;
    memcpy(bytes, &whole, sizeof whole);
    return put(work, FIG_OP_WHOLE_ATTENTION, bytes);
}

static fig_status launch_all(run_work *work) {
    const fig_run_nodes *nodes = &work->bound.nodes;
    const uint8_t *apart = work->runner->order.apart;
    int launched;
    FIG_TRY(launch_whole(work, &launched));
    if (launched) return FIG_OK;
    FIG_TRY(launch_first(work));
    const int is_free = fig_run_order_is_free(&work->runner->order, &work->bound);
    for (uint32_t n = nodes->first; n < nodes->first + nodes->count && is_free; n++)
        if (apart[n]) FIG_TRY(launch_node(work, n));
    for (uint32_t n = nodes->first; n < nodes->first + nodes->count; n++)
        if (!is_free || !apart[n]) FIG_TRY(launch_node(work, n));
    return FIG_OK;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static fig_status check_numbers(const fig_run *run, const fig_spec *spec) {
    if (run->rows < 0 || run->kv_length < 0 || run->binding_count < 0)
        return fig_fail(FIG_INVALID,
                        "run: rows is %" PRId32 ", kv_length %" PRId64 ", binding_count %" PRId32
                        ", none may be negative",
                        run->rows, run->kv_length, run->binding_count);
    if (run->kv_length > spec->kv_limit)
        return fig_fail(FIG_TOO_LARGE,
                        "run: kv_length is %" PRId64 ", the spec's kv_limit %" PRId32,
                        run->kv_length, spec->kv_limit);
    return FIG_OK;
}

static fig_status find_nodes(const fig_runner *runner, const char *segment, fig_run_nodes *nodes) {
    fig_segment found;
    *nodes = (fig_run_nodes){0, runner->program->node_count};
    if (segment == NULL) return FIG_OK;
    if (!fig_program_view_find_segment(runner->program, segment, &found))
        return fig_fail(FIG_INVALID, "run: the program has no segment %s", segment);
    *nodes = (fig_run_nodes){found.node, found.node_count};
    return FIG_OK;
}

/* What the nodes need beside their tensors. */
static void find_needs(run_work *work) {
    const fig_run_nodes *nodes = &work->bound.nodes;
    int planned = 0;
    for (uint32_t n = nodes->first; n < nodes->first + nodes->count; n++) {
        const fig_node *node = &work->runner->program->nodes[n];
        planned |= fig_run_shape_is_planned(work->runner->program, node);
        work->splits |= fig_kernel_table[node->op].split;
    }
    work->plans = planned && work->run->plan == NULL;
    work->plan = planned ? work->run->plan : NULL;
}

/* What a program plans for sequences that are as long as this. */
static fig_run_size size_of(const run_work *work) {
    const int32_t limit = work->runner->program->spec.kv_limit;
    const int32_t given = (int32_t)work->run->kv_length;
    const int32_t least = reads_lengths(work) ? limit : 1; /* where none is given */
    return (fig_run_size){work->run->rows, given > 0 ? given : least, work->run->scratch_bytes};
}

/* A plan that is given was made for the best scratch. */
static fig_status check_plan(const run_work *work) {
    if (work->plans || work->plan == NULL || work->run->plan_bytes >= work->shape.plan_bytes)
        return FIG_OK;
    return fig_fail(FIG_INVALID, "run: plan_bytes is %" PRIu64 ", this run's plan has %" PRIu64,
                    work->run->plan_bytes, work->shape.plan_bytes);
}

/* Scratch is looked at where something lies there. */
static fig_status take_scratch(run_work *work) {
    fig_run_size size = size_of(work);
    const int needed = work->plans || work->splits;
    if (!needed || work->plan != NULL) size.scratch_bytes = FIG_RUN_SHAPE_BEST;
    FIG_TRY(fig_run_shape_make(work->runner->graphs, &work->runner->traits, &size, &work->shape));
    FIG_TRY(check_plan(work));
    const int has_temps = work->shape.bytes > work->shape.temps;
    if ((has_temps || needed) && work->shape.bytes > work->run->scratch_bytes)
        return fig_fail(FIG_INVALID, "run: scratch_bytes is %" PRIu64 ", it must be %" PRIu64,
                        work->run->scratch_bytes, work->shape.bytes);
    if (!needed && !has_temps) return FIG_OK;
    work->scratch = work->run->scratch;
    if (work->shape.bytes > 0 && work->scratch == NULL)
        return fig_fail(FIG_INVALID, "run: scratch is NULL, it must be %" PRIu64 " bytes",
                        work->shape.bytes);
    if ((uintptr_t)work->scratch % PIECE_BYTES != 0 ||
        (uintptr_t)work->run->plan % PIECE_BYTES != 0)
        return fig_fail(FIG_INVALID, "run: scratch is %p and plan %p, multiples of %d are needed",
                        (void *)work->scratch, work->run->plan, PIECE_BYTES);
    if (work->plans) work->plan = work->scratch;
    work->bound.temps = work->scratch + work->shape.temps;
    return FIG_OK;
}

/* Lengths that lie on the device may be idle where they are too long; others may not be. */
static fig_status take_room(run_work *work) {
    const int64_t wanted = size_of(work).kv_limit;
    const int64_t known = reads_lengths(work) ? wanted : work->run->kv_length;
    fig_run_room room;
    FIG_TRY(fig_run_tensors_room(&work->bound, &room));
    work->kv_limit = room.tokens < wanted ? room.tokens : wanted;
    work->dense_tokens = room.dense_tokens;
    if (room.tokens >= known || (work->plans && reads_lengths(work))) return FIG_OK;
    return fig_fail(
        FIG_INVALID, "tensor %s: holds %" PRId64 " tokens of each sequence, kv_length is %" PRId64,
        fig_program_view_tensor_name(work->runner->program, room.shortest), room.tokens, known);
}

static fig_status check_nodes(const run_work *work) {
    const fig_run_nodes *nodes = &work->bound.nodes;
    const fig_program_view *program = work->runner->program;
    if (work->plans && reads_lengths(work))
        FIG_TRY(fig_run_tensors_check(&work->bound, &program->nodes[0]));
    for (uint32_t n = nodes->first; n < nodes->first + nodes->count; n++)
        if (program->nodes[n].op != FIG_OP_PLAN)
            FIG_TRY(fig_run_tensors_check(&work->bound, &program->nodes[n]));
    return FIG_OK;
}

/* Rows of a tensor and blocks of a grid are counted in 31 bits. A block that does a part of a row
 * does 256 numbers of it or more, of one of two tensors. */
static fig_status check_rows(const run_work *work) {
    const fig_program_view *program = work->runner->program;
    int64_t most = 1;
    for (uint32_t id = 1; id <= program->tensor_count; id++) {
        const fig_tensor_record *record = &program->tensors[id - 1];
        if (record->symbol != FIG_SYMBOL_BATCH) continue;
        const int64_t numbers = record->dims[1] * record->dims[2] * record->dims[3];
        const int64_t blocks = record->dims[0] * (1 + numbers / 128);
        if (blocks > most) most = blocks;
    }
    if (work->run->rows <= INT32_MAX / most) return FIG_OK;
    return fig_fail(FIG_TOO_LARGE,
                    "run: rows is %" PRId32 ", limit %" PRId64 " where they are as wide as here",
                    work->run->rows, INT32_MAX / most);
}

/* ---- Public ---------------------------------------------------------------------------------- */

static fig_status begin(run_work *work, const fig_runner *runner, const fig_run *run) {
    *work = (run_work){.runner = runner, .run = run};
    work->bound = (fig_run_bound){.tensors = &runner->tensors, .run = run};
    FIG_TRY(check_numbers(run, &runner->program->spec));
    FIG_TRY(find_nodes(runner, run->segment, &work->bound.nodes));
    find_needs(work);
    return FIG_OK;
}

static fig_status check(run_work *work) {
    FIG_TRY(check_rows(work));
    FIG_TRY(take_scratch(work));
    FIG_TRY(take_room(work));
    return check_nodes(work);
}

/* Launches between the device's begin and end. */
static fig_status launch(run_work *work, fig_status (*launches)(run_work *work)) {
    const fig_runner *runner = work->runner;
    FIG_TRY(runner->api->begin(runner->device, work->run->stream));
    return runner->api->end(runner->device, launches(work));
}

static fig_status run_nodes(run_work *work) {
    if (work->run->rows == 0) return FIG_OK;
    FIG_TRY(check(work));
    return launch(work, launch_all);
}

static fig_status launch_plan_alone(run_work *work) {
    void *scratch = work->run->scratch;
    return launch_planner(work, scratch, scratch != NULL ? work->shape.temps : 0);
}

static fig_status run_plan(run_work *work) {
    const fig_runner *runner = work->runner;
    if (work->plan == NULL && !work->plans)
        return fig_fail(FIG_ORDER, "plan: no node of the run reads a plan");
    if (work->plan == NULL || (uintptr_t)work->plan % PIECE_BYTES != 0 ||
        (uintptr_t)work->run->scratch % PIECE_BYTES != 0)
        return fig_fail(FIG_INVALID,
                        "plan: plan is %p and scratch %p, they must be at multiples of %d",
                        work->run->plan, work->run->scratch, PIECE_BYTES);
    if (work->run->rows == 0) return FIG_OK;
    fig_run_size size = size_of(work);
    size.scratch_bytes = FIG_RUN_SHAPE_BEST;
    FIG_TRY(fig_run_shape_make(runner->graphs, &runner->traits, &size, &work->shape));
    FIG_TRY(check_plan(work));
    if (work->run->scratch != NULL && work->run->scratch_bytes < work->shape.temps)
        return fig_fail(FIG_INVALID, "plan: scratch_bytes is %" PRIu64 ", it must be %" PRIu64,
                        work->run->scratch_bytes, work->shape.temps);
    work->plans = 1;
    work->kv_limit = size.kv_limit;
    if (reads_lengths(work))
        FIG_TRY(fig_run_tensors_check(&work->bound, &runner->program->nodes[0]));
    return launch(work, launch_plan_alone);
}

static fig_status run_anew(const fig_runner *runner, fig_run_kind kind, const fig_run *run,
                           int is_kept) {
    run_work work;
    FIG_TRY(begin(&work, runner, run));
    work.is_kept = is_kept;
    return kind == FIG_RUN_PLAN ? run_plan(&work) : run_nodes(&work);
}

static fig_status run_again(const fig_runner *runner, const fig_run_entry *known, void *stream) {
    fig_status status = runner->api->begin(runner->device, stream);
    if (status != FIG_OK) return status;
    for (int32_t i = 0; i < known->launch_count && status == FIG_OK; i++)
        status = runner->api->launch(runner->device, &known->launches[i], stream);
    return runner->api->end(runner->device, status);
}

static fig_status run_of_kind(const fig_runner *runner, fig_run_kind kind, const fig_run *run) {
    fig_run ours;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, run, "fig_run"));
    const fig_run_entry *entry = fig_run_memo_take(runner->memo, kind, &ours);
    const int is_known = entry != NULL && entry->is_known;
    const fig_status status = is_known ? run_again(runner, entry, ours.stream)
                                       : run_anew(runner, kind, &ours, entry != NULL);
    if (entry != NULL) fig_run_memo_give(runner->memo, kind, status == FIG_OK);
    return status;
}

fig_status fig_runner_run(const fig_runner *runner, const fig_run *run) {
    return run_of_kind(runner, FIG_RUN_NODES, run);
}

fig_status fig_runner_plan(const fig_runner *runner, const fig_run *run) {
    return run_of_kind(runner, FIG_RUN_PLAN, run);
}
