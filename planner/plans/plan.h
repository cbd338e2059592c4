/* plan.h: defines the bytes that one step sends to the device, and the plan that the device makes
 * from them.
 *
 *     device  [head][lengths][positions][sequences][tokens][queries][prefix, starts of class 0]..
 *             ..[strips]
 *     slot    [head][lengths][sequences][positions][tokens][queries][prefix, starts of class 0]..
 *             ..[strips][pages]
 *
 * A plan on the device has its sections at the offsets that the bucket's shape gives, so kernels
 * can hold these offsets. In a slot of the plan ring, the sections are packed and hold only the
 * step's rows. A slot has only the sections that the device does not hold yet. For example, if
 * every row only grew by a token, the slot has lengths, and also the split if a row grew into
 * another tile. This file owns both layouts and writes both; the ring owns the slots. Invariant: a
 * section that a slot leaves out is still on the device from the preceding plan of the same exec.
 * Read by nvcc. */
#ifndef FIG_PLANNER_PLAN_H
#define FIG_PLANNER_PLAN_H

#include "include/figraph.h"
#include "planner/plans/division.h"
#include "planner/plans/strip_groups.h"
#include "planner/plans/strip_rows.h"
#include "planner/split/split.h"

/* Bits of fig_plan_head.sections: the sections that a slot has. */
enum {
    FIG_PLAN_HAS_LENGTHS = 1, /* without HAS_POSITIONS, positions follow from the lengths */
    FIG_PLAN_HAS_SEQUENCES = 2,
    FIG_PLAN_HAS_POSITIONS = 4,
    FIG_PLAN_HAS_SPLITS = 8,    /* the splits of all classes */
    FIG_PLAN_HAS_CHECKSUM = 16, /* the head has a checksum */
    FIG_PLAN_HAS_TOKENS = 32,   /* some row has padding; the section is sent in each such step */
    FIG_PLAN_BY_UNITS = 64,     /* not a section; 1: some split on the device is cut by units */
    FIG_PLAN_HAS_QUERIES = 128, /* the query tokens of each row; only in packed programs */
    FIG_PLAN_HAS_STRIPS = 256,  /* the strips of all classes; only if rows may be chunks */
    /* not a section: in classes whose mask the planner knows, hidden tiles are not on the line */
    FIG_PLAN_BY_MASKS = 512,
    FIG_PLAN_BY_TAILS = 1024 /* not a section; 1: the strips on the device begin with tails */
};

/* The head of a plan, in a slot and on the device. The n-th staged plan has number n. `tag` is
 * fig_plan_tag() of that number, and only the ring writes it; it is 0 if the plan was never
 * staged. */
typedef struct fig_plan_head {
    uint64_t tag;
    uint32_t bytes; /* bytes of the slot, this head included; a multiple of 16 */
    uint32_t exec;  /* the exec that runs the plan; buckets may share an exec */
    int32_t rows;
    uint32_t sections;  /* FIG_PLAN_HAS_*, and fig_plan_stamp() in the upper half */
    int32_t horizon;    /* number of launches that use the plan, at least 1 */
    int32_t row_tokens; /* tokens by which a row grows from launch to launch; 0: rows do not grow */
    uint32_t page_count; /* entries of page tables that the plan changes */
    int32_t advanced;    /* on the device: tokens by which rows have grown since the fetch */
    uint64_t checksum;   /* fig_plan_sum(); every short plan has one */
    int32_t tile_limits[FIG_CLASS_LIMIT]; /* most tiles on any line of the plan's bucket */
} fig_plan_head;
static_assert(sizeof(fig_plan_head) == 64, "plan layout");

/* The stamp of a plan counts the damaged plans that the host knew of when it staged this one,
 * modulo 65536. A plan behind a damaged one relies on its page table entries, so the device refuses
 * it if the host did not yet know of the damage. */
enum { FIG_PLAN_STAMP_SHIFT = 16 };
FIG_BOTH uint32_t fig_plan_stamp(uint64_t torn) {
    return (uint32_t)torn << FIG_PLAN_STAMP_SHIFT;
}
FIG_BOTH int fig_plan_is_late(const fig_plan_head *head, uint64_t torn) {
    return head->sections >> FIG_PLAN_STAMP_SHIFT != fig_plan_stamp(torn) >> FIG_PLAN_STAMP_SHIFT;
}

