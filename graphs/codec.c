/* codec.c: graphs to bytes and back.
 *
 * Owns what each section of a file means; leaves their place and hashes to sections.c and the check
 * of a program to fig_program_restore(). Invariant: what is read back is built by the calls that
 * recording and lowering use, so a file cannot hold what they refuse. */
#include "graphs/codec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/hash.h"
#include "planner/spec.h"
#include "planner/status.h"

/* ---- What both directions share: the kernels of a program */

static void hash_number(fig_hash_sha256 *hash, uint64_t number) {
    fig_hash_sha256_add(hash, &number, sizeof number);
}

static void hash_text(fig_hash_sha256 *hash, const char *text) {
    fig_hash_sha256_add(hash, text, strlen(text) + 1);
}

/* All that decides how lowering fills the kernel's params and how the kernel reads them. */
static void hash_kernel(const fig_kernel *kernel, uint8_t abi[32]) {
    fig_hash_sha256 hash;
    fig_hash_sha256_init(&hash);
    hash_text(&hash, kernel->name);
    hash_number(&hash, kernel->params_bytes);
    hash_number(&hash, kernel->attribute_bytes);
    hash_number(&hash, kernel->split);
    hash_number(&hash, kernel->operand_count);
    for (uint32_t i = 0; i < kernel->operand_count; i++) {
        hash_text(&hash, kernel->operands[i].name);
        hash_number(&hash, kernel->operands[i].access);
        hash_number(&hash, kernel->operands[i].optional);
    }
    hash_number(&hash, kernel->field_count);
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        const fig_field *field = &kernel->fields[i];
        hash_text(&hash, field->name);
        hash_number(&hash, field->offset);
        hash_number(&hash, field->bytes);
        hash_number(&hash, field->kind);
        hash_number(&hash, field->type);
        hash_number(&hash, field->operand);
        hash_number(&hash, field->item);
        hash_number(&hash, field->divisor);
    }
    fig_hash_sha256_finish(&hash, abi);
}

/* Bit op: the fetch, and what the program's nodes are. */
static uint32_t used_kernels(const fig_program_view *view) {
    uint32_t used = UINT32_C(1) << FIG_OP_FETCH;
    for (uint32_t i = 0; i < view->node_count; i++) {
        if (view->nodes[i].op < FIG_OP_KERNEL_COUNT) used |= UINT32_C(1) << view->nodes[i].op;
    }
    return used;
}

fig_graphs_maker fig_codec_maker(const fig_program_view *view) {
    fig_graphs_maker maker;
    const uint32_t used = used_kernels(view);
    memset(&maker, 0, sizeof maker);
    maker.version = FIG_VERSION;
    maker.spec_bytes = sizeof(fig_spec);
    for (uint32_t op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        if (!(used >> op & 1)) continue;
        maker.kernels[op].params_bytes = fig_kernel_table[op].params_bytes;
        hash_kernel(&fig_kernel_table[op], maker.kernels[op].abi);
    }
    return maker;
}

/* The program's kernels by op, as the maker had them. Returns how many. */
static uint32_t list_kernels(const fig_program_view *view, const fig_graphs_maker *maker,
                             fig_file_kernel kernels[FIG_OP_KERNEL_COUNT]) {
    const uint32_t used = used_kernels(view);
    uint32_t count = 0;
    memset(kernels, 0, FIG_OP_KERNEL_COUNT * sizeof *kernels);
    for (uint32_t op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        if (!(used >> op & 1)) continue;
        fig_file_kernel *kernel = &kernels[count++];
        const size_t length = strlen(fig_kernel_table[op].name);
        assert(length < sizeof kernel->name);
        kernel->op = op;
        kernel->params_bytes = maker->kernels[op].params_bytes;
        memcpy(kernel->name, fig_kernel_table[op].name, length);
        memcpy(kernel->abi, maker->kernels[op].abi, sizeof kernel->abi);
    }
    return count;
}

/* ---- Writing */

/* The sections of some graphs: the program's own arrays, and what is built here. */
typedef struct contents {
    fig_sections sections;
    fig_file_machine machine;
    uint8_t spec[FIG_FILE_SPEC_LIMIT];
    fig_file_kernel kernels[FIG_OP_KERNEL_COUNT];
    fig_file_bucket *buckets; /* [bucket_count] */
} contents;

static void put(contents *c, fig_section s, const void *raw, uint32_t item_count) {
    c->sections.raw[s] = raw;
    c->sections.item_count[s] = item_count;
}

