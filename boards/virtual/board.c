/* board.c: board.h on QEMU's mps2-an500, the twin of every board.
 *
 * QEMU knows no cycles. Under `-icount shift=10` an instruction takes 1024 ns of virtual time, and the 25 MHz timers
 * count 25.6 ticks for it: board_ticks() turns that back into instructions, exactly. Without -icount the count means
 * nothing. TIMER0 alone would wrap after 168 M instructions; the second timer, with its prescaler of 256, supplies the
 * upper bits. Registers: Arm Cortex-M System Design Kit TRM (DDI 0479): timer, UART, dual timer; addresses:
 * AN500.
 */
#include "board.h"

#include "cortex_m7.h"

#define CMSDK_TIMER0_CTRL REGISTER(0x40000000u)
#define CMSDK_TIMER0_VALUE REGISTER(0x40000004u)
#define CMSDK_TIMER0_RELOAD REGISTER(0x40000008u)
#define CMSDK_TIMER_CTRL_ENABLE (1u << 0)

#define CMSDK_DUALTIMER1_LOAD REGISTER(0x40002000u)
#define CMSDK_DUALTIMER1_VALUE REGISTER(0x40002004u)
#define CMSDK_DUALTIMER1_CONTROL REGISTER(0x40002008u)
#define CMSDK_DUALTIMER_CONTROL_ENABLE (1u << 7)
#define CMSDK_DUALTIMER_CONTROL_PRESCALE_256 (2u << 2)
#define CMSDK_DUALTIMER_CONTROL_32BIT (1u << 1)

#define CMSDK_UART0_DATA REGISTER(0x40004000u)
#define CMSDK_UART0_STATE REGISTER(0x40004004u)
#define CMSDK_UART_STATE_TXFULL (1u << 0)
#define CMSDK_UART_STATE_RXFULL (1u << 1)
#define CMSDK_UART0_CTRL REGISTER(0x40004008u)
#define CMSDK_UART_CTRL_TXENABLE (1u << 0)
#define CMSDK_UART_CTRL_RXENABLE (1u << 1)
#define CMSDK_UART0_BAUDDIV REGISTER(0x40004010u)
#define CMSDK_UART_BAUDDIV_SMALLEST 16u /* QEMU transmits at once, whatever the rate */

#define TICK_NS 40u
#define INSTRUCTION_NS_LOG2 10 /* -icount shift=10 */
#define PRESCALE 256u

static uint64_t coarse_turns; /* of the prescaled timer, in its own full turns */
static uint32_t coarse_last;

void board_start(void)
{
    CMSDK_UART0_BAUDDIV = CMSDK_UART_BAUDDIV_SMALLEST;
    CMSDK_UART0_CTRL = CMSDK_UART_CTRL_TXENABLE | CMSDK_UART_CTRL_RXENABLE;
    CMSDK_DUALTIMER1_LOAD = UINT32_MAX;
    CMSDK_TIMER0_RELOAD = UINT32_MAX;
    CMSDK_TIMER0_VALUE = UINT32_MAX;
    CMSDK_DUALTIMER1_CONTROL =
        CMSDK_DUALTIMER_CONTROL_ENABLE | CMSDK_DUALTIMER_CONTROL_PRESCALE_256 | CMSDK_DUALTIMER_CONTROL_32BIT;
    CMSDK_TIMER0_CTRL = CMSDK_TIMER_CTRL_ENABLE;
}

uint64_t board_ticks(void)
{
    const uint32_t fine = UINT32_MAX - CMSDK_TIMER0_VALUE;
    const uint32_t coarse = UINT32_MAX - CMSDK_DUALTIMER1_VALUE;
    coarse_turns += coarse < coarse_last ? 1u : 0u;
    coarse_last = coarse;
    const uint64_t nearby = ((coarse_turns << 32) + coarse) * PRESCALE;
    /* The two disagree by a few hundred ticks at most: the low word is right, the high word follows from the nearest.
     */
    const uint64_t ticks = nearby + (uint64_t)(int64_t)(int32_t)(fine - (uint32_t)nearby);
    const uint64_t half_instruction_ns = 1u << (INSTRUCTION_NS_LOG2 - 1);
    return (ticks * TICK_NS + half_instruction_ns) >> INSTRUCTION_NS_LOG2;
}

uint8_t board_get(void)
{
    while ((CMSDK_UART0_STATE & CMSDK_UART_STATE_RXFULL) == 0u) {
    }
    return (uint8_t)CMSDK_UART0_DATA;
}

void board_put(uint8_t byte)
{
    while ((CMSDK_UART0_STATE & CMSDK_UART_STATE_TXFULL) != 0u) {
    }
    CMSDK_UART0_DATA = byte;
}

uint32_t board_clock_hz(void)
{
    return BOARD_CLOCK_HZ;
}

const char *board_name(void)
{
    return BOARD_NAME;
}

_Noreturn void board_reset(void)
{
    barrier();
    SCB_AIRCR = SCB_AIRCR_VECTKEY | SCB_AIRCR_SYSRESETREQ;
    for (;;) {
    }
}
