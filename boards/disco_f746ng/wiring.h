/* wiring.h: what the 32F746GDISCOVERY connects to its STM32F746 (UM1907), and its memories (DS10916). */
#ifndef WIRING_H
#define WIRING_H

#include "registers_f7.h"

#define HSE_HZ 25000000u /* crystal X2 (UM1907, clock sources) */
#define HSE_IS_BYPASSED 0
#define PLLM 25u /* 1 MHz into the PLL: 2 MHz does not divide 25 (RM0385 5.3.2, PLLM) */

#define FLASH_IS_SPLIT false /* one bank (RM0385 3.3) */

#define CONSOLE_USART_BASE USART1_BASE
#define CONSOLE_INTERRUPT 37u /* USART1 (RM0385 chapter 10, vector table) */
#define CONSOLE_TX_PORT 'A'
#define CONSOLE_RX_PORT 'B'
#define CONSOLE_TX ((struct pin){.port = GPIO_BASE('A'), .number = 9})
#define CONSOLE_RX ((struct pin){.port = GPIO_BASE('B'), .number = 7})

#define TIMESTAMP_PORT 'I' /* D7 of the Arduino header */
#define TIMESTAMP_PIN ((struct pin){.port = GPIO_BASE('I'), .number = 3})

#define LIGHT_PORT 'I' /* LD1, green (UM1907, LEDs); lit when high */
#define LIGHT_PIN ((struct pin){.port = GPIO_BASE('I'), .number = 1})

/* Flash 1 MB; DTCM 64 KB and SRAM 256 KB, which follows it: five eighths of 512 KB. */
#define BOARD_REGIONS                                                                                                  \
    {.base = (const void *)0x08000000u, .size_log2 = 20, .use = MPU_READ_EXECUTE},                                     \
    {                                                                                                                  \
        .base = (const void *)0x20000000u, .size_log2 = 19, .use = MPU_READ_WRITE, .eighths_off = 0xE0u                \
    }

#endif
