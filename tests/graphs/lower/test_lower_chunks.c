/* test_lower_chunks.c: tests the lowering of programs in which rows may be chunks: each attention
 * has a second launch for chunks, with its place in the order, its params and its workspace.
 *
 * The expected order is the transitive closure of all causes, found pair by pair. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/lower/lower.h"
#include "graphs/record/program.h"
#include "include/figraph_scores.h"
#include "kernels/wide/wide.h"
#include "planner/spec/spec.h"
#include "tests/support/files/sample.h"

enum { CAPACITY = 48, ROWS = 6, QUERIES = 500, TOKENS = 300 };

typedef struct ground {
    fig_bucket_shape shape;
    fig_workspace workspace;
    fig_lower_common common;
    fig_lowered lowered;
} ground;

static fig_spec spec_of(int32_t row_tokens) {
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = FIG_BF16,
                      .q_heads = 8,
                      .kv_heads = 2,
                      .head_dim = 64,
                      .layers = 3,
                      .ffn_width = 64,
                      .page_size = 16,
                      .batch_limit = ROWS,
                      .kv_limit = 600,
                      .window = 40,
                      .window_layers = {2},
                      .row_tokens = row_tokens,
                      .query_limit = QUERIES};
}

static fig_tensor rows_of(fig_program *program, const char *name, int32_t heads, int32_t dim) {
    return fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                             .dtype = FIG_BF16, .rank = 3, .dims = {FIG_DIM_QUERIES, heads, dim}));
}

static fig_tensor cache_of(fig_program *program, const char *name, int32_t heads, int32_t dim) {
    return fig_program_tensor(program,
                              FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND,
                                          .dtype = FIG_BF16, .rank = 4,
                                          .dims = {FIG_DIM_PAGES, 16, heads, dim}));
}

static void read_lengths(fig_program *program) {
    const fig_tensor lengths = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "lengths", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32, .rank = 1, .dims = {FIG_DIM_BATCH}));
    fig_program_read_lengths(program, lengths, (fig_tensor){0});
}

/* Records a decode step, and behind it two attention nodes. Their q heads and head_dim differ from
 * those of the step, so they need a class of their own if rows may be chunks. */
static fig_program *record(int32_t row_tokens) {
    const fig_spec spec = spec_of(row_tokens);
    fig_program *program;
    if (fig_program_create(&program, &spec) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_decode_step(program);
    const fig_tensor q = rows_of(program, "other_q", 4, 128);
    const fig_tensor out = rows_of(program, "other_out", 4, 128);
    const fig_cache cache = {.k = cache_of(program, "other_k", 2, 128),
                             .v = cache_of(program, "other_v", 2, 128),
                             .page_table = fig_program_find(program, "page_table")};
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = out, .out = q, .cache = cache));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

static void ground_make(ground *g, const fig_program *program, const char *chip) {
    const fig_lower_target target = fig_sample_target(chip);
    const fig_program_view *view = fig_program_view_of(program);
    g->shape = (fig_bucket_shape){.caps = {ROWS, 600}};
    if (fig_lower_shape(view, &target, 3, &g->shape) != FIG_OK ||
        fig_workspace_init(&g->workspace, view, &g->shape, 1) != FIG_OK ||
        fig_lower_common_init(&g->common, view, &g->workspace) != FIG_OK ||
        fig_lower_bucket(&g->common, &g->shape, &g->lowered) != FIG_OK)
        fail_msg("%s", fig_message());
    assert_true(g->lowered.launch_count <= CAPACITY);
}

static void ground_finish(ground *g) {
    fig_lower_finish(&g->lowered);
    fig_lower_common_finish(&g->common);
    fig_workspace_finish(&g->workspace);
}

/* ---- Order ----------------------------------------------------------------------------------- */

typedef uint8_t order[CAPACITY][CAPACITY]; /* [from][to]: 1: `from` comes first */

