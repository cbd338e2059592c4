/* test_attention_grid.c: compares attention with float64, for a seeded sample of the shapes that
 * the tests of a well-known peer cover.
 *
 * The grids are wider than the peer's where that costs nothing: every grid has f16 and bf16, rows
 * of equal length, and ragged rows that include idle ones. The tolerance is one unit in the last
 * place of the output, which is stricter than the peer's 1e-3 for f16 and 1e-2 for bf16, also with
 * fp8 caches. This test leaves out points that take seconds; a run of the whole grid includes
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/kernels/attention_case.h"

enum {
    AXIS_LIMIT = 11,
    VALUE_LIMIT = 7,
    POINTS = 5,   /* points that are drawn from each grid */
    CHECKED = 12, /* vectors that are compared at each point */
    ELEMENT_LIMIT = 1 << 20,
    COST_LIMIT = 60000000 /* the greatest number of multiplications of a point */
};

static uint64_t seed;

/* A point of a grid, in the peer's terms, except that `window` includes the query's own token. */
typedef struct point {
    int32_t batch, kv, page, kv_heads, q_heads, head_dim, layout, dtype, kv_dtype;
    int32_t window, cap, queries, alibi, sinks, scales, packed, fixed, ragged;
} point;

typedef struct axis {
    size_t field; /* the field's offset in `point` */
    int32_t count, values[VALUE_LIMIT];
} axis;

typedef struct grid {
    const char *name;
    int32_t group; /* 1: q_heads is the number of q heads per kv head */
    axis axes[AXIS_LIMIT];
} grid;

/* clang-format off */
#define AXIS(name, ...)                                                                            \
    {offsetof(point, name), sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), {__VA_ARGS__}}
/* clang-format on */
#define TYPES AXIS(dtype, FIG_F16, FIG_BF16), AXIS(ragged, 0, 1)

static const grid grids[] = {
    {"batch decode",
     0,
     {TYPES, AXIS(batch, 12, 17, 128), AXIS(kv, 54, 97, 512, 2048, 16384), AXIS(page, 1, 8, 16),
      AXIS(kv_heads, 4), AXIS(q_heads, 4, 32), AXIS(head_dim, 128, 256),
      AXIS(kv_dtype, 0, FIG_E4M3)}},
    {"several queries",
     1,
     {TYPES, AXIS(batch, 4, 8), AXIS(queries, 2, 3, 11, 16), AXIS(kv, 54, 97, 512),
      AXIS(page, 1, 8, 16), AXIS(kv_heads, 2, 8), AXIS(q_heads, 4, 8), AXIS(head_dim, 128)}},
    {"one long row",
     1,
     {TYPES, AXIS(batch, 1), AXIS(kv, 54, 128, 999, 32789), AXIS(page, 0, 64), AXIS(kv_heads, 4, 8),
      AXIS(q_heads, 1, 4, 8), AXIS(head_dim, 64, 128, 256), AXIS(layout, FIG_NHD, FIG_HND)}},
    {"batch by group",
     1,
     {TYPES, AXIS(batch, 12, 17), AXIS(kv, 54, 97, 512), AXIS(page, 1, 8, 16), AXIS(kv_heads, 4),
      AXIS(q_heads, 1, 4, 8), AXIS(head_dim, 128, 256), AXIS(layout, FIG_NHD, FIG_HND)}},
    {"fixed split",
     1,
     {TYPES, AXIS(batch, 5, 12), AXIS(kv, 4096, 5000, 8192), AXIS(page, 16), AXIS(kv_heads, 1, 4),
      AXIS(q_heads, 1, 4), AXIS(head_dim, 64, 128), AXIS(fixed, 1)}},
    {"fp8 with scales, one row",
     0,
     {TYPES, AXIS(batch, 1), AXIS(kv, 7, 19, 39, 1170, 39275), AXIS(page, 0, 16), AXIS(kv_heads, 4),
      AXIS(q_heads, 4, 32), AXIS(head_dim, 128), AXIS(kv_dtype, FIG_E4M3, FIG_E5M2),
      AXIS(scales, FIG_CASE_PER_TENSOR, FIG_CASE_PER_HEAD)}},
    {"fp8 with scales, batch",
     0,
     {TYPES, AXIS(batch, 12, 17), AXIS(kv, 54, 97), AXIS(page, 1, 8, 16), AXIS(kv_heads, 4),
      AXIS(q_heads, 4, 32), AXIS(head_dim, 128, 256), AXIS(layout, FIG_NHD, FIG_HND),
      AXIS(kv_dtype, FIG_E4M3, FIG_E5M2), AXIS(scales, FIG_CASE_PER_TENSOR, FIG_CASE_PER_HEAD)}},
    {"window, one row",
     0,
     {TYPES, AXIS(batch, 1), AXIS(kv, 1, 3, 19, 99, 199, 1177, 1999),
      AXIS(window, 4, 14, 24, 38, 44), AXIS(page, 0, 16), AXIS(kv_heads, 1, 4), AXIS(q_heads, 4, 8),
      AXIS(head_dim, 64, 128, 256)}},
    {"window, batch",
     0,
     {TYPES, AXIS(batch, 1, 3, 13, 32), AXIS(kv, 1, 3, 19, 99, 199, 1177, 1999),
      AXIS(window, 34, 534), AXIS(page, 1, 16), AXIS(kv_heads, 1, 4), AXIS(q_heads, 4, 8),
      AXIS(head_dim, 64, 128, 256)}},
    {"soft cap",
     1,
     {TYPES, AXIS(batch, 1), AXIS(kv, 1, 9, 81, 729, 33001), AXIS(page, 0, 16),
      AXIS(kv_heads, 4, 8, 32), AXIS(q_heads, 1), AXIS(head_dim, 128, 256), AXIS(cap, 1, 30, 50)}},
    {"ALiBi",
     1,
     {TYPES, AXIS(batch, 1), AXIS(kv, 1, 9, 81, 729), AXIS(page, 0, 16), AXIS(kv_heads, 4, 8, 32),
      AXIS(q_heads, 1), AXIS(head_dim, 128, 256), AXIS(alibi, 1)}},
    {"packed q",
     0,
     {TYPES, AXIS(batch, 1, 19, 99), AXIS(kv, 54, 97), AXIS(page, 1, 5), AXIS(kv_heads, 1, 4),
      AXIS(q_heads, 4, 8), AXIS(head_dim, 64, 128, 256), AXIS(packed, 1)}},
    {"sinks and windows",
     1,
     {TYPES, AXIS(batch, 4, 128, 256), AXIS(kv, 54, 97, 512), AXIS(page, 16, 32, 64, 128),
      AXIS(kv_heads, 2, 4), AXIS(q_heads, 4, 5, 8), AXIS(head_dim, 64, 128), AXIS(window, 0, 128),
      AXIS(kv_dtype, 0, FIG_E4M3), AXIS(sinks, 0, 1)}},
    {"ragged batches",
     1,
     {TYPES, AXIS(batch, 7, 37), AXIS(kv, 97, 512, 1111), AXIS(page, 1, 8, 16),
      AXIS(kv_heads, 1, 4), AXIS(q_heads, 1, 4, 7, 8), AXIS(head_dim, 64, 128, 256),
      AXIS(layout, FIG_NHD, FIG_HND), AXIS(cap, 0, 50)}},
};
enum { GRID_COUNT = sizeof grids / sizeof grids[0] };

