/* run.c: checks a run, chooses how it is split, fills in its params and launches it.
 *
 * Nothing here allocates or waits: a run's state is on the calling thread's stack, and only the
 * memo keeps its launches. If the caller gives no plan, the first launch makes one and zeroes the
 * part of scratch that must be zero. The launches of the nodes follow in order; each may begin on
 * the device before the preceding launch has ended. Invariant: a run that fails its checks has
 * launched nothing. */
#include "engine/runs/runner.h"

#include <inttypes.h>
#include <stdalign.h>
#include <string.h>

#include "planner/size.h"
#include "planner/status.h"

enum { PIECE_BYTES = 16 };

/* The state of a run while it is prepared and launched. */
typedef struct run_work {
    const fig_runner *runner;
    const fig_run *run;
    fig_run_bound bound;
    fig_run_shape shape;
    uint8_t *scratch, *plan; /* plan is NULL if no node reads one */
    int plans;               /* 1: the run makes its own plan */
    int splits;              /* 1: a node is split and leaves partials in scratch */
    int64_t kv_limit;        /* most tokens per row that both the plan and the tensors allow */
    int64_t dense_tokens;
    int launched; /* the number of launches so far */
    int is_kept;  /* 1: the runner's memo records the launches */
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
    fig_launch_fill_bucket(ours, &source, runner->early_reads[launch], params);
}

/* The places of the tensors that a launch's node uses. */
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

/* Computes the value of a relocated field. A run has no ring and no peers, and it does not use the
 * graphs' workspace, so fields that point to them are 0. */
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
    case FIG_WORKSPACE_STRIP_PARTIALS: return workspace->strip_partials[split_class];
    case FIG_WORKSPACE_STRIP_SUMS: return workspace->strip_sums[split_class];
    case FIG_WORKSPACE_STRIP_COUNTERS: return workspace->strip_counters[split_class];
    }
    assert(0 && "a section of the workspace");
    return 0;
}

/* Counts the segments of packed RoPE for which both of its arrays have room. */
static int32_t count_segments(const run_work *work, const launch_places *places) {
    int64_t least = INT32_MAX;
    for (uint32_t i = 0; i < places->node->operand_count; i++) {
        if (places->operands[i] == 0) continue;
        const int32_t ends = work->bound.tensors->of[places->operands[i] - 1].ends;
        const int64_t segments = places->of[i].extent + 1 - ends;
        if (ends > 0 && segments < least) least = segments;
    }
    return (int32_t)least;
}

/* Sets a field whose value lowering could not know: the address of scratch, the length of dense
 * caches, the segments of packed RoPE, and whether early reads are allowed. The nodes' first launch
 * may directly follow the launch that makes the plan, so it must not read the plan early. */
static void put_run_field(const run_work *work, const fig_launch *launch,
                          const launch_places *places, const fig_field *field, uint8_t *to) {
    const int32_t tokens = (int32_t)work->dense_tokens;
    int32_t segments;
    uint64_t address;
    uint32_t early_reads, cache;
    switch (field->kind) {
    case FIG_FIELD_WORKSPACE:
        if (fig_table_is_of_strips(field->item) && !work->runner->graphs->common.classes.has_chunks)
            return;
        address = address_of(work->scratch, section_of(work, field, launch->split_class));
        memcpy(to, &address, sizeof address);
        return;
    case FIG_FIELD_EARLY_READS:
        memcpy(&early_reads, to, sizeof early_reads);
        if (work->launched <= work->plans) early_reads &= ~(uint32_t)FIG_EARLY_READS_ON;
        memcpy(to, &early_reads, sizeof early_reads);
        return;
    case FIG_FIELD_DIM:
        if (field->operand >= places->node->operand_count ||
            places->operands[field->operand] == 0 ||
            work->bound.tensors->of[places->operands[field->operand] - 1].ends == 0)
            return;
        segments = count_segments(work, places);
        memcpy(to, &segments, sizeof segments);
        return;
    case FIG_FIELD_PAGE_TOKENS:
        cache = fig_launch_operand(work->runner->program, places->node, launch->op, field->operand);
        if (work->bound.tensors->of[cache - 1].is_dense) memcpy(to, &tokens, sizeof tokens);
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
        if (fig_launch_reloc_bytes(reloc->kind) < sizeof(uint64_t)) continue; /* stays 0 */
        const uint64_t value = value_of(work, &places, reloc);
        memcpy(params + (reloc->offset - ours->params), &value, sizeof value);
    }
    for (uint32_t i = 0; i < kernel->field_count; i++)
        put_run_field(work, ours, &places, &kernel->fields[i], params + kernel->fields[i].offset);
    return FIG_OK;
}

