/* watchdog.c: RM0385 chapter 27, RM0410 chapter 30 and RM0433, independent watchdog (IWDG); cause of a reset: the RCC's
 * RCC_CSR (F7) or RCC_RSR (H7).
 */
#include "watchdog.h"

#include "cortex_m7.h"
#include "wait.h"
#include "wiring.h"

#define IWDG_KR REGISTER(IWDG_BASE + 0x00u)
#define IWDG_KR_RELOAD 0xAAAAu
#define IWDG_KR_UNLOCK 0x5555u
#define IWDG_KR_START 0xCCCCu
#define IWDG_PR REGISTER(IWDG_BASE + 0x04u)
#define IWDG_PR_DIV256 6u
#define IWDG_RLR REGISTER(IWDG_BASE + 0x08u)
#define IWDG_RLR_LONGEST 0xFFFu

#define TAKE_OVER_MS 2u /* new values reach the LSI's domain in six of its cycles, 0.4 ms at 17 kHz */

static bool bitten;

void watchdog_read_cause(void)
{
    bitten = (RESET_CAUSE & RESET_CAUSE_IWDG) != 0u;
    RESET_CAUSE |= RESET_CAUSE_CLEAR;
}

void watchdog_start(void)
{
    DEBUG_FREEZE |= DEBUG_FREEZE_IWDG;
    IWDG_KR = IWDG_KR_START; /* starts the LSI as well */
    IWDG_KR = IWDG_KR_UNLOCK;
    IWDG_PR = IWDG_PR_DIV256;
    IWDG_RLR = IWDG_RLR_LONGEST;
    wait_ms(TAKE_OVER_MS);
    IWDG_KR = IWDG_KR_RELOAD;
}

void watchdog_restart(void)
{
    IWDG_KR = IWDG_KR_RELOAD;
}

bool watchdog_has_bitten(void)
{
    return bitten;
}
