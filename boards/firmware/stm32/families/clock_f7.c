/* clock_f7.c: STM32F74x and STM32F76x at BOARD_CLOCK_HZ from HSE: 216 MHz with over-drive, or at most 144 MHz with the
 * lowest core voltage. Section numbers are the same in RM0385 and RM0410. The order is that of 4.1.4, "Entering Over-drive mode": PLL on, over-drive, wait states, then the switch.
 */
#include "clock.h"

#include <stdbool.h>

#include "wait.h"
#include "wiring.h"

#ifdef STM32_F7

#define HSI_HZ 16000000u /* 5.2.2, HSI clock */

#define PLL_INPUT_HZ (HSE_HZ / PLLM)
#define VCO_HZ (BOARD_CLOCK_HZ * PLLP) /* 100 to 432 MHz (5.3.2, PLLN) */
#define PLLN (VCO_HZ / PLL_INPUT_HZ)
#define PLLP 2u             /* 5.3.2, PLLP */
#define PLLQ 9u             /* 48 MHz at most; unused, but within its limit (5.3.2, PLLQ) */
#define PLLR 2u             /* reset value; the F74x has no such output (RM0410 5.3.2, PLLR) */
#define FLASH_LATENCY ((BOARD_CLOCK_HZ - 1u) / 30000000u) /* one for each 30 MHz at 2.7 to 3.6 V (3.3.2, wait states) */
#define OVER_DRIVE (BOARD_CLOCK_HZ > 180000000u)          /* 4.1.4; without it scale 3 ends at 144 MHz (4.4.1, VOS) */
#define VOS (BOARD_CLOCK_HZ > 144000000u ? PWR_CR1_VOS_SCALE_1 : PWR_CR1_VOS_SCALE_3)
/* At most 54 MHz, 45 without over-drive (5.2 Clocks; data sheet, general operating conditions). */
#define APB1_DIVIDER (BOARD_CLOCK_HZ > 90000000u ? 4u : 2u)
#define APB1_PRESCALER (APB1_DIVIDER == 4u ? RCC_CFGR_PPRE1_DIV4 : RCC_CFGR_PPRE1_DIV2)
#define APB2_DIVIDER 2u     /* at most 108 MHz (the same) */
#define TIMER_MULTIPLIER 2u /* a divided APB gives its timers twice its clock (5.3.25, TIMPRE = 0) */

_Static_assert(PLL_INPUT_HZ == 1000000u || PLL_INPUT_HZ == 2000000u, "the PLL wants 1 to 2 MHz (5.3.2, PLLM)");
_Static_assert(PLL_INPUT_HZ *PLLN / PLLP == BOARD_CLOCK_HZ, "the PLL does not give the clock of board.yaml");

struct clock clock_now = {.core_hz = HSI_HZ, .console_hz = HSI_HZ, .timer_hz = HSI_HZ};

void clock_ports_on(void)
{
    RCC_AHB1ENR |= RCC_AHB1ENR_GPIO(CONSOLE_TX_PORT) | RCC_AHB1ENR_GPIO(CONSOLE_RX_PORT) |
                   RCC_AHB1ENR_GPIO(TIMESTAMP_PORT) | RCC_AHB1ENR_GPIO(LIGHT_PORT);
    (void)RCC_AHB1ENR; /* a peripheral's clock runs two bus cycles after its bit (5.2.12, peripheral clock enable) */
}

void clock_peripherals_on(void)
{
    clock_ports_on();
    RCC_APB1ENR |= RCC_APB1ENR_TIM2EN;
    if (CONSOLE_USART_BASE == USART1_BASE) {
        RCC_APB2ENR |= RCC_APB2ENR_USART1EN;
    } else {
        RCC_APB1ENR |= RCC_APB1ENR_USART3EN;
    }
    (void)RCC_APB1ENR;
    (void)RCC_APB2ENR;
}

static bool comes_ready(volatile uint32_t *reg, uint32_t request, uint32_t flags)
{
    *reg |= request;
    return wait_set(reg, flags);
}

/* NULL, or what did not come about; the core then still runs from HSI. */
static const char *speed_up(void)
{
    PWR_CR1 = (PWR_CR1 & ~PWR_CR1_VOS_SCALE_1) | VOS; /* 4.4.1, VOS: while the PLL is off */

    RCC_CR |= HSE_IS_BYPASSED ? RCC_CR_HSEBYP : 0u; /* 5.2.1, HSE clock */
    if (!comes_ready(&RCC_CR, RCC_CR_HSEON, RCC_CR_HSERDY)) {
        return "HSE";
    }
    RCC_PLLCFGR = PLLM | (PLLN << 6) | ((PLLP / 2u - 1u) << 16) | RCC_PLLCFGR_PLLSRC_HSE | (PLLQ << 24) | (PLLR << 28);
    RCC_CR |= RCC_CR_PLLON;

    if (OVER_DRIVE) {
        PWR_CR1 |= PWR_CR1_ODEN;
        if (!wait_set(&PWR_CSR1, PWR_CSR1_ODRDY)) {
            return "VOS";
        }
        PWR_CR1 |= PWR_CR1_ODSWEN;
        if (!wait_set(&PWR_CSR1, PWR_CSR1_ODSWRDY)) {
            return "VOS";
        }
    }

    FLASH_ACR = FLASH_LATENCY | FLASH_ACR_PRFTEN | FLASH_ACR_ARTEN; /* 3.3.2, increasing the CPU frequency */
    if (!wait_set(&FLASH_ACR, FLASH_LATENCY)) {
        return "ACR";
    }
    if (!wait_set(&RCC_CR, RCC_CR_PLLRDY)) {
        return "PLL";
    }
    RCC_CFGR = APB1_PRESCALER | RCC_CFGR_PPRE2_DIV2; /* prescalers first, so that no bus ever runs too fast */
    if (!comes_ready(&RCC_CFGR, RCC_CFGR_SW_PLL, RCC_CFGR_SWS_PLL)) {
        RCC_CFGR = 0;
        return "PLL";
    }
    return NULL;
}

void clock_full_speed(void)
{
    RCC_APB1ENR |= RCC_APB1ENR_PWREN;
    (void)RCC_APB1ENR;
    clock_now.trouble = speed_up();
    if (clock_now.trouble == NULL) {
        clock_now.core_hz = BOARD_CLOCK_HZ;
        /* RCC_DCKCFGR2 keeps its reset value: each USART runs from its APB (5.3.26). */
        clock_now.console_hz =
            BOARD_CLOCK_HZ / (CONSOLE_USART_BASE == USART1_BASE ? APB2_DIVIDER : APB1_DIVIDER);
        clock_now.timer_hz = BOARD_CLOCK_HZ / APB1_DIVIDER * TIMER_MULTIPLIER;
    }
}

#endif
