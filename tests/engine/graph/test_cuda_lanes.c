/* test_cuda_lanes.c: tests which lane a node takes and which nodes it then follows. The reference
 * is a table that has, for every two nodes, whether one follows the other. */
#include "engine/graph/cuda_lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/random.h"

enum { NODES = 200, LANES = FIG_CUDA_LANE_COUNT, DAGS = 400 };

/* The requested order, the resulting edges, and the order that these edges imply. */
typedef struct trial {
    uint32_t count;
    uint8_t asked[NODES][NODES], edge[NODES][NODES]; /* [node][a node that it follows] */
    uint8_t behind[NODES][NODES];                    /* [node][a node before it, at any distance] */
    uint32_t edge_counts[NODES];
    fig_cuda_lane_place places[NODES];
    fig_cuda_lanes lanes;
} trial;

static trial t; /* the table is too large for a stack */

static void begin(void) {
    memset(&t, 0, sizeof t);
}

/* Adds the next node after the nodes that its row of `asked` marks. Returns its number. */
static uint32_t add(void) {
    const uint32_t node = t.count;
    uint32_t nodes[NODES], before[NODES + 1];
    fig_dev_after after = {nodes, 0};
    for (uint32_t i = 0; i < node; i++)
        if (t.asked[node][i]) nodes[after.count++] = i;
    t.edge_counts[node] = fig_cuda_lanes_find(&t.lanes, t.places, after, &t.places[node], before);
    assert_in_range(t.edge_counts[node], 0, after.count + 1);
    for (uint32_t i = 0; i < t.edge_counts[node]; i++) {
        assert_in_range(before[i], 0, (uintmax_t)node - 1);
        assert_int_equal(t.edge[node][before[i]], 0); /* no edge is added twice */
        t.edge[node][before[i]] = 1;
        t.behind[node][before[i]] = 1;
        for (uint32_t j = 0; j < node; j++)
            t.behind[node][j] |= t.behind[before[i]][j];
    }
    fig_cuda_lanes_take(&t.lanes, &t.places[node], node);
    t.count++;
    return node;
}

static uint32_t add_after(const uint32_t *nodes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        t.asked[t.count][nodes[i]] = 1;
    return add();
}

/* Makes a random graph: a node follows each of the `reach` nodes before it with a chance of
 * `percent`. In half of the graphs, every node also follows node 0. The resulting graphs are
 * chains, meshes and stars. */
static void add_random(fig_random *random) {
    const int32_t nodes = fig_random_range(random, 1, NODES);
    const int32_t reach = fig_random_range(random, 1, nodes);
    const int32_t percent = fig_random_range(random, 0, 3) > 0 ? fig_random_range(random, 0, 12)
                                                               : fig_random_range(random, 0, 100);
    const int from_first = fig_random_range(random, 0, 1);
    begin();
    for (int32_t node = 0; node < nodes; node++) {
        for (int32_t i = node > reach ? node - reach : 0; i < node; i++)
            t.asked[node][i] = fig_random_range(random, 0, 99) < percent;
        if (from_first && node > 0) t.asked[node][0] = 1;
        add();
    }
}

static void each_node_follows_all_nodes_that_it_must_follow(void **state) {
    (void)state;
    fig_random random = fig_random_seed(1);
    for (int dag = 0; dag < DAGS; dag++) {
        add_random(&random);
        for (uint32_t node = 0; node < t.count; node++)
            for (uint32_t i = 0; i < node; i++)
                if (t.asked[node][i] && !t.behind[node][i])
                    fail_msg("dag %d: %u does not come after %u", dag, node, i);
    }
}

static void no_edge_is_implied_by_the_others(void **state) {
    (void)state;
    fig_random random = fig_random_seed(2);
    for (int dag = 0; dag < DAGS; dag++) {
        add_random(&random);
        for (uint32_t node = 0; node < t.count; node++)
            for (uint32_t i = 0; i < node; i++)
                for (uint32_t j = i + 1; t.edge[node][i] && j < node; j++)
                    if (t.edge[node][j] && t.behind[j][i])
                        fail_msg("dag %d: %u to %u is implied by %u", dag, i, node, j);
    }
}

