/* watchdog.h: the twin's watchdog. Its 32-bit counter runs at 25 MHz, which is 168 M instructions: too few for a large
 * network. So its interrupt, which comes first, counts WATCHDOG_TURNS of them before it lets the reset come.
 */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <stdbool.h>

#ifdef BRINGUP_STAGE
#define WATCHDOG_TURNS 1u /* images of a first day hang on purpose; 340 million instructions are enough to wait for */
#else
#define WATCHDOG_TURNS 24u /* four thousand million instructions */
#endif

void watchdog_start(void);
void watchdog_restart(void);

/* It caused the last reset. */
bool watchdog_has_bitten(void);

#endif
