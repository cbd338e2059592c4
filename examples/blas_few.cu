/* blas_few.cu: computes y = scale * x w' for an x of few rows, as fast as memory delivers w.
 *
 * There is one block per SM; blas_few_params.h says how a product is divided among blocks. One
 * thread fills a ring of slots by bulk copies. Eight warps multiply on tensor cores, with x as the
 * left operand and a unit of w as the right one. In each step, two warps have the same part of the
 * depth and share the units. The parts are added up in shared memory once per group, always in the
 * same order. A block starts as soon as a block of the previous launch ends. It fills its ring
 * while the other blocks, and all launches in between, still run. Invariant: before those launches
 * have ended, a block reads only weights; it reads x and writes y afterwards. */
#include <cuda_bf16.h>

#include "examples/blas_few_params.h"

enum {
    SHARES = BLAS_FEW_WARPS / BLAS_FEW_PARTS, /* warps that share the units of one part */
    OWN = (BLAS_FEW_GROUP_LIMIT + SHARES - 1) / SHARES,
    READERS = 32 * BLAS_FEW_WARPS
};

/* ---- Instructions -------------------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t shared_of(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

static __device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_of(barrier)), "r"(count));
}

static __device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(
                     shared_of(barrier)),
                 "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier) {
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_of(barrier))
        : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity) {
    uint32_t passed = 0;
    while (!passed)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2, 0x989680;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(passed)
                     : "r"(shared_of(barrier)), "r"(parity)
                     : "memory");
}

/* Copies a piece of one unit, or of all units, beginning at `row`. */
static __device__ __forceinline__ void copy_piece(uint32_t to, const blas_few_map *map,
                                                  int32_t piece, int32_t row, uint64_t *barrier,
                                                  uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(piece * BLAS_FEW_PIECE), "r"(row), "r"(shared_of(barrier)),
                 "l"(policy)
                 : "memory");
}

/* Loads four blocks of 8 rows and 16 bytes. Lane 8b + r gives the address of row r of block b. */
static __device__ __forceinline__ void fragment_load(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

/* Multiplies 16 rows of x (`upper` and `lower`, 8 each) by 8 rows of w over 16 numbers of the
 * depth, and adds the products to sums. */
static __device__ __forceinline__ void multiply(float (&sums)[4], const uint32_t *upper,
                                                const uint32_t *lower, const uint32_t *w) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(upper[0]), "r"(lower[0]), "r"(upper[1]), "r"(lower[1]), "r"(w[0]), "r"(w[1]));
}

/* ---- A block's way through its units ------------------------------------------------------- */

/* A step of a group, and the slot that holds its data. */
typedef struct place {
    int32_t first, count; /* the block's units */
    int32_t group, unit, units, step, slot, round;
} place;

static __device__ __forceinline__ void enter_group(const blas_few_params &p, place *at) {
    at->unit = at->first + at->count * at->group / p.groups;
    at->units = at->first + at->count * (at->group + 1) / p.groups - at->unit;
}

static __device__ __forceinline__ place place_first(const blas_few_params &p) {
    const int32_t block = (int32_t)blockIdx.x, has_more = block < p.more;
    place at = {0};
    at.first = block * p.each + (has_more ? block : p.more);
    at.count = p.each + has_more;
    enter_group(p, &at);
    return at;
}

static __device__ __forceinline__ void advance(const blas_few_params &p, place *at) {
    if (++at->slot == p.slots) at->slot = 0, at->round++;
    if (++at->step < p.steps) return;
    at->step = 0;
    at->group++;
    enter_group(p, at);
}

/* ---- Filling ------------------------------------------------------------------------------- */

typedef struct ring {
    uint32_t slots; /* [slots][pieces][x, then units] */
    uint64_t *full, *empty;
    int32_t piece_bytes; /* the size of one piece of x and of all units */
    uint64_t once, kept; /* L2 policies: `once` evicts weights first, `kept` evicts x last */
} ring;

static __device__ __forceinline__ const blas_few_map *map_of(const blas_few_params &p,
                                                             const place &at) {
    return at.units == p.group ? &p.w : &p.w_less;
}