/* A new value for one entry of a page table; `address` is the entry's address on the device. */
typedef struct fig_plan_page {
    uint64_t address;
    int32_t page;
    uint32_t reserved;
} fig_plan_page;
static_assert(sizeof(fig_plan_page) == 16, "plan layout");

/* A tag holds a plan's number and the number of 16-byte pieces to read. FIG_PLAN_TAG_MOST stands
 * for that number of pieces or more. */
enum { FIG_PLAN_TAG_BITS = 16, FIG_PLAN_TAG_MOST = (1 << FIG_PLAN_TAG_BITS) - 1 };
FIG_BOTH uint64_t fig_plan_tag(uint64_t number, uint32_t bytes) {
    uint32_t pieces = bytes / 16;
    return number << FIG_PLAN_TAG_BITS |
           (pieces < FIG_PLAN_TAG_MOST ? pieces : (uint32_t)FIG_PLAN_TAG_MOST);
}
FIG_BOTH uint64_t fig_plan_tag_number(uint64_t tag) {
    return tag >> FIG_PLAN_TAG_BITS;
}
/* Returns 1 if the tag, by which the slot was found and copied, gives the same number of bytes as
 * the head. */
FIG_BOTH int fig_plan_is_tagged(const fig_plan_head *head, uint64_t number, uint32_t slot_bytes) {
    return head->tag == fig_plan_tag(number, head->bytes) && head->bytes >= sizeof *head &&
           head->bytes <= slot_bytes;
}
/* Returns the bytes to read from a slot that has this tag: at least a head, at most the slot. */
FIG_BOTH uint32_t fig_plan_tag_bytes(uint64_t tag, uint32_t slot_bytes) {
    const uint32_t pieces = (uint32_t)tag & FIG_PLAN_TAG_MOST;
    const uint32_t bytes = pieces < FIG_PLAN_TAG_MOST ? pieces * 16 : slot_bytes;
    if (bytes < sizeof(fig_plan_head)) return sizeof(fig_plan_head);
    return bytes < slot_bytes ? bytes : slot_bytes;
}

/* Byte offsets from the head of a plan on the device, each a multiple of 16. */
typedef struct fig_plan_layout {
    uint32_t lengths;   /* [row_limit] */
    uint32_t positions; /* [row_limit] */
    uint32_t sequences; /* [row_limit] */
    uint32_t tokens;    /* [row_limit]; 0: no such section, because each row has one token */
    uint32_t prefix[FIG_CLASS_LIMIT]; /* [row_limit + 1] */
    uint32_t starts[FIG_CLASS_LIMIT]; /* [workers] */
    uint32_t bytes;   /* upper bound on a plan's bytes, on the device or in a slot, without pages */
    uint32_t queries; /* [row_limit + 2] see fig_plan_queries; 0: the program is not packed */
} fig_plan_layout;    /* the strips come last: fig_plan_strips_place() gives their offset */

/* Groups of rows that begin with the same pages. Strips read these pages once for all rows of a
 * group. */
typedef struct fig_plan_groups {
    int32_t count;
    const fig_strip_group *of; /* [count] each comes after the groups that enclose it */
    const int32_t *order;      /* row numbers; each group's rows are a range of this array */
} fig_plan_groups;

/* A step with every default filled in. */
typedef struct fig_plan_step {
    int32_t rows;
    const int32_t *lengths;   /* [rows]; NULL: the device knows them */
    const int32_t *positions; /* [rows]; NULL: length - 1, and 0 for an idle row */
    const int32_t *sequences; /* [rows]; NULL: row r is sequence r */
    /* The number of sequences; 0: at least as many as rows. If no sequences are given, rows beyond
     * it are idle, and name sequence 0: a kernel may look at the page table of an idle row. */
    int32_t sequence_limit;
    const int32_t *tokens; /* [rows] queries of each row that are no padding; NULL: all */
    /* [rows] in a packed program, the number of query tokens of each row; NULL: row_tokens each. A
     * row without query tokens is idle, whatever its length. */
    const int32_t *queries;
    int64_t token_limit; /* largest sum of all rows' tokens; read only if lengths is NULL */
    int32_t bucket;      /* number of a bucket, from 1; 0: the cheapest that fits */
    int32_t horizon;     /* at least 1 */
    int32_t row_tokens;  /* tokens by which a row grows from launch to launch */
    const fig_plan_groups *groups; /* NULL: no rows share tokens */
    /* [class] fig_split_rows.hidden of each class; NULL: no tile is hidden. Buckets are chosen
     * without it. */
    const int32_t *const *hidden;
    /* [class] that of the bucket; NULL: workers are not divided between rows and chunks */
    const fig_division_pace *paces;
    int32_t serves_tails; /* 1: the launches of the step's bucket can read tails, see paces, too */
} fig_plan_step;

