/* test_serve_batch.c: tests that requests are served in order of arrival, even if rows or pages run
 * out, and that every request is completed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/support/random.h"
#include "tools/figraph/serve/serve_batch.h"
#include "tools/figraph/terminal/report.h"

enum { TOKENS = 4, ROW = 16, LIMIT = TOKENS * ROW, REQUESTS = 60 };

typedef struct setting {
    int32_t rows, pages, row_tokens, horizon;
} setting;

static fig_serve_batch make_chunks(const fig_serve_trace *trace, const setting *of, int32_t chunk) {
    fig_serve_batch batch;
    const fig_serve_batch_options options = {.trace = trace,
                                             .pages = {.page_count = of->pages,
                                                       .page_tokens = TOKENS,
                                                       .sequence_count = of->rows,
                                                       .sequence_pages = ROW},
                                             .row_tokens = of->row_tokens,
                                             .chunk = chunk};
    assert_int_equal(fig_serve_batch_init(&batch, &options), FIG_EXIT_FINE);
    return batch;
}

static fig_serve_batch make(const fig_serve_trace *trace, const setting *of) {
    return make_chunks(trace, of, 0);
}

static int is_running(const fig_serve_batch *batch, int32_t request) {
    for (int32_t row = 0; row < batch->rows; row++)
        if (batch->requests[row] == request) return 1;
    return 0;
}

/* Checks that every request is in at most one place, that each sequence exists once, that a row's
 * length is its prompt plus the tokens made so far, and that only running rows hold pages. */
static void check(const fig_serve_batch *batch) {
    int32_t seen[REQUESTS] = {0}, free_pages = batch->pages.page_count;
    int64_t sequences = 0;
    for (int32_t row = 0; row < batch->row_limit; row++) {
        sequences |= INT64_C(1) << batch->sequences[row];
        if (row >= batch->rows) assert_int_equal(batch->pages.held[batch->sequences[row]], 0);
        free_pages -= batch->pages.held[batch->sequences[row]];
    }
    assert_int_equal(sequences, (INT64_C(1) << batch->row_limit) - 1);
    assert_int_equal(free_pages, batch->pages.free_count);
    for (int32_t row = 0; row < batch->rows; row++) {
        const int32_t request = batch->requests[row];
        assert_int_equal(batch->lengths[row], batch->trace->requests[request].prompt +
                                                  batch->made[request] + batch->row_tokens);
        seen[request]++;
    }
    for (int32_t i = 0; i < batch->preempted_count; i++)
        seen[batch->preempted[i]]++;
    for (int32_t i = 0; i < REQUESTS; i++)
        assert_true(seen[i] <= (i < batch->next));
}

/* Checks that no running request has arrived after a waiting one. */
static void check_order(const fig_serve_batch *batch) {
    int waits = 0;
    for (int32_t i = 0; i < REQUESTS; i++) {
        if (batch->made[i] == batch->trace->requests[i].output) continue;
        if (!is_running(batch, i))
            waits = 1;
        else
            assert_false(waits);
    }
}

/* Counts the rows whose last token will not fit into the pages that they hold. */
static int32_t count_growing(const fig_serve_batch *batch) {
    int32_t count = 0;
    for (int32_t row = 0; row < batch->rows; row++) {
        const fig_serve_request *request = &batch->trace->requests[batch->requests[row]];
        int32_t length = batch->lengths[row], made = batch->made[batch->requests[row]];
        while (made + batch->row_tokens < request->output) {
            made += batch->row_tokens;
            length += batch->row_tokens;
        }
        count += length > batch->pages.held[batch->sequences[row]] * TOKENS;
    }
    return count;
}

/* Does the work that the serving loop does before a step; returns the number of planned steps. */
static int32_t plan(fig_serve_batch *batch, int32_t most) {
    fig_pages change;
    while (fig_serve_batch_can_join(batch)) {
        const int32_t growing = count_growing(batch);
        fig_serve_batch_join(batch, &change);
        assert_true(batch->pages.free_count >= growing);
        assert_true(change.count > 0 && change.first == 0);
    }
    for (int32_t row = 0; row < batch->rows; row++) {
        if (fig_serve_pages_grow(&batch->pages, batch->sequences[row], batch->lengths[row],
                                 &change))
            continue;
        fig_serve_batch_preempt(batch);
        row = -1;
    }
    const int32_t steps = fig_serve_batch_horizon(batch, most);
    for (int32_t row = 0; row < batch->rows; row++)
        assert_int_equal(fig_serve_pages_grow(&batch->pages, batch->sequences[row],
                                              batch->lengths[row] + (steps - 1) * batch->row_tokens,
                                              &change),
                         1);
    return steps;
}

