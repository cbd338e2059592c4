/* test_spec.c: tests that each field of a spec is accepted just inside its limits and refused just
 * outside them, with the right message. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "planner/machine/traits.h"
#include "planner/spec/rope_spec.h"
#include "planner/spec/spec.h"
#include "planner/split/bounds.h"

enum { VARIANT_COUNT = 4 };

static fig_variant variant_of_h200(int32_t number) {
    const fig_traits h200 = {.size = sizeof h200, .name = "h200"};
    assert_int_equal(fig_traits_variant_count(&h200), VARIANT_COUNT);
    return fig_traits_variant(&h200, number, 2);
}

static const fig_spec sound = {
    .size = sizeof(fig_spec),
    .dtype = FIG_BF16,
    .kv_dtype = FIG_BF16,
    .layers = 2,
    .q_heads = 8,
    .kv_heads = 4,
    .head_dim = 64,
    .ffn_width = 64,
    .page_size = 16,
    .batch_limit = 8,
    .kv_limit = 512,
    .sequence_limit = 9,
    .row_tokens = 1,
    .ffn_rows = 1,
    .sm_scale = 0.5f,
    .rope = {.rotary_dim = 64,
             .theta = 500000.0f,
             .scale = 2.0f,
             .llama3_factor = 8.0f,
             .llama3_low = 1.0f,
             .llama3_high = 4.0f,
             .llama3_context = 8192},
};

/* Sets one field of the sound spec to one value. */
typedef struct spec_change {
    size_t offset;
    double value;
    int is_float;
    const char *sentence; /* NULL: the change is accepted */
} spec_change;

#define INTEGER(field, value, sentence)                                                            \
    { offsetof(fig_spec, field), (value), 0, (sentence) }
#define FLOAT(field, value, sentence)                                                              \
    { offsetof(fig_spec, field), (value), 1, (sentence) }

static fig_spec changed(const spec_change *change) {
    fig_spec spec = sound;
    float as_float = (float)change->value;
    int32_t as_integer = change->is_float ? 0 : (int32_t)change->value;
    uint8_t *field = (uint8_t *)&spec + change->offset;
    if (change->is_float)
        memcpy(field, &as_float, sizeof as_float);
    else
        memcpy(field, &as_integer, sizeof as_integer);
    return spec;
}

/* After a refusal, the resolved spec is zeros and the message is as expected. An accepted spec is
 * resolved to itself. */
static void expect_changes(const spec_change *changes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const fig_spec spec = changed(&changes[i]), zeros = {0};
        fig_spec resolved;
        memset(&resolved, 0xa5, sizeof resolved);
        fig_status expected = changes[i].sentence == NULL ? FIG_OK : FIG_INVALID;
        fig_status status = fig_spec_resolve(&spec, &resolved);
        if (status != expected)
            fail_msg("change %zu (value %g): %s, expected %s", i, changes[i].value,
                     fig_status_name(status), fig_status_name(expected));
        assert_int_equal(fig_spec_check(&spec), expected);
        assert_memory_equal(&resolved, expected == FIG_OK ? &spec : &zeros, sizeof resolved);
        if (expected != FIG_OK) assert_string_equal(fig_message(), changes[i].sentence);
    }
}

