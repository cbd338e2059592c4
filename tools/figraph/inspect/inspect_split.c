/* inspect_split.c: draws the distribution of a step's tiles among workers, within a page.
 *
 * Goes through rows and workers side by side, in the order of the tiles. Invariant: colours
 * repeat, so each colour's meaning is also in a title. */
#include "tools/figraph/inspect/inspect_split.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    LEFT = 48, /* the width of the tile axis's labels */
    WIDTH = 1200,
    HEIGHT = 170,
    BELOW = 34, /* the height of the worker axis's labels */
    ABOVE = 12,
    COLOURS = 8,
    NARROW_TOKENS = 8 /* rows of more query tokens are chunks, where rows can be chunks */
};

static const char style[] =
    ":root { --row0: #2563eb; --row1: #ea8a12; --row2: #0f9f6e; --row3: #b83280; --row4: #7c5cd6;\n"
    "  --row5: #b8860b; --row6: #0891b2; --row7: #d1495b; }\n"
    ".bars { width: 100%; height: auto; display: block; font: 12px ui-sans-serif, system-ui,\n"
    "  sans-serif; background: var(--panel); border-radius: 6px; }\n"
    ".bars text { fill: var(--soft); } .bars line { stroke: var(--line); }\n"
    ".bars rect:hover { opacity: .6; }\n"
    ".row0 { fill: var(--row0); } .row1 { fill: var(--row1); } .row2 { fill: var(--row2); }\n"
    ".row3 { fill: var(--row3); } .row4 { fill: var(--row4); } .row5 { fill: var(--row5); }\n"
    ".row6 { fill: var(--row6); } .row7 { fill: var(--row7); }\n";

void fig_inspect_split_style(fig_print *print) {
    fig_print_raw(print, style);
}

/* Tiles begin at multiples of their size; the first tile is the one that holds the first visible
 * token. Idle rows and chunks have none. */
static int64_t row_tiles(const fig_inspect_split_bars *bars, int32_t row) {
    const int32_t tile = bars->report.tile_tokens, length = bars->step->kv_lengths[row];
    const int32_t *counts = bars->step->query_counts;
    const int32_t queries = counts != NULL ? counts[row] : bars->of->row_tokens;
    const int is_chunk = bars->report.strip_workers > 0 && queries > NARROW_TOKENS;
    int32_t first = length - queries + 1 - bars->of->window;
    if (length == 0 || queries == 0 || is_chunk) return 0;
    if (bars->of->window == 0 || first < 0) first = 0;
    const int32_t tiles = (length + tile - 1) / tile - first / tile;
    return (int64_t)tiles * (bars->of->kv_heads / bars->report.heads);
}

/* Returns tenths of a unit of the drawing. */
static int64_t height_of(const fig_inspect_split_bars *bars, int64_t tiles) {
    return tiles * HEIGHT * 10 / bars->report.tiles_most;
}

static int64_t left_of(const fig_inspect_split_bars *bars, int32_t worker) {
    return LEFT * 10 + (int64_t)worker * (WIDTH - LEFT - 8) * 10 / bars->report.workers;
}

static void print_tenths(fig_print *print, const char *name, int64_t tenths) {
    fig_print_text(print, " %s=\"%" PRId64 ".%d\"", name, tenths / 10, (int)(tenths % 10));
}

/* Draws tiles [below, below + tiles) of a worker. */
static void draw_piece(fig_print *print, const fig_inspect_split_bars *bars, int32_t worker,
                       int32_t row, const int64_t span[2]) {
    const int64_t wide = left_of(bars, worker + 1) - left_of(bars, worker);
    const int64_t top = height_of(bars, span[0] + span[1]), foot = height_of(bars, span[0]);
    fig_print_text(print, "<rect class=\"row%" PRId32 "\"", row % COLOURS);
    print_tenths(print, "x", left_of(bars, worker));
    print_tenths(print, "y", (ABOVE + HEIGHT) * 10 - top);
    print_tenths(print, "width", wide > 20 ? wide - 10 : wide);
    print_tenths(print, "height", top - foot);
    fig_print_text(print,
                   "><title>worker %" PRId32 ": %" PRId64 " of %" PRId32
                   " tiles are of row %" PRId32 "</title></rect>\n",
                   worker, span[1], bars->report.worker_tiles[worker], row);
}

static void draw_pieces(fig_print *print, const fig_inspect_split_bars *bars) {
    const fig_plan_report *report = &bars->report;
    int32_t worker = 0;
    int64_t taken = 0; /* tiles already drawn for this worker */
    for (int32_t row = 0; row < bars->step->rows; row++) {
        int64_t tiles = row_tiles(bars, row);
        while (tiles > 0) {
            while (worker < report->workers && taken == report->worker_tiles[worker]) {
                worker++;
                taken = 0;
            }
            if (worker == report->workers) return;
            const int64_t left = report->worker_tiles[worker] - taken;
            const int64_t span[2] = {taken, tiles < left ? tiles : left};
            draw_piece(print, bars, worker, row, span);
            taken += span[1];
            tiles -= span[1];
        }
    }
}

/* Returns the step of an axis: 1, 2 or 5 times a power of ten, such that the axis has at most
 * `most` marks. */
static int32_t step_of(int32_t count, int32_t most) {
    int32_t step = 1;
    for (int i = 0; count / step > most; i++)
        step = i % 3 == 1 ? step / 2 * 5 : step * 2;
    return step;
}

static void draw_axes(fig_print *print, const fig_inspect_split_bars *bars) {
    const fig_plan_report *report = &bars->report;
    const int32_t tiles = step_of(report->tiles_most, 4), workers = step_of(report->workers, 24);
    for (int32_t t = 0; t <= report->tiles_most; t += tiles) {
        const int64_t y = (ABOVE + HEIGHT) * 10 - height_of(bars, t);
        fig_print_text(print, "<line x1=\"%d\" x2=\"%d\"", LEFT - 4, WIDTH - 8);
        print_tenths(print, "y1", y);
        print_tenths(print, "y2", y);
        fig_print_text(print, "/><text x=\"%d\" text-anchor=\"end\"", LEFT - 8);
        print_tenths(print, "y", y + 40);
        fig_print_text(print, ">%" PRId32 "</text>\n", t);
    }
    for (int32_t w = 0; w < report->workers; w += workers) {
        const int64_t x = (left_of(bars, w) + left_of(bars, w + 1)) / 2;
        fig_print_text(print, "<text text-anchor=\"middle\" y=\"%d\"", ABOVE + HEIGHT + 15);
        print_tenths(print, "x", x);
        fig_print_text(print, ">%" PRId32 "</text>\n", w);
    }
    fig_print_text(print, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">worker</text>\n",
                   (LEFT + WIDTH) / 2, ABOVE + HEIGHT + 30);
    fig_print_text(print,
                   "<text transform=\"translate(12 %d) rotate(-90)\" text-anchor=\"middle\">",
                   ABOVE + HEIGHT / 2);
    fig_print_raw(print, "tiles</text>\n");
}

void fig_inspect_split_draw(fig_print *print, const fig_inspect_split_bars *bars) {
    fig_print_text(print,
                   "<svg class=\"bars\" role=\"img\" aria-label=\"tiles of each worker\" "
                   "viewBox=\"0 0 %d %d\">\n",
                   WIDTH, ABOVE + HEIGHT + BELOW);
    draw_axes(print, bars);
    draw_pieces(print, bars);
    fig_print_raw(print, "</svg>\n");
}
