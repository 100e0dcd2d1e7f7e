/* clock_h7.c: STM32H743 (silicon revision V) at BOARD_CLOCK_HZ from HSE: 480 MHz, or less with a lower core voltage. The
 * LDO supplies the core; above 400 MHz it needs VOS0, which is reached from VOS1 through SYSCFG_PWRCR.ODEN (RM0433 6.6.2,
 * voltage scaling); VOS1 goes up to 400 MHz, VOS2 to 300, VOS3 to 200 (data sheet, general operating conditions).
 */
#include "clock.h"

#include <stdbool.h>

#include "wait.h"
#include "wiring.h"

#ifdef STM32_H7

#define HSI_HZ 64000000u /* 8.5.2, HSI */

#define CLOCK_MHZ (BOARD_CLOCK_HZ / 1000000u)
#define DIVP1 (CLOCK_MHZ >= 200u ? 2u : 4u) /* 8.7, RCC_PLL1DIVR */
#define DIVN1 (CLOCK_MHZ * DIVP1 / 2u) /* VCO 400 to 960 MHz (8.7, RCC_PLL1DIVR; data sheet, revision V: 192 to 960) */
#define DIVQ1 4u   /* unused, outputs stay off */
#define DIVR1 2u
#define HCLK_DIVIDER 2u  /* at most 240 MHz (8.5.6 system clock; data sheet, general operating conditions) */
#define APB1_DIVIDER 2u  /* at most 120 MHz (the same) */
/* Wait states and programming delay by AXI clock, which is half of the core's, and voltage (4.3.8, table 17). */
#if BOARD_CLOCK_HZ > 400000000u
#define FLASH_LATENCY 4u /* VOS0, up to 240 MHz */
#define FLASH_DELAY FLASH_ACR_WRHIGHFREQ(2u)
#define VOS PWR_D3CR_VOS_SCALE(1u)
#elif BOARD_CLOCK_HZ > 300000000u
#define FLASH_LATENCY 2u /* VOS1, up to 210 MHz */
#define FLASH_DELAY FLASH_ACR_WRHIGHFREQ(2u)
#define VOS PWR_D3CR_VOS_SCALE(1u)
#elif BOARD_CLOCK_HZ > 200000000u
#define FLASH_LATENCY 2u /* VOS2, up to 165 MHz */
#define FLASH_DELAY FLASH_ACR_WRHIGHFREQ(1u)
#define VOS PWR_D3CR_VOS_SCALE(2u)
#define VOS_REPLACES 1 /* after reset it is VOS3, whose bit is none of VOS2's */
#else
#define FLASH_LATENCY 2u /* VOS3, up to 135 MHz: one less would end at 90 */
#define FLASH_DELAY FLASH_ACR_WRHIGHFREQ(1u)
#define VOS PWR_D3CR_VOS_SCALE(3u)
#endif

_Static_assert(HSE_HZ / DIVM1 == 2000000u, "RCC_PLLCFGR.PLL1RGE is set for 2 to 4 MHz (8.7)");
_Static_assert(HSE_HZ / DIVM1 * DIVN1 / DIVP1 == BOARD_CLOCK_HZ, "the PLL does not give the clock of board.yaml");

struct clock clock_now = {.core_hz = HSI_HZ, .console_hz = HSI_HZ, .timer_hz = HSI_HZ};

void clock_ports_on(void)
{
    RCC_AHB4ENR |= RCC_AHB4ENR_GPIO(CONSOLE_TX_PORT) | RCC_AHB4ENR_GPIO(CONSOLE_RX_PORT) |
                   RCC_AHB4ENR_GPIO(TIMESTAMP_PORT) | RCC_AHB4ENR_GPIO(LIGHT_PORT);
    (void)RCC_AHB4ENR; /* the clock runs two bus cycles after its bit (8.5.10, clock enabling delays) */
}

/* Revision Y (and Z before it) goes to 400 MHz only, knows no VOS0, and reads wrong data from AXI SRAM at times (data
 * sheet, general operating conditions; erratum ES0392, AXI SRAM). */
static bool revision_allows_full_speed(void)
{
    return DBGMCU_IDCODE >= DBGMCU_REV_ID_X << 16;
}

static bool comes_ready(volatile uint32_t *reg, uint32_t request, uint32_t flags)
{
    *reg |= request;
    return wait_set(reg, flags);
}