static void the_shape_is_checked_field_by_field(void **state) {
    (void)state;
    static const spec_change changes[] = {
        INTEGER(dtype, 0, "spec: dtype is 0, this library has FIG_F32, FIG_F16 and FIG_BF16"),
        INTEGER(dtype, FIG_I32, "spec: dtype is 8, this library has FIG_F32, FIG_F16 and FIG_BF16"),
        INTEGER(layers, 512, NULL),
        INTEGER(layers, -1, "spec: layers is -1, limits 0 to 512"),
        INTEGER(layers, 513, "spec: layers is 513, limits 0 to 512"),
        INTEGER(q_heads, 64, NULL),
        INTEGER(q_heads, 0, "spec: q_heads is 0, limits 1 to 256"),
        INTEGER(q_heads, 257, "spec: q_heads is 257, limits 1 to 256"),
        INTEGER(q_heads, 68, "spec: q_heads is 68, the limit is 16 for each of the 4 kv_heads"),
        INTEGER(q_heads, 10, "spec: q_heads is 10, it must be a multiple of kv_heads, 4"),
        INTEGER(kv_heads, 8, NULL),
        INTEGER(kv_heads, 0, "spec: kv_heads is 0, limits 1 to 256"),
        INTEGER(kv_heads, -4, "spec: kv_heads is -4, limits 1 to 256"),
        INTEGER(kv_heads, 257, "spec: kv_heads is 257, limits 1 to 256"),
        INTEGER(kv_heads, 16, "spec: q_heads is 8, it must be a multiple of kv_heads, 16"),
        INTEGER(head_dim, 80, NULL),
        INTEGER(head_dim, 96, NULL),
        INTEGER(head_dim, 128, NULL),
        INTEGER(head_dim, 256, NULL),
        INTEGER(head_dim, 72, "spec: head_dim is 72, this library has 64, 80, 96, 128 and 256"),
        INTEGER(head_dim, 512, "spec: head_dim is 512, this library has 64, 80, 96, 128 and 256"),
        INTEGER(head_dim, 0, "spec: head_dim is 0, this library has 64, 80, 96, 128 and 256"),
        INTEGER(ffn_width, 0, NULL),
        INTEGER(ffn_width, 1 << 20, NULL),
        INTEGER(ffn_width, -8, "spec: ffn_width is -8, limits 0 to 1048576"),
        INTEGER(ffn_width, (1 << 20) + 8, "spec: ffn_width is 1048584, limits 0 to 1048576"),
        INTEGER(ffn_width, 68, "spec: ffn_width is 68, it must be a multiple of 8"),
        INTEGER(activation, FIG_GELU, NULL),
        INTEGER(activation, FIG_SWIGLU_LIMITED, NULL),
        INTEGER(activation, 4, "spec: activation is 4, limits 0 to 3"),
        INTEGER(activation, -1, "spec: activation is -1, limits 0 to 3"),
    };
    expect_changes(changes, sizeof changes / sizeof changes[0]);
}

/* A spec for row operations needs no heads and none of the fields that depend on heads. */
static void a_spec_without_heads_is_its_dtype(void **state) {
    (void)state;
    const fig_spec bare = {.size = sizeof bare, .dtype = FIG_F16};
    fig_spec resolved, again;
    assert_int_equal(fig_spec_resolve(&bare, &resolved), FIG_OK);
    assert_int_equal(resolved.batch_limit, 1);
    assert_int_equal(resolved.kv_limit, 1);
    assert_true(resolved.sm_scale == 0);
    assert_int_equal(fig_spec_resolve(&resolved, &again), FIG_OK);
    assert_memory_equal(&again, &resolved, sizeof again);
    fig_spec half = bare;
    half.head_dim = 64;
    assert_int_equal(fig_spec_resolve(&half, &resolved), FIG_INVALID);
    assert_string_equal(fig_message(), "spec: q_heads is 0, limits 1 to 256");
}

