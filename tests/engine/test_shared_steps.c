/* test_shared_steps.c: compares steps whose rows begin with the same pages with float64, while
 * pages and sequences change from step to step.
 *
 * Sequences are forked from each other, grow, and free pages that other sequences then get. The
 * float64 reference reads a table that the test keeps, which knows nothing of groups. Invariant: no
 * two sequences have a page that one of them will append to. */
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

enum {
    VECTORS = 12,
    PAGE_LIMIT = FIG_CHUNK_ROW_LIMIT * 4096,
    FEW = 4,
    FORMS = 8,
    LONG_ENOUGH = 700 /* tokens of a sequence, beside tails */
};
/* Sanitizers look for races and wrong accesses, not for wrong numbers, and slow kernels down up to
 * thirty times. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { FORM_STRIDE = 5, SMALLER = 6 };
#else
enum { FORM_STRIDE = 1, SMALLER = 1 };
#endif

static struct world {
    fig_chunk_case c, apart; /* `apart` takes the same steps without groups */
    fig_random random;
    int32_t ends[FIG_CHUNK_ROW_LIMIT]; /* tokens of each sequence */
    uint8_t uses[PAGE_LIMIT];          /* for each page, the number of table entries that name it */
    int32_t has_tails; /* 1: steps have no drafts and take a bucket whose launches read tails */
    int64_t tails;     /* steps with tails */
} w;

static void expect(fig_status status) {
    if (status != FIG_OK) fail_msg("%s: %s", fig_status_name(status), fig_message());
}

static int32_t draw(int32_t low, int32_t high) {
    return fig_random_range(&w.random, low, high);
}

static fig_chunk_form form_of(int32_t q_heads, int32_t kv_heads, int32_t head_dim) {
    return (fig_chunk_form){.dtype = FIG_BF16,
                            .kv_dtype = FIG_BF16,
                            .q_heads = q_heads,
                            .kv_heads = kv_heads,
                            .head_dim = head_dim,
                            .page_size = 16,
                            .rows = 12,
                            .kv = 2000,
                            .row_tokens = 60,
                            .query_limit = 200};
}

/* ---- Pages and sequences --------------------------------------------------------------------- */

static int32_t *entries_of(int32_t sequence) {
    return w.c.table + (int64_t)sequence * w.c.columns;
}

static void open_world(const fig_chunk_form *form, uint64_t seed) {
    fig_chunk_form alone = *form;
    alone.share = -1;
    w.random = fig_random_seed(seed);
    fig_chunk_case_open(&w.c, form, seed);
    fig_chunk_case_open(&w.apart, &alone, seed);
    memset(w.uses, 0, sizeof w.uses);
    for (int32_t s = 0; s < form->rows; s++) {
        const int32_t most = w.has_tails ? LONG_ENOUGH : form->kv - 1;
        w.ends[s] = draw(most / 4, most);
        for (int32_t i = 0; i < w.c.columns; i++)
            w.uses[entries_of(s)[i]]++;
    }
    assert_memory_equal(w.c.table, w.apart.table, (size_t)w.c.pages * sizeof *w.c.table);
}

static void close_world(void) {
    fig_chunk_case_close(&w.c);
    fig_chunk_case_close(&w.apart);
}

static int32_t free_page(void) {
    int32_t page = draw(0, (int32_t)w.c.pages - 1);
    while (w.uses[page] > 0)
        page = (page + 1) % (int32_t)w.c.pages;
    w.uses[page] = 1;
    return page;
}

/* Sets entries [first, end) of a sequence in both engines, a few at a time or all at once. */
static void send(int32_t sequence, int32_t first, int32_t end) {
    const int32_t most = draw(0, 2) == 0 ? FEW : w.c.columns;
    for (; first < end; first += most) {
        const fig_pages pages = {.size = sizeof pages,
                                 .sequence = sequence,
                                 .first = first,
                                 .count = fig_size_min(most, end - first),
                                 .pages = entries_of(sequence) + first};
        expect(fig_engine_set_pages(w.c.engine, &pages));
        expect(fig_engine_set_pages(w.apart.engine, &pages));
    }
}

