/* test_codec.c: tests that graphs survive being written and read, and that no file gives graphs
 * that no recorder could make.
 *
 * The forged files here are complete: their hashes and frames are right, and one section has other
 * contents. test_codec_faults.c tests failing allocations. test_codec_strangers.c tests files that
 * a newer library or a stranger would write. tests/golden/ holds files of earlier versions, each of
 * which must load for ever. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "include/figraph_unstable.h"
#include "tests/support/files/capture.h"
#include "tests/support/files/forgery.h"
#include "tests/support/random.h"
#include "tools/figraph/inspect/inspect_print.h"

typedef struct file {
    uint8_t *bytes;
    size_t count;
} file;

static file write_graphs(const fig_graphs *graphs) {
    file written;
    if (fig_graphs_write(graphs, &written.bytes, &written.count) != FIG_OK)
        fail_msg("%s", fig_message());
    return written;
}

static fig_graphs *parse(const uint8_t *bytes, size_t count) {
    fig_graphs *graphs;
    if (fig_graphs_parse(&graphs, bytes, count) != FIG_OK) fail_msg("%s", fig_message());
    return graphs;
}

static void assert_same_bytes(const file *a, const file *b) {
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        if (a->bytes[i] != b->bytes[i])
            fail_msg("byte %zu is %#x and %#x", i, a->bytes[i], b->bytes[i]);
    }
    assert_int_equal(a->count, b->count);
}

/* Makes sample i. */
static fig_graphs *capture(int i) {
    switch (i) {
    case 0: return fig_capture_preset("tutorial", 1, "host");
    case 1: return fig_capture_preset("llama-3.1-8b", 32, "h200");
    case 2: return fig_capture_preset("llama-3.1-8b", 1, "a100");
    case 3: return fig_capture_mixed();
    case 4: return fig_capture_breadth();
    }
    return NULL;
}

/* ---- Round trips */

static void loaded_graphs_are_saved_as_the_same_bytes(void **state) {
    (void)state;
    fig_graphs *made;
    for (int i = 0; (made = capture(i)) != NULL; i++) {
        file first = write_graphs(made);
        fig_graphs *loaded = parse(first.bytes, first.count);
        file second = write_graphs(loaded);
        assert_same_bytes(&first, &second);
        assert_memory_equal(made->content_id, loaded->content_id, 32);
        assert_memory_equal(made->digests, loaded->made_digests, 8 * made->bucket_count);
        assert_int_equal(loaded->changed_kernels, 0);
        free(first.bytes);
        free(second.bytes);
        fig_graphs_destroy(made);
        fig_graphs_destroy(loaded);
    }
}

static void two_captures_of_one_spec_are_one_file(void **state) {
    (void)state;
    fig_graphs *once, *again;
    for (int i = 0; (once = capture(i)) != NULL; i++) {
        /* The next capture may reuse this memory. None of its old bytes may appear in a file. */
        void *dirt = malloc(100000);
        memset(dirt, 0xa5, 100000);
        free(dirt);
        again = capture(i);
        file first = write_graphs(once), second = write_graphs(again);
        assert_same_bytes(&first, &second);
        free(first.bytes);
        free(second.bytes);
        fig_graphs_destroy(once);
        fig_graphs_destroy(again);
    }
}

static void other_graphs_have_another_content_id(void **state) {
    (void)state;
    fig_graphs *graphs[5];
    for (int i = 0; i < 5; i++) {
        graphs[i] = capture(i);
        for (int before = 0; before < i; before++)
            assert_memory_not_equal(graphs[i]->content_id, graphs[before]->content_id, 32);
    }
    for (int i = 0; i < 5; i++)
        fig_graphs_destroy(graphs[i]);
}