/* Serves all requests. Returns the number of preemptions. */
static int64_t serve(fig_serve_batch *batch, int32_t most) {
    int64_t total = 0, made = 0;
    for (int32_t i = 0; i < REQUESTS; i++)
        total += batch->trace->requests[i].output;
    for (int64_t now = 0; made < total; now++) {
        assert_true(now < 100000);
        fig_serve_batch_arrive(batch, now);
        const int32_t steps = plan(batch, most), rows = batch->rows;
        check(batch);
        check_order(batch);
        for (int32_t step = 0; step < steps && rows > 0; step++) {
            /* no request ends before the last step of a horizon */
            assert_int_equal(batch->rows, rows);
            int32_t makers[ROW];
            made += fig_serve_batch_advance(batch, makers).tokens;
            check(batch);
        }
    }
    assert_int_equal(made, total);
    assert_int_equal(batch->rows, 0);
    assert_int_equal(fig_serve_batch_waiting(batch), 0);
    assert_int_equal(batch->pages.free_count, batch->pages.page_count);
    return batch->preemptions;
}

static void everyone_ends_in_the_order_in_which_they_came(void **state) {
    (void)state;
    static const setting settings[] = {{1, ROW, 1, 1}, {4, 40, 1, 1}, {8, 20, 1, 1}, {8, ROW, 1, 5},
                                       {8, 200, 1, 9}, {8, 20, 3, 1}, {5, 24, 8, 4}};
    fig_serve_request requests[REQUESTS];
    int64_t preemptions = 0;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        for (uint64_t seed = 1; seed <= 20; seed++) {
            fig_random random = fig_random_seed(seed);
            for (int32_t r = 0; r < REQUESTS; r++) {
                const int32_t prompt = fig_random_range(&random, 1, LIMIT / 2);
                const int32_t most = LIMIT - prompt - settings[i].row_tokens + 1;
                requests[r] = (fig_serve_request){.arrival_ns = r * (int64_t)(seed % 4),
                                                  .prompt = prompt,
                                                  .output = fig_random_range(&random, 1, most)};
            }
            const fig_serve_trace trace = {.requests = requests, .count = REQUESTS};
            fig_serve_batch batch = make(&trace, &settings[i]);
            preemptions += serve(&batch, settings[i].horizon);
            fig_serve_batch_finish(&batch);
        }
    }
    assert_true(preemptions > 100);
}

/* Two rows hold three pages each. A third request may join only if, after its prompt, one page is
 * left for each row that still grows. */
static void a_joining_sequence_leaves_a_page_for_each_running_one(void **state) {
    (void)state;
    fig_serve_request requests[3] = {{0, 10, 30}, {0, 10, 30}, {0, 5, 9}};
    const fig_serve_trace trace = {.requests = requests, .count = 3};
    for (int32_t spare = 3; spare <= 4; spare++) {
        fig_serve_batch batch = make(&trace, &(setting){4, 6 + spare, 1, 1});
        fig_pages change;
        fig_serve_batch_arrive(&batch, 0);
        fig_serve_batch_join(&batch, &change);
        assert_int_equal(change.count, 3);
        fig_serve_batch_join(&batch, &change);
        assert_int_equal(fig_serve_batch_can_join(&batch), spare == 4);
        fig_serve_batch_finish(&batch);
    }
}

static void a_horizon_ends_with_the_first_row_or_with_the_pages(void **state) {
    (void)state;
    fig_serve_request requests[2] = {{0, 3, 20}, {0, 3, 6}};
    const fig_serve_trace trace = {.requests = requests, .count = 2};
    for (int32_t pages = 3; pages <= 4; pages++) {
        fig_serve_batch batch = make(&trace, &(setting){2, pages, 1, 1});
        fig_pages change;
        fig_serve_batch_arrive(&batch, 0);
        fig_serve_batch_join(&batch, &change);
        fig_serve_batch_join(&batch, &change);
        assert_int_equal(fig_serve_batch_horizon(&batch, 1), 1);
        /* In six steps, both lengths would grow from 4 to 9, which takes two more pages each. */
        assert_int_equal(fig_serve_batch_horizon(&batch, 100), 1);
        fig_serve_batch_finish(&batch);
    }
    fig_serve_batch batch = make(&trace, &(setting){2, 6, 1, 1});
    fig_pages change;
    fig_serve_batch_arrive(&batch, 0);
    fig_serve_batch_join(&batch, &change);
    fig_serve_batch_join(&batch, &change);
    assert_int_equal(fig_serve_batch_horizon(&batch, 100), 6);
    assert_int_equal(fig_serve_batch_horizon(&batch, 4), 4);
    fig_serve_batch_finish(&batch);
}

static void requests_that_have_not_arrived_do_not_wait(void **state) {
    (void)state;
    fig_serve_request requests[2] = {{5, 3, 2}, {7, 3, 2}};
    const fig_serve_trace trace = {.requests = requests, .count = 2};
    fig_serve_batch batch = make(&trace, &(setting){2, ROW, 1, 1});
    fig_serve_batch_arrive(&batch, 4);
    assert_int_equal(fig_serve_batch_waiting(&batch), 0);
    assert_int_equal(fig_serve_batch_can_join(&batch), 0);
    fig_serve_batch_arrive(&batch, 5);
    assert_int_equal(fig_serve_batch_waiting(&batch), 1);
    fig_serve_batch_arrive(&batch, 100);
    assert_int_equal(fig_serve_batch_waiting(&batch), 2);
    fig_serve_batch_finish(&batch);
}

