/* test_codec_strangers.c: what is said of whole files that this library would not have written.
 *
 * Their hashes and frames agree: a newer library made them, or somebody who means no good. What a
 * newer library made is stale and not damaged; what nobody records costs next to nothing. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "graphs/files/sections.h"
#include "graphs/graphs.h"
#include "tests/support/capture.h"
#include "tests/support/forgery.h"

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

/* As a library would write it whose row of attention has an operand more. */
static void an_operation_of_one_operand_more_is_age_where_its_row_is_another(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_preset("tutorial", 1, "host"), *loaded;
    fig_forgery image = take_apart(made);
    fig_forgery_section *nodes = &image.sections[FIG_SECTION_NODE];
    fig_node *last = (fig_node *)(void *)(nodes->raw + nodes->raw_bytes) - 1;
    assert_int_equal(last->op, FIG_OP_DECODE_ATTENTION);
    last->operand_count++;
    fig_forgery_resize(&image, FIG_SECTION_OPND, image.sections[FIG_SECTION_OPND].raw_bytes + 4);
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "17 operands, it must be 16"));
    assert_null(strstr(fig_message(), "capture the graphs anew"));

    fig_forgery_section *kernels = &image.sections[FIG_SECTION_KERN];
    fig_file_kernel *row = (fig_file_kernel *)(void *)(kernels->raw + kernels->raw_bytes) - 1;
    assert_int_equal(row->op, FIG_OP_DECODE_ATTENTION);
    row->abi[0] ^= 1;
    assert_int_equal(parse_image(&image, &loaded), FIG_STALE);
    assert_null(loaded);
    assert_ends("17 operands, it must be 16; the file was made by another build of version 100, "
                "whose decode_attention differs: capture the graphs anew");
    image.maker = FIG_VERSION - 1;
    assert_int_equal(parse_image(&image, &loaded), FIG_STALE);
    assert_ends("17 operands, it must be 16; the file was made by version 99, whose "
                "decode_attention differs, and this library is 100: capture the graphs anew");
    ((fig_file_kernel *)(void *)kernels->raw)->abi[0] ^= 1;
    assert_int_equal(parse_image(&image, &loaded), FIG_STALE);
    assert_non_null(strstr(fig_message(), "whose fetch and decode_attention differ, and"));
    fig_forgery_close(&image);
    fig_graphs_destroy(made);
}

static void what_a_newer_library_made_is_age_and_no_damage(void **state) {
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

/* Of the form as well, once the check has told that nothing was damaged. */
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

/* A sentence goes to a terminal. */
static void names_that_come_to_stand_in_sentences_are_words(void **state) {
    (void)state;
    fig_graphs *made = fig_capture_mixed(), *loaded;
    fig_forgery image = take_apart(made);
    fig_file_kernel *kernel = (void *)image.sections[FIG_SECTION_KERN].raw;
    kernel->op = 77;
    memcpy(kernel->name, "\033[2J", 5);
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "kernel 0: name is no word of [a-z0-9_]"));
    memcpy(image.sections[0].entry.name, "\033[2J", 4);
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "a section's name is not four of A to Z and 0 to 9"));
    fig_forgery_close(&image);
    fig_graphs_destroy(made);
}

/* ---- Files of strangers, whose hashes agree as well */

/* Names in plenty, which nothing refers to. */
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

/* A few bytes of calls, times a few bytes of buckets. */
static void a_file_of_more_launches_than_it_is_worth_is_refused(void **state) {
    (void)state;
    enum { NODES = 4096, BUCKETS = 64 };
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
    fig_forgery_resize(&image, FIG_SECTION_BUCK, BUCKETS * sizeof(fig_file_bucket));
    fig_forgery_resize(&image, FIG_SECTION_DIGS, BUCKETS * sizeof(uint64_t));
    fig_file_bucket *buckets = (void *)image.sections[FIG_SECTION_BUCK].raw;
    for (int i = 0; i < BUCKETS; i++) {
        buckets[i] = buckets[0];
        buckets[i].kv = i + 1;
    }
    assert_int_equal(parse_image(&image, &loaded), FIG_FORMAT);
    assert_non_null(strstr(fig_message(), "64 buckets of 4097 launches, limit 262144"));
    fig_forgery_close(&image);
    fig_program_destroy(program);
    fig_graphs_destroy(made);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operation_of_one_operand_more_is_age_where_its_row_is_another),
        cmocka_unit_test(what_a_newer_library_made_is_age_and_no_damage),
        cmocka_unit_test(a_newer_library_has_other_limits),
        cmocka_unit_test(names_that_come_to_stand_in_sentences_are_words),
        cmocka_unit_test(a_name_that_nothing_refers_to_is_refused),
        cmocka_unit_test(a_file_of_more_launches_than_it_is_worth_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