static void a_content_id_does_not_depend_on_the_compression(void **state) {
    (void)state;
    static const int levels[] = {-20, 1, 9, 19};
    fig_graphs *made;
    for (int i = 0; (made = capture(i)) != NULL; i++) {
        fig_forgery image;
        file original = write_graphs(made);
        fig_forgery_open(&image, original.bytes, original.count);
        for (size_t n = 0; n < sizeof levels / sizeof levels[0]; n++) {
            file other;
            other.bytes = fig_forgery_write(&image, levels[n], &other.count);
            fig_graphs *loaded = parse(other.bytes, other.count);
            file saved = write_graphs(loaded);
            assert_memory_equal(loaded->content_id, made->content_id, 32);
            assert_same_bytes(&saved, &original);
            free(other.bytes);
            free(saved.bytes);
            fig_graphs_destroy(loaded);
        }
        fig_forgery_close(&image);
        free(original.bytes);
        fig_graphs_destroy(made);
    }
}

static void bytes_behind_a_callers_name_reach_no_file(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    file clean = write_graphs(graphs);
    memset(graphs->target.traits.name + 5, 0xee, sizeof graphs->target.traits.name - 5);
    graphs->target.traits.size = 1;
    file dirty = write_graphs(graphs);
    assert_same_bytes(&clean, &dirty);
    free(clean.bytes);
    free(dirty.bytes);
    fig_graphs_destroy(graphs);
}

/* ---- Files that are sound except for one section */

typedef struct forgery {
    const char *what;
    fig_section section;
    size_t at, width;
    uint64_t value;
    fig_status status;
    const char *said;
} forgery;

#define OF(type, item, field)                                                                      \
    (item) * sizeof(type) + offsetof(type, field), sizeof(((type *)0)->field)
#define MACHINE(field) FIG_SECTION_ENVR, OF(fig_file_machine, 0, field)
#define SPEC(field) FIG_SECTION_SPEC, OF(fig_spec, 0, field)
#define TENSOR(item, field) FIG_SECTION_TENS, OF(fig_tensor_record, item, field)
#define NODE(item, field) FIG_SECTION_NODE, OF(fig_node, item, field)
#define OPERAND(item) FIG_SECTION_OPND, 4 * (item), 4
#define BUCKET(item, field)                                                                        \
    FIG_SECTION_BUCK, (item)*FIG_FILE_BUCKET_BYTES_LEAST + offsetof(fig_file_bucket, field),       \
        sizeof(((fig_file_bucket *)0)->field)
#define SEGMENT(item, field) FIG_SECTION_SEGM, OF(fig_segment, item, field)
#define KERNEL(item, field) FIG_SECTION_KERN, OF(fig_file_kernel, item, field)

/* Forgeries of the mixed sample. Its nodes 0 to 4 are a call, silu_and_mul, rope, append_kv and
 * attention. */
