@ Three ops with instruction counts that can be told by hand.
    .syntax unified
    .thumb
    .cpu cortex-m7
    .text

@ 1 + 2 * rounds + 1 instructions, no memory
    .global op_count
    .thumb_func
    .type op_count, %function
    .p2align 5
op_count:
    nop
1:  subs r0, #1
    bne 1b
    bx lr
    .size op_count, .-op_count

@ reads `bytes` bytes word by word: 3 * bytes / 4 + 1 instructions
    .global op_read
    .thumb_func
    .type op_read, %function
    .p2align 5
op_read:
1:  ldr r2, [r0], #4
    subs r1, #4
    bne 1b
    bx lr
    .size op_read, .-op_read

@ writes `bytes` bytes word by word: 1 + 3 * bytes / 4 + 1 instructions
    .global op_write
    .thumb_func
    .type op_write, %function
    .p2align 5
op_write:
    movs r2, #0
1:  str r2, [r0], #4
    subs r1, #4
    bne 1b
    bx lr
    .size op_write, .-op_write
