/* registers_f7.h: the registers of STM32F74x (RM0385) and STM32F76x (RM0410) used at start-up. Addresses:
 * section 2.2.2, memory map and register boundary addresses, of either manual; section numbers below are the same in
 * both.
 */
#ifndef REGISTERS_F7_H
#define REGISTERS_F7_H

#include "cortex_m7.h"

#define STM32_F7 1

#define GPIO_BASE(letter) (0x40020000u + 0x400u * (uint32_t)((letter) - 'A'))
#define USART1_BASE 0x40011000u
#define USART3_BASE 0x40004800u
#define IWDG_BASE 0x40003000u

/* 3.7.1 FLASH_ACR */
#define FLASH_ACR REGISTER(0x40023C00u)
#define FLASH_ACR_LATENCY_MASK 0xFu
#define FLASH_ACR_PRFTEN (1u << 8)
#define FLASH_ACR_ARTEN (1u << 9)

/* 3.7.6 FLASH_OPTCR: nDBANK is the F76x's alone (RM0410); cleared, flash has two banks and lines of 128 bits */
#define FLASH_OPTCR REGISTER(0x40023C14u)
#define FLASH_OPTCR_NDBANK (1u << 29)

/* 4.4.1 PWR_CR1, 4.4.2 PWR_CSR1 */
#define PWR_CR1 REGISTER(0x40007000u)
#define PWR_CR1_VOS_SCALE_1 (3u << 14) /* all of the field */
#define PWR_CR1_VOS_SCALE_3 (1u << 14)
#define PWR_CR1_ODEN (1u << 16)
#define PWR_CR1_ODSWEN (1u << 17)
#define PWR_CSR1 REGISTER(0x40007004u)
#define PWR_CSR1_ODRDY (1u << 16)
#define PWR_CSR1_ODSWRDY (1u << 17)

/* 5.3.1 RCC_CR, 5.3.2 RCC_PLLCFGR, 5.3.3 RCC_CFGR */
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
#define RCC_CFGR_PPRE1_DIV2 (4u << 10)
#define RCC_CFGR_PPRE1_DIV4 (5u << 10)
#define RCC_CFGR_PPRE2_DIV2 (4u << 13)

/* 5.3.10 RCC_AHB1ENR (a bit for each port, A first), 5.3.13 RCC_APB1ENR, 5.3.14 RCC_APB2ENR */
#define RCC_AHB1ENR REGISTER(0x40023830u)
#define RCC_AHB1ENR_GPIO(letter) (1u << (uint32_t)((letter) - 'A'))
#define RCC_APB1ENR REGISTER(0x40023840u)
#define RCC_APB1ENR_TIM2EN (1u << 0)
#define RCC_APB1ENR_USART3EN (1u << 18)
#define RCC_APB1ENR_PWREN (1u << 28)
#define RCC_APB2ENR REGISTER(0x40023844u)
#define RCC_APB2ENR_USART1EN (1u << 4)

/* 5.3.21 RCC_CSR */
#define RESET_CAUSE REGISTER(0x40023874u)
#define RESET_CAUSE_IWDG (1u << 29)
#define RESET_CAUSE_CLEAR (1u << 24)

/* Debug support (DBG), MCU debug component: DBGMCU_APB1_FZ */
#define DEBUG_FREEZE REGISTER(0xE0042008u)
#define DEBUG_FREEZE_IWDG (1u << 12)

#endif