/* Gives a sequence other pages: the first `shared` are those of `source`. */
static void renew(int32_t sequence, int32_t source, int32_t shared) {
    int32_t *entries = entries_of(sequence);
    for (int32_t i = 0; i < w.c.columns; i++)
        w.uses[entries[i]]--;
    for (int32_t i = 0; i < shared; i++)
        w.uses[entries[i] = entries_of(source)[i]]++;
    for (int32_t i = shared; i < w.c.columns; i++)
        entries[i] = free_page();
    if (shared > 0 && draw(0, 1) == 0) {
        const fig_fork fork = {.size = sizeof fork,
                               .source = source,
                               .target = sequence,
                               .length = shared * w.c.form.page_size};
        expect(fig_engine_fork(w.c.engine, &fork));
        expect(fig_engine_fork(w.apart.engine, &fork));
        send(sequence, shared, w.c.columns);
    } else {
        send(sequence, 0, w.c.columns);
    }
    w.ends[sequence] = shared * w.c.form.page_size;
    if (draw(0, 1) == 0) w.ends[sequence] += draw(0, w.c.form.page_size);
}

/* Starts some sequences anew, most of them as a fork of another one. */
static void change_sequences(void) {
    const int32_t rows = w.c.form.rows;
    for (int32_t n = draw(0, rows / 2); n > 0; n--) {
        const int32_t sequence = draw(0, rows - 1), source = draw(0, rows - 1);
        const int32_t whole = w.ends[source] / w.c.form.page_size;
        const int32_t shared =
            source == sequence || draw(0, 7) == 0 ? 0 : draw(whole * 3 / 4, whole);
        renew(sequence, source, shared);
    }
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static int32_t draw_count(int32_t left) {
    int32_t kind = draw(0, 12);
    if (w.has_tails && kind > 0 && kind < 3) kind = 12;
    if (w.has_tails && left < 9) kind = 12;
    const int32_t count = kind == 0  ? 0
                          : kind < 3 ? draw(2, 8)
                          : kind < 4 ? draw(9, w.c.form.row_tokens)
                                     : 1;
    return fig_size_min(count, left);
}

/* Returns the number of the largest bucket whose launches read tails. */
static int32_t bucket_with_tails(void) {
    const fig_graphs *graphs = w.c.graphs;
    int32_t bucket = 0;
    for (uint32_t i = 0; i < graphs->bucket_count; i++)
        if (graphs->buckets[i].paces[0].serves_tails) bucket = (int32_t)i + 1;
    assert_true(bucket > 0);
    return bucket;
}

static fig_chunk_step draw_step(void) {
    fig_chunk_step step = {.rows = draw(w.has_tails ? w.c.form.rows / 2 : 1, w.c.form.rows),
                           .bucket = w.has_tails ? bucket_with_tails() : 0};
    const int32_t turn = draw(0, w.c.form.rows - 1);
    int32_t left = w.c.form.query_limit;
    for (int32_t row = 0; row < step.rows; row++) {
        const int32_t sequence = (row * 5 + turn) % w.c.form.rows;
        const int32_t count = draw_count(left);
        if (w.ends[sequence] + count > w.c.form.kv) renew(sequence, 0, 0);
        step.sequences[row] = sequence;
        step.counts[row] = count;
        step.lengths[row] = w.ends[sequence] += count;
        if (draw(0, 11) == 0) { /* idle, with query tokens */
            w.ends[sequence] -= count;
            step.lengths[row] = 0;
        }
        left -= count;
    }
    return step;
}

/* Compares both engines. They merge in different orders, so their results round differently. */
static void compare_apart(const fig_chunk_step *step) {
    const float *a = w.c.lse.data, *b = w.apart.lse.data;
    int32_t tokens = 0;
    for (int32_t row = 0; row < step->rows; row++)
        tokens += step->counts[row];
    for (int32_t i = 0; i < tokens * w.c.form.q_heads; i++)
        if (a[i] != b[i]) assert_true(a[i] - b[i] < 1e-4f && b[i] - a[i] < 1e-4f);
}

static void take_step(const fig_chunk_step *step, uint64_t seed) {
    int32_t contents[FIG_CHUNK_ROW_LIMIT];
    for (int32_t row = 0; row < step->rows; row++)
        contents[row] = row;
    fig_chunk_case_fill(&w.c, step, contents, seed);
    fig_chunk_case_run(&w.c, step);
    w.tails += w.c.engine->held.has_tails;
    fig_chunk_case_check(&w.c, step, VECTORS);
    fig_chunk_case_fill(&w.apart, step, contents, seed);
    fig_chunk_case_run(&w.apart, step);
    compare_apart(step);
}

static fig_engine_stats stats_of(const fig_engine *engine) {
    fig_engine_stats stats = {.size = sizeof stats};
    expect(fig_engine_read_stats(engine, &stats));
    return stats;
}

/* Runs steps; returns how many of them had groups. Each runs twice. */
static int64_t run_world(const fig_chunk_form *form, uint64_t seed, int32_t steps) {
    open_world(form, seed);
    for (int32_t n = 0; n < steps; n++) {
        for (int32_t turn = 0; turn <= 4 * w.has_tails; turn++) /* tails need many forks */
            change_sequences();
        const fig_chunk_step step = draw_step();
        take_step(&step, seed * 100 + (uint64_t)n);
    }
    const fig_engine_stats stats = stats_of(w.c.engine), none = stats_of(w.apart.engine);
    assert_true(stats.shared_groups >= stats.shared_steps);
    assert_true(stats.shared_saved >= 0 && stats.shared_read >= 0);
    assert_true((stats.shared_saved > 0) == (stats.shared_steps > 0));
    assert_int_equal(none.shared_steps + none.shared_groups + none.shared_saved, 0);
    close_world();
    return stats.shared_steps / 2;
}

static void every_form_of_attention_is_right(void **state) {
    (void)state;
    static const int32_t dims[] = {64, 96, 128, 256}, groups[] = {1, 4, 8, 3, 16};
    int64_t shared = 0;
    for (uint64_t i = 0; i < FORMS; i += FORM_STRIDE) {
        const int32_t kv_heads = 1 + (int32_t)(i % 2);
        fig_chunk_form form = form_of(groups[i % 5] * kv_heads, kv_heads, dims[i % 4]);
        form.dtype = form.kv_dtype = i % 3 == 1 ? FIG_F16 : FIG_BF16;
        form.sinks = i % 4 == 2;
        form.soft_cap = i % 4 == 3 ? 20.0f : 0.0f;
        form.hnd = i % 2 != 0;
        form.page_size = i % 3 == 0 ? 16 : i % 3 == 1 ? 8 : 40;
        shared += run_world(&form, 300 + i, 5);
    }
    assert_true(shared > 10 / FORM_STRIDE);
}

/* The machine is one whose workers are divided between tails and prefixes. */
static void rows_with_tails_are_right(void **state) {
    (void)state;
    static const int32_t ratios[] = {4, 8, 5, 6};
    fig_traits machine = {.size = sizeof machine};
    expect(fig_traits_named(&machine, "h200"));
    w.has_tails = 1;
    w.tails = 0;
    for (uint64_t i = 0; i < FORMS / 2; i += FORM_STRIDE) {
        const int32_t kv_heads = 8;
        fig_chunk_form form = form_of(kv_heads * ratios[i % 4], kv_heads, i % 2 == 0 ? 64 : 128);
        form.traits = &machine;
        form.share = 1;
        form.dtype = form.kv_dtype = i % 4 == 1 ? FIG_F16 : FIG_BF16;
        form.sinks = i % 4 == 2;
        form.soft_cap = i % 4 == 3 ? 20.0f : 0.0f;
        form.hnd = i % 2 != 0;
        form.page_size = i % 3 == 2 ? 48 : 16;
        form.rows = 21; /* so many, and such tokens, that buckets for tails are offered */
        form.kv = 212000 / form.head_dim;
        run_world(&form, 700 + i, 3);
    }
    w.has_tails = 0;
    /* kernels of plain images cannot read tails */
    if (strcmp(fig_place_name(), "cuda.plain") == 0)
        assert_int_equal(w.tails, 0);
    else
        assert_true(w.tails > 3 / FORM_STRIDE);
}

static void many_steps_are_right(void **state) {
    (void)state;
    const fig_chunk_form form = form_of(4, 1, 64);
    const int steps = fig_place_cases(30);
    assert_true(run_world(&form, 7, steps) > steps / 6);
}

/* Stages steps whose rows share nothing behind steps whose rows share pages, and does the same in
 * deterministic graphs. */
static void forms_that_cannot_share_are_right(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 6; i += FORM_STRIDE) {
        fig_chunk_form form = form_of(4, 2, i == 4 ? 80 : 64);
        form.deterministic = i == 0;
        form.window = i == 1 ? 200 : 0;
        form.alibi = i == 2;
        form.scales = i == 3;
        if (i == 3) form.kv_dtype = FIG_E4M3;
        if (i == 5) form.dtype = form.kv_dtype = FIG_F32;
        assert_int_equal(run_world(&form, 500 + i, 3), 0);
    }
}