static const forgery forgeries[] = {
    {"deterministic", MACHINE(deterministic), 2, FIG_FORMAT, "section ENVR: deterministic is 2"},
    {"variant of a fixed split", MACHINE(deterministic), 1, FIG_FORMAT,
     "variant is 1, it must be 0"},
    {"no SMs", MACHINE(sm_count), 0, FIG_FORMAT, "section ENVR: traits: sm_count is 0"},
    {"SMs", MACHINE(sm_count), 1 << 30, FIG_FORMAT, "sm_count is 1073741824"},
    {"traits name", MACHINE(name), 0x0a3b3b, FIG_FORMAT, "section ENVR: traits: name"},
    {"traits name left over", FIG_SECTION_ENVR, 9, 1, 'x', FIG_FORMAT,
     "name is not followed by zeros"},
    {"spec size", SPEC(size), 72, FIG_FORMAT, "section SPEC: size is 72, the section has 200"},
    {"spec dtype", SPEC(dtype), 99, FIG_FORMAT, "section SPEC: spec: dtype is 99"},
    {"spec heads", SPEC(kv_heads), 3, FIG_FORMAT, "section SPEC: spec: q_heads is 8"},
    {"spec rope", SPEC(rope.theta), 0x7f800000, FIG_FORMAT, "section SPEC: rope: theta is inf"},
    {"spec limit", SPEC(batch_limit), 1 << 20, FIG_FORMAT, "batch_limit is 1048576"},
    {"tensor name", TENSOR(0, name), 0xffffffff, FIG_FORMAT, "no name begins at byte 4294967295"},
    {"tensor name inside another", TENSOR(1, name), 4, FIG_FORMAT, "no name begins at byte 4 "},
    {"tensor name of another", TENSOR(1, name), 1, FIG_FORMAT, "name x is taken by tensor 1"},
    {"tensor role", TENSOR(0, role), 3, FIG_FORMAT, "role is 3"},
    {"tensor dtype", TENSOR(0, dtype), 0, FIG_FORMAT, "dtype is 0"},
    {"tensor rank", TENSOR(0, rank), 5, FIG_FORMAT, "rank is 5"},
    {"tensor symbol", TENSOR(0, symbol), 4, FIG_FORMAT, "symbol is 4"},
    {"tensor multiple", TENSOR(0, dims[0]), 129, FIG_FORMAT, "multiple is 129, limits 1 to 128"},
    {"tensor layout", TENSOR(0, layout), 2, FIG_FORMAT, "layout is 2"},
    {"tensor layout of rank 2", TENSOR(0, layout), 1, FIG_FORMAT, "layout is FIG_HND and rank 2"},
    {"tensor reserved", TENSOR(0, reserved), 1, FIG_FORMAT, "reserved[0] is 1"},
    {"tensor dims", TENSOR(0, dims[1]), UINT64_C(1) << 62, FIG_FORMAT,
     "more than 70368744177664 bytes"},
    {"tensor negative", TENSOR(0, dims[1]), UINT64_MAX, FIG_FORMAT, "dims[1] is -1"},
    {"node op", NODE(1, op), 33, FIG_FORMAT, "op is 33"},
    {"node fetch", NODE(1, op), FIG_OP_FETCH, FIG_FORMAT, "op is 0, which no node has"},
    {"node look ahead", NODE(1, op), FIG_OP_LOOK_AHEAD, FIG_FORMAT, "op is 8, which no node has"},
    {"node ceiling", NODE(1, op), FIG_OP_CEILING, FIG_FORMAT, "op is 9, which no node has"},
    {"node of another op", NODE(1, op), FIG_OP_ROPE, FIG_FORMAT, "2 operands, limits 10 to 32"},
    {"node layer", NODE(1, layer), 2, FIG_FORMAT, "layer"},
    {"node operand", NODE(1, operand), 0xfffffff0, FIG_FORMAT, "2 operands from 4294967280"},
    {"node operand count", NODE(1, operand_count), 0x7fffffff, FIG_FORMAT, "2147483647 operands"},
    {"node attribute", NODE(2, attribute), 0x7ffffff8, FIG_FORMAT, "attributes from 2147483640"},
    {"node attribute unaligned", NODE(2, attribute), 4, FIG_FORMAT, "attributes from 4"},
    {"node attribute bytes", NODE(2, attribute_bytes), 1 << 20, FIG_FORMAT,
     "1048576 bytes of attributes"},
    {"call reads", FIG_SECTION_ATTR, 12, 4, 17, FIG_FORMAT, "read_count is 17"},
    {"call bytes", FIG_SECTION_ATTR, 16, 4, 257, FIG_FORMAT, "byte_count is 257"},
    {"call name", FIG_SECTION_ATTR, 8, 4, 1 << 20, FIG_FORMAT, "no name begins at byte 1048576"},
    {"operand", OPERAND(0), 22, FIG_FORMAT, "tensor 22, the program has 21"},
    {"operand absent", OPERAND(2), 0, FIG_FORMAT, "operand 0, is absent"},
    {"operand of another shape", OPERAND(2), 1, FIG_FORMAT, "dims[1] is 64, it must be 128"},
    {"strings", FIG_SECTION_STRS, 0, 1, 'x', FIG_FORMAT, "byte 0 is not NUL"},
    {"name", FIG_SECTION_STRS, 1, 1, '/', FIG_FORMAT, "name \"/\" is not"},
    {"bucket batch", BUCKET(3, batch), 5, FIG_FORMAT, "batch is 5"},
    {"bucket empty", BUCKET(0, batch), 0, FIG_FORMAT, "batch is 0"},
    {"bucket kv", BUCKET(3, kv), 129, FIG_FORMAT, "kv is 129"},
    {"bucket order", BUCKET(0, batch), 4, FIG_FORMAT,
     "bucket 1: 1 x 128, variant 1 does not come after"},
    {"bucket twice", BUCKET(1, variant), 0, FIG_FORMAT, "does not come after"},
    {"bucket variant", BUCKET(3, variant), 12, FIG_STALE, "variant is 12, this library has 10"},
    {"kernel op", KERNEL(1, op), 7, FIG_STALE, "operation 7 is \"gated\""},
    {"kernel name", KERNEL(1, name), 0x6d726f6e, FIG_STALE, "operation 1 is \"norm"},
    {"kernel order", KERNEL(0, op), 4, FIG_STALE, "operation 4 is \"fetch\""},
};