/* Of each two nodes in one lane, the later follows the earlier. So if more nodes are chosen than
 * there are lanes, two of them are ordered. */
static void no_more_nodes_than_lanes_are_ever_unordered(void **state) {
    (void)state;
    fig_random random = fig_random_seed(3);
    uint32_t widest = 0;
    for (int dag = 0; dag < DAGS; dag++) {
        add_random(&random);
        for (uint32_t node = 0; node < t.count; node++) {
            const uint32_t lane = t.places[node].lane;
            if (lane > widest) widest = lane;
            for (uint32_t i = 0; i < node; i++)
                if (t.places[i].lane == lane && !t.behind[node][i])
                    fail_msg("dag %d: %u and %u of lane %u are unordered", dag, i, node, lane);
        }
    }
    assert_int_equal(widest, LANES - 1);
}

/* Sets marks[i] for each earlier node i that the node must follow because of its own requests. */
static void mark_asked(uint32_t node, uint8_t *marks) {
    memset(marks, 0, NODES);
    for (uint32_t i = 0; i < node; i++)
        for (uint32_t j = 0; t.asked[node][i] && j <= i; j++)
            marks[j] |= (uint8_t)(j == i || t.behind[i][j]);
}

/* Returns 1 if at least one lane is empty or ends in a marked node. */
static int some_lane_is_free(uint32_t node, const uint8_t *marks) {
    for (uint32_t lane = 0; lane < LANES; lane++) {
        int is_free = 1;
        for (uint32_t i = 0; i < node; i++)
            if (t.places[i].lane == lane) is_free = marks[i];
        if (is_free) return 1;
    }
    return 0;
}

static void a_node_waits_for_no_other_node_without_need(void **state) {
    (void)state;
    fig_random random = fig_random_seed(4);
    uint8_t marks[NODES];
    uint32_t freed = 0, bound = 0;
    for (int dag = 0; dag < DAGS; dag++) {
        add_random(&random);
        for (uint32_t node = 0; node < t.count; node++) {
            mark_asked(node, marks);
            const int same = memcmp(marks, t.behind[node], node) == 0;
            const int is_free = some_lane_is_free(node, marks);
            if (is_free && !same) fail_msg("dag %d: %u waits for one it need not", dag, node);
            freed += (uint32_t)is_free;
            bound += (uint32_t)!same;
        }
    }
    assert_true(freed > 1000 && bound > 1000); /* otherwise this test has tested nothing */
}

/* Returns the length of the longest path to a node, the node included, by the resulting edges. */
static uint32_t depth_of(uint32_t node) {
    uint32_t depths[NODES], deepest = 0;
    for (uint32_t i = 0; i <= node; i++) {
        depths[i] = 1;
        for (uint32_t j = 0; j < i; j++)
            if (t.edge[i][j] && depths[j] >= depths[i]) depths[i] = depths[j] + 1;
        deepest = depths[i];
    }
    return deepest;
}

/* No lane would have let the node begin earlier than the lane that it took. */
static void a_node_begins_as_early_as_a_lane_lets_it(void **state) {
    (void)state;
    fig_random random = fig_random_seed(5);
    for (int dag = 0; dag < DAGS / 8; dag++) {
        add_random(&random);
        uint32_t tails[LANES] = {0}; /* the depth of each lane's last node */
        for (uint32_t node = 0; node < t.count; node++) {
            uint32_t asked = 0, least = UINT32_MAX;
            for (uint32_t i = 0; i < node; i++)
                if (t.asked[node][i] && depth_of(i) > asked) asked = depth_of(i);
            for (uint32_t lane = 0; lane < LANES; lane++)
                if (tails[lane] < least) least = tails[lane];
            assert_int_equal(t.places[node].depth, depth_of(node));
            assert_int_equal(depth_of(node), 1 + (asked > least ? asked : least));
            tails[t.places[node].lane] = depth_of(node);
        }
    }
}

static void a_chain_stays_a_chain(void **state) {
    (void)state;
    begin();
    for (uint32_t node = 0; node < NODES; node++) {
        /* The requests include shortcuts that the chain implies. */
        for (uint32_t i = 0; i < node; i++)
            t.asked[node][i] = i + 1 == node || i % 3 == node % 3;
        add();
        assert_int_equal(t.places[node].lane, 0);
        assert_int_equal(t.places[node].depth, node + 1);
        assert_int_equal(t.edge_counts[node], node > 0);
        if (node > 0) assert_int_equal(t.edge[node][node - 1], 1);
    }
}

