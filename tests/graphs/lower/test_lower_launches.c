/* test_lower_launches.c: tests three things. Launches keep the order that data and a shared
 * workspace need; buckets share their common parts; and the same program gives the same bytes.
 *
 * The expected order is the transitive closure of all causes, found pair by pair. */
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
#include "tests/support/fault.h"
#include "tests/support/random.h"
#include "tests/support/files/sample.h"

enum { NODE_CAPACITY = 24, PROGRAM_COUNT = 300 };

/* A bucket's params, workspace and launches, with all their bytes. */
typedef struct ground {
    fig_bucket_shape shape;
    fig_workspace workspace;
    fig_lower_common common;
    fig_lowered lowered;
} ground;

static void ground_make(ground *g, const fig_program *program) {
    const fig_lower_target target = fig_sample_target("host");
    const fig_program_view *view = fig_program_view_of(program);
    g->shape.caps = (fig_bucket){4, 100};
    g->shape.variant = 0;
    g->shape.queries = g->shape.is_loose = 0;
    assert_int_equal(fig_lower_shape(view, &target, 3, &g->shape), FIG_OK);
    assert_int_equal(fig_workspace_init(&g->workspace, view, &g->shape, 1), FIG_OK);
    assert_int_equal(fig_lower_common_init(&g->common, view, &g->workspace), FIG_OK);
    if (fig_lower_bucket(&g->common, &g->shape, &g->lowered) != FIG_OK)
        fail_msg("%s", fig_message());
}

static void ground_finish(ground *g) {
    fig_lower_finish(&g->lowered);
    fig_lower_common_finish(&g->common);
    fig_workspace_finish(&g->workspace);
}

/* Records nodes of all kinds on few tensors, so that nodes often share tensors. */
static fig_program *record_random(fig_random *random) {
    static const int64_t kv_heads[] = {1, 2, 4};
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    const int32_t count = fig_random_range(random, 1, NODE_CAPACITY - 1);
    fig_tensor tensors[4];
    char name[16];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "t%d", i);
        tensors[i] = fig_sample_rows(program, name, 4, 64);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "c%d", i);
        fig_sample_cache(program, name, kv_heads[i], 64);
    }
    for (int32_t n = 0; n < count; n++) {
        const int32_t from = fig_random_range(random, 0, 3);
        const fig_tensor in = tensors[from];
        const fig_tensor out = tensors[(from + fig_random_range(random, 1, 3)) % 4];
        snprintf(name, sizeof name, "k_c%d", fig_random_range(random, 0, 2));
        const fig_tensor k = fig_program_find(program, name);
        name[0] = 'v';
        const fig_cache cache = {.k = k, .v = fig_program_find(program, name)};
        switch (fig_random_range(random, 0, 2)) {
        case 0:
            fig_attention(program,
                          FIG_OPTIONS(fig_attention_op, .q = in, .out = out, .cache = cache));
            break;
        case 1: fig_rope(program, FIG_OPTIONS(fig_rope_op, .q = in, .k = out)); break;
        default:
            fig_call(program,
                     FIG_OPTIONS(fig_call_op, .call = "c", .reads = &in, .read_count = 1,
                                 .writes = &out, .write_count = fig_random_range(random, 0, 1)));
        }
    }
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

/* Every launch after the second reads the plan, which the second makes, so it runs after the
 * second. */
static void a_plan_made_on_the_device_comes_before_all_but_its_fetch(void **state) {
    (void)state;
    fig_program *program = fig_sample_breadth();
    ground g;
    ground_make(&g, program);
    assert_int_equal(g.lowered.launches[1].op, FIG_OP_PLAN);
    assert_true(g.lowered.launch_count > 10);
    uint8_t *after = calloc(g.lowered.launch_count, 1);
    assert_non_null(after);
    after[1] = 1;
    for (uint32_t i = 0; i < g.lowered.edge_count; i++) {
        const fig_edge edge = g.lowered.edges[i];
        /* Edges from the fetch to other launches are implied. */
        if (edge.from == 0) assert_int_equal(edge.to, 1);
        after[edge.to] |= after[edge.from];
    }
    for (uint32_t i = 1; i < g.lowered.launch_count; i++) {
        if (!after[i]) fail_msg("launch %u does not wait for the plan", i);
    }
    free(after);
    ground_finish(&g);
    fig_program_destroy(program);
}

typedef uint8_t order[NODE_CAPACITY][NODE_CAPACITY]; /* [from][to] is 1 if `from` comes first */

static void close_order(order pairs) {
    for (int middle = 0; middle < NODE_CAPACITY; middle++) {
        for (int from = 0; from < NODE_CAPACITY; from++) {
            for (int to = 0; to < NODE_CAPACITY; to++)
                pairs[from][to] |= pairs[from][middle] & pairs[middle][to];
        }
    }
}

