/* board.c: board.h on QEMU's mps2-an500, the twin of every board. Registers: Arm Cortex-M System Design Kit TRM
 * (DDI 0479); addresses: AN500. Time is in counter.c, the watchdog in watchdog.c.
 */
#include "board.h"

#include <stddef.h>

#include "baud.h"
#include "cortex_m7.h"
#include "counter.h"
#include "mpu.h"
#include "ring.h"
#include "watchdog.h"

#define CMSDK_UART0_DATA REGISTER(0x40004000u)
#define CMSDK_UART0_STATE REGISTER(0x40004004u)
#define CMSDK_UART_STATE_TXFULL (1u << 0)
#define CMSDK_UART_STATE_RXFULL (1u << 1)
#define CMSDK_UART_STATE_RXOVERRUN (1u << 3)
#define CMSDK_UART0_CTRL REGISTER(0x40004008u)
#define CMSDK_UART_CTRL_TXENABLE (1u << 0)
#define CMSDK_UART_CTRL_RXENABLE (1u << 1)
#define CMSDK_UART_CTRL_RXINTERRUPT (1u << 3)
#define CMSDK_UART0_INTSTATUS REGISTER(0x4000400Cu)
#define CMSDK_UART_INTSTATUS_RX (1u << 1)
#define CMSDK_UART0_INTCLEAR REGISTER(0x4000400Cu)
#define CMSDK_UART_INTCLEAR_RX (1u << 1)
#define CMSDK_UART0_BAUDDIV REGISTER(0x40004010u)
#define UART0_RX_INTERRUPT 0u
#define UART_CLOCK_HZ 25000000u
#define LEAST_DIVIDER 16u
#define MOST_DIVIDER 0xFFFFFu

#define FPGAIO_LED0 REGISTER(0x40028000u) /* two lights; the first stands for the timestamp pin */
#define FPGAIO_LED0_TIMESTAMP (1u << 0)

extern const uint32_t _stack_guard[]; /* sections.ld */

static const struct mpu_region REGIONS[] = {
    {.base = (const void *)0x00000000u, .size_log2 = 22, .use = MPU_READ_EXECUTE},
    {.base = (const void *)0x20000000u, .size_log2 = 22, .use = MPU_READ_WRITE},
    {.base = (const void *)0x40000000u, .size_log2 = 29, .use = MPU_DEVICE},
    {.base = (const void *)0x00000000u, .size_log2 = 10, .use = MPU_NOTHING}, /* vectors, which only hardware reads */
    {.base = _stack_guard, .size_log2 = 8, .use = MPU_NOTHING},
};

static struct ring received;

static void console_interrupt(void)
{
    CMSDK_UART0_INTCLEAR = CMSDK_UART_INTCLEAR_RX; /* first: a byte that comes from here on interrupts again */
    const uint32_t state = CMSDK_UART0_STATE;
    if ((state & CMSDK_UART_STATE_RXFULL) != 0u) {
        ring_put(&received, (uint8_t)CMSDK_UART0_DATA, false);
    }
    if ((state & CMSDK_UART_STATE_RXOVERRUN) != 0u) {
        CMSDK_UART0_STATE = CMSDK_UART_STATE_RXOVERRUN;
        ring_lose(&received);
    }
}

__attribute__((section(".interrupt_vectors"), used)) static void (*const interrupts[UART0_RX_INTERRUPT + 1u])(void) = {
    [UART0_RX_INTERRUPT] = console_interrupt,
};

/* Reading DATA makes QEMU look at once whether bytes wait for the receiver that was just enabled; by itself it would
 * look a second later. Should one have come in that very moment, it was read. */
static void wake_receiver(void)
{
    const uint8_t byte = (uint8_t)CMSDK_UART0_DATA;
    if ((CMSDK_UART0_INTSTATUS & CMSDK_UART_INTSTATUS_RX) == 0u) {
        return;
    }
    if ((CMSDK_UART0_STATE & CMSDK_UART_STATE_RXFULL) == 0u) {
        ring_put(&received, byte, false);
    } else {
        ring_lose(&received); /* one or two have come: there is no telling */
    }
}

void board_start(void)
{
    watchdog_start();
    mpu_start(REGIONS, sizeof REGIONS / sizeof REGIONS[0]);
    counter_start();
    FPGAIO_LED0 = FPGAIO_LED0_TIMESTAMP;
    ring_clear(&received);
    CMSDK_UART0_BAUDDIV = baud_divider(UART_CLOCK_HZ, BOARD_BAUD);
    CMSDK_UART0_CTRL = CMSDK_UART_CTRL_TXENABLE | CMSDK_UART_CTRL_RXENABLE | CMSDK_UART_CTRL_RXINTERRUPT;
    wake_receiver();
    NVIC_ISER(UART0_RX_INTERRUPT) = NVIC_BIT(UART0_RX_INTERRUPT);
}

uint64_t board_ticks(void)
{
    return counter_now();
}

uint16_t board_take(void)
{
    return ring_take(&received);
}

uint32_t board_receive_errors(void)
{
    return received.errors;
}

void board_put(uint8_t byte)
{
    while ((CMSDK_UART0_STATE & CMSDK_UART_STATE_TXFULL) != 0u) {
        board_alive();
    }
    CMSDK_UART0_DATA = byte;
}

bool board_can_baud(uint32_t baud)
{
    const uint32_t divider = baud_divider(UART_CLOCK_HZ, baud);
    return divider >= LEAST_DIVIDER && divider <= MOST_DIVIDER && baud_is_near(UART_CLOCK_HZ, divider, baud);
}

/* QEMU tells its back end the rate; on a socket, which has none, bytes pass at once whatever it is. */
void board_set_baud(uint32_t baud)
{
    CMSDK_UART0_BAUDDIV = baud_divider(UART_CLOCK_HZ, baud);
}

uint32_t board_first_baud(void)
{
    return BOARD_BAUD;
}

uint32_t board_clock_hz(void)
{
    return BOARD_CLOCK_HZ;
}

const char *board_trouble(void)
{
    return NULL;
}

const char *board_option(void)
{
    return NULL;
}

/* The core's identity (DDI 0403, CPUID) is all that twin and board have in common. */
bool board_chip(uint32_t index, struct board_register *found)
{
    *found = (struct board_register){"CPUID", SCB_CPUID};
    return index == 0u;
}

/* An instruction takes 1024 ns of virtual time. */
void board_pulse(void)
{
    FPGAIO_LED0 = 0;
    for (uint32_t passed = 0; passed < BOARD_PULSE_US; passed++) {
        barrier();
    }
    FPGAIO_LED0 = FPGAIO_LED0_TIMESTAMP;
}

void board_alive(void)
{
    watchdog_restart();
}

bool board_was_hung(void)
{
    return watchdog_has_bitten();
}

const char *board_name(void)
{
    return "virtual " BOARD_NAME; /* in nobody's log shall it pass for the board */
}

_Noreturn void board_reset(void)
{
    barrier();
    SCB_AIRCR = SCB_AIRCR_VECTKEY | SCB_AIRCR_SYSRESETREQ;
    for (;;) {
    }
}
