/* counter.c: DWT in DDI 0403, C1.8; TIM2 in RM0385 chapter 23, RM0410 chapter 26, RM0433 chapter 39, at the same
 * address in all of them.
 */
#include "counter.h"

#include <stdbool.h>

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

#ifndef BRINGUP_STAGE
#define BRINGUP_STAGE 0
#endif

static struct ticks ticks;
static uint32_t restarts;

static void cycles_from(uint32_t value)
{
    SCB_DEMCR |= SCB_DEMCR_TRCENA;
    DWT_LAR = DWT_LAR_KEY;
    DWT_CYCCNT = value;
    DWT_CTRL |= DWT_CTRL_CYCCNTENA;
}

void counter_start(void)
{
    TIM2_PSC = clock_now.timer_hz / SLOW_HZ - 1u;
    TIM2_ARR = UINT32_MAX;
    TIM2_EGR = TIM_EGR_UG; /* takes over the prescaler and clears the counter */
    cycles_from(0);
    TIM2_CR1 = TIM_CR1_CEN;
}

uint64_t counter_now(void)
{
    const uint32_t unit = clock_now.core_hz / SLOW_HZ;
    const uint32_t cycles = DWT_CYCCNT;
    const uint64_t nearby = ticks_nearby(&ticks, TIM2_CNT, unit);
    if ((SCB_DEMCR & SCB_DEMCR_TRCENA) == 0u || (DWT_CTRL & DWT_CTRL_CYCCNTENA) == 0u) {
        restarts += BRINGUP_STAGE != 0 ? 1u : 0u; /* told by `chip%` there */
        cycles_from((uint32_t)nearby + unit); /* a whole step on, so that time never goes back */
        return nearby + unit;
    }
    return nearby + (uint64_t)(int64_t)(int32_t)(cycles - (uint32_t)nearby);
}

uint32_t counter_restarts(void)
{
    return restarts;
}

void counter_pause_us(uint32_t us)
{
    const uint32_t start = TIM2_CNT;
    while (TIM2_CNT - start <= us) { /* the first microsecond may be a short one */
    }
}
