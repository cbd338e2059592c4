/* images.S: the compiled kernels, put into the library as the Makefile made them.
 *
 * A row names a file of kernels/, an operation's or one of its families'. Each image is a count of
 * bytes, padding to 16, the SHA-256 of the bytes, and the bytes: fig_image_data of images.c. The
 * Makefile reads the rows below to know what to compile, writes the hashes, and defines FIG_IMAGES
 * where nvcc is there; without it every count is 0. Invariant: nothing here is seen outside the
 * library. */

.macro data file, path
    .balign 16
    .global fig_images_\file\()_\path
    .hidden fig_images_\file\()_\path
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
    .incbin "build/kernels/\file\().\path\().fatbin"
#endif
2:
    .size fig_images_\file\()_\path, . - fig_images_\file\()_\path
.endm

.macro image file
    data \file, plain
    data \file, hopper
.endm

.macro image_hopper file
    data \file, hopper
.endm

    .section .rodata
    image fetch
    image gated
    image rope
    image append_kv
    image_hopper attention_short_turn
    image_hopper attention_turn
    image_hopper attention_short
    image_hopper attention_bulk
    image attention_copy
    image attention
    image planning
    image rms_norm
    image merge_states
    image look_ahead
    image ceiling
    image decode_attention
    image all_reduce_nccl
    image all_reduce_two_shot
    image all_reduce
    image all_gather_nccl
    image all_gather
    image_hopper whole_attention

    .section .note.GNU-stack, "", %progbits
