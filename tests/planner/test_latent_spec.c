/* test_latent_spec.c: tests what a spec may say about latent attention and about dense first
 * layers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "planner/spec/latent_spec.h"
#include "planner/spec/spec.h"

static fig_spec latent(void) {
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = FIG_BF16,
                      .layers = 4,
                      .q_heads = 128,
                      .kv_heads = 1,
                      .head_dim = 576,
                      .ffn_width = 64,
                      .page_size = 64,
                      .batch_limit = 4,
                      .kv_limit = 1000,
                      .sm_scale = 0.1f,
                      .latent_dim = 512,
                      .latent_norm_epsilon = 1e-6f,
                      .dense_layers = 1,
                      .dense_width = 128};
}

static void refuses_latent(const fig_spec *spec, fig_status status, const char *words) {
    assert_int_equal(fig_spec_check(spec), status);
    if (strstr(fig_message(), words) == NULL) fail_msg("%s: %s", words, fig_message());
}

static void a_sound_spec_rotates_the_values_behind_the_latent(void **state) {
    (void)state;
    fig_spec spec = latent(), resolved;
    assert_int_equal(fig_spec_resolve(&spec, &resolved), FIG_OK);
    assert_int_equal(resolved.rope.rotary_dim, 64);
    assert_int_equal(resolved.kv_dtype, FIG_BF16);
    spec.kv_dtype = FIG_E4M3;
    spec.q_heads = 40;
    spec.row_tokens = 16;
    assert_int_equal(fig_spec_check(&spec), FIG_OK);
}

/* A tile has at least 16 tokens, and a line of tiles fits 31 bits. */
static void groups_of_a_full_step_have_tiles_that_an_i32_counts(void **state) {
    (void)state;
    fig_spec spec = latent();
    spec.kv_limit = 1 << 20;
    spec.batch_limit = 1024;
    spec.row_tokens = 8;
    assert_int_equal(fig_spec_check(&spec), FIG_OK);
    spec.row_tokens = 9;
    spec.batch_limit = 512;
    assert_int_equal(fig_spec_check(&spec), FIG_OK);
    spec.batch_limit = 513;
    refuses_latent(&spec, FIG_INVALID, "batch_limit * kv_limit * kv_heads is");
}

static void a_refusal_of_a_latent_names_the_field_and_what_it_must_be(void **state) {
    (void)state;
#define REFUSES(field, value, status, words)                                                       \
    {                                                                                              \
        fig_spec spec = latent();                                                                  \
        spec.field = value;                                                                        \
        refuses_latent(&spec, status, words);                                                      \
    }
    REFUSES(latent_dim, 256, FIG_UNSUPPORTED, "latent_dim is 256, this library has 0 and 512")
    REFUSES(kv_heads, 128, FIG_UNSUPPORTED, "kv_heads is 128, it must be 1")
    REFUSES(head_dim, 192, FIG_UNSUPPORTED, "head_dim is 192, it must be 576")
    REFUSES(q_heads, 20, FIG_UNSUPPORTED, "q_heads is 20, it must be a multiple of 8")
    REFUSES(q_heads, 136, FIG_UNSUPPORTED, "q_heads is 136")
    REFUSES(kv_layout, FIG_HND, FIG_UNSUPPORTED, "kv_layout is 1, it must be 0")
    REFUSES(kv_dtype, FIG_E5M2, FIG_UNSUPPORTED, "kv_dtype is")
    REFUSES(sm_scale, 0, FIG_INVALID, "sm_scale is 0, it must be given")
    REFUSES(soft_cap, 30, FIG_UNSUPPORTED, "soft_cap is 30")
    REFUSES(qk_norm_epsilon, 1e-6f, FIG_UNSUPPORTED, "qk_norm_epsilon is 1e-06")
    REFUSES(plain_layers[0], 1, FIG_UNSUPPORTED, "plain_layers is set")
    REFUSES(rope.rotary_dim, 32, FIG_UNSUPPORTED, "rope.rotary_dim is 32, it must be 64")
    REFUSES(dense_layers, 5, FIG_INVALID, "dense_layers is 5, limits 0 to 4")
    REFUSES(dense_width, 0, FIG_INVALID, "dense_width is 0")
    REFUSES(dense_width, 100, FIG_INVALID, "dense_width is 100, it must be a multiple of 8")
    REFUSES(row_tokens, 17, FIG_UNSUPPORTED, "row_tokens is 17, limit 16")
    REFUSES(ffn_width, 0, FIG_INVALID, "dense_layers is 1, but ffn_width is 0")
    fig_spec other = latent();
    other.latent_dim = 0;
    other.q_heads = 8;
    other.head_dim = 64;
    refuses_latent(&other, FIG_INVALID, "latent_norm_epsilon is 1e-06, but latent_dim is 0");
}

static void dense_layers_have_their_own_width_and_one_row(void **state) {
    (void)state;
    fig_spec spec = latent(), resolved;
    spec.ffn_rows = 8;
    assert_int_equal(fig_spec_resolve(&spec, &resolved), FIG_OK);
    const fig_spec_ffn dense = fig_spec_layer_ffn(&resolved, 0);
    const fig_spec_ffn other = fig_spec_layer_ffn(&resolved, 1);
    assert_int_equal(dense.width, 128);
    assert_int_equal(dense.rows, 1);
    assert_int_equal(other.width, 64);
    assert_int_equal(other.rows, 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_spec_rotates_the_values_behind_the_latent),
        cmocka_unit_test(groups_of_a_full_step_have_tiles_that_an_i32_counts),
        cmocka_unit_test(a_refusal_of_a_latent_names_the_field_and_what_it_must_be),
        cmocka_unit_test(dense_layers_have_their_own_width_and_one_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