static void close_order(order pairs) {
    for (int middle = 0; middle < CAPACITY; middle++)
        for (int from = 0; from < CAPACITY; from++)
            for (int to = 0; to < CAPACITY; to++)
                pairs[from][to] |= pairs[from][middle] & pairs[middle][to];
}

static int share_memory(const fig_program_view *view, uint32_t from, uint32_t to) {
    const fig_node *earlier = &view->nodes[from], *later = &view->nodes[to];
    int share = 0;
    for (uint32_t a = 0; a < earlier->operand_count; a++)
        for (uint32_t b = 0; b < later->operand_count; b++) {
            const uint32_t tensor = view->operands[earlier->operand + a];
            const uint32_t access =
                fig_program_view_access(view, earlier, a) | fig_program_view_access(view, later, b);
            share |= tensor != 0 && (access & FIG_ACCESS_WRITE) &&
                     tensor == view->operands[later->operand + b];
        }
    return share;
}

/* Returns 1 if `to` must follow `from`, of the same node: the first launch of a node
 * decode_attention comes before the others, which may run beside each other. */
static int follows_in_node(const fig_launch *from, const fig_launch *to) {
    return from->op == FIG_OP_DECODE_ATTENTION && to->op != FIG_OP_DECODE_ATTENTION;
}

/* In a class whose rows may share tokens, launches of all operations share slots. */
static void find_causes(const fig_program_view *view, const fig_lowered *lowered, order pairs) {
    fig_split_classes classes;
    memset(pairs, 0, sizeof(order));
    if (fig_split_classes_find(view, &classes) != FIG_OK) fail();
    for (uint32_t to = 1; to < lowered->launch_count; to++) {
        const fig_launch *later = &lowered->launches[to];
        pairs[0][to] = 1;
        for (uint32_t from = 1; from < to; from++) {
            const fig_launch *earlier = &lowered->launches[from];
            const uint32_t own = later->split_class;
            int follows = share_memory(view, earlier->node, later->node);
            if (own != UINT32_MAX && earlier->split_class == own)
                follows |= earlier->op == later->op || classes.of[own].shared_table != 0;
            if (earlier->node == later->node) follows = follows_in_node(earlier, later);
            pairs[from][to] = (uint8_t)follows;
        }
    }
    close_order(pairs);
}

static void a_launch_for_chunks_runs_beside_its_attention(void **state) {
    (void)state;
    static order causes, edges;
    fig_program *program = record(TOKENS);
    ground g;
    int32_t beside = 0;
    ground_make(&g, program, "h200");
    find_causes(fig_program_view_of(program), &g.lowered, causes);
    memset(edges, 0, sizeof edges);
    for (uint32_t i = 0; i < g.lowered.edge_count; i++)
        edges[g.lowered.edges[i].from][g.lowered.edges[i].to] = 1;
    close_order(edges);
    for (uint32_t from = 0; from < g.lowered.launch_count; from++)
        for (uint32_t to = 0; to < g.lowered.launch_count; to++)
            if (edges[from][to] != causes[from][to])
                fail_msg("launch %u before %u: %d", from, to, edges[from][to]);
    for (uint32_t i = 1; i < g.lowered.launch_count; i++) {
        if (g.lowered.launches[i].op != FIG_OP_PROMPT_ATTENTION) continue;
        assert_int_equal(g.lowered.launches[i - 1].op, FIG_OP_ATTENTION);
        assert_int_equal(g.lowered.launches[i - 1].split_class, g.lowered.launches[i].split_class);
        assert_false(edges[i - 1][i]);
        beside++;
    }
    assert_int_equal(beside, 5);
    ground_finish(&g);
    fig_program_destroy(program);
}

/* ---- Contents -------------------------------------------------------------------------------- */

static const fig_prompt_attention_params *params_of(const ground *g, uint32_t launch) {
    return (const void *)(g->lowered.params + g->lowered.launches[launch].params);
}

