/* strips_block.cpp: runs the blocks of kernels/strips/attention_packed.cu or, with FIG_TESTS_TURNS,
 * of attention_turn.cu on a CPU, thread by thread, and compares what they leave with the reference
 * kernel's. hopper.hpp stands for the machine, and strips_step.hpp draws the steps.
 *
 * Until the preceding launch ends, at a random time of each block, q and the newest tokens are NaN:
 * in the cache or, if the launch appends them, in k and v. Beside the blocks, the launch for strips
 * leaves results of prefixes in slots of rows with tails; if its result is a vector's last one, it
 * merges. Both sides keep full precision, so results may differ by less than two roundings; sums
 * that have the greatest number of a type may overflow, and are not compared. Partials, sums and
 * counters must be zeros again, and slots and their counters have what is due. A launch that appends
 * leaves the twin's cache, to the bit where it does not turn k. If the newest token of a row has no
 * page, such a launch sees it nevertheless and the twin does not, so that row is not compared.
 *
 * A step with tails runs a second time, and all prefixes come after the launch. Invariant: the bits
 * of a merged vector do not depend on who merges. */
#define BLOCK_THREADS 320
#include "tests/support/kernels/hopper_fragments.hpp"
#include "tests/support/kernels/hopper_steps.hpp"

extern "C" {
#include "planner/plans/plan.h"
#include "planner/split/split.h"
}

#ifdef FIG_TESTS_TURNS
#include "kernels/strips/attention_instances.cuh"

FIG_ATTENTION_SHARES(turn, 1, f16, FIG_F16, 64)
FIG_ATTENTION_SHARES(turn, 1, bf16, FIG_BF16, 128)
FIG_ATTENTION_SHARES(turn, 1, e4m3, FIG_E4M3, 128)
#else
#include "kernels/strips/attention_packed.cu"
#endif
#include "tests/kernels/strips/strips_step.hpp"

enum { REFERENCE, KERNEL, KERNEL_FIRST /* before all prefixes */, SIDES };

/* What one side of a step leaves. */
struct strips_side {
    steps_array<uint8_t> out;
    steps_array<uint8_t> k, v; /* the cache, if the launch appends */
    steps_array<float> lse, slots, slot_sums, partials, sums;
    steps_array<uint32_t> counters, slot_counters;
};

/* ---- Slots ----------------------------------------------------------------------------------- */

/* Returns the place of a dimension in a slot of the device, see wide_leave.cuh: four threads have
 * 16 dimensions, each of them 2 of the first 8 and 2 of the others, in 16 bytes. */
static int32_t place_of(int32_t dim) {
    return dim / 16 * 16 + dim % 8 / 2 * 4 + dim % 16 / 8 * 2 + dim % 2;
}

static int64_t slot_at(const strips_step *c, int32_t row, int32_t q_head, int32_t slot) {
    return c->tails[row].first + (int64_t)slot * c->params.q_heads + q_head;
}

static uint32_t *slot_counter(const strips_step *c, strips_side *side, int32_t row,
                              int32_t q_head) {
    return &side->slot_counters[(size_t)(c->tails[row].counter + q_head)];
}

/* Merges the results of a vector as a warp of the launch for strips does, in the same order. */
static void merge_slots(const strips_step *c, strips_side *side, int32_t row, int32_t q_head) {
    const fig_attention_params *p = &c->params;
    const int32_t others = c->tails[row].slots - 1;
    const float *sums = side->slot_sums.data(), *slots = side->slots.data();
    const int64_t own = slot_at(c, row, q_head, others);
    const float sink = p->sinks == NULL ? -INFINITY : p->sinks[q_head] * FIG_NUMERIC_LOG2_E;
    float all = sums[2 * own];
    for (int32_t slot = 0; slot < others; slot++)
        all = std::max(all, sums[2 * slot_at(c, row, q_head, slot)]);
    float weights = sums[2 * own + 1] * std::exp2(sums[2 * own] - all);
    for (int32_t slot = 0; slot < others; slot++) {
        const int64_t at = slot_at(c, row, q_head, slot);
        weights = std::fma(sums[2 * at + 1], std::exp2(sums[2 * at] - all), weights);
    }
    const float most = std::max(all, sink), shrink = std::exp2(all - most);
    const float total = weights * shrink + std::exp2(sink - most);
    const float scale =
        fig_cache_scale(p->v_scale, p->v_scales, q_head / (p->q_heads / p->kv_heads));
    const int64_t token = c->starts[row];
    for (int32_t dim = 0; dim < p->head_dim; dim++) {
        float sum = slots[own * p->head_dim + place_of(dim)] * std::exp2(sums[2 * own] - all);
        for (int32_t slot = 0; slot < others; slot++) {
            const int64_t at = slot_at(c, row, q_head, slot);
            sum = std::fma(slots[at * p->head_dim + place_of(dim)], std::exp2(sums[2 * at] - all),
                           sum);
        }
        fig_numeric_store(side->out.data(), p->dtype,
                          token * p->out_strides.row + q_head * p->out_strides.head + dim,
                          sum * (scale * shrink / total));
    }
    side->lse[(size_t)(token * p->lse_stride + q_head)] = most + std::log2(total);
}

