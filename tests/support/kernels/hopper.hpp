/* hopper.hpp: stands for the instructions of compute capability 9.0, on a CPU, for kernels that
 * block.hpp runs: barriers in shared memory, the copy engine, and products of warpgroups.
 *
 * A program defines BLOCK_THREADS, includes this file, and then the kernel's .cu file. This file
 * takes the place of block.cuh, fragment.cuh, barriers.cuh, wgmma.cuh and wide_machine.cuh. Nothing
 * happens at a fixed time: warps run in random order and at random speed, a copy arrives at any
 * time after it was sent, and a product reads its operands as early or as late as it may. Until a
 * copy arrives, its place holds NaN. Invariant: whatever may happen on a GPU between two waits may
 * happen here, except that memory is always consistent. */
#ifndef FIG_TESTS_SUPPORT_HOPPER_HPP
#define FIG_TESTS_SUPPORT_HOPPER_HPP

#include <cmath>
#include <cstdio>
#include <vector>

#include "include/figraph.h"
extern "C" {
#include "kernels/table/reference_kernels.h"
#include "planner/plans/strip_groups.h"
}
#include "tests/support/kernels/block.hpp"
#include "tests/support/random.h"

namespace {
float __fdividef(float a, float b) {
    return a / b;
}
int32_t __float2int_rd(float x) {
    return (int32_t)std::floor(x);
}
} // namespace

/* Headers of kernels are read as nvcc reads them: numeric.h has loops over rows, which are C. */
#define __CUDACC__
#define __host__
extern "C" {
#include "kernels/wide/wide.h"
#undef __CUDACC__
#include "kernels/table/table.h"
}

#define __CUDA_ARCH_FEAT_SM90_ALL
#undef __shared__
#define __shared__
#define __align__(bytes)
#define __log2f log2f

static index3 gridDim = {1u << 30, 1, 1}; /* a program may set it; so large, no block is the last */
enum { SHARED_BYTES = 227 * 1024, BARRIER_LIMIT = SHARED_BYTES / 8, NAMED_LIMIT = 16 };
alignas(1024) uint8_t shared[SHARED_BYTES]; /* the dynamic shared memory */

