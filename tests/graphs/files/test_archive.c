/* test_archive.c: tests that the kernels in a file are loaded only if the caller trusts them, and
 * that the loaded kernels are exactly the stored ones.
 *
 * The images are made up, and the fake driver loads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "kernels/table/families.h"
#include "tests/support/files/archived.h"
#include "tests/support/files/capture.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/fault.h"
#include "tests/support/gate.h"
#include "tests/support/files/forgery.h"
#include "tests/support/files/sample.h"

enum { LIST_LIMIT = FIG_ARCHIVE_IMAGE_LIMIT };

/* The images that `figraph inspect --images` lists. */
typedef struct list {
    char hex[LIST_LIMIT][65];
    const char *images[LIST_LIMIT];
    fig_trust trust;
} list;

static void trust_all(list *of, const fig_archive *archive) {
    of->trust = (fig_trust){.size = sizeof of->trust,
                            .images = of->images,
                            .image_count = (int32_t)archive->image_count};
    for (uint32_t i = 0; i < archive->image_count; i++) {
        fig_archive_hex(archive->images[i].sha256, of->hex[i]);
        of->images[i] = of->hex[i];
    }
}

/* Stands for a library without images. */
static fig_image no_image(fig_op op, uint32_t family, fig_image_path path) {
    (void)op;
    (void)family;
    (void)path;
    return (fig_image){NULL, 0, NULL};
}

/* Makes the sample of breadth with images, writes it and reads it back. */
static fig_graphs *archived(void) {
    fig_graphs *graphs = fig_capture_breadth(), *loaded;
    uint8_t *bytes;
    size_t count;
    fig_archived_fill(graphs);
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    if (fig_graphs_parse(&loaded, bytes, count) != FIG_OK) fail_msg("%s", fig_message());
    assert_memory_equal(loaded->content_id, graphs->content_id, 32);
    free(bytes);
    fig_graphs_destroy(graphs);
    return loaded;
}

static void the_trusted_images_are_the_stored_ones(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = archived();
    fig_archive_admitted admitted;
    trust_all(&all, &graphs->archive);
    assert_true(graphs->archive.image_count > 10);
    if (fig_archive_admit(&graphs->archive, &all.trust, no_image, &admitted) != FIG_OK)
        fail_msg("%s", fig_message());
    assert_int_equal(admitted.set.count, graphs->archive.image_count);
    for (uint32_t i = 0; i < admitted.set.count; i++) {
        const fig_image_given *given = &admitted.set.images[i];
        const fig_image due = fig_archived_image(given->op, given->family, given->path);
        assert_int_equal(given->image.count, due.count);
        assert_memory_equal(given->image.bytes, due.bytes, due.count);
        assert_int_equal((uintptr_t)given->image.bytes % 16, 0);
    }
    fig_archive_admitted_finish(&admitted);
    fig_graphs_destroy(graphs);
}

static void records_are_of_the_kernels_used_and_in_order(void **state) {
    (void)state;
    fig_graphs *graphs = archived();
    const uint32_t used = fig_codec_kernels_of(fig_program_view_of(graphs->program));
    const fig_archive *archive = &graphs->archive;
    uint32_t count = 0;
    for (fig_op op = 0; op < FIG_OP_KERNEL_COUNT; op++)
        for (uint32_t family = 0; used >> op & 1 && fig_families_of(op, family) != NULL; family++)
            count += op == FIG_OP_GATED ? 1 : 2;
    assert_int_equal(archive->image_count, count);
    assert_int_equal(fig_archive_check(archive), FIG_OK);
    fig_image_info info = {.size = sizeof info};
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(fig_graphs_image(graphs, (int32_t)i, &info), FIG_OK);
        assert_true(info.is_embedded && !info.is_own);
        assert_true(info.compute_capability == 80 || info.compute_capability == 90);
        assert_string_equal(info.operation, fig_kernel_table[archive->images[i].op].name);
        assert_int_equal(strlen(info.sha256), 64);
    }
    FIG_SAMPLE_REFUSES(fig_graphs_image(graphs, (int32_t)count, &info), FIG_INVALID, "index is");
    FIG_SAMPLE_REFUSES(fig_graphs_image(graphs, -1, &info), FIG_INVALID, "index is -1");
    fig_graphs_destroy(graphs);
}