static void a_launch_for_chunks_has_the_params_of_its_class(void **state) {
    (void)state;
    static const char *const chips[] = {"host", "h200", "a100"};
    for (int chip = 0; chip < 3; chip++) {
        fig_program *program = record(TOKENS);
        fig_traits traits = {.size = sizeof traits};
        ground g;
        ground_make(&g, program, chips[chip]);
        assert_int_equal(fig_traits_named(&traits, chips[chip]), FIG_OK);
        assert_int_equal(g.shape.plan.class_count, 3); /* full, window, other heads */
        for (uint32_t i = 1; i < g.lowered.launch_count; i++) {
            const fig_launch *launch = &g.lowered.launches[i];
            if (launch->op != FIG_OP_PROMPT_ATTENTION) continue;
            const fig_prompt_attention_params *p = params_of(&g, i);
            const int is_other = p->head_dim == 128;
            assert_int_equal(p->split_class, launch->split_class);
            assert_int_equal(p->workers, traits.sm_count);
            assert_int_equal(p->ratio, is_other ? 2 : 4);
            assert_int_equal(p->half, is_other ? 32 : 16);
            assert_int_equal(p->q_heads, is_other ? 4 : 8);
            assert_int_equal(p->kv_heads, 2);
            assert_int_equal(p->tile_tokens, fig_wide_tile(p->head_dim));
            assert_int_equal(p->rows.row_limit, QUERIES);
            assert_int_equal(p->rows.queries_offset, g.shape.plan.layout.queries);
            assert_int_equal(p->strips_offset, fig_plan_strips_place(&g.shape.plan));
            assert_int_equal(p->dtype, FIG_BF16);
            assert_int_equal(p->kv_dtype, FIG_BF16);
            assert_int_equal(p->window, g.shape.strips[p->split_class].window);
            assert_int_equal(p->page_size, 16);
        }
        ground_finish(&g);
        fig_program_destroy(program);
    }
}

/* If blocks of attention waited for each other, they could wait until all chunks have ended. */
static void no_block_of_attention_waits_for_another_beside_chunks(void **state) {
    (void)state;
    for (int32_t has_chunks = 0; has_chunks < 2; has_chunks++) {
        fig_program *program = record(has_chunks ? TOKENS : FIG_NARROW_TOKENS_LIMIT);
        ground g;
        int32_t count = 0;
        ground_make(&g, program, "h200");
        for (uint32_t i = 1; i < g.lowered.launch_count; i++) {
            if (g.lowered.launches[i].op != FIG_OP_ATTENTION) continue;
            const fig_attention_params *p =
                (const void *)(g.lowered.params + g.lowered.launches[i].params);
            assert_int_equal((p->flags & FIG_ATTENTION_APART) != 0, has_chunks);
            assert_int_equal(p->is_packed, 1);
            count++;
        }
        assert_int_equal(count, 5);
        ground_finish(&g);
        fig_program_destroy(program);
    }
}

static void splits_take_no_more_than_a_draft(void **state) {
    (void)state;
    fig_program *program = record(TOKENS);
    ground g;
    ground_make(&g, program, "h200");
    for (int32_t i = 0; i < g.shape.plan.class_count; i++)
        assert_int_equal(g.shape.plan.splits[i].row_tokens, FIG_NARROW_TOKENS_LIMIT);
    assert_int_equal(g.shape.plan.row_tokens, TOKENS);
    ground_finish(&g);
    fig_program_destroy(program);
}

typedef struct part {
    uint64_t begin, bytes;
} part;

