/* archived.c: see archived.h. */
#include "tests/support/files/archived.h"

#include <stdlib.h>
#include <string.h>

#include "graphs/view/hash.h"
#include "kernels/table/families.h"

enum { PLACES = FIG_OP_KERNEL_COUNT * FIG_FAMILY_LIMIT * FIG_IMAGE_PATH_COUNT, BYTES = 64 };

typedef struct made {
    uint8_t bytes[BYTES], sha256[32];
} made;

static size_t length_of(size_t place) {
    return 8 + place % 41;
}

static void make(made *image, size_t place) {
    const uint16_t number = (uint16_t)(place / FIG_IMAGE_PATH_COUNT);
    fig_hash_sha256 hash;
    for (size_t i = 0; i < BYTES; i++)
        image->bytes[i] = (uint8_t)(place * 37 + i * 11 + 1);
    memcpy(image->bytes, &number, sizeof number);
    fig_hash_sha256_init(&hash);
    fig_hash_sha256_add(&hash, image->bytes, length_of(place));
    fig_hash_sha256_finish(&hash, image->sha256);
}

fig_image fig_archived_image(fig_op op, uint32_t family, fig_image_path path) {
    static made images[PLACES];
    const size_t place = (op * FIG_FAMILY_LIMIT + family) * FIG_IMAGE_PATH_COUNT + path;
    if (op == FIG_OP_GATED && path == FIG_IMAGE_PLAIN) return (fig_image){NULL, 0, NULL};
    make(&images[place], place);
    return (fig_image){images[place].bytes, length_of(place), images[place].sha256};
}

void fig_archived_fill(fig_graphs *graphs) {
    const fig_note notes[] = {{sizeof *notes, "model", "tutorial"},
                              {sizeof *notes, "made-by", "a test"}};
    const uint32_t ops = fig_codec_kernels_of(fig_program_view_of(graphs->program));
    if (fig_notes_change(&graphs->notes, notes, 2) != FIG_OK ||
        fig_archive_record(&graphs->archive, ops, fig_archived_image) != FIG_OK ||
        fig_archive_embed(&graphs->archive, fig_archived_image) != FIG_OK)
        abort();
}
