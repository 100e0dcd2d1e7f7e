/* clock_h7.c: STM32H743 (silicon revision V) at 480 MHz from HSE. The LDO supplies the core; 480 MHz needs VOS0, which
 * is reached from VOS1 through SYSCFG_PWRCR.ODEN (RM0433 6.6.2, voltage scaling).
 */
#include "clock.h"

#include "wiring.h"

#ifdef STM32_H7

#define DIVN1 480u /* VCO 960 MHz, the highest allowed (8.7, RCC_PLL1DIVR; data sheet, revision V) */
#define DIVP1 2u   /* 8.7, RCC_PLL1DIVR */
#define DIVQ1 4u   /* unused, outputs stay off */
#define DIVR1 2u
#define HCLK_DIVIDER 2u  /* at most 240 MHz (8.5.6 system clock; data sheet, general operating conditions) */
#define APB1_DIVIDER 2u  /* at most 120 MHz (the same) */
#define FLASH_LATENCY 4u /* wait states at 240 MHz AXI and VOS0 (4.3.8, table 17) */

_Static_assert(HSE_HZ / DIVM1 == 2000000u, "RCC_PLLCFGR.PLL1RGE is set for 2 to 4 MHz (8.7)");
_Static_assert(HSE_HZ / DIVM1 * DIVN1 / DIVP1 == BOARD_CLOCK_HZ, "the PLL does not give the clock of board.yaml");

/* RCC_D2CCIP2R keeps its reset value: PCLK1 drives USART3 (8.5.8, kernel clocks). */
const uint32_t clock_console_hz = BOARD_CLOCK_HZ / HCLK_DIVIDER / APB1_DIVIDER;
/* With D2PPRE1 of 1 or 2 and TIMPRE = 0 the timers run from HCLK (8.7, RCC_CFGR). */
const uint32_t clock_timer_hz = BOARD_CLOCK_HZ / HCLK_DIVIDER;

static void wait_for(volatile const uint32_t *reg, uint32_t mask, uint32_t value)
{
    while ((*reg & mask) != value) {
    }
}

static void supply_start(void)
{
    PWR_CR3 =
        (PWR_CR3 & ~PWR_CR3_SUPPLY_MASK) | PWR_CR3_LDOEN; /* can be written once after power-on (RM0433, PWR_CR3) */
    wait_for(&PWR_CSR1, PWR_CSR1_ACTVOSRDY, PWR_CSR1_ACTVOSRDY);
    PWR_D3CR |= PWR_D3CR_VOS_SCALE_1;
    wait_for(&PWR_D3CR, PWR_D3CR_VOSRDY, PWR_D3CR_VOSRDY);
    RCC_APB4ENR |= RCC_APB4ENR_SYSCFGEN;
    (void)RCC_APB4ENR; /* the clock runs two bus cycles after its bit (8.5.10, clock enabling delays) */
    SYSCFG_PWRCR |= SYSCFG_PWRCR_ODEN;
    wait_for(&PWR_D3CR, PWR_D3CR_VOSRDY, PWR_D3CR_VOSRDY);
}

static void pll_start(void)
{
    RCC_CR |= HSE_IS_BYPASSED ? RCC_CR_HSEBYP : 0u; /* 8.5.1, HSE */
    RCC_CR |= RCC_CR_HSEON;
    wait_for(&RCC_CR, RCC_CR_HSERDY, RCC_CR_HSERDY);
    RCC_PLLCKSELR = RCC_PLLCKSELR_PLLSRC_HSE | (DIVM1 << 4);
    RCC_PLLCFGR = (RCC_PLLCFGR & ~RCC_PLLCFGR_PLL1_MASK) | RCC_PLLCFGR_PLL1RGE_2_TO_4_MHZ | RCC_PLLCFGR_DIVP1EN;
    RCC_PLL1DIVR = (DIVN1 - 1u) | ((DIVP1 - 1u) << 9) | ((DIVQ1 - 1u) << 16) | ((DIVR1 - 1u) << 24);
    RCC_CR |= RCC_CR_PLL1ON;
    wait_for(&RCC_CR, RCC_CR_PLL1RDY, RCC_CR_PLL1RDY);
}

void clock_start(void)
{
    supply_start();
    pll_start();
    FLASH_ACR = FLASH_LATENCY | FLASH_ACR_WRHIGHFREQ_2;
    wait_for(&FLASH_ACR, FLASH_ACR_LATENCY_MASK, FLASH_LATENCY);
    /* Prescalers before the switch, so that no bus ever runs too fast. */
    RCC_D1CFGR = RCC_D1CFGR_HPRE_DIV2 | RCC_D1CFGR_D1PPRE_DIV2;
    RCC_D2CFGR = RCC_D2CFGR_D2PPRE1_DIV2 | RCC_D2CFGR_D2PPRE2_DIV2;
    RCC_D3CFGR = RCC_D3CFGR_D3PPRE_DIV2;
    RCC_CFGR = (RCC_CFGR & ~RCC_CFGR_SW_MASK) | RCC_CFGR_SW_PLL1;
    wait_for(&RCC_CFGR, RCC_CFGR_SWS_MASK, RCC_CFGR_SWS_PLL1);

    RCC_AHB4ENR |=
        RCC_AHB4ENR_GPIO(CONSOLE_TX_PORT) | RCC_AHB4ENR_GPIO(CONSOLE_RX_PORT) | RCC_AHB4ENR_GPIO(TIMESTAMP_PORT);
    RCC_APB1LENR |= RCC_APB1LENR_TIM2EN | RCC_APB1LENR_USART3EN;
    (void)RCC_APB1LENR;
}

#endif