/* ---- Launches -------------------------------------------------------------------------------- */

/* Returns 1 if the launch reads a weight before its wait, and a node of the run writes it. A caller
 * may also bind the weight and another tensor to the same memory. */
static int reads_written(const run_work *work, uint32_t launch) {
    const fig_launch *ours = &work->runner->graphs->common.launches[launch];
    const fig_program_view *view = work->runner->program;
    const fig_node *node = &view->nodes[ours->node];
    if (work->runner->early_reads[launch] & FIG_EARLY_READS_WRITTEN) return 1;
    if (work->bound.nodes.count < 2 || ours->op != node->op) return 0;
    for (uint32_t weights = fig_kernel_table[node->op].early_weights, i = 0; weights >> i != 0; i++)
        if ((weights >> i & 1) && fig_run_order_is_written(&work->runner->order, &work->bound,
                                                           fig_program_view_operand(view, node, i)))
            return 1;
    return 0;
}

/* Sets the shape and the kernel of the launch. */
static fig_status put(run_work *work, fig_run_launch launch) {
    const fig_runner *runner = work->runner;
    fig_family_choice choice;
    fig_families_choose(launch.op, launch.params, &runner->kernel_traits, &choice);
    launch.shape = choice.shape;
    work->launched++;
    FIG_TRY(runner->api->prepare(runner->device, &choice, &launch));
    if (work->is_kept) FIG_TRY(fig_run_memo_add(runner->memo, &launch));
    return runner->api->launch(runner->device, &launch, work->run->stream);
}

static uint32_t planner_of(const fig_runner *runner) {
    return fig_program_view_reads_lengths(runner->program)
               ? runner->graphs->common.node_launches[0].first
               : 0;
}

/* Launches the planner kernel, which makes the plan if the run makes its own, and zeroes part of
 * scratch. */
static fig_status launch_planner(run_work *work, void *zeros, uint64_t zero_bytes) {
    alignas(64) uint8_t bytes[FIG_PARAMS_LIMIT] = {0};
    const uint32_t launch = planner_of(work->runner);
    const fig_run_shape *shape = &work->shape;
    fig_plan_params params;
    if (launch != 0 && work->plans) FIG_TRY(fill(work, launch, bytes));
    memcpy(&params, bytes, sizeof params);
    params.plan = work->plans ? work->plan : NULL;
    params.shape = shape->bucket.plan;
    memcpy(params.strips.of, shape->bucket.strips, sizeof params.strips.of);
    params.kv_limit = (int32_t)work->kv_limit;
    params.rows = work->run->rows;
    params.length = (int32_t)work->run->kv_length;
    params.zeros = zeros;
    params.zero_pieces = (uint32_t)(zero_bytes / PIECE_BYTES);
    memcpy(bytes, &params, sizeof params);
    return put(work, (fig_run_launch){.op = FIG_OP_PLAN, .params = bytes});
}