/* The part of a bucket that plans depend on. Several buckets may share one copy in a kernel's
 * params. In that copy the tile_limit of each split is 0; a plan's head has the tile_limits of its
 * bucket. */
typedef struct fig_plan_shape {
    uint32_t exec;
    int32_t row_limit, class_count;
    int32_t row_tokens; /* largest number of query tokens in a row */
    fig_split_shape splits[FIG_CLASS_LIMIT];
    int32_t once[FIG_CLASS_LIMIT]; /* see units.h; 0: this split is cut only by tiles */
    fig_plan_layout layout;
    int32_t query_limit; /* largest number of query tokens in a step; 0: not packed */
} fig_plan_shape;

/* How each class of a program cuts its chunks. All zeros if no row can be a chunk. */
typedef struct fig_plan_strips {
    fig_strips_shape of[FIG_CLASS_LIMIT];
} fig_plan_strips;

/* Returns the tokens by which a row may grow under the step's split. */
FIG_BOTH int32_t fig_plan_ahead(const fig_plan_step *step) {
    return (step->horizon - 1) * step->row_tokens;
}

/* Returns the length to plan for a row with `queries` query tokens, or 0 if the row is idle or some
 * class cannot serve that length. */
FIG_BOTH int32_t fig_plan_length(const fig_plan_shape *shape, int32_t kv_limit, int32_t length,
                                 int32_t queries) {
    if (length < 0 || length > kv_limit) return 0;
    if (shape->query_limit > 0) return length < queries || queries == 0 ? 0 : length;
    for (int32_t i = 0; i < shape->class_count; i++)
        if (length < shape->splits[i].row_tokens) return 0;
    return length;
}

/* Returns the offset of the strips. They are the last section, so their offset is the end of the
 * section before them. */
FIG_BOTH uint32_t fig_plan_strips_place(const fig_plan_shape *shape) {
    const int32_t last = shape->class_count - 1;
    if (last < 0) return shape->layout.bytes;
    return shape->layout.starts[last] +
           (uint32_t)shape->splits[last].workers * (uint32_t)sizeof(fig_split_start);
}

/* Returns the bytes that a plan has room for in its strips, or 0 if no row of the program can be a
 * chunk. */
FIG_BOTH uint32_t fig_plan_strips_room(const fig_plan_shape *shape) {
    return shape->layout.bytes - fig_plan_strips_place(shape);
}

/* Returns 1 if a plan of this shape has a place for every section that the head names. */
FIG_BOTH int fig_plan_has_places(const fig_plan_shape *shape, const fig_plan_head *head) {
    if (fig_plan_strips_room(shape) == 0 && (head->sections & FIG_PLAN_HAS_STRIPS)) return 0;
    if (shape->layout.queries == 0 && (head->sections & FIG_PLAN_HAS_QUERIES)) return 0;
    return shape->layout.tokens != 0 || !(head->sections & FIG_PLAN_HAS_TOKENS);
}

/* Returns the sections that a plan must have unless the device holds them. If the host does not
 * know the lengths, a later node makes every section that follows from the lengths. */
FIG_BOTH uint32_t fig_plan_all_sections(const fig_plan_shape *shape, const fig_plan_head *head) {
    uint32_t all = FIG_PLAN_HAS_SEQUENCES;
    if ((head->sections & FIG_PLAN_HAS_LENGTHS) == 0) return all;
    if (shape->query_limit > 0) all |= FIG_PLAN_HAS_QUERIES;
    if (fig_plan_strips_room(shape) > 0) all |= FIG_PLAN_HAS_STRIPS;
    return all | FIG_PLAN_HAS_SPLITS;
}