/* Marks each pair of launches that has a cause for its order: the fetch, memory that both use, or
 * the workspace of a class. */
static void find_causes(const fig_program_view *view, const fig_lowered *lowered, order pairs) {
    for (uint32_t to = 1; to < lowered->launch_count; to++) {
        const fig_node *later = &view->nodes[to - 1];
        pairs[0][to] = 1;
        for (uint32_t from = 1; from < to; from++) {
            const fig_node *earlier = &view->nodes[from - 1];
            const uint32_t shared = lowered->launches[from].split_class;
            pairs[from][to] |= shared != UINT32_MAX && shared == lowered->launches[to].split_class;
            for (uint32_t a = 0; a < earlier->operand_count; a++) {
                for (uint32_t b = 0; b < later->operand_count; b++) {
                    const uint32_t tensor = view->operands[earlier->operand + a];
                    const uint32_t access = fig_program_view_access(view, earlier, a) |
                                            fig_program_view_access(view, later, b);
                    pairs[from][to] |= tensor != 0 && (access & FIG_ACCESS_WRITE) &&
                                       tensor == view->operands[later->operand + b];
                }
            }
        }
    }
    close_order(pairs);
}

static void launches_keep_every_order_asked_for_and_no_other(void **state) {
    (void)state;
    static order causes, edges, without;
    fig_random random = fig_random_seed(31);
    for (int round = 0; round < PROGRAM_COUNT; round++) {
        fig_program *program = record_random(&random);
        ground g;
        ground_make(&g, program);
        const fig_lowered *lowered = &g.lowered;
        memset(causes, 0, sizeof causes);
        memset(edges, 0, sizeof edges);
        find_causes(fig_program_view_of(program), lowered, causes);
        for (uint32_t i = 0; i < lowered->edge_count; i++)
            edges[lowered->edges[i].from][lowered->edges[i].to] = 1;
        for (uint32_t i = 0; i < lowered->edge_count; i++) {
            const fig_edge edge = lowered->edges[i];
            memcpy(without, edges, sizeof without);
            without[edge.from][edge.to] = 0;
            close_order(without);
            if (without[edge.from][edge.to])
                fail_msg("round %d: edge %u to %u is implied", round, edge.from, edge.to);
        }
        close_order(edges);
        assert_memory_equal(edges, causes, sizeof edges);
        ground_finish(&g);
        fig_program_destroy(program);
    }
}

static void launches_are_in_the_order_of_nodes_and_params_in_that_of_launches(void **state) {
    (void)state;
    fig_random random = fig_random_seed(32);
    for (int round = 0; round < PROGRAM_COUNT; round++) {
        fig_program *program = record_random(&random);
        const fig_program_view *view = fig_program_view_of(program);
        ground g;
        ground_make(&g, program);
        uint32_t params = 0, relocs = 0;
        assert_int_equal(g.lowered.launch_count, view->node_count + 1);
        for (uint32_t i = 0; i < g.lowered.launch_count; i++) {
            const fig_launch *launch = &g.lowered.launches[i];
            const fig_op op = i == 0 ? FIG_OP_FETCH : (fig_op)view->nodes[i - 1].op;
            assert_int_equal(launch->op, op);
            assert_int_equal(launch->node_count, i > 0);
            if (i > 0) assert_int_equal(launch->node, i - 1);
            if (i > 0) assert_int_equal(g.lowered.node_launches[i - 1].first, i);
            if (i > 0) assert_int_equal(g.lowered.node_launches[i - 1].count, 1);
            assert_int_equal(launch->params, params);
            assert_int_equal(launch->params % 64, 0);
            assert_int_equal(launch->reloc, relocs);
            assert_int_equal(launch->split_class == UINT32_MAX, op != FIG_OP_ATTENTION);
            if (op == FIG_OP_CALL) assert_int_equal(launch->params_bytes + launch->reloc_count, 0);
            if (op != FIG_OP_CALL)
                assert_int_equal(launch->params_bytes, fig_kernel_table[op].params_bytes);
            params += (launch->params_bytes + 63) / 64 * 64;
            relocs += launch->reloc_count;
        }
        assert_int_equal(g.lowered.params_bytes, params);
        assert_int_equal(g.lowered.reloc_count, relocs);
        ground_finish(&g);
        fig_program_destroy(program);
    }
}

static uint32_t width_of(const fig_reloc *reloc) {
    return fig_launch_reloc_bytes(reloc->kind);
}

/* Params that are bound to two sets of addresses must differ in the relocated words and nowhere
 * else. Each launch's relocations must lie in its own params. */
