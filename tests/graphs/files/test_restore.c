/* test_restore.c: tests that a file's arrays become a program only if they are sound, and that
 * otherwise the first fault is named.
 *
 * The arrays are in memory of exactly their size, so asan notices a read past the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/lower/lower.h"
#include "graphs/record/program.h"
#include "tests/support/random.h"
#include "tests/support/files/sample.h"

/* A view of a program whose arrays may be changed. */
typedef struct hostile {
    fig_program_view view;
    fig_tensor_record *tensors;
    fig_node *nodes;
    uint32_t *operands;
    uint8_t *attributes;
    char *strings;
    fig_segment *segments;
} hostile;

static void *duplicate(const void *from, size_t bytes) {
    void *copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    if (bytes > 0) memcpy(copy, from, bytes); /* `from` is NULL if the array is empty */
    return copy;
}

static hostile hostile_of(fig_program *program) {
    hostile h;
    h.view = *fig_program_view_of(program);
    h.view.edges = NULL;
    h.view.edge_count = 0;
    h.tensors = duplicate(h.view.tensors, h.view.tensor_count * sizeof *h.tensors);
    h.nodes = duplicate(h.view.nodes, h.view.node_count * sizeof *h.nodes);
    h.operands = duplicate(h.view.operands, h.view.operand_count * sizeof *h.operands);
    h.attributes = duplicate(h.view.attributes, h.view.attribute_bytes);
    h.strings = duplicate(h.view.strings, h.view.string_bytes);
    h.segments = duplicate(h.view.segments, h.view.segment_count * sizeof *h.segments);
    h.view.tensors = h.tensors;
    h.view.nodes = h.nodes;
    h.view.operands = h.operands;
    h.view.attributes = h.attributes;
    h.view.strings = h.strings;
    h.view.segments = h.segments;
    fig_program_destroy(program);
    return h;
}

static hostile hostile_make(void) {
    return hostile_of(fig_sample_mixture());
}

static void hostile_finish(hostile *h) {
    free(h->tensors);
    free(h->nodes);
    free(h->operands);
    free(h->attributes);
    free(h->strings);
    free(h->segments);
}

/* Programs that are accepted must lower without failing an assert. */
static void lower(const fig_program *program) {
    const fig_program_view *view = fig_program_view_of(program);
    fig_bucket_shape shape = {.caps = {1, 1}};
    fig_workspace workspace;
    fig_lower_common common;
    fig_lowered lowered;
    const fig_lower_target target = fig_sample_target("host");
    assert_int_equal(fig_lower_shape(view, &target, 0, &shape), FIG_OK);
    assert_int_equal(fig_workspace_init(&workspace, view, &shape, 1), FIG_OK);
    assert_int_equal(fig_lower_common_init(&common, view, &workspace), FIG_OK);
    assert_int_equal(fig_lower_bucket(&common, &shape, &lowered), FIG_OK);
    fig_lower_finish(&lowered);
    fig_lower_common_finish(&common);
    fig_workspace_finish(&workspace);
}

/* Returns 1 if the arrays were sound. Otherwise they must be refused as damaged, and no memory may
 * leak. */
static int restore(const hostile *h) {
    fig_program *program = (fig_program *)1;
    const fig_status status = fig_program_restore(&program, &h->view);
    if (status == FIG_OK) {
        assert_int_equal(fig_program_check(fig_program_view_of(program)), FIG_OK);
        lower(program);
        fig_program_destroy(program);
        return 1;
    }
    assert_true(status == FIG_FORMAT || status == FIG_TOO_LARGE || status == FIG_UNSUPPORTED);
    assert_true(strlen(fig_message()) > 0);
    assert_null(program);
    return 0;
}

static int try_bytes(hostile *h, void *array, size_t count, int *refused) {
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    uint8_t *bytes = array;
    int sound = 0;
    for (size_t i = 0; i < count; i++) {
        const uint8_t kept = bytes[i];
        for (size_t v = 0; v < sizeof values + 1; v++) {
            bytes[i] = v < sizeof values ? values[v] : (uint8_t)(kept + 1);
            if (restore(h)) {
                sound++;
            } else {
                (*refused)++;
            }
        }
        bytes[i] = kept;
    }
    return sound;
}