/* Forgeries of the sample of breadth. Its node 0 makes plans; the segments act.0, attn.0, act.1 and
 * attn.1 follow. */
static const forgery segment_forgeries[] = {
    {"segment name", SEGMENT(1, name), 0xffffffff, FIG_FORMAT, "segment 1: no name begins"},
    {"segment of plans", SEGMENT(0, node), 0, FIG_FORMAT, "segment act.0: node 0 makes the plans"},
    {"segment without nodes", SEGMENT(0, node_count), 0, FIG_FORMAT, "segment act.0: 0 nodes"},
    {"segment too long", SEGMENT(3, node_count), 100, FIG_FORMAT, "segment attn.1: 100 nodes"},
    {"segment in another", SEGMENT(0, node_count), 2, FIG_FORMAT, "segment attn.0: begins at"},
    {"segment shorter", SEGMENT(3, node_count), 1, FIG_OK, ""},
};

static void refuse_forgeries(fig_graphs *made, const forgery *list, size_t count_of_list) {
    file sound = write_graphs(made);
    for (size_t i = 0; i < count_of_list; i++) {
        const forgery *f = &list[i];
        fig_forgery image;
        fig_graphs *graphs;
        size_t count;
        fig_forgery_open(&image, sound.bytes, sound.count);
        const size_t width = f->width < 8 ? f->width : 8;
        memcpy(image.sections[f->section].raw + f->at, &f->value, width);
        uint8_t *bytes = fig_forgery_write(&image, 1, &count);
        const fig_status status = fig_graphs_parse(&graphs, bytes, count);
        if (status != f->status)
            fail_msg("%s: %s, not %s (%s)", f->what, fig_status_name(status),
                     fig_status_name(f->status), fig_message());
        if (status != FIG_OK && strstr(fig_message(), f->said) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", f->what, fig_message(), f->said);
        assert_true(status == FIG_OK || strlen(fig_message()) > 0);
        fig_graphs_destroy(graphs);
        free(bytes);
        fig_forgery_close(&image);
    }
    free(sound.bytes);
    fig_graphs_destroy(made);
}

static void a_section_that_says_something_else_is_refused(void **state) {
    (void)state;
    refuse_forgeries(fig_capture_mixed(), forgeries, sizeof forgeries / sizeof forgeries[0]);
    refuse_forgeries(fig_capture_breadth(), segment_forgeries,
                     sizeof segment_forgeries / sizeof segment_forgeries[0]);
}

/* ---- Segments */

/* Leaves out the records of kernels, which depend on how the library was built. */
static uint32_t section_count_of(const fig_graphs *graphs) {
    fig_file_header header;
    file written = write_graphs(graphs);
    memcpy(&header, written.bytes, sizeof header);
    free(written.bytes);
    return header.section_count - (graphs->archive.image_count > 0);
}

static void a_file_has_segments_if_the_graphs_have_some(void **state) {
    (void)state;
    fig_graphs *plain = fig_capture_mixed(), *named = fig_capture_breadth();
    assert_int_equal(section_count_of(named), section_count_of(plain) + 1);
    file written = write_graphs(named);
    fig_graphs *loaded = parse(written.bytes, written.count);
    const fig_program_view *ours = fig_program_view_of(named->program);
    const fig_program_view *theirs = fig_program_view_of(loaded->program);
    assert_int_equal(ours->segment_count, 4);
    assert_int_equal(theirs->segment_count, 4);
    assert_memory_equal(theirs->segments, ours->segments, 4 * sizeof *ours->segments);
    free(written.bytes);
    fig_graphs_destroy(loaded);
    fig_graphs_destroy(plain);
    fig_graphs_destroy(named);
}

/* ---- Files of other versions */

static fig_status parse_image(const fig_forgery *image, fig_graphs **graphs) {
    size_t count;
    uint8_t *bytes = fig_forgery_write(image, 1, &count);
    const fig_status status = fig_graphs_parse(graphs, bytes, count);
    /* Graphs that are read must have the id with which they were written. */
    if (status == FIG_OK)
        assert_memory_equal((*graphs)->content_id, bytes + offsetof(fig_file_header, content_id),
                            32);
    free(bytes);
    return status;
}

/* Checks that loaded graphs save as the same bytes, even if another library wrote those. */
static void assert_kept(const fig_graphs *loaded, const file *from) {
    file saved = write_graphs(loaded);
    assert_same_bytes(&saved, from);
    free(saved.bytes);
}

/* Changes the size of the section and the field that states this size. */
static void resize_spec(fig_forgery *image, uint32_t raw_bytes) {
    fig_forgery_resize(image, FIG_SECTION_SPEC, raw_bytes);
    memcpy(image->sections[FIG_SECTION_SPEC].raw, &raw_bytes, sizeof raw_bytes);
}

static void a_stored_spec_ends_at_its_last_nonzero_field(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_preset("tutorial", 1, "host"), *loaded;
    fig_forgery image;
    file sound = write_graphs(made);
    fig_forgery_open(&image, sound.bytes, sound.count);
    const fig_forgery_section *spec = &image.sections[FIG_SECTION_SPEC];
    const uint32_t bytes = offsetof(fig_spec, plain_layers);
    /* ffn_rows, the last field that is not 0, ends there. */
    assert_int_equal(spec->raw_bytes, bytes);
    loaded = parse(sound.bytes, sound.count);
    assert_kept(loaded, &sound);
    fig_graphs_destroy(loaded);
    const struct {
        uint32_t bytes;
        const char *said;
    } others[] = {{bytes + 8, "the last 8 bytes are 0"},
                  {sizeof(fig_spec) + 8, "the last 8 bytes are 0"},
                  {bytes + 4, "204 bytes, not a multiple of 8"},
                  {bytes - 8, "the last 8 bytes are 0"},
                  {8, "section SPEC"}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        resize_spec(&image, others[i].bytes);
        assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
        assert_non_null(strstr(fig_message(), others[i].said));
    }
    fig_forgery_resize(&image, FIG_SECTION_SPEC, 3);
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    fig_forgery_close(&image);
    free(sound.bytes);
    fig_graphs_destroy(made);
}

static void a_spec_with_unknown_fields_makes_a_file_stale(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_mixed(), *loaded;
    fig_forgery image;
    file sound = write_graphs(made);
    fig_forgery_open(&image, sound.bytes, sound.count);
    resize_spec(&image, sizeof(fig_spec) + 8);
    image.sections[FIG_SECTION_SPEC].raw[sizeof(fig_spec)] = 1;
    image.maker = 20000;
    assert_int_equal(parse_image(&image, &loaded), FIG_STALE);
    assert_null(loaded);
    assert_non_null(strstr(fig_message(), "2408 bytes, this library knows 2400"));
    assert_non_null(strstr(fig_message(), "version 20000"));
    fig_forgery_close(&image);
    free(sound.bytes);
    fig_graphs_destroy(made);
}

static void a_spec_of_defaults_that_are_not_filled_in_is_refused(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_mixed(), *loaded;
    file sound = write_graphs(made);
    fig_forgery image;
    fig_forgery_open(&image, sound.bytes, sound.count);
    memset(image.sections[FIG_SECTION_SPEC].raw + offsetof(fig_spec, sm_scale), 0, 4);
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "belongs to a default that is not filled in"));
    fig_forgery_close(&image);
    free(sound.bytes);
    fig_graphs_destroy(made);
}

