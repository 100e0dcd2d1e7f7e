/* light.h: the last word of a board that nobody hears: its light (wiring.h) blinks how far start-up had come. */
#ifndef LIGHT_H
#define LIGHT_H

#include <stdint.h>

/* What start-up was at; the number of flashes. */
enum start_step {
    START_CLOCK = 1,  /* and the watchdog before it */
    START_MEMORY = 2, /* MPU and caches, then counters and console */
    START_DONE = 3,   /* the console was up, but did not take a byte in time */
};

/* That many flashes of a quarter of a second, once. */
void light_blink(enum start_step step);

#endif
