/* test_sketch.c: tests that a drawing contains each launch once, places it above all launches that
 * depend on it, and gives the right reason for each edge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tools/figraph/inspect/sketch.h"
#include "graphs/graphs.h"
#include "tests/support/files/capture.h"
#include "tests/support/fault.h"

typedef struct drawn {
    fig_inspect_bucket bucket;
    fig_sketch sketch;
} drawn;

static void open_bucket(drawn *d, const fig_graphs *graphs, uint32_t index) {
    *d = (drawn){.bucket = {.graphs = graphs, .index = index}};
    assert_int_equal(fig_inspection_open(&d->bucket.view, graphs, (int32_t)index + 1), FIG_OK);
}

static void open_drawn(drawn *d, const fig_graphs *graphs, uint32_t index) {
    open_bucket(d, graphs, index);
    assert_int_equal(fig_sketch_make(&d->sketch, &d->bucket), FIG_OK);
}

static void close_drawn(drawn *d) {
    fig_sketch_finish(&d->sketch);
    fig_inspection_close(d->bucket.view);
}

/* Checks what sketch.h promises about boxes and edges. */
static void check(const drawn *d) {
    const fig_sketch *sketch = &d->sketch;
    uint32_t launch = 0;
    for (uint32_t i = 0; i < sketch->box_count; i++) {
        const fig_sketch_box *box = &sketch->boxes[i];
        assert_int_equal(box->launch, launch);
        assert_true(box->launch_count > 0);
        for (; launch < box->launch + box->launch_count; launch++)
            assert_int_equal(sketch->box_of[launch], i);
        assert_true(box->row < sketch->row_count && box->column < sketch->column_count);
        for (uint32_t other = 0; other < i; other++)
            assert_false(sketch->boxes[other].row == box->row &&
                         sketch->boxes[other].column == box->column);
    }
    assert_int_equal(launch, d->bucket.view->launch_count);
    for (uint32_t i = 0; i < sketch->edge_count; i++) {
        const fig_sketch_edge *edge = &sketch->edges[i];
        assert_true(edge->from < edge->to);
        assert_true(sketch->boxes[edge->from].row < sketch->boxes[edge->to].row);
        for (uint32_t other = 0; other < i; other++)
            assert_false(sketch->edges[other].from == edge->from &&
                         sketch->edges[other].to == edge->to);
    }
}

/* Checks that every edge between launches in different boxes is drawn. */
static void check_edges(const drawn *d) {
    const fig_inspection *lowered = d->bucket.view;
    for (uint32_t i = 0; i < lowered->edge_count; i++) {
        const uint32_t from = d->sketch.box_of[lowered->edges[i].from];
        const uint32_t to = d->sketch.box_of[lowered->edges[i].to];
        int found = from == to;
        for (uint32_t e = 0; e < d->sketch.edge_count; e++)
            found |= d->sketch.edges[e].from == from && d->sketch.edges[e].to == to;
        assert_true(found);
    }
}

static void every_launch_has_its_place_and_every_edge_a_stroke(void **state) {
    (void)state;
    fig_graphs *all[] = {fig_capture_mixed(), fig_capture_breadth(),
                         fig_capture_preset("gemma-2-9b", 42, "h200"),
                         fig_capture_preset("llama-3.1-8b", 4, "host")};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (uint32_t bucket = 0; bucket < all[i]->bucket_count; bucket += 40) {
            drawn d;
            open_drawn(&d, all[i], bucket);
            check(&d);
            check_edges(&d);
            close_drawn(&d);
        }
        fig_graphs_destroy(all[i]);
    }
}

static void layers_that_repeat_are_one_box(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_preset("llama-3.1-8b", 32, "h200");
    drawn d;
    open_drawn(&d, graphs, 0);
    const fig_sketch_box *last = &d.sketch.boxes[d.sketch.box_count - 1];
    assert_true(last->repeats);
    assert_int_equal(last->layer, 2);
    assert_int_equal(last->last_layer, 31);
    assert_int_equal(last->launch_count, 90);
    assert_true(d.sketch.box_count < 10);
    close_drawn(&d);
    fig_graphs_destroy(graphs);
}

/* Checks the reason for which launch `to` comes after launch `from`. */
static void assert_reason(const drawn *d, uint32_t from, uint32_t to, fig_sketch_reason reason,
                          const char *tensor, int ends) {
    const fig_sketch_edge edge = fig_sketch_explain(&d->bucket, &(fig_edge){from, to});
    assert_int_equal(edge.reason, reason);
    assert_int_equal(edge.ends, ends);
    assert_int_equal(edge.tensor != 0, tensor != NULL);
    if (tensor != NULL) assert_string_equal(d->bucket.view->tensors[edge.tensor - 1].name, tensor);
}

static void an_edge_says_why_it_is_there(void **state) {
    (void)state;
    fig_graphs *mixed = fig_capture_mixed(), *breadth = fig_capture_breadth();
    fig_graphs *turned = fig_capture_preset("llama-3.1-8b", 2, "h200");
    drawn d;
    open_drawn(&d, mixed, 0);
    assert_reason(&d, 0, 3, FIG_SKETCH_PLAN, NULL, 0);
    assert_reason(&d, 0, 1, FIG_SKETCH_PLAN, NULL, 1);
    assert_reason(&d, 1, 2, FIG_SKETCH_READ, "up.0", 1);
    assert_reason(&d, 3, 4, FIG_SKETCH_READ, "k.0", 0);
    assert_reason(&d, 5, 11, FIG_SKETCH_WORKSPACE, NULL, 0);
    close_drawn(&d);
    open_drawn(&d, breadth, 0);
    assert_reason(&d, 5, 10, FIG_SKETCH_OVERWRITE, "out.0", 0);
    assert_reason(&d, 1, 2, FIG_SKETCH_PLAN, NULL, 0);
    close_drawn(&d);
    open_drawn(&d, turned, 0);
    assert_reason(&d, 2, 3, FIG_SKETCH_REST, NULL, 0);
    close_drawn(&d);
    fig_graphs_destroy(mixed);
    fig_graphs_destroy(breadth);
    fig_graphs_destroy(turned);
}

static void a_failed_allocation_leaves_nothing(void **state) {
    (void)state;
    fig_graphs *graphs = fig_capture_mixed();
    drawn d;
    open_bucket(&d, graphs, 0);
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        const fig_status status = fig_sketch_make(&d.sketch, &d.bucket);
        if (fig_fault_disarm() < n) break;
        assert_int_equal(status, FIG_NOMEM);
        assert_null(d.sketch.boxes);
    }
    close_drawn(&d);
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launch_has_its_place_and_every_edge_a_stroke),
        cmocka_unit_test(layers_that_repeat_are_one_box),
        cmocka_unit_test(an_edge_says_why_it_is_there),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
