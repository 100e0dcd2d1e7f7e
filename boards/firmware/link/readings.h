/* readings.h: the commands that tell what counters, stack and registers say. */
#ifndef READINGS_H
#define READINGS_H

#include <stdbool.h>

#include "command.h"

/* False, after an error message, where the clock is not the described one: then nothing is a measurement. */
bool readings_allowed(void);

void readings_layers(const struct words *words);
void readings_burst(const struct words *words);
void readings_memory(const struct words *words);
void readings_clock(const struct words *words);
void readings_chip(const struct words *words);

#endif
