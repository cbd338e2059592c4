/* wide_attention.cu: computes attention of rows with many query tokens, on warpgroups.
 *
 *     out[i][h] = sum over the tokens t that query i sees of softmax(l[i][h])[t] * v[t]
 *     l[i][h][t] = cap(q[i][h] . k[t] * sm_scale)
 *
 * One block is one worker of the plan (planner/plans/strips.h) and processes its items in order.
 * One warpgroup loads: one of its warps loads tiles of K and V, the others load the queries
 * (wide_feed.cuh). Two warpgroups multiply the same tiles, by 64 query vectors each
 * (wide_multiply.cuh). If several blocks share a strip, their warps exchange partials and merge
 * them (wide_leave.cuh). If a vector belongs to shared strips, the warpgroup with the row's own
 * tokens merges its results when it has no more items (wide_rows.cuh), or the warp that ends the
 * last of them does (wide_slots.cuh). Premises: fig_prompt_attention_wide_refuses() returns NULL,
 * and the launch has one block per worker of the plan. */
#include "kernels/wide/wide_feed.cuh"
#include "kernels/wide/wide_multiply.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Registers per thread. Together the 12 warps use no more than the 168 per thread that they start
 * with. */
enum { FEED_REGISTERS = 40, MULTIPLY_REGISTERS = 232 };

static_assert(FIG_WIDE_ASKERS == FIG_WIDE_GROUP_WARPS - 1, "one warp loads tiles");

template <class form>
static __device__ __forceinline__ void attend(const fig_prompt_attention_params &p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const int32_t warp = fig_block_warp(), group = warp / FIG_WIDE_GROUP_WARPS;
    const fig_wide_memory<form> memory = {
        fig_fragment_shared(shared),
        (fig_wide_state<form::STAGES> *)(void *)(shared + form::STATE)};
    static_assert(sizeof(*memory.state) <= FIG_WIDE_STATE_BYTES, "the state's room");
    if (fig_wide_is_idle(p)) return;
    if (threadIdx.x == 0) fig_wide_init<form>(memory);
    __syncthreads();
    if (!fig_wide_is_early(p)) fig_block_wait();
    fig_block_trigger();
    if (group == 0) {
        fig_wide_keep_registers<FEED_REGISTERS>();
        const fig_wide_stretch stretch = fig_wide_stretch_of(p);
        if (warp == 0) fig_wide_feed_cache<form>(p, memory, stretch);
        if (warp > 0) fig_wide_feed_queries<form>(p, memory, stretch, warp - 1);
    } else {
        fig_wide_take_registers<MULTIPLY_REGISTERS>();
        fig_wide_multiply<form>(p, memory, group - 1);
    }
}

#define INSTANCE(name, type, dims)                                                                 \
    extern "C" __global__ void __launch_bounds__(FIG_WIDE_WARPS *FIG_BLOCK_WARP, 1)                \
        fig_kernel_wide_attention_##name##_##dims(                                                 \
            const __grid_constant__ fig_prompt_attention_params p) {                               \
        attend<fig_wide_form<type, dims>>(p);                                                      \
    }
#define INSTANCES(name, type)                                                                      \
    INSTANCE(name, type, 64)                                                                       \
    INSTANCE(name, type, 96)                                                                       \
    INSTANCE(name, type, 128)                                                                      \
    INSTANCE(name, type, 256)
INSTANCES(bf16, FIG_BF16)
INSTANCES(f16, FIG_F16)

#endif
