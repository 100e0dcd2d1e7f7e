/* console.c: registers as in RM0410 (F76x) chapters 6 GPIO and 34 USART, RM0433 (H743) chapters 11 and 48; the two
 * families share this USART. GPIOD's address is the board's.
 */
#include "console.h"

#include "board.h"
#include "cortex_m7.h"
#include "registers.h"

#define GPIOD_MODER REGISTER(GPIOD_BASE + 0x00u)
#define GPIOD_PUPDR REGISTER(GPIOD_BASE + 0x0Cu)
#define GPIOD_AFRH REGISTER(GPIOD_BASE + 0x24u)
#define USART3_BASE 0x40004800u
#define USART3_CR1 REGISTER(USART3_BASE + 0x00u)
#define USART3_BRR REGISTER(USART3_BASE + 0x0Cu)
#define USART3_ISR REGISTER(USART3_BASE + 0x1Cu)
#define USART3_ICR REGISTER(USART3_BASE + 0x20u)
#define USART3_RDR REGISTER(USART3_BASE + 0x24u)
#define USART3_TDR REGISTER(USART3_BASE + 0x28u)

#define USART_CR1_UE (1u << 0)
#define USART_CR1_RE (1u << 2)
#define USART_CR1_TE (1u << 3)
#define USART_ISR_ORE (1u << 3)
#define USART_ISR_RXNE (1u << 5)
#define USART_ISR_TC (1u << 6)
#define USART_ISR_TXE (1u << 7)
#define USART_ICR_ORECF (1u << 3)

/* Two bits per pin in MODER and PUPDR, four per pin from 8 up in AFRH. */
#define PD8_PD9_MODE_MASK (0xFu << 16)
#define PD8_PD9_MODE_ALTERNATE (0xAu << 16)
#define PD9_PULL_UP (1u << 18) /* no start bits out of an open line */
#define PD8_PD9_AF_MASK 0xFFu
#define PD8_PD9_AF7 0x77u

void console_start(uint32_t kernel_clock_hz, uint32_t baud)
{
    GPIOD_AFRH = (GPIOD_AFRH & ~PD8_PD9_AF_MASK) | PD8_PD9_AF7;
    GPIOD_PUPDR = (GPIOD_PUPDR & ~PD8_PD9_MODE_MASK) | PD9_PULL_UP;
    GPIOD_MODER = (GPIOD_MODER & ~PD8_PD9_MODE_MASK) | PD8_PD9_MODE_ALTERNATE;
    USART3_CR1 = 0;
    USART3_BRR = (kernel_clock_hz + baud / 2u) / baud; /* oversampling by 16: BRR is the divider itself */
    USART3_CR1 = USART_CR1_UE | USART_CR1_RE | USART_CR1_TE;
}

void console_drain(void)
{
    while ((USART3_ISR & USART_ISR_TC) == 0u) {
    }
}

uint8_t board_get(void)
{
    for (;;) {
        const uint32_t state = USART3_ISR;
        if ((state & USART_ISR_ORE) != 0u) {
            USART3_ICR = USART_ICR_ORECF; /* a byte was lost; the host finds out by the CRC or by silence */
        }
        if ((state & USART_ISR_RXNE) != 0u) {
            return (uint8_t)USART3_RDR;
        }
        (void)board_ticks(); /* follows the counter through its turns */
    }
}

void board_put(uint8_t byte)
{
    while ((USART3_ISR & USART_ISR_TXE) == 0u) {
    }
    USART3_TDR = byte;
}
