/* registers_h7.h: the registers of STM32H743 (RM0433) used at start-up. Addresses: section 2.3.2, memory map and
 * register boundary addresses.
 */
#ifndef REGISTERS_H7_H
#define REGISTERS_H7_H

#include "cortex_m7.h"

#define STM32_H7 1

#define GPIO_BASE(letter) (0x58020000u + 0x400u * (uint32_t)((letter) - 'A'))
#define USART3_BASE 0x40004800u
#define IWDG_BASE 0x58004800u /* IWDG1 */

/* 4.9 FLASH registers: FLASH_ACR */
#define FLASH_ACR REGISTER(0x52002000u)
#define FLASH_ACR_LATENCY_MASK 0xFu
#define FLASH_ACR_WRHIGHFREQ(delay) ((delay) << 4)

/* 6.8 PWR registers (PWR_D3CR: 6.8.6) */
#define PWR_CSR1 REGISTER(0x58024804u)
#define PWR_CSR1_ACTVOSRDY (1u << 13)
#define PWR_CR3 REGISTER(0x5802480Cu)
#define PWR_CR3_SUPPLY_MASK 7u /* BYPASS, LDOEN, SCUEN */
#define PWR_CR3_LDOEN (1u << 1)
#define PWR_D3CR REGISTER(0x58024818u)
#define PWR_D3CR_VOSRDY (1u << 13)
#define PWR_D3CR_VOS_MASK (3u << 14)
#define PWR_D3CR_VOS_SCALE(scale) ((4u - (scale)) << 14)

/* 12.3 SYSCFG registers */
#define SYSCFG_PWRCR REGISTER(0x5800042Cu)
#define SYSCFG_PWRCR_ODEN (1u << 0)

/* 8.7 RCC registers */
#define RCC_CR REGISTER(0x58024400u)
#define RCC_CR_HSEON (1u << 16)
#define RCC_CR_HSERDY (1u << 17)
#define RCC_CR_HSEBYP (1u << 18)
#define RCC_CR_PLL1ON (1u << 24)
#define RCC_CR_PLL1RDY (1u << 25)
#define RCC_CFGR REGISTER(0x58024410u)
#define RCC_CFGR_SW_MASK 7u
#define RCC_CFGR_SW_PLL1 3u
#define RCC_CFGR_SWS_MASK (7u << 3)
#define RCC_CFGR_SWS_PLL1 (3u << 3)
#define RCC_D1CFGR REGISTER(0x58024418u)
#define RCC_D1CFGR_HPRE_DIV2 8u
#define RCC_D1CFGR_D1PPRE_DIV2 (4u << 4)
#define RCC_D2CFGR REGISTER(0x5802441Cu)
#define RCC_D2CFGR_D2PPRE1_DIV2 (4u << 4)
#define RCC_D2CFGR_D2PPRE2_DIV2 (4u << 8)
#define RCC_D3CFGR REGISTER(0x58024420u)
#define RCC_D3CFGR_D3PPRE_DIV2 (4u << 4)
#define RCC_PLLCKSELR REGISTER(0x58024428u)
#define RCC_PLLCKSELR_PLLSRC_HSE 2u
#define RCC_PLLCFGR REGISTER(0x5802442Cu)
#define RCC_PLLCFGR_PLL1_MASK 0xFu /* PLL1FRACEN, PLL1VCOSEL, PLL1RGE */
#define RCC_PLLCFGR_PLL1RGE_2_TO_4_MHZ (1u << 2)
#define RCC_PLLCFGR_DIVP1EN (1u << 16)
#define RCC_PLLCFGR_DIVQ1EN (1u << 17)
#define RCC_PLLCFGR_DIVR1EN (1u << 18)
#define RCC_PLL1DIVR REGISTER(0x58024430u)
#define RCC_AHB4ENR REGISTER(0x580244E0u)
#define RCC_AHB4ENR_GPIO(letter) (1u << (uint32_t)((letter) - 'A'))
#define RCC_APB1LENR REGISTER(0x580244E8u)
#define RCC_APB1LENR_TIM2EN (1u << 0)
#define RCC_APB1LENR_USART3EN (1u << 18)
#define RCC_APB4ENR REGISTER(0x580244F4u)
#define RCC_APB4ENR_SYSCFGEN (1u << 1)

#define RESET_CAUSE REGISTER(0x580244D0u) /* RCC_RSR */
#define RESET_CAUSE_IWDG (1u << 26)
#define RESET_CAUSE_CLEAR (1u << 16)

/* Debug infrastructure, microcontroller debug unit: DBGMCU_IDC (revisions Y 0x1003, X 0x2001, V 0x2003), DBGMCU_APB4FZ1
 */
#define DBGMCU_IDCODE REGISTER(0x5C001000u)
#define DBGMCU_REV_ID_X 0x2001u
#define DEBUG_FREEZE REGISTER(0x5C001054u)
#define DEBUG_FREEZE_IWDG (1u << 18)

#endif