static void put_machine(contents *c, const fig_lower_target *target) {
    const fig_traits *traits = &target->traits;
    memcpy(c->machine.name, traits->name, strnlen(traits->name, sizeof traits->name));
    c->machine.compute_capability = traits->compute_capability;
    c->machine.sm_count = traits->sm_count;
    c->machine.shared_bytes = traits->shared_bytes;
    c->machine.deterministic = target->deterministic;
    put(c, FIG_SECTION_ENVR, &c->machine, 1);
}

/* As long as the maker's: what it did not know is all default, what we do not know is zero. */
static void put_spec(contents *c, const fig_spec *spec, uint32_t bytes) {
    assert(bytes >= sizeof bytes && bytes <= sizeof c->spec);
    memcpy(c->spec, spec, bytes < sizeof *spec ? bytes : sizeof *spec);
    memcpy(c->spec, &bytes, sizeof bytes);
    put(c, FIG_SECTION_SPEC, c->spec, bytes);
}

static void put_buckets(contents *c, const fig_graphs *graphs) {
    for (uint32_t i = 0; i < graphs->bucket_count; i++) {
        const fig_bucket_shape *shape = &graphs->buckets[i];
        c->buckets[i] = (fig_file_bucket){
            .batch = shape->caps.batch,
            .kv = shape->caps.kv,
            .variant = (uint32_t)shape->variant,
        };
    }
    put(c, FIG_SECTION_BUCK, c->buckets, graphs->bucket_count);
}

static fig_status contents_init(contents *c, const fig_graphs *graphs) {
    const fig_program_view *view = fig_program_view_of(graphs->program);
    memset(c, 0, sizeof *c);
    c->buckets = calloc(graphs->bucket_count, sizeof *c->buckets);
    if (c->buckets == NULL)
        return fig_fail(FIG_NOMEM, "codec: %" PRIu32 " buckets", graphs->bucket_count);
    c->sections.maker = graphs->maker.version;
    put_machine(c, &graphs->target);
    put_spec(c, &view->spec, graphs->maker.spec_bytes);
    put(c, FIG_SECTION_STRS, view->strings, view->string_bytes);
    put(c, FIG_SECTION_TENS, view->tensors, view->tensor_count);
    put(c, FIG_SECTION_NODE, view->nodes, view->node_count);
    put(c, FIG_SECTION_OPND, view->operands, view->operand_count);
    put(c, FIG_SECTION_ATTR, view->attributes, view->attribute_bytes);
    put_buckets(c, graphs);
    put(c, FIG_SECTION_KERN, c->kernels, list_kernels(view, &graphs->maker, c->kernels));
    put(c, FIG_SECTION_DIGS, graphs->made_digests, graphs->bucket_count);
    put(c, FIG_SECTION_SEGM, view->segments, view->segment_count);
    return FIG_OK;
}

static void contents_finish(contents *c) {
    free(c->buckets);
}

fig_status fig_codec_write(const fig_graphs *graphs, uint8_t **bytes, size_t *count) {
    contents c;
    *bytes = NULL;
    *count = 0;
    FIG_TRY(contents_init(&c, graphs));
    fig_status status = fig_sections_write(&c.sections, bytes, count);
    contents_finish(&c);
    return status;
}

fig_status fig_codec_content_id(const fig_graphs *graphs, uint8_t content_id[32]) {
    contents c;
    memset(content_id, 0, 32);
    FIG_TRY(contents_init(&c, graphs));
    fig_sections_hash(&c.sections, content_id);
    contents_finish(&c);
    return FIG_OK;
}

/* ---- Reading */

/* What the sections become on the way to graphs. */
typedef struct parts {
    fig_lower_target target;
    fig_spec spec;
    fig_program *program;
    fig_bucket_shape *buckets; /* [item_count of BUCK] */
    fig_graphs_maker maker;
    uint32_t changed_kernels; /* bit op: its row in the maker's table was another */
} parts;

/* What another room refused is a damaged file, or one of a library that knows more; the sentence
 * stays that room's. */
static fig_status refused(const char *where, fig_status status) {
    if (status == FIG_OK || status == FIG_NOMEM) return status;
    return fig_fail(status == FIG_UNSUPPORTED ? FIG_STALE : FIG_FORMAT, "%s%s", where,
                    fig_message());
}

/* A name is followed by zeros, so that one machine has one form. */
static fig_status check_name_end(const fig_file_machine *machine) {
    for (size_t i = strnlen(machine->name, sizeof machine->name); i < sizeof machine->name; i++) {
        if (machine->name[i] != '\0')
            return fig_fail(FIG_FORMAT, "section ENVR: name is not followed by zeros");
    }
    return FIG_OK;
}