/* ---- Query tokens of a packed program ----------------------------------------------------------
 *
 * The section holds 1 + row_limit + 1 numbers: the step's number of query tokens, then for each row
 * the index of its first query token, then the number of query tokens once more:
 *
 *     rows of 2, 0 and 3 tokens    5 | 0 2 2 5
 *
 * The first number has a fixed place, so a kernel that works token by token finds the number of
 * query tokens without knowing the number of rows. */

/* Query tokens [first, first + count) of a step. */
typedef struct fig_plan_queries {
    int32_t first, count;
} fig_plan_queries;

/* Returns the query tokens of a row. offset: the section's offset; 0: the program is not packed,
 * and each row has row_tokens query tokens. */
FIG_BOTH fig_plan_queries fig_plan_queries_of(const uint8_t *plan, uint32_t offset,
                                              int32_t row_tokens, int32_t row) {
    fig_plan_queries queries = {row * row_tokens, row_tokens};
    if (offset == 0) return queries;
    const int32_t *starts = (const int32_t *)(plan + offset) + 1;
    queries.first = starts[row];
    queries.count = starts[row + 1] - queries.first;
    return queries;
}

/* Returns the row of query token number `token`, counted from 0; rows without query tokens are
 * skipped. `rows` must be at least 1, and `token` below the step's number of query tokens. O(log
 * rows) */
FIG_BOTH int32_t fig_plan_row_of_query(const uint8_t *plan, uint32_t offset, int32_t rows,
                                       int32_t token) {
    return fig_split_row_of((const int32_t *)(plan + offset) + 1, rows, 1, token);
}

/* ---- Strips of a packed program ----------------------------------------------------------------
 *
 * A row with more query tokens than the kernels for decode take is a chunk. No split has work for a
 * chunk; instead, strips.h cuts the chunks of a step into strips, once for each class. In a class
 * that shares (fig_strips_shape.shares), rows that share tokens get strips too. The section is:
 *
 *     [place of class 0, 1, 2, 3][plan of class 0, see strips.h][plan of class 1]..
 *
 * A place is an offset from the beginning of the section. If the step has no such rows, the plans
 * have no items. With tails, these lie before the plan of class 0:
 *
 *     [places][tails, rows][plan of class 0]..
 *
 * The tail of a row is its tokens after those that its groups share. If the row has a single
 * query token, the launch for rows that are not chunks may read the tail. It leaves the results
 * where the strips of the row's prefixes leave theirs, and whichever comes last merges them. */

enum { FIG_PLAN_STRIPS_HEAD = FIG_CLASS_LIMIT * 4 }; /* bytes */
static_assert(FIG_PLAN_STRIPS_HEAD == 16, "a piece of the fetch");

/* The tail of a row, if the class that shares leaves it to the launch for rows that are not chunks.
 * All zeros: the row has none. */
typedef struct fig_plan_tail {
    int32_t first_token; /* of the tail; a page begins there */
    int32_t first;       /* the partial of the row's slot 0 and q head 0 */
    int32_t counter;     /* of the row's q head 0 */
    int32_t slots;       /* of the query token; the tail's result has the last one */
} fig_plan_tail;
static_assert(sizeof(fig_plan_tail) == 16, "one load");

/* Returns the bytes of the tails in a section of strips. */
FIG_BOTH uint32_t fig_plan_tails_bytes(int32_t rows) {
    return (uint32_t)rows * (uint32_t)sizeof(fig_plan_tail);
}

/* Returns the tail of a row. offset: the offset of the tails in the plan. */
FIG_BOTH fig_plan_tail fig_plan_tail_of(const uint8_t *plan, uint32_t offset, int32_t row) {
    const fig_plan_tail none = {0, 0, 0, 0};
    const uint32_t sections = ((const fig_plan_head *)(const void *)plan)->sections;
    if (offset == 0 || (sections & FIG_PLAN_BY_TAILS) == 0) return none;
    return ((const fig_plan_tail *)(const void *)(plan + offset))[row];
}

/* fig_plan_shared_limit() returns the most query tokens that rows with shared tokens may have
 * together: as many as the bucket has rows, or FIG_PLAN_SHARED_LEAST if that is more. The limit is
 * low because each such token has room for FIG_STRIPS_SHARED_LIMIT results of every q head. */