static void change_every_byte(hostile h) {
    int refused = 0, sound = 0;
    sound += try_bytes(&h, h.tensors, h.view.tensor_count * sizeof *h.tensors, &refused);
    sound += try_bytes(&h, h.nodes, h.view.node_count * sizeof *h.nodes, &refused);
    sound += try_bytes(&h, h.operands, h.view.operand_count * sizeof *h.operands, &refused);
    sound += try_bytes(&h, h.attributes, h.view.attribute_bytes, &refused);
    sound += try_bytes(&h, h.strings, h.view.string_bytes, &refused);
    sound += try_bytes(&h, h.segments, h.view.segment_count * sizeof *h.segments, &refused);
    sound += try_bytes(&h, &h.view.spec, sizeof h.view.spec, &refused);
    assert_true(sound > 100 && refused > 5000);
    hostile_finish(&h);
}

static void any_changed_byte_is_refused_or_harmless(void **state) {
    (void)state;
    change_every_byte(hostile_make());
    change_every_byte(hostile_of(fig_sample_breadth()));
}

/* Makes several faults at once. The test above makes one at a time, since only the first fault is
 * reported. */
static void random_damage_is_refused_or_harmless(void **state) {
    (void)state;
    fig_random random = fig_random_seed(21);
    for (int round = 0; round < 3000; round++) {
        hostile h = round % 2 == 0 ? hostile_make() : hostile_of(fig_sample_breadth());
        void *arrays[] = {h.tensors, h.nodes, h.operands, h.attributes, h.strings, h.segments};
        const size_t sizes[] = {h.view.tensor_count * sizeof *h.tensors,
                                h.view.node_count * sizeof *h.nodes,
                                h.view.operand_count * sizeof *h.operands,
                                h.view.attribute_bytes,
                                h.view.string_bytes,
                                h.view.segment_count * sizeof *h.segments};
        for (int i = fig_random_range(&random, 1, 6); i > 0; i--) {
            const int array = fig_random_range(&random, 0, 5);
            const int32_t at = fig_random_range(&random, 0, (int32_t)sizes[array] - 1);
            ((uint8_t *)arrays[array])[at] = (uint8_t)fig_random_bits(&random);
        }
        restore(&h);
        hostile_finish(&h);
    }
}

/* Makes an array shorter, or claims more items than a file may have. */
static void counts_that_do_not_fit_are_refused(void **state) {
    (void)state;
    for (int field = 0; field < 5; field++) {
        hostile h = hostile_make();
        uint32_t *counts[] = {&h.view.tensor_count, &h.view.node_count, &h.view.operand_count,
                              &h.view.attribute_bytes, &h.view.string_bytes};
        const uint32_t kept = *counts[field];
        const uint32_t values[] = {0, 1, kept - 1, 1u << 30, UINT32_MAX};
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            *counts[field] = values[v];
            assert_false(restore(&h));
            if (values[v] > kept) assert_non_null(strstr(fig_message(), "limits "));
        }
        hostile_finish(&h);
    }
}

enum { CALL_NODE = 8 };

static void refuse_damage(hostile *h, const char *part, int line) {
    fig_program *program;
    fig_sample_check(fig_program_restore(&program, &h->view), FIG_FORMAT, part, line);
    hostile_finish(h);
    *h = hostile_make();
}
#define REFUSE_DAMAGE(part) refuse_damage(&h, part, __LINE__)

