/* codec.c: turns the parts of graphs into bytes and back.
 *
 * Owns the meaning of each section of a file. sections.c owns their places and hashes,
 * fig_program_restore() checks a program, and graphs.c checks buckets. Invariant: reading builds
 * graphs by the same calls as recording, so a file cannot contain anything that those calls
 * refuse. */
#include "graphs/files/codec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/files/sections.h"
#include "graphs/lower/variants.h"
#include "graphs/record/program.h"
#include "graphs/view/hash.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

enum { WHOSE_BYTES = 512 }; /* more than the names of all operations */

/* ---- Kernels of a program, for writing and reading */

static void hash_number(fig_hash_sha256 *hash, uint64_t number) {
    fig_hash_sha256_add(hash, &number, sizeof number);
}

static void hash_text(fig_hash_sha256 *hash, const char *text) {
    fig_hash_sha256_add(hash, text, strlen(text) + 1);
}

/* Hashes everything that determines how lowering fills the kernel's params and how the kernel reads
 * them. */
static void hash_kernel(const fig_kernel *kernel, uint8_t abi[32]) {
    fig_hash_sha256 hash;
    fig_hash_sha256_init(&hash);
    hash_text(&hash, kernel->name);
    hash_number(&hash, kernel->params_bytes);
    hash_number(&hash, kernel->attribute_bytes);
    hash_number(&hash, kernel->split != NULL);
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

uint32_t fig_codec_kernels_of(const fig_program_view *view) {
    uint32_t used = UINT32_C(1) << FIG_OP_FETCH;
    for (uint32_t i = 0; i < view->node_count; i++) {
        const uint16_t op = view->nodes[i].op;
        if (op >= FIG_OP_KERNEL_COUNT) continue;
        used |= UINT32_C(1) << op;
        if (fig_kernel_table[op].then != 0) used |= UINT32_C(1) << fig_kernel_table[op].then;
        if (fig_kernel_table[op].beside != 0 && fig_program_view_has_chunks(view))
            used |= UINT32_C(1) << fig_kernel_table[op].beside;
    }
    return used;
}

fig_codec_maker fig_codec_maker_of(const fig_program_view *view) {
    fig_codec_maker maker;
    const uint32_t used = fig_codec_kernels_of(view);
    memset(&maker, 0, sizeof maker);
    maker.version = FIG_VERSION;
    for (uint32_t op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        if (!(used >> op & 1)) continue;
        maker.kernels[op].params_bytes = fig_kernel_table[op].params_bytes;
        hash_kernel(&fig_kernel_table[op], maker.kernels[op].abi);
    }
    return maker;
}

/* Lists the program's kernels by op, with the maker's sizes and hashes. Returns their number. */
static uint32_t list_kernels(const fig_program_view *view, const fig_codec_maker *maker,
                             fig_file_kernel kernels[FIG_OP_KERNEL_COUNT]) {
    const uint32_t used = fig_codec_kernels_of(view);
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

static int is_zero(const uint8_t unit[FIG_FILE_SPEC_UNIT]) {
    static const uint8_t zeros[FIG_FILE_SPEC_UNIT];
    return memcmp(unit, zeros, sizeof zeros) == 0;
}

/* ---- Writing */

/* The sections to write: some are the program's own arrays, the others are built here. */
typedef struct contents {
    fig_sections sections;
    fig_file_machine machine;
    uint8_t spec[FIG_FILE_SPEC_LIMIT];
    fig_file_kernel kernels[FIG_OP_KERNEL_COUNT];
    uint8_t *buckets; /* [bucket_count] fig_file_bucket, or only the fields it always has */
    uint8_t *records; /* NULL, or the tuning records without their last fields */
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

/* Writes the spec up to its last unit that is not zero. So if a later library adds a field and
 * leaves it at zero, the file's bytes stay the same. */
static void put_spec(contents *c, const fig_spec *spec) {
    uint32_t bytes = sizeof *spec;
    memcpy(c->spec, spec, sizeof *spec);
    while (bytes > FIG_FILE_SPEC_UNIT && is_zero(c->spec + bytes - FIG_FILE_SPEC_UNIT))
        bytes -= FIG_FILE_SPEC_UNIT;
    memcpy(c->spec, &bytes, sizeof bytes);
    put(c, FIG_SECTION_SPEC, c->spec, bytes);
}

static void put_buckets(contents *c, const fig_codec_parts *parts) {
    uint32_t bytes = FIG_FILE_BUCKET_BYTES_LEAST;
    for (uint32_t i = 0; i < parts->bucket_count; i++)
        if (parts->buckets[i].queries != 0) bytes = sizeof(fig_file_bucket);
    for (uint32_t i = 0; i < parts->bucket_count; i++) {
        const fig_bucket_shape *shape = &parts->buckets[i];
        const fig_file_bucket bucket = {
            .batch = shape->caps.batch,
            .kv = shape->caps.kv,
            .variant = (uint32_t)shape->variant,
            .queries = shape->queries,
        };
        memcpy(c->buckets + (size_t)i * bytes, &bucket, bytes);
    }
    put(c, FIG_SECTION_BUCK, c->buckets, parts->bucket_count);
    c->sections.item_bytes[FIG_SECTION_BUCK] = bytes;
}

/* Adds the sections for notes and images, which are not part of the graphs' meaning. */
static void put_archive(contents *c, const fig_notes *notes, const fig_archive *archive) {
    put(c, FIG_SECTION_META, notes->text, notes->bytes);
    put(c, FIG_SECTION_IMAG, archive->images, archive->image_count);
    put(c, FIG_SECTION_CODE, archive->code, archive->code_bytes);
    c->sections.sealed_bytes[FIG_SECTION_CODE] = archive->stored_bytes;
    put(c, FIG_SECTION_SIMG, archive->compiled.records, archive->compiled.count);
    put(c, FIG_SECTION_SCOD, archive->compiled.code, archive->compiled.code_bytes);
    c->sections.sealed_bytes[FIG_SECTION_SCOD] = archive->compiled.stored_bytes;
}

/* Returns 1 if some record uses a field beyond the first FIG_TUNED_BYTES_LEAST bytes. */
static int is_grown(const fig_tuning *tuning) {
    int32_t last = 0;
    for (uint32_t i = 0; i < tuning->count; i++)
        last |= tuning->records[i].variant.once | tuning->records[i].variant.tile_ns;
    return last != 0;
}

/* Writes all records at the shorter length if no record needs more, otherwise at full length. */
static fig_status put_tuning(contents *c, const fig_tuning *tuning) {
    put(c, FIG_SECTION_VARI, tuning->records, tuning->count);
    if (is_grown(tuning) || tuning->count == 0) return FIG_OK;
    c->records = malloc((size_t)tuning->count * FIG_TUNED_BYTES_LEAST);
    if (c->records == NULL) return fig_fail(FIG_NOMEM, "codec: %" PRIu32 " records", tuning->count);
    for (uint32_t i = 0; i < tuning->count; i++)
        memcpy(c->records + (size_t)i * FIG_TUNED_BYTES_LEAST, &tuning->records[i],
               FIG_TUNED_BYTES_LEAST);
    put(c, FIG_SECTION_VARI, c->records, tuning->count);
    c->sections.item_bytes[FIG_SECTION_VARI] = FIG_TUNED_BYTES_LEAST;
    return FIG_OK;
}

static void contents_finish(contents *c) {
    free(c->buckets);
    free(c->records);
}

static fig_status contents_init(contents *c, const fig_codec_parts *parts) {
    const fig_program_view *view = fig_program_view_of(parts->program);
    memset(c, 0, sizeof *c);
    c->buckets = calloc(parts->bucket_count, sizeof(fig_file_bucket));
    if (c->buckets == NULL)
        return fig_fail(FIG_NOMEM, "codec: %" PRIu32 " buckets", parts->bucket_count);
    c->sections.maker = parts->maker.version;
    put_machine(c, &parts->target);
    put_spec(c, &view->spec);
    put(c, FIG_SECTION_STRS, view->strings, view->string_bytes);
    put(c, FIG_SECTION_TENS, view->tensors, view->tensor_count);
    put(c, FIG_SECTION_NODE, view->nodes, view->node_count);
    put(c, FIG_SECTION_OPND, view->operands, view->operand_count);
    put(c, FIG_SECTION_ATTR, view->attributes, view->attribute_bytes);
    put_buckets(c, parts);
    put(c, FIG_SECTION_KERN, c->kernels, list_kernels(view, &parts->maker, c->kernels));
    put(c, FIG_SECTION_DIGS, parts->made_digests, parts->bucket_count);
    put(c, FIG_SECTION_SEGM, view->segments, view->segment_count);
    put(c, FIG_SECTION_SCOR, view->scores, view->score_units);
    put_archive(c, &parts->notes, &parts->archive);
    const fig_status status = put_tuning(c, &parts->target.tuning);
    if (status != FIG_OK) contents_finish(c);
    return status;
}

fig_status fig_codec_write(const fig_codec_parts *parts, uint8_t **bytes, size_t *count) {
    contents c;
    *bytes = NULL;
    *count = 0;
    FIG_TRY(contents_init(&c, parts));
    fig_status status = fig_sections_write(&c.sections, bytes, count);
    contents_finish(&c);
    return status;
}

fig_status fig_codec_content_id(const fig_codec_parts *parts, uint8_t content_id[32]) {
    contents c;
    memset(content_id, 0, 32);
    FIG_TRY(contents_init(&c, parts));
    fig_sections_hash(&c.sections, content_id);
    contents_finish(&c);
    return FIG_OK;
}

/* ---- Reading */

/* Puts `where`, the place of a refusal, in front of the refusal's message. */
static fig_status within(const char *where, fig_status status) {
    return status == FIG_OK ? FIG_OK : fig_fail(status, "%s%s", where, fig_message());
}

/* The file's hashes match, so the refusal is not due to accidental damage. If the maker is newer,
 * the file is too new for this library; otherwise no recorder could have made the file. */
fig_status fig_codec_judge(uint32_t maker, fig_status status) {
    if (status == FIG_OK || status == FIG_NOMEM || status == FIG_STALE) return status;
    if (status == FIG_UNSUPPORTED || maker > FIG_VERSION) return fig_sections_refuse_age(maker, "");
    return fig_fail(FIG_FORMAT, "%s", fig_message());
}

/* Checks that zeros follow the name, so that each machine has only one representation. */
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
    FIG_TRY(within("section ENVR: ", fig_traits_check(traits)));
    return check_name_end(machine);
}

/* Checks that the section ends with a unit that is not zero. */
static fig_status check_spec_size(const uint8_t *raw, uint32_t raw_bytes, uint32_t maker) {
    uint32_t size;
    memcpy(&size, raw, sizeof size);
    if (size != raw_bytes)
        return fig_fail(FIG_FORMAT,
                        "section SPEC: size is %" PRIu32 ", the section has %" PRIu32 " bytes",
                        size, raw_bytes);
    if (size % FIG_FILE_SPEC_UNIT != 0)
        return fig_fail(FIG_FORMAT, "section SPEC: %" PRIu32 " bytes, not a multiple of %d", size,
                        FIG_FILE_SPEC_UNIT);
    if (size > FIG_FILE_SPEC_UNIT && is_zero(raw + size - FIG_FILE_SPEC_UNIT))
        return fig_fail(FIG_FORMAT, "section SPEC: the last %d bytes are 0, and must not be there",
                        FIG_FILE_SPEC_UNIT);
    if (size <= sizeof(fig_spec)) return FIG_OK;
    fig_fail(FIG_STALE, "section SPEC: %" PRIu32 " bytes, this library knows %zu", size,
             sizeof(fig_spec));
    return fig_sections_refuse_age(maker, "");
}

static fig_status read_spec(const fig_sections *sections, fig_spec *spec) {
    const uint8_t *raw = sections->raw[FIG_SECTION_SPEC], *resolved = (const uint8_t *)spec;
    const uint32_t raw_bytes = sections->item_count[FIG_SECTION_SPEC];
    fig_spec whole;
    FIG_TRY(check_spec_size(raw, raw_bytes, sections->maker));
    memset(&whole, 0, sizeof whole);
    memcpy(&whole, raw, raw_bytes);
    whole.size = sizeof whole;
    FIG_TRY(within("section SPEC: ", fig_spec_resolve(&whole, spec)));
    for (size_t i = sizeof whole.size; i < sizeof whole; i++) {
        if (((const uint8_t *)&whole)[i] != resolved[i])
            return fig_fail(FIG_FORMAT,
                            "section SPEC: byte %zu belongs to a default that is not filled in", i);
    }
    return FIG_OK;
}

/* Fails if only a later library can know the variant. fig_graphs_assemble() checks caps and
 * order. */
static fig_status check_bucket(const fig_file_bucket *bucket, uint32_t i, const fig_traits *traits,
                               uint32_t maker) {
    const int32_t count = FIG_VARIANTS_FORMS * fig_traits_variant_count(traits);
    if (bucket->variant < (uint32_t)count) return FIG_OK;
    fig_fail(FIG_STALE,
             "section BUCK: bucket %" PRIu32 ": variant is %" PRIu32 ", this library has %" PRId32,
             i, bucket->variant, count);
    return fig_sections_refuse_age(maker, "");
}

static fig_status read_buckets(const fig_sections *sections, fig_codec_parts *parts) {
    const uint8_t *buckets = sections->raw[FIG_SECTION_BUCK];
    const uint32_t bytes = fig_sections_item_bytes(sections, FIG_SECTION_BUCK);
    const uint32_t count = sections->item_count[FIG_SECTION_BUCK];
    if (sections->item_count[FIG_SECTION_DIGS] != count)
        return fig_fail(FIG_FORMAT, "section DIGS: %" PRIu32 " digests for %" PRIu32 " buckets",
                        sections->item_count[FIG_SECTION_DIGS], count);
    parts->buckets = calloc(count, sizeof *parts->buckets);
    parts->made_digests = calloc(count, sizeof *parts->made_digests);
    if (parts->buckets == NULL || parts->made_digests == NULL)
        return fig_fail(FIG_NOMEM, "section BUCK: %" PRIu32 " buckets", count);
    parts->bucket_count = count;
    memcpy(parts->made_digests, sections->raw[FIG_SECTION_DIGS],
           count * sizeof *parts->made_digests);
    for (uint32_t i = 0; i < count; i++) {
        fig_file_bucket bucket = {.queries = 0};
        memcpy(&bucket, buckets + (size_t)i * bytes, bytes);
        FIG_TRY(check_bucket(&bucket, i, &parts->target.traits, sections->maker));
        parts->buckets[i].caps = (fig_bucket){bucket.batch, bucket.kv};
        parts->buckets[i].variant = (int32_t)bucket.variant;
        parts->buckets[i].queries = bucket.queries;
    }
    return FIG_OK;
}

/* Reads the tuning records. Records of other machines and libraries are valid, too, and are
 * kept. */
static fig_status read_tuning(const fig_sections *sections, fig_tuning *tuning) {
    const fig_tuning theirs = {.count = sections->item_count[FIG_SECTION_VARI]};
    if (theirs.count == 0) return FIG_OK;
    tuning->records = malloc(theirs.count * sizeof *tuning->records);
    if (tuning->records == NULL)
        return fig_fail(FIG_NOMEM, "section VARI: %" PRIu32 " records", theirs.count);
    tuning->count = theirs.count;
    const uint32_t bytes = fig_sections_item_bytes(sections, FIG_SECTION_VARI);
    const uint8_t *raw = sections->raw[FIG_SECTION_VARI];
    for (uint32_t i = 0; i < tuning->count; i++) {
        tuning->records[i] = (fig_tuned){.split_class = 0};
        memcpy(&tuning->records[i], raw + (size_t)i * bytes, bytes);
    }
    if (bytes > FIG_TUNED_BYTES_LEAST && !is_grown(tuning))
        return fig_fail(FIG_FORMAT,
                        "section VARI: item_bytes is %" PRIu32 ", no record needs more than %d",
                        bytes, (int)FIG_TUNED_BYTES_LEAST);
    return within("section VARI: ", fig_tuning_check(tuning));
}

static fig_status read_notes(const fig_sections *sections, fig_notes *notes) {
    const fig_notes theirs = {.bytes = sections->item_count[FIG_SECTION_META],
                              .text = sections->held[FIG_SECTION_META]};
    FIG_TRY(within("section META: ", fig_notes_check(&theirs)));
    return fig_notes_clone(notes, &theirs);
}

/* Reads the records of images. Images that this library does not know are valid, too, and are
 * kept. */
static fig_status read_archive(const fig_sections *sections, fig_archive *archive) {
    const fig_archive theirs = {
        .images = sections->held[FIG_SECTION_IMAG],
        .image_count = sections->item_count[FIG_SECTION_IMAG],
        .code = sections->held[FIG_SECTION_CODE],
        .stored_bytes = sections->sealed_bytes[FIG_SECTION_CODE],
        .code_bytes = sections->item_count[FIG_SECTION_CODE],
        .compiled = {.records = sections->held[FIG_SECTION_SIMG],
                     .count = sections->item_count[FIG_SECTION_SIMG],
                     .code = sections->held[FIG_SECTION_SCOD],
                     .stored_bytes = sections->sealed_bytes[FIG_SECTION_SCOD],
                     .code_bytes = sections->item_count[FIG_SECTION_SCOD]}};
    FIG_TRY(within("section IMAG: ", fig_archive_check(&theirs)));
    FIG_TRY(within("section SIMG: ", fig_embedded_check(&theirs.compiled)));
    return fig_archive_clone(archive, &theirs);
}

/* Checks that the name is a plain word, because an error message may contain the name. */
static fig_status check_kernel_name(const fig_file_kernel *kernel, uint32_t i) {
    const size_t length = strnlen(kernel->name, sizeof kernel->name);
    int is_name = length > 0 && length < sizeof kernel->name;
    for (size_t at = 0; at < sizeof kernel->name; at++) {
        const char c = kernel->name[at];
        const int is_letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
        is_name &= at < length ? is_letter : c == '\0';
    }
    if (is_name) return FIG_OK;
    return fig_fail(FIG_FORMAT, "section KERN: kernel %" PRIu32 ": name is not a word of [a-z0-9_]",
                    i);
}

/* Runs before the program is read, so that a file of another version is not taken for a damaged
 * one: its program may use operations that this library lacks or defines differently. */
static fig_status read_operations(const fig_sections *sections, fig_codec_parts *parts) {
    const fig_file_kernel *kernels = sections->raw[FIG_SECTION_KERN];
    for (uint32_t i = 0; i < sections->item_count[FIG_SECTION_KERN]; i++) {
        const fig_file_kernel *kernel = &kernels[i];
        const fig_kernel *known = NULL;
        uint8_t abi[32];
        FIG_TRY(check_kernel_name(kernel, i));
        if (i > 0 && kernel->op <= kernels[i - 1].op)
            return fig_fail(FIG_FORMAT,
                            "section KERN: kernel %" PRIu32 ": operation %" PRIu32
                            " does not come after the one before",
                            i, kernel->op);
        if (kernel->op < FIG_OP_KERNEL_COUNT) known = &fig_kernel_table[kernel->op];
        if (known == NULL || strncmp(kernel->name, known->name, sizeof kernel->name) != 0) {
            fig_fail(FIG_STALE,
                     "section KERN: operation %" PRIu32 " is \"%.*s\", which this library lacks",
                     kernel->op, (int)sizeof kernel->name, kernel->name);
            return fig_sections_refuse_age(sections->maker, "");
        }
        hash_kernel(known, abi);
        if (kernel->params_bytes != known->params_bytes ||
            memcmp(kernel->abi, abi, sizeof abi) != 0)
            parts->changed_kernels |= UINT32_C(1) << kernel->op;
    }
    return FIG_OK;
}

/* Writes ", whose fetch and attention differ". */
static void name_changed(uint32_t changed, char whose[WHOSE_BYTES]) {
    const int first = __builtin_ctz(changed), last = 31 - __builtin_clz(changed);
    size_t used = 0;
    for (int op = first; op <= last; op++) {
        if (!(changed >> op & 1)) continue;
        const char *before = op == first ? ", whose " : op == last ? " and " : ", ";
        used += (size_t)snprintf(whose + used, WHOSE_BYTES - used, "%s%s", before,
                                 fig_kernel_table[op].name);
    }
    snprintf(whose + used, WHOSE_BYTES - used, first == last ? " differs" : " differ");
}

static fig_status read_program(const fig_sections *sections, const fig_spec *spec,
                               fig_codec_parts *parts) {
    const fig_program_view view = {
        .spec = *spec,
        .tensors = sections->raw[FIG_SECTION_TENS],
        .nodes = sections->raw[FIG_SECTION_NODE],
        .operands = sections->raw[FIG_SECTION_OPND],
        .attributes = sections->raw[FIG_SECTION_ATTR],
        .strings = sections->raw[FIG_SECTION_STRS],
        .segments = sections->raw[FIG_SECTION_SEGM],
        .scores = sections->raw[FIG_SECTION_SCOR],
        .tensor_count = sections->item_count[FIG_SECTION_TENS],
        .node_count = sections->item_count[FIG_SECTION_NODE],
        .operand_count = sections->item_count[FIG_SECTION_OPND],
        .attribute_bytes = sections->item_count[FIG_SECTION_ATTR],
        .string_bytes = sections->item_count[FIG_SECTION_STRS],
        .segment_count = sections->item_count[FIG_SECTION_SEGM],
        .score_units = sections->item_count[FIG_SECTION_SCOR],
    };
    const fig_status status = fig_program_restore(&parts->program, &view);
    if (status != FIG_FORMAT || parts->changed_kernels == 0) return status;
    /* The maker's operations differ from this library's, so the maker's rules for operands may
     * differ, too. */
    char whose[WHOSE_BYTES];
    name_changed(parts->changed_kernels, whose);
    return fig_sections_refuse_age(sections->maker, whose);
}

/* Checks that section KERN lists exactly the kernels that the program uses. */
static fig_status read_kernels(const fig_sections *sections, fig_codec_parts *parts) {
    fig_file_kernel ours[FIG_OP_KERNEL_COUNT];
    const fig_file_kernel *theirs = sections->raw[FIG_SECTION_KERN];
    const uint32_t their_count = sections->item_count[FIG_SECTION_KERN];
    const fig_program_view *view = fig_program_view_of(parts->program);
    const fig_codec_maker maker = fig_codec_maker_of(view);
    const uint32_t count = list_kernels(view, &maker, ours);
    if (their_count != count)
        return fig_fail(FIG_FORMAT, "section KERN: %" PRIu32 " kernels, the program uses %" PRIu32,
                        their_count, count);
    for (uint32_t i = 0; i < count; i++) {
        /* Equal names mean equal ops: read_operations() has checked each name against its op. */
        if (memcmp(theirs[i].name, ours[i].name, sizeof ours[i].name) != 0)
            return fig_fail(FIG_FORMAT,
                            "section KERN: kernel %" PRIu32 " is operation %" PRIu32
                            ", the program uses %" PRIu32 " there",
                            i, theirs[i].op, ours[i].op);
        parts->maker.kernels[ours[i].op].params_bytes = theirs[i].params_bytes;
        memcpy(parts->maker.kernels[ours[i].op].abi, theirs[i].abi, sizeof theirs[i].abi);
    }
    return FIG_OK;
}

static fig_status read_parts(const fig_sections *sections, fig_codec_parts *parts) {
    fig_spec spec;
    FIG_TRY(read_operations(sections, parts));
    FIG_TRY(read_machine(sections, &parts->target));
    FIG_TRY(read_spec(sections, &spec));
    FIG_TRY(read_buckets(sections, parts));
    FIG_TRY(read_tuning(sections, &parts->target.tuning));
    FIG_TRY(read_notes(sections, &parts->notes));
    FIG_TRY(read_archive(sections, &parts->archive));
    FIG_TRY(read_program(sections, &spec, parts));
    return read_kernels(sections, parts);
}

fig_status fig_codec_read(fig_codec_parts *parts, const uint8_t *bytes, size_t count) {
    fig_sections sections;
    memset(parts, 0, sizeof *parts);
    FIG_TRY(fig_sections_read(&sections, bytes, count));
    parts->maker.version = sections.maker;
    const fig_status status = fig_codec_judge(sections.maker, read_parts(&sections, parts));
    if (status != FIG_OK) fig_codec_finish(parts);
    fig_sections_finish(&sections);
    return status;
}

void fig_codec_finish(fig_codec_parts *parts) {
    fig_program_destroy(parts->program);
    free(parts->buckets);
    free(parts->made_digests);
    fig_tuning_finish(&parts->target.tuning);
    fig_notes_finish(&parts->notes);
    fig_archive_finish(&parts->archive);
    memset(parts, 0, sizeof *parts);
}
