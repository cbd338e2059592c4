/* grid_sections.c: lists the sections, and what each covers.
 *
 * Invariant: the number of a section's cases follows from its lists. Sections of random cases state
 * the number. */
#include "tests/grid/grid_sections.h"

#include <assert.h>

static const grid_section table[] = {
    {"batch decode", "B 12-128, kv 54-16384, page 1-16, f16 or e4m3 cache", 0,
     grid_run_batch_decode},
    {"ragged decode", "the same with rows of all lengths, idle ones among them, reordered", 0,
     grid_run_ragged_decode},
    {"replan", "one exec: a page, some pages, kv 54-16384, one token", 0, grid_run_replan},
    {"several queries", "2 and 3 queries a row, the tightest lengths", 0, grid_run_multi_token},
    {"single", "one row, dense, kv 54-32789, groups 1-8, NHD and HND", 0, grid_run_single},
    {"layouts", "NHD and HND, apart and in either kind of pool", 0, grid_run_layouts},
    {"invariance", "deterministic: bits of 4 rows alone and among 5 or 12", 0, grid_run_invariance},
    {"fp8 single", "calibration scales, kv 7-39275, e4m3 and e5m2", 0, grid_run_fp8_single},
    {"fp8 batch", "calibration scales, per tensor and per head", 0, grid_run_fp8_batch},
    {"window single", "windows 4-44, kv 1-1999", 0, grid_run_window_single},
    {"window batch", "windows 34 and 534, B 1-32, kv 1-1999", 0, grid_run_window_batch},
    {"soft cap", "caps 1, 30, 50, kv 1-33001", 0, grid_run_soft_cap},
    {"alibi", "kv 1-729, 4-32 heads", 0, grid_run_alibi},
    {"strided", "q out of packed qkv, pages of 1 and 5", 0, grid_run_strided},
    {"tuples", "9 shapes of speculative and grouped decode, sinks, windows, fp8", 0,
     grid_run_tuples},
    {"mixes", "10 mixes of lengths up to 392 rows, groups 1-8, cap 50", 0, grid_run_mixes},
    {"mixed queries", "5000 tokens with 3 queries, 766 with 2", 0, grid_run_mixed_queries},
    {"extreme logits", "logits of -55000 to 20000", 0, grid_run_extreme_logits},
    {"random attention",
     "all features, dtypes, dims and groups, uneven rows, lengths at every edge", 4000,
     grid_run_random},
    {"bucket edges", "a bucket's cap, one less, one row of it, none", 0, grid_run_bucket_edges},
    {"rope packed", "indptr and offsets, partial, llama3, B 1-989 x 1-204", 0,
     grid_run_rope_packed},
    {"rope positions", "i32 and i64, both pairings, partial, llama3", 0, grid_run_rope_positions},
    {"rope cos_sin", "caches of cosines, heads of 64-256, 80, 112, 160 and 192 among them", 0,
     grid_run_rope_cache},
    {"rope normalised", "each head normalised first, positions up to a million", 0,
     grid_run_rope_norm},
    {"rope tables", "linear, dynamic, yarn and longrope scaling, positions up to 131000", 0,
     grid_run_rope_tables},
    {"activations", "silu, gelu, gelu_tanh, swiglu_limited, width 128-28672, up to 8192 rows", 0,
     grid_run_activations},
    {"norms", "width 111-16384, with residual, in place, strided, gemma's", 0, grid_run_norms},
    {"head norms", "heads as rows, 4-16 of 64-256", 0, grid_run_head_norms},
    {"append", "every layout, page, dtype and scale, 1-8 tokens a row, uneven ones", 0,
     grid_run_append},
    {"append in turn", "45, 8, 25 and 22 tokens one after another, 32 heads", 0,
     grid_run_prefill_append},
    {"rope and append", "9 shapes of heads to fp8 pages, 1-2048 tokens", 0, grid_run_rope_append},
    {"merge", "states joined, empty ones among them", 0, grid_run_merge},
    {"shared prefix", "attention over a prefix and over the rest, joined", 0,
     grid_run_shared_prefix},
};

int32_t grid_section_count(void) {
    return (int32_t)(sizeof table / sizeof *table);
}

const grid_section *grid_section_at(int32_t index) {
    assert(index >= 0 && index < grid_section_count());
    return &table[index];
}

int64_t grid_section_cases(const grid_section *section) {
    grid_cursor cursor = {.count = 1};
    if (section->count > 0) return section->count;
    section->run(&cursor, NULL);
    return cursor.count;
}

int64_t grid_section_work(const grid_section *section, int64_t index) {
    grid_cursor cursor = {index, 1, (uint64_t)index};
    return section->run(&cursor, NULL);
}

void grid_section_run(const grid_section *section, int64_t index, grid_report *report) {
    grid_cursor cursor = {index, 1, (uint64_t)index};
    section->run(&cursor, report);
}