static __device__ __forceinline__ void fill_weights(const blas_few_params &p, const ring &r,
                                                    const place &at, int32_t x_units) {
    uint64_t *full = &r.full[at.slot];
    barrier_expect(full, (uint32_t)(BLAS_FEW_PIECES * (at.units + x_units) * BLAS_FEW_PIECE_BYTES));
#pragma unroll
    for (int32_t i = 0; i < BLAS_FEW_PIECES; i++)
        copy_piece(r.slots + (at.slot * BLAS_FEW_PIECES + i) * r.piece_bytes +
                       x_units * BLAS_FEW_PIECE_BYTES,
                   map_of(p, at), at.step * BLAS_FEW_PIECES + i, at.unit * BLAS_FEW_UNIT, full,
                   r.once);
}

static __device__ __forceinline__ void fill_x(const blas_few_params &p, const ring &r,
                                              const place &at) {
#pragma unroll
    for (int32_t i = 0; i < BLAS_FEW_PIECES; i++)
        copy_piece(r.slots + (at.slot * BLAS_FEW_PIECES + i) * r.piece_bytes, &p.x,
                   at.step * BLAS_FEW_PIECES + i, 0, &r.full[at.slot], r.kept);
}

/* Fills the ring; one thread calls it. Later launches may start at once, because before their wait
 * they read nothing that a launch of this step writes. */
static __device__ __forceinline__ void fill(const blas_few_params &p, ring r, int32_t x_units) {
    const int32_t total = p.groups * p.steps, early = p.slots < total ? p.slots : total;
    place at = place_first(p), x_at = at;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(r.once));
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(r.kept));
    for (int32_t i = 0; i < early; i++, advance(p, &at))
        fill_weights(p, r, at, x_units);
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (int32_t i = 0; i < early; i++, advance(p, &x_at))
        fill_x(p, r, x_at);
    for (int32_t i = early; i < total; i++, advance(p, &at)) {
        barrier_wait(&r.empty[at.slot], (at.round - 1) & 1);
        fill_weights(p, r, at, x_units);
        fill_x(p, r, at);
    }
}

/* ---- Multiplying --------------------------------------------------------------------------- */

/* The sums of one warp for one group: one part of the depth and every SHARES-th unit. */
template <int32_t X> struct sums_of { float of[OWN][(X + 1) / 2][4]; };

template <int32_t X>
static __device__ __forceinline__ void add_step(sums_of<X> *sums, uint32_t from, int32_t share,
                                                int32_t units) {
    const uint32_t none[4] = {0, 0, 0, 0};
    uint32_t x[X][4], w[4];
#pragma unroll
    for (int32_t i = 0; i < X; i++)
        fragment_load(x[i], from + i * BLAS_FEW_PIECE_BYTES);
#pragma unroll
    for (int32_t i = 0; i < OWN; i++) {
        const int32_t unit = share + SHARES * i;
        if (unit >= units) continue;
        fragment_load(w, from + (X + unit) * BLAS_FEW_PIECE_BYTES);
#pragma unroll
        for (int32_t j = 0; j < (X + 1) / 2; j++) {
            const uint32_t *lower = 2 * j + 1 < X ? x[(2 * j + 1) % X] : none;
            multiply(sums->of[i][j], x[2 * j], lower, w);
            multiply(sums->of[i][j], x[2 * j] + 2, lower + 2, w + 2);
        }
    }
}

/* Writes a warp's sums to `parts` in shared memory, [BLAS_FEW_PARTS][8 X][BLAS_FEW_SUM_STRIDE]. */
template <int32_t X>
static __device__ __forceinline__ void write_part(const sums_of<X> &sums, float *parts,
                                                  int32_t part, int32_t share, int32_t units) {
    const int32_t lane = threadIdx.x % 32;
    float *own = parts + (part * 8 * X + lane / 4) * BLAS_FEW_SUM_STRIDE + lane % 4 * 2;
#pragma unroll
    for (int32_t i = 0; i < OWN; i++) {
        const int32_t unit = share + SHARES * i;
        if (unit >= units) continue;
#pragma unroll
        for (int32_t row = 0; row < X; row++) {
            const float *from = &sums.of[i][row / 2][row % 2 * 2];
            *(float2 *)(own + row * 8 * BLAS_FEW_SUM_STRIDE + unit * BLAS_FEW_UNIT) =
                make_float2(from[0], from[1]);
        }
    }
}

