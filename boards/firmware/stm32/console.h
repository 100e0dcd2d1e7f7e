/* console.h: USART3 on PD8 (TX) and PD9 (RX), which the Nucleo-144 boards connect to the ST-LINK. 8N1, polled. */
#ifndef CONSOLE_H
#define CONSOLE_H

#include <stdint.h>

/* Set up pins and UART; their peripheral clocks run already. */
void console_start(uint32_t kernel_clock_hz, uint32_t baud);

/* Wait until the last byte has left the shift register. */
void console_drain(void);

#endif
