/* wiring.h: what the NUCLEO-H743ZI2 connects to its STM32H743 (UM2407), and its memories (DS12110). */
#ifndef WIRING_H
#define WIRING_H

#include "registers_h7.h"

#define HSE_HZ 8000000u /* from the ST-LINK (UM2407, OSC clock supply) */
#define HSE_IS_BYPASSED 1
#define DIVM1 4u /* 2 MHz into the PLL (RM0433 8.7, RCC_PLLCKSELR) */

#define FLASH_IS_SPLIT false /* two banks at all times, each with lines of 256 bits (RM0433 4.3) */

#define CONSOLE_USART_BASE USART3_BASE
#define CONSOLE_INTERRUPT 39u /* USART3 (RM0433 chapter 19, vector table) */
#define CONSOLE_TX_PORT 'D'
#define CONSOLE_RX_PORT 'D'
#define CONSOLE_TX ((struct pin){.port = GPIO_BASE('D'), .number = 8})
#define CONSOLE_RX ((struct pin){.port = GPIO_BASE('D'), .number = 9})

#define TIMESTAMP_PORT 'G' /* D7 of the Arduino header */
#define TIMESTAMP_PIN ((struct pin){.port = GPIO_BASE('G'), .number = 12})

#define LIGHT_PORT 'B' /* LD3, red (UM2407, LEDs); lit when high */
#define LIGHT_PIN ((struct pin){.port = GPIO_BASE('B'), .number = 14})

/* Flash 2 MB; DTCM 128 KB; AXI SRAM 512 KB. */
#define BOARD_REGIONS                                                                                                  \
    {.base = (const void *)0x08000000u, .size_log2 = 21, .use = MPU_READ_EXECUTE},                                     \
        {.base = (const void *)0x20000000u, .size_log2 = 17, .use = MPU_READ_WRITE},                                   \
    {                                                                                                                  \
        .base = (const void *)0x24000000u, .size_log2 = 19, .use = MPU_READ_WRITE                                      \
    }

#endif