static void the_limits_are_checked_field_by_field(void **state) {
    (void)state;
    static const spec_change changes[] = {
        INTEGER(page_size, 0, NULL),
        INTEGER(page_size, 1, NULL),
        INTEGER(page_size, 65536, NULL),
        INTEGER(page_size, -1, "spec: page_size is -1, limits 0 to 65536"),
        INTEGER(page_size, 65537, "spec: page_size is 65537, limits 0 to 65536"),
        INTEGER(kv_layout, FIG_HND, NULL),
        INTEGER(kv_layout, 2, "spec: kv_layout is 2, limits 0 to 1"),
        INTEGER(kv_layout, -1, "spec: kv_layout is -1, limits 0 to 1"),
        INTEGER(batch_limit, 1, NULL),
        INTEGER(batch_limit, 1024, NULL),
        INTEGER(batch_limit, 0, "spec: batch_limit is 0, limits 1 to 1024"),
        INTEGER(batch_limit, 1025, "spec: batch_limit is 1025, limits 1 to 1024"),
        INTEGER(kv_limit, 1, NULL),
        INTEGER(kv_limit, 1 << 20, NULL),
        INTEGER(kv_limit, 0, "spec: kv_limit is 0, limits 1 to 1048576"),
        INTEGER(kv_limit, (1 << 20) + 1, "spec: kv_limit is 1048577, limits 1 to 1048576"),
        INTEGER(sequence_limit, 65536, NULL),
        INTEGER(sequence_limit, -1, "spec: sequence_limit is -1, limits 0 to 65536"),
        INTEGER(sequence_limit, 65537, "spec: sequence_limit is 65537, limits 0 to 65536"),
        INTEGER(ffn_rows, 8, NULL),
        INTEGER(ffn_rows, 9, "spec: ffn_rows is 9, limits 0 to 8"),
        INTEGER(row_tokens, 16, NULL),
        INTEGER(row_tokens, -1, "spec: row_tokens is -1, limits 0 to 16"),
        INTEGER(row_tokens, 17, "spec: row_tokens is 17, limits 0 to 16"),
        INTEGER(window, -1, "spec: window is -1, limits 0 to 2147483647"),
        FLOAT(soft_cap, 30, NULL),
        FLOAT(soft_cap, -1, "spec: soft_cap is -1, it must be finite and at least 0"),
        FLOAT(soft_cap, INFINITY, "spec: soft_cap is inf, it must be finite and at least 0"),
        FLOAT(soft_cap, NAN, "spec: soft_cap is nan, it must be finite and at least 0"),
        FLOAT(sm_scale, 1e-30, NULL),
        FLOAT(sm_scale, -0.5, "spec: sm_scale is -0.5, it must be finite and at least 0"),
        FLOAT(sm_scale, INFINITY, "spec: sm_scale is inf, it must be finite and at least 0"),
        FLOAT(sm_scale, NAN, "spec: sm_scale is nan, it must be finite and at least 0"),
        FLOAT(qk_norm_epsilon, 1e-6, NULL),
        FLOAT(qk_norm_epsilon, -1e-6,
              "spec: qk_norm_epsilon is -1e-06, it must be finite and at least 0"),
        FLOAT(qk_norm_epsilon, INFINITY,
              "spec: qk_norm_epsilon is inf, it must be finite and at least 0"),
        FLOAT(qk_norm_epsilon, NAN,
              "spec: qk_norm_epsilon is nan, it must be finite and at least 0"),
    };
    expect_changes(changes, sizeof changes / sizeof changes[0]);
}

