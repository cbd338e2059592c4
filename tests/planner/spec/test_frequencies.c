/* test_frequencies.c: compares each kind of RoPE with numbers that were computed separately from
 * the public definitions, in fifty decimal digits. */
#include "planner/spec/frequencies.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_rope.h"
#include "planner/spec/rope_spec.h"

typedef struct due {
    int32_t pair;
    double frequency;
} due;

/* Compares with the expected frequencies, each rounded once. Pairs that do not rotate must have
 * frequency 0. */
static void expect(const fig_rope_table *table, int32_t pairs, const due *of, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const double got = table->frequencies[of[i].pair];
        if (fabs(got - of[i].frequency) > 2.3e-16 * of[i].frequency)
            fail_msg("pair %d is %.17g, it must be %.17g", (int)of[i].pair, got, of[i].frequency);
    }
    for (int32_t i = 1; i < FIG_FREQUENCY_LIMIT; i++) {
        if (i < pairs) assert_true(table->frequencies[i] < table->frequencies[i - 1]);
        if (i >= pairs) assert_true(table->frequencies[i] == 0);
    }
}
#define EXPECT(table, pairs, ...)                                                                  \
    expect(table, pairs, (const due[]){__VA_ARGS__},                                               \
           sizeof((const due[]){__VA_ARGS__}) / sizeof(due))

static fig_rope_table scaled(const fig_rope_spec *rope, int32_t head_dim,
                             const fig_rope_scaling *scaling) {
    fig_rope_table table;
    memset(&table, 0xa5, sizeof table);
    if (fig_rope_scale(&table, rope, head_dim, scaling) != FIG_OK) fail_msg("%s", fig_message());
    return table;
}

static fig_rope_table of_terms(const fig_rope_spec *rope, int32_t head_dim) {
    fig_rope_spec resolved;
    assert_int_equal(fig_rope_spec_resolve(rope, head_dim, &resolved), FIG_OK);
    return fig_frequencies_of(&resolved);
}

static void terms_come_to_frequencies(void **state) {
    (void)state;
    const fig_rope_spec llama = {.theta = 500000,
                                 .llama3_factor = 8,
                                 .llama3_low = 1,
                                 .llama3_high = 4,
                                 .llama3_context = 8192};
    fig_rope_table table = of_terms(&llama, 128);
    EXPECT(&table, 64, {0, 1}, {28, 0.0032114459947525909}, {32, 0.00052484616099295468},
           {35, 9.5562123539646833e-05}, {40, 3.4281021959525912e-05},
           {63, 3.0689259889145111e-07});
    assert_true(table.factor == 1);
    table = of_terms(&(fig_rope_spec){.theta = 65536, .scale = 4, .rotary_dim = 32}, 256);
    EXPECT(&table, 16, {0, 0.25}, {1, 0.125}, {2, 0.0625}, {15, 0x1p-17});
}

/* The first case is openai/gpt-oss-20b, whose ends are not rounded. The second is the form of
 * yarn's first models. */
static void yarn_keeps_short_waves_stretches_long_ones_and_grows(void **state) {
    (void)state;
    fig_rope_table table =
        scaled(&(fig_rope_spec){.theta = 150000}, 64,
               FIG_OPTIONS(fig_rope_scaling, .kind = FIG_ROPE_YARN, .factor = 32, .context = 4096,
                           .beta_fast = 32, .beta_slow = 1, .keeps_fractions = 1));
    EXPECT(&table, 32, {0, 1}, {8, 0.050813274815461475}, {12, 0.006794959489732218},
           {17, 0.00012931870124506273}, {18, 3.8308812373753384e-05},
           {31, 3.0235114281192144e-07});
    assert_true(fabs(table.factor - 1.3465735902799727) < 3e-16);
    table =
        scaled(&(fig_rope_spec){.theta = 10000}, 128,
               FIG_OPTIONS(fig_rope_scaling, .kind = FIG_ROPE_YARN, .factor = 32, .context = 4096));
    EXPECT(&table, 64, {0, 1}, {20, 0.056234132519034911}, {21, 0.046882330247338504},
           {30, 0.008366564754678547}, {45, 0.0001054997740209027}, {46, 4.1672544755103877e-05},
           {63, 3.6086937021545569e-06});
    assert_true(fabs(table.factor - 1.3465735902799727) < 3e-16);
}

