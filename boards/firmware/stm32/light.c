#include "light.h"

#include "clock.h"
#include "pins.h"
#include "wait.h"
#include "wiring.h"

#define FLASH_MS 250u

void light_blink(enum start_step step)
{
    clock_ports_on();
    const struct pin light = LIGHT_PIN;
    pin_output(light);
    for (uint32_t half = 2u * (uint32_t)step; half > 0u; half--) {
        pin_set(light, half % 2u == 0u);
        wait_ms(FLASH_MS);
    }
}