/* Changes graphs as if another library had made them: with other digests, another kernel table and
 * another version. */
static void graphs_that_lower_differently_keep_their_digests_and_their_id(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_mixed();
    fig_graphs_info info = {.size = sizeof info};
    made->made_digests[2] ^= 1;
    made->maker.version = 77;
    made->maker.kernels[FIG_OP_ROPE].abi[3] ^= 1;
    made->maker.kernels[FIG_OP_ATTENTION].params_bytes += 8;
    file theirs = write_graphs(made);
    fig_graphs *loaded = parse(theirs.bytes, theirs.count);
    fig_graphs_read_info(loaded, &info);
    assert_int_equal(theirs.bytes[offsetof(fig_file_header, maker)], 77);
    assert_int_equal(info.relowered_count, 1);
    assert_true(loaded->digests[2] != loaded->made_digests[2]);
    assert_true(loaded->digests[2] == made->digests[2]);
    assert_int_equal(loaded->changed_kernels, 1u << FIG_OP_ROPE | 1u << FIG_OP_ATTENTION);
    assert_memory_equal(loaded->content_id, made->content_id, 32);
    assert_kept(loaded, &theirs);
    fig_graphs_destroy(loaded);
    free(theirs.bytes);
    fig_graphs_destroy(made);
}

