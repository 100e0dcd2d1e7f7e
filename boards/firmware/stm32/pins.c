#include "pins.h"

#include "cortex_m7.h"

#define GPIO_MODER(pin) REGISTER((pin).port + 0x00u)
#define GPIO_PUPDR(pin) REGISTER((pin).port + 0x0Cu)
#define GPIO_BSRR(pin) REGISTER((pin).port + 0x18u)
#define GPIO_AFR(pin) REGISTER((pin).port + 0x20u + 4u * ((pin).number / 8u)) /* AFRL, AFRH */

#define MODE_OUTPUT 1u
#define MODE_ALTERNATE 2u
#define PULL_UP 1u

static uint32_t with_field(uint32_t old, uint32_t shift, uint32_t width, uint32_t value)
{
    return (old & ~(((1u << width) - 1u) << shift)) | (value << shift);
}

void pin_alternate(struct pin pin, uint32_t function)
{
    GPIO_AFR(pin) = with_field(GPIO_AFR(pin), 4u * (pin.number % 8u), 4, function);
    GPIO_PUPDR(pin) = with_field(GPIO_PUPDR(pin), 2u * pin.number, 2, PULL_UP);
    GPIO_MODER(pin) = with_field(GPIO_MODER(pin), 2u * pin.number, 2, MODE_ALTERNATE);
}

void pin_output(struct pin pin)
{
    GPIO_MODER(pin) = with_field(GPIO_MODER(pin), 2u * pin.number, 2, MODE_OUTPUT);
}

void pin_set(struct pin pin, bool high)
{
    GPIO_BSRR(pin) = 1u << (pin.number + (high ? 0u : 16u));
}