static void an_image_not_on_the_list_is_refused_with_advice(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = archived();
    fig_archive_admitted admitted;
    trust_all(&all, &graphs->archive);
    for (uint32_t i = 0; i < graphs->archive.image_count; i++) {
        char missing[65];
        memcpy(missing, all.hex[i], sizeof missing);
        all.hex[i][5] = all.hex[i][5] == '0' ? '1' : '0';
        const fig_status status =
            fig_archive_admit(&graphs->archive, &all.trust, no_image, &admitted);
        FIG_SAMPLE_REFUSES(status, FIG_INVALID, missing);
        assert_non_null(strstr(fig_message(), "add that to fig_trust.images"));
        assert_null(admitted.code);
        memcpy(all.hex[i], missing, sizeof missing);
    }
    fig_graphs_destroy(graphs);
}

static void the_library_s_own_images_need_no_list(void **state) {
    (void)state;
    fig_graphs *graphs = archived();
    fig_archive_admitted admitted;
    const fig_trust none = {.size = sizeof none};
    assert_int_equal(fig_archive_admit(&graphs->archive, &none, fig_archived_image, &admitted),
                     FIG_OK);
    fig_archive_admitted_finish(&admitted);
    fig_graphs_destroy(graphs);
}

static void an_invalid_list_is_refused(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = archived(), *plain = fig_capture_mixed();
    fig_archive_admitted admitted;
    trust_all(&all, &graphs->archive);
    all.hex[2][63] = 'g';
    FIG_SAMPLE_REFUSES(fig_archive_admit(&graphs->archive, &all.trust, no_image, &admitted),
                       FIG_INVALID, "image 2 is not a SHA-256");
    all.hex[2][63] = '\0';
    FIG_SAMPLE_REFUSES(fig_archive_admit(&graphs->archive, &all.trust, no_image, &admitted),
                       FIG_INVALID, "image 2 is not a SHA-256");
    all.images[1] = NULL;
    FIG_SAMPLE_REFUSES(fig_archive_admit(&graphs->archive, &all.trust, no_image, &admitted),
                       FIG_INVALID, "image 1 is not a SHA-256");
    all.trust.images = NULL;
    FIG_SAMPLE_REFUSES(fig_archive_admit(&graphs->archive, &all.trust, no_image, &admitted),
                       FIG_INVALID, "images is NULL");
    FIG_SAMPLE_REFUSES(fig_archive_admit(&plain->archive, NULL, no_image, &admitted),
                       FIG_UNSUPPORTED, "the file holds no images");
    fig_graphs_destroy(plain);
    fig_graphs_destroy(graphs);
}

/* A forger could do this: the file's record names a trusted image, but the bytes differ from it. */
static void bytes_that_are_not_the_image_are_refused(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = archived();
    fig_archive_admitted admitted;
    trust_all(&all, &graphs->archive);
    for (uint32_t i = 0; i < graphs->archive.image_count; i++) {
        graphs->archive.images[i].sha256[31] ^= 1;
        trust_all(&all, &graphs->archive);
        FIG_SAMPLE_REFUSES(fig_archive_admit(&graphs->archive, &all.trust, no_image, &admitted),
                           FIG_FORMAT, "does not have the SHA-256 that IMAG records");
        assert_null(admitted.code);
        graphs->archive.images[i].sha256[31] ^= 1;
    }
    /* The section's last bytes are zstd's checksum, or the code itself if it is stored raw. */
    trust_all(&all, &graphs->archive);
    graphs->archive.code[graphs->archive.stored_bytes - 1] ^= 0x55;
    assert_int_equal(fig_archive_admit(&graphs->archive, &all.trust, no_image, &admitted),
                     FIG_FORMAT);
    graphs->archive.stored_bytes -= 4;
    FIG_SAMPLE_REFUSES(fig_archive_admit(&graphs->archive, &all.trust, no_image, &admitted),
                       FIG_FORMAT, "section CODE: zstd:");
    fig_graphs_destroy(graphs);
}