/* ---- Groups that break ----------------------------------------------------------------------- */

/* Makes all sequences begin with `shared` pages of sequence 0, and a step of one token each. */
static fig_chunk_step make_group(int32_t rows, int32_t shared) {
    fig_chunk_step step = {.rows = rows};
    w.ends[0] = shared * w.c.form.page_size;
    for (int32_t s = 1; s < rows; s++)
        renew(s, 0, shared);
    for (int32_t row = 0; row < rows; row++) {
        step.sequences[row] = row;
        step.counts[row] = 1;
        step.lengths[row] = w.ends[row] = shared * w.c.form.page_size + 20 + row;
    }
    return step;
}

static int64_t groups_so_far(void) {
    return stats_of(w.c.engine).shared_groups;
}

static void one_more(fig_chunk_step *step) {
    for (int32_t row = 0; row < step->rows; row++)
        w.ends[row] = ++step->lengths[row];
}

static void a_group_that_breaks_is_gone_in_the_next_step(void **state) {
    (void)state;
    const fig_chunk_form form = form_of(4, 1, 64);
    open_world(&form, 21);
    fig_chunk_step step = make_group(6, 40);
    assert_int_equal(fig_engine_prepare(w.c.engine, 0), FIG_OK);
    take_step(&step, 1);
    const int64_t first = groups_so_far();
    assert_int_equal(fig_chunk_case_bucket(&w.c).form, FIG_FORM_STRIPS);
    const int32_t execs = stats_of(w.c.engine).exec_count;
    assert_true(first > 0);
    one_more(&step);
    take_step(&step, 2);
    assert_true(groups_so_far() > first);
    /* the first page of each row is another one now: nothing is shared */
    for (int32_t s = 1; s < 6; s++) {
        int32_t *entry = entries_of(s);
        w.uses[*entry]--;
        *entry = free_page();
        send(s, 0, 1);
    }
    const int64_t before = groups_so_far();
    one_more(&step);
    take_step(&step, 3);
    assert_int_equal(groups_so_far(), before);
    assert_int_equal(fig_chunk_case_bucket(&w.c).form, FIG_FORM_ONES);
    step = make_group(6, 40);
    take_step(&step, 4);
    assert_true(groups_so_far() > before);
    assert_int_equal(fig_chunk_case_bucket(&w.c).form, FIG_FORM_STRIPS);
    assert_int_equal(stats_of(w.c.engine).exec_count, execs);
    close_world();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_attention_is_right),
        cmocka_unit_test(rows_with_tails_are_right),
        cmocka_unit_test(many_steps_are_right),
        cmocka_unit_test(forms_that_cannot_share_are_right),
        cmocka_unit_test(a_group_that_breaks_is_gone_in_the_next_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