/* Leaves the result of a prefix, and merges if it is the last one. */
static void arrive(const strips_step *c, strips_side *side, const arrival &of, int is_reference) {
    const int32_t dims = c->params.head_dim;
    const int64_t at = slot_at(c, of.row, of.q_head, of.slot);
    uint32_t *counter = slot_counter(c, side, of.row, of.q_head);
    for (int32_t i = 0; i < dims; i++)
        side->slots[(size_t)(at * dims + (is_reference ? i : place_of(i)))] =
            c->results[(size_t)(at * dims + i)];
    for (int32_t i = 0; i < 2; i++)
        side->slot_sums[(size_t)(2 * at + i)] = c->result_sums[(size_t)(2 * at + i)];
    if (++*counter < (uint32_t)c->tails[of.row].slots) return;
    *counter = 0;
    merge_slots(c, side, of.row, of.q_head);
}

/* ---- Other launches -------------------------------------------------------------------------- */

namespace {
strips_step *step;                              /* the step that runs */
strips_side *running_side;                      /* and its side */
steps_array<uint8_t> saved_k, saved_v, saved_q; /* k and v: the cache, or what is appended */
std::vector<arrival> coming;                    /* results of prefixes that come while blocks run */
strips_side written;                            /* what had been written when the block began */
uint32_t last_block;                            /* the last block that ran */
} // namespace

/* Writes an operand of the launch, or hides it. */
static void set_operand(steps_array<uint8_t> *operand, const steps_array<uint8_t> &saved,
                        int is_there) {
    if (is_there)
        std::copy(saved.begin(), saved.end(), operand->begin());
    else
        std::fill(operand->begin(), operand->end(), 0xff);
}

/* Writes the newest tokens of all rows, or hides them. */
static void set_newest(int is_there) {
    const size_t bytes = (size_t)step->params.k_cache_strides.token * (size_t)value_bytes(step);
    for (int32_t row = 0; row < step->rows && !TURNS; row++)
        for (int32_t n = 0; n < step->queries[row] && n < step->lengths[row]; n++) {
            const size_t at =
                (size_t)token_at(step, row, step->lengths[row] - 1 - n) * (size_t)value_bytes(step);
            memset(&step->k[at], 0xff, bytes);
            memset(&step->v[at], 0xff, bytes);
            if (is_there) memcpy(&step->k[at], &saved_k[at], bytes);
            if (is_there) memcpy(&step->v[at], &saved_v[at], bytes);
        }
    set_operand(&step->q, saved_q, is_there);
    if (!TURNS) return;
    set_operand(&step->new_k, saved_k, is_there);
    set_operand(&step->new_v, saved_v, is_there);
}

/* The launch may not end before the preceding one does, so the block with the last number waits. */
static void check_end() {
    if (others.is_not_complete && last_block + 1 == gridDim.x)
        fault = "the last block does not wait";
}

static void others_begin() {
    check_end();
    last_block = blockIdx.x;
    others.is_not_complete = 1;
    set_newest(0);
    written = *running_side;
}

/* Ends the preceding launch. */
static void others_end() {
    others.is_not_complete = 0;
    set_newest(1);
    const size_t bytes = written.partials.size() * sizeof(float);
    if (written.out != running_side->out || written.k != running_side->k ||
        written.v != running_side->v || written.slot_counters != running_side->slot_counters ||
        memcmp(written.partials.data(), running_side->partials.data(), bytes) != 0)
        fault = "a block writes before the preceding launch has ended";
    happened++;
}

