/* wiring.h: what the NUCLEO-F767ZI connects to its STM32F767 (UM1974), and its memories (DS11532). */
#ifndef WIRING_H
#define WIRING_H

#include "registers_f7.h"

#define HSE_HZ 8000000u /* from the ST-LINK (UM1974, OSC clock supply) */
#define HSE_IS_BYPASSED 1
#define PLLM 4u /* 2 MHz into the PLL, the value recommended against jitter (RM0410 5.3.2, PLLM) */

#define FLASH_IS_SPLIT ((FLASH_OPTCR & FLASH_OPTCR_NDBANK) == 0u)

#define CONSOLE_USART_BASE USART3_BASE
#define CONSOLE_INTERRUPT 39u /* USART3 (RM0410 chapter 10, vector table) */
#define CONSOLE_TX_PORT 'D'
#define CONSOLE_RX_PORT 'D'
#define CONSOLE_TX ((struct pin){.port = GPIO_BASE('D'), .number = 8})
#define CONSOLE_RX ((struct pin){.port = GPIO_BASE('D'), .number = 9})

#define TIMESTAMP_PORT 'F' /* D7 of the Arduino header */
#define TIMESTAMP_PIN ((struct pin){.port = GPIO_BASE('F'), .number = 13})

#define LIGHT_PORT 'B' /* LD3, red (UM1974, LEDs); lit when high */
#define LIGHT_PIN ((struct pin){.port = GPIO_BASE('B'), .number = 14})

/* Flash 2 MB; DTCM 128 KB and SRAM 384 KB, which follows it. */
#define BOARD_REGIONS                                                                                                  \
    {.base = (const void *)0x08000000u, .size_log2 = 21, .use = MPU_READ_EXECUTE},                                     \
    {                                                                                                                  \
        .base = (const void *)0x20000000u, .size_log2 = 19, .use = MPU_READ_WRITE                                      \
    }

#endif