static void the_rope_is_checked_field_by_field(void **state) {
    (void)state;
    static const spec_change changes[] = {
        INTEGER(rope.interleaved, 1, NULL),
        INTEGER(rope.interleaved, 2, "rope: interleaved is 2, it must be 0 or 1"),
        INTEGER(rope.interleaved, -1, "rope: interleaved is -1, it must be 0 or 1"),
        INTEGER(rope.rotary_dim, 2, NULL),
        INTEGER(rope.rotary_dim, 32, NULL),
        INTEGER(rope.rotary_dim, 33,
                "rope: rotary_dim is 33, it must be even and at most head_dim, 64"),
        INTEGER(rope.rotary_dim, 66,
                "rope: rotary_dim is 66, it must be even and at most head_dim, 64"),
        INTEGER(rope.rotary_dim, -2,
                "rope: rotary_dim is -2, it must be even and at most head_dim, 64"),
        FLOAT(rope.theta, -1, "rope: theta is -1, it must be finite and above 0"),
        FLOAT(rope.theta, INFINITY, "rope: theta is inf, it must be finite and above 0"),
        FLOAT(rope.theta, NAN, "rope: theta is nan, it must be finite and above 0"),
        FLOAT(rope.scale, -2, "rope: scale is -2, it must be finite and above 0"),
        FLOAT(rope.scale, NAN, "rope: scale is nan, it must be finite and above 0"),
        FLOAT(rope.llama3_factor, 1, NULL),
        FLOAT(rope.llama3_factor, 0,
              "rope: llama3_factor is 0, but llama3_low is 1, llama3_high 4 and llama3_context "
              "8192, which must be 0 with it"),
        FLOAT(rope.llama3_factor, 0.5,
              "rope: llama3_factor is 0.5, it must be 0, or finite and >= 1"),
        FLOAT(rope.llama3_factor, -8,
              "rope: llama3_factor is -8, it must be 0, or finite and >= 1"),
        FLOAT(rope.llama3_factor, INFINITY,
              "rope: llama3_factor is inf, it must be 0, or finite and >= 1"),
        FLOAT(rope.llama3_factor, NAN,
              "rope: llama3_factor is nan, it must be 0, or finite and >= 1"),
        FLOAT(rope.llama3_low, 0, "rope: llama3_low is 0, it must be finite and above 0"),
        FLOAT(rope.llama3_low, NAN, "rope: llama3_low is nan, it must be finite and above 0"),
        FLOAT(rope.llama3_high, 1.5, NULL),
        FLOAT(rope.llama3_high, 1,
              "rope: llama3_high is 1, it must be finite and above llama3_low, 1"),
        FLOAT(rope.llama3_high, NAN,
              "rope: llama3_high is nan, it must be finite and above llama3_low, 1"),
        FLOAT(rope.llama3_high, INFINITY,
              "rope: llama3_high is inf, it must be finite and above llama3_low, 1"),
        INTEGER(rope.llama3_context, 1, NULL),
        FLOAT(window_rope.theta, -1, "rope: theta is -1, it must be finite and above 0"),
        INTEGER(sinks, 1, NULL),
        INTEGER(sinks, 2, "spec: sinks is 2, limits 0 to 1"),
        FLOAT(rope_table.frequencies[1], 1,
              "rope_table: frequencies[0] is 0, it must be finite and above 0"),
        FLOAT(window_table.factor, 1,
              "window_table: frequencies[0] is 0, it must be finite and above 0"),
        INTEGER(rope.reserved[0], 1, "rope: reserved[0] is 1, it must be 0"),
        INTEGER(rope.reserved[3], 9, "rope: reserved[3] is 9, it must be 0"),
        INTEGER(rope.llama3_context, 0, "rope: llama3_context is 0, it must be at least 1"),
        INTEGER(rope.llama3_context, -1, "rope: llama3_context is -1, it must be at least 1"),
    };
    expect_changes(changes, sizeof changes / sizeof changes[0]);
}

static void without_a_llama3_factor_its_fields_are_zero(void **state) {
    (void)state;
    static const fig_rope_spec wrong[] = {
        {.llama3_low = 1.0f}, {.llama3_high = 4.0f}, {.llama3_context = 8192}};
    fig_rope_spec out;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (fig_rope_spec_resolve(&wrong[i], 64, &out) != FIG_INVALID)
            fail_msg("rope %zu passes", i);
    }
}

/* The cache has the type of the activations. With 16-bit activations it may also be fp8. Only fp8
 * caches have scales. */
