/* test_codec_strangers.c: tests refusals of complete files that this library would not write.
 *
 * Their hashes and frames are right, as if a newer library or a hostile author had made them. A
 * newer library's file is refused as stale, not as damaged. A file that no recorder could make must
 * cost almost nothing to refuse. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "graphs/files/sections.h"
#include "graphs/graphs.h"
#include "tests/support/files/capture.h"
#include "tests/support/files/forgery.h"

static fig_forgery take_apart(const fig_graphs *graphs) {
    fig_forgery image;
    uint8_t *bytes;
    size_t count;
    if (fig_graphs_write(graphs, &bytes, &count) != FIG_OK) fail_msg("%s", fig_message());
    fig_forgery_open(&image, bytes, count);
    free(bytes);
    return image;
}

static fig_status parse_image(const fig_forgery *image, fig_graphs **graphs) {
    size_t count;
    uint8_t *bytes = fig_forgery_write(image, 0, &count);
    const fig_status status = fig_graphs_parse(graphs, bytes, count);
    free(bytes);
    return status;
}

static void assert_ends(const char *end) {
    const char *message = fig_message();
    const size_t bytes = strlen(message), end_bytes = strlen(end);
    if (bytes < end_bytes || strcmp(message + bytes - end_bytes, end) != 0)
        fail_msg("\"%s\" does not end with \"%s\"", message, end);
}

/* The tutorial's file with a shortened last node. This node is a decode_attention. */
typedef struct shorn {
    fig_graphs *made;
    fig_forgery image;
    fig_node *last; /* in the image */
} shorn;

static void shorn_make(shorn *s) {
    s->made = fig_capture_preset("tutorial", 1, "host");
    s->image = take_apart(s->made);
    fig_forgery_section *nodes = &s->image.sections[FIG_SECTION_NODE];
    s->last = (fig_node *)(void *)(nodes->raw + nodes->raw_bytes) - 1;
    assert_int_equal(s->last->op, FIG_OP_DECODE_ATTENTION);
}

static void shorn_finish(shorn *s) {
    fig_forgery_close(&s->image);
    fig_graphs_destroy(s->made);
}

/* Changes how many operands and attribute bytes the last node has. Added ones are 0. */
static void shorn_end(shorn *s, uint32_t operands, uint32_t attribute_bytes) {
    const fig_program_view *view = fig_program_view_of(s->made->program);
    const fig_node *node = &view->nodes[view->node_count - 1];
    s->last->operand_count = operands;
    s->last->attribute_bytes = attribute_bytes;
    fig_forgery_resize(&s->image, FIG_SECTION_OPND, (node->operand + operands) * sizeof(uint32_t));
    fig_forgery_resize(&s->image, FIG_SECTION_ATTR,
                       node->attribute + (attribute_bytes + 7) / 8 * 8);
}

/* Checks that the file loads, lowers to its maker's launches, and saves as the same bytes. */
static void shorn_loads(const shorn *s) {
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs *loaded;
    uint8_t *saved;
    size_t bytes, count;
    uint8_t *file = fig_forgery_write(&s->image, 12, &bytes);
    if (fig_graphs_parse(&loaded, file, bytes) != FIG_OK)
        fail_msg("%u operands, %u bytes: %s", s->last->operand_count, s->last->attribute_bytes,
                 fig_message());
    assert_int_equal(fig_graphs_read_info(loaded, &info), FIG_OK);
    assert_int_equal(info.relowered_count, 0);
    assert_int_equal(fig_graphs_write(loaded, &saved, &count), FIG_OK);
    fig_forgery again;
    fig_forgery_open(&again, saved, count);
    for (fig_section section = 0; section < s->image.count; section++) {
        const fig_forgery_section *a = &s->image.sections[section], *b = &again.sections[section];
        assert_int_equal(a->raw_bytes, b->raw_bytes);
        if (a->raw_bytes > 0) assert_memory_equal(a->raw, b->raw, a->raw_bytes);
    }
    fig_forgery_close(&again);
    fig_graphs_destroy(loaded);
    free(saved);
    free(file);
}

/* The missing operands are positions, cos_sin and the norms of q and k. The missing attributes are
 * the RoPE table. */