static void others_go_on() {
    if (others.is_not_complete && chance(4)) others_end();
    if (others.is_not_complete || coming.empty() || !chance(5)) return;
    arrive(step, running_side, coming.back(), 0);
    coming.pop_back();
    happened++;
}

/* ---- Running --------------------------------------------------------------------------------- */

typedef void kernel_of(const fig_attention_params);

/* Returns the instance for a type, 64 or 128 dims and a number of shares. */
static kernel_of *kernel_for(int32_t type, int32_t is_128, int32_t shares) {
#ifdef FIG_TESTS_TURNS
#define KERNELS(form)                                                                              \
    {                                                                                              \
        fig_kernel_attention_turn_##form##_1, fig_kernel_attention_turn_##form##_2,                \
            fig_kernel_attention_turn_##form##_4                                                   \
    }
    static kernel_of *const kernels[3][3] = {KERNELS(f16_64), KERNELS(bf16_128), KERNELS(e4m3_128)};
    return kernels[type][shares / 2];
#else
    static kernel_of *const kernels[3][2][2] = {
        {{fig_kernel_attention_packed_f16_64_1, fig_kernel_attention_packed_f16_64_4},
         {fig_kernel_attention_packed_f16_128_1, fig_kernel_attention_packed_f16_128_4}},
        {{fig_kernel_attention_packed_bf16_64_1, fig_kernel_attention_packed_bf16_64_4},
         {fig_kernel_attention_packed_bf16_128_1, fig_kernel_attention_packed_bf16_128_4}},
        {{NULL, NULL},
         {fig_kernel_attention_packed_e4m3_128_1, fig_kernel_attention_packed_e4m3_128_2}}};
    return kernels[type][is_128][shares > 1];
#endif
}

static void run_kernel(const void *params) {
    const fig_attention_params &p = *(const fig_attention_params *)params;
    const int32_t vectors = p.q_heads / p.kv_heads * p.split.row_tokens;
    const int32_t sets = fig_geometry_sets(p.heads_per_worker, vectors);
    const int32_t type = p.kv_dtype == FIG_F16 ? 0 : p.kv_dtype == FIG_BF16 ? 1 : 2;
    kernel_for(type, p.head_dim == 128, fig_geometry_shares(sets))(p);
}

static strips_side make_side(const strips_step *c) {
    const fig_attention_params *p = &c->params;
    const int32_t tiles = c->rows * (c->length_limit / p->split.tile_tokens + 2);
    const size_t dims = (size_t)p->head_dim;
    const size_t partials =
        (size_t)(p->q_heads / p->kv_heads * p->heads_per_worker * c->shape.row_tokens) *
        (size_t)(p->split.fixed ? tiles * p->split.groups : fig_split_partial_limit(&p->split));
    strips_side side;
    side.out.assign((size_t)(c->starts[c->rows] * p->out_strides.row) * 2, 0x55);
    side.lse.assign((size_t)(c->starts[c->rows] * p->q_heads), 5.0f);
    side.partials.assign(partials * dims, 0);
    side.sums.assign(partials * 2, 0);
    side.counters.assign((size_t)(ROW_LIMIT * p->split.groups), 0);
    side.slots.assign((size_t)c->slot_vectors * dims, NAN);
    side.slot_sums.assign((size_t)c->slot_vectors * 2, NAN);
    side.slot_counters.assign((size_t)c->slot_counters, 0);
    if (TURNS) side.k = c->k, side.v = c->v;
    return side;
}

static void fill_maps(strips_step *c) {
    fig_attention_params *p = &c->params;
    fig_attention_family_bulk_map(p, FIG_ATTENTION_K_MAP, &maps[0]);
    fig_attention_family_bulk_map(p, FIG_ATTENTION_V_MAP, &maps[1]);
    p->k_map.bytes[0] = 0;
    p->v_map.bytes[0] = 1;
}

static void bind(strips_step *c, strips_side *side) {
    fig_attention_params *p = &c->params;
    p->out = side->out.data();
    p->lse = side->lse.data();
    p->partials = side->partials.data();
    p->sums = side->sums.data();
    p->counters = side->counters.data();
    p->slots.partials = side->slots.data();
    p->slots.sums = side->slot_sums.data();
    p->slots.counters = side->slot_counters.data();
    if (TURNS) p->k_cache = side->k.data(), p->v_cache = side->v.data();
    fill_maps(c);
}