/* Counters come first, and no two parts overlap: the launches of a class run beside each other. */
static void strips_have_a_workspace_of_their_own(void **state) {
    (void)state;
    fig_program *program = record(TOKENS);
    part parts[FIG_CLASS_LIMIT * 3];
    int32_t count = 0;
    ground g;
    ground_make(&g, program, "h200");
    const fig_workspace *w = &g.workspace;
    for (int32_t i = 0; i < g.shape.plan.class_count; i++) {
        const fig_strips_limits limits =
            fig_plan_strips_limits(&g.shape.plan, &g.shape.strips[i], FIG_NARROW_TOKENS_LIMIT + 1);
        const fig_strips_sizes bound = fig_strip_sizes_bound(&g.shape.strips[i], &limits);
        const uint64_t vectors = (uint64_t)bound.partial_vectors;
        assert_true(w->strip_counters[i] < w->partials[0]);
        assert_true(w->partials[i] < w->strip_partials[0]);
        parts[count++] = (part){w->strip_counters[i], (uint64_t)bound.counters * 4};
        parts[count++] =
            (part){w->strip_partials[i], vectors * (uint64_t)g.shape.strips[i].head_dim * 4};
        parts[count++] = (part){w->strip_sums[i], vectors * 8};
    }
    for (int32_t a = 0; a < count; a++) {
        assert_true(parts[a].bytes > 0 && parts[a].begin + parts[a].bytes <= w->bytes);
        for (int32_t b = 0; b < a; b++)
            assert_true(parts[a].begin >= parts[b].begin + parts[b].bytes ||
                        parts[b].begin >= parts[a].begin + parts[a].bytes);
        for (int32_t i = 0; i < g.shape.plan.class_count; i++) {
            const uint64_t others[] = {w->counters[i], w->partials[i], w->sums[i]};
            for (int32_t o = 0; o < 3; o++)
                assert_false(others[o] >= parts[a].begin &&
                             others[o] < parts[a].begin + parts[a].bytes);
        }
    }
    ground_finish(&g);
    fig_program_destroy(program);
}

/* ---- Sharing --------------------------------------------------------------------------------- */

/* Returns the class in which rows may share tokens; -1: none. */
static int32_t sharer_of(const fig_program *program, const fig_lower_target *target) {
    fig_bucket_shape shape = {.caps = {ROWS, 600}};
    int32_t sharer = -1;
    if (fig_lower_shape(fig_program_view_of(program), target, 3, &shape) != FIG_OK)
        fail_msg("%s", fig_message());
    for (int32_t i = 0; i < shape.plan.class_count; i++) {
        if (!shape.strips[i].shares) continue;
        assert_int_equal(sharer, -1);
        assert_int_equal(shape.strips[i].window, 0);
        sharer = i;
    }
    return sharer;
}

static void one_class_without_a_window_shares_where_it_gains(void **state) {
    (void)state;
    static const char *const chips[] = {"h200", "h100", "host", "a100"};
    fig_program *program = record(TOKENS);
    for (int32_t i = 0; i < 4; i++) {
        fig_lower_target target = fig_sample_target(chips[i]);
        assert_int_equal(sharer_of(program, &target) >= 0, i < 3);
        target.deterministic = 1;
        assert_int_equal(sharer_of(program, &target), -1);
    }
    fig_program_destroy(program);
}

/* Lowers a program of `heads` kv heads for its fullest step. Returns the class that shares, or
 * -1. */
