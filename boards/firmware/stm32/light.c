#include "light.h"

#include "clock.h"
#include "pins.h"
#include "wait.h"
#include "wiring.h"

#define FLASH_MS 250u

void light_blink(enum start_step step)
{
    clock_port_on(LIGHT_PORT);
    pin_low(LIGHT_PIN);
    pin_output(LIGHT_PIN);
    for (uint32_t flash = 0; flash < (uint32_t)step; flash++) {
        pin_high(LIGHT_PIN);
        wait_ms(FLASH_MS);
        pin_low(LIGHT_PIN);
        wait_ms(FLASH_MS);
    }
}