static void unknown_images_are_kept_but_never_loaded(void **state) {
    (void)state;
    fig_graphs *graphs = archived();
    fig_archive *archive = &graphs->archive;
    fig_archive_admitted admitted;
    const fig_trust none = {.size = sizeof none};
    uint32_t unknown = 0;
    for (uint32_t i = archive->image_count; i-- > archive->image_count - 3;) {
        archive->images[i].op = 1000 + i;
        unknown++;
    }
    archive->images[0].compute_capability = 70;
    memcpy(archive->images[archive->image_count - 4].family, "zzz\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    assert_int_equal(fig_archive_check(archive), FIG_OK);
    assert_int_equal(fig_archive_admit(archive, &none, fig_archived_image, &admitted), FIG_OK);
    assert_int_equal(admitted.set.count, archive->image_count - unknown - 2);
    fig_archive_admitted_finish(&admitted);
    fig_image_info info = {.size = sizeof info};
    assert_int_equal(fig_graphs_image(graphs, (int32_t)archive->image_count - 1, &info), FIG_OK);
    assert_string_equal(info.operation, "unknown");
    fig_graphs_destroy(graphs);
}

/* ---- Images in each other's place */

static fig_image_given here, there; /* two places, whose images are exchanged, or are one image */

static int is_at(const fig_image_given *place, fig_op op, uint32_t family, fig_image_path path) {
    return place->op == op && place->family == family && place->path == path;
}

static fig_image exchanged(fig_op op, uint32_t family, fig_image_path path) {
    if (is_at(&here, op, family, path))
        return fig_archived_image(there.op, there.family, there.path);
    if (is_at(&there, op, family, path)) return fig_archived_image(here.op, here.family, here.path);
    return fig_archived_image(op, family, path);
}

static fig_image twins(fig_op op, uint32_t family, fig_image_path path) {
    if (is_at(&there, op, family, path)) return fig_archived_image(here.op, here.family, here.path);
    return fig_archived_image(op, family, path);
}

static void fill(fig_archive *archive, fig_image_source source) {
    const uint32_t ops = 1u << here.op | 1u << there.op;
    assert_int_equal(fig_archive_record(archive, ops, source), FIG_OK);
    assert_int_equal(fig_archive_embed(archive, source), FIG_OK);
    assert_int_equal(fig_archive_check(archive), FIG_OK);
}

static void an_image_of_this_library_in_another_place_is_refused(void **state) {
    (void)state;
    static const fig_image_given pairs[][2] = {
        {{.op = FIG_OP_RMS_NORM, .path = FIG_IMAGE_PLAIN},
         {.op = FIG_OP_RMS_NORM, .path = FIG_IMAGE_HOPPER}},
        {{.op = FIG_OP_ATTENTION, .family = 0, .path = FIG_IMAGE_HOPPER},
         {.op = FIG_OP_ATTENTION, .family = 2, .path = FIG_IMAGE_HOPPER}},
        {{.op = FIG_OP_FETCH, .path = FIG_IMAGE_PLAIN},
         {.op = FIG_OP_ROPE, .path = FIG_IMAGE_PLAIN}},
    };
    static const char *const said[] = {
        "image of rms_norm (general, 8.0) is this library's image of rms_norm (general, 9.0)",
        "image of attention (short, 9.0) is this library's image of attention (short_turn, 9.0)",
        "image of fetch (general, 8.0) is this library's image of rope (general, 8.0)",
    };
    static list all;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        fig_archive archive = {0};
        fig_archive_admitted admitted;
        here = pairs[i][0];
        there = pairs[i][1];
        fill(&archive, exchanged);
        trust_all(&all, &archive);
        FIG_SAMPLE_REFUSES(fig_archive_admit(&archive, &all.trust, fig_archived_image, &admitted),
                           FIG_INVALID, said[i]);
        assert_null(admitted.code);
        /* to a library with other images, they are what the caller trusts */
        assert_int_equal(fig_archive_admit(&archive, &all.trust, no_image, &admitted), FIG_OK);
        fig_archive_admitted_finish(&admitted);
        fig_archive_finish(&archive);
    }
}

