/* console.c: board.h's serial line. Registers as in RM0385 (F74x) chapter 31, RM0410 (F76x) chapter 34 and RM0433
 * (H743) chapter 48, USART: the families share it, apart from the H743's FIFO, which stays off.
 */
#include "console.h"

#include "baud.h"
#include "board.h"
#include "clock.h"
#include "cortex_m7.h"
#include "pins.h"
#include "ring.h"
#include "wait.h"
#include "watchdog.h"
#include "wiring.h"

#define USART_CR1 REGISTER(CONSOLE_USART_BASE + 0x00u)
#define USART_BRR REGISTER(CONSOLE_USART_BASE + 0x0Cu)
#define USART_ISR REGISTER(CONSOLE_USART_BASE + 0x1Cu)
#define USART_ICR REGISTER(CONSOLE_USART_BASE + 0x20u)
#define USART_RDR REGISTER(CONSOLE_USART_BASE + 0x24u)
#define USART_TDR REGISTER(CONSOLE_USART_BASE + 0x28u)

#define USART_CR1_UE (1u << 0)
#define USART_CR1_RE (1u << 2)
#define USART_CR1_TE (1u << 3)
#define USART_CR1_RXNEIE (1u << 5) /* an interrupt for RXNE and for ORE */
#define USART_ISR_FE (1u << 1)
#define USART_ISR_NF (1u << 2)
#define USART_ISR_ORE (1u << 3)
#define USART_ISR_RXNE (1u << 5)
#define USART_ISR_TC (1u << 6)
#define USART_ISR_TXE (1u << 7)

#define ALTERNATE_FUNCTION 7u /* USART1 to USART3 on every pin used here (data sheets, alternate functions) */
/* Oversampling by 16: USARTDIV is BRR itself, 16 at least and 16 bits long. */
#define LEAST_DIVIDER 16u
#define MOST_DIVIDER 0xFFFFu

/* A fault may come before the console is up, and a USART may stop: nobody waits for it for ever. */
static enum { CONSOLE_DOWN, CONSOLE_UP, CONSOLE_STUCK } state;
static struct ring received;

void console_start(uint32_t baud)
{
    ring_clear(&received);
    pin_alternate(CONSOLE_TX, ALTERNATE_FUNCTION);
    pin_alternate(CONSOLE_RX, ALTERNATE_FUNCTION);
    USART_CR1 = 0;
    USART_BRR = baud_divider(clock_now.console_hz, baud);
    USART_CR1 = USART_CR1_UE | USART_CR1_RE | USART_CR1_TE | USART_CR1_RXNEIE;
    NVIC_ISER(CONSOLE_INTERRUPT) = NVIC_BIT(CONSOLE_INTERRUPT);
    state = CONSOLE_UP;
}

/* Once it has waited in vain it only looks, so that a long message does not wait at each of its bytes. */
static bool has_set(uint32_t flag)
{
    if (state == CONSOLE_DOWN) {
        return false;
    }
    const bool is_set = (USART_ISR & flag) != 0u || (state == CONSOLE_UP && wait_set(&USART_ISR, flag));
    state = is_set ? CONSOLE_UP : CONSOLE_STUCK;
    return is_set;
}

bool console_drain(void)
{
    return has_set(USART_ISR_TC);
}

void console_interrupt(void)
{
    const uint32_t flags = USART_ISR;
    USART_ICR = flags & (USART_ISR_FE | USART_ISR_NF | USART_ISR_ORE); /* its bits lie where the flags do */
    if ((flags & USART_ISR_RXNE) != 0u) {
        ring_put(&received, (uint8_t)USART_RDR, (flags & (USART_ISR_FE | USART_ISR_NF)) != 0u);
    }
    if ((flags & USART_ISR_ORE) != 0u) {
        ring_lose(&received); /* what the shift register held; RDR was whole */
    }
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
    if (has_set(USART_ISR_TXE)) {
        USART_TDR = byte;
        watchdog_restart(); /* a long reply at a slow rate is no hang */
    }
}

bool board_can_baud(uint32_t baud)
{
    const uint32_t divider = baud_divider(clock_now.console_hz, baud);
    return divider >= LEAST_DIVIDER && divider <= MOST_DIVIDER && baud_is_near(clock_now.console_hz, divider, baud);
}

void board_set_baud(uint32_t baud)
{
    (void)console_drain();
    USART_CR1 &= ~USART_CR1_UE; /* BRR may be written only while the USART is off */
    USART_BRR = baud_divider(clock_now.console_hz, baud);
    USART_CR1 |= USART_CR1_UE;
}

uint32_t board_first_baud(void)
{
    return BOARD_BAUD;
}
