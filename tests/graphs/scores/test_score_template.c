/* test_score_template.c: completes the library's templates for scores, and gives the texts to
 * ptxas.
 *
 * Without nvcc the library has no templates, and without ptxas nothing assembles them; the tests
 * that need them then say so and pass. SCORES=all gives ptxas every score for every entry, which
 * takes a core a quarter of an hour. Otherwise one entry gets every score, and every entry of
 * head_dim 128 gets one score. */
#define _GNU_SOURCE /* popen */
#include "graphs/scores/score_template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

#include <cmocka.h>

#include "planner/scores/score.h"
#include "planner/status.h"

static const char *const texts[] = {
    "f32 slope[]; score + slope[head] * (kv_pos - q_pos)", "score", "30 * tanh(score / 30) + 1",
    "bf16 bias[]; score + bias[row * 4096 + kv_pos]",
    "f32 bias[]; d = q_pos - kv_pos; far = 16 + int(log2(d / 16.0) / 3.0 * 16.0); "
    "score + bias[head * 32 + select(d < 16, d, min(far, 31))]",
    "weights sigmoid; score - log2(kv_length) * 0.6931472",
    "select(kv_pos // 8192 == q_pos // 8192, score, -inf)",
    "i32 document[]; select(document[kv_pos] == document[q_pos], score, -inf)",
    "select((kv_pos < 4) | (kv_pos > q_pos - 1024), score, -inf)",
    "i32 sees[]; n = kv_pos - kv_length + 8; "
    "select((n < 0) | (sees[row * 8 + q_pos - kv_length + 8] >> n & 1), score, -inf)",
    "score * cos(kv_pos - q_pos) + sin(score) / kv_head",
    "f32 a[]; b = a[q_pos % 7] * score; min(max(b, -3), exp2(abs(b))) + (kv_pos != 3)",
    /* every function, twice or more */
    "i32 n[]; weights sigmoid; i = (q_pos // n[row] ^ kv_pos % n[head]) << 3 >> n[1] & 7 | 1; "
    "tanh(score) + exp2(-score) + log2(abs(score)) + sigmoid(score) + sin(score) + cos(kv_pos) + "
    "tanh(i) * sin(i // n[2]) + sigmoid(exp2(i)) / log2(i % n[3])"};
enum { TEXTS = sizeof texts / sizeof texts[0], NAME_LIMIT = 96, LINE_LIMIT = 512 };
/* Entries differ only in numbers, and a search through a text is slow with a sanitizer. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define ENTRY_STRIDE 37
#endif
#endif
#ifndef ENTRY_STRIDE
#define ENTRY_STRIDE 1
#endif

/* A template of the library, with a NUL. */
typedef struct scene {
    uint32_t family;
    fig_image_path path;
    char *ptx; /* NULL: the library has no such template */
} scene;

static const scene scenes[] = {
    {0, FIG_IMAGE_HOPPER, NULL}, {1, FIG_IMAGE_PLAIN, NULL}, {1, FIG_IMAGE_HOPPER, NULL}};
enum { SCENES = sizeof scenes / sizeof scenes[0] };

static scene open_scene(int number) {
    scene s = scenes[number];
    const fig_image image = fig_images_template(FIG_OP_SCORED_ATTENTION, s.family, s.path);
    if (image.bytes == NULL) return s;
    const size_t count = (size_t)ZSTD_getFrameContentSize(image.bytes, image.count);
    s.ptx = malloc(count + 1);
    assert_non_null(s.ptx);
    assert_int_equal(ZSTD_decompress(s.ptx, count, image.bytes, image.count), count);
    s.ptx[count] = '\0';
    return s;
}

static fig_score *parse(const char *text) {
    fig_score *score;
    if (fig_score_parse(&score, text) != FIG_OK) fail_msg("%s: %s", text, fig_message());
    return score;
}

/* Calls `visit` for the entries of the template. Returns the number of entries. */
static int for_each_entry(const scene *s, void (*visit)(const scene *s, const char *entry)) {
    static const char mark[] = ".visible .entry ";
    int count = 0;
    for (const char *at = s->ptx; (at = strstr(at, mark)) != NULL; count++) {
        char entry[NAME_LIMIT];
        at += strlen(mark);
        const size_t length = strcspn(at, "(");
        assert_true(length < sizeof entry);
        memcpy(entry, at, length);
        entry[length] = '\0';
        if (count % ENTRY_STRIDE == 0) visit(s, entry);
    }
    return count;
}

static int occurrences(const char *text, const char *what) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        count++;
    return count;
}

