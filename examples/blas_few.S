/* blas_few.S: contains the compiled blas_few.cu, or nothing if the build had no nvcc. */
    .section .rodata
    .balign 16
    .global blas_few_image
blas_few_image:
#ifdef FEW_IMAGE
    .incbin FEW_IMAGE
#endif
1:
    .balign 8
    .global blas_few_image_bytes
blas_few_image_bytes:
    .quad 1b - blas_few_image
    .section .note.GNU-stack, "", %progbits