static void one_image_may_be_the_library_s_own_in_two_places(void **state) {
    (void)state;
    fig_archive archive = {0};
    fig_archive_admitted admitted;
    const fig_trust none = {.size = sizeof none};
    here = (fig_image_given){.op = FIG_OP_ROPE, .path = FIG_IMAGE_PLAIN};
    there = (fig_image_given){.op = FIG_OP_ROPE, .path = FIG_IMAGE_HOPPER};
    fill(&archive, twins);
    if (fig_archive_admit(&archive, &none, twins, &admitted) != FIG_OK)
        fail_msg("%s", fig_message());
    fig_archive_admitted_finish(&admitted);
    fig_archive_finish(&archive);
}

/* ---- In a file */

enum { META = 0, IMAG, CODE }; /* places in the table, counted from the one of META */

static void assert_refused(fig_forgery *image, fig_status expected, const char *said) {
    fig_graphs *graphs;
    size_t count;
    uint8_t *bytes = fig_forgery_write(image, 1, &count);
    const fig_status status = fig_graphs_parse(&graphs, bytes, count);
    free(bytes);
    FIG_SAMPLE_REFUSES(status, expected, said);
}

static void open_archived(fig_forgery *image) {
    fig_graphs *graphs = archived();
    uint8_t *bytes;
    size_t count;
    assert_int_equal(fig_graphs_write(graphs, &bytes, &count), FIG_OK);
    fig_forgery_open(image, bytes, count);
    free(bytes);
    fig_graphs_destroy(graphs);
}

static void a_file_that_no_maker_would_write_is_refused(void **state) {
    (void)state;
    fig_forgery image;
    open_archived(&image);
    fig_forgery_section *meta = &image.sections[image.count - 3 + META];
    fig_forgery_section *imag = &image.sections[image.count - 3 + IMAG];
    fig_archive_image *records = (void *)imag->raw;
    assert_memory_equal(imag->entry.name, "IMAG", 4);
    meta->raw[0] = ' ';
    assert_refused(&image, FIG_FORMAT, "section META: note 0: its key");
    meta->raw[0] = 'm';
    meta->entry.flags = 0;
    assert_refused(&image, FIG_FORMAT, "section META: flags are 0, they must be 0x1");
    meta->entry.flags = 1;
    records[1].family[0] = 'X';
    assert_refused(&image, FIG_FORMAT, "section IMAG: image 1: family is not a name of [a-z0-9_]");
    records[1].family[0] = '\0';
    assert_refused(&image, FIG_FORMAT, "section IMAG: image 1: family is not a name of [a-z0-9_]");
    memset(records[1].family, 'x', sizeof records[1].family);
    assert_refused(&image, FIG_FORMAT, "section IMAG: image 1: family is not a name of [a-z0-9_]");
    records[1] = records[0];
    assert_refused(&image, FIG_FORMAT, "image 1 does not come after the one before");
    records[1].compute_capability++;
    records[1].bytes = 0;
    assert_refused(&image, FIG_FORMAT, "image 1: bytes is 0, limits 1 to 33554432");
    records[1].bytes = UINT64_MAX;
    assert_refused(&image, FIG_FORMAT, "image 1: bytes is 18446744073709551615");
    records[1].bytes = 1000;
    assert_refused(&image, FIG_FORMAT, "section IMAG: the images take");
    fig_forgery_close(&image);
}