static int32_t sharer_of_heads(int32_t heads) {
    fig_spec spec = spec_of(TOKENS);
    const fig_lower_target target = fig_sample_target("h200");
    fig_bucket_shape shape = {.caps = {FIG_BATCH_LIMIT, 600}};
    fig_program *program;
    int32_t sharer = -1;
    spec.q_heads = spec.kv_heads = heads;
    spec.batch_limit = FIG_BATCH_LIMIT;
    spec.query_limit = FIG_QUERY_LIMIT / 4;
    spec.window = 0;
    spec.window_layers[0] = 0;
    if (fig_program_create(&program, &spec) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_decode_step(program);
    if (fig_program_finish(program) != FIG_OK ||
        fig_lower_shape(fig_program_view_of(program), &target, 0, &shape) != FIG_OK)
        fail_msg("%d heads: %s", heads, fig_message());
    for (int32_t i = 0; i < shape.plan.class_count; i++)
        if (shape.strips[i].shares) sharer = i;
    fig_program_destroy(program);
    return sharer;
}

/* With all its heads the plan has just enough room for strips that share nothing. */
static void a_program_whose_plans_are_full_shares_nothing(void **state) {
    (void)state;
    assert_int_equal(sharer_of_heads(FIG_HEAD_LIMIT / 2), 0);
    assert_int_equal(sharer_of_heads(FIG_HEAD_LIMIT), -1);
}

/* Two nodes of a class; the second one reads through `table`. */
static uint32_t shared_table_of(const char *table) {
    const fig_spec spec = spec_of(TOKENS);
    fig_program *program;
    fig_split_classes classes;
    if (fig_program_create(&program, &spec) != FIG_OK) fail_msg("%s", fig_message());
    static const char *const names[] = {"a", "b"};
    fig_tensor tables[2];
    for (int32_t i = 0; i < 2; i++)
        tables[i] = fig_program_tensor(
            program, FIG_OPTIONS(fig_tensor_info, .name = names[i], .role = FIG_ROLE_STATE,
                                 .dtype = FIG_I32, .rank = 2, .dims = {ROWS, 38}));
    const fig_tensor q = rows_of(program, "q", 8, 64), out = rows_of(program, "out", 8, 64);
    fig_cache cache = {.k = cache_of(program, "k", 2, 64),
                       .v = cache_of(program, "v", 2, 64),
                       .page_table = tables[0]};
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    cache.page_table = tables[strcmp(table, names[1]) == 0];
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = out, .out = q, .cache = cache));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_split_classes_find(fig_program_view_of(program), &classes), FIG_OK);
    assert_int_equal(classes.count, 1);
    if (classes.of[0].shared_table > 0)
        assert_int_equal(classes.of[0].shared_table, fig_program_find(program, "a").id);
    fig_program_destroy(program);
    return classes.of[0].shared_table;
}

static void a_class_that_shares_has_one_page_table(void **state) {
    (void)state;
    assert_int_not_equal(shared_table_of("a"), 0);
    assert_int_equal(shared_table_of("b"), 0);
}

/* ---- Scores ---------------------------------------------------------------------------------- */

/* Records attention with each of the scores, over the same caches; "": without a score. */
static fig_program *record_scores(const char *const *texts, int32_t count) {
    const fig_spec spec = spec_of(TOKENS);
    fig_program *program;
    if (fig_program_create(&program, &spec) != FIG_OK) fail_msg("%s", fig_message());
    const fig_cache cache = {
        .k = cache_of(program, "k", 2, 64),
        .v = cache_of(program, "v", 2, 64),
        .page_table = fig_program_tensor(
            program, FIG_OPTIONS(fig_tensor_info, .name = "table", .role = FIG_ROLE_STATE,
                                 .dtype = FIG_I32, .rank = 2, .dims = {ROWS, 38}))};
    const fig_tensor q = rows_of(program, "q", 8, 64);
    for (int32_t i = 0; i < count; i++) {
        static const char *const names[] = {"a", "b", "c", "d", "e"};
        fig_score *score = NULL;
        if (texts[i][0] != 0) assert_int_equal(fig_score_parse(&score, texts[i]), FIG_OK);
        fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .cache = cache, .score = score,
                                           .out = rows_of(program, names[i], 8, 64)));
        fig_score_destroy(score);
    }
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

static int is_before(const ground *g, uint32_t from, uint32_t to) {
    int found = 0;
    for (uint32_t i = 0; i < g->lowered.edge_count; i++)
        found |= g->lowered.edges[i].from == from && g->lowered.edges[i].to == to;
    return found;
}