static void damage_is_named(void **state) {
    (void)state;
    hostile h = hostile_make();
    assert_int_equal(h.nodes[CALL_NODE].op, FIG_OP_CALL);
    const uint32_t name = h.tensors[0].name;
    h.tensors[1].name = name;
    REFUSE_DAMAGE("tensor 2: name page_table is taken by tensor 1");
    h.tensors[1].name++;
    REFUSE_DAMAGE("tensor 2: no name begins at byte");
    h.tensors[1].name = h.view.string_bytes;
    REFUSE_DAMAGE("tensor 2: no name begins at byte");
    h.tensors[1].name = UINT32_MAX;
    REFUSE_DAMAGE("tensor 2: no name begins at byte 4294967295");
    h.tensors[2].role = 3;
    REFUSE_DAMAGE("role is 3, limits 0 to 2");
    h.tensors[2].dtype = 7;
    REFUSE_DAMAGE("dtype is 7");
    h.tensors[2].rank = 0;
    REFUSE_DAMAGE("rank is 0, limits 1 to 4");
    h.tensors[2].rank = 5;
    REFUSE_DAMAGE("rank is 5");
    h.tensors[2].symbol = FIG_SYMBOL_QUERIES;
    REFUSE_DAMAGE("dims[0] is FIG_DIM_QUERIES");
    h.tensors[2].symbol = 4;
    REFUSE_DAMAGE("symbol is 4, limits 0 to 3");
    h.tensors[2].dims[0] = 0;
    REFUSE_DAMAGE("multiple is 0, limits 1 to 128");
    h.tensors[2].dims[0] = INT64_MAX;
    REFUSE_DAMAGE("multiple is 9223372036854775807");
    h.tensors[2].layout = FIG_HND;
    REFUSE_DAMAGE("layout is FIG_HND and rank 2");
    h.tensors[2].layout = 2;
    REFUSE_DAMAGE("layout is 2, limits 0 to 1");
    h.tensors[2].reserved[6] = 1;
    REFUSE_DAMAGE("reserved[6] is 1");
    h.strings[1] = '/';
    REFUSE_DAMAGE("[A-Za-z0-9._-]");
    h.nodes[3].op = FIG_OP_CALL - 1;
    REFUSE_DAMAGE("node 3 (?): op is 63");
    h.nodes[1].op = FIG_OP_DECODE_ATTENTION;
    REFUSE_DAMAGE("node 1 (decode_attention): 10 operands, limits 12 to 32");
    h.nodes[3].op = FIG_OP_FETCH;
    REFUSE_DAMAGE("node 3 (fetch): op is 0");
    h.nodes[3].layer = 2;
    REFUSE_DAMAGE("node 3: layer is 2, limits -1 to 1");
    h.nodes[3].layer = -2;
    REFUSE_DAMAGE("node 3: layer is -2");
    h.nodes[3].operand--;
    REFUSE_DAMAGE("node 3: 10 operands from 18, expected from 19");
    h.nodes[CALL_NODE].operand_count++;
    REFUSE_DAMAGE("node 8: 3 operands from 58");
    h.nodes[3].operand_count -= 2;
    REFUSE_DAMAGE("node 3 (attention): 8 operands, limits 9 to 32");
    h.nodes[3].attribute -= 8;
    REFUSE_DAMAGE("node 3: 12 bytes of attributes from 40, expected from 48");
    h.nodes[CALL_NODE].attribute_bytes = UINT32_MAX;
    REFUSE_DAMAGE("node 8: 4294967295 bytes of attributes");
    h.nodes[3].attribute_bytes = 8;
    REFUSE_DAMAGE("node 3 (attention): 8 bytes of attributes, limits 12 to 2048");
    h.nodes[CALL_NODE].attribute_bytes = 8;
    REFUSE_DAMAGE("node 8 (call): 8 bytes of attributes, it must be 280");
    h.nodes[3].attribute_bytes = 3;
    REFUSE_DAMAGE("node 3: attributes are not followed by zeros");
    h.attributes[44] = 1;
    REFUSE_DAMAGE("node 1: attributes are not followed by zeros");
    hostile_finish(&h);
}