static void nodes_that_follow_no_node_take_lanes_of_their_own(void **state) {
    (void)state;
    begin();
    for (uint32_t node = 0; node < 2 * LANES; node++) {
        add();
        assert_int_equal(t.places[node].lane, node % LANES);
        assert_int_equal(t.edge_counts[node], node >= LANES);
    }
}

/* The shallower of the two nodes thus stays at the end of its lane, where a later node that follows
 * only this one can still go behind it. */
static void a_node_joins_the_lane_of_its_deepest_predecessor(void **state) {
    (void)state;
    begin();
    const uint32_t shallow = add();
    const uint32_t root = add();
    const uint32_t nodes[] = {shallow, add_after(&root, 1)};
    assert_int_equal(t.places[nodes[1]].depth, 2);
    const uint32_t last = add_after(nodes, 2);
    assert_int_equal(t.places[last].lane, t.places[nodes[1]].lane);
    assert_int_not_equal(t.places[last].lane, t.places[shallow].lane);
}

/* The activation and RoPE depend on the fetch alone. Attention also follows the attention of the
 * layer before, since both share memory. */
typedef struct layer {
    uint32_t activation, rope, append, attention;
} layer;

enum { LAYERS = 32 };
static layer layers[LAYERS];

static void add_decode_step(void) {
    begin();
    const uint32_t fetch = add();
    for (int n = 0; n < LAYERS; n++) {
        layer *here = &layers[n];
        here->activation = add_after(&fetch, 1);
        here->rope = add_after(&fetch, 1);
        here->append = add_after(&here->rope, 1);
        const uint32_t attention_after[] = {here->append, n > 0 ? layers[n - 1].attention : 0};
        here->attention = add_after(attention_after, n > 0 ? 2 : 1);
    }
}

/* Returns the latest layer before `n` whose attention the node waits for; -1: none. */
static int waits_for(uint32_t node, int n) {
    int latest = -1;
    for (int k = 0; k < n; k++)
        if (t.behind[node][layers[k].attention]) latest = k;
    return latest;
}

static void keys_need_not_wait_for_the_attention_of_the_layer_before(void **state) {
    (void)state;
    uint32_t edges = 0;
    add_decode_step();
    for (int n = 0; n < LAYERS; n++) {
        const layer *here = &layers[n];
        assert_in_range(waits_for(here->append, n) + 1, 0, n > 2 ? n - 1 : 0);
        assert_in_range(waits_for(here->activation, n) + 1, 0, n > 3 ? n - 2 : n / 3);
        assert_int_equal(waits_for(here->attention, n), n - 1);
        assert_int_equal(t.edge[here->append][here->rope], 1);
        assert_int_equal(t.edge_counts[here->append], 1);
        if (n > 0) assert_int_equal(t.edge[here->attention][layers[n - 1].attention], 1);
    }
    for (uint32_t node = 0; node < t.count; node++)
        edges += t.edge_counts[node];
    assert_in_range(edges, t.count - 1, 2 * t.count);
    /* The longest path alone has a fetch, a rope, an append, and one attention per layer. */
    assert_in_range(t.places[layers[LAYERS - 1].attention].depth, 3 + LAYERS, 3 + LAYERS * 3 / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_node_follows_all_nodes_that_it_must_follow),
        cmocka_unit_test(no_edge_is_implied_by_the_others),
        cmocka_unit_test(no_more_nodes_than_lanes_are_ever_unordered),
        cmocka_unit_test(a_node_waits_for_no_other_node_without_need),
        cmocka_unit_test(a_node_begins_as_early_as_a_lane_lets_it),
        cmocka_unit_test(a_chain_stays_a_chain),
        cmocka_unit_test(nodes_that_follow_no_node_take_lanes_of_their_own),
        cmocka_unit_test(a_node_joins_the_lane_of_its_deepest_predecessor),
        cmocka_unit_test(keys_need_not_wait_for_the_attention_of_the_layer_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
