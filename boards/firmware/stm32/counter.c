/* counter.c: DWT in DDI 0403, C1.8; TIM2 in RM0385 chapter 23, RM0410 chapter 26, RM0433 chapter 39, at the same
 * address in all of them.
 */
#include "counter.h"

#include "clock.h"
#include "cortex_m7.h"
#include "ticks.h"

#define TIM2_CR1 REGISTER(0x40000000u)
#define TIM_CR1_CEN (1u << 0)
#define TIM2_EGR REGISTER(0x40000014u)
#define TIM_EGR_UG (1u << 0)
#define TIM2_CNT REGISTER(0x40000024u)
#define TIM2_PSC REGISTER(0x40000028u)
#define TIM2_ARR REGISTER(0x4000002Cu)

#define SLOW_HZ 1000000u

static struct ticks ticks;

void counter_start(void)
{
    SCB_DEMCR |= SCB_DEMCR_TRCENA;
    DWT_LAR = DWT_LAR_KEY;
    TIM2_PSC = clock_timer_hz / SLOW_HZ - 1u;
    TIM2_ARR = UINT32_MAX;
    TIM2_EGR = TIM_EGR_UG; /* takes over the prescaler and clears the counter */
    DWT_CYCCNT = 0;
    DWT_CTRL |= DWT_CTRL_CYCCNTENA;
    TIM2_CR1 = TIM_CR1_CEN;
}

uint64_t counter_now(void)
{
    const uint32_t cycles = DWT_CYCCNT;
    return ticks_now(&ticks, cycles, TIM2_CNT, BOARD_CLOCK_HZ / SLOW_HZ);
}