/* The images claim a thousand times their stored size. Parsing must allocate no memory for them. */
static void a_claim_of_code_costs_nothing_until_it_is_trusted(void **state) {
    (void)state;
    fig_forgery image;
    fig_graphs *graphs;
    size_t count;
    open_archived(&image);
    fig_archive_image *records = (void *)image.sections[image.count - 3 + IMAG].raw;
    const uint32_t images = (uint32_t)image.sections[image.count - 3 + IMAG].raw_bytes / 64;
    for (uint32_t i = 0; i < images; i++)
        records[i].bytes = 1 << 20;
    fig_forgery_resize(&image, image.count - 3 + CODE, (size_t)images << 20);
    uint8_t *bytes = fig_forgery_write(&image, 3, &count);
    fig_forgery_close(&image);
    assert_true(images >= 16 && count < 32 << 10);
    assert_int_equal(fig_graphs_parse(&graphs, bytes, count), FIG_OK);
    assert_int_equal(graphs->archive.code_bytes, images << 20);
    assert_true(graphs->archive.stored_bytes < count);
    free(bytes);
    fig_graphs_destroy(graphs);
}

/* A library built without nvcc has no images, and the message must say so. */
static void embedding_adds_the_library_s_images_or_says_that_it_has_none(void **state) {
    (void)state;
    char path[] = "/tmp/test_archive.XXXXXX";
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "h200"), *loaded;
    const fig_archive_options embed = {.size = sizeof embed, .embed = 1};
    const int has_images = fig_images_of(FIG_OP_FETCH, 0, FIG_IMAGE_PLAIN).bytes != NULL;
    fig_image_info info = {.size = sizeof info};
    close(mkstemp(path));
    const fig_status status = fig_graphs_archive(graphs, path, &embed);
    if (!has_images) {
        FIG_SAMPLE_REFUSES(status, FIG_UNSUPPORTED, "it was built without nvcc");
    } else {
        assert_int_equal(status, FIG_OK);
        assert_int_equal(fig_graphs_load(&loaded, path), FIG_OK);
        for (int32_t i = 0; fig_graphs_image(loaded, i, &info) == FIG_OK; i++)
            assert_true(info.is_own && info.is_embedded);
        fig_graphs_destroy(loaded);
    }
    assert_int_equal(fig_graphs_image(graphs, 0, &info) == FIG_OK, has_images);
    graphs->changed_kernels = 1;
    FIG_SAMPLE_REFUSES(fig_graphs_archive(graphs, path, &embed), FIG_UNSUPPORTED,
                       "had other kernels than this library");
    FIG_SAMPLE_REFUSES(
        fig_graphs_archive(graphs, path, FIG_OPTIONS(fig_archive_options, .embed = 2)), FIG_INVALID,
        "embed is 2");
    fig_graphs_destroy(graphs);
    unlink(path);
}

static void running_out_of_memory_loses_no_image(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = archived();
    trust_all(&all, &graphs->archive);
    for (int64_t n = 1;; n++) {
        fig_archive clone, made = {0};
        fig_archive_admitted admitted = {0};
        fig_fault_arm(n);
        fig_status status = fig_archive_clone(&clone, &graphs->archive);
        if (status == FIG_OK) status = fig_archive_record(&made, 1, fig_archived_image);
        if (status == FIG_OK) status = fig_archive_embed(&made, fig_archived_image);
        if (status == FIG_OK) status = fig_archive_admit(&clone, &all.trust, no_image, &admitted);
        const int64_t seen = fig_fault_disarm();
        if (seen >= n) assert_int_equal(status, FIG_NOMEM);
        fig_archive_admitted_finish(&admitted);
        fig_archive_finish(&clone);
        fig_archive_finish(&made);
        if (seen < n) break;
        assert_true(n < 20);
    }
    fig_graphs_destroy(graphs);
}

/* ---- In an engine */

/* Makes the graphs of the gate's program with images. */
static fig_graphs *archived_gate(void) {
    fig_graphs *graphs = fig_capture_preset("tutorial", 1, "h200");
    fig_archived_fill(graphs);
    return graphs;
}