/* Launch 2n + 1 and 2n + 2 belong to node n. */
static void nodes_with_a_mask_have_strips_to_the_end_of_their_rows(void **state) {
    static const char *const texts[] = {"see 0:4; score", "", "score * 2.0",
                                        "see 0:kv_length; score"};
    static const int32_t classes[] = {0, 1, 1, 2};
    (void)state;
    fig_program *program = record_scores(texts, 4);
    ground g;
    ground_make(&g, program, "h200");
    assert_int_equal(g.shape.plan.class_count, 3);
    assert_int_equal(g.shape.strips[0].visible, FIG_STRIPS_ALL);
    assert_int_equal(g.shape.strips[1].visible, FIG_STRIPS_CAUSAL);
    assert_int_equal(g.shape.strips[2].visible, FIG_STRIPS_ALL);
    assert_int_equal(g.lowered.launch_count, 9);
    for (uint32_t n = 0; n < 4; n++) {
        const int has_score = texts[n][0] != 0;
        const fig_prompt_attention_params *p = params_of(&g, 2 * n + 2);
        assert_int_equal(g.lowered.launches[2 * n + 2].op,
                         has_score ? FIG_OP_SCORED_PROMPT : FIG_OP_PROMPT_ATTENTION);
        assert_int_equal(p->split_class, classes[n]);
        assert_int_equal(g.lowered.launches[2 * n + 2].split_class, classes[n]);
        assert_int_equal((p->flags & FIG_ATTENTION_SCORED) != 0, has_score);
        assert_int_equal(p->rows.queries_offset, g.shape.plan.layout.queries);
        if (!has_score) continue;
        const fig_scored_prompt_params *scored = (const void *)p;
        assert_int_equal(scored->score.mask_node_count > 0, classes[n] != 1);
        assert_int_equal(scored->score.weights, FIG_SCORE_SOFTMAX);
    }
    ground_finish(&g);
    fig_program_destroy(program);
}

/* They share the workspace of their class. */
static void launches_for_chunks_of_a_class_follow_each_other(void **state) {
    static const char *const texts[] = {"", "score * 2.0", "score * 3.0"};
    (void)state;
    fig_program *program = record_scores(texts, 3);
    ground g;
    ground_make(&g, program, "h200");
    assert_int_equal(g.shape.plan.class_count, 1);
    for (uint32_t launch = 1; launch + 2 < g.lowered.launch_count; launch++)
        assert_true(is_before(&g, launch, launch + 2));
    for (uint32_t launch = 1; launch + 1 < g.lowered.launch_count; launch++)
        assert_false(is_before(&g, launch, launch + 1));
    ground_finish(&g);
    fig_program_destroy(program);
}

static void a_class_with_a_score_shares_nothing(void **state) {
    static const struct {
        const char *texts[2];
        int32_t sharer;
    } cases[] = {{{"", ""}, 0},
                 {{"score * 2.0", "score * 2.0"}, -1},
                 {{"", "score * 2.0"}, -1},
                 {{"score * 2.0", ""}, -1},
                 {{"see 0:4; score", ""}, 1}};
    const fig_lower_target target = fig_sample_target("h200");
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_program *program = record_scores(cases[i].texts, 2);
        assert_int_equal(sharer_of(program, &target), cases[i].sharer);
        fig_program_destroy(program);
    }
}

/* If the planner knew all masks, they would need five classes. */
static void masks_that_need_too_many_classes_form_one(void **state) {
    static const char *const texts[] = {"see 0:4; score", "", "see 0:5; score", "see 0:6; score",
                                        "see 0:7; score"};
    (void)state;
    for (int32_t count = 4; count <= 5; count++) {
        fig_split_classes classes;
        fig_program *program = record_scores(texts, count);
        assert_int_equal(fig_split_classes_find(fig_program_view_of(program), &classes), FIG_OK);
        assert_int_equal(classes.knows_masks, count == 4);
        assert_int_equal(classes.count, count == 4 ? 4 : 2);
        assert_int_equal(classes.of[0].is_masked, 1);
        assert_int_equal(classes.of[1].is_masked, 0);
        fig_program_destroy(program);
    }
}

/* ---- Without chunks -------------------------------------------------------------------------- */

/* Checks that one launch of attention serves all rows. Returns the number of classes. */
static int32_t check_without_chunks(fig_program *program, int32_t tokens) {
    ground g;
    ground_make(&g, program, "h200");
    for (uint32_t i = 0; i < g.lowered.launch_count; i++)
        assert_int_not_equal(g.lowered.launches[i].op, FIG_OP_PROMPT_ATTENTION);
    assert_int_equal(fig_plan_strips_room(&g.shape.plan), 0);
    assert_int_equal(g.workspace.strip_partials[0], 0);
    for (int32_t i = 0; i < g.shape.plan.class_count; i++)
        assert_int_equal(g.shape.plan.splits[i].row_tokens, tokens);
    ground_finish(&g);
    return g.shape.plan.class_count;
}

