/* test_images.c: tests that a library has the images of all kernels for all paths, or no image at
 * all. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <zstd.h>

#include "graphs/view/hash.h"
#include "kernels/table/families.h"
#include "kernels/table/images.h"
#include "tests/support/kernels/row_entries.h"

enum { BYTES_LIMIT = 32 << 20, PART_LIMIT = 64 << 20, PTX = 1, MACHINE_CODE = 2 };

/* The head of a fatbin, as nvcc writes it. The formats of this head and of a part's head are
 * undocumented. */
typedef struct images_head {
    uint32_t magic;
    uint16_t version, head_bytes;
    uint64_t bytes; /* the number of bytes of all parts behind the head */
} images_head;

/* The head of a part: a program for one chip, whose bytes follow this head. */
typedef struct images_part {
    uint16_t kind, version;
    uint32_t head_bytes;
    uint64_t bytes;
    uint32_t unknown[3], chip; /* chip: 90 is compute capability 9.0 */
} images_part;

/* The image of one family for one path. */
typedef struct images_place {
    fig_op op;
    uint32_t family;
    fig_image_path path;
    fig_image image;
} images_place;

typedef void images_visit(const images_place *place);

static int is_template(fig_op op, uint32_t family) {
    return fig_families_of(op, family)->compiles;
}

/* Returns the image or the template of a family, which never has both. */
static fig_image image_of(fig_op op, uint32_t family, fig_image_path path) {
    const fig_image image = fig_images_of(op, family, path);
    const fig_image template = fig_images_template(op, family, path);
    assert_null(is_template(op, family) ? image.bytes : template.bytes);
    return is_template(op, family) ? template : image;
}

/* Calls `visit` for every family and path. In a library that was built without nvcc, their images
 * are empty. */
static void for_each_place(images_visit *visit) {
    for (fig_op op = 0; op < FIG_OP_KERNEL_COUNT; op++)
        for (uint32_t family = 0; fig_families_of(op, family) != NULL; family++)
            for (fig_image_path path = 0; path < FIG_IMAGE_PATH_COUNT; path++)
                visit(&(images_place){op, family, path, image_of(op, family, path)});
}

static int is_built_with_nvcc(void) {
    return fig_images_of(FIG_OP_FETCH, 0, FIG_IMAGE_PLAIN).bytes != NULL;
}

static void for_each_image(images_visit *visit) {
    if (is_built_with_nvcc()) for_each_place(visit);
}

static const char *name_of(const images_place *place) {
    return fig_kernel_table[place->op].name;
}

/* A family that needs compute capability 9.0 may lack an image for the other path. The last family
 * of an operation always has one. The exception is whole_attention: instead of it, a run can use a
 * plan and attention. */
static void check_presence(const images_place *place) {
    const int there = is_built_with_nvcc();
    const int is_last = fig_families_of(place->op, place->family + 1) == NULL &&
                        place->op != FIG_OP_WHOLE_ATTENTION;
    assert_int_equal(place->image.bytes != NULL, place->image.count > 0);
    if (place->image.bytes == NULL && there && !is_last && place->path == FIG_IMAGE_PLAIN) return;
    if ((place->image.bytes != NULL) != there)
        fail_msg("%s, family %u, path %d: %zu bytes in a library %s images", name_of(place),
                 place->family, place->path, place->image.count, there ? "with" : "without");
}

static void all_images_are_there_or_all_are_absent(void **state) {
    (void)state;
    printf("built %s nvcc\n", is_built_with_nvcc() ? "with" : "without");
    for_each_place(check_presence);
}

static size_t sum;

static void add_bytes(const images_place *place) {
    sum += place->image.count;
}

static void all_images_together_are_below_32_mib(void **state) {
    (void)state;
    sum = 0;
    for_each_place(add_bytes);
    printf("images: %zu bytes\n", sum);
    assert_true(sum < BYTES_LIMIT);
}

static void check_head(const images_place *place) {
    const fig_image image = place->image;
    images_head head;
    if (image.bytes == NULL || is_template(place->op, place->family)) return;
    assert_int_equal((uintptr_t)image.bytes % 16, 0);
    assert_true(image.count > sizeof head);
    memcpy(&head, image.bytes, sizeof head);
    if (head.magic != 0xba55ed50 || head.head_bytes != sizeof head ||
        head.bytes != image.count - sizeof head)
        fail_msg("%s, path %d: magic %08x, %u + %llu bytes of %zu", name_of(place), place->path,
                 head.magic, head.head_bytes, (unsigned long long)head.bytes, image.count);
}

static void an_image_is_one_whole_aligned_fatbin(void **state) {
    (void)state;
    for_each_image(check_head);
}

static void check_hash(const images_place *place) {
    uint8_t sha256[32];
    fig_hash_sha256 hash;
    if (place->image.bytes == NULL) return;
    fig_hash_sha256_init(&hash);
    fig_hash_sha256_add(&hash, place->image.bytes, place->image.count);
    fig_hash_sha256_finish(&hash, sha256);
    assert_memory_equal(place->image.sha256, sha256, sizeof sha256);
}

