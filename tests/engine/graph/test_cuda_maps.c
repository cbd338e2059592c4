/* test_cuda_maps.c: tests that the params of a launch get the tensor maps that the recipes of its
 * family describe.
 *
 * Compiles cuda_maps.c over a kernel table of this test, in which the params of the gated
 * activation hold two maps, and one of its two families makes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/table/families.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/driver/fake_graph.h"

typedef struct mapped_params {
    uint64_t address;
    uint8_t padding[56];
    fig_tensor_map maps[2];
} mapped_params;

static const fig_field fields[] = {
    {"address", 0, 8, FIG_FIELD_ADDRESS, FIG_TYPE_ADDRESS, 0, 0, 1},
    {"k_map", 64, 128, FIG_FIELD_TENSOR_MAP, FIG_TYPE_TENSOR_MAP, 0, 0, 1},
    {"v_map", 192, 128, FIG_FIELD_TENSOR_MAP, FIG_TYPE_TENSOR_MAP, 0, 1, 1},
};
static const fig_kernel test_table[FIG_OP_KERNEL_COUNT] = {
    [FIG_OP_GATED] = {.name = "gated", .fields = fields, .field_count = 3}};

#define fig_kernel_table test_table
#define fig_cuda_maps_fill fill_maps
#include "engine/graph/cuda_maps.c"
#undef fig_kernel_table

#define recipe_count 4
static const struct {
    uint32_t dtype, type, swizzle_bytes, swizzle;
} kinds[recipe_count] = {{FIG_BF16, FIG_CU_TENSOR_BF16, 128, 3},
                         {FIG_F16, FIG_CU_TENSOR_F16, 64, 2},
                         {FIG_F32, FIG_CU_TENSOR_F32, 32, 1},
                         {FIG_E4M3, FIG_CU_TENSOR_U8, 0, 0}};
static size_t kind;

static void map(const void *params, uint32_t item, fig_tensor_map_recipe *recipe) {
    const mapped_params *p = params;
    *recipe = (fig_tensor_map_recipe){.address = p->address + 4096 * item,
                                      .dtype = kinds[kind].dtype,
                                      .rank = 3,
                                      .dims = {128, 16, 7},
                                      .strides_bytes = {0, 256, 4096},
                                      .box = {64, 16, 1},
                                      .swizzle_bytes = kinds[kind].swizzle_bytes};
}

/* Family 0 has maps, family 1 has none. */
const fig_family *__real_fig_table_families(fig_op op, uint32_t *count);
const fig_family *__wrap_fig_table_families(fig_op op, uint32_t *count);
const fig_family *__wrap_fig_table_families(fig_op op, uint32_t *count) {
    static const fig_family families[] = {{.name = "mapped", .map = map}, {.name = "plain"}};
    if (op != FIG_OP_GATED) return __real_fig_table_families(op, count);
    *count = 2;
    return families;
}

static fig_cuda_gpu gpu_of_fake(void) {
    return (fig_cuda_gpu){.cu = fig_cuda_api_table(), .context = fig_fake_cuda_foreign()};
}

static void each_map_is_what_its_recipe_says(void **state) {
    (void)state;
    fig_cuda_gpu gpu = gpu_of_fake();
    for (kind = 0; kind < recipe_count; kind++) {
        mapped_params params = {.address = 1 << 20};
        assert_int_equal(fill_maps(&gpu, FIG_OP_GATED, 0, (uint8_t *)&params), FIG_OK);
        for (uint32_t i = 0; i < 2; i++) {
            const fig_fake_tensor_map expected = {.address = (1 << 20) + 4096 * i,
                                                  .dims = {128, 16, 7},
                                                  .strides_bytes = {0, 256, 4096},
                                                  .box = {64, 16, 1},
                                                  .type = (uint16_t)kinds[kind].type,
                                                  .rank = 3,
                                                  .swizzle = (uint16_t)kinds[kind].swizzle};
            assert_memory_equal(&params.maps[i], &expected, sizeof expected);
        }
        assert_int_equal(params.address, 1 << 20);
    }
    kind = 0;
}

static void a_family_without_maps_leaves_params_as_they_are(void **state) {
    (void)state;
    fig_cuda_gpu gpu = gpu_of_fake();
    const mapped_params before = {.address = 4096};
    mapped_params params = before;
    assert_int_equal(fill_maps(&gpu, FIG_OP_GATED, 1, (uint8_t *)&params), FIG_OK);
    assert_memory_equal(&params, &before, sizeof params);
    assert_int_equal(fig_cuda_bench_fake->maps, 0);
}

static void a_map_that_the_driver_refuses_is_named(void **state) {
    (void)state;
    fig_cuda_gpu gpu = gpu_of_fake();
    mapped_params params = {.address = 8};
    assert_int_equal(fill_maps(&gpu, FIG_OP_GATED, 0, (uint8_t *)&params), FIG_DRIVER);
    assert_non_null(strstr(fig_message(), "cuTensorMapEncodeTiled"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(each_map_is_what_its_recipe_says),
        FIG_CUDA_BENCH_TEST(a_family_without_maps_leaves_params_as_they_are),
        FIG_CUDA_BENCH_TEST(a_map_that_the_driver_refuses_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
