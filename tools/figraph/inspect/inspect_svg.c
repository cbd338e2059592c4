/* inspect_svg.c: draws the launches of a bucket.
 *
 *     row 0      [fetch]
 *     row 1      [gated] [attention]
 *
 * sketch.c decides rows and columns. The drawing follows the reader's light or dark setting.
 * Invariant: everything that a colour shows is also shown by letters, strokes or a title. */
#include "tools/figraph/inspect/inspect_svg.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    BOX_WIDTH = 196,
    BOX_HEIGHT = 58,
    COLUMN_WIDTH = 224,
    ROW_HEIGHT = 104,
    MARGIN = 14,
    LINE_HEIGHT = 16,
    LETTERS = 27, /* letters in a line of a box */
    LANES = 3,    /* lanes beside a column */
    CORNER = 6
};

/* Viewers that know no variables of CSS, such as librsvg and Inkscape, skip a declaration with
 * var() and draw with the light colour in front of it. */
static const char style[] =
    ":root { color-scheme: light dark; --ink: #1b2430; --soft: #5b6675; --line: #c9d0d9;\n"
    "  --paper: #ffffff; --panel: #f4f6f9; --link: #0b57b0; --plan: #6b7280; --reads: #0b62c4;\n"
    "  --overwrites: #b45309; --workspace: #7c3aed; --rest: #0f766e; --order: #be123c; }\n"
    "@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf2; --soft: #9aa7b8;\n"
    "  --line: #3a4656; --paper: #12171e; --panel: #1b222c; --link: #7db7ff; --plan: #9aa3b2;\n"
    "  --reads: #6cb0ff; --overwrites: #f2a65a; --workspace: #b794f6; --rest: #4fd1c5;\n"
    "  --order: #fb7185; } }\n"
    ".sketch { font: 12px ui-sans-serif, system-ui, sans-serif; }\n"
    ".sketch rect { fill: #f4f6f9; fill: var(--panel); stroke: #5b6675; stroke: var(--soft);\n"
    "  stroke-width: 1; rx: 5px; }\n"
    ".sketch .call rect { rx: 18px; }\n"
    ".sketch .out rect { stroke-dasharray: 2 3; }\n"
    ".sketch .repeats rect { stroke-width: 3; }\n"
    ".sketch text { fill: #5b6675; fill: var(--soft); }\n"
    ".sketch text.name { fill: #1b2430; fill: var(--ink); font-weight: 600; }\n"
    ".sketch a:focus rect, .sketch a:hover rect { stroke: #0b57b0; stroke: var(--link);\n"
    "  stroke-width: 2; }\n"
    ".edge { fill: none; stroke-width: 1.6; }\n"
    ".edge.ends { stroke-dasharray: 6 4; }\n"
    ".plan { stroke: #6b7280; stroke: var(--plan); }\n"
    ".reads { stroke: #0b62c4; stroke: var(--reads); }\n"
    ".overwrites { stroke: #b45309; stroke: var(--overwrites); }\n"
    ".workspace { stroke: #7c3aed; stroke: var(--workspace); }\n"
    ".rest { stroke: #0f766e; stroke: var(--rest); }\n"
    ".order { stroke: #be123c; stroke: var(--order); }\n";

void fig_inspect_svg_style(fig_print *print) {
    fig_print_raw(print, style);
}

static uint32_t left_of(const fig_sketch_box *box) {
    return MARGIN + box->column * COLUMN_WIDTH;
}

static uint32_t top_of(const fig_sketch_box *box) {
    return MARGIN + box->row * ROW_HEIGHT;
}

/* ---- Edges */

/* A corner at b, on the way from a to c. Both legs of the corner are parallel to an axis. */
typedef struct point {
    int32_t x, y;
} point;

static int32_t toward(int32_t from, int32_t to) {
    const int32_t way = to - from;
    return way > CORNER ? from + CORNER : way < -CORNER ? from - CORNER : from + way / 2;
}

static void draw_corner(fig_print *print, const point *a, const point *b, const point *c) {
    fig_print_text(print, "L%" PRId32 " %" PRId32 "Q%" PRId32 " %" PRId32 " %" PRId32 " %" PRId32,
                   toward(b->x, a->x), toward(b->y, a->y), b->x, b->y, toward(b->x, c->x),
                   toward(b->y, c->y));
}

