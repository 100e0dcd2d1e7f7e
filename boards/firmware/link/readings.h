/* readings.h: the commands that tell what counters, stack and registers say. */
#ifndef READINGS_H
#define READINGS_H

#include "command.h"

void readings_layers(const struct words *words);
void readings_laps(const struct words *words);
void readings_memory(const struct words *words);
void readings_clock(const struct words *words);

#endif
