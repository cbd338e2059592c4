/* test_edges.c: tests that every order that the edges allow gives the results of the recorded
 * order, and that no edge is superfluous.
 *
 * For comparison, the test runs the nodes: a node hashes what it reads and changes what it
 * writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/view/edges.h"
#include "graphs/view/hash.h"
#include "kernels/table/table.h"
#include "tests/support/fault.h"
#include "tests/support/random.h"

enum { NODE_CAPACITY = 40, TENSOR_CAPACITY = 12, ACCESS_CAPACITY = NODE_CAPACITY * 6 };
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { PROGRAM_COUNT = 2000 };
#else
enum { PROGRAM_COUNT = 20000 };
#endif

typedef struct recorded {
    fig_edge_access accesses[ACCESS_CAPACITY]; /* in the order of their nodes */
    uint32_t access_count, node_count;
    fig_edge *edges;
    uint32_t edge_count;
} recorded;

/* What each node read, as a hash, and the final memory. */
typedef struct outcome {
    uint64_t seen[NODE_CAPACITY];
    uint64_t memory[TENSOR_CAPACITY];
} outcome;

static void record(recorded *r, fig_random *random) {
    const int32_t tensors = fig_random_range(random, 1, TENSOR_CAPACITY);
    memset(r, 0, sizeof *r);
    r->node_count = (uint32_t)fig_random_range(random, 1, NODE_CAPACITY);
    for (uint32_t node = 0; node < r->node_count; node++) {
        const int32_t count = fig_random_range(random, 0, 6);
        for (int32_t i = 0; i < count; i++) {
            fig_edge_access *access = &r->accesses[r->access_count++];
            access->node = node;
            access->tensor = (uint32_t)fig_random_range(random, 1, tensors);
            access->access =
                fig_random_range(random, 0, 2) == 0 ? FIG_ACCESS_WRITE : FIG_ACCESS_READ;
        }
    }
    fig_edge_access sorted[ACCESS_CAPACITY];
    memcpy(sorted, r->accesses, sizeof sorted);
    assert_int_equal(fig_edges_derive(&r->edges, &r->edge_count, sorted, r->access_count), FIG_OK);
}

static void run_node(const recorded *r, uint32_t node, outcome *out) {
    uint64_t hash = node;
    for (uint32_t i = 0; i < r->access_count; i++) {
        const fig_edge_access *access = &r->accesses[i];
        if (access->node == node && access->access == FIG_ACCESS_READ)
            hash = fig_hash_mix(hash, &out->memory[access->tensor - 1], sizeof hash);
    }
    out->seen[node] = hash;
    for (uint32_t i = 0; i < r->access_count; i++) {
        const fig_edge_access *access = &r->accesses[i];
        uint64_t *memory = &out->memory[access->tensor - 1];
        /* A node may write a part only, as an append to a cache does. */
        if (access->node == node && access->access == FIG_ACCESS_WRITE)
            *memory = fig_hash_mix(*memory, &hash, sizeof hash);
    }
}

/* Runs the nodes in a random order that respects every edge. */
static void run_shuffled(const recorded *r, fig_random *random, outcome *out) {
    uint8_t done[NODE_CAPACITY] = {0};
    for (uint32_t ran = 0; ran < r->node_count; ran++) {
        uint32_t ready[NODE_CAPACITY], count = 0;
        for (uint32_t node = 0; node < r->node_count; node++) {
            int waits = done[node];
            for (uint32_t i = 0; i < r->edge_count; i++)
                waits |= r->edges[i].to == node && !done[r->edges[i].from];
            if (!waits) ready[count++] = node;
        }
        assert_true(count > 0);
        const uint32_t node = ready[fig_random_range(random, 0, (int32_t)count - 1)];
        run_node(r, node, out);
        done[node] = 1;
    }
}

static void any_order_the_edges_allow_gives_what_the_recorded_order_gives(void **state) {
    (void)state;
    static recorded r;
    fig_random random = fig_random_seed(11);
    for (int program = 0; program < PROGRAM_COUNT / 10; program++) {
        outcome expected, shuffled;
        record(&r, &random);
        memset(&expected, 0, sizeof expected);
        for (uint32_t node = 0; node < r.node_count; node++)
            run_node(&r, node, &expected);
        for (int order = 0; order < 3; order++) {
            memset(&shuffled, 0, sizeof shuffled);
            run_shuffled(&r, &random, &shuffled);
            if (memcmp(&shuffled, &expected, sizeof expected) != 0)
                fail_msg("program %d, order %d: another outcome", program, order);
        }
        free(r.edges);
    }
}

/* Returns 1 if a path other than edge number `skipped` leads from edge.from to edge.to. */
static int is_reachable(const recorded *r, fig_edge edge, uint32_t skipped) {
    uint8_t reached[NODE_CAPACITY] = {0};
    reached[edge.from] = 1;
    /* edges are sorted by `to`, so one pass is enough */
    for (uint32_t i = 0; i < r->edge_count; i++) {
        if (i != skipped && reached[r->edges[i].from]) reached[r->edges[i].to] = 1;
    }
    return reached[edge.to];
}

static int must_keep_order(const recorded *r, uint32_t a, uint32_t b) {
    for (uint32_t i = 0; i < r->access_count; i++) {
        for (uint32_t j = 0; j < r->access_count; j++) {
            const fig_edge_access *x = &r->accesses[i], *y = &r->accesses[j];
            if (x->node == a && y->node == b && x->tensor == y->tensor &&
                ((x->access | y->access) & FIG_ACCESS_WRITE))
                return 1;
        }
    }
    return 0;
}