/* Segments act.0, attn.0, act.1 and attn.1 hold nodes 0, 1 to 3, 4, and 5 to 7. */
static void damaged_segments_are_named(void **state) {
    (void)state;
    hostile h = hostile_make();
    h.segments[1].name++;
    REFUSE_DAMAGE("segment 1: no name begins at byte");
    h.segments[1].name = 0;
    REFUSE_DAMAGE("segment 1: no name begins at byte 0 of");
    h.segments[1].name = UINT32_MAX;
    REFUSE_DAMAGE("segment 1: no name begins at byte 4294967295");
    h.segments[3].name = h.segments[0].name;
    REFUSE_DAMAGE("segment 3: name act.0 is taken by segment 0");
    memcpy(h.strings + h.segments[0].name, "fetch", sizeof "fetch");
    REFUSE_DAMAGE("segment fetch: the engine itself uses this name");
    h.segments[1].node_count = 0;
    REFUSE_DAMAGE("segment attn.0: 0 nodes from 1, the program has 9");
    h.segments[3].node = 9;
    REFUSE_DAMAGE("segment attn.1: 3 nodes from 9, the program has 9");
    h.segments[3].node = UINT32_MAX;
    REFUSE_DAMAGE("segment attn.1: 3 nodes from 4294967295");
    h.segments[3].node_count = 5;
    REFUSE_DAMAGE("segment attn.1: 5 nodes from 5, the program has 9");
    h.segments[3].node_count = UINT32_MAX;
    REFUSE_DAMAGE("segment attn.1: 4294967295 nodes from 5");
    h.segments[0].node_count = 2;
    REFUSE_DAMAGE("segment attn.0: begins at node 1, the one before ends at 2");
    h.segments[2].node = 0;
    REFUSE_DAMAGE("segment act.1: begins at node 0, the one before ends at 4");
    h.view.segment_count = FIG_SEGMENT_LIMIT + 1;
    REFUSE_DAMAGE("program: 8193 segments, limits 0 to 8192");
    hostile_finish(&h);
    h = hostile_of(fig_sample_breadth());
    h.segments[0].node--;
    REFUSE_DAMAGE("segment act.0: node 0 makes the plans");
    /* Segment 3 may hold the next node as well: that node is in no other segment, and no tensor has
     * the name of its call. */
    h.segments[3].node_count++;
    assert_true(restore(&h));
    hostile_finish(&h);
}

static void set_call(hostile *h, size_t offset, uint32_t value) {
    memcpy(h->attributes + h->nodes[CALL_NODE].attribute + offset, &value, sizeof value);
}

static void damaged_attributes_are_named(void **state) {
    (void)state;
    hostile h = hostile_make();
    fig_rope_terms rope;
    memcpy(&rope, h.attributes + h.nodes[1].attribute, sizeof rope);
    set_call(&h, offsetof(fig_call_attributes, name), 2);
    REFUSE_DAMAGE("node 8 (call): no name begins");
    set_call(&h, offsetof(fig_call_attributes, byte_count), 2);
    REFUSE_DAMAGE("node 8 (call): byte 2 is not 0 but lies beyond byte_count");
    set_call(&h, offsetof(fig_call_attributes, byte_count), 257);
    REFUSE_DAMAGE("node 8 (call): byte_count is 257");
    set_call(&h, offsetof(fig_call_attributes, read_count), 3);
    REFUSE_DAMAGE("node 8 (call): read_count is 3 of 2");
    set_call(&h, offsetof(fig_call_attributes, reserved), 1);
    REFUSE_DAMAGE("node 8 (call): reserved is 1");
    rope.scale = 0;
    memcpy(h.attributes + h.nodes[1].attribute, &rope, sizeof rope);
    REFUSE_DAMAGE("node 1 (rope): rope holds a default that is not filled in");
    rope.scale = -1;
    memcpy(h.attributes + h.nodes[1].attribute, &rope, sizeof rope);
    REFUSE_DAMAGE("node 1 (rope): rope: scale is -1");
    h.view.spec.sm_scale = 0;
    REFUSE_DAMAGE("the spec holds a default that is not filled in");
    h.view.node_count--;
    REFUSE_DAMAGE("are used");
    hostile_finish(&h);
}

/* A program with one node of RoPE that has a table. */
static hostile hostile_of_table(fig_rope_node_attributes *attributes) {
    const fig_spec spec = fig_sample_spec();
    const fig_rope_spec own = {.rotary_dim = 4};
    const fig_rope_table table = {.frequencies = {1, 0.25}};
    fig_program *program = fig_sample_program(&spec);
    const fig_tensor q = fig_sample_rows(program, "q", 8, 64);
    const fig_tensor k = fig_sample_rows(program, "k", 2, 64);
    fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = q, .k = k, .rope = &own, .rope_table = &table));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    hostile h = hostile_of(program);
    memcpy(attributes, h.attributes, sizeof *attributes);
    return h;
}