static void each_bucket_has_a_digest(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_mixed(), *loaded;
    file sound = write_graphs(made);
    fig_forgery image;
    fig_forgery_open(&image, sound.bytes, sound.count);
    fig_forgery_resize(&image, FIG_SECTION_DIGS, 3 * sizeof(uint64_t));
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "section DIGS: 3 digests for 4 buckets"));
    fig_forgery_resize(&image, FIG_SECTION_DIGS, 5 * sizeof(uint64_t));
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "section DIGS: 5 digests for 4 buckets"));
    fig_forgery_close(&image);
    free(sound.bytes);
    fig_graphs_destroy(made);
}

static void a_kernel_of_another_abi_is_noted_but_accepted(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_mixed(), *loaded;
    file sound = write_graphs(made);
    fig_forgery image;
    fig_forgery_open(&image, sound.bytes, sound.count);
    fig_file_kernel *kernels = (void *)image.sections[FIG_SECTION_KERN].raw;
    assert_int_equal(image.sections[FIG_SECTION_KERN].raw_bytes, 5 * sizeof *kernels);
    kernels[2].abi[31] ^= 0x10;
    kernels[4].params_bytes += 8;
    assert_int_equal(parse_image(&image, &loaded), FIG_OK);
    assert_int_equal(loaded->changed_kernels, 1u << FIG_OP_ROPE | 1u << FIG_OP_ATTENTION);
    assert_memory_equal(loaded->content_id, made->content_id, 32);
    fig_graphs_destroy(loaded);

    fig_forgery_resize(&image, FIG_SECTION_KERN, 4 * sizeof *kernels);
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "section KERN: 4 kernels, the program uses 5"));
    fig_forgery_resize(&image, FIG_SECTION_KERN, 5 * sizeof *kernels);
    kernels = (void *)image.sections[FIG_SECTION_KERN].raw;
    kernels[4] = kernels[3];
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "operation 3 does not come after the one before"));
    kernels[4] = (fig_file_kernel){.op = FIG_OP_RMS_NORM, .name = "rms_norm"};
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "kernel 4 is operation 6, the program uses 4 there"));
    fig_forgery_close(&image);
    free(sound.bytes);
    fig_graphs_destroy(made);
}

/* ---- Random changes, with correct hashes */

static void mutate(fig_random *random, fig_forgery_section *section) {
    static const uint32_t words[] = {0, 1, 2, 0x7f, 0xff, 0xffff, 0x7fffffff, 0x80000000, ~0u, ~7u};
    const int32_t last = (int32_t)section->raw_bytes - 1;
    for (int32_t n = fig_random_range(random, 1, 4); n > 0 && last >= 0; n--) {
        const int32_t at = fig_random_range(random, 0, last);
        if (n % 2 == 0 || at + 4 > last) {
            section->raw[at] = (uint8_t)fig_random_range(random, 0, 255);
        } else {
            memcpy(section->raw + at / 4 * 4, &words[fig_random_range(random, 0, 9)], 4);
        }
    }
}