static void each_edge_is_needed_and_in_order(void **state) {
    (void)state;
    static recorded r;
    fig_random random = fig_random_seed(12);
    for (int program = 0; program < PROGRAM_COUNT; program++) {
        record(&r, &random);
        for (uint32_t i = 0; i < r.edge_count; i++) {
            const fig_edge edge = r.edges[i];
            assert_true(edge.from < edge.to && edge.to < r.node_count);
            if (i > 0) {
                const fig_edge last = r.edges[i - 1];
                assert_true(last.to < edge.to || (last.to == edge.to && last.from < edge.from));
            }
            if (!must_keep_order(&r, edge.from, edge.to))
                fail_msg("program %d: edge %u to %u without cause", program, edge.from, edge.to);
            if (is_reachable(&r, edge, i))
                fail_msg("program %d: edge %u to %u is implied", program, edge.from, edge.to);
        }
        free(r.edges);
    }
}

/* The removal of superfluous edges keeps the ancestors of only some nodes at once; here are more
 * nodes. The test computes, for each node, a row of all its ancestors by the kept edges. */
static void many_nodes_get_each_needed_edge_and_no_other(void **state) {
    (void)state;
    enum { NODES = 1500, TENSORS = 60, ACCESSES = 3 * NODES };
    static fig_edge_access accesses[ACCESSES], sorted[ACCESSES];
    static uint8_t after[NODES][NODES];
    fig_random random = fig_random_seed(13);
    fig_edge *edges;
    uint32_t count;
    for (uint32_t i = 0; i < ACCESSES; i++) {
        const int writes = fig_random_range(&random, 0, 7) == 0;
        accesses[i] = (fig_edge_access){i / 3, (uint32_t)fig_random_range(&random, 1, TENSORS),
                                        writes ? FIG_ACCESS_WRITE : FIG_ACCESS_READ};
    }
    memcpy(sorted, accesses, sizeof sorted);
    assert_int_equal(fig_edges_derive(&edges, &count, sorted, ACCESSES), FIG_OK);
    for (uint32_t i = 0, last; i < count; i = last) {
        const uint32_t to = edges[i].to;
        for (last = i; last < count && edges[last].to == to; last++)
            for (uint32_t n = 0; n < NODES; n++)
                after[to][n] |= after[edges[last].from][n];
        for (uint32_t e = i; e < last; e++) {
            if (after[to][edges[e].from]) fail_msg("edge %u to %u is implied", edges[e].from, to);
            assert_true(edges[e].from < to);
        }
        for (uint32_t e = i; e < last; e++)
            after[to][edges[e].from] = 1;
    }
    for (uint32_t i = 0; i < ACCESSES; i++) {
        for (uint32_t j = i + 1; j < ACCESSES; j++) {
            const fig_edge_access *x = &accesses[i], *y = &accesses[j];
            if (x->node == y->node || x->tensor != y->tensor) continue;
            if ((x->access | y->access) & FIG_ACCESS_WRITE) assert_true(after[y->node][x->node]);
        }
    }
    free(edges);
}

static void nodes_that_only_read_have_no_edges(void **state) {
    (void)state;
    fig_edge_access accesses[] = {{0, 1, FIG_ACCESS_READ}, {1, 1, FIG_ACCESS_READ}};
    fig_edge *edges = (fig_edge *)accesses;
    uint32_t count = 9;
    assert_int_equal(fig_edges_derive(&edges, &count, accesses, 2), FIG_OK);
    assert_null(edges);
    assert_int_equal(count, 0);
    assert_int_equal(fig_edges_derive(&edges, &count, NULL, 0), FIG_OK);
    assert_null(edges);
}

static void repeated_edges_become_one(void **state) {
    (void)state;
    fig_edge edges[] = {{1, 2}, {0, 1}, {0, 2}, {1, 2}, {0, 1}, {2, 70}, {0, 70}, {65, 70}};
    uint32_t count = 8;
    assert_int_equal(fig_edges_reduce(edges, &count), FIG_OK);
    assert_int_equal(count, 4);
    static const fig_edge expected[] = {{0, 1}, {1, 2}, {2, 70}, {65, 70}};
    assert_memory_equal(edges, expected, sizeof expected);
}

static void a_failed_allocation_leaves_no_edges(void **state) {
    (void)state;
    for (int64_t n = 1; n <= 2; n++) {
        fig_edge_access accesses[] = {{0, 1, FIG_ACCESS_WRITE}, {1, 1, FIG_ACCESS_READ}};
        fig_edge *edges = NULL;
        uint32_t count = 9;
        fig_fault_arm(n);
        fig_status status = fig_edges_derive(&edges, &count, accesses, 2);
        assert_true(fig_fault_disarm() >= n);
        assert_int_equal(status, FIG_NOMEM);
        assert_non_null(strstr(fig_message(), "edges: "));
        assert_null(edges);
        assert_int_equal(count, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_the_edges_allow_gives_what_the_recorded_order_gives),
        cmocka_unit_test(each_edge_is_needed_and_in_order),
        cmocka_unit_test(many_nodes_get_each_needed_edge_and_no_other),
        cmocka_unit_test(nodes_that_only_read_have_no_edges),
        cmocka_unit_test(repeated_edges_become_one),
        cmocka_unit_test(a_failed_allocation_leaves_no_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