enum { FIG_PLAN_SHARED_LEAST = 256 };
FIG_BOTH int32_t fig_plan_shared_limit(const fig_plan_shape *shape) {
    const int32_t rows = shape->row_limit;
    return fig_size_min(shape->query_limit,
                        rows > FIG_PLAN_SHARED_LEAST ? rows : (int32_t)FIG_PLAN_SHARED_LEAST);
}

/* Returns the largest number of groups in a step. A group has at least two rows, and groups at the
 * same depth have no row in common. */
FIG_BOTH int32_t fig_plan_group_limit(int32_t row_limit) {
    return FIG_STRIP_GROUPS_LEVEL_LIMIT * (row_limit / 2);
}

/* Returns the strips of a class. offset: the offset of the section of strips in the plan. */
FIG_BOTH const uint8_t *fig_plan_strips_of(const uint8_t *plan, uint32_t offset,
                                           int32_t split_class) {
    const uint32_t *places = (const uint32_t *)(const void *)(plan + offset);
    return plan + offset + places[split_class];
}

/* Returns the default position of a row of this length; an idle row has position 0. */
FIG_BOTH int32_t fig_plan_last_token(int32_t length) {
    return length > 0 ? length - 1 : 0;
}

/* Returns the length that a row had when the plan was fetched, before the row grew. */
FIG_BOTH int32_t fig_plan_length_before(const fig_plan_head *head, int32_t length) {
    return length > 0 ? length - head->advanced : 0;
}

/* Offsets of the sections of a slot, each a multiple of 16. An absent section has the offset of the
 * next one. */
typedef struct fig_plan_places {
    uint32_t lengths, sequences, positions, tokens, queries;
    uint32_t prefix[FIG_CLASS_LIMIT], starts[FIG_CLASS_LIMIT];
    uint32_t strips; /* their size follows from the head's bytes: see fig_plan_strips_bytes() */
    uint32_t pages;  /* [page_count] */
    uint32_t bytes;
} fig_plan_places;

FIG_BOTH uint32_t fig_plan_take(uint32_t *end, int32_t count, uint32_t item_bytes, uint32_t has) {
    uint32_t place = *end;
    if (has) *end = (place + (uint32_t)count * item_bytes + 15) / 16 * 16;
    return place;
}

/* Returns the size of a slot's strips, which begin at offset `begin`. Returns 0 if the head gives
 * them an impossible size: below 0, or more than the plan has room for. */
FIG_BOTH uint32_t fig_plan_strips_bytes(const fig_plan_shape *shape, const fig_plan_head *head,
                                        uint32_t begin) {
    const uint32_t pages = head->page_count * (uint32_t)sizeof(fig_plan_page);
    const uint32_t bytes = head->bytes - begin - pages;
    if ((head->sections & FIG_PLAN_HAS_STRIPS) == 0 || head->bytes < begin) return 0;
    if (head->bytes - begin < pages || bytes % 16 != 0) return 0;
    return bytes > fig_plan_strips_room(shape) ? 0 : bytes;
}

/* Computes the offsets from these fields of the head: rows, sections, page_count and, for the size
 * of the strips, bytes. */
FIG_BOTH fig_plan_places fig_plan_places_of(const fig_plan_shape *shape,
                                            const fig_plan_head *head) {
    fig_plan_places places;
    uint32_t end = sizeof(fig_plan_head), splits = head->sections & FIG_PLAN_HAS_SPLITS;
    places.lengths = fig_plan_take(&end, head->rows, 4, head->sections & FIG_PLAN_HAS_LENGTHS);
    places.sequences = fig_plan_take(&end, head->rows, 4, head->sections & FIG_PLAN_HAS_SEQUENCES);
    places.positions = fig_plan_take(&end, head->rows, 4, head->sections & FIG_PLAN_HAS_POSITIONS);
    places.tokens = fig_plan_take(&end, head->rows, 4, head->sections & FIG_PLAN_HAS_TOKENS);
    places.queries = fig_plan_take(&end, head->rows + 2, 4, head->sections & FIG_PLAN_HAS_QUERIES);
    for (int32_t i = 0; i < FIG_CLASS_LIMIT; i++) {
        uint32_t has = i < shape->class_count ? splits : 0;
        places.prefix[i] = fig_plan_take(&end, head->rows + 1, 4, has);
        places.starts[i] =
            fig_plan_take(&end, has ? shape->splits[i].workers : 0, sizeof(fig_split_start), has);
    }
    places.strips = end;
    end += fig_plan_strips_bytes(shape, head, end);
    places.pages = fig_plan_take(&end, (int32_t)head->page_count, sizeof(fig_plan_page), 1);
    places.bytes = end;
    return places;
}