static void each_pair_of_dtypes_is_taken_or_refused_by_name(void **state) {
    (void)state;
    static const char refused[] = "spec: kv_dtype is %s, but dtype is %s: a cache has that dtype, "
                                  "or FIG_E4M3 or FIG_E5M2 beside FIG_F16 and FIG_BF16";
    static const fig_dtype dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};
    static const char *const names[] = {
        [0] = "no dtype",        [FIG_F32] = "FIG_F32",   [FIG_F16] = "FIG_F16",
        [FIG_BF16] = "FIG_BF16", [FIG_E4M3] = "FIG_E4M3", [FIG_E5M2] = "FIG_E5M2",
        [FIG_I32] = "FIG_I32",   [FIG_I64] = "FIG_I64"};
    const int name_count = sizeof names / sizeof names[0];
    for (int i = 0; i < 3; i++) {
        for (int kv = -1; kv <= 10; kv++) {
            for (int scales = 0; scales <= 1; scales++) {
                fig_spec spec = sound, out;
                char sentence[200];
                spec.dtype = dtypes[i];
                spec.kv_dtype = (fig_dtype)kv;
                spec.kv_scales = scales;
                int fp8 = (kv == FIG_E4M3 || kv == FIG_E5M2) && dtypes[i] != FIG_F32;
                int same = kv == 0 || kv == (int)dtypes[i];
                fig_status status = fig_spec_resolve(&spec, &out);
                if ((status == FIG_OK) != (fp8 || (same && scales == 0)))
                    fail_msg("dtype %d, kv_dtype %d, kv_scales %d: %s", (int)dtypes[i], kv, scales,
                             fig_status_name(status));
                if (status == FIG_OK) {
                    assert_int_equal(out.kv_dtype, kv == 0 ? dtypes[i] : (fig_dtype)kv);
                    continue;
                }
                if (same)
                    snprintf(sentence, sizeof sentence,
                             "spec: kv_scales is 1, it must be 0 where kv_dtype is neither "
                             "FIG_E4M3 nor FIG_E5M2");
                else
                    snprintf(sentence, sizeof sentence, refused,
                             names[kv > 0 && kv < name_count && names[kv] != NULL ? kv : 0],
                             names[dtypes[i]]);
                assert_string_equal(fig_message(), sentence);
            }
        }
    }
    fig_spec spec = sound;
    spec.kv_dtype = FIG_E4M3;
    spec.kv_scales = 2;
    assert_int_equal(fig_spec_check(&spec), FIG_INVALID);
    assert_string_equal(fig_message(), "spec: kv_scales is 2, limits 0 to 1");
}

static void a_row_holds_no_more_queries_than_a_sequence_tokens(void **state) {
    (void)state;
    fig_spec spec = sound;
    spec.kv_limit = 3;
    spec.row_tokens = 3;
    assert_int_equal(fig_spec_check(&spec), FIG_OK);
    spec.row_tokens = 4;
    assert_int_equal(fig_spec_check(&spec), FIG_INVALID);
    assert_string_equal(fig_message(), "spec: row_tokens is 4, limits 0 to 3");
}

static void window_layers_name_existing_layers(void **state) {
    (void)state;
    fig_spec spec = sound;
    spec.window_layers[0] = 2;
    assert_int_equal(fig_spec_check(&spec), FIG_INVALID);
    assert_string_equal(fig_message(), "spec: window_layers has layer 1, but window is 0");
    spec.window = 100;
    assert_int_equal(fig_spec_check(&spec), FIG_OK);
    spec.window_layers[0] = 4;
    assert_int_equal(fig_spec_check(&spec), FIG_INVALID);
    assert_string_equal(fig_message(), "spec: window_layers has layer 2, but layers is 2");
    spec.layers = 0;
    spec.window_layers[0] = 2;
    assert_int_equal(fig_spec_check(&spec), FIG_INVALID);
    assert_string_equal(fig_message(), "spec: window_layers has layer 1, but layers is 1");
    spec.layers = 511;
    spec.window_layers[7] = UINT64_C(1) << 63;
    assert_int_equal(fig_spec_check(&spec), FIG_INVALID);
    assert_string_equal(fig_message(), "spec: window_layers has layer 511, but layers is 511");
    spec.layers = 512;
    assert_int_equal(fig_spec_check(&spec), FIG_OK);
}

static void a_plain_layer_is_there_and_has_no_norm(void **state) {
    (void)state;
    fig_spec spec = sound, out;
    spec.layers = 130;
    spec.plain_layers[2] = 2;
    assert_int_equal(fig_spec_resolve(&spec, &out), FIG_OK);
    for (int32_t layer = 0; layer < 130; layer++)
        assert_int_equal(fig_spec_layer_turns(&out, layer), layer != 129);
    spec.qk_norm_epsilon = 1e-6f;
    assert_int_equal(fig_spec_check(&spec), FIG_INVALID);
    assert_string_equal(fig_message(), "spec: plain_layers has layer 129, but qk_norm_epsilon is "
                                       "set, which comes with RoPE");
    spec.qk_norm_epsilon = 0;
    spec.layers = 129;
    assert_int_equal(fig_spec_check(&spec), FIG_INVALID);
    assert_string_equal(fig_message(), "spec: plain_layers has layer 129, but layers is 129");
}