static void relocations_are_all_that_binding_changes(void **state) {
    (void)state;
    fig_random random = fig_random_seed(33);
    for (int round = 0; round < PROGRAM_COUNT; round++) {
        fig_program *program = record_random(&random);
        ground g;
        ground_make(&g, program);
        const fig_lowered *lowered = &g.lowered;
        uint8_t *bound[2], *relocated = calloc(1, lowered->params_bytes);
        for (int place = 0; place < 2; place++) {
            bound[place] = malloc(lowered->params_bytes);
            memcpy(bound[place], lowered->params, lowered->params_bytes);
        }
        for (uint32_t i = 0; i < lowered->launch_count; i++) {
            const fig_launch *launch = &lowered->launches[i];
            uint32_t end = launch->params;
            for (uint32_t r = launch->reloc; r < launch->reloc + launch->reloc_count; r++) {
                const fig_reloc *reloc = &lowered->relocs[r];
                assert_true(reloc->offset >= end); /* sorted and without overlaps */
                end = reloc->offset + width_of(reloc);
                assert_true(end <= launch->params + launch->params_bytes);
                memset(relocated + reloc->offset, 1, width_of(reloc));
                memset(bound[0] + reloc->offset, 0x11, width_of(reloc));
                memset(bound[1] + reloc->offset, 0xee, width_of(reloc));
            }
        }
        for (uint32_t i = 0; i < lowered->params_bytes; i++) {
            assert_int_equal(bound[0][i] != bound[1][i], relocated[i]);
            assert_true(!relocated[i] || lowered->params[i] == 0);
        }
        free(bound[0]);
        free(bound[1]);
        free(relocated);
        ground_finish(&g);
        fig_program_destroy(program);
    }
}

/* ---- Digest ---------------------------------------------------------------------------------- */

static uint64_t digest_of(const fig_lower_common *common, const fig_bucket_shape *shape) {
    return fig_lower_digest(common, fig_lower_shape_digest(shape));
}

static void the_same_program_gives_the_same_bytes(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *a = fig_sample_step(&spec), *b = fig_sample_step(&spec);
    ground g, h;
    ground_make(&g, a);
    ground_make(&h, b);
    assert_memory_equal(&g.shape, &h.shape, sizeof g.shape);
    assert_int_equal(g.lowered.params_bytes, h.lowered.params_bytes);
    assert_memory_equal(g.lowered.params, h.lowered.params, g.lowered.params_bytes);
    assert_true(digest_of(&g.common, &g.shape) == digest_of(&h.common, &h.shape));
    ground_finish(&g);
    ground_finish(&h);
    fig_program_destroy(a);
    fig_program_destroy(b);
}

/* Checks that changing any byte of an array changes the digest of the parts that buckets share. */
static void change_each_byte(const fig_lower_common *common, void *array, size_t count) {
    uint8_t *bytes = array;
    for (size_t i = 0; i < count; i++) {
        bytes[i] ^= 1;
        if (fig_lower_common_digest(common) == common->digest)
            fail_msg("byte %zu of %zu is not seen", i, count);
        bytes[i] ^= 1;
    }
    assert_true(fig_lower_common_digest(common) == common->digest);
}

static void the_digest_sees_every_byte_and_count(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    ground g;
    ground_make(&g, program);
    fig_lower_common *common = &g.common;
    const uint64_t digest = digest_of(common, &g.shape);
    change_each_byte(common, common->early_reads,
                     common->launch_count * sizeof *common->early_reads);
    change_each_byte(common, common->params, common->params_bytes);
    change_each_byte(common, common->launches, common->launch_count * sizeof(fig_launch));
    change_each_byte(common, common->edges, common->edge_count * sizeof(fig_edge));
    change_each_byte(common, common->relocs, common->reloc_count * sizeof(fig_reloc));
    uint32_t *counts[] = {&common->launch_count, &common->edge_count, &common->reloc_count,
                          &common->params_bytes};
    for (int i = 0; i < 4; i++) {
        --*counts[i];
        assert_true(fig_lower_common_digest(common) != common->digest);
        ++*counts[i];
    }
    common->digest ^= 1;
    assert_true(digest_of(common, &g.shape) != digest);
    common->digest ^= 1;
    assert_true(digest_of(common, &g.shape) == digest);
    ground_finish(&g);
    fig_program_destroy(program);
}

/* Every number of a bucket's shape that params hold changes the bucket's digest. A number that is
 * used only by a plan or by the choice of a bucket does not. */
