/* launch.c: fills a launch's params from the kernel table.
 *
 * A field's kind tells where its value comes from, so operations need no code here. Invariant: each
 * field is filled at its own width, once for all buckets or once for each bucket. All other bytes
 * stay zero. */
#include "graphs/lower/launch.h"

#include <string.h>

#include "graphs/view/score_units.h"
#include "planner/scores/mask_lines.h"
#include "planner/spec/frequencies.h"

typedef struct filling {
    const fig_launch_source *source;
    const fig_node *node; /* NULL: the fetch */
    const fig_launch *launch;
    uint8_t *params;   /* this launch's params */
    fig_reloc *relocs; /* [reloc_count] the filled relocations of this launch */
    uint32_t reloc_count, early_reads;
} filling;

/* ---- Reading a node on behalf of a launch */

static const fig_reads *reads_of(const fig_node *node, uint32_t op) {
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    return op == node->op || kernel->then == 0 ? &kernel->own : &kernel->rest;
}

uint32_t fig_launch_operand(const fig_program_view *view, const fig_node *node, uint32_t op,
                            uint32_t operand) {
    const fig_reads *reads = reads_of(node, op);
    if (reads->operands == NULL) return fig_program_view_operand(view, node, operand);
    if (operand >= reads->operand_count || reads->operands[operand] == 0) return 0;
    return fig_program_view_operand(view, node, reads->operands[operand] - 1u);
}

int32_t fig_launch_page_tokens(const fig_program_view *view, const fig_node *node,
                               uint32_t *table) {
    const fig_kernel *kernel = &fig_kernel_table[node->op];
    int32_t all = 0, count = 0;
    *table = 0;
    for (uint32_t i = 0; i < kernel->operand_count; i++)
        if (strcmp(kernel->operands[i].name, "page_table") == 0)
            *table = fig_program_view_operand(view, node, i);
    for (uint32_t i = 0; *table != 0 && i < kernel->field_count; i++) {
        if (kernel->fields[i].kind != FIG_FIELD_EXTENT) continue;
        const uint32_t id = fig_launch_operand(view, node, node->op, kernel->fields[i].operand);
        const int32_t tokens = (int32_t)view->tensors[id - 1].dims[1];
        all = count++ == 0 || all == tokens ? tokens : 0;
    }
    if (count == 0) *table = 0;
    return all;
}

int fig_launch_attribute(const fig_program_view *view, const fig_node *node, uint32_t op,
                         uint32_t offset, void *to, size_t bytes) {
    const fig_reads *reads = reads_of(node, op);
    uint32_t from = offset;
    int found = reads->attributes == NULL;
    for (uint32_t i = 0; i < reads->range_count && !found; i++) {
        const fig_attribute_range *range = &reads->attributes[i];
        found = offset >= range->to && offset + bytes <= (size_t)range->to + range->bytes;
        if (found) from = range->from + (offset - range->to);
    }
    memset(to, 0, bytes);
    if (found) fig_program_view_attributes(view, node, from, to, bytes);
    return found;
}

fig_rope_table fig_launch_rope_table(const fig_program_view *view, const fig_node *node,
                                     uint32_t op, uint32_t offset) {
    fig_rope_table table;
    fig_launch_attribute(view, node, op, fig_table_rope_table(offset), &table, sizeof table);
    return table;
}

/* ---- Fields */

static void put_bytes(filling *f, const fig_field *field, const void *bytes, size_t count) {
    assert(count == field->bytes);
    memcpy(f->params + field->offset, bytes, count);
}

static void put_number(filling *f, const fig_field *field, int64_t number) {
    const uint32_t word = (uint32_t)number;
    assert(number >= 0 && number <= UINT32_MAX);
    put_bytes(f, field, &word, sizeof word);
}

uint32_t fig_launch_reloc_bytes(uint32_t kind) {
    switch (kind) {
    case FIG_RELOC_RING_SLOTS:
    case FIG_RELOC_RING_BYTES:
    case FIG_RELOC_RANKS:
    case FIG_RELOC_ROUTES: return sizeof(uint32_t);
    default: return sizeof(uint64_t);
    }
}