/* Returns the term of the slot's n-th 32-bit word in a plan's checksum. Terms may be added in any
 * order. The sum still changes if words are swapped or missing: the last operation folds the term's
 * upper half into its lower half, and without that fold a word would contribute the same amount at
 * every index. */
FIG_BOTH uint64_t fig_plan_term(uint32_t n, uint32_t word) {
    uint64_t term = ((uint64_t)n + 1) * 0x9e3779b97f4a7c15u + word * 0xbf58476d1ce4e5b9u;
    return term ^ term >> 32;
}
/* Returns the term of a plan's number. With this term, an earlier plan in the same slot fails the
 * check. */
FIG_BOTH uint64_t fig_plan_number_term(uint64_t number) {
    return number * 0x94d049bb133111ebu;
}
/* Returns 1 if the n-th word is part of the checksum. The words of the tag, which is written last,
 * and those of the checksum itself are not. */
FIG_BOTH int fig_plan_is_summed(uint32_t n) {
    return n >= 2 && n / 2 != offsetof(fig_plan_head, checksum) / sizeof(uint64_t);
}

/* A plan of at most this size is short: one warp of the device reads all its pieces at once, and
 * learns from the checksum whether these are the pieces that were published. */
enum { FIG_PLAN_SHORT_BYTES = 512 };

/* The parts of the last plan that the device still holds, as far as the host can know. */
typedef struct fig_plan_held {
    int32_t exec; /* the exec of the last plan; -1: nothing is held */
    int32_t rows;
    int32_t *sequences;                       /* [row_limit of the largest bucket] */
    int32_t *queries;                         /* [row_limit + 2] */
    int32_t *prefix[FIG_CLASS_LIMIT];         /* [row_limit + 1] */
    fig_split_start *starts[FIG_CLASS_LIMIT]; /* [FIG_WORKER_LIMIT] */
    uint32_t by_units; /* FIG_PLAN_BY_UNITS if one of these splits is cut by units, else 0 */
    /* the workers that read rows while the others process chunks; 0: both use the whole machine.
     * Such a split counts as cut by units, because its cuts do not follow from its workers. */
    int32_t readers[FIG_CLASS_LIMIT];
    /* The chunks and groups of the last plan, and the bytes of its section of strips. */
    fig_strips_shape chunk_shapes[FIG_CLASS_LIMIT];
    int32_t chunk_classes;      /* 0: no row of the program can be a chunk */
    int32_t chunk_least;        /* the fewest query tokens of a chunk */
    fig_strips_segment *chunks; /* [chunk_count]; the memory has room for row_limit */
    int32_t chunk_count;
    uint8_t *strips; /* [strips_bytes], aligned to 16 */
    uint32_t strips_bytes;
    int32_t group_count;           /* of the last plan */
    fig_strip_group *groups;       /* [group_count]; NULL: no class shares */
    int32_t *group_order;          /* [row_limit] the rows of the groups */
    fig_strip_groups_work work;    /* the segments of these groups and rows */
    fig_strip_rows rows_of_groups; /* taken from these segments */
    /* 1: the last two and `narrow` fit the groups, sequences and queries held here */
    int32_t is_listed;
    /* [row_limit] query tokens of each row; 0 for a row in a group, unless it has a tail */
    int32_t *narrow;
    int32_t *before;    /* [row_limit] tokens that a tail begins behind; 0 for other rows */
    int32_t *hidden;    /* [row_limit] their whole tiles in the class that shares */
    int32_t all_idle;   /* 1: all of `narrow` are 0 */
    int32_t has_tails;  /* 1: rows of groups with a single query token have tails */
    int64_t tail_tiles; /* rounded tiles by which workers were divided, if rows have tails */
} fig_plan_held;

