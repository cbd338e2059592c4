/* test_xla_call.c: tests the reader of XLA FFI's call frames, with a handler that this test
 * registers. */
#include "ffi/xla/xla_call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "planner/status.h"
#include "tests/support/ffi/xla_host.h"

/* The values that the handler below read in its last call. */
typedef struct seen {
    int calls;
    fig_array x, option, y, optional_y;
    int64_t count;
    double factor;
    int32_t ordinal;
    void *stream;
} seen;
static _Thread_local seen last;

static fig_status read_call(fig_xla_call *call) {
    last.calls++;
    fig_xla_call_argument(call, "x", &last.x);
    fig_xla_call_option(call, "option", &last.option);
    fig_xla_call_result(call, "y", &last.y);
    fig_xla_call_optional_result(call, "lse", &last.optional_y);
    fig_xla_call_need(call, "count");
    last.count = fig_xla_call_integer(call, "count", 7);
    last.factor = fig_xla_call_real(call, "factor", 0.5);
    FIG_TRY(fig_xla_call_end(call));
    last.ordinal = call->ordinal;
    return fig_xla_call_stream(call, &last.stream);
}

static fig_xla_error *handle(fig_xla_frame *frame, fig_device device) {
    fig_xla_call call = {.name = "test.scale"};
    if (fig_xla_call_answer(frame)) return NULL;
    memset(&last, 0, sizeof last);
    fig_xla_call_begin(&call, frame, device);
    return fig_xla_call_finish(&call, read_call(&call));
}

static fig_xla_error *on_host(fig_xla_frame *frame) {
    return handle(frame, FIG_DEVICE_HOST);
}

static fig_xla_error *on_cuda(fig_xla_frame *frame) {
    return handle(frame, FIG_DEVICE_CUDA);
}

static float x[6], y[6];

/* Prepares a correct call, which each test then breaks in one way. */
static void sound_call(fig_xla_host *host) {
    fig_xla_host_init(host, on_host);
    fig_xla_host_arg(host, FIG_XLA_F32, x, FIG_XLA_HOST_DIMS(2, 3));
    fig_xla_host_ret(host, FIG_XLA_BF16, y, FIG_XLA_HOST_DIMS(6));
    fig_xla_host_integer(host, "count", 3);
}

