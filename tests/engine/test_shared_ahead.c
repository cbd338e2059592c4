/* test_shared_ahead.c: stages steps whose rows share pages ahead of their launches, takes some
 * back, and changes the pages of other sequences in between, in random order.
 *
 * The float64 reference reads a table that the test keeps. Invariant: the test changes only the
 * entries of sequences that no waiting step has a row of, and the engine never refuses that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/kernels/chunk_case.h"
#include "tests/support/place.h"

enum { ROWS = 8, PAGE = 16, AHEAD = 4, VECTORS = 6, FEW = 3, WAIT_US = 120000000 };
enum { PAGE_LIMIT = FIG_CHUNK_ROW_LIMIT * 4096 };

static const fig_chunk_form form = {.dtype = FIG_BF16,
                                    .kv_dtype = FIG_BF16,
                                    .q_heads = 4,
                                    .kv_heads = 1,
                                    .head_dim = 64,
                                    .page_size = PAGE,
                                    .rows = ROWS,
                                    .kv = 1500,
                                    .row_tokens = 40,
                                    .query_limit = 100};

static struct world {
    fig_chunk_case c;
    fig_random random;
    int32_t ends[ROWS];          /* tokens of each sequence, those of waiting steps included */
    int32_t written[ROWS];       /* tokens that launched steps have written */
    uint8_t uses[PAGE_LIMIT];    /* for each page, the entries that name it */
    fig_chunk_step steps[AHEAD]; /* [waiting] staged, the oldest first */
    int32_t waiting;
    uint64_t turn;
} w;

static void expect(fig_status status) {
    if (status != FIG_OK) fail_msg("%s: %s", fig_status_name(status), fig_message());
}

static int32_t draw(int32_t low, int32_t high) {
    return fig_random_range(&w.random, low, high);
}

static int32_t *entries_of(int32_t sequence) {
    return w.c.table + (int64_t)sequence * w.c.columns;
}

static int waits(int32_t sequence) {
    for (int32_t i = 0; i < w.waiting; i++)
        for (int32_t row = 0; row < w.steps[i].rows; row++)
            if (w.steps[i].sequences[row] == sequence) return 1;
    return 0;
}

/* ---- Pages ----------------------------------------------------------------------------------- */

static int32_t free_page(void) {
    int32_t page = draw(0, (int32_t)w.c.pages - 1);
    while (w.uses[page] > 0)
        page = (page + 1) % (int32_t)w.c.pages;
    w.uses[page] = 1;
    return page;
}

/* Gives a sequence that no waiting step has other pages: the first ones are those of `source`. The
 * entries go with the next plan, or ahead of the plans. */
static void renew(int32_t sequence, int32_t source) {
    const int32_t most = draw(0, 1) == 0 ? FEW : w.c.columns;
    const int32_t whole = sequence == source ? 0 : w.written[source] / PAGE;
    const int32_t shared = draw(0, 5) == 0 ? 0 : draw(whole * 3 / 4, whole);
    int32_t *entries = entries_of(sequence);
    for (int32_t i = 0; i < w.c.columns; i++)
        w.uses[entries[i]]--;
    for (int32_t i = 0; i < w.c.columns; i++)
        entries[i] = i < shared ? entries_of(source)[i] : -1;
    for (int32_t i = 0; i < shared; i++)
        w.uses[entries[i]]++;
    for (int32_t i = shared; i < w.c.columns; i++)
        entries[i] = free_page();
    for (int32_t first = 0; first < w.c.columns; first += most)
        expect(fig_engine_set_pages(w.c.engine,
                                    FIG_OPTIONS(fig_pages, .sequence = sequence, .first = first,
                                                .count = fig_size_min(most, w.c.columns - first),
                                                .pages = entries + first)));
    w.ends[sequence] = w.written[sequence] = shared * PAGE;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Takes the tokens of a step that is not staged from its sequences. */
static void drop(const fig_chunk_step *step) {
    for (int32_t row = 0; row < step->rows; row++)
        w.ends[step->sequences[row]] -= step->counts[row];
}

static void stage(void) {
    fig_chunk_step *step = &w.steps[w.waiting];
    const int32_t first = draw(0, ROWS - 1);
    int32_t left = form.query_limit;
    *step = (fig_chunk_step){.rows = draw(2, ROWS)};
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t sequence = (first + 3 * row) % ROWS;
        int32_t count = draw(0, 9) == 0 ? draw(2, form.row_tokens) : 1;
        count = fig_size_min(count, fig_size_min(left, form.kv - w.ends[sequence]));
        step->sequences[row] = sequence;
        step->counts[row] = count;
        step->lengths[row] = count > 0 ? w.ends[sequence] += count : 0;
        left -= count;
    }
    const fig_status status = fig_engine_stage(
        w.c.engine, FIG_OPTIONS(fig_step, .rows = step->rows, .kv_lengths = step->lengths,
                                .sequences = step->sequences, .query_counts = step->counts));
    if (status == FIG_BUSY && w.waiting > 0) { /* waiting plans carry many older entries */
        drop(step);
        return;
    }
    expect(status);
    w.waiting++;
}

static void take_back(void) {
    const fig_chunk_step *step = &w.steps[--w.waiting];
    expect(fig_engine_take_back(w.c.engine));
    drop(step);
}

static void launch(void) {
    int32_t contents[FIG_CHUNK_ROW_LIMIT];
    const fig_chunk_step step = w.steps[0];
    for (int32_t row = 0; row < step.rows; row++)
        contents[row] = row;
    fig_chunk_case_fill(&w.c, &step, contents, ++w.turn);
    expect(fig_engine_launch(w.c.engine));
    expect(fig_engine_wait(w.c.engine, WAIT_US));
    fig_chunk_case_check(&w.c, &step, VECTORS);
    for (int32_t row = 0; row < step.rows; row++)
        if (step.counts[row] > 0) w.written[step.sequences[row]] = step.lengths[row];
    memmove(w.steps, w.steps + 1, (size_t)--w.waiting * sizeof *w.steps);
}

static void open_world(uint64_t seed) {
    w.random = fig_random_seed(seed);
    fig_chunk_case_open(&w.c, &form, seed);
    memset(w.uses, 0, sizeof w.uses);
    w.waiting = 0;
    for (int32_t s = 0; s < ROWS; s++) {
        w.ends[s] = w.written[s] = draw(form.kv / 3, form.kv / 2);
        for (int32_t i = 0; i < w.c.columns; i++)
            w.uses[entries_of(s)[i]]++;
    }
}

static int64_t run_world(uint64_t seed, int32_t moves) {
    fig_engine_stats stats = {.size = sizeof stats};
    open_world(seed);
    for (int32_t n = 0; n < moves; n++) {
        const int32_t kind = draw(0, 9), sequence = draw(0, ROWS - 1);
        if (kind < 3 && !waits(sequence)) renew(sequence, draw(0, ROWS - 1));
        if (kind >= 3 && kind < 6 && w.waiting < AHEAD) stage();
        if (kind >= 6 && kind < 8 && w.waiting > 0) launch();
        if (kind == 8 && w.waiting > 0) take_back();
    }
    expect(fig_engine_read_stats(w.c.engine, &stats));
    fig_chunk_case_close(&w.c);
    return stats.shared_steps;
}

static void steps_staged_ahead_are_right(void **state) {
    (void)state;
    const int calls = fig_place_cases(150);
    int64_t shared = 0;
    for (uint64_t seed = 1; seed <= 4; seed++)
        shared += run_world(seed, calls);
    print_message("%d steps shared pages\n", (int)shared);
    assert_true(shared > 2 * calls / 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_staged_ahead_are_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
