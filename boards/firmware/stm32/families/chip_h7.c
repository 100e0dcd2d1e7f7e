/* chip_h7.c: RM0433: microcontroller debug unit, flash option bytes (4.4), device electronic signature. */
#include "chip.h"
#include "wiring.h"

#ifdef STM32_H7

const struct chip_entry CHIP_ENTRIES[] = {
    {"CPUID", 0xE000ED00u},       {"DBGMCU_IDCODE", 0x5C001000u}, {"FLASH_OPTSR", 0x5200201Cu},
    {"FLASH_ACR", 0x52002000u},   {"RCC_CR", 0x58024400u},        {"RCC_CFGR", 0x58024410u},
    {"RCC_D1CFGR", 0x58024418u},  {"RCC_PLLCKSELR", 0x58024428u}, {"RCC_PLLCFGR", 0x5802442Cu},
    {"RCC_PLL1DIVR", 0x58024430u}, {"PWR_CR3", 0x5802480Cu},      {"PWR_D3CR", 0x58024818u},
    {"SYSCFG_PWRCR", 0x5800042Cu}, {"SCB_CCR", 0xE000ED14u},      {"MPU_CTRL", 0xE000ED94u},
};
const uint32_t CHIP_ENTRY_COUNT = sizeof CHIP_ENTRIES / sizeof CHIP_ENTRIES[0];
const struct chip_entry CHIP_FLASH_SIZE = {"FLASH_SIZE", 0x1FF1E880u};
const uint32_t CHIP_FLASH_SIZE_SHIFT = 0;

#endif