static fig_status open_engine(fig_graphs *graphs, fig_device device, const fig_trust *trust) {
    fig_engine *engine;
    const fig_status status = fig_engine_open(
        &engine, graphs, FIG_OPTIONS(fig_engine_options, .device = device, .trust = trust));
    fig_engine_close(engine);
    return status;
}

static void an_engine_loads_only_trusted_images(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = archived_gate();
    const fig_trust none = {.size = sizeof none};
    trust_all(&all, &graphs->archive);
    assert_int_equal(open_engine(graphs, FIG_DEVICE_CUDA, NULL), FIG_OK);
    assert_int_equal(fig_cuda_bench_fake->foreign_images, 0);
    FIG_SAMPLE_REFUSES(open_engine(graphs, FIG_DEVICE_CUDA, &none), FIG_INVALID, "is not trusted");
    assert_int_equal(fig_cuda_bench_fake->foreign_images, 0);
    if (open_engine(graphs, FIG_DEVICE_CUDA, &all.trust) != FIG_OK) fail_msg("%s", fig_message());
    /* the fetch's image, which open loads as a trial */
    assert_int_equal(fig_cuda_bench_fake->foreign_images, 1);
    FIG_SAMPLE_REFUSES(open_engine(graphs, FIG_DEVICE_HOST, &all.trust), FIG_UNSUPPORTED,
                       "it cannot run kernel images");
    graphs->changed_kernels = 1u << FIG_OP_ATTENTION;
    FIG_SAMPLE_REFUSES(open_engine(graphs, FIG_DEVICE_CUDA, &all.trust), FIG_UNSUPPORTED,
                       "trust: attention takes other params");
    fig_graphs_destroy(graphs);
}

/* Every image that a step needs comes from the file. */
static void a_step_runs_on_images_of_the_file(void **state) {
    (void)state;
    static list all;
    fig_graphs *graphs = archived_gate();
    fig_engine *engine;
    fig_tensor_info tensor = {.size = sizeof tensor};
    const int32_t length = 5;
    trust_all(&all, &graphs->archive);
    assert_int_equal(fig_engine_open(&engine, graphs,
                                     FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA,
                                                 .trust = &all.trust)),
                     FIG_OK);
    for (int32_t i = 0; fig_graphs_tensor(graphs, i, &tensor) == FIG_OK; i++)
        assert_int_equal(fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = tensor.name,
                                                             .bytes = 1 << 18)),
                         FIG_OK);
    assert_int_equal(
        fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &length)), FIG_OK);
    assert_int_equal(fig_engine_wait(engine, 10000000), FIG_OK);
    assert_true(fig_cuda_bench_fake->foreign_images >= 3);
    assert_non_null(fig_cuda_bench_fake->ran[FIG_OP_FETCH]);
    assert_non_null(fig_cuda_bench_fake->ran[FIG_OP_GATED]);
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_trusted_images_are_the_stored_ones),
        cmocka_unit_test(records_are_of_the_kernels_used_and_in_order),
        cmocka_unit_test(an_image_not_on_the_list_is_refused_with_advice),
        cmocka_unit_test(the_library_s_own_images_need_no_list),
        cmocka_unit_test(an_invalid_list_is_refused),
        cmocka_unit_test(bytes_that_are_not_the_image_are_refused),
        cmocka_unit_test(an_image_of_this_library_in_another_place_is_refused),
        cmocka_unit_test(one_image_may_be_the_library_s_own_in_two_places),
        cmocka_unit_test(unknown_images_are_kept_but_never_loaded),
        cmocka_unit_test(a_file_that_no_maker_would_write_is_refused),
        cmocka_unit_test(a_claim_of_code_costs_nothing_until_it_is_trusted),
        cmocka_unit_test(embedding_adds_the_library_s_images_or_says_that_it_has_none),
        cmocka_unit_test(running_out_of_memory_loses_no_image),
        FIG_CUDA_BENCH_TEST(an_engine_loads_only_trusted_images),
        FIG_CUDA_BENCH_TEST(a_step_runs_on_images_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
