/* plan.h: the bytes that one step sends to the device, and what becomes of them there.
 *
 *     device  [head][lengths][positions][sequences][tokens][prefix, starts of class 0]..
 *     slot    [head][lengths][sequences][positions][tokens][prefix, starts of class 0]..[pages]
 *
 * A plan on the device has its sections where the bucket's shape says, so that kernels hold their
 * offsets. In a slot they stand close together, cut to the step's rows, and only those that the
 * device does not hold yet: a step that but grows by a token sends lengths, and where a row grew
 * into another tile the split. Owns both layouts and the writing of them; the ring owns the slots.
 * Invariant: what a plan leaves out is what the plan before it, of the same exec, left on the
 * device. Read by nvcc. */
#ifndef FIG_PLANNER_PLAN_H
#define FIG_PLANNER_PLAN_H

#include "include/figraph.h"
#include "planner/split.h"

/* Sections that a slot has. */
enum {
    FIG_PLAN_HAS_LENGTHS = 1, /* and positions follow from them where it has none of those */
    FIG_PLAN_HAS_SEQUENCES = 2,
    FIG_PLAN_HAS_POSITIONS = 4,
    FIG_PLAN_HAS_SPLITS = 8,    /* of every class */
    FIG_PLAN_HAS_CHECKSUM = 16, /* in the head */
    FIG_PLAN_HAS_TOKENS = 32    /* some row has fewer than the spec's row_tokens; this plan alone */
};

/* Of a plan in a slot and of one on the device. `tag` is 0 in a plan nobody staged, else
 * fig_plan_tag of its number, and the ring's to write; the n-th plan staged has n. */
typedef struct fig_plan_head {
    uint64_t tag;
    uint32_t bytes; /* of the slot, this head included; a multiple of 16 */
    uint32_t exec;  /* the one that runs it, of those that the buckets share */
    int32_t rows;
    uint32_t sections;   /* FIG_PLAN_HAS_* */
    int32_t horizon;     /* launches that it is for, 1 at least */
    int32_t row_tokens;  /* that a row grows by from one of them to the next; 0: it does not grow */
    uint32_t page_count; /* entries of page tables that it changes */
    int32_t advanced;    /* on the device: tokens that rows have grown by since they were fetched */
    uint64_t checksum;   /* fig_plan_sum; of a short plan always */
    int32_t tile_limits[FIG_CLASS_LIMIT]; /* most tiles on a line of its bucket */
} fig_plan_head;
static_assert(sizeof(fig_plan_head) == 64, "plan layout");

/* An entry of a page table, by where it lies on the device. */
typedef struct fig_plan_page {
    uint64_t address;
    int32_t page;
    uint32_t reserved;
} fig_plan_page;
static_assert(sizeof(fig_plan_page) == 16, "plan layout");

/* Number, and how many pieces of 16 bytes to read; the most that a tag can say means: at least. */
enum { FIG_PLAN_TAG_BITS = 16, FIG_PLAN_TAG_MOST = (1 << FIG_PLAN_TAG_BITS) - 1 };
FIG_BOTH uint64_t fig_plan_tag(uint64_t number, uint32_t bytes) {
    uint32_t pieces = bytes / 16;
    return number << FIG_PLAN_TAG_BITS |
           (pieces < FIG_PLAN_TAG_MOST ? pieces : (uint32_t)FIG_PLAN_TAG_MOST);
}
FIG_BOTH uint64_t fig_plan_tag_number(uint64_t tag) {
    return tag >> FIG_PLAN_TAG_BITS;
}
/* To be read of a slot that has this tag: a head at least, and no more than a slot has. */
FIG_BOTH uint32_t fig_plan_tag_bytes(uint64_t tag, uint32_t slot_bytes) {
    const uint32_t pieces = (uint32_t)tag & FIG_PLAN_TAG_MOST;
    const uint32_t bytes = pieces < FIG_PLAN_TAG_MOST ? pieces * 16 : slot_bytes;
    if (bytes < sizeof(fig_plan_head)) return sizeof(fig_plan_head);
    return bytes < slot_bytes ? bytes : slot_bytes;
}