static fig_status read_machine(const fig_sections *sections, fig_lower_target *target) {
    const fig_file_machine *machine = sections->raw[FIG_SECTION_ENVR];
    fig_traits *traits = &target->traits;
    if (machine->deterministic != 0 && machine->deterministic != 1)
        return fig_fail(FIG_FORMAT, "section ENVR: deterministic is %" PRId32 ", it must be 0 or 1",
                        machine->deterministic);
    target->deterministic = machine->deterministic;
    *traits = (fig_traits){.size = sizeof *traits,
                           .compute_capability = machine->compute_capability,
                           .sm_count = machine->sm_count,
                           .shared_bytes = machine->shared_bytes};
    memcpy(traits->name, machine->name, sizeof traits->name);
    FIG_TRY(refused("section ENVR: ", fig_traits_check(traits)));
    return check_name_end(machine);
}

/* A spec that is shorter than ours has zeros, "default", for what its maker did not know; what it
 * did know stays as it is, or the same graphs would mean something else once saved. */
static fig_status read_spec(const fig_sections *sections, fig_spec *spec) {
    const uint8_t *raw = sections->raw[FIG_SECTION_SPEC], *resolved = (const uint8_t *)spec;
    const uint32_t raw_bytes = sections->item_count[FIG_SECTION_SPEC];
    uint32_t size;
    memcpy(&size, raw, sizeof size);
    if (size != raw_bytes)
        return fig_fail(FIG_FORMAT,
                        "section SPEC: size is %" PRIu32 ", the section has %" PRIu32 " bytes",
                        size, raw_bytes);
    for (size_t i = sizeof *spec; i < raw_bytes; i++) {
        if (raw[i] != 0)
            return fig_fail(FIG_STALE,
                            "section SPEC: byte %zu is set, this library knows %zu bytes; the file "
                            "was made by version %" PRIu32 ", this library is %d",
                            i, sizeof *spec, sections->maker, FIG_VERSION);
    }
    FIG_TRY(refused("section SPEC: ", fig_spec_resolve(sections->raw[FIG_SECTION_SPEC], spec)));
    for (size_t i = sizeof size; i < sizeof *spec && i < raw_bytes; i++) {
        if (raw[i] != resolved[i])
            return fig_fail(FIG_FORMAT,
                            "section SPEC: byte %zu is of a default that is not filled in", i);
    }
    return FIG_OK;
}

/* Caps and order are for fig_graphs_assemble() to check; a variant of a later library is not. */
static fig_status check_bucket(const fig_file_bucket *bucket, uint32_t i) {
    if (bucket->variant >= FIG_VARIANT_COUNT)
        return fig_fail(FIG_STALE,
                        "section BUCK: bucket %" PRIu32 ": variant is %" PRIu32
                        ", this library has %d",
                        i, bucket->variant, FIG_VARIANT_COUNT);
    return FIG_OK;
}

static fig_status read_buckets(const fig_sections *sections, parts *p) {
    const fig_file_bucket *buckets = sections->raw[FIG_SECTION_BUCK];
    const uint32_t count = sections->item_count[FIG_SECTION_BUCK];
    p->buckets = calloc(count, sizeof *p->buckets);
    if (p->buckets == NULL) return fig_fail(FIG_NOMEM, "section BUCK: %" PRIu32 " buckets", count);
    if (sections->item_count[FIG_SECTION_DIGS] != count)
        return fig_fail(FIG_FORMAT, "section DIGS: %" PRIu32 " digests for %" PRIu32 " buckets",
                        sections->item_count[FIG_SECTION_DIGS], count);
    for (uint32_t i = 0; i < count; i++) {
        FIG_TRY(check_bucket(&buckets[i], i));
        p->buckets[i].caps = (fig_bucket){buckets[i].batch, buckets[i].kv};
        p->buckets[i].variant = (int32_t)buckets[i].variant;
    }
    return FIG_OK;
}

/* Before the program is read: an operation that this library lacks is age, not damage. */
static fig_status check_operations(const fig_sections *sections) {
    const fig_file_kernel *kernels = sections->raw[FIG_SECTION_KERN];
    for (uint32_t i = 0; i < sections->item_count[FIG_SECTION_KERN]; i++) {
        const fig_file_kernel *kernel = &kernels[i];
        const char *known = NULL;
        if (kernel->op < FIG_OP_KERNEL_COUNT) known = fig_kernel_table[kernel->op].name;
        if (known == NULL || strncmp(kernel->name, known, sizeof kernel->name) != 0)
            return fig_fail(FIG_STALE,
                            "section KERN: operation %" PRIu32 " is \"%.*s\", which this library "
                            "lacks; the file was made by version %" PRIu32 ", this library is %d",
                            kernel->op, (int)sizeof kernel->name, kernel->name, sections->maker,
                            FIG_VERSION);
    }
    return FIG_OK;
}