/* NULL, or what did not come about; the core then still runs from HSI. */
static const char *speed_up(void)
{
    if (!revision_allows_full_speed()) {
        return "REV";
    }
    PWR_CR3 =
        (PWR_CR3 & ~PWR_CR3_SUPPLY_MASK) | PWR_CR3_LDOEN; /* can be written once after power-on (RM0433, PWR_CR3) */
#ifdef VOS_REPLACES
    if (!wait_set(&PWR_CSR1, PWR_CSR1_ACTVOSRDY)) {
        return "VOS";
    }
    PWR_D3CR = (PWR_D3CR & ~PWR_D3CR_VOS_MASK) | VOS;
#endif
    if (!wait_set(&PWR_CSR1, PWR_CSR1_ACTVOSRDY) ||
        !comes_ready(&PWR_D3CR, VOS, PWR_D3CR_VOSRDY)) {
        return "VOS";
    }
#if BOARD_CLOCK_HZ > 400000000u
    RCC_APB4ENR |= RCC_APB4ENR_SYSCFGEN;
    (void)RCC_APB4ENR;
    SYSCFG_PWRCR |= SYSCFG_PWRCR_ODEN;
    (void)SYSCFG_PWRCR; /* until this is read back VOSRDY may still be that of the scale before */
    if (!wait_set(&PWR_D3CR, PWR_D3CR_VOSRDY)) {
        return "VOS";
    }
#endif
    RCC_CR |= HSE_IS_BYPASSED ? RCC_CR_HSEBYP : 0u; /* 8.5.1, HSE */
    if (!comes_ready(&RCC_CR, RCC_CR_HSEON, RCC_CR_HSERDY)) {
        return "HSE";
    }
    RCC_PLLCKSELR = RCC_PLLCKSELR_PLLSRC_HSE | (DIVM1 << 4);
    /* After reset all outputs are on (8.7, RCC_PLLCFGR: 0x01FF0000); Q and R would only take power. */
    RCC_PLLCFGR = RCC_PLLCFGR_PLL1RGE_2_TO_4_MHZ | RCC_PLLCFGR_DIVP1EN;
    RCC_PLL1DIVR = (DIVN1 - 1u) | ((DIVP1 - 1u) << 9) | ((DIVQ1 - 1u) << 16) | ((DIVR1 - 1u) << 24);
    if (!comes_ready(&RCC_CR, RCC_CR_PLL1ON, RCC_CR_PLL1RDY)) {
        return "PLL";
    }
    FLASH_ACR = FLASH_LATENCY | FLASH_DELAY;
    if (!wait_set(&FLASH_ACR, FLASH_LATENCY)) {
        return "ACR";
    }
    /* Prescalers before the switch, so that no bus ever runs too fast. */
    RCC_D1CFGR = RCC_D1CFGR_HPRE_DIV2 | RCC_D1CFGR_D1PPRE_DIV2;
    RCC_D2CFGR = RCC_D2CFGR_D2PPRE1_DIV2 | RCC_D2CFGR_D2PPRE2_DIV2;
    RCC_D3CFGR = RCC_D3CFGR_D3PPRE_DIV2;
    if (!comes_ready(&RCC_CFGR, RCC_CFGR_SW_PLL1, RCC_CFGR_SWS_PLL1)) {
        return "PLL";
    }
    return NULL;
}

void clock_full_speed(void)
{
    clock_now.trouble = speed_up();
    if (clock_now.trouble == NULL) {
        clock_now.core_hz = BOARD_CLOCK_HZ;
        /* RCC_D2CCIP2R keeps its reset value: PCLK1 drives USART3 (8.5.8, kernel clocks). */
        clock_now.console_hz = BOARD_CLOCK_HZ / HCLK_DIVIDER / APB1_DIVIDER;
        /* With D2PPRE1 of 1 or 2 and TIMPRE = 0 the timers run from HCLK (8.7, RCC_CFGR). */
        clock_now.timer_hz = BOARD_CLOCK_HZ / HCLK_DIVIDER;
    }
}

void clock_peripherals_on(void)
{
    clock_ports_on();
    RCC_APB1LENR |= RCC_APB1LENR_TIM2EN | RCC_APB1LENR_USART3EN;
    (void)RCC_APB1LENR;
}

#endif