/* Records a decode step. reads: 1: the device reads its lengths. */
static fig_program *record_step(int32_t row_tokens, int32_t reads) {
    const fig_spec spec = spec_of(row_tokens);
    fig_program *program;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    if (reads) read_lengths(program);
    fig_program_decode_step(program);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

/* Up to 16 query tokens, a program that reads lengths needs no second launch. */
static void a_program_that_reads_lengths_has_longer_rows_first(void **state) {
    (void)state;
    for (int32_t tokens = 1; tokens <= FIG_ROW_TOKENS_LIMIT; tokens++) {
        fig_program *program = record_step(tokens, 1);
        check_without_chunks(program, tokens);
        fig_program_destroy(program);
    }
}

/* Rows of at most 8 query tokens are never chunks. */
static void a_program_without_chunks_has_no_such_launch(void **state) {
    (void)state;
    fig_program *program = record(FIG_NARROW_TOKENS_LIMIT);
    /* other heads join a class */
    assert_int_equal(check_without_chunks(program, FIG_NARROW_TOKENS_LIMIT), 2);
    fig_program_destroy(program);
}

/* The launch that makes the plan has the shapes by which the host would cut, but shares nothing. */
static void a_device_plans_chunks_as_the_host_would(void **state) {
    (void)state;
    for (int chip = 0; chip < 2; chip++) {
        fig_program *program = record_step(FIG_ROW_TOKENS_LIMIT + 1, 1);
        fig_program *host = record_step(FIG_ROW_TOKENS_LIMIT + 1, 0);
        ground g, of_host;
        ground_make(&g, program, chip == 0 ? "h200" : "a100");
        ground_make(&of_host, host, chip == 0 ? "h200" : "a100");
        const fig_plan_params *planner = (const void *)params_of(&g, 1);
        assert_int_equal(g.lowered.launches[1].op, FIG_OP_PLAN);
        assert_true(fig_plan_strips_room(&planner->shape) > 0);
        for (int32_t i = 0; i < g.shape.plan.class_count; i++) {
            fig_strips_shape expected = of_host.shape.strips[i];
            expected.shares = 0;
            assert_memory_equal(&planner->strips.of[i], &expected, sizeof expected);
            assert_int_equal(planner->shape.splits[i].row_tokens, FIG_NARROW_TOKENS_LIMIT);
        }
        ground_finish(&g);
        ground_finish(&of_host);
        fig_program_destroy(program);
        fig_program_destroy(host);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launch_for_chunks_runs_beside_its_attention),
        cmocka_unit_test(a_launch_for_chunks_has_the_params_of_its_class),
        cmocka_unit_test(no_block_of_attention_waits_for_another_beside_chunks),
        cmocka_unit_test(splits_take_no_more_than_a_draft),
        cmocka_unit_test(strips_have_a_workspace_of_their_own),
        cmocka_unit_test(one_class_without_a_window_shares_where_it_gains),
        cmocka_unit_test(a_program_whose_plans_are_full_shares_nothing),
        cmocka_unit_test(a_class_that_shares_has_one_page_table),
        cmocka_unit_test(nodes_with_a_mask_have_strips_to_the_end_of_their_rows),
        cmocka_unit_test(launches_for_chunks_of_a_class_follow_each_other),
        cmocka_unit_test(a_class_with_a_score_shares_nothing),
        cmocka_unit_test(masks_that_need_too_many_classes_form_one),
        cmocka_unit_test(a_program_without_chunks_has_no_such_launch),
        cmocka_unit_test(a_program_that_reads_lengths_has_longer_rows_first),
        cmocka_unit_test(a_device_plans_chunks_as_the_host_would),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