static fig_status read_program(const fig_sections *sections, parts *p) {
    const fig_program_view view = {
        .spec = p->spec,
        .tensors = sections->raw[FIG_SECTION_TENS],
        .nodes = sections->raw[FIG_SECTION_NODE],
        .operands = sections->raw[FIG_SECTION_OPND],
        .attributes = sections->raw[FIG_SECTION_ATTR],
        .strings = sections->raw[FIG_SECTION_STRS],
        .segments = sections->raw[FIG_SECTION_SEGM],
        .tensor_count = sections->item_count[FIG_SECTION_TENS],
        .node_count = sections->item_count[FIG_SECTION_NODE],
        .operand_count = sections->item_count[FIG_SECTION_OPND],
        .attribute_bytes = sections->item_count[FIG_SECTION_ATTR],
        .string_bytes = sections->item_count[FIG_SECTION_STRS],
        .segment_count = sections->item_count[FIG_SECTION_SEGM],
    };
    return refused("", fig_program_restore(&p->program, &view));
}

/* The list must be what the program uses; a row of the table that has changed since is noted. */
static fig_status read_kernels(const fig_sections *sections, parts *p) {
    fig_file_kernel ours[FIG_OP_KERNEL_COUNT];
    const fig_file_kernel *theirs = sections->raw[FIG_SECTION_KERN];
    const uint32_t their_count = sections->item_count[FIG_SECTION_KERN];
    const fig_program_view *view = fig_program_view_of(p->program);
    const fig_graphs_maker maker = fig_codec_maker(view);
    const uint32_t count = list_kernels(view, &maker, ours);
    p->maker.version = sections->maker;
    p->maker.spec_bytes = sections->item_count[FIG_SECTION_SPEC];
    if (their_count != count)
        return fig_fail(FIG_FORMAT, "section KERN: %" PRIu32 " kernels, the program uses %" PRIu32,
                        their_count, count);
    for (uint32_t i = 0; i < count; i++) {
        /* The name is that of the op, or check_operations() would have refused it. */
        if (memcmp(theirs[i].name, ours[i].name, sizeof ours[i].name) != 0)
            return fig_fail(FIG_FORMAT,
                            "section KERN: kernel %" PRIu32 " is operation %" PRIu32
                            ", the program uses %" PRIu32 " there",
                            i, theirs[i].op, ours[i].op);
        if (theirs[i].params_bytes != ours[i].params_bytes ||
            memcmp(theirs[i].abi, ours[i].abi, sizeof ours[i].abi) != 0)
            p->changed_kernels |= UINT32_C(1) << ours[i].op;
        p->maker.kernels[ours[i].op].params_bytes = theirs[i].params_bytes;
        memcpy(p->maker.kernels[ours[i].op].abi, theirs[i].abi, sizeof theirs[i].abi);
    }
    return FIG_OK;
}

static fig_status read_parts(const fig_sections *sections, parts *p) {
    FIG_TRY(read_machine(sections, &p->target));
    FIG_TRY(read_spec(sections, &p->spec));
    FIG_TRY(read_buckets(sections, p));
    FIG_TRY(check_operations(sections));
    FIG_TRY(read_program(sections, p));
    return read_kernels(sections, p);
}

static fig_status assemble(const fig_sections *sections, const parts *p, fig_graphs **graphs) {
    const fig_graphs_parts made = {
        .program = p->program,
        .target = &p->target,
        .buckets = p->buckets,
        .bucket_count = sections->item_count[FIG_SECTION_BUCK],
        .maker = &p->maker,
        .made_digests = sections->raw[FIG_SECTION_DIGS],
    };
    FIG_TRY(refused("", fig_graphs_assemble(graphs, &made)));
    (*graphs)->changed_kernels = p->changed_kernels;
    return FIG_OK;
}

fig_status fig_codec_read(fig_graphs **graphs, const uint8_t *bytes, size_t count) {
    fig_sections sections;
    parts p = {0};
    *graphs = NULL;
    FIG_TRY(fig_sections_read(&sections, bytes, count));
    fig_status status = read_parts(&sections, &p);
    if (status == FIG_OK) status = assemble(&sections, &p, graphs);
    fig_program_destroy(p.program);
    free(p.buckets);
    fig_sections_finish(&sections);
    return status;
}
