/* watchdog.h: the independent watchdog: runs from its own oscillator and, once started, until the next reset.
 *
 * Its longest time: 4096 steps of 256 cycles of the 32 kHz LSI are 32.8 s; the F7's LSI runs at 17 to 47 kHz, which
 * makes it 22 to 61 s. An inference must stay below that.
 */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <stdbool.h>

/* Reads and clears the cause of the last reset; before watchdog_start. */
void watchdog_read_cause(void);

/* Start it; it stands still while a debugger halts the core. */
void watchdog_start(void);
void watchdog_restart(void);

/* It caused the last reset. */
bool watchdog_has_bitten(void);

#endif
