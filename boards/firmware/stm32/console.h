/* console.h: the USART that a board connects to its ST-LINK (wiring.h). 8N1; an interrupt receives, sending is polled.
 */
#ifndef CONSOLE_H
#define CONSOLE_H

#include <stdbool.h>
#include <stdint.h>

/* Set up pins, UART and interrupt; their peripheral clocks run already. */
void console_start(uint32_t baud);

/* Wait until the last byte has left the shift register; false if it does not, or nothing ever could. */
bool console_drain(void);

/* The interrupt's handler. */
void console_interrupt(void);

#endif