/* Finds the first of a node's launches that this run needs. If the node's last launch can do all
 * the work, the run needs only that launch. A last launch that serves chunks never can. */
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
    if (fig_program_view_makes_plan(&work->runner->program->nodes[node])) return FIG_OK;
    const fig_launch_range range = work->runner->graphs->common.node_launches[node];
    uint32_t first;
    FIG_TRY(find_first(work, range, &first));
    for (uint32_t i = first; i < range.first + range.count; i++) {
        alignas(64) uint8_t params[FIG_PARAMS_LIMIT];
        FIG_TRY(fill(work, i, params));
        FIG_TRY(put(work, (fig_run_launch){
                              .op = (fig_op)work->runner->graphs->common.launches[i].op,
                              .params = params,
                              .is_plain = reads_written(work, i),
                          }));
    }
    return FIG_OK;
}

/* Launches the planner if the run needs it. If the caller gives a plan, fig_runner_plan() or the
 * previous run has left scratch zeroed. */
static fig_status launch_first(run_work *work) {
    const fig_run_shape *shape = &work->shape;
    if (!work->plans && (!work->splits || work->plan != NULL)) return FIG_OK;
    if (!work->splits) return launch_planner(work, NULL, 0);
    return launch_planner(work, work->scratch + shape->zeros, shape->zeros_end - shape->zeros);
}

/* If the run has a single node and the host knows one length for all rows, another operation may be
 * able to do the node's whole work without a plan. Launches that operation if it can. */
static fig_status launch_whole(run_work *work, int *launched) {
    alignas(64) uint8_t bytes[FIG_PARAMS_LIMIT], whole[FIG_PARAMS_LIMIT];
    const fig_runner *runner = work->runner;
    const fig_node *node = &runner->program->nodes[work->bound.nodes.first];
    const fig_launch_range range = runner->graphs->common.node_launches[work->bound.nodes.first];
    const fig_whole *row = fig_kernel_table[node->op].whole;
    *launched = 0;
    if (!work->plans || reads_lengths(work) || work->bound.nodes.count != 1) return FIG_OK;
    if (row == NULL || work->run->kv_length == 0) return FIG_OK;
    FIG_TRY(fill(work, range.first, bytes));
    *launched = row->make(bytes, work->run->rows, (int32_t)work->run->kv_length,
                          &runner->kernel_traits, whole);
    if (!*launched) return FIG_OK;
    return put(work, (fig_run_launch){.op = (fig_op)row->op, .params = whole});
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

/* Finds whether the nodes need a plan, and whether any node is split. */
static void find_needs(run_work *work) {
    const fig_run_nodes *nodes = &work->bound.nodes;
    int planned = 0;
    for (uint32_t n = nodes->first; n < nodes->first + nodes->count; n++) {
        const fig_node *node = &work->runner->program->nodes[n];
        planned |= fig_run_shape_is_planned(work->runner->program, node);
        work->splits |= fig_kernel_table[node->op].split != NULL;
    }
    work->plans = planned && work->run->plan == NULL;
    work->plan = planned ? work->run->plan : NULL;
}

/* Returns the size for which the run's split is chosen. */
static fig_run_size size_of(const run_work *work) {
    const int32_t limit = work->runner->program->spec.kv_limit;
    const int32_t given = (int32_t)work->run->kv_length;
    const int32_t least = reads_lengths(work) ? limit : 1; /* used if kv_length is 0 */
    return (fig_run_size){work->run->rows, given > 0 ? given : least, work->run->scratch_bytes,
                          work->bound.size.queries};
}

/* Checks the size of the caller's plan, if there is one. Such a plan was made for the largest
 * scratch. */
static fig_status check_plan(const run_work *work) {
    if (work->plans || work->plan == NULL || work->run->plan_bytes >= work->shape.plan_bytes)
        return FIG_OK;
    return fig_fail(FIG_INVALID, "run: plan_bytes is %" PRIu64 ", this run's plan has %" PRIu64,
                    work->run->plan_bytes, work->shape.plan_bytes);
}

/* Checks the caller's scratch and assigns its parts, if this run needs scratch. */
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
        return fig_fail(FIG_INVALID, "run: scratch is %p and plan %p, they must be multiples of %d",
                        (void *)work->scratch, work->run->plan, PIECE_BYTES);
    if (work->plans) work->plan = work->scratch;
    work->bound.temps = work->scratch + work->shape.temps;
    return FIG_OK;
}