/* Draws a path from the foot of one box to the head of another. A path that passes rows in
 * between goes around their boxes, between two columns, in one of several lanes so that edges do
 * not overlap. */
static void draw_path(fig_print *print, const fig_sketch_box *from, const fig_sketch_box *to,
                      uint32_t number) {
    const int32_t x = (int32_t)left_of(from) + BOX_WIDTH / 2;
    const int32_t y = (int32_t)top_of(from) + BOX_HEIGHT;
    const int32_t to_x = (int32_t)left_of(to) + BOX_WIDTH / 2, to_y = (int32_t)top_of(to);
    if (to->row - from->row == 1) {
        const int32_t bend = (ROW_HEIGHT - BOX_HEIGHT) / 2 + 14;
        fig_print_text(print,
                       "M%" PRId32 " %" PRId32 "C%" PRId32 " %" PRId32 " %" PRId32 " %" PRId32
                       " %" PRId32 " %" PRId32,
                       x, y, x, y + bend, to_x, to_y - bend, to_x, to_y);
        return;
    }
    const int32_t lane = (int32_t)(number % LANES);
    const fig_sketch_box *beside = from->column < to->column ? from : to;
    const int32_t aside = (int32_t)left_of(beside) + BOX_WIDTH + 7 + lane * 7;
    const int32_t out = x + 24 + lane * 12, in = to_x + 24 + lane * 12;
    const point points[] = {{out, y},
                            {out, y + 12 + lane * 7},
                            {aside, y + 12 + lane * 7},
                            {aside, to_y - 12 - lane * 7},
                            {in, to_y - 12 - lane * 7},
                            {in, to_y}};
    enum { POINTS = sizeof points / sizeof points[0] };
    fig_print_text(print, "M%" PRId32 " %" PRId32, out, y);
    for (int i = 1; i + 1 < POINTS; i++)
        draw_corner(print, &points[i - 1], &points[i], &points[i + 1]);
    fig_print_text(print, "L%" PRId32 " %" PRId32, in, to_y);
}

static void draw_edge(fig_print *print, const fig_inspect_bucket *bucket, const fig_sketch *sketch,
                      const fig_sketch_edge *edge) {
    fig_print_text(print, "<path class=\"edge %s%s\" d=\"", fig_sketch_reason_name(edge->reason),
                   edge->ends ? " ends" : "");
    draw_path(print, &sketch->boxes[edge->from], &sketch->boxes[edge->to],
              (uint32_t)(edge - sketch->edges));
    fig_print_text(print, "\"><title>%" PRIu32 " to %" PRIu32 ": %s", edge->from_launch,
                   edge->to_launch, fig_sketch_reason_name(edge->reason));
    if (edge->tensor != 0) {
        fig_print_text(print, " ");
        fig_print_raw(print, bucket->view->tensors[edge->tensor - 1].name);
    }
    fig_print_text(print, "%s</title></path>\n",
                   edge->ends ? "; the later waits for the earlier's end" : "");
}

/* ---- Boxes */

/* Draws a line of a box, cut off at the box's width. */
static void draw_line(fig_print *print, const fig_sketch_box *box, uint32_t line,
                      const char *words) {
    char cut[LETTERS + 4];
    const int whole = snprintf(cut, sizeof cut - 3, "%s", words) < (int)sizeof cut - 3;
    if (!whole) snprintf(cut + LETTERS - 1, 5, "...");
    fig_print_text(print, "<text%s x=\"%" PRIu32 "\" y=\"%" PRIu32 "\">",
                   line == 0 ? " class=\"name\"" : "", left_of(box) + 10,
                   top_of(box) + 19 + line * LINE_HEIGHT);
    fig_print_raw(print, cut);
    fig_print_text(print, "</text>");
}

