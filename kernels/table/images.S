/* images.S: puts the compiled kernels into the library, as the Makefile built them.
 *
 * operations.h lists the kernels; the Makefile reads the same list to know which files to compile.
 * Each image is a count of bytes, padding to 16, the SHA-256 of the bytes, and the bytes: the
 * layout of fig_image_data in images.c. The Makefile writes the hashes, and defines FIG_IMAGES if
 * nvcc is present. Without nvcc every count is 0. Invariant: no symbol of this file is visible
 * outside the library, except in the library of images that tests share (FIG_IMAGES_VISIBLE). */
#include "kernels/table/operations.h"

.macro data file, path, kind
    .balign 16
    .global fig_images_\file\()_\path
#ifndef FIG_IMAGES_VISIBLE
    .hidden fig_images_\file\()_\path
#endif
    .type fig_images_\file\()_\path, %object
fig_images_\file\()_\path:
    .quad 2f - 1f, 0
#ifdef FIG_IMAGES
    .include "build/kernels/\file\().\path\().sha256"
#else
    .zero 32
#endif
1:
#ifdef FIG_IMAGES
    .incbin "build/kernels/\file\().\path\().\kind"
#endif
2:
    .size fig_images_\file\()_\path, . - fig_images_\file\()_\path
.endm

#define ALL(file) data file, plain, fatbin; data file, hopper, fatbin;
#define HOPPER(file) data file, hopper, fatbin;
#define TEXT_ALL(file) data file, plain, ptx.zst; data file, hopper, ptx.zst;
#define TEXT_HOPPER(file) data file, hopper, ptx.zst;
#define FAMILY(OP, KIND, kind, file, PATHS) PATHS(file)
#define OPERATION(number, OP, name, twin, check, families) families

    .section .rodata
    FIG_OPERATIONS(OPERATION, FAMILY)

    .section .note.GNU-stack, "", %progbits
