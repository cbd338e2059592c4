/* test_tvm_call.c: tests the reader of TVM FFI's packed arguments, and the errors that it raises.
 *
 * The library looks in the process for two functions of libtvm_ffi; this program defines them
 * itself. */
#include "ffi/tvm/tvm_call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "planner/status.h"

static char raised_kind[32], raised[640];
static int32_t asked_device, asked_ordinal;
static int stream;

FIG_API void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
FIG_API void *TVMFFIEnvGetStream(int32_t device, int32_t ordinal);

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
    snprintf(raised_kind, sizeof raised_kind, "%s", kind);
    snprintf(raised, sizeof raised, "%s", message);
}

void *TVMFFIEnvGetStream(int32_t device, int32_t ordinal) {
    asked_device = device;
    asked_ordinal = ordinal;
    return &stream;
}

typedef struct object { /* the layout of a tensor object in libtvm_ffi */
    char header[FIG_TVM_OBJECT_HEADER];
    fig_dl_tensor tensor;
} object;

static float memory[24];
static int64_t dims[] = {2, 3, 4}, strides[] = {24, 4, 1};

static fig_dl_tensor tensor_f32(void) {
    return (fig_dl_tensor){.data = memory,
                           .device = FIG_DL_CPU,
                           .rank = 3,
                           .code = FIG_DL_FLOAT,
                           .bits = 32,
                           .lanes = 1,
                           .dims = dims};
}

static fig_tvm_value value_of(fig_dl_tensor *tensor) {
    return (fig_tvm_value){.kind = FIG_TVM_TENSOR_POINTER, .as.pointer = tensor};
}

static fig_tvm_call begin(const fig_tvm_value *args, int32_t count, const char *names) {
    fig_tvm_call call = {.name = "scale", .args = args, .count = count};
    fig_tvm_call_begin(&call, names);
    return call;
}

static fig_array read_one(fig_dl_tensor *tensor, fig_status *status) {
    const fig_tvm_value value = value_of(tensor);
    fig_tvm_call call = begin(&value, 1, "x");
    fig_array array;
    fig_tvm_call_array(&call, "x", &array);
    *status = call.status;
    return array;
}

static fig_array read_sound(fig_dl_tensor *tensor) {
    fig_status status;
    const fig_array array = read_one(tensor, &status);
    assert_int_equal(status, FIG_OK);
    return array;
}

