/* wait.c: SysTick in DDI 0403, B3.3; its interrupt stays off. */
#include "wait.h"

#include "clock.h"
#include "cortex_m7.h"

#define SYST_CSR REGISTER(0xE000E010u)
#define SYST_CSR_ENABLE (1u << 0)
#define SYST_CSR_CLKSOURCE_CORE (1u << 2)
#define SYST_CSR_COUNTFLAG (1u << 16) /* it has come to 0; reading clears it */
#define SYST_RVR REGISTER(0xE000E014u)
#define SYST_CVR REGISTER(0xE000E018u)

static void milliseconds_start(void)
{
    SYST_RVR = clock_now.core_hz / 1000u - 1u;
    SYST_CVR = 0; /* any value clears counter and flag */
    SYST_CSR = SYST_CSR_ENABLE | SYST_CSR_CLKSOURCE_CORE;
}

static uint32_t milliseconds_passed(void)
{
    return (SYST_CSR & SYST_CSR_COUNTFLAG) != 0u ? 1u : 0u;
}

bool wait_set(volatile const uint32_t *reg, uint32_t flags)
{
    milliseconds_start();
    for (uint32_t passed = 0; passed <= WAIT_MOST_MS; passed += milliseconds_passed()) {
        if ((*reg & flags) == flags) {
            return true;
        }
    }
    return false;
}

void wait_ms(uint32_t ms)
{
    milliseconds_start();
    for (uint32_t passed = 0; passed < ms;) {
        passed += milliseconds_passed();
    }
}
