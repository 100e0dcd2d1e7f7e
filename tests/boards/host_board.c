/* host_board.c: board.h on the host, for tests: stdin and stdout are the serial
 * line, time is a counter that moves by one millisecond whenever it is read,
 * and by a microsecond with each sign of life. What has no place in a line of
 * text is shown in braces: {pulse}, {921600 baud}. The program ends when stdin
 * does.
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include "baud.h"
#include "board.h"
#include "ring.h"

#define CLOCK_HZ 216000000u
#define USART_CLOCK_HZ 54000000u

int firmware_main(
    void); /* main() of boards/firmware/core/main.c, renamed by the build */

static jmp_buf reset_vector;
static uint64_t ticks;
static struct ring received;

void board_start(void) {
  ticks = 0;
  ring_clear(&received);
}

/* Bytes pass through the ring, as on a board. 0xFE stands for a byte that came
 * damaged, 0xFF for one that was lost. */
uint16_t board_take(void) {
  const int byte = getchar();
  if (byte == EOF) {
    exit(0);
  }
  if (byte == 0xFF) {
    ring_lose(&received);
  } else {
    ring_put(&received, (uint8_t)byte, byte == 0xFE);
  }
  return ring_take(&received);
}

uint32_t board_receive_errors(void) { return received.errors; }

bool board_can_baud(uint32_t baud) {
  const uint32_t divider = baud_divider(USART_CLOCK_HZ, baud);
  return divider >= 16u && divider <= 0xFFFFu &&
         baud_is_near(USART_CLOCK_HZ, divider, baud);
}

void board_set_baud(uint32_t baud) { printf("{%u baud}", (unsigned)baud); }

uint32_t board_first_baud(void) { return BOARD_MEASURES_ENERGY ? 9600u : 115200u; }

#ifndef TROUBLE
#define TROUBLE NULL
#endif

const char *board_trouble(void) { return TROUBLE; }

const char *board_option(void)
{
    return NULL;
}

bool board_chip(uint32_t index, struct board_register *found) {
  *found = (struct board_register){index == 0 ? "CPUID" : "REVISION",
                                   0x411FC271u + index};
  return index < 2;
}

void board_pulse(void) { printf("{pulse}"); }

void board_alive(void) { ticks += CLOCK_HZ / 1000000u; }

bool board_was_hung(void) { return false; }

void board_put(uint8_t byte) { putchar(byte); }

uint64_t board_ticks(void) { return ticks += CLOCK_HZ / 1000u; }

uint32_t board_clock_hz(void) { return CLOCK_HZ; }

const char *board_name(void) { return "host"; }

uint32_t board_stack_high_water_bytes(void) { return 1000; }

uint32_t board_stack_bytes(void) { return 4096; }

_Noreturn void board_reset(void) { longjmp(reset_vector, 1); }

int main(void) {
  (void)setjmp(reset_vector);
  board_start();
  return firmware_main();
}