static void expect_message(const char *words) {
    if (strstr(fig_message(), words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, fig_message());
}

static void a_tensor_comes_by_address_or_as_an_object(void **state) {
    (void)state;
    object o = {.tensor = tensor_f32()};
    const fig_tvm_value values[] = {value_of(&o.tensor),
                                    {.kind = FIG_TVM_TENSOR_OBJECT, .as.pointer = &o}};
    fig_tvm_call call = begin(values, 2, "a, b");
    fig_array a, b;
    fig_tvm_call_array(&call, "a", &a);
    fig_tvm_call_array(&call, "b", &b);
    assert_int_equal(call.status, FIG_OK);
    assert_ptr_equal(a.data, memory);
    assert_ptr_equal(b.data, memory);
    assert_int_equal(b.dtype, FIG_F32);
    assert_int_equal(b.rank, 3);
    assert_int_equal(b.dims[2], 4);
}

static void strides_that_are_not_given_are_row_major(void **state) {
    (void)state;
    fig_dl_tensor t = tensor_f32();
    const fig_array array = read_sound(&t);
    assert_int_equal(array.strides[0], 12);
    assert_int_equal(array.strides[1], 4);
    assert_int_equal(array.strides[2], 1);
    assert_int_equal(fig_array_check_dense(&array), FIG_OK);
}

static void strides_that_are_given_are_kept(void **state) {
    (void)state;
    fig_dl_tensor t = tensor_f32();
    t.strides = strides;
    const fig_array array = read_sound(&t);
    assert_int_equal(array.strides[0], 24);
    assert_int_equal(fig_array_check_dense(&array), FIG_INVALID);
    assert_int_equal(fig_array_check_rows(&array), FIG_OK);
    assert_int_equal(fig_array_span(&array), 4 * (24 + 12));
}

static void the_stride_of_a_dim_of_one_does_not_matter(void **state) {
    (void)state;
    int64_t one[] = {1, 3, 4}, wild[] = {-77, 4, 1};
    fig_dl_tensor t = tensor_f32();
    t.dims = one;
    t.strides = wild;
    const fig_array array = read_sound(&t);
    assert_int_equal(fig_array_check_dense(&array), FIG_OK);
    assert_int_equal(fig_array_span(&array), 48);
}

static void an_offset_in_bytes_is_added(void **state) {
    (void)state;
    fig_dl_tensor t = tensor_f32();
    t.byte_offset = 8;
    assert_ptr_equal(read_sound(&t).data, memory + 2);
}

static void no_elements_need_no_memory(void **state) {
    (void)state;
    fig_status status;
    int64_t none[] = {2, 0, 4};
    fig_dl_tensor t = tensor_f32();
    t.data = NULL;
    t.byte_offset = 64;
    read_one(&t, &status);
    assert_int_equal(status, FIG_INVALID);
    expect_message("x has no memory");
    t.dims = none;
    assert_null(read_sound(&t).data);
}

static void types_have_the_names_of_python(void **state) {
    (void)state;
    static const struct {
        uint8_t code, bits;
        uint16_t lanes;
        fig_dtype dtype;
        const char *name;
    } types[] = {{FIG_DL_FLOAT, 16, 1, FIG_F16, "float16"},
                 {FIG_DL_BFLOAT, 16, 1, FIG_BF16, "bfloat16"},
                 {FIG_DL_E4M3FN, 8, 1, FIG_E4M3, "float8_e4m3fn"},
                 {FIG_DL_E5M2, 8, 1, FIG_E5M2, "float8_e5m2"},
                 {FIG_DL_INT, 32, 1, FIG_I32, "int32"},
                 {FIG_DL_INT, 64, 1, FIG_I64, "int64"},
                 {FIG_DL_UINT, 8, 1, 0, "uint8"},
                 {FIG_DL_FLOAT, 64, 1, 0, "float64"},
                 {FIG_DL_FLOAT, 32, 2, 0, "DLPack type 2/32/2"},
                 {FIG_DL_COMPLEX, 64, 1, 0, "DLPack type 5/64/1"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        fig_dl_tensor t = tensor_f32();
        t.code = types[i].code, t.bits = types[i].bits, t.lanes = types[i].lanes;
        const fig_array array = read_sound(&t);
        assert_int_equal(array.dtype, types[i].dtype);
        assert_string_equal(array.type, types[i].name);
        assert_int_equal(array.bits, types[i].bits * types[i].lanes);
    }
}

static void broken_tensors_are_refused(void **state) {
    (void)state;
    int64_t many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, below[] = {2, -3, 4}, back[] = {12, -4, 1};
    fig_status status;
    fig_dl_tensor t = tensor_f32();
    t.rank = 9, t.dims = many;
    read_one(&t, &status);
    expect_message("x has 9 dims, at most 8 are taken");
    t = tensor_f32(), t.dims = below;
    read_one(&t, &status);
    expect_message("x: dim 1 is -3");
    t = tensor_f32(), t.strides = back;
    read_one(&t, &status);
    expect_message("x: stride 1 is -4");
    /* the address would wrap to 8 bytes in front of the memory */
    t = tensor_f32(), t.byte_offset = UINT64_MAX - 7;
    read_one(&t, &status);
    assert_int_equal(status, FIG_INVALID);
    expect_message("x: byte_offset is 18446744073709551608, past the last address");
    t = tensor_f32(), t.byte_offset = UINTPTR_MAX - (uintptr_t)memory - 96;
    read_one(&t, &status);
    assert_int_equal(status, FIG_OK);
    t.byte_offset += 1;
    read_one(&t, &status);
    expect_message("x: 96 bytes at 0xffffffffffffffa0 end behind the last address");
    t = tensor_f32(), t.device = 10;
    read_one(&t, &status);
    expect_message("x is on a device of DLPack's type 10, it must be cpu or cuda");
    assert_int_equal(status, FIG_INVALID);
}

static void a_tensor_of_more_bytes_than_can_be_counted_is_refused(void **state) {
    (void)state;
    const int64_t many = INT64_C(1) << 32;
    int64_t counted[] = {1 << 16, many, 1 << 10}, wrapped[] = {many, many, 1};
    fig_status status;
    fig_dl_tensor t = tensor_f32();
    t.dims = counted;
    const fig_array array = read_sound(&t);
    assert_int_equal(fig_array_check_dense(&array), FIG_OK);
    t.dims = wrapped;
    read_one(&t, &status);
    assert_int_equal(status, FIG_INVALID);
    expect_message("x has more bytes than can be counted");
}

static void an_option_may_be_none_or_empty(void **state) {
    (void)state;
    int64_t none[] = {0};
    fig_dl_tensor empty = {
        .device = FIG_DL_CPU, .rank = 1, .code = 2, .bits = 32, .lanes = 1, .dims = none};
    fig_dl_tensor full = tensor_f32();
    const fig_tvm_value values[] = {{.kind = FIG_TVM_NONE}, value_of(&empty), value_of(&full)};
    fig_tvm_call call = begin(values, 3, "a, b, c");
    fig_array a, b, c;
    fig_tvm_call_option(&call, "a", &a);
    fig_tvm_call_option(&call, "b", &b);
    fig_tvm_call_option(&call, "c", &c);
    assert_int_equal(call.status, FIG_OK);
    assert_false(fig_array_is_present(&a));
    assert_false(fig_array_is_present(&b));
    assert_true(fig_array_is_present(&c));
}

static void integers_and_booleans_are_accepted_for_each_other(void **state) {
    (void)state;
    const fig_tvm_value values[] = {{.kind = FIG_TVM_INT, .as.integer = 3},
                                    {.kind = FIG_TVM_BOOL, .as.integer = 1},
                                    {.kind = FIG_TVM_INT, .as.integer = 3},
                                    {.kind = FIG_TVM_BOOL, .as.integer = 1},
                                    {.kind = FIG_TVM_FLOAT, .as.real = 0.5}};
    fig_tvm_call call = begin(values, 5, "a, b, c, d, e");
    assert_int_equal(fig_tvm_call_integer(&call, "a"), 3);
    assert_int_equal(fig_tvm_call_integer(&call, "b"), 1);
    assert_true(fig_tvm_call_real(&call, "c") == 3.0);
    assert_true(fig_tvm_call_real(&call, "d") == 1.0);
    assert_true(fig_tvm_call_real(&call, "e") == 0.5);
    assert_int_equal(call.status, FIG_OK);
}

static void expect_raised(const fig_tvm_call *call, const char *kind, const char *sentence) {
    assert_int_equal(fig_tvm_call_finish(call, call->status), -1);
    assert_string_equal(raised_kind, kind);
    assert_string_equal(raised, sentence);
}

static void a_wrong_kind_is_a_type_error(void **state) {
    (void)state;
    fig_dl_tensor t = tensor_f32();
    fig_array array;
    const fig_tvm_value number = {.kind = FIG_TVM_FLOAT, .as.real = 1}, none = {0};
    const fig_tvm_value tensor = value_of(&t), text = {.kind = 8};
    fig_tvm_call call = begin(&none, 1, "x");
    fig_tvm_call_array(&call, "x", &array);
    expect_raised(&call, "TypeError", "scale: x is None, it must be a tensor");
    call = begin(&number, 1, "x");
    fig_tvm_call_option(&call, "x", &array);
    expect_raised(&call, "TypeError", "scale: x is a float, it must be a tensor or None");
    call = begin(&number, 1, "n");
    assert_int_equal(fig_tvm_call_integer(&call, "n"), 0);
    expect_raised(&call, "TypeError", "scale: n is a float, it must be an int or a bool");
    call = begin(&tensor, 1, "n");
    assert_true(fig_tvm_call_real(&call, "n") == 0);
    expect_raised(&call, "TypeError", "scale: n is a tensor, it must be a number");
    call = begin(&text, 1, "n");
    fig_tvm_call_real(&call, "n");
    expect_raised(&call, "TypeError", "scale: n is no tensor and no number, it must be a number");
}

static void a_wrong_count_of_arguments_is_refused(void **state) {
    (void)state;
    fig_array array;
    fig_tvm_call call = begin(NULL, 0, "out, input");
    fig_tvm_call_array(&call, "out", &array); /* there is no argument left to read */
    assert_int_equal(fig_tvm_call_integer(&call, "n"), 0);
    expect_raised(&call, "TypeError", "scale: 0 arguments, it takes 2: out, input");
}

static void arguments_behind_the_bracket_may_be_left_out(void **state) {
    (void)state;
    static const fig_tvm_value values[] = {{.kind = FIG_TVM_INT, .as.integer = 3},
                                           {.kind = FIG_TVM_NONE},
                                           {.kind = FIG_TVM_INT, .as.integer = 5},
                                           {.kind = FIG_TVM_NONE}};
    for (int32_t count = 0; count <= 4; count++) {
        fig_array array;
        fig_tvm_call call = begin(values, count, "a[, b, c]");
        if (count == 0) expect_message("0 arguments, it takes 1 to 3: a[, b, c]");
        if (count == 4) expect_message("4 arguments, it takes 1 to 3: a[, b, c]");
        assert_int_equal(call.status == FIG_OK, count > 0 && count < 4);
        if (call.status != FIG_OK) continue;
        assert_int_equal(fig_tvm_call_integer_or(&call, "a", 7), 3);
        assert_int_equal(fig_tvm_call_integer_or(&call, "b", 7), 7);
        if (count == 3) assert_int_equal(fig_tvm_call_integer_or(&call, "c", 7), 5);
        if (count < 3) fig_tvm_call_option(&call, "c", &array);
        if (count < 3) assert_false(fig_array_is_present(&array));
        assert_int_equal(call.status, FIG_OK);
    }
    const fig_tvm_value real = {.kind = FIG_TVM_FLOAT, .as.real = 1};
    fig_tvm_call call = begin(&real, 1, "[a]");
    assert_int_equal(fig_tvm_call_integer_or(&call, "a", 7), 0);
    expect_message("a is a float, it must be an int");
    assert_int_equal(fig_tvm_call_integer_or(&call, "a", 7), 0); /* the first fault is kept */
}

static void the_first_fault_is_the_one_that_is_reported(void **state) {
    (void)state;
    const fig_tvm_value values[] = {{0}, {0}};
    fig_array a, b;
    fig_tvm_call call = begin(values, 2, "a, b");
    fig_tvm_call_array(&call, "a", &a);
    fig_tvm_call_array(&call, "b", &b);
    expect_raised(&call, "TypeError", "scale: a is None, it must be a tensor");
    assert_false(fig_array_is_present(&b));
}

static void other_faults_are_value_and_runtime_errors(void **state) {
    (void)state;
    fig_tvm_call call = begin(NULL, 0, "");
    call.status = fig_fail(FIG_INVALID, "a is odd");
    expect_raised(&call, "ValueError", "scale: a is odd");
    call.status = fig_fail(FIG_NOMEM, "no memory");
    expect_raised(&call, "RuntimeError", "scale: no memory");
    assert_int_equal(fig_tvm_call_finish(&call, FIG_OK), 0);
}

static void arrays_of_two_devices_are_refused(void **state) {
    (void)state;
    fig_dl_tensor here = tensor_f32(), there = tensor_f32();
    there.device = FIG_DL_CUDA, there.ordinal = 1;
    const fig_tvm_value values[] = {value_of(&here), value_of(&there)};
    fig_array a, b;
    fig_tvm_call call = begin(values, 2, "a, b");
    fig_tvm_call_array(&call, "a", &a);
    fig_tvm_call_array(&call, "b", &b);
    expect_raised(&call, "ValueError", "scale: b is on GPU 1, a is on the CPU");
}

static void the_stream_is_the_one_of_the_environment(void **state) {
    (void)state;
    fig_dl_tensor t = tensor_f32();
    fig_array array;
    fig_tvm_value value = value_of(&t);
    fig_tvm_call call = begin(&value, 1, "x");
    asked_device = 0;
    fig_tvm_call_array(&call, "x", &array);
    assert_null(fig_tvm_call_stream(&call)); /* for a CPU the library asks for no stream */
    assert_int_equal(asked_device, 0);
    t.device = FIG_DL_CUDA, t.ordinal = 2;
    call = begin(&value, 1, "x");
    fig_tvm_call_array(&call, "x", &array);
    assert_ptr_equal(fig_tvm_call_stream(&call), &stream);
    assert_int_equal(asked_device, FIG_DL_CUDA);
    assert_int_equal(asked_ordinal, 2);
}

static void a_stream_that_is_given_goes_before_the_environments(void **state) {
    (void)state;
    int other;
    void *const streams[] = {&other, NULL}; /* NULL: the default stream */
    fig_dl_tensor t = tensor_f32();
    fig_array array;
    const fig_tvm_value value = value_of(&t);
    t.device = FIG_DL_CUDA;
    for (int i = 0; i < 2; i++) {
        fig_tvm_call call = {.name = "scale", .args = &value, .count = 1, .stream = &streams[i]};
        fig_tvm_call_begin(&call, "x");
        fig_tvm_call_array(&call, "x", &array);
        assert_ptr_equal(fig_tvm_call_stream(&call), streams[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_comes_by_address_or_as_an_object),
        cmocka_unit_test(strides_that_are_not_given_are_row_major),
        cmocka_unit_test(strides_that_are_given_are_kept),
        cmocka_unit_test(the_stride_of_a_dim_of_one_does_not_matter),
        cmocka_unit_test(an_offset_in_bytes_is_added),
        cmocka_unit_test(no_elements_need_no_memory),
        cmocka_unit_test(types_have_the_names_of_python),
        cmocka_unit_test(broken_tensors_are_refused),
        cmocka_unit_test(a_tensor_of_more_bytes_than_can_be_counted_is_refused),
        cmocka_unit_test(an_option_may_be_none_or_empty),
        cmocka_unit_test(integers_and_booleans_are_accepted_for_each_other),
        cmocka_unit_test(a_wrong_kind_is_a_type_error),
        cmocka_unit_test(a_wrong_count_of_arguments_is_refused),
        cmocka_unit_test(arguments_behind_the_bracket_may_be_left_out),
        cmocka_unit_test(the_first_fault_is_the_one_that_is_reported),
        cmocka_unit_test(other_faults_are_value_and_runtime_errors),
        cmocka_unit_test(arrays_of_two_devices_are_refused),
        cmocka_unit_test(the_stream_is_the_one_of_the_environment),
        cmocka_unit_test(a_stream_that_is_given_goes_before_the_environments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