static void expect_refusal(fig_xla_host *host, const char *words) {
    fig_xla_host_call(host);
    if (host->code == 0 || strstr(host->message, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, host->message);
    assert_non_null(strstr(host->message, "test.scale: "));
    assert_int_equal(host->code, FIG_XLA_INVALID_ARGUMENT);
}

static void a_query_is_answered_without_a_table(void **state) {
    (void)state;
    fig_xla_metadata metadata = {.struct_size = sizeof metadata};
    fig_xla_query query = {{sizeof query, FIG_XLA_METADATA, NULL}, &metadata};
    fig_xla_frame frame = {.struct_size = sizeof frame, .extension = &query.base};
    last.calls = 0;
    assert_null(on_host(&frame)); /* its api is NULL */
    assert_int_equal(last.calls, 0);
    assert_int_equal(metadata.version.major, 0);
    assert_int_equal(metadata.version.minor, 1);
    assert_int_equal(metadata.traits, 1);
}

static void another_extension_is_no_query(void **state) {
    (void)state;
    fig_xla_extension extension = {sizeof extension, 77, NULL};
    fig_xla_frame frame = {.struct_size = sizeof frame, .extension = &extension};
    assert_int_equal(fig_xla_call_answer(&frame), 0);
}

static void buffers_become_arrays(void **state) {
    (void)state;
    fig_xla_host host;
    sound_call(&host);
    fig_xla_host_call(&host);
    assert_int_equal(host.code, 0);
    assert_string_equal(last.x.name, "x");
    assert_ptr_equal(last.x.data, x);
    assert_int_equal(last.x.dtype, FIG_F32);
    assert_int_equal(last.x.rank, 2);
    assert_int_equal(last.x.dims[1], 3);
    assert_int_equal(last.x.strides[0], 3);
    assert_int_equal(last.x.strides[1], 1);
    assert_int_equal(fig_array_bytes(&last.x), 24);
    assert_int_equal(last.y.dtype, FIG_BF16);
    assert_int_equal(last.y.bits, 16);
    assert_false(fig_array_is_present(&last.option));
    assert_false(fig_array_is_present(&last.optional_y));
    assert_null(last.stream);
}

static void an_option_whose_first_dim_is_0_is_left_out(void **state) {
    (void)state;
    fig_xla_host host;
    sound_call(&host);
    fig_xla_host_arg(&host, FIG_XLA_F32, NULL, FIG_XLA_HOST_DIMS(0));
    fig_xla_host_ret(&host, FIG_XLA_F32, NULL, FIG_XLA_HOST_DIMS(0, 4));
    fig_xla_host_call(&host);
    assert_int_equal(host.code, 0);
    assert_false(fig_array_is_present(&last.option));
    assert_false(fig_array_is_present(&last.optional_y));

    sound_call(&host);
    fig_xla_host_arg(&host, FIG_XLA_S64, x, FIG_XLA_HOST_DIMS(1));
    fig_xla_host_ret(&host, FIG_XLA_F16, y, FIG_XLA_HOST_DIMS(2));
    fig_xla_host_call(&host);
    assert_int_equal(host.code, 0);
    assert_int_equal(last.option.dtype, FIG_I64);
    assert_int_equal(last.optional_y.dtype, FIG_F16);
}

static void a_call_must_have_its_number_of_arguments(void **state) {
    (void)state;
    fig_xla_host host;
    sound_call(&host);
    host.arg_count = 0;
    expect_refusal(&host, "0 arguments, the one of number 0, x, is missing");
    sound_call(&host);
    host.ret_count = 0;
    expect_refusal(&host, "0 results, the one of number 0, y, is missing");
    sound_call(&host);
    for (int i = 0; i < 2; i++)
        fig_xla_host_arg(&host, FIG_XLA_F32, x, FIG_XLA_HOST_DIMS(6));
    expect_refusal(&host, "3 arguments, it takes 2");
    sound_call(&host);
    for (int i = 0; i < 2; i++)
        fig_xla_host_ret(&host, FIG_XLA_F32, x, FIG_XLA_HOST_DIMS(6));
    expect_refusal(&host, "3 results, it has 2");
}

static void arguments_that_are_not_buffers_are_refused(void **state) {
    (void)state;
    fig_xla_host host;
    sound_call(&host);
    host.args[0].kind = 2;
    expect_refusal(&host, "argument x is no buffer");
    sound_call(&host);
    host.rets[0].kind = 2;
    expect_refusal(&host, "result y is no buffer");
    sound_call(&host);
    host.args[0].buffer.rank = FIG_ARRAY_RANK_LIMIT + 1;
    expect_refusal(&host, "x has 9 dims, at most 8 are taken");
    sound_call(&host);
    host.args[0].buffer.data = NULL;
    expect_refusal(&host, "x has no memory");
    sound_call(&host);
    /* their product is 6, like that of the valid dims 2 and 3 */
    host.args[0].dims[0] = -2, host.args[0].dims[1] = -3;
    expect_refusal(&host, "x: dim 0 is -2");
    sound_call(&host);
    host.args[0].dims[0] = host.args[0].dims[1] = INT64_C(1) << 32;
    expect_refusal(&host, "x has more bytes than can be counted");
}

static void memory_is_asked_for_only_to_execute(void **state) {
    (void)state;
    fig_xla_host host;
    sound_call(&host);
    host.args[0].buffer.data = NULL;
    host.stage = FIG_XLA_INITIALIZE;
    fig_xla_host_call(&host);
    assert_int_equal(host.code, 0);
}

static void an_unknown_type_is_reported_by_number(void **state) {
    (void)state;
    fig_xla_host host;
    sound_call(&host);
    host.args[0].buffer.type = 15; /* a complex type */
    fig_xla_host_call(&host);
    assert_int_equal(host.code, 0);
    assert_int_equal(last.x.dtype, 0);
    assert_string_equal(last.x.type, "XLA's type 15");
}

static void attributes_are_found_by_whole_names(void **state) {
    (void)state;
    fig_xla_host host;
    sound_call(&host);
    fig_xla_host_real(&host, "factor", 2.25);
    fig_xla_host_call(&host);
    assert_int_equal(host.code, 0);
    assert_int_equal(last.count, 3);
    assert_true(last.factor == 2.25);

    sound_call(&host);
    fig_xla_host_call(&host);
    assert_true(last.factor == 0.5);
}

static void attributes_that_are_missing_or_too_many_are_refused(void **state) {
    (void)state;
    fig_xla_host host;
    sound_call(&host);
    host.attribute_count = 0;
    expect_refusal(&host, "attribute count is missing");
    sound_call(&host);
    fig_xla_host_real(&host, "facto", 1);
    expect_refusal(&host, "there is no attribute facto");
    sound_call(&host);
    fig_xla_host_real(&host, "zzz", 1);
    expect_refusal(&host, "there is no attribute zzz");
}

static void numbers_of_every_type_are_taken(void **state) {
    (void)state;
    static const fig_xla_type integers[] = {FIG_XLA_S8,  FIG_XLA_S16, FIG_XLA_S32,
                                            FIG_XLA_S64, FIG_XLA_U8,  FIG_XLA_U16,
                                            FIG_XLA_U32, FIG_XLA_U64, FIG_XLA_PRED};
    fig_xla_host host;
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        sound_call(&host);
        host.attributes[0].type = (int)integers[i];
        host.attributes[0].integer = 1;
        fig_xla_host_integer(&host, "factor", 1);
        host.attributes[1].type = (int)integers[i];
        fig_xla_host_call(&host);
        assert_int_equal(host.code, 0);
        assert_int_equal(last.count, 1);
        assert_true(last.factor == 1);
    }
    sound_call(&host);
    host.attributes[0].type = FIG_XLA_S8;
    host.attributes[0].integer = -2;
    fig_xla_host_call(&host);
    assert_int_equal(last.count, -2);
    sound_call(&host);
    fig_xla_host_real(&host, "factor", 0);
    host.attributes[1].type = FIG_XLA_F32;
    host.attributes[1].narrow = 1.5f;
    fig_xla_host_call(&host);
    assert_true(last.factor == 1.5);
}