static void a_node_shorter_than_its_row_loads_as_it_is(void **state) {
    (void)state;
    const fig_kernel *kernel = &fig_kernel_table[FIG_OP_DECODE_ATTENTION];
    shorn s;
    shorn_make(&s);
    for (uint32_t operands = kernel->operand_least; operands <= FIG_OPERAND_LIMIT; operands++) {
        shorn_end(&s, operands, kernel->attribute_least);
        shorn_loads(&s);
    }
    const uint32_t lengths[] = {52, 300, kernel->attribute_bytes, 1200, FIG_ATTRIBUTE_LIMIT};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        shorn_end(&s, kernel->operand_count, lengths[i]);
        shorn_loads(&s);
    }
    shorn_finish(&s);
}

/* Writes the file as a library would if its decode_attention had one more operand or attribute. */
static void operands_added_to_a_row_come_from_a_newer_library(void **state) {
    (void)state;
    shorn s;
    fig_graphs *loaded;
    shorn_make(&s);
    shorn_end(&s, 17, 48);
    const size_t operands = s.image.sections[FIG_SECTION_OPND].raw_bytes;
    s.image.sections[FIG_SECTION_OPND].raw[operands - 4] = 1;
    assert_int_equal(parse_image(&s.image, &loaded), FIG_STALE);
    assert_null(loaded);
    assert_non_null(strstr(fig_message(), "operand 16 is there, and this library knows 16: a newer "
                                          "one wrote it"));
    assert_ends("capture the graphs anew");
    shorn_end(&s, 16, 1088);
    const size_t bytes = s.image.sections[FIG_SECTION_ATTR].raw_bytes;
    s.image.sections[FIG_SECTION_ATTR].raw[bytes - 1] = 1;
    assert_int_equal(parse_image(&s.image, &loaded), FIG_STALE);
    assert_non_null(strstr(fig_message(), "byte 1087 of attributes is not 0, and this library "
                                          "knows 1080: a newer one wrote it"));
    shorn_finish(&s);
}

/* Writes the file as a library would if its decode_attention needed fewer operands. */
static void too_few_operands_mean_a_stale_file_if_its_maker_had_another_row(void **state) {
    (void)state;
    shorn s;
    fig_graphs *loaded;
    shorn_make(&s);
    shorn_end(&s, 11, 48);
    assert_int_equal(parse_image(&s.image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "11 operands, limits 12 to 32"));
    assert_null(strstr(fig_message(), "capture the graphs anew"));

    fig_forgery_section *kernels = &s.image.sections[FIG_SECTION_KERN];
    fig_file_kernel *row = (fig_file_kernel *)(void *)(kernels->raw + kernels->raw_bytes) - 1;
    assert_int_equal(row->op, FIG_OP_DECODE_ATTENTION);
    row->abi[0] ^= 1;
    assert_int_equal(parse_image(&s.image, &loaded), FIG_STALE);
    assert_null(loaded);
    assert_ends("11 operands, limits 12 to 32; the file was made by another build of version 200, "
                "whose decode_attention differs: capture the graphs anew");
    s.image.maker = FIG_VERSION - 1;
    assert_int_equal(parse_image(&s.image, &loaded), FIG_STALE);
    assert_ends("11 operands, limits 12 to 32; the file was made by version 199, whose "
                "decode_attention differs, and this library is 200: capture the graphs anew");
    ((fig_file_kernel *)(void *)kernels->raw)->abi[0] ^= 1;
    assert_int_equal(parse_image(&s.image, &loaded), FIG_STALE);
    assert_non_null(strstr(fig_message(), "whose fetch and decode_attention differ, and"));
    shorn_finish(&s);
}

static void files_of_a_newer_library_are_stale_and_not_damaged(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_mixed(), *loaded;
    fig_forgery image = take_apart(made);
    image.sections[FIG_SECTION_TENS].raw[offsetof(fig_tensor_record, dtype)] = 99;
    for (uint32_t newer = 0; newer <= 1; newer++) {
        image.maker = FIG_VERSION + newer;
        assert_int_equal(parse_image(&image, &loaded), newer ? FIG_STALE : FIG_FORMAT);
        assert_non_null(strstr(fig_message(), "dtype is 99"));
    }
    fig_forgery_close(&image);
    fig_graphs_destroy(made);
}

/* A newer library may even have other limits of the format. These are checked after the checksum,
 * which shows that the file is not damaged. */