/* Finds how many tokens the tensors hold. If the run plans from lengths on the device, a row that
 * is too long becomes idle; otherwise the tensors must hold every length. */
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
        if (!fig_program_view_makes_plan(&program->nodes[n]))
            FIG_TRY(fig_run_tensors_check(&work->bound, &program->nodes[n]));
    return FIG_OK;
}

/* The rows of a tensor and the blocks of a grid must fit 31 bits. If several blocks share a row,
 * each block computes at least 256 elements of the row in one of two tensors, so a row has at most
 * elements / 128 blocks. */
static fig_status check_rows(const run_work *work) {
    const fig_program_view *program = work->runner->program;
    int64_t most = 1;
    for (uint32_t id = 1; id <= program->tensor_count; id++) {
        const fig_tensor_record *record = &program->tensors[id - 1];
        if (!fig_program_view_has_rows(record)) continue;
        const int64_t numbers = record->dims[1] * record->dims[2] * record->dims[3];
        const int64_t row_tokens =
            record->symbol == FIG_SYMBOL_QUERIES ? program->spec.row_tokens : 1;
        const int64_t blocks = row_tokens * record->dims[0] * (1 + numbers / 128);
        if (blocks > most) most = blocks;
    }
    if (work->run->rows <= INT32_MAX / most) return FIG_OK;
    return fig_fail(FIG_TOO_LARGE,
                    "run: rows is %" PRId32 ", limit %" PRId64 " for rows of this width",
                    work->run->rows, INT32_MAX / most);
}

/* Finds the rows and query tokens of the run. Where only the host knows the query tokens, each row
 * has row_tokens, and the tensors must have as many. */
static fig_status take_size(run_work *work) {
    const fig_run *run = work->run;
    const fig_program_view *program = work->runner->program;
    const int64_t all = (int64_t)run->rows * program->spec.row_tokens;
    fig_run_size *size = &work->bound.size;
    FIG_TRY(fig_run_shape_queries(program, run, &size->queries));
    size->rows = run->rows;
    if (program->spec.query_limit == 0 || size->queries >= all ||
        fig_program_view_query_starts(program) != 0)
        return FIG_OK;
    return fig_fail(FIG_INVALID,
                    "run: query_tokens is %" PRId32 ", %" PRId32 " rows of %" PRId32
                    " tokens have %" PRId64,
                    size->queries, run->rows, program->spec.row_tokens, all);
}

/* ---- Public ---------------------------------------------------------------------------------- */

static fig_status begin(run_work *work, const fig_runner *runner, const fig_run *run) {
    *work = (run_work){.runner = runner, .run = run};
    work->bound = (fig_run_bound){.tensors = &runner->tensors, .run = run};
    FIG_TRY(check_numbers(run, &runner->program->spec));
    FIG_TRY(take_size(work));
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

/* Calls `launches` between the begin() and end() of the device. */
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
    return launch_planner(work, scratch, scratch != NULL ? work->shape.zeros_end : 0);
}

static fig_status run_plan(run_work *work) {
    const fig_runner *runner = work->runner;
    if (work->plan == NULL && !work->plans)
        return fig_fail(FIG_ORDER, "plan: no node of the run reads a plan");
    if (work->plan == NULL || (uintptr_t)work->plan % PIECE_BYTES != 0 ||
        (uintptr_t)work->run->scratch % PIECE_BYTES != 0)
        return fig_fail(FIG_INVALID,
                        "plan: plan is %p and scratch %p, they must be multiples of %d",
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