static void a_layer_has_the_window_or_sees_all(void **state) {
    (void)state;
    fig_spec spec = sound, out;
    spec.layers = 130;
    assert_int_equal(fig_spec_resolve(&spec, &out), FIG_OK);
    for (int32_t layer = 0; layer < 130; layer++)
        assert_int_equal(fig_spec_layer_window(&out, layer), 0);

    spec.window = 100;
    assert_int_equal(fig_spec_resolve(&spec, &out), FIG_OK);
    for (int32_t layer = 0; layer < 130; layer++)
        assert_int_equal(fig_spec_layer_window(&out, layer), 100);
    const fig_spec once = out;
    assert_int_equal(fig_spec_resolve(&once, &out), FIG_OK);
    assert_memory_equal(&out, &once, sizeof out);

    spec.window_layers[0] = UINT64_C(1) << 63 | 1;
    spec.window_layers[2] = 2;
    assert_int_equal(fig_spec_resolve(&spec, &out), FIG_OK);
    for (int32_t layer = 0; layer < 130; layer++) {
        const int has = layer == 0 || layer == 63 || layer == 129;
        assert_int_equal(fig_spec_layer_window(&out, layer), has ? 100 : 0);
    }
    /* A window of kv_limit tokens hides nothing, so it counts as no window. */
    spec.window = 511;
    assert_int_equal(fig_spec_resolve(&spec, &out), FIG_OK);
    assert_int_equal(fig_spec_layer_window(&out, 63), 511);
    spec.window = 512;
    assert_int_equal(fig_spec_resolve(&spec, &out), FIG_OK);
    assert_int_equal(out.window, 512);
    assert_int_equal(fig_spec_layer_window(&out, 63), 0);
    spec.window = INT32_MAX;
    assert_int_equal(fig_spec_resolve(&spec, &out), FIG_OK);
    assert_int_equal(fig_spec_layer_window(&out, 63), 0);
}

static void fields_left_out_have_the_documented_defaults(void **state) {
    (void)state;
    fig_spec spec = sound, out;
    spec.kv_dtype = 0;
    spec.layers = 0;
    spec.sequence_limit = 0;
    spec.row_tokens = 0;
    spec.sm_scale = 0.0f;
    spec.rope = (fig_rope_spec){.interleaved = 1};
    assert_int_equal(fig_spec_resolve(&spec, &out), FIG_OK);
    assert_int_equal(out.layers, 1);
    assert_int_equal(out.kv_dtype, FIG_BF16);
    assert_int_equal(out.sequence_limit, 8);
    assert_int_equal(out.row_tokens, 1);
    assert_float_equal(out.sm_scale, 0.125f, 0.0f);
    const fig_rope_spec rope = {
        .interleaved = 1, .rotary_dim = 64, .theta = 10000.0f, .scale = 1.0f};
    assert_memory_equal(&out.rope, &rope, sizeof rope);
    spec.head_dim = 128;
    assert_int_equal(fig_spec_resolve(&spec, &out), FIG_OK);
    assert_float_equal(out.sm_scale, 0.088388347648318447f, 0.0f);

    const fig_spec once = out;
    assert_int_equal(fig_spec_resolve(&out, &out), FIG_OK);
    assert_memory_equal(&out, &once, sizeof once);
}

static void the_size_field_is_checked(void **state) {
    (void)state;
    fig_spec spec = sound, out;
    spec.size = 0;
    assert_int_equal(fig_spec_resolve(&spec, &out), FIG_INVALID);
    assert_string_equal(fig_message(), "fig_spec: size is 0, it must be sizeof(fig_spec)");
    assert_int_equal(fig_spec_check(NULL), FIG_INVALID);

    /* The caller's header is from before sm_scale and rope. */
    spec.size = offsetof(fig_spec, sm_scale);
    assert_int_equal(fig_spec_resolve(&spec, &out), FIG_OK);
    assert_int_equal(out.size, sizeof out);
    assert_float_equal(out.sm_scale, 0.125f, 0.0f);
    assert_float_equal(out.rope.llama3_factor, 0.0f, 0.0f);
}