/* Adds up the parts and writes y. Each warp writes one row of y at a time. */
template <int32_t X>
static __device__ __forceinline__ void write_y(const blas_few_params &p, const float *parts,
                                               int32_t warp, int32_t unit, int32_t units) {
    const int32_t columns = units * BLAS_FEW_UNIT;
    for (int32_t row = warp; row < p.rows; row += BLAS_FEW_WARPS) {
        __nv_bfloat16 *y = (__nv_bfloat16 *)p.y + (int64_t)row * p.y_stride + unit * BLAS_FEW_UNIT;
        for (int32_t i = (int32_t)threadIdx.x % 32 * 2; i < columns; i += 64) {
            float2 sum = make_float2(0, 0);
#pragma unroll
            for (int32_t part = 0; part < BLAS_FEW_PARTS; part++) {
                const float2 more =
                    *(const float2 *)(parts + (part * 8 * X + row) * BLAS_FEW_SUM_STRIDE + i);
                sum.x += more.x;
                sum.y += more.y;
            }
            *(__nv_bfloat162 *)(y + i) = __floats2bfloat162_rn(p.scale * sum.x, p.scale * sum.y);
        }
    }
}

static __device__ __forceinline__ void wait_readers(void) {
    asm volatile("bar.sync 1, %0;" ::"n"((int32_t)READERS) : "memory");
}

/* The tensor maps swizzle: the 16 bytes with index i of row r lie at index i XOR r of that row. */
template <int32_t X>
static __device__ __forceinline__ void read(const blas_few_params &p, const ring &r, float *parts,
                                            int32_t warp) {
    const int32_t lane = threadIdx.x % 32, row = lane % 8;
    const int32_t part = warp % BLAS_FEW_PARTS, share = warp / BLAS_FEW_PARTS;
    const uint32_t own = r.slots + (uint32_t)(part / 2 * r.piece_bytes + row * 128 +
                                              ((part % 2 * 4 + lane / 8) ^ row) * 16);
    place at = place_first(p);
    for (int32_t group = 0; group < p.groups; group++) {
        const int32_t unit = at.unit, units = at.units;
        sums_of<X> sums = {};
        for (int32_t step = 0; step < p.steps; step++, advance(p, &at)) {
            barrier_wait(&r.full[at.slot], at.round & 1);
            add_step<X>(&sums, own + (uint32_t)(at.slot * BLAS_FEW_PIECES * r.piece_bytes), share,
                        units);
            __syncwarp();
            if (lane == 0) barrier_arrive(&r.empty[at.slot]);
        }
        write_part<X>(sums, parts, part, share, units);
        wait_readers();
        write_y<X>(p, parts, warp, unit, units);
        if (group + 1 < p.groups) wait_readers();
    }
}

/* ---- Entries ------------------------------------------------------------------------------- */

template <int32_t X> static __device__ __forceinline__ void serve(const blas_few_params &p) {
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ uint64_t full[BLAS_FEW_SLOT_LIMIT], empty[BLAS_FEW_SLOT_LIMIT];
    const int32_t warp = __shfl_sync(0xffffffffu, (int32_t)threadIdx.x / 32, 0);
    const int32_t piece_bytes = (p.group + X) * BLAS_FEW_PIECE_BYTES;
    const ring r = {shared_of(memory), full, empty, piece_bytes, 0, 0};
    if ((int32_t)threadIdx.x < p.slots) {
        barrier_init(&full[threadIdx.x], 1);
        barrier_init(&empty[threadIdx.x], BLAS_FEW_WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (warp == BLAS_FEW_WARPS) {
        if (threadIdx.x % 32 == 0) fill(p, r, X);
    } else {
        read<X>(p, r, (float *)(memory + p.slots * BLAS_FEW_PIECES * piece_bytes), warp);
    }
}

#define ENTRY(x_units)                                                                             \
    extern "C" __global__ void __launch_bounds__(BLAS_FEW_THREADS, 1)                              \
        blas_few_##x_units(const __grid_constant__ blas_few_params p) {                            \
        serve<x_units>(p);                                                                         \
    }
ENTRY(1)
ENTRY(2)
ENTRY(4)
