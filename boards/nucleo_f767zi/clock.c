/* clock.c: STM32F767 at 216 MHz from the ST-LINK's 8 MHz clock (HSE bypass). Follows the order of RM0410's
 * chapter 4 (PWR), "Entering Over-drive mode": PLL on, over-drive, wait states, then the switch.
 */
#include "clock.h"

#include "registers.h"

#define HSE_HZ 8000000u
#define PLLM 4u   /* 2 MHz into the PLL, the value recommended against jitter (RM0410, RCC_PLLCFGR) */
#define PLLN 216u /* VCO 432 MHz, the highest allowed */
#define PLLP 2u
#define PLLQ 9u          /* 48 MHz; unused, but below its limit */
#define PLLR 2u          /* reset value */
#define FLASH_LATENCY 7u /* wait states above 210 MHz at 2.7 to 3.6 V (RM0410 chapter 3) */
#define APB1_DIVIDER 4u  /* at most 54 MHz (data sheet) */

_Static_assert(HSE_HZ / PLLM * PLLN / PLLP == BOARD_CLOCK_HZ, "the PLL does not give the clock of board.yaml");

const uint32_t clock_usart3_hz = BOARD_CLOCK_HZ / APB1_DIVIDER; /* RCC_DCKCFGR2 keeps its reset value: PCLK1 */

static void wait_for(volatile const uint32_t *reg, uint32_t mask, uint32_t value)
{
    while ((*reg & mask) != value) {
    }
}

void clock_start(void)
{
    RCC_APB1ENR |= RCC_APB1ENR_PWREN;
    (void)RCC_APB1ENR; /* a peripheral's clock runs two bus cycles after its bit (RM0410 chapter 5) */
    PWR_CR1 |= PWR_CR1_VOS_SCALE_1;

    RCC_CR |= RCC_CR_HSEBYP;
    RCC_CR |= RCC_CR_HSEON;
    wait_for(&RCC_CR, RCC_CR_HSERDY, RCC_CR_HSERDY);
    RCC_PLLCFGR = PLLM | (PLLN << 6) | ((PLLP / 2u - 1u) << 16) | RCC_PLLCFGR_PLLSRC_HSE | (PLLQ << 24) | (PLLR << 28);
    RCC_CR |= RCC_CR_PLLON;

    PWR_CR1 |= PWR_CR1_ODEN;
    wait_for(&PWR_CSR1, PWR_CSR1_ODRDY, PWR_CSR1_ODRDY);
    PWR_CR1 |= PWR_CR1_ODSWEN;
    wait_for(&PWR_CSR1, PWR_CSR1_ODSWRDY, PWR_CSR1_ODSWRDY);

    FLASH_ACR = FLASH_LATENCY | FLASH_ACR_PRFTEN | FLASH_ACR_ARTEN;
    wait_for(&FLASH_ACR, FLASH_ACR_LATENCY_MASK, FLASH_LATENCY);
    wait_for(&RCC_CR, RCC_CR_PLLRDY, RCC_CR_PLLRDY);
    RCC_CFGR = RCC_CFGR_PPRE1_DIV4 | RCC_CFGR_PPRE2_DIV2; /* prescalers first, so that no bus ever runs too fast */
    RCC_CFGR |= RCC_CFGR_SW_PLL;
    wait_for(&RCC_CFGR, RCC_CFGR_SWS_MASK, RCC_CFGR_SWS_PLL);

    RCC_AHB1ENR |= RCC_AHB1ENR_GPIODEN;
    RCC_APB1ENR |= RCC_APB1ENR_USART3EN;
    (void)RCC_APB1ENR;
}