static void the_digest_of_a_bucket_sees_what_params_hold_of_it(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    ground g;
    ground_make(&g, program);
    fig_bucket_shape *shape = &g.shape;
    fig_split_shape *split = &shape->plan.splits[0];
    const uint64_t digest = digest_of(&g.common, shape);
    int32_t *held[] = {&shape->plan.row_limit,
                       &shape->plan.row_tokens,
                       &shape->plan.class_count,
                       &split->row_limit,
                       &split->groups,
                       &split->tile_tokens,
                       &split->workers,
                       &split->window,
                       &split->row_tokens,
                       &split->fixed,
                       &shape->variants[0].heads,
                       &shape->variants[0].stages};
    int32_t *others[] = {&shape->caps.kv, &split->tile_limit, &shape->variants[0].start_ns};
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++) {
        ++*held[i];
        if (digest_of(&g.common, shape) == digest) fail_msg("number %zu is not seen", i);
        --*held[i];
    }
    for (uint32_t i = 0; i < sizeof shape->plan.layout / sizeof(uint32_t); i++) {
        ++((uint32_t *)&shape->plan.layout)[i];
        assert_true(digest_of(&g.common, shape) != digest);
        --((uint32_t *)&shape->plan.layout)[i];
    }
    for (int i = 0; i < 3; i++)
        ++*others[i];
    shape->plan.exec++;
    assert_true(digest_of(&g.common, shape) == digest);
    ground_finish(&g);
    fig_program_destroy(program);
}

/* Adds a second bucket with other limits, which differs from the first only in its params. */
static void buckets_share_their_common_parts(void **state) {
    (void)state;
    const fig_lower_target target = fig_sample_target("host");
    fig_program *program = fig_sample_breadth();
    ground g;
    fig_bucket_shape shape = {.caps = {3, 50}};
    fig_lowered other;
    ground_make(&g, program);
    assert_int_equal(fig_lower_shape(g.common.view, &target, 3, &shape), FIG_OK);
    assert_int_equal(fig_lower_bucket(&g.common, &shape, &other), FIG_OK);
    assert_ptr_equal(other.launches, g.lowered.launches);
    assert_ptr_equal(other.relocs, g.lowered.relocs);
    assert_ptr_equal(other.edges, g.lowered.edges);
    assert_memory_not_equal(other.params, g.lowered.params, other.params_bytes);
    for (uint32_t i = 0; i < other.params_bytes; i++) {
        const uint8_t byte = g.common.params[i];
        if (byte != 0 && (other.params[i] != byte || g.lowered.params[i] != byte))
            fail_msg("byte %u is of all buckets, and not the same in two", i);
    }
    fig_lower_finish(&other);
    ground_finish(&g);
    fig_program_destroy(program);
}

static void an_allocation_of_a_bucket_that_fails_is_reported(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    ground g;
    fig_lowered lowered;
    ground_make(&g, program);
    memset(&lowered, 0xff, sizeof lowered);
    fig_fault_arm(1);
    const fig_status status = fig_lower_bucket(&g.common, &g.shape, &lowered);
    fig_fault_disarm();
    FIG_SAMPLE_REFUSES(status, FIG_NOMEM, "bytes of params");
    assert_null(lowered.params);
    assert_int_equal(lowered.launch_count, 0);
    ground_finish(&g);
    fig_program_destroy(program);
}

static void each_allocation_that_fails_is_reported(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    ground g;
    int64_t n = 1;
    ground_make(&g, program);
    for (;; n++) {
        fig_lower_common common;
        memset(&common, 0xff, sizeof common);
        fig_fault_arm(n);
        const fig_status status =
            fig_lower_common_init(&common, fig_program_view_of(program), &g.workspace);
        const int64_t calls = fig_fault_disarm();
        if (calls < n) {
            fig_lower_common_finish(&common);
            break;
        }
        FIG_SAMPLE_REFUSES(status, FIG_NOMEM, ": ");
        assert_null(common.launches);
        assert_null(common.early_reads);
        assert_int_equal(common.launch_count, 0);
    }
    assert_int_equal(n, 11);
    ground_finish(&g);
    fig_program_destroy(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_made_on_the_device_comes_before_all_but_its_fetch),
        cmocka_unit_test(launches_keep_every_order_asked_for_and_no_other),
        cmocka_unit_test(launches_are_in_the_order_of_nodes_and_params_in_that_of_launches),
        cmocka_unit_test(relocations_are_all_that_binding_changes),
        cmocka_unit_test(the_same_program_gives_the_same_bytes),
        cmocka_unit_test(the_digest_sees_every_byte_and_count),
        cmocka_unit_test(the_digest_of_a_bucket_sees_what_params_hold_of_it),
        cmocka_unit_test(buckets_share_their_common_parts),
        cmocka_unit_test(an_allocation_of_a_bucket_that_fails_is_reported),
        cmocka_unit_test(each_allocation_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