/* The largest amounts that a record must be able to hold. */
typedef struct fig_plan_held_limits {
    int32_t row_limit; /* the row_limit of the largest bucket */
    int32_t chunk_classes, chunk_least;
    const fig_strips_shape *chunk_shapes; /* [chunk_classes], the same in each bucket */
    uint32_t strips_bytes;                /* the largest fig_plan_strips_room() */
    int32_t shared_limit; /* the largest fig_plan_shared_limit(); 0: no class shares */
} fig_plan_held_limits;

/* The size of the largest plan. */
#define FIG_PLAN_BYTES_LIMIT (UINT32_C(1) << 26)

/* Fills in shape->layout from the other fields, without strips. */
void fig_plan_lay_out(fig_plan_shape *shape);
/* Adds room for the strips of all classes. strips: [class_count]. least: the fewest query tokens of
 * a chunk. FIG_TOO_LARGE: the plan would be larger than FIG_PLAN_BYTES_LIMIT. */
fig_status fig_plan_add_strips(fig_plan_shape *shape, const fig_strips_shape *strips,
                               int32_t least);

/* Returns the largest amounts that the strips of a class must serve in a step: its chunks, each of
 * at least `least` query tokens, and, if the class shares, its groups and their rows. */
fig_strips_limits fig_plan_strips_limits(const fig_plan_shape *shape,
                                         const fig_strips_shape *strips, int32_t least);

/* Makes a record that holds nothing. fig_plan_held_finish() also accepts a record of zeros. */
fig_status fig_plan_held_init(fig_plan_held *held, const fig_plan_held_limits *limits);
void fig_plan_held_finish(fig_plan_held *held);
/* Returns how the class cuts strips whose rows share tokens. A program has at most one. */
const fig_strips_shape *fig_plan_held_sharer(const fig_plan_held *held);
/* Returns the query tokens of all rows of a group that the record holds. */
int32_t fig_plan_held_queries(const fig_plan_held *held, const fig_strip_group *group);

/* A slot is written in two steps. fig_plan_settle() decides which sections the slot gets, and
 * updates `held` to the sections and splits that the device will hold afterwards. fig_plan_write()
 * writes those sections and the head, except its tag, pages and checksum, and returns the bytes
 * used. `slot` must be 16-byte aligned. Neither function reads it, because reading this memory may
 * be slow. Both take O(rows + workers), and O(items) more if the step has chunks or groups. */
uint32_t fig_plan_settle(const fig_plan_shape *shape, const fig_plan_step *step,
                         fig_plan_held *held); /* FIG_PLAN_HAS_* */
uint32_t fig_plan_write(const fig_plan_shape *shape, const fig_plan_step *step, uint32_t sections,
                        const fig_plan_held *held, uint8_t *slot);
/* Adds pages after the sections of the slot; returns the bytes used. */
uint32_t fig_plan_add_pages(uint8_t *slot, const fig_plan_page *pages, uint32_t count);
/* Returns the checksum of a slot for plan `number`. */
uint64_t fig_plan_sum(const uint8_t *slot, uint32_t bytes, uint64_t number);

/* Writes into a plan on the device everything that depends on the lengths: the lengths, the
 * positions, the splits, and the bit in the head that says whether a split is cut by units. In a
 * packed program, also writes the query tokens. step->lengths may point into the plan itself. */
void fig_plan_write_lengths(const fig_plan_shape *shape, const fig_plan_step *step, uint8_t *plan);

/* Writes the strips of all classes into a plan on the device, from its lengths, sequences and query
 * tokens. No rows share tokens. least: the fewest query tokens of a chunk. chunks: [rows] memory
 * that the caller lends. */
void fig_plan_write_strips(const fig_plan_shape *shape, const fig_strips_shape *strips,
                           int32_t least, int32_t rows, fig_strips_segment *chunks, uint8_t *plan);

/* Does the work of the fetch: copies a slot's head and sections, in whole pieces of 16 bytes, into
 * the plan. Sections that the slot lacks stay unchanged in the plan. The fetch itself handles the
 * pages. */
void fig_plan_unpack(const fig_plan_shape *shape, const uint8_t *slot, uint8_t *plan);

#endif
