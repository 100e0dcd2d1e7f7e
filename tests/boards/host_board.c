/* host_board.c: board.h on the host, for tests: stdin and stdout are the serial line, time is a counter that moves by
 * one millisecond whenever it is read. The program ends when stdin does.
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include "board.h"

#define CLOCK_HZ 216000000u

int firmware_main(void); /* main() of boards/firmware/main.c, renamed by the build */

static jmp_buf reset_vector;
static uint64_t ticks;

void board_start(void)
{
    ticks = 0;
}

uint8_t board_get(void)
{
    const int byte = getchar();
    if (byte == EOF) {
        exit(0);
    }
    return (uint8_t)byte;
}

void board_put(uint8_t byte)
{
    putchar(byte);
}

uint64_t board_ticks(void)
{
    return ticks += CLOCK_HZ / 1000u;
}

uint32_t board_clock_hz(void)
{
    return CLOCK_HZ;
}

const char *board_name(void)
{
    return "host";
}

uint32_t board_stack_high_water_bytes(void)
{
    return 1000;
}

uint32_t board_stack_bytes(void)
{
    return 4096;
}

_Noreturn void board_reset(void)
{
    longjmp(reset_vector, 1);
}

int main(void)
{
    (void)setjmp(reset_vector);
    board_start();
    return firmware_main();
}