static void swallow(void *user, const char *bytes, size_t count) {
    size_t *sum = user;
    for (size_t i = 0; i < count; i++)
        *sum += (uint8_t)bytes[i];
}

/* Accepted graphs must be printable, and must save to a file that loads as the same graphs. */
static void assert_usable(const fig_graphs *graphs) {
    size_t sum = 0;
    for (int32_t bucket = 0; bucket <= 1; bucket++) {
        for (int format = FIG_PRINT_TEXT; format <= FIG_PRINT_JSON; format++)
            assert_int_equal(
                fig_inspect_print(
                    graphs,
                    &(fig_print_options){.bucket = bucket, .format = (fig_print_format)format},
                    swallow, &sum),
                FIG_OK);
    }
    file saved = write_graphs(graphs);
    fig_graphs *again = parse(saved.bytes, saved.count);
    assert_memory_equal(again->content_id, graphs->content_id, 32);
    fig_graphs_destroy(again);
    free(saved.bytes);
}

static void forged_arrays_are_refused_or_usable(void **state) {
    (void)state;
    const uint64_t seed = 11;
    fig_random random = fig_random_seed(seed);
    fig_graphs *captures[] = {fig_capture_mixed(), fig_capture_breadth(), fig_capture_tuned()};
    file sounds[] = {write_graphs(captures[0]), write_graphs(captures[1]),
                     write_graphs(captures[2])};
    int accepted = 0;
    for (int i = 0; i < 16000; i++) {
        const file sound = sounds[i % 3];
        fig_forgery image;
        fig_graphs *graphs;
        fig_forgery_open(&image, sound.bytes, sound.count);
        for (int32_t n = fig_random_range(&random, 1, 2); n > 0; n--) {
            const uint32_t s = (uint32_t)fig_random_range(&random, 0, (int32_t)image.count - 1);
            fig_forgery_section *section = &image.sections[s];
            const size_t item = section->entry.item_bytes;
            if (fig_random_range(&random, 0, 7) == 0)
                fig_forgery_resize(
                    &image, s,
                    item * (size_t)fig_random_range(&random, 0,
                                                    (int32_t)(section->raw_bytes / item) + 2));
            mutate(&random, section);
        }
        const fig_status status = parse_image(&image, &graphs);
        fig_forgery_close(&image);
        if (status == FIG_OK) {
            accepted++;
            assert_usable(graphs);
        } else if (status != FIG_FORMAT && status != FIG_STALE) {
            fail_msg("seed %llu, round %d: %s (%s)", (unsigned long long)seed, i,
                     fig_status_name(status), fig_message());
        }
        assert_true(status == FIG_OK || strlen(fig_message()) > 0);
        fig_graphs_destroy(graphs);
    }
    /* Some bytes may have any value, for example a call's tag or a digest. */
    assert_in_range(accepted, 100, 15000);
    for (int i = 0; i < 3; i++) {
        free(sounds[i].bytes);
        fig_graphs_destroy(captures[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaded_graphs_are_saved_as_the_same_bytes),
        cmocka_unit_test(two_captures_of_one_spec_are_one_file),
        cmocka_unit_test(other_graphs_have_another_content_id),
        cmocka_unit_test(a_content_id_does_not_depend_on_the_compression),
        cmocka_unit_test(bytes_behind_a_callers_name_reach_no_file),
        cmocka_unit_test(a_section_that_says_something_else_is_refused),
        cmocka_unit_test(a_file_has_segments_if_the_graphs_have_some),
        cmocka_unit_test(a_stored_spec_ends_at_its_last_nonzero_field),
        cmocka_unit_test(a_spec_with_unknown_fields_makes_a_file_stale),
        cmocka_unit_test(a_spec_of_defaults_that_are_not_filled_in_is_refused),
        cmocka_unit_test(graphs_that_lower_differently_keep_their_digests_and_their_id),
        cmocka_unit_test(each_bucket_has_a_digest),
        cmocka_unit_test(a_kernel_of_another_abi_is_noted_but_accepted),
        cmocka_unit_test(forged_arrays_are_refused_or_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
