/* board.h: all that the portable firmware asks of a machine. Implemented by stm32/ for the boards, by boards/virtual
 * for the QEMU twin and by the tests for the host.
 */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* Bring up clocks, caches, counter and console; called once, before anything else here. */
void board_start(void);

/* Next byte from the host; waits for it. */
uint8_t board_get(void);

/* Send one byte to the host; waits for room. */
void board_put(uint8_t byte);

/* Monotonic count since board_start: core cycles on a board, executed instructions on the twin. Never wraps, provided
 * that it is called at least once in each turn of the counter below it (8.9 s at 480 MHz); board_get() does so too. */
uint64_t board_ticks(void);

/* Core clock; on the twin that of the board it stands for, as if each instruction took one cycle. */
uint32_t board_clock_hz(void);

/* Name as in board.yaml. */
const char *board_name(void);

/* Deepest use of the stack since start-up, and its size; both in bytes. */
uint32_t board_stack_high_water_bytes(void);
uint32_t board_stack_bytes(void);

/* Let pending output leave, then start again from reset. */
_Noreturn void board_reset(void);

#endif