static fig_ptx_text fill(const scene *s, const char *entry, const char *score_text) {
    fig_ptx_text text = {0};
    fig_score *score = parse(score_text);
    if (fig_score_template_fill(s->ptx, entry, &score->code, &text) != FIG_OK)
        fail_msg("%s, %s: %s", entry, score_text, fig_message());
    fig_score_destroy(score);
    return text;
}

/* ---- Texts */

static void check_entry(const scene *s, const char *entry) {
    for (int i = 0; i < TEXTS; i += TEXTS - 1) {
        fig_ptx_text text = fill(s, entry, texts[i]);
        assert_int_equal(strlen(text.bytes), text.count);
        assert_int_equal(occurrences(text.bytes, ".visible .entry "), 1);
        assert_int_equal(occurrences(text.bytes, "// fig_score"), 0);
        assert_int_equal(occurrences(text.bytes, "fig_scored_functions"), 0);
        assert_int_equal(occurrences(text.bytes, ".version " FIG_SCORE_TEMPLATE_VERSION "\n"), 1);
        fig_ptx_text_finish(&text);
    }
}

static void every_entry_can_be_completed(void **state) {
    (void)state;
    for (int i = 0; i < SCENES; i++) {
        scene s = open_scene(i);
        if (s.ptx == NULL) {
            printf("no templates: the library was built without nvcc\n");
            return;
        }
        printf("%d entries\n", for_each_entry(&s, check_entry));
        free(s.ptx);
    }
}

/* The library gives a compressed template. */
static void a_template_is_completed_as_the_library_holds_it(void **state) {
    (void)state;
    static const char entry[] = "fig_kernel_scored_copy_bf16_128";
    fig_image image = fig_images_template(FIG_OP_SCORED_ATTENTION, 1, FIG_IMAGE_PLAIN);
    scene s = open_scene(1);
    fig_ptx_text text = {0};
    if (s.ptx == NULL) return;
    fig_score *score = parse(texts[0]);
    assert_int_equal(fig_score_template_complete(&image, entry, &score->code, &text), FIG_OK);
    fig_ptx_text plain = fill(&s, entry, texts[0]);
    assert_string_equal(text.bytes, plain.bytes);
    fig_ptx_text_finish(&text);
    fig_ptx_text_finish(&plain);
    image.count -= 1;
    assert_int_equal(fig_score_template_complete(&image, entry, &score->code, &text), FIG_DRIVER);
    fig_ptx_text_finish(&text);
    fig_score_destroy(score);
    free(s.ptx);
}

/* ---- What is refused */

#define HEAD ".version 9.0\n"
#define FUNCTION(body)                                                                             \
    ".func  (.param .b32 func_retval0) fig_scored_functions_tanh(\n"                               \
    "\t.param .b32 fig_scored_functions_tanh_param_0\n)\n{\n" body "}\n"
#define LOAD "\tld.param.f32 \t%f1, [fig_scored_functions_tanh_param_0];\n"
#define STORE "\tst.param.f32 \t[func_retval0+0], %f1;\n"
#define ENTRY(name, mark) ".visible .entry " name "(\n)\n{\n" mark "\tret;\n}\n"
#define MARK "\tx; // fig_score %f9 %f8 %r1 %r2 %r3 %r4 %r5 %r6\n"

static void assert_refused(const char *ptx, const char *reason) {
    fig_score *score = parse("tanh(score)");
    fig_ptx_text text = {0};
    const fig_status status = fig_score_template_fill(ptx, "one", &score->code, &text);
    if (reason == NULL && status != FIG_OK) fail_msg("%s", fig_message());
    if (reason != NULL) assert_int_equal(status, FIG_DRIVER);
    if (reason != NULL && strstr(fig_message(), reason) == NULL) fail_msg("%s", fig_message());
    fig_ptx_text_finish(&text);
    fig_score_destroy(score);
}

static void a_template_of_another_shape_is_refused(void **state) {
    (void)state;
    assert_refused(HEAD FUNCTION(LOAD STORE "\tret;\n\n") ENTRY("one", MARK), NULL);
    assert_refused(HEAD FUNCTION(LOAD STORE "\tret;\n") ENTRY("one2", MARK), "no such entry");
    assert_refused(HEAD FUNCTION(LOAD STORE "\tret;\n") ENTRY("one", ""), "no mark of a score");
    assert_refused(HEAD ENTRY("one", MARK), "no function of a score");
    assert_refused(HEAD FUNCTION(LOAD STORE) ENTRY("one", MARK), "a function without a return");
    assert_refused(HEAD FUNCTION(LOAD "\tret;\n" STORE "\tret;\n") ENTRY("one", MARK),
                   "a function that returns early");
    assert_refused(HEAD FUNCTION(LOAD "\t@%p1 ret;\n" STORE) ENTRY("one", MARK),
                   "a function that returns early");
    assert_refused(HEAD FUNCTION("\tld.param.f32 %f1, [other];\n" STORE "\tret;\n")
                       ENTRY("one", MARK),
                   "a function with other params");
    assert_refused(HEAD FUNCTION(LOAD STORE "\tret;\n")
                       ENTRY("one", "\tx; // fig_score %f9 %f8 %r1\n"),
                   "a mark without registers");
}