static void an_image_comes_with_its_hash(void **state) {
    (void)state;
    for_each_image(check_hash);
}

/* Returns 1 if the bytes contain `name` as a whole word, not as the beginning of a longer name. */
static int holds_name(const char *bytes, size_t count, const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i + length < count; i++) {
        unsigned char next = (unsigned char)bytes[i + length];
        if (memcmp(bytes + i, name, length) == 0 && next != '_' && !isalnum(next)) return 1;
    }
    return 0;
}

/* Does the same for the bytes of a part, which nvcc may have compressed. */
static int part_holds_name(const char *bytes, size_t count, const char *name) {
    unsigned long long plain_bytes = ZSTD_getFrameContentSize(bytes, count);
    if (plain_bytes == ZSTD_CONTENTSIZE_ERROR) return holds_name(bytes, count, name);
    assert_true(plain_bytes <= PART_LIMIT);
    char *plain = malloc((size_t)plain_bytes + 1);
    assert_non_null(plain);
    size_t frame = ZSTD_findFrameCompressedSize(bytes, count);
    assert_false(ZSTD_isError(frame));
    size_t got = ZSTD_decompress(plain, (size_t)plain_bytes, bytes, frame);
    assert_int_equal(got, plain_bytes);
    int holds = holds_name(plain, got, name);
    free(plain);
    return holds;
}

/* Returns a bit that stands for the kind and the chip of a part; 0 if no path needs such a part. */
static unsigned bit_of(const images_part *part) {
    if (part->kind == PTX) return part->chip == 80 ? 1 : 0;
    return part->chip == 80 ? 2 : part->chip == 90 ? 4 : 0;
}

/* Returns 1 if the part holds both entries of a kernel that works row by row. nvcc compresses some
 * of their plain images, in which names cannot be found; these have the same source. */
static int part_holds_pair(const images_place *place, const char *second, const char *bytes,
                           size_t count) {
    char name[FIG_ENTRY_BYTES];
    const int length = snprintf(name, sizeof name, "fig_kernel_%s", name_of(place));
    if (place->path == FIG_IMAGE_PLAIN) return 1;
    if (!part_holds_name(bytes, count, name)) return 0;
    snprintf(name + length, sizeof name - (size_t)length, "%s", second);
    return part_holds_name(bytes, count, name);
}

/* Returns 1 if the part holds the family's entry. Other families that choose among entries by
 * params are not checked. */
static int part_holds_entry(const images_place *place, const char *bytes, size_t count) {
    char name[FIG_ENTRY_BYTES];
    const char *second = fig_row_entries_suffix(place->op, place->family);
    if (second != NULL) return part_holds_pair(place, second, bytes, count);
    if (fig_families_of(place->op, place->family)->entry != NULL) return 1;
    fig_families_entry(place->op, place->family, NULL, name);
    return part_holds_name(bytes, count, name);
}

/* Returns the parts that a place has. The plain images of prompts have no code for 9.0: they are
 * large, and a 9.0 takes their hopper images. */
static unsigned parts_of(const images_place *place) {
    const int is_prompt = place->op == FIG_OP_PROMPT_ATTENTION || place->op == FIG_OP_SCORED_PROMPT;
    if (place->path == FIG_IMAGE_HOPPER) return 4;
    return is_prompt ? 1 + 2 : 1 + 2 + 4;
}

static void check_parts(const images_place *place) {
    const fig_image image = place->image;
    unsigned seen = 0;
    if (image.bytes == NULL || is_template(place->op, place->family)) return;
    for (size_t at = sizeof(images_head); at < image.count;) {
        const char *bytes = (const char *)image.bytes + at;
        images_part part;
        assert_true(image.count - at > sizeof part);
        memcpy(&part, bytes, sizeof part);
        assert_true(part.kind == PTX || part.kind == MACHINE_CODE);
        assert_true(part.head_bytes >= sizeof part && part.head_bytes < image.count - at);
        assert_true(part.bytes > 0 && part.bytes <= image.count - at - part.head_bytes);
        const char *what = part.kind == PTX ? "PTX" : "code";
        if (bit_of(&part) == 0 || (seen & bit_of(&part)) != 0)
            fail_msg("%s, path %d: %s for %u", name_of(place), place->path, what, part.chip);
        if (!part_holds_entry(place, bytes + part.head_bytes, (size_t)part.bytes))
            fail_msg("%s, path %d: %s for %u does not name its entry", name_of(place), place->path,
                     what, part.chip);
        seen |= bit_of(&part);
        at += part.head_bytes + (size_t)part.bytes;
    }
    assert_int_equal(seen, parts_of(place));
}

static void an_image_names_its_entry_for_each_chip_of_its_path(void **state) {
    (void)state;
    for_each_image(check_parts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_images_are_there_or_all_are_absent),
        cmocka_unit_test(all_images_together_are_below_32_mib),
        cmocka_unit_test(an_image_is_one_whole_aligned_fatbin),
        cmocka_unit_test(an_image_comes_with_its_hash),
        cmocka_unit_test(an_image_names_its_entry_for_each_chip_of_its_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