static void attributes_of_another_kind_are_refused(void **state) {
    (void)state;
    fig_xla_host host;
    sound_call(&host);
    host.attributes[0].type = FIG_XLA_F64;
    expect_refusal(&host, "attribute count must be an integer or a bool");
    sound_call(&host);
    fig_xla_host_text(&host, "factor", "2");
    expect_refusal(&host, "attribute factor must be a number");
}

static void a_runtime_that_tells_no_device_leaves_it_open(void **state) {
    (void)state;
    fig_xla_host host;
    sound_call(&host);
    host.handler = on_cuda;
    host.stream = &host;
    host.ordinal = 3;
    fig_xla_host_call(&host);
    assert_int_equal(host.code, 0);
    assert_int_equal(last.ordinal, 3);
    assert_int_equal(last.x.ordinal, 3);
    assert_ptr_equal(last.stream, &host);

    sound_call(&host);
    host.handler = on_cuda;
    host.stream = &host;
    host.ordinal = -1; /* API 0.1: the function table ends before the device ordinal */
    fig_xla_host_call(&host);
    assert_int_equal(host.code, 0);
    assert_int_equal(last.ordinal, -1);
}

static void without_a_stream_a_cuda_handler_refuses(void **state) {
    (void)state;
    fig_xla_host host;
    sound_call(&host);
    host.handler = on_cuda;
    fig_xla_host_call(&host);
    assert_int_equal(host.code, FIG_XLA_FAILED_PRECONDITION);
    assert_non_null(strstr(host.message, "XLA gives no stream"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_query_is_answered_without_a_table),
        cmocka_unit_test(another_extension_is_no_query),
        cmocka_unit_test(buffers_become_arrays),
        cmocka_unit_test(an_option_whose_first_dim_is_0_is_left_out),
        cmocka_unit_test(a_call_must_have_its_number_of_arguments),
        cmocka_unit_test(arguments_that_are_not_buffers_are_refused),
        cmocka_unit_test(memory_is_asked_for_only_to_execute),
        cmocka_unit_test(an_unknown_type_is_reported_by_number),
        cmocka_unit_test(attributes_are_found_by_whole_names),
        cmocka_unit_test(attributes_that_are_missing_or_too_many_are_refused),
        cmocka_unit_test(numbers_of_every_type_are_taken),
        cmocka_unit_test(attributes_of_another_kind_are_refused),
        cmocka_unit_test(a_runtime_that_tells_no_device_leaves_it_open),
        cmocka_unit_test(without_a_stream_a_cuda_handler_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