/* Launches the kernel. If its blocks wait for others, they run twice. */
static const char *launch(strips_step *c, strips_side *side) {
    fig_attention_params *p = &c->params;
    fig_launch_shape shape;
    const char *wrong = NULL;
    fig_attention_family_bulk_shape(p, &shape);
    gridDim.x = shape.grid[0];
    blockDim.x = shape.block[0];
    dynamic_bytes = TURNS ? fig_attention_family_turn_shared(p, &c->traits)
                          : fig_attention_family_bulk_shared(p, &c->traits);
    passing = PASSING_AT_ONCE;
    if ((p->flags & FIG_ATTENTION_APART) == 0) {
        strips_side first = *side;
        std::vector<arrival> later;
        std::swap(coming, later);
        bind(c, &first);
        running_side = &first;
        passing = PASSING_FIRST;
        wrong = steps_launch(run_kernel, NULL, p, p->split.workers, &c->random);
        passing = PASSING_SECOND;
        side->partials = first.partials;
        side->sums = first.sums;
        std::swap(coming, later);
        bind(c, side);
        check_end();
        if (wrong == NULL) wrong = fault;
        others.is_not_complete = 0;
    }
    running_side = side;
    if (wrong == NULL) wrong = steps_launch(run_kernel, NULL, p, p->split.workers, &c->random);
    check_end();
    return wrong != NULL ? wrong : fault;
}

