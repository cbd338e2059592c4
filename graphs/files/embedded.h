/* embedded.h: the compiled scores that a file may embed.
 *
 * Like images of kernels (archive.h) they are machine code, and stay compressed until a caller
 * trusts them. An engine finds one by the SHA-256 of the PTX that its driver would otherwise
 * compile. So what a caller trusts is the seal of a record, which covers both hashes: that of the
 * code alone would let a file exchange what two trusted codes are for. Invariant: no code leaves
 * this file unless it has its recorded hash and the record's seal is trusted. */
#ifndef FIG_GRAPHS_EMBEDDED_H
#define FIG_GRAPHS_EMBEDDED_H

#include "include/figraph_archive.h"
#include "kernels/table/images.h"

enum {
    FIG_EMBEDDED_LIMIT = 256,
    FIG_EMBEDDED_CODE_LIMIT = 16 << 20 /* bytes of all code together */
};

/* The record of one compiled score. Section SIMG stores such records. */
typedef struct fig_embedded_record {
    uint8_t ptx[32];    /* SHA-256 of the PTX */
    uint8_t sha256[32]; /* of the code */
    uint64_t bytes;
    int32_t compute_capability; /* of the GPU that the code is for, such as 90 */
    int32_t driver;             /* the driver that compiled it, as a version of CUDA: 12040 */
    char family[16];            /* as in fig_archive_image */
} fig_embedded_record;
static_assert(sizeof(fig_embedded_record) == 96, "file format");

/* The records and their code. A zeroed struct holds neither. */
typedef struct fig_embedded {
    fig_embedded_record *records; /* [count] sorted by ptx, compute capability and driver */
    uint32_t count;
    uint32_t code_bytes; /* the size of the frame's content */
    uint8_t *code;       /* [stored_bytes] a zstd frame of all code, each at a multiple of 16 */
    size_t stored_bytes;
} fig_embedded;

/* Makes records and the frame of `count` compiled scores, of which equal ones count once.
 * FIG_TOO_LARGE: a limit above. */
fig_status fig_embedded_make(fig_embedded *compiled, const fig_image_compiled *images,
                             uint32_t count);
/* Checks that fig_embedded_make() could have made the records. Of the code, only the size is
 * checked. FIG_INVALID: the message names the first violation. */
fig_status fig_embedded_check(const fig_embedded *compiled);
fig_status fig_embedded_clone(fig_embedded *clone, const fig_embedded *compiled);
void fig_embedded_finish(fig_embedded *compiled); /* accepts a zeroed struct */

/* Sets `hex` to the record's seal, the SHA-256 of its 96 bytes. */
void fig_embedded_seal(const fig_embedded_record *record, char hex[65]);
/* Sets set->compiled to all compiled scores. The caller frees it and *code, its memory, also after
 * a failure. trust: a list that was checked; each record's seal must be on it. */
fig_status fig_embedded_admit(const fig_embedded *compiled, const fig_trust *trust,
                              fig_image_set *set, uint8_t **code);

/* Decompresses a frame of `count` bytes; `section` is for messages. The caller frees *code. */
typedef struct fig_embedded_frame {
    const uint8_t *bytes; /* [stored_bytes] */
    size_t stored_bytes;
    uint32_t count;
    const char *section;
} fig_embedded_frame;
fig_status fig_embedded_unpack(const fig_embedded_frame *frame, uint8_t **code);
/* Returns 1 if the name is one of a family: 1 to 15 of a to z, 0 to 9 and _, then zeros. */
int fig_embedded_is_family(const char name[16]);

#endif