/* Byte offsets from the head on the device, each a multiple of 16. */
typedef struct fig_plan_layout {
    uint32_t lengths;                 /* [row_limit] */
    uint32_t positions;               /* [row_limit] */
    uint32_t sequences;               /* [row_limit] */
    uint32_t tokens;                  /* [row_limit]; 0: no section, as each row has one token */
    uint32_t prefix[FIG_CLASS_LIMIT]; /* [row_limit + 1] */
    uint32_t starts[FIG_CLASS_LIMIT]; /* [workers] */
    uint32_t bytes; /* of the largest plan, here or in a slot, pages apart: the bound */
} fig_plan_layout;

/* A step with every default filled in. */
typedef struct fig_plan_step {
    int32_t rows;
    const int32_t *lengths;   /* [rows]; NULL: the device knows them */
    const int32_t *positions; /* [rows]; NULL: length - 1, and 0 for an idle row */
    const int32_t *sequences; /* [rows]; NULL: row r is sequence r */
    const int32_t *tokens;    /* [rows] how many of a row's queries are tokens; NULL: all */
    int64_t token_limit;      /* most tokens in all, where lengths is NULL; else unread */
    int32_t bucket;           /* n: the n-th, from 1; 0: the cheapest that fits */
    int32_t horizon;          /* 1 at least */
    int32_t row_tokens;       /* that a row grows by from one launch to the next */
} fig_plan_step;

/* In params, which buckets share, a split's tile_limit is 0: a plan's head has its bucket's. */
typedef struct fig_plan_shape {
    uint32_t exec;
    int32_t row_limit, class_count;
    int32_t row_tokens; /* most query tokens of a row */
    fig_split_shape splits[FIG_CLASS_LIMIT];
    fig_plan_layout layout;
} fig_plan_shape;

/* Tokens that a row may grow by under the step's split. */
FIG_BOTH int32_t fig_plan_ahead(const fig_plan_step *step) {
    return (step->horizon - 1) * step->row_tokens;
}

/* Tokens of a row, or 0 where its length is none that every class can serve. */
FIG_BOTH int32_t fig_plan_length(const fig_plan_shape *shape, int32_t kv_limit, int32_t length) {
    if (length < 0 || length > kv_limit) return 0;
    for (int32_t i = 0; i < shape->class_count; i++)
        if (length < shape->splits[i].row_tokens) return 0;
    return length;
}

/* 1: the head names no section for which a plan of this shape has no place. */
FIG_BOTH int fig_plan_has_places(const fig_plan_shape *shape, const fig_plan_head *head) {
    return shape->layout.tokens != 0 || !(head->sections & FIG_PLAN_HAS_TOKENS);
}

/* Where a row of this length stands unless the step says it; an idle one at 0. */
FIG_BOTH int32_t fig_plan_last_token(int32_t length) {
    return length > 0 ? length - 1 : 0;
}

/* Length of a row before it grew. */
FIG_BOTH int32_t fig_plan_length_before(const fig_plan_head *head, int32_t length) {
    return length > 0 ? length - head->advanced : 0;
}

/* Where the sections of a slot begin; where one is absent, so does the next. Each begins at a
 * multiple of 16. */
typedef struct fig_plan_places {
    uint32_t lengths, sequences, positions, tokens;
    uint32_t prefix[FIG_CLASS_LIMIT], starts[FIG_CLASS_LIMIT];
    uint32_t pages; /* [page_count] */
    uint32_t bytes;
} fig_plan_places;

FIG_BOTH uint32_t fig_plan_take(uint32_t *end, int32_t count, uint32_t item_bytes, uint32_t has) {
    uint32_t place = *end;
    if (has) *end = (place + (uint32_t)count * item_bytes + 15) / 16 * 16;
    return place;
}

