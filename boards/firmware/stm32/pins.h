/* pins.h: general-purpose pins of the STM32 (RM0385 and RM0410 chapter 6, RM0433 chapter 11: the same registers). */
#ifndef PINS_H
#define PINS_H

#include <stdbool.h>
#include <stdint.h>

struct pin {
    uint32_t port; /* base address of its GPIO, whose clock runs already */
    uint32_t number;
};

/* Give the pin to a peripheral, with a pull-up: no start bits out of an open line. */
void pin_alternate(struct pin pin, uint32_t function);

/* Push-pull output, at the level set before. */
void pin_output(struct pin pin);

void pin_set(struct pin pin, bool high);

#endif