/* ---- ptxas */

static char assembler[LINE_LIMIT];
static int assembled, spilled, bulk_spilled, most_registers;

static int is_thorough(void) {
    const char *scores = getenv("SCORES");
    return scores != NULL && strcmp(scores, "all") == 0;
}

/* Finds ptxas beside nvcc, or where the shell finds it. A build with a sanitizer makes the same
 * texts as the others, so there ptxas need not read them once more. */
static int has_assembler(void) {
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
    if (!is_thorough()) return 0;
#endif
    FILE *found = popen("{ [ -n \"$NVCC\" ] && ls \"${NVCC%/*}/ptxas\"; command -v ptxas; "
                        "ls /usr/local/cuda/bin/ptxas; } 2> /dev/null",
                        "r");
    assert_non_null(found);
    if (fgets(assembler, sizeof assembler, found) == NULL) assembler[0] = '\0';
    assembler[strcspn(assembler, "\n")] = '\0';
    pclose(found);
    if (assembler[0] == '\0') printf("nothing is assembled: there is no ptxas\n");
    return assembler[0] != '\0';
}

/* Reads what ptxas says of the entry. */
static void read_report(FILE *report, const char *entry, const char *score_text) {
    char line[LINE_LIMIT];
    while (fgets(line, sizeof line, report) != NULL) {
        const char *spill = strstr(line, "bytes stack frame, "), *used = strstr(line, "Used ");
        if (used != NULL && atoi(used + 5) > most_registers) most_registers = atoi(used + 5);
        if (spill == NULL || atoi(strchr(spill, ',') + 1) == 0) continue;
        spilled++;
        bulk_spilled += strstr(entry, "_256_") == NULL && (strstr(entry, "_bulk_f16_") != NULL ||
                                                           strstr(entry, "_bulk_bf16_") != NULL);
        printf("%s, %s: %s", entry, score_text, line);
    }
}

static void assemble(const scene *s, const char *entry, const char *score_text) {
    char path[] = "/tmp/fig_template_XXXXXX", command[2 * LINE_LIMIT];
    const int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    assert_non_null(file);
    fig_ptx_text text = fill(s, entry, score_text);
    assert_int_equal(fwrite(text.bytes, 1, text.count, file), text.count);
    assert_int_equal(fclose(file), 0);
    fig_ptx_text_finish(&text);
    snprintf(command, sizeof command, "'%s' -v -arch=%s '%s' -o /dev/null 2>&1", assembler,
             s->path == FIG_IMAGE_PLAIN ? "sm_80" : "sm_90a", path);
    FILE *report = popen(command, "r");
    assert_non_null(report);
    read_report(report, entry, score_text);
    if (pclose(report) != 0) fail_msg("%s, %s: %s", entry, score_text, command);
    unlink(path);
    assembled++;
}

static void assemble_entry(const scene *s, const char *entry) {
    const int is_all = is_thorough() || strstr(entry, "_bulk_bf16_128_4") != NULL;
    if (!is_all && strstr(entry, "_128") == NULL) return;
    for (int i = 0; i < (is_all ? TEXTS : 1); i++)
        assemble(s, entry, texts[i]);
}

/* Attention without a score spills registers too, apart from 16-bit caches of head_dim 128 or less
 * that the bulk copy engine feeds. */
static void the_texts_assemble_and_few_spill(void **state) {
    (void)state;
    if (!has_assembler()) return;
    for (int i = 0; i < SCENES; i++) {
        scene s = open_scene(i);
        if (s.ptx != NULL) for_each_entry(&s, assemble_entry);
        free(s.ptx);
    }
    printf("%d texts assembled, %d with spills, at most %d registers\n", assembled, spilled,
           most_registers);
    assert_int_equal(bulk_spilled, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_can_be_completed),
        cmocka_unit_test(a_template_is_completed_as_the_library_holds_it),
        cmocka_unit_test(a_template_of_another_shape_is_refused),
        cmocka_unit_test(the_texts_assemble_and_few_spill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