/* From the head's rows, sections and page_count alone. */
FIG_BOTH fig_plan_places fig_plan_places_of(const fig_plan_shape *shape,
                                            const fig_plan_head *head) {
    fig_plan_places places;
    uint32_t end = sizeof(fig_plan_head), splits = head->sections & FIG_PLAN_HAS_SPLITS;
    places.lengths = fig_plan_take(&end, head->rows, 4, head->sections & FIG_PLAN_HAS_LENGTHS);
    places.sequences = fig_plan_take(&end, head->rows, 4, head->sections & FIG_PLAN_HAS_SEQUENCES);
    places.positions = fig_plan_take(&end, head->rows, 4, head->sections & FIG_PLAN_HAS_POSITIONS);
    places.tokens = fig_plan_take(&end, head->rows, 4, head->sections & FIG_PLAN_HAS_TOKENS);
    for (int32_t i = 0; i < FIG_CLASS_LIMIT; i++) {
        uint32_t has = i < shape->class_count ? splits : 0;
        places.prefix[i] = fig_plan_take(&end, head->rows + 1, 4, has);
        places.starts[i] =
            fig_plan_take(&end, has ? shape->splits[i].workers : 0, sizeof(fig_split_start), has);
    }
    places.pages = fig_plan_take(&end, (int32_t)head->page_count, sizeof(fig_plan_page), 1);
    places.bytes = end;
    return places;
}

/* A term of a plan's checksum: of the n-th word of 32 bits of its slot. Terms are added, in any
 * order; words that change places or go missing change the sum. The halves are folded last: what a
 * word adds would not depend on its place otherwise. */
FIG_BOTH uint64_t fig_plan_term(uint32_t n, uint32_t word) {
    uint64_t term = ((uint64_t)n + 1) * 0x9e3779b97f4a7c15u + word * 0xbf58476d1ce4e5b9u;
    return term ^ term >> 32;
}
/* Of its number, so that no plan that lay in the slot before passes for it. */
FIG_BOTH uint64_t fig_plan_number_term(uint64_t number) {
    return number * 0x94d049bb133111ebu;
}
/* 1: the n-th word counts: it is none of the tag's, which is written last, nor the checksum's. */
FIG_BOTH int fig_plan_is_summed(uint32_t n) {
    return n >= 2 && n / 2 != offsetof(fig_plan_head, checksum) / sizeof(uint64_t);
}

/* A plan of so few bytes is short: a warp of the device sees it at one glance, and knows by the
 * checksum whether it saw all of it as it was published. */
enum { FIG_PLAN_SHORT_BYTES = 512 };

/* What the device holds of the plan before, as far as its host can know. */
typedef struct fig_plan_held {
    int32_t exec; /* that it was for; -1: nothing is held */
    int32_t rows;
    int32_t *sequences;               /* [row_limit] of the largest bucket */
    int32_t *prefix[FIG_CLASS_LIMIT]; /* [row_limit + 1] */
} fig_plan_held;

/* Fills shape->layout from the rest. */
void fig_plan_lay_out(fig_plan_shape *shape);

/* A plan that holds nothing; row_limit: of the largest bucket. finish takes a zeroed one. */
fig_status fig_plan_held_init(fig_plan_held *held, int32_t row_limit);
void fig_plan_held_finish(fig_plan_held *held);

/* Two halves of writing a slot. settle: decides which sections travel, and brings `held` to what
 * the device will hold. write: writes them, and the head but for tag, pages and checksum; returns
 * the bytes used. `slot` is 16-byte aligned and only written, since it may be slow to read back.
 * Both are O(rows + workers). */
uint32_t fig_plan_settle(const fig_plan_shape *shape, const fig_plan_step *step,
                         fig_plan_held *held); /* FIG_PLAN_HAS_* */
uint32_t fig_plan_write(const fig_plan_shape *shape, const fig_plan_step *step, uint32_t sections,
                        const fig_plan_held *held, uint8_t *slot);
/* Adds pages behind what was written; returns the bytes used. */
uint32_t fig_plan_add_pages(uint8_t *slot, const fig_plan_page *pages, uint32_t count);
/* Of a slot that holds plan `number`, or will. */
uint64_t fig_plan_sum(const uint8_t *slot, uint32_t bytes, uint64_t number);

/* Writes what follows from the lengths into a plan on the device: they themselves, positions and
 * the splits. step->lengths may be the plan's own. */
void fig_plan_write_lengths(const fig_plan_shape *shape, const fig_plan_step *step, uint8_t *plan);

/* What the fetch makes of a slot: puts its head and sections, in whole pieces of 16 bytes, into the
 * plan. A section that is absent stays as it was; pages are the fetch's own business. */
void fig_plan_unpack(const fig_plan_shape *shape, const uint8_t *slot, uint8_t *plan);

#endif