static void draw_launch(fig_print *print, const fig_inspect_bucket *bucket,
                        const fig_sketch_box *box) {
    const fig_inspect_launch *launch = &bucket->view->launches[box->launch];
    char name[FIG_INSPECT_OPERATION_BYTES], line[FIG_INSPECT_OPERATION_BYTES + FIG_PRINT_NUMBER];
    fig_inspect_operation(bucket, launch, name);
    snprintf(line, sizeof line, "%" PRIu32 "  %s", box->launch, name);
    draw_line(print, box, 0, line);
    if (box->layer >= 0) {
        snprintf(line, sizeof line, "layer %" PRId32, box->layer);
        draw_line(print, box, 2, line);
    }
    if (launch->is_call) return;
    snprintf(line, sizeof line, "grid %" PRIu32 "  block %" PRIu32,
             launch->grid[0] * launch->grid[1] * launch->grid[2],
             launch->block[0] * launch->block[1] * launch->block[2]);
    if (launch->left_out == 1) snprintf(line, sizeof line, "left out: the next does all");
    if (launch->left_out == 2) snprintf(line, sizeof line, "left out: no work");
    draw_line(print, box, 1, line);
}

static void draw_repeats(fig_print *print, const fig_sketch_box *box) {
    const uint32_t layers[2] = {(uint32_t)box->layer, (uint32_t)box->last_layer};
    const uint32_t launches[2] = {box->launch, box->launch + box->launch_count - 1};
    char line[FIG_PRINT_RANGE];
    draw_line(print, box, 0, fig_print_range(line, "layer", layers, ".."));
    draw_line(print, box, 1, "the same in");
    draw_line(print, box, 2, fig_print_range(line, "launch", launches, ".."));
}

static void draw_box(fig_print *print, const fig_inspect_bucket *bucket, const fig_sketch_box *box,
                     int linked) {
    const fig_inspect_launch *launch = &bucket->view->launches[box->launch];
    const char *kind = box->repeats       ? "repeats"
                       : launch->is_call  ? "call"
                       : launch->left_out ? "out"
                                          : "kernel";
    if (linked) fig_print_text(print, "<a href=\"#launch-%" PRIu32 "\">", box->launch);
    fig_print_text(print,
                   "<g class=\"%s\"><rect x=\"%" PRIu32 "\" y=\"%" PRIu32
                   "\" width=\"%d\" height=\"%d\"/>",
                   kind, left_of(box), top_of(box), BOX_WIDTH, BOX_HEIGHT);
    if (box->repeats) draw_repeats(print, box);
    if (!box->repeats) draw_launch(print, bucket, box);
    fig_print_text(print, "</g>%s\n", linked ? "</a>" : "");
}

static void draw(fig_print *print, const fig_inspect_bucket *bucket, const fig_sketch *sketch,
                 int alone) {
    /* includes the lanes */
    const uint32_t width = 2 * MARGIN + sketch->column_count * COLUMN_WIDTH;
    const uint32_t height = 2 * MARGIN + (sketch->row_count - 1) * ROW_HEIGHT + BOX_HEIGHT;
    fig_print_text(print,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"sketch\" role=\"%s\" "
                   "aria-label=\"launches of bucket %" PRIu32 "\" ",
                   alone ? "img" : "group", bucket->index + 1);
    fig_print_text(print,
                   "width=\"%" PRIu32 "\" height=\"%" PRIu32 "\" viewBox=\"0 0 %" PRIu32 " %" PRIu32
                   "\">\n",
                   width, height, width, height);
    if (alone) {
        fig_print_raw(print, "<style>\n");
        fig_inspect_svg_style(print);
        fig_print_raw(print, "svg { background: #ffffff; background: var(--paper); }\n</style>\n");
    }
    for (uint32_t i = 0; i < sketch->edge_count; i++)
        draw_edge(print, bucket, sketch, &sketch->edges[i]);
    for (uint32_t i = 0; i < sketch->box_count; i++)
        draw_box(print, bucket, &sketch->boxes[i], !alone);
    fig_print_raw(print, "</svg>\n");
}

void fig_inspect_svg_draw(fig_print *print, const fig_inspect_bucket *bucket,
                          const fig_sketch *sketch) {
    draw(print, bucket, sketch, 0);
}

void fig_inspect_svg_print(fig_print *print, const fig_inspect_bucket *bucket,
                           const fig_sketch *sketch) {
    draw(print, bucket, sketch, 1);
}