static void a_factor_may_be_given_or_made_of_two_scales(void **state) {
    (void)state;
    const fig_rope_spec rope = {.theta = 10000};
    fig_rope_scaling yarn = {.size = sizeof yarn,
                             .kind = FIG_ROPE_YARN,
                             .factor = 40,
                             .context = 4096,
                             .mscale = 1,
                             .mscale_all = 0.707f};
    fig_rope_table table = scaled(&rope, 64, &yarn);
    /* the spec holds 0.707 as a float, hence 1e-7 */
    assert_true(fabs(table.factor - 1.0857263938030797) < 1e-7);
    yarn.attention_factor = 0.5f;
    table = scaled(&rope, 64, &yarn);
    assert_true(table.factor == 0.5);
    yarn = (fig_rope_scaling){
        .size = sizeof yarn, .kind = FIG_ROPE_YARN, .factor = 1, .context = 4096};
    table = scaled(&rope, 64, &yarn);
    assert_true(table.factor == 1);
}

static void dynamic_is_fixed_by_the_longest_sequence(void **state) {
    (void)state;
    const fig_rope_spec rope = {.theta = 10000};
    fig_rope_scaling dynamic = {.size = sizeof dynamic,
                                .kind = FIG_ROPE_DYNAMIC,
                                .factor = 2,
                                .context = 2048,
                                .tokens = 2048};
    const fig_rope_table plain = of_terms(&rope, 128);
    fig_rope_table table = scaled(&rope, 128, &dynamic);
    assert_memory_equal(&table, &plain, sizeof table);
    dynamic.tokens = 8192; /* this makes theta 72195.86 */
    table = scaled(&rope, 128, &dynamic);
    EXPECT(&table, 64, {0, 1}, {1, 0.83962574256431144}, {63, 1.6496885495563687e-05});
    assert_true(table.factor == 1);
}

/* The factors are the first, a middle and the last one of microsoft/Phi-3.5-mini-instruct. */
static void longrope_divides_by_the_factors_of_the_longest_sequence(void **state) {
    (void)state;
    const fig_rope_spec rope = {.theta = 10000};
    float brief[48], far[48];
    for (int i = 0; i < 48; i++) {
        brief[i] = i < 12 ? 1.0f : i < 47 ? 1.1599998474121094f : 2.8399994373321533f;
        far[i] = i < 12 ? 1.0800000429153442f : i < 47 ? 7.700000286102295f : 64.83999633789062f;
    }
    fig_rope_scaling scaling = {.size = sizeof scaling,
                                .kind = FIG_ROPE_LONGROPE,
                                .factor = 32,
                                .context = 4096,
                                .tokens = 4096,
                                .short_factors = brief,
                                .long_factors = far};
    fig_rope_table table = scaled(&rope, 96, &scaling);
    EXPECT(&table, 48, {0, 1}, {12, 0.086206907891491574}, {47, 4.2659433051390909e-05});
    assert_true(fabs(table.factor - 1.1902380714238083) < 3e-16);
    scaling.tokens = 4097;
    table = scaled(&rope, 96, &scaling);
    EXPECT(&table, 48, {0, 0.92592588913293683}, {12, 0.012987012504465704},
           {47, 1.8684881663397113e-06});
    assert_true(fabs(table.factor - 1.1902380714238083) < 3e-16);
}

