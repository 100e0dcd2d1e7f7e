/* console.h: the USART that a board connects to its ST-LINK (wiring.h). 8N1; an interrupt receives, sending is polled.
 */
#ifndef CONSOLE_H
#define CONSOLE_H

#include <stdint.h>

/* Set up pins, UART and interrupt; their peripheral clocks run already. */
void console_start(uint32_t baud);

/* Wait until the last byte has left the shift register. */
void console_drain(void);

/* The interrupt's handler. */
void console_interrupt(void);

#endif