/* A worker reads as many kv heads at a time as the variant allows, provided that their number
 * divides kv_heads. */
static int32_t groups_of(int32_t kv_heads, int32_t heads_limit) {
    int32_t heads = heads_limit;
    while (kv_heads % heads != 0)
        heads--;
    return kv_heads / heads;
}

static void a_spec_that_passes_has_tile_counts_that_fit_i32(void **state) {
    (void)state;
    int refused = 0;
    for (int32_t kv_heads = 1; kv_heads <= FIG_HEAD_LIMIT; kv_heads++) {
        fig_spec spec = sound;
        spec.q_heads = spec.kv_heads = kv_heads;
        spec.batch_limit = FIG_BATCH_LIMIT;
        spec.kv_limit = FIG_KV_LIMIT;
        int64_t most = (INT64_C(1) << 34) / kv_heads / FIG_BATCH_LIMIT;
        if (fig_spec_check(&spec) != FIG_OK) {
            assert_true(most < FIG_KV_LIMIT);
            spec.kv_limit = (int32_t)most;
            refused++;
        }
        assert_int_equal(fig_spec_check(&spec), FIG_OK);
        for (int i = 0; i < VARIANT_COUNT; i++) {
            int64_t tokens = (int64_t)spec.batch_limit * spec.kv_limit;
            const fig_split_shape shape = {.row_limit = spec.batch_limit,
                                           .tile_tokens = variant_of_h200(i).tile_tokens,
                                           .row_tokens = 1};
            int64_t tiles = fig_bounds_tiles(&shape, tokens, spec.kv_limit);
            assert_true(tiles * groups_of(kv_heads, variant_of_h200(i).heads) <= INT32_MAX);
        }
    }
    assert_int_equal(refused, FIG_HEAD_LIMIT - 16);
    fig_spec spec = sound;
    spec.q_heads = spec.kv_heads = 17;
    spec.batch_limit = FIG_BATCH_LIMIT;
    spec.kv_limit = FIG_KV_LIMIT;
    assert_int_equal(fig_spec_check(&spec), FIG_INVALID);
    assert_string_equal(fig_message(), "spec: batch_limit * kv_limit * kv_heads is 18253611008, "
                                       "limit 17179869184");
}

static void a_dense_sequence_is_one_page(void **state) {
    (void)state;
    fig_spec spec;
    assert_int_equal(fig_spec_resolve(&sound, &spec), FIG_OK);
    assert_int_equal(fig_spec_page_tokens(&spec), 16);
    assert_int_equal(fig_spec_sequence_pages(&spec), 32);
    spec.kv_limit = 513;
    assert_int_equal(fig_spec_sequence_pages(&spec), 33);
    spec.page_size = 0;
    assert_int_equal(fig_spec_page_tokens(&spec), 513);
    assert_int_equal(fig_spec_sequence_pages(&spec), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shape_is_checked_field_by_field),
        cmocka_unit_test(a_spec_without_heads_is_its_dtype),
        cmocka_unit_test(the_limits_are_checked_field_by_field),
        cmocka_unit_test(the_rope_is_checked_field_by_field),
        cmocka_unit_test(without_a_llama3_factor_its_fields_are_zero),
        cmocka_unit_test(each_pair_of_dtypes_is_taken_or_refused_by_name),
        cmocka_unit_test(a_row_holds_no_more_queries_than_a_sequence_tokens),
        cmocka_unit_test(window_layers_name_existing_layers),
        cmocka_unit_test(a_plain_layer_is_there_and_has_no_norm),
        cmocka_unit_test(a_layer_has_the_window_or_sees_all),
        cmocka_unit_test(fields_left_out_have_the_documented_defaults),
        cmocka_unit_test(the_size_field_is_checked),
        cmocka_unit_test(a_spec_that_passes_has_tile_counts_that_fit_i32),
        cmocka_unit_test(a_dense_sequence_is_one_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
