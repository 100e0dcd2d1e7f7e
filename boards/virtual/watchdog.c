/* watchdog.c: DDI 0479, APB watchdog. The first time-out raises its interrupt (the NMI on this machine), a second one
 * without INTCLR in between resets. RAM survives a reset, so that a word in it can tell why.
 */
#include "watchdog.h"

#include <stdint.h>

#include "cortex_m7.h"
#include "fault.h"
#include "placement.h"

#define CMSDK_WDOGLOAD REGISTER(0x40008000u)
#define CMSDK_WDOGCONTROL REGISTER(0x40008008u)
#define CMSDK_WDOGCONTROL_INTEN (1u << 0)
#define CMSDK_WDOGCONTROL_RESEN (1u << 1)
#define CMSDK_WDOGINTCLR REGISTER(0x4000800Cu)

#define BITTEN 0xD06B1773u
#define AT_ONCE 1u

static volatile uint32_t cause PLACE_FAST; /* not cleared at start-up */
static volatile uint32_t turns;
static bool bitten;

void watchdog_start(void)
{
    bitten = cause == BITTEN;
    cause = 0;
    turns = 0;
    CMSDK_WDOGLOAD = UINT32_MAX;
    CMSDK_WDOGCONTROL = CMSDK_WDOGCONTROL_INTEN | CMSDK_WDOGCONTROL_RESEN;
}

void watchdog_restart(void)
{
    turns = 0;
    CMSDK_WDOGINTCLR = 1;
}

bool watchdog_has_bitten(void)
{
    return bitten;
}

void nmi_handler(void)
{
    if (turns < WATCHDOG_TURNS) {
        turns = turns + 1u;
        CMSDK_WDOGINTCLR = 1;
        return;
    }
    cause = BITTEN;
    CMSDK_WDOGLOAD = AT_ONCE;
    for (;;) {
    }
}