static void put_reloc(filling *f, const fig_field *field, fig_reloc reloc) {
    assert(field->bytes == fig_launch_reloc_bytes(reloc.kind));
    reloc.offset = f->launch->params + field->offset;
    f->relocs[f->reloc_count++] = reloc;
}

static void put_symbol(filling *f, const fig_field *field, fig_reloc_kind kind) {
    put_reloc(f, field, (fig_reloc){.kind = (uint16_t)kind});
}

/* Returns the id of the field's tensor, or 0 if the tensor is absent. */
static uint32_t operand_of(const filling *f, const fig_field *field) {
    return fig_launch_operand(f->source->view, f->node, f->launch->op, field->operand);
}

/* Adds a relocation that fills in a tensor's value at bind. The value of an absent tensor stays
 * zero. */
static void put_tensor_reloc(filling *f, const fig_field *field, fig_reloc_kind kind) {
    const uint32_t id = operand_of(f, field);
    if (id == 0) return;
    put_reloc(f, field, (fig_reloc){.kind = (uint16_t)kind, .item = field->item, .symbol = id});
}

static void put_dim(filling *f, const fig_field *field) {
    const uint32_t id = operand_of(f, field);
    if (id == 0) return;
    const fig_tensor_record *tensor = &f->source->view->tensors[id - 1];
    assert(field->item > 0 || tensor->symbol == FIG_SYMBOL_NONE);
    put_number(f, field, tensor->dims[field->item] / field->divisor);
}

/* Fills in the number of rows that the tensor has in the bucket: the tensor's multiple times the
 * batch, or times the bucket's largest number of query tokens. */
static void put_rows(filling *f, const fig_field *field) {
    const fig_tensor_record *tensor = &f->source->view->tensors[operand_of(f, field) - 1];
    const fig_bucket_shape *shape = f->source->shape;
    assert(fig_program_view_has_rows(tensor));
    const int32_t count =
        tensor->symbol == FIG_SYMBOL_QUERIES ? fig_bucket_query_limit(shape) : shape->caps.batch;
    put_number(f, field, fig_program_view_extent(tensor, count));
}

/* If the tensor's rows are query tokens, fills in the offset of the plan's section of query tokens,
 * which is 0 in buckets of ones. */
static void put_queries(filling *f, const fig_field *field) {
    const fig_tensor_record *tensor = &f->source->view->tensors[operand_of(f, field) - 1];
    if (tensor->symbol == FIG_SYMBOL_QUERIES)
        put_number(f, field, f->source->shape->plan.layout.queries);
}

static void put_is_packed(filling *f, const fig_field *field) {
    const fig_tensor_record *tensor = &f->source->view->tensors[operand_of(f, field) - 1];
    put_number(f, field, tensor->symbol == FIG_SYMBOL_QUERIES ? FIG_ATTENTION_PACKED : 0);
}

/* In buckets of singles and of ones, replaces what the other buckets have. */
static void put_form(filling *f, const fig_field *field) {
    const fig_tensor_record *tensor = &f->source->view->tensors[operand_of(f, field) - 1];
    const fig_bucket_form form = f->source->shape->form;
    if (tensor->symbol != FIG_SYMBOL_QUERIES) return;
    if (form == FIG_FORM_SINGLES) put_number(f, field, FIG_ATTENTION_SINGLES);
    if (form == FIG_FORM_ONES) put_number(f, field, 0);
}

/* In buckets of ones and of drafts there is no launch for chunks beside attention. */
static void put_early_reads(filling *f, const fig_field *field) {
    uint32_t flags = f->early_reads;
    if (!fig_bucket_may_have_strips(f->source->shape->form))
        flags &= ~(uint32_t)FIG_ATTENTION_APART;
    put_number(f, field, flags);
}