/* ---- Prompts in chunks ----------------------------------------------------------------------- */

/* Checks what share() gave: the budget is kept, rows that decode have their token, and no prompt
 * got tokens that an older one still wanted. */
static void check_share(const fig_serve_batch *batch, int32_t given) {
    int32_t prompts = 0;
    for (int32_t row = 0; row < batch->rows; row++) {
        const int32_t request = batch->requests[row], queries = batch->queries[row];
        const int32_t known = batch->trace->requests[request].prompt + batch->made[request];
        const int32_t pending = known - batch->cached[row];
        assert_true(pending > 0 && queries >= 0 && queries <= pending);
        assert_true(queries <= batch->row_tokens);
        assert_int_equal(batch->lengths[row], batch->cached[row] + queries);
        if (pending == 1) {
            assert_int_equal(queries, 1);
            continue;
        }
        prompts += queries;
        for (int32_t other = 0; other < batch->rows && queries > 0; other++) {
            const int32_t older = batch->requests[other];
            if (older < request) assert_true(batch->queries[other] > 0);
        }
    }
    assert_int_equal(prompts, given);
    assert_true(given <= batch->chunk);
}

/* Serves everything; each token of each request is computed once, unless it was preempted. */
static void serve_chunks(fig_serve_batch *batch) {
    int64_t total = 0, made = 0, prompts = 0;
    int32_t makers[ROW];
    fig_pages change;
    for (int32_t i = 0; i < REQUESTS; i++)
        total += batch->trace->requests[i].output;
    for (int64_t now = 0; made < total; now++) {
        assert_true(now < 100000);
        fig_serve_batch_arrive(batch, now);
        while (fig_serve_batch_can_join(batch))
            fig_serve_batch_join(batch, &change);
        const int32_t given = fig_serve_batch_share(batch);
        check_share(batch, given);
        check_order(batch);
        for (int32_t row = 0; row < batch->rows; row++) {
            if (fig_serve_pages_grow(&batch->pages, batch->sequences[row], batch->lengths[row],
                                     &change))
                continue;
            fig_serve_batch_preempt(batch);
            row = -1;
        }
        const fig_serve_batch_made all = fig_serve_batch_advance(batch, makers);
        assert_int_equal(all.tokens, all.rows);
        made += all.tokens;
        prompts += given;
    }
    assert_int_equal(made, total);
    assert_int_equal(batch->rows, 0);
    assert_int_equal(batch->pages.free_count, batch->pages.page_count);
    if (batch->preemptions > 0) return;
    for (int32_t i = 0; i < REQUESTS; i++)
        prompts -= batch->trace->requests[i].prompt;
    assert_true(prompts <= 0 && prompts >= -REQUESTS);
}

static void prompts_share_a_budget_in_order_of_arrival(void **state) {
    (void)state;
    static const struct {
        setting of;
        int32_t chunk;
    } settings[] = {{{1, ROW, 5, 1}, 5},   {{4, 40, 64, 1}, 1},  {{8, 20, 64, 1}, 30},
                    {{8, 200, 7, 1}, 100}, {{8, 24, 20, 1}, 20}, {{5, 80, 1, 1}, 3}};
    fig_serve_request requests[REQUESTS];
    int64_t preemptions = 0;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        for (uint64_t seed = 1; seed <= 20; seed++) {
            fig_random random = fig_random_seed(seed);
            for (int32_t r = 0; r < REQUESTS; r++) {
                const int32_t prompt = fig_random_range(&random, 1, LIMIT / 2);
                requests[r] =
                    (fig_serve_request){.arrival_ns = r * (int64_t)(seed % 4),
                                        .prompt = prompt,
                                        .output = fig_random_range(&random, 1, LIMIT - prompt)};
            }
            const fig_serve_trace trace = {.requests = requests, .count = REQUESTS};
            fig_serve_batch batch = make_chunks(&trace, &settings[i].of, settings[i].chunk);
            serve_chunks(&batch);
            preemptions += batch.preemptions;
            fig_serve_batch_finish(&batch);
        }
    }
    assert_true(preemptions > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everyone_ends_in_the_order_in_which_they_came),
        cmocka_unit_test(a_joining_sequence_leaves_a_page_for_each_running_one),
        cmocka_unit_test(a_horizon_ends_with_the_first_row_or_with_the_pages),
        cmocka_unit_test(requests_that_have_not_arrived_do_not_wait),
        cmocka_unit_test(prompts_share_a_budget_in_order_of_arrival),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
