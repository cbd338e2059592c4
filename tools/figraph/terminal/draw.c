/* draw.c: draws bars on stdout, from Unicode's block characters if the locale supports them, else
 * from ASCII.
 *
 * The bars of the workers stand side by side, in several lines if one is too narrow for them. A few
 * workers get wide bars with their figures beneath. Invariant: a worker with a tile shows at least
 * the lowest block, so an empty column is a worker with nothing to do. */
#include "tools/figraph/terminal/draw.h"

#include <stdio.h>

#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/report.h"

enum {
    MARGIN = 12,  /* columns beside the bars */
    HEIGHT = 4,   /* lines of a bar */
    EIGHTHS = 8,  /* eighths of a line */
    WIDE_BAR = 7, /* the widest bar, its gap included */
    FIGURES = 5   /* the narrowest bar that has its figures beneath it */
};

static const char *const blocks[EIGHTHS + 1] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const plain_blocks[EIGHTHS + 1] = {" ", ".", ".", ":", ":", ":", ":", "#", "#"};

typedef struct bar_line {
    const fig_draw_loads *loads;
    int32_t first, end; /* workers */
    int32_t bar;        /* columns of a worker */
    int wide;
} bar_line;

const char *fig_draw_mark(void) {
    return fig_report_wide() ? "▒" : "%";
}

static void print_times(const char *text, int times) {
    for (int i = 0; i < times; i++)
        fputs(text, stdout);
}

/* Returns the height of a bar of these tiles, in eighths of a line: 0 to HEIGHT * EIGHTHS. */
static int level_of(const fig_draw_loads *loads, int64_t tiles) {
    if (tiles <= 0 || loads->most <= 0) return 0;
    int level = (int)((2 * tiles * HEIGHT * EIGHTHS + loads->most) / (2 * (int64_t)loads->most));
    return level > 0 ? level : 1;
}

/* Returns what a worker's bar shows in a line. A full cell is marked if the marked tiles reach its
 * middle. */
static const char *cell_of(const bar_line *frame, int32_t worker, int line) {
    const fig_draw_loads *loads = frame->loads;
    const int below = (HEIGHT - 1 - line) * EIGHTHS;
    const int eighths = level_of(loads, loads->tiles[worker]) - below;
    const int marked = loads->marked == NULL ? 0 : level_of(loads, loads->marked[worker]) - below;
    if (eighths >= EIGHTHS && marked >= EIGHTHS / 2) return fig_draw_mark();
    const int filled = eighths < 0 ? 0 : eighths > EIGHTHS ? EIGHTHS : eighths;
    return (frame->wide ? blocks : plain_blocks)[filled];
}

static void print_line(const bar_line *frame, int line) {
    int gap = frame->bar > 1;
    for (int32_t worker = frame->first; worker < frame->end; worker++) {
        if (gap && worker > frame->first) putchar(' ');
        print_times(cell_of(frame, worker, line), frame->bar - gap);
    }
    putchar('\n');
}

/* Prints a figure under each worker's bar. Under a narrow bar it is one character, '+' past 9. */
static void print_figures(const bar_line *frame, const int32_t *figures) {
    for (int32_t worker = frame->first; worker < frame->end; worker++) {
        int32_t figure = figures[worker];
        int gap = worker > frame->first ? frame->bar - 1 : 0;
        if (frame->bar >= FIGURES) {
            printf("%*d", gap > 0 ? frame->bar : frame->bar - 1, figure);
        } else {
            printf("%*s%c", gap, "", figure > 9 ? '+' : (char)('0' + figure));
        }
    }
    putchar('\n');
}

static void print_frame(const bar_line *frame) {
    int columns = (frame->end - frame->first) * frame->bar - (frame->bar > 1);
    for (int line = 0; line < HEIGHT; line++) {
        if (line == 0) {
            printf("  %6d %s", frame->loads->most, frame->wide ? "┤" : "|");
        } else {
            printf("  %6s %s", "", frame->wide ? "│" : "|");
        }
        print_line(frame, line);
    }
    printf("  %6d %s", 0, frame->wide ? "┼" : "+");
    print_times(frame->wide ? "─" : "-", columns);
    printf("\n  %6s  ", frame->loads->counted);
    print_figures(frame, frame->loads->rows);
    if (frame->bar >= FIGURES) {
        printf("  %6s  ", "tiles");
        print_figures(frame, frame->loads->tiles);
    }
    printf("  %6s  %d to %d\n", "worker", frame->first, frame->end - 1);
}

void fig_draw_bars(const fig_draw_loads *loads) {
    const int32_t width = fig_columns() - MARGIN;
    int32_t bar = loads->workers > 0 ? width / loads->workers : 1;
    if (bar > WIDE_BAR) bar = WIDE_BAR;
    if (bar < 1) bar = 1;
    int32_t lines = (loads->workers + width - 1) / width;
    for (int32_t line = 0; line < lines; line++) {
        bar_line frame = {
            .loads = loads,
            .first = (int32_t)((int64_t)loads->workers * line / lines),
            .end = (int32_t)((int64_t)loads->workers * (line + 1) / lines),
            .bar = bar,
            .wide = fig_report_wide(),
        };
        if (line > 0) putchar('\n');
        print_frame(&frame);
    }
}