static void a_newer_library_has_other_limits(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_mixed(), *loaded;
    fig_forgery image = take_apart(made);
    fig_file_section *entry = &image.sections[FIG_SECTION_TENS].entry;
    entry->flags = 2;
    for (uint32_t newer = 0; newer <= 1; newer++) {
        image.maker = FIG_VERSION + newer;
        assert_int_equal(parse_image(&image, &loaded), newer ? FIG_STALE : FIG_FORMAT);
        assert_non_null(strstr(fig_message(), "section TENS: flags are 0x2"));
    }
    fig_forgery_close(&image);
    fig_graphs_destroy(made);
}

/* Messages go to terminals, so no name in them may hold control characters. */
static void names_that_messages_quote_are_plain_words(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_mixed(), *loaded;
    fig_forgery image = take_apart(made);
    fig_file_kernel *kernel = (void *)image.sections[FIG_SECTION_KERN].raw;
    kernel->op = 77;
    memcpy(kernel->name, "\033[2J", 5);
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "kernel 0: name is not a word of [a-z0-9_]"));
    memcpy(image.sections[0].entry.name, "\033[2J", 4);
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "a section's name is not four of A to Z and 0 to 9"));
    fig_forgery_close(&image);
    fig_graphs_destroy(made);
}

/* ---- Strangers' files with correct hashes */

/* Adds many names that nothing refers to. */
static void a_name_that_nothing_refers_to_is_refused(void **state) {
    (void)state;
    enum { NAMES = 20000, NAME_BYTES = 8 };
    fig_graphs *made = fig_capture_preset("tutorial", 1, "host"), *loaded;
    fig_forgery image = take_apart(made);
    const size_t names = image.sections[FIG_SECTION_STRS].raw_bytes;
    fig_forgery_resize(&image, FIG_SECTION_STRS, names + NAMES * NAME_BYTES);
    char *text = (char *)image.sections[FIG_SECTION_STRS].raw + names;
    for (int i = 0; i < NAMES * NAME_BYTES; i += NAME_BYTES) {
        char name[16];
        snprintf(name, sizeof name, "n%06d", i);
        memcpy(text + i, name, NAME_BYTES);
    }
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "nothing refers to \"n000000\""));
    fig_forgery_close(&image);
    fig_graphs_destroy(made);
}

/* The file is small, but the number of launches is the product of its calls and its buckets. */
static void a_file_of_more_launches_than_it_is_worth_is_refused(void **state) {
    (void)state;
    enum { NODES = 4096, BUCKETS = 256 };
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F16,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .batch_limit = 1,
                           .kv_limit = 4096};
    fig_program *program;
    fig_graphs *made, *loaded;
    fig_forgery image;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    for (int i = 0; i < NODES; i++)
        fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(
        fig_graphs_lower(&made, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = &(fig_bucket){1, BUCKETS},
                                     .bucket_count = 1)),
        FIG_OK);
    image = take_apart(made);
    fig_forgery_resize(&image, FIG_SECTION_BUCK, BUCKETS * FIG_FILE_BUCKET_BYTES_LEAST);
    fig_forgery_resize(&image, FIG_SECTION_DIGS, BUCKETS * sizeof(uint64_t));
    uint8_t *buckets = (void *)image.sections[FIG_SECTION_BUCK].raw;
    for (int32_t i = 0; i < BUCKETS; i++) {
        const int32_t kv = i + 1;
        uint8_t *bucket = buckets + (size_t)i * FIG_FILE_BUCKET_BYTES_LEAST;
        memmove(bucket, buckets, FIG_FILE_BUCKET_BYTES_LEAST);
        memcpy(bucket + offsetof(fig_file_bucket, kv), &kv, sizeof kv);
    }
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "256 buckets of 4097 launches, limit 1048576"));
    fig_forgery_close(&image);
    fig_program_destroy(program);
    fig_graphs_destroy(made);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_shorter_than_its_row_loads_as_it_is),
        cmocka_unit_test(operands_added_to_a_row_come_from_a_newer_library),
        cmocka_unit_test(too_few_operands_mean_a_stale_file_if_its_maker_had_another_row),
        cmocka_unit_test(files_of_a_newer_library_are_stale_and_not_damaged),
        cmocka_unit_test(a_newer_library_has_other_limits),
        cmocka_unit_test(names_that_messages_quote_are_plain_words),
        cmocka_unit_test(a_name_that_nothing_refers_to_is_refused),
        cmocka_unit_test(a_file_of_more_launches_than_it_is_worth_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