static void a_damaged_table_is_named(void **state) {
    (void)state;
    fig_rope_node_attributes sound;
    hostile h = hostile_of_table(&sound);
    assert_true(restore(&h));
    hostile_finish(&h);
    static const struct {
        size_t at;
        double value;
        size_t bytes; /* how much of the value is stored; 4: as a float */
        const char *said;
    } cases[] = {
        {offsetof(fig_rope_node_attributes, turn.rope.theta), 1e4, 4,
         "by its terms and by its table"},
        {offsetof(fig_rope_node_attributes, reserved), 1, 4, "reserved is 1065353216"},
        {offsetof(fig_rope_node_attributes, table.factor), 0, 8, "factor is 0, not its default"},
        {offsetof(fig_rope_node_attributes, table.factor), -1, 8, "rope table: factor is -1"},
        {offsetof(fig_rope_node_attributes, table.frequencies[1]), 0, 8, "frequencies[1] is 0"},
        {offsetof(fig_rope_node_attributes, table.frequencies[2]), 1, 8, "frequencies[2] is 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const float single = (float)cases[i].value;
        const void *value = cases[i].bytes == 4 ? (const void *)&single : &cases[i].value;
        h = hostile_of_table(&sound);
        memcpy(h.attributes + cases[i].at, value, cases[i].bytes);
        REFUSE_DAMAGE(cases[i].said);
        hostile_finish(&h);
    }
    h = hostile_of_table(&sound);
    memset(h.attributes + offsetof(fig_rope_node_attributes, table), 0, sizeof sound.table);
    /* Without the table, the node's RoPE terms are incomplete. */
    REFUSE_DAMAGE("rope holds a default that is not filled in");
    hostile_finish(&h);
    h = hostile_of_table(&sound);
    memset(h.attributes + offsetof(fig_rope_node_attributes, turn.rope.rotary_dim), 0, 4);
    REFUSE_DAMAGE("rope has a table, but its rotary_dim is 0");
    hostile_finish(&h);
}

/* The recorder would refuse this call; in a file, the node is refused. */
static void a_plan_behind_another_node_is_refused(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    const fig_tensor lengths = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "lengths", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32, .rank = 1, .dims = {FIG_DIM_BATCH}));
    fig_program_read_lengths(program, lengths, (fig_tensor){0});
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    hostile h = hostile_of(program);
    const fig_node plan = h.nodes[0];
    h.nodes[0] = h.nodes[1];
    h.nodes[0].operand = 0;
    h.nodes[0].attribute = 0;
    h.nodes[1] = plan;
    h.nodes[1].attribute = h.nodes[0].attribute_bytes;
    FIG_SAMPLE_REFUSES(fig_program_restore(&program, &h.view), FIG_FORMAT,
                       "node 1 (plan): it must be the first node, and the only one");
    hostile_finish(&h);
}

static void edges_that_point_back_do_not_pass(void **state) {
    (void)state;
    hostile h = hostile_make();
    static const fig_edge back[] = {{3, 2}}, self[] = {{2, 2}}, far[] = {{0, 9}};
    static const fig_edge unsorted[] = {{1, 3}, {0, 3}}, twice[] = {{1, 3}, {1, 3}};
    static const fig_edge falling[] = {{1, 3}, {0, 2}};
    const fig_edge *lists[] = {back, self, far, unsorted, twice, falling};
    for (size_t i = 0; i < 6; i++) {
        h.view.edges = lists[i];
        h.view.edge_count = i < 3 ? 1 : 2;
        FIG_SAMPLE_REFUSES(fig_program_check(&h.view), FIG_FORMAT,
                           i < 3 ? "of 9 nodes" : "follows");
    }
    hostile_finish(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_changed_byte_is_refused_or_harmless),
        cmocka_unit_test(random_damage_is_refused_or_harmless),
        cmocka_unit_test(counts_that_do_not_fit_are_refused),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(damaged_segments_are_named),
        cmocka_unit_test(damaged_attributes_are_named),
        cmocka_unit_test(a_damaged_table_is_named),
        cmocka_unit_test(a_plan_behind_another_node_is_refused),
        cmocka_unit_test(edges_that_point_back_do_not_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