/* Runs a side of the step. Returns NULL, or what it did wrong. */
static const char *run_side(strips_step *c, strips_side *side, int which) {
    const char *wrong = NULL;
    bind(c, side);
    coming.clear();
    for (const arrival &of : c->arrivals) {
        if (which == KERNEL_FIRST || of.when == NEVER) continue;
        if (of.when == BEFORE || which == REFERENCE)
            arrive(c, side, of, which == REFERENCE);
        else
            coming.push_back(of);
    }
    if (which == REFERENCE)
        wrong = steps_launch(NULL, fig_attention_reference, &c->params, c->params.split.workers,
                             &c->random);
    else
        wrong = launch(c, side);
    if (which != REFERENCE) set_newest(1);
    for (const arrival &of : coming)
        arrive(c, side, of, 0);
    for (const arrival &of : c->arrivals)
        if (which == KERNEL_FIRST && of.when != NEVER) arrive(c, side, of, 0);
    if (wrong != NULL) return wrong;
    if (steps_are_zeros(side->partials) && steps_are_zeros(side->sums) &&
        steps_are_zeros(side->counters))
        return NULL;
    return "the workspace is not zeros";
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static int is_same(float due, float got, float tolerance) {
    return due == got || (std::isnan(due) && std::isnan(got)) ||
           std::fabs(due - got) <= tolerance * (1 + std::fabs(due));
}

/* Returns 0 and says why if the results of two sides differ. */
static int compare(const strips_step *c, const strips_side *due, const strips_side *got,
                   const char *what) {
    const fig_attention_params *p = &c->params;
    const float unit = p->dtype == FIG_BF16 ? 0x1p-8f : 0x1p-11f;
    for (int64_t i = 0; i < (int64_t)due->out.size() / 2; i++) {
        const size_t vector = (size_t)(i / p->out_strides.head);
        const float one = fig_numeric_load(due->out.data(), p->dtype, i);
        const float other = fig_numeric_load(got->out.data(), p->dtype, i);
        const int32_t token = (int32_t)vector / p->q_heads;
        if (std::isfinite(one) && std::fabs(one) > 0x1p100f) continue;
        if (c->lost >= 0 && c->starts[c->lost] <= token && token < c->starts[c->lost + 1]) continue;
        if (is_same(one, other, 2 * unit) && is_same(due->lse[vector], got->lse[vector], 1e-5f))
            continue;
        printf("%s: out[%zu][%d] is %g, not %g; lse %g, %g\n", what, vector,
               (int)(i % p->out_strides.head), other, one, got->lse[vector], due->lse[vector]);
        return 0;
    }
    return 1;
}

/* Returns 0 and says why if the launch left another cache than the twin. k that it turned may differ
 * by a rounding. */
static int compare_caches(const strips_step *c, const strips_side *due, const strips_side *got,
                          const char *what) {
    const fig_attention_params *p = &c->params;
    const int is_turned = !fig_params_is_still(&p->turn.angles) || p->turn.k_norm != NULL;
    const float unit = p->kv_dtype == FIG_BF16 ? 0x1p-7f : p->kv_dtype == FIG_F16 ? 0x1p-10f : 0.2f;
    int is_right = due->v == got->v;
    for (size_t i = 0; i < due->k.size() / (size_t)value_bytes(c) && is_right; i++) {
        const float one = fig_numeric_load(due->k.data(), p->kv_dtype, (int64_t)i);
        const float other = fig_numeric_load(got->k.data(), p->kv_dtype, (int64_t)i);
        is_right = is_same(one, other, is_turned ? unit : 0);
    }
    if (!is_right) printf("%s: the cache differs\n", what);
    return is_right;
}

/* Compares a slot with the twin's. Only the sums of the tail's slot differ by a factor. */
static int is_same_slot(const strips_step *c, const strips_side *due, const strips_side *got,
                        int64_t at) {
    const float *one = &due->slot_sums[(size_t)(2 * at)],
                *other = &got->slot_sums[(size_t)(2 * at)];
    if (!is_same(one[0] + std::log2(one[1]), other[0] + std::log2(other[1]), 1e-5f)) return 0;
    for (int32_t dim = 0; dim < c->params.head_dim; dim++) {
        const float x = due->slots[(size_t)(at * c->params.head_dim + dim)] / one[1];
        const float y = got->slots[(size_t)(at * c->params.head_dim + place_of(dim))] / other[1];
        if (std::isfinite(x) && std::fabs(x) > 0x1p100f) continue;
        if (!is_same(x, y, 1e-4f)) return 0;
    }
    return 1;
}

/* Returns 0 and says why if slots or their counters are not those of the twin. The tail's slot of a
 * merged vector may hold anything. */
static int compare_slots(strips_step *c, strips_side *due, strips_side *got, const char *what) {
    const char *wrong = due->slot_counters == got->slot_counters ? NULL : "a counter differs";
    for (int32_t row = 0; row < c->rows; row++)
        for (int32_t n = 0; n < c->params.q_heads * c->tails[row].slots; n++) {
            const int32_t q_head = n % c->params.q_heads, slot = n / c->params.q_heads;
            const int is_merged = *slot_counter(c, due, row, q_head) == 0;
            if (is_merged && slot == c->tails[row].slots - 1) continue;
            if (!is_same_slot(c, due, got, slot_at(c, row, q_head, slot))) wrong = "a slot differs";
        }
    if (wrong != NULL) printf("%s: %s\n", what, wrong);
    return wrong == NULL;
}

/* Returns 0 if the kernel does something wrong. */
static int try_case(uint64_t seed) {
    strips_step c = {};
    char what[160];
    c.random = fig_random_seed(seed);
    draw_step(&c);
    step = &c;
    saved_k = TURNS ? c.new_k : c.k, saved_v = TURNS ? c.new_v : c.v, saved_q = c.q;
    if (TURNS) fig_attention_family_turn_finish(&c.params);
    others.begin = others_begin;
    others.go_on = others_go_on;
    others.is_not_complete = 0;
    slow_percent = 3;
    const fig_attention_params *p = &c.params;
    strips_side sides[SIDES] = {make_side(&c), make_side(&c), make_side(&c)};
    for (int side = 0; side < (c.has_tails ? SIDES : KERNEL_FIRST); side++) {
        snprintf(what, sizeof what,
                 "seed %llu, side %d, head_dim %d, %d heads at once of %d, ratio %d, %d tokens",
                 (unsigned long long)seed, side, p->head_dim, p->heads_per_worker, p->kv_heads,
                 p->q_heads / p->kv_heads, c.shape.row_tokens);
        const char *wrong = run_side(&c, &sides[side], side);
        if (wrong != NULL) printf("%s: %s\n", what, wrong);
        if (wrong != NULL) return 0;
        if (side == REFERENCE) continue;
        if (!compare(&c, &sides[REFERENCE], &sides[side], what) ||
            !compare_caches(&c, &sides[REFERENCE], &sides[side], what) ||
            !compare_slots(&c, &sides[REFERENCE], &sides[side], what))
            return 0;
    }
    if (!c.has_tails || (sides[KERNEL].out == sides[KERNEL_FIRST].out &&
                         sides[KERNEL].lse == sides[KERNEL_FIRST].lse))
        return 1;
    printf("%s: bits depend on who merges\n", what);
    return 0;
}

int main(int argc, char **argv) {
    return steps_try(argc, argv, try_case);
}
