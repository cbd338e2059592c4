/* grid_sections.h: declares the functions that run the cases of each section. grid_sections.c says
 * what each covers. */
#ifndef FIG_TESTS_GRID_GRID_SECTIONS_H
#define FIG_TESTS_GRID_GRID_SECTIONS_H

#include "tests/grid/grid.h"

int64_t grid_run_batch_decode(grid_cursor *cursor, grid_report *report);
int64_t grid_run_ragged_decode(grid_cursor *cursor, grid_report *report);
int64_t grid_run_replan(grid_cursor *cursor, grid_report *report);
int64_t grid_run_multi_token(grid_cursor *cursor, grid_report *report);
int64_t grid_run_single(grid_cursor *cursor, grid_report *report);
int64_t grid_run_layouts(grid_cursor *cursor, grid_report *report);
int64_t grid_run_invariance(grid_cursor *cursor, grid_report *report);
int64_t grid_run_fp8_single(grid_cursor *cursor, grid_report *report);
int64_t grid_run_fp8_batch(grid_cursor *cursor, grid_report *report);
int64_t grid_run_window_single(grid_cursor *cursor, grid_report *report);
int64_t grid_run_window_batch(grid_cursor *cursor, grid_report *report);
int64_t grid_run_soft_cap(grid_cursor *cursor, grid_report *report);
int64_t grid_run_alibi(grid_cursor *cursor, grid_report *report);
int64_t grid_run_strided(grid_cursor *cursor, grid_report *report);
int64_t grid_run_tuples(grid_cursor *cursor, grid_report *report);
int64_t grid_run_mixes(grid_cursor *cursor, grid_report *report);
int64_t grid_run_mixed_queries(grid_cursor *cursor, grid_report *report);
int64_t grid_run_extreme_logits(grid_cursor *cursor, grid_report *report);
int64_t grid_run_random(grid_cursor *cursor, grid_report *report);
int64_t grid_run_bucket_edges(grid_cursor *cursor, grid_report *report);
int64_t grid_run_rope_packed(grid_cursor *cursor, grid_report *report);
int64_t grid_run_rope_positions(grid_cursor *cursor, grid_report *report);
int64_t grid_run_rope_cache(grid_cursor *cursor, grid_report *report);
int64_t grid_run_rope_norm(grid_cursor *cursor, grid_report *report);
int64_t grid_run_rope_tables(grid_cursor *cursor, grid_report *report);
int64_t grid_run_activations(grid_cursor *cursor, grid_report *report);
int64_t grid_run_norms(grid_cursor *cursor, grid_report *report);
int64_t grid_run_head_norms(grid_cursor *cursor, grid_report *report);
int64_t grid_run_append(grid_cursor *cursor, grid_report *report);
int64_t grid_run_prefill_append(grid_cursor *cursor, grid_report *report);
int64_t grid_run_rope_append(grid_cursor *cursor, grid_report *report);
int64_t grid_run_merge(grid_cursor *cursor, grid_report *report);
int64_t grid_run_shared_prefix(grid_cursor *cursor, grid_report *report);

#endif