namespace {
struct alignas(16) int4 {
    int32_t x, y, z, w;
};

uint32_t atomicAdd(uint32_t *counter, uint32_t more) {
    return (*counter += more) - more;
}
uint32_t __reduce_max_sync(uint32_t, uint32_t x) {
    const uint64_t *words = meet_warp(x);
    uint64_t most = 0;
    for (uint32_t i = 0; i < WARP; i++)
        most = max(most, words[threadIdx.x / WARP * WARP + i]);
    return (uint32_t)most;
}
float __fmaf_rn(float a, float b, float c) {
    return std::fma(a, b, c);
}
float __fmul_rn(float a, float b) {
    return a * b;
}
int32_t __float_as_int(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float __int_as_float(int32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
} // namespace

/* ---- Barriers -------------------------------------------------------------------------------- */

namespace {
struct barrier {
    int32_t count, left;
    int64_t bytes; /* that the copy engine still owes */
    uint32_t phase;
};
barrier barriers[BARRIER_LIMIT];
struct {
    uint32_t arrived, turn, members; /* members: of the meeting that has begun */
} named[NAMED_LIMIT];
struct {
    uint32_t meeting;    /* 1 + the turn that it belongs to */
    int32_t says;        /* 1: a thread said so */
} votes[NAMED_LIMIT][2]; /* [turn % 2] */
const char *fault;       /* what the kernel did wrong; NULL: nothing */
fig_random chances;      /* decides what happens when */

/* What other launches do while a block runs. A program sets the functions if they do anything. */
struct {
    void (*begin)(void);     /* before the block begins */
    void (*go_on)(void);     /* between two rounds of the block's warps */
    int32_t is_not_complete; /* 1: the preceding launch may still write; go_on() clears it */
} others;

int chance(int32_t percent) {
    return fig_random_range(&chances, 0, 99) < percent;
}

barrier *barrier_at(uint32_t address) {
    if (address % 8 != 0 || address >= SHARED_BYTES) fault = "a barrier outside shared memory";
    return &barriers[address / 8 % BARRIER_LIMIT];
}

void barrier_change(barrier *of, int32_t arrivals, int64_t bytes) {
    of->left -= arrivals;
    of->bytes += bytes;
    happened++;
    if (of->left < 0) fault = "too many arrivals at a barrier";
    if (of->left > 0 || of->bytes != 0) return;
    of->left = of->count;
    of->phase++;
}
} // namespace

#define FIG_KERNELS_FRAGMENT_CUH
static uint32_t fig_fragment_shared(const void *pointer) {
    return (uint32_t)((const uint8_t *)pointer - shared);
}

/* Loads four matrices of 8 rows of 16 bytes. Lane 8 i + r has the address of row r of matrix i. */
static void fig_fragment_load(uint32_t (&to)[4], uint32_t address) {
    const uint64_t *words = meet_warp(address);
    const uint32_t lane = threadIdx.x % WARP, first = threadIdx.x - lane;
    for (uint32_t i = 0; i < 4; i++)
        memcpy(&to[i], &shared[words[first + 8 * i + lane / 4] + lane % 4 * 4], 4);
}

template <int32_t DTYPE> static uint32_t fig_fragment_pair(float low, float high) {
    if (DTYPE == FIG_BF16) return fig_numeric_bf16(low) | (uint32_t)fig_numeric_bf16(high) << 16;
    return fig_numeric_f16(low) | (uint32_t)fig_numeric_f16(high) << 16;
}

#define FIG_KERNELS_BLOCK_CUH
enum { FIG_BLOCK_WARP = 32, FIG_BLOCK_WARP_LIMIT = 32 };
static void fig_block_wait() {
    while (others.is_not_complete)
        give_way();
    advanced = 1;
}
static void fig_block_trigger() {
}
static int32_t fig_block_warp() {
    return (int32_t)(threadIdx.x / WARP);
}

#define FIG_KERNELS_BARRIERS_CUH
static void fig_ring_barrier_init(uint64_t *at, int32_t count) {
    *barrier_at(fig_fragment_shared(at)) = {count, count, 0, 0};
}

static void fig_ring_arrive(uint32_t address) {
    barrier_change(barrier_at(address), 1, 0);
}

static void fig_ring_wait(uint32_t address, uint32_t phase) {
    while ((barrier_at(address)->phase & 1) == (phase & 1))
        give_way();
    advanced = 1;
}

static void fig_ring_pass(int32_t number, uint32_t members) {
    happened++;
    if (named[number].arrived == 0) named[number].members = members;
    if (named[number].members != members) fault = "warps meet for different numbers of threads";
    if (++named[number].arrived < members) return;
    named[number].arrived = 0;
    named[number].turn++;
}

static void fig_ring_meet(int32_t number, uint32_t members) {
    const uint32_t turn = named[number].turn;
    fig_ring_pass(number, members);
    while (named[number].turn == turn)
        give_way();
    advanced = 1;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

#define FIG_KERNELS_WIDE_MACHINE_CUH

namespace {
enum { MAP_LIMIT = 3 };
fig_tensor_map_recipe maps[MAP_LIMIT]; /* the first byte of a fig_tensor_map tells which one */

/* A box on its way. */
struct parcel {
    const fig_tensor_map_recipe *map; /* NULL: bytes from `from` */
    const void *from;
    int32_t place[FIG_TENSOR_MAP_RANK_LIMIT];
    uint32_t to, bytes;
    barrier *of;
};
std::vector<parcel> parcels;

uint32_t swizzled(uint32_t address, uint32_t width) {
    if (width == 128) return address ^ (address >> 7 & 7) << 4;
    return address ^ (address >> 7 & 3) << 4;
}

/* Returns the address of row `row` of a box, which has box[0] elements. Returns 0 if the row lies
 * outside the tensor. */
uint64_t row_of_box(const parcel &of, uint32_t row) {
    const fig_tensor_map_recipe *map = of.map;
    uint64_t from = map->address;
    for (uint32_t i = 1; i < map->rank; i++) {
        const int64_t at = of.place[i] + (int64_t)(row % map->box[i]);
        row /= map->box[i];
        if (at < 0 || (uint64_t)at >= map->dims[i]) return 0;
        from += (uint64_t)at * map->strides_bytes[i];
    }
    return from;
}

/* Copies a box. Elements outside the tensor are 0. */
void deliver(const parcel &of) {
    const fig_tensor_map_recipe *map = of.map;
    if (map == NULL) memcpy(&shared[of.to], of.from, of.bytes);
    for (uint32_t done = 0, row = 0; map != NULL && done < of.bytes; row++) {
        const uint64_t from = row_of_box(of, row);
        const uint32_t element = (uint32_t)fig_numeric_bytes((int32_t)map->dtype);
        for (uint32_t i = 0; i < map->box[0]; i++, done += element) {
            const int64_t at = of.place[0] + (int64_t)i;
            const int is_inside = from != 0 && at >= 0 && (uint64_t)at < map->dims[0];
            uint8_t *to = &shared[swizzled(of.to + done, map->swizzle_bytes)];
            for (uint32_t byte = 0; byte < element; byte++)
                to[byte] = is_inside ? ((const uint8_t *)from)[at * element + byte] : 0;
        }
    }
    barrier_change(of.of, 0, -(int64_t)of.bytes);
}

void send(uint32_t to, const fig_tensor_map *map, const int32_t *place, const uint64_t *barrier) {
    parcel of = {};
    of.map = &maps[map->bytes[0] % MAP_LIMIT];
    of.bytes = (uint32_t)fig_numeric_bytes((int32_t)of.map->dtype);
    of.to = to;
    of.of = barrier_at(fig_fragment_shared(barrier));
    for (uint32_t i = 0; i < of.map->rank; i++) {
        of.place[i] = place[i];
        of.bytes *= of.map->box[i];
    }
    if (to % 16 != 0 || to + of.bytes > SHARED_BYTES) {
        fault = "a box outside shared memory";
        return;
    }
    memset(&shared[to], 0xff, of.bytes);
    parcels.push_back(of);
}

/* Sends bytes as they are. */
void post(uint32_t to, const void *from, uint32_t bytes, const uint64_t *barrier) {
    parcel of = {};
    of.from = from;
    of.bytes = bytes;
    of.to = to;
    of.of = barrier_at(fig_fragment_shared(barrier));
    if (to % 16 != 0 || bytes % 16 != 0 || (uint64_t)from % 16 != 0 || to + bytes > SHARED_BYTES) {
        fault = "a copy that is not of whole 16 bytes in shared memory";
        return;
    }
    memset(&shared[to], 0xff, bytes);
    parcels.push_back(of);
}

/* Delivers parcels that have waited long enough. */
void deliver_some(int32_t percent) {
    for (size_t i = 0; i < parcels.size();) {
        if (!chance(percent)) {
            i++;
            continue;
        }
        deliver(parcels[i]);
        parcels[i] = parcels.back();
        parcels.pop_back();
    }
}

/* A copy that its thread has not waited for. */
struct piece {
    uint32_t to;
    uint64_t from;
};
std::vector<piece> pieces[BLOCK_THREADS];
} // namespace

static void fig_wide_show_barriers() {
}

static void fig_wide_wait(const uint64_t *barrier, uint32_t phase) {
    fig_ring_wait(fig_fragment_shared(barrier), phase);
}

/* The first thread that comes to a meeting opens its vote. No thread comes to the next but one
 * before all have read the result. */
static int32_t fig_wide_meet_any(int32_t barrier, int32_t members, int32_t says) {
    const uint32_t turn = named[barrier].turn;
    auto &vote = votes[barrier][turn % 2];
    if (vote.meeting != turn + 1) vote = {turn + 1, 0};
    vote.says |= says != 0;
    fig_ring_meet(barrier, members);
    return vote.says;
}

static void fig_wide_expect(const uint64_t *barrier, uint32_t bytes) {
    barrier_change(barrier_at(fig_fragment_shared(barrier)), 1, bytes);
}

static void fig_wide_arrive(const uint64_t *barrier, uint32_t count) {
    barrier_change(barrier_at(fig_fragment_shared(barrier)), (int32_t)count, 0);
}

struct fig_wide_box_place {
    int32_t token, column, block, page;
};

static void fig_wide_box_send(uint32_t to, const fig_tensor_map *map, const fig_wide_box_place &box,
                              const uint64_t *barrier) {
    const int32_t place[] = {0, box.token, box.column, box.block, box.page};
    send(to, map, place, barrier);
}

static void fig_wide_column_send(uint32_t to, const fig_tensor_map *map, int32_t head,
                                 int32_t query, int32_t column, const uint64_t *barrier) {
    const int32_t place[] = {0, head, query, column, 0};
    send(to, map, place, barrier);
}

static void fig_wide_copy(uint32_t to, uint64_t from) {
    memset(&shared[to], 0xff, 16);
    pieces[threadIdx.x].push_back({to, from});
}

static void fig_wide_await_copies() {
    for (const piece &of : pieces[threadIdx.x])
        memcpy(&shared[of.to], (const void *)of.from, 16);
    pieces[threadIdx.x].clear();
}

/* Arrives at once, but the barrier expects the copies' bytes. */
static void fig_wide_arrive_copied(const uint64_t *barrier) {
    parcel of = {};
    of.bytes = 16;
    of.of = barrier_at(fig_fragment_shared(barrier));
    barrier_change(of.of, 1, (int64_t)(16 * pieces[threadIdx.x].size()));
    for (const piece &copy : pieces[threadIdx.x]) {
        of.to = copy.to;
        of.from = (const void *)copy.from;
        parcels.push_back(of);
    }
    pieces[threadIdx.x].clear();
}

static void fig_wide_clear_chunk(uint32_t to) {
    memset(&shared[to], 0, 16);
}

static void fig_wide_order_engines() {
}
static void fig_wide_order_memory() {
}

static uint32_t fig_wide_acquire(const uint32_t *counter) {
    return *counter;
}

static uint32_t fig_wide_exchange(uint32_t *counter, uint32_t value) {
    const uint32_t before = *counter;
    *counter = value;
    return before;
}

static float fig_wide_exp2(float x) {
    return std::exp2(x);
}

static int32_t fig_wide_most(int32_t a, int32_t b, int32_t c) {
    return std::max(a, std::max(b, c));
}

template <int32_t COUNT> static void fig_wide_keep_registers() {
}
template <int32_t COUNT> static void fig_wide_take_registers() {
}

/* ---- Products -------------------------------------------------------------------------------- */

#define FIG_KERNELS_WGMMA_CUH
struct fig_wgmma_bf16 {};
struct fig_wgmma_f16 {};

namespace {
enum { PRODUCT_LIMIT = 64, COMMIT_LIMIT = 32 };

/* A product that its thread has issued. It adds 64 x 16 values of a times 16 x N of b. */
struct product {
    float *sums;
    int32_t count; /* sums of the thread: N / 2 */
    uint32_t a[4];
    uint64_t a_at, b_at; /* matrices in shared memory; a_at 0: registers hold a */
    int32_t is_across, is_sum, is_bf16;
    int32_t is_turned; /* a lies in shared memory with a row for each of its 16 columns */
};

struct product_queue {
    product of[PRODUCT_LIMIT];
    int32_t count, done;                 /* products issued and computed */
    int32_t ends[COMMIT_LIMIT], commits; /* where each group of them ends */
} queues[BLOCK_THREADS];

std::vector<float> values_of_f16() {
    std::vector<float> values;
    for (uint32_t i = 0; i < 1 << 16; i++)
        values.push_back(fig_numeric_of_f16((uint16_t)i));
    return values;
}
const std::vector<float> of_f16 = values_of_f16();

inline float half_of(uint16_t bits, int32_t is_bf16) {
    return is_bf16 ? __int_as_float((int32_t)((uint32_t)bits << 16)) : of_f16[bits];
}

/* Returns the address of 16 bytes of a matrix: chunk `chunk` of its row `row`, counted from where
 * the matrix begins. */
inline const uint16_t *chunk_of(uint64_t matrix, uint32_t row, uint32_t chunk, uint32_t lead_of) {
    const uint32_t width = matrix >> 62 == 1 ? 128 : 64, stride = (matrix >> 32 & 0x3fff) << 4;
    const uint32_t lead = (matrix >> 16 & 0x3fff) << 4, begin = (matrix & 0x3fff) << 4;
    const uint32_t at = begin + row / 8 * stride + row % 8 * width + lead_of * lead + chunk * 16;
    return (const uint16_t *)&shared[swizzled(at, width) % SHARED_BYTES];
}

/* Returns value i of row `row` of an a that lies in shared memory. */
inline uint16_t a_in_memory(const product &of, uint32_t row, uint32_t i) {
    return of.is_turned ? chunk_of(of.a_at, i, row / 8, 0)[row % 8]
                        : chunk_of(of.a_at, row, i / 8, 0)[i % 8];
}

/* Four values, with which compilers make one instruction of four. */
typedef float four __attribute__((vector_size(16)));

/* Loads the thread's two rows of a: 16 values each, {of row 0, row 0, row 1, row 1}. */
void load_a(const product &of, int32_t index, four (&a)[16]) {
    const uint32_t lane = threadIdx.x % WARP, quad = threadIdx.x / 4 * 4;
    const uint32_t row = threadIdx.x / WARP % 4 * 16 + lane / 4;
    for (uint32_t h = 0; h < 2; h++)
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t word = queues[quad + i % 8 / 2].of[index].a[h + i / 8 * 2];
            const uint16_t bits =
                of.a_at != 0 ? a_in_memory(of, row + 8 * h, i) : (uint16_t)(word >> i % 2 * 16);
            a[i][2 * h] = a[i][2 * h + 1] = half_of(bits, of.is_bf16);
        }
}

/* Loads 16 values of each of the thread's two columns of b, from column n on:
 * {of column 0, column 1, column 0, column 1}. */
inline void load_b(const product &of, uint32_t n, four (&b)[16]) {
    const uint32_t of_lead = of.b_at >> 62 == 1 ? 64 : 32, first = n / 8 * 8;
    for (uint32_t k = 0; of.is_across && k < 16; k++) {
        const uint16_t *from = chunk_of(of.b_at, k, first % of_lead / 8, first / of_lead) + n % 8;
        const float one = half_of(from[0], of.is_bf16), next = half_of(from[1], of.is_bf16);
        b[k] = four{one, next, one, next};
    }
    for (uint32_t half = 0; !of.is_across && half < 2; half++) {
        const uint16_t *from = chunk_of(of.b_at, n, half, 0);
        const uint16_t *beside = chunk_of(of.b_at, n + 1, half, 0);
        for (uint32_t k = 0; k < 8; k++) {
            const float one = half_of(from[k], of.is_bf16), next = half_of(beside[k], of.is_bf16);
            b[half * 8 + k] = four{one, next, one, next};
        }
    }
}

/* Adds one product to the thread's sums, four of them at a time. Each is added in the order of k. */
void compute(const product &of, int32_t index) {
    four a[16], b[16];
    load_a(of, index, a);
    for (uint32_t j = 0; j < (uint32_t)of.count / 4; j++) {
        four sum = {0, 0, 0, 0};
        load_b(of, 8 * j + threadIdx.x % 4 * 2, b);
        if (of.is_sum) memcpy(&sum, of.sums + 4 * j, sizeof sum);
        for (uint32_t k = 0; k < 16; k++)
            sum += a[k] * b[k];
        memcpy(of.sums + 4 * j, &sum, sizeof sum);
    }
}

/* Computes the products up to number `end`. All lanes of the warp have issued them. */
void compute_until(product_queue *queue, int32_t end) {
    meet_warp(0);
    for (; queue->done < end; queue->done++)
        compute(queue->of[queue->done % PRODUCT_LIMIT], queue->done % PRODUCT_LIMIT);
    meet_warp(0);
}

template <int32_t N>
void issue(float (&d)[N], const uint32_t *a, uint64_t a_at, uint64_t b_at, int32_t is_across,
           int32_t is_sum, int32_t is_bf16, int32_t is_turned = 0) {
    product_queue *queue = &queues[threadIdx.x];
    if (queue->count - queue->done >= PRODUCT_LIMIT) fault = "more products than this file holds";
    product *of = &queue->of[queue->count++ % PRODUCT_LIMIT];
    *of = {d, N, {}, a_at, b_at, is_across, is_sum, is_bf16, is_turned};
    if (a != NULL) memcpy(of->a, a, sizeof of->a);
}

int32_t is_bf16(fig_wgmma_bf16) {
    return 1;
}
int32_t is_bf16(fig_wgmma_f16) {
    return 0;
}
int32_t reads_early; /* 1: products read their operands as soon as they may */
} // namespace

static void fig_wgmma_begin() {
    meet_warp(0);
}

static uint64_t fig_wgmma_matrix(uint32_t address, int32_t width, int32_t stride, int32_t lead) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(lead >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | (uint64_t)(width == 128 ? 1 : 2) << 62;
}

static void fig_wgmma_commit() {
    product_queue *queue = &queues[threadIdx.x];
    queue->ends[queue->commits++ % COMMIT_LIMIT] = queue->count;
    if (reads_early) compute_until(queue, queue->count);
}

template <int LEFT, int N> static void fig_wgmma_wait(float (&)[N]) {
    product_queue *queue = &queues[threadIdx.x];
    if (queue->commits > LEFT)
        compute_until(queue, queue->ends[(queue->commits - LEFT - 1) % COMMIT_LIMIT]);
}

template <class tag, int N>
static void fig_wgmma_along_r(tag of, float (&d)[N], const uint32_t *a, uint64_t b,
                              int32_t is_sum) {
    issue(d, a, 0, b, 0, is_sum, is_bf16(of));
}

template <class tag, int N>
static void fig_wgmma_along(tag of, float (&d)[N], uint64_t a, uint64_t b, int32_t is_sum) {
    issue(d, NULL, a, b, 0, is_sum, is_bf16(of));
}

template <class tag, int N>
static void fig_wgmma_across(tag of, float (&d)[N], const uint32_t *a, uint64_t b, int32_t is_sum) {
    issue(d, a, 0, b, 1, is_sum, is_bf16(of));
}

template <class tag, int N>
static void fig_wgmma_across_s(tag of, float (&d)[N], uint64_t a, uint64_t b, int32_t is_sum) {
    issue(d, NULL, a, b, 1, is_sum, is_bf16(of));
}

template <class tag, int N>
static void fig_wgmma_set(tag of, float (&d)[N], uint64_t a, uint64_t b) {
    issue(d, NULL, a, b, 0, 0, is_bf16(of));
}

/* ---- Running --------------------------------------------------------------------------------- */

namespace {
/* Runs of a slow warp without any event before a block has hung. A warp that merges many vectors
 * takes more than a thousand. */
enum { QUIET_LIMIT = 10000 };
int32_t slow_percent = 10;   /* of all rounds, in which a slow warp runs; a program may set it */

void prepare(void (*kernel)(const void *), const void *params, uint32_t block) {
    block_prepare(kernel, params, block);
    happened++;
    memset(named, 0, sizeof named);
    memset(votes, 0, sizeof votes);
    memset(queues, 0, sizeof queues);
    memset(shared, 0xff, sizeof shared);
    parcels.clear();
    for (std::vector<piece> &of : pieces)
        of.clear();
    fault = NULL;
}

/* Runs the threads of a warp as far as they go, unless all of them still wait: nothing has happened
 * since they last looked. Returns the number of those that ended. */
int run_warp(uint32_t warp) {
    static uint64_t looked[BLOCK_THREADS / WARP]; /* what had happened; 0: some did not wait */
    int ended = 0;
    if (looked[warp] != 0 && looked[warp] == happened) return 0;
    const uint64_t before = happened;
    advanced = 0;
    for (uint32_t i = 0; i < WARP; i++) {
        threadIdx.x = warp * WARP + i;
        if (threads[threadIdx.x].is_done) continue;
        advanced |= !threads[threadIdx.x].is_begun;
        go_on();
        ended += threads[threadIdx.x].is_done;
    }
    looked[warp] = advanced ? 0 : before;
    return ended;
}

/* Runs a block. Returns NULL, or what the kernel did wrong. */
const char *hopper_run(void (*kernel)(const void *), const void *params, uint32_t block,
                       uint64_t seed) {
    const uint32_t warp_count = blockDim.x / WARP;
    int32_t speeds[BLOCK_THREADS / WARP], left = (int32_t)blockDim.x, quiet = 0;
    chances = fig_random_seed(seed);
    prepare(kernel, params, block);
    if (others.begin != NULL) others.begin();
    reads_early = chance(50);
    for (int32_t &speed : speeds)
        speed = chance(30) ? slow_percent : 100;
    const int32_t arrival = chance(50) ? 3 : 50;
    while (left > 0 && fault == NULL) {
        const uint64_t before = happened;
        const uint32_t first = (uint32_t)fig_random_range(&chances, 0, (int32_t)warp_count - 1);
        const int32_t was_left = left;
        for (uint32_t i = 0; i < warp_count; i++) {
            const uint32_t warp = (first + i) % warp_count;
            if (chance(speeds[warp])) left -= run_warp(warp);
        }
        deliver_some(arrival);
        if (others.go_on != NULL) others.go_on();
        quiet = happened == before && left == was_left ? quiet + 1 : 0;
        if (quiet * slow_percent > QUIET_LIMIT * 100 && parcels.empty())
            return "the block never ends";
    }
    if (fault == NULL && !parcels.empty()) fault = "the block ended before its copies arrived";
    return fault;
}
} // namespace

#endif