static point draw_point(const grid *g, fig_random *random) {
    point p = {.queries = 1};
    for (int32_t i = 0; i < AXIS_LIMIT && g->axes[i].count > 0; i++) {
        const axis *a = &g->axes[i];
        int32_t value = a->values[fig_random_range(random, 0, a->count - 1)];
        memcpy((char *)&p + a->field, &value, sizeof value);
    }
    if (g->group) p.q_heads *= p.kv_heads;
    if (p.kv_dtype == 0) p.kv_dtype = p.dtype;
    return p;
}

static int64_t elements_of(const point *p) {
    return (int64_t)p->batch * p->kv * p->kv_heads * p->head_dim;
}

static int64_t cost_of(const point *p) {
    int64_t seen = p->window > 0 ? fig_size_min(p->kv, p->window + p->queries) : p->kv;
    int64_t vectors = (int64_t)p->queries * p->q_heads / p->kv_heads;
    return p->batch * seen * p->kv_heads * p->head_dim * 2 * (1 + vectors);
}

/* Splits as lowering would: a worker takes one head in tiles of 64 tokens, or all heads in tiles of
 * 16. If memory cannot hold all pages, rows share pages. */
static fig_attention_form form_of(const point *p, fig_random *random) {
    int32_t all_heads = p->kv_heads <= 8 && fig_random_range(random, 0, 1);
    fig_attention_form form = {.seed = seed,
                               .dtype = p->dtype,
                               .kv_dtype = p->kv_dtype,
                               .head_dim = p->head_dim,
                               .kv_heads = p->kv_heads,
                               .ratio = p->q_heads / p->kv_heads,
                               .heads_per_worker = all_heads ? p->kv_heads : 1,
                               .page_size = p->page,
                               .layout = p->layout,
                               .pool = fig_random_range(random, 0, 2),
                               .packed = p->packed,
                               .tile_tokens = p->fixed    ? 512
                                              : all_heads ? 16
                                                          : 64,
                               .workers = fig_random_range(random, 0, 1) ? 8 : 132,
                               .row_limit = p->batch,
                               .rows = p->batch,
                               .row_tokens = p->queries,
                               .window = p->window,
                               .fixed = p->fixed,
                               .sinks = p->sinks,
                               .alibi = p->alibi,
                               .scales = p->scales,
                               .soft_cap = (float)p->cap,
                               .length_limit = p->kv};
    for (int32_t r = 0; r < form.rows; r++) {
        form.contents[r] = r;
        form.lengths[r] = p->kv;
        if (!p->ragged || r == 0) continue;
        int idle = fig_random_range(random, 0, 5) == 0;
        form.lengths[r] =
            idle || p->kv < p->queries ? 0 : fig_random_range(random, p->queries, p->kv);
    }
    if (elements_of(p) <= ELEMENT_LIMIT) return form;
    if (form.page_size == 0) form.page_size = 64;
    form.shared_pages = ELEMENT_LIMIT / (form.page_size * p->kv_heads * p->head_dim);
    return form;
}

static void run_point(const point *p, fig_random *random) {
    fig_attention_form form = form_of(p, random);
    fig_attention_case c;
    fig_attention_case_open(&c, &form, *random);
    fig_attention_case_run(&c, &c.random);
    fig_attention_case_check(&c, CHECKED);
    fig_attention_case_close(&c);
}

/* Draws points of one grid that take little time. Fails if a grid has only expensive points. */
static void run_grid(const grid *g, uint64_t number) {
    fig_random random = fig_random_seed(seed + number);
    for (int done = 0, drawn = 0; done < POINTS;) {
        point p = draw_point(g, &random);
        if (++drawn > 1000 * POINTS) fail_msg("%s: no point is small", g->name);
        if (p.q_heads % p.kv_heads != 0 || cost_of(&p) > COST_LIMIT) continue;
        run_point(&p, &random);
        done++;
    }
}

static void a_sample_of_every_grid_equals_float64(void **state) {
    (void)state;
    for (uint64_t i = 0; i < GRID_COUNT; i++)
        run_grid(&grids[i], i);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_of_every_grid_equals_float64),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