static void put_multiple(filling *f, const fig_field *field) {
    const fig_tensor_record *tensor = &f->source->view->tensors[operand_of(f, field) - 1];
    assert(fig_program_view_has_rows(tensor));
    put_number(f, field, tensor->dims[0]);
}

static void put_dtype(filling *f, const fig_field *field) {
    const uint32_t id = operand_of(f, field);
    if (id != 0) put_number(f, field, f->source->view->tensors[id - 1].dtype);
}

static void put_attribute(filling *f, const fig_field *field) {
    uint8_t *to = f->params + field->offset;
    fig_launch_attribute(f->source->view, f->node, f->launch->op, field->item, to, field->bytes);
}

static const fig_rope_angles *angles_of_terms(fig_launch_memo *memo, const fig_rope_terms *terms) {
    fig_rope_spec rope = {0};
    int32_t at = 0;
    while (at < memo->count && memcmp(&memo->terms[at], terms, sizeof *terms) != 0)
        at++;
    if (at < memo->count) return &memo->angles[at];
    memo->is_full = at == FIG_LAUNCH_ROPE_LIMIT;
    if (memo->is_full) return &memo->angles[0];
    memcpy(&rope, terms, sizeof *terms);
    memo->terms[at] = *terms;
    memo->angles[at] = (fig_rope_angles){.table = fig_frequencies_of(&rope)};
    memo->count++;
    return &memo->angles[at];
}

static_assert(offsetof(fig_rope_angles, table) == 0, "a field may hold the table alone");
/* Fills in the RoPE angles. A node that applies no RoPE, such as plain attention, has no angles. */
static void put_angles(filling *f, const fig_field *field) {
    const fig_program_view *view = f->source->view;
    const uint32_t op = f->launch->op;
    fig_rope_terms terms;
    if (!fig_launch_attribute(view, f->node, op, field->item, &terms, sizeof terms)) return;
    const fig_rope_angles angles = {.table = fig_launch_rope_table(view, f->node, op, field->item)};
    if (fig_frequencies_has_table(&angles.table)) {
        put_bytes(f, field, &angles, field->bytes);
    } else {
        put_bytes(f, field, angles_of_terms(f->source->memo, &terms), field->bytes);
    }
}

static void put_score(filling *f, const fig_field *field) {
    const fig_program_view *view = f->source->view;
    uint32_t number;
    fig_score_code code, ranges;
    fig_launch_attribute(view, f->node, f->launch->op, field->item, &number, sizeof number);
    fig_score_units_code(view, number, &code);
    code.line = fig_mask_lines_ranges(&code, &ranges);
    put_bytes(f, field, &code, sizeof code);
}

/* Returns the offset of the tails of the launch's class, or 0 if it never has any. */
static uint32_t tails_of(const filling *f) {
    const fig_bucket_shape *shape = f->source->shape;
    const uint32_t split_class = f->launch->split_class;
    if (!shape->paces[split_class].serves_tails || !shape->strips[split_class].shares) return 0;
    return fig_plan_strips_place(&shape->plan) + FIG_PLAN_STRIPS_HEAD;
}

static void put_plan_section(filling *f, const fig_field *field) {
    const fig_plan_layout *layout = &f->source->shape->plan.layout;
    const uint32_t split_class = f->launch->split_class;
    switch ((fig_plan_section)field->item) {
    case FIG_PLAN_LENGTHS: put_number(f, field, layout->lengths); return;
    case FIG_PLAN_POSITIONS: put_number(f, field, layout->positions); return;
    case FIG_PLAN_SEQUENCES: put_number(f, field, layout->sequences); return;
    case FIG_PLAN_TOKENS: put_number(f, field, layout->tokens); return;
    case FIG_PLAN_PREFIX: put_number(f, field, layout->prefix[split_class]); return;
    case FIG_PLAN_STARTS: put_number(f, field, layout->starts[split_class]); return;
    case FIG_PLAN_STRIPS:
        put_number(f, field, fig_plan_strips_place(&f->source->shape->plan));
        return;
    case FIG_PLAN_TAILS: put_number(f, field, tails_of(f)); return;
    }
    assert(0 && "a section of the plan");
}