static void a_scaling_is_refused_field_by_field(void **state) {
    (void)state;
    static const float ones[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                   1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const fig_rope_spec rope = {.theta = 10000}, linear = {.scale = 2}, flat = {.theta = 1};
    const fig_rope_scaling yarn = {
        .size = sizeof yarn, .kind = FIG_ROPE_YARN, .factor = 4, .context = 4096};
    const struct {
        const fig_rope_spec *rope;
        fig_rope_scaling change; /* its fields that are not 0 replace yarn's */
        const char *sentence;
    } cases[] = {
        {&rope, {.kind = 9}, "kind is 9, limits 1 to 3"},
        {&rope, {.factor = 0.5f}, "factor is 0.5, it must be finite and at least 1"},
        {&rope, {.factor = NAN}, "factor is nan"},
        {&rope, {.context = 1}, "context is 1 and tokens 0"},
        {&rope, {.tokens = -1}, "context is 4096 and tokens -1"},
        {&rope, {.beta_fast = -1}, "beta_fast is -1"},
        {&rope, {.beta_slow = INFINITY}, "beta_slow is inf"},
        {&rope, {.mscale = -1}, "mscale is -1"},
        {&rope, {.mscale_all = -1}, "mscale_all is -1"},
        {&rope, {.attention_factor = -1}, "attention_factor is -1"},
        {&linear, {.kind = 0}, "the rope sets scale or llama3_factor as well"},
        {&flat, {.kind = 0}, "theta is 1 and rotary_dim 64, they must be above 1 and at least 4"},
        {&rope, {.kind = FIG_ROPE_LONGROPE}, "short_factors is NULL"},
        {&rope, {.kind = FIG_ROPE_LONGROPE, .short_factors = ones}, "short_factors[23] is 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fig_rope_scaling *change = &cases[i].change;
        const fig_rope_table none = {.factor = 0};
        fig_rope_scaling scaling = yarn;
        fig_rope_table table;
        memset(&table, 0xa5, sizeof table);
        if (change->kind != 0) scaling.kind = change->kind;
        if (change->factor != 0) scaling.factor = change->factor;
        if (change->context != 0) scaling.context = change->context;
        scaling.tokens = change->tokens;
        scaling.beta_fast = change->beta_fast;
        scaling.beta_slow = change->beta_slow;
        scaling.mscale = change->mscale;
        scaling.mscale_all = change->mscale_all;
        scaling.attention_factor = change->attention_factor;
        scaling.short_factors = scaling.long_factors = change->short_factors;
        assert_int_equal(fig_rope_scale(&table, cases[i].rope, 64, &scaling), FIG_INVALID);
        if (strstr(fig_message(), cases[i].sentence) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", fig_message(), cases[i].sentence);
        assert_memory_equal(&table, &none, sizeof table);
    }
    fig_rope_table table;
    assert_int_equal(fig_rope_scale(&table, &rope, 258, &yarn), FIG_INVALID);
    assert_int_equal(fig_rope_scale(&table, &rope, 64, NULL), FIG_INVALID);
    assert_int_equal(fig_rope_scale(&table, NULL, 64, &yarn), FIG_INVALID);
    assert_string_equal(fig_message(), "rope scaling: rope is NULL");
}

/* Every number of a caller's table is checked. */
static void a_table_is_refused_by_the_number_that_is_wrong(void **state) {
    (void)state;
    const fig_rope_spec rope = {.rotary_dim = 4, .theta = 10000, .scale = 1};
    static const struct {
        fig_rope_table table;
        const char *sentence; /* NULL: the table is sound */
    } cases[] = {
        {{.factor = 0}, NULL},
        {{.frequencies = {1, 0.5}}, NULL},
        {{.frequencies = {1, 0.5}, .factor = 1.5}, NULL},
        {{.frequencies = {1}}, "t: frequencies[1] is 0, it must be finite and above 0"},
        {{.frequencies = {1, -1}}, "t: frequencies[1] is -1, it must be finite and above 0"},
        {{.frequencies = {INFINITY, 1}}, "t: frequencies[0] is inf"},
        {{.frequencies = {1, 1, 1}}, "t: frequencies[2] is 1, it must be 0, since that pair is"},
        {{.frequencies = {1, 1, -0.0}}, "t: frequencies[2] is -0"},
        {{.factor = 2}, "t: frequencies[0] is 0"},
        {{.frequencies = {1, 1}, .factor = -1}, "t: factor is -1"},
        {{.frequencies = {1, 1}, .factor = NAN}, "t: factor is nan"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_rope_table table = cases[i].table;
        const fig_status status = fig_frequencies_resolve("t", &rope, &table);
        assert_int_equal(status, cases[i].sentence == NULL ? FIG_OK : FIG_INVALID);
        if (cases[i].sentence != NULL) assert_non_null(strstr(fig_message(), cases[i].sentence));
        if (cases[i].sentence == NULL && fig_frequencies_has_table(&table))
            assert_true(table.factor == (cases[i].table.factor != 0 ? 1.5 : 1));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_come_to_frequencies),
        cmocka_unit_test(yarn_keeps_short_waves_stretches_long_ones_and_grows),
        cmocka_unit_test(a_factor_may_be_given_or_made_of_two_scales),
        cmocka_unit_test(dynamic_is_fixed_by_the_longest_sequence),
        cmocka_unit_test(longrope_divides_by_the_factors_of_the_longest_sequence),
        cmocka_unit_test(a_scaling_is_refused_field_by_field),
        cmocka_unit_test(a_table_is_refused_by_the_number_that_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
