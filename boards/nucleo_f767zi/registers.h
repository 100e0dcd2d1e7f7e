/* registers.h: the STM32F767 registers used at start-up (RM0410 chapters 2 memory map, 3 FLASH, 4 PWR, 5 RCC). */
#ifndef REGISTERS_H
#define REGISTERS_H

#include "cortex_m7.h"

#define GPIOD_BASE 0x40020C00u

#define FLASH_ACR REGISTER(0x40023C00u)
#define FLASH_ACR_LATENCY_MASK 0xFu
#define FLASH_ACR_PRFTEN (1u << 8)
#define FLASH_ACR_ARTEN (1u << 9)

#define PWR_CR1 REGISTER(0x40007000u)
#define PWR_CR1_VOS_SCALE_1 (3u << 14)
#define PWR_CR1_ODEN (1u << 16)
#define PWR_CR1_ODSWEN (1u << 17)
#define PWR_CSR1 REGISTER(0x40007004u)
#define PWR_CSR1_ODRDY (1u << 16)
#define PWR_CSR1_ODSWRDY (1u << 17)

#define RCC_CR REGISTER(0x40023800u)
#define RCC_CR_HSEON (1u << 16)
#define RCC_CR_HSERDY (1u << 17)
#define RCC_CR_HSEBYP (1u << 18)
#define RCC_CR_PLLON (1u << 24)
#define RCC_CR_PLLRDY (1u << 25)
#define RCC_PLLCFGR REGISTER(0x40023804u)
#define RCC_PLLCFGR_PLLSRC_HSE (1u << 22)
#define RCC_CFGR REGISTER(0x40023808u)
#define RCC_CFGR_SW_PLL 2u
#define RCC_CFGR_SWS_MASK (3u << 2)
#define RCC_CFGR_SWS_PLL (2u << 2)
#define RCC_CFGR_PPRE1_DIV4 (5u << 10)
#define RCC_CFGR_PPRE2_DIV2 (4u << 13)
#define RCC_AHB1ENR REGISTER(0x40023830u)
#define RCC_AHB1ENR_GPIODEN (1u << 3)
#define RCC_APB1ENR REGISTER(0x40023840u)
#define RCC_APB1ENR_USART3EN (1u << 18)
#define RCC_APB1ENR_PWREN (1u << 28)

#endif