static uint64_t workspace_offset(const filling *f, const fig_field *field) {
    const fig_workspace *workspace = f->source->workspace;
    const uint32_t split_class = f->launch->split_class;
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

static void put_workspace(filling *f, const fig_field *field) {
    if (fig_table_is_of_strips(field->item) && !f->source->classes->has_chunks) return;
    put_reloc(f, field,
              (fig_reloc){.kind = FIG_RELOC_WORKSPACE, .addend = workspace_offset(f, field)});
}

static void put_split(filling *f, const fig_field *field) {
    fig_split_shape split = f->source->shape->plan.splits[f->launch->split_class];
    split.tile_limit = 0;
    put_bytes(f, field, &split, sizeof split);
}

static void put_plan_shape(filling *f, const fig_field *field) {
    fig_plan_shape plan = f->source->shape->plan;
    for (int32_t i = 0; i < plan.class_count; i++)
        plan.splits[i].tile_limit = 0;
    put_bytes(f, field, &plan, sizeof plan);
}

static void put_strips_shapes(filling *f, const fig_field *field) {
    put_bytes(f, field, f->source->shape->strips, sizeof f->source->shape->strips);
}

static void put_heads(filling *f, const fig_field *field) {
    put_number(f, field, f->source->shape->variants[f->launch->split_class].heads);
}

static void put_stages(filling *f, const fig_field *field) {
    put_number(f, field, f->source->shape->variants[f->launch->split_class].stages);
}

static void put_is_short(filling *f, const fig_field *field) {
    put_number(f, field, f->source->shape->is_short[f->launch->split_class]);
}

static void put_strips(filling *f, const fig_field *field) {
    const uint32_t split_class = f->launch->split_class;
    const fig_strips_shape *strips = &f->source->shape->strips[split_class];
    switch ((fig_strips_number)field->item) {
    case FIG_STRIPS_WORKERS: put_number(f, field, strips->workers); return;
    case FIG_STRIPS_RATIO: put_number(f, field, strips->ratio); return;
    case FIG_STRIPS_HALF_QUERIES: put_number(f, field, fig_strips_half(strips->ratio)); return;
    case FIG_STRIPS_TILE_TOKENS: put_number(f, field, strips->tile_tokens); return;
    case FIG_STRIPS_CLASS: put_number(f, field, split_class); return;
    }
    assert(0 && "a number of the strips");
}

/* Fills a field that is the same in every bucket. put_of_bucket() fills the other fields. */
static void put_common(filling *f, const fig_field *field) {
    switch ((fig_field_kind)field->kind) {
    case FIG_FIELD_ZERO:
    case FIG_FIELD_TENSOR_MAP:
    case FIG_FIELD_RUN: return;
    case FIG_FIELD_EARLY_READS:
    case FIG_FIELD_ROWS:
    case FIG_FIELD_QUERIES:
    case FIG_FIELD_PLAN_SHAPE:
    case FIG_FIELD_PLAN_SECTION:
    case FIG_FIELD_SPLIT:
    case FIG_FIELD_HEADS:
    case FIG_FIELD_STRIPS:
    case FIG_FIELD_STRIPS_SHAPES:
    case FIG_FIELD_IS_SHORT:
    case FIG_FIELD_STAGES: return; /* put_of_bucket() fills these */
    case FIG_FIELD_ADDRESS: put_tensor_reloc(f, field, FIG_RELOC_ADDRESS); return;
    case FIG_FIELD_STRIDE: put_tensor_reloc(f, field, FIG_RELOC_STRIDE); return;
    case FIG_FIELD_EXTENT: put_tensor_reloc(f, field, FIG_RELOC_EXTENT); return;
    case FIG_FIELD_DIM:
    case FIG_FIELD_PAGE_TOKENS: put_dim(f, field); return;
    case FIG_FIELD_DTYPE: put_dtype(f, field); return;
    case FIG_FIELD_ATTRIBUTE: put_attribute(f, field); return;
    case FIG_FIELD_ANGLES: put_angles(f, field); return;
    case FIG_FIELD_SCORE: put_score(f, field); return;
    case FIG_FIELD_MULTIPLE: put_multiple(f, field); return;
    case FIG_FIELD_IS_PACKED: put_is_packed(f, field); return;
    case FIG_FIELD_KV_LIMIT: put_number(f, field, f->source->view->spec.kv_limit); return;
    case FIG_FIELD_PLAN: put_symbol(f, field, FIG_RELOC_PLAN); return;
    case FIG_FIELD_WORKSPACE: put_workspace(f, field); return;
    case FIG_FIELD_RING: put_symbol(f, field, FIG_RELOC_RING); return;
    case FIG_FIELD_RING_STATE: put_symbol(f, field, FIG_RELOC_RING_STATE); return;
    case FIG_FIELD_RING_WORDS: put_symbol(f, field, FIG_RELOC_RING_WORDS); return;
    case FIG_FIELD_RING_SLOTS: put_symbol(f, field, FIG_RELOC_RING_SLOTS); return;
    case FIG_FIELD_RING_BYTES: put_symbol(f, field, FIG_RELOC_RING_BYTES); return;
    case FIG_FIELD_PEERS: put_symbol(f, field, FIG_RELOC_PEERS); return;
    case FIG_FIELD_RANKS: put_symbol(f, field, FIG_RELOC_RANKS); return;
    case FIG_FIELD_ROUTES: put_symbol(f, field, FIG_RELOC_ROUTES); return;
    case FIG_FIELD_NODE: put_number(f, field, f->launch->node); return;
    }
    assert(0 && "a kind of field");
}

/* Fills a field that depends on the bucket. This function runs for each field of each launch of
 * each bucket, so it dominates the time to load a file. */
static void put_of_bucket(filling *f, const fig_field *field) {
    switch (field->kind) {
    case FIG_FIELD_IS_PACKED: put_form(f, field); return;
    case FIG_FIELD_EARLY_READS: put_early_reads(f, field); return;
    case FIG_FIELD_ROWS: put_rows(f, field); return;
    case FIG_FIELD_QUERIES: put_queries(f, field); return;
    case FIG_FIELD_PLAN_SHAPE: put_plan_shape(f, field); return;
    case FIG_FIELD_PLAN_SECTION: put_plan_section(f, field); return;
    case FIG_FIELD_SPLIT: put_split(f, field); return;
    case FIG_FIELD_HEADS: put_heads(f, field); return;
    case FIG_FIELD_STAGES: put_stages(f, field); return;
    case FIG_FIELD_IS_SHORT: put_is_short(f, field); return;
    case FIG_FIELD_STRIPS: put_strips(f, field); return;
    case FIG_FIELD_STRIPS_SHAPES: put_strips_shapes(f, field); return;
    }
}

static filling filling_of(const fig_launch_source *source, const fig_launch *launch,
                          uint8_t *params) {
    filling f = {.source = source, .launch = launch, .params = params};
    if (launch->node_count > 0) f.node = &source->view->nodes[launch->node];
    return f;
}

void fig_launch_fill(fig_launch *launch, const fig_launch_source *source, uint8_t *params,
                     fig_reloc *relocs) {
    const fig_kernel *kernel = &fig_kernel_table[launch->op];
    filling f = filling_of(source, launch, params);
    f.relocs = relocs;
    for (uint32_t i = 0; i < kernel->field_count; i++)
        put_common(&f, &kernel->fields[i]);
    launch->reloc_count = f.reloc_count;
}

void fig_launch_fill_bucket(const fig_launch *launch, const fig_launch_source *source,
                            uint32_t early_reads, uint8_t *params) {
    const fig_kernel *kernel = &fig_kernel_table[launch->op];
    filling f = filling_of(source, launch, params);
    f.early_reads = early_reads;
    for (uint32_t i = 0; i < kernel->field_count; i++)
        put_of_bucket(&f, &kernel->fields[i]);
}
